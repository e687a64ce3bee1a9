// tgd.h by itself, as C++: compiled only.
#include "torchgraphdbg/tgd.h"
#include "torchgraphdbg/tgd.h" // twice does no harm

int tgd_header_check_cpp(tgd_report **out, const tgd_root *root);

int tgd_header_check_cpp(tgd_report **out, const tgd_root *root)
{
    tgd_request request = {};
    tgd_error err;
    request.roots = root;
    request.n_roots = 1;
    return tgd_report_capture(out, &request, &err) == TGD_OK ? TGD_N_FINDING_KINDS : 0;
}

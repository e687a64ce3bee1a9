/* tgd.h by itself, as C99: compiled only. */
#include "torchgraphdbg/tgd.h"
#include "torchgraphdbg/tgd.h" /* twice does no harm */

int tgd_header_check(tgd_report **out, const tgd_root *root);

int tgd_header_check(tgd_report **out, const tgd_root *root)
{
    tgd_request request = {0};
    tgd_error err;
    request.roots = root;
    request.n_roots = 1;
    return tgd_report_capture(out, &request, &err) == TGD_OK ? TGD_N_FINDING_KINDS : 0;
}

/* Stands in for the light recorder: records nothing. */
#include "observe.h"

extern "C" tgd_status tgd_observe_start_light(const tgd_observer *, tgd_error *)
{
    return TGD_OK;
}

extern "C" void tgd_observe_stop_light(void)
{
}

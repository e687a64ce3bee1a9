#include "device_axis.h"

/* How far the distance may be off. */
static int64_t slack(int64_t distance)
{
    return (distance < 0 ? -distance : distance) / TGD_AXIS_DRIFT + TGD_AXIS_RESOLUTION;
}

void tgd_axis_init(tgd_axis *axis, uint64_t asked)
{
    axis->lower = (int64_t)asked;
    axis->upper = INT64_MAX;
}

void tgd_axis_not_before(tgd_axis *axis, int64_t distance, uint64_t host)
{
    int64_t bound = (int64_t)host - distance - slack(distance);
    if (bound > axis->lower) {
        axis->lower = bound;
    }
}

void tgd_axis_not_after(tgd_axis *axis, int64_t distance, uint64_t host)
{
    int64_t bound = (int64_t)host - distance + slack(distance);
    if (bound < axis->upper) {
        axis->upper = bound;
    }
}

uint64_t tgd_axis_at(const tgd_axis *axis, int64_t distance)
{
    int64_t at = axis->lower + distance;
    return at > 0 ? (uint64_t)at : 0;
}

uint64_t tgd_axis_uncertainty(const tgd_axis *axis, int64_t distance)
{
    if (axis->upper == INT64_MAX) {
        return UINT64_MAX;
    }
    /* Crossed bounds: the clocks drifted apart by more than was allowed for. */
    int64_t width = axis->upper > axis->lower ? axis->upper - axis->lower : axis->lower - axis->upper;
    return (uint64_t)(width + slack(distance));
}

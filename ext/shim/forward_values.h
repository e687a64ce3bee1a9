/* What an op of the forward gave that is not finite. */
#ifndef TGD_FORWARD_VALUES_H
#define TGD_FORWARD_VALUES_H

#include <cstdint>

namespace at
{
class RecordFunction;
}

namespace tgd
{

/* TGD_OP_NAN_OUT and TGD_OP_INF_OUT of an op that has just ended; what it was given may be gone by then. Looks at results
   on the CPU alone, at all of small ones and at a share of large ones (finite.h). Runs no op. */
std::uint32_t nonfinite_flags(const at::RecordFunction &fn);

} // namespace tgd

#endif

/* What an in-place product multiplies by, as far as it decides whether a gradient still comes out right. */
#ifndef TGD_FACTORS_H
#define TGD_FACTORS_H

#include <cstdint>

namespace at
{
struct RecordFunction;
}

namespace tgd
{

/* TGD_OP_MASKS, TGD_OP_KEEPS_SIGN or 0, of an op that is about to run. Looks at values on the CPU alone, and at a million
   of them at most. */
std::uint32_t factor_flags(const at::RecordFunction &fn, const char *name);

} // namespace tgd

#endif

#include "forward_values.h"

#include <ATen/record_function.h>

#include "compat.h"
#include "finite.h"
#include "identity.h"
#include "rows.h"
#include "tensor_statistics.h"

namespace tgd
{
namespace
{

const tgd_torch_tensor *handle(c10::TensorImpl *impl)
{
    return reinterpret_cast<const tgd_torch_tensor *>(impl);
}

/* Worth asking finite.h about? The shortest way out for most of what is not. */
bool may_be_read(const c10::TensorImpl *impl)
{
    return impl->has_storage() && impl->is_cpu() && !impl->is_python_dispatch() &&
           c10::isFloatingType(c10::typeMetaToScalarType(impl->dtype()));
}

std::uint32_t flags_of(c10::TensorImpl *impl)
{
    tgd_torch_tensor_info info;
    tgd_statistics statistics;
    tgd_torch_tensor_read(handle(impl), &info);
    if (tgd_finite_look(&info, 0) != TGD_NOT_FINITE || tgd_torch_statistics(handle(impl), &statistics) != TGD_CHECKED) {
        return 0;
    }
    return flag_if(statistics.n_nan > 0, TGD_OP_NAN_OUT) | flag_if(statistics.n_inf > 0, TGD_OP_INF_OUT);
}

} // namespace

std::uint32_t nonfinite_flags(const at::RecordFunction &fn)
{
    std::uint32_t flags = 0;
    for (const c10::IValue &value : fn.outputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            flags |= may_be_read(impl) ? flags_of(impl) : 0u;
        });
    }
    return flags;
}

} // namespace tgd

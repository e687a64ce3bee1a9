#include "factors.h"

#include <cstring>

#include <ATen/record_function.h>

#include "record.h"

namespace tgd
{
namespace
{

constexpr std::int64_t most_values = 1 << 20;

template <class Value> std::uint32_t flags_of(const Value *values, std::int64_t n)
{
    bool masks = true, keeps = true;
    for (std::int64_t i = 0; i < n && keeps; i++) {
        keeps = values[i] >= Value(0);
        masks = masks && (values[i] == Value(0) || values[i] == Value(1));
    }
    return (masks && keeps ? std::uint32_t{TGD_OP_MASKS} : 0u) | (keeps ? std::uint32_t{TGD_OP_KEEPS_SIGN} : 0u);
}

std::uint32_t flags_of_tensor(const c10::TensorImpl *impl)
{
    if (!impl->has_storage() || !impl->device().is_cpu() || impl->is_python_dispatch() ||
        impl->has_symbolic_sizes_strides() || impl->layout() != c10::kStrided || impl->is_conj() || impl->is_neg() ||
        impl->numel() > most_values || !impl->is_contiguous()) {
        return 0;
    }
    const void *data = impl->data();
    switch (c10::typeMetaToScalarType(impl->dtype())) {
    case c10::ScalarType::Bool:
        return TGD_OP_MASKS | TGD_OP_KEEPS_SIGN;
    case c10::ScalarType::Float:
        return flags_of(static_cast<const float *>(data), impl->numel());
    case c10::ScalarType::Double:
        return flags_of(static_cast<const double *>(data), impl->numel());
    case c10::ScalarType::Long:
        return flags_of(static_cast<const std::int64_t *>(data), impl->numel());
    default:
        return 0;
    }
}

} // namespace

std::uint32_t factor_flags(const at::RecordFunction &fn, const char *name)
{
    if (std::strcmp(name, "aten::mul_") != 0 || fn.inputs().size() < 2) {
        return 0;
    }
    const c10::IValue &factor = fn.inputs()[1];
    if (factor.isTensor() && factor.toTensor().defined()) {
        return flags_of_tensor(factor.toTensor().unsafeGetTensorImpl());
    }
    if (factor.isDouble() || factor.isInt()) {
        const double value = factor.isDouble() ? factor.toDouble() : static_cast<double>(factor.toInt());
        return flags_of(&value, 1);
    }
    return 0;
}

} // namespace tgd

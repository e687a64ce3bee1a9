/* Where a tensor's values lie on the CPU. */
#include "tensor_statistics.h"

#include <atomic>

#include <ATen/Parallel.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>

#include "compat.h"

/* The OpenMP runtime that libtorch uses, whatever its file is called; NULL where it uses none. Compiled with -fopenmp
   we would bring a second one. */
extern "C" __attribute__((weak)) void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);

namespace tgd
{
namespace
{

/* ---- threads ---- */

struct shared_work {
    std::size_t n;
    void (*work)(void *, std::size_t);
    void *context;
    std::atomic<std::size_t> next{0};
};

void take_turns(void *data)
{
    auto &all = *static_cast<shared_work *>(data);
    for (std::size_t i = all.next++; i < all.n; i = all.next++) {
        all.work(all.context, i);
    }
}

void spread(std::size_t n, void (*work)(void *, std::size_t), void *context)
{
    shared_work all{n, work, context};
    bool alone = GOMP_parallel == nullptr;
    try {
        alone = alone || at::in_parallel_region() || at::get_num_threads() == 1;
    } catch (...) {
        alone = true;
    }
    if (alone) {
        take_turns(&all);
    } else {
        GOMP_parallel(take_turns, &all, 0, 0); /* as many as torch's own operations */
    }
}

/* ---- what can be read ---- */

bool element_of(int dtype, tgd_element *out)
{
    switch (static_cast<c10::ScalarType>(dtype)) {
    case c10::ScalarType::Float:
        *out = TGD_FLOAT32;
        return true;
    case c10::ScalarType::Double:
        *out = TGD_FLOAT64;
        return true;
    case c10::ScalarType::Half:
        *out = TGD_FLOAT16;
        return true;
    case c10::ScalarType::BFloat16:
        *out = TGD_BFLOAT16;
        return true;
    case c10::ScalarType::ComplexHalf:
        *out = TGD_COMPLEX32;
        return true;
    case c10::ScalarType::ComplexFloat:
        *out = TGD_COMPLEX64;
        return true;
    case c10::ScalarType::ComplexDouble:
        *out = TGD_COMPLEX128;
        return true;
    case c10::ScalarType::Float8_e4m3fn:
        *out = TGD_FLOAT8_E4M3FN;
        return true;
    case c10::ScalarType::Float8_e5m2:
        *out = TGD_FLOAT8_E5M2;
        return true;
    case c10::ScalarType::Float8_e4m3fnuz:
        *out = TGD_FLOAT8_E4M3FNUZ;
        return true;
    case c10::ScalarType::Float8_e5m2fnuz:
        *out = TGD_FLOAT8_E5M2FNUZ;
        return true;
    default:
        return false;
    }
}

tgd_unchecked refuse(const tgd_torch_tensor_info &info)
{
    if ((info.flags & TGD_TENSOR_DEFINED) == 0) {
        return TGD_UNCHECKED_UNDEFINED;
    }
    if ((info.flags & TGD_TENSOR_NESTED) != 0) {
        return TGD_UNCHECKED_NESTED;
    }
    if ((info.flags & TGD_TENSOR_WRAPPER) != 0) {
        return TGD_UNCHECKED_WRAPPER;
    }
    if ((info.flags & TGD_TENSOR_META) != 0) {
        return TGD_UNCHECKED_META;
    }
    if ((info.flags & TGD_TENSOR_SUBCLASS) != 0) {
        return TGD_UNCHECKED_SUBCLASS;
    }
    if ((info.flags & TGD_TENSOR_SYMBOLIC) != 0) {
        return TGD_UNCHECKED_SYMBOLIC;
    }
    return TGD_CHECKED;
}

/* Dense values of a tensor that can be read. all_zero: it has no memory and is zero. */
struct found {
    tgd_torch_tensor_info info;
    tgd_strided values;
    bool all_zero;
    std::uint64_t n_implicit; /* zeros that are not stored */
};

tgd_unchecked find_strided(c10::TensorImpl &impl, found *out)
{
    tgd_torch_tensor_info &info = out->info;
    if (info.layout != static_cast<std::int8_t>(c10::Layout::Strided) || info.strides == nullptr) {
        return TGD_UNCHECKED_LAYOUT;
    }
    const c10::DispatchKeySet keys = impl.key_set();
    out->all_zero = keys.has(c10::DispatchKey::ZeroTensor);
    if (!out->all_zero && !tgd_torch_storage_fits(&info)) {
        return TGD_UNCHECKED_STORAGE;
    }
    if (info.ndim > TGD_MOST_DIMENSIONS) {
        return TGD_UNCHECKED_SHAPE;
    }
    tgd_strided &values = out->values;
    values.data = reinterpret_cast<const char *>(info.data) + info.storage_offset * std::int64_t{info.itemsize};
    values.sizes = info.sizes;
    values.strides = info.strides;
    values.ndim = static_cast<std::size_t>(info.ndim);
    values.negated = keys.has(c10::DispatchKey::Negative);
    values.conjugated = keys.has(c10::DispatchKey::Conjugate);
    return TGD_CHECKED;
}

/* Borrowed: the tensor that holds the stored values; NULL for another layout. */
c10::TensorImpl *stored_values(c10::TensorImpl &impl, int layout)
{
    switch (static_cast<c10::Layout>(layout)) {
    case c10::Layout::Sparse:
        return static_cast<at::SparseTensorImpl &>(impl).values().unsafeGetTensorImpl();
    case c10::Layout::SparseCsr:
    case c10::Layout::SparseCsc:
    case c10::Layout::SparseBsr:
    case c10::Layout::SparseBsc:
        return static_cast<at::SparseCsrTensorImpl &>(impl).values().unsafeGetTensorImpl();
    default:
        return nullptr;
    }
}

tgd_unchecked find(const tgd_torch_tensor *tensor, found *out)
{
    tgd_torch_tensor_info &info = out->info;
    out->n_implicit = 0;
    tgd_torch_tensor_read(tensor, &info);
    tgd_unchecked why = refuse(info);
    if (why != TGD_CHECKED) {
        return why;
    }
    if (info.device_type != static_cast<std::int8_t>(c10::DeviceType::CPU)) {
        return TGD_UNCHECKED_DEVICE;
    }
    if (!element_of(info.dtype, &out->values.element)) {
        return TGD_UNCHECKED_DTYPE;
    }
    c10::TensorImpl *impl = impl_of(tensor);
    c10::TensorImpl *values = stored_values(*impl, info.layout);
    if (values != nullptr) {
        const std::int64_t numel = info.numel;
        impl = values;
        tgd_torch_tensor_read(handle(impl), &info);
        why = refuse(info);
        if (why != TGD_CHECKED) {
            return why;
        }
        out->n_implicit = numel > info.numel ? static_cast<std::uint64_t>(numel - info.numel) : 0;
    }
    return find_strided(*impl, out);
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" const char *tgd_torch_unchecked_name(tgd_unchecked why)
{
    switch (why) {
    case TGD_CHECKED:
        return "checked";
    case TGD_UNCHECKED_UNDEFINED:
        return "no tensor";
    case TGD_UNCHECKED_NESTED:
        return "nested tensor";
    case TGD_UNCHECKED_META:
        return "meta tensor";
    case TGD_UNCHECKED_WRAPPER:
        return "wrapper of other tensors";
    case TGD_UNCHECKED_SUBCLASS:
        return "tensor subclass with a __torch_dispatch__";
    case TGD_UNCHECKED_SYMBOLIC:
        return "symbolic sizes";
    case TGD_UNCHECKED_DTYPE:
        return "dtype without statistics";
    case TGD_UNCHECKED_LAYOUT:
        return "opaque layout";
    case TGD_UNCHECKED_STORAGE:
        return "storage freed or too small";
    case TGD_UNCHECKED_SHAPE:
        return "more than 64 dimensions";
    case TGD_UNCHECKED_DEVICE:
        return "on another device";
    case TGD_UNCHECKED_CAPTURE:
        return "CUDA graph being captured";
    case TGD_UNCHECKED_FAILED:
        return "torch failed to measure it";
    }
    return "";
}

extern "C" bool tgd_torch_storage_fits(const tgd_torch_tensor_info *info)
{
    if (info->numel == 0) {
        return true;
    }
    std::int64_t last = info->storage_offset;
    for (int d = 0; d < info->ndim; d++) {
        last += (info->sizes[d] - 1) * info->strides[d];
    }
    return info->data != 0 && last >= 0 &&
           (static_cast<std::uint64_t>(last) + 1) * info->itemsize <= info->storage_bytes;
}

extern "C" tgd_unchecked tgd_torch_statistics(const tgd_torch_tensor *tensor, tgd_statistics *out)
{
    found where;
    const tgd_unchecked why = find(tensor, &where);
    if (why != TGD_CHECKED) {
        return why;
    }
    if (where.all_zero) {
        *out = {};
        out->n = out->n_zero = static_cast<std::uint64_t>(where.info.numel);
    } else if (!tgd_statistics_of(out, &where.values, spread)) {
        return TGD_UNCHECKED_SHAPE;
    }
    out->n += where.n_implicit;
    out->n_zero += where.n_implicit;
    return TGD_CHECKED;
}

extern "C" tgd_unchecked tgd_torch_nonfinite(const tgd_torch_tensor *tensor, bool *out)
{
    found where;
    const tgd_unchecked why = find(tensor, &where);
    if (why == TGD_CHECKED) {
        *out = !where.all_zero && tgd_strided_nonfinite(&where.values);
    }
    return why;
}

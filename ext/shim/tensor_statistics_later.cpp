/* Statistics of a tensor on a device: a few of torch's own operations are queued, and their result is read later. */
#include "tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sum.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "borrowed_tensor.h"
#include "compat.h"

/* One row of numbers for each part of the tensor. */
enum { ROW_NON_ZERO, ROW_NON_ZERO_NOT_NAN, ROW_NON_ZERO_FINITE, ROW_SUM, ROW_NORM, ROW_ABSMAX, ROW_LENGTH };

struct tgd_later {
    at::Tensor rows;    /* on the device, until the copy is done */
    at::Tensor on_host; /* the copy, pinned */
    std::optional<c10::Event> copied; /* none: it is already there */
    std::uint64_t n;      /* elements measured */
    std::uint64_t repeat; /* how often each of them appears */
};

namespace tgd
{
namespace
{

constexpr std::int64_t most_at_once = std::int64_t{1} << 24;

/* While it lives, operations of this thread go straight to their kernels. */
class straight_to_kernels
{
    c10::AutoGradMode no_grad{false};
    at::DisableRecordFunctionGuard unseen;
    c10::impl::ExcludeDispatchKeyGuard below{
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks |
        c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                             c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::Functionalize,
                             c10::DispatchKey::PythonDispatcher, c10::DispatchKey::PreDispatch,
                             c10::DispatchKey::DeferredInit, c10::DispatchKey::TESTING_ONLY_GenericMode,
                             c10::DispatchKey::TESTING_ONLY_GenericWrapper, c10::DispatchKey::Tracer})};
};

/* 1, 0, or -1 where this torch cannot tell. */
template <class Stream> auto is_capturing(const Stream &stream, int) -> decltype(int{stream.is_capturing()})
{
    return stream.is_capturing();
}

template <class Stream> int is_capturing(const Stream &stream, long)
{
    return stream.device_type() == c10::DeviceType::CUDA ? -1 : 0;
}

bool can_measure(c10::DeviceType type)
{
    switch (type) {
    case c10::DeviceType::CUDA:
    case c10::DeviceType::HIP:
    case c10::DeviceType::XPU:
    case c10::DeviceType::MPS:
    case c10::DeviceType::PrivateUse1:
        return true;
    default:
        return false; /* not asynchronous, or lazy: an operation of ours would change what is compiled */
    }
}

/* The same elements, each once, along one dimension where they lie densely. */
at::Tensor each_once(const at::Tensor &tensor, std::uint64_t *repeat)
{
    std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
    const std::vector<std::int64_t> strides(tensor.strides().begin(), tensor.strides().end());
    for (std::size_t d = 0; d < sizes.size(); d++) {
        if (strides[d] == 0 && sizes[d] > 1) {
            *repeat *= static_cast<std::uint64_t>(sizes[d]);
            sizes[d] = 1;
        }
    }
    const at::Tensor once = tensor.as_strided(sizes, strides);
    return once.is_non_overlapping_and_dense() ? once.as_strided({once.numel()}, {1}) : once;
}

void measure(const at::Tensor &part, at::ScalarType accumulate, const at::Tensor &row)
{
    constexpr double infinity = std::numeric_limits<double>::infinity();
    at::Tensor place[ROW_LENGTH];
    for (int k = 0; k < ROW_LENGTH; k++) {
        place[k] = row.select(0, k);
    }
    at::Tensor x = part.to(accumulate, /*non_blocking=*/false, /*copy=*/true);
    at::linalg_vector_norm_out(place[ROW_NON_ZERO], x, 0);
    at::nan_to_num_(x, 0.0, infinity, -infinity);
    at::linalg_vector_norm_out(place[ROW_NON_ZERO_NOT_NAN], x, 0);
    at::nan_to_num_(x, 0.0, 0.0, 0.0);
    at::linalg_vector_norm_out(place[ROW_NON_ZERO_FINITE], x, 0);
    at::linalg_vector_norm_out(place[ROW_NORM], x, 2);
    at::linalg_vector_norm_out(place[ROW_ABSMAX], x, infinity);
    std::vector<std::int64_t> all(static_cast<std::size_t>(x.dim()));
    for (std::size_t d = 0; d < all.size(); d++) {
        all[d] = static_cast<std::int64_t>(d);
    }
    at::sum_out(place[ROW_SUM], x, all);
}

void queue(const at::Tensor &tensor, tgd_later *out)
{
    const bool on_cpu = tensor.device().is_cpu();
    const c10::DeviceGuard device(tensor.device());
    const at::Tensor once = each_once(tensor, &out->repeat);
    out->n = static_cast<std::uint64_t>(once.numel());
    if (out->n == 0) {
        return;
    }
    /* MPS has no float64. */
    const at::ScalarType accumulate = tensor.device().type() == c10::DeviceType::MPS ? at::kFloat : at::kDouble;
    const std::int64_t length = once.size(0), width = once.numel() / length;
    const std::int64_t at_once = std::max<std::int64_t>(most_at_once / width, 1);
    const std::int64_t n_rows = (length + at_once - 1) / at_once;
    out->rows = at::empty({n_rows, ROW_LENGTH}, tensor.options().dtype(accumulate));
    for (std::int64_t k = 0; k < n_rows; k++) {
        const std::int64_t from = k * at_once;
        measure(once.narrow(0, from, std::min(at_once, length - from)), accumulate, out->rows.select(0, k));
    }
    if (on_cpu) {
        out->on_host = out->rows;
        return;
    }
    out->on_host = at::empty({n_rows, ROW_LENGTH},
                             at::TensorOptions().dtype(accumulate).device(at::kCPU).pinned_memory(true));
    out->on_host.copy_(out->rows, /*non_blocking=*/true);
    const c10::impl::VirtualGuardImpl guard(tensor.device().type());
    out->copied.emplace(tensor.device().type());
    out->copied->record(guard.getStream(tensor.device()));
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_unchecked tgd_torch_statistics_later(const tgd_torch_tensor *tensor, bool on_cpu, tgd_later **out)
{
    tgd_torch_tensor_info info;
    tgd_torch_tensor_read(tensor, &info);
    const std::uint32_t other = TGD_TENSOR_NESTED | TGD_TENSOR_WRAPPER | TGD_TENSOR_META | TGD_TENSOR_SUBCLASS |
                                TGD_TENSOR_SYMBOLIC;
    tgd_statistics ignored;
    if ((info.flags & TGD_TENSOR_DEFINED) == 0 || (info.flags & other) != 0) {
        return tgd_torch_statistics(tensor, &ignored); /* says which */
    }
    if (info.layout != static_cast<std::int8_t>(c10::Layout::Strided) || info.strides == nullptr) {
        return TGD_UNCHECKED_LAYOUT;
    }
    if ((info.flags & TGD_TENSOR_FLOATING) == 0 || info.itemsize < 2) {
        return TGD_UNCHECKED_DTYPE;
    }
    if (!tgd_torch_storage_fits(&info)) {
        return TGD_UNCHECKED_STORAGE;
    }
    const auto type = static_cast<c10::DeviceType>(info.device_type);
    if (!can_measure(type) && !(on_cpu && type == c10::DeviceType::CPU)) {
        return TGD_UNCHECKED_DEVICE;
    }
    tgd_unchecked why = TGD_CHECKED;
    const tgd_status status = guarded(nullptr, [&] {
        if (type != c10::DeviceType::CPU) {
            const c10::impl::VirtualGuardImpl guard(type);
            const int capturing = is_capturing(guard.getStream(c10::Device(type, info.device_index)), 0);
            if (capturing != 0) {
                why = capturing == 1 ? TGD_UNCHECKED_CAPTURE : TGD_UNCHECKED_DEVICE;
                return;
            }
        }
        straight_to_kernels guard;
        const borrowed_tensor borrowed(impl_of(tensor));
        auto later = std::make_unique<tgd_later>();
        later->n = 0;
        later->repeat = 1;
        queue(borrowed.get(), later.get());
        *out = later.release();
    });
    return status == TGD_OK ? why : TGD_UNCHECKED_FAILED;
}

extern "C" int tgd_later_ready(const tgd_later *later)
{
    bool ready = true;
    const tgd_status status = guarded(nullptr, [&] { ready = !later->copied.has_value() || later->copied->query(); });
    return status != TGD_OK ? -1 : ready;
}

extern "C" tgd_unchecked tgd_later_read(const tgd_later *later, tgd_statistics *out)
{
    tgd_statistics sum = {};
    const tgd_status status = guarded(nullptr, [&] {
        if (later->copied.has_value()) {
            later->copied->synchronize();
        }
        if (later->n == 0) {
            return;
        }
        const bool narrow = later->on_host.scalar_type() == at::kFloat;
        const void *data = later->on_host.const_data_ptr();
        const auto n_rows = static_cast<std::size_t>(later->on_host.size(0));
        double non_zero = 0, non_zero_not_nan = 0, non_zero_finite = 0;
        for (std::size_t r = 0; r < n_rows; r++) {
            double row[ROW_LENGTH];
            for (std::size_t k = 0; k < ROW_LENGTH; k++) {
                const std::size_t at = r * ROW_LENGTH + k;
                row[k] = narrow ? double{static_cast<const float *>(data)[at]} : static_cast<const double *>(data)[at];
            }
            non_zero += row[ROW_NON_ZERO];
            non_zero_not_nan += row[ROW_NON_ZERO_NOT_NAN];
            non_zero_finite += row[ROW_NON_ZERO_FINITE];
            tgd_statistics part = {};
            part.sum = row[ROW_SUM];
            part.norm = row[ROW_NORM];
            part.absmax = row[ROW_ABSMAX];
            tgd_statistics_add(&sum, &part);
        }
        sum.n = later->n;
        sum.n_zero = later->n - static_cast<std::uint64_t>(non_zero);
        sum.n_nan = static_cast<std::uint64_t>(non_zero - non_zero_not_nan);
        sum.n_inf = static_cast<std::uint64_t>(non_zero_not_nan - non_zero_finite);
    });
    if (status != TGD_OK) {
        return TGD_UNCHECKED_FAILED;
    }
    sum.n *= later->repeat;
    sum.n_nan *= later->repeat;
    sum.n_inf *= later->repeat;
    sum.n_zero *= later->repeat;
    sum.sum *= static_cast<double>(later->repeat);
    sum.norm *= std::sqrt(static_cast<double>(later->repeat));
    *out = sum;
    return TGD_CHECKED;
}

extern "C" void tgd_later_free(tgd_later *later)
{
    const tgd_status ignored = guarded(nullptr, [&] { delete later; });
    (void)ignored;
}

#include "device_stream.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "compat.h"
#include "cuda_events.h"
#include "generic_events.h"

namespace tgd
{
namespace
{

using c10::impl::DeviceGuardImplInterface;

/* torch before 2.10 keeps the driver's handles to itself. */
template <class Driver> auto native_handle(const Driver &driver, const c10::Stream &stream, tgd_torch_stream *out, int)
    -> decltype(driver.getStreamNativeHandle(stream), void())
{
    out->native = reinterpret_cast<std::uintptr_t>(driver.getStreamNativeHandle(stream));
    out->has_native = 1;
}

template <class Driver> void native_handle(const Driver &, const c10::Stream &, tgd_torch_stream *, ...)
{
}

template <class Driver> constexpr auto gives_native(int)
    -> decltype(std::declval<const Driver &>().getStreamNativeHandle(std::declval<const c10::Stream>()), true)
{
    return true;
}

template <class Driver> constexpr bool gives_native(...)
{
    return false;
}

bool is_accelerator(c10::DeviceType type)
{
    return type != c10::DeviceType::CPU && type != c10::DeviceType::Meta;
}

const DeviceGuardImplInterface *driver_of(int device_type)
{
    const std::size_t i = static_cast<std::size_t>(device_type);
    return device_type >= 0 && i < c10::impl::device_guard_impl_registry.size()
               ? c10::impl::device_guard_impl_registry[i].load()
               : nullptr;
}

/* The current stream of a device, where it has a driver. */
int current_stream(c10::Device device, tgd_torch_stream *out)
{
    const DeviceGuardImplInterface *driver = driver_of(static_cast<int>(device.type()));
    if (driver == nullptr || !is_accelerator(device.type()) || device.index() < 0) {
        return 0;
    }
    const c10::Stream stream = driver->getStream(device);
    *out = {};
    out->device_type = static_cast<int>(device.type());
    out->device = device.index();
    out->id = static_cast<std::uint64_t>(stream.id());
    if (device.is_cuda()) { /* others need not have handles, and throw */
        native_handle(*driver, stream, out, 0);
    }
    return 1;
}

} // namespace
} // namespace tgd

extern "C" int tgd_torch_node_stream(const tgd_torch_node *node, tgd_torch_stream *out)
{
    int found = 0;
    (void)tgd::guarded(nullptr, [&] {
        const tgd::Node *n = tgd::node_of(node);
        for (std::uint32_t i = 0; i < n->num_inputs() && found == 0; i++) {
            const c10::Device device = n->input_metadata(i).device();
            found = tgd::is_accelerator(device.type()) ? tgd::current_stream(device, out) : 0;
        }
    });
    return found;
}

extern "C" int tgd_torch_current_stream(int device_type, int device, tgd_torch_stream *out)
{
    int found = 0;
    (void)tgd::guarded(nullptr, [&] {
        if (device_type >= 0 && device_type <= INT8_MAX && device >= 0 && device <= INT8_MAX) {
            const auto type = static_cast<c10::DeviceType>(device_type);
            found = tgd::current_stream(c10::Device(type, static_cast<c10::DeviceIndex>(device)), out);
        }
    });
    return found;
}

extern "C" tgd_status tgd_torch_device_events(const tgd_device_events **out, int device_type, tgd_error *err)
{
    const auto type = static_cast<c10::DeviceType>(device_type);
    if (device_type < 0 || device_type > INT8_MAX || !tgd::is_accelerator(type)) {
        return tgd_fail(err, TGD_EINVAL, "device type %d is not an accelerator", device_type);
    }
    if (type == c10::DeviceType::CUDA && tgd::gives_native<tgd::DeviceGuardImplInterface>(0) &&
        tgd_cuda_events(out, nullptr) == TGD_OK) {
        return TGD_OK;
    }
    return tgd_generic_events(out, device_type, err);
}

extern "C" uint64_t tgd_torch_stream_word(const tgd_device_events *events, const tgd_torch_stream *stream)
{
    return events->native_stream ? stream->native : stream->id;
}

#include "generic_events.h"

#include <cmath>
#include <mutex>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "compat.h"

namespace tgd
{
namespace
{

using c10::impl::DeviceGuardImplInterface;

constexpr std::size_t n_types = static_cast<std::size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

const DeviceGuardImplInterface &driver(const void *self)
{
    return *static_cast<const DeviceGuardImplInterface *>(self);
}

c10::Stream stream_of(const void *self, int device, std::uint64_t stream)
{
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(driver(self).type(), static_cast<c10::DeviceIndex>(device)),
                       static_cast<c10::StreamId>(stream));
}

/* torch before 2.9 cannot tell; the record would throw there. */
template <class Driver> auto capturing(const Driver &d, const c10::Stream &stream, int)
    -> decltype(d.isStreamCapturing(stream))
{
    return d.isStreamCapturing(stream);
}

template <class Driver> bool capturing(const Driver &, const c10::Stream &, ...)
{
    return false;
}

/* Runs body; `thrown` is what it means when torch throws. */
template <class Body> tgd_events_status asked(tgd_error *err, tgd_events_status thrown, Body body) noexcept
{
    tgd_events_status status = TGD_EVENTS_OK;
    return guarded(err, [&] { status = body(); }) == TGD_OK ? status : thrown;
}

tgd_events_status record(const void *self, int device, std::uint64_t stream, void **event, tgd_error *err) noexcept
{
    return asked(err, TGD_EVENTS_FAILED, [&] {
        const c10::Stream into = stream_of(self, device, stream);
        if (capturing(driver(self), into, 0)) {
            return TGD_EVENTS_CAPTURING;
        }
        /* BACKEND_DEFAULT is the one with times. */
        driver(self).record(event, into, static_cast<c10::DeviceIndex>(device), c10::EventFlag::BACKEND_DEFAULT);
        return TGD_EVENTS_OK;
    });
}

tgd_events_status query(const void *self, int, void *event, tgd_error *err) noexcept
{
    /* An event that was recorded can be asked for, unless the device is lost. */
    return asked(err, TGD_EVENTS_LOST,
                 [&] { return driver(self).queryEvent(event) ? TGD_EVENTS_OK : TGD_EVENTS_PENDING; });
}

tgd_events_status elapsed(const void *self, int device, void *from, void *to, std::int64_t *ns, tgd_error *err) noexcept
{
    return asked(err, TGD_EVENTS_FAILED, [&] {
        /* Some devices wait in elapsedTime() for an event that has not run. */
        if (!driver(self).queryEvent(from) || !driver(self).queryEvent(to)) {
            return TGD_EVENTS_PENDING;
        }
        const double ms = driver(self).elapsedTime(from, to, static_cast<c10::DeviceIndex>(device));
        if (!std::isfinite(ms) || std::fabs(ms) > 1e12) {
            tgd_fail(err, TGD_ETORCH, "elapsedTime() gave %g ms", ms);
            return TGD_EVENTS_FAILED;
        }
        *ns = std::llround(ms * 1e6);
        return TGD_EVENTS_OK;
    });
}

void destroy(const void *self, int device, void *event) noexcept
{
    if (event != nullptr) {
        driver(self).destroyEvent(event, static_cast<c10::DeviceIndex>(device)); /* noexcept */
    }
}

} // namespace
} // namespace tgd

extern "C" tgd_status tgd_generic_events(const tgd_device_events **out, int device_type, tgd_error *err)
{
    using namespace tgd;
    static std::mutex lock;
    static tgd_device_events events[n_types];
    static char names[n_types][32];

    if (device_type < 0 || static_cast<std::size_t>(device_type) >= n_types) {
        return tgd_fail(err, TGD_EINVAL, "device type %d is none of torch's", device_type);
    }
    const std::size_t i = static_cast<std::size_t>(device_type);
    return guarded(err, [&] {
        const DeviceGuardImplInterface *found =
            c10::impl::getDeviceGuardImpl(static_cast<c10::DeviceType>(device_type)); /* throws where there is none */
        const std::lock_guard<std::mutex> hold(lock);
        if (events[i].self != found) {
            const std::string name = c10::DeviceTypeName(static_cast<c10::DeviceType>(device_type), true);
            names[i][name.copy(names[i], sizeof names[i] - 1)] = '\0';
            events[i] = {names[i], false, found, record, query, elapsed, destroy};
        }
        *out = &events[i];
    });
}

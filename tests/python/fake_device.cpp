/* A device of the kind privateuse1 for test_device_clock.py: it computes nothing, but has streams and events on a clock
   of its own, and can be told to capture or to fail. Registered with torch when it is loaded. */
#include <atomic>
#include <cstdint>

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace
{

std::int64_t now_ns = 0, done_ns = 0;
std::atomic<long> alive{0};
bool is_capturing = false, fails = false;

struct event {
    std::int64_t ran;
};

struct driver final : c10::impl::DeviceGuardImplInterface {
    static c10::Device device(int index)
    {
        return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
    }
    c10::DeviceType type() const override
    {
        return c10::DeviceType::PrivateUse1;
    }
    c10::Device exchangeDevice(c10::Device) const override
    {
        return device(0);
    }
    c10::Device getDevice() const override
    {
        return device(0);
    }
    void setDevice(c10::Device) const override
    {
    }
    void uncheckedSetDevice(c10::Device) const noexcept override
    {
    }
    c10::Stream getStream(c10::Device d) const override
    {
        return c10::Stream(c10::Stream::UNSAFE, d, 7);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        return stream;
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return 1;
    }
    bool isStreamCapturing(const c10::Stream &) const
    {
        return is_capturing;
    }
    void record(void **out, const c10::Stream &stream, const c10::DeviceIndex index,
                const c10::EventFlag flag) const override
    {
        TORCH_CHECK(!fails, "the fake device is broken");
        TORCH_CHECK(stream.id() == 7 && index == stream.device_index(), "another stream");
        TORCH_CHECK(flag == c10::EventFlag::BACKEND_DEFAULT, "an event without times");
        if (*out == nullptr) {
            *out = new event;
            alive++;
        }
        done_ns = done_ns > now_ns ? done_ns : now_ns;
        static_cast<event *>(*out)->ran = done_ns;
    }
    bool queryEvent(void *e) const override
    {
        return static_cast<event *>(e)->ran <= now_ns;
    }
    double elapsedTime(void *a, void *b, const c10::DeviceIndex) const override
    {
        return static_cast<double>(static_cast<event *>(b)->ran - static_cast<event *>(a)->ran) * 1e-6;
    }
    void destroyEvent(void *e, const c10::DeviceIndex) const noexcept override
    {
        alive--;
        delete static_cast<event *>(e);
    }
    void synchronizeEvent(void *) const override
    {
        TORCH_CHECK(false, "somebody waits");
    }
    void synchronizeDevice(const c10::DeviceIndex) const override
    {
        TORCH_CHECK(false, "somebody waits");
    }
};

const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, new driver);

} // namespace

extern "C" void fake_advance(std::int64_t ns)
{
    now_ns += ns;
}

extern "C" void fake_launch(std::int64_t ns)
{
    done_ns = (done_ns > now_ns ? done_ns : now_ns) + ns;
}

extern "C" void fake_set(int capturing, int failing)
{
    is_capturing = capturing != 0;
    fails = failing != 0;
}

extern "C" long fake_events()
{
    return alive;
}

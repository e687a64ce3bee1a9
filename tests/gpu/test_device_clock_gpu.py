"""The device clock on a real GPU, next to torch's own events."""
import threading

import pytest
import torch

import device_clock
from device_clock import OK, Clock

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CUDA = 1  # c10::DeviceType


@pytest.fixture
def clock():
    status, message, events = device_clock.device_events(CUDA)
    assert status == OK, message
    with Clock(events) as opened:
        opened.events = events
        yield opened


def word(clock, device=0):
    stream = device_clock.current_stream(CUDA, device)
    return device_clock.lib.tgd_torch_stream_word(clock.events, stream)


def timed(clock, key, work):
    token = clock.begin(torch.cuda.current_device(), word(clock), key)
    assert token != 0, clock.trouble
    work()
    clock.end(token)


def test_streams_are_the_drivers(clock):
    side = torch.cuda.Stream()
    stream = device_clock.current_stream(CUDA, 0)
    if stream.has_native:
        assert stream.native == torch.cuda.current_stream().cuda_stream
        with torch.cuda.stream(side):
            assert device_clock.current_stream(CUDA, 0).native == side.cuda_stream


def test_durations_agree_with_torchs_events(clock):
    a = torch.randn(2048, 2048, device="cuda")
    pairs = []
    for key in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        timed(clock, key, lambda: a @ a)
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    spans, pending = clock.collect()
    assert pending == 0 and [span.key for span in spans] == list(range(20))
    for span, (begin, end) in zip(spans, pairs):
        outer, inner = begin.elapsed_time(end) * 1e6, span.device_end - span.device_begin
        assert 0 < inner <= outer + 2000
        assert inner > 0.5 * outer  # four events cost less than the kernel


def test_nothing_waits_and_the_queue_is_seen(clock):
    torch.cuda._sleep(200_000_000)  # cycles
    timed(clock, 1, lambda: torch.cuda._sleep(1_000_000))
    spans, pending = clock.collect()
    assert (spans, pending) == ([], 1)  # neither the recording nor the collecting waited
    torch.cuda.synchronize()
    (span,), pending = clock.collect()
    assert pending == 0
    assert span.device_begin > span.host_end
    assert span.device_begin - span.host_begin > span.device_end - span.device_begin


def test_the_host_axis(clock):
    """A device that is idle begins soon after it was asked; what was seen to have ended ended before that."""
    a = torch.randn(512, 512, device="cuda")
    for key in range(50):
        asked = device_clock.lib.tgd_clock_now()
        timed(clock, key, lambda: a @ a)
        torch.cuda.synchronize()
        seen = device_clock.lib.tgd_clock_now()
        (span,), _ = clock.collect()
        assert asked <= span.device_begin
        assert span.device_end <= seen + span.uncertainty
        assert span.uncertainty < seen - asked + 10_000_000


def test_capture_is_left_alone(clock):
    a = torch.randn(64, 64, device="cuda")
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    timed(clock, 1, lambda: a @ a)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        out = a + 1
        assert clock.begin(0, word(clock), 2) == 0
        spans, _ = clock.collect()  # another capture mode would break the capture here
    assert [span.key for span in spans] == [1]
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, a + 1)
    assert clock.counts.captured == 1 and clock.trouble is None


def test_streams_and_threads(clock):
    def work(first):
        with torch.cuda.stream(torch.cuda.Stream()):
            a = torch.randn(256, 256, device="cuda")
            for key in range(first, first + 100):
                timed(clock, key, lambda: a @ a)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    spans, pending = clock.collect()
    assert pending == 0 and sorted(span.key for span in spans) == list(range(400))
    assert len({span.stream for span in spans}) == 4
    assert clock.trouble is None


def test_pointers(clock):
    here = torch.ones(8, device="cuda")
    state = device_clock.lib.tgd_device_pointer_state
    assert state(here.data_ptr(), 0) == device_clock.POINTER_OK
    assert state(torch.ones(8).data_ptr(), 0) == device_clock.POINTER_UNKNOWN
    assert state(torch.ones(8).pin_memory().data_ptr(), 0) == device_clock.POINTER_OK
    block = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    pointer = block.data_ptr()
    del block
    torch.cuda.empty_cache()  # back to the driver
    assert state(pointer, 0) == device_clock.POINTER_UNKNOWN


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_two_devices(clock):
    a, b = (torch.randn(256, 256, device=f"cuda:{i}") for i in range(2))
    for key, x in enumerate((a, b, a, b)):
        with torch.cuda.device(x.device):
            timed(clock, key, lambda: x @ x)
    for i in range(2):
        torch.cuda.synchronize(i)
    spans, pending = clock.collect()
    assert pending == 0 and [(span.device, span.key) for span in spans] == [(0, 0), (0, 2), (1, 1), (1, 3)]
    assert device_clock.lib.tgd_device_pointer_state(b.data_ptr(), 0) == device_clock.POINTER_OTHER_DEVICE


def test_the_program_sees_no_error_of_ours(clock):
    torch.cuda._sleep(20_000_000)
    timed(clock, 1, lambda: None)
    assert clock.collect()[1] == 1  # "not ready" is an error to CUDA
    torch.ones(4, device="cuda")    # a launch: torch looks at the last error after it
    torch.cuda.synchronize()
    assert clock.collect()[1] == 0

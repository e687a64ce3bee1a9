"""The device clock as it is shipped: over a CUDA runtime without a GPU (tests/c/fake_cudart.c), and over a device that
torch drives through its generic interface (fake_device.cpp). tests/c looks at it closely."""
import ctypes
import os
import pathlib
import shlex
import subprocess
import sysconfig

import pytest
import torch

import device_clock
from device_clock import EINVAL, ETORCH, OK, Clock

HERE = pathlib.Path(__file__).resolve().parent
PRIVATE, CPU, META = 20, 0, 14  # c10::DeviceType


def build(command, target):
    done = subprocess.run([*command, "-shared", "-fPIC", "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


class Fake(ctypes.Structure):
    """The start of fake_cudart.h's table."""
    _fields_ = [("reset", ctypes.CFUNCTYPE(None, ctypes.c_int)), ("counts", ctypes.c_void_p),
                ("call_cost", ctypes.c_void_p), ("launch_cost", ctypes.c_void_p),
                ("now", ctypes.CFUNCTYPE(ctypes.c_uint64)), ("advance", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
                ("drift", ctypes.c_void_p), ("context", ctypes.c_void_p),
                ("stream", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int)),
                ("launch", ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64))]


needs_no_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="this torch brings its own CUDA runtime")


@needs_no_cuda
def test_without_cuda_there_is_none(monkeypatch):
    monkeypatch.delenv("TORCHGRAPHDBG_CUDART", raising=False)
    assert device_clock.cuda_events()[:2] == (ETORCH, "no CUDA runtime is loaded: this torch works without CUDA")
    assert device_clock.lib.tgd_device_pointer_state(id(monkeypatch), 0) == device_clock.POINTER_UNCHECKED


@needs_no_cuda
def test_a_runtime_that_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHGRAPHDBG_CUDART", str(tmp_path / "none.so"))
    status, message, _ = device_clock.cuda_events()
    assert status == EINVAL and message.startswith("TORCHGRAPHDBG_CUDART: ") and "none.so" in message
    c10 = pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"
    monkeypatch.setenv("TORCHGRAPHDBG_CUDART", str(c10))
    assert device_clock.cuda_events()[:2] == (EINVAL, f"TORCHGRAPHDBG_CUDART: {c10} is not a CUDA runtime")


@needs_no_cuda
def test_cuda_without_a_gpu(monkeypatch, tmp_path):
    library = build([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", str(HERE.parent / "c" / "fake_cudart.c"),
                     f"-I{HERE.parent / 'c'}"], tmp_path / "libfake_cudart.so")
    monkeypatch.setenv("TORCHGRAPHDBG_CUDART", str(library))
    get = ctypes.CDLL(str(library)).fake_cudart
    get.restype = ctypes.POINTER(Fake)
    fake = get().contents
    fake.reset(1)
    status, message, events = device_clock.cuda_events()
    assert status == OK, message
    with Clock(events) as clock:
        stream = fake.stream(0)
        for key in range(3):
            token = clock.begin(0, stream, key)
            assert token != 0
            fake.launch(stream, 0, 2_000_000)
            clock.end(token)
        assert clock.collect() == ([], 3)
        fake.advance(10_000_000)
        spans, pending = clock.collect()
        assert pending == 0 and [span.key for span in spans] == [0, 1, 2]
        # A node is asked for at once and waits for the one before it. The host's clock is the real one here.
        assert all(abs(span.device_end - span.device_begin - 2_000_000) <= 1000 + 5000 for span in spans)
        assert all(span.host_begin <= span.host_end for span in spans)
        assert clock.trouble is None and clock.counts.timed == 3


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    include = pathlib.Path(torch.__file__).parent / "include"
    library = tmp_path_factory.mktemp("device") / "fake_device.so"
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    build([*shlex.split(os.environ.get("CXX", "c++")), f"-std=c++{20 if release >= (2, 13) else 17}", "-DNDEBUG",
           f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", "-isystem", str(include),
           "-isystem", sysconfig.get_path("include"), str(HERE / "fake_device.cpp"),
           f"-L{include.parent / 'lib'}", "-lc10"], library)
    fake = ctypes.CDLL(str(library))
    fake.fake_advance.argtypes = fake.fake_launch.argtypes = [ctypes.c_int64]
    fake.fake_events.restype = ctypes.c_long
    yield fake


def test_any_device_of_torch(device):
    status, message, events = device_clock.device_events(PRIVATE)
    assert status == OK, message
    stream = device_clock.current_stream(PRIVATE, 0)
    assert (stream.device_type, stream.device, stream.id, stream.has_native) == (PRIVATE, 0, 7, 0)
    word = device_clock.lib.tgd_torch_stream_word(events, ctypes.byref(stream))
    assert word == 7
    with Clock(events) as clock:
        for key in range(3):
            token = clock.begin(0, word, key)
            device.fake_launch(3_000_000)
            clock.end(token)
        # The first begin has run, no end has.
        assert clock.collect() == ([], 3)
        device.fake_advance(4_000_000)
        spans, pending = clock.collect()
        assert ([span.key for span in spans], pending) == ([0], 2)
        device.fake_advance(10_000_000)
        spans, pending = clock.collect()
        assert ([span.key for span in spans], pending) == ([1, 2], 0)
        assert [span.device_end - span.device_begin for span in spans] == [3_000_000] * 2
        device.fake_set(1, 0)
        assert clock.begin(0, word) == 0 and clock.counts.captured == 1
        device.fake_set(0, 0)
        assert device.fake_events() > 0
    assert device.fake_events() == 0


def test_a_device_that_throws(device):
    _, _, events = device_clock.device_events(PRIVATE)
    with Clock(events) as clock:
        token = clock.begin(0, 7)
        device.fake_set(0, 1)
        clock.end(token)
        device.fake_set(0, 0)
        assert clock.trouble == ("the times of privateuseone nodes are not recorded any more: the fake device is "
                                 "broken; the program itself is not affected")
        assert clock.begin(0, 7) == 0
        assert (clock.counts.errors, clock.counts.dropped) == (1, 1)
    assert device.fake_events() == 0


@pytest.mark.parametrize("device_type, expected", [
    (CPU, (EINVAL, "device type 0 is not an accelerator")),
    (META, (EINVAL, "device type 14 is not an accelerator")),
    (-1, (EINVAL, "device type -1 is not an accelerator")),
    (100, (EINVAL, "device type 100 is none of torch's")),
    (4, (ETORCH, "PyTorch is not linked with support for opencl devices")),
])
def test_what_is_no_accelerator(device_type, expected):
    status, message, _ = device_clock.device_events(device_type)
    assert (status, message) == expected
    assert device_clock.current_stream(device_type, 0) is None


def test_clock_goes_forward():
    times = [device_clock.lib.tgd_clock_now() for _ in range(100)]
    assert times == sorted(times) and times[0] > 0

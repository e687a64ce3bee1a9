"""The device clock of libtorchgraphdbg by ctypes, for tests: the recorder is not between."""
import ctypes
import pathlib

import torchgraphdbg

LIBRARY = pathlib.Path(torchgraphdbg.__file__).parent / "lib" / "libtorchgraphdbg.so"
OK, EINVAL, ETORCH = 0, -1, -4
POINTER_OK, POINTER_UNKNOWN, POINTER_OTHER_DEVICE, POINTER_UNCHECKED = range(4)


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("os_errno", ctypes.c_int), ("message", ctypes.c_char * 512)]


class Span(ctypes.Structure):
    _fields_ = [("key", ctypes.c_uint64), ("number", ctypes.c_uint64), ("stream", ctypes.c_uint64),
                ("device", ctypes.c_int), ("host_begin", ctypes.c_uint64), ("host_end", ctypes.c_uint64),
                ("device_begin", ctypes.c_uint64), ("device_end", ctypes.c_uint64), ("uncertainty", ctypes.c_uint64)]


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("timed", "captured", "dropped", "aside", "errors")]


class Stream(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device", ctypes.c_int), ("id", ctypes.c_uint64),
                ("native", ctypes.c_uint64), ("has_native", ctypes.c_int)]


VISIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Span))
lib = ctypes.CDLL(str(LIBRARY))
lib.tgd_clock_now.restype = ctypes.c_uint64
lib.tgd_device_span_begin.restype = ctypes.c_uint64
lib.tgd_device_span_begin.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
lib.tgd_device_span_end.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
lib.tgd_device_clock_collect.restype = ctypes.c_size_t
lib.tgd_device_clock_collect.argtypes = [ctypes.c_void_p, VISIT, ctypes.c_void_p]
lib.tgd_device_clock_count.restype = Counts
lib.tgd_device_clock_count.argtypes = [ctypes.c_void_p]
lib.tgd_device_clock_trouble.restype = ctypes.c_char_p
lib.tgd_device_clock_trouble.argtypes = [ctypes.c_void_p]
lib.tgd_device_clock_close.argtypes = [ctypes.c_void_p]
lib.tgd_device_pointer_state.argtypes = [ctypes.c_void_p, ctypes.c_int]
lib.tgd_torch_stream_word.restype = ctypes.c_uint64
lib.tgd_torch_stream_word.argtypes = [ctypes.c_void_p, ctypes.POINTER(Stream)]


def cuda_events():
    """(status, message, events)"""
    error, events = Error(), ctypes.c_void_p()
    status = lib.tgd_cuda_events(ctypes.byref(events), ctypes.byref(error))
    return status, error.message.decode(), events


def device_events(device_type):
    error, events = Error(), ctypes.c_void_p()
    status = lib.tgd_torch_device_events(ctypes.byref(events), device_type, ctypes.byref(error))
    return status, error.message.decode(), events


def current_stream(device_type, device):
    stream = Stream()
    return stream if lib.tgd_torch_current_stream(device_type, device, ctypes.byref(stream)) else None


class Clock:
    def __init__(self, events, max_spans=0):
        self.handle = ctypes.c_void_p()
        assert lib.tgd_device_clock_open(ctypes.byref(self.handle), events, max_spans, None) == OK

    def begin(self, device, stream, key=0):
        return lib.tgd_device_span_begin(self.handle, device, stream, key)

    def end(self, token):
        lib.tgd_device_span_end(self.handle, token)

    def collect(self):
        """(spans, how many are pending)"""
        spans = []
        visit = VISIT(lambda context, span: spans.append(Span.from_buffer_copy(span.contents)))
        pending = lib.tgd_device_clock_collect(self.handle, visit, None)
        return spans, pending

    @property
    def counts(self):
        return lib.tgd_device_clock_count(self.handle)

    @property
    def trouble(self):
        text = lib.tgd_device_clock_trouble(self.handle)
        return text.decode() if text is not None else None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        lib.tgd_device_clock_close(self.handle)

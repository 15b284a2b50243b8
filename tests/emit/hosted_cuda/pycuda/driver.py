"""Stands for pycuda.driver where there is no GPU, over the host target's runtime, so that its streams are those of the
C++ code in libdriver.so: the part that the emitted driver uses, with PyCUDA's signatures.

The functions `hosted_*` (hosted.cpp) and `launch_*` are in the libdriver.so that HOSTED_LIBRARY names.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

_library = ctypes.CDLL(os.environ["HOSTED_LIBRARY"])
_TYPES = {
    "P": ctypes.c_void_p, "i": ctypes.c_int, "q": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double,
    "B": ctypes.c_uint8,
}  # fmt: skip
_DIM3 = ctypes.c_uint * 3


class Error(Exception):
    pass


def _call(name: str, *types: Any) -> Callable[..., None]:
    call = _library[f"hosted_{name}"]
    call.argtypes, call.restype = types, ctypes.c_int

    def checked(*args: Any) -> None:
        if status := call(*args):
            raise Error(f"{name}: error {status}")

    return checked


_pointer, _size = ctypes.c_void_p, ctypes.c_size_t
_library.hosted_stream.restype = _library.hosted_event.restype = _pointer
_library.hosted_malloc.restype, _library.hosted_malloc.argtypes = _pointer, [_size, ctypes.c_int]
_copy = _call("copy", _pointer, _pointer, _size, ctypes.c_int)
_copy_async = _call("copy_async", _pointer, _pointer, _size, ctypes.c_int, _pointer)
_record, _wait = _call("record", _pointer, _pointer), _call("wait", _pointer, _pointer)
_event_synchronize, _synchronize = _call("event_synchronize", _pointer), _call("synchronize")
_stream_synchronize, _memset = _call("stream_synchronize", _pointer), _call("memset", _pointer, ctypes.c_int, _size)
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3


class event_flags:
    DISABLE_TIMING = 2


class device_attribute:
    MAX_THREADS_PER_BLOCK, MAX_SHARED_MEMORY_PER_BLOCK, WARP_SIZE, MULTIPROCESSOR_COUNT = 1024, 49152, 32, 1


class function_attribute:
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class Stream:
    def __init__(self, flags: int = 0) -> None:
        self.handle: int = _library.hosted_stream()

    def wait_for_event(self, event: Event) -> None:
        _wait(self.handle, event.handle)

    def synchronize(self) -> None:
        _stream_synchronize(self.handle)


class Event:
    def __init__(self, flags: int = 0) -> None:
        self.handle: int = _library.hosted_event()

    def record(self, stream: Stream) -> Event:
        _record(self.handle, stream.handle)
        return self

    def synchronize(self) -> None:
        _event_synchronize(self.handle)


class Context:
    def push(self) -> None:
        pass

    @staticmethod
    def pop() -> None:
        pass

    @staticmethod
    def synchronize() -> None:
        _synchronize()

    @staticmethod
    def get_device() -> Device:
        return Device(0)


class Device:
    def __init__(self, number: int) -> None:
        assert number == 0

    @staticmethod
    def count() -> int:
        return 1

    def retain_primary_context(self) -> Context:
        return Context()

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def get_attribute(self, attribute: int) -> int:
        return attribute

    def total_memory(self) -> int:
        return 1 << 30

    def name(self) -> str:
        return "none"


def init() -> None:
    pass


def get_driver_version() -> int:
    return 0


def mem_alloc(size: int) -> int:
    return int(_library.hosted_malloc(size, 0))


def pagelocked_empty(shape: int, dtype: Any, order: str = "C", mem_flags: int = 0) -> Any:
    bytes_ = shape * np.dtype(dtype).itemsize
    address = _library.hosted_malloc(bytes_, 1)
    return np.frombuffer((ctypes.c_char * bytes_).from_address(address), dtype)


def memset_d8(dest: int, data: int, size: int) -> None:
    _memset(dest, data, size)


def memcpy_htod(dest: int, src: Any) -> None:
    _copy(dest, src.ctypes.data, src.nbytes, _TO_DEVICE)


def memcpy_dtoh(dest: Any, src: int) -> None:
    _copy(dest.ctypes.data, src, dest.nbytes, _TO_HOST)


def memcpy_htod_async(dest: int, src: Any, stream: Stream) -> None:
    _copy_async(dest, src.ctypes.data, src.nbytes, _TO_DEVICE, stream.handle)


def memcpy_dtoh_async(dest: Any, src: int, stream: Stream) -> None:
    _copy_async(dest.ctypes.data, src, dest.nbytes, _TO_HOST, stream.handle)


def memcpy_dtod_async(dest: int, src: int, size: int, stream: Stream) -> None:
    _copy_async(dest, src, size, _ON_DEVICE, stream.handle)


class Module:
    def get_function(self, name: str) -> Function:
        return Function(_library[f"launch_{name}"])


class Function:
    def __init__(self, call: Any) -> None:
        self.call = call
        self.most_shared = 48 << 10

    def prepare(self, arg_types: str) -> None:
        self.call.argtypes = [_DIM3, _DIM3, ctypes.c_uint, ctypes.c_void_p, *(_TYPES[t] for t in arg_types)]
        self.call.restype = None

    def set_attribute(self, attribute: int, value: int) -> None:
        assert attribute == function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.most_shared = value

    def prepared_async_call(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], stream: Stream, *args: Any, shared_size: int = 0
    ) -> None:
        assert shared_size <= self.most_shared, "CUDA refuses it"
        self.call(_DIM3(*grid), _DIM3(*block), shared_size, stream.handle, *args)


def module_from_buffer(buffer: bytes) -> Module:
    return Module()

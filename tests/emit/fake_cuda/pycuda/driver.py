"""Stands for pycuda.driver where there is no GPU: the part that the emitted driver uses, with PyCUDA's signatures.

Device memory is memory of the process. A stream does nothing until somebody waits for it, so that a wait that is
missing, or that comes before what it should wait for, gives a wrong result every time.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "P": ctypes.c_void_p, "i": ctypes.c_int, "q": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double,
    "B": ctypes.c_uint8, "Q": ctypes.c_uint64,
}  # fmt: skip
_streams: list[Stream] = []


class Error(Exception):
    pass


class event_flags:
    DISABLE_TIMING = 2


class Stream:
    def __init__(self, flags: int = 0) -> None:
        self.queue: list[Callable[[], None]] = []
        self.done = 0
        _streams.append(self)

    def add(self, work: Callable[[], None]) -> None:
        self.queue.append(work)

    def run(self, until: int) -> None:
        while self.done < until:
            self.done += 1
            self.queue[self.done - 1]()

    def wait_for_event(self, event: Event) -> None:
        self.add(event.state())

    def synchronize(self) -> None:
        self.run(len(self.queue))


class Event:
    def __init__(self, flags: int = 0) -> None:
        self.recorded: tuple[Stream, int] | None = None

    def record(self, stream: Stream) -> Event:
        self.recorded = (stream, len(stream.queue))
        return self

    def state(self) -> Callable[[], None]:
        """Waits for the latest record so far, whatever is recorded later."""
        recorded = self.recorded
        return lambda: recorded[0].run(recorded[1]) if recorded else None

    def synchronize(self) -> None:
        self.state()()


class Context:
    def push(self) -> None:
        pass

    @staticmethod
    def pop() -> None:
        pass

    @staticmethod
    def synchronize() -> None:
        for stream in _streams:
            stream.synchronize()

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

    def name(self) -> str:
        return "none"


def init() -> None:
    pass


def get_driver_version() -> int:
    return 0


class DeviceAllocation:
    def __init__(self, size: int) -> None:
        self.memory = np.empty(size, np.uint8)

    def __int__(self) -> int:
        return self.memory.ctypes.data


def mem_alloc(size: int) -> DeviceAllocation:
    return DeviceAllocation(size)


def pagelocked_empty(shape: int, dtype: Any, order: str = "C", mem_flags: int = 0) -> Any:
    return np.empty(shape, dtype, order)


def memset_d8(dest: int, data: int, size: int) -> None:
    ctypes.memset(dest, data, size)


def memcpy_htod(dest: int, src: Any) -> None:
    ctypes.memmove(dest, src.ctypes.data, src.nbytes)


def memcpy_dtoh(dest: Any, src: int) -> None:
    ctypes.memmove(dest.ctypes.data, src, dest.nbytes)


def memcpy_htod_async(dest: int, src: Any, stream: Stream) -> None:
    stream.add(lambda: memcpy_htod(dest, src))


def memcpy_dtoh_async(dest: Any, src: int, stream: Stream) -> None:
    stream.add(lambda: memcpy_dtoh(dest, src))


def memcpy_dtod_async(dest: int, src: int, size: int, stream: Stream) -> None:
    stream.add(lambda: ctypes.memmove(dest, src, size))


class Module:
    def __init__(self, code: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "module.so")
            path.write_bytes(code)
            self.library = ctypes.CDLL(str(path))

    def get_function(self, name: str) -> Function:
        return Function(getattr(self.library, f"launch_{name}"))


class Function:
    def __init__(self, call: Any) -> None:
        self.call = call

    def prepare(self, arg_types: str) -> None:
        triple = ctypes.c_uint * 3
        self.call.argtypes = [triple, triple, ctypes.c_uint, *(_TYPES[t] for t in arg_types)]
        self.call.restype = None

    def prepared_async_call(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], stream: Stream, *args: Any, shared_size: int = 0
    ) -> None:
        triple = ctypes.c_uint * 3
        stream.add(lambda: self.call(triple(*grid), triple(*block), shared_size, *args))


def module_from_buffer(buffer: bytes) -> Module:
    return Module(buffer)

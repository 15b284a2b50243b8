"""Runtime of emitted drivers: arrays of a rank, kernels, messages, checks and the measuring protocol.

PyCUDA and mpi4py; written for reading beside `driver.py`, and copied with it.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pycuda.driver as cuda
from mpi4py import MPI

WRONG_RESULT, BAD_INPUT, MISSING, RUN_FAILED = 1, 2, 3, 5
READ_ONLY = ("in", "constant")
# Poison: every byte of a result before a run, by NumPy's kind: two values, as in dagc/compare.hpp.
POISON = {"b": (1, 0), "i": (0xA5, 0x5A), "u": (0xA5, 0x5A), "f": (0xFF, 0x7E)}
Grid = tuple[int, int, int]


def fail(code: int, message: str) -> NoReturn:
    """One line on stderr, then the end of all ranks."""
    sys.stdout.flush()
    print(f"dagc: rank {MPI.COMM_WORLD.rank}: {message}", file=sys.stderr, flush=True)
    time.sleep(0.1)  # the starter loses output that it has not read before the abort
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)


# ---- arithmetic, as in dagc/math.hpp: integers do not overflow, and real numbers become infinite or NaN ----


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def real_mod(a: float, b: float) -> float:
    return a % b if b != 0 and math.isfinite(a) else math.nan


def sqrt(a: float) -> float:
    return math.sqrt(a) if a >= 0 else math.nan


def log2(a: float) -> float:
    return math.log2(a) if a > 0 else -math.inf if a == 0 else math.nan


def _integer(a: float, rounded: Callable[[float], int]) -> int:
    """The least integer for what 64 bits do not hold."""
    return rounded(a) if -(2.0**63) <= a < 2.0**63 else -(2**63)


def floor(a: float) -> int:
    return _integer(a, math.floor)


def ceil(a: float) -> int:
    return _integer(a, math.ceil)


def grid(x: int, y: int = 1, z: int = 1) -> Grid | None:
    """Launch geometry; None if the grid is empty."""
    if min(x, y, z) < 0 or x > 0x7FFFFFFF or max(y, z) > 0xFFFF:
        fail(RUN_FAILED, f"a grid of {x} x {y} x {z} blocks cannot be launched")
    return (int(x), int(y), int(z)) if x and y and z else None


# ---- command line, ranks, GPU -----------------------------------------------------------------


def arguments(program: str) -> argparse.Namespace:
    """The options of the C++ `bench`."""
    parser = argparse.ArgumentParser(
        prog="driver.py", description=f"Runs {program}, checks its results, times an iteration."
    )
    parser.add_argument(
        "--data", metavar="DIR", type=Path, required=True, help="arrays of each rank, as `dagc setup` writes them"
    )
    parser.add_argument("--seconds", metavar="S", type=float, default=0.01, help="length of one measurement (0.01)")
    parser.add_argument("--repeats", metavar="N", type=int, default=20, help="number of measurements (20)")
    parser.add_argument("--json", metavar="FILE", default="", help="write the measurements; - is standard output")
    parser.add_argument("--quiet", action="store_true", help="print no results")
    parser.add_argument("--check-only", action="store_true", help="check the results, time nothing")
    parser.add_argument(
        "--mpi-takes-device-pointers", action="store_true", help="assert that this MPI accepts device pointers"
    )
    options = parser.parse_args()
    if not options.seconds > 0 or options.repeats < 1:
        parser.error("--seconds and --repeats must be positive")
    options.stdout = sys.stdout
    if options.json == "-":  # what kernels and the MPI print goes to standard error
        options.stdout, options.quiet = os.fdopen(os.dup(1), "w"), True
        os.dup2(2, 1)
    return options


def check_ranks(data: Path, comm: MPI.Comm) -> None:
    """Ends the program unless the data were written for this number of ranks."""
    if comm.rank == 0:
        if not data.is_dir():
            fail(BAD_INPUT, f"{data}: no such directory; create it with `dagc setup`")
        names = [p.name for p in data.glob("rank-*") if p.name[5:].isdecimal()]
        found = max([1, *(int(name[5:]) + 1 for name in names)])
        for rank in range(found):
            if not (data / f"rank-{rank:04d}").is_dir():
                fail(BAD_INPUT, f"{data}: has no rank-{rank:04d}; create it with `dagc setup`")
        if found != comm.size:
            made = f"made for {found} rank{'s' if found > 1 else ''}, but started with {comm.size}"
            fail(MISSING, f"{data}: {made}; start it with mpiexec -n {found}")
    comm.Barrier()


def take_gpu(comm: MPI.Comm) -> Any:
    """Makes GPU (local rank mod number of GPUs) current; reports if ranks share one. Returns its context."""
    # By the host's name: an MPI that runs without shared memory would return single ranks from Split_type.
    hosts = comm.allgather(MPI.Get_processor_name())
    ranks = hosts.count(hosts[comm.rank])
    mine = hosts[: comm.rank].count(hosts[comm.rank])
    try:
        cuda.init()
        gpus = cuda.Device.count()
    except cuda.Error as error:
        fail(MISSING, f"no GPU found: {error}")
    if gpus == 0:
        fail(MISSING, "no GPU found")
    if comm.rank == 0 and ranks > gpus:
        print(f"note: {ranks} ranks of this host share {gpus} GPU{'s' if gpus > 1 else ''}", file=sys.stderr)
    context = cuda.Device(mine % gpus).retain_primary_context()
    context.push()
    return context


def mpi_takes_device_pointers() -> bool:
    """The MPI's own answer; False if it cannot be queried."""
    try:
        ask = ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return False
    return int(ask()) == 1


def check_require(holds: bool, what: str, values: dict[str, float]) -> None:
    """End the program if a condition of the `.dag` does not hold for the data; `values`: of the names in it."""
    if not holds:
        text = ", ".join(f"{name} = {value}" for name, value in values.items())
        fail(BAD_INPUT, f"{what} does not hold for these data: {text}")


def check_slice(start: int, stop: int, length: int, array: str) -> None:
    """End the program if a slice start .. stop of a dimension is not within its `length`."""
    if not 0 <= start <= stop <= length:
        fail(RUN_FAILED, f"{array}: the slice {start} .. {stop} is not within 0 .. {length}")


def check_value(value: float, letter: str, what: str) -> None:
    """End the program if a by-value argument does not fit the type with this letter of `struct`."""
    try:
        struct.pack(f"<{letter}", value)
    except (struct.error, OverflowError):
        fail(BAD_INPUT, f"{what} does not hold {value}")


def compare_ranks(value: Callable[[], int], comm: MPI.Comm, what: str) -> None:
    """End the program if the ranks of a communicator differ in this value."""
    if comm != MPI.COMM_NULL and len(found := set(comm.allgather(value()))) > 1:
        fail(BAD_INPUT, f"{what} differs: it is {min(found)} on one rank, {max(found)} on another")


def require_device_pointers(vouched: bool) -> None:
    """Ends the program, before any message, unless the MPI accepts device pointers or the user asserts it."""
    if not vouched and not mpi_takes_device_pointers():
        fail(
            MISSING,
            "this program gives device pointers to MPI (transport mpi_cuda), and this MPI does not say that it takes "
            "them; compile with --transport mpi_host, or give --mpi-takes-device-pointers if you know that it does",
        )


def load_module(source: Path, comm: MPI.Comm, folders: Sequence[str] = ()) -> Any:
    """Compile the kernels with nvcc for this GPU, once, and load them on every rank.

    `folders`: directories of headers, next to the source. The compiled file is kept next to the source."""
    major, minor = cuda.Context.get_device().compute_capability()
    cubin = _cubin(source, f"sm_{major}{minor}", folders) if comm.rank == 0 else None
    return cuda.module_from_buffer(comm.bcast(cubin))


def _cubin(source: Path, arch: str, folders: Sequence[str]) -> bytes:
    include = [source.parent / name for name in ("include", *folders)]
    nvcc = os.environ.get("DAGC_NVCC", "nvcc")
    command = [nvcc, "-cubin", f"-arch={arch}", "-O3", "-std=c++17"]
    command += [word for folder in include for word in ("-I", str(folder))]
    digest = hashlib.sha256("\0".join(command).encode())
    for path in (source, *sorted(path for folder in include for path in folder.rglob("*") if path.is_file())):
        digest.update(path.read_bytes())
    kept = source.with_name(f"{source.stem}-{arch}-{digest.hexdigest()[:16]}.cubin")
    if kept.exists():
        return kept.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "kernels.cubin")
        command += ["-o", str(out), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            fail(MISSING, f"cannot start {nvcc}: {error.strerror}; set DAGC_NVCC to its path")
        if done.returncode != 0:
            fail(4, f"{' '.join(command)} failed:\n{done.stderr}")
        cubin = out.read_bytes()
    try:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(cubin)
        part.replace(kept)  # at once: another program may be reading
    except OSError:
        pass  # the directory cannot be written
    return cubin


# ---- comparison, as in dagc/compare.hpp -----------------------------------------------------------


def element(at: int, shape: Sequence[int]) -> str:
    """`7`, or `[129, 501]` if there are several dimensions."""
    if len(shape) < 2:
        return str(at)
    return "[" + ", ".join(str(int(i)) for i in np.unravel_index(at, shape)) + "]"


def of_all(of: str, values: Any) -> Any:
    """The sum of the values, or their norm, as an array of one f64."""
    long = values.astype(np.longdouble)
    return np.array([np.sqrt((long * long).sum()) if of == "norm" else long.sum()], np.float64)


def difference(
    got: Any, want: Any, rtol: float, nan_equal: bool, shape: Sequence[int] = (), start: int = 0, atol: float = 0.0
) -> str:
    """ "" if max|got - want| <= atol + rtol * max|want|, else the difference. Integers are compared as integers; NaN
    and infinities are correct only where the reference has the same, NaN only under `nan_equal`."""
    if want.dtype.kind == "f":
        found = _floats_differ(got, want, rtol, atol, nan_equal)
    else:
        found = _integers_differ(got, want, rtol, atol)
    if found is None:
        return ""
    at, worst, allowed = found
    where = f"element {element(start + at, shape)} is {got[at].item()!r}, expected {want[at].item()!r}"
    return f"{where}; largest difference {worst:.3g}, allowed {allowed:.3g}"


def _integers_differ(got: Any, want: Any, rtol: float, atol: float) -> tuple[int, int, int] | None:
    low, high = np.minimum(got, want), np.maximum(got, want)
    off = high.astype(np.uint64) - low.astype(np.uint64)  # modulo 2**64: also of i64
    if not off.any():
        return None
    scale = max(abs(int(want.min())), abs(int(want.max())))
    at = int(np.argmax(off))
    allowed = math.floor(Fraction(rtol) * scale) + math.floor(atol)
    return None if off[at] <= allowed else (at, int(off[at]), allowed)


def _floats_differ(got: Any, want: Any, rtol: float, atol: float, nan_equal: bool) -> tuple[int, float, float] | None:
    g, w = got.astype(np.float64), want.astype(np.float64)
    equal = (g == w) | (nan_equal & np.isnan(g) & np.isnan(w))
    finite = np.isfinite(g) & np.isfinite(w)
    scale = float(np.max(np.abs(w[np.isfinite(w)]), initial=0))
    allowed = atol + rtol * scale
    if (wrong := np.flatnonzero(~equal & ~finite)).size:
        return int(wrong[0]), math.inf, allowed
    both = finite & ~equal
    if not both.any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.where(both, np.abs(g - w), 0.0)
        half = np.where(both, np.abs(0.5 * g - 0.5 * w), 0.0)  # does not overflow
    over = np.isinf(off)
    at = int(np.argmax(np.where(over, half, 0.0) if over.any() else off))
    within = half[at] <= 0.5 * atol + rtol * (0.5 * scale) if over.any() else off[at] <= allowed
    return None if within else (at, float(off[at]), allowed)


# ---- arrays -----------------------------------------------------------------------------------


class Buffer:
    """Part of an array on the device, for MPI."""

    def __init__(self, address: int, count: int, dtype: np.dtype[Any]) -> None:
        self.address, self.nbytes = address, count * dtype.itemsize
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "strides": None,
            "typestr": dtype.str,
            "data": (address, False),
            "version": 3,
            "stream": None,
        }


class Array:
    """`address` is that of an array on the device, `host` has the elements of one on the host."""

    def __init__(self, name: str, dtype: str, shape: Sequence[int], place: str, role: str) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.name, self.shape, self.poisoned = name, tuple(shape), role in ("out", "scratch")
        self.size = size = math.prod(shape)
        self.nbytes = size * self.dtype.itemsize
        self.place = place
        room = max(size, 1)  # empty arrays have an address too
        self.address = 0
        self.host: Any = None
        if place == "device":
            self._memory = cuda.mem_alloc(room * self.dtype.itemsize)
            self.address = int(self._memory)
        elif place in ("pinned", "any"):  # what `any` arrays have on the device is of libdriver.so
            self.host = cuda.pagelocked_empty(room, self.dtype)[:size]
        else:
            self.host = np.empty(size, self.dtype)

    def at(self, start: int) -> int:
        """Device address of an element."""
        return self.address + start * self.dtype.itemsize

    def buffer(self, start: int, count: int) -> Any:
        """Elements for a message, in the array's place."""
        return Buffer(self.at(start), count, self.dtype) if self.place == "device" else self.host[start : start + count]

    def write(self, values: Any) -> None:
        if self.place != "device":
            self.host[:] = values
        elif self.size:
            cuda.memcpy_htod(self.address, values)

    def read(self) -> Any:
        if self.place != "device":
            return self.host.copy()
        out = np.empty(self.size, self.dtype)
        if self.size:
            cuda.memcpy_dtoh(out, self.address)
        return out

    def poison(self, number: int) -> None:
        """Fill every byte with POISON."""
        byte = POISON[self.dtype.kind][number]
        if self.host is not None:
            self.host.view(np.uint8)[:] = byte
        if self.place == "device" and self.nbytes:
            cuda.memset_d8(self.address, byte, self.nbytes)

    def unwritten(self, values: Any, number: int) -> Any:
        """Indices of the values that are the poison."""
        byte = POISON[self.dtype.kind][number]
        held = (np.ascontiguousarray(values).view(np.uint8).reshape(-1, self.dtype.itemsize) == byte).all(axis=1)
        return np.flatnonzero(held)

    def digest(self) -> bytes:
        """Digest of all elements."""
        return hashlib.blake2b(self.read().view(np.uint8), digest_size=16).digest()


@dataclass(frozen=True)
class Hardware:
    """What expressions name `hw.*`; the memory in bytes."""

    max_threads_per_block: int
    shared_per_block: int
    warp_size: int
    sms: int
    memory: int


def _nothing() -> None:
    pass


class Communicator:
    """The ranks of one colour, by key, then by rank. On a rank whose colour is negative, `rank` is -1 and `ranks` 0."""

    def __init__(self, comm: MPI.Comm, colour: int, key: int) -> None:
        self.comm = comm.Split(colour if colour >= 0 else MPI.UNDEFINED, key)
        inside = self.comm != MPI.COMM_NULL
        self.rank, self.ranks = (self.comm.rank, self.comm.size) if inside else (-1, 0)


class Rank:
    """The data of one rank. `Program` in driver.py adds the arrays."""

    def __init__(self, data: Path, comm: MPI.Comm) -> None:
        self.comm, self.rank, self.ranks = comm, comm.rank, comm.size
        self.folder = data / f"rank-{comm.rank:04d}"
        self._roles: list[tuple[Array, str, Any]] = []  # and the first values, or their digest
        self._poison = 0
        self.before_run: Callable[[], None] = _nothing
        self.want = "file"  # `compare` with the reference; "keep": only store the results; "kept": compare with these
        self._kept: dict[str, Any] = {}  # by file
        self._left: dict[str, Any] = {}  # by file, the elements that held the first poison after a run
        # Messages of device memory to this rank itself: copied on a stream, as an MPI may move them with memcpy.
        self._self_stream: Any = None
        self._self_halves: dict[int, tuple[bool, Buffer]] = {}

    def _file(self, file: str) -> Any:
        try:
            return np.load(self.folder / file, allow_pickle=False)
        except (OSError, ValueError) as error:
            fail(BAD_INPUT, f"{self.folder / file}: {error}; write it again with `dagc setup`")

    def scalar(self, file: str) -> Any:
        return self._file(file).item()

    def load(self, name: str, file: str, dtype: str, shape: Sequence[int], place: str, role: str) -> Array:
        """An array of the set-up; a negative entry of `shape` matches every length."""
        values = self._file(file)
        fits = len(values.shape) == len(shape) and all(
            want in (-1, got) for got, want in zip(values.shape, shape, strict=True)
        )
        if values.dtype != np.dtype(dtype) or not fits:
            fail(
                BAD_INPUT,
                f"{self.folder / file}: {name} is {values.dtype}{values.shape}, "
                f"declared as {np.dtype(dtype)}{tuple(shape)}",
            )
        flat = np.ascontiguousarray(values).reshape(-1)
        array = Array(name, dtype, values.shape, place, role)
        array.write(flat)
        self._roles.append((array, role, flat if role == "inout" else array.digest()))
        return array

    def make(self, name: str, dtype: str, shape: Sequence[int], place: str, role: str) -> Array:
        """An array that the program computes."""
        if min(shape, default=0) < 0:
            fail(RUN_FAILED, f"{name}: a dimension is negative: {min(shape)}")
        array = Array(name, dtype, shape, place, role)
        array.poison(0)
        self._roles.append((array, role, None))
        return array

    def reset(self, poison: int = 0) -> None:
        """Carried arrays as they were loaded, results and scratch filled with one of two poisons."""
        self._poison = poison
        for array, role, saved in self._roles:
            if role == "inout":
                array.write(saved)
            elif role in ("out", "scratch"):
                array.poison(poison)
        cuda.Context.synchronize()
        self.before_run()

    @cached_property
    def hardware(self) -> Hardware:
        """Of the GPU of this rank."""
        device, attributes = cuda.Context.get_device(), cuda.device_attribute
        return Hardware(
            max_threads_per_block=device.get_attribute(attributes.MAX_THREADS_PER_BLOCK),
            shared_per_block=device.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK),
            warp_size=device.get_attribute(attributes.WARP_SIZE),
            sms=device.get_attribute(attributes.MULTIPROCESSOR_COUNT),
            memory=device.total_memory(),
        )

    def arrays(self) -> list[Array]:
        """All of them, those of the program first."""
        return [array for array, _, _ in self._roles]

    def changed(self) -> str:
        """Names of the inputs and constants that changed since they were loaded, "" if none did."""
        return ", ".join(
            f"`{array.name}`" for array, role, digest in self._roles if role in READ_ONLY and array.digest() != digest
        )

    def compare(
        self, array: Array, name: str, file: str, start: int, count: int, rtol: float, nan_equal: bool = False,
        atol: float = 0.0, of: str = "",
    ) -> str:  # fmt: skip
        """ "" if the results agree with a reference, else the difference; as in dagc/compare.hpp. `of`: their sum or
        norm is compared, of which the reference is a number."""
        want = self._file(file).reshape(-1)
        got = array.read()[start : start + count]
        if want.size != (1 if of else got.size):
            fail(RUN_FAILED, f"{self.folder / file}: has {want.size} elements, expected {got.size} of {name}")
        if self.want == "keep":
            self._kept[file] = got
            return ""
        if self.want == "kept":
            want = self._kept[file]
            if got.tobytes() == want.tobytes():
                return ""  # also if both have a NaN
        if of:
            numbers = [of_all(of, got), of_all(of, want) if self.want == "kept" else want]
            wrong = difference(*numbers, rtol, nan_equal, (1,), 0, atol).replace("element 0", "it", 1)
        else:
            wrong = difference(got, want, rtol, nan_equal, array.shape, start, atol)
        if not wrong and array.poisoned:
            left = array.unwritten(got, self._poison) + start
            if self._poison == 0:
                self._left[file] = left
            elif (both := np.intersect1d(left, self._left[file])).size:
                wrong = f"element {element(int(both[0]), array.shape)} is never written"
        elif wrong and array.poisoned and (left := array.unwritten(got, self._poison) + start).size:
            at = element(int(left[0]), array.shape)
            wrong += (
                f"; element {at} holds what results are filled with before a run: no op or message of this rank has"
            )
            wrong += " written it"
        return f"{name} is wrong: {wrong}" if wrong else ""

    # ---- messages ---------------------------------------------------------------------------

    def peers(
        self, ranks: Array, counts: Array, part: Callable[[int, int], Any], some: slice = slice(None)
    ) -> list[tuple[Any, int]]:
        """(buffer, rank) of each peer, or of those at some places; `part(start, count)` gives the elements."""
        out, start, here = [], 0, range(*some.indices(len(ranks.host)))
        for place, (peer, count) in enumerate(zip(ranks.host.tolist(), counts.host.tolist(), strict=True)):
            if peer >= 0:
                out += [(part(start, count), peer)] if place in here else []
                start += count
        return out

    def peer(self, rank: int, buffer: Any) -> list[tuple[Any, int]]:
        """One peer, or none if its rank is negative."""
        return [(buffer, rank)] if rank >= 0 else []

    def send(
        self, requests: list[MPI.Request], parts: Sequence[tuple[Any, int]], tag: int, on: Communicator | None = None
    ) -> None:
        """Post the sends of one message, to ranks of the program or of `on`."""
        within = on or self
        for buffer, rank in parts:
            if rank == within.rank and isinstance(buffer, Buffer):
                self._to_self(True, buffer, tag)
            else:
                requests.append(within.comm.Isend(buffer, dest=rank, tag=tag))

    def receive(
        self, requests: list[MPI.Request], parts: Sequence[tuple[Any, int]], tag: int, on: Communicator | None = None
    ) -> None:
        """Post the receives of one message, from ranks of the program or of `on`."""
        within = on or self
        for buffer, rank in parts:
            if rank == within.rank and isinstance(buffer, Buffer):
                self._to_self(False, buffer, tag)
            else:
                requests.append(within.comm.Irecv(buffer, source=rank, tag=tag))

    def wait_all(self, requests: list[MPI.Request]) -> None:
        """Complete what was posted into `requests`, and the copies of this rank to itself."""
        MPI.Request.Waitall(requests)
        requests.clear()
        if self._self_stream is not None:
            self._self_stream.synchronize()

    def _to_self(self, sent: bool, buffer: Buffer, tag: int) -> None:
        """The copy starts with the second of the two posts."""
        if self._self_stream is None:
            self._self_stream = cuda.Stream()
        other = self._self_halves.pop(tag, None)
        if other is None:
            self._self_halves[tag] = (sent, buffer)
            return
        source, target = (buffer, other[1]) if sent else (other[1], buffer)
        cuda.memcpy_dtod_async(target.address, source.address, source.nbytes, self._self_stream)


def streams(count: int) -> list[Any]:
    non_blocking = 1  # CU_STREAM_NON_BLOCKING: no order with the default stream, which MPI may use
    return [cuda.Stream(non_blocking) for _ in range(count)]


def events(count: int) -> list[Any]:
    return [cuda.Event(cuda.event_flags.DISABLE_TIMING) for _ in range(count)]


def function(module: Any, name: str, types: str) -> Any:
    """A kernel as a function of (grid, block, stream, *args); `types` are those of its arguments, as in `struct`."""
    found = module.get_function(name)
    found.prepare(types)
    return found.prepared_async_call


def function_with_shared(module: Any, name: str, types: str) -> Any:
    """The same, of (grid, block, stream, *args, shared_size=bytes). More than 48 KiB must be asked for."""
    found = module.get_function(name)
    found.prepare(types)
    attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES

    def launch(*args: Any, shared_size: int) -> None:
        if shared_size > 48 << 10:
            found.set_attribute(attribute, shared_size)
        found.prepared_async_call(*args, shared_size=shared_size)

    return launch


class Library:
    """libdriver.so: ops that PyCUDA and mpi4py have no functions for, and CUDA graphs. Collective to open and to close.

    What fails there ends all ranks with a message, as in the C++ program.
    """

    def __init__(self, folder: Path, data: Path, rank: Rank, facts: dict[str, Any]) -> None:
        """`facts` as in driver.py: a library of another program, traversal or MPI is refused."""
        path = next((f / "libdriver.so" for f in (folder, folder / "build") if (f / "libdriver.so").exists()), None)
        if path is None:
            fail(MISSING, f"{folder} has no libdriver.so; build it with `dagc compile --as driver`, or with CMake")
        try:
            self._calls = calls = ctypes.CDLL(str(path))
        except OSError as error:
            fail(MISSING, f"{path}: {error}")
        for name in ("program_hash", "traversal", "mpi"):
            getattr(calls, f"dagc_driver_{name}").restype = ctypes.c_char_p
        if any(getattr(calls, f"dagc_driver_{name}")().decode() != fact for name, fact in facts.items()):
            fail(MISSING, f"{path} is of another traversal than driver.py; build it again")
        theirs, ours = calls.dagc_driver_mpi().decode().strip(), MPI.Get_library_version().strip("\0").strip()
        if theirs != ours:
            fail(MISSING, f"{path} is linked with {theirs.splitlines()[0]}, and mpi4py with {ours.splitlines()[0]}")
        calls.dagc_driver_give.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64]
        calls.dagc_driver_begin_capture.argtypes = calls.dagc_driver_end_capture.argtypes = [ctypes.c_void_p]
        calls.dagc_driver_launch.argtypes = [ctypes.c_int, ctypes.c_void_p]
        calls.dagc_driver_launch.restype = None
        for array in rank.arrays():
            memory = array.address if array.place == "device" else array.host.ctypes.data
            calls.dagc_driver_give(array.name.encode(), memory, array.nbytes)
        calls.dagc_driver_open(str(data).encode(), rank.comm.py2f())
        rank.before_run = calls.dagc_driver_begin
        self._rank = rank  # has the memory

    def op(self, number: int) -> Callable[[int], None]:
        """An op as a function of the stream that it is issued on (an integer; 0 for one of the CPU)."""
        call = self._calls[f"dagc_driver_op_{number}"]
        call.argtypes, call.restype = [ctypes.c_void_p], None
        return call  # type: ignore[no-any-return]

    def capture(self, stream: int, work: Callable[[], None]) -> Callable[[int], None]:
        """What `work` issues, as a CUDA graph: a function of the stream that it is launched on. Nothing is executed."""
        self._calls.dagc_driver_begin_capture(stream)
        work()
        return partial(self._calls.dagc_driver_launch, self._calls.dagc_driver_end_capture(stream))

    def close(self) -> None:
        self._rank.before_run = _nothing
        self._calls.dagc_driver_close()


# ---- checking, measuring ----------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """The iteration, and how it may be run.

    on_one_stream   the same ops on one stream, where a run changes what the next one reads; else None
    most            how many runs may follow each other before the data start anew; 0: any number
    later           numbers of runs after which results are compared, besides one
    """

    iteration: Callable[[], None]
    on_one_stream: Callable[[], None] | None
    most: int
    later: tuple[int, ...] = ()

    @property
    def in_a_row(self) -> int:
        """How many runs in a row are checked."""
        return min(3, self.most) if self.most > 0 else 3


def run(
    program: str, rank: Rank, runs: Runs, verify: Callable[..., str], options: argparse.Namespace, facts: dict[str, Any]
) -> int:
    """Check, then time; returns the exit code."""
    iteration, carried = runs.iteration, runs.on_one_stream is not None
    if _wrong(rank, iteration, verify, 0, 1) or _wrong(rank, iteration, verify, 1, 1):
        return WRONG_RESULT
    if any(_wrong(rank, iteration, partial(verify, later), poison, later) for later in runs.later for poison in (0, 1)):
        return WRONG_RESULT
    every = partial(verify, 0) if runs.later else verify
    speak = rank.rank == 0 and not options.quiet
    if speak:
        print(f"{program} on {rank.ranks} ranks: results agree with the reference")
    if options.check_only:
        return 0
    if runs.on_one_stream is not None:
        _keep(rank, runs.on_one_stream, every, runs.in_a_row)
    reset = rank.reset if carried else _nothing
    times, iterations = measure(iteration, reset, rank.comm, options.seconds, options.repeats, runs.most)
    if _wrong(rank, iteration, verify, 1, 1 if carried else runs.in_a_row):  # a race may show late
        return WRONG_RESULT
    rank.want = "kept"
    if carried and _wrong(rank, iteration, every, 1, runs.in_a_row):
        return WRONG_RESULT
    if speak:
        middle, low, high = (f"{1e6 * f(times):.4g} us" for f in (np.median, np.min, np.max))
        print(f"time per iteration, max over ranks: median {middle}, min {low}, max {high}")
        print(f"measurements: {len(times)} of {iterations} iterations")
    if rank.rank == 0 and options.json:
        _write_json(
            options,
            {"program": program, **facts, "environment": environment(rank), "time": _record(times, iterations)},
        )
    return 0


def _wrong(rank: Rank, iteration: Callable[[], None], verify: Callable[[], str], poison: int, runs: int) -> bool:
    """Whether the results of any rank are wrong after `runs` runs from a poison. Reports the error."""
    rank.reset(poison)
    for _ in range(runs):
        iteration()
    cuda.Context.synchronize()
    changed = rank.changed()
    mine = f"{changed} changed, which no op declares to write" if changed else verify()
    if mine and (rank.want == "kept" or runs > 1):
        mine += f", after {runs} runs" + (" without a pause" if rank.want == "kept" else "")
    wrong = [f"rank {r}: {text}" for r, text in enumerate(rank.comm.allgather(mine)) if text]
    if wrong and rank.rank == 0:
        print(f"dagc: {wrong[0]}", file=sys.stderr)
    return bool(wrong)


def _keep(rank: Rank, on_one_stream: Callable[[], None], verify: Callable[[], str], runs: int) -> None:
    """Store the results of `runs` runs, each of which ends on all ranks before the next begins."""
    rank.reset(0)
    for _ in range(runs):
        on_one_stream()
        cuda.Context.synchronize()
        rank.comm.Barrier()
    rank.want = "keep"
    verify()
    rank.want = "file"


def _timed(
    iteration: Callable[[], None], reset: Callable[[], None], comm: MPI.Comm, iterations: int, most: int
) -> float:
    """Seconds of these iterations, maximum over the ranks; a reset, untimed, before each `most` of them."""
    total = 0.0
    for done in range(0, iterations, most or iterations):
        reset()
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(min(most or iterations, iterations - done)):
            iteration()
        total += float(comm.allreduce(time.perf_counter() - start, op=MPI.MAX))
    return total


def measure(
    iteration: Callable[[], None], reset: Callable[[], None], comm: MPI.Comm, seconds: float, repeats: int, most: int
) -> tuple[list[float], int]:
    """Seconds per iteration, maximum over ranks, one per measurement; and iterations of a measurement. `most`: how many
    may follow each other before a reset, 0: any number."""
    iterations = 1
    while (taken := _timed(iteration, reset, comm, iterations, most)) < seconds:
        wanted = math.ceil(iterations * seconds / taken * 1.1) if taken > 0 else iterations * 2
        iterations = max(iterations + 1, min(wanted, iterations * 10))
    return [_timed(iteration, reset, comm, iterations, most) / iterations for _ in range(repeats)], iterations


def median_interval(n: int) -> tuple[int, int]:
    """Ranks of the order statistics that bound the median with at least 95% confidence; as in dagc/measure.hpp."""
    below, rank = 0.0, 0
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if below > 0.025:
            break
        rank = k
    return rank, n - 1 - rank


def _record(times: list[float], iterations: int) -> dict[str, Any]:
    low, middle, high = (float(q) for q in np.quantile(times, [0.25, 0.5, 0.75]))
    ordered, (first, last) = sorted(times), median_interval(len(times))
    statistics = {
        "median": middle, "min": ordered[0], "max": ordered[-1], "lower_quartile": low, "upper_quartile": high,
        "median_low": ordered[first], "median_high": ordered[last],
    }  # fmt: skip
    return {"unit": "s", "iterations": iterations, "seconds": times, "statistics": statistics}


def environment(rank: Rank) -> dict[str, Any]:
    """Machine and tools of a measurement."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ranks": rank.ranks,
        "hosts": [platform.node()],
        "mpi": MPI.Get_library_version().splitlines()[0].strip("\0"),
        "target": "pycuda",
        "gpu": cuda.Context.get_device().name(),
        "cuda_driver": cuda.get_driver_version(),
        "python": platform.python_version(),
    }


def _write_json(options: argparse.Namespace, record: dict[str, Any]) -> None:
    text = json.dumps(record) + "\n"
    try:
        if options.json == "-":
            options.stdout.write(text)
            options.stdout.flush()
        else:
            Path(options.json).write_text(text)
    except OSError as error:
        fail(BAD_INPUT, f"{options.json}: cannot write: {error.strerror}")

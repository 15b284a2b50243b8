"""The target to compile for, with the reason: `cuda` if a GPU and nvcc are found, else `host`."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache

from dagc.base.errors import UsageError
from dagc.build.toolchain import answer_of, find_nvcc
from dagc.ir.plan import Target

# ---- GPUs ----


@dataclass(frozen=True, slots=True)
class GPU:
    """One device. `capability` is its compute capability ("9.0"), `memory` in bytes, `driver` the driver's version."""

    name: str
    capability: str
    memory: int
    driver: str

    @property
    def arch(self) -> str:
        """The architecture, as for nvcc's `-arch`."""
        return "sm_" + self.capability.replace(".", "")


_FIELDS = "name,compute_cap,memory.total,driver_version"

# For machines (mostly containers) with the driver's library but without its tools. The numbers are from the driver
# API: attributes 75 and 76 are the major and minor compute capability.
_ASK_DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
number, major, minor, version = (ctypes.c_int() for _ in range(4))
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for device in range(number.value):
        name, memory = ctypes.create_string_buffer(100), ctypes.c_size_t()
        cuda.cuDeviceGetName(name, 100, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        supports = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        print(name.value.decode(), f"{major.value}.{minor.value}", memory.value >> 20, supports, sep=", ")
"""


@lru_cache(maxsize=1)
def gpus() -> tuple[GPU, ...]:
    """All usable devices; empty if there is none, or no working driver."""
    smi = shutil.which("nvidia-smi")
    if smi is not None:
        devices = _ask([smi, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"])
        if devices:
            return devices
    return _ask([sys.executable, "-c", _ASK_DRIVER])


def _ask(command: list[str]) -> tuple[GPU, ...]:
    return parse_gpus(answer_of(command) or "")


def parse_gpus(text: str) -> tuple[GPU, ...]:
    """Parse lines of `name, capability, memory in MiB, driver`; other lines are skipped."""
    devices = []
    for line in text.splitlines():
        words = [word.strip() for word in line.rsplit(",", 3)]
        if len(words) == 4 and words[2].isdigit() and words[1].replace(".", "", 1).isdigit():
            devices.append(GPU(words[0], words[1], int(words[2]) << 20, words[3]))
    return tuple(devices)


# ---- targets ----

DEFAULT_ARCH = "sm_90"
_ARCH = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # nvcc checks which exist


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """`reason` is a sentence for the user."""

    target: Target
    arch: str
    reason: str

    @property
    def gpu_arch(self) -> str | None:
        """The architecture of the GPU to compile for; None on the host target."""
        return self.arch if self.target is Target.CUDA else None


def _gpu_here() -> str | None:
    """The architecture of the first GPU, as nvcc names it; None without a GPU."""
    devices = gpus()
    return devices[0].arch if devices else None


def choose_target(target: str | None, arch: str | None, why: str = "as requested") -> TargetChoice:
    """The target: as requested (`why`: by whom), else `cuda` if a GPU and nvcc are found, else `host`.

    Raises UsageError for an unknown target, or an invalid `arch`.
    """
    if arch is not None and not _ARCH.fullmatch(arch):
        raise UsageError(f"unknown architecture {arch!r}", f"write for example {DEFAULT_ARCH}")
    if target is not None:
        if target not in ("cuda", "host"):
            raise UsageError(f"unknown target {target}", "use cuda or host")
        if target == "host":
            return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, why)
        return TargetChoice(Target.CUDA, arch or _gpu_here() or DEFAULT_ARCH, why)
    gpu = _gpu_here()
    if gpu is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "no GPU was found")
    if find_nvcc() is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "there is a GPU, but no nvcc")
    return TargetChoice(Target.CUDA, arch or gpu, f"a GPU ({gpu}) and nvcc were found")

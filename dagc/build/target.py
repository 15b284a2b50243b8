"""Which target to compile for: `cuda` where a GPU and nvcc are found, else `host`, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dagc.base.errors import UsageError
from dagc.build.devices import gpus
from dagc.build.toolchain import find_nvcc
from dagc.ir.plan import Target

DEFAULT_ARCH = "sm_90"
_ARCH = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # nvcc knows which there are


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """`reason` is a sentence for the user."""

    target: Target
    arch: str
    reason: str

    @property
    def gpu_arch(self) -> str | None:
        """The architecture of the GPU that is compiled for, None on the host target."""
        return self.arch if self.target is Target.CUDA else None


def _gpu_here() -> str | None:
    """nvcc's name of the first GPU's architecture, None where there is no GPU."""
    found = gpus()
    return found[0].arch if found else None


def choose_target(target: str | None, arch: str | None, why: str = "as asked for") -> TargetChoice:
    """`target` as asked for (`why` says by whom), or by what is there.

    Raises UsageError for an unknown one, or what can be no `arch`.
    """
    if arch is not None and not _ARCH.fullmatch(arch):
        raise UsageError(f"there is no architecture {arch!r}", f"write for example {DEFAULT_ARCH}")
    if target is not None:
        if target not in ("cuda", "host"):
            raise UsageError(f"there is no target {target}", "use cuda or host")
        if target == "host":
            return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, why)
        return TargetChoice(Target.CUDA, arch or _gpu_here() or DEFAULT_ARCH, why)
    gpu = _gpu_here()
    if gpu is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "no GPU was found")
    if find_nvcc() is None:
        return TargetChoice(Target.HOST, arch or DEFAULT_ARCH, "there is a GPU, but no nvcc")
    return TargetChoice(Target.CUDA, arch or gpu, f"a GPU ({gpu}) and nvcc were found")

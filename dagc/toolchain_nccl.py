"""Where NCCL is on this machine, for what transport nccl emits for GPUs."""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dagc.errors import MissingTool, UsageError

NO_NCCL_HELP = "install libnccl-dev, or `pip install nvidia-nccl-cu13`, or name its folder in NCCL_HOME"


@dataclass(frozen=True, slots=True)
class Nccl:
    """NCCL's header and library: of the system, of NCCL_HOME, or of the wheel `nvidia-nccl-cu13`."""

    include: Path
    library: Path

    def flags(self) -> tuple[str, ...]:
        """For nvcc: compile and link."""
        # Named, /usr/include would come too early: the C++ library includes the C headers that follow its own.
        folder = () if self.include == Path("/usr/include") else ("-isystem", str(self.include))
        return (*folder, "-Xlinker", str(self.library), "-Xlinker", f"-rpath={self.library.parent}")


@lru_cache(maxsize=1)
def find_nccl() -> Nccl | None:
    """The first that has both: what NCCL_HOME names, else the wheel, else the usual folders.

    Raises UsageError where NCCL_HOME is set and has no NCCL.
    """
    if home := os.environ.get("NCCL_HOME"):
        found = _nccl_in(Path(home))
        if found is None:
            raise UsageError(
                f"NCCL_HOME={home} has no include/nccl.h with a libnccl.so", "name another folder, or unset it"
            )
        return found
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    wheel = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    homes = (*wheel, Path("/usr"), Path("/usr/local"), Path("/usr/local/cuda"))
    return next((nccl for nccl in map(_nccl_in, homes) if nccl is not None), None)


def _nccl_in(home: Path) -> Nccl | None:
    folders = ("lib", "lib64", f"lib/{platform.machine()}-linux-gnu")
    libraries = [path for sub in folders for path in sorted((home / sub).glob("libnccl.so*"))]
    if (home / "include/nccl.h").is_file() and libraries:
        return Nccl(home / "include", libraries[0])
    return None


def require_nccl() -> Nccl:
    """Raises MissingTool."""
    found = find_nccl()
    if found is None:
        raise MissingTool("no NCCL found (nccl.h and libnccl.so), which transport nccl needs", NO_NCCL_HELP)
    return found

"""Whether an MPI takes device pointers. Asked of another process, since an MPI may end the process that asks."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from dagc.run.mpi_env import joined
from dagc.toolchain import MPI

# MPI_Init first: Open MPI knows its accelerator components only then. The answer has a mark of its own, as libraries
# print things of theirs.
_ASK = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
query = getattr(mpi, "MPIX_Query_cuda_support", None)
if query is not None and mpi.MPI_Init(None, None) == 0:
    print("cuda support:", query())
    mpi.MPI_Finalize()
elif query is None:
    print("cuda support: 0")
"""


@lru_cache(maxsize=8)
def takes_device_pointers(mpi: MPI) -> bool | None:
    """MPIX_Query_cuda_support's answer; False where the MPI has no such function, None where it could not be asked.

    A rank does not ask: the process that it starts to ask another would take its place among the ranks.
    """
    library = _library(mpi)
    if library is None or joined() is not None:
        return None
    command = [sys.executable, "-c", _ASK, str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    answers = [line for line in done.stdout.splitlines() if line.startswith("cuda support:")]
    return answers[0].split()[-1] != "0" if answers else None


def _library(mpi: MPI) -> Path | None:
    """The MPI's library file. In the wheels `libmpi.so` is a text for the linker that names the real one."""
    for name in mpi.libraries:
        if not name.startswith("mpi"):
            continue
        for path in sorted(mpi.library_dir.glob(f"lib{name}.so*")):
            try:
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        return path
            except OSError:
                continue
    return None

"""Environment and capabilities of an MPI, and whether this process is one of its ranks."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

from dagc.build.ranks import joined
from dagc.build.toolchain import MPI, MPIKind, file_of

# ---- environment variables that each kind of MPI needs ----


def cores() -> int:
    """Processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def starter_options(mpi: MPI) -> tuple[str, ...]:
    """Options of mpiexec to start as root, in a container, and with more ranks than cores.

    Ranks are not bound to cores: streams of the host target are threads and need the other cores. MPICH needs no option
    for any of these.
    """
    if mpi.kind is not MPIKind.OPEN_MPI:
        return ()
    oversubscribe = ("--map-by", ":OVERSUBSCRIBE") if mpi.major >= 5 else ("--oversubscribe",)
    return ("--allow-run-as-root", *oversubscribe, "--bind-to", "none")


# A waiting rank yields its core, which another rank needs in order to send (docs/figures.md has the gain and the cost).
YIELDING = {
    MPIKind.OPEN_MPI: {"OMPI_MCA_mpi_yield_when_idle": "1"},
    MPIKind.MPICH: {
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        # In collectives over shared memory (release_gather) ranks poll, whatever is said above; in those by messages
        # they wait as for any message.
        **{f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir" for name in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")},
    },
}


# libgomp's threads wait for one another by spinning, 300 000 times. Where anything else needs one of their cores, a
# loop of all threads then lasts until the scheduler takes that core from a spinning thread: ticks of 4 ms, not
# microseconds. They therefore use libgomp's policy for more threads than cores: they spin 1000 times and then sleep
# (docs/figures.md, "Versions on two devices").
WAITING = {"GOMP_SPINCOUNT": "1000"}


def rank_environment(mpi: MPI | None, ranks: int) -> dict[str, str]:
    """Variables for a run of `ranks` on one machine, except those already set. `mpi` None: one rank without MPI.

    The user's policy for waiting threads (OMP_WAIT_POLICY) is not changed.
    """
    wanted = {} if "OMP_WAIT_POLICY" in os.environ else dict(WAITING)
    if mpi is not None and ranks > cores():
        wanted |= YIELDING.get(mpi.kind, {})
    return {name: value for name, value in wanted.items() if name not in os.environ}


def thread_sanitizer_environment(mpi: MPI) -> dict[str, str]:
    """Variables for programs built with ThreadSanitizer.

    MPICH's UCX patches mmap, which the sanitizer has already patched; and in MPI_Init it may read the memory of other
    processes, at addresses that the sanitizer takes for those of this one, which crashes some runs. Open MPI's
    shared-memory store of PMIx has races, and its transports take locks in different orders. `exitcode`: a report fails
    the run with a code that no dagc program uses.
    """
    variables = {"TSAN_OPTIONS": "exitcode=66 halt_on_error=0 second_deadlock_stack=1"}
    if mpi.kind is MPIKind.OPEN_MPI:
        variables["PMIX_MCA_gds"] = "hash"
        variables["TSAN_OPTIONS"] += " detect_deadlocks=0"
    else:
        variables["UCX_MEM_MMAP_HOOK_MODE"] = "none"
        variables["UCX_TLS"] = "^cma"
    return variables


# ---- device pointers ----


# MPI_Init first: Open MPI knows its accelerator components only then.
_ASK = """
import ctypes, sys
mpi = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
query = getattr(mpi, "MPIX_Query_cuda_support", None)
if query is None or mpi.MPI_Init(None, None) == 0:
    with open(sys.argv[2], "w") as answer:
        print(query() if query else 0, file=answer)
if query is not None:
    mpi.MPI_Finalize()
"""


@lru_cache(maxsize=8)
def takes_device_pointers(mpi: MPI) -> bool | None:
    """The answer of MPIX_Query_cuda_support; False if the MPI has no such function, None if the query failed.

    Must not be called by a rank: the process started for the query would count as one of the ranks.
    """
    library = _library(mpi)
    if library is None or joined() is not None:
        return None
    answer = (file_of([sys.executable, "-c", _ASK, str(library)]) or "").strip()
    return answer != "0" if answer else None


def _library(mpi: MPI) -> Path | None:
    """The MPI's library file. In wheels, `libmpi.so` is a linker script that names the real one."""
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

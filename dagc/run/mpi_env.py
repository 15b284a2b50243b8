"""Environment variables that each kind of MPI needs. Pure functions; docs/reference/mpi.md has the reasons."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dagc.toolchain import MPI, MPIKind


def cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def starter_options(mpi: MPI) -> tuple[str, ...]:
    """Options of mpiexec, so that it starts as root, in a container, and with more ranks than cores.

    Ranks are not bound to cores: streams of the host target are threads and need the other cores. MPICH's starter needs
    no option for any of these.
    """
    if mpi.kind is not MPIKind.OPEN_MPI:
        return ()
    oversubscribe = ("--map-by", ":OVERSUBSCRIBE") if mpi.major >= 5 else ("--oversubscribe",)
    return ("--allow-run-as-root", *oversubscribe, "--bind-to", "none")


# A waiting rank gives up its core, which another rank needs in order to send what it waits for (docs/figures.md has
# the gain and the cost).
YIELDING = {
    MPIKind.OPEN_MPI: {"OMPI_MCA_mpi_yield_when_idle": "1"},
    MPIKind.MPICH: {
        "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    },
}


def rank_environment(mpi: MPI, ranks: int) -> dict[str, str]:
    """Variables for a run of `ranks` on one machine, but for those that are set already."""
    wanted = YIELDING.get(mpi.kind, {}) if ranks > cores() else {}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def thread_sanitizer_environment(mpi: MPI) -> dict[str, str]:
    """Variables for programs built with ThreadSanitizer.

    MPICH's UCX patches mmap, which the sanitizer has already patched; Open MPI's shared-memory store of PMIx reports
    races of its own, and its transports take locks in different orders. `exitcode` makes a report fail the run with a
    code that no dagc program uses.
    """
    variables = {"TSAN_OPTIONS": "exitcode=66 halt_on_error=0 second_deadlock_stack=1"}
    if mpi.kind is MPIKind.OPEN_MPI:
        variables["PMIX_MCA_gds"] = "hash"
        variables["TSAN_OPTIONS"] += " detect_deadlocks=0"
    else:
        variables["UCX_MEM_MMAP_HOOK_MODE"] = "none"
    return variables


def joined(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """(rank, size) where this very process was started as a rank by mpiexec or srun, else None.

    A shell that a Slurm job runs in is no rank: only a step of several tasks (SLURM_STEP_NUM_TASKS) counts.
    """
    env = os.environ if environment is None else environment
    pairs = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ]
    slurm_tasks = _number(env, "SLURM_STEP_NUM_TASKS")
    if slurm_tasks is not None:
        # srun sets PMI's variables too, for a step of one task as well; what it says of itself decides.
        rank = _number(env, "SLURM_PROCID")
        if slurm_tasks > 1 and rank is not None:
            return rank, slurm_tasks
        pairs = pairs[:1]
    for rank_name, size_name in pairs:
        rank, size = _number(env, rank_name), _number(env, size_name)
        if rank is not None and size is not None:
            return rank, size
    return None


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isdigit() else None

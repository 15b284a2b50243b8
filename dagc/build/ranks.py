"""Whether this process is one of the ranks of an MPI, by the variables that mpiexec and srun set.

Every command needs this at its start, so this module does not import the toolchain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NoReturn

from dagc.base.errors import DagcError, UsageError, counted

DEFAULT_RANKS = 4
BINDINGS = ("none", "show", "near")


def joined(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """(rank, size) if mpiexec or srun started this process as a rank, else None.

    A shell that a Slurm job runs in is not a rank: only a step of several tasks (SLURM_STEP_NUM_TASKS) counts.
    """
    env = os.environ if environment is None else environment
    pairs = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ]
    slurm_tasks = _number(env, "SLURM_STEP_NUM_TASKS")
    if slurm_tasks is not None:
        # srun sets PMI's variables too, even for a step of one task, so its own variables decide.
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


def ranks_or_default(asked: int | None, groups: int = 1) -> int:
    """The requested number of ranks, else that of each group of the ranks that this command belongs to, else 4."""
    place = joined()
    return asked or (DEFAULT_RANKS if place is None else max(1, place[1] // groups))


def several_hosts(ranks: int, environment: Mapping[str, str] | None = None) -> bool:
    """Whether the starter of this command put its ranks on several hosts, or DAGC_RANKS_PER_HOST says so. Raises
    UsageError (by `refuse`) where that is not a number of ranks."""
    env = os.environ if environment is None else environment
    if (declared := env.get("DAGC_RANKS_PER_HOST", "")) and not _number(env, "DAGC_RANKS_PER_HOST"):
        why = f"DAGC_RANKS_PER_HOST={declared[:100]} is not a whole number of at least 1"
        refuse(UsageError(why, "give the ranks of a host, or unset the variable"))
    names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE") if joined(env) else ()
    here = [size for name in ("DAGC_RANKS_PER_HOST", *names) if (size := _number(env, name))]
    nodes = _number(env, "SLURM_STEP_NUM_NODES") if joined(env) else None
    return any(size < ranks for size in here) or (nodes or 1) > 1


_BIND = "DAGC_BIND"


def wanted_binding() -> str:
    """How ranks are to be placed (templates/runtime/dagc/binding.hpp); "": as their starter does."""
    return os.environ.get(_BIND, "")


def bind_ranks(where: str) -> None:
    """Place the ranks that this process starts, or is one of: `--bind`. Raises UsageError."""
    seat = re.compile(r"\d+@\d+")
    if where and where not in BINDINGS and not all(seat.fullmatch(part) for part in where.split(",")):
        refuse(
            UsageError(
                f"--bind {where}: not a placement",
                f"choose from {', '.join(BINDINGS)}, or list GPU@NODE for the ranks of a host: 0@0,1@1",
            )
        )
    if where:
        os.environ[_BIND] = where


def numbers(text: str) -> set[int]:
    """Those of a list of Linux: `0-3,8`."""
    ends = (part.split("-") for part in text.split(",") if part)
    return {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)}


def rank_among(ranks: int, groups: int = 1) -> int | None:
    """This command's rank among `ranks`, which are of so many groups; None if it was started alone.

    Raises UsageError (by `refuse`) if it was started as one of another number of ranks.
    """
    place = joined()
    if place is None:
        return None
    rank, size = place
    if size != ranks:
        if groups > 1:
            wanted = f"{groups} groups of {counted(ranks // groups, 'rank')} need {ranks}"
            refuse(
                UsageError(
                    f"{wanted}, but this command runs as one of {size}",
                    f"start it on {counted(ranks, 'rank')}, or alone: it then starts them",
                )
            )
        refuse(
            UsageError(
                f"{counted(ranks, 'rank is', 'ranks are')} needed, but this command runs as one of {size}",
                f"give -n {size} or no -n; or start it on {counted(ranks, 'rank')}, or alone: it then starts them",
            )
        )
    return rank


def refuse(error: DagcError) -> NoReturn:
    """Raise `error` on the first rank. The others exit silently, so that it is reported once.

    They exit with code 0: a starter ends all ranks as soon as one fails, and the first must still report.
    """
    if not is_first():
        raise SystemExit(0)
    raise error


def is_first() -> bool:
    """Whether this is the first rank, or a command that was started alone."""
    place = joined()
    return place is None or place[0] == 0

"""What a command does that mpiexec or srun has started as one of several ranks."""

from __future__ import annotations

from typing import NoReturn

from dagc.errors import DagcError, UsageError, counted
from dagc.run.mpi_env import joined

DEFAULT_RANKS = 4


def ranks_or_default(asked: int | None) -> int:
    """The number that was asked for, else of the ranks that this command is one of, else 4."""
    place = joined()
    return asked or (DEFAULT_RANKS if place is None else place[1])


def rank_among(ranks: int) -> int | None:
    """This command's rank among `ranks`, None where it was started alone.

    Raises UsageError where it was started as one of another number of ranks (`refuse`).
    """
    place = joined()
    if place is None:
        return None
    rank, size = place
    if size != ranks:
        refuse(
            UsageError(
                f"{counted(ranks, 'rank is', 'ranks are')} wanted, but this command was started as one of {size}",
                f"say -n {size}, or no -n; or start it on {counted(ranks, 'rank')}, or alone: it then starts them",
            )
        )
    return rank


def refuse(error: DagcError) -> NoReturn:
    """Raises `error` on the first rank; the others end silently, so that one tells it for all.

    They end with exit code 0: a starter ends all ranks as soon as one fails, and the first is still to speak.
    """
    if not is_first():
        raise SystemExit(0)
    raise error


def is_first() -> bool:
    """Whether this is the first rank, or a command that was started alone."""
    place = joined()
    return place is None or place[0] == 0

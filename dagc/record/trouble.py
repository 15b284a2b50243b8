"""What a recorded application does that no program of dagc does: said before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from dagc.base.errors import RunFailed, UsageError
from dagc.base.python import np
from dagc.record.log import Alloc, Event, Finalize, MessageCall, RankLog, Unsupported
from dagc.record.loop import Window, keys_of

_MANAGED = "allocate it with cudaMalloc, and copy with cudaMemcpy where the host uses it"
_HELP = {
    "MPI_Send_init": "use MPI_Isend and MPI_Irecv: the language's messages are persistent anyway",
    "MPI_Recv_init": "use MPI_Isend and MPI_Irecv: the language's messages are persistent anyway",
    "MPI_Win_create": "use messages: the language has no one-sided communication",
    "MPI_Win_allocate": "use messages: the language has no one-sided communication",
    "cudaMemcpyToSymbol": "pass what changes as an argument of the kernel, or set the variable before --from",
    "cudaStreamBeginCapture": "record the application without its graphs: dagc makes its own",
    "an invalid launch": "check the sizes of the grid and the block: the application runs without this kernel",
    "cudaSetDevice": "one GPU for each process: start a rank for each GPU",
}


def refuse(logs: Sequence[RankLog], found: Sequence[Window]) -> None:
    """Raises UsageError for what is not expressed within the rounds, RunFailed for a run without its end."""
    for log, window in zip(logs, found, strict=True):
        where = f" (rank {log.rank})" if len(logs) > 1 else ""
        if not log.ended:
            raise RunFailed(
                f"rank {log.rank} ended without its exit functions, after {len(log.events)} calls",
                "end it by exit or return",
            )
        for event in log.events[window.starts[0] : window.starts[-1]]:
            message, help = _refused(event)
            if message:
                raise UsageError(f"{event.at or 'unknown place'}: {message}{where}", help)
        for event in log.events:
            if isinstance(event, Alloc) and event.kind == "managed":
                raise UsageError(f"{event.at}: managed memory, whose copies are in no call{where}", _MANAGED)


def _refused(event: Event) -> tuple[str, str]:
    if event.thread and not isinstance(event, Finalize):
        return "a call from a second thread of the process", "record a version that calls CUDA and MPI from one thread"
    if isinstance(event, Alloc) and event.kind == "symbol":
        return f"{event.text.partition(',')[0]} is set in each round", _HELP["cudaMemcpyToSymbol"]
    if isinstance(event, Unsupported):
        call = event.call
        return f"{call} is not recorded", _HELP.get(call, "choose --from and --to without it, or replace it")
    if isinstance(event, MessageCall) and event.type == "derived":
        return "a message of a derived datatype", "pack it into a buffer of a basic type, with a kernel or cudaMemcpy2D"
    return "", ""


def differences(first: Sequence[RankLog], second: Sequence[RankLog], found: Sequence[Window], limit: int) -> None:
    """Raises UsageError if the second run made other calls up to the end of the windows, or has no contents."""
    if len(first) != len(second):
        raise UsageError(
            f"a first run had {len(first)} ranks, a second {len(second)}", "record a run that can be repeated"
        )
    for a, b, window in zip(first, second, found, strict=True):
        end = window.starts[-1]
        for one, other, event in zip_longest(keys_of(a)[:end], keys_of(b)[:end], a.events[:end]):
            if one != other:
                at = f"{event.at}: " if event is not None and event.at else ""
                raise UsageError(
                    f"{at}rank {a.rank} made another call in a second run: {_shown(one)}, then {_shown(other)}",
                    "record a run that makes the same calls each time: fixed seeds, numbers of steps, one thread",
                )
        if b.too_large:
            raise UsageError(
                f"the arrays of rank {b.rank} have {b.too_large} bytes, more than the {limit} of --bytes",
                "record a smaller problem, which is the same program, or raise --bytes",
            )


def compare(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    """Raises UsageError for data of two runs (`recorded_data`) that are not equal to the bit."""
    for key, values in one.items():
        if values.tobytes() != other[key].tobytes():
            when, rank, name = key.split(" ", 2)
            place = "before the rounds" if when == "before" else "after them"
            raise UsageError(
                f"rank {rank} had other values of {name} in another run, {place}",
                "give the verify of what depends on it a tolerance that allows this, and record without --twice; or fix"
                " the seeds and the order of sums",
            )


def _shown(key: Iterable[object] | None) -> str:
    return "none" if key is None else " ".join(str(word) for word in key)

"""Work that all ranks of one job need done once: writing, building and setting up, before each runs the program.

Under `mpiexec dagc compile --run` every rank is a whole dagc. They cannot talk through MPI, since their connection to
the starter belongs to the program that each of them runs afterwards; a locked file beside the output does instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from dagc.errors import DagcError
from dagc.run.mpi_env import joined

_STARTED = time.time()


def once_per_job(directory: str | os.PathLike[str], request: str, work: Callable[[], object]) -> bool:
    """Do `work`, which fills `directory`, unless another rank of this job has just done it; whether it was done here.

    `request` is everything that the result depends on (the texts, the choices). A process that is no rank just does
    the work. Ranks come one after another; a rank finds it done where the same request was finished after the rank
    itself began. One that comes late does it again, which harms nobody: no program of the job gets past MPI_Init
    before the last rank has started its own. Where the work fails, each rank does it and fails for itself.
    """
    if joined() is None:
        work()
        return True
    target = Path(os.path.realpath(directory))
    path = target.parent / f".{target.name}.dagc-lock"
    key = hashlib.sha256(request.encode()).hexdigest()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise DagcError(f"{path} cannot be written: {error.strerror or error}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if _is_done(file.read(), key):
            return False
        file.truncate(0)
        work()
        json.dump({"request": key, "finished": time.time()}, file)
    return True


def _is_done(text: str, key: str) -> bool:
    """Whether the lock's text says that this request was finished while this process was there."""
    try:
        content = json.loads(text)
        return bool(content["request"] == key and content["finished"] >= _STARTED)
    except (ValueError, TypeError, KeyError):
        return False

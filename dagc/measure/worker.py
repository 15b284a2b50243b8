"""A rank of the measuring service: `python -m dagc.measure.worker --socket PATH --ranks N`, started by
dagc.measure.service.

Rank 0 takes commands from the Unix socket of the searching process, one JSON object a line, and answers each with one.
When that process ends, for any reason, the ranks end too.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from dagc.base.errors import DagcError, MissingTool, counted
from dagc.measure.watchdog import FAULT

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from dagc.measure.executor import Executor


def main() -> int:
    """Serve until the stop command."""
    parser = argparse.ArgumentParser(prog="dagc.measure.worker")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    args = parser.parse_args()
    # Ctrl-C is handled by the searching process: it stops the ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        comm = _world(args.ranks)
    except DagcError as error:
        print(f"dagc: {error.message}\ndagc: help: {error.help}", file=sys.stderr)
        return error.exit_code
    # Record which rank died of what, for dagc.measure.service: starters name the signal of the first rank they notice,
    # which may be one that they ended themselves.
    with (args.socket.parent / f"{FAULT}{comm.Get_rank()}").open("w") as faults:
        faulthandler.enable(faults, all_threads=False)
        try:
            _serve(comm, args.socket)
        except Exception:
            _abort(comm)
        faulthandler.disable()
    return 0


def _world(ranks: int) -> Comm:
    from dagc.measure.runner import world  # loads numpy

    comm = world()
    if comm.Get_size() != ranks:
        raise MissingTool(
            f"mpi4py sees {counted(comm.Get_size(), 'rank')} where {ranks} were started:"
            " it uses another MPI than mpiexec",
            "install mpi4py for this MPI, or name the other one's mpicxx in DAGC_MPICXX",
        )
    return comm


def _serve(comm: Comm, path: Path) -> None:
    from dagc.measure.executor import STOP, Executor, serve, share  # loads numpy

    executor = Executor(comm)
    if comm.Get_rank() == 0:
        _commands(comm, executor, path)
        share(comm, STOP)
        executor.close()
    else:
        serve(comm, executor)


def _commands(comm: Comm, executor: Executor, path: Path) -> None:
    """Execute commands until the stop command, or until the other end is closed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with suppress(ConnectionError), connection.makefile("rw", encoding="utf-8") as lines:
            if _obey(comm, executor, lines):
                return
    # No process is left to clean up.
    for name in path.parent.glob("*"):
        name.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def _obey(comm: Comm, executor: Executor, lines: TextIO) -> bool:
    """Execute one command; returns whether it was the stop command. Raises ConnectionError if no process reads the
    answer."""
    from dagc.measure.executor import STOP, share  # loads numpy

    for line in lines:
        command = json.loads(line)
        if command["do"] == STOP["do"]:
            return True
        share(comm, command)
        answer = executor.run(command)
        lines.write(json.dumps({**answer, "id": command["id"]}) + "\n")
        lines.flush()
    return False


def _abort(comm: Comm) -> NoReturn:
    """An unexpected exception on one rank ends all of them: the others may wait for it."""
    traceback.print_exc()
    sys.stderr.flush()
    comm.Abort(5)
    raise SystemExit(5)


if __name__ == "__main__":
    sys.exit(main())

"""Runs a set-up in a forked process, so that one that crashes ends with a message, and the command with an exit code.

Only where nothing but a command of dagc runs (`dagc.base.signals.isolates`): a program that imports dagc may have
threads or a GPU, whose libraries do not work in a forked process.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeAlias

from dagc.base import children, signals
from dagc.base.children import forking
from dagc.base.errors import DagcError, UsageError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_POLL_SECONDS = 0.2  # a process that the set-up started may keep the connection open after a crash
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)

_exit_now = os._exit  # a set-up that calls os._exit raises
_TO_PARENT: list[Connection] = []  # in a forked process, one


def say(kind: str, text: str = "") -> None:
    """Tell the waiting process, if there is one: `file` and `what` of the code that runs now, the `directory` that is
    being filled, or that a rank is `done`."""
    for connection in _TO_PARENT:
        connection.send((kind, text))


Wait: TypeAlias = "Callable[[Callable[[], None] | None], Any]"


@contextmanager
def isolated(work: Callable[[], Any]) -> Iterator[Wait]:
    """Call `work` in a process that is forked now. Yields the function that waits for its end: its argument, if any, is
    called here whenever the process says `done`; it returns what `work` returns, raises what `work` raises, and
    UsageError if the process ended by itself. The process ends with the block.
    """
    from multiprocessing.connection import Pipe

    import numpy as np  # noqa: F401  # not in the child: another thread may be importing it at the fork

    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = Pipe(duplex=False)
    parent = os.getpid()
    said: dict[str, Any] = {}
    status: list[int] = []
    with ours, TemporaryFile("w+") as faults:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside the thread that draws the display
            with forking():
                child = os.fork()
        if child == 0:
            _work(work, theirs, faults, parent)
        theirs.close()

        def finish(done: Callable[[], None] | None) -> Any:
            status.append(_listen(ours, child, said, done))
            if "end" not in said:
                faults.seek(0)
                raise _ended(status[0], said, faults.read())
            if said["end"] is not None:
                raise _rebuilt(*said["end"])
            return said["result"]

        try:
            yield finish
        finally:
            if not status:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                _drain(ours, said)
            if "end" not in said and "directory" in said:
                shutil.rmtree(said["directory"], ignore_errors=True)


def _drain(connection: Connection, said: dict[str, Any]) -> None:
    """What the process said before it was killed."""
    with suppress(EOFError, OSError):
        while connection.poll():
            kind, value = connection.recv()
            said[kind] = value


def _work(work: Callable[[], Any], connection: Connection, faults: IO[str], parent: int) -> NoReturn:
    """The forked process."""
    import faulthandler

    failed: tuple[type[BaseException], Any, dict[str, Any]] | None = None
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signals.end_with_parent()
        if os.getppid() != parent:
            _exit_now(1)
        faulthandler.enable(faults, all_threads=False)
        _TO_PARENT[:] = [connection]
        connection.send(("result", work()))
    except BaseException as error:
        failed = type(error), error.args, dict(vars(error))
        if not isinstance(error, DagcError | OSError):
            import traceback

            failed = RuntimeError, ("".join(traceback.format_exception(error)),), {}
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(OSError):
        connection.send(("end", failed))
    _exit_now(0)


def _rebuilt(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An exception of the forked process; its initialiser may take other arguments than `args`."""
    if not issubclass(kind, DagcError):
        return kind(*args)
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


def _listen(connection: Connection, child: int, said: dict[str, Any], done: Callable[[], None] | None) -> int:
    """The status of the child at its end; fills `said` with the last of each kind that it said."""
    ended = status = 0
    while True:
        children.check()
        if connection.poll(0 if ended else _POLL_SECONDS):
            try:
                kind, value = connection.recv()
            except (EOFError, OSError):
                break
            said[kind] = value
            if kind == "end":
                break
            if kind == "done" and done is not None:
                done()
        elif ended:
            return status
        else:
            ended, status = os.waitpid(child, os.WNOHANG)
    return status if ended else os.waitpid(child, 0)[1]


def _ended(status: int | None, said: dict[str, Any], faults: str) -> BaseException:
    """The error for a process that ended by itself."""
    code = os.waitstatus_to_exitcode(status or 0)
    if code == -signal.SIGINT:
        return KeyboardInterrupt()
    file = Path(said.get("file", "set-up"))
    lines = (line for name, line in _FRAME.findall(faults) if Path(name) == file)
    place = ":".join([str(file), *list(lines)[:1]])
    how = f"terminated by {signals.named(-code)}" if code < 0 else f"its process ended with exit code {code}"
    killed = "give smaller sizes with -D, or free memory" if code == -signal.SIGKILL else ""
    return UsageError(
        f"{place}: {how} {said.get('what', '')}".rstrip(),
        killed or f"correct {file.name}, or compiled code that it calls",
    )

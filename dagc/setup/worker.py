"""A process that runs set-ups: `python -m dagc.setup.worker FD`. It reads jobs from a connection until its end.

A job is the arguments of `run_setup`; its answer is "", or the reason of the failure, in one line.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from multiprocessing.connection import Connection

from dagc.base.errors import DagcError
from dagc.setup.arrays import run_setup

_PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Serve the connection with this file descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # also if it dies while this one is stopped
    with Connection(descriptor) as connection:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            try:
                run_setup(**job)
                failure = ""
            except DagcError as error:
                failure = " ".join(str(error).split())
            connection.send(failure)


if __name__ == "__main__":
    main(int(sys.argv[1]))

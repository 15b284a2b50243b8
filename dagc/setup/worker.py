"""A process that runs set-ups: `python -m dagc.setup.worker FD`. It takes jobs from a connection until that ends.

Each job is the arguments of `run_setup`; each answer is "", or why it failed, in one line.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from dagc.base.errors import DagcError
from dagc.setup.arrays import run_setup


def main(descriptor: int) -> None:
    """Serve the connection of this number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
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

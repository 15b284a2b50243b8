"""Reports the signal that ended a rank started by the user's own mpiexec or srun.

The starters name a signal, but not the rank, or a wrong one, since they end all others at once. So the process that
they started stays as the parent of the working process, reports the signal that ended it, and ends alike:

    dagc: rank 1: terminated by SIGKILL (Killed; the system sends it when memory runs out)
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from contextlib import suppress

from dagc.base import signals

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 0.1  # the starter reads ranks' output and exit codes from different places


def work_in_child(rank: int) -> None:
    """Returns in a child of this process; this process waits for it, and ends alike.

    Must be called before MPI is initialised and before there are threads. Does nothing outside of Linux, where a child
    could outlive its parent.
    """
    if sys.platform != "linux":
        return
    parent = os.getpid()
    # Block signals until they can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child:
        _keep(child, rank)
    os.setpgid(0, 0)  # signals come through the parent, once
    _end_with(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)


def _end_with(parent: int) -> None:
    """From now on, this process ends with its parent."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _keep(child: int, rank: int) -> None:
    """Does not return."""
    passed: set[int] = set()

    def pass_on(number: int, _: object) -> None:
        passed.add(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    by = os.WTERMSIG(status)
    if by not in passed:
        os.write(2, f"dagc: rank {rank}: terminated by {signals.named(by)}\n".encode())
        time.sleep(_GRACE_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's is the one of interest
    if by != signal.SIGKILL:
        signal.signal(by, signal.SIG_DFL)
    os.kill(os.getpid(), by)
    os._exit(128 + by)

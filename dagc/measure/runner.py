"""The runner from Python: executes any traversal of a compiled program from a table, without recompiling.

One shared library per program, lowering and variants; the ranks are mpi4py's.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError, MissingTool, RunFailed
from dagc.base.python import np

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from dagc.ir.traversal import Row

_MESSAGE_BYTES = 4096


def world() -> Comm:
    """MPI_COMM_WORLD. Importing mpi4py initialises MPI. Raises MissingTool."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingTool(f"mpi4py cannot be loaded: {error}", "pip install 'dagc[mpi]'") from None
    return MPI.COMM_WORLD


def sleep_until(done: Callable[[], bool]) -> None:
    """Wait for another rank without a core: MPI itself polls, and what is waited for may be a compiler."""
    waited = 0
    while not done():
        waited += 1
        time.sleep(min(1e-3, waited * 1e-5))


@dataclass(frozen=True, slots=True)
class Table:
    """A traversal prepared by a runner; it belongs to that runner."""

    handle: int
    rows: int


class Runner:
    """An opened runner library on one rank; every method is collective over `comm`.

    Failures of CUDA or MPI end the process with one line and exit code 5, as in `bench`.
    """

    def __init__(self, library: Path, data: Path, comm: Comm, *, mpi_takes_device_pointers: bool = False) -> None:
        """`data`: the directory that `dagc setup` wrote. Raises RunFailed if the library does not load."""
        try:
            self._library = ctypes.CDLL(str(library.absolute()))
        except OSError as error:
            raise RunFailed(f"{library} cannot be loaded: {error}") from None
        for name in ("prepare", "position", "fetch", "ops", "longest"):
            getattr(self._library, f"dagc_runner_{name}").restype = ctypes.c_int64
        for name in ("measure", "error"):
            getattr(self._library, f"dagc_runner_{name}").restype = ctypes.c_double
        self._library.dagc_runner_op_name.restype = ctypes.c_char_p
        self._library.dagc_runner_open(os.fsencode(data), ctypes.c_int(comm.py2f()), int(mpi_takes_device_pointers))

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free everything. The object must not be used afterwards."""
        self._library.dagc_runner_close()

    def placement(self, ranks: int) -> list[str]:
        """Where each of so many ranks runs, as in the record of `bench`."""
        text = ctypes.create_string_buffer(ranks * _MESSAGE_BYTES)
        self._library.dagc_runner_placement(text, ctypes.c_int64(len(text)))
        return text.value.decode(errors="replace").splitlines()

    def prepare(self, rows: Sequence[Row]) -> Table:
        """The table of a traversal (`dagc.emit.rows`), checked against the library's ops; its regions are captured.

        Raises DagcError for a table that cannot be executed.
        """
        table = (ctypes.c_int32 * (3 * len(rows)))(*chain.from_iterable(rows))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = int(
            self._library.dagc_runner_prepare(table, ctypes.c_int64(len(rows)), message, ctypes.c_int64(_MESSAGE_BYTES))
        )
        if handle < 0:
            raise DagcError(message.value.decode(errors="replace"))
        return Table(handle, len(rows))

    def release(self, table: Table) -> None:
        """Free a table and its graphs."""
        self._library.dagc_runner_release(ctypes.c_int64(table.handle))

    def reset(self) -> None:
        """Restore carried arrays, poison outputs and scratch."""
        self._library.dagc_runner_reset()

    def execute(self, table: Table, iterations: int = 1) -> None:
        """Run a prepared table."""
        self._library.dagc_runner_execute(ctypes.c_int64(table.handle), ctypes.c_int64(iterations))

    def longest(self) -> int:
        """The maximal number of iterations between two resets; 0: no limit."""
        return int(self._library.dagc_runner_longest())

    def check(self, table: Table, poison: int = 0, runs: int = 1) -> str:
        """Reset with poison 0 or 1, run `runs` times, compare: "" if the results are right, else the error, on every
        rank.

        `runs` 0: as many as may follow each other, at most 3.
        """
        return self._error_text(
            self._library.dagc_runner_check, ctypes.c_int64(table.handle), ctypes.c_int(poison), ctypes.c_int64(runs)
        )

    def audit(self, table: Table) -> str:
        """One run that waits for each op: "" if every op changes only what its header declares and the results are
        right, else the error, with the op's name, on every rank."""
        return self._error_text(self._library.dagc_runner_audit, ctypes.c_int64(table.handle))

    def measure(self, table: Table, seconds: float = 0.01, guess: float = 0.0) -> tuple[float, int]:
        """(seconds per iteration, iterations) of one measurement of at least `seconds`; the maximum over the ranks.

        `guess`: approximate seconds per iteration, 0 if unknown; it saves calibration.
        """
        iterations = ctypes.c_int64(0)
        taken = self._library.dagc_runner_measure(
            ctypes.c_int64(table.handle), ctypes.c_double(seconds), ctypes.c_double(guess), ctypes.byref(iterations)
        )
        return float(taken), iterations.value

    def solve(self, table: Table) -> tuple[float, int, bool]:
        """(seconds, runs, whether the end was reached) of one repetition from the data as they were loaded until its
        end; the maximum over the ranks. Raises RunFailed if the program has no `until`."""
        function = getattr(self._library, "dagc_runner_solve", None)
        if function is None:
            raise RunFailed("the program has no `until`")
        function.restype = ctypes.c_double
        runs = ctypes.c_int64(0)
        taken = function(ctypes.c_int64(table.handle), ctypes.byref(runs))
        return float(taken), abs(runs.value), runs.value > 0

    def trace(self, table: Table) -> list[list[float]]:
        """One run, op by op, without capture. For each row when the CPU began and ended it, and when the GPU began and
        ended its op, in seconds from the start of the run; NaN if the GPU does nothing."""
        out = ((ctypes.c_double * 4) * table.rows)()
        self._library.dagc_runner_trace(ctypes.c_int64(table.handle), out)
        return [list(times) for times in out]

    def features(self) -> tuple[list[float], list[float]]:
        """The value of each feature that the library computes from its arrays, and the seconds that the computation
        took.

        Raises RunFailed if it computes none.
        """
        function = getattr(self._library, "dagc_runner_features", None)
        if function is None:
            raise RunFailed("the program computes no feature")
        function.restype = ctypes.c_int64
        count = int(function(None, None, ctypes.c_int64(0)))
        values, seconds = (ctypes.c_double * count)(), (ctypes.c_double * count)()
        function(values, seconds, ctypes.c_int64(count))
        return list(values), list(seconds)

    def feature_now(self) -> str:
        """The feature that is being computed, with its op, in words."""
        function = self._library.dagc_runner_feature_now
        function.restype = ctypes.c_char_p
        return str(function().decode())

    def preparations(self) -> dict[str, float]:
        """Seconds that `prepare` of each implementation took on this rank, with the allocation of its scratch, by
        "OP VARIANT", with all that it shares; 0 where it has not been chosen. Empty if the library has none."""
        count = getattr(self._library, "dagc_runner_preparations", None)
        if count is None:
            return {}
        count.restype, preparation = ctypes.c_int64, self._library.dagc_runner_preparation
        preparation.restype = ctypes.c_char_p
        out: dict[str, float] = {}
        seconds = ctypes.c_double()
        for which in range(count()):
            name = preparation(ctypes.c_int64(which), ctypes.byref(seconds))
            out[name.decode()] = out.get(name.decode(), 0.0) + seconds.value
        return out

    def position(self) -> int:
        """The current row, -1 if there is none. Callable from another thread, also while a call hangs."""
        return int(self._library.dagc_runner_position())

    def op_name(self, op: int) -> str:
        """Name of an op of the program. Raises KeyError."""
        if not 0 <= op < int(self._library.dagc_runner_ops()):
            raise KeyError(op)
        return bytes(self._library.dagc_runner_op_name(ctypes.c_int64(op))).decode()

    # ---- one op at a time: libraries with open launch parameters ---------------------------------------------

    def set(self, decision: str, value: int) -> None:
        """Set a launch parameter by its name in the `.dag` (`gemm.bx`). Raises KeyError if it is not open."""
        if self._library.dagc_runner_set(decision.encode(), ctypes.c_int64(value)):
            raise KeyError(decision)

    def issue(self, op: int, number: int = 1) -> str:
        """Issue an op `number` times in a row under the current parameters, and wait: "" or the reason why it does not
        run."""
        return self._error_text(self._library.dagc_runner_issue, ctypes.c_int64(op), ctypes.c_int64(number))

    def keep(self, op: int) -> str:
        """Issue an op as `issue` does, and save its inputs and results for `again`."""
        return self._error_text(self._library.dagc_runner_keep, ctypes.c_int64(op))

    def again(self, op: int, rtol: float, atol: float = 0.0, differing: Sequence[str] = ()) -> str:
        """Issue the op of `keep` from the same data: "" if the results agree, else the error.

        They agree if max|got - kept| <= `atol` + `rtol` * max|kept|, array by array, without those named `differing`.
        """
        for name in differing:
            self._library.dagc_runner_may_differ(name.encode())
        tolerance = ctypes.c_double(rtol), ctypes.c_double(atol)
        return self._error_text(self._library.dagc_runner_again, ctypes.c_int64(op), *tolerance)

    def restore(self, op: int) -> None:
        """Restore the data from before the op of `keep`."""
        self._library.dagc_runner_restore(ctypes.c_int64(op))

    def time(
        self,
        op: int,
        *,
        relative: float,
        seconds: float,
        fewest: int,
        most: int,
        flush: int,
        transfers: bool = False,
    ) -> list[float]:
        """Seconds of each of `fewest` to `most` launches of an op, event to event, in order.

        Ends when the median's 95 % interval is within +-`relative` of it, or after `seconds`; by the clock of the host
        after four times as many, while there are fewer than `fewest`. `flush` bytes are
        written before each launch (0: none), so that caches up to that size contain none of the op's data. `transfers`:
        by the clock of the host, from data on the host to results on the host, for an op that may run on either side.
        """
        out = (ctypes.c_double * max(most, fewest, 1))()
        self._library.dagc_runner_time.restype = ctypes.c_int64
        n = self._library.dagc_runner_time(
            ctypes.c_int64(op), ctypes.c_double(relative), ctypes.c_double(seconds), ctypes.c_int32(fewest),
            ctypes.c_int32(most), ctypes.c_int64(flush), ctypes.c_int32(transfers),
            out,
        )  # fmt: skip
        return out[: int(n)]

    def verify(self) -> str:
        """After one run: "" if all ranks have the right results, else the error."""
        return self._error_text(self._library.dagc_runner_verify)

    def error(self) -> float:
        """The largest error of a result of this rank since the last call, of those that `check`, `audit` or `verify`
        compared with a reference: max|result - reference| / max|reference| of an array, at least the precision of its
        elements; 0 of whole numbers."""
        return float(self._library.dagc_runner_error())

    def first(self, name: str) -> float:
        """The first element of an array of this rank; NaN if there is none."""
        self._library.dagc_runner_first.restype = ctypes.c_double
        return float(self._library.dagc_runner_first(name.encode()))

    def fetch(self, name: str, dtype: Any) -> np.ndarray[Any, Any]:
        """This rank's copy of an array, flat. Raises KeyError if there is none of that name."""
        size = self._library.dagc_runner_fetch(name.encode(), None, ctypes.c_int64(-1))
        if size < 0:
            raise KeyError(name)
        out = np.empty(size // np.dtype(dtype).itemsize, dtype)
        self._library.dagc_runner_fetch(name.encode(), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(size))
        return out

    @staticmethod
    def _error_text(function: Any, *args: Any) -> str:
        """The message of a function that returned 1 for failure."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = function(*args, message, ctypes.c_int64(_MESSAGE_BYTES))
        return message.value.decode(errors="replace") if failed else ""

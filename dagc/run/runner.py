"""The runner from Python: executes any traversal of a compiled program from a table, without a compiler in between.

One shared library per program, lowering and variants; the ranks are mpi4py's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from dagc.errors import DagcError, MissingTool, RunFailed

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Row = tuple[int, int, int]  # dagc.emit.table
_MESSAGE_BYTES = 4096


def world() -> Comm:
    """MPI_COMM_WORLD. Importing mpi4py initialises MPI. Raises MissingTool."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingTool(f"mpi4py does not load: {error}", "pip install 'dagc[mpi]'") from None
    return MPI.COMM_WORLD


class Runner:
    """An opened runner library on one rank; every method is collective over `comm`.

    Failures of CUDA or MPI end the process with one line and exit code 5, as in `bench`.
    """

    def __init__(self, library: Path, data: Path, comm: Comm, *, mpi_takes_device_pointers: bool = False) -> None:
        """`data`: the folder that `dagc setup` wrote. Raises RunFailed where the library does not load."""
        try:
            self._library = ctypes.CDLL(str(library.absolute()))
        except OSError as error:
            raise RunFailed(f"{library} does not load: {error}") from None
        self._library.dagc_runner_time.restype = ctypes.c_double
        self._library.dagc_runner_fetch.restype = ctypes.c_int64
        self._library.dagc_runner_open(str(data).encode(), ctypes.c_int(comm.py2f()), int(mpi_takes_device_pointers))

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free everything. The object is of no use afterwards."""
        self._library.dagc_runner_close()

    def prepare(self, rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.int32]]:
        """The table of a traversal, shape (n, 3), checked against the library's ops. Raises DagcError."""
        table = np.ascontiguousarray(rows, dtype=np.int32).reshape(-1, 3)
        wrong = self._said(self._library.dagc_runner_prepare, self._pointer(table), ctypes.c_int64(len(table)))
        if wrong:
            raise DagcError(wrong)
        return table

    def reset(self) -> None:
        """Restore inputs, poison outputs and scratch."""
        self._library.dagc_runner_reset()

    def execute(self, table: np.ndarray[Any, np.dtype[np.int32]], iterations: int = 1) -> None:
        """Run a prepared table."""
        self._library.dagc_runner_execute(self._pointer(table), ctypes.c_int64(len(table)), ctypes.c_int64(iterations))

    def time(self, table: np.ndarray[Any, np.dtype[np.int32]], seconds: float = 0.01) -> float:
        """Seconds per iteration of one measurement of at least `seconds`, maximum over the ranks."""
        n = ctypes.c_int64(len(table))
        return float(self._library.dagc_runner_time(self._pointer(table), n, ctypes.c_double(seconds)))

    def verify(self) -> str:
        """After one run: "" where all ranks have the right results, else what is wrong."""
        return self._said(self._library.dagc_runner_verify)

    def fetch(self, name: str, dtype: Any) -> np.ndarray[Any, Any]:
        """This rank's copy of an array, flat. Raises KeyError where there is none of that name."""
        size = self._library.dagc_runner_fetch(name.encode(), None, ctypes.c_int64(-1))
        if size < 0:
            raise KeyError(name)
        out = np.empty(size // np.dtype(dtype).itemsize, dtype)
        self._library.dagc_runner_fetch(name.encode(), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(size))
        return out

    @staticmethod
    def _pointer(table: np.ndarray[Any, np.dtype[np.int32]]) -> Any:
        return table.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))

    @staticmethod
    def _said(function: Any, *args: Any) -> str:
        """What a function that returns 1 on failure wrote into its message."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = function(*args, message, ctypes.c_int64(_MESSAGE_BYTES))
        return message.value.decode(errors="replace") if failed else ""

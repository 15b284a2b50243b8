"""One writer at a time: a lock that ends with the process that holds it, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from dagc.errors import UsageError


class WriterLock:
    """Holds `PATH-lock`. Not a lock on the results file itself: SQLite's own locks there must not be disturbed."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where another process writes to `path`."""
        self._name = Path(f"{path}-lock")
        self._file: int | None = None
        while self._file is None:
            self._file = self._take(path)

    def _take(self, path: Path) -> int | None:
        """The locked file, or None where its holder removed it in this moment."""
        try:
            file = os.open(self._name, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(f"{self._name}: {error.strerror}", "choose a place that can be written to") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode(errors="replace").strip()
            os.close(file)
            raise UsageError(
                f"{path}: another dagc writes to it" + (f" (process {holder})" if holder else ""),
                "wait for its end, or write to another file",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                os.close(file)
                raise
            # A file system without locks: better no protection than no results.
        try:
            same = os.path.samestat(os.fstat(file), os.stat(self._name))
        except FileNotFoundError:
            same = False
        if not same:
            os.close(file)
            return None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        return file

    @property
    def held(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        """May be called twice."""
        if self._file is None:
            return
        self._name.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

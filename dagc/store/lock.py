"""One writer at a time: a lock that ends with its process, in whatever way that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from pathlib import Path

from dagc.base.errors import UsageError

# Follow no link, truncate nothing, and do not block on a pipe or terminal.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LENGTH = 20  # bytes of a lock file: a process ID and spaces
_CONTENT = re.compile(rb"([0-9]+ *\n)?")


class WriterLock:
    """Holds `PATH-lock`. The results file itself is not locked: SQLite's own locks there must not be disturbed."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if another process writes to `path`."""
        self._name = Path(f"{path}-lock")
        self._file: int | None = None
        while self._file is None:
            self._file = self._take(path)

    def _take(self, path: Path) -> int | None:
        """The locked file, or None if its holder removed it just now."""
        try:
            file = os.open(self._name, _FLAGS, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a symbolic link, a directory, a socket
                raise self._foreign() from None
            raise UsageError(f"{self._name}: {error.strerror}", "choose a place that can be written to") from None
        try:
            self._check(file)
            self._lock(file, path)
            if not self._is_there(file):
                os.close(file)
                return None
            # Overwrites an earlier holder's text of the same length; nothing is truncated.
            os.pwrite(file, f"{os.getpid():<{_LENGTH - 1}}\n".encode(), 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def _lock(self, file: int, path: Path) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, _LENGTH).decode(errors="replace").strip()
            raise UsageError(
                f"{path}: another dagc writes to it" + (f" (process {holder})" if holder else ""),
                "wait until it ends, or write to another file",
            ) from None
        except OSError as error:
            # A file system without locks: better no protection than no results.
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def _check(self, file: int) -> None:
        """Write only to an empty file, or one with a process ID: any other content is not dagc's."""
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LENGTH or status.st_nlink > 1:
            raise self._foreign()
        if not _CONTENT.fullmatch(os.pread(file, _LENGTH, 0)):
            raise self._foreign()

    def _is_there(self, file: int) -> bool:
        """Whether the path still names the open file."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._name))
        except FileNotFoundError:
            return False

    def _foreign(self) -> UsageError:
        return UsageError(
            f"{self._name} is not a lock file of dagc", "remove it, or choose another name for the results file"
        )

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

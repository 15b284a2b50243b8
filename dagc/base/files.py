"""Atomic writing of results: after Ctrl-C, or on a full disk, the old content is still there."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory, gettempdir, mkdtemp

from dagc.base.errors import UsageError, not_written
from dagc.base.source import read_file

MARK = ".dagc-output"
"""The file, in each directory that dagc wrote, that lists the entries dagc wrote, one a line. It is written last."""


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise not_written(path, error) from error


def write_text_atomic(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file, atomically: it has its old content or all of the new. Raises DagcError with the path."""
    write_bytes_atomic(path, text.encode())


def refuse_to_replace(path: str | os.PathLike[str], begin: bytes, what: str) -> None:
    """Raises UsageError if there is a file that is not `what`, which begins with `begin`, in any case of letters. An
    empty one is no hindrance, nor is one that cannot be read."""
    try:
        start = b""
        if Path(path).is_file():
            with open(path, "rb") as file:
                start = file.read(len(begin))
    except OSError:
        return
    if start and start.lower() != begin.lower():
        raise UsageError(f"{os.fspath(path)} exists and is not {what}", "give another file to -o, or remove it")


def write_bytes_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """`write_text_atomic` for bytes. The directory must exist. Links are followed, and permissions are kept.

    Anything that is not a regular file, such as a pipe or /dev/stdout, is written to rather than replaced.
    """
    target = Path(os.path.realpath(path))
    with _errors_name(Path(path)):
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            with open(path, "wb") as device:
                device.write(content)
            return
        scratch: str | None = None
        try:
            with NamedTemporaryFile(prefix=f".{target.name}.", dir=target.parent, delete=False) as file:
                scratch = file.name
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(scratch, _mode(target))
            os.replace(scratch, target)
            scratch = None
        finally:
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)


def _mode(target: Path) -> int:
    """The permissions of the file to replace, or those that the umask gives."""
    try:
        return target.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def check_new_file(path: Path, force: bool) -> None:
    """Raises UsageError for a file that cannot be written to, or that exists, unless `force` is set."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no directory", "create it")
    if path.is_dir():
        raise UsageError(f"{path} is a directory", "give the name of a file")
    if path.exists() and not force:
        raise UsageError(f"{path}: it exists already", "choose another name, or replace it with --force")


@contextmanager
def output_directory(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """A directory to fill. It becomes `path` if the block succeeds, and is removed if it does not.

    If dagc wrote the existing `path`, the new entries replace its old ones, and files that the user put there
    stay. A directory with other content is refused (UsageError) unless `force` is set; even then only entries of the
    same name are replaced. The mark is missing while entries are exchanged, so an interrupted exchange is detected.
    Raises DagcError with the path if something cannot be written.
    """
    target = Path(os.path.realpath(path))
    _check_replaceable(target, Path(path), force)
    fresh = not target.exists()
    with _errors_name(Path(path)):
        target.parent.mkdir(parents=True, exist_ok=True)
        # On the same file system as the result, so that only renaming remains at the end.
        scratch = Path(mkdtemp(prefix=".dagc-new-", dir=target.parent if fresh else target))
    try:
        with _errors_name(Path(path)):
            yield scratch
            entries = sorted(entry.name for entry in scratch.iterdir())
            write_text_atomic(scratch / MARK, "".join(f"{name}\n" for name in entries))
            if fresh:
                _open_to_umask(scratch)
                scratch.rename(target)
            else:
                _exchange(scratch, target, entries)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def claim(path: str | os.PathLike[str]) -> None:
    """Record that dagc wrote an entry added to an output directory later (a built program).

    The entry is replaced with the others when the directory is written again.

    Does nothing outside of an output directory.
    """
    entry = Path(os.path.realpath(path))
    names = _marked(entry.parent)
    if names is not None and entry.name not in names:
        write_text_atomic(entry.parent / MARK, "".join(f"{name}\n" for name in [*names, entry.name]))


def _marked(folder: Path) -> list[str] | None:
    """The names in the mark of an output directory, or None without one. A link is not accepted as a mark.

    Raises DagcError where the mark cannot be read.
    """
    if not is_output(folder):
        return None
    with _errors_name(folder / MARK):
        # dagc writes no names that are not UTF-8.
        return read_file(folder / MARK, regular=True).decode("utf-8", "replace").splitlines()


def is_output(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a complete directory that dagc wrote."""
    mark = Path(path) / MARK
    return mark.is_file() and not mark.is_symlink()


def _check_replaceable(target: Path, shown: Path, force: bool) -> None:
    if not target.exists() or (force and target.is_dir()):
        return
    if not target.is_dir():
        raise UsageError(f"{shown} is a file; a directory is expected", "choose another name")
    with _errors_name(shown):
        empty = not any(not entry.name.startswith(".dagc-new-") for entry in target.iterdir())
    if not empty and not is_output(target):
        help = "choose another directory, or replace with --force"
        raise UsageError(f"{shown} contains files that dagc did not write", help)


def _open_to_umask(directory: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    directory.chmod(0o777 & ~mask)


def _exchange(scratch: Path, target: Path, entries: list[str]) -> None:
    mark = target / MARK
    old = _marked(target) or []
    _remove(mark)
    # Anyone can edit the list: only names of entries of this directory are removed, so no path can lead elsewhere.
    for entry in list(target.iterdir()):
        if entry.name in old or entry.name in entries:
            _remove(entry)
    for name in entries:
        (scratch / name).rename(target / name)
    (scratch / MARK).rename(mark)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


_ALIVE = ".dagc-alive"


@contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """A temporary directory, removed with the block. Directories of the same prefix left by killed processes are
    removed too.

    Each process holds a lock in its directory for as long as it lives, on any machine.
    """
    _remove_abandoned(Path(gettempdir()), prefix)
    with TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as created:
        folder = Path(created)
        with (folder / f"{_ALIVE}-new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / f"{_ALIVE}-new").rename(folder / _ALIVE)  # whoever sees it, sees it locked
            yield folder


def _remove_abandoned(where: Path, prefix: str) -> None:
    for folder in where.glob(f"{prefix}*"):
        with suppress(OSError):  # another process may remove it too
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _ALIVE, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


# ---- results kept between runs ----

_DIGEST = hashlib.sha256().digest_size


def entry_directory(name: str) -> Path | None:
    """`$DAGC_CACHE/name`, else `$XDG_CACHE_HOME/dagc/name`, else `~/.cache/dagc/name`; created if it does not exist.

    Only its user may write to it. None if it cannot be written, or belongs to another user.
    """
    chosen = os.environ.get("DAGC_CACHE")
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        path = Path(chosen) if chosen else Path(home) / "dagc"
        (path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (path, path / name):
            if folder.lstat().st_uid != os.getuid():  # also a link that another user has made
                return None
        (path / name).chmod(0o700)
    except (OSError, RuntimeError):
        return None
    return (path / name).absolute() if os.access(path / name, os.W_OK) else None


def load_entry(entry: Path, largest: int) -> bytes | None:
    """The content that `store_entry` wrote; None if there is no entry, if it is damaged, or if another user may have
    written it."""
    try:
        status = entry.lstat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        content = read_file(entry, largest=largest, regular=True)
    except OSError:
        return None
    return content[_DIGEST:] if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST] else None


def store_entry(entry: Path, content: bytes, most: int | None = None) -> None:
    """Write an entry with its digest: readers see all of it or nothing. An entry that cannot be written is dropped.
    `most`: the number of entries to keep in the directory, the newest ones (None: all)."""
    with suppress(OSError), TemporaryDirectory(prefix=".dagc-build-", dir=entry.parent) as scratch:
        file = Path(scratch, "entry")
        file.touch(mode=0o600)
        file.write_bytes(hashlib.sha256(content).digest() + content)
        file.replace(entry)
    if most is None:
        return
    with suppress(OSError):
        for old in sorted(entry.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-most]:
            old.unlink()

"""A small cache on disk for the parser's tables, which take longer to build than any program takes to parse.

One file per key in the user's own cache folder. A file that cannot be read, that is damaged, or that another
user could have written counts as absent; a file that cannot be written is not an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

_DIGEST = 32


def folder() -> Path:
    """`$XDG_CACHE_HOME/dagc`, or the usual place of the platform."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "dagc"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/dagc").expanduser()
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "dagc"
    return Path("~/.cache/dagc").expanduser()


def _private(status: os.stat_result) -> bool:
    """Whether only this user can have written it (no such notion on Windows)."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def load(key: str) -> bytes | None:
    """The bytes stored under `key`, None where there are none that can be trusted."""
    try:
        place = folder()
        if not _private(place.stat()):
            return None
        with open(place / key, "rb") as f:
            if not _private(os.fstat(f.fileno())):
                return None
            digest, payload = f.read(_DIGEST), f.read()
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return payload if hashlib.sha256(payload).digest() == digest else None


def store(key: str, payload: bytes) -> None:
    """Keep `payload` under `key`; readers see the whole file or none."""
    temporary = ""
    try:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(place.stat()):
            return
        handle, temporary = tempfile.mkstemp(dir=place, prefix=key + ".")
        with os.fdopen(handle, "wb") as f:
            f.write(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, place / key)
    except (OSError, RuntimeError):
        if temporary:
            Path(temporary).unlink(missing_ok=True)

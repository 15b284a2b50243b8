"""A small cache on disk for the parser's tables, which take longer to build than any program takes to parse.

One file per key, in a folder of the user's own: `$DAGC_CACHE/parser`, else `$XDG_CACHE_HOME/dagc/parser`, else
`~/.cache/dagc/parser`. What cannot be read, is damaged, or could have been written by another user counts as
absent; what cannot be written is not an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

_DIGEST = 32
_KEEP = 4  # tables of older grammars and parser versions


def folder() -> Path:
    """Where the tables are. Raises RuntimeError where the user has no home."""
    chosen = os.environ.get("DAGC_CACHE")
    if chosen:
        return Path(chosen) / "parser"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dagc" / "parser"


def load_tables(key: str) -> bytes | None:
    """The bytes stored under `key`, None where there are none that can be trusted."""
    try:
        place = folder()
        if not _private(place.stat()):
            return None
        with open(place / key, "rb") as f:
            if not _private(os.fstat(f.fileno())):
                return None
            digest, payload = f.read(_DIGEST), f.read()
    except (OSError, RuntimeError):
        return None
    return payload if hashlib.sha256(payload).digest() == digest else None


def store_tables(key: str, payload: bytes) -> None:
    """Keep `payload` under `key`; readers see the whole file or none."""
    temporary = ""
    try:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(place.stat()):
            return
        handle, temporary = tempfile.mkstemp(dir=place, prefix=f".{key}.")
        with os.fdopen(handle, "wb") as f:
            f.write(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, place / key)
        temporary = ""
        _prune(place)
    except (OSError, RuntimeError):
        pass
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _private(status: os.stat_result) -> bool:
    """Whether only this user can have written it (no such notion on Windows)."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _prune(place: Path) -> None:
    """Remove all but the newest few."""
    for old in sorted(place.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[_KEEP:]:
        old.unlink(missing_ok=True)

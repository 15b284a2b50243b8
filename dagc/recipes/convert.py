"""`dagc convert`: a file of an older dagc -> a file that this one reads."""

from __future__ import annotations

from pathlib import Path


def convert(old: str | Path, new: str | Path) -> str:
    """Write a results or tuned file of schema 1 in the present schema into the new file `new`; `old` stays. Returns the
    text to print. Raises UsageError."""
    from dagc.store.convert import convert as convert_file  # loads msgspec, sqlite3

    convert_file(old, new)
    return f"{new}: {old} in the present schema\n"

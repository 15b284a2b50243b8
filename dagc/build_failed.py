"""Where the files of a build that failed are found afterwards, so that the command which repeats it works.

Most are built where the user asked for them to be written. Those in a temporary folder of dagc, which is gone when dagc
ends, are copied into `failed/` of the cache; the last few of them are kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

KEPT = 8
TEMPORARY = "dagc-"  # with this begin the names of dagc's folders among the temporary ones


def place_of_failure(directory: Path, files: Iterable[Path], name: str, cache: Path | None) -> tuple[Path, str]:
    """The folder in which the compiler's command can be repeated, and a remark on it ("" where it is `directory`).

    `files`: what the compiler reads; `name`: stays the same for the same failure; `cache`: None where there is none.
    """
    if not _is_temporary(directory):
        return directory, ""
    if cache is None:
        return directory, "this folder is gone when dagc ends; where the cache can be written (DAGC_CACHE), it is kept"
    kept = cache.parent / "failed" / name
    try:
        for file in files:
            if file.is_relative_to(directory):
                copy = kept / file.relative_to(directory)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
        os.utime(kept)
        _drop_oldest(kept.parent)
    except OSError as error:
        return directory, f"this folder is gone when dagc ends; it could not be kept: {error.strerror or error}"
    return kept, f"the last {KEPT} builds that failed are kept there"


def _is_temporary(directory: Path) -> bool:
    top = Path(tempfile.gettempdir()).absolute()
    below = directory.relative_to(top).parts if directory.is_relative_to(top) else ()
    return bool(below) and below[0].startswith(TEMPORARY)


def _drop_oldest(folder: Path) -> None:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[:-KEPT]:
        shutil.rmtree(entry, ignore_errors=True)

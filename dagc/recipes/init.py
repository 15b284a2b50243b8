"""`dagc init`: a directory with a program that compiles and runs at once, or with a sample."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from dagc.base.errors import UsageError, not_written
from dagc.base.resources import files_below, resource
from dagc.cuda.lexer import KEYWORDS, is_reserved
from dagc.lang.syntax import RESERVED

_LONGEST = 64
_PLACEHOLDER = "PROGRAM"  # placeholder in the names and texts of templates/init


def init(path: str | Path, sample: str | None = None) -> tuple[Path, ...]:
    """Write the directory `path`, whose last part is the name of the program. Returns its files.

    With `sample`, a copy of one of `samples()`, whose files keep their names. Raises UsageError, without any change,
    for a name that cannot be used and for a directory that exists or cannot be created.
    """
    folder = Path(path)
    if sample is None:
        name = checked_name(folder.name)
        contents = {
            file.replace(_PLACEHOLDER, name): text.replace(_PLACEHOLDER.encode(), name.encode())
            for file, text in files_below(resource("templates/init")).items()
        }
    else:
        contents = _sample(sample)
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{path}: it exists already", "choose another name; nothing was changed") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {why}", "give a name in a directory that exists and can be written") from None
    try:
        for file, content in contents.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise not_written(folder, error) from error
        raise
    return tuple(folder / file for file in sorted(contents))


def samples() -> tuple[str, ...]:
    """The names of the samples."""
    return tuple(sorted(folder.name for folder in resource("samples").iterdir() if any(folder.glob("*.dag"))))


def _sample(name: str) -> dict[str, bytes]:
    """The files of a sample by their paths in its directory. Raises UsageError."""
    if name not in samples():
        raise UsageError(f"unknown sample `{name}`", f"choose from {', '.join(samples())}")
    return files_below(resource("samples") / name)


def checked_name(name: str) -> str:
    """The name of a program, a Python module and C++ files. Raises UsageError."""
    help = "use letters, digits and _, a letter first, for example my_solver"
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or len(name) > _LONGEST:
        shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
        raise UsageError(f"`{shown}` cannot be the name of a program", help)
    if name in RESERVED or name in KEYWORDS or is_reserved(name):
        raise UsageError(f"`{name}` is a reserved word", f"choose another name, for example {name}_1")
    if name in sys.stdlib_module_names or name == "numpy":
        raise UsageError(f"{name}.py would hide Python's module {name}", f"choose another name, for example my_{name}")
    return name

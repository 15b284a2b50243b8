"""`dagc init`: a folder with a program that compiles and runs at once."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.resources import resource
from dagc.cuda.words import KEYWORDS, is_reserved
from dagc.lang.syntax import RESERVED

_LONGEST = 64
_PLACEHOLDER = "PROGRAM"  # in the names and the texts of templates/init


def init(path: str | Path) -> tuple[Path, ...]:
    """Write the folder `path`, whose last part is the name of the program. Returns its files.

    Raises UsageError for a name that cannot be used, and for a folder that exists or cannot be made; nothing is changed
    then.
    """
    folder = Path(path)
    name = _checked(folder.name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{path}: it exists already", "choose another name; nothing was changed") from None
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", "give a name in a folder that exists and can be written"
        ) from None
    try:
        for template in resource("templates/init").iterdir():
            text = template.read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
            (folder / template.name.replace(_PLACEHOLDER, name)).write_text(text, encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return tuple(sorted(folder.iterdir()))


def _checked(name: str) -> str:
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

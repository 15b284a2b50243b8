"""The version and the data files of the package: the grammar, the templates, the samples."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.3.0"


_PACKAGE = Path(__file__).resolve().parents[1]
IMPORTED_FROM = str(_PACKAGE.parent)  # PYTHONPATH of a process that imports this dagc


def resource(path: str) -> Path:
    """Path of a data file or directory, for example `resource("grammar/dag.lark")` or `resource("templates")`.

    A wheel carries them in `dagc/_data`; a checkout has them beside the package.
    Raises FileNotFoundError if neither has it: the installation is broken.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        candidate = root / path
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"dagc's data file {path!r} is missing: the installation is incomplete")


def files_below(directory: Path) -> dict[str, bytes]:
    """The contents of the files in a directory and below it, by their paths in it, without what Python compiled there:
    pip compiles the .py files of data directories too."""
    files = (file for file in directory.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(directory).as_posix(): file.read_bytes() for file in files}


def names_in(directory: str) -> tuple[str, ...]:
    """The names that the modules of a directory of the package define, sorted: `mcts-min` for `mcts_min.py`.

    Nothing is imported. Modules whose names begin with `_` define none.
    """
    stems = (p.stem for p in (_PACKAGE / directory).glob("*.py") if not p.stem.startswith("_"))
    return tuple(sorted(name.replace("_", "-") for name in stems))

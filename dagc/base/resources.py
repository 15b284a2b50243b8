"""Where the data files of the package are: the grammar and the templates."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
IMPORTED_FROM = str(_PACKAGE.parent)  # what PYTHONPATH of a process needs that imports this dagc


def resource(path: str) -> Path:
    """Path of a data file or folder, for example `resource("grammar/dag.lark")` or `resource("templates")`.

    A wheel carries them in `dagc/_data`; a checkout has them beside the package.
    Raises FileNotFoundError where neither has it: the installation is broken.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        candidate = root / path
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"dagc's data file {path!r} is missing: the installation is incomplete")

"""`dagc merge`: files of one program -> one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.recipes.export import exported
from dagc.store.results import Results

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned


def merge(paths: Sequence[str | Path], out: str | Path, other_machine: bool = False) -> str:
    """Merge results files. Returns the text to print. Raises UsageError."""
    from dagc.store.merge import merge as merge_files  # loads msgspec, sqlite3

    merge_files(paths, out, other_machine=other_machine, join=_join)
    merged = exported(out)
    runs = counted(len(merged.runs), "run")
    if isinstance(merged, Results):
        return f"{out}: {counted(len(merged.implementations), 'implementation')} of {runs}\n"
    tests = len(merged.facts.tests)
    inputs = counted(len(merged.facts.inputs) - tests, "input")
    learned = "".join(f"  {op}: {c.selector.text if c.selector else c.method}\n" for op, c in merged.choosers.items())
    return f"{out}: {inputs} to learn from, {tests} to evaluate, of {runs}\n{learned}"


def _join(scratch: Path, files: Sequence[Tuned]) -> None:
    from dagc.study.merged import join  # only of tuned files

    join(scratch, files)

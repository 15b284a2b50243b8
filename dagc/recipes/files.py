"""`dagc export`: a file -> a table for other programs; `dagc merge`: files of one program -> one file; `dagc
convert`: a file of an older dagc -> a file that this one reads."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.files import write_text_atomic
from dagc.base.sample import TIME
from dagc.store.export import export_csv, export_parquet
from dagc.store.results import Results

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned


def export(path: str | Path, form: str, out: str | Path | None = None, objective: str | None = None) -> None:
    """Write the measurements as `csv` (without `out` to standard output) or `parquet`.

    Raises UsageError; MissingTool if Parquet is requested and pyarrow is missing; DagcError if `out` cannot be written
    (it then keeps its old content).
    """
    from dagc.store.records import load  # loads msgspec, sqlite3

    if out is not None and Path(out).exists() and Path(out).samefile(path):
        raise UsageError(f"{out} is the file that is exported", "give another file to -o")
    results = exported(path)
    compared = load(path, objective).objective if isinstance(results, Results) else TIME
    if form == "parquet":
        if out is None:
            raise UsageError("Parquet is not text, and would go to standard output", "give -o FILE.parquet")
        export_parquet(results, out, compared)
    elif out is None:
        export_csv(results, sys.stdout, compared)
    else:
        text = io.StringIO()
        export_csv(results, text, compared)
        write_text_atomic(out, text.getvalue())


def exported(path: str | Path) -> Results | Tuned:
    """The rows of a file: implementations, or tuned settings."""
    from dagc.store.records import load  # loads msgspec, sqlite3
    from dagc.store.tuned import load_tuned, was_tuned  # loads msgspec, sqlite3

    return load_tuned(path) if was_tuned(path) else load(path, "time")


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


def convert(old: str | Path, new: str | Path) -> str:
    """Write a results or tuned file of schema 1 in the present schema into the new file `new`; `old` stays. Returns the
    text to print. Raises UsageError."""
    from dagc.store.convert import convert as convert_file  # loads msgspec, sqlite3

    convert_file(old, new)
    return f"{new}: {old} in the present schema\n"

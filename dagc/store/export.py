"""Results as tables for other programs: `dagc export`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dagc.base.errors import MissingTool
from dagc.base.files import write_bytes_atomic
from dagc.base.sample import TIME, Objective
from dagc.store.results import Results

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned

COLUMNS = {
    "implementation": "int64", "configuration": "string", "traversal": "string", "number": "int64", "order": "int64",
    "seconds": "float64", "reference": "float64", "adjusted_seconds": "float64", "failure": "string",
}  # fmt: skip


def columns(results: Results, objective: Objective) -> dict[str, str]:
    """Name -> type of each column: COLUMNS, one for each metric except the time, and `objective` unless it is the
    time."""
    more = [*sorted(results.units.keys() - {"time"}), *([] if objective.is_time else ["objective"])]
    return COLUMNS | dict.fromkeys(more, "float64")


def table(results: Results, objective: Objective = TIME) -> Iterator[tuple[Any, ...]]:
    """One row for each measurement, and one for each implementation that failed before any; columns as in `columns`.

    Ordered by implementation, then as measured. Missing numbers are NaN or None; `adjusted_seconds` have drift divided
    out. `results`: loaded with the time as objective.
    """
    metrics = sorted(results.units.keys() - {"time"})
    for i in results.implementations:
        head = (int(i.id), i.configuration.text, i.traversal)
        taken = zip(i.samples, i.taken, i.times(results.reference), strict=True)
        for number, (m, place, adjusted) in enumerate(taken):
            values = {**m.metrics, "time": adjusted}
            more: list[float] = [m.metrics.get(name, math.nan) for name in metrics]
            if not objective.is_time:
                more.append(objective.value(values) if values.keys() >= {*objective.metrics} else math.nan)
            yield (*head, number, place.order, m.value, m.reference, adjusted, i.failure, *more)
        if not i.samples and i.failure:
            left = len(columns(results, objective)) - len(COLUMNS)
            yield (*head, None, None, math.nan, math.nan, math.nan, i.failure, *[math.nan] * left)


TUNED_COLUMNS = {
    "op": "string", "input": "string", "test": "bool", "setting": "string", "number": "int64", "seconds": "float64",
    "failure": "string",
}  # fmt: skip


def tuned_columns(tuned: Tuned) -> dict[str, str]:
    """Name -> type of each column: TUNED_COLUMNS, and one for each metric except the time."""
    return TUNED_COLUMNS | dict.fromkeys(
        sorted({name for _, sample in tuned.samples for name in sample.metrics}), "float64"
    )


def tuned_table(tuned: Tuned) -> Iterator[tuple[Any, ...]]:
    """One row for each timed launch of a tuned file, and one for each setting that failed; columns as in
    `tuned_columns`. Metrics are averages over the launches."""
    tests, names = tuned.facts.tests, list(tuned_columns(tuned))[len(TUNED_COLUMNS) :]
    for cell, sample in tuned.samples:
        head = (cell.site, cell.case.text, cell.case in tests, cell.choice.in_words)
        more = [sample.metrics.get(name, math.nan) for name in names]
        for number, seconds in enumerate(sample.times):
            yield (*head, number, seconds, sample.failure, *more)
        if not sample.times:
            yield (*head, None, math.nan, sample.failure, *more)


def export_csv(results: Results | Tuned, file: TextIO, objective: Objective = TIME) -> None:
    """Comma-separated values, with a header line; missing values are empty."""
    names, rows = _content(results, objective)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow("" if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in row)


def _content(results: Results | Tuned, objective: Objective) -> tuple[dict[str, str], Iterator[tuple[Any, ...]]]:
    if isinstance(results, Results):
        return columns(results, objective), table(results, objective)
    return tuned_columns(results), tuned_table(results)


def export_parquet(results: Results | Tuned, path: str | Path, objective: Objective = TIME) -> None:
    """A Parquet file with the same columns; missing values are null.

    Raises MissingTool without pyarrow, DagcError if `path` cannot be written: it then keeps its old content.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingTool("Parquet files need pyarrow", "pip install 'dagc[parquet]', or export CSV") from None
    types, measured = _content(results, objective)
    schema = pa.schema([(name, pa.bool_() if kind == "bool" else getattr(pa, kind)()) for name, kind in types.items()])
    rows = [
        {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in zip(types, row, strict=True)}
        for row in measured
    ]
    metadata = {"program": results.program.name, "program_hash": results.program.hash}
    out = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    content = io.BytesIO()
    parquet.write_table(out, content)
    write_bytes_atomic(path, content.getvalue())

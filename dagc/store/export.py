"""Results as tables for other programs: `dagc export`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dagc.base.errors import MissingTool
from dagc.base.files import write_bytes_atomic
from dagc.store.results import Results

COLUMNS = (
    "implementation", "configuration", "traversal", "number", "order", "seconds", "reference", "adjusted_seconds",
    "failure",
)  # fmt: skip


def table(results: Results) -> Iterator[tuple[int, str, str, int | None, int | None, float, float, float, str]]:
    """One row for each measurement, and one for each implementation that has none; columns as in COLUMNS.

    Ordered by implementation, then as measured. Seconds are NaN and numbers None where nothing was measured;
    `adjusted_seconds` have drift divided out.
    """
    for i in results.implementations:
        head = (int(i.id), i.configuration.text, i.traversal)
        for m, adjusted in zip(i.measurements, i.times(results.reference), strict=True):
            yield (*head, m.number, m.order, m.seconds, m.reference, adjusted, i.failure)
        if not i.measurements:
            yield (*head, None, None, math.nan, math.nan, math.nan, i.failure)


def export_csv(results: Results, file: TextIO) -> None:
    """Comma-separated values, with a line of column names; empty where there is no value."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in table(results):
        writer.writerow("" if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in row)


def export_parquet(results: Results, path: str | Path) -> None:
    """A Parquet file with the same columns, and null where there is no value.

    Raises MissingTool without pyarrow, DagcError where `path` cannot be written: it then has its old content.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingTool("Parquet files need pyarrow", "pip install 'dagc[parquet]', or export CSV") from None
    types = dict(zip(COLUMNS, ("int64", "string", "string", "int64", "int64", *["float64"] * 3, "string"), strict=True))
    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in types.items()])
    rows = [
        {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in zip(COLUMNS, row, strict=True)}
        for row in table(results)
    ]
    metadata = {"program": results.program.name, "program_hash": results.program.hash}
    out = pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))
    content = io.BytesIO()
    parquet.write_table(out, content)
    write_bytes_atomic(path, content.getvalue())

"""A results file as `Results`. Here drift is prepared to be divided out; docs/reference/results-files.md says how."""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from dagc.base.statistics import noise_floor
from dagc.store.results import Implementation, ImplementationId, Measurement, Results, Run, TraceSpan
from dagc.store.schema import (
    Line,
    Moment,
    Natural,
    Seconds,
    Whole,
    connect,
    number,
    read_configuration,
    read_program,
    read_runs,
    reading,
    row_as,
)

# So many timings of the drift reference before a measurement, and as many after it, say how fast the machine was.
AROUND = 3


def load(path: str | Path) -> Results:
    """Read a results file, also while a writer is at work.

    Measurements made for `dagc explain` are left out: they are of implementations that no search has chosen.
    Raises UsageError where the file is missing, damaged, no results file, or made by a newer dagc.
    """
    path = Path(path)
    connection = connect(path, write=False)
    try:
        with reading(path):
            connection.execute("BEGIN")  # one moment of the file
            return read(connection)
    finally:
        connection.close()


def read(connection: sqlite3.Connection) -> Results:
    """All of an open file."""
    runs = read_runs(connection)
    drifts = {run: Drift(rows) for run, rows in _drift(connection).items()}
    medians = [d.median for d in drifts.values()]
    reference = median(medians) if medians else math.nan
    measured = _measurements(connection, drifts, reference, {key: place for place, (key, _) in enumerate(runs)})
    rows = connection.execute(
        "SELECT i.id, c.decisions, i.traversal, i.failure FROM implementation i"
        " JOIN configuration c ON c.id = i.configuration ORDER BY i.id"
    )
    implementations = tuple(
        Implementation(
            ImplementationId(key), read_configuration(decisions), traversal, tuple(measured.get(key, ())), failure
        )
        for key, decisions, traversal, failure in (row_as(row, tuple[Whole, str, Line, Line]) for row in rows)
    )
    program, only_runs = read_program(connection), tuple(run for _, run in runs)
    noise = _noise(only_runs, implementations, reference)
    return Results(program, only_runs, implementations, reference, noise, _traces(connection))


class Drift:
    """Timings of the drift reference of one run, in the order taken.

    The reference of a measurement is the median of the three timings before it and the three after it, as far as there
    are so many: a single timing that something disturbed would shift all measurements around it, and by their order,
    not by chance.
    """

    def __init__(self, rows: Iterable[tuple[int, float]]) -> None:
        """`rows`: (ID of the measurement before it, seconds)."""
        rows = list(rows)
        self._after = [after for after, _ in rows]
        self._seconds = [seconds for _, seconds in rows]
        self.median = median(self._seconds)

    def at(self, measurement: int) -> float:
        """Seconds of the reference around the measurement of this ID."""
        place = bisect_right(self._after, measurement - 1)  # timings taken before it
        return median(self._seconds[max(0, place - AROUND) : place + AROUND])


def _drift(connection: sqlite3.Connection) -> dict[int, list[tuple[int, float]]]:
    """By run. Of a run that kept no timings, the references that were noted with its measurements."""
    timings: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row in connection.execute("SELECT run, after, seconds FROM drift ORDER BY id"):
        run, after, seconds = row_as(row, tuple[Whole, Natural, Seconds])
        timings[run].append((after, seconds))
    noted = connection.execute(
        "SELECT run, id - 1, reference FROM measurement WHERE reference IS NOT NULL"
        " AND run NOT IN (SELECT run FROM drift) ORDER BY id"
    )
    for run, after, seconds in (row_as(row, tuple[Whole, Whole, Seconds]) for row in noted):
        timings[run].append((after, seconds))
    return timings


def _measurements(
    connection: sqlite3.Connection, drifts: dict[int, Drift], reference: float, places: dict[int, int]
) -> dict[int, list[Measurement]]:
    """By implementation. References of each run are scaled to a median of `reference` (the file's).

    `places`: where each run is in the file, by its key.
    Runs may have had different drift references, so drift is divided out within a run only: what differs between two
    runs stays in the times.
    """
    measurements: dict[int, list[Measurement]] = defaultdict(list)
    rows = connection.execute(
        "SELECT id, run, implementation, seconds FROM measurement WHERE purpose != 'explain' ORDER BY id"
    )
    for order, row in enumerate(rows):
        key, run, implementation, seconds = row_as(row, tuple[Whole, Whole, Whole, Seconds])
        drift = drifts.get(run)
        around = math.nan if drift is None else drift.at(key) * reference / drift.median
        measurements[implementation].append(
            Measurement(seconds, around, len(measurements[implementation]), order, places[run])
        )
    return measurements


def _noise(runs: Iterable[Run], implementations: Iterable[Implementation], reference: float) -> float:
    """From repeated measurements where there are enough of them, else what the runs measured first."""
    repeated = noise_floor(i.times(reference) for i in implementations)
    if not math.isnan(repeated):
        return repeated
    first = [run.noise for run in runs if not math.isnan(run.noise)]
    return median(first) if first else math.nan


_TRACE = tuple[Whole, Natural, Natural, Moment, Moment, Moment | None, Moment | None]


def _traces(connection: sqlite3.Connection) -> dict[ImplementationId, tuple[TraceSpan, ...]]:
    by_implementation: dict[ImplementationId, list[TraceSpan]] = defaultdict(list)
    rows = connection.execute(
        'SELECT implementation, rank, position, "begin", "end", gpu_begin, gpu_end FROM trace'
        " ORDER BY implementation, rank, position"
    )
    for row in rows:
        key, rank, position, begin, end, gpu_begin, gpu_end = row_as(row, _TRACE)
        span = TraceSpan(rank, position, begin, end, number(gpu_begin), number(gpu_end))
        by_implementation[ImplementationId(key)].append(span)
    return {key: tuple(spans) for key, spans in by_implementation.items()}

"""Results files as `Results`, validated: every value has a type and a range.

Drift is computed here; docs/reference/results-files.md describes how.
"""

from __future__ import annotations

import math
import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from dagc.base.errors import UsageError
from dagc.base.sample import BESIDE, EXPLAIN, TIME, Objective, Sample, parse_objective
from dagc.base.statistics import FEWEST_PAIRS, Changes, followed, noise_floor
from dagc.ir.choice import Choice
from dagc.store.results import (
    GROUP,
    Implementation,
    ImplementationId,
    MachineRecord,
    ProgramRecord,
    Results,
    Run,
    Taken,
    TraceSpan,
    drift_factor,
    without_later,
)
from dagc.store.schema import connect, decoded, reading

OBJECTIVE = "objective"  # option of a run in a results file: its objective
# Number of timings of the drift reference, before and after a measurement, that give the machine's speed.
AROUND = 3


def load(path: str | Path, objective: str | None = None) -> Results:
    """Read a results file, even while it is being written. `objective`: how measurements are compared (None: by the
    objective of the file's last search).

    Measurements made for `dagc explain` are excluded: no search chose their implementations. Raises UsageError if the
    file is missing, damaged, not a results file, of `dagc tune`, from a newer dagc, or without the metrics of the
    objective.
    """
    with snapshot(Path(path)) as connection:
        refuse_tuned(connection, path, "use it with `dagc compile --launch`, `dagc report` or `dagc export`")
        try:
            return results_in(connection, objective)
        except UsageError as error:
            raise UsageError(f"{path}: {error.message}", error.help) from None


def is_tuned(connection: sqlite3.Connection) -> bool:
    """Whether an open file has tuned settings."""
    tables = ("chooser", "fact", "candidate WHERE domain != ''")
    return any(connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables)


def refuse_tuned(connection: sqlite3.Connection, path: str | Path, help: str) -> None:
    """Raises UsageError for an open file of `dagc tune`, where results of a search are needed."""
    if is_tuned(connection):
        raise UsageError(f"{path}: was written by `dagc tune`, and has no results of `dagc explore`", help)


@contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A consistent snapshot of a file, to read from. Errors in its content become UsageErrors that name it."""
    connection = connect(path)
    try:
        with reading(path):
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


def results_in(connection: sqlite3.Connection, objective: str | None = None) -> Results:
    """The orders of an open file. Raises ValueError, and UsageError for an objective whose metrics it does not have."""
    runs, metrics = read_runs(connection), read_metrics(connection)
    units = {name: unit for name, (_, unit) in metrics.items()} or {"time": "s"}
    chosen = _objective(objective, runs, units)
    drifts = {run: Drift(rows) for run, rows in _drift(connection).items()}
    usual = _usual(runs, drifts)
    medians = [usual[run] for run in drifts if _leads(dict(runs)[run])]
    reference = median(medians) if medians else math.nan
    places = {key: place for place, (key, _) in enumerate(runs)}
    measured = _measurements(connection, chosen, drifts, usual, reference, places)
    rows = _in_one([*implementations_in(connection)])
    implementations = tuple(
        Implementation(
            key, configuration, traversal, tuple(sample for _, sample in taken), failure,
            tuple(place for place, _ in taken),
        )
        for (key, configuration, traversal, failure), others in rows
        for taken in [sorted((t for k in (key, *others) for t in measured.get(k, ())), key=lambda t: t[0].order)]
    )  # fmt: skip
    program, only_runs = read_program(connection), tuple(run for _, run in runs)
    noise = _noise(only_runs, implementations, reference)
    return Results(program, only_runs, implementations, reference, noise, _traces(connection), chosen, units)


def _objective(asked: str | None, runs: Sequence[tuple[int, Run]], units: Mapping[str, str]) -> Objective:
    """The objective asked for, else that of the file's last search."""
    if asked is not None:
        return parse_objective(asked, units)
    for _, run in reversed(runs):
        if run.strategy != "explain":
            with suppress(UsageError):  # nothing has been measured for it yet
                return parse_objective(run.options.get(OBJECTIVE) or "time", units)
    return TIME


class Drift:
    """Timings of the drift reference of one run, in the order taken.

    The reference of a measurement is the median of the three timings before it and the three after it, as far as they
    exist. A single disturbed timing would shift all measurements around it, depending on their order, not on chance.
    """

    def __init__(self, rows: Iterable[tuple[int, float]]) -> None:
        """`rows`: (ID of the measurement before it, seconds)."""
        rows = list(rows)
        self._after = [after for after, _ in rows]
        self._seconds = [seconds for _, seconds in rows]
        self.median = median(self._seconds)

    def at(self, measurement: int) -> float:
        """Seconds of the reference around the measurement of this ID."""
        place = bisect_right(self._after, measurement - 1)  # number of timings before it
        return median(self._seconds[max(0, place - AROUND) : place + AROUND])


def _leads(run: Run) -> bool:
    return GROUP not in run.options


def _usual(runs: Sequence[tuple[int, Run]], drifts: Mapping[int, Drift]) -> dict[int, float]:
    """By run: the seconds of the drift reference that times are scaled to. Groups of ranks that measured side by side
    have one reference, and that of the first counts: so the speed of the host is divided out, too."""
    out: dict[int, float] = {}
    first = math.nan
    for key, run in runs:
        mine = drifts[key].median if key in drifts else math.nan
        first = mine if _leads(run) or math.isnan(first) else first
        if key in drifts:
            out[key] = first
    return out


def _drift(connection: sqlite3.Connection) -> dict[int, list[tuple[int, float]]]:
    """By run. A run without timings uses the references stored with its measurements."""
    timings: dict[int, list[tuple[int, float]]] = defaultdict(list)
    kept = connection.execute("SELECT run, after, seconds FROM drift ORDER BY id")
    noted = connection.execute(
        "SELECT run, id - 1, reference FROM sample WHERE reference IS NOT NULL"
        " AND run NOT IN (SELECT run FROM drift) ORDER BY id"
    )
    for run, after, seconds in (
        *rows_as(kept, tuple[Whole, Natural, Seconds], "drift"), *rows_as(noted, _Noted, "sample")
    ):  # fmt: skip
        timings[run].append((after, seconds))
    return timings


def implementations_in(
    connection: sqlite3.Connection, which: str = "true"
) -> Iterator[tuple[ImplementationId, Choice, str, str]]:
    """(ID, configuration, traversal, failure) of the candidates that are orders. `which`: an SQL condition on `c`."""
    rows = connection.execute(
        "SELECT c.id, a.choices, c.traversal, c.failure, c.point, c.flush, c.deaths FROM candidate c"
        f" JOIN assignment a ON a.id = c.assignment WHERE c.domain = '' AND {which} ORDER BY c.id"
    )
    for key, choices, traversal, failure, *_ in rows_as(rows, _Order, "candidate"):
        decisions = decoded(choices, Decisions, f"the choices of table candidate, row {key}")
        yield ImplementationId(key), Choice(tuple(decisions.items())), traversal, failure


_Row: TypeAlias = tuple[ImplementationId, Choice, str, str]


def _in_one(rows: Sequence[_Row]) -> list[tuple[_Row, list[ImplementationId]]]:
    """Each implementation once, with the IDs of its other rows: a file that was resumed by a later version of dagc may
    have it with and without the decisions that this version added. The row that names most of them stays."""
    alike: dict[tuple[Choice, str], list[_Row]] = defaultdict(list)
    for row in rows:
        alike[without_later(row[1]), row[2]].append(row)
    out = []
    for several in alike.values():
        kept = max(several, key=lambda row: len(row[1].decisions))
        failure = next((row[3] for row in several if row[3]), "")
        out.append(((*kept[:3], failure), [row[0] for row in several if row is not kept]))
    return sorted(out)


def _measurements(
    connection: sqlite3.Connection,
    objective: Objective,
    drifts: dict[int, Drift],
    usual: Mapping[int, float],
    reference: float,
    places: dict[int, int],
) -> dict[int, list[tuple[Taken, Sample]]]:
    """By implementation. References of each run are scaled to a median of `reference` (the file's), and to the part of
    their change that repeated measurements follow. If the time is only part of the objective, drift is divided out
    here. Measurements without all metrics of the objective are skipped, and what compilers disturbed as soon as there
    is anything else.

    `places`: the index of each run in the file, by its key.
    Runs may have different drift references, so drift is divided out within a run and the groups beside it (`usual`):
    differences between others remain in the times.
    """
    out: dict[int, list[tuple[Taken, Sample]]] = defaultdict(list)
    rows = connection.execute(
        "SELECT s.id, s.run, s.candidate, s.purpose, m.name, v.value FROM sample s JOIN value v ON v.sample = s.id"
        " JOIN metric m ON m.id = v.metric JOIN candidate c ON c.id = s.candidate"
        " WHERE c.domain = '' ORDER BY s.id"
    )
    every = rows_as(rows, _Value, "sample")
    searched = [row for row in every if row[3] != EXPLAIN]
    judging = [row for row in searched if row[3] != BESIDE] or searched
    samples = [
        (*of, {name: value for *_, name, value in metrics})
        for of, metrics in groupby(judging, key=itemgetter(0, 1, 2, 3))
    ]
    relative = {key: drifts[run].at(key) / usual[run] for key, run, *_ in samples if run in drifts}
    parts = _parts_followed(samples, relative)
    for order, (key, run, candidate, purpose, values) in enumerate(samples):
        if not values.keys() >= {*objective.metrics}:
            continue
        around = relative[key] ** parts[run] * reference if key in relative else math.nan
        seconds = row_as(values["time"], Seconds) if "time" in values else math.nan
        if not objective.is_time:
            seconds = objective.value({**values, "time": seconds * drift_factor(reference, around)})
            around = math.nan
            if math.isnan(seconds):
                why = f"objective `{objective.text}` is not a number above 0 for measurement {key}"
                raise UsageError(why, "choose another --objective")
        sample = Sample(seconds, around, metrics=values, purpose=purpose)
        out[candidate].append((Taken(places[run], order), sample))
    return out


def _parts_followed(
    samples: Iterable[tuple[int, int, int, str, Mapping[str, float]]], relative: Mapping[int, float]
) -> dict[int, float]:
    """By run: the part of the reference's change that the times follow; of the whole file where a run has too few
    repeated measurements.

    A reference whose time depends on the host (staged messages) says little about implementations that do not: dividing
    by it would multiply their noise.
    """
    by_run: dict[int, Changes] = defaultdict(Changes)
    for key, run, candidate, _, values in samples:
        changes = by_run[run]
        if key in relative and "time" in values:
            changes.add(candidate, relative[key], row_as(values["time"], Seconds))
    whole = followed(pair for changes in by_run.values() for pair in changes.pairs)
    return {run: followed(c.pairs) if len(c.pairs) >= FEWEST_PAIRS else whole for run, c in by_run.items()}


def _noise(runs: Iterable[Run], implementations: Iterable[Implementation], reference: float) -> float:
    """The noise from repeated measurements if there are enough, else from those at the start of the runs."""
    repeated = noise_floor(i.times(reference) for i in implementations)
    if not math.isnan(repeated):
        return repeated
    first = [run.noise for run in runs if not math.isnan(run.noise)]
    return median(first) if first else math.nan


def _traces(connection: sqlite3.Connection) -> dict[ImplementationId, tuple[TraceSpan, ...]]:
    by_implementation: dict[ImplementationId, list[TraceSpan]] = defaultdict(list)
    rows = connection.execute(
        'SELECT candidate, rank, position, "begin", "end", gpu_begin, gpu_end FROM trace'
        " ORDER BY candidate, rank, position"
    )
    for key, rank, position, begin, end, gpu_begin, gpu_end in rows_as(rows, _Trace, "trace"):
        span = TraceSpan(rank, position, begin, end, number(gpu_begin), number(gpu_end))
        by_implementation[ImplementationId(key)].append(span)
    return {key: tuple(spans) for key, spans in by_implementation.items()}


# ---- values ---------------------------------------------------------------------------------


Name = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_.,\[\]]*\Z", max_length=1000)]
Word = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z", max_length=200)]
Hash = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z]{1,64}\Z")]
Line = Annotated[str, Meta(pattern=r"\A[^\x00-\x08\x0b-\x1f\x7f\x80-\x9f]*\Z", max_length=1_000_000)]
Text = Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]
FilePath = Annotated[str, Meta(pattern=r"\A[^\x00]+\Z", max_length=4096)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Ranks = Annotated[int, Meta(ge=1, le=1_000_000)]
PositiveReal = Annotated[float, Meta(gt=0, le=1e300)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Moment = Annotated[float, Meta(ge=-1e9, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1e9)]
Unit = Annotated[str, Meta(pattern=r"\A[A-Za-z%]{0,10}\Z")]
Whole = int  # of 64 bits, as in SQLite and the JSON reader
# An order is measured for no input, and without a flush.
_Order = tuple[Whole, str, Line, Line, Literal["{}"], Literal[0], Natural]
Number = Annotated[float, Meta(ge=-1e308, le=1e308)]
Decisions = dict[Name, bool | Whole | Number | Line]

_Noted = tuple[Whole, Whole, Seconds]
_Value = tuple[Whole, Whole, Whole, Word, Word, Amount]
_Trace = tuple[Whole, Natural, Natural, Moment, Moment, Moment | None, Moment | None]


_PLACE = re.compile(r" - at `\$\[(\d+)\]`")


def row_as(row: object, kind: Any, where: str = "", columns: Sequence[str] = ()) -> Any:
    """A row, or a value, of exactly this type. Raises ValueError, naming the place: `where`, and the column."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.MsgspecError as error:
        text, at = str(error), _PLACE.search(str(error))
        if at is not None and int(at[1]) < len(columns):
            where, text = f"{where}, column {columns[int(at[1])]}", _PLACE.sub("", text)
        raise ValueError(f"{where}: {text}" if where else text) from None


def rows_as(cursor: sqlite3.Cursor, kind: Any, table: str) -> list[Any]:
    """All rows of a query on a table, whose first column names the row; as `row_as`."""
    rows, columns = cursor.fetchall(), [column[0] for column in cursor.description]
    with suppress(msgspec.MsgspecError):
        return list(msgspec.convert(rows, list[kind]))
    return [row_as(row, kind, f"table {table}, row {row[0]}", columns) for row in rows]


def number(value: float | None) -> float:
    """NaN for SQL's NULL."""
    return math.nan if value is None else value


# ---- programs and runs ----------------------------------------------------------------------


class _Meta(msgspec.Struct, frozen=True):
    format: Literal["dagc results"]
    schema_version: Literal["2"]
    name: Word
    path: FilePath
    hash: Hash
    params: str


class _Machine(msgspec.Struct, frozen=True):
    hosts: tuple[Line, ...]
    cpu: Line
    cores: Natural
    gpus: tuple[Line, ...]
    driver: Line
    mpi: Line
    target: Annotated[str, Meta(pattern=r"\A(host|cuda)\Z")]
    arch: Annotated[str, Meta(pattern=r"\A[a-z0-9_]*\Z", max_length=40)]
    facts: dict[Line, Any] = {}


class _Options(msgspec.Struct, frozen=True):
    """The options of a run that dagc uses. Others are only displayed; they may be from a newer dagc."""

    data: FilePath | None = None
    mpi_takes_device_pointers: bool = False
    objective: Annotated[str, Meta(max_length=200)] | None = None
    repeats: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    setup: Annotated[str, Meta(pattern=r"\A[0-9a-f]{0,64}\Z")] = ""
    fixed: list[tuple[Name, bool | Whole | Number | Line, Line]] = []


def _read_options(text: str, where: str) -> dict[str, Any]:
    """Raises ValueError."""
    options: dict[str, Any] = decoded(text, dict[Line, Any], where)
    row_as(options, _Options, where)
    return options


def read_program(connection: sqlite3.Connection) -> ProgramRecord:
    """Raises ValueError, sqlite3.DatabaseError."""
    meta = row_as(dict(connection.execute("SELECT key, value FROM meta")), _Meta, "table meta")
    rows = connection.execute("SELECT path, text FROM source ORDER BY path")
    sources = tuple(rows_as(rows, tuple[FilePath, Text], "source"))
    if meta.path not in dict(sources):
        raise ValueError("the text of the program is missing")
    params = decoded(meta.params, Decisions, "table meta, row params")
    return ProgramRecord(meta.name, meta.path, meta.hash, sources, tuple(params.items()))


def read_metrics(connection: sqlite3.Connection) -> dict[str, tuple[int, str]]:
    """Name -> ID, unit. Raises ValueError."""
    rows = connection.execute("SELECT name, id, unit FROM metric")
    return {name: (key, unit) for name, key, unit in rows_as(rows, tuple[Word, Whole, Unit], "metric")}


_Json = Annotated[str, Meta(max_length=1_000_000)]  # values need up to 30 times the memory of their text
_Run = tuple[Positive, Line, _Json, Ranks, Whole, Line, Seconds, Line, Line, Share | None, _Json]
MOST_RUNS = 10_000  # a report has a row for each


def read_runs(connection: sqlite3.Connection) -> list[tuple[int, Run]]:
    """(ID, run) in the order of their start. Raises ValueError, sqlite3.DatabaseError."""
    out: list[tuple[int, Run]] = []
    machines: dict[str, MachineRecord] = {}  # equal texts of many runs are decoded once
    options: dict[str, dict[str, Any]] = {}
    columns = "id, started, machine, ranks, seed, strategy, seconds, revision, version, noise, options"
    for row in connection.execute(f"SELECT {columns} FROM run ORDER BY id"):
        key, started, machine, ranks, seed, strategy, seconds, revision, version, noise, facts = row_as(
            row, _Run, f"table run, row {row[0]}", columns.split(", ")
        )
        if machine not in machines:
            recorded = decoded(machine, _Machine, f"table run, row {key}, column machine")
            machines[machine] = MachineRecord(**{name: getattr(recorded, name) for name in recorded.__struct_fields__})
        if facts not in options:
            options[facts] = _read_options(facts, f"table run, row {key}, column options")
        of = (started, machines[machine], ranks, seed, strategy, seconds, revision, version, number(noise))
        out.append((key, Run(*of, options[facts])))
        if len(out) > MOST_RUNS:
            raise ValueError(f"more than {MOST_RUNS} runs")
    return out

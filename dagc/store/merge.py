"""`dagc merge`: results files of one program, and tuned files of training at different inputs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dagc.base.errors import UsageError
from dagc.choice.types import Point
from dagc.store.read import read_program, results_in, snapshot
from dagc.store.results import ProgramRecord, Results
from dagc.store.schema import candidate_id, connect, connect_as, create, damaged, elsewhere, metric_id
from dagc.store.settings import check_fixed
from dagc.store.tuned import InputFacts, Tuned, input_key, input_to_json, load_tuned


def nothing_learned(files: Sequence[Tuned], merged: Tuned) -> Mapping[str, Any]:
    """No chooser: the merged file is one to go on with, by `dagc tune --resume`."""
    return {}


def merge(
    paths: Sequence[str | Path], out: str | Path, *, other_machine: bool = False, learn: Learn = nothing_learned
) -> None:
    """Write the runs of all `paths`, in this order, into the new file `out`.

    Equal implementations become one. One that was measured in any file has no failure (an MPI without device pointers
    fails where another measures). Times stay as measured, and drift is divided out within each run. Of tuned files
    (`dagc.store.merge`), `learn` makes the choosers anew. Raises UsageError if the programs, the ranks or (unless
    `other_machine`) the machines differ, if a file is not a results file, if two files contain the same run, and if
    `out` exists or cannot be written.
    """
    out, files = Path(out), [Path(path) for path in paths]
    if out.exists():
        raise UsageError(f"{out} exists", "choose another name with -o")
    files_read = [_read(path) for path in files]
    tuned = _tuned(files)
    _check_equal(files, files_read, other_machine, bool(tuned))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dagc-merge-", dir=out.parent) as folder:
            scratch = Path(folder) / out.name  # in a folder of its own: no other process can place a link there
            _merge(files, scratch)
            if tuned:
                write_tuned(scratch, tuned, learn)
            scratch.replace(out)
    except sqlite3.DatabaseError as error:
        raise damaged(out, error) from None
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}", "choose a place that can be written to") from None


def _read(path: Path) -> Results:
    with snapshot(path) as connection:
        return results_in(connection)


def _tuned(files: Sequence[Path]) -> list[Tuned]:
    """What tuned files hold; nothing of files of orders. Raises UsageError for a mixture."""
    of_settings = []
    for path in files:
        with snapshot(path) as connection:
            query = "SELECT 1 FROM candidate WHERE domain != '' UNION SELECT 1 FROM chooser"
            of_settings.append(connection.execute(query).fetchone() is not None)
    if not any(of_settings):
        return []
    if not all(of_settings):
        orders = files[of_settings.index(False)]
        raise UsageError(
            f"{files[of_settings.index(True)]} is of `dagc tune`, {orders} of `dagc explore`",
            "merge files of one command",
        )
    from dagc.store.tuned import load_tuned  # loads numpy, sympy

    return [load_tuned(path) for path in files]


def _merge(files: Sequence[Path], scratch: Path) -> None:
    with closing(connect_as(scratch, "rwc")) as target:
        target.execute("PRAGMA synchronous = OFF")  # the file is renamed only when it is complete
        for number, path in enumerate(files):
            with closing(connect(path)) as source:
                if number == 0:
                    create(target, read_program(source))
                _copy(source, target, path)


def _check_equal(files: Sequence[Path], results: Sequence[Results], other_machine: bool, tuned: bool) -> None:
    if len(files) < 2:
        raise UsageError("one file cannot be merged", "give two results files or more")
    where: dict[tuple[object, ...], Path] = {}  # the file of each run
    program, first = results[0].program, next((run for other in results for run in other.runs), None)
    for path, other in zip(files, results, strict=True):
        if not _same_program(other.program, program, tuned):
            raise UsageError(
                f"{path} is of another program ({other.program.name} {other.program.hash}) than {files[0]}"
                f" ({program.name} {program.hash})",
                "merge results of one program with the same parameters",
            )
        if other.runs and results[0].runs and other.folded != results[0].folded:
            raise UsageError(
                f"{path} and {files[0]}: one has an order for each round of a loop, the other one for all rounds",
                "merge results of searches with --unroll, or of searches without it",
            )
        mine: dict[tuple[object, ...], Path] = {}
        for run in other.runs:
            # A measured noise floor identifies a run as well as a serial number.
            mine[run.started, run.strategy, run.noise if not math.isnan(run.noise) else path.resolve(), run.seed] = path
            assert first is not None
            if run.ranks != first.ranks:
                raise UsageError(
                    f"{path} was measured on {run.ranks} ranks, {files[0]} on {first.ranks}",
                    "merge results of the same number of ranks",
                )
            if run.machine.key != first.machine.key and not other_machine:
                raise UsageError(
                    f"{path} was measured on another machine ({run.machine.key}) than {files[0]} ({first.machine.key})",
                    "give --other-machine to merge them anyway",
                )
        for key in mine.keys() & where.keys():
            raise UsageError(
                f"{path} and {where[key]} contain the same run, started {key[0]}",
                "its measurements would count twice; leave one of them out",
            )
        where |= mine


def _same_program(one: ProgramRecord, other: ProgramRecord, tuned: bool) -> bool:
    """Of tuned files: the same text, since they say themselves which parameters may differ."""
    if not tuned:
        return one.hash == other.hash
    texts = (sorted(text for _, text in program.sources) for program in (one, other))
    return one.name == other.name and next(texts) == next(texts)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, path: Path) -> None:
    """All runs of a file. Its IDs are shifted beyond the existing ones."""
    try:
        source.execute("BEGIN")
        target.execute("BEGIN")
        run, sample, drift = (_last(target, table) for table in ("run", "sample", "drift"))
        known = _copy_candidates(source, target)
        metrics = {
            key: metric_id(target, name, unit)
            for key, name, unit in source.execute("SELECT id, name, unit FROM metric").fetchall()
        }
        columns = "started, machine_key, machine, ranks, seed, strategy, seconds, revision, version, noise, options"
        rows = source.execute(f"SELECT id + {run}, {columns} FROM run")
        target.executemany(f"INSERT INTO run (id, {columns}) VALUES (?{', ?' * 11})", rows)
        rows = source.execute(
            f"SELECT id + {sample}, run + {run}, candidate, purpose, iterations, reference FROM sample"
        )
        moved = ((*row[:2], known[row[2]], *row[3:]) for row in rows)
        target.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)", moved)
        rows = source.execute(f"SELECT sample + {sample}, metric, value FROM value")
        target.executemany("INSERT INTO value VALUES (?, ?, ?)", ((s, metrics[m], value) for s, m, value in rows))
        rows = source.execute(f"SELECT id + {drift}, run + {run}, after + {sample}, seconds FROM drift")
        target.executemany("INSERT INTO drift VALUES (?, ?, ?, ?)", rows)
        rows = source.execute('SELECT candidate, rank, position, "begin", "end", gpu_begin, gpu_end FROM trace')
        spans = ((known[row[0]], *row[1:]) for row in rows)
        target.executemany("INSERT OR IGNORE INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", spans)  # the first is kept
        _copy_checks(source, target)
        facts = source.execute("SELECT key, value FROM fact")
        target.executemany("INSERT OR IGNORE INTO fact VALUES (?, ?)", facts)  # the first is kept
        target.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        if elsewhere(error):  # while writing the target
            raise
        raise damaged(path, error) from None


def _copy_candidates(source: sqlite3.Connection, target: sqlite3.Connection) -> dict[int, int]:
    """ID in the source -> ID in the target. A setting that failed at an input in any file is not trusted there; an
    order that was measured in any file is."""
    known = {}
    rows = source.execute(
        "SELECT c.id, c.domain, c.point, a.choices, c.traversal, c.flush, c.failure,"
        f" {_GOOD} FROM candidate c JOIN assignment a ON a.id = c.assignment ORDER BY c.id"
    )
    for key, domain, point, choices, traversal, flush, failure, good in rows:
        known[key] = here = candidate_id(target, domain, point, choices, traversal, flush)
        if domain:
            target.execute("UPDATE candidate SET failure = ? WHERE id = ? AND failure = ''", (failure, here))
        elif good:
            target.execute("UPDATE candidate SET failure = '' WHERE id = ?", (here,))
        else:
            target.execute(
                f"UPDATE candidate AS c SET failure = ? WHERE id = ? AND failure = '' AND NOT {_GOOD}", (failure, here)
            )
    return known


def _copy_checks(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Which settings give right results: those that were wrong in no file."""
    rows = source.execute(
        "SELECT c.domain, a.choices, c.point, c.failure FROM checked c JOIN assignment a ON a.id = c.assignment"
    )
    for domain, choices, point, failure in rows:
        target.execute("INSERT OR IGNORE INTO assignment (choices) VALUES (?)", (choices,))
        (key,) = target.execute("SELECT id FROM assignment WHERE choices = ?", (choices,)).fetchone()
        target.execute(
            "INSERT INTO checked VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET point = excluded.point,"
            " failure = excluded.failure WHERE failure = ''",
            (domain, key, point, failure),
        )


_GOOD = "(c.failure = '' AND EXISTS (SELECT 1 FROM sample s WHERE s.candidate = c.id))"


def _last(target: sqlite3.Connection, table: str) -> int:
    (last,) = target.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
    return int(last)


# ---- tuned files -----------------------------------------------------------------------------------


# From the files and what is merged of them: the record of a chooser, by op.
Learn = Callable[[Sequence[Tuned], Tuned], Mapping[str, Any]]
SAME = 1e-6  # relative: a feature of two files at one input


def write_tuned(scratch: Path, tuned: Sequence[Tuned], learn: Learn) -> None:
    """Facts of all inputs, and what is learned from them, into a file that has all cells, checks and runs. Raises
    UsageError where the files do not go together."""
    _check_facts(tuned)
    _check_cells(tuned)
    inputs = _inputs(tuned)
    _write(scratch, "fact", _facts(tuned, inputs))
    _write(scratch, "chooser", learn(tuned, load_tuned(scratch)))


def _write(path: Path, table: str, rows: Mapping[str, Any]) -> None:
    with closing(connect_as(path, "rw")) as target:
        target.execute("BEGIN")
        target.executemany(
            f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", ((key, json.dumps(value)) for key, value in rows.items())
        )
        target.execute("COMMIT")


# ---- what must agree ------------------------------------------------------------------------


def _check_facts(tuned: Sequence[Tuned]) -> None:
    for one in tuned:
        if not one.choosers:
            raise UsageError(f"{one.path}: no chooser in it: tuning did not end", "tune again with --resume")
    first = tuned[0]
    for other in tuned[1:]:
        for name, (mine, theirs) in {n: (shown(first), shown(other)) for n, shown in _EQUAL.items()}.items():
            if mine != theirs:
                raise UsageError(f"{first.path}: {name} {mine}, {other.path}: {theirs}", _HELP[name])
        _check_choices(first, other)


_EQUAL: dict[str, Callable[[Tuned], object]] = {
    "tuned on the target": lambda one: one.facts.target,
    "tuned for the architecture": lambda one: one.facts.arch,
    "tuned on the GPU": lambda one: one.facts.gpu if one.facts.target == "cuda" else None,
    "minimises": lambda one: one.facts.objective,
    "calls that pay for a conversion:": lambda one: one.facts.calls or "not counted",
    "constraints": lambda one: "tested" if one.facts.constraints else "ignored",
    "bytes written before each launch:": lambda one: ", ".join(map(str, sorted(set(one.flushes)))),
    "chooses for": lambda one: ", ".join(sorted(one.choosers)),
    "learns by": lambda one: ", ".join(f"{c.method} ({op})" for op, c in sorted(one.choosers.items())),
}
_ELSEWHERE = "tune the other inputs on this machine; `dagc tune --warm-start` corrects a file of another one"
_HELP = {
    "tuned on the target": "merge files of one target",
    "tuned for the architecture": _ELSEWHERE,
    "tuned on the GPU": _ELSEWHERE,
    "minimises": "tune one of them again with the --objective of the other",
    "calls that pay for a conversion:": "tune one of them with `--resume --calls` as the other",
    "constraints": "tune both with --no-constraints, or none",
    "bytes written before each launch:": "tune both with --warm, or none",
    "chooses for": "tune the same ops in both, with --kernel",
    "learns by": "tune one of them with `--resume --method` as the other",
}


def _check_choices(first: Tuned, other: Tuned) -> None:
    """Parameters and decisions that are neither an input nor a size of both."""
    sizes = {name for one in (first, other) for cell in one.cells for name, _ in cell.point.params}
    for mine, theirs in ((first.facts.kernels, other.facts.kernels), (first.facts.program, other.facts.program)):
        if mine is not None and theirs is not None:
            kept = ({**f, "params": {n: v for n, v in f["params"].items() if n not in sizes}} for f in (mine, theirs))
            check_fixed(first.path, *kept)


def _check_cells(tuned: Sequence[Tuned]) -> None:
    """No measurement twice, and nothing but inputs of which the features are known."""
    where: dict[tuple[Any, ...], Path] = {}
    for one in tuned:
        known = {facts.point for facts in one.facts.inputs}
        if any(cell.point not in known for cell in one.cells if cell.times):
            raise UsageError(
                f"{one.path} was tuned at sizes, not inputs: its set-up would have to run for their features",
                "continue in one file: `dagc tune --resume --sizes`",
            )
        for cell in one.cells:
            key = (cell.op, cell.point, cell.settings, cell.times)
            if cell.times and where.setdefault(key, one.path) != one.path:
                raise UsageError(
                    f"{one.path} and {where[key]} contain the same measurements, of {cell.point.text or 'one input'}",
                    "they would count twice; leave one of the files out",
                )


# ---- inputs ---------------------------------------------------------------------------------


def _inputs(tuned: Sequence[Tuned]) -> dict[Point, InputFacts]:
    known: dict[Point, tuple[Path, InputFacts]] = {}
    for one in tuned:
        for facts in one.facts.inputs:
            path, before = known.get(facts.point, (one.path, facts))
            known[facts.point] = (path, _joined(before, facts, path, one.path))
    return {point: facts for point, (_, facts) in known.items()}


def _joined(one: InputFacts, other: InputFacts, path: Path, other_path: Path) -> InputFacts:
    """What two files know of an input. Raises UsageError where it is not the same one."""
    for op in one.features.keys() & other.features.keys():
        for name in one.features[op].keys() & other.features[op].keys():
            mine, theirs = one.features[op][name], other.features[op][name]
            if not math.isclose(mine, theirs, rel_tol=SAME, abs_tol=SAME):
                raise UsageError(
                    f"{one.point.text} is another input in {other_path}: `{name}` is {theirs:g}, in {path} {mine:g}",
                    "give the inputs different names, and tune one of the files again",
                )
    features = {op: other.features.get(op, {}) | of for op, of in one.features.items()}
    conversions = {op: other.conversions.get(op, {}) | of for op, of in one.conversions.items()}
    return replace(
        one, test=one.test or other.test, values=other.values | one.values, features=other.features | features,
        seconds=other.seconds | one.seconds, conversions=other.conversions | conversions,
    )  # fmt: skip


def _facts(tuned: Sequence[Tuned], inputs: Mapping[Point, InputFacts]) -> dict[str, Any]:
    data = {point: vector for one in tuned for point, vector in one.facts.program_data}
    out: dict[str, Any] = {input_key(number): input_to_json(facts) for number, facts in enumerate(inputs.values())}
    if data:
        out["program data"] = [[list(point), list(vector)] for point, vector in data.items()]
    return out

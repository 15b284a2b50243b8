"""Damaged results and tuned files through every command that reads one: each must be read, or refused in one message.

    python -m benchmarks.fuzz_files [--seed N] [--results 1500] [--choosers 250]

Bytes, SQL cells, JSON fields and the schema of a good file are changed at random, the same for the same seed. A command
may end well, or with a DagcError of exit code 2. Anything else is printed with its seed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagc import api
from dagc.api import ExploreOptions
from dagc.base.errors import DagcError
from dagc.base.sample import Sample
from dagc.build.toolchain import choose_target
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice
from dagc.recipes import explain as explain_recipe
from dagc.recipes import tune as tune_recipe
from dagc.store.convert import TABLES_1, TUNE_TABLES_1, convert
from dagc.store.records import Records
from dagc.store.results import MachineRecord, ProgramRecord, Run, TraceSpan
from dagc.store.schema import APPLICATION_ID
from dagc.store.settings import kernels_of
from dagc.store.tuned import load_tuned
from dagc.study import shown
from dagc.study.decisions import SearchRequest, configured
from dagc.study.launch import choosers_for, settings_by_file

HOSTILE = (
    *map(chr, (0, 1, 7, 8, 9, 10, 11, 12, 13, 26, 27, 127, 0x85, 0x2028, 0x202E)), '"', "'", "\\", "*/", "/*", "//",
    "??/", "??/\n", '"""', "'''", "\\N{BULLET}", "\\x", "-->", "<!--", "</script>", "{{", "{% raw %}", "%s%n",
    "${HOME}", "$(touch x)", "`x`", ";", "#", "\n#line 1", "*/ __attribute__((constructor)) void injected() {} /*",
    "../../x", "/etc/passwd", "a" * 5000, "",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2, 255, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 1e308, -1e308, 5e-324, 0.0, 1e-9)
VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": 0}, [1, [2, [3, [4]]]], *NUMBERS)
SECONDS = 30  # for one command; good ones take far less

DAG = '''program small
param N : i64 = 100
setup "small.py" init(N)
tune m in {1, 2}
scalar n : i64
array x : f32[n] in
array y : f32[n] out
array z : f32[n] out
kernel fill(y: out f32[n], x: in f32[n], n: i64) {
  tune bx in {32, 64, 128}
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      long i = (long)blockIdx.x * bx + threadIdx.x;
      if (i < n) y[i] = x[i] * m;
    """
  }
}
select m with knn(n)
dag {
  a : gpu fill(y, x, n)
  b : gpu fill(z, x, n)
}
'''


def write_program(folder: Path) -> Path:
    """`small.dag`, with launch settings and a decision that may be chosen."""
    (folder / "small.dag").write_text(DAG)
    (folder / "small.py").write_text(
        "import numpy as np\ndef init(rank, size, seed, N):\n    return {'n': N, 'x': np.ones(N, np.float32)}\n"
    )
    return folder / "small.dag"


def write_results(path: Path, dag: Path) -> Path:
    """A results file of two configurations with 8 orders each, drift and traces."""
    from dagc.ir.plan import program_hash
    from dagc.ir.traversal import traversal_text
    from dagc.lab.configurations import configuration_of
    from dagc.space import Space

    graph = api.load_graph(dag)
    program = ProgramRecord(
        "small", str(dag), program_hash(graph.program),
        tuple((p, s.text) for p, s in graph.program.sources.items()), (("N", 100),),
    )  # fmt: skip
    machine = MachineRecord(("here",), "a CPU", 4, (), "", "an MPI", "host", "", {"load": [0.5], "cxx": "g++"})
    run = Run("2026-01-01T00:00:00+00:00", machine, 2, 7, "random", 0.01, "", "0.2", 0.01, {"budget": 5, "data": None})
    chance = random.Random(5)
    with Records.open(path, program, run) as records:
        for capture in ("false", "true"):
            graph = api.load_graph(dag, {"capture": capture})
            space, configuration = Space(graph), configuration_of(graph)
            for number in range(min(8, space.count())):
                traversal = space.at(number)
                key = records.begin(configuration, traversal_text(traversal, graph))
                for _ in range(3):
                    records.reference(1e-3 * chance.uniform(0.99, 1.01))
                    slow = 1 + number // 4  # two classes
                    records.add(key, 1e-4 * slow * chance.uniform(0.99, 1.01), 1e-3, 10)
                if number == 0:
                    spans = [TraceSpan(0, i, i * 1e-6, (i + 1) * 1e-6) for i in range(len(traversal.entries))]
                    records.trace(key, spans)
        records.fail(records.begin(configuration, "a@s0 b@s1 end"), "run failed: no")
    return path


SELECTORS: tuple[Mapping[str, Any], ...] = (
    {
        "method": "knn",
        "data": ["n"],
        "sizes": [[10], [100], [1000]],
        "labels": [0, 1, 1],
        "k": 2,
        "weights": "distance",
    },
    {"method": "tree", "data": ["n"], "tree": [0, 50, 0, [0, 500, 1, 0]]},
    {"method": "forest", "data": ["n"], "trees": [[0, 50, 0, 1], 1, [0, 60, 0, 1]]},
)


def write_tuned(path: Path, dag: Path) -> Path:
    """A tuned file with choosers of kernels (a model, fitted counts, anchors, selectors) and one of programs."""
    options = tune_recipe.TuneOptions(kernels=("fill",), sizes="N=100", target="cuda", arch="sm_90", top=0)
    tune_recipe.tune(dag, path, options)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT domain, chooser FROM chooser").fetchall()
        for (op, text), selector in zip(rows, SELECTORS, strict=False):
            chooser = {
                **json.loads(text), "selector": selector, "data": ["n"],
                "anchors": [{"data": [100], "chosen": 1}, {"data": [200], "chosen": 0}],
            }  # fmt: skip
            connection.execute("UPDATE chooser SET chooser = ? WHERE domain = ?", (json.dumps(chooser), op))
        connection.commit()
    op = rows[0][0]
    _add_sample(path, Cell(op, Case.of({"N": 100}), Choice.at(op, [("bx", 64)])), Sample.of((1e-05, 1.1e-05)))
    return path


def write_plans(path: Path, tuned: Path) -> Path:
    """`tuned` with a chooser of whole programs beside those of kernels."""
    shutil.copy(tuned, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        chooser = {
            "method": "knn", "why": "knn", "names": ["m"], "data": ["n"], "settings": [{"m": 1}, {"m": 2}],
            "selector": SELECTORS[0],
        }  # fmt: skip
        kernels = json.loads(connection.execute("SELECT value FROM fact WHERE key = 'kernels'").fetchone()[0])
        fixed = {"params": {}, "decisions": {n: v for n, v in kernels["decisions"].items() if n != "m"}}
        connection.execute("DELETE FROM chooser")
        connection.execute("INSERT INTO chooser VALUES ('program', ?)", (json.dumps(chooser),))
        connection.execute("INSERT INTO fact VALUES ('program', ?)", (json.dumps(fixed),))
        connection.execute("INSERT INTO fact VALUES ('program data', ?)", (json.dumps([[[["N", 100]], [100]]]),))
        connection.commit()
    _add_sample(path, Cell("program", Case.of({"N": 100}), Choice((("m", 1),))), Sample.of((1e-05,)))
    return path


_TO_SCHEMA_1 = """
INSERT INTO meta SELECT key, iif(key = 'schema_version', '1', value) FROM now.meta;
INSERT INTO source SELECT * FROM now.source;
INSERT INTO run SELECT * FROM now.run;
INSERT INTO drift SELECT * FROM now.drift;
INSERT INTO configuration SELECT * FROM now.assignment
  WHERE id IN (SELECT assignment FROM now.candidate WHERE domain = '');
INSERT INTO implementation SELECT id, assignment, traversal, failure, deaths FROM now.candidate WHERE domain = '';
INSERT INTO measurement SELECT s.id, run, candidate, purpose, value, reference, iterations
  FROM now.sample s JOIN now.value v ON v.sample = s.id WHERE candidate IN (SELECT id FROM implementation);
INSERT INTO trace SELECT * FROM now.trace;
INSERT INTO tune_cell SELECT c.id, 1, domain, point, choices, flush,
  (SELECT json_group_array(value) FROM now.sample s JOIN now.value v ON v.sample = s.id WHERE candidate = c.id), failure
  FROM now.candidate c JOIN now.assignment a ON a.id = c.assignment WHERE domain != '';
INSERT INTO tune_check SELECT domain, choices, point, failure
  FROM now.checked JOIN now.assignment ON id = assignment;
INSERT INTO tune_fact SELECT * FROM now.fact;
INSERT INTO tune_chooser SELECT * FROM now.chooser;
"""


def write_schema_1(path: Path, good: Path) -> Path:
    """A file of today's schema as schema 1 had it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS now", (str(good),))
        tables = f"{TABLES_1}{TUNE_TABLES_1}PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
        connection.executescript(f"{tables}{_TO_SCHEMA_1}DETACH now;")
    return path


def _add_sample(path: Path, cell: Cell, sample: Sample) -> None:
    """In a run of its own, like the first."""
    tuned = load_tuned(path)
    with Records.open(path, tuned.program, tuned.runs[0], resume=True, tuning=True) as records:
        records.add_sample(cell, sample, 0)


# ---- changes --------------------------------------------------------------------------------


def change(path: Path, chance: random.Random) -> str:
    """Change a file in place; returns what was done."""
    kind = chance.choice(("bytes", "cell", "cell", "json", "json", "json", "schema"))
    if kind == "bytes":
        return _change_bytes(path, chance)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if kind == "schema":
            statement = chance.choice(SCHEMA_CHANGES)
            with contextlib.suppress(sqlite3.OperationalError):  # a file of schema 1 has other tables
                for part in statement.split(";;"):
                    connection.execute(part)
            return statement
        return _change_cell(connection, chance, kind == "json")


ENDLESS = (
    "ALTER TABLE sample RENAME TO other;;CREATE VIEW sample AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL"
    " SELECT x + 1 FROM c) SELECT x AS id, 1 AS run, 1 AS candidate, 'search' AS purpose, 1 AS iterations,"
    " 1.0 AS reference FROM c"
)
SCHEMA_CHANGES = (
    "DROP TABLE source", "DROP TABLE candidate", "DROP TABLE trace", "ALTER TABLE run DROP COLUMN noise",
    "ALTER TABLE run RENAME COLUMN seed TO sead", "CREATE INDEX i ON value (hex(zeroblob(value)))",
    ENDLESS,
    "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM sample; END",
    "CREATE VIRTUAL TABLE v USING fts5(x)", "PRAGMA user_version = 99", "PRAGMA application_id = 1",
    "DELETE FROM meta WHERE key = 'name'", "DELETE FROM source", "DELETE FROM run", "DELETE FROM assignment",
    "DELETE FROM candidate", "DELETE FROM drift", "UPDATE sample SET run = 77", "DELETE FROM sample",
    "DELETE FROM value", "DELETE FROM metric", "UPDATE candidate SET domain = 'a'",
    "INSERT INTO under_way VALUES (1, 4711)", "INSERT INTO under_way VALUES (1, NULL)",
)  # fmt: skip


def _change_bytes(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if chance.random() < 0.2:
        content = content[: chance.randrange(len(content))]
        what = f"cut to {len(content)} bytes"
    else:
        places = [chance.randrange(len(content)) for _ in range(chance.choice((1, 4, 50)))]
        for place in places:
            content[place] = chance.randrange(256)
        what = f"bytes at {places[:4]}"
    path.write_bytes(content)
    return what


def _change_cell(connection: sqlite3.Connection, chance: random.Random, inside: bool) -> str:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = [t for t in names if connection.execute(f"SELECT 1 FROM {t}").fetchone()]
    table = chance.choice(tables)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    row = chance.choice(rows)
    objects = [c for c, v in zip(columns, row, strict=True) if isinstance(v, str) and v[:1] in ("{", "[")]
    column = chance.choice(objects if inside and objects else columns)
    old = row[columns.index(column)]
    new = _changed_json(old, chance) if inside and objects else _value(old, chance)
    where = " AND ".join(f'"{c}" IS ?' for c in columns)
    try:
        connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where}', (new, *row))
    except (sqlite3.Error, OverflowError):
        return "nothing: the table takes no such value"
    return f"{table}.{column} = {str(new)[:200]!r}"


def _value(old: object, chance: random.Random) -> object:
    if isinstance(old, str) and chance.random() < 0.7:
        place = chance.randrange(len(old) + 1)
        return old[:place] + chance.choice(HOSTILE) + old[place:]
    return chance.choice((None, b"\x00\xff", *NUMBERS, *HOSTILE))


NO_JSON = ("[" * 100_000, '{"a":' * 50_000, "NaN", "[1e999]", "", '"\\ud800"', "[]", "{}")


def _changed_json(text: str, chance: random.Random) -> str:
    whole = json.loads(text)
    places: list[tuple[Any, Any]] = []
    stack = [whole]
    while stack:
        here = stack.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        places += [(here, key) for key in keys]
        stack += [here[key] for key in keys if isinstance(here[key], dict | list)]
    if not places or chance.random() < 0.02:
        return chance.choice(
            ("[" * 100_000, '{"a":' * 50_000, "NaN", "[1e999]", "", '"\\ud800"', text[:-1], "[]", "{}")
        )
    parent, key = chance.choice(places)
    how = chance.random()
    if how < 0.2:
        del parent[key]
    elif how < 0.3 and isinstance(parent, dict):
        parent[chance.choice(HOSTILE)] = parent.pop(key)
    elif how < 0.6:
        old = parent[key]
        parent[key] = _value(old, chance) if isinstance(old, str) else chance.choice(HOSTILE)
        if isinstance(parent[key], bytes):
            parent[key] = None
    else:
        parent[key] = chance.choice(VALUES)
    return json.dumps(whole)


# ---- commands -------------------------------------------------------------------------------


def read_results(path: Path, folder: Path, good: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every command that reads a results file, by name."""
    out = folder / "out"
    replay = explain_recipe.ExplainOptions(replay=str(path), pairs=2, variants=1)
    yield "best --plan", lambda: api.best(path, only_print=True)
    yield "best --no-build", lambda: api.best(path, out, build=False, force=True)
    yield "rules", lambda: api.rules(path)
    yield "rules --against", lambda: api.rules(good, path, "json")
    yield "report", lambda: api.report(path, folder / "r.html")
    yield "export", lambda: api.export(path, "csv", folder / "r.csv")
    yield "explain --replay", lambda: explain_recipe.explain(str(path), replay, "text")
    yield "merge", lambda: _merge(path, good, folder / "m.db")
    yield "convert", lambda: _convert(path, folder / "new.db")
    dag = good.parent / "small.dag"
    yield "explore --replay", lambda: api.explore(dag, None, _explored(replay=str(path)))
    # It ends before anything is compiled: there is no such directory of arrays.
    resumed = _explored(resume=True, target="host", data=str(folder / "none"))
    yield "explore --resume", lambda: api.explore(dag, path, resumed)


def _explored(**given: Any) -> ExploreOptions:
    return ExploreOptions(ranks=2, budget=3, confirm=1, quiet=True, **given)


def _merge(path: Path, good: Path, out: Path) -> None:
    out.unlink(missing_ok=True)
    api.merge([path, good], out)


def _convert(path: Path, out: Path) -> None:
    out.unlink(missing_ok=True)
    convert(path, out)


def read_tuned(path: Path, folder: Path, dag: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every command that reads a tuned file, by name."""
    compiled = {"target": "cuda", "arch": "sm_90", "launch": str(path), "build": False, "force": True}
    options = tune_recipe.TuneOptions(
        kernels=("fill",), sizes="N=200", target="cuda", arch="sm_90", top=0, resume=True, other_machine=True
    )
    yield "compile --launch", lambda: api.compile(dag, folder / "out", **compiled)  # type: ignore[arg-type]
    yield "explore --launch", lambda: _choosers(path, dag)
    yield "tune --show", lambda: shown.show(dag, "fill", "c", tuned=path)
    yield "tune --resume", lambda: tune_recipe.tune(dag, path, options)
    yield "convert", lambda: _convert(path, folder / "new.db")


def _choosers(path: Path, dag: Path) -> None:
    """What `explore --launch` reads, without the GPU that it asks for first."""
    text, options = api.read(dag), _explored(transport="mpi_host", launch=str(path))
    found = configured(text, options, gpus=True)[1]
    choosers = choosers_for(SearchRequest(text, options, choose_target("cuda", "sm_90")), found, text.graph)
    for each in found:
        settings_by_file(choosers[kernels_of(each.configuration)], each.graph, {"n": 100})


def failures(commands: Iterator[tuple[str, Callable[[], object]]]) -> Iterator[str]:
    """What commands did besides ending well or refusing the file."""
    for name, command in commands:
        begin = _cpu()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                signal.alarm(10 * SECONDS)
                command()
        except DagcError as error:
            if error.exit_code not in (2, 3) or not error.message:
                yield f"{name}: exit code {error.exit_code}: {error.message}"
        except Exception:
            yield f"{name}: {traceback.format_exc(limit=-6)}"
        finally:
            signal.alarm(0)
        if _cpu() - begin > SECONDS:
            yield f"{name}: {_cpu() - begin:.0f} s"


def _cpu() -> float:
    """Seconds of this process and of those that it has waited for: other work on the machine does not count."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _hung(*_: object) -> None:
    raise TimeoutError


def fuzz(results: int, choosers: int, seed: int, folder: Path) -> Iterator[str]:
    """Run it all; what went wrong comes as text."""
    before = signal.signal(signal.SIGALRM, _hung)
    try:
        dag = write_program(folder)
        good = write_results(folder / "good.db", dag)
        tuned = write_tuned(folder / "tuned.db", dag)
        plans = write_plans(folder / "plans.db", tuned)
        old = write_schema_1(folder / "old.db", good)
        old_plans = write_schema_1(folder / "old-plans.db", plans)
        assert not list(failures(read_results(good, folder, write_results(folder / "other.db", dag))))
        for number in range(results + choosers):
            chance = random.Random(f"{seed} {number}")
            base = chance.choice((good, old) if number < results else (tuned, plans, old_plans))
            path = folder / "changed.db"
            shutil.copy(base, path)
            what = change(path, chance)
            commands = read_results(path, folder, good) if number < results else read_tuned(path, folder, dag)
            for failure in failures(commands):
                yield f"seed {seed}, number {number} ({base.name}: {what}): {failure}"
            for beside in ("-wal", "-shm", "-journal"):
                Path(f"{path}{beside}").unlink(missing_ok=True)
    finally:
        signal.signal(signal.SIGALRM, before)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=int, default=1500)
    parser.add_argument("--choosers", type=int, default=250)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="dagc-fuzz-") as folder:
        wrong = 0
        for failure in fuzz(args.results, args.choosers, args.seed, Path(folder)):
            wrong += 1
            print(failure, flush=True)
    print(f"{args.results} results files and {args.choosers} choosers, seed {args.seed}: {wrong} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

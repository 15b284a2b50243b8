"""`loop=device`: runs of a `repeat` that follow one another on the device, and end there."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.source import Source
from dagc.build.mpi import require_mpi, thread_sanitizer_environment
from dagc.emit import emit, rows
from dagc.emit.forms import steps
from dagc.ir import repetition
from dagc.ir.enums import Opcode
from dagc.ir.plan import Plan, Target
from dagc.ir.program import LOOP, Repetition
from dagc.lab.configurations import configurations, open_decisions
from dagc.lab.orders import domain_of
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import Finished, launch
from dagc.passes import graph_with_diagnostics
from dagc.setup import run_setup
from dagc.space import Space
from dagc.stages.options import ExploreOptions
from dagc.stages.program import ProgramText
from dagc.study.decisions import configured
from tests.emit.build import ROOT, graph_of, plan
from tests.emit.together import build_together
from tests.library.conftest import needs_mpi
from tests.precompiled import do_not_optimise

pytestmark = needs_mpi
RELAX = Path(__file__).parent / "data/relax.dag"
RANKS, ROWS = 4, 50
ON_DEVICE = {"transport": "peer", "loop": "device"}
WAYS = [way.value for way in Repetition]
PLANS = {
    "device": ON_DEVICE,
    "persistent": {**ON_DEVICE, "loop": "persistent"},
    "host": {**ON_DEVICE, "loop": "host"},
    "every4": {**ON_DEVICE, "test_every": "4"},
    "own": {**ON_DEVICE, "own": "true"},
}

# ---- which programs ----

PROGRAM = """
program sums
array x : f64[1] inout
array y : f64[1] on pinned
array z : f64[1] on host
kernel add(x: inout f64[1]) {{ gpu {{ launch grid(1) block(1) cuda \"\"\" x[0] += 1; \"\"\" }} }}
kernel look(z: out f64[1], y: in f64[1]) {{ cpu {{ cpp \"\"\" z[0] = y[0]; \"\"\" }} }}
dag {head} {{
  add : gpu add(x)
  {ops}
}}
"""
UNTIL, FETCH = "repeat 3 until y > 2", "fetch : gpu copy(y, x)"


def _tested(head: str, ops: str) -> repetition.Tested | str:
    return repetition.tested(graph_of(PROGRAM.format(head=head, ops=ops)))


def test_the_device_compares_what_the_host_would_copy() -> None:
    found = _tested(UNTIL, FETCH)
    assert isinstance(found, repetition.Tested)
    assert found.region is not None
    assert (found.region.array, found.dropped) == ("x", 1)
    assert found.kept == ("x",)
    assert _tested("repeat 3", "") == repetition.Tested()


def test_waits_between_streams_are_part_of_an_iteration() -> None:
    """Also where no copy is left out, as without `until`."""
    made = graph_of(PROGRAM.format(head="repeat 3", ops="again : gpu add(x)"), loop="device")
    order = next(t for t in Space(made) if any(e.waits and e.stream is not None for e in t.entries))
    entries = [i for i, e in enumerate(order.entries) if e.stream is not None]
    found = [step.position for step in steps(order, capture=False, loop=repetition.Tested())]
    assert [at for at in found if at is not None] == [*entries, len(order.entries) - 1]


def test_a_kernel_computes_how_many_runs_there_are() -> None:
    """`until done`, of an integer on the device; what counts is kept where it is tested after several runs."""
    text = PROGRAM.replace("array x : f64[1]", "array x : i32[1]").replace("array y : f64[1]", "array y : i32[1]")
    text = text.replace("inout f64[1]", "inout i32[1]").replace("in f64[1]", "in i32[1]")
    made = graph_of(text.format(head="repeat 9 until y", ops=FETCH), loop="device", test_every="4")
    emitted = emit(Plan(made, next(iter(Space(made))), Target.CUDA))["iteration.hpp"]
    assert "loop.until(p.x.data, dagc::Compare::ne, bound);" in emitted
    assert "loop.keep(p.x.data, p.x.bytes());\n  loop.test_every(4);" in emitted


def test_what_an_iteration_changes_and_reads_before_is_kept() -> None:
    """With the other arrays it begins anew: each is written before it is read, or stays as it is."""
    found = repetition.tested(api.load_graph(RELAX, {**ON_DEVICE, "test_every": 8}))
    assert isinstance(found, repetition.Tested)
    assert (found.every, found.kept) == (8, ("x", "runs"))  # without a, mine, residual
    variable = PROGRAM.replace("array x", 'cuda """ __device__ int turns; """\narray x', 1).replace(
        "x[0] += 1;", "x[0] += ++turns;"
    )
    text = variable.format(head=UNTIL, ops=FETCH)
    _, notes = graph_with_diagnostics(
        lower(parse_with_includes(Source("test.dag", text)), {"loop": "device", "test_every": 4})
    )
    assert [d.message for d in notes if d.code == "host-loop"] == [
        "test_every=4: op `add` changes the variable `turns`, so each iteration is tested"
    ]


@pytest.mark.parametrize(
    ("head", "ops", "why"),
    [
        ("", "", "the dag has no `repeat`"),
        ("repeat 3 until z > 2", f"{FETCH}\nlook : cpu look(z, y)", "op `look` runs on the host"),
        (UNTIL, f"{FETCH}\nlook : cpu look(z, y)", "op `look` runs on the host"),
        (UNTIL, f"{FETCH}\nagain : mpi allreduce(x, x, sum)", "op `again.post` runs on the host"),
    ],
)
def test_what_the_host_must_repeat(head: str, ops: str, why: str) -> None:
    assert _tested(head, ops) == why


def test_a_note_says_why_the_host_repeats() -> None:
    text = PROGRAM.format(head=UNTIL, ops=f"{FETCH}\nlook : cpu look(z, y)")
    (note,) = graph_with_diagnostics(lower(parse_with_includes(Source("test.dag", text)), {"loop": "device"}))[1]
    assert (note.code, note.message) == (
        "host-loop",
        "loop=device: op `look` runs on the host, so the host repeats the dag",
    )
    once = lower(parse_with_includes(Source("test.dag", PROGRAM.format(head="", ops=""))), {"loop": "persistent"})
    (note,) = graph_with_diagnostics(once)[1]
    assert note.help == "write `dag repeat N`, or fix loop=host"


def test_graphs_are_counted_once_for_each_who_repeats() -> None:
    program = api.load(RELAX, {"transport": "peer"})
    opened = open_decisions(program, ["capture", LOOP], {"transport"})
    found, _ = configurations(opened, lambda choices: api.load_graph(RELAX, {"transport": "peer", **choices}))
    # What the device repeats is one graph, whatever else is chosen.
    configured = {(c.configuration["capture"], c.configuration[LOOP]) for c in found}
    assert configured == {(False, "host"), (True, "host"), (True, "device"), (True, "persistent")}
    sizes = [domain_of([(c.configuration, c.graph)]).size() for c in found]
    several, one = sizes[0], 1  # one kernel has one order
    assert sorted(size or 0 for size in sizes) == [one, several, several, several]
    assert domain_of([(c.configuration, c.graph) for c in found]).size() == one + 3 * (several or 0)


def test_a_search_with_gpus_opens_who_repeats() -> None:
    """The device within a graph where a value is tested, and one kernel where it is possible."""
    text = RELAX.read_text(encoding="utf-8")
    for until in (True, False):
        written = text if until else text.replace(" until shown < tolerance", "")
        written = written.replace("tune loop      in {device, host, persistent}\n", "")
        program = ProgramText(RELAX, parse_with_includes(Source(str(RELAX), written)), {"transport": "peer"})
        _, found, _ = configured(program, ExploreOptions(), True)
        assert {c.configuration.get(LOOP) for c in found} == ({*WAYS} if until else {None})
        _, found, _ = configured(program, ExploreOptions(opened=(LOOP,)), True)
        assert {c.configuration.get(LOOP) for c in found} == {*WAYS} - ({"persistent"} if not until else set())
    jacobi = ROOT / "benchmarks/gpu/short/jacobi.dag"
    for transport, ways in (("peer", {"host", "persistent"}), ("nccl", {None})):
        program = ProgramText(jacobi, parse_with_includes(Source.read(jacobi)), {"transport": transport})
        _, found, _ = configured(program, ExploreOptions(), True)
        assert {c.configuration.get(LOOP) for c in found} == ways


# ---- benches, under ThreadSanitizer ----


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    folder = tmp_path_factory.mktemp("relax")
    plans = {name: plan(RELAX, Target.HOST, **choices) for name, choices in PLANS.items()}
    for name, made in plans.items():
        run_setup(made.program, RELAX.parent, RANKS, 0, folder / name)
    plans["runner"] = plans["host"]
    flags = ("-O0", "-Werror")
    return build_together(plans, folder / "bench", flags=flags, sanitize="thread", runners={"runner"}), folder


def _bench(program: Path, data: Path, *options: str | Path, **env: str) -> Finished:
    words = [program, "--data", data, "--seconds", "0.001", "--repeats", "2", *options]
    done = launch(words, RANKS, timeout=60, env={**thread_sanitizer_environment(require_mpi()), **env})
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    return done


def _changed(data: Path, to: Path, name: str, change: Callable[[int, np.ndarray], object]) -> Path:
    """The data with another value of `name`, by rank."""
    shutil.copytree(data, to)
    for rank in range(RANKS):
        file = to / f"rank-{rank:04}/{name}.npy"
        np.save(file, change(rank, np.load(file)))
    return to


@pytest.mark.parametrize("driver", ["", "12020"], ids=["while node", "driver without them"])
def test_both_end_when_numpy_does(built: tuple[dict[str, Path], Path], tmp_path: Path, driver: str) -> None:
    programs, data = built
    _, runs = runpy.run_path(str(RELAX.with_suffix(".py")))["solved"](RANKS, 0, ROWS)
    assert 3 < runs < 30
    for name in ("device", "every4") if driver else ("device", "every4", "host", "persistent"):
        env = {"DAGC_HOST_DRIVER": driver} if driver else {}
        done = _bench(programs[name], data / name, "--json", tmp_path / "out.json", **env).check()
        record = json.loads((tmp_path / "out.json").read_text())
        assert (record["runs"], record["converged"]) == (runs, True)
        why = "the host tests after each iteration: the driver is for CUDA 12.2, and while nodes need 12.4"
        assert (why in done.stderr) == bool(driver)


@pytest.mark.parametrize("name", ["device", "every4", "host", "persistent"])
def test_a_value_that_is_not_a_number_never_ends_it(
    built: tuple[dict[str, Path], Path], tmp_path: Path, name: str
) -> None:
    programs, data = built
    spoilt = _changed(data / name, tmp_path / "data", "tolerance", lambda rank, before: np.float64("nan"))
    done = _bench(programs[name], spoilt, "--check-only")
    assert re.search(
        r"until shown < tolerance: not converged, 30 of at most 30 runs, .+ s; the value is \S+\n", done.stdout
    )


def test_a_runner_takes_a_table_of_either_way(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    made = plan(RELAX, Target.HOST, **ON_DEVICE)
    assert made.loop is not None
    loops = None, made.loop, replace(made.loop, every=4)
    tables = [rows(made.traversal, True, (), loop) for loop in loops]
    assert [table[0][0] for table in tables] == [Opcode.BEGIN, Opcode.LOOP, Opcode.LOOP]
    lines = (";".join(f"{int(kind)},{a},{b}" for kind, a, b in table) + "\n" for table in tables)
    (tmp_path / "tables").write_text("".join(lines))
    done = _bench(programs["runner"], data / "host", "--tables", tmp_path / "tables").check()
    assert done.stdout.count(": good") == 3


def test_ranks_that_would_not_end_together_are_errors(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    differs = "the ranks do not agree on `until shown < tolerance`"
    most = _changed(data / "device", tmp_path / "most", "most", lambda rank, before: before - rank)
    bound = _changed(
        data / "device", tmp_path / "bound", "tolerance", lambda rank, before: before * (1e6 if rank == 1 else 1)
    )
    none = _changed(data / "device", tmp_path / "none", "most", lambda rank, before: before * 0)
    for program, changed, code, said in (
        ("device", most, 2, "the ranks do not agree on the number of runs, which is 30 here"),
        ("device", bound, 5, f"its bound differs between ranks\n.*{differs}"),
        ("own", data / "own", 5, f"its value is no result of a collective, and may differ between ranks\n.*{differs}"),
        ("device", none, 2, r"relax.dag:\d+:\d+: require most >= 1 does not hold for these data: most = 0"),
    ):
        done = _bench(programs[program], changed)
        assert done.returncode == code, done.stderr
        assert re.search(said, done.stderr, re.DOTALL), done.stderr


# ---- a library ----

SCRIPT = """
import sys, numpy as np, dagc
sys.path.append(sys.argv[2])
import relax
from mpi4py import MPI
comm = MPI.COMM_WORLD
loaded = dagc.load_library(sys.argv[1])
def values(**changed):
    made = relax.data(comm.rank, comm.size, 0, 50)
    return {**{name: value.copy() if hasattr(value, "copy") else value for name, value in made.items()}, **changed}
def right(its, **to):
    x, runs = relax.solved(comm.size, 0, 50, **to)
    return np.array_equal(its["x"], x[comm.rank]) and its["runs"][0] == runs
def say(what, good):
    print(f"{what}: {'right' if good else 'wrong'}\\n", end="", flush=True)
its = values()
with loaded.Instance(comm, **its) as instance: runs = instance.solve()
say("solve", right(its) and runs == its["runs"][0] and runs.converged)
its = values(most=3)
with loaded.Instance(comm, **its) as instance: runs = instance.solve()
say("at most 3", right(its, most=3) and runs == 3 and not runs.converged)
its = values()
with loaded.Instance(comm, **its) as instance:
    instance.run(0)
    say("none", its["runs"][0] == 0)
    instance.run(20)
    instance.run()
say("run", right(its, most=21, tolerance=0) and its["runs"][0] == 21)
its = values()
if comm.rank == 2: its["a"][7] = np.nan
with loaded.Instance(comm, **its) as instance: runs = instance.solve()
say("nan", runs == 30 and not runs.converged)
"""


def test_a_library_solves_and_runs_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_optimise(monkeypatch, "-Werror")
    _, runs = runpy.run_path(str(RELAX.with_suffix(".py")))["solved"](RANKS, 0, ROWS)
    assert runs % 4  # it ends within four iterations, which are begun anew
    api.compile(RELAX, tmp_path / "relax", target="host", form="library", defines=PLANS["every4"])
    done = launch(
        [sys.executable, "-c", SCRIPT, tmp_path / "relax", RELAX.parent],
        RANKS,
        env={"PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    said = sorted(done.check().stdout.splitlines())
    assert said == sorted(
        f"{case}: right" for case in ("solve", "at most 3", "none", "run", "nan") for _ in range(RANKS)
    )

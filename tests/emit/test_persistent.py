"""`loop=persistent`: iterations that one kernel repeats, whose blocks wait for each other between its phases."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.source import Source
from dagc.emit import emit, rows
from dagc.forms.types import Refusal
from dagc.forms.within import within
from dagc.ir.enums import Opcode
from dagc.ir.plan import Plan, Target
from dagc.ir.program import LOOP, Graph
from dagc.lab.configurations import configurations, open_decisions
from dagc.lab.orders import domain_of
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import Finished, launch
from dagc.passes import graph_with_diagnostics
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.enqueue import by_phases, prove_phases
from dagc.space.proof import NotProved, Prover
from tests.emit.build import graph_of, plan
from tests.emit.together import build_together
from tests.library.conftest import needs_mpi

pytestmark = needs_mpi
COOL = Path(__file__).parent / "data/cool.dag"
HEAT = Path(__file__).parents[2] / "benchmarks/gpu/short/heat.dag"
MODULE = runpy.run_path(str(COOL.with_suffix(".py")))
SIZES = 13, 11

# ---- which programs ----

PROGRAM = """
program sums
array x : f64[64] inout
array y : f64[1] on pinned
array last : f64[1]
{cuda}
kernel add(x: inout f64[64]) {{ gpu {{ {launch} cuda \"\"\" {body} \"\"\" }} }}
kernel fin(last: out f64[1], x: in f64[64]) {{ gpu {{ launch grid(1) block(1) cuda \"\"\" last[0] = x[0]; \"\"\" }} }}
dag repeat 3 until y > 2 {{
  add : gpu add(x)
  {op}
  fin : gpu fin(last, x)
  show : gpu copy(y, last)
}}
"""
ADD = {"body": "x[blockIdx.x * 32 + threadIdx.x] += 1;", "launch": "launch grid(2) block(32)", "cuda": "", "op": ""}


def _found(**changed: str) -> tuple[Graph | None, list[str]]:
    text = PROGRAM.format(**{**ADD, **changed})
    program = lower(parse_with_includes(Source("test.dag", text)), {"loop": "persistent", "transport": "peer"})
    graph, findings = graph_with_diagnostics(program)
    return graph, [d.message for d in findings if d.code == "host-loop"]


def test_phases_end_where_an_op_depends_on_one_of_them() -> None:
    graph, notes = _found()
    assert graph is not None
    assert (graph.phases, graph.streams, notes) == (((0,), (1,)), 1, [])
    cool = api.load_graph(COOL)
    assert api.load_graph(COOL, {"threads": 16}).phases == ()  # threads of smaller blocks meet
    assert cool.phases == ((0,), (1,), (2,), (3, 4))  # the copy and the sum; what only the host would read is left out


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"body": "x[threadIdx.x] += __ldg(x);"}, "what it reads by `__restrict__` or `__ldg` counts as constant"),
        ({"launch": "launch grid(2) block(32) shared(64)"}, "its launch has dynamic shared memory"),
        (
            {"cuda": 'cuda """ __device__ int at() { return blockIdx.x; } """', "body": "x[at()] += 1;"},
            "`at` uses `blockIdx`",
        ),
        ({"cuda": 'cuda """\n#define AT threadIdx.x\n"""', "body": "x[AT] += 1;"}, "a macro contains `threadIdx`"),
        ({"op": "all : mpi reduce(x, x, sum, 0)"}, "not all ranks of the program run it, or have its result"),
        ({"launch": "", "body": "", "cuda": ""}, ""),
    ],
)
def test_a_note_says_why_a_graph_repeats_the_dag(changed: dict[str, str], why: str) -> None:
    if not why:  # a function of the host that launches
        text = PROGRAM.format(**{**ADD, "launch": "", "body": "x[0] += 1;"}).replace('cuda """ x[0] += 1;', 'cpp """')
        program = lower(parse_with_includes(Source("test.dag", text)), {"loop": "persistent"})
        (note,) = (d.message for d in graph_with_diagnostics(program)[1] if d.code == "host-loop")
        assert note == "loop=persistent: op `add`: it is not a CUDA kernel that is launched, so a graph repeats the dag"
        return
    graph, (note,) = _found(**changed)
    assert graph is not None
    assert graph.phases == ()
    assert note.startswith("loop=persistent: op `")
    assert why in note
    assert note.endswith(", so a graph repeats the dag")


def test_forms_that_need_no_cache_of_constants_stay() -> None:
    """`freedom` adds `__restrict__`, which the functions of a kernel that goes on do not have."""
    made = plan(COOL, Target.CUDA, **{"changes.form.freedom": "2"})
    text = emit(made)["kernels.cu"]
    assert made.graph.phases
    assert "void changes_block" in text
    assert "__restrict__" not in text.partition("changes_block")[2]


def test_it_is_one_implementation() -> None:
    opened = open_decisions(api.load(COOL), ["capture", LOOP], ())
    found, _ = configurations(opened, lambda choices: api.load_graph(COOL, choices))
    by_loop = {
        str(c.configuration[LOOP]): c for c in found if c.configuration["capture"] or c.configuration[LOOP] == "host"
    }
    assert by_loop.keys() == {"host", "device", "persistent"}
    sizes = {name: domain_of([(c.configuration, c.graph)]).size() for name, c in by_loop.items()}
    assert sizes["persistent"] == 1
    assert sizes["device"] == sizes["host"]
    assert sizes["host"] is not None
    assert sizes["host"] > 1


def test_each_wait_of_all_blocks_is_needed() -> None:
    graph = api.load_graph(COOL)
    prove_phases(graph)
    for k in range(len(graph.phases) - 1):
        joined = replace(graph, phases=_joined(graph, k))
        with pytest.raises(NotProved, match="may start before"):
            prove_phases(joined)
    again = replace(graph, phases=(graph.phases[0], *graph.phases))
    assert any("is issued twice" in gap.reason for gap in Prover(graph).gaps(by_phases(again)))


def _joined(graph: Graph, k: int) -> tuple[tuple[int, ...], ...]:
    """Its phases without the wait after phase k."""
    phases = graph.phases
    return (*phases[:k], phases[k] + phases[k + 1], *phases[k + 2 :])


def test_a_kernel_whose_threads_meet_is_known() -> None:
    program = api.load(COOL)
    found = {op.name: within(program, op) for op in program.kernel_ops}
    assert all(not isinstance(one, Refusal) for one in found.values())
    flags = {name: (one.meets, one.shaped) for name, one in found.items() if not isinstance(one, Refusal)}
    assert flags == {"step": (False, False), "turn": (False, False), "changes": (True, True), "top": (True, True)}


# ---- benches, on the host target ----


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """`joined`: without the first of the waits. `narrow`: with blocks of 16 threads, which meet, beside those of 32."""
    folder = tmp_path_factory.mktemp("cool")
    made = plan(COOL, Target.HOST)
    joined = replace(made, graph=replace(made.graph, phases=_joined(made.graph, 0)))
    other = plan(COOL, Target.HOST, threads="16")
    narrow = replace(other, graph=replace(other.graph, phases=made.graph.phases))
    plans = {"persistent": made, "runner": made, "joined": joined, "narrow": narrow}
    run_setup(made.program, COOL.parent, 1, 0, folder / "data")
    return build_together(plans, folder / "bench", flags=("-O0", "-Werror"), runners={"runner"}), folder / "data"


def _bench(program: Path, data: Path, *options: str | Path, ranks: int = 1) -> Finished:
    """With a driver that has no while nodes, which one kernel does not need."""
    words = [program, "--data", data, "--seconds", "0.001", "--repeats", "2", *options]
    return launch(words, ranks, timeout=60, env={"DAGC_HOST_DRIVER": "12020"})


def _changed(data: Path, to: Path, name: str, value: object, rank: int = 0) -> Path:
    shutil.copytree(data, to)
    np.save(to / f"rank-{rank:04}/{name}.npy", value)
    return to


@pytest.mark.parametrize("name", ["persistent", "narrow"])
def test_it_ends_when_numpy_does(built: tuple[dict[str, Path], Path], tmp_path: Path, name: str) -> None:
    programs, data = built
    done = _bench(programs[name], data, "--json", tmp_path / "out.json").check()
    _, runs, converged = MODULE["solved"](MODULE["plate"](0, 1, 0, *SIZES)["u"])
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["runs"], record["converged"]) == (runs, converged)
    why = "loop=persistent: a graph repeats the dag: blocks of its ops have different numbers of threads, which meet"
    assert (why in done.stderr) is (name == "narrow")
    assert ("the host tests after each iteration: the driver is for CUDA 12.2" in done.stderr) is (name == "narrow")


def test_without_a_wait_results_are_wrong(built: tuple[dict[str, Path], Path]) -> None:
    programs, data = built
    done = _bench(programs["joined"], data)
    assert done.returncode == 1
    assert "u is wrong" in done.stderr


def test_a_value_that_is_not_a_number_never_ends_it(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    spoilt = _changed(data, tmp_path / "data", "tolerance", np.float64("nan"))
    done = _bench(programs["persistent"], spoilt, "--check-only").check()
    assert "not converged, 200 of at most 200 runs" in done.stdout


def test_ranks_whose_tests_disagree_are_an_error(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, _ = built
    run_setup(plan(COOL, Target.HOST).program, COOL.parent, 2, 0, tmp_path / "same")
    _, runs, _ = MODULE["solved"](MODULE["plate"](0, 1, 0, *SIZES)["u"])
    assert f"{runs} of at most 200 runs" in _bench(programs["persistent"], tmp_path / "same", ranks=2).check().stdout
    other = _changed(tmp_path / "same", tmp_path / "other", "tolerance", np.float64(0.1), rank=1)
    done = _bench(programs["persistent"], other, ranks=2)
    assert done.returncode == 5
    assert "the ranks do not agree on `until shown < tolerance`" in done.stderr


def test_a_runner_has_the_kernel(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    made = plan(COOL, Target.HOST)
    table = rows(made.traversal, True, (), made.loop)
    assert table[0][0] is Opcode.LOOP
    (tmp_path / "tables").write_text(";".join(f"{int(kind)},{a},{b}" for kind, a, b in table) + "\n")
    done = _bench(programs["runner"], data, "--tables", tmp_path / "tables").check()
    assert ": good" in done.stdout


PUT = {"transport": "put", "loop": "persistent", "side": "8", "steps": "2"}


def test_messages_that_the_kernel_stores(tmp_path: Path) -> None:
    """Blocks wait for each other before the flags are set, and each for what arrives; another run counts on."""
    made = plan(HEAT, Target.HOST, **PUT)
    names = [[made.graph.ops[op].name for op in phase] for phase in made.graph.phases]
    assert names[:3] == [["halo[0].free"], ["first[0]", "last[0]"], ["halo[0]", "inner[0]"]]
    for k in range(len(names) - 1):
        with pytest.raises(NotProved):
            prove_phases(replace(made.graph, phases=_joined(made.graph, k)))
    run_setup(made.program, HEAT.parent, 3, 0, tmp_path / "data")
    built = build_together({"put": made}, tmp_path / "bench", flags=("-O0", "-Werror"))
    _bench(built["put"], tmp_path / "data", "--repeats", "4", ranks=3).check()


def test_the_text_of_a_kernel_that_stores_messages() -> None:
    text = emit(plan(HEAT, Target.CUDA, **PUT, split="false"))["kernels.cu"]
    kernel = text.partition("void iterations(")[2]
    order = ["free_within", "wait_for", "each_block", "wait_for", "signal_within", "await_within", "each_block"]
    assert re.findall(r"dagc::(free_within|wait_for|each_block|signal_within|await_within)", kernel)[:7] == order
    assert kernel.count("dagc::put_ran(") == 2
    assert "PutEnd" not in text.partition("heat_put_block(")[2].partition("}\n")[0]


def test_kernels_that_wait_for_messages_are_not_part_of_one() -> None:
    graph = api.load_graph(HEAT, {**PUT, "put_wait": "reader"})
    assert graph.phases == ()


def test_blocks_wait_where_what_is_tested_is_written_at_once() -> None:
    """An op of the first phase may change it before the slowest block has read it."""
    text = "\n".join(line for line in PROGRAM.format(**ADD).split("\n") if not line.lstrip().startswith("fin :"))
    text = text.replace("copy(y, last)", "copy(y, x[0 .. 1])").replace("array last : f64[1]\n", "")
    text = "\n".join(line for line in text.split("\n") if not line.startswith("kernel fin"))
    waiting = "dagc::wait_for_all_blocks();  // and have read what is tested"
    graph = graph_of(text, loop="persistent")
    assert graph.phases == ((0,),)
    assert waiting in emit(Plan(graph, Space(graph).first(), Target.HOST))["kernels.cu"]
    assert waiting not in emit(plan(COOL, Target.HOST))["kernels.cu"]

"""Ops that are placed together when the program starts: as the Python twin places them, whatever the expected times."""

from __future__ import annotations

import math
import re
import runpy
from dataclasses import astuple
from pathlib import Path

import pytest

from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, find_nvcc, gpus
from dagc.choice.feature import asked_features
from dagc.choice.placement import DEVICE, HOST, DeviceLink, Problem, Transfer, Transfers, Value, place
from dagc.choice.selector import c_head
from dagc.ir.plan import ChoiceCall, EmittedChoosers, Placement, Plan, Target, open_variants
from dagc.ir.program import KernelOp
from dagc.measure.launch import launch
from dagc.setup import run_setup
from dagc.space import Space
from dagc.stages.program import read
from tests.emit.build import ROOT, write
from tests.precompiled import precompiled_flags

DAG = ROOT / "tests/emit/data/together.dag"
RANKS, OPS = 2, "abcd"
UNSURE = 90e-6  # seconds of the first implementation, from which on the test's choosers are not sure
SECOND = 2  # the side of the second GPU
SIDES = (DEVICE, HOST, HOST, SECOND)  # of the implementations, in the order of the text
NAMES = ("gpu.naive", "cpu.naive", "cpu.back", "gpu1.naive")
FASTER = 0.8  # the seconds on the second GPU, of those on the first
TRANSFERS = Transfers(
    Transfer(5e-6, 1e9), Transfer(8e-6, 2e9), (DeviceLink(DEVICE, SECOND, Transfer(1e-6, 1e10)),),
)  # fmt: skip

mpi = find_mpi()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI"),
]

CHOOSER = """
static inline dagc_choice dagc_choose_{op}(const double* x) {{
  dagc_choice choice = {{0, 1, 1, x[0] > {unsure} ? DAGC_UNSURE : DAGC_CHOSEN}};
  return choice;
}}
static inline const int32_t* dagc_answer_{op}(int answer) {{
  static const int32_t answers[4][1] = {{{{0}}, {{1}}, {{2}}, {{3}}}};
  return answers[answer];
}}
static inline const char* dagc_text_{op}(int answer) {{
  static const char* const texts[4] = {{{names}}};
  return texts[answer];
}}
static inline void dagc_predict_{op}(const double* x, double* seconds) {{
  for (int i = 0; i < 3; ++i) seconds[i] = x[i];
  seconds[3] = {faster} * x[0];
}}
"""


def seconds_of(seed: int) -> dict[str, list[float]]:
    """The most over the ranks, of each implementation of each op."""
    seconds = runpy.run_path(str(DAG.with_suffix(".py")))["seconds"]
    of = [seconds(seed, rank) for rank in range(RANKS)]
    most = {op: [max(one[f"s{op}[{i}]"] for one in of) for i in range(3)] for op in OPS}
    return {op: [*times, FASTER * times[0]] for op, times in most.items()}


def expected(seed: int) -> tuple[dict[str, int], float]:
    """The implementation of each op, and the seconds of all."""
    times = seconds_of(seed)
    rows, answers = [], {}
    for op in OPS:
        legal = [0, 1, 2, 3] if seed % 2 else [0, 1, 3]
        unsure = times[op][0] > UNSURE
        sides = (HOST, DEVICE, SECOND)
        best = {s: min((i for i in legal if SIDES[i] == s), key=times[op].__getitem__) for s in sides}
        answers[op] = dict.fromkeys(sides, 0) if unsure else best
        rows.append(tuple(math.inf if unsure and s != DEVICE else times[op][answers[op][s]] for s in sides))
    moves = TRANSFERS.moves(4000, 3)
    values = (
        Value(None, (0,), moves), Value(0, (1, 2), moves), Value(1, (3,), moves), Value(2, (3,), moves),
        Value(3, (4,), moves), Value(4, (), moves, ends=(HOST,)),
    )  # fmt: skip
    found = place(Problem((*rows[:3], (0.0, math.inf, math.inf), rows[3]), values))  # e, which is `cpu`, is the fourth
    sides = dict(zip("abced", found.placement, strict=True))
    return {op: answers[op][sides[op]] for op in OPS}, found.seconds


def plan(target: Target) -> Plan:
    """With a chooser whose expected times are features: scalars that the set-up draws."""
    graph = read(DAG).with_open_devices().graph()
    ops = {o.op.name: o.op for o in graph.ops if isinstance(o.op, KernelOp)}
    opened = tuple(t for op in OPS for t in open_variants(graph.program, ops[op]))
    choices = []
    for name in OPS:
        kernel = next(k for k in graph.program.kernels if k.name == ops[name].kernel)
        features = asked_features(graph.program, ops[name], kernel.selects[0].args)
        choices.append(
            ChoiceCall(
                f"dagc_choose_{name}", f"dagc_answer_{name}", name, tuple(f.expression for f in features),
                (f"{name}.variant",), "", f"dagc_text_{name}", len(NAMES), predict=f"dagc_predict_{name}",
            )
        )  # fmt: skip
    names = ", ".join(f'"{name}"' for name in NAMES)
    source = c_head() + "".join(CHOOSER.format(op=op, unsure=UNSURE, names=names, faster=FASTER) for op in OPS)
    placement = Placement(tuple(tuple(astuple(TRANSFERS.between(a, b)) for b in range(3)) for a in range(3)))
    chooser = EmittedChoosers(source, tuple(choices), placement=placement)
    return Plan(graph, Space(graph).first(), target, open=opened, chooser=chooser)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together") / "out"
    write(plan(Target.HOST), folder)
    return build(
        Build([folder / "bench.cpp"], mpi=require_mpi(), flags=("-O0", *precompiled_flags())), folder / "bench"
    )


def test_the_program_places_its_ops_as_the_python_twin_does(program: Path) -> None:
    answers = set()
    for seed in range(8):
        data = program.parent / f"data-{seed}"
        run_setup(read(DAG).program(), DAG.parent, RANKS, seed, data)
        done = launch([program, "--check-only", "--verbose", "--data", data], RANKS, env={}, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        wanted, seconds = expected(seed)
        for op, answer in wanted.items():
            assert re.search(rf"^{op}: {re.escape(NAMES[answer])} \(", done.stdout, re.MULTILINE), (seed, done.stdout)
        line = next(line for line in done.stdout.splitlines() if line.startswith("placement: "))
        assert float(line.partition(": ")[2].partition(": ")[2].split()[0]) == pytest.approx(seconds * 1e6, rel=1e-3)
        answers.add(tuple(wanted.values()))
    assert len(answers) > 3  # the cases differ
    assert {answer for one in answers for answer in one} == set(range(len(NAMES)))


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or bool(gpus()), reason="needs nvcc, and no GPU")
@pytest.mark.thorough
def test_without_a_gpu_all_ops_are_placed_on_the_cpu(tmp_path: Path) -> None:
    write(plan(Target.CUDA), tmp_path / "out")
    flags = ("-O0", "-Xptxas=-O0")
    built = build(Build([tmp_path / "out/bench.cu"], target="cuda", mpi=require_mpi(), flags=flags), tmp_path / "bench")
    for seed in (0, 3):
        run_setup(read(DAG).program(), DAG.parent, RANKS, seed, tmp_path / f"data-{seed}")
        done = launch([built, "--check-only", "--verbose", "--data", tmp_path / f"data-{seed}"], RANKS, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr.count("note: no GPU found: all ops run on the CPU") == 1
        assert "gpu." not in done.stdout

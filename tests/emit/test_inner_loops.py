"""`if` whose condition is a value on the device: loops within an iteration end where the device finds it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from dagc.ir.enums import Mode
from dagc.ir.plan import Plan, Target
from dagc.ir.program import KernelOp
from dagc.ir.repetition import possible
from dagc.measure.launch import launch
from dagc.setup import run_setup
from tests.emit.build import plan
from tests.emit.together import build_together
from tests.library.conftest import needs_mpi

INNER = Path(__file__).parent / "data/inner.dag"
WAYS = ("host", "device", "persistent")
pytestmark = needs_mpi


def _plan(way: str) -> Plan:
    return plan(INNER, Target.HOST, loop=way)


def test_kernels_below_ask_for_what_was_decided_once() -> None:
    program = _plan("host").program
    ops = {op.name: op for op in program.ops if isinstance(op, KernelOp)}
    assert [(a.region.array, a.mode) for a in ops["largest[2]"].accesses] == [
        ("if_change[2]", Mode.IN), ("change", Mode.INOUT), ("u", Mode.IN),  # what it does not write stays
    ]  # fmt: skip
    texts = {k.name: k.impls[0].code.text for k in program.kernels if k.impls[0].code is not None}
    assert texts["decide_f64_ge"] == "holds[0] = (double)value[0] >= bound ? 1 : 0;\n"
    assert texts["decide_i32_gt_in_if"].startswith("holds[0] = outer[0] != 1 ? -1 : ")  # and neither branch runs
    assert [(texts[f"add_{b}"] or "").splitlines()[0].strip() for b in ("if", "else")] == [
        f"if (holds[0] != {k}) return;" for k in (1, 0)
    ]


def test_they_end_when_numpy_does(tmp_path: Path) -> None:
    plans = {way: _plan(way) for way in WAYS}
    assert [possible(made.graph).value for made in plans.values()] == [*WAYS]
    run_setup(plans["host"].program, INNER.parent, 1, 0, tmp_path / "data")
    module = runpy.run_path(str(INNER.with_suffix(".py")))
    data, runs = module["start"](0, 1, 0, 100), 0
    while runs == 0 or data["done"][0] <= 20_000:
        data, runs = {**data, **module["once"](data, n=100, most=6)}, runs + 1
    assert 1 < runs < 30
    for way, program in build_together(plans, tmp_path / "bench", flags=("-O0", "-Werror")).items():
        words = [program, "--data", tmp_path / "data", "--seconds", "0.001", "--repeats", "2"]
        launch([*words, "--json", tmp_path / way], 1, timeout=60).check()  # compares after one run and after five
        found = json.loads((tmp_path / way).read_text())
        assert (found["runs"], found["converged"]) == (runs, True), way

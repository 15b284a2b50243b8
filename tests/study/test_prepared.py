"""Conversions while variants are tuned, and in the program that chooses among them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi, thread_sanitizer_environment
from dagc.emit import emit
from dagc.ir.choice import Choice
from dagc.ir.plan import (
    ChoiceCall,
    CodeFeature,
    EmittedChoosers,
    Features,
    Plan,
    Target,
    feature_variable,
    open_variants,
)
from dagc.ir.program import CodeText, KernelOp
from dagc.ir.sym import Var
from dagc.lab.launches import Launches, Timing, verify
from dagc.measure.launch import launch
from dagc.measure.service import Service, WorkerLink
from dagc.recipes import tune as tune_recipe
from dagc.setup import run_setup
from dagc.space import Space
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.measure import sized_program
from dagc.study.prepare import prepare
from dagc.study.task import tuning_task
from tests.emit.test_prepare import PREPARED
from tests.precompiled import precompiled_flags
from tests.study.programs import write_sums

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]
VARIANTS = {"csr": 0, "ell": 1}
SLOW = "for (int again = 0; again < 40; ++again) sum += again ? 1e-30f : val[k] * x[col[k]];"  # so that ELL is faster


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of tests/emit/data, 40 times, and with an input that is named by a call."""
    folder = tmp_path_factory.mktemp("prepared")
    text = PREPARED.read_text().replace("param rows : i64 = 300", 'param rows : str = "made(n = 300)" over files("*")')
    text = text.replace("sum += val[k] * x[col[k]];", SLOW).replace("dag {", "dag repeat 400 {")
    (folder / "prepared.dag").write_text(text)
    module = PREPARED.with_suffix(".py").read_text().replace("n = rows\n", 'n = call(rows, {"made": lambda n: n})\n')
    (folder / "prepared.py").write_text(
        module.replace("import numpy as np", "import numpy as np\nfrom dagc.inputs import call")
    )
    return folder / "prepared.dag"


def test_what_is_chosen_is_prepared_and_timed(program: Path, tmp_path: Path) -> None:
    ready = prepare(tuning_task(api.read(program), target="host", ranks=2, inputs=("made(n = 300)",)), tmp_path)
    sized = sized_program(ready, ready.task.check_at)
    base = [("first.variant", 0), ("second.variant", 0), ("again.variant", 0)]
    with Service(WorkerLink(2)) as service:
        machine = Launches(
            service, sized, sized.ops[1], base, lambda s: [(n, VARIANTS[str(v)]) for n, v in s.items()],
            timing=Timing(seconds=0.01), tolerance=(1e-3, 0.0),
        )  # fmt: skip
        assert machine.measure(Choice.at("second", [("variant", "csr")])).value > 0
        ask = {"do": "preparations", "limit": 10.0}
        assert service.ask(sized.library, **ask)["seconds"] == {"first ell": 0, "second ell": 0, "again ell": 0}
        assert machine.measure(Choice.at("second", [("variant", "ell")])).value > 0
        taken = service.ask(sized.library, **ask)["seconds"]
        assert taken["first ell"] == taken["again ell"] == 0
        assert 0 < taken["second ell"] < 10
        assert verify(service, sized, base, [("again.variant", 1)], 60.0) == ""
        taken = service.ask(sized.library, **ask)["seconds"]
        assert 0 < taken["first ell"] < taken["again ell"], "the matrix of both, and the sums of `again`"
        assert verify(service, sized, base, [("first.variant", 1), ("second.variant", 0)], 60.0) == ""


@pytest.fixture(scope="module")
def tuned(program: Path) -> Path:
    path = program.parent / "tuned.db"
    calls = tuple(f"made(n = {n})" for n in (100, 200, 300, 400))
    done = tune_recipe.tune(program, path, TuneOptions(target="host", cell=0.005, inputs=calls))
    assert not done.failures
    assert any(note.startswith("second ell: conversion ") for note in done.notes), done.notes
    return path


def test_conversions_are_kept_by_op_and_variant(tuned: Path) -> None:
    for facts in load_tuned(tuned).facts.inputs:
        assert facts.conversions.keys() == {"first", "second", "again"}
        assert all(0 < taken["ell"] < 10 for taken in facts.conversions.values())


# ---- beside the runs ------------------------------------------------------------------------------------------


def compiled(program: Path, tuned: Path, out: Path, **options: Any) -> Path:
    defines = {"capture": True}
    return api.compile(
        program, out, defines=defines, launch=str(tuned), features="beside", target="host", build=False, **options
    ).directory


def bench(folder: Path, data: Path, ranks: int, sanitize: str = "") -> tuple[str, Any]:
    """The output, and the record."""
    mpi = require_mpi()
    flags = ("-O0", *precompiled_flags())
    program = build(Build(["bench.cpp"], directory=folder, mpi=mpi, sanitize=sanitize, flags=flags), folder / "bench")
    words = [program, "--data", data, "--verbose", "--seconds", "0.001", "--repeats", "1", "--json", folder / "record"]
    done = launch(words, ranks, env=thread_sanitizer_environment(mpi) if sanitize else {}, timeout=300)
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "record").read_text())


def test_a_program_switches_beside_its_runs(program: Path, tuned: Path, tmp_path: Path) -> None:
    """Its graphs are captured again, and results agree before and after. ThreadSanitizer is silent."""
    folder = compiled(program, tuned, tmp_path / "out")
    header = folder / "program.hpp"  # with another price: times of a loaded machine say little
    header.write_text(re.sub(r"(double least_runs = )[\d.e+]+;", r"\g<1>1.0;", header.read_text()))
    assert "double least_runs = 1.0;" in header.read_text()
    run_setup(api.load(program), program.parent, 2, 1, tmp_path / "data")
    said, record = bench(folder, tmp_path / "data", 2, "thread")
    assert "beside the first runs: first: ell, second: ell, again: ell after " in said
    assert 1 <= record["switched_after"] < 400
    assert [one["answer"] for one in record["choices"]] == ["ell", "ell", "ell"]
    # What would take longer to pay for than there are runs left is not converted.
    header.write_text(
        re.sub(r"(dagc::Payoff of_\d\[\] = \{\{0.0, 0.0\}, \{[^,]*), [^}]*\}", r"\1, 1e9}", header.read_text())
    )
    assert header.read_text().count(", 1e9}") == 3
    said, record = bench(folder, tmp_path / "data", 2)
    assert "beside the first runs: the runs that are left do not pay for it" in said
    assert record["switched_after"] == -1
    assert [one["answer"] for one in record["choices"]] == ["csr", "csr", "csr"]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"launch": "fixed"}, "is for a program that chooses when it runs"),
        ({"dag repeat 400 {": "dag {"}, {}, "the dag runs once, so no later run gains"),
    ],
    ids=["nothing", "once"],
)
def test_where_nothing_can_pay(
    program: Path, tuned: Path, tmp_path: Path, changes: dict[str, str], options: dict[str, Any], message: str
) -> None:
    text = program.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    (tmp_path / "prepared.dag").write_text(text)
    chosen = {"launch": str(tuned), "features": "beside", "target": "host", "build": False, **options}
    with pytest.raises(UsageError, match=message):
        api.compile(tmp_path / "prepared.dag", tmp_path / "out", **chosen)


def test_what_is_read_beside_the_runs_is_constant(tmp_path: Path) -> None:
    graph = api.load_graph(write_sums(tmp_path, {"array ptr : i32[n + 1] const": "array ptr : i32[n + 1] in"}))
    (op,) = (o.op for o in graph.ops if isinstance(o.op, KernelOp))
    code = next(f.value for k in graph.program.kernels for f in k.features if isinstance(f.value, CodeText))
    longest = CodeFeature(feature_variable(op, "longest"), op, code)
    choice = ChoiceCall("choose", "table", "y", (Var(longest.name),), ("y.variant",), answers=3)
    chooser = EmittedChoosers("", (choice,), mode=Features.BESIDE)
    plan = Plan(graph, Space(graph).first(), Target.HOST, open=open_variants(graph.program, op), chooser=chooser,
                features=(longest,))  # fmt: skip
    with pytest.raises(UsageError, match="a feature reads `ptr`, which is not `const`"):
        emit(plan)

"""Conversions while variants are tuned, and in the program that chooses among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.lab.launches import Launches, Timing, verify
from dagc.measure.link import WorkerLink
from dagc.measure.service import Service
from dagc.recipes import tune as tune_recipe
from dagc.recipes.options import TuneOptions
from dagc.recipes.tune_measure import sized_program
from dagc.recipes.tune_prepare import prepare, tuning_task
from dagc.store.tuned import load_tuned
from tests.emit.test_prepare import PREPARED

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]
VARIANTS = {"csr": 0, "ell": 1}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of tests/emit/data, 40 times, and with an input that is named by a call."""
    folder = tmp_path_factory.mktemp("prepared")
    text = PREPARED.read_text().replace("param rows : i64 = 300", 'param rows : str = "made(n = 300)" over files("*")')
    (folder / "prepared.dag").write_text(text.replace("dag {", "dag repeat 40 {"))
    module = PREPARED.with_suffix(".py").read_text().replace("n = rows\n", 'n = call(rows, {"made": lambda n: n})\n')
    (folder / "prepared.py").write_text(
        module.replace("import numpy as np", "import numpy as np\nfrom dagc.inputs import call")
    )
    return folder / "prepared.dag"


def test_what_is_chosen_is_prepared_and_timed(program: Path, tmp_path: Path) -> None:
    ready = prepare(tuning_task(api.read(program), target="host", ranks=2, inputs=("made(n = 300)",)), tmp_path)
    sized = sized_program(ready, ready.task.check_at)
    base = [("first.variant", 0), ("second.variant", 0)]
    with Service(WorkerLink(2)) as service:
        machine = Launches(
            service, sized, sized.ops[1], base, lambda s: [(f"second.{n}", VARIANTS[str(v)]) for n, v in s],
            timing=Timing(seconds=0.01), rtol=1e-3,
        )  # fmt: skip
        assert machine.measure((("variant", "csr"),)).value > 0
        ask = {"do": "preparations", "limit": 10.0}
        assert service.ask(sized.library, **ask)["seconds"] == {"first ell": 0, "second ell": 0}
        assert machine.measure((("variant", "ell"),)).value > 0
        taken = service.ask(sized.library, **ask)["seconds"]
        assert taken["first ell"] == 0
        assert 0 < taken["second ell"] < 10
        assert verify(service, sized, base, [("first.variant", 1), ("second.variant", 0)]) == ""


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
        assert facts.conversions.keys() == {"first", "second"}
        assert all(0 < taken["ell"] < 10 for taken in facts.conversions.values())

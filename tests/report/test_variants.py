"""The page of a tuned file with variants: what it says, of test inputs and without any."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dagc.store.tuned import Tuned
from dagc.study.held_out import site_of
from dagc.study.judge import judged_at
from dagc.study.report import site_view, variants_page
from dagc.study.results import minimised
from tests.report.tuned import NAMES, SETTINGS, tuned_file


@pytest.fixture(scope="module")
def tuned() -> Tuned:
    return tuned_file()


def test_what_the_file_holds(tuned: Tuned) -> None:
    found = site_of(tuned, "y").table
    assert len(found.rows) == 79, "one test input lacks a feature"
    assert (len(found.part(True).rows), len(found.part(False).rows)) == (29, 50)
    assert 0 not in found.times[0], "what was wrong has no time"
    refused = [i for i, (_, fill) in enumerate(found.features) if fill >= 10]
    assert refused
    assert all(found.times[i][2] == float("inf") for i in refused), "what was not run is not allowed there"
    assert 0 < found.tolerance < 0.02


def test_test_inputs_judge(tuned: Tuned) -> None:
    view = site_view(site_of(tuned, "y"), minimised(tuned))
    selector = tuned.kernel_choosers["y"].selector
    assert selector is not None
    at = site_of(tuned, "y").table.part(True)
    said = [selector.ask(x) for x in at.features]
    answers = [answer.label if answer.sure >= selector.least_sure else 0 for answer in said]
    expected = judged_at(at, answers, 0, at.tolerance)
    assert view.judged == "Evaluated at 29 test inputs that were not used for training."
    assert view.tiles[0][:2] == ("percent of exhaustive", f"{100 * expected.all.percent:.1f} %")
    assert view.bars[0].share == expected.all.percent
    assert [bar.name for bar in view.bars[1:-1]] == [
        f"always {SETTINGS[answer].variant}" for answer, _ in expected.all.singles
    ]
    assert sum(count for _, _, count in view.legend) == len(view.marks) == 79
    assert [m.name for m in view.mistakes] == [verdict.name for verdict in expected.wrong]
    assert sum(mark.wrong for mark in view.marks) == len(expected.wrong)
    assert {axis.name for axis in view.axes} == set(NAMES)
    assert view.weights[0][1] >= view.weights[1][1]
    assert [curve.name for curve in view.curves] == ["as measured", "at random"]
    assert all((curve.steps[0][0], curve.steps[-1][0]) == (3, 50) for curve in view.curves)
    assert view.curves[0].steps[-1][1:] == view.curves[1].steps[-1][1:], "the same inputs in the end"


def test_without_test_inputs_by_cross_validation() -> None:
    tuned = tuned_file(tests=0)
    view = site_view(site_of(tuned, "y"), minimised(tuned))
    assert view.judged.startswith("Evaluated by cross-validation")
    assert 0.8 < view.bars[0].share < 1
    assert view.curves[0].steps[-1][0] == 40, "every fifth judges"


def test_without_a_selector(tuned: Tuned) -> None:
    unlearned = replace(tuned, choosers={"y": replace(tuned.kernel_choosers["y"], selector=None)})
    view = site_view(site_of(unlearned, "y"), minimised(unlearned))
    assert (view.tiles, view.bars, view.mistakes, view.weights, view.curves) == ((), (), (), (), ())
    assert len(view.marks) == 79
    page = variants_page(unlearned, "0")
    assert "No selector was learned" in page
    assert "No evaluation" in page


def test_one_feature_is_drawn_against_what_the_best_gains(tuned: Tuned) -> None:
    inputs = tuple(
        replace(one, features={"y": {n: v for n, v in one.features["y"].items() if n == "rows"}})
        for one in tuned.facts.inputs
    )
    chooser = replace(tuned.kernel_choosers["y"], selector=None, data=("rows",))
    one = replace(tuned, choosers={"y": chooser}, facts=replace(tuned.facts, inputs=inputs))
    view = site_view(site_of(one, "y"), minimised(one))
    assert [axis.name for axis in view.axes] == ["rows", "t_default / t_best"]
    assert all(mark.y >= 1 for mark in view.marks)


def test_the_page_escapes_and_loads_nothing(tuned: Tuned) -> None:
    page = variants_page(tuned, "1.2")
    assert "spmv&lt;/script&gt;" in page
    assert "spmv</script>" not in page
    assert "train/&lt;" in page
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert page.count("<section") == 1
    assert "NVIDIA H200" in page


def test_a_file_tuned_for_energy_is_judged_by_energy(tuned: Tuned) -> None:
    """Here the joules of an answer are the greater the less its time is."""
    samples = tuple(
        (cell, replace(sample, metrics={"energy": 1e-9 / min(sample.times)}) if sample.times else sample)
        for cell, sample in tuned.samples
    )
    by_energy = replace(tuned, samples=samples, facts=replace(tuned.facts, objective="energy"))
    by_time, found = (site_of(t, "y").table for t in (tuned, by_energy))
    slowest = [max(at, key=lambda a: at[a] if at[a] < float("inf") else 0) for at in by_time.times]
    assert [min(at, key=at.__getitem__) for at in found.times] == slowest
    assert re.search(r"\d uJ", site_view(site_of(by_energy, "y"), minimised(by_energy)).marks[0].tip)

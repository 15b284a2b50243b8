"""The text of a program that chooses the variant of a kernel, on both targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagc.choice.choose import emitted
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.emit import emit
from dagc.ir.plan import Features, Plan, Target
from dagc.perf.hardware import load_hardware
from dagc.space import Space
from tests.conftest import Compare
from tests.emit.build import graph_of
from tests.study.programs import SUMS

GOLDEN = Path(__file__).parents[1] / "golden/emit"


def sums(target: Target, mode: Features = Features.NOW) -> Plan:
    """By the nearest of two measured inputs: `called` for rows of 3, four lanes for a row of 203."""
    graph = graph_of(SUMS)
    (site,) = open_sites(graph, variants=True)
    legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
    anchors = [({"longest": 3, "mean": 3.0}, legal[3]), ({"longest": 203, "mean": 6.125}, legal[2])]
    chooser = site_chooser(
        graph, site, legal, load_hardware("h200"), ModelInputs("exhaustive"),
        anchors=anchors, asked=("longest", "mean"),
    )  # fmt: skip
    codes = tuple(code for feature in chooser.features for code in feature.code)
    choices = replace(emitted([chooser]), mode=mode)
    return Plan(graph, Space(graph).first(), target, open=site.open, chooser=choices, features=codes)


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
def test_the_text(target: Target, golden: Compare) -> None:
    files = emit(sums(target))
    for name in ("iteration.hpp", *(("program.hpp", "chooser.h") if target is Target.HOST else ("kernels.cu",))):
        golden(GOLDEN / f"sums-{target.value}-variants" / f"{name}.golden", files[name])


def test_the_program_waits_for_features_before_the_op_that_is_chosen() -> None:
    files = emit(sums(Target.HOST, Features.ASYNC))
    assert files["iteration.hpp"].index("p.settle();") < files["iteration.hpp"].index("p.y_variant == 0")
    assert "p.settle" not in emit(sums(Target.HOST, Features.PARALLEL))["iteration.hpp"]


def test_features_of_constraints_are_computed_at_once() -> None:
    """With `parallel` those that only a `require` needs have threads of their own; else they wait for its variant."""
    text = SUMS.replace("knn(longest, mean)", "knn(mean)")
    started = {}
    for mode in (Features.NOW, Features.PARALLEL):
        graph = graph_of(text)
        (site,) = open_sites(graph, variants=True)
        legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
        chooser = site_chooser(
            graph, site, legal, load_hardware("h200"), ModelInputs("exhaustive"),
            anchors=[({"mean": 3.0}, legal[3]), ({"mean": 6.0}, legal[2])], asked=("mean",),
        )  # fmt: skip
        for constraints in (True, False):
            choices = replace(emitted([chooser]), mode=mode, constraints=constraints)
            plan = Plan(graph, Space(graph).first(), Target.HOST, open=site.open, chooser=choices)
            started[mode, constraints] = "[this] { once(0); }" in emit(plan)["program.hpp"]
    assert started == {
        (Features.NOW, True): False, (Features.NOW, False): False,
        (Features.PARALLEL, True): True, (Features.PARALLEL, False): False,
    }  # fmt: skip

"""Choosers with a learned selector: what was measured, what was learned, what can be launched; Python against C."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.choice.choose import Anchor, Chooser, Reason, emitted
from dagc.choice.feature import SelectorFeature
from dagc.choice.learners.knn import Knn
from dagc.choice.learners.tree import TreeSelector
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.methods import LEARNED, fit
from dagc.choice.models import ModelInputs, site_chooser
from dagc.choice.nodes import Split
from dagc.choice.selector import Answer, Extent, Scale
from dagc.choice.types import Site
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.sym import Apply, Fn, Var
from dagc.perf.hardware import load_hardware
from tests.conftest import Compare
from tests.imports import ROOT

SAMPLES = ROOT / "samples" / "polybench"
SIZES = [{"ni": ni, "nj": nj} for ni in (64, 1000, 60_000) for nj in (64, 500, 8192)]


def block(op: str, x: int, y: int) -> Choice:
    return Choice.at(op, [("bx", x), ("by", y)])


def chooser(program: str, method: str, choices: list[Choice] | None = None) -> Chooser:
    """Trained on labels that the sizes give; two sizes were measured besides."""
    graph = api.load_graph(SAMPLES / f"{program}.dag")
    site = open_sites(graph)[0]
    legal = choices or list(legal_settings(graph, site, {"max_threads_per_block": 1024}))
    labels = [(s["nj"] > 100) + (s["ni"] > 500) for s in SIZES]
    selector = fit(method, ["nj", "ni"], [[s["nj"], s["ni"]] for s in SIZES], labels)
    anchors = [({"ni": 300, "nj": 77}, legal[-1]), ({"ni": 4000, "nj": 100}, legal[1])]
    return site_chooser(
        graph, site, legal, load_hardware("h200"), anchors=anchors, model=ModelInputs("measured"), selector=selector
    )  # fmt: skip


def test_what_was_measured_is_believed_and_else_the_selector_is_asked() -> None:
    made = chooser("syrk", "tree")
    assert isinstance(made.selector, TreeSelector)
    assert made.choose({"ni": 300, "nj": 77}) == len(made.choices) - 1
    for sizes in SIZES:
        assert made.choose(sizes) == made.selector.choose([sizes["nj"], sizes["ni"]])
    assert made.why(SIZES[0], 0) == made.selector.text
    assert made.data == ("ni", "nj")


def test_a_choice_that_cannot_be_launched_is_not_taken() -> None:
    """A block of one row would need more rows of blocks than CUDA has."""
    choices: list[Choice] = [block("conv", 256, 1), block("conv", 128, 1), block("conv", 32, 8)]
    made = chooser("2dconv", "tree", choices)
    assert made.selector is not None
    assert made.selector.choose([64, 70_000]) in (0, 1)
    assert made.choose({"ni": 70_000, "nj": 64}) == 2
    assert made.choose({"ni": 60_000, "nj": 64}) in (0, 1)


@pytest.mark.parametrize("method", LEARNED)
def test_emitted_choosers_are_c99_without_warnings(method: str, tmp_path: Path) -> None:
    narrow: list[Choice] = [block("conv", 256, 1), block("conv", 128, 1), block("conv", 32, 8)]
    found = [chooser("syrk", method), chooser("2dconv", method, narrow)]
    (tmp_path / "choose.c").write_text(emitted(found).source)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, str(tmp_path / "choose.c")], check=True)
    for made in found:
        assert made.selector is not None
        assert made.choice.predict == (f"dagc_predict_{made.op}" if made.selector.predicts else "")


def test_the_times_of_answers_are_those_of_the_selector() -> None:
    """One answer was never timed."""
    made = chooser("syrk", "cost")
    assert made.selector is not None
    for sizes in SIZES:
        expected = made.selector.seconds([sizes["nj"], sizes["ni"]])
        assert made.predict(sizes) == tuple(expected.get(i, math.inf) for i in range(len(made.choices)))
    assert set(made.predict({"ni": math.nan, "nj": 64})) == {math.inf}


def test_the_text_of_choosers(golden: Compare) -> None:
    """A tree with measured bests, and neighbours, over features of every scale, after the common head."""
    choices: list[Choice] = [block("fill[0]", 32, 8), block("fill[0]", 64, 4), block("fill[0]", 16, 16)]
    features = (SelectorFeature("share", Var("share")), SelectorFeature("n / m", Apply(Fn.DIV, (Var("n"), Var("m")))))
    scales = (Scale("linear", -1.0, 1.0), Scale("log", 0.25))
    tree = TreeSelector(
        ("share", "n / m"), scales, Split(0, 0.5, Split(1, 3.25, Answer(0, 1), Answer(2, 0.75)), Answer(1, 1))
    )
    near = Knn(("n / m", "share"), scales[::-1], ((1.0, 0.0), (8.0, 0.5)), (0, 1), 2, "distance")
    extent = Extent((("share", 0.0, 0.5), ("n / m", 1.0, 8.0)))
    site = Site("fill[0]", tuple(choices))
    plans = Site(PROGRAM, (Choice((("m", 4),)), Choice((("m", 8),))))
    learned = Chooser(site, features, anchors=(Anchor((0.25, 1.0), 1),), selector=tree, extent=extent)
    text = emitted([learned, Chooser(plans, features, selector=near)]).source
    golden(ROOT / "tests/golden/choice/chooser.h.golden", text)


def test_a_feature_that_is_not_finite_gets_the_default_and_leaves_nothing_behind() -> None:
    near = Knn(("share",), (Scale("linear", 0.0, 1.0),), ((0.0,), (1.0,)), (0, 1), 1, "uniform")
    site = Site(PROGRAM, (Choice((("m", 4),)), Choice((("m", 8),))))
    made = Chooser(site, (SelectorFeature("share", Var("share")),), selector=near)
    asked = (0.9, math.nan, 0.9, -math.inf, 0.1)
    assert [made.choose({"share": v}) for v in asked] == [1, 0, 1, 0, 0]


def test_among_variants_the_default_is_taken_where_the_selector_is_unsure_or_far_outside() -> None:
    """Two of three neighbours; 64 and 640 are the measured range."""
    near = Knn(("n",), (Scale(),), ((64.0,), (128.0,), (640.0,)), (1, 1, 0), 3, "uniform", least_sure=0.6)
    names = ("row", "ell", "dia")
    site = Site("y", tuple(Choice.at("y", [("variant", name)]) for name in names), variants=names)
    far = Extent((("n", 64.0, 640.0),))
    made = Chooser(site, (SelectorFeature("n", Var("n")),), selector=near, extent=far)
    assert [made.decide({"n": n}) for n in (100.0, 15.0, 2561.0, 2559.0, math.nan)] == [
        (1, Reason.CHOSEN),
        (0, Reason.OUTSIDE),
        (0, Reason.OUTSIDE),
        (1, Reason.CHOSEN),
        (0, Reason.NOT_FINITE),
    ]
    unsure = replace(made, selector=replace(near, least_sure=0.7))
    assert unsure.decide({"n": 100.0}) == (0, Reason.UNSURE)
    blocks = Site("y", tuple(Choice.at("y", [("bx", 32 << k)]) for k in range(3)))
    assert replace(made, site=blocks).decide({"n": 15.0}) == (1, Reason.CHOSEN), "launch settings"
    assert made.order({"n": 100.0}) == (1, 0, 2), "2 is never given by the neighbours"
    assert unsure.order({"n": 100.0}) == (0, 1, 2), "not asked"

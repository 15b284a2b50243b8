"""What is printed: text, Markdown, JSON."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from random import Random

import pytest

from dagc.base.errors import UsageError
from dagc.base.sample import TIME
from dagc.learn.features import Samples
from dagc.learn.judging import accuracy, check
from dagc.learn.text import FORMATS, Findings, render
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Halves
from tests.graphs import make_graph, spmv
from tests.rules.samples import h200_learned, h200_outliers, h200_samples, samples_of


def _findings(sets: int = 3) -> Findings:
    full = h200_learned()
    part = learn(h200_samples()[::10], 0.027, outliers=h200_outliers(), cost=0.002)
    whole = Samples.of(full.samples)
    return Findings(part, check(part, full), accuracy(part, whole, [s.value for s in full.samples]), sets)


def test_text_of_the_h200_data() -> None:
    text = render(Findings(h200_learned()))
    assert "3 performance classes of 2036 implementations" in text
    assert "class 1    1124  68.18 us to 77.56 us, median 74.52 us, width 12.6 % (8.2 x noise)" in text
    assert "Noise floor of these times: 1.5 %." in text
    assert "Boundary at 85.24 us not drawn: the neighbouring classes would differ by 1.3 %" in text
    assert "below the noise floor" in text
    assert (
        "Boundary at 86.38 us not drawn: neither repeated measurements nor any feature distinguish the two sides"
        in text
    )
    assert "Probability of 3 classes by chance alone: 0.0025 or less." in text
    assert "Tree: 22 leaves (of 70 before pruning), depth 8. Error 2.3 % on held-out samples" in text
    assert "\n  1. 432 implementations\n       yr, y in different streams\n" in text
    assert "consistent" not in text


HALVES = Halves(
    halves=4, without=1, accuracy=0.9, constant=0.6, chance=0.4, followers=20, stated=0.4, slower=0.25, loss=0.3,
    loss_95=0.5, tolerance=0.01,
)  # fmt: skip


def test_rules_of_halves_are_printed_with_what_they_are_worth() -> None:
    text = render(Findings(replace(h200_learned(), halves=HALVES)))
    assert (
        "Rules of half of the implementations predict the class of 90.0 % of the other half (one class for all: "
        "60.0 %, random labels: 40.0 %); 1 of 4 halves give no rules.\n"
        "What follows those of class 1 there takes 30.0 % longer than the best (median; 95th percentile 50.0 %); "
        "25.0 % of it is over what is stated of class 1 by more than 1.0 %.\n"
    ) in text
    assert json.loads(render(Findings(replace(h200_learned(), halves=HALVES)), "json"))["held_out_halves"] == {
        "halves": 4, "without_rules": 1, "accuracy": 0.9, "one_class_for_all": 0.6, "random_labels": 0.4,
        "followers_of_class_1": 20, "stated_of_class_1": 0.4, "slower_than_stated": 0.25, "tolerance": 0.01,
        "median_loss": 0.3, "loss_95th_percentile": 0.5,
    }  # fmt: skip


def test_without_rules_it_is_said_that_halves_refuted_them() -> None:
    learned = learn(h200_samples()[::20], 0.027, cost=math.inf, judge=False)
    text = render(Findings(replace(learned, halves=replace(HALVES, accuracy=0.5))))
    assert "No rules: those of one half of the implementations say no more about the other half than one class" in text
    assert "What follows those of class 1" not in text


def test_halves_without_rules_have_no_figures() -> None:
    nothing = Halves(4, 4, math.nan, math.nan, math.nan, 0, math.nan, math.nan, math.nan, math.nan, 0.01)
    text = render(Findings(replace(h200_learned(), halves=nothing)))
    assert "Rules of half of the implementations, 4 halves: none.\n" in text
    assert "nan" not in text
    assert (
        json.loads(render(Findings(replace(h200_learned(), halves=nothing)), "json"))["held_out_halves"]["accuracy"]
        is None
    )


@pytest.mark.parametrize("form", ["text", "md"])
@pytest.mark.parametrize("all_classes", [False, True])
def test_the_training_error_never_stands_alone(form: str, all_classes: bool) -> None:
    for count in (1, 5, 40):
        found = learn(h200_samples()[:: 2036 // count], 0.027, all_classes=all_classes)
        text = render(Findings(found), form)
        assert ("in training" in text) == ("on held-out samples" in text) == (found.held_out is not None)


def _of(times: list[float], noise: float = 0.01, level: float = 0.05) -> LearnedRules:
    samples = [
        replace(s, value=t, measurements=5, times=(), orders=()) for s, t in zip(h200_samples(), times, strict=False)
    ]
    return learn(samples, noise, level=level)


@pytest.mark.parametrize(
    ("times", "noise", "reason"),
    [
        ([1.0 + i / 100 for i in range(8)], 0.01, "8 implementations are too few to find classes among"),
        ([1.0] * 60, 0.0, "from fastest to slowest is 0.0 %, and the sorted times have no distinct step"),
        ([1.0] * 60, 0.01, "from fastest to slowest is 0.0 %, and the sorted times have no distinct step"),
        ([1.0] * 30 + [1.1] * 30, 0.3, "the noise floor of these times 16.8 %, and no class boundary is significant"),
    ],
)
def test_one_class_comes_with_the_reason(times: list[float], noise: float, reason: str) -> None:
    found = _of(times, noise)
    assert len(found.classes.classes) == 1
    for form in ("text", "md"):
        assert reason in render(Findings(found), form)
    assert reason in json.loads(render(Findings(found), "json"))["no_rules"]


def _by_lot() -> list[float]:
    """Two classes, dealt out by lot."""
    random = Random(5)
    return [random.choice((1.0, 2.0)) for _ in range(200)]


def test_classes_that_no_rule_tells_apart_have_none() -> None:
    found = _of(_by_lot(), level=1.0)
    assert len(found.classes.classes) == 2
    assert found.full_leaves > 10
    text = render(Findings(found))
    assert "No rules: on held-out samples, no tree separates the classes" in text
    assert "It was not tested whether chance alone gives these classes." in text
    assert "rule set" not in text


def test_classes_that_chance_explains_are_one() -> None:
    found = _of(_by_lot())
    assert len(found.classes.classes) == 1
    for form in ("text", "md"):
        text = render(Findings(found), form)
        assert "Differences between the implementations are no larger than by chance (probability " in text
        assert "not drawn: neither repeated measurements nor any feature distinguish the two sides" in text
        assert "in training" not in text


@pytest.mark.parametrize("form", ["text", "md"])
def test_one_of_a_kind_is_no_plural(form: str) -> None:
    """One implementation, one class, one leaf."""
    text = render(Findings(learn(h200_samples()[:1], 0.027)), form)
    assert "1 implementation" in text
    assert "1 leaf" in text
    assert re.findall(r"(?<![\d.])1 (?:\w+s|leaves)\b(?<!class)", text) == []


def test_text_against_a_full_exploration() -> None:
    findings = _findings()
    text = render(findings)
    assert "of 2036 implementations have a time within the range of the class" in text
    assert text.count("(extraneous)") == sum(
        len(c.extraneous)
        for k in range(8)
        for r in findings.learned.of_class(k)[:3]
        for c in [findings.verdict(r)]
        if c
    )
    assert "[overconstrained: " in text
    assert "[underconstrained: " in text
    assert "(missing)" in text
    assert "random labels: " in text


def test_how_many_sets_are_shown() -> None:
    counts = [render(_findings(sets)).count("\n  1. ") for sets in (1, 2)]
    classes = len(_findings().learned.classes.classes)
    assert counts == [classes, classes]
    assert render(_findings(1)).count("\n  2. ") == 0
    assert " more, followed by " in render(_findings(1))
    everything = render(_findings(1000))
    assert " more, followed by " not in everything
    assert everything.count("\n       [") > render(_findings(1)).count("\n       [")


def test_markdown_is_tables() -> None:
    text = render(_findings(), "md")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert {line.replace("\\|", "").count("|") for line in rows} == {7, 4}
    assert "~~" in text
    assert "post\\_send" in text


def test_json_has_everything() -> None:
    findings = _findings(1)
    found = json.loads(render(findings, "json"))
    assert len(found["rule_sets"]) == len(findings.learned.rule_sets)
    assert sum(c["count"] for c in found["classes"]) == found["implementations"] == 204
    assert found["accuracy"]["share"] == findings.accuracy.share  # type: ignore[union-attr]
    assert {r["against"]["verdict"] for r in found["rule_sets"]} <= {
        "consistent", "overconstrained", "underconstrained", "empty",
    }  # fmt: skip
    first = found["rule_sets"][0]
    assert [r["text"] for r in first["rules"]] == [r.text for r in findings.learned.rule_sets[0].rules]
    assert first["class"] == 1


def test_json_without_noise_is_valid() -> None:
    text = render(Findings(learn(samples_of(spmv())[:30])), "json")
    assert "NaN" not in text
    assert json.loads(text)["noise"] is None
    assert json.loads(text)["accuracy"] is None


@pytest.mark.parametrize("form", FORMATS)
def test_a_single_implementation(form: str) -> None:
    text = render(Findings(learn(samples_of(make_graph([("a", False)], [])))), form)
    assert text.endswith("\n")
    if form != "json":
        assert "Only one class" in text
        assert "Boundaries were not compared with the noise" in text


def test_an_unknown_format() -> None:
    with pytest.raises(UsageError, match="unknown format `xml`"):
        render(Findings(h200_learned()), "xml")


@pytest.mark.parametrize(
    ("seconds", "text"), [(68.2e-6, "68.2 us"), (2.5e-3, "2.5 ms"), (1.0, "1 s"), (3e-9, "3 ns"), (0.0, "0 ns")]
)
def test_durations(seconds: float, text: str) -> None:
    assert TIME.scaled(seconds) == text

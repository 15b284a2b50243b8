"""What an edit changes, in words, and explanations in their three forms, on what four H200s have measured."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from dagc.base.errors import UsageError
from dagc.ir.choice import Choice
from dagc.ir.traversal import parse_traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.engine import UNKEPT
from dagc.lab.live import ReplayMachine
from dagc.lab.orders import Orders
from dagc.learn.explain import Explanation, answer, ask, changes, difference, explanation, mechanism, render
from dagc.learn.pairs import TimingOptions
from dagc.space import Space
from tests.data.h200 import PASSES, h200_graph, h200_results
from tests.rules.samples import h200_learned

BEST = (
    "pack@s0 record(e0)@s0 yl@s0 post_recv sync(e0) post_send wait_recv wait_send yr@s0 record(e1)@s0 wait(e1)@s1 y@s1"
    " record(e2)@s1 sync(e2) end"
)


@cache
def explained(seed: int = 0) -> Explanation:
    graph, results = h200_graph(), h200_results()
    domain = Orders([ConfiguredSpace(results.implementations[0].configuration, Space(graph))])
    fastest = results.measured()[0]
    best = Candidate(0, parse_traversal(fastest.traversal, graph))
    asked = ask(h200_learned(), domain, best)
    machine = ReplayMachine(results, domain, seed)
    answers = answer(domain, asked, machine, UNKEPT, TimingOptions(noise=results.noise), most=lambda _: PASSES)
    return explanation(h200_learned(), domain, asked, answers, fastest.value(), ["a note"])


def test_the_table_has_every_rule_and_its_cost() -> None:
    found = explained()
    text = render(found)
    for one in found.answers:
        assert text.count(one.rule.text) >= 2
    assert "the cost of breaking each one alone" in text
    assert "note       a note" in text
    assert f"timed in {PASSES} interleaved pairs" in text
    assert "nan" not in text


def test_edits_are_left_out_unless_everything_is_asked_for() -> None:
    found = explained()
    brief, everything = render(found, everything=False), render(found)
    lines = brief.splitlines()
    assert everything.startswith("\n".join(lines[:-1]))
    assert lines[-1] == "`--all` prints the edits."
    assert len(lines) <= 16 < 2 * 16 < len(everything.splitlines())
    assert "### " not in render(found, "md", everything=False)
    assert render(found, "json", everything=False) == render(found, "json")
    without = replace(found, answers=(), shown=())
    assert render(without, everything=False) == render(without)


def test_what_the_seed_says_of_the_wait_for_yl_is_found() -> None:
    """yl issued before the CPU waits for pack, without a record after it that the wait then covers."""
    costs = {a.rule.text: a for a in explained().answers}
    rule = next(a for text, a in costs.items() if "yl" in text and a.question.own and a.middle and a.middle.ratio > 1.1)
    assert rule.finding.value == "not separable"
    also = [other.text for other in rule.inseparable]
    assert also
    for form in ("text", "md"):
        text = render(explained(), form)
        assert f"not separable: the cost is of this rule, or of what breaks with it: {also[0]}" in text.replace(
            "\\", ""
        )
    waits = [view.mechanism for views in explained().shown for view in views]
    assert "CES-b4-post_send also waits for yl" in waits


def test_markdown_has_a_row_for_each_rule_and_edit() -> None:
    found = explained()
    lines = render(found, "md").splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    tables = sum(line.startswith("|---") for line in lines)
    assert len(rows) == tables + len(found.answers) + sum(len(a.timings) for a in found.answers)


def test_json_has_everything() -> None:
    found = explained()
    record = json.loads(render(found, "json"))
    assert record["class"] == 1
    assert len(record["rules"]) == len(found.answers)
    for rule in record["rules"]:
        assert rule["low"] <= rule["ratio"] <= rule["high"]
        assert all(edit["pairs"] == PASSES for edit in rule["edits"])


def test_the_same_recording_and_seed_give_the_same_text() -> None:
    explained.cache_clear()
    first = render(explained())
    explained.cache_clear()
    assert render(explained()) == first


def test_there_is_no_other_format() -> None:
    with pytest.raises(UsageError, match="unknown format `xml`"):
        render(explained(), "xml")


def test_nothing_measured_is_not_hidden() -> None:
    found = explained()
    bare = Explanation(found.program, found.configuration, found.traversal, found.value, 0, 1, 5, math.nan, (), ())
    for form in ("text", "md"):
        assert "nan" not in render(bare, form)
    assert json.loads(render(bare, "json"))["noise"] is None


# ---- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "about", "said"),
    [
        (
            BEST.replace("record(e0)@s0 yl@s0 post_recv", "yl@s0 post_recv record(e0)@s0"),
            ("CER-after-yl", "post_send"),
            "CES-b4-post_send also waits for yl",
        ),
        (
            BEST.replace("yl@s0 post_recv sync(e0) post_send", "post_recv sync(e0) post_send yl@s0"),
            ("yl", "CES-b4-post_send"),
            "yl is issued only after CES-b4-post_send",
        ),
        (
            BEST.replace("yr@s0 record(e1)@s0 wait(e1)@s1 y@s1 record(e2)@s1 sync(e2)",
                         "yr@s0 y@s0 record(e1)@s0 sync(e1)"),
            ("yr", "y"),
            "y follows yr in its stream; y follows yl in its stream; 2 sync ops fewer",
        ),
        (
            BEST.replace("post_recv sync(e0) post_send", "sync(e0) post_send post_recv"),
            ("post_recv", "post_send"),
            "post_recv is posted only after CES-b4-post_send",
        ),
        (BEST.replace("wait_recv wait_send", "wait_send wait_recv"), ("wait_send", "wait_recv"), ""),
        (BEST.replace("yl@s0 post_recv", "post_recv yl@s0"), ("yl", "post_recv"), ""),
    ],
)  # fmt: skip
def test_what_an_edit_changes_for_the_machine(edit: str, about: tuple[str, str], said: str) -> None:
    graph = h200_graph()
    list(Space(graph).replay(parse_traversal(edit, graph)))
    assert mechanism(graph, parse_traversal(BEST, graph), parse_traversal(edit, graph), about) == said


def test_names_stay_whole_in_every_sentence() -> None:
    """In sentences of random pairs of traversals, each word is a name of an op or a sync op, or a word of English."""
    graph, random, seen = h200_graph(), Random(0), set[str]()
    space = Space(graph)
    names = {op.name for op in graph.ops}
    for _ in range(60):
        text = mechanism(graph, space.sample(random), space.sample(random), ("yl", "y"))
        seen |= {word for word in re.split("[ ,;]+", text) if word not in names and not word.startswith("CE")}
    known = """also a an and after are before by CPU different entries entry event fewer follows for from in is issued
        its later earlier longer may more no nothing only op ops other overlap posted stream sync the to waits it"""
    assert {word for word in seen if not word.isdigit()} <= {*known.split(), ""}
    assert "different" in seen


def test_what_another_configuration_changes() -> None:
    best = Choice((("capture", True), ("transport", "nccl"), ("yl.block", 64)))
    other = Choice((("staging", "ops"), ("transport", "mpi_host"), ("yl.block", 64)))
    assert changes(best, other) == (
        "no capture (the other has true), staging ops (the other has no staging), transport mpi_host instead of nccl"
    )


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a b c d", "a b c d", ("", "")),
        ("a b c d e", "a c b d e", ("a b c d ...", "a c b d ...")),
        ("a b c d", "d b c a", ("a b c d", "d b c a")),
        ("a b c d e", "a b c x d e", ("... c d ...", "... c x d ...")),
        ("a a a", "a a", ("... a a", "... a")),
    ],
)
def test_the_entries_that_differ(before: str, after: str, shown: tuple[str, str]) -> None:
    assert difference(before.split(), after.split()) == shown

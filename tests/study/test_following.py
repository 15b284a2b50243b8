"""`explore --follow`: rules of another file decide what is measured first; a bad file is refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.lab.candidate import ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.learn.features import Samples
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from dagc.study.following import COUNT, followers, read_rules
from dagc.study.loaded import Loaded
from tests.data.h200 import h200_graph

RECORDS = Path("benchmarks/results/2026-11-21-4xh200-explore")
PEER = RECORDS / "spmv-150000-peer.db"
SPMV = "samples/spmv/spmv.dag"


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of ten times the rows."""
    from dagc.recipes.rules import rules as rules_of

    path = tmp_path_factory.mktemp("rules") / "rules.json"
    path.write_text(rules_of(RECORDS / "spmv-1500000-peer.db", form="json"))
    return path


def test_what_follows_the_rules_is_measured_first(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "followed.db"
    line = ["explore", SPMV, "--replay", str(PEER), "-D", "transport=peer", "--budget", "12", "--quiet"]
    assert main([*line, "--follow", str(rules), "-o", str(out)]) == 0
    assert "implementations first that follow 4 of 4 rules" in capsys.readouterr().out
    samples = sorted(Loaded(out).samples(), key=lambda s: s.orders[0])
    follows = Samples.of(samples).follow([rule for rule, _ in read_rules(str(rules))])
    assert follows[:COUNT].all()
    assert not follows.all()  # the strategy goes on by itself


def _domain() -> Orders:
    return Orders([ConfiguredSpace(Choice(()), Space(h200_graph()))])


def _rule(a: str, b: str, truth: bool = True) -> tuple[Rule, float]:
    return Rule(RuleFeature(FeatureKind.BEFORE, a, b), truth), 0.1


def test_rare_followers_are_found() -> None:
    domain = _domain()
    wanted = [_rule("wait_recv", "yl"), _rule("yl", "yr"), _rule("wait_send", "wait_recv")]
    chosen, note = followers(domain, wanted, "r.json", 0)
    table = Samples([(domain.spaces[0].graph, Choice(()), c.traversal) for c in chosen])
    assert len(chosen) == len(set(chosen)) == COUNT
    assert table.follow([rule for rule, _ in wanted]).all()
    drawn = [domain.sample(Random(k)) for k in range(200)]
    share = Samples([(domain.spaces[0].graph, Choice(()), c.traversal) for c in drawn]).follow([r for r, _ in wanted])
    assert share.mean() < 0.1  # uniform draws alone would hardly find them
    assert note == "measures 8 implementations first that follow 3 of 3 rules of r.json"


def test_rules_that_cannot_hold_here_are_named() -> None:
    chosen, note = followers(_domain(), [_rule("pack", "yl"), _rule("elsewhere", "yl")], "r.json", 0)
    assert len(chosen) == COUNT
    assert note.endswith("follow 1 of 2 rules of r.json; none follows `elsewhere before yl` too")


def test_a_cost_that_is_no_finite_number_is_unknown(tmp_path: Path) -> None:
    rule = {"kind": "before", "a": "x", "b": "y", "holds": True}
    costs = [10**400, "x", None, float("inf")]
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"fast_end": {"rules": [{**rule, "cost": cost} for cost in costs]}}))
    assert [cost for _, cost in read_rules(str(path))] == [0.0] * len(costs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", ":1:2: not JSON"),
        ("[]", "has no rules for the fast end"),
        ('{"fast_end": null}', "has no rules for the fast end"),
        ('{"fast_end": {"rules": []}}', "no choice or order separated fast from slow there"),
        ('{"fast_end": {"rules": [1]}}', "rule 1 is not an object"),
        ('{"fast_end": {"rules": [{"kind": "before", "a": "x", "b": 1, "holds": true}]}}', "has no known"),
        ('{"fast_end": {"rules": [{"kind": [], "a": "x", "b": "y", "holds": true}]}}', "has no known"),
        ('{"fast_end": {"rules": [{"kind": "at most", "a": "x", "b": "inf", "holds": true}]}}', "is not a number"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["explore", SPMV, "--follow", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_rules_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry: dict[str, Any] = {"kind": "before", "a": "there", "b": "elsewhere", "holds": True, "cost": None}
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"fast_end": {"rules": [entry]}}))
    line = ["explore", SPMV, "--replay", str(PEER), "-D", "transport=peer", "--budget", "3", "--quiet"]
    assert main([*line, "--follow", str(path)]) == 2
    assert "no implementation here follows a rule of" in capsys.readouterr().err


def test_costs_are_read(rules: Path) -> None:
    assert all(cost > 0 for _, cost in read_rules(str(rules)))
    assert main(["explore", SPMV, "--follow", str(rules.parent / "absent.json")]) == 2

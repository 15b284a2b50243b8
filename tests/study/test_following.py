"""`explore --follow`: rules of another file decide what is measured first; a bad file is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.ir.plan import plan_from_json
from dagc.lab.candidate import ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.learn.fast import FastRule
from dagc.learn.features import Samples
from dagc.learn.kinds import Binder, kinds_of
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from dagc.stages.program import load_graph
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
    follows = Samples.of(samples).follow([one.rule for one in read_rules(str(rules))])
    assert follows[:COUNT].all()
    assert not follows.all()  # the strategy goes on by itself


def _domain() -> Orders:
    return Orders([ConfiguredSpace(Choice(()), Space(h200_graph()))])


def _rule(a: str, b: str, truth: bool = True) -> FastRule:
    return FastRule(Rule(RuleFeature(FeatureKind.BEFORE, a, b), truth), 0.1, 1)


def test_rare_followers_are_found() -> None:
    domain = _domain()
    wanted = [_rule("wait_recv", "yl"), _rule("yl", "yr"), _rule("wait_send", "wait_recv")]
    chosen, note = followers(domain, wanted, "r.json", 0)
    table = Samples([(domain.spaces[0].graph, Choice(()), c.traversal) for c in chosen])
    assert len(chosen) == len(set(chosen)) == COUNT
    assert table.follow([one.rule for one in wanted]).all()
    drawn = [domain.sample(Random(k)) for k in range(200)]
    share = Samples([(domain.spaces[0].graph, Choice(()), c.traversal) for c in drawn]).follow(
        [one.rule for one in wanted]
    )
    assert share.mean() < 0.1  # uniform draws alone would hardly find them
    assert note == f"measures {COUNT} implementations first that follow 3 of 3 rules of r.json"


def test_rules_that_cannot_hold_here_are_named() -> None:
    chosen, note = followers(_domain(), [_rule("pack", "yl"), _rule("elsewhere", "yl")], "r.json", 0)
    assert len(chosen) == COUNT
    assert note.endswith("follow 1 of 2 rules of r.json; `elsewhere before yl` does not apply: there is no `elsewhere`")


def test_a_cost_that_is_no_finite_number_is_unknown(tmp_path: Path) -> None:
    rule = {"kind": "before", "a": "x", "b": "y", "holds": True}
    costs = [10**400, "x", None, float("inf")]
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"fast_end": {"rules": [{**rule, "cost": cost} for cost in costs]}}))
    assert all(math.isnan(one.cost) and one.weight == 1 for one in read_rules(str(path)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", ":1:2: not JSON"),
        ("[]", "has no rules for the fast end"),
        ('{"fast_end": null}', "no choice or order separated fast from slow there"),
        ('{"fast_end": {"rules": []}}', "no choice or order separated fast from slow there"),
        ('{"fast_end": {"rules": [1]}}', "rule 1 is not an object"),
        ('{"fast_end": {"rules": [{"kind": "before", "a": "x", "b": 1, "holds": true}]}}', "has no known"),
        ('{"fast_end": {"rules": [{"kind": [], "a": "x", "b": "y", "holds": true}]}}', "has no known"),
        ('{"fast_end": {"rules": [{"kind": "at most", "a": "x", "b": "inf", "holds": true}]}}', "is not a number"),
        ('{"fast_end": {"rules": [{"kind": "before", "a": "x", "b": "y", "holds": true, "kinds": "x"}]}}', "two texts"),
        ("[" * 100_000, "not JSON"),
        ('{"groups": []}', "no choice or order separated fast from slow there"),
        ('{"groups": [{"condition": "rows > 4"}, {}]}', "has 2 sets of rules: for `rows > 4`, `other inputs`"),
        ('{"groups": [{}]}', "has no rules for the fast end"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["explore", SPMV, "--follow", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_results_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", SPMV, "--follow", str(PEER)]) == 2
    assert "cannot be read: not a text" in (said := capsys.readouterr().err)
    assert "--format json` wrote to a file of its own" in said


@pytest.mark.parametrize(
    "command", [["explore", SPMV, "--follow"], ["rules", SPMV, "--apply"]], ids=["follow", "apply"]
)
def test_a_file_without_an_end_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "/dev/zero"]) == 2
    assert "/dev/zero cannot be read: larger than 16384 KiB" in capsys.readouterr().err


def test_rules_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry: dict[str, Any] = {"kind": "before", "a": "there", "b": "elsewhere", "holds": True, "cost": None}
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"fast_end": {"rules": [entry]}}))
    line = ["explore", SPMV, "--replay", str(PEER), "-D", "transport=peer", "--budget", "3", "--quiet"]
    assert main([*line, "--follow", str(path)]) == 2
    assert "no implementation here follows a rule of" in capsys.readouterr().err


def test_rules_apply_to_ops_of_other_names(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["rules", "--apply", str(rules), "samples/jacobi/jacobi.dag", "-o", str(tmp_path / "out"), "--no-build"]
    assert main([*line, "--target", "cuda", "-D", "transport=peer"]) == 0
    out = capsys.readouterr().out
    assert "x before yl (send before kernel that needs no message): halo[t] before inner[t]\n" in out
    assert (
        "x, yr in the same stream (send, kernel that needs a message in the same stream): does not apply: there" in out
    )
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    graph = load_graph("samples/jacobi/jacobi.dag", {"transport": "peer"})
    entries = [entry.text(graph) for entry in plan_from_json(json.dumps(plan), graph, "plan").traversal.entries]
    places = {text.partition("@")[0]: at for at, text in enumerate(entries)}
    streams = dict(text.split("@") for text in entries if "@" in text)
    assert places["halo[0]"] < places["inner[0]"]
    assert streams["halo[0]"] != streams["inner[0]"] == streams["first[0]"] == streams["last[0]"]


def test_decisions_follow_rules_unless_they_are_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transport: dict[str, Any] = {"kind": "choice", "a": "transport", "b": "mpi_host", "holds": False}
    block = {"kind": "at most", "a": "z.block", "b": "128", "holds": True, "kinds": ["kernel that needs a message", ""]}
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"fast_end": {"rules": [block, transport]}}))
    line = [
        "rules",
        "--apply",
        str(path),
        SPMV,
        "-o",
        str(tmp_path / "out"),
        "--no-build",
        "--target",
        "cuda",
        "--force",
    ]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "z.block <= 128 (kernel that needs a message.block <= 128): yr.block = 64" in out
    assert "transport is not mpi_host: transport = mpi_cuda" in out
    assert "transport=mpi_cuda" in out.split("program")[1]
    assert main([*line, "-D", "transport=mpi_host", "-D", "yr.block=128"]) == 0
    out = capsys.readouterr().out
    assert "transport is not mpi_host: does not apply: -D, or the program, leaves no such value" in out
    assert "yr.block = 128" in out


def test_rules_none_of_which_applies(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "rules",
        "--apply",
        str(rules),
        "samples/halo3d/halo3d.dag",
        "-o",
        str(tmp_path / "out"),
        "--target",
        "host",
    ]
    assert main(line) == 2
    assert "x before yl: there is no kernel that needs no message" in capsys.readouterr().err
    assert main([*line, "--all"]) == 2
    assert "--all has no effect with --apply" in capsys.readouterr().err


def test_kinds_are_those_of_the_turn_of_a_loop() -> None:
    kinds = kinds_of(load_graph("samples/heat/heat.dag", {"transport": "peer"}))
    assert kinds["take[2,top]"] == "kernel that a send needs"
    assert kinds["halo[2]"] == "send"
    assert kinds["inner[2]"] == "kernel that needs no message"  # of its turn
    assert kinds["put[2,top]"] == "kernel that needs a message"
    assert kinds["first[2]"] == "kernel after one that needs a message"
    assert kinds["keep"] == "kernel that needs no message outside of loops"
    staged = kinds_of(load_graph(SPMV, {"transport": "mpi_host", "staging": "ops"}))
    assert (staged["pack"], staged["yr"]) == ("kernel that a send needs", "kernel that needs a message")


def test_a_rule_names_what_it_means() -> None:
    """What is false where nothing may be absent is the opposite elsewhere; within a turn of a loop."""
    binder = Binder(load_graph("samples/heat/heat.dag", {"transport": "peer"}))
    after = Rule(RuleFeature(FeatureKind.BEFORE, "x", "yl"), False)
    bound = binder.bind(after, ("send", "kernel that needs no message"))
    turns = sum(op.name.startswith("inner") for op in load_graph("samples/heat/heat.dag").ops)
    assert [rule.text for rule in bound.rules] == [f"inner[{t}] before halo[{t}]" for t in range(turns)]


def test_costs_are_read(rules: Path) -> None:
    assert all(one.cost > 0 for one in read_rules(str(rules)))
    assert main(["explore", SPMV, "--follow", str(rules.parent / "absent.json")]) == 2

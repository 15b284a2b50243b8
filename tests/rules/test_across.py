"""Rules across inputs: on made-up inputs whose best orders are known, and on the recorded ones."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.program import Value
from dagc.ir.traversal import Issue
from dagc.learn.across import Input, across, render_across
from dagc.learn.types import Example
from dagc.recipes.rules import rules_across
from dagc.study.following import read_rules
from dagc.study.loaded import Loaded, message_bytes
from tests.data.h200 import h200_file
from tests.graphs import spmv
from tests.imports import ROOT
from tests.rules.samples import samples_of

RECORDS = ROOT / "benchmarks/results/2026-11-21-4xh200-explore"
GRAPH = spmv()


def _late(sample: Example, a: str, b: str) -> bool:
    at = {GRAPH.ops[e.op].name: i for i, e in enumerate(sample.traversal.entries) if isinstance(e, Issue)}
    return at[a] > at[b]


def _input(name: str, slow: Callable[[Example], float], noise: float = 0.002, **facts: Value) -> Input:
    """200 implementations drawn by lot, each measured four times; `slow`: how much slower each is than the best."""
    random = Random(name)
    samples = []
    for sample in random.sample(samples_of(GRAPH), 200):
        times = tuple((1 + slow(sample)) * random.gauss(1, noise) for _ in range(4))
        samples.append(Example(GRAPH, sample.configuration, sample.traversal, sorted(times)[1], 4, times, (0, 1, 2, 3)))
    return Input(name, tuple(facts.items()), tuple(samples), noise)


def _yl_first(sample: Example) -> float:
    return 0.2 * _late(sample, "yl", "post_send")


def _yl_last(sample: Example) -> float:
    return 0.2 * (not _late(sample, "yl", "post_send"))


def _sizes(slow: Callable[[Example], float], *sizes: int) -> list[Input]:
    return [_input(f"rows={rows}", slow, rows=rows) for rows in sizes]


def test_a_rule_of_all_inputs_holds_on_those_left_out_and_is_said_to(tmp_path: Path) -> None:
    learned = across(_sizes(_yl_first, 1000, 3000, 9000, 27000))
    (group,) = learned.groups
    assert [r.text for r in group.rules] == ["yl before post_send"]
    assert group.condition is None
    assert all(loss.small and loss.followers > 8 for loss in group.losses)
    assert all(one.loss.small and one.claim.holds for one in learned.left_out)
    assert all(one.others.worst > 0.15 for one in learned.left_out)
    (tmp_path / "rules.json").write_text(render_across(learned, "json"))
    (read,) = read_rules(str(tmp_path / "rules.json"))  # for `--follow` and `--apply`
    assert (read.rule, read.kinds) == (
        group.rules[0],
        ("CPU kernel that needs no message", "kernel that needs no message"),
    )
    text = render_across(learned)
    assert "on all inputs (rows=1000, rows=3000, rows=9000, rows=27000):\n       yl before post_send\n" in text
    assert "hold on 4 of 4 inputs" in text


def test_rules_are_not_said_to_hold_far_outside_of_the_sizes_at_which_they_were_tested() -> None:
    learned = across(_sizes(_yl_first, 1000, 3000, 9000, 900_000))
    assert [one.claim.holds for one in learned.left_out] == [True, True, True, False]
    assert "further outside" in learned.left_out[3].claim.reason


def test_where_messages_are_large_there_are_rules_of_their_own() -> None:
    small = [_input(f"{k} KiB", _yl_first, **{"message bytes": 1024 * k}) for k in (16, 64, 256)]
    large = [_input(f"{k} MiB", _yl_last, **{"message bytes": 1024 * 1024 * k}) for k in (2, 8)]
    learned = across([*small, *large])
    assert [(g.condition.text if g.condition else "", [r.text for r in g.rules]) for g in learned.groups] == [
        ("message bytes <= 262144", ["yl before post_send"]),
        ("message bytes > 262144", ["post_send before yl"]),
    ]
    assert "where message bytes > 262144 (2 MiB, 8 MiB):" in render_across(learned)
    held = {one.name: one for one in learned.left_out}
    assert held["64 KiB"].loss.small
    # Without 2 MiB the large ones are one input, whose condition is not tested: nothing is said.
    assert not held["2 MiB"].claim.holds


def test_what_does_not_transfer_is_not_said_to_hold() -> None:
    """An input of another kind with the opposite rule."""
    learned = across([*_sizes(_yl_first, 1000, 3000), _input("odd", _yl_last, rows=-1)])
    assert [g.inputs for g in learned.groups] == [("rows=1000", "rows=3000"), ("odd",)]
    odd = next(one for one in learned.left_out if one.name == "odd")
    assert not odd.loss.small
    assert odd.claim.reason == "no input of its kind was tested"
    for form in ("text", "md"):
        assert "does not hold" in render_across(learned, form)


def test_a_claim_that_was_wrong_is_printed() -> None:
    """Nothing that is known of the odd input beforehand tells it from the others."""
    learned = across([*_sizes(_yl_first, 1000, 3000, 9000), _input("odd", _yl_last, rows=2000)])
    assert next(one for one in learned.left_out if one.name == "odd").claim.holds
    assert ", 1 time wrongly." in render_across(learned)


def test_noise_that_hides_a_loss_is_said_to() -> None:
    noisy = [_input(f"rows={rows}", _yl_first, 0.05, rows=rows) for rows in (1000, 3000, 9000)]
    learned = across(noisy)
    assert not any(one.claim.holds for one in learned.left_out)
    assert "this is predicted for none of them" in render_across(learned)
    unknown = across([replace(one, noise=math.nan) for one in _sizes(_yl_first, 1000, 3000, 9000)])
    assert all("may hide a loss" in one.claim.reason for one in unknown.left_out)
    assert "noise unknown" in render_across(unknown)


def test_inputs_whose_orders_are_alike_teach_nothing() -> None:
    inputs = _sizes(_yl_first, 1000, 3000)
    learned = across(inputs, ["rows=3000"])
    assert learned.groups == learned.left_out == ()
    text = render_across(learned)
    assert "No rules: fewer than two inputs have implementations that differ." in text
    assert "Not used: rows=3000." in text
    assert json.loads(render_across(learned, "json"))["groups"] == []
    with pytest.raises(ValueError, match="the same name"):
        across([inputs[0], inputs[0]])


# ---- recorded inputs ------------------------------------------------------------------------


def test_recorded_inputs_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With CUDA-aware MPI what is learned without an input holds on four of five, and is not said of the fifth."""
    files = [f"{name}={RECORDS}/spmv-{name}-mpi_cuda.db" for name in
             ("150000", "1500000", "15000000", "bcsstk32", "cnr2000")]  # fmt: skip
    assert main(["rules", "--format", "json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    held = {one["input"]: one for one in found["left_out"]}
    assert [name for name, one in held.items() if not one["holds"]] == ["cnr2000"]
    for name, one in held.items():
        assert one["loss"]["median"] <= 0.01 or name == "cnr2000"
        assert one["loss"]["percentile_95"] <= 0.03 or name == "cnr2000"
        assert one["holds"] or not one["said_to_hold"]
    assert found["groups"][0]["inputs"] == ["150000", "1500000", "15000000", "bcsstk32"]


def test_files_of_one_input_are_joined_and_transports_are_rules() -> None:
    """NCCL and direct copies of two sizes: four files, two inputs."""
    text = rules_across([str(RECORDS / f"spmv-{rows}-{t}.db") for rows in (150000, 15000000) for t in ("nccl", "peer")])
    assert "Rules across 2 inputs" in text
    assert "384 implementations" in text
    assert "capture = true" in text


# ---- what is refused ------------------------------------------------------------------------


PEER = str(RECORDS / "spmv-150000-peer.db")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([PEER, str(RECORDS / "halo-mpi_cuda-random.db")], "hold results of `spmv` and `halo`"),
        ([PEER, f"={RECORDS}/spmv-1500000-peer.db"], "the input has no name"),
        ([f"a={PEER}", f"a={RECORDS}/spmv-1500000-peer.db"], "two inputs have the name a"),
        ([f"a={PEER}", f"b={RECORDS}/spmv-150000-nccl.db"], "has two names: a, b"),
        ([PEER, f"again={PEER}"], "hold the same run"),
        ([PEER, "missing.db"], "missing.db"),
    ],
)
def test_files_that_cannot_be_joined(paths: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        rules_across(paths)


def test_versions_of_a_program_are_not_joined(tmp_path: Path) -> None:
    other = h200_file(tmp_path, passes=1)
    with sqlite3.connect(other) as file:
        file.execute("UPDATE source SET text = text || 'param more : i64 = 1'")
    file.close()
    with pytest.raises(UsageError, match="hold results of two versions of `spmv`"):
        rules_across([PEER, str(other)])


@pytest.mark.parametrize("option", [["--estimate"], ["--against", PEER], ["--classes", "all"], ["--tree", "full"]])
def test_options_of_one_file(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", PEER, PEER, *option]) == 2
    assert f"{option[0]} has no effect with several results files" in capsys.readouterr().err


def test_message_bytes_where_the_program_fixes_them() -> None:
    """Six faces of 128 x 128 cells, 3 deep, 3 quantities of 8 bytes; the SpMV's counts come from its set-up."""
    halo = Loaded(RECORDS / "halo-mpi_cuda-random.db")
    assert {message_bytes(graph) for graph in halo.graphs.values()} == {128 * 128 * 3 * 3 * 8}
    assert message_bytes(GRAPH) == 0

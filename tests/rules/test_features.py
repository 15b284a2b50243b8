"""Implementations as vectors: three-valued orders, streams, choices; nothing twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dagc import load_graph
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.learn.features import Implications, Samples
from dagc.learn.types import Example, FeatureKind, Rule, RuleFeature
from dagc.space import Space
from tests.graphs import make_graph, spmv
from tests.measure.conftest import SAMPLES
from tests.rules.samples import NONE, graphs, samples_of
from tests.tiers import examples


def test_absent_is_not_after() -> None:
    """Where y is on yl's stream there is no CER-after-yl: neither before nor after anything."""
    table = Samples.of(samples_of(spmv()))
    before = table.ask(RuleFeature(FeatureKind.BEFORE, "CER-after-yl", "post_send", total=False))
    after = table.ask(RuleFeature(FeatureKind.BEFORE, "post_send", "CER-after-yl", total=False))
    absent = table.ask(RuleFeature(FeatureKind.SAME, "yl", "y"))
    assert not (before & after).any()
    assert (absent == ~(before | after)).all()
    assert absent.any()
    assert before.any()
    assert after.any()


def test_one_entry_is_not_before_itself() -> None:
    graph = make_graph([("a", True), ("b", True), ("c", False)], [("a", "c"), ("b", "c")])
    table = Samples.of(samples_of(graph))
    first = table.ask(RuleFeature(FeatureKind.BEFORE, "CER-after-a", "CER-after-b", total=False))
    second = table.ask(RuleFeature(FeatureKind.BEFORE, "CER-after-b", "CER-after-a", total=False))
    assert (~first & ~second).any()
    texts = {f.text() for f in table.features()[0]}
    assert {"CER-after-a before CER-after-b", "CER-after-b before CER-after-a"} <= texts


@settings(max_examples=examples(30), deadline=None)
@given(graphs())
def test_features_tell_apart_and_none_twice(graph: Graph) -> None:
    table = Samples.of(samples_of(graph)[:200])
    features, answers = table.features()
    assert answers.shape == (len(table), len(features))
    assert all(column.any() and not column.all() for column in answers.T)
    splits = [frozenset((column.tobytes(), (~column).tobytes())) for column in answers.T]
    assert len(set(splits)) == len(splits)
    assert all((table.ask(f) == column).all() for f, column in zip(features, answers.T, strict=True))


def test_what_the_edges_imply_is_no_feature() -> None:
    features, _ = Samples.of(samples_of(spmv())).features()
    texts = {f.text() for f in features}
    assert "pack before yl" in texts
    assert not texts & {"pack before post_send", "post_send before wait_recv", "pack before CER-after-pack"}


def _configured(**decisions: bool | int | str) -> Choice:
    return Choice.of(decisions)


def test_choices() -> None:
    graph = make_graph([("a", True)], [])
    traversal = Space(graph).first()
    made = [
        _configured(transport=transport, capture=capture, block=block)
        for transport in ("mpi_host", "nccl", "peer")
        for capture in (False, True)
        for block in (32, 64, 128)
    ]
    features, _ = Samples([(graph, c, traversal) for c in made]).features()
    assert [f.text() for f in features] == [
        "transport = mpi_host", "transport = nccl", "transport = peer", "block <= 32", "block <= 64", "block = 64",
        "capture = true",
    ]  # fmt: skip
    assert [features[i].text(False) for i in (0, 3, -1)] == [
        "transport is not mpi_host",
        "block > 32",
        "capture = false",
    ]


def test_the_transport_stands_for_what_only_it_decides() -> None:
    graph = make_graph([("a", True)], [])
    made = [_configured(transport="mpi_host", staging="fused", copies=4), _configured(transport="nccl")]
    features, _ = Samples([(graph, c, Space(graph).first()) for c in made]).features()
    assert [f.text() for f in features] == ["transport = mpi_host"]


def test_pairs_of_values() -> None:
    graph = make_graph([("a", True)], [])
    made = [_configured(transport=t) for t in ("mpi_cuda", "mpi_host", "nccl", "peer")]
    features, answers = Samples([(graph, c, Space(graph).first()) for c in made]).features()
    found = {f.text(): column.tolist() for f, column in zip(features, answers.T, strict=True)}
    assert found["transport = mpi_cuda or mpi_host"] == [True, True, False, False]
    assert len(found) == 7


def test_ops_that_only_some_configurations_have() -> None:
    one = make_graph([("a", True), ("b", True), ("x", True)], [])
    other = make_graph([("a", True), ("b", True)], [])
    samples = [Example(g, _configured(more=g is one), t, 1.0) for g in (one, other) for t in Space(g)]
    table = Samples.of(samples)
    texts = {f.text(truth) for f in table.features()[0] for truth in (True, False)}
    assert {"a, b in the same stream", "a, b in different streams"} <= texts
    assert {"a, x not in the same stream", "x not before a"} <= texts
    assert not table.ask(RuleFeature(FeatureKind.DIFFERENT, "a", "x", total=False))[len(list(Space(one))) :].any()


@pytest.mark.parametrize(
    ("feature", "yes", "no"),
    [
        (RuleFeature(FeatureKind.BEFORE, "yl", "pack"), "yl before pack", "pack before yl"),
        (
            RuleFeature(FeatureKind.BEFORE, "CER-after-yl", "y", False),
            "CER-after-yl before y",
            "CER-after-yl not before y",
        ),
        (RuleFeature(FeatureKind.SAME, "yl", "pack"), "yl, pack in the same stream", "yl, pack in different streams"),
        (
            RuleFeature(FeatureKind.DIFFERENT, "a", "b", False),
            "a, b in different streams",
            "a, b not in different streams",
        ),
        (RuleFeature(FeatureKind.CHOICE, "capture", "true"), "capture = true", "capture = false"),
        (RuleFeature(FeatureKind.CHOICE, "staging", "ops", False), "staging = ops", "staging is not ops"),
        (RuleFeature(FeatureKind.AT_MOST, "copies", "4", False), "copies <= 4", "copies not <= 4"),
        (RuleFeature(FeatureKind.AT_MOST, "yl.block", "64"), "yl.block <= 64", "yl.block > 64"),
    ],
)  # fmt: skip
def test_texts(feature: RuleFeature, yes: str, no: str) -> None:
    assert (Rule(feature, True).text, Rule(feature, False).text) == (yes, no)


def test_names_that_no_sample_has() -> None:
    table = Samples([(g := make_graph([("a", True)], []), NONE, Space(g).first())])
    assert not table.ask(RuleFeature(FeatureKind.BEFORE, "a", "nowhere", total=False)).any()
    assert np.array_equal(table.follow([]), [True])


def _with_block(bx: int, by: int, last: int) -> Choice:
    return Choice((("inner.bx", bx), ("inner.by", by), ("last.bx", 32), ("last.by", last)))


def test_a_block_is_asked_about_as_one() -> None:
    """Both dimensions of `inner` differ, one of `last`. What was chosen by other searches answers no."""
    graph = load_graph(SAMPLES / "heat" / "heat.dag", {"transport": "mpi_cuda", "steps": 1})
    first = Space(graph).first()
    blocks = [_with_block(bx, by, last) for bx, by, last in ((32, 1, 1), (32, 2, 1), (64, 1, 2), (64, 2, 1))]
    table = Samples([(graph, configuration, first) for configuration in (*blocks, Choice(()))])
    assert set(table.blocks) == {"inner.bx x inner.by", "first.bx x first.by", "last.bx x last.by"}
    features = dict(zip(table.features()[0], table.features()[1].T, strict=True))
    block = RuleFeature(FeatureKind.CHOICE, "inner.bx x inner.by", "64 x 2", total=False)
    assert block.text() == "inner.bx x inner.by = 64 x 2"
    assert list(table.ask(block)) == [False, False, False, True, False]
    assert block in features
    assert not any(f.a == "last.bx x last.by" for f in features)
    # Rules about one block are merged as those about any choice.
    rules = [Rule(replace(block, b=value), False) for value in ("32 x 1", "32 x 2", "64 x 1")]
    (one,) = Implications(table).merge([*rules, Rule(replace(block, b="64 x 2"), True)])
    assert one.text == "inner.bx x inner.by = 64 x 2"

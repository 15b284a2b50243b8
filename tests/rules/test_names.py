"""What entries are called, and what the edges of a program say about their order."""

from __future__ import annotations

from hypothesis import given, settings

from dagc.ir.program import Graph
from dagc.ir.traversal import parse_traversal
from dagc.learn.features import Naming, Samples
from dagc.learn.types import FeatureKind, Rule, RuleFeature
from dagc.space import Space
from tests.graphs import make_graph, spmv
from tests.rules.samples import NONE, graphs, samples_of
from tests.tiers import examples


def _positions(graph: Graph, text: str) -> dict[str, int]:
    return Naming.of(graph).positions(parse_traversal(text, graph))


def test_names_are_those_of_the_paper() -> None:
    begin = "pack@s0 record(e0)@s0 yl@s1 post_recv sync(e0) post_send wait_send wait_recv yr@s0"
    found = _positions(spmv(), f"{begin} record(e1)@s0 wait(e1)@s1 y@s1 record(e2)@s1 sync(e2) end")
    syncs = {name: at for name, at in found.items() if name.startswith("C")}
    assert syncs == {
        "CER-after-pack": 1, "CES-b4-post_send": 4, "CER-after-yr": 9, "CSWE-after-yr": 10, "CER-after-y": 12,
        "CES-b4-end": 13,
    }  # fmt: skip
    assert found["yl"] == 2
    assert found["end"] == 14


def test_an_entry_that_serves_several_ops_bears_each_name() -> None:
    graph = make_graph([("a", True), ("b", True), ("c", False)], [("a", "c"), ("b", "c")])
    found = _positions(graph, "a@s0 b@s0 record(e0)@s0 sync(e0) c end")
    assert found["CER-after-a"] == found["CER-after-b"] == 2
    assert found["CES-b4-c"] == 3


def test_of_several_entries_of_a_name_the_first_counts() -> None:
    graph = make_graph([("a", True), ("b", True), ("c", False)], [("a", "c"), ("b", "c")])
    found = _positions(graph, "a@s0 record(e0)@s0 b@s1 record(e1)@s1 sync(e1) sync(e0) c end")
    assert found["CES-b4-c"] == 4


def test_a_record_that_no_op_needs_bears_no_name() -> None:
    found = _positions(make_graph([("a", True), ("b", True)], [("a", "b")]), "a@s0 b@s0 record(e0)@s0 sync(e0) end")
    assert sorted(found) == ["CER-after-b", "CES-b4-end", "a", "b", "end"]


def test_split_sizes_of_figure_6() -> None:
    table = Samples.of(samples_of(spmv()))

    def before(a: str, b: str, truth: bool = True) -> Rule:
        return Rule(RuleFeature(FeatureKind.BEFORE, a, b), truth)

    def same(a: str, b: str, truth: bool = True) -> Rule:
        return Rule(RuleFeature(FeatureKind.SAME, a, b), truth)

    def count(*rules: Rule) -> int:
        return int(table.follow(rules).sum())

    left, right = before("yl", "CES-b4-post_send"), before("yl", "CES-b4-post_send", False)
    assert (count(left), count(right)) == (948, 1088)
    apart, together = same("yl", "pack", False), same("yl", "pack")
    assert (count(left, apart), count(left, together)) == (396, 552)
    assert (count(left, apart, before("pack", "yl")), count(left, apart, before("yl", "pack"))) == (264, 132)
    early, late = before("CER-after-pack", "yl"), before("CER-after-pack", "yl", False)
    assert (count(left, together, early), count(left, together, late)) == (132, 420)
    received, waiting = before("wait_recv", "yl"), before("wait_recv", "yl", False)
    assert (count(right, received), count(right, waiting)) == (520, 568)
    assert (count(right, received, same("yr", "yl", False)), count(right, received, same("yr", "yl"))) == (280, 240)


@settings(max_examples=examples(40), deadline=None)
@given(graphs())
def test_what_is_implied_or_always_there_is_so_everywhere(graph: Graph) -> None:
    naming = Naming.of(graph)
    implied, always, may = naming.implied(), naming.always(), naming.may()
    for _, traversal in zip(range(300), Space(graph), strict=False):
        found = naming.positions(traversal)
        assert always <= set(found) <= may
        assert all(found[a] < found[b] for a, b in implied if a in found and b in found)


def test_a_configuration_may_have_other_ops() -> None:
    """Names that only some graphs have are not always there, and what only some graphs imply is not implied."""
    one = make_graph([("a", True), ("b", False)], [("a", "b")])
    other = make_graph([("a", True), ("b", False), ("x", False)], [])
    table = Samples([(g, NONE, t) for g in (one, other) for t in Space(g)])
    assert table.vocabulary.always == {"a", "b", "end", "CER-after-a"}
    assert ("a", "b") not in table.vocabulary.implied
    assert ("x", "end") in table.vocabulary.implied

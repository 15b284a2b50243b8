"""The picture of the tree has every node, and none on top of another."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from xml.etree import ElementTree as ET

import pytest

from dagc.learn.types import FeatureKind, Node, RuleFeature, Tree
from dagc.report.charts import MOST_LEAVES, MOST_WIDTH, readable_depth, tree_chart


def random_tree(seed: int, depth: int) -> Tree:
    """A tree of two classes; grown at random, not learned."""
    random = Random(seed)
    nodes: list[Node] = []

    def grow(level: int) -> int:
        at = len(nodes)
        samples = random.randrange(2, 5000)
        first = random.randrange(samples + 1)
        counts = (first, samples - first)
        shares = (first / samples, 1 - first / samples)
        number = int(first < samples - first)
        nodes.append(Node(None, -1, -1, level, samples, counts, shares, number, min(counts)))
        if level < depth and random.random() < 0.8:
            names = [f"{random.choice(['CES-b4-', 'CSWE-after-', ''])}op_{random.randrange(10**6)}" for _ in "ab"]
            feature = RuleFeature(random.choice([FeatureKind.BEFORE, FeatureKind.SAME]), *names)
            yes, no = grow(level + 1), grow(level + 1)
            nodes[at] = replace(nodes[at], feature=feature, yes=yes, no=no)
        return at

    grow(0)
    return Tree(tuple(nodes), 0.0, ())


def _boxes(svg: str) -> tuple[ET.Element, list[tuple[float, ...]]]:
    root = ET.fromstring(svg)
    boxes = [e for e in root.iter("rect") if e.get("class") == "box"]
    return root, [tuple(float(b.get(k, "")) for k in ("x", "y", "width", "height")) for b in boxes]


@pytest.mark.parametrize("seed", range(6))
def test_every_node_has_a_box_of_its_own(seed: int) -> None:
    tree = random_tree(seed, 6)
    root, boxes = _boxes(tree_chart(tree, "t"))
    assert len(boxes) == len(tree.nodes)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for x, y, w, h in boxes:
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    for (x, y, w, h), (a, b, c, d) in combinations(boxes, 2):
        assert x + w <= a or a + c <= x or y + h <= b or b + d <= y


@pytest.mark.parametrize("seed", range(6))
def test_a_large_tree_is_drawn_as_far_as_it_can_be_read(seed: int) -> None:
    tree = random_tree(seed, 9)
    depth = readable_depth(tree)
    root, boxes = _boxes(tree_chart(tree, "t", depth))
    assert len(boxes) == sum(node.depth <= depth for node in tree.nodes)
    ends = [g for g in root.iter("g") if "leaf" in (g.get("class") or "").split()]
    assert len(ends) <= MOST_LEAVES
    assert depth == 1 or float(root.get("width", "")) <= MOST_WIDTH
    cut = [g for g in ends if "cut" in (g.get("class") or "").split()]
    assert len(cut) == sum(node.depth == depth and not node.leaf for node in tree.nodes)
    hidden = [int("".join(g.itertext()).split(", ")[-1].split()[0]) for g in cut]
    assert sum(hidden) + len(ends) - len(cut) == tree.leaves


def test_one_leaf_is_a_tree() -> None:
    tree = Tree((Node(None, -1, -1, 0, 5, (5,), (1.0,), 0, 0),), 0.0, ())
    assert readable_depth(tree) == 1
    root, boxes = _boxes(tree_chart(tree, "t", 1))
    assert len(boxes) == 1
    assert "class 1" in "".join(root.itertext())


def test_a_deep_tree_ends_at_the_edge_of_the_page() -> None:
    """Few leaves, but a question below each `no`."""
    feature = next(node.feature for seed in range(9) for node in random_tree(seed, 6).nodes if node.feature)
    depth = 15
    nodes: list[Node] = []
    for level in range(depth):
        at = 2 * level
        nodes.append(Node(feature, at + 1, at + 2, level, 9, (9,), (1.0,), 0, 0))
        nodes.append(Node(None, -1, -1, level + 1, 5, (5,), (1.0,), 0, 0))
    nodes.append(Node(None, -1, -1, depth, 5, (5,), (1.0,), 0, 0))
    tree = Tree(tuple(nodes), 0.0, ())
    shown = readable_depth(tree)
    assert 1 < shown < depth
    assert float(_boxes(tree_chart(tree, "t", shown))[0].get("width", "")) <= MOST_WIDTH

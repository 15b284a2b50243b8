"""Decision trees over features: nodes, what a template prints of them, and nodes from scikit-learn's trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NotRequired, TypeAlias, TypedDict

import msgspec

from dagc.base.python import np
from dagc.choice.methods import FULL
from dagc.choice.selector import Answer, Scale, number
from dagc.perf.chart import Branching, Chart, FlowBox, condition_of


@dataclass(frozen=True, slots=True)
class Split:
    """Go to `low` if the feature at `index` is at most `most`, else to `high`."""

    index: int
    most: float
    low: Node
    high: Node


class Leaf(NamedTuple):
    """An answer, and the other labels, the best first."""

    label: int
    sure: float
    then: tuple[int, ...]


Node: TypeAlias = Answer | Leaf | Split


def with_fixed(node: Node, fixed: Mapping[int, float], places: Mapping[int, int]) -> Node:
    """A tree for vectors without the features at `fixed`, which have these values. `places`: indices of the others in
    these vectors."""
    if not isinstance(node, Split):
        return node
    if node.index in fixed:
        return with_fixed(node.low if fixed[node.index] <= node.most else node.high, fixed, places)
    low, high = (with_fixed(side, fixed, places) for side in (node.low, node.high))
    return low if low == high else Split(places[node.index], node.most, low, high)


def leaves(node: Node) -> tuple[Answer | Leaf, ...]:
    """All leaves, from low to high."""
    return (*leaves(node.low), *leaves(node.high)) if isinstance(node, Split) else (node,)


def node_to_json(node: Node) -> Any:
    """A label; {label, sure, then} if the training points of a leaf differ, or if it has an order of other labels; or
    [index, most, low, high]."""
    if isinstance(node, Split):
        return [node.index, number(node.most), node_to_json(node.low), node_to_json(node.high)]
    if isinstance(node, Leaf):
        return {"label": node.label, "sure": node.sure, "then": list(node.then)}
    return node.label if node.sure == 1 else {"label": node.label, "sure": node.sure}


def chart(node: Node, data: Sequence[str], leaf: Callable[[Answer | Leaf], Sequence[str]]) -> Chart:
    """A tree over the features `data`; `leaf`: the lines of a leaf."""
    cases = []
    while isinstance(node, Split):
        test = condition_of([f"{data[node.index]} <= {node.most:.12g}"])
        cases.append((test, chart(node.low, data, leaf)))
        node = node.high
    last = (FlowBox(tuple(leaf(node))),)
    return (Branching(tuple(cases), last),) if cases else last


class TreeLine(NamedTuple):
    """A line of a tree's C code: `if` when `at` is the index of a feature, `}` when `close`, else a leaf."""

    depth: int
    at: int = -1
    most: float = 0.0
    close: bool = False
    label: int = 0
    sure: float = 1.0


def lines(node: Node, depth: int = 1) -> Iterator[TreeLine]:
    """A tree as a flat list of nested comparisons, since a recursive template would reach Python's recursion limit."""
    while isinstance(node, Split):
        yield TreeLine(depth, node.index, node.most)
        yield from lines(node.low, depth + 1)
        yield TreeLine(depth, close=True)
        node = node.high
    yield TreeLine(depth, label=node.label, sure=node.sure)


def from_scikit(tree: Any, scales: Sequence[Scale], leaf: Callable[[int], Answer | Leaf]) -> Node:
    """A fitted tree (`tree_` of an estimator) with thresholds of features. `leaf`: makes a leaf from its number.

    Splits with equal sides are removed.
    """
    most = np.zeros(len(tree.feature))
    for index, scale in enumerate(scales):
        at = tree.feature == index
        most[at] = scale.largest_below(tree.threshold[at])
    sides = tree.children_left.tolist(), tree.children_right.tolist()

    def node(i: int) -> Node:
        if sides[0][i] < 0:
            return leaf(i)
        low, high = node(sides[0][i]), node(sides[1][i])
        return low if low == high else Split(int(tree.feature[i]), float(most[i]), low, high)

    return node(0)


def table(roots: Sequence[Node]) -> tuple[Any, Any]:
    """Trees as one table for a loop, as NumPy arrays: the rows (threshold, index of the feature, and the two
    successors), and the start of each tree. Starts and successors are row numbers, or -1 - label for a leaf."""
    rows: list[tuple[float, int, int, int]] = []

    def add(node: Node) -> int:
        if not isinstance(node, Split):
            return -1 - node.label
        place = len(rows)
        rows.append((0.0, 0, 0, 0))
        rows[place] = (node.most, node.index, add(node.low), add(node.high))
        return place

    begins = np.array([add(root) for root in roots], np.int32)
    kind = np.dtype([("most", "f8"), ("index", "i4"), ("low", "i4"), ("high", "i4")], align=True)
    return np.array(rows, kind), begins


# ---- as a tuned file keeps them -------------------------------------------------------------

Label = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Gain = Annotated[int, msgspec.Meta(ge=0, le=FULL)]
Name = Annotated[str, msgspec.Meta(pattern=r"\A[ -~]{1,1000}\Z")]  # used for look-up, never emitted
Real = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
_DEEPEST = 200  # levels of a tree: compilers have a limit as well


class LeafRow(TypedDict):
    """A leaf whose training points differ, or that has an order of the other labels."""

    label: Label
    sure: Annotated[float, msgspec.Meta(gt=0, le=1)]
    then: NotRequired[Annotated[tuple[Label, ...], msgspec.Meta(max_length=1000)]]


class SplitRow(msgspec.Struct, array_like=True, frozen=True):
    """A split and its subtrees, as written by `node_to_json`."""

    index: Label
    most: Real
    low: Label | LeafRow | SplitRow
    high: Label | LeafRow | SplitRow


Row: TypeAlias = Label | LeafRow | SplitRow


def node_of(row: int | LeafRow | SplitRow, data: int, depth: int = 0) -> Node:
    """The node of a row, for a selector with this number of `data`. Raises ValueError."""
    if isinstance(row, int):
        return Answer(row, 1.0)
    if not isinstance(row, SplitRow):
        if "then" not in row:
            return Answer(row["label"], row["sure"])
        if len({row["label"], *row["then"]}) != 1 + len(row["then"]):
            raise ValueError("a tree with a leaf that has one label twice")
        return Leaf(row["label"], row["sure"], row["then"])
    if row.index >= data or depth >= _DEEPEST:
        raise ValueError(f"a tree that uses missing data, or has more than {_DEEPEST} levels")
    return Split(row.index, row.most, node_of(row.low, data, depth + 1), node_of(row.high, data, depth + 1))


class SelectorRow(msgspec.Struct, tag_field="method", frozen=True):
    """The part of the representation that all selectors share. `scales`: empty if all features are sizes."""

    data: tuple[Name, ...]
    scales: tuple[tuple[Annotated[str, msgspec.Meta(pattern=r"\A(log|linear)\Z")], Real, Real], ...] = ()
    least_sure: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.0

    def read_scales(self) -> tuple[Scale, ...]:
        """One scale for each of the data. Raises ValueError."""
        if not self.scales:
            return (Scale(),) * len(self.data)
        out = tuple(Scale(kind, low, high) for kind, low, high in self.scales)  # type: ignore[arg-type]
        wrong = [s for s in out if (s.low <= 0 if s.kind == "log" else s.high < s.low)]
        if len(out) != len(self.data) or wrong:
            raise ValueError("scales of other features, or without a range")
        return out

"""Decision trees over sizes: nodes, their C, and nodes from scikit-learn's trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

from dagc.choice.selector import UNIT, head, log2_fixed, parameters

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Split:
    """`low` where the size at `index` of the data is at most `most`, else `high`."""

    index: int
    most: int
    low: Node
    high: Node


Node: TypeAlias = int | Split


def find_label(node: Node, sizes: Sequence[int]) -> int:
    """The leaf's label."""
    while isinstance(node, Split):
        node = node.low if sizes[node.index] <= node.most else node.high
    return node


def leaves(node: Node) -> int:
    """How many there are."""
    return leaves(node.low) + leaves(node.high) if isinstance(node, Split) else 1


def node_to_json(node: Node) -> Any:
    """A label, or [index, most, low, high]."""
    if isinstance(node, Split):
        return [node.index, node.most, node_to_json(node.low), node_to_json(node.high)]
    return node


def leaf_labels(node: Node) -> set[int]:
    """Every label of a leaf."""
    return leaf_labels(node.low) | leaf_labels(node.high) if isinstance(node, Split) else {node}


def node_to_c(node: Node, data: Sequence[str], function: str) -> str:
    """`static inline int function(...)` of nested comparisons."""
    names = parameters(data)
    unused = [f"  (void){name};" for i, name in enumerate(names) if not _asks(node, i)]
    return "\n".join([f"{head(function, data)} {{", *unused, *_branches(node, names, "  "), "}"]) + "\n"


def _asks(node: Node, index: int) -> bool:
    return isinstance(node, Split) and (node.index == index or _asks(node.low, index) or _asks(node.high, index))


def _branches(node: Node, names: Sequence[str], indent: str) -> list[str]:
    if not isinstance(node, Split):
        return [f"{indent}return {node};"]
    return [
        f"{indent}if ({names[node.index]} <= INT64_C({node.most})) {{",
        *_branches(node.low, names, indent + "  "),
        f"{indent}}}",
        *_branches(node.high, names, indent),
    ]


def largest_below(threshold: float) -> int:
    """The largest size whose logarithm to base 2, as `log2_fixed` gives it, is at most the threshold."""
    low, high = 0, LARGEST
    while low < high:
        middle = low + (high - low + 1) // 2
        if log2_fixed(middle) / UNIT <= threshold:
            low = middle
        else:
            high = middle - 1
    return low


def from_scikit(tree: Any, labels: Sequence[int]) -> Node:
    """A fitted tree (`tree_` of an estimator) with integer thresholds; `labels` are those of its classes.

    Splits whose sides say the same are dropped.
    """

    def node(i: int) -> Node:
        if tree.children_left[i] < 0:
            return int(labels[int(tree.value[i][0].argmax())])
        low, high = node(int(tree.children_left[i])), node(int(tree.children_right[i]))
        if low == high:
            return low
        return Split(int(tree.feature[i]), largest_below(float(tree.threshold[i])), low, high)

    return node(0)


# ---- as a tuned file keeps them -------------------------------------------------------------

Label = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*(\[[A-Za-z0-9_,]*\])?\Z", max_length=1000)]
_DEEPEST = 200  # levels of a tree: compilers have a limit, too


class SplitRow(msgspec.Struct, array_like=True, frozen=True):
    """A split and what is below it, as `node_to_json` gives them."""

    index: Label
    most: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    low: Label | SplitRow
    high: Label | SplitRow


def node_of(row: int | SplitRow, data: int, depth: int = 0) -> Node:
    """The node that a row holds, of a selector that asks for so many `data`. Raises ValueError."""
    if not isinstance(row, SplitRow):
        return row
    if row.index >= data or depth >= _DEEPEST:
        raise ValueError(f"a tree that asks for data that are not there, or with more than {_DEEPEST} levels")
    return Split(row.index, row.most, node_of(row.low, data, depth + 1), node_of(row.high, data, depth + 1))

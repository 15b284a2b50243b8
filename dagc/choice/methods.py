"""The learned methods by name: how each is trained, and how it is read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from dagc.base.errors import UsageError
from dagc.choice.forest import Forest, fit_forest
from dagc.choice.knn import Knn, fit_knn
from dagc.choice.selector import Selector
from dagc.choice.tree import LARGEST, Node, Split, Tree, fit_tree, leaf_labels

LEARNED = ("knn", "tree", "forest")


def fit(
    method: str, data: Sequence[str], sizes: Sequence[Sequence[int]], labels: Sequence[int], seed: int = 0
) -> Selector:
    """A selector, trained. `sizes` holds a value for each of `data`; `labels` are numbers of choices.

    Raises UsageError for an unknown method, fewer than three sizes, sizes below 1, or sizes given twice.
    """
    if method == "knn":
        return fit_knn(data, sizes, labels, seed=seed)
    if method == "tree":
        return fit_tree(data, sizes, labels, seed=seed)
    if method == "forest":
        return fit_forest(data, sizes, labels, seed=seed)
    raise UsageError(f"there is no learned method {method}", f"one of: {', '.join(LEARNED)}")


def from_json(record: object) -> Selector:
    """The selector that `Selector.to_json` gave. Raises ValueError, naming the place, for anything else."""
    try:
        row = msgspec.convert(record, _Knn | _Tree | _Forest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"a selector: {error}") from None
    if not row.data or len(set(row.data)) != len(row.data):
        raise ValueError("a selector without data, or with one twice")
    if isinstance(row, _Knn):
        lengths = {len(size) for size in row.sizes}
        if lengths != {len(row.data)} or len(row.labels) != len(row.sizes) or row.k > len(row.sizes):
            raise ValueError("a knn selector whose parts are not of one length")
        return Knn(row.data, row.sizes, row.labels, row.k, row.weights)
    if isinstance(row, _Tree):
        return Tree(row.data, _node(row.tree, len(row.data)))
    return Forest(row.data, tuple(_node(tree, len(row.data)) for tree in row.trees))


def labels_of(selector: Selector) -> frozenset[int]:
    """Every number that the selector may answer with."""
    if isinstance(selector, Knn):
        return frozenset(selector.labels)
    if isinstance(selector, Tree):
        return frozenset(leaf_labels(selector.root))
    if isinstance(selector, Forest):
        return frozenset(label for root in selector.roots for label in leaf_labels(root))
    raise TypeError(f"no selector: {selector!r}")


# ---- as a tuned file keeps them -------------------------------------------------------------

_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*(\[[A-Za-z0-9_,]*\])?\Z", max_length=1000)]
_Label = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
_Most = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
_DEEPEST = 200  # levels of a tree: compilers have a limit, too


class _Split(msgspec.Struct, array_like=True, frozen=True):
    index: _Label
    most: _Most
    low: _Label | _Split
    high: _Label | _Split


class _Knn(msgspec.Struct, tag_field="method", tag="knn", frozen=True):
    data: tuple[_Name, ...]
    sizes: tuple[tuple[_Size, ...], ...]
    labels: tuple[_Label, ...]
    k: _Count
    weights: Literal["uniform", "distance"]


class _Tree(msgspec.Struct, tag_field="method", tag="tree", frozen=True):
    data: tuple[_Name, ...]
    tree: _Label | _Split


class _Forest(msgspec.Struct, tag_field="method", tag="forest", frozen=True):
    data: tuple[_Name, ...]
    trees: Annotated[tuple[_Label | _Split, ...], msgspec.Meta(min_length=1, max_length=1000)]


def _node(row: int | _Split, data: int, depth: int = 0) -> Node:
    if not isinstance(row, _Split):
        return row
    if row.index >= data or depth >= _DEEPEST:
        raise ValueError(f"a tree that asks for data that are not there, or with more than {_DEEPEST} levels")
    return Split(row.index, row.most, _node(row.low, data, depth + 1), _node(row.high, data, depth + 1))

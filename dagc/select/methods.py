"""The learned methods by name: how each is trained, and how it is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagc.errors import UsageError
from dagc.select.forest import Forest, fit_forest
from dagc.select.knn import Knn, fit_knn
from dagc.select.selector import Selector
from dagc.select.tree import Tree, fit_tree

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


def from_json(kept: Mapping[str, Any]) -> Selector:
    """The selector that `Selector.to_json` gave. Raises UsageError where its method is unknown."""
    kinds: dict[str, type[Knn] | type[Tree] | type[Forest]] = {"knn": Knn, "tree": Tree, "forest": Forest}
    if kept["method"] not in kinds:
        raise UsageError(f"there is no learned method {kept['method']}", "tune again with this version of dagc")
    return kinds[kept["method"]].from_json(kept)

"""Monte-Carlo tree search for the minimum time."""

from __future__ import annotations

from typing import ClassVar

from dagc.lab.domain import C, Domain
from dagc.lab.tree import SearchTree, TreeNode


def closeness(child: TreeNode, parent: TreeNode, root: TreeNode) -> float:
    """How close the best of the child is to the best of all, in [0, 1]: (Tmax - tmin) / (Tmax - Tmin).

    Tmin and Tmax: the smallest and the largest value of the whole search. 1 if the child has fewer than two rollouts,
    or there is no range yet.
    """
    if child.n < 2 or not root.tmax > root.tmin or child.tmin > root.tmax:
        return 1.0
    return (root.tmax - child.tmin) / (root.tmax - root.tmin)


class Strategy(SearchTree[C]):
    """The tree search of the paper, but preferring subtrees with fast implementations."""

    summary: ClassVar[str] = "Monte-Carlo tree search for the minimum time"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        super().__init__(domain, seed, closeness)

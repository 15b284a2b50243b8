"""Monte-Carlo tree search for the minimum time."""

from __future__ import annotations

from typing import ClassVar, Generic

from dagc.lab.domain import C, Domain
from dagc.lab.tree import Tree, TreeNode
from dagc.store.results import Outcome


def closeness(child: TreeNode, parent: TreeNode, root: TreeNode) -> float:
    """How close the child's fastest is to the fastest of all, in [0, 1]: (Tmax - tmin) / (Tmax - Tmin).

    Tmin and Tmax are the fastest and the slowest time of the whole search. 1 where the child has fewer than two
    rollouts or there is no range yet.
    """
    if child.n < 2 or not root.tmax > root.tmin or child.tmin > root.tmax:
        return 1.0
    return (root.tmax - child.tmin) / (root.tmax - root.tmin)


class Strategy(Generic[C]):
    """The paper's tree search, but drawn to subtrees that hold fast implementations."""

    summary: ClassVar[str] = "Monte-Carlo tree search for the minimum time"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        self.tree = Tree(domain, seed, closeness)

    def propose(self) -> C | None:
        return self.tree.propose()

    def observe(self, candidate: C, outcome: Outcome) -> None:
        self.tree.observe(candidate, outcome)

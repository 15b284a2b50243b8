"""Monte-Carlo tree search for coverage, as in the paper (`dagc.lab.tree`)."""

from __future__ import annotations

from typing import ClassVar

from dagc.lab.domain import C, Domain
from dagc.lab.tree import SearchTree, TreeNode


def coverage(child: TreeNode, parent: TreeNode, root: TreeNode) -> float:
    """How much of the parent's range of times the child covers, in [0, 1] (section III-C1).

    1 where either has fewer than two rollouts, and where the parent's range is empty: no basis for comparison.
    """
    if child.n < 2 or parent.n < 2 or not parent.tmax > parent.tmin:
        return 1.0
    return max(0.0, (child.tmax - child.tmin) / (parent.tmax - parent.tmin))


class Strategy(SearchTree[C]):
    """Explores where decisions matter: gathers data for rules rather than the fastest implementation."""

    summary: ClassVar[str] = "Monte-Carlo tree search for coverage of the range of times (the paper's)"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        super().__init__(domain, seed, coverage)

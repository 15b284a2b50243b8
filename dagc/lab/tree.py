"""The tree of Monte-Carlo tree search ("Machine Learning for CUDA+MPI Design Rules", section III-C).

Selection, expansion, rollout with the rollout kept in the tree, backpropagation. Strategies differ only in the value of
a child. No candidate is proposed twice: a leaf is done when it is proposed, and a subtree without new candidates is not
entered again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Generic

from dagc.base.sample import Sample
from dagc.lab.domain import C, Domain

EXPLORATION = math.sqrt(2)


class TreeNode:
    """A prefix. `untried`: decisions without a rollout. `n`: rollouts; tmin and tmax: the extreme values below it."""

    __slots__ = ("children", "decision", "done", "n", "node", "parent", "tmax", "tmin", "untried")

    def __init__(self, node: Any, decision: Any, parent: TreeNode | None) -> None:
        self.node, self.decision, self.parent = node, decision, parent
        self.children: dict[Any, TreeNode] = {}
        self.untried: dict[Any, Any] | None = None  # None: not computed yet
        self.n = 0
        self.tmin, self.tmax = math.inf, -math.inf
        self.done = False


# The exploitation value of a child: (child, parent, root) -> number.
Value = Callable[[TreeNode, TreeNode, TreeNode], float]


class SearchTree(Generic[C]):
    """Proposes candidates and keeps the range of values below each prefix."""

    def __init__(self, domain: Domain[C], seed: int, value: Value) -> None:
        self.domain, self.value = domain, value
        self.random = Random(seed)
        self.root = TreeNode(domain.start(), None, None)

    def propose(self) -> C | None:
        """Selection, expansion and rollout; None if every candidate has been proposed."""
        if self.root.done:
            return None
        at = self.root
        while not self._untried(at):
            at = self._select(at)
        while True:
            untried = self._untried(at)
            if not untried:
                break
            at = self._create(at, self._drawn(at, untried))
        self._finish(at)
        return self._candidate(at)

    def _drawn(self, at: TreeNode, untried: dict[Any, Any]) -> Any:
        """A random untried decision, weighted by the number of candidates below it, so that rollouts are uniform over
        the candidates. Each decision is equally likely if they cannot be counted."""
        decisions = list(untried)
        weights = self.domain.weights(at.node, untried) if len(decisions) > 1 else None
        if weights is None:
            return self.random.choice(decisions)
        number = self.random.randrange(sum(weights))
        for decision, weight in zip(decisions, weights, strict=True):
            number -= weight
            if number < 0:
                return decision
        raise AssertionError("the number exceeds the sum of the weights")

    def observe(self, candidate: C, sample: Sample) -> None:
        """Backpropagation. A candidate that was not proposed here is added; one observed before adds no rollout."""
        at, new = self.root, False
        for decision in self.domain.path(candidate):
            child = at.children.get(decision)
            if child is None:
                if decision not in self._untried(at):
                    return  # not of this domain
                child, new = self._create(at, decision), True
            at = child
        if new:
            self._finish(at)
        rollout = at.n == 0
        value = sample.value
        while True:
            at.n += rollout
            if not math.isnan(value):
                at.tmin, at.tmax = min(at.tmin, value), max(at.tmax, value)
            if at.parent is None:
                break
            at = at.parent

    # ---- steps --------------------------------------------------------------------------

    def _untried(self, at: TreeNode) -> dict[Any, Any]:
        if at.untried is None:
            at.untried = self.domain.offers(at.node)
        return at.untried

    def _create(self, at: TreeNode, decision: Any) -> TreeNode:
        askers = self._untried(at).pop(decision)
        child = TreeNode(self.domain.step(at.node, decision, askers), decision, at)
        at.children[decision] = child
        return child

    def _select(self, at: TreeNode) -> TreeNode:
        """The child with the largest sum of exploration and exploitation, among those with new candidates below."""
        best, largest = None, -math.inf
        log = math.log(max(at.n, 1))
        for child in at.children.values():
            if child.done:
                continue
            score = EXPLORATION * math.sqrt(log / max(child.n, 1)) + self.value(child, at, self.root)
            if score > largest:
                best, largest = child, score
        assert best is not None, "a node that is not done has new candidates below it"
        return best

    def _finish(self, leaf: TreeNode) -> None:
        """Mark a complete candidate as done, and every ancestor without new candidates."""
        leaf.done = True
        at = leaf.parent
        while at is not None and not at.untried and all(child.done for child in at.children.values()):
            at.done = True
            at = at.parent

    def _candidate(self, leaf: TreeNode) -> C:
        path: list[Any] = []
        at = leaf
        while at.parent is not None:
            path.append(at.decision)
            at = at.parent
        return self.domain.candidate(path[::-1])

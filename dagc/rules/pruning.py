"""How large a tree is worth its leaves: cost-complexity pruning by cross-validation, and the error on held-out samples.

The tree of Algorithm 1 is grown until it is right about the samples that it is grown from, and says nothing of how
right it is about others. So the samples are dealt out to ten folds, each with its share of every class; a tree is grown
from nine folds and judged by the tenth. A tree that is pruned at a cost of c per leaf is the subtree with the least
error + c * leaves (Breiman, Friedman, Olshen, Stone: Classification and Regression Trees, 1984). Of the costs tried the
largest is taken whose held-out error is within one standard error of the least: their rule of one standard error.

The error that is reported is not that by which the cost was chosen: the samples of each fold are judged with the cost
that the other nine folds choose.

Errors weigh all classes equally and count what the caller says is wrong (`dagc.rules.learn`: by more than the noise),
as the tree's training error does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagc.rules.tree import grow

if TYPE_CHECKING:
    from dagc.rules.arrays import Bools, Floats, Ints

FOLDS = 10
SURE = 1.64  # standard errors: 95 % of a normal distribution lie below
COSTS = (0.0, *(2.0**-k for k in range(12, 0, -1)))  # of a leaf, as shares of the weight of all samples


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The error of trees on samples that they were not grown from.

    cost        of a leaf, by all folds: a split is kept only where it lowers the error by more for each leaf it adds
    error       held-out error of trees that are pruned so, from 0 to 1, all classes weighted equally
    deviation   its standard error
    one_answer  the error of the same class for all samples
    folds       how many there were
    """

    cost: float
    error: float
    deviation: float
    one_answer: float
    folds: int

    @property
    def helps(self) -> bool:
        """Is the tree better than one answer for all, with 95 % confidence?"""
        return self.error + SURE * self.deviation < self.one_answer


def held_out(
    table: Bools, labels: Ints, wrong: Bools, judged: Bools, costs: Sequence[float] = COSTS, folds: int = FOLDS
) -> HeldOut | None:
    """The cost of a leaf to prune with, and the error that this has on held-out samples.

    `table` is samples x features, `wrong` samples x classes; `judged` says which samples count in the error (the times
    of others are estimated). Samples must come in an order that has nothing to do with how they were measured; equal
    input gives equal output. None where there are fewer than two samples to judge by, or only one class.
    """
    import numpy as np

    classes = wrong.shape[1]
    folds = min(folds, int(judged.sum()))
    if folds < 2 or classes < 2:
        return None
    fold = _fold(labels, judged, folds)
    missed = np.zeros((len(costs), len(labels)), dtype=bool)
    for number in range(folds):
        test = fold == number
        if not test.any():
            continue
        growth, _ = grow(table[~test], labels[~test], classes)
        for place, cost in enumerate(costs):  # ascending: each tree is a subtree of the one before it
            growth.prune(wrong[~test], cost)
            missed[place, test] = wrong[test, growth.given(table[test])]
    answered = np.zeros((1, len(labels)), dtype=bool)
    for number in range(folds):
        test = fold == number
        others = judged & ~test
        answered[0, test] = missed[_choose(missed[:, others], labels[others]), test]
    errors, deviations = _errors(answered[:, judged], labels[judged])
    single, _ = _errors(wrong[judged].T, labels[judged])
    chosen = _choose(missed[:, judged], labels[judged])
    return HeldOut(costs[chosen], float(errors[0]), float(deviations[0]), float(single.min()), folds)


def _choose(missed: Bools, labels: Ints) -> int:
    """Which cost to take, by what was missed with each (costs x samples): the rule of one standard error."""
    import numpy as np

    errors, deviations = _errors(missed, labels)
    least = int(np.argmin(errors))
    return int(np.flatnonzero(errors <= errors[least] + deviations[least])[-1])


def _fold(labels: Ints, judged: Bools, folds: int) -> Ints:
    """Samples of each class are dealt out in turn; the next class goes on where the last has ended.

    Those that are judged come first, so that every fold has some.
    """
    import numpy as np

    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.lexsort((labels, ~judged))] = np.arange(len(labels)) % folds
    return fold


def _errors(missed: Bools, labels: Ints) -> tuple[Floats, Floats]:
    """Of each row (answers x samples): the mean over the classes of the share missed, and its standard error."""
    import numpy as np

    shares = np.array([missed[:, labels == k].mean(axis=1) for k in np.unique(labels)])
    counts = np.array([(labels == k).sum() for k in np.unique(labels)])
    variances = shares * (1 - shares) / counts[:, None]
    errors: Floats = shares.mean(axis=0)
    deviations: Floats = np.sqrt(variances.sum(axis=0)) / len(counts)
    return errors, deviations

"""Conjunctions of rules whose followers are fast, on one input or several: a beam search over features."""

from __future__ import annotations

from collections.abc import Sequence

from dagc.base.python import np
from dagc.learn.types import Bools, Floats, Rule, RuleFeature

NOTHING = 0.0002  # losses closer than this are ties, which the number of followers decides
FOLLOWERS = 8  # of each input at least, or 1 % of its samples
SHARE = 0.01
BEAM = 8
GAIN = 0.001  # decrease of the mean loss that justifies another rule


def both_ways(answers: Bools) -> Bools:
    """The answers to every rule: each feature, then its negation. Shape (samples, 2 * features)."""
    return np.concatenate([answers, ~answers], axis=1)


def rule_of(column: int, features: Sequence[RuleFeature]) -> Rule:
    """The rule of a column of `both_ways`."""
    return Rule(features[column % len(features)], column < len(features))


def followers_of(columns: Sequence[int], answers: Bools) -> Bools:
    """Whether each sample follows the rules of these columns of `both_ways`."""
    out: Bools = np.logical_and.reduce(answers[:, list(columns)], axis=1)
    return out


def conjunctions(
    losses: Floats, answers: Bools, inputs: Sequence[Bools], most: int | None = None, errors: float = 0.0
) -> list[tuple[int, ...]]:
    """The best conjunction of 0, 1, 2, ... rules, each as columns of `answers` (of `both_ways`), at most `most` rules.

    The best has the lowest mean loss of its followers, all inputs weighted equally, and followers on each of them.
    `errors` standard errors are added to each mean, so that of equal ones the one of more followers wins. The search
    ends where another rule lowers that by less than GAIN. `losses`: one for each sample; `inputs`: which samples are
    of each input.
    """
    weights = np.stack(inputs).astype(float)
    least = np.maximum(FOLLOWERS, SHARE * weights.sum(axis=1, keepdims=True))
    mean = float(np.mean([losses[here].mean() for here in inputs]))
    out: list[tuple[int, ...]] = [()]
    best = mean
    front: list[tuple[float, tuple[int, ...], Bools]] = [(mean, (), np.logical_or.reduce(inputs))]
    while front and (most is None or len(out) <= most):
        candidates: dict[bytes, tuple[float, tuple[int, ...], Bools]] = {}
        for value, columns, here in front:
            inside = answers[here].astype(float)
            counts = weights[:, here] @ inside
            sums = (weights[:, here] * losses[here]) @ inside
            means = sums / np.maximum(counts, 1)
            if errors:
                squares = (weights[:, here] * losses[here] ** 2) @ inside / np.maximum(counts, 1)
                means += errors * np.sqrt(np.maximum(squares - means**2, 0) / np.maximum(counts, 1))
            means = np.where((counts >= least).all(axis=0), means.mean(axis=0), np.inf)
            order = np.lexsort((-counts.sum(axis=0), _rounded(means)))
            for column in map(int, order[:BEAM]):
                if means[column] < value - GAIN:
                    followers = here & answers[:, column]
                    candidates.setdefault(followers.tobytes(), (float(means[column]), (*columns, column), followers))
        front = sorted(candidates.values(), key=lambda one: (float(_rounded(one[0])), -int(one[2].sum()), one[1]))[
            :BEAM
        ]
        if not front or front[0][0] >= best - GAIN:
            break
        best = front[0][0]
        out.append(front[0][1])
    return out


def _rounded(loss: Floats | float) -> Floats:
    return np.floor(np.asarray(loss) / NOTHING)

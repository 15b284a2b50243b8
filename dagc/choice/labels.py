"""Labels of training sizes, corrected by rule.

The paper on the tridiagonal partition method (table "corrected opt m") corrects its labels by hand, to follow the trend
where the difference is small. Here a rule does this: among the choices within a tolerance of the best at each size, it
takes the labels that change least often along the sizes, and among these the ones that lose the least time. For sizes
of several dimensions without an order, it takes the fewest different labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Label = TypeVar("Label", bound=Hashable)

STEPS = 20_000  # of the search for the smallest set of labels


def observed_labels(times: Sequence[Mapping[Label, float]]) -> tuple[Label, ...]:
    """The fastest choice at each size; the first if several are equal."""
    return tuple(min(at, key=lambda label: at[label]) for at in times)


def simplest_labels(times: Sequence[Mapping[Label, float]], tolerance: float) -> tuple[Label, ...]:
    """One label per size, in the order of the sizes: fewest changes, then least relative loss.

    `times`: label -> seconds, per size, sizes ascending. `tolerance` is relative: 0.01 allows what is within 1 % of the
    best. Dynamic programming over sizes and allowed labels.
    """
    # label -> (changes, loss, path) of the best labelling so far that ends with it
    paths: dict[Label, tuple[int, float, tuple[Label, ...]]] = {}
    for at in times:
        least = min(at.values())
        allowed = [label for label, seconds in at.items() if seconds <= (1 + tolerance) * least]
        step: dict[Label, tuple[int, float, tuple[Label, ...]]] = {}
        cheapest = min(paths.values(), key=lambda p: p[:2]) if paths else (0, 0.0, ())
        for label in allowed:
            loss = at[label] / least - 1
            changed = (cheapest[0] + bool(cheapest[2]), cheapest[1] + loss, (*cheapest[2], label))
            same = paths.get(label)
            unchanged = (same[0], same[1] + loss, (*same[2], label)) if same is not None else changed
            step[label] = min(unchanged, changed, key=lambda p: p[:2])
        paths = step
    return min(paths.values(), key=lambda p: p[:2])[2] if paths else ()


def ascends(sizes: Sequence[Sequence[float]]) -> bool:
    """Whether all sizes grow together once sorted. They then have one order, and labels may have a trend along it."""
    ordered = sorted(tuple(row) for row in sizes)
    return all(a <= b for one, other in pairwise(ordered) for a, b in zip(one, other, strict=True))


def covering_labels(times: Sequence[Mapping[Label, float]], tolerance: float) -> tuple[Label, ...]:
    """One label per size, for sizes without an order: fewest different labels, then least relative loss.

    `times`: label -> seconds, per size. Among the labels within the tolerance of the best at each size, the smallest
    set that has one for every size; each size takes the fastest of this set. Branch and bound, starting with the greedy
    set; after STEPS steps the best set so far is taken.
    """
    losses = [_losses(at, tolerance) for at in times]
    order = list(dict.fromkeys(label for at in losses for label in at))
    covers = {label: frozenset(i for i, at in enumerate(losses) if label in at) for label in order}
    best = _greedy(losses, covers)
    score = (len(best), _loss(losses, best))
    steps = 0

    def extend(labels: tuple[Label, ...], left: frozenset[int]) -> None:
        nonlocal best, score, steps
        steps += 1
        if not left:
            candidate = (len(labels), _loss(losses, labels))
            if candidate < score:
                best, score = labels, candidate
            return
        most = max(len(covers[label] & left) for label in order)
        if steps > STEPS or len(labels) - (-len(left) // most) > score[0]:
            return
        hardest = min(left, key=lambda i: (len(losses[i]), i))
        for label in losses[hardest]:
            extend((*labels, label), left - covers[label])

    extend((), frozenset(range(len(times))))
    return tuple(min((label for label in best if label in at), key=lambda label: at[label]) for at in losses)


def corrected_labels(
    sizes: Sequence[Sequence[float]], times: Sequence[Mapping[Label, float]], tolerance: float
) -> tuple[Label, ...]:
    """`simplest_labels` if the sizes grow together, else `covering_labels`; in the given order."""
    if not ascends(sizes):
        return covering_labels(times, tolerance)
    order = sorted(range(len(sizes)), key=lambda i: tuple(sizes[i]))
    labels = simplest_labels([times[i] for i in order], tolerance)
    return tuple(label for _, label in sorted(zip(order, labels, strict=True), key=lambda pair: pair[0]))


def _losses(at: Mapping[Label, float], tolerance: float) -> dict[Label, float]:
    least = min(at.values())
    return {label: seconds / least - 1 for label, seconds in at.items() if seconds <= (1 + tolerance) * least}


def _loss(losses: Sequence[Mapping[Label, float]], labels: Sequence[Label]) -> float:
    return sum(min(at[label] for label in labels if label in at) for at in losses)


def _greedy(losses: Sequence[Mapping[Label, float]], covers: Mapping[Label, frozenset[int]]) -> tuple[Label, ...]:
    """Greedy cover: repeatedly the label that serves most of the remaining sizes; if several do, the one that loses
    less."""
    left, chosen = frozenset(range(len(losses))), []
    while left:
        gains = {label: (-len(at & left), sum(losses[i][label] for i in at & left)) for label, at in covers.items()}
        label = min(gains, key=lambda one: gains[one])
        chosen.append(label)
        left -= covers[label]
    return tuple(chosen)

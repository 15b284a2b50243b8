"""Labels of training sizes, corrected by rule.

The seed (tridiagonal partition method, table "corrected opt m") corrects its labels by hand, to follow the trend where
the difference is small. Here that is a rule: among the choices within a tolerance of the best at each size, those
labels are taken that change least often along the sizes, and of these the ones that lose least time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Label = TypeVar("Label", bound=Hashable)


def observed_labels(times: Sequence[Mapping[Label, float]]) -> tuple[Label, ...]:
    """The fastest choice at each size; the first of equal ones."""
    return tuple(min(at, key=lambda label: at[label]) for at in times)


def simplest_labels(times: Sequence[Mapping[Label, float]], tolerance: float) -> tuple[Label, ...]:
    """One label per size, in the order of the sizes: fewest changes, then least relative loss.

    `times`: label -> seconds, per size, sizes ascending. `tolerance` is relative: 0.01 allows what is within 1 % of the
    best. Dynamic programming over sizes and allowed labels.
    """
    # label -> (changes, loss, path) of the best labelling up to here that ends with it
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
            kept = (same[0], same[1] + loss, (*same[2], label)) if same is not None else changed
            step[label] = min(kept, changed, key=lambda p: p[:2])
        paths = step
    return min(paths.values(), key=lambda p: p[:2])[2] if paths else ()

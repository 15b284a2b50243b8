"""Which features a selector needs (`--select-features`): few and cheap ones by which it chooses as well as by all."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagc.choice.selector import FEWEST
from dagc.choice.train import Interval, Times, merged, train

FOLDS = 4
GAIN = 0.005  # of the mean time over the best: what a feature must save to be taken


@dataclass(frozen=True, slots=True)
class Subset:
    """`loss`: geometric mean of t_chosen / t_best at inputs left out, with these features; `all_loss`: with all."""

    names: tuple[str, ...]
    loss: float
    all_loss: float


def select_features(
    method: str,
    names: Sequence[str],
    rows: Sequence[Sequence[float]],
    times: Sequence[Times],
    costs: Mapping[str, float],
    seed: int = 0,
    tolerance: float = 0.0,
) -> Subset:
    """Greedy forward selection by cross-validation: again and again the feature that saves most time, of equally good
    ones the cheapest, while that is GAIN or more.

    `rows`: the features `names` of each input, all finite; `times`: seconds of each answer there; `costs`: seconds to
    compute each feature (0 where missing). All names, where there are too few inputs to leave any out. `tolerance`:
    the noise of a comparison, relative.
    """
    table = _Table(method, names, rows, times, tolerance, seed)
    every = tuple(names)
    if len(rows) < FEWEST + FOLDS:
        return Subset(every, math.nan, math.nan)
    all_loss = table.loss(every)
    chosen: tuple[str, ...] = ()
    loss = math.inf
    while len(chosen) < len(names):
        left = sorted((n for n in names if n not in chosen), key=lambda n: costs.get(n, 0.0))
        losses = {n: table.loss((*chosen, n)) for n in left}
        least = min(losses.values())
        name = next(n for n in left if losses[n] <= least + GAIN / 2)
        if losses[name] > loss - GAIN:
            break
        chosen, loss = (*chosen, name), losses[name]
    if not chosen or all_loss < loss - GAIN:
        return Subset(every, all_loss, all_loss)
    return Subset(tuple(n for n in names if n in chosen), loss, all_loss)


class _Table:
    """Cross-validated losses of subsets; the folds are the same for all."""

    def __init__(
        self,
        method: str,
        names: Sequence[str],
        rows: Sequence[Sequence[float]],
        times: Sequence[Times],
        tolerance: float,
        seed: int,
    ) -> None:
        self._method, self._names, self._seed = method, list(names), seed
        self._rows, self._times = rows, times
        self._noise: Interval = (1 - tolerance / 2, 1.0, 1 + tolerance / 2)
        order = list(range(len(rows)))
        random.Random(f"{seed} folds").shuffle(order)
        self._folds = [order[k::FOLDS] for k in range(FOLDS)]

    def loss(self, names: Sequence[str]) -> float:
        """Geometric mean of t_chosen / t_best at the inputs of each fold, trained on the others."""
        places = [self._names.index(n) for n in names]
        vectors = [tuple(row[i] for i in places) for row in self._rows]
        logs: list[float] = []
        for fold in self._folds:
            kept = [i for i in range(len(vectors)) if i not in fold]
            noise = [[self._noise]] * len(kept)
            known = merged([vectors[i] for i in kept], [self._times[i] for i in kept], noise)
            if len(known.sizes) < FEWEST:
                return math.inf
            selector = train(self._method, list(names), known, self._seed)
            logs += [math.log(_ratio(self._times[i], selector.choose(vectors[i]))) for i in fold]
        return math.exp(sum(logs) / len(logs))


def _ratio(at: Times, answer: int) -> float:
    """t / t_best; the slowest one's where the answer has none."""
    finite = [t for t in at.values() if math.isfinite(t)]
    seconds = at.get(answer, math.inf)
    return (seconds if math.isfinite(seconds) else max(finite)) / min(finite)

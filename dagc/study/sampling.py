"""Active learning: which input to measure next, so that a selector trained on few labelled inputs chooses well.

Measuring all answers at an input labels it. Of inputs that are drawn, `uncertain` takes the next batch: Algorithm 1 of
MLCD, uncertainty sampling guided by a random forest. Of listed inputs, whose features are all known, `next_input` names
one (incremental tuning). Its strategies:

  bvsb    Best-vs-Second-Best (Joshi et al. 2009; Nitro): where the two most likely answers are closest
  cost    where the current answer is expected to lose most, estimated by an ensemble of regressors of the times; every
          third input is random, since the ensemble knows nothing of regions that it has not seen
  random  uniformly at random

The first inputs of `bvsb` and `cost` are those farthest apart, until every answer is best at one of them, or until
there are as many inputs as answers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from dagc.choice.selector import FEWEST, Selector, coordinates, scales_of
from dagc.study.train import Times, TrainingTable, observed_labels, shares_of, trained

Strategy = Literal["bvsb", "cost", "random"]
Vectors = Sequence[Sequence[float]]
K = TypeVar("K", bound=Hashable)  # an input

# ---- inputs that are drawn ----

GUIDE_TREES = 100  # trees of the guide
PATIENCE = 200  # candidates tried for each input of a batch before a smaller batch is accepted
_AT_ONCE = 256  # candidates whose margins are computed together


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of Algorithm 1: `initial` inputs at random, then batches of `batch` whose margin is below `margin`."""

    initial: int
    batch: int
    margin: float = 0.5

    @classmethod
    def of(cls, samples: int, initial: int | None, batch: int | None, margin: float) -> Sampling:
        """The defaults for `samples` inputs: a fifth of them first, but at least 20, then batches of a twentieth."""
        first = min(samples, initial if initial is not None else max(20, samples // 5))
        return cls(first, batch if batch is not None else max(1, samples // 20), margin)


@dataclass(frozen=True, slots=True)
class Guide:
    """A random forest that predicts the best answer of an input."""

    forest: Any

    def margins(self, vectors: Vectors) -> list[float]:
        """For each input: the probability of the most likely answer minus that of the second, in [0, 1]."""
        import numpy as np

        likely = np.sort(self.forest.predict_proba(np.asarray(vectors, dtype=float)), axis=1)
        return [float(m) for m in likely[:, -1] - likely[:, -2]]


def guide(vectors: Vectors, times: Sequence[Times], seed: int = 0) -> Guide | None:
    """The guide trained on the labelled inputs: `times` of all answers at each. None while one answer is best at all of
    them, since no boundary is known yet."""
    from sklearn.ensemble import RandomForestClassifier

    known = [i for i, at in enumerate(times) if any(map(math.isfinite, at.values()))]
    labels = [min(times[i], key=lambda a: (times[i][a], a)) for i in known]
    if len(set(labels)) < 2:
        return None
    # All features are candidates for a split: with random subsets of few features, the trees are unsure everywhere.
    forest = RandomForestClassifier(GUIDE_TREES, max_features=None, random_state=seed)
    return Guide(forest.fit([list(vectors[i]) for i in known], labels))


@dataclass(frozen=True, slots=True)
class InputBatch:
    """Inputs to measure next, and the number of candidates that were examined."""

    inputs: tuple[Any, ...]
    looked: int


def uncertain(
    guides: Sequence[Guide | None],
    draw: Callable[[int], Sequence[K]],
    vector: Callable[[K], Sequence[float]],
    size: int,
    margin: float,
) -> InputBatch:
    """The next batch of Algorithm 1 (MLCD, section III-A, lines 4 to 10): of the candidates from `draw`, those for
    which a guide (one for each op) has a margin below `margin`.

    `draw(n)` returns up to n unlabelled candidates; `vector` returns the features of one. Unlike the published loop,
    this one terminates: after PATIENCE * `size` candidates the batch may be smaller, or empty. Without a guide, every
    candidate is kept.
    """
    kept: dict[K, None] = {}
    looked = 0
    while len(kept) < size and looked < PATIENCE * size:
        drawn = draw(min(_AT_ONCE, PATIENCE * size - looked))
        looked += len(drawn)
        new = [one for one in dict.fromkeys(drawn) if one not in kept]
        if not new:
            break
        least = _least_margins(guides, [vector(one) for one in new])
        kept |= dict.fromkeys(one for one, m in zip(new, least, strict=True) if m < margin)
    return InputBatch(tuple(kept)[:size], looked)


def _least_margins(guides: Sequence[Guide | None], vectors: Vectors) -> list[float]:
    """For each input, the least margin over the guides; below any threshold if a guide does not exist yet."""
    columns = [one.margins(vectors) if one is not None else [-1.0] * len(vectors) for one in guides]
    return [min(row) for row in zip(*columns, strict=True)]


# ---- inputs that are listed ----


def next_input(
    table: TrainingTable, labelled: Collection[int], method: str, seed: int = 0, strategy: Strategy = "bvsb"
) -> int | None:
    """The number of the input to measure next; None if no remaining input adds information.

    `table`: a row for each input; `labelled`: the numbers of those that were measured. An input with a feature that is
    not finite, or with the features of a labelled one, is never proposed. The same arguments give the same input.
    Raises UsageError for an unknown method.
    """
    known = table.only(labelled)
    selector = None if strategy == "random" or _begins(known) else trained(known, method, seed)
    return next_after(table, labelled, selector, seed, strategy)


def next_after(
    table: TrainingTable, labelled: Collection[int], selector: Selector | None, seed: int, strategy: Strategy
) -> int | None:
    """As `next_input`; `selector`: trained on the labelled inputs."""
    vectors, known = table.features, table.only(labelled)
    seen = set(known.features)
    finite = [i for i, v in enumerate(vectors) if all(map(math.isfinite, v))]
    pool = [i for i in finite if i not in labelled and vectors[i] not in seen]
    if not pool:
        return None
    random.Random(f"{seed} {len(labelled)}").shuffle(pool)
    if strategy == "random":
        return pool[0]
    apart = _distances(vectors, [i for i in finite if i in labelled], pool)
    if selector is None or _begins(known):
        return max(pool, key=lambda i: apart[i])
    if strategy == "cost" and len(labelled) % 3 == 0:
        return pool[0]
    if strategy == "bvsb":
        score = _margins(selector, vectors, pool)
    else:
        score = _losses(selector, vectors, known.usable, pool, seed)
    return min(pool, key=lambda i: (score[i], -apart[i]))


def _begins(labelled: TrainingTable) -> bool:
    """Whether the next input is still chosen by distance: some answer is best nowhere yet, and fewer inputs than
    answers are labelled."""
    answers = {answer for row in labelled.rows for answer in row.finite}
    best = set(observed_labels([row.finite for row in labelled.rows if row.finite]))
    return len(labelled.rows) < max(FEWEST, len(answers) if len(best) < len(answers) else 0)


def _distances(vectors: Vectors, labelled: Sequence[int], pool: Sequence[int]) -> dict[int, float]:
    """The distance of each input of the pool from the nearest labelled one; equal for all if none is labelled."""
    import numpy as np

    used = [*pool, *labelled]
    at = coordinates([vectors[i] for i in used], scales_of([vectors[i] for i in used]))
    width = np.ptp(at, axis=0)
    at = at / np.where(width > 0, width, 1)
    near = np.full(len(pool), np.inf)
    for row in at[len(pool) :]:
        near = np.minimum(near, ((at[: len(pool)] - row) ** 2).sum(axis=1))
    return {i: float(d) for i, d in zip(pool, near, strict=True)}


def _margins(selector: Selector, vectors: Vectors, pool: Sequence[int]) -> dict[int, float]:
    """How much more evidence there is for the best answer than for the second best."""
    out = {}
    for i in pool:
        first, second, *_ = sorted((*selector.votes(vectors[i]).values(), 0.0, 0.0), reverse=True)
        out[i] = first - second
    return out


def _losses(
    selector: Selector, vectors: Vectors, labelled: TrainingTable, pool: Sequence[int], seed: int
) -> dict[int, float]:
    """Minus the expected loss of the current answer, as a fraction of the exhaustive performance: the mean over the
    trees of a forest, each of which predicts the times of all answers from a sample of the labelled inputs."""
    import numpy as np
    from sklearn.ensemble import ExtraTreesRegressor

    answers = sorted({answer for row in labelled.rows for answer in row.times})
    gains = [shares_of(row.times) for row in labelled.rows]
    shares = np.array([[gain.get(answer, 0.0) for answer in answers] for gain in gains])
    scales = scales_of(labelled.features)
    model = ExtraTreesRegressor(50, bootstrap=True, random_state=seed).fit(
        coordinates(labelled.features, scales), shares
    )
    here: Any = coordinates([vectors[i] for i in pool], scales)
    predicted = np.array([tree.predict(here).reshape(len(pool), len(answers)) for tree in model.estimators_])
    taken = [answers.index(selector.choose(vectors[i])) for i in pool]
    lost = (predicted.max(axis=2) - predicted[:, np.arange(len(pool)), taken]).mean(axis=0)
    return {i: -float(v) for i, v in zip(pool, lost, strict=True)}

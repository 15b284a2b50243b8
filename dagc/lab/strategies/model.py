"""Model-guided search: simulate, fit, and measure where a gain is likely, with a fair sample beside it."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from dagc.lab.domain import C, Domain, Surrogate
from dagc.store.results import Outcome

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

WHOLE = 2500  # a space up to this size is simulated as a whole, of a larger one a sample
SAMPLE = 600  # the first sample of a larger space
RENEW = 5  # measurements after which the model is searched for more
ROUNDS, GROWTH = 2, 48  # rounds of that, each with so many neighbours of the best
FASTEST = 8  # that neighbours are taken of
MOST, LEFT = 1500, 800  # rows of the pool, and how many stay when there are more
GAIN = 12  # the first measurements are for gain alone
FAIR_EVERY = 4  # afterwards every fourth is drawn uniformly


class Strategy(Generic[C]):
    """Fits costs of ops and messages to what was measured, simulates the candidates, and measures by expected gain.

    What the simulation misses is a Gaussian process over order and streams. A space that is too large to be simulated
    as a whole is searched locally: neighbours of what the model expects to be fastest, again and again
    (docs/explanation/search.md). A share of uniform draws bounds how much a wrong model can cost.
    """

    summary: ClassVar[str] = "model-guided: fitted simulation, expected gain, local search, and a fair sample"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.before: list[tuple[C, Outcome]] = []  # what was observed before there was a model
        self.measured = 0
        self.grown_with = -RENEW
        self.closed: set[C] = set()
        self._built: Surrogate[C] | None = None  # when it is first needed: that takes a while

    @classmethod
    def suits(cls, domain: Domain[Any]) -> bool:
        return domain.has_surrogate

    # ---- the protocol -------------------------------------------------------------------

    def propose(self) -> C | None:
        import numpy as np

        model = self._model()
        if self.measured >= GAIN and self.measured % FAIR_EVERY == 0:
            fair = self._fair()
            if fair is not None:
                return fair
        rows = self._open(model)
        if not len(rows):
            return self._fair()
        mean, deviation = model.estimate()
        score = _expected_gain(mean[rows], deviation[rows], model.incumbent())
        # Equal scores are common (many orders are one to the simulation): which of them is drawn by the seed.
        best = rows[np.flatnonzero(score >= score.max() - 1e-6 * abs(score.max()))]
        return model.candidates[int(best[self.random.randrange(len(best))])]

    def observe(self, candidate: C, outcome: Outcome) -> None:
        if self._built is None:
            self.before.append((candidate, outcome))
            return
        self._built.extend([candidate])
        self.closed.add(candidate)
        if not math.isnan(outcome.seconds):
            self.measured += 1
            self._built.observe(candidate, outcome.seconds * 1e6)

    def best(self) -> C | None:
        """The current choice: of what was measured, the one with the smallest expected time. Not the luckiest one."""
        model = self._model()
        mean, row = model.estimate()[0], model.row
        return min((c for c in model.times if c in row), key=lambda c: (float(mean[row[c]]), row[c]), default=None)

    # ---- pool ---------------------------------------------------------------------------

    @property
    def _whole(self) -> bool:
        size = self.domain.size()
        return size is not None and size <= WHOLE

    def _model(self) -> Surrogate[C]:
        """All candidates of a small domain; else a sample that grows around the fastest."""
        if self._built is None:
            model = self._built = self.domain.surrogate()
            model.extend(self.domain if self._whole else (self.domain.sample(self.random) for _ in range(SAMPLE)))
            # Those that the sample does not have, all at once: each addition copies the arrays.
            model.extend(candidate for candidate, _ in self.before)
            for candidate, outcome in self.before:
                self.observe(candidate, outcome)
        if not self._whole and self.measured - self.grown_with >= RENEW:
            self.grown_with = self.measured
            self._grow(self._built)
        return self._built

    def _grow(self, model: Surrogate[C]) -> None:
        """Local search on the model: neighbours of what it expects to be fastest, measured or not."""
        import numpy as np

        for _ in range(ROUNDS):
            mean, deviation = model.estimate()
            hopeful = np.argsort(np.round(mean - deviation, 6), kind="stable")[:FASTEST]
            fastest = np.argsort(np.round(mean, 6), kind="stable")[:FASTEST]
            starts = [model.candidates[int(i)] for i in (*hopeful, *fastest)]
            model.extend([self.domain.near(self.random.choice(starts), self.random) for _ in range(GROWTH)])
        if len(model.candidates) > MOST:
            mean, deviation = model.estimate()
            model.keep([int(i) for i in np.argsort(np.round(mean - deviation, 6), kind="stable")[:LEFT]])

    def _open(self, model: Surrogate[C]) -> Numbers:
        """Rows that have not been measured."""
        import numpy as np

        rows = np.ones(len(model.candidates), dtype=bool)
        rows[[row for c in self.closed if (row := model.row.get(c)) is not None]] = False
        return np.flatnonzero(rows)

    def _fair(self) -> C | None:
        """A candidate that is not measured yet, each equally likely."""
        size = self.domain.size()
        if size is not None and len(self.closed) >= size:
            return None
        for _ in range(1000):
            candidate = self.domain.sample(self.random)
            if candidate not in self.closed:
                return candidate
        return next((c for c in self.domain if c not in self.closed), None)


def _expected_gain(mean: Array, deviation: Array, incumbent: float) -> Array:
    """Expected improvement over the incumbent; without one, the smallest mean wins."""
    import numpy as np
    from scipy.special import ndtr

    if math.isinf(incumbent):
        return np.asarray(-mean)
    z = (incumbent - mean) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))

"""Model-guided search: simulate, fit, and measure where a gain or a surprise is likely."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from dagc.lab.domain import C, Domain, Surrogate
from dagc.store.results import Outcome

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

WHOLE = 2500  # a space up to this size is simulated as a whole, of a larger one a sample
SAMPLE = 1000  # the first sample of a larger space
RENEW = 40  # measurements after which it grows
GROWTH = 64  # by so many, made from the fastest
FASTEST = 10
GAIN = 12  # the first measurements are for gain alone
GAIN_EVERY = 4  # afterwards every fourth is, the others are for information: drawn uniformly


class Strategy(Generic[C]):
    """Fits costs of ops and messages to what was measured, simulates the candidates, and measures by expected gain.

    What the simulation misses is a Gaussian process over order and streams (docs/how-to/explore.md).
    """

    summary: ClassVar[str] = "model-guided: fitted simulation, expected gain, then a fair sample too"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.before: list[tuple[C, Outcome]] = []  # what was observed before there was a model
        self.grown_with = 0
        self._built: tuple[Surrogate[C], Open] | None = None  # when it is first needed: that takes a while

    @classmethod
    def suits(cls, domain: Domain[Any]) -> bool:
        return domain.has_surrogate

    # ---- the protocol -------------------------------------------------------------------

    def propose(self) -> C | None:
        import numpy as np

        model, open_ = self._model()
        rows = open_.rows()
        if not len(rows):
            return None
        candidates, measured = model.candidates, len(model.times)
        if measured >= GAIN and measured % GAIN_EVERY:
            # For information: anything that is not known yet. The most uncertain ones are odd ones, and rules learned
            # from them are worse than from a fair sample.
            return candidates[int(rows[self.random.randrange(len(rows))])]
        mean, deviation = model.estimate()
        score = _expected_gain(mean[rows], deviation[rows], model.incumbent())
        # Equal scores are common (many orders are one to the simulation): which of them is drawn by the seed.
        best = rows[np.flatnonzero(score >= score.max() - 1e-9 * abs(score.max()))]
        return candidates[int(best[self.random.randrange(len(best))])]

    def observe(self, candidate: C, outcome: Outcome) -> None:
        if self._built is None:
            self.before.append((candidate, outcome))
            return
        model, open_ = self._built
        if candidate not in model.row:
            model.extend([candidate])
        open_.close(model.row[candidate])
        if not math.isnan(outcome.seconds):
            model.observe(candidate, outcome.seconds * 1e6)

    def best(self) -> C | None:
        """The current choice: of what was measured, the one with the smallest expected time. Not the luckiest one."""
        model, _ = self._model()
        mean, row = model.estimate()[0], model.row
        return min(model.times, key=lambda c: (float(mean[row[c]]), row[c]), default=None)

    # ---- pool ---------------------------------------------------------------------------

    def _model(self) -> tuple[Surrogate[C], Open]:
        """All candidates of a small domain; else a sample that grows now and then around the fastest."""
        size = self.domain.size()
        whole = size is not None and size <= WHOLE
        if self._built is None:
            model = self.domain.surrogate()
            self._built = model, Open()
            model.extend(self.domain if whole else (self.domain.walk(self.random) for _ in range(SAMPLE)))
            # Those that the sample does not have, all at once: each addition copies the arrays.
            model.extend(candidate for candidate, _ in self.before)
            for candidate, outcome in self.before:
                self.observe(candidate, outcome)
        model, open_ = self._built
        if not whole and len(model.times) - self.grown_with >= RENEW:
            self.grown_with = len(model.times)
            fastest = sorted(model.times, key=lambda c: fmean(model.times[c]))[:FASTEST]
            model.extend([self.domain.near(self.random.choice(fastest), self.random) for _ in range(GROWTH)])
        open_.extend(len(model.candidates))
        return model, open_


class Open:
    """Rows that have not been observed."""

    def __init__(self) -> None:
        self._closed = bytearray()

    def extend(self, rows: int) -> None:
        """There are so many rows now; new ones are open."""
        self._closed.extend(bytes(rows - len(self._closed)))

    def close(self, row: int) -> None:
        """Observed."""
        self.extend(max(row + 1, len(self._closed)))
        self._closed[row] = 1

    def rows(self) -> Numbers:
        """Those that are open, ascending."""
        import numpy as np

        return np.flatnonzero(np.frombuffer(self._closed, dtype=np.uint8) == 0)


def _expected_gain(mean: Array, deviation: Array, incumbent: float) -> Array:
    """Expected improvement over the incumbent; without one, the smallest mean wins."""
    import numpy as np
    from scipy.special import ndtr

    if math.isinf(incumbent):
        return np.asarray(-mean)
    z = (incumbent - mean) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))

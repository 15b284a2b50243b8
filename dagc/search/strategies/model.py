"""Model-guided search: simulate, fit, and measure where a gain or a surprise is likely."""

from __future__ import annotations

import math
from random import Random
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar

from dagc.results import Outcome
from dagc.search.domain import Candidate, Domain
from dagc.search.model.fit import fit_costs, residuals
from dagc.search.model.simulate import Costs, Simulator, counts
from dagc.traversal import Issue

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

POOL = 2500  # candidates that are simulated: all of a small space, else a sample that is renewed
RENEW = 40  # measurements after which a sampled pool is renewed
NOISE = 0.02  # relative standard deviation of a measurement
GAIN = 12  # the first measurements are for gain alone
GAIN_EVERY = 4  # afterwards every fourth is, the others are for information: drawn uniformly
SIGNAL = 0.06  # relative standard deviation of what the simulation misses
LENGTH = 0.15  # share of bits over which that is alike


class Strategy:
    """Fits costs of ops and messages to what was measured, simulates the candidates, and measures by expected gain.

    What the simulation misses is a Gaussian process over order and streams (docs/model.md).
    """

    summary: ClassVar[str] = "model-guided: fitted simulation, expected gain, then a fair sample too"

    def __init__(self, domain: Domain, seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.costs = Costs()
        self.simulators = [Simulator(a.space.graph, a.configuration, self.costs) for a in domain.arms]
        self.ops = sorted({op.name for a in domain.arms for op in a.space.graph.ops})
        self.gpu_ops = {op.name for a in domain.arms for op in a.space.graph.ops if op.gpu}
        self.seen: dict[Candidate, list[float]] = {}
        self.failed: set[Candidate] = set()
        self.fitted: Array | None = None
        self.fitted_with = 0
        self.pool: list[Candidate] = []
        self.bits: Array | None = None
        self.renewed = 0
        self._estimate: tuple[int, Array, Array] | None = None
        self._simulated: tuple[Array, Array] | None = None  # with which costs, and the times of the pool

    # ---- the protocol -------------------------------------------------------------------

    def propose(self) -> Candidate | None:
        import numpy as np

        self._fill()
        open_ = np.array([c not in self.seen and c not in self.failed for c in self.pool])
        if not open_.any():
            return None
        measured = len(self.seen)
        if measured >= GAIN and measured % GAIN_EVERY:
            # For information: anything that is not known yet. The most uncertain ones are odd ones, and rules learned
            # from them are worse than from a fair sample.
            fair = np.flatnonzero(open_)
            return self.pool[int(fair[self.random.randrange(len(fair))])]
        mean_, deviation = self._posterior()
        score = _expected_gain(mean_, deviation, self._incumbent(mean_))
        score = np.where(open_, score, -math.inf)
        # Equal scores are common (many orders are one to the simulation): which of them is drawn by the seed.
        best = np.flatnonzero(score >= score.max() - 1e-9 * abs(score.max()))
        return self.pool[int(best[self.random.randrange(len(best))])]

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        if math.isnan(outcome.seconds):
            self.failed.add(candidate)
        else:
            self.seen.setdefault(candidate, []).append(outcome.seconds * 1e6)
        self._estimate = None

    def best(self) -> Candidate | None:
        """The current choice: of what was measured, the one with the smallest expected time. Not the luckiest one."""
        if not self.seen:
            return None
        self._fill()
        mean_, _ = self._posterior()
        place = {c: i for i, c in enumerate(self.pool)}
        return min(self.seen, key=lambda c: (float(mean_[place[c]]), place[c]))

    # ---- pool ---------------------------------------------------------------------------

    def _fill(self) -> None:
        """All candidates of a small domain; else a sample, renewed now and then around the best."""
        import numpy as np

        size = self.domain.size()
        if size is not None and size <= POOL:
            fresh = [] if self.pool else list(self.domain)
        elif not self.pool or len(self.seen) - self.renewed >= RENEW:
            self.renewed = len(self.seen)
            fresh = [self.domain.walk(self.random) for _ in range(POOL // 2)]
            fresh += [self._near(c) for c in self._fastest(10) for _ in range(POOL // 20)]
        else:
            fresh = []
        known = set(self.pool)
        if fresh and (size is None or size > POOL):
            self.pool = list(self.seen)
            known, self.bits = set(self.pool), None
        more = [c for c in dict.fromkeys([*self.seen, *fresh]) if c not in known]
        if more or self.bits is None:
            self.pool += more
            self.bits = np.array([self._bits(c) for c in self.pool])
            self._estimate = None

    def _fastest(self, number: int) -> list[Candidate]:
        return sorted(self.seen, key=lambda c: mean(self.seen[c]))[:number]

    def _near(self, candidate: Candidate) -> Candidate:
        space = self.domain.arms[candidate.arm].space
        return Candidate(candidate.arm, space.walk_from(candidate.traversal, self.random))

    def _bits(self, candidate: Candidate) -> list[float]:
        """Configuration, order of all pairs of ops, and which GPU ops share a stream; 0 or 1."""
        graph = self.domain.arms[candidate.arm].space.graph
        issued = [e for e in candidate.traversal.entries if isinstance(e, Issue)]
        place = {graph.ops[e.op].name: i for i, e in enumerate(issued)}
        stream = {graph.ops[e.op].name: e.stream for e in issued if e.stream is not None}
        out = [float(candidate.arm == a) for a in range(len(self.domain.arms)) for _ in range(4)]
        for i, a in enumerate(self.ops):
            for b in self.ops[i + 1 :]:
                out.append(float(place.get(a, 1 << 20) < place.get(b, 1 << 20)))
                if a in self.gpu_ops and b in self.gpu_ops:
                    out.append(float(a in stream and stream[a] == stream.get(b)))
        return out

    # ---- estimate -----------------------------------------------------------------------

    def _simulate(self, candidates: list[Candidate], costs: Array) -> tuple[Array, Array]:
        import numpy as np

        plain = [float(c) for c in costs]
        moments = [self.simulators[c.arm].run(c.traversal, plain) for c in candidates]
        return np.array([m[0] for m in moments]), counts((m[1] for m in moments), len(plain))

    def _posterior(self) -> tuple[Array, Array]:
        """Expected time and its standard deviation of every candidate of the pool, in microseconds."""
        import numpy as np

        key = len(self.pool)
        if self._estimate is not None and self._estimate[0] == key:
            return self._estimate[1], self._estimate[2]
        measured = list(self.seen)
        prior = np.array(self.costs.prior)
        values = np.array([mean(self.seen[c]) for c in measured])
        if self.fitted is None:
            self.fitted = prior
        if measured and self._due(len(measured)):
            level = float(np.median(values))
            self.fitted = fit_costs(
                lambda costs: self._simulate(measured, costs), prior, self.fitted, values, 2 * NOISE * level
            )
            self.fitted_with = len(measured)
        if (
            self._simulated is None
            or self._simulated[0] is not self.fitted
            or len(self._simulated[1]) != len(self.pool)
        ):
            plain = [float(c) for c in self.fitted]
            times = [self.simulators[c.arm].run(c.traversal, plain)[0] for c in self.pool]
            self._simulated = (self.fitted, np.array(times))
        expected = self._simulated[1]
        if not measured:
            found = expected, 0.3 * expected
        else:
            level = float(np.median(values))
            place = {c: i for i, c in enumerate(self.pool)}
            at = [place[c] for c in measured]
            assert self.bits is not None
            noise = np.array([NOISE * level / math.sqrt(len(self.seen[c])) for c in measured])
            left = residuals(
                self.bits, self.bits[at], values - expected[at], signal=SIGNAL * level, noise=noise, length=LENGTH
            )
            found = expected + left.mean, left.deviation
        self._estimate = (key, *found)
        return found

    def _due(self, measured: int) -> bool:
        """Fitting costs more than a measurement: at first every time, then each time that a quarter more is known."""
        return measured <= 4 or measured >= 1.25 * self.fitted_with

    def _incumbent(self, mean_: Array) -> float:
        place = {c: i for i, c in enumerate(self.pool)}
        return min((float(mean_[place[c]]) for c in self.seen), default=math.inf)


def _expected_gain(mean_: Array, deviation: Array, incumbent: float) -> Array:
    """Expected improvement over the incumbent; without one, the smallest mean wins."""
    import numpy as np
    from scipy.special import ndtr

    if math.isinf(incumbent):
        return np.asarray(-mean_)
    z = (incumbent - mean_) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))

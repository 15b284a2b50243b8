"""The candidates of the model, their features, and their simulation, also with costs fitted to measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from dagc.base.python import Array, Bools, Numbers, np
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.fit import SPREAD
from dagc.lab.model.simulate import USUAL, Assumptions, Batch, Costs, Simulator, messages_of
from dagc.lab.settings import LENGTH, MISSED, UNKNOWN, plausible, steps
from dagc.space.loops import shortened, unroll

# ---- the time of an op under each of its launch settings -------------------------------------------


PARTS = 40  # maximal number of independent numbers for the error of one op
FAILED = 4.0  # expected time of a setting that cannot be launched, relative to the slowest one
MOST = 4.0  # limit on the logarithm of the error


@dataclass(frozen=True, slots=True)
class Factor:
    """The choices at one site.

    level    index of the cost that is its level: the time under the first setting
    first    index of the first independent number in the vector of all parameters
    number   of each of the `choices`
    ratios   shape (choices,): prediction of the model for each, relative to the first
    root     shape (choices, parts): multiplied by the independent normal numbers, the logarithm of the error
    """

    level: int
    first: int
    choices: tuple[Choice, ...]
    number: Mapping[Choice, int]
    ratios: Array
    root: Array

    @property
    def parts(self) -> slice:
        return slice(self.first, self.first + self.root.shape[1])

    def relative(self, parameters: Array) -> Array:
        """The time of each setting, relative to the level; under each row of parameters if these are several."""
        error = (self.root @ parameters[..., self.parts, None])[..., 0]
        return np.asarray(self.ratios * np.exp(np.clip(error, -MOST, MOST)))

    @classmethod
    def of(cls, site: Site, level: int, first: int) -> Factor:
        asked = np.array(site.prior if site.prior else [1.0] * len(site.choices), dtype=float)
        known = plausible(asked)
        known = np.where(np.isfinite(asked), known, FAILED * known.max())
        bits = steps(site.choices)
        differ = np.abs(bits[:, None, :] - bits[None, :, :]).sum(axis=2)
        alike = np.exp(-differ / (LENGTH * max(1, bits.shape[1])))
        values, vectors = np.linalg.eigh(alike)
        largest = np.argsort(-values, kind="stable")[:PARTS]
        root = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
        # The signs of eigenvectors differ between libraries.
        root = root * np.where(root[np.abs(root).argmax(axis=0), np.arange(root.shape[1])] < 0, -1.0, 1.0)
        deviation = np.array(site.doubts) if site.doubts else np.full(len(known), MISSED if site.prior else UNKNOWN)
        number = {choice: i for i, choice in enumerate(site.choices)}
        return cls(level, first, site.choices, number, known / known[0], np.round(deviation[:, None] * root, 9))


# ---- the pool --------------------------------------------------------------------------------------


ROUNDS = 3  # simulated rounds of a loop: nothing precedes the first one
TIMED_SPREAD = 0.15  # relative standard deviation in a program of a cost that was timed alone
APART_SPREAD = 0.3  # relative standard deviation of the durations of alike ops: faces of a box, parts of a matrix


class Pool:
    """Candidates in rows, each with its program for the simulation.

    Parameters of the simulation are the costs (`Costs.prior`), then the independent normal numbers of the errors of the
    models of launch settings (`Factor.root`).
    """

    def __init__(self, spaces: Sequence[ConfiguredSpace], assumptions: Assumptions = USUAL) -> None:
        self.spaces, self.assumptions = spaces, assumptions
        self._graphs = [shortened(s.graph, ROUNDS) for s in spaces]
        simulated = [graph.unrolled for graph in self._graphs]
        self.costs = Costs(
            max(s.space.moves.streams for s in spaces), max(len(messages_of(g)) for g in simulated),
            scale=len(spaces[0].graph.unrolled.ops) / len(simulated[0].ops),
        )  # fmt: skip
        self._simulators_under: dict[Assumptions, list[Simulator]] = {}
        self._simulators = self._simulators_of(assumptions)
        self.has_streams = any(s.space.moves.streams > 1 for s in spaces)
        self.has_messages = any(messages_of(g) for g in simulated)
        self.batch = Batch(self.costs)
        self.candidates: list[Candidate] = []
        self.row: dict[Candidate, int] = {}
        self._factors: list[Factor] = []
        self._factor_of = [self._factors_of(number) for number in range(len(spaces))]
        self._suspects: set[tuple[int, Choice]] = set()  # factor, choice: of candidates that failed
        self._cleared: set[tuple[int, Choice]] = set()  # of candidates that did not
        self._choice: Numbers = np.zeros((0, len(self._factors)), dtype=np.int64)  # row, factor: setting; -1: not in it

    def __len__(self) -> int:
        return len(self.candidates)

    def under(self, assumptions: Assumptions, candidates: Iterable[Candidate] | None = None) -> Pool:
        """These candidates (default: the same rows), simulated under other assumptions; both pools have the same costs,
        and can be simulated together (`PoolRows`)."""
        other = copy(self)
        other.assumptions, other._simulators = assumptions, self._simulators_of(assumptions)
        other.batch, other.candidates, other.row = Batch(self.costs), [], {}
        other._choice = self._choice[:0]
        other.extend(self.candidates if candidates is None else candidates)
        return other

    def _simulators_of(self, assumptions: Assumptions) -> list[Simulator]:
        """Those of all spaces, built when first needed."""
        if assumptions not in self._simulators_under:
            self._simulators_under[assumptions] = [
                Simulator(graph.unrolled, s.configuration, self.costs, s.sites, assumptions)
                for graph, s in zip(self._graphs, self.spaces, strict=True)
            ]
        return self._simulators_under[assumptions]

    def _factors_of(self, space: int) -> list[int]:
        """The number of the factor of each site of a space; sites with one level and equal settings share it."""
        out = []
        for site in self.spaces[space].sites:
            level = self._simulators[space].levels[site.name]
            alike = (i for i, f in enumerate(self._factors) if (f.level, f.choices) == (level, site.choices))
            number = next(alike, len(self._factors))
            if number == len(self._factors):
                first = self._factors[-1].parts.stop if self._factors else len(self.costs.prior)
                self._factors.append(Factor.of(site, level, first))
            out.append(number)
        return out

    # ---- parameters -----------------------------------------------------------------------

    @property
    def prior(self) -> Array:
        """The prior mean of each parameter: seconds for costs, 0 for errors of models."""
        size = self._factors[-1].parts.stop if self._factors else len(self.costs.prior)
        return np.concatenate([self.costs.prior, np.zeros(size - len(self.costs.prior))])

    def spread(self, prior: Array) -> Array:
        """The standard deviation of each parameter; of each row of parameters if `prior` has several."""
        costs, spread = len(self.costs.prior), np.ones(prior.shape)
        spread[..., :costs] = SPREAD * prior[..., :costs]
        timed, apart = list(self.costs.timed), list(self.costs.apart)
        spread[..., timed] = TIMED_SPREAD * prior[..., timed]
        spread[..., apart] = APART_SPREAD * prior[..., list(self.costs.apart.values())]
        return spread

    @property
    def heavy(self) -> Bools | None:
        """Which parameters may be far from their prior: the costs if there are launch settings, since a wrong level
        would otherwise distort the dependence of an op on its settings. None: none of them."""
        return np.arange(len(self.prior)) < len(self.costs.prior) if self.has_settings else None

    def above(self, parameters: Array, prior: Array) -> Array:
        """The parameters with all costs clipped above 0: few measurements make no op faster than alike ones."""
        costs = np.arange(len(prior)) < len(self.costs.prior)
        return np.where(costs, np.maximum(parameters, 0.02 * prior), parameters)

    def timed(self) -> list[bool]:
        """Which parameters were timed alone."""
        return [number in self.costs.timed for number in range(len(self.prior))]

    def sent(self) -> list[bool]:
        """Which parameters are of messages."""
        return self.costs.sent() + [False] * (len(self.prior) - len(self.costs.prior))

    def work(self) -> list[bool]:
        """Which parameters grow with the problem size."""
        return self.costs.work() + [False] * (len(self.prior) - len(self.costs.prior))

    def times(self, parameters: Array, rows: Any = slice(None)) -> Array:
        """The time of each row under these parameters, in seconds."""
        return np.asarray(PoolRows([(self, rows)]).times(parameters[None])[0])

    def paths(self, parameters: Array, rows: Any) -> tuple[Array, Array]:
        """The times of rows and their derivatives by the parameters: shapes (rows,), (rows, parameters).

        Without launch settings, the product of the second with the parameters is the first.
        """
        times, table = PoolRows([(self, rows)]).paths(parameters[None])
        return times[0], table[0]

    def suspect(self, candidate: Candidate) -> None:
        """Suspect the launch settings of a failed candidate, except those with which another one did not fail."""
        self._suspects.update(zip(self._factor_of[candidate.space], candidate.choices, strict=True))

    def clear(self, candidate: Candidate) -> None:
        """Clear the launch settings of a candidate that did not fail."""
        self._cleared.update(zip(self._factor_of[candidate.space], candidate.choices, strict=True))

    @property
    def suspected(self) -> Array:
        """Per row, the number of its suspected launch settings."""
        out = np.zeros(len(self))
        for factor, choice in self._suspects - self._cleared:
            out += self._choice[:, factor] == self._factors[factor].number[choice]
        return out

    def improved(self, candidate: Candidate, parameters: Array) -> Candidate:
        """The candidate with the launch settings that are fastest under these parameters."""
        choices = []
        for number in self._factor_of[candidate.space]:
            factor = self._factors[number]
            times = factor.relative(parameters)
            times[[factor.number[c] for f, c in self._suspects - self._cleared if f == number]] += times.max()
            choices.append(factor.choices[int(times.argmin())])
        return Candidate(candidate.space, candidate.traversal, tuple(choices))

    @property
    def has_settings(self) -> bool:
        """Whether any candidate has launch settings."""
        return bool(self._factors)

    # ---- rows -----------------------------------------------------------------------------

    def keep(self, rows: Numbers) -> None:
        """Drop all other rows; these are renumbered in this order."""
        self.candidates = [self.candidates[row] for row in rows]
        self.row = {candidate: row for row, candidate in enumerate(self.candidates)}
        self._choice = self._choice[rows]
        self.batch.keep(rows)

    def extend(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Add the new candidates, in order. Returns them."""
        new = [c for c in dict.fromkeys(candidates) if c not in self.row]
        for candidate in new:
            self.row[candidate] = len(self.candidates)
            self.candidates.append(candidate)
        runs = (unroll(self._graphs[c.space], c.traversal)[1] for c in new)
        self.batch.extend(self._simulators[c.space].program(run) for c, run in zip(new, runs, strict=True))
        if not self._factors:
            self._choice = np.zeros((len(self), 0), dtype=np.int64)
            return new
        choice = np.full((len(new), len(self._factors)), -1)
        for number, candidate in enumerate(new):
            factors = self._factor_of[candidate.space]
            choice[number, factors] = [
                self._factors[f].number[c] for f, c in zip(factors, candidate.choices, strict=True)
            ]
        self._choice = np.concatenate([self._choice, choice])
        return new


class PoolRows:
    """Rows of pools that share their costs, equally many of each pool, whose times are simulated at once, those of each
    pool under its own parameters. One pool may be there several times."""

    def __init__(self, parts: Sequence[tuple[Pool, Any]]) -> None:
        self._factors, self._costs = parts[0][0]._factors, len(parts[0][0].costs.prior)
        self._batch = Batch.joined([(pool.batch, rows) for pool, rows in parts])
        self._choice = np.stack([pool._choice[rows] for pool, rows in parts])

    def times(self, parameters: Array) -> Array:
        """In seconds; shapes (pools, parameters), (pools, rows)."""
        own = {level: values.ravel() for level, values in self._own(parameters).items()}
        return self._batch.times(parameters[:, : self._costs], own=own).reshape(self._choice.shape[:2])

    def paths(self, parameters: Array) -> tuple[Array, Array]:
        """As `times`, and their derivatives by the parameters: shape (pools, rows, parameters)."""
        own = {level: values.ravel() for level, values in self._own(parameters).items()}
        times, counts = self._batch.paths(parameters[:, : self._costs], own=own)
        shape = self._choice.shape[:2]
        table = np.zeros((*shape, parameters.shape[1]))
        table[..., : self._costs] = counts.reshape(*shape, -1)
        for number, factor in enumerate(self._factors):
            pool, row = np.nonzero(self._choice[..., number] >= 0)
            setting = self._choice[pool, row, number]
            often = table[pool, row, factor.level] * factor.relative(parameters)[pool, setting]
            table[pool, row, factor.level] = often
            table[pool, row, factor.parts] = (often * parameters[pool, factor.level])[:, None] * factor.root[setting]
        return times.reshape(shape), table

    def _own(self, parameters: Array) -> dict[int, Array]:
        """The times of the ops with launch settings, by the index of the cost: shape (pools, rows)."""
        out: dict[int, Array] = {}
        for number, factor in enumerate(self._factors):
            choice = self._choice[..., number]
            values = out.setdefault(factor.level, np.repeat(parameters[:, factor.level, None], choice.shape[1], axis=1))
            pool, row = np.nonzero(choice >= 0)
            values[pool, row] = parameters[pool, factor.level] * factor.relative(parameters)[pool, choice[pool, row]]
        return out

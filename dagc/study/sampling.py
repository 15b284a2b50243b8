"""Which inputs a run measures: all, or few (active learning), so that a selector trained on these chooses well.

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
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.base.sample import Sample
from dagc.choice.selector import FEWEST, Selector, coordinates, scales_of
from dagc.choice.types import Case
from dagc.lab.engine import drive
from dagc.stages.options import CaseOptions, TuneOptions
from dagc.study.cases import Sampling, draws_of
from dagc.study.choosers import Asked
from dagc.study.inputs import Visits, to_visit
from dagc.study.judge import judged_at
from dagc.study.task import TuningTask
from dagc.study.train import Times, TrainingTable, observed_labels, shares_of, trained, trained_each

Strategy = Literal["bvsb", "cost", "random"]
Vectors = Sequence[Sequence[float]]
K = TypeVar("K", bound=Hashable)  # an input

# ---- inputs that are drawn ----

GUIDE_TREES = 100  # trees of the guide
PATIENCE = 200  # candidates tried for each input of a batch before a smaller batch is accepted
_AT_ONCE = 256  # candidates whose margins are computed together


@dataclass(frozen=True, slots=True)
class Guide:
    """A random forest that predicts the best answer of an input."""

    forest: Any

    def margins(self, vectors: Vectors) -> list[float]:
        """For each input: the probability of the most likely answer minus that of the second, in [0, 1]."""
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
    with warnings.catch_warnings():
        # Few inputs have many best answers; scikit-learn then takes labels for numbers to be predicted.
        warnings.filterwarnings("ignore", "The number of unique classes")
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
    this one terminates: after PATIENCE * `size` candidates, those with the smallest margins fill the batch, since a
    guide of few inputs is sure of regions that it has not seen. Without a guide, every candidate is kept.
    """
    margins: dict[K, float] = {}
    looked = 0
    while sum(m < margin for m in margins.values()) < size and looked < PATIENCE * size:
        drawn = draw(min(_AT_ONCE, PATIENCE * size - looked))
        looked += len(drawn)
        new = [one for one in dict.fromkeys(drawn) if one not in margins]
        if not new:
            break
        margins |= zip(new, _least_margins(guides, [vector(one) for one in new]), strict=True)
    unsure = [one for one, m in margins.items() if m < margin]
    sure = sorted((one for one, m in margins.items() if m >= margin), key=lambda one: margins[one])
    return InputBatch((*unsure, *sure)[:size], looked)


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


# ---- strategies: which inputs of a run are labelled ----


KNOWING = 0.5  # of the time limit that the features of all inputs may take in incremental tuning
ITERATIONS = 25  # labelled inputs of incremental tuning: Nitro (Muralidharan et al. 2014, section III-B)


def label(visits: Visits, asked: Mapping[str, Asked], options: TuneOptions) -> list[str]:
    """Measure the training inputs, while time and budget last; returns notes. The task of the visits then has the
    labelled inputs."""
    kind = Incrementally if options.incremental else Actively if options.active else Everything
    strategy: Everything | Actively | Incrementally = kind(visits, asked, options)
    drive(strategy, visits.measure, lambda: visits.over)
    return strategy.notes()


class Everything:
    """Every input of the task, in the order of `to_visit`."""

    def __init__(self, visits: Visits, asked: Mapping[str, Asked], options: CaseOptions) -> None:
        self._left, self._notes = to_visit(visits.task, visits.pilot), drawn_less(visits.task, options)
        visits.total = len(self._left) * visits.number_of_answers

    def propose(self) -> Case | None:
        return self._left[0] if self._left else None

    def observe(self, case: Case, sample: Sample) -> None:
        self._left.remove(case)

    def notes(self) -> list[str]:
        left = len(self._left)
        stopped = [f"stopped by --time or --budget: {counted(left, 'input')} left; use --resume"] if left else []
        return [*self._notes, *stopped]


class Actively:
    """Algorithm 1 of MLCD: the inputs of the task, which were drawn at random, then batches of candidates for which the
    guide is least sure, until there are `options.samples` or every input is labelled.

    The guide uses the drawn values, so a candidate needs no set-up. Inputs that are already labelled in the file count.
    An input that the set-up refuses is not a sample.
    """

    def __init__(self, visits: Visits, asked: Mapping[str, Asked], options: TuneOptions) -> None:
        self._visits, self._options, self._samples = visits, options, options.samples or 0
        self._earlier, self._at_random = labelled(visits), 0
        self._labelled: list[Case] = []
        self._looked = self._batches = 0
        self._why = ""
        self._order = self._in_order()

    def propose(self) -> Case | None:
        return next(self._order, None)

    def observe(self, case: Case, sample: Sample) -> None:
        self._labelled += [] if sample.failure else [case]

    def _in_order(self) -> Iterator[Case]:
        visits, options = self._visits, self._options
        draws = draws_of(visits.task.text, visits.task.program, options)
        sampling = Sampling.of(self._samples, options.initial, options.batch, options.margin)
        first = to_visit(visits.task, visits.pilot)
        visits.total = len(first) * visits.number_of_answers
        yield from first
        self._labelled = labelled(visits)
        self._at_random = len(self._labelled) - len(self._earlier)
        draws.drop({*visits.task.cases, *visits.measured.inputs, *visits.refused})
        while len(self._labelled) < self._samples and not self._why:
            seen = [draws.vector(p) for p in self._labelled]
            every = _choosable_times(visits, self._labelled)
            guides = [guide(seen, times, options.seed + self._batches) for times in every]
            size = min(sampling.batch, self._samples - len(self._labelled))
            batch = uncertain(guides, draws.candidates, draws.vector, size, sampling.margin)
            self._looked, self._batches = self._looked + batch.looked, self._batches + bool(batch.inputs)
            visits.total = visits.done + len(batch.inputs) * visits.number_of_answers
            visits.expect(batch.inputs)
            yield from batch.inputs
            draws.drop(batch.inputs)
            if not batch.inputs:
                self._why = "stopped: every input that can be drawn is labelled"
            elif visits.refused.issuperset(batch.inputs):
                self._why = "stopped: no input of the last batch could be measured"

    def notes(self) -> list[str]:
        if self._visits.over and len(self._labelled) < self._samples:
            self._why = "stopped by --time or --budget; use --resume"
        self._visits.take(replace(self._visits.task, cases=tuple(self._labelled)))
        begun = [f"{len(self._earlier)} of the file"] if self._earlier else []
        begun += [f"{self._at_random} at random"] if self._at_random else []
        then = f"then {counted(self._batches, 'batch', 'batches')} from {counted(self._looked, 'candidate')}"
        summary = f"active: {counted(len(self._labelled), 'sample')}: {', '.join([*begun, then])}"
        return [f"{summary}; {self._why}" if self._why else summary]


def labelled(visits: Visits) -> list[Case]:
    """Training inputs at which every answer was tried, in the order in which they were measured."""
    known = [p for p, facts in visits.measured.inputs.items() if not facts.test and p not in visits.refused]
    return [p for p in known if visits.complete(p)]


def _choosable_times(visits: Visits, cases: Sequence[Case]) -> list[list[Times]]:
    """For each op: the times of its answers at some inputs, except answers that are never chosen."""
    out = []
    for op, fit in visits.choosable().items():
        kept = {n for n, s in enumerate(visits.answers[op]) if s in fit}
        out.append(visits.table(op, (), cases).among(kept).times)
    return out


class Incrementally:
    """The features of all inputs are computed first; then one after the other is labelled, always the most informative,
    until there are enough."""

    def __init__(self, visits: Visits, asked: Mapping[str, Asked], options: TuneOptions) -> None:
        self._visits, self._asked, self._options = visits, asked, options
        self._cases = []
        for case in to_visit(visits.task):
            if visits.past(KNOWING):
                break
            self._cases += [case] if visits.visit(case, label=False) else []
        self._most = options.iterations or (len(self._cases) if options.accuracy is not None else ITERATIONS)
        visits.total = min(self._most, len(self._cases)) * visits.number_of_answers
        self._labelled = {p for p in self._cases if visits.complete(p)}
        self._tried, self._reached = 0, math.nan

    def propose(self) -> Case | None:
        visits, cases, goal = self._visits, self._cases, self._options.accuracy
        enough = len(self._labelled) >= self._most or (goal is not None and self._reached >= goal)
        if enough or self._tried >= len(cases):
            return None
        op = list(visits.answers)[self._tried % len(visits.answers)]
        table = visits.table(op, visits.names(self._asked, op, cases), cases).with_noise(0.0)
        known = [i for i, case in enumerate(cases) if case in self._labelled]
        chosen = next_input(table, known, self._asked[op].method, self._options.seed, self._options.next)
        self._tried += 1
        return None if chosen is None else cases[chosen]

    def observe(self, case: Case, sample: Sample) -> None:
        if sample.failure:
            self._cases.remove(case)
        else:
            self._labelled.add(case)
        answers = map(len, self._visits.answers.values())
        if self._options.accuracy is not None and len(self._labelled) > max(FEWEST, *answers):
            self._reached = _accuracy(self._visits, self._asked, self._options, self._labelled)

    def notes(self) -> list[str]:
        visits, options = self._visits, self._options
        visits.take(replace(visits.task, cases=tuple(p for p in visits.task.cases if p in self._labelled)))
        chosen = f"{counted(len(self._labelled), 'input')} labelled of {len(self._cases)}, chosen by {options.next}"
        return [f"incremental: {chosen}" + ("" if math.isnan(self._reached) else f"; accuracy {self._reached:.1%}")]


def _accuracy(inputs: Visits, asked: Mapping[str, Asked], options: TuneOptions, labelled: set[Case]) -> float:
    """The least accuracy of all ops: at the test inputs of the file if it has any, else by leave-one-out."""

    tests = sorted(inputs.tests)
    out = []
    for op in inputs.answers:
        names = inputs.names(asked, op, labelled)
        known, asked_at = (inputs.table(op, names, cases) for cases in (sorted(labelled), tests or sorted(labelled)))
        known, count = known.with_noise(0.0), len(asked_at.rows)
        taught = [known] if tests else [known.without([number]) for number in range(count)]
        learned = trained_each(taught, asked[op].method, options.seed)
        chosen: list[Sequence[int] | int] = []
        for row, selector in zip(asked_at.rows, learned * count if tests else learned, strict=True):
            finite = all(map(math.isfinite, row.features))
            chosen.append(selector.order(row.features) if selector is not None and finite else 0)
        out.append(judged_at(asked_at, chosen).all.accuracy)
    return min((a for a in out if not math.isnan(a)), default=math.nan)


def drawn_less(task: TuningTask, options: CaseOptions) -> list[str]:
    """A note if fewer inputs were drawn than requested."""
    count = len(task.cases)
    if options.samples is not None and count < options.samples:
        return [f"--samples {options.samples}: there are only {counted(count, 'different input')} to draw"]
    named = {n for p in task.cases for n, _ in p.params}
    spread = [p for p in task.program.params if p.spread is not None and p.name not in {*named, *task.text.defines}]
    if options.samples is None and spread:
        what = ", ".join(f"{p.name} over {p.spread.text}" for p in spread if p.spread is not None)
        return [f"{what}: not drawn from; draw inputs with --samples"]
    return []

"""The recipe of `dagc tune --inputs`: label inputs by measurement, all or as few as needed; train; evaluate at others,
also for whole programs whose ops are placed together."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.choice.feature import offered
from dagc.choice.legal import op_of
from dagc.choice.placement import DEVICE, HOST, Placement, Problem, Transfers, Value, fit_transfer, place
from dagc.choice.types import Case, Samples, Unit
from dagc.ir.choice import PROGRAM, VARIANT, Choice
from dagc.ir.names import data_file
from dagc.ir.plan import needed_features, places_together, users_of, values_of, variants_of
from dagc.ir.program import Device, HostMemory, Program
from dagc.ir.sym import evaluate
from dagc.lab.launches import BATCH
from dagc.measure.machine import measured_transfers
from dagc.measure.service import RanksDied, one_line
from dagc.report import si
from dagc.setup.arrays import elements
from dagc.setup.prefetch import AHEAD
from dagc.stages.options import COSTS, CaseOptions, Progress, SiteOptions, TuneOptions
from dagc.study.choosers import (
    Asked,
    ChooserInputs,
    asked_of,
    final_choosers,
    grade,
    line_of,
    methods,
)
from dagc.study.files import keep
from dagc.study.gpu import NOT_COUNTED, hardware_at_hand, require_runs
from dagc.study.inputs import (
    MANY,
    Inputs,
    Visits,
    failures_at,
    label,
    noise,
    noises,
    opened,
    order_of,
    times_at,
    vector,
)
from dagc.study.move import borrowed, home_of, lost_by_move
from dagc.study.prepare import AtCase, Prepared
from dagc.study.results import Evaluated, Evaluation, Measurements, Tuning, choosable, doubtful
from dagc.study.task import TuningTask, another_program, tuning_task

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.stages.program import ProgramText
    from dagc.store.records import Records
    from dagc.store.tuned import Tuned
    from dagc.study.judge import Judged


# ---- ops placed together: whole programs under every placement -------------------------------------


TOGETHER = "placed together"
MOST = 10  # with up to this many ops every placement is timed, with more only those near the chosen one
ROUNDS = 3  # timings of each placement, in random order
SIDES = {Device.CPU: HOST, Device.GPU: DEVICE}
WORDS = {HOST: "cpu", DEVICE: "gpu"}

Answers = Mapping[str, tuple[Choice | None, Choice | None]]  # by op: on the host, on the device


@dataclass(frozen=True, slots=True)
class PlacedAt:
    """The placement problem at one input, as in the emitted program (`dagc::Placing`), and the answer of each placed op
    on each side. `ops`: the users of two-sided arrays, in the order of the problem."""

    problem: Problem
    ops: tuple[str, ...]
    answers: Answers

    @property
    def free(self) -> tuple[int, ...]:
        """The ops that can run on either side, by number."""
        return tuple(i for i, row in enumerate(self.problem.seconds) if max(row) < math.inf)

    def only(self, side: int) -> Placement:
        """All ops that can be on one side, placed there."""
        return tuple(side if row[side] < math.inf else 1 - side for row in self.problem.seconds)

    def settings(self, placement: Placement) -> dict[str, Choice]:
        """The setting of each placed op."""
        sides = dict(zip(self.ops, placement, strict=True))
        placed = {op: both[sides[op]] for op, both in self.answers.items()}
        return {op: settings for op, settings in placed.items() if settings is not None}


def placed_at(program: Program, at: AtCase, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedAt:
    """An op whose chooser takes the default has the first allowed answer as its only one."""
    rows: list[tuple[float, float]] = []
    answers: dict[str, tuple[Choice | None, Choice | None]] = {}
    users = users_of(program)
    for op in users:
        chooser = choosers.get(op.site) if op.placed else None
        if chooser is None:
            rows.append(_row({SIDES[op.device]: 0.0}))
            continue
        expected = _answers(chooser, at)
        on_host, on_device = (expected[side][1] if side in expected else None for side in (HOST, DEVICE))
        answers[op.name] = on_host, on_device
        rows.append(_row({side: seconds for side, (seconds, _) in expected.items()}))
    number = {op.name: i for i, op in enumerate(users)}
    values = []
    for v in values_of(program):
        bytes = evaluate(v.bytes, at.scalars) if v.bytes is not None else _bytes_of(program, at, v.array)
        producer = None if v.producer is None else number[v.producer]
        readers = tuple(dict.fromkeys(number[r] for r in v.readers))
        ends = (HOST,) if v.ends_on_host else ()
        values.append(Value(producer, readers, transfers.moves(float(bytes)), ends=ends))
    return PlacedAt(Problem(tuple(rows), tuple(values)), tuple(op.name for op in users), answers)


def _answers(chooser: Chooser, at: AtCase) -> dict[int, tuple[float, Choice]]:
    """The best answer on each side, if there is one, with its expected seconds."""
    predicted, (_, reason) = chooser.predict(at.values), chooser.decide(at.values)
    legal = set(at.fits[chooser.op])
    out: dict[int, tuple[float, Choice]] = {}
    for seconds, settings in zip(predicted, chooser.settings, strict=True):
        side = _side(settings)
        if settings in legal and seconds < out.get(side, (math.inf,))[0]:
            out[side] = seconds, settings
    if out and reason.value in ("chosen", "avoided"):
        return out
    allowed = (
        pair for pair in zip(predicted, chooser.settings, strict=True) if pair[1] in legal and pair[0] < math.inf
    )
    seconds, settings = next(allowed, (0.0, chooser.settings[0]))
    return {_side(settings): (seconds, settings)}


def _side(settings: Choice) -> int:
    return SIDES[Device(settings.variant.partition(".")[0])]


def _row(seconds: Mapping[int, float]) -> tuple[float, float]:
    return seconds.get(HOST, math.inf), seconds.get(DEVICE, math.inf)


def _bytes_of(program: Program, at: AtCase, name: str) -> float:
    """Bytes of an array whose size comes with its data."""
    size = program.array(name).type.size
    return float(elements(at.data / "rank-0000" / data_file(name)) * size)


@dataclass(slots=True)
class PlacedPrograms:
    """Times whole programs at the test inputs, under each of the compared placements."""

    inputs: Inputs
    choosers: Mapping[str, Chooser]
    transfers: Transfers
    names: list[str]  # of the placements, by number
    times: dict[str, dict[int, float]]  # by input
    chosen: dict[str, int]
    fixed: dict[str, dict[int, int]]  # the numbers of GPU only and CPU only, by input and side
    failures: dict[str, dict[int, str]]  # why placements failed, by input
    noise: dict[str, float]  # relative noise of comparing the two fastest, by input

    @classmethod
    def of(cls, inputs: Inputs, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedPrograms:
        return cls(inputs, choosers, transfers, [], {}, {}, {}, {}, {})

    def time(self, at: AtCase) -> str:
        """Time at one input, whose arrays are loaded. Returns "" or why the program does not run there, however its ops
        are placed."""
        from dagc.study.train import noise_of_best  # loads msgspec

        program = self.inputs.task.graph_at(at.case).program
        placed = placed_at(program, at, self.choosers, self.transfers)
        best = place(placed.problem).placement
        wanted = list(dict.fromkeys((placed.only(DEVICE), placed.only(HOST), best, *_others(placed, best))))
        seconds: dict[Placement, list[float]] = {p: [] for p in wanted}
        failed: dict[Placement, str] = {}
        order = random.Random(f"{self.inputs.task.seed} {at.case.text}")
        for _ in range(ROUNDS):
            order.shuffle(wanted)
            for placement in (p for p in wanted if p not in failed):
                answer = self._measured(at, placed, placement, seconds[placement])
                if "seconds" in answer:
                    seconds[placement].append(answer["seconds"])
                else:
                    failed[placement] = one_line(str(answer.get("error") or answer.get("wrong")))
        for placement in failed:
            del seconds[placement]
        if not seconds:
            return next(iter(failed.values()))
        name = at.case.text or "as given"
        self.failures[name] = {self._number(placed, p): why for p, why in failed.items()}
        self.times[name] = {self._number(placed, p): median(times) for p, times in seconds.items()}
        self.noise[name] = noise_of_best([(min(t), median(t), max(t)) for t in seconds.values()])
        self.chosen[name] = self._number(placed, best)
        self.fixed[name] = {side: self._number(placed, placed.only(side)) for side in (HOST, DEVICE)}
        return ""

    def _measured(self, at: AtCase, placed: PlacedAt, placement: Placement, before: Sequence[float]) -> dict[str, Any]:
        run, program = self.inputs.run, self.inputs.run.program(at.case)
        chosen = placed.settings(placement)
        values = [pair for op, unit in run.units.items() for pair in run.decisions(unit, chosen.get(op, run.base[op]))]
        try:
            return self.inputs.service.ask(
                program.library, do="measure", rows=program.rows, settings=values, check=False, recheck=False,
                seconds=BATCH, guess=before[-1] if before else 0.0,
                limit=self.inputs.timing.allowed(before[-1] if before else None),
            )  # fmt: skip
        except RanksDied as death:
            return {"error": str(death)}

    def _number(self, placed: PlacedAt, placement: Placement) -> int:
        """The number of a placement, by its text: the side of each placed op."""
        sides = dict(zip(placed.ops, placement, strict=True))
        text = ", ".join(f"{op} {WORDS[sides[op]]}" for op in placed.answers)
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def judged(self) -> tuple[Judged, tuple[Choice, ...], tuple[str, ...]]:
        """The figures of the placements, the meaning of each number, and the speed of one device alone."""
        from dagc.study.judge import judge  # only to evaluate

        inputs = list(self.times)
        figures = judge(
            inputs, [self.times[n] for n in inputs], [self.chosen[n] for n in inputs],
            tolerance=[self.noise[n] for n in inputs], failures=[self.failures[n] for n in inputs],
        )  # fmt: skip
        settings = tuple(Choice.at("dag", [(VARIANT, name)]) for name in self.names)
        alone = [self._faster_than(side) for side in (DEVICE, HOST)]
        faster = f"{alone[0]} times as fast as GPU only, {alone[1]} times as CPU only (ratios of sums)"
        return figures, settings, (faster,)

    def _faster_than(self, side: int) -> str:
        """The ratio of the sums of the times with all ops on one side and as they were placed, over the inputs at which
        both run."""
        both = [
            (of[self.fixed[name][side]], of[self.chosen[name]])
            for name, of in self.times.items()
            if self.fixed[name][side] in of and self.chosen[name] in of
        ]
        return f"{sum(a for a, _ in both) / sum(b for _, b in both):.3f}" if both else "-"


def _others(placed: PlacedAt, best: Placement) -> Iterator[Placement]:
    """All placements; with many ops, those that differ from the chosen one in one op."""
    free = placed.free
    if len(free) > MOST:
        yield from ((*best[:i], 1 - best[i], *best[i + 1 :]) for i in free)
        return
    for sides in product((HOST, DEVICE), repeat=len(free)):
        changed = dict(zip(free, sides, strict=True))
        yield tuple(changed.get(i, side) for i, side in enumerate(best))


# ---- training -------------------------------------------------------------------------------


def tune_inputs(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Label the inputs by measurement, and learn a chooser for each op.

    An input that its set-up refuses is reported and skipped; a setting that fails at an input is recorded, and counts
    as infinitely slow there. Raises UsageError if nothing can run, or if the input of the checks is refused.
    """
    task, asked = _learnable(task, options)
    began = time.monotonic()
    with opened(task, output, options, order_of(task), progress, MANY if options.incremental else AHEAD) as inputs:
        inputs.count_earlier()
        inputs.check()
        notes = [*label(inputs, asked, options), *inputs.remarks]
        inputs.known.measured.seconds = time.monotonic() - began
        return _learned(inputs, asked, options, output, notes)


def _learnable(task: TuningTask, options: SiteOptions) -> tuple[TuningTask, dict[str, Asked]]:
    """The task with the features that its selectors need, and how each op is chosen. Raises UsageError if nothing can
    run here, or if a method does not learn from inputs."""
    from dagc.choice.methods import LEARNED  # loads msgspec

    require_runs(task, "inputs")
    if task.graphs:
        raise another_program(next(iter(task.graphs)))
    asked = asked_of(task, options.method, True)
    wrong = sorted({a.method for a in asked.values()} - {*LEARNED, "exhaustive"})
    if wrong:
        raise UsageError(f"method {wrong[0]} does not learn from inputs", f"use --method {', '.join(LEARNED)}")
    earlier = set(task.earlier)
    task = replace(
        task, features={op: a.data for op, a in asked.items() if a.method in LEARNED}, earlier=(),
        cases=tuple(dict.fromkeys(p for p in task.cases if p not in earlier)),  # the file has their measurements
    )  # fmt: skip
    return task, asked


# ---- what was learned -----------------------------------------------------------------------


def _learned(
    inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions, output: str | Path | None, notes: list[str]
) -> Tuning:
    """The choosers of all ops, trained on the labelled inputs and stored in the file; and the table."""
    ready, measured = _training(inputs)
    task, samples = ready.task, measured.samples
    hardware, more = hardware_at_hand(task, options.gpu)
    if options.select_features:
        asked, chosen = _subsets(inputs, task, asked, options)
        notes = [*notes, *chosen]
    fit, chosen_from = choosable(task, measured.checks, samples)
    tried = {case for _, case, _ in samples}
    labelled = tuple(p for p in task.cases if p in tried)
    training = measured
    if options.warm_start is not None:
        moved = borrowed(inputs, replace(task, cases=labelled), asked, fit, _other(options), options.seed)
        training = replace(measured, samples={**moved.samples, **samples})
        every = tuple(dict.fromkeys((*task.cases, *moved.at)))
        ready = replace(ready, task=replace(task, cases=every), at={**moved.at, **ready.at})
        notes = [*notes, *moved.notes]
    known = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {})
    final, learned = final_choosers(known, fit, training, options.seed)
    choosers = {op: sized.chooser for op, sized in final.items()}
    if inputs.records is not None:
        notes = [*notes, *_keep_transfers(inputs.records, task)]
        keep(inputs.records, known, choosers, bool(samples), options.calls)
    lines = tuple(line_of(ready, u, p, final[u.op].at(p), samples, learned[u.op]) for u in task.units for p in labelled)
    notes = [*inputs.ready.notes, *more, *notes, *chosen_from, *(n for what in learned.values() for n in what.notes)]
    notes += _notes(inputs, task, choosers, samples)
    return Tuning(
        lines, grade(task, len(samples), NOT_COUNTED, asked), methods(asked), len(samples), tuple(measured.failures),
        tuple(notes), Path(output) if output is not None else None, measured.seconds, measured.busy, inputs.objective,
    )  # fmt: skip


def _training(inputs: Inputs) -> tuple[Prepared, Measurements]:
    """The inputs to learn from and their measurements, as values of the objective: all but test inputs."""
    measured, tests = inputs.known.measured, inputs.tests
    cases = (p for p in (*inputs.task.cases, *inputs.known.inputs) if p in inputs.ready.at and p not in tests)
    task = replace(inputs.task, cases=tuple(dict.fromkeys(cases)))
    samples = {c: inputs.priced(c, sample) for c, sample in measured.samples.items() if c.case not in tests}
    ready = replace(inputs.ready, task=task, at={p: inputs.ready.at[p] for p in task.cases})
    return ready, replace(measured, samples=samples)


def _notes(inputs: Inputs, task: TuningTask, choosers: Mapping[str, Chooser], samples: Samples) -> list[str]:
    """Notes on choosers, test inputs, costs of features, defaults and doubtful measurements."""
    return [
        *(f"{op}: {chooser.note}" for op, chooser in choosers.items() if chooser.note),
        *(f"{p.text}: a test input of the file: not trained on" for p in inputs.task.cases if p in inputs.tests),
        *costs(inputs, task, choosers),
        *risky_defaults(inputs, task),
        *doubtful(task, samples),
        *task.text.changed(),
    ]


def _other(options: CaseOptions) -> Tuned:
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    assert options.warm_start is not None
    return load_tuned(options.warm_start)


def _keep_transfers(records: Records, task: TuningTask) -> list[str]:
    """Measure the transfers between host and device if ops are placed together by their times; returns a note."""
    if not places_together(task.program):
        return []
    pageable = task.program.chose(HostMemory.PAGEABLE)
    transfers = transfers_here(task.chosen.target.value, task.chosen.arch, pageable)
    records.set_fact("transfers", asdict(transfers))
    ways = (("to the device", transfers.to_device), ("to the host", transfers.to_host))
    return [f"transfers {way}: {si.seconds(t.latency)} and {t.bandwidth / 1e9:.3g} GB/s" for way, t in ways]


def transfers_here(target: str, arch: str, pageable: bool = False) -> Transfers:
    """The times of transfers between host and device of this machine: measured, and fitted."""
    samples = measured_transfers(target, arch, pageable)
    return Transfers(fit_transfer(samples["to_device"]), fit_transfer(samples["to_host"]))


def _subsets(
    inputs: Inputs, task: TuningTask, asked: Mapping[str, Asked], options: TuneOptions
) -> tuple[dict[str, Asked], list[str]]:
    """The features of each op that its selector needs, and a note on dropped ones."""
    from dagc.study.train import select_features  # loads msgspec

    out, notes = dict(asked), []
    for unit in task.units:
        names = inputs.names(asked, unit.op, task.cases)
        rows = {p: vector(inputs, unit.op, names, p) for p in task.cases if times_at(inputs, unit.op, p)}
        rows = {p: row for p, row in rows.items() if all(map(math.isfinite, row))}
        times = [times_at(inputs, unit.op, p) for p in rows]
        finite = [i for i, at in enumerate(times) if any(map(math.isfinite, at.values()))]
        vectors = list(rows.values())
        subset = select_features(
            asked[unit.op].method, names, [vectors[i] for i in finite], [times[i] for i in finite],
            feature_costs(inputs, task, unit), options.seed, noise(inputs, unit.op),
        )  # fmt: skip
        out[unit.op] = replace(asked[unit.op], data=subset.names)
        dropped = [n for n in names if n not in subset.names]
        loss = f"{subset.loss:.3f} times the best by cross-validation, {subset.all_loss:.3f} by all {len(names)}"
        kept = f"chosen by {', '.join(subset.names)} ({loss})" if dropped else "no feature was dropped"
        notes.append(f"{unit.op}: {kept}")
    return out, notes


def feature_costs(inputs: Inputs, task: TuningTask, unit: Unit) -> dict[str, float]:
    """Median seconds to compute each feature of an op, by name; expressions of scalars cost nothing."""
    known = offered(task.program, op_of(task.graph, unit))
    seconds = [facts.seconds for facts in inputs.known.inputs.values() if facts.seconds]
    return {
        name: sum(median(at.get(code.name, 0.0) for at in seconds) for code in feature.code) if seconds else 0.0
        for name, feature in known.items()
    }


def costs(inputs: Inputs, task: TuningTask, choosers: Mapping[str, Any]) -> list[str]:
    """The costs of features and conversions, in calls of the default, and the number of calls after which they pay if
    the fastest answer (or the converted variant) replaces the default; medians over the inputs. Only features count
    that a program computes at an input: those of its chooser, and those of the variants whose constraints it tests."""
    out = []
    for unit in task.units:
        shares, calls = [], []
        converted: dict[str, list[tuple[float, float]]] = {}
        kernel = task.program.kernel(unit.kernel)
        prepared = {impl.name for impl in kernel.impls if impl.prepare is not None}
        for case in task.cases:
            facts = inputs.known.inputs.get(case)
            if facts is None or case not in inputs.ready.at:  # the set-up refused it
                continue
            times = times_at(inputs, unit.op, case, priced=False)
            if not math.isfinite(times.get(0, math.inf)):
                continue
            wanted = computed_at(choosers[unit.op], unit, task, inputs.ready.at[case].values, times)
            own = sum(facts.seconds.get(name, 0.0) for name in wanted)
            if own:
                shares.append(own / times[0])
                calls.append(_pays(own, times[0], min(times.values())))
            for variant, seconds in facts.conversions.get(unit.op, {}).items():
                if variant not in prepared:
                    continue  # only its scratch was allocated
                fast = [t for i, t in times.items() if task.settings[unit.op][i].variant == variant]
                pays = _pays(seconds, times[0], min(fast, default=math.inf))
                converted.setdefault(variant, []).append((seconds, pays))
        if shares:
            out.append(
                f"{unit.op}: features cost as much as {median(shares):.2g} calls of the default; {_worth(calls)}"
            )
        for variant, of in converted.items():
            took = si.seconds(median(s for s, _ in of))
            out.append(f"{unit.op} {variant}: conversion {took}; {_worth([pays for _, pays in of])}")
    return out


def risky_defaults(inputs: Inputs, task: TuningTask) -> list[str]:
    """Of each op whose default fails at more inputs than another answer, or is more than twice as bad at its worst:
    both. The default is taken where a selector is unsure, and outside of the trained range."""
    from dagc.study import judge  # only over inputs

    out = []
    for unit in task.units:
        worst = judge.worst_cases([times_at(inputs, unit.op, case) for case in task.cases])
        least = min(worst, key=lambda i: worst[i], default=0)
        default, other = (task.settings[unit.op][i].in_words for i in (0, least))
        mine, best = (worst.get(i, judge.Worst(0, 1.0)) for i in (0, least))
        advice = f"the default is taken for inputs unlike these: make it {other}"
        if mine.failed > best.failed:
            where = f"at {best.failed}" if best.failed else "at none"
            out.append(
                f"{unit.op}: the default, {default}, does not work at {counted(mine.failed, 'input')}, {other}"
                f" {where}; {advice}"
            )
        elif mine.ratio > 2 * best.ratio:
            out.append(
                f"{unit.op}: the default, {default}, is up to {mine.ratio:.3g} times the best answer, {other} at most"
                f" {best.ratio:.2f} times; {advice}"
            )
    return out


def computed_at(
    chooser: Any, unit: Unit, task: TuningTask, values: Mapping[str, Any], times: Mapping[int, float]
) -> frozenset[str]:
    """The code features that a program computes at an input with these values to evaluate its chooser. `times`: by
    number of the task's settings, infinite if a constraint does not hold."""
    op, settings = op_of(task.graph, unit), task.settings[unit.op]
    needed = {one.answer: {f.name for f in needed_features(task.program, one)} for one in variants_of(task.program, op)}
    out = {code.name for feature in chooser.features for code in feature.code}
    for answer in chooser.order(values):
        out |= needed.get(chooser.settings[answer].variant or op.answer, set())
        if times.get(settings.index(chooser.settings[answer])) != math.inf:
            break
    return frozenset(out)


def _pays(seconds: float, default: float, other: float) -> float:
    from dagc.study.judge import pays_after  # only over inputs

    return pays_after(seconds, default, other)


def _worth(calls: Sequence[float]) -> str:
    """`pays after 14 calls at 31 of 54 inputs, at the others never` (the median over the inputs where it pays)."""
    paid = [c for c in calls if c < math.inf]
    if not paid:
        return "never pays"
    where = "" if len(paid) == len(calls) else f" at {len(paid)} of {counted(len(calls), 'input')}, never at the others"
    return f"pays after {counted(int(median(paid)), 'call')}{where}"


# ---- evaluation -----------------------------------------------------------------------------


def evaluate_inputs(
    text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None = None
) -> Evaluation:
    """Measure every answer of a tuned file at test inputs, and evaluate the answers of its choosers there.

    The measurements are stored in the file, marked as test data, and not used for training. Inputs that the file was
    trained on are reported and skipped. Raises UsageError if the file has no chooser of an op, or belongs to another
    program.
    """
    task, choosers, home, trained, notes = _unseen(text, tuned, options)
    began, output = time.monotonic(), tuned.path if not home else None
    options = replace(options, resume=True, objective=options.objective or tuned.facts.objective)
    with opened(task, output, options, order_of(task), progress, references=False) as inputs:
        inputs.total = len(task.cases) * sum(map(len, inputs.task.settings.values()))
        placed = _programs(inputs, choosers, tuned) if places_together(task.program) else None
        then = placed.time if placed is not None else None
        done = [p for p in order_of(inputs.task) if not inputs.over and inputs.visit(p, test=True, then=then)]
        done, partly = measured_in_full(inputs, done)
        if not done:
            raise nothing_evaluated(inputs.known.measured.failures)
        ops = [_evaluated(inputs, choosers[unit.op], unit, sorted(done)) for unit in inputs.task.units]
        ops = [_moved(one, tuned, options.seed) for one in ops] if home else ops
        ops += [Evaluated(TOGETHER, *placed.judged())] if placed is not None else []
        return Evaluation(
            tuple(ops), grade(task, len(inputs.known.measured.samples), NOT_COUNTED, {}), len(done),
            tuple(inputs.known.measured.failures),
            (*notes, *partly, *inputs.remarks, *inputs.ready.notes, *task.text.changed()),
            time.monotonic() - began, trained,
        )  # fmt: skip


def _unseen(
    text: ProgramText, tuned: Tuned, options: TuneOptions
) -> tuple[TuningTask, dict[str, Chooser], str, int, list[str]]:
    """The task of measuring the answers of a tuned file at inputs that it was not trained on, its choosers by op, the
    machine that it was tuned on (`home_of`), the number of inputs that it was trained on, and notes."""
    from dagc.study.tuned import choosers_of  # only to evaluate

    if not tuned.kernel_choosers:
        raise UsageError(f"{tuned.path}: no chooser in it", "tune with --inputs first")
    task = tuning_task(text, options, test=True, kernels=tuple(tuned.kernel_choosers), check_at="")
    require_runs(task, "inputs")
    cases, trained, notes = untrained(task.cases, tuned)
    home = home_of(task, tuned, options)
    notes += [f"tuned on {home}: measurements of this machine are not stored in the file"] if home else []
    choosers = {c.op: c for c in choosers_of(task.graph, tuned, task.chosen.gpu_arch, other_machine=bool(home))}
    task = replace(
        task, cases=cases, check_at=cases[0], settings={op: c.settings for op, c in choosers.items()},
        features={op: c.data for op, c in choosers.items()},
    )  # fmt: skip
    return task, choosers, home, trained, notes


def _programs(inputs: Inputs, choosers: Mapping[str, Any], tuned: Tuned) -> PlacedPrograms:
    """Raises UsageError for a file without the data needed for placement."""
    if tuned.facts.transfers is None or not all(c.predicts for c in choosers.values() if c.site.variants):
        what = "no times of transfers, or no predicted times, by which the ops are placed together"
        raise UsageError(f"{tuned.path}: {what}", f"tune with --method {COSTS}")
    return PlacedPrograms.of(inputs, choosers, tuned.facts.transfers)


def untrained(asked: Sequence[Case], tuned: Tuned, programs: bool = False) -> tuple[tuple[Case, ...], int, list[str]]:
    """The inputs that the ops of a file, or its whole `programs`, were not trained on; the number of training inputs;
    and notes on skipped inputs. Raises UsageError if none remains."""
    trained = {
        c.case for c, sample in tuned.samples if (c.site == PROGRAM) is programs and sample.times
    } - tuned.facts.tests
    cases = tuple(p for p in asked if p not in trained)
    if not cases:
        raise UsageError(
            "all of these inputs are training inputs of the file", "name others with --inputs or --samples"
        )
    return cases, len(trained), [f"{p.text}: skipped: the file was trained on it" for p in asked if p in trained]


def measured_in_full(inputs: Visits, visited: Sequence[Case]) -> tuple[list[Case], list[str]]:
    """The visited inputs at which every answer was tried, and a note on the others."""
    done = [p for p in visited if inputs.complete(p)]
    left = len(visited) - len(done)
    return done, [f"{counted(left, 'input')} measured in part: not judged"] if left else []


def _moved(one: Evaluated, tuned: Tuned, seed: int) -> Evaluated:
    """The evaluation, with the loss by the move to another machine."""
    line = lost_by_move(tuned, one.op, tuned.kernel_choosers[one.op], one.judged, seed)
    return replace(one, costs=(line, *one.costs))


def nothing_evaluated(failures: Sequence[str]) -> UsageError:
    """The error if no test input could be measured."""
    why = f": {failures[0]}" if failures else ""
    return UsageError(f"no input could be evaluated{why}", "name others with --inputs, or give more --time")


def _evaluated(inputs: Inputs, chooser: Any, unit: Unit, cases: Sequence[Case]) -> Evaluated:
    from dagc.study.judge import judge  # only to evaluate

    values = [inputs.ready.at[p].values for p in cases]
    judged = judge(
        [p.text for p in cases], [times_at(inputs, unit.op, p) for p in cases],
        [chooser.order(at) for at in values],
        chooser.settings.index(unit.default) if unit.default in chooser.settings else 0,
        noises(inputs, unit.op, cases),
        sizes=[inputs.known.inputs[p].elements for p in cases],
        reasons=[chooser.decide(at)[1].value for at in values],
        failures=[failures_at(inputs, unit.op, p) for p in cases],
    )  # fmt: skip
    one = replace(inputs.task, units=(unit,))
    return Evaluated(unit.op, judged, chooser.settings, tuple(costs(inputs, one, {unit.op: chooser})))

"""`dagc tune --inputs`, wired: label inputs by measurement, all or as few as needed; learn; evaluate at others."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.choice.feature import offered
from dagc.choice.inputs import has_inputs
from dagc.choice.legal import op_of
from dagc.choice.selector import FEWEST
from dagc.choice.types import PROGRAM, settings_text, variant_of
from dagc.ir.plan import MEASURED
from dagc.recipes.tune_choosers import (
    Asked,
    ChooserInputs,
    asked_of,
    features_of,
    final_choosers,
    grade,
    line_of,
    methods,
)
from dagc.recipes.tune_gpu import NOT_COUNTED, can_run, hardware_at_hand, named_arch
from dagc.recipes.tune_inputs import MANY, Inputs, opened, order_of
from dagc.recipes.tune_prepare import TuningTask, tuning_task
from dagc.recipes.tune_records import keep
from dagc.recipes.tune_results import Tuning, choosable, doubtful
from dagc.report import si
from dagc.setup.beside import AHEAD

if TYPE_CHECKING:
    from dagc.choice.judge import Judged
    from dagc.choice.types import Point, Settings, Unit
    from dagc.recipes.options import Progress, TuneOptions
    from dagc.recipes.program import ProgramText
    from dagc.store.tuned import Tuned

ITERATIONS = 25  # labelled inputs of incremental tuning: Nitro (Muralidharan et al. 2014, section III-B)


def with_variants(task: TuningTask) -> TuningTask:
    """Only the ops whose variant is open. Raises UsageError where there is none."""
    kept = tuple(u for u in task.units if u.variants)
    if not kept:
        raise UsageError(
            f"{task.program.name}: no variant is open",
            "write `select variant with tree(...)` in a kernel of variants",
        )
    return replace(task, units=kept, settings={u.op: task.settings[u.op] for u in kept})


def wants_inputs(task: TuningTask, options: TuneOptions) -> bool:
    """Whether a task is tuned input by input: learned selectors over inputs, or what only that offers."""
    from dagc.choice.methods import LEARNED  # loads msgspec

    if options.variants or options.incremental or options.select_features:
        return True
    methods_asked = {a.method for a in asked_of(task, options.method, can_run(task)).values()}
    inputs = bool(options.inputs) or has_inputs(task.program) or options.samples is not None
    return inputs and methods_asked <= {*LEARNED, "exhaustive"}


# ---- training -------------------------------------------------------------------------------


def tune_inputs(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Label the inputs by measurement, and learn a chooser for each op.

    An input that its set-up refuses is reported and skipped; what fails at an input is recorded, and counts as
    infinitely slow there. Raises UsageError where nothing can run, or the input of the checks is refused.
    """
    from dagc.choice.methods import LEARNED  # loads msgspec

    if not can_run(task):
        raise UsageError(
            f"inputs are measured, and nothing can run here: {task.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )
    asked = asked_of(task, options.method, True)
    wrong = sorted({a.method for a in asked.values()} - {*LEARNED, "exhaustive"})
    if wrong:
        raise UsageError(f"method {wrong[0]} does not learn from inputs", f"use --method {', '.join(LEARNED)}")
    task = replace(
        task, features={op: a.data for op, a in asked.items() if a.method in LEARNED}, earlier=(),
        points=tuple(p for p in task.points if p not in task.earlier),  # the file has what is known of these
    )  # fmt: skip
    began = time.monotonic()
    with opened(task, output, options, order_of(task), progress, MANY if options.incremental else AHEAD) as inputs:
        inputs.check(given=bool(options.check_at))
        if options.incremental:
            notes = _incremental(inputs, asked, options)
        else:
            notes = [*_drawn_less(task, options), *_all(inputs)]
        inputs.known.measured.seconds = time.monotonic() - began
        return _learned(inputs, asked, options, output, notes)


def _drawn_less(task: TuningTask, options: TuneOptions) -> list[str]:
    """Where fewer inputs were drawn than asked for, or none of those that could be."""
    found = len(task.points)
    if options.samples is not None and found < options.samples:
        return [f"--samples {options.samples}: there are only {counted(found, 'different input')} to draw"]
    named = {n for p in task.points for n, _ in p.params}
    spread = [p for p in task.program.params if p.spread is not None and p.name not in {*named, *task.text.defines}]
    if options.samples is None and spread:
        what = ", ".join(f"{p.name} over {p.spread.text}" for p in spread if p.spread is not None)
        return [f"{what}: not drawn from; draw inputs with --samples"]
    return []


def _all(inputs: Inputs) -> list[str]:
    """Label every input, while time and budget last."""
    order = order_of(inputs.task)
    points = [p for p in order if p in inputs.task.points]
    inputs.total = len(points) * sum(map(len, inputs.task.settings.values()))
    for number, point in enumerate(points):
        if inputs.over:
            return [f"stopped by --time or --budget: {counted(len(points) - number, 'input')} left; use --resume"]
        inputs.visit(point)
    return []


def _incremental(inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions) -> list[str]:
    """Features of all inputs first; then label one after the other, that which teaches most, until enough."""
    from dagc.choice.active import next_input  # loads msgspec

    points = [p for p in order_of(inputs.task) if p in inputs.task.points and inputs.visit(p, label=False)]
    most = options.iterations or (len(points) if options.accuracy is not None else ITERATIONS)
    inputs.total = min(most, len(points)) * sum(map(len, inputs.task.settings.values()))
    labelled = {p for p in points if inputs.known.complete(p, inputs.ready.at[p].fits)}
    units, tried, reached = inputs.task.units, 0, math.nan
    while len(labelled) < most and tried < len(points) and not inputs.over:
        unit = units[tried % len(units)]
        names = asked[unit.op].data or features_of(inputs.ready, unit, points)
        vectors = [vector(inputs, unit.op, names, p) for p in points]
        table = {i: times_at(inputs, unit.op, p) for i, p in enumerate(points) if p in labelled}
        chosen = next_input(names, vectors, table, asked[unit.op].method, options.seed, options.next)
        tried += 1
        if chosen is None:
            break
        if inputs.visit(points[chosen]):
            labelled.add(points[chosen])
        else:
            points.pop(chosen)
        if options.accuracy is not None and len(labelled) > max(FEWEST, *map(len, inputs.task.settings.values())):
            reached = _accuracy(inputs, asked, options, labelled)
            if reached >= options.accuracy:
                break
    inputs.ready.task = inputs.task = replace(inputs.task, points=tuple(p for p in inputs.task.points if p in labelled))
    note = f"incremental: {counted(len(labelled), 'input')} labelled of {len(points)}, chosen by {options.next}"
    return [note + ("" if math.isnan(reached) else f"; accuracy {reached:.1%}")]


def _accuracy(inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions, labelled: set[Point]) -> float:
    """The least accuracy of all ops: at the file's test inputs where there are any, else by leaving one input out."""
    from dagc.choice.active import trained  # loads msgspec
    from dagc.choice.judge import judge  # only with --accuracy

    tests = [p for p, facts in inputs.known.inputs.items() if facts.test]
    out = []
    for unit in inputs.task.units:
        names = asked[unit.op].data or features_of(inputs.ready, unit, list(labelled))
        rows = sorted(labelled)
        vectors = [vector(inputs, unit.op, names, p) for p in rows]
        times = [times_at(inputs, unit.op, p) for p in rows]
        asks = tests or rows
        chosen = []
        for number, point in enumerate(asks):
            known = {i: t for i, t in enumerate(times) if tests or i != number}
            selector = trained(names, vectors, known, asked[unit.op].method, options.seed, 0.0)
            x = vector(inputs, unit.op, names, point)
            chosen.append(selector.choose(x) if selector is not None and all(map(math.isfinite, x)) else 0)
        truth = [times_at(inputs, unit.op, p) for p in asks]
        out.append(judge([p.text for p in asks], truth, chosen, 0, noises(inputs, unit.op, asks)).all.accuracy)
    return min((a for a in out if not math.isnan(a)), default=math.nan)


def vector(inputs: Inputs, op: str, names: Sequence[str], point: Point) -> tuple[float, ...]:
    """The features of an op at an input; NaN where one is not known."""
    known = inputs.known.inputs[point].features.get(op, {})
    return tuple(known.get(name, math.nan) for name in names)


def times_at(inputs: Inputs, op: str, point: Point, priced: bool = True) -> dict[int, float]:
    """The objective of each answer of an op at an input, by number: infinite where it is not allowed there, missing
    where it failed or was not measured. Seconds, if not `priced`."""
    fits, out = set(inputs.ready.at[point].fits[op]), {}
    for number, settings in enumerate(inputs.task.settings[op]):
        cell = inputs.known.measured.cells.get((op, point, settings))
        if settings not in fits:
            out[number] = math.inf
        elif cell is not None and cell.times and not cell.failure:
            out[number] = (inputs.priced(cell) if priced else cell).seconds
    return out


def noise(inputs: Inputs, op: str) -> float:
    """The noise of a comparison of two answers of an op, relative: the median over the inputs."""
    return median(noises(inputs, op, list(inputs.known.inputs)) or [0.0])


def noises(inputs: Inputs, op: str, points: Sequence[Point]) -> list[float]:
    """The noise of comparing the two fastest answers of an op at each input, relative."""
    from dagc.choice.train import noise_of_best  # loads msgspec

    found: dict[Point, list[tuple[float, float, float]]] = {p: [] for p in points}
    for (o, point, _), cell in inputs.known.measured.cells.items():
        if o == op and point in found and cell.times and not cell.failure:
            found[point].append((cell.interval[0], cell.seconds, cell.interval[1]))
    return [noise_of_best(intervals) for intervals in found.values()]


# ---- what was learned -----------------------------------------------------------------------


def _learned(
    inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions, output: str | Path | None, notes: list[str]
) -> Tuning:
    """The choosers of all ops from what is labelled, kept in the file; and the table."""
    measured, tests = inputs.known.measured, {p for p, facts in inputs.known.inputs.items() if facts.test}
    cells = {key: cell for key, cell in measured.cells.items() if key[1] not in tests}
    points = tuple(p for p in (*inputs.task.points, *inputs.known.inputs) if p in inputs.ready.at and p not in tests)
    task = replace(inputs.task, points=tuple(dict.fromkeys(points)))
    ready = replace(inputs.ready, task=task, at={p: inputs.ready.at[p] for p in task.points})
    hardware, more = hardware_at_hand(task, options.gpu)
    cells = {key: inputs.priced(cell) for key, cell in cells.items()}
    training = replace(measured, cells=cells)
    if options.select_features:
        asked, chosen = _subsets(inputs, task, asked, options)
        notes = [*notes, *chosen]
    fit, chosen_from = choosable(task, measured.checks, cells)
    known = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {})
    final, learned = final_choosers(known, fit, training, options.seed)
    if inputs.records is not None:
        keep(inputs.records, known, {op: sized.chooser for op, sized in final.items()}, bool(cells))
    labelled = [p for p in task.points if any(key[1] == p for key in cells)]
    lines = tuple(line_of(ready, u, p, final[u.op].at(p), cells, learned[u.op]) for u in task.units for p in labelled)
    notes = [*inputs.ready.notes, *more, *notes, *chosen_from, *(n for what in learned.values() for n in what.notes)]
    notes += [f"{op}: {c.chooser.note}" for op, c in final.items() if c.chooser.note]
    notes += [f"{p.text}: a test input of the file: not trained on" for p in inputs.task.points if p in tests]
    notes += [*costs(inputs, task), *doubtful(task, cells), *task.text.changed()]
    return Tuning(
        lines, grade(task, len(cells), NOT_COUNTED, asked), methods(asked), len(cells), tuple(measured.failures),
        tuple(notes), Path(output) if output is not None else None, measured.seconds, measured.busy, inputs.objective,
    )  # fmt: skip


def _subsets(
    inputs: Inputs, task: TuningTask, asked: Mapping[str, Asked], options: TuneOptions
) -> tuple[dict[str, Asked], list[str]]:
    """The features of each op that its selector needs, and what was dropped."""
    from dagc.choice.subset import select_features  # loads msgspec

    out, notes = dict(asked), []
    for unit in task.units:
        names = asked[unit.op].data or features_of(inputs.ready, unit, task.points)
        rows = {p: vector(inputs, unit.op, names, p) for p in task.points if times_at(inputs, unit.op, p)}
        rows = {p: row for p, row in rows.items() if all(map(math.isfinite, row))}
        times = [times_at(inputs, unit.op, p) for p in rows]
        finite = [i for i, at in enumerate(times) if any(map(math.isfinite, at.values()))]
        vectors = list(rows.values())
        found = select_features(
            asked[unit.op].method, names, [vectors[i] for i in finite], [times[i] for i in finite],
            feature_costs(inputs, task, unit), options.seed, noise(inputs, unit.op),
        )  # fmt: skip
        out[unit.op] = replace(asked[unit.op], data=found.names)
        dropped = [n for n in names if n not in found.names]
        loss = f"{found.loss:.3f} times the best by cross-validation, {found.all_loss:.3f} by all {len(names)}"
        kept = f"chosen by {', '.join(found.names)} ({loss})" if dropped else "no feature was dropped"
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


def costs(inputs: Inputs, task: TuningTask) -> list[str]:
    """What features and conversions cost, as shares of one call of the default, and how many calls pay for them where
    the fastest answer (or the converted variant) is taken instead of the default; medians over the inputs."""
    out = []
    for unit in task.units:
        shares, calls = [], []
        converted: dict[str, list[tuple[float, float]]] = {}
        kernel = next(k for k in task.program.kernels if k.name == unit.kernel)
        prepared = {impl.name for impl in kernel.impls if impl.prepare is not None}
        for point in task.points:
            facts = inputs.known.inputs.get(point)
            if facts is None or point not in inputs.ready.at:  # the set-up refused it
                continue
            times = times_at(inputs, unit.op, point, priced=False)
            if not math.isfinite(times.get(0, math.inf)):
                continue
            own = sum(s for n, s in facts.seconds.items() if n.startswith(f"{MEASURED}{unit.op}."))
            if own:
                shares.append(own / times[0])
                calls.append(_pays(own, times[0], min(times.values())))
            for variant, seconds in facts.conversions.get(unit.op, {}).items():
                if variant not in prepared:
                    continue  # only its scratch was allocated
                fast = [t for i, t in times.items() if variant_of(task.settings[unit.op][i]) == variant]
                pays = _pays(seconds, times[0], min(fast, default=math.inf))
                converted.setdefault(variant, []).append((seconds, pays))
        if shares:
            out.append(f"{unit.op}: features take {median(shares):.2g} calls of the default; {_worth(calls)}")
        for variant, of in converted.items():
            took = si.seconds(median(s for s, _ in of))
            out.append(f"{unit.op} {variant}: conversion {took}; {_worth([pays for _, pays in of])}")
    return out


def _pays(seconds: float, default: float, other: float) -> float:
    from dagc.choice.judge import pays_after  # only over inputs

    return pays_after(seconds, default, other)


def _worth(calls: Sequence[float]) -> str:
    """`pays after 14 calls at 31 of 54 inputs, at the others never` (the median of those where it does)."""
    paid = [c for c in calls if c < math.inf]
    if not paid:
        return "never pays"
    where = "" if len(paid) == len(calls) else f" at {len(paid)} of {counted(len(calls), 'input')}, at the others never"
    return f"pays after {counted(int(median(paid)), 'call')}{where}"


# ---- evaluation -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One op at the test inputs. `text`: of an answer by number; `costs`: of features, a line each."""

    op: str
    judged: Judged
    settings: tuple[Settings, ...]
    costs: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The table."""
        return (*self.judged.lines(lambda answer: settings_text(self.settings[answer])), *self.costs)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `dagc tune --evaluate`."""

    ops: tuple[Evaluated, ...]
    grade: str
    inputs: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float


def evaluate_inputs(
    text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None = None
) -> Evaluation:
    """Measure every answer of a tuned file at test inputs, and judge what its choosers answer there.

    The measurements are kept in the file, marked: nothing is learned from them. Inputs that the file was trained on are
    reported and skipped. Raises UsageError where the file has no chooser of an op, or is of another program.
    """
    from dagc.recipes.tuned import choosers_of  # only to evaluate

    if not tuned.kernel_choosers:
        raise UsageError(f"{tuned.path}: no chooser in it", "tune with --inputs first")
    task = tuning_task(
        text, kernels=tuned.kernel_choosers, sizes=options.sizes, inputs=options.inputs, target=options.target,
        arch=options.arch or named_arch(options.gpu), seed=options.seed, ranks=options.ranks,
        samples=options.samples, test=True,
    )  # fmt: skip
    if not can_run(task):
        raise UsageError(f"inputs are measured, and nothing can run here: {task.chosen.reason}", "use --target host")
    trained = {c.point for c in tuned.cells if c.op != PROGRAM and c.times} - tuned.facts.tests
    points = tuple(p for p in task.points if p not in trained)
    notes = [f"{p.text}: skipped: the file was trained on it" for p in task.points if p in trained]
    if not points:
        raise UsageError(
            "every input was trained on, which evaluates nothing", "name others with --inputs or --samples"
        )
    choosers = {c.op: c for c in choosers_of(task.graph, tuned, task.chosen.gpu_arch)}
    task = replace(
        task, points=points, check_at=points[0], settings={op: c.settings for op, c in choosers.items()},
        features={op: c.data for op, c in choosers.items()}, constraints=options.constraints,
    )  # fmt: skip
    began = time.monotonic()
    with opened(task, tuned.path, replace(options, resume=True), order_of(task), progress, references=False) as inputs:
        inputs.total = len(points) * sum(map(len, inputs.task.settings.values()))
        done = [p for p in order_of(inputs.task) if not inputs.over and inputs.visit(p, test=True)]
        if not done:
            raise nothing_evaluated(inputs.known.measured.failures)
        ops = tuple(_evaluated(inputs, choosers[unit.op], unit, sorted(done)) for unit in inputs.task.units)
        return Evaluation(
            ops, grade(task, len(inputs.known.measured.cells), NOT_COUNTED, {}), len(done),
            tuple(inputs.known.measured.failures), (*notes, *inputs.ready.notes, *task.text.changed()),
            time.monotonic() - began,
        )  # fmt: skip


def nothing_evaluated(failures: Sequence[str]) -> UsageError:
    """For test inputs none of which could be measured."""
    why = f": {failures[0]}" if failures else ""
    return UsageError(f"no input could be evaluated{why}", "name others with --inputs, or give more --time")


def _evaluated(inputs: Inputs, chooser: Any, unit: Unit, points: Sequence[Point]) -> Evaluated:
    from dagc.choice.judge import judge  # only to evaluate

    decided = [chooser.decide(inputs.ready.at[p].values) for p in points]
    judged = judge(
        [p.text for p in points], [times_at(inputs, unit.op, p) for p in points],
        [answer for answer, _ in decided],
        chooser.settings.index(unit.default) if unit.default in chooser.settings else 0,
        noises(inputs, unit.op, points),
        sizes=[inputs.known.inputs[p].elements for p in points],
        reasons=[reason.value for _, reason in decided],
    )  # fmt: skip
    return Evaluated(unit.op, judged, chooser.settings, tuple(costs(inputs, replace(inputs.task, units=(unit,)))))

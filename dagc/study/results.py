"""Results of tuning: measurements, settings that may be chosen, the printed lines."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.base.sample import OCCUPANCY, TIME, Objective, Sample, parse_objective
from dagc.choice.legal import op_of
from dagc.choice.types import Case, Cell, Samples
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.enums import Mode
from dagc.measure.metrics import units
from dagc.report import si
from dagc.report.limits import LimitRow, limit_lines
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.perf.occupancy import Occupancy
    from dagc.store.tuned import InputFacts, Tuned


# ---- which settings were checked ----


OTHER = "largest difference "  # in messages about results that differ (templates/runtime/dagc)


def unchecked(
    task: TuningTask, check: Mapping[str, Sequence[Choice]], checks: Mapping[tuple[str, Choice], str]
) -> dict[str, list[Choice]]:
    """The other legal settings of each site; they are checked as well, since choosers may use them at other sizes."""
    choices_of = {
        op: [s for s in choices if s not in check.get(op, ()) and (op, s) not in checks]
        for op, choices in task.choices.items()
    }
    return {op: choices for op, choices in choices_of.items() if choices}


def choosable(
    task: TuningTask, checks: Mapping[tuple[str, Choice], str], samples: Samples
) -> tuple[dict[str, tuple[Choice, ...]], list[str]]:
    """The settings of each site that a chooser may return, and notes. These agree with the reference (or, if they
    cannot be launched at the size of the checks, with another setting at the sizes where they were timed), and failed
    at no size. All, if nothing was run; only the default, if none is correct. A size at which each of several settings
    failed does not count against them. A setting that fails at an input is not chosen at inputs like this one
    (`dagc.choice.choose`)."""
    good = {key for key, failure in checks.items() if not failure} | {
        (o, s) for (o, _, s), c in samples.items() if c.times
    }
    lost = _lost(samples)
    bad = {key for key, failure in checks.items() if failure}
    drawn = {p.name for p in task.program.params if p.spread is not None}
    failed: dict[tuple[str, Choice], list[Case]] = {}
    avoided: dict[tuple[str, Choice], list[Case]] = {}
    for (o, p, s), c in samples.items():
        learned = p.is_input or any(name in drawn for name, _ in p.params)
        if c.failure and (learned or (o, p) not in lost):
            (avoided if learned else failed).setdefault((o, s), []).append(p)
    bad |= failed.keys()
    right = good - bad
    out: dict[str, tuple[Choice, ...]] = {}
    notes = [f"{op} at {case.text}: all settings failed, so no single setting is the cause" for op, case in lost]
    notes += [_excluded(op, choice, cases) for (op, choice), cases in failed.items()]
    notes += [_excluded(*key, cases, near=True) for key, cases in avoided.items()]
    notes += _timed_alone(task, dict.fromkeys(op for op, choice in failed if checks.get((op, choice)) == ""))
    for site in task.sites:
        legal = site.choices
        left = sum((site.name, s) not in good | bad for s in legal)
        if left == len(legal):
            out[site.name] = legal
            continue
        out[site.name] = tuple(s for s in legal if (site.name, s) in right)
        if left:
            notes.append(f"{site.name}: {left} of {len(legal)} settings were not checked, and are not chosen")
        if not out[site.name]:
            out[site.name] = (site.default,)
            notes.append(f"{site.name}: no setting gives correct results; the default stays")
    return out, notes


def _timed_alone(task: TuningTask, ops: Iterable[str]) -> Iterator[str]:
    """Notes on ops that failed only when they were timed, if their kernel changes what it reads."""
    for site in task.sites:
        formals = task.program.kernel(op_of(task.graph, site).kernel).formals
        if site.name in ops and any(formal.mode in (Mode.INOUT, Mode.ACCUMULATE) for formal in formals):
            yield (
                f"{site.name} failed only when it was timed: its launches follow each other, each on what the last one"
                " wrote into its `inout` arrays; if that is not valid, use `dagc explore`, which times whole programs"
            )


def _excluded(op: str, choice: Choice, cases: Sequence[Case], near: bool = False) -> str:
    where = ", ".join(p.text or "as given" for p in cases[:3]) + (", ..." if len(cases) > 3 else "")
    number = counted(len(cases), "input")
    said = f"not chosen near the {number} at which it failed" if near else f"never chosen, since it failed at {number}"
    return f"{op} {choice.in_words}: {said} ({where})"


def _lost(samples: Samples) -> list[tuple[str, Case]]:
    """Sites and sizes at which several settings were tried, and all failed."""
    tried: dict[tuple[str, Case], list[bool]] = {}
    for (op, case, _), sample in samples.items():
        tried.setdefault((op, case), []).append(bool(sample.failure))
    return [where for where, failed in tried.items() if len(failed) > 1 and all(failed)]


def doubtful(task: TuningTask, samples: Samples) -> list[str]:
    """Notes on sizes at which all other settings (two or more) differ from the default: at sizes other than that of the
    checks, results are compared with the default, which may itself be wrong."""
    notes = []
    for site in task.sites:
        for case in task.cases:
            here = {s: c for (op, p, s), c in samples.items() if (op, p) == (site.name, case)}
            others = [c for s, c in here.items() if s != site.default]
            default = here.get(site.default)
            if default is not None and default.times and len(others) > 1 and all(OTHER in c.failure for c in others):
                notes.append(
                    f"{site.name} at {case.text}: all others differ from the results of the default,"
                    f" {site.default.in_words}, which may itself be wrong: check with --check-at '{case.text}'"
                )
    return notes


# ---- measurements, and the printed lines ----


GUESS = "the default"  # limit of a launch without a model or a measurement


@dataclass(frozen=True, slots=True)
class KernelResult:
    """One kernel at one size. Values of the objective, NaN if not measured; `best` is the best measured setting.

    `held`: the occupancy of the default and of the chosen setting, as far as it is known; `achieved`: that of the
    chosen one as the hardware counts it, NaN if it was not; `limit`: how far the chosen one is from the lower bound,
    None if no bound is known.

    `trained`: the chooser was trained on this size, so the regret here does not apply to other sizes; `left_out`: the
    regret here after training without this size, NaN if unknown.
    """

    op: str
    case: Case
    default: Choice
    chosen: Choice
    best: Choice | None
    default_value: float
    chosen_value: float
    best_value: float
    why: str
    trained: bool = False
    left_out: float = math.nan
    sure: float = math.nan
    held: Mapping[Choice, Occupancy] = field(default_factory=dict)
    achieved: float = math.nan
    limit: LimitRow | None = None

    @property
    def regret(self) -> float:
        """By how much the chosen setting is worse than the best known: 0.1 is 10 %; NaN if that is unknown."""
        return self.chosen_value / self.best_value - 1 if self.best_value > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of `dagc tune`. `seconds`: time to check and time all `cells`; `busy`: the part spent in checks and
    timings, without starting processes and loading data. `objective`: that of the values in `lines`, which are in
    seconds if it is the time. `whole`: the lower bound of the program, if it is known."""

    lines: tuple[KernelResult, ...]
    grade: str
    method: str
    cells: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    output: Path | None
    seconds: float = 0.0
    busy: float = 0.0
    objective: Objective = TIME
    whole: LimitRow | None = None

    def render(self) -> str:
        """A line per kernel and size. For a learned method, the figure is the regret at held-out sizes: it was trained
        on the answers at the others."""
        took = f" in {self.seconds:.1f} s" if self.seconds >= 0.05 else ""
        took += f" ({self.busy:.2f} s of it checks and timings)" if took and self.busy else ""
        text = [f"{self.grade}; method {self.method}, {counted(self.cells, 'setting')} measured{took}"]
        text += aligned(self._columns())
        text += limit_lines(self._largest_limits())
        text += remarks(self.failures, self.notes)
        if self.output is not None:
            use = f"use it: dagc compile FILE --launch {shlex.quote(str(self.output))}"
            text.append(f"wrote {self.output}; {use if self.lines else 'it chooses nothing yet: use --resume'}")
        return "\n".join(text) + "\n"

    def _columns(self) -> dict[str, list[str]]:
        lines, objective = self.lines, self.objective
        learned = any(line.trained for line in lines)
        unit = "us" if objective.is_time else objective.text
        if objective is OCCUPANCY:
            return self._of_settings() | self._held() | {"limited by": [line.why for line in lines]}
        columns = self._of_settings() | {
            "best known": ["-" if line.best is None else line.best.in_words for line in lines],
            f"default {unit}": [_value(line.default_value, objective) for line in lines],
            f"chosen {unit}": [_value(line.chosen_value, objective) for line in lines],
            **self._limits(),
            "regret, in training" if learned else "regret": [_ratio(line.regret) for line in lines],
        }
        if learned:
            columns["left out"] = [_ratio(line.left_out) for line in lines]
        if any(not math.isnan(line.sure) for line in lines):
            columns["sure"] = ["-" if math.isnan(line.sure) else f"{line.sure:.0%}" for line in lines]
        return columns | self._held() | {"limited by": [line.why for line in lines]}

    def _of_settings(self) -> dict[str, list[str]]:
        return {
            "kernel": [line.op for line in self.lines],
            "size": [line.case.text or "as given" for line in self.lines],
            "default": [line.default.in_words for line in self.lines],
            "chosen": [line.chosen.in_words for line in self.lines],
        }

    def _largest_limits(self) -> list[LimitRow]:
        """Of each kernel, at the size with the largest bound; and that of the program."""
        out: dict[str, LimitRow] = {}
        for line in self.lines if self.objective.is_time else ():
            if line.limit is not None and line.limit.bound >= out.get(line.op, line.limit).bound:
                out[line.op] = line.limit
        return [*out.values(), *([self.whole] if out and self.whole is not None else [])]

    def _limits(self) -> dict[str, list[str]]:
        """The lower bounds, and which part of the time they are; without columns where none is known."""
        rows = [line.limit for line in self.lines]
        if not self.objective.is_time or not any(row is not None and not row.unknown for row in rows):
            return {}
        shown = [row if row is not None and not row.unknown else None for row in rows]
        bounds = ["-" if row is None else si.significant(row.bound * 1e6, 3) for row in shown]
        parts = ["-" if row is None or math.isnan(row.reached) else f"{100 * row.reached:.2g}%" for row in shown]
        return {"at least us": bounds, **({"reached": parts} if set(parts) != {"-"} else {})}

    def _held(self) -> dict[str, list[str]]:
        """What a multiprocessor holds of the launches; without columns where none is known."""
        held = {what: [line.held.get(getattr(line, what)) for line in self.lines] for what in ("default", "chosen")}
        shown = {what: ["-" if one is None else one.text for one in of] for what, of in held.items() if any(of)}
        columns = {f"{what} on an SM": words for what, words in shown.items()}
        if any(not math.isnan(line.achieved) for line in self.lines):
            columns["achieved"] = ["-" if math.isnan(one.achieved) else f"{one.achieved:.0%}" for one in self.lines]
        return columns


def aligned(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of a table, by the titles of its columns."""
    padded = [
        [word.ljust(max(map(len, (title, *words)))) for word in (title, *words)] for title, words in columns.items()
    ]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


MANY_TIMES = 10  # a regret from which on the ratio is printed


def _ratio(regret: float) -> str:
    """`4.2%`; of what takes many times the best how many: `38 times`."""
    if math.isnan(regret):
        return "-"
    return f"{regret:.1%}" if regret < MANY_TIMES else f"{1 + regret:.3g} times"


def _value(value: float, objective: Objective) -> str:
    if math.isnan(value):
        return "-"
    return si.significant(value * 1e6, 4) if objective.is_time else objective.scaled(value)


def remarks(failures: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    """The last lines of what is printed."""
    yield from (f"failed: {failure}" for failure in failures)
    yield from (f"note: {note}" for note in notes)


@dataclass(frozen=True, slots=True)
class Measurements:
    """What is known of the cases of a task: samples, why settings failed the check ("" if they did not), and facts
    about inputs."""

    samples: Samples
    checks: Mapping[tuple[str, Choice], str]
    inputs: Mapping[Case, InputFacts]


NOTHING_MEASURED = Measurements({}, {}, {})


def failures_before(samples: Samples) -> list[str]:
    """Those of an earlier run, which are not measured again. (Choices that failed the check are checked again.)"""
    return [
        f"{'' if op == PROGRAM else f'{op} '}{choice.in_words} at {case.text or 'as given'}: {sample.failure}"
        " (in an earlier run)"
        for (op, case, choice), sample in samples.items()
        if sample.failure
    ]


def paid(cell: Cell, sample: Sample, facts: InputFacts | None, calls: int, objective: Objective) -> Sample:
    """A sample in values of the objective, including the share of its conversion over this many calls."""
    more = 0.0
    if facts is not None and calls:
        more = facts.conversions.get(cell.site, {}).get(cell.choice.variant, 0.0) / calls
    return sample.priced(objective, more)


def minimised(tuned: Tuned) -> Objective:
    """The objective of a tuned file, whether or not its metrics can be measured here."""
    measured = {name: "" for _, sample in tuned.samples for name in sample.metrics}
    return parse_objective(tuned.facts.objective, measured | units())


def best_choice(samples: Samples, op: str, case: Case) -> Choice | None:
    """The fastest measured setting of an op at a case; None if none was measured."""
    here = {s: one.value for (o, p, s), one in samples.items() if o == op and p == case and one.good}
    return min(here, key=lambda s: here[s], default=None)

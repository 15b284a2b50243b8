"""Tuning of whole programs: `select m, chunks with knn(n)` at program level, where each setting is a program.

A setting assigns every named decision a value; each is compiled once, for all sizes. Measurements are stored as cells
of the op PROGRAM. Times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError
from dagc.base.resources import names_in
from dagc.base.sample import Sample
from dagc.choice.feature import SelectorFeature, asked_features
from dagc.choice.selector import Extent
from dagc.choice.types import Case, Samples
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.enums import ElementType
from dagc.ir.names import mangle
from dagc.ir.program import Program
from dagc.ir.sym import free

if TYPE_CHECKING:
    from dagc.store.tuned import InputFacts, Tuned

METHODS = (*names_in("choice/learners"), "exhaustive")
_NUMBERS = {t for t in ElementType if t is not ElementType.BOOL}


@dataclass(frozen=True, slots=True)
class ProgramSelect:
    """`select NAMES with METHOD(FEATURES)` of a program; the features are expressions over scalars."""

    names: tuple[str, ...]
    method: str
    features: tuple[SelectorFeature, ...]

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f.name for f in self.features)


def program_select(program: Program) -> ProgramSelect | None:
    """The program-level `select`, None if there is none. Raises UsageError for several, or unsuitable features."""
    selects = [s for s in program.selects if s.owner == ""]
    if not selects:
        return None
    if len(selects) > 1:
        raise UsageError("the program has more than one `select` at its top", "name all decisions in one")
    (item,) = selects
    known = numbers(program)
    features = asked_features(program, None, item.args)
    for name in sorted(set().union(*(free(f.expression) for f in features))):
        if name not in known:
            names = ", ".join(sorted(known)) or "the program has none: declare `scalar n : i64`"
            raise UsageError(
                f"`select ... with {item.method}(...)` uses `{name}`, which is not a numeric scalar",
                f"name scalars of the program ({names})",
            )
    if not features:
        raise UsageError(f"`select ... with {item.method}()` has no data", "name the scalars it depends on: knn(n)")
    return ProgramSelect(item.names, item.method, features)


def numbers(program: Program) -> frozenset[str]:
    """Names of the per-rank scalars that are numbers."""
    return frozenset(s.name for s in program.scalars if s.type in _NUMBERS)


def plan_label(settings: Choice) -> str:
    """`m8-chunks4-streams4`: the name of a plan's directory. Plans differ in values alone, not in names."""
    return "-".join(mangle(f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}{value}") for name, value in settings.items())


# ---- measurements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Training data: `settings` with correct results at every size, and at each case (ascending by its data) the
    seconds of each setting by its number. `failed`: the settings that failed at each. `notes` report what was
    skipped."""

    settings: tuple[Choice, ...]
    cases: tuple[Case, ...]
    data: tuple[tuple[float, ...], ...]
    times: tuple[Mapping[int, float], ...]
    intervals: tuple[tuple[tuple[float, float, float], ...], ...]  # low, median, high of each cell, by case
    failed: tuple[frozenset[int], ...]
    notes: tuple[str, ...]


def measured(samples: Samples, legal: Sequence[Choice], data: Mapping[Case, tuple[float, ...]]) -> PlanTimes:
    """Skips cases at which not every legal setting was tried, or all failed. A setting that failed at any other size
    is excluded, so that it is never chosen; one that failed at an input has no time there. `data`: the features of the
    selector, by case."""
    at: dict[Case, dict[Choice, Sample]] = {}
    for (_, case, choice), sample in samples.items():
        at.setdefault(case, {})[choice] = sample
    notes: list[str] = []
    complete: dict[Case, dict[Choice, Sample]] = {}
    for case in sorted(at, key=lambda p: (data[p], p)):
        tried = sum(s in at[case] for s in legal)
        if tried < len(legal):
            notes.append(f"{_name(case)}: {tried} of {len(legal)} settings tried, skipped until --resume completes it")
        elif all(c.failure for c in at[case].values()):
            notes.append(f"{_name(case)}: no setting runs, skipped")
        else:
            complete[case] = at[case]
    every = dict.fromkeys((*legal, *(s for here in complete.values() for s in here)))
    failed = {s for p, here in complete.items() for s, c in here.items() if c.failure and not p.is_input}
    settings = tuple(s for s in every if s not in failed)
    number = {s: i for i, s in enumerate(settings)}
    if complete and not all(any(s in number for s in here) for here in complete.values()):
        notes.append("no setting has correct results at every size: nothing is learned")
        complete = {}
    by_setting = [
        {number[s]: c for s, c in here.items() if s in number and not c.failure} for here in complete.values()
    ]
    return PlanTimes(
        settings, tuple(complete), tuple(data[p] for p in complete),
        tuple({i: c.value for i, c in here.items()} for here in by_setting),
        tuple(tuple((c.interval[0], c.value, c.interval[1]) for c in here.values()) for here in by_setting),
        tuple(frozenset(number[s] for s, c in h.items() if s in number and c.failure) for h in complete.values()),
        tuple(notes),
    )  # fmt: skip


def measured_data(tuned: Tuned, names: Sequence[str]) -> Extent:
    """The range of the features `names` over the sizes at which plans were timed.

    Raises ValueError if the file has other features for them.
    """
    timed = {cell.case for cell, sample in tuned.samples if cell.site == PROGRAM and sample.times} - tuned.facts.tests
    return Extent.of(one.features[PROGRAM] for case, one in inputs_of(tuned, names).items() if case in timed)


def inputs_of(tuned: Tuned, names: Sequence[str]) -> dict[Case, InputFacts]:
    """The cases of whole programs in a file: for some versions, only the features `names`.

    Raises ValueError if the file has other features for them.
    """
    from dagc.store.tuned import InputFacts  # loads msgspec, numpy, sqlite3

    out = {}
    for params, values in tuned.facts.program_data:
        features = {PROGRAM: dict(zip(names, values, strict=True))}
        out[Case.of(dict(params))] = InputFacts(dict(params), False, {}, features, {}, 0)
    for one in tuned.facts.inputs:
        if PROGRAM not in one.features:
            continue
        if one.features[PROGRAM].keys() != set(names):
            raise ValueError(f"other features: {', '.join(one.features[PROGRAM])}")
        out[one.case] = one
    return out


def _name(case: Case) -> str:
    return case.text or "as given"

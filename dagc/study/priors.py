"""Set-up of the search for launch settings: the expected times of each op at each size before any measurement."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError
from dagc.base.python import np
from dagc.choice.choose import worth_measuring
from dagc.choice.types import MODELS
from dagc.ir.plan import Target
from dagc.lab.across import AcrossSizes, OpTimes
from dagc.stages.options import LimitOptions
from dagc.study.cases import volume
from dagc.study.choosers import ChooserInputs

if TYPE_CHECKING:
    from dagc.choice.residual import Learner
    from dagc.choice.types import Case, Samples, Site
    from dagc.cuda.ptx import Resources
    from dagc.ir.choice import Choice
    from dagc.ir.program import Value

MOST_CODES = 6  # most compiled versions of a kernel under its forms whose instructions are distinguished
MOST_ROWS = 800  # most cells of an op in the search: its covariances grow with the square


def search_of(inputs: ChooserInputs, options: LimitOptions, top: int) -> tuple[AcrossSizes, list[str]]:
    """The search over all ops that a model ranks, without observations, and notes. `top`: settings measured at each
    size in addition to the default, if neither budget nor time nor accuracy is given."""
    sites = [site for site in inputs.ready.task.sites if inputs.asked[site.name].method in MODELS and not site.variants]
    if not sites:
        return AcrossSizes([], 0, options.until), []
    learner, notes = learner_for(inputs)
    searches = []
    for site in sites:
        times, doubts = expected_times(
            inputs, site, learner if inputs.asked[site.name].method == "volume" else _plain(learner)
        )
        searches += [times] if times is not None else []
        notes += [f"{site.name}: {note}" for note in doubts]
    open_ended = options.seconds is not None or options.until is not None
    budget = options.budget if options.budget is not None or open_ended else _budget(searches, top)
    return AcrossSizes(searches, budget, options.until), notes


def _plain(learner: Learner) -> Learner:
    """The learner without trees, which predict the error of the volume model only."""
    return replace(learner, trees=None)


def _budget(searches: list[OpTimes], top: int) -> int:
    """`top` for each op and size, at most half of the legal settings, and the default."""
    return sum(worth_measuring(top, len(o.of[p])) + 1 for o in searches for p in o.cases if o.of[p])


def learner_for(inputs: ChooserInputs) -> tuple[Learner, list[str]]:
    """The pre-trained learner, and a note if it cannot be used, or if it was trained on GPUs of other architectures."""
    from dagc.choice import residual  # loads numpy

    try:
        learner = residual.load_learner(residual.FILE)
    except (OSError, ValueError) as error:
        return residual.UNTRAINED, [f"the model alone ranks, without a pre-trained learner: {error}"]
    arch = inputs.hardware.arch
    if learner.archs and arch not in learner.archs:
        wider = replace(learner, deviation=1.5 * learner.deviation, blind=1.5 * learner.blind)
        return wider, [
            f"the pre-trained learner knows {', '.join(learner.archs)}, not {arch}: its predictions have less weight"
        ]
    return learner, []


@dataclass(slots=True)
class _Rows:
    """The cells of an op as arrays of a surface."""

    cells: list[tuple[Case, Choice]]
    means: list[Any]
    deviations: list[Any]
    responses: list[Any]
    places: list[Any]
    size_of: list[int]


# Error of a prediction, relative to others: of a kernel whose iterations are known, have a loaded bound, or end in
# another way, such as a search. The last leaves the default until measurements say more.
GUESSED = (1.0, 2.0, 12.0)


def expected_times(inputs: ChooserInputs, site: Site, learner: Learner) -> tuple[OpTimes | None, list[str]]:
    """The prior of the model and the learner for an op at each measured size; None if nothing fits."""
    from dagc.choice.models import guessed_iterations  # loads numpy, sympy
    from dagc.choice.residual import coordinates, size_coordinates  # loads numpy
    from dagc.choice.surface import Rows, TimeSurface  # loads numpy
    from dagc.choice.terms import responses  # loads numpy, sympy

    ready, notes = inputs.ready, []
    cases = [p for p in ready.task.cases if p not in ready.task.earlier and ready.at[p].fits[site.name]]
    random.Random(f"{ready.task.seed} order").shuffle(cases)
    if ready.task.chosen.target is Target.HOST:
        cases.sort(key=volume)  # large ones may take too long there
    if not cases:
        return None, []
    choices = site.choices
    place, tables = coordinates(site, choices), _Tables(inputs, site)
    doubt = GUESSED[guessed_iterations(ready.task.graph, site)]
    rows, most = _Rows([], [], [], [], [], []), max(2, MOST_ROWS // len(cases))
    for number, case in enumerate(cases):
        table = tables.at(case)
        mean, deviation = learner.predict(table, choices)
        deviation = doubt * deviation
        answers = responses(table)
        index = {s: i for i, s in enumerate(choices)}
        fits = [index[s] for s in ready.at[case].fits[site.name]]
        if len(fits) > most:
            notes.append(f"{case.text or 'as given'}: the {most} most promising of {len(fits)} settings are searched")
            fits = sorted(sorted(fits, key=lambda i: (choices[i] != site.default, mean[i]))[:most])
        rows.cells += [(case, choices[i]) for i in fits]
        rows.means += [mean[i] - mean[fits].mean() for i in fits]
        rows.deviations += [deviation[i] for i in fits]
        rows.responses += [answers[i] for i in fits]
        rows.places += [place[i] for i in fits]
        rows.size_of += [number] * len(fits)
    predicted = Rows(
        np.array(rows.means), np.array(rows.deviations), np.array(rows.responses), np.array(rows.places),
        size_coordinates(cases), np.array(rows.size_of),
    )  # fmt: skip
    surface = TimeSurface(learner.kernel, predicted)
    if tables.note:
        notes.append(tables.note)
    return OpTimes(site.name, site.default, tuple(cases), tuple(rows.cells), surface, tables.known), notes


class _Tables:
    """The terms of an op's settings at each size. `note`: where they are unknown."""

    def __init__(self, inputs: ChooserInputs, site: Site) -> None:
        self.inputs, self.site, self.note = inputs, site, ""
        self.known = False  # whether the model could be evaluated anywhere
        self._terms: dict[int, Any] = {}

    def at(self, case: Case) -> Any:
        """(settings, TERMS), all NaN if the model cannot be evaluated; settings are then known only by their
        coordinates."""
        from dagc.choice.terms import TERMS, launch_terms  # loads numpy, sympy

        inputs, task = self.inputs, self.inputs.ready.task
        choices, values = self.site.choices, inputs.ready.at[case].values
        graph = task.graph_at(case)
        try:
            if id(graph) not in self._terms:
                each = inputs.each.get(self.site.name, [inputs.resources_of(self.site.name)] * len(choices))
                each = alike(choices, each)
                self._terms[id(graph)] = launch_terms(graph, self.site, choices, inputs.hardware, resources=each)
            terms = self._terms[id(graph)]
            if terms.note.startswith("no model"):
                self.note = f"{terms.note}; the search uses only the launch and the compiled code"
            table = terms.at(values)
        except (ArithmeticError, DagcError, KeyError, TypeError, ValueError) as error:
            self.note = f"no model at {case.text or 'this size'}: {error}; the search starts without one"
            table = np.full((len(choices), len(TERMS)), np.nan)
        if inputs.asked[self.site.name].method == "rational":
            table = table.copy()
            table[:, 0] = self._of_method(case)
        self.known |= bool(np.isfinite(table[:, 0]).any())
        return table

    def _of_method(self, case: Case) -> Any:
        """Times by the model of `--method rational`, in any unit."""
        from dagc.study.choosers import first_choosers  # only with --method rational

        chooser = first_choosers(self.inputs)[self.site.name].at(case)
        choices = self.site.choices
        return (
            np.array(chooser.times(self.inputs.ready.at[case].values))
            if chooser.model
            else np.full(len(choices), np.nan)
        )


def alike(choices: Sequence[Choice], each: Sequence[Resources]) -> list[Resources]:
    """What settings take; those with the same forms have the instructions of their first if more than MOST_CODES
    differ, since a model is made for each."""
    forms = [tuple((name, choice[name]) for name in choice.formed) for choice in choices]
    under: dict[tuple[tuple[str, Value], ...], list[Resources]] = {}
    for of, taken in zip(forms, each, strict=True):
        under.setdefault(of, []).append(taken)
    many = {of for of, some in under.items() if len({(r.shared, r.instructions) for r in some}) > MOST_CODES}
    return [
        replace(r, instructions=under[of][0].instructions) if of in many else r
        for of, r in zip(forms, each, strict=True)
    ]


SHARE = 0.02  # gain of another setting that the column `sure` of the table refers to


def guesses(search: AcrossSizes, samples: Samples) -> dict[tuple[str, Case], Choice]:
    """The search's choices at sizes without timings."""
    timed = {(op, case) for (op, case, _), sample in samples.items() if sample.good}
    ops = [o for o in search.ops.values() if o.modelled or any(op == o.op for op, _ in timed)]
    return {(o.op, p): search.choice(o.op, p) for o in ops for p in o.cases if (o.op, p) not in timed}


def sureness(search: AcrossSizes) -> dict[tuple[str, Case], float]:
    """The probability that no other setting is faster than the chosen one by more than SHARE, by op and size; empty if
    the model was given up."""
    if not search.guided:
        return {}
    return {(o.op, p): 1 - search.doubt_at(o.op, p, SHARE) for o in search.ops.values() for p in o.cases}

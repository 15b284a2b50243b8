"""Choosers: the answer of a site for a vector of features. One decision rule, in C: emitted programs have it, and
Python compiles and calls the same text.

A chooser has a model (a rational program for the time of a launch), measured bests, a selector, or several of these:

  model alone     the setting that is fastest by the model; the first in the list (the default first of all) wins ties
  measured bests  at measured features, the best there; elsewhere the best of the nearest measured case,
                  or the first setting that can be launched, if that one cannot
  both            the same, unless the model predicts that another setting is faster by more than MARGIN
  a selector      at measured features, the best there; elsewhere the selector's choice, or the
                  first setting that can be launched, if that one cannot

If a feature is not a number (a division by zero), the default is taken. For variants, the default is also taken if a
feature is FAR times outside of the measured range, or if the selector's confidence is below its threshold. The distance
of two cases is the product over the features of the larger over the smaller value.

An answer that failed at inputs like this one in training (a wrong result, a crash, a hang), be it chosen or the
default, is replaced by the next one in the selector's order that did not. If all failed, the default is taken, and the
program warns. It is avoided at the features of the input at which it failed, and at features that are nearer to them
than those of any input at which the answer worked. Each feature counts by its share of the measured range; features
outside of the range count as its limit. In C: `choice/chooser.h.j2`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

from dagc.base.python import np
from dagc.base.sample import Sample
from dagc.choice.feature import SelectorFeature
from dagc.choice.legal import legal_settings, op_of, op_under, open_site
from dagc.choice.selector import Extent, Scale, Selector, c_head, library, scales_of, shares, trained_ranges
from dagc.choice.types import Case, Cell, Site
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.names import mangle, set_apart
from dagc.ir.plan import FAR, ChoiceCall, EmittedChoosers
from dagc.ir.program import Device, Graph
from dagc.ir.sym import Number
from dagc.perf.cprint import batch_to_c, identifier, padded_count, split, to_c
from dagc.perf.evaluate import PartialEvaluator, evaluate_all
from dagc.perf.program import RationalProgram

EVERYWHERE = 2**63 - 1  # the radius of an answer that worked nowhere
PENALTY = 1e6  # factor of the expected time of an avoided answer, where ops are placed together


@dataclass(frozen=True, slots=True)
class Tried:
    """An input at which answers were tried: its features by name, of those that are finite, and the answers that worked
    and failed there."""

    features: Mapping[str, float]
    worked: frozenset[Choice]
    failed: frozenset[Choice]


def tried_at(
    samples: Iterable[tuple[Cell, Sample]],
    op: str,
    features: Mapping[Case, Mapping[str, float]],
    tests: Collection[Case] = (),
) -> tuple[Tried, ...]:
    """The inputs with `features` at which an op was tried, except the `tests`; () if nothing failed."""
    worked: dict[Case, set[Choice]] = {}
    failed: dict[Case, set[Choice]] = {}
    for (site, case, choice), sample in samples:
        if site == op and case in features and case not in tests and (sample.failure or sample.times):
            (failed if sample.failure else worked).setdefault(case, set()).add(choice)
    cases = dict.fromkeys((*worked, *failed)) if failed else ()
    return tuple(
        Tried(features[p], frozenset(worked.get(p, ())), frozenset(failed.get(p, ()))) for p in cases
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailureRegion:
    """`answer` failed at the input with the features `centre`; `radius`: the squared distance of the nearest input at
    which it worked."""

    answer: int
    centre: tuple[int, ...]
    radius: int


@dataclass(frozen=True, slots=True)
class Avoided:
    """`scales`, `lows`, `widths`: the conversion of each feature to its share of the measured range. `ever`: the
    answers that failed at any input, which are avoided where a feature is not finite."""

    scales: tuple[Scale, ...] = ()
    lows: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    regions: tuple[FailureRegion, ...] = ()
    ever: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[float]], worked: Sequence[Collection[int]], failed: Sequence[Collection[int]]
    ) -> Avoided:
        """From the features of each input and the answers that worked and failed there, by number."""
        ever = tuple(sorted({answer for answers in failed for answer in answers}))
        known = [i for i, row in enumerate(rows) if all(map(math.isfinite, row))]
        if not ever or not known:
            return cls(ever=ever)
        scales = scales_of([rows[i] for i in known])
        lows, widths = trained_ranges([rows[i] for i in known], scales)
        places = dict(zip(known, shares([rows[i] for i in known], scales, lows, widths), strict=True))
        regions = {
            FailureRegion(answer, places[i], min((_apart(places[i], places[k]) for k in known if answer in worked[k]),
                                          default=EVERYWHERE))
            for i in known for answer in failed[i]
        }  # fmt: skip
        return cls(scales, lows, widths, tuple(sorted(regions, key=lambda r: (r.answer, r.centre))), ever)

    def at(self, x: Sequence[float]) -> frozenset[int]:
        """The answers to avoid for a vector of features."""
        if not self.ever:
            return frozenset()
        if not all(map(math.isfinite, x)):
            return frozenset(self.ever)
        if not self.regions:
            return frozenset()
        (here,) = shares([x], self.scales, self.lows, self.widths)
        apart = ((region, _apart(here, region.centre)) for region in self.regions)
        return frozenset(region.answer for region, far in apart if far == 0 or far < region.radius)


def _apart(one: Sequence[int], other: Sequence[int]) -> int:
    """The squared distance."""
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


# ---- in C99 ----


def chooser_c(chooser: Chooser, *, ordered: bool = False) -> str:
    """C99: `static inline dagc_choice dagc_choose_SITE(const double* features)`; `c_head` goes before it.

    A second call with the same features returns the stored answer. `ordered`: with `dagc_order_SITE` also where an
    emitted program does not need it.
    """
    from dagc.emit.render import render  # loads jinja2

    site, name, n = chooser.site, chooser.site.identifier, len(chooser.site.choices)
    ordered = ordered or chooser.guarded
    data, functions = chooser.data, []
    programs = {"time": chooser.model, "launchable": chooser.launchable}
    calls = {what: _call(chooser, what, program) if program else "" for what, program in programs.items()}
    functions += [to_c(program, f"dagc_{what}_{name}") for what, program in programs.items() if program is not None]
    selector = chooser.selector
    if selector is not None:
        functions.append(selector.c_text(name, ranked=ordered or bool(chooser.avoided.ever)))
    whole = sorted(parameters_of(chooser.model, chooser.launchable) & set(data))
    batch = _batch(chooser, whole)
    launch = site.name != PROGRAM
    return render(
        "choice/chooser.h.j2", what=site.name, name=name, n=n, function=site.function, table=site.table,
        features=data, functions=functions, margin=repr(1 + MARGIN), padded=padded_count(n), **calls, **batch,
        answers=[site.row(i) for i in range(n)] if launch else [],
        text=site.label, texts=[site.text(i) for i in range(n)] if launch else [],
        guarded=chooser.guarded, order=site.order if ordered else "", least_sure=chooser.least_sure, far=FAR,
        columns=[
            {
                "name": _column(chooser, c), "type": "double" if c == "log2_threads" else "int64_t",
                "values": [_number(v) for v in vs],
            }
            for c, vs in chooser.columns
        ],
        measured=chooser.anchors,
        data=[{"name": _local(d), "index": data.index(d)} for d in whole],
        ranges=[{"index": data.index(f), "low": low, "high": high} for f, low, high in chooser.extent.ranges],
        selector={"places": [data.index(d) for d in selector.data]}
        if selector is not None else None,
        predict=site.predict if chooser.predicts else "", avoided=chooser.avoided, failed=site.failed,
        penalty=PENALTY,
    )  # fmt: skip


def _batch(chooser: Chooser, whole: Sequence[str]) -> dict[str, Any]:
    """Code that computes the model's time of all settings in one loop, if that is exact: the text, the condition, and
    the call."""
    if chooser.model is None:
        return {"batch": "", "batched": None}
    programs = [chooser.model] if chooser.launchable is None else [chooser.model, chooser.launchable]
    batch = split(programs, dict(chooser.columns))
    if batch is None:
        return {"batch": "", "batched": None}
    data, name = [_local(d) for d in whole], f"dagc_batch_{chooser.site.identifier}"
    text = "/* All settings at once; tables hold what depends on a setting alone. */\n"
    text += batch_to_c(batch, name, whole, len(chooser.site.choices))
    condition = " && ".join(["DAGC_IEEE", *(f"{d} >= 1 && {d} <= {batch.limit}" for d in data)])
    return {
        "batch": text,
        "batched": {"condition": condition, "call": f"{name}({''.join(f'{d}, ' for d in data)}times)"},
    }


def parameters_of(*programs: RationalProgram | None) -> set[str]:
    """The names of all parameters."""
    return {parameter.name for program in programs if program is not None for parameter in program.parameters}


def _call(chooser: Chooser, what: str, program: RationalProgram) -> str:
    columns = {c for c, _ in chooser.columns}
    args = [f"{_column(chooser, p.name)}[i]" if p.name in columns else _local(p.name) for p in program.parameters]
    return f"dagc_{what}_{chooser.site.identifier}({', '.join(args)})"


def _column(chooser: Chooser, name: str) -> str:
    """The table of a column of the site's answers."""
    return f"dagc_column_{mangle(f'{chooser.site.name}.{name}')}"


# Variables of choice/chooser.h.j2.
_LOCALS = frozenset("x times i k wanted choice near least apart asked best seconds last known".split())


def _local(size: str) -> str:
    """The variable of a size in the functions of a chooser."""
    name = identifier(size)
    return set_apart(name) if name in _LOCALS else name


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# ---- choosers ----


# Determined on exhaustive measurements of an H200: the mean regret is least if the best of one size is kept unless the
# model gains 5 %.
MARGIN = 0.05


def worth_measuring(top: int, legal: int) -> int:
    """The number of settings of a ranking to measure: `top`, but at most half of the legal ones."""
    return min(top, (legal + 1) // 2)


class Reason(Enum):
    """Why an answer is taken: the chooser chose it, or one of the reasons for the default, answer 0, or for another
    one. In the order of `choice/head.h.j2`."""

    CHOSEN = "chosen"
    UNSURE = "unsure"
    OUTSIDE = "outside"
    NOT_FINITE = "not finite"
    CONSTRAINT = "constraint"  # only in programs, where a `require` of what was chosen does not hold
    AVOIDED = "avoided"  # what was chosen, or the default, failed at inputs like this one in training
    FAILED = "failed"  # all answers did


@dataclass(frozen=True, slots=True)
class Anchor:
    """A measured case: its features, in the order of the chooser's, and the best of the measured answers."""

    data: tuple[float, ...]
    chosen: int


@dataclass(frozen=True)
class Chooser:
    """Chooses an answer of a site by a vector of features.

    `model`: the time of a launch in cycles, a function of sizes and block; None: measured bests only. `launchable`: 1
    if an answer can be launched. `columns`: parameters of both programs that depend on the answer, a value for each.
    `selector`: answers where nothing was measured; it replaces the model. `extent`: range of the measured features.
    `avoided`: where answers failed in training.
    """

    site: Site
    features: tuple[SelectorFeature, ...]
    columns: tuple[tuple[str, tuple[float, ...]], ...] = ()
    model: RationalProgram | None = None
    launchable: RationalProgram | None = None
    anchors: tuple[Anchor, ...] = ()
    selector: Selector | None = None
    extent: Extent = Extent(())
    note: str = ""
    avoided: Avoided = Avoided()

    @property
    def op(self) -> str:
        return self.site.name

    @property
    def guarded(self) -> bool:
        """Whether the default is taken if the selector is unsure, or if a feature is FAR times outside of the measured
        range. True for variants, which may be far slower than the default there."""
        return bool(self.site.variants)

    @property
    def least_sure(self) -> float:
        """The confidence of the selector below which it is unsure."""
        return self.selector.least_sure if self.selector is not None else 0.0

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The answers."""
        return self.site.choices

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f.name for f in self.features)

    # ---- in Python ----------------------------------------------------------------------------

    def vector(self, values: Mapping[str, Number]) -> tuple[float, ...]:
        """The features, from the values of a rank: scalars, `rank`, `ranks`, and computed features."""
        return tuple(f.value(values) for f in self.features)

    def times(self, values: Mapping[str, Number]) -> list[float]:
        """The model's time of each setting in cycles; infinite where it cannot be launched."""
        assert self.model is not None
        sizes, n = self._sizes(values), len(self.site.choices)
        times = np.broadcast_to(_over_answers(self.model, self.columns)(sizes), n)
        if self.launchable is not None:
            times = np.where(_over_answers(self.launchable, self.columns)(sizes) == 1, times, math.inf)
        return [float(t) for t in times]

    @property
    def predicts(self) -> bool:
        """Whether `predict` gives times."""
        return self.selector is not None and self.selector.predicts

    @cached_property
    def _loaded(self) -> ctypes.CDLL:
        from dagc.emit.render import render  # loads jinja2

        text = c_head() + chooser_c(self, ordered=True)
        return library(render("choice/decided.c.j2", text=text, site=self.site, predicts=self.predicts))

    def _call(self, name: str, values: Mapping[str, Number], out: Any) -> Any:
        """Raises MissingTool without a C compiler."""
        here = self.vector(values)
        return getattr(self._loaded, f"dagc_{name}")((ctypes.c_double * len(here))(*here), out)

    def predict(self, values: Mapping[str, Number]) -> tuple[float, ...]:
        """The expected seconds of each answer, by a selector that predicts times; constraints are ignored. Infinite for
        an answer that was never timed, and for all answers if a feature is not finite; PENALTY times as long for an
        answer that failed at inputs like this one."""
        seconds = (ctypes.c_double * len(self.site.choices))()
        self._call("expected", values, seconds)
        return tuple(seconds)

    def failed(self, values: Mapping[str, Number]) -> frozenset[int]:
        """The answers that failed at inputs like this one in training."""
        return self.avoided.at(self.vector(values))

    def choose(self, values: Mapping[str, Number]) -> int:
        """The number of the answer."""
        return self.decide(values)[0]

    def decide(self, values: Mapping[str, Number]) -> tuple[int, Reason]:
        """The number of the answer, and why it is taken."""
        reason = (ctypes.c_int * 1)()
        return int(self._call("decided", values, reason)), list(Reason)[reason[0]]

    def order(self, values: Mapping[str, Number]) -> tuple[int, ...]:
        """All answers, the best first: that of `decide`, then those of the selector in its order, then the rest; last
        those that failed at inputs like this one. If a `require` of an answer does not hold, the next one is taken."""
        order = (ctypes.c_int * len(self.site.choices))()
        self._call("ordered", values, order)
        return tuple(order)

    def ranked(self, values: Mapping[str, Number]) -> list[int]:
        """The answers that can be launched: fastest first by the model, or in the order of the list without one."""
        if self.model is None:
            return list(range(len(self.site.choices)))
        times = self.times(values)
        return sorted((i for i in range(len(times)) if times[i] < float("inf")), key=lambda i: times[i])

    def why(self, values: Mapping[str, Number], chosen: int) -> str:
        """What limits the launch (the largest term of the model's time), or a summary of the selector."""
        if self.selector is not None:
            return self.selector.text
        if self.model is None:
            return "measured"
        from dagc.perf import mwp_cwp, occupancy, volume  # loads sympy

        columns = {n: v[chosen] for n, v in _arrays(self.model, self.columns).items()}
        sizes = {p.name: v for p in self.model.parameters if (v := self._sizes(values).get(p.name)) is not None}
        steps = {n: float(v) for n, v in evaluate_all(self.model, {**columns, **sizes}).items()}
        if "idle" in steps:
            return occupancy.why(steps)
        return mwp_cwp.why(steps) if "mwp" in steps else volume.explain_terms(steps)

    def _sizes(self, values: Mapping[str, Number]) -> dict[str, int]:
        """The features as integers, as the model's C code takes them."""
        vector = zip(self.data, self.vector(values), strict=True)
        return {name: int(v) for name, v in vector if math.isfinite(v)}

    # ---- in C ---------------------------------------------------------------------------------

    def c_text(self) -> str:
        """`dagc.choice.choose.chooser_c` of this chooser."""
        return chooser_c(self)

    @property
    def choice(self) -> ChoiceCall:
        """The call in the emitted program."""
        return ChoiceCall(
            self.site.function, self.site.table, self.op, tuple(f.expression for f in self.features),
            self.site.decisions, self.extent.text, self.site.label, len(self.site.choices),
            predict=self.site.predict if self.predicts else "", order=self.site.order if self.guarded else "",
            failed=self.site.failed if self.avoided.ever else "",
        )  # fmt: skip


@lru_cache(maxsize=64)
def _over_answers(program: RationalProgram, columns: tuple[tuple[str, tuple[float, ...]], ...]) -> PartialEvaluator:
    """A model over all answers; values that depend only on the answer are computed once."""
    return PartialEvaluator(program, _arrays(program, columns))


def _arrays(program: RationalProgram, columns: tuple[tuple[str, tuple[float, ...]], ...]) -> dict[str, Any]:
    names = {p.name for p in program.parameters}
    return {n: np.array(v) for n, v in columns if n in names}


def emitted(choosers: Sequence[Chooser]) -> EmittedChoosers:
    """The C code of all choosers, and their calls in the emitted program."""
    from dagc.emit.render import tidy  # loads jinja2

    text = "\n".join((c_head(), *(c.c_text() for c in choosers)))
    return EmittedChoosers(tidy(text), tuple(c.choice for c in choosers))


# ---- of an op ----


def avoided_of(names: Sequence[str], choices: Sequence[Choice], tried: Sequence[Tried]) -> Avoided:
    """Where answers of a chooser failed, by its features `names` and its `choices`."""
    number = {answer: i for i, answer in enumerate(choices)}
    rows = [[one.features.get(name, math.nan) for name in names] for one in tried]
    worked = [{number[s] for s in one.worked if s in number} for one in tried]
    return Avoided.of(rows, worked, [{number[s] for s in one.failed if s in number} for one in tried])


def default_chooser(graph: Graph, op: str) -> Chooser:
    """The chooser of an op with an open variant before any measurement: the default, then the first implementation on
    the CPU, if there is one."""
    site = open_site(graph, op, True)
    legal = legal_settings(graph, site, {})
    on_cpu = [one for one in legal if op_under(graph.program, op_of(graph, site), one).device is Device.CPU]
    return Chooser(replace(site, choices=tuple(dict.fromkeys((*legal[:1], *on_cpu[:1])))), ())

"""Choosers of kernels and of plans: the method of each, the trained selector, and its answers at each size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.sample import OCCUPANCY, TIME, Objective, Sample
from dagc.choice.choose import Tried, tried_at
from dagc.choice.feature import FeatureContext, SelectorFeature, asked_features, offered, values_of
from dagc.choice.legal import bindings, op_of, op_under
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.choice.selector import FEWEST, Selector
from dagc.choice.types import MODELS, Case, Cell, Samples, Site
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.forms import kernel_of
from dagc.ir import sym
from dagc.ir.choice import PROGRAM, VARIANT, Choice, own_name
from dagc.ir.enums import ElementType
from dagc.ir.plan import Target, places_together
from dagc.ir.program import DEVICE, Graph, Region, Value
from dagc.stages.options import COSTS
from dagc.study.prepare import Prepared, only
from dagc.study.results import GUESS, KernelResult, best_choice
from dagc.study.task import TuningTask
from dagc.study.train import Learned, TrainingTable, expecting, left_out, tabulated, train, train_few

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.choice.models import ModelInputs
    from dagc.study.gpu import Counted


# ---- methods and learned selectors ----


@dataclass(frozen=True, slots=True)
class Asked:
    """`data`: features named by the kernel's `select`, empty if it names none. `note`: "" or a line."""

    method: str
    data: tuple[str, ...] = ()
    note: str = ""


_PLACED = f"placed together with other ops by predicted times, with method {COSTS}"


SEARCH = "model"  # a strategy of the laboratory
_OTHER_OBJECTIVE = f"use --method exhaustive, {SEARCH}, or another that measures, on a machine that runs the program"


def asked_of(task: TuningTask, method: str, runs: bool, objective: Objective = TIME) -> dict[str, Asked]:
    """The method of each site: `method`, or if it is "" that of the kernel's `select`, else `volume`. Models predict
    the time; for another `objective`, a strategy that learns from measurements replaces `volume`.

    For `rational` in a program, the model of data volumes is used. A model ranks settings of one kernel, so if the
    variant is open all settings are measured instead. Raises UsageError if the given method measures and nothing can
    run; a method that only the program requests is replaced by the model, without which the default stays. The
    occupancy is computed, whatever the program names.
    """
    if objective is OCCUPANCY:
        return _by_occupancy(task, method)
    out = {}
    for site in task.sites:
        wanted, data = select_of(task.graph, site)
        chosen, note = method or wanted, ""
        if site.variants and places_together(task.program):
            if method not in ("", COSTS):
                message = f"method {method} predicts no times, which placing the ops together needs"
                raise UsageError(message, f"use --method {COSTS}")
            chosen, note = COSTS, _PLACED
        if site.variants and chosen in MODELS and runs:
            chosen, note = EXHAUSTIVE, f"no model compares variants: all are measured, as with --method {EXHAUSTIVE}"
        if not objective.is_time and chosen in MODELS:
            if method or not runs:
                raise UsageError(f"method {chosen} predicts the time, not {objective.text}", _OTHER_OBJECTIVE)
            chosen = SEARCH
        if chosen not in MODELS and not runs:
            if method:
                raise UsageError(
                    f"method {method} measures, and nothing can run here: {task.chosen.reason}",
                    "use --method volume, a machine with a GPU, or --target host to measure on the CPU",
                )
            chosen, note = (
                "volume",
                f"the program requests {wanted}, which needs measurements; nothing can run here, so the model chooses",
            )
        out[site.name] = Asked(chosen, data, note)
    return out


def _by_occupancy(task: TuningTask, method: str) -> dict[str, Asked]:
    if method:
        message = f"--objective {OCCUPANCY.text} is computed for all settings, without --method {method}"
        raise UsageError(message, "drop one of them")
    chosen = next((site for site in task.sites if site.variants), None)
    if chosen is not None:
        message = f"{chosen.name}: variants are compared by measurements, not by their occupancy"
        raise UsageError(message, f"fix it with -D {chosen.name}.{VARIANT}=..., or name other kernels with --kernel")
    return {site.name: Asked(OCCUPANCY.text) for site in task.sites}


def select_of(graph: Graph, site: Site) -> tuple[str, tuple[str, ...]]:
    """(method, data) of the kernel's `select` about tunables of the site; the method is `volume` without one."""
    program, op = graph.program, op_of(graph, site)
    tunables = {VARIANT, DEVICE} if site.variants else {own_name(d.name) for d in site.open}
    for item in program.kernel(op.kernel).selects:
        if not tunables & set(item.names) or item.method not in (*MODELS, *LEARNED):
            continue
        data = tuple(f.name for f in asked_features(program, op, item.args))
        return item.method if item.method in LEARNED else "volume", data
    return "volume", ()


def learn(
    ready: Prepared,
    family: Sequence[Site],
    asked: Mapping[str, Asked],
    samples: Samples,
    seed: int,
    model: Callable[[Case], int] | None,
) -> dict[str, Learned]:
    """What is learned of an op, or of a `family` of ops that share samples: then one regressor is trained on all of
    them, and specialised to the constants of each op.

    Only sizes count at which every setting that can be launched was measured. `model`: its choices without
    measurements, for comparison. Where ops are placed together, their times are added, so means are predicted
    (`expecting`). The held-out regret of a family omits only the samples with the same features, so
    other ops at this size are used.
    """
    first, several = family[0], len(family) > 1
    method = asked[first.name].method
    if method not in LEARNED:
        return {site.name: Learned() for site in family}
    tables = {site.name: _table(ready, site, asked[site.name], samples, several) for site in family}
    every = TrainingTable(tables[first.name].names, tuple(row for table in tables.values() for row in table.rows))
    table = every.usable
    known = table.merged
    if not table.names or len(known.rows) < FEWEST:
        missing = len(every.rows) - len(table.rows)
        lost = f" (a feature is not finite or was not computed at {missing} more)" if missing else ""
        why = f"{len(known.rows)} different sizes measured in full{lost}, {FEWEST} are needed"
        return {site.name: _fallback(method, why) for site in family}
    try:
        selector = train(method, known, seed, default=0 if first.variants else None)
        if first.variants and places_together(ready.task.program):
            device = {n: one.variant.partition(".")[0] for n, one in enumerate(ready.task.choices[first.name])}
            selector = expecting(selector, known, device, seed)
    except UsageError as error:
        return {site.name: _fallback(method, error.message) for site in family}
    untrained = {"default": [0] * len(known.rows)}
    if model is not None and len(table.rows) == len(known.rows):
        untrained["model"] = [model(row.case) for row in known.rows]
    together = f", learned from {', '.join(site.name for site in family)} together" if several else ""
    note, regrets = left_out(selector, table, seed, untrained, together)
    return {
        site.name: Learned(
            _of_op(selector, ready, site) if several else selector, (note,), regrets(tables[site.name].usable)
        )
        for site in family
    }


def _table(ready: Prepared, site: Site, asked: Asked, samples: Samples, shared: bool) -> TrainingTable:
    """The samples of an op at the sizes at which all settings were tried; one that was timed nowhere gives wrong
    results. `shared`: by all arguments of the kernel's `select`, including constants."""
    choices, own = site.choices, {c: one for c, one in samples.items() if c.site == site.name}
    timed = [cell for cell, sample in own.items() if sample.good]
    ever_timed, cases = {cell.choice for cell in timed}, {cell.case for cell in timed}

    def complete(case: Case) -> bool:
        legal = ready.at[case].fits[site.name]
        return case in cases and all(Cell(site.name, case, s) in own for s in legal if s in ever_timed)

    tried = [case for case in ready.task.cases if complete(case)]
    if shared:
        context = FeatureContext(ready.task.program, op_of(ready.task.graph, site))
        names = tuple(sym.show(argument) for argument in context.asked)
        known = {case: _arguments(context, names, ready.at[case].values) for case in tried}
    else:
        names = asked.data or features_of(ready, site, tried)
        known = {case: _features_at(ready, site, case) for case in tried}
    return tabulated(names, choices, tried, own.items(), known)


# ---- samples that ops of a kernel share ----


def alike(ready: Prepared, site: Site, asked: Mapping[str, Asked]) -> tuple[Site, ...]:
    """The ops that can share samples: the site, and those that differ from it only in arrays and in the arguments of
    the kernel's `select`. Only the site if the method predicts no times."""
    task = ready.task
    one = FeatureContext(task.program, op_of(task.graph, site))
    if not _by_arguments(one, asked[site.name]):
        return (site,)

    def own(site: Site) -> list[dict[str, Value]]:
        return [choice.own for choice in site.choices]

    def same(other: Site) -> bool:
        op = op_of(task.graph, other)
        if one.op is None or op.kernel != one.op.kernel or own(other) != own(site):
            return False
        two = FeatureContext(task.program, op)
        return _by_arguments(two, asked[other.name]) and _same_but_asked(one, two)

    return tuple(other for other in task.sites if other.name == site.name or same(other))


def _by_arguments(context: FeatureContext, asked: Asked) -> bool:
    """Whether the features of an op are the arguments of its kernel's one `select`, without code."""
    values = context.asked_values
    if asked.method != COSTS or values is None or context.kernel is None or len(context.kernel.selects) != 1:
        return False
    return all(free <= context.known for free in map(sym.free, values)) and set(_names(context)) == set(asked.data)


def _names(context: FeatureContext) -> list[str]:
    """The feature of each argument of the `select`, except constants."""
    features = offered(context.program, context.op)
    values = (v for v in context.asked_values or () if not isinstance(v, sym.Const))
    return [next(f.name for f in features.values() if f.expression == value) for value in values]


def _same_but_asked(one: FeatureContext, two: FeatureContext) -> bool:
    assert one.kernel is not None
    assert one.op is not None
    assert two.op is not None
    pairs = zip(one.kernel.formals, one.op.args, two.op.args, strict=True)
    return all(isinstance(a, Region) or a == b or formal.name in one.asked_formals for formal, a, b in pairs)


def _arguments(context: FeatureContext, names: Sequence[str], values: Mapping[str, Any]) -> dict[str, float]:
    """The values of all arguments of the kernel's `select` for an op, including constants."""
    asked = context.asked_values or ()
    return {name: SelectorFeature("", value).value(values) for name, value in zip(names, asked, strict=False)}


def _of_op(selector: Selector, ready: Prepared, site: Site) -> Selector:
    """The selector of an op with the constants of its arguments."""
    from dagc.choice.learners.cost import Cost  # loads msgspec

    assert isinstance(selector, Cost)
    context = FeatureContext(ready.task.program, op_of(ready.task.graph, site))
    values = enumerate(context.asked_values or ())
    return selector.with_fixed({i: float(v.value) for i, v in values if isinstance(v, sym.Const)}, _names(context))


def _features_at(ready: Prepared, site: Site, case: Case) -> dict[str, float]:
    """All features of the site's op that are known at a size, by name."""
    at = ready.at[case]
    return values_of(offered(ready.task.program, op_of(ready.task.graph, site)), at.values, at.constants)


def features_at_sizes(ready: Prepared) -> list[dict[str, Any]]:
    """The features of all ops at each size, for a tuned file."""
    from dagc.store.tuned import InputFacts, input_to_json  # loads msgspec, sqlite3

    out = []
    for case in ready.task.cases:
        known = {site.name: _features_at(ready, site, case) for site in ready.task.sites}
        finite = {op: {n: v for n, v in of.items() if math.isfinite(v)} for op, of in known.items()}
        out.append(input_to_json(InputFacts(dict(case.params), features=finite)))
    return out


def _fallback(method: str, why: str) -> Learned:
    return Learned(notes=(f"no {method}: {why}; other sizes use the best setting of the nearest measured size",))


def features_of(ready: Prepared, site: Site, cases: Sequence[Case]) -> tuple[str, ...]:
    """The whole scalars that the kernel's arguments and grids depend on, and the parameters that are constants of the
    program; those that differ between the sizes."""
    program, op = ready.task.program, op_of(ready.task.graph, site)
    used = {n for argument in op.args if not isinstance(argument, Region) for n in sym.free(argument)}
    for choice in {s.variant: s for s in site.choices}.values():
        one = op_under(program, op, choice)
        _, impl = kernel_of(program, one)
        env = bindings(program, one, choice)
        grid = impl.launch.grid if impl.launch is not None else ()
        used |= {n for size in grid for n in sym.free(sym.substitute(size, env))}

    def differs(name: str) -> bool:
        values = {ready.at[p].values.get(name) for p in cases}
        return None not in values and len(values) > 1

    scalars = (s.name for s in program.scalars if s.name in used and s.type is not ElementType.BOOL)
    return tuple(name for name in (*scalars, *ready.task.constants) if differs(name))


# ---- plans: whole programs, each of which is compiled by itself ---------------------------------


Data = Mapping["Case", tuple[float, ...]]


def learn_plans(task: TuningTask, method: str, samples: Samples, data: Data) -> Learned:
    """Select few plans, by rule, that are within the noise of the best at each size, and the one that is best on
    average; train the selector on their gains."""
    table, answers, notes = plan_table(task, samples, data)
    count, fewest = len(table.merged.rows), 1 if method == EXHAUSTIVE else FEWEST
    if count < fewest:
        why = f"no chooser yet: measured in full: {counted(count, 'size')} of {fewest}; use --resume"
        return Learned(notes=(*notes, why))
    try:
        selector, few = train_few(method, table, task.seed)
    except UsageError as error:
        return Learned(notes=(*notes, f"no chooser: {error.message}"))
    choices = tuple(answers[i] for i in few)
    if method == EXHAUSTIVE:
        return Learned(selector, tuple(notes), choices=choices)
    default = {"default": [answers.index(task.plans[0])] * count} if task.plans[0] in answers else {}
    note, regrets = left_out(selector, table, task.seed, default)
    return Learned(selector, (*notes, note), regrets(table), choices)


def plan_table(task: TuningTask, samples: Samples, data: Data) -> tuple[TrainingTable, tuple[Choice, ...], list[str]]:
    """The table of the plans with correct results at every size, these plans, and notes on what was skipped: cases at
    which not every legal plan was tried, or all failed. A plan that failed at any other size is excluded, so that it is
    never chosen; one that failed at an input has no time there. `data`: the features of the selector, by case."""
    at: dict[Case, dict[Choice, Sample]] = {}
    for cell, sample in samples.items():
        at.setdefault(cell.case, {})[cell.choice] = sample
    legal, notes = task.plans, []
    complete: dict[Case, dict[Choice, Sample]] = {}
    for case in sorted(at, key=lambda p: (data[p], p)):
        tried, name = sum(s in at[case] for s in legal), case.text or "as given"
        if tried < len(legal):
            notes.append(f"{name}: {tried} of {len(legal)} settings tried, skipped until --resume completes it")
        elif all(c.failure for c in at[case].values()):
            notes.append(f"{name}: no setting runs, skipped")
        else:
            complete[case] = at[case]
    every = dict.fromkeys((*legal, *(s for here in complete.values() for s in here)))
    failed = {s for p, here in complete.items() for s, c in here.items() if c.failure and not p.is_input}
    choices = tuple(s for s in every if s not in failed)
    if complete and not all(any(s in choices for s in here) for here in complete.values()):
        notes.append("no setting has correct results at every size: nothing is learned")
        complete = {}
    names = task.features[PROGRAM]
    features = {case: dict(zip(names, data[case], strict=True)) for case in complete}
    return tabulated(names, choices, complete, samples.items(), features), choices, notes


def why_plan(method: str, selector: Selector | None) -> str:
    """How a plan is chosen at a size."""
    if selector is None:
        return "the default"
    return "nearest measured size" if method == EXHAUSTIVE else selector.text


def plan_chooser_record(task: TuningTask, method: str, learned: Learned) -> dict[str, Any]:
    """The record of a selector in a tuned file."""
    assert learned.selector is not None
    return {
        "method": method, "why": why_plan(method, learned.selector), "names": list(task.plans[0]),
        "data": list(task.features[PROGRAM]), "settings": [s.own for s in learned.choices],
        "selector": learned.selector.to_json(),
    }  # fmt: skip


# ---- choosers ----


@dataclass(frozen=True, slots=True)
class ChooserInputs:
    """The inputs of choosers other than measurements. `resources`: those of the kernels compiled by nvcc; `each`: those
    of each setting."""

    ready: Prepared
    asked: Mapping[str, Asked]
    counted: Counted
    hardware: Any
    resources: Mapping[str, Resources]
    each: Mapping[str, Sequence[Resources]] = field(default_factory=dict)
    objective: Objective = TIME

    def model_of(self, op: str) -> ModelInputs:
        """Without a model for an objective that has to be measured."""
        from dagc.choice.models import ModelInputs  # loads numpy, sympy

        method = self.asked[op].method if self.objective.is_time or self.objective is OCCUPANCY else ""
        fits, points = self.counted.fits.get(op), self.counted.ranges.get(op, ())
        return ModelInputs(method, self.resources_of(op), fits, self.compiled(op), points)

    def compiled(self, op: str) -> dict[Choice, Resources]:
        """What each setting of an op is compiled to, as far as it is known."""
        return dict(zip(self.ready.task.choices[op], self.each.get(op, ()), strict=False))

    def resources_of(self, op: str) -> Resources:
        return self.resources.get(op, ASSUMED)

    def with_occupancy(self, lines: Sequence[KernelResult]) -> tuple[KernelResult, ...]:
        """The lines with the occupancy of the default and the chosen setting, where launches run on the GPU."""
        from dagc.choice.occupancy import occupancy_of  # loads sympy

        task, out = self.ready.task, list[KernelResult]()
        if task.chosen.target is Target.HOST:
            return tuple(lines)
        for line in lines:
            graph = task.graph_at(line.case)
            site = next(site for site in task.sites if site.name == line.op)
            needs = {s: needed for s, needed in self.compiled(line.op).items() if s in (line.default, line.chosen)}
            out.append(
                replace(line, held=occupancy_of(graph, site, needs, self.hardware, self.ready.at[line.case].values))
            )
        return tuple(out)


def chooser_with(
    inputs: ChooserInputs,
    ready: Prepared,
    site: Site,
    anchors: Sequence[tuple[Mapping[str, float], Choice]],
    selector: Selector | None = None,
    tried: Sequence[Tried] = (),
    case: Case | None = None,
) -> Any:
    """`ready`: with the settings that may be chosen. `tried`: the inputs of training, if something failed at one.
    `case`: for the program at this size."""
    from dagc.choice.models import site_chooser  # loads numpy, sympy

    graph = ready.task.graph if case is None else ready.task.graph_at(case)
    return site_chooser(
        graph, site, site.choices, inputs.hardware, inputs.model_of(site.name),
        anchors=anchors, selector=selector, asked=inputs.asked[site.name].data, tried=tried,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AtSizes:
    """A site's chooser; where a size changes the program, that of the program at this size."""

    chooser: Any
    others: Mapping[Case, Any]

    @classmethod
    def of(cls, task: TuningTask, make: Callable[[Case | None], Any]) -> AtSizes:
        """`make` returns the chooser of the program at a size, None: of the program as given."""
        graphs: dict[int, Any] = {}
        for case, graph in task.graphs.items():
            if case in task.cases and id(graph) not in graphs:
                graphs[id(graph)] = make(case)
        return cls(make(None), {p: graphs[id(task.graphs[p])] for p in task.cases if p in task.graphs})

    def at(self, case: Case) -> Any:
        return self.others.get(case, self.chooser)


def first_choosers(inputs: ChooserInputs) -> dict[str, AtSizes]:
    """Each site's chooser before any measurement."""
    ready = inputs.ready
    return {
        s.name: AtSizes.of(ready.task, partial(chooser_with, inputs, ready, s, (), None, ())) for s in ready.task.sites
    }


def final_choosers(
    inputs: ChooserInputs,
    fit: Mapping[str, tuple[Choice, ...]],
    samples: Samples,
    seed: int,
    guessed: Mapping[tuple[str, Case], Choice] = MappingProxyType({}),
) -> tuple[dict[str, AtSizes], dict[str, Learned]]:
    """Each site's chooser, with the measurements and the trained selector, and that selector, by op. `fit`: the
    settings that may be chosen; `guessed`: the choice of a search at sizes without measurements."""
    ready = inputs.ready
    sites = tuple(replace(site, choices=fit[site.name]) for site in ready.task.sites)
    good = replace(ready, task=replace(ready.task, sites=sites), at={p: only(at, fit) for p, at in ready.at.items()})
    right = {key: sample for key, sample in samples.items() if key[2] in fit.get(key[0], ())}
    out: dict[str, AtSizes] = {}
    learned_by_op: dict[str, Learned] = {}
    for site in sites:
        asked = inputs.asked[site.name]
        if site.name not in learned_by_op:
            family = alike(good, site, inputs.asked)
            ranked = asked.method in LEARNED and inputs.objective.is_time and len(family) == 1
            model = _model(inputs, good, site) if ranked else None
            learned_by_op |= learn(good, family, inputs.asked, right, seed, model)
        learned = learned_by_op[site.name]
        found = {case: best_choice(right, site.name, case) for case in ready.task.cases}
        bests = {case: choice for case, choice in found.items() if choice is not None}
        bests |= {p: s for (op, p), s in guessed.items() if op == site.name and p not in bests and s in fit[op]}
        anchors = [(_features_at(ready, site, p), bests[p]) for p in ready.task.cases if p in bests]
        tried = tried_at(
            right.items(), site.name, {p: _features_at(ready, site, p) for p in ready.task.cases if p in ready.at}
        )
        out[site.name] = AtSizes.of(
            ready.task, partial(chooser_with, inputs, good, site, anchors, learned.selector, tried)
        )
        learned_by_op[site.name] = replace(
            learned, notes=tuple(f"{site.name}: {note}" for note in (asked.note, *learned.notes) if note)
        )
    return out, learned_by_op


def _model(inputs: ChooserInputs, ready: Prepared, site: Site) -> Callable[[Case], int] | None:
    """The choice of the volume model at each case without measurements; None if it has none."""
    from dagc.choice.models import ModelInputs, site_chooser  # loads numpy, sympy

    def make(case: Case | None) -> Chooser:
        graph = ready.task.graph if case is None else ready.task.graph_at(case)
        by_volume = ModelInputs(resources=inputs.resources_of(site.name))
        return site_chooser(graph, site, site.choices, inputs.hardware, by_volume)

    task = AtSizes.of(ready.task, make)
    if task.chooser.model is None:
        return None
    return lambda case: int(task.at(case).choose(ready.at[case].values))


# ---- the printed lines ----


def grade(task: TuningTask, cells: int, counted: Counted, asked: Mapping[str, Asked]) -> str:
    if task.chosen.target is Target.HOST:
        return "host target: kernels run on the CPU, and their times do not apply to a GPU"
    if counted.text:
        return f"with ncu: {counted.text}"
    if not cells:
        return "without measurement: by the model alone"
    ranked = any(a.method in MODELS for a in asked.values())
    what = "the model's best" if ranked else "legal settings"
    return f"with a GPU: {what} were measured"


def grade_of_plans(task: TuningTask) -> str:
    host = task.chosen.target is Target.HOST
    return "host target: programs run on the CPU, and their times do not apply to a GPU" if host else "with a GPU"


def methods(asked: Mapping[str, Asked]) -> str:
    """`volume`, or `knn (fill), volume (gemm)` if kernels differ."""
    ops: dict[str, list[str]] = {}
    for op, a in asked.items():
        ops.setdefault(a.method, []).append(op)
    return next(iter(ops)) if len(ops) == 1 else ", ".join(f"{m} ({' '.join(o)})" for m, o in ops.items())


def line_of(
    ready: Prepared, site: Site, case: Case, chooser: Any, samples: Samples, learned: Learned,
    sure: float = math.nan,
) -> KernelResult:  # fmt: skip
    """`chooser`: that of the program at this size. `sure`: a search's probability that nothing is faster."""
    sizes = ready.at[case].values
    index = chooser.choose(sizes)
    guess = chooser.model is None and chooser.selector is None and not chooser.anchors
    why = GUESS if guess else chooser.why(sizes, index)
    return result_at(site.name, case, (site.default, chooser.choices[index]), samples, why, learned, sure)


def result_at(
    op: str,
    case: Case,
    choices: tuple[Choice, Choice],
    samples: Samples,
    why: str,
    learned: Learned,
    sure: float = math.nan,
) -> KernelResult:
    """The result of a site at a case. `choices`: the default and the chosen one."""
    best, unknown = best_choice(samples, op, case), Sample()
    default, chosen = (samples.get(Cell(op, case, choice), unknown).value for choice in choices)
    least = samples[Cell(op, case, best)].value if best is not None else math.nan
    return KernelResult(
        op, case, *choices, best, default, chosen, least, why, case in learned.left_out,
        learned.left_out.get(case, math.nan), sure,
    )  # fmt: skip

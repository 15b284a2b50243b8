"""Models that rank settings: the rational program of each method, and the values of everything but sizes and block; and
the choosers of launch parameters, which use them.

volume     data volumes from address expressions (dagc.perf.volume), constants of the target GPU
rational   MWP-CWP (dagc.perf.mwp_cwp): counts from the kernel's text, or fitted to hardware counters
occupancy  warps that a multiprocessor could hold in addition (dagc.perf.occupancy), for the objective of this name
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dagc.base.errors import counted
from dagc.base.resources import names_in
from dagc.base.sample import OCCUPANCY
from dagc.choice.choose import Anchor, Chooser, Tried, avoided_of, parameters_of
from dagc.choice.feature import offered
from dagc.choice.legal import block_of, op_of, text_and_grid
from dagc.choice.selector import Extent, Selector
from dagc.choice.types import MODELS, RANKED, Site
from dagc.cuda.ptx import ASSUMED, Instructions, Resources
from dagc.cuda.syntax import NotUnderstood
from dagc.ir.choice import AS_WRITTEN, FORM, Choice
from dagc.ir.plan import AXES
from dagc.ir.program import Graph, KernelOp, Program
from dagc.perf.algebra import one_of, specialise
from dagc.perf.fit import Fitted
from dagc.perf.geometry import launchable_program, parameter_of, read_accesses, tunable
from dagc.perf.hardware import Hardware
from dagc.perf.mwp_cwp import counted_program, covered, machine_values, op_program
from dagc.perf.occupancy import limits_of_op, op_occupancy
from dagc.perf.program import ParameterKind, RationalProgram
from dagc.perf.volume import calibration_of, volume_program


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of the model of a kernel besides its text. `method`: one of RANKED, or a search strategy (which uses the
    volume model with its measurements); any other method has no model. `resources`: of the compiled kernel. `fits`:
    counts for `rational`, fitted to hardware counters. `each`: for `occupancy`, the resources of each setting.
    `points`: the ranges of sizes at the points of the fits; without them, those of the parameters of the functions."""

    method: str = "volume"
    resources: Resources = ASSUMED
    fits: Mapping[str, Fitted] | None = None
    each: Mapping[Choice, Resources] = field(default_factory=dict)
    points: tuple[tuple[str, float, float], ...] = ()


def whole_model(graph: Graph, site: Site, inputs: ModelInputs) -> RationalProgram:
    """A launch's time in cycles (of `occupancy`, warps), in sizes, block, registers (which stay open) and the GPU.

    Raises NotUnderstood if counts are needed from a kernel's text that cannot be read.
    """
    return _of_every_form(graph, site, lambda op: _model(graph, site, op, inputs))


def _model(graph: Graph, site: Site, op: KernelOp, inputs: ModelInputs) -> RationalProgram:
    """The model of an op with the values of its forms."""
    if inputs.method == OCCUPANCY.text:
        return op_occupancy(graph.program, op)
    resources = replace(inputs.resources, instructions=_instructions(graph, site, op, inputs.resources))
    if inputs.method == "volume":
        return volume_program(graph.program, op, resources=resources)
    if inputs.fits:
        return counted_program(graph.program, op, inputs.fits, _barriers(graph, site), shared=inputs.resources.shared)
    return op_program(graph.program, op, resources=resources)


def _of_every_form(graph: Graph, site: Site, make: Callable[[KernelOp], RationalProgram]) -> RationalProgram:
    """What `make` gives for an op with the forms of a setting, for all settings of a site. The kernel as written stands
    for forms whose text cannot be read."""
    op = op_of(graph, site)
    choices = site.choices or site.every
    every = dict.fromkeys(tuple((n, v) for n, v in c.own.items() if n.startswith(FORM)) for c in choices)
    plain = tuple((n, AS_WRITTEN) for n, _ in next(iter(every)))
    out, known = {}, dict[Hashable, RationalProgram]()
    for forms in (plain, *(forms for forms in every if forms != plain)):
        one = replace(op, tunables=tuple({**dict(op.tunables), **dict(forms)}.items()))
        text = text_and_grid(graph.program, one)
        with suppress(*(() if forms == plain else (NotUnderstood,))):
            known[text] = known.get(text) or make(one)
            out[tuple((tunable(name), int(value)) for name, value in forms)] = known[text]
    return one_of(out, [parameter_of(tunable(name).name) for name, _ in plain])


def _instructions(graph: Graph, site: Site, op: KernelOp, resources: Resources) -> Instructions | None:
    """The instructions of the compiled kernel, which is the one as written, in terms of the text of `op`: as many for
    each of its loads and stores, also where these are in a loop that a form adds."""
    plain, counted = op_of(graph, site), resources.instructions
    forms = [n for n, v in op.tunables if n.startswith(FORM) and v != AS_WRITTEN]
    if counted is None or not forms:
        return counted
    written = replace(plain, tunables=tuple((n, AS_WRITTEN if n in forms else v) for n, v in plain.tunables))
    before, now = (_depths(graph, one) for one in (written, op))
    deeper = min(now, default=0) > min(before, default=0)
    once = counted.once / max(1, before.count(0))
    return replace(counted, once=once * now.count(0), loops=(once, *counted.loops) if deeper else counted.loops)


def _depths(graph: Graph, op: KernelOp) -> list[int]:
    """The number of loops around each load and store of a text."""
    return [len(a.loops) for a in read_accesses(graph.program, op).accesses if not a.shared]


def _barriers(graph: Graph, site: Site) -> int:
    """The number of barriers in the kernel's text; 0 if it cannot be read."""
    try:
        return len(read_accesses(graph.program, op_of(graph, site)).barriers)
    except NotUnderstood:
        return 0


def doubts(graph: Graph, site: Site) -> tuple[str, ...]:
    """The assumptions of a model of the kernel's text; empty without such a model."""
    try:
        return read_accesses(graph.program, op_of(graph, site)).notes
    except NotUnderstood:
        return ()


def guessed_iterations(graph: Graph, site: Site) -> int:
    """Whether a model of the kernel's text guesses a number of iterations: 1 where a bound is loaded, 2 where data end
    a loop in another way, else 0."""
    try:
        return read_accesses(graph.program, op_of(graph, site)).guessed
    except NotUnderstood:
        return 0


def ranking_model(graph: Graph, site: Site, inputs: ModelInputs, hardware: Hardware) -> RationalProgram:
    """`whole_model` with the constants of the GPU; sizes and the block remain."""
    whole = whole_model(graph, site, inputs)
    if inputs.method == OCCUPANCY.text:
        return specialise(whole, limits_of_op(hardware))
    values: dict[str, int | float] = {"registers": inputs.resources.registers}
    rational = inputs.method == "rational"
    values |= machine_values(hardware) if rational else hardware.parameters() | calibration_of(hardware)
    wanted = {p.name for p in whole.parameters}
    return specialise(whole, {n: v for n, v in values.items() if n in wanted})


# ---- choosers ----


def whole_parameters(program: Program, names: Iterable[str]) -> frozenset[str]:
    """The names among these that are integer parameters of the program, which are constants in it."""
    whole = {p.name for p in program.params if type(p.value) is int}
    return frozenset(whole & set(names))


def _sizes_among(program: Program, names: set[str]) -> set[str]:
    """Integer scalars: the features of a chooser with measured bests only."""
    return {s.name for s in program.scalars if s.type.is_integer} & names


@dataclass(frozen=True, slots=True)
class _Programs:
    """The rational programs of an op (time of a launch, whether it can be launched), and a note."""

    model: RationalProgram | None
    launchable: RationalProgram | None
    note: str


BY_VOLUME = ModelInputs()


def site_chooser(
    graph: Graph,
    site: Site,
    choices: Sequence[Choice],
    hardware: Hardware,
    model: ModelInputs = BY_VOLUME,
    *,
    anchors: Sequence[tuple[Mapping[str, float], Choice]] = (),
    selector: Selector | None = None,
    asked: Sequence[str] = (),
    tried: Sequence[Tried] = (),
) -> Chooser:
    """The chooser of a site's launch parameters. `anchors`: features at a measured size, and the setting that was best.
    `selector`: its labels are indices of `choices`. `asked`: features that determine the nearest measured variant if
    there is no selector. `tried`: the inputs of training, if something failed at one.

    If the kernel's text cannot be read, or the model needs values that are not known when the program runs, the chooser
    has no model. Measured sizes that lack a feature are skipped. `note` reports both.
    """
    op, program = op_of(graph, site), graph.program
    features = offered(program, op)
    columns = {} if site.variants else _columns(graph, site, choices, model)
    programs = _programs(graph, site, hardware, model)
    learned = set(selector.data if selector is not None else ())
    unknown = sorted(parameters_of(programs.model, programs.launchable) - set(columns) - set(features))
    if unknown:
        programs = _Programs(
            None, None, f"no model: it depends on {', '.join(unknown)}, which is not known before the dag runs"
        )
    data = _data(programs) | learned
    programs = replace(programs, note="; ".join(filter(None, (programs.note, _without(data & set(features), anchors)))))
    measured = {n for at, _ in anchors for n in at}
    data |= whole_parameters(program, measured)
    names = sorted(data or (site.variants and set(asked) & measured) or _sizes_among(program, measured))
    used = parameters_of(programs.model, programs.launchable)
    placed = _placed(anchors, names, choices)
    launchable = programs.launchable
    return Chooser(
        replace(site, choices=tuple(choices)), tuple(features[n] for n in names),
        tuple((n, tuple(v)) for n, v in columns.items() if n in used), programs.model,
        launchable if launchable is not None and launchable.parameters else None, placed, selector,
        _extent(placed, names, model if programs.model is not None else BY_VOLUME), programs.note,
        avoided_of(names, choices, tried),
    )  # fmt: skip


def _extent(placed: Sequence[Anchor], names: Sequence[str], model: ModelInputs) -> Extent:
    """The measured range of each feature; with functions that were fitted, that of their points."""
    measured = Extent.of(dict(zip(names, anchor.data, strict=True)) for anchor in placed)
    own = tuple(one for one in model.points or covered(model.fits or {}) if one[0] in names)
    return Extent((*own, *(one for one in measured.ranges if one[0] not in {name for name, _, _ in own})))


def _without(names: set[str], anchors: Sequence[tuple[Mapping[str, float], Choice]]) -> str:
    """A note on measured sizes that lack one of these features: they are not anchors."""
    sizes = [{n for n in names if n not in at} for at, _ in anchors]
    lacking = sorted(set().union(*sizes))
    if not lacking:
        return ""
    return f"{counted(sum(map(bool, sizes)), 'measured size')} skipped: not known there: {', '.join(lacking)}"


def _placed(
    anchors: Sequence[tuple[Mapping[str, float], Choice]], names: Sequence[str], choices: Sequence[Choice]
) -> tuple[Anchor, ...]:
    """The measured points at which all of these features are known and finite."""
    numbers = list(choices)
    return tuple(
        dict.fromkeys(
            Anchor(tuple(float(at[n]) for n in names), numbers.index(best))
            for at, best in anchors
            if all(n in at and math.isfinite(at[n]) for n in names)
        )
    )


def _columns(
    graph: Graph, site: Site, choices: Sequence[Choice], inputs: ModelInputs = BY_VOLUME
) -> dict[str, list[float]]:
    """Parameters of the models that depend on the setting: its block, the tunables that are not a dimension of the
    block, and what it was compiled to."""
    op = op_of(graph, site)
    blocks = [block_of(graph.program, op, s) for s in choices]
    values = [{**dict(op.tunables), **s.own} for s in choices]
    needs = [inputs.each.get(s, inputs.resources) for s in choices]
    return {
        "registers": [float(r.registers) for r in needs],
        "static_shared": [float(r.shared) for r in needs],
        **{f"blockDim_{a}": [float(b[i]) for b in blocks] for i, a in enumerate(AXES)},
        "log2_threads": [math.log2(b[0] * b[1] * b[2]) for b in blocks],
        **{tunable(name).name: [float(v[name]) for v in values] for name, _ in op.tunables},
    }


def _programs(graph: Graph, site: Site, hardware: Hardware, inputs: ModelInputs) -> _Programs:
    model = launchable = None
    note = ""
    if site.variants:  # each model describes one kernel
        return _Programs(None, None, "")
    inputs = replace(inputs, method="volume") if inputs.method in names_in("lab/strategies") else inputs
    try:
        launchable = _on(hardware, _of_every_form(graph, site, lambda op: launchable_program(graph.program, op)))
        if inputs.method in RANKED:
            model = ranking_model(graph, site, inputs, hardware)
            note = "; ".join(() if inputs.fits or inputs.method not in MODELS else doubts(graph, site))
    except NotUnderstood as error:
        note = f"no model: {error.message}"
    except RecursionError:
        return _Programs(None, None, "no model: the kernel's text is nested too deeply")
    return _Programs(model, launchable, note)


def _on(hardware: Hardware, program: RationalProgram) -> RationalProgram:
    """The program with the limits of a GPU."""
    limits = {p.name for p in program.parameters if p.kind is ParameterKind.HARDWARE}
    return specialise(program, {n: v for n, v in hardware.parameters().items() if n in limits})


def _data(programs: _Programs) -> set[str]:
    both = (p for p in (programs.model, programs.launchable) if p is not None)
    return {p.name for program in both for p in program.parameters if p.kind is ParameterKind.DATA}

"""What `dagc tune --show` prints: rational programs, what choosers have learned, and the occupancy of a program's
launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import UsageError, counted
from dagc.base.files import scratch_directory
from dagc.build.toolchain import choose_target
from dagc.choice.choose import MARGIN, emitted
from dagc.choice.legal import launched, legal_settings, open_sites
from dagc.choice.types import MODELS, Case
from dagc.cuda.syntax import NotUnderstood
from dagc.ir.choice import PROGRAM
from dagc.ir.plan import FAR
from dagc.ir.program import KernelOp
from dagc.perf import chart
from dagc.perf.chart import Chart, FlowBox
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.hardware import Hardware, load_hardware
from dagc.stages.program import ProgramText, load_graph, read
from dagc.study.build import assumed, compiled_resources, most_of, of_settings
from dagc.study.plans import has_plans, plan_chooser
from dagc.study.results import aligned, minimised
from dagc.study.task import TuningTask, limits_of, plan_label
from dagc.study.tuned import check_tuned, choosers_of

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.choice.types import Site
    from dagc.ir.program import Graph
    from dagc.perf.fit import Fitted
    from dagc.perf.program import RationalProgram
    from dagc.store.tuned import Tuned


FORMATS = ("text", "latex", "c", "dot", "svg")
OCCUPANCY = "occupancy"


def show(
    path: str | Path,
    kernel: str,
    format: str = "text",
    gpu: str | None = None,
    defines: Any = None,
    tuned: str | Path | None = None,
    method: str = "",
) -> str:
    """The rational program of a kernel's launch time, or of the occupancy (`kernel` is "occupancy"); with a `tuned`
    file what was learned of an op, of the ops of a kernel, or of the plans ("program").

    As `text`, `latex` or `c`; as a flow chart in `dot` or `svg`. `c` is the chooser. `method`: `volume` or `rational`
    (MWP-CWP). With a `gpu`, the program of the occupancy is that of this GPU, and `text` has the values of the settings
    of all kernels. Raises UsageError.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format}", f"one of: {', '.join(FORMATS)}")
    if kernel == OCCUPANCY:
        if tuned is not None:
            raise UsageError(f"{OCCUPANCY} is not learned: {tuned} has nothing on it", "drop -o")
        return _occupancy(path, format, gpu, defines)
    if method and method not in MODELS:
        raise UsageError(f"method {method} has no rational program", f"one of: {', '.join(MODELS)}")
    graph = load_graph(path, defines)
    if tuned is not None:
        if method:
            raise UsageError(f"{tuned} has a method of its own", f"drop --method {method}, or -o")
        return _learned(read(path, defines), kernel, tuned, format)
    if kernel == PROGRAM:
        raise UsageError("the choice among plans has no model: it is learned", "name the tuned file: -o FILE")
    site = open_sites(graph, (kernel,))[0]
    if format == "c":
        return _chooser_source(graph, site, gpu or "h200", method or "volume")
    return printed(_model(graph, site, method or "volume"), format)


def printed(program: RationalProgram, format: str) -> str:
    """A rational program in one of FORMATS."""
    from dagc.perf.text import to_flow, to_flow_svg, to_latex, to_text  # loads sympy

    printers: dict[str, Callable[[Any], str]] = {
        "text": to_text, "latex": to_latex, "dot": to_flow, "svg": to_flow_svg,
        "c": lambda program: HELPERS + to_c(program, f"dagc_{program.name}"),
    }  # fmt: skip
    return printers[format](program)


def _model(graph: Graph, site: Site, method: str) -> RationalProgram:
    from dagc.choice.models import ModelInputs, whole_model  # loads numpy, sympy

    try:
        return whole_model(graph, site, ModelInputs(method))
    except NotUnderstood as error:
        raise UsageError(f"{error.message}, so {site.name} has no model", "tune it with --method exhaustive") from None
    except RecursionError:
        message = f"{site.name}: the kernel's text is nested too deeply to be read"
        raise UsageError(message, "tune it with --method exhaustive") from None


# ---- occupancy ----


def _occupancy(path: str | Path, format: str, gpu: str | None, defines: Any) -> str:
    """The flow chart as published; for a GPU the exact program, and as text its values for the program's launches."""
    from dagc.perf.algebra import specialise  # loads sympy
    from dagc.perf.occupancy import limits_of, occupancy_program  # loads sympy

    if gpu is None:
        return printed(occupancy_program(plain=True), format)
    hardware = load_hardware(gpu)
    if format == "text":
        return _occupancies(path, hardware, defines)
    return printed(specialise(occupancy_program(), limits_of(hardware)), format)


def _occupancies(path: str | Path, hardware: Hardware, defines: Any) -> str:
    """A line for each setting of each kernel on the GPU, from what nvcc compiles for it."""
    from dagc.choice.occupancy import demand_of, occupancy_of  # loads sympy

    task = _every_launch(path, hardware, defines)
    with scratch_directory("dagc-occupancy-") as folder:
        compiled = compiled_resources(task, folder)
    each = of_settings(task, compiled)
    text = [f"{hardware.name} ({hardware.arch}): a multiprocessor holds {_words(hardware)}"]
    rows, unknown = [], []
    for site in task.sites:
        resources = dict(zip(site.choices, each[site.name], strict=True))
        found = occupancy_of(task.graph, site, resources, hardware, {})
        for choice, one in found.items():
            demand = demand_of(task.graph, site, choice, resources[choice], {})
            assert demand is not None
            needs = (str(demand.threads), str(demand.registers), str(demand.shared))
            holds = (str(one.blocks), str(one.warps), f"{one.share:.1%}", one.limit)
            rows.append((site.name, choice.in_words or "as written", *needs, *holds))
        unknown += [site.name] if len(found) < len(resources) else []
    titles = ("kernel", "setting", "threads", "registers", "shared B", "blocks", "warps", "occupancy", "limited by")
    text += aligned({title: [row[i] for row in rows] for i, title in enumerate(titles)})
    text += [f"note: {note}" for note in assumed(task, most_of(task, compiled))]
    text += [f"note: {op}: settings are left out whose block or shared memory a size determines" for op in unknown]
    return "\n".join((*text, ""))


def _words(hardware: Hardware) -> str:
    from dagc.perf.occupancy import limits_of  # loads sympy

    limits = limits_of(hardware)
    of = f"{limits['Rmax']} registers and {limits['Zmax']} bytes of shared memory"
    return f"{limits['Bmax']} blocks, {limits['Wmax']} warps, {of}"


def _every_launch(path: str | Path, hardware: Hardware, defines: Any) -> TuningTask:
    """A task of all kernels of a program that dagc launches on the GPU, with their legal settings. Raises UsageError if
    there is none."""
    from dagc.choice.occupancy import is_launched  # loads sympy

    chosen = choose_target("cuda", hardware.arch, "of --gpu")
    text, _ = read(path, defines).on(chosen.target)
    text = text.with_open_devices()
    graph = text.graph()
    sites = []
    for site in launched(graph):
        legal = legal_settings(graph, site, limits_of(chosen))
        choices = tuple(c for c in legal if is_launched(graph, site, c))
        sites += [replace(site, choices=choices)] if choices else []
    if not sites:
        raise UsageError(
            f"{graph.program.name}: all code for the GPU starts its kernels itself, so their blocks are not known",
            "write `launch grid(...) block(...)` in a kernel",
        )
    here = Case(())
    return TuningTask(text, chosen, graph, tuple(sites), (here,), here)


# ---- choosers ----


def _chooser_source(graph: Graph, site: Site, gpu: str, method: str) -> str:
    """The C code of a kernel's chooser by the model alone."""
    from dagc.choice.models import ModelInputs, site_chooser  # loads numpy, sympy

    choices = legal_settings(graph, site, {"max_threads_per_block": 1024})
    return emitted([site_chooser(graph, site, choices, load_hardware(gpu), ModelInputs(method))]).source


# ---- what was learned ----


def _learned(text: ProgramText, name: str, path: str | Path, format: str) -> str:
    """The choosers of a tuned file for an op, for the ops of a kernel, or for the plans."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    tuned = load_tuned(path)
    choosers = _choosers(replace(text.with_open_devices(tuned.placed), forms=tuned.forms).graph(), name, tuned)
    if format == "c":
        return emitted(choosers).source
    parts: list[Part] = []
    for chooser in choosers:
        stored = tuned.choosers[chooser.op]
        programs = chooser.op == PROGRAM
        answers = [plan_label(c) if programs else c.in_words for c in chooser.choices]
        of = "the CPU (target host)" if tuned.facts.target == "host" else tuned.facts.gpu or tuned.facts.arch
        what = counted(len(answers), "plan" if programs else "setting")
        parts.append(
            (FlowBox((f"{chooser.op}: {what}, method {stored.method}, for {tuned.facts.objective} on {of}",)),)
        )
        parts += [_times(tuned)] if programs else []
        kernel = tuned.kernel_choosers.get(chooser.op)
        parts += learned(chooser, answers, kernel.fits if kernel is not None else {})
    return _together(parts, name, format)


def _times(tuned: Tuned) -> Part:
    """What each plan took at each case, the fastest first; or why it failed."""
    at: dict[Case, list[tuple[float, str]]] = {}
    objective = minimised(tuned)
    for cell, sample in tuned.samples:
        if cell.site == PROGRAM:
            label, value = plan_label(cell.choice), sample.value if not sample.failure else math.inf
            took = objective.show(value) if not sample.failure else sample.failure
            at.setdefault(cell.case, []).append((value, f"  {took} {label}"))
    ordered = sorted(at.items(), key=lambda pair: [(name, str(type(v)), v) for name, v in pair[0].params])
    lines = [line for case, of in ordered for line in (f"{case.text}:", *(text for _, text in sorted(of)))]
    return (FlowBox(("measured:", *lines)),)


def _choosers(graph: Graph, name: str, tuned: Tuned) -> list[Chooser]:
    if name in (PROGRAM, graph.program.name) and has_plans(tuned):
        check_tuned(tuned, graph.program, None)
        return [plan_chooser(graph.program, tuned)]
    every = (o.op for o in graph.ops if isinstance(o.op, KernelOp))
    ops = {op.site for op in every if name in (op.site, op.base, op.kernel)}
    choosers = [c for c in choosers_of(graph, tuned) if c.op in ops] if ops & tuned.kernel_choosers.keys() else []
    if not choosers:
        known = ", ".join(tuned.choosers)
        raise UsageError(f"{tuned.path}: {name} was not tuned", f"name what it has ({known}), or leave out -o")
    return choosers


def _together(parts: Sequence[Part], name: str, format: str) -> str:
    """Charts and programs one after the other, as one text or one flow chart."""
    from dagc.perf import text  # loads sympy

    if format in ("text", "latex"):
        of_chart, of_program = (chart.to_text, text.to_text) if format == "text" else (chart.to_latex, text.to_latex)
        return "".join(of_chart(p) if isinstance(p, tuple) else of_program(p) for p in parts)
    whole: Chart = ()
    for part in parts:
        if isinstance(part, tuple):
            whole += part
        else:
            whole += (FlowBox((f"{part.name}: {part.source}",)), *text.chart_of(part))
    return {"dot": chart.to_dot, "svg": chart.to_svg}[format](whole, name, "choice")


Part: TypeAlias = "Chart | RationalProgram"


def learned(chooser: Chooser, answers: Sequence[str], fits: Mapping[str, Fitted]) -> Iterator[Part]:
    """The parts in the order in which the chooser asks them. `answers`: the text of each choice, by number; `fits`: the
    functions of the model that were fitted to hardware counters."""
    measured = [f"  {_at(chooser.data, anchor.data)}: {answers[anchor.chosen]}" for anchor in chooser.anchors]
    if measured:
        yield (FlowBox((f"the best at {counted(len(measured), 'measured case')}:", *measured)),)
    at_others = "elsewhere " if measured else ""
    if chooser.selector is not None:
        how = f"{chooser.selector.text}, by {', '.join(chooser.selector.data)}"
        yield (FlowBox((f"{at_others}{how}:",)), *chooser.selector.chart(answers))
    elif chooser.model is not None:
        keeps = f", unless that of the nearest measured case is within {MARGIN:.0%}" if measured else ""
        yield (FlowBox((f"{at_others}the least value of {chooser.model.name}{keeps}:",)),)
        if fits:
            from dagc.perf.mwp_cwp import function_of  # loads numpy, sympy

            yield from (function_of(name, fitted) for name, fitted in fits.items())
        yield chooser.model
    elif measured:
        yield (FlowBox(("elsewhere that of the nearest measured case",)),)
    else:
        yield (FlowBox((f"always {answers[0]}",)),)
    limits = _limits(chooser, answers)
    if limits:
        yield (FlowBox(limits),)


def _limits(chooser: Chooser, answers: Sequence[str]) -> tuple[str, ...]:
    """Where the default is taken, or an answer avoided; and the measured ranges."""
    out = [f"covered: {chooser.extent.text}"] if chooser.extent.ranges else []
    if chooser.guarded:
        out.append(f"the default, {answers[0]}, where a feature is {FAR} times outside of these ranges")
    if chooser.least_sure > 0:
        out.append(f"the default, {answers[0]}, where the confidence is below {chooser.least_sure:.0%}")
    avoided = ", ".join(answers[i] for i in chooser.avoided.ever)
    return (*out, f"not near the inputs at which it failed: {avoided}") if avoided else tuple(out)


def _at(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} = {value:.12g}" for name, value in zip(names, values, strict=True)) or "as given"

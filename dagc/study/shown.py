"""What `dagc tune --show` prints: rational programs, and the occupancy of a program's launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.base.files import scratch_directory
from dagc.build.toolchain import choose_target
from dagc.choice.choose import emitted
from dagc.choice.legal import launched, legal_settings, open_sites
from dagc.choice.types import MODELS, Case
from dagc.cuda.syntax import NotUnderstood
from dagc.ir.program import KernelOp
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.hardware import Hardware, load_hardware
from dagc.stages.program import load_graph, read
from dagc.study.build import assumed, compiled_resources, most_of, of_settings
from dagc.study.results import aligned
from dagc.study.task import TuningTask, limits_of
from dagc.study.tuned import choosers_of

if TYPE_CHECKING:
    from dagc.choice.types import Site
    from dagc.ir.program import Graph
    from dagc.perf.program import RationalProgram

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
    """The rational program of a kernel's launch time, or of the occupancy (`kernel` is "occupancy").

    As `text`, `latex` or `c`; as a flow chart in `dot` or `svg`. `c` is the chooser: that of the `tuned` file if one is
    given, with measurements and the trained selector. `method`: `volume` or `rational` (MWP-CWP). With a `gpu`, the
    program of the occupancy is that of this GPU, and `text` has the values of the settings of all kernels. Raises
    UsageError, NotUnderstood.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format}", f"one of: {', '.join(FORMATS)}")
    if kernel == OCCUPANCY:
        return _occupancy(path, format, gpu, defines)
    if method and method not in MODELS:
        raise UsageError(f"method {method} has no rational program", f"one of: {', '.join(MODELS)}")
    graph = load_graph(path, defines)
    if format == "c" and tuned is not None:
        return _tuned_source(graph, kernel, tuned)
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
        for setting, one in found.items():
            demand = demand_of(task.graph, site, setting, resources[setting], {})
            assert demand is not None
            needs = (str(demand.threads), str(demand.registers), str(demand.shared))
            holds = (str(one.blocks), str(one.warps), f"{one.share:.1%}", one.limit)
            rows.append((site.name, setting.in_words or "as written", *needs, *holds))
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

    settings = legal_settings(graph, site, {"max_threads_per_block": 1024})
    return emitted([site_chooser(graph, site, settings, load_hardware(gpu), ModelInputs(method))]).source


def _tuned_source(graph: Graph, name: str, tuned: str | Path) -> str:
    """The C code of a tuned file's choosers for an op, or for the ops of a kernel."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    every = (o.op for o in graph.ops if isinstance(o.op, KernelOp))
    ops = {op.site for op in every if name in (op.site, op.base, op.kernel)}
    choosers = [c for c in choosers_of(graph, load_tuned(tuned)) if c.op in ops]
    if not choosers:
        raise UsageError(f"{tuned}: {name} was not tuned", "tune it, or leave out -o")
    return emitted(choosers).source

"""What tuning found, in use: choosers for `dagc compile --launch`, settings for `dagc explore`, `dagc tune --show`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import UsageError, counted
from dagc.choice.types import settings_text
from dagc.recipes.program import load_graph
from dagc.recipes.tune_choosers import chooser_of
from dagc.recipes.tune_found import GUESS
from dagc.recipes.tune_records import check_compiled

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.choice.types import Unit
    from dagc.ir.graph import Graph
    from dagc.ir.program import Program
    from dagc.lab.configurations import Configured
    from dagc.recipes.options import ExploreOptions
    from dagc.recipes.tune_prepare import Plan
    from dagc.report.display import Display
    from dagc.store.results import Results
    from dagc.store.settings import Fixed, Kernels
    from dagc.store.tuned import Tuned
    from dagc.store.tuned_schema import KernelChooser


def choosers_of(graph: Graph, tuned_path: str | Path, arch: str | None = None) -> tuple[Any, ...]:
    """The choosers of a tuned file, for a program's graph. `arch`: what is compiled for (None: do not compare).

    Raises UsageError where the file was tuned for another text of the program or another GPU.
    """
    from dagc.choice.legal import units
    from dagc.store.tuned import load_tuned

    tuned = load_tuned(tuned_path)
    check_tuned(tuned, tuned_path, graph.program, arch)
    check_compiled(tuned_path, tuned, graph.program)
    kept = tuned.kernel_choosers
    ops = tuple(kept)
    if not ops:
        raise UsageError(
            f"{tuned_path}: chooses among whole programs, not launch settings of kernels",
            "use it with `dagc compile --launch`; tune kernels with `dagc tune --kernel`",
        )
    _check_open(graph, ops, tuned_path)
    return tuple(_chooser_of(graph, unit, kept[unit.op], tuned_path) for unit in units(graph, ops))


def _check_open(graph: Graph, ops: tuple[str, ...], path: str | Path) -> None:
    from dagc.ir.launching import is_open
    from dagc.ir.program import KernelOp

    found = {o.op.base for o in graph.ops if isinstance(o.op, KernelOp) and is_open(graph.program, o.op)}
    for op in ops:
        if op not in found:
            raise UsageError(
                f"{path}: chooses for op `{op}`, of which nothing is open", f"drop -D {op}.NAME=..., or tune again"
            )


def _chooser_of(graph: Graph, unit: Unit, kept: KernelChooser, path: str | Path) -> Any:
    """Raises UsageError where what was kept is of a newer dagc, or no longer of the program's choices and sizes."""
    from dagc.recipes.options import METHODS

    if kept.method not in METHODS:
        raise UsageError(f"{path}: made by a newer dagc (method {kept.method})", "update dagc, or tune again")
    _check_names(graph, unit, kept, path)
    values = {t.name: t.values for t in unit.tunables}
    for setting in kept.settings:
        if [n for n, _ in setting] != list(values) or any(v not in values[n] for n, v in setting):
            raise UsageError(
                f"{path}: `{unit.op}` was tuned with {settings_text(setting)}, which is not among its choices",
                f"drop -D {unit.op}.NAME=..., or tune again into another file",
            )
    anchors = [(dict(zip(kept.data, a.data, strict=True)), kept.settings[a.chosen]) for a in kept.anchors]
    return chooser_of(
        graph, unit, kept.settings, kept.hardware, taken=kept.resources, anchors=anchors, method=kept.method,
        fits=kept.fits, selector=kept.selector,
    )  # fmt: skip


def _check_names(graph: Graph, unit: Unit, kept: KernelChooser, path: str | Path) -> None:
    """Names of the file that come into code are those of the program: scalars, and parameters, which are constants."""
    from dagc.choice.choose import constants_of
    from dagc.lab.plans import whole_scalars
    from dagc.perf.counted import BLOCK, COUNTS

    params = (n for n, _ in constants_of(graph.program, (p.name for p in graph.program.params)))
    sizes = {*whole_scalars(graph.program), *params, "rank", "ranks"}
    asked = {*kept.data, *(kept.selector.data if kept.selector is not None else ())} - sizes
    asked |= {name for fit in kept.fits.values() for name in fit.names} - sizes - set(BLOCK)
    if asked:
        raise UsageError(
            f"{path}: `{unit.op}` is chosen by {', '.join(sorted(asked))}, no size of the program",
            "tune again into another file",
        )
    if kept.fits and set(kept.fits) != set(COUNTS):
        raise UsageError(f"{path}: the fitted counts of `{unit.op}` are not all there", "tune again into another file")


def check_tuned(tuned: Tuned, path: str | Path, program: Program, arch: str | None) -> None:
    """Raises UsageError where a tuned file is of another text or GPU, or has no chooser. `arch`: of the GPU that is
    compiled for; None: for none, or do not compare."""
    from dagc.recipes.runs import program_record

    now = program_record(program)
    if tuned.program.name != now.name:
        raise UsageError(f"{path}: tuned for program {tuned.program.name}, this is {now.name}", "tune this program")
    if sorted(text for _, text in tuned.program.sources) != sorted(text for _, text in now.sources):
        raise UsageError(f"{path}: tuned for another text of {tuned.program.name}", "tune the program again")
    if arch is not None and tuned.facts.target == "host" and any(cell.times for cell in tuned.cells):
        raise UsageError(
            f"{path}: measured on the host target, which says nothing about a GPU",
            "tune with --target cuda, or compile with --launch fixed",
        )
    if arch is not None and tuned.facts.target == "cuda" and tuned.facts.arch != arch:
        raise UsageError(
            f"{path}: tuned for {tuned.facts.arch}, this is compiled for {arch}",
            "tune on this GPU, or compile with --arch " + str(tuned.facts.arch),
        )
    _check_gpu(tuned, path, arch)
    if not tuned.choosers:
        raise UsageError(f"{path}: no chooser in it: tuning did not end", "tune again with --resume")


def _check_gpu(tuned: Tuned, path: str | Path, arch: str | None) -> None:
    """Another GPU of the same architecture has other limits and another speed. Where no GPU is, nothing is said."""
    from dagc.build.devices import gpus

    wanted = tuned.facts.gpu
    here = [g.name for g in gpus() if g.arch == arch] if arch is not None and tuned.facts.target == "cuda" else []
    if here and wanted and wanted not in here:
        raise UsageError(
            f"{path}: tuned for {wanted}, this machine has {here[0]}",
            "tune on this GPU, or compile with --launch fixed",
        )


def launch_of(graph: Graph, launch: str, arch: str | None) -> tuple[Any, Any]:
    """(open tunables, chooser) of `--launch`: nothing for `fixed`, else those of a tuned file."""
    from dagc.choice.choose import compiled_chooser
    from dagc.choice.extent import far_parameters
    from dagc.ir.launching import open_tunables
    from dagc.store.tuned import load_tuned

    if launch == "fixed":
        return (), None
    choosers = choosers_of(graph, launch, arch)
    # Only what a chooser may answer is compiled: a value that did not compile when it was tuned is none of it.
    answers = {(c.op, name): {dict(s)[name] for s in c.settings} for c in choosers for name, _ in c.settings[0]}
    opened = tuple(
        replace(t, values=tuple(v for v in t.values if v in answers[t.op, t.name]))
        for t in open_tunables(graph.program, [c.op for c in choosers])
    )
    cells = [cell for cell in load_tuned(launch).cells if any(cell.op == c.op for c in choosers)]
    return opened, replace(compiled_chooser(choosers), warnings=far_parameters(graph.program, cells))


# ---- settings for a search ------------------------------------------------------------------

TOP = 3  # of the model's ranking, measured beside the default before a search
CELL_SECONDS = 0.1
MEASURING_SECONDS = 20.0
MOST_TUNED = 8  # choices of kernels (variants): each is compiled to be tuned
NOT_TUNED = "times of the host target say nothing about a GPU (--launch auto tunes them here all the same)"


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """Where a search takes its launch settings from.

    `launch`: what the user asked for ("fixed", "auto", the path of a tuned file, None: nothing). `earlier`: the results
    that the search goes on with, or replays.
    """

    launch: str | None
    chosen: TargetChoice
    earlier: Results | None = None

    @property
    def file(self) -> str | None:
        return self.launch if self.launch not in (None, "auto", "fixed") else None

    @property
    def tunes(self) -> bool:
        """On the host target only where the user asks for it: its times say nothing about a GPU."""
        return self.launch == "auto" or (self.launch is None and self.chosen.target.value == "cuda")

    @property
    def anew(self) -> bool:
        """Everything is tuned, and nothing known from earlier."""
        return self.tunes and self.earlier is None


@dataclass(frozen=True, slots=True)
class Launched:
    """Configurations with their launch settings, those that tuning has set, and notes."""

    found: tuple[Configured, ...]
    settings: tuple[Fixed, ...]
    notes: tuple[str, ...]


Build: TypeAlias = "Callable[[Mapping[str, Any]], Graph]"  # the graph of a program under decisions, on top of -D


def choosers_for(source: LaunchSource, found: Sequence[Configured], build: Build) -> dict[Kernels, tuple[Any, ...]]:
    """The choosers of the tuned file for the kernels of each configuration; nothing where the source is no file.

    `build` takes no launch settings of -D: where these fix a part of what was tuned, the rest is still chosen. Raises
    UsageError where the file is good for none of them.
    """
    from dagc.store.settings import kernels_of

    if source.file is None:
        return {}
    arch = source.chosen.gpu_arch
    out: dict[Kernels, tuple[Any, ...]] = {}
    errors = []
    for configured in found:
        kernels = kernels_of(configured.configuration)
        if kernels not in out:
            try:
                out[kernels] = choosers_of(build(dict(kernels)), source.file, arch)
            except UsageError as error:
                out[kernels] = ()
                errors.append(error)
    if errors and not any(out.values()):
        raise errors[0]
    return out


def launched(
    path: str | Path,
    source: LaunchSource,
    found: Sequence[Configured],
    choosers: Mapping[Kernels, tuple[Any, ...]],
    data: Path,
    options: ExploreOptions,
    build: Build,
    display: Display,
) -> Launched:
    """Launch settings for the configurations of a search, in place of the defaults; -D and what is searched stay.

    `data`: the arrays of the ranks. Configurations that run the same kernels get the same settings.
    """
    from dagc.store.settings import kernels_of, open_settings

    groups: dict[Kernels, list[Configured]] = {}
    for configured in found:
        groups.setdefault(kernels_of(configured.configuration), []).append(configured)
    out: list[Configured] = []
    settings: list[Fixed] = []
    notes: list[str] = []
    for number, (kernels, members) in enumerate(groups.items()):
        names = open_settings(members[0].graph.program)
        chosen: Sequence[Fixed] = ()
        if names and source.anew and number >= MOST_TUNED:
            left = counted(len(groups) - MOST_TUNED, "choice")
            notes.append(f"{left} of kernels not tuned, after {MOST_TUNED}: the defaults stay; open fewer variants")
        elif names and source.launch != "fixed":
            chosen, more = _chosen(path, source, members[0], names, choosers.get(kernels, ()), data, options, display)
            notes += more
        settings += chosen
        out += [_with(configured, chosen, build, notes) for configured in members]
    return Launched(tuple(out), tuple(dict.fromkeys(settings)), tuple(dict.fromkeys(notes)))


def _chosen(
    path: str | Path,
    source: LaunchSource,
    first: Configured,
    names: Sequence[str],
    choosers: Sequence[Any],
    data: Path,
    options: ExploreOptions,
    display: Display,
) -> tuple[Sequence[Fixed], Sequence[str]]:
    """The settings of the kernels of one configuration, and notes."""
    from dagc.recipes.tune_prepare import plan_as_given
    from dagc.setup import read_scalars
    from dagc.store.settings import kernels_of, settings_before

    program = first.graph.program
    if source.file is not None:
        scalars = {n: int(v) for n, v in read_scalars(program, data, options.ranks).items() if isinstance(v, int)}
        return settings_by_file(choosers, first.graph, scalars), ()
    before = settings_before(source.earlier, kernels_of(first.configuration), names) if source.earlier else None
    if before is not None:
        return before, ()
    if not source.tunes:
        return (), (f"{counted(len(names), 'launch setting')} left at the default: {NOT_TUNED}",)
    made = plan_as_given(path, first.graph, source.chosen, options.ranks, data, options.mpi_takes_device_pointers)
    with display.phase(f"tuning the launch settings of {', '.join(u.op for u in made.units)}") as phase:
        return chosen_here(made, phase.at)


def _with(configured: Configured, chosen: Sequence[Fixed], build: Build, notes: list[str]) -> Configured:
    """A configuration under settings; with its own, and a note, where the program forbids them beside what is given."""
    from dagc.base.errors import ProgramError, Severity
    from dagc.lab.configurations import Configured, configuration_of

    settings = {f.name: f.value for f in chosen if f.name not in configured.defines}
    if not settings:
        return configured
    try:
        graph = build({**settings, **configured.defines})
    except ProgramError as error:
        why = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        notes.append(f"defaults in place of {' '.join(f'{n}={v}' for n, v in settings.items())}: {why}")
        return configured
    return Configured(configuration_of(graph), {**settings, **configured.defines}, graph)


def settings_by_file(choosers: Sequence[Any], graph: Graph, scalars: Mapping[str, int]) -> tuple[Fixed, ...]:
    """What choosers say at the sizes of a program, for the decisions that are open in its graph. Where -D fixes a part
    of what was tuned, the best that agrees with it."""
    from dagc.store.settings import Fixed, Origin, open_settings

    names = set(open_settings(graph.program))
    pinned = {d.name: d.chosen for d in graph.program.decisions if d.name not in names}
    out = []
    for chooser in choosers:
        ranked = [chooser.settings[i] for i in (chooser.choose(scalars), *chooser.ranked(scalars))]
        agree = (s for s in ranked if all(pinned.get(f"{chooser.op}.{n}", v) == v for n, v in s))
        setting = [(f"{chooser.op}.{n}", v) for n, v in next(agree, ())]
        out += [Fixed(name, value, Origin.TUNED) for name, value in setting if name in names]
    return tuple(out)


def chosen_here(
    made: Plan, progress: Callable[[int, int, str], None] | None = None
) -> tuple[tuple[Fixed, ...], list[str]]:
    """Settings for all that is open in a plan: ranked by the model, its best few measured where that is possible; and
    notes. A failure is a note: by the model alone then, and where that fails too, nothing is set."""
    from dagc.base.errors import DagcError
    from dagc.recipes.options import TuneOptions
    from dagc.recipes.tune import tune_plan
    from dagc.store.settings import Fixed, Origin

    notes: list[str] = []
    for top in (TOP, 0):
        options = TuneOptions(
            method="volume", top=top, cell=CELL_SECONDS, seconds=MEASURING_SECONDS, ranks=made.ranks
        )  # fmt: skip
        try:
            done = tune_plan(made, None, options, progress)
        except DagcError as error:
            notes.append(
                f"tuning {'with' if top else 'without'} measurements failed: {' '.join(error.message.split())}"
            )
            continue
        notes += [f"tuning: {failure}" for failure in done.failures]
        out = []
        for line in done.lines:
            origin = Origin.MODEL if line.best is None else Origin.MEASURED
            if line.why != GUESS:
                out += [Fixed(f"{line.op}.{name}", value, origin) for name, value in line.chosen]
        return tuple(out), notes
    return (), notes


def show(
    path: str | Path,
    kernel: str,
    format: str = "text",
    gpu: str = "h200",
    defines: Any = None,
    tuned: str | Path | None = None,
    method: str = "",
) -> str:
    """The rational program of a kernel's launch time, or of the occupancy (`kernel` is "occupancy").

    As `text`, `latex` or `c`; as a flow chart in `dot` or `svg`. `c` is the chooser: that of the `tuned` file where one
    is given, with what was measured and learned. `method`: `volume` or `rational` (MWP-CWP).
    Raises UsageError, NotUnderstood.
    """
    from dagc.choice.legal import units
    from dagc.choice.models import MODELS, whole_model
    from dagc.perf.cprint import HELPERS, to_c
    from dagc.perf.flow import to_flow, to_flow_svg
    from dagc.perf.occupancy import occupancy_program
    from dagc.perf.text import to_latex, to_text

    printers: dict[str, Callable[[Any], str]] = {
        "text": to_text, "latex": to_latex, "dot": to_flow, "svg": to_flow_svg,
        "c": lambda program: HELPERS + to_c(program, "dagc_occupancy"),
    }  # fmt: skip
    if format not in printers:
        raise UsageError(f"there is no format {format}", f"one of: {', '.join(printers)}")
    if kernel == "occupancy":
        return printers[format](occupancy_program(plain=True))
    if method and method not in MODELS:
        raise UsageError(f"method {method} has no rational program", f"one of: {', '.join(MODELS)}")
    graph = load_graph(path, defines)
    unit = units(graph, (kernel,))[0]
    if format == "c":
        from dagc.choice.choose import compiled_chooser
        from dagc.choice.legal import legal_settings
        from dagc.perf.hardware import load_hardware

        if tuned is not None:
            found = [c for c in choosers_of(graph, tuned) if c.op == unit.op]
            if not found:
                raise UsageError(f"{tuned}: {unit.op} was not tuned", "tune it, or leave out -o")
            return compiled_chooser(found).source
        settings = legal_settings(graph, unit, {"max_threads_per_block": 1024})
        made = chooser_of(graph, unit, settings, load_hardware(gpu), method=method or "volume")
        return compiled_chooser([made]).source
    try:
        return printers[format](whole_model(graph, unit, method or "volume"))
    except RecursionError:
        raise UsageError(
            f"{unit.op}: the kernel's text is nested too deeply to be read", "tune it with --method exhaustive"
        ) from None

"""Launch settings for a search: from a tuned file, from an earlier run, or tuned here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError, ProgramError, Severity, UsageError, counted
from dagc.lab.configurations import Configured, configuration_of
from dagc.recipes.options import TuneOptions
from dagc.recipes.program import ProgramText
from dagc.recipes.tune import tune_task
from dagc.recipes.tune_prepare import task_as_given
from dagc.recipes.tune_results import GUESS
from dagc.recipes.tuned import choosers_of
from dagc.setup import read_scalars
from dagc.store.settings import Fixed, Origin, kernels_of, open_settings, settings_before

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.ir.program import Graph
    from dagc.ir.sym import Number
    from dagc.recipes.options import ExploreOptions
    from dagc.recipes.tune_prepare import TuningTask
    from dagc.report.display import Display
    from dagc.store.results import Results
    from dagc.store.settings import Kernels


# ---- settings for a search ------------------------------------------------------------------

TOP = 3  # of the model's ranking, measured beside the default before a search
CELL_SECONDS = 0.1
MEASURING_SECONDS = 20.0
MOST_TUNED = 8  # choices of kernels (variants): each is compiled for tuning
NOT_TUNED = "times of the host target say nothing about a GPU (--launch auto tunes them here anyway)"


@dataclass(frozen=True, slots=True)
class LaunchSource:
    """The source of a search's launch settings.

    `launch`: the user's choice ("fixed", "auto", the path of a tuned file, None: none). `earlier`: the results that the
    search continues or replays.
    """

    launch: str | None
    chosen: TargetChoice
    earlier: Results | None = None

    @property
    def file(self) -> str | None:
        return self.launch if self.launch not in (None, "auto", "fixed") else None

    @property
    def tunes(self) -> bool:
        """On the host target only if the user asks for it: its times say nothing about a GPU."""
        return self.launch == "auto" or (self.launch is None and self.chosen.target.value == "cuda")

    @property
    def anew(self) -> bool:
        """Whether everything is tuned, without earlier results."""
        return self.tunes and self.earlier is None


@dataclass(frozen=True, slots=True)
class Launched:
    """Configurations with their launch settings, the settings chosen by tuning, and notes."""

    configurations: tuple[Configured, ...]
    settings: tuple[Fixed, ...]
    notes: tuple[str, ...]


Build: TypeAlias = "Callable[[Mapping[str, Any]], Graph]"  # the graph of a program under decisions, on top of -D


def choosers_for(
    source: LaunchSource, configurations: Sequence[Configured], build: Build
) -> dict[Kernels, tuple[Any, ...]]:
    """The choosers of the tuned file for the kernels of each configuration; empty if the source is not a file.

    `build` ignores launch settings of -D: if these fix a part of what was tuned, the rest is still chosen. Raises
    UsageError if the file fits none of them.
    """
    if source.file is None:
        return {}
    from dagc.store.tuned import load_tuned  # loads msgspec, numpy, sqlite3, sympy

    tuned = load_tuned(source.file)
    arch = source.chosen.gpu_arch
    out: dict[Kernels, tuple[Any, ...]] = {}
    errors = []
    for configured in configurations:
        kernels = kernels_of(configured.configuration)
        if kernels not in out:
            try:
                out[kernels] = choosers_of(build(dict(kernels)), tuned, arch)
            except UsageError as error:
                out[kernels] = ()
                errors.append(error)
    if errors and not any(out.values()):
        raise errors[0]
    return out


def launched(
    text: ProgramText,
    source: LaunchSource,
    configurations: Sequence[Configured],
    choosers: Mapping[Kernels, tuple[Any, ...]],
    data: Path,
    options: ExploreOptions,
    display: Display,
) -> Launched:
    """Launch settings for the configurations of a search, instead of the defaults; -D and searched decisions stay.

    `data`: the arrays of the ranks. Configurations with the same kernels get the same settings.
    """
    groups: dict[Kernels, list[Configured]] = {}
    for configured in configurations:
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
            chosen, more = _chosen(text, source, members[0], names, choosers.get(kernels, ()), data, options, display)
            notes += more
        settings += chosen
        out += [_with(configured, chosen, text, notes) for configured in members]
    return Launched(tuple(out), tuple(dict.fromkeys(settings)), tuple(dict.fromkeys(notes)))


def _chosen(
    text: ProgramText,
    source: LaunchSource,
    first: Configured,
    names: Sequence[str],
    choosers: Sequence[Any],
    data: Path,
    options: ExploreOptions,
    display: Display,
) -> tuple[Sequence[Fixed], Sequence[str]]:
    """The settings of the kernels of one configuration, and notes."""
    program = first.graph.program
    if source.file is not None:
        values = {**read_scalars(program, data, options.ranks), "rank": 0, "ranks": options.ranks}
        computed = [c.op for c in choosers if any(f.code for f in c.features)]
        left = f"{', '.join(computed)}: the default stays: only the compiled program computes its features"
        usable = [c for c in choosers if c.op not in computed]
        return settings_by_file(usable, first.graph, values), (left,) if computed else ()
    before = settings_before(source.earlier, kernels_of(first.configuration), names) if source.earlier else None
    if before is not None:
        return before, ()
    if not source.tunes:
        return (), (f"{counted(len(names), 'launch setting')} left at the default: {NOT_TUNED}",)
    text = replace(text, folds=False)
    task = task_as_given(
        text, first.graph.unrolled, source.chosen, options.ranks, data, options.mpi_takes_device_pointers
    )
    with display.phase(f"tuning the launch settings of {', '.join(u.op for u in task.units)}") as phase:
        return chosen_here(task, phase.at)


def _with(configured: Configured, chosen: Sequence[Fixed], text: ProgramText, notes: list[str]) -> Configured:
    """A configuration under settings; with its own, and a note, if the program forbids them together with the given
    ones."""
    settings = {f.name: f.value for f in chosen if f.name not in configured.defines}
    if not settings:
        return configured
    try:
        graph = text.graph({**settings, **configured.defines})
    except ProgramError as error:
        why = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        notes.append(f"defaults in place of {' '.join(f'{n}={v}' for n, v in settings.items())}: {why}")
        return configured
    return Configured(configuration_of(graph), {**settings, **configured.defines}, graph)


def settings_by_file(choosers: Sequence[Any], graph: Graph, values: Mapping[str, Number]) -> tuple[Fixed, ...]:
    """The choosers' results at the sizes of a program, for the decisions open in its graph. If -D fixes a part of what
    was tuned, the best setting that agrees with it."""
    names = set(open_settings(graph.program))
    pinned = {d.name: d.chosen for d in graph.program.decisions if d.name not in names}
    out = []
    for chooser in choosers:
        ranked = [chooser.settings[i] for i in (chooser.choose(values), *chooser.ranked(values))]
        agree = (s for s in ranked if all(pinned.get(f"{chooser.op}.{n}", v) == v for n, v in s))
        setting = [(f"{chooser.op}.{n}", v) for n, v in next(agree, ())]
        out += [Fixed(name, value, Origin.TUNED) for name, value in setting if name in names]
    return tuple(out)


def chosen_here(
    task: TuningTask, progress: Callable[[int, int, str], None] | None = None
) -> tuple[tuple[Fixed, ...], list[str]]:
    """Settings for everything open in a plan, and notes: ranked by the model, its best few measured if possible.
    Failures are notes: then the model alone decides, and if that fails too, nothing is set."""
    notes: list[str] = []
    for top in (TOP, 0):
        options = TuneOptions(
            method="volume", top=top, cell=CELL_SECONDS, seconds=MEASURING_SECONDS, ranks=task.ranks
        )  # fmt: skip
        try:
            done = tune_task(task, None, options, progress)
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

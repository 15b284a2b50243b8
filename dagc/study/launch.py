"""Launch settings for a search: searched with the orders, from a tuned file, from an earlier run, or tuned first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias, TypeVar

from dagc.base.children import Workers
from dagc.base.errors import DagcError, ProgramError, Severity, UsageError, counted
from dagc.base.files import scratch_directory
from dagc.base.sample import Sample
from dagc.build.ranks import joined
from dagc.choice.legal import op_of, open_sites, settled_by
from dagc.choice.types import Case, Site
from dagc.cuda.ptx import Resources
from dagc.forms.fuse import largest_call
from dagc.ir.choice import VARIANT, Choice, qualified
from dagc.ir.constraints import configuration_of
from dagc.ir.plan import Target
from dagc.ir.program import Graph, KernelOp, Region, Value
from dagc.ir.sym import Number, free
from dagc.lab.candidate import ConfiguredSpace
from dagc.lab.configurations import Configured
from dagc.lab.launches import Timing
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders
from dagc.lab.settings import timed_alone
from dagc.perf.hardware import nearest_hardware
from dagc.setup import read_scalars
from dagc.stages.options import ExploreOptions, TuneOptions
from dagc.stages.program import ProgramText
from dagc.store.results import Results
from dagc.store.settings import Origin, Origins, kernels_of, open_settings, settings_before
from dagc.study.build import build, compiled_resources, computed_of, most_of, without_spills
from dagc.study.choosers import Asked, ChooserInputs, first_choosers
from dagc.study.decisions import SEARCH, SearchRequest
from dagc.study.gpu import NOT_COUNTED, hardware_at_hand
from dagc.study.measure import computed_features, tolerance_between
from dagc.study.prepare import DEFAULT_FLUSH, Prepared, at_case, is_warm, read_case, repeats_of, unbuilt
from dagc.study.results import GUESS
from dagc.study.task import TuningTask, task_as_given
from dagc.study.tuned import choosers_of
from dagc.study.tuning import tune_task

# ---- settings for a search ------------------------------------------------------------------

TOP = 3  # settings of the model's ranking that are measured in addition to the default before a search
CELL_SECONDS = 0.1
LAUNCH_SECONDS = 0.005  # of a single launch before a search: its median is known to a percent; more settings tell more
ISSUED = 5e-6  # seconds of a launch below which the calls of the host, of 2 to 3 us, may take longer
MEASURING_SECONDS = 20.0
TIMING_SHARE = 0.1  # fraction of a search's time for timing single launches before it
MOST_TUNED = 8  # most choices of kernels (variants); each is compiled for tuning
NOT_TUNED = "times of the host target do not apply to a GPU (--launch auto tunes them here anyway)"


@dataclass(frozen=True, slots=True)
class Launched:
    """Configurations with their launch settings, the origins of those chosen by tuning, and notes."""

    configurations: tuple[Configured, ...]
    origins: Origins
    notes: tuple[str, ...]


T = TypeVar("T")
Build: TypeAlias = "Callable[[Mapping[str, Any]], Graph]"  # the graph of a program under decisions, on top of -D


def choosers_for(
    request: SearchRequest, configurations: Sequence[Configured], build: Build
) -> dict[Choice, tuple[Any, ...]]:
    """The choosers of the tuned file for the kernels of each configuration; empty without one.

    `build` ignores launch settings of -D: if these fix a part of what was tuned, the rest is still chosen. Raises
    UsageError if the file fits none of them.
    """
    if request.file is None:
        return {}
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    tuned = load_tuned(request.file)
    ops = [op for op, chooser in tuned.kernel_choosers.items() if not chooser.variants]
    arch = request.chosen.gpu_arch
    out: dict[Choice, tuple[Any, ...]] = {}
    errors = []
    for configured in configurations:
        kernels = kernels_of(configured.configuration)
        if kernels not in out:
            try:
                out[kernels] = choosers_of(build(kernels), tuned, arch, ops)
            except UsageError as error:
                out[kernels] = ()
                errors.append(error)
    if errors and not any(out.values()):
        raise errors[0]
    return out


def variants_by_file(request: SearchRequest, arrays: Callable[[], Path]) -> tuple[Choice, list[str]]:
    """The variants that the tuned file chooses for the arrays, with the tunables chosen together with them, and notes.
    Empty for an op whose variant -D fixes, and if the source is not a file. `arrays` creates their directory.

    Like the emitted program, it chooses by the features of rank 0 (the compiled program computes code features), and
    takes the next best if a `require` does not hold.
    """
    if request.file is None:
        return Choice(), []
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    text, chosen, options, tuned = request.text, request.chosen, request.options, load_tuned(request.file)
    learned = (op for op, chooser in tuned.kernel_choosers.items() if chooser.variants)
    ops = [op for op in learned if qualified(op, VARIANT) not in text.defines]
    if not ops:
        return Choice(), []
    graph = replace(text, folds=False).graph()
    choosers = choosers_of(graph, tuned, chosen.gpu_arch, ops)
    here, data = Case(()), arrays()
    task = TuningTask(
        text, chosen, graph, tuple(c.site for c in choosers), (here,), here, ranks=options.ranks, data=data,
        device_pointers=options.mpi_takes_device_pointers, features={c.op: c.data for c in choosers},
    )  # fmt: skip
    ready = Prepared(task, Path(), {here: read_case(task, here, data)})
    if computed_of(task):
        with request.display.phase("compiling, computing the features by which variants are chosen"):
            ready = compute_here(ready)
    at, out = ready.at[here], list[tuple[str, Value]]()
    for chooser in choosers:
        unknown = [n for f in chooser.features for n in free(f.expression) if n not in at.values]
        order = (0,) if unknown else chooser.order(at.values)
        answer = next((i for i in order if chooser.choices[i] in at.fits[chooser.op]), 0)
        out += chooser.choices[answer].decisions
    return Choice(tuple(out)), list(ready.notes)


def compute_here(ready: Prepared) -> Prepared:
    """The features of the one size of a task; unknown, with a note, if ranks cannot be started."""
    if joined() is not None:
        return ready.noting(["variants stay at the default: features are computed by ranks that dagc starts itself"])
    with scratch_directory("dagc-features-") as temporary:
        names = [code.name for code in computed_of(ready.task)]
        return computed_features(replace(ready, library=build(ready.task, temporary)), names)


def launched(
    request: SearchRequest,
    configurations: Sequence[Configured],
    choosers: Mapping[Choice, tuple[Any, ...]],
    arrays: Callable[[], Path],
) -> Launched:
    """Launch settings for the configurations of a search, instead of the defaults; -D and searched decisions stay.

    `arrays`: the directory of those of the ranks. Configurations with the same kernels get the same settings.
    """
    groups: dict[Choice, list[Configured]] = {}
    for configured in configurations:
        groups.setdefault(kernels_of(configured.configuration), []).append(configured)
    out: list[Configured] = []
    origins: Origins = {}
    notes: list[str] = []
    for number, (kernels, members) in enumerate(groups.items()):
        names = open_settings(members[0].graph.program)
        chosen: Origins = {}
        if names and request.anew and number >= MOST_TUNED:
            left = counted(len(groups) - MOST_TUNED, "choice")
            notes.append(f"{left} of kernels not tuned, after {MOST_TUNED}: the defaults stay; open fewer variants")
        elif names and request.chooses:
            chosen, more = _chosen(request, members[0], names, choosers.get(kernels, ()), arrays())
            notes += more
        origins |= chosen
        out += [_with(configured, chosen, request.text, notes) for configured in members]
    return Launched(tuple(out), origins, tuple(dict.fromkeys(notes)))


def _chosen(
    request: SearchRequest, first: Configured, names: Sequence[str], choosers: Sequence[Any], data: Path
) -> tuple[Origins, Sequence[str]]:
    """The values for the kernels of one configuration with their origins, and notes."""
    program, options = first.graph.program, request.options
    if request.file is not None:
        values = {**read_scalars(program, data, options.ranks), "rank": 0, "ranks": options.ranks}
        computed = [c.op for c in choosers if any(f.code for f in c.features)]
        left = f"{', '.join(computed)}: the default stays: only the compiled program computes its features"
        usable = [c for c in choosers if c.op not in computed]
        chosen = settings_by_file(usable, first.graph, values)
        return dict.fromkeys(chosen.decisions, Origin.TUNED), (left,) if computed else ()
    before = settings_before(request.earlier, kernels_of(first.configuration), names) if request.earlier else None
    if before is not None:
        return before, ()
    if not request.tunes:
        return {}, (f"{counted(len(names), 'launch setting')} left at the default: {NOT_TUNED}",)
    text = replace(request.text, folds=False)
    task = task_as_given(
        text, first.graph.unrolled, request.chosen, options.ranks, data, options.mpi_takes_device_pointers
    )
    with request.display.phase(f"tuning the launch settings of {', '.join(site.name for site in task.sites)}") as phase:
        return chosen_here(task, phase.at, request.deadline.limit(TIMING_SHARE, MEASURING_SECONDS))


def _with(configured: Configured, chosen: Origins, text: ProgramText, notes: list[str]) -> Configured:
    """A configuration with these settings; with its own, and a note, if the program forbids them in combination with
    the given ones."""
    choice = Choice(tuple(one for one in chosen if one[0] not in configured.defines))
    if not choice:
        return configured
    try:
        graph = text.graph({**choice, **configured.defines})
    except ProgramError as error:
        why = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        notes.append(f"defaults in place of {' '.join(f'{n}={v}' for n, v in choice.items())}: {why}")
        return configured
    return Configured(configuration_of(graph), {**choice, **configured.defines}, graph)


def settings_by_file(choosers: Sequence[Any], graph: Graph, values: Mapping[str, Number]) -> Choice:
    """The choosers' results at the sizes of a program, for the decisions open in its graph. If -D fixes a part of what
    was tuned, the best setting that agrees with it."""
    names = set(open_settings(graph.program))
    pinned = {d.name: d.chosen for d in graph.program.decisions if d.name not in names}
    out: list[tuple[str, Value]] = []
    for chooser in choosers:
        ranked = [chooser.choices[i] for i in (chooser.choose(values), *chooser.ranked(values))]
        agree = (s for s in ranked if all(pinned.get(n, v) == v for n, v in s.items()))
        out += [one for one in next(agree, Choice()).decisions if one[0] in names]
    return Choice(tuple(out))


def chosen_here(
    task: TuningTask, progress: Callable[[int, int, str], None] | None = None, seconds: float = MEASURING_SECONDS
) -> tuple[Origins, list[str]]:
    """Values for everything open in a plan with their origins, and notes: ranked by the model, the best few measured
    for `seconds`, if possible. A failure is a note: the model alone then decides, and if that fails as well, nothing
    is set."""
    notes: list[str] = []
    for top in (TOP, 0):
        options = TuneOptions(
            method="volume", top=top, cell=CELL_SECONDS, seconds=seconds, ranks=task.ranks
        )  # fmt: skip
        try:
            done = tune_task(task, None, options, progress)
        except DagcError as error:
            notes.append(
                f"tuning {'with' if top else 'without'} measurements failed: {' '.join(error.message.split())}"
            )
            continue
        notes += [f"tuning: {failure}" for failure in done.failures]
        out: Origins = {}
        for line in done.lines:
            origin = Origin.MODEL if line.best is None else Origin.MEASURED
            if line.why != GUESS:
                out |= dict.fromkeys(line.chosen.decisions, origin)
        return out, notes
    return {}, notes


# ---- settings that are searched -------------------------------------------------------------

CLOCK = 1.5e9  # approximate GPU cycles in a second: the unit of a model


def with_defaults(options: ExploreOptions, earlier: Results | None) -> ExploreOptions:
    """The options with defaults for --launch and --only: launch settings are searched, with `--only orders` fixed.

    If an earlier run did not search them, they stay fixed, and nothing but the orders is opened.
    """
    if options.launch is not None:
        return options
    if earlier is None or any(run.options.get("launch") == SEARCH for run in earlier.runs):
        return replace(options, launch=SEARCH if options.only is None else "fixed")
    return replace(options, only="orders")


Sites: TypeAlias = "Mapping[Choice, tuple[Site, ...]]"  # the searched ones, by configurations that have any


def launch_sites(request: SearchRequest, configurations: Sequence[Configured], data: Path | None) -> Sites:
    """The legal settings of everything open. `data`: the arrays of the ranks, which determine what can be launched;
    None: not checked."""
    out: dict[Choice, tuple[Site, ...]] = {}
    known: dict[Hashable, tuple[Site, ...]] = {}
    for configured in configurations if request.searches else ():
        graph = configured.graph.unrolled
        if not open_settings(graph.program):
            continue
        key = settled_by(graph, open_sites(graph))
        if key not in known:
            task = _task(request, graph, data or Path())
            known[key] = tuple(site for site in _that_fit(task, data) if len(site.choices) > 1)
        out[configured.configuration] = known[key]
    return {c: sites for c, sites in out.items() if sites}


class Predictions:
    """What `predicted` tells as it becomes known, by a thread of a pool."""

    def __init__(self, pool: Workers) -> None:
        self.sites: Sites = {}
        self.known = Event()  # some sites, or that there will be none
        self._pool, self._job = pool, Future[tuple[Sites, list[str]]]()

    def prepare(self) -> None:
        """Load the models, SymPy with them, which takes a second in which the arrays are set up."""
        self._pool.submit(import_module, "dagc.choice.models")

    def soon(self, work: Callable[[], T]) -> Future[T]:
        """Do this in the thread of the pool, before what begins later."""
        return self._pool.submit(work)

    def begin(self, request: SearchRequest, spaces: Sequence[ConfiguredSpace], data: Path) -> None:
        self._job = self._pool.submit(predicted, request, spaces, data, self.expect)
        self._job.add_done_callback(lambda _: self.known.set())

    def expect(self, sites: Sites) -> None:
        """Any thread may call it, again when more is known."""
        self.sites = sites
        if sites:
            self.known.set()

    def result(self, seconds: float | None) -> tuple[Sites, list[str]] | None:
        """All, and notes; None if that takes longer, and ends here."""
        wait([self._job], seconds)
        if not self._job.done():
            self._pool.stop()
            return None
        return self._job.result()


def predicted(
    request: SearchRequest, spaces: Sequence[ConfiguredSpace], data: Path, found: Callable[[Sites], None]
) -> tuple[Sites, list[str]]:
    """The searched settings of the spaces with the volume model's predictions, if the target is a GPU, without forms
    whose code spills registers, and notes; kernels are compiled for their registers. `found` is told of predictions as
    they come: at first of kernels as written, with registers assumed and `inf` for the other forms, which takes a
    fraction of the time."""
    out: dict[Choice, tuple[Site, ...]] = {}
    notes: list[str] = []
    for written in (True, False) if request.chosen.target is Target.CUDA else ():
        for configuration, sites, more in _modelled_of(request, spaces, data, written):
            out[configuration] = sites
            notes += more
            found(dict(out))
    return out, list(dict.fromkeys(notes))


def as_written(request: SearchRequest, spaces: Sequence[ConfiguredSpace], data: Path) -> Sites:
    """The part of `predicted` that takes a fraction of the time: of the kernels as written."""
    cuda = request.chosen.target is Target.CUDA
    return {c: sites for c, sites, _ in _modelled_of(request, spaces, data, True)} if cuda else {}


def _modelled_of(
    request: SearchRequest, spaces: Sequence[ConfiguredSpace], data: Path, written: bool
) -> Iterator[tuple[Choice, tuple[Site, ...], list[str]]]:
    """Of each configuration with settings that are searched: these with their predictions, and notes."""
    known: dict[Hashable, dict[Hashable, float]] = {}
    for space in spaces:
        if not space.sites:
            continue
        graph, notes = space.graph.unrolled, list[str]()
        keys = {site.name: _read_alike(graph, site) for site in space.sites}
        if not known.keys() >= set(keys.values()):
            task = _task(request, graph, data)
            sites = {keys[s.name]: s for s in reversed(_that_fit(task, data)) if keys.get(s.name) not in known}
            new = [_as_written(site) if written else site for key, site in sites.items() if key is not None]
            times, notes = _modelled(replace(task, sites=tuple(reversed(new))), compiled=not written)
            known |= {keys[op]: {_values_of(c): t for c, t in of_op.items()} for op, of_op in times.items()}
        priors = (_with_prior(site, known.get(keys[site.name], {}), written) for site in space.sites)
        yield space.configuration, tuple(priors), notes


def _read_alike(graph: Graph, site: Site) -> Hashable:
    """Equal for sites of which models say the same: one kernel with the same numbers, whatever its arrays are; of an op
    that joins calls they read the largest. Features have the name of the op."""
    program = graph.program
    op = largest_call(program, op_of(graph, site))
    numbers = tuple(arg for arg in op.args if not isinstance(arg, Region))
    name = site.name if program.kernel(op.kernel).features else ""
    return name, op.kernel, op.variant, op.when, numbers, tuple(map(_values_of, site.choices))


def _values_of(choice: Choice) -> Hashable:
    return tuple(choice.own.items())


def _as_written(site: Site) -> Site:
    """With those of its settings that leave the text of the kernel as the program has it."""
    return replace(site, choices=tuple(c for c in site.choices if not c.formed) or site.choices)


def _with_prior(site: Site, times: Mapping[Hashable, float], written: bool) -> Site:
    """Settings without a time are left out, unless only those of the kernel as `written` can have one."""
    choices = tuple(choice for choice in site.choices if written or not times or _values_of(choice) in times)
    prior = tuple(times.get(_values_of(choice), math.inf) for choice in choices)
    return replace(site, choices=choices, prior=prior if any(map(math.isfinite, prior)) else ())


def _task(request: SearchRequest, graph: Graph, data: Path) -> TuningTask:
    options = request.options
    return task_as_given(
        replace(request.text, folds=False), graph, request.chosen, options.ranks, data,
        options.mpi_takes_device_pointers,
    )  # fmt: skip


ALONE = 60  # most settings of each op that are timed alone before the search


def timed_sites(machine: LiveMachine, data: Path, request: SearchRequest) -> Orders:
    """The domain of a machine with the times of single launches for the settings of each op; it becomes the machine's
    domain. Takes at most MEASURING_SECONDS, or a fraction of the time that is left."""
    spaces, options = machine.domain.spaces, request.options
    end = time.monotonic() + request.deadline.limit(TIMING_SHARE, MEASURING_SECONDS)
    ops: dict[tuple[object, ...], tuple[Site, Callable[[Choice], Sample]]] = {}
    cache = math.inf  # bytes; the host target has none that could be emptied
    if request.chosen.target is Target.CUDA:
        cache = nearest_hardware(request.chosen.arch)[0].l2_bytes
    with request.display.phase("timing single launches"):
        for index, configured in enumerate(spaces):
            for site in configured.sites:
                key, op = _timed_as(configured, site)
                if key not in ops:
                    ops[key] = site, _alone(machine, index, site, op, cache, data, request)
        timed = timed_alone(list(ops.values()), ALONE, options.seed, late=lambda: time.monotonic() > end)
    known = dict(zip(ops, timed, strict=True))
    out = []
    for configured in spaces:
        sites = tuple(known.get(_timed_as(configured, site)[0], site) for site in configured.sites)
        out.append(replace(configured, sites=sites))
    machine.domain = Orders(out, machine.domain.earlier)
    return machine.domain


def _alone(
    machine: LiveMachine, index: int, site: Site, op: KernelOp, cache: float, data: Path, request: SearchRequest
) -> Callable[[Choice], Sample]:
    """Times single launches of an op of a space, in the state of the cache in which its program finds it: a program
    that runs again and again has its data in the L2 cache if they fit. Launches in a row that are as short as the calls
    that issue them say nothing, so these ops are timed with an empty cache, too, each after what empties it."""
    graph, options = machine.domain.spaces[index].graph, request.options
    scalars = read_scalars(graph.program, data, options.ranks)
    timing = Timing(seconds=LAUNCH_SECONDS, watchdog=options.watchdog)
    repeats, tolerance = repeats_of(graph.program, scalars), tolerance_between(graph.program, op)

    def timed(flush: int) -> Callable[[Choice], Sample]:
        return machine.alone(index, site, repeats, replace(timing, flush=flush), tolerance)

    if math.isinf(cache):
        return timed(0)
    cold = timed(DEFAULT_FLUSH)
    return unless_short(timed(0), cold) if is_warm(graph.program, scalars, data, cache) else cold


def unless_short(warm: Callable[[Choice], Sample], cold: Callable[[Choice], Sample]) -> Callable[[Choice], Sample]:
    """`warm` if the first setting that runs takes ISSUED or more, else `cold`; all settings alike."""
    chosen: list[Callable[[Choice], Sample]] = []

    def measure(choice: Choice) -> Sample:
        if chosen:
            return chosen[0](choice)
        sample = warm(choice)
        if sample.failure:
            return sample
        chosen.append(warm if sample.value >= ISSUED else cold)
        return sample if chosen[0] is warm else cold(choice)

    return measure


def _timed_as(space: ConfiguredSpace, site: Site) -> tuple[tuple[object, ...], KernelOp]:
    """A key that is equal for sites that one timing serves, and the first op of the site."""
    op = next(op for op in space.graph.program.kernel_ops if op.base == site.name)
    return (site, op.kernel, space.configuration.get(qualified(site.name, VARIANT))), op


def _that_fit(task: TuningTask, data: Path | None) -> tuple[Site, ...]:
    """The sites with the choices that can be launched at its sizes; with all if none can."""
    if data is None:
        return task.sites
    fits = at_case(task, Case(()), data).fits
    return tuple(replace(site, choices=fits[site.name] or site.choices) for site in task.sites)


def _modelled(task: TuningTask, compiled: bool) -> tuple[dict[str, dict[Choice, float]], list[str]]:
    """The volume model's time of each setting, in seconds of a GPU with CLOCK, by op; and notes. Without forms whose
    code spills registers; `inf` for a kernel that it cannot analyse. Not `compiled`: with assumed registers, for the
    descriptor of the architecture."""
    hardware, notes = hardware_at_hand(task, None, measured=compiled)
    by_function: Mapping[str, Resources] = {}
    with scratch_directory("dagc-model-") as temporary:
        ready = unbuilt(task, temporary)
        try:
            by_function = compiled_resources(task, temporary) if compiled else {}
        except DagcError as error:
            notes.append(f"registers are assumed: {' '.join(error.message.split())}")
    asked = {site.name: Asked("volume") for site in task.sites}
    choosers = first_choosers(ChooserInputs(ready, asked, NOT_COUNTED, hardware, most_of(task, by_function)))
    values = ready.at[Case(())].values
    left, spilling = without_spills(task, by_function)
    out = {}
    for site in left.sites:
        chooser = choosers[site.name].chooser
        cycles = chooser.times(values) if chooser.model is not None else [math.inf] * len(chooser.choices)
        by_choice = dict(zip(chooser.choices, cycles, strict=True))
        out[site.name] = {choice: by_choice[choice] / CLOCK for choice in site.choices}
    return out, [*notes, *(f"without {failure}" for failure in spilling)]

"""Inputs of a search: configurations, their graphs and spaces, compiled runners, and the record of a run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from dagc.base import children
from dagc.base.children import Workers
from dagc.base.deadline import ENDLESS, Deadline
from dagc.base.errors import BuildFailed, MissingTool, RunFailed, UsageError, WrongResult, counted
from dagc.base.files import is_output
from dagc.base.objective import TIME, Objective
from dagc.base.resources import __version__
from dagc.base.source import find_file, read_file
from dagc.build import toolchain
from dagc.build.mpi import cores as compilers
from dagc.build.mpi import require_mpi, takes_device_pointers
from dagc.build.toolchain import TargetChoice, answer_of
from dagc.choice.types import Site
from dagc.ir.choice import VARIANT, Choice, own_name, qualified
from dagc.ir.enums import Transport
from dagc.ir.plan import Plan, Target, open_tunables, program_hash, stays_fixed
from dagc.ir.program import DEVICE, KernelOp, Program, Value, shown
from dagc.ir.traversal import Traversal, traversal_text
from dagc.lab.configurations import Configured, combinations, configurations, open_decisions
from dagc.lab.live import LiveMachine, Loadable
from dagc.lab.orders import COUNTING_WORK, Orders
from dagc.lab.orders import domain_of as domain
from dagc.lang.code import where_to_look
from dagc.measure.service import RunnerLibrary, require_ranks
from dagc.report import si
from dagc.report.counting import loop_notes
from dagc.report.display import SILENT, Display
from dagc.setup import check_arrays, setup_under_way
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.stages.artifacts import build_artifact, write_sources
from dagc.stages.program import ProgramText
from dagc.store.results import FOLDED, SPACE, MachineRecord, Results, Run
from dagc.store.results import ProgramRecord as Kept
from dagc.store.settings import OF_SEARCH, OPTION, Fixed, fixed_to_json

if TYPE_CHECKING:
    from dagc.lab.candidate import ConfiguredSpace
    from dagc.stages.options import EarlierOptions, ExploreOptions, OpenOptions, PointerOptions


_POLL_SECONDS = 0.05
SEARCH = "search"  # the value of --launch, and in the options of a run


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of a search: the program's text for its target, the options, the results that it continues or
    replays (`earlier`) and those of `--warm-start` (`other`), and when the command ends. The option `launch` is
    "search", "fixed", "auto", the path of a tuned file, or None: as in `earlier`."""

    text: ProgramText
    options: ExploreOptions
    chosen: TargetChoice
    display: Display = SILENT
    earlier: Results | None = None
    objective: Objective = TIME
    other: Results | None = None
    deadline: Deadline = ENDLESS

    @property
    def file(self) -> str | None:
        """The tuned file that gives the launch settings."""
        launch = self.options.launch
        return launch if launch not in (None, SEARCH, "auto", "fixed") else None

    @property
    def chooses(self) -> bool:
        """Whether launch settings are chosen before the search, by a tuned file or by tuning."""
        return self.options.launch not in ("fixed", SEARCH)

    @property
    def searches(self) -> bool:
        """Whether launch settings are searched together with the orders."""
        return self.options.launch == SEARCH

    @property
    def tunes(self) -> bool:
        """On the host target only on request: its times do not apply to a GPU."""
        return self.options.launch == "auto" or (self.options.launch is None and self.chosen.target is Target.CUDA)

    @property
    def anew(self) -> bool:
        """Whether everything is tuned, without earlier results."""
        return self.tunes and self.earlier is None


# ---- what is searched -----------------------------------------------------------------------


def _opened(options: OpenOptions, gpus: bool) -> list[str]:
    """The decisions to open, as `open_decisions` expects them. Raises UsageError if values are asked for, but none
    given."""
    opened = list(options.opened)
    named = {text.partition("=")[0] for text in opened}
    if "transport" not in named:
        opened.append("transport" if options.transport == "all" else f"transport={options.transport}")
    for text in opened:
        name, equals, values = text.partition("=")
        if not name.strip():
            raise UsageError(f"`{text}` names no decision", "write for example --open staging, or NAME=V1,V2")
        if equals and not values.replace(",", " ").strip():
            raise UsageError(
                f"`{text}` names no value of `{name}`", f"write for example {name}=V1,V2, or {name} for all"
            )
    if "capture" not in named:
        capture = options.capture or ("both" if gpus else "off")
        opened.append({"off": "capture=false", "on": "capture=true", "both": "capture"}[capture])
    return opened


def configured(text: ProgramText, options: ExploreOptions, gpus: bool) -> tuple[Program, list[Configured], list[str]]:
    """The program, its configurations, and a note on each combination that the program forbids."""
    program = text.program()
    fixed = {name for name in text.defines if name not in {p.name for p in program.params}}
    opened = [text for text in _opened(options, gpus) if text.partition("=")[0] not in fixed or text in options.opened]
    values = open_decisions(program, opened, fixed)
    notes: list[str] = []
    if options.only is None:
        values, left_out = with_automatic(program, values, {text.partition("=")[0] for text in opened} | fixed)
        notes += left_out
    kept, refused = configurations(values, text.graph, options.most_configurations)
    notes += excluded_notes((left.defines, left.reason, left.span) for left in refused)
    if text.folds:
        notes += dict.fromkeys(note for c in kept for note in loop_notes(c.graph))
    return program, list(kept), notes


# Limits of the programs that automatically opened decisions may lead to: all are compiled before the search, which
# should not take longer than the search itself.
MOST_PROGRAMS = 32
PROGRAMS_A_CORE = 4


def with_automatic(
    program: Program, values: Mapping[str, tuple[Value, ...]], closed: Collection[str]
) -> tuple[dict[str, tuple[Value, ...]], list[str]]:
    """The decisions to search, including those that a search opens automatically, and a note on the others.

    These are devices, the variants of kernels, staging, and choices that change no edge and cannot be made at run time,
    in this order, up to MOST_PROGRAMS programs to compile, and PROGRAMS_A_CORE per core. `closed`: names that the user
    has fixed or opened.
    """
    out = dict(values)
    left: list[str] = []
    most = min(MOST_PROGRAMS, PROGRAMS_A_CORE * compilers())
    for names in _automatic(program, closed):
        more = {d.name: d.values for d in program.decisions if d.name in names}
        compiled = {n: v for n, v in (out | more).items() if n != "capture"}
        if len(combinations(compiled)) > most:
            left += more
        else:
            out |= more
    order = {d.name: i for i, d in enumerate(program.decisions)}
    sorted_ = sorted(out, key=lambda n: order.get(n, len(order)))
    notes = [f"not searched, since more than {most} programs would be compiled: {', '.join(left)} (--open)"]
    return {n: out[n] for n in sorted_}, notes if left else []


def _automatic(program: Program, closed: Collection[str]) -> list[list[str]]:
    """Names of decisions that a search opens automatically; related ones (`threads[x]`, `threads[y]`) as one."""
    several = [d for d in program.decisions if len(d.values) > 1 and d.name not in closed]
    ops = [op for op in program.ops if isinstance(op, KernelOp)]
    at_compile_time = {qualified(op.base, name) for op in ops for name in stays_fixed(program, op)}
    devices = [[d.name] for d in several if own_name(d.name) == DEVICE]
    variants = [[d.name] for d in several if own_name(d.name) == VARIANT]
    staging = [[d.name] for d in several if d.name == "staging"] if program_has_messages(program) else []
    others: dict[str, list[str]] = {}
    for d in several:
        if d.name in at_compile_time or (not d.structural and "." not in d.name and d.name not in OF_SEARCH):
            others.setdefault(d.name.partition("[")[0], []).append(d.name)
    return [*devices, *variants, *staging, *others.values()]


def program_has_messages(program: Program) -> bool:
    """Only these are staged."""
    return bool(program.comm_ops)


def is_folded(configurations: Iterable[Configured]) -> bool:
    """Whether traversals of these cover one round of each loop."""
    return any(c.graph.folding is not None for c in configurations)


def excluded_notes(excluded: Iterable[tuple[Mapping[str, Value], str, Hashable]]) -> list[str]:
    """Notes on combinations of choices that are excluded, each with its reason and the cause. One note for each cause:
    the combination, or the number of combinations with their common choices, and the first reason."""
    by_cause: dict[Hashable, list[tuple[tuple[str, ...], str]]] = {}
    for choices, reason, cause in excluded:
        words = tuple(f"{name}={shown(value)}" for name, value in choices.items())
        by_cause.setdefault(cause, []).append((words, reason))
    return [f"without {_all_of([words for words, _ in some])}: {some[0][1]}" for some in by_cause.values()]


def _all_of(combinations: Sequence[tuple[str, ...]]) -> str:
    first, *others = combinations
    if not others:
        return " ".join(first)
    shared = [choice for choice in first if all(choice in other for other in others)]
    which = f"all with {' '.join(shared)}" if shared else f"for example {' '.join(first)}"
    return f"{len(combinations)} combinations, {which}"


def domain_of(
    configurations: Sequence[Configured],
    options: ExploreOptions,
    sites: Mapping[Choice, tuple[Site, ...]] | None = None,
) -> Orders:
    """`sites`: the searched launch settings. Raises UsageError if the strategy needs the whole space and it is larger
    than allowed."""
    whole = options.strategy == "exhaustive"
    graphs = ((c.configuration, c.graph) for c in configurations)
    searched = domain(graphs, (10 if whole else 1) * COUNTING_WORK, sites)
    size = searched.size() if whole else None
    if whole and (size is None or size > options.most):
        known = f"more than {si.exact(searched.more_than())}" if size is None else si.exact(size)
        raise UsageError(
            f"the space has {known} implementations, more than {options.most}",
            "use --only orders, another --strategy (model, random) with --budget, or raise --max",
        )
    return searched


# ---- what runs ------------------------------------------------------------------------------


def program_record(program: Program) -> Any:
    """The program, for a results file."""
    return Kept(
        name=program.name,
        path=program.path,
        hash=program_hash(program),
        sources=tuple((path, source.text) for path, source in sorted(program.sources.items())),
        params=tuple(program.param_values.items()),
    )


def require_machine(chosen: TargetChoice) -> None:
    """Raises MissingTool if there are no ranks, or no GPU, to run on."""
    require_ranks()
    if chosen.target is Target.CUDA and not toolchain.gpus():
        raise MissingTool("no GPU was found, which measuring on the CUDA target needs", "explore with --target host")


@dataclass(frozen=True, slots=True)
class Compilation:
    """Runner libraries that are being built, each with the configurations that use it. After `stop`, what is not built
    is not built at all."""

    jobs: Mapping[Future[Path | BuildFailed], tuple[Choice, ...]]
    stop: Callable[[], None]

    def as_built(
        self, end: Deadline = ENDLESS, enough: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[tuple[Choice, ...], Path | BuildFailed]]:
        """Each as soon as it is built, or why it is not. At `end` it is over if that is `enough`; if not, the others
        follow in the order of the jobs, whichever is built first."""
        pending = list(self.jobs)
        while pending:
            done = wait(pending, end.timeout, FIRST_COMPLETED).done
            if end.over and enough():
                return
            for job in [job for job in pending if job in done] or pending[:1]:
                pending.remove(job)
                yield self.jobs[job], job.result()


@contextmanager
def compiling(
    configurations: Sequence[Configured],
    chosen: TargetChoice,
    folder: Path,
    sites: Mapping[Choice, Sequence[Site]] | None = None,
    *,
    hurry: bool = False,
) -> Iterator[Compilation]:
    """Build one runner library per configuration, in parallel on all cores, the most promising first; what is not built
    at the end of the block is not built at all. Capture needs no separate library.

    `sites`: launch settings that stay open until they are set at run time. `hurry`: the first has the cores for itself
    if there are fewer than libraries. Raises MissingTool as `require_machine`.
    """
    require_machine(chosen)
    others = Event()  # may be built
    distinct: dict[Choice, list[Configured]] = {}
    for configured in sorted(configurations, key=_promise):
        decisions = tuple((n, v) for n, v in configured.configuration.decisions if n != "capture")
        distinct.setdefault(Choice(decisions), []).append(configured)

    def make(number: int, configured: Configured) -> Path | BuildFailed:
        while number and not others.wait(_POLL_SECONDS):
            children.check()
        run = unroll(configured.graph, Space(configured.graph).first())
        names = [site.name for site in (sites or {}).get(configured.configuration, ())]
        plan = Plan(*run, chosen.target, chosen.arch, open_tunables(configured.graph.program, names))
        directory = folder / f"{number:03d}"
        write_sources(plan, directory, force=True)  # replaces the remains of a killed run
        try:
            return build_artifact(directory, plan, "runner")
        except BuildFailed as error:
            return error

    with Workers(compilers()) as pool:
        jobs = {
            pool.submit(make, number, members[0]): tuple(c.configuration for c in members)
            for number, members in enumerate(distinct.values())
        }
        if hurry and len(jobs) > compilers():
            next(iter(jobs)).add_done_callback(lambda _: others.set())
        else:
            others.set()
        yield Compilation(jobs, pool.stop)
        pool.stop()


def _promise(configured: Configured) -> tuple[int, bool]:
    """Sorts configurations by what is usually fastest, for a search that has no time for all."""
    return -list(Transport).index(configured.graph.transport), configured.configuration.get("capture") is not True


def build_runners(
    configurations: Sequence[Configured], chosen: TargetChoice, folder: Path, display: Display = SILENT
) -> dict[Choice, Path]:
    """All libraries of `compiling`. Raises BuildFailed if one does not build."""
    built: dict[Choice, Path] = {}
    with display.phase("compiling") as phase, compiling(configurations, chosen, folder) as compilation:
        for number, (members, library) in enumerate(compilation.as_built()):
            if isinstance(library, BuildFailed):
                raise library
            built |= dict.fromkeys(members, library)
            phase.at(number + 1, len(compilation.jobs))
    return built


def revision(folder: Path) -> str:
    """The git revision of the directory, with + if it has changes; "" if there is none."""

    def git(*words: str) -> str:
        return (answer_of(["git", *words], 10, cwd=folder) or "").strip()

    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--untracked-files=no") else commit


# ---- on the machine -------------------------------------------------------------------------


def setup_digest(path: Path, program: Program, options: EarlierOptions) -> str:
    """Part of the SHA-256 of the file that computes the arrays; "" if there is none, or the arrays were given."""
    if program.setup is None or options.data is not None:
        return ""
    try:
        text = read_file(find_file(program.setup.file, path.parent, path.parent), regular=True)
    except OSError:  # the set-up reports it
        return ""
    return sha256(text).hexdigest()[:16]


def run_record(
    machine: MachineRecord,
    options: ExploreOptions,
    path: Path,
    setup: str = "",
    fixed: Sequence[Fixed] = (),
    folded: bool = False,
    space: int | None = None,
) -> Run:
    """`setup`: digest of the set-up file; `fixed`: the choices that are not searched; `folded`: whether traversals
    cover one round of each loop; `space`: the number of implementations searched. `options.strategy` must be set."""
    assert options.strategy is not None
    more = {OPTION: fixed_to_json(fixed), **({"setup": setup} if setup else {}), **({FOLDED: True} if folded else {})}
    more |= {SPACE: str(space)} if space is not None else {}
    return Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine, ranks=options.ranks,
        seed=options.seed, strategy=options.strategy, seconds=options.seconds, revision=revision(path.parent),
        version=__version__, options=asdict(options) | more,
    )  # fmt: skip


def that_can_run(
    configurations: Sequence[Configured], chosen: TargetChoice, options: PointerOptions, notes: list[str]
) -> list[Configured]:
    """The configurations without those of transports that this machine lacks. Raises MissingTool if none remains."""
    out = [c for c in configurations if not _lacks_device_pointers(c, chosen, options.mpi_takes_device_pointers)]
    if not out:
        require_device_pointers(configurations, chosen, options.mpi_takes_device_pointers)
    if len(out) < len(configurations):
        notes.append("without transport=mpi_cuda: this MPI does not report that it accepts device pointers")
    return out


def require_device_pointers(configurations: Iterable[Configured], chosen: TargetChoice, vouched: bool) -> None:
    """Raises MissingTool if one of them passes device pointers to an MPI that does not report that it accepts them.

    `vouched`: the user asserts it, on this command line.
    """
    if any(_lacks_device_pointers(c, chosen, vouched) for c in configurations):
        raise MissingTool(
            "this MPI does not report that it accepts device pointers, which transport mpi_cuda needs",
            "choose another --transport, or give --mpi-takes-device-pointers if you know that it does",
        )


def _lacks_device_pointers(configured: Configured, chosen: TargetChoice, vouched: bool) -> bool:
    device = chosen.target is Target.CUDA and configured.configuration.get("transport") == "mpi_cuda"
    return device and not vouched and not takes_device_pointers(require_mpi())


@dataclass(frozen=True, slots=True)
class Excluded:
    """A configuration that is excluded, with the reason: it does not build, or its first traversal does not run."""

    configured: ConfiguredSpace
    failure: str

    @property
    def traversal(self) -> str:
        """The text of the traversal that represents it in a results file."""
        return traversal_text(self.configured.space.first(), self.configured.graph)


@contextmanager
def arrays_under_way(program: Program, folder: Path, request: SearchRequest) -> Iterator[Callable[[], Path]]:
    """Yields the function that gives the directory with the arrays and the references' results: checked if it was
    given, else generated, which begins now.

    Entered before anything slow, since most mistakes in a new program show here, and before threads start. Raises
    UsageError and ProgramError, as the function does.
    """
    options = request.options
    if options.data is not None:
        check_arrays(program, Path(options.data), options.ranks)
        yield lambda: Path(options.data or "")
        return
    data = folder / f"data-{options.ranks}"
    clear_incomplete(data)
    with setup_under_way(program, Path(program.path).parent, options.ranks, options.seed, data) as wait:

        @cache
        def written() -> Path:
            what = "setting up the arrays, running the references"
            with request.display.phase(what, options.ranks, "rank") as phase:
                wait(phase.advance)
            return data

        yield written


def loadable_of(configured: ConfiguredSpace, library: RunnerLibrary) -> Loadable:
    """The runner library of a space, which executes all rounds of its loops."""
    from dagc.emit import never_captured, rows  # loads jinja2

    prover = Prover(configured.graph) if configured.graph.folding is not None else None

    @lru_cache(maxsize=16)  # a candidate is measured several times in a row
    def unrolled(traversal: Traversal, capture: bool) -> list[tuple[int, int, int]]:
        if prover is not None:
            prover.prove(traversal)  # orders of rounds are not part of the space
        graph, flat = unroll(configured.graph, traversal)
        return rows(flat, capture, never_captured(graph) if capture else ())

    return Loadable(library, unrolled, configured.configuration.get("capture") is True)


_ARRAYS = re.compile(r"rank-\d{4,}|setup\.json|\.dagc-new-.*")


def clear_incomplete(data: Path) -> None:
    """Remove arrays that a run was exchanging when it was killed; a directory with any other content stays."""
    half = data.is_dir() and not is_output(data)
    if half and all(_ARRAYS.fullmatch(entry.name) for entry in data.iterdir()):
        shutil.rmtree(data)


@dataclass(frozen=True, slots=True)
class Usable:
    """What is searched: the configurations that run once with correct results; those that do not build or run; and the
    number of others, which were `late`."""

    domain: Orders
    excluded: tuple[Excluded, ...]
    late: tuple[ConfiguredSpace, ...]


def check_as_built(
    machine: LiveMachine, compilation: Compilation, request: SearchRequest, data: Path, end: Deadline = ENDLESS
) -> Usable:
    """Check each configuration of the machine's domain as soon as it is built, and leave out what fails. When one is
    right, no other is waited for beyond `end`.

    If none remains, raises BuildFailed if none was built, WrongResult if all results were wrong, else RunFailed.
    """
    domain, display, vouched = machine.domain, request.display, request.options.mpi_takes_device_pointers
    number = {space.configuration: index for index, space in enumerate(domain.spaces)}
    results: dict[int, str | BuildFailed] = {}

    def enough() -> bool:
        return "" in results.values()

    with display.phase("compiling, checking results against the reference", len(number), "configuration") as phase:
        for configurations, library in compilation.as_built(end, enough):
            for index in (number[c] for c in configurations):
                if end.over and enough():
                    break
                if isinstance(library, BuildFailed):
                    results[index] = library
                else:
                    runner = RunnerLibrary(library, data, vouched)
                    machine.load(index, loadable_of(domain.spaces[index], runner))
                    results[index] = machine.probe(index)
                    _say_first(machine, index, results, display)
                phase.advance()
    return _of_results(machine, results)


def _say_first(machine: LiveMachine, index: int, results: Mapping[int, str | BuildFailed], display: Display) -> None:
    """Report the first that was checked: its time, or why it fails."""
    space, failure = machine.domain.spaces[index], results[index]
    rest = len(machine.domain.spaces) - len(results)
    if failure and len(results) == 1 and rest:
        others = counted(rest, "other configuration follows", "other configurations follow")
        display.say(f"{space.configuration.text}: {failure}\n  {others}; Ctrl-C ends it")
    if not failure and list(results.values()).count("") == 1:
        display.say(f"first measurement: {si.seconds(machine.seconds_of(index))}, {space.configuration.text}")


def _of_results(machine: LiveMachine, results: Mapping[int, str | BuildFailed]) -> Usable:
    """The results of the checks, by number of the space."""
    spaces = machine.domain.spaces
    usable = [index for index in sorted(results) if results[index] == ""]
    if not usable:
        failures = [results[index] for index in sorted(results)]
        ran = [failure for failure in failures if isinstance(failure, str)]
        if not ran:
            raise next(failure for failure in failures if isinstance(failure, BuildFailed))
        if all(failure.startswith("wrong result") for failure in ran):
            help = where_to_look(spaces[0].graph.program)
            raise WrongResult(f"no configuration gives correct results: {ran[0]}", help)
        raise RunFailed(f"no configuration runs here: {ran[0]}")
    excluded = tuple(
        Excluded(spaces[index], f"does not build: {why.first}" if isinstance(why, BuildFailed) else why)
        for index, why in sorted(results.items())
        if why
    )
    late = tuple(space for index, space in enumerate(spaces) if index not in results)
    return Usable(machine.narrow(usable) if excluded or late else machine.domain, excluded, late)

"""Inputs of a search: configurations, their graphs and spaces, compiled runners, and the record of a run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.children import Workers
from dagc.base.errors import LOOK, BuildFailed, MissingTool, RunFailed, UsageError, WrongResult, counted
from dagc.base.files import is_output
from dagc.base.objective import TIME, Objective
from dagc.base.resources import __version__
from dagc.base.source import find_file, read_file
from dagc.build import target
from dagc.build.mpi import cores as compilers
from dagc.build.mpi import takes_device_pointers
from dagc.build.target import TargetChoice
from dagc.build.toolchain import answer_of, require_mpi
from dagc.ir.enums import ElementType
from dagc.ir.plan import Plan, Target, open_tunables, program_hash, stays_fixed
from dagc.ir.program import CollectiveOp, Configuration, ExchangeOp, KernelOp, Program, Value, shown
from dagc.ir.traversal import Traversal, traversal_text
from dagc.lab.configurations import Configured, combinations, configurations, open_decisions
from dagc.lab.live import LiveMachine, Loadable
from dagc.lab.orders import COUNTING_WORK, Orders
from dagc.lab.orders import domain_of as domain
from dagc.measure.link import RankLink, require_ranks
from dagc.measure.service import RunnerLibrary
from dagc.recipes.artifacts import build_artifact, write_sources
from dagc.recipes.program import ProgramText
from dagc.report import si
from dagc.report.counting import loop_notes
from dagc.report.display import SILENT, Display, Phase
from dagc.setup import check_arrays, run_setup
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.store.results import FOLDED, SPACE, MachineRecord, Results, Run
from dagc.store.results import ProgramRecord as Kept
from dagc.store.settings import OF_SEARCH, OPTION, Fixed, fixed_to_json

if TYPE_CHECKING:
    from dagc.lab.candidate import ConfiguredSpace, LaunchSite
    from dagc.recipes.options import ExploreOptions


SEARCH = "search"  # the value of --launch, and in the options of a run


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of a search: the program's text for its target, the options, and the results that it continues or
    replays (`earlier`) and those of `--warm-start` (`other`). The option `launch` is "search", "fixed", "auto", the
    path of a tuned file, or None: as in `earlier`."""

    text: ProgramText
    options: ExploreOptions
    chosen: TargetChoice
    display: Display = SILENT
    earlier: Results | None = None
    objective: Objective = TIME
    other: Results | None = None

    @property
    def file(self) -> str | None:
        """The tuned file that gives the launch settings."""
        launch = self.options.launch
        return launch if launch not in (None, SEARCH, "auto", "fixed") else None

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


def _opened(options: ExploreOptions, gpus: bool) -> list[str]:
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
    at_compile_time = {f"{op.base}.{name}" for op in ops for name in stays_fixed(program, op)}
    devices = [[d.name] for d in several if d.name.endswith(".device")]
    variants = [[d.name] for d in several if d.name.endswith(".variant")]
    staging = [[d.name] for d in several if d.name == "staging"] if program_has_messages(program) else []
    others: dict[str, list[str]] = {}
    for d in several:
        if d.name in at_compile_time or (not d.structural and "." not in d.name and d.name not in OF_SEARCH):
            others.setdefault(d.name.partition("[")[0], []).append(d.name)
    return [*devices, *variants, *staging, *others.values()]


def program_has_messages(program: Program) -> bool:
    """Only these are staged."""
    return any(isinstance(op, ExchangeOp | CollectiveOp) for op in program.ops)


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
    sites: Mapping[Configuration, tuple[LaunchSite, ...]] | None = None,
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
        params=tuple((p.name, p.value.value if isinstance(p.value, ElementType) else p.value) for p in program.params),
    )


def require_machine(chosen: TargetChoice) -> None:
    """Raises MissingTool if there are no ranks, or no GPU, to run on."""
    require_ranks()
    if chosen.target is Target.CUDA and not target.gpus():
        raise MissingTool("no GPU was found, which measuring on the CUDA target needs", "explore with --target host")


def build_runners(
    configurations: Sequence[Configured],
    chosen: TargetChoice,
    folder: Path,
    *,
    display: Display = SILENT,
    first: Callable[[Path], None] | None = None,
    sites: Mapping[Configuration, Sequence[LaunchSite]] | None = None,
) -> tuple[dict[Configuration, Path], dict[Configuration, BuildFailed]]:
    """Build one runner library per configuration, in parallel on all cores; returns also why some have none.

    `sites`: launch settings that stay open until they are set at run time.

    Capture needs no separate library. `first` is called with the library of the first configuration, if that builds,
    while the others are compiled; an exception from it ends the rest. Raises MissingTool as `require_machine`.
    """
    require_machine(chosen)

    def key(configuration: Configuration) -> Configuration:
        return Configuration(tuple((n, v) for n, v in configuration.decisions if n != "capture"))

    distinct: dict[Configuration, Configured] = {}
    for configured in configurations:
        distinct.setdefault(key(configured.configuration), configured)

    def make(item: tuple[int, Configured]) -> Path | BuildFailed:
        number, configured = item
        run = unroll(configured.graph, Space(configured.graph).first())
        names = [site.op for site in (sites or {}).get(configured.configuration, ())]
        plan = Plan(*run, chosen.target, chosen.arch, open_tunables(configured.graph.program, names))
        directory = folder / f"{number:03d}"
        write_sources(plan, directory, force=True)  # replaces the remains of a killed run
        try:
            return build_artifact(directory, plan, "runner")
        except BuildFailed as error:
            return error

    with display.phase("compiling", len(distinct), "configuration") as phase:
        done = dict(zip(distinct, _side_by_side(make, list(enumerate(distinct.values())), phase, first), strict=True))
    built: dict[Configuration, Path] = {}
    failed: dict[Configuration, BuildFailed] = {}
    for configured in configurations:
        runner = done[key(configured.configuration)]
        if isinstance(runner, BuildFailed):
            failed[configured.configuration] = runner
        else:
            built[configured.configuration] = runner
    return built, failed


def _side_by_side(
    make: Callable[[tuple[int, Configured]], Path | BuildFailed],
    items: Sequence[tuple[int, Configured]],
    phase: Phase,
    first: Callable[[Path], None] | None,
) -> list[Path | BuildFailed]:
    with Workers(compilers()) as pool:
        jobs = [pool.submit(make, item) for item in items]
        try:
            for job in jobs:
                job.add_done_callback(lambda _: phase.advance())
            built = jobs[0].result()
            if first is not None and isinstance(built, Path):
                first(built)
            return [job.result() for job in jobs]
        finally:
            for job in jobs:
                job.cancel()


def revision(folder: Path) -> str:
    """The git revision of the directory, with + if it has changes; "" if there is none."""

    def git(*words: str) -> str:
        return (answer_of(["git", *words], 10, cwd=folder) or "").strip()

    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--untracked-files=no") else commit


# ---- on the machine -------------------------------------------------------------------------


def setup_digest(path: Path, program: Program, options: ExploreOptions) -> str:
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
    configurations: Sequence[Configured], chosen: TargetChoice, options: ExploreOptions, notes: list[str]
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


def arrays_of(program: Program, folder: Path, request: SearchRequest) -> Path:
    """The directory with the arrays and the references' results: checked if it was given, else generated.

    Called before anything slow, since most mistakes in a new program show here. Raises UsageError and ProgramError.
    """
    options = request.options
    if options.data is not None:
        data = Path(options.data)
        check_arrays(program, data, options.ranks)
        return data
    data = folder / f"data-{options.ranks}"
    clear_incomplete(data)
    with request.display.phase("setting up the arrays, running the references", options.ranks, "rank") as phase:
        base = Path(program.path).parent
        run_setup(program, base, options.ranks, options.seed, data, done=phase.advance)
    return data


def loadables_of(
    domain: Orders,
    configurations: Sequence[Configured],
    request: SearchRequest,
    folder: Path,
    data: Path,
    link: RankLink,
) -> tuple[Orders, list[Loadable], list[Excluded]]:
    """The configurations that build, with the runner library and the arrays of each; and those that do not.

    The first is run once while the others are compiled, and wrong results are reported at once. Raises BuildFailed if
    none remains.
    """

    options, display = request.options, request.display

    def loadable(configured: ConfiguredSpace, library: Path) -> Loadable:
        return loadable_of(configured, RunnerLibrary(library, data, options.mpi_takes_device_pointers))

    def check_first(library: Path) -> None:
        alone = Orders(domain.spaces[:1])
        machine = LiveMachine(
            alone, [loadable(alone.spaces[0], library)], link, seconds=options.seconds, watchdog=options.watchdog
        )
        failure = machine.probe(0)
        if failure and len(configurations) > 1:
            rest = counted(len(configurations) - 1, "other configuration follows", "other configurations follow")
            display.say(f"{alone.spaces[0].configuration.text}: {failure}\n  {rest}; Ctrl-C ends it")
        domain.size()  # counted while compilers run

    sites = {configured.configuration: configured.sites for configured in domain.spaces}
    built, failed = build_runners(
        configurations, request.chosen, folder, display=display, first=check_first, sites=sites
    )
    if not built:
        raise next(iter(failed.values()))
    excluded = [
        Excluded(configured, f"does not build: {_first_error(failed[configured.configuration])}")
        for configured in domain.spaces
        if configured.configuration in failed
    ]
    usable = [configured for configured in domain.spaces if configured.configuration in built]
    loadables = [loadable(configured, built[configured.configuration]) for configured in usable]
    return (Orders(usable) if excluded else domain), loadables, excluded


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


def _first_error(failure: BuildFailed) -> str:
    """The line of the first error in a compiler's output."""
    lines = failure.message.splitlines()
    return next((line.strip() for line in lines[1:] if "error:" in line), lines[0])


def working(machine: LiveMachine, domain: Orders, display: Display = SILENT) -> tuple[Orders, list[Excluded]]:
    """The configurations that run once with correct results, and the others.

    If none remains, raises WrongResult if all results were wrong, else RunFailed.
    """
    wrong = []
    with display.phase("checking results against the reference", len(domain.spaces), "configuration") as phase:
        for index in range(len(domain.spaces)):
            wrong.append(machine.probe(index))
            phase.advance()
    excluded = [
        Excluded(configured, failure) for configured, failure in zip(domain.spaces, wrong, strict=True) if failure
    ]
    if len(excluded) == len(domain.spaces):
        if all(failure.startswith("wrong result") for failure in wrong):
            raise WrongResult(f"no configuration gives correct results: {wrong[0]}", LOOK)
        raise RunFailed(f"no configuration runs here: {wrong[0]}")
    usable = [i for i, failure in enumerate(wrong) if not failure]
    return (machine.narrow(usable) if excluded else domain), excluded

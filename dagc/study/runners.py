"""What a search runs: runner libraries of configurations, built in parallel, checked as they are built, with the arrays
of the ranks."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from threading import Event, Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from dagc.base import children
from dagc.base.children import Workers
from dagc.base.errors import BuildFailed, DagcError, MissingTool, RunFailed, UsageError, WrongResult
from dagc.base.files import is_output
from dagc.base.sample import Sample
from dagc.base.signals import ENDLESS, Deadline
from dagc.build import toolchain
from dagc.build.mpi import cores as compilers
from dagc.build.mpi import require_mpi, takes_device_pointers
from dagc.build.ranks import several_hosts
from dagc.build.toolchain import TargetChoice
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.constraints import transports_of
from dagc.ir.enums import Transport
from dagc.ir.plan import Plan, Target, open_tunables
from dagc.ir.program import WITHIN_HOST, Program, Value, shown
from dagc.ir.repetition import on_device
from dagc.ir.traversal import Traversal, traversal_text
from dagc.lab.configurations import Configured, in_library
from dagc.lab.live import LiveMachine, Loadable
from dagc.lab.orders import Orders
from dagc.lang.code import where_to_look
from dagc.measure.service import RunnerLibrary, require_ranks
from dagc.report.display import SILENT, Display
from dagc.setup import check_arrays, run_setup, setup_under_way
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.stages.artifacts import build_artifact, write_runner
from dagc.study.beside import SHARE, Beside
from dagc.study.decisions import SearchRequest

if TYPE_CHECKING:
    from dagc.lab.candidate import ConfiguredSpace
    from dagc.stages.options import ExploreOptions


class HasConfiguration(Protocol):
    @property
    def configuration(self) -> Choice: ...


C = TypeVar("C", bound=HasConfiguration)
Built: TypeAlias = "Path | BuildFailed"

_POLL_SECONDS = 0.05
HELD_SECONDS = 4.0  # that further programs wait at most for predictions: a set-up may take minutes


def require_machine(chosen: TargetChoice) -> None:
    """Raises MissingTool if there are no ranks, or no GPU, to run on."""
    require_ranks()
    if chosen.here and chosen.target is Target.CUDA and not toolchain.gpus():
        raise MissingTool("no GPU was found, which measuring on the CUDA target needs", "explore with --target host")


@dataclass(frozen=True, slots=True)
class Compilation:
    """Runner libraries that are being built, each with the configurations that use it. After `stop`, what is not built
    is not built at all."""

    jobs: Mapping[Future[Built], tuple[Choice, ...]]
    stop: Callable[[], None]

    def wait(self, end: Deadline = ENDLESS) -> None:
        """Until all are built; at `end` until one is, and the others are then not built at all."""
        pending = wait(self.jobs, end.timeout).not_done
        while pending and not any(isinstance(_result(job), Path) for job in self.jobs if job.done()):
            pending = wait(pending, None, FIRST_COMPLETED).not_done
        if pending:
            self.stop()

    def as_built(
        self,
        end: Deadline = ENDLESS,
        enough: Callable[[], bool] = lambda: True,
        meanwhile: Callable[[], bool] = lambda: False,
        late: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[tuple[Choice, ...], Built]]:
        """Each as soon as it is built, or why it is not. At `end` it is over if that is `enough`; if not, the others
        follow in the order of the jobs, whichever is built first, and `late` is called. `meanwhile`: called while none
        is built, for the SHARE of the time, until it returns False."""
        pending = list(self.jobs)
        while pending := [job for job in pending if not job.cancelled()]:  # `wait` does not count these as done
            done = wait(pending, 0).done
            while not done and not end.over:
                began = time.monotonic()
                more = meanwhile()
                rest = (1 / SHARE - 1) * (time.monotonic() - began) if more else math.inf
                limit = min(rest, math.inf if end.timeout is None else end.timeout)
                done = wait(pending, limit if math.isfinite(limit) else None, FIRST_COMPLETED).done
            if end.over and enough():
                return
            if end.over:
                late()
            for job in [job for job in pending if job in done] or pending[:1]:
                pending.remove(job)
                if (built := _result(job)) is not None:
                    yield self.jobs[job], built


def _result(job: Future[Built]) -> Built | None:
    """None if the library is not built, since compilers were stopped."""
    try:
        return job.result()
    except (CancelledError, children.Stopped):
        return None


def _await(event: Event, latest: float = math.inf) -> None:
    while not event.wait(_POLL_SECONDS) and time.monotonic() < latest:
        children.check()


def library_of(configured: HasConfiguration) -> Choice:
    """The decisions that a runner library is compiled for. Capture and loops need no separate library."""
    return Choice(tuple(filter(in_library, configured.configuration.decisions)))


def runner_at(directory: Path, plan: Plan, hurry: bool = False) -> Built:
    """The runner library of a plan, from its sources, or why it does not build. `hurry`: by more compilers."""
    try:
        return build_artifact(directory, plan, "runner", hurry)
    except BuildFailed as error:
        return error


@contextmanager
def compiling(
    configurations: Sequence[Configured], chosen: TargetChoice, folder: Path,
    sites: Mapping[Choice, Sequence[Site]] | None = None, *,
    ahead: Mapping[Choice, Future[Built]] = MappingProxyType({}), hurry: bool = False, others: Event | None = None,
    answered: Event | None = None,
) -> Iterator[Compilation]:  # fmt: skip
    """Build one runner library per configuration, in parallel on all cores, in their order; what is not built at the
    end of the block is not built at all.

    `sites`: launch settings that stay open until they are set at run time. `ahead`: libraries that are under way, by
    what they are compiled for. `hurry`: if there are fewer cores than compilers, half of them are left to the first,
    and to what runs beside, until it is built, and until it is `answered`, at most HELD_SECONDS later. Sources are
    written one after the other, those of the first library first: threads that write them together all end late.
    Others wait for the event `others`, what the first measurement needs of Python, as long. Raises MissingTool.
    """
    require_machine(chosen)
    written, built, writing = Event(), Event(), Lock()  # of the first
    distinct: dict[Choice, list[Configured]] = {}
    for configured in configurations:
        distinct.setdefault(library_of(configured), []).append(configured)

    def make(number: int, configured: Configured) -> Built:
        if number:
            _await(written if number < at_once else built)
            _await(others or written, latest)
        if number >= at_once and answered is not None:
            _await(answered, time.monotonic() + HELD_SECONDS)
        directory = folder / f"{number:03d}"
        with writing:
            children.check()
            plan = runner_plan(configured, chosen, (sites or {}).get(configured.configuration, ()))
            write_runner(plan, directory)  # replaces the remains of a killed run
        written.set()
        return runner_at(directory, plan)

    latest = time.monotonic() + HELD_SECONDS
    each = 2 if chosen.target is Target.CUDA else 1  # of the kernels and of the rest
    at_once = max(1, compilers() // (2 * each)) if hurry and each * len(distinct) > compilers() else len(distinct)
    with Workers(compilers()) as pool:
        jobs = {
            ahead.get(of) or pool.submit(make, number, members[0]): tuple(c.configuration for c in members)
            for number, (of, members) in enumerate(distinct.items())
        }
        first = next(iter(jobs))
        if first in ahead.values():
            written.set()
        first.add_done_callback(lambda _: written.set())  # also if it fails
        first.add_done_callback(lambda _: built.set())
        yield Compilation(jobs, pool.stop)
        pool.stop()


def runner_plan(configured: Configured, chosen: TargetChoice, sites: Iterable[Site]) -> Plan:
    """What the runner library of a configuration is built from; the settings of `sites` stay open."""
    run = unroll(configured.graph, Space(configured.graph).first())
    opened = open_tunables(configured.graph.program, [site.name for site in sites])
    return Plan(*run, chosen.target, chosen.arch, opened)


def by_promise(configurations: Iterable[C], first: Choice | None = None) -> list[C]:
    """After `first`, what is usually fastest, for a search that has no time for all; transports that reduce alike, of
    which either may be the faster, in turn."""
    speeds = list(Transport)
    rank = {transport.value: speeds.index(transport.of_collectives) for transport in Transport}
    turns: Counter[tuple[frozenset[Value], bool]] = Counter()

    def key(configured: C) -> tuple[bool, float, bool, int]:
        transports = frozenset(transports_of(configured.configuration))
        issued = configured.configuration.get("capture") is not True
        turns[transports, issued] += 1
        speed = sum(rank[str(t)] for t in transports) / len(transports)
        return configured.configuration != first, -speed, issued, turns[transports, issued]

    return sorted(configurations, key=key)


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


# ---- on the machine -------------------------------------------------------------------------


def that_can_run(
    configurations: Sequence[Configured], chosen: TargetChoice, options: ExploreOptions, notes: list[str]
) -> list[Configured]:
    """The configurations without those of transports that this machine lacks. Raises MissingTool if none remains."""
    lacking = _lacking(configurations, chosen, options.mpi_takes_device_pointers, options.ranks)
    out = [c for c in configurations if lacking.keys().isdisjoint(transports_of(c.configuration))]
    if not out:
        require_transports(configurations, chosen, options.mpi_takes_device_pointers, options.ranks)
    notes += [f"without transport={transport}: {reason}" for transport, (reason, _) in lacking.items()]
    return out


def require_transports(configurations: Iterable[Configured], chosen: TargetChoice, vouched: bool, ranks: int) -> None:
    """Raises MissingTool if one of them has a transport that this machine lacks.

    `vouched`: the user asserts, on this command line, that the MPI accepts device pointers.
    """
    for transport, (reason, help) in _lacking(configurations, chosen, vouched, ranks).items():
        raise MissingTool(f"{reason}, which transport {transport} needs", help)


def _lacking(
    configurations: Iterable[Configured], chosen: TargetChoice, vouched: bool, ranks: int
) -> dict[Value, tuple[str, str]]:
    """Of the transports of the configurations those that this machine lacks, with the reason and what to do."""
    wanted = {transport for c in configurations for transport in transports_of(c.configuration)}
    out: dict[Value, tuple[str, str]] = {}
    if chosen.target is not Target.CUDA:
        return out
    if Transport.MPI_CUDA.value in wanted and not vouched and not takes_device_pointers(require_mpi()):
        help = "choose another --transport, or give --mpi-takes-device-pointers if you know that it does"
        out[Transport.MPI_CUDA.value] = "this MPI does not report that it accepts device pointers", help
    if Transport.NCCL.value in wanted and toolchain.find_nccl() is None:
        help = f"{toolchain.NO_NCCL_HELP}, or choose another --transport"
        out[Transport.NCCL.value] = "no NCCL found (nccl.h and libnccl.so)", help
    for transport in Transport:
        if transport.of_one_host and transport.value in wanted and several_hosts(ranks):
            help = f"choose another --transport, with -D {WITHIN_HOST}={transport.of_collectives.value} within a host"
            out[transport.value] = "the ranks are on several hosts, and not on one", help
    return out


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
def arrays_under_way(program: Program, folder: Path, request: SearchRequest) -> Iterator[Callable[[], ArraysOf]]:
    """Yields the function that gives the directory with the arrays and the references' results: checked if it was
    given, else generated, which begins now. Any thread may call it.

    Entered before anything slow, since most mistakes in a new program show here, and before threads start. Raises
    UsageError and ProgramError, as the function does.
    """
    options = request.options

    def arrays_at(data: Path) -> ArraysOf:
        vouched = options.mpi_takes_device_pointers
        return ArraysOf(program, data, options.ranks, options.seed, options.data is not None, vouched)

    if options.data is not None:
        check_arrays(program, Path(options.data), options.ranks)
        given = arrays_at(Path(options.data))
        yield lambda: given
        return
    data = folder / arrays_name(program, options.ranks)
    clear_incomplete(data)
    written, waiting = Future[ArraysOf](), Lock()
    with setup_under_way(program, Path(program.path).parent, options.ranks, options.seed, data) as wait:

        def arrays() -> ArraysOf:
            what = "setting up the arrays, running the references"
            with waiting, request.display.phase(what, options.ranks, "rank") as phase:
                if not written.done():
                    try:
                        wait(phase.advance)
                        written.set_result(arrays_at(data))
                    except BaseException as error:
                        written.set_exception(error)
            return written.result()

        yield arrays


@dataclass(slots=True)
class ArraysOf:
    """Directories with arrays: `data`, those of `program`, and one beside it for each other set-up, where decisions
    are arguments of it. `given` arrays are those of one set-up. `vouched`: the user asserts that the MPI accepts device
    pointers."""

    def library(self, path: Path, program: Program) -> RunnerLibrary:
        """The runner library of a program with its arrays. Raises as `of`."""
        return RunnerLibrary(path, self.of(program), self.vouched)

    program: Program
    data: Path
    ranks: int
    seed: int
    given: bool
    vouched: bool = False
    _made: set[Path] = field(default_factory=set)

    def of(self, program: Program) -> Path:
        """Runs the set-up, the first time. Raises UsageError, ProgramError."""
        if program.setup == self.program.setup:
            return self.data
        folder = self.data.with_name(arrays_name(program, self.ranks))
        if self.given:
            message = f"--data has the arrays of one set-up, and this is another: {' '.join(_chosen(program))}"
            raise UsageError(message, "drop --data, or fix the decision with -D")
        if folder not in self._made:
            clear_incomplete(folder)
            run_setup(program, Path(program.path).parent, self.ranks, self.seed, folder)
            self._made.add(folder)
        return folder


def arrays_name(program: Program, ranks: int) -> str:
    """Of the directory: `data-4`, `data-4-px=2` where the set-up depends on a decision."""
    return "-".join([f"data-{ranks}", *_chosen(program)])


def _chosen(program: Program) -> list[str]:
    names = program.setup.decisions if program.setup is not None else ()
    return [f"{name}={shown(program.decision(name))}" for name in names]


def loadable_of(configured: ConfiguredSpace, library: RunnerLibrary) -> Loadable:
    """The runner library of a space, which executes all rounds of its loops."""
    from dagc.emit import never_captured, rows  # loads jinja2

    prover = Prover(configured.graph) if configured.graph.folding is not None else None

    @lru_cache(maxsize=16)  # a candidate is measured several times in a row
    def unrolled(traversal: Traversal, capture: bool) -> list[tuple[int, int, int]]:
        if prover is not None:
            prover.prove(traversal)  # orders of rounds are not part of the space
        graph, flat = unroll(configured.graph, traversal)
        return rows(flat, capture, never_captured(graph) if capture else (), loop if capture else None)

    loop = on_device(configured.graph)
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
    machine: LiveMachine,
    compilation: Compilation,
    request: SearchRequest,
    arrays: ArraysOf,
    beside: Beside,
    end: Deadline = ENDLESS,
) -> Usable:
    """Check each configuration of the machine's domain as soon as it is built, and leave out what fails; measure
    `beside`. When one is right, or two with the order of an application among them, no other is waited for beyond
    `end`.

    If none remains, raises BuildFailed if none was built, WrongResult if all results were wrong, else RunFailed.
    """
    domain, display = machine.domain, request.display
    number = {space.configuration: index for index, space in enumerate(domain.spaces)}
    results: dict[int, str | BuildFailed] = {}

    def enough() -> bool:
        right, own = list(results.values()).count(""), beside.compared
        return right > 0 and (own is None or (own.space in results and right > 1))

    @cache
    def late() -> None:
        what = "one more, which --original is compared with" if "" in results.values() else "the first"
        passed = f"{end.passed:.0f} of {request.deadline.seconds:g} s have passed"
        display.say(f"{passed}: no configuration is waited for but {what}")

    with display.phase("compiling, checking results against the reference", len(number), "configuration") as phase:

        def meanwhile() -> bool:
            measured = beside.step()
            phase.at(len(results), detail=beside.line)
            return measured

        for configurations, library in compilation.as_built(end, enough, meanwhile, late):
            for index in (number[c] for c in configurations):
                if end.over and enough():
                    break
                if isinstance(library, BuildFailed):
                    results[index] = library
                else:
                    sample = first_sample(machine, index, library, arrays, beside)
                    results[index] = sample.failure
                    beside.tell(index, sample, len(number) - len(results))
                phase.advance(beside.line)
    return _of_results(machine, results)


def first_sample(machine: LiveMachine, index: int, library: Path, arrays: ArraysOf, beside: Beside) -> Sample:
    """Of a configuration that is built, with its arrays; a failure where its set-up refuses them."""
    if index in beside.checked:
        return beside.checked[index]
    space = machine.domain.spaces[index]
    try:
        runner = arrays.library(library, space.graph.program)
    except DagcError as error:
        return Sample(failure=error.first)
    machine.load(index, loadable_of(space, runner))
    return beside.first(index)


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

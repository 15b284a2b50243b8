"""The fastest implementation of a results file, explained: its rules, edits that break one each, or what makes another
one slower; by pairs that are timed on this machine or taken from a recording."""

from __future__ import annotations

import collections
import math
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from dagc.base.errors import DagcError, UsageError, counted
from dagc.base.files import is_output
from dagc.base.resources import __version__
from dagc.base.statistics import interval
from dagc.build.ranks import joined
from dagc.build.toolchain import TargetChoice, choose_target
from dagc.ir.choice import Choice, own_name, qualified
from dagc.ir.program import TRANSPORT, KernelOp, Program
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import Configured
from dagc.lab.engine import UNKEPT, Machine, Store
from dagc.lab.live import LiveMachine, ReplayMachine
from dagc.lab.orders import Orders, OrderStore, domain_of
from dagc.learn.bundles import BundlesView, difference_of
from dagc.learn.classes import noise_of
from dagc.learn.explain import Answers, Explanation, Inquiry, answer, ask, explanation
from dagc.learn.pairs import AnsweredQuestion, PairTiming, TimingOptions, time_pairs
from dagc.learn.tree import LearnedRules
from dagc.measure.metrics import objective_for
from dagc.measure.service import RankLink
from dagc.report.display import Display
from dagc.setup import check_arrays, run_setup
from dagc.space.moves import Moves
from dagc.stages.options import ExplainOptions
from dagc.store.results import Implementation, Results, Run, ranking
from dagc.study.files import revision
from dagc.study.loaded import Loaded, judged, learn
from dagc.study.original import order_of, read_original
from dagc.study.runners import ArraysOf, arrays_name, build_runners, clear_incomplete, loadable_of, require_transports

MOST_CHANGED = 24  # unmeasured configurations, as edits of launch settings


def one_change(best: Choice, measured: Collection[Choice], program: Program) -> tuple[Choice, ...]:
    """Unmeasured configurations that equal the best's except for the launch settings of one op, which were measured
    elsewhere.

    If settings are searched together with orders, hardly any two implementations differ in one op only.
    """
    out: dict[Choice, None] = {}
    for op in program.ops:
        names = {qualified(op.base, name) for name, _ in op.tunables} if isinstance(op, KernelOp) else set()
        for other in measured if names else ():
            settings = {n: v for n, v in other.decisions if n in names}
            if settings.keys() == names & best.keys():
                out[Choice.of({**best, **settings})] = None
    return tuple(c for c in out if c != best and c not in measured)[:MOST_CHANGED]


def one_by_one(old: Choice, new: Choice) -> tuple[Choice, ...]:
    """What lies between two configurations if one decision after the other changes, the transport first."""
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    changed.sort(key=lambda name: own_name(name) != TRANSPORT)
    taken = (frozenset(changed[:count]) for count in range(1, len(changed)))
    return tuple(
        Choice.of({n: v for one, its in ((old, False), (new, True)) for n, v in one.items() if (n in names) is its})
        for names in taken
    )


class Subject:
    """The fastest implementation of a results file, as a candidate among the configurations of the file."""

    def __init__(self, loaded: Loaded) -> None:
        """Raises UsageError if nothing was measured, or if the fastest is not in the space of the program."""
        self.loaded = loaded
        if loaded.disagreement is not None:
            raise loaded.disagreement.error(loaded.path)
        self.ranked = ranking(loaded.results)
        if not self.ranked:
            raise UsageError(
                f"{loaded.path} has no measurements", "run `dagc explore` first, or continue with --resume"
            )
        # A configuration that does not build or run has no measurements.
        measured = sorted({i.configuration for i in loaded.results.measured()})
        best = self.ranked[0].configuration
        changed = one_change(best, measured, loaded.structure(best).program)
        self.domain: Orders = domain_of((c, loaded.graph(c)) for c in (*measured, *changed))
        self.best = self.candidate(self.ranked[0])

    @cached_property
    def learned(self) -> LearnedRules:
        return learn(self.loaded)

    def moved(self, candidate: Candidate, domain: Orders) -> Candidate:
        """The candidate in a domain that has its configuration."""
        index = domain.number(self.domain.spaces[candidate.space].configuration)
        assert index is not None
        return replace(candidate, space=index)

    def other(self, rank: int) -> Candidate:
        """The rank-th after the fastest. Raises UsageError."""
        if rank >= len(self.ranked):
            raise UsageError(
                f"{self.loaded.path} has {counted(len(self.ranked), 'implementation')} measured often enough",
                f"give --rank 1 to {len(self.ranked) - 1}" if len(self.ranked) > 1 else "run `dagc explore --resume`",
            )
        return self.candidate(self.ranked[rank])

    def original(self, path: str) -> Candidate:
        """The implementation with the order of a file, even if it was measured once only. Raises UsageError if none was
        measured, or if it is the best."""
        source, wrong = read_original(path), ""
        unknown = True
        for implementation in self.loaded.results.measured():
            graph = self.loaded.structure(implementation.configuration)
            wanted = order_of(source, graph, Moves.of(graph))
            if isinstance(wanted, str):
                wanted = order_of(source, graph, Moves.of(graph), exact=False)
            if isinstance(wanted, str):  # of other ops
                wrong = wrong or wanted
                continue
            unknown = False
            found = self.candidate(implementation)
            if found.traversal == wanted and found != self.best:
                return found
            if found.traversal == wanted:
                raise UsageError(
                    f"{path}: the order of this file is the best", "search on, or compare another by --rank"
                )
        if unknown and wrong:
            raise UsageError(wrong, "give an order of this program, as `dagc record` writes it")
        help = f"search with `dagc explore --original {shlex.quote(path)}`"
        raise UsageError(f"{self.loaded.path} has no measurement of the order in {path}", help)

    def between(self, other: Candidate) -> tuple[Choice, ...]:
        """Configurations that lead from the best's to another one's, which they leave out."""

        def gives_program(configuration: Choice) -> bool:
            with suppress(DagcError):
                return bool(self.loaded.graph(configuration).ops)
            return False

        old, new = (self.domain.spaces[c.space].configuration for c in (self.best, other))
        return tuple(filter(gives_program, one_by_one(old, new)))

    @property
    def value(self) -> float:
        """The estimate for the best, as `dagc best` prints it."""
        return judged(self.ranked, 0, self.loaded.results).value

    def selection_bias(self, recorded: Results) -> float:
        """The selection bias: how much faster than it is the best may appear, because it was chosen by the times of
        `recorded`.

        The largest of n normal errors is about sqrt(2 ln n) standard deviations; n is the number of implementations
        equal to the best within the noise. 0 if the times are others, or if the noise is unknown.
        """
        results, best = self.loaded.results, self.ranked[0]
        if math.isnan(recorded.noise) or not _overlap(results, recorded):
            return 0.0
        high = interval(best.times(results.reference))[1]
        alike = sum(interval(i.times(results.reference))[0] <= high for i in self.ranked)
        return noise_of(recorded.noise, len(best.samples)) * math.sqrt(2 * math.log(alike))

    def candidate(self, implementation: Implementation) -> Candidate:
        index = self.domain.number(implementation.configuration)
        assert index is not None, "every configuration of the file is in the domain"
        space = self.domain.spaces[index].space
        traversal = implementation.order(space.graph, self.loaded.path)
        try:
            collections.deque(space.replay(traversal), maxlen=0)
        except UsageError as error:  # an earlier dagc inferred other edges between the ops
            raise UsageError(
                f"{self.loaded.path}: a measured implementation is not in the space of the program as this dagc reads"
                f" it: {error.message}",
                "measure again with `dagc explore` into another file",
            ) from None
        return Candidate(index, traversal)

    def ask(self, options: ExplainOptions, recorded: ReplayMachine | None = None) -> Inquiry:
        known = [self.candidate(i) for i in self.loaded.results.measured() if not i.failure]
        usable = None if recorded is None else (lambda c: recorded.passes(c) > 0)
        return ask(self.learned, self.domain, self.best, variants=options.variants, known=known, usable=usable)

    def explained(
        self, domain: Orders, asked: Inquiry, answers: Answers, notes: Sequence[str]
    ) -> tuple[Explanation, bool]:
        """The explanation, and whether the user interrupted the measurement. `domain`: that of the questions."""
        objective = self.loaded.results.objective
        return explanation(self.learned, domain, asked, answers, self.value, notes, objective), answers.interrupted


@dataclass(slots=True)
class _Pairs:
    """Times candidates against a base in interleaved pairs; after an interruption, nothing more."""

    machine: Machine[Candidate]
    store: Store[Candidate]
    options: TimingOptions
    most: Callable[[Candidate], int] | None = None
    progress: Callable[[int, int], None] | None = None
    interrupted: bool = False

    def __call__(self, base: Candidate, candidates: Sequence[Candidate]) -> Sequence[PairTiming]:
        if self.interrupted:
            return [PairTiming(failure="not timed") for _ in candidates]
        timed = time_pairs(base, candidates, self.machine, self.store, self.options, self.most, self.progress)
        self.interrupted = timed.interrupted
        return timed.timings


# ---- on a recording -------------------------------------------------------------------------


class _Recording:
    """The times of a results file, for the fastest of the same or another one."""

    def __init__(self, loaded: Loaded, options: ExplainOptions, replay: str) -> None:
        """Raises UsageError."""
        from dagc.store.records import load  # loads msgspec, sqlite3

        same = os.path.realpath(replay) == os.path.realpath(loaded.path)
        recorded = loaded.results if same else load(replay, loaded.results.objective.text)
        if not recorded.program.is_same(loaded.results.program):
            raise UsageError(
                f"{replay} holds results of another program ({recorded.program.hash}, not"
                f" {loaded.results.program.hash})",
                "replay an exploration of the same text and parameters",
            )
        self.subject = subject = Subject(loaded)
        self.machine = ReplayMachine(recorded, subject.domain, options.seed)
        if not self.machine.passes(subject.best):
            raise UsageError(f"{replay} has no times of the fastest of {loaded.path}", "replay a full exploration")
        selection_bias = subject.selection_bias(recorded)
        series = (i.times(recorded.reference) for i in recorded.measured())
        alike = tuple(math.log(b / a) for times in series for a, b in pairwise(times))
        self.timing = TimingOptions(
            pairs=options.pairs, noise=recorded.noise, selection_bias=selection_bias, seed=options.seed,
            together=True, alike=alike,
        )  # fmt: skip
        self.note = f"times are replayed from {replay}; only recorded implementations can be edits"
        if selection_bias:
            share = f"{100 * selection_bias:.1f} %"
            self.note += f"; the best was chosen by these times: up to {share} of each cost may be selection bias"

    def passes(self, edit: Candidate) -> int:
        """More pairs than recorded passes would only appear to be more data."""
        return min(self.machine.passes(self.subject.best), self.machine.passes(edit))


def replayed(loaded: Loaded, options: ExplainOptions, replay: str) -> tuple[Explanation | BundlesView, bool]:
    """With the times of a recording; and whether the user interrupted. Raises UsageError."""
    recorded = _Recording(loaded, options, replay)
    subject, machine, timing = recorded.subject, recorded.machine, recorded.timing
    other = _compared(subject, options)
    if other is not None:
        pairs = _Pairs(machine, UNKEPT, timing, recorded.passes)
        return _difference(subject, subject.domain, other, options.rank, pairs, [recorded.note])
    asked = subject.ask(options, machine)
    answers = answer(subject.domain, asked, machine, UNKEPT, timing, most=recorded.passes)
    return subject.explained(subject.domain, asked, answers, [recorded.note])


def _compared(subject: Subject, options: ExplainOptions) -> Candidate | None:
    """The implementation that is compared with the best; None: rules are asked for."""
    if options.original is not None:
        return subject.original(options.original)
    return None if options.rank is None else subject.other(options.rank)


def _difference(
    subject: Subject, domain: Orders, other: Candidate, rank: int | None, pairs: _Pairs, notes: Sequence[str]
) -> tuple[BundlesView, bool]:
    """The bundles of another implementation, of this rank. `domain` has the configurations of both, and those in
    between that can be timed."""
    between = [step for c in subject.between(other) if (step := domain.number(c)) is not None]
    best, moved = (subject.moved(c, domain) for c in (subject.best, other))
    found = difference_of(domain, best, moved, pairs, between)
    stopped = ["interrupted: some implementations were timed less, or not at all"] if pairs.interrupted else []
    objective = subject.loaded.results.objective
    return BundlesView.of(domain, found, rank, (*notes, *stopped), objective, pairs.options.noise), pairs.interrupted


def _overlap(one: Results, other: Results) -> bool:
    """Whether they have a run in common."""
    return any(a.started == b.started and a.machine.key == b.machine.key for a in one.runs for b in other.runs)


# ---- on the machine -------------------------------------------------------------------------


READING = "{}: reading, learning rules"


def measured(loaded: Loaded, options: ExplainOptions, link: RankLink) -> tuple[Explanation | BundlesView, bool]:
    """With times measured here, which the file keeps; and whether the user interrupted. Raises DagcErrors."""
    display = Display(quiet=options.quiet)
    with display.phase(READING.format(loaded.path)):
        subject = Subject(loaded)
        other = _compared(subject, options)
        asked = subject.ask(options) if other is None else None
    if other is not None:
        ends = _compiled(subject, (subject.best, other))
        steps = [(c, loaded.graph(c)) for c in subject.between(other) if ends.number(c) is None]
        domain = Orders([*ends.spaces, *(domain_of(steps).spaces if steps else ())])
        best, what = subject.moved(subject.best, domain), "timing decisions of the other"
        with _measuring(loaded, options, domain, link, display, best, what) as pairs:
            return _difference(subject, domain, other, options.rank, pairs, ())
    assert asked is not None
    if not any(question.edits for question in asked.questions):  # nothing to compile, nothing to time
        nothing = tuple(AnsweredQuestion(question, ()) for question in asked.questions)
        return subject.explained(subject.domain, asked, Answers(nothing, loaded.results.noise, False), ())
    domain = _compiled(subject, asked.candidates)
    asked = asked.moved(subject.domain, domain)
    what = f"timing {counted(len(set(asked.candidates)) - 1, 'edit')} of the best"
    with _measuring(loaded, options, domain, link, display, asked.best, what) as pairs:
        answers = answer(domain, asked, pairs.machine, pairs.store, pairs.options, progress=pairs.progress)
    return subject.explained(domain, asked, answers, ())


def _compiled(subject: Subject, candidates: Iterable[Candidate]) -> Orders:
    """Their configurations alone: others are not compiled."""
    return Orders([subject.domain.spaces[index] for index in sorted({candidate.space for candidate in candidates})])


@contextmanager
def _measuring(
    loaded: Loaded,
    options: ExplainOptions,
    domain: Orders,
    link: RankLink,
    display: Display,
    best: Candidate,
    what: str,
) -> Iterator[_Pairs]:
    """Real ranks, whose measurements the file keeps, after the noise floor was measured. `what` is shown meanwhile."""
    from dagc.store.records import Records  # loads msgspec, sqlite3

    earlier, results = _exploration(loaded), loaded.results
    chosen = choose_target(earlier.machine.target, earlier.machine.arch or None)
    objective_for(results.objective.text, chosen.target.value, domain.spaces[0].graph.program)
    machine = _machine(loaded, options, domain, link, chosen, display)
    run = _run(loaded, options, machine, chosen)
    with Records.open(loaded.path, results.program, run, resume=True, other_machine=options.other_machine) as records:
        machine.on_reference = records.reference
        for name in results.objective.metrics:
            records.metric(name, results.units[name])
        with display.phase("measuring the noise floor"):
            noise = machine.noise_floor(best)
        records.noise(noise)
        noise = results.noise if math.isnan(noise) else noise
        timing = TimingOptions(pairs=options.pairs, noise=noise, seed=options.seed)
        with display.phase(what, unit="pair") as phase:
            yield _Pairs(machine, OrderStore(domain, records), timing, progress=phase.at)


def _machine(
    loaded: Loaded,
    options: ExplainOptions,
    domain: Orders,
    link: RankLink,
    chosen: TargetChoice,
    display: Display,
) -> LiveMachine:
    """The runner libraries and the arrays of the domain, on real ranks. The arrays are those of the exploration."""
    configurations = [Configured(a.configuration, a.configuration, a.graph) for a in domain.spaces]
    require_transports(configurations, chosen, options.mpi_takes_device_pointers, ranks_of(loaded))
    folder = Path(loaded.path).parent / f"{Path(loaded.path).stem}-build"
    data = arrays_of(loaded, options, domain, folder)
    libraries = build_runners(configurations, chosen, folder / "explain", display)
    earlier, first = _exploration(loaded), domain.spaces[0].graph.program
    arrays = ArraysOf(
        first, data, earlier.ranks, earlier.seed, options.data is not None, options.mpi_takes_device_pointers
    )
    runners = {s.configuration: arrays.library(libraries[s.configuration], s.graph.program) for s in domain.spaces}
    loadables = [loadable_of(space, runners[space.configuration]) for space in domain.spaces]
    return LiveMachine(
        domain, loadables, link, seconds=options.seconds, watchdog=options.watchdog,
        objective=loaded.results.objective,
    )  # fmt: skip


RANKS_PER_CORE = 16  # most ranks that are started because of a file's content


def ranks_of(loaded: Loaded) -> int:
    """The number of ranks of the measurement. Raises UsageError if this machine should not start as many."""
    ranks, cores = _exploration(loaded).ranks, os.cpu_count() or 1
    if joined() is None and ranks > RANKS_PER_CORE * cores:
        raise UsageError(
            f"{loaded.path}: measured on {ranks} ranks, more than {RANKS_PER_CORE} for each of the {cores} cores here",
            f"start it where they fit: mpiexec -n {ranks} dagc explain ..., or use --replay",
        )
    return ranks


def _exploration(loaded: Loaded) -> Run:
    """The run whose machine, ranks and arrays are reused."""
    runs = loaded.results.runs
    return next((run for run in reversed(runs) if run.strategy != "explain"), runs[-1])


def arrays_of(loaded: Loaded, options: ExplainOptions, domain: Orders, folder: Path) -> Path:
    """The arrays: those given, else those of the exploration next to the results file, which are made again if they are
    missing. A directory that only the file names is not read: the user has to name it.

    Raises UsageError if that is impossible.
    """
    earlier = _exploration(loaded)
    program = domain.spaces[0].graph.program
    recorded = earlier.options.get("data")
    if options.data is None and recorded is not None:
        shown = shlex.quote("".join(c if c.isprintable() else "\ufffd" for c in recorded))
        raise UsageError(
            f"{loaded.path} was measured with arrays that were given, which a results file may not choose for you",
            f"give them again, if you know this directory: --data {shown}",
        )
    data = Path(options.data) if options.data is not None else folder / arrays_name(program, earlier.ranks)
    if options.data is not None or (data.is_dir() and is_output(data)):
        check_arrays(program, data, earlier.ranks)
        return data
    if not Path(program.path).is_file():
        raise UsageError(
            f"{program.path}, whose set-up makes the arrays, is not there",
            "run this where `dagc explore` was run, or give the arrays with --data DIR",
        )
    clear_incomplete(data)
    run_setup(program, Path(program.path).parent, earlier.ranks, earlier.seed, data)
    return data


def _run(loaded: Loaded, options: ExplainOptions, machine: LiveMachine, chosen: TargetChoice) -> Run:
    earlier = _exploration(loaded)
    return Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine.facts(chosen.target.value, chosen.arch), ranks=earlier.ranks, seed=options.seed,
        strategy="explain", seconds=options.seconds,
        revision=revision(Path(loaded.results.program.path).parent), version=__version__, options=asdict(options),
    )  # fmt: skip

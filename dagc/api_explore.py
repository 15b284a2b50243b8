"""The recipe of `dagc explore`: configurations -> domain -> strategy and machine -> records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.api_explored import Explored
from dagc.api_runs import (
    arrays_of,
    builder,
    configured,
    domain_of,
    loadables_of,
    program_record,
    require_machine,
    run_record,
    setup_digest,
    that_can_run,
    working,
)
from dagc.api_tune_use import LaunchSource, choosers_for, launched
from dagc.errors import UsageError
from dagc.tune.settings import Fixed, fixed_in, fixed_of, not_searched, without_settings

if TYPE_CHECKING:
    from dagc.configurations import Configured
    from dagc.ir import Program
    from dagc.records import Records
    from dagc.report.live import Display
    from dagc.results import Configuration, ImplementationId, Results, Run
    from dagc.run.link import Link
    from dagc.run.live import LiveMachine
    from dagc.search.domain import Candidate, Domain
    from dagc.search.engine import Known, Store, Summary
    from dagc.search.engine import Machine as Measurer


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """What the command line gives; docs/reference/commands.md has every option with its unit.

    `strategy` None is the default of `dagc.search.strategy`, `transport` "all" or names with commas, `capture` "off",
    "on", "both" or None (both with GPUs, off without); `launch` is "fixed", "auto", the path of a tuned file, or None
    (auto with GPUs, fixed without);
    `time`, `seconds` and `watchdog` are in seconds.
    """

    ranks: int = 4
    strategy: str | None = None
    budget: int | None = None
    time: float | None = None
    transport: str = "all"
    capture: str | None = None
    opened: tuple[str, ...] = ()
    prune_syncs: bool = False
    passes: int = 1
    confirm: int = 10
    repeats: int = 5
    seconds: float = 0.01
    seed: int = 0
    resume: bool = False
    other_machine: bool = False
    replay: str | None = None
    data: str | None = None
    target: str | None = None
    arch: str | None = None
    most: int = 100_000
    most_configurations: int = 64
    watchdog: float = 20.0
    trace: bool = True
    mpi_takes_device_pointers: bool = False
    quiet: bool = False
    launch: str | None = None


DEFAULT_BUDGET = 200
NOISE_SHARE = 0.1  # of the time that is given, for measuring the noise floor before the search


def strategies() -> tuple[tuple[str, str], ...]:
    """(name, one line) of every strategy."""
    from dagc.search.strategy import find, names

    return tuple((name, find(name).summary) for name in names())


# ---- the recipe -----------------------------------------------------------------------------


def explore(
    path: str | Path, out: str | Path | None, options: ExploreOptions, defines: Mapping[str, Any] | None = None
) -> Explored | None:
    """Search the implementations of a `.dag` text for the fastest, and keep every measurement in `out`.

    `out` is a results file (default: `dagc-out/PROGRAM.db`; with `replay`: none). Runs the set-up's Python code, unless
    `data` has its arrays already or times are replayed. None on ranks but the first, where the user started several.
    Raises DagcErrors; a measurement that fails is recorded and the search goes on.
    """
    from dagc.search.strategy import find

    if options.strategy is not None:
        find(options.strategy)
    if options.replay is not None:
        return _explore_replayed(path, out, options, dict(defines or {}))
    from dagc.run.link import link_ranks

    link = link_ranks(options.ranks)
    if link is None:
        return None
    with link:
        return _explore_here(path, out, options, dict(defines or {}), link)


def _explore_here(
    path: str | Path, out: str | Path | None, options: ExploreOptions, defines: dict[str, Any], link: Link
) -> Explored:
    from dagc.plan import Target
    from dagc.records import Records, check_resumable, load
    from dagc.report.live import Display, warn
    from dagc.results import noise_advice
    from dagc.run.live import LiveMachine
    from dagc.run.target import choose_target

    display = Display(quiet=options.quiet)
    chosen = choose_target(options.target, options.arch)
    program, found, notes = configured(path, options, defines, chosen.target is Target.CUDA)
    output = Path(out) if out is not None else Path("dagc-out") / f"{program.name}.db"
    if output.exists() and not options.resume:  # before anything is compiled
        raise UsageError(f"{output} exists", "go on with it by --resume, or choose another name with -o")
    earlier = None
    if output.exists():
        check_resumable(output, program_record(program), options.ranks)
        earlier = load(output)
    elif options.resume:
        notes.append(f"{output} did not exist; it was begun anew")
    require_machine(chosen)
    folder = output.parent / f"{output.stem}-build"
    found = that_can_run(found, chosen, options, notes)
    source = LaunchSource(options.launch, chosen, earlier)
    choosers = choosers_for(source, found, builder(path, without_settings(program, defines)))
    data = arrays_of(program, folder, options, display)
    with display.phase("counting the implementations"):
        options = _with_strategy(options, domain_of(found, options))
    made = launched(path, source, found, choosers, data, options, builder(path, defines), display)
    fixed = _fixed(program, found, made.settings, defines)
    found, domain = list(made.found), domain_of(made.found, options)
    notes += made.notes
    domain, loadables, excluded = loadables_of(domain, found, chosen, folder, data, link, options, display)
    with ExitStack() as stack:
        records: list[Records] = []
        machine = LiveMachine(
            domain, loadables, link, seconds=options.seconds, watchdog=options.watchdog,
            on_reference=lambda seconds: records[0].reference(seconds) if records else None,
        )  # fmt: skip
        facts = machine.facts(chosen.target.value, chosen.arch)
        run = run_record(facts, options, Path(path), setup_digest(Path(path), program, options), fixed)
        records.append(
            stack.enter_context(
                Records.open(
                    output, program_record(program), run, resume=options.resume, other_machine=options.other_machine
                )
            )
        )
        domain, wrong = working(machine, domain, display)
        for left in (*excluded, *wrong):
            notes.append(f"without {left.arm.configuration.text}: {left.failure}")
            records[0].fail(records[0].begin(left.arm.configuration, left.traversal), left.failure)
        limit = math.inf if options.time is None else NOISE_SHARE * options.time
        with display.phase("measuring the noise floor"):
            noise = machine.noise_floor(_first(domain), limit=limit)
        records[0].noise(noise)
        warn(noise_advice(noise, facts, options.ranks), quiet=options.quiet)
        if options.data is None:
            notes += _other_arrays(output, records[0].results().runs, run)
        if records[0].under_way is not None:
            died = records[0].under_way
            notes.append(f"the last run ended while it measured {died.configuration.text}: {died.traversal}")
        before = records[0].results() if options.resume else None
        done = _search(domain, machine, records[0], options, noise, before, display)
        machine.time_reference()
        results = records[0].results()
        done, noise = _settled(done, domain, results), results.noise
        notes += noise_advice(noise, facts, options.ranks)
        if options.trace and not done.interrupted:
            with display.phase("tracing the best and the slowest"):
                _trace(machine, domain, records[0], done)
    return _explored(done, domain, output, notes, noise, results.runs)


def _fixed(
    program: Program, found: Sequence[Configured], settings: Sequence[Fixed], defines: Mapping[str, Any]
) -> tuple[Fixed, ...]:
    """The choices that the search leaves alone, of all its configurations. `settings`: those that tuning has set."""
    searched = {name for configured in found for name in configured.defines}
    return tuple(dict.fromkeys((*not_searched(program, defines, searched, settings), *settings)))


def _with_strategy(options: ExploreOptions, domain: Domain) -> ExploreOptions:
    """With the default strategy where the user has named none."""
    from dagc.search.strategy import default

    return options if options.strategy is not None else replace(options, strategy=default(domain))


def _other_arrays(output: Path, runs: Sequence[Run], now: Run) -> list[str]:
    """In what the arrays of earlier runs of a file differ from those of this one."""
    out = []
    seeds = {earlier.seed for earlier in runs} - {now.seed}
    if seeds:
        out.append(f"earlier runs of {output} had arrays of seed {', '.join(map(str, sorted(seeds)))}")
    if {earlier.options.get("setup", now.options.get("setup")) for earlier in runs} - {now.options.get("setup")}:
        out.append(f"earlier runs of {output} had arrays of another set-up: its file has changed")
    return out


def _explore_replayed(
    path: str | Path, out: str | Path | None, options: ExploreOptions, defines: dict[str, Any]
) -> Explored:
    """A recorded results file in place of the machine."""
    from dagc.plan import program_hash
    from dagc.records import Records, load
    from dagc.report.live import Display
    from dagc.run.target import choose_target
    from dagc.search.replay import ReplayMachine

    display = Display(quiet=options.quiet)
    assert options.replay is not None
    recorded = load(options.replay)
    program, found, notes = configured(path, options, defines, gpus=True)
    if program_hash(program) != recorded.program.hash:
        raise UsageError(
            f"{options.replay} holds results of another program ({recorded.program.name} {recorded.program.hash};"
            f" this is {program.name} {program_hash(program)})",
            "give the .dag text and the -D that it was recorded with",
        )
    known = {i.configuration for i in recorded.implementations}
    if options.launch not in (None, "fixed"):
        raise UsageError("--launch and --replay: recorded times have their launch settings", "drop --launch")
    source = LaunchSource(options.launch, choose_target("host", None), recorded)
    found = list(launched(path, source, found, {}, Path(), options, builder(path, defines), display).found)
    found = [c for c in found if c.configuration in known]
    if not found:
        some = ", ".join(sorted(c.text for c in known)[:3])
        raise UsageError(f"{options.replay} has none of these configurations", f"it has: {some}")
    domain = domain_of(found, options)
    options = _with_strategy(options, domain)
    machine = ReplayMachine(recorded, domain, options.seed)
    notes.append(f"times are those of {options.replay}; nothing was measured")
    if out is None:
        return _explored(
            _search(domain, machine, _Unkept(), options, recorded.noise, None, display), domain, None, notes,
            recorded.noise, recorded.runs,
        )  # fmt: skip
    run = run_record(recorded.runs[0].machine, options, Path(path), fixed=fixed_in(recorded.runs))
    with Records.open(
        out, program_record(program), run, resume=options.resume, other_machine=options.other_machine
    ) as records:
        records.noise(recorded.noise)
        earlier = records.results() if options.resume else None
        done = _search(domain, machine, records, options, recorded.noise, earlier, display)
    return _explored(done, domain, Path(out), notes, recorded.noise, recorded.runs)


class _Unkept:
    """A store that keeps nothing: a replay can be repeated."""

    def begin(self, configuration: Configuration, traversal: str) -> ImplementationId:
        from dagc.results import ImplementationId

        return ImplementationId(0)

    def add(
        self, number: ImplementationId, seconds: float, reference: float, iterations: int, purpose: str = "search"
    ) -> None:
        pass

    def fail(self, number: ImplementationId, failure: str) -> None:
        pass


def _search(
    domain: Domain,
    machine: Measurer,
    store: Store,
    options: ExploreOptions,
    noise: float,
    earlier: Results | None,
    display: Display,
) -> Summary:
    from dagc.search.engine import Options
    from dagc.search.engine import explore as run_search
    from dagc.search.strategy import find

    budget = options.budget
    assert options.strategy is not None, "chosen with the domain"
    if budget is None and options.strategy != "exhaustive" and options.time is None:
        budget = DEFAULT_BUDGET
    chosen = Options(budget, options.time, options.passes, options.confirm, options.repeats, options.seed)

    def describe(candidate: Candidate) -> str:
        return f"{domain.arms[candidate.arm].configuration.text}\n{_text(domain, candidate)}"

    with display.search(noise, describe) as progress:
        return run_search(
            domain,
            find(options.strategy)(domain, options.seed),
            machine,
            store,
            chosen,
            known=_known(earlier, domain) if earlier is not None else (),
            base=earlier.reference if earlier is not None else math.nan,
            same=_same_work(domain) if options.prune_syncs else None,
            progress=progress,
        )


def _settled(done: Summary, domain: Domain, results: Results) -> Summary:
    """The best by the whole file, with drift divided out as everybody who reads the file does."""
    from dagc.results import lowest, ranking, ties
    from dagc.search.domain import Candidate
    from dagc.statistics import interval
    from dagc.text import parse_traversal

    ranked = [i for i in ranking(results) if domain.number(i.configuration) is not None]
    if not ranked:
        return done
    first, reference = ranked[0], results.reference
    arm = domain.number(first.configuration)
    assert arm is not None
    low, high = interval(first.times(reference))
    return replace(
        done,
        best=Candidate(arm, parse_traversal(first.traversal, domain.arms[arm].space.graph, "the results file")),
        seconds=first.seconds(reference), low=low, high=high, measurements_of_best=len(first.measurements),
        ties=ties([i.times(reference) for i in ranked], results.noise),
        worst=results.measured()[-1].seconds(reference), lowest=lowest(results),
    )  # fmt: skip


def _known(earlier: Results, domain: Domain) -> list[Known]:
    """What a results file knows of the candidates of a domain."""
    from dagc.search.domain import Candidate
    from dagc.search.engine import Known
    from dagc.text import parse_traversal

    out = []
    for found in earlier.implementations:
        arm = domain.number(found.configuration)
        if arm is not None and (found.measurements or found.failure):
            traversal = parse_traversal(found.traversal, domain.arms[arm].space.graph, "the results file")
            out.append(Known(Candidate(arm, traversal), found.times(earlier.reference), found.failure))
    return out


def _same_work(domain: Domain) -> Callable[[Candidate], str]:
    """Equal for candidates that are equal once sync ops that prove nothing are removed."""
    from dagc.space.prune import prune
    from dagc.text import traversal_text
    from dagc.verify import Prover

    provers = [Prover(arm.space.graph) for arm in domain.arms]

    def key(candidate: Candidate) -> str:
        graph = domain.arms[candidate.arm].space.graph
        return f"{candidate.arm} {traversal_text(prune(candidate.traversal, provers[candidate.arm]), graph)}"

    return key


def _explored(
    done: Summary, domain: Domain, output: Path | None, notes: Sequence[str], noise: float, runs: Sequence[Run]
) -> Explored:
    from dagc.text import traversal_text

    configuration, text = None, ""
    fixed: tuple[Fixed, ...] = ()
    if done.best is not None:
        arm = domain.arms[done.best.arm]
        configuration, text = arm.configuration, traversal_text(done.best.traversal, arm.space.graph)
        fixed = fixed_of(runs, configuration)
    return Explored(done, configuration, text, output, tuple(notes), noise, domain.more_than(), fixed)


# ---- traces ---------------------------------------------------------------------------------


def _first(domain: Domain) -> Candidate:
    from dagc.search.domain import Candidate

    return Candidate(0, domain.arms[0].space.first())


def _trace(machine: LiveMachine, domain: Domain, records: Records, done: Summary) -> None:
    """Traces of the best and of the slowest, for the report's timelines."""
    from dagc.search.domain import Candidate
    from dagc.text import parse_traversal

    if done.best is None:
        return
    best = domain.arms[done.best.arm]
    number = records.begin(best.configuration, _text(domain, done.best))
    records.trace(number, machine.trace(done.best))
    slowest = records.results().measured()[-1]
    arm = domain.number(slowest.configuration)
    if arm is not None and slowest.id != number:
        traversal = parse_traversal(slowest.traversal, domain.arms[arm].space.graph, "the results file")
        records.trace(slowest.id, machine.trace(Candidate(arm, traversal)))


def _text(domain: Domain, candidate: Candidate) -> str:
    from dagc.text import traversal_text

    return traversal_text(candidate.traversal, domain.arms[candidate.arm].space.graph)

"""`dagc explore`: configurations -> domain -> strategy and machine -> records; and how a search ended."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.children import Workers
from dagc.base.deadline import ENDLESS, Clock, Deadline
from dagc.base.errors import ProgramError, UsageError, WrongResult, counted
from dagc.base.objective import TIME, Objective
from dagc.base.sample import Sample
from dagc.build.toolchain import choose_target
from dagc.ir.plan import Target
from dagc.ir.traversal import parse_traversal, traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine as Measurer
from dagc.lab.engine import SearchOptions, Store, Summary
from dagc.lab.engine import explore as run_search
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore
from dagc.lab.replay import UNKEPT, ReplayMachine
from dagc.lab.strategy import Judge, default, find, names
from dagc.learn.disagreement import WRONG, Disagreement, SpaceKind, by_settings, disagreement
from dagc.measure.metrics import objective_for, units
from dagc.measure.service import RankLink, link_ranks
from dagc.report import si
from dagc.report.display import Display, warn
from dagc.space.loops import waits_between
from dagc.space.proof import Prover, prune
from dagc.stages.options import EarlierOptions, ExploreOptions, StrategyOptions
from dagc.stages.program import ProgramText, read
from dagc.store.results import (
    Implementation,
    MachineRecord,
    Results,
    Run,
    best_estimate,
    lowest,
    noise_advice,
    ranking,
    timed,
)
from dagc.store.settings import Fixed, Kernels, fixed_in, fixed_of, fixed_text, not_searched, without_settings
from dagc.study.launch import (
    Sites,
    choosers_for,
    launch_sites,
    launched,
    predicted,
    timed_sites,
    variants_by_file,
    with_defaults,
)
from dagc.study.runs import (
    SEARCH,
    Compilation,
    Excluded,
    SearchRequest,
    Usable,
    arrays_under_way,
    check_as_built,
    compiling,
    configured,
    domain_of,
    excluded_notes,
    is_folded,
    program_record,
    require_machine,
    run_record,
    setup_digest,
    that_can_run,
)

if TYPE_CHECKING:
    from dagc.ir.choice import Choice
    from dagc.ir.program import Program
    from dagc.lab.configurations import Configured
    from dagc.store.records import Records


# ---- how an exploration ended ----


REASONS = 3  # number of failure reasons shown
UNTIL = 0.01  # a search ends by itself if nothing faster by more than this fraction is expected
_RANK = re.compile(r"\brank \d+: ")
DISTINCT = 0.005  # a lowest time this close to the median is not reported


@dataclass(frozen=True, slots=True)
class Explored:
    """How an exploration ended, and where its results are. `fixed`: choices of the best that were not searched.

    `disagreement`: implementations that differ only in their order give right and wrong results, so none is the best.
    """

    summary: Summary[Candidate]
    configuration: Choice | None
    traversal: str
    output: Path | None
    notes: tuple[str, ...]
    noise: float
    more_than: int = 0  # lower bound of implementations if the space is too large to be counted
    fixed: tuple[Fixed, ...] = ()
    objective: Objective = TIME
    until: float = UNTIL
    waits: str = ""  # of the best between the rounds of a loop
    disagreement: Disagreement | None = None

    @property
    def exit_code(self) -> int:
        """0; 130 if the user interrupted, 1 if results are wrong in some orders, 5 if nothing could be measured."""
        if self.summary.interrupted:
            return 130
        if self.disagreement is not None:
            return WrongResult.exit_code
        return 0 if self.summary.best is not None else 5

    def render(self) -> str:
        """A few lines: the search, the best with its interval, the failures, and how to get its code."""
        s = self.summary
        notes = self.notes
        if s.given_up:
            notes = (*notes, f"the strategy's model was given up: {s.given_up}; the search went on without a model")
        more = f"more than {si.about(self.more_than)}"
        space = f"a space of {si.exact(s.space) if s.space is not None else more}"
        out = [f"note       {note}" for note in notes]
        failed = f", {s.failures} failed" if s.failures else ""
        done = f"{counted(s.implementations, 'implementation')} of {space}, {counted(s.measurements, 'measurement')}"
        out.append(f"measured   {done}{failed}")
        out += [f"failed     {count} x {reason}" for reason, count in s.reasons[:REASONS]]
        if len(s.reasons) > REASONS:
            out.append(f"           and {counted(len(s.reasons) - REASONS, 'other reason')}; dagc export has all")
        out.append(f"time       {s.measuring:.1f} s measuring, {s.overhead:.1f} s searching and writing")
        if not math.isnan(s.doubt):
            left = (
                f"an implementation faster by more than {100 * self.until:.3g} % remains with probability {s.doubt:.2f}"
            )
            out.append(f"ended      {left}")
        if self.disagreement is not None:
            first, *others = self.disagreement.lines
            kept = [] if self.output is None else [f"results    {self.output} keeps the measurements and the failures"]
            return "\n".join([*out, f"best       none: {first}", *(f"           {line}" for line in others), *kept, ""])
        if s.best is None or self.configuration is None:
            early = (
                "interrupted before the first measurement"
                if s.interrupted
                else "the time limit ended before anything was measured"
            )
            why = "nothing could be measured" if s.failures else early
            return "\n".join([*out, f"best       none: {why}", ""])
        interval_of = spread(s.low, s.high, s.measurements_of_best, self.objective, shrunk=s.shrunk)
        out += [
            f"best       {self.objective.named(s.value)} ({interval_of}){equal(s.ties)}",
            *self._how_sure(),
            *self._extent(),
            f"           {self.configuration.text}",
            f"           {self.traversal}",
            *([f"           {self.waits}"] if self.waits else []),
            *fixed_lines(self.fixed),
        ]
        if self.output is not None:
            out.append(f"results    {self.output}; dagc best, rules, explain and report read it")
        if s.interrupted:
            out.append("           interrupted; --resume continues")
        return "\n".join(out) + "\n"

    def _extent(self) -> list[str]:
        """The ratio of the worst to the best, if there are several, and the noise floor, if it is known."""
        s = self.summary
        worst = (
            "slowest measured takes {:.2f} times as long"
            if self.objective.is_time
            else "worst measured has {:.2f} times as much"
        )
        out = [f"the {worst.format(s.worst / s.value)}"] if s.implementations > 1 else []
        out += [] if math.isnan(self.noise) else [f"noise floor {100 * self.noise:.1f} %"]
        return [f"           {'; '.join(out)}"] if out else []

    def _how_sure(self) -> list[str]:
        """Notes if the best is not confirmed, or if the result differs from the lowest time of the progress display."""
        s = self.summary
        out = [] if s.confirmed else unconfirmed(s.measurements_of_best, s.repeats)
        if s.confirmed and s.lowest < s.value * (1 - DISTINCT):
            lowest, value = self.objective.named(s.lowest), self.objective.named(s.value)
            out.append(f"           lowest single measurement {lowest}; {value} after confirmation")
        if abs(s.displayed / s.lowest - 1) > DISTINCT:
            shown = self.objective.named(s.displayed)
            out.append(
                f"           displayed while searching as {shown}: times are now scaled to the median speed"
                " of the machine, not to that at the start"
            )
        return out


def equal(ties: int) -> str:
    """`, 34 others are equal to it within the noise`, "" for none."""
    return f", {counted(ties, 'other')} {'is' if ties == 1 else 'are'} equal to it within the noise" if ties else ""


def unconfirmed(measurements: int, repeats: int) -> list[str]:
    """The line for a choice that was measured fewer than `repeats` times; none for others."""
    if measurements >= repeats:
        return []
    often = f"{measurements} of {counted(repeats, 'measurement')}"
    return [f"           unconfirmed: {often}, perhaps the best by chance; `dagc explore --resume` measures it again"]


def fixed_lines(fixed: Sequence[Fixed]) -> list[str]:
    """The choices that were not searched, a line for each origin of values."""
    if not fixed:
        return []
    head = ("fixed", *[""] * len(fixed))
    return [f"{word:10} {line}" for word, line in zip(head, fixed_text(fixed), strict=False)]


def spread(low: float, high: float, measurements: int, objective: Objective = TIME, *, shrunk: bool = False) -> str:
    """`95%: 20.76 us to 21.20 us, 10 measurements`; `low` and `high` are values of the objective.

    With fewer than six measurements even their whole range has less than 95% confidence, unless the estimate is
    `shrunk`; a single one has no range.
    """
    number = counted(measurements, "measurement")
    if measurements == 1:
        return number
    what = "95%" if shrunk or measurements >= 6 else "range"
    return f"{what}: {objective.show(low)} to {objective.show(high)}, {number}"


# ---- the recipe: configurations -> domain -> strategy and machine -> records ----


DEFAULT_BUDGET = 200  # budget of strategies that cannot estimate when to end
MOST = 2000  # most measurements of a search without a budget
NOISE_SHARE = 0.1  # fraction of the time that is left for measuring the noise floor before the search
# Of the time limit: when no further configuration is waited for. A transport is worth a factor, an order a fraction.
BUILD_SHARE = 0.85
SEARCH_SHARE = 0.97  # of the time that is left for the search; the rest is for traces


def strategies() -> tuple[tuple[str, str], ...]:
    """(name, one line) of every strategy."""
    return tuple((name, find(name).summary) for name in names())


# ---- the recipe -----------------------------------------------------------------------------


def explore(
    path: str | Path,
    out: str | Path | None,
    options: ExploreOptions,
    defines: Mapping[str, Any] | None = None,
    clock: Clock = time.monotonic,
) -> Explored | None:
    """Search the implementations of a `.dag` text for the fastest, and keep every measurement in `out`.

    `out` is a results file (default: `dagc-out/PROGRAM.db`; with `replay`: none). Runs the set-up's Python code, unless
    `data` already contains its arrays or times are replayed. A time limit is for all of it, by `clock`. None on all
    ranks but the first if the user started several. Raises DagcErrors; a measurement that fails is recorded, and the
    search continues.
    """
    _check_strategy(options)
    deadline = Deadline.after(options.time, clock)
    if options.replay is not None:
        return _explore_replayed(read(path, defines, not options.unroll), out, options, deadline)

    link = link_ranks(options.ranks)
    if link is None:
        return None
    with link:
        return _explore_here(read(path, defines, not options.unroll), out, options, link, deadline)


@dataclass(frozen=True, slots=True)
class Ready:
    """The search, with everything that must be known before anything is measured; its libraries are being built."""

    request: SearchRequest
    program: Program
    output: Path
    domain: Orders
    fixed: tuple[Fixed, ...]
    notes: list[str]
    data: Path
    compilation: Compilation

    def machine(self, link: RankLink) -> LiveMachine:
        """Measures its candidates on these ranks, as soon as their configurations are loaded."""
        request = self.request
        return LiveMachine(
            self.domain, (), link, seconds=request.options.seconds, watchdog=request.options.watchdog,
            objective=request.objective,
        )  # fmt: skip


def ready(
    text: ProgramText,
    out: str | Path | None,
    options: ExploreOptions,
    display: Display,
    stack: ExitStack,
    deadline: Deadline = ENDLESS,
) -> Ready:
    """Text -> configurations, with their launch settings -> domain. The set-up and the compilers run beside it, and end
    with `stack`."""
    request, output, missing = _requested(text, out, options, display)
    request = replace(request, deadline=deadline)
    folder = output.parent / f"{output.stem}-build"

    @cache
    def under_way() -> Callable[[], Path]:
        require_machine(request.chosen)
        return stack.enter_context(arrays_under_way(request.text.program(), folder, request))

    def arrays() -> Path:
        return under_way()()

    taken, remarks = variants_by_file(request, arrays)  # which are then not searched
    request = replace(
        request, text=request.text.with_defines({**request.text.defines, **{f.name: f.value for f in taken}})
    )
    program, configurations, notes = configured(request.text, request.options, request.chosen.target is Target.CUDA)
    notes += [*remarks, *missing]
    request = _for_objective(request, program, configurations, output)
    require_machine(request.chosen)
    configurations = that_can_run(configurations, request.chosen, request.options, notes)
    choosers = _choosers(request, program, configurations)
    under_way()
    settled = launched(request, configurations, choosers, arrays)
    configurations = list(settled.configurations)
    # All that may stay open at run time: which settings fit, the arrays tell.
    every = launch_sites(request, configurations, None)
    compilation = stack.enter_context(
        compiling(configurations, request.chosen, folder, every.of, hurry=deadline.timeout is not None)
    )
    sites = launch_sites(request, configurations, arrays())
    fixed = _fixed(program, configurations, (*taken, *settled.settings), request.text.defines, sites)
    request, domain = _domain(request, configurations, sites, notes)
    notes += settled.notes
    return Ready(request, program, output, domain, fixed, notes, arrays(), compilation)


def checked(prepared: Ready, machine: LiveMachine) -> tuple[MachineRecord, Usable]:
    """The machine's facts, and the configurations that can be searched, checked as they are built. While compilers run,
    the ranks start, the space is counted, and the model ranks launch settings."""
    request, domain, deadline = prepared.request, prepared.domain, prepared.request.deadline
    with Workers(1) as pool:
        predicting = pool.submit(predicted, request, domain.spaces, prepared.data)
        facts = machine.facts(request.chosen.target.value, request.chosen.arch)
        domain.size()
        out = check_as_built(machine, prepared.compilation, request, prepared.data, deadline.part(BUILD_SHARE))
        prepared.compilation.stop()
        if deadline.over:
            took = f"took {deadline.passed:.0f} s, longer than --time {deadline.seconds:g} s"
            prepared.notes.append(f"to set up, compile and check the first configuration {took}")
        wait([predicting], deadline.part(BUILD_SHARE).timeout)
        if not predicting.done():
            prepared.notes.append("the model ranked no launch settings within the time limit (--time)")
            pool.stop()
        else:
            _use(machine, predicting.result(), prepared.notes)
            out = replace(out, domain=machine.domain)
    late = ((s.configuration, "not built and checked within the time limit (--time)") for s in out.late)
    prepared.notes.extend(excluded_notes((choices, why, why) for choices, why in late))
    return facts, out


def _use(machine: LiveMachine, sites: Sites, notes: list[str]) -> None:
    """The domain of the machine with predicted times of launch settings."""
    if sites.of:
        spaces = [replace(s, sites=sites.of.get(s.configuration, s.sites)) for s in machine.domain.spaces]
        machine.domain = Orders(spaces, machine.domain.earlier)
    notes += sites.notes


def _requested(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, display: Display
) -> tuple[SearchRequest, Path, list[str]]:
    """The request, the results file, and notes of what the target leaves out. Raises UsageError for a file that cannot
    be continued, before anything is compiled."""
    from dagc.store.records import check_resumable, is_fresh  # loads msgspec, sqlite3

    chosen = choose_target(options.target, options.arch)
    text, missing = text.on(chosen.target)
    program = text.program()
    other = _other_results(program, options)  # its errors come before the arrays of the ranks are created
    output = Path(out) if out is not None else Path("dagc-out") / f"{program.name}.db"
    fresh = is_fresh(output, options.resume)
    earlier = None if fresh else check_resumable(output, program_record(program), options.ranks)
    notes = [f"without {what}" for what in missing]
    notes += [f"{output} did not exist; it was created"] if fresh and options.resume else []
    request = SearchRequest(text, with_defaults(options, earlier), chosen, display, earlier, other=other)
    return request, output, notes


def _for_objective(
    request: SearchRequest, program: Program, configurations: Sequence[Configured], output: Path
) -> SearchRequest:
    """With the objective: that of the options, else that of the file that is continued. Results of `--warm-start` are
    read again if theirs is another one. Raises UsageError."""
    if request.earlier is not None:
        request.earlier.check_folded(is_folded(configurations), str(output))
    searched_for = TIME.text if request.earlier is None else request.earlier.objective.text
    objective = objective_for(request.options.objective or searched_for, request.chosen.target.value, program)
    options, other = replace(request.options, objective=objective.text), request.other
    if other is not None and other.objective != objective:
        other = _other_results(program, options)
    return replace(request, options=options, objective=objective, other=other)


def _choosers(
    request: SearchRequest, program: Program, configurations: Sequence[Configured]
) -> dict[Kernels, tuple[Any, ...]]:
    """Those of the tuned file. Raises UsageError for a file that is of no use, before a directory is created."""
    text = request.text
    without = replace(text, folds=False).with_defines(without_settings(program, text.defines))
    return choosers_for(request, configurations, without.graph)


def _domain(
    request: SearchRequest, configurations: Sequence[Configured], sites: Sites, notes: list[str]
) -> tuple[SearchRequest, Orders]:
    """The domain, and the request with its strategy."""
    with request.display.phase("counting the implementations"):
        domain = domain_of(configurations, request.options, sites.of)
        request = replace(request, options=_with_strategy(request.options, domain))
    return request, warm(domain, request, notes)


def _explore_here(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, link: RankLink, deadline: Deadline
) -> Explored:
    from dagc.store.records import Records  # loads msgspec, sqlite3

    with ExitStack() as stack:
        prepared = ready(text, out, options, Display(quiet=options.quiet), stack, deadline)
        machine = prepared.machine(link)
        facts, usable = checked(prepared, machine)
    request, program, notes, options = prepared.request, prepared.program, prepared.notes, prepared.request.options
    setup, size = setup_digest(text.path, program, options), usable.domain.size()
    run = run_record(facts, options, text.path, setup, prepared.fixed, prepared.domain.folded, size)
    with Records.open(
        prepared.output, program_record(program), run, resume=options.resume, other_machine=options.other_machine
    ) as records:
        notes += filter(None, [records.note])
        domain = _usable(prepared, machine, usable, records)
        noise = _noise_floor(request, machine, records)
        warn(noise_advice(noise, facts, options.ranks), quiet=options.quiet)
        notes += _of_earlier_runs(prepared.output, records, run, options)
        before = records.results(request.objective.text) if options.resume else None
        done = _search(request, domain, machine, OrderStore(domain, records), noise, before)
        if not done.interrupted:
            machine.time_reference()
        results = records.results()
        done, noise = _settled(done, domain, results), results.noise
        notes += [*noise_advice(noise, facts, options.ranks), *text.changed()]
        wrong = _disagreement(request, machine, domain, records, done)
        if wrong is None:
            _traced(request, machine, domain, records, done, notes)
    return _explored(done, domain, prepared.output, notes, results, options, wrong)


def _usable(prepared: Ready, machine: LiveMachine, usable: Usable, records: Records) -> Orders:
    """The domain without what does not run, which the file keeps as failures; with the times of single launches."""
    request, domain = prepared.request, usable.domain
    machine.on_reference = records.reference
    _declare(records, request.objective, units())
    if request.options.strategy == "model" and any(s.sites for s in domain.spaces):
        domain = timed_sites(machine, prepared.data, request)
    if not domain.earlier:  # a configuration was excluded
        domain = warm(domain, request, [])
    prepared.notes.extend(_keep_excluded(records, usable.excluded))
    return domain


def _noise_floor(request: SearchRequest, machine: LiveMachine, records: Records) -> float:
    """Of the quickest configuration, as probed. It becomes the drift reference: what may be chosen depends on the same
    parts of the machine."""
    if request.deadline.over:
        return math.nan
    limit = request.deadline.limit(NOISE_SHARE)
    with request.display.phase("measuring the noise floor"):
        noise = machine.noise_floor(machine.quickest(), limit=limit)
    records.noise(noise)
    return noise


def _of_earlier_runs(output: Path, records: Records, run: Run, options: EarlierOptions) -> list[str]:
    """In what the arrays of earlier runs differ, and what the last one died of."""
    notes = _other_arrays(output, records.results().runs, run) if options.data is None else []
    if (died := records.under_way) is not None:
        notes.append(f"the last run ended while it measured {died.configuration.text}: {died.traversal}")
    return notes


def _keep_excluded(records: Records, excluded: Sequence[Excluded]) -> list[str]:
    """Store them in the file as failures; returns the notes on them."""
    for left in excluded:
        records.fail(records.begin(left.configured.configuration, left.traversal), left.failure)
    # Which rank reports it first is chance.
    causes = (_RANK.sub("", e.failure) for e in excluded)
    configurations = (e.configured.configuration for e in excluded)
    return excluded_notes(zip(configurations, (e.failure for e in excluded), causes, strict=True))


def _declare(records: Records, objective: Objective, units: Mapping[str, str]) -> None:
    for name in objective.metrics:
        records.metric(name, units[name])


def _fixed(
    program: Program,
    configurations: Sequence[Configured],
    settings: Sequence[Fixed],
    defines: Mapping[str, Any],
    sites: Sites,
) -> tuple[Fixed, ...]:
    """The choices that are not searched, of all configurations. `settings`: those set by tuning."""
    searched = {name for configured in configurations for name in configured.defines}
    searched |= {name for sites_of in sites.of.values() for site in sites_of for name in site.names}
    return tuple(dict.fromkeys((*not_searched(program, defines, searched, settings), *settings)))


def _with_strategy(options: ExploreOptions, domain: Orders) -> ExploreOptions:
    """The options with the default strategy if the user named none. Raises UsageError."""
    if options.strategy is None:
        options = replace(options, strategy=default(domain))
        _check_strategy(options)
    return options


def _check_strategy(options: ExploreOptions) -> None:
    """Raises UsageError for a strategy that does not exist or does not support the options, before anything is compiled
    or measured."""
    if options.strategy is None:
        return
    strategy = find(options.strategy)
    if options.until is not None and not issubclass(strategy, Judge):
        raise UsageError(
            f"--until: strategy `{options.strategy}` does not estimate the remaining gain",
            "use --strategy model, or --budget or --time in place of --until",
        )
    if options.warm_start is not None and options.strategy != "model":
        raise UsageError(
            f"--warm-start: strategy `{options.strategy}` has no model to warm-start", "use --strategy model"
        )


def _other_arrays(output: Path, runs: Sequence[Run], now: Run) -> list[str]:
    """How the arrays of earlier runs of a file differ from those of this one."""
    out = []
    seeds = {earlier.seed for earlier in runs} - {now.seed}
    if seeds:
        out.append(f"earlier runs of {output} had arrays of seed {', '.join(map(str, sorted(seeds)))}")
    if {earlier.options.get("setup", now.options.get("setup")) for earlier in runs} - {now.options.get("setup")}:
        out.append(f"earlier runs of {output} had arrays of another set-up: its file has changed")
    return out


def _explore_replayed(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, deadline: Deadline
) -> Explored:
    """Explore with a recorded results file instead of a machine."""
    from dagc.store.records import Records  # loads msgspec, sqlite3

    request, recorded = _recorded(text, options)
    request = replace(request, deadline=deadline)
    program, configurations, notes = configured(text, request.options, gpus=True)
    _check_recorded(request, program, configurations)
    configurations, sites = _recorded_configurations(request, configurations)
    request = replace(request, other=_other_results(program, request.options))
    request, domain = _domain(request, configurations, sites, notes)
    options, machine = request.options, ReplayMachine(recorded, domain, options.seed)
    notes.append(f"times are replayed from {options.replay}; nothing was measured")
    if out is None:
        done = _search(request, domain, machine, UNKEPT, recorded.noise, None)
        return _explored(done, domain, None, notes, recorded, options)
    run = run_record(
        recorded.runs[0].machine, options, text.path, fixed=fixed_in(recorded.runs), folded=domain.folded
    )  # fmt: skip
    with Records.open(
        out, program_record(program), run, resume=options.resume, other_machine=options.other_machine
    ) as records:
        records.noise(recorded.noise)
        _declare(records, request.objective, recorded.units)
        earlier = records.results(request.objective.text) if options.resume else None
        done = _search(request, domain, machine, OrderStore(domain, records), recorded.noise, earlier)
    return _explored(done, domain, Path(out), notes, recorded, options)


def _recorded(text: ProgramText, options: ExploreOptions) -> tuple[SearchRequest, Results]:
    """The request, and the results that it replays."""
    from dagc.store.records import load  # loads msgspec, sqlite3

    assert options.replay is not None
    if options.launch not in (None, "fixed", SEARCH):
        raise UsageError("--launch and --replay: recorded times have their launch settings", "drop --launch")
    recorded = load(options.replay, options.objective)
    options = with_defaults(replace(options, objective=recorded.objective.text), recorded)
    host, display = choose_target("host", None), Display(quiet=options.quiet)
    return SearchRequest(text, options, host, display, recorded, recorded.objective), recorded


def _check_recorded(request: SearchRequest, program: Program, configurations: Sequence[Configured]) -> None:
    """Raises UsageError if the recorded results are of another program."""
    recorded, path = request.earlier, str(request.options.replay)
    assert recorded is not None
    now = program_record(program)
    if not recorded.program.is_same(now):
        raise UsageError(
            f"{path} holds results of another program ({recorded.program.name} {recorded.program.hash};"
            f" this is {now.name} {now.hash})",
            "give the .dag text and the -D that it was recorded with",
        )
    recorded.check_folded(is_folded(configurations), path)


def _recorded_configurations(
    request: SearchRequest, configurations: Sequence[Configured]
) -> tuple[list[Configured], Sites]:
    """The configurations that the recorded results have, with their launch settings, and those that are searched."""
    assert request.earlier is not None
    known = {i.configuration for i in request.earlier.implementations}
    settled = launched(request, configurations, {}, Path).configurations
    sites = launch_sites(request, settled, None)
    whole = domain_of(settled, request.options, sites.of)
    numbers = {whole.number(configuration) for configuration in known}
    kept = [c for i, c in enumerate(settled) if i in numbers]
    if not kept:
        some = ", ".join(sorted(c.text for c in known)[:3])
        raise UsageError(f"{request.options.replay} has none of these configurations", f"it has: {some}")
    return kept, sites


def _search(
    request: SearchRequest,
    domain: Orders,
    machine: Measurer[Candidate],
    store: Store[Candidate],
    noise: float,
    earlier: Results | None,
) -> Summary[Candidate]:
    options, budget = request.options, request.options.budget
    assert options.strategy is not None, "chosen with the domain"
    strategy = find(options.strategy)(domain, options.seed)
    until = options.until
    if budget is None and options.strategy != "exhaustive" and options.time is None:
        until = UNTIL if until is None and isinstance(strategy, Judge) else until
        budget = DEFAULT_BUDGET if until is None else MOST
    seconds = None if options.time is None else request.deadline.limit(SEARCH_SHARE)
    chosen = SearchOptions(budget, seconds, options.passes, options.confirm, options.repeats, options.seed, until)

    def describe(candidate: Candidate) -> str:
        return f"{domain.configuration(candidate).text}\n{_text(domain, candidate)}"

    with request.display.search(noise, describe, request.objective) as progress:
        return run_search(
            domain,
            strategy,
            machine,
            store,
            chosen,
            known=_known(earlier, domain) if earlier is not None else {},
            base=earlier.reference if earlier is not None else math.nan,
            same=_same_work(domain) if options.prune_syncs else None,
            progress=progress,
            show=request.objective.show,
        )


def _settled(done: Summary[Candidate], domain: Orders, results: Results) -> Summary[Candidate]:
    """The best of the whole file, with drift divided out as by all readers of the file."""
    ranked = [i for i in ranking(results) if domain.find(i.configuration) is not None]
    if not ranked:
        return done
    reference = results.reference
    best = best_estimate([i.judged(reference) for i in ranked], results.noise)
    return replace(
        done,
        best=_candidate(domain, ranked[0]),
        value=best.value, low=best.low, high=best.high, measurements_of_best=best.measurements,
        ties=best.ties, shrunk=best.shrunk,
        worst=timed(results)[-1][1].value, lowest=lowest(results),
    )  # fmt: skip


SEPARATED = 4  # wrong implementations whose order and launch settings are tried apart


def _disagreement(
    request: SearchRequest, machine: LiveMachine, domain: Orders, records: Records, done: Summary[Candidate]
) -> Disagreement | None:
    """Whether implementations that differ only in their order give right and wrong results.

    Where launch settings were measured with wrong results only, the order is tried with the program's settings, and the
    settings with the first order, if there is time: then it is known which of them is wrong.
    """

    def kind(implementation: Implementation) -> SpaceKind | None:
        entry = domain.find(implementation.configuration)
        if entry is None:
            return None
        configured = domain.spaces[entry[0]]
        return SpaceKind(entry[0], configured.graph, frozenset(n for site in configured.sites for n in site.names))

    if not any(reason.startswith(WRONG) for reason, _ in done.reasons):
        return None
    results = records.results()
    store = OrderStore(domain, records)
    late = done.interrupted or request.deadline.over
    for implementation in () if late else by_settings(results, kind)[:SEPARATED]:
        candidate = _candidate(domain, implementation)
        assert candidate is not None, "of a kind"
        first = domain.first(candidate.space)
        for other in (replace(candidate, settings=first.settings), replace(first, settings=candidate.settings)):
            store.add(store.begin(other), machine.measure(other))
    return disagreement(records.results(), kind)


def _known(earlier: Results, domain: Orders) -> dict[Candidate, list[Sample]]:
    """The samples of a file for the candidates of a domain, with drift divided out."""
    out = {}
    for implementation in earlier.implementations:
        candidate = _candidate(domain, implementation)
        if candidate is not None and (implementation.measurements or implementation.failure):
            timed = zip(implementation.measurements, implementation.times(earlier.reference), strict=True)
            out[candidate] = [Sample(value, purpose=m.purpose) for m, value in timed]
            out[candidate] += [Sample(failure=implementation.failure)] if implementation.failure else []
    return out


def _candidate(domain: Orders, implementation: Implementation) -> Candidate | None:
    """An implementation of a results file, None if its configuration is not searched."""
    entry = domain.find(implementation.configuration)
    if entry is None:
        return None
    index, settings = entry
    traversal = parse_traversal(implementation.traversal, domain.spaces[index].graph, "the results file")
    return Candidate(index, traversal, settings)


def _other_results(program: Program, options: ExploreOptions) -> Results | None:
    """The results file of `--warm-start`. Raises UsageError for one of another program."""
    from dagc.store.records import load  # loads msgspec, sqlite3

    if options.warm_start is None:
        return None
    other = load(options.warm_start, options.objective)
    if other.program.name != program.name:
        raise UsageError(
            f"{options.warm_start} holds results of another program: {other.program.name}, not {program.name}",
            "give a file of this program, at another size or of another machine",
        )
    return other


def warm(domain: Orders, request: SearchRequest, notes: list[str]) -> Orders:
    """The domain with another results file's data on its candidates (`--warm-start`).

    Raises UsageError for a file without an implementation of this program.
    """
    other, file = request.other, request.options.warm_start
    if other is None:
        return domain
    assert file is not None
    structures = {_structure(s.configuration): i for i, s in reversed(list(enumerate(domain.spaces)))}
    earlier: list[tuple[Candidate, float]] = []
    for imp in other.measured():
        index, settings = domain.find(imp.configuration) or (structures.get(_structure(imp.configuration)), None)
        if index is None:
            continue
        space = domain.spaces[index].space
        settings = domain.spaces[index].usual if settings is None else settings
        try:
            traversal = parse_traversal(imp.traversal, space.graph, file)
            list(space.replay(traversal))
        except (UsageError, ProgramError):
            continue  # of other ops
        earlier.append((Candidate(index, traversal, settings), imp.value(other.reference)))
    if not earlier:
        raise UsageError(f"{file} has no implementation of this program", "give a file of the same ops and transports")
    notes.append(f"uses {counted(len(earlier), 'implementation')} of {file}: the fastest, and the costs of all")
    return Orders(domain.spaces, earlier)


def _structure(configuration: Choice) -> tuple[object, ...]:
    """The choices that determine the ops of a configuration, without variants and launch settings."""
    return tuple(configuration.get(name) for name in ("transport", "staging", "capture", "streams"))


def _same_work(domain: Orders) -> Callable[[Candidate], str]:
    """A key that is equal for candidates that become equal once redundant sync ops are removed."""
    provers = [Prover(configured.graph) for configured in domain.spaces]

    def key(candidate: Candidate) -> str:
        graph = domain.spaces[candidate.space].graph
        text = traversal_text(prune(candidate.traversal, provers[candidate.space]), graph)
        return f"{candidate.space} {candidate.settings} {text}"

    return key


def _explored(
    done: Summary[Candidate],
    domain: Orders,
    output: Path | None,
    notes: Sequence[str],
    results: Results,
    options: StrategyOptions,
    wrong: Disagreement | None = None,
) -> Explored:
    configuration, text, waits = None, "", ""
    done = done if wrong is None else replace(done, best=None)
    fixed: tuple[Fixed, ...] = ()
    if done.best is not None:
        configured = domain.spaces[done.best.space]
        configuration, text = domain.configuration(done.best), traversal_text(done.best.traversal, configured.graph)
        fixed = fixed_of(results.runs, configuration)
        waits = waits_between(configured.graph, done.best.traversal)
    return Explored(
        done, configuration, text, output, tuple(notes), results.noise, domain.more_than(), fixed, results.objective,
        UNTIL if options.until is None else options.until, waits, wrong,
    )  # fmt: skip


# ---- traces ---------------------------------------------------------------------------------


def _traced(
    request: SearchRequest, machine: LiveMachine, domain: Orders, records: Records, done: Summary[Candidate],
    notes: list[str],
) -> None:  # fmt: skip
    """Trace, if that is wanted and there is time."""
    if not request.options.trace or done.interrupted:
        return
    if request.deadline.over:
        notes.append("no traces for the report: the time limit was reached (--time)")
        return
    with request.display.phase("tracing the best and the slowest"):
        _trace(machine, domain, records, done)


def _trace(machine: LiveMachine, domain: Orders, records: Records, done: Summary[Candidate]) -> None:
    """Traces of the best and of the slowest, for the report's timelines."""
    if done.best is None:
        return
    number = records.begin(domain.configuration(done.best), _text(domain, done.best))
    records.trace(number, machine.trace(done.best))
    slowest = timed(records.results())[-1][0]
    candidate = _candidate(domain, slowest)
    if candidate is not None and slowest.id != number:
        records.trace(slowest.id, machine.trace(candidate))


def _text(domain: Orders, candidate: Candidate) -> str:
    return traversal_text(candidate.traversal, domain.spaces[candidate.space].graph)

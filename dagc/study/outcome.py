"""A search, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dagc.base.errors import DagcError, WrongResult, counted
from dagc.base.sample import BESIDE, TIME, Objective, Sample
from dagc.ir.traversal import traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Joining, SearchOptions, Store, Summary
from dagc.lab.engine import Machine as Measurer
from dagc.lab.engine import explore as run_search
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore, candidate_of
from dagc.lab.strategy import Judge, find
from dagc.learn.disagreement import WRONG, Disagreement, SpaceKind, by_settings, disagreement
from dagc.measure.machine import measured_ceilings
from dagc.report import si
from dagc.report.display import spread
from dagc.report.limits import FINDING, LimitRow, limit_lines
from dagc.setup import scalars_of_ranks
from dagc.space.loops import waits_between
from dagc.space.proof import Prover, prune
from dagc.stages.options import EarlierOptions, StrategyOptions
from dagc.store.results import Implementation, Results, Run, best_estimate, lowest, ranking, timed
from dagc.store.settings import Origins, fixed_of, fixed_text
from dagc.study.decisions import SearchRequest
from dagc.study.original import against_original

if TYPE_CHECKING:
    from dagc.ir.choice import Choice
    from dagc.store.records import Records


REASONS = 3  # number of failure reasons shown
UNTIL = 0.01  # a search ends by itself if nothing faster by more than this fraction is expected
BEGIN_WITH = 3  # of the fastest that were measured while compilers ran, so many are measured first
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
    fixed: Origins = field(default_factory=dict)
    objective: Objective = TIME
    until: float = UNTIL
    waits: str = ""  # of the best between the rounds of a loop
    disagreement: Disagreement | None = None
    limits: tuple[LimitRow, ...] = ()  # of the best
    original: str = ""  # the line on the order of `--original`
    scaling: tuple[str, ...] = ()  # lines on how the best changes with the number of ranks
    predicted: bool = False  # times are those of a model: each is exact, and none was measured

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
        stem = "predict" if self.predicted else "measur"
        what, taken, times = f"{stem}ed", f"{stem}ing", "prediction" if self.predicted else "measurement"
        done = f"{counted(s.implementations, 'implementation')} of {space}, {counted(s.measurements, times)}"
        out.append(f"{what:10} {done}{failed}")
        out += [f"failed     {count} x {reason}" for reason, count in s.reasons[:REASONS]]
        if len(s.reasons) > REASONS:
            out.append(f"           and {counted(len(s.reasons) - REASONS, 'other reason')}; dagc export has all")
        out.append(f"time       {s.measuring:.1f} s {taken}, {s.overhead:.1f} s searching and writing")
        if not math.isnan(s.doubt):
            left = f"an implementation faster by more than {100 * self.until:.3g} % remains"
            out.append(f"ended      {left} with probability {s.doubt:.2f}")
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
        out += [
            *self._value_of_best(),
            *self._extent(),
            *([self.original] if self.original else []),
            f"           {self.configuration.text}",
            f"           {self.traversal}",
            *([f"           {self.waits}"] if self.waits else []),
            *fixed_lines(self.fixed),
            *limit_lines(self.limits),
            *self.scaling,
        ]
        if self.output is not None:
            out.append(f"results    {self.output}; dagc best, rules, explain and report read it")
        if s.interrupted and not self.predicted:
            out.append("           interrupted; --resume continues")
        return "\n".join(out) + "\n"

    def _value_of_best(self) -> list[str]:
        s = self.summary
        if self.predicted:
            return [f"best       {self.objective.named(s.value)}"]
        interval_of = spread(s.low, s.high, s.measurements_of_best, self.objective, shrunk=s.shrunk)
        return [f"best       {self.objective.named(s.value)} ({interval_of}){equal(s.ties)}", *self._how_sure()]

    def _extent(self) -> list[str]:
        """The ratio of the worst to the best, if there are several, and the noise floor, if it is known."""
        s = self.summary
        what = "predicted" if self.predicted else "measured"
        worst = (
            f"slowest {what} takes {s.worst / s.value:.2f} times as long"
            if self.objective.is_time
            else f"worst {what} has {s.worst / s.value:.2f} times as much"
        )
        out = [f"the {worst}"] if s.implementations > 1 else []
        out += [] if math.isnan(self.noise) or self.predicted else [f"noise floor {100 * self.noise:.1f} %"]
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


def disturbed(samples: Iterable[Sample]) -> list[str]:
    """The line for times that are those of a run that ended while compilers ran; none for others."""
    if any(sample.purpose != BESIDE for sample in samples):
        return []
    return ["           measured beside compilers, which disturb times: the run ended before its search began"]


def fixed_lines(fixed: Origins) -> list[str]:
    """The values that were not searched, a line for each origin of values."""
    if not fixed:
        return []
    head = ("fixed", *[""] * len(fixed))
    return [f"{word:10} {line}" for word, line in zip(head, fixed_text(fixed), strict=False)]


# ---- the search -------------------------------------------------------------------------------


DEFAULT_BUDGET = 200  # budget of strategies that cannot estimate when to end
MOST = 2000  # most measurements of a search without a budget
NOISE_SHARE = 0.1  # fraction of the time that is left for measuring the noise floor before the search
SEARCH_SHARE = 0.97  # of the time that is left for the search; the rest is for traces


def noise_floor(request: SearchRequest, machine: LiveMachine, records: Records) -> float:
    """Of the quickest configuration, as probed. It becomes the drift reference: what may be chosen depends on the same
    parts of the machine."""
    if request.deadline.over:
        return math.nan
    limit = request.deadline.limit(NOISE_SHARE)
    with request.display.phase("measuring the noise floor"):
        noise = machine.noise_floor(machine.quickest(), limit=limit)
    records.noise(noise)
    return noise


def notes_on_earlier_runs(output: Path, records: Records, run: Run, options: EarlierOptions) -> list[str]:
    """In what the arrays of earlier runs differ, and what the last one died of."""
    notes = _other_arrays(output, records.results().runs, run) if options.data is None else []
    if (died := records.under_way) is not None:
        notes.append(f"the last run ended while it measured {died.configuration.text}: {died.traversal}")
    return notes


def _other_arrays(output: Path, runs: Sequence[Run], now: Run) -> list[str]:
    """How the arrays of earlier runs of a file differ from those of this one."""
    out = []
    seeds = {earlier.seed for earlier in runs} - {now.seed}
    if seeds:
        out.append(f"earlier runs of {output} had arrays of seed {', '.join(map(str, sorted(seeds)))}")
    if {earlier.options.get("setup", now.options.get("setup")) for earlier in runs} - {now.options.get("setup")}:
        out.append(f"earlier runs of {output} had arrays of another set-up: its file has changed")
    return out


def declare(records: Records, objective: Objective, units: Mapping[str, str]) -> None:
    for name in objective.metrics:
        records.metric(name, units.get(name, ""))


def search(
    request: SearchRequest,
    domain: Orders,
    machine: Measurer[Candidate],
    store: Store[Candidate],
    noise: float,
    earlier: Results | None,
    first: Sequence[Candidate] = (),
    joining: Joining[Candidate] | None = None,
) -> Summary[Candidate]:
    """`first`: measured before the strategy is asked; `joining`: further places that measure."""
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
            known=earlier_samples(earlier, domain) if earlier is not None else {},
            base=earlier.reference if earlier is not None else math.nan,
            same=_same_work(domain) if options.prune_syncs else None,
            progress=progress,
            show=request.objective.show,
            clock=request.deadline.clock,
            first=first,
            joining=joining,
        )


def earlier_samples(earlier: Results, domain: Orders) -> dict[Candidate, list[Sample]]:
    """The samples of a file for the candidates of a domain, drift divided out, without what compilers disturbed."""
    out: dict[Candidate, list[Sample]] = {}
    for implementation in earlier.implementations:
        candidate = candidate_of(domain, implementation)
        undisturbed = any(sample.purpose != BESIDE for sample in implementation.samples)
        if candidate is not None and (undisturbed or implementation.failure):
            timed = zip(implementation.samples, implementation.times(earlier.reference), strict=True)
            # Of one candidate, versions of dagc may have written several configurations.
            samples = out.setdefault(candidate, [])
            samples += [Sample(value, purpose=m.purpose) for m, value in timed if m.purpose != BESIDE]
            samples += [Sample(failure=implementation.failure)] if implementation.failure else []
    return out


def begin_with(results: Results, domain: Orders) -> tuple[Candidate, ...]:
    """What a search measures first: the fastest of a file with nothing but what was measured beside compilers."""
    measured = results.measured()
    if any(sample.purpose != BESIDE for one in measured for sample in one.samples):
        return ()
    fastest = sorted(measured, key=lambda one: median(one.times(results.reference)))
    return tuple(c for one in fastest[:BEGIN_WITH] if (c := candidate_of(domain, one)) is not None)


def _same_work(domain: Orders) -> Callable[[Candidate], str]:
    """A key that is equal for candidates that become equal once redundant sync ops are removed."""
    provers = [Prover(configured.graph) for configured in domain.spaces]

    def key(candidate: Candidate) -> str:
        graph = domain.spaces[candidate.space].graph
        text = traversal_text(prune(candidate.traversal, provers[candidate.space]), graph)
        return f"{candidate.space} {' '.join(choice.text for choice in candidate.choices)} {text}"

    return key


# ---- its end ----------------------------------------------------------------------------------


def settled(done: Summary[Candidate], domain: Orders, results: Results) -> Summary[Candidate]:
    """The best of the whole file, with drift divided out as by all readers of the file."""
    ranked = [i for i in ranking(results) if domain.find(i.configuration) is not None]
    if not ranked:
        return done
    reference = results.reference
    best = best_estimate([i.judged(reference) for i in ranked], results.noise)
    return replace(
        done,
        best=candidate_of(domain, ranked[0]),
        value=best.value, low=best.low, high=best.high, measurements_of_best=best.measurements,
        ties=best.ties, shrunk=best.shrunk,
        worst=timed(results)[-1][1].value, lowest=lowest(results),
    )  # fmt: skip


SEPARATED = 4  # wrong implementations whose order and launch settings are tried apart


def disagreement_of(
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
        return SpaceKind(entry[0], configured.graph, frozenset(n for site in configured.sites for n in site.decisions))

    if not any(reason.startswith(WRONG) for reason, _ in done.reasons):
        return None
    results = records.results()
    store = OrderStore(domain, records)
    late = done.interrupted or request.deadline.over
    for implementation in () if late else by_settings(results, kind)[:SEPARATED]:
        candidate = candidate_of(domain, implementation)
        assert candidate is not None, "of a kind"
        first = domain.first(candidate.space)
        for other in (replace(candidate, choices=first.choices), replace(first, choices=candidate.choices)):
            store.add(store.begin(other), machine.measure(other))
    return disagreement(records.results(), kind)


def explored(
    done: Summary[Candidate],
    domain: Orders,
    output: Path | None,
    notes: Sequence[str],
    results: Results,
    options: StrategyOptions,
    wrong: Disagreement | None = None,
    limits: tuple[LimitRow, ...] = (),
    against: Candidate | None = None,
) -> Explored:
    configuration, text, waits = None, "", ""
    done = done if wrong is None else replace(done, best=None)
    fixed: Origins = {}
    if done.best is not None:
        configured = domain.spaces[done.best.space]
        configuration, text = domain.configuration(done.best), traversal_text(done.best.traversal, configured.graph)
        fixed = fixed_of(results.runs, configuration)
        waits = waits_between(configured.graph, done.best.traversal)
    return Explored(
        done, configuration, text, output, tuple(notes), results.noise, domain.more_than(), fixed, results.objective,
        UNTIL if options.until is None else options.until, waits, wrong, () if wrong is not None else limits,
        against_original(against, domain, results, done),
    )  # fmt: skip


def traced(
    request: SearchRequest, machine: LiveMachine, domain: Orders, records: Records, done: Summary[Candidate],
    notes: list[str],
) -> None:  # fmt: skip
    """Trace, if that is wanted and there is time."""
    if not request.options.trace or done.interrupted:
        return
    if request.deadline.over:
        notes.append("no traces, which the report and --simulate read: the time limit was reached (--time)")
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
    candidate = candidate_of(domain, slowest)
    if candidate is not None and slowest.id != number:
        records.trace(slowest.id, machine.trace(candidate))


def limited(
    request: SearchRequest, domain: Orders, records: Records, done: Summary[Candidate], data: Path, notes: list[str]
) -> tuple[LimitRow, ...]:
    """How far the best of the file is from its lower bounds. What these depend on is kept in the file."""
    if done.interrupted or done.best is None:
        return ()
    try:
        with request.display.phase(FINDING):
            limits = _limits(request, domain, records, data, done.value)
    except DagcError as error:
        notes.append(f"no lower bounds: {error.message}")
        return ()
    if not limits:
        where = "this machine is not known yet; a run without --time measures it"
        notes.append(f"no lower bounds: the speed of {where if request.chosen.here else 'the nodes is not known'}")
    return limits


def _limits(request: SearchRequest, domain: Orders, records: Records, data: Path, value: float) -> tuple[LimitRow, ...]:
    from dagc.study.limits import CEILINGS, SCALARS, limits_of  # loads sympy

    options, program = request.options, request.text.program()
    chosen, found = request.chosen, None
    if chosen.here:
        found = measured_ceilings(chosen.target.value, chosen.arch, request.deadline)
    if found is not None:
        records.add_fact(CEILINGS, found)
    records.add_fact(SCALARS, scalars_of_ranks(program, data, options.ranks))
    results = records.results()
    best = next((i for i in ranking(results) if domain.find(i.configuration) is not None), None)
    if best is None:
        return ()
    time = value if request.objective.is_time else math.nan
    return limits_of(results, request.text.graph(best.configuration), best, time)


def _text(domain: Orders, candidate: Candidate) -> str:
    return traversal_text(candidate.traversal, domain.spaces[candidate.space].graph)

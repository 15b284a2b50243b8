"""What a search searches: text -> configurations with their launch settings -> domain, with earlier results; or the
results that it replays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.children import Workers
from dagc.base.errors import ProgramError, UsageError, counted
from dagc.base.sample import TIME
from dagc.base.signals import ENDLESS, Deadline
from dagc.build.ranks import joined
from dagc.build.toolchain import choose_target, target_asked
from dagc.ir.plan import Target
from dagc.ir.program import RANK_ORDER
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import LATE
from dagc.lab.live import LiveMachine
from dagc.lab.orders import Orders, OrderStore
from dagc.lab.strategy import Judge, default, find
from dagc.measure.metrics import objective_for, units
from dagc.measure.service import RankLink
from dagc.report.display import Display
from dagc.setup import require_memory
from dagc.stages.options import ExploreOptions, forms_are_open
from dagc.stages.program import ProgramText
from dagc.store.results import Results
from dagc.store.settings import Origin, Origins, not_searched, without_settings
from dagc.study.ahead import BUILD_SHARE, Ahead
from dagc.study.beside import Beside
from dagc.study.decisions import SEARCH, SearchRequest, configured, domain_of, excluded_notes, is_folded
from dagc.study.files import SearchFile, program_record
from dagc.study.launch import (
    Predictions,
    Sites,
    choosers_for,
    launch_sites,
    launched,
    timed_sites,
    variants_by_file,
    with_defaults,
)
from dagc.study.original import of_original
from dagc.study.outcome import declare
from dagc.study.runners import (
    ArraysOf,
    Compilation,
    Excluded,
    Usable,
    arrays_under_way,
    by_promise,
    check_as_built,
    compiling,
    require_machine,
    that_can_run,
)

if TYPE_CHECKING:
    from dagc.ir.choice import Choice
    from dagc.ir.program import Program
    from dagc.lab.configurations import Configured
    from dagc.store.records import Records


CHECK_SHARE = 0.75  # as BUILD_SHARE, for checks, where all that is checked was built before (`--jobs`)


@dataclass(frozen=True, slots=True)
class Ready:
    """The search, with everything that must be known before anything is measured; its libraries are being built."""

    request: SearchRequest
    program: Program
    output: Path
    domain: Orders
    fixed: Origins
    notes: list[str]
    arrays: ArraysOf
    compilation: Compilation
    machine: LiveMachine
    beside: Beside


def ready(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, display: Display, stack: ExitStack,
    link: RankLink, file: SearchFile, deadline: Deadline = ENDLESS,
) -> Ready:  # fmt: skip
    """Text -> configurations, with their launch settings -> domain. The set-up and the compilers run beside it, and end
    with `stack`; the first configuration is measured beside it on the ranks of `link`, and written to `file`."""
    request, output, missing = _requested(text, out, options, display)
    file.path = output
    request, folder = replace(request, deadline=deadline), output.parent / f"{output.stem}-build"

    @cache
    def under_way() -> Callable[[], ArraysOf]:
        require_machine(request.chosen)
        if request.chosen.target is Target.HOST and request.chosen.here and joined() is None:
            require_memory(request.text.program(), options.ranks * options.groups)
        return stack.enter_context(arrays_under_way(request.text.program(), folder, request))

    def data() -> Path:
        return under_way()().data

    taken, remarks = variants_by_file(request, data)  # which are then not searched
    request = replace(request, text=request.text.with_defines({**request.text.defines, **taken}))
    request = _for_objective(request, request.text.program())
    cuda, predictions = request.chosen.target is Target.CUDA, Predictions(stack.enter_context(Workers(1)))
    ahead = Ahead(request, folder, link, predictions, under_way, partial(_keep, request, file))
    program, configurations, notes = configured(request.text, request.options, cuda, ahead.lowering(stack))
    notes += [*remarks, *missing]
    if request.earlier is not None:
        request.earlier.check_folded(is_folded(configurations), str(output))
    require_machine(request.chosen)
    configurations = that_can_run(configurations, request.chosen, request.options, notes)
    choosers = _choosers(request, program, configurations)
    under_way()
    settled = launched(request, configurations, choosers, data)
    configurations = list(settled.configurations)
    own = of_original(request.options, configurations)
    compilation = _under_way(request, by_promise(configurations, own), folder, ahead, predictions, stack)
    ahead.finish()
    sites = launch_sites(request, configurations, data())
    tuned = {**dict.fromkeys(taken.decisions, Origin.TUNED), **settled.origins}
    fixed = _fixed(program, configurations, tuned, request.text.defines, sites)
    request, domain = _domain(request, configurations, sites, notes)
    notes += settled.notes
    machine, beside = ahead.measuring(request, domain)
    predictions.begin(request, by_promise(domain.spaces, own), data())  # as they are built; while the ranks start
    return Ready(request, program, output, domain, fixed, notes, under_way()(), compilation, machine, beside)


def _under_way(
    request: SearchRequest, configurations: Sequence[Configured], folder: Path, ahead: Ahead, predictions: Predictions,
    stack: ExitStack,
) -> Compilation:  # fmt: skip
    """The libraries of these configurations, in their order; they end with `stack`."""
    # All that may stay open at run time: which settings fit, the arrays tell.
    every, hurry = launch_sites(request, configurations, None), request.deadline.timeout is not None
    others = predictions.known if hurry and request.chosen.target is Target.CUDA else None
    compiled = compiling(
        configurations, request.chosen, folder, every,
        ahead=ahead.libraries, hurry=hurry, others=others, answered=ahead.answered,
    )  # fmt: skip
    compilation = stack.enter_context(compiled)
    if others is not None:
        predictions.prepare()
    return compilation


def _keep(
    request: SearchRequest, file: SearchFile, first: Sequence[Configured], machine: LiveMachine, beside: Beside
) -> None:
    """Open the results file of a search whose `first` configurations are measured, and keep what was in it."""
    domain, program, text = machine.domain, request.text.program(), request.text
    sites = {space.configuration: space.sites for space in domain.spaces}
    fixed = _fixed(program, first, Origins(), text.defines, sites)
    file.hosts(lambda: machine.hosts(request.chosen.target.value, request.chosen.arch))
    options = _with_strategy(request.options, domain)
    keep_in(file.open(text.path, program, options, fixed, domain.folded)[0], request, beside, domain)
    file.best = lambda: beside.line


def keep_in(records: Records, request: SearchRequest, beside: Beside, domain: Orders) -> None:
    declare(records, request.objective, units())
    beside.keep_in(OrderStore(domain, records))


def checked(prepared: Ready, records: Records) -> Usable:
    """The configurations that can be searched, checked as they are built. While compilers run, the space is counted,
    the model ranks launch settings, and what is built is measured, which `records` keeps as disturbed."""
    request, domain, deadline = prepared.request, prepared.domain, prepared.request.deadline
    machine, beside = prepared.machine, prepared.beside
    keep_in(records, request, beside, domain)
    domain.size()
    end = deadline.part(BUILD_SHARE if request.chosen.here else CHECK_SHARE)
    out = check_as_built(machine, prepared.compilation, request, prepared.arrays, beside, end)
    prepared.compilation.stop()
    if deadline.over:
        took = f"took {deadline.passed:.0f} s, longer than --time {deadline.seconds:g} s"
        prepared.notes.append(f"to set up, compile and check the first configuration {took}")
    modelled = beside.predictions.result(deadline.part(BUILD_SHARE).timeout)
    if modelled is None:
        prepared.notes.append("the model ranked no launch settings within the time limit (--time)")
    else:
        sites, notes = modelled
        _use(machine, sites)
        prepared.notes.extend(notes)
        out = replace(out, domain=machine.domain)
    late = ((s.configuration, LATE) for s in out.late)
    prepared.notes.extend(excluded_notes((choices, why, why) for choices, why in late))
    return out


def _use(machine: LiveMachine, sites: Sites) -> None:
    """The domain of the machine with predicted times of launch settings."""
    if sites:
        spaces = [replace(s, sites=sites.get(s.configuration, s.sites)) for s in machine.domain.spaces]
        machine.domain = Orders(spaces, machine.domain.earlier)


def _requested(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, display: Display
) -> tuple[SearchRequest, Path, list[str]]:
    """The request, the results file, and notes of what the target leaves out. Raises UsageError for a file that cannot
    be continued, before anything is compiled."""
    from dagc.store.records import check_resumable, is_fresh  # loads msgspec, sqlite3

    chosen = replace(target_asked(options.target, options.arch), here=options.jobs is None)
    text, missing = text.on(chosen.target)
    text, left = text.under(options.forms)
    program = text.program()
    other = _other_results(program, options)  # its errors come before the arrays of the ranks are created
    output = Path(out) if out is not None else Path("dagc-out") / f"{program.name}.db"
    fresh = is_fresh(output, options.resume)
    earlier = None if fresh else check_resumable(output, program_record(program), options.ranks)
    notes = [f"without {what}" for what in (*missing, *left)]
    notes += [f"{output} did not exist; it was created"] if fresh and options.resume else []
    request = SearchRequest(text, with_defaults(options, earlier), chosen, display, earlier, other=other)
    return replace(request, text=replace(text, forms=_forms(request))), output, notes


def _forms(request: SearchRequest) -> bool:
    """Whether the forms of kernels are open: where launch settings are, and in the file that gives these."""
    if request.file is not None:
        from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

        return load_tuned(request.file).forms
    earlier = request.earlier.forms if request.earlier is not None else None
    settings = request.searches or request.tunes
    return settings and forms_are_open(request.options.forms, request.chosen.target is Target.CUDA, earlier)


def _for_objective(request: SearchRequest, program: Program) -> SearchRequest:
    """With the objective: that of the options, else that of the file that is continued. Results of `--warm-start` are
    read again if theirs is another one. Raises UsageError."""
    searched_for = TIME.text if request.earlier is None else request.earlier.objective.text
    objective = objective_for(request.options.objective or searched_for, request.chosen.target.value, program)
    options, other = replace(request.options, objective=objective.text), request.other
    if other is not None and other.objective != objective:
        other = _other_results(program, options)
    return replace(request, options=options, objective=objective, other=other)


def _choosers(
    request: SearchRequest, program: Program, configurations: Sequence[Configured]
) -> dict[Choice, tuple[Any, ...]]:
    """Those of the tuned file. Raises UsageError for a file that is of no use, before a directory is created."""
    text = request.text
    without = replace(text, folds=False).with_defines(without_settings(program, text.defines))
    return choosers_for(request, configurations, without.graph)


def _domain(
    request: SearchRequest, configurations: Sequence[Configured], sites: Sites, notes: list[str]
) -> tuple[SearchRequest, Orders]:
    """The domain, and the request with its strategy."""
    with request.display.phase("counting the implementations"):
        domain = domain_of(configurations, request.options, sites)
        request = replace(request, options=_with_strategy(request.options, domain))
    return request, warm(domain, request, notes)


def _fixed(
    program: Program,
    configurations: Sequence[Configured],
    tuned: Origins,
    defines: Mapping[str, Any],
    sites: Sites,
) -> Origins:
    """The values that are not searched, of all configurations. `tuned`: those set by tuning."""
    searched = {name for configured in configurations for name in configured.defines}
    searched |= {name for of_one in sites.values() for site in of_one for name in site.decisions}
    return {**not_searched(program, defines, searched, tuned), **tuned}


def _with_strategy(options: ExploreOptions, domain: Orders) -> ExploreOptions:
    """The options with the default strategy if the user named none. Raises UsageError."""
    if options.strategy is None:
        options = replace(options, strategy=default(domain))
        check_strategy(options)
    return options


def check_strategy(options: ExploreOptions) -> None:
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


# ---- what turns out not to run ----------------------------------------------------------------


_RANK = re.compile(r"\brank \d+: ")


def usable_domain(prepared: Ready, machine: LiveMachine, usable: Usable, records: Records) -> Orders:
    """The domain without what does not run, which the file keeps as failures; with the times of single launches."""
    request, domain = prepared.request, usable.domain
    machine.on_reference = records.reference
    if request.options.strategy == "model" and any(s.sites for s in domain.spaces):
        domain = timed_sites(machine, prepared.arrays.data, request)
    if not domain.earlier:  # a configuration was excluded
        domain = warm(domain, request, [])
    prepared.notes.extend(keep_excluded(records, usable.excluded))
    return domain


def keep_excluded(records: Records, excluded: Sequence[Excluded]) -> list[str]:
    """Store them in the file as failures; returns the notes on them."""
    for left in excluded:
        records.fail(records.begin(left.configured.configuration, left.traversal), left.failure)
    # Which rank reports it first is chance.
    causes = (_RANK.sub("", e.failure) for e in excluded)
    configurations = (e.configured.configuration for e in excluded)
    return excluded_notes(zip(configurations, (e.failure for e in excluded), causes, strict=True))


# ---- earlier results -------------------------------------------------------------------------


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
        index, choices = domain.find(imp.configuration) or (structures.get(_structure(imp.configuration)), None)
        if index is None:
            continue
        space = domain.spaces[index].space
        choices = domain.spaces[index].usual if choices is None else choices
        try:
            traversal = imp.order(space.graph, file)
            list(space.replay(traversal))
        except (UsageError, ProgramError):
            continue  # of other ops
        earlier.append((Candidate(index, traversal, choices), imp.value(other.reference)))
    if not earlier:
        raise UsageError(f"{file} has no implementation of this program", "give a file of the same ops and transports")
    notes.append(f"uses {counted(len(earlier), 'implementation')} of {file}: the fastest, and the costs of all")
    return Orders(domain.spaces, earlier)


def _structure(configuration: Choice) -> tuple[object, ...]:
    """The choices that determine the ops of a configuration, without variants and launch settings."""
    return tuple(configuration.get(name) for name in ("transport", "staging", "capture", "streams"))


# ---- results that are replayed ---------------------------------------------------------------


def replayed(
    text: ProgramText, options: ExploreOptions, deadline: Deadline
) -> tuple[SearchRequest, Program, Orders, Results, list[str]]:
    """What is searched with the times of recorded results: the request, the program, the domain, the results, and
    notes."""
    request, recorded = _recorded(text, options)
    text = request.text
    program, configurations, notes = configured(text, request.options, gpus=True)
    _check_recorded(request, program, configurations)
    configurations, sites = _recorded_configurations(request, configurations)
    request = replace(request, deadline=deadline, other=_other_results(program, request.options))
    request, domain = _domain(request, configurations, sites, notes)
    had = counted(len(recorded.measured()), "implementation")
    notes.append(f"times are replayed from {options.replay}, which has {had}: any other fails; no program runs")
    return request, program, domain, recorded, notes


def _recorded(text: ProgramText, options: ExploreOptions) -> tuple[SearchRequest, Results]:
    """The request, and the results that it replays."""
    from dagc.store.records import load  # loads msgspec, sqlite3

    assert options.replay is not None
    if options.launch not in (None, "fixed", SEARCH):
        raise UsageError("--launch and --replay: recorded times have their launch settings", "drop --launch")
    recorded = load(options.replay, options.objective)
    options = with_defaults(replace(options, objective=recorded.objective.text), recorded)
    host, display = choose_target("host", None), Display(quiet=options.quiet)
    text = replace(text.under(options.forms)[0], forms=forms_are_open(options.forms, False, recorded.forms))
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
    whole = domain_of(settled, request.options, sites)
    numbers = {whole.number(configuration) for configuration in known}
    kept = [c for i, c in enumerate(settled) if i in numbers]
    if request.options.simulate is not None:  # other arrays, and ranks elsewhere, have the same ops
        alike = {_ops_alike(c) for c in kept}
        kept = [c for c in settled if _ops_alike(c) in alike]
    if not kept:
        some = ", ".join(sorted(c.text for c in known)[:3])
        raise UsageError(f"{request.options.replay} has none of these configurations", f"it has: {some}")
    return kept, sites


def _ops_alike(configured: Configured) -> tuple[tuple[str, Any], ...]:
    """The decisions without those of the set-up, and of the order of the ranks."""
    setup = configured.graph.program.setup
    names = {RANK_ORDER, *(setup.decisions if setup is not None else ())}
    return tuple(pair for pair in configured.configuration.decisions if pair[0] not in names)

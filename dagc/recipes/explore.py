"""`dagc explore`: configurations -> domain -> strategy and machine -> results file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.files import scratch_directory, write_text_atomic
from dagc.base.signals import Clock, Deadline
from dagc.build.ranks import bind_ranks, joined
from dagc.ir.program import Program
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT, Store
from dagc.lab.live import LiveMachine, ReplayMachine
from dagc.lab.orders import Orders, OrderStore
from dagc.measure.jobs import JobArray
from dagc.measure.service import RankLink, link_groups
from dagc.report.display import Display, warn
from dagc.stages.options import ExploreOptions
from dagc.stages.program import ProgramText, read
from dagc.store.results import MachineRecord, Results, noise_advice, noise_advice_of, unlike
from dagc.store.settings import fixed_in
from dagc.study.ahead import BUILD_SHARE
from dagc.study.decisions import SearchRequest
from dagc.study.domain import Ready, check_strategy, checked, ready, replayed, usable_domain
from dagc.study.files import SearchFile, program_record, run_record
from dagc.study.following import check_rules, followed
from dagc.study.groups import RankGroups
from dagc.study.original import kept, measured_again, read_original
from dagc.study.outcome import (
    Explored,
    begin_with,
    declare,
    disagreement_of,
    explored,
    limited,
    noise_floor,
    notes_on_earlier_runs,
    search,
    settled,
    traced,
)


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
    check_strategy(options)
    check_rules(options)
    if options.original is not None:
        read_original(options.original)
    deadline = Deadline.after(options.time, clock)
    if options.replay is not None:
        return _explore_replayed(read(path, defines, not options.unroll), out, options, deadline)

    bind_ranks(options.bind)
    array = _jobs(options)
    links: Sequence[RankLink]
    if array is not None:
        deadline, links = Deadline.after(options.time, array.clock(clock)), array.links()
    else:
        links = link_groups(options.ranks, options.groups, cuda=options.target != "host")
    with ExitStack() as linked:
        for link in links:
            linked.enter_context(link)
        text = read(path, defines, not options.unroll)
        return _explore_here(text, out, options, links, deadline, array) if links else None


def _jobs(options: ExploreOptions) -> JobArray | None:
    """Those of `--jobs`. Raises UsageError, MissingTool."""
    if options.jobs is None:
        return None
    if options.target is None or (options.target == "cuda" and options.arch is None):
        help = "give --target cuda --arch sm_90 (`nvidia-smi --query-gpu=compute_cap` on a node), or --target host"
        raise UsageError("--jobs: this machine does not know which GPUs the nodes have", help)
    return JobArray(options.jobs, options.ranks, options.job_script)


def _explore_here(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, links: Sequence[RankLink], deadline: Deadline,
    array: JobArray | None,
) -> Explored:  # fmt: skip
    display = Display(quiet=options.quiet, clock=deadline.clock)
    with ExitStack() as opened:
        file = SearchFile(opened)
        with ExitStack() as compilers, file.before_search(display):
            prepared = ready(text, out, options, display, compilers, links[0], file, deadline)
            machine, request = prepared.machine, prepared.request
            program, notes, options = prepared.program, prepared.notes, request.options
            file.best = lambda: prepared.beside.line
            hosts = file.hosts(partial(_started, prepared, machine, array))
            records, run = file.open(text.path, program, options, prepared.fixed, prepared.domain.folded)
            usable = checked(prepared, records)
        records.searched(usable.domain.size())
        domain = usable_domain(prepared, machine, usable, records)
        noise = noise_floor(request, machine, records)
        warn([*noise_advice(noise, run.machine, _ranks_here(options)), *unlike(hosts)], quiet=options.quiet)
        notes += notes_on_earlier_runs(prepared.output, records, run, options)
        before = records.results(request.objective.text)
        compared = kept(options, prepared.beside.compared, prepared.domain, domain, notes)
        # After the limit one is measured, and the order of an application after it.
        own, fastest = () if compared is None or deadline.over else (compared,), begin_with(before, domain)
        first = *own, *followed(options, domain, notes), *fastest
        known, store = before if options.resume else None, OrderStore(domain, records)
        groups = RankGroups(machine, store, links[1:], records, run, hosts, notes)
        done = search(request, domain, machine, store, noise, known, first, groups.joined if links[1:] else None)
        left = groups.left(done)
        machine = left.machine
        if not done.interrupted:
            if compared is not None and done.best is not None:
                again = (*fastest[:2], compared) if deadline.over else (done.best, compared)
                measured_again(again, left.store, machine, 1 if deadline.over else options.repeats)
            if not deadline.over:
                machine.time_reference()
        results = records.results()
        done = settled(done, domain, results)
        notes += [*noise_advice_of(results), *text.changed()]
        wrong = disagreement_of(request, machine, domain, records, done)
        if wrong is None:
            traced(request, machine, domain, records, done, notes)
        limits = limited(request, domain, records, done, prepared.arrays.data, notes)
    return explored(done, domain, prepared.output, notes, results, options, wrong, limits, compared)


def _ranks_here(options: ExploreOptions) -> int:
    """Of all groups that run on this machine."""
    return options.ranks * (options.groups if joined() is None else 1)


def _started(prepared: Ready, machine: LiveMachine, array: JobArray | None) -> tuple[MachineRecord, ...]:
    """Start the ranks: the hosts of the first group. Jobs are submitted when their programs are built, so that no node
    waits for compilers."""
    chosen, display = prepared.request.chosen, prepared.request.display
    if array is None:
        return machine.hosts(chosen.target.value, chosen.arch)
    with display.phase("compiling, before jobs are submitted"):
        prepared.compilation.wait(prepared.request.deadline.part(BUILD_SHARE))
    array.folder = prepared.arrays.data.parent
    with display.phase("waiting for the first job"):
        array.submit()
        display.say(f"{array.text} submitted; scancel {array.id} ends the search")
        return machine.hosts(chosen.target.value, chosen.arch)


def _explore_replayed(
    text: ProgramText, out: str | Path | None, options: ExploreOptions, deadline: Deadline
) -> Explored:
    """Explore with a recorded results file instead of a machine."""
    with Display(quiet=options.quiet).phase(f"{options.replay}: reading"):
        request, program, domain, recorded, notes = replayed(text, options, deadline)
    options = request.options
    if options.simulate is not None:
        return _explore_simulated(request, program, domain, recorded, notes, out)
    machine, first = ReplayMachine(recorded, domain, options.seed), followed(options, domain, notes)
    with _kept_in(out, request, program, domain, recorded, recorded.runs[0].machine) as (store, earlier):
        done = search(request, domain, machine, store, recorded.noise, earlier, first)
    return explored(done, domain, None if out is None else Path(out), notes, recorded, options)


@contextmanager
def _kept_in(
    out: str | Path | None, request: SearchRequest, program: Program, domain: Orders, recorded: Results,
    machine: MachineRecord,
) -> Iterator[tuple[Store[Candidate], Results | None]]:  # fmt: skip
    """Where times that are not measured now are kept, of a machine that the file says; and what is there already."""
    if out is None:
        yield UNKEPT, None
        return
    from dagc.store.records import Records  # loads msgspec, sqlite3

    options = request.options
    run = run_record(machine, options, request.text.path, fixed=fixed_in(recorded.runs), folded=domain.folded)
    with Records.open(
        out, program_record(program), run, resume=options.resume, other_machine=options.other_machine
    ) as records:
        records.noise(recorded.noise if options.simulate is None else 0.0)
        declare(records, request.objective, recorded.units)
        yield OrderStore(domain, records), records.results(request.objective.text) if options.resume else None


def _explore_simulated(
    request: SearchRequest, program: Program, domain: Orders, recorded: Results, notes: list[str],
    out: str | Path | None,
) -> Explored:  # fmt: skip
    """Explore with the times that SimGrid predicts."""
    from dagc.report.scale import scaling_svg  # only with --simulate
    from dagc.study.calibrated import calibration  # only with --simulate
    from dagc.study.simulated import Factors, ScaleStep, scaling, simulated  # only with --simulate
    from dagc.study.traced import require_traces  # only with --simulate

    require_traces(recorded)  # before anything is set up
    options = request.options
    plot = None if options.plot is None else Path(options.plot)
    if plot is not None and plot.suffix != ".svg":
        raise UsageError(f"--plot {plot}: the picture is SVG", "choose a name that ends in .svg")
    if options.scale and out is not None:
        raise UsageError("--scale: a results file is of one number of ranks", "drop -o, or give -n")
    counts = options.scale or (options.ranks,)
    of = replace(recorded.runs[0].machine, hosts=(), cpu=f"predicted by SimGrid on {Path(str(options.simulate)).name}")
    notes[-1] = f"times are predicted by SimGrid for {counts[-1]} ranks on {options.simulate}"
    first, steps = followed(options, domain, notes), list[ScaleStep]()
    with scratch_directory("dagc-simulate-") as scratch:
        factors = Factors()
        if options.calibrate is not None:
            found = calibration(request, program, domain, recorded, scratch / "calibration")
            factors = found.on(str(options.simulate), options.calibrate)
            notes.append(found.text)
        for number, ranks in enumerate(counts):
            left = request.deadline.part_of_rest(len(counts) - number)
            # A second prediction is the same.
            once = replace(options, ranks=ranks, confirm=0, passes=1)
            at = replace(request, options=once, deadline=left)
            machine = simulated(at, program, domain, recorded, scratch / str(ranks))
            machine.factors = factors
            with _kept_in(out, at, program, domain, recorded, of) as (store, earlier):
                steps.append(ScaleStep(ranks, machine, search(at, domain, machine, store, 0.0, earlier, first)))
            fastest = steps[0].done.best
            first = first if fastest is None or fastest in first else (*first, fastest)
        lines = scaling(domain, steps) if options.scale else ()
    best = [(step.ranks, step.done.value) for step in steps if step.done.best is not None]
    if plot is not None and best:
        write_text_atomic(plot, scaling_svg(f"{program.name}: predicted times by number of ranks", sorted(best)))
    done = explored(steps[-1].done, domain, None if out is None else Path(out), notes, recorded, options)
    return replace(done, scaling=lines, predicted=True)

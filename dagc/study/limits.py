"""The distance of measured times to lower bounds: which ceilings and sizes apply, and what is said of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError, UsageError, counted
from dagc.base.signals import ENDLESS, Deadline
from dagc.build.toolchain import gpus
from dagc.choice.legal import op_of, op_under
from dagc.ir.plan import ArrayValue, Target
from dagc.ir.program import Action, CopyOp, Device, ExchangeOp
from dagc.measure.machine import measured_ceilings
from dagc.perf.bound import (
    ARITHMETIC,
    CACHE,
    HOST_LINK,
    LAUNCH,
    LINK,
    MEMORY,
    Ceilings,
    LowerBound,
    bound_of,
    copy_bound,
    over_links,
    path_of,
    seconds_of,
    with_links,
)
from dagc.perf.hardware import load_hardware
from dagc.report import si
from dagc.report.limits import LimitRow
from dagc.setup import scalars_of_ranks
from dagc.space.loops import unroll
from dagc.study.gpu import can_run

if TYPE_CHECKING:
    from pathlib import Path

    from dagc.ir.plan import Plan
    from dagc.ir.program import Graph, GraphOp, OpId, Program, Region
    from dagc.ir.traversal import Traversal
    from dagc.measure.bench import BenchResult
    from dagc.store.results import Implementation, Results, TraceSpan
    from dagc.study.choosers import ChooserInputs
    from dagc.study.results import KernelResult

CEILINGS, SCALARS = "ceilings", "scalars"  # facts of the machine of a run
WHOLE = "program"
Scalars: TypeAlias = Mapping[str, Any]


def limits_of(results: Results, graph: Graph, implementation: Implementation, value: float) -> tuple[LimitRow, ...]:
    """A row for each kernel of an implementation of `graph`, and the last for the program, which took `value` seconds
    (NaN: not the time was measured). None if the machine's ceilings are not known."""
    ceilings, scalars = _ceilings_of(results), scalars_of(results)
    if ceilings is None:
        return ()
    run = unroll(graph, implementation.order(graph))
    return program_limits(*run, scalars, ceilings, value, results.traces.get(implementation.id, ()))


def _ceilings_of(results: Results) -> Ceilings | None:
    """Those that the last run measured, but what a kernel has reached on such a GPU anywhere is possible here, too;
    else those of a descriptor of its GPU."""
    for run in reversed(results.runs):
        if CEILINGS in run.machine.facts:
            try:
                measured = Ceilings.of_table(run.machine.facts[CEILINGS], "measured on the machine")
                return measured.raised(descriptor_of(run.machine.gpus[0]) if run.machine.gpus else None)
            except ValueError as error:
                raise UsageError(f"the results file: {error}", "it was changed by another program") from None
    machine = results.runs[-1].machine if results.runs else None
    return descriptor_of(machine.gpus[0]) if machine is not None and machine.gpus else None


def descriptor_of(gpu: str) -> Ceilings | None:
    """Of a GPU that is known by name."""
    try:
        return Ceilings.of_hardware(load_hardware(gpu))
    except UsageError:
        return None


def ceilings_here(known: ChooserInputs, deadline: Deadline) -> Ceilings | None:
    """Those of this machine, which are not measured after the deadline; where kernels cannot run, those of the GPU
    whose model ranks them."""
    task = known.ready.task
    here = _ceilings_now(task.chosen.target, task.chosen.arch, deadline) if can_run(task) else None
    return descriptor_of(known.hardware.name) if here is None and task.chosen.target is Target.CUDA else here


def _ceilings_now(target: Target, arch: str, deadline: Deadline) -> Ceilings | None:
    """Of this machine; None if they cannot be measured, or are not known at the deadline."""
    with suppress(DagcError, ValueError):
        found = measured_ceilings(target.value, arch, deadline)
        here = gpus() if target is Target.CUDA else ()
        known = descriptor_of(here[0].name) if here else None
        return known if found is None else Ceilings.of_table(found, "measured on this machine").raised(known)
    return None


def scalars_of(results: Results) -> tuple[Scalars, ...]:
    """The scalars of each rank; of a file without them, of one rank that has none."""
    found: Any = next((r.machine.facts[SCALARS] for r in reversed(results.runs) if SCALARS in r.machine.facts), None)
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        return ({},)
    return tuple({n: v for n, v in one.items() if isinstance(v, (int, float))} for one in found)


def limits_of_run(plan: Plan, result: BenchResult, data: Path) -> tuple[LimitRow, ...]:
    """Of a compiled program that was timed with the arrays of `data`."""
    ceilings = _ceilings_now(plan.target, plan.arch, ENDLESS)
    if ceilings is None:
        return ()
    scalars = scalars_of_ranks(plan.program, data, result.ranks)
    return program_limits(plan.graph, plan.traversal, scalars, ceilings, result.median)


def with_limits(
    lines: Sequence[KernelResult], known: ChooserInputs, deadline: Deadline
) -> tuple[tuple[KernelResult, ...], LimitRow | None]:
    """The lines of kernels at sizes with their limits, and that of the program in any order at the size where the
    limit of a kernel is largest; where the speed of the machine is known. It is not measured after the deadline."""
    task, ceilings = known.ready.task, ceilings_here(known, deadline)
    if ceilings is None or not lines:
        return tuple(lines), None

    def limit(line: KernelResult) -> LimitRow:
        graph = task.graph_at(line.case)
        site = next(site for site in task.sites if site.name == line.op)
        op = op_under(graph.program, op_of(graph, site), line.chosen)
        op = replace(op, tunables=tuple((name, line.chosen.own.get(name, value)) for name, value in op.tunables))
        bound = bound_of(graph.program, op, known.ready.at[line.case].values, ceilings)
        where = f"{line.op} at {line.case.text}" if line.case.text else line.op
        return _row(where, [bound], [] if math.isnan(line.chosen_value) else [line.chosen_value])

    limits = [limit(line) for line in lines]
    case = max(zip(limits, lines, strict=True), key=lambda one: one[0].bound)[1].case
    graph, values = task.graph_at(case), known.ready.at[case].values
    whole = _whole(graph, None, op_bounds(graph, [values], ceilings), ceilings, math.nan, {})
    whole = replace(whole, name=f"{WHOLE} at {case.text}" if case.text else WHOLE)
    return tuple(replace(line, limit=own) for line, own in zip(lines, limits, strict=True)), whole


# ---- the rows -----------------------------------------------------------------------------------


def program_limits(
    graph: Graph,
    traversal: Traversal,
    scalars: Sequence[Scalars],
    ceilings: Ceilings,
    value: float = math.nan,
    spans: Iterable[TraceSpan] = (),
) -> tuple[LimitRow, ...]:
    """`scalars` of each rank, `value`: seconds of an iteration, `spans` of a traced one."""
    bounds = op_bounds(graph, scalars, ceilings)
    took: dict[OpId, list[float]] = defaultdict(list)
    for span in spans:
        op = traversal.entries[span.position].op if span.position < len(traversal.entries) else None
        if op in bounds and not math.isnan(span.gpu_end):
            took[op].append(span.gpu_end - span.gpu_begin)
    sites: dict[str, list[OpId]] = {}
    for number in bounds:
        sites.setdefault(_site(graph.ops[number]), []).append(number)
    rows = [_row(site, [bounds[n] for n in ops], [t for n in ops for t in took[n]]) for site, ops in sites.items()]
    lost = {
        row.name: len(sites[row.name]) * (row.measured - row.bound)
        for row in rows
        if not math.isnan(row.reached) and bounds[sites[row.name][0]].why != LAUNCH  # those may have waited for others
    }
    return (*rows, _whole(graph, traversal, bounds, ceilings, value, lost))


def op_bounds(graph: Graph, scalars: Sequence[Scalars], ceilings: Ceilings) -> dict[OpId, LowerBound]:
    """Of what works on a stream: the lowest bound of any rank. Of a site whose ops have many sizes, of MOST of them."""
    sites: dict[str, dict[tuple[object, ...], list[GraphOp]]] = {}
    linked = over_links(graph.program)
    for op in graph.ops:
        if (key := _size_key(graph.program, op)) is not None:
            sites.setdefault(_site(op), {}).setdefault((*key, linked.get(op.name)), []).append(op)
    out: dict[OpId, LowerBound] = {}
    for sizes in sites.values():
        groups = list(sizes.values())
        for group in groups[:: -(-len(groups) // MOST)]:
            bounds = (_bound(graph, group[0], one, ceilings, linked) for one in distinct(scalars))
            bound = min(bounds, key=lambda b: b.seconds)
            out |= {op.id: bound for op in group}
    return dict(sorted(out.items()))


MOST = 16


def _site(op: GraphOp) -> str:
    return str(getattr(op.op, "base", op.name))


def _size_key(program: Program, op: GraphOp) -> tuple[object, ...] | None:
    """Equal for ops that move the same; None of what does not work on a stream."""

    def part(region: Region) -> tuple[object, ...]:
        array = program.array(region.array)
        return (array.type, array.dims, region.part, region.slices)

    kernel = op.kernel
    if kernel is not None and kernel.device is Device.GPU and not kernel.placed:
        arrays = [getattr(arg, "array", None) for arg in kernel.args]
        pairs = zip(arrays, kernel.args, strict=True)
        alike = tuple(arrays.index(array) if array is not None else arg for array, arg in pairs)
        return (kernel.kernel, kernel.variant, kernel.tunables, kernel.when, alike)
    if op.action is Action.GROUP and isinstance(op.op, ExchangeOp):
        return tuple((part(m.recv), m.source, m.recv_counts, m.when) for m in op.op.messages)
    if op.action is Action.COPY and isinstance(op.op, CopyOp):
        return (part(op.op.src), op.op.when)
    return (op.op,) if op.action is Action.GROUP else None


def _bound(
    graph: Graph, op: GraphOp, values: Scalars, ceilings: Ceilings, linked: Mapping[str, tuple[ArrayValue, ...]]
) -> LowerBound:
    if op.kernel is not None:
        bound = bound_of(graph.program, op.kernel, values, ceilings)
        return with_links(bound, linked.get(op.name, ()), {**graph.program.param_values, **values}, ceilings)
    return copy_bound(graph.program, op, values, ceilings)


def distinct(scalars: Sequence[Scalars]) -> list[Scalars]:
    return [one for number, one in enumerate(scalars) if one not in scalars[:number]]


def _row(site: str, bounds: Sequence[LowerBound], times: Sequence[float]) -> LimitRow:
    """Of the ops of one site: the one in the middle."""
    bound = sorted(bounds, key=lambda b: b.seconds)[len(bounds) // 2]
    measured = median(times) if times else math.nan
    return LimitRow(site, measured, bound.seconds, why_of(bound), held_of(bound), bound.unknown)


def why_of(bound: LowerBound) -> str:
    """The reason of a bound in words."""
    footprint, moved = bound.footprint, si.size(bound.footprint.bytes)
    speed = f"at {si.size(footprint.bytes / (bound.seconds - bound.own))}/s" if bound.seconds else ""
    but = f", without {', '.join(f'`{a}`' for a, _ in footprint.uncounted)}" if footprint.uncounted else ""
    return {
        MEMORY: f"{moved} from and to memory {speed}{but}",
        CACHE: f"{moved}, which a cache may hold, {speed}{but}",
        LAUNCH: f"a launch, of {moved}{but}",
        LINK: f"{moved} over a link {speed}",
        HOST_LINK: f"{moved} over the link to the host {speed}",
        ARITHMETIC: f"{si.count(int(float(f'{footprint.operations:.3g}')))} operations, two an instruction",
    }.get(bound.why, "")


def held_of(bound: LowerBound) -> str:
    """What may keep a launch from its bound."""
    footprint = bound.footprint
    array, far = footprint.apart
    if array:
        return f"neighbouring threads access `{array}` {far} elements apart"
    if footprint.uncounted:
        return "; ".join(f"`{name}`: {why}" for name, why in footprint.uncounted)
    each = footprint.elements / footprint.threads if footprint.threads else 0.0
    if not footprint.widest:
        return ""  # a copy
    words = "one element" if round(each) <= 1 else f"{si.significant(each, 2)} elements"
    accesses = "" if bound.why == ARITHMETIC else f"accesses of {counted(footprint.widest, 'byte')}, "
    return f"{accesses}{words} a thread"


def _whole(
    graph: Graph, traversal: Traversal | None, bounds: Mapping[OpId, LowerBound], ceilings: Ceilings, value: float,
    lost: Mapping[str, float],
) -> LimitRow:  # fmt: skip
    path, chain = path_of(graph, traversal, {op: b.seconds for op, b in bounds.items()}, ceilings.wait)
    launches = sum(op in bounds for op in chain)
    waits = " that wait for each other" if launches > 1 else ""
    why, seconds = f"{counted(launches, 'launch', 'launches')}{waits}", path
    unknown = dict.fromkeys(_site(graph.ops[op]) for op, bound in bounds.items() if bound.unknown)
    if ceilings.shared:
        moved = [m for b in bounds.values() for m in b.footprint.moved]
        together, _ = seconds_of(moved, ceilings)
        if together > seconds:
            seconds, why = together, f"{si.size(sum(m.bytes for m in moved))} of all launches"
    why += f", as far as they are known (without {', '.join(unknown)})" if unknown else ""
    worst = max(lost, key=lambda name: lost[name], default="")
    held = f"most is lost in {worst}" if worst and lost[worst] > 0 else ""
    return LimitRow(WHOLE, value, seconds, why, held, "" if seconds else "none of its ops has a lower bound")

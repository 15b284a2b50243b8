"""Which decisions a search opens: the request, and the configurations that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dagc.base.errors import ProgramError, UsageError
from dagc.base.sample import TIME, Objective
from dagc.base.signals import ENDLESS, Deadline
from dagc.build.mpi import cores as compilers
from dagc.build.ranks import several_hosts
from dagc.build.toolchain import TargetChoice
from dagc.choice.types import Site
from dagc.ir import program as ir
from dagc.ir.choice import FUSE, VARIANT, Choice, own_name, qualified
from dagc.ir.constraints import without_effect
from dagc.ir.enums import Transport
from dagc.ir.plan import Target, stays_fixed
from dagc.ir.regions import between_devices
from dagc.ir.repetition import possible
from dagc.lab.configurations import Configured, by_name, combinations, compiled, configurations, open_decisions
from dagc.lab.orders import COUNTING_WORK, Orders
from dagc.lab.orders import domain_of as domain
from dagc.report import si
from dagc.report.counting import loop_notes
from dagc.report.display import SILENT, Display
from dagc.stages.program import ProgramText
from dagc.store.results import Results
from dagc.store.settings import OF_SEARCH

if TYPE_CHECKING:
    from dagc.stages.options import ExploreOptions, OpenOptions


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


class LoweredBy(NamedTuple):
    """How a program is lowered under choices, and whether it is too late to do so."""

    graph: Callable[[Mapping[str, ir.Value]], ir.Graph]
    late: Callable[[Mapping[str, ir.Value]], bool] = lambda choices: False


def configured(
    text: ProgramText,
    options: ExploreOptions,
    gpus: bool,
    lowering: Callable[[Sequence[Mapping[str, ir.Value]]], LoweredBy] | None = None,
) -> tuple[ir.Program, list[Configured], list[str]]:
    """The program, its configurations, and a note on each combination that the program forbids. `lowering`: the
    combinations -> how the program is lowered under each of them, if not by its text."""
    program = text.program()
    fixed = {name for name in text.defines if name not in {p.name for p in program.params}}
    every = _opened(options, gpus)
    named = {text.partition("=")[0] for text in every} | fixed
    if several_hosts(options.ranks):
        offered = {n: v for n, v in by_name(program).items() if n in (ir.WITHIN_HOST, ir.RANK_ORDER) and n not in named}
        for name, its in offered.items():  # `put` as in `_usual`
            every.append(f"{name}={','.join(str(v) for v in its if gpus or v != Transport.PUT.value)}")
    if gpus and program.repeat is not None and ir.LOOP not in named:
        every += _loops(text, program)
    opened = [text for text in every if text.partition("=")[0] not in fixed or text in options.opened]
    values, notes = _usual(program, open_decisions(program, opened, fixed), options, gpus)
    asked = {text.partition("=")[0] for text in opened} | fixed
    if options.only is None:
        values, left_out = with_automatic(program, values, asked if gpus else asked | {ir.GRAPH_EDGES, ir.PUT_WAIT})
        notes += left_out
    may_gain = promising(asked)
    by = LoweredBy(text.graph) if lowering is None else lowering(list(filter(may_gain, combinations(values))))
    kept, refused = configurations(values, by.graph, options.most_configurations, may_gain, by.late)
    notes += excluded_notes((left.defines, left.reason, left.span) for left in refused)
    notes += [f"{note.message} ({note.help})" for note in without_effect([c.graph for c in kept])]
    if text.folds:
        notes += dict.fromkeys(note for c in kept for note in loop_notes(c.graph))
    return program, list(kept), notes


def _loops(text: ProgramText, program: ir.Program) -> list[str]:
    """Who may repeat the dag, as `--open` has it. Without a test, iterations of one graph follow each other faster than
    those of a while node (docs/figures.md). One kernel, which is compiled for itself, only where it is possible."""
    kernel = {ir.LOOP: ir.Repetition.PERSISTENT.value}
    offered = (v for d in program.decisions if d.name == ir.TRANSPORT for v in d.values)
    if able := [v for v in offered if Transport(v).within_kernels]:
        kernel[ir.TRANSPORT] = str(able[0])
    try:
        whole = possible(text.graph(kernel | {n: v for n, v in text.defines.items() if n in kernel}))
    except ProgramError:
        whole = ir.Repetition.HOST
    ways = [
        ir.Repetition.HOST,
        *([ir.Repetition.DEVICE] if program.until is not None else []),
        *([ir.Repetition.PERSISTENT] if whole is ir.Repetition.PERSISTENT else []),
    ]
    return [f"{ir.LOOP}={','.join(way.value for way in ways)}"] if len(ways) > 1 else []


def _usual(
    program: ir.Program, values: Mapping[str, tuple[ir.Value, ...]], options: ExploreOptions, gpus: bool
) -> tuple[dict[str, tuple[ir.Value, ...]], list[str]]:
    """The values without the transport `put` where it is not asked for, by an option or a `tune` of the program: on the
    host target, with a note, and in programs without an exchange, where it is `peer`."""
    every = any(d.name == ir.TRANSPORT and len(d.values) == len(Transport) for d in program.decisions)
    asked = {text.partition("=")[0] for text in options.opened}
    put = Transport.PUT.value
    exchanges = any(isinstance(op, ir.ExchangeOp) for op in between_devices(program.ops, program.arrays))
    if not every or options.transport != "all" or ir.TRANSPORT in asked or (gpus and exchanges):
        return dict(values), []
    out = {n: tuple(v for v in of if n != ir.TRANSPORT or v != put) for n, of in values.items()}
    note = (
        f"not searched on the host target, where it says nothing of a GPU: {ir.TRANSPORT}={put} (--transport, --open)"
    )
    return out, [note] if exchanges and put in values.get(ir.TRANSPORT, ()) else []


# Transports whose messages are kernels of dagc. With the others, edges of CUDA graphs other than full ones gained
# nothing (docs/figures.md, "Messages that kernels write").
_OF_KERNELS = frozenset(t.value for t in Transport if t.within_kernels)
# Edges that are programmatic, but not early, were faster than both by at most 0.7 % (docs/figures.md, "Edges of CUDA
# graphs").
_EDGES = (ir.GraphEdges.FULL.value, ir.GraphEdges.EARLY.value)


def promising(asked: Collection[str]) -> Callable[[Mapping[str, ir.Value]], bool]:
    """Which combinations are searched: of edges that are not `asked` for, those that may gain with the transport."""

    def may_gain(choices: Mapping[str, ir.Value]) -> bool:
        full = choices.get(ir.GRAPH_EDGES, ir.GraphEdges.FULL.value) == ir.GraphEdges.FULL.value
        return full or ir.GRAPH_EDGES in asked or ir.TRANSPORT not in choices or choices[ir.TRANSPORT] in _OF_KERNELS

    return may_gain


# Limits of the programs that automatically opened decisions may lead to: all are compiled before the search, which
# should not take longer than the search itself.
MOST_PROGRAMS = 32
PROGRAMS_A_CORE = 4


def with_automatic(
    program: ir.Program, values: Mapping[str, tuple[ir.Value, ...]], closed: Collection[str]
) -> tuple[dict[str, tuple[ir.Value, ...]], list[str]]:
    """The decisions to search, including those that a search opens automatically, and a note on the others.

    These are devices, the variants of kernels, the transport of collectives (of the transports that are searched),
    staging, launches that may be fused, choices that change no edge and cannot be made at run time, the edges of CUDA
    graphs where these are searched, and where messages of `put` are waited for, in this order, up to MOST_PROGRAMS
    programs to compile, and PROGRAMS_A_CORE per core. `closed`: names that the user has fixed or opened, and those
    without an effect.
    """
    out = dict(values)
    left: list[str] = []
    most = min(MOST_PROGRAMS, PROGRAMS_A_CORE * compilers())
    transports = values.get(ir.TRANSPORT, ())
    edges = [] if ir.GRAPH_EDGES in closed or True not in values.get("capture", ()) else [[ir.GRAPH_EDGES]]
    waits = [] if ir.PUT_WAIT in closed or Transport.PUT.value not in transports else [[ir.PUT_WAIT]]
    every = {**by_name(program), ir.GRAPH_EDGES: _EDGES, **{d.name: d.values for d in program.decisions}}
    for names in [*_automatic(program, closed), *edges, *waits]:
        more = {name: every[name] for name in every if name in names}
        if ir.COLLECTIVES in more:
            more[ir.COLLECTIVES] = tuple(v for v in more[ir.COLLECTIVES] if v in (ir.SAME, *transports))
        if compiled(filter(promising(closed), combinations(out | more))) > most:
            left += more
        else:
            out |= more
    order = {d.name: i for i, d in enumerate(program.decisions)}
    sorted_ = sorted(out, key=lambda n: order.get(n, len(order)))
    notes = [f"not searched, since more than {most} programs would be compiled: {', '.join(left)} (--open)"]
    return {n: out[n] for n in sorted_}, notes if left else []


def _automatic(program: ir.Program, closed: Collection[str]) -> list[list[str]]:
    """Names of decisions that a search opens automatically; related ones (`threads[x]`, `threads[y]`) as one."""
    several = [d for d in program.decisions if len(d.values) > 1 and d.name not in closed]
    ops = [op for op in program.ops if isinstance(op, ir.KernelOp)]
    at_compile_time = {qualified(op.base, name) for op in ops for name in stays_fixed(program, op)}
    devices = [[d.name] for d in several if own_name(d.name) == ir.DEVICE]
    variants = [[d.name] for d in several if own_name(d.name) == VARIANT]
    staging = [[d.name] for d in several if d.name == "staging"] if program.comm_ops else []
    others: dict[str, list[str]] = {}
    for d in several:
        if d.name in at_compile_time or (not d.structural and "." not in d.name and d.name not in OF_SEARCH):
            others.setdefault(d.name.partition("[")[0], []).append(d.name)
    fusions = [[d.name] for d in several if d.name.startswith(FUSE)]
    collectives = [[d.name] for d in several if d.name == ir.COLLECTIVES]
    return [*devices, *variants, *collectives, *staging, *fusions, *others.values()]


def is_folded(configurations: Iterable[Configured]) -> bool:
    """Whether traversals of these cover one round of each loop."""
    return any(c.graph.folding is not None for c in configurations)


def excluded_notes(excluded: Iterable[tuple[Mapping[str, ir.Value], str, Hashable]]) -> list[str]:
    """Notes on combinations of choices that are excluded, each with its reason and the cause. One note for each cause:
    the combination, or the number of combinations with their common choices, and the first reason."""
    by_cause: dict[Hashable, list[tuple[tuple[str, ...], str]]] = {}
    for choices, reason, cause in excluded:
        words = tuple(f"{name}={ir.shown(value)}" for name, value in choices.items())
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

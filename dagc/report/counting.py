"""`dagc count`: the size of the space, per lowering and choice, and in total."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from dagc.base.errors import ProgramError, Severity
from dagc.base.signals import ENDLESS, Deadline
from dagc.ir import program as ir
from dagc.ir.choice import own_name, qualified, site_of
from dagc.ir.constraints import TooManyAssignments, assignments, condition, effective, in_use, may_hold, of_launch
from dagc.ir.sym import Sym
from dagc.lab.configurations import renamed
from dagc.passes.loops import Unfolded, unfolded
from dagc.report import si
from dagc.report.display import SILENT, Display, Phase
from dagc.space import Counter, TooManyStates
from dagc.space.moves import Moves

# A variation that needs more than this, in states times ops (a second), is reported as not counted; the graph that was
# requested has no limit. One with as many ops or more than that is taken to have as many states.
VARIATION_WORK = 300_000
# The whole space is summed over at most this many structural combinations.
WHOLE_COMBINATIONS = 256

Build = Callable[[dict[str, ir.Value]], ir.Graph]


@dataclass(frozen=True, slots=True)
class Variation:
    """One variation: the choices that differ from the default, and its count (None: not counted, `note` gives the
    reason). `combinations`: of variants and tunables, which may be others there, None if they were not counted."""

    choices: tuple[tuple[str, ir.Value], ...]
    count: int | None
    note: str = ""
    combinations: int | None = 1

    @property
    def label(self) -> str:
        return " ".join(f"{name}={ir.shown(value)}" for name, value in self.choices)


@dataclass(frozen=True, slots=True)
class CountReport:
    """`count`: orders and stream bindings of the graph as requested. `states`: number that the exact count needed.

    `per_op`: open variants and tunables: (op name, legal combinations), and decisions of the program that change no
    edge: (name, values). `combinations` of all these satisfy the program's `require`s; each count times them is the
    number of what `dagc explore` searches. `combinations` and `whole` are None if they were not counted.
    `count` is None if the time limit ended it; `more_than` is then a lower bound. `loops`: how they count.
    """

    name: str
    count: int | None
    states: int
    choices: tuple[tuple[str, ir.Value], ...]
    lines: tuple[Variation, ...]
    per_op: tuple[tuple[str, int], ...]
    combinations: int | None
    whole: int | None
    whole_note: str
    more_than: int = 0
    loops: tuple[str, ...] = ()


def loop_notes(graph: ir.Graph) -> tuple[str, ...]:
    """A note on each loop of a folded graph, how it is counted and searched, and on each loop that was not folded."""
    segments = () if graph.folding is None else graph.folding.segments
    folded = tuple(
        f"{len(s.rounds)} rounds of {graph.ops[s.ops[0]].name} to {graph.ops[s.ops[-1]].name} repeat one order"
        f" (--unroll: an order for each){_lost_overlap(graph, s)}"
        for s in segments
        if s.loop
    )
    return (*folded, *(_unfolded_note(graph, left) for left in unfolded(graph)))


def _lost_overlap(graph: ir.Graph, loop: ir.Segment) -> str:
    """A remark if GPU ops of a round wait for nothing of earlier rounds: as rounds follow one another, they do not
    overlap, as they could."""
    reached, more = set[ir.OpId](), {v for _, v, _ in loop.carried}
    while more:
        reached |= more
        more = {v for u, v in graph.completion if u in reached and v in loop.ops} - reached
    free = [graph.ops[op].name for op in loop.ops if graph.ops[op].gpu and op not in reached]
    if not free:
        return ""
    waits = f"{free[0]} waits" if len(free) == 1 else f"{', '.join(free)} wait"
    return f"; {waits} for no earlier round, and only --unroll has orders in which they overlap"


def _unfolded_note(graph: ir.Graph, left: Unfolded) -> str:
    line, _ = graph.program.sources[left.loop.span.file].line_column(left.loop.span.start)
    which = f"{left.count} of {len(left.loop.turns)}" if left.count < len(left.loop.turns) else f"{left.count}"
    return (
        f"{which} iterations of `for {left.loop.variable}` (line {line}) have each an order of their own: {left.why};"
        f" {left.help}"
    )


def count_report(build: Build, display: Display = SILENT, end: Deadline = ENDLESS, folds: bool = True) -> CountReport:
    """Count a program's graph and its variations. `build` lowers the text under the given choices; `folds`: into graphs
    with one period of each loop.

    At the `end` counting is stopped, that of the graph itself after half of the time that its construction left if
    there are variations to count: its count is then a lower bound, and the variations that are left are reported as
    not counted.
    """
    began = end.clock()
    graph = build({})
    program, moves, more = graph.program, Moves.of(graph), 0
    reslices = [
        d.name for d in program.decisions if d.slices and not d.counted_apart and _reslices(d, build, moves, end)
    ]
    apart = [d for d in program.decisions if d.counted_apart or d.name in reslices]
    structural = [d for d in apart if _matters(d, graph)]
    current = {d.name: d.chosen for d in structural}
    varies = any(_key({**current, d.name: value}) != _key(current) for d in structural for value in d.values)
    building = end.clock() - began
    half = Deadline.after(end.limit(0.5), end.clock) if varies else end
    count, states = None, 0
    with display.phase(f"counting {program.name}", unit="state") as phase:
        try:
            counter = Counter(moves, watch=_watch(phase.at, half))
            try:
                count = counter.total()
            finally:
                states = len(counter)
        except TooManyStates as stopped:
            more = stopped.at_least
    per_op, combinations = _open(program, reslices)
    with display.phase("counting its variations", unit="variation") as phase:
        tally = _Tally(build, current, moves, count, states, phase, combinations, end, building, reslices)
        lines = tuple(_variations(structural, current, tally))
        whole, note = _whole(structural, program.constraints, tally)
    chosen = tuple(effective(current).items())
    loops = loop_notes(graph) if folds else ()
    return CountReport(program.name, count, states, chosen, lines, per_op, combinations, whole, note, more, loops)


def _reslices(decision: ir.Decision, build: Build, moves: Moves, end: Deadline) -> bool:
    """Whether some value of a decision moves slices so that other ones overlap, which gives other edges."""
    for value in () if end.over else decision.values:
        with suppress(ProgramError):
            if value != decision.chosen and Moves.of(build({decision.name: value})) != moves:
                return True
    return False


def _watch(show: Callable[[int], None], end: Deadline) -> Callable[[int], None]:
    """Shows the number of counted states, and stops the count at the `end`."""

    def watch(states: int) -> None:
        show(states)
        if end.over:
            raise TooManyStates

    return watch


def _matters(decision: ir.Decision, graph: ir.Graph) -> bool:
    """Transports and staging have no effect in a program without messages."""
    messages = len(graph.matches) > 0 or any(op.action.value == "group" for op in graph.ops)
    return messages or decision.name not in (*_LOWERING, ir.COLLECTIVES)


_LOWERING = (ir.TRANSPORT, "staging")


class _Tally:
    """Counts by structural choices. Each is counted once, and those with equal moves together."""

    def __init__(
        self,
        build: Build,
        current: dict[str, ir.Value],
        moves: Moves,
        count: int | None,
        states: int,
        phase: Phase,
        combinations: int | None,
        end: Deadline,
        building: float,
        reslices: Sequence[str],
    ) -> None:
        self._build = build
        self._reslices = reslices
        self._phase = phase
        self._end = end
        self._moves, self._states = moves, states  # of `current`
        self._building = building  # seconds that it took to build the graph of `current`
        whole: int | str = _STOPPED if count is None else count
        self._known: dict[frozenset[tuple[str, ir.Value]], int | str] = {_key(current): whole}
        self._number_of_orders: dict[Moves, int | str] = {moves: whole}
        self._combinations: dict[frozenset[tuple[str, ir.Value]], int | None] = {_key(current): combinations}

    def count(self, choices: dict[str, ir.Value]) -> int | str:
        """The count, or the reason why there is none."""
        key = _key(choices)
        if key not in self._known:
            self._known[key] = self._count(key, effective(choices))
            self._phase.advance()
        return self._known[key]

    def combinations(self, choices: dict[str, ir.Value]) -> int | None:
        """Of variants and tunables, where `count` gave a number; None if there are too many to count."""
        return self._combinations[_key(choices)]

    def _count(self, key: frozenset[tuple[str, ir.Value]], choices: dict[str, ir.Value]) -> int | str:
        if self._end.left <= self._building:
            return _STOPPED
        try:
            graph = self._build(choices)
            moves = Moves.of(graph)
            self._combinations[key] = _open(graph.program, self._reslices)[1]
        except ProgramError as error:
            first = next(d for d in error.diagnostics if d.severity is Severity.ERROR)
            return first.message
        if moves not in self._number_of_orders:
            watch = _watch(lambda states: None, self._end)
            try:
                if moves.size >= self._moves.size and self._states * moves.size > VARIATION_WORK:
                    raise TooManyStates
                self._number_of_orders[moves] = Counter(moves, VARIATION_WORK // moves.size, watch).total()
            except TooManyStates:
                self._number_of_orders[moves] = _STOPPED if self._end.over else _TOO_MANY
        return self._number_of_orders[moves]


_TOO_MANY_CHOICES = "too many combinations of variants and tunables that `require`s connect"
_TOO_MANY = "not counted: too many states"
_STOPPED = "not counted: stopped by --time"


def _key(choices: dict[str, ir.Value]) -> frozenset[tuple[str, ir.Value]]:
    return frozenset(effective(choices).items())


def _combinations(structural: list[ir.Decision]) -> Iterator[dict[str, ir.Value]]:
    """Structural choices, each once, of those that have an effect."""
    seen = set()
    for values in product(*(d.values for d in structural)):
        chosen = effective(dict(zip((d.name for d in structural), values, strict=True)))
        if _key(chosen) not in seen:
            seen.add(_key(chosen))
            yield chosen


def _variations(structural: list[ir.Decision], current: dict[str, ir.Value], tally: _Tally) -> Iterator[Variation]:
    """Each transport with each staging, then each other structural choice alone, with the rest as requested."""
    asked: list[dict[str, ir.Value]] = list(_combinations([d for d in structural if d.name in _LOWERING]))
    others = [d for d in structural if d.name not in _LOWERING and len(d.values) > 1 and d.name in in_use(current)]
    asked += [{d.name: v} for d in others for v in d.values]
    for choices in asked:
        if choices:
            count = tally.count({**current, **choices})
            if isinstance(count, str):
                alone = "; alone: " + " ".join(f"-D {name}={ir.shown(value)}" for name, value in choices.items())
                yield Variation(tuple(choices.items()), None, count + (alone if count == _TOO_MANY else ""))
            else:
                yield Variation(tuple(choices.items()), count, "", tally.combinations({**current, **choices}))


def _whole(structural: list[ir.Decision], constraints: tuple[Sym, ...], tally: _Tally) -> tuple[int | None, str]:
    if math.prod(len(d.values) for d in structural) > WHOLE_COMBINATIONS**2:  # too many to form them
        return None, f"more than {WHOLE_COMBINATIONS} structural combinations"
    allowed = [c for c in _combinations(structural) if all(may_hold(each, c) for each in constraints)]
    opened = [d.name for d in structural if len(d.values) > 1]
    combinations = list({frozenset(renamed(c, opened).items()): c for c in reversed(allowed)}.values())[::-1]
    if len(combinations) > WHOLE_COMBINATIONS:
        return None, f"{len(combinations)} structural combinations, more than {WHOLE_COMBINATIONS}"
    total = 0
    for chosen in combinations:
        count = tally.count(chosen)
        if count == _STOPPED:
            return None, _STOPPED.removeprefix("not counted: ")
        if count == _TOO_MANY:
            return None, "a combination has too many states"
        if isinstance(count, int):  # one forbidden by `require` or the checks is not part of the space
            number = tally.combinations(chosen)
            if number is None:
                return None, _TOO_MANY_CHOICES
            total += count * number
    return total, ""


# ---- variants and tunables ---------------------------------------------------------------


def _per_op(program: ir.Program) -> Iterator[tuple[str, int]]:
    """Per op name with open choices: its legal combinations of implementation and tunables."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    ops: dict[tuple[str, ...], ir.KernelOp] = {}
    for op in program.kernel_ops:
        ops.setdefault(_sites(op), op)
    for op in ops.values():
        of_op = (d for d in program.decisions if site_of(d.name) in _sites(op) and not d.counted_apart)
        if mine := {own_name(d.name): d for d in of_op}:
            yield op.site, _legal(kernels[op.kernel], op, mine, program.devices)


def _sites(op: ir.KernelOp) -> tuple[str, ...]:
    """The sites of an op's decisions; that of an `any` op has its device in the name, unless that is open."""
    return (op.site,) if op.placed else (op.base, qualified(op.base, op.device.value))


def _open(program: ir.Program, apart: Sequence[str]) -> tuple[tuple[tuple[str, int], ...], int | None]:
    """What is open of the ops and of the program, with numbers, and that of the combinations that the program's
    `require`s allow; None if there are too many to count. `apart`: names of decisions that are counted apart."""
    ops = tuple(_per_op(program))
    every = (d for d in program.decisions if not d.counted_apart and d.name not in apart)
    values = {d.name: d.values for d in every if "." not in d.name}
    settled = {d.name: d.chosen for d in program.decisions if d.name not in values}
    constraints = [condition(c, lambda c, env: may_hold(c, {**settled, **env})) for c in program.constraints]
    per_op = (*ops, *((name, len(some)) for name, some in values.items() if len(some) > 1))
    try:
        return per_op, assignments(values, constraints) * math.prod(number for _, number in ops)
    except TooManyAssignments:
        return per_op, None


def _legal(kernel: ir.Kernel, op: ir.KernelOp, open_: dict[str, ir.Decision], devices: ir.Devices) -> int:
    total = 0
    variants = open_["variant"].values if "variant" in open_ else (op.answer,)
    pinned: dict[str, ir.Value] = {name: value for name, value in op.tunables if name not in open_}
    others = {(other.device, other.variant, other.unit): other for other in op.others}
    for impl, unit in ir.on_units(kernel.impls, devices) if op.placed else ((impl, op.unit) for impl in kernel.impls):
        one = replace(op, device=impl.device, variant=impl.name, unit=unit)
        if (impl.device is not op.device and not op.placed) or one.answer not in variants:
            continue
        own, fixed = open_, pinned
        key = impl.device, impl.name, unit
        other = others.get(key)
        if other is None and key != (op.device, op.variant, op.unit):
            continue  # no values of its tunables are legal
        if other is not None:  # with tunables, and values of them, of its own
            own = {own_name(d.name): d for d in other.choices}
            fixed = dict(other.tunables)
        values: dict[str, tuple[ir.Value, ...]] = {n: (v,) for n, v in fixed.items()}
        values |= {t.name: own[t.name].values for t in (*kernel.tunables, *impl.tunables) if t.name in own}
        total += assignments(values, of_launch(kernel, impl, values))
    return max(total, 1)


# ---- text ----------------------------------------------------------------------------------


def as_text(report: CountReport) -> str:
    """The count first, then a line per lowering and choice, then the whole space."""
    asked = " ".join(f"{name}={ir.shown(value)}" for name, value in report.choices)
    out = [f"{_how_many(report)} of {report.name}" + (f": {asked}" if asked else "")]
    out += [f"  {note}" for note in report.loops]
    if report.lines:
        width = max(len(line.label) for line in report.lines)
        out += [f"  {line.label:{width}}  {_number_of_orders(line)}" for line in report.lines]
    if report.per_op:
        each = ", ".join(f"{op} {n}" for op, n in report.per_op)
        out.append(f"variants and tunables, for each of them: {each}: {_combined(report)}")
    if report.whole is not None:
        out.append(f"whole space: {si.exact(report.whole)}")
    else:
        out.append(f"whole space: not counted ({report.whole_note})")
    return "\n".join(out) + "\n"


def _combined(report: CountReport) -> str:
    if report.combinations is None:
        return _TOO_MANY_CHOICES
    every = math.prod(number for _, number in report.per_op)
    alone = "" if every == report.combinations else f" of {si.exact(every)} satisfy the `require`s"
    return f"{si.exact(report.combinations)}{alone or ' combinations'}"


def _number_of_orders(line: Variation) -> str:
    """The orders of a variation, and with variants and tunables."""
    if line.count is None:
        return f"({line.note})"
    orders = si.exact(line.count)
    times = line.combinations
    if times is None:
        return f"{orders} x ({_TOO_MANY_CHOICES})"
    return orders if times == 1 else f"{orders} x {times} = {si.exact(line.count * times)}"


def _how_many(report: CountReport) -> str:
    if report.count is None:
        return f"more than {si.about(report.more_than)} implementations (cut after {report.states} states)"
    return f"{si.exact(report.count)} implementation{'' if report.count == 1 else 's'}"


def as_json(report: CountReport) -> str:
    """Counts as JSON numbers; they may exceed 64 bits."""
    import json

    return json.dumps(
        {
            "program": report.name,
            "count": report.count,
            "more_than": report.more_than,
            "states": report.states,
            "choices": dict(report.choices),
            "lines": [
                {
                    "choices": dict(x.choices),
                    "count": x.count,
                    "note": x.note,
                    "whole": None if x.count is None or x.combinations is None else x.count * x.combinations,
                }
                for x in report.lines
            ],
            "per_op": dict(report.per_op),
            "combinations": report.combinations,
            "whole": report.whole,
            "whole_note": report.whole_note,
            "loops": list(report.loops),
        },
        indent=1,
    )

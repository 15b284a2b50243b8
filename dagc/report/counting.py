"""`dagc count`: the size of the space, per lowering and choice, and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from dagc.errors import ProgramError
from dagc.graph import Graph
from dagc.ir import Decision, Kernel, KernelOp, Program, Value
from dagc.space.count import Counter, TooManyStates
from dagc.space.moves import Moves
from dagc.sym import Sym, UnboundName, evaluate

# A variation that needs more states than this is reported as not counted; the one that was asked for has no limit.
VARIATION_STATES = 60_000
# The whole space is added up from at most this many structural combinations.
WHOLE_COMBINATIONS = 64

Build = Callable[[dict[str, Value]], Graph]


@dataclass(frozen=True, slots=True)
class Line:
    """One variation: the choices that differ from the default, and its count (None: not counted, `note` says why)."""

    choices: tuple[tuple[str, Value], ...]
    count: int | None
    note: str = ""

    @property
    def label(self) -> str:
        return " ".join(f"{name}={_shown(value)}" for name, value in self.choices)


@dataclass(frozen=True, slots=True)
class CountReport:
    """`count`: orders and stream bindings of the graph as asked for. `states` that the exact count needed.

    `per_op`: open variants and tunables: (op name, legal combinations). `whole` is None where it was not counted.
    """

    name: str
    count: int
    states: int
    choices: tuple[tuple[str, Value], ...]
    lines: tuple[Line, ...]
    per_op: tuple[tuple[str, int], ...]
    whole: int | None
    whole_note: str


def count_report(program: Program, build: Build) -> CountReport:
    """Count `program`'s graph and its variations. `build` lowers the same text under other choices."""
    graph = build({})
    counter = Counter(Moves.of(graph))
    count = counter.total()
    structural = [d for d in program.decisions if d.structural and _matters(d, graph)]
    per_op = tuple(_per_op(program))
    lines = tuple(_variations(structural, program, build, graph, count))
    whole, note = _whole(structural, build, per_op)
    chosen = tuple((d.name, d.chosen) for d in structural)
    return CountReport(program.name, count, len(counter), chosen, lines, per_op, whole, note)


def _matters(decision: Decision, graph: Graph) -> bool:
    """Transport and staging change nothing in a program without messages."""
    messages = len(graph.matches) > 0 or any(op.action.value == "group" for op in graph.ops)
    return messages or decision.name not in ("transport", "staging")


def _combinations(structural: list[Decision]) -> Iterator[dict[str, Value]]:
    """Structural choices; staging only where the transport stages."""
    names = [d.name for d in structural]
    staging = next((d for d in structural if d.name == "staging"), None)
    for values in product(*(d.values for d in structural)):
        chosen = dict(zip(names, values, strict=True))
        if staging and chosen.get("transport", "mpi_host") != "mpi_host" and chosen["staging"] != staging.values[0]:
            continue
        yield chosen


def _variations(structural: list[Decision], program: Program, build: Build, graph: Graph, count: int) -> Iterator[Line]:
    """Each transport with each staging, then each other structural choice alone, the rest as asked for."""
    lowering = [d for d in structural if d.name in ("transport", "staging")]
    current = {d.name: d.chosen for d in structural}
    for chosen in _combinations(lowering) if lowering else ():
        if chosen.get("transport", graph.transport.value) != "mpi_host":
            chosen.pop("staging", None)
        yield _line(chosen, {**current, **chosen}, build, current, count)
    for decision in structural:
        if decision not in lowering and len(decision.values) > 1:
            for value in decision.values:
                yield _line({decision.name: value}, {**current, decision.name: value}, build, current, count)


def _line(
    shown: dict[str, Value], choices: dict[str, Value], build: Build, current: dict[str, Value], count: int
) -> Line:
    if choices == current:
        return Line(tuple(shown.items()), count)
    try:
        return Line(tuple(shown.items()), Counter(Moves.of(build(choices)), VARIATION_STATES).total())
    except TooManyStates:
        return Line(tuple(shown.items()), None, f"over {VARIATION_STATES} states; ask for it alone to count it")
    except ProgramError as error:
        return Line(tuple(shown.items()), None, error.diagnostics[0].message)


def _whole(structural: list[Decision], build: Build, per_op: tuple[tuple[str, int], ...]) -> tuple[int | None, str]:
    combinations = list(_combinations(structural))
    if len(combinations) > WHOLE_COMBINATIONS:
        return None, f"{len(combinations)} structural combinations, more than {WHOLE_COMBINATIONS}"
    total = 0
    for chosen in combinations:
        try:
            total += Counter(Moves.of(build(chosen)), VARIATION_STATES).total()
        except TooManyStates:
            return None, f"some combinations need over {VARIATION_STATES} states"
        except ProgramError:
            continue  # a combination that `require` or the checks forbid is not part of the space
    for _, combinations_of_op in per_op:
        total *= combinations_of_op
    return total, ""


# ---- variants and tunables ---------------------------------------------------------------


def _per_op(program: Program) -> Iterator[tuple[str, int]]:
    """Per op name with open choices: its legal combinations of implementation and tunables."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    seen: set[str] = set()
    for op in program.ops:
        if not isinstance(op, KernelOp) or op.base in seen:
            continue
        seen.add(op.base)
        mine = {
            d.name.split(".", 1)[1]: d
            for d in program.decisions
            if d.name.split(".", 1)[0] == op.base and "." in d.name
        }
        if mine:
            yield op.base, _legal(kernels[op.kernel], op, mine)


def _legal(kernel: Kernel, op: KernelOp, open_: dict[str, Decision]) -> int:
    total = 0
    variants = open_["variant"].values if "variant" in open_ else (op.variant,)
    pinned: dict[str, Value] = {name: value for name, value in op.tunables if name not in open_}
    for impl in kernel.impls:
        if impl.device is not op.device or impl.name not in variants:
            continue
        tunables = [t for t in (*kernel.tunables, *impl.tunables) if t.name in open_]
        for values in product(*(open_[t.name].values for t in tunables)):
            env = {**pinned, **dict(zip((t.name for t in tunables), values, strict=True))}
            total += all(_holds(r, env) for r in (*kernel.requires, *impl.requires))
    return max(total, 1)


def _holds(condition: Sym, env: dict[str, Value]) -> bool:
    """A condition on values that are only known at run time, or on the device, does not rule anything out here."""
    try:
        return bool(evaluate(condition, env))
    except UnboundName:
        return True


# ---- text ----------------------------------------------------------------------------------


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_text(report: CountReport) -> str:
    """The count first, then a line per lowering and choice, then the whole."""
    asked = " ".join(f"{name}={_shown(value)}" for name, value in report.choices)
    out = [f"{report.count} implementations of {report.name}" + (f": {asked}" if asked else "")]
    if report.lines:
        width = max(len(line.label) for line in report.lines)
        out += [
            f"  {line.label:{width}}  {line.count if line.count is not None else '(' + line.note + ')'}"
            for line in report.lines
        ]
    if report.per_op:
        out.append("variants and tunables, for each of them: " + ", ".join(f"{op} {n}" for op, n in report.per_op))
    if report.whole is not None:
        out.append(f"whole space: {report.whole}")
    else:
        out.append(f"whole space: not counted ({report.whole_note})")
    return "\n".join(out) + "\n"


def as_json(report: CountReport) -> str:
    """Counts as JSON numbers; they may exceed 64 bits."""
    import json

    return json.dumps(
        {
            "program": report.name,
            "count": report.count,
            "states": report.states,
            "choices": dict(report.choices),
            "lines": [{"choices": dict(x.choices), "count": x.count, "note": x.note} for x in report.lines],
            "per_op": dict(report.per_op),
            "whole": report.whole,
            "whole_note": report.whole_note,
        },
        indent=1,
    )

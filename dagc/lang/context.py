"""What all of lowering shares: the report, the decisions, and the words that are known without a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from dagc.base.errors import UsageError
from dagc.base.source import Source, Span
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.enums import ElementType, Place
from dagc.ir.linear import Facts
from dagc.ir.sym import Const, Sym
from dagc.lang.scope import Report, Scope, Stop, TypeValue, What, did_you_mean, listing, spelled
from dagc.lang.trials import Trials

Defines: TypeAlias = Mapping[str, "str | int | float | bool"]

TRANSPORTS = ("mpi_host", "mpi_cuda", "nccl", "peer")
STAGINGS = ("fused", "ops")
PREDEFINED: Mapping[str, tuple[ir.Value, ...]] = {
    "transport": TRANSPORTS,
    "staging": STAGINGS,
    "streams": (2,),
    "capture": (False, True),
}
MAX_STREAMS = 64
HARDWARE = frozenset(
    (
        "max_threads_per_block", "shared_per_block", "warp_size", "sms", "max_threads_per_sm", "max_blocks_per_sm",
        "shared_per_sm", "registers_per_block", "registers_per_sm", "l2_bytes", "memory_bytes", "memory_bandwidth",
        "clock_khz", "compute_capability",
    )
)  # fmt: skip
TYPES: Mapping[str, ElementType] = {t.value: t for t in ElementType}
OPS_LIMIT = 20_000  # ops and messages of a program
EXPANSION_LIMIT = 50_000  # turns of loops, ops, messages, edges


@dataclass(slots=True)
class Choice:
    """A decision while lowering. `fixed`: closed by `let` or by -D."""

    name: str
    values: tuple[ir.Value, ...]
    chosen: ir.Value
    span: Span
    structural: bool = False
    fixed: bool = False

    def decision(self) -> ir.Decision:
        values = (self.chosen,) if self.fixed else self.values
        return ir.Decision(self.name, values, self.chosen, self.structural, span=self.span)


@dataclass(slots=True)
class Context:
    """State of one lowering. `picked`: choices made because the defaults break a `require`; `may_pick`: make such."""

    report: Report
    sources: dict[str, Source]
    defines: Defines
    picked: Mapping[str, ir.Value]
    may_pick: bool = True
    program: Scope = field(default_factory=Scope)
    choices: dict[str, Choice] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)  # names of -D that were used
    used: set[str] = field(default_factory=set)  # display names of values that something reads
    expansions: int = 0
    ops: int = 0
    facts: Facts = field(default_factory=Facts)  # what holds of the scalars when the program runs
    noted: set[str] = field(default_factory=set)
    trials: Trials = field(default_factory=Trials)
    legal: dict[object, dict[str, ir.Value]] = field(default_factory=dict)  # by kernel, implementation and candidates

    def expand(self, span: Span) -> None:
        """Count one step of expansion. Stops lowering beyond EXPANSION_LIMIT."""
        self.expansions += 1
        if self.expansions > EXPANSION_LIMIT:
            self._too_many(f"{EXPANSION_LIMIT} items", span)

    def expand_op(self, span: Span) -> None:
        """Count one op or message. Stops lowering beyond OPS_LIMIT."""
        self.ops += 1
        if self.ops > OPS_LIMIT:
            self._too_many(f"{OPS_LIMIT} ops", span)
        self.expand(span)

    def _too_many(self, what: str, span: Span) -> NoReturn:
        message = f"loops and compounds expand to more than {what}"
        self.report.error("too-many-ops", message, span, "shorten the loop, or do the loop inside a kernel")
        raise Stop

    def not_used_yet(self, what: str, span: Span, detail: str) -> None:
        """Say once for each kind of construct that nothing acts on it yet."""
        if what not in self.noted:
            self.noted.add(what)
            self.report.note("not-used-yet", f"{what}: parsed and checked, not used yet", span, detail)

    def settle(self, value: Sym, structural: bool = False) -> Sym:
        """Put in the values chosen for program-level decisions. Raises what `sym.apply` raises.

        `structural`: the graph depends on the value, so the decisions in it are structural.
        """
        names = [n for n in sym.free(value) if n in self.choices]
        if structural:
            for name in names:
                self.choices[name].structural = True
        return sym.substitute(value, {n: Const(self.choices[n].chosen) for n in names}) if names else value

    def choose(
        self, name: str, values: tuple[ir.Value, ...], span: Span, fixed: bool = False, default: ir.Value | None = None
    ) -> Choice:
        """Enter a decision: -D first, then what was picked to satisfy requires, then `default` (or the first value)."""
        chosen = self.picked.get(name, values[0] if default is None else default)
        if chosen not in values:
            chosen = values[0]
        if name in self.defines:
            self.defined.add(name)
            chosen = parse_choice(name, self.defines[name], values, open_ended=name == "streams" and fixed)
        choice = Choice(name, values, chosen, span, fixed=fixed or name in self.defines)
        self.choices[name] = choice
        return choice


def parse_choice(
    name: str, defined: str | int | float | bool, values: tuple[ir.Value, ...], open_ended: bool = False
) -> ir.Value:
    """The value of `-D name=defined`. Raises UsageError that names the choices.

    `open_ended`: any number of streams is fine where the text leaves no choice.
    """
    text = defined if isinstance(defined, str) else spelled(defined)
    for value in values:
        if spelled(value) == text.strip():
            return value
    number = _integer(text)
    if number is not None:
        if open_ended and 1 <= number <= MAX_STREAMS:
            return number
        for value in values:
            if type(value) is int and value == number:
                return value
    wanted = f"1 to {MAX_STREAMS}" if open_ended else listing([spelled(v) for v in values], 40)
    raise UsageError(f"-D {name}={text}: not one of the choices", f"choose from {wanted}")


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def parse_param(name: str, value: str | int | float | bool, declared: str) -> ir.Value | ElementType:
    """The value of `-D name=value` for a param of type `declared`. Raises UsageError."""
    text = (value if isinstance(value, str) else spelled(value)).strip()
    if declared == "type":
        if text not in TYPES:
            raise UsageError(f"-D {name}={text}: not a type", f"choose from {', '.join(TYPES)}")
        return TYPES[text]
    if declared == "str":
        return str(value)
    if declared == "bool":
        if text not in ("true", "false"):
            raise UsageError(f"-D {name}={text}: not a truth value", "choose from true, false")
        return text == "true"
    if declared in ("f32", "f64"):
        return _finite(name, text)
    number = _integer(text)
    if number is None:
        raise UsageError(f"-D {name}={text}: not an integer", f"`{name}` is declared {declared}")
    low, high = integer_range(TYPES[declared])
    if not low <= number <= high:
        raise UsageError(f"-D {name}={text}: does not fit {declared}", f"choose from {low} to {high}")
    return number


def _finite(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if number != number or number in (float("inf"), float("-inf")):
        raise UsageError(f"-D {name}={text}: not a finite number", "write it as 1e-8 or 0.5")
    return number


def integer_range(type_: ElementType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    bits = 8 * type_.size
    return (0, 2**bits - 1) if type_.value[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def element_type(ctx: Context, scope: Scope, name: str, span: Span) -> ElementType:
    """The element type of that name, or of the `param NAME : type`. Reports unknown-type (Skip)."""
    entry = scope.find(name)
    if entry and entry[0].what is What.PARAM and () in entry[0].instances:
        value = entry[0].instances[()].value
        if isinstance(value, TypeValue):
            ctx.used.add(name)
            return value.type
    if name not in TYPES:
        ctx.report.fail(
            "unknown-type",
            f"`{name}` is not a type",
            span,
            did_you_mean(name, TYPES, f"choose from {', '.join(TYPES)}, or a `param NAME : type`"),
        )
    return TYPES[name]


def place_of(place: Place | None) -> Place:
    """Arrays live on the device unless they say otherwise."""
    return place or Place.DEVICE

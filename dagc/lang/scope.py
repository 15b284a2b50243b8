"""Context of lowering: diagnostics, values, scopes and their names, decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import NoReturn, TypeAlias

from dagc.base.errors import Diagnostic, Finding, Severity, Spelling, UsageError
from dagc.base.source import Source, Span
from dagc.cuda.lexer import KEYWORDS, VARIABLES, is_macro, is_reserved
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.constraints import Assignment, Constraint
from dagc.ir.enums import ElementType, Mode, Place, Transport
from dagc.ir.linear import Facts
from dagc.ir.sym import Apply, Const, Fn, Sym, Var

# ---- bounded search --------------------------------------------------------------------------------


MOST_WORK = 500_000  # nodes of expressions evaluated in one lowering: about a second

_LEAST = 300  # that every search may evaluate, even if others used up the budget
TOO_MANY_TRIALS = "too many combinations to try all; found no choice"
FIX_SOME = "list values that satisfy it first, allow fewer values, or fix some with -D"


@dataclass(slots=True)
class Trials:
    """Budget of evaluations for one lowering. `cut`: the last search ended before it had tried everything."""

    left: int = MOST_WORK
    cut: bool = False

    def first(
        self, candidates: Mapping[str, Sequence[ir.Value]], conditions: Sequence[Constraint]
    ) -> dict[str, ir.Value] | None:
        """The first combination in lexicographic order that satisfies all conditions; None if none was found.

        A value is rejected as soon as a condition on it and the values before it is false.
        """
        self.cut = False
        self.left = max(self.left, _LEAST)
        names = list(candidates)
        at = {name: place for place, name in enumerate(names)}
        due: list[list[Constraint]] = [[] for _ in range(len(names) + 1)]
        for each in conditions:
            due[max((at[n] + 1 for n in each.names if n in at), default=0)].append(each)
        env: dict[str, ir.Value] = {}
        if not self._hold(due[0], env):
            return None
        tried = [0] * len(names)
        depth = 0
        while 0 <= depth < len(names):
            name, values = names[depth], candidates[names[depth]]
            env.pop(name, None)
            while tried[depth] < len(values) and not self.cut:
                env[name] = values[tried[depth]]
                tried[depth] += 1
                if self._hold(due[depth + 1], env):
                    break
                del env[name]
            if name in env:
                depth += 1
                continue
            tried[depth] = 0
            depth -= 1
        return None if depth < 0 or self.cut else env

    def _hold(self, conditions: Sequence[Constraint], env: Assignment) -> bool:
        for each in conditions:
            self.left -= each.work
            if self.left < 0:
                self.cut = True
                return False
            if not each.holds(env):
                return False
        return True


# ---- context ---------------------------------------------------------------------------------------


# ---- diagnostics: lowering continues after an error ----


class Skip(Exception):
    """Abandons the current item; its error has been reported."""


class Aborted(Exception):
    """Abandons lowering as a whole; the reason has been reported."""


class Report:
    """Diagnostics in the order found, each (code, place) once: loops repeat a mistake in every iteration."""

    def __init__(self) -> None:
        self._diagnostics: dict[Finding, Diagnostic] = {}
        self._errors = 0  # including repeated ones
        self._spelling = Spelling()
        self.advice: dict[Finding, frozenset[str]] = {}  # the names that each concerns
        self.refuted: set[Finding] = set()

    def add(self, diagnostic: Diagnostic) -> None:
        self._errors += diagnostic.severity is Severity.ERROR
        self._diagnostics.setdefault(diagnostic.key, diagnostic)

    def error(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        self.add(Diagnostic(code, message, span, help, Severity.ERROR, related))

    def fail(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> NoReturn:
        """Report an error and abandon the current item (raises Skip)."""
        self.error(code, message, span, help, related)
        raise Skip

    def warning(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        self.add(Diagnostic(code, message, span, help, Severity.WARNING, related))

    def advise(
        self, code: str, holds: bool, message: str, span: Span, help: str, names: Iterable[str] = (),
        related: tuple[tuple[Span, str], ...] = (),
    ) -> None:  # fmt: skip
        """Warn that what stands at `span` can be dropped, if that `holds` in all iterations of the loops around it.
        `names`: what is dropped with it. Whether it holds for all values of what is open, `dagc.passes.cases` says."""
        advice = Diagnostic(code, message, span, help, Severity.WARNING, related)
        if holds:
            self.add(advice)
            self.advice[advice.key] = self.advice.get(advice.key, frozenset()).union(names)
        else:
            self.refuted.add(advice.key)

    def note(self, code: str, message: str, span: Span, help: str = "") -> None:
        self.add(Diagnostic(code, message, span, help, Severity.NOTE))

    def did_you_mean(self, name: str, known: Iterable[str], otherwise: str) -> str:
        """A help that suggests the nearest known word, else `otherwise`."""
        near = self._spelling.near(name, known, otherwise)
        return f"did you mean `{near}`?" if near else otherwise

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Continue after the block if its item was abandoned."""
        with suppress(Skip):
            yield

    @property
    def errors(self) -> int:
        return self._errors

    @property
    def failed(self) -> bool:
        return self._errors > 0

    def sorted(self, files: Iterable[str]) -> tuple[Diagnostic, ...]:
        """By file in the order given, then by place."""
        order = {name: i for i, name in enumerate(files)}
        return tuple(
            sorted(
                (d for key, d in self._diagnostics.items() if key not in self.refuted),
                key=lambda d: (order.get(d.span.file, -1), d.span.start, d.span.end),
            )
        )


def listing(words: Iterable[str], limit: int = 8) -> str:
    """`a, b, c` for a message, truncated if long."""
    all_words = list(words)
    shown = ", ".join(all_words[:limit])
    return shown + (f", ... ({len(all_words)} in all)" if len(all_words) > limit else "")


def there_are(words: Iterable[str], limit: int = 8) -> str:
    """A help that lists the words."""
    names = list(words)
    return f"there is only `{names[0]}`" if len(names) == 1 else f"there are {listing(names, limit)}"


# ---- values ----


class ScalarKind(Enum):
    """Kind of a scalar value; the text is used in messages."""

    INT = "an integer"
    REAL = "a real number"
    BOOL = "a boolean"
    STR = "a string"


@dataclass(frozen=True, slots=True)
class Label:
    """A label of an enum: a number in arithmetic, text in display names."""

    labels: tuple[str, ...]
    index: int

    @property
    def text(self) -> str:
        return self.labels[self.index]


@dataclass(frozen=True, slots=True)
class ListValue:
    """`{a, b}`, or the labels of an enum."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class TypeValue:
    type: ElementType


Value: TypeAlias = "Apply | Const | Var | Label | ListValue | TypeValue"

RATIONAL_LIMIT = 2**128
INTEGER_LIMIT = 2**64
NODE_LIMIT = 4000
DEPTH_LIMIT = 150  # of a symbolic value; its consumers recurse


def kind_of_type(type_: ElementType) -> ScalarKind:
    if type_.is_integer:
        return ScalarKind.INT
    return ScalarKind.BOOL if type_ is ElementType.BOOL else ScalarKind.REAL


def kind_of_constant(value: sym.Number) -> ScalarKind:
    if isinstance(value, bool):
        return ScalarKind.BOOL
    if isinstance(value, int):
        return ScalarKind.INT
    return ScalarKind.STR if isinstance(value, str) else ScalarKind.REAL


_TRUTH = frozenset((Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.AND, Fn.OR, Fn.NOT))


def kind_of(value: Sym, of_var: Callable[[str], ScalarKind]) -> ScalarKind:
    """Kind of a scalar expression whose operands already fit their operators."""
    if isinstance(value, Const):
        return kind_of_constant(value.value)
    if isinstance(value, Var):
        return of_var(value.name)
    if value.fn in _TRUTH:
        return ScalarKind.BOOL
    if value.fn in (Fn.FLOOR, Fn.CEIL):
        return ScalarKind.INT
    if value.fn in (Fn.DIV, Fn.LOG2, Fn.SQRT):
        return ScalarKind.REAL
    args = value.args[1:] if value.fn is Fn.COND else value.args
    kinds = [kind_of(a, of_var) for a in args]
    return kinds[0] if all(k is kinds[0] for k in kinds) else ScalarKind.REAL


def too_large(value: Sym) -> bool:
    """Whether it has too many nodes or levels. (`let`s are substituted at each use, so sizes can double.)"""
    stack, count = [(value, 1)], 0
    while stack:
        node, depth = stack.pop()
        count += 1
        if count > NODE_LIMIT or depth > DEPTH_LIMIT:
            return True
        if isinstance(node, Apply):
            stack.extend((a, depth + 1) for a in node.args)
    return False


def out_of_range(value: Sym) -> bool:
    """Whether it is a constant that no machine type can hold."""
    if not isinstance(value, Const) or isinstance(value.value, (bool, str)):
        return False
    if isinstance(value.value, Fraction):
        return max(abs(value.value.numerator), value.value.denominator) >= RATIONAL_LIMIT
    if isinstance(value.value, int):
        return abs(value.value) >= INTEGER_LIMIT
    return value.value != value.value or value.value in (float("inf"), float("-inf"))


def as_sym(value: Value) -> Sym | None:
    """The scalar; a label as its number; None for lists and types."""
    if isinstance(value, Label):
        return Const(value.index)
    return None if isinstance(value, (ListValue, TypeValue)) else value


def spelled(value: object) -> str:
    """A constant in the syntax of the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ElementType):
        return value.value
    if isinstance(value, Label):
        return value.text
    return str(value)


# ---- scopes: program, dag, kernel, implementation; only formals may shadow ----

Key: TypeAlias = tuple[int, ...]


class What(Enum):
    """What a name denotes; the text is used in messages."""

    PARAM = "a param"
    LET = "a let"
    ENUM = "an enum"
    LABEL = "a label"
    SCALAR = "a scalar"
    COMM = "a communicator"
    ARRAY = "an array"
    PART = "a part"
    TUNE = "a tune"
    LOOP = "a loop variable"
    FORMAL = "a formal"
    FEATURE = "a feature"


_SEEN_BY_CODE = (What.PARAM, What.LET, What.LABEL, What.TUNE, What.FORMAL)


@dataclass(frozen=True, slots=True)
class Storage:
    """An array, a part, a slice, or the formal of a compound bound to one.

    `dims` are those of the region; None if the whole shape is unknown (a part without bounds).
    `mode` limits the accesses (formals of compounds); None: only the role does.
    """

    array: ir.Array
    region: ir.Region
    dims: tuple[Sym | None, ...] | None
    label: str  # its display name in the text
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One instance of a declared name. `value` is None for the array formals of a kernel."""

    display: str
    value: Value | Storage | ir.Communicator | None
    span: Span


@dataclass(slots=True)
class Family:
    """All instances of one name: `snd[x,lo]`, `snd[x,hi]`, ... `broken`: its declaration has an error."""

    name: str
    what: What
    span: Span
    arity: int
    instances: dict[Key, Bound] = field(default_factory=dict)
    broken: bool = False


@dataclass(slots=True)
class Scope:
    """`kinds` are those of the symbolic variables that the scope introduces."""

    parent: Scope | None = None
    kernel: bool = False  # sees only compile-time names of its parents
    called: bool = False  # a kernel that calls a function of a file, with its formals as arguments
    families: dict[str, Family] = field(default_factory=dict)
    kinds: dict[str, ScalarKind] = field(default_factory=dict)

    def find(self, name: str) -> tuple[Family, bool] | None:
        """The family, and whether it belongs to the program outside of the current kernel."""
        outside = False
        for scope in self.chain():
            if name in scope.families:
                return scope.families[name], outside
            outside = outside or scope.kernel
        return None

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def names(self) -> Iterator[str]:
        return (name for scope in self.chain() for name in scope.families)

    def kind_of(self, var: str) -> ScalarKind:
        kinds = (scope.kinds[var] for scope in self.chain() if var in scope.kinds)
        return next(kinds, ScalarKind.INT)  # rank, ranks, hw.*

    def declare(
        self, report: Report, what: What, name: str, key: Key, bound: Bound, hides: frozenset[What] = frozenset()
    ) -> None:
        """Add an instance. Reports reserved-name, duplicate-name, shadowed-name, bad-index and raises Skip."""
        self._refuse_cxx(report, what, name, bound.span)
        family = self.families.get(name)
        if family is None:
            self._refuse_shadow(report, name, bound.span, hides)
            family = self.families[name] = Family(name, what, bound.span, len(key))
        first = ((family.span, "first declared here"),)
        if family.what is not what or (not key and () in family.instances):
            family.broken = True  # the meaning of its uses is unknown
            if bound.span == family.span:
                fail_again(report, f"`{name}`", name, key, bound.span)
            report.fail(
                "duplicate-name", f"`{name}` is already {family.what.value}", bound.span, "choose another name", first
            )
        if family.arity != len(key):
            counts = indices_text(len(key)), indices_text(family.arity)
            message = f"`{bound.display}` has {counts[0]}, but `{name}` was declared with {counts[1]}"
            help = "use the same number of indices for every instance"
            report.fail("bad-index", message, bound.span, help, first)
        if key in family.instances:
            if bound.span == family.instances[key].span:
                fail_again(report, f"`{bound.display}`", name, key, bound.span)
            at = ((family.instances[key].span, "first declared here"),)
            help = "index it by the loop variable, or choose another name"
            report.fail("duplicate-name", f"`{bound.display}` is declared twice", bound.span, help, at)
        family.instances[key] = bound

    def break_name(self, name: str, what: What, span: Span, arity: int) -> None:
        """Mark a name with a wrong declaration, so that its uses are not reported."""
        family = self.families.setdefault(name, Family(name, what, span, arity))
        family.broken = True

    def _refuse_cxx(self, report: Report, what: What, name: str, span: Span) -> None:
        """Code uses these names unchanged, so they cannot be C++ keywords. Arrays of the program get other names."""
        refuse_reserved(report, name, span)
        scratch = what is What.ARRAY and self.parent is not None and self.parent.kernel
        if not (what in _SEEN_BY_CODE or scratch):
            return
        if name in KEYWORDS | VARIABLES:
            language = "C++" if name in KEYWORDS else "CUDA"
            report.fail("reserved-name", f"`{name}` is a keyword of {language}", span, "choose another name")
        if is_macro(name):
            report.fail("reserved-name", f"`{name}` is a macro of C", span, "choose another name")

    def _refuse_shadow(self, report: Report, name: str, span: Span, hides: frozenset[What]) -> None:
        if self.parent is None:
            return
        outer = self.parent.find(name)
        if outer and outer[0].what not in hides:
            message = f"`{name}` would hide {outer[0].what.value} of the same name"
            visible = hides and not self.called and outer[0].what in (What.PARAM, What.LET, What.ENUM)
            formal = "drop the formal and its arguments, since compile-time values are visible here, or "
            help = (formal if visible else "") + "choose another name"
            report.fail("shadowed-name", message, span, help, ((outer[0].span, "declared here"),))


def refuse_reserved(report: Report, name: str, span: Span) -> None:
    """Report a name that C++ reserves for compilers (Skip)."""
    if is_reserved(name):
        which = "names that begin with `__`, or with `_` and a capital, are the compiler's"
        report.fail("reserved-name", f"`{name}` is reserved in C++: {which}", span, "choose another name")


def fail_again(report: Report, what: str, name: str, key: Key, span: Span) -> NoReturn:
    """Report a declaration in a loop that several iterations make with the same indices (Skip)."""
    if key:
        message = f"{what} is declared again in another iteration of the loops around it"
        help = f"index `{name}` by the variables of all these loops, so that each iteration declares another one"
        report.fail("duplicate-name", message, span, help)
    message = f"{what} is declared again in each iteration of the loop"
    report.fail("duplicate-name", message, span, f"index it by the loop variable, as in `{name}[i]`, also where used")


def indices_text(count: int) -> str:
    """`no index`, `one index`, `2 indices`."""
    return {0: "no index", 1: "one index"}.get(count, f"{count} indices")


# ---- context ----

Defines: TypeAlias = Mapping[str, "str | int | float | bool"]

# Predefined decisions whose values are words, which are written bare.
WORDS: Mapping[str, tuple[ir.Value, ...]] = {
    name: tuple(one.value for one in enum)
    for name, enum in {
        ir.TRANSPORT: Transport, "staging": ir.Staging, "host_memory": ir.HostMemory,
        "transfers": ir.TransferTiming, ir.GRAPH_EDGES: ir.GraphEdges, ir.LOOP: ir.Repetition,
        ir.PUT_WAIT: ir.PutWait, ir.RANK_ORDER: ir.RankOrder,
    }.items()
}  # fmt: skip
WORDS = {
    **WORDS,
    ir.COLLECTIVES: (ir.SAME, *(one.value for one in Transport if one.of_collectives is one)),
    ir.WITHIN_HOST: (ir.SAME, *(one.value for one in Transport if one.of_one_host)),
}
PREDEFINED: Mapping[str, tuple[ir.Value, ...]] = {
    **WORDS, "streams": (2,), "capture": (False, True), ir.TEST_EVERY: ir.TESTS,
}  # fmt: skip
MAX_STREAMS = 64
HARDWARE = frozenset(
    (
        "max_threads_per_block", "shared_per_block", "warp_size", "sms", "max_threads_per_sm", "max_blocks_per_sm",
        "shared_per_sm", "registers_per_block", "registers_per_sm", "l2_bytes", "memory", "memory_bandwidth",
        "clock_khz", "compute_capability",
    )
)  # fmt: skip
TYPES: Mapping[str, ElementType] = {t.value: t for t in ElementType}
OPS_LIMIT = 20_000  # ops and messages of a program
EXPANSION_LIMIT = 50_000  # turns of loops, ops, messages, edges


@dataclass(slots=True)
class LoweringChoice:
    """A decision during lowering. `fixed` by `let` or -D."""

    name: str
    values: tuple[ir.Value, ...]
    chosen: ir.Value
    span: Span
    structural: bool = False
    fixed: bool = False
    restricts: bool = False
    slices: bool = False

    def decision(self) -> ir.Decision:
        values = (self.chosen,) if self.fixed else self.values
        return ir.Decision(self.name, values, self.chosen, self.structural, self.restricts, self.slices, span=self.span)


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """The files of code of a program, and directories in which code finds headers.

    `written`: (file of the text, name in it) -> name of the `CodeFile`; without those that cannot be read.
    """

    files: tuple[ir.CodeFile, ...] = ()
    directories: tuple[str, ...] = ()
    written: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """State of one lowering. `picked`: choices made because the defaults violate a `require`; `may_pick`: make some.
    `forms`: the forms of all kernels are open, not only those that -D gives."""

    report: Report
    sources: dict[str, Source]
    defines: Defines
    picked: Mapping[str, ir.Value]
    named: CodeFiles = field(default_factory=CodeFiles)
    may_pick: bool = True
    forms: bool = False
    devices: ir.Devices = ir.Devices()
    program: Scope = field(default_factory=Scope)
    choices: dict[str, LoweringChoice] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)  # names given with -D that were used
    used: set[str] = field(default_factory=set)  # display names of values that are read
    expansions: int = 0
    most: int = EXPANSION_LIMIT  # expansions
    comms: dict[str, ir.Communicator] = field(default_factory=dict)  # by display name, once all values are known
    ops: int = 0
    compared: int = 0  # pairs of slices of messages so far
    facts: Facts = field(default_factory=Facts)  # conditions on the scalars when the program runs
    noted: set[str] = field(default_factory=set)
    decides: set[str] = field(default_factory=set)  # decisions on which the structure of the program depends
    # The branches and loops of the text that were entered: file, start, and of an `if` whether it held.
    reached: set[tuple[str, int, bool]] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)  # by the side of a `? :` that was not taken
    trials: Trials = field(default_factory=Trials)
    legal: dict[object, dict[str, ir.Value]] = field(default_factory=dict)  # by kernel, implementation and candidates
    # The compile-time values that exclude an implementation: by kernel, device and name; for a kernel without device.
    never: dict[tuple[str, ir.Device | None, str], str] = field(default_factory=dict)

    def expand(self, span: Span) -> None:
        """Count one step of expansion. Stops lowering beyond `most`."""
        self.expansions += 1
        if self.expansions > self.most:
            self._too_many(f"{self.most} items", span)

    def expand_op(self, span: Span) -> None:
        """Count one op or message. Stops lowering beyond OPS_LIMIT."""
        self.ops += 1
        if self.ops > OPS_LIMIT:
            self._too_many(f"{OPS_LIMIT} ops", span)
        self.expand(span)

    def _too_many(self, what: str, span: Span) -> NoReturn:
        message = f"loops and compounds expand to more than {what}"
        self.report.error("too-many-ops", message, span, "shorten the loop, or move it into a kernel")
        raise Aborted

    def not_used_yet(self, what: str, span: Span, detail: str) -> None:
        """Report once for each kind of construct that it has no effect yet."""
        if what not in self.noted:
            self.noted.add(what)
            self.report.note("not-used-yet", f"{what}: parsed and checked, not used yet", span, detail)

    def settle(self, value: Sym, structural: bool = False) -> Sym:
        """Substitute the values chosen for program-level decisions. Raises what `sym.apply` raises.

        `structural`: the graph depends on the value, so the decisions in it are structural.
        """
        names = [n for n in sym.free(value) if n in self.choices]
        if structural:
            self.decides.update(names)
            for name in names:
                self.choices[name].structural = True
        return sym.substitute(value, {n: Const(self.choices[n].chosen) for n in names}) if names else value

    def choose(
        self, name: str, values: tuple[ir.Value, ...], span: Span, fixed: bool = False, default: ir.Value | None = None
    ) -> LoweringChoice:
        """Enter a decision: from -D, else the value picked to satisfy requires, else `default` (or the first value)."""
        chosen = self.picked.get(name, values[0] if default is None else default)
        if chosen not in values:
            chosen = values[0]
        if name in self.defines:
            self.defined.add(name)
            chosen = parse_choice(name, self.defines[name], values, open_ended=name == "streams" and fixed)
        choice = LoweringChoice(name, values, chosen, span, fixed=fixed or name in self.defines)
        self.choices[name] = choice
        return choice


def parse_choice(
    name: str, defined: str | int | float | bool, values: tuple[ir.Value, ...], open_ended: bool = False
) -> ir.Value:
    """The value of `-D name=defined`. Raises UsageError with the choices.

    `open_ended`: any number of streams is accepted if the text does not restrict it.
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
            raise UsageError(f"-D {name}={text}: not a boolean", "choose from true, false")
        return text == "true"
    if declared in ("f32", "f64"):
        return _finite(name, text)
    number = _integer(text)
    if number is None:
        raise UsageError(f"-D {name}={text}: not an integer", f"`{name}` is declared {declared}")
    low, high = TYPES[declared].range
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
            "unknown-type", f"`{name}` is not a type", span, type_help(ctx.report, name, ", or a `param NAME : type`")
        )
    return TYPES[name]


# Types of C on 64-bit Linux.
_C_TYPES = {
    "char": "i8", "short": "i16", "int": "i32", "long": "i64", "unsigned": "u32", "uint": "u32", "size_t": "u64",
    "float": "f32", "double": "f64",
}  # fmt: skip
_HALVES = {"f16", "bf16", "half", "float16", "bfloat16", "__half"}


def type_help(report: Report, name: str, more: str) -> str:
    """A help for a name that is not a type: the type of that name in C, or the nearest name."""
    if name in _C_TYPES:
        return f"did you mean `{_C_TYPES[name]}`?"
    if name in _HALVES:
        return "there is no half precision: hold the bits in `u16`, and convert in CUDA code (`__ushort_as_half`)"
    return report.did_you_mean(name, TYPES, f"choose from {', '.join(TYPES)}{more}")


def place_of(place: Place | None) -> Place:
    """The place of an array: the device, unless it says otherwise."""
    return place or Place.DEVICE

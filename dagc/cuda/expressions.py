"""Values of expressions in a kernel, and the loads and stores that their evaluation makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import sympy as sp

from dagc.cuda.syntax import (
    FLOATING,
    TYPE_SIZES,
    NotUnderstood,
    bare_type,
    below,
    change_of,
    child_of,
    operator_of,
    shown_text,
    text_of,
    without_brackets,
)

if TYPE_CHECKING:
    from tree_sitter import Node


def symbol(name: str) -> sp.Symbol:
    """An integer. All symbols of the models are created here, so that equal names are equal symbols."""
    return sp.Symbol(name, integer=True)


def real(name: str) -> sp.Symbol:
    """A real number."""
    return sp.Symbol(name, real=True)


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """`trips` iterations of a counter from `first`, by `step`.

    `place`: its byte offset in the text, since two consecutive loops may be equal otherwise. `exact`: the iterations
    where `trips` is an estimate of them; it may have values that are not known.
    """

    counter: sp.Symbol
    first: sp.Expr
    trips: sp.Expr
    step: sp.Expr
    place: int = 0
    exact: sp.Expr | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on the indices of a thread: it holds for the threads for which `value` is 0 or more, a linear
    function of the indices of threads and blocks. With a `period`, `threadIdx` in it counts from 0 in each `period`
    threads."""

    value: sp.Expr
    period: int = 0


@dataclass(frozen=True, slots=True)
class Clause:
    """`value >= 0`, or if `unequal` `value != 0`, for a thread in an iteration of its loops."""

    value: sp.Expr
    unequal: bool = False


Conjunction: TypeAlias = frozenset[Clause] | None  # None: not known


def both(one: Conjunction, other: Conjunction) -> Conjunction:
    return None if one is None or other is None else one | other


@dataclass(frozen=True, slots=True)
class Truth:
    """What makes a condition hold (`then`), and what makes it fail (`otherwise`), for certain."""

    then: Conjunction = None
    otherwise: Conjunction = None

    def negated(self) -> Truth:
        return Truth(self.otherwise, self.then)

    def and_(self, other: Truth) -> Truth:
        return Truth(both(self.then, other.then))


UNKNOWN_TRUTH = Truth()


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """One load or store in the text. `weight`: the share of executions of its statement in which it runs, 0 to 1; 0 if
    rarely (at the edge of a grid). `loops`: from the outermost in. `guards`: which threads reach it.

    `known` is False if the address depends on loaded values in a way that differs between threads, or is not linear in
    the indices of threads and blocks and the counters of loops. `shared` is True for shared memory. `surely`: if it
    holds, the access runs; other accesses are possible, not certain.
    """

    array: str
    address: sp.Expr
    size: int
    store: bool
    loops: tuple[CountedLoop, ...]
    weight: float = 1.0
    known: bool = True
    shared: bool = False
    guards: frozenset[Guard] = frozenset()
    atomic: bool = False
    surely: Conjunction = None


# ---- values ---------------------------------------------------------------------------------
# The value of a name or an expression: a SymPy expression for a number (with its own symbol if the number is not
# known), or one of these.


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer into an array, `offset` elements of `size` bytes from its start. `inner`: the further dimensions of an
    array declared with several."""

    array: str
    offset: sp.Expr
    size: int
    shared: bool = False
    inner: tuple[sp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A C++ reference to an element."""

    to: Pointer


@dataclass(frozen=True, slots=True)
class Local:
    """A thread's own array or structure, or the address of a variable: no access of memory that counts."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """An element of a constant table, with a value that is the same for all threads."""

    value: sp.Expr


@dataclass(frozen=True, slots=True)
class UnknownArray:
    """A pointer into an unknown array."""


@dataclass(slots=True)
class State:
    """State of the evaluation: values known at this place, and the accesses so far."""

    env: dict[str, Any]
    constant: frozenset[str]  # arrays that the kernel only reads
    types: Mapping[str, str]  # C types of the program's type names
    loops: tuple[CountedLoop, ...] = ()
    weight: float = 1.0
    guards: frozenset[Guard] = frozenset()  # what holds here
    surely: Conjunction = frozenset()  # what leads here for certain
    truths: dict[sp.Symbol, Truth] = field(default_factory=dict)  # of values that are conditions
    origins: dict[sp.Symbol, frozenset[int]] = field(
        default_factory=dict
    )  # the loads that a value comes from, by number
    uses: dict[int, list[frozenset[Clause]]] = field(default_factory=dict)  # when the values of loads are needed
    accesses: list[MemoryAccess] = field(default_factory=list)
    work: dict[tuple[CountedLoop, ...], float] = field(default_factory=dict)
    sure_work: dict[tuple[tuple[CountedLoop, ...], frozenset[Clause]], int] = field(default_factory=dict)
    one_thread: bool = False
    barriers: tuple[tuple[CountedLoop, ...], ...] = ()
    notes: list[str] = field(default_factory=list)
    guessed: int = 0  # see `Accesses`
    fresh: int = 0
    multiples: dict[tuple[sp.Expr, int], None] = field(default_factory=dict)  # see `Accesses`
    shared: set[str] = field(default_factory=set)  # scalars that other threads may change
    floating: set[str] = field(default_factory=set)  # arrays in shared memory of such a type
    shared_bytes: sp.Expr = field(default_factory=lambda: sp.Integer(0))  # of arrays in shared memory, of a block
    stored: tuple[str, sp.Expr] | None = None  # the last store, whose value is still in a register
    signed: dict[str, bool] | None = None  # see `accesses_of`


BUILT_IN = {f"{v}.{a}" for v in ("threadIdx", "blockIdx", "blockDim", "gridDim") for a in "xyz"}
_PURE = {
    "sqrt", "sqrtf", "rsqrt", "exp", "expf", "log", "logf", "pow", "powf", "sin", "cos", "tanh", "tanhf", "min",
    "max", "abs", "fminf", "fmaxf", "fabsf", "fmaf", "floor", "floorf", "ceil", "ceilf", "rintf", "roundf", "truncf",
    "lrintf", "__float2int_rd", "__float2int_rn", "__float2int_rz", "__mul24", "__umulhi", "__sinf", "__cosf",
}  # fmt: skip
_NARROW = {"char", "int8_t", "uint8_t", "uchar", "short", "int16_t", "uint16_t", "bool"}
_LOADS = {"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv"}
_STORES = {"__stwb", "__stcg", "__stcs", "__stwt"}
_CASTS = {"static_cast", "reinterpret_cast", "const_cast"}
_FENCES = {"__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system"}


ASSUMED = sp.Symbol("assumed")  # a condition that is taken to hold, and that is not known to


def full_type(state: State, text: str) -> str:
    """A type as a key of TYPE_SIZES, if it is one."""
    type_ = bare_type(text)
    return state.types.get(type_, type_)


def size_of(type_: str) -> int:
    if type_ not in TYPE_SIZES:
        raise NotUnderstood(f"the size of type `{type_}` is not known")
    return TYPE_SIZES[type_]


def converted(state: State, type_: str, value: Any) -> Any:
    """A number converted to a type. Unknown if it may be truncated, or becomes a fraction in a division."""
    if not isinstance(value, sp.Expr) or type_ == "auto" or value == ASSUMED or value in state.truths:
        return value
    if type_ in FLOATING:
        return sp.Float(value) if value.is_number else carried(state, new_unknown(state), value)
    if value.is_Integer or (is_known(value) and type_ not in _NARROW):
        return value
    if not is_known(value) and type_ not in _NARROW and isinstance(value, sp.Add):
        return value  # a row that is scattered, and the place in it
    return new_unknown(state, value)


class either(sp.Function):  # type: ignore[misc]
    """One of two values, depending on a condition that is not followed; `nearby` takes one."""

    is_integer = True


class toward_zero(sp.Function):  # type: ignore[misc]
    """A quotient rounded as C does where it may be negative."""

    is_integer = True

    @classmethod
    def eval(cls, value: sp.Expr) -> sp.Expr | None:
        return sp.Integer(int(value)) if value.is_Rational else None


def joined_value(state: State, one: Any, other: Any) -> Any:
    if isinstance(one, Pointer) and isinstance(other, Pointer):
        moved = replace(other, offset=one.offset)
        return replace(one, offset=new_unknown(state)) if moved == one else UnknownArray()
    if isinstance(one, sp.Expr) and isinstance(other, sp.Expr):
        whole = all(is_known(v) and v.is_integer and v.count_ops() < MOST_OPERATIONS for v in (one, other))
        return either(one, other) if whole else carried(state, new_unknown(state), one, other)
    return UnknownArray()


def nearby(address: sp.Expr) -> sp.Expr:
    """An index as most threads compute it: without clamps at the edges of an array (`max(i - 1, 0)`), and of two values
    that which differs between threads or iterations, else the first."""
    kinds = (sp.Min, sp.Max, either)
    while branches := [f for f in address.atoms(*kinds) if not any(a.has(*kinds) for a in f.args)]:
        address = address.xreplace({f: max(f.args, key=_variation) for f in branches})
    return address


def _variation(value: sp.Expr) -> tuple[bool, bool]:
    return varies(value), any(is_counter(s) for s in value.free_symbols)


def assigned_names(node: Node) -> Iterator[tuple[str, bool]]:
    """Names of variables that change below a node, and whether only by a step (`p++`, `p += 2`). One whose address is
    taken may change through it."""
    for at in below(node):
        if at.type == "lambda_expression":
            raise NotUnderstood("a lambda is not understood")
        change = change_of(at)
        if change is not None and change.how and change.name:
            yield change.name, change.steps


# ---- expressions ----------------------------------------------------------------------------


def new_unknown(state: State, *of: sp.Expr) -> sp.Symbol:
    """An unknown value that may differ between threads. `of`: what it is a function of; it is the same for threads and
    iterations in which these are the same."""
    state.fresh += 1
    if not of:
        return sp.Symbol(f"unknown_{state.fresh}")
    known_of = sorted({i.name for value in of for i in indices_of(value)})
    return carried(state, sp.Symbol(f"unknown_{state.fresh}({','.join(known_of)})"), *of)


def origins_of(state: State, *values: Any) -> frozenset[int]:
    """The loads that values come from."""
    symbols = (s for value in values if isinstance(value, sp.Expr) for s in value.free_symbols)
    return frozenset().union(*(state.origins.get(s, frozenset()) for s in symbols))


def carried(state: State, value: sp.Symbol, *of: Any) -> sp.Symbol:
    """A value that comes from the loads that others come from."""
    loads = origins_of(state, *of)
    if loads:
        state.origins[value] = loads
    return value


def needed(state: State, *values: Any) -> None:
    """Note that the loads of values are needed here. A compiler moves others to where their values are used."""
    if state.surely is not None:
        for load in origins_of(state, *values):
            state.uses.setdefault(load, []).append(state.surely)


EVERYTHING = "everything"


def indices_of(value: sp.Expr) -> set[sp.Symbol]:
    """Indices of threads and blocks and counters of loops that a value depends on; EVERYTHING if it is not known."""
    out: set[sp.Symbol] = set()
    for one in value.free_symbols:
        if one.name.startswith("unknown_"):
            _, bracket, names = one.name.partition("(")
            out |= {symbol(n) for n in (names[:-1].split(",") if bracket else [EVERYTHING]) if n}
        elif one.name.startswith(("threadIdx_", "blockIdx_")) or is_counter(one):
            out.add(one)
    return out


def is_known(address: sp.Expr) -> bool:
    return not any(s.name.startswith("unknown_") for s in address.free_symbols)


def varies(address: sp.Expr) -> bool:
    """Whether a value differs between the threads of a grid."""
    return any(not is_counter(s) for s in indices_of(address))


def linear(address: sp.Expr) -> sp.Expr:
    """`nearby`, with unrounded quotients, so that a piecewise linear address becomes linear in the indices."""
    address = sp.expand(nearby(address))
    while floors := [f for f in address.atoms(sp.floor) if not f.args[0].has(sp.floor)]:
        address = sp.expand(address.xreplace({f: f.args[0] for f in floors}))
    return address


MOST_OPERATIONS = 100  # of a value that depends on a condition; a larger one is unknown


def _is_linear(address: sp.Expr) -> bool:
    """Whether an expanded address is linear in the indices of threads and blocks and in the counters of loops."""
    indices = {s for s in address.free_symbols if s.name.startswith(("threadIdx_", "blockIdx_")) or is_counter(s)}
    rest = address
    for index in indices:
        factor = address.coeff(index, 1)
        if factor.free_symbols & indices:
            return False
        rest = rest - factor * index
    return not sp.expand(rest).free_symbols & indices


def guards_of(value: sp.Expr) -> frozenset[Guard]:
    """The condition `value >= 0`; empty unless it is linear in the thread's index."""
    value = sp.expand(value)
    for least in value.atoms(sp.Min, sp.Max):  # `i < min(n, m)`: both hold
        factor = value.coeff(least, 1)
        if factor == (1 if isinstance(least, sp.Min) else -1):
            return frozenset().union(*(guards_of(value.xreplace({least: part})) for part in least.args))
    if not is_known(value) or not varies(value) or any(is_counter(s) for s in value.free_symbols):
        return frozenset()
    if value.has(sp.Float):
        return frozenset()
    if not any(varies(part) for part in value.atoms(sp.floor, sp.ceiling, sp.Min, sp.Max, either)):
        return frozenset({Guard(value)}) if _is_linear(value) else frozenset()
    return _periodic(value)


def _periodic(value: sp.Expr) -> frozenset[Guard]:
    """A condition on the index of a thread modulo a number, `i % 32`."""
    quotients = [q for q in value.atoms(sp.floor) if varies(q)]
    if len(quotients) != 1:
        return frozenset()
    (quotient,) = quotients
    of = quotient.args[0]
    for index in sorted((s for s in of.free_symbols if s.name.startswith("threadIdx_")), key=str):
        size, sign = 1 / of.coeff(index, 1), value.coeff(index, 1)
        rest = sp.expand(value - sign * size * (of - quotient))
        if size.is_Integer and size > 1 and not varies(rest) and sp.expand(value.coeff(quotient, 1) + sign * size) == 0:
            return frozenset({Guard(rest + sign * index, int(size))})
    return frozenset()


def is_counter(name: sp.Symbol) -> bool:
    """Whether a symbol is the counter of a loop."""
    return name.name.rsplit("_", 1)[-1].isdecimal() and not name.name.startswith(("uniform_", "unknown_"))


def only_scattered(address: sp.Expr) -> bool:
    """Whether an address that is not known is a sum of loaded values and of something linear in the indices: the
    loaded values say where rows lie, the rest how they are walked through."""
    loaded = [s for s in address.free_symbols if s.name.startswith("unknown_")]
    return _is_linear(linear(address.xreplace(dict.fromkeys(loaded, sp.Integer(0)))))


def as_number(value: Any) -> sp.Expr:
    if isinstance(value, sp.Expr):
        return value
    raise NotUnderstood("a number was expected")


def _count(state: State, *operands: Any) -> None:
    """Count an operation. For certain only with `operands`, and only in the loops around it in which they may differ:
    the compiler moves it out of others."""
    state.work[state.loops] = state.work.get(state.loops, 0.0) + state.weight
    numbers = [v for v in operands if isinstance(v, sp.Expr)]
    if state.surely is None or all(map(is_known, numbers)):
        return
    indices = set().union(*map(indices_of, numbers))
    every = symbol(EVERYTHING) in indices
    deepest = [n for n, loop in enumerate(state.loops, 1) if every or loop.counter in indices]
    place = state.loops[: max(deepest, default=0)], state.surely
    state.sure_work[place] = state.sure_work.get(place, 0) + 1


def value_of(state: State, node: Node) -> Any:
    """The value of an expression; records its loads and stores."""
    match node.type:
        case "number_literal":
            return _literal(state, node)
        case "identifier":
            return _name(state, text_of(node))
        case "field_expression":
            return _field(state, node)
        case "parenthesized_expression" | "condition_clause":
            return value_of(state, without_brackets(node))
        case "cast_expression":
            type_ = child_of(node, "type")
            return _cast(state, text_of(type_), value_of(state, child_of(node, "value")))
        case "binary_expression":
            return _binary(state, node)
        case "unary_expression":
            value = value_of(state, node.named_children[-1])
            return _signed(state, text_of(node)[0], value)
        case "pointer_expression" | "subscript_expression":
            place = place_of(state, node)
            if text_of(node).startswith("&") and node.type == "pointer_expression":
                return place
            return _read(state, place)
        case "assignment_expression":
            return _assignment(state, node)
        case "update_expression":
            return _update(state, node)
        case "call_expression":
            return _call(state, node)
        case "conditional_expression":
            return _conditional(state, node)
        case "comma_expression":
            return [value_of(state, child) for child in node.named_children][-1]
        case "sizeof_expression":
            return _sizeof(state, node)
        case "true" | "false":
            return sp.Integer(node.type == "true")
        case "string_literal" | "char_literal" | "null" | "type_descriptor" | "concatenated_string" | "comment":
            return new_unknown(state)
        case "initializer_list" | "compound_literal_expression":
            for child in node.named_children:
                value_of(state, child)
            return Local()
        case _:
            raise NotUnderstood(f"`{shown_text(node)}` is not understood")


def _conditional(state: State, node: Node) -> Any:
    condition, *others = (child for child in node.named_children if child.type != "comment")
    given = value_of(state, condition)
    needed(state, given)
    truth = truth_of(state, given)
    if len(others) == 1:  # `a ?: b`
        return joined_value(state, given, _value_if(state, truth.otherwise, others[0]))
    if isinstance(given, sp.Integer):
        return value_of(state, others[0] if given else others[1])
    one, other = _value_if(state, truth.then, others[0]), _value_if(state, truth.otherwise, others[1])
    return one if one == other else joined_value(state, one, other)


def _value_if(state: State, surely: Conjunction, node: Node) -> Any:
    """The value of an expression that is evaluated on a condition."""
    outer, state.surely = state.surely, both(state.surely, surely)
    value = value_of(state, node)
    state.surely = outer
    return value


def compared(operator: str, left: Any, right: Any) -> Truth:
    """What a comparison says of the indices, counters and sizes in it."""
    numbers = [v for v in (left, right) if isinstance(v, sp.Expr) and is_known(v) and not v.has(sp.Float)]
    if len(numbers) < 2 or operator not in _COMPARED:
        return UNKNOWN_TRUTH
    factor, strict = _COMPARED[operator]
    apart = sp.expand(factor * (left - right))
    if operator in ("==", "!="):
        equal = Truth(frozenset({Clause(apart), Clause(-apart)}), frozenset({Clause(apart, unequal=True)}))
        return equal if operator == "==" else equal.negated()
    return Truth(frozenset({Clause(apart - strict)}), frozenset({Clause(strict - 1 - apart)}))


_COMPARED = {">=": (1, 0), ">": (1, 1), "<=": (-1, 0), "<": (-1, 1), "==": (1, 0), "!=": (1, 0)}


def truth_of(state: State, value: Any) -> Truth:
    """What is known of a value that is used as a condition."""
    known = state.truths.get(value) if isinstance(value, sp.Symbol) else None
    return compared("!=", value, sp.Integer(0)) if known is None else known


def _signed(state: State, sign: str, value: Any) -> Any:
    if sign == "!":
        return _condition_value(state, truth_of(state, value).negated())
    if not isinstance(value, sp.Expr) or sign not in "+-~":
        return value if sign == "+" else carried(state, new_unknown(state), value)
    if sign == "~":
        return -value - 1 if value.is_Integer else new_unknown(state, value)
    return -value if sign == "-" else value


def _literal(state: State, node: Node) -> sp.Expr:
    digits = text_of(node).replace("'", "").lower()
    whole = digits.rstrip("ul")
    try:
        return sp.Integer(int(whole, 0) if not whole.isdecimal() or not whole.startswith("0") else int(whole, 8))
    except ValueError:
        try:
            return sp.Float(digits.rstrip("fl"))
        except ValueError:
            return new_unknown(state)


def _name(state: State, name: str) -> Any:
    if name == "warpSize":
        return sp.Integer(32)
    value = state.env.get(name)
    if value is None:  # a macro or a variable of the program's own code: its value is unknown
        return new_unknown(state)
    return _read(state, value.to) if isinstance(value, Reference) else value


def _table(state: State, node: Node, index: sp.Expr) -> Any:
    """An element of an array that the kernel's text does not declare: one of the program's own code. Its accesses do
    not count; where all threads read the same element, they have the same value."""
    name = text_of(node)
    state.notes.append(f"`{name}` is not declared in the kernel: its loads are assumed to be free")
    if not is_known(index) or varies(index):
        return Local()
    return Uniform(sp.Symbol(f"uniform_{name}_{index}", integer=True))


def _field(state: State, node: Node) -> Any:
    if text_of(node) in BUILT_IN:
        return symbol(text_of(node).replace(".", "_"))
    return _read(state, place_of(state, node))


def _sizeof(state: State, node: Node) -> Any:
    inner = node.named_children[-1]
    type_ = text_of(inner)
    if inner.type == "type_descriptor":
        return sp.Integer(8 if "*" in type_ else size_of(full_type(state, type_)))
    return new_unknown(state)


def _cast(state: State, type_: str, value: Any) -> Any:
    """`(T)value`: offsets of a pointer to elements of another size are in these elements."""
    if not isinstance(value, Pointer) or "*" not in type_:
        return converted(state, full_type(state, type_), value) if "*" not in type_ else value
    size = size_of(full_type(state, type_))
    if size == value.size and not value.inner:
        return value
    return Pointer(value.array, sp.floor(sp.expand(value.offset * value.size / size)), size, value.shared)


def _condition_value(state: State, truth: Truth, *of: Any) -> sp.Symbol:
    whole = all(isinstance(one, sp.Expr) for one in of)
    value = new_unknown(state, *of) if whole else carried(state, new_unknown(state), *of)
    state.truths[value] = truth
    return value


def _logical(state: State, operator: str, node: Node) -> sp.Expr:
    """`&&` and `||`: the right operand is evaluated on a condition."""
    left = value_of(state, child_of(node, "left"))
    needed(state, left)
    one = truth_of(state, left)
    right = _value_if(state, one.then if operator == "&&" else one.otherwise, child_of(node, "right"))
    if operator == "&&" and ASSUMED in (left, right):
        state.multiples |= dict.fromkeys(_multiples(state, child_of(node, "left")) if right == ASSUMED else ())
        return ASSUMED
    other = truth_of(state, right)
    whole = one.and_(other) if operator == "&&" else one.negated().and_(other.negated()).negated()
    return _condition_value(state, whole, left, right)


def _multiples(state: State, node: Node) -> Iterator[tuple[sp.Expr, int]]:
    """The numbers that a condition `a % 4 == 0 && b % 4 == 0` compares, and what they are to be multiples of."""
    node = without_brackets(node)
    if node.type != "binary_expression":
        return
    left = without_brackets(child_of(node, "left"))
    if operator_of(node) == "&&":
        yield from (pair for name in ("left", "right") for pair in _multiples(state, child_of(node, name)))
    elif operator_of(node) == "==" and left.type == "binary_expression" and operator_of(left) == "%":
        value, divisor = value_of(state, child_of(left, "left")), value_of(state, child_of(left, "right"))
        if isinstance(value, sp.Expr) and isinstance(divisor, sp.Integer):
            yield value, int(divisor)


def _binary(state: State, node: Node) -> Any:
    operator = operator_of(node)
    if operator in ("&&", "||"):
        return _logical(state, operator, node)
    left, right = value_of(state, child_of(node, "left")), value_of(state, child_of(node, "right"))
    if operator in _COMPARED:
        return _condition_value(state, compared(operator, left, right), left, right)
    if isinstance(right, Pointer) and operator == "+":
        left, right = right, left
    if isinstance(left, (Pointer, UnknownArray)) and isinstance(right, sp.Expr) and operator in "+-":
        return _moved(left, right if operator == "+" else -right)
    if not isinstance(left, sp.Expr) or not isinstance(right, sp.Expr):
        return new_unknown(state)
    return _arithmetic(state, operator, left, right, may_wrap(state, node, left, right))


def _moved(pointer: Pointer | UnknownArray, by: sp.Expr) -> Pointer | UnknownArray:
    if isinstance(pointer, UnknownArray):
        return pointer
    return replace(pointer, offset=pointer.offset + by * sp.prod(pointer.inner))


_INDICES = ("threadIdx_", "blockIdx_", "blockDim_", "gridDim_")
_SIGNED = {"int", "long", "short", "signed", "char", "bool", "int8_t", "int16_t", "int32_t", "int64_t", "ptrdiff_t"}


def is_signed(state: State, type_: str) -> bool:
    """Whether a type is known not to be unsigned."""
    words = set(re.findall(r"\w+", f"{type_} {full_type(state, type_)}"))
    return "unsigned" not in words and bool(words & (_SIGNED | FLOATING))


def _is_natural(state: State, value: sp.Expr) -> bool:
    """Whether a whole number is known to be at least 0."""
    rising: set[sp.Symbol] = set()

    def natural(one: sp.Expr) -> bool:
        its = (s for s in one.free_symbols if s in rising or s.name.startswith(_INDICES))
        named = one.xreplace({s: sp.Symbol(s.name, integer=True, nonnegative=True) for s in its})
        return named.is_nonnegative is True

    for loop in state.loops:
        if natural(loop.first) and natural(loop.step):
            rising.add(loop.counter)
    return natural(value)


def may_wrap(state: State, node: Node, *values: Any) -> bool:
    """Whether a negative number may be a large one in an operation, since an operand is unsigned."""
    if state.signed is None or all(isinstance(v, sp.Expr) and _is_natural(state, v) for v in values):
        return False
    return _may_be_unsigned(state, node)


def _may_be_unsigned(state: State, node: Node) -> bool:
    assert state.signed is not None
    if node.type == "cast_expression":
        return not is_signed(state, text_of(child_of(node, "type")))
    if node.type == "identifier":
        return not state.signed.get(text_of(node), False)
    if node.type == "number_literal":
        return "u" in text_of(node).lower()
    return node.type in ("field_expression", "sizeof_expression", "call_expression", "subscript_expression") or any(
        _may_be_unsigned(state, child) for child in node.named_children
    )


def _arithmetic(state: State, operator: str, left: sp.Expr, right: sp.Expr, wraps: bool) -> sp.Expr:
    """`wraps`: as of `may_wrap`."""
    if not (is_known(left) and is_known(right)) or left.has(sp.Float) or right.has(sp.Float):
        if operator in "+-*/":
            _count(state, left, right)
        result = _of_loaded(operator, left, right)
        return new_unknown(state, left, right) if result is None else result
    natural = state.signed is None or all(_is_natural(state, v) for v in (left, right))
    if not natural and (operator == "^" or (wraps and operator in ("/", "%", ">>"))):
        return new_unknown(state, left, right)
    quotient = sp.floor if natural else toward_zero
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return sp.expand(left * right)
        case "/" if right != 0:
            return quotient(left / right)
        case "%" if right != 0:
            return left - right * quotient(left / right)
        case "<<":
            return left * 2**right
        case ">>":
            return sp.floor(left / 2**right)
        case "&" if left.is_Integer or right.is_Integer:
            return _masked(state, *((left, int(right)) if right.is_Integer else (right, int(left))))
        case "^" if not varies(right) or not varies(left):
            return either(left + right, left - right)  # where one of them is a power of two: the other half of a pair
        case _:
            return new_unknown(state)


def _masked(state: State, value: sp.Expr, mask: int) -> sp.Expr:
    """`i & 31` is the place in a warp, `i & ~31` where the warp begins."""
    size = mask + 1 if mask >= 0 else -mask
    if size & (size - 1):
        return new_unknown(state, value)
    begin = size * sp.floor(value / size)
    return value - begin if mask >= 0 else begin


MOST_LOADED = 3  # loaded values in an index


def _of_loaded(operator: str, left: sp.Expr, right: sp.Expr) -> sp.Expr | None:
    """A sum of loaded values and others, or a loaded value times one that is the same for all threads: a row that is
    scattered, and a place in it. None for anything else."""
    names = {s for s in left.free_symbols | right.free_symbols if s.name.startswith("unknown_")}
    if len(names) > MOST_LOADED or left.has(sp.Float) or right.has(sp.Float):
        return None
    if operator in ("+", "-"):
        return left + right if operator == "+" else left - right
    return sp.expand(left * right) if operator == "*" and not (varies(left) and varies(right)) else None


# ---- loads and stores -----------------------------------------------------------------------


def place_of(state: State, node: Node) -> Any:
    """The location of an lvalue: a pointer, or Local."""
    match node.type:
        case "parenthesized_expression":
            return place_of(state, without_brackets(node))
        case "identifier":
            value = state.env.get(text_of(node))
            return value.to if isinstance(value, Reference) else Local()
        case "subscript_expression":
            return _element(state, node)
        case "pointer_expression":
            inner = child_of(node, "argument")
            if text_of(node).startswith("&"):
                return place_of(state, inner)
            pointer = value_of(state, inner)
        case "field_expression":
            inner = child_of(node, "argument")
            if "->" not in (text_of(child) for child in node.children):
                if inner.type in ("call_expression", "cast_expression"):
                    value_of(state, inner)
                    return Local()
                return place_of(state, inner)
            pointer = value_of(state, inner)
        case _:
            raise NotUnderstood(f"`{shown_text(node)}` is not understood")
    if isinstance(pointer, (Pointer, Local, Uniform)):
        return pointer
    raise NotUnderstood(f"where `{shown_text(node)}` points is not understood")


def _element(state: State, node: Node) -> Any:
    base_node, index_node = child_of(node, "argument"), child_of(node, "indices")
    indices = [value_of(state, child) for child in index_node.named_children if child.type != "comment"]
    base = _element(state, base_node) if base_node.type == "subscript_expression" else value_of(state, base_node)
    if isinstance(base, (Local, Uniform)):
        return Local() if isinstance(base, Local) else base
    if base_node.type == "identifier" and text_of(base_node) not in state.env and len(indices) == 1:
        return _table(state, base_node, indices[0] if isinstance(indices[0], sp.Expr) else new_unknown(state))
    if not isinstance(base, Pointer) or len(indices) != 1:
        raise NotUnderstood(f"where `{shown_text(node)}` points is not understood")
    index = indices[0] if isinstance(indices[0], sp.Expr) else new_unknown(state)
    return replace(base, offset=base.offset + index * sp.prod(base.inner), inner=base.inner[1:])


def _read(state: State, place: Any) -> Any:
    if isinstance(place, Uniform):
        return place.value
    if not isinstance(place, Pointer):
        return new_unknown(state)
    return place if place.inner else _note(state, place, store=False)


def _note(state: State, pointer: Pointer, *, store: bool, atomic: bool = False) -> Any:
    address = sp.expand(pointer.offset)
    needed(state, address)
    place = (pointer.array, address)
    if not store and state.stored == place:
        return new_unknown(state)  # still in a register
    known = is_known(address) and _is_linear(linear(address))
    # One address for all threads and iterations, in an array that nothing is stored to: one value, even if unknown.
    constant = known and not varies(address) and not any(is_counter(s) for s in address.free_symbols)
    value: Any = new_unknown(state, address) if pointer.array in state.constant else new_unknown(state)
    if constant and pointer.array in state.constant:
        value = sp.Symbol(f"uniform_{pointer.array}_{address}", integer=True)
    same = [
        a
        for a in state.accesses
        if (a.array, a.address, a.loops) == (*place, state.loops)
        and a.weight >= state.weight
        and a.guards <= state.guards
        and a.size == pointer.size
    ]
    if not store and known and any(not a.store for a in same) and state.stored is None:
        if state.surely is not None and all(a.surely is None for a in same):
            place_ = state.accesses.index(same[0])
            state.accesses[place_] = same[0] = replace(same[0], surely=state.surely)
        state.origins[value] = frozenset({state.accesses.index(next(a for a in same if not a.store))})
        return value  # loaded before, without a store since
    state.accesses.append(
        MemoryAccess(
            pointer.array, address, pointer.size, store, state.loops, state.weight, known, pointer.shared, state.guards,
            atomic, state.surely,
        )
    )  # fmt: skip
    state.origins[value] = frozenset({len(state.accesses) - 1})
    if store:
        state.stored = place
    return value


def _set(state: State, node: Node, value: Any) -> None:
    """Assign a value to the location that a node names."""
    name = text_of(node)
    if node.type != "identifier" or isinstance(state.env.get(name), Reference):
        place = place_of(state, node)
        needed(state, value)
        if isinstance(place, Pointer):
            _note(state, place, store=True)
        return
    old = state.env.get(name)
    if name in state.shared:
        value = new_unknown(state)
    elif isinstance(old, Local):  # a structure, or an address of one
        value = value if isinstance(value, (Pointer, UnknownArray)) else old
    elif isinstance(old, (Pointer, UnknownArray)) and not isinstance(value, (Pointer, Local)):
        value = UnknownArray()
    elif isinstance(old, sp.Expr) and old.has(sp.Float):
        value = carried(state, new_unknown(state), value)  # of floating-point type: not truncated anywhere
    state.env[name] = value


def _assignment(state: State, node: Node) -> Any:
    left, right = child_of(node, "left"), child_of(node, "right")
    operator = operator_of(node)
    value = value_of(state, right)
    if operator != "=":
        old = value_of(state, left)
        if isinstance(old, (Pointer, UnknownArray)) and isinstance(value, sp.Expr) and operator in ("+=", "-="):
            value = _moved(old, value if operator == "+=" else -value)
        elif all(isinstance(v, sp.Expr) and is_known(v) and not v.has(sp.Float) for v in (old, value)):
            value = _arithmetic(state, operator[:-1], old, value, may_wrap(state, node, old, value))
        else:
            _count(state, old, value)
            value = carried(state, new_unknown(state), old, value)
    _set(state, without_brackets(left), value)
    return value


def _update(state: State, node: Node) -> Any:
    target, step = child_of(node, "argument"), sp.Integer(1 if "++" in text_of(node) else -1)
    old = value_of(state, target)
    if isinstance(old, (Pointer, UnknownArray)):
        new: Any = _moved(old, step)
    else:
        new = old + step if isinstance(old, sp.Expr) and is_known(old) and not old.has(sp.Float) else new_unknown(state)
    _set(state, without_brackets(target), new)
    return new if text_of(node).startswith(("++", "--")) else old


_OF_LANES = re.compile(r"dagc::(\w+)<(\d+)(?:, (-?\d+), (-?\d+)(?:, -?\d+, -?\d+)?)?>")


def _of_lanes(state: State, name: str, values: list[Any]) -> Any:
    """A call of `dagc/wide.hpp`: loads and stores of vectors; arrays are assumed to be aligned."""
    match = _OF_LANES.fullmatch(name)
    if match is None:
        raise NotUnderstood(f"`{name}` is not understood")
    kind, lanes = match[1], int(match[2])
    if kind == "lanes":
        return new_unknown(state)
    if kind in ("aligned", "apart", "any", "all"):
        state.truths[ASSUMED] = UNKNOWN_TRUTH
        return ASSUMED
    place = values[0]
    if not isinstance(place, Pointer):
        raise NotUnderstood(f"where `{name}` loads or stores is not understood")
    first, last = (int(match[3]), int(match[4])) if match[3] else (0, lanes - 1)
    for begin in range(first, last + 1, lanes):
        offset = sp.floor(sp.expand((place.offset + begin) / lanes))
        _note(state, replace(place, offset=offset, size=place.size * lanes), store=kind == "store")
    return Local()


def _call(state: State, node: Node) -> Any:
    function, arguments = child_of(node, "function"), child_of(node, "arguments")
    values = [value_of(state, child) for child in arguments.named_children if child.type != "comment"]
    name, template = text_of(function), ""
    if function.type == "template_function":
        name = text_of(child_of(function, "name"))
        template = text_of(child_of(function, "arguments"))[1:-1]
        if name in state.env:  # `i < n && j > (k)` parses as a template
            for child in child_of(function, "arguments").named_children:
                value_of(state, child)
            return new_unknown(state)
    name = name.removeprefix("std::").removeprefix("::")
    if name.startswith("dagc::"):
        return _of_lanes(state, name, values)
    if name in _CASTS or (
        len(values) == 1 and (function.type == "primitive_type" or name in TYPE_SIZES or name in state.types)
    ):
        return _cast(state, template or name, values[0])
    if name.startswith("__syncthreads") or name in _FENCES:
        if name.startswith("__syncthreads"):
            state.barriers = (*state.barriers, state.loops)
        state.stored = None
        return sp.Integer(0) if name == "__syncthreads" else new_unknown(state)
    ordered = name in ("min", "max") and not may_wrap(state, arguments, *values)
    if ordered and all(isinstance(v, sp.Expr) and is_known(v) for v in values):
        return (sp.Min if name == "min" else sp.Max)(*values)
    if name in _LOADS and isinstance(values[0], Pointer):
        return _note(state, values[0], store=False)
    if name in _STORES or name.startswith("atomic"):
        if not isinstance(values[0], Pointer):
            raise NotUnderstood(f"where `{shown_text(node)}` stores is not understood")
        needed(state, *values)
        _note(state, values[0], store=True, atomic=name.startswith("atomic"))
        return new_unknown(state)
    _effects(state, node, values)
    _count(state)
    if name.isupper():
        state.surely = None  # a macro, which may return
    if name in _PURE and all(isinstance(v, sp.Expr) for v in values):
        return new_unknown(state, *values)
    return carried(state, new_unknown(state), *values)


def _effects(state: State, node: Node, values: Sequence[Any]) -> None:
    """What a function that is not known may do by its arguments."""
    function, arguments = child_of(node, "function"), child_of(node, "arguments")
    pointers = [v for v in values if isinstance(v, (Pointer, UnknownArray))]
    opaque = function.type in ("lambda_expression", "field_expression")
    known = [v for v in pointers if isinstance(v, Pointer)]
    if state.signed is not None and not opaque and len(known) == len(pointers):
        for pointer in known:
            _note(state, replace(pointer, offset=new_unknown(state)), store=True, atomic=True)
    elif pointers or opaque:
        raise NotUnderstood(f"the loads and stores of `{shown_text(node)}` are not known")
    for child in arguments.named_children:  # a variable whose address is passed may change
        for changed, _ in assigned_names(child) if child.type == "pointer_expression" else ():
            if isinstance(state.env.get(changed), sp.Expr):
                state.env[changed] = new_unknown(state)

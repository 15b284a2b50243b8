"""Address expressions of a kernel, read from its text.

dagc reads them from the code and does not ask for them in the `.dag`: a declaration would have to repeat the code, and
a wrong one would go unseen. The reader is sound: every load and store of global memory that the text can make is in its
answer, with an address that holds, or with `known` False; what it cannot read at all raises NotUnderstood, and the
models that need it are not used. Where paths meet (branches, iterations of a loop), a name keeps its value only where
all paths agree. How often something runs is an estimate, `Access.weight`.

Addresses are SymPy expressions in elements of their array, in `threadIdx_x`, `blockIdx_x`, `blockDim_x` (and y, z), the
kernel's by-value formals, loop counters and tunables. Integers are taken as mathematical ones: no index wraps around,
and `/` and `%` have no negative operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sympy as sp

from dagc.cuda.text import FLOATING, TYPE_SIZES, VECTORS, NotUnderstood, bare_type, body_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

EVEN_CHANCE = 0.5  # how often the body of an `if` is taken to run whose condition says nothing


def symbol(name: str) -> sp.Symbol:
    """An integer. All symbols of the models are made here, so that equal names are equal symbols."""
    return sp.Symbol(name, integer=True)


@dataclass(frozen=True, slots=True)
class Loop:
    """`trips` iterations of a counter from `first`, by `step`.

    `place`: where it stands in the text, in bytes, since two loops one after the other may be alike in all else.
    """

    counter: sp.Symbol
    first: sp.Expr
    trips: sp.Expr
    step: sp.Expr
    place: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store in the text. `weight`: how often it runs each time its place is reached, 0 to 1; 0 where that
    is rare (the edge of a grid). `loops` from the outside in.

    `known` is False where the address depends on loaded values in a way that differs between threads, or is not linear
    in the indices of threads and blocks and the counters of loops. `shared` is True for shared memory.
    """

    array: str
    address: sp.Expr
    size: int
    store: bool
    loops: tuple[Loop, ...]
    weight: float = 1.0
    known: bool = True
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic of the innermost kind: how many operations a thread does in the body of these loops."""

    loops: tuple[Loop, ...]
    operations: float
    slow: float  # divisions and square roots among them


@dataclass(frozen=True, slots=True)
class Accesses:
    """All of a kernel. `one_thread`: only one thread of each block works. `barriers`: __syncthreads in the text."""

    accesses: tuple[Access, ...]
    work: tuple[Work, ...]
    one_thread: bool = False
    barriers: int = 0
    notes: tuple[str, ...] = ()


# ---- values ---------------------------------------------------------------------------------
# What a name or an expression stands for: a SymPy expression for a number (with a symbol of its own where the number is
# not known), or one of these.


@dataclass(frozen=True, slots=True)
class _Pointer:
    """Into an array, `offset` elements of `size` bytes from its start. `inner`: the further dimensions of an array that
    is declared with several."""

    array: str
    offset: sp.Expr
    size: int
    shared: bool = False
    inner: tuple[sp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class _Reference:
    """A C++ reference to an element."""

    to: _Pointer


@dataclass(frozen=True, slots=True)
class _Local:
    """An array or a structure of the thread's own, or the address of a variable: no access of memory that counts."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """A pointer into an array that is not known."""


@dataclass(slots=True)
class _State:
    env: dict[str, Any]
    constant: frozenset[str]  # arrays that the kernel only reads
    types: Mapping[str, str]  # C types of those that the program names
    loops: tuple[Loop, ...] = ()
    weight: float = 1.0
    accesses: list[Access] = field(default_factory=list)
    work: dict[tuple[Loop, ...], list[float]] = field(default_factory=dict)
    one_thread: bool = False
    barriers: int = 0
    notes: list[str] = field(default_factory=list)
    fresh: int = 0
    shared: set[str] = field(default_factory=set)  # scalars that other threads may change
    stored: tuple[str, sp.Expr] | None = None  # what was stored last: it is still in a register


_BUILT_IN = {f"{v}.{a}" for v in ("threadIdx", "blockIdx", "blockDim", "gridDim") for a in "xyz"}
_LEAVING = "a loop with `break` or `continue`: taken to run to its end"
_SLOW = {"sqrt", "sqrtf", "rsqrt", "exp", "expf", "log", "logf", "pow", "powf", "sin", "cos", "tanh", "tanhf"}
_NARROW = {"char", "int8_t", "uint8_t", "uchar", "short", "int16_t", "uint16_t", "bool"}
_LOADS = {"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv"}
_STORES = {"__stwb", "__stcg", "__stcs", "__stwt"}
_CASTS = {"static_cast", "reinterpret_cast", "const_cast"}
_FENCES = {"__syncwarp", "__threadfence", "__threadfence_block", "__threadfence_system"}


def accesses_of(
    text: str,
    arrays: Mapping[str, int],
    values: Mapping[str, sp.Expr],
    constant: Collection[str] = (),
    types: Mapping[str, str] | None = None,
) -> Accesses:
    """Read a kernel's body.

    `arrays`: element size in bytes of each pointer formal; `constant`: those among them that the kernel only reads.
    `values`: what other names stand for (by-value formals, tunables, constants). `types`: what types that the program
    names are in C (`real`: `float`). Raises NotUnderstood.
    """
    env: dict[str, Any] = {name: _Pointer(name, sp.Integer(0), size) for name, size in arrays.items()}
    env |= dict(values)
    state = _State(env, frozenset(constant), types or {})
    for statement in body_of(text).named_children:
        if not _statement(state, statement):
            break
    work = tuple(Work(loops, n[0], n[1]) for loops, n in state.work.items())
    return Accesses(tuple(state.accesses), work, state.one_thread, state.barriers, tuple(dict.fromkeys(state.notes)))


def _shown(node: Node | None) -> str:
    return " ".join(text_of(node).split())[:40]


def _child(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise NotUnderstood(f"`{_shown(node)}` is not understood")
    return child


# ---- statements -----------------------------------------------------------------------------


def _statement(state: _State, node: Node) -> bool:
    """False where nothing behind it is reached."""
    match node.type:
        case "comment" | "preproc_call" | "static_assert_declaration":
            return True
        case "compound_statement":
            return _block(state, node)
        case "declaration":
            _declaration(state, node)
        case "expression_statement":
            for child in node.named_children:
                _value(state, child)
        case "if_statement":
            return _if(state, node)
        case "else_clause":
            return all(_statement(state, child) for child in node.named_children if child.type != "comment")
        case "for_statement":
            _for(state, node)
        case "return_statement":
            for child in node.named_children:
                _value(state, child)
            return False
        case "break_statement" | "continue_statement":
            state.notes.append(_LEAVING)
            return False
        case "while_statement" | "do_statement":
            state.notes.append("a `while` loop: how often it runs is not known")
            _unknown_loop(state, node, [_child(node, "condition"), _child(node, "body")])
        case _:
            raise NotUnderstood(f"`{_shown(node)}` is not understood")
    return True


def _block(state: _State, node: Node) -> bool:
    """A scope: names that it declares are gone behind it, and what they hid is there again."""
    outer = dict(state.env)
    falls = True
    for child in node.named_children:
        falls = _statement(state, child)
        if not falls:
            break
    for name in set(_declared_names(node)):
        if name in outer:
            state.env[name] = outer[name]
        else:
            state.env.pop(name, None)
    return falls


def _declared_names(block: Node) -> Iterator[str]:
    for child in block.named_children:
        if child.type == "declaration":
            for declarator in child.children_by_field_name("declarator"):
                yield _Declarator.of(declarator).name


@dataclass(frozen=True, slots=True)
class _Declarator:
    """One name of a declaration."""

    name: str
    value: Node | None
    pointer: bool
    reference: bool
    dims: tuple[Node | None, ...]

    @staticmethod
    def of(node: Node) -> _Declarator:
        value, target = None, node
        if node.type == "init_declarator":
            value, target = node.child_by_field_name("value"), _child(node, "declarator")
        pointer = reference = False
        dims: list[Node | None] = []
        while target.type != "identifier":
            match target.type:
                case "pointer_declarator":
                    pointer, target = True, _child(target, "declarator")
                case "array_declarator":
                    dims.insert(0, target.child_by_field_name("size"))
                    target = _child(target, "declarator")
                case "reference_declarator":
                    reference, target = True, target.named_children[-1]
                case _:
                    raise NotUnderstood(f"the declaration `{_shown(node)}` is not understood")
        return _Declarator(text_of(target), value, pointer, reference, tuple(dims))


def _declaration(state: _State, node: Node) -> None:
    type_ = _type(state, text_of(node.child_by_field_name("type")))
    shared = any(text_of(child) == "__shared__" for child in node.children)
    for child in node.children_by_field_name("declarator"):
        one = _Declarator.of(child)
        if one.dims and shared:
            inner = tuple(_number(_value(state, d)) if d is not None else sp.Integer(1) for d in one.dims[1:])
            state.env[one.name] = _Pointer(one.name, sp.Integer(0), _size(type_), True, inner)
            continue
        value = _initial(state, one)
        if one.dims:
            if one.pointer:
                raise NotUnderstood(f"`{one.name}` is an array of pointers")
            value = _Local()
        elif one.reference:
            value = _bound(state, one)
        elif shared:
            state.shared.add(one.name)
            value = _unknown(state)
        elif one.pointer and not isinstance(value, _Pointer):
            value = value if isinstance(value, (_Local, _Lost)) else _Lost()
        elif type_ != "auto" and (type_ not in TYPE_SIZES or type_ in VECTORS):
            value = _Local()  # a structure
        else:
            value = _converted(state, type_, value)
        state.env[one.name] = value


def _initial(state: _State, one: _Declarator) -> Any:
    if one.value is None or one.reference:
        return _unknown(state)
    if one.value.type in ("argument_list", "initializer_list"):
        values = [_value(state, child) for child in one.value.named_children]
        return values[0] if len(values) == 1 else _unknown(state)
    return _value(state, one.value)


def _bound(state: _State, one: _Declarator) -> Any:
    """What a reference is bound to."""
    if one.value is not None:
        pointer = _place(state, one.value)
        if isinstance(pointer, _Pointer):
            return _Reference(pointer)
    raise NotUnderstood(f"what the reference `{one.name}` is bound to is not understood")


def _type(state: _State, text: str) -> str:
    """A type as a key of TYPE_SIZES, where it is one."""
    type_ = bare_type(text)
    return state.types.get(type_, type_)


def _size(type_: str) -> int:
    if type_ not in TYPE_SIZES:
        raise NotUnderstood(f"the size of type `{type_}` is not known")
    return TYPE_SIZES[type_]


def _converted(state: _State, type_: str, value: Any) -> Any:
    """A number as a type holds it: what may be cut off, or becomes a fraction when divided, is not known."""
    if not isinstance(value, sp.Expr) or type_ == "auto":
        return value
    if type_ in FLOATING:
        return sp.Float(value) if value.is_number else _unknown(state)
    return value if value.is_Integer or (is_known(value) and type_ not in _NARROW) else _unknown(state)


# ---- branches -------------------------------------------------------------------------------


def _if(state: _State, node: Node) -> bool:
    condition, then = _child(node, "condition"), _child(node, "consequence")
    other = node.child_by_field_name("alternative")
    chance = _chance(state, condition)
    before, env, stored = state.weight, dict(state.env), state.stored
    leaves = _never_falls(then)
    # A guard at the edge of the grid: few threads leave. What is behind it runs as often as what is before it.
    state.weight = before * (0.0 if leaves and chance == 1 else chance)
    falls = _statement(state, then)
    if not falls and _one_thread_stays(condition):
        state.one_thread = True
    then_env, then_stored = state.env, state.stored
    state.env, state.stored = dict(env), stored
    state.weight = before if not falls else before * (1 - chance)
    other_falls = _statement(state, other) if other is not None else True
    state.weight = before
    if falls and other_falls:
        state.env = _joined(state, then_env, state.env)
        state.stored = state.stored if state.stored == then_stored else None
    elif falls:
        state.env, state.stored = then_env, then_stored
    return falls or other_falls


def _never_falls(node: Node) -> bool:
    last = ([c for c in node.named_children if c.type != "comment"] or [node])[-1]
    end = last if node.type == "compound_statement" else node
    return end.type in ("return_statement", "break_statement", "continue_statement")


def _one_thread_stays(node: Node) -> bool:
    """`if (threadIdx.x != 0) return`, or with `||`, or `if (threadIdx.x) return`."""
    inner = node.named_children[-1] if node.type in ("condition_clause", "parenthesized_expression") else None
    if inner is not None:
        return _one_thread_stays(inner)
    if node.type == "field_expression":
        return text_of(node).startswith("threadIdx.")
    if node.type != "binary_expression":
        return False
    operator, left, right = text_of(_child(node, "operator")), _child(node, "left"), _child(node, "right")
    if operator == "||":
        return _one_thread_stays(left) or _one_thread_stays(right)
    return operator in ("!=", ">") and "threadIdx." in text_of(left) + text_of(right)


def _chance(state: _State, node: Node) -> float:
    """How often a condition is taken to hold, 0 to 1; its loads are noted on the way.

    Comparisons by size are guards at the edge of a grid: they hold. An index that differs between threads equals one
    value rarely; what is the same for all threads does so every other time.
    """
    if node.type in ("condition_clause", "parenthesized_expression"):
        return _chance(state, node.named_children[-1])
    if node.type == "unary_expression" and text_of(node).startswith("!"):
        return 1 - _chance(state, node.named_children[-1])
    if node.type == "binary_expression":
        operator = text_of(_child(node, "operator"))
        if operator in ("&&", "||"):
            left, right = _chance(state, _child(node, "left")), _chance(state, _child(node, "right"))
            return left * right if operator == "&&" else 1 - (1 - left) * (1 - right)
        left_value, right_value = _value(state, _child(node, "left")), _value(state, _child(node, "right"))
        settled = _settled(operator, left_value, right_value)
        if settled is not None:
            return float(settled)
        if operator in ("<", ">", "<=", ">="):
            return 1.0
        if operator in ("==", "!="):
            numbers = [v for v in (left_value, right_value) if isinstance(v, sp.Expr)]
            rare = any(varies(v) or any(_counts(s) for s in v.free_symbols) for v in numbers)
            equal = 0.0 if rare else EVEN_CHANCE
            return equal if operator == "==" else 1 - equal
        return EVEN_CHANCE
    value = _value(state, node)
    return float(value != 0) if isinstance(value, sp.Integer) else EVEN_CHANCE


_RELATIONS = {"<": sp.Lt, ">": sp.Gt, "<=": sp.Le, ">=": sp.Ge, "==": sp.Eq, "!=": sp.Ne}


def _settled(operator: str, left: Any, right: Any) -> bool | None:
    """A comparison of constants, None: it is none."""
    if operator in _RELATIONS and isinstance(left, sp.Integer) and isinstance(right, sp.Integer):
        return bool(_RELATIONS[operator](left, right))
    return None


def _joined(state: _State, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Where two paths meet: what both agree on."""
    return {
        name: one[name] if one[name] == other[name] else _either(state, one[name], other[name])
        for name in one.keys() & other.keys()
    }


def _either(state: _State, one: Any, other: Any) -> Any:
    if isinstance(one, _Pointer) and isinstance(other, _Pointer):
        moved = replace(other, offset=one.offset)
        return replace(one, offset=_unknown(state)) if moved == one else _Lost()
    if isinstance(one, sp.Expr) and isinstance(other, sp.Expr):
        return _unknown(state)
    return _Lost()


# ---- loops ----------------------------------------------------------------------------------


def _for(state: _State, node: Node) -> None:
    body = _child(node, "body")
    first, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
    update = node.child_by_field_name("update")
    outer = dict(state.env)
    if first is not None and first.type == "declaration":
        _declaration(state, first)
    elif first is not None:
        _value(state, first)
    try:
        name = _counter(first)
        # A counter, bound or step that the body changes says nothing of the number of iterations.
        fixed = {name, *_names(condition), *_names(update)}
        if fixed & ({n for n, _ in _assigned(body)} | state.shared):
            raise NotUnderstood(f"`{_shown(condition)}` changes in its loop")
        start = _number(state.env[name])
        step = _step(state, update, name)
        trips = _trips(state, condition, name, start, step)
    except NotUnderstood as error:
        state.notes.append(f"{error.message}: how often the loop runs is not known")
        _unknown_loop(state, node, [n for n in (condition, body, update) if n is not None])
    else:
        counter = symbol(f"{name}_{len(state.loops)}")
        _inside(state, Loop(counter, start, trips, step, node.start_byte), {name: counter}, [body])
        state.env[name] = _unknown(state)
    if first is not None and first.type == "declaration":
        for child in first.children_by_field_name("declarator"):
            gone = _Declarator.of(child).name
            if gone in outer:
                state.env[gone] = outer[gone]
            else:
                state.env.pop(gone, None)


def _unknown_loop(state: _State, node: Node, parts: list[Node]) -> None:
    counter = symbol(f"loop_{len(state.loops)}")
    _inside(state, Loop(counter, sp.Integer(0), sp.Integer(32), sp.Integer(1), node.start_byte), {}, parts)


def _inside(state: _State, loop: Loop, names: dict[str, sp.Expr], parts: list[Node]) -> None:
    """The parts of a loop (its body; a condition and an update that are not understood), once for all iterations."""
    outer, env = state.loops, dict(state.env)
    state.loops = (*outer, loop)
    start = _changed(state, env, parts) | names
    # What an iteration stores last is in a register at the next: the body is read twice, the second time counts.
    kept = list(state.accesses), dict(state.work), list(state.notes), state.barriers, state.one_thread
    for number in range(2):
        state.env = dict(start)
        state.stored = None if number == 0 else _stored_before(state, loop)
        if number:
            state.accesses, state.work, state.notes, state.barriers, state.one_thread = kept
        for part in parts:
            if part.type.endswith(("statement", "clause")) and part.type != "condition_clause":
                _statement(state, part)
            else:
                _value(state, part)
    state.loops, state.env = outer, _changed(state, env, parts)


def _changed(state: _State, env: Mapping[str, Any], parts: Iterable[Node]) -> dict[str, Any]:
    """`env` where what the parts change is not known."""
    out = dict(env)
    for part in parts:
        for name, bumped in _assigned(part):
            value = out.get(name)
            if isinstance(value, _Pointer):
                out[name] = replace(value, offset=_unknown(state)) if bumped else _Lost()
            elif isinstance(value, sp.Expr):
                out[name] = _unknown(state)
    return out


def _stored_before(state: _State, loop: Loop) -> tuple[str, sp.Expr] | None:
    """What an iteration stored last, its address as the next iteration writes it."""
    if state.stored is None:
        return None
    array, address = state.stored
    return array, sp.expand(address.subs(loop.counter, loop.counter - loop.step))


def _counter(node: Node | None) -> str:
    if node is not None and node.type == "declaration":
        declarators = node.children_by_field_name("declarator")
        if len(declarators) == 1 and declarators[0].type == "init_declarator":
            one = _Declarator.of(declarators[0])
            if not (one.pointer or one.reference or one.dims):
                return one.name
    elif node is not None and node.type == "assignment_expression" and text_of(_child(node, "operator")) == "=":
        left = _child(node, "left")
        if left.type == "identifier":
            return text_of(left)
    raise NotUnderstood(f"the start of a loop, `{_shown(node)}`, is not understood")


def _step(state: _State, node: Node | None, name: str) -> sp.Expr:
    words = text_of(node).replace(" ", "")
    if words in (f"++{name}", f"{name}++"):
        return sp.Integer(1)
    if words in (f"--{name}", f"{name}--"):
        return sp.Integer(-1)
    if node is not None and node.type == "assignment_expression" and words.startswith((f"{name}+=", f"{name}-=")):
        amount = _number(_value(state, _child(node, "right")))
        return amount if words.startswith(f"{name}+=") else -amount
    raise NotUnderstood(f"the step of a loop, `{_shown(node)}`, is not understood")


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _trips(state: _State, node: Node | None, name: str, start: sp.Expr, step: sp.Expr) -> sp.Expr:
    if node is None or node.type != "binary_expression":
        raise NotUnderstood(f"the end of a loop, `{_shown(node)}`, is not understood")
    left, right, operator = _child(node, "left"), _child(node, "right"), text_of(_child(node, "operator"))
    if text_of(right) == name:
        left, right, operator = right, left, _TURNED.get(operator, operator)
    if text_of(left) != name:
        raise NotUnderstood(f"the end of a loop, `{_shown(node)}`, is not understood")
    bound = _number(_value(state, right))
    if operator == "<" and step == 1:
        return bound - start
    if operator == "<" and step.is_negative is not True and step != 0:
        return sp.ceiling((bound - start) / step)
    if operator == "<=" and step == 1:
        return bound - start + 1
    if operator == ">=" and step == -1:
        return start - bound + 1
    if operator == ">" and step == -1:
        return start - bound
    raise NotUnderstood(f"the end of a loop, `{_shown(node)}`, is not understood")


def _names(node: Node | None) -> Iterator[str]:
    if node is not None and node.type == "identifier":
        yield text_of(node)
    for child in node.named_children if node is not None else ():
        yield from _names(child)


def _assigned(node: Node) -> Iterator[tuple[str, bool]]:
    """Names of variables that change below a node, and whether only by a step (`p++`, `p += 2`)."""
    target, bumped = None, False
    if node.type == "assignment_expression":
        target, bumped = node.child_by_field_name("left"), text_of(node.child_by_field_name("operator")) in ("+=", "-=")
    elif node.type == "update_expression":
        target, bumped = node.child_by_field_name("argument"), True
    elif node.type == "pointer_expression" and text_of(node).startswith("&"):
        target = node.child_by_field_name("argument")  # whoever has its address may change it
    elif node.type == "lambda_expression":
        raise NotUnderstood("a lambda is not understood")
    while target is not None and target.type == "parenthesized_expression":
        target = target.named_children[-1]
    if target is not None and target.type == "identifier":
        yield text_of(target), bumped
    for child in node.named_children:
        yield from _assigned(child)


# ---- expressions ----------------------------------------------------------------------------


def _unknown(state: _State) -> sp.Symbol:
    """A value that is not known here and may differ between threads."""
    state.fresh += 1
    return sp.Symbol(f"unknown_{state.fresh}")


def is_known(address: sp.Expr) -> bool:
    return not any(s.name.startswith("unknown_") for s in address.free_symbols)


def varies(address: sp.Expr) -> bool:
    """Does it differ between the threads of a grid?"""
    return any(s.name.startswith(("threadIdx_", "blockIdx_", "unknown_")) for s in address.free_symbols)


def _is_linear(address: sp.Expr) -> bool:
    """Is an expanded address linear in the indices of threads and blocks and in the counters of loops?"""
    indices = {s for s in address.free_symbols if s.name.startswith(("threadIdx_", "blockIdx_")) or _counts(s)}
    rest = address
    for index in indices:
        factor = address.coeff(index, 1)
        if factor.free_symbols & indices:
            return False
        rest = rest - factor * index
    return not sp.expand(rest).free_symbols & indices


def _counts(name: sp.Symbol) -> bool:
    """Is it the counter of a loop?"""
    return name.name.rsplit("_", 1)[-1].isdecimal() and not name.name.startswith(("uniform_", "unknown_"))


def _number(value: Any) -> sp.Expr:
    if isinstance(value, sp.Expr):
        return value
    raise NotUnderstood("a number was expected")


def _count(state: _State, slow: bool = False) -> None:
    entry = state.work.setdefault(state.loops, [0.0, 0.0])
    entry[0] += state.weight
    entry[1] += state.weight * slow


def _value(state: _State, node: Node) -> Any:
    """What an expression stands for; its loads and stores are noted on the way."""
    match node.type:
        case "number_literal":
            return _literal(state, node)
        case "identifier":
            return _name(state, text_of(node))
        case "field_expression":
            return _field(state, node)
        case "parenthesized_expression" | "condition_clause":
            return _value(state, node.named_children[-1])
        case "cast_expression":
            type_ = _child(node, "type")
            return _cast(state, text_of(type_), _value(state, _child(node, "value")))
        case "binary_expression":
            return _binary(state, node)
        case "unary_expression":
            value = _value(state, node.named_children[-1])
            sign = text_of(node)[0]
            return -value if sign == "-" and isinstance(value, sp.Expr) else (value if sign == "+" else _unknown(state))
        case "pointer_expression" | "subscript_expression":
            place = _place(state, node)
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
            values = [_value(state, child) for child in node.named_children]
            return values[1] if len(values) == 3 and values[1] == values[2] else _either(state, *values[-2:])
        case "comma_expression":
            return [_value(state, child) for child in node.named_children][-1]
        case "sizeof_expression":
            return _sizeof(state, node)
        case "true" | "false":
            return sp.Integer(node.type == "true")
        case "string_literal" | "char_literal" | "null" | "type_descriptor" | "concatenated_string" | "comment":
            return _unknown(state)
        case "initializer_list" | "compound_literal_expression":
            for child in node.named_children:
                _value(state, child)
            return _Local()
        case _:
            raise NotUnderstood(f"`{_shown(node)}` is not understood")


def _literal(state: _State, node: Node) -> sp.Expr:
    digits = text_of(node).replace("'", "").lower()
    whole = digits.rstrip("ul")
    try:
        return sp.Integer(int(whole, 0) if not whole.isdecimal() or not whole.startswith("0") else int(whole, 8))
    except ValueError:
        try:
            return sp.Float(digits.rstrip("fl"))
        except ValueError:
            return _unknown(state)


def _name(state: _State, name: str) -> Any:
    if name == "warpSize":
        return sp.Integer(32)
    value = state.env.get(name)
    if value is None:  # a macro or a variable of the program's own code: it may stand for anything
        return _unknown(state)
    return _read(state, value.to) if isinstance(value, _Reference) else value


def _field(state: _State, node: Node) -> Any:
    if text_of(node) in _BUILT_IN:
        return symbol(text_of(node).replace(".", "_"))
    return _read(state, _place(state, node))


def _sizeof(state: _State, node: Node) -> Any:
    inner = node.named_children[-1]
    type_ = text_of(inner)
    if inner.type == "type_descriptor":
        return sp.Integer(8 if "*" in type_ else _size(_type(state, type_)))
    return _unknown(state)


def _cast(state: _State, type_: str, value: Any) -> Any:
    """`(T)value`: a pointer to elements of another size counts in these."""
    if not isinstance(value, _Pointer) or "*" not in type_:
        return _converted(state, _type(state, type_), value) if "*" not in type_ else value
    size = _size(_type(state, type_))
    if size == value.size and not value.inner:
        return value
    offset = sp.expand(value.offset * value.size / size)
    whole = all(term.as_coeff_Mul()[0].is_Integer for term in sp.Add.make_args(offset))
    return _Pointer(value.array, offset if whole else _unknown(state), size, value.shared)


def _binary(state: _State, node: Node) -> Any:
    left, right = _value(state, _child(node, "left")), _value(state, _child(node, "right"))
    operator = text_of(_child(node, "operator"))
    if isinstance(right, _Pointer) and operator == "+":
        left, right = right, left
    if isinstance(left, (_Pointer, _Lost)) and isinstance(right, sp.Expr) and operator in "+-":
        return _moved(left, right if operator == "+" else -right)
    if not isinstance(left, sp.Expr) or not isinstance(right, sp.Expr):
        return _unknown(state)
    return _arithmetic(state, operator, left, right)


def _moved(pointer: _Pointer | _Lost, by: sp.Expr) -> _Pointer | _Lost:
    if isinstance(pointer, _Lost):
        return pointer
    return replace(pointer, offset=pointer.offset + by * sp.prod(pointer.inner))


def _arithmetic(state: _State, operator: str, left: sp.Expr, right: sp.Expr) -> sp.Expr:
    if not (is_known(left) and is_known(right)) or left.has(sp.Float) or right.has(sp.Float):
        if operator in "+-*/":
            _count(state, operator == "/")
        return _unknown(state)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return sp.expand(left * right)
        case "/" if right != 0:
            return sp.floor(left / right)
        case "%" if right != 0:
            return left - right * sp.floor(left / right)
        case "<<":
            return left * 2**right
        case ">>":
            return sp.floor(left / 2**right)
        case _:
            return _unknown(state)


# ---- loads and stores -----------------------------------------------------------------------


def _place(state: _State, node: Node) -> Any:
    """Where an expression that can be assigned to lies: a pointer, or _Local."""
    match node.type:
        case "parenthesized_expression":
            return _place(state, node.named_children[-1])
        case "identifier":
            value = state.env.get(text_of(node))
            return value.to if isinstance(value, _Reference) else _Local()
        case "subscript_expression":
            return _element(state, node)
        case "pointer_expression":
            inner = _child(node, "argument")
            if text_of(node).startswith("&"):
                return _place(state, inner)
            pointer = _value(state, inner)
        case "field_expression":
            inner = _child(node, "argument")
            if "->" not in (text_of(child) for child in node.children):
                if inner.type in ("call_expression", "cast_expression"):
                    _value(state, inner)
                    return _Local()
                return _place(state, inner)
            pointer = _value(state, inner)
        case _:
            raise NotUnderstood(f"`{_shown(node)}` is not understood")
    if isinstance(pointer, (_Pointer, _Local)):
        return pointer
    raise NotUnderstood(f"where `{_shown(node)}` points is not understood")


def _element(state: _State, node: Node) -> Any:
    base_node, index_node = _child(node, "argument"), _child(node, "indices")
    indices = [_value(state, child) for child in index_node.named_children if child.type != "comment"]
    base = _element(state, base_node) if base_node.type == "subscript_expression" else _value(state, base_node)
    if isinstance(base, _Local):
        return base
    if not isinstance(base, _Pointer) or len(indices) != 1:
        raise NotUnderstood(f"where `{_shown(node)}` points is not understood")
    index = indices[0] if isinstance(indices[0], sp.Expr) else _unknown(state)
    return replace(base, offset=base.offset + index * sp.prod(base.inner), inner=base.inner[1:])


def _read(state: _State, place: Any) -> Any:
    if not isinstance(place, _Pointer):
        return _unknown(state)
    return place if place.inner else _note(state, place, store=False)


def _note(state: _State, pointer: _Pointer, *, store: bool) -> Any:
    address = sp.expand(pointer.offset)
    place = (pointer.array, address)
    if not store and state.stored == place:
        return _unknown(state)  # still in a register
    known = is_known(address) and _is_linear(address)
    # One address for all threads and iterations, in an array that nothing is stored to: one value, whatever it is.
    constant = known and not varies(address) and not any(_counts(s) for s in address.free_symbols)
    value: Any = _unknown(state)
    if constant and pointer.array in state.constant:
        value = sp.Symbol(f"uniform_{pointer.array}_{address}", integer=True)
    same = [
        a
        for a in state.accesses
        if (a.array, a.address, a.loops) == (*place, state.loops)
        and a.weight >= state.weight
        and a.size == pointer.size
    ]
    if not store and known and any(not a.store for a in same) and state.stored is None:
        return value  # loaded before, and nothing was stored since
    state.accesses.append(
        Access(pointer.array, address, pointer.size, store, state.loops, state.weight, known, pointer.shared)
    )
    if store:
        state.stored = place
    return value


def _set(state: _State, node: Node, value: Any) -> None:
    """Assign to what a node names."""
    while node.type == "parenthesized_expression":
        node = node.named_children[-1]
    name = text_of(node)
    if node.type != "identifier" or isinstance(state.env.get(name), _Reference):
        place = _place(state, node)
        if isinstance(place, _Pointer):
            _note(state, place, store=True)
        return
    old = state.env.get(name)
    if name in state.shared:
        value = _unknown(state)
    elif isinstance(old, _Local):  # a structure, or an address of one
        value = value if isinstance(value, (_Pointer, _Lost)) else old
    elif isinstance(old, (_Pointer, _Lost)) and not isinstance(value, (_Pointer, _Local)):
        value = _Lost()
    elif isinstance(old, sp.Expr) and old.has(sp.Float):
        value = _unknown(state)  # a variable of floating-point type: what is whole today is cut off nowhere
    state.env[name] = value


def _assignment(state: _State, node: Node) -> Any:
    left, right = _child(node, "left"), _child(node, "right")
    operator = text_of(_child(node, "operator"))
    value = _value(state, right)
    if operator != "=":
        old = _value(state, left)
        if isinstance(old, (_Pointer, _Lost)) and isinstance(value, sp.Expr) and operator in ("+=", "-="):
            value = _moved(old, value if operator == "+=" else -value)
        else:
            _count(state, operator == "/=")
            value = _unknown(state)
    _set(state, left, value)
    return value


def _update(state: _State, node: Node) -> Any:
    target, step = _child(node, "argument"), sp.Integer(1 if "++" in text_of(node) else -1)
    old = _value(state, target)
    if isinstance(old, (_Pointer, _Lost)):
        new: Any = _moved(old, step)
    else:
        new = old + step if isinstance(old, sp.Expr) and is_known(old) and not old.has(sp.Float) else _unknown(state)
    _set(state, target, new)
    return new if text_of(node).startswith(("++", "--")) else old


def _call(state: _State, node: Node) -> Any:
    function, arguments = _child(node, "function"), _child(node, "arguments")
    values = [_value(state, child) for child in arguments.named_children if child.type != "comment"]
    name, template = text_of(function), ""
    if function.type == "template_function":
        name = text_of(_child(function, "name"))
        template = text_of(_child(function, "arguments"))[1:-1]
        if name in state.env:  # `i < n && j > (k)` reads like a template
            for child in _child(function, "arguments").named_children:
                _value(state, child)
            return _unknown(state)
    name = name.removeprefix("std::").removeprefix("::")
    if name in _CASTS or (
        len(values) == 1 and (function.type == "primitive_type" or name in TYPE_SIZES or name in state.types)
    ):
        return _cast(state, template or name, values[0])
    if name.startswith("__syncthreads") or name in _FENCES:
        state.barriers += name.startswith("__syncthreads")
        state.stored = None
        return sp.Integer(0) if name == "__syncthreads" else _unknown(state)
    if name in ("min", "max") and all(isinstance(v, sp.Expr) and is_known(v) for v in values):
        return (sp.Min if name == "min" else sp.Max)(*values)
    if name in _LOADS and isinstance(values[0], _Pointer):
        return _note(state, values[0], store=False)
    if name in _STORES or name.startswith("atomic"):
        if name.startswith("atomic"):
            state.notes.append("atomic operations are taken as stores")
        if not isinstance(values[0], _Pointer):
            raise NotUnderstood(f"where `{_shown(node)}` stores is not understood")
        _note(state, values[0], store=True)
        return _unknown(state)
    if any(isinstance(v, (_Pointer, _Lost)) for v in values) or function.type in (
        "lambda_expression",
        "field_expression",
    ):
        raise NotUnderstood(f"what `{_shown(node)}` loads and stores is not known")
    for child in arguments.named_children:  # what takes the address of a variable may change it
        for changed, _ in _assigned(child) if child.type == "pointer_expression" else ():
            if isinstance(state.env.get(changed), sp.Expr):
                state.env[changed] = _unknown(state)
    _count(state, name in _SLOW)
    return _unknown(state)

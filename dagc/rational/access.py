"""Address expressions of a kernel, read from its text.

dagc reads them from the code and does not ask for them in the `.dag`: a declaration would have to repeat the code, and
a wrong one would go unseen. What cannot be read (an index that was loaded from memory, a loop without a plain bound) is
said, and the models that need it step back.

Addresses are SymPy expressions in elements of their array, in `threadIdx_x`, `blockIdx_x`, `blockDim_x` (and y, z), the
kernel's by-value formals, loop counters and tunables. Parsing is tree-sitter's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy as sp

from dagc.errors import DagcError

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
    """One load or store in the text. `weight`: how often it runs each time its place is reached, 0 to 1.

    `loops` from the outside in. `known` is False where the address hangs on loaded values in a way that differs between
    threads. `shared` is True for shared memory.
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


class NotUnderstood(DagcError):
    """The text uses something that no address can be read from."""


@dataclass(slots=True)
class _Pointer:
    array: str
    offset: sp.Expr
    size: int
    shared: bool = False


@dataclass(slots=True)
class _State:
    env: dict[str, Any]
    loops: tuple[Loop, ...] = ()
    weight: float = 1.0
    accesses: list[Access] = field(default_factory=list)
    work: dict[tuple[Loop, ...], list[float]] = field(default_factory=dict)
    one_thread: bool = False
    barriers: int = 0
    notes: list[str] = field(default_factory=list)
    fresh: int = 0
    stored: tuple[str, sp.Expr] | None = None  # what was stored last: it is still in a register


_CASTS = {"size_t", "int", "long", "unsigned", "real", "float", "double", "int64_t", "uint64_t", "long long"}
_LEAVING = ("return_statement", "break_statement", "continue_statement")
_EARLY = "a loop with `break` or `continue`: taken to run to its end"
_SLOW = {"sqrt", "sqrtf", "rsqrt", "exp", "expf", "log", "logf", "pow", "powf", "sin", "cos", "tanh", "tanhf"}


def accesses_of(
    text: str, arrays: Mapping[str, int], values: Mapping[str, sp.Expr], shared: Mapping[str, int] | None = None
) -> Accesses:
    """Read a kernel's body.

    `arrays`: element size in bytes of each pointer formal. `values`: what other names stand for (by-value formals,
    tunables, constants). Raises NotUnderstood.
    """
    env: dict[str, Any] = {name: _Pointer(name, sp.Integer(0), size) for name, size in arrays.items()}
    env |= dict(values)
    state = _State(env)
    for statement in _body(text).named_children:
        if not _statement(state, statement):
            break
    work = tuple(Work(loops, n[0], n[1]) for loops, n in state.work.items())
    return Accesses(tuple(state.accesses), work, state.one_thread, state.barriers, tuple(dict.fromkeys(state.notes)))


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _body(text: str) -> Node:
    # `real` is a type of the program; to the parser it is one only if it looks like one.
    root = _parser().parse(f"void kernel() {{\n{text}\n}}".encode()).root_node
    if root.has_error:
        raise NotUnderstood("the kernel's text does not parse as CUDA C++")
    for node in root.named_children:
        if node.type == "function_definition":
            body = node.child_by_field_name("body")
            assert body is not None
            found: Node = body
            return found
    raise NotUnderstood("the kernel has no body")


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


# ---- statements -----------------------------------------------------------------------------


def _statement(state: _State, node: Node) -> bool:
    """False where nothing behind it is reached."""
    match node.type:
        case "comment" | "preproc_call" | ";":
            return True
        case "compound_statement":
            return all(_statement(state, child) for child in node.named_children)
        case "declaration":
            _declaration(state, node)
        case "expression_statement":
            for child in node.named_children:
                _value(state, child)
        case "if_statement":
            return _if(state, node)
        case "for_statement":
            _for(state, node)
        case "return_statement":
            return False
        case "break_statement" | "continue_statement":
            state.notes.append(_EARLY)
            return False
        case "while_statement" | "do_statement":
            state.notes.append("a `while` loop: how often it runs is not known")
            body = node.child_by_field_name("body")
            assert body is not None
            _unknown_loop(state, body)
        case _:
            raise NotUnderstood(f"`{_text(node)[:40]}` is not understood")
    return True


def _declaration(state: _State, node: Node) -> None:
    shared = "__shared__" in _text(node).split("=")[0]
    for child in node.children_by_field_name("declarator"):
        target, value = child, None
        if child.type == "init_declarator":
            value = child.child_by_field_name("value")
            found = child.child_by_field_name("declarator")
            assert found is not None
            target = found
        name = _text(target).replace("*", "").split("[")[0].strip()
        if target.type == "array_declarator":
            state.env[name] = _Pointer(name, sp.Integer(0), 4, shared=shared) if shared else _Local(name)
        elif value is not None:
            state.env[name] = _value(state, value)
        else:
            state.env[name] = _unknown(state)


@dataclass(slots=True)
class _Local:
    """An array of the thread's own."""

    name: str


def _if(state: _State, node: Node) -> bool:
    condition = node.child_by_field_name("condition")
    then, other = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
    assert condition is not None
    assert then is not None
    words = _text(condition)
    _value(state, condition)
    last = (then.named_children or [then]) if then.type == "compound_statement" else [then]
    leaves = any(c.type in _LEAVING for c in last)
    if leaves and last[-1].type in ("break_statement", "continue_statement"):
        state.notes.append(_EARLY)
    if leaves and "==" not in words:
        # A guard at the edge of the grid; `if (threadIdx.x != 0) return` leaves one thread.
        if "!=" in words and "threadIdx" in words:
            state.one_thread = True
        return True
    chance = 0.0 if "==" in words else (1.0 if "<" in words or ">" in words else EVEN_CHANCE)
    before, env = state.weight, dict(state.env)
    state.weight = before * chance
    if chance and not leaves:
        _statement(state, then)
    state.env = env
    state.weight = before * (1 - chance) if not leaves else before
    if other is not None and chance < 1:
        for child in other.named_children or [other]:
            _statement(state, child)
    state.weight = before
    return True


def _for(state: _State, node: Node) -> None:
    first, condition = node.child_by_field_name("initializer"), node.child_by_field_name("condition")
    update, body = node.child_by_field_name("update"), node.child_by_field_name("body")
    assert body is not None
    try:
        name, start = _counter(state, first)
        step = _step(state, update, name)
        trips = _trips(state, condition, name, start, step)
    except NotUnderstood as error:
        state.notes.append(f"{error.message}: how often the loop runs is not known")
        _unknown_loop(state, body)
        return
    counter = symbol(f"{name}_{len(state.loops)}")
    _inside(state, Loop(counter, start, trips, step, node.start_byte), {name: counter}, body)


def _unknown_loop(state: _State, body: Node) -> None:
    counter = symbol(f"loop_{len(state.loops)}")
    _inside(state, Loop(counter, sp.Integer(0), sp.Integer(32), sp.Integer(1), body.start_byte), {}, body)


def _inside(state: _State, loop: Loop, names: dict[str, sp.Expr], body: Node) -> None:
    outer, env, work = state.loops, dict(state.env), state.work
    state.loops = (*outer, loop)
    state.env |= names
    state.stored = None
    # Names that the body changes differ from one iteration to the next.
    for changed in _assigned(body):
        if changed in state.env and not isinstance(state.env[changed], (_Pointer, _Local)) and changed not in names:
            state.env[changed] = _unknown(state)
    # What an iteration stores last is in a register at the next: the body is read twice, the second time counts.
    kept = list(state.accesses)
    state.work = {}
    _statement(state, body)
    last = _stored_before(state, loop)
    state.accesses, state.env = kept, env | {n: v for n, v in state.env.items() if n in names}
    state.stored = last
    state.work = work
    state.env |= names
    for changed in _assigned(body):
        if changed in state.env and not isinstance(state.env[changed], (_Pointer, _Local)) and changed not in names:
            state.env[changed] = _unknown(state)
    _statement(state, body)
    after = {n: _unknown(state) for n in _assigned(body) if n in env and not isinstance(env[n], (_Pointer, _Local))}
    state.loops, state.env = outer, env | after


def _stored_before(state: _State, loop: Loop) -> tuple[str, sp.Expr] | None:
    """What an iteration stored last, its address as the next iteration writes it."""
    if state.stored is None:
        return None
    array, address = state.stored
    return array, sp.expand(address.subs(loop.counter, loop.counter - loop.step))


def _counter(state: _State, node: Node | None) -> tuple[str, sp.Expr]:
    if node is not None and node.type == "declaration":
        declarators = node.children_by_field_name("declarator")
        if len(declarators) == 1 and declarators[0].type == "init_declarator":
            value = declarators[0].child_by_field_name("value")
            assert value is not None
            return _text(declarators[0].child_by_field_name("declarator")), _number(_value(state, value))
    raise NotUnderstood(f"the start of a loop, `{_text(node)[:40]}`, is not understood")


def _step(state: _State, node: Node | None, name: str) -> sp.Expr:
    words = _text(node).replace(" ", "")
    if words in (f"++{name}", f"{name}++"):
        return sp.Integer(1)
    if words in (f"--{name}", f"{name}--"):
        return sp.Integer(-1)
    if node is not None and node.type == "assignment_expression" and words.startswith(f"{name}+="):
        right = node.child_by_field_name("right")
        assert right is not None
        return _number(_value(state, right))
    raise NotUnderstood(f"the step of a loop, `{_text(node)[:40]}`, is not understood")


def _trips(state: _State, node: Node | None, name: str, start: sp.Expr, step: sp.Expr) -> sp.Expr:
    if node is None or node.type != "binary_expression" or _text(node.child_by_field_name("left")) != name:
        raise NotUnderstood(f"the end of a loop, `{_text(node)[:40]}`, is not understood")
    right, operator = node.child_by_field_name("right"), _text(node.child_by_field_name("operator"))
    assert right is not None
    bound = _number(_value(state, right))
    if operator == "<" and step == 1:
        return bound - start
    if operator == "<":
        return sp.ceiling((bound - start) / step)
    if operator == "<=" and step == 1:
        return bound - start + 1
    if operator == ">=" and step == -1:
        return start - bound + 1
    if operator == ">" and step == -1:
        return start - bound
    raise NotUnderstood(f"the end of a loop, `{_text(node)[:40]}`, is not understood")


def _assigned(node: Node) -> Iterator[str]:
    if node.type == "assignment_expression":
        left = node.child_by_field_name("left")
        if left is not None and left.type == "identifier":
            yield _text(left)
    elif node.type == "update_expression":
        argument = node.child_by_field_name("argument")
        if argument is not None and argument.type == "identifier":
            yield _text(argument)
    for child in node.named_children:
        yield from _assigned(child)


# ---- expressions ----------------------------------------------------------------------------


def _unknown(state: _State) -> sp.Symbol:
    """A value that is not known here and may differ between threads."""
    state.fresh += 1
    return sp.Symbol(f"unknown_{state.fresh}")


def _uniform(state: _State, key: str) -> sp.Symbol:
    """A value that is not known here, the same for all threads: loaded from one address."""
    return sp.Symbol(f"uniform_{key}", integer=True)


def is_known(address: sp.Expr) -> bool:
    return not any(s.name.startswith("unknown_") for s in address.free_symbols)


def varies(address: sp.Expr) -> bool:
    """Does it differ between the threads of a grid?"""
    return any(s.name.startswith(("threadIdx_", "blockIdx_", "unknown_")) for s in address.free_symbols)


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
            digits = _text(node).rstrip("fFuUlL")
            try:
                return sp.Integer(int(digits, 0))
            except ValueError:
                return sp.Float(digits)
        case "identifier":
            return state.env.get(_text(node), symbol(_text(node)))
        case "field_expression":
            return symbol(_text(node).replace(".", "_"))
        case "parenthesized_expression" | "condition_clause" | "cast_expression":
            return _value(state, node.named_children[-1])
        case "binary_expression":
            return _binary(state, node)
        case "unary_expression":
            value = _value(state, node.named_children[-1])
            sign = _text(node)[0]
            return -value if sign == "-" and isinstance(value, sp.Expr) else (value if sign == "+" else _unknown(state))
        case "pointer_expression":
            return _pointer_expression(state, node)
        case "subscript_expression":
            return _load(state, node)
        case "assignment_expression":
            return _assignment(state, node)
        case "update_expression":
            target = node.child_by_field_name("argument")
            assert target is not None
            if target.type == "subscript_expression":
                _load(state, target)
                _store(state, target)
            elif target.type == "identifier":
                state.env[_text(target)] = _unknown(state)
            return _unknown(state)
        case "call_expression":
            return _call(state, node)
        case "conditional_expression":
            for child in node.named_children:
                _value(state, child)
            return _unknown(state)
        case "comma_expression":
            values = [_value(state, child) for child in node.named_children]
            return values[-1]
        case "true" | "false" | "string_literal" | "char_literal" | "sizeof_expression" | "null":
            return sp.Integer(1)
        case _:
            for child in node.named_children:
                _value(state, child)
            return _unknown(state)


def _binary(state: _State, node: Node) -> Any:
    left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
    assert left_node is not None
    assert right_node is not None
    left, right = _value(state, left_node), _value(state, right_node)
    operator = _text(node.child_by_field_name("operator"))
    if isinstance(left, _Pointer) and isinstance(right, sp.Expr) and operator in "+-":
        offset = left.offset + right if operator == "+" else left.offset - right
        return _Pointer(left.array, offset, left.size, left.shared)
    if not isinstance(left, sp.Expr) or not isinstance(right, sp.Expr):
        return _unknown(state)
    if not (is_known(left) and is_known(right)) or isinstance(left, sp.Float) or isinstance(right, sp.Float):
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
        case "/":
            return sp.floor(left / right)
        case "%":
            return left - right * sp.floor(left / right)
        case "<<":
            return left * 2**right
        case ">>":
            return sp.floor(left / 2**right)
        case _:
            return _unknown(state)


def _pointer_expression(state: _State, node: Node) -> Any:
    argument = node.child_by_field_name("argument")
    assert argument is not None
    if _text(node).startswith("&") and argument.type == "subscript_expression":
        found = _element(state, argument)
        return found if found is not None else _unknown(state)
    pointer = _value(state, argument)
    if _text(node).startswith("*") and isinstance(pointer, _Pointer):
        return _note(state, pointer, store=False)
    return _unknown(state)


def _element(state: _State, node: Node) -> _Pointer | None:
    """Where a subscript points; None for an array of the thread's own."""
    base_node, index_node = node.child_by_field_name("argument"), node.child_by_field_name("indices")
    assert base_node is not None
    assert index_node is not None
    base = _value(state, base_node)
    indices = [_value(state, child) for child in index_node.named_children]
    if isinstance(base, _Pointer):
        index = indices[0] if indices and isinstance(indices[0], sp.Expr) else _unknown(state)
        return _Pointer(base.array, base.offset + index, base.size, base.shared)
    return None


def _load(state: _State, node: Node) -> Any:
    pointer = _element(state, node)
    return _unknown(state) if pointer is None else _note(state, pointer, store=False)


def _store(state: _State, node: Node) -> None:
    pointer = _element(state, node)
    if pointer is not None:
        _note(state, pointer, store=True)


def _note(state: _State, pointer: _Pointer, *, store: bool) -> Any:
    address = sp.expand(pointer.offset)
    place = (pointer.array, address)
    if not store and state.stored == place:
        return _unknown(state)  # still in a register
    known = is_known(address)
    # One address for all threads and iterations, in an array that nothing was stored to: one value, whatever it is.
    constant = known and not varies(address) and not any(_counts(s) for s in address.free_symbols)
    value: Any = _unknown(state)
    if constant and not any(a.store and a.array == pointer.array for a in state.accesses):
        value = _uniform(state, f"{pointer.array}_{address}")
    same = [a for a in state.accesses if a.array == pointer.array and a.address == address and a.loops == state.loops]
    if not store and known and any(not a.store for a in same) and state.stored is None:
        return value  # loaded before, and nothing was stored since
    state.accesses.append(
        Access(pointer.array, address, pointer.size, store, state.loops, state.weight, known, pointer.shared)
    )
    if store:
        state.stored = place
    return value


def _counts(name: sp.Symbol) -> bool:
    """Is it the counter of a loop?"""
    return name.name.rsplit("_", 1)[-1].isdecimal() and not name.name.startswith("uniform_")


def _assignment(state: _State, node: Node) -> Any:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    assert left is not None
    assert right is not None
    operator = _text(node.child_by_field_name("operator"))
    value = _value(state, right)
    if left.type == "subscript_expression":
        if operator != "=":
            _load(state, left)
            _count(state, operator == "/=")
        _store(state, left)
    elif left.type == "identifier":
        if operator != "=":
            _count(state, operator == "/=")
        state.env[_text(left)] = value if operator == "=" else _unknown(state)
    elif left.type == "pointer_expression":
        argument = left.child_by_field_name("argument")
        assert argument is not None
        pointer = _value(state, argument)
        if isinstance(pointer, _Pointer):
            _note(state, pointer, store=True)
    return value


def _call(state: _State, node: Node) -> Any:
    name = _text(node.child_by_field_name("function"))
    arguments = node.child_by_field_name("arguments")
    values = [_value(state, child) for child in arguments.named_children] if arguments is not None else []
    if name in _CASTS and len(values) == 1:
        return values[0]
    if name == "__syncthreads":
        state.barriers += 1
        state.stored = None
        return sp.Integer(0)
    if name in ("min", "max") and all(isinstance(v, sp.Expr) and is_known(v) for v in values):
        return (sp.Min if name == "min" else sp.Max)(*values)
    if name in ("atomicAdd", "atomicMax", "atomicMin"):
        state.notes.append("atomic operations are taken as stores")
    _count(state, name in _SLOW)
    return _unknown(state)

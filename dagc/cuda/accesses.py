"""Address expressions of a kernel, read from its text.

dagc reads them from the code, so the `.dag` does not declare them: a declaration would repeat the code, and a wrong one
would go unnoticed. The reader is sound: its result has every load and store of global memory that the text can make,
with a correct address, or with `known` False. A text that it cannot read raises NotUnderstood, and the models that need
the accesses are not used. Where paths meet (branches, iterations of a loop), a name keeps its value only if all paths
agree; of two branches it has `either` value. Execution frequencies are estimates, `MemoryAccess.weight`.

Addresses are SymPy expressions in elements of their array, in `threadIdx_x`, `blockIdx_x`, `blockDim_x` (and y, z),
the kernel's by-value formals, loop counters and tunables. Integers are mathematical: no index wraps around, and `/`
and `%` have no negative operands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sympy as sp

from dagc.cuda.expressions import (
    ASSUMED,
    BUILT_IN,
    UNKNOWN_TRUTH,
    Clause,
    CountedLoop,
    Guard,
    Local,
    MemoryAccess,
    Pointer,
    Reference,
    State,
    Truth,
    UnknownArray,
    as_number,
    assigned_names,
    both,
    compared,
    converted,
    full_type,
    guards_of,
    indices_of,
    is_counter,
    is_known,
    is_signed,
    joined_value,
    may_wrap,
    nearby,
    needed,
    new_unknown,
    place_of,
    size_of,
    symbol,
    truth_of,
    value_of,
    varies,
)
from dagc.cuda.syntax import (
    FLOATING,
    TYPE_SIZES,
    VECTORS,
    Declarator,
    NotUnderstood,
    body_of,
    change_of,
    changes_below,
    child_of,
    declarators,
    declared_names,
    ends_flow,
    field_of,
    keeps_lines,
    line_of,
    names_below,
    operator_of,
    shown_text,
    specifiers,
    text_of,
    without_brackets,
)

if TYPE_CHECKING:
    from tree_sitter import Node

GUESSED_TRIPS = 32  # of a loop whose number of iterations is not known
EVEN_CHANCE = 0.5  # assumed frequency of an `if` whose condition gives no estimate


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic of an innermost loop: operations of a thread in the body of these loops."""

    loops: tuple[CountedLoop, ...]
    operations: float


@dataclass(frozen=True, slots=True)
class Accesses:
    """`one_thread`: only one thread of each block works. `barriers`: the loops around each __syncthreads of the text.
    `shared`: bytes of the arrays in shared memory that the text declares with a size that can be read; `floating`:
    those of floating-point numbers. `guessed`: where GUESSED_TRIPS stands for the iterations of a loop, 1 if
    its bound is loaded, 2 if data end it in another way. `sure_work`: the loops around operations on loaded
    values, what makes these run for certain, and their number. `multiples`: numbers that the way that is counted
    needs to be multiples of others."""

    accesses: tuple[MemoryAccess, ...]
    work: tuple[Work, ...]
    one_thread: bool = False
    barriers: tuple[tuple[CountedLoop, ...], ...] = ()
    notes: tuple[str, ...] = ()
    shared: sp.Expr = sp.Integer(0)
    floating: frozenset[str] = frozenset()
    guessed: int = 0
    sure_work: tuple[tuple[tuple[CountedLoop, ...], frozenset[Clause], int], ...] = ()
    multiples: tuple[tuple[sp.Expr, int], ...] = ()

    @property
    def guards(self) -> frozenset[Guard]:
        """The conditions on the indices of a thread that hold at all loads and stores: other threads have no work."""
        all_ = [a.guards for a in self.accesses if a.weight > 0]
        return frozenset.intersection(*all_) if all_ else frozenset()


_LEAVING = "a loop with `break`: assumed to run to its end"


def accesses_of(
    text: str,
    arrays: Mapping[str, int],
    values: Mapping[str, sp.Expr],
    constant: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    apart: bool = False,
    signed: Collection[str] | None = None,
) -> Accesses:
    """Read a kernel's body.

    `arrays`: element size in bytes of each pointer formal; `constant`: those that the kernel only reads. `values`: of
    other names (by-value formals, tunables, constants). `types`: C types of the program's type names (`real`: `float`).
    `apart`: the compiler knows that arrays do not overlap. `signed`: the `values` of a signed type; with it, accesses
    are all that may be made: numbers are rounded and wrap as in C, and functions that get a pointer may load and store
    anywhere in its array (without, they raise). Raises NotUnderstood.
    """
    env: dict[str, Any] = {name: Pointer(name, sp.Integer(0), size) for name, size in arrays.items()}
    env |= dict(values)
    state = State(env, frozenset(constant), types or {}, signed=None if signed is None else dict.fromkeys(signed, True))
    try:
        for statement in body_of(text).named_children:
            if not _statement(state, statement):
                break
    except NotUnderstood as error:
        error.line = error.line if keeps_lines(text) else None
        raise
    accesses = tuple(_as_needed(state, number, access) for number, access in enumerate(state.accesses))
    work = tuple(Work(loops, count) for loops, count in state.work.items())
    notes = tuple(dict.fromkeys(state.notes))
    accesses = tuple(_outside(a, state) for a in accesses) if apart else accesses
    return Accesses(
        accesses, work, state.one_thread, state.barriers, notes, state.shared_bytes,
        frozenset(state.floating), state.guessed, tuple((*place, count) for place, count in state.sure_work.items()),
        tuple(state.multiples),
    )  # fmt: skip


def _as_needed(state: State, number: int, access: MemoryAccess) -> MemoryAccess:
    """A load runs for certain if its value is needed for certain."""
    if access.store or access.surely is None:
        return access
    uses = state.uses.get(number, ())
    return replace(access, surely=both(access.surely, min(uses, key=len)) if uses else None)


def _outside(access: MemoryAccess, state: State) -> MemoryAccess:
    """An access as a compiler makes it that knows that arrays do not overlap: an element that is the same in all
    iterations of a loop stays in a register, unless the loop stores other elements of its array."""
    loops = access.loops
    while loops and access.known and not access.atomic and loops[-1].counter not in access.address.free_symbols:
        inside = [a for a in state.accesses if a.array == access.array and a.loops[: len(loops)] == loops]
        others = any(a.address != access.address for a in inside) and any(a.store for a in inside)
        if others or any(loops == around[: len(loops)] for around in state.barriers):
            break
        loops = loops[:-1]
    return replace(access, loops=loops)


# ---- statements -----------------------------------------------------------------------------


def _statement(state: State, node: Node) -> bool:
    """False if nothing after it is reached."""
    try:
        return _executed(state, node)
    except NotUnderstood as error:
        error.line = line_of(node) if error.line is None else error.line
        raise


def _executed(state: State, node: Node) -> bool:
    match node.type:
        case "comment" | "preproc_call" | "static_assert_declaration":
            return True
        case "compound_statement":
            return _block(state, node)
        case "declaration":
            _declaration(state, node)
        case "expression_statement":
            for child in node.named_children:
                value_of(state, child)
        case "if_statement":
            return _if(state, node)
        case "else_clause":
            return all(_statement(state, child) for child in node.named_children if child.type != "comment")
        case "for_statement":
            _for(state, node)
        case "return_statement":
            for child in node.named_children:
                value_of(state, child)
            return False
        case "continue_statement":  # what follows runs under the condition, as after a `return`
            return False
        case "break_statement":
            state.notes.append(_LEAVING)
            return False
        case "while_statement" | "do_statement":
            _while(state, node)
        case _:
            raise NotUnderstood(f"`{shown_text(node)}` is not understood")
    return True


def _block(state: State, node: Node) -> bool:
    """Execute a scope: its names end with it, and names that they hid become visible again."""
    outer = dict(state.env)
    falls = True
    for child in node.named_children:
        falls = _statement(state, child)
        if not falls:
            break
    _leave(state, _declared_names(node), outer)
    return falls


def _leave(state: State, names: Iterable[str], outer: Mapping[str, Any]) -> None:
    """Restore the values that the names of a scope had before it; names without one are removed."""
    for name in set(names):
        if name in outer:
            state.env[name] = outer[name]
        else:
            state.env.pop(name, None)


def _declared_names(block: Node) -> Iterator[str]:
    for child in block.named_children:
        if child.type == "declaration":
            for declarator in declarators(child):
                yield _declarator(declarator).name


def _declarator(node: Node) -> Declarator:
    one = Declarator.of(node)
    if not one.simple:
        raise NotUnderstood(f"the declaration `{shown_text(node)}` is not understood")
    return one


def _declaration(state: State, node: Node) -> None:
    type_ = full_type(state, text_of(field_of(node, "type")))
    shared = "__shared__" in specifiers(node)
    for child in declarators(node):
        one = _declarator(child)
        if state.signed is not None:
            known = state.signed.get(one.name, True)
            state.signed[one.name] = known and is_signed(state, text_of(field_of(node, "type")))
        state.env[one.name] = _shared(state, one, type_) if shared else _declared(state, one, type_)


def _shared(state: State, one: Declarator, type_: str) -> Any:
    """An array or a variable in shared memory."""
    if not one.sizes:
        state.shared.add(one.name)
        return new_unknown(state)
    further = tuple(as_number(value_of(state, s)) if s is not None else sp.Integer(1) for s in one.sizes[1:])
    first = as_number(value_of(state, one.sizes[0])) if one.sizes[0] is not None else sp.Integer(0)
    state.floating |= {one.name} if type_ in FLOATING else set()
    bytes_ = first * sp.prod(further) * size_of(type_)
    state.shared_bytes += bytes_ if is_known(bytes_) and not varies(bytes_) else 0
    return Pointer(one.name, sp.Integer(0), size_of(type_), True, further)


def _declared(state: State, one: Declarator, type_: str) -> Any:
    """The value of a variable of the thread."""
    value = _initial(state, one)
    if one.sizes:
        if one.pointers:
            raise NotUnderstood(f"`{one.name}` is an array of pointers")
        return Local()
    if one.reference:
        return _bound(state, one)
    if one.pointers:
        return value if isinstance(value, (Pointer, Local, UnknownArray)) else UnknownArray()
    if type_ != "auto" and (type_ not in TYPE_SIZES or type_ in VECTORS):
        return Local()  # a structure
    return converted(state, type_, value)


def _initial(state: State, one: Declarator) -> Any:
    if one.value is None or one.reference:
        return new_unknown(state)
    if one.value.type in ("argument_list", "initializer_list"):
        values = [value_of(state, child) for child in one.value.named_children]
        return values[0] if len(values) == 1 else new_unknown(state)
    return value_of(state, one.value)


def _bound(state: State, one: Declarator) -> Any:
    """The object that a reference is bound to."""
    if one.value is not None:
        pointer = place_of(state, one.value)
        if isinstance(pointer, Pointer):
            return Reference(pointer)
    raise NotUnderstood(f"the object of the reference `{one.name}` is not understood")


# ---- branches -------------------------------------------------------------------------------


def _if(state: State, node: Node) -> bool:
    condition, then = child_of(node, "condition"), child_of(node, "consequence")
    other = field_of(node, "alternative")
    given = _condition(state, condition)
    before, env, stored, guards = state.weight, dict(state.env), state.stored, state.guards
    surely = state.surely
    then_surely, other_surely = both(surely, given.truth.then), both(surely, given.truth.otherwise)
    leaves = ends_flow(then)
    # A guard at the edge of the grid: few threads leave. The code after it runs as often as the code before.
    state.weight = before * (0.0 if leaves and given.chance == 1 else given.holds)
    state.guards = guards | given.where
    state.surely = then_surely
    falls = _statement(state, then)
    if not falls and _only_one_thread_continues(condition) and not state.accesses:
        state.one_thread = True  # else the others have worked until here
    then_env, then_stored = state.env, state.stored
    after_then, state.surely = state.surely, other_surely
    state.env, state.stored = dict(env), stored
    state.weight = before if not falls else before * given.fails
    state.guards = guards | given.elsewhere
    other_falls = _statement(state, other) if other is not None else True
    state.weight = before
    state.guards = guards if falls == other_falls else guards | (given.where if falls else given.elsewhere)
    if falls and other_falls:  # where both do, all that came here go on, unless some have left in between
        state.surely = surely if (after_then, state.surely) == (then_surely, other_surely) else None
        state.env = _joined(state, then_env, state.env)
        state.stored = state.stored if state.stored == then_stored else None
    elif falls:
        state.env, state.stored = then_env, then_stored
        state.surely = after_then
    return falls or other_falls


def _only_one_thread_continues(node: Node) -> bool:
    """Whether the statement lets one thread of a block continue: `if (threadIdx.x) return`, or
    `if (threadIdx.x != 0) return`, also with `||`."""
    node = without_brackets(node)
    if node.type == "field_expression":
        return text_of(node).startswith("threadIdx.")
    if node.type != "binary_expression":
        return False
    operator, left, right = operator_of(node), child_of(node, "left"), child_of(node, "right")
    if operator == "||":
        return _only_one_thread_continues(left) or _only_one_thread_continues(right)
    return operator in ("!=", ">") and "threadIdx." in text_of(left) + text_of(right)


@dataclass(frozen=True, slots=True)
class _Condition:
    """How often a condition is assumed to hold, 0 to 1, and what is known of the threads for which it does (`where`)
    and does not (`elsewhere`). `holds`, `fails`: how often among these."""

    chance: float
    holds: float
    fails: float
    where: frozenset[Guard] = frozenset()
    elsewhere: frozenset[Guard] = frozenset()
    truth: Truth = UNKNOWN_TRUTH

    @staticmethod
    def of(chance: float, truth: Truth = UNKNOWN_TRUTH) -> _Condition:
        return _Condition(chance, chance, 1 - chance, truth=truth)

    def negated(self) -> _Condition:
        return _Condition(1 - self.chance, self.fails, self.holds, self.elsewhere, self.where, self.truth.negated())

    def and_(self, other: _Condition) -> _Condition:
        chance, truth = self.chance * other.chance, self.truth.and_(other.truth)
        return _Condition(chance, self.holds * other.holds, 1 - chance, self.where | other.where, truth=truth)


def _condition(state: State, node: Node) -> _Condition:
    """The assumptions about a condition; records its loads.

    Ordering comparisons are guards at the edge of a grid, and hold. An index that differs between threads rarely equals
    a given value; a value common to all threads does half the time.
    """
    node = without_brackets(node)
    if node.type == "unary_expression" and text_of(node).startswith("!"):
        return _condition(state, node.named_children[-1]).negated()
    if node.type == "binary_expression":
        operator = operator_of(node)
        if operator in ("&&", "||"):
            left, surely = _condition(state, child_of(node, "left")), state.surely
            state.surely = both(surely, left.truth.then if operator == "&&" else left.truth.otherwise)
            right = _condition(state, child_of(node, "right"))
            state.surely = surely
            return left.and_(right) if operator == "&&" else left.negated().and_(right.negated()).negated()
        left_value, right_value = value_of(state, child_of(node, "left")), value_of(state, child_of(node, "right"))
        needed(state, left_value, right_value)
        if may_wrap(state, node, left_value, right_value):
            return _Condition.of(EVEN_CHANCE)
        truth = compared(operator, left_value, right_value)
        return replace(_compared(operator, left_value, right_value), truth=truth)
    value = value_of(state, node)
    needed(state, value)
    truth = truth_of(state, value)
    if value == ASSUMED:
        return _Condition.of(1.0)
    if isinstance(value, sp.Integer):
        return _Condition.of(float(value != 0), truth)
    nonzero = _compared("!=", value, sp.Integer(0))
    return replace(nonzero if nonzero.elsewhere else _Condition.of(EVEN_CHANCE), truth=truth)


def _compared(operator: str, left: Any, right: Any) -> _Condition:
    settled = _settled(operator, left, right)
    if settled is not None:
        return _Condition.of(float(settled))
    numbers = [v for v in (left, right) if isinstance(v, sp.Expr)]
    apart = left - right if len(numbers) == 2 else None
    if operator in _ABOVE:
        sign, strict = _ABOVE[operator]
        if apart is None:
            return _Condition.of(1.0)
        where, elsewhere = guards_of(sign * apart - strict), guards_of(strict - 1 - sign * apart)
        return _Condition(1.0, 1.0, float(_within_block(elsewhere)), where, elsewhere)
    if operator in ("==", "!="):
        rare = any(varies(v) or any(is_counter(s) for s in v.free_symbols) for v in numbers)
        where = (
            frozenset(g for e in _zeros(apart) for g in (*guards_of(e), *guards_of(-e)))
            if apart is not None
            else frozenset()
        )
        chance = 0.0 if rare else EVEN_CHANCE
        equal = _Condition(chance, 1.0, 1.0, where) if _within_block(where) else _Condition.of(chance)
        return equal if operator == "==" else equal.negated()
    return _Condition.of(EVEN_CHANCE)


def _zeros(value: sp.Expr) -> list[sp.Expr]:
    """The terms that must be 0 for the value to be 0: of a thread's number in its block, its index along each axis."""
    axes = [symbol(f"threadIdx_{a}") for a in "xyz"]
    factors = {i: sp.expand(value).coeff(i, 1) for i in axes}
    whole = all(s.name.startswith("blockDim_") for f in factors.values() for s in f.free_symbols)
    rest = sp.expand(value - sum(i * f for i, f in factors.items()))
    terms = [t for f in factors.values() for t in sp.Add.make_args(f) if f != 0]
    positive = whole and all(t.as_coeff_Mul()[0] > 0 for t in terms)
    return [i for i in axes if factors[i] != 0] if rest == 0 and positive and len(terms) > 1 else [value]


_ABOVE = {
    ">=": (1, 0),
    ">": (1, 1),
    "<=": (-1, 0),
    "<": (-1, 1),
}  # sign of left - right, and the offset that is subtracted


def _within_block(guards: frozenset[Guard]) -> bool:
    """Whether the guards depend on the index of a thread in its block, so that some threads of each block pass."""
    return bool(guards) and all(g.value.free_symbols.isdisjoint(_BLOCKS) for g in guards)


_BLOCKS = {symbol(f"blockIdx_{a}") for a in "xyz"}


_RELATIONS = {"<": sp.Lt, ">": sp.Gt, "<=": sp.Le, ">=": sp.Ge, "==": sp.Eq, "!=": sp.Ne}


def _settled(operator: str, left: Any, right: Any) -> bool | None:
    """The value of a comparison of constants; None otherwise."""
    if operator in _RELATIONS and isinstance(left, sp.Integer) and isinstance(right, sp.Integer):
        return bool(_RELATIONS[operator](left, right))
    return None


def _joined(state: State, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The values on which two paths agree where they meet."""
    return {
        name: one[name] if one[name] == other[name] else joined_value(state, one[name], other[name])
        for name in one.keys() & other.keys()
    }


# ---- loops ----------------------------------------------------------------------------------


def _for(state: State, node: Node) -> None:
    first, body = field_of(node, "initializer"), child_of(node, "body")
    condition, update = field_of(node, "condition"), field_of(node, "update")
    outer = dict(state.env)
    if first is not None and first.type == "declaration":
        _declaration(state, first)
    elif first is not None:
        value_of(state, first)
    try:
        if update is None:
            name, step = _stepped_in(body, condition)
            _counted_loop(state, node, name, (condition, step), {}, body)
        else:
            name = _counter(first, update)
            own, others = _updates(update, condition, name)
            # A counter, bound or step that the body changes does not give the number of iterations.
            _fixed(state, {name, *names_below(update)}, condition, body)
            _counted_loop(state, node, name, (condition, own), others, body)
    except NotUnderstood as error:
        state.notes.append(f"{error.message}: the number of iterations is not known, {GUESSED_TRIPS} are assumed")
        _unknown_loop(state, node, [n for n in (condition, body, update) if n is not None])
    if first is not None and first.type == "declaration":
        _leave(state, declared_names(first), outer)


def _while(state: State, node: Node) -> None:
    """`while (i < n) { ...; i += step; }` is a `for` loop. Of any other one the number of iterations is not known."""
    condition, body = child_of(node, "condition"), child_of(node, "body")
    try:
        inner = condition.named_children[-1]
        name, step = _stepped_in(body, inner)
        _counted_loop(state, node, name, (inner, step), {}, body)
    except NotUnderstood:
        state.notes.append(f"a `while` loop: its number of iterations is not known, {GUESSED_TRIPS} are assumed")
        _unknown_loop(state, node, [condition, body])


def _stepped_in(body: Node, condition: Node | None) -> tuple[str, Node]:
    """The counter of a loop whose body steps it once in each iteration, and the step."""
    steps = _steps_of(body)
    names = [name for name in dict.fromkeys(names_below(condition)) if name in steps]
    if len(names) != 1:
        raise NotUnderstood(f"the step of a loop, `{shown_text(condition)}`, is not understood")
    return names[0], steps[names[0]]


def _steps_of(body: Node) -> dict[str, Node]:
    """Variables that a loop's body steps by a fixed amount, once in each iteration (`p += n;`), with the step; also
    those that it uses and steps only under a condition that, where it holds, has held in all iterations before."""
    if body.type != "compound_statement" or _continues(body):
        return {}
    out = _steps_among(body, body)
    for child in body.named_children:
        then = field_of(child, "consequence") if child.type == "if_statement" else None
        if (
            then is None
            or field_of(child, "alternative") is not None
            or not _falls(child_of(child, "condition"), body, out)
        ):
            continue
        every = list(names_below(body))
        inside = list(names_below(then))
        out |= {n: one for n, one in _steps_among(then, body).items() if every.count(n) == inside.count(n)}
    return out


def _falls(condition: Node, body: Node, steps: Mapping[str, Node]) -> bool:
    """Whether a condition, once it fails, fails in all later iterations: that a variable which they step upwards is
    below what they do not change."""
    at = without_brackets(condition)
    left, right = field_of(at, "left"), field_of(at, "right")
    step = steps.get(text_of(left))
    change = change_of(step) if step is not None else None
    if change is None or operator_of(at) not in ("<", "<="):
        return False
    amount, minus = change.added
    up = not minus and amount.type == "number_literal" if amount is not None else "--" not in text_of(step)
    changed = {*(name for name, _ in assigned_names(body)), *_declared_names(body)}
    return up and not changed & set(names_below(right))


def _steps_among(block: Node, body: Node) -> dict[str, Node]:
    """The statements of a block that step a variable which the body changes nowhere else."""
    changed = [name for name, _ in assigned_names(body)]
    out = {}
    for child in block.named_children:
        one = child.named_children[0] if child.type == "expression_statement" and child.named_children else None
        change = change_of(one) if one is not None and _only_variables(one) else None
        if one is None or change is None or not change.steps or not change.name or changed.count(change.name) != 1:
            continue
        if not set(names_below(change.added[0])) & {*changed, *_declared_names(body), *_declared_names(block)}:
            out[change.name] = one
    return out


def _continues(node: Node) -> bool:
    """Whether an iteration may `continue`: end early, with another one after it."""
    inner = ("for_statement", "while_statement", "do_statement")
    return any(c.type == "continue_statement" or (c.type not in inner and _continues(c)) for c in node.named_children)


def _amounts(step: Node | None) -> set[str]:
    """The names in the amount of a step."""
    change = change_of(step) if step is not None else None
    if change is None:
        return set(names_below(step))
    return set(names_below(change.added[0] if change.steps else change.value))


def _fixed(state: State, names: set[str], condition: Node | None, body: Node) -> None:
    if (names | set(names_below(condition))) & ({n for n, _ in assigned_names(body)} | state.shared):
        raise NotUnderstood(f"`{shown_text(condition)}` changes in its loop")


def _counted_loop(
    state: State, node: Node, name: str, header: tuple[Node | None, Node | None], others: Mapping[str, Node], body: Node
) -> None:
    """A loop over a counter. `header`: its condition and the step of the counter; `others`: the steps of other
    variables. Raises NotUnderstood before anything of the loop is read."""
    condition, own = header
    bounds = {n for n in names_below(condition) if n != name}
    if bounds & ({n for n, _ in assigned_names(body)} | state.shared) or name in state.shared:
        raise NotUnderstood(f"`{shown_text(condition)}` changes in its loop")
    if name in _amounts(own):  # `i += i`
        raise NotUnderstood(f"the step of a loop, `{shown_text(own)}`, changes in it")
    start = as_number(state.env.get(name))
    halvings = _geometric(state, condition, own, name, start)
    step = sp.Integer(1) if halvings is not None else _step(state, own, name)
    trips = _trips(state, condition, name, start, step) if halvings is None else halvings
    trips = sp.Max(trips, 1) if state.signed is not None and node.type == "do_statement" else trips
    exact, trips = trips, _estimated(state, condition, nearby(trips), step)
    certain = trips == exact and not _leaves(body)
    counter = symbol(f"{name if halvings is None else 'loop'}_{len(state.loops)}")
    begins = start if halvings is None else sp.Integer(0)
    along = {n: _moved(state, part, n, (counter - begins) / step) for n, part in others.items()}
    for other, part in _steps_of(body).items():
        fixed = not {name, *others, *state.shared} & set(names_below(part))
        if fixed and other in state.env:
            along[other] = _moved(state, part, other, (counter - begins) / step)
    own_value = counter if halvings is None else new_unknown(state, counter, start)
    loop = CountedLoop(counter, begins, trips, step, node.start_byte, None if trips == exact else exact)
    _inside(state, loop, {name: own_value, **along}, [body], certain=certain)
    for changed in (name, *along):
        value = state.env[changed]
        other_value = replace(value, offset=new_unknown(state)) if isinstance(value, Pointer) else new_unknown(state)
        state.env[changed] = other_value


def _estimated(state: State, condition: Node | None, trips: sp.Expr, step: sp.Expr) -> sp.Expr:
    """The number of iterations; if it depends on loaded values, an estimate for a step of 1, the same for all
    settings."""
    if not any(s.name.startswith(("unknown_", "uniform_")) for s in trips.free_symbols):
        return trips
    state.notes.append(f"`{shown_text(condition)}` depends on loaded values: {GUESSED_TRIPS} iterations are assumed")
    state.guessed = max(state.guessed, 1)
    if step.is_number or not is_known(step) or varies(step):
        return sp.Integer(GUESSED_TRIPS)
    return sp.ceiling(sp.Integer(GUESSED_TRIPS) / step)


def _unknown_loop(state: State, node: Node, parts: list[Node]) -> None:
    state.guessed = 2
    zero, one, guess = map(sp.Integer, (0, 1, GUESSED_TRIPS))
    counter, exact = symbol(f"loop_{len(state.loops)}"), new_unknown(state)
    _inside(state, CountedLoop(counter, zero, guess, one, node.start_byte, exact), {}, parts)


def _leaves(node: Node, *, returns: bool = False) -> bool:
    """Whether a loop's body may end the loop: by a `break` or `return`. `returns`: by the latter."""
    if node.type == "return_statement" or (node.type == "break_statement" and not returns):
        return True
    inner = node.type in ("for_statement", "while_statement", "do_statement")
    return any(_leaves(child, returns=returns or inner) for child in node.named_children)


def _inside(
    state: State, loop: CountedLoop, names: dict[str, sp.Expr], parts: list[Node], *, certain: bool = False
) -> None:
    """Read the parts of a loop (its body, and a condition and an update that are not understood) once for all
    iterations. `certain`: each of them is executed."""
    outer, env, guards, surely = state.loops, dict(state.env), state.guards, state.surely
    state.loops = (*outer, loop)
    start = _changed(state, env, parts) | names
    # The value stored last by an iteration is in a register in the next: the body is read twice, and the second counts.
    kept = list(state.accesses), dict(state.work), list(state.notes), state.barriers, state.one_thread
    sure_work, uses = dict(state.sure_work), {load: list(when) for load, when in state.uses.items()}
    for number in range(2):
        state.env, state.guards, state.surely = dict(start), guards, surely if certain else None
        state.stored = None if number == 0 else _stored_before(state, loop)
        if number:
            state.accesses, state.work, state.notes, state.barriers, state.one_thread = kept
            state.sure_work, state.uses = dict(sure_work), uses
        for part in parts:
            if part.type.endswith(("statement", "clause")) and part.type != "condition_clause":
                _statement(state, part)
            else:
                value_of(state, part)
    needed(state, *(state.env.get(name) for part in parts for name, _ in assigned_names(part)))
    state.loops, state.guards, state.env = outer, guards, _changed(state, env, parts)
    state.surely = None if any(_leaves(part, returns=True) for part in parts) else surely


def _changed(state: State, env: Mapping[str, Any], parts: Iterable[Node]) -> dict[str, Any]:
    """`env`, in which the values that the parts change are unknown."""
    out = dict(env)
    for part in parts:
        for name, bumped in assigned_names(part):
            value = out.get(name)
            if isinstance(value, Pointer):
                out[name] = replace(value, offset=new_unknown(state)) if bumped else _exchanged(state, env, name, parts)
            elif isinstance(value, sp.Expr):
                needed(state, value)
                out[name] = new_unknown(state)
    return out


def _exchanged(state: State, env: Mapping[str, Any], name: str, parts: Iterable[Node]) -> Pointer | UnknownArray:
    """The value of a pointer that a loop assigns. If it is only assigned other pointers of the loop (two buffers that
    are exchanged), it is one of them."""
    own: Pointer = env[name]
    reached, left = {name}, [name]
    while left:
        target = left.pop()
        for value in (v for part in parts for v in _assigned_to(part, target)):
            if value is None:
                return UnknownArray()
            if value not in reached:
                reached.add(value)
                left.append(value)
    pointers = [env[n] for n in reached if n in env]
    if any(not any(True for part in parts for _ in _assigned_to(part, n)) for n in reached if n in env):
        return UnknownArray()  # one that stays
    kinds = {(p.size, p.shared, p.inner) if isinstance(p, Pointer) else None for p in pointers}
    if len(kinds) != 1 or None in kinds or len(pointers) < 2:
        return UnknownArray()
    state.notes.append(f"`{name}` is swapped with other pointers: assumed to keep its address")
    return own if len({p.offset for p in pointers}) == 1 else replace(own, offset=new_unknown(state))


def _assigned_to(node: Node, name: str) -> Iterator[str | None]:
    """The names that are assigned to a variable below a node; None if anything but a name is assigned."""
    for change in changes_below(node):
        if change.name == name:
            named = change.how in ("", "=") and change.value is not None and change.value.type == "identifier"
            yield text_of(change.value) if named else None


def _stored_before(state: State, loop: CountedLoop) -> tuple[str, sp.Expr] | None:
    """The address stored last by an iteration, as the next iteration writes it."""
    if state.stored is None:
        return None
    array, address = state.stored
    return array, sp.expand(address.subs(loop.counter, loop.counter - loop.step))


def _counter(node: Node | None, update: Node) -> str:
    stepped = list(dict.fromkeys(name for name, _ in assigned_names(update)))
    if node is None and len(stepped) == 1:
        return stepped[0]
    if node is not None and node.type == "declaration":
        one, *more = map(_declarator, declarators(node))
        if not more and one.value is not None and not (one.pointers or one.reference or one.sizes):
            return one.name
    elif node is not None and node.type == "assignment_expression" and operator_of(node) == "=":
        left = child_of(node, "left")
        if left.type == "identifier":
            return text_of(left)
    raise NotUnderstood(f"the start of a loop, `{shown_text(node)}`, is not understood")


def _updates(node: Node | None, condition: Node | None, name: str) -> tuple[Node | None, dict[str, Node]]:
    """The part of a loop's update that steps its counter, and the parts that step other variables, by name:
    `++i, p += n`."""
    parts = [node] if node is not None else []
    while any(p.type == "comma_expression" for p in parts):
        parts = [x for p in parts for x in (p.named_children if p.type == "comma_expression" else [p])]
    if len(parts) < 2:
        return node, {}
    own, others = None, {}
    for part in parts:
        names = [n for n, _ in assigned_names(part)]
        if names == [name] and own is None:
            own = part
        elif len(names) == 1 and names[0] != name and names[0] not in others:
            others[names[0]] = part
        else:
            raise NotUnderstood(f"the step of a loop, `{shown_text(node)}`, is not understood")
    moving = {name, *others}
    used = [
        *names_below(condition),
        *_amounts(own),
        *(n for part in others.values() for n in _amounts(part)),
    ]
    if any(n in moving for n in used if n != name) or any(name in names_below(part) for part in others.values()):
        raise NotUnderstood(f"the step of a loop, `{shown_text(node)}`, is not understood")
    return own, others


def _moved(state: State, node: Node, name: str, iterations: sp.Expr) -> Any:
    """The value of a variable after a number of iterations, each of which changes it by the same amount."""
    if not _only_variables(node):
        raise NotUnderstood(f"the step of a loop, `{shown_text(node)}`, is not understood")
    moved, value = _step(state, node, name) * iterations, state.env.get(name)
    if isinstance(value, Pointer):
        return replace(value, offset=value.offset + moved * sp.prod(value.inner))
    return as_number(value) + moved if isinstance(value, sp.Expr) and is_known(value) else new_unknown(state)


_WITHOUT_LOADS = frozenset(
    """assignment_expression update_expression binary_expression parenthesized_expression identifier
    number_literal""".split()
)


def _only_variables(node: Node) -> bool:
    """Whether an expression consists of variables and numbers only, without loads and calls, which may give another
    value the next time."""
    return text_of(node) in BUILT_IN or (node.type in _WITHOUT_LOADS and all(map(_only_variables, node.named_children)))


_SCALED = {"/=": -1, ">>=": -1, "*=": 1, "<<=": 1}
_MOST_SCALED = 64  # a counter has no more bits
_BLOCK_BITS, _SIZE_BITS = 11, 31  # of a block's threads; of a size


def _geometric(state: State, condition: Node | None, update: Node | None, name: str, start: sp.Expr) -> sp.Expr | None:
    """The number of iterations of `for (int d = 16; d > 0; d /= 2)`, if its numbers are the same for all threads."""
    if update is None or update.type != "assignment_expression" or text_of(child_of(update, "left")) != name:
        return None
    operator = operator_of(update)
    if operator not in _SCALED or condition is None or condition.type != "binary_expression":
        return None
    factor, bound = (value_of(state, child_of(n, "right")) for n in (update, condition))
    if text_of(child_of(condition, "left")) != name or not isinstance(factor, sp.Integer):
        return None
    factor = factor if operator in ("/=", "*=") else sp.Integer(2) ** factor
    relation = operator_of(condition)
    if isinstance(start, sp.Integer) and isinstance(bound, sp.Integer):
        return _trips_executed(relation, start, bound, factor, _SCALED[operator])
    return _powers(relation, start, bound, factor, _SCALED[operator])


def _trips_executed(relation: str, start: sp.Integer, bound: sp.Integer, factor: sp.Integer, up: int) -> sp.Expr | None:
    """The number of iterations if all values are numbers, by executing them."""
    value, trips = int(start), 0
    while trips <= _MOST_SCALED and _settled(relation, sp.Integer(value), bound):
        if value < 0 or int(factor) <= 0:  # rounded otherwise in C++
            return None
        value, trips = value * int(factor) if up > 0 else value // int(factor), trips + 1
    return sp.Integer(trips) if trips <= _MOST_SCALED else None


def _powers(relation: str, start: Any, bound: Any, factor: sp.Integer, up: int) -> sp.Expr | None:
    """The number of iterations if it depends on the block or a size: the powers of the factor between the ends, counted
    by comparisons."""
    numbers = (start, bound)
    if factor < 2 or not all(isinstance(v, sp.Expr) and is_known(v) and not varies(v) for v in numbers):
        return None
    if up > 0 and relation in ("<", "<=") and start.is_number and start > 0:
        limit, strict, most = bound, relation == "<", start
    elif up < 0 and relation in (">", ">=") and bound.is_number:
        limit, strict, most = start, relation == ">" and bound != 0, max(bound, sp.Integer(1))
    else:
        return None
    if not limit.free_symbols or indices_of(limit):
        return None
    of_block = all(s.name.startswith("blockDim_") for s in limit.free_symbols)
    powers = [most * factor**k for k in range(_BLOCK_BITS if of_block else _SIZE_BITS)]
    powers = [p for p in powers if not p.is_number or p < 2**_SIZE_BITS]
    tests = [limit > power if strict else limit >= power for power in powers]
    return sum((sp.Piecewise((sp.Integer(1), test), (sp.Integer(0), True)) for test in tests), sp.Integer(0))


def _step(state: State, node: Node | None, name: str) -> sp.Expr:
    change = change_of(node) if node is not None else None
    if change is not None and change.name == name and change.how == "++":
        return sp.Integer(-1 if "--" in text_of(node) else 1)
    added, minus = change.added if change is not None and change.name == name else (None, False)
    if added is not None:
        amount = as_number(value_of(state, added))
        return -amount if minus else amount
    raise NotUnderstood(f"the step of a loop, `{shown_text(node)}`, is not understood")


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _trips(state: State, node: Node | None, name: str, start: sp.Expr, step: sp.Expr) -> sp.Expr:
    if node is None or node.type != "binary_expression":
        raise NotUnderstood(f"the end of a loop, `{shown_text(node)}`, is not understood")
    left, right, operator = child_of(node, "left"), child_of(node, "right"), operator_of(node)
    if text_of(right) == name:
        left, right, operator = right, left, _TURNED.get(operator, operator)
    if text_of(left) != name:
        raise NotUnderstood(f"the end of a loop, `{shown_text(node)}`, is not understood")
    bound = as_number(value_of(state, right))
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
    if operator == "!=" and step in (1, -1):
        return (bound - start) * step
    raise NotUnderstood(f"the end of a loop, `{shown_text(node)}`, is not understood")

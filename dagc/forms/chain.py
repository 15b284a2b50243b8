"""Vertical fusion: calls that follow one another as one launch, in which each thread does all of them.

Calls of one launch may depend on each other where each element of the arrays that connect them is accessed by one
thread alone: its place is the number of the thread plus what all threads and both calls have alike. A thread then finds
what it stored itself, in the order of the text, whatever its guards are. Intermediate arrays are stored as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dagc.cuda.lexer import names_used, words_of
from dagc.cuda.syntax import below, body_of, field_of, inside, text_of
from dagc.forms.affine import NUMBER, accesses_below, coefficient, names_of, number_of, plus, variables_of, without
from dagc.forms.coarsen import changed_parameters
from dagc.forms.fuse import lets_of, refused_together, renamed
from dagc.forms.lanes import numbers_of, unfollowed
from dagc.forms.neighbours import ALONG_X, product_of
from dagc.forms.text import LAMBDA, KernelReading, edited_body, hidden_by_macros, reading_of, unused
from dagc.forms.types import Refusal, Surroundings
from dagc.ir.choice import FORM
from dagc.ir.enums import ElementType, Mode
from dagc.ir.program import Access, CodeText, Formal, Impl, Kernel, KernelOp, Region, Tunable, Value
from dagc.ir.sym import Const, Poly, Sym, Var, equal, free, polynomial, substitute

if TYPE_CHECKING:
    from tree_sitter import Node

Place = tuple[tuple[tuple[Sym, ...], Fraction], ...]  # what is added to the number of a thread: a polynomial

# ---- which kernels ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadElements:
    """`places`: of each array formal the place that all accesses have beside the number of the thread; where it is not
    in, why that is so. `meets`: whether threads meet in the kernel, or share memory."""

    places: tuple[tuple[str, Place], ...]
    whys: tuple[tuple[str, str], ...]
    meets: bool


@lru_cache(maxsize=256)
def elements_of(kernel: Kernel, impl: Impl, around: Surroundings) -> ThreadElements | Refusal:
    """Which arrays each thread accesses at a place of its own; or why the kernel is in no chain."""
    refusal = refused_together(kernel, impl, around)
    if refusal is not None:
        return refusal
    assert impl.launch is not None
    if any(size != Const(1) for sizes in (impl.launch.grid, impl.launch.block) for size in sizes[1:]):
        return Refusal("its threads are not in one row")
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    declared = variables_of(reading.body)
    hidden = hidden_by_macros(reading, ("return", *(f.name for f in kernel.formals), *sorted(declared)))
    if hidden is not None:
        return Refusal(f"a macro contains `{hidden}`")
    changed = [*changed_parameters(reading, kernel, impl), *(f.name for f in kernel.formals if f.name in declared)]
    if changed:
        return Refusal(f"it changes `{changed[0]}`, or declares it again")
    for why, node in unfollowed(reading.body):
        return Refusal(why, reading.line(node))
    return _elements(kernel, impl, around, reading)


def _elements(kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading) -> ThreadElements:
    assert impl.launch is not None
    numbers = numbers_of(kernel, impl, around, reading)
    found: dict[str, set[Place]] = {}
    whys: dict[str, str] = {}
    seen: set[int] = set()
    known = {f.name for f in kernel.formals if f.mode is None} | {t.name for t in (*kernel.tunables, *impl.tunables)}
    known = (known | {name for name, _ in around.constants}) - numbers.changes.keys() - numbers.variables.keys()
    single: dict[str, Sym] = {
        t.name: Const(t.values[0]) for t in (*kernel.tunables, *impl.tunables) if len(t.values) == 1
    }
    block = polynomial(substitute(impl.launch.block[0], single))
    for at in accesses_below(reading.body, numbers.variables):
        pointer = at
        if at.type == "call_expression":
            given = field_of(at, "arguments")
            pointer = given.named_children[0] if given is not None and given.named_children else at
        address = numbers.address(at) if pointer is at else numbers.polynomial(pointer)
        array = numbers.array_of(address)
        named = {text_of(n): n for n in below(pointer) if n.type == "identifier" and text_of(n) in numbers.arrays}
        if not array or address is None or array not in named:
            whys |= {name: f"where `{text_of(at)}` is, is not known" for name in named if name != array}
            continue
        seen.add(named[array].id)
        place = _place(_substituted(without(address, array), single), block, known)
        if place is None or at.type == "call_expression":
            whys[array] = f"`{text_of(at)}` is not at a place of its own thread"
        else:
            found.setdefault(array, set()).add(place)
    for at in below(reading.body):
        name = text_of(at) if at.type == "identifier" else ""
        if name in numbers.arrays and at.id not in seen:
            whys.setdefault(name, f"`{name}` is used in another way than by its elements")
    several = {name: f"threads access several elements of `{name}`" for name, of in found.items() if len(of) > 1}
    whys = {**several, **whys}
    meets = next(reading.together(), None) is not None or reading.first(("__shared__",)) is not None
    meets |= "__shared__" in words_of(reading.text) or impl.launch.shared is not None
    places = tuple((name, next(iter(of))) for name, of in found.items() if name not in whys)
    return ThreadElements(places, tuple(whys.items()), meets)


def _place(index: Poly, block: Poly, known: set[str]) -> Place | None:
    """What an index adds to the number of the thread; None if it is another one."""
    if number_of(coefficient(index, ALONG_X.place)) != 1 or coefficient(index, ALONG_X.block) != product_of(
        {NUMBER: Fraction(1)}, block
    ):
        return None
    rest = without(index, ALONG_X.place, ALONG_X.block)
    return _in_order(rest) if names_of(rest) <= known and _sums(rest) else None


def _in_order(value: Poly) -> Place:
    return tuple(sorted(value.items(), key=repr))


def _sums(value: Poly) -> bool:
    return all(isinstance(atom, Var) for monomial in value for atom in monomial)


# ---- which calls --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainCall:
    """A call, with its kernel and implementation."""

    op: KernelOp
    kernel: Kernel
    impl: Impl

    @property
    def env(self) -> dict[str, Sym]:
        """The values of by-value formals, and of `let`s."""
        pairs = zip(self.kernel.formals, self.op.args, strict=True)
        out = {f.name: a for f, a in pairs if not isinstance(a, Region)}
        return {**out, **{n: substitute(v, out) for n, v in lets_of(self.kernel, self.impl).items()}}

    @property
    def arrays(self) -> list[tuple[Formal, Region]]:
        return [(f, a) for f, a in zip(self.kernel.formals, self.op.args, strict=True) if isinstance(a, Region)]

    def tunables(self) -> dict[str, Tunable]:
        """Its tunables but forms."""
        return {t.name: t for t in (*self.kernel.tunables, *self.impl.tunables) if not t.name.startswith(FORM)}


def same_launch(a: ChainCall, b: ChainCall) -> bool:
    """Whether two calls have the same threads, whatever the values of their tunables; of those that have equal names,
    they can have one value in common."""
    one, other = a.impl.launch, b.impl.launch
    mine, theirs = a.tunables(), b.tunables()
    if one is None or other is None or not all(_common(mine[n], theirs[n]) for n in mine.keys() & theirs.keys()):
        return False
    lets = dict((*a.kernel.lets, *a.impl.lets)), dict((*b.kernel.lets, *b.impl.lets))
    if any(lets[0][n] != lets[1][n] for n in lets[0].keys() & lets[1].keys()):
        return False
    pairs = ((one.grid[0], other.grid[0]), (one.block[0], other.block[0]))
    return all(_equal(substitute(x, a.env), substitute(y, b.env)) for x, y in pairs)


def hidden_by(a: ChainCall, b: ChainCall, around: Surroundings) -> str:
    """Why a name of one call's kernel, in scope of both texts then, hides what the other one means; "" if none does."""
    for one, other in ((a, b), (b, a)):
        reading = reading_of(other.impl, around)
        if isinstance(reading, Refusal):
            return reading.reason
        meant = names_used(text_of(reading.body)) - variables_of(reading.body).keys() - _parameters(other)
        for name in sorted(_parameters(one) & meant):
            return f"`{name}` of `{one.kernel.name}` would hide what `{other.kernel.name}` means by it"
    return ""


def _parameters(call: ChainCall) -> set[str]:
    """The names that a kernel's text has from its declaration."""
    lets = (*call.kernel.lets, *call.impl.lets)
    return {f.name for f in call.kernel.formals} | call.tunables().keys() | {name for name, _ in lets}


def _common(a: Tunable, b: Tunable) -> tuple[Value, ...]:
    """The values that two tunables have in common."""
    return tuple(v for v in a.values if v in b.values)


def _equal(a: Sym, b: Sym) -> bool:
    return a == b or bool(equal(a, b))


def apart(a: ChainCall, b: ChainCall, conflicts: Sequence[tuple[Region, Region]], around: Surroundings) -> str:
    """Why a thread may need, of the regions of two calls that conflict, what another thread of the other call stores or
    loads; "" if each does its own elements."""
    for one, other in conflicts:
        if one != other:
            return f"`{one.text}` and `{other.text}` may overlap"
        places = set()
        for call in (a, b):
            elements = elements_of(call.kernel, call.impl, around)
            if isinstance(elements, Refusal):
                return elements.reason
            if not any(region == one for _, region in call.arrays):
                return f"both use `{one.text}`, which is no argument"
            whys, known = dict(elements.whys), dict(elements.places)
            for formal, region in call.arrays:
                if region == one and formal.name in whys:
                    return whys[formal.name]
                if region == one and formal.name in known:
                    places.add(_in_order(_substituted(dict(known[formal.name]), call.env)))
        if len(places) > 1:
            return f"`{one.text}` is accessed at different places"
    return ""


def _substituted(value: Poly, env: Mapping[str, Sym]) -> Poly:
    total: Poly = {}
    for monomial, number in value.items():
        term: Poly = {NUMBER: number}
        for atom in monomial:
            term = product_of(term, polynomial(substitute(atom, env)))
        total = plus(total, term)
    return total


# ---- the kernel and the op ----------------------------------------------------------------------


def chained_op(calls: Sequence[ChainCall], name: str, base: str, known: str) -> tuple[KernelOp, Kernel]:
    """The op that does calls one after the other in each thread, and the kernel that it calls, `known` by this name."""
    slots = _slots(calls)
    kernel = _kernel(calls, slots, known)
    accesses = tuple(Access(a, s.mode) for (a, _), s in slots.items() if isinstance(a, Region) and s.mode is not None)
    tunables = {t.name for t in kernel.tunables}
    values = {n: v for call in reversed(calls) for n, v in call.op.tunables if n in tunables}
    states = tuple(dict.fromkeys(s for call in calls for s in call.op.states))
    return replace(
        calls[0].op, name=name, base=base, kernel=known, variant="default", tunables=tuple(values.items()),
        args=tuple(argument for argument, _ in slots), accesses=accesses, states=states, pinned=(),
    ), kernel  # fmt: skip


def _kernel(calls: Sequence[ChainCall], slots: Mapping[_Key, _Slot], known: str) -> Kernel:
    first, last = calls[0], calls[-1]
    envs = [
        {f.name: Var(slots[a, f.type].name) for f, a in zip(c.kernel.formals, c.op.args, strict=True)} for c in calls
    ]

    def of(expr: Sym, call: ChainCall) -> Sym:
        """An expression of a call in terms of the fused kernel."""
        return substitute(substitute(expr, lets_of(call.kernel, call.impl)), envs[calls.index(call)])

    formals = []
    for slot in slots.values():
        dims = slot.formal.dims and tuple(None if d is None else of(d, slot.call) for d in slot.formal.dims)
        formals.append(replace(slot.formal, name=slot.name, mode=slot.mode, dims=dims))
    tunables: dict[str, Tunable] = {}
    for tunable in (t for call in calls for t in call.tunables().values()):
        before = tunables.get(tunable.name, tunable)
        tunables[tunable.name] = replace(before, values=_common(before, tunable))
    lets = {n: v for call in calls for n, v in (*call.kernel.lets, *call.impl.lets) if not _of_formals(call, n)}
    requires = ((r, call) for call in calls for r in (*call.kernel.requires, *call.impl.requires))
    forms = [c.impl.forms for c in calls if c.impl.forms is not None]
    launch, code = first.impl.launch, first.impl.code
    assert launch is not None
    assert code is not None
    shared = last.impl.launch.shared if last.impl.launch is not None else None
    impl = replace(
        first.impl, name="default", tunables=(), requires=(), lets=(),
        launch=replace(
            launch, grid=tuple(of(s, first) for s in launch.grid), shared=shared and of(shared, last),
        ),
        code=CodeText(code.lang, _text(calls, envs), span=code.span),
        forms=tuple(n for n in forms[0] if all(n in f for f in forms)) if forms else None,
    )  # fmt: skip
    return replace(
        first.kernel, name=known, formals=tuple(formals), impls=(impl,), tunables=tuple(tunables.values()),
        requires=tuple(dict.fromkeys(of(r, call) for r, call in requires if not _either_form(r))),
        lets=tuple(lets.items()),
    )  # fmt: skip


def _either_form(require: Sym) -> bool:
    """Whether it connects forms, which the fused kernel has of its own."""
    return any(name.startswith(FORM) for name in free(require))


def _of_formals(call: ChainCall, let: str) -> bool:
    return bool(free(lets_of(call.kernel, call.impl)[let]) & {f.name for f in call.kernel.formals})


@dataclass(slots=True)
class _Slot:
    """A formal of the fused kernel: of all formals that have one argument. `call`: the first that has it."""

    name: str
    formal: Formal
    mode: Mode | None
    call: ChainCall


_Key = tuple[Region | Sym, ElementType]


def _slots(calls: Sequence[ChainCall]) -> dict[_Key, _Slot]:
    """The formals, by argument and type. One has a name of the kernels if all formals of this name are that one."""
    out: dict[_Key, _Slot] = {}
    named: dict[str, set[_Key]] = {}
    for call in calls:
        for formal, argument in zip(call.kernel.formals, call.op.args, strict=True):
            key = argument, formal.type
            named.setdefault(formal.name, set()).add(key)
            slot = out.get(key)
            if slot is None:
                out[key] = _Slot("", formal, formal.mode, call)
            elif slot.mode is not formal.mode and slot.mode in (Mode.IN, Mode.ACCUMULATE):
                slot.mode = Mode.INOUT
    taken = {*named, *(w for c in calls for w in words_of((c.impl.code and c.impl.code.text) or ""))}
    used = {n for c in calls for n in c.tunables()}  # those of constants
    used |= {n for c in calls for n, _ in (*c.kernel.lets, *c.impl.lets)}
    taken |= used
    for number, slot in enumerate(out.values()):
        slot.name = slot.formal.name
        if len(named[slot.name]) > 1 or slot.name in used:
            slot.name = unused(f"{slot.name}_{number}", taken)
        used.add(slot.name)
    return out


# ---- its text -----------------------------------------------------------------------------------


def _text(calls: Sequence[ChainCall], envs: Sequence[Mapping[str, Sym]]) -> str:
    lines = [f"// fuse: each thread does {', then '.join(call.kernel.name for call in calls)}."]
    formals = {v.name for env in envs for v in env.values() if isinstance(v, Var)}
    taken = {word for call in calls for word in words_of(call.impl.code.text or "" if call.impl.code else "")} | formals
    declared = set(formals)
    for number, (call, env) in enumerate(zip(calls, envs, strict=True), 1):
        assert call.impl.code is not None
        text = call.impl.code.text or ""
        own = set(variables_of(body_of(text)))
        names = {n: v.name for n, v in env.items() if isinstance(v, Var)}
        names |= {n: unused(f"{n}_{number}", taken) for n in sorted(own & declared)}
        declared |= own
        lines += [f"{{  // {call.kernel.name}", *_body(renamed(text, names), last=call is calls[-1]), "}"]
    return "\n".join(lines)


def _body(text: str, last: bool) -> Iterator[str]:
    """The lines of a kernel's text that another one follows: a guard `if (c) return;` becomes the condition of what
    comes after it; with other `return`s the text is that of a lambda."""
    body = body_of(text)
    returns = [at for at in below(body) if at.type == "return_statement" and not inside(at, (LAMBDA,))]
    guards = [at for at in body.named_children if _is_guard(at)]
    edits, depth, wrapped = list[tuple[int, int, str]](), 0, False
    if not last and returns:
        wrapped = len(guards) < len(returns)
        for at in () if wrapped else guards:
            edits.append((at.start_byte, at.end_byte, f"{_GUARD}if (!{text_of(field_of(at, 'condition'))}) {{"))
    if wrapped:
        yield "  [&] {"
    for line in edited_body(body, edits).split("\n"):
        yield f"{'  ' * (1 + wrapped + depth)}{line.replace(_GUARD, '')}" if line.strip() else ""
        depth += line.count(_GUARD)
    yield from (f"{'  ' * (depth - k)}}}" for k in range(depth))
    if wrapped:
        yield "  }();"


_GUARD = "\0"  # before a guard whose block is closed at the end


def _is_guard(node: Node) -> bool:
    if node.type != "if_statement" or field_of(node, "alternative") is not None:
        return False
    condition = field_of(node, "condition")
    if condition is not None and any(at.type in ("declaration", "init_statement") for at in below(condition)):
        return False  # what it declares would be in parentheses
    then = field_of(node, "consequence")
    inner = [c for c in then.named_children if c.type != "comment"] if then is not None else []
    alone = then is not None and then.type == "return_statement"
    return alone or (len(inner) == 1 and inner[0].type == "return_statement")

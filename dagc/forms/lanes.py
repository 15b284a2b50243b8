"""Threads that do several neighbours of an axis: the reading of a kernel's text, the conditions that a group of them
goes one way, and the text for one neighbour after the other. `wide`, `tile`, `jam` and `unroll` share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from dagc.cuda.lexer import KEYWORDS, is_global, words_of
from dagc.cuda.syntax import below, body_of, field_of, inside, text_of
from dagc.forms.affine import LOOPS, NUMBER, Numbers, changes_of, coefficient, names_of, number_of, plus, variables_of
from dagc.forms.lockstep import LaneNames, place_of
from dagc.forms.neighbours import ALONG_X, AccessSite, Along, Neighbours, NotAlike, Test, bound_of, is_below
from dagc.forms.text import (
    KernelReading,
    NotInKernel,
    edited_body,
    expression,
    factor_of,
    fresh,
    reading_of,
    rounded_up,
)
from dagc.forms.types import Legal, Refusal, Rewrite, Surroundings
from dagc.ir.enums import ElementType
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Apply, Const, Fn, Poly, Sym, Var, is_real, polynomial

if TYPE_CHECKING:
    from tree_sitter import Node

_TYPES = {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}
_QUALIFIERS = {"__shared__": "it uses shared memory", "volatile": "`volatile` accesses stay as they are"}
_LOCAL_TYPES = frozenset(("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"))
_NOT_FOLLOWED = frozenset(("lambda_expression", "goto_statement", "labeled_statement", "try_statement"))
_CALLS = ("atomic", "__stwb", "__stcg", "__stcs", "__stwt")


# ---- reading ------------------------------------------------------------------------------------


def read_plainly(impl: Impl, around: Surroundings) -> KernelReading | Refusal:
    """The text of an implementation as it is, with its pragmas, where it uses no macros."""
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal) or "define" in reading.text:
        return reading
    macros = set(reading.definitions.macros) & set(words_of(reading.text))
    return reading if macros else replace(reading, body=body_of(reading.text))


def numbers_of(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, along: Along = ALONG_X
) -> Numbers:
    """The reader of numbers and addresses of a kernel that is launched."""
    assert impl.launch is not None
    body, functions = reading.body, reading.definitions.functions
    constants = dict(around.constants)
    lets = dict((*kernel.lets, *impl.lets))
    floats = {f.name for f in kernel.formals if f.mode is None and f.type.is_float}
    floats |= {n for n, v in constants.items() if isinstance(v, Const) and not isinstance(v.value, int)}
    floats |= {n for n, v in lets.items() if is_real(v, floats)} | {f.name for f in kernel.features}
    types = {n: type_name(v) for n, v in constants.items() if isinstance(v, ElementType)}
    known = {n: v for n, v in constants.items() if isinstance(v, Const) and type(v.value) is int}
    arrays = {f.name for f in kernel.formals if f.mode is not None} | {s.name for s in impl.scratch}
    sizes = {f"blockDim.{a}": size for a, size in zip("xyz", impl.launch.block, strict=False)}
    if along.single:
        sizes |= {f"threadIdx.{along.letter}": Const(0), f"blockDim.{along.letter}": Const(1)}
    variables = variables_of(body)
    changes = changes_of(body, variables)
    return Numbers(variables, changes, arrays, floats, types, known, sizes, functions, along=along.letter)


def type_name(type_: ElementType) -> str:
    return _TYPES.get(type_, f"{'u' if type_.is_unsigned else ''}int{type_.size * 8}_t")


def alike_of(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, k: int, lanes: int
) -> Neighbours:
    """The reading of a kernel for groups of lanes along the axis `k` of its grid. Raises NotAlike."""
    out = unread(kernel, impl, around, reading, k, lanes)
    _refuse_words(reading, out.numbers)
    _refuse_unknown(reading, out.numbers, kernel, impl, around)
    out.check(reading.body)
    out.walk(reading.body.named_children, ())
    out.classify()
    return out


def unread(kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, k: int, lanes: int) -> Neighbours:
    """The same, which knows places along the axis alone."""
    assert impl.launch is not None
    block = impl.launch.block[k] if k < len(impl.launch.block) else Const(1)
    along = Along("xyz"[k], single=k > 0 and block == Const(1))
    return _neighbours(kernel, impl, around, reading, reading.body, along, polynomial(block), lanes)


def iterations_of(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, body: Node, counter: str, lanes: int
) -> Neighbours:
    """The same for iterations of a loop, with its body and its counter."""
    out = _neighbours(kernel, impl, around, reading, body, Along(counter=counter), {}, lanes)
    _refuse_words(reading, out.numbers)
    _refuse_unknown(reading, out.numbers, kernel, impl, around)
    out.walk([body], ())
    out.classify()
    return out


def _neighbours(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, body: Node, along: Along, block: Poly,
    lanes: int,
) -> Neighbours:  # fmt: skip
    numbers = replace(numbers_of(kernel, impl, around, reading, along), moves=along == ALONG_X)
    unsigned = frozenset(f.name for f in kernel.formals if f.mode is None and f.type.is_unsigned)
    sizes = _sizes(kernel, impl)
    rows = {f.name: polynomial(f.dims[-1]) for f in kernel.formals if f.dims and f.dims[-1] is not None}
    whole = {name: row for name, row in rows.items() if names_of(row) <= {*sizes, *dict(around.constants)}}
    parameters = frozenset(f.name for f in kernel.formals)
    return Neighbours(body, numbers, along, block, lanes, unsigned, whole, sizes, parameters)


def _sizes(kernel: Kernel, impl: Impl) -> frozenset[str]:
    """Names of whole numbers that are the same for all threads: rows are made of them."""
    names = {f.name for f in kernel.formals if f.mode is None and f.type.is_integer}
    return frozenset(names | {t.name for t in (*kernel.tunables, *impl.tunables)})


def unfollowed(body: Node) -> Iterator[tuple[str, Node]]:
    """What changes variables, or where the execution goes, in ways that are not followed, and why."""
    for at in below(body):
        name = text_of(at)
        if at.type in _LOCAL_TYPES:
            yield "types that a kernel declares are not read", at
        elif at.type in _NOT_FOLLOWED:
            fix = ": write its text where it is called" if at.type == "lambda_expression" else ""
            yield f"`{name.splitlines()[0][:40]}` is not read{fix}", at
        elif at.type.startswith("preproc_") and at.type not in ("preproc_call", "preproc_directive", "preproc_arg"):
            yield "it has directives of the preprocessor", at
        elif at.type == "reference_declarator":
            yield f"the reference `{name}` is not read", at
        elif at.type in ("for_range_loop", "structured_binding_declarator"):
            yield f"where `{text_of(field_of(at, 'declarator') or at)}` is declared is not read", at


def _refuse_words(reading: KernelReading, numbers: Numbers) -> None:
    for node in reading.together():
        raise NotAlike(f"threads meet at `{text_of(node)}`", node)
    for why, node in unfollowed(reading.body):
        raise NotAlike(why, node)
    for at in below(reading.body):
        name = text_of(at)
        if at.type == "identifier" and {name, *reading.reached.get(name, ())} & {"__shared__"}:
            raise NotAlike("it uses shared memory", at)
        if at.type == "type_qualifier" and name in _QUALIFIERS:
            raise NotAlike(_QUALIFIERS[name], at)
        hidden = sorted({"threadIdx", "blockIdx", "gridDim"} & set(reading.reached.get(name, ())))
        if at.type == "identifier" and hidden:
            raise NotAlike(f"`{name}` uses `{hidden[0]}`", at)
        if at.type == "call_expression":
            _refuse_call(at, numbers, reading)


def _refuse_unknown(reading: KernelReading, numbers: Numbers, kernel: Kernel, impl: Impl, around: Surroundings) -> None:
    """Names whose declaration is not read, such as that of `for (float v : a)`, may have a value for each neighbour."""
    known = {*numbers.variables, *numbers.arrays, *numbers.floats, *dict(around.constants)}
    known |= {f.name for f in kernel.formals} | {f.name for f in kernel.features}
    known |= {each.name for each in (*kernel.tunables, *impl.tunables)}
    known |= {name for name, _ in (*kernel.lets, *impl.lets)}
    known |= reading.definitions.units.keys() | reading.definitions.variables.keys()
    every = list(below(reading.body))
    qualified = [at for at in every if at.type == "qualified_identifier" and text_of(at).startswith("dagc::")]
    own = {at.id for name in qualified for at in below(name)}
    for at in every:
        name = text_of(at)
        if at.type == "identifier" and not (at.id in own or name in known or name in KEYWORDS or is_global(name)):
            raise NotAlike(f"where `{name}` is declared is not read", at)


def _refuse_call(node: Node, numbers: Numbers, reading: KernelReading) -> None:
    function = field_of(node, "function")
    name = text_of(function)
    if name.startswith(_CALLS) or (function is not None and function.type == "field_expression"):
        raise NotAlike(f"`{name}` is not read", node)
    for callee in reading.definitions.functions.get(name.partition("<")[0].rpartition("::")[2], ()):
        head = text_of(callee.body.parent).partition("{")[0].partition("(")[2]
        if any("&" in parameter and "const" not in parameter for parameter in head.split(",")):
            raise NotAlike(f"`{name}` may change what it is given", node)
    arguments = field_of(node, "arguments")
    for each in arguments.named_children if arguments is not None else ():
        value = numbers.polynomial(each)
        if numbers.array_of(value) and not name.startswith(("__ld", "dagc::")):
            raise NotAlike(f"what `{name}` does with `{text_of(each)}` is not read", node)


def may_be(site: AccessSite, written: set[str], alike: Neighbours) -> bool:
    """Whether a load from a place that is not known may be from one of these arrays."""
    for at in below(site.node):
        name = text_of(at)
        if at.type == "identifier" and name in alike.variables and alike.variables[name].declarator.pointers:
            array = alike.numbers.array_of(alike.numbers.polynomial(at))
            if not array or array in written:
                return True
        if at.type == "identifier" and name in written:
            return True
    return False


def refuse_others(
    alike: Neighbours, stores: Sequence[AccessSite], own: Callable[[Neighbours, Poly, Poly], bool]
) -> None:
    """Raise NotAlike where a lane may access what another one stores. `own`: whether no lane accesses by one place what
    another one stores by the other, in one array."""
    written = {s.array for s in stores}
    for site in alike.sites:
        if site.place is None and may_be(site, written, alike):
            raise NotAlike(f"`{text_of(site.node)}` may be what a neighbour stores", site.node)
        for store in stores:
            if site.place is None or store.place is None or site.array != store.array:
                continue
            if not own(alike, site.place, store.place):
                by = text_of(store.node)
                raise NotAlike(f"`{text_of(site.node)}` may be what a neighbour stores by `{by}`", site.node)


def share_loads(alike: Neighbours) -> bool:
    """Whether lanes load the same elements in a loop."""
    loops = [at for at in below(alike.body) if at.type in LOOPS]
    return any(
        site.load and not alike.varies(site.node) and any(is_below(site.node, loop) for loop in loops)
        for site in alike.sites
    )


def refusal_of(error: NotAlike | NotInKernel, reading: KernelReading | None) -> Refusal:
    """The refusal of a form for an error, with its line in a reading."""
    if isinstance(error, NotInKernel):
        return Refusal(f"the kernel cannot compute `{error.args[0]}` of its launch")
    return Refusal(error.reason, reading.line(error.node) if error.node is not None and reading is not None else None)


# ---- writing ------------------------------------------------------------------------------------


class LanesAsked(Enum):
    """In which lanes of a group a condition holds."""

    ALL = "all"
    ANY = "at least one"


@dataclass(frozen=True, slots=True)
class GroupText:
    """Parts of the text of one kernel for groups of `lanes` along the axis `k` of the grid. `rolled`: loops of
    neighbours that are done one by one stay loops, so that they take no registers from those that are done together."""

    kernel: Kernel
    impl: Impl
    alike: Neighbours
    lanes: int
    k: int
    beside: frozenset[str]  # words that names in the text must not have
    rolled: bool = False

    def fresh(self, name: str) -> str:
        return fresh(name, self.kernel, self.impl, self.beside)

    def block(self) -> str:
        assert self.impl.launch is not None
        return expression(self.impl.launch.block[self.k], self.kernel, self.impl)

    def times_block(self) -> str:
        return "" if self.alike.along.single else f" * {factor_of(self.block())}"

    def types(self) -> dict[str, str]:
        """The C++ types of the elements of arrays."""
        formals = {f.name: type_name(f.type) for f in self.kernel.formals}
        return formals | {s.name: type_name(s.type) for s in self.impl.scratch}

    def needed(self, shift: int) -> list[Test]:
        tests: list[Test] = [*self.alike.tests, *([(self.alike.along.poly,)] if shift else [])]
        return _needed(tests, self.alike, shift)

    def tests(self, first: str, shift: int, reach: LanesAsked = LanesAsked.ALL) -> tuple[str, list[str]]:
        """The condition that a neighbour is beyond the launch as written, "" if such ones do nothing; and the
        conditions that a group goes one way."""
        assert self.impl.launch is not None
        beyond = ""
        if not _ends_itself(self.impl.launch, self.alike, self.k):
            grid = expression(self.impl.launch.grid[self.k], self.kernel, self.impl)
            beyond = f">= (long long){factor_of(grid)}{self.times_block()}"
        texts = [" || ".join(self._at_least(g, first, reach) for g in test) for test in self.needed(shift)]
        texts = [f"({t})" if "||" in t else t for t in texts]
        if beyond:
            last = f" + {self.lanes - 1}" if reach is LanesAsked.ALL else ""
            texts.append(f"{first}{last} < {beyond.removeprefix('>= ')}")
        return beyond, texts

    def is_whole(self) -> bool:
        """Whether loads and stores are under all tests: neighbours that fail one have nothing to do."""
        tests = [g for (g, *_) in self.needed(0) if g != self.alike.along.poly]
        return all(any(g == b or _follows(g, b) for b in s.bounds) for g in tests for s in self.alike.sites)

    def taking_part(self, first: str, shift: int, beyond: str) -> str:
        """The lanes of a group that go one way, as bits; "" if all do where rows begin and end at vectors, or if that
        is not known."""
        v, place = self.lanes, self.alike.along.place
        bits: list[str] = []
        ends: list[int] = []
        for value, *others in self.needed(shift):
            step, number = number_of(coefficient(value, place)), int(value.get(NUMBER, 0))
            if others or step not in (0, 1, -1):
                return ""
            ends += [number - shift if step == 1 else number + shift + 1] if step else []
            in_first = {tuple(Var(first) if a == Var(place) else a for a in m): c for m, c in value.items()}
            text = number_text(in_first).replace(f"(long long){first}", first)
            bits.append(f"dagc::lanes<{v}>({text}, {step})")
        if beyond:
            bits.append(f"dagc::lanes<{v}>({beyond.removeprefix('>= ')} - 1 - {first}, -1)")
        return " & ".join(bits) if any(end % v for end in ends) else ""

    def _at_least(self, value: Poly, first: str, reach: LanesAsked) -> str:
        """The condition that a number is 0 or more in the lanes that are asked for."""
        number = int(value.get(NUMBER, 0))
        if reach is LanesAsked.ALL:
            number += self.alike.worst(value)
        elif reach is LanesAsked.ANY:
            number -= self.alike.worst({m: -c for m, c in value.items()})
        terms = {m: c for m, c in value.items() if m != NUMBER}
        long = any(a.name == self.alike.along.place for m in terms for a in m if isinstance(a, Var)) and len(terms) == 2
        high = [self._term(m, int(c), first, long) for m, c in terms.items() if c > 0]
        low = [self._term(m, -int(c), first, long) for m, c in terms.items() if c < 0]
        if number < 0:
            low += [str(-number - 1)] if number < -1 or not low else []
            return f"{_total(low)} < {_total(high)}"
        high += [str(number)] if number or not high else []
        return f"{_total(low)} <= {_total(high)}"

    def _term(self, monomial: tuple[Sym, ...], number: int, first: str, compared: bool) -> str:
        """`compared`: whether it is alone on its side, and the other side has 64 bits."""
        names = [first if a.name == self.alike.along.place else a.name for a in monomial if isinstance(a, Var)]
        long = {first, *(f.name for f in self.kernel.formals if f.type is ElementType.I64)}
        words = [factor_of(name) for name in names]
        if compared and number == 1 and len(names) == 1:
            long.update(f.name for f in self.kernel.formals if f.type is not ElementType.U64)
        if names[0] not in long:
            words[0] = f"(long long){words[0]}"
        return " * ".join([*([str(number)] if number != 1 else []), *words])

    def plain(
        self, body: Node, names: LaneNames, value: str, shift: int, beyond: str, number: str = "", done: str = ""
    ) -> Iterator[str]:
        """A body as given, for one neighbour after the other. `number`: of them, if not all lanes; `done`: the
        condition that there is nothing to do for one."""
        place, lane = self.fresh("place"), names.lane
        returns = [at for at in below(body) if at.type == "return_statement"]
        wrapped = any(inside(at, (*LOOPS, "switch_statement")) for at in returns)
        plain = edited_body(body, self._edits(body, place, "return" if wrapped else "continue")).split("\n")
        lines = [f"    {line.rstrip()}" for line in plain if line.strip()]
        yield "  #pragma unroll 1"
        yield f"  for (int {lane} = 0; {lane} < {number or self.lanes}; ++{lane}) {{"
        if done:
            yield f"    if ({done}) continue;"
        if shift:
            yield f"    long long {place} = {value};"
            yield f"    if ({place} < 0) {place} += {self.lanes}LL * gridDim.x * {factor_of(self.block())};"
        else:
            yield f"    const long long {place} = {value};"
        if beyond:
            yield f"    if ({place} {beyond}) continue;"
        if wrapped:
            yield "    [&] {"
            yield from (f"  {line}" for line in lines)
            yield "    }();"
        else:
            yield from lines
        yield "  }"

    def _edits(self, node: Node, place: str, leave: str) -> Iterator[tuple[int, int, str]]:
        new = place_of(self.alike, node, place)
        if node.type == "comment":
            new = " "  # it stands in the text of the others
        if new is None and node.type == "return_statement":
            new = f"{leave};"
        if new is not None:
            yield node.start_byte, node.end_byte, new
            return
        if self.rolled and node.type in LOOPS and not self._is_unrolled(node):
            indent = "\n" + " " * node.start_point[1]
            first = node.prev_sibling is None or node.prev_sibling.end_point[0] < node.start_point[0]
            yield node.start_byte, node.start_byte, f"{'' if first else indent}#pragma unroll 1{indent}"
        for child in node.children:
            yield from self._edits(child, place, leave)

    def _is_unrolled(self, loop: Node) -> bool:
        """Whether a loop has a pragma, or uses an array of the thread, which is in registers if it is unrolled."""
        before = loop.prev_named_sibling
        own = {name for name, one in self.alike.variables.items() if one.declarator.sizes}
        return (before is not None and before.type == "preproc_call") or any(text_of(at) in own for at in below(loop))


def number_text(value: Poly) -> str:
    """A number in names of the text, in 64 bits."""
    terms: list[str] = []
    for monomial, factor in sorted(value.items(), key=lambda term: term[1] < 0):
        atoms = [a.name for a in monomial if isinstance(a, Var)]
        first, *names = [*map(factor_of, atoms)] or [""]
        size = [str(abs(factor))] if abs(factor) != 1 or not first else []
        words = [*size, *([f"(long long){first}"] if first else []), *names]
        terms.append(f"{'- ' if factor < 0 else '+ ' if terms else ''}{' * '.join(words)}")
    return " ".join(terms) or "0"


def _total(terms: Sequence[str]) -> str:
    return " + ".join(terms) if terms else "0"


def _needed(tests: Sequence[Test], alike: Neighbours, shift: int) -> list[Test]:
    """The tests without those that follow from others, and without alternatives that contradict others."""
    sure = [t[0] for t in tests if len(t) == 1]
    always: list[Poly] = [] if shift else [alike.along.poly]
    known = [*sure, *always]
    out: list[Test] = []
    for test in dict.fromkeys(tuple(tuple(sorted(g.items(), key=repr)) for g in t) for t in tests):
        alternatives = [dict(g) for g in test]
        if len(alternatives) > 1:
            alternatives = [g for g in alternatives if not any(alike.contradict(g, k) for k in known)]
        if not alternatives:
            raise NotAlike("no group of neighbours goes one way")
        out.append(tuple(alternatives))
    unique = [t for k, t in enumerate(out) if t not in out[:k]]
    single = [*(t[0] for t in unique if len(t) == 1), *always]
    return [t for t in unique if not any(_follows(g, other) for g in t for other in single)]


def _follows(value: Poly, other: Poly) -> bool:
    """Whether a number is 0 or more because another is: it is larger."""
    apart = number_of(plus(value, other, -1))
    return apart is not None and apart > 0


def _ends_itself(launch: Launch, alike: Neighbours, k: int) -> bool:
    """Whether threads beyond those of the launch as written would do nothing: it has the blocks for `top` threads, and
    a thread loads and stores only if its place is less than that, as far as that was read."""
    size = launch.grid[k]
    if isinstance(size, Apply) and size.fn is Fn.COND and Const(0) in size.args[1:]:
        size = size.args[2] if size.args[1] == Const(0) else size.args[1]  # no thread, or this many
    top, bottom = rounded_up(size)
    if top is size and not alike.along.single:
        return False
    before = bound_of(plus(alike.along.poly, polynomial(top), -1), "<", outcome=True)
    return (
        bool(alike.sites)
        and polynomial(bottom) == alike.block
        and all(any(before == bound or _follows(before, bound) for bound in site.bounds) for site in alike.sites)
    )


# ---- the form -----------------------------------------------------------------------------------

Written = Callable[[Kernel, Impl, Surroundings, int], str | Refusal]  # the text for a value of a form, or why not


def legal_by(written: Written, values: tuple[int, ...]) -> Legal:
    """`Form.legal` of a form that has all values where it has the text for the first."""

    def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
        text = written(kernel, impl, around, values[1])
        return text if isinstance(text, Refusal) else values

    return legal


def rewrite_by(written: Written) -> Rewrite:
    """`Form.rewrite` of a form."""

    def rewrite(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
        text = written(kernel, impl, around, value)
        assert impl.code is not None
        assert isinstance(text, str)
        return replace(impl.code, text=text, header=0)

    return rewrite

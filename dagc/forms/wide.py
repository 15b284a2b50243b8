"""Wide accesses: a thread does V neighbours along x, with loads and stores of whole vectors.

Groups of V neighbours that take the same way are executed together (`lockstep`): a thread tests at its beginning that
all comparisons of the place along x have one outcome in its group. Other groups, at the ends of rows, and all where
rows do not begin at vectors, execute the text as written, one neighbour after the other; in the latter case those are a
block apart, so that the threads of a warp access neighbouring elements.

Neighbours are threads of one launch without barriers between them, so the order among them is open in the text as
written too; a kernel that stores what a neighbour loads is refused all the same. Each lane keeps the order of its own
loads and stores, also of arrays that overlap.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagc.cuda.lexer import KEYWORDS, is_global, words_of
from dagc.cuda.syntax import below, body_of, field_of, text_of
from dagc.forms.affine import LOOPS, NUMBER, Numbers, changes_of, coefficient, names_of, number_of, plus, variables_of
from dagc.forms.lockstep import LaneNames, Lockstep, edited, multiples_in, place_of, shown_multiples
from dagc.forms.neighbours import PLACE, AccessSite, Neighbours, NotAlike, Test, X, bound_of, contradict, worst
from dagc.forms.text import KernelReading, NotInKernel, expression, fresh, reading_of
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.enums import ElementType
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Apply, Const, Fn, Poly, Sym, Var, apply, fraction, is_real, polynomial

if TYPE_CHECKING:
    from tree_sitter import Node

_TYPES = {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}
_QUALIFIERS = {"__shared__": "it uses shared memory", "volatile": "`volatile` accesses stay as they are"}
_LOCAL_TYPES = frozenset(("struct_specifier", "class_specifier", "union_specifier", "enum_specifier"))
_CALLS = ("atomic", "__stwb", "__stcg", "__stcs", "__stwt")


# ---- reading ------------------------------------------------------------------------------------


def numbers_of(kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading) -> Numbers:
    """The reader of numbers and addresses of a kernel that is launched."""
    assert impl.launch is not None
    body, functions = reading.body, reading.definitions.functions()
    constants = dict(around.constants)
    lets = dict((*kernel.lets, *impl.lets))
    floats = {f.name for f in kernel.formals if f.mode is None and f.type.is_float}
    floats |= {n for n, v in constants.items() if isinstance(v, Const) and not isinstance(v.value, int)}
    floats |= {n for n, v in lets.items() if is_real(v, floats)} | {f.name for f in kernel.features}
    types = {n: _type_name(v) for n, v in constants.items() if isinstance(v, ElementType)}
    known = {n: v for n, v in constants.items() if isinstance(v, Const) and type(v.value) is int}
    arrays = {f.name for f in kernel.formals if f.mode is not None} | {s.name for s in impl.scratch}
    sizes = {f"blockDim.{a}": size for a, size in zip("xyz", impl.launch.block, strict=False)}
    variables = variables_of(body)
    return Numbers(variables, changes_of(body, variables), arrays, floats, types, known, sizes, functions)


def _type_name(type_: ElementType) -> str:
    return _TYPES.get(type_, f"{'u' if type_.is_unsigned else ''}int{type_.size * 8}_t")


def _alike(kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, lanes: int) -> Neighbours:
    """The reading of a kernel for groups of lanes. Raises NotAlike."""
    assert impl.launch is not None
    numbers = replace(numbers_of(kernel, impl, around, reading), moves=True)
    _refuse_words(reading, numbers)
    _refuse_unknown(
        reading, {*numbers.variables, *numbers.arrays, *numbers.floats, *dict(around.constants)}, kernel, impl
    )
    unsigned = frozenset(f.name for f in kernel.formals if f.mode is None and f.type.is_unsigned)
    sizes = _sizes(kernel, impl)
    rows = {f.name: polynomial(f.dims[-1]) for f in kernel.formals if f.dims and f.dims[-1] is not None}
    whole = {name: row for name, row in rows.items() if names_of(row) <= {*sizes, *dict(around.constants)}}
    parameters = frozenset(f.name for f in kernel.formals)
    out = Neighbours(reading.body, numbers, polynomial(impl.launch.block[0]), lanes, unsigned, whole, sizes, parameters)
    out.check(reading.body)
    out.walk(reading.body.named_children, ())
    out.classify()
    _refuse_stores(out, reading)
    return out


def _sizes(kernel: Kernel, impl: Impl) -> frozenset[str]:
    """Names of whole numbers that are the same for all threads: rows are made of them."""
    names = {f.name for f in kernel.formals if f.mode is None and f.type.is_integer}
    return frozenset(names | {t.name for t in (*kernel.tunables, *impl.tunables)})


def _refuse_words(reading: KernelReading, numbers: Numbers) -> None:
    for node in reading.together():
        raise NotAlike(f"threads meet at `{text_of(node)}`", node)
    for at in below(reading.body):
        name = text_of(at)
        if at.type == "identifier" and {name, *reading.reached.get(name, ())} & {"__shared__"}:
            raise NotAlike("it uses shared memory", at)
        if at.type in _LOCAL_TYPES:
            raise NotAlike("types that a kernel declares are not read", at)
        if at.type in ("lambda_expression", "goto_statement", "labeled_statement", "try_statement"):
            raise NotAlike(f"`{name.splitlines()[0][:40]}` is not read", at)
        if at.type.startswith("preproc_") and at.type not in ("preproc_call", "preproc_directive", "preproc_arg"):
            raise NotAlike("it has directives of the preprocessor", at)
        if at.type == "reference_declarator":
            raise NotAlike(f"the reference `{name}` is not read", at)
        if at.type == "type_qualifier" and name in _QUALIFIERS:
            raise NotAlike(_QUALIFIERS[name], at)
        hidden = sorted({"threadIdx", "blockIdx", "gridDim"} & set(reading.reached.get(name, ())))
        if at.type == "identifier" and hidden:
            raise NotAlike(f"`{name}` uses `{hidden[0]}`", at)
        if at.type == "call_expression":
            _refuse_call(at, numbers, reading)


def _refuse_unknown(reading: KernelReading, known: set[str], kernel: Kernel, impl: Impl) -> None:
    """Names whose declaration is not read, such as that of `for (float v : a)`, may have a value for each neighbour."""
    known |= {f.name for f in kernel.formals} | {f.name for f in kernel.features}
    known |= {each.name for each in (*kernel.tunables, *impl.tunables)}
    known |= {name for name, _ in (*kernel.lets, *impl.lets)}
    known |= reading.definitions.units.keys() | reading.definitions.variables.keys()
    for at in below(reading.body):
        name = text_of(at)
        if at.type == "identifier" and name not in known and name not in KEYWORDS and not is_global(name):
            raise NotAlike(f"where `{name}` is declared is not read", at)


def _refuse_call(node: Node, numbers: Numbers, reading: KernelReading) -> None:
    function = field_of(node, "function")
    name = text_of(function)
    if name.startswith(_CALLS) or (function is not None and function.type == "field_expression"):
        raise NotAlike(f"`{name}` is not read", node)
    for callee in reading.definitions.functions().get(name.partition("<")[0].rpartition("::")[2], ()):
        head = text_of(callee.body.parent).partition("{")[0].partition("(")[2]
        if any("&" in parameter and "const" not in parameter for parameter in head.split(",")):
            raise NotAlike(f"`{name}` may change what it is given", node)
    arguments = field_of(node, "arguments")
    for each in arguments.named_children if arguments is not None else ():
        value = numbers.polynomial(each)
        if numbers.array_of(value) and not name.startswith("__ld"):
            raise NotAlike(f"what `{name}` does with `{text_of(each)}` is not read", node)


def _refuse_stores(alike: Neighbours, reading: KernelReading) -> None:
    """Stores have to be at neighbouring elements, and no lane may load or store what another one stores."""
    stores = [s for s in alike.sites if s.store]
    if not stores:
        raise NotAlike("it stores nothing")
    for site in stores:
        if site.place is None:
            raise NotAlike(f"where `{text_of(site.node)}` is stored is not known", site.node)
        if number_of(coefficient(site.place, X)) != 1:
            raise NotAlike(f"neighbours do not store neighbouring elements by `{text_of(site.node)}`", site.node)
    written = {s.array for s in stores}
    for site in alike.sites:
        if site.place is None and _may_be(site, written, alike):
            raise NotAlike(f"`{text_of(site.node)}` may be what a neighbour stores", site.node)
        for store in stores:
            if site.array == store.array and site.place is not None and not _own(alike, site, store):
                by = text_of(store.node)
                raise NotAlike(f"`{text_of(site.node)}` may be what a neighbour stores by `{by}`", site.node)


def _may_be(site: AccessSite, written: set[str], alike: Neighbours) -> bool:
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


def _own(alike: Neighbours, site: AccessSite, store: AccessSite) -> bool:
    """Whether no lane stores what another one accesses: the places are the same, or V elements apart where rows have a
    multiple of V."""
    assert site.place is not None
    assert store.place is not None
    apart = plus(site.place, store.place, -1)
    number = number_of(apart)
    if number is not None:
        return number == 0 or abs(number) >= alike.lanes
    if coefficient(apart, X) or int(apart.get(NUMBER, 0)) % alike.lanes:
        return False
    return multiples_in(apart, alike) is not None


# ---- writing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """The text of one kernel for groups of `lanes`."""

    kernel: Kernel
    impl: Impl
    alike: Neighbours
    lanes: int
    beside: frozenset[str]  # words that names in the text must not have

    def text(self) -> str:
        names = LaneNames(self._fresh("first"), self._fresh("lane"), self._fresh)
        lockstep = self._lockstep(names)
        body = lockstep.written()
        lanes, block = self.lanes, self._block()
        rows, begin = self._fresh("vectors"), self._fresh("begin")
        aligned = shown_multiples(lockstep.multiples, lanes)
        aligned.append(f"dagc::aligned<{lanes}>({', '.join(lockstep.vectors)})")
        beyond, tests = self._tests(names.first, lockstep.shift)
        before = f" - {lockstep.shift}" if lockstep.shift else ""
        place = f"{rows} ? {names.first} + {names.lane} : {begin} + {names.lane} * {block} + threadIdx.x"
        plain = self._plain(names, place, lockstep.shift, beyond)
        lines = [
            f"// form.wide = {lanes}: this thread does {lanes} neighbours along x, together where all go one way.",
            f"const bool {rows} = {' && '.join(aligned)};",
            f"const long long {begin} = {lanes} * static_cast<long long>(blockIdx.x) * {block};",
            f"const long long {names.first} = {begin} + {lanes} * threadIdx.x{before};",
            f"if ({' && '.join([rows, *tests])}) {{",
            *body,
            "} else {  // one after the other",
            *plain,
            "}",
        ]
        return "\n".join(lines)

    def _lockstep(self, names: LaneNames) -> Lockstep:
        """The text of groups that go one way, with the shift that makes the first store a vector."""
        nodes = self.alike.body.named_children
        shifts = [int((s.place or {}).get(NUMBER, 0)) % self.lanes for s in self.alike.sites if s.store]
        types = {f.name: _type_name(f.type) for f in self.kernel.formals}
        types |= {s.name: _type_name(s.type) for s in self.impl.scratch}
        out = Lockstep(self.alike, self.lanes, names, types, shifts[0])
        out.block(nodes, "  ")
        if not out.vectors:
            raise NotAlike("no load or store is of a row that begins at a vector")
        return out

    def _fresh(self, name: str) -> str:
        return fresh(name, self.kernel, self.impl, self.beside)

    def _block(self) -> str:
        assert self.impl.launch is not None
        return expression(self.impl.launch.block[0], self.kernel, self.impl)

    def _tests(self, first: str, shift: int) -> tuple[str, list[str]]:
        """The condition that a neighbour is beyond the launch as written, "" if such ones do nothing; and the
        conditions that a group goes one way."""
        assert self.impl.launch is not None
        beyond = ""
        if not _ends_itself(self.impl.launch, self.alike):
            grid = expression(self.impl.launch.grid[0], self.kernel, self.impl)
            beyond = f">= static_cast<long long>({grid}) * {self._block()}"
        tests: list[Test] = [*self.alike.tests, *([(PLACE,)] if shift else [])]
        texts = [" || ".join(self._at_least(g, first) for g in test) for test in _needed(tests, self.lanes, shift)]
        texts = [f"({t})" if "||" in t else t for t in texts]
        if beyond:
            texts.append(f"{first} + {self.lanes - 1} < {beyond.removeprefix('>= ')}")
        return beyond, texts

    def _at_least(self, value: Poly, first: str) -> str:
        """The condition that a number is 0 or more in all lanes."""
        number = int(value.get(NUMBER, 0)) + worst(value, self.lanes)
        terms = {m: c for m, c in value.items() if m != NUMBER}
        high = [self._term(m, int(c), first) for m, c in terms.items() if c > 0]
        low = [self._term(m, -int(c), first) for m, c in terms.items() if c < 0]
        if number < 0:
            low += [str(-number - 1)] if number < -1 or not low else []
            return f"{_total(low)} < {_total(high)}"
        high += [str(number)] if number or not high else []
        return f"{_total(low)} <= {_total(high)}"

    def _term(self, monomial: tuple[Sym, ...], number: int, first: str) -> str:
        names = [first if a.name == X else a.name for a in monomial if isinstance(a, Var)]
        long = {first, *(f.name for f in self.kernel.formals if f.type is ElementType.I64)}
        words = [name if name.isidentifier() else f"({name})" for name in names]
        if names[0] not in long:
            words[0] = f"static_cast<long long>({names[0]})"
        return " * ".join([*([str(number)] if number != 1 else []), *words])

    def _plain(self, names: LaneNames, value: str, shift: int, beyond: str) -> Iterator[str]:
        """The text as written, for one neighbour after the other."""
        place, lane, body = self._fresh("place"), names.lane, self.alike.body
        returns = [at for at in below(body) if at.type == "return_statement"]
        wrapped = any(_inside(at, (*LOOPS, "switch_statement")) for at in returns)
        edits = list(self._edits(body, place, "return" if wrapped else "continue"))
        text = edited(body.text or b"", body.start_byte, body.start_byte + 1, body.end_byte - 1, edits)
        plain = textwrap.dedent(text.strip("\n")).rstrip().split("\n")
        lines = [f"    {line}" if line.strip() else "" for line in plain]
        yield "  #pragma unroll 1"
        yield f"  for (int {lane} = 0; {lane} < {self.lanes}; ++{lane}) {{"
        if shift:
            yield f"    long long {place} = {value};"
            yield f"    if ({place} < 0) {place} += static_cast<long long>(gridDim.x) * {self._block()} * {self.lanes};"
        else:
            yield f"    const long long {place} = {value};"
        if beyond:
            yield f"    if ({place} {beyond}) continue;"
        if wrapped:
            yield "    [&] {"
            yield from (f"  {line}" if line else "" for line in lines)
            yield "    }();"
        else:
            yield from lines
        yield "  }"

    def _edits(self, node: Node, place: str, leave: str) -> Iterator[tuple[int, int, str]]:
        new = place_of(self.alike, node, place)
        if new is None and node.type == "return_statement":
            new = f"{leave};"
        if new is not None:
            yield node.start_byte, node.end_byte, new
            return
        for child in node.children:
            yield from self._edits(child, place, leave)


def _total(terms: Sequence[str]) -> str:
    return " + ".join(terms) if terms else "0"


def _inside(node: Node, types: Sequence[str]) -> bool:
    at = node.parent
    while at is not None and at.type not in types:
        at = at.parent
    return at is not None


def _needed(tests: Sequence[Test], lanes: int, shift: int) -> list[Test]:
    """The tests without those that follow from others, and without alternatives that contradict others."""
    sure = [t[0] for t in tests if len(t) == 1]
    always: list[Poly] = [] if shift else [PLACE]
    known = [*sure, *always]
    out: list[Test] = []
    for test in dict.fromkeys(tuple(tuple(sorted(g.items(), key=repr)) for g in t) for t in tests):
        alternatives = [dict(g) for g in test]
        if len(alternatives) > 1:
            alternatives = [g for g in alternatives if not any(contradict(g, k, lanes) for k in known)]
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


def _ends_itself(launch: Launch, alike: Neighbours) -> bool:
    """Whether threads beyond those of the launch as written would do nothing: it has the blocks for `top` threads, and
    a thread loads and stores only if its place is less than that."""
    size = launch.grid[0]
    if isinstance(size, Apply) and size.fn is Fn.COND and Const(0) in size.args[1:]:
        size = size.args[2] if size.args[1] == Const(0) else size.args[1]  # no thread, or this many
    if not (isinstance(size, Apply) and size.fn is Fn.CEIL):
        return False
    top, bottom = fraction(size.args[0])
    before = bound_of(plus(PLACE, polynomial(top), -1), "<", outcome=True)
    return polynomial(bottom) == alike.block and all(
        any(before == bound or _follows(before, bound) for bound in site.bounds) for site in alike.sites
    )


# ---- the form -----------------------------------------------------------------------------------


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    written = {lanes: _written(kernel, impl, around, lanes) for lanes in VALUES[1:]}
    good = [lanes for lanes, text in written.items() if isinstance(text, str)]
    return (AS_WRITTEN, *good) if good else next(r for r in written.values() if isinstance(r, Refusal))


def _written(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    try:
        if "define" not in reading.text and not set(reading.definitions.macros) & set(words_of(reading.text)):
            reading = replace(reading, body=body_of(reading.text))  # which keeps the text as it is, with its pragmas
        alike = _alike(kernel, impl, around, reading, lanes)
        return _Writer(kernel, impl, alike, lanes, reading.beside).text()
    except NotAlike as error:
        return Refusal(error.reason, reading.line(error.node) if error.node is not None else None)
    except NotInKernel as error:
        return Refusal(f"the kernel cannot compute `{error.args[0]}` of its launch")


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> CodeText:
    text = _written(kernel, impl, around, lanes)
    assert impl.code is not None
    assert isinstance(text, str)
    return replace(impl.code, text=text, header=0)


def launch(written: Launch, lanes: Sym) -> Launch:
    size = written.grid[0]
    rounded = isinstance(size, Apply) and size.fn is Fn.CEIL
    top, bottom = fraction(size.args[0]) if isinstance(size, Apply) and rounded else (size, Const(1))
    first = apply(Fn.CEIL, apply(Fn.DIV, top, apply(Fn.MUL, bottom, lanes)))
    return replace(written, grid=(first, *written.grid[1:]))


VALUES = (AS_WRITTEN, 2, 4)
WIDE = Form(
    "wide", "a thread does 2 or 4 neighbours along x, with vectors", VALUES, legal, rewritten, launch,
    include="dagc/wide.hpp",
)  # fmt: skip

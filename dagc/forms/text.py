"""What forms ask of a kernel's text, and how they write into it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING

from dagc.cuda.lexer import KEYWORDS, is_global, names_in, words_of
from dagc.cuda.races import waits_for_threads
from dagc.cuda.state import Definitions, definitions_of
from dagc.cuda.syntax import below, declared_names, deeper_than, field_of, inside, text_of
from dagc.forms.types import Refusal, Surroundings
from dagc.ir.enums import ElementType
from dagc.ir.program import Impl, Kernel, Launch
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply, fraction, free, infix, substitute

if TYPE_CHECKING:
    from tree_sitter import Node

# ---- the text of a kernel -----------------------------------------------------------------------

_GRID_GROUPS = frozenset("this_grid grid_group this_cluster cluster_group multi_grid_group this_multi_grid".split())
_NOT_READ = {
    "asm": "inline PTX is not read",
    "__asm__": "inline PTX is not read",
    "__activemask": "`__activemask` depends on the threads that run together",
    "this_thread_block": "groups of threads are not read",
    "tiled_partition": "groups of threads are not read",
    "coalesced_threads": "groups of threads are not read",
    **dict.fromkeys(_GRID_GROUPS, "it synchronises blocks"),
    **dict.fromkeys(("cub", "cuda", "thrust"), "classes of this library are not read"),
}
# What all threads of a block, or of a warp, have to reach together.
_TOGETHER = ("__syncthreads", "__syncwarp", "__shfl", "__ballot", "__any", "__all", "__match", "__reduce", "__barrier")
_DEEPEST = 200  # levels of a body's tree: what reads and writes forms calls itself, by up to three calls a level


@dataclass(frozen=True, slots=True)
class KernelReading:
    """The text of a kernel with its macros expanded, and what it names.

    body     its tree; each line has the number that it has in the text, after one more
    reached  the words of the functions, types and variables that a name of the body leads to, by that name
    """

    text: str
    body: Node
    definitions: Definitions
    reached: dict[str, frozenset[str]]

    def line(self, node: Node) -> int:
        return max(0, int(node.start_point[0]) - 1)

    def names(self) -> Iterator[Node]:
        """The identifiers of the body, in the order of the text."""
        return (at for at in below(self.body) if at.type in ("identifier", "type_identifier", "namespace_identifier"))

    @property
    def beside(self) -> frozenset[str]:
        """The words of all that the text leads to, and the names of all macros."""
        return frozenset(self.definitions.macros).union(*self.reached.values())

    def first(self, words: Collection[str]) -> tuple[str, int] | None:
        """The first of the words that the body names or leads to, and the line."""
        for node in self.names():
            name = text_of(node)
            found = sorted({name, *self.reached.get(name, ())} & set(words))
            if found:
                return found[0], self.line(node)
        return None

    def together(self) -> Iterator[Node]:
        """The calls that all threads of a block or of a warp must reach together."""
        for node in self.names():
            name = text_of(node)
            if any(word.startswith(_TOGETHER) for word in (name, *self.reached.get(name, ()))):
                yield node


def reading_of(impl: Impl, around: Surroundings) -> KernelReading | Refusal:
    """The text of an implementation, or why a form cannot be sure of what it does."""
    text = impl.code.text if impl.code is not None else None
    return _reading(text, around) if text is not None else Refusal("its code is a function of a file")


@lru_cache(maxsize=64)
def _reading(text: str, around: Surroundings) -> KernelReading | Refusal:
    definitions = definitions_of(around.texts)
    body = definitions.block(text)
    if body.has_error or body.type != "compound_statement":
        wrong = next((at for at in below(body) if at.is_error), None)
        line = max(0, int(wrong.start_point[0]) - 1) if wrong is not None else None
        return Refusal("the kernel's text does not parse as CUDA C++", line)
    deep = deeper_than(body, _DEEPEST)
    if deep is not None:
        return Refusal("nested too deeply", max(0, int(deep.start_point[0]) - 1))
    reached = {name: definitions.words_reached(name) for name in words_of(text)}
    out = KernelReading(text, body, definitions, reached)
    return _unreadable(out, around) or out


def _unreadable(reading: KernelReading, around: Surroundings) -> Refusal | None:
    found = reading.first(_NOT_READ)
    for node in below(reading.body):
        if node.type == "gnu_asm_expression":
            return Refusal(_NOT_READ["asm"], reading.line(node))
    if found is not None:
        return Refusal(f"{_NOT_READ[found[0]]} (`{found[0]}`)", found[1])
    if waits_for_threads(reading.body, reading.definitions.functions):
        return Refusal("a loop waits for another thread")
    return _unknown_call(reading, around)


def _unknown_call(reading: KernelReading, around: Surroundings) -> Refusal | None:
    """The first call of a function whose definition is not at hand."""
    local = {name for at in below(reading.body) if at.type == "declaration" for name in declared_names(at)}
    known = local | reading.definitions.units.keys() | {n for n, v in around.constants if isinstance(v, ElementType)}
    for node in below(reading.body):
        if node.type != "call_expression":
            continue
        written = text_of(field_of(node, "function")).partition("<")[0]
        space, _, name = written.rpartition("::")
        if space not in ("", "std", "dagc") or not name.isidentifier():
            if not space and field_of(node, "function") is not None and "." in written:
                continue  # a member: its class is at hand, or the variable could not be declared
            return Refusal(f"`{written}` is called, whose definition is not at hand", reading.line(node))
        if space != "dagc" and name not in known and name not in KEYWORDS and not is_global(name):
            return Refusal(f"`{name}` is called, whose definition is not at hand", reading.line(node))
    return None


def hidden_by_macros(reading: KernelReading, words: Collection[str]) -> str | None:
    """A word that the body has more often after its macros are expanded, so that replacing it in the text is not
    enough."""
    plain = [name.text for name in names_in(reading.text)]
    full = [name.text for name in names_in(text_of(reading.body))]
    return next((word for word in words if full.count(word) != plain.count(word)), None)


PLACES = ("blockIdx", "gridDim")
LAMBDA, CLASS = "lambda_expression", "field_declaration_list"


def moved_refused(reading: KernelReading, others: Collection[str] = ()) -> Refusal | None:
    """Why other words cannot replace the block of a thread, and the size of the grid, in the text; nor `others`."""
    hidden = hidden_by_macros(reading, (*PLACES, *others))
    if hidden is not None:
        return Refusal(f"a macro contains `{hidden}`")
    for name in reading.names():
        place = next((w for w in PLACES if w in reading.reached.get(text_of(name), ())), None)
        if place is not None:
            return Refusal(f"`{text_of(name)}` uses `{place}`", reading.line(name))
        if text_of(name) in PLACES and not _is_member(name):
            return Refusal(f"`{text_of(name)}` is used as a whole", reading.line(name))
        if text_of(name) in PLACES and not _captured(name):
            within = "a class" if inside(name, (CLASS,)) else "a lambda that names what it captures"
            return Refusal(f"`{text_of(name)}` is used in {within}", reading.line(name))
    return None


def _captured(name: Node) -> bool:
    """Whether the lambdas around a name capture what they use without naming it, and no class is around it."""
    at = name.parent
    while at is not None:
        if at.type == CLASS:
            return False
        if at.type == LAMBDA and text_of(field_of(at, "captures")).replace(" ", "")[1:2] not in ("&", "="):
            return False
        at = at.parent
    return True


def _is_member(name: Node) -> bool:
    """Whether only a member of a variable is used: `blockIdx.x`."""
    above = name.parent
    return above is not None and above.type == "field_expression" and above.child_by_field_name("argument") == name


def places(text: str, nodes: Sequence[Node]) -> list[tuple[int, int]] | None:
    """Where nodes of a reading are in its text, in bytes; None if the lines there are not those of the tree, in which
    macros are expanded, but for directives."""
    source = text.encode().split(b"\n")  # the lines of the tree after its first
    begins = list(accumulate((len(line) + 1 for line in source), initial=0))
    out = []
    for node in nodes:
        (row, column), (last, end) = node.start_point, node.end_point
        for k, line in enumerate((node.text or b"").split(b"\n")):
            written = source[row - 1 + k]
            begun = written[column if k == 0 else 0 : end if row + k == last else None]
            if line != begun and (line or not written.lstrip().startswith(b"#")):
                return None
        out.append((begins[row - 1] + column, begins[last - 1] + end))
    return out


# ---- writing ------------------------------------------------------------------------------------


def fresh(name: str, kernel: Kernel, impl: Impl, beside: Collection[str] = ()) -> str:
    """A name that nothing in a kernel has yet, nor anything `beside` it that its text leads to."""
    return unused(name, {*beside, *names_in_kernel(kernel, impl)})


def names_in_kernel(kernel: Kernel, impl: Impl) -> set[str]:
    """The names that a kernel declares or its text has."""
    out = {*words_of((impl.code.text if impl.code is not None else None) or "")}
    out |= {f.name for f in kernel.formals} | {s.name for s in impl.scratch}
    return out | {t.name for t in (*kernel.tunables, *impl.tunables)} | {n for n, _ in (*kernel.lets, *impl.lets)}


def unused(name: str, taken: set[str]) -> str:
    """A name like this that is not taken; from then on it is."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def edited(source: bytes, origin: int, begin: int, end: int, edits: Iterable[tuple[int, int, str]]) -> str:
    """The bytes `begin` to `end` of a source that begins at `origin`, with other texts from `start` to `stop`; of edits
    that overlap, the first."""
    out, done = [], begin
    for start, stop, new in edits:
        if done <= start and stop <= end:
            out += [source[done - origin : start - origin], new.encode()]
            done = stop
    return b"".join([*out, source[done - origin : end - origin]]).decode()


def edited_body(body: Node, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text between the braces of a body, with other texts in places, from the first column."""
    text = edited(body.text or b"", body.start_byte, body.start_byte + 1, body.end_byte - 1, edits)
    return textwrap.dedent(text.strip("\n")).rstrip()


def blank(text: str) -> int:
    """The number of lines before the first that is not blank."""
    lines = text.split("\n")
    return next((i for i, line in enumerate(lines) if line.strip()), 0)


def product_of(sizes: Iterable[Sym]) -> Sym:
    out: Sym = Const(1)
    for size in sizes:
        out = apply(Fn.MUL, out, size)
    return out


def rounded_up(size: Sym) -> tuple[Sym, Sym]:
    """The numbers whose quotient is rounded up to a size of a grid: itself and 1 if it is not such a quotient."""
    if isinstance(size, Apply) and size.fn is Fn.CEIL:
        return fraction(size.args[0])
    return size, Const(1)


def joined(written: Launch, axis: int, number: Sym) -> Launch:
    """The launch in which `number` neighbours along an axis of the grid, threads or blocks, are one."""
    top, bottom = rounded_up(written.grid[axis])
    size = apply(Fn.CEIL, apply(Fn.DIV, top, apply(Fn.MUL, bottom, number)))
    return replace(written, grid=(*written.grid[:axis], size, *written.grid[axis + 1 :]))


def longer(written: Launch, axis: int, number: Sym) -> Launch:
    """The launch with blocks for `number` more threads along an axis."""
    if number == Const(0):
        return written
    top, bottom = rounded_up(written.grid[axis])
    size = apply(Fn.CEIL, apply(Fn.DIV, apply(Fn.ADD, top, number), bottom))
    return replace(written, grid=(*written.grid[:axis], size, *written.grid[axis + 1 :]))


def threads_of(launch: Launch) -> Sym:
    """The threads of a launch, without those of blocks that are filled up."""
    out: Sym = Const(1)
    for number, size in zip_longest(launch.grid, launch.block, fillvalue=Const(1)):
        top, bottom = rounded_up(number)
        out = apply(Fn.MUL, out, top if bottom == size else apply(Fn.MUL, number, size))
    return out


class NotInKernel(Exception):
    """An expression of a launch that a kernel cannot compute; `.args[0]` is the part."""


def expression(expr: Sym, kernel: Kernel, impl: Impl) -> str:
    """A whole number of a launch as C++ in the kernel: signed, and in 64 bits where sums and products may need them.
    Quotients are of numbers that are not negative. Raises NotInKernel."""
    for name, value in reversed((*kernel.lets, *impl.lets)):
        expr = substitute(expr, {name: value})
    computed = {f.name for f in kernel.features} | {f.name for f in kernel.formals if f.type.is_float or f.mode}
    for name in sorted(free(expr)):
        if name in computed or not name.isidentifier():
            raise NotInKernel(name)
    return _text(expr, {f.name: f.type for f in kernel.formals})


_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*"}
_WORDS = {
    Fn.MOD: "{} % {}", Fn.EQ: "{} == {}", Fn.GE: "{} >= {}", Fn.AND: "{} && {}", Fn.OR: "{} || {}",
    Fn.COND: "{} ? {} : {}",
}  # fmt: skip


def _text(expr: Sym, types: Mapping[str, ElementType], outer: int = 0) -> str:
    """`outer`: as in `dagc.ir.sym.infix`."""
    if isinstance(expr, Const) and type(expr.value) is int:
        return str(expr.value)
    if isinstance(expr, Var):
        return _wide(expr.name) if types.get(expr.name) is ElementType.U64 else expr.name
    if isinstance(expr, Apply) and expr.fn in _INFIX:
        wide = any(types.get(name) in (ElementType.I64, ElementType.U64) for name in free(expr))

        def operand(part: Sym, level: int) -> str:
            return _text(part, types, level) if wide or part is not expr.args[0] else _wide(_text(part, types))

        return infix(expr, _INFIX[expr.fn], operand, outer)
    if isinstance(expr, Apply) and expr.fn in (Fn.CEIL, Fn.FLOOR):
        top, bottom = fraction(expr.args[0])
        if bottom == Const(1):
            return _text(top, types, outer)
        if expr.fn is Fn.CEIL:
            top = apply(Fn.SUB, apply(Fn.ADD, top, bottom), Const(1))
        return infix(Apply(Fn.DIV, (top, bottom)), "/", lambda part, level: _text(part, types, level), outer)
    if isinstance(expr, Apply) and expr.fn in _WORDS:
        return f"({_WORDS[expr.fn].format(*(_text(part, types, 100) for part in expr.args))})"
    raise NotInKernel(expr.fn.value if isinstance(expr, Apply) else str(getattr(expr, "value", expr)))


def _wide(text: str) -> str:
    """In 64 bits."""
    return f"(long long){factor_of(text)}"


def factor_of(text: str) -> str:
    """The text of a number as a factor of a product."""
    return text if re.fullmatch(r"[\w.]+", text) else f"({text})"

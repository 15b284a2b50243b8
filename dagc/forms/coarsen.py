"""Coarsening: a block does the work of several blocks of the launch, one after the other.

The body of the kernel becomes that of a loop over *parts*, blocks of the grid as written, in which `blockIdx` of one
axis is the number of the part. So guards, `return`s and loops keep their meaning, and shared memory is used by one part
after the other. Blocks of a launch run in any order, hence also one after the other in one block; a kernel that waits
for another block is refused.

Four forms differ in which blocks those are: neighbours along the slowest axis (`coarsen`); neighbours along x where
another axis is the slowest (`columns`, by which a thread does columns that are a block apart); blocks along the slowest
axis that are a grid apart (`strided`), or all of these that do not fit on the GPU at a time (`persist`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from dagc.cuda.lexer import names_in, words_of
from dagc.cuda.syntax import (
    Declarator,
    below,
    changes_below,
    declarators,
    declared_names,
    field_of,
    inside,
    names_below,
    text_of,
)
from dagc.forms.text import (
    CLASS,
    LAMBDA,
    PLACES,
    KernelReading,
    NotInKernel,
    blank,
    expression,
    fresh,
    joined,
    moved_refused,
    places,
    product_of,
    reading_of,
)
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply, fraction

if TYPE_CHECKING:
    from tree_sitter import Node

AXES = "xyz"
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_OWN = (LAMBDA, CLASS)  # whose `return`s are their own
_MEMBER = re.compile(r"\s*\.\s*([xyz])\b")


# ---- which blocks -------------------------------------------------------------------------------


def slowest(launch: Launch) -> int | None:
    """The slowest axis of the grid with more than one block; None if there is none."""
    return next((k for k in reversed(range(len(launch.grid))) if launch.grid[k] != Const(1)), None)


def not_slowest_x(launch: Launch) -> int | None:
    """x, where it is not the slowest axis; else None."""
    return 0 if launch.grid[0] != Const(1) and slowest(launch) != 0 else None


class _Order(Enum):
    """The blocks that a block does, and what the text says of them."""

    NEXT = "this block does {parts} neighbours along {letter}, one after the other"
    APART = "this block does {parts} blocks along {letter} that are a grid apart, one after the other"
    REST = "at most {parts} blocks a multiprocessor do all along {letter}, a grid apart, one after the other"

    def loop(self, parts: int, letter: str, names: tuple[str, str, str]) -> tuple[str, str, str]:
        """How the loop over them begins, the number of the block where that does not say it, and the condition that it
        is not the first. `names`: of the loop's variable, the block and the size of the grid."""
        part, block, blocks = names
        if self is _Order.REST:
            first, grid = f"blockIdx.{letter}", f"gridDim.{letter}"
            return (
                f"for (unsigned {block} = {first}; {block} < {blocks}; {block} += {grid}) {{",
                "",
                f"{block} > {first}",
            )
        place = f"{parts} * blockIdx.{letter} + {part}"
        place = place if self is _Order.NEXT else f"blockIdx.{letter} + {part} * gridDim.{letter}"
        return f"for (unsigned {part} = 0; {part} < {parts}; ++{part}) {{", place, f"{part} > 0"


# ---- legality -----------------------------------------------------------------------------------


def _refused(reading: KernelReading) -> Refusal | None:
    refused = moved_refused(reading, ("return",))
    if refused is not None:
        return refused
    meeting = list(reading.together())
    leaving = next((at for at in _returns(reading.body) if not inside(at, _OWN)), None)
    if meeting and leaving is not None and leaving.start_byte < meeting[-1].start_byte:
        return Refusal(
            f"a thread may return before the `{text_of(meeting[-1])}` of line {reading.line(meeting[-1]) + 1} of the"
            " text, which the other threads of its block would reach without it",
            reading.line(leaving),
        )
    return None


def _returns(body: Node) -> Iterator[Node]:
    """All `return`s, in the order of the text."""
    return (at for at in below(body) if at.type == "return_statement")


# ---- rewriting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Joining:
    """A form of this kind. `axis`: along which blocks are joined, and why a launch without it is refused."""

    name: str
    order: _Order
    axis: Callable[[Launch], int | None]
    otherwise: str

    def legal(self, kernel: Kernel, impl: Impl, around: Surroundings) -> Refusal | None:
        reading = reading_of(impl, around)
        if isinstance(reading, Refusal):
            return reading
        axis = self.axis(impl.launch) if impl.launch is not None else None
        if impl.launch is None or axis is None:
            return Refusal(self.otherwise)
        try:
            _beyond("block", impl.launch.grid[axis], kernel, impl)
        except NotInKernel as error:
            return Refusal(f"the kernel cannot compute `{error.args[0]}` of its grid")
        return _refused(reading)

    def rewritten(self, kernel: Kernel, impl: Impl, around: Surroundings, parts: int) -> CodeText:
        """The text in which a block does several blocks of the launch."""
        assert impl.code is not None
        assert impl.launch is not None
        reading, axis = reading_of(impl, around), self.axis(impl.launch)
        assert isinstance(reading, KernelReading)
        if axis is None:  # the forms before leave one block
            return impl.code
        letter, size, beside = AXES[axis], impl.launch.grid[axis], reading.beside
        part, block, blocks = (fresh(n, kernel, impl, beside) for n in ("part", f"block_{letter}", f"blocks_{letter}"))
        begin, place, later = self.order.loop(parts, letter, (part, block, blocks))
        sized = not place or any(_is_along(name, "gridDim", letter) for name in reading.names())
        given = {
            name: fresh(f"{name}_given", kernel, impl, beside) for name in changed_parameters(reading, kernel, impl)
        }
        head = [f"// form.{self.name} = {parts}: {self.order.value.format(parts=parts, letter=letter)}."]
        head += [f"const unsigned {blocks} = static_cast<unsigned>({expression(size, kernel, impl)});"] if sized else []
        head += [f"const auto {copy} = {name};" for name, copy in given.items()]
        start = [begin, *(f"  {name} = {copy};" for name, copy in given.items())]
        if place:
            beyond = f"{block} >= {blocks}" if sized else _beyond(block, size, kernel, impl)
            start += [f"  const unsigned {block} = {place};", f"  if ({beyond}) continue;"]
        shares = _shares(reading)
        if shares:
            start.append(f"  if ({later}) __syncthreads();  // until its shared memory is free")
        loop = _Loop(start, letter, (block, blocks), fresh("one_block", kernel, impl, beside), unrolled=bool(place))
        apart = None if shares or given or any(True for _ in reading.together()) else _apart(reading, letter)
        if apart is None:
            lines, before = loop.over(reading.text, _leaving(reading.body))
            return replace(impl.code, text="\n".join([*head, *lines]), header=len(head) + before - blank(reading.text))
        lines = [*head, *apart.alike]
        for number, (condition, text, leaving) in enumerate(apart.branches):
            lines += ["}"] if number and condition.startswith("if") else []
            lines += [condition, *_indented(loop.over(text, leaving)[0])]
        return replace(impl.code, text="\n".join([*lines, "}"]), header=0)

    def launch(self, written: Launch, parts: Sym) -> Launch:
        axis = self.axis(written)
        if axis is None:
            return written
        if self.order is not _Order.REST:
            return joined(written, axis, parts)
        return written if parts == Const(AS_WRITTEN) else _fitting(written, axis, parts)

    def form(self, summary: str, values: tuple[int, ...], excludes: str = "", unproven: str = "") -> Form:
        """`excludes`: the names of forms."""

        def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
            return self.legal(kernel, impl, around) or values

        return Form(
            self.name, summary, values, legal, self.rewritten, self.launch, frozenset(excludes.split()),
            unproven=always(unproven), alone=self.order is _Order.REST,
        )  # fmt: skip


_Leaving = list[tuple[bool, bool]]  # of each `return`: whether it leaves the kernel, whether it stands in a loop
_SURE = re.compile(r"dagc::|static_cast<|unsigned\(")  # calls that may be made once for all parts
_RARE = "#pragma unroll 1\n"  # in the text of a branch that few threads take, as `wide` writes it


def _leaving(node: Node) -> _Leaving:
    return [(not inside(at, _OWN), inside(at, _LOOPS)) for at in _returns(node)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line.strip() else "" for line in lines]


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop over the parts of a block. `start`: how it begins; `names`: in the place of `blockIdx` and `gridDim`;
    `unrolled`: as far as it may be."""

    start: Sequence[str]
    letter: str
    names: tuple[str, str]
    one_block: str
    unrolled: bool

    def over(self, text: str, leaving: _Leaving) -> tuple[list[str], int]:
        """The loop around a text, and how many lines precede those of the text."""
        wrapped = any(own and inner for own, inner in leaving)
        leave = "return" if wrapped else "continue"
        body = _placed(text, self.letter, self.names, [leave if own else "return" for own, _ in leaving])
        loop = ["#pragma unroll" if self.unrolled and _RARE not in text else "#pragma unroll 1", *self.start]
        if not wrapped:
            return [*loop, *body, "}"], len(loop)
        block, one = self.names[0], self.one_block
        call = [*loop, f"  {one}({block});", "}"]
        return [f"const auto {one} = [&](const unsigned {block}) {{", *body, "};", *call], 1


@dataclass(frozen=True, slots=True)
class _Apart:
    """A text that ends with `if`s on what is the same for all parts: the lines before them, and of each branch the line
    that begins it, its text, and what its `return`s do."""

    alike: Sequence[str]
    branches: Sequence[tuple[str, str, _Leaving]]


def _apart(reading: KernelReading, letter: str) -> _Apart | None:
    """The branches of a text that may have a loop over parts each. The compiler then overlaps the loads of parts, and
    branches that few threads take are not in the loop of the others. None if they may not."""
    statements = [c for c in reading.body.named_children if c.type != "comment"]
    count = next((k for k, s in enumerate(reversed(statements)) if s.type != "if_statement"), len(statements))
    alike, ifs = statements[: len(statements) - count], statements[len(statements) - count :]
    once = [*alike, *(at for s in ifs if (at := field_of(s, "condition")) is not None)]
    names = [at for s in once for at in below(s)]
    own = {n for s in ifs for at in below(s) if at.type == "declaration" for n in declared_names(at)}
    own -= {n for s in alike if s.type == "declaration" for n in declared_names(s)}
    changed = {text_of(change.target) for s in ifs for change in changes_below(s) if change.how} - own
    moves = any(_is_along(at, place, letter) for at in names for place in PLACES)
    loads = any(at.type in ("subscript_expression", "pointer_expression") for s in alike for at in below(s))
    calls = any(at.type == "call_expression" and not _SURE.match(text_of(at)) for s in alike for at in below(s))
    leaves = any(kernel for s in (*alike, *ifs[:-1]) for kernel, _ in _leaving(s))
    found = places(reading.text, ifs)
    if not ifs or moves or loads or calls or leaves or found is None or changed & {text_of(at) for at in names}:
        return None
    branches = [_branches(reading.text, s) for s in ifs]
    before = textwrap.dedent(reading.text.encode()[: found[0][0]].decode().rstrip(" ").strip("\n"))
    whole = [b for bs in branches for b in bs]
    return _Apart(before.split("\n") if before else (), whole) if all(branches) else None


def _branches(text: str, node: Node) -> list[tuple[str, str, _Leaving]]:
    """The branches of an `if`; none if they are not in braces."""
    condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
    inner = [c for c in other.named_children if c.type != "comment"] if other is not None else []
    blocks = [b for b in (then, *inner) if b is not None and b.type == "compound_statement"]
    found = places(text, blocks)
    if len(blocks) != 1 + (other is not None) or found is None:
        return []
    begins, source = (f"if {text_of(condition)} {{", "} else {"), text.encode()
    pieces = (source[a + 1 : b - 1].decode() for a, b in found)
    return [(begin, p, _leaving(b)) for begin, p, b in zip(begins, pieces, blocks, strict=False)]


def _is_along(name: Node, place: str, letter: str) -> bool:
    """Whether a name is that of a variable whose member along an axis is used: `blockIdx.x`."""
    return text_of(name) == place and text_of(name.parent).replace(" ", "") == f"{place}.{letter}"


def changed_parameters(reading: KernelReading, kernel: Kernel, impl: Impl) -> list[str]:
    """The parameters that the body changes, or may change through a reference or their address: each block of the
    launch has them as they are given."""
    out = set[str]()
    for change in changes_below(reading.body):
        out |= {text_of(change.target)} if change.how else set()
    for at in below(reading.body):
        if at.type == "declaration" and any(Declarator.of(d).reference for d in declarators(at)):
            out |= set(names_below(at))
        called = text_of(field_of(at, "function")) if at.type == "call_expression" else ""
        functions = reading.definitions.functions.get(called, ())
        if any("&" in text_of(function.body.parent).partition("{")[0] for function in functions):
            out |= set(names_below(at))
    return [name for name in (*(f.name for f in kernel.formals), *(s.name for s in impl.scratch)) if name in out]


def _placed(text: str, letter: str, names: tuple[str, str], leaves: Iterable[str]) -> list[str]:
    """The lines of a text with `names` in the place of `blockIdx` and `gridDim` along an axis, and `leaves` in that of
    its `return`s."""
    new, returns, done, out = dict(zip(PLACES, names, strict=True)), iter(leaves), 0, list[str]()
    for name in names_in(text):
        end = name.start + len(name.text)
        member = _MEMBER.match(text, end)
        if name.text == "return":
            word = next(returns)
        elif name.text in new and not name.member and member is not None and member[1] == letter:
            word, end = new[name.text], member.end()
        else:
            continue
        out += [text[done : name.start], word]
        done = end
    whole = "".join([*out, text[done:]])
    lines = textwrap.dedent("\n".join(whole.split("\n")[blank(text) :])).rstrip().split("\n")
    return _indented(lines)


def _beyond(block: str, size: Sym, kernel: Kernel, impl: Impl) -> str:
    """The condition that a block is not in the grid, without a division. Raises NotInKernel."""
    if isinstance(size, Apply) and size.fn in (Fn.CEIL, Fn.FLOOR):
        top, bottom = fraction(size.args[0])
        of_top, of_bottom = (expression(e, kernel, impl) for e in (top, bottom))
        if size.fn is Fn.CEIL:
            return f"static_cast<long long>({block}) * {of_bottom} >= {of_top}"
        return f"(static_cast<long long>({block}) + 1) * {of_bottom} > {of_top}"
    return f"static_cast<long long>({block}) >= {expression(size, kernel, impl)}"


def _shares(reading: KernelReading) -> bool:
    return reading.first(("__shared__",)) is not None or "__shared__" in words_of(reading.text)


# ---- the launch ---------------------------------------------------------------------------------


def _fitting(written: Launch, axis: int, parts: Sym) -> Launch:
    """The launch with at most `parts` blocks a multiprocessor, or with one along the axis if others exceed that."""
    others = product_of(size for k, size in enumerate(written.grid) if k != axis)
    several = apply(Fn.MUL, parts, Var("hw.sms"))
    if others != Const(1):
        several = apply(Fn.CEIL, apply(Fn.DIV, several, apply(Fn.MAX, others, Const(1))))
    size = apply(Fn.MIN, written.grid[axis], several)
    if not isinstance(parts, Const):
        size = apply(Fn.COND, apply(Fn.EQ, parts, Const(AS_WRITTEN)), written.grid[axis], size)
    return replace(written, grid=(*written.grid[:axis], size, *written.grid[axis + 1 :]))


# ---- the forms ----------------------------------------------------------------------------------

_ONE_BLOCK = "the grid has one block"
VALUES = (AS_WRITTEN, 2, 4, 8)
COARSEN = _Joining("coarsen", _Order.NEXT, slowest, _ONE_BLOCK).form(
    "a block does 2, 4 or 8 neighbouring blocks of the grid", VALUES
)
# `tile` may leave one block along the second axis: then x is the slowest in the text, but not in a launch that is open.
COLUMNS = _Joining("columns", _Order.NEXT, not_slowest_x, "the grid has no two axes with blocks").form(
    "a block does 2 or 4 neighbouring blocks along x: a thread several columns", VALUES[:3], "tile"
)
STRIDED = _Joining("strided", _Order.APART, slowest, _ONE_BLOCK).form(
    "a block does 2, 4 or 8 blocks that are a grid apart", VALUES, "coarsen tile", NOT_MEASURED
)
PERSIST = _Joining("persist", _Order.REST, slowest, _ONE_BLOCK).form(
    "at most 4, 8 or 16 blocks a multiprocessor, which do all others", (AS_WRITTEN, 4, 8, 16),
    "coarsen strided tile", NOT_MEASURED,
)  # fmt: skip

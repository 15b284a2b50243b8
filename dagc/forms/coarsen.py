"""Coarsening: a block does the work of several blocks of the launch, one after the other.

The body of the kernel becomes that of a loop over *parts*, blocks of the grid as written, in which `blockIdx` of one
axis is the number of the part. So guards, `return`s and loops keep their meaning, and shared memory is used by one part
after the other. Blocks of a launch run in any order, hence also one after the other in one block; a kernel that waits
for another block is refused.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.cuda.lexer import names_in, words_of
from dagc.cuda.syntax import Declarator, below, changes_below, declarators, field_of, names_below, text_of
from dagc.forms.text import (
    CLASS,
    LAMBDA,
    PLACES,
    KernelReading,
    NotInKernel,
    blank,
    expression,
    fresh,
    moved_refused,
    reading_of,
)
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Apply, Const, Fn, Sym, apply, fraction

if TYPE_CHECKING:
    from tree_sitter import Node

AXES = "xyz"
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_OWN = (LAMBDA, CLASS)  # whose `return`s are their own
_MEMBER = re.compile(r"\s*\.\s*([xyz])\b")


def axis_of(launch: Launch) -> int | None:
    """The axis whose blocks are joined: the slowest of the grid with more than one block; None if there is none."""
    return next((k for k in reversed(range(len(launch.grid))) if launch.grid[k] != Const(1)), None)


# ---- legality -----------------------------------------------------------------------------------


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    axis = axis_of(impl.launch) if impl.launch is not None else None
    if impl.launch is None or axis is None:
        return Refusal("the grid has one block")
    try:
        _beyond("block", impl.launch.grid[axis], kernel, impl)
    except NotInKernel as error:
        return Refusal(f"the kernel cannot compute `{error.args[0]}` of its grid")
    return _refused(reading) or VALUES


def _refused(reading: KernelReading) -> Refusal | None:
    refused = moved_refused(reading, ("return",))
    if refused is not None:
        return refused
    meeting = list(reading.together())
    leaving = next((at for at in _returns(reading.body) if not _inside(at, _OWN)), None)
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


def _inside(node: Node, types: Collection[str]) -> bool:
    """Whether a node is part of one of these types."""
    at = node.parent
    while at is not None and at.type not in types:
        at = at.parent
    return at is not None


# ---- rewriting ----------------------------------------------------------------------------------


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, parts: int) -> CodeText:
    """The text in which a block does `parts` blocks of the launch."""
    assert impl.code is not None
    assert impl.launch is not None
    reading, axis = reading_of(impl, around), axis_of(impl.launch)
    assert isinstance(reading, KernelReading)
    if axis is None:  # the forms before leave one block
        return impl.code
    letter, size = AXES[axis], impl.launch.grid[axis]
    beside = reading.beside
    part, block, blocks = (fresh(n, kernel, impl, beside) for n in ("part", f"block_{letter}", f"blocks_{letter}"))
    leaving = [not _inside(at, _OWN) for at in _returns(reading.body)]
    wrapped = any(own and _inside(at, _LOOPS) for at, own in zip(_returns(reading.body), leaving, strict=True))
    leave = "return" if wrapped else "continue"
    body, sized = _placed(reading.text, letter, (block, blocks), [leave if own else "return" for own in leaving])
    head = [f"// form.coarsen = {parts}: this block does {parts} neighbours along {letter}, one after the other."]
    if sized:
        head.append(f"const unsigned {blocks} = static_cast<unsigned>({expression(size, kernel, impl)});")
    changed = changed_parameters(reading, kernel, impl)
    given = {name: fresh(f"{name}_given", kernel, impl, beside) for name in changed}
    head += [f"const auto {copy} = {name};" for name, copy in given.items()]
    beyond = f"{block} >= {blocks}" if sized else _beyond(block, size, kernel, impl)
    loop = [
        "#pragma unroll",
        f"for (unsigned {part} = 0; {part} < {parts}; ++{part}) {{",
        *(f"  {name} = {copy};" for name, copy in given.items()),
        f"  const unsigned {block} = {parts} * blockIdx.{letter} + {part};",
        f"  if ({beyond}) continue;",
    ]
    if _shares(reading):
        loop.append(f"  if ({part} > 0) __syncthreads();  // until its shared memory is free")
    if wrapped:
        one = fresh("one_block", kernel, impl, beside)
        head, loop = [*head, f"const auto {one} = [&](const unsigned {block}) {{"], [*loop, f"  {one}({block});", "}"]
        lines, before = [*head, *body, "};", *loop], len(head)
    else:
        lines, before = [*head, *loop, *body, "}"], len(head) + len(loop)
    return replace(impl.code, text="\n".join(lines), header=before - blank(reading.text))


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
        functions = reading.definitions.functions().get(called, ())
        if any("&" in text_of(function.body.parent).partition("{")[0] for function in functions):
            out |= set(names_below(at))
    return [name for name in (*(f.name for f in kernel.formals), *(s.name for s in impl.scratch)) if name in out]


def _placed(text: str, letter: str, names: tuple[str, str], leaves: Iterable[str]) -> tuple[list[str], bool]:
    """The lines of the body with `names` in the place of `blockIdx` and `gridDim` along an axis, and `leaves` in that
    of its `return`s; and whether it asks for the size of the grid."""
    new, returns, sized, done, out = dict(zip(PLACES, names, strict=True)), iter(leaves), False, 0, list[str]()
    for name in names_in(text):
        end = name.start + len(name.text)
        member = _MEMBER.match(text, end)
        if name.text == "return":
            word = next(returns)
        elif name.text in new and not name.member and member is not None and member[1] == letter:
            word, end, sized = new[name.text], member.end(), sized or name.text == "gridDim"
        else:
            continue
        out += [text[done : name.start], word]
        done = end
    whole = "".join([*out, text[done:]])
    lines = textwrap.dedent("\n".join(whole.split("\n")[blank(text) :])).rstrip().split("\n")
    return [f"  {line}" if line.strip() else "" for line in lines], sized


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


def launch(written: Launch, parts: Sym) -> Launch:
    axis = axis_of(written)
    if axis is None:
        return written
    grid = list(written.grid)
    size = grid[axis]
    rounded = isinstance(size, Apply) and size.fn is Fn.CEIL
    top, bottom = fraction(size.args[0]) if isinstance(size, Apply) and rounded else (size, Const(1))
    grid[axis] = apply(Fn.CEIL, apply(Fn.DIV, top, apply(Fn.MUL, bottom, parts)))
    return replace(written, grid=tuple(grid))


VALUES = (AS_WRITTEN, 2, 4, 8)
COARSEN = Form("coarsen", "a block does 2, 4 or 8 neighbouring blocks of the grid", VALUES, legal, rewritten, launch)

"""Unroll factors: `#pragma unroll N` before inner loops whose end is known only when the kernel runs.

The compiler unrolls such loops by a factor of its own, often 4. Any factor leaves the order of the iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.cuda.syntax import below, field_of, text_of
from dagc.forms.affine import LOOPS
from dagc.forms.text import edited, places, reading_of
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import CodeText, Impl, Kernel

if TYPE_CHECKING:
    from tree_sitter import Node


def _loops(body: Node) -> Iterator[Node]:
    """The loops without a loop inside and without a pragma, but those that the compiler can count."""
    for at in below(body):
        if at.type not in ("for_statement", "while_statement") or any(b.type in LOOPS for b in below(at) if b != at):
            continue
        before, end = at.prev_sibling, field_of(field_of(at, "condition"), "right")
        pragma = before is not None and text_of(before).lstrip().startswith("#")
        if not pragma and (end is None or end.type != "number_literal"):
            yield at


def _written(impl: Impl, around: Surroundings, factor: int) -> str | Refusal:
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    found = list(_loops(reading.body))
    if not found:
        return Refusal("it has no inner loop whose end is known only when it runs")
    where = places(reading.text, found)
    if where is None:
        return Refusal("a macro has other lines than its text", reading.line(found[0]))
    source = reading.text.encode()
    edits = []
    for begin, _ in where:
        line = source.rfind(b"\n", 0, begin) + 1
        blank = source[line:begin].decode()
        indent = blank if not blank.strip() else " " * (len(blank) - len(blank.lstrip()) + 2)
        edits.append(
            (begin, begin, f"{'' if not blank.strip() else chr(10) + indent}#pragma unroll {factor}\n{indent}")
        )
    return edited(source, 0, 0, len(source), edits)


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    text = _written(impl, around, VALUES[1])
    return text if isinstance(text, Refusal) else VALUES


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, factor: int) -> CodeText:
    assert impl.code is not None
    text = _written(impl, around, factor)
    return impl.code if isinstance(text, Refusal) else replace(impl.code, text=text, header=0)


VALUES = (AS_WRITTEN, 2, 8, 16)
PRAGMA = Form(
    "pragma", "inner loops are unrolled 2, 8 or 16 times (`#pragma unroll`)", VALUES, legal, rewritten,
    unproven=always(NOT_MEASURED),
)  # fmt: skip

"""Index arithmetic in 32 bits: the index of an array that has at most 2^32 elements is converted to `unsigned`.

The conversion keeps the index, since it is the number of an element, and lets the compiler compute what leads to it
modulo 2^32: sums, differences and products of 64-bit integers become 32-bit instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.cuda.syntax import below, field_of, text_of
from dagc.forms.affine import most_of, number_of, plus, variables_of
from dagc.forms.text import KernelReading, edited, places, product_of, reading_of
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import CodeText, Formal, Impl, Kernel
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, polynomial

if TYPE_CHECKING:
    from tree_sitter import Node

MOST = 2**32  # elements: the largest index is one less
_NARROW = frozenset("int unsigned short char bool int32_t uint32_t std::int32_t std::uint32_t".split())

# ---- legality -----------------------------------------------------------------------------------


def _fits(formal: Formal, kernel: Kernel, impl: Impl) -> bool:
    """Whether the `require`s of a kernel show that an array has at most MOST elements."""
    if formal.dims is None or None in formal.dims:
        return False
    size = product_of(d for d in formal.dims if d is not None)
    limits = list(_limits((*kernel.requires, *impl.requires)))
    for value, limit in limits:
        apart = number_of(plus(polynomial(size), polynomial(value), -1))
        if apart is not None and apart + limit <= MOST:
            return True
    names: dict[str, int] = {}
    for value, limit in limits:
        if isinstance(value, Var):
            names[value.name] = min(limit, names.get(value.name, limit))
    most = most_of(size, names)
    return most is not None and most <= MOST


def _limits(requires: tuple[Sym, ...]) -> Iterator[tuple[Sym, int]]:
    """The values that are at most a number, with it."""
    for each in requires:
        if isinstance(each, Apply) and each.fn is Fn.AND:
            yield from _limits(each.args)
        elif isinstance(each, Apply) and each.fn in (Fn.LE, Fn.LT, Fn.GE, Fn.GT, Fn.EQ):
            low, high = each.args if each.fn not in (Fn.GE, Fn.GT) else reversed(each.args)
            if isinstance(high, Const) and isinstance(high.value, int):
                yield low, high.value - (each.fn in (Fn.LT, Fn.GT))


def _indices(reading: KernelReading, arrays: frozenset[str]) -> list[Node]:
    """The indices of arrays that may be computed in 64 bits."""
    variables = variables_of(reading.body)
    out = []
    for at in below(reading.body):
        given, of = field_of(at, "indices"), text_of(field_of(at, "argument"))
        inner = [c for c in given.named_children if c.type != "comment"] if given is not None else []
        if at.type == "subscript_expression" and of in arrays and of not in variables and len(inner) == 1:
            one = variables.get(text_of(inner[0]))
            narrow = one is not None and one.type in _NARROW
            out += [] if narrow or inner[0].type == "number_literal" else inner
    return out


def _written(kernel: Kernel, impl: Impl, around: Surroundings, arrays: frozenset[str]) -> str | Refusal:
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    indices = _indices(reading, arrays)
    if not indices:
        return Refusal("it uses no index of an array in 64 bits")
    where = places(reading.text, indices)
    if where is None:
        return Refusal("a macro has other lines than its text", reading.line(indices[0]))
    source = reading.text.encode()
    edits = sorted(e for b, c in where for e in ((b, b, "static_cast<unsigned>("), (c, c, ")")))
    return edited(source, 0, 0, len(source), edits)


def _arrays(kernel: Kernel, impl: Impl) -> frozenset[str]:
    return frozenset(f.name for f in kernel.formals if f.mode is not None and _fits(f, kernel, impl))


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    arrays = _arrays(kernel, impl)
    if not arrays:
        return Refusal("no `require` of the kernel shows that an array has at most 2^32 elements")
    text = _written(kernel, impl, around, arrays)
    return text if isinstance(text, Refusal) else VALUES


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
    assert impl.code is not None
    text = _written(kernel, impl, around, _arrays(kernel, impl))
    return impl.code if isinstance(text, Refusal) else replace(impl.code, text=text)


VALUES = (AS_WRITTEN, 2)
INDEX = Form(
    "index", "indices are computed in 32 bits, where a `require` bounds the array", VALUES, legal, rewritten,
    unproven=always(NOT_MEASURED),
)  # fmt: skip

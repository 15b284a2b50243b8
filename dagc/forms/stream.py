"""Streaming stores: results that the kernel does not load are stored by `__stcs`, the first to leave the caches.

An array is stored so if the text names it for nothing but plain stores of its elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from dagc.cuda.syntax import Change, below, change_of, field_of, text_of
from dagc.forms.text import KernelReading, edited, places, reading_of
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.enums import ElementType, Mode
from dagc.ir.program import CodeText, Impl, Kernel

if TYPE_CHECKING:
    from tree_sitter import Node

_Store: TypeAlias = "tuple[Node, Change | None]"  # `y[i] = v` with the change that it is, or a call of `dagc::store`
_VECTORS, _STREAMED = "dagc::store<", "dagc::stream<"


def _stores(kernel: Kernel, reading: KernelReading) -> list[_Store] | Refusal:
    """The stores to arrays that the kernel only writes."""
    out: list[_Store] = []
    why = Refusal("it stores in no array that it only writes")
    for formal in kernel.formals:
        if formal.mode in (None, Mode.IN) or formal.type is ElementType.BOOL:
            continue
        uses = [at for at in below(reading.body) if at.type == "identifier" and text_of(at) == formal.name]
        found = [(use, _store(use)) for use in uses if not _compared(use)]
        other = next((use for use, store in found if store is None), None)
        if other is not None:
            why = Refusal(f"`{formal.name}` is used by more than stores of its elements", reading.line(other))
        else:
            out += [store for _, store in found if store is not None]
    return out or why


def _compared(use: Node) -> bool:
    """Whether it only says whether vectors of the array are aligned."""
    call = use.parent.parent if use.parent is not None else None
    return call is not None and text_of(field_of(call, "function")).startswith("dagc::aligned<")


def _store(use: Node) -> _Store | None:
    """The store of an element of the array that is named."""
    element = use.parent
    if element is None or element.type != "subscript_expression" or field_of(element, "argument") != use:
        return None
    above = element.parent
    change = change_of(above) if above is not None else None
    if above is not None and change is not None and change.how == "=" and change.target == element:
        whole = above.parent is not None and above.parent.type == "expression_statement"
        return (above, change) if whole else None
    call = above.parent.parent if above is not None and above.parent is not None else None
    stored = call is not None and text_of(field_of(call, "function")).startswith(_VECTORS)
    given = field_of(call, "arguments") if stored else None
    first = given is not None and given.named_children and given.named_children[0] == above
    return (call, None) if call is not None and first else None


def _edits(text: str, stores: list[_Store]) -> Iterator[tuple[int, int, str]] | None:
    """The parts of a text that change; None if macros stand there."""
    plain = [(c.target, c.value) for _, c in stores if c is not None and c.value is not None]
    calls = [function for call, c in stores if c is None and (function := field_of(call, "function")) is not None]
    at = places(text, [*(node for pair in plain for node in pair), *calls])
    if at is None:
        return None
    edits = []
    for (target, _), (begin, _), (value, last) in zip(plain, at[::2], at[1::2], strict=False):
        edits += [(begin, value, f"__stcs(&{text_of(target)}, "), (last, last, ")")]
    edits += [(begin, begin + len(_VECTORS), _STREAMED) for begin, _ in at[2 * len(plain) :]]
    return iter(sorted(edits))


def _written(kernel: Kernel, impl: Impl, around: Surroundings) -> str | Refusal:
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    stores = _stores(kernel, reading)
    if isinstance(stores, Refusal):
        return stores
    edits = _edits(reading.text, stores)
    if edits is None:
        return Refusal("a macro has other lines than its text", reading.line(stores[0][0]))
    source = reading.text.encode()
    return edited(source, 0, 0, len(source), edits)


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    text = _written(kernel, impl, around)
    return text if isinstance(text, Refusal) else VALUES


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
    assert impl.code is not None
    text = _written(kernel, impl, around)
    return impl.code if isinstance(text, Refusal) else replace(impl.code, text=text)


VALUES = (AS_WRITTEN, 2)
STREAM = Form(
    "stream", "what it does not load is stored by streaming stores (`__stcs`)", VALUES, legal, rewritten,
    include="dagc/wide.hpp", unproven=always(NOT_MEASURED),
)  # fmt: skip

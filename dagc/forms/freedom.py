"""The compiler's freedom: what the program's checks show of a kernel's arguments, said in its signature.

An op whose arguments overlap, one of them written, is an error (`aliased-arguments`), so arrays of a kernel may be
`__restrict__`: values stay in registers where the text adds to an element in a loop, loads move above stores, and what
is read alone takes the read-only path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.cuda.lexer import words_of
from dagc.cuda.syntax import NotUnderstood, below, body_of
from dagc.forms.affine import LOOPS, accesses_below, kind_of, variables_of
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.enums import Mode
from dagc.ir.program import CodeText, Impl, Kernel

if TYPE_CHECKING:
    from tree_sitter import Node

VALUES = (AS_WRITTEN, 2)


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    if impl.code is None or impl.code.text is None:
        return Refusal("its code is a function of a file")
    modes = [f.mode for f in kernel.formals if f.mode is not None]
    if len(modes) + len(impl.scratch) < 2 or not (impl.scratch or any(m is not Mode.IN for m in modes)):
        return Refusal("it has no two arrays of which it writes one")
    if "const_cast" in words_of(impl.code.text):
        return Refusal("`const_cast`: it may write what it only reads by its signature")
    return VALUES if _may_gain(impl.code.text) else Refusal("it loads nothing after a store")


def _may_gain(text: str) -> bool:
    """Whether a load may follow a store: in the text, in a loop, or in a function that gets an address."""
    try:
        body = body_of(text)
    except NotUnderstood:
        return True
    variables = variables_of(body)
    found = [(at, *kind_of(at)) for at in accesses_below(body, variables)]
    begin = min((_statement_of(at).end_byte for at, _, stores in found if stores), default=None)
    if begin is None or any(loads and at.start_byte >= begin for at, loads, _ in found):
        return True  # without a store here, functions store
    loops = [at for at in below(body) if at.type in LOOPS]
    return any(
        any(stores and loop.start_byte <= at.start_byte < loop.end_byte for at, _, stores in found) for loop in loops
    )


def _statement_of(node: Node) -> Node:
    at = node
    while at.parent is not None and not at.type.endswith(("statement", "declaration")):
        at = at.parent
    return at


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
    assert impl.code is not None
    return replace(impl.code, restrict=True)


FREEDOM = Form("freedom", "its arrays do not overlap (`__restrict__`)", VALUES, legal, rewritten)

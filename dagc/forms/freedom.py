"""The compiler's freedom: what is known of a kernel beside its text, said in its signature.

An op whose arguments overlap, one of them written, is an error (`aliased-arguments`), so arrays of a kernel may be
`__restrict__`: values stay in registers where the text adds to an element in a loop, loads move above stores, and what
is read alone takes the read-only path (`freedom`). How many threads a multiprocessor should hold bounds the registers
of each (`bounds`). Sizes that a call gives as numbers are constants of the function that it launches (`literals`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.cuda.lexer import tokens_of, words_of
from dagc.cuda.syntax import NotUnderstood, below, body_of
from dagc.forms.affine import LOOPS, accesses_below, kind_of, most_of, variables_of
from dagc.forms.coarsen import changed_parameters
from dagc.forms.fuse import lets_of
from dagc.forms.text import product_of, reading_of
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.enums import Mode
from dagc.ir.program import CodeText, Impl, Kernel
from dagc.ir.sym import free, substitute

if TYPE_CHECKING:
    from tree_sitter import Node

_IN_A_FILE = Refusal("its code is a function of a file")

# ---- arrays that do not overlap -----------------------------------------------------------------


def _legal_apart(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    if impl.code is None or impl.code.text is None:
        return _IN_A_FILE
    modes = [f.mode for f in kernel.formals if f.mode is not None]
    if len(modes) + len(impl.scratch) < 2 or not (impl.scratch or any(m is not Mode.IN for m in modes)):
        return Refusal("it has no two arrays of which it writes one")
    if "const_cast" in words_of(impl.code.text):
        return Refusal("`const_cast`: it may write what it only reads by its signature")
    return _readable(impl, around) or (AS_WRITTEN, 2)


def _readable(impl: Impl, around: Surroundings) -> Refusal | None:
    """Why a text is not read: inline PTX may do anything."""
    reading = reading_of(impl, around)
    return reading if isinstance(reading, Refusal) else None


def _only_reads_first(impl: Impl) -> str:
    """Why overlaps do not matter, "" if they may: in the text, in a loop, or in a function that gets an address."""
    text = (impl.code.text if impl.code is not None else None) or ""
    try:
        body = body_of(text)
    except NotUnderstood:
        return ""
    variables = variables_of(body)
    found = [(at, *kind_of(at)) for at in accesses_below(body, variables)]
    begin = min((_statement_of(at).end_byte for at, _, stores in found if stores), default=None)
    if begin is None or any(loads and at.start_byte >= begin for at, loads, _ in found):
        return ""  # without a store here, functions store
    loops = [at for at in below(body) if at.type in LOOPS]
    stored = any(
        stores and loop.start_byte <= at.start_byte < loop.end_byte for at, _, stores in found for loop in loops
    )
    return "" if stored else "it loads nothing after a store"


def _statement_of(node: Node) -> Node:
    at = node
    while at.parent is not None and not at.type.endswith(("statement", "declaration")):
        at = at.parent
    return at


def _apart(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
    assert impl.code is not None
    return replace(impl.code, restrict=True)


FREEDOM = Form(
    "freedom", "its arrays do not overlap (`__restrict__`), what it only reads is read-only", (AS_WRITTEN, 2),
    _legal_apart, _apart, unproven=_only_reads_first,
)  # fmt: skip


# ---- registers ----------------------------------------------------------------------------------

MOST_THREADS = 1024  # of a block


def _legal_bounds(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    if impl.code is None or impl.code.text is None:
        return _IN_A_FILE
    return _readable(impl, around) or (AS_WRITTEN, 1024, 2048)


def _bounded(kernel: Kernel, impl: Impl, around: Surroundings, threads: int) -> CodeText:
    assert impl.code is not None
    largest = _largest_block(kernel, impl)
    return replace(impl.code, bounds=(largest, min(32, threads // largest)))


def _largest_block(kernel: Kernel, impl: Impl) -> int:
    """The most threads that a block can have: the limit of CUDA where the text does not say less."""
    assert impl.launch is not None
    most = {t.name: max(v for v in t.values if isinstance(v, int)) for t in (*kernel.tunables, *impl.tunables)}
    threads = product_of(impl.launch.block)
    for name, value in reversed((*kernel.lets, *impl.lets)):
        threads = substitute(threads, {name: value})
    size = most_of(threads, most)
    return MOST_THREADS if size is None else max(1, min(MOST_THREADS, size))


BOUNDS = Form(
    "bounds", "registers for blocks of 1024 or 2048 threads in all a multiprocessor (`__launch_bounds__`)",
    (AS_WRITTEN, 1024, 2048), _legal_bounds, _bounded, unproven=always(NOT_MEASURED),
)  # fmt: skip


# ---- sizes that a call gives as numbers ---------------------------------------------------------


def _sizes(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[str, ...] | Refusal:
    """The formals of which the grid, or an array, has its size, and that the text uses and leaves as they are."""
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    grid = impl.launch.grid if impl.launch is not None else ()
    sizes = [
        *grid,
        *(d for f in kernel.formals for d in f.dims or () if d is not None),
        *dict(lets_of(kernel, impl)).values(),
    ]
    named = frozenset[str]().union(*map(free, sizes)) & set(words_of(reading.text))
    changed = changed_parameters(reading, kernel, impl)
    whole = [f.name for f in kernel.formals if f.mode is None and f.type.is_integer and f.name in named]
    return tuple(name for name in whole if name not in changed) or Refusal(
        "its text uses no size of a grid or an array"
    )


def _legal_literals(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    sizes = _sizes(kernel, impl, around)
    return sizes if isinstance(sizes, Refusal) else (AS_WRITTEN, 2)


def _with_literals(kernel: Kernel, impl: Impl, around: Surroundings, value: int) -> CodeText:
    assert impl.code is not None
    sizes = _sizes(kernel, impl, around)
    known = () if isinstance(sizes, Refusal) else tuple(each for each in around.given if each[0] in sizes)
    return replace(impl.code, literals=known)


def numbers_of_calls(kernel: Kernel, impl: Impl, around: Surroundings, fused: Kernel) -> dict[str, int]:
    """The numbers that a launch which joins calls of a kernel gives, of formals that its text leaves as they are."""
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return {}
    changed = changed_parameters(reading, kernel, impl)
    taken = {dict(call.names).get(name, name) for call in fused.fused for name in changed}
    whole = {f.name for f in fused.formals if f.mode is None and f.type.is_integer}
    return {name: value for name, value in around.given if name in whole and name not in taken}


def divides_by_numbers(fused: Kernel, around: Surroundings) -> bool:
    """Whether calls that are one launch differ in whole numbers, and their text, or code beside it, divides."""
    calls = fused.fused
    differing = {name for call in calls for name, _ in call.names}
    whole = any(f.mode is None and f.type.is_integer and f.name in differing for f in calls[0].kernel.formals)
    own = calls[0].impl.code
    texts = (*(text for _, text in around.texts), own.text if own is not None else None)
    return whole and any(not {"/", "%"}.isdisjoint(tokens_of(text or "").split()) for text in texts)


LITERALS = Form(
    "literals", "sizes that the call gives as numbers are constants, of launches that are one all whole numbers",
    (AS_WRITTEN, 2), _legal_literals, _with_literals,
    unproven=always(f"{NOT_MEASURED} except for launches that are one, where it is searched"),
)  # fmt: skip

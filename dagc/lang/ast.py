"""Abstract syntax of the `.dag` language, as written: nothing is resolved.

Nodes are frozen; equality ignores spans, so that two texts that differ only in layout give equal trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

from dagc.base.source import NOWHERE, Span, Spanned
from dagc.ir.enums import CodeLang, Mode, OpKind, Place, Role

# ---- expressions ----------------------------------------------------------------------


class UnaryOp(Enum):
    NEG = "-"
    NOT = "!"


class BinaryOp(Enum):
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "&&"
    OR = "||"


@dataclass(frozen=True, slots=True)
class Literal(Spanned):
    """An int, float, bool or string. `text` keeps the spelling of numbers (150_000)."""

    value: int | float | bool | str
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Member(Spanned):
    name: str


@dataclass(frozen=True, slots=True)
class Every(Spanned):
    """`*` as an index or a dimension."""


@dataclass(frozen=True, slots=True)
class Index(Spanned):
    items: tuple[Expr | Range | Every, ...]


@dataclass(frozen=True, slots=True)
class Ref(Spanned):
    """`name`, `name.member`, `name[i, j]`, and combinations."""

    name: str
    trailers: tuple[Member | Index, ...] = ()


@dataclass(frozen=True, slots=True)
class Touched(Spanned):
    """`u touching [a .. b] [c .. d]`: an argument of which the kernel uses these rows of the array."""

    array: Ref
    rows: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Named(Spanned):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Spanned):
    callee: Ref
    args: tuple[Expr | Named, ...] = ()


@dataclass(frozen=True, slots=True)
class Unary(Spanned):
    op: UnaryOp
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Spanned):
    op: BinaryOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Conditional(Spanned):
    test: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class ListExpr(Spanned):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Range(Spanned):
    """`start .. stop`, stop excluded."""

    start: Expr
    stop: Expr


Expr: TypeAlias = Literal | Ref | Touched | Call | Unary | Binary | Conditional | ListExpr

# ---- declarations ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclName(Spanned):
    """A declared name, possibly indexed: `face[d, s]`."""

    name: str
    indices: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Param(Spanned):
    names: tuple[DeclName, ...]
    type: str
    value: Expr
    over: Expr | Range | None = None


@dataclass(frozen=True, slots=True)
class Let(Spanned):
    name: DeclName
    value: Expr


@dataclass(frozen=True, slots=True)
class EnumDecl(Spanned):
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scalar(Spanned):
    names: tuple[DeclName, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Communicator(Spanned):
    """`comm NAME = split(COLOUR [, KEY])`."""

    name: DeclName
    call: Call


@dataclass(frozen=True, slots=True)
class Array(Spanned):
    names: tuple[DeclName, ...]
    type: str
    dims: tuple[Expr | Every, ...]
    place: Place | None = None
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Part(Spanned):
    name: DeclName
    of: Ref


@dataclass(frozen=True, slots=True)
class Tune(Spanned):
    name: DeclName
    range: Expr | Range


@dataclass(frozen=True, slots=True)
class Require(Spanned):
    condition: Expr


@dataclass(frozen=True, slots=True)
class Code(Spanned):
    """Code in the text (`text`), a whole file (`file`), or one of its functions (`function`).

    `arguments` are those of a template.
    """

    lang: CodeLang
    text: str | None = None
    function: str | None = None
    file: str | None = None
    arguments: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Feature(Spanned):
    name: str
    value: Expr | Code
    cost: Expr | None = None


@dataclass(frozen=True, slots=True)
class Select(Spanned):
    names: tuple[str, ...]
    method: str
    args: tuple[Expr, ...]


# ---- kernels --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Formal(Spanned):
    """One formal group `a, b : in f32[n]`; `dims` is None for a by-value scalar."""

    names: tuple[DeclName, ...]
    type: str
    mode: Mode | None = None
    dims: tuple[Expr | Every, ...] | None = None


@dataclass(frozen=True, slots=True)
class Forms(Spanned):
    """The forms that a kernel may have. `word`: one word in place of a list, which only `none` may be."""

    names: tuple[str, ...]
    word: bool = False


@dataclass(frozen=True, slots=True)
class Link(Spanned):
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch(Spanned):
    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    shared: Expr | None = None


@dataclass(frozen=True, slots=True)
class Prepare(Spanned):
    """Host code that fills the scratch of its implementation once, before the first run."""

    code: Code


@dataclass(frozen=True, slots=True)
class Impl(Spanned):
    device: OpKind  # GPU or CPU
    name: str | None
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Kernel(Spanned):
    name: str
    formals: tuple[Formal, ...]
    items: tuple[Item, ...]
    name_span: Span = field(default=NOWHERE, compare=False, kw_only=True, repr=False)


# ---- the graph ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Until(Spanned):
    """`until flag`, or `until residual < tolerance`: an array, and what its element is compared with."""

    array: Ref
    op: BinaryOp | None = None
    bound: Expr | None = None


@dataclass(frozen=True, slots=True)
class MainDag(Spanned):
    items: tuple[Item, ...]
    repeat: Expr | None = None
    until: Until | None = None


@dataclass(frozen=True, slots=True)
class SubDag(Spanned):
    name: str
    formals: tuple[Formal, ...]
    items: tuple[Item, ...]
    name_span: Span = field(default=NOWHERE, compare=False, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class Op(Spanned):
    name: Ref
    kind: OpKind
    call: Call
    stream: Expr | None = None


@dataclass(frozen=True, slots=True)
class Collective(Spanned):
    """`comm`: the communicator after `on`."""

    name: Ref
    call: Call
    comm: Ref | None = None


@dataclass(frozen=True, slots=True)
class Exchange(Spanned):
    """`comm`: the communicator after `on`; `split`: whether each message has ops of its own."""

    name: Ref
    comm: Ref | None
    split: Expr | None
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Message(Spanned):
    name: Ref | None
    send: Ref
    to: Expr
    send_counts: Ref | None
    recv: Ref
    source: Expr
    recv_counts: Ref | None


class Arrow(Enum):
    COMPLETION = "->"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Edge(Spanned):
    """`groups[0] arrows[0] groups[1] arrows[1] ...`"""

    groups: tuple[tuple[Ref, ...], ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True, slots=True)
class EdgesExplicit(Spanned):
    """`edges explicit`: no edges are inferred."""


@dataclass(frozen=True, slots=True)
class Devices(Spanned):
    """How many GPUs and sockets a rank has: their words, and the numbers."""

    counts: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Fuse(Spanned):
    """The launches that may be fused. `word`: one word in place of a list, which only `none` may be."""

    names: tuple[str, ...]
    word: bool = False


@dataclass(frozen=True, slots=True)
class Binding(Spanned):
    name: str
    range: Expr | Range


@dataclass(frozen=True, slots=True)
class For(Spanned):
    bindings: tuple[Binding, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class If(Spanned):
    test: Expr
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...] | None = None


# ---- set-up, references, included files ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup(Spanned):
    file: str
    call: Call


@dataclass(frozen=True, slots=True)
class Verify(Spanned):
    target: Ref
    call: Call
    rtol: Expr
    nan_equal: bool = False
    atol: Expr | None = None
    runs: Expr | None = None  # after which it is compared
    of: str = ""  # what is compared: `sum` or `norm` of all elements


@dataclass(frozen=True, slots=True)
class Include(Spanned):
    file: str


Item: TypeAlias = (
    Param | Let | EnumDecl | Scalar | Communicator | Array | Part | Tune | Require | Feature | Select | Code
    | Kernel | Impl | Forms | Link | Launch | Prepare | MainDag | SubDag | Op | Collective | Exchange | Message
    | Edge | EdgesExplicit | Devices | Fuse | For | If | Setup | Verify | Include
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module(Spanned):
    """One parsed file. `program` is the name after `program`, None if absent (an included file)."""

    program: str | None
    items: tuple[Item, ...]


def nodes(node: object) -> Iterator[Any]:
    """All nodes below a node or a tuple of nodes, itself included."""
    if isinstance(node, tuple):
        for child in node:
            yield from nodes(child)
    elif is_dataclass(node):
        yield node
        for field_ in fields(node):
            if field_.compare:  # all but positions and spellings
                yield from nodes(getattr(node, field_.name))

"""Abstract syntax of the `.dag` language: what was written, nothing resolved.

Nodes are frozen; equality ignores spans, so that two texts that differ only in layout give equal trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from dagc.base.source import NOWHERE, Span
from dagc.ir.enums import CodeLang, Mode, OpKind, Place, Role


def _span() -> Span:
    return field(default=NOWHERE, compare=False, kw_only=True, repr=False)


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
class Literal:
    """An int, float, bool or string. `text` keeps the spelling of numbers (150_000)."""

    value: int | float | bool | str
    text: str = field(default="", compare=False)
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Every:
    """`*` as an index or a dimension."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Index:
    items: tuple[Expr | Range | Every, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Ref:
    """`name`, `name.member`, `name[i, j]`, and combinations."""

    name: str
    trailers: tuple[Member | Index, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Call:
    callee: Ref
    args: tuple[Expr | Named, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    left: Expr
    right: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ListExpr:
    items: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Range:
    """`start .. stop`, stop excluded."""

    start: Expr
    stop: Expr
    span: Span = _span()


Expr: TypeAlias = Literal | Ref | Call | Unary | Binary | Conditional | ListExpr

# ---- declarations ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclName:
    """A declared name, possibly indexed: `face[d, s]`."""

    name: str
    indices: tuple[Expr, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: str
    value: Expr
    over: Expr | Range | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Let:
    name: DeclName
    value: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class EnumDecl:
    name: str
    labels: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Scalar:
    names: tuple[DeclName, ...]
    type: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Array:
    names: tuple[DeclName, ...]
    type: str
    dims: tuple[Expr | Every, ...]
    place: Place | None = None
    role: Role | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Part:
    name: DeclName
    of: Ref
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Tune:
    name: DeclName
    range: Expr | Range
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Require:
    condition: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Code:
    """Code in the text (`text`) or a function of a file (`function`, `file`)."""

    lang: CodeLang
    text: str | None = None
    function: str | None = None
    file: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    value: Expr | Code
    cost: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Select:
    names: tuple[str, ...]
    method: str
    args: tuple[Expr, ...]
    span: Span = _span()


# ---- kernels --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal group `a, b : in f32[n]`; `dims` is None for a by-value scalar."""

    names: tuple[DeclName, ...]
    type: str
    mode: Mode | None = None
    dims: tuple[Expr | Every, ...] | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Link:
    libraries: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Launch:
    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    shared: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Impl:
    device: OpKind  # GPU or CPU
    name: str | None
    items: tuple[Item, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    formals: tuple[Formal, ...]
    items: tuple[Item, ...]
    span: Span = _span()
    name_span: Span = _span()


# ---- the graph ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MainDag:
    items: tuple[Item, ...]
    repeat: Expr | None = None
    until: Ref | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SubDag:
    name: str
    formals: tuple[Formal, ...]
    items: tuple[Item, ...]
    span: Span = _span()
    name_span: Span = _span()


@dataclass(frozen=True, slots=True)
class Op:
    name: Ref
    kind: OpKind
    call: Call
    stream: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Collective:
    name: Ref
    call: Call
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Exchange:
    name: Ref
    items: tuple[Item, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Message:
    name: Ref | None
    send: Ref
    to: Expr
    send_counts: Ref | None
    recv: Ref
    source: Expr
    recv_counts: Ref | None
    span: Span = _span()


class Arrow(Enum):
    COMPLETION = "->"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Edge:
    """`groups[0] arrows[0] groups[1] arrows[1] ...`"""

    groups: tuple[tuple[Ref, ...], ...]
    arrows: tuple[Arrow, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class EdgesExplicit:
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Binding:
    name: str
    range: Expr | Range
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class For:
    bindings: tuple[Binding, ...]
    items: tuple[Item, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class If:
    test: Expr
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...] | None = None
    span: Span = _span()


# ---- the world outside ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    file: str
    call: Call
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Verify:
    target: Ref
    call: Call
    rtol: Expr
    nan_equal: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Include:
    file: str
    span: Span = _span()


Item: TypeAlias = (
    Param | Let | EnumDecl | Scalar | Array | Part | Tune | Require | Feature | Select | Code
    | Kernel | Impl | Link | Launch | MainDag | SubDag | Op | Collective | Exchange | Message
    | Edge | EdgesExplicit | For | If | Setup | Verify | Include
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file. `program` is the name after `program`, None where absent (an included file)."""

    program: str | None
    items: tuple[Item, ...]
    span: Span = _span()

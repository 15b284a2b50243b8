"""What a dag is lowered in: its scope of values, its scope of ops, and the prefixes of display names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace

from dagc import ir
from dagc.lang import ast
from dagc.lang.lower_context import Context
from dagc.lang.lower_decls import Declared, Declarer
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_report import did_you_mean, listing
from dagc.lang.lower_scope import Key, Storage, refuse_reserved
from dagc.source import Span


@dataclass(slots=True)
class OpEntry:
    """A named op. `labels`: messages of an exchange by name and key; `inner`: the ops of a compound."""

    display: str
    span: Span
    exchange: bool = False
    labels: dict[str, dict[Key, str]] = field(default_factory=dict)
    inner: OpScope | None = None
    names: list[str] = field(default_factory=list)  # primitive ops that it stands for


@dataclass(slots=True)
class OpScope:
    families: dict[str, dict[Key, OpEntry]] = field(default_factory=dict)

    def instances(self) -> Iterable[OpEntry]:
        return (e for family in self.families.values() for e in family.values())


@dataclass(frozen=True, slots=True)
class Frame:
    """`base` is the prefix without indices; `stack` names the compounds that we are in."""

    ev: Evaluator
    declared: Declared
    ops: OpScope
    prefix: str = ""
    base: str = ""
    stack: tuple[str, ...] = ()

    @property
    def ctx(self) -> Context:
        return self.ev.ctx

    @property
    def declarer(self) -> Declarer:
        return Declarer(self.ev, self.declared, self.prefix)

    def turn(self, ev: Evaluator) -> Frame:
        return replace(self, ev=ev)

    def enter_op(self, ref: ast.Ref) -> tuple[OpEntry, str]:
        """Declare an op by the reference before its colon. Gives its entry and its base name. May give up (Skip)."""
        report = self.ctx.report
        index = ref.trailers[0] if len(ref.trailers) == 1 and isinstance(ref.trailers[0], ast.Index) else None
        if ref.trailers and index is None:
            report.fail(
                "bad-op-name",
                "the name of an op is a word, or a word with indices",
                ref.span,
                "write `name` or `name[i]`",
            )
        if ref.name == "end":
            report.fail("reserved-name", "`end` is the op after all others", ref.span, "choose another name")
        refuse_reserved(report, ref.name, ref.span)
        key, text = self.ev.key(index.items, index.span) if index else ((), "")
        display = f"{self.prefix}{ref.name}[{text}]" if index else self.prefix + ref.name
        family = self.ops.families.setdefault(ref.name, {})
        if family and (key in family or not key or () in family):
            other = family.get(key) or next(iter(family.values()))
            report.fail(
                "duplicate-name",
                f"op `{display}` is declared twice"
                if key in family
                else f"op `{ref.name}` is declared with and without indices",
                ref.span,
                "index it by the loop variable, or choose another name",
                ((other.span, "first declared here"),),
            )
        entry = family[key] = OpEntry(display, ref.span)
        self.ctx.expand_op(ref.span)
        return entry, self.base + ref.name


@dataclass(frozen=True, slots=True)
class Use:
    """One access of an op to an array, for the checks of whole programs."""

    op: str
    storage: Storage
    mode: ast.Mode
    span: Span


@dataclass(slots=True)
class GraphOut:
    """The graph as it grows."""

    kernels: dict[str, ir.Kernel]
    dags: dict[str, ast.SubDag]
    ops: list[ir.Op] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    edges: list[tuple[ast.Edge, Frame]] = field(default_factory=list)
    selects: list[ir.Select] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    explicit: ast.EdgesExplicit | None = None
    doubtful: set[str] = field(default_factory=set)  # words in ops that are in error: they may write arrays so called

    def use(self, frame: Frame, op: str, storage: Storage, mode: ast.Mode, span: Span) -> ir.Access:
        """Enter an access. Reports writes to what may not be written."""
        self.uses.append(Use(op, storage, mode, span))
        if mode is not ast.Mode.IN:
            _check_writable(frame, storage, span)
        return ir.Access(storage.region, mode)


def _check_writable(frame: Frame, storage: Storage, span: Span) -> None:
    report = frame.ctx.report
    related = ((storage.array.span, "declared here"),)
    if storage.mode is ast.Mode.IN:
        help = "make the formal `inout` or `out`"
        report.error(
            "written-in", f"`{storage.label}` is an `in` formal of this dag, but is written", span, help, related
        )
    elif storage.array.role is ast.Role.IN:
        message = f"array `{storage.label}` has the role `in`, but is written"
        report.error("written-in", message, span, "declare it `inout`", related)
    elif storage.array.role is ast.Role.CONST:
        message = f"array `{storage.label}` is `const`, but is written"
        report.error("const-written", message, span, "drop `const`, or write to another array", related)


def unknown_op(frame: Frame, name: str, span: Span) -> None:
    """Report a reference to an op that is not there (Skip)."""
    known = frame.ops.families
    help = did_you_mean(name, known, f"there are {listing(known)}" if known else "the dag has no ops")
    frame.ctx.report.fail("unknown-name", f"unknown op `{name}`", span, help)


def words(node: object) -> set[str]:
    """Names of all references in a piece of the syntax tree."""
    found: set[str] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.Ref):
            found.add(item.name)
        if isinstance(item, tuple):
            stack.extend(item)
        elif is_dataclass(item):
            stack.extend(getattr(item, f.name) for f in fields(item))
    return found

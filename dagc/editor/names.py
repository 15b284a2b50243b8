"""The declarations and uses of each name of a text, from the syntax tree alone, so that errors in lowering do not
matter."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from dagc.base.source import Source, Span
from dagc.cuda.lexer import names_in
from dagc.ir.enums import OpKind
from dagc.lang import ast
from dagc.lang.syntax import Token, TokenKind, scan


class Kind(Enum):
    """What a name denotes; the text is used in messages."""

    PROGRAM = "program"
    PARAM = "param"
    LET = "let"
    ENUM = "enum"
    LABEL = "label"
    SCALAR = "scalar"
    COMM = "communicator"
    ARRAY = "array"
    PART = "part"
    TUNE = "tune"
    FEATURE = "feature"
    KERNEL = "kernel"
    IMPL = "implementation"
    DAG = "dag"
    OP = "op"
    MESSAGE = "message"
    FORMAL = "formal"
    LOOP = "loop variable"


@dataclass(frozen=True, slots=True)
class Declaration:
    """`span` is that of the name, `whole` that of the item; `node` is the item, `owner` the kernel or dag around it."""

    name: str
    kind: Kind
    span: Span
    whole: Span
    node: Any = field(compare=False, repr=False)
    owner: str = ""


@dataclass(slots=True)
class NameScope:
    """Names that are visible in `span`. Ops, callables and values have separate name spaces."""

    span: Span
    parent: NameScope | None = None
    owner: str = ""
    values: dict[str, list[Declaration]] = field(default_factory=dict)
    ops: dict[str, list[Declaration]] = field(default_factory=dict)
    callables: dict[str, list[Declaration]] = field(default_factory=dict)
    inner: list[NameScope] = field(default_factory=list)

    def child(self, span: Span, owner: str = "") -> NameScope:
        scope = NameScope(span, self, owner or self.owner)
        self.inner.append(scope)
        return scope

    def chain(self) -> Iterator[NameScope]:
        """This scope and those around it, innermost first."""
        scope: NameScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def find(self, space: str, name: str) -> list[Declaration]:
        """The declarations of the innermost scope that has the name; `space`: values, ops or callables."""
        for scope in self.chain():
            declared: list[Declaration] = getattr(scope, space).get(name, [])
            if declared:
                return declared
        return []


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of a name, its declaration included."""

    span: Span
    meant: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class FileUse:
    """A place that names a function of another file, or a file: `function` is "" then."""

    span: Span
    file: str
    function: str = ""


@dataclass(slots=True)
class NameIndex:
    """Names of a program and of its included files. `uses` are sorted by their place, for each file."""

    root: NameScope
    declarations: list[Declaration]
    uses: dict[str, list[Occurrence]]
    files: list[FileUse]
    spaces: Mapping[
        tuple[str, Kind, str], NameScope
    ]  # the scope of a kernel, dag or exchange, by its name, kind and owner

    def at(self, file: str, offset: int) -> Occurrence | None:
        """The name at an offset, or that ends there."""
        uses = self.uses.get(file, [])
        place = bisect_right(uses, offset, key=lambda use: use.span.start) - 1
        return uses[place] if place >= 0 and offset <= uses[place].span.end else None

    def file_at(self, file: str, offset: int) -> FileUse | None:
        """The place of another file's name at an offset."""
        return next((f for f in self.files if f.span.file == file and f.span.start <= offset <= f.span.end), None)

    def at_name(self, name: str, scope: NameScope) -> list[NameScope]:
        """The scopes of the members of a name that is visible in a scope: an op, a kernel, or a named dag."""
        meant = [*scope.find("ops", name), *scope.find("callables", name)]
        scopes = (members_of(d, self.spaces) for d in meant)
        return [s for s in scopes if s is not None]

    def uses_of(self, meant: Iterable[Declaration]) -> Iterator[Occurrence]:
        """All places, declarations included, that mean one of the declarations."""
        wanted = set(meant)
        for uses in self.uses.values():
            yield from (use for use in uses if wanted & set(use.meant))

    def scope_at(self, file: str, offset: int) -> NameScope:
        """The innermost scope around an offset."""
        scope = self.root
        while True:
            around = (s for s in scope.inner if s.span.file == file and s.span.start <= offset <= s.span.end)
            inner = next(around, None)
            if inner is None:
                return scope
            scope = inner


def members_of(meant: Declaration, spaces: Mapping[tuple[str, Kind, str], NameScope]) -> NameScope | None:
    """The scope of the members of an op, of a kernel or of a named dag."""
    node = meant.node
    if isinstance(node, ast.Op) and node.kind is OpKind.DAG:
        return spaces.get((node.call.callee.name, Kind.DAG, ""))
    return spaces.get((meant.name, meant.kind, meant.owner if meant.kind is Kind.OP else ""))


def index_of(items: Iterable[ast.Item], sources: Mapping[str, Source], module: ast.Module | None = None) -> NameIndex:
    """The index of the items of a program, with those of included files in place.

    `module`: the text itself, for its name and its `include`s.
    """
    indexer = _Indexer(sources)
    items = tuple(items)
    if module is not None:
        indexer.module(module)
    indexer.declare(items, indexer.root)
    indexer.walk(items, indexer.root)
    for uses in indexer.uses.values():
        uses.sort(key=lambda use: (use.span.start, -use.span.end))
    return NameIndex(indexer.root, indexer.declarations, indexer.uses, indexer.files, indexer.spaces)


_BY_NODE = {
    ast.Let: Kind.LET, ast.Scalar: Kind.SCALAR, ast.Array: Kind.ARRAY, ast.Part: Kind.PART, ast.Tune: Kind.TUNE,
    ast.Param: Kind.PARAM, ast.Feature: Kind.FEATURE, ast.Communicator: Kind.COMM,
}  # fmt: skip
IN_CODE = frozenset((Kind.FORMAL, Kind.TUNE, Kind.PARAM, Kind.LET, Kind.LABEL, Kind.ARRAY))


class _Indexer:
    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self.root = NameScope(Span(0, 1 << 62))
        self.declarations: list[Declaration] = []
        self.uses: dict[str, list[Occurrence]] = {}
        self.files: list[FileUse] = []
        self.spaces: dict[tuple[str, Kind, str], NameScope] = {}
        self._tokens: dict[str, tuple[list[Token], list[int]]] = {}

    # ---- tokens -------------------------------------------------------------------------------

    def tokens(self, span: Span) -> Iterator[Token]:
        """The tokens of a span, without comments."""
        if span.file not in self._tokens:
            scanned = scan(self.sources[span.file].text)
            self._tokens[span.file] = scanned, [t.start for t in scanned]
        tokens, starts = self._tokens[span.file]
        for token in tokens[bisect_left(starts, span.start) : bisect_left(starts, span.end)]:
            if token.kind is not TokenKind.COMMENT:
                yield token

    def word(self, name: str, span: Span, nth: int = 0) -> Span:
        """The place of a word within a node that does not keep it; the node's own place where it is not found."""
        for token in self.tokens(span):
            if token.kind is TokenKind.WORD and token.text == name:
                if nth == 0:
                    return Span(token.start, token.end, span.file)
                nth -= 1
        return span

    # ---- declarations -------------------------------------------------------------------------

    def add(self, scope: NameScope, space: str, name: str, kind: Kind, at: Span, node: Any) -> Declaration:
        span = Span(at.start, at.start + len(name), at.file)
        declaration = Declaration(name, kind, span, node.span, node, scope.owner)
        getattr(scope, space).setdefault(name, []).append(declaration)
        self.declarations.append(declaration)
        self.use(span, [declaration])
        return declaration

    def use(self, span: Span, meant: Iterable[Declaration]) -> None:
        meant = tuple(meant)
        if meant:
            self.uses.setdefault(span.file, []).append(Occurrence(span, meant))

    def module(self, module: ast.Module) -> None:
        self.walk(tuple(item for item in module.items if isinstance(item, ast.Include)), self.root)
        if module.program is None:
            return
        at = self.word(module.program, module.span)
        span = Span(at.start, at.start + len(module.program), at.file)
        declaration = Declaration(module.program, Kind.PROGRAM, span, span, module)
        self.declarations.append(declaration)
        self.use(span, [declaration])

    def declare(self, items: Iterable[Any], scope: NameScope) -> None:
        """Enter the declarations of the items. Loops and branches add to the scope around them."""
        for item in items:
            match item:
                case ast.For():
                    self.declare(item.items, scope)
                case ast.If():
                    self.declare((*item.then, *(item.otherwise or ())), scope)
                case ast.EnumDecl():
                    self._enum(item, scope)
                case ast.Kernel() | ast.SubDag():
                    kind = Kind.KERNEL if isinstance(item, ast.Kernel) else Kind.DAG
                    self.add(scope, "callables", item.name, kind, item.name_span, item)
                case ast.Impl() if item.name is not None:
                    self.add(scope, "ops", item.name, Kind.IMPL, self.word(item.name, item.span), item)
                case ast.Message() if item.name is not None:
                    self.add(scope, "ops", item.name.name, Kind.MESSAGE, item.name.span, item)
                case ast.Op() | ast.Collective() | ast.Exchange():
                    self.add(scope, "ops", item.name.name, Kind.OP, item.name.span, item)
                case _ if type(item) in _BY_NODE:
                    self._named(item, scope)

    def _named(self, item: Any, scope: NameScope) -> None:
        kind = _BY_NODE[type(item)]
        self._type(item, scope)
        names = item.names if hasattr(item, "names") else (item.name,)
        for name in names:
            if isinstance(name, ast.DeclName):
                self.add(scope, "values", name.name, kind, name.span, item)
            else:
                self.add(scope, "values", name, kind, self.word(name, item.span), item)

    def _type(self, item: Any, scope: NameScope) -> None:
        """The type of a declaration, where a param of the program names it."""
        meant = [d for d in scope.find("values", getattr(item, "type", "")) if d.kind is Kind.PARAM]
        if meant:
            self.use(self.word(item.type, item.span), meant)

    def _enum(self, item: ast.EnumDecl, scope: NameScope) -> None:
        self.add(scope, "values", item.name, Kind.ENUM, self.word(item.name, item.span), item)
        for label in item.labels:
            again = int(label == item.name)
            self.add(scope, "values", label, Kind.LABEL, self.word(label, item.span, again), item)

    # ---- uses -----------------------------------------------------------------------------------

    def walk(self, node: Any, scope: NameScope) -> None:
        """Enter every name in a node, or in those of a tuple."""
        if isinstance(node, tuple):
            for item in node:
                self.walk(item, scope)
        elif is_dataclass(node) and not isinstance(node, type):
            getattr(self, _WALKS.get(type(node), "_children"))(node, scope)

    def _value(self, ref: ast.Ref, scope: NameScope) -> None:
        self._ref(ref, scope.find("values", ref.name), scope)

    def _block(self, node: ast.Impl | ast.MainDag, scope: NameScope) -> None:
        inner = scope.child(node.span)
        self.declare(node.items, inner)
        self._children(node, inner)

    def _edge(self, node: ast.Edge, scope: NameScope) -> None:
        for ref in (r for group in node.groups for r in group):
            self._ref(ref, scope.find("ops", ref.name), scope)

    def _select(self, node: ast.Select, scope: NameScope) -> None:
        for name in node.names:
            self.use(self.word(name, node.span), scope.find("values", name))
        self.walk(node.args, scope)

    def _setup(self, node: ast.Setup, scope: NameScope) -> None:
        self.files.append(FileUse(node.call.callee.span, node.file, node.call.callee.name))
        self._string(node.span, node.file)
        self._children(node, scope)

    def _verify(self, node: ast.Verify, scope: NameScope) -> None:
        self.files.append(FileUse(node.call.callee.span, "", node.call.callee.name))
        self._children(node, scope)

    def _include(self, node: ast.Include, scope: NameScope) -> None:
        self._string(node.span, node.file)

    def _children(self, node: Any, scope: NameScope) -> None:
        """What a node consists of; the name before its colon is a declaration, of which the indices alone are uses."""
        for each in fields(node):
            child = getattr(node, each.name)
            if each.name == "name" and isinstance(child, ast.Ref):
                self._ref(child, (), scope)
            elif each.compare:
                self.walk(child, scope)

    def _arguments(self, call: ast.Call, scope: NameScope) -> None:
        for arg in call.args:
            self.walk(arg.value if isinstance(arg, ast.Named) else arg, scope)

    def _ref(self, ref: ast.Ref, meant: Iterable[Declaration], scope: NameScope) -> None:
        """A name with its members; `meant`: what its first word means, where that is not entered already."""
        meant = tuple(meant)
        self.use(Span(ref.span.start, ref.span.start + len(ref.name), ref.span.file), meant)
        for trailer in ref.trailers:
            if isinstance(trailer, ast.Index):
                self.walk(trailer.items, scope)
                continue
            spaces = [s for s in (members_of(d, self.spaces) for d in meant) if s is not None]
            meant = tuple(d for s in spaces for d in s.ops.get(trailer.name, []))
            end = trailer.span.end
            self.use(Span(end - len(trailer.name), end, ref.span.file), meant)

    def _callable(self, node: ast.Kernel | ast.SubDag, scope: NameScope) -> None:
        inner = scope.child(node.span, node.name)
        kind = Kind.KERNEL if isinstance(node, ast.Kernel) else Kind.DAG
        self.spaces[node.name, kind, ""] = inner
        for formal in node.formals:
            self._type(formal, scope)
            for name in formal.names:
                self.add(inner, "values", name.name, Kind.FORMAL, name.span, formal)
        self.declare(node.items, inner)
        self.walk(tuple(f.dims for f in node.formals if f.dims), inner)
        self.walk(node.items, inner)

    def _for(self, node: ast.For, scope: NameScope) -> None:
        inner = scope.child(node.span)
        for binding in node.bindings:
            self.walk(binding.range, inner)
            self.add(inner, "values", binding.name, Kind.LOOP, binding.span, binding)
        self.walk(node.items, inner)

    def _op(self, node: ast.Op, scope: NameScope) -> None:
        self._ref(node.name, (), scope)
        callee = scope.find("callables", node.call.callee.name)
        self._ref(node.call.callee, callee, scope)
        formals = [s for s in (members_of(d, self.spaces) for d in callee) if s is not None]
        for arg in node.call.args:
            if isinstance(arg, ast.Named):
                named = [d for s in formals for d in self._tunes(s, arg.name)]
                self.use(Span(arg.span.start, arg.span.start + len(arg.name), arg.span.file), named)
                self.walk(arg.value, scope)
            else:
                self.walk(arg, scope)
        self.walk(node.stream, scope)

    def _tunes(self, scope: NameScope, name: str) -> list[Declaration]:
        """A tunable of a kernel or of one of its implementations."""
        declared = [d for s in (scope, *scope.inner) for d in s.values.get(name, [])]
        return [d for d in declared if d.kind is Kind.TUNE]

    def _exchange(self, node: ast.Exchange, scope: NameScope) -> None:
        self._ref(node.name, (), scope)
        self.walk(node.comm, scope)
        self.walk(node.split, scope)
        inner = scope.child(node.span)
        self.spaces.setdefault((node.name.name, Kind.OP, scope.owner), inner)
        self.declare(node.items, inner)
        self.walk(node.items, inner)

    def _string(self, span: Span, file: str) -> None:
        for token in self.tokens(span):
            if token.kind is TokenKind.STRING:
                self.files.append(FileUse(Span(token.start, token.end, span.file), file))
                return

    def _code(self, node: ast.Code, scope: NameScope) -> None:
        """Words of a code text that are names of the kernel or of the program. A local variable of that name counts."""
        if node.file is not None:
            self._string(node.span, node.file)
            if node.function is not None:
                self.files.append(FileUse(self.word(node.function, node.span), node.file, node.function))
            self.walk(node.arguments, scope)
            return
        for token in self.tokens(node.span):
            if token.kind is TokenKind.TEXT:
                for name in names_in(token.text[3:-3]):
                    if not name.member:
                        meant = [d for d in scope.find("values", name.text) if d.kind in IN_CODE]
                        at = token.start + 3 + name.start
                        self.use(Span(at, at + len(name.text), node.span.file), meant)


_WALKS = {  # nodes whose names are not all values, or that open a scope; of all others the children are walked
    ast.Ref: "_value", ast.Kernel: "_callable", ast.SubDag: "_callable", ast.Impl: "_block", ast.MainDag: "_block",
    ast.For: "_for", ast.Op: "_op", ast.Exchange: "_exchange",
    ast.Edge: "_edge", ast.Select: "_select", ast.Setup: "_setup", ast.Verify: "_verify", ast.Include: "_include",
    ast.Code: "_code", ast.Call: "_arguments",
}  # fmt: skip

"""Scopes of values: program, dag, kernel, implementation. No shadowing, but for the formals of a kernel or dag."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from dagc import ir
from dagc.cxx_words import KEYWORDS, VARIABLES, is_reserved
from dagc.cxx_words_global import is_macro
from dagc.lang import ast
from dagc.lang.lower_report import Report
from dagc.lang.lower_values import Kind, Value
from dagc.source import Span
from dagc.sym import Sym

Key: TypeAlias = tuple[int, ...]


class What(Enum):
    """What a name stands for; the word is the one of messages."""

    PARAM = "a param"
    LET = "a let"
    ENUM = "an enum"
    LABEL = "a label"
    SCALAR = "a scalar"
    ARRAY = "an array"
    PART = "a part"
    TUNE = "a tune"
    LOOP = "a loop variable"
    FORMAL = "a formal"
    FEATURE = "a feature"


_SEEN_BY_CODE = (What.PARAM, What.LET, What.LABEL, What.TUNE, What.FORMAL)


@dataclass(frozen=True, slots=True)
class Storage:
    """An array, a part, a slice, or the formal of a compound that stands for one.

    `dims` are those of the region; None where the whole shape is unknown (a part without bounds).
    `mode` limits what may be done with it (a formal of a compound); None: no limit but the role.
    """

    array: ir.Array
    region: ir.Region
    dims: tuple[Sym | None, ...] | None
    label: str  # the display name it was called by
    mode: ast.Mode | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One instance of a declared name. `value` is None for the array formals of a kernel."""

    display: str
    value: Value | Storage | None
    span: Span


@dataclass(slots=True)
class Family:
    """All instances of one name: `snd[x,lo]`, `snd[x,hi]`, ... `broken`: its declaration had an error."""

    name: str
    what: What
    span: Span
    arity: int
    instances: dict[Key, Bound] = field(default_factory=dict)
    broken: bool = False


@dataclass(slots=True)
class Scope:
    """`kinds` are those of the symbolic variables that the scope introduces."""

    parent: Scope | None = None
    kernel: bool = False  # sees only compile-time names of its parents
    families: dict[str, Family] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)

    def find(self, name: str) -> tuple[Family, bool] | None:
        """The family, and whether it is outside of a kernel that we are in."""
        scope: Scope | None = self
        outside = False
        while scope is not None:
            if name in scope.families:
                return scope.families[name], outside
            outside = outside or scope.kernel
            scope = scope.parent
        return None

    def names(self) -> set[str]:
        own = set(self.families)
        return own | self.parent.names() if self.parent else own

    def kind_of(self, var: str) -> Kind:
        scope: Scope | None = self
        while scope is not None:
            if var in scope.kinds:
                return scope.kinds[var]
            scope = scope.parent
        return Kind.INT  # rank, ranks, hw.*

    def declare(
        self, report: Report, what: What, name: str, key: Key, bound: Bound, hides: frozenset[What] = frozenset()
    ) -> None:
        """Add an instance. Reports reserved-name, duplicate-name, shadowed-name, bad-index and gives up (Skip)."""
        self._refuse_cxx(report, what, name, bound.span)
        family = self.families.get(name)
        if family is None:
            self._refuse_shadow(report, name, bound.span, hides)
            family = self.families[name] = Family(name, what, bound.span, len(key))
        first = ((family.span, "first declared here"),)
        if family.what is not what or (not key and () in family.instances):
            family.broken = True  # what its uses mean is anyone's guess
            report.fail(
                "duplicate-name", f"`{name}` is already {family.what.value}", bound.span, "choose another name", first
            )
        if family.arity != len(key):
            report.fail(
                "bad-index",
                f"`{bound.display}` has {_indices(len(key))}, but `{name}` was declared with {_indices(family.arity)}",
                bound.span,
                "give every instance of a name as many indices",
                first,
            )
        if key in family.instances:
            at = ((family.instances[key].span, "first declared here"),)
            report.fail(
                "duplicate-name",
                f"`{bound.display}` is declared twice",
                bound.span,
                "index it by the loop variable, or choose another name",
                at,
            )
        family.instances[key] = bound

    def break_name(self, name: str, what: What, span: Span, arity: int) -> None:
        """Remember a name whose declaration was wrong, so that its uses are not reported too."""
        family = self.families.setdefault(name, Family(name, what, span, arity))
        family.broken = True

    def _refuse_cxx(self, report: Report, what: What, name: str, span: Span) -> None:
        """Code sees these names as they are, so they cannot be words of C++; arrays of the program get other names."""
        refuse_reserved(report, name, span)
        scratch = what is What.ARRAY and self.parent is not None and self.parent.kernel
        if not (what in _SEEN_BY_CODE or scratch):
            return
        if name in KEYWORDS | VARIABLES:
            language = "C++" if name in KEYWORDS else "CUDA"
            report.fail("reserved-name", f"`{name}` is a word of {language}", span, "choose another name")
        if is_macro(name):
            report.fail("reserved-name", f"`{name}` is a macro of C", span, "choose another name")

    def _refuse_shadow(self, report: Report, name: str, span: Span, hides: frozenset[What]) -> None:
        if self.parent is None:
            return
        found = self.parent.find(name)
        if found and found[0].what not in hides:
            report.fail(
                "shadowed-name",
                f"`{name}` would hide {found[0].what.value} of the same name",
                span,
                "choose another name",
                ((found[0].span, "declared here"),),
            )


def refuse_reserved(report: Report, name: str, span: Span) -> None:
    """Report a name that C++ reserves for compilers (Skip)."""
    if is_reserved(name):
        report.fail(
            "reserved-name",
            f"`{name}` is reserved in C++: names that begin with `__`, or with `_` and a capital, are the compiler's",
            span,
            "choose another name",
        )


def _indices(count: int) -> str:
    return {0: "no index", 1: "one index"}.get(count, f"{count} indices")

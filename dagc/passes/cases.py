"""Findings of a text for all values of what is open: of each decision that the structure of the program depends on, and
of the params with values after `over`.

An error for some values only is found, and says for which. Advice to drop something is given only if it holds for all
values; without a word on some of them, none is given of what other parts of the text mention.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagc.base.errors import Diagnostic, Finding, Severity, UsageError
from dagc.base.source import Source, Span
from dagc.ir.choice import VARIANT, own_name
from dagc.ir.program import Graph, Program, Value
from dagc.lang import ast
from dagc.lang.lower import Lowered, Parsed, analyse
from dagc.lang.scope import EXPANSION_LIMIT, PREDEFINED, listing, spelled

MOST_CASES = 64
MOST_WORK = 1000  # about 0.4 s
_WORK = 10  # of a lowering, beside its ops and the turns of its loops
_CHARACTERS = 5000  # of the text, for a unit of work

Values = Mapping[str, Value]
Build = Callable[[Program], tuple[Graph | None, tuple[Diagnostic, ...]]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many combinations of the decisions `names` were examined, of how many; `alone`: whether all values that are
    examined one at a time were."""

    examined: int
    combinations: int
    names: tuple[str, ...]
    alone: bool = True

    @property
    def complete(self) -> bool:
        return self.alone and self.examined >= self.combinations

    def render(self) -> str:
        """A line if not all were examined; else ""."""
        if self.complete:
            return ""
        of = f" of {listing(self.names)}" if self.names else ""
        what = f"{self.examined} of {self.combinations} combinations{of} examined"
        also = "" if self.alone else ", and not all values of the other decisions and params"
        return f"{what}{also}: what is unused in them may be used in others, and is not reported"


@dataclass(frozen=True, slots=True)
class _Case:
    """The program for some values. `failed`: it has errors; `outside`: a `require` excludes the values, or the
    transport `put`, which few programs allow."""

    values: Values
    lowered: Lowered
    graph: Graph | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def failed(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self.diagnostics)

    @property
    def outside(self) -> bool:
        return any(d.code in ("unsatisfiable-require", "not-put") for d in self.diagnostics)


@dataclass(frozen=True, slots=True)
class Examined:
    """`lowered` and `graph` are those of the default values; `diagnostics` those of all."""

    lowered: Lowered
    graph: Graph | None
    diagnostics: tuple[Diagnostic, ...]
    coverage: Coverage


def examine(parsed: Parsed, defines: Values, build: Build) -> Examined:
    """Lower the program for all values of what is open, within MOST_CASES and MOST_WORK, and build its graphs.

    Raises UsageError for a bad entry of `defines`.
    """
    first = _case(parsed, defines, {}, build)
    trials = _Trials(parsed, defines, build)
    structural = _structural(parsed)
    cases, coverage = _combinations(trials, first, structural)
    if not first.failed:
        cases += [case for values in _ends(first, structural) for case in trials.of(values)]
        coverage = replace(coverage, alone=not trials.cut or not coverage.complete)
    cases = [first, *(case for case in cases if not case.outside)]
    dormant = _dormant(parsed, cases, coverage.complete)
    findings = _merged(cases, dormant)
    return Examined(first.lowered, first.graph, _sorted(findings, first.lowered.sources), coverage)


# ---- which values ----------------------------------------------------------------------------------


def _case(parsed: Parsed, defines: Values, values: Values, build: Build, most: int = EXPANSION_LIMIT) -> _Case:
    lowered = analyse(parsed, {**defines, **values}, most)
    if lowered.program is None:
        return _Case(values, lowered, None, lowered.diagnostics)
    graph, more = build(lowered.program)
    return _Case(values, lowered, graph, (*lowered.diagnostics, *more))


class _Trials:
    """Lowers the text for other values, within MOST_CASES and MOST_WORK."""

    def __init__(self, parsed: Parsed, defines: Values, build: Build) -> None:
        self._parsed, self._defines, self._build = parsed, defines, build
        self._cases, self._left = MOST_CASES, MOST_WORK
        self._each = _WORK + sum(len(source.text) for source in parsed.sources.values()) // _CHARACTERS
        self.examined = 1
        self.cut = False  # whether a bound was reached

    def of(self, values: Values) -> list[_Case]:
        """None beyond the bounds, or if the program lacks a decision of `values` under the others."""
        most = self._left - self._each
        if self._cases <= 1 or most <= 0:
            self.cut = True
            return []
        self._cases -= 1
        try:
            case = _case(self._parsed, self._defines, values, self._build, most)
        except UsageError:
            self.examined += 1
            return []
        self._left -= self._each + case.lowered.trail.work
        if self._left <= 0 and any(d.code == "too-many-ops" for d in case.diagnostics):
            self.cut = True
            return []
        self.examined += 1
        return [case]


def _combinations(trials: _Trials, first: _Case, structural: frozenset[str]) -> tuple[list[_Case], Coverage]:
    """The cases beside the first. Each combination belongs to one case: with those values for a prefix of its open
    choices, and any other value for the next one."""
    cases: list[_Case] = []
    names: dict[str, int] = {}
    todo = deque(_others(first, structural, names))
    wanted = 1
    while todo:
        wanted += 1
        for case in trials.of(todo.popleft()):
            cases.append(case)
            todo.extend(_others(case, structural, names))
    combinations = wanted if trials.examined == wanted else math.prod(names.values())
    return cases, Coverage(trials.examined, max(combinations, wanted), tuple(names))


def _others(case: _Case, structural: frozenset[str], names: dict[str, int]) -> Iterator[Values]:
    """The values of the cases that differ from this one in a choice that was open in it. `names` gets the choices."""
    trail = case.lowered.trail
    given = dict(case.values)
    params = {name: each for name, each in trail.params.items() if name in structural}
    decisions = {name: each for name, each in trail.opened.items() if name in trail.decides}
    for name, (chosen, values) in {**params, **decisions}.items():
        if name in case.values:
            continue
        names[name] = len(values)
        yield from ({**given, name: value} for value in values if value != chosen)
        given[name] = chosen


def _ends(first: _Case, structural: frozenset[str]) -> Iterator[Values]:
    """The smallest and the largest value of each param that only sizes depend on; the values of each other decision of
    the program, and the variants of each op."""
    trail = first.lowered.trail
    for name, (chosen, values) in trail.params.items():
        if name not in structural:
            yield from (
                {name: v} for v in dict.fromkeys((min(values, key=_order), max(values, key=_order))) if v != chosen
            )
    for name, (chosen, values) in trail.opened.items():
        if ("." not in name or own_name(name) == VARIANT) and name not in trail.decides:
            yield from ({name: v} for v in values if v != chosen)


def _order(value: Value) -> tuple[float, str]:
    return (0.0, value) if isinstance(value, str) else (float(value), "")


_WORD = re.compile(r"[A-Za-z_]\w*")


def _structural(parsed: Parsed) -> frozenset[str]:
    """The names in tests, ranges of loops and of tunes, and indices, also by way of `let`."""
    text = _Texts(parsed.sources)
    lets: dict[str, set[str]] = {}
    names: set[str] = set()
    for node in ast.nodes(parsed.items):
        if isinstance(node, ast.Let):
            lets.setdefault(node.name.name, set()).update(text.words(node.value.span))
        elif isinstance(node, ast.If):
            names |= text.words(node.test.span)
        elif isinstance(node, ast.For):
            names |= {word for binding in node.bindings for word in text.words(binding.span)}
        elif isinstance(node, ast.Tune):
            names |= text.words(node.range.span)
        elif isinstance(node, ast.Index):
            names |= text.words(node.span)
    todo = list(names)
    while todo:
        new = lets.pop(todo.pop(), set()) - names
        names |= new
        todo += new
    return frozenset(names)


# ---- what is found ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Texts:
    sources: Mapping[str, Source]

    def words(self, span: Span) -> set[str]:
        return set(_WORD.findall(self.sources[span.file].text[span.start : span.end]))


def _dormant(parsed: Parsed, cases: Sequence[_Case], complete: bool) -> Callable[[Iterable[str]], bool]:
    """Whether a part of the text that no case has read mentions one of the names. If the cases are not `complete`:
    whether any other place does, or there is no name."""
    text = _Texts(parsed.sources)
    if not complete:
        counts: dict[str, int] = {}
        for source in parsed.sources.values():
            for word in _WORD.findall(source.text):
                counts[word] = counts.get(word, 0) + 1
        return lambda names: not names or any(counts.get(name, 0) > 1 for name in names)
    reached = {each for case in cases for each in case.lowered.trail.reached}
    words = {each for case in cases for each in case.lowered.trail.mentioned}
    for node in ast.nodes(parsed.items):
        sides: list[tuple[bool, Sequence[ast.Item]]] = []
        if isinstance(node, ast.If):
            sides = [(True, node.then), (False, node.otherwise or ())]
        elif isinstance(node, ast.For | ast.SubDag):
            sides = [(True, node.items)]
        for side, items in sides:
            if items and (node.span.file, node.span.start, side) not in reached:
                words |= text.words(Span(items[0].span.start, items[-1].span.end, node.span.file))
    return lambda names: any(name in words for name in names)


def _merged(cases: Sequence[_Case], dormant: Callable[[Iterable[str]], bool]) -> list[Diagnostic]:
    """The findings of all cases, each once."""
    good = [case for case in cases if not case.failed]
    if not good:
        cases = cases[:1]
    advice: dict[Finding, frozenset[str]] = {}
    for case in good:
        for key, names in case.lowered.trail.advice.items():
            advice[key] = advice.get(key, frozenset()) | names
    refuted = {key for case in cases for key in case.lowered.trail.refuted}
    found: dict[Finding, list[_Case]] = {}
    texts: dict[Finding, list[Diagnostic]] = {}
    for case in cases:
        for diagnostic in case.diagnostics:
            if not found.setdefault(diagnostic.key, []) or found[diagnostic.key][-1] is not case:
                found[diagnostic.key].append(case)
            if found[diagnostic.key] == [case]:
                texts.setdefault(diagnostic.key, []).append(diagnostic)
    out: list[Diagnostic] = []
    for key, those in texts.items():
        if key in advice:
            out += those if key not in refuted and not dormant(advice[key]) else ()
        elif any(case not in found[key] for case in good):
            out += (_limited(d, found[key], cases) for d in those)
        else:
            out += those
    return out


def _limited(diagnostic: Diagnostic, having: Sequence[_Case], cases: Sequence[_Case]) -> Diagnostic:
    """With the values for which it is found."""
    shown = [_all_values(case) for case in having]
    others = [_all_values(case) for case in cases if case not in having]
    values = {n: v for n, v in shown[0].items() if any(other.get(n, v) != v for other in others)}
    one = next(({n: v} for n, v in values.items() if all(other.get(n) != v for other in others)), values)
    where = ", ".join(f"{name} = {spelled(value)}" for name, value in one.items())
    # What a transport cannot do is left out of a search.
    severity = Severity.NOTE if one and one.keys() <= PREDEFINED.keys() else diagnostic.severity
    message = f"{diagnostic.message} (where {where})" if where else diagnostic.message
    return replace(diagnostic, message=message, severity=severity)


def _all_values(case: _Case) -> dict[str, Value]:
    trail = case.lowered.trail
    taken = {name: chosen for name, (chosen, _) in (*trail.params.items(), *trail.opened.items())}
    return {**taken, **case.values}


def _sorted(findings: Iterable[Diagnostic], sources: Mapping[str, Source]) -> tuple[Diagnostic, ...]:
    order = {name: i for i, name in enumerate(sources)}
    return tuple(sorted(findings, key=lambda d: (order.get(d.span.file, -1), d.span.start, d.span.end)))

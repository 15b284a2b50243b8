"""Which rules of a path say nothing that the others, and the edges of the program, do not say already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagc.results import Configuration
from dagc.rules.features import Samples, Vocabulary, chosen
from dagc.rules.types import Kind, Rule


class Implications:
    """What follows from what, for the graphs and configurations of some samples.

    Complete for nothing, sound for everything: a rule is left out only where the rest proves it.
    """

    def __init__(self, samples: Samples) -> None:
        self.vocabulary: Vocabulary = samples.vocabulary
        self.configurations: tuple[Configuration, ...] = tuple(
            sorted(set(samples.configurations), key=lambda c: c.text)
        )
        self.two_streams = samples.most_streams <= 2 and not (samples.streams > 1).any()

    def merge(self, path: Sequence[Rule]) -> tuple[Rule, ...]:
        """The rules of a path without the implied ones. The earliest goes first: later ones are more special."""
        kept = list(dict.fromkeys(path))
        for rule in list(kept):
            rest = [r for r in kept if r != rule]
            if self.implies(rest, rule):
                kept = rest
        return tuple(kept)

    def implies(self, rules: Iterable[Rule], wanted: Rule) -> bool:
        """Does `wanted` hold wherever all `rules` hold?"""
        rules = list(rules)
        match wanted.feature.kind:
            case Kind.BEFORE:
                return self._order(rules, wanted)
            case Kind.SAME | Kind.DIFFERENT:
                return self._stream(rules, wanted)
            case _:
                return self._choice(rules, wanted)

    # ---- orders -------------------------------------------------------------------------

    def _order(self, rules: list[Rule], wanted: Rule) -> bool:
        pair = _pair(wanted)
        if pair is None:
            # "a not before b" follows from b before a.
            pair = wanted.feature.b, wanted.feature.a
        after: dict[str, set[str]] = {}
        known = set(self.vocabulary.always)
        for found in (_pair(rule) for rule in rules if rule.feature.kind is Kind.BEFORE):
            if found is not None:
                after.setdefault(found[0], set()).add(found[1])
                known |= set(found)
        if not known.issuperset(pair):
            return False
        for a, b in self.vocabulary.implied:
            if a in known and b in known:
                after.setdefault(a, set()).add(b)
        return _reaches(after, *pair)

    # ---- streams ------------------------------------------------------------------------

    def _stream(self, rules: list[Rule], wanted: Rule) -> bool:
        """Walk from op to op over "same" (no change) and "different" (a change): one change is different, and on two
        streams any even number is the same, any odd one different."""
        want = _differs(wanted)
        if want is None:
            return False
        links: list[tuple[str, str, int]] = []
        for rule in rules:
            differs = _differs(rule) if rule.feature.kind in (Kind.SAME, Kind.DIFFERENT) else None
            if differs is not None:
                links += [(rule.feature.a, rule.feature.b, differs), (rule.feature.b, rule.feature.a, differs)]
        seen, todo = {(wanted.feature.a, 0)}, [(wanted.feature.a, 0)]
        while todo:
            at, changes = todo.pop()
            for a, b, differs in links:
                total = (changes + differs) % 2 if self.two_streams else changes + differs
                if a == at and total < 2 and (b, total) not in seen:
                    seen.add((b, total))
                    todo.append((b, total))
        return (wanted.feature.b, want) in seen

    # ---- choices ------------------------------------------------------------------------

    def _choice(self, rules: list[Rule], wanted: Rule) -> bool:
        """By looking at all configurations: those that the other choices allow must all do."""
        left = [
            c for c in self.configurations
            if all(chosen(r.feature, c) == r.truth for r in rules if r.feature.kind in (Kind.CHOICE, Kind.AT_MOST))
        ]  # fmt: skip
        return all(chosen(wanted.feature, c) == wanted.truth for c in left)


def _pair(rule: Rule) -> tuple[str, str] | None:
    """(a, b) where a rule says that both are there and a is before b."""
    feature = rule.feature
    if rule.truth:
        return feature.a, feature.b
    return (feature.b, feature.a) if feature.total else None


def _differs(rule: Rule) -> int | None:
    """1 where a rule says that two ops are on different streams, 0 on the same, None where one may be absent."""
    if not rule.truth and not rule.feature.total:
        return None
    return int((rule.feature.kind is Kind.DIFFERENT) == rule.truth)


def _reaches(after: dict[str, set[str]], a: str, b: str) -> bool:
    seen, todo = {a}, [a]
    while todo:
        for name in after.get(todo.pop(), ()):
            if name == b:
                return True
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return False

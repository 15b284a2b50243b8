"""Which rules of a path say nothing that the others, and the edges of the program, do not say already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dagc.learn.rules.features import Samples, Vocabulary, are_two, chosen
from dagc.learn.rules.types import Feature, FeatureKind, Rule
from dagc.store.results import Configuration, shown


class Implications:
    """What follows from what, for the graphs and configurations of some samples.

    Complete for nothing, sound for everything: a rule is left out only where the rest proves it.
    """

    def __init__(self, samples: Samples) -> None:
        self.vocabulary: Vocabulary = samples.vocabulary
        self.always = samples.always
        self.configurations: tuple[Configuration, ...] = tuple(
            sorted(set(samples.configurations), key=lambda c: c.text)
        )
        self.two_streams = samples.most_streams <= 2 and not (samples.streams > 1).any()

    def merge(self, path: Sequence[Rule]) -> tuple[Rule, ...]:
        """The rules of a path without the implied ones. The earliest goes first: later ones are more special.

        What only the choices of the path make certain is said: `in different streams` instead of `not in the same
        stream` where both ops are there, `transport = peer` instead of `is not` all others.
        """
        present = self._present(path)
        rules = list(dict.fromkeys(_certain(rule, present) for rule in path))
        for rule in list(rules):
            rest = [r for r in rules if r != rule]
            if self.implies(rest, rule):
                rules = rest
        return self._join(rules)

    def _present(self, rules: Iterable[Rule]) -> frozenset[str]:
        """Names that are there in every configuration that the rules leave."""
        left = [self.always[c] for c in self._left(rules)]
        return frozenset.intersection(*left) if left else frozenset()

    def _left(self, rules: Iterable[Rule]) -> list[Configuration]:
        choices = [r for r in rules if r.feature.kind in (FeatureKind.CHOICE, FeatureKind.AT_MOST)]
        return [c for c in self.configurations if all(chosen(r.feature, c) == r.truth for r in choices)]

    def _join(self, rules: list[Rule]) -> tuple[Rule, ...]:
        """Several rules about the values of one decision as one, in the place of the last."""
        for name in dict.fromkeys(r.feature.a for r in rules if r.feature.kind is FeatureKind.CHOICE):
            about = [r for r in rules if r.feature.kind is FeatureKind.CHOICE and r.feature.a == name]
            values = {c.get(name) for c in self._left(about)}
            if len(about) > 1 and values and None not in values:
                words = " or ".join(sorted(shown(v) for v in values if v is not None))
                one = Rule(Feature(FeatureKind.CHOICE, name, words, total=False), True)
                rules = [one if r == about[-1] else r for r in rules if r not in about[:-1]]
        return tuple(rules)

    def implies(self, rules: Iterable[Rule], wanted: Rule) -> bool:
        """Does `wanted` hold wherever all `rules` hold?"""
        rules = list(rules)
        match wanted.feature.kind:
            case FeatureKind.BEFORE:
                return self._order(rules, wanted)
            case FeatureKind.SAME | FeatureKind.DIFFERENT:
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
        known = set(self._present(rules))
        for order in (_pair(rule) for rule in rules if rule.feature.kind is FeatureKind.BEFORE):
            if order is not None:
                after.setdefault(order[0], set()).add(order[1])
                known |= set(order)
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
            differs = _differs(rule) if rule.feature.kind in (FeatureKind.SAME, FeatureKind.DIFFERENT) else None
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
        return all(chosen(wanted.feature, c) == wanted.truth for c in self._left(rules))


def _certain(rule: Rule, present: frozenset[str]) -> Rule:
    """A rule about names that are all there: no third answer."""
    feature = rule.feature
    if feature.total or not present.issuperset((feature.a, feature.b)):
        return rule
    if feature.kind is FeatureKind.BEFORE:
        return Rule(replace(feature, total=True), rule.truth) if are_two(feature.a, feature.b) else rule
    return Rule(Feature(FeatureKind.SAME, feature.a, feature.b), rule.truth == (feature.kind is FeatureKind.SAME))


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
    return int((rule.feature.kind is FeatureKind.DIFFERENT) == rule.truth)


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

"""Rules as input: those for the fast end in a file of `dagc rules --format json`, on the ops of a program
(`dagc.learn.kinds`); implementations of a domain that follow them; the first implementation of a program by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from dagc.base.errors import ProgramError, UsageError, counted, parsed_json
from dagc.base.python import np
from dagc.base.source import read_file
from dagc.ir.choice import Choice
from dagc.ir.program import TRANSPORT, shown
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.learn.fast import FastRule
from dagc.learn.features import TIMES, Samples, chosen
from dagc.learn.kinds import Binder, BoundRule, described
from dagc.learn.types import FeatureKind, Floats, Rule, RuleFeature
from dagc.space import Space

if TYPE_CHECKING:
    from dagc.ir.program import Decision, Graph
    from dagc.ir.traversal import Traversal
    from dagc.stages.options import ExploreOptions
    from dagc.stages.program import ProgramText

COUNT = 4  # followers that are measured first; more would leave too little to draws where rules do not hold
DRAWN, ROUNDS, KEPT, NEAR = 100, 12, 10, 10  # of the search for them: draws, rounds, those kept, neighbours of each
_KINDS = {kind.value: kind for kind in FeatureKind}


def check_rules(options: ExploreOptions) -> None:
    """Raises UsageError for a file of `--follow` that is of no use, before anything is compiled."""
    if options.follow is not None:
        read_rules(options.follow)


def followed(options: ExploreOptions, domain: Orders, notes: list[str]) -> tuple[Candidate, ...]:
    """The implementations that a search measures first (`--follow`). Raises UsageError if none follows any rule."""
    if options.follow is None:
        return ()
    found, note = followers(domain, read_rules(options.follow), options.follow, options.seed)
    notes.append(note)
    return found


# ---- files ----------------------------------------------------------------------------------


ADVICE = "give a file that `dagc rules RESULTS --format json` wrote"


def read_rules(path: str) -> tuple[FastRule, ...]:
    """The rules for the fast end, or those that hold on all inputs of several files, with what breaking each costs
    (NaN: unknown). Raises UsageError."""
    try:
        content = parsed_json(read_file(path).decode("utf-8"), path, ADVICE)
    except (OSError, UnicodeDecodeError) as error:
        why = "not a text" if isinstance(error, UnicodeDecodeError) else str(error.strerror or error)
        raise UsageError(
            f"{path} cannot be read: {why[:1].lower()}{why[1:]}", f"{ADVICE} to a file of its own"
        ) from None
    entries = _entries(content, path) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} has no rules for the fast end", ADVICE)
    if not entries:
        raise UsageError(
            f"{path}: no choice or order separated fast from slow there",
            "search without --follow, compile without --apply",
        )
    return tuple(_rule(entry, f"{path}: rule {number}", ADVICE) for number, entry in enumerate(entries, 1))


def _entries(content: dict[str, Any], path: str) -> Any:
    """The list of rules in a file of one exploration, or of several inputs on which the same rules hold."""
    groups = content.get("groups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        found = content.get("fast_end")
        if found is None and "fast_end" in content:  # what `dagc rules` writes where it found none
            return []
        return found.get("rules") if isinstance(found, dict) else None
    if len(groups) > 1:
        where = ", ".join(f"`{group.get('condition') or 'other inputs'}`" for group in groups)
        raise UsageError(
            f"{path} has {len(groups)} sets of rules: for {where}", "give the rules of inputs of one of these"
        )
    return groups[0].get("rules") if groups else []


def _rule(entry: Any, where: str, advice: str) -> FastRule:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not an object", advice)
    kind, a, b, holds, cost = (entry.get(key) for key in ("kind", "a", "b", "holds", "cost"))
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None or not isinstance(a, str) or not isinstance(b, str) or not isinstance(holds, bool):
        raise UsageError(f"{where} has no known `kind`, `a`, `b` or `holds`", advice)
    if known is FeatureKind.AT_MOST and not _is_number(b):
        raise UsageError(f"{where}: `{b}` is not a number", advice)
    kinds = entry.get("kinds", ["", ""])  # files of earlier versions have none
    if not isinstance(kinds, list) or len(kinds) != 2 or not all(isinstance(one, str) for one in kinds):
        raise UsageError(f"{where}: `kinds` are not two texts", advice)
    seconds = float(cost) if isinstance(cost, int | float) and _is_number(cost) else math.nan
    total = entry.get("total") is True
    return FastRule(Rule(RuleFeature(known, a, b, total), holds), seconds, 0, (kinds[0], kinds[1]))


def _is_number(value: str | float) -> bool:
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


# ---- implementations that follow rules ----------------------------------------------------------


def agreement(samples: Sequence[tuple[Graph, Choice, Traversal]], rules: Sequence[FastRule]) -> Floats:
    """The weight of the rules that each sample follows; of a rule on several ops, the share of these that do."""
    out = np.zeros(len(samples))
    table = Samples(samples)
    graphs = np.array([id(graph) for graph, _, _ in samples])
    for graph in table.graphs:
        binder, mine = Binder(graph), graphs == id(graph)
        for one in rules:
            bound = binder.bind(one.rule, one.kinds).rules
            for rule in bound:
                out += mine * (table.ask(rule.feature) == rule.truth) * (one.weight / len(bound))
    return out


def followers(domain: Orders, rules: Sequence[FastRule], path: str, seed: int) -> tuple[tuple[Candidate, ...], str]:
    """Candidates that follow the rules, at most COUNT, and a note; those that come closest if none follows all.

    A local search from uniform draws: a rule counts the more, the more breaking it costs. Raises UsageError if no
    candidate follows any rule.
    """
    random = Random(seed)
    pool = list(dict.fromkeys(domain.sample(random) for _ in range(DRAWN)))
    whole = sum(one.weight for one in rules)
    for _ in range(ROUNDS):
        scored = _scored(domain, rules, pool)
        best = sorted(pool, key=lambda c: -scored[c])[:KEPT]
        if len(best) >= COUNT and math.isclose(scored[best[COUNT - 1]], whole):
            break
        pool = list(dict.fromkeys([*best, *(domain.near(c, random) for c in best for _ in range(NEAR))]))
    scored = _scored(domain, rules, pool)
    most = max(scored.values())
    found = [c for c in pool if math.isclose(scored[c], most)][:COUNT]
    kept = _kept(domain, rules, found[0])
    if not most:
        raise UsageError(f"no implementation here follows a rule of {path}", "give rules of a program with such ops")
    binder = Binder(domain.spaces[found[0].space].graph)
    missing = [(one.rule.text, binder.bind(one.rule, one.kinds)) for one in rules if one not in kept]
    broken = ", ".join(f"`{text}`" for text, bound in missing if bound.rules)
    without = f"; none follows {broken} too" if broken else ""
    without += "".join(f"; `{text}` does not apply: {bound.note}" for text, bound in missing if not bound.rules)
    those = "of the rule" if len(rules) == 1 else f"{len(kept)} of {len(rules)} rules"
    note = f"measures {counted(len(found), 'implementation')} first that follow {those} of {path}{without}"
    return tuple(found), note


def _sample(domain: Orders, candidate: Candidate) -> tuple[Graph, Choice, Traversal]:
    return domain.spaces[candidate.space].graph, domain.configuration(candidate), candidate.traversal


def _scored(domain: Orders, rules: Sequence[FastRule], pool: Sequence[Candidate]) -> dict[Candidate, float]:
    found = agreement([_sample(domain, c) for c in pool], rules)
    return dict(zip(pool, map(float, found), strict=True))


def _kept(domain: Orders, rules: Sequence[FastRule], candidate: Candidate) -> list[FastRule]:
    sample = _sample(domain, candidate)
    table, binder = Samples([sample]), Binder(sample[0])
    every = ((one, binder.bind(one.rule, one.kinds).rules) for one in rules)
    return [one for one, bound in every if bound and table.follow(bound)[0]]


# ---- a first implementation, with nothing measured ------------------------------------------------


def first_by_rules(text: ProgramText, rules: Sequence[FastRule], path: str) -> tuple[Graph, Traversal, tuple[str, ...]]:
    """The graph and the traversal of a program that follow rules, and a line for each rule.

    Rules about decisions choose the first value that fits, unless -D or the program fixes the decision. Raises
    UsageError if no rule applies.
    """
    text, lines = _decided(text, rules)
    orders = [one for one in rules if not one.rule.feature.is_choice]
    graph = text.graph()
    domain = Orders([ConfiguredSpace(Choice.of({}), Space(graph))])
    binder = Binder(graph)
    bound = {one: binder.bind(one.rule, one.kinds) for one in orders}
    if not any(bound[one].rules for one in orders) and not any(done for _, done in lines.values()):
        notes = (f"{one.rule.text}: {(lines[one][0] if one in lines else bound[one].note)}" for one in rules)
        raise UsageError(f"no rule of {path} applies here: {'; '.join(notes)}", "give rules of a program with such ops")
    usable = [one for one in orders if bound[one].rules]
    picked = followers(domain, usable, path, 0)[0][0] if usable else domain.first(0)
    kept = _kept(domain, usable, picked)
    for one in orders:
        lines[one] = _order_line(bound[one], one in kept), bool(bound[one].rules)
    return graph, picked.traversal, tuple(_line(one, lines[one][0]) for one in rules)


def _line(one: FastRule, what: str) -> str:
    general = described(one.rule, one.kinds)
    return f"  {one.rule.text}{f' ({general})' if general else ''}: {what}"


def _order_line(bound: BoundRule, kept: bool) -> str:
    if not bound.rules:
        return f"does not apply: {bound.note}"
    return bound.note if kept else f"{bound.note}; not for all of these, with the other rules"


def _decided(text: ProgramText, rules: Sequence[FastRule]) -> tuple[ProgramText, dict[FastRule, tuple[str, bool]]]:
    """The text with decisions that follow the rules about them; for each, what was done and whether it is followed."""
    lines: dict[FastRule, tuple[str, bool]] = {}
    # Other decisions may depend on the transport.
    choices = sorted(
        (one for one in rules if one.rule.feature.is_choice), key=lambda one: one.rule.feature.a != TRANSPORT
    )
    for one in choices:
        graph = text.graph()
        bound = Binder(graph).bind(one.rule, one.kinds)
        decisions = {d.name: d for d in graph.program.decisions}
        done: list[str] = []
        for rule in bound.rules:
            values = _values(rule, [decisions[name] for name in rule.feature.a.split(TIMES)], text)
            changed = text if values is None else text.with_defines({**text.defines, **values})
            try:
                changed.graph()
            except ProgramError:
                values = None
            if values is not None:
                text = changed
                done += [f"{name} = {shown(value)}" for name, value in values.items()]
        if bound.rules and not done:
            lines[one] = f"does not apply: -D, or the program, leaves no such value of {bound.note}", False
        else:
            lines[one] = (", ".join(done), True) if done else (f"does not apply: {bound.note}", False)
    return text, lines


def _values(rule: Rule, decisions: Sequence[Decision], text: ProgramText) -> dict[str, Any] | None:
    """The values that follow a rule: those that are chosen now if they do, else the first that do; None if none do."""
    names = [d.name for d in decisions]
    for values in product(*([d.chosen] if d.name in text.defines else [d.chosen, *d.values] for d in decisions)):
        now = dict(zip(names, values, strict=True))
        if chosen(rule.feature, Choice.of(now)) == rule.truth:
            return now
    return None

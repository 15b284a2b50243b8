"""Rules as input of a search: the rules for the fast end in a file of `dagc rules --format json`, and implementations
of a domain that follow them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.learn.features import Samples
from dagc.learn.types import FeatureKind, Rule, RuleFeature

if TYPE_CHECKING:
    from dagc.lab.candidate import Candidate
    from dagc.lab.orders import Orders
    from dagc.stages.options import ExploreOptions

COUNT = 8  # followers that are measured first
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
    chosen, note = followers(domain, read_rules(options.follow), options.follow, options.seed)
    notes.append(note)
    return chosen


def read_rules(path: str) -> tuple[tuple[Rule, float], ...]:
    """The rules for the fast end and what breaking each costs (0: unknown). Raises UsageError."""
    advice = "give a file that `dagc rules RESULTS --format json` wrote"
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", advice) from None
    except (ValueError, RecursionError) as error:
        place = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path}{place}: not JSON", advice) from None
    found = content.get("fast_end") if isinstance(content, dict) else None
    entries = found.get("rules") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{path} has no rules for the fast end", advice)
    if not entries:
        raise UsageError(f"{path}: no choice or order separated fast from slow there", "search without --follow")
    return tuple(_rule(entry, f"{path}: rule {number}", advice) for number, entry in enumerate(entries, 1))


def _rule(entry: Any, where: str, advice: str) -> tuple[Rule, float]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not an object", advice)
    kind, a, b, holds, cost = (entry.get(key) for key in ("kind", "a", "b", "holds", "cost"))
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None or not isinstance(a, str) or not isinstance(b, str) or not isinstance(holds, bool):
        raise UsageError(f"{where} has no known `kind`, `a`, `b` or `holds`", advice)
    if known is FeatureKind.AT_MOST and not _is_number(b):
        raise UsageError(f"{where}: `{b}` is not a number", advice)
    seconds = float(cost) if isinstance(cost, int | float) and _is_number(cost) else 0.0
    return Rule(RuleFeature(known, a, b), holds), seconds


def _is_number(value: str | float) -> bool:
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def followers(
    domain: Orders, rules: Sequence[tuple[Rule, float]], path: str, seed: int
) -> tuple[tuple[Candidate, ...], str]:
    """Candidates that follow the rules, at most COUNT, and a note; those that come closest if none follows all.

    A local search from uniform draws: a rule counts the more, the more breaking it costs. Raises UsageError if no
    candidate follows any rule.
    """
    random = Random(seed)
    pool = list(dict.fromkeys(domain.sample(random) for _ in range(DRAWN)))
    for _ in range(ROUNDS):
        scored = _scored(domain, rules, pool)
        best = sorted(pool, key=lambda c: -scored[c])[:KEPT]
        if len(best) >= COUNT and scored[best[COUNT - 1]] == sum(1 + cost for _, cost in rules):
            break
        pool = list(dict.fromkeys([*best, *(domain.near(c, random) for c in best for _ in range(NEAR))]))
    scored = _scored(domain, rules, pool)
    most = max(scored.values())
    chosen = [c for c in pool if scored[c] == most][:COUNT]
    kept = _kept(domain, rules, chosen[0])
    if not kept:
        raise UsageError(f"no implementation here follows a rule of {path}", "give rules of a program with these ops")
    missing = [rule.text for rule, _ in rules if rule not in kept]
    without = f"; none follows {', '.join(f'`{text}`' for text in missing)} too" if missing else ""
    those = "of the rule" if len(rules) == 1 else f"{len(kept)} of {len(rules)} rules"
    note = f"measures {counted(len(chosen), 'implementation')} first that follow {those} of {path}{without}"
    return tuple(chosen), note


def _scored(domain: Orders, rules: Sequence[tuple[Rule, float]], pool: Sequence[Candidate]) -> dict[Candidate, float]:
    table = Samples([(domain.spaces[c.space].graph, domain.configuration(c), c.traversal) for c in pool])
    total = sum((table.ask(rule.feature) == rule.truth) * (1 + max(cost, 0.0)) for rule, cost in rules)
    return dict(zip(pool, map(float, total), strict=True))


def _kept(domain: Orders, rules: Sequence[tuple[Rule, float]], candidate: Candidate) -> list[Rule]:
    table = Samples([(domain.spaces[candidate.space].graph, domain.configuration(candidate), candidate.traversal)])
    return [rule for rule, _ in rules if table.follow([rule])[0]]

"""Rules in terms of kinds of ops, which apply to programs whose ops have other names.

The kind of an op is what it is to messages: it sends one, is needed by a send, needs a received one, or none. A rule
keeps its names where the other program has them and they are of the same kinds; otherwise it is about all ops of these
kinds: `x before yl` of an SpMV, "send before kernel that needs no message", is `halo[t] before inner[t]` of a stencil.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from dagc.ir.choice import own_name, site_of
from dagc.ir.program import Action, CollectiveOp, Graph, GraphOp, KernelOp, OpId
from dagc.learn.features import SYNC_OPS, TIMES, Naming, are_two
from dagc.learn.types import FeatureKind, Rule, RuleFeature

_SENDING = {Action.POST_SEND, Action.STAGE_OUT, Action.GROUP, Action.POST_COLLECTIVE}
_RECEIVING = {Action.WAIT_RECV, Action.STAGE_IN, Action.GROUP, Action.WAIT_COLLECTIVE}
_OF_MESSAGES = {
    Action.STAGE_OUT: "copy to the staging buffer",
    Action.STAGE_IN: "copy from the staging buffer",
    Action.POST_SEND: "send",
    Action.POST_RECV: "receive",
    Action.WAIT_SEND: "wait for sends",
    Action.WAIT_RECV: "wait for messages",
    Action.POST_COLLECTIVE: "collective",
    Action.WAIT_COLLECTIVE: "wait for a collective",
    Action.FREE: "wait of all ranks",
    Action.END: "end",
}  # fmt: skip
_SERVICE = dict(zip(SYNC_OPS, ("record after {}", "wait of the CPU before {}", "wait of a stream for {}"), strict=True))
SHOWN = 2  # of the ops that a rule is bound to


def kinds_of(graph: Graph) -> dict[str, str]:
    """The kind of each op, by its edges to ops of the same turn of a loop."""
    rounds = _rounds(graph)
    before: dict[OpId, list[OpId]] = {op.id: [] for op in graph.ops}
    for u, v in (*graph.completion, *graph.order):
        if rounds.get(graph.ops[u].name) == rounds.get(graph.ops[v].name):
            before[v].append(u)
    sent = {u for op in graph.ops if op.action in _SENDING for u in before[op.id]}
    reached: set[OpId] = set()  # what needs a message, also through other ops
    todo = [op.id for op in graph.ops if op.action in _RECEIVING]
    received = set(todo)
    after = [(u, v) for v, all_before in before.items() for u in all_before]
    while todo:
        u = todo.pop()
        more = {v for one, v in after if one == u} - reached
        reached |= more
        todo += more
    direct = {v for u, v in after if u in received}
    outside = _outside(graph)
    return {
        op.name: _kind(op, op.id in sent, op.id in reached, op.id in direct)
        + (" outside of loops" if op.id in outside else "")
        for op in graph.ops
    }


def _outside(graph: Graph) -> set[OpId]:
    """The ops outside of all loops, of a program that has some; without the end."""
    rounds = _rounds(graph)
    folded = {u for segment in graph.folding.segments if segment.loop for u in segment.ops} if graph.folding else set()
    inside = folded | {op.id for op in graph.ops if op.name in rounds}
    return {op.id for op in graph.ops if op.id not in inside and op.action is not Action.END} if inside else set()


def _rounds(graph: Graph) -> dict[str, tuple[int, int]]:
    """Op -> its loop and turn there; of the ops of a folded graph, which has one turn of each loop, nothing."""
    turns = {
        name: (number, at)
        for number, loop in enumerate(graph.program.loops)
        for at, turn in enumerate(loop.turns)
        for name in turn.ops
    }
    if graph.folding is not None:
        return {}
    return {op.name: turns[op.op.name] for op in graph.ops if op.op is not None and op.op.name in turns}


def _kind(op: GraphOp, sent: bool, reached: bool, direct: bool) -> str:
    if op.action is Action.GROUP:
        return "collective" if isinstance(op.op, CollectiveOp) else "send"
    if op.action not in (Action.KERNEL, Action.COPY):
        return _OF_MESSAGES[op.action]
    what = "kernel" if op.gpu else "CPU kernel"
    if sent:
        return f"{what} between messages" if reached else f"{what} that a send needs"
    if direct:
        return f"{what} that needs a message"
    return f"{what} after one that needs a message" if reached else f"{what} that needs no message"


def kinds_in(feature: RuleFeature, graphs: Iterable[Graph]) -> tuple[str, str]:
    """The kinds of the ops that a feature is about; "" for what is not of an op, or of several kinds."""
    found: tuple[str, str] = "", ""
    for graph in graphs:
        kinds = kinds_of(graph)
        if feature.is_choice:
            found = _of_decision(feature.a, graph, kinds), ""
        else:
            found = kinds.get(_split(feature.a)[1], ""), kinds.get(_split(feature.b)[1], "")
        if all(found) or (feature.is_choice and found[0]):
            break
    return found


def _split(name: str) -> tuple[str, str]:
    """The prefix of a sync op, "" for an op; the op that it serves."""
    prefix = next((p for p in SYNC_OPS if name.startswith(p)), "")
    return prefix, name.removeprefix(prefix)


def _of_decision(name: str, graph: Graph, kinds: Mapping[str, str]) -> str:
    """The kind of the ops that a decision is about, if they are of one."""
    base = site_of(name.partition(TIMES)[0])
    found = {kinds[op.name] for op in graph.ops if isinstance(op.op, KernelOp) and op.op.base == base}
    return found.pop() if len(found) == 1 else ""


def described(rule: Rule, kinds: tuple[str, str]) -> str:
    """A rule with kinds in place of names: `send before kernel that needs no message`; "" where kinds are missing."""
    feature = rule.feature
    if feature.is_choice:
        return _with(feature, kinds[0], feature.b).text(rule.truth) if kinds[0] else ""
    a, b = (_entry(name, kind) for name, kind in zip((feature.a, feature.b), kinds, strict=True))
    return RuleFeature(feature.kind, a, b, feature.total).text(rule.truth) if all(kinds) else ""


def _entry(name: str, kind: str) -> str:
    """An entry of this name that serves, or is, an op of a kind: `record after send`."""
    return _SERVICE.get(_split(name)[0], "{}").format(kind)


def _with(feature: RuleFeature, base: str, value: str) -> RuleFeature:
    """The same decision of another op."""
    names = [f"{base}.{own_name(name)}" for name in feature.a.split(TIMES)]
    return RuleFeature(feature.kind, TIMES.join(names), value, feature.total)


@dataclass(frozen=True, slots=True)
class BoundRule:
    """A rule on the ops of a graph: `rules` are all to hold; `note` says which they are, or why there are none."""

    rules: tuple[Rule, ...]
    note: str

    @staticmethod
    def to(rules: Iterable[Rule]) -> BoundRule:
        every = tuple(dict.fromkeys(rules))
        more = f"; {len(every) - SHOWN} more" if len(every) > SHOWN else ""
        return BoundRule(every, "; ".join(rule.text for rule in every[:SHOWN]) + more)


class Binder:
    """Binds rules to the ops of a graph."""

    def __init__(self, graph: Graph) -> None:
        naming = Naming.of(graph)
        self._graph, self._kinds, self._rounds = graph, kinds_of(graph), _rounds(graph)
        self._may, self._always, self._implied = naming.may(), naming.always(), naming.implied()
        self._decisions = {d.name for d in graph.program.decisions}

    def bind(self, rule: Rule, kinds: tuple[str, str]) -> BoundRule:
        """The rule by its names, if they are here and of these kinds, or if no kinds are known; else by its kinds."""
        feature = rule.feature
        if feature.is_choice:
            return self._choice(rule, kinds[0])
        here = self._may.issuperset((feature.a, feature.b))
        if here and kinds in (("", ""), kinds_in(feature, [self._graph])):
            return BoundRule.to([rule])
        if not all(kinds):
            return BoundRule((), f"there is no `{next((n for n in (feature.a, feature.b) if n not in self._may), '')}`")
        if kinds[0] == kinds[1]:
            return BoundRule((), f"it is about two ops of one kind ({kinds[0]}), and names differ")
        return self._pairs(rule, kinds)

    def _choice(self, rule: Rule, kind: str) -> BoundRule:
        names = rule.feature.a.split(TIMES)
        if self._decisions.issuperset(names) and kind in ("", _of_decision(rule.feature.a, self._graph, self._kinds)):
            return BoundRule.to([rule])
        if not kind:
            return BoundRule((), f"there is no decision `{rule.feature.a}`")
        bases = dict.fromkeys(
            op.op.base for op in self._graph.ops if isinstance(op.op, KernelOp) and self._kinds[op.name] == kind
        )
        found = [_with(rule.feature, base, rule.feature.b) for base in bases]
        found = [f for f in found if self._decisions.issuperset(f.a.split(TIMES))]
        none = f"no {kind} has a decision `{own_name(names[0])}`"
        return BoundRule.to(Rule(feature, rule.truth) for feature in found) if found else BoundRule((), none)

    def _of(self, name: str, kind: str) -> list[str]:
        prefix = _split(name)[0]
        return [n for op, k in self._kinds.items() if k == kind and (n := prefix + op) in self._may]

    def _pairs(self, rule: Rule, kinds: tuple[str, str]) -> BoundRule:
        feature = rule.feature
        mine = [self._of(name, kind) for name, kind in zip((feature.a, feature.b), kinds, strict=True)]
        for name, kind, found in zip((feature.a, feature.b), kinds, mine, strict=True):
            if not found:
                return BoundRule((), f"there is no {_entry(name, kind)}")
        pairs = [(a, b) for a, b in product(*mine) if self._together(a, b)]
        rules = [self._on(rule, a, b) for a, b in pairs]
        if feature.is_stream:
            gpu = {op.name for op in self._graph.ops if op.gpu}
            rules = [r for r, pair in zip(rules, pairs, strict=True) if gpu.issuperset(pair)]
            return BoundRule.to(rules) if rules else BoundRule((), "one of them has no stream")
        free = [
            r
            for r, (a, b) in zip(rules, pairs, strict=True)
            if (a, b) not in self._implied and (b, a) not in self._implied
        ]
        return BoundRule.to(free) if free else BoundRule((), "the edges of the program order them")

    def _together(self, a: str, b: str) -> bool:
        """Whether two entries are of the same turn of a loop, if both are of one."""
        one, other = (self._rounds.get(_split(name)[1]) for name in (a, b))
        return one == other or one is None or other is None or one[0] != other[0]

    def _on(self, rule: Rule, a: str, b: str) -> Rule:
        """The rule on two other entries; what says the opposite there says so here, too."""
        feature = rule.feature
        total = self._always.issuperset((a, b)) and are_two(a, b)
        if rule.truth or not feature.total:
            return Rule(RuleFeature(feature.kind, a, b, total), rule.truth)
        if feature.kind is FeatureKind.BEFORE:
            return Rule(RuleFeature(feature.kind, b, a, total), True)
        other = FeatureKind.SAME if feature.kind is FeatureKind.DIFFERENT else FeatureKind.DIFFERENT
        return Rule(RuleFeature(other, a, b, total), True)

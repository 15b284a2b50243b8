"""Implementations as vectors of features (Tenzing, section IV-B), and the names of entries that rules use.

Ordering features for every pair of names, stream features for every pair of GPU ops, choices for every decision whose
value differs. Absent is not "after": `a before b` is true only if both are present, and `b before a` is a separate
feature. Uninformative features are omitted: features with one answer for all samples, orders implied by the edges of
the program, and, of features that split the samples equally (or complementarily), all but the first in canonical order:
choices, streams, then orders, ops before sync ops, in file order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from dagc.base.python import np
from dagc.ir.choice import Choice, qualified
from dagc.ir.plan import kernel_as_written
from dagc.ir.program import COLLECTIVES, TRANSPORT, Graph, KernelOp, OpId, Value, shown
from dagc.ir.sym import Var
from dagc.ir.traversal import Traversal, traversal_text
from dagc.learn.types import Bools, Example, FeatureKind, Ints, Rule, RuleFeature

# ---- names of the entries of a traversal ----

# How the names of sync ops begin; the op that they serve follows.
RECORD_OF, SYNC_FOR, WAIT_OF = SYNC_OPS = ("CER-after-", "CES-b4-", "CSWE-after-")


@dataclass(frozen=True, slots=True)
class Naming:
    """Names the entries of the traversals of one graph.

    users      per op: ops that need its completion; empty for CPU ops
    """

    graph: Graph
    users: tuple[tuple[OpId, ...], ...]

    @staticmethod
    def of(graph: Graph) -> Naming:
        users: list[list[OpId]] = [[] for _ in graph.ops]
        for u, v in graph.completion:
            if graph.ops[u].gpu:
                users[u].append(v)
        return Naming(graph, tuple(tuple(sorted(set(ops))) for ops in users))

    def positions(self, traversal: Traversal) -> dict[str, int]:
        """Name -> position of the entry with this name; names without an entry are omitted."""
        ops, at, bound = self.graph.ops, [-1] * len(self.graph.ops), [-1] * len(self.graph.ops)
        records: dict[int, tuple[int, int]] = {}  # event -> its position, its stream
        syncs: list[tuple[int, int, int]] = []  # position, stream that waits (-1: the CPU), event; in issue order
        places: dict[str, int] = {}
        for position, entry in enumerate(traversal.entries):
            stream = -1 if entry.stream is None else int(entry.stream)
            if entry.op is not None:
                at[entry.op], bound[entry.op] = position, stream
                places[ops[entry.op].name] = position
            elif entry.records:
                records[int(entry.event)] = position, stream
            else:
                syncs.append((position, stream, int(entry.event)))
        for u, users in enumerate(self.users):
            crossing = [v for v in users if not ops[v].gpu or bound[v] != bound[u]]
            if not crossing:
                continue
            later = [p for p, s in records.values() if s == bound[u] and p > at[u]]
            if later:
                places[f"{RECORD_OF}{ops[u].name}"] = min(later)
            for v in crossing:
                waiter = bound[v]  # -1 for the CPU
                for position, who, waited in syncs:
                    recorded, lane = records[waited]
                    if who == waiter and lane == bound[u] and recorded > at[u]:
                        name = f"{SYNC_FOR}{ops[v].name}" if waiter < 0 else f"{WAIT_OF}{ops[u].name}"
                        places[name] = min(position, places.get(name, position))
                        break
        return places

    def always(self) -> frozenset[str]:
        """Names that occur in every traversal of the graph."""
        names = {op.name for op in self.graph.ops}
        for u, users in enumerate(self.users):
            hosts = [v for v in users if not self.graph.ops[v].gpu]
            if hosts:
                names.add(f"{RECORD_OF}{self.graph.ops[u].name}")
            names |= {f"{SYNC_FOR}{self.graph.ops[v].name}" for v in hosts}
        return frozenset(names)

    def may(self) -> frozenset[str]:
        """Names that may occur in a traversal of the graph."""
        ops = self.graph.ops
        names = {op.name for op in ops}
        for u, users in enumerate(self.users):
            for v in users:
                names.add(f"{RECORD_OF}{ops[u].name}")
                names.add(f"{WAIT_OF}{ops[u].name}" if ops[v].gpu else f"{SYNC_FOR}{ops[v].name}")
        return frozenset(names)

    def implied(self) -> frozenset[tuple[str, str]]:
        """(a, b): if both are present, the edges of the program order a before b."""
        ops = self.graph.ops
        after: dict[str, set[str]] = {}

        def add(a: str, b: str) -> None:
            after.setdefault(a, set()).add(b)

        for first, second in (*self.graph.completion, *self.graph.order):
            add(ops[first].name, ops[second].name)
        needs: dict[int, set[int]] = {}
        for u, users in enumerate(self.users):
            for v in users:
                needs.setdefault(v, set()).add(u)
        for u, users in enumerate(self.users):
            record, wait = f"{RECORD_OF}{ops[u].name}", f"{WAIT_OF}{ops[u].name}"
            if users:
                add(ops[u].name, record)
            for v in users:
                if ops[v].gpu:
                    add(record, wait)
                    if sum(ops[w].gpu for w in users) == 1:
                        add(wait, ops[v].name)
                else:
                    sync = f"{SYNC_FOR}{ops[v].name}"
                    add(sync, ops[v].name)
                    if len(needs[v]) == 1:
                        add(record, sync)
        # Not through a wait: a traversal may have none if all users of u are on its stream.
        return frozenset(_closure(after, {f"{WAIT_OF}{op.name}" for op in ops}))


def _closure(after: dict[str, set[str]], ends: set[str]) -> set[tuple[str, str]]:
    """All pairs (a, b) with a path from a to b whose inner nodes are not in `ends`. The graph is acyclic."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set()
            for other in after.get(name, ()):
                reached[name] |= {other} if other in ends else {other} | reach(other)
        return reached[name]

    return {(a, b) for a in list(after) for b in reach(a)}


# ---- implementations as vectors of features ----

MOST_VALUES_PAIRED = 6  # values of a decision up to which pairs are features, too: `transport = nccl or peer`


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that features of samples of some graphs can use.

    names     of entries, in canonical order: ops in file order, then sync ops
    ops       names of GPU ops, in file order
    always    names that occur in every implementation of every graph
    implied   (a, b): in every graph that has both, the edges of the program order a before b if both are present
    """

    names: tuple[str, ...]
    ops: tuple[str, ...]
    always: frozenset[str]
    implied: frozenset[tuple[str, str]]


class Samples:
    """Samples as arrays, one row per sample.

    graphs      the different ones
    positions   of the entry of every name, -1 if absent
    streams     of every GPU op, -1 if absent
    always      per configuration: names that occur in all of its implementations
    blocks      launch parameters that form one feature (`blocks_of`)
    """

    def __init__(self, samples: Sequence[tuple[Graph, Choice, Traversal]]) -> None:
        graphs: dict[int, Graph] = {}
        for graph, _, _ in samples:
            graphs.setdefault(id(graph), graph)
        self.graphs = tuple(graphs.values())
        self.blocks: tuple[str, ...] = blocks_of(self.graphs)
        namings = {key: Naming.of(graph) for key, graph in graphs.items()}
        self.configurations = [configuration for _, configuration, _ in samples]
        self.always = {configuration: namings[id(graph)].always() for graph, configuration, _ in samples}
        self.most_streams = max((graph.streams for graph in graphs.values()), default=0)
        places = [namings[id(graph)].positions(traversal) for graph, _, traversal in samples]
        self.vocabulary = _vocabulary(list(namings.values()), places)
        column = {name: i for i, name in enumerate(self.vocabulary.names)}
        self.positions: Ints = np.full((len(samples), len(column)), -1, dtype=np.int64)
        for row, positions in enumerate(places):
            for name, position in positions.items():
                self.positions[row, column[name]] = position
        lane = {name: i for i, name in enumerate(self.vocabulary.ops)}
        self.streams: Ints = np.full((len(samples), len(lane)), -1, dtype=np.int64)
        for row, (graph, _, traversal) in enumerate(samples):
            for entry in traversal.entries:
                if entry.op is not None and entry.stream is not None:
                    self.streams[row, lane[graph.ops[entry.op].name]] = int(entry.stream)
        self._column, self._lane = column, lane
        self._known: dict[str, list[Value | None]] = {}  # of the decision that was asked for last

    @staticmethod
    def of(samples: Iterable[Example]) -> Samples:
        return Samples([(s.graph, s.configuration, s.traversal) for s in samples])

    def __len__(self) -> int:
        return len(self.configurations)

    def _values(self, name: str) -> list[Value | None]:
        """The value of a decision in each sample. Many features ask for one after the other."""
        if name not in self._known:
            self._known = {name: [value_of(c, name) for c in self.configurations]}
        return self._known[name]

    def ask(self, feature: RuleFeature) -> Bools:
        """The answers of all samples to a feature."""
        a, b = feature.a, feature.b
        if feature.is_choice:
            return np.array([_holds(feature, value) for value in self._values(a)], dtype=bool)
        if feature.kind is FeatureKind.BEFORE:
            first, second = self._at(self.positions, self._column, a), self._at(self.positions, self._column, b)
            return (first >= 0) & (first < second)
        one, other = self._at(self.streams, self._lane, a), self._at(self.streams, self._lane, b)
        out: Bools = (one >= 0) & (other >= 0) & ((one == other) == (feature.kind is FeatureKind.SAME))
        return out

    def _at(self, table: Ints, columns: dict[str, int], name: str) -> Ints:
        return table[:, columns[name]] if name in columns else np.full(len(self), -1, dtype=np.int64)

    def follow(self, rules: Iterable[Rule]) -> Bools:
        """Whether all rules hold, for each sample."""
        out = np.ones(len(self), dtype=bool)
        for rule in rules:
            out &= self.ask(rule.feature) == rule.truth
        return out

    def features(self) -> tuple[tuple[RuleFeature, ...], Bools]:
        """The features that distinguish these samples, in canonical order, and their answers (samples x features)."""
        seen: set[bytes] = set()
        kept: list[RuleFeature] = []
        columns: list[Bools] = []
        for feature, answers in self._all():
            if answers.all() or not answers.any():
                continue
            # A column and its complement split equally: the one with False for the first sample represents both.
            key = np.packbits(answers ^ answers[0]).tobytes()
            if key not in seen:
                seen.add(key)
                kept.append(feature)
                columns.append(answers)
        table = np.stack(columns, axis=1) if columns else np.zeros((len(self), 0), dtype=bool)
        return tuple(kept), table

    def _all(self) -> Iterable[tuple[RuleFeature, Bools]]:
        vocabulary = self.vocabulary
        for feature in _choices(self.configurations, self.blocks):
            yield feature, self.ask(feature)
        for a, b in combinations(vocabulary.ops, 2):
            total = a in vocabulary.always and b in vocabulary.always
            for kind in (FeatureKind.SAME,) if total else (FeatureKind.SAME, FeatureKind.DIFFERENT):
                feature = RuleFeature(kind, a, b, total)
                yield feature, self.ask(feature)
        # Pairs of ops before pairs with sync ops: a rule names a sync op only if no op serves.
        syncs = [is_sync(name) for name in vocabulary.names]
        pairs = sorted(combinations(range(len(syncs)), 2), key=lambda p: (syncs[p[0]] + syncs[p[1]], p))
        for i, j in pairs:
            a, b = vocabulary.names[i], vocabulary.names[j]
            if (a, b) in vocabulary.implied or (b, a) in vocabulary.implied:
                continue
            total = are_two(a, b) and a in vocabulary.always and b in vocabulary.always
            first, second = self.positions[:, i], self.positions[:, j]
            yield RuleFeature(FeatureKind.BEFORE, a, b, total), (first >= 0) & (first < second)
            if not total:
                yield RuleFeature(FeatureKind.BEFORE, b, a, total), (second >= 0) & (second < first)


def in_order(samples: Sequence[Example]) -> list[Example]:
    """Sorted in an order that depends neither on times nor on the given order."""
    return sorted(samples, key=lambda s: (s.configuration.text, traversal_text(s.traversal, s.graph)))


def is_sync(name: str) -> bool:
    """Whether this is the name of a sync op."""
    return name.startswith(SYNC_OPS)


def are_two(a: str, b: str) -> bool:
    """Whether these names never share an entry. Two sync ops of a kind may."""
    return not (is_sync(a) and is_sync(b) and a.partition("-")[0] == b.partition("-")[0])


def _vocabulary(namings: Sequence[Naming], counts: Iterable[dict[str, int]]) -> Vocabulary:
    ops = list(dict.fromkeys(op.name for n in namings for op in n.graph.ops))
    gpu = list(dict.fromkeys(op.name for n in namings for op in n.graph.ops if op.gpu))
    present = set().union(*counts) if namings else set()
    order = {name: i for i, name in enumerate(ops)}
    syncs = sorted(
        (name for name in present if is_sync(name)),
        key=lambda name: (next(i for i, p in enumerate(SYNC_OPS) if name.startswith(p)), order[_served(name)]),
    )
    always = frozenset.intersection(*(n.always() for n in namings)) if namings else frozenset()
    implied: set[tuple[str, str]] = set()
    refuted: set[tuple[str, str]] = set()
    may = [n.may() for n in namings]
    orders = [n.implied() for n in namings]
    for pairs in orders:
        implied |= pairs
    for pair in implied:
        if any(
            pair[0] in names and pair[1] in names and pair not in pairs
            for names, pairs in zip(may, orders, strict=True)
        ):
            refuted.add(pair)
    return Vocabulary(tuple(ops + syncs), tuple(gpu), always, frozenset(implied - refuted))


def _served(name: str) -> str:
    return next(name.removeprefix(prefix) for prefix in SYNC_OPS if name.startswith(prefix))


TIMES = " x "  # between the launch parameters of a block, and between their values


def blocks_of(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """The launch parameters of each op that set two or three dimensions of its block: `inner.bx x inner.by`."""
    out: dict[str, None] = {}
    for program in {id(graph.program): graph.program for graph in graphs}.values():
        for op in program.ops:
            if isinstance(op, KernelOp):
                _, impl = kernel_as_written(program, op)
                sizes = impl.launch.block if impl.launch is not None else ()
                names = [n for size in sizes for n, _ in op.tunables if size == Var(n)]
                if len(names) > 1:
                    out[TIMES.join(qualified(op.base, n) for n in names)] = None
    return tuple(out)


def value_of(configuration: Choice, name: str) -> Value | None:
    """The value of a decision, `32 x 8` of a block (`blocks_of`); None if the configuration lacks it. Collectives have
    the transport of the other messages unless it is named."""
    if name == COLLECTIVES:
        return configuration.get(name, configuration.get(TRANSPORT))
    if TIMES not in name:
        return configuration.get(name)
    values = [configuration.get(part) for part in name.split(TIMES)]
    known = [shown(value) for value in values if value is not None]
    return TIMES.join(known) if len(known) == len(values) else None


def _choices(configurations: Sequence[Choice], blocks: Sequence[str] = ()) -> Iterable[RuleFeature]:
    """Features of decisions whose values differ: the transport first, then decisions that every configuration has.

    A block is one feature, unless it differs in one dimension only.
    """
    distinct = sorted(set(configurations), key=lambda c: c.text)
    decisions: dict[str, list[Value]] = {}
    for configuration in distinct:
        for name, value in configuration.decisions:
            decisions.setdefault(name, []).append(value)
    for name in blocks:
        if sum(len(set(decisions.get(part, ()))) > 1 for part in name.split(TIMES)) > 1:
            sizes = [block for c in distinct if (block := value_of(c, name)) is not None]
            decisions |= {name: sizes} if sizes else {}
    if COLLECTIVES in decisions:
        decisions[COLLECTIVES] = [v for c in distinct if (v := value_of(c, COLLECTIVES)) is not None]

    def order(name: str) -> tuple[bool, bool, str]:
        return name != TRANSPORT, len(decisions[name]) < len(distinct), name

    for name in sorted(decisions, key=order):
        values, total = set(decisions[name]), len(decisions[name]) == len(distinct)
        numbers = sorted(v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
        yield from (RuleFeature(FeatureKind.AT_MOST, name, shown(v), total) for v in numbers[:-1])
        if values == {True, False}:
            yield RuleFeature(FeatureKind.CHOICE, name, "true", total)
            continue
        words = [shown(v) for v in numbers] or sorted(shown(v) for v in values)
        yield from (RuleFeature(FeatureKind.CHOICE, name, word, False) for word in words)
        if not numbers and len(words) <= MOST_VALUES_PAIRED:
            yield from (RuleFeature(FeatureKind.CHOICE, name, f"{v} or {w}", False) for v, w in combinations(words, 2))


def chosen(feature: RuleFeature, configuration: Choice) -> bool:
    """Whether a choice holds in a configuration; False if the configuration lacks the decision."""
    return _holds(feature, value_of(configuration, feature.a))


def _holds(feature: RuleFeature, value: Value | None) -> bool:
    if value is None:
        return False
    if feature.kind is FeatureKind.CHOICE:
        return shown(value) in feature.b.split(" or ")
    return isinstance(value, int | float) and value <= float(feature.b)


# ---- implied rules ----


class Implications:
    """Implications between rules, for the graphs and configurations of some samples.

    Sound but not complete: a rule is omitted only if the others prove it.
    """

    def __init__(self, samples: Samples) -> None:
        self.vocabulary: Vocabulary = samples.vocabulary
        self.always = samples.always
        self.configurations: tuple[Choice, ...] = tuple(sorted(set(samples.configurations), key=lambda c: c.text))
        self.two_streams = samples.most_streams <= 2 and not (samples.streams > 1).any()

    def merge(self, path: Sequence[Rule]) -> tuple[Rule, ...]:
        """The rules of a path without the implied ones. The earliest is dropped first: later ones are more specific.

        Rules are strengthened by the choices of the path: `in different streams` instead of `not in the same stream` if
        both ops are present, `transport = peer` instead of `is not` for all other values.
        """
        present = self._present(path)
        rules = list(dict.fromkeys(_certain(rule, present) for rule in path))
        for rule in list(rules):
            rest = [r for r in rules if r != rule]
            if self.implies(rest, rule):
                rules = rest
        return self._join(rules)

    def _present(self, rules: Iterable[Rule]) -> frozenset[str]:
        """Names that occur in every configuration that satisfies the rules."""
        left = [self.always[c] for c in self._left(rules)]
        return frozenset.intersection(*left) if left else frozenset()

    def _left(self, rules: Iterable[Rule]) -> list[Choice]:
        choices = [r for r in rules if r.feature.is_choice]
        return [c for c in self.configurations if all(chosen(r.feature, c) == r.truth for r in choices)]

    def _join(self, rules: list[Rule]) -> tuple[Rule, ...]:
        """Merge several rules about the values of one decision into one, at the position of the last."""
        for name in dict.fromkeys(r.feature.a for r in rules if r.feature.kind is FeatureKind.CHOICE):
            about = [r for r in rules if r.feature.kind is FeatureKind.CHOICE and r.feature.a == name]
            values = {value_of(c, name) for c in self._left(about)}
            if len(about) > 1 and values and None not in values:
                words = " or ".join(sorted(shown(v) for v in values if v is not None))
                one = Rule(RuleFeature(FeatureKind.CHOICE, name, words, total=False), True)
                rules = [one if r == about[-1] else r for r in rules if r not in about[:-1]]
        return tuple(rules)

    def implies(self, rules: Iterable[Rule], wanted: Rule) -> bool:
        """Whether `wanted` holds whenever all `rules` hold."""
        rules = list(rules)
        if wanted.feature.is_choice:  # all configurations that satisfy the other choices must satisfy it
            return all(chosen(wanted.feature, c) == wanted.truth for c in self._left(rules))
        return (self._stream if wanted.feature.is_stream else self._order)(rules, wanted)

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
            differs = _differs(rule) if rule.feature.is_stream else None
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


def _certain(rule: Rule, present: frozenset[str]) -> Rule:
    """A rule about names that are all present, for which features are two-valued."""
    feature = rule.feature
    if feature.total or not present.issuperset((feature.a, feature.b)):
        return rule
    if feature.kind is FeatureKind.BEFORE:
        return Rule(replace(feature, total=True), rule.truth) if are_two(feature.a, feature.b) else rule
    return Rule(RuleFeature(FeatureKind.SAME, feature.a, feature.b), rule.truth == (feature.kind is FeatureKind.SAME))


def _pair(rule: Rule) -> tuple[str, str] | None:
    """(a, b) if the rule implies that both are present and a is before b."""
    feature = rule.feature
    if rule.truth:
        return feature.a, feature.b
    return (feature.b, feature.a) if feature.total else None


def _differs(rule: Rule) -> int | None:
    """1 if the rule implies that two ops are on different streams, 0 on the same, None if one may be absent."""
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

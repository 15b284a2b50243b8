"""From learned rules to questions, and from timed edits to an explanation: as text, Markdown or JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from dagc.base.errors import counted
from dagc.base.sample import TIME, Objective
from dagc.ir.choice import Choice
from dagc.ir.program import Action, Graph, Value, shown
from dagc.ir.traversal import Event, Traversal, traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine, Store
from dagc.lab.orders import Orders
from dagc.learn.edits import questions
from dagc.learn.features import SYNC_FOR, Implications, Naming, Samples
from dagc.learn.pairs import (
    LEVEL,
    MOST_MARGIN,
    AnsweredQuestion,
    Edit,
    Finding,
    PairTiming,
    Question,
    TimingOptions,
    Verdict,
    differing,
    time_pairs,
)
from dagc.learn.text import cell, finite, in_form, why_no_rules
from dagc.learn.tree import LearnedRules
from dagc.learn.types import Example, Rule, RuleSet

# ---- mechanisms ----

_MOST = 3  # facts in a sentence
_BLOCKING = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)
_POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts of one traversal, by the names of ops and sync ops.

    stream    stream of each GPU op
    waited    CES-b4-v, CSWE-after-u -> ops that it waits for although no later op needs them
    behind    per op: waits of the CPU before it is issued, by name
    place     per op: number of entries before it
    syncs     number of sync ops
    """

    stream: dict[str, int]
    waited: dict[str, frozenset[str]]
    behind: dict[str, tuple[str, ...]]
    place: dict[str, int]
    syncs: int


def mechanism(graph: Graph, best: Traversal, edit: Traversal, about: Sequence[str]) -> str:
    """A sentence on the differences of `edit` from `best`, both of one graph; "" if none is known.

    `about`: names in the rule; differences that concern them come first.
    """
    before, after = _facts(graph, best), _facts(graph, edit)
    changes = [*_waits(before, after), *_streams(graph, before, after), *_launches(graph, before, after)]
    changes.sort(key=lambda fact: -len({*about} & {*fact[0]}))  # stable
    out = [text for _, text in changes[:_MOST]] or list(_posts(graph, before, after))[:_MOST]
    if before.syncs != after.syncs:
        more = after.syncs - before.syncs
        out.append(f"{counted(abs(more), 'sync op')} {'more' if more > 0 else 'fewer'}")
    return "; ".join(out)


def changes(best: Choice, edit: Choice) -> str:
    """`transport mpi_host instead of nccl`; `staging ops (the other has no staging)`."""
    names = sorted(best.keys() | edit.keys())
    pairs = [(name, best.get(name), edit.get(name)) for name in names]
    return ", ".join(_change(name, old, new) for name, old, new in pairs if old != new)


def _change(name: str, old: Value | None, new: Value | None) -> str:
    if new is None:
        return f"no {name}" + (f" (the other has {shown(old)})" if old is not None else "")
    other = f"instead of {shown(old)}" if old is not None else f"(the other has no {name})"
    return f"{name} {shown(new)} {other}"


def _facts(graph: Graph, traversal: Traversal) -> _Facts:
    names: list[list[str]] = [[] for _ in traversal.entries]
    for name, position in Naming.of(graph).positions(traversal).items():
        names[position].append(name)
    needs = _needs(graph)
    stream: dict[str, int] = {}
    lanes: dict[int, list[str]] = {}
    covers: dict[Event, frozenset[str]] = {}
    waited: dict[str, frozenset[str]] = {}
    behind: dict[str, tuple[str, ...]] = {}
    place: dict[str, int] = {}
    waits: list[str] = []
    for position, entry in enumerate(traversal.entries):
        lane = entry.stream
        if entry.op is not None:
            name = graph.ops[entry.op].name
            behind[name], place[name] = tuple(waits), position
            if lane is not None:
                stream[name] = int(lane)
                lanes.setdefault(int(lane), []).append(name)
            elif graph.ops[entry.op].action in _BLOCKING:
                waits.append(name)
        elif entry.records:
            covers[entry.event] = frozenset(lanes.get(int(entry.stream), ()))
        else:
            for name in names[position]:
                host = name.removeprefix(SYNC_FOR)
                waited[name] = covers[entry.event] - needs[host if host != name else _next(graph, traversal, position)]
            if lane is None and names[position]:
                waits.append(names[position][0])
    syncs = sum(entry.op is None for entry in traversal.entries)
    return _Facts(stream, waited, behind, place, syncs)


def _next(graph: Graph, traversal: Traversal, position: int) -> str:
    """The next op of the stream after the wait at `position`."""
    lane, later = traversal.entries[position].stream, traversal.entries[position:]
    return next(graph.ops[e.op].name for e in later if e.op is not None and e.stream == lane)


_Fact = tuple[tuple[str, ...], str]  # names it concerns, text


def _waits(before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """Waits that wait for more, or fewer, ops than before."""
    for name in sorted(before.waited.keys() & after.waited.keys()):
        more, less = after.waited[name] - before.waited[name], before.waited[name] - after.waited[name]
        if more:
            yield (name, *sorted(more)), f"{name} also waits for {_listed(more)}"
        if less:
            yield (name, *sorted(less)), f"{name} no longer waits for {_listed(less)}"


def _streams(graph: Graph, before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """Ops that now share a stream, or no longer do."""
    needs = _needs(graph)
    direct = {(graph.ops[u].name, graph.ops[v].name) for u, v in graph.completion}
    for a, b in combinations([op.name for op in graph.ops if op.gpu], 2):
        shared, share = before.stream[a] == before.stream[b], after.stream[a] == after.stream[b]
        if shared == share:
            continue
        first, second = sorted((a, b), key=lambda name: after.place[name])
        ordered = first in needs[second]
        if ordered and (first, second) not in direct:
            continue
        if share:
            text = f"{second} follows {first} in its stream" + ("" if ordered else ", and waits for it")
        elif ordered:
            text = f"{second} is in a different stream from {first}, and waits for it by an event"
        else:
            text = f"{first} and {second} may overlap"
        yield (a, b), text


def _launches(graph: Graph, before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """GPU ops and messages that the CPU issues after more, or fewer, waits."""
    for op in graph.ops:
        if not op.gpu and op.action not in _POSTS:
            continue
        name, verb = op.name, "issued" if op.gpu else "posted"
        old, new = before.behind[name], after.behind[name]
        more, less = [w for w in new if w not in old], [w for w in old if w not in new]
        if more:
            yield (name, *more), f"{name} is {verb} only after {_listed(more)}"
        elif less:
            yield (name, *less), f"{name} is {verb} before {_listed(less)}"


def _posts(graph: Graph, before: _Facts, after: _Facts) -> Iterable[str]:
    """Sends that are posted later or earlier."""
    for op in graph.ops:
        moved = after.place[op.name] - before.place[op.name]
        if moved and op.action in (Action.POST_SEND, Action.POST_COLLECTIVE):
            entries = f"{abs(moved)} entr{'ies' if abs(moved) > 1 else 'y'}"
            yield f"{op.name} is posted {entries} {'later' if moved > 0 else 'earlier'}"


def _needs(graph: Graph) -> dict[str, set[str]]:
    """Per op: all ops that must have completed before it, directly or indirectly."""
    ancestors: dict[int, set[int]] = {op.id: set() for op in graph.ops}
    changed = True
    while changed:
        changed = False
        for u, v in graph.completion:
            wanted = ancestors[u] | {u}
            if not wanted <= ancestors[v]:
                ancestors[v] |= wanted
                changed = True
    return {graph.ops[v].name: {graph.ops[u].name for u in needs} for v, needs in ancestors.items()}


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names) if isinstance(names, (set, frozenset)) else list(names)
    shown_names = ordered[:3] + ([f"{len(ordered) - 3} more"] if len(ordered) > 3 else [])
    return " and ".join(shown_names) if len(shown_names) < 3 else f"{', '.join(shown_names[:-1])} and {shown_names[-1]}"


# ---- explanations ----


@dataclass(frozen=True, slots=True)
class Explanation:
    """All answers for the best implementation.

    traversal    text of the best
    value        its estimate from the results file, as `dagc best` prints it
    number       its class, from 0, of `classes`
    noise        relative standard deviation of a single measurement, NaN: unknown
    shown        per answer and edit: its description
    """

    program: str
    configuration: Choice
    traversal: str
    value: float
    number: int
    classes: int
    implementations: int
    noise: float
    answers: tuple[AnsweredQuestion, ...]
    shown: tuple[tuple[EditView, ...], ...]
    notes: tuple[str, ...] = ()
    objective: Objective = TIME


@dataclass(frozen=True, slots=True)
class EditView:
    """The description of an edit. `before` and `after`: the entries of the traversal that differ; empty if none do.

    mechanism   its effect on waits, streams and issue order, in words; "" if none is known
    """

    configuration: Choice
    traversal: str
    before: str
    after: str
    mechanism: str


_MOST_FURTHER = 12  # rules of other rule sets that are asked about


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The best, the rule set that it follows, and the questions about it."""

    best: Candidate
    rule_set: RuleSet
    questions: tuple[Question, ...]
    notes: tuple[str, ...]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates to time: the best first."""
        return tuple(dict.fromkeys((self.best, *(e.candidate for q in self.questions for e in q.edits))))

    def moved(self, domain: Orders, other: Orders) -> Inquiry:
        """The same with candidates of another domain that has their configurations."""

        def there(candidate: Candidate) -> Candidate:
            index = other.number(domain.spaces[candidate.space].configuration)
            assert index is not None
            return Candidate(index, candidate.traversal)

        return replace(
            self,
            best=there(self.best),
            questions=tuple(
                replace(q, edits=tuple(replace(e, candidate=there(e.candidate)) for e in q.edits))
                for q in self.questions
            ),
        )


@dataclass(frozen=True, slots=True)
class Answers:
    """One for each question. `noise`: of a single measurement; `interrupted`: by the user."""

    answers: tuple[AnsweredQuestion, ...]
    noise: float
    interrupted: bool


def ask(
    learned: LearnedRules,
    domain: Orders,
    best: Candidate,
    *,
    variants: int = 3,
    sets: int = 3,
    known: Iterable[Candidate] = (),
    usable: Callable[[Candidate], bool] | None = None,
) -> Inquiry:
    """Questions about the rules that the best follows, and about those of `sets` more rule sets of its class.

    Of the other rule sets, only rules that hold for the best and are not implied by its own are used. The other
    arguments are those of dagc.learn.edits.questions.
    """
    configured = domain.spaces[best.space]
    own = learned.satisfied(Example(configured.graph, configured.configuration, best.traversal, 0.0))
    notes = []
    reason = why_no_rules(learned)
    if reason:
        notes.append(f"no rule can be broken. {reason}")
    elif own.number:
        notes.append(f"the tree assigns the best implementation to class {own.number + 1}, not to the fastest")
    further = _further(learned, domain, best, own, sets)
    asked = questions(domain, best, own.rules, further, variants=variants, known=known, usable=usable)
    if asked and not any(question.edits for question in asked):
        notes.append(
            "there are no edits: no implementation of these configurations breaks a rule of the best, so nothing was "
            "timed"
        )
    return Inquiry(best, own, asked, tuple(notes))


def _further(learned: LearnedRules, domain: Orders, best: Candidate, own: RuleSet, sets: int) -> list[Rule]:
    configured = domain.spaces[best.space]
    alone = Samples([(configured.graph, configured.configuration, best.traversal)])
    others = [s for s in learned.of_class(own.number) if s != own][:sets]
    rules = dict.fromkeys(rule for rule_set in others for rule in rule_set.rules if rule not in own.rules)
    if not rules:
        return []
    imply = Implications(Samples.of(learned.samples))
    held = [rule for rule in rules if (alone.ask(rule.feature) == rule.truth).all()]
    return [rule for rule in held if not imply.implies(own.rules, rule)][:_MOST_FURTHER]


def answer(
    domain: Orders,
    asked: Inquiry,
    machine: Machine[Candidate],
    store: Store[Candidate],
    options: TimingOptions,
    *,
    most: Callable[[Candidate], int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Time all edits (dagc.learn.pairs.time_pairs). An edit that breaks several rules is timed once."""
    edits = [e.candidate for q in asked.questions for e in q.edits]
    timed = time_pairs(asked.best, edits, machine, store, options, most, progress)
    timings = iter(timed.timings)
    each = [(q, tuple(next(timings) for _ in q.edits)) for q in asked.questions]
    several = sum(len(of_one) > 1 for _, of_one in each)
    answers = tuple(AnsweredQuestion(q, of_one, differing(of_one, several)) for q, of_one in each)
    return Answers(answers, options.noise, timed.interrupted)


def explanation(
    learned: LearnedRules,
    domain: Orders,
    asked: Inquiry,
    answers: Answers,
    value: float,
    notes: Sequence[str] = (),
    objective: Objective = TIME,
) -> Explanation:
    """The content of the output. `value`: of the best in the results file, by its `objective`."""
    configured = domain.spaces[asked.best.space]
    return Explanation(
        program=configured.graph.program.name,
        configuration=configured.configuration,
        traversal=traversal_text(asked.best.traversal, configured.graph),
        value=value,
        number=asked.rule_set.number,
        classes=len(learned.classes.classes),
        implementations=len(learned.samples),
        noise=answers.noise,
        answers=answers.answers,
        shown=tuple(
            tuple(view_of(domain, asked.best, edit.candidate, about) for edit in a.question.edits)
            for a, about in ((a, (a.rule.feature.a, a.rule.feature.b)) for a in answers.answers)
        ),
        notes=(
            *notes,
            *asked.notes,
            *(["interrupted: some edits were timed less, or not at all"] if answers.interrupted else []),
        ),
        objective=objective,
    )


def view_of(domain: Orders, best: Candidate, edit: Candidate, about: Sequence[str] = ()) -> EditView:
    """What an edit changes in the best. `about`: names; what concerns them comes first."""
    here, there = domain.spaces[best.space], domain.spaces[edit.space]
    old = traversal_text(best.traversal, here.space.graph)
    new = traversal_text(edit.traversal, there.space.graph)
    before, after = difference(old.split(), new.split())
    if best.space == edit.space:
        effect = mechanism(here.space.graph, best.traversal, edit.traversal, about)
    else:
        effect = changes(here.configuration, there.configuration)
        effect += "" if old == new else ", and another order"
    return EditView(there.configuration, new, before, after, effect)


def difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The differing parts of two texts, with one entry of context on both sides: `... a [b] c ...`."""
    if list(before) == list(after):
        return "", ""
    least = min(len(before), len(after))
    start = next((i for i in range(least) if before[i] != after[i]), least)
    end = next((i for i in range(least - start) if before[-1 - i] != after[-1 - i]), least - start)
    start, end = max(0, start - 1), max(0, end - 1)

    def shown(words: Sequence[str]) -> str:
        middle = list(words[start : len(words) - end])
        return " ".join((["..."] if start else []) + middle + (["..."] if end else []))

    return shown(before), shown(after)


# ---- as text, Markdown or JSON ---------------------------------------------------------------------


_MOST_NAMED = 3  # rules in a line of the table; the paragraph of the rule names all
_WORDS = {
    Finding.CAUSE: "costs",
    Finding.JOINT: "not separable",
    Finding.CORRELATION: "correlation: costs nothing",
    Finding.DEPENDS: "depends on how it is broken",
    Finding.FASTER: "faster without it",
    Finding.UNDECIDED: "undecided",
    Finding.UNBREAKABLE: "not breakable",
    Finding.FAILED: "not timed",
}


def render(explanation: Explanation, form: str = "text", everything: bool = True) -> str:
    """The explanation in one of FORMATS; `everything`: also the edits, which JSON always has.

    Ends with a newline. Raises UsageError for another form.
    """
    return in_form(
        form, lambda: _text(explanation, everything), lambda: _markdown(explanation, everything),
        lambda: as_json(explanation),
    )  # fmt: skip


# ---- pieces ---------------------------------------------------------------------------------


def _class(explanation: Explanation) -> str:
    size = counted(explanation.implementations, "implementation")
    return f"class {explanation.number + 1} of {explanation.classes} ({size})"


def _finding(answer: AnsweredQuestion) -> str:
    """The finding, with the rules that the edits also break: the finding applies to these as well."""
    others = answer.inseparable
    if not others:
        return _WORDS[answer.finding]
    named = ", ".join(rule.text for rule in others[:_MOST_NAMED])
    named += f" and {counted(len(others) - _MOST_NAMED, 'more rule')}" if len(others) > _MOST_NAMED else ""
    if answer.finding is Finding.JOINT:
        return f"not separable: the cost is of this rule, or of what breaks with it: {named}"
    return f"{_WORDS[answer.finding]}, together with {named}"


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def cost_text(timing: PairTiming | None, objective: Objective) -> str:
    """`+5.1 % (+3.2 to +7.0), 3.48 us`."""
    if timing is None or timing.verdict is Verdict.FAILED:
        return "-"
    span = f"({percent(timing.low)} to {percent(timing.high)})"
    return f"{percent(timing.ratio)} % {span}, {objective.show(timing.cost, '+')}"


def _sorted(explanation: Explanation, own: bool) -> Iterator[tuple[AnsweredQuestion, tuple[EditView, ...]]]:
    """The answers about the rule set of the best, or about the others; by descending cost, those without cost last."""
    pairs = zip(explanation.answers, explanation.shown, strict=True)

    def key(pair: tuple[AnsweredQuestion, tuple[EditView, ...]]) -> tuple[float, str]:
        middle = pair[0].middle
        return (-middle.ratio if middle else math.inf, pair[0].rule.text)

    yield from sorted((p for p in pairs if p[0].question.own == own), key=key)


_SECTIONS = (
    (True, "Rules that the best follows, and the cost of breaking each one alone:"),
    (False, "Rules of other rule sets of its class that it also follows:"),
)


def _also(answer: AnsweredQuestion) -> str:
    """The rules that break with it if it cannot be broken alone."""
    if not answer.inseparable:
        return ""
    verb = "it cannot be broken alone" if answer.question.exact else "no way was found to break it alone"
    return f"{verb}: breaking it also breaks {', '.join(rule.text for rule in answer.inseparable)}"


def _size(edit: Edit) -> str:
    return f"{edit.distance} answer{'s' * (edit.distance != 1)} differ{'s' * (edit.distance == 1)}"


def _none(answer: AnsweredQuestion) -> str:
    if answer.question.edits:
        return ""
    explanation = "breaks it" if answer.question.exact else "was found that breaks it"
    return f"no implementation of the same configuration {explanation}"


def _closing(explanation: Explanation) -> Iterator[str]:
    timings = [t for a in explanation.answers for t in a.timings if t.verdict is not Verdict.FAILED]
    if not timings:
        return
    fewest, most = min(t.pairs for t in timings), max(t.pairs for t in timings)
    sure = min(t.confidence for t in timings)
    pairs = f"{fewest} to {most} interleaved pairs" if fewest != most else counted(most, "interleaved pair")
    yield (
        f"Each edit was timed in {pairs} with the best. A cost is the median over the edits that break the rule, with"
        f" its {100 * sure:.0f} % interval."
    )
    yield (
        f"All costs, speed-ups and dependences hold jointly with {100 * (1 - LEVEL):.0f} % confidence: a difference"
        " that is larger than its interval may still be chance among so many edits."
    )
    if not math.isnan(explanation.noise):
        margin = min(explanation.noise, MOST_MARGIN)
        yield (
            f"Costs nothing: the interval contains 0 and ends within {100 * margin:.1f} %. Undecided: neither this"
            f" nor a definite cost. Noise of a single measurement: {100 * explanation.noise:.1f} %."
        )
    gains = sorted(
        (t.ratio, view.configuration.text, view.traversal)
        for a, views in zip(explanation.answers, explanation.shown, strict=True)
        for t, view in zip(a.timings, views, strict=True)
        if t.verdict is Verdict.FASTER
    )
    if gains:
        ratio, configuration, traversal = gains[0]
        yield f"An edit is faster than the best by {100 * (1 - ratio):.1f} %: {configuration}: {traversal}"


# ---- text -----------------------------------------------------------------------------------


def _text(explanation: Explanation, everything: bool) -> str:
    objective = explanation.objective
    out = [
        f"best       {objective.named(explanation.value)}, {_class(explanation)}",
        f"           {explanation.configuration.text}",
        f"           {explanation.traversal}",
    ]
    out += [f"note       {note}" for note in explanation.notes]
    for own, title in _SECTIONS:
        answers = list(_sorted(explanation, own))
        out += ["", title] if answers or own else []
        if not answers:
            out += ["  there are none"] if own else []
            continue
        rows = [(answer.rule.text, cost_text(answer.middle, objective), _finding(answer)) for answer, _ in answers]
        rule, cost = (max(len(row[i]) for row in rows) for i in (0, 1))
        out += [f"  {row[0]:{rule}}  {row[1]:{cost}}  {row[2]}" for row in rows]
    out += ["", *_closing(explanation)]
    out += ["`--all` prints the edits."] if explanation.answers and not everything else []
    for own, _ in _SECTIONS if everything else ():
        for answer, views in _sorted(explanation, own):
            out += ["", f"{answer.rule.text}: {_WORDS[answer.finding]}", *_text_of(answer, views, objective)]
    return "\n".join(out).rstrip() + "\n"


def _text_of(answer: AnsweredQuestion, views: Sequence[EditView], objective: Objective) -> Iterator[str]:
    for remark in (_none(answer), _also(answer)):
        if remark:
            yield f"  {remark}"
    edits = zip(answer.question.edits, answer.timings, views, strict=True)
    for number, (edit, timing, view) in enumerate(edits, 1):
        yield f"  {number}. {timing.failure or cost_text(timing, objective)}; {_size(edit)}"
        if view.mechanism:
            yield f"     {view.mechanism}"
        if view.before:
            yield f"     - {view.before}"
            yield f"     + {view.after}"


# ---- Markdown -------------------------------------------------------------------------------


def _markdown(explanation: Explanation, everything: bool) -> str:
    objective = explanation.objective
    out = [
        f"## What breaking a rule costs: {cell(explanation.program)}",
        "",
        f"Best: {objective.named(explanation.value)}, {_class(explanation)}, {cell(explanation.configuration.text)}",
        "",
        f"    {explanation.traversal}",
        "",
        *(f"- {cell(note)}" for note in explanation.notes),
    ]
    for own, title in _SECTIONS:
        answers = list(_sorted(explanation, own))
        if answers:
            out += ["", title, "", "| rule | cost | finding | remarks |", "|---|---|---|---|"]
            out += [
                f"| {cell(a.rule.text)} | {cost_text(a.middle, objective)} | {_finding(a)} |"
                f" {cell(_none(a) or _also(a))} |"
                for a, _ in answers
            ]
    out += ["", *(f"- {cell(line)}" for line in _closing(explanation))]
    for own, _ in _SECTIONS if everything else ():
        for answer, views in _sorted(explanation, own):
            if views:
                out += ["", f"### {cell(answer.rule.text)}", ""]
                out += ["| cost | what changes | instead of | edit |", "|---|---|---|---|"]
                out += [_markdown_row(t, v, objective) for t, v in zip(answer.timings, views, strict=True)]
    return "\n".join(out).rstrip() + "\n"


def _markdown_row(timing: PairTiming, view: EditView, objective: Objective) -> str:
    entries = [f"`{text}`" if text else "" for text in (view.before, view.after)]
    cost = cell(timing.failure) or cost_text(timing, objective)
    return f"| {cost} | {cell(view.mechanism)} | {entries[0]} | {entries[1]} |"


# ---- JSON -----------------------------------------------------------------------------------


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Everything, with times in seconds and ratios to the best; unknown values are null."""
    return {
        "program": explanation.program,
        "objective": explanation.objective.text,
        "configuration": dict(explanation.configuration),
        "traversal": explanation.traversal,
        "seconds": finite(explanation.value),
        "class": explanation.number + 1,
        "classes": explanation.classes,
        "implementations": explanation.implementations,
        "noise": finite(explanation.noise),
        "notes": list(explanation.notes),
        "rules": [_rule_json(a, v) for own, _ in _SECTIONS for a, v in _sorted(explanation, own)],
    }


def _rule_json(answer: AnsweredQuestion, views: Sequence[EditView]) -> dict[str, Any]:
    middle = answer.middle
    return {
        "rule": answer.rule.text,
        "of_the_best": answer.question.own,
        "finding": answer.finding.value,
        "all_looked_at": answer.question.exact,
        "not_separable_from": [rule.text for rule in answer.inseparable],
        "probability_that_edits_differ_by_chance": finite(answer.differ),
        "ratio": finite(middle.ratio) if middle else None,
        "low": finite(middle.low) if middle else None,
        "high": finite(middle.high) if middle else None,
        "edits": [
            {
                "configuration": dict(view.configuration),
                "traversal": view.traversal,
                "distance": edit.distance,
                "also_broken": [rule.text for rule in edit.also],
                "changed_decisions": list(edit.changed),
                "mechanism": view.mechanism,
                "verdict": timing.verdict.value,
                "failure": timing.failure,
                "pairs": timing.pairs,
                **{
                    name: finite(getattr(timing, name))
                    for name in ("ratio", "low", "high", "confidence", "best", "edited", "p")
                },
            }
            for edit, timing, view in zip(answer.question.edits, answer.timings, views, strict=True)
        ],
    }

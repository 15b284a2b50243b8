"""From what was learned to questions, and from timed edits to an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dagc.ir.traversal import traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Machine, Store
from dagc.lab.orders import Orders
from dagc.learn.explain.edits import questions
from dagc.learn.explain.mechanism import changes, mechanism
from dagc.learn.explain.pairs import Options, time_pairs
from dagc.learn.explain.types import Answer, Edit, EditView, Explanation, Question
from dagc.learn.rules.features import Samples
from dagc.learn.rules.imply import Implications
from dagc.learn.rules.learn import LearnedRules
from dagc.learn.rules.text import why_no_rules
from dagc.learn.rules.types import Rule, RuleSet, Sample

_MOST_FURTHER = 12  # rules of other rule sets that are asked about


@dataclass(frozen=True, slots=True)
class Asked:
    """The best, the rule set that it follows, and what is asked about it."""

    best: Candidate
    rule_set: RuleSet
    questions: tuple[Question, ...]
    notes: tuple[str, ...]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What has to be timed: the best first."""
        return tuple(dict.fromkeys((self.best, *(e.candidate for q in self.questions for e in q.edits))))

    def moved(self, domain: Orders, other: Orders) -> Asked:
        """The same with candidates of another domain, which has their configurations."""

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

    answers: tuple[Answer, ...]
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
) -> Asked:
    """Questions about the rules that the best follows, and about those of `sets` more rule sets of its class.

    Of the other rule sets only rules count that hold for the best, and that its own do not imply. See
    dagc.learn.explain.edits.questions for the rest.
    """
    configured = domain.spaces[best.space]
    own = learned.satisfied(Sample(configured.graph, configured.configuration, best.traversal, 0.0))
    notes = []
    reason = why_no_rules(learned)
    if reason:
        notes.append(f"there is nothing to break. {reason}")
    elif own.number:
        notes.append(f"by its rules the tree gives the best to class {own.number + 1}, not to the fastest")
    further = _further(learned, domain, best, own, sets)
    asked = questions(domain, best, own.rules, further, variants=variants, known=known, usable=usable)
    if asked and not any(question.edits for question in asked):
        notes.append(
            "there are no edits: no implementation of these configurations breaks a rule of the best, so nothing was "
            "timed"
        )
    return Asked(best, own, asked, tuple(notes))


def _further(learned: LearnedRules, domain: Orders, best: Candidate, own: RuleSet, sets: int) -> list[Rule]:
    configured = domain.spaces[best.space]
    alone = Samples([(configured.graph, configured.configuration, best.traversal)])
    others = [s for s in learned.of_class(own.number) if s != own][:sets]
    rules = dict.fromkeys(rule for found in others for rule in found.rules if rule not in own.rules)
    if not rules:
        return []
    imply = Implications(Samples.of(learned.samples))
    held = [rule for rule in rules if (alone.ask(rule.feature) == rule.truth).all()]
    return [rule for rule in held if not imply.implies(own.rules, rule)][:_MOST_FURTHER]


def answer(
    domain: Orders,
    asked: Asked,
    machine: Machine[Candidate],
    store: Store[Candidate],
    options: Options,
    *,
    most: Callable[[Candidate], int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Time all edits; see dagc.learn.explain.pairs.time_pairs. One that breaks several rules is timed once."""
    edits = [e.candidate for q in asked.questions for e in q.edits]
    timed = time_pairs(asked.best, edits, machine, store, options, most, progress)
    timings = iter(timed.timings)
    return Answers(
        tuple(Answer(q, tuple(next(timings) for _ in q.edits)) for q in asked.questions),
        options.noise,
        timed.interrupted,
    )


def explanation(
    learned: LearnedRules, domain: Orders, asked: Asked, answers: Answers, seconds: float, notes: Sequence[str] = ()
) -> Explanation:
    """All that is printed. `seconds`: the best's time in the results file."""
    configured = domain.spaces[asked.best.space]
    return Explanation(
        program=configured.graph.program.name,
        configuration=configured.configuration,
        traversal=traversal_text(asked.best.traversal, configured.graph),
        seconds=seconds,
        number=asked.rule_set.number,
        classes=len(learned.classes.classes),
        implementations=len(learned.samples),
        noise=answers.noise,
        answers=answers.answers,
        shown=tuple(
            tuple(_view(domain, asked.best, a.question.rule, edit) for edit in a.question.edits)
            for a in answers.answers
        ),
        notes=(
            *notes,
            *asked.notes,
            *(["interrupted: some edits were timed less, or not at all"] if answers.interrupted else []),
        ),
    )


def _view(domain: Orders, best: Candidate, rule: Rule, edit: Edit) -> EditView:
    here, there = domain.spaces[best.space], domain.spaces[edit.candidate.space]
    old = traversal_text(best.traversal, here.space.graph)
    new = traversal_text(edit.candidate.traversal, there.space.graph)
    before, after = difference(old.split(), new.split())
    if best.space == edit.candidate.space:
        about = (rule.feature.a, rule.feature.b)
        said = mechanism(here.space.graph, best.traversal, edit.candidate.traversal, about)
    else:
        said = changes(here.configuration, there.configuration)
        said += "" if old == new else ", and another order"
    return EditView(there.configuration, new, before, after, said)


def difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The stretches in which two texts differ, with an entry on both sides: `... a [b] c ...`."""
    if list(before) == list(after):
        return "", ""
    least = min(len(before), len(after))
    start = next((i for i in range(least) if before[i] != after[i]), least)
    end = next((i for i in range(least - start) if before[-1 - i] != after[-1 - i]), least - start)
    start, end = max(0, start - 1), max(0, end - 1)

    def stretch(words: Sequence[str]) -> str:
        shown = list(words[start : len(words) - end])
        return " ".join((["..."] if start else []) + shown + (["..."] if end else []))

    return stretch(before), stretch(after)

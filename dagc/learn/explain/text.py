"""An explanation as text, Markdown or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dagc.base.errors import counted
from dagc.base.objective import Objective
from dagc.learn.explain.pairs import (
    LEVEL,
    MOST_MARGIN,
    AnsweredQuestion,
    Edit,
    EditView,
    Explanation,
    Finding,
    PairTiming,
    Verdict,
)
from dagc.learn.rules.text import cell, finite, in_form

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


def render(explanation: Explanation, form: str = "text") -> str:
    """The explanation in one of FORMATS. Ends with a newline. Raises UsageError for another form."""
    return in_form(form, lambda: _text(explanation), lambda: _markdown(explanation), lambda: as_json(explanation))


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


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def _cost(timing: PairTiming | None, objective: Objective) -> str:
    """`+5.1 % (+3.2 to +7.0), 3.48 us`."""
    if timing is None or timing.verdict is Verdict.FAILED:
        return "-"
    span = f"({_percent(timing.low)} to {_percent(timing.high)})"
    return f"{_percent(timing.ratio)} % {span}, {objective.show(timing.cost, '+')}"


def _sorted(explanation: Explanation, own: bool) -> Iterator[tuple[AnsweredQuestion, tuple[EditView, ...]]]:
    """The answers about the rule set of the best, or about the others; by descending cost, those without cost last."""
    pairs = zip(explanation.answers, explanation.shown, strict=True)

    def key(pair: tuple[AnsweredQuestion, tuple[EditView, ...]]) -> tuple[float, str]:
        middle = pair[0].middle
        return (-middle.ratio if middle else math.inf, pair[0].rule.text)

    yield from sorted((p for p in pairs if p[0].question.own == own), key=key)


_SECTIONS = (
    (True, "Rules that the best follows, and what breaking one rule alone costs:"),
    (False, "Rules of other rule sets of its class that hold for it too:"),
)


def _also(answer: AnsweredQuestion) -> str:
    """The rules that break with it if it cannot be broken alone."""
    if not answer.inseparable:
        return ""
    verb = "it cannot be broken alone" if answer.question.exact else "no way was found to break it alone"
    return f"{verb}: with it breaks {', '.join(rule.text for rule in answer.inseparable)}"


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
        f"Each edit was timed in {pairs} with the best. A cost is the middle one of the edits that break the rule, with"
        f" its {100 * sure:.0f} % interval."
    )
    yield (
        f"All costs, speed-ups and dependences hold jointly with {100 * (1 - LEVEL):.0f} % confidence: a difference"
        " that is larger than its interval may still be chance among so many edits."
    )
    if not math.isnan(explanation.noise):
        margin = min(explanation.noise, MOST_MARGIN)
        yield (
            f"Costs nothing: the interval holds 0 and ends within {100 * margin:.1f} %. Undecided: neither this nor"
            f" a cost for certain. Noise of a single measurement: {100 * explanation.noise:.1f} %."
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


def _text(explanation: Explanation) -> str:
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
        rows = [(answer.rule.text, _cost(answer.middle, objective), _finding(answer)) for answer, _ in answers]
        rule, cost = (max(len(row[i]) for row in rows) for i in (0, 1))
        out += [f"  {row[0]:{rule}}  {row[1]:{cost}}  {row[2]}" for row in rows]
    out += ["", *_closing(explanation)]
    for own, _ in _SECTIONS:
        for answer, views in _sorted(explanation, own):
            out += ["", f"{answer.rule.text}: {_WORDS[answer.finding]}", *_text_of(answer, views, objective)]
    return "\n".join(out).rstrip() + "\n"


def _text_of(answer: AnsweredQuestion, views: Sequence[EditView], objective: Objective) -> Iterator[str]:
    for remark in (_none(answer), _also(answer)):
        if remark:
            yield f"  {remark}"
    edits = zip(answer.question.edits, answer.timings, views, strict=True)
    for number, (edit, timing, view) in enumerate(edits, 1):
        yield f"  {number}. {timing.failure or _cost(timing, objective)}; {_size(edit)}"
        if view.mechanism:
            yield f"     {view.mechanism}"
        if view.before:
            yield f"     - {view.before}"
            yield f"     + {view.after}"


# ---- Markdown -------------------------------------------------------------------------------


def _markdown(explanation: Explanation) -> str:
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
                f"| {cell(a.rule.text)} | {_cost(a.middle, objective)} | {_finding(a)} | {cell(_none(a) or _also(a))} |"
                for a, _ in answers
            ]
    out += ["", *(f"- {cell(line)}" for line in _closing(explanation))]
    for own, _ in _SECTIONS:
        for answer, views in _sorted(explanation, own):
            if views:
                out += ["", f"### {cell(answer.rule.text)}", ""]
                out += ["| cost | what changes | instead of | edit |", "|---|---|---|---|"]
                out += [_markdown_row(t, v, objective) for t, v in zip(answer.timings, views, strict=True)]
    return "\n".join(out).rstrip() + "\n"


def _markdown_row(timing: PairTiming, view: EditView, objective: Objective) -> str:
    entries = [f"`{text}`" if text else "" for text in (view.before, view.after)]
    cost = cell(timing.failure) or _cost(timing, objective)
    return f"| {cost} | {cell(view.mechanism)} | {entries[0]} | {entries[1]} |"


# ---- JSON -----------------------------------------------------------------------------------


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Everything, with times in seconds and ratios to the best; unknown values are null."""
    return {
        "program": explanation.program,
        "objective": explanation.objective.text,
        "configuration": dict(explanation.configuration.decisions),
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
                "configuration": dict(view.configuration.decisions),
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

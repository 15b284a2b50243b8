"""Rules across inputs as text, Markdown or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dagc.base.errors import counted
from dagc.base.objective import TIME, Objective
from dagc.ir.program import Value, shown
from dagc.learn.rules.across import LOSS, WORST, AcrossRules, Group, Input, LeftOutInput, Loss
from dagc.learn.rules.text import cell, finite, in_form, percent, rule_json


def render_across(learned: AcrossRules, form: str = "text", objective: Objective = TIME) -> str:
    """The rules in one of FORMATS. Ends with a newline. Raises UsageError for another form."""
    return in_form(
        form,
        lambda: "\n".join(_lines(learned, objective)) + "\n",
        lambda: "\n".join(_markdown(learned, objective)) + "\n",
        lambda: _json(learned, objective),
    )


# ---- pieces ---------------------------------------------------------------------------------


def _loss(loss: Loss) -> str:
    if not loss.followers:
        return "no measured implementation follows the rules"
    return f"{percent(loss.median)} ({percent(loss.worst)}) of {loss.followers}"


def _too_much(loss: Loss) -> str:
    return "" if loss.small else ", too large: the rules do not hold here"


def _verdict(one: LeftOutInput) -> str:
    if not one.loss.followers:
        return "not tested"
    return "holds" if one.loss.small else "does not hold"


def _claim(one: LeftOutInput) -> str:
    return "holds" if one.claim.holds else f"unknown: {one.claim.reason}"


def _where(group: Group, several: bool) -> str:
    named = ", ".join(group.inputs)
    if not several:
        return f"on all inputs ({named})"
    if group.condition is None:
        return f"on {named} (no parameter, size or machine distinguishes it)"
    tested = "" if len(group.inputs) > 1 else "; one input, so this condition is not tested"
    return f"where {group.condition.text} ({named}{tested})"


def _noise(given: Input) -> str:
    return "unknown" if math.isnan(given.floor) else percent(given.floor)


def _common(learned: AcrossRules) -> list[tuple[str, Value]]:
    """Facts of all inputs."""
    first, *others = learned.inputs
    return [fact for fact in first.facts if all(fact in other.facts for other in others)]


def _reasons(learned: AcrossRules) -> Iterable[str]:
    if learned.alike:
        yield (
            f"Not used: {', '.join(learned.alike)}. The differences between their implementations are no larger than"
            " expected by chance."
        )
    if not learned.groups:
        yield "No rules: fewer than two inputs have implementations that differ."


def _about(learned: AcrossRules) -> Iterable[str]:
    held = sum(one.loss.small for one in learned.left_out)
    count = len(learned.left_out)
    yield (
        f"Rules learned without the input hold on {held} of {count} inputs: the loss of their followers is at most"
        f" {100 * LOSS:.0f} % (median) and {100 * WORST:.0f} % (95th percentile)."
    )
    wrong = sum(one.claim.holds and not one.loss.small for one in learned.left_out)
    claimed = sum(one.claim.holds for one in learned.left_out)
    if claimed:
        wrongly = f"{counted(wrong, 'time')} wrongly"
        yield f"Without its times, this is predicted for {claimed} of {count}, {wrongly}."
    else:
        yield "Without its times, this is predicted for none of them."


# ---- text -----------------------------------------------------------------------------------


def _lines(learned: AcrossRules, objective: Objective) -> Iterable[str]:
    yield f"Rules across {counted(len(learned.inputs), 'input')}; a loss is relative to the best of the input"
    width = max(len(one.name) for one in learned.inputs)
    common = _common(learned)
    for one in learned.inputs:
        facts = " ".join(f"{name}={shown(value)}" for name, value in one.facts if (name, value) not in common)
        yield (
            f"  {one.name:{width}}  {counted(len(one.samples), 'implementation')}, best {objective.scaled(one.best)},"
            f" noise {_noise(one)}{'; ' if facts else ''}{facts}"
        )
    yield "  common: " + " ".join(f"{name}={shown(value)}" for name, value in common)
    yield from _reasons(learned)
    for group in learned.groups:
        yield from ("", f"{_where(group, len(learned.groups) > 1)}:")
        yield from (f"       {rule.text}" for rule in group.rules)
        if not group.rules:
            yield "       every implementation"
        for name, loss in zip(group.inputs, group.losses, strict=True):
            yield f"       [{name}: loss {_loss(loss)}{_too_much(loss)}]"
    if learned.left_out:
        yield from ("", "Leave-one-out: the loss of rules learned without the input, median (95th percentile), that of")
        yield "all its implementations, and the prediction without its times"
        for out in learned.left_out:
            losses = f"{_loss(out.loss)}, all: {_loss(out.others)}"
            yield f"  {out.name:{width}}  {losses}  {_verdict(out)}; predicted: {_claim(out)}"
        yield from _about(learned)


# ---- Markdown -------------------------------------------------------------------------------


def _markdown(learned: AcrossRules, objective: Objective) -> Iterable[str]:
    yield from (f"## Rules across {counted(len(learned.inputs), 'input')}", "")
    yield from ("| input | implementations | best | noise | facts |", "|---|---|---|---|---|")
    for one in learned.inputs:
        facts = ", ".join(f"{name} = {shown(value)}" for name, value in one.facts)
        yield (
            f"| {cell(one.name)} | {len(one.samples)} | {objective.scaled(one.best)} | {_noise(one)} | {cell(facts)} |"
        )
    yield from ("", *(f"- {line}" for line in _reasons(learned)))
    for group in learned.groups:
        yield from ("", f"### {cell(_where(group, len(learned.groups) > 1))}", "")
        yield from (f"- {cell(rule.text)}" for rule in group.rules)
        yield from ("", "| input | loss, median (95th percentile) |", "|---|---|")
        for name, loss in zip(group.inputs, group.losses, strict=True):
            yield f"| {cell(name)} | {_loss(loss)}{_too_much(loss)} |"
    if learned.left_out:
        yield from ("", "### Leave-one-out", "")
        yield from ("| input | prediction | loss of the followers | loss of all | |", "|---|---|---|---|---|")
        for out in learned.left_out:
            losses = f"{_loss(out.loss)} | {_loss(out.others)}"
            yield f"| {cell(out.name)} | {cell(_claim(out))} | {losses} | {_verdict(out)} |"
        yield from ("", *(f"- {line}" for line in _about(learned)))


# ---- JSON -----------------------------------------------------------------------------------


def _json(learned: AcrossRules, objective: Objective) -> dict[str, Any]:
    return {
        "objective": objective.text,
        "inputs": [
            {
                "name": one.name, "facts": dict(one.facts), "implementations": len(one.samples), "best": one.best,
                "noise": finite(one.floor), "alike": one.name in learned.alike,
            }
            for one in learned.inputs
        ],
        "groups": [
            {
                "inputs": list(group.inputs), "condition": group.condition.text if group.condition else None,
                "rules": [rule_json(rule) for rule in group.rules], "losses": _losses(group.losses),
            }
            for group in learned.groups
        ],
        "left_out": [
            {
                "input": out.name, "said_to_hold": out.claim.holds, "reason": out.claim.reason or None,
                "rules": [rule_json(rule) for rule in out.rules], "holds": out.loss.small,
                "loss": _losses([out.loss])[0], "loss_of_all": _losses([out.others])[0],
            }
            for out in learned.left_out
        ],
    }  # fmt: skip


def _losses(losses: Sequence[Loss]) -> list[dict[str, Any]]:
    return [
        {"followers": one.followers, "median": finite(one.median), "percentile_95": finite(one.worst)} for one in losses
    ]

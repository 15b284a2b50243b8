"""Learned rules as text, Markdown or JSON. There, classes are numbered from 1, the fastest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dagc.base.errors import UsageError, counted
from dagc.base.sample import TIME, Objective
from dagc.base.statistics import ENOUGH
from dagc.ir.traversal import traversal_text
from dagc.learn.classes import FEWEST_TO_CUT
from dagc.learn.fast import FastEnd
from dagc.learn.features import Samples
from dagc.learn.judging import Accuracy, CheckedRuleSet, Estimates, RuleSetVerdict, far
from dagc.learn.tree import LearnedRules, TreeError
from dagc.learn.types import Boundary, Classes, Example, Halves, Rule, RuleSet

FORMATS = ("text", "md", "json")


@dataclass(frozen=True, slots=True)
class Findings:
    """The content of a report with classes. `checked` and `accuracy` need a full exploration to compare with.

    `sets`: number of rule sets shown for each class (JSON has all). `estimates`: estimated times used for learning.
    `best`: the implementation that `dagc best` takes. `advice`: on a noisy machine. `fast`: printed first, None with
    too few samples.
    """

    learned: LearnedRules
    checked: tuple[CheckedRuleSet, ...] = ()
    accuracy: Accuracy | None = None
    sets: int = 3
    estimates: Estimates | None = None
    best: Example | None = None
    advice: tuple[str, ...] = ()
    objective: Objective = TIME
    fast: FastEnd | None = None

    def verdict(self, rule_set: RuleSet) -> CheckedRuleSet | None:
        return next((c for c in self.checked if c.rule_set == rule_set), None)


def render(findings: Findings, form: str = "text") -> str:
    """The findings in one of FORMATS. Ends with a newline. Raises UsageError for another form."""
    return in_form(form, lambda: _text(findings), lambda: _markdown(findings), lambda: as_json(findings))


def render_fast(
    fast: FastEnd, best: Example | None, advice: Sequence[str], objective: Objective = TIME, markdown: bool = False
) -> str:
    """The rules for the fast end alone: at most seven lines and the advice. Ends with a newline."""
    lines = list(fast_lines(fast, best, objective, _markdown_rule if markdown else _text_rule))
    lines[-1] += " `--all` prints the classes, the tree and its rules."
    return "\n".join([*lines, *advice]) + "\n"


# ---- rules for the fast end -----------------------------------------------------------------


def fast_lines(
    fast: FastEnd, best: Example | None, objective: Objective, rule: Callable[[str, str], str]
) -> Iterable[str]:
    """What follows which rules, and what breaking each costs: at most seven lines. `rule`: (text, cost) -> line."""
    shown = objective.scaled
    if not fast.rules:
        yield (
            f"No rules: of {_implementations(fast.samples)}, 95 % are within {percent(fast.spread)} of the best "
            f"({shown(fast.best)}), and no choice or order separates fast from slow better than chance."
        )
        return
    yield (
        f"{_implementations(fast.samples)}, 95 % of them up to {percent(fast.spread)} slower than the best "
        f"({shown(fast.best)}). Rules, and what breaking each alone costs:"
    )
    for one in fast.rules:
        yield rule(one.rule.text, percent(one.cost) if one.broken else "unknown")
    count = len(fast.rules)
    together = "What follows it" if count == 1 else "What follows both" if count == 2 else f"What follows all {count}"
    yield (
        f"{together}: {fast.held_out} of {fast.held_out} held-out implementations are within {percent(fast.slowest)} "
        f"of the best (of others, 1 in {fast.held_out + 1} may be slower{_nearly_all(fast)}), half of them within "
        f"{percent(fast.typical)}; {fast.followers} of those measured, from "
        f"{shown(fast.fastest)}{_of_best(fast, best)}."
    )


def _nearly_all(fast: FastEnd) -> str:
    """What holds for more of them, if few followers were held out."""
    return "" if fast.held_out >= ENOUGH else f", 1 in {ENOUGH + 1} slower than {percent(fast.stated)}"


def _of_best(fast: FastEnd, best: Example | None) -> str:
    if best is None:
        return ""
    follows = Samples.of([best]).follow(fast.plain)[0]
    return f", the best {'among' if follows else 'not among'} them"


def _text_rule(text: str, cost: str) -> str:
    return f"  {text:44} {cost:>8}"


def _markdown_rule(text: str, cost: str) -> str:
    return f"- {cell(text)}: {cost}"


def _fast(fast: FastEnd | None) -> dict[str, Any] | None:
    if fast is None:
        return None
    return {
        "rules": [
            {**rule_json(one.rule), "kinds": one.kinds, "cost": finite(one.cost), "broken": one.broken}
            for one in fast.rules
        ],
        "samples": fast.samples, "best": fast.best, "followers": fast.followers, "fastest": fast.fastest,
        "slowest_held_out": fast.slowest, "median_held_out": fast.typical, "held_out": fast.held_out,
        "stated": fast.stated, "all_95th_percentile": fast.spread,
    }  # fmt: skip


# ---- pieces that all reports share ----------------------------------------------------------


def in_form(
    form: str, text: Callable[[], str], markdown: Callable[[], str], content: Callable[[], dict[str, Any]]
) -> str:
    """The output of the writer of a form, or `content` as JSON. Raises UsageError for a form not in FORMATS."""
    if form not in FORMATS:
        raise UsageError(f"unknown format `{form}`", f"one of: {', '.join(FORMATS)}")
    if form == "json":
        return json.dumps(content(), indent=1) + "\n"
    return text() if form == "text" else markdown()


def cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    for mark in "\\`*_~|<":
        text = text.replace(mark, f"\\{mark}")
    return text


def finite(value: float) -> float | None:
    """A JSON number; null if unknown."""
    return value if math.isfinite(value) else None


# ---- pieces that text and Markdown share ----------------------------------------------------


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _estimate_lines(findings: Findings) -> Iterable[str]:
    learned, estimates = findings.learned, findings.estimates
    if estimates is not None:
        yield (
            f"Times of {len(learned.samples) - learned.measured} are estimated from {learned.measured} that were "
            "measured: of those that were not, and of those whose measurement is improbable."
        )
        yield (
            f"An estimate is off by {percent(estimates.error)} (median, of measured times that it was not made from); "
            f"the median of all would be by {percent(estimates.spread)}."
        )
        if estimates.weak:
            yield "The estimates are hardly better than that median: measure more, or leave out --estimate."


def _noise_lines(classes: Classes, objective: Objective) -> Iterable[str]:
    if math.isnan(classes.noise):
        yield "Boundaries were not compared with the noise: every one above the threshold of prominence is drawn."
    else:
        yield f"Noise floor of these times: {percent(classes.noise)}."
    for b in classes.dropped:
        yield f"Boundary at {objective.scaled(b.value)} not drawn: {b.why_dropped}."


def _best_line(findings: Findings) -> Iterable[str]:
    """The rule set of the best, which need not have the lowest time of class 1."""
    best, learned = findings.best, findings.learned
    if best is None or learned.tree.leaves == 1:
        return
    followed = learned.satisfied(best)
    place = learned.of_class(followed.number).index(followed) + 1
    yield f"The implementation that `dagc best` compiles follows rule set {place} of class {followed.number + 1}."


def why_no_rules(learned: LearnedRules) -> str:
    """Why no rule separates fast from slow; "" if there are rules."""
    classes = learned.classes
    if len(classes.classes) > 1:
        if learned.tree.leaves > 1:
            return ""
        if learned.halves is not None and learned.halves.refutes:
            return (
                "No rules: those of one half of the implementations say no more about the other half than one class "
                "for all. Measure more implementations."
            )
        return (
            "No rules: on held-out samples, no tree separates the classes better than one class for all. Measure "
            "more implementations, or each more than once (--passes 5)."
        )
    few = "Only one class, so there are no rules: "
    if len(learned.samples) < FEWEST_TO_CUT:
        number = len(learned.samples)
        verb = "is" if number == 1 else "are"
        return f"{few}{_implementations(number)} {verb} too few to find classes among. Measure more."
    spread = classes.times[-1] / classes.times[0] - 1
    apart = f"from fastest to slowest is {percent(spread)}"
    if classes.dropped:
        noise = f", the noise floor of these times {percent(classes.noise)}"
        advice = "Measure more than once (--passes 5), or with less noise."
        return f"{few}{apart}{noise}, and no class boundary is significant. {advice}"
    return f"{few}{apart}, and the sorted times have no distinct step."


def _tree_line(learned: LearnedRules) -> str:
    tree, held = learned.tree, learned.held_out
    leaves = counted(tree.leaves, "leaf", "leaves")
    pruned = f" (of {learned.full_leaves} before pruning)" if learned.full_leaves > tree.leaves else ""
    shape = f"Tree: {leaves}{pruned}, depth {tree.depth}"
    if held is None:
        return f"{shape}."
    tolerant = "" if math.isnan(learned.classes.noise) else ", where the noise does not account for it"
    return (
        f"{shape}. Error {percent(held.error)} on held-out samples (standard error {percent(held.deviation)}; one "
        f"class for all: {percent(held.one_answer)}), {percent(tree.error)} in training{tolerant}; all classes have"
        " equal weight."
    )


def stated_of_classes(learned: LearnedRules, shown: Callable[[float], str]) -> str:
    """What the rules of each class say of implementations that did not teach them; "" without rules."""
    if learned.tree.leaves == 1 or not learned.limits:
        return ""
    limits = [f"class {number}, over {shown(value)}" for number, value in enumerate(learned.limits, 1)]
    return f"Of others that follow the rules, 1 in {ENOUGH + 1} is expected to take: {'; '.join(limits)}."


def held_out_halves(learned: LearnedRules) -> Iterable[str]:
    """How rules of one half of the implementations do on the other half; empty if that is unknown."""
    found = learned.halves
    if found is None:
        return
    if found.without == found.halves:
        yield f"Rules of half of the implementations, {found.halves} halves: none."
        return
    none = f"; {found.without} of {found.halves} halves give no rules" if found.without else ""
    yield (
        f"Rules of half of the implementations predict the class of {percent(found.accuracy)} of the other half (one "
        f"class for all: {percent(found.constant)}, random labels: {percent(found.chance)}){none}."
    )
    if found.followers and not found.refutes:
        yield (
            f"What follows those of class 1 there takes {percent(found.loss)} longer than the best (median; 95th "
            f"percentile {percent(found.loss_95)}); {percent(found.slower)} of it is over what is stated of class 1 "
            f"by more than {percent(found.tolerance)}."
        )


def by_chance(learned: LearnedRules) -> str:
    """The probability of so many classes by chance; "" if it does not apply."""
    classes = learned.classes
    if math.isnan(classes.p):
        return "" if len(classes.classes) == 1 else "It was not tested whether chance alone gives these classes."
    count = counted(len(classes.classes), "class", "classes")
    if len(classes.classes) == 1:
        return f"Differences between the implementations are no larger than by chance (probability {classes.p:.2g})."
    return f"Probability of {count} by chance alone: {classes.p:.2g} or less."


def _accuracy_line(a: Accuracy) -> str:
    return (
        f"Accuracy: {percent(a.share)} of {a.implementations} implementations have a time within the range of "
        f"the class that the tree gives them ({percent(a.tolerant)} within the noise of it; random labels: "
        f"{percent(a.chance)}, one class for all: {percent(a.constant)}), learned from {a.learned_from}."
        + (
            f" Those that it gives class 1 take {percent(median(a.losses))} longer than the best (median of "
            f"{len(a.losses)}; 95th percentile {percent(far(a.losses))})."
            if a.losses
            else ""
        )
    )


def _insufficient(rule_set: RuleSet) -> str:
    """A remark on insufficient rules, else ""."""
    if rule_set.sufficient:
        return ""
    return f"insufficient rules: {rule_set.wrong} of {rule_set.samples} belong to another class"


def _about(findings: Findings) -> list[str]:
    """The lines below the classes in text and Markdown."""
    learned = findings.learned
    reason = why_no_rules(learned)
    return [
        *_estimate_lines(findings), *findings.advice, *_noise_lines(learned.classes, findings.objective),
        *filter(None, (by_chance(learned), reason, stated_of_classes(learned, findings.objective.scaled))),
        *held_out_halves(learned), _tree_line(learned),
        *_best_line(findings),
    ]  # fmt: skip


def _implementations(count: int) -> str:
    return counted(count, "implementation")


def _rest(left_out: Sequence[RuleSet]) -> str:
    return f"{len(left_out)} more, followed by {_implementations(sum(r.samples for r in left_out))}"


def _verdict_text(checked: CheckedRuleSet) -> str:
    match checked.verdict:
        case RuleSetVerdict.EMPTY:
            return "no implementation of the full exploration follows it"
        case RuleSetVerdict.UNDERCONSTRAINED:
            return f"underconstrained: {percent(checked.share)} of {checked.followers} that follow it are in its class"
        case RuleSetVerdict.OVERCONSTRAINED:
            return f"overconstrained: extraneous rules: {len(checked.extraneous)} of {len(checked.rule_set.rules)}"
        case RuleSetVerdict.CONSISTENT:
            return f"consistent: {percent(checked.share)} of {checked.followers} that follow it are in its class"


def _rule_lines(rule_set: RuleSet, checked: CheckedRuleSet | None) -> list[tuple[str, str]]:
    """(mark, rule): mark is "", "extra" or "missing"."""
    extra = set(checked.extraneous) if checked else set()
    out = [("extra" if rule in extra else "", rule.text) for rule in rule_set.rules]
    return out + [("missing", rule.text) for rule in (checked.missing if checked else ())]


def _by(findings: Findings) -> str:
    """The objective, if it is not the time."""
    return "" if findings.objective.is_time else f" by {findings.objective.text}"


def _width(width: float, noise: float) -> str:
    return f"{percent(width)} ({width / noise:.1f} x noise)" if noise > 0 else percent(width)


# ---- text -----------------------------------------------------------------------------------


def _text(findings: Findings) -> str:
    learned, classes = findings.learned, findings.learned.classes
    count, shown = len(classes.classes), findings.objective.scaled
    classed = counted(count, "performance class", "performance classes")
    out = (
        [] if findings.fast is None else [*fast_lines(findings.fast, findings.best, findings.objective, _text_rule), ""]
    )
    out.append(f"{classed} of {_implementations(len(learned.samples))}{_by(findings)}")
    for c in classes.classes:
        span = f"{shown(c.fastest)} to {shown(c.slowest)}"
        out.append(f"  class {c.number + 1}  {c.count:6d}  {span}, median {shown(c.median)}, "
                   f"width {_width(c.width, classes.noise)}")  # fmt: skip
    out += _about(findings)
    if findings.accuracy is not None:
        out.append(_accuracy_line(findings.accuracy))
    for c in classes.classes if count > 1 and learned.tree.leaves > 1 else ():
        rule_sets = learned.of_class(c.number)
        out += ["", f"class {c.number + 1}: {counted(len(rule_sets), 'rule set')}"]
        for number, rule_set in enumerate(rule_sets[: findings.sets], 1):
            out += _text_of_set(number, rule_set, findings.verdict(rule_set))
        if len(rule_sets) > findings.sets:
            out.append(f"  and {_rest(rule_sets[findings.sets :])}")
    return "\n".join(out) + "\n"


def _text_of_set(number: int, rule_set: RuleSet, checked: CheckedRuleSet | None) -> list[str]:
    out = [f"  {number}. {_implementations(rule_set.samples)}"]
    marks = {"": "    ", "extra": "  ~ ", "missing": "  + "}
    words = {"": "", "extra": "  (extraneous)", "missing": "  (missing)"}
    out += [f"   {marks[mark]}{text}{words[mark]}" for mark, text in _rule_lines(rule_set, checked)]
    out += [f"       [{_insufficient(rule_set)}]"] if _insufficient(rule_set) else []
    out += [f"       [{_verdict_text(checked)}]"] if checked else []
    return out


# ---- Markdown -------------------------------------------------------------------------------


def _markdown(findings: Findings) -> str:
    learned, classes = findings.learned, findings.learned.classes
    shown = findings.objective.scaled
    fast = findings.fast
    first = [] if fast is None else [*fast_lines(fast, findings.best, findings.objective, _markdown_rule), ""]
    out = [*first, f"## Performance classes of {_implementations(len(learned.samples))}{_by(findings)}", ""]
    out += ["| class | implementations | fastest | median | slowest | width |", "|---|---|---|---|---|---|"]
    for c in classes.classes:
        out.append(f"| {c.number + 1} | {c.count} | {shown(c.fastest)} | {shown(c.median)} | "
                   f"{shown(c.slowest)} | {_width(c.width, classes.noise)} |")  # fmt: skip
    out += ["", *(f"- {line}" for line in _about(findings))]
    if findings.accuracy is not None:
        out.append(f"- {_accuracy_line(findings.accuracy)}")
    for c in classes.classes if len(classes.classes) > 1 and learned.tree.leaves > 1 else ():
        rule_sets = learned.of_class(c.number)
        out += ["", f"## Class {c.number + 1}", ""]
        out += ["| implementations | rules | remarks |", "|---|---|---|"]
        for rule_set in rule_sets[: findings.sets]:
            out.append(_markdown_row(rule_set, findings.verdict(rule_set)))
        if len(rule_sets) > findings.sets:
            out += ["", f"And {_rest(rule_sets[findings.sets :])}."]
    return "\n".join(out) + "\n"


def _markdown_row(rule_set: RuleSet, checked: CheckedRuleSet | None) -> str:
    forms = {"": "{}", "extra": "~~{}~~ (extraneous)", "missing": "**{}** (missing)"}
    rules = "<br>".join(forms[mark].format(cell(text)) for mark, text in _rule_lines(rule_set, checked))
    remarks = [_insufficient(rule_set), _verdict_text(checked) if checked else ""]
    return f"| {rule_set.samples} | {rules} | {'; '.join(r for r in remarks if r)} |"


# ---- JSON -----------------------------------------------------------------------------------


def as_json(findings: Findings) -> dict[str, Any]:
    """Everything, with times in seconds, or values of the objective; unknown numbers are null."""
    learned, classes = findings.learned, findings.learned.classes
    return {
        "objective": findings.objective.text,
        "fast_end": _fast(findings.fast),
        "implementations": len(learned.samples),
        "measured": learned.measured,
        "estimates": None if findings.estimates is None else {
            "error": findings.estimates.error, "spread": findings.estimates.spread,
        },
        "noise_of_a_measurement": finite(learned.noise),
        "noise": finite(classes.noise),
        "probability_by_chance": finite(classes.p),
        "radius": classes.radius,
        "prominence_threshold": finite(classes.threshold),
        "classes": [
            {
                "class": c.number + 1, "count": c.count, "fastest": c.fastest, "median": c.median,
                "slowest": c.slowest, "width": c.width,
                "one_in_20_others_over": learned.limits[c.number] if learned.limits else None,
            }
            for c in classes.classes
        ],
        "boundaries": [_boundary(b) for b in classes.boundaries],
        "not_drawn": [_boundary(b) for b in classes.dropped],
        "tree": {
            "leaves": learned.tree.leaves, "depth": learned.tree.depth, "error": learned.tree.error,
            "leaves_before_pruning": learned.full_leaves, "held_out": _held_out(learned.held_out),
            "search": [{"leaves": n, "error": e, "depth": d} for n, e, d in learned.tree.search],
        },
        "held_out_halves": _halves(learned.halves),
        "features": len(learned.features),
        "rule_sets": [_rule_set(r, findings.verdict(r)) for r in learned.rule_sets],
        "accuracy": _accuracy(findings.accuracy),
        "best": _best(findings),
        "no_rules": why_no_rules(learned) or None,
        "advice": list(findings.advice),
    }  # fmt: skip


def _held_out(held_out: TreeError | None) -> dict[str, Any] | None:
    if held_out is None:
        return None
    return {
        "error": held_out.error, "standard_error": held_out.deviation, "one_answer": held_out.one_answer,
        "folds": held_out.folds, "cost_of_a_leaf": held_out.cost,
    }  # fmt: skip


def _halves(halves: Halves | None) -> dict[str, Any] | None:
    if halves is None:
        return None
    return {
        "halves": halves.halves, "without_rules": halves.without, "accuracy": finite(halves.accuracy),
        "one_class_for_all": finite(halves.constant), "random_labels": finite(halves.chance),
        "followers_of_class_1": halves.followers, "stated_of_class_1": finite(halves.stated),
        "slower_than_stated": finite(halves.slower),
        "tolerance": halves.tolerance, "median_loss": finite(halves.loss),
        "loss_95th_percentile": finite(halves.loss_95),
    }  # fmt: skip


def _best(findings: Findings) -> dict[str, Any] | None:
    best = findings.best
    if best is None:
        return None
    followed = findings.learned.satisfied(best)
    return {
        "configuration": best.configuration.text, "traversal": traversal_text(best.traversal, best.graph),
        "seconds": best.value, "measurements": best.measurements, "class": followed.number + 1,
        "rule_set": findings.learned.rule_sets.index(followed),
    }  # fmt: skip


def _boundary(b: Boundary) -> dict[str, Any]:
    return {
        "position": b.position, "seconds": b.value, "height": b.height, "prominence": b.prominence,
        "step": finite(b.step), "samples": b.samples, "chance": b.chance,
        "probability_by_chance": finite(b.p),
    }  # fmt: skip


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule as JSON: its text and its parts."""
    f = rule.feature
    return {"text": rule.text, "kind": f.kind.value, "a": f.a, "b": f.b, "total": f.total, "holds": rule.truth}


def _rule_set(rule_set: RuleSet, checked: CheckedRuleSet | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "class": rule_set.number + 1, "samples": rule_set.samples, "sufficient": rule_set.sufficient,
        "wrong": rule_set.wrong,
        "counts": list(rule_set.counts), "shares": list(rule_set.shares),
        "rules": [rule_json(r) for r in rule_set.rules],
    }  # fmt: skip
    if checked is not None:
        out["against"] = {
            "verdict": checked.verdict.value, "followers": checked.followers, "share": checked.share,
            "classes_meant": [k + 1 for k in checked.meant],
            "extraneous": [r.text for r in checked.extraneous], "missing": [r.text for r in checked.missing],
        }  # fmt: skip
    return out


def _accuracy(accuracy: Accuracy | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    return {
        "implementations": accuracy.implementations, "learned_from": accuracy.learned_from, "share": accuracy.share,
        "random_labels": accuracy.chance, "one_class_for_all": accuracy.constant, "within_noise": accuracy.tolerant,
        "by_boundary": accuracy.by_boundary,
        "class_1": {"losses": accuracy.losses},
        "classes": [
            {
                "class": c.number + 1, "given": c.classified, "inside": c.inside, "width": c.width,
                "width_in_noise": finite(c.widths),
            }
            for c in accuracy.classes
        ],
    }  # fmt: skip

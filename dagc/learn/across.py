"""Rules across inputs: rules of the implementations that are fast on several inputs, sizes, transports or machines,
with cross-validation.

The samples of every input are compared with the best of that input: the *loss* of a sample is its time divided by that
of the best, minus 1. The rules are one conjunction whose followers have a small loss on all inputs. A beam search adds
the rules that lower the mean loss of the followers most, with equal weights of the inputs, as long as every input has
followers.

Inputs on which these rules do not hold (LOSS) form a group with rules of its own. A group is named by a fact that its
inputs have and the others do not: a parameter, the size of messages, the machine.

**Leave-one-out.** All of this is repeated without each input in turn, and the followers on that input are judged. The
prediction for it (`Claim`) is made from its facts alone, without its times: the rules hold if
- at least two inputs of the same kind (equal machine, ranks, parameters up to 0; all facts but sizes) were tested,
- rules learned without them hold on each of these,
- their noise does not hide a loss of LOSS, and
- its sizes are no further outside of theirs than those of one of them when it was left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dagc.base.errors import counted
from dagc.base.python import np
from dagc.base.sample import TIME, Objective
from dagc.ir.program import Value, shown
from dagc.learn.classes import noise_of
from dagc.learn.fast import both_ways, conjunctions, rule_of
from dagc.learn.features import Implications, Samples
from dagc.learn.kinds import kinds_in
from dagc.learn.text import cell, finite, in_form, percent, rule_json
from dagc.learn.types import Bools, Example, Floats, Rule

LOSS = 0.01  # median loss of the followers at which rules hold
WORST = 0.03  # and its 95th percentile
FEWEST_INPUTS = 2  # tested inputs of a kind that a prediction for another one needs
TOP = 0.02  # share of the samples, or 5: the fastest of an input


@dataclass(frozen=True, slots=True)
class Input:
    """The samples of one input. `facts`: by name, of the input and its machine; `noise`: of a single time."""

    name: str
    facts: tuple[tuple[str, Value], ...]
    samples: tuple[Example, ...]
    noise: float

    def fact(self, name: str) -> Value | None:
        return dict(self.facts).get(name)

    @property
    def floor(self) -> float:
        """The noise of the times of its samples; NaN: unknown."""
        return noise_of(self.noise, median(s.measurements for s in self.samples))

    @property
    def best(self) -> float:
        """The value of its best: see `best_of`."""
        return best_of(self.samples)


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of the `followers` of some rules on one input: median and 95th percentile (NaN without followers)."""

    followers: int
    median: float
    worst: float

    @property
    def small(self) -> bool:
        """Whether the rules hold; False without followers."""
        return self.median <= LOSS and self.worst <= WORST


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that defines a group of inputs: `fact` equal to, at most, or more than `value`."""

    fact: str
    relation: str  # "=", "<=", ">"
    value: Value

    @property
    def text(self) -> str:
        return f"{self.fact} {self.relation} {shown(self.value)}"

    def holds(self, given: Input) -> bool:
        value = given.fact(self.fact)
        if self.relation == "=" or not _is_size(value) or not _is_size(self.value):
            return value == self.value
        return (value <= self.value) == (self.relation == "<=")  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs with common rules. `condition` is None if no fact distinguishes them from the others.

    losses   of the followers of the rules, on every input of the group
    """

    inputs: tuple[str, ...]
    condition: Condition | None
    rules: tuple[Rule, ...]
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """The prediction for an input, made without its times: whether rules of the others hold; `reason` if not known."""

    holds: bool
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOutInput:
    """An input, and rules learned without it. `others`: the loss of all its implementations."""

    name: str
    claim: Claim
    rules: tuple[Rule, ...]
    loss: Loss
    others: Loss


@dataclass(frozen=True, slots=True)
class AcrossRules:
    """Rules of several inputs. `alike`: inputs whose implementations do not differ, which are not used."""

    inputs: tuple[Input, ...]
    alike: tuple[str, ...]
    groups: tuple[Group, ...]
    left_out: tuple[LeftOutInput, ...]


def across(inputs: Sequence[Input], alike: Iterable[str] = ()) -> AcrossRules:
    """Rules of inputs with distinct names. There are none if fewer than two are not `alike`."""
    if len({one.name for one in inputs}) < len(inputs):
        raise ValueError("two inputs with the same name")
    flat = frozenset(alike)
    used = [one for one in inputs if one.name not in flat]
    if len(used) < 2:
        return AcrossRules(tuple(inputs), tuple(sorted(flat)), (), ())
    table = _Table(used)
    everything = tuple(range(len(used)))
    held = {k: _without(table, everything, k) for k in everything}
    left_out = []
    for k, (group, loss) in held.items():
        rest = tuple(j for j in everything if j != k)
        inner = {j: _without(table, rest, j)[1] for j in rest} if len(rest) > 1 else {}
        claim = _claim(table, k, inner)
        left_out.append(LeftOutInput(used[k].name, claim, group.rules, loss, table.loss(table.samples_of[k])))
    return AcrossRules(tuple(inputs), tuple(sorted(flat)), _groups(table, everything), tuple(left_out))


# ---- samples, losses ----


class _Table:
    """All samples in one table, with the answers to every rule: each feature, then its negation."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.inputs = inputs
        self.samples = Samples.of([s for one in inputs for s in one.samples])
        self.features, answers = self.samples.features()
        self.answers = both_ways(answers)
        of_input = np.repeat(np.arange(len(inputs)), [len(one.samples) for one in inputs])
        self.samples_of: list[Bools] = [of_input == k for k in range(len(inputs))]
        times = np.array([s.value for one in inputs for s in one.samples])
        best = np.array([one.best for one in inputs])
        self.losses: Floats = times / best[of_input] - 1

    def loss(self, chosen: Bools) -> Loss:
        losses = self.losses[chosen]
        if not len(losses):
            return Loss(0, math.nan, math.nan)
        return Loss(len(losses), float(np.median(losses)), float(np.quantile(losses, 0.95)))


def best_of(samples: Sequence[Example]) -> float:
    """The value of the best: chosen by one half of the measurements, judged by the other half.

    If samples were measured once, or only some of them again, the median of the fastest (with selection bias).
    """
    top = max(5, round(TOP * len(samples)))
    if not all(len(s.times) > 1 for s in samples):
        return median(sorted(s.value for s in samples)[:top])
    halves = [(median(s.times[: len(s.times) // 2]), median(s.times[len(s.times) // 2 :])) for s in samples]
    one = median(later for _, later in sorted(halves)[:top])
    other = median(earlier for earlier, _ in sorted(halves, key=lambda pair: pair[1])[:top])
    return (one + other) / 2


# ---- one conjunction for some inputs ----


def _conjunction(table: _Table, train: Sequence[int]) -> tuple[Rule, ...]:
    """Rules whose followers have a small loss on all of these inputs."""
    columns = conjunctions(table.losses, table.answers, [table.samples_of[k] for k in train])[-1]
    return Implications(table.samples).merge([rule_of(column, table.features) for column in columns])


def _followers(table: _Table, rules: Sequence[Rule], given: int) -> Bools:
    return table.samples.follow(rules) & table.samples_of[given]


def _losses(table: _Table, rules: Sequence[Rule], inputs: Iterable[int]) -> tuple[Loss, ...]:
    return tuple(table.loss(_followers(table, rules, k)) for k in inputs)


# ---- groups of inputs ----


def _groups(table: _Table, train: Sequence[int]) -> tuple[Group, ...]:
    """The inputs in groups, each with rules that hold on it as far as possible; the largest first."""
    left, parts = list(train), []
    while left:
        mine = list(left)
        while True:
            rules = _conjunction(table, mine)
            losses = _losses(table, rules, mine)
            held = [k for k, loss in zip(mine, losses, strict=True) if loss.small]
            if not held and len(mine) > 1:
                held = _most_in_common(table, mine)
            if not held or len(held) == len(mine):
                break
            mine = held
        parts.append((tuple(mine), rules, losses))
        left = [k for k in left if k not in mine]
    groups = []
    for inside, rules, losses in sorted(parts, key=lambda part: -len(part[0])):
        outside = [k for k in train if k not in inside]
        condition = _condition(table, inside, outside)
        groups.append(Group(tuple(table.inputs[k].name for k in inside), condition, rules, losses))
    return tuple(groups)


def _most_in_common(table: _Table, inputs: Sequence[int]) -> list[int]:
    """Of these inputs without common rules, the largest set on which the rules of one of them hold."""
    longest: list[int] = []
    for one in inputs:
        losses = _losses(table, _conjunction(table, [one]), inputs)
        held = [k for k, loss in zip(inputs, losses, strict=True) if loss.small]
        longest = max(longest, held, key=len)
    return longest


def _condition(table: _Table, inside: Sequence[int], outside: Sequence[int]) -> Condition | None:
    """The first fact that all inputs inside have and none outside; None if there is none."""
    if not outside:
        return None
    mine, others = [table.inputs[k] for k in inside], [table.inputs[k] for k in outside]
    for fact in dict.fromkeys(name for one in mine for name, _ in one.facts):
        values, theirs = [one.fact(fact) for one in mine], [one.fact(fact) for one in others]
        sizes = [v for v in values if isinstance(v, int | float) and _is_size(v)]
        sizes_of_others = [v for v in theirs if isinstance(v, int | float) and _is_size(v)]
        candidates = []
        if (same := values[0]) is not None and not _is_size(same):
            candidates.append(Condition(fact, "=", same))
        if len(sizes) == len(values) and len(sizes_of_others) == len(theirs):
            candidates += [Condition(fact, "<=", max(sizes)), Condition(fact, ">", max(sizes_of_others))]
        for condition in candidates:
            if all(map(condition.holds, mine)) and not any(map(condition.holds, others)):
                return condition
    return None


def _is_size(value: Value | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


# ---- inputs left out ----


def _without(table: _Table, train: Sequence[int], given: int) -> tuple[Group, Loss]:
    """The group of the other inputs that the given one belongs to by its facts, and the loss on it.

    The largest group if no condition matches; a group of one input has no condition.
    """
    groups = _groups(table, [k for k in train if k != given])
    named = [g for g in groups if len(g.inputs) > 1 and g.condition and g.condition.holds(table.inputs[given])]
    group = (named or groups)[0]
    return group, table.loss(_followers(table, group.rules, given))


def _claim(table: _Table, given: int, tested: dict[int, Loss]) -> Claim:
    """`tested`: the losses on inputs of rules learned without them (and without the given one)."""
    here = table.inputs[given]
    same = [k for k in tested if _kind(table.inputs[k]) == _kind(here)]
    if len(same) < FEWEST_INPUTS:
        count = "one input" if len(same) == 1 else "no input"
        return Claim(False, f"only {count} of its kind was tested" if same else f"{count} of its kind was tested")
    failed = [table.inputs[k].name for k in same if not tested[k].small]
    if failed:
        return Claim(False, f"rules learned without {', '.join(failed)} do not hold there either")
    noisy = [table.inputs[k].name for k in same if not table.inputs[k].floor <= LOSS]
    if noisy:
        known = (
            "hides" if all(table.inputs[k].floor > LOSS for k in same if table.inputs[k].name in noisy) else "may hide"
        )
        return Claim(False, f"the noise of {', '.join(noisy)} {known} a loss of {100 * LOSS:.0f} %")
    reach = max(_outside(table.inputs[k], [table.inputs[j] for j in same if j != k]) for k in same)
    if _outside(here, [table.inputs[k] for k in same]) > reach * (1 + 1e-9):
        return Claim(False, "it is further outside the tested sizes than any size that was held out")
    return Claim(True, "")


def _kind(given: Input) -> tuple[tuple[str, Value | None], ...]:
    """All facts but sizes."""
    return tuple((name, None if _is_size(value) else value) for name, value in given.facts)


def _outside(given: Input, others: Sequence[Input]) -> float:
    """The largest factor by which a size of the input is outside of the range of the others, as a logarithm, or 0."""
    furthest = 0.0
    for name, value in given.facts:
        sizes = [float(v) for one in others if _is_size(v := one.fact(name))]  # type: ignore[arg-type]
        if _is_size(value) and sizes:
            furthest = max(furthest, math.log(min(sizes) / value), math.log(value / max(sizes)))  # type: ignore[operator]
    return furthest


# ---- as text, Markdown or JSON ---------------------------------------------------------------------


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


def _claim_text(one: LeftOutInput) -> str:
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
            yield f"  {out.name:{width}}  {losses}  {_verdict(out)}; predicted: {_claim_text(out)}"
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
            yield f"| {cell(out.name)} | {cell(_claim_text(out))} | {losses} | {_verdict(out)} |"
        yield from ("", *(f"- {line}" for line in _about(learned)))


# ---- JSON -----------------------------------------------------------------------------------


def _json(learned: AcrossRules, objective: Objective) -> dict[str, Any]:
    graphs = {id(sample.graph): sample.graph for one in learned.inputs for sample in one.samples}.values()
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
                "rules": [{**rule_json(rule), "kinds": kinds_in(rule.feature, graphs)} for rule in group.rules],
                "losses": _losses_json(group.losses),
            }
            for group in learned.groups
        ],
        "left_out": [
            {
                "input": out.name, "said_to_hold": out.claim.holds, "reason": out.claim.reason or None,
                "rules": [rule_json(rule) for rule in out.rules], "holds": out.loss.small,
                "loss": _losses_json([out.loss])[0], "loss_of_all": _losses_json([out.others])[0],
            }
            for out in learned.left_out
        ],
    }  # fmt: skip


def _losses_json(losses: Sequence[Loss]) -> list[dict[str, Any]]:
    return [
        {"followers": one.followers, "median": finite(one.median), "percentile_95": finite(one.worst)} for one in losses
    ]

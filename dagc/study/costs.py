"""What features, conversions and defaults cost at the inputs of a task: the features that its selectors need, and
notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from dagc.base.errors import counted
from dagc.choice.feature import offered
from dagc.choice.legal import op_of
from dagc.choice.types import Site
from dagc.ir.plan import needed_features, variants_of
from dagc.report import si
from dagc.study.choosers import Asked
from dagc.study.inputs import Inputs
from dagc.study.judge import Worst, pays_after, worst_cases
from dagc.study.task import TuningTask
from dagc.study.train import select_features


def feature_subsets(
    inputs: Inputs, task: TuningTask, asked: Mapping[str, Asked], seed: int
) -> tuple[dict[str, Asked], list[str]]:
    """The features of each op that its selector needs, and a note on dropped ones."""
    out, notes = dict(asked), []
    for site in task.sites:
        names = inputs.names(asked, site.name, task.cases)
        table = inputs.table(site.name, names, task.cases).usable.with_noise(inputs.noise(site.name))
        subset = select_features(asked[site.name].method, table, feature_costs(inputs, task, site), seed)
        out[site.name] = replace(asked[site.name], data=subset.names)
        dropped = [n for n in names if n not in subset.names]
        loss = f"{subset.loss:.3f} times the best by cross-validation, {subset.all_loss:.3f} by all {len(names)}"
        kept = f"chosen by {', '.join(subset.names)} ({loss})" if dropped else "no feature was dropped"
        notes.append(f"{site.name}: {kept}")
    return out, notes


def feature_costs(inputs: Inputs, task: TuningTask, site: Site) -> dict[str, float]:
    """Median seconds to compute each feature of an op, by name; expressions of scalars cost nothing."""
    known = offered(task.program, op_of(task.graph, site))
    seconds = [facts.seconds for facts in inputs.measured.inputs.values() if facts.seconds]
    return {
        name: sum(median(at.get(code.name, 0.0) for at in seconds) for code in feature.code) if seconds else 0.0
        for name, feature in known.items()
    }


def costs(inputs: Inputs, task: TuningTask, choosers: Mapping[str, Any]) -> list[str]:
    """The costs of features and conversions, in calls of the default, and the number of calls after which they pay if
    the fastest answer (or the converted variant) replaces the default; medians over the inputs. Only features count
    that a program computes at an input: those of its chooser, and those of the variants whose constraints it tests."""
    out = []
    for site in task.sites:
        shares, calls = [], []
        converted: dict[str, list[tuple[float, float]]] = {}
        kernel = task.program.kernel(op_of(task.graph, site).kernel)
        prepared = {impl.name for impl in kernel.impls if impl.prepare is not None}
        cases = [p for p in task.cases if p in inputs.measured.inputs and p in inputs.ready.at]  # others were refused
        for row in inputs.table(site.name, (), cases, priced=False).rows:
            facts, times = inputs.measured.inputs[row.case], row.times
            if not math.isfinite(times.get(0, math.inf)):
                continue
            wanted = computed_at(choosers[site.name], site, task, inputs.values(row.case), times)
            own = sum(facts.seconds.get(name, 0.0) for name in wanted)
            if own:
                shares.append(own / times[0])
                calls.append(pays_after(own, times[0], min(times.values())))
            for variant, seconds in facts.conversions.get(site.name, {}).items():
                if variant not in prepared:
                    continue  # only its scratch was allocated
                fast = [t for i, t in times.items() if site.choices[i].variant == variant]
                pays = pays_after(seconds, times[0], min(fast, default=math.inf))
                converted.setdefault(variant, []).append((seconds, pays))
        if shares:
            out.append(
                f"{site.name}: features cost as much as {median(shares):.2g} calls of the default; {_worth(calls)}"
            )
        for variant, of in converted.items():
            took = si.seconds(median(s for s, _ in of))
            out.append(f"{site.name} {variant}: conversion {took}; {_worth([pays for _, pays in of])}")
    return out


def risky_defaults(inputs: Inputs, task: TuningTask) -> list[str]:
    """Of each op whose default fails at more inputs than another answer, or is more than twice as bad at its worst:
    both. The default is taken where a selector is unsure, and outside of the trained range."""

    out = []
    for site in task.sites:
        worst = worst_cases(inputs.table(site.name, (), task.cases).times)
        least = min(worst, key=lambda i: worst[i], default=0)
        default, other = (site.choices[i].in_words for i in (0, least))
        mine, best = (worst.get(i, Worst(0, 1.0)) for i in (0, least))
        advice = f"the default is taken for inputs unlike these: make it {other}"
        if mine.failed > best.failed:
            where = f"at {best.failed}" if best.failed else "at none"
            what = "fails or is too slow to be measured" if inputs.cut else "does not work"
            out.append(
                f"{site.name}: the default, {default}, {what} at {counted(mine.failed, 'input')}, {other} {where};"
                f" {advice}"
            )
        elif mine.ratio > 2 * best.ratio:
            out.append(
                f"{site.name}: the default, {default}, is up to {mine.ratio:.3g} times the best answer, {other} at most"
                f" {best.ratio:.2f} times; {advice}"
            )
    return out


def computed_at(
    chooser: Any, site: Site, task: TuningTask, values: Mapping[str, Any], times: Mapping[int, float]
) -> frozenset[str]:
    """The code features that a program computes at an input with these values to evaluate its chooser. `times`: by
    number of the task's settings, infinite if a constraint does not hold."""
    op, choices = op_of(task.graph, site), site.choices
    needed = {one.answer: {f.name for f in needed_features(task.program, one)} for one in variants_of(task.program, op)}
    out = {code.name for feature in chooser.features for code in feature.code}
    for answer in chooser.order(values):
        out |= needed.get(chooser.choices[answer].variant or op.answer, set())
        if times.get(choices.index(chooser.choices[answer])) != math.inf:
            break
    return frozenset(out)


def _worth(calls: Sequence[float]) -> str:
    """`pays after 14 calls at 31 of 54 inputs, at the others never` (the median over the inputs where it pays)."""
    paid = [c for c in calls if c < math.inf]
    if not paid:
        return "never pays"
    where = "" if len(paid) == len(calls) else f" at {len(paid)} of {counted(len(calls), 'input')}, never at the others"
    return f"pays after {counted(int(median(paid)), 'call')}{where}"

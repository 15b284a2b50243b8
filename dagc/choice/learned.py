"""What a chooser has learned, to read: measured bests, fitted functions, a model or a selector, and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dagc.base.errors import counted
from dagc.choice.choose import MARGIN
from dagc.ir.plan import FAR
from dagc.perf.chart import Chart, FlowBox

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.perf.fit import Fitted
    from dagc.perf.program import RationalProgram

Part: TypeAlias = "Chart | RationalProgram"


def learned(chooser: Chooser, answers: Sequence[str], fits: Mapping[str, Fitted]) -> Iterator[Part]:
    """The parts in the order in which the chooser asks them. `answers`: the text of each choice, by number; `fits`: the
    functions of the model that were fitted to hardware counters."""
    measured = [f"  {_at(chooser.data, anchor.data)}: {answers[anchor.chosen]}" for anchor in chooser.anchors]
    if measured:
        yield (FlowBox((f"the best at {counted(len(measured), 'measured case')}:", *measured)),)
    at_others = "elsewhere " if measured else ""
    if chooser.selector is not None:
        how = f"{chooser.selector.text}, by {', '.join(chooser.selector.data)}"
        yield (FlowBox((f"{at_others}{how}:",)), *chooser.selector.chart(answers))
    elif chooser.model is not None:
        keeps = f", unless that of the nearest measured case is within {MARGIN:.0%}" if measured else ""
        yield (FlowBox((f"{at_others}the least value of {chooser.model.name}{keeps}:",)),)
        if fits:
            from dagc.perf.counted import function_of  # loads numpy, sympy

            yield from (function_of(name, fitted) for name, fitted in fits.items())
        yield chooser.model
    elif measured:
        yield (FlowBox(("elsewhere that of the nearest measured case",)),)
    else:
        yield (FlowBox((f"always {answers[0]}",)),)
    limits = _limits(chooser, answers)
    if limits:
        yield (FlowBox(limits),)


def _limits(chooser: Chooser, answers: Sequence[str]) -> tuple[str, ...]:
    """Where the default is taken, or an answer avoided; and the measured ranges."""
    out = [f"covered: {chooser.extent.text}"] if chooser.extent.ranges else []
    if chooser.guarded:
        out.append(f"the default, {answers[0]}, where a feature is {FAR} times outside of these ranges")
    if chooser.least_sure > 0:
        out.append(f"the default, {answers[0]}, where the confidence is below {chooser.least_sure:.0%}")
    avoided = ", ".join(answers[i] for i in chooser.avoided.ever)
    return (*out, f"not near the inputs at which it failed: {avoided}") if avoided else tuple(out)


def _at(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} = {value:.12g}" for name, value in zip(names, values, strict=True)) or "as given"

"""Per-rank scalars, whole parameters (constants of their program), `rank` and `ranks`, also of communicators."""

from __future__ import annotations

from collections.abc import Iterator

from dagc.choice.feature import FeatureContext, SelectorFeature
from dagc.ir.enums import ElementType
from dagc.ir.sym import Const, Var


def offer(context: FeatureContext) -> Iterator[SelectorFeature]:
    """All scalars of the program except booleans."""
    for scalar in context.program.scalars:
        if scalar.type is not ElementType.BOOL:
            yield SelectorFeature(scalar.name, Var(scalar.name))
    for parameter in context.program.params:
        if type(parameter.value) is int:
            yield SelectorFeature(parameter.name, Const(parameter.value))
    for value in (Var("rank"), Var("ranks"), *(v for c in context.program.comms for v in (c.rank, c.ranks))):
        yield SelectorFeature(value.name, value)

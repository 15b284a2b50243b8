"""Expressions over scalars and other features: `feature mean = nnz / n`, and the arguments of a `select`."""

from __future__ import annotations

from collections.abc import Iterator

from dagc.choice.feature import FeatureContext, SelectorFeature
from dagc.choice.features.code import offer as computed
from dagc.ir.plan import CodeFeature
from dagc.ir.program import CodeText
from dagc.ir.sym import Sym, Var, free, show


def offer(context: FeatureContext) -> Iterator[SelectorFeature]:
    """Declared expressions, and arguments of a `select` that are more than a name."""
    code = _code(context)
    for declared in context.declared:
        if not isinstance(declared.value, CodeText):
            yield from _feature(declared.name, context.resolve(declared.value), code)
    for argument in context.asked:
        resolved = context.resolve(argument)
        if resolved is not None and not isinstance(resolved, Var):
            yield from _feature(show(resolved), resolved, code)


def _feature(name: str, expression: Sym | None, code: dict[str, CodeFeature]) -> Iterator[SelectorFeature]:
    if expression is not None:
        yield SelectorFeature(name, expression, tuple(code[n] for n in sorted(free(expression)) if n in code))


def _code(context: FeatureContext) -> dict[str, CodeFeature]:
    return {one.name: one for feature in computed(context) for one in feature.code}

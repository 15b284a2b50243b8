"""C++ functions of the arrays from the set-up: `feature longest cost n = cpp \"\"\"...\"\"\"`.

The emitted program computes them once, after it has read its arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

from dagc.base.errors import UsageError
from dagc.choice.feature import FeatureContext, SelectorFeature
from dagc.cuda.lexer import names_used
from dagc.ir.enums import Role
from dagc.ir.plan import CodeFeature
from dagc.ir.program import CodeText, KernelOp, Region
from dagc.ir.sym import Var

GIVEN = (Role.CONST, Role.IN)


def offer(context: FeatureContext) -> Iterator[SelectorFeature]:
    """The code features of the op's kernel. Raises UsageError for one that reads an array that the program writes, or a
    value that is to be chosen."""
    if context.op is None:
        return
    for declared in context.declared:
        if isinstance(declared.value, CodeText) and declared.value.text is not None:
            _check(context, context.op, declared.name, declared.value.text)
            code = CodeFeature(context.measured(declared), context.op, declared.value)
            yield SelectorFeature(declared.name, Var(code.name), (code,))


def _check(context: FeatureContext, op: KernelOp, name: str, text: str) -> None:
    assert context.kernel is not None
    used = names_used(text)
    roles = {a.name: a.role for a in context.program.arrays}
    for formal, argument in zip(context.kernel.formals, op.args, strict=True):
        if isinstance(argument, Region) and formal.name in used and roles[argument.array] not in GIVEN:
            raise UsageError(
                f"feature `{name}` of op `{op.base}` reads `{argument.array}`, which the set-up does not provide",
                "read `const` and `in` arrays: features are computed before the dag runs",
            )
    for tunable, _ in op.tunables:
        if tunable in used:
            raise UsageError(
                f"feature `{name}` of op `{op.base}` depends on `{tunable}`, which it is used to choose",
                "compute it from sizes and arrays alone",
            )

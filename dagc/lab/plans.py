"""Tuning of whole programs: `select m, chunks with knn(n)` at program level, where each setting is a program.

A setting assigns every named decision a value; each is compiled once, for all sizes. Measurements are stored as cells
of the op PROGRAM. Times are in seconds.
"""

from __future__ import annotations

import re

from dagc.base.errors import UsageError
from dagc.choice.feature import asked_features
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.ir.choice import Choice
from dagc.ir.enums import ElementType
from dagc.ir.names import mangle
from dagc.ir.program import Program, Select
from dagc.ir.sym import free

METHODS = (*LEARNED, EXHAUSTIVE)
_NUMBERS = {t for t in ElementType if t is not ElementType.BOOL}


def program_select(program: Program) -> Select | None:
    """The program-level `select`, None if there is none. Raises UsageError for several, or unsuitable features."""
    selects = [s for s in program.selects if s.owner == ""]
    if not selects:
        return None
    if len(selects) > 1:
        raise UsageError("the program has more than one `select` at its top", "name all decisions in one")
    (item,) = selects
    known = numbers(program)
    features = asked_features(program, None, item.args)
    for name in sorted(set().union(*(free(f.expression) for f in features))):
        if name not in known:
            names = ", ".join(sorted(known)) or "the program has none: declare `scalar n : i64`"
            raise UsageError(
                f"`select ... with {item.method}(...)` uses `{name}`, which is not a numeric scalar",
                f"name scalars of the program ({names})",
            )
    if not features:
        raise UsageError(f"`select ... with {item.method}()` has no data", "name the scalars it depends on: knn(n)")
    return item


def numbers(program: Program) -> frozenset[str]:
    """Names of the per-rank scalars that are numbers."""
    return frozenset(s.name for s in program.scalars if s.type in _NUMBERS)


def plan_label(choice: Choice) -> str:
    """`m8-chunks4-streams4`: the name of a plan's directory. Plans differ in values alone, not in names."""
    return "-".join(mangle(f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}{value}") for name, value in choice.items())

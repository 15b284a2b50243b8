"""Values that tuned times depend on besides sizes and settings, stored as a fact of the tuned file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.choice.types import PROGRAM
from dagc.ir.enums import ElementType

if TYPE_CHECKING:
    from dagc.choice.types import Point
    from dagc.ir.program import Program
    from dagc.store.tuned import Tuned


def fixed_choices(program: Program, names: Collection[str], sizes: Collection[str]) -> dict[str, Any]:
    """What tuned times depend on besides `sizes` and the settings of `names`: parameters, other decisions."""

    def json_value(value: Any) -> Any:  # as JSON returns it
        if isinstance(value, ElementType):
            return value.value
        return value if isinstance(value, bool | int | float | str) else str(value)

    params = {p.name: json_value(p.value) for p in program.params if p.name not in sizes}
    return {
        "params": params,
        "decisions": {d.name: json_value(d.chosen) for d in program.decisions if d.name not in names},
    }


def check_fixed(path: str | Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError if a tuned file is for other parameters or decisions."""
    for kind in ("params", "decisions"):
        for name in sorted({*stored[kind], *now[kind]}):
            before, here = stored[kind].get(name), now[kind].get(name)
            if before != here:
                raise UsageError(
                    f"{path}: tuned with {name}={before}, this is {name}={here}",
                    f"use -D {name}={before}, or tune again into another file",
                )


FACT = "kernels"


SEARCHED = ("transport", "staging", "streams", "capture")  # predefined decisions that no kernel depends on


def fixed_of(program: Program) -> dict[str, Any]:
    """All parameters and decisions, as stored in the file."""
    return fixed_choices(program, (), ())


def check_resumed(path: str | Path, before: Tuned, program: Program, points: Iterable[Point]) -> None:
    """Raises UsageError if cells of the file were measured with another value of a decision, or of a parameter that is
    not a size in all of them."""
    if before.facts.kernels is None:
        return
    every = [*points, *(cell.point for cell in before.cells if cell.op in before_units(before))]
    sizes = set.intersection(*({n for n, _ in p.params} for p in every)) if every else set()
    kept, now = before.facts.kernels, fixed_of(program)
    check_fixed(path, *({**f, "params": {n: v for n, v in f["params"].items() if n not in sizes}} for f in (kept, now)))


def before_units(tuned: Tuned) -> set[str]:
    """The ops of the file's cells, excluding whole programs."""
    return {cell.op for cell in tuned.cells} - {PROGRAM}


def check_compiled(path: str | Path, tuned: Tuned, program: Program) -> None:
    """Raises UsageError if an element type, a program-level decision, or the implementation of an op with a chooser
    differs from when the file was tuned. Decisions that the file itself chooses may differ."""
    if tuned.facts.kernels is None:
        return
    types = {p.name for p in program.params if isinstance(p.value, ElementType)}
    whole = tuned.program_chooser
    chosen = {*SEARCHED, *(whole.names if whole is not None else ())}
    variants = {f"{op}.variant" for op, chooser in tuned.kernel_choosers.items() if not chooser.variants}

    def seen(fixed: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "params": {n: v for n, v in fixed["params"].items() if n in types},
            "decisions": {
                n: v for n, v in fixed["decisions"].items() if n in variants or ("." not in n and n not in chosen)
            },
        }

    check_fixed(path, seen(tuned.facts.kernels), seen(fixed_of(program)))

"""A program-level `select` as what is tuned: its legal settings, each a program, and what must stay the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import ProgramError, Severity, UsageError
from dagc.recipes.program import load, read

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.choice.types import Point, Settings
    from dagc.ir.program import Program, Value
    from dagc.lab.plans import ProgramSelect
    from dagc.recipes.options import TuneOptions


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """What is to be tuned: `settings` are the legal ones, the program's own first. `defines` fix the rest."""

    path: Path
    defines: Mapping[str, Any]
    chosen: TargetChoice
    program: Program
    select: ProgramSelect
    settings: tuple[Settings, ...]
    points: tuple[Point, ...]
    seed: int

    @property
    def default(self) -> Settings:
        return self.settings[0]


def wants_programs(path: str | Path, options: TuneOptions) -> bool:
    """Is the program itself what `dagc tune` tunes? It has a `select` at its top, and no kernel is named."""
    from dagc.lab.plans import program_select

    if options.kernels:
        return False
    return program_select(load(path, _single(options.defines))) is not None


def _single(defines: Mapping[str, Any]) -> dict[str, Any]:
    """Without the choices among several values (`-D m=4,8`)."""
    return {n: v for n, v in defines.items() if "," not in str(v)}


def program_plan(path: str | Path, options: TuneOptions) -> ProgramPlan:
    """Text -> ProgramPlan. `-D m=4,8` leaves some values of a decision that the program selects.

    Raises ProgramError and UsageError.
    """
    from dagc.build.target import choose_target
    from dagc.lab.plans import program_select
    from dagc.lang.lower import lower
    from dagc.recipes.tune_cells import points_of

    chosen = choose_target(options.target, options.arch)
    source, module = read(path)
    plain = _single(options.defines)
    program = lower(module, source, plain)
    select = program_select(program)
    assert select is not None
    several = {n: str(v) for n, v in options.defines.items() if n not in plain}
    for name, words in several.items():
        if name not in select.names:
            raise UsageError(f"-D {name}={words}: one value", f"several: {', '.join(select.names)} only")
    values = _values(program, select, several)
    settings = _legal(lambda choice: lower(module, source, {**plain, **choice}), values)
    default = tuple((n, program.decision(n)) for n in select.names)
    found = points_of(program, options.sizes)
    fixed = {n: v for n, v in plain.items() if n not in select.names}
    for point in found:
        _same_at(program, lower(module, source, {**plain, **dict(point.params)}), point)
    ordered = tuple(sorted(settings, key=lambda s: s != default))
    return ProgramPlan(Path(path), fixed, chosen, program, select, ordered, found, options.seed)


def _values(program: Program, select: ProgramSelect, several: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    from dagc.lab.configurations import open_decisions

    opened = [f"{n}={several[n]}" if n in several else n for n in select.names]
    found = open_decisions(program, opened, ())
    return {n: found[n] for n in select.names}


def _legal(build: Callable[[dict[str, Value]], Program], values: Mapping[str, Sequence[Value]]) -> tuple[Settings, ...]:
    """Combinations that every `require` known now allows, in the order of the program."""
    out: list[Any] = []
    reason = ""
    for combination in product(*values.values()):
        choice = dict(zip(values, combination, strict=True))
        try:
            build(choice)
        except ProgramError as error:
            reason = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        else:
            out.append(tuple(choice.items()))
    if not out:
        raise UsageError(f"no setting of {', '.join(values)} is legal: {reason}", "look at its `require`s")
    return tuple(out)


def _same_at(program: Program, other: Program, point: Point) -> None:
    """One compiled program must serve all sizes."""

    def rest(p: Program) -> Program:
        return replace(p, params=(), setup=None, verifies=())

    if rest(program) != rest(other):
        raise UsageError(
            f"at {point.text} the program is compiled differently, so that no plan serves all sizes",
            "make sizes per-rank scalars (`scalar n : i64`) that the set-up sets from the parameter",
        )


def fixed_choices(program: Program, names: Collection[str], sizes: Collection[str]) -> dict[str, Any]:
    """What the tuned times hang on besides `sizes` and the settings of `names`: parameters, and the other decisions."""
    from dagc.ir.enums import ElementType

    def kept(value: Any) -> Any:  # as JSON gives it back
        if isinstance(value, ElementType):
            return value.value
        return value if isinstance(value, bool | int | float | str) else str(value)

    params = {p.name: kept(p.value) for p in program.params if p.name not in sizes}
    return {"params": params, "decisions": {d.name: kept(d.chosen) for d in program.decisions if d.name not in names}}


def check_fixed(path: str | Path, kept: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError where a tuned file is of other parameters or decisions."""
    for kind in ("params", "decisions"):
        for name in sorted({*kept[kind], *now[kind]}):
            before, here = kept[kind].get(name), now[kind].get(name)
            if before != here:
                raise UsageError(
                    f"{path}: tuned with {name}={before}, this is {name}={here}",
                    f"use -D {name}={before}, or tune again into another file",
                )

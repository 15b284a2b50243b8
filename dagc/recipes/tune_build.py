"""The library that tuning measures: launch parameters open, and without the values that do not compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.build.toolchain import find_nvcc
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.recipes.artifacts import build_artifact, compile_traversal

if TYPE_CHECKING:
    from dagc.base.errors import BuildFailed
    from dagc.choice.types import Point, Unit
    from dagc.ir.graph import Graph
    from dagc.ir.launching import OpenTunable
    from dagc.recipes.compiled import Compiled
    from dagc.recipes.tune_cells import Plan


def build(made: Plan, folder: Path) -> Path:
    """The runner library with the launch parameters of all units open."""
    directory = folder / "program"
    return build_artifact(directory, _emitted(made, directory).plan, "runner")


def _emitted(made: Plan, directory: Path) -> Compiled:
    from dagc.space import Space

    return compile_traversal(
        made.graph, Space(made.graph).first(), made.chosen, directory, build=False, force=True, open=_open(made)
    )


def _open(made: Plan) -> tuple[OpenTunable, ...]:
    return tuple(t for u in made.units for t in u.tunables)


def resources_of(made: Plan, folder: Path) -> dict[str, Resources]:
    """What the kernel of each unit takes of a multiprocessor, by op; of several compiled for their tunables the most,
    and the instructions of that with the defaults, or of the first.

    An op is left out where there is no nvcc, or it does not say.
    """
    from dagc.build.ptxas import kernel_resources

    directory = folder / "resources"
    _emitted(made, directory)
    found = kernel_resources(directory / "kernels.cu", made.chosen.arch)
    out = {}
    for unit in made.units:
        own = [found[name] for name in _functions_of(made, unit) if name in found]
        if own:
            out[unit.op] = Resources(max(r.registers for r in own), max(r.shared for r in own), own[0].instructions)
    return out


def _functions_of(made: Plan, unit: Unit) -> list[str]:
    """Names of the functions that the unit's kernel is compiled to, that with the defaults first."""
    from dagc.choice.legal import op_of
    from dagc.emit.kernels import Functions

    functions = Functions(made.graph, made.chosen.target, _open(made))
    op = op_of(made.graph, unit)
    settled = sorted(functions.settled(op), key=lambda one: one.tunables != op.tunables)
    return [functions.name(one) for one in settled]


def assumed(made: Plan, resources: Mapping[str, Resources]) -> list[str]:
    """A note about the units of which nvcc says nothing, on the CUDA target."""
    unknown = [u.op for u in made.units if u.op not in resources]
    if not unknown or made.chosen.target.value != "cuda":
        return []
    why = f"does not compile them for {made.chosen.arch}" if find_nvcc() is not None else "was not found"
    what = f"{ASSUMED.registers} registers a thread are assumed, and instructions counted in the text"
    return [f"{', '.join(unknown)}: {what}, since nvcc {why}"]


def build_programs(
    made: Plan, folder: Path, side_by_side: Callable[..., Iterable[Any]]
) -> tuple[dict[Point, Path], Plan, list[str]]:
    """The library of each size, the plan without values that do not compile, and these as failures.

    What does not compile is found with the program of the size at which results are checked. `side_by_side`: as `map`.
    """
    first = made.graph_at(made.check_at)
    library, left, failures = build_what_compiles(_of(made, first), folder)
    made = replace(made, units=left.units, settings=left.settings)
    libraries = {id(first): library}
    others = {id(g): g for g in (made.graph_at(p) for p in made.points) if g is not first}
    built = side_by_side(lambda item: build(_of(made, item[1]), folder / f"size-{item[0]}"), enumerate(others.values()))
    libraries |= zip(others, built, strict=True)
    return {p: libraries[id(made.graph_at(p))] for p in (made.check_at, *made.points)}, made, failures


def _of(made: Plan, graph: Graph) -> Plan:
    """The plan with the program of one of its sizes."""
    return replace(made, graph=graph)


def build_what_compiles(made: Plan, folder: Path) -> tuple[Path, Plan, list[str]]:
    """(library, plan, failures): where a value of a tunable that is a constant of its kernel does not compile, the plan
    without it.

    Raises BuildFailed where the program does not compile with its defaults either, or for another reason.
    """
    from dagc.base.errors import BuildFailed

    try:
        return build(made, folder), made, []
    except BuildFailed as error:
        left, failures = _without_what_fails(made, folder, error)
        return build(left, folder / "left"), left, failures


def _without_what_fails(made: Plan, folder: Path, error: BuildFailed) -> tuple[Plan, list[str]]:
    """Each value beside the default, the other constants at theirs. Raises `error` where that finds no culprit."""
    from dagc.base.errors import BuildFailed

    failures: list[str] = []
    units = made.units
    for u, unit in enumerate(made.units):
        for t, tunable in enumerate(unit.tunables):
            good = []
            for value in tunable.values if not tunable.axis else ():
                one = tuple(_at_default(x) for x in made.units)
                one = _with_values(one, u, t, tuple(dict.fromkeys((tunable.default, value))))
                try:
                    build(replace(made, units=one), folder / f"{unit.op}-{tunable.name}-{value}")
                    good.append(value)
                except BuildFailed as refused:
                    if value == tunable.default:
                        raise error from None
                    failures.append(f"{unit.op} {tunable.name}={value}: does not compile: {_reason(refused)}")
            if not tunable.axis and len(good) < len(tunable.values):
                units = _with_values(units, u, t, tuple(good))
    if not failures:
        raise error
    settings = {
        x.op: tuple(
            s for s in made.settings[x.op] if all(v in y.values for y, (_, v) in zip(x.tunables, s, strict=True))
        )
        for x in units
    }
    return replace(made, units=units, settings=settings), failures


def _at_default(unit: Unit) -> Unit:
    return replace(unit, tunables=tuple(t if t.axis else replace(t, values=(t.default,)) for t in unit.tunables))


def _with_values(units: tuple[Unit, ...], unit: int, tunable: int, values: tuple[Any, ...]) -> tuple[Unit, ...]:
    changed = list(units[unit].tunables)
    changed[tunable] = replace(changed[tunable], values=values)
    return (*units[:unit], replace(units[unit], tunables=tuple(changed)), *units[unit + 1 :])


def _reason(error: BuildFailed) -> str:
    """The compiler's own line about it."""
    lines = [line.strip() for line in error.message.splitlines()]
    return next((line for line in lines[1:] if "error" in line), lines[0])

"""Methods of `dagc tune` by kernel: which one each takes, on which sizes, and the selector that it learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError

if TYPE_CHECKING:
    from dagc.choice.selector import Selector
    from dagc.choice.types import Cell, Point, Settings, Unit
    from dagc.ir.graph import Graph
    from dagc.recipes.tune_cells import Plan, Prepared


@dataclass(frozen=True, slots=True)
class Asked:
    """`data`: per-rank scalars that the kernel's own `select` names, none where it names none. `note`: "" or a line."""

    method: str
    data: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Learned:
    """`selector` answers with indices of the unit's settings; None where nothing could be learned. `left_out`: the
    regret at each training size of what was learned without it."""

    selector: Selector | None
    notes: tuple[str, ...]
    left_out: Mapping[Point, float] = field(default_factory=dict)


def asked_of(made: Plan, method: str, runs: bool) -> dict[str, Asked]:
    """The method of each unit: `method`, or where it is "" that of the kernel's `select`, else `volume`.

    `rational` in a program is answered by the model of data volumes. Raises UsageError where a method was given that
    measures and nothing can run; one that only the program asks for gives way to the model.
    """
    from dagc.choice.models import MODELS

    out = {}
    for unit in made.units:
        wanted, data = select_of(made.graph, unit)
        chosen, note = method or wanted, ""
        if chosen not in MODELS and not runs:
            if method:
                raise UsageError(
                    f"method {method} measures, and nothing can run here: {made.chosen.reason}",
                    "use --method volume, or run it on a machine with a GPU",
                )
            chosen, note = "volume", f"the program asks for {wanted}, which measures; here the model chooses"
        out[unit.op] = Asked(chosen, data, note)
    return out


def select_of(graph: Graph, unit: Unit) -> tuple[str, tuple[str, ...]]:
    """(method, data) of the kernel's `select` about tunables of the unit; the method is `volume` without one."""
    from dagc.choice.legal import bindings, op_of
    from dagc.choice.methods import LEARNED
    from dagc.ir import sym

    program = graph.program
    kernel = next(k for k in program.kernels if k.name == unit.kernel)
    tunables, scalars = {t.name for t in unit.tunables}, {s.name for s in program.scalars}
    env = bindings(program, op_of(graph, unit), unit.default)
    for item in kernel.selects:
        if not tunables & set(item.names) or item.method not in ("rational", *LEARNED):
            continue
        found = [sorted(sym.free(sym.substitute(argument, env))) for argument in item.args]
        data = dict.fromkeys(name for names in found for name in names if name in scalars)
        return "volume" if item.method == "rational" else item.method, tuple(data)
    return "volume", ()


def learn(
    ready: Prepared,
    unit: Unit,
    asked: Asked,
    cells: Mapping[Any, Cell],
    seed: int,
    model: Callable[[Point], int] | None,
) -> Learned:
    """Labels by rule, within the noise of the best at each size, and the selector trained on them.

    Only sizes count where every setting was measured that can be launched there. `cells`: by (op, point, settings).
    `model`: what it would choose with nothing measured, to be printed beside.
    """
    from dagc.choice.methods import LEARNED
    from dagc.choice.selector import FEWEST
    from dagc.choice.train import leave_one_out, merged, train

    if asked.method not in LEARNED:
        return Learned(None, ())
    points = _measured(ready, unit, cells)
    names = asked.data or _features(ready, unit, list(points))
    index = {settings: i for i, settings in enumerate(ready.plan.settings[unit.op])}
    rows = {p: tuple(int({**ready.at[p].scalars, **ready.at[p].constants}[n]) for n in names) for p in points}
    known = merged(
        list(rows.values()),
        [{index[c.settings]: c.seconds for c in found} for found in points.values()],
        [[(c.interval[0], c.seconds, c.interval[1]) for c in found] for found in points.values()],
    )
    if not names or len(known.sizes) < FEWEST:
        return _fallback(asked, f"{len(known.sizes)} different sizes measured in full, {FEWEST} are needed")
    try:
        selector = train(asked.method, names, known, seed)
    except UsageError as error:
        return _fallback(asked, error.message)
    untrained = {"default": [0] * len(known.sizes)}
    if model is not None and len(rows) == len(known.sizes):
        untrained["model"] = [model(p) for p in rows]
    left_out = leave_one_out(asked.method, names, known, seed, untrained)
    line = left_out.text if left_out is not None else f"leave one out: takes {FEWEST + 1} sizes or more"
    regrets = dict(zip(left_out.sizes, left_out.regrets, strict=True)) if left_out is not None else {}
    note = f"{selector.text}, by {', '.join(names)}; {line}"
    return Learned(selector, (note,), {p: regrets.get(row, math.nan) for p, row in rows.items()})


def _fallback(asked: Asked, why: str) -> Learned:
    return Learned(None, (f"no {asked.method}: {why}; elsewhere the best of the nearest measured size is taken",))


def _measured(ready: Prepared, unit: Unit, cells: Mapping[Any, Cell]) -> dict[Point, list[Cell]]:
    """The timed cells of each size that has all; a setting that was timed nowhere is one that is wrong."""
    timed: dict[Point, dict[Settings, Cell]] = {}
    for (op, point, settings), cell in cells.items():
        if op == unit.op and cell.times and not cell.failure:
            timed.setdefault(point, {})[settings] = cell
    known = {settings for at in timed.values() for settings in at}
    return {
        point: list(timed[point].values())
        for point in ready.plan.points
        if point in timed and all(s in timed[point] for s in ready.at[point].fits[unit.op] if s in known)
    }


def _features(ready: Prepared, unit: Unit, points: Sequence[Point]) -> tuple[str, ...]:
    """The whole scalars that the kernel's arguments and grid depend on, and the parameters that are constants of the
    program; those that differ between the sizes."""
    from dagc.choice.legal import bindings, op_of
    from dagc.ir import sym
    from dagc.ir.enums import ElementType
    from dagc.ir.launching import kernel_of
    from dagc.ir.program import Region
    from dagc.recipes.tune_cells import whole_scalars

    program, op = ready.plan.program, op_of(ready.plan.graph, unit)
    _, impl = kernel_of(program, op)
    env = bindings(program, op, unit.default)
    grid = impl.launch.grid if impl.launch is not None else ()
    used = {n for argument in op.args if not isinstance(argument, Region) for n in sym.free(argument)}
    used |= {n for size in grid for n in sym.free(sym.substitute(size, env))}

    def differs(name: str) -> bool:
        values = {whole_scalars(ready.at[p]).get(name) for p in points}
        return None not in values and len(values) > 1

    scalars = (s.name for s in program.scalars if s.name in used and s.type is not ElementType.BOOL)
    return tuple(name for name in (*scalars, *ready.plan.constants) if differs(name))

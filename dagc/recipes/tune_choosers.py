"""The chooser of a kernel, also where the model knows too little of it: then without one, which a note says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dagc.cuda.ptx import ASSUMED, Resources
from dagc.recipes.tune_cells import Plan, Prepared, only, whole_scalars
from dagc.recipes.tune_found import Found, best_cell
from dagc.recipes.tune_selectors import Asked, Learned, learn

if TYPE_CHECKING:
    from dagc.choice.choose import UnitChooser
    from dagc.choice.selector import Selector
    from dagc.choice.types import Point, Settings, Unit
    from dagc.ir.graph import Graph
    from dagc.perf.hardware import Hardware
    from dagc.recipes.tune_gpu import Counted


def chooser_of(
    graph: Graph,
    unit: Unit,
    settings: Sequence[Settings],
    hardware: Hardware,
    *,
    anchors: Sequence[tuple[Mapping[str, int], Settings]] = (),
    selector: Selector | None = None,
    method: str = "volume",
    **options: Any,
) -> UnitChooser:
    """`dagc.choice.choose.unit_chooser`; `exhaustive` has the volume model beside its measured bests.

    Where the model, or the limits of the grid, hang on what is neither a size nor known of a setting (a tunable in the
    grid's size, a block's third dimension), or where the kernel's text is nested too deeply to be read, the chooser has
    neither."""
    from dagc.choice.choose import unit_chooser

    model = "volume" if method == "exhaustive" else method
    try:
        made = unit_chooser(
            graph, unit, settings, hardware, anchors=anchors, selector=selector, method=model, **options
        )
    except RecursionError:
        return _without(graph, unit, settings, anchors, selector, "its text is nested too deeply to be read")
    except KeyError as error:  # an anchor has no value for what the model takes for a size
        return _without(graph, unit, settings, anchors, selector, f"it hangs on {error.args[0]}, which it cannot see")
    known = {s.name for s in graph.program.scalars} | {name for name, _ in made.columns} | {"rank", "ranks"}
    programs = [p for p in (made.model, made.launchable) if p is not None]
    unknown = sorted({parameter.name for p in programs for parameter in p.parameters} - known)
    if unknown:
        return _without(
            graph, unit, settings, anchors, selector, f"it hangs on {', '.join(unknown)}, which it cannot see"
        )
    return made


def _without(
    graph: Graph,
    unit: Unit,
    settings: Sequence[Settings],
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    selector: Selector | None,
    why: str,
) -> UnitChooser:
    from dagc.choice.choose import Anchor, UnitChooser, constants_of

    data = tuple(
        sorted({n for sizes, _ in anchors for n in sizes} | set(selector.data if selector is not None else ()))
    )
    found = tuple(Anchor(tuple(int(sizes[d]) for d in data), list(settings).index(best)) for sizes, best in anchors)
    note = f"no model: {why}"
    return UnitChooser(
        unit.op,
        tuple(settings),
        data,
        (),
        None,
        None,
        tuple(dict.fromkeys(found)),
        note,
        selector,
        constants_of(graph.program, data),
    )


@dataclass(frozen=True, slots=True)
class Known:
    """What choosers are made from, but for measurements. `resources`: of the kernels that nvcc has compiled."""

    ready: Prepared
    asked: Mapping[str, Asked]
    counted: Counted
    hardware: Any
    resources: Mapping[str, Resources]

    def taken(self, op: str) -> Resources:
        return self.resources.get(op, ASSUMED)


def chooser_with(
    known: Known,
    ready: Prepared,
    unit: Unit,
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    selector: Selector | None = None,
    point: Point | None = None,
) -> Any:
    """`ready`: with the settings that may be chosen. `point`: of the program at this size."""
    from dagc.choice.legal import unit_in

    graph = ready.plan.graph if point is None else ready.plan.graph_at(point)
    return chooser_of(
        graph, unit_in(graph, unit), ready.plan.settings[unit.op], known.hardware, taken=known.taken(unit.op),
        anchors=anchors, method=known.asked[unit.op].method, fits=known.counted.fits.get(unit.op), selector=selector,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AtSizes:
    """A unit's chooser; at sizes at which the program is another one, that program's."""

    chooser: Any
    others: Mapping[Point, Any]

    @classmethod
    def of(cls, made: Plan, make: Callable[[Point | None], Any]) -> AtSizes:
        """`make` gives the chooser of the program at a size, None: of the program as it stands."""
        graphs: dict[int, Any] = {}
        for point, graph in made.graphs.items():
            if point in made.points and id(graph) not in graphs:
                graphs[id(graph)] = make(point)
        return cls(make(None), {p: graphs[id(made.graphs[p])] for p in made.points if p in made.graphs})

    def at(self, point: Point) -> Any:
        return self.others.get(point, self.chooser)


def first_choosers(known: Known) -> dict[str, AtSizes]:
    """Each unit's chooser while nothing is measured."""
    ready = known.ready
    return {u.op: AtSizes.of(ready.plan, partial(chooser_with, known, ready, u, (), None)) for u in ready.plan.units}


def final_choosers(
    known: Known, fit: Mapping[str, tuple[Settings, ...]], found: Found, seed: int
) -> tuple[dict[str, AtSizes], dict[str, Learned]]:
    """Each unit's chooser, with what was measured and learned, and what that was, by op. `fit`: the settings that may
    be chosen."""
    from dagc.choice.methods import LEARNED

    ready = known.ready
    good = replace(
        ready, plan=replace(ready.plan, settings=fit), at={p: only(at, fit) for p, at in ready.at.items()}
    )  # fmt: skip
    right = {key: cell for key, cell in found.cells.items() if key[2] in fit.get(key[0], ())}
    out: dict[str, AtSizes] = {}
    made: dict[str, Learned] = {}
    for unit in ready.plan.units:
        asked = known.asked[unit.op]
        model = _model(known, good, unit) if asked.method in LEARNED else None
        learned = learn(good, unit, asked, right, seed, model)
        bests = ((point, best_cell(right, unit.op, point)) for point in ready.plan.points)
        anchors = [(whole_scalars(ready.at[point]), cell.settings) for point, cell in bests if cell is not None]
        out[unit.op] = AtSizes.of(ready.plan, partial(chooser_with, known, good, unit, anchors, learned.selector))
        made[unit.op] = replace(
            learned, notes=tuple(f"{unit.op}: {note}" for note in (asked.note, *learned.notes) if note)
        )
    return out, made


def _model(known: Known, ready: Prepared, unit: Unit) -> Callable[[Point], int] | None:
    """What the volume model chooses at each point, with nothing measured; None where it cannot."""
    from dagc.choice.legal import unit_in

    def make(point: Point | None) -> UnitChooser:
        graph = ready.plan.graph if point is None else ready.plan.graph_at(point)
        settings = ready.plan.settings[unit.op]
        return chooser_of(graph, unit_in(graph, unit), settings, known.hardware, taken=known.taken(unit.op))

    made = AtSizes.of(ready.plan, make)
    if made.chooser.model is None:
        return None
    return lambda point: int(made.at(point).choose(whole_scalars(ready.at[point])))

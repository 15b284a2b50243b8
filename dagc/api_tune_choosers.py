"""The chooser of a kernel, also where the model knows too little of it: then without one, which a note says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagc.graph import Graph
    from dagc.rational.hardware import Hardware
    from dagc.select.selector import Selector
    from dagc.tune.choose import UnitChooser
    from dagc.tune.types import Settings, Unit


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
    """`dagc.tune.choose.unit_chooser`; `exhaustive` has the volume model beside its measured bests.

    Where the model, or the limits of the grid, hang on what is neither a size nor known of a setting (a tunable in the
    grid's size, a block's third dimension), or where the kernel's text is nested too deeply to be read, the chooser has
    neither."""
    from dagc.tune.choose import unit_chooser

    model = "volume" if method == "exhaustive" else method
    try:
        made = unit_chooser(
            graph, unit, settings, hardware, anchors=anchors, selector=selector, method=model, **options
        )
    except RecursionError:
        return _without(unit, settings, anchors, selector, "its text is nested too deeply to be read")
    except KeyError as error:  # an anchor has no value for what the model takes for a size
        return _without(unit, settings, anchors, selector, f"it hangs on {error.args[0]}, which it cannot see")
    known = {s.name for s in graph.program.scalars} | {name for name, _ in made.columns} | {"rank", "ranks"}
    programs = [p for p in (made.model, made.launchable) if p is not None]
    unknown = sorted({parameter.name for p in programs for parameter in p.parameters} - known)
    if unknown:
        return _without(unit, settings, anchors, selector, f"it hangs on {', '.join(unknown)}, which it cannot see")
    return made


def _without(
    unit: Unit,
    settings: Sequence[Settings],
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    selector: Selector | None,
    why: str,
) -> UnitChooser:
    from dagc.tune.choose import Anchor, UnitChooser

    data = tuple(
        sorted({n for sizes, _ in anchors for n in sizes} | set(selector.data if selector is not None else ()))
    )
    found = tuple(Anchor(tuple(int(sizes[d]) for d in data), list(settings).index(best)) for sizes, best in anchors)
    note = f"no model: {why}"
    return UnitChooser(unit.op, tuple(settings), data, (), None, None, tuple(dict.fromkeys(found)), note, selector)

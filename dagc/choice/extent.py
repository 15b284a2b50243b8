"""How far features lie outside of those that were measured, in Python; in C it is `choice/head.h.j2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagc.choice.types import Cell
from dagc.ir.plan import FAR
from dagc.ir.program import Program


@dataclass(frozen=True, slots=True)
class Extent:
    """The least and the largest measured value of each feature: (name, low, high)."""

    ranges: tuple[tuple[str, float, float], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, float]]) -> Extent:
        """Of measured features by name; not every row needs to have each name."""
        ranges: dict[str, list[float]] = {}
        for row in rows:
            for name, value in row.items():
                ranges.setdefault(name, []).append(value)
        return cls(tuple((name, min(values), max(values)) for name, values in ranges.items()))

    @property
    def text(self) -> str:
        """`ni 256 to 8192, nj 1024`."""
        return ", ".join(
            f"{n} {_shown(low)}" + (f" to {_shown(high)}" if high > low else "") for n, low, high in self.ranges
        )

    def beyond(self, values: Mapping[str, float]) -> dict[str, float]:
        """How many times each feature lies outside of the measured ones, 1 inside. Names without a range: none."""
        return {name: beyond(values[name], low, high) for name, low, high in self.ranges if name in values}

    def warning(self, values: Mapping[str, float]) -> str:
        """One line where a feature lies more than FAR times outside, else ""."""
        excess = self.beyond(values)
        worst = max(excess, key=lambda name: excess[name], default="")
        if not worst or excess[worst] <= FAR:
            return ""
        return (
            f"{worst} = {_shown(values[worst])} is {excess[worst]:.3g} times outside the measured sizes"
            f" ({self.text}): the choice may be slow; add it with `dagc tune --resume --sizes`"
        )


def beyond(x: float, low: float, high: float) -> float:
    """How many times a value lies outside of [low, high], 1 inside."""
    width = high - low if high > low else 1
    if x > high:
        return x / high if high > 0 else 1 + (x - high) / width
    if x < low:
        return low / x if x > 0 else 1 + (low - x) / width
    return 1.0


def _shown(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.4g}"


def far_parameters(program: Program, cells: Iterable[Cell]) -> tuple[str, ...]:
    """Warnings of the program's parameters that lie far outside of the sizes at which the cells were timed."""
    extent = Extent.of(cell.point.sizes for cell in cells if cell.times)
    sizes = {p.name: p.value for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    warning = extent.warning(sizes)
    return (warning,) if warning else ()

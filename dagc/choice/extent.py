"""How far sizes lie outside of those that were measured, in Python and in C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagc.choice.types import Cell
from dagc.ir.plan import FAR
from dagc.ir.program import Program

C_BEYOND = """\
/* How many times a size lies outside of the measured ones, 1 inside. */
static inline double dagc_beyond(int64_t size, int64_t low, int64_t high) {
  if (size > high) return (double)size / (double)(high > 1 ? high : 1);
  return size < low ? (double)low / (double)(size > 1 ? size : 1) : 1.0;
}
"""


@dataclass(frozen=True, slots=True)
class Extent:
    """The least and the largest measured value of each size: (name, low, high)."""

    ranges: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, int]]) -> Extent:
        """Of measured sizes by name; not every row needs to have each name."""
        found: dict[str, list[int]] = {}
        for row in rows:
            for name, value in row.items():
                found.setdefault(name, []).append(value)
        return cls(tuple((name, min(values), max(values)) for name, values in found.items()))

    @property
    def text(self) -> str:
        """`ni 256 to 8192, nj 1024`."""
        return ", ".join(f"{n} {low}" + (f" to {high}" if high > low else "") for n, low, high in self.ranges)

    def beyond(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """How many times each size lies outside of the measured ones, 1 inside. Sizes without a range are skipped."""
        out = {}
        for name, low, high in self.ranges:
            if name in sizes:
                size = sizes[name]
                out[name] = size / max(high, 1) if size > high else (low / max(size, 1) if size < low else 1.0)
        return out

    def warning(self, sizes: Mapping[str, int]) -> str:
        """One line where a size lies more than FAR times outside, else ""."""
        found = self.beyond(sizes)
        worst = max(found, key=lambda name: found[name], default="")
        if not worst or found[worst] <= FAR:
            return ""
        return (
            f"{worst} = {sizes[worst]} lies {found[worst]:.3g} times outside of the sizes that were measured"
            f" ({self.text}): what is chosen may be slow; add it with `dagc tune --resume --sizes`"
        )

    def c_text(self, function: str) -> str:
        """C99, after C_BEYOND: `static inline double function(int64_t <name>...)`, the largest of `beyond`."""
        names = ["".join(c if c.isalnum() else "_" for c in name) for name, _, _ in self.ranges]
        lines = [
            f"static inline double {function}({', '.join(f'int64_t {n}' for n in names)}) {{",
            "  double most = 1;",
        ]
        for name, (_, low, high) in zip(names, self.ranges, strict=True):
            lines.append(f"  if (dagc_beyond({name}, {_c(low)}, {_c(high)}) > most)")
            lines.append(f"    most = dagc_beyond({name}, {_c(low)}, {_c(high)});")
        return "\n".join([*lines, "  return most;", "}"]) + "\n"


def _c(value: int) -> str:
    return f"INT64_C({value})"


def far_parameters(program: Program, cells: Iterable[Cell]) -> tuple[str, ...]:
    """Warnings of the program's parameters that lie far outside of the sizes at which the cells were timed."""
    extent = Extent.of(dict(cell.point.params) for cell in cells if cell.times)
    sizes = {p.name: p.value for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    found = extent.warning(sizes)
    return (found,) if found else ()

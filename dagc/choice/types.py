"""What tuning talks about: units (ops with open launch parameters), points (sizes), settings, cells.

Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from dagc.base.statistics import interval
from dagc.ir.plan import OpenTunable

PROGRAM = "program"  # in place of an op's name: a word of the language, so that no op is called like this

# Values of a unit's tunables by name, in the order of the program.
Settings: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """An op (or all ops of one base name) whose launch parameters are tuned. `index` is its first place in the graph.

    `dimensions` is the number of block dimensions that its tunables set: 1 for one-dimensional kernels.
    """

    op: str
    kernel: str
    index: int
    tunables: tuple[OpenTunable, ...]

    @property
    def default(self) -> Settings:
        return tuple((t.name, int(t.default)) for t in self.tunables)

    @property
    def dimensions(self) -> int:
        return sum(bool(t.axis) for t in self.tunables)


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One size or one input of the program: values of its parameters, sorted by name. Text values are inputs: paths of
    files, calls of generators (`dagc.choice.inputs`)."""

    params: tuple[tuple[str, int | str], ...]

    @property
    def text(self) -> str:
        """`NI=512 NJ=512`; an input alone is its text, such as `train/cant.mtx`."""
        if len(self.params) == 1 and isinstance(self.params[0][1], str):
            return self.params[0][1]
        return " ".join(f"{n}={v}" for n, v in self.params)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers among the values."""
        return {n: v for n, v in self.params if not isinstance(v, str)}

    @classmethod
    def of(cls, params: Mapping[str, int | str]) -> Point:
        return cls(tuple(sorted(params.items())))


@dataclass(frozen=True, slots=True)
class Cell:
    """One unit under one setting at one size: what was measured, or why there is nothing.

    `times` are seconds of single launches in order; `failure` is "" or one line. `took`: seconds that measuring it kept
    the machine busy, caches flushed and data restored; not kept in files.
    """

    op: str
    point: Point
    settings: Settings
    times: tuple[float, ...] = ()
    failure: str = ""
    took: float = 0.0

    @property
    def seconds(self) -> float:
        """The median; NaN where nothing was measured."""
        return median(self.times) if self.times else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The median's 95 % interval."""
        return interval(self.times)


def settings_text(settings: Settings) -> str:
    """`32 x 8` for a block, `bx=32 by=8 tile=16` with more than a block."""
    names = [n for n, _ in settings]
    if names in (["bx"], ["bx", "by"], ["bx", "by", "bz"]):
        return " x ".join(str(v) for _, v in settings) if len(names) > 1 else f"{settings[0][1]}"
    return " ".join(f"{n}={v}" for n, v in settings)

"""Drawing in SVG: scales, ticks, axes, and shapes whose look the page's style sheet decides.

Coordinates are user units of the picture (one CSS pixel at its natural size). All text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from dagc.report.si import significant


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` onto coordinates from `start` to `stop`; logarithmic where asked (then low > 0)."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def clamped(self, value: float) -> float:
        """The coordinate of a value, moved to the nearer end where it is outside."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, most: int = 6) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high, most)


def spanning(low: float, high: float, start: float, stop: float, *, log: bool = False, room: float = 0.04) -> Scale:
    """A scale with some room around the values, also where all of them are equal."""
    if log:
        return Scale(low / (1 + room), high * (1 + room), start, stop, True)
    space = room * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - space, high + space, start, stop)


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values between `low` and `high`, at steps of 1, 2 or 5 times a power of ten. `most` is at least 4."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone where these would be too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    return [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """As short as they can be and still differ."""
    for decimals in range(7):
        texts = [f"{tick:.{decimals}f}" for tick in ticks]
        if all(
            abs(float(text) - tick) <= 1e-6 * max(1e-12, abs(tick)) for text, tick in zip(texts, ticks, strict=True)
        ):
            return texts
    return [significant(tick) for tick in ticks]


def n(value: float) -> str:
    """A coordinate: a tenth of a unit is finer than a screen shows."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def tag(name: str, content: str | None = None, /, **attributes: object) -> str:
    """An element; `content` is SVG already. `class_` is class, other underscores are hyphens, None leaves one out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = n(value) if isinstance(value, float) else str(value)
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    inside = " ".join(words)
    return f"<{inside}/>" if content is None else f"<{inside}>{content}</{name}>"


def text(x: float, y: float, words: str, class_: str = "label", **attributes: object) -> str:
    """A line of text; `words` is escaped."""
    return tag("text", escape(words), x=x, y=y, class_=class_, **attributes)


def dots(points: Iterable[tuple[float, float]], class_: str, **attributes: object) -> str:
    """Many round dots as one element: lines of no length with round ends. Equal ones are drawn once."""
    distinct = dict.fromkeys((n(x), n(y)) for x, y in points)
    return tag("path", d="".join(f"M{x} {y}h0" for x, y in distinct), class_=f"dots {class_}", **attributes)


def polyline(points: Iterable[tuple[float, float]], class_: str, **attributes: object) -> str:
    return tag("path", d="M" + "L".join(f"{n(x)} {n(y)}" for x, y in points), class_=class_, fill="none", **attributes)


def steps(points: Sequence[tuple[float, float]], until: float, class_: str, **attributes: object) -> str:
    """A line that keeps each value until the next point, the last until x = `until`."""
    (x, y), *rest = points
    path = [f"M{n(x)} {n(y)}"] + [f"H{n(to_x)}V{n(to_y)}" for to_x, to_y in rest] + [f"H{n(until)}"]
    return tag("path", d="".join(path), class_=class_, fill="none", **attributes)


@dataclass(slots=True)
class Plot:
    """A picture with one x axis at the bottom and one y axis at the left."""

    width: float
    height: float
    left: float = 64
    right: float = 16
    top: float = 24
    bottom: float = 44
    parts: list[str] = field(default_factory=list)

    @property
    def x_range(self) -> tuple[float, float]:
        return self.left, self.width - self.right

    @property
    def y_range(self) -> tuple[float, float]:
        """From the bottom up."""
        return self.height - self.bottom, self.top

    def add(self, *parts: str) -> None:
        self.parts += parts

    def x_axis(self, scale: Scale, title: str, factor: float = 1.0, most: int = 8) -> None:
        """`factor`: how many units of the scale one unit of the labels has."""
        base = self.height - self.bottom
        values = Scale(scale.low / factor, scale.high / factor, scale.start, scale.stop, scale.log)
        ticks = values.ticks(most)
        marks = "".join(f"M{n(values(t))} {n(base)}v5" for t in ticks)
        self.add(tag("path", d=f"M{n(self.left)} {n(base)}H{n(self.width - self.right)}{marks}", class_="axis"))
        for tick, words in zip(ticks, tick_texts(ticks), strict=True):
            self.add(text(values(tick), base + 18, words, "tick", text_anchor="middle"))
        self.add(text((self.left + self.width - self.right) / 2, base + 36, title, "axis-title", text_anchor="middle"))

    def y_axis(self, scale: Scale, title: str, factor: float = 1.0, most: int = 6) -> None:
        values = Scale(scale.low / factor, scale.high / factor, scale.start, scale.stop, scale.log)
        ticks = values.ticks(most)
        lines = "".join(f"M{n(self.left)} {n(values(t))}H{n(self.width - self.right)}" for t in ticks)
        self.add(tag("path", d=lines or "M0 0", class_="grid"))
        for tick, words in zip(ticks, tick_texts(ticks), strict=True):
            self.add(text(self.left - 8, values(tick) + 4, words, "tick", text_anchor="end"))
        middle = (self.top + self.height - self.bottom) / 2
        turned = f"rotate(-90 14 {n(middle)})"
        self.add(text(14, middle, title, "axis-title", text_anchor="middle", transform=turned))

    def svg(self, title: str, class_: str = "plot", **attributes: object) -> str:
        return picture(self.width, self.height, self.parts, title, class_, "img", **attributes)


def picture(
    width: float, height: float, parts: Iterable[str], title: str, class_: str, role: str, /, **attributes: object
) -> str:
    """The whole SVG; `title` is what a screen reader says."""
    return tag(
        "svg", "\n".join(parts), viewBox=f"0 0 {n(width)} {n(height)}", width=width, height=height, role=role,
        aria_label=title, class_=class_, **attributes,
    )  # fmt: skip

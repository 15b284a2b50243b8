"""What a tuned file may say, as types with ranges: all of it is read through here, nothing else is passed on.

A text of the file that becomes a name in emitted code is a name of the language; what is only shown is one line of
plain characters. Readers raise ValueError, naming the place in the JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from dagc.choice.methods import from_json
from dagc.choice.selector import Selector
from dagc.cuda.ptx import Instructions, Resources
from dagc.perf.counted import Fitted, HeldOut
from dagc.perf.hardware import Hardware, hardware_of
from dagc.store.schema import Decisions, Line, Name, Natural, Positive, PositiveReal, decoded

_INT64 = 2**63 - 1
Size = Annotated[int, Meta(ge=-_INT64, le=_INT64)]  # -2**63 has no literal in C
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Real = Annotated[float, Meta(ge=-1e300, le=1e300)]
Share = Annotated[float, Meta(ge=0, le=1e300)]
Power = Annotated[int, Meta(ge=0, le=64)]
KernelMethod = Annotated[str, Meta(pattern=r"\A[a-z-]{1,40}\Z")]
Settings = dict[Name, Size]
Choices = Annotated[tuple[Settings, ...], Meta(min_length=1, max_length=100_000)]


class FixedChoices(TypedDict):
    """Values that the tuned times depend on besides sizes and settings."""

    params: Decisions
    decisions: Decisions


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file says of itself. `kernels` and `program`: what must not differ where kernels, or whole programs, were
    tuned. `program_data`: parameters of a size, and the selector's data there."""

    target: Literal["", "host", "cuda"] = ""
    arch: Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,40}\Z")] = ""
    gpu: Line | None = None
    kernels: FixedChoices | None = None
    program: FixedChoices | None = None
    program_data: tuple[tuple[tuple[tuple[Name, Size], ...], tuple[Size, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class AnchorRow:
    """At these sizes, the setting of this number was the best of those measured."""

    data: tuple[Size, ...]
    chosen: Natural


@dataclass(frozen=True, slots=True)
class KernelChooser:
    """What it takes to make the chooser of an op again from the program's text."""

    method: str
    hardware: Hardware
    resources: Resources
    fits: dict[str, Fitted]
    settings: tuple[tuple[tuple[str, int], ...], ...]
    data: tuple[str, ...]
    anchors: tuple[AnchorRow, ...]
    selector: Selector | None


@dataclass(frozen=True, slots=True)
class ProgramChooser:
    """What chooses among whole programs: `settings` of the decisions `names`, by the selector's answer."""

    method: str
    names: tuple[str, ...]
    data: tuple[str, ...]
    settings: tuple[tuple[tuple[str, int], ...], ...]
    selector: Selector


# ---- rows -----------------------------------------------------------------------------------


class _Instructions(msgspec.Struct, frozen=True):
    once: Share
    loops: tuple[Share, ...]


class _HeldOut(msgspec.Struct, frozen=True):
    points: Natural
    median: Share
    largest: Share


class _Fit(msgspec.Struct, frozen=True):
    names: tuple[Name, ...]
    middle: tuple[Real, ...]
    half: tuple[PositiveReal, ...]
    above: tuple[tuple[Power, ...], ...]
    below: tuple[tuple[Power, ...], ...]
    above_coefficients: tuple[Real, ...]
    below_coefficients: tuple[Real, ...]
    degrees: tuple[Power, Power]
    ridge: Real
    held_out: _HeldOut


class _KernelRow(msgspec.Struct, frozen=True):
    method: KernelMethod
    registers: Annotated[int, Meta(ge=0, le=4096)]
    settings: Choices
    data: tuple[Name, ...]
    anchors: tuple[AnchorRow, ...]
    hardware: dict[Name, bool | int | float | str | dict[Name, bool | int | float | str]]
    shared: Small = 0
    instructions: _Instructions | None = None
    fits: dict[Name, _Fit] | None = None
    selector: msgspec.Raw = msgspec.Raw(b"null")


class _ProgramRow(msgspec.Struct, frozen=True):
    method: KernelMethod
    names: tuple[Name, ...]
    data: tuple[Name, ...]
    settings: Annotated[tuple[Decisions, ...], Meta(min_length=1, max_length=100_000)]
    selector: msgspec.Raw


def read_kernel_chooser(text: str) -> KernelChooser:
    """Raises ValueError, UsageError."""
    row: _KernelRow = decoded(text, _KernelRow)
    _unique(row.data, "data")
    names = list(row.settings[0])
    for setting in row.settings:
        if list(setting) != names or not names:
            raise ValueError("settings of different names")
    for anchor in row.anchors:
        if len(anchor.data) != len(row.data) or anchor.chosen >= len(row.settings):
            raise ValueError("an anchor of other sizes, or of a setting that is not there")
    counted = Instructions(row.instructions.once, row.instructions.loops) if row.instructions else None
    return KernelChooser(
        row.method, hardware_of(dict(row.hardware), "GPU"), Resources(row.registers, row.shared, counted),
        {name: _fitted(fit) for name, fit in (row.fits or {}).items()}, tuple(tuple(s.items()) for s in row.settings),
        row.data, row.anchors, _selector(row.selector, len(row.settings)),
    )  # fmt: skip


def read_program_chooser(text: str) -> ProgramChooser:
    """Raises ValueError."""
    row: _ProgramRow = decoded(text, _ProgramRow)
    _unique(row.names, "names")
    if not row.names or any(list(setting) != list(row.names) for setting in row.settings):
        raise ValueError("settings of other names")
    selector = _selector(row.selector, len(row.settings))
    if selector is None or selector.data != row.data:
        raise ValueError("a selector of other data")
    settings: Any = tuple(tuple(s.items()) for s in row.settings)  # of any type that a decision has
    return ProgramChooser(row.method, row.names, row.data, settings, selector)


def read_facts(rows: dict[str, str]) -> Facts:
    """From JSON by key. What no command reads (`counts OP`) is left out. Raises ValueError."""
    return Facts(
        decoded(rows.get("target", '""'), Literal["", "host", "cuda"]),
        decoded(rows.get("arch", '""'), Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,40}\Z")]),
        decoded(rows.get("gpu", "null"), Line | None),
        decoded(rows.get("kernels", "null"), FixedChoices | None),
        decoded(rows.get("program", "null"), FixedChoices | None),
        decoded(rows.get("program data", "[]"), tuple[tuple[tuple[tuple[Name, Size], ...], tuple[Size, ...]], ...]),
    )


class CellRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `tune_cell`, as the columns come."""

    op: Name
    point: str
    settings: str
    times: str
    failure: Line
    flush: Natural


class CheckRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `tune_check`."""

    op: Name
    settings: str
    failure: Line


def read_point(text: str) -> dict[str, int]:
    point: dict[str, int] = decoded(text, Settings)
    return point


def read_settings(text: str) -> tuple[tuple[str, int], ...]:
    """Those of whole programs may be of other types, which callers pass on as they are."""
    return tuple(decoded(text, Decisions).items())


def read_times(text: str) -> tuple[float, ...]:
    times: tuple[float, ...] = decoded(text, tuple[PositiveReal, ...])
    return times


def _selector(raw: msgspec.Raw, choices: int) -> Selector | None:
    if bytes(raw) == b"null":
        return None
    selector = from_json(msgspec.json.decode(raw))
    if any(not 0 <= label < choices for label in selector.answers):
        raise ValueError("a selector that answers with settings that are not there")
    return selector


def _fitted(row: _Fit) -> Fitted:
    n = len(row.names)
    same = {len(row.middle), len(row.half), *(len(p) for p in (*row.above, *row.below))}
    counts = (len(row.above), len(row.below)) == (len(row.above_coefficients), len(row.below_coefficients))
    if not n or same != {n} or not counts or not row.below:
        raise ValueError("a fitted count whose parts are not of one length")
    held = HeldOut(row.held_out.points, row.held_out.median, row.held_out.largest)
    return Fitted(
        row.names, row.middle, row.half, row.above, row.below, row.above_coefficients, row.below_coefficients,
        row.degrees, row.ridge, held,
    )  # fmt: skip


def _unique(names: tuple[str, ...], what: str) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"{what} named twice")


__all__ = [
    "AnchorRow", "CellRow", "CheckRow", "Facts", "FixedChoices", "KernelChooser", "Positive", "ProgramChooser",
    "read_facts", "read_kernel_chooser", "read_point", "read_program_chooser", "read_settings", "read_times",
]  # fmt: skip

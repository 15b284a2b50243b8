"""Tuned files as `Tuned`: cells, checks, facts and choosers, read through types with ranges. Times in seconds.

Text that becomes a name in emitted code must be a name of the language; text that is only printed is one line of
printable characters. Readers raise ValueError, naming the place in the JSON.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from dagc.base.errors import UsageError
from dagc.base.sample import Sample
from dagc.choice.methods import from_json
from dagc.choice.nodes import Name as FeatureName
from dagc.choice.placement import Transfers
from dagc.choice.selector import Selector
from dagc.choice.types import Case, Cell
from dagc.cuda.ptx import Instructions, Resources
from dagc.ir.choice import PROGRAM, VARIANT, Choice, names_form
from dagc.perf.fit import Fitted, HeldOut
from dagc.perf.hardware import Hardware, hardware_of
from dagc.store.read import (
    Decisions,
    Line,
    Name,
    Natural,
    PositiveReal,
    Whole,
    Word,
    is_tuned,
    read_metrics,
    read_program,
    read_runs,
    rows_as,
    snapshot,
)
from dagc.store.results import ProgramRecord, Run
from dagc.store.schema import decoded

_INT64 = 2**63 - 1
Size = Annotated[int, Meta(ge=-_INT64, le=_INT64)]  # -2**63 has no literal in C
Small = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Real = Annotated[float, Meta(ge=-1e300, le=1e300)]
Feature = Real  # the value of a feature: JSON keeps integers as such
Share = Annotated[float, Meta(ge=0, le=1e300)]
Power = Annotated[int, Meta(ge=0, le=64)]
KernelMethod = Annotated[str, Meta(pattern=r"\A[a-z-]{1,40}\Z")]
Input = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f\x80-\x9f]*\Z", max_length=10_000)]  # a path or a call
Params = dict[Name, Size | Real | Input]  # of a case
Choices = Annotated[tuple[dict[Name, Size | Name], ...], Meta(min_length=1, max_length=100_000)]

CaseData = tuple[tuple[tuple[Name, Size | Real | Input], ...], tuple[Feature, ...]]  # parameters, features


class FixedChoices(TypedDict):
    """Values that the tuned times depend on besides sizes and settings."""

    params: Decisions
    decisions: Decisions


@dataclass(frozen=True, slots=True)
class InputFacts:
    """Facts of an input (or a size) besides its cells.

    `test`: it was measured to evaluate, and nothing is learned from it. `values`: per-rank scalars and computed
    features of rank 0 by name. `features`: of each op, by name; those that are not finite are missing. `seconds`: to
    compute each code feature. `elements`: of its largest array. `conversions`: seconds of `prepare` by op and variant.
    """

    params: Params
    test: bool = False
    values: dict[Name, bool | Size | Real] = field(default_factory=dict)
    features: dict[Name, dict[FeatureName, Real]] = field(default_factory=dict)
    seconds: dict[Name, Share] = field(default_factory=dict)
    elements: Natural = 0
    conversions: dict[Name, dict[Name, Share]] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        return Case.of(self.params)


@dataclass(frozen=True, slots=True)
class TunedFacts:
    """Facts of a tuned file. `kernels` and `program`: choices that must not differ if kernels, or whole programs, were
    tuned. `program_data`: parameters of a size, and the features of the selector there. `inputs`: of the inputs;
    `sizes`: features of ops at sizes. `objective`: what the choosers minimise (`dagc.base.sample`). `transfers`:
    between host and device, where ops are placed together. `calls`: over how many a conversion is paid (0: not
    counted); `constraints`: whether they count."""

    target: Literal["", "host", "cuda"] = ""
    arch: Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,40}\Z")] = ""
    gpu: Line | None = None
    kernels: FixedChoices | None = None
    program: FixedChoices | None = None
    program_data: tuple[CaseData, ...] = ()
    inputs: tuple[InputFacts, ...] = ()
    sizes: tuple[InputFacts, ...] = ()
    objective: str = "time"
    transfers: Transfers | None = None
    calls: Natural = 0
    constraints: bool = True

    @property
    def tests(self) -> frozenset[Case]:
        """The test cases, which are not used for training."""
        return frozenset(one.case for one in self.inputs if one.test)

    def features_of(self, op: str) -> dict[Case, dict[str, float]]:
        """The features of an op at each size or input, by name."""
        return {one.case: dict(one.features.get(op, {})) for one in (*self.sizes, *self.inputs)}

    def of_programs(self, names: Sequence[str]) -> dict[Case, InputFacts]:
        """The cases of whole programs: for some versions, only the features `names`. Raises ValueError if the file has
        other features for them."""
        out = {}
        for params, values in self.program_data:
            features = {PROGRAM: dict(zip(names, values, strict=True))}
            out[Case.of(dict(params))] = InputFacts(dict(params), features=features)
        for one in self.inputs:
            if PROGRAM not in one.features:
                continue
            if one.features[PROGRAM].keys() != set(names):
                raise ValueError(f"other features: {', '.join(one.features[PROGRAM])}")
            out[one.case] = one
        return out


@dataclass(frozen=True, slots=True)
class AnchorRow:
    """The number of the best measured setting at these sizes."""

    data: tuple[Feature, ...]
    chosen: Natural


@dataclass(frozen=True, slots=True)
class KernelChooser:
    """The stored part of a kernel chooser: with the program text, it gives the chooser again. `each`: the resources of
    each setting, if the choice depends on them; `points`: the ranges of sizes to which `fits` were fitted."""

    method: str
    hardware: Hardware
    resources: Resources
    fits: dict[str, Fitted]
    choices: tuple[Choice, ...]
    data: tuple[str, ...]
    anchors: tuple[AnchorRow, ...]
    selector: Selector | None
    each: tuple[Resources, ...] = ()
    points: tuple[tuple[str, float, float], ...] = ()

    @property
    def variants(self) -> bool:
        """Whether the chooser also chooses the variant."""
        return bool(self.choices[0].variant)


@dataclass(frozen=True, slots=True)
class ProgramChooser:
    """The chooser of whole programs: `choices` of the decisions `names`, indexed by the answer of the selector."""

    method: str
    names: tuple[str, ...]
    data: tuple[str, ...]
    choices: tuple[Choice, ...]
    selector: Selector


@dataclass(frozen=True, slots=True)
class Tuned:
    """The content of a tuned file: samples with the flush of each, checks, facts by name, choosers by op."""

    path: Path
    program: ProgramRecord
    runs: tuple[Run, ...]
    samples: tuple[tuple[Cell, Sample], ...]
    flushes: tuple[int, ...]
    checks: dict[tuple[str, Choice], str]
    facts: TunedFacts
    choosers: dict[str, KernelChooser | ProgramChooser]

    @property
    def forms(self) -> bool:
        """Whether forms of kernels were open."""
        choices = (choice for chooser in self.kernel_choosers.values() for choice in chooser.choices)
        return any(map(names_form, (*(cell.choice for cell, _ in self.samples), *choices)))

    @property
    def program_chooser(self) -> ProgramChooser | None:
        """The chooser of whole programs, None if only kernels were tuned."""
        chooser = self.choosers.get(PROGRAM)
        return chooser if isinstance(chooser, ProgramChooser) else None

    @property
    def kernel_choosers(self) -> dict[str, KernelChooser]:
        """The kernel choosers by op."""
        return {op: chooser for op, chooser in self.choosers.items() if isinstance(chooser, KernelChooser)}

    @property
    def placed(self) -> set[str]:
        """The ops for which it chooses the device."""
        choosers = self.kernel_choosers.items()
        return {op for op, chooser in choosers for choice in chooser.choices if "." in choice.variant}


def was_tuned(path: str | Path) -> bool:
    """Whether a file has tuned settings. Raises UsageError for a file that cannot be read."""
    with snapshot(Path(path)) as connection:
        return is_tuned(connection)


def load_tuned(path: str | Path) -> Tuned:
    """Read a tuned file. Raises UsageError if it is missing or damaged, or has no tuned settings."""
    path = Path(path)
    with snapshot(path) as connection:
        if not is_tuned(connection):
            raise UsageError(f"{path}: contains no tuned settings", "give a file written by `dagc tune`")
        return tuned_in(connection, path)


_Candidate = tuple[Whole, Name, str, str, Line, Natural, Natural]


def tuned_in(connection: sqlite3.Connection, path: Path) -> Tuned:
    """The tuned settings of an open file. Raises ValueError."""
    times: dict[int, list[float]] = defaultdict(list)
    rows = connection.execute(
        "SELECT s.candidate, v.value FROM sample s JOIN value v ON v.sample = s.id AND v.metric = ?"
        " JOIN candidate c ON c.id = s.candidate WHERE c.domain != '' ORDER BY s.id",
        (read_metrics(connection).get("time", (None,))[0],),
    )
    for candidate, seconds in rows_as(rows, tuple[Whole, PositiveReal], "sample"):
        times[candidate].append(seconds)
    metrics: dict[int, dict[str, float]] = defaultdict(dict)
    rows = connection.execute(
        "SELECT s.candidate, m.name, v.value FROM sample s JOIN value v ON v.sample = s.id JOIN metric m ON m.id ="
        " v.metric JOIN candidate c ON c.id = s.candidate WHERE c.domain != '' AND m.name != 'time' ORDER BY s.id"
    )
    for candidate, name, amount in rows_as(rows, tuple[Whole, Word, Share], "sample"):
        metrics[candidate][name] = amount
    rows = connection.execute(
        "SELECT c.id, c.domain, c.point, a.choices, c.failure, c.flush, c.deaths FROM candidate c"
        " JOIN assignment a ON a.id = c.assignment WHERE c.domain != '' ORDER BY c.id"
    )
    samples, flushes = [], []
    for key, op, case, choices, failure, flush, _ in rows_as(rows, _Candidate, "candidate"):
        cell = Cell(op, Case.of(decoded(case, Params)), _choice(op, choices))
        samples.append((cell, Sample.of(tuple(times[key]), failure, metrics[key])))
        flushes.append(flush)
    checks = connection.execute(
        "SELECT domain, choices, failure FROM checked JOIN assignment ON id = assignment ORDER BY domain, choices"
    )
    facts = dict(rows_as(connection.execute("SELECT key, value FROM fact"), tuple[str, str], "fact"))
    choosers = rows_as(connection.execute("SELECT domain, chooser FROM chooser"), tuple[Name, str], "chooser")
    return Tuned(
        path=path,
        program=read_program(connection),
        runs=tuple(run for _, run in read_runs(connection)),
        samples=tuple(samples),
        flushes=tuple(flushes),
        checks={(op, _choice(op, s)): failure for op, s, failure in rows_as(checks, tuple[Name, str, Line], "checked")},
        facts=_facts(facts),
        choosers={op: _chooser(op, text) for op, text in choosers},
    )


def _choice(op: str, text: str) -> Choice:
    """Files have the names that decisions have at their op."""
    return Choice.at(op, decoded(text, Decisions).items())


def _chooser(op: str, text: str) -> KernelChooser | ProgramChooser:
    try:
        return _program_chooser(text) if op == PROGRAM else _kernel_chooser(op, text)
    except (ValueError, UsageError) as error:
        raise ValueError(f"the chooser of `{op}` is damaged ({error})") from None


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


_Registers = Annotated[int, Meta(ge=0, le=4096)]


class _KernelRow(msgspec.Struct, frozen=True):
    method: KernelMethod
    registers: _Registers
    settings: Choices
    data: tuple[FeatureName, ...]
    anchors: tuple[AnchorRow, ...]
    hardware: dict[Name, bool | int | float | str | dict[Name, bool | int | float | str]]
    shared: Small = 0
    instructions: _Instructions | None = None
    fits: dict[Name, _Fit] | None = None
    selector: msgspec.Raw = msgspec.Raw(b"null")
    each: tuple[tuple[_Registers, Small], ...] = ()
    points: tuple[tuple[FeatureName, Real, Real], ...] = ()


class _ProgramRow(msgspec.Struct, frozen=True):
    method: KernelMethod
    names: tuple[Name, ...]
    data: tuple[FeatureName, ...]
    settings: Annotated[tuple[Decisions, ...], Meta(min_length=1, max_length=100_000)]
    selector: msgspec.Raw


def _kernel_chooser(op: str, text: str) -> KernelChooser:
    """Raises ValueError, UsageError."""
    row: _KernelRow = decoded(text, _KernelRow)
    _unique(row.data, "data")
    names = list(row.settings[0])
    variants = VARIANT in names
    for setting in row.settings:
        if not names or list(setting)[:1] != names[:1] or (not variants and list(setting) != names):
            raise ValueError("settings with different names")
        if any(isinstance(value, str) != (name == VARIANT) for name, value in setting.items()):
            raise ValueError("a setting that is not a number, or a variant that is one")
    for anchor in row.anchors:
        if len(anchor.data) != len(row.data) or anchor.chosen >= len(row.settings):
            raise ValueError("an anchor with other sizes, or with a setting that does not exist")
    if len(row.each) not in (0, len(row.settings)):
        raise ValueError("resources of other settings")
    counted = Instructions(row.instructions.once, row.instructions.loops) if row.instructions else None
    return KernelChooser(
        row.method, hardware_of(dict(row.hardware), "GPU"), Resources(row.registers, row.shared, counted),
        {name: _fitted(fit) for name, fit in (row.fits or {}).items()},
        tuple(Choice.at(op, s.items()) for s in row.settings), row.data, row.anchors,
        _selector(row.selector, len(row.settings)), tuple(Resources(*of) for of in row.each),
        row.points,
    )  # fmt: skip


def _program_chooser(text: str) -> ProgramChooser:
    """Raises ValueError."""
    row: _ProgramRow = decoded(text, _ProgramRow)
    _unique(row.names, "names")
    if not row.names or any(list(setting) != list(row.names) for setting in row.settings):
        raise ValueError("settings with other names")
    selector = _selector(row.selector, len(row.settings))
    if selector is None or selector.data != row.data:
        raise ValueError("a selector with other features")
    choices = tuple(Choice(tuple(s.items())) for s in row.settings)
    return ProgramChooser(row.method, row.names, row.data, choices, selector)


def _facts(rows: dict[str, str]) -> TunedFacts:
    """From JSON by key. Facts that no command reads (`counts OP`) are skipped. Raises ValueError."""
    return TunedFacts(
        decoded(rows.get("target", '""'), Literal["", "host", "cuda"]),
        decoded(rows.get("arch", '""'), Annotated[str, Meta(pattern=r"\A[a-z0-9_]{0,40}\Z")]),
        decoded(rows.get("gpu", "null"), Line | None),
        decoded(rows.get("kernels", "null"), FixedChoices | None),
        decoded(rows.get("program", "null"), FixedChoices | None),
        decoded(rows.get("program data", "[]"), tuple[CaseData, ...]),
        _inputs(rows),
        decoded(rows.get("sizes", "[]"), tuple[InputFacts, ...]),
        decoded(rows.get("objective", '"time"'), Line),
        decoded(rows.get("transfers", "null"), Transfers | None),
        decoded(rows.get("calls", "0"), Natural),
        decoded(rows.get("constraints", "true"), bool),
    )


def input_key(number: int) -> str:
    """The key of the facts of an input, by its number in the order of first use."""
    return f"input {number:07}"


def _inputs(rows: dict[str, str]) -> tuple[InputFacts, ...]:
    """Each input has its own key; `inputs`, with all at once, is used by earlier versions and for plans."""
    facts = {one.case: one for one in decoded(rows.get("inputs", "[]"), tuple[InputFacts, ...])}
    for key in sorted(key for key in rows if key.startswith("input ")):
        one = decoded(rows[key], InputFacts)
        facts[one.case] = one
    return tuple(facts.values())


def input_to_json(facts: InputFacts) -> dict[str, Any]:
    """The representation in a tuned file, without empty fields."""
    return {name: value for name, value in asdict(facts).items() if value or name == "params"}


def _selector(raw: msgspec.Raw, choices: int) -> Selector | None:
    if bytes(raw) == b"null":
        return None
    selector = from_json(msgspec.json.decode(raw))
    if any(not 0 <= label < choices for label in selector.ordered):
        raise ValueError("a selector whose answers are not settings of the file")
    return selector


def _fitted(row: _Fit) -> Fitted:
    n = len(row.names)
    same = {len(row.middle), len(row.half), *(len(p) for p in (*row.above, *row.below))}
    counts = (len(row.above), len(row.below)) == (len(row.above_coefficients), len(row.below_coefficients))
    if not n or same != {n} or not counts or not row.below:
        raise ValueError("a fitted count whose parts have different lengths")
    held = HeldOut(row.held_out.points, row.held_out.median, row.held_out.largest)
    return Fitted(
        row.names, row.middle, row.half, row.above, row.below, row.above_coefficients, row.below_coefficients,
        row.degrees, row.ridge, held,
    )  # fmt: skip


def _unique(names: tuple[str, ...], what: str) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"{what} named twice")

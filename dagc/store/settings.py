"""Launch settings as decisions of a program: what a search takes as given, and where each value came from.

A tuned block is a value of `op.bx` like one of `-D`: configurations hold it, and everything downstream reads it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from dagc.ir.plan import is_open
from dagc.ir.program import KernelOp, Program, Value
from dagc.store.results import Configuration, Results, Run, shown

# Decisions that no kernel sees: every search has its own way with them.
_OF_SEARCH = ("transport", "staging", "streams", "capture")
OPTION = "fixed"  # of a run in a results file: where the values of choices that were not searched came from


class Origin(Enum):
    """Where the value of a choice that a search leaves alone came from; the value is what is printed."""

    DEFAULT = "default"
    DEFINED = "-D"
    TUNED = "tuned file"
    MEASURED = "measured here"
    MODEL = "model"
    RESUMED = "results file"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A choice that a search leaves alone."""

    name: str
    value: Value
    origin: Origin


Kernels: TypeAlias = tuple[tuple[str, Value], ...]  # which kernels run: variants, devices, decisions of the program


def kernels_of(configuration: Configuration) -> Kernels:
    """Decisions that say which kernels run. Configurations that agree in them are tuned together."""
    return tuple(
        (name, value)
        for name, value in configuration.decisions
        if name not in _OF_SEARCH and ("." not in name or name.endswith((".variant", ".device")))
    )


def open_settings(program: Program) -> tuple[str, ...]:
    """Names of the decisions that tuning may choose (`inner.bx`), in the order of the program."""
    ops = [op for op in program.ops if isinstance(op, KernelOp) and is_open(program, op)]
    several = {d.name for d in program.decisions if len(d.values) > 1}
    names = (f"{op.base}.{tunable}" for op in ops for tunable, _ in op.tunables)
    return tuple(dict.fromkeys(n for n in names if n in several))


def without_settings(program: Program, defines: Mapping[str, Any]) -> dict[str, Any]:
    """What -D gives, but for launch settings: parameters, variants and devices, decisions of the program."""
    settings = {f"{op.base}.{name}" for op in program.ops if isinstance(op, KernelOp) for name, _ in op.tunables}
    return {name: value for name, value in defines.items() if name not in settings}


def not_searched(
    program: Program, defines: Collection[str], searched: Collection[str], settings: Iterable[Fixed]
) -> tuple[Fixed, ...]:
    """The choices of a program that a search leaves alone. `defines`: names that -D gives; `settings`: those that
    tuning has set."""
    tuned = {f.name: f for f in settings}
    out = []
    for d in program.decisions:
        if d.name in _OF_SEARCH or d.name in searched:
            continue
        if d.name in tuned:
            out.append(tuned[d.name])
        elif d.name in defines:
            out.append(Fixed(d.name, d.chosen, Origin.DEFINED))
        elif len(d.values) > 1:
            out.append(Fixed(d.name, d.chosen, Origin.DEFAULT))
    return tuple(out)


def fixed_text(fixed: Iterable[Fixed]) -> tuple[str, ...]:
    """A line for each origin: `inner.bx=64 inner.by=2 (measured here)`."""
    by: dict[Origin, list[str]] = {}
    for one in fixed:
        by.setdefault(one.origin, []).append(f"{one.name}={shown(one.value)}")
    return tuple(f"{' '.join(by[origin])} ({origin.value})" for origin in Origin if origin in by)


# ---- in results files -----------------------------------------------------------------------


def fixed_to_json(fixed: Iterable[Fixed]) -> list[list[Any]]:
    return [[one.name, one.value, one.origin.value] for one in dict.fromkeys(fixed)]


def fixed_in(runs: Iterable[Run]) -> tuple[Fixed, ...]:
    """What the runs of a results file left alone; nothing of runs of a dagc that did not say so."""
    origins = {origin.value: origin for origin in Origin}
    found: dict[Fixed, None] = {}
    for run in runs:
        for name, value, origin in run.options.get(OPTION, ()):  # of these types: the reader has checked it
            if origin in origins:
                found[Fixed(name, value, origins[origin])] = None
    return tuple(found)


def fixed_of(runs: Iterable[Run], configuration: Configuration) -> tuple[Fixed, ...]:
    """Of `fixed_in`, what holds for a configuration: choices that have these values in it."""
    has = {(name, type(value), value) for name, value in configuration.decisions}
    return tuple({f.name: f for f in fixed_in(runs) if (f.name, type(f.value), f.value) in has}.values())


def settings_before(results: Results, kernels: Kernels, names: Collection[str]) -> tuple[Fixed, ...] | None:
    """The values that a results file has for these decisions, where these kernels run: those of its newest
    implementation. Where they came from is said as it was then. None where it has no such implementation."""
    same = [i.configuration for i in results.implementations if kernels_of(i.configuration) == kernels]
    if not same:
        return None
    origins = {f.name: f.origin for f in fixed_of(results.runs, same[-1])}
    return tuple(
        Fixed(name, value, origins.get(name, Origin.RESUMED)) for name, value in same[-1].decisions if name in names
    )

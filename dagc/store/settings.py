"""Launch settings as decisions of a program: the values that a search does not vary, and their origins;
and the values that tuned times depend on besides sizes and settings.

A tuned block size is a value of `op.bx` as from `-D`: configurations contain it, and everything else reads it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import UsageError
from dagc.choice.types import Case
from dagc.ir.choice import FUSE, PROGRAM, VARIANT, Choice, of_implementations, qualified
from dagc.ir.enums import ElementType
from dagc.ir.plan import is_open
from dagc.ir.program import KernelOp, Program, Value
from dagc.store.results import EARLIER, Results, Run

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned


# Predefined decisions that no kernel depends on.
SEARCHED = (
    "transport", "collectives", "within_host", "staging", "streams", "capture", "graph_edges", "loop", "test_every",
    "transfers", "put_wait", "rank_order",
)  # fmt: skip
OF_SEARCH = (*SEARCHED, "host_memory")  # each search handles them itself
OPTION = "fixed"  # option of a run in a results file: origins of the values that were not searched


class Origin(Enum):
    """Origin of the value of a choice that a search does not vary; its text is printed."""

    DEFAULT = "default"
    DEFINED = "-D"
    TUNED = "tuned file"
    MEASURED = "measured here"
    MODEL = "model"
    RESUMED = "results file"


Origins: TypeAlias = dict[tuple[str, Value], Origin]  # of values of decisions that a search does not vary


def kernels_of(configuration: Choice) -> Choice:
    """The decisions that select kernels: variants, devices, fusion, and those of the whole program. Configurations with
    equal values of these are tuned together."""
    whole = (n for n in configuration if "." not in n or n.startswith(FUSE) or of_implementations(n))
    return Choice.of({name: configuration[name] for name in whole if name not in OF_SEARCH})


def open_settings(program: Program) -> tuple[str, ...]:
    """Names of the decisions that tuning may choose (`inner.bx`), in the order of the program."""
    ops = [op for op in program.ops if isinstance(op, KernelOp) and is_open(program, op)]
    several = {d.name for d in program.decisions if len(d.values) > 1}
    names = (qualified(op.base, tunable) for op in ops for tunable, _ in op.tunables)
    return tuple(dict.fromkeys(n for n in names if n in several))


def without_settings(program: Program, defines: Mapping[str, Any]) -> dict[str, Any]:
    """The values from -D except launch settings: parameters, variants and devices, decisions of the program."""
    settings = {qualified(op.base, name) for op in program.kernel_ops for name, _ in op.tunables}
    return {name: value for name, value in defines.items() if name not in settings}


def not_searched(program: Program, defines: Collection[str], searched: Collection[str], tuned: Origins) -> Origins:
    """The values of a program that a search does not vary. `defines`: names given by -D; `tuned`: those set by
    tuning."""
    values, out = dict(tuned.keys()), Origins()
    for d in program.decisions:
        if d.name in OF_SEARCH or d.name in searched:
            continue
        if d.name in values:
            out[d.name, values[d.name]] = tuned[d.name, values[d.name]]
        elif d.name in defines or len(d.values) > 1:
            out[d.name, d.chosen] = Origin.DEFINED if d.name in defines else Origin.DEFAULT
    return out


def fixed_text(fixed: Origins) -> tuple[str, ...]:
    """A line for each origin: `inner.bx=64 inner.by=2 (measured here)`."""
    by = {origin: Choice(tuple(d for d, its in fixed.items() if its is origin)).text for origin in Origin}
    return tuple(f"{text} ({origin.value})" for origin, text in by.items() if text)


# ---- in results files -----------------------------------------------------------------------


def fixed_to_json(fixed: Origins) -> list[list[Any]]:
    return [[name, value, origin.value] for (name, value), origin in fixed.items()]


def fixed_in(runs: Iterable[Run]) -> Origins:
    """The values that the runs of a results file did not vary; empty for runs of a dagc that did not store them."""
    origins = {origin.value: origin for origin in Origin}
    stored = (one for run in runs for one in run.options.get(OPTION, ()))  # types are checked by the reader
    return {(name, value): origins[origin] for name, value, origin in stored if origin in origins}


def fixed_of(runs: Iterable[Run], configuration: Choice) -> Origins:
    """The part of `fixed_in` that holds for a configuration: decisions that have these values in it."""
    has = {(name, type(value), value) for name, value in configuration.decisions}
    return {(n, v): origin for (n, v), origin in fixed_in(runs).items() if (n, type(v), v) in has}


def settings_before(results: Results, kernels: Choice, names: Collection[str]) -> Origins | None:
    """A results file's values for these decisions, for the same kernels: those of its newest implementation, with their
    origins as stored. None if it has no such implementation."""
    same = [i.configuration for i in results.implementations if kernels_of(i.configuration) == kernels]
    if not same:
        return None
    origins = fixed_of(results.runs, same[-1])
    return {one: origins.get(one, Origin.RESUMED) for one in same[-1].decisions if one[0] in names}


# ---- values that tuned times depend on -------------------------------------------------------------


def fixed_choices(program: Program, names: Collection[str], sizes: Collection[str]) -> dict[str, Any]:
    """What tuned times depend on besides `sizes` and the settings of `names`: parameters, other decisions."""

    def json_value(value: Any) -> Any:  # as JSON returns it
        if isinstance(value, ElementType):
            return value.value
        return value if isinstance(value, bool | int | float | str) else str(value)

    params = {p.name: json_value(p.value) for p in program.params if p.name not in sizes}
    return {
        "params": params,
        "decisions": {d.name: json_value(d.chosen) for d in program.decisions if d.name not in names},
    }


def check_fixed(path: str | Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError if a tuned file is for other parameters or decisions."""
    for kind in ("params", "decisions"):
        for name in sorted({*stored[kind], *now[kind]}):
            plain = 0 if name.startswith(FUSE) else None  # as written, where forms are off or not known yet
            before, here = stored[kind].get(name, EARLIER.get(name, plain)), now[kind].get(name, plain)
            if before != here:
                raise UsageError(
                    f"{path}: tuned with {name}={before}, this is {name}={here}",
                    f"use -D {name}={before}, or tune again into another file",
                )


FACT = "kernels"


def values_fixed(program: Program) -> dict[str, Any]:
    """All parameters and decisions, as stored in the file."""
    return fixed_choices(program, (), ())


def check_resumed(path: str | Path, before: Tuned, program: Program, cases: Iterable[Case]) -> None:
    """Raises UsageError if cells of the file were measured with another value of a decision, or of a parameter that is
    not a size in all of them."""
    if before.facts.kernels is None:
        return
    every = [*cases, *(cell.case for cell, _ in before.samples if cell.site in before_units(before))]
    sizes = set.intersection(*({n for n, _ in p.params} for p in every)) if every else set()
    kept, now = before.facts.kernels, values_fixed(program)
    check_fixed(path, *({**f, "params": {n: v for n, v in f["params"].items() if n not in sizes}} for f in (kept, now)))


def before_units(tuned: Tuned) -> set[str]:
    """The ops of the file's cells, excluding whole programs."""
    return {cell.site for cell, _ in tuned.samples} - {PROGRAM}


def check_compiled(path: str | Path, tuned: Tuned, program: Program) -> None:
    """Raises UsageError if an element type, a program-level decision, or the implementation of an op with a chooser
    differs from when the file was tuned. Decisions that the file itself chooses may differ."""
    if tuned.facts.kernels is None:
        return
    types = {p.name for p in program.params if isinstance(p.value, ElementType)}
    whole = tuned.program_chooser
    chosen = {*SEARCHED, *(whole.names if whole is not None else ())}
    variants = {qualified(op, VARIANT) for op, chooser in tuned.kernel_choosers.items() if not chooser.variants}

    def seen(fixed: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "params": {n: v for n, v in fixed["params"].items() if n in types},
            "decisions": {
                n: v for n, v in fixed["decisions"].items() if n in variants or ("." not in n and n not in chosen)
            },
        }

    check_fixed(path, seen(tuned.facts.kernels), seen(values_fixed(program)))

"""The program that chooses among several plans of one `.dag` when it starts, and becomes the chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagc.emit.cxx import Names, cxx_type, mangle
from dagc.emit.render import render, tidy
from dagc.ir.launching import FAR
from dagc.ir.program import Program, Scalar

FUNCTION = "dagc_choose_plan"  # the chooser's
OUTSIDE = "dagc_outside_plan"  # how far the sizes lie outside of the measured ones
_OURS = """argc argv check_only chosen dagc data device_pointers here json options plans program read_size refuse
    repeats seconds hang verbose beyond words"""


@dataclass(frozen=True, slots=True)
class SizeView:
    """A scalar of rank 0: its variable, C++ and NumPy type, and its file below the data."""

    variable: str
    type: str
    npy: str
    file: str
    comment: str


def emit_launcher(
    program: Program,
    data: Sequence[str],
    labels: Sequence[str],
    names: Sequence[str],
    chooser: str,
    why: str,
    measured: str = "",
) -> dict[str, str]:
    """File name -> text: `bench.cpp`, `chooser.h`, `CMakeLists.txt`.

    `data`: the whole-number scalars that the chooser asks for, in order. `labels`: the plans' directories below
    `plans`, by the chooser's answer. `chooser`: C text with `int dagc_choose_plan(int64_t ...)`, and also with
    `double dagc_outside_plan(int64_t ...)` where `measured` says in words which sizes were measured. `names`: the
    decisions that plans differ in; `why`: how it chooses, in a few words.
    """
    scalars = {s.name: s for s in program.scalars}
    cxx_names = Names(_OURS.split())
    common = {"program": program.name, "path": program.path, "labels": tuple(labels)}
    choice = {"names": tuple(names), "why": why, "measured": measured, "far": FAR}
    sizes = tuple(_size(scalars[name], cxx_names) for name in data)
    return {
        "bench.cpp": tidy(render("plans/bench.cpp.j2", sizes=sizes, **choice, **common)),
        "chooser.h": f"/* Which plan for which sizes. Written by dagc tune. */\n#pragma once\n{chooser}",
        "CMakeLists.txt": tidy(render("plans/CMakeLists.txt.j2", **common)),
    }


def _size(scalar: Scalar, cxx_names: Names) -> SizeView:
    kind, bits = scalar.type.value[0], int(scalar.type.value[1:])
    npy = f"{'|' if bits == 8 else '<'}{kind}{bits // 8}"
    return SizeView(
        cxx_names.new(scalar.name), cxx_type(scalar.type), npy, f"/rank-0000/{mangle(scalar.name)}.npy", scalar.name
    )

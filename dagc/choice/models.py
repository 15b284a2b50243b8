"""Models that rank settings: which rational program a method has, and the values of everything but sizes and block.

volume     data volumes from address expressions (dagc.perf.volume), constants of the GPU at hand
rational   MWP-CWP (dagc.perf.mwp_cwp): counts from the kernel's text, or fitted to hardware counters
"""

from __future__ import annotations

from collections.abc import Mapping

from dagc.choice.legal import op_of
from dagc.choice.types import Unit
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.cuda.text import NotUnderstood
from dagc.ir.program import Graph
from dagc.perf.counted import Fitted
from dagc.perf.geometry import read_accesses
from dagc.perf.hardware import Hardware
from dagc.perf.mwp_cwp import machine_values, op_program
from dagc.perf.mwp_cwp import why as mwp_cwp_why
from dagc.perf.program import RationalProgram, specialise
from dagc.perf.volume import calibration_of, explain_terms, volume_program

MODELS = ("volume", "rational")


def whole_model(
    graph: Graph,
    unit: Unit,
    method: str,
    fits: Mapping[str, Fitted] | None = None,
    resources: Resources = ASSUMED,
) -> RationalProgram:
    """A launch's time in cycles, in sizes, block, registers and the GPU. `fits`: counts for `rational`; `taken`: what
    the compiled kernel takes, of which registers stay open.

    Raises NotUnderstood where counts are to be read from a kernel's text that cannot be read.
    """
    op = op_of(graph, unit)
    if method == "volume":
        return volume_program(graph.program, op, resources=resources)
    if fits:
        from dagc.perf.counted import counted_program  # loads numpy, sympy

        return counted_program(graph.program, op, fits, _barriers(graph, unit), shared=resources.shared)
    return op_program(graph.program, op, resources=resources)


def _barriers(graph: Graph, unit: Unit) -> int:
    """Of the kernel's text; 0 where it cannot be read."""
    try:
        return len(read_accesses(graph.program, op_of(graph, unit)).barriers)
    except NotUnderstood:
        return 0


def doubts(graph: Graph, unit: Unit) -> tuple[str, ...]:
    """What a model of the kernel's text takes for granted; without a model of it, nothing."""
    try:
        return read_accesses(graph.program, op_of(graph, unit)).notes
    except NotUnderstood:
        return ()


def ranking_model(
    graph: Graph,
    unit: Unit,
    method: str,
    hardware: Hardware,
    resources: Resources,
    calibration: Mapping[str, float] | None = None,
    fits: Mapping[str, Fitted] | None = None,
) -> RationalProgram:
    """`whole_model` with the GPU put in: what is left is sizes and the block. `calibration` overrules constants."""
    whole = whole_model(graph, unit, method, fits, resources)
    values: dict[str, int | float] = {"registers": resources.registers}
    values |= machine_values(hardware) if method == "rational" else hardware.parameters() | calibration_of(hardware)
    values |= dict(calibration or {})
    wanted = {p.name for p in whole.parameters}
    return specialise(whole, {n: v for n, v in values.items() if n in wanted})


def why(values: Mapping[str, float]) -> str:
    """What limits a launch, from the values of a model's steps."""
    return mwp_cwp_why(values) if "mwp" in values else explain_terms(values)

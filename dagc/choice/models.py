"""Models that rank settings: the rational program of each method, and the values of everything but sizes and block.

volume     data volumes from address expressions (dagc.perf.volume), constants of the target GPU
rational   MWP-CWP (dagc.perf.mwp_cwp): counts from the kernel's text, or fitted to hardware counters
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of the model of a kernel besides its text. `method`: one of MODELS, or a search strategy (which uses the
    volume model with its measurements); any other method has no model. `resources`: of the compiled kernel. `fits`:
    counts for `rational`, fitted to hardware counters."""

    method: str = "volume"
    resources: Resources = ASSUMED
    fits: Mapping[str, Fitted] | None = None


def whole_model(graph: Graph, unit: Unit, inputs: ModelInputs) -> RationalProgram:
    """A launch's time in cycles, in sizes, block, registers (which stay open) and the GPU.

    Raises NotUnderstood if counts are needed from a kernel's text that cannot be read.
    """
    op = op_of(graph, unit)
    if inputs.method == "volume":
        return volume_program(graph.program, op, resources=inputs.resources)
    if inputs.fits:
        from dagc.perf.counted import counted_program  # loads numpy, sympy

        return counted_program(graph.program, op, inputs.fits, _barriers(graph, unit), shared=inputs.resources.shared)
    return op_program(graph.program, op, resources=inputs.resources)


def _barriers(graph: Graph, unit: Unit) -> int:
    """The number of barriers in the kernel's text; 0 if it cannot be read."""
    try:
        return len(read_accesses(graph.program, op_of(graph, unit)).barriers)
    except NotUnderstood:
        return 0


def doubts(graph: Graph, unit: Unit) -> tuple[str, ...]:
    """The assumptions of a model of the kernel's text; empty without such a model."""
    try:
        return read_accesses(graph.program, op_of(graph, unit)).notes
    except NotUnderstood:
        return ()


def guessed_iterations(graph: Graph, unit: Unit) -> int:
    """Whether a model of the kernel's text guesses a number of iterations: 1 where a bound is loaded, 2 where data end
    a loop in another way, else 0."""
    try:
        return read_accesses(graph.program, op_of(graph, unit)).guessed
    except NotUnderstood:
        return 0


def ranking_model(graph: Graph, unit: Unit, inputs: ModelInputs, hardware: Hardware) -> RationalProgram:
    """`whole_model` with the constants of the GPU; sizes and the block remain."""
    whole = whole_model(graph, unit, inputs)
    values: dict[str, int | float] = {"registers": inputs.resources.registers}
    rational = inputs.method == "rational"
    values |= machine_values(hardware) if rational else hardware.parameters() | calibration_of(hardware)
    wanted = {p.name for p in whole.parameters}
    return specialise(whole, {n: v for n, v in values.items() if n in wanted})


def why(values: Mapping[str, float]) -> str:
    """What limits a launch, by the values of a model's steps."""
    return mwp_cwp_why(values) if "mwp" in values else explain_terms(values)

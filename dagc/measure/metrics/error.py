"""The error of the results: max|result - reference| / max|reference| of a verified array, the largest of all arrays and
ranks, after one run from the data of the set-up. It is at least the precision of the array's elements (1.2e-7 for f32):
results that differ only by rounding are equal, and ratios of errors are meaningful.

`verify` gives the largest permitted error; results with a larger one are wrong, whatever the objective.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagc.ir.program import Program
    from dagc.measure.runner import Runner

SUMMARY = "largest difference of a result from its reference, over the largest reference"
UNIT = ""
SECONDS = 0.0
combine = max
LEAST = sys.float_info.epsilon  # of arrays of whole numbers: objectives are above 0


def why_not(target: str, program: Program) -> tuple[str, str] | None:
    if not program.verifies:
        return "the program has no `verify`", "declare the reference: verify y ~ expected() rtol 1e-3"
    return None


def of_results(runner: Runner) -> dict[str, float]:
    return {"results": max(runner.error(), LEAST)}

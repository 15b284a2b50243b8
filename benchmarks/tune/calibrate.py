"""Fits the constants of the volume model (dagc.perf.volume.CALIBRATION) to an oracle, and prints them.

    python -m benchmarks.tune.calibrate benchmarks/results/2026-11-21-h200-tune/oracle.csv.xz

Beside them the bounds that the fit searches, which constants in use lie outside of them or at them, and what each set
of constants scores. The fit is that of benchmarks/tune/kernel_tuner.py, which also repeats it with each family of
kernels left out.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tune.kernel_tuner import GUESSES, Case, Model, read_cases
from dagc.perf.volume import CALIBRATION

MOST_OF_ONE = 6  # legal blocks of one dimension


def outside(name: str) -> str:
    """Where the constant in use lies, beside the bounds that are searched; "" well inside."""
    value, (_, low, high) = CALIBRATION[name][0], GUESSES[name]
    if not low <= value <= high:
        return "outside the bounds"
    return "at a bound" if min(value / low, high / value) < 1.01 else ""


def clipped() -> dict[str, float]:
    """The constants in use, moved to the next bound where they lie outside."""
    return {n: min(max(CALIBRATION[n][0], low), high) for n, (_, low, high) in GUESSES.items()}


def score(cases: list[Case], model: Model, constants: Mapping[str, float], two: bool) -> str:
    """t_chosen / t_best of the first choice, geometric mean and worst, on blocks of two dimensions or of one."""
    places = {i for i, c in enumerate(cases) if (len(c.times) > MOST_OF_ONE) is two}
    found = [cases[i].regret(order[:1]) for i, order in model.rank(constants, places).items()]
    return f"{statistics.geometric_mean(found):.4f} / {max(found):.2f}" if found else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    args = parser.parse_args()
    cases = read_cases(args.oracle)
    model = Model(cases)
    fitted = model.fit(set(range(len(cases))))
    print("| constant | fitted | in use | searched from | to | |\n|---|---|---|---|---|---|")
    for name, value in fitted.items():
        _, low, high = GUESSES[name]
        print(f"| {name} | {value:.6g} | {CALIBRATION[name][0]:.6g} | {low:.3g} | {high:.3g} | {outside(name)} |")
    print("\n| t_chosen / t_best, worst | 2-D blocks | 1-D blocks |\n|---|---|---|")
    in_use = {name: value for name, (value, _, _) in CALIBRATION.items()}
    rows = {"in use": in_use, "in use, but within the bounds": clipped(), "fitted within the bounds": fitted}
    for name, constants in rows.items():
        print(f"| {name} | {score(cases, model, constants, True)} | {score(cases, model, constants, False)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Fits the constants of the volume model (dagc.rational.volume.CALIBRATION) to an oracle, and prints them.

    python -m benchmarks.tune.calibrate benchmarks/results/2026-11-21-h200-tune/oracle.csv.xz

The fit is that of benchmarks/tune/kernel_tuner.py, which also repeats it with each family of kernels left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.tune.kernel_tuner import Model, read_cases
from dagc.rational.volume import CALIBRATION


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    args = parser.parse_args()
    cases = read_cases(args.oracle)
    fitted = Model(cases).fit(set(range(len(cases))))
    print(f"{'constant':12} {'fitted':>12} {'in use':>12}")
    for name, value in fitted.items():
        print(f"{name:12} {value:12.6g} {CALIBRATION[name][0]:12.6g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

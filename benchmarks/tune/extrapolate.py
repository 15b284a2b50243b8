"""The volume model beyond the sizes that its constants were fitted to, and kernel by kernel.

    python -m benchmarks.tune.extrapolate benchmarks/results/2026-11-21-h200-tune/oracle.csv.xz

Constants are fitted to the smaller sizes of each kernel (those whose largest dimension is at most a quarter of the
kernel's largest square), then every size is ranked: inside that range, between, and 4 times outside it or more.
t_chosen / t_best, geometric means. Below: each kernel over all its sizes with the constants in use, worst first.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.tune.kernel_tuner import Case, Model, read_cases
from dagc.perf.volume import CALIBRATION


def largest(case: Case) -> int:
    """The largest dimension; time steps are none."""
    return max(v for n, v in case.case.params if n != "TMAX")


def is_square(case: Case) -> bool:
    return len({v for n, v in case.case.params if n != "TMAX"}) == 1


def mean(values: Iterable[float]) -> str:
    found = list(values)
    return f"{math.exp(float(np.mean(np.log(found)))):.3f} ({max(found):.2f}, {len(found)})" if found else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    args = parser.parse_args()
    cases = read_cases(args.oracle)
    model = Model(cases)
    squares: dict[tuple[str, str], int] = defaultdict(int)
    for case in cases:
        if is_square(case):
            squares[case.program, case.op] = max(squares[case.program, case.op], largest(case))
    bound = [squares[c.program, c.op] / 4 for c in cases]
    trained = {i for i, c in enumerate(cases) if largest(c) <= bound[i]}
    ranks = model.rank(model.fit(trained), set(range(len(cases))))
    regret = {i: c.regret(ranks[i][:1]) for i, c in enumerate(cases)}
    default = {i: c.regret([c.default]) for i, c in enumerate(cases)}
    parts = {
        "inside (fitted)": [i for i in regret if i in trained],
        "up to 4 times outside": [i for i, c in enumerate(cases) if bound[i] < largest(c) < 4 * bound[i]],
        "4 times outside or more": [i for i, c in enumerate(cases) if largest(c) >= 4 * bound[i]],
    }
    print(f"Constants fitted to {len(trained)} of {len(cases)} pairs of kernel and size.\n")
    print("| sizes | 2-D | 1-D | all | default, all |\n|---|---|---|---|---|")
    for name, places in parts.items():
        two = [i for i in places if len(cases[i].times) > 6]
        one = [i for i in places if len(cases[i].times) <= 6]
        cells = [mean(regret[i] for i in p) for p in (two, one, places)] + [mean(default[i] for i in places)]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\ngeometric mean (worst, pairs). The default is 32 x 8, or 256.\n")
    in_use = model.rank({n: v for n, (v, _, _) in CALIBRATION.items()}, set(range(len(cases))))
    rows = []
    for (program, op), places in model.groups.items():
        chosen = [cases[i].regret(in_use[i][:1]) for i in places]
        usual = [default[i] for i in places]
        means = [math.exp(float(np.mean(np.log(v)))) for v in (chosen, usual)]
        rows.append((means[0], means[1], f"{program} {op}", max(chosen)))
    print("| kernel, over its sizes | chosen | worst size | default |\n|---|---|---|---|")
    for chosen_mean, usual_mean, name, worst in sorted(rows, reverse=True):
        print(f"| {name} | {chosen_mean:.3f} | {worst:.2f} | {usual_mean:.3f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

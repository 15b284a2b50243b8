"""The laboratory's strategies on the launch settings of an oracle, beside chance and the model's ranking.

    python -m benchmarks.tune.strategies benchmarks/results/DATE-GPU-tune/oracle.csv.xz

Prints a table and writes strategies.md beside the oracle. Nothing is launched: a measurement looks its time up. What a
measurement costs, and which blocks are legal, is the same for all rows. The model's constants are fitted without the
family of the kernel at hand, so no row has seen the kernel that it is judged on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tune.kernel_tuner import FAMILIES, Case, Model, read_cases
from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find

BUDGETS = (3, 5, 10, 20)


def priors_of(cases: Sequence[Case]) -> dict[int, np.ndarray]:
    """Case -> predicted times of its blocks, by constants that were fitted without its family."""
    model, everything = Model(cases), set(range(len(cases)))
    out: dict[int, np.ndarray] = {}
    for members in FAMILIES.values():
        own = {i for i, c in enumerate(cases) if c.program in members}
        if own:
            out |= model.predict(model.fit(everything - own), own)
    return out


def measured(name: str, case: Case, prior: Sequence[float], seed: int) -> list[Choice]:
    """The blocks in the order in which a strategy measures them, the default first."""
    blocks = list(case.times)
    if name == "ranking":
        ranked = [blocks[int(i)] for i in np.argsort(prior, kind="stable")]
        return [case.default, *(b for b in ranked if b != case.default)][: max(BUDGETS)]
    strategy = find(name.split(",", maxsplit=1)[0])(LaunchSettings(blocks, prior if "prior" in name else ()), seed)
    out = [case.default]
    strategy.observe(case.default, Sample(case.times[case.default]))
    while len(out) < min(max(BUDGETS), len(blocks)):
        candidate = strategy.propose()
        out.append(candidate)
        strategy.observe(candidate, Sample(case.times[candidate]))
    return out


def row(name: str, cases: Sequence[Case], priors: Mapping[int, np.ndarray], seeds: int) -> tuple[list[str], float]:
    """For each budget the geometric mean of the regret, and the worst kernel and size in brackets."""
    began, steps = time.perf_counter(), 0
    regrets: dict[int, list[list[float]]] = {budget: [] for budget in BUDGETS}
    for i, case in enumerate(cases):
        orders = [
            measured(name, case, [float(v) for v in priors[i]], 1000 * i + s)
            for s in range(1 if name == "ranking" else seeds)
        ]
        steps += sum(map(len, orders))
        for budget in BUDGETS:
            regrets[budget].append([case.regret(order[:budget]) for order in orders])
    cells = []
    for budget in BUDGETS:
        means = [math.exp(np.mean(np.log(of_case))) for of_case in regrets[budget]]
        cells.append(f"{math.exp(np.mean(np.log(means))):.4f} ({max(map(max, regrets[budget])):.2f})")
    return cells, (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    cases = [c for c in read_cases(args.oracle) if c.dimensions == 2]
    priors = priors_of(cases)
    lines = [
        f"{len(cases)} kernels and sizes with two-dimensional blocks, {args.seeds} seeds. Time of the best block",
        "that was measured over that of the best of all: geometric mean (worst). The default is measured first.",
        "",
        f"| strategy | {' | '.join(f'{b} measured' for b in BUDGETS)} | ms a step |",
        f"|---|{'---|' * len(BUDGETS)}---|",
    ]
    for name in ("random", "mcts", "mcts-min", "model", "model, prior", "ranking"):
        cells, seconds = row(name, cases, priors, args.seeds)
        lines.append(f"| {name} | {' | '.join(cells)} | {1e3 * seconds:.2f} |")
        print(lines[-1], flush=True)
    (args.oracle.parent / "strategies.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Learned selectors on an oracle, one size left out at a time: t_chosen / t_best beside the model and the default.

    python -m benchmarks.tune.leave_one_out ORACLE.csv.xz [--methods knn,tree] [--markdown FILE]

For each kernel and size, everything else of that kernel is what was measured: the tolerance (noise floor), the labels
and the selector come from the other sizes, and what is chosen at the size left out is set against the best there. Sizes
are those that the kernel's `select` names. "nearest" takes the best of the nearest measured size, without a rule. The
model may overrule where it says that its own choice gains more than 5 %, as with `--method exhaustive`.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.tune.oracle_csv import OracleCell, read_oracle
from benchmarks.tune.table import Kernel, best, kernels, scalars
from dagc import api
from dagc.choice.choose import MARGIN
from dagc.choice.legal import open_sites
from dagc.choice.methods import LEARNED, fit
from dagc.choice.types import Case
from dagc.study.choosers import select_of
from dagc.study.train import TrainingTable, observed_labels, tolerance_of, train

ROOT = Path(__file__).parents[2]
OVERRULED, OBSERVED = ", or the model where it gains 5 %", ", the fastest as labels"
METHODS = ("forest", "knn", "svm", "tree")


def row_names(methods: Sequence[str]) -> tuple[str, ...]:
    return (
        "default block", "the model, nothing measured", "nearest", *methods, *(m + OBSERVED for m in methods),
        "nearest" + OVERRULED, *(m + OVERRULED for m in methods),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel at one size left out: t_chosen / t_best of each way to choose, by name."""

    two: bool
    skewed: bool
    ratios: dict[str, float]


def data_of(kernel: Kernel) -> tuple[str, ...]:
    """The sizes that the kernel's `select` names."""
    graph = api.load_graph(ROOT / "samples" / "polybench" / f"{kernel.program}.dag")
    (site,) = open_sites(graph, [kernel.op])
    return select_of(graph, site)[1]


def rows_of(kernel: Kernel, cells: list[OracleCell], methods: Sequence[str]) -> list[Row]:
    """A row for each size of the kernel. `cells` are the kernel's."""
    data, choices, out = data_of(kernel), kernel.chooser.choices, []
    index = {s: i for i, s in enumerate(choices)}

    def sizes_of(case: Case) -> tuple[int, ...]:
        return tuple(scalars(case)[n] for n in data)

    for here, at in kernel.times.items():
        seen = [p for p in kernel.times if p != here]
        labelled = [{index[s]: t for s, t in kernel.times[p].items()} for p in seen]
        noise = [[(c.low, c.seconds, c.high) for c in cells if c.case == p] for p in seen]
        known = TrainingTable.of(data, [sizes_of(p) for p in seen], labelled, noise).merged
        nearest = kernel.remade([(scalars(p), best(kernel.times[p], kernel.times[p])) for p in seen])
        chosen = {
            "default block": 0,
            "the model, nothing measured": kernel.chooser.choose(scalars(here)),
            "nearest": replace(nearest, model=None).choose(scalars(here)),
            "nearest" + OVERRULED: nearest.choose(scalars(here)),
        }
        for method in methods:
            found = train(method, known).choose(sizes_of(here))
            chosen[method] = found
            chosen[method + OVERRULED] = _overruled(kernel, here, found)
            chosen[method + OBSERVED] = fit(method, data, known.features, observed_labels(known.times)).choose(
                sizes_of(here)
            )
        least = min(at.values())
        ratios = {name: at[choices[chosen[name]]] / least for name in row_names(methods)}
        out.append(Row(kernel.two, len({v for n, v in here.params if n != "TMAX"}) > 1, ratios))
    return out


def _overruled(kernel: Kernel, here: Case, chosen: int) -> int:
    """The model's choice where it says that this gains more than the margin of choosers."""
    times = kernel.chooser.times(scalars(here))
    fastest = min(range(len(times)), key=lambda i: times[i])
    return chosen if times[chosen] <= (1 + MARGIN) * times[fastest] else fastest


def mean(values: list[float]) -> str:
    return f"{math.exp(statistics.fmean(math.log(v) for v in values)):.4f}"


def summary(rows: list[Row]) -> list[str]:
    lines = [
        "| | 2-D blocks | worst | 1-D blocks | worst | all | skewed | within 2 % | over 2 % slower than the default |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in rows[0].ratios:
        wide, narrow = [r.ratios[name] for r in rows if r.two], [r.ratios[name] for r in rows if not r.two]
        both = wide + narrow
        slower = sum(r.ratios[name] > 1.02 * r.ratios["default block"] for r in rows)
        lines.append(
            f"| {name} | {mean(wide)} | {max(wide):.2f} | {mean(narrow)} | {max(narrow):.2f} | {mean(both)} |"
            f" {mean([r.ratios[name] for r in rows if r.skewed])} | {sum(v <= 1.02 for v in both)} of {len(both)} |"
            f" {slower} of {len(both)} |"
        )
    return lines


def by_kernel(found: list[tuple[Kernel, list[Row]]]) -> list[str]:
    names = [name for name in found[0][1][0].ratios if not name.endswith((OVERRULED, OBSERVED))]
    lines = ["| kernel | sizes | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    for kernel, rows in found:
        cells = [f"{mean([r.ratios[name] for r in rows])}" for name in names]
        lines.append(f"| {kernel.program} {kernel.op} | {len(rows)} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--markdown", type=Path, help="write everything; without it only the summary is printed")
    parser.add_argument("--methods", default=",".join(METHODS), help="of: " + ", ".join(LEARNED))
    args = parser.parse_args()
    cells = [c for c in read_oracle(args.oracle) if c.flush and not c.failure]
    found = []
    for kernel in kernels(args.oracle):
        own = [c for c in cells if (c.program, c.op) == (kernel.program, kernel.op)]
        found.append((kernel, rows_of(kernel, own, args.methods.split(","))))
    lines = summary([row for _, rows in found for row in rows])
    noise = tolerance_of((c.low, c.seconds, c.high) for c in cells)
    print("\n".join(lines))
    if args.markdown is not None:
        head = [
            "# Learned selectors on an H200, one size left out at a time",
            "",
            f"`python -m benchmarks.tune.leave_one_out {args.oracle}`.",
            "",
            "t_chosen / t_best at the size left out, geometric means; a selector is trained on the kernel's other",
            f"sizes, where everything was measured. The tolerance of labels, over all cells: {noise:.2%}.",
            "`nearest`: the best of the nearest measured size. `skewed`: shapes other than squares and cubes.",
            "",
        ]
        args.markdown.write_text("\n".join([*head, *lines, "", *by_kernel(found)]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The seed's table, redone on an oracle: default, chosen, best and worst of every kernel at every size, and the means.

    python -m benchmarks.tune.table ORACLE.csv.xz [--nvcc] [--method rational] [--markdown FILE]

"chosen" is what `dagc tune` chooses without measuring anything, and without nvcc unless `--nvcc` says so. error % =
(chosen - best) / (worst - best), as KLARAPTOR has it. Below: the same with the model's best few measured at one size
(the middle one) and used at all others, or at each size, beside the baseline: everything measured at one size, and that
block used at all others.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tune.oracle_csv import OracleCell, read_oracle
from dagc import api, api_tune_cells
from dagc.api_tune_build import resources_of
from dagc.kernel_resources import ASSUMED, Resources
from dagc.rational.hardware import load_hardware
from dagc.tune.choose import UnitChooser, unit_chooser, worth_measuring
from dagc.tune.legal import legal_settings, units
from dagc.tune.models import MODELS
from dagc.tune.types import Point, Settings, settings_text

ROOT = Path(__file__).parents[2]
ARCH = "sm_90"
LIMITS = {"max_threads_per_block": 1024}
NORMAL, DRAWS = 1.96, 50  # half of a 95 % interval in standard deviations; repetitions
FLAT = 0.05  # where the slowest block is nearer to the fastest, any choice has an error of 0 to 100 %


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the oracle. `times`: size -> setting -> seconds."""

    program: str
    op: str
    times: dict[Point, dict[Settings, float]]
    chooser: UnitChooser
    remade: Callable[[list[tuple[dict[str, int], Settings]]], UnitChooser]

    @property
    def two(self) -> bool:
        return len(self.chooser.settings[0]) == 2

    @property
    def default(self) -> Settings:
        return self.chooser.settings[0]

    def ranked(self, point: Point) -> list[Settings]:
        """Those that the oracle has, the model's fastest first."""
        order = [self.chooser.settings[i] for i in self.chooser.ranked(scalars(point))]
        return [s for s in order if s in self.times[point]]


def scalars(point: Point) -> dict[str, int]:
    return {name.lower(): value for name, value in point.params}


def compiled(programs: Iterable[str]) -> dict[tuple[str, str], Resources]:
    """What nvcc says of the kernels: (program, op) -> registers, shared memory, instructions."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in programs:
            path = ROOT / "samples" / "polybench" / f"{name}.dag"
            found = resources_of(api_tune_cells.plan(path, target="cuda", arch=ARCH), Path(folder) / name)
            out |= {(name, op): taken for op, taken in found.items()}
    return out


def kernels(oracle: Path, nvcc: bool = False, method: str = "volume") -> list[Kernel]:
    """Flushed cells only."""
    found: dict[tuple[str, str], dict[Point, dict[Settings, float]]] = {}
    for cell in read_oracle(oracle):
        if cell.flush and not cell.failure:
            found.setdefault((cell.program, cell.op), {}).setdefault(cell.point, {})[cell.settings] = cell.seconds
    hardware, out = load_hardware("h200"), []
    known = compiled(dict.fromkeys(program for program, _ in found)) if nvcc else {}
    for (program, op), times in found.items():
        graph = api.load_graph(ROOT / "samples" / "polybench" / f"{program}.dag")
        (unit,) = units(graph, [op])
        settings = legal_settings(graph, unit, LIMITS)

        taken = known.get((program, op), ASSUMED)

        def remade(anchors, graph=graph, unit=unit, settings=settings, taken=taken):  # type: ignore[no-untyped-def]
            return unit_chooser(graph, unit, settings, hardware, taken=taken, anchors=anchors, method=method)

        out.append(Kernel(program, op, times, remade([]), remade))
    return out


def middle(kernel: Kernel) -> Point:
    """The square size next to 1024 that every kernel has: where one size is measured."""

    def distance(point: Point) -> float:
        values = [v for n, v in point.params if n != "TMAX"]
        return sum(abs(math.log(v / 1024)) for v in values) + (0 if len(set(values)) == 1 else 100)

    return min(kernel.times, key=distance)


def best(times: dict[Settings, float], among: Iterable[Settings]) -> Settings:
    return min((s for s in among if s in times), key=lambda s: times[s])


def few(kernel: Kernel, point: Point, top: int) -> list[Settings]:
    """What `dagc tune --top` measures: the model's first, at most half of the legal ones, and the default."""
    ranked = kernel.ranked(point)
    return [*ranked[: worth_measuring(top, len(kernel.times[point]))], kernel.default]


Choose = Callable[[Kernel, Point], Settings]


def adapted(top: int) -> Choose:
    """The best of the model's first `top` at the middle size, kept unless the model objects."""
    made: dict[tuple[str, str], UnitChooser] = {}

    def choose(kernel: Kernel, point: Point) -> Settings:
        key = kernel.program, kernel.op
        if key not in made:
            where = middle(kernel)
            kept = best(kernel.times[where], few(kernel, where, top))
            made[key] = kernel.remade([(scalars(where), kept)])
        return made[key].settings[made[key].choose(scalars(point))]

    return choose


STRATEGIES: dict[str, tuple[Choose, bool]] = {  # name -> how it chooses; leave out the size that it measured
    "default block": (lambda k, p: k.default, False),
    "the model, nothing measured": (lambda k, p: k.chooser.settings[k.chooser.choose(scalars(p))], False),
    "model's top 3 measured at each size": (lambda k, p: best(k.times[p], few(k, p, 3)), False),
    "model's top 5 measured at each size": (lambda k, p: best(k.times[p], few(k, p, 5)), False),
    "model's top 5 measured at one size, kept or overruled by the model": (adapted(5), True),
    "model's top 5 measured at one size, reused": (
        lambda k, p: best(k.times[middle(k)], few(k, middle(k), 5)), True,
    ),
    "all measured at one size, reused (baseline)": (lambda k, p: best(k.times[middle(k)], k.times[middle(k)]), True),
}  # fmt: skip


def square(point: Point) -> bool:
    return len({v for n, v in point.params if n != "TMAX"}) == 1


def summary(found: list[Kernel]) -> list[str]:
    lines = [
        "| | 2-D blocks | worst | 1-D blocks | worst | all | skewed shapes | over 2 % slower than the default |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (choose, leave_out) in STRATEGIES.items():
        rows = []
        for kernel in found:
            for point, times in kernel.times.items():
                if leave_out and point == middle(kernel):
                    continue
                time = times.get(choose(kernel, point), math.inf)
                rows.append((kernel.two, square(point), time / min(times.values()), time / times[kernel.default]))

        def mean(keep: list[float]) -> str:
            return f"{math.exp(statistics.fmean(math.log(v) for v in keep)):.4f}" if keep else ""

        wide, narrow = [r for two, _, r, _ in rows if two], [r for two, _, r, _ in rows if not two]
        lines.append(
            f"| {name} | {mean(wide)} | {max(wide):.2f} | {mean(narrow)} | {max(narrow):.2f} |"
            f" {mean(wide + narrow)} | {mean([r for _, sq, r, _ in rows if not sq])} |"
            f" {sum(d > 1.02 for *_, d in rows)} of {len(rows)} |"
        )
    return lines


def table(found: list[Kernel]) -> list[str]:
    lines = [
        "| kernel | size | default | us | chosen | us | best | us | worst us | error % | chosen / best |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    errors, telling = [], []
    for kernel in found:
        for point, times in sorted(kernel.times.items()):
            chosen = kernel.chooser.settings[kernel.chooser.choose(scalars(point))]
            first, low, high = best(times, times), min(times.values()), max(times.values())
            errors.append(100 * (times[chosen] - low) / (high - low))
            if high >= (1 + FLAT) * low:
                telling.append(errors[-1])
            cells = [f"{settings_text(s)} | {times[s] * 1e6:.4g}" for s in (kernel.default, chosen, first)]
            lines.append(
                f"| {kernel.program} {kernel.op} | {point.text} | {' | '.join(cells)} | {high * 1e6:.4g} |"
                f" {errors[-1]:.2f} | {times[chosen] / low:.3f} |"
            )
    middle_, mean_ = statistics.median(errors), statistics.fmean(errors)
    head = f"Error %: mean {mean_:.2f}, median {middle_:.2f}, largest {max(errors):.1f}."
    means = f"mean {statistics.fmean(telling):.2f}, median {statistics.median(telling):.2f}"
    where = f"Of the {len(telling)} pairs whose slowest block is {FLAT:.0%} or more behind the fastest: {means}."
    return [head, where, "", *lines]


def floor(oracle: Path) -> str:
    """The error % of one who measures every block at the very size, as precisely as the oracle was measured, and is
    judged by a second such measurement: what is below it is noise. Medians are drawn from their 95 % intervals."""
    cells: dict[tuple[str, str, Point], list[OracleCell]] = {}
    for cell in read_oracle(oracle):
        if cell.flush and not cell.failure:
            cells.setdefault((cell.program, cell.op, cell.point), []).append(cell)
    draw = random.Random(0)

    def measured(here: list[OracleCell]) -> list[float]:
        return [draw.gauss(c.seconds, (c.high - c.low) / 2 / NORMAL) for c in here]

    def error(here: list[OracleCell]) -> float:
        first, second = measured(here), measured(here)
        chosen = second[first.index(min(first))]
        return 100 * (chosen - min(second)) / (max(second) - min(second))

    flat, telling = [], []
    for here in cells.values():
        times = [c.seconds for c in here]
        kind = telling if max(times) >= (1 + FLAT) * min(times) else flat
        kind.append(statistics.fmean(error(here) for _ in range(DRAWS)))
    means = [statistics.fmean(errors) if errors else 0.0 for errors in ([*flat, *telling], telling)]
    return f"Measuring all at every size, judged by a second measurement: mean {means[0]:.2f}, of those {means[1]:.2f}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--nvcc", action="store_true", help="models know what nvcc says of the kernels, as for a user")
    parser.add_argument("--method", choices=MODELS, default="volume", help="which model (default: volume)")
    parser.add_argument("--markdown", type=Path, help="write everything; without it only the summary is printed")
    args = parser.parse_args()
    found = kernels(args.oracle, args.nvcc, args.method)
    lines = summary(found)
    print("\n".join(lines))
    if args.markdown is not None:
        title = [
            "# Launch configurations of PolyBench on an H200",
            "",
            f"`python -m benchmarks.tune.table {args.oracle}`.",
            "",
        ]
        intro = ["t_chosen / t_best, geometric means. docs/tune.md says what the rows are.", ""]
        head, where, *rows = table(found)
        args.markdown.write_text("\n".join([*title, *intro, *lines, "", head, where, floor(args.oracle), *rows]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

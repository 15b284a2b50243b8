"""KLARAPTOR's table, redone on an oracle: default, chosen, best and worst of every kernel at every size, and the means.

    python -m benchmarks.tune.table ORACLE.csv.xz [--nvcc] [--method rational] [--markdown FILE]

"chosen" is what `dagc tune` chooses without measuring anything, and without nvcc unless `--nvcc` says so. error % =
(chosen - best) / (worst - best), as KLARAPTOR has it. Below: the same with the model's best few measured at one size
(the middle one) and used at all others, or at each size, beside the baselines: everything measured at one size, and
that block used at all others; chance with the same number of measurements (exact expectations); one block for all. Then
which one size is measured, and error % beside KLARAPTOR's own table (`klaraptor.csv`).
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

from benchmarks.tune.baselines import Errors, best_constant, best_of_random, error_percent, published
from benchmarks.tune.oracle_csv import OracleCell, of_any, of_op, read_oracle
from dagc import api
from dagc.choice.choose import Chooser, worth_measuring
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.choice.types import MODELS, Case
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.study.build import resources_of
from dagc.study.task import tuning_task

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
    times: dict[Case, dict[Choice, float]]
    chooser: Chooser
    remade: Callable[[list[tuple[dict[str, int], Choice]]], Chooser]

    @property
    def two(self) -> bool:
        return len(self.chooser.choices[0]) == 2

    @property
    def default(self) -> Choice:
        return self.chooser.choices[0]

    def ranked(self, case: Case) -> list[Choice]:
        """Those that the oracle has, the model's fastest first."""
        order = [self.chooser.choices[i] for i in self.chooser.ranked(scalars(case))]
        return [s for s in order if s in self.times[case]]


def scalars(case: Case) -> dict[str, int]:
    return {name.lower(): value for name, value in case.params}


def compiled(programs: Iterable[str]) -> dict[tuple[str, str], Resources]:
    """What nvcc says of the kernels: (program, op) -> registers, shared memory, instructions."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in programs:
            path = ROOT / "samples" / "polybench" / f"{name}.dag"
            found = resources_of(tuning_task(api.read(path), target="cuda", arch=ARCH), Path(folder) / name)
            out |= {(name, op): taken for op, taken in found.items()}
    return out


def kernels(oracle: Path, nvcc: bool = False, method: str = "volume") -> list[Kernel]:
    """Flushed cells only."""
    found: dict[tuple[str, str], dict[Case, dict[Choice, float]]] = {}
    for cell in read_oracle(oracle):
        if cell.flush and not cell.failure:
            found.setdefault((cell.program, cell.op), {}).setdefault(cell.case, {})[cell.choice] = cell.seconds
    hardware, out = load_hardware("h200"), []
    known = compiled(dict.fromkeys(program for program, _ in found)) if nvcc else {}
    for (program, op), times in found.items():
        graph = api.load_graph(ROOT / "samples" / "polybench" / f"{program}.dag")
        (site,) = open_sites(graph, [op])
        choices = legal_settings(graph, site, LIMITS)

        taken = known.get((program, op), ASSUMED)

        def remade(anchors, graph=graph, site=site, choices=choices, taken=taken):  # type: ignore[no-untyped-def]
            return site_chooser(graph, site, choices, hardware, ModelInputs(method, taken), anchors=anchors)

        out.append(Kernel(program, op, times, remade([]), remade))
    return out


def middle(kernel: Kernel) -> Case:
    """The square size next to 1024 that every kernel has: where one size is measured."""

    def distance(case: Case) -> float:
        values = [v for n, v in case.params if n != "TMAX"]
        return sum(abs(math.log(v / 1024)) for v in values) + (0 if len(set(values)) == 1 else 100)

    return min(kernel.times, key=distance)


def best(times: dict[Choice, float], among: Iterable[Choice]) -> Choice:
    return min((s for s in among if s in times), key=lambda s: times[s])


def few(kernel: Kernel, case: Case, top: int) -> list[Choice]:
    """What `dagc tune --top` measures: the model's first, at most half of the legal ones, and the default."""
    ranked = kernel.ranked(case)
    return [*ranked[: worth_measuring(top, len(kernel.times[case]))], kernel.default]


# A block, or how likely each of several is: of a random choice.
Chosen = Choice | dict[Choice, float]
Choose = Callable[[Kernel, Case], Chosen]
Where = Callable[[Kernel], Case]  # the size of a kernel at which something is measured


def adapted(top: int, where: Where = middle) -> Choose:
    """The best of the model's first `top` at one size, kept unless the model objects."""
    made: dict[tuple[str, str], Chooser] = {}

    def choose(kernel: Kernel, case: Case) -> Chosen:
        key = kernel.program, kernel.op
        if key not in made:
            start = where(kernel)
            kept = best(kernel.times[start], few(kernel, start, top))
            made[key] = kernel.remade([(scalars(start), kept)])
        return made[key].choices[made[key].choose(scalars(case))]

    return choose


def chance(kernel: Kernel, case: Case, top: int = 5) -> dict[Choice, float]:
    """As many random blocks as `few` has, the default among them."""
    times = kernel.times[case]
    return best_of_random(times, len(set(few(kernel, case, top))), kernel.default)


# name -> how it chooses; leave out the size that it measured
STRATEGIES: dict[str, tuple[Choose, bool]] = {
    "default block": (lambda k, p: k.default, False),
    "a random block": (lambda k, p: best_of_random(k.times[p], 1), False),
    "the model, nothing measured": (lambda k, p: k.chooser.choices[k.chooser.choose(scalars(p))], False),
    "model's top 3 measured at each size": (lambda k, p: best(k.times[p], few(k, p, 3)), False),
    "model's top 5 measured at each size": (lambda k, p: best(k.times[p], few(k, p, 5)), False),
    "as many random ones and the default, at each size": (chance, False),
    "model's top 5 measured at one size, kept or overruled by the model": (adapted(5), True),
    "model's top 5 measured at one size, reused": (
        lambda k, p: best(k.times[middle(k)], few(k, middle(k), 5)), True,
    ),
    "as many random ones and the default at one size, reused": (lambda k, p: chance(k, middle(k)), True),
    "all measured at one size, reused (baseline)": (lambda k, p: best(k.times[middle(k)], k.times[middle(k)]), True),
}  # fmt: skip


def constants(found: list[Kernel]) -> dict[str, tuple[Choose, bool]]:
    """One block for all kernels with as many dimensions: the best in hindsight, and the best on the other programs."""

    def tables(two: bool, without: str = "") -> list[dict[Choice, float]]:
        kernels = (k for k in found if k.two is two and k.program != without)
        return [{of_any(s): t for s, t in times.items()} for k in kernels for times in k.times.values()]

    kinds = sorted({k.two for k in found}, reverse=True)
    hindsight = {two: best_constant(tables(two)) for two in kinds}
    unseen = {(k.program, k.two): best_constant(tables(k.two, k.program) or tables(k.two)) for k in found}
    named = "; ".join(f"always {hindsight[two].in_words}" for two in kinds)
    return {
        f"one block for all, the best in hindsight ({named})": (lambda k, p: of_op(k.op, hindsight[k.two]), False),
        "one block for all, the best on the other programs": (
            lambda k, p: of_op(k.op, unseen[k.program, k.two]),
            False,
        ),
    }


def square(case: Case) -> bool:
    return len({v for n, v in case.params if n != "TMAX"}) == 1


@dataclass(frozen=True, slots=True)
class Pair:
    """One way to choose for one kernel at one size: logarithm of t_chosen / t_best (its mean where chance chooses), and
    whether the choice is certain."""

    kernel: Kernel
    case: Case
    loss: float
    over_default: float
    certain: bool


def pairs(found: list[Kernel], choose: Choose, left_out: Where | None = None) -> list[Pair]:
    """All kernels and sizes, but for the size of each kernel that `left_out` names."""
    out = []
    for kernel in found:
        start = left_out(kernel) if left_out is not None else None
        for case, times in kernel.times.items():
            if case == start:
                continue
            choice, low = choose(kernel, case), min(times.values())
            odds = choice if isinstance(choice, dict) else {choice: 1.0}
            loss = sum(odd * math.log(times.get(s, math.inf) / low) for s, odd in odds.items() if odd > 0)
            out.append(Pair(kernel, case, loss, math.exp(loss) * low / times[kernel.default], len(odds) == 1))
    return out


UNLIKE = ("syrk", "syr2k")  # most of what can be gained over the default is theirs
SUMMARY = (
    "| | 2-D blocks | worst | 2-D without SYRK, SYR2K | 1-D blocks | worst | all | skewed shapes |"
    " over 2 % slower than the default |"
)


def mean(rows: Iterable[Pair]) -> str:
    losses = [row.loss for row in rows]
    return f"{math.exp(statistics.fmean(losses)):.4f}" if losses else "-"


def worst(rows: Iterable[Pair]) -> str:
    """Of certain choices; a random one may be the slowest block."""
    kept = [row for row in rows if row.certain]
    return f"{math.exp(max(row.loss for row in kept)):.2f}" if kept else "-"


def summary(found: list[Kernel]) -> list[str]:
    lines = [SUMMARY, "|---" * 9 + "|"]
    for name, (choose, leave_out) in {**STRATEGIES, **constants(found)}.items():
        rows = pairs(found, choose, middle if leave_out else None)
        wide, narrow = [r for r in rows if r.kernel.two], [r for r in rows if not r.kernel.two]
        slower = f"{sum(r.over_default > 1.02 for r in rows)} of {len(rows)}" if all(r.certain for r in rows) else "-"
        lines.append(
            f"| {name} | {mean(wide)} | {worst(wide)} | {mean(r for r in wide if r.kernel.program not in UNLIKE)} |"
            f" {mean(narrow)} | {worst(narrow)} | {mean(rows)} | {mean(r for r in rows if not square(r.case))} |"
            f" {slower} |"
        )
    return lines


def share_of_unlike(found: list[Kernel]) -> str:
    """Whose gain over the default block the model's is, on two-dimensional blocks."""
    rows = pairs(found, STRATEGIES["the model, nothing measured"][0])
    gained = [(r.kernel.program in UNLIKE, -math.log(r.over_default)) for r in rows if r.kernel.two]
    net = sum(g for _, g in gained), sum(g for unlike, g in gained if unlike)
    gross = sum(max(g, 0.0) for _, g in gained), sum(max(g, 0.0) for unlike, g in gained if unlike)
    if not (net[0] > 0 and gross[0] > 0):
        return "The model gains nothing over the default on 2-D blocks."
    return (
        "Of the model's gain over the default on 2-D blocks (sum of logarithms), SYRK and SYR2K have"
        f" {net[1] / net[0]:.0%}, with {sum(unlike for unlike, _ in gained)} of {len(gained)} pairs; of the gains"
        f" alone, without the losses, {gross[1] / gross[0]:.0%}."
    )


def by_starting_size(found: list[Kernel], top: int = 5) -> list[str]:
    """The model's top few measured at one size: which size that is."""
    squares = {(k.program, k.op): sorted((p for p in k.times if square(p)), key=largest) for k in found}

    def at(place: int) -> Where:
        return lambda k: squares[k.program, k.op][place]

    count = max(len(cases) for cases in squares.values())
    any_square: list[Pair] = []
    for i in range(count):
        some = [k for k in found if i < len(squares[k.program, k.op])]
        any_square += pairs(some, adapted(top, at(i)), at(i))
    starts = {
        "the middle (next to 1024)": pairs(found, adapted(top), middle),
        "any square, on average": any_square,
        "the smallest square": pairs(found, adapted(top, at(0)), at(0)),
        "the largest square": pairs(found, adapted(top, at(-1)), at(-1)),
    }
    lines = ["| measured at | 2-D blocks | worst | 1-D blocks | worst | all |", "|---|---|---|---|---|---|"]
    for name, rows in starts.items():
        wide, narrow = [r for r in rows if r.kernel.two], [r for r in rows if not r.kernel.two]
        lines.append(f"| {name} | {mean(wide)} | {worst(wide)} | {mean(narrow)} | {worst(narrow)} | {mean(rows)} |")
    return lines


def largest(case: Case) -> int:
    return max(v for n, v in case.params if n != "TMAX")


def errors(found: list[Kernel]) -> list[str]:
    """Error %, beside KLARAPTOR's own figures."""

    def of(choose: Choose) -> Errors:
        out: dict[bool, list[float]] = {True: [], False: []}
        for kernel in found:
            for case, times in kernel.times.items():
                choice = choose(kernel, case)
                odds = choice if isinstance(choice, dict) else {choice: 1.0}
                expected = sum(odd * times[s] for s, odd in odds.items() if odd > 0)
                out[kernel.two].append(error_percent(times, expected))
        return Errors(tuple(out[True]), tuple(out[False]))

    lines = ["| error %, mean / median | 2-D blocks | 1-D blocks | all |", "|---|---|---|---|"]
    for name in ("default block", "a random block", "the model, nothing measured"):
        lines.append(of(STRATEGIES[name][0]).row(name))
    lines.append(of(constants(found)["one block for all, the best on the other programs"][0]).row("one block for all"))
    return [*lines, published().row("KLARAPTOR, as published (its kernels and GPU)")]


def table(found: list[Kernel]) -> list[str]:
    lines = [
        "| kernel | size | default | us | chosen | us | best | us | worst us | error % | chosen / best |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    off, telling = [], []
    for kernel in found:
        for case, times in sorted(kernel.times.items()):
            chosen = kernel.chooser.choices[kernel.chooser.choose(scalars(case))]
            first, low, high = best(times, times), min(times.values()), max(times.values())
            off.append(error_percent(times, times[chosen]))
            if high >= (1 + FLAT) * low:
                telling.append(off[-1])
            cells = [f"{s.in_words} | {times[s] * 1e6:.4g}" for s in (kernel.default, chosen, first)]
            lines.append(
                f"| {kernel.program} {kernel.op} | {case.text} | {' | '.join(cells)} | {high * 1e6:.4g} |"
                f" {off[-1]:.2f} | {times[chosen] / low:.3f} |"
            )
    head = f"Error %: mean {statistics.fmean(off):.2f}, median {statistics.median(off):.2f}, largest {max(off):.1f}."
    means = f"mean {statistics.fmean(telling):.2f}, median {statistics.median(telling):.2f}"
    where = f"Of the {len(telling)} pairs whose slowest block is {FLAT:.0%} or more behind the fastest: {means}."
    return [head, where, "", *lines]


def floor(oracle: Path) -> str:
    """The error % of one who measures every block at the very size, as precisely as the oracle was measured, and is
    judged by a second such measurement: what is below it is noise. Medians are drawn from their 95 % intervals."""
    cells: dict[tuple[str, str, Case], list[OracleCell]] = {}
    for cell in read_oracle(oracle):
        if cell.flush and not cell.failure:
            cells.setdefault((cell.program, cell.op, cell.case), []).append(cell)
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
    lines = [*summary(found), "", share_of_unlike(found), "", *by_starting_size(found), "", *errors(found)]
    print("\n".join(lines))
    if args.markdown is not None:
        title = [
            "# Launch configurations of PolyBench on an H200",
            "",
            f"`python -m benchmarks.tune.table {args.oracle}`.",
            "",
        ]
        intro = ["t_chosen / t_best, geometric means. docs/how-to/launch-settings.md says what the rows are.", ""]
        head, where, *rows = table(found)
        args.markdown.write_text("\n".join([*title, *intro, *lines, "", head, where, floor(args.oracle), *rows]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

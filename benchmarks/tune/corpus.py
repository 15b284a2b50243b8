"""Judges the launch settings that `dagc tune` chooses on kernels that nothing was fitted to.

    R=benchmarks/results/2026-11-22
    python -m benchmarks.tune.corpus $R-h100-corpus/oracle-validate.csv.xz --gpu h100 \\
        --fit $R-h200-corpus/oracle-fit.csv.xz --fit-gpu h200
    python -m benchmarks.tune.corpus $R-h100-corpus/oracle-{fit,validate,unseen}.csv.xz --gpu h100 --parts 4
    python -m benchmarks.tune.corpus $R-h200-corpus/oracle-unseen.csv.xz --gpu h200 --parts 4 \\
        --fit $R-h100-corpus/oracle-{fit,validate,unseen}.csv.xz --fit-gpu h100

The search replays an oracle: to measure a setting is to look its median time up. t_chosen / t_best over kernel x size:
geometric mean, and the worst in brackets; the best is the least median of all legal settings, so that a winner by noise
is the best for every method alike. The learner is trained on `--fit` here (from the other GPU, so that nothing of the
GPU that judges is known); without, it is that of the package. With `--parts N`, the families are dealt into N parts,
and those of each part are judged with a learner of the other parts, trained on `--fit` if that is given: then neither
the family nor the GPU that judges is known.

  nothing measured                 what is chosen at each size
  5 at each size, and the default  as `dagc tune --top 5`: of all sizes together, where they teach most
  5 at one size, used at others    all at the size next to the middle; it does not count itself
  20 in all over all sizes         `--budget 20`
Beside them: the default; some at random and the default (20 seeds); always 32 threads; the one block that is best for
the other families; everything measured at one size and reused; what bounds the use of one size: more measured there,
and the best constant setting of each kernel, in hindsight. `benchmarks.tune.corpus_rivals` adds Kernel Tuner.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.tune.launches import Array, Measured, load
from benchmarks.tune.learn import CHOSEN, COMPILED, RECIPES, Recipe, learned
from benchmarks.tune.oracle_csv import of_any, of_op
from dagc.choice.residual import FILE, TERMS, Learner, load_learner, responses, size_coordinates
from dagc.choice.surface import Rows, TimeSurface
from dagc.lab.across import AcrossSizes, OpTimes
from dagc.study.sizes import MOST_ROWS

SEEDS = 20
SLOWER = 1.02  # than the default

# The place of the chosen setting at each size of a kernel; None: the size does not count.
Chosen = list[int | None]
Choose = Callable[[Measured], Chosen]


# ---- dagc ----


@dataclass(slots=True)
class Replay:
    """The search of `dagc tune` on an oracle. `took`: seconds that each proposal and update took. `without`: by family,
    the learner that it is judged with instead."""

    learner: Learner
    without: Mapping[str, Learner] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    measured: int = 0

    def run(self, kernel: Measured, budget: int | None, only: int | None = None, until: float | None = None) -> Chosen:
        """`only`: the one size at which is measured."""
        times = op_times(kernel, self.without.get(kernel.family, self.learner))
        away = {i for i, (p, _) in enumerate(times.rows) if only is not None and p != kernel.cases[only]}
        times.closed |= away
        search = AcrossSizes([times], budget, until)
        place = {p: i for i, p in enumerate(kernel.cases)}
        number = {s: i for i, s in enumerate(kernel.choices)}
        while True:
            began = time.perf_counter()
            cell = search.propose()
            if cell is None:
                break
            at, setting = place[cell.case], number[cell.choice]
            seconds, noise = math.exp(kernel.logs[at, setting]), float(kernel.noise[at, setting])
            search.learn(cell, seconds, noise)
            self.took.append(time.perf_counter() - began)
        self.measured += search.spent
        times.closed -= away
        return [number[search.choice(kernel.op, p)] if times.of.get(p) and i != only else None
                for i, p in enumerate(kernel.cases)]  # fmt: skip


def op_times(kernel: Measured, learner: Learner) -> OpTimes:
    """What is expected of an op before anything is measured, as `dagc.study.sizes` has it."""
    cells, means, deviations, answers, places, size_of = [], [], [], [], [], []
    cases = [i for i in range(len(kernel.cases)) if np.isfinite(kernel.logs[i]).any()]
    random.Random("0 order").shuffle(cases)
    for number, i in enumerate(cases):
        mean, deviation = learner.predict(kernel.terms[i], kernel.choices)
        fits = np.flatnonzero(np.isfinite(kernel.logs[i]))
        most = max(2, MOST_ROWS // len(cases))
        fits = np.sort(sorted(fits, key=lambda s: (s != 0, mean[s]))[:most])
        cells += [(kernel.cases[i], kernel.choices[s]) for s in fits]
        means += list(mean[fits] - mean[fits].mean())
        deviations += list(deviation[fits])
        answers += list(responses(kernel.terms[i])[fits])
        places += list(kernel.places[fits])
        size_of += [number] * len(fits)
    sizes = [kernel.cases[i] for i in cases]
    rows = Rows(
        np.array(means), np.array(deviations), np.array(answers), np.array(places), size_coordinates(sizes),
        np.array(size_of),
    )  # fmt: skip
    surface = TimeSurface(learner.kernel, rows)
    return OpTimes(kernel.op, kernel.choices[0], tuple(sizes), tuple(cells), surface)


def middle(kernel: Measured) -> int:
    """The size that is nearest to all others."""
    sizes = size_coordinates(kernel.cases)
    return int(np.abs(sizes - np.median(sizes, axis=0)).sum(axis=1).argmin())


# ---- what stands beside it ----


def default(kernel: Measured) -> Chosen:
    return [0] * len(kernel.cases)


def best_of(logs: Array, among: Sequence[int]) -> int:
    """The fastest of some settings; the first, where none can be launched."""
    return min(among, key=lambda i: logs[i] if math.isfinite(logs[i]) else math.inf)


def by_chance(number: int, seed: int) -> Choose:
    def choose(kernel: Measured) -> Chosen:
        draw = random.Random(f"{seed} {kernel.program} {kernel.op}")
        out: Chosen = []
        for logs in kernel.logs:
            fits = [i for i in np.flatnonzero(np.isfinite(logs)).tolist() if i]
            out.append(best_of(logs, [0, *draw.sample(fits, min(number, len(fits)))]))
        return out

    return choose


def by_the_model(kernel: Measured) -> Chosen:
    """What the volume model ranks first, however unsure it is; the default where it says nothing."""
    seconds = np.nan_to_num(kernel.terms[:, :, TERMS.index("seconds")], nan=math.inf)
    return [int(row.argmin()) for row in np.where(np.isfinite(kernel.logs), seconds, math.inf)]


def everything_at_one(kernel: Measured) -> Chosen:
    at = middle(kernel)
    chosen = best_of(kernel.logs[at], range(len(kernel.choices)))
    return [None if i == at else chosen for i in range(len(kernel.cases))]


def in_hindsight(kernel: Measured) -> Chosen:
    """The one setting of a kernel with the least mean loss at all sizes but the middle one, which does not count."""
    at = middle(kernel)
    others = [logs - np.nanmin(logs) for i, logs in enumerate(kernel.logs) if i != at and np.isfinite(logs).any()]
    if not others:
        return [None] * len(kernel.cases)
    place = int(np.nan_to_num(np.array(others), nan=5.0).mean(axis=0).argmin())
    return [None if i == at else place for i in range(len(kernel.cases))]


def always(settings: Mapping[str, int]) -> Choose:
    """One block for all; the default where a kernel does not have it, and at sizes where it cannot be launched."""

    def choose(kernel: Measured) -> Chosen:
        wanted = [i for i, s in enumerate(kernel.choices) if settings.items() <= s.own.items()]
        place = wanted[0] if wanted else 0
        return [place if math.isfinite(logs[place]) else 0 for logs in kernel.logs]

    return choose


def best_constant(found: Sequence[Measured]) -> Choose:
    """For each kernel the setting with the least mean loss on the kernels of all other families with the same set."""
    alike: dict[tuple[object, ...], list[Measured]] = {}
    for kernel in found:
        alike.setdefault(tuple(sorted(map(of_any, kernel.choices))), []).append(kernel)

    def choose(kernel: Measured) -> Chosen:
        names = sorted(map(of_any, kernel.choices))
        losses = [
            [logs[k.choices.index(of_op(k.op, s))] - np.nanmin(logs) for s in names]
            for k in alike[tuple(names)] if k.family != kernel.family for logs in k.logs if np.isfinite(logs).any()
        ]  # fmt: skip
        if not losses:
            return [None] * len(kernel.cases)
        means = np.nan_to_num(np.array(losses), nan=3.0).mean(axis=0)
        place = kernel.choices.index(of_op(kernel.op, names[int(means.argmin())]))
        return [place if math.isfinite(logs[place]) else 0 for logs in kernel.logs]

    return choose


# ---- the table ----


@dataclass(frozen=True, slots=True)
class Row:
    """Losses (logarithms of t_chosen / t_best) over kernel x size, and times over the default's."""

    losses: tuple[float, ...]
    over_default: tuple[float, ...]

    @property
    def text(self) -> str:
        if not self.losses:
            return "-"
        return f"{math.exp(statistics.fmean(self.losses)):.4f} ({math.exp(max(self.losses)):.2f})"

    @property
    def slower(self) -> str:
        """Share of pairs that are over 2 % slower than the default."""
        return f"{sum(r > SLOWER for r in self.over_default) / len(self.over_default):.1%}" if self.losses else "-"


def judged(found: Sequence[Measured], choose: Choose) -> Row:
    losses, over = [], []
    for kernel in found:
        for logs, place in zip(kernel.logs, choose(kernel), strict=True):
            if place is None or not np.isfinite(logs).any():
                continue
            chosen = logs[place] if math.isfinite(logs[place]) else np.nanmax(logs)
            losses.append(float(chosen - np.nanmin(logs)))
            if math.isfinite(logs[0]):
                over.append(math.exp(chosen - logs[0]))
    return Row(tuple(losses), tuple(over))


def mean_of(rows: Sequence[Row]) -> Row:
    return Row(tuple(x for row in rows for x in row.losses), tuple(x for row in rows for x in row.over_default))


def of_dagc(replay: Replay) -> dict[str, Choose]:
    return {
        "nothing measured": lambda k: replay.run(k, 0),
        "5 at each size, the default among them": lambda k: replay.run(k, 5 * len(k.cases)),
        "5 at each size, and the default": lambda k: replay.run(k, 6 * len(k.cases)),
        "5 at one size, used at others": lambda k: replay.run(k, 5, middle(k)),
        "20 in all over all sizes": lambda k: replay.run(k, 20),
    }


PARTS: dict[str, Callable[[Measured], bool]] = {
    "2-D blocks": lambda k: k.wide,
    "1-D blocks": lambda k: not k.wide,
    "tunables beside block dimensions": lambda k: k.tuned_code,
}


def table(found: Sequence[Measured], learner: Learner, without: Mapping[str, Learner]) -> list[str]:
    """The rows of `dagc tune`, and what stands beside it."""
    replay = Replay(learner, without)
    others: dict[str, Choose] = {
        "default": default,
        "the model alone": by_the_model,
        "always 32 threads (32 x 1)": lambda k: always({"bx": 32, "by": 1} if k.wide else {"bx": 32})(k),
        "the best constant block of other families": best_constant(found),
        "everything measured at one size, reused": everything_at_one,
        "10 at one size, used at others": lambda k: replay.run(k, 10, middle(k)),
        "up to everything at one size, used at others": lambda k: replay.run(k, len(k.choices), middle(k)),
        "the best constant setting of each kernel at the others, in hindsight": in_hindsight,
    }
    lines = [f"| t_chosen / t_best | {' | '.join(f'{p} | slower than the default' for p in PARTS)} |"]
    lines.append("|---" * (1 + 2 * len(PARTS)) + "|")
    parts = {name: [k for k in found if wanted(k)] for name, wanted in PARTS.items()}
    for name, choose in {**of_dagc(replay), **others}.items():
        rows = [judged(of, choose) for of in parts.values()]
        lines.append(f"| {name} | {' | '.join(f'{r.text} | {r.slower}' for r in rows)} |")
    for number in (4, 5, 10):
        rows = [mean_of([judged(of, by_chance(number, seed)) for seed in range(SEEDS)]) for of in parts.values()]
        name = f"{number} at random at each size, and the default"
        lines.append(f"| {name} | {' | '.join(f'{r.text} | {r.slower}' for r in rows)} |")
    counts = ", ".join(f"{len(of)} kernels in {sum(len(k.cases) for k in of)} pairs ({p})" for p, of in parts.items())
    took = f"{1e3 * statistics.fmean(replay.took):.1f} ms a measurement, at most {1e3 * max(replay.took):.0f} ms"
    return [*lines, "", f"{counts}. Learner: {learner.source}. Time of the search: {took}."]


def families(found: Sequence[Measured], learner: Learner, without: Mapping[str, Learner]) -> list[str]:
    """Each family apart."""
    lines = ["| family | blocks | pairs | default | nothing measured | 5 at each size | 20 in all |", "|---" * 7 + "|"]
    replay = Replay(learner, without)
    choices: list[Choose] = [
        default, lambda k: replay.run(k, 0), lambda k: replay.run(k, 5 * len(k.cases)), lambda k: replay.run(k, 20)
    ]  # fmt: skip
    names = list(dict.fromkeys((k.family, k.wide) for k in found))
    for family, wide in names:
        own = [k for k in found if (k.family, k.wide) == (family, wide)]
        rows = [judged(own, choose) for choose in choices]
        pairs = len(rows[0].losses)
        lines.append(f"| {family} | {'2-D' if wide else '1-D'} | {pairs} | {' | '.join(r.text for r in rows)} |")
    return lines


def of_other_parts(found: Sequence[Measured], recipe: Recipe, parts: int) -> dict[str, Learner]:
    """For each family of some kernels a learner of those of them that are of the other parts."""
    names = sorted({k.family for k in found})
    random.Random(1).shuffle(names)
    out: dict[str, Learner] = {}
    for number in range(parts):
        own = set(names[number::parts])
        learner = learned(
            [k for k in found if k.family not in own], recipe, ["sm_90"], f"without {', '.join(sorted(own))}"
        )
        out |= dict.fromkeys(own, learner)
    return out


def candidates(fit: Sequence[Measured], validate: Sequence[Measured], recipes: Mapping[str, Recipe]) -> list[str]:
    """Recipes of learners trained on some kernels, judged on others."""
    lines = ["| learner | blocks | nothing measured | 5 at each size | 5 at one size | 20 in all |", "|---" * 6 + "|"]
    for name, recipe in recipes.items():
        replay = Replay(learned(fit, recipe, ["sm_90"], name))
        choices = [c for n, c in of_dagc(replay).items() if n != "5 at each size, and the default"]
        for blocks, wide in (("2-D", True), ("1-D", False)):
            rows = [judged([k for k in validate if k.wide is wide], choose) for choose in choices]
            lines.append(f"| {name} | {blocks} | {' | '.join(r.text for r in rows)} |")
            print(lines[-1], flush=True)
    return lines


def calibration(found: Sequence[Measured], learner: Learner) -> str:
    """How often the ratio of each setting to the default lies within the 80 % interval that nothing measured gives."""
    inside = []
    for kernel in found:
        times = op_times(kernel, learner)
        for i, (case, choice) in enumerate(times.rows):
            logs = kernel.logs[kernel.cases.index(case)]
            start = times.number.get((case, times.default))
            if start is None or i == start or not math.isfinite(logs[0]):
                continue
            mean, deviation = times.surface.against(i, start)
            inside.append(abs(logs[kernel.choices.index(choice)] - logs[0] - mean) < 1.2816 * deviation)
    return f"{statistics.fmean(inside):.0%} of the ratios to the default lie in their 80 % intervals, nothing measured."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracles", type=Path, nargs="+", help="what judges")
    parser.add_argument("--fit", type=Path, nargs="*", default=[], help="oracles that the learner is trained on")
    parser.add_argument("--gpu", default="h200", help="descriptor of the GPU that judges (default: h200)")
    parser.add_argument("--fit-gpu", default="h200", help="descriptor of the GPU of --fit (default: h200)")
    parser.add_argument(
        "--compiled", type=Path, nargs="+", default=COMPILED, metavar="JSON", help="from benchmarks.tune.compiled"
    )
    parser.add_argument("--parts", type=int, default=0, metavar="N", help="leave out one of N parts of the families")
    parser.add_argument("--recipe", default=CHOSEN, choices=RECIPES)
    parser.add_argument("--families", action="store_true", help="each family apart, too")
    parser.add_argument("--markdown", type=Path, help="write it there, too")
    args = parser.parse_args()
    fit = load(args.fit, args.fit_gpu, args.compiled)
    if fit:
        source = ", ".join(f"{p.parent.name}/{p.name}" for p in args.fit)
        learner = learned(fit, RECIPES[args.recipe], ["sm_90"], source)
    else:
        learner = load_learner(FILE)
    found = load(args.oracles, args.gpu, args.compiled)
    without = of_other_parts(fit or found, RECIPES[args.recipe], args.parts) if args.parts else {}
    lines = [*table(found, learner, without), "", calibration(found, learner)]
    lines += ["", *families(found, learner, without)] if args.families else []
    print("\n".join(lines))
    if args.markdown is not None:
        args.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

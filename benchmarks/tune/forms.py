"""What the forms of kernels are worth, and how well `dagc tune` chooses among them, on an oracle.

    R=benchmarks/results/2026-11-28-h200-forms
    python -m benchmarks.tune.forms $R/oracle.csv.xz [--gpu h200] [--held-out polybench,stencil3d,lbm]
        [--compiled $R/compiled.json.xz]

For each kernel, at the size of the oracle: the lower bound (dagc.perf.bound, by the descriptor of the GPU), the time of
the best block of the kernel as written, and of the best setting with forms, each also as a share of the bound. Then
what is chosen among all measured settings: the model's choice with nothing measured, and the search's after five
measurements beside the default, with the learner of the package. Geometric means over the kernels that are bound by
memory (their bound is set by bytes, and the kernel as written reaches `--reached` of it), and over all; the families
that forms were not made on (`--held-out`) apart. Kernels that allow no form count as 1 in the means over all. With
`--compiled` (benchmarks.tune.compiled, benchmarks.gpu.judge) the model knows the registers, as in `dagc tune`.

`--margins`: how much larger the predicted gain of a form must be than nothing for it to be taken with nothing measured
(FORM_ERROR of dagc.lab.across): for each value the gain over the choice of the kernel as written, and how many kernels
are slower than that by over 2 %; then the same for the median error of predictions on all families but that which is
judged.

The oracles: benchmarks/gpu/judge.py, or benchmarks/gpu/oracle.py --one, whose --settings keeps all settings of the
kernels as written.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.tune.corpus import Replay, op_times
from benchmarks.tune.launches import Measured, load
from dagc.base.errors import DagcError
from dagc.choice.legal import op_of, op_under
from dagc.choice.residual import FILE, load_learner
from dagc.ir.choice import AS_WRITTEN, Choice, names_form
from dagc.lab.across import AcrossSizes
from dagc.perf.bound import MEMORY, Ceilings, bound_of
from dagc.perf.hardware import load_hardware


@dataclass(frozen=True, slots=True)
class Gain:
    """One kernel at one size; times in seconds. `bound`: NaN if it is not known. `by_memory`: bytes set it."""

    program: str
    op: str
    family: str
    size: str
    bound: float
    by_memory: bool
    plain: float
    best: float
    setting: str
    unmeasured: float
    measured: float

    @property
    def reached(self) -> float:
        return self.bound / self.plain

    def factor(self, seconds: float) -> float:
        return self.plain / seconds


def as_written(choice: Choice) -> bool:
    return all(value == AS_WRITTEN for name, value in choice.items() if names_form((name,)))


def gains(kernel: Measured, ceilings: Ceilings, replay: Replay) -> Iterable[Gain]:
    plain = np.array([as_written(s) for s in kernel.choices])
    chosen = [replay.run(kernel, budget) for budget in (0, 6 * len(kernel.cases))]
    for i, (case, logs) in enumerate(zip(kernel.cases, kernel.logs, strict=True)):
        if not np.isfinite(logs[plain]).any():
            continue
        best = int(np.nanargmin(logs))
        seconds = [math.exp(logs[place]) if (place := said[i]) is not None else math.nan for said in chosen]
        bound, by_memory = _bound(kernel, i, ceilings)
        yield Gain(
            kernel.program, kernel.op, kernel.family, case.text, bound, by_memory, math.exp(np.nanmin(logs[plain])),
            math.exp(logs[best]), kernel.choices[best].in_words, *seconds,
        )  # fmt: skip


def _bound(kernel: Measured, at: int, ceilings: Ceilings) -> tuple[float, bool]:
    values = {name.lower(): value for name, value in kernel.cases[at].params} | {"rank": 0, "ranks": 1}
    program = kernel.graph.program
    op = op_under(program, op_of(kernel.graph, kernel.site), kernel.choices[0])
    try:
        found = bound_of(program, op, values, ceilings)
    except (DagcError, ArithmeticError, KeyError):
        return math.nan, False
    return (math.nan if found.unknown else found.seconds), found.why == MEMORY


def mean(values: Iterable[float]) -> str:
    known = [v for v in values if math.isfinite(v)]
    return f"{statistics.geometric_mean(known):.3f}" if known else "-"


def summary(found: Sequence[Gain]) -> list[str]:
    """The rows of a table of means."""
    columns: dict[str, Callable[[Gain], float]] = {
        "best form": lambda g: g.factor(g.best), "nothing measured": lambda g: g.factor(g.unmeasured),
        "5 measured": lambda g: g.factor(g.measured),
    }  # fmt: skip
    means = [mean(of(g) for g in found) for of in columns.values()]
    slower = [sum(of(g) < 0.98 for g in found) for of in columns.values()][1:]
    before = [g.bound / g.plain for g in found if math.isfinite(g.bound)]
    after = [g.bound / g.best for g in found if math.isfinite(g.bound)]
    share = f"{statistics.median(before):.0%} -> {statistics.median(after):.0%}" if before else "-"
    return [str(len(found)), *means, ", ".join(map(str, slower)), share]


# ---- how much a prediction is trusted ----


@dataclass(frozen=True, slots=True)
class Predicted:
    """Logarithms of the gain of the best form that the model expects over what it chooses of the kernel as written:
    predicted, and measured."""

    family: str
    predicted: float
    measured: float


MARGINS = (0.0, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


def predictions(kernel: Measured, replay: Replay) -> Iterable[Predicted]:
    times = op_times(kernel, replay.learner)
    number = {choice: i for i, choice in enumerate(kernel.choices)}
    mean, formed = times.surface.mean, {i for i, (_, choice) in enumerate(times.rows) if choice.formed}
    for case, logs in zip(kernel.cases, kernel.logs, strict=True):
        forms = [i for i in times.of.get(case, ()) if i in formed]
        if not forms:
            continue
        best = min(forms, key=lambda i: float(mean[i]))
        times.closed |= formed
        chosen = AcrossSizes([times], 0).choice(kernel.op, case)
        times.closed -= formed
        plain = times.number[case, chosen]
        gain = logs[number[chosen]] - logs[number[times.rows[best][1]]]
        yield Predicted(kernel.family, mean[plain] - mean[best], gain)


def taken(found: Sequence[Predicted], margin: Callable[[Predicted], float]) -> str:
    """A row of the table of margins."""
    used = [p.predicted > margin(p) for p in found]
    gains_ = [p.measured if use else 0.0 for p, use in zip(found, used, strict=True)]
    slower = sum(g < math.log(0.98) for g in gains_)
    return f"{sum(used)} | {math.exp(statistics.fmean(gains_)):.3f} | {slower} | {math.exp(min(gains_)):.3f} |"


def error_of(found: Sequence[Predicted]) -> float:
    return statistics.median(abs(p.predicted - p.measured) for p in found)


def margins(found: Sequence[Predicted]) -> Iterable[str]:
    yield f"| margin | of {len(found)} kernels taken | gain | over 2 % slower | worst |"
    yield "|---|---|---|---|---|"
    for margin in MARGINS:
        yield f"| {margin} | {taken(found, lambda _, m=margin: m)}"
    yield f"The error of a prediction is {error_of(found):.3f} (median), without one family or the other:"
    errors = {f: error_of([p for p in found if p.family != f]) for f in {p.family for p in found}}
    yield f"| {min(errors.values()):.3f} to {max(errors.values()):.3f} | {taken(found, lambda p: errors[p.family])}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracles", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--compiled", type=Path, nargs="+", default=(), metavar="JSON", help="registers and spills")
    parser.add_argument("--held-out", default="polybench", metavar="FAMILIES")
    parser.add_argument("--margins", action="store_true", help="what margins of predicted gains are worth")
    parser.add_argument("--reached", type=float, default=0.25, metavar="S", help="share of the bound (default: 0.25)")
    args = parser.parse_args(words)
    ceilings = Ceilings.of_hardware(load_hardware(args.gpu))
    replay = Replay(load_learner(FILE))
    kernels = load(args.oracles, args.gpu, args.compiled, forms=True)
    if args.margins:
        print("\n".join(margins([p for kernel in kernels for p in predictions(kernel, replay)])))
        return 0
    found = [g for kernel in kernels for g in gains(kernel, ceilings, replay)]
    print("| kernel | size | bound, us | as written | with forms | | factor | nothing measured | 5 measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    for g in sorted(found, key=lambda g: (g.family, g.program, g.op)):
        times = [f"{t * 1e6:.1f} ({g.bound / t:.0%})" if math.isfinite(g.bound) else f"{t * 1e6:.1f}"
                 for t in (g.plain, g.best)]  # fmt: skip
        bound = f"{g.bound * 1e6:.1f}" if math.isfinite(g.bound) else "-"
        factors = [f"{g.factor(t):.3f}" for t in (g.best, g.unmeasured, g.measured)]
        print(
            f"| {g.program} {g.op} | {g.size} | {bound} | {' | '.join(times)} | {g.setting} | {' | '.join(factors)} |"
        )
    held = tuple(args.held_out.split(","))
    by_memory = [g for g in found if g.by_memory and g.reached >= args.reached]
    print("\n| | kernels | best form | nothing measured | 5 measured | over 2 % slower | share of the bound |")
    print("|---|---|---|---|---|---|---|")
    for title, some in (
        ("bound by memory", by_memory),
        ("of them, families held out", [g for g in by_memory if g.family.startswith(held)]),
        ("all", found),
        ("all of the families held out", [g for g in found if g.family.startswith(held)]),
    ):
        print(f"| {title} | {' | '.join(summary(some))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

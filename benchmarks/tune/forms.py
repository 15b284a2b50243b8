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

`--risks`: how probable it may be that a form that is chosen with nothing measured is slower than the choice of the
kernel as written (FORM_RISK of dagc.lab.across): for each value the gain over that choice, and how many kernels are
slower than it by over 2 %; then the same for the largest of these values at which none is on all families but that
which is judged.

`--copies CSV` (its record is named in docs/figures.md): without choices, the best settings over the lower bound, and
over what the fastest kernel that copies as many bytes takes, measured in the same way.

The oracles: benchmarks/gpu/judge.py, or benchmarks/gpu/oracle.py --one, whose --settings keeps all settings of the
kernels as written.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.tune.corpus import Replay, op_times
from benchmarks.tune.launches import Measured, load
from dagc.base.errors import DagcError
from dagc.choice.legal import op_of, op_under
from dagc.choice.residual import FILE, load_learner
from dagc.ir.choice import AS_WRITTEN, Choice, names_form
from dagc.lab.across import CARE, AcrossSizes
from dagc.perf.bound import MEMORY, Ceilings, LowerBound, bound_of
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
        found = _bound(kernel, i, ceilings)
        bound, by_memory = math.nan if found.unknown else found.seconds, found.why == MEMORY
        yield Gain(
            kernel.program, kernel.op, kernel.family, case.text, bound, by_memory, math.exp(np.nanmin(logs[plain])),
            math.exp(logs[best]), kernel.choices[best].in_words, *seconds,
        )  # fmt: skip


def _bound(kernel: Measured, at: int, ceilings: Ceilings) -> LowerBound:
    values = {name.lower(): value for name, value in kernel.cases[at].params} | {"rank": 0, "ranks": 1}
    program = kernel.graph.program
    op = op_under(program, op_of(kernel.graph, kernel.site), kernel.choices[0])
    try:
        return bound_of(program, op, values, ceilings)
    except (DagcError, ArithmeticError, KeyError) as error:
        return LowerBound(unknown=str(error))


def shares(kernels: Iterable[Measured], ceilings: Ceilings, copies: Path, reached: float) -> Iterable[str]:
    """Rows of kernels that are bound by memory, then the medians."""
    least: dict[int, float] = {}  # seconds by MB
    for row in (row for row in csv.DictReader(copies.open()) if row["flushed"] == "1"):
        size = round(float(row["bytes"]) / 1e6)
        least[size] = min(float(row["us"]) * 1e-6, least.get(size, math.inf))
    *_, last, largest = sorted(least)
    least[10 * largest] = least[largest] + 9 * largest * (least[largest] - least[last]) / (largest - last)
    sizes = sorted(least)
    yield "| kernel | size | bound, us | copy | as written | best | share of the bound | of the copy |"
    yield "|---|---|---|---|---|---|---|---|"
    found = []
    for kernel in kernels:
        plain = np.array([as_written(s) for s in kernel.choices])
        for i, (case, logs) in enumerate(zip(kernel.cases, kernel.logs, strict=True)):
            bound = _bound(kernel, i, ceilings)
            if not np.isfinite(logs[plain]).any() or bound.why != MEMORY:
                continue
            written, best = math.exp(np.nanmin(logs[plain])), math.exp(np.nanmin(logs))
            copied = float(np.interp(bound.footprint.bytes / 1e6, sizes, [least[size] for size in sizes]))
            if bound.seconds >= reached * written:
                found.append((bound.seconds / best, copied / best))
                times = " | ".join(f"{t * 1e6:.1f}" for t in (bound.seconds, copied, written, best))
                parts = " | ".join(f"{share:.0%}" for share in found[-1])
                yield f"| {kernel.program} {kernel.op} | {case.text} | {times} | {parts} |"
    median = [f"{statistics.median(values):.0%}" for values in zip(*found, strict=True)]
    yield f"{len(found)} kernels, medians: {median[0]} of the bound, {median[1]} of the copy"


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
    """The forms of a kernel against what is chosen of it as written: the probability that each is slower, the
    logarithm of the ratio of times that it is judged by, and the measured one."""

    family: str
    error: float  # of the predicted logarithm of the ratio, for the form that is judged to be the fastest
    forms: tuple[tuple[float, float, float], ...]

    def gain(self, risk: float) -> float | None:
        """That of the form that is taken, if one is."""
        safe = [form for form in self.forms if form[0] <= risk]
        return -min(safe, key=lambda form: form[1])[2] if safe else None


RISKS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)


def predictions(kernel: Measured, replay: Replay) -> Iterable[Predicted]:
    times = op_times(kernel, replay.learner)
    number = {choice: i for i, choice in enumerate(kernel.choices)}
    formed = {i for i, (_, choice) in enumerate(times.rows) if choice.formed}
    for case, logs in zip(kernel.cases, kernel.logs, strict=True):
        forms = [i for i in times.of.get(case, ()) if i in formed]
        if not forms:
            continue
        times.closed |= formed
        plain = times.number[case, AcrossSizes([times], 0).choice(kernel.op, case)]
        times.closed -= formed
        measured = [float(logs[number[times.rows[i][1]]] - logs[number[times.rows[plain][1]]]) for i in forms]
        ratios = [times.surface.against(i, plain) for i in forms]
        judged = [
            (times.surface.slower(i, plain), r[0] + CARE * r[1], m)
            for i, r, m in zip(forms, ratios, measured, strict=True)
        ]
        best = min(range(len(forms)), key=lambda i: ratios[i][0])
        yield Predicted(kernel.family, ratios[best][0] - measured[best], tuple(judged))


def taken(found: Sequence[Predicted], risk: Mapping[Predicted, float]) -> str:
    """A row of the table of risks."""
    chosen = [p.gain(risk[p]) for p in found]
    gains_ = [gain or 0.0 for gain in chosen]
    used = sum(gain is not None for gain in chosen)
    return f"{used} | {math.exp(statistics.fmean(gains_)):.3f} | {_slower(gains_)} | {math.exp(min(gains_)):.3f} |"


def _slower(of: Iterable[float]) -> int:
    return sum(gain < math.log(0.98) for gain in of)


def risks(found: Sequence[Predicted]) -> Iterable[str]:
    yield f"| risk | of {len(found)} kernels taken | gain | over 2 % slower | worst |"
    yield "|---|---|---|---|---|"
    for risk in RISKS:
        yield f"| {risk} | {taken(found, dict.fromkeys(found, risk))}"
    chosen = {}
    for own in found:
        others = [p for p in found if p.family != own.family]
        chosen[own] = max((r for r in RISKS if not _slower(p.gain(r) or 0.0 for p in others)), default=0.0)
    yield f"| {min(chosen.values())} to {max(chosen.values())} | {taken(found, chosen)}"
    errors = sorted(abs(p.error) for p in found)
    half, most = (errors[min(len(errors) - 1, int(share * len(errors)))] for share in (0.5, 0.9))
    yield f"Error of the largest predicted gain of a form (a logarithm): {half:.2f} (median), {most:.2f} (90 %)"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracles", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--compiled", type=Path, nargs="+", default=(), metavar="JSON", help="registers and spills")
    parser.add_argument("--held-out", default="polybench", metavar="FAMILIES")
    parser.add_argument("--risks", action="store_true", help="what the risk of forms without measurements is worth")
    parser.add_argument("--copies", type=Path, metavar="CSV", help="what kernels that copy take; without choices")
    parser.add_argument("--reached", type=float, default=0.25, metavar="S", help="share of the bound (default: 0.25)")
    args = parser.parse_args(words)
    ceilings = Ceilings.of_hardware(load_hardware(args.gpu))
    assert ceilings is not None, "a GPU that was measured"
    kernels = load(args.oracles, args.gpu, args.compiled, forms=True)
    if args.copies is not None:
        print("\n".join(shares(kernels, ceilings, args.copies, args.reached)))
        return 0
    replay = Replay(load_learner(FILE))
    if args.risks:
        print("\n".join(risks([p for kernel in kernels for p in predictions(kernel, replay)])))
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

"""The best time of each kernel with each combination of forms, on an oracle: which of them gains over the others?

    R=benchmarks/results/2026-11-29-h200-march
    python -m benchmarks.tune.by_form $R/marching.csv.xz                    # microseconds, the fastest first
    python -m benchmarks.tune.by_form $R/layouts.csv.xz --factors layout    # as written over each value of one form

For `--factors` the blocks are those that were measured with all values of the form, for a fair comparison.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.tune.oracle_csv import read_oracle
from dagc.ir.choice import AS_WRITTEN, FORM

Forms: TypeAlias = "tuple[tuple[str, int], ...]"
Times: TypeAlias = "dict[Forms, dict[str, float]]"  # seconds by the other settings


def times_of(path: Path) -> dict[str, Times]:
    """By kernel; forms as written are left out of the names of their combination."""
    out: dict[str, Times] = defaultdict(lambda: defaultdict(dict))
    for cell in read_oracle(path):
        own = cell.choice.own
        forms = tuple((n.removeprefix(FORM), int(v)) for n, v in own.items() if n.startswith(FORM) and v != AS_WRITTEN)
        rest = " ".join(f"{n}={v}" for n, v in own.items() if not n.startswith(FORM))
        if math.isfinite(cell.seconds):
            out[f"{cell.program} {cell.op} {cell.case.text}"][forms][rest] = cell.seconds
    return out


def shown(forms: Forms) -> str:
    return " ".join(f"{name}={value}" for name, value in forms) or "as written"


def best(kernel: str, times: Times) -> None:
    print(f"{kernel}")
    least = {forms: min(of.items(), key=lambda one: one[1]) for forms, of in times.items()}
    for forms, (rest, seconds) in sorted(least.items(), key=lambda one: one[1][1]):
        print(f"  {seconds * 1e6:8.1f} us  {shown(forms):28} {rest}, best of {len(times[forms])}")


def factors(times: Mapping[str, Times], form: str) -> None:
    values = sorted({value for of in times.values() for forms in of for name, value in forms if name == form})
    print(f"| kernel | as written, us | {' | '.join(f'{form}={v}' for v in values)} |")
    found: dict[int, list[float]] = defaultdict(list)
    for kernel, of in times.items():
        here = {v: of[(form, v),] for v in values if ((form, v),) in of}
        alike = set(of[()]).intersection(*here.values())
        if not here or not alike:
            continue
        plain = min(of[()][rest] for rest in alike)
        row = {v: plain / min(times_[rest] for rest in alike) for v, times_ in here.items()}
        for v, factor in row.items():
            found[v].append(factor)
        print(f"| {kernel} | {plain * 1e6:.1f} | {' | '.join(f'{row[v]:.3f}' if v in row else '-' for v in values)} |")
    means = (f"{statistics.geometric_mean(found[v]):.3f} (most {max(found[v]):.3f})" for v in values)
    print(f"| geometric means | | {' | '.join(means)} |")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--factors", metavar="FORM", help="the values of one form over the kernel as written")
    args = parser.parse_args(words)
    times = times_of(args.oracle)
    if args.factors:
        factors(times, args.factors)
    else:
        for kernel, of in times.items():
            best(kernel, of)
    return 0


if __name__ == "__main__":
    sys.exit(main())

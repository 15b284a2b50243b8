"""Two versions of a program at the same inputs, one measured right after the other: what a change of kernels gained.

    python -m benchmarks.gpu.versions PROGRAM.dag AFTER.db[.xz] BEFORE.db[.xz] [BEFORE_AGAIN.db[.xz]]

The files are those of `dagc tune --variants --inputs LIST`. A line for each input: the best variant before and after in
microseconds, the ratio of each variant, and the ratios of the same text measured twice. Of the runs before, the faster
counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from benchmarks.gpu.beside_answer import unpacked
from benchmarks.gpu.variants import tables

Seconds = Mapping[str, float]  # by answer


def measured(path: Path, program: Path) -> dict[str, Seconds]:
    """The seconds of each answer by input, of the first op."""
    table = tables(unpacked(path), program)[0]
    return {
        row.name: {table.answers[i].in_words: t for i, t in row.times.items() if t < math.inf}
        for row in (*table.train, *table.test)
    }


def report(program: Path, after: Path, before: Sequence[Path]) -> list[str]:
    """A line for each input that all files have, and the geometric mean of the ratios of the best."""
    now, runs = measured(after, program), [measured(path, program) for path in before]
    out, ratios = [], []
    for name in (n for n in now if all(n in run for run in runs)):
        answers = [a for a in now[name] if all(a in run[name] for run in runs)]
        old = {a: min(run[name][a] for run in runs) for a in answers}
        best, new = min(old.values()), min(now[name][a] for a in answers)
        ratios.append(new / best)
        each = " ".join(f"{a} {now[name][a] / old[a]:.2f}" for a in answers)
        again = [run[name][a] / runs[0][name][a] for run in runs[1:] for a in answers]
        noise = f"; same text again {min(again):.2f} to {max(again):.2f}" if again else ""
        out.append(f"{name}: best {1e6 * best:.1f} -> {1e6 * new:.1f}, {new / best:.3f}; {each}{noise}")
    return [*out, f"{len(ratios)} inputs: best after over best before, geometric mean {geometric_mean(ratios):.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("before", type=Path, nargs="+")
    args = parser.parse_args()
    print("\n".join(report(args.program, args.after, args.before)))


if __name__ == "__main__":
    main()

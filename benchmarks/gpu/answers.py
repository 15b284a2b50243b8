"""How much faster each answer of a tuned file is than in an earlier file, or than another answer of the same file.

    python -m benchmarks.gpu.answers NEW.db[.xz] PROGRAM.dag [--before OLD.db[.xz]] [--beside ANSWER]

At the inputs that both have, without those at which one failed: geometric mean of the ratios of the times, the least,
the greatest; and at how many of all inputs the answer is the best.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean

from benchmarks.gpu.beside_answer import unpacked
from benchmarks.gpu.variants import tables

Times = dict[str, dict[str, float]]  # seconds of each answer at each input


def times_of(path: Path, program: Path) -> dict[str, Times]:
    """Of each op."""
    return {
        table.op: {
            row.facts.case.text: {table.answers[i].in_words: t for i, t in row.times.items() if t < math.inf}
            for row in (*table.train, *table.test)
        }
        for table in tables(unpacked(path), program)
    }


def lines(new: Times, old: Times, beside: str) -> list[str]:
    def before(text: str, answer: str) -> float | None:
        at: Mapping[str, float] = old.get(text, {})
        return at.get(beside or answer)

    best = Counter(min(at, key=at.__getitem__) for at in new.values() if at)
    out = []
    for answer in sorted({answer for at in new.values() for answer in at}):
        ratios = [at[answer] / t for text, at in new.items() if answer in at and (t := before(text, answer))]
        if ratios:
            figures = f"{geometric_mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            out.append(f"{answer:24} {len(ratios):4} inputs: {figures}; best at {best[answer]}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--beside", default="", metavar="ANSWER")
    args = parser.parse_args()
    new = times_of(args.tuned, args.program)
    old = times_of(args.before, args.program) if args.before else new
    for op, times in new.items():
        print(f"{op}:", *lines(times, old.get(op, {}), args.beside), sep="\n  ")


if __name__ == "__main__":
    main()

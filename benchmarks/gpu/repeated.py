"""How well the best answer of one run does in another: what a selector can reach, given how exactly times repeat.

    python -m benchmarks.gpu.repeated FIRST.db[.xz] SECOND.db[.xz] PROGRAM.dag

At the inputs that both tuned files have, the answer that is best in the first file, judged by the times of the second.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.gpu.beside_answer import unpacked
from benchmarks.gpu.variants import tables
from dagc.study.judge import judge


def report(first: Path, second: Path, program: Path) -> list[str]:
    """A table for each op that both files choose at."""
    before = {table.op: table for table in tables(unpacked(first), program)}
    out = []
    for after in tables(unpacked(second), program):
        if after.op not in before:
            continue
        numbers = {answer: i for i, answer in enumerate(after.answers)}
        best = {}
        for row in (*before[after.op].train, *before[after.op].test):
            times = {numbers[a]: row.times[i] for i, a in enumerate(before[after.op].answers) if i in row.times}
            best[row.name] = min(times, key=lambda i, t=times: t[i])  # type: ignore[misc]
        rows = [row for row in (*after.train, *after.test) if row.name in best]
        chosen = [best[row.name] for row in rows]
        sizes = [float(row.facts.elements) for row in rows]
        found = judge([r.name for r in rows], [r.times for r in rows], chosen, 0, [r.noise for r in rows], sizes=sizes)
        out += [
            f"{after.op}: the best answer of the first file in the second",
            *found.lines(lambda answer, of=after.answers: of[answer].in_words, worst=0),
        ]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("first", "second", "program"):
        parser.add_argument(name, type=Path)
    print("\n".join(report(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()

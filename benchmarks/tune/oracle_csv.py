"""Tuned files of benchmarks/gpu/oracle.py -> one CSV, and back to numbers.

    python benchmarks/tune/oracle_csv.py oracle/*.db -o benchmarks/results/DATE-GPU-tune/oracle.csv.xz
    python benchmarks/tune/oracle_csv.py earlier.csv.xz oracle/*.db -o oracle.csv.xz     # CSVs that it wrote are joined

One row a cell: program, op, params (NAME=VALUE ...), settings (bx=32 by=8), median, low and high in microseconds (95 %
interval of the median), launches, flush (bytes written before each launch), failure.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])

from dagc.choice.types import Case
from dagc.ir.choice import Choice
from dagc.store.tuned import load_tuned

COLUMNS = "program op params settings median_us low_us high_us launches flush failure".split()


@dataclass(frozen=True, slots=True)
class OracleCell:
    """One cell of the oracle; times in seconds."""

    program: str
    op: str
    case: Case
    choice: Choice
    seconds: float
    low: float
    high: float
    launches: int
    flush: int
    failure: str


def of_any(choice: Choice) -> Choice:
    """A block without the name of its op, to compare it with those of other ops."""
    return Choice(tuple(choice.own.items()))


def of_op(op: str, choice: Choice) -> Choice:
    """The block of an op."""
    return Choice.at(op, choice.own.items())


def read_oracle(path: Path) -> Iterator[OracleCell]:
    """The cells of a CSV that this script wrote, in its order."""
    with lzma.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            yield OracleCell(
                row["program"], row["op"], Case(_pairs(row["params"])), Choice.at(row["op"], _pairs(row["settings"])),
                float(row["median_us"] or "nan") * 1e-6, float(row["low_us"] or "nan") * 1e-6,
                float(row["high_us"] or "nan") * 1e-6, int(row["launches"]), int(row["flush"]), row["failure"],
            )  # fmt: skip


def _pairs(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(value)) for name, value in (word.split("=") for word in text.split()))


def rows_of(path: Path) -> Iterator[list[str]]:
    """The rows of a tuned file, or of a CSV."""
    if path.suffix == ".xz":
        with lzma.open(path, "rt", newline="") as file:
            yield from list(csv.reader(file))[1:]
        return
    tuned = load_tuned(path)
    for (cell, sample), flush in zip(tuned.samples, tuned.flushes, strict=True):
        low, high = sample.interval
        times = [f"{t * 1e6:.5g}" if sample.times else "" for t in (sample.value, low, high)]
        text = " ".join(f"{n}={v}" for n, v in cell.choice.own.items())
        yield [
            path.stem, cell.site, cell.case.text, text, *times, str(len(sample.times)), str(flush), sample.failure
        ]  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", dest="output", type=Path, required=True)
    args = parser.parse_args(words)
    rows = [row for path in args.files for row in rows_of(path)]  # all, before one of them is replaced
    with lzma.open(args.output, "wt", newline="", preset=9) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

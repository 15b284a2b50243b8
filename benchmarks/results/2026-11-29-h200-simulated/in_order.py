"""Pairs of implementations that differ by more than twice the noise, and how many are predicted in their order.

PYTHONPATH=. python benchmarks/results/2026-11-29-h200-simulated/in_order.py
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

from benchmarks.simulated import in_order

COLUMNS = ("predicted_us", "measured_us", "first_measurement_us", "median_of_two_others_us")

found = defaultdict(list)
with (Path(__file__).parent / "pairs.csv").open() as file:
    for row in csv.DictReader(file):
        found[row["program"], row["ranks"], row["traces_of"]].append([float(row[name]) for name in COLUMNS])
for (program, ranks, traced), rows in found.items():
    predicted, real, first, others = zip(*rows, strict=True)
    noise = median(abs(a - b) for a, b in zip(first, others, strict=True))
    right, apart = in_order(predicted, real, real, 2 * noise)
    again, _ = in_order(first, others, real, 2 * noise)
    print(
        f"{program} {ranks} ranks, traces of {traced}: noise {noise / median(real):.1%}, {apart} pairs,"
        f" predicted in order {right / apart:.1%}, the two measurements alike {again / apart:.1%}"
    )

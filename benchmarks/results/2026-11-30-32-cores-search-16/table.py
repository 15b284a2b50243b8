"""Losses of the searches in searches.csv.xz: of each set the mean of the first variant, and differences of pairs.

python table.py [SWEEP[,SWEEP]] [VARIANT ...]
"""

import csv
import lzma
import sys
from pathlib import Path
from statistics import fmean, stdev

sweeps = sys.argv[1].split(",") if len(sys.argv) > 1 else ["1", "2", "3"]
variants = sys.argv[2:] or ["base", "own12"]
columns = ("loss24", "loss50", "loss100", "loss200", "loss300", "confirmed", "shortlist", "measured")
with lzma.open(Path(__file__).parent / "searches.csv.xz", "rt") as file:
    rows = [row for row in csv.DictReader(file) if row["sweep"] in sweeps and row["variant"] in variants]
for which in dict.fromkeys(row["set"] for row in rows):
    of = {v: {(r["sweep"], r["machine"], r["seed"]): r for r in rows if (r["set"], r["variant"]) == (which, v)}
          for v in variants}  # fmt: skip
    both = sorted(set.intersection(*(set(found) for found in of.values() if found)))
    for variant, found in of.items():
        cells = []
        for column in columns:
            values = [float(found[key][column]) for key in both if found and found[key][column]]
            if not values:
                continue
            first = [float(of[variants[0]][key][column]) for key in both]
            apart = [b - a for a, b in zip(first, values, strict=True)]
            more = "" if variant == variants[0] else f" ({fmean(apart):+.2f} ± {stdev(apart) / len(apart) ** 0.5:.2f})"
            cells.append(f"{column} {fmean(values):.2f}{more}")
        last = "loss300" if both and found[both[0]]["loss300"] else "loss200"
        machines = sorted({key[1] for key in both})
        good = sum(fmean(float(found[k][last]) for k in both if k[1] == m) <= 1 for m in machines)
        print(f"{which} {variant}, {len(both)} searches, at most 1 % on {good} of {len(machines)}: {', '.join(cells)}")

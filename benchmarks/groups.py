"""Measurements of a search on several groups of ranks in the time of one, on the host target of this machine.

    python -m benchmarks.groups --out FOLDER [--ranks 2] [--groups 1 4] [--time 14] [--repeats 2]

For each strategy: searches of `samples/spmv` and `samples/halo3d`, one configuration each, after one that compiles.
Prints, and writes to FOLDER/groups.csv, the measurements of the search and of its confirmation, the seconds spent
in them and beside them, and what the best was confirmed to take.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
from pathlib import Path

from dagc.base.sample import BESIDE, CONFIRM
from dagc.store.records import load

SAMPLES = Path(__file__).parents[1] / "samples"
PROGRAMS = {
    "spmv": ["-D", "rows=20000", "-D", "staging=ops"],
    "halo3d": ["-D", "nx=32", "-D", "ny=32", "-D", "nz=32", "-D", "per_axis=false"],
}
FIXED = ["--target", "host", "--transport", "mpi_host", "--capture", "off", "--only", "orders", "--no-trace"]
SPENT = re.compile(r"^time +([\d.]+) s measuring, ([\d.]+) s", re.MULTILINE)
BEST = re.compile(r"^best +(.*)", re.MULTILINE)


def explored(program: str, out: Path, *options: str) -> str:
    file = SAMPLES / program / f"{program}.dag"
    words = ["explore", str(file), *PROGRAMS[program], *FIXED, "-o", str(out), *options]
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "dagc", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # progress is shown


def counted_in(out: Path) -> tuple[int, int]:
    """Measurements of the search, and of its confirmation."""
    purposes = [s.purpose for i in load(out).implementations for s in i.samples if s.purpose != BESIDE]
    return len(purposes) - purposes.count(CONFIRM), purposes.count(CONFIRM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--groups", type=int, nargs="+", default=(1, 4))
    parser.add_argument("--time", type=float, default=14)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS))
    parser.add_argument("--strategies", nargs="+", default=["random", "model"])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "groups.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["program", "strategy", "groups", "ranks", "searched", "confirmed", "measuring", "other", "best"]
        )
        for program in given.programs:
            out = given.out / f"{program}.db"
            explored(program, out, "-n", str(given.ranks), "--budget", "3", "--confirm", "0")
            print(program, "compiled", flush=True)
            for seed in range(given.repeats):
                for strategy in given.strategies:
                    for groups in given.groups:
                        text = explored(
                            program, out, "-n", str(given.ranks), "--groups", str(groups), "--strategy", strategy,
                            "--seed", str(seed), "--time", str(given.time),
                        )  # fmt: skip
                        (measuring, other), (best,) = SPENT.findall(text)[0], BEST.findall(text)
                        row = [program, strategy, groups, given.ranks, *counted_in(out), measuring, other, best]
                        table.writerow(row)
                        file.flush()
                        notes = [line[11:] for line in text.splitlines() if line.startswith("note") and "group" in line]
                        print(*row, *notes, sep=" | ", flush=True)


if __name__ == "__main__":
    main()

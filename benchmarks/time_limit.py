"""What `--time` promises and what a command takes: `python -m benchmarks.time_limit [--time 15] [--target host]`.

Each row is a command in a fresh process and an empty build cache: the limit, the seconds until its first measurement is
printed, the seconds of the whole command, imports included, the number of measurements, and what it left out. Rows of
`explore` and `tune`; `--ranks` is for the programs with messages. On a machine without a GPU, kernels run on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
EXPLORED = {
    "jacobi": ("jacobi/jacobi.dag", ("nx=2048", "rows=1024"), ("nx=256", "rows=256")),
    "jacobi, 16384^2": ("jacobi/jacobi.dag", ("nx=16384", "rows=8192"), ("nx=1024", "rows=512")),
    "halo3d": ("halo3d/halo3d.dag", ("nx=256", "ny=256", "nz=256"), ("nx=32", "ny=32", "nz=32")),
    "heat": ("heat/heat.dag", (), ()),
}
TUNED = {"gemm": "polybench/gemm.dag", "syrk": "polybench/syrk.dag"}
MEASURED = re.compile(r"measured +.*?(\d+) measurements?|, (\d+) settings measured")
LEFT_OUT = re.compile(r"note:? +(.*(?:--time|time limit).*)")


@dataclass(frozen=True, slots=True)
class Row:
    """One command: seconds of its limit, until its first measurement (None: no line said so) and in all."""

    command: str
    limit: float
    first: float | None
    seconds: float
    code: int
    measurements: int
    left_out: tuple[str, ...]

    def text(self) -> str:
        """A line of the table."""
        first = "-" if self.first is None else f"{self.first:.1f}"
        over = self.seconds - self.limit
        times = f"{self.command:28} {self.limit:7g} {first:>7} {self.seconds:8.1f} {over:+7.1f}"
        return f"{times} {self.measurements:7} {self.code:4}"


def measured(name: str, words: list[str], limit: float, verbose: bool) -> Row:
    """Run one command."""
    with tempfile.TemporaryDirectory(prefix="dagc-limit-") as folder:
        command = [sys.executable, "-m", "dagc", *words, "--time", f"{limit:g}s", "-o", f"{folder}/out.db"]
        began, first, out = time.monotonic(), None, []
        with subprocess.Popen(
            command, cwd=folder, env={**os.environ, "DAGC_CACHE": f"{folder}/cache"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                if first is None and line.startswith("first measurement: "):
                    first = time.monotonic() - began
                out.append(line.rstrip())
        seconds = time.monotonic() - began
    if verbose:
        print("\n".join(out), file=sys.stderr)
    text = "\n".join(out)
    found = MEASURED.search(text)
    number = int(found[1] or found[2]) if found else 0
    return Row(name, limit, first, seconds, child.returncode, number, tuple(LEFT_OUT.findall(text)))


def commands(target: str, ranks: int) -> dict[str, list[str]]:
    """The words of each command, by its name in the table."""
    out = {}
    for name, (path, cuda, host) in EXPLORED.items():
        sizes = [word for value in (cuda if target == "cuda" else host) for word in ("-D", value)]
        out[f"explore {name}"] = ["explore", str(SAMPLES / path), "-n", str(ranks), *sizes, "--target", target]
    for name, path in TUNED.items():
        out[f"tune {name}"] = ["tune", str(SAMPLES / path), "--target", target]
    return out


def main() -> int:
    """Print a row for each command; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=15.0, help="seconds (default: 15)")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--verbose", action="store_true", help="print what the commands print")
    args = parser.parse_args()
    print(f"{'command':28} {'limit s':>7} {'first s':>7} {'took s':>8} {'over s':>7} {'number':>7} {'exit':>4}")
    rows = []
    for name, words in commands(args.target, args.ranks).items():
        if args.only not in name:
            continue
        rows.append(measured(name, words, args.time, args.verbose))
        print(rows[-1].text(), *(f"\n    {note[:140]}" for note in rows[-1].left_out), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(any(row.code for row in rows))


if __name__ == "__main__":
    sys.exit(main())

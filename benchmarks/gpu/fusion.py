"""The fastest implementation of programs for each way to fuse their launches, on one GPU with one rank.

    python -m benchmarks.gpu.fusion --out DIR [--seconds 14] [--case NAME ...] [--target host]

All programs are built first, side by side; then each is searched for some seconds, with its forms, launch settings,
orders and fusion. Prints CSV: case, fusion, microseconds of the fastest, implementations measured, settings. Results
files and logs stay in DIR. With compute-sanitizer installed, `--sanitize` also runs memcheck and racecheck on small
fused programs.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dagc.ir.choice import FUSE
from dagc.store.read import load

ROOT = Path(__file__).parents[2]
LIMIT = 300  # seconds to build a program


@dataclass(frozen=True, slots=True)
class Case:
    """A program at a size, and the launches that may be fused in it."""

    program: str
    sizes: Mapping[str, int]
    groups: Sequence[str]
    transport: str = "peer"

    def options(self, seconds: float | None, target: str) -> list[str]:
        transport = ["--transport", self.transport if target == "cuda" else "mpi_cuda"] if self.transport else []
        defines = [word for name, value in self.sizes.items() for word in ("-D", f"{name}={value}")]
        opened = [word for name in self.groups for word in ("--open", f"{FUSE}{name}")]
        until = ["--budget", "1", "--confirm", "0"] if seconds is None else ["--time", f"{seconds:g}s"]
        fixed = ["-n", "1", "--target", target, "--forms", "on", "--launch", "search", *transport, "--quiet"]
        return [str(ROOT / self.program), *defines, *opened, *fixed, *until]


HALO, JACOBI, VECTORS = "samples/halo3d/halo3d.dag", "samples/jacobi/jacobi.dag", "benchmarks/gpu/vectors.dag"
FACES = ("pack", "unpack")
CASES = {
    **{f"halo{n}": Case(HALO, {"nx": n, "ny": n, "nz": n}, FACES) for n in (64, 128)},
    "jacobi2048": Case(JACOBI, {"rows": 2048, "nx": 2048}, ("first_last_inner",)),
    "vectors1e5": Case(VECTORS, {"side": 100_000}, ("b_c_d",), ""),
    "vectors1e7": Case(VECTORS, {"side": 10_000_000}, ("b_c_d",), ""),
    "cg": Case("samples/cg/cg.dag", {"side": 700, "streams": 2}, ("mv_local_mv_remote",), "nccl"),
}
SMALL: dict[str, tuple[str, dict[str, int]]] = {  # for the sanitizer: a program, and its sizes and fusion
    "faces": (HALO, {"nx": 9, "ny": 10, "nz": 11, "fuse.pack": 1, "fuse.unpack": 1, "threads[x]": 256}),
    "rows": (JACOBI, {"rows": 66, "nx": 131, "steps": 2, "fuse.first_last_inner": 2, "first_last_inner.form.wide": 4}),
    "vectors": (VECTORS, {"side": 1001, "fuse.b_c_d": 1, "b_c_d.form.freedom": 2}),
}


def explore(name: str, out: Path, seconds: float | None, target: str) -> bool:
    """Whether it succeeded; its log is in a file."""
    file = out / (f"{name}-build.db" if seconds is None else f"{name}.db")
    with (out / f"{file.stem}.txt").open("w") as log:
        command = [sys.executable, "-m", "dagc", "explore", *CASES[name].options(seconds, target), "-o", str(file)]
        with suppress(subprocess.TimeoutExpired):
            ran = subprocess.run(command, check=False, stdout=log, stderr=log, timeout=LIMIT + (seconds or 0))
            return ran.returncode == 0
    return False


def rows(name: str, file: Path) -> list[str]:
    """A row for each way to fuse its launches."""
    best: dict[str, tuple[int, float, str]] = {}
    for one in load(file).measured():
        own = dict(one.configuration.decisions)
        fusion = " ".join(f"{n}={v}" for n, v in own.items() if n.startswith(FUSE))
        shown = " ".join(f"{n}={v}" for n, v in own.items() if "." in n and not n.startswith(FUSE))
        count, seconds, settings = best.get(fusion, (0, math.inf, ""))
        value = one.value()
        if value < seconds:
            seconds, settings = value, f"capture={own['capture']} {shown}"
        best[fusion] = count + 1, seconds, settings
    return [
        f"{name},{fusion},{s * 1e6:.3f},{count},{settings}" for fusion, (count, s, settings) in sorted(best.items())
    ]


def sanitize(name: str, out: Path) -> list[str]:
    """Lines on what the sanitizer says of a fused program. Raises subprocess.CalledProcessError."""
    program, values = SMALL[name]
    defines = [word for n, value in values.items() for word in ("-D", f"{n}={value}")]
    built, data, path = out / f"san-{name}", out / f"data-{name}", str(ROOT / program)
    dagc = [sys.executable, "-m", "dagc"]
    subprocess.run([*dagc, "compile", path, *defines, "--target", "cuda", "-o", str(built)], check=True)
    subprocess.run([*dagc, "setup", path, *defines, "-n", "1", "-o", str(data)], check=True)
    found = []
    for tool in ("memcheck", "racecheck"):
        command = ["compute-sanitizer", "--tool", tool, str(built / "bench"), "--data", str(data)]
        ran = subprocess.run(
            [*command, "--seconds", "0.001", "--repeats", "1"], check=False, capture_output=True, text=True
        )
        said = [line for line in ran.stdout.splitlines() if "SUMMARY" in line]
        found.append(f"# {name} {tool}: exit {ran.returncode} {' '.join(said)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=14)
    parser.add_argument("--case", action="append", choices=list(CASES), help="(default: all)")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--sanitize", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names = args.case or list(CASES)
    with ThreadPoolExecutor(max(1, min(len(names), (os.cpu_count() or 1) // 2))) as pool:
        list(pool.map(lambda name: explore(name, args.out, None, args.target), names))
    print("case,fusion,us,measured,settings", flush=True)
    for name in names:
        done = explore(name, args.out, args.seconds, args.target)
        found = rows(name, args.out / f"{name}.db") if done else [f"# {name}: failed, see {args.out / name}.txt"]
        print(*found, sep="\n", flush=True)
    if args.sanitize and shutil.which("compute-sanitizer"):
        for name in SMALL:
            print(*sanitize(name, args.out), sep="\n", flush=True)


if __name__ == "__main__":
    main()

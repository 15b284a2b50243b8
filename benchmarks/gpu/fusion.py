"""The fastest implementation of programs for each way to fuse their launches, on one GPU with one rank.

    python -m benchmarks.gpu.fusion --out DIR [--seconds 10] [--case NAME ...] [--target host]

Each program is searched in two ways: once for each way to fuse, with the launch settings of the text and without other
forms, which needs one build ("orders"); and for some seconds with forms, launch settings, orders and fusion, each of
which may need one ("all"). The programs of a way are built first, side by side, and those of "all" after the rows of
"orders". Prints CSV: case, search, fusion, microseconds of the fastest, implementations measured, settings. Results
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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from dagc.ir.choice import FUSE
from dagc.store.read import load

ROOT = Path(__file__).parents[2]
LIMIT = 300  # seconds to build a program


@dataclass(frozen=True, slots=True)
class Case:
    """A program at a size, and the launches that may be fused in it: the values of each group."""

    program: str
    sizes: Mapping[str, int]
    groups: Mapping[str, int]
    transport: str = "peer"

    @property
    def ways(self) -> list[dict[str, int]]:
        return [dict(zip(self.groups, values, strict=True)) for values in product(*map(range, self.groups.values()))]

    def options(self, way: Mapping[str, int] | None, seconds: float | None, target: str) -> list[str]:
        """Of one way to fuse, or of a search of all with forms. `seconds`: None only builds."""
        transport = ["--transport", self.transport if target == "cuda" else "mpi_cuda"] if self.transport else []
        defines = [word for name, value in self.sizes.items() for word in ("-D", f"{name}={value}")]
        if way is None:
            searched = [word for name in self.groups for word in ("--open", f"{FUSE}{name}")]
            searched += ["--forms", "on", "--launch", "search"]
        else:
            searched = [word for name, value in way.items() for word in ("-D", f"{FUSE}{name}={value}")]
            searched += ["--forms", "off", "--launch", "fixed"]
        until = ["--time", f"{seconds:g}s"] if seconds else ["--budget", "1"]
        until = ["--budget", "16", "--repeats", "3"] if seconds and way is not None else until
        fixed = ["-n", "1", "--target", target, *transport, "--no-trace", "--quiet"]
        return [str(ROOT / self.program), *defines, *searched, *fixed, *until]


HALO, JACOBI, VECTORS = "samples/halo3d/halo3d.dag", "samples/jacobi/jacobi.dag", "benchmarks/gpu/vectors.dag"
FACES = {"pack": 2, "unpack": 2}
CASES = {
    **{f"halo{n}": Case(HALO, {"nx": n, "ny": n, "nz": n}, FACES) for n in (64, 128)},
    "jacobi2048": Case(JACOBI, {"rows": 2048, "nx": 2048}, {"first_last_inner": 3}),
    "vectors1e5": Case(VECTORS, {"side": 100_000}, {"b_c_d": 2}, ""),
    "vectors1e7": Case(VECTORS, {"side": 10_000_000}, {"b_c_d": 2}, ""),
    "cg": Case("samples/cg/cg.dag", {"side": 700, "streams": 2}, {"mv_local_mv_remote": 2}),
}
SMALL: dict[str, tuple[str, dict[str, int]]] = {  # for the sanitizer: a program, and its sizes and fusion
    "faces": (HALO, {"nx": 9, "ny": 10, "nz": 11, "fuse.pack": 1, "fuse.unpack": 1, "threads[x]": 256}),
    "rows": (JACOBI, {"rows": 66, "nx": 131, "steps": 2, "fuse.first_last_inner": 2, "first_last_inner.form.wide": 4}),
    "vectors": (VECTORS, {"side": 1001, "fuse.b_c_d": 1, "b_c_d.form.freedom": 2}),
}


def explore(name: str, way: Mapping[str, int] | None, out: Path, seconds: float | None, target: str) -> Path | None:
    """Its results file; its log is beside it."""
    file = out / f"{'-'.join([name, *(f'{n}{v}' for n, v in (way or {}).items())])}{'' if seconds else '-build'}.db"
    with file.with_suffix(".txt").open("w") as log:
        command = [sys.executable, "-m", "dagc", "explore", *CASES[name].options(way, seconds, target), "-o", str(file)]
        with suppress(subprocess.TimeoutExpired):
            ran = subprocess.run(command, check=False, stdout=log, stderr=log, timeout=LIMIT + (seconds or 0))
            return file if ran.returncode == 0 else None
    return None


def rows(name: str, search: str, file: Path | None) -> list[str]:
    """A row for each way to fuse its launches."""
    if file is None:
        return [f"# {name} {search}: failed, see its log"]
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
        f"{name},{search},{fusion},{s * 1e6:.3f},{count},{settings}"
        for fusion, (count, s, settings) in sorted(best.items())
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
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--case", action="append", choices=list(CASES), help="(default: all)")
    parser.add_argument("--target", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--sanitize", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names = args.case or list(CASES)
    searches: dict[str, list[tuple[str, dict[str, int] | None]]] = {
        "orders": [(name, way) for name in names for way in CASES[name].ways],
        "all": [(name, None) for name in names],
    }
    print("case,search,fusion,us,measured,settings", flush=True)
    for search, some in searches.items():
        with ThreadPoolExecutor(max(1, min(len(some), (os.cpu_count() or 1) // 2))) as pool:
            list(pool.map(lambda one: explore(*one, args.out, None, args.target), some))
        for name, way in some:
            print(*rows(name, search, explore(name, way, args.out, args.seconds, args.target)), sep="\n", flush=True)
    if args.sanitize and shutil.which("compute-sanitizer"):
        for name in SMALL:
            print(*sanitize(name, args.out), sep="\n", flush=True)


if __name__ == "__main__":
    main()

"""Every variant of samples/spmv/kernels/spmv.dag on generated matrices: right or wrong, and its time.

    python -m benchmarks.gpu.spmv_kernels --out "$OUT" [--limit SECONDS] [--large] [VARIANT ...]

Builds a program for each variant, at once; sets the matrices up, at once; then measures one after the other (warm,
medians of five). Writes OUT/spmv-kernels.txt, a table with times in us (`wrong`, `-` where a `require` fails, `!` for
another failure) and GB/s of what CSR reads, as it goes, and OUT/spmv-kernels.json. With `--target host`, a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean

PROGRAM = "samples/spmv/variants.dag"
VARIANTS = (
    "thread_per_row", "lanes_per_row:2", "lanes_per_row:4", "lanes_per_row:8", "lanes_per_row:16", "warp_per_row",
    "block_per_row", "merge", "segmented", "ell", "sell", "dia", "binned", "cusparse1", "cusparse2",
)  # fmt: skip
MATRICES = (
    "dense_band(rows = 1_000, half = 1)", "stencil(points = 5, side = 100)", "stencil(points = 5, side = 1000)",
    "stencil(points = 7, side = 100)", "stencil(points = 27, side = 90)",
    "stencil(points = 7, side = 100, shuffled = True)",
    "dense_band(rows = 200_000, half = 20)", "band(rows = 1_000_000, half = 125_000, per_row = 10)",
    "band(rows = 4_000_000, half = 500_000, per_row = 10)", "uniform(rows = 1_000_000, per_row = 12)",
    "uniform(rows = 100_000, per_row = 3, cols = 1_000_000)", "uniform(rows = 1_000_000, per_row = 3, cols = 10_000)",
    "blocks(rows = 300_000, size = 32)", "fem(side = 40, dof = 3)", "zipf(rows = 1_000_000, mean = 11, exponent = 1.9)",
    "rmat(scale = 19, edges = 12)", "arrow(rows = 1_000_000, width = 1)",
    "long_rows(rows = 1_000_000, per_row = 5, long = 4)",
    "circuit(rows = 500_000)", "staircase(rows = 100_000, longest = 200)",
    "sparse_rows(rows = 1_000_000, share = 0.02, per_row = 8)",
    "two_lengths(rows = 500_000, short = 3, long = 300)", "dense(rows = 2_000, cols = 4_000)",
)  # fmt: skip
LARGE = (
    "band(rows = 7_500_000, half = 1_875_000, per_row = 10)", "uniform(rows = 8_000_000, per_row = 12)",
    "stencil(points = 7, side = 250)", "zipf(rows = 5_000_000, mean = 20)",
)  # fmt: skip


def run(command: list[str], limit: float) -> tuple[int, str]:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return 124, "no answer in time"
    return done.returncode, done.stdout + done.stderr


def build(variant: str, target: str, folder: Path) -> tuple[int, str]:
    name, _, lanes = variant.partition(":")
    chosen = ["-D", f"y.variant={name}", *(["-D", f"y.lanes={lanes}"] if lanes else [])]
    chosen += ["-D", "y.block=256"] if name.endswith("_per_row") else []
    where = folder / variant.replace(":", "-")
    return run([sys.executable, "-m", "dagc", "compile", PROGRAM, "--target", target, "-o", str(where), *chosen], 500)


def set_up(matrix: str, where: Path) -> tuple[int, str]:
    if (where / "setup.json").is_file():
        return 0, ""
    return run(
        [sys.executable, "-m", "dagc", "setup", PROGRAM, "-n", "1", "-o", str(where), "-D", f"matrix={matrix}"], 300
    )


def measure(program: Path, data: Path, scratch: Path) -> tuple[str, float]:
    """(what to print, seconds)"""
    result = scratch / "time.json"
    result.unlink(missing_ok=True)
    code, text = run(
        [str(program / "bench"), "--data", str(data), "--repeats", "5", "--seconds", "0.004", "--json", str(result)], 60
    )
    if code == 0:
        seconds = json.loads(result.read_text())["time"]["statistics"]["median"]
        return f"{seconds * 1e6:.1f}", seconds
    if "require" in text:
        return "-", float("inf")
    print(f"{program.name} {data.name}: exit code {code}: {text.strip()[-400:]}", flush=True)
    return ("wrong" if code == 1 else "!"), float("inf")


def sizes(data: Path) -> tuple[int, int]:
    import numpy as np

    n, nnz = (int(np.load(next(data.glob(f"rank-0000/{name}.npy")))) for name in ("n", "nnz"))
    return n, nnz


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=540, help="seconds; what is left out is named")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--large", action="store_true", help="only matrices of 7.5e7 non-zeros and more")
    parser.add_argument("--matrix", action="append", help="these instead")
    parser.add_argument("variants", nargs="*", default=VARIANTS)
    args = parser.parse_args()
    start = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    table, records = args.out / "spmv-kernels.txt", []
    matrices = args.matrix or (LARGE if args.large else MATRICES)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(args.jobs) as pool, table.open("w") as out:
        folder = Path(temporary)
        built: dict[str, Future[tuple[int, str]]] = {
            v: pool.submit(build, v, args.target, folder) for v in args.variants
        }
        data = {m: pool.submit(set_up, m, folder / f"data-{i}") for i, m in enumerate(matrices)}
        programs = []
        for variant, future in built.items():
            code, text = future.result()
            if code:
                print(f"{variant} is not built: {text[-2000:]}", flush=True)
            else:
                programs.append(variant)
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)
        speeds = []
        for i, matrix in enumerate(matrices):
            code, text = data[matrix].result()
            if code or time.monotonic() - start > args.limit:
                print(f"left out: {matrix}: {text[-500:] if code else 'no time'}", flush=True)
                continue
            where = folder / f"data-{i}"
            n, nnz = sizes(where)
            times = {v: measure(folder / v.replace(":", "-"), where, folder) for v in programs}
            records.append({"matrix": matrix, "n": n, "nnz": nnz, "us": {v: t[0] for v, t in times.items()}})
            best = min(times, key=lambda v: times[v][1])
            rival = min((times[v][1] for v in times if v.startswith("cusparse")), default=float("inf"))
            own = min((times[v][1] for v in times if not v.startswith("cusparse")), default=float("inf"))
            if rival < float("inf") and own < float("inf"):
                speeds.append(rival / own)
            speed = (8 * nnz + 8 * n) / times[best][1] / 1e9
            line = f"{matrix}: n {n}, nnz {nnz}; best {best}, {speed:.0f} GB/s; cuSPARSE / own {rival / own:.2f}"
            print(line, flush=True)
            print(line + "\n    " + "  ".join(f"{v} {t[0]}" for v, t in times.items()), file=out, flush=True)
            (args.out / "spmv-kernels.json").write_text(json.dumps(records, indent=1))
        if speeds:
            print(f"cuSPARSE / own, geometric mean of {len(speeds)}: {geometric_mean(speeds):.2f}", file=out)


if __name__ == "__main__":
    main()

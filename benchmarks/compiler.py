"""Speed of the compiler's own work: `python benchmarks/compiler.py [--json F] [--peer TREE]`.

With --peer, whole commands of this tree and of another checkout of dagc, in turns, in seconds of the CPU (user and
system, of the process and those that it starts), which other load of the machine disturbs less than the time.
`git worktree add --detach TREE REVISION` makes the other checkout. Each row has the medians of both, and the median of
the ratios of neighbouring runs with its 95% interval.

Without it, each row has its peer or bound in the same run where there is one that runs here: the naive enumeration of
the tests for the space, an empty interpreter for the commands. Figures of other programs are quoted as such.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SPMV = ROOT / "samples" / "spmv" / "spmv.dag"
HALO = ROOT / "samples" / "halo3d" / "halo3d.dag"


def timed(work: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls."""
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        out.append(time.perf_counter() - start)
    return out


def command(*words: str) -> Callable[[], Any]:
    return lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT)


def halo_in_a_process() -> tuple[float, float]:
    """(seconds, peak MiB) of counting the halo exchange, imports included, in a fresh process."""
    code = (
        "import resource, dagc;"
        f"print(dagc.load_space({str(HALO)!r}, {{'transport': 'mpi_cuda', 'streams': 2}}).count());"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    seconds = time.perf_counter() - start
    count, peak = done.stdout.split()
    assert int(count) == 5367658504764649454197598361600000, count
    return seconds, float(peak)


# ---- whole commands of two trees -----------------------------------------------------------------

TREE, OUT = "@tree", "@out"  # in a command: the checkout, and a new file or folder
MANY = """program many
param rows : i64 = 10
array a, b, c, d : f32[rows] inout
kernel k(a: inout f32[n], n: i64) { gpu { launch grid(1) block(32) cuda \"\"\" a[0] += 1; \"\"\" } }
dag { for i in 0..2500 { p[i] : gpu k(a, rows) q[i] : gpu k(b, rows) r[i] : gpu k(c, rows) s[i] : gpu k(d, rows) } }
"""
COMMANDS = {
    "python -c pass": "-c pass",
    "dagc --help": "-m dagc --help",
    "dagc check, SpMV": "-m dagc check @tree/samples/spmv/spmv.dag",
    "dagc check, 10 000 ops": "-m dagc check @many",
    "dagc count, SpMV": "-m dagc count --quiet @tree/samples/spmv/spmv.dag",
    "dagc count, halo exchange": "-m dagc count --quiet @tree/samples/halo3d/halo3d.dag"
    " -D transport=mpi_cuda --streams 2",
    "dagc list, 2036 of the SpMV": "-m dagc list --plain @tree/samples/spmv/spmv.dag -D transport=mpi_cuda --streams 2",
    "dagc compile --no-build, SpMV": "-m dagc compile @tree/samples/spmv/spmv.dag --no-build --target host -o @out",
    "dagc tune, three sizes of GEMM, no GPU": "-m dagc tune @tree/samples/polybench/gemm.dag --quiet --target cuda"
    " --gpu h200 --top 0 --sizes NI=NJ=NK=512,1024,2048 -o @out",
    "dagc tune, host target, GEMM": "-m dagc tune @tree/samples/polybench/gemm.dag --quiet --target host --top 2"
    " --sizes NI=NJ=NK=32,64 -o @out",
}


def cpu_seconds(words: list[str], tree: Path, folder: Path) -> float:
    """Of a command in an empty folder, with the cache of this tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "DAGC_CACHE": str(cache_of(tree, folder))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        places = {TREE: str(tree), OUT: f"{empty}/out", "@many": str(folder / "many.dag")}
        for name, place in places.items():
            words = [word.replace(name, place) for word in words]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], env=environment, cwd=empty, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cache_of(tree: Path, folder: Path) -> Path:
    """Two trees may have the same name in different folders."""
    return folder / f"cache-{sha256(bytes(tree)).hexdigest()[:16]}"


def compare(peer: Path, repeats: int, only: str) -> list[dict[str, Any]]:
    """Rows of all commands whose names contain `only`, printed as they are measured."""
    from dagc.base.statistics import interval

    rows = []
    print(f"{'CPU seconds':40} {'peer':>8} {'here':>8} {'here/peer':>10}  95% interval")
    with tempfile.TemporaryDirectory(prefix="dagc-") as name:
        folder = Path(name)
        (folder / "many.dag").write_text(MANY)
        trees = {"peer": peer.resolve(), "here": ROOT}
        for tree in trees.values():
            cache_of(tree, folder).mkdir(mode=0o700, exist_ok=True)
        for work, line in COMMANDS.items():
            if only not in work:
                continue
            for tree in trees.values():  # fills the caches
                cpu_seconds(line.split(), tree, folder)
            pairs = [{k: cpu_seconds(line.split(), t, folder) for k, t in trees.items()} for _ in range(repeats)]
            ratios = [pair["here"] / pair["peer"] for pair in pairs]
            low, high = interval(ratios)
            here, there = (statistics.median(pair[key] for pair in pairs) for key in ("here", "peer"))
            ratio = statistics.median(ratios)
            print(f"{work:40} {there:8.3f} {here:8.3f} {ratio:10.2f}  {low:.2f} to {high:.2f}", flush=True)
            rows.append({"work": work, "command": line, "pairs": pairs, "ratio": ratio, "interval": [low, high]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the record there")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="(default: 7)")
    parser.add_argument("--peer", type=Path, metavar="TREE", help="compare commands with those of another checkout")
    parser.add_argument("--only", default="", metavar="TEXT", help="with --peer: commands whose names contain TEXT")
    args = parser.parse_args()
    if args.peer is not None and not (args.peer / "dagc" / "__main__.py").exists():
        parser.error(f"argument --peer: {args.peer} is not a checkout of dagc")
    if args.peer is not None:
        write_record(args.json, compare(args.peer, args.repeats, args.only))
    else:
        write_record(args.json, measure(args.repeats))


def write_record(path: str | None, rows: list[dict[str, Any]]) -> None:
    import dagc

    if path is not None:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "dagc": dagc.__version__,
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
            "rows": rows,
        }
        Path(path).write_text(json.dumps(record, indent=1) + "\n")


def measure(repeats: int) -> list[dict[str, Any]]:
    """Rows of the work of this tree alone, printed."""
    import dagc
    from dagc.space import Space
    from dagc.space.proof import Prover
    from tests.graphs import make_graph
    from tests.space.naive import all_traversals

    def count() -> None:
        assert dagc.load_space(SPMV, {"transport": "mpi_cuda", "streams": 2}).count() == 2036

    graph4 = dagc.load_graph(SPMV, {"transport": "mpi_cuda", "streams": 4})

    def enumerate4() -> None:
        assert sum(1 for _ in Space(graph4)) == 10517

    space2 = dagc.load_space(SPMV, {"transport": "mpi_cuda", "streams": 2})
    every = list(space2)

    def prove() -> None:
        prover = Prover(space2.graph)
        assert all(map(prover.proved, every))

    small = make_graph([("a", True), ("b", True), ("c", True), ("d", False)], [("a", "b"), ("c", "d")], 2)
    rows: list[tuple[str, str, list[float], str]] = [
        ("count the SpMV, 2 streams, from the text, in process", "goal 0.1 s", timed(count, repeats), ""),
        ("enumerate 10517 (4 streams)", "goal 0.5 s; Tenzing 41 s (quoted)", timed(enumerate4, repeats), ""),
        ("prove all 2036", "goal 0.1 s", timed(prove, repeats), ""),
        ("enumerate 142 of a small graph", "", timed(lambda: list(Space(small)), repeats), ""),
        ("  peer: naive enumeration of the same 142", "", timed(lambda: all_traversals(small), repeats), ""),
        ("dagc --help", "goal 0.2 s", timed(command("-m", "dagc", "--help"), repeats), ""),
        ("  bound: python -c pass", "", timed(command("-c", "pass"), repeats), ""),
        ("dagc count spmv.dag, the command", "", timed(command("-m", "dagc", "count", str(SPMV)), repeats), ""),
    ]
    out = ROOT / "build" / "benchmark-compile"
    compile_ = command("-m", "dagc", "compile", str(SPMV), "--no-build", "--target", "host", "-o", str(out))
    rows.append(("dagc compile --no-build of the SpMV", "goal 1 s", timed(compile_, repeats), ""))
    halo = [halo_in_a_process() for _ in range(3)]
    peak = max(p for _, p in halo)
    rows.append(
        ("count the 3D halo exchange, 2 streams", "goal 10 s, 100 MiB", [s for s, _ in halo], f"{peak:.0f} MiB")
    )

    print(f"{'work':55} {'median s':>10} {'min':>10} {'max':>10}  against")
    for name, against, seconds, note in rows:
        middle = statistics.median(seconds)
        print(f"{name:55} {middle:10.4f} {min(seconds):10.4f} {max(seconds):10.4f}  {against} {note}")
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return [{"work": n.strip(), "against": a, "seconds": s, "note": x} for n, a, s, x in rows]


if __name__ == "__main__":
    main()

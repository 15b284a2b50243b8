"""Speed of the compiler's own work: `python benchmarks/compiler.py [--json F]`.

Each row has its peer or bound in the same run where there is one that runs here: the naive enumeration of the tests
for the space, an empty interpreter for the commands. Figures of other programs are quoted as such.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the record there")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="(default: 7)")
    args = parser.parse_args()

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
        ("count the SpMV, 2 streams, from the text, in process", "goal 0.1 s", timed(count, args.repeats), ""),
        ("enumerate 10517 (4 streams)", "goal 0.5 s; Tenzing 41 s (quoted)", timed(enumerate4, args.repeats), ""),
        ("prove all 2036", "goal 0.1 s", timed(prove, args.repeats), ""),
        ("enumerate 142 of a small graph", "", timed(lambda: list(Space(small)), args.repeats), ""),
        ("  peer: naive enumeration of the same 142", "", timed(lambda: all_traversals(small), args.repeats), ""),
        ("dagc --help", "goal 0.2 s", timed(command("-m", "dagc", "--help"), args.repeats), ""),
        ("  bound: python -c pass", "", timed(command("-c", "pass"), args.repeats), ""),
        ("dagc count spmv.dag, the command", "", timed(command("-m", "dagc", "count", str(SPMV)), args.repeats), ""),
    ]
    out = ROOT / "build" / "benchmark-compile"
    compile_ = command("-m", "dagc", "compile", str(SPMV), "--no-build", "--target", "host", "-o", str(out))
    rows.append(("dagc compile --no-build of the SpMV", "goal 1 s", timed(compile_, args.repeats), ""))
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
    if args.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "dagc": dagc.__version__,
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
            "rows": [{"work": n.strip(), "against": a, "seconds": s, "note": x} for n, a, s, x in rows],
        }
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Time to place ops on devices: `python benchmarks/choice/placement.py [--json F]`.

placement.hpp beside the shortest path in the graph of MLCD (figure 3) and Dijkstra's algorithm, all in C++; called
from Python; and NetworkX, where that is installed. Every way gives the same seconds, or the program fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from dagc.choice.placement import HOST, Problem, Value, place, two_way

FLAGS = ("-std=c++17", "-O3", "-march=native", "-I", str(ROOT / "templates/runtime"))
ROUNDS = 20


def in_cpp() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "placement"
        source = Path(__file__).with_suffix(".cpp")
        subprocess.run(["g++", *FLAGS, str(source), "-o", str(program)], check=True)
        lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    rows = (line.split("\t") for line in lines)
    return [{"what": what, "ops": int(ops), "us": float(ns) / 1000} for what, ops, ns in rows]


def chain(n: int, draw: random.Random) -> Problem:
    """As `chain` of placement.cpp."""
    seconds = tuple((draw.expovariate(1e3), draw.expovariate(2e3)) for _ in range(n))
    values = []
    for i in range(n + 1):
        moves = two_way(*[draw.expovariate(1e4)] * 2)
        readers, ends = ((i,), ()) if i < n else ((), (HOST,))
        values.append(Value(i - 1 if i else None, readers, moves, ends=ends))
    return Problem(seconds, tuple(values))


def median_us(work: Callable[[Problem], Any], problems: list[Problem]) -> float:
    times = []
    for problem in problems:
        start = time.perf_counter()
        work(problem)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def network(problem: Problem) -> Any:
    """A chain as a network whose minimum cut is the placement."""
    import networkx as nx

    capacities: dict[tuple[Any, Any], float] = {}

    def edge(a: Any, b: Any, capacity: float) -> None:
        capacities[a, b] = capacities.get((a, b), 0.0) + capacity

    for op, (host, device) in enumerate(problem.seconds):
        edge(op, "device", host)
        edge("host", op, device)
    for v in problem.values:
        a, b = "host" if v.producer is None else v.producer, v.readers[0] if v.readers else "host"
        edge(a, b, v.moves[0][1])
        edge(b, a, v.moves[1][0])
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(((a, b, c) for (a, b), c in capacities.items()), weight="capacity")
    return graph


def in_python(n: int) -> list[dict[str, Any]]:
    draw = random.Random(17)
    problems = [chain(n, draw) for _ in range(ROUNDS)]
    rows = [{"what": "chain, called from Python", "ops": n, "us": median_us(place, problems)}]
    try:
        import networkx as nx
    except ImportError:
        return rows

    def cut(problem: Problem) -> float:
        seconds: float = nx.minimum_cut_value(network(problem), "host", "device")
        return seconds

    for problem in problems:
        assert abs(cut(problem) - place(problem).seconds) < 1e-9
    name = f"chain, minimum cut, NetworkX {nx.__version__}, network included"
    return [*rows, {"what": name, "ops": n, "us": median_us(cut, problems)}]


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    version = subprocess.run(["g++", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    return f"{cpu}, one core; g++ {version} {' '.join(FLAGS[:3])}; Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the record there")
    args = parser.parse_args()
    rows = [*in_cpp(), *in_python(10), *in_python(100)]
    for row in rows:
        print(f"{row['what']:70} {row['ops']:5} {row['us']:12.3f} us")
    print(machine())
    if args.json:
        git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        revision = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        record = {"machine": machine(), "revision": revision, "rows": rows}
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

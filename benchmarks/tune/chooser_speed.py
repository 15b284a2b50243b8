"""How long a compiled chooser takes: asked again for the same sizes, and for new ones (51 or 6 evaluations).

Beside it one evaluation of the model over all settings in NumPy, the parts that depend on the settings alone computed
before.

    python -m benchmarks.tune.chooser_speed            # needs gcc
    python -m benchmarks.tune.chooser_speed --selectors TABLE.csv

One line a kernel, nanoseconds a call, the best of five rounds of 20 000 (same sizes) and 500 calls (new sizes each).
With a table of variants (`benchmarks.tune.variants`): each learned method, trained on it, asked 50 000 vectors; CPU
time.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.tune.variants import Table, read_table
from dagc import api
from dagc.choice.choose import Chooser, emitted
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.methods import LEARNED
from dagc.choice.models import site_chooser
from dagc.choice.selector import Selector, c_head
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.hardware import load_hardware
from dagc.study.train import train

FLAGS = ("-std=c99", "-O3", "-ffp-contract=off")
SAMPLES = Path(__file__).parents[2] / "samples" / "polybench"
PROBE = """
#include <time.h>
double {function}_probe(int calls, int fresh) {{
  struct timespec a, b;
  int64_t sum = 0;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < calls; ++i) {{
    volatile int64_t n = 1000 + (fresh ? i : 0);
    const double features[] = {{ {features} }};
    sum += {function}(features).answer;
  }}
  clock_gettime(CLOCK_MONOTONIC, &b);
  (void)sum;
  return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / calls;
}}
"""


def numpy_us(chooser: Chooser) -> float:
    """Microseconds of one evaluation for all settings, the best of 50."""
    assert chooser.model is not None
    names = {p.name for p in chooser.model.parameters}
    model = PartialEvaluator(chooser.model, {n: np.array(v) for n, v in chooser.columns if n in names})
    sizes = {n: 1000 for n in chooser.data if n in names}
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        model(sizes)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


MIXED = 50_000  # vectors of features, training inputs at random
ASK = """
double ask_probe(const double* rows, int count, int rounds) {{
  struct timespec a, b;
  int64_t sum = 0;
  double sure = 0;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  for (int i = 0; i < rounds; ++i)
    for (int k = 0; k < count; ++k) {{
      __asm__ volatile("" ::: "memory"); /* each answer anew */
      sum += dagc_select_ask(rows + k * {features}, &sure);
    }}
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  volatile int64_t used = sum;
  (void)used;
  return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / rounds / count;
}}
"""


def trained_on(table: Table, method: str) -> Selector:
    """A learned method, trained on all inputs of a table."""
    return train(method, table.training(range(len(table.times))).merged)


def compiled_ns(table: Table, selector: Selector) -> tuple[float, int]:
    """CPU time of one answer of its C in nanoseconds, at the inputs of a table in random order, and bytes of C."""
    order = np.random.default_rng(1).integers(0, len(table.vectors), MIXED)  # a branch that is foreseen costs nothing
    mixed = np.ascontiguousarray(np.array(table.vectors, float)[order])
    rows, text = mixed.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), selector.c_text("ask")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "ask.c", Path(folder) / "ask.so"
        probe = "#include <time.h>\n" + ASK.format(features=len(table.features))
        source.write_text("#define _POSIX_C_SOURCE 199309L\n" + c_head() + text + probe)
        subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
        ask = ctypes.CDLL(str(library)).ask_probe
        ask.restype = ctypes.c_double
        return min(ask(rows, MIXED, 1) for _ in range(9)), len(text)


def selectors(path: Path) -> None:
    """A line for each learned method: how long it takes to train, and to answer."""
    table = read_table(path)
    print(f"{table.name}: {len(table.vectors)} inputs, {len(table.features)} features, {len(table.variants)} variants")
    print(f"{'method':8} {'train s':>8} {'C kB':>6} {'answer ns':>10}")
    for method in LEARNED:
        start = time.process_time()
        selector = trained_on(table, method)
        took = time.process_time() - start
        nanoseconds, size = compiled_ns(table, selector)
        print(f"{method:8} {took:8.2f} {size / 1000:6.0f} {nanoseconds:10.0f}   {selector.text}")


def machine() -> str:
    """Processor, compiler and flags, NumPy: what the figures hang on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    version = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    return f"{cpu}, one core; gcc {version} {' '.join(FLAGS)}; NumPy {np.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selectors", type=Path, metavar="TABLE")
    args = parser.parse_args()
    print(machine())
    if args.selectors is not None:
        selectors(args.selectors)
        return 0
    print(f"{'kernel':20} {'settings':>8} {'same sizes ns':>14} {'new sizes ns':>13} {'NumPy us':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(SAMPLES.glob("*.dag")):
            graph = api.load_graph(path)
            hardware, limits = load_hardware("h200"), {"max_threads_per_block": 1024}
            choosers = [site_chooser(graph, u, legal_settings(graph, u, limits), hardware) for u in open_sites(graph)]
            text = "#define _POSIX_C_SOURCE 199309L\n" + emitted(choosers).source
            for c in choosers:
                text += PROBE.format(function=c.site.function, features=", ".join(["n"] * len(c.data)) or "0")
            source, library = Path(folder) / "probe.c", Path(folder) / f"{path.stem}.so"
            source.write_text(text)
            command = ["gcc", *FLAGS, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
            subprocess.run(command, check=True)
            loaded = ctypes.CDLL(str(library))
            for c in choosers:
                probe = getattr(loaded, f"{c.site.function}_probe")
                probe.restype = ctypes.c_double
                same = min(probe(20_000, 0) for _ in range(5))
                new = min(probe(500, 1) for _ in range(5))
                print(f"{path.stem + ' ' + c.op:20} {len(c.choices):8} {same:14.1f} {new:13.0f} {numpy_us(c):9.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

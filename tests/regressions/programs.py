"""A small program to vary, and its set-up."""

from __future__ import annotations

from pathlib import Path

from dagc import api
from dagc.stages.artifacts import Compiled

HEAD = """program small
setup "small.py" made()
array x : f32[10] in
array y : f32[10] out
"""
KERNEL = """kernel add(y: out f32[n], x: in f32[n], n: i64) {
  gpu {
    launch grid(max(1, ceil(n / 64))) block(64)
    cuda \"\"\"
      long i = (long)blockIdx.x * 64 + threadIdx.x;
      if (i < n) y[i] = x[i] + 1;
    \"\"\"
  }
}
"""
DAG = "dag { a : gpu add(y, x, 10) }\nverify y ~ expected() rtol 0\n"
SETUP = """
import numpy as np

def made(rank, size, seed):
    return {"x": np.arange(10, dtype=np.float32) + rank}

def expected(data, *, rank, size, seed):
    return {"y": data["x"] + 1}
"""


def write(folder: Path, dag: str = HEAD + KERNEL + DAG, setup: str = SETUP) -> Path:
    """Write `small.dag` and `small.py`; returns the former."""
    (folder / "small.dag").write_text(dag, encoding="utf-8")
    (folder / "small.py").write_text(setup, encoding="utf-8")
    return folder / "small.dag"


def run(path: Path, ranks: int = 2, seconds: float = 1e-3, **defines: object) -> Compiled:
    """Compile for the host, run and check on `ranks` ranks; two measurements of `seconds` each."""
    return api.compile(
        path, path.parent / "out", target="host", run=True, ranks=ranks, defines=defines, seconds=seconds, repeats=2
    )

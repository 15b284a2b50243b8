"""Small programs that tuning's tests vary."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

FILL = '''program fill
param N : i64 = 100
setup "fill.py" init(N)
scalar n : i32
array y : f32[n] out
kernel fill(y: out f32[n], n: i32) {
  TUNE
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      int i = blockIdx.x * bx + threadIdx.x;
      BODY
    """
  }
}
dag { fill : gpu fill(y, n) }
verify y ~ reference() rtol 0
'''
FILL_PY = """import numpy as np

def init(rank, size, seed, N):
    if N > 1_000_000:
        raise MemoryError("too large")
    return {"n": N}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""

SUMS = '''program sums
param N : i64 = 64
param SPREAD : i64 = 0 over {0, 10, 200, 1000}
setup "sums.py" init(N, SPREAD)
scalar n, nnz : i32
scalar weight : f32
array ptr : i32[n + 1] const
array val : f32[nnz] in
array y : f32[n] out
cuda """
  __global__ void one_by_one(float* y, const int* ptr, const float* val, int n) {
    for (int i = 0; i < n; ++i) {
      float sum = 0;
      for (int k = ptr[i]; k < ptr[i + 1]; ++k) sum += val[k];
      y[i] = sum;
    }
  }
"""
kernel sums(y: out f32[n], ptr: in i32[n + 1], val: in f32[nnz], n, nnz: i32, weight: f32) {
  tune block in {32, 64}
  feature longest cost n = cpp """
    int most = 0;
    for (int i = 0; i < n; ++i) most = std::max(most, ptr[i + 1] - ptr[i]);
    return most;
  """
  feature mean = weight * nnz / n
  select variant, lanes with knn(longest, mean)
  gpu row {
    launch grid(ceil(n / block)) block(block)
    cuda """
      int i = blockIdx.x * block + threadIdx.x;
      if (i >= n) return;
      float sum = 0;
      for (int k = ptr[i]; k < ptr[i + 1]; ++k) sum += val[k];
      y[i] = sum;
    """
  }
  gpu vector {
    tune lanes in {2, 4}
    launch grid(ceil(lanes * n / block)) block(block)
    cuda """
      int at = blockIdx.x * block + threadIdx.x, i = at / lanes;
      if (i >= n || at % lanes) return;
      float part[lanes] = {};
      for (int k = ptr[i]; k < ptr[i + 1]; ++k) part[(k - ptr[i]) % lanes] += val[k];
      float sum = 0;
      for (float each : part) sum += each;
      y[i] = sum;
    """
  }
  gpu called {
    array prefix : f32[nnz + 1]
    require longest <= 500 && 8 * nnz <= hw.memory
    cpp """
      cudaMemsetAsync(prefix, 0, (nnz + 1) * sizeof(float), stream);
      one_by_one<<<1, 1, 0, stream>>>(y, ptr, val, n);
    """
  }
}
dag { y : gpu sums(y, ptr, val, n, nnz, weight) }
verify y ~ reference() rtol 0
'''
SUMS_PY = """import numpy as np

def init(rank, size, seed, N, SPREAD):
    n = N + 7 * rank
    lengths = np.full(n, 3, np.int32)
    lengths[0] += SPREAD
    ptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    val = np.arange(ptr[-1], dtype=np.float32) % 11 - 5
    return {"n": n, "nnz": int(ptr[-1]), "ptr": ptr, "val": val, "weight": 1.0}

def reference(data, **_):
    return {"y": np.add.reduceat(data["val"], data["ptr"][:-1]).astype(np.float32)}
"""


def write_sums(folder: Path, changes: Mapping[str, str] = MappingProxyType({})) -> Path:
    """A program of one kernel with three variants (`row`, `vector` with a tunable of its own, `called` in host code
    with scratch), chosen by a feature in code and an expression. `changes`: texts that replace others in it."""
    (folder / "sums.py").write_text(SUMS_PY)
    text = SUMS
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    program = folder / "sums.dag"
    program.write_text(text)
    return program


def change_chooser(tuned: Path, op: str, **changes: Any) -> None:
    """Another content of a chooser of a tuned file."""
    text = json.dumps(stored_chooser(tuned, op) | changes)
    with closing(sqlite3.connect(tuned)) as connection, connection:
        connection.execute("UPDATE chooser SET chooser = ? WHERE domain = ?", (text, op))


def stored_chooser(tuned: Path, op: str) -> dict[str, Any]:
    """The JSON of a chooser as a tuned file keeps it."""
    with closing(sqlite3.connect(tuned)) as connection:
        (text,) = connection.execute("SELECT chooser FROM chooser WHERE domain = ?", (op,)).fetchone()
    found: dict[str, Any] = json.loads(text)
    return found


def write_fill(folder: Path, tune: str, body: str = "if (i < n) y[i] = i;") -> Path:
    """A program of one kernel, `fill`, with these tunables (`bx` is the block's) and this code; more than a million
    elements are more than its set-up takes."""
    (folder / "fill.py").write_text(FILL_PY)
    program = folder / "fill.dag"
    program.write_text(FILL.replace("TUNE", tune).replace("BODY", body))
    return program

"""Small programs that tuning's tests vary."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
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

"""Set-up of beside.dag: the five-point stencil on a square grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dagc.inputs import call


def made(rank: int, size: int, seed: int, system: str) -> dict[str, Any]:
    """`grid(side = N, steps = M)`: N * N unknowns, M iterations."""
    return call(system, {"grid": lambda side, steps: grid(seed + rank, side, steps)})


def grid(seed: int, side: int, steps: int) -> dict[str, Any]:
    line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (side, side), dtype=np.float32)
    eye = sp.identity(side, dtype=np.float32)
    matrix = (sp.kron(eye, line) + sp.kron(line, eye)).tocsr()
    n = side * side
    return {
        "n": n, "nnz": matrix.nnz, "steps": steps, "x": np.zeros(n, np.float32),
        "b": np.random.default_rng(seed).random(n, np.float32), "inverse": np.full(n, 0.25, np.float32),
        "row_ptr": matrix.indptr.astype(np.int32), "col": matrix.indices.astype(np.int32),
        "val": matrix.data.astype(np.float32),
    }  # fmt: skip


def once(data: dict[str, Any], **_: Any) -> dict[str, Any]:
    matrix = sp.csr_matrix((data["val"], data["col"], data["row_ptr"]), (data["n"], data["n"]))
    return {"x": data["x"] + np.float32(0.8) * data["inverse"] * (data["b"] - matrix @ data["x"])}

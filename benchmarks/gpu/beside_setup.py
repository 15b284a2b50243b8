"""Set-up of beside.dag: stencils on a square grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dagc.inputs import call


def made(rank: int, size: int, seed: int, system: str) -> dict[str, Any]:
    """`grid(side = N, steps = M)`: N * N unknowns, M iterations, five points; `box`: 25 points; `wide`: 81 points."""
    return call(
        system,
        {
            "grid": lambda side, steps: solve(seed + rank, five_points(side), steps),
            "box": lambda side, steps: solve(seed + rank, box(side, 2), steps),
            "wide": lambda side, steps: solve(seed + rank, box(side, 4), steps),
        },
    )


def five_points(side: int) -> Any:
    line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (side, side), dtype=np.float32)
    eye = sp.identity(side, dtype=np.float32)
    return (sp.kron(eye, line) + sp.kron(line, eye)).tocsr()


def box(side: int, reach: int) -> Any:
    """All nodes up to `reach` away in each direction, and a diagonal that dominates."""
    near = range(-reach, reach + 1)
    line = sp.diags([np.ones(side - abs(k), np.float32) for k in near], near, dtype=np.float32)
    return (((2 * reach + 1) ** 2 + 1) * sp.identity(side * side, dtype=np.float32) - sp.kron(line, line)).tocsr()


def solve(seed: int, matrix: Any, steps: int) -> dict[str, Any]:
    n = matrix.shape[0]
    return {
        "n": n, "nnz": matrix.nnz, "steps": steps, "x": np.zeros(n, np.float32),
        "b": np.random.default_rng(seed).random(n, np.float32), "inverse": 1 / matrix.diagonal(),
        "row_ptr": matrix.indptr.astype(np.int32), "col": matrix.indices.astype(np.int32),
        "val": matrix.data.astype(np.float32),
    }  # fmt: skip


def once(data: dict[str, Any], **_: Any) -> dict[str, Any]:
    matrix = sp.csr_matrix((data["val"], data["col"], data["row_ptr"]), (data["n"], data["n"]))
    return {"x": data["x"] + np.float32(0.8) * data["inverse"] * (data["b"] - matrix @ data["x"])}


def smoothed(data: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The reference of ahead.dag."""
    matrix = sp.csr_matrix((data["val"], data["col"], data["row_ptr"]), (data["n"], data["n"]))
    z = data["b"] + (data["x"] - data["b"]) * (1 - np.float64(0.5) * data["inverse"]) ** data["steps"]
    return {"product": (matrix @ z).astype(np.float32)}

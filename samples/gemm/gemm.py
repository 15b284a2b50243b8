"""Set-up and reference of the matrix product: C = A B, a share of A zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def matrices(rank: int, size: int, seed: int, m: int, n: int, k: int, share: float) -> dict[str, Any]:
    """`A` (m x k), a random `share` of it zero, and `B` (k x n), both in [-1, 1). Each rank has the same ones.

    Raises ValueError for sizes that are not positive, and shares that are none.
    """
    if min(m, n, k) < 1:
        raise ValueError(f"m, n, k = {m}, {n}, {k}: each is at least 1")
    if not 0 <= share <= 1:
        raise ValueError(f"share = {share}: a share is between 0 and 1")
    rng = np.random.default_rng([seed, m, n, k])
    A = rng.random((m, k), np.float32)
    # One draw decides and is the value: those below `share` are zero, the others are spread over [-1, 1) again.
    A = np.where(share > A, np.float32(0), (A - np.float32(share)) * np.float32(2 / max(1 - share, 1e-6)) - 1)
    B = rng.random((k, n), np.float32)
    return {"M": m, "N": n, "K": k, "A": A, "B": 2 * B - 1}


def product(data: dict[str, Any], *, relu: bool = False, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`C`, in double precision."""
    C = (data["A"].astype(float) @ data["B"].astype(float)).astype(np.float32)
    return {"C": np.maximum(C, 0) if relu else C}

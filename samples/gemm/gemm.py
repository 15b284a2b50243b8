"""Set-up and reference of the matrix product: C = A B, a share of A zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagc.matrix_market import checked, read

HERE = Path(__file__).parent
MOST = 2**31 - 1  # elements, which versions count in 32 bits


def matrices(
    rank: int, size: int, seed: int, m: int, n: int, k: int, share: float, file: str = ""
) -> dict[str, Any]:  # fmt: skip
    """`A` (m x k), a random `share` of it zero, and `B` (k x n), both in [-1, 1). Each rank has the same ones.

    `file`: a Matrix Market file, from this directory, which is A; `m`, `k` and `share` then mean nothing. Raises
    ValueError for sizes that are not positive, shares that are none, and a file that cannot be A.
    """
    if file:
        header = checked(str(HERE / file))
        if header.rows * header.columns > MOST:
            raise ValueError(f"{file} is {header.rows} x {header.columns}: A has {MOST} elements at most")
        m, k = header.rows, header.columns
    if min(m, n, k) < 1:
        raise ValueError(f"m, n, k = {m}, {n}, {k}: each is at least 1")
    if not 0 <= share <= 1:
        raise ValueError(f"share = {share}: a share is between 0 and 1")
    rng = np.random.default_rng([seed, m, n, k])
    if file:
        A = read(str(HERE / file)).toarray()
    else:
        A = rng.random((m, k), np.float32)
        # One draw decides and is the value: those below `share` are zero, others are spread over [-1, 1) again.
        A = np.where(share > A, np.float32(0), (A - np.float32(share)) * np.float32(2 / max(1 - share, 1e-6)) - 1)
    B = rng.random((k, n), np.float32)
    return {"M": m, "N": n, "K": k, "A": A, "B": 2 * B - 1}


def product(data: dict[str, Any], *, relu: bool = False, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`C`, in double precision."""
    C = (data["A"].astype(float) @ data["B"].astype(float)).astype(np.float32)
    return {"C": np.maximum(C, 0) if relu else C}

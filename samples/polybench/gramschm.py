"""Set-up and reference of GRAMSCHM: A = Q R by modified Gram-Schmidt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NI: int, NJ: int) -> dict[str, int | NDArray[Any]]:
    """The matrix, its factors still 0, and the sizes.

    Its elements are uniformly random in [0, 1), and sqrt(NI) is added on the diagonal: more than what the random part
    can take away, so that the columns are far from dependent. Raises ValueError for more columns than rows.
    """
    if NJ > NI:
        raise ValueError(f"{NJ} columns of {NI} elements cannot be independent: give NJ <= NI")
    rng = np.random.default_rng(seed)
    a = rng.random((NI, NJ), np.float32)
    np.fill_diagonal(a, np.diagonal(a) + np.float32(np.sqrt(NI)))
    return {
        "ni": NI,
        "nj": NJ,
        "a": a,
        "q": np.zeros((NI, NJ), np.float32),
        "r": np.zeros((NJ, NJ), np.float32),
        "k": np.zeros(1, np.int32),
    }


def reference(data: dict[str, Any], *, COLUMNS: int, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`a`, `q` and `r` after one run of the dag, COLUMNS columns, in double precision.

    Columns of A that have had their turn are left as they were before their division, the others have lost their part
    along the columns of Q so far; the rest of Q and R is still 0.
    """
    a = np.asarray(data["a"], np.float64)
    q, r = np.linalg.qr(a)
    sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)  # the factors whose R has a positive diagonal are unique
    q, r = q * sign, r * sign[:, None]
    q[:, COLUMNS:] = 0
    r[COLUMNS:] = 0
    left = a - q @ r
    left[:, :COLUMNS] = q[:, :COLUMNS] * np.diagonal(r)[:COLUMNS]
    return {"a": left.astype(np.float32), "q": q.astype(np.float32), "r": r.astype(np.float32)}

"""Set-up of split.dag: that of `spmv.py`, with the neighbours of a rank in the order of their distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import spmv


def banded(rank: int, size: int, seed: int, rows: int, nnz_per_row: int, bandwidth: int, most: int) -> dict[str, Any]:
    """As `banded` of spmv.py, but what is sent is ordered by distance k: to rank + k, and from rank - k.

    Distances are modulo the number of ranks. `dest[k]`, `origin[k]` from k = 1 on: these ranks, -1 without a message;
    `sent[k]`, `got[k]`: where their values begin, and the end.
    Raises ValueError for more ranks than `most`.
    """
    if size > most:
        raise ValueError(f"{size} ranks, more than most = {most}")
    out: dict[str, Any] = spmv.banded(rank, size, seed, rows, nnz_per_row, bandwidth)
    order, sent = _by_distance(out["send_ranks"], out["send_counts"], (out["send_ranks"] - rank) % size, most)
    out["send_index"] = out["send_index"][order]
    _name(out, "dest", "sent", [(rank + k) % size for k in range(most)], sent)
    order, got = _by_distance(out["recv_ranks"], out["recv_counts"], (rank - out["recv_ranks"]) % size, most)
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)  # of each value of x_r
    out["col_r"] = place[out["col_r"]]
    _name(out, "origin", "got", [(rank - k) % size for k in range(most)], got)
    return {name: value for name, value in out.items() if name not in _NOT_DECLARED}


_NOT_DECLARED = ("n_to", "n_from", "send_ranks", "send_counts", "recv_ranks", "recv_counts")


def _by_distance(ranks: Any, counts: Any, apart: Any, most: int) -> tuple[Any, Any]:
    """The values in the order of their ranks' distances, and how many have each."""
    of = np.zeros(most, np.int64)
    of[apart] = counts
    return np.argsort(np.repeat(apart, counts), kind="stable"), of


def _name(out: dict[str, Any], peer: str, begin: str, ranks: list[int], counts: Any) -> None:
    out |= {f"{peer}[{k}]": r if counts[k] else -1 for k, r in enumerate(ranks) if k > 0}
    out |= {f"{begin}[{k + 1}]": int(end) for k, end in enumerate(np.cumsum(counts))}


def product(data: dict[str, Any], *, most: int, **more: Any) -> dict[str, Any]:
    """As `product` of spmv.py."""
    result: dict[str, Any] = spmv.product(data, **more)
    return result

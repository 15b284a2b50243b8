"""Set-up and reference of PageRank: a Kronecker graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from dagc.matrix_market import edges

HERE = Path(__file__).parent


def graph(
    rank: int, size: int, seed: int, nodes: int, ratio: float, skew: float, file: str = ""
) -> dict[str, Any]:  # fmt: skip
    """`n` vertices and about `ratio` * n edges of a stochastic Kronecker graph (R-MAT: Chakrabarti, Zhan and Faloutsos,
    2004), directed, none twice and no loops, in both compressed forms. Each rank has the same one.

    `skew`: the share of edges in the first quarter of the adjacency matrix, at each level; the two beside it have 0.19.
    `file`: a Matrix Market file, from this directory, whose entry (u, v) is a link from u to v; the other parameters
    then mean nothing. Raises ValueError for parameters outside of their ranges, and a file that is not a graph.
    """
    if file:
        header, first, last = edges(str(HERE / file))
        return _both_forms(header.rows, first, last)
    if nodes < 1 or not 0 <= ratio <= nodes or not 0 <= skew <= 0.62:
        raise ValueError(f"nodes = {nodes}, ratio = {ratio}, skew = {skew}: ratio <= nodes, skew <= 0.62")
    first, last = kronecker(
        np.random.default_rng([seed, nodes, round(1000 * ratio)]), nodes, round(ratio * nodes), skew
    )
    return _both_forms(nodes, first, last)


def _both_forms(nodes: int, first: NDArray[np.int32], last: NDArray[np.int32]) -> dict[str, Any]:
    """Each edge once, without loops."""
    first, last = first[first != last], last[first != last]
    outward = coo_array((np.ones(len(first), bool), (first, last)), (nodes, nodes)).tocsr()  # none twice
    inward = outward.tocsc()
    return {
        "n": nodes, "m": outward.nnz,
        "out_ptr": outward.indptr.astype(np.int32), "targets": outward.indices.astype(np.int32),
        "in_ptr": inward.indptr.astype(np.int32), "sources": inward.indices.astype(np.int32),
    }  # fmt: skip


def kronecker(
    rng: np.random.Generator, nodes: int, edges: int, skew: float
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Ends of random edges. Probabilities are multiples of 1/256; vertices of the power of two above are scaled."""
    levels = max(1, int(nodes - 1).bit_length())
    a, b = round(256 * skew), round(256 * (skew + 0.19))
    c = round(256 * (skew + 0.38))
    first, last = np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for drawn in rng.integers(0, 256, (levels, edges), np.uint8):
        lower = drawn >= b
        first += first + lower
        last += last + (((drawn >= a) & ~lower) | (drawn >= c))
    return (
        (first.astype(np.int64) * nodes >> levels).astype(np.int32),
        (last.astype(np.int64) * nodes >> levels).astype(np.int32),
    )


def power(data: dict[str, Any], *, damping: float, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`rank_of`, by the power method in double precision. A vertex that links to none is taken to link to all."""
    n, m = data["n"], data["m"]
    inward = csr_array((np.ones(m), data["sources"], data["in_ptr"]), (n, n))
    degrees = np.diff(data["out_ptr"])
    rank_of = np.full(n, 1 / n)
    change = 1.0
    while change > 1e-12:
        given = np.where(degrees > 0, rank_of / np.maximum(degrees, 1), 0)
        new = damping * (inward @ given + rank_of[degrees == 0].sum() / n) + (1 - damping) / n
        change, rank_of = float(np.abs(new - rank_of).sum()), new
    return {"rank_of": rank_of.astype(np.float32)}

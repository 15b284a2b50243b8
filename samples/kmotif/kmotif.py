"""Set-up and reference of motif counting: a Kronecker graph without directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from dagc.matrix_market import edges

HERE = Path(__file__).parent
PART = 1 << 20  # edges drawn at a time


def graph(
    rank: int, size: int, seed: int, nodes: int, ratio: float, skew: float, motif: int, file: str = ""
) -> dict[str, Any]:  # fmt: skip
    """At most `ratio` * `nodes` edges of a stochastic Kronecker graph (R-MAT: Chakrabarti, Zhan and Faloutsos, 2004),
    without directions, loops and repetitions. `motif`: the number of vertices of a motif. Each rank has the same one.

    `skew`: the share of edges in the first quarter of the adjacency matrix, at each level; the two beside it have 0.19.
    `file`: a Matrix Market file, from this directory; an entry (u, v) is an edge between u and v; `nodes`, `ratio` and
    `skew` then mean nothing. Raises ValueError for parameters outside of their ranges, and a file that is not a graph.
    """
    if file:
        header, *ends = edges(str(HERE / file))
        low, high = (end.astype(np.int64) for end in (np.minimum(*ends), np.maximum(*ends)))
        return {"k": motif, **_both_ways((low * header.rows + high)[low != high], header.rows)}
    if nodes < 1 or not 0 <= ratio <= nodes or not 0 <= skew <= 0.62:
        raise ValueError(f"nodes = {nodes}, ratio = {ratio}, skew = {skew}: ratio <= nodes, skew <= 0.62")
    rng = np.random.default_rng([seed, nodes, round(1000 * ratio)])
    count, parts = round(ratio * nodes), []
    for begin in range(0, count, PART):
        first, last = _kronecker(rng, nodes, min(PART, count - begin), skew)
        first, last = np.minimum(first, last), np.maximum(first, last)
        parts.append((first * nodes + last)[first != last])
    return {"k": motif, **_both_ways(np.concatenate([np.empty(0, np.int64), *parts]), nodes)}


def _kronecker(
    rng: np.random.Generator, nodes: int, edges: int, skew: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ends of random edges. Probabilities are multiples of 1/256; vertices of the power of two above are scaled."""
    levels = max(1, int(nodes - 1).bit_length())
    a, b, c = (round(256 * (skew + share)) for share in (0, 0.19, 0.38))
    first, last = np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for drawn in rng.integers(0, 256, (levels, edges), np.uint8):
        lower = drawn >= b
        first += first + lower
        last += last + (((drawn >= a) & ~lower) | (drawn >= c))
    return first.astype(np.int64) * nodes >> levels, last.astype(np.int64) * nodes >> levels


def _both_ways(links: NDArray[np.int64], nodes: int) -> dict[str, Any]:
    """The graph of these edges, u * nodes + v with u < v, each once, in compressed sparse row form."""
    links.sort()  # np.unique takes ten times as long
    links = links[np.diff(links, prepend=-1) != 0]
    every = np.concatenate([links, links % nodes * nodes + links // nodes])
    every.sort()
    rows = np.bincount(every // nodes, minlength=nodes)
    return {
        "n": nodes, "m": len(every), "ptr": np.concatenate([[0], rows.cumsum()]).astype(np.int32),
        "neighbours": (every % nodes).astype(np.int32),
    }  # fmt: skip


def formulas(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.uint64]]:
    """`found`, from triangles at each edge, paths of two edges between each two vertices, and 4-cliques."""
    n = data["n"]
    A = csr_array((np.ones(data["m"], np.int64), data["neighbours"], data["ptr"]), (n, n))
    d = np.diff(data["ptr"]).astype(np.int64)
    paths = A @ A
    at_edge = triu(paths.multiply(A)).tocsr().data  # of edges that have any
    triangles = int(at_edge.sum()) // 3
    counts = np.zeros(6, np.uint64)
    if data["k"] == 3:
        counts[:2] = int((d * (d - 1) // 2).sum()) - 3 * triangles, triangles
        return {"found": counts}
    first, last = triu(A).tocoo().coords
    of_vertex = (paths.multiply(A)).sum(1) // 2
    between = triu(paths, 1).tocsr().data
    clique = _cliques(A)
    diamond = int((at_edge * (at_edge - 1) // 2).sum()) - 6 * clique
    cycle = int((between * (between - 1) // 2).sum()) // 2 - diamond - 3 * clique
    paw = int((of_vertex * (d - 2)).sum()) - 4 * diamond - 12 * clique
    path = int(((d[first] - 1) * (d[last] - 1)).sum()) - 3 * triangles
    path -= 2 * paw + 4 * cycle + 6 * diamond + 12 * clique
    star = int((d * (d - 1) * (d - 2) // 6).sum()) - paw - 2 * diamond - 4 * clique
    counts[:] = star, path, paw, cycle, diamond, clique
    return {"found": counts}


def _cliques(A: csr_array) -> int:
    """Cliques of four: for each vertex, triangles among its neighbours with larger numbers."""
    upper = triu(A, 1).tocsr()
    found = 0
    for v in range(A.shape[0]):
        above = upper.indices[upper.indptr[v] : upper.indptr[v + 1]]
        if len(above) >= 3:
            among = upper[above][:, above]
            found += int((among @ among).multiply(among).sum())
    return found

"""Set-up and reference of gcn.dag and sage.dag: a graph, features of its nodes, and weights.

A graph is a path of an .npz file (planetoid.py writes it) or a call of one of `FAMILIES`, such as
"powerlaw(nodes = 3000, edges = 4, features = 1000, zeros = 0.9)". Files are relative to this directory, or
to the one that the environment variable DAGC_PLANETOID names.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dagc.inputs import call

HERE = Path(__file__).resolve().parent
FOLDER = "DAGC_PLANETOID"
MOST = 2**31 - 1


class Graph(NamedTuple):
    """`ptr`, `col`: edges in CSR, without loops; row i are the neighbours of node i. `features`: one row a node."""

    ptr: NDArray[np.int32]
    col: NDArray[np.int32]
    features: NDArray[np.float32]
    classes: int


def gcn(rank: int, size: int, seed: int, graph: str, layers: int, hidden: int) -> dict[str, Any]:
    """Edge weights D^-1/2 (A + I) D^-1/2, where D are the degrees of A + I (Kipf and Welling, ICLR 2017, eq. 2).

    Each rank has the same graph. Raises ValueError.
    """
    made = _graph(graph)
    n = made.ptr.size - 1
    A = sparse.csr_array((np.ones(made.col.size, np.float32), made.col, made.ptr), shape=(n, n))
    A = sparse.csr_array(A + sparse.eye_array(n, dtype=np.float32, format="csr"))
    A.sort_indices()
    root = 1 / np.sqrt(np.diff(A.indptr))
    val = root[np.repeat(np.arange(n), np.diff(A.indptr))] * root[A.indices]
    return _network(made, A.indptr, A.indices, val, seed, layers, hidden, own=0)


def sage(rank: int, size: int, seed: int, graph: str, layers: int, hidden: int) -> dict[str, Any]:
    """Edge weights 1 / degree: the mean of the neighbours, 0 for a node without one (Hamilton, Ying and Leskovec, NIPS
    2017, mean aggregator). Each rank has the same graph. Raises ValueError."""
    made = _graph(graph)
    degree = np.diff(made.ptr)
    val = np.repeat(1 / np.maximum(degree, 1), degree)
    return _network(made, made.ptr, made.col, val, seed, layers, hidden, own=1)


def forward(data: dict[str, Any], *, layers: int, **_: Any) -> dict[str, NDArray[np.float32]]:
    """The last layer's output, in double precision by NumPy and SciPy."""
    n, h = data["n"], data["h[0]"].astype(float)
    P = sparse.csr_array((data["val"].astype(float), data["col"], data["ptr"]), shape=(n, n))
    for layer in range(layers):
        w = data[f"w[{layer}]"].astype(float)
        F = data["classes"] if layer == layers - 1 else data["units"]
        own, neighbours = w[:, :-F], w[:, -F:]
        out = P @ (h @ neighbours) + (h @ own if own.shape[1] else 0)
        h = np.maximum(out, 0) if layer < layers - 1 else out
    return {f"h[{layers}]": h.astype(np.float32)}


def _network(
    graph: Graph, ptr: Any, col: Any, val: Any, seed: int, layers: int, hidden: int, own: int
) -> dict[str, Any]:
    """What the programs read. Weights are uniform as of Glorot and Bengio (AISTATS 2010): values stay in range."""
    if hidden < 1:
        raise ValueError(f"hidden = {hidden}: at least 1")
    n, inputs = graph.features.shape
    widths = [inputs] + [hidden] * (layers - 1) + [graph.classes]
    if n * max(widths) > MOST:
        raise ValueError(f"{n} nodes of {max(widths)} features: more than 2^31 - 1 elements")
    out = {
        "n": n, "nnz": len(col), "inputs": inputs, "units": hidden, "classes": graph.classes,
        "zeros": float(1 - np.count_nonzero(graph.features) / graph.features.size),
        "ptr": np.asarray(ptr, np.int32), "col": np.asarray(col, np.int32), "val": np.asarray(val, np.float32),
        "h[0]": graph.features,
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    for layer, (K, F) in enumerate(pairwise(widths)):
        bound = np.sqrt(6 / ((1 + own) * (K + F)))
        out[f"w[{layer}]"] = ((2 * rng.random((K, (1 + own) * F)) - 1) * bound).astype(np.float32)
    return out


def _graph(text: str) -> Graph:
    return call(text, FAMILIES, _read)  # type: ignore[no-any-return]


# ---- files ------------------------------------------------------------------------------------------------------


def _read(path: str) -> Graph:
    """Raises ValueError for what planetoid.py did not write."""
    file = HERE / path
    if not file.is_file() and os.environ.get(FOLDER):
        file = Path(os.environ[FOLDER]) / path
    if not file.is_file():
        raise ValueError(f"{path}: there is no such file in {HERE}, or in the directory that {FOLDER} names")
    try:
        with np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in ("ptr", "col", "x_ptr", "x_col", "x_val", "x_columns", "classes")}
        n, columns, classes = arrays["ptr"].size - 1, int(arrays["x_columns"]), int(arrays["classes"])
        x_val = np.broadcast_to(arrays["x_val"].astype(np.float32), arrays["x_col"].shape)
        edges = sparse.csr_array((np.ones(arrays["col"].size), arrays["col"], arrays["ptr"]), shape=(n, n))
        features = sparse.csr_array((x_val, arrays["x_col"].astype(np.int32), arrays["x_ptr"]), shape=(n, columns))
        edges.check_format(full_check=True)
        features.check_format(full_check=True)
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a graph that planetoid.py has written: {error}") from None
    if n < 1 or columns < 1 or classes < 1 or n * columns > MOST:
        raise ValueError(f"{path}: {n} nodes, {columns} features, {classes} classes")
    return Graph(arrays["ptr"].astype(np.int32), arrays["col"].astype(np.int32), features.toarray(), classes)


# ---- generated --------------------------------------------------------------------------------------------------


def uniform(nodes: int, edges: float, features: int, zeros: float = 0.0, classes: int = 8, seed: int = 1) -> Graph:
    """`edges` times `nodes` edges, each between any two nodes; features are uniform in [-1, 1), a share of them 0.
    Edges that occur twice, and loops, are left out."""
    rng = _checked(nodes, edges, features, zeros, classes, seed)
    count = int(edges * nodes)
    return _made(nodes, rng.integers(0, nodes, count), rng.integers(0, nodes, count), features, zeros, classes, rng)


def powerlaw(
    nodes: int, edges: float, features: int, zeros: float = 0.0, classes: int = 8, seed: int = 1, skew: float = 2.5
) -> Graph:
    """As `uniform`, but the ends of an edge are node^skew of a uniform number: few nodes have many neighbours."""
    rng = _checked(nodes, edges, features, zeros, classes, seed)
    if not skew >= 1:
        raise ValueError(f"skew = {skew}: at least 1")
    count = int(edges * nodes)
    one, other = ((nodes * rng.random(count) ** skew).astype(np.int64) for _ in range(2))
    return _made(nodes, one, other, features, zeros, classes, rng)


FAMILIES: dict[str, Callable[..., Graph]] = {"uniform": uniform, "powerlaw": powerlaw}


def _checked(nodes: int, edges: float, features: int, zeros: float, classes: int, seed: int) -> np.random.Generator:
    if min(nodes, features, classes) < 1 or not edges >= 0:
        raise ValueError(f"nodes {nodes}, edges {edges}, features {features}, classes {classes}: must be positive")
    if not 0 <= zeros <= 1:
        raise ValueError(f"zeros = {zeros}: a share is between 0 and 1")
    if nodes * max(features, edges) > MOST:
        raise ValueError(f"{nodes} nodes, {edges} edges and {features} features a node: more than 2^31 - 1 elements")
    return np.random.default_rng([seed, nodes, features])


def _made(n: int, one: Any, other: Any, features: int, zeros: float, classes: int, rng: np.random.Generator) -> Graph:
    """Half of the edges are drawn, and have the other half as their reverse."""
    one, other = one[: (one.size + 1) // 2], other[: (other.size + 1) // 2]
    apart = one != other
    one, other = one[apart], other[apart]
    key = np.unique(np.concatenate([one * n + other, other * n + one]))
    ptr = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(key // n, minlength=n), out=ptr[1:])
    # One draw decides and is the value: those below `zeros` are 0, the others are spread over [-1, 1) again.
    x = rng.random((n, features), np.float32)
    x = np.where(x < zeros, np.float32(0), (x - np.float32(zeros)) * np.float32(2 / max(1 - zeros, 1e-6)) - 1)
    return Graph(ptr, (key % n).astype(np.int32), x.astype(np.float32), classes)

"""Writes the graphs of the Planetoid data set (Cora, CiteSeer, PubMed) as .npz files that gnn.py reads.

    python samples/gnn/planetoid.py FOLDER cora citeseer pubmed --out OUT

FOLDER has the files ind.NAME.* of https://github.com/kimiyoung/planetoid (MIT; Yang, Cohen and Salakhutdinov, ICML
2016). They are pickles: only the types that those files hold are made from them, and nothing in them is called.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse


class _Matrix:
    """State of a scipy.sparse.csr_matrix, as pickled: `data`, `indices`, `indptr`, `_shape`."""

    data: Any
    indices: Any
    indptr: Any
    _shape: tuple[int, int]


# What the files hold, by name; modules have had several names.
_TYPES: dict[str, Callable[..., Any]] = {
    "csr_matrix": _Matrix,
    "ndarray": np.ndarray,
    "dtype": np.dtype,
    "_reconstruct": np.zeros(0).__reduce__()[0],  # type: ignore[dict-item]
    "list": list,
    "defaultdict": defaultdict,
}
_MODULES = {
    "scipy.sparse.csr", "scipy.sparse._csr", "numpy", "numpy.core.multiarray", "numpy._core.multiarray", "__builtin__",
    "builtins", "collections",
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module not in _MODULES or name not in _TYPES:
            raise ValueError(f"it has a {module}.{name}, which a Planetoid file has not")
        return _TYPES[name]


def _read(path: Path) -> Any:
    """Raises ValueError for anything but a Planetoid file."""
    try:
        with path.open("rb") as file:
            return _Unpickler(file, encoding="latin1").load()
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _matrix(path: Path) -> Any:
    made = _read(path)
    if not isinstance(made, _Matrix):
        raise ValueError(f"{path} is not a sparse matrix")
    parts = [np.asarray(part) for part in (made.data, made.indices, made.indptr)]
    if any(part.dtype.kind not in "fiu" for part in parts):
        raise ValueError(f"{path} has values that are not numbers")
    out = sparse.csr_array(tuple(parts), shape=made._shape)
    out.check_format(full_check=True)
    return out


def convert(folder: Path, name: str) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """The arrays of one graph: `ptr`, `col` (its edges in both directions, without loops, in CSR), `x_ptr`, `x_col`,
    `x_val` (the features, in CSR), `x_columns` and `classes`; and how many nodes' features are missing in FOLDER. These
    repeat the features of others, drawn at random, so that sizes and shares of zeros are those of the data set.

    Raises ValueError.
    """
    graph = _read(folder / f"ind.{name}.graph")
    if not isinstance(graph, dict) or not all(isinstance(v, list) for v in graph.values()):
        raise ValueError(f"{folder / f'ind.{name}.graph'} is no graph")
    n = len(graph)
    tests = np.loadtxt(folder / f"ind.{name}.test.index", dtype=np.int64, ndmin=1)
    tx, x = _matrix(folder / f"ind.{name}.tx"), _matrix(folder / f"ind.{name}.x")
    all_of = folder / f"ind.{name}.allx"
    first = _matrix(all_of) if all_of.exists() else x
    begins = int(tests.min())  # nodes before are in allx, in order; test nodes without features (CiteSeer) are isolated
    rows = np.full(n, -1)
    rows[: first.shape[0]] = np.arange(first.shape[0])
    rows[begins:] = first.shape[0] + tx.shape[0]
    rows[tests] = first.shape[0] + np.arange(tx.shape[0])
    missing = np.flatnonzero(rows < 0)
    known = first.shape[0] + tx.shape[0]
    rows[missing] = np.random.default_rng(0).integers(0, known, missing.size)
    empty = sparse.csr_array((1, x.shape[1]), dtype=x.dtype)
    features = sparse.csr_array(sparse.vstack([first, tx, empty]).tocsr()[rows])
    edges = np.array([(u, v) for u, of in graph.items() for v in of if u != v], np.int64).reshape(-1, 2)
    if edges.size and not 0 <= edges.min() <= edges.max() < n:
        raise ValueError(f"{folder / f'ind.{name}.graph'}: nodes are not 0 to {n - 1}")
    key = np.unique(np.concatenate([edges[:, 0] * n + edges[:, 1], edges[:, 1] * n + edges[:, 0]]))
    ptr = np.searchsorted(key, np.arange(n + 1, dtype=np.int64) * n)
    ones = bool((features.data == 1).all())
    return {
        "ptr": ptr.astype(np.int32),
        "col": (key % n).astype(np.int32),
        "x_ptr": features.indptr.astype(np.int32),
        "x_col": features.indices.astype(np.uint16 if x.shape[1] < 1 << 16 else np.int32),
        "x_val": np.ones(1 if ones else features.nnz, np.float32) if ones else features.data.astype(np.float32),
        "x_columns": np.int64(x.shape[1]),
        "classes": np.int64(_read(folder / f"ind.{name}.ty").shape[1]),
    }, missing.size  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", choices=("cora", "citeseer", "pubmed"))
    parser.add_argument("--out", type=Path, default=Path())
    args = parser.parse_args()
    for name in args.names:
        try:
            arrays, missing = convert(args.folder, name)
        except (ValueError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        args.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(args.out / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        n, m, k = arrays["ptr"].size - 1, arrays["col"].size, arrays["x_col"].size
        print(f"{name}.npz: {n} nodes, {m} edges, {k} of {n} x {arrays['x_columns']} features")
        if missing:
            print(f"note: {name}: features of {missing} nodes are missing (ind.{name}.allx): they repeat others'")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sparse matrices for the samples: Matrix Market files, and generated families, named by a text.

A text is the path of a file (`dagc.matrix_market`: `.mtx`, `.mtx.gz`, `.mtx.bz2`, `.mtx.xz`), or a call such as
`band(rows = 10_000, half = 50, per_row = 7)`; GENERATORS has their names. `file(path = "matrices/a.mtx")` is a file
below the directory that the environment variable DAGC_MATRICES names. Matrices are scipy.sparse.csr_array of float32
with 32-bit indices, columns ascending in each row and none twice, values in [-1, 1) from `seed`. Generators do whole
arrays at a time: 10^8 non-zeros take some seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dagc.inputs import call
from dagc.matrix_market import MOST, file, read, values

CHUNK = 1 << 20  # entries made at a time: a few arrays of this size stay in the cache
Ints = NDArray[np.int64]


def matrix(text: str, directory: Path = Path()) -> Any:
    """The matrix that a text names; paths are relative to `directory`. Raises ValueError with the reason."""
    return call(text, GENERATORS, lambda path: read(str(directory / path)))


# ---- families -------------------------------------------------------------------------------


def stencil(points: int, side: int, shuffled: bool = False, seed: int = 1) -> Any:
    """A grid of side x side (5 or 9 points) or side^3 (7 or 27 points) nodes, each beside its neighbours; with
    `shuffled`, the nodes are numbered at random."""
    if points not in (5, 7, 9, 27) or side < 1:
        raise ValueError(f"stencil of {points} points on a side of {side}: 5, 7, 9 or 27 points, a positive side")
    dims = 2 if points in (5, 9) else 3
    near = np.stack(np.meshgrid(*[np.arange(-1, 2)] * dims, indexing="ij"), -1).reshape(-1, dims)
    if points in (5, 7):
        near = near[np.abs(near).sum(axis=1) <= 1]
    rows = side**dims
    _fits(rows, rows * points)
    step = side ** np.arange(dims)[::-1]
    at = np.unravel_index(np.arange(rows), (side,) * dims)
    inside = np.ones((rows, points), np.bool_)
    for axis in range(dims):
        for p, d in enumerate(near[:, axis]):
            if d:
                inside[:, p] &= at[axis] < side - 1 if d > 0 else at[axis] > 0
    columns = (np.arange(rows, dtype=np.int32)[:, None] + (near @ step).astype(np.int32))[inside]
    out = _csr(inside.sum(axis=1), columns, rows, seed)
    if not shuffled:
        return out
    to = np.random.default_rng(seed).permutation(rows)
    return _sorted(out[np.argsort(to)], to)


def dense_band(rows: int, half: int, seed: int = 1) -> Any:
    """All |i - j| <= half; 1 is tridiagonal."""
    _positive(rows=rows, half=half + 1)
    i = np.arange(rows)
    left = np.maximum(i - half, 0)
    lengths = np.minimum(i + half, rows - 1) + 1 - left
    _fits(rows, int(lengths.sum()))
    return _csr(lengths, _ranges(left, lengths), rows, seed)


def band(rows: int, half: int, per_row: int, seed: int = 1) -> Any:
    """`per_row` entries at random within |i - j| <= half."""
    _positive(rows=rows, per_row=per_row, half=half)
    _fits(rows, rows * per_row)
    i = np.arange(rows)
    left = np.maximum(i - half, 0)
    width = np.minimum(i + half, rows - 1) + 1 - left
    return _spread(np.minimum(per_row, width), left, width, rows, seed)


def uniform(rows: int, per_row: float, cols: int = 0, seed: int = 1) -> Any:
    """Entries anywhere; the rows' lengths are Poisson distributed around `per_row`. More columns than rows, or fewer:
    wide, tall."""
    cols = cols or rows
    _positive(rows=rows, per_row=per_row, cols=cols)
    _fits(rows, int(rows * per_row))
    lengths = np.minimum(np.random.default_rng(seed).poisson(per_row, rows), cols)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, cols), cols, seed)


def regular(rows: int, per_row: int, cols: int = 0, seed: int = 1) -> Any:
    """As `uniform`, all rows equally long."""
    cols = cols or rows
    _positive(rows=rows, per_row=per_row, cols=cols)
    _fits(rows, int(rows * per_row))
    lengths = np.full(rows, min(per_row, cols))
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, cols), cols, seed)


def blocks(rows: int, size: int, seed: int = 1) -> Any:
    """Dense blocks of size x size on the diagonal."""
    _positive(rows=rows, size=size)
    left = np.arange(rows) // size * size
    lengths = np.minimum(left + size, rows) - left
    _fits(rows, int(lengths.sum()))
    return _csr(lengths, _ranges(left, lengths), rows, seed)


def fem(side: int, dof: int = 3, points: int = 27, seed: int = 1) -> Any:
    """A grid of side^3 (or side^2) nodes with `dof` unknowns each: every pair of neighbours is a dense block of dof x
    dof."""
    _positive(dof=dof)
    nodes = stencil(points, side, seed=seed)
    _fits(nodes.shape[0] * dof, nodes.nnz * dof * dof)
    lengths = np.repeat(np.diff(nodes.indptr) * dof, dof)
    first = nodes.indices.astype(np.int32)[:, None] * np.int32(dof) + np.arange(dof, dtype=np.int32)
    pieces = first.reshape(-1)  # columns of one row of each node
    if dof == 1:
        return nodes
    start = np.repeat(nodes.indptr[:-1].astype(np.int64) * dof, dof)
    return _csr(lengths, pieces[_ranges(start, lengths)], nodes.shape[0] * dof, seed)


def zipf(rows: int, mean: float, exponent: float = 2.0, skew: float = 2.0, seed: int = 1) -> Any:
    """Lengths of rows from a Pareto distribution (P(length > l) ~ l^(1 - exponent)) scaled to `mean`, popular columns
    first (x^skew of a uniform x), rows in random order: web pages, followers."""
    _positive(rows=rows, mean=mean, skew=skew)
    if exponent <= 1:
        raise ValueError(f"exponent {exponent}: must be greater than 1")
    random = np.random.default_rng(seed)
    lengths = (1 - random.random(rows)) ** (-1 / (exponent - 1))
    for _ in range(3):  # cut at the number of columns, which changes the mean
        lengths = np.minimum(lengths * (mean / lengths.mean()), rows / 2)
    lengths = np.floor(lengths + random.random(rows)).astype(np.int64)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, rows), rows, seed, skew)


def rmat(scale: int, edges: int = 8, seed: int = 1, a: float = 0.57, b: float = 0.19, c: float = 0.19) -> Any:
    """R-MAT (Chakrabarti, Zhan and Faloutsos, SDM 2004): 2^scale rows, `edges` a row before equal ones are joined. The
    default probabilities are those of Graph 500."""
    if not 1 <= scale <= 28 or min(a, b, c) < 0 or a + b + c > 1:
        raise ValueError(f"scale {scale}, a {a}, b {b}, c {c}: 1 to 28, and probabilities with a sum of at most 1")
    rows, count = 1 << scale, edges << scale
    _fits(rows, count)
    random = np.random.default_rng(seed)
    key = np.zeros(count, np.int64)
    for bit in range(scale):
        u = random.random(count, np.float32)
        down, right = u >= a + b, ((u >= a) & (u < a + b)) | (u >= a + b + c)
        key |= down.astype(np.int64) << (scale + bit)
        key |= right.astype(np.int64) << bit
    key = _joined(key)
    return _csr(np.bincount(key >> scale, minlength=rows), (key & (rows - 1)).astype(np.int32), rows, seed)


def arrow(rows: int, width: int = 1, seed: int = 1) -> Any:
    """A diagonal, and the first `width` rows and columns full."""
    _positive(rows=rows, width=width)
    width = min(width, rows)
    lengths = np.where(np.arange(rows) < width, rows, width + 1)
    _fits(rows, int(lengths.sum()))
    tail = np.empty((rows - width, width + 1), np.int32)
    tail[:, :width] = np.arange(width)
    tail[:, width] = np.arange(width, rows)
    columns = np.concatenate([np.tile(np.arange(rows, dtype=np.int32), width), tail.reshape(-1)])
    return _csr(lengths, columns, rows, seed)


def long_rows(rows: int, per_row: float, long: int = 1, share: float = 1.0, seed: int = 1) -> Any:
    """Short rows anywhere, and `long` rows, evenly spaced, that fill this share of the columns."""
    _positive(rows=rows, per_row=per_row, long=long)
    if not 0 < share <= 1:
        raise ValueError(f"share {share}: between 0 and 1")
    lengths = np.minimum(np.random.default_rng(seed).poisson(per_row, rows), rows)
    lengths[np.linspace(0, rows - 1, min(long, rows)).astype(np.int64)] = max(1, int(share * rows))
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, rows), rows, seed)


def circuit(rows: int, per_row: float = 4, nets: int = 4, seed: int = 1) -> Any:
    """A diagonal, entries near it, and a few rows and columns with a tenth of all (supply nets)."""
    _positive(rows=rows, per_row=per_row, nets=nets)
    random = np.random.default_rng(seed)
    count = int(rows * per_row)
    i = random.integers(0, rows, count)
    j = np.clip(i + np.rint(random.standard_cauchy(count) * 20).astype(np.int64).clip(-rows, rows), 0, rows - 1)
    net = random.integers(0, rows, nets)
    tapped = random.integers(0, rows, (nets, max(1, rows // 10)))
    one, other = np.repeat(net, tapped.shape[1]), tapped.reshape(-1)
    diagonal = np.arange(rows)
    key = _joined(np.concatenate([diagonal, i, one, other]) * rows + np.concatenate([diagonal, j, other, one]))
    return _csr(np.bincount(key // rows, minlength=rows), (key % rows).astype(np.int32), rows, seed)


def staircase(rows: int, longest: int, seed: int = 1) -> Any:
    """Row i has entries in proportion to i, up to `longest`, anywhere: long rows together at the end."""
    _positive(rows=rows, longest=longest)
    lengths = np.minimum(1 + np.arange(rows) * longest // rows, rows)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, rows), rows, seed)


def sparse_rows(rows: int, share: float, per_row: int, seed: int = 1) -> Any:
    """Only this share of the rows, at random, has entries: `per_row` each."""
    _positive(rows=rows, per_row=per_row)
    lengths = np.where(np.random.default_rng(seed).random(rows) < share, min(per_row, rows), 0)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, rows), rows, seed)


def two_lengths(rows: int, short: int, long: int, every: int = 32, seed: int = 1) -> Any:
    """Each `every`-th row is long: unequal work side by side."""
    _positive(rows=rows, short=short, long=long, every=every)
    lengths = np.minimum(np.where(np.arange(rows) % every == 0, long, short), rows)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, rows), rows, seed)


def diagonals(rows: int, count: int, share: float = 1.0, seed: int = 1) -> Any:
    """`count` diagonals at random distances, the main one among them; of each, this share of the elements."""
    _positive(rows=rows, count=count, share=share)
    random = np.random.default_rng(seed)
    offsets = np.unique(np.concatenate([[0], random.integers(-rows // 2, rows // 2 + 1, count - 1)]))
    _fits(rows, rows * offsets.size)
    columns = np.arange(rows)[:, None] + offsets
    kept = (columns >= 0) & (columns < rows) & (random.random(columns.shape, np.float32) < share)
    return _csr(kept.sum(axis=1), columns[kept], rows, seed)


def smallworld(rows: int, near: int = 3, far: float = 0.1, seed: int = 1) -> Any:
    """A ring of nodes joined to `near` on both sides; a share of the entries goes anywhere (Watts, Strogatz 1998)."""
    _positive(rows=rows, near=near)
    random = np.random.default_rng(seed)
    around = np.concatenate([np.arange(-near, 0), np.arange(1, near + 1)])
    row = np.repeat(np.arange(rows), around.size)
    columns = (row.reshape(rows, -1) + around).reshape(-1) % rows
    moved = random.random(columns.size, np.float32) < far
    columns[moved] = random.integers(0, rows, int(moved.sum()))
    return _keyed(row * rows + columns, rows, rows, seed)


def triangular(rows: int, per_row: float, seed: int = 1) -> Any:
    """A lower triangle: row i has Poisson distributed entries among its i + 1 places, nearer ones more often."""
    _positive(rows=rows, per_row=per_row)
    _fits(rows, int(rows * (per_row + 1)))
    random = np.random.default_rng(seed)
    row = np.repeat(np.arange(rows), random.poisson(per_row, rows))
    columns = row - (row * random.random(row.size) ** 3).astype(np.int64)
    diagonal = np.arange(rows) * (rows + 1)
    return _keyed(np.concatenate([diagonal, row * rows + columns]), rows, rows, seed)


def bordered(rows: int, size: int, border: int, seed: int = 1) -> Any:
    """Dense blocks of size x size on the diagonal, and the last `border` columns full: blocks with shared unknowns."""
    _positive(rows=rows, size=size, border=border)
    border = min(border, rows)
    left = np.arange(rows) // size * size
    lengths = np.maximum(np.minimum(left + size, rows - border) - left, 0)
    _fits(rows, int(lengths.sum()) + rows * border)
    row = np.repeat(np.arange(rows), lengths)
    key = np.concatenate(
        [
            row * rows + _ranges(left, lengths),
            (np.arange(rows)[:, None] * rows + np.arange(rows - border, rows)).reshape(-1),
        ]
    )
    return _keyed(key, rows, rows, seed)


def hypercube(dims: int, seed: int = 1) -> Any:
    """Corners of a cube in `dims` dimensions, each beside those that differ in one bit of the number."""
    if not 1 <= dims <= 24:
        raise ValueError(f"dims = {dims}: between 1 and 24")
    rows = 1 << dims
    columns = np.arange(rows, dtype=np.int32)[:, None] ^ (np.int32(1) << np.arange(dims, dtype=np.int32))
    columns.sort(axis=1)
    return _csr(np.full(rows, dims), columns.reshape(-1), rows, seed)


def fractal(depth: int, seed: int = 1) -> Any:
    """Pascal's triangle modulo 2, 2^depth rows: entry (i, j) where j has no bit that i lacks. 3^depth entries."""
    if not 1 <= depth <= 16:
        raise ValueError(f"depth = {depth}: between 1 and 16")
    row, column = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for bit in range(depth):
        step = 1 << bit
        row, column = (
            np.concatenate([row, row + step, row + step]),
            np.concatenate([column, column, column + step]),
        )
    return _keyed((row << depth) + column, 1 << depth, 1 << depth, seed)


def terms(rows: int, mean: float, cols: int, spread: float = 1.0, seed: int = 1) -> Any:
    """Documents and their words: log-normal lengths of rows, popular columns first."""
    _positive(rows=rows, mean=mean, cols=cols)
    lengths = np.random.default_rng(seed).lognormal(0, spread, rows)
    lengths = np.clip(np.rint(lengths * (mean / lengths.mean())), 1, cols // 2 + 1).astype(np.int64)
    return _spread(lengths, np.zeros(rows, np.int64), np.full(rows, cols), cols, seed, 3.0)


def prolongation(side: int, seed: int = 1) -> Any:
    """To a grid of side^3 nodes from one with twice the spacing, by trilinear interpolation: 1 to 8 entries a row."""
    _positive(side=side)
    coarse = side // 2 + 1
    at = np.stack(np.unravel_index(np.arange(side**3), (side,) * 3), -1)
    low, high = at // 2, (at + 1) // 2
    place = np.arange(side**3) * coarse**3
    corners = itertools.product(*[(low[:, axis], high[:, axis]) for axis in range(3)])
    key = np.concatenate([place + (i * coarse + j) * coarse + k for i, j, k in corners])
    return _keyed(key, side**3, coarse**3, seed)


def tree(rows: int, seed: int = 1) -> Any:
    """A tree, both directions: the parent of each node is any node before it, earlier ones more often."""
    _positive(rows=rows)
    child = np.arange(1, rows)
    parent = (child * np.random.default_rng(seed).random(rows - 1) ** 2).astype(np.int64)
    key = np.concatenate([[0], child * rows + parent, parent * rows + child])
    return _keyed(key, rows, rows, seed)


def angular(parts: int, high: int, wide: int, per_row: int, linking: int, seed: int = 1) -> Any:
    """Constraints of a linear program: `parts` blocks of high x wide with `per_row` entries a row, and below them
    `linking` rows with an entry for a tenth of all columns."""
    _positive(parts=parts, high=high, wide=wide, per_row=per_row)
    rows, cols = parts * high, parts * wide
    lengths = np.concatenate([np.full(rows, min(per_row, wide)), np.full(linking, max(1, cols // 10))])
    left = np.concatenate([np.arange(rows) // high * wide, np.zeros(linking, np.int64)])
    width = np.concatenate([np.full(rows, wide), np.full(linking, cols)])
    return _spread(lengths, left, width, cols, seed)


def cliques(rows: int, size: int, count: int, seed: int = 1) -> Any:
    """Groups of `size` nodes, each joined to all others of its group; a node may be in several, such as authors of
    papers. Half of a group is near its first, the rest anywhere."""
    _positive(rows=rows, size=size, count=count)
    random = np.random.default_rng(seed)
    first = random.integers(0, rows, (count, 1))
    near = (first + random.integers(0, 4 * size, (count, size - size // 2))) % rows
    group = np.concatenate([near, random.integers(0, rows, (count, size // 2))], axis=1)
    key = (group[:, :, None] * rows + group[:, None, :]).reshape(-1)
    return _keyed(np.concatenate([key, np.arange(rows) * (rows + 1)]), rows, rows, seed)


def chain(queues: int, places: int, seed: int = 1) -> Any:
    """Transitions of a network of queues in a ring, each with room for `places` - 1: one step moves one customer from
    a queue to the next, or in or out of the first."""
    _positive(queues=queues, places=places)
    rows = places**queues
    _fits(rows, rows * (queues + 3))
    state = np.arange(rows)
    keys = [state * (rows + 1)]
    held = [state // places**q % places for q in range(queues)]
    for q in range(queues):
        to = (q + 1) % queues
        moves = (held[q] > 0) & (held[to] < places - 1) & (q != to)
        keys.append((state * (rows + 1) - places**q + places**to)[moves])
    keys += [(state * (rows + 1) + 1)[held[0] < places - 1], (state * (rows + 1) - 1)[held[0] > 0]]
    return _keyed(np.concatenate(keys), rows, rows, seed)


def kron(side: int, half: int, size: int, seed: int = 1) -> Any:
    """Kronecker product of a band of 2 half + 1 diagonals and a random matrix of `size` rows with a fifth of its
    elements: blocks of one pattern."""
    _positive(side=side, half=half, size=size)
    random = np.random.default_rng(seed)
    block = np.flatnonzero(random.random(size * size) < 0.2)
    offset = np.arange(-half, half + 1)
    i = np.repeat(np.arange(side), offset.size)
    j = i + np.tile(offset, side)
    kept = (j >= 0) & (j < side)
    place = i[kept] * size * side * size + j[kept] * size
    key = place[:, None] + block // size * side * size + block % size
    return _keyed(key.reshape(-1), side * size, side * size, seed)


def dense(rows: int, cols: int = 0, seed: int = 1) -> Any:
    """Every element."""
    cols = cols or rows
    _positive(rows=rows, cols=cols)
    _fits(rows, rows * cols)
    return _csr(np.full(rows, cols), np.tile(np.arange(cols, dtype=np.int32), rows), cols, seed)


GENERATORS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (stencil, dense_band, band, uniform, regular, blocks, fem, zipf, rmat, arrow, long_rows, circuit,
              staircase, sparse_rows, two_lengths, diagonals, smallworld, triangular, bordered,
              hypercube, fractal, terms, prolongation, tree, angular, cliques, chain, kron, dense,
              file)
}  # fmt: skip


# ---- pieces ---------------------------------------------------------------------------------


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} = {value}: must be positive")


def _fits(rows: int, nonzeros: int) -> None:
    if rows + nonzeros > MOST:
        raise ValueError(f"{rows} rows and {nonzeros} non-zeros: too many for 32-bit indices")


def _csr(lengths: Ints, columns: NDArray[Any], cols: int, seed: int) -> Any:
    """Of rows' lengths, and columns that ascend in each row."""
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    out = sparse.csr_array((lengths.size, cols), dtype=np.float32)
    out.indptr, out.indices = indptr, columns.astype(np.int32, copy=False)
    out.data = values(columns.size, seed)
    return out


def _ranges(first: Ints, lengths: Ints) -> Ints:
    """first[0], first[0] + 1, ... (lengths[0] of them), then those of first[1], and so on."""
    ends = np.cumsum(lengths)
    out = np.arange(int(ends[-1]) if ends.size else 0)
    out += np.repeat(first - (ends - lengths), lengths)
    return out


def _spread(lengths: Ints, left: Ints, width: Ints, cols: int, seed: int, skew: float = 1) -> Any:
    """Row i: lengths[i] columns, one at random in each of as many equal shares of left[i] .. left[i] + width[i] (so
    that they ascend without a sort); with a skew, of the width to this power. Equal neighbours are joined."""
    ends = np.cumsum(lengths)
    _fits(lengths.size, int(ends[-1]))
    random = np.random.default_rng([seed, 3])
    columns = np.empty(int(ends[-1]), np.int32)
    pieces = np.searchsorted(ends, np.arange(0, columns.size, CHUNK), side="right")
    for first, last in itertools.pairwise([*np.unique(pieces), lengths.size]):
        size = lengths[first:last]
        start = int(ends[first] - size[0])
        place = _ranges(np.zeros_like(size), size).astype(np.float64)  # in the row
        u = random.random(place.size, np.float32)
        if skew == 1:
            share = np.repeat(width[first:last] / np.maximum(size, 1), size)
            low = np.floor(place * share)
            place = low + np.floor(u * (np.floor((place + 1) * share) - low))
        else:
            share = np.repeat(1 / np.maximum(size, 1), size)
            place = np.floor(((place + u * 0.9999) * share) ** skew * np.repeat(width[first:last], size))
        place += np.repeat(left[first:last], size)
        np.minimum(place, cols - 1, out=place)
        columns[start : start + place.size] = place
    if skew != 1:
        row = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
        kept = np.ones(columns.size, np.bool_)
        kept[1:] = (columns[1:] != columns[:-1]) | (row[1:] != row[:-1])
        lengths, columns = np.bincount(row[kept], minlength=lengths.size), columns[kept]
    return _csr(lengths, columns, cols, seed)


def _keyed(key: Ints, rows: int, cols: int, seed: int) -> Any:
    """Of places, row * cols + column, in any order and repeated."""
    key = _joined(key)
    return _csr(np.bincount(key // cols, minlength=rows), (key % cols).astype(np.int32), cols, seed)


def _joined(key: Ints) -> Ints:
    """Sorted, each once."""
    key.sort()
    kept = np.ones(key.size, np.bool_)
    kept[1:] = key[1:] != key[:-1]
    return key[kept]


def _sorted(rows: Any, to: Ints) -> Any:
    """The matrix with its columns renumbered, ascending in each row."""
    out = sparse.csr_array(
        (rows.data, to[rows.indices].astype(np.int32), rows.indptr.astype(np.int32)), shape=rows.shape
    )
    out.has_sorted_indices = False
    out.sort_indices()
    return out

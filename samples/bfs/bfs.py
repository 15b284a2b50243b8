"""Set-up and reference of the breadth-first search: generated graphs and Matrix Market files, named by a text.

An input is a path of a Matrix Market file (`dagc.matrix_market`; entry (u, v) is an edge from u to v) or
a call of one of `FAMILIES`, such as "rmat(scale = 20, degree = 16, seed = 3)".
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.spatial
from numpy.typing import NDArray

from dagc.inputs import call
from dagc.matrix_market import edges

Ints = NDArray[np.int32]
HERE = Path(__file__).parent


class Edges(NamedTuple):
    """Edges first[i] -> last[i] of n vertices. `symmetric`: the reverse of each is there too, or is to be added
    (`mirror`)."""

    n: int
    first: Ints
    last: Ints
    symmetric: bool = True
    mirror: bool = True


def graph(rank: int, size: int, seed: int, input: str, source: int, runs: int) -> dict[str, Any]:
    """The graph of an input in CSR form, and the sources of its traversals. Each rank has the same ones.

    `source` -1: random vertices that have an edge, as far as there are any. Raises ValueError for an unknown input, a
    file that is not a graph, and a source that is not a vertex.
    """
    try:
        edges = call(input, FAMILIES, _read)
        row_ptr, col = _rows(edges)
    except MemoryError:
        raise ValueError(f"{input}: not enough memory") from None
    if source >= edges.n:
        raise ValueError(f"source {source}: {input} has {edges.n} vertices")
    sources = np.zeros(runs, np.int32)
    if source >= 0:
        sources[:] = source
        sources[1:] = np.random.default_rng(seed).integers(edges.n, size=runs - 1)
    elif edges.n:
        starts = np.flatnonzero(np.diff(row_ptr)) if col.size else np.arange(edges.n)
        sources[:] = np.random.default_rng(seed).choice(starts, runs)
    return {
        "n": edges.n, "m": col.size, "symmetric": int(edges.symmetric),
        "row_ptr": row_ptr, "col": col, "sources": sources,
    }  # fmt: skip


def scipy_levels(data: dict[str, Any], **_: Any) -> dict[str, Ints]:
    """`levels`, from the order in which SciPy visits the vertices."""
    n, sources = data["n"], data["sources"]
    levels = np.full((len(sources), n), -1, np.int32)
    if n == 0:
        return {"levels": levels}
    ones = np.ones(data["col"].size, np.float64)
    matrix = scipy.sparse.csr_array((ones, data["col"], data["row_ptr"]), (n, n))
    for row, source in zip(levels, sources, strict=True):
        order, before = scipy.sparse.csgraph.breadth_first_order(matrix, int(source))
        place = np.empty(n, np.int64)
        place[order] = np.arange(order.size)
        found_from = place[before[order[1:]]]  # places of the vertices from which the others were found: they ascend
        begin, end, level = 0, 1, 0
        while begin < end:
            row[order[begin:end]] = level
            begin, end = end, 1 + int(np.searchsorted(found_from, end))
            level += 1
    return {"levels": levels}


# ---- families ---------------------------------------------------------------------------------------------------


def rmat(
    scale: int, degree: int, seed: int = 0, a: float = 0.57, b: float = 0.19, c: float = 0.19, directed: bool = False
) -> Edges:
    """R-MAT (Chakrabarti, Zhan and Faloutsos 2004), as in Graph500: 2 ** scale vertices in random order, of `degree`
    edges each on average, self loops and repeated edges among them."""
    rng = np.random.default_rng(seed)
    n, m = 1 << scale, (1 << scale) * degree // (1 if directed else 2)
    first, last = np.zeros(m, np.int32), np.zeros(m, np.int32)
    limits = (np.cumsum([a, b, c]) * 65536).astype(np.uint16)
    for _ in range(scale):
        drawn = rng.integers(0, 65536, m, np.uint16)
        low = drawn >= limits[1]  # the lower half: c or d
        right = ((drawn >= limits[0]) & ~low) | (drawn >= limits[2])
        first, last = (first << 1) | low, (last << 1) | right
    names = rng.permutation(n).astype(np.int32)
    return Edges(n, names[first], names[last], not directed, not directed)


def grid(rows: int, columns: int, seed: int = 0, depth: int = 1, kept: float = 1.0) -> Edges:
    """Neighbours along the axes of a grid; each edge is there with probability `kept`."""
    n = rows * columns * depth
    place = np.arange(n, dtype=np.int32).reshape(depth, rows, columns)
    pairs = [(place[:, :, :-1], place[:, :, 1:]), (place[:, :-1], place[:, 1:]), (place[:-1], place[1:])]
    first = np.concatenate([p.ravel() for p, _ in pairs])
    last = np.concatenate([q.ravel() for _, q in pairs])
    if kept < 1:
        there = np.random.default_rng(seed).random(first.size, np.float32) < kept
        first, last = first[there], last[there]
    return Edges(n, first, last)


def roads(rows: int, columns: int, seed: int = 0, kept: float = 0.65, bends: int = 3) -> Edges:
    """Like a map: the crossings of a grid, of whose roads a share is there, each with `bends` vertices on it."""
    crossings = grid(rows, columns, seed, 1, kept)
    number = crossings.first.size
    between = crossings.n + np.arange(number * bends, dtype=np.int32).reshape(number, bends)
    way = np.column_stack([crossings.first, between, crossings.last])
    return Edges(crossings.n + number * bends, way[:, :-1].ravel(), way[:, 1:].ravel())


def geometric(n: int, degree: float, seed: int = 0) -> Edges:
    """Points in a square, with edges between those closer than a radius that gives `degree` edges on average. They are
    numbered by strips of the square."""
    points = np.random.default_rng(seed).random((n, 2))
    strips = max(1, int(np.sqrt(n / 16)))
    points = points[np.lexsort((points[:, 0], (points[:, 1] * strips).astype(np.int32)))]
    radius = np.sqrt(degree / (np.pi * max(n, 1)))
    pairs = scipy.spatial.cKDTree(points).query_pairs(radius, output_type="ndarray").astype(np.int32)
    return Edges(n, pairs[:, 0], pairs[:, 1])


def regular(n: int, degree: int, seed: int = 0) -> Edges:
    """`degree` / 2 random cycles through all vertices: every vertex has `degree` edges, and no two are far apart."""
    rng = np.random.default_rng(seed)
    ways = [rng.permutation(n).astype(np.int32) for _ in range(degree // 2)]
    return Edges(n, np.concatenate(ways), np.concatenate([np.roll(way, 1) for way in ways]))


def uniform(n: int, degree: int, seed: int = 0) -> Edges:
    """Erdos-Renyi: edges between uniformly random vertices."""
    first, last = np.random.default_rng(seed).integers(0, n, (2, n * degree // 2), np.int32)
    return Edges(n, first, last)


def powerlaw(n: int, degree: int, seed: int = 0, exponent: float = 2.2) -> Edges:
    """Chung-Lu: the expected number of edges of the k-th vertex is in proportion to k ** (-1 / (exponent - 1)).

    Raises ValueError unless exponent > 2.
    """
    if exponent <= 2:
        raise ValueError(f"exponent is more than 2, not {exponent}")
    rng = np.random.default_rng(seed)
    left = 1 - 1 / (exponent - 1)  # of the sum of the first k weights, which is about (k ** left - 1) / left
    drawn = (1 + rng.random((2, n * degree // 2)) * ((n + 1) ** left - 1)) ** (1 / left)
    ends = (drawn - 1).astype(np.int32).clip(max=n - 1)
    names = rng.permutation(n).astype(np.int32)
    return Edges(n, names[ends[0]], names[ends[1]])


def smallworld(n: int, degree: int, seed: int = 0, rewired: float = 0.05) -> Edges:
    """Watts and Strogatz: a ring with edges to the next `degree` / 2 vertices, of which a share leads anywhere."""
    rng = np.random.default_rng(seed)
    first = np.tile(np.arange(n, dtype=np.int32), degree // 2)
    last = (first + np.repeat(np.arange(1, degree // 2 + 1, dtype=np.int32), n)) % np.int32(n)
    moved = rng.random(first.size, np.float32) < rewired
    last[moved] = rng.integers(0, n, int(moved.sum()), np.int32)
    return Edges(n, first, last)


def star(n: int, hubs: int = 1, seed: int = 0) -> Edges:
    """`hubs` vertices in a row, the others each with an edge to one of them."""
    leaves = np.arange(hubs, n, dtype=np.int32)
    row = np.arange(min(hubs, n), dtype=np.int32)
    return Edges(n, np.concatenate([leaves, row[:-1]]), np.concatenate([leaves % np.int32(max(hubs, 1)), row[1:]]))


def path(n: int, seed: int = 0) -> Edges:
    """One vertex after another."""
    row = np.arange(n, dtype=np.int32)
    return Edges(n, row[:-1], row[1:])


def tree(n: int, children: int = 2, seed: int = 0) -> Edges:
    """A complete tree."""
    child = np.arange(1, n, dtype=np.int32)
    return Edges(n, (child - 1) // np.int32(children), child)


def cliques(number: int, size: int, seed: int = 0, joined: bool = True) -> Edges:
    """Complete graphs of `size` vertices, each with an edge to the next one if `joined`."""
    inside = np.array(np.triu_indices(size, 1), np.int32)
    base = np.arange(number, dtype=np.int32)[:, None] * np.int32(size)
    first, last = (base + inside[0]).ravel(), (base + inside[1]).ravel()
    if joined:
        first = np.concatenate([first, base[1:, 0] - 1]).astype(np.int32)
        last = np.concatenate([last, base[1:, 0]]).astype(np.int32)
    return Edges(number * size, first, last)


def hypercube(dimensions: int, seed: int = 0) -> Edges:
    """The corners of a cube; neighbours differ in one bit of their numbers."""
    corner = np.arange(1 << dimensions, dtype=np.int32)
    pairs = [(corner[(corner >> bit & 1) == 0], bit) for bit in range(dimensions)]
    first = np.concatenate([low for low, _ in pairs])
    return Edges(corner.size, first, np.concatenate([low | np.int32(1 << bit) for low, bit in pairs]))


def barbell(size: int, length: int, seed: int = 0) -> Edges:
    """Two complete graphs of `size` vertices, joined by a path of `length` vertices."""
    inside = np.array(np.triu_indices(size, 1), np.int32)
    way = np.arange(size - 1, size + length + 1, dtype=np.int32)  # the last of the one to the first of the other
    first = np.concatenate([inside[0], inside[0] + np.int32(size + length), way[:-1]])
    last = np.concatenate([inside[1], inside[1] + np.int32(size + length), way[1:]])
    return Edges(2 * size + length, first.astype(np.int32), last.astype(np.int32))


def caterpillar(n: int, legs: int, seed: int = 0) -> Edges:
    """A path whose vertices have `legs` leaves each."""
    leaf = np.arange(n * legs, dtype=np.int32)
    row = np.arange(n, dtype=np.int32)
    return Edges(
        n * (1 + legs),
        np.concatenate([row[:-1], leaf // np.int32(legs)]),
        np.concatenate([row[1:], leaf + np.int32(n)]),
    )


def bipartite(left: int, right: int, degree: int, seed: int = 0) -> Edges:
    """`degree` random edges from each of `left` vertices to `right` others."""
    first = np.repeat(np.arange(left, dtype=np.int32), degree)
    last = np.random.default_rng(seed).integers(left, left + right, first.size, np.int32)
    return Edges(left + right, first, last)


def preferential(n: int, degree: int, seed: int = 0) -> Edges:
    """Each vertex has `degree` / 2 edges to older ones, the oldest of which get more (squares of uniform numbers)."""
    rng = np.random.default_rng(seed)
    first = np.repeat(np.arange(1, n, dtype=np.int32), degree // 2)
    return Edges(n, first, (rng.random(first.size) ** 2 * first).astype(np.int32))


def attached(scale: int, degree: int, length: int, seed: int = 0) -> Edges:
    """An R-MAT graph from which a path of `length` vertices leads away."""
    core = rmat(scale, degree, seed)
    way = np.arange(core.n - 1, core.n + length, dtype=np.int32)
    return Edges(core.n + length, np.concatenate([core.first, way[:-1]]), np.concatenate([core.last, way[1:]]))


def torus(rows: int, columns: int, seed: int = 0) -> Edges:
    """A grid whose borders are joined."""
    place = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    to = [np.roll(place, -1, axis).ravel() for axis in (0, 1)]
    return Edges(place.size, np.concatenate([place.ravel()] * 2), np.concatenate(to))


def communities(number: int, size: int, degree: int, seed: int = 0, outside: float = 0.01) -> Edges:
    """Random graphs of `size` vertices; a share of the edges leads anywhere."""
    rng = np.random.default_rng(seed)
    n, m = number * size, number * size * degree // 2
    first = rng.integers(0, n, m, np.int32)
    last = (first // size * size + rng.integers(0, size, m)).astype(np.int32)
    far = rng.random(m, np.float32) < outside
    last[far] = rng.integers(0, n, int(far.sum()), np.int32)
    return Edges(n, first, last)


def layers(depth: int, width: int, degree: int, seed: int = 0) -> Edges:
    """`depth` layers of `width` vertices, each with `degree` random edges to the next layer."""
    first = np.repeat(np.arange((depth - 1) * width, dtype=np.int32), degree)
    last = (first // width + 1) * width + np.random.default_rng(seed).integers(0, width, first.size)
    return Edges(depth * width, first, last.astype(np.int32))


def wheel(n: int, seed: int = 0) -> Edges:
    """A cycle, and a vertex in the middle with an edge to each."""
    rim = np.arange(1, n, dtype=np.int32)
    return Edges(n, np.concatenate([rim, np.zeros_like(rim)]), np.concatenate([np.roll(rim, -1), rim]))


def comb(n: int, length: int, seed: int = 0) -> Edges:
    """A path of `n` vertices; from each hangs a path of `length` more."""
    place = np.arange(n * (length + 1), dtype=np.int32).reshape(n, length + 1)
    first = np.concatenate([place[:-1, 0], place[:, :-1].ravel()])
    return Edges(place.size, first, np.concatenate([place[1:, 0], place[:, 1:].ravel()]))


def lollipop(size: int, length: int, seed: int = 0) -> Edges:
    """A complete graph of `size` vertices, from which a path of `length` leads away."""
    inside = np.array(np.triu_indices(size, 1), np.int32)
    way = np.arange(size - 1, size + length, dtype=np.int32)
    return Edges(size + length, np.concatenate([inside[0], way[:-1]]), np.concatenate([inside[1], way[1:]]))


def necklace(number: int, size: int, length: int, seed: int = 0) -> Edges:
    """Complete graphs of `size` vertices in a circle, each joined to the next by a path of `length` vertices."""
    inside = np.array(np.triu_indices(size, 1), np.int32)
    way = np.arange(size - 1, size + length, dtype=np.int32)
    base = np.arange(number, dtype=np.int32)[:, None] * np.int32(size + length)
    n = number * (size + length)
    first = base + np.concatenate([inside[0], way])
    last = base + np.concatenate([inside[1], way + np.int32(1)])
    return Edges(n, first.ravel(), last.ravel() % np.int32(n))


def recursive(n: int, seed: int = 0) -> Edges:
    """A random tree: each vertex hangs from any of the older ones."""
    child = np.arange(1, n, dtype=np.int32)
    return Edges(n, (np.random.default_rng(seed).random(child.size) * child).astype(np.int32), child)


def windmill(number: int, size: int, seed: int = 0) -> Edges:
    """Complete graphs of `size` vertices that have one vertex in common."""
    inside = np.array(np.triu_indices(size, 1), np.int32)
    base = np.arange(number, dtype=np.int32)[:, None] * np.int32(size - 1)
    first, last = (np.where(side == 0, np.int32(0), base + side).ravel() for side in inside)
    return Edges(1 + number * (size - 1), first, last)


def circulant(n: int, degree: int, stride: int, seed: int = 0) -> Edges:
    """Vertices in a circle, each with edges to those `stride`, 2 * `stride`, ... further, `degree` / 2 of them."""
    row = np.arange(n, dtype=np.int64)
    ends = [(row + step * stride) % n for step in range(1, degree // 2 + 1)]
    return Edges(n, np.tile(row, degree // 2).astype(np.int32), np.concatenate(ends).astype(np.int32))


def debruijn(letters: int, length: int, seed: int = 0) -> Edges:
    """Words of so many letters; each is joined to those that go on with one letter more and without the first."""
    n = letters**length
    words = np.arange(n, dtype=np.int32)
    next = words[:, None] % (n // letters) * letters + np.arange(letters, dtype=np.int32)
    return Edges(n, np.repeat(words, letters), next.ravel())


def hanoi(disks: int, seed: int = 0) -> Edges:
    """The states of the Tower of Hanoi with three pegs, joined by moves."""
    n = 3**disks
    states = np.arange(n, dtype=np.int64)
    free = np.ones((3, n), bool)  # pegs without a smaller disk
    pairs = []
    for disk in range(disks):
        peg = states // 3**disk % 3
        movable = free[peg, states]
        for step in (1, 2):
            to = (peg + step) % 3
            some = movable & free[to, states] & (to > peg)
            pairs.append((states[some], states[some] + (to - peg)[some] * 3**disk))
        free[peg, states] = False
    first, last = (np.concatenate(column).astype(np.int32) for column in zip(*pairs, strict=True))
    return Edges(n, first, last)


def window(n: int, degree: int, reach: int, seed: int = 0) -> Edges:
    """`degree` / 2 random edges from each vertex to the next `reach` ones."""
    draw = np.random.default_rng(seed)
    first = np.repeat(np.arange(n, dtype=np.int32), degree // 2)
    last = first + draw.integers(1, reach + 1, first.size, np.int32)
    return Edges(n, first[last < n], last[last < n])


def butterfly(dimensions: int, seed: int = 0) -> Edges:
    """The network of a fast Fourier transform: `dimensions` + 1 ranks of 2 ** `dimensions` vertices."""
    row = np.arange(1 << dimensions, dtype=np.int32)
    ranks = [row + (rank << dimensions) for rank in range(dimensions + 1)]
    first = np.concatenate([ranks[k] for k in range(dimensions) for _ in range(2)])
    last = np.concatenate([ranks[k + 1][row ^ bit] for k in range(dimensions) for bit in (0, 1 << k)])
    return Edges((dimensions + 1) << dimensions, first, last)


def visits(users: int, items: int, degree: int, seed: int = 0) -> Edges:
    """`degree` edges from each user to items, the k-th of which is chosen in proportion to 1 / k."""
    draw = np.random.default_rng(seed)
    chosen = np.exp(draw.random(users * degree) * np.log(items)).astype(np.int32) - 1
    return Edges(
        users + items, np.repeat(np.arange(users, dtype=np.int32), degree), users + np.clip(chosen, 0, items - 1)
    )


def shortcuts(rows: int, columns: int, number: int, seed: int = 0) -> Edges:
    """A grid, and `number` edges between random vertices."""
    plane = grid(rows, columns)
    ends = np.random.default_rng(seed).integers(0, plane.n, (2, number), np.int32)
    return Edges(plane.n, np.concatenate([plane.first, ends[0]]), np.concatenate([plane.last, ends[1]]))


def delaunay(n: int, seed: int = 0) -> Edges:
    """Random points in a square, joined by their Delaunay triangulation."""
    triangles = scipy.spatial.Delaunay(np.random.default_rng(seed).random((n, 2))).simplices.astype(np.int32)
    sides = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1)
    first, last = np.unique(sides, axis=0).T
    return Edges(n, first, last)


def nearest(n: int, neighbours: int, axes: int = 3, seed: int = 0) -> Edges:
    """Random points in a cube of so many axes, each joined to its nearest neighbours."""
    points = np.random.default_rng(seed).random((n, axes))
    _, found = scipy.spatial.cKDTree(points).query(points, neighbours + 1)
    return Edges(n, np.repeat(np.arange(n, dtype=np.int32), neighbours), found[:, 1:].astype(np.int32).ravel())


def citations(n: int, degree: int, recent: float, seed: int = 0) -> Edges:
    """Each vertex refers to earlier ones: mostly to some among the last n * recent, now and then to any."""
    draw = np.random.default_rng(seed)
    first = np.repeat(np.arange(1, n, dtype=np.int32), degree)
    back = np.where(
        draw.random(first.size) < 0.9, draw.exponential(n * recent, first.size), draw.random(first.size) * first
    )
    return Edges(n, first, np.maximum(first - 1 - back.astype(np.int64), 0).astype(np.int32))


def sierpinski(depth: int, seed: int = 0) -> Edges:
    """Triangles of triangles: three copies, each joined to the others at one corner."""
    n, first, last = 3, np.array([0, 0, 1]), np.array([1, 2, 2])
    corner = (0, 1, 2)
    for _ in range(depth):
        joints = [(corner[1], n + corner[0]), (corner[2], 2 * n + corner[0]), (n + corner[2], 2 * n + corner[1])]
        first = np.concatenate([first, first + n, first + 2 * n, [a for a, _ in joints]])
        last = np.concatenate([last, last + n, last + 2 * n, [b for _, b in joints]])
        corner = (corner[0], n + corner[1], 2 * n + corner[2])
        n *= 3
    return Edges(n, first.astype(np.int32), last.astype(np.int32))


def stars(number: int, size: int, degree: int, seed: int = 0) -> Edges:
    """So many stars, whose centres are joined at random, each to `degree` others."""
    centres = np.arange(number, dtype=np.int32)
    ends = np.random.default_rng(seed).integers(0, number, number * degree, np.int32)
    leaves = number + np.arange(number * size, dtype=np.int32)
    return Edges(
        number * (size + 1), np.concatenate([np.repeat(centres, degree), np.repeat(centres, size)]),
        np.concatenate([ends, leaves]),
    )  # fmt: skip


def box(width: int, length: int, seed: int = 0) -> Edges:
    """Cells of a box of `width` x `width` x `length`, each joined to the 26 around it."""
    cells = np.arange(width * width * length, dtype=np.int32).reshape(length, width, width)
    pairs = []
    for z, y, x in ((0, 0, 1), (0, 1, -1), (0, 1, 0), (0, 1, 1), *((1, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1))):
        near = [slice(max(-d, 0), size - max(d, 0)) for d, size in zip((z, y, x), cells.shape, strict=True)]
        far = [slice(max(d, 0), size - max(-d, 0)) for d, size in zip((z, y, x), cells.shape, strict=True)]
        pairs.append((cells[tuple(near)].ravel(), cells[tuple(far)].ravel()))
    first, last = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return Edges(cells.size, first, last)


def triangles(rows: int, columns: int, seed: int = 0) -> Edges:
    """A grid with one diagonal of each cell."""
    plane, place = grid(rows, columns), np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    return Edges(
        plane.n, np.concatenate([plane.first, place[:-1, :-1].ravel()]),
        np.concatenate([plane.last, place[1:, 1:].ravel()]),
    )  # fmt: skip


def pairing(n: int, mean: float, seed: int = 0) -> Edges:
    """The configuration model: degrees are drawn from a geometric distribution, and their ends are paired at random."""
    draw = np.random.default_rng(seed)
    ends = np.repeat(np.arange(n, dtype=np.int32), draw.geometric(1 / mean, n))
    ends = draw.permutation(ends[: ends.size // 2 * 2])
    return Edges(n, ends[::2], ends[1::2])


def celebrities(n: int, degree: int, number: int, share: float, seed: int = 0) -> Edges:
    """A random graph, `number` vertices of which are joined to a share of all."""
    draw = np.random.default_rng(seed)
    crowd, followers = uniform(n, degree, seed), int(share * n)
    last = np.concatenate([crowd.last, np.repeat(np.arange(number, dtype=np.int32), followers)])
    return Edges(n, np.concatenate([crowd.first, draw.integers(0, n, number * followers, np.int32)]), last)


def onion(rings: int, first: int, seed: int = 0) -> Edges:
    """Rings around each other, each of `first` vertices more than the one inside; a vertex is joined to its neighbours
    on the ring and to one on the next."""
    sizes = first * np.arange(1, rings + 1, dtype=np.int64)
    begins = np.cumsum(sizes) - sizes
    ring = np.repeat(np.arange(rings), sizes)
    at = np.arange(int(sizes.sum())) - begins[ring]
    around = begins[ring] + (at + 1) % sizes[ring]
    inner = ring < rings - 1
    outside = begins[ring[inner] + 1] + at[inner] * sizes[ring[inner] + 1] // sizes[ring[inner]]
    every = np.arange(at.size)
    ends = np.concatenate([every, every[inner]]), np.concatenate([around, outside])
    return Edges(at.size, ends[0].astype(np.int32), ends[1].astype(np.int32))


def broom(n: int, length: int, seed: int = 0) -> Edges:
    """A path of `length` vertices, and `n` leaves at its end."""
    row, leaves = np.arange(length, dtype=np.int32), length + np.arange(n, dtype=np.int32)
    return Edges(
        length + n, np.concatenate([row[:-1], np.full_like(leaves, length - 1)]), np.concatenate([row[1:], leaves])
    )


def petals(number: int, length: int, seed: int = 0) -> Edges:
    """Cycles of `length` vertices that have one vertex in common."""
    ways = np.arange(number * (length - 1), dtype=np.int32).reshape(number, length - 1) + 1
    closed = np.column_stack([np.zeros(number, np.int32), ways, np.zeros(number, np.int32)])
    return Edges(1 + ways.size, closed[:, :-1].ravel(), closed[:, 1:].ravel())


def empty(n: int, seed: int = 0) -> Edges:
    """Vertices without edges."""
    none = np.zeros(0, np.int32)
    return Edges(n, none, none)


def loops(n: int, times: int, seed: int = 0) -> Edges:
    """A cycle in which each edge, and an edge from each vertex to itself, is there `times` times."""
    row = np.tile(np.arange(n, dtype=np.int32), times)
    return Edges(n, np.concatenate([row, row]), np.concatenate([(row + 1) % np.int32(max(n, 1)), row]))


FAMILIES: dict[str, Callable[..., Edges]] = {
    f.__name__: f
    for f in (
        rmat, grid, roads, geometric, regular, uniform, powerlaw, smallworld, star, path, tree, cliques, empty, loops,
        hypercube, barbell, caterpillar, bipartite, preferential, attached, torus, communities,
        layers, wheel, comb, lollipop, necklace, recursive, windmill, circulant,
        debruijn, hanoi, window, butterfly, visits, shortcuts,
        delaunay, nearest, citations, sierpinski, stars, box,
        triangles, pairing, celebrities, onion, broom, petals,
    )
}  # fmt: skip


def _rows(edges: Edges) -> tuple[Ints, Ints]:
    """Row pointers and columns; edges that are there several times stay so."""
    first, last = edges.first, edges.last
    if edges.mirror:
        first, last = np.concatenate([first, last]), np.concatenate([last, first])
    if first.size >= 2**31:
        raise ValueError(f"{first.size} edges are too many for 32-bit indices")
    # Column j of this matrix has one entry, in row first[j]: converting it to rows is a stable sort by counting.
    ends = np.arange(first.size + 1, dtype=np.int32)
    rows = scipy.sparse.csc_array((last, first, ends), (edges.n, first.size)).tocsr()
    return rows.indptr.astype(np.int32), rows.data


def _read(path: str) -> Edges:
    """The edges of a Matrix Market file. A relative path begins at this directory."""
    header, first, last = edges(str(HERE / path))
    return Edges(header.rows, first, last, header.symmetry != "general", mirror=False)

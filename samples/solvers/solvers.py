"""Set-up and reference of solvers.dag: linear systems, their preconditioners, and what a selector looks at.

A system is a text: a call such as `poisson(side = 40)` (SYSTEMS has the names), or the path of a Matrix Market file of
a real, square matrix; `file(path = ...)` is below the directory DAGC_MATRICES. The right-hand side is A times a random
vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, spatial

from dagc import matrix_market
from dagc.inputs import call

HERE = Path(__file__).resolve().parent
BLOCK = 8
SOLVERS = ("cg", "bicgstab")
PRECONDITIONERS = ("jacobi", "block", "sparse")
PATTERN = 8  # most non-zeros of a column of the sparse approximate inverse
ROUNDS = ((40, 6), (80, 4), (160, 3), (320, 2))  # of `race`: products with A in all, and how many pairs take part
PRODUCTS = {"cg": 1, "bicgstab": 2}  # with A, of an iteration
# On an H100, from solves of the training lists: seconds of an iteration on a small system, and of a step along a row in
# which LANES threads take an element each; bytes a second, roughly.
LAUNCHES, STEP, BANDWIDTH = {"cg": 30e-6, "bicgstab": 50e-6}, 80e-9, 2e12
LANES = 4
TESTED = 4  # iterations between tests of the residual

Floats = NDArray[np.float64]


def load(rank: int, size: int, seed: int, system: str, tolerance: float = 1e-6) -> dict[str, float | NDArray[Any]]:
    """The system on each rank, with each preconditioner. Raises ValueError with the reason."""
    try:
        return _load(seed, system, tolerance)
    except MemoryError:
        raise ValueError(f"{system}: not enough memory") from None


def _load(seed: int, system: str, tolerance: float) -> dict[str, float | NDArray[Any]]:
    A = call(system, SYSTEMS, lambda path: from_file(str(HERE / path)))
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"{system} is {A.shape[0]} x {A.shape[1]}, not square")
    n = A.shape[0]
    b = A @ (np.random.default_rng(seed).random(n) * 2 - 1)
    if not b.any():
        raise ValueError(f"{system} is zero")
    M = approximate_inverse(A)
    data = {
        "n": n, "nnz": A.nnz, "row_ptr": A.indptr, "col": A.indices, "val": A.data,
        "diagonal": inverse_diagonal(A), "blocks": inverse_blocks(A).reshape(-1)[: BLOCK * n],
        "m_nnz": M.nnz, "m_ptr": M.indptr, "m_col": M.indices, "m_val": M.data,
        "b": b, "r": b, "x": np.zeros(n), "p": np.zeros(n), "v": np.zeros(n), "old": np.array([np.inf, 1, 1]),
    }  # fmt: skip
    solver, precond = race(A, data, tolerance)[0].pair
    return {**data, "leader_solver": SOLVERS.index(solver), "leader_precond": PRECONDITIONERS.index(precond)}


def matrix_of(data: dict[str, Any]) -> Any:
    """A of the arrays that `load` returns."""
    n = int(data["n"])
    return sparse.csr_array((data["val"], data["col"], data["row_ptr"]), shape=(n, n))


def asymmetry(A: Any) -> float:
    """0: symmetric; 1: skew."""
    return float(abs(A - A.T).sum()) / (2 * float(np.abs(A.data).sum()))


class Trial:
    """The first iterations of a solver with a preconditioner."""

    def __init__(self, A: Any, data: dict[str, Any], solver: str, precond: str, tolerance: float) -> None:
        apply = _preconditioner(data, A.shape[0], precond)
        self.iterations = (_cg if solver == "cg" else _bicgstab)(A, apply, data["b"])
        self.pair, self.tolerance, self.size = (solver, precond), tolerance, float(np.linalg.norm(data["b"]))
        self.products, self.seconds = PRODUCTS[solver], iteration_seconds(data, solver, precond)
        self.done = 0
        self.left = 1.0  # the smallest |r| / |b| so far

    def advance(self, products: int) -> None:
        """Until this many products with A in all, or until it has converged or failed."""
        with np.errstate(all="ignore"):
            while self.done * self.products < products and self.tolerance < self.left < np.inf:
                _, r = next(self.iterations)
                now = float(np.linalg.norm(r)) / self.size
                self.done += 1
                self.left = min(self.left, now) if np.isfinite(now) else np.inf

    def expected(self) -> float:
        """Seconds of the solve on a GPU, if the residual goes on as on average so far."""
        if not self.left < 1:
            return float("inf")
        rest = np.log(self.tolerance) / np.log(self.left) if self.left > self.tolerance else 1.0
        return float(self.seconds * np.ceil(self.done * rest / TESTED) * TESTED)


def race(A: Any, data: dict[str, Any], tolerance: float, rounds: Sequence[tuple[int, int]] = ROUNDS) -> list[Trial]:
    """The pairs, the one that is expected to be the fastest first. A few iterations with each,
    more with those that are ahead (successive halving: Karnin, Koren and Somekh 2013): expectations are compared
    after equal numbers of products only, for residuals fall at first at another rate than later."""
    trials = [Trial(A, data, solver, precond, tolerance) for solver in SOLVERS for precond in PRECONDITIONERS]
    for products, number in rounds:
        for trial in trials[:number]:
            trial.advance(products)
        trials[:number] = sorted(trials[:number], key=Trial.expected)
    return trials


def iteration_seconds(data: dict[str, Any], solver: str, precond: str) -> float:
    """Of an iteration on a GPU: its launches, or the bytes of its matrices and vectors if these take longer, and the
    longest row of each product, which a few threads compute."""
    n = data["n"]
    applied = {"jacobi": 16 * n, "block": 72 * n, "sparse": 12 * data["m_nnz"] + 20 * n}[precond]
    bytes_ = PRODUCTS[solver] * (12 * data["nnz"] + 20 * n + applied + 80 * n)
    steps = np.ceil(np.diff(data["row_ptr"]).max() / LANES)
    if precond == "sparse":
        steps += np.ceil(np.diff(data["m_ptr"]).max() / LANES)
    return float(max(LAUNCHES[solver], bytes_ / BANDWIDTH) + PRODUCTS[solver] * steps * STEP)


def iterates(data: dict[str, Any], *, unroll: int, solver: str, precond: str, **_: Any) -> dict[str, Floats]:
    """x after `unroll` iterations, by SciPy's products."""
    n = int(data["n"])
    A = matrix_of(data)
    apply = _preconditioner(data, n, precond)
    iterations = (_cg if solver == "cg" else _bicgstab)(A, apply, data["b"])
    return {"x": next(itertools.islice(iterations, unroll - 1, None))[0]}


def _preconditioner(data: dict[str, Any], n: int, name: str) -> Callable[[Floats], Floats]:
    if name == "jacobi":
        return lambda r: data["diagonal"] * r
    if name == "sparse":
        M = sparse.csr_array((data["m_val"], data["m_col"], data["m_ptr"]), shape=(n, n))
        return lambda r: M @ r
    count = -(-n // BLOCK)
    blocks = np.zeros(count * BLOCK * BLOCK)
    blocks[: data["blocks"].size] = data["blocks"]

    def by_blocks(r: Floats) -> Floats:
        padded = np.zeros(count * BLOCK)
        padded[:n] = r
        out = np.einsum("bij,bj->bi", blocks.reshape(count, BLOCK, BLOCK), padded.reshape(count, BLOCK))
        return out.reshape(-1)[:n]

    return by_blocks


def _ratio(a: float, b: float) -> float:
    return a / b if b != 0 else 0.0


def _cg(A: Any, apply: Callable[[Floats], Floats], b: Floats) -> Iterator[tuple[Floats, Floats]]:
    """x and the residual after each iteration."""
    x, r, p, rho = np.zeros_like(b), b.copy(), np.zeros_like(b), np.inf
    while True:
        z = apply(r)
        now = float(r @ z)
        p = z + _ratio(now, rho) * p
        q = A @ p
        alpha = _ratio(now, float(p @ q))
        x, r, rho = x + alpha * p, r - alpha * q, now
        yield x, r


def _bicgstab(A: Any, apply: Callable[[Floats], Floats], b: Floats) -> Iterator[tuple[Floats, Floats]]:
    """x and the residual after each iteration."""
    x, r, p, v = np.zeros_like(b), b.copy(), np.zeros_like(b), np.zeros_like(b)
    rho, alpha, omega = np.inf, 1.0, 1.0
    while True:
        now = float(b @ r)
        p = r + _ratio(now, rho) * _ratio(alpha, omega) * (p - omega * v)
        ph = apply(p)
        v = A @ ph
        alpha = _ratio(now, float(b @ v))
        s = r - alpha * v
        sh = apply(s)
        t = A @ sh
        omega = _ratio(float(t @ s), float(t @ t))
        x, r, rho = x + alpha * ph + omega * sh, s - omega * t, now
        yield x, r


# ---- preconditioners ------------------------------------------------------------------------


def inverse_diagonal(A: Any) -> Floats:
    """1 over the diagonal; 1 where it is 0."""
    d = A.diagonal()
    return 1 / np.where(d == 0, 1, d)


def inverse_blocks(A: Any) -> Floats:
    """Inverses of the blocks of BLOCK x BLOCK on the diagonal, shape (ceil(n / BLOCK), BLOCK, BLOCK). A singular one
    counts as its diagonal."""
    n = A.shape[0]
    count = -(-n // BLOCK)
    row = np.repeat(np.arange(n), np.diff(A.indptr))
    inside = row // BLOCK == A.indices // BLOCK
    blocks = np.zeros((count, BLOCK, BLOCK))
    blocks[row[inside] // BLOCK, row[inside] % BLOCK, A.indices[inside] % BLOCK] = A.data[inside]
    tail = np.arange(n, count * BLOCK)
    blocks[tail // BLOCK, tail % BLOCK, tail % BLOCK] = 1
    with np.errstate(all="ignore"):
        singular = ~(np.linalg.cond(blocks, 1) < 1e12)
    d = np.einsum("bii->bi", blocks[singular])
    blocks[singular] = np.where(d == 0, 1, d)[:, :, None] * np.eye(BLOCK)
    return np.linalg.inv(blocks)


def approximate_inverse(A: Any) -> Any:
    """M with the pattern of A (of each column, the PATTERN entries of the largest magnitude and the diagonal) that
    minimises |A M - I| in the Frobenius norm: SPAI with a fixed pattern (Grote and Huckle 1997), by the normal
    equations. Made symmetric where A is, for conjugate gradients."""
    n = A.shape[0]
    C = sparse.csc_array(A)
    J = _largest(C, n)  # n x PATTERN, padded by -1
    there = J >= 0
    at = np.where(there, J, 0)
    B = sparse.csr_array(C.T @ C)
    G = _entries(B, np.repeat(at[:, :, None], J.shape[1], 2), np.repeat(at[:, None, :], J.shape[1], 1))
    both = there[:, :, None] & there[:, None, :]
    G = np.where(both, G, np.eye(J.shape[1]))
    G += np.eye(J.shape[1]) * 1e-14 * np.abs(G).max(axis=(1, 2), initial=1e-300)[:, None, None]
    rhs = np.where(there, _entries(sparse.csr_array(A), np.repeat(np.arange(n)[:, None], J.shape[1], 1), at), 0)
    m = np.linalg.solve(G, rhs[:, :, None])[:, :, 0]
    column = np.repeat(np.arange(n)[:, None], J.shape[1], 1)
    M = sparse.csr_array((m[there], (J[there], column[there])), shape=(n, n))
    if asymmetry(A) < 1e-10:
        M = sparse.csr_array((M + M.T) / 2)
    M.sort_indices()
    return _int32(M)


def _largest(C: Any, n: int) -> NDArray[np.int64]:
    """Rows of the largest entries of each column, its diagonal first; -1 where there are fewer."""
    column = np.repeat(np.arange(n), np.diff(C.indptr))
    size = np.where(C.indices == column, np.inf, np.abs(C.data))
    order = np.lexsort((-size, column))
    place = np.arange(C.nnz) - np.repeat(C.indptr[:-1], np.diff(C.indptr))
    J = np.full((n, PATTERN), -1, np.int64)
    kept = place < PATTERN
    J[column[order][kept], place[kept]] = C.indices[order][kept]
    empty = J[:, 0] < 0
    J[empty, 0] = np.flatnonzero(empty)
    return J


def _entries(A: Any, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> Floats:
    """Elements of a CSR matrix, 0 where it has none."""
    A.sort_indices()
    key = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)) * A.shape[1] + A.indices
    wanted = rows * A.shape[1] + cols
    at = np.minimum(np.searchsorted(key, wanted), max(key.size - 1, 0))
    return np.where(key[at] == wanted, A.data[at], 0) if key.size else np.zeros(rows.shape)


# ---- systems --------------------------------------------------------------------------------


def poisson(side: int, dims: int = 2, seed: int = 1) -> Any:
    """-div grad on side^dims nodes: 5 or 7 points."""
    return diffusion(side, dims, 1.0, 0.0, seed)


def diffusion(side: int, dims: int = 2, stretch: float = 1.0, jump: float = 0.0, seed: int = 1) -> Any:
    """Stretched by this factor along the last axis; coefficients vary by 10^jump, at random from cell to cell."""
    _check(side, dims)
    random = np.random.default_rng(seed)
    n = side**dims
    k = 10 ** (jump * random.random(n)) if jump else np.ones(n)
    out = sparse.csr_array((n, n))
    for axis in range(dims):
        far = side ** (dims - 1 - axis)
        inner = np.flatnonzero(np.arange(n) // far % side < side - 1)
        flow = (stretch if axis == dims - 1 else 1.0) * 2 / (1 / k[inner] + 1 / k[inner + far])
        edge = sparse.csr_array((flow, (inner, inner + far)), shape=(n, n))
        out = out + edge + edge.T
        walls = np.zeros(n)
        at = np.arange(n) // far % side
        walls[(at == 0) | (at == side - 1)] = stretch if axis == dims - 1 else 1.0
        out = out - sparse.dia_array((walls * k, 0), shape=(n, n))
    sums = np.asarray(np.abs(out).sum(axis=1)).reshape(-1)
    off = out - sparse.dia_array((out.diagonal(), 0), shape=(n, n))
    return _int32(sparse.csr_array(sparse.dia_array((sums, 0), shape=(n, n)) - off))


def convection(side: int, dims: int = 2, peclet: float = 1.0, shift: float = 0.0, seed: int = 1) -> Any:
    """-div grad u + w grad u by upwind differences, with a wind that turns: not symmetric; `peclet` is of a cell. A
    shift takes this multiple of the diagonal away: indefinite."""
    _check(side, dims)
    n = side**dims
    base = sparse.csr_array(diffusion(side, dims, seed=seed))
    angle = np.linspace(0, 2 * np.pi, n)
    for axis, wind in zip(range(dims), (np.cos(angle), np.sin(angle), np.cos(2 * angle)), strict=False):
        far = side ** (dims - 1 - axis)
        at = np.arange(n) // far % side
        up = np.flatnonzero((wind > 0) & (at > 0))
        down = np.flatnonzero((wind < 0) & (at < side - 1))
        base = base + sparse.csr_array((-peclet * wind[up], (up, up - far)), shape=(n, n))
        base = base + sparse.csr_array((peclet * wind[down], (down, down + far)), shape=(n, n))
        base = base + sparse.dia_array((peclet * np.abs(wind), 0), shape=(n, n))
    if shift:
        base = base - shift * sparse.dia_array((base.diagonal(), 0), shape=(n, n))
    return _int32(sparse.csr_array(base))


def dominant(rows: int, per_row: int = 8, margin: float = 1.1, symmetric: bool = False, seed: int = 1) -> Any:
    """Random entries, and a diagonal that is `margin` times the sum of its row's others, over several powers of ten."""
    if rows < 2 or per_row < 1:
        raise ValueError(f"rows {rows}, per_row {per_row}: at least 2 and 1")
    random = np.random.default_rng(seed)
    i = np.repeat(np.arange(rows), per_row)
    j = (i + 1 + random.integers(0, rows - 1, i.size)) % rows
    off = sparse.csr_array((random.standard_normal(i.size), (i, j)), shape=(rows, rows))
    if symmetric:
        off = off + off.T
    else:
        off = sparse.dia_array((10 ** (3 * random.random(rows)), 0), shape=(rows, rows)) @ off
    sums = np.asarray(abs(off).sum(axis=1)).reshape(-1)
    return _int32(sparse.csr_array(off + sparse.dia_array((margin * sums + 1e-3, 0), shape=(rows, rows))))


def blocks(rows: int, size: int = 8, coupling: float = 0.1, symmetric: bool = True, seed: int = 1) -> Any:
    """Dense, badly scaled blocks on the diagonal, weakly coupled to the next: block Jacobi's kind."""
    if rows < 2 or size < 1:
        raise ValueError(f"rows {rows}, size {size}: at least 2 and 1")
    random = np.random.default_rng(seed)
    count = -(-rows // size)
    R = random.standard_normal((count, size, size))
    D = R @ R.transpose(0, 2, 1) + 0.05 * np.eye(size) if symmetric else R + 2 * np.eye(size)
    A = sparse.csr_array(sparse.block_diag(list(D), format="csr"))[:rows, :rows]
    tie = coupling * random.standard_normal(max(rows - size, 0))
    edge = sparse.dia_array((np.concatenate([np.zeros(size), tie]), size), shape=(rows, rows))
    A = A + edge + (edge.T if symmetric else 0 * edge.T)
    extra = np.asarray(abs(edge + edge.T).sum(axis=1)).reshape(-1)
    return _int32(sparse.csr_array(A + sparse.dia_array((extra, 0), shape=(rows, rows))))


def saddle(side: int, seed: int = 1) -> Any:
    """[[K, B^T], [B, -e I]]: symmetric and indefinite."""
    K = poisson(side, seed=seed)
    n = K.shape[0]
    B = sparse.random_array((n // 4, n), density=3 / n, rng=np.random.default_rng(seed))
    low = sparse.dia_array((np.full(n // 4, -0.1), 0), shape=(n // 4, n // 4))
    return _int32(sparse.csr_array(sparse.block_array([[K, B.T], [B, low]])))


def rotated(side: int, angle: float = 45.0, ratio: float = 100.0, seed: int = 1) -> Any:
    """Diffusion `ratio` times as fast along a direction, in degrees from the first axis, as across it: nine points."""
    _check(side, 2)
    turn, fast = np.deg2rad(angle), ratio
    c, s = np.cos(turn), np.sin(turn)
    xx, yy, xy = fast * c * c + s * s, fast * s * s + c * c, (fast - 1) * c * s
    second = sparse.diags_array([-1.0, 2.0, -1.0], offsets=(-1, 0, 1), shape=(side, side))
    first = sparse.diags_array([-0.5, 0.5], offsets=(-1, 1), shape=(side, side))
    one = sparse.eye_array(side)
    mixed = sparse.kron(first, first)
    return _int32(sparse.csr_array(xx * sparse.kron(one, second) + yy * sparse.kron(second, one) - 2 * xy * mixed))


def biharmonic(side: int, foundation: float = 0.0, seed: int = 1) -> Any:
    """A plate: the square of Poisson's matrix, on a foundation. Thirteen points."""
    K = poisson(side)
    return _int32(sparse.csr_array(K @ K + foundation * sparse.eye_array(K.shape[0])))


def mass(side: int, grading: float = 1.0, seed: int = 1) -> Any:
    """Mass matrix of bilinear elements; the widths of the elements grow by the factor `grading` over each axis."""
    _check(side, 2)
    h = grading ** np.linspace(0, 1, side + 1)
    line = sparse.diags_array([h[1:-1] / 6, (h[:-1] + h[1:]) / 3, h[1:-1] / 6], offsets=(-1, 0, 1))
    return _int32(sparse.csr_array(sparse.kron(line, line)))


def reaction(side: int, species: int = 4, coupling: float = 1.0, seed: int = 1) -> Any:
    """Diffusion of several species on a grid, that react with one another in each cell: not symmetric."""
    _check(side, 2)
    if species < 1:
        raise ValueError(f"species {species}: at least 1")
    random = np.random.default_rng(seed)
    cells = side * side
    R = coupling * random.standard_normal((cells, species, species))
    R[:, np.arange(species), np.arange(species)] = np.abs(R).sum(axis=2) + 0.01
    rates = sparse.diags_array(10.0 ** -np.linspace(0, 1, species))
    spread = sparse.kron(poisson(side), rates)
    return _int32(sparse.csr_array(spread + sparse.block_diag(list(R), format="csr")))


def surfer(n: int, degree: int = 8, damping: float = 0.85, seed: int = 1) -> Any:
    """PageRank as a linear system, I - damping P^T, for a random graph with few vertices of many edges."""
    if n < 2 or degree < 1:
        raise ValueError(f"n {n}, degree {degree}: at least 2 and 1")
    random = np.random.default_rng(seed)
    first = np.repeat(np.arange(n), degree)
    last = (n * random.random(first.size) ** 3).astype(np.int64)
    P = sparse.csr_array((np.full(first.size, 1 / degree), (first, last)), shape=(n, n))
    return _int32(sparse.csr_array(sparse.eye_array(n) - damping * P.T))


def network(n: int, degree: int = 6, leak: float = 0.01, seed: int = 1) -> Any:
    """Resistors between random vertices, conductances over two powers of ten, each vertex with a leak to earth."""
    if n < 2 or degree < 1:
        raise ValueError(f"n {n}, degree {degree}: at least 2 and 1")
    random = np.random.default_rng(seed)
    ends = random.integers(0, n, (2, n * degree // 2))
    ends = ends[:, ends[0] != ends[1]]
    W = sparse.csr_array((10 ** (2 * random.random(ends.shape[1])), tuple(ends)), shape=(n, n))
    W = W + W.T
    return _int32(sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).reshape(-1) + leak) - W))


def elastic(side: int, ratio: float = 0.3, contrast: float = 0.0, seed: int = 1) -> Any:
    """Plane stress on side^2 bilinear elements, clamped on one side, by Poisson's ratio: two unknowns a node. The
    stiffness of the elements varies by 10^contrast. The element matrix is that of Sigmund, "A 99 line topology
    optimization code written in Matlab", 2001."""
    _check(side, 2)
    v = ratio
    k = np.array([1 / 2 - v / 6, 1 / 8 + v / 8, -1 / 4 - v / 12, -1 / 8 + 3 * v / 8,
                  -1 / 4 + v / 12, -1 / 8 - v / 8, v / 6, 1 / 8 - 3 * v / 8]) / (1 - v * v)  # fmt: skip
    order = "01234567 10765432 27056341 36507214 45670123 54321076 63412705 72143650".split()
    element = k[[[int(digit) for digit in row] for row in order]]
    stiffness = 10 ** (contrast * np.random.default_rng(seed).random(side * side))
    x, y = np.divmod(np.arange(side * side), side)
    corner = (side + 1) * x + y  # of a node; then the others of the element, counter-clockwise
    nodes = np.stack([corner + 1, corner + side + 2, corner + side + 1, corner], axis=1)
    unknowns = np.stack([2 * nodes, 2 * nodes + 1], axis=2).reshape(-1, 8)
    values = stiffness[:, None, None] * element
    rows, cols = np.repeat(unknowns, 8, axis=1).reshape(-1), np.tile(unknowns, (1, 8)).reshape(-1)
    n, clamped = 2 * (side + 1) ** 2, 2 * (side + 1)
    return _int32(sparse.csr_array((values.reshape(-1), (rows, cols)), shape=(n, n))[clamped:, clamped:])


def queue(side: int, load: float = 0.9, discount: float = 0.01, seed: int = 1) -> Any:
    """Two queues in a row, each with room for side - 1 customers: expected discounted costs of a Markov chain. Not
    symmetric."""
    _check(side, 2)
    up, down = sparse.eye_array(side, k=1), sparse.eye_array(side, k=-1)
    one = sparse.eye_array(side)
    rates = load * sparse.kron(up, one) + sparse.kron(down, up) + 1.1 * sparse.kron(one, down)
    leaving = np.asarray(rates.sum(axis=1)).reshape(-1)
    return _int32(sparse.csr_array(sparse.diags_array(leaving + discount) - rates))


def springs(n: int, reach: int = 3, spread: float = 4.0, seed: int = 1) -> Any:
    """Masses in a line, each tied to the next `reach` by springs whose stiffness varies by 10^spread, and to the ground
    by a weak one."""
    if n < 2 or not 1 <= reach < n:
        raise ValueError(f"n {n}, reach {reach}: at least 2 and 1, and fewer than n")
    random = np.random.default_rng(seed)
    far = range(1, reach + 1)
    W = sparse.diags_array([10 ** (spread * random.random(n - k)) for k in far], offsets=far)
    W = sparse.csr_array(W + W.T)
    return _int32(sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).reshape(-1) + 0.1) - W))


def ridge(n: int, per_row: int = 4, samples: float = 2.0, damping: float = 0.1, seed: int = 1) -> Any:
    """Normal equations of a regression on sparse data, damped: X^T X + damping I. Popular columns are long."""
    if n < 2 or per_row < 1 or samples <= 0:
        raise ValueError(f"n {n}, per_row {per_row}, samples {samples}: at least 2, 1, and above 0")
    random, rows = np.random.default_rng(seed), int(samples * n)
    i = np.repeat(np.arange(rows), per_row)
    j = np.minimum((n * random.random(i.size) ** 1.5).astype(np.int64), n - 1)
    X = sparse.csr_array((random.standard_normal(i.size), (i, j)), shape=(rows, n))
    return _int32(sparse.csr_array(X.T @ X + damping * sparse.eye_array(n)))


def kriging(n: int, neighbours: float = 20.0, nugget: float = 0.01, seed: int = 1) -> Any:
    """Covariance of random points in a square, by Wendland's function of compact support, with a nugget."""
    if n < 2 or neighbours <= 0:
        raise ValueError(f"n {n}, neighbours {neighbours}: at least 2, and above 0")
    points = np.random.default_rng(seed).random((n, 2))
    radius = float(np.sqrt(neighbours / (np.pi * n)))
    tree = spatial.KDTree(points)
    D = sparse.coo_array(tree.sparse_distance_matrix(tree, radius, output_type="coo_matrix"))
    r = D.data / radius
    C = sparse.csr_array(((1 - r) ** 4 * (4 * r + 1), (D.row, D.col)), shape=(n, n))
    C = C - sparse.diags_array(C.diagonal()) + sparse.diags_array(np.full(n, 1 + nugget))
    return _int32(sparse.csr_array(C))


def transport(side: int, directions: int = 4, absorption: float = 0.1, scattering: float = 1.0, seed: int = 1) -> Any:
    """Neutrons that fly in some directions over a grid and scatter into the others in each cell, by upwind differences:
    not symmetric."""
    _check(side, 2)
    if directions < 1:
        raise ValueError(f"directions {directions}: at least 1")
    angles = 2 * np.pi * (np.arange(directions) + 0.5) / directions
    one = sparse.eye_array(side)
    back, ahead = sparse.eye_array(side, k=-1), sparse.eye_array(side, k=1)
    cells = side * side
    moves = []
    for c, s in zip(np.cos(angles), np.sin(angles), strict=True):
        along = abs(c) * sparse.kron(one - (back if c > 0 else ahead), one)
        moves.append(along + abs(s) * sparse.kron(one, one - (back if s > 0 else ahead)))
    lost = (absorption + scattering) * sparse.eye_array(cells * directions)
    mixed = sparse.kron(np.full((directions, directions), scattering / directions), sparse.eye_array(cells))
    A = sparse.block_diag(moves, format="csr") + lost - mixed
    place = np.arange(cells * directions).reshape(directions, cells).T.reshape(-1)  # the directions of a cell together
    return _int32(sparse.csr_array(A)[place][:, place])


def from_file(path: str) -> Any:
    return _int32(matrix_market.read(path, np.float64))


def file(path: str) -> Any:
    """A file below the directory that the environment variable DAGC_MATRICES names."""
    return _int32(matrix_market.file(path, np.float64))


SYSTEMS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        poisson, diffusion, convection, dominant, blocks, saddle, rotated, biharmonic, mass, reaction, surfer, network,
        elastic, queue, springs, ridge, kriging, transport, file,
    )
}  # fmt: skip


def _check(side: int, dims: int) -> None:
    if side < 2 or dims not in (1, 2, 3):
        raise ValueError(f"side {side}, dims {dims}: at least 2, and 1 to 3")


def _int32(A: Any) -> Any:
    A.sum_duplicates()
    A.eliminate_zeros()
    A.indptr, A.indices = A.indptr.astype(np.int32), A.indices.astype(np.int32)
    return A

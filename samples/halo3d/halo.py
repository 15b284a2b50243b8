"""Set-up and reference of the periodic 3D halo exchange.

The ranks form a periodic grid of blocks, like MPI_Dims_create and a row-major numbering give it (the last dimension,
here x, varies fastest). A cell's value is a function of its place in the whole grid, so the reference knows what a
ghost cell must hold without asking who the neighbours are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MARK = -1.0  # ghost cells before the exchange; edge and corner ghosts keep it. Cells hold values in [0, 1).
DIMS, SIDES = ("x", "y", "z"), ("lo", "hi")


def periodic(rank: int, size: int, seed: int, nx: int, ny: int, nz: int, nq: int, g: int) -> dict[str, Any]:
    """`nbr[d,s]`, the rank on each side, and `u` of shape [nq, nz + 2g, ny + 2g, nx + 2g], its ghost cells unset.

    Raises ValueError where the ghost cells are wider than a block.
    """
    if not 0 < g <= min(nx, ny, nz) or nq < 1:
        raise ValueError(
            f"{nq} quantities, ghost width {g} in a block of {nx} x {ny} x {nz}: at least 1, at most its size"
        )
    grid = dims_create(size)
    place = coordinates(rank, grid)
    out: dict[str, Any] = {}
    for d, dim in enumerate(DIMS):
        for s, side in enumerate(SIDES):
            other = list(place)
            other[d] = (place[d] + (1 if s else -1)) % grid[d]
            out[f"nbr[{dim},{side}]"] = (other[2] * grid[1] + other[1]) * grid[0] + other[0]
    block = (nx, ny, nz)

    def u() -> NDArray[np.float64]:
        cells = np.full((nq, nz + 2 * g, ny + 2 * g, nx + 2 * g), MARK)
        fill(cells, [(g, g + n) for n in block], block, place, grid, seed, g)
        return cells

    return out | {"u": u}  # a function: --simulate needs no cells


def wrapped(
    data: dict[str, Any], *, rank: int, size: int, seed: int, nx: int, ny: int, nz: int, nq: int, g: int
) -> dict[str, NDArray[np.float64]]:
    """`u` after the exchange: the ghost cells of the six faces hold the cells that lie there in the whole grid."""
    u = np.array(data["u"])
    block = (nx, ny, nz)
    grid = dims_create(size)
    for d in range(3):
        for start, stop in ((0, g), (g + block[d], 2 * g + block[d])):
            box = [(g, g + n) for n in block]
            box[d] = (start, stop)
            fill(u, box, block, coordinates(rank, grid), grid, seed, g)
    return {"u": u}


def fill(
    u: NDArray[np.float64],
    box: list[tuple[int, int]],
    block: tuple[int, int, int],
    place: tuple[int, int, int],
    grid: tuple[int, int, int],
    seed: int,
    g: int,
) -> None:
    """Set the cells of a box of one rank's `u` (ranges of its indices along x, y, z) to their values."""
    # Position in the whole periodic grid, for each index along x, y and z.
    x, y, z = (
        (np.arange(start, stop) - g + place[d] * block[d]) % (grid[d] * block[d]) for d, (start, stop) in enumerate(box)
    )
    (x0, x1), (y0, y1), (z0, z1) = box
    for q in range(u.shape[0]):
        # One plane at a time, since the whole box may be as large as the memory.
        for k, layer in zip(range(z0, z1), z, strict=True):
            start = mix(np.array([seed], np.uint64))
            for index in (q, int(layer)):
                start = mix(start + np.uint64(index))
            line = mix(start + y.astype(np.uint64))
            cells = mix(line[:, None] + x.astype(np.uint64))
            u[q, k, y0:y1, x0:x1] = (cells >> np.uint64(11)) * 2.0**-53


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each value (the finaliser of SplitMix64)."""
    z = value + np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def dims_create(size: int) -> tuple[int, int, int]:
    """Ranks along x, y, z: three factors of `size`, as equal as can be, the largest first."""
    factors = [f for f in range(1, size + 1) if size % f == 0]
    pairs = [(b, c) for c in factors for b in factors if c <= b and size % (b * c) == 0]
    grids = [(size // (b * c), b, c) for b, c in pairs if b <= size // (b * c)]
    return min(grids, key=lambda grid: grid[0] - grid[2])


def coordinates(rank: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Place of a rank in the grid, along x, y, z."""
    return rank % grid[0], rank // grid[0] % grid[1], rank // (grid[0] * grid[1])

"""Set-up and reference of the heat equation on a grid of ranks, whose shape is a decision. The border is kept."""

import math

import numpy as np


def _grid(size, px):
    """Columns and rows of ranks."""
    if px == 0:
        px = min((p for p in range(1, size + 1) if size % p == 0), key=lambda p: abs(p - size // p))
    if size % px:
        raise ValueError(f"{size} ranks are not a grid of {px} columns: -D px of a divisor")
    return px, size // px


def _plate(size, seed, cells):
    """Of the same size whatever the grid."""
    side = round(cells * math.sqrt(size))
    return np.random.default_rng(seed).random((side + 2, side + 2))


def _ranges(rank, size, px, cells):
    px, py = _grid(size, px)
    side, i, j = round(cells * math.sqrt(size)), *divmod(rank, px)
    return (i * side // py, (i + 1) * side // py), (j * side // px, (j + 1) * side // px)


def block(rank, size, seed, cells, px):
    """The block of one rank with its ghost cells; a neighbour is -1 at the border of the plate."""
    (top, bottom), (west, east) = _ranges(rank, size, px, cells)
    px, py = _grid(size, px)
    i, j = divmod(rank, px)

    def own():
        return _plate(size, seed, cells)[top : bottom + 2, west : east + 2].copy()

    return {
        "u[0]": own, "u[1]": own, "m": bottom - top, "n": east - west,
        "up": rank - px if i > 0 else -1, "down": rank + px if i + 1 < py else -1,
        "left": rank - 1 if j > 0 else -1, "right": rank + 1 if j + 1 < px else -1,
    }  # fmt: skip


def after(data, *, rank, size, seed, cells, px, steps):
    """The same block after `steps` steps of the whole plate."""
    plate = _plate(size, seed, cells)
    for _ in range(steps):
        new = plate.copy()
        new[1:-1, 1:-1] = 0.25 * (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:])
        plate = new
    (top, bottom), (west, east) = _ranges(rank, size, px, cells)
    return {"result": plate[top + 1 : bottom + 1, west + 1 : east + 1]}

"""Set-ups and references of two-dimensional stencils of radius 1 to 4."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _fields(seed: int, names: str, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, **{name: rng.random((NI, NJ), np.float32) for name in names.split()}}


def _double(data: Data, names: str) -> list[Array]:
    return [np.asarray(data[name], np.float64) for name in names.split()]


def _single(**arrays: Array) -> Data:
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _star(x: Array, r: int) -> Array:
    """The sum of the four points at distance r, where they are all inside."""
    inner = np.zeros_like(x)
    inner[r:-r, r:-r] = x[2 * r :, r:-r] + x[: -2 * r, r:-r] + x[r:-r, 2 * r :] + x[r:-r, : -2 * r]
    return inner


def jacobi(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x f", NI, NJ)


def jacobi_reference(data: Data, **_: Any) -> Data:
    x, f = _double(data, "x f")
    y = x.copy()
    y[1:-1, 1:-1] = 0.25 * (_star(x, 1) - f)[1:-1, 1:-1]
    return _single(y=y)


def wave_radius4(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    data = _fields(seed, "u speed w", NI, NJ)
    return {**data, "speed": data["speed"] * np.float32(0.1)}


def wave_radius4_reference(data: Data, **_: Any) -> Data:
    u, speed, w = _double(data, "u speed w")
    weights = -2.84722222, 1.6, -0.2, 0.025396825, -0.0017857143
    total = 2 * weights[0] * u + sum(weights[r] * _star(u, r) for r in range(1, 5))
    w[4:-4, 4:-4] = (2 * u - w + speed * total)[4:-4, 4:-4]
    return _single(w=w)


def star_radius2(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x", NI, NJ)


def star_radius2_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    y = x.copy()
    y[2:-2, 2:-2] += 0.1 * (4 / 3 * _star(x, 1) - _star(x, 2) / 12 - 5 * x)[2:-2, 2:-2]
    return _single(y=y)


def box_radius3(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x", NI, NJ)


def box_radius3_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    ni, nj = x.shape
    padded, ones = np.pad(x, 3), np.pad(np.ones_like(x), 3)
    total, count = (sum(a[p : p + ni, q : q + nj] for p in range(7) for q in range(7)) for a in (padded, ones))
    return _single(y=total / count)


def variable_coefficients(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x centre north south west east", NI, NJ)


def variable_coefficients_reference(data: Data, **_: Any) -> Data:
    x, centre, north, south, west, east = _double(data, "x centre north south west east")
    p = np.pad(x, 1)
    y = centre * x + north * p[:-2, 1:-1] + south * p[2:, 1:-1] + west * p[1:-1, :-2] + east * p[1:-1, 2:]
    return _single(y=y)


def shallow_water(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    data = _fields(seed, "h hu hv", NI, NJ)
    return {**data, "h": data["h"] + 1}


def shallow_water_reference(data: Data, **_: Any) -> Data:
    h, hu, hv = _double(data, "h hu hv")
    g, d = 9.81, 0.01

    def mean(q: Array) -> Array:
        return 0.25 * sum(np.roll(q, shift, axis) for axis in (0, 1) for shift in (1, -1))

    def slope(q: Array, axis: int) -> Array:
        return np.roll(q, -1, axis) - np.roll(q, 1, axis)

    pressure = 0.5 * g * h * h
    return _single(
        h2=mean(h) - d * (slope(hu, 1) + slope(hv, 0)),
        hu2=mean(hu) - d * (slope(hu * hu / h + pressure, 1) + slope(hv * hu / h, 0)),
        hv2=mean(hv) - d * (slope(hu * hv / h, 1) + slope(hv * hv / h + pressure, 0)),
    )


def jacobi_tile(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x", NI, NJ)


def jacobi_tile_reference(data: Data, **_: Any) -> Data:
    (y,) = _double(data, "x")
    for _sweep in range(2):
        old, y = y, y.copy()
        y[1:-1, 1:-1] = 0.25 * _star(old, 1)[1:-1, 1:-1]
    return _single(y=y)


def life(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).integers(0, 2, (NI, NJ), np.uint8)}


def life_reference(data: Data, **_: Any) -> Data:
    x = data["x"]
    shifts = [(p, q) for p in (-1, 0, 1) for q in (-1, 0, 1) if (p, q) != (0, 0)]
    alive = sum(np.roll(x, shift, (0, 1)) for shift in shifts)
    return {"y": ((alive == 3) | ((alive == 2) & (x == 1))).astype(np.uint8)}


def rows_per_thread(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fields(seed, "x", NI, NJ)


def rows_per_thread_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    y = np.zeros_like(x)
    corners = x[2:, 2:] + x[2:, :-2] + x[:-2, 2:] + x[:-2, :-2]
    y[1:-1, 1:-1] = (corners + 4 * _star(x, 1)[1:-1, 1:-1] - 20 * x[1:-1, 1:-1]) / 6
    return _single(y=y)

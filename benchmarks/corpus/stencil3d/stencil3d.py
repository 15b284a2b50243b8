"""Set-ups and references of three-dimensional stencils of radius 1 to 4."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _fields(seed: int, names: str, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    fields = {name: rng.random((NI, NJ, NK), np.float32) for name in names.split()}
    return {"ni": NI, "nj": NJ, "nk": NK, **fields}


def _double(data: Data, names: str) -> list[Array]:
    return [np.asarray(data[name], np.float64) for name in names.split()]


def _single(**arrays: Array) -> Data:
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _inside(r: int) -> tuple[slice, slice, slice]:
    return (slice(r, -r),) * 3


def _star(x: Array, r: int) -> Array:
    """The sum of the six points at distance r; meaningless closer to the border."""
    return sum(np.roll(x, shift, axis) for axis in range(3) for shift in (r, -r))  # type: ignore[return-value]


def heat(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _fields(seed, "x", NI, NJ, NK)


def heat_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    y = x.copy()
    y[_inside(1)] += 0.1 * (_star(x, 1) - 6 * x)[_inside(1)]
    return _single(y=y)


def heat_march(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _fields(seed, "x", NI, NJ, NK)


heat_march_reference = heat_reference


def seismic_radius4(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    data = _fields(seed, "u speed w", NI, NJ, NK)
    return {**data, "speed": data["speed"] * np.float32(0.1)}


def seismic_radius4_reference(data: Data, **_: Any) -> Data:
    u, speed, w = _double(data, "u speed w")
    weights = -2.84722222, 1.6, -0.2, 0.025396825, -0.0017857143
    total = 3 * weights[0] * u + sum(weights[r] * _star(u, r) for r in range(1, 5))
    w[_inside(4)] = (2 * u - w + speed * total)[_inside(4)]
    return _single(w=w)


def star_radius2(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _fields(seed, "x", NI, NJ, NK)


def star_radius2_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    y = np.zeros_like(x)
    y[_inside(2)] = (4 / 3 * _star(x, 1) - _star(x, 2) / 12 - 7.5 * x)[_inside(2)]
    return _single(y=y)


def box27_march(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _fields(seed, "x", NI, NJ, NK)


def box27_march_reference(data: Data, **_: Any) -> Data:
    (x,) = _double(data, "x")
    total = x
    for axis in range(3):  # the weights are those of (1/4, 1/2, 1/4) along each dimension
        total = 0.5 * total + 0.25 * (np.roll(total, 1, axis) + np.roll(total, -1, axis))
    y = x.copy()
    y[_inside(1)] = total[_inside(1)]
    return _single(y=y)


def advect_chunks(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    data = _fields(seed, "x u v w", NI, NJ, NK)
    return {**data, **{name: data[name] - np.float32(0.5) for name in "uvw"}}


def advect_chunks_reference(data: Data, **_: Any) -> Data:
    x, u, v, w = _double(data, "x u v w")
    change = np.zeros_like(x)
    for axis, speed in enumerate((u, v, w)):
        steps = np.diff(x, axis=axis)
        zero = np.zeros_like(np.take(x, [0], axis))
        back, ahead = np.concatenate([zero, steps], axis), np.concatenate([steps, zero], axis)
        change += speed * np.where(speed > 0, back, ahead)
    return _single(y=x - 0.2 * change)

"""Set-ups and references of lattice Boltzmann methods (BGK collision, periodic)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]

CX9, CY9 = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
WEIGHTS9 = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)
CX19 = (0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0)
CY19 = (0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1)
CZ19 = (0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1)
WEIGHTS19 = (1 / 3, *[1 / 18] * 6, *[1 / 36] * 12)


def _populations(seed: int, weights: tuple[float, ...], *shape: int) -> Array:
    """Near rest: every population within 10 % of its weight."""
    rng = np.random.default_rng(seed)
    factors = rng.random((len(weights), *shape), np.float32) * np.float32(0.2) + np.float32(0.9)
    return factors * np.array(weights, np.float32).reshape(-1, *[1] * len(shape))


def _collided(g: Array, directions: list[tuple[int, ...]], weights: tuple[float, ...]) -> Array:
    """`directions`: one tuple a dimension, in the order of the velocity's components."""
    rho = g.sum(axis=0)
    velocity = [np.tensordot(c, g, 1) / rho for c in directions]
    square = 1.5 * sum(u * u for u in velocity)
    out = np.empty_like(g)
    for q, weight in enumerate(weights):
        along = 3 * sum(c[q] * u for c, u in zip(directions, velocity, strict=True))
        equilibrium = weight * rho * (1 + along + 0.5 * along * along - square)
        out[q] = g[q] + 1.2 * (equilibrium - g[q])
    return out


def _moved(f: Array, *directions: tuple[int, ...]) -> Array:
    """Each population one point further; `directions`: one tuple an axis, in the order of the axes."""
    axes = tuple(range(len(directions)))
    return np.stack([np.roll(plane, [c[q] for c in directions], axes) for q, plane in enumerate(f)])


def d2q9_pull(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "f": _populations(seed, WEIGHTS9, NI, NJ)}


def d2q9_pull_reference(data: Data, **_: Any) -> Data:
    g = _moved(np.asarray(data["f"], np.float64), CY9, CX9)
    return {"h": _collided(g, [CX9, CY9], WEIGHTS9).astype(np.float32)}


d2q9_push = d2q9_pull


def d2q9_push_reference(data: Data, **_: Any) -> Data:
    h = _collided(np.asarray(data["f"], np.float64), [CX9, CY9], WEIGHTS9)
    return {"h": _moved(h, CY9, CX9).astype(np.float32)}


def d2q9_points(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    f = _populations(seed, WEIGHTS9, NI, NJ)
    return {"ni": NI, "nj": NJ, "f": np.ascontiguousarray(np.moveaxis(f, 0, -1))}


def d2q9_points_reference(data: Data, **_: Any) -> Data:
    g = _moved(np.moveaxis(np.asarray(data["f"], np.float64), -1, 0), CY9, CX9)
    h = _collided(g, [CX9, CY9], WEIGHTS9)
    return {"h": np.ascontiguousarray(np.moveaxis(h, 0, -1)).astype(np.float32)}


def d3q19_pull(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return {"ni": NI, "nj": NJ, "nk": NK, "f": _populations(seed, WEIGHTS19, NI, NJ, NK)}


def d3q19_pull_reference(data: Data, **_: Any) -> Data:
    g = _moved(np.asarray(data["f"], np.float64), CZ19, CY19, CX19)
    return {"h": _collided(g, [CX19, CY19, CZ19], WEIGHTS19).astype(np.float32)}

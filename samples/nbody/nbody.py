"""Set-up and reference of the bodies that attract each other: a normal cloud."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cloud(
    rank: int, size: int, seed: int, bodies: int, count: int, time_step: float, spread: float, speed: float,
    weight: float,
) -> dict[str, Any]:  # fmt: skip
    """Positions and velocities are normal about 0 (a common motion would only cost precision), masses about 1 and
    positive, with the standard deviations `spread`, `speed` and `weight`. Each rank has the same bodies.

    `gravity` is such that in all the steps together a body at rest falls by a twentieth of the cloud: results of
    different versions stay comparable. `softening`: a tenth of `spread`. Raises ValueError for no bodies or steps.
    """
    if bodies < 1 or count < 1:
        raise ValueError(f"bodies = {bodies}, count = {count}: each is at least 1")
    rng = np.random.default_rng([seed, bodies, count])
    mass = np.abs(1 + weight * rng.standard_normal(bodies, np.float32)).astype(np.float32)
    total = float(mass.sum(dtype=float)) or 1.0
    return {
        "n": bodies, "steps": count, "dt": time_step, "softening": 0.1 * spread,
        "gravity": 0.1 * spread**3 / (total * (count * time_step) ** 2),
        "start": (np.float32(spread) * rng.standard_normal(3 * bodies, np.float32)).astype(np.float32),
        "velocity": (np.float32(speed) * rng.standard_normal(3 * bodies, np.float32)).astype(np.float32),
        "mass": mass,
    }  # fmt: skip


def direct(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`position` and `acceleration`, by direct sums in double precision."""
    x = data["start"].reshape(3, -1).astype(float)
    v = data["velocity"].reshape(3, -1).astype(float)
    mass, dt = data["mass"].astype(float), data["dt"]
    a = np.zeros_like(x)
    for _ in range(data["steps"]):
        for begin in range(0, data["n"], 256):  # of so many bodies: n x 256 distances at once
            some = slice(begin, begin + 256)
            apart = x[:, None, :] - x[:, some, None]
            cubed = ((apart**2).sum(0) + data["softening"] ** 2) ** 1.5
            a[:, some] = data["gravity"] * (apart * (mass / cubed)).sum(2)
        v += dt * a
        x += dt * v
    return {"position": x.ravel().astype(np.float32), "acceleration": a.ravel().astype(np.float32)}

"""Set-up and reference of detectors.dag: gains of each pixel, and the sum of the calibrated frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def calibration(rank: int, size: int, seed: int, pixels: int) -> dict[str, Any]:
    """The number of pixels, and the gains of both detectors."""
    random = np.random.default_rng([seed, rank])
    gains = {f"gain[{d}]": random.random(pixels, np.float32) + np.float32(0.5) for d in (0, 1)}
    return {"n": pixels, **gains}


def expected(data: dict[str, Any], *, rank: int, size: int, seed: int, pixels: int) -> dict[str, NDArray[np.float32]]:
    """The image: pixel i of detector d has the value (i + d) % 64 before the gain."""
    i = np.arange(pixels)
    frames = (data[f"gain[{d}]"] * ((i + d) % 64).astype(np.float32) for d in (0, 1))
    return {"image": sum(frames, np.zeros(pixels, np.float32))}

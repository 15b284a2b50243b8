"""Types of arrays, for annotations only: this module imports NumPy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Bools: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Ints: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

"""What an op takes under each of its launch settings: a level, times what a model says, times what the model misses.

The level is a cost of the simulation like any other. The logarithm of what is missed is a Gaussian process over the
settings, alike for those that are a few steps of their tunables apart; it is written as independent numbers
(`Factor.root`), so that the fit and the process over candidates (`dagc.lab.model.process`) treat them as more costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagc.choice.types import Settings
from dagc.lab.candidate import LaunchSite
from dagc.lab.settings import LENGTH, MISSED, UNKNOWN, steps

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

PARTS = 40  # independent numbers, at most, that stand for what is missed of one op
FAILED = 4.0  # times the slowest: what a setting is expected to take that cannot be launched
MOST = 4.0  # of the logarithm of what is missed


@dataclass(frozen=True, slots=True)
class Factor:
    """The settings of one op.

    level    number of the cost that is its level: the time under the first setting
    first    where the independent numbers begin in the vector of all parameters
    ratios   shape (settings,): what the model says of each, relative to the first
    root     shape (settings, parts): times independent normal numbers, the logarithm of what is missed
    """

    level: int
    first: int
    settings: tuple[Settings, ...]
    ratios: Array
    root: Array

    @property
    def parts(self) -> slice:
        return slice(self.first, self.first + self.root.shape[1])

    def relative(self, parameters: Array) -> Array:
        """What each setting takes, over the level."""
        import numpy as np

        return np.asarray(self.ratios * np.exp(np.clip(self.root @ parameters[self.parts], -MOST, MOST)))

    @classmethod
    def of(cls, site: LaunchSite, level: int, first: int) -> Factor:
        import numpy as np

        known = np.array(site.prior if site.prior else [1.0] * len(site.settings), dtype=float)
        finite = known[np.isfinite(known)]
        known = np.where(np.isfinite(known), known, FAILED * finite.max() if len(finite) else 1.0)
        bits = steps(site.settings)
        differ = np.abs(bits[:, None, :] - bits[None, :, :]).sum(axis=2)
        alike = np.exp(-differ / (LENGTH * max(1, bits.shape[1])))
        values, vectors = np.linalg.eigh(alike)
        largest = np.argsort(-values, kind="stable")[:PARTS]
        root = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
        # The signs of eigenvectors are the library's choice.
        root = root * np.where(root[np.abs(root).argmax(axis=0), np.arange(root.shape[1])] < 0, -1.0, 1.0)
        deviation = np.array(site.doubts) if site.doubts else np.full(len(known), MISSED if site.prior else UNKNOWN)
        return cls(level, first, site.settings, known / known[0], np.round(deviation[:, None] * root, 9))

"""The time of an op under each of its launch settings: a level, times the prediction of a model, times its error.

The level is a cost of the simulation like any other. The logarithm of the error is a Gaussian process over the
settings, correlated for settings that are a few steps of their tunables apart. It is expressed by independent normal
numbers (`Factor.root`), which the fit and the process over candidates (`dagc.lab.model.process`) treat as more costs.
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

PARTS = 40  # maximal number of independent numbers for the error of one op
FAILED = 4.0  # expected time of a setting that cannot be launched, relative to the slowest one
MOST = 4.0  # limit on the logarithm of the error


@dataclass(frozen=True, slots=True)
class Factor:
    """The settings of one op.

    level    index of the cost that is its level: the time under the first setting
    first    index of the first independent number in the vector of all parameters
    ratios   shape (settings,): prediction of the model for each, relative to the first
    root     shape (settings, parts): multiplied by the independent normal numbers, the logarithm of the error
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
        """The time of each setting, relative to the level."""
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
        # The signs of eigenvectors differ between libraries.
        root = root * np.where(root[np.abs(root).argmax(axis=0), np.arange(root.shape[1])] < 0, -1.0, 1.0)
        deviation = np.array(site.doubts) if site.doubts else np.full(len(known), MISSED if site.prior else UNKNOWN)
        return cls(level, first, site.settings, known / known[0], np.round(deviation[:, None] * root, 9))

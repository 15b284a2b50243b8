"""The end of a command with a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]  # seconds
HANGS = 20.0  # seconds after which a measurement counts as hung, unless the user gives another number


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a command ends: `seconds` after it began. All its stages get this one, and ask how much is left."""

    seconds: float
    end: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, clock: Clock = time.monotonic) -> Deadline:
        """From now on; None: without an end."""
        limit = math.inf if seconds is None else seconds
        return cls(limit, clock() + limit, clock)

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self.end - self.clock())

    @property
    def timeout(self) -> float | None:
        """The same for what takes None for no limit."""
        return None if math.isinf(self.end) else self.left

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return self.clock() - (self.end - self.seconds)

    def part(self, share: float) -> Deadline:
        """The end of a stage that may take until this fraction of the whole has passed."""
        if math.isinf(self.seconds):
            return self
        return Deadline(share * self.seconds, self.end - (1 - share) * self.seconds, self.clock)

    def limit(self, share: float, most: float = math.inf) -> float:
        """Seconds for a stage: this fraction of what is left, at most `most`."""
        return min(most, share * self.left)


ENDLESS = Deadline.after(None)

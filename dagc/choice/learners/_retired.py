"""Selectors that were trained by a learner that dagc no longer has, so that what was measured beside them can be read,
and trained on again. Asking one raises UsageError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from dagc.choice.methods import retired
from dagc.choice.nodes import Name
from dagc.choice.selector import Scale, Selector


class Row(msgspec.Struct, frozen=True):
    """The part that is read of the representation in a tuned file."""

    method: Literal["boost"]
    data: tuple[Name, ...]
    least_sure: float = 0.0


@dataclass(frozen=True)
class Retired(Selector):
    """Has the features of the selector, and the default as its only answer."""

    method: ClassVar[str] = "retired"
    learner: str
    data: tuple[str, ...]
    scales: tuple[Scale, ...] = ()
    least_sure: float = 0.0

    @property
    def text(self) -> str:
        """As `Selector.text`."""
        raise retired(self.learner)

    @property
    def answers(self) -> frozenset[int]:
        """As `Selector.answers`."""
        return frozenset({0})

    def view(self) -> dict[str, Any]:
        """As `Selector.view`."""
        raise retired(self.learner)

    def to_json(self) -> dict[str, Any]:
        """As `Selector.to_json`."""
        raise retired(self.learner)


def read(row: Row) -> Retired:
    """Of any row."""
    return Retired(row.method, row.data)

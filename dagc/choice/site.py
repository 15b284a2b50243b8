"""Sites: decisions that stay open until the program runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from dagc.choice.types import PROGRAM, settings_text


class SiteKind(Enum):
    """What is chosen: the launch parameters of an op, or one of several compiled programs (plans)."""

    LAUNCH = "launch"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Site:
    """`answers` are the choices by number: values of the open decisions by name. answers[0] is the default.

    `name`: the op's; PROGRAM for plans.
    """

    kind: SiteKind
    name: str
    answers: tuple[tuple[tuple[str, Any], ...], ...]

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of what is open: `bx`, `by`."""
        return tuple(name for name, _ in self.answers[0])

    @property
    def identifier(self) -> str:
        """In names of C."""
        return "plan" if self.name == PROGRAM else "".join(c if c.isalnum() else "_" for c in self.name)

    @property
    def function(self) -> str:
        """The C function that chooses: `dagc_choice dagc_choose_gemm(const double* features)`."""
        return f"dagc_choose_{self.identifier}"

    @property
    def table(self) -> str:
        """The C function of what an answer stands for: `dagc_answer_gemm(answer)[decision]`."""
        return f"dagc_answer_{self.identifier}"

    def text(self, answer: int) -> str:
        """One answer: `32 x 8`."""
        return settings_text(self.answers[answer])

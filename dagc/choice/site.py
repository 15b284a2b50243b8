"""Sites: decisions that stay open until the program runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from dagc.choice.types import PROGRAM, settings_text
from dagc.ir.plan import VARIANT


class SiteKind(Enum):
    """What is chosen: the variant and launch parameters of an op, or one of several compiled programs (plans)."""

    LAUNCH = "launch"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Site:
    """`answers` are the choices by number: values of the open decisions by name. answers[0] is the default.

    `name`: the op's; PROGRAM for plans. `variants`: all implementations of the op by number, where that is open.
    `defaults`: the values of open decisions that some variants lack.
    """

    kind: SiteKind
    name: str
    answers: tuple[tuple[tuple[str, Any], ...], ...]
    variants: tuple[str, ...] = ()
    defaults: tuple[tuple[str, int], ...] = ()

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of what is open: `bx`, `by`."""
        return tuple(dict.fromkeys(name for answer in self.answers for name, _ in answer))

    def row(self, answer: int) -> tuple[Any, ...]:
        """What an answer sets: a value for each of `decisions`, the variant as its number."""
        values = dict(self.defaults) | dict(self.answers[answer])
        if self.variants:
            values[VARIANT] = self.variants.index(values[VARIANT])
        return tuple(values[name] for name in self.decisions)

    @property
    def identifier(self) -> str:
        """In names of C."""
        return "plan" if self.name == PROGRAM else "".join(c if c.isalnum() else "_" for c in self.name)

    @property
    def function(self) -> str:
        """The C function that chooses: `dagc_choice dagc_choose_gemm(const double* features)`."""
        return f"dagc_choose_{self.identifier}"

    @property
    def order(self) -> str:
        """The C function of all answers, the best first: `dagc_order_gemm(features, order)`."""
        return f"dagc_order_{self.identifier}"

    @property
    def predict(self) -> str:
        """The C function of the expected seconds of each answer: `dagc_predict_gemm(features, seconds)`."""
        return f"dagc_predict_{self.identifier}"

    @property
    def label(self) -> str:
        """The C function of the text of an answer: `dagc_text_gemm(answer)`."""
        return f"dagc_text_{self.identifier}"

    @property
    def table(self) -> str:
        """The C function of what an answer stands for: `dagc_answer_gemm(answer)[decision]`."""
        return f"dagc_answer_{self.identifier}"

    def text(self, answer: int) -> str:
        """One answer: `32 x 8`."""
        return settings_text(self.answers[answer])

"""Types of tuning: sites (where something is open), cases (sizes or inputs), and cells (what a sample is of)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from dagc.base.sample import OCCUPANCY, Sample
from dagc.ir.choice import VARIANT, Choice, own_name, qualified
from dagc.ir.names import mangle
from dagc.ir.program import Decision, Value

MODELS = ("volume", "rational")  # methods that rank settings by a model of the time (`dagc.choice.models`)
RANKED = (*MODELS, OCCUPANCY.text)  # those that rank them by a rational program


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One size or one input of the program: values of its parameters, sorted by name. Text values are inputs: paths of
    files, calls of generators (`dagc.study.cases`). Real numbers are drawn (`dagc.study.cases`)."""

    params: tuple[tuple[str, int | float | str], ...]

    @property
    def text(self) -> str:
        """`NI=512 NJ=512`; an input alone is its text, such as `train/cant.mtx`."""
        if len(self.params) == 1 and isinstance(self.params[0][1], str):
            return self.params[0][1]
        return " ".join(f"{n}={v}" for n, v in self.params)

    @property
    def is_input(self) -> bool:
        """Whether it is an input rather than a size."""
        return any(isinstance(value, str) for _, value in self.params)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers among the values."""
        return {n: v for n, v in self.params if isinstance(v, int)}

    @classmethod
    def of(cls, params: Mapping[str, int | float | str]) -> Case:
        return cls(tuple(sorted(params.items())))


class Cell(NamedTuple):
    """What a sample is of: a setting of an op (or of PROGRAM) at a case."""

    site: str
    case: Case
    choice: Choice


Samples: TypeAlias = Mapping[Cell, Sample]


@dataclass(frozen=True, slots=True)
class Site:
    """A place where something is open: an op (or all ops of one base name, `KernelOp.site`), or PROGRAM.

    choices    what may be chosen there, each once, by number; the first is the default where that is one of them
    prior      expected time of each choice in seconds, by a model of an assumed machine; empty: unknown
    doubts     standard deviation of each of these, in natural logarithms, if single launches were timed; else empty
    variants   all implementations of the op by number, if the variant is open
    open       the open decisions with the values that are left: the variant of the op, and the tunables of each
               variant; empty where only the choices are known
    """

    name: str
    choices: tuple[Choice, ...] = ()
    prior: tuple[float, ...] = ()
    doubts: tuple[float, ...] = ()
    variants: tuple[str, ...] = ()
    open: tuple[Decision, ...] = ()

    @property
    def open_variants(self) -> tuple[str, ...]:
        """The implementations to choose among, in text order; empty if the variant is not open."""
        return next((tuple(map(str, d.values)) for d in self.open if own_name(d.name) == VARIANT), ())

    @property
    def default(self) -> Choice:
        """The choice of the program itself."""
        variant = next((str(d.chosen) for d in self.open if own_name(d.name) == VARIANT), "")
        return self._choice(variant, [d.chosen for d in self.tunables(variant)])

    @property
    def every(self) -> Iterator[Choice]:
        """All combinations, legal or not."""
        for variant in self.open_variants or ("",):
            for values in product(*(d.values for d in self.tunables(variant))):
                yield self._choice(variant, values)

    def tunables(self, variant: str) -> tuple[Decision, ...]:
        """The tunables that are open under a variant; "" if the variant is not open."""
        return tuple(d for d in self.open if d.variant == variant and own_name(d.name) != VARIANT)

    def _choice(self, variant: str, values: Sequence[Value]) -> Choice:
        head = ((qualified(self.name, VARIANT), variant),) if variant else ()
        named = zip(self.tunables(variant), values, strict=True)
        return Choice((*head, *((d.name, int(value)) for d, value in named)))

    @property
    def taken(self) -> tuple[Decision, ...]:
        """The open decisions with only the values that they have in some choice."""
        kept = {
            ("" if own_name(name) == VARIANT else choice.variant, name, value)
            for choice in self.choices
            for name, value in choice.items()
        }
        left = (replace(d, values=tuple(v for v in d.values if (d.variant, d.name, v) in kept)) for d in self.open)
        return tuple(d for d in left if d.values)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of the open decisions: `gemm.bx`, `gemm.by`."""
        return tuple(dict.fromkeys(name for choice in self.choices for name in choice))

    def choice_of(self, decisions: Mapping[str, Value]) -> Choice | None:
        """The choice with these values of its decisions; None if there is none."""
        wanted = tuple(decisions.get(name) for name in self.choices[0])
        return next((choice for choice in self.choices if tuple(choice.values()) == wanted), None)

    def row(self, answer: int) -> tuple[Any, ...]:
        """The row of an answer: a value for each of `decisions`, the variant as its number."""
        others = {d.name: int(d.chosen) for d in reversed(self.open) if own_name(d.name) != VARIANT}
        values: dict[str, Value] = {**others, **self.default, **self.choices[answer]}
        if self.variants:
            values[qualified(self.name, VARIANT)] = self.variants.index(self.choices[answer].variant)
        return tuple(values[name] for name in self.decisions)

    @property
    def identifier(self) -> str:
        """The identifier in C names."""
        return mangle(self.name)

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
    def failed(self) -> str:
        """The C function of the answers that failed in training: `dagc_failed_gemm(features, failed)`."""
        return f"dagc_failed_{self.identifier}"

    @property
    def label(self) -> str:
        """The C function of the text of an answer: `dagc_text_gemm(answer)`."""
        return f"dagc_text_{self.identifier}"

    @property
    def table(self) -> str:
        """The C function of the values of an answer: `dagc_answer_gemm(answer)[decision]`."""
        return f"dagc_answer_{self.identifier}"

    def text(self, answer: int) -> str:
        """One answer: `32 x 8`."""
        return self.choices[answer].in_words

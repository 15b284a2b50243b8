"""Types of tuning: units (ops with open launch parameters), cases (sizes), settings, cells, and sites (decisions that
stay open until the program runs).

Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from dagc.base.sample import Sample
from dagc.ir.choice import VARIANT, Choice, qualified
from dagc.ir.names import mangle
from dagc.ir.plan import OpenTunable
from dagc.ir.program import Value

MODELS = ("volume", "rational")  # methods that rank settings by a model (`dagc.choice.models`)


@dataclass(frozen=True, slots=True)
class Unit:
    """An op (or all ops of one base name) whose launch parameters, or variant, are tuned. `index` is its first place in
    the graph.

    `dimensions` is the number of block dimensions that its tunables set: 1 for one-dimensional kernels.
    """

    op: str
    kernel: str
    index: int
    tunables: tuple[OpenTunable, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """The implementations to choose among, in text order; empty if the variant is not open."""
        return next((tuple(map(str, t.values)) for t in self.tunables if t.name == VARIANT), ())

    def tunables_of(self, variant: str) -> tuple[OpenTunable, ...]:
        """The tunables that are open under a variant; "" if the variant is not open."""
        return tuple(t for t in self.tunables if t.variant == variant and t.name != VARIANT)

    @property
    def default(self) -> Choice:
        own = next((str(t.default) for t in self.tunables if t.name == VARIANT), "")
        return self._settings(own, [t.default for t in self.tunables_of(own)])

    @property
    def every(self) -> Iterator[Choice]:
        """All combinations, legal or not."""
        for variant in self.variants or ("",):
            for values in product(*(t.values for t in self.tunables_of(variant))):
                yield self._settings(variant, values)

    def _settings(self, variant: str, values: Sequence[Value]) -> Choice:
        named = zip(self.tunables_of(variant), values, strict=True)
        head = ((VARIANT, variant),) if variant else ()
        return Choice.at(self.op, (*head, *((t.name, int(value)) for t, value in named)))

    def restricted(self, settings: Collection[Choice]) -> Unit:
        """The unit with only the values that occur in some settings."""
        kept: dict[tuple[str, str], set[Value]] = {}
        for setting in settings:
            variant = setting.variant
            for name, value in setting.own.items():
                kept.setdefault(("" if name == VARIANT else variant, name), set()).add(value)
        out = []
        for t in self.tunables:
            values = tuple(v for v in t.values if v in kept.get((t.variant, t.name), ()))
            out += [replace(t, values=values)] if values else []
        return replace(self, tunables=tuple(out))

    @property
    def dimensions(self) -> int:
        return sum(bool(t.axis) for t in self.tunables)


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


# ---- sites: decisions that stay open until the program runs ----------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """A place where something is open: an op (or all ops of one base name), or PROGRAM.

    choices    what may be chosen there, each once, by number; the first is the default, that of the program
    prior      expected time of each in seconds, by a model of an assumed machine; empty: unknown
    doubts     standard deviation of each of these, in natural logarithms, if single launches were timed; else empty
    variants   all implementations of the op by number, if the variant is open
    defaults   values of open decisions that some variants lack
    """

    name: str
    choices: tuple[Choice, ...]
    prior: tuple[float, ...] = ()
    doubts: tuple[float, ...] = ()
    variants: tuple[str, ...] = ()
    defaults: Choice = Choice()

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of the open decisions: `gemm.bx`, `gemm.by`."""
        return tuple(dict.fromkeys(name for choice in self.choices for name in choice))

    def number(self, decisions: Mapping[str, Value]) -> int | None:
        """The number of the choice with these values of its decisions; None if there is none."""
        wanted = tuple(decisions.get(name) for name in self.choices[0])
        return next((i for i, choice in enumerate(self.choices) if tuple(choice.values()) == wanted), None)

    def row(self, answer: int) -> tuple[Any, ...]:
        """The row of an answer: a value for each of `decisions`, the variant as its number."""
        values: dict[str, Value] = {**self.defaults, **self.choices[answer]}
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

"""`--samples`: a generator of cases, drawn from the values after `over`.

over log(2, 9152)        log-uniform: every factor of two equally likely
over uniform(0.6, 1)     uniform
over {1, 2, 4}, 4..10    one of these
over files("*.mtx")      one of the files (of `--inputs`, where that is given)

Both bounds are included. Integers are rounded; other numbers have six significant digits, so that a case read from its
text is equal. A draw that violates a `require` of the program on its params is discarded.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from dagc.base.errors import UsageError
from dagc.choice.inputs import has_inputs, parse_inputs
from dagc.choice.types import Case
from dagc.ir.program import Param, Program, Spread
from dagc.ir.sym import Number, evaluate, show

MOST_REFUSED = 10_000  # consecutive draws that violate a `require`
MOST_KNOWN = 1_000  # consecutive repeated draws after which no further cases are assumed to exist
_DIGITS = 6  # significant digits of a real number
_REALS = ("f32", "f64")

Value = int | float | str


class Draws:
    """Distinct cases drawn from the params of a program. The same seed gives the same cases; cases to `test` come
    from another sequence.

    `fixed`: names of params with a fixed value (`-D`). `inputs`: cases of `dagc.choice.inputs`. `spent`: whether no
    further cases exist.
    """

    def __init__(
        self, program: Program, seed: int, fixed: Collection[str] = (), inputs: Sequence[str] = (), test: bool = False
    ) -> None:
        """Raises UsageError if no param has values after `over`, and like `parse_inputs`."""
        self.program, self.spent = program, False
        self.params = tuple(p for p in program.params if p.generated and p.name not in fixed)
        self._given: list[dict[str, Value]] = []
        if inputs or has_inputs(program):
            self._given = [dict(p.params) for p in parse_inputs(inputs, program)]
        if not self.params and not self._given:
            raise UsageError(
                f"--samples: no param of {program.name} has values to draw from"
                + (", except those that -D gives" if any(p.generated for p in program.params) else ""),
                "write `param M : i64 = 256 over log(2, 9152)`, `over uniform(...)` or `over {...}`",
            )
        self._random = random.Random(f"{seed} {'tests' if test else 'draws'}")
        self._known: set[Case] = set()
        self._constants: dict[str, Value] = {
            p.name: p.value for p in program.params if isinstance(p.value, bool | int | float | str)
        }

    def take(self, number: int) -> tuple[Case, ...]:
        """The next cases, all distinct; fewer if no others exist. Raises UsageError like `candidates`."""
        out: list[Case] = []
        while len(out) < number and not self.spent:
            for case in self.candidates(1):
                self._known.add(case)
                out.append(case)
        return tuple(out)

    def candidates(self, number: int) -> tuple[Case, ...]:
        """Cases that were neither taken nor dropped; they may be drawn again. Fewer if hardly any others exist.

        Raises UsageError if the program's `require`s exclude nearly all cases.
        """
        out: list[Case] = []
        refused: Counter[int] = Counter()
        known = 0
        while len(out) < number and known < MOST_KNOWN:
            values = self._draw()
            broken = self._broken(values)
            if broken is not None:
                refused[broken] += 1
                if refused.total() == MOST_REFUSED:
                    raise self._too_few(refused.most_common(1)[0][0])
                continue
            case = Case.of(values)
            known = known + 1 if case in self._known else 0
            refused.clear()
            if not known:
                out.append(case)
        self.spent = known == MOST_KNOWN
        return tuple(out)

    def drop(self, cases: Collection[Case]) -> None:
        """Exclude these cases from further draws."""
        self._known.update(cases)

    def vector(self, case: Case) -> tuple[float, ...]:
        """The values of a case as numbers; a string is represented by its index among the values."""
        at = dict(case.params)
        return tuple(self._number(p, at.get(p.name, self._constants.get(p.name, 0))) for p in self.params)

    def _number(self, param: Param, value: Value) -> float:
        if not isinstance(value, str):
            return float(value)
        words = [at.get(param.name) for at in self._given] if param.files else list(param.over)
        return float(words.index(value)) if value in words else -1.0

    def _draw(self) -> dict[str, Value]:
        out: dict[str, Value] = {p.name: self._value(p) for p in self.params if not p.files}
        return out | (self._random.choice(self._given) if self._given else {})

    def _value(self, param: Param) -> Value:
        if param.spread is None:
            value = self._random.choice(param.over)
            assert isinstance(value, int | float | str)
            return float(value) if param.type in _REALS else value
        return _real(param.spread, self._random) if param.type in _REALS else _whole(param.spread, self._random)

    def _broken(self, values: Mapping[str, Value]) -> int | None:
        """The number of the first `require` that a draw violates."""
        at: dict[str, Number] = {**self._constants, **values}
        for number, condition in enumerate(self.program.domain):
            try:
                if not evaluate(condition, at):
                    return number
            except (ArithmeticError, ValueError):
                return number
        return None

    def _too_few(self, broken: int) -> UsageError:
        ranges = ", ".join(f"{p.name} over {p.spread.text}" for p in self.params if p.spread is not None)
        return UsageError(
            f"--samples: {MOST_REFUSED} draws in a row violate `require`s of {self.program.name}, most of them"
            f" `{show(self.program.domain[broken])}`",
            f"narrow the ranges{f': {ranges}' if ranges else ''}, or change the `require`",
        )


def _whole(spread: Spread, draw: random.Random) -> int:
    """Each integer represents the interval that rounds to it, both bounds included."""
    low, high = int(spread.low), int(spread.high)
    if not spread.log:
        return draw.randint(low, high)
    value = math.exp(draw.uniform(math.log(low - 0.5), math.log(high + 0.5)))
    return min(max(round(value), low), high)


def _real(spread: Spread, draw: random.Random) -> float:
    low, high = float(spread.low), float(spread.high)
    value = math.exp(draw.uniform(math.log(low), math.log(high))) if spread.log else draw.uniform(low, high)
    return min(max(float(f"{value:.{_DIGITS}g}"), low), high)

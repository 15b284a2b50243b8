"""Rational programs in NumPy: all configurations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.python import np
from dagc.perf.code import OPERATIONS, Instruction, live
from dagc.perf.program import Number, RationalProgram


def evaluate(program: RationalProgram, values: Mapping[str, Any]) -> Any:
    """The result for every combination of values by NumPy's broadcasting: int64 or float64.

    Raises UsageError if a parameter has no value.
    """
    return PartialEvaluator(program, values)({})


def evaluate_all(program: RationalProgram, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all names that the program assigns. Raises as `evaluate`."""
    return PartialEvaluator(program, values).steps({})


class PartialEvaluator:
    """A program with some values known: what depends on them alone is computed once, at construction."""

    def __init__(self, program: RationalProgram, known: Mapping[str, Any]) -> None:
        from dagc.perf.lower import lowered  # loads sympy

        self.program = program
        self._asked = [p for p in program.parameters if p.name not in known]
        code, self._names = lowered(program)
        self._result = code[-1].name
        self._known = {p.name: typed(known[p.name], p.number) for p in program.parameters if p.name in known}
        self.left: list[Instruction] = []
        for instruction in code:
            if all(not isinstance(a, str) or a in self._known for a in instruction.args):
                self._known[instruction.name] = _value(instruction, self._known)
            else:
                self.left.append(instruction)
        self._live = live(self.left) if self.left and self.left[-1].name == self._result else ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the parameters that are not known."""
        return tuple(p.name for p in self._asked)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The result for the values of the other parameters. Raises UsageError if one is missing."""
        return self._run(values, self._live)[self._result]

    def steps(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all names that the program assigns. Raises UsageError if a parameter has no value."""
        computed = self._run(values, self.left)
        return {name: computed[value] for name, value in self._names.items()}

    def _run(self, values: Mapping[str, Any], code: Sequence[Instruction]) -> dict[str, Any]:
        computed = dict(self._known)
        for parameter in self._asked:
            if parameter.name not in values:
                raise UsageError(f"{self.program.name}: no value for `{parameter.name}`", f"give {parameter.name}=...")
            computed[parameter.name] = typed(values[parameter.name], parameter.number)
        for instruction in code:
            computed[instruction.name] = _value(instruction, computed)
        return computed


def _value(i: Instruction, values: Mapping[str, Any]) -> Any:
    return OPERATIONS[i.operation].compute(*[values[a] if isinstance(a, str) else a for a in i.args])


def typed(value: Any, number: Number) -> Any:
    """A value of a parameter: a Python number, or an array of int64 or float64."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if number is Number.INTEGER else float(value)
    array = np.asarray(value, np.int64 if number is Number.INTEGER else np.float64)
    return array if array.ndim else array.item()

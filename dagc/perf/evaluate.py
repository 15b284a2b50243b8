"""Rational programs in NumPy: all configurations at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dagc.base.errors import UsageError
from dagc.perf.lower import Instruction, instructions, live
from dagc.perf.program import Number, RationalProgram
from dagc.perf.pyprint import compiled


def evaluate(program: RationalProgram, values: Mapping[str, Any]) -> Any:
    """The result for every combination that NumPy's broadcasting of the values gives: int64 or float64.

    Raises UsageError where a parameter has no value.
    """
    return Evaluator(program, values)({})


def evaluate_all(program: RationalProgram, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all names that the program assigns by a step of its own, and `result`."""
    from dagc.perf.program import assignments  # loads sympy

    run = Evaluator(program, values)
    run({})
    out = {a.name: run.values[a.name] for a in assignments(program.body) if a.name in run.values}
    return {**out, **{name: run.values[made] for name, made in run.names().items() if made in run.values}}


class Evaluator:
    """A program with some values known: what depends on them alone is computed once, when the object is made.

    What is left becomes one function when it is first called, and again where other values are arrays than before.
    """

    def __init__(self, program: RationalProgram, known: Mapping[str, Any]) -> None:
        self.program = program
        self.values: dict[str, Any] = {}
        self.asked = [p for p in program.parameters if p.name not in known]
        for parameter in program.parameters:
            if parameter.name in known:
                self.values[parameter.name] = typed(known[parameter.name], parameter.number)
        self.left: list[Instruction] = []
        code = instructions(program)
        for instruction in code:
            if all(not isinstance(a, str) or a in self.values for a in instruction.args):
                self._run(instruction, self.values)
            else:
                self.left.append(instruction)
        self.result = code[-1].name
        self._functions: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The result for the values of the other parameters. Raises UsageError where one is missing."""
        arguments = []
        for parameter in self.asked:
            if parameter.name not in values:
                raise UsageError(f"{self.program.name}: no value for `{parameter.name}`", f"give {parameter.name}=...")
            arguments.append(typed(values[parameter.name], parameter.number))
        if self.result in self.values:
            return self.values[self.result]
        arrays = tuple(map(_array, arguments))
        if arrays not in self._functions:
            names = {p.name: array for p, array in zip(self.asked, arrays, strict=True)}
            divisions = {name: _OPERATIONS[name] for name in ("floordiv", "ceildiv", "div")}
            self._functions[arrays] = compiled(live(self.left), self.values, names, divisions)
        return self._functions[arrays](*arguments)

    def names(self) -> dict[str, str]:
        """Names of the program -> names of the instructions that hold them."""
        from dagc.perf.lower import Lowering  # loads sympy

        lowering = Lowering(self.program)
        lowering.statements(self.program.body)
        return {n: v for n, v in lowering.values.items() if isinstance(v, str)}

    @staticmethod
    def _run(i: Instruction, values: dict[str, Any]) -> None:
        values[i.name] = operate(i.operation, [values[a] if isinstance(a, str) else a for a in i.args])


def operate(operation: str, args: Sequence[Any]) -> Any:
    """One operation of `lower.Instruction` on numbers or arrays."""
    return _OPERATIONS[operation](*args)


def typed(value: Any, number: Number) -> Any:
    """A value of a parameter: Python's number, or an array of int64 or float64."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if number is Number.INTEGER else float(value)
    array = np.asarray(value, np.int64 if number is Number.INTEGER else np.float64)
    return array if array.ndim else array.item()


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _floordiv(a: Any, b: Any) -> Any:
    if not _array(b):
        return a // b if b else a * 0
    if np.count_nonzero(b) == b.size:
        return a // b
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _ceildiv(a: Any, b: Any) -> Any:
    return -_floordiv(-a, b)


def _div(a: Any, b: Any) -> Any:
    if not _array(b):
        return a / b if b else a * 0.0
    if np.count_nonzero(b) == b.size:
        return a / b
    return np.where(b == 0, 0.0, a / np.where(b == 0, 1.0, b))


def _select(test: Any, then: Any, other: Any) -> Any:
    return np.where(test, then, other) if _array(test) else (then if test else other)


def _least(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if _array(a) or _array(b) else (a if a < b else b)


def _most(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if _array(a) or _array(b) else (a if a > b else b)


_OPERATIONS: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": _least, "max": _most,
    "floordiv": _floordiv, "ceildiv": _ceildiv, "div": _div,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "not": lambda a: ~a if _array(a) else not a,
    "select": _select, "copy": lambda a: a, "real": lambda a: a.astype(np.float64) if _array(a) else float(a),
}  # fmt: skip

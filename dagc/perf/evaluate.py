"""Rational programs in NumPy: all configurations at once, by one generated Python function.

Which names are arrays is known when the function is generated, so no operation checks it. Divisors that cannot be
zero, by their ranges, are not tested.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dagc.base.errors import UsageError
from dagc.perf.lower import ANY, Instruction, Interval, Operand, instructions, live, of_constant, of_instruction
from dagc.perf.program import Number, RationalProgram

# ---- three-address code as Python ----

_INFIX = {
    name: f"{{0}} {sign} {{1}}"
    for name, sign in (
        ("add", "+"), ("sub", "-"), ("mul", "*"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="),
        ("ne", "!="),
    )
}  # fmt: skip
_QUOTIENTS = {
    "floordiv": "{0} // {1}",
    "ceildiv": "-(-{0} // {1})",
    "div": "{0} / {1}",
}  # divisor not zero
_OF_NUMBERS = _INFIX | {
    "min": "({0} if {0} < {1} else {1})", "max": "({0} if {0} > {1} else {1})", "and": "{0} and {1}",
    "or": "{0} or {1}", "not": "not {0}", "select": "({1} if {0} else {2})", "real": "float({0})",
}  # fmt: skip
_OF_ARRAYS = _INFIX | {
    "min": "minimum({0}, {1})", "max": "maximum({0}, {1})", "and": "{0} & {1}", "or": "{0} | {1}", "not": "~{0}",
    "select": "where({0}, {1}, {2})", "real": "{0}.astype(float64)",
}  # fmt: skip


class _Function:
    """Generates a Python function from three-address code.

    `known`: values of names, Python numbers or arrays. `parameters`: the other names, and whether each is an array.
    """

    def __init__(self, known: Mapping[str, Any], parameters: Mapping[str, bool]) -> None:
        self.known = known
        self.names: dict[str, Operand] = {name: f"g{k}" for k, name in enumerate(parameters)}
        self.parameters = [str(name) for name in self.names.values()]
        self.arrays = {f"g{k}" for k, array in enumerate(parameters.values()) if array}
        self.globals: dict[str, Any] = {**_OPERATIONS, **{f.__name__: f for f in (np.where, np.minimum, np.maximum)}}
        self.globals["float64"] = np.float64
        self.ranges: dict[str, Interval] = {}
        self.lines: list[str] = []

    def of(self, code: Sequence[Instruction]) -> Callable[..., Any]:
        """The function; it returns the value of the last instruction."""
        for instruction in code:
            self._add(instruction)
        head, body = (
            f"def run({', '.join(self.parameters)}):",
            (*self.lines, f"return {_text(self.names[code[-1].name])}"),
        )
        exec("\n    ".join((head, *body)), self.globals)  # the text consists only of the names and numbers above
        run: Callable[..., Any] = self.globals["run"]
        return run

    def _add(self, i: Instruction) -> None:
        args = [self._operand(a) for a in i.args]
        if i.operation == "copy" or (i.operation == "mul" and 1 in args):
            self.names[i.name] = args[-1] if args[0] == 1 else args[0]
            return
        ranges = [self.ranges.get(a, ANY) if isinstance(a, str) else of_constant(a) for a in args]
        name = f"v{len(self.lines)}"
        array = any(a in self.arrays for a in args)
        if i.operation in _QUOTIENTS:
            form = f"{i.operation}({{0}}, {{1}})" if ranges[1].has_zero else _QUOTIENTS[i.operation]
        else:
            form = (_OF_ARRAYS if array else _OF_NUMBERS)[i.operation]
        texts = [self._beside_arrays(a, i.number) if array else _text(a) for a in args]
        self.lines.append(f"{name} = {form.format(*texts)}")
        self.names[i.name], self.ranges[name] = name, of_instruction(i.operation, ranges)
        if array:
            self.arrays.add(name)

    def _operand(self, operand: Operand) -> Operand:
        """A name of the function, or a constant."""
        if not isinstance(operand, str):
            return operand
        if operand not in self.names:
            value = self.known[operand]
            self.names[operand] = self._constant(value) if isinstance(value, np.ndarray) else value
        return self.names[operand]

    def _beside_arrays(self, operand: Operand, number: Number | None) -> str:
        """A constant as a 0-d array, which NumPy handles faster than a Python number."""
        if isinstance(operand, (str, bool)) or number is None:
            return _text(operand)
        return self._constant(np.array(operand))

    def _constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.globals)}"
        self.globals[name] = array
        self.arrays.add(name)
        if array.size and np.all(np.isfinite(array)):
            self.ranges[name] = Interval(array.min().item(), array.max().item())
        return name


def _text(operand: Operand) -> str:
    if isinstance(operand, float) and not math.isfinite(operand):
        return f"float('{operand}')"
    return operand if isinstance(operand, str) else f"({operand!r})"


# ---- evaluation ----


def evaluate(program: RationalProgram, values: Mapping[str, Any]) -> Any:
    """The result for every combination of values by NumPy's broadcasting: int64 or float64.

    Raises UsageError if a parameter has no value.
    """
    return PartialEvaluator(program, values)({})


def evaluate_all(program: RationalProgram, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all names that the program assigns in a step, and `result`."""
    from dagc.perf.program import assignments  # loads sympy

    run = PartialEvaluator(program, values)
    run({})
    out = {a.name: run.values[a.name] for a in assignments(program.body) if a.name in run.values}
    return {**out, **{name: run.values[value] for name, value in run.names().items() if value in run.values}}


class Steps:
    """All steps of a program by name, for many calls: what depends on `known` alone is computed once."""

    def __init__(self, program: RationalProgram, known: Mapping[str, Any]) -> None:
        self._run = PartialEvaluator(program, known)
        self._names = self._run.names()

    def at(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers, or arrays where `known` or `values` have some. Raises UsageError if a parameter has no value."""
        computed = dict(self._run.values)
        for parameter in self._run.asked:
            if parameter.name not in values:
                raise UsageError(f"{self._run.program.name}: no value for `{parameter.name}`", "give one")
            computed[parameter.name] = typed(values[parameter.name], parameter.number)
        for instruction in self._run.left:
            args = [computed[a] if isinstance(a, str) else a for a in instruction.args]
            computed[instruction.name] = operate(instruction.operation, args)
        return {name: computed[value] for name, value in self._names.items()}


class PartialEvaluator:
    """A program with some values known: what depends on them alone is computed once, at construction.

    The rest becomes one function at the first call, and again if other values are arrays than before.
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
        """The result for the values of the other parameters. Raises UsageError if one is missing."""
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
            self._functions[arrays] = _Function(self.values, names).of(live(self.left))
        return self._functions[arrays](*arguments)

    def names(self) -> dict[str, str]:
        """Names of the program -> names of the instructions with their values."""
        from dagc.perf.lower import InstructionEmitter  # loads sympy

        lowering = InstructionEmitter(self.program)
        lowering.statements(self.program.body)
        return {n: v for n, v in lowering.values.items() if isinstance(v, str)}

    @staticmethod
    def _run(i: Instruction, values: dict[str, Any]) -> None:
        values[i.name] = operate(i.operation, [values[a] if isinstance(a, str) else a for a in i.args])


def operate(operation: str, args: Sequence[Any]) -> Any:
    """One operation of `lower.Instruction` on numbers or arrays."""
    return _OPERATIONS[operation](*args)


def typed(value: Any, number: Number) -> Any:
    """A value of a parameter: a Python number, or an array of int64 or float64."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if number is Number.INTEGER else float(value)
    array = np.asarray(value, np.int64 if number is Number.INTEGER else np.float64)
    return array if array.ndim else array.item()


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _divided(divide: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """The quotient; 0 if `b` is zero."""
    if not _array(b):
        return divide(a, b) if b else a * 0
    if np.count_nonzero(b) == b.size:
        return divide(a, b)
    return np.where(b == 0, 0, divide(a, np.where(b == 0, 1, b)))


_OPERATIONS: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "min": lambda a, b: np.minimum(a, b) if _array(a) or _array(b) else (a if a < b else b),
    "max": lambda a, b: np.maximum(a, b) if _array(a) or _array(b) else (a if a > b else b),
    "floordiv": lambda a, b: _divided(operator.floordiv, a, b), "div": lambda a, b: _divided(operator.truediv, a, b),
    "ceildiv": lambda a, b: -_divided(operator.floordiv, -a, b),
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "and": operator.and_, "or": operator.or_, "not": lambda a: ~a if _array(a) else not a,
    "select": lambda test, then, other: np.where(test, then, other) if _array(test) else (then if test else other),
    "copy": lambda a: a, "real": lambda a: a.astype(np.float64) if _array(a) else float(a),
}  # fmt: skip

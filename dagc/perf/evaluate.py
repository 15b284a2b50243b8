"""Rational programs in NumPy: all configurations at once, by one Python function of three-address code.

Which names are arrays is known when the function is made, so that no operation asks. Divisors that cannot be zero, by
their ranges, are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dagc.base.errors import UsageError
from dagc.perf.lower import ANY, Instruction, Operand, Range, instructions, live, of_constant, of_instruction
from dagc.perf.program import Number, RationalProgram

# ---- three-address code as Python ----

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def compiled(
    code: Sequence[Instruction], known: Mapping[str, Any], parameters: Mapping[str, bool], divisions: Mapping[str, Any]
) -> Callable[..., Any]:
    """A function of the `given` names, in their order, that gives the last instruction's value.

    `known`: values of further names, Python's numbers or arrays. `given`: whether the name is an array.
    `divisions`: how "floordiv", "ceildiv" and "div" are done where the divisor may be zero.
    """
    writer = _Writer(known, parameters, divisions)
    for instruction in code:
        writer.instruction(instruction)
    return writer.function(code[-1].name)


class _Writer:
    def __init__(self, known: Mapping[str, Any], parameters: Mapping[str, bool], divisions: Mapping[str, Any]) -> None:
        self.names: dict[str, Operand] = {name: f"g{k}" for k, name in enumerate(parameters)}
        self.parameters = [str(a) for a in self.names.values()]
        self.arrays = {f"g{k}" for k, array in enumerate(parameters.values()) if array}
        self.globals: dict[str, Any] = {"np_array": np.array, "where": np.where, "f64": np.float64, "i64": np.int64}
        self.globals |= {"minimum": np.minimum, "maximum": np.maximum} | {f"any_{n}": f for n, f in divisions.items()}
        self.known = known
        self.ranges: dict[str, Range] = {}
        self.wrapped: dict[tuple[str, Operand], str] = {}
        self.lines: list[str] = []

    def function(self, result: str) -> Callable[..., Any]:
        value = self._text(self._put(result))
        text = f"def run({', '.join(self.parameters)}):\n" + "".join(f"    {x}\n" for x in self.lines)
        exec(text + f"    return {value}\n", self.globals)  # the text is made of names and numbers above alone
        made: Callable[..., Any] = self.globals["run"]
        return made

    def instruction(self, i: Instruction) -> None:
        args = [self._put(a) for a in i.args]
        if i.operation == "copy":
            self.names[i.name] = args[0]
            return
        if i.operation == "mul" and any(not isinstance(a, (str, bool)) and a == 1 for a in args):
            self.names[i.name] = args[1] if not isinstance(args[0], str) and args[0] == 1 else args[0]
            return
        ranges = [self._range(a) for a in args]
        name = f"v{len(self.lines)}"
        if any(a in self.arrays for a in args):
            text = self._of_arrays(i, args, ranges)
            self.arrays.add(name)
        else:
            text = self._of_numbers(i, [self._text(a) for a in args], ranges)
        self.lines.append(f"{name} = {text}")
        self.names[i.name], self.ranges[name] = name, of_instruction(i.operation, ranges)

    def _of_arrays(self, i: Instruction, args: list[Operand], ranges: list[Range]) -> str:
        number = i.number
        if number is None and i.operation in _INFIX:
            number = Number.REAL if any(isinstance(a, float) for a in args) else None
        if i.operation == "select":
            return f"where({self._text(args[0])}, {self._array(args[1], number)}, {self._array(args[2], number)})"
        texts = [self._array(a, number) for a in args]
        match i.operation:
            case "min" | "max":
                return f"{i.operation}imum({texts[0]}, {texts[1]})"
            case "floordiv" | "ceildiv" | "div" if ranges[1].has_zero:
                return f"any_{i.operation}({texts[0]}, {texts[1]})"
            case "floordiv":
                return f"{texts[0]} // {texts[1]}"
            case "ceildiv":
                return f"-(-{texts[0]} // {texts[1]})"
            case "div":
                return f"{texts[0]} / {texts[1]}"
            case "and" | "or":
                return f"{texts[0]} {'&' if i.operation == 'and' else '|'} {texts[1]}"
            case "not":
                return f"~{texts[0]}"
            case "real":
                return f"{texts[0]}.astype(f64)"
            case _:
                return f"{texts[0]} {_INFIX[i.operation]} {texts[1]}"

    @staticmethod
    def _of_numbers(i: Instruction, args: list[str], ranges: list[Range]) -> str:
        match i.operation:
            case "min" | "max":
                return f"({args[0]} if {args[0]} {'<' if i.operation == 'min' else '>'} {args[1]} else {args[1]})"
            case "floordiv" | "ceildiv" | "div" if ranges[1].has_zero:
                return f"any_{i.operation}({args[0]}, {args[1]})"
            case "floordiv":
                return f"{args[0]} // {args[1]}"
            case "ceildiv":
                return f"-(-{args[0]} // {args[1]})"
            case "div":
                return f"{args[0]} / {args[1]}"
            case "and" | "or" | "not":
                return f" {i.operation} ".join(args) if len(args) == 2 else f"not {args[0]}"
            case "select":
                return f"({args[1]} if {args[0]} else {args[2]})"
            case "real":
                return f"float({args[0]})"
            case _:
                return f"{args[0]} {_INFIX[i.operation]} {args[1]}"

    # ---- operands -----------------------------------------------------------------------------

    def _put(self, operand: Operand) -> Operand:
        """A name of the function, or a constant."""
        if not isinstance(operand, str):
            return operand
        if operand not in self.names:
            value = self.known[operand]
            if isinstance(value, np.ndarray):
                name = f"k{len(self.names)}"
                self.globals[name], self.names[operand], self.ranges[name] = value, name, _range_of(value)
                self.arrays.add(name)
            else:
                self.names[operand] = value
        return self.names[operand]

    def _range(self, operand: Operand) -> Range:
        return self.ranges.get(operand, ANY) if isinstance(operand, str) else of_constant(operand)

    @staticmethod
    def _text(operand: Operand) -> str:
        if isinstance(operand, str):
            return operand
        if isinstance(operand, float) and not math.isfinite(operand):
            return f"float('{operand}')"
        return f"({operand!r})"

    def _array(self, operand: Operand, number: Number | None) -> str:
        """A plain number beside arrays: as an array without dimensions, which NumPy takes faster than a number."""
        if operand in self.arrays or number is None or isinstance(operand, bool):
            return self._text(operand)
        key = (type(operand).__name__, operand)
        if key not in self.wrapped:
            if isinstance(operand, str):
                self.wrapped[key] = f"a{len(self.lines)}"
                kind = "f64" if number is Number.REAL else "i64"
                self.lines.append(f"{self.wrapped[key]} = np_array({operand}, {kind})")
            else:
                self.wrapped[key] = f"c{len(self.globals)}"
                self.globals[self.wrapped[key]] = np.array(operand)
        return self.wrapped[key]


def _range_of(values: Any) -> Range:
    if values.size == 0 or not np.all(np.isfinite(values)):
        return ANY
    return Range(values.min().item(), values.max().item())


# ---- evaluation ----


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

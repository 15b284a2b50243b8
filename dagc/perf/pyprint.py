"""Three-address code as one Python function: arrays by NumPy, plain numbers by Python itself.

Which names are arrays is known when the function is made, so that no operation asks. Divisors that cannot be zero, by
their ranges, are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dagc.perf.lower import Instruction, Operand
from dagc.perf.program import Number
from dagc.perf.ranges import ANY, Range, of_constant, of_instruction

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

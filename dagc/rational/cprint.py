"""Rational programs as C99 (and C++17) functions."""

from __future__ import annotations

from collections.abc import Sequence

from dagc.rational.lower import Instruction, Operand, instructions
from dagc.rational.program import Number, RationalProgram

# Division as the language has it: to below and to above, and by zero 0.
HELPERS = """\
#ifndef DAGC_RATIONAL_H
#define DAGC_RATIONAL_H
#include <stdint.h>

/* Results are those of NumPy to the last bit where products and sums stay apart: -ffp-contract=off. */
static inline int64_t dagc_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}
static inline int64_t dagc_ceildiv(int64_t a, int64_t b) { return -dagc_floordiv(-a, b); }
static inline double dagc_div(double a, double b) { return b != 0 ? a / b : 0; }
#endif
"""
C_TYPES = {Number.INTEGER: "int64_t", Number.REAL: "double", None: "int"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&&", "or": "||",
}  # fmt: skip
_CALLS = {"floordiv": "dagc_floordiv", "ceildiv": "dagc_ceildiv", "div": "dagc_div"}


def to_c(program: RationalProgram, function: str, *, parameters: Sequence[str] | None = None) -> str:
    """`static inline <type> function(<parameters>)`; it needs HELPERS before it.

    `parameters`: names in the order of the arguments (default: that of the program).
    """
    order = list(parameters) if parameters is not None else [p.name for p in program.parameters]
    code = live(instructions(program))
    used = {a for i in code for a in i.args if isinstance(a, str)}
    args = ", ".join(f"{C_TYPES[program.parameter(n).number]} {n}" for n in order) or "void"
    result = code[-1]
    lines = [f"/* {program.name}, in {program.unit}. {program.source} */"]
    lines.append(f"static inline {C_TYPES[result.number]} {function}({args}) {{")
    lines += [f"  (void){n};" for n in order if n not in used]
    lines += [f"  const {C_TYPES[i.number]} {i.name} = {_expression(i)};" for i in code[:-1]]
    lines += [f"  return {_expression(result)};", "}"]
    return "\n".join(lines) + "\n"


def live(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Without the instructions that the last one does not hang on."""
    needed = {code[-1].name}
    for instruction in reversed(code):
        if instruction.name in needed:
            needed |= {a for a in instruction.args if isinstance(a, str)}
    return tuple(i for i in code if i.name in needed)


def _expression(i: Instruction) -> str:
    args = [operand(a) for a in i.args]
    match i.operation:
        case "min":
            return f"{args[0]} < {args[1]} ? {args[0]} : {args[1]}"
        case "max":
            return f"{args[0]} > {args[1]} ? {args[0]} : {args[1]}"
        case "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "not":
            return f"!{args[0]}"
        case "copy":
            return args[0]
        case "real":
            return f"(double){args[0]}"
        case operation if operation in _INFIX:
            return f"{args[0]} {_INFIX[operation]} {args[1]}"
        case operation:
            return f"{_CALLS[operation]}({args[0]}, {args[1]})"


def operand(value: Operand) -> str:
    """A name or a constant in C."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"INT64_C({value})" if abs(value) >= 2**31 else (f"({value})" if value < 0 else str(value))
    if isinstance(value, float):
        text = repr(value)
        return f"({text})" if value < 0 else text
    return value

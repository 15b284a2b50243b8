"""Rational programs as C99 (and C++17) functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dagc.perf.lower import Instruction, Operand, instructions, live
from dagc.perf.partial import Batch
from dagc.perf.program import Number, RationalProgram
from dagc.perf.ranges import ANY, of_constant

# Division as the language has it: to below and to above, and by zero 0.
HELPERS = """\
#ifndef DAGC_RATIONAL_H
#define DAGC_RATIONAL_H
#include <stdint.h>

/* Results are those of NumPy to the last bit where products and sums stay apart: -ffp-contract=off.
   Integers wrap around at 64 bits, as NumPy's: unsigned arithmetic, since a compiler may take it that signed integers
   never overflow, and then drop a test for zero. */
static inline int64_t dagc_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t dagc_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t dagc_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
/* INT64_MIN / -1 does not fit: it wraps around, where the processor's division would trap. */
static inline int64_t dagc_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return dagc_sub(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t dagc_ceildiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return dagc_sub(0, a);
  return a / b + (a % b != 0 && (a < 0) == (b < 0));
}
static inline double dagc_div(double a, double b) { return b != 0 ? a / b : 0; }
#endif
"""
# For `batch_to_c`, after HELPERS.
BATCH_HELPERS = """\
#ifndef DAGC_BATCH_H
#define DAGC_BATCH_H
#include <float.h>
#include <math.h>

/* Whether doubles are added and rounded as IEEE 754 has it, each sum by itself. */
#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#define DAGC_IEEE 0
#else
#define DAGC_IEEE 1
#endif
/* The whole number next to x, |x| < 2^51: the sum has no bits for a fraction. */
static inline double dagc_nearest(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }
#endif
"""
BATCH_WIDTH = 4
C_TYPES = {Number.INTEGER: "int64_t", Number.REAL: "double", None: "int"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&&", "or": "||",
}  # fmt: skip
_CHOICES = ("min", "max", "select")
_CALLS = {"floordiv": "dagc_floordiv", "ceildiv": "dagc_ceildiv", "div": "dagc_div"}
_WRAPPING = {"add": "dagc_add", "sub": "dagc_sub", "mul": "dagc_mul"}  # of integers whose ranges are not known


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
        case operation if operation in _WRAPPING and i.number is Number.INTEGER:
            return f"{_WRAPPING[operation]}({args[0]}, {args[1]})"
        case operation if operation in _INFIX:
            return _infix(i)
        case operation:
            return f"{_CALLS[operation]}({args[0]}, {args[1]})"


def _infix(i: Instruction) -> str:
    return f"{operand(i.args[0])} {_INFIX[i.operation]} {operand(i.args[1])}"


def batch_to_c(batch: Batch, function: str, parameters: Sequence[str], count: int) -> str:
    """`static inline void function(int64_t <parameters>..., double* out_)`, after HELPERS and BATCH_HELPERS.

    `out_` takes the first result for each of the `count` settings, infinity where one of the others is zero; it has
    room for `padded_count`. All parameters must be from 1 to `batch.limit`, and DAGC_IEEE must hold.
    """
    padded = padded_count(count)
    tables = {name: f"{function}_{name}" for name in batch.tables}
    lines = []
    for name, values in batch.tables.items():
        numbers = ", ".join(_real(v) for v in (*values, *[values[-1]] * (padded - count)))
        lines.append(f"static const double {tables[name]}[{padded}] = {{{numbers}}};")
    lines.append(f"static inline void {function}({''.join(f'int64_t {n}, ' for n in parameters)}double* out_) {{")
    used = {a for i in (*batch.before, *batch.loop) for a in i.args}
    lines += [f"  (void){n};" for n in parameters if n not in used]
    lines += [f"  const {C_TYPES[i.number]} {i.name} = {_shorter(i, batch)};" for i in batch.before]
    outside = {i.name for i in batch.before}
    bounds: dict[Operand, str] = {}
    for i in batch.loop:
        for a in i.args if i.operation in _CHOICES else ():
            if isinstance(a, float) or a in outside:
                bounds.setdefault(a, f"bound_{len(bounds)}_")
    result, *conditions = (operand(r) for r in batch.results)
    names = {operand(a): name for a, name in bounds.items()}
    if conditions:
        names |= {"0.0": names.get("0.0", "none_"), "INFINITY": "never_"}
    if names:
        lines.append("  /* Volatile: what compilers know of a bound, they would compute in a branch. */")
        lines.append(f"  volatile double bounds_[{len(names)}] = {{{', '.join(names)}}};")
        lines += [f"  const double {name} = bounds_[{k}];" for k, name in enumerate(names.values())]
    lines.append(f"  for (int setting_ = 0; setting_ < {padded}; ++setting_) {{")
    lines += [f"    const double {name} = {table}[setting_];" for name, table in tables.items()]
    for i in batch.loop:
        if i.operation in _CHOICES:
            i = replace(i, args=tuple(bounds.get(a, a) for a in i.args))
        lines.append(f"    const {'int' if i.number is None else 'double'} {i.name} = {_shorter(i, batch)};")
    more = "".join(f" + ({c} != 0 ? {names['0.0']} : never_)" for c in conditions)
    lines.append(f"    out_[setting_] = {result}{more};")
    return "\n".join([*lines, "  }", "}"]) + "\n"


def padded_count(count: int) -> int:
    """Room for so many settings: a loop over them has no rest for vectors of 2 or 4."""
    return -(-count // BATCH_WIDTH) * BATCH_WIDTH


def _shorter(i: Instruction, batch: Batch) -> str:
    """`_expression` where ranges are known."""
    args = [operand(a) for a in i.args]
    ranges = [batch.ranges.get(a, ANY) if isinstance(a, str) else of_constant(a) for a in i.args]
    match i.operation:
        case "nearest":
            return f"dagc_nearest({args[0]})"
        case "div" if not ranges[1].has_zero:
            return f"{args[0]} / {args[1]}"
        case "div":  # written so that nothing can trap: compilers do not vectorise a division that may not be done
            return f"{args[1]} != 0 ? {args[0]} / ({args[1]} != 0 ? {args[1]} : 1.0) : 0.0"
        case "floordiv" if ranges[0].low >= 0 and ranges[1].low > 0:
            return f"{args[0]} / {args[1]}"
        case "ceildiv" if ranges[0].low >= 0 and ranges[1].low > 0:
            return f"({args[0]} + {args[1]} - 1) / {args[1]}"
        case "and" | "or":
            tests = [f"({a} != 0)" if isinstance(o, str) else a for o, a in zip(i.args, args, strict=True)]
            return f"{tests[0]} {'&' if i.operation == 'and' else '|'} {tests[1]}"
        case "select" if i.args[0] in batch.tables and all(math.isfinite(r.size) for r in ranges):
            # 1 or 0 of a table. With `? :` compilers would move a product into the branch, and then not vectorise.
            return f"{args[0]} * {args[1]} + (1.0 - {args[0]}) * {args[2]}"
        case "select":
            return f"{args[0]} != 0 ? {args[1]} : {args[2]}"
        case operation if operation in _WRAPPING:  # `split` has proved that nothing overflows
            return _infix(i)
        case _:
            return _expression(i)


def _real(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def operand(value: Operand) -> str:
    """A name or a constant in C."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        if value == -(2**63):
            return "INT64_MIN"  # its digits alone are too large for a literal
        return f"INT64_C({value})" if abs(value) >= 2**31 else (f"({value})" if value < 0 else str(value))
    if isinstance(value, float):
        text = repr(value)
        return f"({text})" if value < 0 else text
    return value

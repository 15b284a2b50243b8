"""Rational programs as C99 (and C++17) functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagc.base.python import np
from dagc.cuda.lexer import KEYWORDS, is_global
from dagc.ir.names import mangle, set_apart
from dagc.perf.code import ANY, COMPARISONS, OPERATIONS, Instruction, Interval, Operand, decided, live, of_constant
from dagc.perf.evaluate import typed
from dagc.perf.program import Number, RationalProgram

# ---- split over a table of settings ----
# A program over a table of settings, split by what its instructions depend on.
#
# settings alone   computed here: tables of constants
# sizes alone      once for each call, before the loop
# both             the loop over the settings
#
# The loop uses only arithmetic of doubles, which compilers vectorise. Integers in the loop are integral doubles, exact
# up to a magnitude of 2^49: value ranges prove this for sizes from 1 to `Batch.limit`. What the ranges decide
# (comparisons, minima, divisors that cannot be zero) is not computed. Results are bit-identical, except for the sign
# of zero, which the language cannot observe.

EXACT = 2**49  # integral doubles up to here are exact, and so are their rounded quotients as computed here
_LARGEST_LIMIT, _SMALLEST_LIMIT = 31, 8  # powers of two


@dataclass(frozen=True, slots=True)
class BatchLoop:
    """`results` are operands of the loop, one for each program.

    `tables`: a value for each setting. Operations of `loop` besides those of `lower.Instruction`: nearest (the integer
    nearest to a double). The value of a name is within its range in `ranges`.
    """

    limit: int
    tables: Mapping[str, tuple[float, ...]]
    before: tuple[Instruction, ...]
    loop: tuple[Instruction, ...]
    results: tuple[Operand, ...]
    ranges: Mapping[str, Interval]


def split(programs: Sequence[RationalProgram], columns: Mapping[str, Sequence[float]]) -> BatchLoop | None:
    """Split the programs for the settings that `columns` (parameter -> a value for each) gives.

    All other parameters are sizes, integers. None if that cannot be done exactly for sizes up to 256.
    """
    best = None
    low, high = _SMALLEST_LIMIT, _LARGEST_LIMIT
    while low <= high:
        middle = (low + high) // 2
        batch = _Split(programs, columns, 2**middle).batch()
        if batch is None:
            high = middle - 1
        else:
            best, low = batch, middle + 1
    return best


class _TooLarge(Exception):
    """An integer may be too large for a double, a constant is not finite, or a size is not an integer."""


class _Split:
    def __init__(self, programs: Sequence[RationalProgram], columns: Mapping[str, Sequence[float]], limit: int) -> None:
        self.programs, self.columns, self.limit = programs, columns, limit
        self.ranges: dict[str, Interval] = {}
        self.numbers: dict[str, Number | None] = {}
        self.tables: dict[str, np.ndarray[Any, Any]] = {}
        self.sizes: set[str] = set()
        self.before: list[Instruction] = []
        self.loop: list[Instruction] = []
        self.known: dict[tuple[object, ...], Operand] = {}
        self.labels: dict[str, str] = {}
        self.sources: dict[str, tuple[str, tuple[Operand, ...]]] = {}  # sources that `_remainder` looks up
        self.fresh = 0

    def batch(self) -> BatchLoop | None:
        try:
            results = tuple(self._program(p) for p in self.programs)
        except _TooLarge:
            return None
        return self._live(results)

    # ---- programs -----------------------------------------------------------------------------

    def _program(self, program: RationalProgram) -> Operand:
        from dagc.perf.lower import instructions  # loads sympy

        values: dict[str, Operand] = {}
        for p in program.parameters:
            if p.name in self.columns:
                values[p.name] = self._table(typed(list(self.columns[p.name]), p.number), p.number, p.name)
            else:
                values[p.name] = p.name
                if p.number is not Number.INTEGER:
                    raise _TooLarge
                self.sizes.add(p.name)
                self.numbers[p.name], self.ranges[p.name] = p.number, Interval(1, self.limit)
        result: Operand = 0
        for i in instructions(program):
            args = tuple(values[a] if isinstance(a, str) else a for a in i.args)
            result = values[i.name] = self._instruction(i, args)
            if isinstance(result, str) and i.operation in ("mul", "floordiv"):
                self.sources.setdefault(result, (i.operation, args))
            if i.operation == "copy" and isinstance(result, str):
                self.labels.setdefault(result, i.name)
        return self._in_loop(result)

    def _instruction(self, i: Instruction, args: tuple[Operand, ...]) -> Operand:
        names, remainder = [a for a in args if isinstance(a, str)], self._remainder(i, args)
        if all(n in self.tables for n in names):
            values = [self.tables[a] if isinstance(a, str) else a for a in args]
            return self._table(OPERATIONS[i.operation].compute(*values), i.number)
        ranges = [self._range(a) for a in args]
        simple = self._simplified(i.operation, args, ranges)
        if simple is not None:
            return simple
        if all(n in self.sizes for n in names):
            return self._emit(self.before, i.operation, args, i.number, ranges, remainder)
        if i.operation in ("and", "or", "not", "select"):
            return self._emit(self.loop, i.operation, tuple(self._in_loop(a) for a in args), i.number, ranges)
        args = tuple(self._in_loop(a) for a in args)
        if i.operation == "real":
            return args[0]
        if i.operation in ("floordiv", "ceildiv"):
            return self._rounded(i, args, ranges)
        if i.operation == "div":
            return self._quotient(args)
        return self._emit(self.loop, i.operation, args, i.number, ranges, remainder)

    def _remainder(self, i: Instruction, args: tuple[Operand, ...]) -> Interval | None:
        """For a - b * floor(a / b), which is below b: the ranges of its parts alone would be far too wide."""
        if i.operation != "sub" or not isinstance(args[1], str):
            return None
        kind, factors = self.sources.get(args[1], ("", ()))
        for b, quotient in (factors, factors[::-1]) if kind == "mul" else ():
            divisor = self._range(b)
            if self.sources.get(str(quotient)) == ("floordiv", (args[0], b)) and divisor.low > 0:
                return Interval(0, divisor.high - 1)
        return None

    def _simplified(self, operation: str, args: tuple[Operand, ...], ranges: Sequence[Interval]) -> Operand | None:
        """An argument or a constant equal to the result."""
        if operation == "copy":
            return args[0]
        if operation == "mul" and 1 in args:
            return args[1 - args.index(1)]
        if operation in COMPARISONS:
            # Compilers warn of `n < n`. A real may be NaN, which equals nothing.
            if args[0] == args[1] and self.numbers.get(str(args[0])) is Number.INTEGER:
                return operation in ("le", "ge", "eq")
            return decided(operation, ranges[0], ranges[1])
        if operation in ("min", "max"):
            if args[0] == args[1]:
                return args[0]
            first, second = ("le", "ge") if operation == "min" else ("ge", "le")
            if decided(first, ranges[0], ranges[1]):
                return args[0]
            return args[1] if decided(second, ranges[0], ranges[1]) else None
        if operation in ("and", "or") and any(isinstance(a, bool) for a in args):
            constant = next(a for a in args if isinstance(a, bool))
            other = args[1 - args.index(constant)]
            return other if constant == (operation == "and") else constant
        if operation == "not" and isinstance(args[0], bool):
            return not args[0]
        if operation == "select":
            if isinstance(args[0], bool):
                return args[1] if args[0] else args[2]
            if args[1] == args[2]:
                return args[1]
        return None

    def _rounded(self, i: Instruction, args: tuple[Operand, ...], ranges: Sequence[Interval]) -> Operand:
        """A quotient rounded down is the integer nearest to (a + 1/2) / b - 1/2, one rounded up to (a - 1/2) / b + 1/2.

        Both are at least 1 / (2 b) away from the middle of two integers, which exceeds the error of the four roundings:
        b (2 |a / b| + 3) < 2^52.
        """
        if ranges[1].low <= 0:
            raise _TooLarge
        result = OPERATIONS[i.operation].range(*ranges)
        top, bottom = args
        if bottom == 1:
            return top
        towards = "sub" if i.operation == "floordiv" else "add"
        if isinstance(bottom, str) and bottom not in self.tables:
            moved = self._real("add" if towards == "sub" else "sub", top, 0.5)
            middle = self._real(towards, self._quotient((moved, bottom)), 0.5)
        else:
            divisor = self.tables[bottom] if isinstance(bottom, str) else np.array(bottom)
            half = self._table(0.5 - 0.5 / divisor, Number.REAL)
            middle = self._real(towards, self._quotient(args), half)
        return self._emit(self.loop, "nearest", (middle,), i.number, (), result)

    def _real(self, operation: str, *args: Operand) -> Operand:
        return self._emit(self.loop, operation, args, Number.REAL, [self._range(a) for a in args])

    def _quotient(self, args: tuple[Operand, ...]) -> Operand:
        top, bottom = args
        inverse = self._inverse(bottom)
        if inverse is None:
            return self._real("div", top, bottom)
        return top if inverse == 1 else self._real("mul", top, inverse)

    def _inverse(self, bottom: Operand) -> Operand | None:
        """1 / bottom if it is exact: for powers of two."""
        if isinstance(bottom, str) and bottom not in self.tables:
            return None
        values = self.tables[bottom] if isinstance(bottom, str) else np.array([bottom], np.float64)
        parts, exponents = np.frexp(values)
        if not (np.all(np.abs(parts) == 0.5) and np.all(np.abs(exponents) < 1000)):
            return None
        return self._table(1.0 / values, Number.REAL)

    # ---- values -------------------------------------------------------------------------------

    def _table(self, value: Any, number: Number | None, name: str = "") -> Operand:
        """A value that depends on the settings alone: a constant if it is the same for all."""
        values = np.atleast_1d(np.asarray(value))
        if number is not None and not np.all(np.isfinite(values)):
            raise _TooLarge
        if np.all(values == values[0]):
            first = values[0].item()
            return bool(first) if number is None else (int(first) if number is Number.INTEGER else float(first))
        key = ("table", number, values.tobytes())
        if key not in self.known:
            table = name or self._name()
            low, high = values.min().item(), values.max().item()
            self.known[key], self.tables[table], self.numbers[table] = table, values, number
            self.ranges[table] = Interval(int(low), int(high)) if number is None else Interval(low, high)
        return self.known[key]

    def _in_loop(self, operand: Operand) -> Operand:
        """The form of a value in the loop: a double, or a boolean."""
        if isinstance(operand, bool) or not isinstance(operand, (str, int)):
            return operand
        if self._range(operand).size > EXACT and (isinstance(operand, int) or self.numbers[operand] is Number.INTEGER):
            raise _TooLarge
        if isinstance(operand, int):
            return float(operand)
        if operand in self.tables and self.numbers[operand] is Number.INTEGER:
            table = self._table(self.tables[operand].astype(np.float64), Number.REAL)
            if isinstance(table, str) and (operand in self.labels or operand in self.columns):
                self.labels.setdefault(table, self.labels.get(operand, operand))
            return table
        if operand in self.sizes and self.numbers[operand] is Number.INTEGER:
            return self._emit(self.before, "real", (operand,), Number.REAL, [self._range(operand)])
        return operand

    def _emit(
        self, to: list[Instruction], operation: str, args: tuple[Operand, ...], number: Number | None,
        ranges: Sequence[Interval], result: Interval | None = None,
    ) -> Operand:  # fmt: skip
        key = (operation, number, *((type(a).__name__, a) for a in args))
        if key not in self.known:
            name = self._name()
            value_range = result if result is not None else OPERATIONS[operation].range(*ranges)
            if number is Number.INTEGER and value_range.size > (EXACT if to is self.loop else 2**62):
                raise _TooLarge
            to.append(Instruction(name, operation, args, number))
            self.known[key], self.ranges[name], self.numbers[name] = name, value_range, number
            if to is self.before:
                self.sizes.add(name)
        return self.known[key]

    def _name(self) -> str:
        self.fresh += 1
        return f"{self.fresh}"  # not a name of a program; replaced by the final name later

    def _range(self, operand: Operand) -> Interval:
        return self.ranges[operand] if isinstance(operand, str) else of_constant(operand)

    # ---- dead code and names ------------------------------------------------------------------------------

    def _live(self, results: tuple[Operand, ...]) -> BatchLoop:
        """The instructions that the results depend on, with readable names."""
        needed = {r for r in results if isinstance(r, str)}
        for i in reversed(self.before + self.loop):
            if i.name in needed:
                needed |= {a for a in i.args if isinstance(a, str)}
        names = self._last_names(needed)

        def put(operand: Operand) -> Operand:
            return names[operand] if isinstance(operand, str) else operand

        def code(instructions: list[Instruction]) -> tuple[Instruction, ...]:
            used = (i for i in instructions if i.name in needed)
            return tuple(Instruction(names[i.name], i.operation, tuple(map(put, i.args)), i.number) for i in used)

        n = len(next(iter(self.columns.values())))
        tables = {
            names[t]: tuple(float(v) for v in np.broadcast_to(a, n)) for t, a in self.tables.items() if t in needed
        }
        ranges = {names[n]: r for n, r in self.ranges.items() if n in needed}
        return BatchLoop(self.limit, tables, code(self.before), code(self.loop), tuple(map(put, results)), ranges)

    def _last_names(self, needed: set[str]) -> dict[str, str]:
        parameters = {p.name for program in self.programs for p in program.parameters}
        used = set(parameters)
        out = {}
        for value in [*self.sizes & parameters, *self.tables, *(i.name for i in self.before + self.loop)]:
            if value not in needed:
                continue
            name = value if value in parameters else self.labels.get(value, f"v{value}")
            while name in used and value not in parameters:
                name += "_"
            used.add(name)
            out[value] = name
        return out


# ---- C ----


# Division as in the language: rounded down and up, and 0 for a divisor of zero.
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
_CHOICES = ("min", "max", "select")


def to_c(program: RationalProgram, function: str) -> str:
    """`static inline <type> function(<the program's parameters>)`; HELPERS must come before it."""
    order = [p.name for p in program.parameters]
    from dagc.perf.lower import instructions  # loads sympy

    code = live(instructions(program))
    used = {a for i in code for a in i.args if isinstance(a, str)}
    args = ", ".join(f"{C_TYPES[program.parameter(n).number]} {identifier(n)}" for n in order) or "void"
    result = code[-1]
    lines = [f"/* {program.name}, in {program.unit}. {program.source} */"]
    lines.append(f"static inline {C_TYPES[result.number]} {function}({args}) {{")
    lines += [f"  (void){identifier(n)};" for n in order if n not in used]
    lines += [f"  const {C_TYPES[i.number]} {identifier(i.name)} = {_expression(i)};" for i in code[:-1]]
    lines += [f"  return {_expression(result)};", "}"]
    return "\n".join(lines) + "\n"


def _expression(i: Instruction) -> str:
    return OPERATIONS[i.operation].text([operand(a) for a in i.args], i.number)


def batch_to_c(batch: BatchLoop, function: str, parameters: Sequence[str], count: int) -> str:
    """`static inline void function(int64_t <parameters>..., double* dagc_out)`, after HELPERS and BATCH_HELPERS.

    `dagc_out` receives the first result for each of the `count` settings, infinity if one of the others is zero; it
    must have room for `padded_count`. All parameters must be from 1 to `batch.limit`, and DAGC_IEEE must hold.
    """
    padded = padded_count(count)
    args = "".join(f"int64_t {identifier(n)}, " for n in parameters)
    lines = [f"static inline void {function}({args}double* dagc_out) {{"]
    for name, values in batch.tables.items():
        numbers = ", ".join(_real(v) for v in (*values, *[values[-1]] * (padded - count)))
        lines.append(f"  static const double dagc_table_{identifier(name)}[{padded}] = {{{numbers}}};")
    used = {a for i in (*batch.before, *batch.loop) for a in i.args}
    lines += [f"  (void){identifier(n)};" for n in parameters if n not in used]
    lines += [f"  const {C_TYPES[i.number]} {identifier(i.name)} = {_shorter(i, batch)};" for i in batch.before]
    outside = {i.name for i in batch.before}
    bounds: dict[Operand, _Local] = {}
    for i in batch.loop:
        for a in i.args if i.operation in _CHOICES else ():
            if isinstance(a, float) or a in outside:
                bounds.setdefault(a, _Local(f"dagc_bound_{len(bounds)}"))
    result, *conditions = (operand(r) for r in batch.results)
    names = {operand(a): str(name) for a, name in bounds.items()}
    if conditions:
        names |= {"0.0": names.get("0.0", "dagc_none"), "INFINITY": "dagc_never"}
    if names:
        lines.append("  /* Volatile: what compilers know of a bound, they would compute in a branch. */")
        lines.append(f"  volatile double dagc_bounds[{len(names)}] = {{{', '.join(names)}}};")
        lines += [f"  const double {name} = dagc_bounds[{k}];" for k, name in enumerate(names.values())]
    lines.append(f"  for (int dagc_setting = 0; dagc_setting < {padded}; ++dagc_setting) {{")
    lines += [f"    const double {name} = dagc_table_{name}[dagc_setting];" for name in map(identifier, batch.tables)]
    for i in batch.loop:
        if i.operation in _CHOICES:
            i = replace(i, args=tuple(bounds.get(a, a) for a in i.args))
        lines.append(
            f"    const {'int' if i.number is None else 'double'} {identifier(i.name)} = {_shorter(i, batch)};"
        )
    more = "".join(f" + ({c} != 0 ? {names['0.0']} : dagc_never)" for c in conditions)
    lines.append(f"    dagc_out[dagc_setting] = {result}{more};")
    return "\n".join([*lines, "  }", "}"]) + "\n"


def padded_count(count: int) -> int:
    """`count` rounded up so that a loop over it has no remainder for vectors of 2 or 4."""
    return -(-count // BATCH_WIDTH) * BATCH_WIDTH


def _shorter(i: Instruction, batch: BatchLoop) -> str:
    """`_expression` if ranges are known."""
    args = [operand(a) for a in i.args]
    ranges = [batch.ranges.get(a, ANY) if isinstance(a, str) else of_constant(a) for a in i.args]
    match i.operation:
        case "nearest":
            return f"dagc_nearest({args[0]})"
        case "div" if not ranges[1].has_zero:
            return f"{args[0]} / {args[1]}"
        case "div":  # written so that nothing can trap: compilers do not vectorise a conditional division
            return f"{args[1]} != 0 ? {args[0]} / ({args[1]} != 0 ? {args[1]} : 1.0) : 0.0"
        case "floordiv" if ranges[0].low >= 0 and ranges[1].low > 0:
            return f"{args[0]} / {args[1]}"
        case "ceildiv" if ranges[0].low >= 0 and ranges[1].low > 0:
            return f"({args[0]} + {args[1]} - 1) / {args[1]}"
        case "and" | "or":
            tests = [f"({a} != 0)" if isinstance(o, str) else a for o, a in zip(i.args, args, strict=True)]
            return f"{tests[0]} {'&' if i.operation == 'and' else '|'} {tests[1]}"
        case "select" if i.args[0] in batch.tables and all(math.isfinite(r.size) for r in ranges):
            # 1 or 0 from a table. With `? :` compilers would move a product into the branch, and then not vectorise.
            return f"{args[0]} * {args[1]} + (1.0 - {args[0]}) * {args[2]}"
        case "select":
            return f"{args[0]} != 0 ? {args[1]} : {args[2]}"
        case _:  # `split` has proved that nothing overflows
            return OPERATIONS[i.operation].text(args, Number.REAL)


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
    return value if isinstance(value, _Local) else identifier(value)


class _Local(str):
    """A variable of printed code alone, which no name of a program may be."""

    __slots__ = ()


def identifier(name: str) -> str:
    """A parameter or a variable in C. The name of a parameter may be a word of C."""
    name = mangle(name)
    return set_apart(name) if name in KEYWORDS or is_global(name) or name.startswith("dagc_") else name

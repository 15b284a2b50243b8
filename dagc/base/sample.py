"""What one measurement gave, whatever was measured: the only type of a measured value; and the objective of a search: a
metric, or an arithmetic expression of metrics."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from dagc.base.errors import UsageError
from dagc.base.statistics import interval

_LONGEST = 200  # characters of an expression
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
_FUNCTIONS: dict[str, Callable[..., Any]] = {"max": max, "min": min}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True, slots=True)
class Objective:
    """`text` is an expression of `metrics`; the least value is the best. Values are above 0.

    unit   of a single metric; "" for expressions

    OCCUPANCY has no metrics: it is computed, and the greatest is the best.
    """

    text: str = "time"
    metrics: tuple[str, ...] = ("time",)
    unit: str = "s"

    @property
    def is_time(self) -> bool:
        """Whether it is the time of an iteration and nothing else."""
        return self.text == "time"

    def value(self, metrics: Mapping[str, float]) -> float:
        """The value for one sample, which must have all `metrics`; NaN if it is not a number above 0."""
        if self.is_time:
            return metrics["time"]
        try:
            result = _value(ast.parse(self.text, mode="eval").body, metrics)
        except ArithmeticError:
            return math.nan
        return result if isinstance(result, float) and 0 < result < math.inf else math.nan  # a root may be complex

    def show(self, value: float, sign: str = "", decimals: int = 2) -> str:
        """A value with its unit: `20.97 us` (times are in microseconds, with `decimals` digits), `14.2 mJ`, `0.00314`.

        With `sign` "+", positive values have a sign too.
        """
        return f"{value * 1e6:{sign}.{decimals}f} us" if self.unit == "s" else self.scaled(value, sign)

    def named(self, value: float) -> str:
        """As `show`, followed by the objective unless that is the time: `14.2 mJ energy`."""
        return self.show(value) if self.is_time else f"{self.show(value)} {self.text}"

    def scaled(self, value: float, sign: str = "") -> str:
        """As `show`, with the prefix that suits the value: `1.353 ms`."""
        if not self.unit:
            return f"{value:{sign}.4g}"
        factor, prefix = next((p for p in _PREFIXES if abs(value) >= p[0]), _PREFIXES[-1])
        return f"{value / factor:{sign}.4g} {prefix}{self.unit}"


TIME = Objective()
OCCUPANCY = Objective("occupancy", (), "")  # of a multiprocessor by a launch (`dagc.perf.occupancy`)


def parse_objective(text: str, units: Mapping[str, str]) -> Objective:
    """Parse an expression of numbers, names of metrics, + - * / **, max(), min() and brackets. `max:E` is 1 / (E).

    `units` maps the name of each metric to its unit. Nothing in the text is executed. Raises UsageError.
    """
    inner = text.strip().removeprefix("max:").strip()
    if inner == OCCUPANCY.text:
        return OCCUPANCY
    if len(text) > _LONGEST:
        raise UsageError(f"the objective has more than {_LONGEST} characters", "write a shorter one")
    try:
        tree = ast.parse(inner, mode="eval").body
        metrics = _names(tree, units)
    except SyntaxError as error:
        column = text.rfind(inner) + (error.offset or len(inner) + 1)  # without one: at its end
        raise UsageError(f"objective `{text}`, column {column}: {error.msg}", _how(units)) from None
    except (ValueError, RecursionError, MemoryError):
        raise UsageError(f"objective `{text}` is not an expression of metrics", _how(units)) from None
    if not metrics:
        raise UsageError(f"objective `{text}` names no metric", _how(units))
    if text.strip().startswith("max:"):
        return Objective(f"1 / ({inner})", metrics, "")
    return Objective(inner, metrics, units[inner] if isinstance(tree, ast.Name) else "")


def _how(units: Mapping[str, str]) -> str:
    return f"write an expression of {', '.join(sorted(units))} with + - * / ** ( ) max min, for example time"


def _names(node: ast.expr, units: Mapping[str, str]) -> tuple[str, ...]:
    """The metrics in an expression, each once. Raises SyntaxError for anything but numbers, metrics and operators."""
    match node:
        case ast.Constant(value=bool() | complex()):
            pass
        case ast.Constant(value=int() | float()):
            return ()
        case ast.Name(id=name) if name in units:
            return (name,)
        case ast.Name(id=name):
            raise _wrong(node, f"unknown metric `{name}`")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _names(operand, units)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return tuple(dict.fromkeys((*_names(left, units), *_names(right, units))))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if name in _FUNCTIONS:
            return tuple(dict.fromkeys(metric for argument in arguments for metric in _names(argument, units)))
    raise _wrong(node, "not a number, a metric or one of + - * / ** max min")


def _wrong(node: ast.expr, message: str) -> SyntaxError:
    return SyntaxError(message, ("", 1, node.col_offset + 1, ""))


def _value(node: ast.expr, metrics: Mapping[str, float]) -> float | complex:
    """The value of a node; complex for a root of a negative number. Raises ArithmeticError."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return float(metrics[name])
        case ast.UnaryOp(op=op, operand=operand):
            result = _value(operand, metrics)
            return -result if isinstance(op, ast.USub) else result
        case ast.BinOp(left=left, op=operation, right=right):
            result = _OPERATORS[type(operation)](_value(left, metrics), _value(right, metrics))
            return complex(result) if isinstance(result, complex) else float(result)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            values = [_value(argument, metrics) for argument in arguments]
            return math.nan if any(v != v or isinstance(v, complex) for v in values) else _FUNCTIONS[name](values)
    raise AssertionError(node)


# What a sample is for: to search, to confirm a choice, to compare an edit, to compare results with the reference; or
# to have a first answer while compilers run, which disturb it.
SEARCH: Final = "search"
BESIDE: Final = "beside"
CONFIRM: Final = "confirm"
EXPLAIN: Final = "explain"
CHECK: Final = "check"


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured value with all metrics behind it, or the reason why there is none. SI units.

    value       what the objective compares: seconds, unless it is another one; the median of `times` if there are any
    times       the single times that were taken together, in order
    metrics     the other metrics by name (`dagc.measure.metrics`); empty if only the time was measured
    failure     "" or one line: `wrong result: ...`, `hang: ...`, `out of memory: ...`, `run failed: ...`
    reference   seconds of the drift reference at about the same time; NaN if there is none
    iterations  how many iterations a time is the mean of
    purpose     what it was taken for
    took        seconds that it kept the machine busy, including cache flushes and the restoration of data; not stored
    """

    value: float = math.nan
    reference: float = math.nan
    iterations: int = 0
    failure: str = ""
    times: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    purpose: str = SEARCH
    took: float = 0.0

    @classmethod
    def of(cls, times: tuple[float, ...], failure: str = "", metrics: Mapping[str, float] | None = None) -> Sample:
        """A sample of single times, whose median is the value."""
        return cls(median(times) if times else math.nan, failure=failure, times=times, metrics=metrics or {})

    @property
    def good(self) -> bool:
        """Whether something was measured, and nothing failed."""
        return not self.failure and not math.isnan(self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median of `times`."""
        return interval(self.times)

    def priced(self, objective: Objective, more: float = 0.0) -> Sample:
        """The sample whose `times` and `value` are those of an objective. `more`: additional seconds of every time."""
        if not more and objective.is_time:
            return self
        values = tuple(objective.value({**self.metrics, "time": t + more}) for t in self.times)
        return replace(self, value=median(values) if values else math.nan, times=values)

"""What the host computes between the calls of a round, as an expression of what it read: found by its values.

A value of each round and rank is compared, to the bit, with expressions of what copies and collectives brought to the
host, in this round or the one before, and of what was found earlier. Where one gives all of them, it is what the host
computes, or equal to it there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

from dagc.base.python import np
from dagc.record.arrays import TYPES, Arrays, FreeNames, RecordedArray
from dagc.record.flow import KernelCall, Messages, Move, ScalarArgument, Together
from dagc.record.functions import CallableFunctions
from dagc.record.log import CollectiveCall, CopyCall, RankLog
from dagc.record.loop import Window
from dagc.record.merge import ProgramStep
from dagc.record.sources import Sources, value_of

SURE = 80  # bits of distinct values that an expression must give: others are chance
_LEFT = 45  # bits, beside those of a number that is fitted, of which there are 2^10 trials
_LITERALS = 16  # numbers of a text that are tried
_FEW = 30  # that an operand alone must give
_MOST = 14  # operands of an expression of three
_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "/": lambda a, b: a / b, "*": lambda a, b: a * b, "+": lambda a, b: a + b, "-": lambda a, b: a - b,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Read:
    """What a step brought to the host; `before`: in the round before."""

    step: int
    before: bool

    def __lt__(self, other: Read) -> bool:
        return (self.before, self.step) < (other.before, other.step)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of expressions: `{0}` in its text is its array, of one element, or of several that it reduces."""

    read: Read
    text: str
    values: np.ndarray  # of each rank and round, in one row


@dataclass(frozen=True, slots=True)
class Formula:
    """`text`: in C++, for `format`: `{0}`, `{1}` are the arrays of `reads`. `file`: of the application, whose
    function it calls."""

    text: str
    reads: tuple[Read, ...]
    file: str = ""


def operands_of(read: Read, values: np.ndarray) -> Iterator[Operand]:
    """`values[rank, round, element]`."""
    flat = values.reshape(-1, values.shape[-1])
    if flat.shape[1] == 1:
        yield Operand(read, "{0}[0]", flat[:, 0])
        return
    count = flat.shape[1]
    loop = "[&] {{ auto x = {0}[0]; for (int i = 1; i < " + str(count) + "; ++i) "
    with np.errstate(all="ignore"):
        yield Operand(read, loop + "x += {0}[i]; return x; }}()", np.add.accumulate(flat, axis=1)[:, -1])
        if flat.dtype == np.float32:
            wide = np.add.accumulate(flat.astype(np.float64), axis=1)[:, -1]
            yield Operand(read, loop.replace("auto", "double") + "x += {0}[i]; return x; }}()", wide)
    yield Operand(read, loop + "x = std::max(x, {0}[i]); return x; }}()", flat.max(axis=1))
    yield Operand(read, loop + "x = std::min(x, {0}[i]); return x; }}()", flat.min(axis=1))


def formula_of(wanted: np.ndarray, operands: Sequence[Operand], constants: Sequence[float]) -> Formula | None:
    """The smallest expression that is `wanted`, a floating-point number of each rank and round; None without one, or if
    the numbers are too few to tell."""
    if wanted.dtype.kind != "f":
        return None
    bits, single = _bits(wanted), (_checked((o.text, (o,), o.values), wanted) for o in operands)
    formulas = _formulas(operands, constants, wanted) if bits >= SURE else single if bits >= _FEW else ()
    return next((f for f in formulas if f is not None), None)


def call_of(
    wanted: np.ndarray, operands: Sequence[Operand], constants: Sequence[float], functions: CallableFunctions
) -> Formula | None:
    """A call of a function of the application, with operands or an operation of two, that is `wanted`."""
    if wanted.dtype.kind != "f" or _bits(wanted) < SURE:
        return None
    single, numbers = _terms(operands, constants, wanted)
    with np.errstate(all="ignore"):
        pairs = list(_pairs(single[:_MOST], [*single[:_MOST], *numbers]))
    both = [*product(single, [*single, *numbers]), *product(numbers, single)]
    of_arity: dict[int, list[tuple[_Term, ...]]] = {1: [(one,) for one in (*single, *pairs)], 2: list(both)}
    for function in functions:
        calls = of_arity[function.arity]
        columns = [np.array([call[i][2] for call in calls]) for i in range(function.arity)]
        given = functions.values(function, columns) if calls else None
        for call, values in zip(calls, given, strict=True) if given is not None else ():
            words = [_shifted(term[0], sum(len(one[1]) for one in call[:i])) for i, term in enumerate(call)]
            of = tuple(one for term in call for one in term[1])
            found = _checked((f"{function.name}({', '.join(words)})", of, values), wanted)
            if found is not None:
                return replace(found, file=function.file)
    return None


def _bits(values: np.ndarray) -> int:
    """Bits of the distinct numbers, without zeros at their ends: those of 0.5 are 1."""
    bits = 0
    for value in {abs(float(v)) for v in values.flat if math.isfinite(v) and v}:
        mantissa = int(math.frexp(value)[0] * 2**53)
        bits += (mantissa // (mantissa & -mantissa)).bit_length()
    return bits


_Term = tuple[str, tuple[Operand, ...], np.ndarray]


def _formulas(operands: Sequence[Operand], constants: Sequence[float], wanted: np.ndarray) -> Iterator[Formula | None]:
    single, numbers = _terms(operands, constants, wanted)
    ordered = [term[1][0] for term in single]
    with np.errstate(all="ignore"):
        yield from (_checked(term, wanted) for term in _with_signs(single))
        pairs = list(_pairs(single, [*single, *numbers]))
        yield from (_checked(term, wanted) for term in _with_signs(pairs))
        few = single[:_MOST]
        squares = [(f"({text} * {text})", of, values * values) for text, of, values in few]
        yield from (_checked(term, wanted) for term in _with_signs(_pairs(squares, squares)))
        some = [pair for pair in pairs if all(one in ordered[:_MOST] for one in pair[1])]
        yield from (_checked(term, wanted) for term in _with_signs(_equal_pairs(some, [*few, *numbers], wanted)))
        yield from (_checked(term, wanted) for term in _fitted(single, wanted))


def _terms(
    operands: Sequence[Operand], constants: Sequence[float], wanted: np.ndarray
) -> tuple[list[_Term], list[_Term]]:
    """The operands, in the order of their reading, and the numbers."""
    ordered = sorted(operands, key=lambda one: one.read)
    numbers = dict.fromkeys((1.0, 2.0, 0.5, *constants))
    return [(o.text, (o,), o.values) for o in ordered], [(repr(c), (), np.full(wanted.shape, c)) for c in numbers]


def _pairs(one: Sequence[_Term], other: Sequence[_Term]) -> Iterator[_Term]:
    for (a, of_a, x), (b, of_b, y) in product(one, other):
        for word, function in _BINARY.items():
            yield f"({a} {word} {_shifted(b, len(of_a))})", (*of_a, *of_b), function(x, y)
        if of_b:
            continue
        yield f"({b} / {a})", of_a, y / x
        yield f"({b} - {a})", of_a, y - x


# With a number that is the same each time: what it is for the first value, and the expression.
_FITTED: tuple[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], str], ...] = (
    (lambda w, x: w * x, lambda c, x: c / x, "{1} / {0}"),
    (lambda w, x: w / x, lambda c, x: c * x, "{1} * {0}"),
    (lambda w, x: x / w**2, lambda c, x: np.sqrt(x / c), "std::sqrt({0} / {1})"),
    (lambda w, x: x * w**2, lambda c, x: 1 / np.sqrt(x / c), "1.0 / std::sqrt({0} / {1})"),
)


def _fitted(terms: Sequence[_Term], wanted: np.ndarray) -> Iterator[_Term]:
    """Expressions of a term and a number that the host has from elsewhere, as one divided by the root of a norm."""
    if wanted.dtype != np.float64 or _bits(wanted) < 53 + _LEFT:  # those of the number do not count
        return
    near = np.arange(-8, 9)
    for text, of, x in terms:
        for number, function, expression in _FITTED:
            first = number(wanted[0], x[0])
            if x.dtype == wanted.dtype and math.isfinite(first) and first:
                tried = (first + near * np.spacing(first))[:, None]
                for c in tried[(function(tried, x) == wanted).all(axis=1), 0][:1]:
                    yield f"({expression.format(text, repr(float(c)))})", of, function(c, x)


def _equal_pairs(one: Sequence[_Term], other: Sequence[_Term], wanted: np.ndarray) -> Iterator[_Term]:
    """Those of `_pairs` that are equal to what is wanted, but for a sign or a root: of all at once."""
    for dtype in {values.dtype for _, _, values in other}:
        terms = [term for term in other if term[2].dtype == dtype]
        y = np.array([values for _, _, values in terms])
        for term in one:
            x = term[2]
            results = np.array([x / y, x * y, x + y, x - y, y / x, y - x])
            found = [
                (made.astype(wanted.dtype) == wanted).all(axis=2)
                for made in (results, -results, np.sqrt(results))
            ]  # fmt: skip
            for at in dict.fromkeys(np.argwhere(np.logical_or.reduce(found))[:, 1].tolist()):
                yield from _pairs([term], [terms[at]])


def _shifted(text: str, by: int) -> str:
    return text.replace("{0}", f"{{{by}}}") if by else text


def _with_signs(terms: Iterable[_Term]) -> Iterator[_Term]:
    every = list(terms)
    yield from every
    yield from ((f"-{text}", of, -values) for text, of, values in every)
    yield from ((f"std::sqrt({text})", of, np.sqrt(values)) for text, of, values in every)


def _checked(term: _Term, wanted: np.ndarray) -> Formula | None:
    text, of, values = term
    if values.astype(wanted.dtype).tobytes() != wanted.tobytes():
        return None
    reads = tuple(dict.fromkeys(one.read for one in of))
    text = re.sub(r"\{(\d+)\}", lambda match: f"{{{reads.index(of[int(match[1])].read)}}}", text)
    return Formula(text[1:-1] if text.startswith("(") else text, reads)


# ---- of a program ----


@dataclass(frozen=True, slots=True)
class HostValue:
    """A number that the host computes in each round. `name`: its array; `what`: what it is for; `formula`: None if none
    was found; `rows`: what was recorded on each rank in each round, hexadecimal."""

    name: str
    of: str
    at: str
    what: str
    formula: Formula | None
    rows: tuple[tuple[str, ...], ...]

    @property
    def there(self) -> str:
        """Its array on the device."""
        return f"{self.name}_there"


@dataclass(frozen=True, slots=True)
class Kept:
    """An array with what a step brought to the host, kept beyond the next one: `first[rank]`, before the rounds."""

    name: str
    of: str
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a step brings to the host: `values[rank, round, element]`; `first`: hexadecimal, on each rank."""

    of: str
    values: np.ndarray
    first: tuple[str, ...]


class History:
    """What the same call of the round before brought to the host."""

    def __init__(self, logs: Sequence[RankLog], windows: Sequence[Window]) -> None:
        self._logs, self._windows = logs, windows

    def before(self, rank: int, index: int) -> str:
        """Of the event with this index in the first round; "" if it is not known."""
        events, starts = self._logs[rank].events, self._windows[rank].starts
        same = [e for e in (events[max(index - starts[1] + starts[0], 0)], *reversed(events[: starts[0]]))
                if type(e) is type(events[index]) and e.at == events[index].at]  # fmt: skip
        one = same[0] if same else None
        return one.data if isinstance(one, CopyCall) else one.result if isinstance(one, CollectiveCall) else ""


class HostWork:
    """The numbers that the host computes for the steps of a program, and what is kept for them."""

    def __init__(
        self, steps: Sequence[ProgramStep], arrays: Arrays, sources: Sources, names: FreeNames, history: History
    ) -> None:
        self._steps, self._arrays, self._sources, self._names = steps, arrays, sources, names
        self.reads = any(self._reads(n, step) for n, step in enumerate(steps))
        self._known = {n: known for n, step in enumerate(steps) if (known := self._read(n, step, history)) is not None}
        self._constants = sorted({c for step in steps for c in _constants(step)}, key=abs)[:8]
        self._values: dict[int, dict[str, HostValue]] = {}
        self._same: dict[tuple[tuple[str, ...], ...], HostValue] = {}
        self.kept: dict[Read, Kept] = {}
        for number, step in enumerate(steps):
            self._values[number] = {slot: self._value(number, *one) for slot, *one in self._wanted(number, step)}

    def keep_what_is_read(self) -> None:
        """Once it is known which steps take numbers from memory."""
        for number, values in self._values.items():
            for read in (
                read for value in values.values() if value.formula is not None for read in value.formula.reads
            ):
                if read.before or self._overwritten(read.step, number):
                    self._keep(read, number)

    def files(self) -> frozenset[str]:
        """Those of the application whose functions are called."""
        formulas = (value.formula for values in self._values.values() for value in values.values())
        return frozenset(formula.file for formula in formulas if formula is not None and formula.file)

    def of(self, number: int) -> dict[str, HostValue]:
        """Of a step: by the position of an argument, or `data`."""
        return self._values[number]

    def drop(self, number: int) -> None:
        """A step whose kernel cannot take them from memory."""
        self._values[number] = {}

    def _reads(self, number: int, step: ProgramStep) -> bool:
        """Whether a step brings something to the host, if only into a staging buffer."""
        for rank, ops in enumerate(step.ops):
            op = ops[0] if ops else None
            if isinstance(op, Move | Together) and self._arrays.find(number, step, rank, "to", op.to)[0].on_host:
                return True
            if isinstance(op, Messages) and op.stages:
                return True
            for i, end in enumerate(op.receives if isinstance(op, Messages) else ()):
                place = end.place
                if place is not None and self._arrays.find(number, step, rank, f"recv {i}", place)[0].on_host:
                    return True
        return False

    def _read(self, number: int, step: ProgramStep, history: History) -> _Known | None:
        ops = [[op for op in of_rank or () if isinstance(op, Move | Together)] for of_rank in step.ops]
        if not all(ops) or not all(one.result for of_rank in ops for one in of_rank):
            return None
        array = self._arrays.find(number, step, 0, "to", ops[0][0].to)[0]
        if array.per != 1 or len({len(one.result) for of_rank in ops for one in of_rank}) != 1:
            return None
        values = np.array([[np.frombuffer(bytes.fromhex(o.result), TYPES[array.of]) for o in row] for row in ops])
        return _Known(array.of, values, tuple(history.before(r, int(row[0].index)) for r, row in enumerate(ops)))

    def _wanted(self, number: int, step: ProgramStep) -> Iterator[tuple[str, HostValue]]:
        """Slots, with what was recorded of the numbers that differ between the rounds."""
        op = step.first
        if step.partial or not self.reads:  # then they are data, which the program has
            return
        if isinstance(op, KernelCall):
            for index, one in enumerate(op.args):
                if isinstance(one, ScalarArgument) and one.of in ("f32", "f64"):
                    rows = tuple(tuple(_hex(its, index) for its in ops or ()) for ops in step.ops)
                    if any(len(set(row)) > 1 for row in rows):
                        source = self._sources.kernel(op)
                        name = (source.parameters[index] if source is not None else "") or "host_value"
                        yield str(index), HostValue(name, one.of, op.at, f"{name} of {op.kernel}", None, rows)
        elif isinstance(op, Move | Together) and op.content and not (isinstance(op, Together) and op.op == "bcast"):
            rows = tuple(tuple(c.content for c in ops or () if isinstance(c, Move | Together)) for ops in step.ops)
            of = self._arrays.find(number, step, 0, "to", op.to)[0].of
            single = {len(text) for row in rows for text in row} == {2 * np.dtype(TYPES[of]).itemsize}
            if single and of in ("f32", "f64") and any(len(set(row)) > 1 for row in rows):
                what = "what is copied" if isinstance(op, Move) else f"the data of this {op.op}"
                yield "data", HostValue("host_value", of, op.at, what, None, rows)

    def _value(self, number: int, value: HostValue) -> HostValue:
        if value.rows not in self._same:
            wanted = np.frombuffer(bytes.fromhex("".join(chain(*value.rows))), TYPES[value.of])
            operands = list(self._operands(number))
            constants = [*self._constants, *literals_in(self._sources.seen_by(value.at.rpartition(":")[0]))]
            formula = formula_of(wanted, operands, constants)
            formula = formula or call_of(wanted, operands, constants, self._sources.functions)
            self._same[value.rows] = replace(value, name=self._names.free(value.name), formula=formula)
        return self._same[value.rows]

    def _operands(self, number: int) -> Iterator[Operand]:
        for n, known in self._known.items():
            if n < number:
                yield from operands_of(Read(n, False), known.values)
            if all(len(text) == 2 * known.values.itemsize * known.values.shape[2] for text in known.first):
                first = np.array([np.frombuffer(bytes.fromhex(text), TYPES[known.of]) for text in known.first])
                yield from operands_of(Read(n, True), np.concatenate([first[:, None], known.values[:, :-1]], axis=1))

    def _array(self, number: int) -> RecordedArray | None:
        """What a copy or a collective writes to."""
        step = self._steps[number]
        if not isinstance(step.first, Move | Together):
            return None
        return self._arrays.find(number, step, _rank(step), "to", step.first.to)[0]

    def _overwritten(self, read: int, number: int) -> bool:
        """Whether a step between the two writes to what one brought to the host."""
        return any(self._array(n) is self._array(read) for n in range(read + 1, number))

    def _keep(self, read: Read, number: int) -> None:
        """An op after the step copies what it brought; what is wanted later than that of the round before has an array
        of its own."""
        known, array = self._known[read.step], self._array(read.step)
        assert array is not None
        nothing = "00" * known.values[0, 0].nbytes
        first = tuple(text if len(text) == len(nothing) else nothing for text in known.first)
        for before in {False, read.before and read.step < number}:
            if Read(read.step, before) not in self.kept:
                name = self._names.free(f"{array.name}_{'before' if before else 'kept'}")
                self.kept[Read(read.step, before)] = Kept(name, known.of, known.values.shape[2], first)

    def array_of(self, read: Read, number: int) -> str:
        """The array that a step at this place reads it from: "" for that of its own step."""
        one = Read(read.step, read.before and read.step < number)
        direct = not read.before and not self._overwritten(read.step, number)
        return "" if direct else self.kept[one].name


_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[fFlL]?\b|\W)")


def literals_in(text: str) -> list[float]:
    """The first floating-point numbers of a text, of which expressions of its host may be."""
    found = dict.fromkeys(float(match[0]) for match in _LITERAL.finditer(text))
    return [number for number in found if number and math.isfinite(number)][:_LITERALS]


def _rank(step: ProgramStep) -> int:
    """One that runs it."""
    return next(rank for rank, ops in enumerate(step.ops) if ops)


def _hex(op: object, index: int) -> str:
    one = op.args[index] if isinstance(op, KernelCall) else None
    return one.hex if isinstance(one, ScalarArgument) else ""


def _constants(step: ProgramStep) -> Iterator[float]:
    """The floating-point numbers that all calls of a step pass."""
    op = step.first
    for index, one in enumerate(op.args if isinstance(op, KernelCall) else ()):
        if isinstance(one, ScalarArgument) and one.of in ("f32", "f64"):
            texts = {_hex(op, index) for ops in step.ops for op in ops or ()}
            value = float(value_of(one))
            if len(texts) == 1 and math.isfinite(value) and value:
                yield value

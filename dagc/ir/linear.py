"""Linear inequalities over integers: does one follow from others?

Fourier-Motzkin elimination on the negated goal (Schrijver, Theory of Linear and Integer Programming, 12.2), over the
rationals, with coefficients divided by their common divisor and constants rounded down. The method is sound but not
complete for integers: some true goals stay undecided. Non-linear terms count as variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd, lcm
from typing import TypeAlias

from dagc.ir.sym import Apply, Const, Fn, Poly, Sym, Var, apply, polynomial

_MOST_ROWS = 400  # of one elimination; undecided beyond
_MOST_TERMS = 300  # of an expanded expression

_MOST_WORK = 2_000_000  # terms of rows built for all questions together; undecided beyond
_QUESTION = 20  # work that each question counts as, at least

# sum of coefficient * monomial + constant >= 0. Monomials are numbered: comparing and hashing expressions is slow.
_Terms: TypeAlias = tuple[tuple[int, int], ...]
_Row: TypeAlias = tuple[_Terms, int]


@dataclass(frozen=True, slots=True)
class Linear:
    """An expression, expanded by the `Facts` that it belongs to: coefficients by the numbers of monomials."""

    terms: dict[int, int | Fraction]
    constant: int | Fraction


class Facts:
    """Conditions that hold whenever the program runs, and what follows from them."""

    def __init__(self, conditions: Iterable[Sym] = (), fractional: Iterable[str] = ()) -> None:
        """`fractional`: variables that are not integers. Conditions that name one are not used."""
        self._fractional = frozenset(fractional)
        self._rows: dict[_Terms, int] = {}
        self._linear: dict[Sym, Linear] = {}
        self._answers: dict[tuple[frozenset[tuple[int, int | Fraction]], int | Fraction], bool | None] = {}
        self._conditions = tuple(conditions)
        self._either = [c for c in self._conditions if isinstance(c, Apply) and c.fn is Fn.OR]
        self._later = list(self._conditions)
        self._numbers: dict[tuple[Sym, ...], int] = {}
        self._monomials: list[tuple[Sym, ...]] = []  # in the order of their numbers
        self._near: dict[int, list[_Row]] = {}  # the rows that contain a monomial
        self._signed: set[tuple[int, bool]] = set()  # monomials, and whether with a positive coefficient
        self._work = _Work()
        self._chains: _Chains | None = None

    @property
    def given_up(self) -> bool:
        """Whether some question needed more work than allowed."""
        return self._work.left < 0

    def at_most(self, a: Sym, b: Sym) -> bool | None:
        """Whether a <= b, for integers a and b: True or False if it follows for all values, None if it does not."""
        return self.ascend(self.linear(a), self.linear(b))

    def disjoint_if(self, a: tuple[Sym, Sym], b: tuple[Sym, Sym]) -> tuple[Sym, ...]:
        """For two ranges (start, stop) of integers: the undecided comparisons, each of which makes them disjoint."""
        pairs = ((a[1], b[0]), (b[1], a[0]))
        return tuple(Apply(Fn.LE, pair) for pair in pairs if self.at_most(*pair) is None)

    def given(self, conditions: Iterable[Sym]) -> Facts:
        """The facts together with further conditions."""
        return Facts((*self._conditions, *conditions), self._fractional)

    def implies(self, condition: Sym) -> bool:
        """Whether the condition follows; False where that cannot be decided."""
        if isinstance(condition, Apply) and condition.fn is Fn.AND:
            return all(self.implies(part) for part in condition.args)
        meaning = list(self._meaning(condition))
        return bool(meaning) and all(self._follows(poly) for poly in meaning)

    def linear(self, expr: Sym) -> Linear:
        """The expanded expression, cached. One with too many terms counts as a variable."""
        if expr not in self._linear:
            poly: Poly = polynomial(expr) if most_terms(expr) <= _MOST_TERMS else {(expr,): Fraction(1)}
            terms = {self._number(m): _whole(c) for m, c in poly.items() if m}
            self._linear[expr] = Linear(terms, _whole(poly.get((), Fraction(0))))
        return self._linear[expr]

    def ascend(self, a: Linear, b: Linear) -> bool | None:
        """As `at_most`, for expressions from `linear`."""
        if a.terms == b.terms:
            return a.constant <= b.constant
        terms = dict(b.terms)
        for monomial, coefficient in a.terms.items():
            terms[monomial] = terms.get(monomial, 0) - coefficient
        key = (frozenset((m, c) for m, c in terms.items() if c), b.constant - a.constant)
        if key not in self._answers:
            if self._chained(a, b):
                return True
            self._work.left -= _QUESTION
            if self._work.left < 0:
                return None
            difference = {self._monomials[m]: Fraction(c) for m, c in key[0]}
            self._answers[key] = self._sign(difference | {(): Fraction(key[1])})
        return self._answers[key]

    def apart(self, a: tuple[Linear, Linear], b: tuple[Linear, Linear]) -> bool:
        """Whether two ranges (start, stop) certainly have nothing in common."""
        return (
            self._chained(a[1], b[0])
            or self._chained(b[1], a[0])
            or bool(self.ascend(a[1], b[0]) or self.ascend(b[1], a[0]))
            or any(all(self._between(part, a, b) for part in one.args) for one in self._either)
        )

    def _between(self, condition: Sym, a: tuple[Linear, Linear], b: tuple[Linear, Linear]) -> bool:
        """Whether one range ends before the other starts if the condition holds, by a single comparison of it."""
        orders = ((a[1], b[0]), (b[1], a[0]))
        compared = ((self.linear(low), self.linear(high)) for low, high, _ in _compared(condition))
        return any(self.ascend(x, low) and self.ascend(high, y) for low, high in compared for x, y in orders)

    def _chained(self, a: Linear, b: Linear) -> bool:
        """Whether a <= b follows from conditions that are comparisons, one after the other: quick, also with many."""
        if self._chains is None:
            self._chains = _Chains()
            for condition in self._conditions:
                for low, high, _ in _compared(condition):
                    if self._usable(low) and self._usable(high):
                        self._chains.add(self.linear(low), self.linear(high))
        return self._chains.ascend(a, b)

    def _number(self, monomial: tuple[Sym, ...]) -> int:
        number = self._numbers.setdefault(monomial, len(self._monomials))
        if number == len(self._monomials):
            self._monomials.append(monomial)
        return number

    def _sign(self, difference: Poly) -> bool | None:
        """Whether a polynomial is at least 0."""
        if self._follows(difference):
            return True
        beyond = {m: -c for m, c in difference.items()}
        beyond[()] = beyond.get((), Fraction(0)) - 1
        return False if self._follows(beyond) else None

    def _follows(self, goal: Poly) -> bool:
        """Whether goal >= 0."""
        negated = {m: -c for m, c in goal.items()}
        negated[()] = negated.get((), Fraction(0)) - self._step(goal)
        row = self._row(negated)
        if row is None:
            return False
        self._settle()
        about = list(self._about(negated))
        if not about and not all((m, c < 0) in self._signed for m, c in row[0]):
            return False  # one of its variables is unbounded in the direction that matters
        return _infeasible(self._related(row, about), self._work)

    def _settle(self) -> None:
        """Convert the conditions to rows; called by the first question."""
        for condition in self._later:
            for poly in self._meaning(condition):
                row = self._row(poly)
                if row is not None:
                    for candidate in (row, *self._about(poly)):
                        _keep(self._rows, candidate)
        if self._later:
            for candidate in self._rows.items():
                for monomial, coefficient in candidate[0]:
                    self._near.setdefault(monomial, []).append(candidate)
                    self._signed.add((monomial, coefficient > 0))
        self._later.clear()

    def _related(self, goal: _Row, about: list[_Row]) -> list[_Row]:
        """The goal, and the rows that share variables with it, directly or indirectly."""
        out = dict.fromkeys((goal, *about))
        seen = {m for terms, _ in out for m, _ in terms}
        left = list(seen)
        while left:
            for row in self._near.get(left.pop(), ()):
                if row not in out:
                    out[row] = None
                    new = [m for m, _ in row[0] if m not in seen]
                    seen.update(new)
                    left += new
        return list(out)

    def _meaning(self, condition: Sym) -> Iterator[Poly]:
        """The polynomials that are at least 0 if the condition holds."""
        if not isinstance(condition, Apply) or most_terms(condition) > _MOST_TERMS:
            return
        for low, high, strict in _compared(condition):
            difference = polynomial(Apply(Fn.SUB, (high, low)))
            if strict:
                difference[()] = difference.get((), Fraction(0)) - self._step(difference)
            yield difference

    def _step(self, poly: Poly) -> Fraction:
        """How far a value of the polynomial that is not 0 is from 0, at least."""
        if not all(self._integral(atom) for monomial in poly for atom in monomial):
            return Fraction(0)
        return Fraction(1, _scale(poly))

    def _integral(self, atom: Sym) -> bool:
        if isinstance(atom, Var):
            return atom.name not in self._fractional
        if isinstance(atom, Apply) and atom.fn in (Fn.FLOOR, Fn.CEIL):
            return True
        if isinstance(atom, Apply) and atom.fn is Fn.COND:
            return all(self._integral(branch) for branch in atom.args[1:])
        whole = isinstance(atom, Apply) and atom.fn in (Fn.MIN, Fn.MAX, Fn.ABS, Fn.MOD, Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG)
        if whole:
            return all(self._integral(a) for a in atom.args)  # type: ignore[union-attr]
        return isinstance(atom, Const) and isinstance(atom.value, int)

    def _row(self, poly: Poly) -> _Row | None:
        """The row with integer coefficients; None if a variable is not a number or not an integer."""
        if any(not self._usable(atom) for monomial in poly for atom in monomial):
            return None
        scale = _scale(poly)
        varying = {m: int(c * scale) for m, c in poly.items() if m and c}
        constant = int(poly.get((), Fraction(0)) * scale)
        whole = all(self._integral(atom) for monomial in varying for atom in monomial)
        terms = {self._number(m): c for m, c in varying.items()}
        return _row(terms, constant, whole)

    def _usable(self, atom: Sym) -> bool:
        if isinstance(atom, Var):
            return atom.name not in self._fractional
        if isinstance(atom, Const):
            return isinstance(atom.value, (int, Fraction))
        return all(self._usable(a) for a in atom.args)

    def _about(self, poly: Poly) -> Iterator[_Row]:
        """The inequalities implied by floor, ceil, min, max, abs and % in an expression."""
        for monomial, coefficient in poly.items():
            for atom in monomial if coefficient else ():
                if isinstance(atom, Apply):
                    for fact in _properties(atom):
                        row = self._row(fact)
                        if row is not None:
                            yield row


_NEGATED = {Fn.LT: Fn.GE, Fn.LE: Fn.GT, Fn.GT: Fn.LE, Fn.GE: Fn.LT}


def _properties(atom: Apply) -> Iterator[Poly]:
    if atom.fn in (Fn.FLOOR, Fn.CEIL):
        (inner,) = atom.args
        low, high = (atom, inner) if atom.fn is Fn.FLOOR else (inner, atom)
        yield polynomial(Apply(Fn.SUB, (high, low)))
        yield polynomial(apply(Fn.ADD, Apply(Fn.SUB, (low, high)), Const(1)))
    elif atom.fn in (Fn.MIN, Fn.MAX):
        for arg in atom.args:
            yield polynomial(Apply(Fn.SUB, (arg, atom) if atom.fn is Fn.MIN else (atom, arg)))
    elif atom.fn is Fn.ABS:
        yield polynomial(Apply(Fn.SUB, (atom, atom.args[0])))
        yield polynomial(Apply(Fn.ADD, (atom, atom.args[0])))
    elif atom.fn is Fn.MOD and isinstance(atom.args[1], Const) and atom.args[1].value > 0:  # type: ignore[operator]
        yield polynomial(atom)
        if isinstance(atom.args[1].value, int):
            yield polynomial(Apply(Fn.SUB, (atom.args[1], atom)))


def _scale(poly: Poly) -> int:
    """The least factor that makes all coefficients integers."""
    return lcm(*(c.denominator for c in poly.values()))


def _whole(value: Fraction) -> int | Fraction:
    """The number as int if it is integral, which is several times faster than Fraction."""
    return value.numerator if value.denominator == 1 else value


# ---- chains ----------------------------------------------------------------------------------


def _compared(condition: Sym) -> Iterator[tuple[Sym, Sym, bool]]:
    """(low, high, whether low < high) of each comparison low <= high, or low < high, that a condition states."""
    if not isinstance(condition, Apply):
        return
    inner = condition.args[0] if condition.fn is Fn.NOT else None
    if isinstance(inner, Apply) and inner.fn in _NEGATED:
        condition = Apply(_NEGATED[inner.fn], inner.args)
    if condition.fn is Fn.AND:
        for part in condition.args:
            yield from _compared(part)
    elif condition.fn in (Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ):
        a, b = condition.args
        if condition.fn not in (Fn.GT, Fn.GE):
            yield a, b, condition.fn is Fn.LT
        if condition.fn not in (Fn.LT, Fn.LE):
            yield b, a, condition.fn is Fn.GT


_Varying: TypeAlias = frozenset[tuple[int, int | Fraction]]


class _Chains:
    """Differences of expressions without their constants: `below[a][b]` is the least d known with a <= b + d."""

    def __init__(self) -> None:
        self._below: dict[_Varying, dict[_Varying, int | Fraction]] = {}
        self._from: dict[_Varying, dict[_Varying, int | Fraction]] = {}  # along paths, by where they start

    def add(self, low: Linear, high: Linear) -> None:
        """low <= high."""
        a, b = _terms_of(low), _terms_of(high)
        known, difference = self._below.setdefault(a, {}), high.constant - low.constant
        known[b] = min(difference, known.get(b, difference))

    def ascend(self, low: Linear, high: Linear) -> bool:
        """Whether low <= high by a path."""
        start = _terms_of(low)
        if start not in self._below:
            return False
        if start not in self._from:
            self._from[start] = self._paths(start)
        difference = self._from[start].get(_terms_of(high))
        return difference is not None and difference <= high.constant - low.constant

    def _paths(self, start: _Varying) -> dict[_Varying, int | Fraction]:
        """The least differences of all that are reached. Conditions that contradict each other have a cycle that
        descends for ever; it is left after as many rounds as there are expressions."""
        out: dict[_Varying, int | Fraction] = {start: 0}
        changed = {start}
        for _ in range(len(self._below) + 1):
            later = set()
            for a in changed:
                for b, difference in self._below.get(a, {}).items():
                    if out[a] + difference < out.get(b, out[a] + difference + 1):
                        out[b] = out[a] + difference
                        later.add(b)
            changed = later
            if not changed:
                break
        return out


def _terms_of(expr: Linear) -> _Varying:
    return frozenset((m, c) for m, c in expr.terms.items() if c)


# ---- elimination -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """Budget: terms of rows that may still be built."""

    left: int = _MOST_WORK


def _row(terms: dict[int, int], constant: int, whole: bool) -> _Row:
    """The row divided by the common divisor. If all variables are integers, the constant is rounded down."""
    terms = {m: c for m, c in terms.items() if c}
    divisor = gcd(*terms.values()) if terms else 1
    if not whole:
        divisor = gcd(divisor, constant)
    if divisor > 1:
        terms = {m: c // divisor for m, c in terms.items()}
        constant = floor(Fraction(constant, divisor))
    return tuple(sorted(terms.items())), constant


def _infeasible(rows: list[_Row], work: _Work) -> bool:
    """Whether the rows have no solution. Also False if the elimination takes too much work."""
    while True:
        if any(not terms and constant < 0 for terms, constant in rows):
            return True
        rows = [row for row in rows if row[0]]
        work.left -= sum(len(terms) for terms, _ in rows)
        if not rows or len(rows) > _MOST_ROWS or work.left < 0:
            return False
        above: dict[int, int] = {}
        below: dict[int, int] = {}
        for terms, _ in rows:
            for monomial, coefficient in terms:
                table = above if coefficient < 0 else below
                table[monomial] = table.get(monomial, 0) + 1
        chosen = min({*above, *below}, key=lambda m: (above.get(m, 0) * below.get(m, 0), m))
        rows = _without(rows, chosen, work)


def _without(rows: list[_Row], monomial: int, work: _Work) -> list[_Row]:
    """Eliminate a variable: the rows implied for all others."""
    out: dict[_Terms, int] = {}
    lower: list[tuple[int, dict[int, int], int]] = []
    upper: list[tuple[int, dict[int, int], int]] = []
    for terms, constant in rows:
        table = dict(terms)
        coefficient = table.pop(monomial, 0)
        if not coefficient:
            _keep(out, (terms, constant))
        else:
            (lower if coefficient > 0 else upper).append((abs(coefficient), table, constant))
    for c, low, k in lower:
        for d, high, n in upper:
            joined = {m: d * v for m, v in low.items()}
            for m, v in high.items():
                joined[m] = joined.get(m, 0) + c * v
            work.left -= len(joined)
            _keep(out, _row(joined, d * k + c * n, whole=False))
            if len(out) > _MOST_ROWS:
                return list(out.items())
    return list(out.items())


def _keep(rows: dict[_Terms, int], row: _Row) -> None:
    """Add a row; of rows that differ only in the constant, keep the strongest."""
    terms, constant = row
    rows[terms] = min(constant, rows.get(terms, constant))


def most_terms(value: Sym) -> int:
    """Upper bound for the terms of the polynomial; at most a million."""
    if not isinstance(value, Apply):
        return 1
    counts = [most_terms(a) for a in value.args]
    return min(10**6, counts[0] * counts[1] if value.fn is Fn.MUL else sum(counts))

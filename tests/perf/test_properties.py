"""Random programs: NumPy, compiled C (at one point, and over a table of settings) and plain Python agree exactly."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dagc.perf.algebra import specialise
from dagc.perf.code import OPERATIONS, Interval
from dagc.perf.cprint import BATCH_HELPERS, HELPERS, BatchLoop, batch_to_c, padded_count, split
from dagc.perf.evaluate import PartialEvaluator, evaluate
from dagc.perf.lower import instructions
from dagc.perf.program import Assign, Number, RationalProgram
from tests.perf.programs import (
    INTEGERS,
    PARAMETERS,
    CLibrary,
    Drawn,
    Values,
    integer_programs,
    made_symbol,
    real_programs,
    values_of,
)
from tests.tiers import examples

# Each example of a batch compiles one file with many programs.
BATCHES = settings(
    max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
SINGLE = settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
POINTS = st.lists(values_of(PARAMETERS), min_size=5, max_size=8)
_counter = itertools.count()  # a library that is loaded must not be overwritten


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rational")


def arrays(points: list[Values]) -> Values:
    return {name: np.array([p[name] for p in points]) for name in points[0]}


def agree(programs: list[RationalProgram], points: list[Values], folder: Path) -> CLibrary:
    """C at each point, NumPy at all points at once and at each point give the same numbers."""
    library = CLibrary(programs, folder, next(_counter))
    for i, program in enumerate(programs):
        at_once = np.broadcast_to(evaluate(program, arrays(points)), len(points))
        for point, value in zip(points, at_once, strict=True):
            in_c = library.call(i, point)
            assert in_c == value
            assert evaluate(program, point) == in_c
    return library


@given(drawn=integer_programs(), points=POINTS)
@SINGLE
def test_numpy_is_python(drawn: Drawn, points: list[Values]) -> None:
    expected = [drawn.value(p) for p in points]
    assert [evaluate(drawn.program, p) for p in points] == expected
    assert np.broadcast_to(evaluate(drawn.program, arrays(points)), len(points)).tolist() == expected


@given(drawn=st.lists(integer_programs(), min_size=8, max_size=10), points=POINTS)
@BATCHES
def test_c_is_python(drawn: list[Drawn], points: list[Values], folder: Path) -> None:
    library = CLibrary([d.program for d in drawn], folder, next(_counter))
    for i, one in enumerate(drawn):
        assert [library.call(i, p) for p in points] == [one.value(p) for p in points]


@given(drawn=st.lists(integer_programs(wild=True), min_size=8, max_size=10), points=POINTS)
@BATCHES
def test_c_is_numpy_where_divisors_may_be_zero(drawn: list[Drawn], points: list[Values], folder: Path) -> None:
    agree([d.program for d in drawn], points, folder)


@given(programs=st.lists(real_programs(), min_size=8, max_size=10), points=POINTS)
@BATCHES
def test_c_is_numpy_in_reals(programs: list[RationalProgram], points: list[Values], folder: Path) -> None:
    library = agree(programs, points, folder)
    flags = ["-std=c++17", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, str(library.source)], check=True, capture_output=True)


@given(drawn=integer_programs(), point=values_of(INTEGERS), names=st.sets(st.sampled_from([p.name for p in INTEGERS])))
@SINGLE
def test_a_specialised_program_is_the_program(drawn: Drawn, point: Values, names: set[str]) -> None:
    left = specialise(drawn.program, {n: point[n] for n in names})
    assert {p.name for p in left.parameters} == {p.name for p in INTEGERS} - names
    assert evaluate(left, {n: v for n, v in point.items() if n not in names}) == drawn.value(point)


@given(drawn=integer_programs(wild=True), point=values_of(INTEGERS))
@SINGLE
def test_specialised_on_everything_it_is_a_number(drawn: Drawn, point: Values) -> None:
    assert np.ndim(evaluate(specialise(drawn.program, point), {})) == 0


# ---- some values known -----------------------------------------------------------------

KINDS = st.fixed_dictionaries(
    {p.name: st.sampled_from(["known", "known array", "given", "given array"]) for p in PARAMETERS}
)


@given(
    program=st.one_of(real_programs(), integer_programs(wild=True).map(lambda d: d.program)), points=POINTS, kinds=KINDS
)
@SINGLE
def test_what_is_known_before_changes_nothing(program: RationalProgram, points: list[Values], kinds: Values) -> None:
    """Asked twice: the function that the first call makes serves both, and nothing is left over from the first."""
    table = arrays(points)
    first = {p.name: table[p.name] if "array" in kinds[p.name] else points[0][p.name] for p in program.parameters}
    again = {n: v[::-1] if isinstance(v, np.ndarray) else points[-1][n] for n, v in first.items()}
    made = PartialEvaluator(program, {n: v for n, v in first.items() if "known" in kinds[n]})
    for values in (first, {n: first[n] if "known" in kinds[n] else again[n] for n in first}):
        found = made({n: v for n, v in values.items() if "given" in kinds[n]})
        at_each = [
            evaluate(program, {n: v[i] if isinstance(v, np.ndarray) else v for n, v in values.items()})
            for i in range(len(points))
        ]
        assert np.broadcast_to(found, len(points)).tolist() == at_each


@given(program=st.one_of(real_programs(), integer_programs(wild=True).map(lambda d: d.program)), points=POINTS)
@SINGLE
def test_every_value_is_in_its_range(program: RationalProgram, points: list[Values]) -> None:
    table = {name: values.tolist() for name, values in arrays(points).items()}
    ranges = {name: Interval(min(values), max(values)) for name, values in table.items()}
    for i in instructions(program):
        args = [ranges[a] if isinstance(a, str) else Interval(a, a) for a in i.args]
        found = ranges[i.name] = OPERATIONS[i.operation].range(*args)
        rows = zip(*(table[a] if isinstance(a, str) else [a] * len(points) for a in i.args), strict=True)
        table[i.name] = [OPERATIONS[i.operation].compute(*row) for row in rows]
        assert all(found.low <= value <= found.high for value in table[i.name]), i


# ---- over a table of settings ----------------------------------------------------------


class BatchLibrary:
    """Batches as C functions b0, b1, ... of one shared library; their only size is n."""

    def __init__(self, batches: list[BatchLoop], count: int, folder: Path) -> None:
        text = [HELPERS, BATCH_HELPERS]
        for i, batch in enumerate(batches):
            text += [batch_to_c(batch, f"f{i}", ["n"], count), f"void b{i}(int64_t n, double* out) {{ f{i}(n, out); }}"]
        number = next(_counter)
        source, library = folder / f"batches{number}.c", folder / f"batches{number}.so"
        source.write_text("\n".join(text))
        flags = ["-std=c99", "-O3", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True, capture_output=True, text=True)
        self._library, self.count = ctypes.CDLL(str(library)), count

    def call(self, i: int, n: int) -> list[float]:
        out = (ctypes.c_double * padded_count(self.count))()
        getattr(self._library, f"b{i}")(ctypes.c_int64(n), out)
        return list(out)[: self.count]


@given(
    programs=st.lists(st.one_of(real_programs(), integer_programs().map(lambda d: d.program)), min_size=7, max_size=9),
    points=POINTS,
    draw=st.data(),
)
@BATCHES
def test_c_over_a_table_is_numpy(
    programs: list[RationalProgram], points: list[Values], draw: st.DataObject, folder: Path
) -> None:
    """For small sizes and the largest that is promised to be exact. Zero and negative settings are among them."""
    columns = {name: values for name, values in arrays(points).items() if name != "n"}
    made = [(program, split([program], columns)) for program in programs]
    exact = [(program, batch) for program, batch in made if batch is not None]
    assume(exact)
    library = BatchLibrary([batch for _, batch in exact], len(points), folder)
    for i, (program, batch) in enumerate(exact):
        for n in [1, batch.limit, *draw.draw(st.lists(st.integers(1, batch.limit), min_size=3, max_size=3))]:
            known = {p.name: columns[p.name] for p in program.parameters if p.name != "n"}
            expected = np.broadcast_to(evaluate(program, {"n": n, **known}), len(points)).tolist()
            assert library.call(i, n) == expected, n


@pytest.mark.parametrize("comparison", [sp.Lt, sp.Le, sp.Gt, sp.Ge, sp.Eq, sp.Ne, sp.Min, sp.Max])
def test_a_size_beside_itself(comparison: Any, folder: Path) -> None:
    """Once the settings are known, all of them 1, a product is the size that it is compared with: C says `n < n`."""
    n, k = made_symbol("n", Number.INTEGER), made_symbol("k", Number.INTEGER)
    compared = comparison(n * k, n)
    value = compared if comparison in (sp.Min, sp.Max) else sp.Piecewise((n + 1, compared), (n + 2, True))
    asked = tuple(p for p in INTEGERS if p.name in ("n", "k"))
    program = RationalProgram("beside", asked, (Assign("y", value, Number.INTEGER),), "y", "", "drawn")
    batch = split([program], {"k": [1, 1, 1]})
    assert batch is not None
    library = BatchLibrary([batch], 3, folder)
    for size in (1, 7):
        assert library.call(0, size) == [evaluate(program, {"n": size, "k": 1})] * 3


@given(
    factors=st.lists(st.integers(2**20, 2**28), min_size=6, max_size=6),
    settings_=st.lists(st.integers(1, 2**20), min_size=7, max_size=7),
    draw=st.data(),
)
@BATCHES
def test_whole_quotients_are_exact_next_to_multiples(
    factors: list[int], settings_: list[int], draw: st.DataObject, folder: Path
) -> None:
    """Where rounding could go wrong: large quotients and divisors, one off a multiple, as far as a batch goes."""
    n, k = made_symbol("n", Number.INTEGER), made_symbol("k", Number.INTEGER)
    exprs = [
        rounded(quotient)
        for c in factors
        for rounded in (sp.floor, sp.ceiling)
        for quotient in (c * n / k, (c * n - 1) / k, c * k / (n + k), (c * k - c) / n, (1 - c * n) / 12)
    ]
    asked = tuple(p for p in INTEGERS if p.name in ("n", "k"))
    programs = [
        RationalProgram("quotient", asked, (Assign("y", expr + k, Number.INTEGER),), "y", "", "drawn") for expr in exprs
    ]
    batches = [split([program], {"k": settings_}) for program in programs]
    exact = [batch for batch in batches if batch is not None]
    assert len(exact) == len(programs)
    library = BatchLibrary(exact, len(settings_), folder)
    for i, (program, batch) in enumerate(zip(programs, exact, strict=True)):
        near = draw.draw(st.sampled_from(settings_))
        sizes = {near - 1, near, near + 1, batch.limit - 1, batch.limit, draw.draw(st.integers(1, batch.limit))}
        for size in (s for s in sizes if 1 <= s <= batch.limit):
            expected = [evaluate(program, {"n": size, "k": k}) for k in settings_]
            assert library.call(i, size) == expected, (program.body, size)

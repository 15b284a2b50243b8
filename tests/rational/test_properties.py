"""Random programs: NumPy, compiled C and plain Python agree exactly."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagc.rational.evaluate import evaluate
from dagc.rational.program import RationalProgram, specialise
from tests.rational.programs import (
    INTEGERS,
    PARAMETERS,
    CLibrary,
    Drawn,
    Values,
    integer_programs,
    real_programs,
    values_of,
)

# Each example of a batch compiles one file with many programs.
BATCHES = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
SINGLE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@given(drawn=st.lists(integer_programs(), min_size=12, max_size=16), points=POINTS)
@BATCHES
def test_c_is_python(drawn: list[Drawn], points: list[Values], folder: Path) -> None:
    library = CLibrary([d.program for d in drawn], folder, next(_counter))
    for i, one in enumerate(drawn):
        assert [library.call(i, p) for p in points] == [one.value(p) for p in points]


@given(drawn=st.lists(integer_programs(wild=True), min_size=12, max_size=16), points=POINTS)
@BATCHES
def test_c_is_numpy_where_divisors_may_be_zero(drawn: list[Drawn], points: list[Values], folder: Path) -> None:
    agree([d.program for d in drawn], points, folder)


@given(programs=st.lists(real_programs(), min_size=12, max_size=16), points=POINTS)
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

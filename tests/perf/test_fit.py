"""Rational functions through points: they are found again, errors are honest, NumPy and C agree."""

import ctypes
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.evaluate import evaluate
from dagc.perf.fit import fit_rational, points_needed, sample_points
from dagc.perf.program import ParameterKind
from tests.tiers import examples

NAMES = ("n", "b")
RANGES = {"n": (64, 5000), "b": (1, 1024)}


@pytest.fixture(scope="module")
def points():
    return sample_points(RANGES, 120, 3)


@given(c=st.lists(st.floats(-5, 5), min_size=6, max_size=6), d=st.lists(st.floats(0.01, 3), min_size=2, max_size=2))
@settings(max_examples=examples(15), deadline=None)
def test_a_known_rational_function_is_found_again(c, d):
    points = sample_points(RANGES, 120, 3)

    def truth(x):
        u, v = x[:, 0] / 1000, x[:, 1] / 500
        above = 50 + c[0] + c[1] * u + c[2] * v + c[3] * u * v + c[4] * u**2 + c[5] * v**2
        return above / (1 + d[0] * u + d[1] * v)

    found = fit_rational(points, truth(points), NAMES, 2)
    other = sample_points(RANGES, 200, 99)
    other = other[found.inside(other)]
    size = np.abs(truth(points)).max()
    assert np.allclose(found(other), truth(other), rtol=1e-5, atol=1e-5 * size)


def test_a_function_with_its_pole_at_zero(points):
    """Blocks of a grid, n / b: the middle of the points is no pole, so the form holds it."""
    found = fit_rational(points, points[:, 0] / points[:, 1], NAMES, 1)
    assert found.degrees == (1, 1)
    assert found.held_out.largest < 1e-6


@pytest.mark.parametrize("count", [points_needed(3, 2), 100])
def test_blocks_of_a_grid_in_two_dimensions(count):
    """The denominator falls to 4e-6 of its middle at the least block: small, but no pole."""
    ranges = {"n": (256, 8192), "bx": (1, 1024), "by": (1, 1024)}
    points = sample_points(ranges, count, 1, keep=lambda p: p[:, 1] * p[:, 2] <= 1024)
    found = fit_rational(points, points[:, 0] ** 2 / (points[:, 1] * points[:, 2]), list(ranges), 2)
    assert found.degrees == (2, 2)
    assert found.held_out.largest < 1e-6


def test_rounded_quotients_have_an_error_that_shows(points):
    found = fit_rational(points, -(-points[:, 0] // points[:, 1]), NAMES, 2)
    assert found.held_out.largest > 0.02


def test_no_denominator_where_none_is_needed(points):
    found = fit_rational(points, 3.0 * points[:, 0] * points[:, 1] + 7, NAMES, 3)
    assert found.degrees == (2, 0)
    assert found.held_out.largest < 1e-8
    assert fit_rational(points, np.full(len(points), 4.0), NAMES, 2).degrees == (0, 0)


def test_a_value_of_zero_everywhere(points):
    found = fit_rational(points, np.zeros(len(points)), NAMES, 1)
    assert (found(points) == 0).all()


def test_noise_is_not_learnt(points):
    noise = 1 + 0.05 * np.random.default_rng(0).standard_normal(len(points))
    found = fit_rational(points, (100 + points[:, 0]) * noise, NAMES, 3)
    other = sample_points(RANGES, 300, 5)
    other = other[found.inside(other)]
    assert np.abs(found(other) / (100 + other[:, 0]) - 1).max() < 0.25
    assert 0.01 < found.held_out.median < 0.15


def test_too_few_points_say_how_many_are_needed(points):
    needed = points_needed(2, 2)
    with pytest.raises(UsageError, match=f"{needed - 1} distinct points .* needs {needed}"):
        fit_rational(points[: needed - 1], np.ones(needed - 1), NAMES, 2)
    fit_rational(points[:needed], np.ones(needed), NAMES, 2)


def test_a_point_many_times_is_one_point():
    with pytest.raises(UsageError, match="1 distinct point is too few"):
        fit_rational(np.ones((100, 2)), np.ones(100), NAMES, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x * [1, 0] + [0, 8], y), "`b` is 8 at all points"),
        (lambda x, y: (x, y[:-1]), "120 points but values of shape (119,)"),
        (lambda x, y: (x, y + np.where(np.arange(len(y)) == 3, np.nan, 0)), "not a finite number"),
        (lambda x, y: (x[:, :1], y), "points of shape"),
    ],
)
def test_what_cannot_be_fitted(points, change, message):
    with pytest.raises(UsageError) as caught:
        fit_rational(*change(points, np.ones(len(points))), NAMES, 1)
    assert message in str(caught.value)


def test_negative_degrees_are_refused(points):
    with pytest.raises(UsageError, match="degree -1"):
        fit_rational(points, np.ones(len(points)), NAMES, -1)


def test_the_split_hangs_on_the_seed_alone(points):
    values = np.sqrt(points[:, 0] * points[:, 1])
    assert fit_rational(points, values, NAMES, 2, seed=1) == fit_rational(points, values, NAMES, 2, seed=1)
    assert fit_rational(points, values, NAMES, 2, seed=1) != fit_rational(points, values, NAMES, 2, seed=2)


def test_c_and_numpy_give_the_same_bits(points, tmp_path):
    found = fit_rational(points, np.sqrt(points[:, 0] * points[:, 1]), NAMES, 3)
    program = found.program("metric", program=("b",), unit="transactions")
    assert [p.kind for p in program.parameters] == [ParameterKind.DATA, ParameterKind.PROGRAM]
    source = tmp_path / "fit.c"
    call = "double at(int64_t n, int64_t b) { return metric(n, b); }\n"
    source.write_text(HELPERS + to_c(program, "metric") + call)
    library = tmp_path / "fit.so"
    flags = "-std=c99 -O2 -Wall -Werror -ffp-contract=off -shared -fPIC".split()
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    at = ctypes.CDLL(str(library)).at
    at.argtypes, at.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_double
    in_c = np.array([at(*row) for row in points.tolist()])
    assert np.array_equal(in_c, evaluate(program, {"n": points[:, 0], "b": points[:, 1]}))
    assert np.array_equal(in_c, found(points))


def test_points_are_distinct_in_range_and_no_powers_of_two_alone():
    drawn = sample_points(RANGES, 200, 1)
    assert drawn.shape == (200, 2)
    assert drawn.dtype == np.int64
    assert len({*map(tuple, drawn.tolist())}) == 200
    for column, (low, high) in zip(drawn.T, RANGES.values(), strict=True):
        assert column.min() >= low
        assert column.max() <= high
    assert ((drawn[:, 0] & (drawn[:, 0] - 1)) != 0).mean() > 0.9
    assert np.array_equal(drawn, sample_points(RANGES, 200, 1))
    assert not np.array_equal(drawn, sample_points(RANGES, 200, 2))


def test_points_are_spread_over_orders_of_magnitude():
    b = sample_points(RANGES, 400, 1)[:, 1]
    assert 0.35 < (b < 32).mean() < 0.65


def test_points_that_are_not_legal_are_left_out():
    ranges = {"bx": (1, 1024), "by": (1, 1024)}
    drawn = sample_points(ranges, 100, 1, keep=lambda rows: rows.prod(axis=1) <= 1024)
    assert len(drawn) == 100
    assert drawn.prod(axis=1).max() <= 1024


@pytest.mark.parametrize(
    ("ranges", "message"), [({"n": (1, 3)}, "3 distinct legal points"), ({"n": (0, 3)}, "range 0 to 3 of `n`")]
)
def test_ranges_that_hold_too_little(ranges, message):
    with pytest.raises(UsageError) as caught:
        sample_points(ranges, 4, 0)
    assert message in str(caught.value)

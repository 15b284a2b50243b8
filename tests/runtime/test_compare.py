"""The comparison of results with a reference: dagc/compare.hpp and the Python driver against exact arithmetic."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make
from tests.tiers import examples

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")

ROOT = Path(__file__).parents[2]
TYPES = ["f4", "f8", "i1", "u1", "i4", "i8", "u8"]
# `difference` of the driver's runtime, without MPI or a GPU.
DRIVER = """
import sys
import mpi4py, numpy as np
mpi4py.rc.initialize = False
import driver_runtime
rtol, atol, nan_equal, *paths = sys.argv[1:]
for got, want in zip(paths[::2], paths[1::2]):
    got, want = np.load(got), np.load(want)
    told = float(rtol), nan_equal == "1", want.shape, 0, float(atol)
    print(driver_runtime.difference(got.reshape(-1), want.reshape(-1), *told))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("compare", tmp_path_factory.mktemp("compare"))


def said(
    command: list[Any], pairs: list[tuple[Any, Any]], folder: Path, rtol: float, nan_equal: bool, atol: float = 0.0
) -> list[str]:
    paths = []
    for i, pair in enumerate(pairs):
        for name, array in zip(("got", "want"), pair, strict=True):
            paths.append(folder / f"{name}-{i}.npy")
            np.save(paths[-1], array)
    words = [*command, repr(rtol), repr(atol), str(int(nan_equal)), *paths]
    path = f"{ROOT / 'templates/python'}:{ROOT / 'tests/emit/fake_cuda'}"
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True, env={"PYTHONPATH": path})
    return done.stdout.splitlines()


def margin(got: Any, want: Any, rtol: float, nan_equal: bool, atol: float) -> Fraction | None:
    """What is allowed, less the largest difference: 0 or more where the arrays agree; None where rounding decides."""
    whole = want.dtype.kind != "f"
    worst = scale = Fraction(0)
    for g, w in zip(got.reshape(-1).tolist(), want.reshape(-1).tolist(), strict=True):
        if not whole and not (np.isfinite(g) and np.isfinite(w)):
            if not (g == w or (nan_equal and np.isnan(g) and np.isnan(w))):
                return Fraction(-1)
        else:
            worst = max(worst, abs(Fraction(g) - Fraction(w)))
        if whole or np.isfinite(w):
            scale = max(scale, abs(Fraction(w)))
    terms = Fraction(rtol) * scale, Fraction(atol)
    allowed = Fraction(sum(map(floor, terms))) if whole else sum(terms)
    rounding = Fraction(0) if whole or worst == 0 else allowed / 10**14  # of difference and tolerance in float64
    return None if 0 < abs(allowed - worst) <= rounding else allowed - worst


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    kind = np.dtype(draw(st.sampled_from(TYPES)))
    want = draw(hnp.arrays(kind, st.integers(1, 4)))
    got = want.copy()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(want) - 1))
        near = st.integers(-3, 3).map(lambda step: want[at] + want.dtype.type(step) if kind.kind == "f" else want[at])
        got[at] = draw(st.one_of(hnp.from_dtype(kind), near))
    return got, want


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cases=st.lists(pairs(), min_size=30, max_size=60),
    rtol=st.sampled_from([0.0, 1e-15, 1e-6, 0.3, 1.0, 1e10, 1e300]),
    atol=st.sampled_from([0.0, 1e-9, 0.5, 2.7, 1e19, 1e300]),
    nan_equal=st.booleans(),
)
def test_the_bench_and_the_driver_agree_with_exact_arithmetic(
    program: Path,
    tmp_path_factory: pytest.TempPathFactory,
    cases: list[tuple[Any, Any]],
    rtol: float,
    atol: float,
    nan_equal: bool,
) -> None:
    folder = tmp_path_factory.mktemp("arrays")
    driver = folder / "driver_difference.py"
    driver.write_text(DRIVER)
    in_cxx = said([program], cases, folder, rtol, nan_equal, atol)
    in_python = said([sys.executable, driver], cases, folder, rtol, nan_equal, atol)
    for (got, want), one, other in zip(cases, in_cxx, in_python, strict=True):
        exact = margin(got, want, rtol, nan_equal, atol)
        assert (one == "") == (other == ""), (got, want, rtol, one, other)
        if exact is not None:
            assert (one == "") == (exact >= 0), (got, want, rtol, one)


BIG = np.full(3, 2**62 + 1, np.int64)


@pytest.mark.parametrize(
    ("got", "want", "rtol", "nan_equal", "expected"),
    [
        (BIG - 1, BIG, 1e-15, False, ""),
        (BIG - 1, BIG, 0.0, False, "is 4611686018427387904, expected 4611686018427387905; largest difference 1"),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 1.5, False, "largest difference 18446744073709551615"),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 4.0, False, ""),
        (np.full(2, np.nan), np.full(2, 1e300), 1e10, False, "element 0 is nan, expected 1e+300"),
        (np.full(2, np.inf), np.full(2, 1e300), 1e10, True, "element 0 is inf, expected 1e+300"),
        (np.array([-1e308]), np.array([1e308]), 1.0, False, "largest difference inf"),
        (np.array([-1e308]), np.array([1e308]), 2.0, False, ""),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0, False, "element 1 is nan, expected nan"),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0, True, ""),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), 1e9, True, "element 0 is 1, expected nan"),
        (np.eye(130, 515), np.eye(130, 515) + (np.arange(130 * 515) == 66936).reshape(130, 515), 0.1, False,
         "element [129, 501] is 0, expected 1"),
    ],
)  # fmt: skip
def test_messages(
    program: Path, tmp_path: Path, got: Any, want: Any, rtol: float, nan_equal: bool, expected: str
) -> None:
    [line, *_] = said([program], [(got, want)], tmp_path, rtol, nan_equal) or [""]
    assert expected in line
    assert bool(expected) == bool(line)

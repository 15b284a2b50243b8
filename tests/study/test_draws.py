"""`--samples`: what is drawn from the values after `over`."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.choice.types import Case
from dagc.ir.program import Program
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.study.cases import Draws, cases_asked

TEXT = '''program drawn
PARAMS
setup "drawn.py" load(M, K, share, step)
array y : f32[64] out
kernel fill(y: out f32[64]) { gpu { launch grid(1) block(64) cuda """y[threadIdx.x] = 0;""" } }
dag { fill : gpu fill(y) }
'''
PARAMS = """
param M : i64 = 4 over log(2, 1024)
param K : i64 = 4 over uniform(1, 8)
param share : f64 = 0.5 over uniform(0.25, 0.75)
param step : f64 = 1 over {1, 0.5}
param twice : i64 = 2 * K
"""


def program(folder: Path, params: str = PARAMS) -> Program:
    path = folder / "drawn.dag"
    path.write_text(TEXT.replace("PARAMS", params))
    return read(path).program()


def values(cases: tuple[Case, ...], name: str) -> list[float]:
    return [float(dict(p.params)[name]) for p in cases]


def test_draws_stay_in_their_ranges_both_ends_included(tmp_path: Path) -> None:
    cases = Draws(program(tmp_path), 1).take(4000)
    assert len(set(cases)) == 4000
    m, k, share = (values(cases, n) for n in ("M", "K", "share"))
    assert (min(m), max(m)) == (2, 1024)
    assert Counter(k).keys() == set(range(1, 9))
    assert 0.25 <= min(share) < 0.26
    assert 0.74 < max(share) <= 0.75
    assert set(values(cases, "step")) == {1.0, 0.5}
    assert all(type(dict(p.params)["step"]) is float for p in cases), "as the param is declared"


def test_a_logarithmic_range_has_as_many_draws_in_each_octave(tmp_path: Path) -> None:
    octaves = Counter(int(math.log2(m)) for m in values(Draws(program(tmp_path), 2).take(4000), "M"))
    assert all(300 < octaves[i] < 600 for i in range(1, 10))
    shares = values(Draws(program(tmp_path), 2).take(4000), "share")
    assert 0.49 < sum(shares) / len(shares) < 0.51


def test_a_seed_gives_its_cases_and_tests_get_others(tmp_path: Path) -> None:
    known = program(tmp_path)
    first = Draws(known, 7).take(50)
    assert Draws(known, 7).take(70)[:50] == first, "more samples begin with those of fewer"
    assert set(Draws(known, 8).take(50)).isdisjoint(first)
    assert set(Draws(known, 7, test=True).take(50)).isdisjoint(first)


def test_a_case_is_read_back_from_its_text(tmp_path: Path) -> None:
    for case in Draws(program(tmp_path), 3).take(20):
        at = dict(word.split("=") for word in case.text.split())
        lowered = {p.name: p.value for p in read(tmp_path / "drawn.dag", at).program().params}
        assert {n: lowered[n] for n, _ in case.params} == dict(case.params)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("require M * K <= 100", lambda m, k, _: m * k <= 100),
        ("let work = M * twice\nrequire work <= 200 && share < 0.6", lambda m, k, s: m * 2 * k <= 200 and s < 0.6),
        ("for i in 0..2 { let side[i] = i * K }\nrequire K < 6", lambda m, k, _: k < 6),
        ("require 10 / (K - 5) > 0 || K == 4", lambda m, k, _: k > 5 or k == 4),
    ],
)
def test_draws_obey_what_the_program_requires_of_its_params(tmp_path: Path, condition: str, holds: object) -> None:
    assert callable(holds)
    cases = Draws(program(tmp_path, PARAMS + condition), 1).take(300)
    assert len(cases) == 300
    assert all(holds(*at) for at in zip(*(values(cases, n) for n in ("M", "K", "share")), strict=True))


def test_requirements_that_leave_next_to_nothing_are_named(tmp_path: Path) -> None:
    narrow = program(
        tmp_path, PARAMS.replace("= 4 over log", "= 2 over log") + "require M * K * share <= 4 && M < 3 && share == 0.5"
    )
    with pytest.raises(UsageError, match=r"10000 draws in a row violate .*`M \* K \* share <= 4") as error:
        Draws(narrow, 1).take(5)
    assert "M over log(2, 1024)" in error.value.help


def test_a_few_values_are_drawn_once_each(tmp_path: Path) -> None:
    few = Draws(
        program(tmp_path, "param M : i64 = 1 over {1, 2, 4}\nparam K : i64 = 1 over 1..3\nlet share = 1\nlet step = 1"),
        1,
    )
    assert len(few.take(100)) == 6
    assert few.spent


def test_what_is_given_is_not_drawn(tmp_path: Path) -> None:
    program(tmp_path, PARAMS + "require M * K <= 100")
    text = read(tmp_path / "drawn.dag", {"M": "25"})
    cases = cases_asked(text, text.program(), TuneOptions(samples=20))
    assert {n for p in cases for n, _ in p.params} == {"K", "share", "step"}
    assert max(values(cases, "K")) == 4
    with pytest.raises(UsageError, match="--sizes names sizes"):
        cases_asked(text, text.program(), TuneOptions(sizes="M=4", samples=20))
    every = read(tmp_path / "drawn.dag", {"M": "50", "K": "1", "share": "0.5", "step": "1"})
    with pytest.raises(UsageError, match="no param of drawn"):
        cases_asked(every, every.program(), TuneOptions(samples=20))


def test_inputs_are_drawn_from_those_that_are_named(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    known = program(tmp_path, PARAMS + 'param file : str = "a.txt" over files("*.txt")')
    draws = Draws(known, 1)
    cases = draws.take(60)
    assert {dict(p.params)["file"] for p in cases} == {"a.txt", "b.txt", "c.txt"}
    assert {draws.vector(p)[-1] for p in cases} == {0.0, 1.0, 2.0}
    named = Draws(known, 1, inputs=["made(n = 1)"])
    assert {dict(p.params)["file"] for p in named.take(10)} == {"made(n = 1)"}

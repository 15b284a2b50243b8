"""Wrong results that went unseen: broken headers and parts, kernels that write nothing, races that show late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError, RunFailed, WrongResult
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from tests.measure.conftest import needs_mpi
from tests.regressions.programs import run, write

pytestmark = [*needs_mpi, pytest.mark.usefixtures("unoptimised")]

SETUP = """
import os
import numpy as np

def made(rank, size, seed):
    return {"x": np.arange(6.0).reshape(2, 3)}

def chosen(rank, size, seed):
    return {**made(rank, size, seed), "w": np.ones((2, 3)), "which": int(os.environ["WHICH"])}

def doubled(data, *, rank, size, seed):
    return {"y": 2 * data["x"], "z": data["x"]}

def all_ones(data, *, rank, size, seed):
    return {"a": np.full((2, 3), -1, np.int32)}

def small(data, *, rank, size, seed):
    return {"b": np.arange(6, dtype=np.int8).reshape(2, 3)}

def doubled_c(data, *, rank, size, seed):
    return {"c": 2 * data["x"]}

def grown(data, *, rank, size, seed):
    return {"x": data["x"] + 1}

def with_nan(data, *, rank, size, seed):
    return {"y": np.where(data["x"] == 1, np.nan, 2 * data["x"])}
"""
QUICK = ExploreOptions(
    ranks=1, target="host", seconds=5e-4, confirm=1, repeats=1, transport="mpi_host", quiet=True, budget=4, trace=False,
    only="orders",
)  # fmt: skip


def program(folder: Path, body: str, type: str = "f64", role: str = "in") -> Path:
    text = f'program small\nsetup "small.py" made()\narray x : f64[2, 3] {role}\narray y, z : {type}[2, 3] out\n{body}'
    return write(folder, text, SETUP)


def kernel(name: str, header: str, code: str, count: int = 6) -> str:
    loop = f"long i = blockIdx.x * 8 + threadIdx.x; if (i < {count}) {{ {code} }}"
    return f'kernel {name}({header}) {{\n  gpu {{ launch grid(1) block(8) cuda """ {loop} """ }}\n}}\n'


MOVE = kernel("move", "z: out f64[2, 3], x: in f64[2, 3]", "z[i] = x[i];")


def test_an_array_whose_size_overflows_is_refused(tmp_path: Path) -> None:
    """2**33 squared is 2**66 elements, of which no bit is left in 64."""
    text = 'program small\nsetup "small.py" sized()\nscalar n : i64\narray y : f64[n, n] out\n'
    text += kernel("some", "y: out f64[n, n], n: i64", "y[i] = 1;") + "dag { op : gpu some(y, n) }\n"
    path = write(tmp_path, text, "def sized(rank, size, seed):\n    return {'n': 2**33}\n")
    with pytest.raises(RunFailed, match=r"y: a size of \(8589934592, 8589934592\) elements is too large"):
        run(path, ranks=1)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with the fault that WHICH chooses, compiled once.

    0: nothing is written to `a`; 1, 2: the last element of `b` or `c` is not written; 3: `liar` writes what its header
    declares as read; 4: six calls a run, and `y` is wrong from the fifth of six runs or more, after the two that are
    checked before; 5, 6: `liar` writes a value, or one from beyond the end of another array, beyond the end of `y`;
    7: `one` and `two` write all of `w` instead of their part of it.
    """
    some = "if (which != 0) a[i] = -1; if (which != 1 || i != 5) b[i] = 1; if (which != 2 || i != 5) c[i] = 1;"
    twice = (
        "if (i < 6) y[i] = 2 * x[i]; else if (which == 5) y[i] = 7; else if (which == 6) y[i] = x[i]; "
        "if (which == 3) const_cast<double*>(x)[i % 6] = 7; "
        "if (which == 4 && i < 6 && ++calls > 24 && i == 4) y[i] += 1;"
    )
    times = "if (which == 7) piece[i] = m * piece[i] + b;"
    text = (
        'program small\nsetup "small.py" chosen()\ncpp """ inline int calls = 0; """\nscalar which : i32\n'
        "array x : f64[2, 3] in\narray y, z : f64[2, 3] out\narray w : f64[2, 3] inout\n"
        "array a : i32[2, 3] out\narray b : i8[2, 3] out\narray c : f64[2, 3] out\npart left of w\npart right of w\n"
        + kernel("some", "a: out i32[2, 3], b: out i8[2, 3], c: out f64[2, 3], which: i32", some)
        + kernel("twice", "y: out f64[2, 3], x: in f64[2, 3], which: i32", twice, count=7)
        + kernel("times", "piece: inout f64[*], m: f64, b: f64, which: i32", times)
        + MOVE
        # Whichever is first: `moved` reads what `liar` must not change.
        + "dag {\n  op : gpu some(a, b, c, which)\n  liar : gpu twice(y, x, which)\n  moved : gpu move(z, x)\n"
        "  one : gpu times(left, 2.0, 1.0, which)\n  two : gpu times(right, 3.0, 0.0, which)\n}\n"
        "verify a ~ all_ones() rtol 0\nverify b ~ small() rtol 1e10\nverify c ~ doubled_c() rtol 1e300\n"
        "verify y ~ doubled() rtol 0\n"
    )
    return write(tmp_path_factory.mktemp("faulty"), text, SETUP)


@pytest.mark.parametrize(
    ("which", "wrong"),
    [
        ("0", r"a is wrong: element \[0, 0\] is -1515870811, expected -1"),
        ("1", r"b is wrong: element \[1, 2\] is never written"),
        ("2", r"c is wrong: element \[1, 2\] is nan"),
    ],
)
def test_what_is_never_written_is_wrong_whatever_the_reference_and_the_tolerance(
    faulty: Path, monkeypatch: pytest.MonkeyPatch, which: str, wrong: str
) -> None:
    monkeypatch.setenv("WHICH", which)
    with pytest.raises(WrongResult, match=wrong):
        run(faulty, ranks=1)


@pytest.mark.parametrize(
    ("which", "wrong"),
    [
        ("3", "op `liar` changes `x`, which the header of its kernel does not declare as written"),
        ("5", "op `liar` writes element 6 of `y`, which has 6"),
        ("6", "op `liar` writes element 6 of `y`, which has 6"),
        ("7", r"ops `one` and `two` both change element \[0, 0\] of `w`.* parts `left` and `right` overlap"),
    ],
)
def test_an_op_that_writes_what_it_may_not_is_named(
    faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, wrong: str
) -> None:
    """Inputs, memory beyond the end of an array, and parts that are declared disjoint; in every order of the ops."""
    monkeypatch.setenv("WHICH", which)
    with pytest.raises(WrongResult, match=wrong):
        run(faulty, ranks=1)
    with pytest.raises(WrongResult, match=wrong):
        explore(faulty, tmp_path / "r.db", QUICK)


def test_results_that_go_wrong_while_they_are_timed_are_seen(
    faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHICH", "4")
    with pytest.raises(WrongResult, match=r"y is wrong: element \[1, 1\] is 9, expected 8") as error:
        run(faulty, ranks=1)
    assert "all ops change only what their headers declare; check the kernels and the reference" in error.value.help
    with pytest.raises(WrongResult, match=r"y is wrong: element \[1, 1\] is 9, expected 8"):
        explore(faulty, tmp_path / "r.db", QUICK)


def test_a_program_that_reads_what_it_wrote_is_checked_over_several_runs(tmp_path: Path) -> None:
    """Right in each first run, whenever that is; wrong from the second on, once it is timed."""
    late = kernel("grow", "x: inout f64[2, 3]", "x[i] += 1 + (++calls > 60 && i == 4 && x[i] > 4.5);")
    text = f'cpp """ inline int calls = 0; """\n{late}dag {{ a : gpu grow(x) }}\nverify x ~ grown() rtol 0\n'
    path = program(tmp_path, text, role="inout")
    with pytest.raises(
        WrongResult, match=r"x is wrong: element \[1, 1\] is 9, expected 7;.* after 3 runs without a pause"
    ):
        explore(path, tmp_path / "r.db", replace(QUICK, seconds=0.5))


def test_the_emitted_program_checks_several_runs_after_timing(tmp_path: Path) -> None:
    """Right in each first run, and in three before timing; each time that three run later, the third goes wrong."""
    late = kernel("grow", "x: inout f64[2, 3]", "x[i] += 1 + (++calls > 200 && i == 4 && x[i] > 5.5);")
    text = f'cpp """ inline int calls = 0; """\n{late}dag {{ a : gpu grow(x) }}\nverify x ~ grown() rtol 0\n'
    wrong = r"x is wrong: element \[1, 1\] is 8, expected 7;.* after 3 runs without a pause"
    with pytest.raises(WrongResult, match=wrong):
        run(program(tmp_path, text, role="inout"), ranks=1)


def test_nan_is_right_only_where_the_program_says_so(tmp_path: Path) -> None:
    twice = kernel(
        "twice", "y: out f64[2, 3], x: in f64[2, 3]", "double d = x[i] - 1; y[i] = d == 0 ? d / d : 2 * x[i];"
    )
    text = f"{twice}dag {{ a : gpu twice(y, x) }}\nverify y ~ with_nan() rtol 1e-12"
    with pytest.raises(ProgramError, match="nan equal"):
        run(program(tmp_path, text + "\n"), ranks=1)
    path = program(tmp_path, f"{text}   nan  equal\n")
    assert api.format_source(path)[1].endswith("verify y ~ with_nan() rtol 1e-12 nan equal\n")
    assert run(path, ranks=1).result is not None

"""Running set-ups: what is written, and what is said when a set-up does not fit its program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import DagcError, ProgramError, UsageError
from dagc.base.resources import IMPORTED_FROM
from dagc.base.source import Source, Span
from dagc.cli.main import main
from dagc.ir.enums import ElementType, Place, Role
from dagc.ir.program import (
    Array,
    CopyOp,
    ExchangeOp,
    Message,
    Op,
    Param,
    Program,
    Region,
    Require,
    Scalar,
    Setup,
    Verify,
)
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply
from dagc.setup import require_memory, run_setup
from dagc.setup.arrays import SetupCode

TEXT = 'program small\nsetup "arrays.py" make(scale)\nverify y ~ doubled() rtol 0\n'
SETUP_AT, VERIFY_AT = "small.dag:2:1: error: ", "small.dag:3:1: error: "
SOURCE = Source("small.dag", TEXT)
N, M = Var("n"), Var("m[x,lo]")


def span(line: int) -> Span:
    starts = [0, *(i + 1 for i, c in enumerate(TEXT) if c == "\n")]
    return Span(starts[line - 1], starts[line] - 1, "small.dag")


def array(name: str, dims: Sequence[Sym | None], role: Role | None, kind: ElementType = ElementType.F32) -> Array:
    return Array(name, kind, tuple(dims), Place.DEVICE, role)


def small(*, ops: Sequence[Op] = (), arrays: Sequence[Array] = ()) -> Program:
    """n and m[x,lo] are scalars; x[n] comes in, w[*] is constant, y[n] goes out, t[n + m] is scratch."""
    return Program(
        name="small", path="small.dag", params=(Param("scale", 3, "i64"), Param("real", ElementType.F32, "type")),
        lets=(), enums=(),
        scalars=(Scalar("n", ElementType.I32), Scalar("m[x,lo]", ElementType.I32)),
        arrays=(
            array("x", [N], Role.IN), array("w", [None], Role.CONST, ElementType.F64), array("y", [N], Role.OUT),
            array("t", [apply(Fn.ADD, N, M)], None), *arrays,
        ),
        parts=(), kernels=(), code=(), features=(), selects=(), requires=(), decisions=(), ops=tuple(ops), edges=(),
        explicit=False, repeat=None, until=None,
        setup=Setup("arrays.py", "make", (("scale", 3),), span=span(2)),
        verifies=(Verify(Region("y"), "doubled", (("factor", 2),), 0.0, span=span(3)),),
        sources={"small.dag": SOURCE},
    )  # fmt: skip


GOOD = """
import numpy as np

def make(rank, size, seed, scale):
    n = rank + 2
    return {"n": n, "m[x,lo]": np.int32(1), "x": np.arange(n, dtype=np.float32) * scale + seed, "w": np.ones(5)}

def doubled(data, *, rank, size, seed, scale, factor):
    return {"y": data["x"] * np.float32(factor), "unused": 1}
"""


def write(folder: Path, code: str = GOOD) -> Path:
    (folder / "arrays.py").write_text(dedent(code))
    return folder


def refused(folder: Path, code: str, program: Program | None = None, ranks: int = 2) -> str:
    """The rendered diagnostics; nothing may be left on the disk."""
    out = folder / "out"
    with pytest.raises(ProgramError) as caught:
        run_setup(program or small(), write(folder, code), ranks, 1, out)
    assert caught.value.exit_code == 2
    assert sorted(p.name for p in folder.iterdir()) == ["arrays.py"]
    return caught.value.render()


# ---- what is written --------------------------------------------------------------------------


def test_every_rank_gets_its_arrays(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    run_setup(small(), write(tmp_path), 3, 7, out)
    for rank in range(3):
        folder = out / f"rank-{rank:04d}"
        assert sorted(p.name for p in folder.iterdir()) == ["expected", "m_x_lo_.npy", "n.npy", "w.npy", "x.npy"]
        n, x = np.load(folder / "n.npy"), np.load(folder / "x.npy")
        assert (n.shape, n.dtype, int(n)) == ((), np.int32, rank + 2)
        assert np.array_equal(x, np.arange(rank + 2, dtype="f4") * 3 + 7)
        assert x.dtype == np.float32
        assert np.load(folder / "w.npy").dtype == np.float64
        assert [p.name for p in (folder / "expected").iterdir()] == ["y.npy"]
        assert np.array_equal(np.load(folder / "expected" / "y.npy"), 2 * x)
    description = json.loads((out / "setup.json").read_text())
    names = description.pop("names")
    assert description == {
        "schema_version": 1,
        "program": "small",
        "path": "small.dag",
        "params": {"scale": 3, "real": "f32"},
        "ranks": 3,
        "seed": 7,
    }
    assert names == {"n": "n", "m[x,lo]": "m_x_lo_", "x": "x", "w": "w", "y": "y", "t": "t"}


def test_arrays_that_have_no_room_are_not_computed(tmp_path: Path) -> None:
    large = small(arrays=[array("x", (Const(1 << 42),), Role.INOUT), array("t", (Const(1 << 40),), None)])
    write(tmp_path)
    with pytest.raises(UsageError, match=r"2 ranks take at least 3\.52e\+04 GB, and there are .* GB free in /"):
        run_setup(large, tmp_path, 2, 0, tmp_path / "out")
    with pytest.raises(UsageError, match=r"at least 7\.92e\+04 GB, and there are .* GB of free memory"):
        require_memory(large, 2)
    require_memory(small(), 2)


def test_fewer_ranks_leave_no_old_rank_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_setup(small(), write(tmp_path), 3, 0, out)
    run_setup(small(), write(tmp_path), 1, 0, out)
    assert [p.name for p in sorted(out.glob("rank-*"))] == ["rank-0000"]


def test_a_failing_run_leaves_the_old_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_setup(small(), write(tmp_path), 2, 0, out)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    code = GOOD.replace("n = rank + 2", "n = rank + 2 if rank == 0 else 'two'")
    with pytest.raises(DagcError):
        run_setup(small(), write(tmp_path, code), 2, 1, out)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_a_folder_of_the_users_is_not_touched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="did not write"):
        run_setup(small(), write(tmp_path), 1, 0, out)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_arrays_in_other_orders_are_stored_in_c_order(tmp_path: Path) -> None:
    program = replace(small(), arrays=(*small().arrays, array("a", [N, Const(3)], Role.CONST)))
    code = GOOD.replace('"w": np.ones(5)', '"w": np.ones(5), "a": np.arange(3 * n, dtype="f4").reshape(3, n).T')
    run_setup(program, write(tmp_path, code), 1, 0, tmp_path / "out")
    stored = np.load(tmp_path / "out" / "rank-0000" / "a.npy")
    assert stored.flags.c_contiguous
    assert np.array_equal(stored, np.arange(6, dtype="f4").reshape(3, 2).T)


def test_a_verified_slice_is_stored_alone(tmp_path: Path) -> None:
    verify = Verify(Region("y", Const(1), N), "doubled", (("factor", 2),), 0.0, span=span(3))
    run_setup(replace(small(), verifies=(verify,)), write(tmp_path), 1, 0, tmp_path / "out")
    assert np.load(tmp_path / "out" / "rank-0000" / "expected" / "y.npy").tolist() == [6]


def test_a_reference_that_serves_twice_is_called_once(tmp_path: Path) -> None:
    program = replace(small(), arrays=(*small().arrays, array("z", [N], Role.OUT)))
    both = tuple(replace(program.verifies[0], region=Region(name)) for name in ("y", "z"))
    code = GOOD.replace("def doubled(data, ", "calls = []\ndef doubled(data, ").replace(
        'return {"y"', 'calls.append(1); return {"z": np.full(data["n"], len(calls), "f4"), "y"'
    )
    run_setup(replace(program, verifies=both), write(tmp_path, code), 1, 0, tmp_path / "out")
    assert set(np.load(tmp_path / "out" / "rank-0000" / "expected" / "z.npy")) == {1}


def test_neighbouring_modules_can_be_imported_and_nothing_stays_imported(tmp_path: Path) -> None:
    (tmp_path / "helper_of_arrays.py").write_text("SCALE = 3\n")
    path, modules = list(sys.path), set(sys.modules)
    code = "import helper_of_arrays\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    n: 'int'\n" + dedent(
        GOOD
    )
    run_setup(small(), write(tmp_path, code), 1, 0, tmp_path / "out")
    assert sys.path == path
    assert {m for m in set(sys.modules) - modules if "arrays" in m} <= {"helper_of_arrays"}
    sys.modules.pop("helper_of_arrays")
    assert not (tmp_path / "__pycache__" / "arrays.cpython-311.pyc").exists()


@pytest.mark.parametrize("at", ["import numpy as np", "n = rank + 2", 'return {"y": data'])
def test_the_working_directory_is_that_of_the_command(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up that changes it does so for itself: the next rank, and the output, start from that of the command."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    change = "import os; os.chdir('below')"
    code = GOOD.replace(at, f"{change}\n{at}" if at.startswith("import") else f"{change}\n    {at}", 1)
    run_setup(small(), write(Path(), code), 3, 0, Path("out"))
    assert (tmp_path / "out/rank-0002").is_dir()
    assert Path.cwd() == tmp_path


def test_set_ups_run_side_by_side_beside_imports(tmp_path: Path) -> None:
    """Tuning makes the data of its sizes in threads, while another imports what compiling needs."""
    write(tmp_path)
    program = small()
    assert program.setup is not None
    first, second = (SetupCode(program, program.setup, tmp_path) for _ in range(2))
    path, entries, modules = sys.path, list(sys.path), set(sys.modules)
    with first._running("a test"), second._running("a test"):
        assert path == entries, "a list that an import may be going through does not change"
        assert sys.path[0] == str(tmp_path.resolve())
        assert len(set(sys.modules) - modules) == 2, "each has its module"
    assert sys.path == entries


# ---- what does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message", "help"),
    [
        ('"n": n, ', "", "`make` does not return `n` (rank 0) [setup-missing]", "add 'n' to the dict"),
        ('"m[x,lo]"', '"m[x, lo]"', "does not return `m[x,lo]`", "`m[x, lo]` is spelled `m[x,lo]`"),
        ('"w": ', '"ww": np.ones(1), "w": ', "returns `ww`, which is not declared", "did you mean `w`"),
        ('"w": ', '"qqq": 1, "w": ', "returns `qqq`, which is not declared", "leave it out, or declare it"),
        ('"w": ', '"y": 1, "w": ', "returns `y`, which is out", "leave it out, or declare it in or inout"),
        ('"w": ', '"t": 1, "w": ', "returns `t`, which is scratch", "leave it out"),
        ('"n": n', '"n": 2.0', "returns 2.0 for `n`", "give one i32"),
        ('"n": n', '"n": True', "returns True for `n`", "give one i32"),
        ('"n": n', '"n": "2"', "returns str for the scalar `n`", "give one i32"),
        ('"n": n', '"n": None', "returns NoneType for the scalar `n`", "give one i32"),
        ('"n": n', '"n": [n]', "returns list for the scalar `n`", "give one i32"),
        ('"n": n', '"n": np.array([n])', "returns ndarray of shape (1,) for the scalar `n`", "give one i32"),
        ('"n": n', '"n": 1 << 31', "returns 2147483648 for `n`, which is i32", "declare a larger type"),
        ('"n": n', '"n": -1', "makes size 1 of `x` -1", "a whole number, 0 or more"),
        ("dtype=np.float32) * scale", "dtype=float) * scale", "returns type float64 for `x`", "x.astype(np.float32)"),
        ('"w": np.ones(5)', '"w": np.ones(5, ">f8")', "returns type >f8 for `w`", "w.astype(np.float64)"),
        ('"w": np.ones(5)', '"w": [1.0]', "returns list for the array `w`", "np.array(..., np.float64)"),
        ('"w": np.ones(5)', '"w": np.ones((5, 1))', "returns shape (5, 1) for `w`, expected (*,)", "change the array"),
        ("arange(n,", "arange(n + 1,", "returns shape (3,) for `x`, expected (2,)", "the sizes in its declaration"),
        (
            'return {"n"',
            'return 1 or {"n"',
            "`make` of arrays.py returned int, not a dict",
            "return a dict such as {'n': ...,",
        ),
        ("def make(rank, size, seed, scale)", "def make(rank, size, scale)", "cannot be called", "scale=3"),
        ("def make(", "def made(", "arrays.py has no function `make`", "its functions are doubled, made"),
    ],
)
def test_what_a_setup_returns_must_fit(tmp_path: Path, old: str, new: str, message: str, help: str) -> None:
    assert old in GOOD
    text = refused(tmp_path, GOOD.replace(old, new, 1))
    assert text.startswith(SETUP_AT)
    assert message in text
    assert help in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{"y": data', '{"z": data', "`doubled` does not return `y` (rank 0)"),
        ("np.float32(factor)", "float(factor) * np.ones(1)", "returns type float64 for `y`"),
        ('data["x"] *', 'data["x"][1:] *', "returns shape (1,) for `y`, expected (2,)"),
        ("np.float32(factor)", "np.float32('nan')", "returns NaN in `y`"),
        ('{"y": data["x"] * np.float32(factor), "unused": 1}', "None", "`doubled` of arrays.py returned NoneType"),
        ("seed, scale, factor", "seed, scale", "cannot be called: got an unexpected keyword argument 'factor'"),
        ("def doubled", "def trebled", "has no function `doubled`"),
    ],
)
def test_what_a_reference_returns_must_fit(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    text = refused(tmp_path, GOOD.replace(old, new))
    assert text.startswith(VERIFY_AT)
    assert message in text


def test_all_findings_of_a_rank_come_at_once(tmp_path: Path) -> None:
    code = GOOD.replace('"m[x,lo]": np.int32(1)', '"m[x,lo]": 0.5').replace('"w": np.ones(5)', '"v": np.ones(5)')
    text = refused(tmp_path, code)
    assert "3 errors" in text
    for words in ("does not return `w`", "`v`, which is not declared", "0.5 for `m[x,lo]`"):
        assert words in text


def test_the_rank_that_is_wrong_is_named(tmp_path: Path) -> None:
    text = refused(tmp_path, GOOD.replace("arange(n,", "arange(n + (rank == 1),"), ranks=3)
    assert "(rank 1)" in text


def test_a_missing_file_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        run_setup(small(), tmp_path, 1, 0, tmp_path / "out")
    assert caught.value.render().startswith(SETUP_AT + "cannot read the set-up file")
    assert list(tmp_path.iterdir()) == []


def test_a_program_without_setup_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no set-up"):
        run_setup(replace(small(), setup=None), tmp_path, 1, 0, tmp_path / "out")


@pytest.mark.parametrize(("ranks", "seed"), [(0, 0), (-1, 0), (1, -1)])
def test_bad_arguments(tmp_path: Path, ranks: int, seed: int) -> None:
    with pytest.raises(UsageError):
        run_setup(small(), write(tmp_path), ranks, seed, tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("n = rank + 2", "n = 1 // 0", 5, "ZeroDivisionError: integer division or modulo by zero"),
        ("n = rank + 2", "n = np.load('nowhere.npy')", 5, "FileNotFoundError"),
        ("n = rank + 2", "raise SystemExit(3)", 5, "SystemExit: 3"),
        ("n = rank + 2", 'raise type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})', 5, "arrays.py:5: Odd\n"),
        ("import numpy as np", "import numpy_of_tomorrow", 2, "ModuleNotFoundError"),
        ("def make(", "def make((", 4, "SyntaxError"),
        ('return {"y"', 'data["x"][0] = 1; return {"y"', 9, "ValueError: assignment destination is read-only"),
    ],
)
def test_failing_code_is_named_by_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_setup(small(), write(tmp_path, GOOD.replace(old, new)), 1, 0, tmp_path / "out")
    text = caught.value.render()
    assert f"arrays.py:{line}" in text
    assert message in text
    assert "correct arrays.py: it failed " in text
    assert "Traceback" not in text
    assert not (tmp_path / "out").exists()


CRASHES = """\
import os, signal
import numpy as np

def make(rank, size, seed, how):
    if how == 1:
        import ctypes
        ctypes.string_at(0)
    if how == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == 3:
        os.abort()
    if how == 5:
        raise KeyboardInterrupt
    print("made", rank)
    return {"x": np.full(4, float(rank) if how else "text")}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="set-ups run in a process of their own on Linux")
@pytest.mark.parametrize(
    ("how", "out", "err"),
    [
        (0, "made 0\n", "returns type <U4 for `x`, which is f64 (rank 0)"),
        (1, "", "arrays.py:7: terminated by SIGSEGV (Segmentation fault) in make(rank=0)\n  help: correct arrays.py"),
        (
            2,
            "",
            (
                "arrays.py: terminated by SIGKILL (Killed; the system sends it when memory runs out) in make(rank=0)\n"
                "  help: give smaller sizes"
            ),
        ),
        (3, "", "arrays.py:11: terminated by SIGABRT (Aborted) in make(rank=0)\n"),
        (4, "made 0\nmade 1\narrays of 2 ranks in out\n", ""),
        (5, "", "arrays.py:13: KeyboardInterrupt\n  help: correct arrays.py: it failed in make(rank=0)\n"),
    ],
)
def test_a_set_up_that_crashes_is_an_error(tmp_path: Path, how: int, out: str, err: str) -> None:
    (tmp_path / "arrays.py").write_text(CRASHES)
    (tmp_path / "p.dag").write_text(
        'program p\nparam how : i32 = 0\narray x : f64[4] on host inout\nsetup "arrays.py" make(how)\n'
        "kernel k(x: inout f64[4]) {\n  cpu { cpp "
        '"""for (int i = 0; i < 4; ++i) x[i] += 1;""" }\n}\ndag { a : cpu k(x) }\n'
    )
    command = [sys.executable, "-m", "dagc", "setup", "p.dag", "-o", "out", "-n", "2", "-D", f"how={how}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": IMPORTED_FROM},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2 if err else 0, out)
    assert err in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} - {"out"} == {"arrays.py", "p.dag"}


def test_an_error_in_a_neighbouring_module_is_named_there(tmp_path: Path) -> None:
    (tmp_path / "broken_helper.py").write_text("def f():\n    raise KeyError('what')\n")
    code = GOOD.replace("n = rank + 2", "import broken_helper; n = broken_helper.f()")
    with pytest.raises(UsageError, match=r"broken_helper\.py:2: KeyError: 'what'"):
        run_setup(small(), write(tmp_path, code), 1, 0, tmp_path / "out")
    sys.modules.pop("broken_helper")


@pytest.mark.parametrize(
    ("require", "ops", "message"),
    [
        (Apply(Fn.LE, (N, Const(2))), (), "`make` violates `require n <= 2`: n = 3 (rank 1)"),
        (
            Apply(Fn.GE, (N, M)),
            (CopyOp("c", "c", Region("t", Const(1), apply(Fn.SUB, N, Const(2))), Region("y"), span=span(3)),),
            "`make` makes a slice `t[1 .. 0]`, which is not valid within 0 .. 3 (rank 0)",
        ),
    ],
)
def test_a_require_and_slices_are_checked_before_anything_is_built(
    tmp_path: Path, require: Sym, ops: Sequence[Op], message: str
) -> None:
    text = refused(tmp_path, GOOD, replace(small(ops=ops), requires=(Require(require, span=span(2)),)))
    assert message in text
    assert "[setup-require]" in text


def test_a_slice_that_is_verified_lies_within_its_array(tmp_path: Path) -> None:
    verify = Verify(Region("y", Const(1), Const(9)), "make", (), rtol=0.0, span=span(2))
    text = refused(tmp_path, GOOD, replace(small(), verifies=(verify,)))
    assert "makes a slice `y[1 .. 9]`, which is not valid within 0 .. 2 (rank 0)" in text


# ---- messages that do not meet ------------------------------------------------------------------------


def neighbours() -> Program:
    """Each rank sends x to rank m and receives t from it."""
    message = Message("", Region("x"), M, None, Region("x"), M, None)
    return small(ops=[ExchangeOp("ring", "ring", (message,))])


def counted() -> Program:
    lists = [array(n, [None], Role.CONST, ElementType.I32) for n in ("to", "sent", "source", "got")]
    message = Message("", Region("x"), "to", "sent", Region("t"), "source", "got")
    return small(ops=[ExchangeOp("ring", "ring", (message,))], arrays=lists)


def listed(to: str, sent: str, source: str, got: str) -> str:
    """The good set-up with lists of peers and counts, each an expression in rank and size; n is 10, t holds 11."""
    more = "".join(
        f', "{n}": np.array({e}, np.int32).reshape(-1)'
        for n, e in zip(("to", "sent", "source", "got"), (to, sent, source, got), strict=True)
    )
    return GOOD.replace("n = rank + 2", "n = 10").replace('"w": np.ones(5)', '"w": np.ones(5)' + more)


def test_messages_that_meet_are_accepted(tmp_path: Path) -> None:
    code = GOOD.replace("np.int32(1)", "np.int32(1 - rank)").replace("n = rank + 2", "n = 4")
    run_setup(neighbours(), write(tmp_path, code), 2, 0, tmp_path / "a")
    run_setup(neighbours(), write(tmp_path, GOOD.replace("np.int32(1)", "np.int32(-1)")), 2, 0, tmp_path / "b")
    ring = listed("[(rank + 1) % size, -1]", "[3, 99]", "[-1, (rank - 1) % size]", "[5, 3]")
    run_setup(counted(), write(tmp_path, ring), 3, 0, tmp_path / "c")


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        (neighbours(), GOOD, "rank 0 sends 2 elements to rank 1 in ring, which expects no message"),
        (
            neighbours(),
            GOOD.replace("np.int32(1)", "np.int32(1 - rank)"),
            "rank 0 sends 2 elements to rank 1 in ring, which expects 3 elements",
        ),
        (neighbours(), GOOD.replace("np.int32(1)", "np.int32(2)"), "with rank 2, but there are 2 ranks"),
        (
            counted(),
            listed("[1 - rank]", "[3]", "[1 - rank]", "[4]"),
            "rank 0 sends 3 elements to rank 1 in ring, which expects 4 elements",
        ),
        (counted(), listed("[0, 1]", "[9, 9]", "[0, 1]", "[9, 9]"), "sends 18 elements of `x` in ring, which has 10"),
        (
            counted(),
            listed("[0, 1]", "[5, 5]", "[0, 1]", "[5, 15]"),
            "receives 20 elements of `t` in ring, which has 11",
        ),
        (counted(), listed("[1 - rank]", "[-1]", "[1 - rank]", "[-1]"), "sends -1 elements in ring with rank 1"),
    ],
)
def test_messages_that_do_not_meet_are_refused(tmp_path: Path, program: Program, code: str, message: str) -> None:
    text = refused(tmp_path, code, program)
    assert text.startswith(SETUP_AT)
    assert message in text
    assert "[setup-messages]" in text


def test_mismatches_of_a_line_are_one_finding(tmp_path: Path) -> None:
    text = refused(tmp_path, GOOD, neighbours(), ranks=40)
    assert "rank 0 sends 2 elements to rank 1 in ring, which expects no message (78 pairs of ranks)" in text
    assert text.endswith("1 error")


SLABS = Path(__file__).parents[1] / "measure/data/slabs.dag"


@pytest.mark.parametrize(("old", "new"), [(" from down", " from up  "), ("to down  ", "to up    ")])
def test_the_opposite_neighbour_is_suggested(tmp_path: Path, old: str, new: str) -> None:
    """At the line of the message, and before anything is compiled."""
    text = SLABS.read_text()
    assert text.count(old) == 1
    (tmp_path / "slabs.dag").write_text(text.replace(old, new))
    (tmp_path / "slabs.py").write_text(SLABS.with_suffix(".py").read_text())
    with pytest.raises(ProgramError) as caught:
        api.run_setup(tmp_path / "slabs.dag", 4, tmp_path / "data")
    (found,) = caught.value.diagnostics
    source = caught.value.sources[found.span.file]
    assert source.text[found.span.start : found.span.end].split(":")[0].strip() in ("north", "south")
    assert found.message.endswith(" instances)")
    assert re.match(r"rank \d sends 40 elements to rank \d in halo\[0\]\.\w+, which expects no message", found.message)
    assert found.help == "a message `to up` arrives `from down`: write `from down` or `to down`"


def test_sizes_peers_and_ranks_are_found_at_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument of another size, once for all instances; peers that no set-up gives; and how to change the ranks."""
    text = """
        program grid
        setup "grid.py" data()
        comm row = split(floor(rank / 2))
        scalar m, n : i32
        array a : f64[m, n] in
        array b, c : f64[m, n] out
        kernel add(y: out f64[k, w], x: in f64[k, w], k: i32, w: i32) {
          gpu { launch grid(1) block(1) cuda "for (int i = 0; i < k * w; ++i) y[i] = x[i];" }
        }
        dag {
          for i in 0..2 { add[i] : gpu add(b, a[0 .. n - 2], m, n) }
          shift : mpi exchange on row { send a to 1 - row.rank recv c from 1 - row.rank }
        }
    """.replace('cuda "', 'cuda """ ').replace('" }', ' """ }')
    (tmp_path / "grid.py").write_text(
        "import numpy as np\ndef data(rank, size, seed): return {'m': 3, 'n': 4, 'a': np.zeros((3, 4))}\n"
    )

    def wrong(text: str, ranks: int) -> str:
        file = tmp_path / "grid.dag"
        file.write_text(dedent(text).lstrip())
        assert main(["setup", str(file), "-n", str(ranks), "-o", str(tmp_path / "out"), "--quiet"]) == 2
        return capsys.readouterr().err

    said = wrong(text, 2)
    assert (
        "grid.dag:11:19: error: op add[0] passes 2 x 4 elements of `a` as `x` of add, which has 3 x 4 (rank 0)" in said
    )
    assert "add[1]" not in said
    said = wrong(text.replace("a[0 .. n - 2]", "a"), 3)
    assert "grid.dag:12:33: error: rank 2 sends in shift with rank 1, but there is 1 rank in its communicator" in said
    assert "are set here" not in said, "no scalar gives them"
    said = wrong(text.replace("scalar", "require ranks == 4\nscalar"), 3)
    assert "help: change these values; -n sets the number of ranks" in said

"""`dagc tune` and `dagc compile --launch` on the host target: real builds, real launches."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import BuildFailed, UsageError
from dagc.build.toolchain import find_nvcc
from dagc.choice.types import Case
from dagc.cli.main import main
from dagc.cuda.ptx import Resources
from dagc.ir.choice import Choice
from dagc.measure.bench import run_bench
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.build import without_spills
from dagc.study.results import KernelResult, Tuning
from dagc.study.task import tuning_task
from tests.study.oracle import ROOT
from tests.study.programs import write_fill

SYRK = ROOT / "samples" / "polybench" / "syrk.dag"
SIZES = "NI=40 NJ=24; NI=33 NJ=50"

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# The results of one block only are wrong: that of 64 threads forgets the last one.
FAULTY = '''program faulty
param N : i64 = 100
setup "faulty.py" init(N)
scalar n : i32
array y : f32[n] out
kernel fill(y: out f32[n], n: i32) {
  tune bx in {32, 64, 128, 4096}
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      int i = blockIdx.x * bx + threadIdx.x;
      if (i < n) y[i] = bx == 64 && threadIdx.x == 63 ? -1 : i;
    """
  }
}
dag { fill : gpu fill(y, n) }
verify y ~ reference() rtol 0
'''
FAULTY_PY = """import numpy as np

def init(rank, size, seed, N):
    return {"n": N}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""


def test_tune_and_compile(tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.db"
    options = TuneOptions(sizes=SIZES, target="host", top=2, cell=0.01)
    done = tune_recipe.tune(SYRK, tuned, options)
    assert not done.failures
    assert {line.case.text for line in done.lines} == {"NI=40 NJ=24", "NI=33 NJ=50"}
    for line in done.lines:
        assert line.best_value <= line.default_value
        assert line.chosen == line.best, "at a measured size the best that was measured is chosen"
    found = load_tuned(tuned)
    assert all(sample.times for cell, sample in found.samples)
    assert set(found.checks.values()) == {""}
    again = tune_recipe.tune(SYRK, tuned, TuneOptions(sizes=SIZES, target="host", top=2, cell=0.01, resume=True))
    assert again.cells == done.cells, "nothing is measured twice"
    compiled = api.compile(
        SYRK, tmp_path / "out", target="host", defines={"NI": "40", "NJ": "24"}, launch=str(tuned), run=True, ranks=1,
        repeats=2,
    )  # fmt: skip
    assert compiled.result is not None
    assert compiled.binary is not None
    assert not compiled.warnings
    assert "dagc_choose_syrk" in (tmp_path / "out" / "chooser.h").read_text()
    api.run_setup(SYRK, 1, tmp_path / "far", 0, {"NI": 5, "NJ": 24})
    (warning,) = run_bench(compiled.binary, tmp_path / "far", 1, 1e-4, 2).warnings
    far = "syrk: sizes are up to 6.6 times outside of the tuned ones (ni 33 to 40, nj 24 to 50) on 1 of 1 ranks"
    assert warning.startswith(far)


def test_one_wrong_setting_is_told_and_not_chosen(tmp_path: Path) -> None:
    (tmp_path / "faulty.dag").write_text(FAULTY)
    (tmp_path / "faulty.py").write_text(FAULTY_PY)
    options = TuneOptions(sizes="N=100,300", target="host", method="exhaustive", cell=0.01)
    done = tune_recipe.tune(tmp_path / "faulty.dag", tmp_path / "t.db", options)
    assert len(done.failures) == 1
    assert "fill bx=64" in done.failures[0] or "fill 64" in done.failures[0]
    assert "is wrong" in done.failures[0]
    measured = {cell.choice for cell, _ in load_tuned(tmp_path / "t.db").samples}
    blocks = {choice["fill.bx"] for choice in measured}
    assert blocks == {32, 128}, "4096 threads are beyond the device, 64 are wrong"
    assert all(line.chosen["fill.bx"] in (32, 128) for line in done.lines)


def test_a_kernel_named_as_a_function_of_the_c_library(tmp_path: Path) -> None:
    """GRAMSCHM has a kernel `advance`, which glibc has too: the library that is loaded must call its own."""
    path = SYRK.with_name("gramschm.dag")
    options = TuneOptions(sizes="NI=20 NJ=12", target="host", top=1, kernels=("q",), cell=0.01)
    done = tune_recipe.tune(path, tmp_path / "t.db", options)
    assert not done.failures
    assert {line.op for line in done.lines} == {"q"}


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuning]:
    """A tuned file by the model alone."""
    file = tmp_path_factory.mktemp("modelled") / "t.db"
    return file, tune_recipe.tune(SYRK, file, MODELLED)


MODELLED = TuneOptions(sizes="NI=1024 NJ=1024", target="cuda", top=0)


def test_without_measurement(modelled: tuple[Path, Tuning]) -> None:
    _, done = modelled
    assert done.cells == 0
    (line,) = done.lines
    own = line.chosen.own
    assert own["bx"] < 32, "narrow blocks win where columns are read with a wide stride"
    # 573 us on an H200; 4 807 with the defaults, 2 314 with the best block as written (h200-tiles).
    assert (own["bx"], own["by"], own["form.tile"], own["form.wide"]) == (16, 16, 8, 1)
    assert math.isnan(line.chosen_value)
    assert line.why == "loads"


def test_one_of_several_ranks_does_not_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would all write one file. The first says so, the others are silent."""
    command = ["tune", str(SYRK), "--target", "host", "-o", str(tmp_path / "t.db")]
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    assert main(command) == 2
    assert "one of 2" in capsys.readouterr().err
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(SystemExit, match="0"):
        main(command)
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_a_tuned_file_of_another_text(modelled: tuple[Path, Tuning], tmp_path: Path) -> None:
    tuned, _ = modelled
    other = tmp_path / "syrk.dag"
    other.write_text(SYRK.read_text().replace("real(beta)", "real(2 * beta)"))
    shutil.copy(SYRK.with_suffix(".py"), tmp_path)
    with pytest.raises(UsageError, match="tuned for another text"):
        api.compile(other, tmp_path / "out", target="host", launch=str(tuned), build=False)
    other.write_text(SYRK.read_text().replace("real(beta)", "real(beta) /* of the old C */\n // edited\n"))
    assert "/* of the old C */" in other.read_text()
    api.compile(other, tmp_path / "commented", target="cuda", launch=str(tuned), build=False)
    with pytest.raises(UsageError, match="tuned for sm_90, this is compiled for sm_80"):
        api.compile(SYRK, tmp_path / "out", target="cuda", arch="sm_80", launch=str(tuned), build=False)
    with pytest.raises(UsageError, match="exists"):
        tune_recipe.tune(SYRK, tuned, MODELLED)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", "--method", "help"])
    assert end.value.code == 0
    assert "volume" in capsys.readouterr().out
    assert main(["tune", str(SYRK), "--show", "syrk", "--format", "c"]) == 0
    assert "static inline dagc_choice dagc_choose_syrk(const double* x)" in capsys.readouterr().out
    assert main(["tune", str(SYRK), "--show", "syrk", "--format", "latex"]) == 0
    assert "begin{align*}" in capsys.readouterr().out
    assert main(["tune", str(SYRK), "--show", "occupancy", "--format", "svg"]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    arguments = ["--target", "cuda", "--top", "0", "--sizes", "NI=NJ=128", "--sizes", "NI=NJ=96"]
    arguments += ["-o", str(tmp_path / "x.db")]
    assert main(["tune", str(SYRK), *arguments]) == 0
    said = capsys.readouterr().out
    assert "without measurement" in said
    assert "NI=128 NJ=128" in said
    assert "NI=96 NJ=96" in said
    assert main(["tune", str(SYRK), "--sizes", "NI=-3"]) == 2
    assert main(["tune", str(SYRK), "--gpu", "nothing", "--top", "0", "--target", "cuda"]) == 2
    assert main(["compile", str(SYRK), "--launch", str(tmp_path / "absent.db")]) == 2


# One value of a tunable that is a constant of the kernel does not compile, on either target.
TILED = (
    FAULTY.replace("tune bx in {32, 64, 128, 4096}", "tune bx in {32, 64}\n  tune tile in {4, 8, 64}")
    .replace("int i =", 'static_assert(tile < 64, "tile too large");\n      int i =')
    .replace("bx == 64 &&", "tile > 64 &&")
)


@pytest.mark.thorough
def test_a_value_that_does_not_compile_is_told_and_left_out(tmp_path: Path) -> None:
    program, tuned = tmp_path / "faulty.dag", tmp_path / "tuned.db"
    program.write_text(TILED)
    (tmp_path / "faulty.py").write_text(FAULTY_PY)
    options = TuneOptions(sizes="N=100,300", target="host", method="exhaustive", cell=0.01)
    done = tune_recipe.tune(program, tuned, options)
    (failure,) = done.failures
    assert failure.startswith("fill tile=64: does not compile: ")
    assert "tile too large" in failure
    assert done.cells == 2 * 4
    assert all(line.chosen.own["tile"] < 64 for line in done.lines)
    out = tmp_path / "out"
    assert main(["compile", str(program), "--launch", str(tuned), "--target", "host", "-o", str(out)]) == 0


@pytest.mark.mpi
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_what_does_not_compile_is_not_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "faulty.dag"
    program.write_text(FAULTY.replace("int i =", "int i = mystery(2) +"))
    (tmp_path / "faulty.py").write_text(FAULTY_PY)
    words = ["--sizes", "N=100", "--target", "cuda", "--top", "0", "-o", str(tmp_path / "t.db")]
    assert main(["tune", str(program), *words]) == 4
    said = capsys.readouterr().err
    assert re.search(r'faulty\.dag\(\d+\): error: identifier "mystery" is undefined', said)


def test_settings_of_a_form_that_spills_are_left_out() -> None:
    """Each is named once for all blocks; nothing is left out where the kernel as written spills as much."""
    jacobi = api.read(ROOT / "samples/jacobi/jacobi.dag")
    task = tuning_task(jacobi, TuneOptions(target="cuda", arch="sm_90", kernels=("inner",), forms="on"))
    spilling = {"stencil_wide4": Resources(spills=8), "stencil_wide4_coarsen2": Resources(spills=16)}
    left, failures = without_spills(task, {"stencil": Resources(spills=0), **spilling})
    assert failures == (
        "inner form.wide=4: a thread spills 8 bytes of registers, as written 0",
        "inner form.wide=4, form.coarsen=2: a thread spills 16 bytes of registers, as written 0",
    )
    forms = {(c.own["form.wide"], c.own["form.coarsen"]) for c in task.choices["inner"]}
    assert {(c.own["form.wide"], c.own["form.coarsen"]) for c in left.choices["inner"]} == forms - {(4, 1), (4, 2)}
    assert without_spills(task, {"stencil": Resources(spills=16), **spilling}) == (task, ())


@pytest.mark.thorough
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_a_form_that_spills_is_said_once_and_not_chosen(tmp_path: Path) -> None:
    """80 numbers of a thread are in registers, those of four neighbours are not."""
    kept = range(80)
    first = " ".join(f"float a{k} = x[{k} * n + j];" for k in kept)
    turned = " ".join(f"a{k} = a{k} * a{(k + 7) % 80} + 0.5f;" for k in kept)
    stored = " + ".join(f"a{k}" for k in kept)
    (tmp_path / "many.dag").write_text(f"""program many
param N : i64 = 512
setup "many.py" data(N)
scalar n : i64
array x : f32[80 * n] in
array y : f32[n] out
kernel many(y: out f32[n], x: in f32[80 * n], n: i64) {{
  forms {{wide}}
  gpu {{
    launch grid(ceil(n / 64)) block(64)
    cuda \"\"\"
      const int j = blockIdx.x * 64 + threadIdx.x;
      if (j >= n) return;
      {first}
      for (long k = 0; k < n; ++k) {{ {turned} }}
      y[j] = {stored};
    \"\"\"
  }}
}}
dag {{ many : gpu many(y, x, n) }}
""")
    (tmp_path / "many.py").write_text(
        "import numpy as np\n"
        "def data(rank, size, seed, N):\n"
        "    return {'n': N, 'x': np.ones(80 * N, np.float32)}\n"
    )  # fmt: skip
    done = tune_recipe.tune(tmp_path / "many.dag", None, TuneOptions(target="cuda", arch="sm_90", top=0, forms="on"))
    (failure,) = done.failures
    assert re.fullmatch(r"many form\.wide=4: a thread spills \d+ bytes of registers, as written 0", failure)
    assert done.lines[0].chosen.own["form.wide"] != 4


@pytest.mark.mpi
def test_a_variant_that_does_not_compile_is_reported_and_excluded(tmp_path: Path, unoptimised: None) -> None:
    """Where the choice depends on features, too."""
    kernel = "launch grid(1) block(64) cuda"
    (tmp_path / "twice.dag").write_text(f'''program twice
param cells : i64 = 10
setup "twice.py" data(cells)
scalar n : i64
array x : f64[n] in
array y : f64[n] inout
kernel twice(y: inout f64[n], x: in f64[n], n: i64) {{
  feature most cost n = cpp """
    return x.most(n, [] __host__ __device__(const double* x, std::int64_t i) {{ return x[i]; }});
  """
  select variant with tree(n, most)
  gpu sum {{ {kernel} """ for (int i = threadIdx.x; i < n; i += 64) y[i] = x[i] + x[i]; """ }}
  gpu large {{ {kernel} """ static_assert(sizeof(n) > 8, "n is too small"); y[0] = x[0]; """ }}
  gpu product {{ {kernel} """ for (int i = threadIdx.x; i < n; i += 64) y[i] = 2 * x[i]; """ }}
}}
dag {{ y : gpu twice(y, x, n) }}
''')
    (tmp_path / "twice.py").write_text(
        "import numpy as np\n"
        "def data(rank, size, seed, cells): return {'n': cells, 'x': np.arange(cells) * 1.0, 'y': np.zeros(cells)}\n"
    )
    options = TuneOptions(sizes="cells=10,20", target="host", cell=0.001)
    done = tune_recipe.tune(tmp_path / "twice.dag", tmp_path / "tuned.db", options)
    (failure,) = done.failures
    assert failure.startswith("y variant=large: does not compile: ")
    assert "n is too small" in failure
    assert done.cells == 2 * 2


@pytest.mark.thorough
def test_a_program_that_does_not_compile_at_all(tmp_path: Path) -> None:
    program = tmp_path / "faulty.dag"
    program.write_text(TILED.replace("tile < 64", "tile < 0"))
    (tmp_path / "faulty.py").write_text(FAULTY_PY)
    with pytest.raises(BuildFailed, match="tile too large"):
        tune_recipe.tune(program, None, TuneOptions(sizes="N=100", target="host"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_tune_that_is_ended_leaves_nothing_in_the_temporary_folder(tmp_path: Path, number: signal.Signals) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    setup = tmp_path / "fill.py"
    setup.write_text(
        "import pathlib, time\n"
        + setup.read_text().replace(
            '    return {"n": N}', "    (pathlib.Path(__file__).parent / 'runs').touch()\n    time.sleep(600)"
        )
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "dagc", "tune", str(program), "--target", "cuda", "--top", "0"]
    with subprocess.Popen(
        [*command, "-o", str(tmp_path / "t.db")], env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.PIPE
    ) as child:
        assert child.stderr is not None
        said = child.stderr.readline()  # after a second
        until = time.monotonic() + 300
        while not (tmp_path / "runs").exists() and time.monotonic() < until:
            time.sleep(0.01)
        held = list(temporary.glob("dagc-tune-*"))
        child.send_signal(number)
        code = child.wait()
    assert said.startswith(b"tuning fill: ")
    assert len(held) == 1
    assert code == -number
    assert not list(temporary.glob("dagc-*"))


def test_times_in_the_table_have_no_exponent() -> None:
    line = KernelResult("k", Case((("N", 9),)), Choice(), Choice(), None, 0.0139201, 1.5e-6, math.nan, "")
    done = Tuning((line, replace(line, chosen_value=math.nan)), "host", "volume", 2, (), (), None)
    row, other = done.render().splitlines()[2:]
    assert row.split()[-3:] == ["13920", "1.500", "-"]
    assert other.split()[-3:] == ["13920", "-", "-"]


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("if (i < n)\n        helper(y, i);", 13, "the loads and stores of `helper(y, i)` are not known"),
        ("for (;;)\n        y[i] = ;", 13, "the kernel's text does not parse as CUDA C++"),
        ('_Pragma("unroll") for (int k = 0; k < n; ++k)\n        helper(y, k);', 10, "the loads and stores of"),
    ],
    ids=["unknown loads", "syntax", "the kernel's line where a pragma moves others"],
)
def test_what_a_model_cannot_read_is_shown_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, line: int, what: str
) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}", body)
    assert main(["tune", str(program), "--show", "fill"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dagc: error: {program}:{line}: {what}")
    assert "so fill has no model\n  help: tune it with --method exhaustive" in said

"""Implementations that give wrong results at some inputs, the default too: what is learned, chosen and said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dagc.cli.main import main
from dagc.measure.launch import launch
from dagc.store.tuned import load_tuned
from tests.study.test_failures import SETUP

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# The default, `plain`, is wrong at inputs of 60 to 79 elements, `fast` at those of 70 and more.
TEXT = '''program faults
param file : str = "none" over files("none")
setup "faults.py" load(file)
scalar n : i32
array y : f32[n] out
kernel fill(y: out f32[n], n: i32) {
  feature size = n
  select variant with tree(size)
  gpu plain {
    launch grid(1) block(128)
    cuda """
      float sum = 0;
      for (int j = 0; j < 2000; ++j) sum += 1e-30f * j;
      for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = i + (n >= 60 && n < 80 && i == 3 ? 5 : 0) + (sum > 1);
    """
  }
  gpu fast {
    launch grid(1) block(128)
    cuda """ for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = i + (n >= 70 && i == 5 ? 9 : 0); """
  }
}
dag repeat 2 { fill : gpu fill(y, n) }
verify y ~ reference() rtol 0
'''
TRAINED = (40, 45, 50, 55, 62, 64, 66, 72, 74, 76, 90, 100, 110, 120)


def made(*sizes: int) -> str:
    return ",".join(f"made(n = {n})" for n in sizes)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.dag").write_text(TEXT)
    (folder / "faults.py").write_text(SETUP)
    words = ["tune", str(folder / "faults.dag"), "--target", "host", "--variants", "--cell", "0.005", "--quiet"]
    words += ["--inputs", made(*TRAINED), "--check-at", made(40), "-o", str(folder / "t.db")]
    assert main(words) == 0
    return folder


def test_the_reference_decides_which_of_two_results_is_right(tuned: Path) -> None:
    worked: dict[str, list[int]] = {"plain": [], "fast": []}
    why = {}
    for cell, sample in load_tuned(tuned / "t.db").samples:
        n = int(cell.case.text.partition("= ")[2].rstrip(")"))
        if sample.times:
            worked[cell.choice.variant].append(n)
        else:
            why[cell.choice.variant, n] = sample.failure
    assert sorted(worked["plain"]) == [n for n in TRAINED if not 60 <= n < 80]
    assert sorted(worked["fast"]) == [n for n in TRAINED if n < 70]
    assert "element 3 is 8, expected 3; largest difference 5" in why["plain", 62]
    assert "allowed 0" in why["plain", 62]


@pytest.fixture(scope="module")
def bench(tuned: Path) -> Path:
    words = ["compile", str(tuned / "faults.dag"), "--target", "host", "--launch", str(tuned / "t.db"), "--quiet"]
    assert main([*words, "-o", str(tuned / "out")]) == 0
    return tuned / "out/bench"


WARNING = (
    "fill: every choice that is left failed at inputs like this one when it was tuned; plain is used: check its results"
)


@pytest.mark.parametrize(
    ("n", "answer", "reasons"),
    [
        (48, "fast", {"chosen"}),
        (63, "fast", {"chosen"}),
        (95, "plain", {"chosen", "avoided"}),
        (4000, "plain", {"avoided", "outside"}),
        (73, "plain", {"failed"}),
    ],
)
def test_a_program_does_not_take_what_was_wrong_nearby(
    tuned: Path, bench: Path, n: int, answer: str, reasons: set[str]
) -> None:
    data = tuned / f"data-{n}"
    assert main(["setup", str(tuned / "faults.dag"), "-n", "2", "-D", f"file={made(n)}", "-o", str(data)]) == 0
    done = launch([str(bench), "--data", str(data), "--repeats", "1", "--json", "-", "--seconds", "1e-6"], 2)
    assert done.returncode == (1 if reasons == {"failed"} else 0), done.stderr
    assert done.stderr.count(WARNING) == (reasons == {"failed"}), "once"
    if done.returncode == 0:
        (choice,) = json.loads(done.stdout)["choices"]
        assert choice["answer"] == answer
        assert {reason for reason, count in choice["counts"].items() if count} <= reasons


def test_a_library_returns_the_warning(tuned: Path, tmp_path: Path) -> None:
    words = ["compile", str(tuned / "faults.dag"), "--target", "host", "--launch", str(tuned / "t.db"), "--quiet"]
    assert main([*words, "--as", "library", "-o", str(tmp_path / "lib")]) == 0
    script = (
        "import dagc, sys, numpy as np; from mpi4py import MPI\n"
        "library = dagc.load_library(sys.argv[1])\n"
        "for n in (63, 73):\n"
        "    with library.Instance(MPI.COMM_WORLD, n=n, y=np.zeros(n, np.float32)) as one:\n"
        "        print(one.choices, '|', one.warnings)\n"
    )
    done = launch([sys.executable, "-c", script, str(tmp_path / "lib")], 1)
    assert done.stdout.splitlines() == ["fill: fast (chosen 1) | ", f"fill: plain (failed 1) | {WARNING}"], done.stderr


def test_the_evaluation_counts_failures_apart(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", str(tuned / "faults.dag"), "--target", "host", "--evaluate", "--cell", "0.005", "--quiet"]
    assert main([*words, "--inputs", made(42, 57, 65, 69, 73, 105, 115), "-o", str(tuned / "t.db")]) == 0
    said = capsys.readouterr().out
    assert "no variant works at 1 input: made(n = 73)" in said
    assert "inf" not in said
    assert "nan" not in said
    assert (
        "failed: fill plain at made(n = 65): rank 0: y is wrong: element 3 is 8, expected 3; largest difference 5"
        in said
    )
    assert "PPP " in said
    assert main([*words, "--folds", "4", "-o", str(tuned / "t.db")]) == 0
    assert "inf" not in capsys.readouterr().out


def test_the_first_runs_do_not_use_a_default_that_was_wrong(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", str(tuned / "faults.dag"), "--target", "host", "--launch", str(tuned / "t.db"), "--quiet"]
    assert main([*words, "--features", "beside", "--no-build", "-o", str(tuned / "beside")]) == 2
    assert "fill: the default, plain, failed at 6 inputs when it was tuned" in capsys.readouterr().err

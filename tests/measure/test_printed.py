"""What a program prints is its user's: results travel by files, and the output still appears."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagc.base.errors import RunFailed, WrongResult
from dagc.base.signals import reported_signal
from dagc.build.toolchain import file_of
from dagc.cli.main import main
from dagc.measure.launch import Printed, launch
from dagc.recipes.compile import compile
from dagc.stages.artifacts import Compiled

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# What is printed is not JSON, and one of the texts has no end of line; `mistake`: wrong, or an exit.
TEXT = """
program loud
setup "loud.py" data()
scalar mistake : i32
array x : f64[8] on host in
array y : f64[8] on host out
kernel cp(y: out f64[8], x: in f64[8], mistake: i32) {
  cpu {
    cpp \"\"\"
      std::printf("{\\"results\\": [hello, (signal 7)]}\\n");
      std::fprintf(stderr, "careful\\n");
      if (mistake == 2) std::exit(7);
      for (int i = 0; i < 8; ++i) y[i] = x[i] + mistake;
    \"\"\"
  }
}
dag { one : cpu cp(y, x, mistake) }
verify y ~ expected() rtol 0
"""
SETUP = """
import pathlib
import numpy as np
def data(rank, size, seed):
    print("set up")
    return {"x": np.arange(8.0), "mistake": int((pathlib.Path(__file__).parent / "mistake").read_text())}
def expected(data, *, rank, size, seed):
    return {"y": data["x"]}
"""


@pytest.fixture(scope="module")
def loud(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loud")
    (folder / "loud.dag").write_text(TEXT)
    (folder / "loud.py").write_text(SETUP)
    return folder


def compiled(folder: Path, mistake: int) -> Compiled:
    (folder / "mistake").write_text(str(mistake))
    return compile(folder / "loud.dag", folder / "out", target="host", run=True, ranks=2, seconds=1e-4, repeats=2)


def test_the_output_of_a_right_program_appears(loud: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = compiled(loud, 0)
    assert done.result is not None
    said = capsys.readouterr().err
    assert "the program printed:" in said
    assert "hello" in said
    assert "careful" in said
    assert "times)" in said
    assert "median" not in said
    # On its own, the program gives standard output to the JSON alone.
    words = [str(done.binary), "--data", str(loud / "out/data-2"), "--repeats", "2", "--seconds", "1e-4", "--json", "-"]
    alone = launch(words, 2)
    assert json.loads(alone.stdout)["program"] == "loud"
    assert "hello" in alone.stderr


def test_a_wrong_result_of_a_loud_program(loud: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WrongResult, match="y is wrong: element 0 is 1, expected 0"):
        compiled(loud, 1)
    assert "hello" in capsys.readouterr().err


def test_a_loud_program_that_ends(loud: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunFailed, match=r"ended with exit code 7 in op `one`"):
        compiled(loud, 2)
    said = capsys.readouterr().err
    assert "hello" in said
    assert "careful" in said


def test_the_output_of_ranks_appears_at_the_end_of_a_search(loud: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (loud / "mistake").write_text("0")
    words = ["explore", str(loud / "loud.dag"), "--target", "host", "-n", "1", "-o", str(loud / "r.db"), "--time", "1"]
    assert main([*words, "--seconds", "1e-4", "--quiet"]) == 0
    assert "hello" in capsys.readouterr().err


def test_many_different_lines_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    printed = Printed()
    printed.add([f"line {i}" for i in range(100)])
    printed.add(["line 1", "===== BAD TERMINATION =====", "==========", "of a starter"])
    printed.show()
    said = capsys.readouterr().err.splitlines()
    assert said[2] == "  line 1  (2 times)"
    assert said[-1] == "  and 61 other lines"
    printed.show()
    assert capsys.readouterr().err == ""


def test_long_lines_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    printed = Printed()
    printed.add(["A" * 1000, "B" * 300_000])
    printed.show()
    said = capsys.readouterr().err.splitlines()
    assert said[1] == "  " + "A" * 1000
    assert said[2] == "  " + "B" * 1000 + "... (300000 characters)"


def test_only_the_report_of_a_starter_names_a_signal() -> None:
    assert reported_signal(["signal 7", "(signal 9)"]) is None
    assert reported_signal(["YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"]) == 9
    assert reported_signal(["mpirun noticed that process rank 0 exited on signal 11 (Segmentation fault)."]) == 11


def test_an_answer_is_a_file() -> None:
    assert file_of(["sh", "-c", 'printf noise; printf 42 > "$1"', "sh"]) == "42"
    assert file_of(["sh", "-c", "printf 42", "sh"]) is None

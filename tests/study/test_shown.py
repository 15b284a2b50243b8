"""`dagc tune --show`: the occupancy of a program's launches, and what a tuned file has learned."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dagc.choice.types import Case
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.perf.occupancy import Demand, occupancies
from dagc.stages.program import load_graph
from dagc.store.tuned import load_tuned
from dagc.study.results import KernelResult, Tuning
from dagc.study.tuned import choosers_of
from tests.study.programs import write_fill

# Static and dynamic shared memory, a tunable that is a constant of the code, and a kernel whose launch is fixed.
STAGED = '''program staged
setup "staged.py" init()
array y : f32[4096] out
kernel stage(y: out f32[4096]) {
  tune bx in {64, 256}
  tune rows in {24, 1}
  gpu {
    launch grid(ceil(4096 / bx)) block(bx) shared(rows * 1024)
    cuda """
      __shared__ float own[512];
      extern __shared__ float tile[];
      for (int r = 0; r < rows; r++) tile[r * bx + threadIdx.x] = r * threadIdx.x;
      own[threadIdx.x] = tile[threadIdx.x];
      __syncthreads();
      y[blockIdx.x * bx + threadIdx.x] = own[bx - 1 - threadIdx.x];
    """
  }
}
kernel twice(y: inout f32[4096]) {
  gpu {
    launch grid(4) block(1024)
    cuda """y[blockIdx.x * 1024 + threadIdx.x] *= 2;"""
  }
}
dag {
  stage : gpu stage(y)
  twice : gpu twice(y)
}
'''


def _rows(text: str) -> dict[tuple[str, str], list[str]]:
    """The numbers of each line of the table, by kernel and setting."""
    lines = [line for line in text.splitlines() if line.startswith(("stage ", "twice "))]
    words = [[word.strip() for word in line.split("  ") if word.strip()] for line in lines]
    return {(kernel, choice): numbers for kernel, choice, *numbers in words}


@pytest.mark.nvcc
def test_occupancy_of_all_launches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the registers that nvcc gives each; shared memory is that of the text and that of the launch."""
    (tmp_path / "staged.dag").write_text(STAGED)
    (tmp_path / "staged.py").write_text("def init(rank, size, seed):\n    return {}\n")
    assert main(["tune", str(tmp_path / "staged.dag"), "--show", "occupancy", "--gpu", "h200"]) == 0
    text = capsys.readouterr().out
    rows = _rows(text)
    assert list(rows) == [
        ("stage", "bx=64 rows=24"), ("stage", "bx=64 rows=1"), ("stage", "bx=256 rows=24"),
        ("stage", "bx=256 rows=1"), ("twice", "as written"),
    ]  # fmt: skip
    assert rows["stage", "bx=256 rows=24"][2] == str(24 * 1024 + 2048)
    for threads, registers, shared, blocks, warps, share, limit in rows.values():
        (one,) = occupancies([Demand(int(threads), int(registers), int(shared))], load_hardware("h200"))
        assert (one.blocks, one.warps, one.limit) == (int(blocks), int(warps), limit)
        assert share == f"{one.warps / 64:.1%}"
    assert "assumed" not in text
    _chosen_by_it(tmp_path / "staged.dag", rows, capsys)
    assert rows["stage", "bx=64 rows=1"][1] != "32" or rows["twice", "as written"][1] != "32"


@pytest.mark.nvcc
def test_occupancy_of_kernels_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are compiled with the file that has them, here as a template in a namespace."""
    (tmp_path / "lib.cu").write_text(
        "namespace lib {\ntemplate <class T, int N> __global__ void __launch_bounds__(256) scale(T* y) {\n"
        "  __shared__ T own[N];\n  own[threadIdx.x] = y[threadIdx.x];\n  __syncthreads();\n"
        "  y[threadIdx.x] = own[N - 1 - threadIdx.x];\n}\n}\n"
    )
    (tmp_path / "named.dag").write_text(
        "program named\narray y : f64[256] out\nkernel stage(y: out f64[256]) {\n  gpu {\n"
        '    launch grid(1) block(256)\n    cuda lib::scale<f64, 256> from "lib.cu"\n  }\n}\n'
        "dag { stage : gpu stage(y) }\n"
    )
    assert main(["tune", str(tmp_path / "named.dag"), "--show", "occupancy", "--gpu", "h200"]) == 0
    text = capsys.readouterr().out
    assert "assumed" not in text
    assert _rows(text)["stage", "as written"][2] == str(256 * 8)


def _chosen_by_it(program: Path, rows: dict[tuple[str, str], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """`--objective occupancy` chooses a setting with the most warps, also in the emitted program; the first of these in
    the order of the table, whose head is the default."""
    tuned = program.with_name("t.db")
    command = ["tune", str(program), "--objective", "occupancy", "--gpu", "h200", "--target", "cuda", "-o", str(tuned)]
    assert main(command) == 0
    most = max(int(row[4]) for (kernel, _), row in rows.items() if kernel == "stage")
    best = next(key for key, row in rows.items() if key[0] == "stage" and int(row[4]) == most)
    assert best[1] != "bx=64 rows=24", "not the default"
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stage ")]
    assert [word.strip() for word in line.split("  ") if word.strip()][2:4] == ["bx=64 rows=24", best[1]]
    (chooser,) = choosers_of(load_graph(program), load_tuned(tuned), "sm_90")
    assert chooser.choices[chooser.choose({})].in_words == best[1]
    assert chooser.times({}) == [64.0 - int(rows["stage", s.in_words][4]) for s in chooser.choices]
    assert main([*command, "--method", "volume", "--resume"]) == 2
    assert "drop one of them" in capsys.readouterr().err


def test_an_occupancy_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    tuned = str(tmp_path / "t.db")
    for command in (["explore", str(program)], ["tune", str(program), "--target", "host", "-o", tuned]):
        assert main([*command, "--objective", "occupancy"]) == 2
        assert "occupancy is computed" in capsys.readouterr().err


def test_occupancy_program_of_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As C, it answers as in Python."""
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    assert main(["tune", str(program), "--show", "occupancy", "--gpu", "a100", "--format", "c"]) == 0
    (tmp_path / "o.c").write_text(
        "#include <stdint.h>\n#include <stdio.h>\n" + capsys.readouterr().out
        + "int main(void) { printf(\"%d %d\", (int)dagc_occupancy(256, 40, 0), (int)dagc_occupancy(96, 255, 4096)); }"
    )  # fmt: skip
    subprocess.run(["cc", "-o", "o", "o.c", "-lm"], cwd=tmp_path, check=True)
    printed = subprocess.run(["./o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    demands = [Demand(256, 40, 0), Demand(96, 255, 4096)]
    assert printed == " ".join(str(one.blocks) for one in occupancies(demands, load_hardware("a100")))
    assert main(["tune", str(program), "--show", "occupancy", "-o", str(tmp_path / "t.db")]) == 2
    assert "occupancy is not learned" in capsys.readouterr().err
    assert main(["tune", str(program), "--show", "occupancy"]) == 0
    assert "32*Wmax" in capsys.readouterr().out, "without a GPU, the chart as published"


def test_achieved_beside_theoretical() -> None:
    default, chosen = Choice.at("k", [("bx", 32)]), Choice.at("k", [("bx", 256)])
    both = occupancies([Demand(32, 16, 0), Demand(256, 64, 0)], load_hardware("h200"))
    held = dict(zip((default, chosen), both, strict=True))
    line = KernelResult("k", Case(()), default, chosen, None, math.nan, math.nan, math.nan, "loads", held=held)
    text = Tuning((line,), "", "", 0, (), (), None).render()
    titles, row = (re.split(r"  +", text) for text in text.splitlines()[1:])
    assert dict(zip(titles, row, strict=True))["chosen on an SM"] == "4 blocks, 32 warps, 50%"
    assert "achieved" not in titles
    text = Tuning((replace(line, achieved=0.437),), "", "", 0, (), (), None).render()
    titles, row = (re.split(r"  +", text) for text in text.splitlines()[1:])
    assert dict(zip(titles, row, strict=True))["achieved"] == "44%"

"""The figures beside cuSPARSE are those of the selector in the committed tuned file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import repeated, versions

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks/results/2026-11-22-h100-variants"
NOW = ROOT / "benchmarks/results/2026-11-24-h100-variants-8"


def beside(*answers: str) -> subprocess.CompletedProcess[str]:
    tuned, program = NOW / "spmv.db.xz", ROOT / "samples/spmv/variants.dag"
    command = [sys.executable, "-m", "benchmarks.gpu.beside_answer", str(tuned), str(program), *answers]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def figures() -> str:
    return (ROOT / "docs/figures.md").read_text().replace("*", "")


@pytest.fixture(scope="module")
def printed() -> str:
    done = beside("cusparse1", "cusparse2")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_judges_as_the_evaluation_on_the_machine_did(printed: str) -> None:
    evaluated = (NOW / "spmv-test.txt").read_text()
    every = re.findall(r"^ +(?:all|under \S+|\S+ to \S+|\S+ or more) +(\d+) +([\d.]+) %", evaluated, re.MULTILINE)
    assert re.findall(r" (\d+) inputs: .* ([\d.]+) % of exhaustive", printed) == every
    assert len(every) == 4


def test_the_documentation_says_what_is_printed(printed: str) -> None:
    pattern = r"(\d+) inputs: chosen (\S+), at least as fast (\d+)%, worst (\S+); best other (\S+), worst (\S+);"
    for row in re.findall(pattern, printed):
        assert " | {} | {} | {} % | {} | {} | {} |".format(*row) in figures()
    percent = re.findall(r"([\d.]+) % of exhaustive", printed)[0]
    assert f"({percent} % of exhaustive;" in " ".join(figures().split())
    row = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| SpMV, which"))
    assert f"| **{float(percent):.1f}** |" in row


def test_it_lists_where_the_choice_is_slower(printed: str) -> None:
    speeds = [
        (float(a), float(b)) for a, b in re.findall(r"^  chosen (\S+) .*best other (\S+) ", printed, re.MULTILINE)
    ]
    best = sorted(best for _, best in speeds)
    page = " ".join(figures().split())
    assert f"At {len(speeds)} of the 60 fresh matrices the choice is slower than cuSPARSE" in page
    assert f"the best kernel reaches {best[0]} to {best[-1]} there" in page
    assert f"{sum(chosen < 0.9 for chosen, _ in speeds)} are under 0.9" in page


def test_an_unknown_answer_is_refused_with_those_there_are() -> None:
    done = beside("cusparse3")
    assert done.returncode == 2
    assert "y has no answer cusparse3" in done.stderr
    assert "cusparse2" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_repeats() -> None:
    """A file repeats itself; another run does not quite."""
    program = ROOT / "samples/spmv/variants.dag"
    first, second = RECORDS / "first-spmv.db.xz", RECORDS / "unseen-spmv.db.xz"
    _, _, every, *_ = repeated.report(first, second, program)
    said = re.search(r"[Oo]n the (\d+) training matrices.*?has ([\d.]+) %", figures(), re.DOTALL)
    assert said is not None
    assert every.split()[1] == said[1]
    assert float(every.split()[2]) == pytest.approx(float(said[2]), abs=0.051)
    assert repeated.report(second, second, program)[2].split()[2] == "100.00"


def test_versions_of_a_program() -> None:
    """The ratios that the documentation gives; a version beside itself."""
    records = RECORDS.parent / "2026-11-23-h100-variants"
    program, after = ROOT / "samples/bfs/bfs.dag", records / "bfs-after.db.xz"
    before = [records / "bfs-before.db.xz", records / "bfs-before-again.db.xz"]
    lines = versions.report(program, after, before)
    assert lines == (records / "bfs-versions.txt").read_text().splitlines()
    said = re.search(r"best variant at (\d+) graphs\s+takes ([\d.]+) times", figures())
    assert said is not None
    assert lines[-1] == f"{said[1]} inputs: best after over best before, geometric mean {said[2]}"
    assert versions.report(program, after, [after])[-1].endswith(" 1.000")

"""`dagc compile --print-after`: the program as text after each stage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.ir.traversal import parse_traversal
from dagc.recipes.compile import compile
from dagc.report.stages import Printer, Stage, stages, traversal_lines
from dagc.stages.program import load_graph
from tests.conftest import Compare

SAMPLES = Path(__file__).parents[2] / "samples"
GOLDEN = Path(__file__).parents[1] / "golden" / "stages"


def _printed(sample: str, out: Path, asked: str = "all", **options: object) -> str:
    texts: list[str] = []
    compile(SAMPLES / sample, out, printer=Printer(stages(asked), texts.append), target="host", build=False, **options)
    return "".join(texts)


@pytest.mark.parametrize(
    ("sample", "name", "options"),
    [
        ("spmv/spmv.dag", "spmv", {}),
        ("spmv/spmv.dag", "spmv-nccl", {"defines": {"transport": "nccl"}}),
        ("heat/heat.dag", "heat", {}),
        ("cg/cg.dag", "cg", {}),
    ],
)
def test_samples(sample: str, name: str, options: dict[str, object], tmp_path: Path, golden: Compare) -> None:
    golden(GOLDEN / f"{name}.txt", _printed(sample, tmp_path / "out", **options))


def test_stages_come_in_the_order_of_the_compilation(tmp_path: Path) -> None:
    text = _printed("spmv/spmv.dag", tmp_path / "out", "plan,lower,all")
    at = [text.index(f"; after {stage.value}: ") for stage in Stage]
    assert at == sorted(at)


def test_only_what_was_asked_for_is_printed(tmp_path: Path) -> None:
    text = _printed("spmv/spmv.dag", tmp_path / "out", "edges")
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith(";")] == ["; after edges"]


def test_a_printed_traversal_can_be_read_again(tmp_path: Path) -> None:
    text = _printed("spmv/spmv.dag", tmp_path / "out", "traversal")
    graph = load_graph(SAMPLES / "spmv/spmv.dag")
    entries = text.split("\n", 1)[1]
    assert (
        "".join(f"{line}\n" for line in traversal_lines(graph, parse_traversal(entries, graph)))
        == entries.rstrip("\n") + "\n"
    )


def test_a_stage_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="--print-after edge: not a stage"):
        stages("lower,edge")


def test_what_a_later_stage_refuses_is_still_printed(tmp_path: Path) -> None:
    """The traversal lacks a wait: it is printed, and the proof refuses it."""
    broken = tmp_path / "broken.txt"
    entries = _printed("spmv/spmv.dag", tmp_path / "out", "traversal").splitlines()[1:]
    broken.write_text("\n".join(entry for entry in entries if entry != "sync(e0)"))
    command = [sys.executable, "-m", "dagc", "compile", SAMPLES / "spmv/spmv.dag", "--target", "host", "--no-build"]
    command += ["-o", tmp_path / "out", "--traversal", broken, "--print-after", "traversal,plan"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "; after traversal: " in done.stdout
    assert "; after plan: " not in done.stdout

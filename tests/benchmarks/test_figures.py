"""docs/figures.md: every command is repeated, or says why not; those that take seconds are repeated here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.figures import PAGE, Block, Figure, blocks, expanded, repeat

ROOT = Path(__file__).parents[2]
BLOCKS = blocks(PAGE.read_text(encoding="utf-8"))
FAST = 4  # seconds


def test_every_command_is_repeated_or_says_why_not() -> None:
    unmarked = [block.line for block in BLOCKS if not block.how and not block.figures]
    assert not unmarked, "put <!-- repeat: N s, with figures --> or <!-- repeat: gpu --> before these lines"
    assert sum(bool(block.figures) for block in BLOCKS) >= 10


def test_the_figures_are_on_the_page() -> None:
    assert [(block.line, problem) for block in BLOCKS for problem in block.absent()] == []


def test_the_records_are_in_the_repository() -> None:
    for block in BLOCKS:
        for name in re.findall(
            r"(?:benchmarks/results|samples|tests/data)/[\w./-]+\w", re.sub(r"\S*\{\S*", "", expanded(block.text))
        ):
            packed = name if name.endswith(".xz") else f"{name}.xz"
            assert (ROOT / name).exists() or (ROOT / packed).exists(), (block.line, name)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.figures and b.seconds <= FAST], ids=lambda b: f"line-{b.line}"
)
def test_what_takes_seconds_prints_what_the_page_says(block: Block) -> None:
    assert repeat(block) == []


def test_a_figure_that_moved_is_found() -> None:
    figure = Figure(r"^all +(-?[\d.,]+) %", 1, "98.4")
    assert figure.moved("all  98.4 %") == figure.moved("x\nall 98.351 %") == ""
    assert figure.moved("all 98.34 %") == "98.34 is printed"
    assert figure.moved("some 98.4 %") == "nothing that is printed matches"
    (block,) = blocks("<!-- repeat: 3 s\nall {12} of {3,000}\n-->\n```sh\necho all 12 of 3000; false\n```\nabout 12\n")
    assert block.absent() == ["3,000 is not on the page between the commands before and after these"]
    assert repeat(block) == ["exit code 1: "]
    (block,) = blocks("<!-- repeat: 3 s\nall {12} of {3,000}\n-->\n```sh\necho all 12 of 3001\n```\n")
    assert [problem.split(" (")[0] for problem in repeat(block)] == ["3,000: 3001 is printed"]
    with pytest.raises(ValueError, match="neither `N s` nor one of gpu, machine, revision"):
        blocks("<!-- repeat: soon -->\n```sh\ntrue\n```\n")


def test_every_directory_of_records_has_a_readme() -> None:
    tracked = subprocess.run(["git", "ls-files", "benchmarks/results"], cwd=ROOT, capture_output=True, text=True)
    names = {Path(line).parts[2] for line in tracked.stdout.splitlines()} if tracked.returncode == 0 else set()
    folders = {p.name for p in (ROOT / "benchmarks/results").iterdir() if p.is_dir()}
    for name in names & folders or folders:
        assert (ROOT / "benchmarks/results" / name / "README.md").exists(), name

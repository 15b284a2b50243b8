"""docs/tutorial.md: its program and every output that needs no measurement are what dagc gives."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dagc.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
SILENT = {"check", "count", "list", "show"}  # commands whose output is the same on every machine


def listings(name: str) -> str:
    """A file of the page, from all its parts."""
    parts = re.findall(rf'^```\{{\.\w+ title="{re.escape(name)}(?: \(continued\))?"\}}\n(.*?)^```$', PAGE, re.M | re.S)
    assert parts, name
    return "\n".join(parts)


def commands() -> list[tuple[list[str], str]]:
    """Each command of the page, with what it printed."""
    consoles = "".join(re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S))
    return [
        (shlex.split(line), output) for line, output in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", consoles, re.M)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("advect.dag", "advect.py"):
        Path(name).write_text(listings(name), encoding="utf-8")
    return tmp_path


def test_the_outputs_are_those_of_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sed,) = (words for words, _ in commands() if words[0] == "sed")
    old, new = sed[1].split("#")[1:3]
    text = Path("advect.dag").read_text(encoding="utf-8")
    assert old in text
    Path("wrong.dag").write_text(text.replace(old, new), encoding="utf-8")
    shown = [(words, output) for words, output in commands() if words[0] == "dagc" and words[1] in SILENT]
    assert {words[1] for words, _ in shown} == SILENT
    for words, output in shown:
        code = main(words[1:])
        printed = capsys.readouterr()
        assert (code, printed.out + printed.err) == (2 if "wrong.dag" in words else 0, output)


def test_the_program_is_formatted(folder: Path) -> None:
    assert main(["fmt", "--check", "advect.dag"]) == 0


def test_the_best_is_emitted_as_shown(folder: Path) -> None:
    (output,) = (output for words, output in commands() if words[:2] == ["dagc", "explore"])
    choices, traversal = re.findall(r"^ +(capture=.*)\n +(.*)$", output, re.M)[0]
    transport = dict(word.split("=") for word in choices.split())["transport"]
    Path("best.txt").write_text(traversal, encoding="utf-8")
    options = ["--transport", transport, "--traversal", "best.txt", "--target", "host", "--no-build", "--quiet"]
    assert main(["compile", "advect.dag", *options, "-o", "out"]) == 0
    assert listings("advect-best/iteration.hpp") in Path("out/iteration.hpp").read_text(encoding="utf-8")

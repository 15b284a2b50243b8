"""The table of Nitro's words: every option, keyword and method in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc.choice.methods import LEARNED
from dagc.cli.main import main
from dagc.ir.plan import Features

PAGE = Path(__file__).parents[2] / "docs/how-to/variants.md"
GRAMMAR = PAGE.parents[2] / "grammar"


def test_each_word_of_nitro_has_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    table = PAGE.read_text().split("## Coming from Nitro")[1]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) == 14
    helps = {}
    for command in ("tune", "compile"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        helps[command] = capsys.readouterr().out
    used = re.findall(r"`dagc (\w+)((?: --[\w-]+)+)( \w+)?`", " ".join(rows))
    assert {name for _, names, _ in used for name in names.split()} >= {"--incremental", "--accuracy", "--objective"}
    for command, names, value in used:
        for name in names.split():
            assert re.search(rf"{name}\b", helps[command]), f"{command} {name}"
        if names.split() == ["--features"]:
            assert value.strip() in {mode.value for mode in Features}
    methods = next(row for row in rows if "svm" in row)
    assert {*re.findall(r"`(\w+)`", methods), "svm"} <= set(LEARNED)
    grammar = "".join(path.read_text() for path in GRAMMAR.rglob("*.lark"))
    for word in ("select", "feature", "require", "with"):
        assert any(f"`{word}" in row or f" {word}" in row for row in rows), word
        assert f'"{word}"' in grammar, word


def test_the_page_of_selectors_describes_every_learner() -> None:
    page = (PAGE.parents[1] / "explanation/selectors.md").read_text(encoding="utf-8")
    table = page.partition("\n## Methods\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` ", table, flags=re.M)) == set(LEARNED)

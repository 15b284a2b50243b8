"""The page about the five sources: each row has a state, each command exists, and those that need no file run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/sources.md"
ROW = re.compile(r"^\| [TKNMS]\d+ \|(?P<theirs>[^|]+)\| (?P<state>\w+) \|(?P<ours>[^|]+)\|$", re.MULTILINE)
COMMANDS = tuple(dict.fromkeys(re.findall(r"`dagc ([^`]+)`", PAGE.read_text())))
QUICK = ("check", "list", "show", "fmt")  # those that run here, where every file is of the repository


def test_each_row_says_present_differs_or_not() -> None:
    rows = list(ROW.finditer(PAGE.read_text()))
    assert len(rows) == len(re.findall(r"^\| [TKNMS]\d+ \|", PAGE.read_text(), re.MULTILINE)) > 140
    assert {row["state"] for row in rows} == {"present", "differs", "not"}
    assert all(row["ours"].strip() for row in rows)


def test_each_option_of_each_command_exists(capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[str, str] = {}
    for command in COMMANDS:
        name, *words = command.split()
        if name not in helps:
            with pytest.raises(SystemExit) as ended:
                main([name, "--help"])
            assert ended.value.code == 0, command
            helps[name] = capsys.readouterr().out
        assert [w for w in words if w[:2] == "--" and w not in helps[name]] == [], command
        assert [w for w in words if "/" in w and not (ROOT / w).exists()] == [], command


def test_quick_commands_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    quick = [c for c in COMMANDS if c.split()[0] in QUICK]
    assert len(quick) >= 8
    failed = [c for c in quick if main(c.split()) != 0]
    assert failed == [], capsys.readouterr().err

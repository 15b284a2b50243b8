"""docs/reference/diagnostics.md lists the codes that there are, and each has a broken program."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BROKEN = ROOT / "tests" / "lang" / "broken"
REPORTERS = {"advise", "error", "fail", "_fail", "warning", "note", "Diagnostic"}
CODE = re.compile(r"[a-z]+(-[a-z]+)*")


@cache
def used_codes() -> set[str]:
    """Codes that the source gives to a reporting call as a literal."""
    found: set[str] = set()
    for path in (ROOT / "dagc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            value = node.args[0].value
            if name in REPORTERS and isinstance(value, str) and CODE.fullmatch(value):
                found.add(value)
    return found


def documented_codes() -> set[str]:
    page = (ROOT / "docs" / "reference" / "diagnostics.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    return {code for row in rows for code in re.findall(r"`([a-z-]+)`", row.split("|")[1])}


def test_every_code_is_documented() -> None:
    assert used_codes() - documented_codes() == set()


def test_every_documented_code_is_used() -> None:
    # The codes of set-ups are chosen at run time, and those of pinned requirements by variables.
    assert {c for c in documented_codes() - used_codes() if not c.startswith("setup-")} == set()


def test_every_code_has_a_broken_program() -> None:
    have = {path.stem.split(".")[0] for path in BROKEN.glob("*.dag")}
    assert {c for c in documented_codes() - have if not c.startswith("setup-")} == set()

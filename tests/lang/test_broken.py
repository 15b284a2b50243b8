"""Broken programs, each with the exact text of its diagnostics.

`broken/CODE.dag` or `broken/CODE.VARIANT.dag` must bring the diagnostic CODE; `.txt` beside it is the whole text.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import Diagnostic, Severity
from dagc.base.resources import names_in
from dagc.base.source import Source
from dagc.choice.types import MODELS
from dagc.ir.constraints import without_effect
from dagc.passes import analysis_of
from tests.conftest import Compare

LEARNERS = names_in("choice/learners")
BROKEN = Path(__file__).parent / "broken"
FILES = sorted(BROKEN.glob("*.dag"))
ONLY_WARNED = {
    "duplicate-edge", "host-loop", "no-effect", "not-received", "not-used-yet", "one-device", "racing-blocks",
    "stale-state", "undecided-overlap", "undeclared-state", "unreachable-op", "unused-array", "unused-axis",
    "unused-communicator", "unused-dag", "unused-kernel", "unused-param", "unused-part", "unused-scalar",
    "unused-tune",
}  # fmt: skip


def findings(path: Path) -> tuple[tuple[Diagnostic, ...], dict[str, Source]]:
    """All that a check of the file finds, in every stage. The file is named as from its own folder."""
    analysis = analysis_of(Source(path.name, path.read_text(encoding="utf-8")))
    idle = () if analysis.graph is None else without_effect([analysis.graph])
    return (*analysis.diagnostics, *idle), dict(analysis.sources)


def test_the_suite_is_large() -> None:
    assert len(FILES) >= 60


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_broken(path: Path, golden: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)  # includes are relative, and the golden text names no folder
    diagnostics, sources = findings(path)
    code = path.stem.split(".")[0]
    found = [d.code for d in diagnostics]
    assert code in found or code == "many", found
    wrong = [d.code for d in diagnostics if d.severity is Severity.ERROR]
    assert (not wrong) is (code in ONLY_WARNED), wrong
    assert all(d.help for d in diagnostics), "every diagnostic says how to fix it"
    text = "\n".join(d.render(sources) for d in diagnostics) + "\n"
    golden(path.with_suffix(".txt"), text.replace(", ".join(MODELS), "MODELS").replace(", ".join(LEARNERS), "LEARNERS"))


def test_many_mistakes_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    diagnostics, _ = findings(BROKEN / "many.dag")
    codes = [d.code for d in diagnostics]
    for code in ("unknown-type", "division-by-zero", "bad-choice", "wrong-arity", "unknown-name"):
        assert code in codes

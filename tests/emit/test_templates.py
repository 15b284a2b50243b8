"""Compiled templates are kept between runs. What cannot be used is compiled again."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from dagc.emit.render import environment


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that were compiled; the cache is empty."""
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    names: list[str] = []
    compile_ = jinja2.Environment.compile

    def recorded(self: jinja2.Environment, source: str, name: str, filename: str) -> object:
        names.append(name)
        return compile_(self, source, name, filename)

    monkeypatch.setattr(jinja2.Environment, "compile", recorded)
    return names


def rendered() -> str:
    """As a new process renders it."""
    values = {"fraction": 22, "exp2": (1, 2), "exp2_fraction": 24, "log2": (1, 2), "log2_fraction": 30}
    return environment.__wrapped__().get_template("choice/scale.h.j2").render(values)


def test_a_template_is_compiled_once(compiled: list[str], tmp_path: Path) -> None:
    first = rendered()
    assert compiled == ["choice/scale.h.j2"]
    assert rendered() == first
    assert compiled == ["choice/scale.h.j2"]
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "templates").iterdir()] == [0]


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 4000])
def test_a_damaged_entry_is_compiled_again(damage: bytes, compiled: list[str], tmp_path: Path) -> None:
    first = rendered()
    (entry,) = (tmp_path / "templates").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    assert rendered() == first
    assert len(compiled) == 2
    assert entry.read_bytes() == whole


def test_an_entry_that_others_can_write_is_not_run(compiled: list[str], tmp_path: Path) -> None:
    rendered()
    (entry,) = (tmp_path / "templates").iterdir()
    entry.chmod(0o620)
    rendered()
    assert len(compiled) == 2


def test_renders_without_a_cache(compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rendered()
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path / "file"))
    assert rendered() == first
    assert len(compiled) == 2

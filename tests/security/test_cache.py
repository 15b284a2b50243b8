"""The build cache gives back what was kept in it, or nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dagc.build.builder import Build, build, cache_directory
from dagc.build.toolchain import find_cxx

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")


def test_a_changed_or_truncated_entry_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DAGC_CXXFLAGS", "-O0")
    source = tmp_path / "main.cpp"
    source.write_text('#include <cstdio>\nint main() { std::puts("right"); }\n')

    def said() -> str:
        return subprocess.run(
            [build(Build([source]), tmp_path / "a")], capture_output=True, text=True, check=True
        ).stdout

    assert said() == "right\n"
    (entry,) = (path for path in (tmp_path / "cache").glob("build/??/*") if path.name != "lock")
    whole = entry.read_bytes()
    for content in (whole.replace(b"right", b"wrong"), whole[:-100], whole[32:], b""):
        entry.write_bytes(content)
        assert said() == "right\n"
        assert entry.read_bytes()[32:] == (tmp_path / "a").read_bytes()
    entry.unlink()
    entry.symlink_to(tmp_path / "a")
    assert said() == "right\n"


def test_only_the_user_may_write_to_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "build").mkdir(parents=True)
    (tmp_path / "cache" / "build").chmod(0o777)
    found = cache_directory()
    assert found is not None
    assert found.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: found.stat().st_uid + 1)  # it is of another user
    assert cache_directory() is None

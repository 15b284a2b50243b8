"""Options and fixtures of all tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

Compare = Callable[[Path, str], None]

# A busy machine makes no test wrong.
settings.register_profile("dagc", deadline=None)
settings.load_profile("dagc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="rewrite golden files instead of comparing with them"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """`golden(path, text)`: the file at `path` holds exactly `text`; with --update-goldens, write it there."""
    update = bool(request.config.getoption("--update-goldens"))

    def compare(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing; write it with --update-goldens"
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
            pytest.fail("\n".join(difference), pytrace=False)

    return compare

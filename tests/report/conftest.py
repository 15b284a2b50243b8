"""A browser for pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """A running browser, with an event loop that no other package could start; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        path = next((found for found in map(shutil.which, NAMES) if found), own if Path(own).exists() else None)
        if path is None:
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()

"""A browser for pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
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


@dataclass
class Opened:
    """A page with what it said and asked for while it was open."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


Open = Callable[..., AbstractContextManager[Opened]]


@pytest.fixture(scope="package")
def window(chromium: Any) -> Open:
    """`with window(file, width, scheme) as opened`: a file in a window of a colour scheme, 900 pixels high. It says
    nothing, and loads nothing but itself. Tests share the windows: each new one starts a process that draws it."""
    windows: dict[tuple[int, str], Any] = {}

    @contextmanager
    def shown(file: Path, width: int = 1280, scheme: str = "light") -> Iterator[Opened]:
        if (width, scheme) not in windows:
            context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            windows[width, scheme] = context.new_page()
        opened = Opened(windows[width, scheme])
        opened.page.goto("about:blank")  # nothing is loaded again where only the part behind # is another
        opened.page.mouse.move(0, 0)
        listeners: dict[str, Callable[[Any], None]] = {
            "console": lambda message: opened.said.append(message.text),
            "pageerror": lambda error: opened.said.append(str(error)),
            "request": lambda asked: opened.asked.append(asked.url),
        }
        for event, listener in listeners.items():
            opened.page.on(event, listener)
        try:
            opened.page.goto(file.as_uri())
            yield opened
        finally:
            for event, listener in listeners.items():
                opened.page.remove_listener(event, listener)
        assert opened.said == []
        assert {url for url in opened.asked if not url.startswith("data:")} == {file.as_uri()}

    return shown

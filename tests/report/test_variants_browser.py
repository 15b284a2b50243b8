"""The page of a tuned file with variants in Chromium: marks tell what they are, by pointer and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagc.study.report import variants_page
from tests.report.conftest import Open
from tests.report.test_browser import contrast
from tests.report.tuned import tuned_file
from tests.tiers import representatives

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("variants") / "report.html"
    path.write_text(variants_page(tuned_file(), "1.2"), encoding="utf-8")
    return path


@pytest.fixture
def page(window: Open, file: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The parameter, where there is one, is the colour scheme."""
    with window(file, scheme=getattr(request, "param", "light")) as opened:
        yield opened.page


def _tip(page: Any) -> str:
    assert page.locator("#tip").is_visible()
    return str(page.locator("#tip").inner_text())


def test_every_plot_is_seen(page: Any) -> None:
    for part in (".scatter svg", ".share.own", ".choice", ".mistakes", ".figures"):
        assert page.locator(part).first.bounding_box()["width"] > 0, part
    assert page.locator(".mark").count() == 79 + page.locator(".legend .mark").count()
    plot = page.locator(".scatter svg").bounding_box()
    for mark in page.locator(".scatter .mark").all():
        box = mark.bounding_box()
        assert plot["x"] <= box["x"]
        assert box["x"] + box["width"] <= plot["x"] + plot["width"]


def test_variants_differ_in_shape_as_well_as_in_colour(page: Any) -> None:
    drawn = (
        page.locator(".legend")
        .first.locator(".mark")
        .evaluate_all(
            "(marks) => marks.map((m) => [getComputedStyle(m).fill, m.querySelector('path').getAttribute('d')])"
        )
    )
    assert len(drawn) >= 2
    assert len({colour for colour, _ in drawn}) == len({shape for _, shape in drawn}) == len(drawn)


def test_marks_tell_their_input_by_pointer_and_by_keyboard(page: Any) -> None:
    wrong = page.locator(".scatter .mark.wrong").first
    wrong.scroll_into_view_if_needed()
    wrong.hover(force=True)
    assert "times the best" in _tip(page)
    page.keyboard.press("Escape")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.scatter .mark')"):
            break
    first = _tip(page)
    assert "rows" in first
    page.keyboard.press("ArrowRight")
    assert _tip(page) != first
    page.keyboard.press("ArrowLeft")
    assert _tip(page) == first
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement === [...document.querySelectorAll('.scatter .mark')].at(-1)")
    assert page.locator(".scatter .mark[tabindex='0']").count() == 1


@pytest.mark.parametrize("page", representatives(["light", "dark"], "light"), indirect=True)
def test_it_can_be_read_and_printed(page: Any, tmp_path: Path) -> None:
    for selector in ("h1", ".op p", ".note", ".scatter .tick", ".mistakes td", ".figures th", ".row-label"):
        assert contrast(page, selector) >= 4.5, selector
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")

"""The page of `dagc show` in Chromium: choosing, zooming, keyboard, light and dark, a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagc import api
from tests.report.conftest import Open
from tests.report.test_browser import contrast

pytestmark = pytest.mark.browser
_COLOURS = (".source .comment", ".source .keyword", ".source .code")
SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dag")
    for name in ("spmv", "heat"):
        (folder / f"{name}.html").write_text(api.show(SAMPLES / f"{name}/{name}.dag", format="html"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("spmv", "heat")}


@pytest.fixture
def page(window: Open, pages: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Any]:
    """The SpMV, in a window of the given width and colour scheme."""
    with window(pages["spmv"], *getattr(request, "param", (1400, "light"))) as opened:
        yield opened.page


def _details(page: Any) -> str:
    shown = page.locator("#details article:visible")
    assert shown.count() == 1
    return str(shown.inner_text())


def test_an_op_tells_what_it_does_and_shows_its_line(page: Any) -> None:
    page.locator('g.box[aria-label="gpu yr"]').click()
    shown = _details(page)
    for words in ("any of 2 streams", "writes y_r", "4 * n bytes", "wait_recv", "RAW", "77:3"):
        assert words in shown
    assert page.locator("#s0-77.picked").count() == 1
    line, box = page.locator("#s0-77").bounding_box(), page.locator(".source").bounding_box()
    assert box["y"] <= line["y"] < box["y"] + box["height"]  # scrolled to
    assert page.locator("g.arrow.near").count() == 2
    address = page.url
    page.goto("about:blank")
    page.goto(address)  # the address keeps the choice
    assert _details(page) == shown


def test_an_edge_tells_why_it_is_there(page: Any) -> None:
    edge = page.locator("tr[data-edge]", has_text="wait_recv → yr").get_attribute("data-edge")
    path = page.locator(f'g[data-about="{edge}"] .wide-line')
    middle = path.evaluate(
        """(path) => { const at = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());
        return [at.x, at.y]; }"""
    )
    page.mouse.click(*middle)
    shown = _details(page)
    assert "wait_recv writes the staging buffer of x_r, then yr reads it" in shown
    assert "x.recv -> yr 81:20" in shown
    assert page.locator("g.arrow.picked").count() == 1
    assert page.locator("g.box.near").count() == 2


def test_the_text_leads_to_its_ops(page: Any) -> None:
    page.locator("#s0-76 button").click()
    assert page.locator("#details article:visible h3").inner_text().split() == ["gpu", "yl", "76:3"]


def test_all_of_it_works_by_keyboard(page: Any) -> None:
    page.locator('g.box[aria-label="mpi post_send"]').focus()
    page.keyboard.press("Enter")
    assert "post_send" in _details(page)
    page.keyboard.press("Escape")
    assert page.locator("#details article:visible").count() == 0
    before = page.locator("svg.dag").get_attribute("viewBox")
    page.locator("svg.dag").focus()
    for key in ("+", "ArrowRight"):
        page.keyboard.press(key)
        assert page.locator("svg.dag").get_attribute("viewBox") != before
    page.keyboard.press("0")
    assert page.locator("svg.dag").get_attribute("viewBox") == before


def test_it_is_dragged_and_zoomed(page: Any) -> None:
    svg = page.locator("svg.dag")
    before = [float(n) for n in svg.get_attribute("viewBox").split()]
    box = svg.bounding_box()
    x, y = box["x"] + 15, box["y"] + 15
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y + 50, steps=4)
    page.mouse.up()
    moved = [float(n) for n in svg.get_attribute("viewBox").split()]
    assert moved[0] < before[0]
    assert moved[1] < before[1]
    assert page.locator("#details article:visible").count() == 0  # no click
    page.locator('[data-zoom="1.25"]').click()
    assert float(svg.get_attribute("viewBox").split()[2]) < before[2]
    page.get_by_role("button", name="fit").click()
    assert [float(n) for n in svg.get_attribute("viewBox").split()] == before


@pytest.mark.parametrize("page", [(1400, "light"), (1400, "dark"), (380, "light")], indirect=True)
def test_it_can_be_read(page: Any) -> None:
    page.locator('g.box[aria-label="gpu yr"]').click()
    chosen = "article:not([hidden])"
    for selector in ("h1", ".note", f"{chosen} .why.hazard", f"{chosen} a.at", ".edges td", *_COLOURS):
        assert contrast(page, selector) >= 4.5, selector
    # Nothing but what scrolls by itself is wider than the page.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("svg.dag").bounding_box()["width"] > 200


def test_loops_are_shown_folded_and_unrolled(window: Open, pages: dict[str, Path]) -> None:
    with window(pages["heat"], 1400) as opened:
        page = opened.page
        assert page.locator('g.box[aria-label="gpu inner[2]"]').is_visible()
        page.select_option("#view", "one")
        assert not page.locator('g.box[aria-label="gpu inner[2]"]').is_visible()
        page.locator('g.box[aria-label="gpu inner[t]"]').click()
        assert "(1 round earlier)" in _details(page)
        assert page.locator("g.arrow.carried:visible").count() > 0

"""The report in Chromium, without a window: it loads nothing, all of it is seen, and pointing, choosing, closing work.

Needs the package playwright and a Chromium: the system's, or the one that `playwright install chromium` fetches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagc.ir.constraints import configuration_of
from dagc.report.html import as_html
from tests.data.h200 import h200_graph, h200_results
from tests.report.conftest import Open, Opened
from tests.report.data import h200_learned, h200_traced
from tests.report.test_html import SECTIONS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all 2036, as a file."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    graphs = {configuration_of(h200_graph()): h200_graph()}
    path.write_text(as_html(h200_traced(), graphs, h200_learned(), file="results.db"), encoding="utf-8")
    return path


@pytest.fixture
def opened(window: Open, file: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The report; the parameter, where there is one, is the colour scheme."""
    with window(file, scheme=getattr(request, "param", "light")) as opened:
        yield opened


def _seen(page: Any, selector: str) -> Any:
    """The first of these, scrolled to; what scrolling sets off (it hides the tooltip) is over."""
    found = page.locator(selector).first
    found.scroll_into_view_if_needed()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return found


def _tip(page: Any) -> str:
    assert page.locator("#tip").is_visible()
    return str(page.locator("#tip").inner_text())


def test_all_sections_and_plots_are_seen(opened: Opened) -> None:
    page = opened.page
    for name in SECTIONS:
        box = page.locator(f"section#{name}").bounding_box()
        assert box["width"] > 1000, name
        assert box["height"] > 60, name
    for plot in ("#times", "#convolution", "#tree-chart", "#distribution", "#convergence", "#timeline svg", "#dag svg"):
        box = page.locator(plot).first.bounding_box()
        assert box["width"] > 400, plot
        assert box["height"] > 80, plot
    # Nothing but what scrolls by itself is wider than the page.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_text_within_the_tree_fits_its_boxes(opened: Opened) -> None:
    overhang = opened.page.evaluate("""() => [...document.querySelectorAll("#tree-chart .question, #tree-chart .leaf")]
        .map((g) => Math.max(...[...g.querySelectorAll("text")].map((t) => t.getBBox().x + t.getBBox().width))
                    - (g.querySelector(".box").getBBox().x + g.querySelector(".box").getBBox().width))""")
    assert max(overhang) <= 0


def test_pointing_at_the_times_tells_the_implementation(opened: Opened) -> None:
    page = opened.page
    ranked = h200_results().measured()
    _seen(page, "#times")
    box = page.locator("#times").bounding_box()
    left, right = (float(page.locator("#times").get_attribute(f"data-{side}")) for side in ("left", "right"))
    scale = box["width"] / 1080
    for place in (0, 2035):
        x = box["x"] + scale * (left + (right - left) * place / 2035)
        page.mouse.move(x, box["y"] + box["height"] * 0.6)
        shown = _tip(page)
        assert f"{place + 1} of 2036" in shown
        assert ranked[place].traversal in shown
        page.mouse.click(x, box["y"] + box["height"] * 0.6)
        assert page.locator("#picked-text").inner_text() == ranked[place].traversal
    page.mouse.move(5, 5)
    assert not page.locator("#tip").is_visible()


def test_the_times_can_be_walked_with_the_keyboard(opened: Opened) -> None:
    page = opened.page
    _seen(page, "#times").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert "2035 of 2036" in _tip(page)
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_bars_of_the_timeline_tell_what_they_are(opened: Opened) -> None:
    _seen(opened.page, "#timeline .bar.gpu").hover()
    shown = _tip(opened.page)
    assert "stream 0, from" in shown
    assert "long" in shown


def test_a_rank_is_chosen(opened: Opened) -> None:
    page = opened.page
    shown = "[...document.querySelectorAll('.rank')].filter((e) => e.offsetHeight > 0).map((e) => e.dataset.rank)"
    assert page.evaluate(shown) == ["0", "0"]
    page.select_option("#rank", "3")
    assert page.evaluate(shown) == ["3", "3"]


def test_branches_of_the_tree_close_and_open(opened: Opened) -> None:
    page = opened.page
    leaves = (
        "[...document.querySelectorAll('#tree-chart .leaf')].filter((e) => e.getBoundingClientRect().width > 0).length"
    )
    all_leaves = page.evaluate(leaves)
    assert all_leaves > 4
    root = page.locator("#tree-chart .question").first
    root.click()
    assert page.evaluate(leaves) == 0
    assert root.get_attribute("aria-expanded") == "false"
    root.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(leaves) == all_leaves


def test_what_is_copied_is_the_text(opened: Opened) -> None:
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("[data-copy=best-text]").click()
    page.wait_for_function("document.querySelector('[data-copy=best-text]').textContent === 'copied'")
    assert page.evaluate("navigator.clipboard.readText()") == h200_results().measured()[0].traversal


def contrast(page: Any, selector: str) -> float:
    """Of an element's text with what is behind it (WCAG 2)."""
    ratio = page.locator(selector).first.evaluate("""(e) => {
        const channels = (c) => c.match(/[\\d.]+/g).map(Number);
        const light = (c) => { const [r, g, b] = channels(c).map((v) => {
            const s = v / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        let behind = e;
        const clear = (e) => (channels(getComputedStyle(e).backgroundColor)[3] ?? 1) < 1;
        while (behind && clear(behind)) behind = behind.parentElement;
        const style = getComputedStyle(e);
        const [a, b] = [light(e instanceof SVGElement ? style.fill : style.color),
                        light(getComputedStyle(behind ?? document.body).backgroundColor)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }""")
    return float(ratio)


@pytest.mark.parametrize("opened", ["light", "dark"], indirect=True)
def test_text_can_be_read_in_light_and_in_dark(opened: Opened) -> None:
    page = opened.page

    def brightness() -> int:
        return sum(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"))

    for _ in range(2):
        for selector in (
            "h1",
            "#rules p",
            ".note",
            "#times .tick",
            "#dag svg text",
            ".chip.gpu",
            ".chip.sync",
            ".card li",
        ):
            assert contrast(page, selector) >= 4.5, selector
        before = brightness()
        page.locator("#theme").click()
        assert (brightness() > 3 * 128) != (before > 3 * 128)


def test_it_can_be_printed(opened: Opened, tmp_path: Path) -> None:
    opened.page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_best_is_drawn_where_it_is(opened: Opened) -> None:
    """A picture of the sorted times: its pixels rise from the lower left to the upper right."""
    pixels = opened.page.evaluate("""async () => {
        const svg = document.querySelector("#times").cloneNode(true);
        svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
        svg.querySelectorAll(":not(.dots)").forEach((e) => { if (!e.querySelector(".dots")) e.remove(); });
        for (const path of svg.querySelectorAll(".dots")) {
            path.setAttribute("style", "stroke:#000;stroke-width:4;stroke-linecap:round;fill:none");
            path.removeAttribute("clip-path");
        }
        const image = new Image();
        image.src = "data:image/svg+xml," + encodeURIComponent(new XMLSerializer().serializeToString(svg));
        await image.decode();
        const canvas = new OffscreenCanvas(1080, 400), pen = canvas.getContext("2d");
        pen.drawImage(image, 0, 0, 1080, 400);
        const { data } = pen.getImageData(0, 0, 1080, 400);
        return [100, 560, 1050].map((x) => {
            for (let y = 399; y >= 0; y--) if (data[4 * (1080 * y + x) + 3] > 128) return y;
            return -1; });
    }""")
    assert 400 > pixels[0] > pixels[1] > pixels[2] > 0

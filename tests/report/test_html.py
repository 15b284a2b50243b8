"""The report is one valid page that loads nothing, escapes everything, and says what it does not know."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dagc import api
from dagc.ir.constraints import configuration_of
from dagc.report import html, si
from dagc.report.charts import groups_of, points_of
from dagc.report.html import as_html
from dagc.store.read import load
from dagc.store.results import ProgramRecord, Results, Taken, ranking
from tests.data.h200 import h200_graph, h200_results
from tests.report.data import h200_learned, h200_traced, learned_of, several_configurations, with_traces

VOID = {"meta", "link", "br", "hr", "img", "input", "source", "wbr"}
SECTIONS = [
    "best", "timeline", "classes", "rules", "tree", "configurations", "search", "dag", "failures", "provenance",
]  # fmt: skip


class Page(HTMLParser):
    """Elements must be closed in order, ids be unique; collects what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._attributes(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._attributes(attrs)

    def _attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), attrs
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "action"):
                self.loads.append(str(value))
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """Words with one blank between them; narrow spaces within numbers stay."""
        return re.sub(r"[ \n\t]+", " ", " ".join(self.words))


def page_of(results: Results, *, learn: bool = True, file: str = "results.db") -> str:
    """The page of results of the SpMV with one configuration."""
    graphs = {configuration_of(h200_graph()): h200_graph()}
    learned = None
    if learn:
        learned = (
            h200_learned() if results.implementations == h200_results().implementations else learned_of(results, graphs)
        )
    return as_html(results, graphs, learned, file=file, version="1.2.3")


def few(count: int, passes: int = 5) -> Results:
    """The first of the measurements on the H200s."""
    kept = h200_results().implementations[:count]
    return replace(
        h200_results(),
        implementations=tuple(replace(i, samples=i.samples[:passes], taken=i.taken[:passes]) for i in kept),
    )


@pytest.fixture(scope="module")
def whole() -> str:
    return page_of(h200_traced())


def test_the_page_of_2036_is_valid_small_and_loads_nothing(whole: str) -> None:
    page = Page(whole)
    assert set(SECTIONS) <= set(page.ids)
    assert len(whole.encode()) < 1_500_000
    assert all(target.startswith("#") or target == "data:," for target in page.loads)
    assert page.handlers == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", whole, re.DOTALL))
    assert "@import" not in styles
    assert "url(" not in styles


def test_equal_results_give_equal_pages(whole: str) -> None:
    assert page_of(h200_traced()) == whole


def test_the_headline_says_what_was_measured(whole: str) -> None:
    text = Page(whole).text
    times = [i.value() for i in h200_results().measured()]
    assert si.seconds(times[0]) in text
    assert si.times(times[-1] / times[0]) in text
    assert f"{si.count(2036)} of {si.count(2036)}" in text
    assert si.percent(h200_results().noise) in text


def test_every_class_and_rule_is_there(whole: str) -> None:
    text, learned = Page(whole).text, h200_learned()
    assert len(learned.classes.classes) >= 3
    assert "Probability of 3 classes by chance alone: " in text
    for each in learned.classes.classes:
        assert (
            f"{si.count(each.count)} implementations, {si.seconds(each.fastest)} to {si.seconds(each.slowest)}" in text
        )
    for rule_set in learned.rule_sets:
        for rule in rule_set.rules:
            assert rule.text in text


def test_what_the_script_tells_is_the_measurement(whole: str) -> None:
    data = json.loads(re.search(r'id="data">(.*?)</script>', whole, re.DOTALL)[1])  # type: ignore[index]
    ranked = h200_results().measured()
    assert len(data["points"]) == 2036
    for place in (0, 1000, 2035):
        traversal, configuration, seconds, interval = data["points"][place]
        assert (traversal, seconds) == (ranked[place].traversal, si.seconds(ranked[place].value()))
        assert data["configurations"][configuration] == "transport=mpi_host"
        assert "5 measurements" in interval


def test_without_a_trace_there_is_no_timeline() -> None:
    shown = page_of(h200_results())
    assert "Timeline of" not in shown
    assert Page(shown).text.count("No trace was recorded") == 2
    assert 'id="rank"' not in shown


def test_ranks_that_were_traced_can_be_chosen(whole: str) -> None:
    assert re.findall(r'<option value="(\d+)">', whole) == ["0", "1", "2", "3"]
    assert whole.count('class="rank"') == 8
    many = page_of(with_traces(few(40), h200_graph(), ranks=20))
    assert many.count('class="rank"') == 16
    assert Page(many).text.count("12 more ranks were traced") == 2


def test_several_configurations_runs_and_failures() -> None:
    results, graphs = several_configurations()
    shown = as_html(results, graphs, learned_of(results, graphs), file="my results.db")
    page = Page(shown)
    for transport in ("mpi_host", "mpi_cuda", "nccl", "peer"):
        assert f"transport={transport}" in page.text
    assert "26 implementations could not be measured" in page.text
    assert "hang: rank 2 in `yl` (entry 3 of 14)" in page.text
    assert "run 2: mcts-min, seed 1" in page.text
    assert "dagc best 'my results.db' -o spmv-best" in page.text
    assert "--budget 200" in page.text
    assert shown.count("<svg xmlns") == 3  # three different DAGs: nccl and peer have the same


HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'&"


def test_text_of_the_program_is_never_markup() -> None:
    found = few(3)
    program = ProgramRecord(HOSTILE, HOSTILE, HOSTILE, ((HOSTILE, HOSTILE),), ((HOSTILE, HOSTILE),))
    machine = replace(found.runs[0].machine, hosts=(HOSTILE,), cpu=HOSTILE, mpi=HOSTILE, facts={HOSTILE: HOSTILE})
    run = replace(found.runs[0], machine=machine, strategy=HOSTILE, revision=HOSTILE, options={HOSTILE: HOSTILE})
    failed = replace(found.implementations[2], samples=(), taken=(), failure=HOSTILE)
    hostile = replace(found, program=program, runs=(run,), implementations=(*found.implementations[:2], failed))
    shown = page_of(hostile, file=HOSTILE)
    page = Page(shown)
    assert "img" not in page.tags
    assert page.handlers == []
    assert shown.count("</script>") == 2
    assert page.text.count("onerror=alert(1)") > 8  # shown as text


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("passes", [1, 5])
def test_however_little_was_measured_there_is_a_page(count: int, passes: int) -> None:
    results = few(count, passes)
    page = Page(page_of(results, learn=count > 0))
    assert set(SECTIONS) <= set(page.ids)
    if count == 0:
        assert "No implementation could be measured" in page.text
        assert "Too few implementations were measured for rules" in page.text
    if count and passes == 1:
        assert "1 measurement, no interval" in page.text


def test_noise_that_is_not_known_is_not_drawn() -> None:
    shown = page_of(replace(few(50), noise=math.nan))
    assert 'class="floor"' not in shown
    assert "unknown" in Page(shown).text
    assert 'class="floor"' in page_of(few(50))


def test_sentences_are_set_apart() -> None:
    results = few(20)
    single = replace(results.implementations[0], samples=results.implementations[0].samples[:1], taken=(Taken(0, 0),))
    others = results.implementations[1:]
    fast = replace(single, samples=tuple(replace(m, value=m.value / 10) for m in single.samples))
    page = page_of(replace(results, implementations=(fast, *others)), learn=False)
    assert "may be low by chance. " in page
    assert not re.search(r"\.<strong>", page)


# ---- what is hard to read ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the halo exchange as it was searched on four H200s."""
    results = Path(__file__).parents[2] / "benchmarks/results/2026-11-21-4xh200-explore/halo-all-mcts-min.db"
    page = tmp_path_factory.mktemp("page") / "halo.html"
    (order := page.with_suffix(".txt")).write_text(ranking(load(results))[1].traversal.replace(" ", "\n"))
    api.report(results, page, original=str(order))
    return page.read_text()


def test_the_order_of_an_application_stands_beside_the_best(recorded: str) -> None:
    assert re.search(
        r"The order of the application takes [\d.]+ us \(.*\); the best has 0\.\d+ of it \(.* pairs\): the best has",
        recorded,
    )


def test_many_entries_stand_in_numbered_columns(recorded: str) -> None:
    lists = re.findall(r'<ol class="(chips[^"]*)".*?</ol>', recorded, re.DOTALL)
    sizes = [body.count("<li") for body in re.findall(r'<ol class="chips.*?</ol>', recorded, re.DOTALL)]
    assert ["many" in look.split() for look in lists] == [size > 24 for size in sizes]
    assert max(sizes) > 40


def test_options_are_named_as_on_the_command_line(recorded: str) -> None:
    assert ">--max</th>" in recorded
    assert ">--max-configurations</th>" in recorded
    assert "option most" not in recorded


def test_pictures_of_the_program_name_every_transport_that_looks_so(recorded: str) -> None:
    captions = re.findall(r"<summary>(DAG[^<]*|[^<]*transport[^<]*)</summary>", recorded)
    dag = recorded[recorded.index('id="dag"') :]
    assert "transport=nccl" in dag
    assert "transport=peer" in dag, captions


def test_a_legend_tells_something_apart() -> None:
    results, _ = several_configurations()
    groups = groups_of(points_of(results))
    assert len(html._legend(groups)) > 1
    one = [replace(g, colour=n % 2) for n, g in enumerate(4 * groups[:1])]
    assert html._legend(one) == []


def test_a_program_without_git_is_not_said_to_be_outside_of_it(whole: str) -> None:
    assert "not under git" not in whole.replace("not in a git repository", "")
    assert "not known: not in a git repository" in whole

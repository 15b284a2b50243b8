"""Which implementation is the best: one answer, whoever is asked."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc import api
from dagc.ir.traversal import traversal_text
from dagc.lab.candidate import ConfiguredSpace
from dagc.lab.engine import Summary
from dagc.lab.orders import Orders
from dagc.recipes.explore import explore
from dagc.report import si
from dagc.report.si import TIMES
from dagc.space import Space
from dagc.stages.options import ExploreOptions
from dagc.store.records import load
from dagc.store.results import CONFIRMED, FASTEST, TWICE, Results, rank, ranking, ties, timed
from dagc.study import outcome
from dagc.study.explanation import Subject
from dagc.study.loaded import Loaded, learn
from tests.data.h200 import SPMV, h200_file
from tests.tiers import representatives

RECORDS = Path(__file__).parents[2] / "benchmarks/results/2026-11-21-4xh200-explore"


@pytest.fixture(scope="module")
def misled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file whose lowest median is a single time, below all that were measured five times."""
    folder = tmp_path_factory.mktemp("misled")
    options = ExploreOptions(
        strategy="random", budget=120, confirm=6, seed=22, replay=str(h200_file(folder)), transport="mpi_host",
        capture="off", quiet=True,
    )  # fmt: skip
    done = explore(SPMV, folder / "found.db", options)
    assert done is not None
    results = load(folder / "found.db")
    assert done.traversal == ranking(results)[0].traversal
    assert len(results.measured()[0].samples) == 1
    assert done.summary.value > results.measured()[0].value()
    return folder / "found.db"


def _winners(path: Path, folder: Path) -> dict[str, str]:
    """The traversal that each of the readers of a results file calls the best."""
    loaded = Loaded(path)
    plan = api.best(path, only_print=True)
    rules = json.loads(api.rules(path, form="json"))
    api.report(path, folder / "page.html")
    page = (folder / "page.html").read_text()
    subject = Subject(loaded)
    graph = subject.domain.spaces[subject.best.space].graph
    domain = Orders([ConfiguredSpace(c, Space(g)) for c, g in loaded.graphs.items()])
    nothing = Summary(None, math.nan, math.nan, math.nan, 0, 0, math.nan, 0, 0, 0, None, 0.0, 0.0, False)
    settled = outcome.settled(nothing, domain, loaded.results)
    assert settled.best is not None
    return {
        "best": re.search(r"^traversal +(.*)$", plan, re.MULTILINE)[1],  # type: ignore[index]
        "rules": rules["best"]["traversal"],
        "report": re.search(r'<pre id="best-text">(.*?)</pre>', page)[1],  # type: ignore[index]
        "fastest of the report": re.search(r'<td>0</td>.*?<td class="traversal">(.*?)</td>', page)[1],  # type: ignore[index]
        "explain": traversal_text(subject.best.traversal, graph),
        "explore": traversal_text(settled.best.traversal, domain.spaces[settled.best.space].graph),
    }


@pytest.mark.parametrize(
    "name",
    representatives(["misled", "spmv-150000-peer.db", "halo-mpi_cuda-random.db"], "misled", "spmv-150000-peer.db"),
)
def test_every_reader_names_the_same_best(name: str, misled: Path, tmp_path: Path) -> None:
    path = misled if name == "misled" else RECORDS / name
    found = _winners(path, tmp_path)
    expected = ranking(load(path))[0].traversal
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize("name", ["misled", "spmv-150000-peer.db"])
def test_every_reader_prints_one_estimate(name: str, misled: Path, tmp_path: Path) -> None:
    """`explore`, `best`, `rules`, `explain` and each place of the page; ratios are to it, too."""
    path = misled if name == "misled" else RECORDS / name
    loaded, results = Loaded(path), load(path)
    estimate = {i.id: found for i, found in timed(results)}[ranking(results)[0].id]
    assert estimate.shrunk == (name == "misled")
    domain = Orders([ConfiguredSpace(c, Space(g)) for c, g in loaded.graphs.items()])
    nothing = Summary(None, math.nan, math.nan, math.nan, 0, 0, math.nan, 0, 0, 0, None, 0.0, 0.0, False)
    settled = outcome.settled(nothing, domain, results)
    seconds = json.loads(api.rules(path, form="json"))["best"]["seconds"]
    assert {settled.value, Subject(loaded).value, seconds} == {estimate.value}
    printed = re.search(r"^best +([\d.]+) us", api.best(path, only_print=True))
    assert printed is not None
    assert f"{estimate.value * 1e6:.2f}" == f"{float(printed[1]):.2f}"
    api.report(path, tmp_path / "page.html")
    page, worst = (tmp_path / "page.html").read_text(), timed(results)[-1][1].value
    shown = [
        re.search(pattern, page, re.DOTALL)[1]  # type: ignore[index]
        for pattern in (
            r'<strong class="big">(.*?)</strong>', r'<td>0</td><td class="number">(.*?)</td>',
            r'data-tip="best: (.*?)"', r"The best: (.*?) as measured", r"<dt>best</dt>\s*<dd>(.*?)<",
        )
    ]  # fmt: skip
    assert shown == [TIMES.text(estimate.value)] * 5
    assert settled.worst == worst
    assert si.times(worst / estimate.value) in page


def test_classes_are_drawn_between_medians(misled: Path) -> None:
    """Estimates of what was confirmed are shrunk to one another; beside the others they would look like a class."""
    loaded, results = Loaded(misled), load(misled)
    medians = sorted(i.value(results.reference) for i in results.measured())
    assert [sample.value for sample in loaded.samples()] == medians
    shrunk = {found.value for _, found in timed(results) if found.shrunk}
    assert len(shrunk) == 6
    assert not shrunk & set(medians)


def test_the_order_of_what_was_confirmed_is_that_of_its_estimates(misled: Path) -> None:
    """They are shrunk together: number 1 does not seem faster than the best."""
    results = load(misled)
    of = {i.id: found.value for i, found in timed(results)}
    values = [of[i.id] for i in ranking(results)]
    assert values == sorted(values)
    assert len(set(values)) > 1


def test_the_page_marks_the_best_and_says_why_lower_times_are_not(misled: Path, tmp_path: Path) -> None:
    api.report(misled, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    results = load(misled)
    ranked = {i.id for i in ranking(results)}
    best = next(found for i, found in timed(results) if i.id == ranking(results)[0].id)
    lower = sum(found.value < best.value for i, found in timed(results) if i.id not in ranked)
    assert lower
    assert "1 other has a lower time" in page if lower == 1 else f"{lower} others have a lower time" in page
    assert f"best: {best.value * 1e6:.3g}" in page.replace("\u202f", " ")
    assert page.count('class="chosen"') == 1


def test_rules_and_the_page_give_the_same_reasons(tmp_path: Path) -> None:
    """A boundary is left out for the noise here, and one for a class that may be chance."""
    path = RECORDS / "spmv-15000000-mpi_host.db"
    api.report(path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    dropped = learn(Loaded(path)).classes.dropped
    assert {b.chance > 0 for b in dropped} == {True, False}
    text = api.rules(path, everything=True)
    for boundary in dropped:
        assert f"not drawn: {boundary.why_dropped}." in text
        assert boundary.why_dropped in page


def _best(*series: tuple[float, ...]) -> int:
    return rank(range(len(series)), lambda i: series[i])[0]


def test_a_single_low_time_does_not_win_over_confirmed_ones() -> None:
    assert _best((5.0,), (6.0, 6.0, 6.0, 6.0, 6.0), (6.1, 6.1, 6.1, 6.1, 6.1)) == 1
    assert _best((5.0,), (6.0,), (5.5,)) == 0


def test_a_pass_that_ended_early_chooses_nothing_slow() -> None:
    """Only a slow one has two measurements: that makes it no better."""
    many = [(10.0 + i,) for i in range(40)]
    assert _best((5.0,), *many, (60.0, 60.0)) == 0
    assert _best((5.0, 9.0), *many, (60.0, 60.0)) == 0


@given(st.lists(st.lists(st.floats(1, 9), min_size=1, max_size=7).map(tuple), min_size=1, max_size=40))
def test_what_is_ranked_has_enough_measurements_and_is_sorted(series: list[tuple[float, ...]]) -> None:
    ranked = rank(range(len(series)), lambda i: series[i])
    medians = [median(series[i]) for i in ranked]
    assert ranked
    assert medians == sorted(medians)
    first = sorted(series, key=lambda times: times[0])[:FASTEST]
    enough = min(CONFIRMED, max(map(len, first)))
    assert all(i in ranked for i in range(len(series)) if len(series[i]) >= enough)
    fewer = [i for i in ranked if len(series[i]) < enough]  # measured repeatedly, and faster beyond the noise
    assert all(len(series[i]) >= TWICE for i in fewer)
    assert ranked[: len(fewer)] == tuple(fewer)


def test_ties_are_intervals_that_overlap() -> None:
    assert ties([(10.0, 11.0), (10.9, 12.0), (11.5, 12.5)]) == 1
    assert ties([]) == 0


def test_ties_of_single_times_go_by_the_noise() -> None:
    singles = [(100.0,), (103.0,), (120.0,)]
    assert ties(singles) == 0
    assert ties(singles, 0.02) == 1


def test_what_failed_once_is_never_the_best(misled: Path) -> None:
    from dataclasses import replace

    results = load(misled)
    best = ranking(results)[0]
    failed = replace(best, failure="wrong result: y differs")
    others = tuple(failed if i.id == best.id else i for i in results.implementations)
    changed: Results = replace(results, implementations=others)
    assert best.id not in [i.id for i in ranking(changed)]
    assert best.id not in [i.id for i in changed.measured()]


def test_orders_of_programs_with_different_waits_are_read() -> None:
    """`put_wait` changes ops, and exists only where it is asked for."""
    loaded = Loaded(RECORDS.parent / "2026-11-29-2xh200-search/jacobi-2048.db")
    put = [e for e in loaded.samples() if e.configuration["transport"] == "put"]
    names = {str(e.configuration.get("put_wait", "op")): {op.name for op in e.graph.ops} for e in put}
    assert "halo[t]" in names["op"]
    assert "halo[t]" not in names["reader"]

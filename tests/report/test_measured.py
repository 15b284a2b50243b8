"""What the report derives: intervals, ties, labels, colours, and how a search went."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.report.charts import COLOURS, common_decisions, curves_of, groups_of, label, points_of
from dagc.store.results import Implementation, ImplementationId, ProgramRecord, Results, Taken, ranking
from tests.data.h200 import RUN, h200_results

NAN = math.nan
PROGRAM = ProgramRecord("p", "p.dag", "00", (("p.dag", "program p"),), ())
HOST = Choice((("streams", 2), ("transport", "mpi_host")))


def results(rows: list[tuple[str, list[tuple[int, float]]]], configurations: list[Choice] | None = None) -> Results:
    """Implementations with (order, seconds) of each measurement; all of one run."""
    made = tuple(
        Implementation(
            ImplementationId(i), configurations[i] if configurations else HOST, text,
            tuple(Sample(t) for _, t in times), taken=tuple(Taken(0, order) for order, _ in times),
        )
        for i, (text, times) in enumerate(rows)
    )  # fmt: skip
    return Results(PROGRAM, (RUN,), made)


def test_the_choice_may_rise_when_a_lucky_time_had_misled() -> None:
    found = results([("a", [(0, 10.0), (3, 10.0), (4, 10.0)]), ("b", [(1, 8.0), (2, 20.0), (5, 20.0)])])
    (curve,) = curves_of(found)
    assert curve.measured == (10.0, 8.0, 20.0, 10.0, 10.0, 20.0)
    assert curve.lowest == ((1, 10.0), (2, 8.0))
    # b was chosen for its 8, though it is worth 20; when a has two times as well, its median is the lower one.
    assert curve.choice == ((1, 10.0), (2, 20.0), (4, 10.0))


def test_each_run_has_a_curve_of_its_own() -> None:
    a = Implementation(ImplementationId(0), HOST, "a", (Sample(2.0), Sample(4.0)), "", (Taken(0, 0), Taken(1, 1)))
    curves = curves_of(Results(PROGRAM, (RUN, RUN), (a,)))
    assert [(c.run, c.measured, c.choice) for c in curves] == [(0, (2.0,), ((1, 3.0),)), (1, (4.0,), ((1, 3.0),))]


def test_the_last_choice_is_the_best_of_a_full_exploration() -> None:
    found = h200_results()
    (curve,) = curves_of(found)
    assert len(curve.measured) == 2036 * 5
    assert curve.choice[-1][1] == found.measured()[0].value()


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(1, 9)), min_size=1, max_size=60))
@example([(0, 1), (0, 3), (0, 3), (1, 1), (1, 2), (2, 2), (2, 2)])  # the second of those measured twice comes first
def test_the_choice_is_that_of_the_ranking_after_every_measurement(rows: list[tuple[int, int]]) -> None:
    """Each of few implementations, some often: the measurements of a search and of passes, in any order."""
    times: dict[int, list[tuple[int, float]]] = {}
    for order, (key, seconds) in enumerate(rows):
        times.setdefault(key, []).append((order, float(seconds)))
    (curve,) = curves_of(results([(f"t{key}", mine) for key, mine in sorted(times.items())]))
    assert curve.choice[-1][1] == ranking(results([(f"t{k}", mine) for k, mine in sorted(times.items())]))[0].value()


def test_labels_name_what_differs() -> None:
    nccl = Choice((("streams", 2), ("transport", "nccl")))
    common = common_decisions([HOST, nccl])
    assert common == {"streams": "2"}
    assert label(nccl, common) == "transport=nccl"
    assert label(HOST, common_decisions([HOST])) == "transport=mpi_host"


@pytest.mark.parametrize("many", [COLOURS, COLOURS + 4])
def test_more_configurations_than_colours_share_them_by_transport(many: int) -> None:
    configurations = [Choice((("block", i), ("transport", "nccl" if i % 2 else "mpi_host"))) for i in range(many)]
    groups = groups_of(points_of(results([(f"t{i}", [(i, 1.0 + i)]) for i in range(many)], configurations)))
    assert [g.configuration for g in groups] == configurations  # that of the fastest first
    assert len({g.colour for g in groups}) == (many if many <= COLOURS else 2)

"""Trees, forests, neighbours and others over several sizes: in C, as Python asks it, and as a file keeps them."""

from __future__ import annotations

import ctypes
import json
import math
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.choice import trends
from dagc.choice.learners import cost, forest, svm, tree
from dagc.choice.learners.cost import Cost
from dagc.choice.learners.forest import Forest
from dagc.choice.learners.knn import Knn
from dagc.choice.learners.svm import Pair, Svm
from dagc.choice.learners.tree import TreeSelector
from dagc.choice.methods import FULL, LEARNED, fit, from_json, gains_of
from dagc.choice.nodes import Split
from dagc.choice.selector import (
    UNIT,
    Answer,
    Scale,
    Selector,
    c_head,
    compile_together,
    coordinates,
    library,
    scales_of,
)
from dagc.choice.trends import LineTrend, SumTrend, shortened
from dagc.study.train import TrainingTable, train
from tests.tiers import examples

DATA = ("ni", "nj")
SIZES = [(ni, nj) for ni in (64, 256, 1000, 4096) for nj in (32, 500, 8192)]
# Wide where nj is large, narrow where ni is, and in between as the product says.
LABELS = [2 if nj == 8192 else 0 if ni >= 1000 else 1 for ni, nj in SIZES]
# Features of another kind: a share, and a number that may be negative or huge.
SHARES = [(share, slope) for share in (0.001, 0.02, 0.5) for slope in (-3.5, 0.0, 0.25, 1e6)]
BOTH = (Scale(), Scale())
LOGARITHM, ANY = Scale("log", 1e-9), Scale("log", 2.0**-1000)
ONE_HOT = ((FULL, 0), (0, FULL))

SIZE = st.one_of(st.integers(1, 20_000), st.integers(-3, 2**63 - 1), st.sampled_from([64, 128, 1000, 1001, 8192]))
NUMBER = st.one_of(SIZE.map(float), st.floats(-1e9, 1e9), st.floats(0, 1), st.floats(allow_nan=False))
Asking = Callable[[Sequence[float]], tuple[int, float]]


def optimised(selectors: Sequence[Selector], folder: Path) -> list[Asking]:
    """Each as C++ in an optimised program on this machine's processor, which contracts products and sums: the label,
    and how sure. Checks the order of all labels and the expected seconds."""
    text = c_head() + "".join(selector.c_text(f"{i}", ranked=True) for i, selector in enumerate(selectors))
    for i, selector in enumerate(selectors):
        text += f"int ask_{i}(const double* x, double* sure) {{ return dagc_select_{i}(x, sure); }}\n"
        text += f"int rank_{i}(const double* x, int* order) {{ return dagc_preferred_{i}(x, order); }}\n"
        if selector.predicts:
            text += f"void predict_{i}(const double* x, double* seconds) {{ dagc_seconds_{i}(x, seconds); }}\n"
    source, library = folder / "choose.c", folder / "choose.so"
    source.write_text(f'extern "C" {{\n{text}}}\n')
    flags = ["-std=gnu++17", "-O2", "-march=native", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))

    def asking(i: int) -> Asking:
        function, selector = getattr(loaded, f"ask_{i}"), selectors[i]

        def ask(x: Sequence[float]) -> tuple[int, float]:
            sure, at = ctypes.c_double(), (ctypes.c_double * len(x))(*x)
            if selector.predicts:
                expected = selector.seconds(x)
                seconds = (ctypes.c_double * (max(expected) + 1))()
                getattr(loaded, f"predict_{i}")(at, seconds)
                assert [seconds[label] for label in expected] == pytest.approx(list(expected.values()), rel=1e-14)
            order = (ctypes.c_int * len(selector.ordered))()
            count = getattr(loaded, f"rank_{i}")(at, order)
            assert tuple(order[:count]) == selector.order(x)
            return int(function(at, ctypes.byref(sure))), sure.value

        return ask

    return [asking(i) for i in range(len(selectors))]


@settings(max_examples=examples(300), deadline=None)
@given(st.floats(1e-9, 1e18), st.floats(1e-9, 1e18))
def test_the_logarithm_in_integers(a: float, b: float) -> None:
    for x in (a, b):
        assert abs(LOGARITHM.coordinate(x) - UNIT * math.log2(x)) < 1.01
    low, high = sorted((a, b))
    assert LOGARITHM.coordinate(low) <= LOGARITHM.coordinate(high)


@settings(max_examples=examples(300), deadline=None)
@given(st.floats(2.0**-1000, 2.0**62))
def test_the_quicker_logarithm(x: float) -> None:
    assert abs(ANY.coordinate(x, near=True) - UNIT * math.log2(x)) < 2
    assert ANY.coordinate(2.0 ** math.frexp(x)[1], near=True) == math.frexp(x)[1] * UNIT


def test_logarithms_of_powers_and_multiples_are_exact() -> None:
    assert [LOGARITHM.coordinate(2.0**k) for k in range(-20, 63)] == [k * UNIT for k in range(-20, 63)]
    assert LOGARITHM.coordinate(1000 * 64) == LOGARITHM.coordinate(1000) + 6 * UNIT


@settings(max_examples=examples(100), deadline=None)
@given(st.floats(1, 1e15), st.sampled_from([Scale(), Scale("log", 1e-3), Scale("linear", -2.5, 1e9)]))
def test_a_threshold_becomes_the_largest_feature_below_it(x: float, scale: Scale) -> None:
    at = scale.coordinate(x)
    (found,) = scale.largest_below([at / UNIT])
    assert found >= min(x, scale.limits[1])
    assert scale.coordinate(found) == at
    above = scale.coordinate(math.nextafter(found, math.inf))
    assert above > at or found == scale.limits[1]


def test_thresholds_outside_of_what_counts_are_its_limits() -> None:
    for scale in (Scale(), Scale("log", 37.5), Scale("linear", 3, 4)):
        assert tuple(scale.largest_below([-1e6, 1e6])) == scale.limits


def test_the_exponential_in_integers() -> None:
    exp2 = library(c_head() + "int64_t power(int64_t t) { return dagc_exp2(t); }\n").power
    exp2.argtypes, exp2.restype = [ctypes.c_int64], ctypes.c_int64
    draw = random.Random(1)
    for t in (0, 1, UNIT - 1, UNIT, 24 * UNIT, 25 * UNIT - 1, *(draw.randrange(26 * UNIT) for _ in range(500))):
        assert abs(exp2(t) - 2 ** (24 - t / UNIT)) < 2
        assert exp2(t) >= exp2(t + 1)
    assert exp2(2**60) == 0


def test_scales_follow_what_was_measured() -> None:
    rows = [(64, 0.001, -3.5, 7.1), (4096, 0.5, 2.0, 7.2), (100, 0.1, 0.0, 8.0)]
    assert [s.kind for s in scales_of(rows)] == ["log", "log", "linear", "linear"]
    assert [s.low for s in scales_of(rows)] == [1, 0.001, -3.5, 7.1]
    assert Scale().coordinate(0) == Scale().coordinate(-5) == Scale().coordinate(1) == 0, "what is below 1 counts as 1"


@pytest.mark.parametrize("method", LEARNED)
def test_what_was_trained_is_found_again(method: str) -> None:
    selector = fit(method, DATA, SIZES, LABELS)
    assert (selector.method, selector.data) == (method, DATA)
    right = sum(selector.choose(size) == label for size, label in zip(SIZES, LABELS, strict=True))
    assert right >= 11
    assert [selector.choose((ni, 9000)) for ni in (60, 70, 1100, 4000)] == [2, 2, 2, 2]
    assert selector == fit(method, DATA, SIZES, LABELS), "the same training gives the same selector"
    assert from_json(json.loads(json.dumps(selector.to_json()))) == selector


def test_a_threshold_lies_halfway_on_the_logarithm() -> None:
    grown = fit("tree", ["n"], [[s] for s in (100, 200, 400, 800, 1600, 3200)], [1, 1, 1, 5, 5, 5])
    assert isinstance(grown, TreeSelector)
    assert isinstance(grown.root, Split)
    assert 560 <= grown.root.most <= 570, "halfway on the logarithm: sqrt(400 * 800) = 565.7"
    above = math.nextafter(grown.root.most, math.inf)
    assert [grown.choose([n]) for n in (1, grown.root.most, above, 10**12)] == [1, 1, 5, 5]
    assert grown.text == "tree of 2 leaves"


@pytest.mark.parametrize("method", LEARNED)
def test_one_label_needs_no_question(method: str) -> None:
    selector = fit(method, DATA, SIZES, [4] * len(SIZES))
    assert selector.choose((7, 7)) == 4


def test_a_forest_is_that_of_its_seed_and_ties_go_to_the_lowest_label() -> None:
    assert fit("forest", DATA, SIZES, LABELS, seed=3) == fit("forest", DATA, SIZES, LABELS, seed=3)
    assert fit("forest", DATA, SIZES, LABELS, seed=3) != fit("forest", DATA, SIZES, LABELS, seed=4)
    assert Forest(("n",), (Scale(),), (2, 9), ONE_HOT, (Answer(1, 1), Answer(0, 1))).ask([1]) == (2, 0.5)


def test_a_forest_of_an_earlier_file_votes() -> None:
    """Its leaves are labels; they become rows of gains."""
    trees = [[0, 8, 9, {"label": 2, "sure": 0.5}], 9, 2]
    forest = from_json({"method": "forest", "data": ["n"], "trees": trees})
    assert [forest.ask([n]) for n in (8, 9)] == [(9, 2 / 3), (2, 2 / 3)]
    assert from_json(json.loads(json.dumps(forest.to_json()))) == forest


@pytest.mark.parametrize("method", LEARNED)
@pytest.mark.parametrize(
    ("data", "sizes", "labels"),
    [
        (["n"], [[1], [2]], [1, 1]), ([], [[], [], []], [1, 1, 1]), (["n"], [[1, 2], [2, 3], [3, 4]], [1, 1, 1]),
        (["n"], [[math.inf], [2], [3]], [1, 2, 3]), (["n"], [[2], [2], [3]], [1, 2, 3]),
    ],
)  # fmt: skip
def test_what_cannot_be_trained(method: str, data: list[str], sizes: list[list[int]], labels: list[int]) -> None:
    with pytest.raises(UsageError):
        fit(method, data, sizes, labels)


def test_an_unknown_method() -> None:
    with pytest.raises(UsageError, match="oracle"):
        fit("oracle", DATA, SIZES, LABELS)
    with pytest.raises(ValueError, match="oracle"):
        from_json({"method": "oracle"})


ROWS = st.recursive(
    st.builds(Answer, st.integers(0, 3), st.just(1.0)),
    lambda below: st.builds(Split, st.integers(0, 1), st.floats(1, 10_000), below, below),
    max_leaves=8,
)
GAIN = st.sampled_from([0, 1, FULL // 3, FULL // 2, FULL - 1, FULL])
NODES = st.recursive(
    st.builds(Answer, st.integers(0, 5), st.sampled_from([1.0, 0.75, 1 / 3])),
    lambda below: st.builds(Split, st.integers(0, 1), st.floats(1, 10_000), below, below),
    max_leaves=8,
)
PLACE = st.integers(0, 2**21)
SLOPE = st.integers(-(2**26), 2**26)
FACTOR = st.one_of(st.sampled_from([0.0, 1e-6, 3.0]), st.floats(1e-12, 1e3)).map(shortened)
TERMS = st.tuples(*[st.lists(st.tuples(FACTOR, st.integers(0, 2), st.integers(0, 2)), max_size=5).map(tuple)] * 3)
LOG = st.one_of(st.integers(-3, 3), st.integers(-(2**52), 2**52))
COEFFICIENT = st.one_of(st.integers(-3, 3), st.integers(-(2**30), 2**30))


@st.composite
def machines(draw: st.DrawFn) -> Svm:
    """Any decisions, which also go round in circles."""
    points = tuple(draw(st.lists(st.tuples(PLACE, PLACE), max_size=4)))
    labels = (2, 3, 7)[: draw(st.integers(1, 3))]
    pairs = tuple(
        Pair(
            a,
            b,
            draw(st.sampled_from([0, 1, -1, 2**43, -(2**50)])),
            *zip(*((i, draw(COEFFICIENT)) for i in range(n)), strict=True),
        )
        if (n := draw(st.integers(0, len(points))))
        else Pair(a, b, draw(st.sampled_from([0, 1, -1, 2**43])), (), ())
        for a, b in combinations(range(len(labels)), 2)
    )
    width = st.integers(1, 2**26)
    return Svm(DATA, BOTH, (0, 2**22), (draw(width), draw(width)), draw(st.integers(1, 2**20)), labels, points, pairs)


MACHINES = machines()
POINTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=3, max_size=7, unique=True)


@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_an_optimised_program_answers_as_python_is_answered(data: st.DataObject) -> None:
    """Any selectors. Small sizes give many ties between neighbours."""
    points = tuple(sorted(data.draw(POINTS)))
    labels = tuple(data.draw(st.lists(st.integers(0, 4), min_size=len(points), max_size=len(points))))
    k = data.draw(st.integers(1, len(points)))
    gains = tuple(data.draw(st.lists(st.tuples(GAIN, GAIN, GAIN), min_size=len(points), max_size=len(points))))
    roots = tuple(data.draw(st.lists(ROWS, min_size=1, max_size=6)))
    rows = tuple(data.draw(st.lists(st.tuples(GAIN, GAIN, GAIN), min_size=4, max_size=4)))
    slopes = tuple(data.draw(st.lists(st.tuples(st.integers(-3, 3), SLOPE), min_size=3, max_size=3)))
    times = tuple(data.draw(st.lists(st.tuples(LOG, LOG, LOG), min_size=4, max_size=4)))
    selectors: list[Selector] = [
        Knn(DATA, BOTH, points, labels, k, "uniform"), Knn(DATA, BOTH, points, labels, k, "distance"),
        Knn(DATA, BOTH, points, labels, k, "uniform", (1, 4, 9), gains),
        Knn(DATA, BOTH, points, labels, k, "distance", (1, 4, 9), gains),
        TreeSelector(DATA, BOTH, data.draw(NODES)),
        Forest(DATA, BOTH, (1, 4, 9), rows, roots),
        Cost(DATA, BOTH, (1, 4, 9), LineTrend((2**22, 0), (2**24, 2**25), (-(2**46), 0, 5), slopes), times, roots),
        Cost(DATA, BOTH, (1, 4, 9), SumTrend((30.0, 1e4), data.draw(TERMS)), times, roots),
        data.draw(MACHINES),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        asked = optimised(selectors, Path(folder))
        compile_together(selectors)
        here = [*product((1, 2, 3, 4, 6, 8, 9, 16, 25, 36), repeat=2), *product((5000, 2**40 + 1), (7, 10_000))]
        for selector, ask in zip(selectors, asked, strict=True):
            assert [ask(list(size)) for size in here] == [selector.ask(size) for size in here], selector
            assert from_json(json.loads(json.dumps(selector.to_json()))) == selector


def _random_training() -> tuple[list[tuple[float, float]], list[int], list[dict[int, float]]]:
    """Three choices; what each is worth depends on a size and a share."""
    draw = random.Random(1)
    rows = [(float(int(2 ** draw.uniform(3, 20))), draw.random()) for _ in range(70)]
    times = [{2: 300 + n * (1 - share), 5: 2 * n**0.9, 6: 50 + n ** (0.5 + share)} for n, share in rows]
    shares = [{label: min(at.values()) / t for label, t in at.items()} for at in times]
    return rows, [min(at, key=lambda label: at[label]) for at in times], shares


def test_scikit_learn_chooses_the_same() -> None:
    """At random vectors, but for those where two choices are as good as equal, up to the digits that are kept."""
    rows, labels, shares = _random_training()
    draw = random.Random(2)
    asked = [(2 ** draw.uniform(2, 21), draw.uniform(-0.2, 1.2)) for _ in range(400)]
    gains, scales = gains_of(labels, shares), scales_of(rows)
    x, at = coordinates(rows, scales), coordinates(asked, scales)
    classes = np.array(gains.labels)

    machine = fit("svm", DATA, rows, labels, shares=shares)
    assert isinstance(machine, Svm)
    low, width = np.array(machine.lows) / UNIT, np.array(machine.widths) / UNIT
    scaled = 2 * np.clip((np.concatenate([x, at]) - low) / width, 0, 1) - 1
    (gamma,) = [width for width in svm.WIDTHS if machine.text.endswith(f"gamma {width:.3g}")]
    said = np.array([list(machine.votes(v).values()) for v in asked])
    apart = {}  # how far apart the votes are, by the cost of which a selector does not tell
    for cost_ in svm.COSTS:
        libsvm = svm.trained(cost_, gamma, scaled[: len(rows)], gains.matrix)
        libsvm.decision_function_shape = "ovo"
        decisions = libsvm.decision_function(scaled[len(rows) :])
        closest = np.array([[[row[0], row[1]], [-row[0], row[2]], [-row[1], -row[2]]] for row in decisions]).min(axis=2)
        apart[np.abs(said - 0.5 - 0.5 * closest.clip(-1, 1)).max()] = libsvm, decisions
    assert min(apart) < 0.005, "libSVM's own tolerance is 0.001"
    libsvm, decisions = apart[min(apart)]
    clear = np.abs(decisions).min(axis=1) > 0.01
    assert clear.sum() > 350
    expected = classes[libsvm.classes_[libsvm.predict(scaled[len(rows) :])]]
    assert [machine.choose(v) for v, c in zip(asked, clear, strict=True) if c] == list(expected[clear])

    averaged = forest.trained(forest.number_of_trees(len(x)), 0, x, gains.matrix).predict(at)
    selector = fit("forest", DATA, rows, labels, shares=shares)
    ordered = np.sort(averaged, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 1e-4
    assert clear.sum() > 300
    expected = classes[averaged.argmax(axis=1)]
    assert [selector.choose(v) for v, c in zip(asked, clear, strict=True) if c] == list(expected[clear])

    times = [{label: 1 / share for label, share in at.items()} for at in shares]
    selector = fit("cost", DATA, rows, labels, shares=shares, times=times)
    logs = cost.logarithms(times, (2, 5, 6))
    assert isinstance(selector, Cost)
    left = cost.trained(0, x, logs - trends.logs_of(selector.trend, x, np.array(rows)))
    trend = trends.logs_of(selector.trend, at, np.array(asked))
    said = np.log2([list(selector.seconds(v).values()) for v in asked])
    assert np.abs(said - trend - cost.distilled(x, left, 0).predict(at)).max() < 1e-4, "leaves are rounded"
    inner = (np.abs(at - x.mean(axis=0)) < x.std(axis=0)).all(axis=1)
    assert inner.sum() > 100
    assert np.abs((said - trend - left.predict(at))[inner]).mean() < 0.1 * np.abs(left.predict(x)).mean(), (
        "the forest's"
    )
    lines = trends.lines_of(x, logs)
    inside = np.clip(at, x.min(axis=0) - trends.BEYOND, x.max(axis=0) + trends.BEYOND)
    expected = np.array([start + inside @ slope for start, slope in lines]).T
    line = trends.logs_of(trends.line_of(x, np.array(rows), logs, None), at, np.array(asked))
    assert np.abs(line - expected).max() < 1e-4, "slopes and coordinates are rounded"

    selector = fit("tree", DATA, rows, labels, shares=shares)
    grown = (tree.trained((depth, least), x, gains.matrix) for depth in tree.DEPTHS for least in (1, 2, 3, 5))
    assert [selector.choose(v) for v in asked] in [list(classes[one.predict(at).argmax(axis=1)]) for one in grown]


def test_what_costs_more_weighs_more() -> None:
    """Where two labels cannot be told apart by the features, the one whose mistakes are cheap is chosen."""
    rows = [(float(n), 1.0) for n in range(100, 120)]
    labels = [1, 1, 2, 1] * 5
    shares = [{1: 1.0, 2: 0.99} if label == 1 else {1: 0.1, 2: 1.0} for label in labels]
    for method in ("tree", "forest", "cost", "knn"):
        costly, equal = fit(method, DATA, rows, labels, shares=shares), fit(method, DATA, rows, labels)
        far = [(1.0, 1.0), (1e6, 1.0)]
        assert [costly.choose(x) for x in far] == [2, 2] or method == "cost", method
        chosen = [sum(s.choose(row) == 2 for row in rows) for s in (costly, equal)]
        assert chosen[0] > chosen[1] or chosen[0] == len(rows), method


def test_times_go_on_along_the_line_beyond_the_trained_range() -> None:
    """Seconds of two choices over sizes: 1e-5 + n 1e-9 and 4e-9 n. Far beyond, the line's end counts."""
    sizes = [(float(2**k),) for k in range(4, 24)]
    times = [{0: 1e-5 + n * 1e-9, 7: 4e-9 * n} for (n,) in sizes]
    selector = fit("cost", ("n",), sizes, [0] * len(sizes), times=times)
    assert selector.predicts
    assert [selector.seconds((n,))[7] / (4e-9 * n) for n in (100.0, 3e5)] == pytest.approx([1, 1], rel=0.2)
    at = [selector.seconds((2.0**k,))[7] for k in (23, 24, 25)]
    assert [b / a for a, b in pairwise(at)] == pytest.approx([2, 2], rel=0.3)
    assert selector.seconds((2.0**40,)) == selector.seconds((2.0**25,))
    assert [selector.choose((n,)) for n in (100.0, 5e6)] == [7, 0]
    assert not fit("forest", ("n",), sizes, [0] * len(sizes), times=times).predicts


def test_the_trend_is_of_the_kind_that_the_times_are() -> None:
    """A launch, and work over a rate: the sum has the factors. A power of the size: the line has the exponent."""
    draw = random.Random(3)
    rows = [(float(int(2 ** draw.uniform(3, 12))), float(int(2 ** draw.uniform(3, 12)))) for _ in range(60)]
    added = [{0: 1e-5 + n * k * 1e-9, 7: 4e-8 * n + 1e-6} for n, k in rows]
    selector = fit("cost", ("n", "k"), rows, [0] * len(rows), times=added)
    assert isinstance(selector, Cost)
    assert isinstance(selector.trend, SumTrend)
    first, second = ({(i, j): factor for factor, i, j in terms} for terms in selector.trend.terms)
    assert (first[0, 1], first[2, 2]) == pytest.approx((1e-9, 1e-5), rel=1e-3)
    assert (second[0, 2], second[2, 2]) == pytest.approx((4e-8, 1e-6), rel=1e-3)
    assert selector.seconds((1e4, 1e4))[0] == pytest.approx(1e-5 + 1e8 * 1e-9, rel=1e-2), "beyond the trained range"
    powers = [{0: n**0.6 * k**-0.3, 7: n**0.4} for n, k in rows]
    selector = fit("cost", ("n", "k"), rows, [0] * len(rows), times=powers)
    assert isinstance(selector, Cost)
    assert isinstance(selector.trend, LineTrend)


def test_a_choice_that_failed_is_expected_to_be_slow() -> None:
    sizes = [(float(n),) for n in range(10, 50)]
    times = [{0: 1.0, 3: 0.5} if n < 30 else {0: 1.0} for (n,) in sizes]
    selector = fit("cost", ("n",), sizes, [3 if n < 30 else 0 for (n,) in sizes], times=times)
    assert [selector.choose((n,)) for n in (12.0, 45.0)] == [3, 0]
    assert selector.seconds((45.0,))[3] > 5
    nothing = fit("cost", ("n",), sizes, [0] * len(sizes), times=[{0: 0.0, 3: 1.0}] * len(sizes))
    assert nothing.choose((20.0,)) == 0


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("svm", {"pairs": []}), ("svm", {"widths": [1]}), ("svm", {"widths": [0, 1]}), ("svm", {"points": [[1]]}),
        ("svm", {"pairs": [[0, 1, 0, [99], [1]], [0, 2, 0, [], []], [1, 2, 0, [], []]]}),
        ("svm", {"pairs": [[0, 1, 0, [0, 0], [2**38, 1]], [0, 2, 0, [], []], [1, 2, 0, [], []]]}),
        ("svm", {"pairs": [[0, 1, 2**62, [], []], [0, 2, 0, [], []], [1, 2, 0, [], []]]}),
        ("forest", {"labels": []}), ("forest", {"gains": [[1, 2]]}), ("forest", {"gains": [[0, 0, FULL + 1]]}),
        ("forest", {"trees": [10**6]}), ("forest", {"trees": []}),
        ("cost", {"labels": [0, 2, 1]}), ("cost", {"labels": [0, 1]}), ("cost", {"lows": [0]}),
        ("cost", {"starts": [0]}), ("cost", {"terms": [[[1.0, 0, 0]]]}), ("cost", {"most": [1.0]}),
        ("cost", {"lows": [], "highs": [], "starts": [], "slopes": [], "most": [1, 1], "terms": [[[1.0, 0, 9]]] * 3}),
        ("cost", {"lows": [], "highs": [], "starts": [], "slopes": [], "most": [1, 1], "terms": [[[1.1, 0, 0]]] * 3}),
        ("cost", {"slopes": [[0], [0], [0]]}), ("cost", {"slopes": [[2**27, 0]] * 3}), ("cost", {"leaves": [[1, 2]]}),
        ("cost", {"trees": [10**6]}), ("cost", {"lows": [2**31, 0], "highs": [0, 0]}), ("cost", {"leaves": []}),
        ("knn", {"gains": [[1, 2]]}), ("knn", {"columns": [1]}), ("knn", {"k": 1001}),
        ("tree", {"least_sure": -1}), ("tree", {"least_sure": 3}),
    ],
)  # fmt: skip
def test_a_damaged_selector_is_refused(method: str, changes: dict[str, object], trained: dict[str, Selector]) -> None:
    record = json.loads(json.dumps(trained[method].to_json()))
    assert from_json(record) == trained[method]
    with pytest.raises(ValueError, match="selector|forest|tree"):
        from_json(record | changes)


@pytest.fixture(scope="module")
def trained() -> dict[str, Selector]:
    shares = [{0: 0.3, 1: 0.5, 2: 0.25} | {label: 1.0} for label in LABELS]
    return {method: fit(method, DATA, SIZES, LABELS, shares=shares) for method in LEARNED}


def test_amounts_add_up_where_nothing_was_measured() -> None:
    """Times that are sums of amounts, from too few points for products: one in twelve is four times too long, and a
    constraint excludes the third choice from 1000 on. What it would take there is known all the same."""
    draw = np.random.default_rng(1)
    names = tuple("abcdef")
    drawn = [tuple(float(v) for v in row) for row in np.round(10 ** draw.uniform(1, 6, (36, 6)))]
    asked = [tuple(float(v) for v in row) for row in np.round(10 ** draw.uniform(1, 6, (100, 6)))]

    def seconds(x: Sequence[float]) -> dict[int, float]:
        a, b, c, *_ = x
        return {0: 2e-6 + 1e-9 * a + 3e-9 * b, 1: 5e-6 + 2e-9 * c, 2: 1e-6 + 4e-9 * a}

    times = [seconds(x) | ({2: math.inf} if x[0] >= 1000 else {}) for x in drawn]
    for at in times[::12]:
        at[0] *= 4
    noise = [[(0.99, 1.0, 1.01)]] * len(drawn)
    selector = train("cost", TrainingTable.of(names, drawn, times, noise).merged, seed=0)
    assert isinstance(selector, Cost)
    assert isinstance(selector.trend, SumTrend)
    wrong = [abs(math.log(selector.seconds(x)[k] / t)) for x in asked for k, t in seconds(x).items()]
    assert np.median(wrong) < 0.1
    # A choice that failed without a constraint is not taken there.
    failed = [{k: t for k, t in at.items() if t < math.inf} for at in times]
    careful = train("cost", TrainingTable.of(names, drawn, failed, noise).merged, seed=0)
    excluded = [x for x in drawn if x[0] >= 3000]
    assert all(careful.seconds(x)[2] > 2 * selector.seconds(x)[2] for x in excluded)

"""Trees, forests and neighbours over several sizes: Python, C and what a file keeps agree."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.choice.learners.forest import Forest
from dagc.choice.learners.forest import fit as fit_forest
from dagc.choice.learners.knn import Knn
from dagc.choice.learners.tree import Tree
from dagc.choice.learners.tree import fit as fit_tree
from dagc.choice.methods import LEARNED, fit, from_json
from dagc.choice.nodes import Split, largest_below
from dagc.choice.selector import UNIT, Selector, log2_fixed
from tests.examples import examples

DATA = ("ni", "nj")
SIZES = [(ni, nj) for ni in (64, 256, 1000, 4096) for nj in (32, 500, 8192)]
# Wide where nj is large, narrow where ni is, and in between as the product says.
LABELS = [2 if nj == 8192 else 0 if ni >= 1000 else 1 for ni, nj in SIZES]

SIZE = st.one_of(st.integers(1, 20_000), st.integers(-3, 2**63 - 1), st.sampled_from([64, 128, 1000, 1001, 8192]))


def compiled(selectors: Sequence[Selector], folder: Path, compiler: Sequence[str]) -> list[Callable[[list[int]], int]]:
    """Each as compiled C, called with a list of sizes."""
    text = ""
    for i, selector in enumerate(selectors):
        arguments = ", ".join(f"size[{k}]" for k in range(len(selector.data)))
        text += selector.c_text(f"choose_{i}")
        text += f"int ask_{i}(const int64_t* size) {{ return choose_{i}({arguments}); }}\n"
    source, library = folder / "choose.c", folder / "choose.so"
    source.write_text(f'extern "C" {{\n{text}}}\n' if compiler[0] == "g++" else text)
    flags = ["-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))

    def asking(i: int) -> Callable[[list[int]], int]:
        function = getattr(loaded, f"ask_{i}")
        return lambda size: int(function((ctypes.c_int64 * len(size))(*size)))

    return [asking(i) for i in range(len(selectors))]


@settings(max_examples=examples(300), deadline=None)
@given(SIZE, SIZE)
def test_the_logarithm_in_integers(a: int, b: int) -> None:
    for size in (a, b):
        assert abs(log2_fixed(size) - UNIT * math.log2(max(size, 1))) < 1.01
    low, high = sorted((a, b))
    assert log2_fixed(low) <= log2_fixed(high)


def test_logarithms_of_powers_and_multiples_are_exact() -> None:
    assert [log2_fixed(2**k) for k in range(63)] == [k * UNIT for k in range(63)]
    assert log2_fixed(1000 * 64) == log2_fixed(1000) + 6 * UNIT


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 2**62))
def test_a_threshold_becomes_the_largest_size_below_it(size: int) -> None:
    found = largest_below(log2_fixed(size) / UNIT)
    assert found >= size
    assert log2_fixed(found) == log2_fixed(size) < log2_fixed(found + 1)


@pytest.mark.parametrize("method", LEARNED)
def test_what_was_trained_is_found_again(method: str) -> None:
    selector = fit(method, DATA, SIZES, LABELS)
    assert (selector.method, selector.data) == (method, DATA)
    right = sum(selector.choose(size) == label for size, label in zip(SIZES, LABELS, strict=True))
    assert right >= 11
    assert [selector.choose((ni, 9000)) for ni in (60, 70, 1100, 4000)] == [2, 2, 2, 2]
    assert selector == fit(method, DATA, SIZES, LABELS), "the same training gives the same selector"
    assert from_json(json.loads(json.dumps(selector.to_json()))) == selector


def test_a_tree_compares_integers() -> None:
    tree = fit_tree(["n"], [[s] for s in (100, 200, 400, 800, 1600, 3200)], [1, 1, 1, 5, 5, 5])
    assert isinstance(tree.root, Split)
    assert 560 <= tree.root.most <= 570, "halfway on the logarithm: sqrt(400 * 800) = 565.7"
    assert [tree.choose([n]) for n in (1, tree.root.most, tree.root.most + 1, 10**12)] == [1, 1, 5, 5]
    assert tree.text == "tree of 2 leaves"


@pytest.mark.parametrize("method", LEARNED)
def test_one_label_needs_no_question(method: str) -> None:
    selector = fit(method, DATA, SIZES, [4] * len(SIZES))
    assert selector.choose((7, 7)) == 4


def test_a_forest_is_that_of_its_seed_and_ties_go_to_the_lowest_label() -> None:
    assert fit_forest(DATA, SIZES, LABELS, seed=3) == fit_forest(DATA, SIZES, LABELS, seed=3)
    assert fit_forest(DATA, SIZES, LABELS, seed=3) != fit_forest(DATA, SIZES, LABELS, seed=4)
    assert Forest(("n",), (9, 2)).choose([1]) == 2


@pytest.mark.parametrize("method", LEARNED)
@pytest.mark.parametrize(
    ("data", "sizes", "labels"),
    [
        (["n"], [[1], [2]], [1, 1]), ([], [[], [], []], [1, 1, 1]), (["n"], [[1, 2], [2, 3], [3, 4]], [1, 1, 1]),
        (["n"], [[0], [2], [3]], [1, 2, 3]), (["n"], [[2], [2], [3]], [1, 2, 3]),
    ],
)  # fmt: skip
def test_what_cannot_be_trained(method: str, data: list[str], sizes: list[list[int]], labels: list[int]) -> None:
    with pytest.raises(UsageError):
        fit(method, data, sizes, labels)


def test_an_unknown_method() -> None:
    with pytest.raises(UsageError, match="svm"):
        fit("svm", DATA, SIZES, LABELS)
    with pytest.raises(ValueError, match="svm"):
        from_json({"method": "svm"})


@pytest.mark.parametrize("compiler", [("gcc", "-std=c99"), ("g++", "-std=c++17")])
def test_python_and_c_agree_on_what_was_trained(compiler: tuple[str, ...], tmp_path: Path) -> None:
    selectors: list[Selector] = [fit(method, DATA, SIZES, LABELS) for method in LEARNED]
    rows = tuple(SIZES)
    selectors += [Knn(DATA, rows, tuple(LABELS), k, w) for k, w in product((2, 3, 5), ("uniform", "distance"))]
    asked = compiled(selectors, tmp_path, compiler)

    @settings(max_examples=examples(500), deadline=None)
    @given(SIZE, SIZE)
    def agree(ni: int, nj: int) -> None:
        for selector, ask in zip(selectors, asked, strict=True):
            assert ask([ni, nj]) == selector.choose([ni, nj]), selector.text

    agree()


NODES = st.recursive(
    st.integers(0, 5),
    lambda below: st.builds(Split, st.integers(0, 1), st.integers(1, 10_000), below, below),
    max_leaves=8,
)
POINTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=3, max_size=7, unique=True)


@settings(max_examples=examples(12), deadline=None)
@given(st.data())
def test_python_and_c_agree_on_any_selector(data: st.DataObject) -> None:
    """Small sizes give many ties between neighbours."""
    points = tuple(sorted(data.draw(POINTS)))
    labels = tuple(data.draw(st.lists(st.integers(0, 4), min_size=len(points), max_size=len(points))))
    k = data.draw(st.integers(1, len(points)))
    selectors: list[Selector] = [
        Knn(DATA, points, labels, k, "uniform"), Knn(DATA, points, labels, k, "distance"),
        Tree(DATA, data.draw(NODES)), Forest(DATA, tuple(data.draw(st.lists(NODES, min_size=1, max_size=6)))),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        asked = compiled(selectors, Path(folder), ("gcc", "-std=c99"))
        here = [*product((1, 2, 3, 4, 6, 8, 9, 16, 25, 36), repeat=2), *product((5000, 2**40 + 1), (7, 10_000))]
        for selector, ask in zip(selectors, asked, strict=True):
            assert [ask(list(size)) for size in here] == [selector.choose(size) for size in here], selector
            assert from_json(json.loads(json.dumps(selector.to_json()))) == selector

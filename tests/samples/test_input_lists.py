"""Input lists of samples/spmv and samples/solvers: calls of generators that exist, apart for training and tests."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path

import pytest

from dagc.inputs import parse_call
from tests.samples.load import sample

ROOT = Path(__file__).parents[2]
FUNCTIONS = {
    "spmv": sample("spmv/matrices.py").GENERATORS,
    "solvers": sample("solvers/solvers.py").SYSTEMS,
}


def listed(path: Path) -> list[str]:
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return [line for line in lines if line]


def families(name: str) -> list[str]:
    """Inputs of families that no other list has."""
    paths = sorted((ROOT / f"samples/{name}").glob("families*.txt"))
    return [text for path in paths for text in listed(path)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("files", [False, True])
def test_the_lists_of(name: str, files: bool) -> None:
    lists = {
        part: listed(ROOT / (f"benchmarks/gpu/lists/{name}-{part}.txt" if files else f"samples/{name}/{part}.txt"))
        for part in ("train", "test")
    }
    if files:  # inputs that nothing was chosen by
        lists["unseen"] = listed(ROOT / f"benchmarks/gpu/lists/{name}-unseen.txt")
        others = [listed(ROOT / f"samples/{name}/{part}.txt") for part in ("train", "test")]
        assert not set(lists["unseen"]) & {text for lines in others for text in lines}
    for text in itertools.chain(*lists.values(), families(name)):
        function, arguments = parse_call(text)
        inspect.signature(FUNCTIONS[name][function]).bind(**arguments)
    assert not set(lists["train"]) & set(lists["test"])
    assert all(len(set(lines)) == len(lines) for lines in lists.values())
    if not files:
        apart = {text.split("(")[0] for text in families(name)}
        assert not apart & {text.split("(")[0] for lines in lists.values() for text in lines}
        trained, tested = ({text.split("(")[0] for text in lists[part]} for part in ("train", "test"))
        assert tested - trained  # families that no training input belongs to

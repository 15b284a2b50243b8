"""Lists of inputs that are drawn: of families and parameters that the samples have, the same by the same seed."""

from __future__ import annotations

import inspect
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import draw
from dagc.inputs import parse_call
from tests.samples.load import SAMPLES, sample

GENERATORS = {name: f"{name}/{name}.py" for name in ("sort", "histogram", "bfs")} | {"spmv": "spmv/matrices.py"}


@pytest.mark.parametrize("name", draw.SAMPLES)
def test_families_and_their_parameters_are_those_of_the_sample(name: str) -> None:
    families = draw.SAMPLES[name]
    made = list(draw.drawn(families, 2 * len(families), seed=3))
    assert made == list(draw.drawn(families, 2 * len(families) + 5, seed=3))[: len(made)], "a list goes on"
    calls = [parse_call(text) for text in made]
    for half in (calls[: len(families)], calls[len(families) :]):
        assert {family for family, _ in half} == set(families), "each family as often"
    assert len({values["seed"] for _, values in calls}) == len(calls)
    module = sample(GENERATORS[name])
    for family, values in calls:
        given = values | ({"bins": 256} if name == "histogram" else {})
        inspect.signature(getattr(module, family)).bind(**given)
    with pytest.raises(TypeError):
        inspect.signature(getattr(module, family)).bind(**values, unknown=1)


def test_small_numbers_are_drawn_as_often_as_large_ones() -> None:
    sizes = sorted(parse_call(text)[1]["n"] for text in draw.drawn({"x": {"n": draw.Over(10, 100_000)}}, 400, seed=1))
    shares = [sum(low <= n < high for n in sizes) / 400 for low, high in pairwise([10, 100, 1000, 10_000, 100_001])]
    assert shares == pytest.approx([0.25] * 4, abs=0.06)


def test_windows_of_images(tmp_path: Path) -> None:
    colours = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    np.save(tmp_path / "colours.npy", colours)
    np.save(tmp_path / "grey.npy", colours[:, :, 0].copy())
    made = list(draw.windows(tmp_path, 12, seed=2))
    calls = [parse_call(text)[1] for text in made]
    for image in ("colours", "grey"):
        mine = [values for values in calls if Path(values["image"]).stem == image]
        assert [values["channel"] for values in mine] == [0, 1, 2, 3, 0, 1]
        assert [values["part"] == 1 for values in mine] == [True] * 4 + [False] * 2
    histogram = sample("histogram/histogram.py")
    for channel in (1, 2, 3):
        whole = histogram.window(str(tmp_path / "colours.npy"), 256, channel=channel)
        assert whole.tolist() == colours[:, :, channel - 1].ravel().tolist()
    half = histogram.window(str(tmp_path / "grey.npy"), 256, seed=5, part=0.5)
    places = np.flatnonzero((colours[:, :, 0].ravel()[:, None] == half).any(1)).reshape(3, 4)
    assert (np.diff(places, axis=1) == 1).all(), "a rectangle"
    assert (np.diff(places, axis=0) == 8).all()
    for wrong in ({"channel": 4}, {"part": 0}):
        with pytest.raises(ValueError, match="channels are 0 to 3"):
            histogram.window(str(tmp_path / "colours.npy"), 256, **wrong)


def test_graphs_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(SAMPLES / "bfs/graphs/jazz.mtx", tmp_path)
    (tmp_path / "wide.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1.0\n")
    monkeypatch.setattr("sys.argv", ["draw", "bfs", str(tmp_path)])
    assert draw.main() == 0
    assert capsys.readouterr().out == f"{tmp_path.resolve() / 'jazz.mtx'}\n"
    monkeypatch.setattr("sys.argv", ["draw", "sort", str(tmp_path)])
    with pytest.raises(SystemExit):
        draw.main()

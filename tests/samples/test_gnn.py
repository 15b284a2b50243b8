"""samples/gnn: graphs, edge weights and references are what they say; every version of a layer computes it."""

from __future__ import annotations

import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample
from tests.samples.test_variants import inputs_of

gnn = sample("gnn/gnn.py")
read_graph = gnn._graph
GRAPH = "powerlaw(nodes = 40, edges = 3, features = 7, zeros = 0.5, classes = 3)"


def adjacency(graph: object) -> np.ndarray:
    n = graph.ptr.size - 1
    return sparse.csr_array((np.ones(graph.col.size), graph.col, graph.ptr), shape=(n, n)).toarray()


@pytest.mark.parametrize("text", [GRAPH, "uniform(nodes = 300, edges = 4, features = 50)", "data/cora.npz"])
def test_a_graph_is_symmetric_without_loops(text: str) -> None:
    graph = read_graph(text)
    A = adjacency(graph)
    assert (A == A.T).all()
    assert not A.diagonal().any()
    assert set(np.unique(A)) == {0, 1}
    assert read_graph(text).features.tobytes() == graph.features.tobytes()


def test_the_data_are_those_of_planetoid() -> None:
    for name, nodes, edges, features, nonzeros, classes in (
        ("cora", 2708, 10556, 1433, 49216, 7),
        ("citeseer", 3327, 9104, 3703, 105165, 6),
    ):
        graph = read_graph(f"data/{name}.npz")
        assert graph.features.shape == (nodes, features)
        assert (graph.col.size, np.count_nonzero(graph.features), graph.classes) == (edges, nonzeros, classes)


def test_zeros_are_a_share() -> None:
    features = gnn.uniform(200, 1, 100, zeros=0.9).features
    assert np.mean(features == 0) == pytest.approx(0.9, abs=0.01)
    rest = features[features != 0]
    assert rest.min() == pytest.approx(-1, abs=0.01)
    assert rest.max() == pytest.approx(1, abs=0.01)
    assert np.count_nonzero(gnn.uniform(20, 1, 10).features) == 200


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_reference_is_the_published_layer(model: str) -> None:
    """With dense matrices, and the concatenation of GraphSAGE made."""
    graph = read_graph(GRAPH)
    A = adjacency(graph)
    if model == "gcn":
        A = A + np.eye(len(A))
        P = A / np.sqrt(np.outer(A.sum(axis=1), A.sum(axis=1)))
    else:
        P = A / np.maximum(A.sum(axis=1, keepdims=True), 1)
    data = getattr(gnn, model)(0, 1, 2, graph=GRAPH, layers=3, hidden=5)
    assert (data["n"], data["inputs"], data["units"], data["classes"]) == (40, 7, 5, 3)
    assert data["zeros"] == pytest.approx(np.mean(graph.features == 0))
    h = graph.features.astype(float)
    for layer in range(3):
        w = data[f"w[{layer}]"]
        if model == "sage":
            F = w.shape[1] // 2
            h = np.concatenate([h, P @ h], axis=1) @ np.concatenate([w[:, :F], w[:, F:]])
        else:
            h = P @ h @ w
        h = np.maximum(h, 0) if layer < 2 else h
    np.testing.assert_allclose(gnn.forward(data, layers=3)["h[3]"], h, rtol=1e-5, atol=1e-6)


def test_graphs_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, why in (
        ("uniform(nodes = 0, edges = 1, features = 3)", "must be positive"),
        ("uniform(nodes = 9, edges = 1, features = 3, zeros = 2)", "between 0 and 1"),
        ("powerlaw(nodes = 9, edges = 1, features = 3, skew = 0)", "at least 1"),
        ("uniform(nodes = 1_000_000, edges = 1, features = 5000)", "more than 2"),
        ("none.npz", "DAGC_PLANETOID"),
    ):
        with pytest.raises(ValueError, match=why):
            read_graph(text)
    monkeypatch.setenv("DAGC_PLANETOID", str(tmp_path))
    with np.load(SAMPLES / "gnn/data/cora.npz") as file:
        good = dict(file)
    np.savez(tmp_path / "here.npz", **good)
    assert read_graph("here.npz").classes == 7
    np.savez(tmp_path / "wild.npz", **good | {"col": good["col"] + 2000})
    np.savez(tmp_path / "object.npz", **good | {"x_val": np.array([{}], object)})
    (tmp_path / "text.npz").write_text("no")
    for name in ("wild", "object", "text"):
        with pytest.raises(ValueError, match="is not a graph that planetoid.py has written"):
            read_graph(f"{name}.npz")
    with pytest.raises(ValueError, match="hidden = 0"):
        gnn.gcn(0, 1, 1, graph=GRAPH, layers=2, hidden=0)


def converted(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SAMPLES / "gnn/planetoid.py", folder, "cora", "--out", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_of_planetoid(tmp_path: Path) -> None:
    """Six nodes: 0 to 3 in allx, 4 in tx, 5 in neither (as the isolated nodes of CiteSeer)."""
    features = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    parts = {
        "x": sparse.csr_matrix(features[:1]), "allx": sparse.csr_matrix(features[:4]),
        "tx": sparse.csr_matrix(features[4:]), "ty": np.zeros((1, 3)),
        "graph": defaultdict(list, {0: [1, 1, 4], 1: [0], 2: [2], 3: [], 4: [0], 5: []}),
    }  # fmt: skip
    for name, part in parts.items():
        (tmp_path / f"ind.cora.{name}").write_bytes(pickle.dumps(part, 3))
    (tmp_path / "ind.cora.test.index").write_text("4\n")
    done = converted(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note" not in done.stdout, "node 5 has no place in the files, and no features"
    with np.load(tmp_path / "cora.npz") as file:
        found = dict(file)
    assert found["ptr"].tolist() == [0, 2, 3, 3, 3, 4, 4]
    assert found["col"].tolist() == [1, 4, 0, 0]
    x = sparse.csr_array((found["x_val"], found["x_col"], found["x_ptr"]), shape=(6, 2)).toarray()
    np.testing.assert_array_equal(x, [*features, [0, 0]])
    (tmp_path / "ind.cora.allx").unlink()
    done = converted(tmp_path)
    assert "features of 3 nodes are missing" in done.stdout


def test_nothing_in_a_pickle_is_called(tmp_path: Path) -> None:
    class Wicked:
        def __reduce__(self) -> object:
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps(Wicked(), 2))
    done = converted(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/ind.cora.graph cannot be read: it has a posix.mkdir")
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
def test_every_version_of_every_layer_is_right(tmp_path: Path, unoptimised: None) -> None:
    """Widths that end within tiles and lanes: 70, 20, 9."""
    file = tmp_path / "gnn.db"
    graph = "powerlaw(nodes = 150, edges = 4, features = 70, zeros = 0.6, classes = 9)"
    options = TuneOptions(target="host", cell=0.001, inputs=(graph,), sizes="hidden=20")
    done = tune(SAMPLES / "gnn/sage.dag", file, options)
    assert not done.failures
    with sqlite3.connect(file) as connection:
        checked = connection.execute("SELECT failure FROM checked").fetchall()
        measured = connection.execute("SELECT domain, failure FROM candidate").fetchall()
    assert {domain for domain, _ in measured} == {"layer[0]", "layer[1]"}
    assert len(measured) >= 2 * 6  # versions without libraries, on both devices
    assert {failure for _, failure in measured} == {""}
    assert {failure for (failure,) in checked} == {""}


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
@pytest.mark.thorough
def test_networks_are_right_under_the_plan_and_on_each_device(tmp_path: Path, unoptimised: None) -> None:
    """By the benchmark, on one small graph: both models, forced placements and the planned one."""
    command = [sys.executable, "-m", "benchmarks.gpu.gnn", "--target", "host", "--first", "1", "--out"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command += [str(tmp_path), "--time", "900"]
    done = subprocess.run(command, cwd=SAMPLES.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gnn.json").read_text())
    assert [one["model"] for one in found["test"]] == ["gcn", "sage"]
    for one in found["test"]:
        assert one["wrong"] == {}
        assert one["tried"] == 2 ** one["layers"]
        for side in ("gpu", "cpu"):
            assert all(version.startswith(f"{side}.") for version in one["named"][f"{side}_only"]["versions"])
        assert one["exhaustive_us"] <= min(at["us"] for at in one["named"].values())
        assert one["expected_us"] > 0
    assert "PoIS" in done.stdout


def test_the_lists_share_no_graph_and_each_can_be_made() -> None:
    lists = [inputs_of("gnn", which) for which in ("train", "test")]
    every = [text for one in lists for text in one]
    assert len(set(every)) == len(every)
    for text in every:
        small = re.sub(r"nodes = [\d_]+", "nodes = 30", text)
        assert read_graph(small).classes > 1

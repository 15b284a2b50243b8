"""The samples with versions on both devices: set-ups, references, and every version against the reference."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from dagc.base.errors import DagcError
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_nvcc, has_library
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from tests.emit.build import NVCC_ALONE, graph
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample
from tests.tiers import representatives

NAMES = ("gemm", "pagerank", "nbody", "kmotif")


def test_zeros_of_a_matrix_and_values_that_stay() -> None:
    gemm = sample("gemm/gemm.py")
    data = gemm.matrices(0, 1, 3, 40, 30, 500, 0.8)
    assert (data["A"].shape, data["B"].shape) == ((40, 500), (500, 30))
    assert np.mean(data["A"] == 0) == pytest.approx(0.8, abs=0.02)
    others = data["A"][data["A"] != 0]
    assert (others.min(), others.max()) == pytest.approx((-1, 1), abs=0.01)
    assert gemm.matrices(2, 4, 3, 40, 30, 500, 0.8)["B"].tobytes() == data["B"].tobytes(), "each rank has the same"
    C, positive = gemm.product(data)["C"], gemm.product(data, relu=True)["C"]
    np.testing.assert_array_equal(positive, np.where(C < 0, 0, C))
    for wrong in ({"m": 0}, {"share": 1.5}):
        with pytest.raises(ValueError, match="is at least 1|between 0 and 1"):
            gemm.matrices(0, 1, 0, **({"m": 2, "n": 2, "k": 2, "share": 0.5} | wrong))


def test_ranks_of_pages_solve_their_equation() -> None:
    pagerank = sample("pagerank/pagerank.py")
    data = pagerank.graph(0, 1, 5, 300, 3.0, 0.57)
    n, m = data["n"], data["m"]
    assert 0.7 * 900 < m <= 900
    links = np.zeros((n, n))
    for v in range(n):
        links[v, data["sources"][data["in_ptr"][v] : data["in_ptr"][v + 1]]] = 1
    outward = np.zeros((n, n))
    for v in range(n):
        outward[data["targets"][data["out_ptr"][v] : data["out_ptr"][v + 1]], v] = 1
    np.testing.assert_array_equal(links, outward)
    degrees = links.sum(0)
    assert (degrees == 0).any(), "vertices without links are a case of their own"
    step = np.where(degrees > 0, links / np.maximum(degrees, 1), 1 / n)
    found = pagerank.power(data, damping=0.85)["rank_of"].astype(float)
    np.testing.assert_allclose(found, 0.85 * step @ found + 0.15 / n, rtol=1e-5)
    with pytest.raises(ValueError, match="ratio <= nodes"):
        pagerank.graph(0, 1, 0, 4, 5.0, 0.5)


def test_two_bodies_fall_towards_each_other() -> None:
    nbody = sample("nbody/nbody.py")
    data = nbody.cloud(0, 1, 1, 2, 10, 0.1, 1.0, 1e-5, 1e5)
    assert (data["mass"] > 0).all()
    found = nbody.direct(data)
    a = found["acceleration"].reshape(3, 2)
    np.testing.assert_allclose(data["mass"] @ a.T, 0, atol=1e-6 * np.abs(a).max() * data["mass"].max())
    x = data["start"].reshape(3, 2)
    assert np.all(a[:, 0] * (x[:, 1] - x[:, 0]) > 0)
    assert np.linalg.norm(found["position"] - data["start"]) > 0


@pytest.mark.parametrize("motif", [3, 4])
def test_motifs_by_formulas_are_those_of_an_enumeration(motif: int) -> None:
    kmotif = sample("kmotif/kmotif.py")
    data = kmotif.graph(0, 1, 2, 26, 6.0, 0.5, motif=motif)
    near = np.zeros((26, 26), bool)
    for v in range(26):
        near[v, data["neighbours"][data["ptr"][v] : data["ptr"][v + 1]]] = True
    assert (near == near.T).all()
    assert not near.diagonal().any()
    kinds = {  # sorted degrees
        (1, 1, 2): 0, (2, 2, 2): 1,
        (1, 1, 1, 3): 0, (1, 1, 2, 2): 1, (1, 2, 2, 3): 2, (2, 2, 2, 2): 3, (2, 2, 3, 3): 4, (3, 3, 3, 3): 5,
    }  # fmt: skip
    expected = np.zeros(6, np.uint64)
    for some in itertools.combinations(range(26), motif):
        kind = kinds.get(tuple(sorted(near[np.ix_(some, some)].sum(0).tolist())))
        if kind is not None:
            expected[kind] += 1
    assert (expected[: 2 if motif == 3 else 6] > 0).all()
    np.testing.assert_array_equal(kmotif.formulas(data)["found"], expected)


def test_matrices_and_graphs_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a.mtx"
    file.write_text("%%MatrixMarket matrix coordinate real general\n3 3 4\n1 2 0.5\n2 1 -2\n3 3 1\n3 1 4\n")
    A = np.array([[0, 0.5, 0], [-2, 0, 0], [4, 0, 1]], np.float32)
    data = sample("gemm/gemm.py").matrices(0, 1, 0, 9, 2, 9, 0.5, str(file))
    np.testing.assert_array_equal(data["A"], A)
    assert (data["M"], data["N"], data["K"], data["B"].shape) == (3, 2, 3, (3, 2))
    links = sample("pagerank/pagerank.py").graph(0, 1, 0, 9, 1.0, 0.5, str(file))
    assert (links["n"], links["m"]) == (3, 3), "without the loop"
    np.testing.assert_array_equal(links["targets"], [1, 0, 0])
    np.testing.assert_array_equal(links["sources"], [1, 2, 0])
    motifs = sample("kmotif/kmotif.py").graph(0, 1, 0, 9, 1.0, 0.5, motif=3, file=str(file))
    np.testing.assert_array_equal(motifs["ptr"], [0, 2, 3, 4])
    np.testing.assert_array_equal(motifs["neighbours"], [1, 2, 0, 0])
    file.write_text("%%MatrixMarket matrix coordinate real general\n3 2 1\n1 2 0.5\n")
    for name, motif in (("pagerank", {}), ("kmotif", {"motif": 3})):
        with pytest.raises(ValueError, match="as many rows as columns"):
            sample(f"{name}/{name}.py").graph(0, 1, 0, 9, 1.0, 0.5, **motif, file=str(file))
    file.write_text("%%MatrixMarket matrix coordinate real general\n60000 60000 9000\n")
    with pytest.raises(ValueError, match="60000 x 60000: A has 2147483647 elements at most"):
        sample("gemm/gemm.py").matrices(0, 1, 0, 9, 2, 9, 0.5, str(file))


def test_the_features_of_both_graph_samples_are_one_file() -> None:
    """Files of a program lie below its folder."""
    first, second = ((SAMPLES / name / "features.hpp").read_text() for name in ("pagerank", "kmotif"))
    assert first == second


# Every version on the host target, at drawn inputs: tiles end within the input, and threads share the work.
RUNS = {
    "gemm": ({"most": "2e5", "relu": "true"}, 6 + has_library("openblas")),  # without cuBLAS and cuSPARSE
    "pagerank": ({"nodes": "517", "tolerance": "1e-5"}, 7),
    "nbody": ({"most": "1e6"}, 6),
    "kmotif": ({"nodes": "131"}, 4),
}


@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.mpi
@pytest.mark.parametrize("name", representatives(RUNS, "gemm"))
def test_every_version_is_right(name: str, tmp_path: Path, unoptimised: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    defines, versions = RUNS[name]
    options = TuneOptions(target="host", cell=0.0001, variants=True, samples=2, defines=defines)
    done = tune(SAMPLES / name / f"{name}.dag", tmp_path / "tuned.db", options)
    assert not done.failures
    with sqlite3.connect(tmp_path / "tuned.db") as connection:
        checked = connection.execute("SELECT failure FROM checked").fetchall()
        measured = connection.execute("SELECT failure FROM candidate").fetchall()
    assert checked
    assert all(failure == "" for (failure,) in checked)
    assert measured == [("",)] * 2 * versions, "at both inputs"


def test_gemm_takes_large_matrices_and_tensor_cores_where_they_are_allowed() -> None:
    sizes = {"m": "2048", "n": "2048", "k": "2048"}
    with pytest.raises(DagcError, match="false for these params"):
        graph(SAMPLES / "gemm" / "gemm.dag", **sizes)
    for tolerance, allowed in (("1e-4", False), ("1e-3", True)):
        program = graph(SAMPLES / "gemm" / "gemm.dag", **sizes, most="1e10", tolerance=tolerance).program
        (decision,) = (d for d in program.decisions if d.name == "c.gpu.variant")
        assert ("tensor" in decision.values) == ("half" in decision.values) == allowed
        assert "tensor_split" in decision.values


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI")
@pytest.mark.parametrize("name", representatives(NAMES, "kmotif"))
def test_nvcc_takes_the_files_of(name: str, tmp_path: Path) -> None:
    for source in sorted((SAMPLES / name).glob("*.cu")):
        build(Build([source], target="cuda", arch="sm_90", mpi=require_mpi(), flags=NVCC_ALONE), tmp_path / "out")

"""samples/solvers: preconditioners, features and systems are what they say; the programs compute their iterates."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dagc import api
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from tests.samples.load import SAMPLES, sample
from tests.tiers import representatives

solvers = sample("solvers/solvers.py")
with_int32 = solvers._int32
CALLS = (
    "poisson(side=12)",
    "poisson(side=6, dims=3)",
    "diffusion(side=12, stretch=100, jump=2)",
    "convection(side=12, peclet=2)",
    "convection(side=12, peclet=0.2, shift=0.01)",
    "dominant(rows=203)",
    "dominant(rows=203, symmetric=True)",
    "blocks(rows=203)",
    "blocks(rows=203, size=5, symmetric=False)",
    "saddle(side=12)",
    "rotated(side=12, angle=30)",
    "biharmonic(side=9, foundation=1)",
    "mass(side=9, grading=10)",
    "reaction(side=7, species=3)",
    "surfer(n=150)",
    "network(n=150)",
    "elastic(side=8, contrast=1)",
    "queue(side=12)",
    "springs(n=150, spread=2)",
    "ridge(n=150)",
    "kriging(n=150)",
    "transport(side=8)",
)


def matrix(data: dict[str, object]) -> sparse.csr_array:
    n = data["n"]
    return sparse.csr_array((data["val"], data["col"], data["row_ptr"]), shape=(n, n))


def residual(data: dict[str, object], x: np.ndarray) -> float:
    return float(np.linalg.norm(data["b"] - matrix(data) @ x) / np.linalg.norm(data["b"]))


@pytest.mark.parametrize("text", CALLS)
def test_a_system_is_solved_by_one_of_the_methods(text: str) -> None:
    data = solvers.load(0, 1, 1, text)
    assert all(np.isfinite(value).all() for name, value in data.items() if name != "old")
    left = []
    for solver in ("cg", "bicgstab"):
        for precond in ("jacobi", "block", "sparse"):
            with np.errstate(all="ignore"):
                found = solvers.iterates(data, unroll=200, solver=solver, precond=precond)
            left.append(residual(data, found["x"]))
    assert np.nanmin(left) < 1e-6


def test_which_systems_are_symmetric() -> None:
    found = {text: solvers.asymmetry(matrix(solvers.load(0, 1, 1, text))) for text in CALLS}
    symmetric = {text for text, value in found.items() if value < 1e-12}
    unequal = ("convection", "reaction", "surfer", "queue", "transport")
    skew = {text for text in CALLS if text.startswith(unequal) or "symmetric=False" in text or text == CALLS[5]}
    assert symmetric == set(CALLS) - skew


def test_features() -> None:
    A = with_int32(sparse.csr_array(np.array([[4.0, 1, 0], [-2, 1, 0], [0, 3, 3]])))
    assert solvers.asymmetry(A) == pytest.approx(2 * (3 + 3) / (2 * 14))
    data = solvers.load(0, 1, 1, "blocks(rows=200, size=8, coupling=0.5, symmetric=False, seed=4)")
    assert (data["leader_solver"], data["leader_precond"]) == (1, 1), "blocks are what block Jacobi inverts"


def test_a_race_finds_the_pair_with_the_least_work() -> None:
    """Pairs that converge within a race are ordered by the seconds of their iterations."""
    data = solvers.load(0, 1, 1, "poisson(side=12)")
    A, order, seconds = matrix(data), [], {}
    for pair in ((solver, precond) for solver in solvers.SOLVERS for precond in solvers.PRECONDITIONERS):
        options = dict(zip(("solver", "precond"), pair, strict=True))
        at = (i for i in range(1, 99) if residual(data, solvers.iterates(data, **options, unroll=i)["x"]) < 1e-6)
        seconds[pair] = next(at) * solvers.iteration_seconds(data, *pair)
        order = sorted(seconds, key=seconds.__getitem__)
    assert [trial.pair for trial in solvers.race(A, data, 1e-6)[:3]] == order[:3]
    hopeless = {**data, "diagonal": np.full(144, np.nan)}
    assert [trial.pair[1] for trial in solvers.race(A, hopeless, 1e-6)[-2:]] == ["jacobi", "jacobi"]


def test_the_sparse_inverse_is_the_best_of_its_pattern() -> None:
    """Each column solves its least-squares problem; with the full pattern it is the inverse."""
    A = solvers.dominant(60, per_row=4, margin=1.2)
    M = solvers.approximate_inverse(A).toarray()
    for j in range(60):
        rows = np.flatnonzero(M[:, j])
        assert 1 <= rows.size <= solvers.PATTERN
        best = np.linalg.lstsq(A.toarray()[:, rows], np.eye(60)[:, j], rcond=None)[0]
        np.testing.assert_allclose(M[rows, j], best, rtol=1e-6, atol=1e-10)
    small = with_int32(sparse.csr_array(np.random.default_rng(1).random((6, 6)) + 4 * np.eye(6)))
    np.testing.assert_allclose(solvers.approximate_inverse(small).toarray(), np.linalg.inv(small.toarray()), rtol=1e-6)


def test_blocks_are_inverted() -> None:
    A = solvers.blocks(21, size=8, coupling=0.0)
    found = solvers.inverse_blocks(A)
    np.testing.assert_allclose(found[1], np.linalg.inv(A.toarray()[8:16, 8:16]), rtol=1e-8)
    np.testing.assert_allclose(found[2][:5, :5], np.linalg.inv(A.toarray()[16:, 16:]), rtol=1e-8)
    singular = np.ones((8, 8)) + np.diag([1.0] + [0] * 7)
    alone = solvers.inverse_blocks(with_int32(sparse.csr_array(singular)))
    np.testing.assert_allclose(alone[0], np.diag([0.5] + [1.0] * 7))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poisson(side=1)", "at least 2"),
        ("data/none.mtx", "cannot be read"),
        ("../spmv/data/well1850.mtx", "not square"),
        ("poisson(side=4, dims=4)", "1 to 3"),
    ],
)
def test_systems_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solvers.load(0, 1, 1, text)


def test_a_file_is_read_where_the_sample_is_alone(tmp_path: Path) -> None:
    """As after `dagc init --from solvers`."""
    shutil.copytree(SAMPLES / "solvers", tmp_path / "mine")
    spec = importlib.util.spec_from_file_location("alone", tmp_path / "mine/solvers.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.load(0, 1, 1, "data/nos5.mtx")["n"] == 468
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2000000000 3 1\n1 1 1\n")
    with pytest.raises(ValueError, match=r"a\.mtx is 2000000000 x 3 with 1 entries"):
        alone.load(0, 1, 1, str(tmp_path / "a.mtx"))


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize(
    ("solver", "precond"), representatives([("cg", "sparse"), ("bicgstab", "block")], ("cg", "sparse"))
)
def test_a_program_computes_the_iterates(tmp_path: Path, unoptimised: None, solver: str, precond: str) -> None:
    defines = {"solver": solver, "precond": precond, "system": "diffusion(side=9, jump=1)", "unroll": "2"}
    done = api.compile(
        SAMPLES / "solvers/solvers.dag", tmp_path, target="host", defines=defines, run=True, ranks=1, repeats=1
    )
    assert done.result is not None

"""The SpMV's set-up: an exchange played in NumPy, by the ranks' own lists, must give the reference."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
from scipy.io import mmwrite

from tests.samples.load import sample

spmv = sample("spmv/spmv.py")

SHAPES = [(1, 1, 0), (7, 3, 2), (101, 10, 25), (100, 4, 100), (64, 5, 0), (3, 2, 1), (1000, 10, 250), (50, 0, 5)]
"""(rows, nnz_per_row, bandwidth): odd, tiny, fewer rows than ranks, full band, diagonal, no entries at all."""


def ranks_of(size: int, shape: tuple[int, int, int], seed: int = 1) -> list[dict[str, Any]]:
    return [spmv.banded(rank, size, seed, *shape) for rank in range(size)]


def exchanged(ranks: list[dict[str, Any]]) -> list[np.ndarray]:
    """x_r of every rank: what the program packs, sends and receives."""
    sent: dict[tuple[int, int], np.ndarray] = {}
    for rank, data in enumerate(ranks):
        x_send = data["x_l"][data["send_index"]]
        ends = np.cumsum(data["send_counts"])
        for to, start, stop in zip(data["send_ranks"], ends - data["send_counts"], ends, strict=True):
            sent[rank, int(to)] = x_send[start:stop]
    out = []
    for rank, data in enumerate(ranks):
        parts = [np.empty(0, np.float32)]
        for source, count in zip(data["recv_ranks"], data["recv_counts"], strict=True):
            part = sent.pop((int(source), rank))
            assert part.size == count
            parts.append(part)
        out.append(np.concatenate(parts))
    assert not sent, "a message was sent that nobody expects"
    return out


def local_product(data: dict[str, Any], x_r: np.ndarray) -> np.ndarray:
    n = data["n"]
    left = sparse.csr_matrix((data["val_l"], data["col_l"], data["row_ptr_l"]), (n, max(1, n)))
    right = sparse.csr_matrix((data["val_r"], data["col_r"], data["row_ptr_r"]), (n, max(1, x_r.size)))
    pad_l = np.zeros(max(1, n))
    pad_l[:n] = data["x_l"]
    pad_r = np.zeros(max(1, x_r.size))
    pad_r[: x_r.size] = x_r
    return left @ pad_l + right @ pad_r


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_exchange_gives_the_product(size: int, shape: tuple[int, int, int]) -> None:
    rows, nnz_per_row, bandwidth = shape
    ranks = ranks_of(size, shape)
    for rank, (data, x_r) in enumerate(zip(ranks, exchanged(ranks), strict=True)):
        want = spmv.product(
            data, rank=rank, size=size, seed=1, rows=rows, nnz_per_row=nnz_per_row, bandwidth=bandwidth
        )["y"]
        assert want.dtype == np.float32
        assert want.shape == (data["n"],)
        np.testing.assert_allclose(local_product(data, x_r), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_matrix_does_not_depend_on_the_number_of_ranks(size: int) -> None:
    def product(rank: int, size: int) -> np.ndarray:
        return spmv.product({}, rank=rank, size=size, seed=5, rows=101, nnz_per_row=10, bandwidth=25)["y"]

    assert np.array_equal(np.concatenate([product(r, size) for r in range(size)]), product(0, 1))
    assert sum(d["val_l"].size + d["val_r"].size for d in ranks_of(size, (101, 10, 25))) == 1010


def test_chunks_change_nothing() -> None:
    """One rank makes its entries in two chunks, each of three in one."""
    shape = rows, nnz_per_row, bandwidth = spmv.CHUNK // 400 + 100, 400, 1000

    def product(rank: int, size: int) -> np.ndarray:
        given = {"rows": rows, "nnz_per_row": nnz_per_row, "bandwidth": bandwidth}
        return spmv.product({}, rank=rank, size=size, seed=1, **given)["y"]

    whole = product(0, 1)
    assert np.array_equal(np.concatenate([product(rank, 3) for rank in range(3)]), whole)
    (data,) = ranks = ranks_of(1, shape)
    np.testing.assert_allclose(local_product(data, exchanged(ranks)[0]), whole, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1, 4])
def test_types_shapes_and_ranges(size: int) -> None:
    for rank, data in enumerate(ranks_of(size, (1000, 10, 250))):
        n = data["n"]
        for name in ("row_ptr_l", "row_ptr_r", "col_l", "col_r", "send_index", "send_ranks", "send_counts",
                     "recv_ranks", "recv_counts"):  # fmt: skip
            assert data[name].dtype == np.int32, name
        for name in ("x_l", "val_l", "val_r"):
            assert data[name].dtype == np.float32, name
        for side in ("l", "r"):
            pointers = data[f"row_ptr_{side}"]
            assert pointers.shape == (n + 1,)
            assert pointers[-1] == data[f"col_{side}"].size == data[f"val_{side}"].size
        assert data["send_index"].shape == (data["n_send"],)
        assert data["send_counts"].sum() == data["n_send"]
        assert data["recv_counts"].sum() == data["n_recv"]
        assert data["send_ranks"].shape == (data["n_to"],)
        assert data["recv_ranks"].shape == (data["n_from"],)
        for peers, counts in (("send_ranks", "send_counts"), ("recv_ranks", "recv_counts")):
            assert (data[counts] > 0).all()
            assert rank not in data[peers]
            assert (np.diff(data[peers]) > 0).all()
        # Nothing is sent that is not needed, nor twice to one rank.
        assert np.unique(data["col_r"]).size == data["n_recv"]


def test_columns_are_uniform_in_the_band() -> None:
    matrix = spmv.Matrix(3, 10_000, 10, 500)
    columns = matrix.columns(0, 10_000)
    offset = columns - np.arange(10_000)[:, None]
    assert offset.min() == -500
    assert offset.max() == 500
    assert (np.diff(columns, axis=1) >= 0).all()
    assert columns.min() >= 0
    assert columns.max() < 10_000
    inner = offset[500:-500].ravel()
    counts = np.bincount(inner + 500, minlength=1001)
    # 90 000 draws from 1001 cells: chi-squared per cell is 1, give or take sqrt(2 / 1001).
    chi_squared = ((counts - inner.size / 1001) ** 2).sum() / (inner.size / 1001) / 1000
    assert abs(chi_squared - 1) < 6 * np.sqrt(2 / 1000)


def test_the_published_size_balances_local_and_remote() -> None:
    data = spmv.banded(1, 4, 1, 150_000, 10, 37_500)
    assert data["val_l"].size / 375_000 == pytest.approx(0.5, abs=0.01)


def test_seeds_give_different_matrices() -> None:
    one, other = (spmv.banded(0, 2, seed, 100, 5, 20) for seed in (1, 2))
    assert not np.array_equal(one["col_l"], other["col_l"])
    assert not np.array_equal(one["x_l"], other["x_l"])


@pytest.mark.parametrize("shape", [(0, 1, 1), (10, -1, 1), (10, 1, -2), (2**31, 1, 1), (2**30, 10, 1)])
def test_sizes_without_sense_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="rows"):
        spmv.banded(0, 1, 1, *shape)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("ending", [".mtx", ".mtx.xz"])
def test_a_matrix_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symmetric: bool, ending: str) -> None:
    rows, size = 57, 4
    pattern = sparse.random(rows, rows, density=0.1, random_state=3, format="coo")
    if symmetric:
        pattern = (pattern + pattern.T).tocoo()
    plain = tmp_path / "a.mtx"
    mmwrite(plain, pattern, field="pattern", symmetry="symmetric" if symmetric else "general")
    path = tmp_path / f"a{ending}"
    path.write_bytes(lzma.compress(plain.read_bytes()) if ending.endswith("xz") else plain.read_bytes())
    use_matrix(monkeypatch, path)
    ranks = ranks_of(size, (rows, 0, spmv.FROM_FILE))
    whole = []
    for rank, (data, x_r) in enumerate(zip(ranks, exchanged(ranks), strict=True)):
        want = spmv.product(data, rank=rank, size=size, seed=1, rows=rows, nnz_per_row=0, bandwidth=spmv.FROM_FILE)["y"]
        np.testing.assert_allclose(local_product(data, x_r), want, rtol=1e-5, atol=1e-6)
        whole.append(data["val_l"].size + data["val_r"].size)
    assert sum(whole) == pattern.nnz
    with pytest.raises(ValueError, match="57 x 57, not 58 x 58"):
        spmv.banded(0, size, 1, 58, 0, spmv.FROM_FILE)


HEADER = b"%%MatrixMarket matrix coordinate pattern general\n"
EXPANDS = HEADER + b"57 57 1\n1 1\n" + b"\n" * 20_000_000

# Name: ending, content (made when its test runs: some take long to compress), message.
NO_MATRICES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "empty": (".mtx", lambda: b"", ":1: not the first line of a sparse matrix"),
    "one long line": (".mtx", lambda: b"x" * 5_000_000, ":1: not the first line of a sparse matrix"),
    "dense": (".mtx", lambda: HEADER.replace(b"coordinate", b"array") + b"57 57\n", ":1: not the first line"),
    "comments alone": (".mtx", lambda: HEADER + b"% comment\n" * 2000, "no line of rows, columns and entries"),
    "negative count": (".mtx", lambda: HEADER + b"57 57 -3\n", "no line of rows, columns and entries"),
    "too many entries": (".mtx", lambda: HEADER + b"57 57 3000000000\n", "too many for 57 rows"),
    "cut off": (".mtx", lambda: HEADER + b"57 57 3000\n1 1\n", ":3: the file ends after 1 of 3000 entries"),
    "row out of bounds": (
        ".mtx",
        lambda: HEADER + b"57 57 1\n58 1\n",
        ":3: the entry is outside the matrix of 57 x 57",
    ),
    "expands, xz": (".mtx.xz", lambda: lzma.compress(EXPANDS), "over 1025024 bytes for 1 entries"),
    "expands, gz": (".mtx.gz", lambda: gzip.compress(EXPANDS), "over 1025024 bytes for 1 entries"),
    "cut off, gz": (".mtx.gz", lambda: gzip.compress(HEADER + b"57 57 3249\n1 1\n"), ":3: the file ends after 1 of"),
    "archive cut off": (".mtx.gz", lambda: gzip.compress(HEADER + b"57 57 1\n1 1\n")[:-9], "cannot be read"),
    "no archive, xz": (".mtx.xz", lambda: b"no archive", "cannot be read"),
    "no archive, gz": (".mtx.gz", lambda: b"no archive", "cannot be read"),
}


def use_matrix(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """The file that the set-up reads, which it keeps."""
    monkeypatch.setenv("SPMV_MATRIX", str(path))
    spmv._file_matrix.cache_clear()


@pytest.mark.parametrize("name", NO_MATRICES)
def test_a_file_that_is_no_such_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ending, content, message = NO_MATRICES[name]
    path = tmp_path / f"a{ending}"
    path.write_bytes(content())
    use_matrix(monkeypatch, path)
    with pytest.raises(ValueError, match=message):
        spmv.banded(0, 1, 1, 57, 0, spmv.FROM_FILE)


def test_a_pipe_is_no_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.mtx")
    for path, message in (
        (tmp_path / "a.mtx", "regular file"),
        (Path("/dev/zero"), "regular"),
        (tmp_path, "directory"),
    ):
        use_matrix(monkeypatch, path)
        with pytest.raises(ValueError, match=message):
            spmv.banded(0, 1, 1, 57, 0, spmv.FROM_FILE)

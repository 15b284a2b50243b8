"""Matrices of samples/spmv: families are what their names say, files are read or refused with a reason."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite

from tests.samples.load import SAMPLES, sample

matrices = sample("spmv/matrices.py")

# Call: shape, non-zeros of the longest row.
FAMILIES = {
    "stencil(points=5, side=7)": ((49, 49), 5),
    "stencil(points=7, side=4)": ((64, 64), 7),
    "stencil(points=9, side=5)": ((25, 25), 9),
    "stencil(points=27, side=4)": ((64, 64), 27),
    "stencil(points=5, side=9, shuffled=True)": ((81, 81), 5),
    "dense_band(rows=30, half=3)": ((30, 30), 7),
    "dense_band(rows=1, half=1)": ((1, 1), 1),
    "band(rows=101, half=9, per_row=5)": ((101, 101), 5),
    "uniform(rows=77, per_row=3, cols=400)": ((77, 400), None),
    "uniform(rows=400, per_row=2, cols=9)": ((400, 9), None),
    "regular(rows=50, per_row=6)": ((50, 50), 6),
    "blocks(rows=47, size=6)": ((47, 47), 6),
    "fem(side=4, dof=3)": ((192, 192), 81),
    "zipf(rows=500, mean=6)": ((500, 500), None),
    "rmat(scale=8)": ((256, 256), None),
    "arrow(rows=65, width=2)": ((65, 65), 65),
    "long_rows(rows=300, per_row=2, long=2)": ((300, 300), 300),
    "circuit(rows=300)": ((300, 300), None),
    "staircase(rows=100, longest=40)": ((100, 100), 40),
    "sparse_rows(rows=100, share=0.1, per_row=5)": ((100, 100), 5),
    "two_lengths(rows=100, short=2, long=50)": ((100, 100), 50),
    "diagonals(rows=90, count=6)": ((90, 90), None),
    "smallworld(rows=200, near=2)": ((200, 200), None),
    "triangular(rows=150, per_row=4)": ((150, 150), None),
    "bordered(rows=50, size=7, border=3)": ((50, 50), 10),
    "hypercube(dims=6)": ((64, 64), 6),
    "fractal(depth=5)": ((32, 32), 32),
    "terms(rows=100, mean=6, cols=80)": ((100, 80), None),
    "prolongation(side=5)": ((125, 27), 8),
    "tree(rows=200)": ((200, 200), None),
    "angular(parts=4, high=5, wide=30, per_row=3, linking=2)": ((22, 120), 12),
    "cliques(rows=90, size=5, count=20)": ((90, 90), None),
    "chain(queues=3, places=4)": ((64, 64), 6),
    "kron(side=4, half=1, size=6)": ((24, 24), None),
    "dense(rows=20, cols=33)": ((20, 33), 33),
}


@pytest.mark.parametrize("text", FAMILIES)
def test_a_family(text: str) -> None:
    shape, longest = FAMILIES[text]
    A = matrices.matrix(text)
    A.check_format(full_check=True)
    assert A.shape == shape
    assert (A.indptr.dtype, A.indices.dtype, A.data.dtype) == (np.int32, np.int32, np.float32)
    assert A.has_canonical_format  # ascending, none twice: what the kernels' features assume of a sample
    assert longest in (None, np.diff(A.indptr).max())
    assert np.abs(A.data).max() <= 1
    assert (matrices.matrix(text) != A).nnz == 0


def test_every_family_is_tested() -> None:
    assert {text.split("(")[0] for text in FAMILIES} == set(matrices.GENERATORS) - {"file"}


def test_where_the_entries_are() -> None:
    def places(text: str) -> tuple[np.ndarray, np.ndarray]:
        coo = matrices.matrix(text).tocoo()
        return coo.coords

    i, j = places("band(rows=1000, half=9, per_row=5)")
    assert np.abs(i - j).max() == 9
    i, j = places("blocks(rows=100, size=7)")
    assert (i // 7 == j // 7).all()
    i, j = places("stencil(points=9, side=10)")
    assert (np.abs(i // 10 - j // 10) <= 1).all()
    assert (np.abs(i % 10 - j % 10) <= 1).all()
    i, j = places("stencil(points=5, side=30, shuffled=True)")
    assert np.abs(i - j).max() > 500
    A = matrices.matrix("stencil(points=7, side=6, shuffled=True)")
    assert ((A != 0) != (A.T != 0)).nnz == 0
    lengths = np.sort(np.diff(matrices.matrix("zipf(rows=20000, mean=11)").indptr))
    assert lengths[-200:].sum() > 0.2 * lengths.sum()
    assert lengths.mean() == pytest.approx(11, rel=0.2)


def test_a_band_is_uniform_in_its_width() -> None:
    A = matrices.matrix("band(rows=20000, half=500, per_row=10)").tocoo()
    i, j = A.coords
    offset = (j - i)[(i > 500) & (i < 19_500)]
    counts = np.histogram(offset, bins=11, range=(-500.5, 500.5))[0]
    assert counts.min() > 0.95 * counts.mean()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("band(rows=0, half=1, per_row=1)", "rows = 0: must be positive"),
        ("stencil(points=6, side=3)", "5, 7, 9 or 27"),
        ("rmat(scale=40)", "scale 40"),
        ("uniform(rows=300_000_000, per_row=9)", "too many for 32-bit indices"),
        ("bands(rows=3)", "unknown generator `bands`"),
        ("band(3, 4, 5)", "by its name"),
        ("band(rows=__import__('os').getpid(), half=1, per_row=1)", "rows is not a number"),
        ("file(path='a.mtx')", "DAGC_MATRICES"),
    ],
)
def test_calls_that_make_no_sense(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGC_MATRICES", raising=False)
    with pytest.raises(ValueError, match=message):
        matrices.matrix(text)


def test_files_below_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    A = sparse.random_array((7, 9), density=0.4, rng=np.random.default_rng(1))
    for path in (tmp_path / "in/a.mtx", tmp_path / "b.mtx"):
        mmwrite(path, A)
    monkeypatch.setenv("DAGC_MATRICES", str(tmp_path / "in"))
    found = matrices.matrix('file(path = "a.mtx")')
    np.testing.assert_allclose(found.toarray(), A.toarray(), rtol=1e-6)
    with pytest.raises(ValueError, match="not below"):
        matrices.matrix('file(path = "../b.mtx")')


HEADER = "%%MatrixMarket matrix coordinate "
# Text of a file: the matrix, or the reason why it is refused.
FILES: dict[str, tuple[str, list[list[float]] | str]] = {
    "rectangular": ("real general\n2 3 2\n1 1 2\n2 3 -4\n", [[2, 0, 0], [0, 0, -4]]),
    "symmetric": ("real symmetric\n2 2 2\n1 1 2\n2 1 3\n", [[2, 3], [3, 0]]),
    "skew": ("real skew-symmetric\n2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
    "duplicates": ("real general\n2 2 3\n1 1 2\n1 1 3\n2 1 1\n", [[5, 0], [1, 0]]),
    "integer": ("integer general\n1 2 1\n1 2 7\n", [[0, 7]]),
    "empty rows": ("real general\n4 2 1\n3 1 1\n", [[0, 0], [0, 0], [1, 0], [0, 0]]),
    "complex": ("complex general\n1 1 1\n1 1 2 3\n", "is complex"),
    "no entries": ("real general\n3 3 0\n", "has no entries"),
    "no rows": ("real general\n0 3 0\n", "is empty: 0 x 3"),
    "cut off": ("real general\n3 3 3\n1 1 1\n", r":3: the file ends after 1 of 3 entries"),
    "out of bounds": ("real general\n3 3 1\n4 1 1\n", ":3: the entry is outside the matrix of 3 x 3"),
    "not a number": (
        "real general\n1 1 1\n1 1 nan\n",
        ":3: expected a row, a column and a real number .* found `1 1 nan`",
    ),
    "too large": ("real general\n1 1 1\n1 1 1e300\n", ":3: the entry is outside the range of float32"),
    "words": ("real general\n1 1 1\n1 1 one\n", ":3: .* found `1 1 one`"),
    "array": ("", ":1: not the first line of a sparse matrix"),
    "many duplicates": ("real general\n1 2 12\n" + "1 1 1\n" * 12, [[12, 0]]),
    "large integers": ("integer general\n1 1 2\n" + "1 1 4611686018427387904\n" * 2, [[2.0**63]]),
    "many comments": ("real general\n" + "% word\n" * 5000 + "1 1 1\n1 1 3\n", [[3]]),
    "a long comment": ("real general\n%" + "x" * 5000 + "\n1 1 1\n1 1 3\n", [[3]]),
    "upper triangle": ("real symmetric\n2 2 2\n1 1 2\n1 2 3\n", [[2, 3], [3, 0]]),
    "both triangles": ("real symmetric\n2 2 3\n1 1 2\n2 1 3\n1 2 3\n", ":5: .*row 1, column 2 is above"),
    "both, lower last": ("pattern symmetric\n2 2 2\n1 2\n2 1\n", ":4: .*row 2, column 1 is below"),
    "both, skew": ("real skew-symmetric\n2 2 2\n2 1 3\n1 2 -3\n", "both sides of the diagonal"),
    "diagonal of skew": (
        "real skew-symmetric\n2 2 2\n2 1 3\n2 2 3\n",
        ":4: .*the entry on the diagonal in row 2 is not zero",
    ),
    "symmetric, wide": ("real symmetric\n3 4 1\n3 1 1\n", "is symmetric, but not square: 3 x 4"),
    "no symmetry": ("real\n1 1 1\n1 1 1\n", ":1: not the first line of a sparse matrix"),
    "hermitian": ("complex hermitian\n1 1 1\n1 1 2 0\n", "is complex"),
    "integer out of range": (
        "integer general\n1 1 1\n1 1 99999999999999999999\n",
        ":3: the entry is outside the range",
    ),
    "rows without entries": ("real general\n2000000000 3 3\n1 1 1\n2 2 1\n3 3 1\n", "2000000000 x 3 with 3 entries"),
    "columns without entries": ("real general\n3 1000065 1\n1 1 1\n", "3 x 1000065 with 1 entries"),
    "too many": ("real general\n3 3 3000000000\n1 1 1\n", "3000000000 entries: too many"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
def test_a_file(tmp_path: Path, name: str, ending: str) -> None:
    text, expected = FILES[name]
    raw = (HEADER + text if text else "%%MatrixMarket matrix array real general\n1 1\n1\n").encode()
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected) as caught:
            matrices.read(str(path))
        assert str(path) in str(caught.value)
    else:
        np.testing.assert_array_equal(matrices.read(str(path)).toarray(), expected)


def test_a_pattern_gets_values(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(HEADER + "pattern symmetric\n3 3 2\n1 1\n3 1\n")
    A = matrices.read(str(tmp_path / "a.mtx"))
    assert A.nnz == 3
    assert len(set(A.data.tolist())) == 3
    assert [matrices.read(str(tmp_path / "a.mtx"), dtype).dtype for dtype in (np.float32, np.float64)] == ["f4", "f8"]


def test_rows_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(HEADER + "real general\n1000064 2 1\n7 1 1\n")
    assert matrices.read(str(tmp_path / "a.mtx")).shape == (1_000_064, 2)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("kept", [0, 9, 30])
def test_an_archive_that_is_cut_off(tmp_path: Path, ending: str, kept: int) -> None:
    packed = {"gz": gzip, "bz2": bz2, "xz": lzma}[ending].compress((HEADER + "real general\n1 1 1\n1 1 1\n").encode())
    path = tmp_path / f"a.mtx.{ending}"
    path.write_bytes(packed)
    assert matrices.read(str(path)).toarray() == [[1]]
    path.write_bytes(packed[:kept])
    with pytest.raises(ValueError, match=f"{path} cannot be read|{path}:1: not the first line of a sparse matrix"):
        matrices.read(str(path))


def test_too_little_memory_is_an_error_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mmread(source: object) -> None:
        raise MemoryError

    monkeypatch.setattr("scipy.io.mmread", mmread)
    (tmp_path / "a.mtx").write_text(HEADER + "real general\n1 1 1\n1 1 1\n")
    with pytest.raises(ValueError, match=r"a\.mtx cannot be read: not enough memory"):
        matrices.read(str(tmp_path / "a.mtx"))


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.mtx")
    with pytest.raises(ValueError, match="regular file"):
        matrices.read(str(tmp_path / "a.mtx"))


@pytest.mark.parametrize("path", sorted((SAMPLES / "spmv/data").glob("*.mtx")), ids=lambda p: p.stem)
def test_the_files_of_the_sample(path: Path) -> None:
    A = matrices.read(str(path))
    words = re.search(
        rf"`{path.name}` \| .*?([\d ]+) x ([\d ]+), ([\d ]+) non-zeros", (path.parent / "README.md").read_text()
    )
    assert words is not None
    assert (*A.shape, A.nnz) == tuple(int(word.replace(" ", "")) for word in words.groups())

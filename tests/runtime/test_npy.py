"""dagc/npy.hpp against NumPy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")

TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "?"]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (3, 5), (2, 0, 4), (2, 3, 4, 5)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("npy", tmp_path_factory.mktemp("npy"))


def run(program: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)


def refused(program: Path, path: Path, words: str, *args: object) -> None:
    """The program ends with 5 and one line that names the file and says what is wrong."""
    done = run(program, *(args or ("read", path)))
    assert done.returncode == 2
    assert done.stderr.startswith(f"dagc: {path}: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_and_shape_survives_a_round_trip(program: Path, tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(1)
    arrays, paths = [], []
    for shape in SHAPES:
        array = (random.random(shape) * 200 - (0 if kind[0] in "u?" else 100)).astype(kind)
        paths.append(tmp_path / f"{len(paths)}.npy")
        np.save(paths[-1], array)
        arrays.append(array)
    done = run(program, "read", *paths)
    assert done.returncode == 0, done.stderr
    for array, path, line in zip(arrays, paths, done.stdout.splitlines(), strict=True):
        name = "b1" if kind == "?" else kind
        assert line == f"{name} {array.shape} {array.size} {array.nbytes}"
        again = np.load(f"{path}.copy")
        assert again.dtype == array.dtype
        assert again.shape == array.shape
        assert np.array_equal(again, array)


def test_format_2_and_long_headers(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.npy"
    array = np.arange(6, dtype="i4").reshape(2, 3)
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=(2, 0))
    assert run(program, "read", path).stdout == "i4 (2, 3) 6 24\n"


def test_a_one_dimensional_array_has_both_orders(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(_file("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", np.ones(2, "f4").tobytes()))
    assert run(program, "read", path).stdout == "f4 (2,) 2 8\n"


def test_fortran_order_is_refused(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(np.ones((2, 3))))
    refused(program, path, "Fortran order")


@pytest.mark.parametrize("array", [np.ones(2, ">f4"), np.ones(2, "c8"), np.array(["a"]), np.ones(2, "f2")])
def test_other_types_are_refused(program: Path, tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    refused(program, path, f"type '{array.dtype.str}' is not supported")


def test_structured_arrays_are_refused(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(2, [("x", "f4"), ("y", "i4")]))
    refused(program, path, "structured arrays")


def _file(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2, "little") + text + data


BROKEN = [
    (b"", "file ends inside the header"),
    (b"PK\x03\x04 a zip archive", "not a .npy file"),
    (_file("{}"), "no 'descr' in the header"),
    (_file("{'descr': '<f4', 'fortran_order': False}"), "no 'shape' in the header"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': 3}"), "shape is broken"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}"), "shape is broken"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,"), "shape is broken"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), "too large"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"), "too large"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", b"1234"), "ends inside the data"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"1234567"), "ends inside the data"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"123456789"), "more data than its shape"),
    (_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"12345678", version=3), "format 3"),
    (b"\x93NUMPY\x01\x00\xff\xff short", "file ends inside the header"),
]


@pytest.mark.parametrize(("content", "words"), BROKEN)
def test_broken_files_are_refused(program: Path, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    refused(program, path, words)


def test_a_missing_file_and_a_folder_are_refused(program: Path, tmp_path: Path) -> None:
    refused(program, tmp_path / "no.npy", "cannot open: No such file")
    refused(program, tmp_path, "not a regular file")


def test_type_size_and_rank_are_checked(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(6, dtype="f4").reshape(2, 3))
    assert run(program, "typed", path, "f4", 6).stdout == "15\n"
    refused(program, path, "has type f4, expected i4", "typed", path, "i4", 6)
    refused(program, path, "has shape (2, 3), expected 5 elements", "typed", path, "f4", 5)
    refused(program, path, "has shape (2, 3), expected a scalar", "scalar", path)


def test_a_scalar_is_read(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.npy"
    np.save(path, np.int32(-7))
    assert run(program, "scalar", path).stdout == "-7\n"


def test_a_pipe_is_not_waited_for(program: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    refused(program, tmp_path / "a.npy", "not a regular file")

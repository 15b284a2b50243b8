"""The folder of `--data`, and what a results file says about it, are data: a good array, or one message."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz_files import write_program, write_results
from dagc import api
from dagc.base.errors import MissingTool, UsageError
from dagc.build.mpi import require_mpi, takes_device_pointers
from dagc.cli.main import main
from dagc.recipes import explain as explain_recipe
from dagc.setup import check_arrays, read_scalars, run_setup

RANK = "rank-0000"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `small.dag`, `data` (its arrays of two ranks), and `good.db`."""
    folder = tmp_path_factory.mktemp("good")
    dag = write_program(folder)
    run_setup(api.load(dag), folder, 2, 1, folder / "data")
    write_results(folder / "good.db", dag)
    return folder


def replaced(header: bytes, by: bytes) -> Callable[[Path], object]:
    """Words of the header, which stays as long as it was."""

    def change(path: Path) -> None:
        content = path.read_bytes()
        assert header in content
        end = content.index(b"\n")
        head = content[:end].replace(header, by).rstrip(b" ")
        path.write_bytes(head.ljust(end) + content[end:])

    return change


def saved(value: object, **how: bool) -> Callable[[Path], object]:
    return lambda path: np.save(path, value, **how)  # type: ignore[arg-type]


def anew(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def archive() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones(100, np.float32))
    return stream.getvalue()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (anew(os.mkfifo), "is not a regular file"),
    "folder": (anew(os.mkdir), "is not a NumPy array|is not a regular file"),
    "device": (anew(lambda p: p.symlink_to("/dev/zero")), "a symbolic link leads out of"),
    "link": (anew(lambda p: p.symlink_to("/etc/passwd")), "a symbolic link leads out of"),
    "links to itself": (anew(lambda p: p.symlink_to(p)), "is not a NumPy array"),
    "objects": (saved(np.array([{}, 1], object), allow_pickle=True), "holds object"),
    "archive": (lambda p: p.write_bytes(archive()), "is not a NumPy array"),
    "empty": (lambda p: p.write_bytes(b""), "is not a NumPy array"),
    "text": (lambda p: p.write_text("1 2 3\n"), "is not a NumPy array"),
    "endless shape": (replaced(b"(100,)", b"(%d, %d)" % (2**62, 2**62)), "shape is too large"),
    "larger shape": (replaced(b"(100,)", b"(%d,)" % 10**9), "400 bytes of data, but its shape .1000000000. needs"),
    "negative shape": (replaced(b"(100,)", b"(-100,)"), "shape .-100. is broken"),
    "no shape": (replaced(b"(100,)", b"[100]"), "is not a NumPy array"),
    "type of code": (replaced(b"'<f4'", b"exit(1)"), "is not a NumPy array"),
    "deep header": (replaced(b"(100,)", b"(" * 60), "is not a NumPy array"),
    "longer": (lambda p: p.write_bytes(p.read_bytes() + b"\0"), "401 bytes of data, but its shape .100. needs 400"),
    "cut off": (lambda p: p.write_bytes(p.read_bytes()[:-1]), "399 bytes of data"),
    "other order": (saved(np.ones((10, 10), np.float32, order="F")), "Fortran order"),
    "other type": (saved(np.ones(100, ">f4")), "holds >f4, but `x` is float32"),
    "other shape": (saved(np.ones(99, np.float32)), r"has shape \(99\), but `x` has \(100\)"),
    "missing": (Path.unlink, "no such file, but the program has `x`"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_no_array_is_refused(good: Path, tmp_path: Path, name: str) -> None:
    program, data = api.load(good / "small.dag"), tmp_path / "data"
    shutil.copytree(good / "data", data)
    check_arrays(program, data, 2)
    change, message = CHANGES[name]
    change(data / "rank-0001" / "x.npy")
    with pytest.raises(UsageError, match=message) as error:
        check_arrays(program, data, 2)
    assert "rank-0001/x.npy" in error.value.message


def test_scalars_are_read_as_carefully(good: Path, tmp_path: Path) -> None:
    program, data = api.load(good / "small.dag"), tmp_path / "data"
    shutil.copytree(good / "data", data)
    assert read_scalars(program, data) == {"rank": 0, "ranks": 1, "n": 100}
    path = data / RANK / "n.npy"
    changes: list[Callable[[Path], object]] = [saved(np.ones(100, np.int64)), anew(os.mkfifo)]
    for change in changes:
        change(path)
        with pytest.raises(UsageError, match="n.npy: (is not a regular file|has shape .100., but `n` is one number)"):
            read_scalars(program, data)


def test_links_within_the_folder_are_followed(good: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(good / "data", data)
    shutil.rmtree(data / "rank-0001")
    (data / "rank-0001").symlink_to(RANK)
    (tmp_path / "named").symlink_to(data)
    check_arrays(api.load(good / "small.dag"), tmp_path / "named", 2)


@pytest.mark.mpi
def test_explore_ends_before_it_compiles(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    shutil.copytree(good / "data", data)
    anew(os.mkfifo)(data / RANK / "x.npy")
    command = ["explore", str(good / "small.dag"), "-n", "2", "--data", str(data), "-o", str(tmp_path / "r.db")]
    assert main([*command, "--target", "host"]) == 2
    assert "x.npy: is not a regular file" in capsys.readouterr().err


# ---- what a results file says ---------------------------------------------------------------


def with_options(good: Path, path: Path, *more: str, **options: object) -> Path:
    shutil.copy(good / "good.db", path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE run SET options = ?", (json.dumps(options),))
        for statement in more:
            connection.execute(statement)
    return path


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("data", 7), ("data", ""), ("data", ["/etc"]), ("data", "a\0b"), ("mpi_takes_device_pointers", 1),
        ("mpi_takes_device_pointers", "yes"), ("repeats", -1), ("repeats", True), ("repeats", 2.5), ("repeats", 10**9),
        ("setup", "*/"), ("fixed", {"a": 1}), ("fixed", [["a.bx", 64]]), ("fixed", [["a b", 64, "-D"]]),
        ("fixed", [["a.bx", None, "-D"]]),
    ],
)  # fmt: skip
def test_options_that_dagc_acts_on_have_types(good: Path, tmp_path: Path, option: str, value: object) -> None:
    path = with_options(good, tmp_path / "r.db", **{option: value})
    assert main(["rules", str(path)]) == 2


def test_other_options_may_be_those_of_a_newer_dagc(good: Path, tmp_path: Path) -> None:
    assert main(["rules", str(with_options(good, tmp_path / "r.db", data=None, newer={"a": [1]}))]) == 0


@pytest.mark.mpi
def test_a_results_file_chooses_no_folder(good: Path, tmp_path: Path) -> None:
    """Not even one with the arrays of the program: it is given again, or not read."""
    path = with_options(good, tmp_path / "r.db", data=str(good / "data"))
    with pytest.raises(UsageError, match="which a results file may not choose") as error:
        explain_recipe.explain(path, explain_recipe.ExplainOptions(quiet=True))
    assert error.value.help.endswith(f"--data {good / 'data'}")
    with pytest.raises(UsageError, match="holds no arrays of `dagc setup`"):
        explain_recipe.explain(path, explain_recipe.ExplainOptions(quiet=True, data=str(tmp_path)))


@pytest.mark.mpi
def test_a_results_file_does_not_vouch_for_an_mpi(good: Path, tmp_path: Path) -> None:
    if takes_device_pointers(require_mpi()):
        pytest.skip("needs an MPI that takes no device pointers")
    path = with_options(
        good, tmp_path / "r.db", "UPDATE assignment SET choices = json_set(choices, '$.transport', 'mpi_cuda')",
        "UPDATE run SET machine = json_set(machine, '$.target', 'cuda', '$.arch', 'sm_90')",
        mpi_takes_device_pointers=True,
    )  # fmt: skip
    with pytest.raises(MissingTool, match="does not report that it accepts device pointers"):
        explain_recipe.explain(path, explain_recipe.ExplainOptions(quiet=True))

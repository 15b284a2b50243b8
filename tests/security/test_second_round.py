"""Hostile files beside, and fields within, what dagc reads: what a second round of attacks has found."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz_files import write_program, write_results, write_tuned
from dagc import api
from dagc.base.errors import UsageError
from dagc.base.files import MARK, claim, is_output, output_directory
from dagc.cli.main import main
from dagc.ir.traversal import parse_traversal
from dagc.perf.hardware import load_hardware
from dagc.setup.arrays import check_arrays
from dagc.store.schema import connect


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("good")
    write_results(made / "good.db", write_program(made))
    return made


def journal_of_several(named: Path, pages: int) -> bytes:
    """A rollback journal of a transaction over several databases: SQLite ends it by removing the file `named`."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(named)
    head = (magic + struct.pack(">IIIII", 0, 0, pages, 512, 4096)).ljust(512, b"\0")
    return head + struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + magic


def test_a_journal_removes_no_other_file(folder: Path, tmp_path: Path) -> None:
    path, victim = tmp_path / "tuned.db", tmp_path / "victim"
    write_tuned(path, folder / "small.dag")
    victim.write_text("kept")
    content = path.read_bytes()
    Path(f"{path}-journal").write_bytes(journal_of_several(victim, len(content) // 4096))
    words = f"tune {folder / 'small.dag'} -o {path} --kernel fill --target cuda --arch sm_90 --top 0 --sizes N=100"
    assert main([*words.split(), "--resume", "--quiet"]) == 2
    assert victim.read_text() == "kept"
    assert path.read_bytes() == content


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_a_results_file_is_not_waited_for(folder: Path, tmp_path: Path, end: str) -> None:
    path = tmp_path / "r.db"
    shutil.copy(folder / "good.db", path)
    os.mkfifo(f"{path}{end}")
    with pytest.raises(UsageError, match="not a regular file"):
        connect(path).close()


@pytest.mark.parametrize("text", ["a@s" + "9" * 5000, f"record(e{'9' * 5000})@s0", "sync(e" + "1" * 4301 + ")"])
def test_numbers_of_streams_and_events_have_a_limit(folder: Path, text: str) -> None:
    graph = api.load_graph(folder / "small.dag")
    with pytest.raises(UsageError, match="not an entry"):
        parse_traversal(text, graph)


def test_ids_have_a_limit(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="5000 digits"):
        api.compile(folder / "small.dag", tmp_path / "o", target="host", traversal="9" * 5000, build=False)


@pytest.mark.parametrize(
    "text",
    [
        "[h]\nmultiprocessors = " + "9" * 5000,
        "a = " + "[" * 10_000,
        '[h]\nname = "\xff"',
        ".".join("a" * 20_000) + " = 1",
    ],
    ids=["digits", "brackets", "encoding", "dots"],
)
def test_descriptors_that_toml_cannot_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"gpu\.toml:(\d+:\d+:)? (?!\[)"):
        load_hardware(str(path))


def test_messages_have_no_control_codes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = tmp_path / "t"
    hostile.write_text("a@s0 \x1b]0;title\x07 \x9b31m \u202e")
    words = ["compile", str(folder / "small.dag"), "--no-build", "-o", str(tmp_path / "o"), "--traversal", str(hostile)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "]0;title" in said
    assert not set(said) & set("\x1b\x07\x9b\u202e")


def test_a_mark_of_any_content(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for content in (b"\xff\xfe\n", b"\0", b"../elsewhere\n.\n..\n/\n"):
        out.mkdir(exist_ok=True)
        (out / MARK).write_bytes(content)
        with output_directory(out) as scratch:
            (scratch / "a").write_text("new")
        assert (out / "a").read_text() == "new"
        (out / MARK).write_bytes(content)
        claim(out / "b")
        assert "b" in (out / MARK).read_text(errors="replace").splitlines()


def test_a_mark_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / MARK).symlink_to(tmp_path / "elsewhere")
    claim(out / "a")
    assert not is_output(out)
    with pytest.raises(UsageError, match="did not write"), output_directory(out):
        pass
    with output_directory(out, force=True) as scratch:
        (scratch / "a").write_text("new")
    assert is_output(out)
    assert (tmp_path / "elsewhere").read_text() == "kept\n"


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04" + b"x" * 100,
        _header("{[]: 1}\n"),
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 99)}\n"),
        _header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9' * 4000},)}}\n"),
    ],
    ids=["zip", "unhashable", "overflow", "long"],
)
def test_damaged_arrays_are_refused(folder: Path, tmp_path: Path, content: bytes) -> None:
    program = api.load(folder / "small.dag")
    part = tmp_path / "rank-0000"
    part.mkdir()
    np.save(part / "n.npy", np.int64(100))
    (part / "x.npy").write_bytes(content)
    with pytest.raises(UsageError, match="is not a NumPy array"):
        check_arrays(program, tmp_path, 1)


def test_merge_writes_through_no_link(folder: Path, tmp_path: Path) -> None:
    other, victim = tmp_path / "other.db", tmp_path / "victim"
    shutil.copy(folder / "good.db", other)
    with contextlib.closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute("UPDATE run SET started = '2026-01-02'")
    (tmp_path / f".m.db.{os.getpid()}").symlink_to(victim)
    api.merge([folder / "good.db", other], tmp_path / "m.db")
    assert not victim.exists()
    with contextlib.closing(connect(tmp_path / "m.db")) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (2,)


def test_values_of_a_run_take_little_memory(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    shutil.copy(folder / "good.db", path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE run SET options = ?", ('{"a": [' + "[]," * 600_000 + "0]}",))
    with pytest.raises(UsageError, match="damaged"):
        api.best(path, only_print=True)


def test_runs_have_a_limit(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    shutil.copy(folder / "good.db", path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "WITH RECURSIVE k(x) AS (SELECT 1000 UNION ALL SELECT x + 1 FROM k WHERE x < 11000) INSERT INTO run"
            " SELECT x, started, machine_key, machine, ranks, seed, strategy, seconds, revision, version, noise,"
            " options FROM k, run"
        )
    with pytest.raises(UsageError, match="more than 10000 runs"):
        api.best(path, only_print=True)

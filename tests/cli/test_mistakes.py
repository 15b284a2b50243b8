"""Mistakes of a user: each gives an error and a help or a reason, never a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ENVIRONMENT, SPMV, dagc, refused


@pytest.mark.parametrize("command", ["check", "count", "list", "show", "fmt"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, command: str) -> None:
    assert "nowhere.dag" in refused(command, tmp_path / "nowhere.dag")
    assert str(tmp_path) in refused(command, tmp_path)
    latin = tmp_path / "latin.dag"
    latin.write_bytes("\nprogram größe\n".encode("latin-1"))
    assert "latin.dag:2:11: byte 11 is not UTF-8" in refused(command, latin)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["conut", SPMV], "conut"),
        (["count"], "FILE"),
        (["count", SPMV, "-D", "rows"], "not of the form NAME=VALUE"),
        (["count", SPMV, "-D", "=3"], "not of the form NAME=VALUE"),
        (["check", SPMV, "-D", "rows=1", "-D", "rows=2"], "-D rows=1 and -D rows=2: `rows` has two values"),
        (["list", SPMV, "-D", "streams=1", "--streams", "2"], "-D streams=1 and --streams 2: `streams` has two values"),
        (["count", SPMV, "-D", "no_such=3"], "no_such"),
        (["count", SPMV, "-D", "rows=many"], "rows"),
        (["count", SPMV, "-D", "yl.block=100"], "yl.block"),
        (["count", SPMV, "--transport", "pigeon"], "pigeon"),
        (["count", SPMV, "--streams", "0"], "at least 1"),
        (["list", SPMV, "--limit", "-1"], "at least 0"),
        (["list", SPMV, "--limit", "9" * 19], "is more than 9223372036854775807"),
        (["list", SPMV, "--limit", "9" * 5000], "is more than 9223372036854775807"),
        (["list", SPMV, "--json", "--plain"], "not allowed with"),
        (["show", SPMV, "--format", "png"], "png"),
        (["setup", SPMV, "-n", "0", "-o", "d"], "at least 1"),
        (["setup", SPMV], "-o"),
        (["compile", SPMV, "--target", "fpga"], "fpga"),
        (["compile", SPMV, "--run", "-n", "0"], "at least 1"),
        (["compile", SPMV, "--seconds", "0"], "positive"),
        *(
            (["compile", SPMV, "--no-build", "--target", "cuda", "--arch", arch], f"unknown architecture {arch!r}")
            for arch in ("sm_90; ls", "gfx90a")
        ),
        (["compile", SPMV, "--no-build", "--traversal", "2036"], "from 0 to 2035"),
        (["compile", SPMV, "--no-build", "--traversal", "nowhere.txt"], "give the path of a traversal's text"),
    ],
)
def test_wrong_arguments_are_refused_and_write_nothing(tmp_path: Path, arguments: list[str | Path], says: str) -> None:
    assert says in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "entries, the last is end|never issued"),
        ("pack@s0 nonsense end", r"mine.txt:1:9: `nonsense`: no op has this name"),
        ("pack\n", r"mine.txt:1:1: `pack`: a GPU op needs a stream"),
        ("{}", "schema_version"),
        ("{", "not JSON"),
    ],
)
def test_a_wrong_traversal_file_is_refused(tmp_path: Path, text: str, says: str) -> None:

    (tmp_path / "mine.txt").write_text(text)
    said = refused("compile", SPMV, "--no-build", "--traversal", "mine.txt", "-o", "out", cwd=tmp_path)
    assert re.search(says, said), said
    assert not (tmp_path / "out").exists()


def test_an_unproved_traversal_names_the_ops(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(
        "pack@s0 post_recv post_send wait_recv wait_send yl@s0 yr@s0 y@s0 record(e0)@s0 sync(e0) end"
    )
    said = refused("compile", SPMV, "--no-build", "--traversal", "mine.txt", "-o", "out", cwd=tmp_path)
    assert "`post_send` may start before `pack` has completed" in said


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file; a directory is expected" in refused("compile", SPMV, "--no-build", "-o", tmp_path / "file")
    assert "dagc did not write" in refused("compile", SPMV, "--no-build", "-o", tmp_path)
    assert "file/below" in refused("compile", SPMV, "--no-build", "-o", tmp_path / "file/below")
    assert "no/x.svg" in refused("show", SPMV, "--format", "svg", "-o", tmp_path / "no/x.svg")
    assert "/proc/none" in refused("setup", SPMV, "-D", "rows=100", "-n", "1", "-o", "/proc/none")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_compiler_is_named_and_ends_with_code_3(tmp_path: Path) -> None:
    """No compiler on the path: the sources are written, and the build says what is missing."""
    environment = {**ENVIRONMENT, "PATH": str(tmp_path)}
    environment.pop("DAGC_CXX", None)
    command = [sys.executable, "-m", "dagc", "compile", str(SPMV), "--target", "host", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "help:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/bench").exists()


def test_a_quote_without_its_end_in_the_flags_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_CXXFLAGS", "-DNAME='text")
    done = dagc("compile", SPMV, "--target", "host", "-o", tmp_path / "out", "--quiet")
    assert done.returncode == 2
    assert 'DAGC_CXXFLAGS cannot be split into words: No closing quotation in "-DNAME=\'text"' in done.stderr
    assert "help: close the quote" in done.stderr

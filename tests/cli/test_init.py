"""`dagc init`: what it writes is checked, compiled, run and explored as it is; nothing that exists is changed."""

from __future__ import annotations

import compileall
import os
import shutil
from pathlib import Path

import pytest

from dagc import api
from dagc.base.resources import files_below, resource
from tests.cli.command import ROOT, dagc, good, refused


def test_what_it_writes_is_without_findings(tmp_path: Path) -> None:
    good("init", "solver", cwd=tmp_path)
    folder = tmp_path / "solver"
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "solver.dag", "solver.py"]
    assert all("PROGRAM" not in file.read_text() for file in folder.iterdir())
    found = api.check(folder / "solver.dag")
    assert found.diagnostics == ()
    old, formatted = api.format_source(folder / "solver.dag")
    assert old == formatted
    assert max(len(line) for line in old.splitlines()) <= 120
    program = api.load(folder / "solver.dag")
    assert {d.name for d in program.decisions} >= {"transport", "inner.variant", "inner.block"}  # left open
    assert program.verifies
    readme = (folder / "README.md").read_text()
    assert "dagc explore solver.dag" in readme


@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
def test_it_runs_and_is_explored_at_once(tmp_path: Path) -> None:
    """With the commands that it prints, but for fewer configurations and measurements."""
    assert "dagc compile solver/solver.dag --run -n 4" in good("init", "solver", cwd=tmp_path)
    few = ("-D", "cells=1000", "--target", "host", "--seconds", "0.001")
    run = ("--run", "-n", "4", "--repeats", "2", "-o", "out")
    assert "results agree with the reference" in good("compile", "solver/solver.dag", *run, *few, cwd=tmp_path)
    search = ("-n", "4", "--budget", "3", "--confirm", "1", "--repeats", "1", "--transport", "peer", "--no-trace")
    done = dagc("explore", "solver/solver.dag", *search, "-o", "solver/results.db", "--quiet", *few, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "best " in done.stdout


def test_what_pip_compiled_is_not_copied(tmp_path: Path) -> None:
    """pip compiles every .py file that it installs, those of the templates too."""
    installed = shutil.copytree(resource("templates/init"), tmp_path / "init")
    assert compileall.compile_dir(installed, quiet=1)
    assert (installed / "__pycache__").is_dir()
    assert files_below(installed) == files_below(resource("templates/init"))


def test_a_sample_is_copied(tmp_path: Path) -> None:
    """With all its files, folders of code included; an unknown one is refused, with the names of those that exist."""
    root = ROOT / "samples"
    for name in ("heat", "port"):
        said = good("init", f"my {name}", "--from", name, cwd=tmp_path)
        assert f"dagc compile 'my {name}/{name}.dag' --run" in said
        copied = {
            f.relative_to(tmp_path / f"my {name}"): f.read_bytes() for f in (tmp_path / f"my {name}").rglob("*.*")
        }
        assert copied == {
            f.relative_to(root / name): f.read_bytes() for f in (root / name).rglob("*.*") if f.suffix != ".pyc"
        }
        assert api.check(tmp_path / f"my {name}/{name}.dag").errors == 0
    for wrong in ("none", "../samples/heat", ""):
        names = "choose from bfs, cg, corr, detectors, fft, gemm, gnn, grid2d, halo3d"
        assert names in refused("init", "other", "--from", wrong, cwd=tmp_path)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("solver", "it exists already"),
        ("file", "it exists already"),
        ("alias", "it exists already"),
        ("none/solver", "No such file"),
        ("while", "reserved word"),
        ("dag", "reserved word"),
        ("__x", "cannot be the name"),
        ("3d", "cannot be the name"),
        ("a b", "cannot be the name"),
        ("", "cannot be the name"),
        (".", "cannot be the name"),
        ("a" * 65, "cannot be the name"),
        ("b\x1b[2J", "cannot be the name"),
        ("numpy", "would hide Python's module"),
        ("random", "would hide Python's module"),
    ],
)
def test_a_name_that_is_taken_or_reserved_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "solver").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "alias").symlink_to("nowhere")
    before = sorted(os.listdir(tmp_path))
    error = refused("init", name, cwd=tmp_path)
    assert said in error
    assert "help: " in error
    assert "\x1b" not in error
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "mine"

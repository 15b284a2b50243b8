"""`dagc init`: what it writes is checked, compiled, run and explored as it is; nothing that exists is changed."""

from __future__ import annotations

import compileall
import os
import shutil
from pathlib import Path

import pytest

from dagc import api
from dagc.base.resources import files_below, resource
from dagc.cli.main import main


def test_what_it_writes_is_without_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "solver"]) == 0
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
def test_it_runs_and_is_explored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the commands that it prints, but for fewer configurations and measurements."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "solver"]) == 0
    assert "dagc compile solver/solver.dag --run -n 4" in capsys.readouterr().out
    few = ["-D", "cells=1000", "--target", "host", "--quiet"]
    assert main(["compile", "solver/solver.dag", "--run", "-n", "4", "--repeats", "2", "-o", "out", *few]) == 0
    assert "results agree with the reference" in capsys.readouterr().out
    command = ["explore", "solver/solver.dag", "-n", "4", "--budget", "3", "--confirm", "1", "--repeats", "1"]
    assert main([*command, "--transport", "peer", "-o", "solver/results.db", "--no-trace", *few]) == 0
    assert "best " in capsys.readouterr().out


def test_what_pip_compiled_is_not_copied(tmp_path: Path) -> None:
    """pip compiles every .py file that it installs, those of the templates too."""
    installed = shutil.copytree(resource("templates/init"), tmp_path / "init")
    assert compileall.compile_dir(installed, quiet=1)
    assert (installed / "__pycache__").is_dir()
    assert files_below(installed) == files_below(resource("templates/init"))


def test_a_sample_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all its files, folders of code included; an unknown one is refused, with the names of those that exist."""
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parents[1] / "samples"
    for name in ("heat", "port"):
        assert main(["init", f"my {name}", "--from", name]) == 0
        copied = {
            f.relative_to(tmp_path / f"my {name}"): f.read_bytes() for f in (tmp_path / f"my {name}").rglob("*.*")
        }
        assert copied == {
            f.relative_to(root / name): f.read_bytes() for f in (root / name).rglob("*.*") if f.suffix != ".pyc"
        }
        assert api.check(tmp_path / f"my {name}/{name}.dag").errors == 0
    assert "dagc compile 'my heat/heat.dag' --run" in capsys.readouterr().out
    for wrong in ("none", "../samples/heat", ""):
        assert main(["init", "other", "--from", wrong]) == 2
        assert "choose from bfs, cg, corr, detectors, gemm, gnn, grid2d, halo3d, heat" in capsys.readouterr().err
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
def test_a_name_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solver").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "alias").symlink_to("nowhere")
    before = sorted(os.listdir(tmp_path))
    assert main(["init", name]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "help: " in error
    assert "\x1b" not in error
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "mine"

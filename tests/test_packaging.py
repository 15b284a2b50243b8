"""The wheel, built from this checkout and installed into an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import dagc

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Built by the backend that pyproject.toml names, from the package index: what a user's pip does.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("dagc-*.whl")
    return made


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "dagc/_data/grammar/dag.lark" in names
    assert "dagc/py.typed" in names
    for folder in ("templates", "grammar", "samples"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert files
        assert {f"dagc/_data/{name}" for name in files if "__pycache__" not in name} <= names
    assert not [name for name in names if not name.startswith(("dagc/", f"dagc-{dagc.__version__}.dist-info/"))]
    assert not [name for name in names if name.endswith((".pyc", ".orig"))]


def test_the_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    # The dependencies come from this environment; dagc itself from the wheel alone.
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    sample = tmp_path / "spmv.dag"
    sample.write_bytes((ROOT / "samples" / "spmv" / "spmv.dag").read_bytes())

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("import dagc; print(dagc.__file__)").strip() == str(site / "dagc" / "__init__.py")
    count = "from dagc.cli.main import main; raise SystemExit(main(['count', 'spmv.dag', '--transport', 'mpi_cuda']))"
    assert "2036" in run(count)


def test_markers_and_extras_are_those_that_are_documented() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"cuda", "docs", "energy", "lsp", "mpi", "parquet", "test", "wheel"}
    assert PROJECT["scripts"] == {"dagc": "dagc.cli.main:main"}
    text = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert all(f"[{extra}]" in text for extra in ("cuda", "energy", "lsp", "mpi", "parquet", "test", "wheel"))


def test_the_version_has_a_place_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text or f"## [{dagc.__version__}]" in text


def test_the_readme_names_every_sample() -> None:
    """And what to install before, where Python comes without `venv`."""
    text = (ROOT / "README.md").read_text()
    (said,) = (p for p in text.split("\n\n") if "`samples/apps` has" in p)
    for folder in (ROOT / "samples").iterdir():
        assert f"{folder.name}`" in said, folder.name
    assert "python3-venv" in text

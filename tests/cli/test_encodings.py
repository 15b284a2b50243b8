"""Commands where file names and output are not all ASCII, in locales that know ASCII only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPMV = ROOT / "samples/spmv/spmv.dag"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
UTF8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"}


def dagc(locale: dict[str, str], *arguments: str | bytes, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **locale}
    command = [sys.executable, "-m", "dagc", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, cwd=cwd, timeout=300)


@pytest.mark.parametrize("locale", [ASCII, UTF8], ids=["ascii", "utf8"])
def test_a_program_may_have_a_name_beyond_ascii(tmp_path: Path, locale: dict[str, str]) -> None:
    (tmp_path / "größe.dag").write_bytes(SPMV.read_bytes())
    checked = dagc(locale, "check", "größe.dag", cwd=tmp_path)
    assert (checked.stdout.decode(), checked.stderr) == ("größe.dag: no errors\n", b"")
    made = dagc(locale, "compile", "größe.dag", "--target", "host", "--no-build", "-o", "wände", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "wände/" in made.stdout.decode()
    assert "größe.dag" in (tmp_path / "wände/kernels.cu").read_text(encoding="utf-8")


def test_an_excerpt_may_have_characters_beyond_ascii(tmp_path: Path) -> None:
    (tmp_path / "x.dag").write_text("program größe\n", encoding="utf-8")
    said = dagc(ASCII, "check", "x.dag", cwd=tmp_path)
    assert said.returncode == 2
    assert "  | program größe\n" in said.stderr.decode()


@pytest.mark.parametrize("locale", [ASCII, UTF8], ids=["ascii", "utf8"])
def test_an_output_may_be_other_than_utf8_and_a_program_may_not(tmp_path: Path, locale: dict[str, str]) -> None:
    """As an output it is taken; a text with such a name could not be named in what is emitted."""
    latin = "größe".encode("latin-1")
    made = dagc(locale, "setup", str(SPMV), "-n", "1", "-D", "rows=100", "-o", latin, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), latin)), "rank-0000").is_dir()
    refused = dagc(locale, "check", latin + b".dag", cwd=tmp_path)
    assert refused.returncode == 2
    assert b"gr\\udcf6\\udcdfe.dag: the path is not UTF-8\n  help: " in refused.stderr

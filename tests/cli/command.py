"""The command line in this process: a new one spends most of its time on imports."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from pathlib import Path

from dagc.cli.main import main

ROOT = Path(__file__).parents[2]
SPMV, HALO = ROOT / "samples/spmv/spmv.dag", ROOT / "samples/halo3d/halo3d.dag"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # of a command in a process of its own

# These show their progress where the machine is busy.
LONG = tuple("compile count tune explore explain setup record best rules report export merge".split())


def dagc(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command. Returns its exit code and what it printed."""
    words = [str(word) for word in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.chdir(cwd or Path.cwd()), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    said = []
    for stream in (out, err):
        stream.seek(0)
        said.append(stream.read())
    return subprocess.CompletedProcess(words, code, *said)


def good(*arguments: str | Path, cwd: Path | None = None) -> str:
    """What a command that succeeds prints."""
    quiet = ("--quiet",) if arguments[0] in LONG else ()
    done = dagc(*arguments, *quiet, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refused(*arguments: str | Path, code: int = 2, cwd: Path | None = None) -> str:
    """The error of a command that fails with this code: never a traceback."""
    done = dagc(*arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
    return done.stderr

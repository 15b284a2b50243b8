"""Signals at several moments of a command: it ends, and leaves no process, no temporary file and no shared memory."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.study.programs import FILL, FILL_PY
from tests.tiers import representatives

ROOT = Path(__file__).resolve().parents[2]
JACOBI = str(ROOT / "samples" / "jacobi" / "jacobi.dag")
EXPLORE = ("explore", JACOBI, "-n", "2", "-D", "nx=64", "-D", "rows=64", "--target", "host", "-o", "r.db")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 300.0  # seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Command:
    """A command of dagc in a directory of its own, whose processes are known by a variable of their environment."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        self.mark = f"DAGC_TEST_MARK={folder}"
        own = {"TMPDIR": str(self.temporary), "DAGC_CACHE": str(folder / "cache"), "DAGC_TEST_MARK": str(folder)}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "dagc", *words], cwd=folder, env=os.environ | own, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Its processes by number, with what they run."""
        out = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    out[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue
        return out

    def shared(self) -> set[str]:
        """Files of MPI in shared memory that its processes have mapped."""
        names = set[str]()
        for pid in self.processes():
            with suppress(OSError):  # it has ended
                names |= set(re.findall(r"/dev/shm/mpich\S+", Path(f"/proc/{pid}/maps").read_text()))
        return names

    def when(self, ready: Callable[[], object]) -> None:
        """Wait until something has happened. The command must still run then."""
        until = time.monotonic() + PATIENCE
        while not ready():
            assert self.child.poll() is None, self.child.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)

    def runs(self, what: str) -> bool:
        return any(what in line for line in self.processes().values())

    def ended_by(self, number: signal.Signals) -> str:
        """Send the signal to the command alone, and see that it leaves nothing. Returns its output."""
        shared = self.shared()
        self.child.send_signal(number)
        out, err = self.child.communicate(timeout=PATIENCE)
        assert self.child.returncode == (130 if number is signal.SIGINT else -number), err
        assert "Traceback" not in err
        assert self.processes() == {}
        assert list(self.temporary.iterdir()) == []
        assert list(self.folder.rglob(".dagc-build-*")) == []
        assert not [name for name in shared if Path(name).exists()]
        return out


@pytest.mark.mpi
@pytest.mark.parametrize("number", representatives(SIGNALS, signal.SIGTERM))
def test_a_signal_ends_compilers_that_run_and_those_that_wait(tmp_path: Path, number: signal.Signals) -> None:
    command = Command(tmp_path, *EXPLORE)
    command.when(lambda: command.runs("cc1plus"))
    command.ended_by(number)
    started = [folder for folder in (tmp_path / "r-build").iterdir() if re.fullmatch(r"\d{3}", folder.name)]
    built = [folder for folder in started if list(folder.glob("*.so"))]
    assert len(built) < len(started)  # nothing that waited was compiled


@pytest.mark.nvcc
def test_a_signal_ends_nvcc(tmp_path: Path) -> None:
    command = Command(tmp_path, "compile", JACOBI, "--target", "cuda", "-o", "out")
    command.when(lambda: command.runs("cicc") or command.runs("cudafe"))
    command.ended_by(signal.SIGINT)


@pytest.mark.mpi
@pytest.mark.parametrize("number", representatives(SIGNALS, signal.SIGTERM))
def test_a_signal_ends_the_set_up(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "fill.dag").write_text(
        FILL.replace("TUNE", "tune bx in {32, 64}").replace("BODY", "if (i < n) y[i] = i;")
    )
    (tmp_path / "fill.py").write_text(
        "import pathlib, time\n"
        + FILL_PY.replace('    return {"n"', "    pathlib.Path('runs').touch()\n    time.sleep(600)\n    return {\"n\"")
    )
    command = Command(tmp_path, "tune", "fill.dag", "--target", "host", "--sizes", "N=100,200", "-o", "t.db")
    command.when((tmp_path / "runs").exists)
    command.ended_by(number)


@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("number", representatives(SIGNALS, signal.SIGINT))
def test_a_signal_while_measuring_loses_no_measurement(tmp_path: Path, number: signal.Signals) -> None:
    command = Command(tmp_path, *EXPLORE, "--only", "orders", "--transport", "mpi_host", "--seconds", "0.02")

    def measured() -> int:
        if not (tmp_path / "r.db").exists():
            return 0
        with closing(sqlite3.connect(f"file:{tmp_path}/r.db?mode=ro", uri=True)) as file:
            try:
                return int(file.execute("SELECT count(*) FROM sample").fetchone()[0])
            except sqlite3.OperationalError:  # its tables come first
                return 0

    command.when(lambda: measured() >= 2)
    assert command.shared()
    before = measured()
    said = command.ended_by(number)
    assert measured() >= before
    if number is signal.SIGINT:
        assert "interrupted; --resume continues" in said


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_list(tmp_path: Path, number: signal.Signals) -> None:
    command = Command(tmp_path, "list", JACOBI)
    assert command.child.stdout is not None
    command.child.stdout.readline()
    command.ended_by(number)


@pytest.mark.parametrize("number", representatives(SIGNALS, signal.SIGINT))
def test_a_signal_ends_a_count(tmp_path: Path, number: signal.Signals) -> None:
    """A space that is too large to be counted."""
    ops = "\n".join(f"  o{i} : gpu k(a{i}, a{(5 * i * i + 3) % i})" for i in range(2, 34))  # without symmetry
    arrays = "\n".join(f"array a{i} : f32[8] inout" for i in range(34))
    code = '{ gpu { launch grid(1) block(8) cuda """x[0] += y[1];""" } }'
    (tmp_path / "wide.dag").write_text(
        f"program wide\n{arrays}\nkernel k(x: inout f32[8], y: in f32[8]) {code}\ndag {{\n{ops}\n}}\n"
    )
    command = Command(tmp_path, "count", "wide.dag", "-D", "streams=3")
    assert command.child.stderr is not None
    command.child.stderr.readline()  # of the display, after a second
    command.ended_by(number)

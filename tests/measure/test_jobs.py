"""Ranks in jobs that this process submits. The commands of Slurm are replaced by scripts that start and end the same
processes here; the thorough tier has a real one."""

from __future__ import annotations

import json
import os
import queue
import resource
import shutil
import socket
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path

import pytest

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.base.option import jobs_of
from dagc.measure.jobs import JobArray
from dagc.measure.service import HostLost, RankLink
from dagc.store.records import load
from dagc.store.results import GROUP
from tests.measure.conftest import needs_mpi

pytestmark = needs_mpi
ROOT = Path(__file__).parents[2]
SBATCH = """#!/bin/sh
for word; do
  case $word in
    --array=*) last=${word#*-} ;;
    --output=*) output=${word#*=} ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
cd "${0%/*}"
for index in $(seq 0 "${last##*-}"); do
  SLURM_ARRAY_TASK_ID=$index setsid sh "$@" >"${output%/*}/$index.txt" 2>&1 &
  echo $! >"$index.pid"
done
echo "7;here"
"""
SQUEUE = """#!/bin/sh
for file in "${0%/*}"/*.pid; do
  index=${file##*/}
  if kill -0 "$(cat "$file")" 2>/dev/null; then echo "${index%.pid} RUNNING"; fi
done
"""
SCANCEL = """#!/bin/sh
case $1 in *_*) files=${1#*_}.pid ;; *) files='*.pid' ;; esac
cd "${0%/*}" && for file in $files; do kill -9 "-$(cat "$file")" 2>/dev/null; done
exit 0
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("dagc.measure.jobs.POLL_SECONDS", 0.2)
    return folder


@pytest.fixture
def array(slurm: Path, tmp_path: Path) -> Iterator[JobArray]:
    array = JobArray(2, 1, None)
    array.folder = tmp_path
    yield array
    subprocess.run([slurm / "scancel", "7"], check=True)


def hosts(link: RankLink) -> list[object]:
    return list(link.ask({"do": "describe", "target": "host", "arch": "", "limit": 60})["machines"])


def test_jobs_obey_and_one_that_is_lost_is_named(array: JobArray, slurm: Path, tmp_path: Path) -> None:
    first, second = array.links()
    assert hosts(first) == hosts(second) != []
    place = next(tmp_path.glob("jobs-*")) / "place.json"
    assert place.parent.stat().st_mode & 0o777 == 0o700  # nobody else can read the key
    with pytest.raises(AuthenticationError):
        Client(("localhost", json.loads(place.read_text())["port"]), authkey=b"guessed")
    subprocess.run([slurm / "scancel", "7_0"], check=True)
    lost, left = sorted((first, second), key=lambda link: link.job or 0)
    with pytest.raises(HostLost, match="job 7_0 was lost"):
        hosts(lost)
    with pytest.raises(RunFailed, match="^job 7_0 was lost$"):
        hosts(lost)
    assert hosts(left)
    lost.close()
    left.close()
    assert not list(tmp_path.glob("jobs-*"))
    end = time.monotonic() + 10
    while subprocess.run([slurm / "squeue"], capture_output=True).stdout and time.monotonic() < end:
        time.sleep(0.05)
    assert not subprocess.run([slurm / "squeue"], capture_output=True).stdout


def test_jobs_that_end_before_they_connect(slurm: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('echo "module: not found"; exit 1\n"$@"\n')
    array = JobArray(2, 1, str(script))
    array.folder = tmp_path
    with pytest.raises(RunFailed, match="jobs 7_0 to 7_1: no job is left: module: not found"):
        hosts(array.links()[0])
    with pytest.raises(queue.Empty):
        array.take()
    array.close()
    array.close()


def greeted(array: JobArray, socket_: socket.socket, body: bytes) -> Connection:
    """The connection of a process that has the key, after it has said `body`."""
    connection = Connection(socket_.detach())
    answer_challenge(connection, array._key)
    deliver_challenge(connection, array._key)
    connection.send_bytes(body)
    return connection


def test_processes_that_are_no_jobs_keep_no_job_out(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent ones for a while only, those that give a wrong index, and too many open files."""
    (slurm / "sbatch").write_text("#!/bin/sh\necho 7\n")
    monkeypatch.setattr("dagc.measure.jobs._HANDSHAKE_SECONDS", 1)
    monkeypatch.setattr("dagc.measure.jobs._MOST_HANDSHAKES", 1)
    array = JobArray(2, 1, None)
    array.folder = tmp_path
    array.submit()
    place = "localhost", array._listener.getsockname()[1]
    with socket.create_connection(place) as silent, greeted(array, socket.create_connection(place), b'{"job": 0}'):
        assert array.take()[0] == 0
        assert silent.recv(1000)  # the challenge
        assert not silent.recv(1000)
    bodies = ["-3", "2", "0", "1e999", "true"]
    for body in [*(b'{"job": %s}' % text.encode() for text in bodies), b"[" * 1000]:
        with greeted(array, socket.create_connection(place), body) as refused, pytest.raises((EOFError, OSError)):
            refused.recv_bytes()
    sockets, (soft, hard) = [socket.socket(), socket.socket()], resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for each in sockets:  # the accept under way has a descriptor, the next one gets none
            each.connect(("127.0.0.1", place[1]))
        time.sleep(0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with sockets[0], greeted(array, sockets[1], b'{"job": 1}'):
        assert array.take()[0] == 1
    array.close()
    array.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", place[1]))


def test_a_slurm_that_does_not_answer(slurm: Path) -> None:
    (slurm / "squeue").write_text("#!/bin/sh\necho 'squeue: error: no controller' >&2; exit 1\n")
    with pytest.raises(MissingTool, match="Slurm does not answer: squeue: error: no controller"):
        JobArray(2, 1, None)


def test_a_number_of_jobs() -> None:
    assert jobs_of("slurm:8") == 8
    for text in ("slurm:3000000", "slurm:1001", "slurm:\u0663", "slurm:0", "slurm:", "pbs:8"):
        with pytest.raises(ArgumentTypeError):
            jobs_of(text)


def test_a_script_that_does_not_run_its_arguments(slurm: Path, tmp_path: Path) -> None:
    for text in ("#!/bin/sh\nsrun hostname\n", '#!/bin/sh\n  # exec "$@"\nsrun hostname\n'):
        (tmp_path / "job.sh").write_text(text)
        with pytest.raises(UsageError, match="it does not run its arguments"):
            JobArray(2, 1, str(tmp_path / "job.sh"))
    (tmp_path / "job.sh").write_bytes(b'#!/bin/sh\ncd /scratch/m\xfcller\nexec "$@"\n')
    with pytest.raises(UsageError, match=r"job\.sh:2: it is not UTF-8"):
        JobArray(2, 1, str(tmp_path / "job.sh"))
    with pytest.raises(UsageError, match=r"none\.sh cannot be read"):
        JobArray(2, 1, str(tmp_path / "none.sh"))


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("slurmctld") is None or os.getuid() != 0, reason="needs Slurm, and to be root")
def test_jobs_of_a_real_slurm(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dagc", "explore", "samples/spmv/spmv.dag", "-n", "2", "--jobs", "slurm:2"]
    words += ["-D", "rows=2000", "-D", "staging=fused", "-D", "yl.variant=thread_per_row"]
    words += ["-D", "yr.variant=thread_per_row", "--target", "host", "--transport", "mpi_host", "--launch", "fixed"]
    words += ["--strategy", "random", "--budget", "400", "--no-trace", "-o", str(tmp_path / "r.db")]
    words += ["--seconds", "0.1"]  # at least 40 s for one job alone, until when the other has started
    done = subprocess.run(
        ["bash", "benchmarks/slurm.sh", *words], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "SLURM_MPI_TYPE": "pmi2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 groups on 2 hosts" in done.stdout, done.stdout
    assert [run.options.get(GROUP) for run in load(tmp_path / "r.db").runs] == [None, 2]

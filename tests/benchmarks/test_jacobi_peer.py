"""The script that runs the solvers of others only runs what the user has built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/gpu/jacobi_peer.sh"
VERSION = """#!/bin/sh
echo "run $0 $*" >> "$LOG"
echo "nx, ny, iter_max, nccheck, size, num_devices, runtime, runtime_serial"
echo "nccl, $2, $4, $6, $8, 1, 2, 0.5, 1.0"
"""


def peer(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"LOG": str(folder / "log"), "MPIRUN": "env", "REPEATS": "1", **more}
    return subprocess.run(["bash", SCRIPT, *words], env=env, capture_output=True, text=True, cwd=folder)


def test_only_what_is_built_is_run(tmp_path: Path) -> None:
    for name in ("multi_threaded_p2p", "multi_threaded_copy"):
        binary = tmp_path / "built" / name / "jacobi"
        binary.parent.mkdir(parents=True)
        binary.write_text(VERSION)
        binary.chmod(0o755)
        (binary.parent / "jacobi.cu").write_text("#error not compiled")
    done = peer(tmp_path, "built", "2", "64", "128")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "version,grid,gpus,us_per_iteration,speedup_over_one_gpu",
        *(f"{v},{n} x {n},2,500.00,2.000" for n in (64, 128) for v in ("multi_threaded_p2p", "multi_threaded_copy")),
    ]
    assert "nccl_graphs: built/nccl_graphs/jacobi is not there" in done.stderr
    assert len((tmp_path / "log").read_text().splitlines()) == 4
    assert {p.name for p in tmp_path.iterdir()} == {"built", "log"}, "nothing is written beside it"


def test_without_any_it_says_so(tmp_path: Path) -> None:
    done = peer(tmp_path, str(tmp_path), "2", "64")
    assert done.returncode == 3
    assert "none of the programs is there: build them as its README says" in done.stderr


def test_no_script_compiles_sources_that_are_not_the_projects() -> None:
    compilers = ("nvcc ", "mpicxx", "g++ ", "cmake ", "make ")
    for script in ROOT.glob("benchmarks/**/*.sh"):
        lines = [line.partition("#")[0] for line in script.read_text().splitlines()]
        built = [line for line in lines if any(word in line for word in compilers)]
        assert not any("$1" in line or "clone" in line.lower() for line in built), script

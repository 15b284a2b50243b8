"""OpenMP in implementations on the CPU: programs are compiled and linked for it, and ranks share the cores."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx, find_nvcc
from dagc.emit import emit, linked
from dagc.ir.plan import Plan, Target
from dagc.measure.launch import launch
from dagc.space import Space
from dagc.stages.program import load_graph, run_setup
from tests.tiers import representatives

mpi = find_mpi()
needs_mpi = pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI")

PROGRAM = """
program team
param threads : i64 = 1
param bound : i64 = 0
setup "team.py" given(threads)
array n : i32[2] on host out
kernel ask(n: out i32[2]) {
  cpu plain { cpp \"\"\" n[0] = 1; n[1] = 0; \"\"\" }
  cpu text {
    cpp \"\"\"
      int bound = 0;
      #pragma omp parallel reduction(+ : bound)
      {
        cpu_set_t cores;
        bound += sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
        #pragma omp single
        n[0] = omp_get_num_threads();
      }
      n[1] = bound;
    \"\"\"
  }
  cpu file { cpp ask_team from "ask.cpp" }
}
cpp \"\"\"
#include <sched.h>
#ifdef _OPENMP
#include <omp.h>

#include "dagc/openmp.hpp"
static_assert(dagc::threads_of(16, 16, 16, 16) == 14);  // own cores, those of all ranks, counted for each, of the host
static_assert(dagc::threads_of(16, 16, 32, 16) == 7);
static_assert(dagc::threads_of(16, 16, 16, 64) == 16);  // somebody chose these cores
static_assert(dagc::threads_of(8, 16, 16, 16) == 8);    // a rank that is bound to cores of its own
static_assert(dagc::threads_of(4, 4, 4, 4) == 4);
static_assert(dagc::threads_of(1, 1, 4, 1) == 1);
#endif
\"\"\"
dag { ask : cpu ask(n) }
verify n ~ expected(threads, bound) rtol 0
"""
SETUP = """
import numpy as np
def given(rank, size, seed, threads):
    return {}
def expected(data, threads, bound, **_):
    return {"n": np.array([threads, bound], np.int32)}
"""
FILE = """
#include "team.h"
void ask_team(int* n) { n[0] = team(false); n[1] = team(true); }
"""
HEADER = """
#include <sched.h>
inline int team(bool bound) {
  int n = 0;
#pragma omp parallel reduction(+ : n)
  {
    cpu_set_t cores;
    n += !bound || (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1);
  }
  return n;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("team")
    for name, text in {"team.dag": PROGRAM, "team.py": SETUP, "ask.cpp": FILE, "team.h": HEADER}.items():
        (folder / name).write_text(text)
    return folder / "team.dag"


def _plan(program: Path, variant: str, target: Target) -> Plan:
    graph = load_graph(program, {"ask.variant": variant})
    return Plan(graph, Space(graph).first(), target)


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
def test_only_a_program_that_uses_it_is_linked_for_it(program: Path, target: Target) -> None:
    without = program.with_name("without.dag")
    without.write_text(PROGRAM.replace("#include <omp.h>", "").replace('cpu file { cpp ask_team from "ask.cpp" }', ""))
    assert not linked(_plan(without, "plain", target)).openmp
    assert linked(_plan(without, "text", target)).openmp
    assert linked(_plan(program, "file", target)).openmp  # by the header
    assert "OpenMP" not in emit(_plan(without, "plain", target))["CMakeLists.txt"]
    assert "OpenMP::OpenMP_CXX" in emit(_plan(program, "text", target))["CMakeLists.txt"]


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("variant", representatives(["text", "file"], "file"))
def test_ranks_share_the_cores(program: Path, variant: str, unoptimised: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as the rank may use cores, divided among ranks that may use the same, and all but the first bound
    to a core each, and one core in eight of a host left; or as many as requested."""
    folder = program.with_name(variant)
    done = api.compile(program, folder, defines={"ask.variant": variant}, target="host")
    assert done.binary is not None
    cores = len(os.sched_getaffinity(0))
    cores -= cores // 8 if cores == os.cpu_count() else 0
    for ranks, given, threads in ((1, "", cores), (2, "", max(cores // 2, 1)), (2, "3", 3)):
        data = folder / f"data-{ranks}-{given}"
        bound = threads if cores == 1 else 0 if given else threads - 1
        run_setup(program, ranks, data, defines={"threads": threads, "bound": bound})
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if given:
            monkeypatch.setenv("OMP_NUM_THREADS", given)
        finished = launch([done.binary, "--data", data, "--check-only"], ranks)
        assert finished.returncode == 0, finished.stderr


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or mpi is None, reason="needs nvcc and an MPI")
def test_nvcc_hands_it_to_the_host_compiler(program: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text("#include <cstdio>\n" + HEADER + 'int main() { std::printf("%d", team(false)); }')
    built = build(Build([tmp_path / "main.cu"], target="cuda", openmp=True, flags=("-O0",)), tmp_path / "main")
    said = subprocess.run(
        [built], env={**os.environ, "OMP_NUM_THREADS": "3"}, capture_output=True, text=True, check=True
    )
    assert said.stdout == "3"

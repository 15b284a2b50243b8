"""A program whose ops may all run on the CPU, where the GPU is too small, or absent."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, find_nvcc, gpus
from dagc.choice.choose import emitted
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.emit import emit
from dagc.emit.library import emit_library
from dagc.ir.plan import Features, Plan, Target
from dagc.measure.launch import Finished, launch
from dagc.perf.hardware import load_hardware
from dagc.setup import run_setup
from dagc.space import Space
from dagc.stages.artifacts import Library, build_library, write_sources
from dagc.stages.program import read
from tests.emit.build import ROOT, write
from tests.precompiled import precompiled_flags

mpi = find_mpi()
pytestmark = pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI")

PROGRAM = '''
program pair
setup "pair.py" given()
scalar n : i32
array x : f32[n] on any in
array c : f32[4] on any const
array y : f32[n] on any inout
kernel scale(y: inout f32[n], x: in f32[n], c: in f32[4], n: i32) {
  select variant, device with tree(n, first)
  feature first cost 1 = cpp """ return x[0]; """
  gpu one {
    launch grid(ceil(n / 64)) block(64)
    cuda """ int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] += c[1] * x[i]; """
  }
  gpu two {
    require n > 1
    launch grid(ceil(n / 32)) block(32)
    cuda """ int i = blockIdx.x * 32 + threadIdx.x; if (i < n) y[i] += c[1] * x[i]; """
  }
  cpu one { cpp """ for (int i = 0; i < n; ++i) y[i] += c[1] * x[i]; """ }
}
dag {
  first : any scale(y, x, c, n)
  second : any scale(y, x, c, n)
  FIXED
}
verify y ~ expected() rtol 1e-6
'''
SETUP = """
import numpy as np
def given(rank, size, seed):
    x = np.linspace(1, 2, 500, dtype=np.float32)
    return {"n": 500, "x": x, "c": np.arange(4, dtype=np.float32), "y": x[::-1].copy()}
def expected(data, **_):
    return {"y": data["y"] + 2 * data["x"]}
"""


def plan(folder: Path, target: Target, mode: Features = Features.NOW, fixed: str = "") -> Plan:
    """Whose chooser wants the second implementation on the GPU."""
    (folder / "pair.dag").write_text(PROGRAM.replace("FIXED", fixed))
    (folder / "pair.py").write_text(SETUP)
    graph = read(folder / "pair.dag").with_open_devices().graph()
    choosers = []
    for site in open_sites(graph, variants=True):
        choices = legal_settings(graph, site, {"max_threads_per_block": 1024})
        anchors = [({"n": n, "first": 1.0}, choices[1]) for n in (400, 600)]
        choosers.append(
            site_chooser(
                graph,
                site,
                choices,
                load_hardware("h200"),
                ModelInputs("exhaustive"),
                anchors=anchors,
                asked=("n", "first"),
            )
        )
    codes = dict.fromkeys(code for c in choosers for feature in c.features for code in feature.code)
    opened = tuple(t for site in open_sites(graph, variants=True) for t in site.open)
    chooser = replace(emitted(choosers), mode=mode)
    return Plan(graph, Space(graph).first(), target, open=opened, chooser=chooser, features=tuple(codes))


def run(binary: Path, made: Plan, data: Path) -> Finished:
    run_setup(made.program, Path(made.program.path).parent, 2, 1, data)
    return launch([binary, "--data", data, "--check-only", "--verbose"], 2, timeout=300)


ON_A_GPU = [pytest.mark.gpu, pytest.mark.nvcc, pytest.mark.skipif(not gpus() or not find_nvcc(), reason="needs a GPU")]


@pytest.mark.mpi
@pytest.mark.parametrize("target", [Target.HOST, pytest.param(Target.CUDA, marks=ON_A_GPU)])
def test_arrays_that_do_not_fit_stay_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    made = plan(tmp_path, target)
    write(made, tmp_path / "out")
    program = tmp_path / "out/program.hpp"
    text = program.read_text()
    asked = "static_cast<std::int64_t>(p.x.bytes() + p.c.bytes() + p.y.bytes()) < p.hardware.memory"
    assert text.count(asked) == 2 * 2  # of each op both implementations on the GPU
    memory = '(std::getenv("SMALL") != nullptr ? 4016 : p.hardware.memory)'
    program.write_text(text.replace(asked, asked.replace("p.hardware.memory", memory)))
    main = tmp_path / ("out/bench.cu" if target is Target.CUDA else "out/bench.cpp")
    flags = ("-O0", *(precompiled_flags() if target is Target.HOST else ("-Xptxas=-O0",)))
    built = build(Build([main], target=target.value, mpi=require_mpi(), flags=flags), tmp_path / "bench")
    for size, chosen in (("LARGE", "gpu.two (chosen 2)"), ("SMALL", "cpu.one (constraint 2)")):
        monkeypatch.setenv(size, "1")
        done = run(built, made, tmp_path / f"data-{size}")
        assert done.returncode == 0, done.stderr
        assert f"first: {chosen}\nsecond: {chosen}\n" in done.stdout


def test_which_programs_run_without_a_gpu(tmp_path: Path) -> None:
    """Those of which no op needs one, if what runs is chosen before the first run; their libraries too."""
    absent = '#include "dagc/absent_gpu.hpp"'
    assert absent in emit(plan(tmp_path, Target.CUDA))["bench.cu"]
    assert absent in emit_library(plan(tmp_path, Target.CUDA), "pair", "placed")["src/pair.cu"]
    assert absent not in emit(plan(tmp_path, Target.CUDA, fixed="third : gpu scale(y, x, c, n)"))["bench.cu"]
    assert absent not in emit(replace(plan(tmp_path, Target.CUDA), chooser=None, open=()))["bench.cu"]
    assert absent not in emit(replace(plan(tmp_path, Target.CUDA), chooser=None))["bench.cu"]


def test_an_open_device_without_a_tuned_file_takes_its_default_where_that_can_run(tmp_path: Path) -> None:
    plan(tmp_path, Target.CUDA)  # writes the program
    anywhere = {"first.device": "any", "second.device": "any"}
    done = api.compile(
        tmp_path / "pair.dag", tmp_path / "any", target="cuda", arch="sm_90", defines=anywhere, build=False
    )
    assert done.plan.chooser is not None
    assert [choice.answers for choice in done.plan.chooser.choices] == [2, 2]
    assert [t.values for t in done.plan.open] == [("gpu.one", "cpu.one")] * 2
    assert '#include "dagc/absent_gpu.hpp"' in (tmp_path / "any/bench.cu").read_text()
    fixed = {**anywhere, "first.variant": "cpu.one", "second.variant": "cpu.one"}
    done = api.compile(tmp_path / "pair.dag", tmp_path / "cpu", target="cuda", arch="sm_90", defines=fixed, build=False)
    assert not done.plan.open
    assert '#include "dagc/absent_gpu.hpp"' in (tmp_path / "cpu/bench.cu").read_text()


@pytest.mark.mpi
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or bool(gpus()), reason="needs nvcc, and no GPU")
@pytest.mark.thorough
def test_it_runs_on_the_cpu_where_there_is_no_gpu(tmp_path: Path) -> None:
    made = plan(tmp_path, Target.CUDA)
    write(made, tmp_path / "out")
    built = build(
        Build([tmp_path / "out/bench.cu"], target="cuda", mpi=require_mpi(), flags=("-O0", "-Xptxas=-O0")),
        tmp_path / "bench",
    )
    done = run(built, made, tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("note: no GPU found: all ops run on the CPU") == 1
    assert "y agrees with the reference" in done.stdout
    assert "first: cpu.one (constraint 2)" in done.stdout
    timed = launch([built, "--data", tmp_path / "data", "--seconds", "0.001", "--repeats", "2"], 2, timeout=300)
    assert timed.returncode == 0, timed.stderr


CALLER = """
import sys
import numpy as np
from mpi4py import MPI
import dagc

pair = dagc.load_library(sys.argv[1])
x, c = np.linspace(1, 2, 500, dtype="f4"), np.arange(4, dtype="f4")
y = x[::-1].copy()
with pair.Instance(MPI.COMM_WORLD, n=500, x=x, c=c, y=y) as instance:
    instance.run(2)
    print(instance.choices, instance.warnings, np.allclose(y, x[::-1] + 4 * x))
"""


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or bool(gpus()), reason="needs nvcc, and no GPU")
def test_a_library_runs_on_the_cpu_where_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On memory of the caller that is not page-locked, which nothing could lock."""
    monkeypatch.setenv("DAGC_NVCCFLAGS", "-O0 -Xptxas=-O0")
    made, library = plan(tmp_path, Target.CUDA), Library("pair", False)
    write_sources(made, tmp_path / "pair", False, library)
    build_library(tmp_path / "pair", made, library)
    (tmp_path / "caller.py").write_text(CALLER)
    done = launch(
        [sys.executable, tmp_path / "caller.py", tmp_path / "pair"], 1, env={"PYTHONPATH": str(ROOT)}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "first: cpu.one (constraint 1)" in done.stdout
    assert done.stdout.count("no GPU found: all ops run on the CPU") == 1
    assert done.stdout.rstrip().endswith("True")

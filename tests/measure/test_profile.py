"""What ncu writes, read; and a GPU's counters, where there is one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import DagcError, MissingTool, UsageError
from dagc.build.toolchain import GPU, find_nvcc, gpus
from dagc.measure.machine import ACHIEVED, descriptor_path, find_ncu, probe, profiled, read_counts
from dagc.perf.hardware import load_hardware
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions

SAMPLE = Path(__file__).parents[2] / "samples" / "polybench" / "gemm.dag"
LINES = """==PROF== Connected to process 7
"ID","Kernel Name","smsp__inst_executed.sum","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","dram__bytes.sum"
"","","inst","request","byte"
"0","gemm","1,234","56","7.5"
"1","gemm","2468","n/a","8"
==PROF== Disconnected
"""


def test_lines_of_launches_without_the_units():
    first, second = read_counts(LINES)
    assert first == {"instructions": 1234.0, "load_requests": 56.0}
    assert second == {"instructions": 2468.0}


def test_nothing_counted():
    assert read_counts("==ERROR== The user has no permission\n") == []


def test_a_metric_in_percent():
    name = next(iter(ACHIEVED))
    lines = f'"ID","Kernel Name","{name}"\n"","","%"\n"0","gemm","73.5"\n'
    assert read_counts(lines, ACHIEVED) == [{"achieved": 73.5}]


def test_a_profiler_that_is_none(monkeypatch):
    monkeypatch.setenv("DAGC_NCU", "/nowhere/ncu")
    with pytest.raises(UsageError, match="DAGC_NCU=/nowhere/ncu"):
        find_ncu()


@pytest.mark.skipif(Path("/opt/nvidia/nsight-compute").exists(), reason="an installed profiler is found")
def test_without_a_profiler(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGC_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("DAGC_NVCC", str(nvcc))  # without an ncu beside it
    with pytest.raises(MissingTool, match="no ncu") as caught, profiled():
        pass
    assert "DAGC_NCU" in caught.value.help


def test_a_descriptor_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    here = GPU("NVIDIA H200 (two)", "9.0", 1 << 30, "580")
    path = descriptor_path(here)
    assert path.parent == tmp_path / "gpus"
    assert path.name.startswith("nvidia-h200-two-")
    path.write_text("kept")
    assert probe(here).read_text() == "kept"
    monkeypatch.setenv("DAGC_CACHE", "/proc/no/cache")
    with pytest.raises(DagcError, match="cannot be written"):
        probe(here)


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_the_benchmarks_compile_without_a_warning(tmp_path):
    import subprocess

    from dagc.base.resources import resource

    nvcc = find_nvcc()
    assert nvcc is not None
    flags = ["-O2", "-arch=sm_80", "-Xcompiler", "-Wall,-Wextra", "-Werror", "all-warnings"]
    source = str(resource("templates/probe/gpu.cu"))
    done = subprocess.run(
        [str(nvcc.path), *flags, "-o", str(tmp_path / "probe"), source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU on this machine")
def test_what_this_gpu_can_do(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    hardware = load_hardware(str(probe(gpus()[0])))
    assert hardware.name == gpus()[0].name
    found = hardware.measured
    assert found is not None
    assert 0 < found.l1_latency < found.l2_latency < found.memory_latency
    assert 0 < found.memory_bytes_per_cycle < 20 * found.l2_bytes_per_cycle
    assert min(found.departure_coalesced, found.departure_uncoalesced, found.block_start_cycles) > 0


@pytest.mark.gpu
@pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU on this machine")
def test_the_occupancy_that_a_launch_achieves(tmp_path):
    """Never above what the exact program says."""
    if find_ncu() is None:
        pytest.skip("no ncu on this machine")
    done = tune(SAMPLE, tmp_path / "t.db", TuneOptions(sizes="NI=NJ=512 NK=96", target="cuda", top=2))
    (line,) = done.lines
    if math.isnan(line.achieved):
        pytest.skip(next(note for note in done.notes if "achieved" in note))
    assert 0 < line.achieved <= line.held[line.chosen].share + 0.01


@pytest.mark.gpu
@pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU on this machine")
def test_counters_of_a_kernel(tmp_path):
    """A request of gemm's loop a warp and iteration, counted by the hardware."""
    if find_ncu() is None:
        pytest.skip("no ncu on this machine")
    from dagc.study.build import build
    from dagc.study.gpu import collect, drawn
    from dagc.study.prepare import Prepared
    from dagc.study.task import tuning_task

    made = tuning_task(api.read(SAMPLE), sizes="NI=NJ=64,128 NK=96", target="cuda")
    ready = Prepared(made, build(made, tmp_path), {})
    try:
        at, samples = collect(ready, tmp_path, drawn(made, ("gemm",), 3, 4))
    except MissingTool as error:
        pytest.skip(f"counters cannot be read here: {error}")
    assert len(samples) == 12
    for cell, sample in samples.items():
        assert not sample.failure
        sizes = at.at[cell.case].scalars
        assert sample.metrics["load_requests"] >= 2 * sizes["nk"] * sizes["ni"] * sizes["nj"] / 32

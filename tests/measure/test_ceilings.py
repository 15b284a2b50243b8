"""What the machine can do at most, measured on the host target, and on a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dagc.base.resources import resource
from dagc.base.signals import Deadline
from dagc.build.toolchain import find_nvcc, gpus
from dagc.measure.machine import CEILINGS, measured_ceilings
from dagc.perf.bound import Ceilings
from tests.precompiled import compile_by_clang


def _sizes(found: dict[str, object]) -> list[float]:
    """Of the arrays, after a check that all figures have the right units."""
    ceilings = Ceilings.of_table(found, "this machine")
    assert all(1e8 < speed < 1e14 for _, speed in ceilings.streams)  # bytes per second
    assert 1e7 < ceilings.operations < 1e15
    assert 0 < ceilings.launch < 1e-3
    assert ceilings.wait >= 0
    return [size for size, _ in ceilings.streams]


def test_ceilings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    compile_by_clang(monkeypatch)
    assert measured_ceilings("host", "", Deadline.after(0.0)) is None  # measured while there is time
    monkeypatch.setattr("dagc.measure.machine.OVERRUN", -59.9)
    assert measured_ceilings("host", "", Deadline.after(60.0)) is None  # ended while it was compiled
    found = measured_ceilings("host", "")
    assert found is not None
    assert _sizes(found) == [15 << n for n in range(10, 24)]
    assert found["shared"] is False
    assert measured_ceilings("host", "", Deadline.after(0.0)) == found
    (file,) = (tmp_path / "gpus").glob("ceilings-*.json")
    file.write_text("{")
    assert measured_ceilings("host", "", Deadline.after(0.0)) is None  # cannot be read: would be measured again


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_the_benchmark_compiles_for_gpus_without_a_warning(tmp_path: Path) -> None:
    nvcc = find_nvcc()
    assert nvcc is not None
    flags = [
        "-O2",
        "-std=c++17",
        "--extended-lambda",
        "-arch=sm_80",
        "-Xcompiler",
        "-Wall,-Wextra",
        "-Werror",
        "all-warnings",
    ]
    files = [f"-I{resource('templates/runtime')}", "-c", "-o", str(tmp_path / "ceilings.o"), str(resource(CEILINGS))]
    done = subprocess.run([str(nvcc.path), *flags, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU on this machine")
def test_ceilings_of_this_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    found = measured_ceilings("cuda", gpus()[0].arch)
    assert found is not None
    assert _sizes(found)[0] == 15 << 16
    assert found["shared"] is True
    assert ("link" in found) == (len(gpus()) > 1)
    assert 1e9 < found["host_link"] < found["streams"][-1][1]

"""What a results file says of the machine: found by asking the system, never by guessing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dagc.devices import gpus
from dagc.results import Machine
from dagc.toolchain import find_cxx, find_mpi, find_nvcc

_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "persistence_mode", "power.limit")


def machine_facts(target: str, arch: str, hosts: Iterable[str] = (), mpi: str = "") -> Machine:
    """This machine, for a `target` ("cuda" or "host"). `hosts` of the ranks, `mpi` as the MPI itself says.

    On the host target there are no GPUs: nothing runs on them.
    """
    devices = gpus() if target == "cuda" else ()
    found = find_mpi()
    return Machine(
        hosts=tuple(sorted(set(hosts))) or (platform.node(),),
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        gpus=tuple(gpu.name for gpu in devices),
        driver=devices[0].driver if devices else "",
        mpi=mpi or (found.describe() if found else ""),
        target=target,
        arch=arch if target == "cuda" else "",
        facts=_facts(target),
    )


def cpu_model(info: str | None = None) -> str:
    """The processor's name; `info` is the text of /proc/cpuinfo."""
    if info is None:
        try:
            info = Path("/proc/cpuinfo").read_text(errors="replace")
        except OSError:
            info = ""
    for line in info.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def _facts(target: str) -> dict[str, Any]:
    cxx = find_cxx()
    nvcc = find_nvcc() if target == "cuda" else None
    facts: dict[str, Any] = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cxx": cxx.version if cxx else "",
        "nvcc": nvcc.version if nvcc else "",
        "load": list(os.getloadavg()),
    }
    if target == "cuda":
        facts["clocks"] = _clocks()
    return facts


def _clocks() -> list[dict[str, str]]:
    """Clocks and limits of each GPU, in nvidia-smi's words and units; empty where it is not there."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    command = [smi, f"--query-gpu={','.join(_CLOCKS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(_CLOCKS, row, strict=True)) for row in rows if len(row) == len(_CLOCKS)]

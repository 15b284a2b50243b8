"""Facts about the machine for results files, all queried from the system."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dagc.build.target import gpus
from dagc.build.toolchain import find_cxx, find_mpi, find_nvcc
from dagc.store.results import MachineRecord

_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "persistence_mode", "power.limit")


def machine_facts(target: str, arch: str, hosts: Iterable[str] = (), mpi: str = "") -> MachineRecord:
    """This machine, for a `target` ("cuda" or "host"). `hosts` of the ranks, `mpi` as the MPI describes itself.

    On the host target there are no GPUs: nothing runs on them.
    """
    devices = gpus() if target == "cuda" else ()
    installed = find_mpi()
    return MachineRecord(
        hosts=tuple(sorted(set(hosts))) or (platform.node(),),
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        gpus=tuple(gpu.name for gpu in devices),
        driver=devices[0].driver if devices else "",
        mpi=mpi or (installed.describe() if installed else ""),
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
        facts["gpu_processes"] = _other_gpu_processes()
    return facts


def _other_gpu_processes() -> list[str]:
    """Processes on the GPUs not started by this one, as `PID NAME (MEMORY)`; empty without nvidia-smi."""
    rows = _smi("--query-compute-apps=pid,process_name,used_memory")
    return [
        f"{pid} {name} ({memory})"
        for pid, name, memory in (row for row in rows if len(row) == 3 and row[0].isdigit())
        if not _started_here(int(pid))
    ]


def _started_here(pid: int) -> bool:
    """Whether it is this process or a descendant, such as a rank."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return False
        pid = int(status.rpartition(")")[2].split()[1])  # the name, in brackets, may contain anything
    return False


def _clocks() -> list[dict[str, str]]:
    """Clocks and limits of each GPU, in nvidia-smi's words and units; empty without it."""
    rows = _smi(f"--query-gpu={','.join(_CLOCKS)}")
    return [dict(zip(_CLOCKS, row, strict=True)) for row in rows if len(row) == len(_CLOCKS)]


def _smi(query: str) -> list[list[str]]:
    """nvidia-smi's answer, a list of words for each line; empty if it is missing or fails."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    try:
        done = subprocess.run(
            [smi, query, "--format=csv,noheader"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]

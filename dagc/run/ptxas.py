"""What a kernel takes of a multiprocessor, as nvcc's assembler says: no GPU is needed."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dagc.toolchain import find_nvcc

PATIENCE = 300.0  # seconds
_FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers` of a thread, of 32 bits; `shared` memory of a block in bytes, declared in the kernel's text."""

    registers: int
    shared: int = 0


def kernel_resources(source: Path, arch: str) -> dict[str, Resources]:
    """Of each kernel function of an emitted `kernels.cu`, by name; empty where nvcc is not there or refuses it."""
    nvcc = find_nvcc()
    if nvcc is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="dagc-ptxas-") as folder:
        command = [
            str(nvcc.path), "-cubin", "-Xptxas", "-v", f"-arch={arch}", "-std=c++17", "-O3", "-Iinclude", "-o",
            str(Path(folder) / "kernels.cubin"), source.name,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=source.parent, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
    return read_resources(done.stdout + done.stderr) if done.returncode == 0 else {}


def read_resources(text: str) -> dict[str, Resources]:
    """The lines of `ptxas -v`."""
    out: dict[str, Resources] = {}
    name = ""
    for line in text.splitlines():
        if found := _FUNCTION.search(line):
            name = found.group(1)
        elif name and (found := _USED.search(line)):
            out[name] = Resources(int(found.group(1)), int(found.group(2) or 0))
            name = ""
    return out

"""What a kernel takes of a multiprocessor, as nvcc says: no GPU is needed."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from dagc.build.toolchain import find_nvcc
from dagc.cuda.ptx import Resources, read_instructions

PATIENCE = 300.0  # seconds
_FUNCTION = re.compile(r"Compiling entry function '(\w+)'")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def kernel_resources(source: Path, arch: str) -> dict[str, Resources]:
    """Of each kernel function of an emitted `kernels.cu`, by name; empty where nvcc is not there or refuses it."""
    nvcc = find_nvcc()
    if nvcc is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="dagc-ptxas-") as folder:
        ptx, cubin = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        front = ["-ptx", "-std=c++17", "-O3", "-Iinclude", "-o", str(ptx), source.name]
        assembler = ["-cubin", "-Xptxas", "-v", "-o", str(cubin), str(ptx)]
        said = ""
        for options in (front, assembler):
            command = [str(nvcc.path), f"-arch={arch}", *options]
            try:
                done = subprocess.run(
                    command, cwd=source.parent, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                return {}
            if done.returncode != 0:
                return {}
            said = done.stdout + done.stderr
        instructions = read_instructions(ptx.read_text(encoding="utf-8"))
    return {name: replace(r, instructions=instructions.get(name)) for name, r in read_resources(said).items()}


def read_resources(text: str) -> dict[str, Resources]:
    """The lines of `ptxas -v`."""
    out: dict[str, Resources] = {}
    name = ""
    for line in text.splitlines():
        if match := _FUNCTION.search(line):
            name = match.group(1)
        elif name and (match := _USED.search(line)):
            out[name] = Resources(int(match.group(1)), int(match.group(2) or 0))
            name = ""
    return out

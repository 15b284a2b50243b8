"""What micro-benchmarks measure of this machine (`templates/probe`): the GPU's capabilities, and times of transfers.

Of the GPU, `gpu.cu` reads limits from the driver and measures the rest, once. The result is a descriptor like those of
`dagc/perf/gpus.toml`, one file per GPU, in `$DAGC_CACHE/gpus`, else `$XDG_CACHE_HOME/dagc/gpus`, else
`~/.cache/dagc/gpus`. Remove it to measure again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from dagc.base import signals
from dagc.base.errors import MissingTool, RunFailed
from dagc.base.resources import resource
from dagc.build.builder import build
from dagc.build.target import GPU
from dagc.build.toolchain import NO_NVCC_HELP, find_nvcc

SOURCE = "templates/probe/gpu.cu"
TRANSFERS = "templates/probe/transfers.cu"
DIRECTIONS = ("to_device", "to_host")
PATIENCE = 120.0  # seconds for the compiler, and for the benchmarks


def descriptor_path(gpu: GPU) -> Path:
    """The path of a GPU's descriptor. Each version of the benchmarks has its own."""
    chosen = os.environ.get("DAGC_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "dagc"
    version = hashlib.sha256(resource(SOURCE).read_bytes()).hexdigest()[:8]
    name = "-".join("".join(c if c.isalnum() else " " for c in gpu.name.lower()).split())
    return folder / "gpus" / f"{name}-{version}.toml"


def probe(gpu: GPU, folder: Path | None = None) -> Path:
    """The descriptor of a GPU of this machine (the first, in CUDA's order), measured now if there is none.

    Takes about 5 s the first time: compiles and runs the benchmarks. `folder`: for the file (default: the cache).
    Raises MissingTool without nvcc, RunFailed if the benchmarks do not compile or run.
    """
    path = descriptor_path(gpu) if folder is None else folder / descriptor_path(gpu).name
    if path.exists():
        return path
    nvcc = find_nvcc()
    if nvcc is None:
        raise MissingTool("no nvcc was found: the GPU's speed cannot be measured", NO_NVCC_HELP)
    with tempfile.TemporaryDirectory(prefix="dagc-probe-") as temporary:
        program = Path(temporary) / "probe"
        _run(
            [str(nvcc.path), "-O2", f"-arch={gpu.arch}", "-o", str(program), str(resource(SOURCE))],
            "of the GPU does not compile",
        )
        text = _run([str(program)], "of the GPU does not run")
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "# Queried from the driver and measured by dagc tune. Remove this file to measure again.\n"
    handle, partial = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(head + text)
    os.replace(partial, path)
    return path


def measured_transfers(target: str, arch: str) -> dict[str, list[tuple[int, float]]]:
    """Times of transfers between page-locked memory of the host and the device: (bytes, seconds) by direction, between
    4 B and 64 MiB; takes about a second. `target`: "host" or "cuda".

    Raises MissingTool, BuildFailed; RunFailed where it does not run.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-transfers-") as folder:
        program = build(
            [resource(TRANSFERS)], Path(folder) / "transfers", target=target, arch=arch, directory=Path(folder),
            include=[resource("templates/runtime")], defines=("DAGC_NO_MPI",),
        )  # fmt: skip
        text = _run([str(program)], "of transfers does not run")
    out: dict[str, list[tuple[int, float]]] = {direction: [] for direction in DIRECTIONS}
    for line in text.splitlines():
        direction, size, seconds = line.split()
        out[direction].append((int(size), float(seconds)))
    return out


def _run(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"the benchmark {what} in {PATIENCE:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        number = signals.of_code(done.returncode)
        why = f"ended by {signals.named(number)}" if number else f"exit code {done.returncode}"
        raise RunFailed(f"the benchmark {what}: {lines[-1] if lines else why}")
    return done.stdout

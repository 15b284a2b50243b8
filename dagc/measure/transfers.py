"""Times of transfers between page-locked memory of the host and the device: `templates/probe/transfers.cu`, compiled
and run on this machine."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from dagc.base import signals
from dagc.base.errors import RunFailed
from dagc.base.resources import resource
from dagc.build.builder import build

SOURCE = "templates/probe/transfers.cu"
DIRECTIONS = ("to_device", "to_host")
PATIENCE = 60.0  # seconds


def measured_transfers(target: str, arch: str) -> dict[str, list[tuple[int, float]]]:
    """(bytes, seconds) by direction, between 4 B and 64 MiB; takes about a second. `target`: "host" or "cuda".

    Raises MissingTool, BuildFailed; RunFailed where it does not run.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-transfers-") as folder:
        program = build(
            [resource(SOURCE)], Path(folder) / "transfers", target=target, arch=arch, directory=Path(folder),
            include=[resource("templates/runtime")], defines=("DAGC_NO_MPI",),
        )  # fmt: skip
        try:
            done = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the times of transfers: more than {PATIENCE:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        number = signals.of_code(done.returncode)
        why = f"ended by {signals.named(number)}" if number else f"exit code {done.returncode}"
        raise RunFailed(f"the times of transfers: {lines[-1] if lines else why}")
    out: dict[str, list[tuple[int, float]]] = {direction: [] for direction in DIRECTIONS}
    for line in done.stdout.splitlines():
        direction, size, seconds = line.split()
        out[direction].append((int(size), float(seconds)))
    return out

"""Hardware counters of single launches, by Nsight Compute (ncu): `dagc.measure.tune_worker` under its command.

The worker marks each launch that counts; ncu repeats it as often as its counters need and writes a line for each, in
the order of the launches.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.build.toolchain import find_nvcc
from dagc.measure.cells import PlannedPoint, Timing, measure

# ncu's name -> ours: what the fitted model wants. Sums over the GPU, of one launch; each more may cost a repetition.
METRICS = {
    "smsp__inst_executed.sum": "instructions",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
}
NO_NCU_HELP = "install Nsight Compute (it comes with the CUDA toolkit), or name its ncu in DAGC_NCU"


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one launch by name (the values of METRICS), or why there are none. `number` is the caller's."""

    number: int
    counts: dict[str, float]
    failure: str = ""


def find_ncu() -> Path | None:
    """DAGC_NCU, else ncu on the PATH, beside nvcc, or where its own installer puts it."""
    chosen = os.environ.get("DAGC_NCU", "")
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise UsageError(f"DAGC_NCU={chosen} is no program that can be run", "correct DAGC_NCU, or unset it")
        return Path(path)
    path = shutil.which("ncu")
    if path is not None:
        return Path(path)
    nvcc = find_nvcc()
    beside = [Path(nvcc.path).with_name("ncu")] if nvcc else []
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return next((p for p in (*beside, *installed) if p.exists()), None)


def count(
    points: Sequence[PlannedPoint], tunables: Sequence[tuple[str, int]], patience: float = 300.0
) -> Iterator[Counted]:
    """The counts of the cells in `time` of each point, all at the end: ncu writes when the worker has ended.

    Raises MissingTool where there is no ncu or it may not read counters, RunFailed where its lines and the launches do
    not match.
    """
    ncu = find_ncu()
    if ncu is None:
        raise MissingTool("no ncu was found: hardware counters cannot be read", NO_NCU_HELP)
    with tempfile.TemporaryDirectory(prefix="dagc-count-") as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--target-processes", "application-only", "--log-file", str(log),
            "--metrics", ",".join(METRICS),
        ]  # fmt: skip
        done = list(measure(points, tunables, Timing(), 0.0, patience, command))
        text = log.read_text(errors="replace") if log.exists() else ""
    counted = [d.number for d in done if not d.failure]
    yield from (Counted(d.number, {}, d.failure) for d in done if d.failure)
    rows = read_counts(text)
    if len(rows) != len(counted):
        said = [line.strip() for line in text.splitlines() if line.startswith("==ERROR==")]
        if not rows:
            reason = said[0].removeprefix("==ERROR==").strip() if said else "it wrote no line"
            raise MissingTool(f"ncu reads no counters: {reason}", "see ncu's documentation, or tune without counters")
        raise RunFailed(f"ncu counted {len(rows)} launches of {len(counted)}" + (f": {said[0]}" if said else ""))
    yield from (Counted(number, row) for number, row in zip(counted, rows, strict=True))


def read_counts(text: str) -> list[dict[str, float]]:
    """The lines of `ncu --csv --page raw`, in the order of the launches; what is no number is left out."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    out = []
    for row in csv.DictReader(lines):
        if not (row.get("ID") or "").strip():
            continue  # the line of units
        counts = {}
        for name, ours in METRICS.items():
            value = (row.get(name) or "").replace(",", "")
            try:
                counts[ours] = float(value)
            except ValueError:
                continue
        out.append(counts)
    return out

"""Hardware counters of single launches, by Nsight Compute (ncu): the ranks (dagc.measure.worker) under its command.

The ranks mark each launch to count; ncu repeats it as often as its counters need and writes a line for each, in launch
order.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagc.base.errors import MissingTool, RunFailed
from dagc.build.toolchain import find_nvcc, override

# ncu's name -> ours: inputs of the fitted model. Sums over the GPU, for one launch; more counters may cost repetitions.
METRICS = {
    "smsp__inst_executed.sum": "instructions",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
}
NO_NCU_HELP = "install Nsight Compute (it comes with the CUDA toolkit), or name its ncu in DAGC_NCU"


def find_ncu() -> Path | None:
    """DAGC_NCU, else ncu on the PATH, next to nvcc, or in the directory of its installer."""
    chosen, found = override("DAGC_NCU"), shutil.which("ncu")
    if chosen is not None or found is not None:
        return chosen or Path(str(found))
    nvcc = find_nvcc()
    siblings = [nvcc.path.with_name("ncu")] if nvcc else []
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return next((p for p in (*siblings, *installed) if p.exists()), None)


@dataclass(frozen=True, slots=True)
class Profiler:
    """A profiler: the `command` that runs the ranks, and its output."""

    command: tuple[str, ...]
    log: Path

    def counts(self, launches: int) -> list[dict[str, float]]:
        """Counts of the launches by name (the values of METRICS), in launch order, after the ranks have ended.

        Raises MissingTool if ncu may not read counters, RunFailed if its lines do not match the launches.
        """
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        rows = read_counts(text)
        if len(rows) == launches:
            return rows
        errors = [line.strip() for line in text.splitlines() if line.startswith("==ERROR==")]
        if not rows:
            reason = errors[0].removeprefix("==ERROR==").strip() if errors else "it wrote no line"
            raise MissingTool(f"ncu reads no counters: {reason}", "see ncu's documentation, or tune without counters")
        raise RunFailed(f"ncu counted {len(rows)} launches of {launches}" + (f": {errors[0]}" if errors else ""))


@contextmanager
def profiled() -> Iterator[Profiler]:
    """ncu, with its own log. Raises MissingTool without it."""
    ncu = find_ncu()
    if ncu is None:
        raise MissingTool("no ncu was found: hardware counters cannot be read", NO_NCU_HELP)
    with tempfile.TemporaryDirectory(prefix="dagc-count-") as directory:
        log = Path(directory) / "ncu.csv"
        command = (
            str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--target-processes", "application-only", "--log-file", str(log),
            "--metrics", ",".join(METRICS),
        )  # fmt: skip
        yield Profiler(command, log)


def read_counts(text: str) -> list[dict[str, float]]:
    """The lines of `ncu --csv --page raw`, in launch order; values that are not numbers are skipped."""
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

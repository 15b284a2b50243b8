"""What is known of the machine: facts for results files, queried from the system; what micro-benchmarks
(`templates/probe`) measure, of the GPU and of transfers; and counters of the hardware for single launches, by ncu."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagc.base import children, signals
from dagc.base.children import within
from dagc.base.errors import DagcError, MissingTool, RunFailed
from dagc.base.files import entry_directory, write_text_atomic
from dagc.base.resources import resource
from dagc.base.signals import ENDLESS, Deadline
from dagc.build.builder import Build, build
from dagc.build.mpi import cores, find_mpi
from dagc.build.toolchain import GPU, NO_NVCC_HELP, answer_of, find_cxx, find_nvcc, gpus, override
from dagc.store.results import MachineRecord

_CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "persistence_mode", "power.limit")


def machine_facts(target: str, arch: str, hosts: Iterable[str] = (), mpi: str = "") -> MachineRecord:
    """This machine, for a `target` ("cuda" or "host"). `hosts` of the ranks, `mpi` as the MPI describes itself.

    Of its cores and GPUs those that this process may use: under `taskset` and CUDA_VISIBLE_DEVICES, half of a machine
    has the times of a machine of that size. On the host target there are no GPUs: nothing runs on them.
    """
    devices = gpus() if target == "cuda" else ()
    installed = None if mpi else find_mpi()
    return MachineRecord(
        hosts=tuple(sorted(set(hosts))) or (platform.node(),),
        cpu=_cpu_model(),
        cores=cores(),
        gpus=tuple(gpu.name for gpu in devices),
        driver=devices[0].driver if devices else "",
        mpi=mpi or (installed.describe() if installed else ""),
        target=target,
        arch=arch if target == "cuda" else "",
        facts=_facts(target),
    )


def _cpu_model() -> str:
    """The name of the processor."""
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
    """Whether a process is this one or a descendant, such as a rank."""
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
    """Clocks and limits of each GPU, with the names and units of nvidia-smi; empty without it."""
    rows = _smi(f"--query-gpu={','.join(_CLOCKS)}")
    return [dict(zip(_CLOCKS, row, strict=True)) for row in rows if len(row) == len(_CLOCKS)]


def _smi(query: str) -> list[list[str]]:
    """nvidia-smi's answer, a list of words for each line; empty if it is missing or fails."""
    smi = shutil.which("nvidia-smi")
    text = answer_of([smi, query, "--format=csv,noheader"]) if smi is not None else None
    return [[word.strip() for word in line.split(",")] for line in (text or "").splitlines() if line.strip()]


# ---- micro-benchmarks ------------------------------------------------------------------------------


SOURCE = "templates/probe/gpu.cu"
TRANSFERS = "templates/probe/transfers.cu"
CEILINGS = "templates/probe/ceilings.cu"
PATIENCE = 120.0  # seconds for the compiler, and for the benchmarks
OVERRUN = 5.0  # seconds that a command with a time limit may take longer for what it measures once on a machine


def descriptor_path(gpu: GPU) -> Path:
    """The path of a GPU's descriptor. Each version of the benchmarks has its own. Raises DagcError without a cache."""
    folder = entry_directory("gpus")
    if folder is None:
        help = "name a directory that can be written in DAGC_CACHE"
        raise DagcError("the cache, which keeps the measured speed of the GPU, cannot be written", help)
    return folder / f"{_file_name(gpu.name, SOURCE)}.toml"


def _file_name(of: str, source: str) -> str:
    """The name of a file that keeps what a version of a benchmark has measured."""
    version = hashlib.sha256(resource(source).read_bytes()).hexdigest()[:8]
    return "-".join("".join(c if c.isalnum() else " " for c in of.lower()).split()) + f"-{version}"


def probe(gpu: GPU) -> Path:
    """The descriptor of a GPU of this machine (the first, in CUDA's order), measured now if there is none.

    Takes about 5 s the first time: compiles and runs the benchmarks. Raises MissingTool without nvcc, RunFailed if the
    benchmarks do not compile or run.
    """
    path = descriptor_path(gpu)
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
        text = _answer([str(program)], "of the GPU does not run", temporary)
    head = "# Queried from the driver and measured by dagc tune. Remove this file to measure again.\n"
    write_text_atomic(path, head + text)
    return path


def measured_ceilings(target: str, arch: str, end: Deadline = ENDLESS) -> dict[str, Any] | None:
    """What the first GPU, or a core of the host, can do at most: `streams` (bytes of an array, bytes per second),
    `operations` (pairs of a multiplication and an addition per second), `launch` and `wait` in seconds, and whether one
    launch uses all of the machine (`shared`). Measured once, which takes some seconds, and kept in the cache. None if
    the cache does not have it, and `end` is over, or is OVERRUN seconds ago before it is measured.

    Raises MissingTool, BuildFailed; RunFailed if it does not run.
    """
    here = gpus() if target == "cuda" else ()
    name = f"ceilings {here[0].name}" if here else f"ceilings {target} {platform.node()} {_cpu_model()}"
    folder = entry_directory("gpus")
    file = folder / f"{_file_name(name, CEILINGS)}.json" if folder is not None else None
    if file is not None and file.exists():
        with suppress(OSError, ValueError):  # one that cannot be read is measured again
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
    rest, what = None if end.timeout is None else end.left + OVERRUN, "of what the machine can do"
    answer = None if end.over else within(rest, lambda: _built_answer(CEILINGS, target, arch, what))
    if answer is None:
        return None
    out: dict[str, Any] = {"streams": [], "shared": target == "cuda"}
    for line in answer.splitlines():
        word, size, value = line.split()
        if word == "stream":
            out["streams"].append([int(size), float(value)])
        else:
            out[word] = float(value)
    if file is not None:
        write_text_atomic(file, json.dumps(out) + "\n")
    return out


def _built_answer(source: str, target: str, arch: str, what: str, arguments: Iterable[str] = ()) -> str:
    """What a benchmark for both targets writes."""
    with tempfile.TemporaryDirectory(prefix="dagc-probe-") as folder:
        order = Build(
            [resource(source)], target=target, arch=arch, directory=Path(folder),
            include=[resource("templates/runtime")], defines=("DAGC_NO_MPI",),
        )  # fmt: skip
        program = build(order, Path(folder) / "benchmark")
        return _answer([str(program), *arguments], f"{what} does not run", folder)


def measured_transfers(
    target: str, arch: str, pageable: bool = False, gpus: int = 1
) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """Times of transfers between page-locked memory of the host, or pageable one, and the first `gpus` that are there,
    each with each: (bytes, seconds) by source and target, where 0 is the host and 1 the first GPU; between 4 B and 64
    MiB. Takes about a second for each two. `target`: "host" or "cuda".

    Raises MissingTool, BuildFailed; RunFailed if it does not run.
    """
    words = [str(gpus), *(["pageable"] if pageable else [])]
    out: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for line in _built_answer(TRANSFERS, target, arch, "of transfers", words).splitlines():
        source, destination, size, seconds = line.split()
        out.setdefault((int(source), int(destination)), []).append((int(size), float(seconds)))
    return out


def _answer(command: list[str], what: str, folder: str) -> str:
    """What a benchmark writes to the file that is its last argument: on standard output, libraries may print, too."""
    file = Path(folder) / "answer"
    _run([*command, str(file)], what)
    return file.read_text(encoding="utf-8")


def _run(command: list[str], what: str) -> None:
    try:
        done = children.run(command, seconds=PATIENCE)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"the benchmark {what} in {PATIENCE:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        number = signals.of_code(done.returncode)
        why = f"terminated by {signals.named(number)}" if number else f"exit code {done.returncode}"
        raise RunFailed(f"the benchmark {what}: {lines[-1] if lines else why}")


# ---- hardware counters ----
# ncu runs the ranks (dagc.measure.executor), which mark each launch to count. It repeats the launch as often as its
# counters need, and writes a line for each, in launch order.

# ncu's name -> ours: inputs of the fitted model. Sums over the GPU, for one launch; more counters may cost repetitions.
METRICS = {
    "smsp__inst_executed.sum": "instructions",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
}
# Percent of the warps that a multiprocessor can hold, as a mean over the cycles in which it was active.
ACHIEVED = {"sm__warps_active.avg.pct_of_peak_sustained_active": "achieved"}
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
    """A profiler: the `command` that runs the ranks, its output, and the metrics with our names."""

    command: tuple[str, ...]
    log: Path
    metrics: Mapping[str, str]

    def counts(self, launches: int) -> list[dict[str, float]]:
        """Values of the launches by our names, in launch order, after the ranks have ended.

        Raises MissingTool if ncu may not read counters, RunFailed if its lines do not match the launches.
        """
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        rows = read_counts(text, self.metrics)
        if len(rows) == launches:
            return rows
        errors = [line.strip() for line in text.splitlines() if line.startswith("==ERROR==")]
        if not rows:
            reason = errors[0].removeprefix("==ERROR==").strip() if errors else "it wrote no line"
            raise MissingTool(f"ncu reads no counters: {reason}", "see ncu's documentation, or tune without counters")
        raise RunFailed(f"ncu counted {len(rows)} launches of {launches}" + (f": {errors[0]}" if errors else ""))


@contextmanager
def profiled(metrics: Mapping[str, str] = METRICS) -> Iterator[Profiler]:
    """ncu, with its own log. `metrics`: its names -> ours. Raises MissingTool without it."""
    ncu = find_ncu()
    if ncu is None:
        raise MissingTool("no ncu was found: hardware counters cannot be read", NO_NCU_HELP)
    with tempfile.TemporaryDirectory(prefix="dagc-count-") as directory:
        log = Path(directory) / "ncu.csv"
        command = (
            str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--target-processes", "application-only", "--log-file", str(log),
            "--metrics", ",".join(metrics),
        )  # fmt: skip
        yield Profiler(command, log, metrics)


def read_counts(text: str, metrics: Mapping[str, str] = METRICS) -> list[dict[str, float]]:
    """The lines of `ncu --csv --page raw`, in launch order; values that are not numbers are skipped."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    out = []
    for row in csv.DictReader(lines):
        if not (row.get("ID") or "").strip():
            continue  # the line of units
        counts = {}
        for name, ours in metrics.items():
            value = (row.get(name) or "").replace(",", "")
            try:
                counts[ours] = float(value)
            except ValueError:
                continue
        out.append(counts)
    return out

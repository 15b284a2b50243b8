"""GPU-dependent inputs of tuning: limits, speed, and hardware counters with functions fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.build import toolchain
from dagc.build.ranks import joined
from dagc.build.toolchain import find_nvcc
from dagc.choice.legal import block_of, op_of
from dagc.ir.plan import Target
from dagc.measure.machine import probe
from dagc.measure.profile import METRICS
from dagc.perf.hardware import Hardware, load_hardware
from dagc.study.measure import CounterSample, collect

if TYPE_CHECKING:
    from dagc.perf.fit import Fitted
    from dagc.study.prepare import Prepared
    from dagc.study.task import TuningTask

SIZES, SETTINGS = 9, 8  # counted for each program, and for each kernel at each of its sizes


@dataclass(frozen=True, slots=True)
class Counted:
    """`fits`: op -> count -> function; `samples`: op -> counts, as stored in the tuned file; `text`: a summary, "" if
    nothing was counted."""

    fits: Mapping[str, Mapping[str, Fitted]] = field(default_factory=dict)
    samples: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()


NOT_COUNTED = Counted()
NOTHING_RAN = Counted(notes=("no hardware counters where nothing is launched: counts are read from the kernel's text",))


def is_here(task: TuningTask) -> bool:
    """Whether this machine has a GPU of the target architecture; times of another would be meaningless."""
    here = toolchain.gpus()
    return bool(here) and here[0].arch.rstrip("af") == task.chosen.arch.rstrip("af")


def gpu_name(task: TuningTask, hardware: Hardware, measured: bool) -> str:
    """The GPU of the times, or else of the model; a named descriptor may be that of a similar GPU."""
    return (
        toolchain.gpus()[0].name if measured and task.chosen.target is Target.CUDA and is_here(task) else hardware.name
    )


def hardware_at_hand(task: TuningTask, gpu: str | None) -> tuple[Hardware, list[str]]:
    """The descriptor named by the user, else this machine's GPU (queried and measured once), else that of the
    architecture; and notes.

    Raises UsageError if there is no such descriptor.
    """
    here = toolchain.gpus() if task.chosen.target is Target.CUDA else ()
    if gpu is not None or not here or here[0].arch != task.chosen.arch:
        notes = []
        if here and not is_here(task):
            notes.append(f"this machine's GPU is {here[0].arch}, not {task.chosen.arch}: nothing is measured")
        return load_hardware(gpu or task.chosen.arch), notes
    try:
        return load_hardware(str(probe(here[0]))), []
    except (MissingTool, RunFailed, OSError) as error:
        return load_hardware(task.chosen.arch), [f"the GPU's speed is taken from a descriptor: {error}"]


def fitted_counts(ready: Prepared, ops: Sequence[str], folder: Path, seed: int) -> Counted:
    """Count launches of the ops at sample cases and fit functions. Without counters: no fits, and a note."""
    from dagc.perf.counted import fit_counts  # loads numpy, sympy

    if ready.task.graphs:
        return Counted(
            notes=("no hardware counters where sizes are constants: counts are read from the kernel's text",)
        )
    if ready.task.ranks > 1:
        return Counted(notes=("no hardware counters with several ranks: counts are read from the kernel's text",))
    if ready.task.chosen.target is not Target.CUDA:
        return Counted(notes=("no hardware counters on the host target: counts are read from the kernel's text",))
    try:
        samples = list(collect(ready, folder, ops, SIZES, SETTINGS))
    except (MissingTool, RunFailed) as error:
        return Counted(notes=(f"{' '.join(str(error).split())}; counts are read from the kernel's text",))
    fits: dict[str, dict[str, Fitted]] = {}
    notes = [f"{s.op} at {s.case.text}: {s.failure}" for s in samples if s.failure]
    for unit in ready.task.units:
        if unit.op not in ops:
            continue
        op = op_of(ready.task.graph, unit)
        whole = [s for s in samples if s.op == unit.op and set(METRICS.values()) <= set(s.counts)]
        launches = [launch_of(ready, s) for s in whole]
        try:
            fits[unit.op] = fit_counts(ready.task.program, op, launches, seed=seed)
        except UsageError as error:
            notes.append(f"{error.message}; counts are read from the kernel's text")
    records = {op: [_sample_record(s) for s in samples if s.op == op] for op in ops}
    return Counted(fits, records, _words(len(samples), fits), tuple(notes))


def launch_of(ready: Prepared, sample: CounterSample) -> Any:
    """A counted launch as an input of `dagc.perf.counted`."""
    from dagc.perf.counted import CountedLaunch  # loads numpy, sympy

    unit = next(u for u in ready.task.units if u.op == sample.op)
    block = block_of(ready.task.program, op_of(ready.task.graph, unit), sample.settings)
    scalars = {n: int(v) for n, v in sample.scalars.items() if isinstance(v, int)}
    return CountedLaunch(scalars, block, sample.counts)


def _sample_record(sample: CounterSample) -> dict[str, Any]:
    return {
        "point": dict(sample.case.params), "settings": sample.settings.own, "counts": sample.counts,
        "failure": sample.failure,
    }  # fmt: skip


def _words(launches: int, fits: Mapping[str, Mapping[str, Fitted]]) -> str:
    from statistics import median

    errors = [count.held_out for counts in fits.values() for count in counts.values()]
    if not errors:
        return ""
    middle, largest = median(e.median for e in errors), max(e.largest for e in errors)
    error = f"median {middle:.2%}, largest {largest:.0%}"
    return f"counters of {launches} launches, fitted; error at held-out points: {error}"


def can_run(task: TuningTask) -> bool:
    if task.ranks > 1 and joined() is not None:
        return False  # one of several ranks cannot start others
    return task.chosen.target is Target.HOST or (is_here(task) and find_nvcc() is not None)


def unmeasured(task: TuningTask, hardware: Hardware) -> list[str]:
    """A note that everything is ranked by the model of a GPU that is not here, and how to measure on this machine."""
    if can_run(task) or toolchain.gpus():
        return []
    how = "--target host measures on the CPU, whose times do not apply to a GPU"
    return [f"no GPU was found: settings are ranked by the model of {hardware.name} (--gpu), none was measured; {how}"]


def require_runs(task: TuningTask, what: str) -> None:
    """Raises UsageError if nothing can run here. `what` is measured."""
    if not can_run(task):
        raise UsageError(
            f"{what} are measured, and nothing can run here: {task.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )

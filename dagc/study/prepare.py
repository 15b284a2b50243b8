"""What is ready to be measured: the library of a task, and the data of each size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from dagc.base.errors import DagcError
from dagc.build import toolchain
from dagc.choice.legal import fits
from dagc.choice.types import Case
from dagc.ir.choice import Choice
from dagc.ir.enums import Place
from dagc.ir.names import data_file
from dagc.ir.plan import Target
from dagc.ir.program import Program, Region
from dagc.ir.sym import Number, evaluate
from dagc.setup import read_scalars, run_setup
from dagc.setup.arrays import elements

# ---- the library that is measured ----
from dagc.study.build import attempted, build_programs
from dagc.study.task import TuningTask, distinct

# ---- what is tuned, and its data ----

DEFAULT_FLUSH = 128 << 20  # bytes: more than twice the L2 cache of any current GPU
WARM = 0.5  # share of the L2 cache that is used: each of its two halves holds what its multiprocessors read


@dataclass(frozen=True, slots=True)
class AtCase:
    """The program at one size: its data, the values of its scalars, how often it repeats. `constants`: values of the
    parameters that make the program differ from that of other sizes. `computed`: code features of rank 0, by name."""

    case: Case
    data: Path
    scalars: Mapping[str, Number]
    repeats: int
    fits: Mapping[str, tuple[Choice, ...]]
    constants: Mapping[str, int] = field(default_factory=dict)
    computed: Mapping[str, float] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Number]:
        """The values that a chooser uses: numbers of rank 0, and parameters that are constants of the program."""
        return {**self.scalars, **self.constants, **self.computed}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ready to be measured: the runner library and the data of every size. `libraries`: those of sizes at which the
    program differs. `failures`: settings that do not compile."""

    task: TuningTask
    library: Path
    at: Mapping[Case, AtCase] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    libraries: Mapping[Case, Path] = field(default_factory=dict)

    def library_at(self, case: Case) -> Path:
        return self.libraries.get(case, self.library)

    def having(self, *cases: AtCase) -> Prepared:
        """With these cases, in place of what they were before."""
        return replace(self, at={**self.at, **{at.case: at for at in cases}})

    def noting(self, notes: Iterable[str]) -> Prepared:
        """With more notes."""
        return replace(self, notes=(*self.notes, *notes))


def prepare(task: TuningTask, folder: Path, jobs: int | None = None) -> Prepared:
    """Build the library and write the data of each size, in parallel. Runs the program's Python code."""
    at, notes = _usable(task, folder, dict.fromkeys((task.check_at, *task.cases)), (task.check_at,), jobs=jobs)
    here = replace(task, cases=tuple(p for p in task.cases if p in at))
    libraries, here, failures = build_programs(here, folder)
    if failures:
        at = {p: only(a, here.choices) for p, a in at.items()}
    notes += _compiled_apart(here)
    notes += [
        f"{site.name} at {p.text}: nothing to launch, skipped"
        for p, a in at.items()
        for site in here.sites
        if not a.fits[site.name]
    ]
    return Prepared(here, libraries[here.check_at], at, tuple(notes), failures, libraries)


def _compiled_apart(task: TuningTask) -> list[str]:
    programs = len(distinct(task.graph_at(p) for p in (task.check_at, *task.cases)))
    if programs == 1:
        return []
    why = (
        "sizes are constants in it; as per-rank scalars (`scalar n : i64`), which the set-up sets, one would serve all"
    )
    return [f"{programs} programs were compiled, since {why}"]


def unbuilt(task: TuningTask, folder: Path) -> Prepared:
    """Only the data of each size, without references, if nothing is measured. Runs the program's Python code."""
    at, notes = _usable(task, folder, task.cases, (), compared=False)
    return Prepared(replace(task, cases=tuple(p for p in task.cases if p in at)), Path(), at, tuple(notes))


def _usable(
    task: TuningTask,
    folder: Path,
    cases: Iterable[Case],
    needed: Sequence[Case],
    compared: bool = True,
    jobs: int | None = None,
) -> tuple[dict[Case, AtCase], list[str]]:
    """Sizes that the set-up accepts, and notes on what is left out. Raises its error for a size that is `needed`, and
    if no size remains."""
    at, refused = attempted(lambda case: at_case(task, case, folder, compared), cases, DagcError, jobs=jobs)
    for case, error in refused.items():
        if case in needed or not any(p in at for p in task.cases):
            raise error
    skipped = [f"{case.text}: skipped: {' '.join(str(error).split())}" for case, error in refused.items()]
    return at, [*(f"without {what}" for what in task.without), *skipped]


def only(at: AtCase, choices: Mapping[str, tuple[Choice, ...]]) -> AtCase:
    """The same task with some of the settings."""
    return replace(at, fits={op: tuple(s for s in fits if s in choices[op]) for op, fits in at.fits.items()})


def at_case(task: TuningTask, case: Case, folder: Path, compared: bool = True) -> AtCase:
    """Write the data of one size, and read its scalars. References are computed only if results are `compared` at this
    case."""
    data = task.data
    if data is None:
        program = task.text.program(dict(case.params))
        data = folder / f"data-{_digest(case)}"
        references = compared and (task.compared or case == task.check_at)
        run_setup(program, task.text.path.parent, task.ranks, task.seed, data, references=references)
    return read_case(task, case, data)


def read_case(task: TuningTask, case: Case, data: Path) -> AtCase:
    """The program at one size, whose arrays lie in `data`."""
    program = task.graph_at(case).program
    scalars = read_scalars(program, data, task.ranks)
    at = AtCase(
        case, data, {**scalars, "rank": 0, "ranks": task.ranks}, repeats_of(program, scalars), {},
        {name: value for name, value in case.sizes.items() if name in task.constants},
    )  # fmt: skip
    return replace(at, fits=fitting(task, at))


def fitting(task: TuningTask, at: AtCase, memory: int | None = None) -> dict[str, tuple[Choice, ...]]:
    """The settings of each site that may be launched at a case: by its scalars, computed features, and the memory of
    the device (None: that of this machine)."""
    graph = task.graph_at(at.case)
    values = {**at.scalars, **at.computed, "hw.memory": _memory(task) if memory is None else memory}
    return {
        site.name: tuple(c for c in site.choices if fits(graph, site, c, values, task.constraints))
        for site in task.sites
    }


def _memory(task: TuningTask) -> int:
    """Bytes of memory of the device, or of the machine on the host target, as in the running program."""
    here = toolchain.gpus() if task.chosen.target is Target.CUDA else ()
    return here[0].memory if here else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def _digest(case: Case) -> str:
    """A name for a directory: values may be paths."""
    return blake2b(repr(case.params).encode(), digest_size=8).hexdigest()


def repeats_of(program: Program, scalars: Mapping[str, Number]) -> int:
    """The number of runs of the dag: 1 without `repeat`."""
    return max(1, int(evaluate(program.repeat, scalars))) if program.repeat is not None else 1


def is_warm(program: Program, scalars: Mapping[str, Number], data: Path, cache: float) -> bool:
    """Whether a program that runs again and again finds its data in a cache of so many bytes: whether all arrays of
    rank 0's device together fit in it. Not if the size of one is unknown."""
    names = [array.name for array in program.arrays if array.place in (Place.DEVICE, Place.ANY)]
    try:
        return sum(array_bytes(program, scalars, data, name) for name in names) <= WARM * cache
    except DagcError:
        return False


def array_bytes(program: Program, scalars: Mapping[str, Number], data: Path, name: str) -> int:
    """Bytes of an array of rank 0; if its size comes with its data, that of its file. Raises DagcError without one."""
    from dagc.perf.bound import bytes_of  # loads sympy

    known = bytes_of(program, Region(name), scalars)
    return known or elements(data / "rank-0000" / data_file(name)) * program.array(name).type.size

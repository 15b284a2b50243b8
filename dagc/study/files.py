"""The tuned file of a run: opened, resumed, asked for another objective, and given its choosers; and the record of a
run: the program, its set-up and revision, the options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.files import scratch_directory
from dagc.base.resources import __version__
from dagc.base.sample import OCCUPANCY, Objective
from dagc.base.source import find_file, read_file
from dagc.build.toolchain import answer_of
from dagc.choice.selector import number as as_json
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM
from dagc.ir.plan import Target, program_hash
from dagc.ir.program import Program
from dagc.measure.machine import machine_facts
from dagc.measure.metrics import objective_for, observed, of_results, units
from dagc.measure.service import Service, WorkerLink
from dagc.report.display import Display
from dagc.store.results import FOLDED, MachineRecord, Run, of_hosts
from dagc.store.results import ProgramRecord as Kept
from dagc.store.settings import (
    FACT,
    OPTION,
    Origins,
    check_fixed,
    check_resumed,
    fixed_choices,
    fixed_to_json,
    values_fixed,
)
from dagc.study.choosers import ChooserInputs
from dagc.study.gpu import gpu_name
from dagc.study.prepare import DEFAULT_FLUSH
from dagc.study.results import NOTHING_MEASURED, Measurements
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.stages.options import CellOptions, EarlierOptions, ExploreOptions, Progress, TunedFileOptions, TuneOptions
    from dagc.store.records import Records
    from dagc.store.tuned import Tuned


def program_record(program: Program) -> Any:
    """The program, for a results file."""
    return Kept(
        name=program.name,
        path=program.path,
        hash=program_hash(program),
        sources=tuple((path, source.text) for path, source in sorted(program.sources.items())),
        params=tuple(program.param_values.items()),
    )


def revision(folder: Path) -> str:
    """The git revision of the directory, with + if it has changes; "" if there is none."""

    def git(*words: str) -> str:
        return (answer_of(["git", *words], 10, cwd=folder) or "").strip()

    commit = git("rev-parse", "HEAD")
    return f"{commit}+" if commit and git("status", "--porcelain", "--untracked-files=no") else commit


def setup_digest(path: Path, program: Program, options: EarlierOptions) -> str:
    """Part of the SHA-256 of the file that computes the arrays; "" if there is none, or the arrays were given."""
    if program.setup is None or options.data is not None:
        return ""
    try:
        text = read_file(find_file(program.setup.file, path.parent, path.parent), regular=True)
    except OSError:  # the set-up reports it
        return ""
    return sha256(text).hexdigest()[:16]


def run_record(
    machine: MachineRecord,
    options: ExploreOptions,
    path: Path,
    setup: str = "",
    fixed: Origins | None = None,
    folded: bool = False,
) -> Run:
    """`setup`: digest of the set-up file; `fixed`: the values that are not searched; `folded`: whether traversals
    cover one round of each loop. `options.strategy` must be set."""
    assert options.strategy is not None
    more = {
        OPTION: fixed_to_json(fixed or {}),
        **({"setup": setup} if setup else {}),
        **({FOLDED: True} if folded else {}),
    }
    return Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine, ranks=options.ranks,
        seed=options.seed, strategy=options.strategy, seconds=options.seconds, revision=revision(path.parent),
        version=__version__, options=asdict(options) | more,
    )  # fmt: skip


@dataclass(slots=True)
class SearchFile:
    """The results file of a search, opened for its first measurement, when not all is known of the run. Closed with
    `stack`."""

    stack: ExitStack
    path: Path = Path()
    records: Records | None = None
    best: Callable[[], str] = str  # a line on the best so far, "" without one
    _hosts: tuple[MachineRecord, ...] = ()

    def hosts(self, describe: Callable[[], tuple[MachineRecord, ...]]) -> tuple[MachineRecord, ...]:
        """Of the ranks, asked once."""
        self._hosts = self._hosts or describe()
        return self._hosts

    def open(
        self, text: Path, program: Program, options: ExploreOptions, fixed: Origins, folded: bool
    ) -> tuple[Records, Run]:
        """The file, with what is known of the run; after `hosts`. Raises UsageError."""
        from dagc.store.records import Records  # loads msgspec, sqlite3

        setup = setup_digest(text, program, options)
        run = run_record(of_hosts(self._hosts), options, text, setup, fixed, folded)
        if self.records is None:
            opened = Records.open(
                self.path, program_record(program), run, resume=options.resume, other_machine=options.other_machine
            )
            self.records = self.stack.enter_context(opened)
        else:
            self.records.restate(run)
        return self.records, run

    @contextmanager
    def before_search(self, display: Display) -> Iterator[None]:
        """If the user ends it, he is told what was measured; if he asked for what is not possible, a file that was
        created is removed."""
        try:
            yield
        except KeyboardInterrupt:
            if line := self.best():
                display.say(f"{line}\n{self.path} keeps it; --resume continues")
            raise
        except UsageError:
            if self.records is not None:
                self.records.close(withdrawn=True)
            raise


@dataclass(frozen=True, slots=True)
class Session:
    """A run of tuning: its task, options and objective, the ranks that measure, and where results go (`records` is None
    without a tuned file). `measured`: what an earlier run left. `flush`: bytes written before each launch. `folder`:
    for what is built. `notes`: on the file."""

    task: TuningTask
    options: TuneOptions
    objective: Objective
    service: Service
    measured: Measurements
    records: Records | None
    progress: Progress | None
    flush: int
    folder: Path
    notes: tuple[str, ...]


@contextmanager
def begun(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None, training: bool = True,
    computed: bool = False,
) -> Iterator[Session]:  # fmt: skip
    """A run of tuning, with the measurements of a file that is resumed. `training`: else it only evaluates, and leaves
    the file its objective. `computed`: the objective may be the occupancy."""
    flush = flush_of(task, options)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_directory("dagc-tune-"))
        records = stack.enter_context(
            open_records(task, output, options, flush) if output is not None else nullcontext()
        )
        before = records.tuned().facts.objective if records is not None and options.resume else "time"
        objective = objective_for(
            options.objective or before, task.chosen.target.value, task.program, computed=computed
        )
        if task.of_programs and task.program.until is not None and not objective.is_time:
            raise UsageError(
                f"objective {objective.text}: of a program with `until` the time of the whole repetition is measured",
                "drop --objective, or name a kernel with --kernel",
            )
        task = replace(task, compared=bool(of_results(observed(objective))))
        measured = known_before(records, task, flush, options.resume)
        measured, notes = minimise(records, measured, objective, asked_sites(task) if training else None)
        if records is not None:
            for key, value in conditions(task).items():
                records.set_fact(key, value)
        service = stack.enter_context(Service(WorkerLink(task.ranks), watchdog=options.watchdog))
        yield Session(task, options, objective, service, measured, records, progress, flush, folder, tuple(notes))


def load(path: str | Path) -> Tuned:
    """As `dagc.store.tuned.load_tuned`."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    return load_tuned(path)


def resumed(output: str | Path | None, options: TunedFileOptions) -> Tuned | None:
    """The file that is resumed. Raises UsageError if a file exists that is not."""
    from dagc.store.records import is_fresh  # loads msgspec, sqlite3

    return None if output is None or is_fresh(Path(output), options.resume) else load(output)


def known_before(records: Records | None, task: TuningTask, flush: int, resume: bool) -> Measurements:
    """The measurements of a resumed file that were timed in the same way; empty for a new one. Raises UsageError if the
    file was made with other parameters."""
    if records is None or not resume:
        return NOTHING_MEASURED
    before = records.tuned()
    if task.of_programs:
        if before.facts.program is not None:
            check_fixed(records.path, before.facts.program, conditions(task)[PROGRAM])
        inputs = before.facts.of_programs(task.features[PROGRAM])
    else:
        check_resumed(records.path, before, task.program, task.cases)
        inputs = {one.case: one for one in before.facts.inputs}
    timed = zip(before.samples, before.flushes, strict=True)
    samples = {cell: sample for (cell, sample), flushed in timed if flushed == flush}
    checks = dict(before.checks)
    if task.of_programs:
        samples = {cell: sample for cell, sample in samples.items() if cell.site == PROGRAM and cell.case in inputs}
        checks = {key: failure for key, failure in checks.items() if key[0] == PROGRAM}
    return Measurements(samples, checks, inputs)


def conditions(task: TuningTask) -> dict[str, Any]:
    """The facts of a file that must not differ when it is resumed."""
    if not task.of_programs:
        return {FACT: values_fixed(task.program)}
    fixed = fixed_choices(task.program, task.plans[0], [n for p in task.cases for n, _ in p.params])
    return {PROGRAM: fixed, "arch": task.chosen.arch, "target": task.chosen.target.value}


def flush_of(task: TuningTask, options: CellOptions) -> int:
    """Bytes written before each launch of a kernel on a GPU, so that it finds nothing in the caches."""
    return DEFAULT_FLUSH if options.flush and not task.of_programs and task.chosen.target is Target.CUDA else 0


def asked_sites(task: TuningTask) -> set[tuple[str, Case]]:
    """The sites and cases that a run of the task measures."""
    return {(site.name, case) for site in task.sites for case in set(task.cases).difference(task.earlier)}


def open_records(task: TuningTask, output: str | Path, options: TuneOptions, flush: int) -> Records:
    from datetime import UTC, datetime

    from dagc.store.records import Records  # loads msgspec, sqlite3

    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(task.chosen.target.value, task.chosen.arch), ranks=task.ranks, seed=options.seed,
        strategy=f"tune {options.method or 'as asked'}", seconds=options.cell, revision=revision(task.text.path.parent),
        version=__version__, options={"flush": flush, "top": options.each, "sizes": [p.text for p in task.cases]},
    )  # fmt: skip
    return Records.open(
        output, program_record(task.program), run, resume=options.resume, other_machine=options.other_machine,
        tuning=True,
    )  # fmt: skip


def minimise(
    records: Records | None,
    measured: Measurements,
    objective: Objective,
    again: Collection[tuple[str, Case]] | None,
) -> tuple[Measurements, list[str]]:
    """Prepare the file for the metrics of an objective; returns the measurements without earlier cells that lack them,
    and notes.

    `again`: the ops and cases that this run measures to learn from them; None if it only evaluates, which leaves the
    file its objective. Raises UsageError if the file was tuned for another objective and cells of others lack the
    metrics: its choosers would be replaced by those of fewer inputs.
    """
    names = observed(objective)
    notes: list[str] = []
    if objective is OCCUPANCY and measured.samples and records is not None:
        message = f"{records.path} has measurements, and objective {objective.text} is computed without"
        raise UsageError(message, "write another file with -o")
    lacking = {key for key, c in measured.samples.items() if c.times and not {*names} <= c.metrics.keys()}
    left = {key: sample for key, sample in measured.samples.items() if key not in lacking}
    measured = replace(measured, samples=left)
    if records is None:
        return measured, notes
    if again is not None:
        notes = _changed(records, objective, {(op, case) for op, case, _ in lacking}, again)
        records.set_fact("objective", objective.text)
    for name in names:
        records.metric(name, units().get(name, ""))
    return measured, notes


def _changed(
    records: Records, objective: Objective, lacking: set[tuple[str, Case]], again: Collection[tuple[str, Case]]
) -> list[str]:
    """A note on the training inputs of a file that lack the metrics of another objective than its own. Raises
    UsageError if some are not measured `again`."""
    before = records.tuned().facts
    lacking = {key for key in lacking if key[1] not in before.tests}
    if not lacking or before.objective == objective.text:
        return []
    lost = {case for op, case in lacking if (op, case) not in again}
    number = counted(len(lost or {case for _, case in lacking}), "input")
    what = f"objective {objective.text}: {number} of {records.path}, measured for {before.objective}, without"
    what = f"{what} {' and '.join(observed(objective))}"
    if lost:
        raise UsageError(
            f"{what}: the choice would be learned anew from the others alone",
            "name these inputs as well, which measures them again; or drop --objective; or write another file with -o",
        )
    return [f"{what}: measured again"]


def chooser_facts(inputs: ChooserInputs, measured: bool) -> dict[str, Any]:
    """The facts under which choosers of kernels are valid."""
    task = inputs.ready.task
    return {
        "arch": task.chosen.arch, "calls": 0, "constraints": task.constraints,
        "gpu": gpu_name(task, inputs.hardware, measured), "target": task.chosen.target.value,
        **{f"counts {op}": samples for op, samples in inputs.counted.samples.items()},
    }  # fmt: skip


def kernel_chooser_record(chooser: Any, inputs: ChooserInputs) -> dict[str, Any]:
    """The record of a chooser: everything needed to rebuild it from the program's text."""
    uses, fits = inputs.resources_of(chooser.op), inputs.counted.fits.get(chooser.op, {})
    compiled = inputs.compiled(chooser.op) if inputs.objective is OCCUPANCY else {}
    each = [compiled.get(s, uses) for s in chooser.choices] if compiled else []
    return {
        "method": inputs.asked[chooser.op].method, "hardware": inputs.hardware.table(), "registers": uses.registers,
        "shared": uses.shared, "instructions": uses.instructions.to_json() if uses.instructions else None,
        "fits": {name: fitted.to_json() for name, fitted in fits.items()},
        "each": [[of.registers, of.shared] for of in each],
        "points": [list(one) for one in inputs.counted.ranges.get(chooser.op, ())],
        "settings": [s.own for s in chooser.choices], "data": list(chooser.data),
        "anchors": [{"data": [as_json(v) for v in a.data], "chosen": a.chosen} for a in chooser.anchors],
        "selector": chooser.selector.to_json() if chooser.selector is not None else None,
    }  # fmt: skip

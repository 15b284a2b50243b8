"""The recipe of `dagc tune`: rank by the model, measure the best, make the choosers, store everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM
from dagc.lab.plans import program_select
from dagc.stages.options import METHODS, Progress, SiteOptions, TuneOptions
from dagc.stages.program import ProgramText, read
from dagc.study.cases import has_inputs, single_values
from dagc.study.choosers import asked_of
from dagc.study.gpu import can_run
from dagc.study.judge import Evaluation
from dagc.study.results import Tuning
from dagc.study.sizes import tune_task
from dagc.study.task import TuningTask, tuning_task


def tune(
    path: str | Path,
    output: str | Path | None,
    options: TuneOptions,
    progress: Progress | None = None,
) -> Tuning:
    """Tune a program's launch configurations and write choosers (and cells) to `output`.

    Runs the program's Python code (set-up), and its kernels if something is measured. `progress` is called with the
    number of cells done, their total (0: not known yet), and what is measured now. Raises UsageError for an
    unknown method, and like `tuning_task`.
    """
    from dagc.store.records import is_fresh  # loads msgspec, sqlite3

    options = options.begun()
    text = read(path, options.defines)
    if _wants_programs(text, options):
        from dagc.study.programs import tune_program  # only of whole programs

        return tune_program(text, output, options, progress)
    if options.method and options.method not in METHODS:
        raise UsageError(f"unknown method {options.method}", f"one of: {', '.join(METHODS)}")
    # Checked before anything is compiled or measured.
    fresh = output is None or is_fresh(Path(output), options.resume)
    task = tuning_task(
        text, options, earlier=() if fresh or output is None else _sizes_in(output),
        cases=None if options.warm_start is None else _cases_of(options.warm_start, text, options),
    )  # fmt: skip
    if options.variants:
        task = _with_variants(task)
    if _wants_inputs(task, options):
        from dagc.study.variants import tune_inputs  # only over inputs

        return tune_inputs(task, output, options, progress)
    if not fresh and options.objective is None and output is not None:
        options = replace(options, objective=_objective_in(output))
    return tune_task(task, output, options, progress)


def evaluate(path: str | Path, tuned: str | Path, options: TuneOptions, progress: Progress | None = None) -> Evaluation:
    """Evaluate a tuned file at inputs that it was not trained on. Runs the program's Python code, and its kernels.

    Raises UsageError if the file has no chooser of this program.
    """
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3
    from dagc.study.evaluate import evaluate_tuned  # loads msgspec

    options = options.begun()
    text, learned = read(path, options.defines), load_tuned(tuned)
    return evaluate_tuned(text, learned, options, progress)


def _wants_programs(text: ProgramText, options: SiteOptions) -> bool:
    """Whether `dagc tune` tunes the program itself: it has a `select` at program level, and no kernel is named."""
    if options.kernels:
        return False
    return program_select(text.with_defines(single_values(text.defines)).program()) is not None


def _with_variants(task: TuningTask) -> TuningTask:
    """The task with only the ops whose variant is open. Raises UsageError if there is none."""
    kept = tuple(site for site in task.sites if site.variants)
    if not kept:
        raise UsageError(
            f"{task.program.name}: no variant is open",
            "write `select variant with tree(...)` in a kernel of variants",
        )
    return replace(task, sites=kept)


def _wants_inputs(task: TuningTask, options: TuneOptions) -> bool:
    """Whether a task is tuned input by input: for learned selectors over inputs, or for options that need it."""
    if options.variants or options.incremental or options.select_features:
        return True
    methods_asked = {a.method for a in asked_of(task, options.method, can_run(task)).values()}
    inputs = bool(options.inputs) or has_inputs(task.program, task.text.defines) or options.samples is not None
    return inputs and methods_asked <= {*LEARNED, EXHAUSTIVE}


def _cases_of(path: str, text: ProgramText, options: TuneOptions) -> tuple[Case, ...]:
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3
    from dagc.study.move import cases_of_file  # only with --warm-start

    return cases_of_file(load_tuned(path), text.program(), options)


def _sizes_in(path: str | Path) -> list[Case]:
    """The sizes at which kernels were timed in a tuned file."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    return [cell.case for cell, sample in load_tuned(path).samples if cell.site != PROGRAM and sample.times]


def _objective_in(path: str | Path) -> str:
    """The objective of a tuned file."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    return load_tuned(path).facts.objective

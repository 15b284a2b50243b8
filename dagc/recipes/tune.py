"""`dagc tune`: text -> task (cases, sites, domain) -> engine -> training -> choosers -> file."""

from __future__ import annotations

from pathlib import Path

from dagc.stages.options import Progress, TuneOptions
from dagc.stages.program import read
from dagc.study.judge import Evaluation
from dagc.study.results import Tuning
from dagc.study.tuning import task_asked, tune_task


def tune(
    path: str | Path,
    output: str | Path | None,
    options: TuneOptions,
    progress: Progress | None = None,
) -> Tuning:
    """Tune what is open in a program, and write choosers and samples to `output`.

    Runs the program's Python code (set-up), and its kernels if something is measured. `progress` is called with the
    number of cells done, their total (0: not known yet), and what is measured now. Raises UsageError for an
    unknown method, and like `tuning_task`.
    """
    options = options.begun()
    text = read(path, options.defines)
    task = task_asked(text, output, options)
    return tune_task(task, output, options, progress)


def evaluate(path: str | Path, tuned: str | Path, options: TuneOptions, progress: Progress | None = None) -> Evaluation:
    """Evaluate a tuned file at inputs that it was not trained on. Runs the program's Python code, and its kernels.

    Raises UsageError if the file has no chooser of this program.
    """
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3
    from dagc.study.evaluate import evaluate_tuned  # loads msgspec

    options = options.begun()
    text, learned = read(path, options.defines), load_tuned(tuned)
    return evaluate_tuned(text, learned, options.continuing(learned.forms), progress)

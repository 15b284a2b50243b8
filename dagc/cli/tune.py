"""`dagc tune`: launch configurations, variants, devices and plans."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from dagc.base.option import Option, named, options_of
from dagc.cli.arguments import DEFINES, FILE, QUIET, defines_of, output
from dagc.cli.parser import Command, options_from
from dagc.stages import options as parts

if TYPE_CHECKING:
    from dagc.base.objective import Objective
    from dagc.study.results import Evaluation, Tuning


MANY_TIMES = 10  # a regret from which on the ratio is printed


def _run(args: argparse.Namespace) -> int:
    """Exit code 0. Failures of single settings are reported, and do not fail the command."""
    from dagc.recipes import tune as tune_recipe
    from dagc.study import tuned as tuned_recipe

    if args.show:
        print(
            tuned_recipe.show(
                args.file, args.show, args.format, args.gpu or "h200", defines_of(args), args.output, args.method
            ),
            end="",
        )
        return 0
    _alone()
    options = options_from(args, parts.TuneOptions, defines=defines_of(args))
    from pathlib import Path

    from dagc.report.display import Display

    output = args.output or f"dagc-out/{Path(args.file).stem}-tuned.db"
    if args.evaluate:
        with Display(quiet=args.quiet).phase(f"evaluating {Path(args.file).stem}", unit="setting") as phase:
            judged = tune_recipe.evaluate(args.file, output, options, phase.at)
        print(evaluation_text(judged), end="")
        return 0
    with Display(quiet=args.quiet).phase(f"tuning {Path(args.file).stem}", unit="setting") as phase:
        done = tune_recipe.tune(args.file, output, options, phase.at)
    print(table(done), end="")
    return 0


def _alone() -> None:
    """Raises UsageError if the command is one of several ranks, which would all write one file."""
    from dagc.base.errors import UsageError
    from dagc.build.ranks import joined, refuse

    place = joined()
    if place is not None and place[1] > 1:
        refuse(
            UsageError(f"`dagc tune` measures on one rank, but runs as one of {place[1]}", "start it without mpiexec")
        )


def table(done: Tuning) -> str:
    """A line per kernel and size. For a learned method, the figure is the regret at held-out sizes: it was trained on
    the answers at the others."""
    from dagc.base.errors import counted
    from dagc.choice.types import settings_text

    learned = any(line.trained for line in done.lines)
    unit = "us" if done.objective.is_time else done.objective.text
    titles = ["kernel", "size", "default", "chosen", "best known", f"default {unit}", f"chosen {unit}"]
    titles += ["regret, in training", "left out"] if learned else ["regret"]
    searched = any(not math.isnan(line.sure) for line in done.lines)
    titles += ["sure"] if searched else []
    head = (*titles, "limited by")
    rows = [head]
    for line in done.lines:
        best = settings_text(line.best) if line.best is not None else "-"
        regret = line.chosen_value / line.best_value - 1 if line.best_value > 0 else math.nan
        rows.append(
            (
                line.op, line.case.text or "as given", settings_text(line.default), settings_text(line.chosen), best,
                *(_value(v, done.objective) for v in (line.default_value, line.chosen_value)), _share(regret),
                *([_share(line.left_out)] if learned else []),
                *(["-" if math.isnan(line.sure) else f"{line.sure:.0%}"] if searched else []), line.why,
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    text = [f"{done.grade}; method {done.method}, {counted(done.cells, 'setting')} measured{_in(done)}"]
    text += ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    text += [f"failed: {failure}" for failure in done.failures]
    text += [f"note: {note}" for note in done.notes]
    if done.output is not None:
        use = f"use it: dagc compile FILE --launch {done.output}"
        text.append(f"wrote {done.output}; {use if done.lines else 'it chooses nothing yet: use --resume'}")
    return "\n".join(text) + "\n"


def evaluation_text(done: Evaluation) -> str:
    """A table for each op: percent of exhaustive and the figures to compare with."""
    from dagc.base.errors import counted

    learned = f", trained on {counted(done.trained, 'other')}" if done.trained else ""
    text = [f"{done.grade}; {counted(done.inputs, 'test input')}{learned}, in {done.seconds:.1f} s"]
    for one in done.ops:
        text += [f"{one.op}:", *(f"  {line}" for line in one.lines)]
    text += [f"failed: {failure}" for failure in done.failures]
    text += [f"note: {note}" for note in done.notes]
    return "\n".join(text) + "\n"


def _in(done: Tuning) -> str:
    """How long that took, and the part that is not start-up and loading."""
    if done.seconds < 0.05:
        return ""
    return f" in {done.seconds:.1f} s" + (f" ({done.busy:.2f} s of it checks and timings)" if done.busy else "")


def _share(value: float) -> str:
    """`4.2%`; of what takes many times the best how many: `38 times`."""
    if math.isnan(value):
        return "-"
    return f"{value:.1%}" if value < MANY_TIMES else f"{1 + value:.3g} times"


def _value(value: float, objective: Objective) -> str:
    if math.isnan(value):
        return "-"
    from dagc.report import si

    return si.significant(value * 1e6, 4) if objective.is_time else objective.scaled(value)


COMMANDS = {
    "tune": Command(
        _run,
        *FILE,
        output("PATH", "tuned file (default: dagc-out/PROGRAM-tuned.db)"),
        *options_of(parts.SiteOptions, parts.CaseOptions, parts.LabelOptions, parts.LearningOptions),
        Option("--evaluate", "evaluate the tuned file -o at --inputs or --samples that it was not trained on"),
        *options_of(parts.EvaluationOptions, parts.LimitOptions),
        *named(parts.CellOptions, "cell", "watchdog", "flush"),
        *options_of(parts.TunedFileOptions),
        *named(parts.MachineOptions, "gpu", "target", "arch"),
        DEFINES,
        *named(parts.MachineOptions, "ranks", "seed"),
        QUIET,
        Option(
            "--show K",
            "only print the rational program of this op or kernel, or of `occupancy`",
            leaves="-I -o --method --gpu -D --quiet --format",
        ),
        Option("--format {text,latex,c,dot,svg}", "format of --show", default="text", only="--show"),
    ),
}

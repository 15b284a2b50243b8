"""`dagc tune`: launch configurations, variants, devices and plans."""

from __future__ import annotations

import argparse

from dagc.base.option import Option, named, options_of
from dagc.cli.parser import DEFINES, FILE, QUIET, Command, defines_of, options_from, output
from dagc.stages import options as parts


def _run(args: argparse.Namespace) -> int:
    """Exit code 0. Failures of single settings are reported, and do not fail the command."""
    from pathlib import Path

    from dagc.recipes.tune import evaluate, tune
    from dagc.report.display import Display
    from dagc.study.shown import show

    defines = defines_of(args)
    if args.show:
        print(show(args.file, args.show, args.format, args.gpu, defines, args.output, args.method), end="")
        return 0
    _alone()
    options = options_from(args, parts.TuneOptions, defines=defines)
    output = args.output or f"dagc-out/{Path(args.file).stem}-tuned.db"
    what, recipe = ("evaluating", evaluate) if args.evaluate else ("tuning", tune)
    with Display(quiet=args.quiet).phase(f"{what} {Path(args.file).stem}", unit="setting") as phase:
        done = recipe(args.file, output, options, phase.at)
    print(done.render(), end="")
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


COMMANDS = {
    "tune": Command(
        _run,
        *FILE,
        output("PATH", "tuned file (default: dagc-out/PROGRAM-tuned.db)"),
        *options_of(
            parts.SiteOptions, parts.CaseOptions, parts.CountingOptions, parts.LabelOptions, parts.LearningOptions
        ),
        Option("--evaluate", "evaluate the tuned file -o at --inputs or --samples that it was not trained on"),
        *options_of(parts.EvaluationOptions, parts.LimitOptions),
        *named(parts.CellOptions, "cell", "cut", "watchdog", "flush"),
        *options_of(parts.TunedFileOptions),
        *named(parts.MachineOptions, "gpu", "target", "arch"),
        DEFINES,
        *named(parts.MachineOptions, "ranks", "seed"),
        QUIET,
        Option(
            "--show K",
            "only print the rational program of this op or kernel, or of `occupancy`; with -o TUNED what was learned,"
            " also of `program`",
            leaves="-I -o --method --gpu -D --quiet --format",
        ),
        Option("--format {text,latex,c,dot,svg}", "format of --show", default="text", only="--show"),
    ),
}

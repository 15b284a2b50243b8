"""compile, setup and record: commands that run a program, its set-up, or the application that becomes one."""

from __future__ import annotations

import argparse
import sys

from dagc.base.option import Option, named, options_of
from dagc.cli.parser import DEFINES, FILE, INCLUDE, QUIET, STREAMS, TRANSPORT, Command, defines_of, options_from, output
from dagc.stages import options as parts
from dagc.stages.orders import OrderOptions


def _compile(args: argparse.Namespace) -> int:
    from functools import partial

    from dagc.recipes.compile import compile, limits
    from dagc.report.display import Display
    from dagc.report.limits import limit_lines
    from dagc.report.stages import Printer, stages

    options = options_from(args, parts.CompileOptions, defines=defines_of(args, "streams", "transport"))
    printer = Printer(stages(args.print_after), partial(print, end="", flush=True))
    display = Display(quiet=args.quiet)
    done = compile(args.file, args.output, options, display=display, printer=printer)
    if done.result is not None or not args.run:  # of several ranks, the first reports
        for warning in done.warnings:
            print(f"dagc: warning: {warning}", file=sys.stderr)
        print(done.render(), end="", flush=True)
        for line in limit_lines(limits(done, options, display)):
            print(line)
    return 0


def _setup(args: argparse.Namespace) -> int:
    from dagc.base.errors import counted
    from dagc.build.ranks import ranks_or_default
    from dagc.report.display import Display
    from dagc.stages import program as api

    ranks = ranks_or_default(args.ranks)
    api.run_setup(args.file, ranks, args.output, args.seed, defines_of(args), Display(quiet=args.quiet))
    print(f"arrays of {counted(ranks, 'rank')} in {args.output}")
    return 0


def _record(args: argparse.Namespace) -> int:
    from dagc.recipes.record import record
    from dagc.report.display import Display

    options = options_from(args, parts.RecordOptions)
    done = record(args.application, args.output, options, Display(quiet=args.quiet))
    print(done.render(), end="")
    return done.exit_code


COMMANDS = {
    "compile": Command(
        _compile,
        *FILE,
        output("DIR", "output directory (default: dagc-out/PROGRAM)"),
        *(*options_of(parts.TargetOptions), DEFINES),
        *(*named(parts.CompileOptions, "traversal", "forms"), STREAMS, TRANSPORT),
        *options_of(OrderOptions),
        *named(parts.FormOptions, "form", "name", "in_flight", "build"),
        Option(
            "--print-after STAGES",
            "print the program after these stages, with commas: lower, messages, edges, traversal, plan; or all",
            default="",
        ),
        *options_of(parts.RunOptions, parts.PointerOptions),
        *named(parts.FormOptions, "force"),
        *options_of(parts.ChooserOptions),
        QUIET,
    ),
    "record": Command(
        _record,
        Option("COMMAND...", "after `--`: the command that starts the application", name="application"),
        output("FILE", "the program to write, NAME.dag", required=True),
        *options_of(parts.RecordOptions),
        INCLUDE,
        QUIET,
    ),
    "setup": Command(
        _setup,
        *(*FILE, DEFINES),
        *named(parts.RunOptions, "ranks"),
        output("DIR", "output directory; `bench --data DIR` reads it", required=True),
        *named(parts.RunOptions, "seed"),
        QUIET,
    ),
}

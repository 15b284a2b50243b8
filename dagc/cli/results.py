"""Commands on results files: explore, best, rules, explain, report, export, merge, convert."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from dagc.base.option import Option, named, natural, options_of, positive
from dagc.cli.parser import DEFINES, FILE, INCLUDE, QUIET, STREAMS, Command, OneOf, defines_of, options_from, output
from dagc.stages import options as parts
from dagc.stages.orders import OrderOptions


def _phase(args: argparse.Namespace, what: str) -> AbstractContextManager[object]:
    """Progress on standard error for work longer than a second."""
    from dagc.report.display import Display

    return Display(quiet=args.quiet).phase(what)


def _explore(args: argparse.Namespace) -> int:
    from dagc.build.ranks import ranks_or_default
    from dagc.recipes import explore as api

    options = options_from(args, parts.ExploreOptions, ranks=ranks_or_default(args.ranks, args.groups))
    done = api.explore(args.file, args.output, options, defines_of(args, "streams"))
    if done is not None:  # of several ranks, the first reports
        print(done.render(), end="")
        return done.exit_code
    return 0


def _best(args: argparse.Namespace) -> int:
    from dagc.recipes import best as api

    with _phase(args, f"{args.results}: reading" if args.plan else f"{args.results}: reading, compiling the best"):
        options = options_from(args, parts.CompileOptions)
        text = api.best(
            args.results, args.output, options, rank=args.rank, only_print=args.plan, objective=args.objective
        )
    print(text, end="")
    return 0


def _rules(args: argparse.Namespace) -> int:
    from dagc.recipes import rules as api

    first, *more = args.results
    if args.apply is not None:
        options = options_from(args, parts.CompileOptions, defines=defines_of(args))
        with _phase(args, f"{first}: following the rules, compiling"):
            text = api.apply(args.apply, args.results, args.output, options)
    elif more:
        from dagc.base.errors import counted

        with _phase(args, f"{counted(len(args.results), 'results file')}: reading, learning rules across them"):
            text = api.rules_across(args.results, args.format, objective=args.objective)
    else:
        with _phase(args, f"{first}: reading, learning rules"):
            text = api.rules(
                first, args.against, args.format, everything=args.all, sets=args.sets,
                all_classes=args.classes == "all", full_tree=args.tree == "full", estimate=args.estimate,
                objective=args.objective,
            )  # fmt: skip
    print(text, end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from dagc.recipes import explain as api

    with nullcontext() if args.format == "text" else _others_to_stderr():
        text, code = api.explain(args.results, options_from(args, parts.ExplainOptions), args.format)
    print(text, end="")
    return code


@contextmanager
def _others_to_stderr() -> Iterator[None]:
    """Within the block, what a set-up or a library prints to standard output goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _report(args: argparse.Namespace) -> int:
    from dagc.recipes import report as api

    with _phase(args, f"{args.results}: reading, learning rules, drawing"):
        api.report(args.results, args.output, args.objective, args.original)
    print(f"wrote {args.output}")
    return 0


def _export(args: argparse.Namespace) -> int:
    from dagc.recipes import files as api

    with _phase(args, f"{args.results}: reading, writing its measurements"):
        api.export(args.results, "parquet" if args.parquet else "csv", args.output, args.objective)
    return 0


def _merge(args: argparse.Namespace) -> int:
    from dagc.recipes import files as api

    with _phase(args, f"{args.output}: merging"):
        text = api.merge(args.results, args.output, args.other_machine)
    print(text, end="")
    return 0


def _convert(args: argparse.Namespace) -> int:
    from dagc.recipes import files as api

    with _phase(args, f"{args.old}: converting"):
        text = api.convert(args.old, args.new)
    print(text, end="")
    return 0


_RESULTS = Option("RESULTS", "a results file of `dagc explore`")
_OBJECTIVE = parts.objective_option("that of the search")
_FORMAT = Option("--format {text,md,json}", default="text")
_MANY = "several results files"  # options of `rules` that have no effect with them
# Of the program that `rules --apply` compiles.
_APPLIED = tuple(
    replace(option, only="--apply")
    for option in (
        output("DIR", "with --apply: output directory (default: dagc-out/PROGRAM)"),
        *(*options_of(parts.TargetOptions), DEFINES, *named(parts.FormOptions, "build", "force")),
    )
)

COMMANDS = {
    "explore": Command(
        _explore,
        *FILE,
        output("PATH", "results file (default: dagc-out/PROGRAM.db)"),
        *named(parts.RunOptions, "ranks"),
        *options_of(parts.StrategyOptions, parts.OpenOptions),
        *(STREAMS, DEFINES),
        *options_of(OrderOptions, parts.MeasuringOptions, parts.EarlierOptions, parts.TargetOptions),
        *named(
            parts.ExploreOptions, "groups", "jobs", "job_script", "most", "most_configurations", "watchdog", "trace"
        ),
        *options_of(parts.PointerOptions),
        QUIET,
    ),
    "best": Command(
        _best,
        *(_RESULTS, _OBJECTIVE),
        output("DIR", "output directory (default: dagc-out/PROGRAM-best)"),
        Option("--rank K", "use the implementation at this rank; 0 is the best", natural, default=0),
        *named(parts.FormOptions, "form", "name", "in_flight", "build"),
        Option("--plan", "print the traversal and its choices, write nothing", leaves="--objective --rank --quiet"),
        Option("--target {cuda,host}", "(default: that of the results file)"),
        *named(parts.FormOptions, "force"),
        QUIET,
    ),
    "rules": Command(
        _rules,
        Option(
            "RESULTS...",
            "a results file of `dagc explore`; of several, rules across their inputs: FILE or NAME=FILE each; with"
            " --apply the .dag file",
        ),
        _OBJECTIVE,
        Option(
            "--against FULL",
            "full exploration to compare with: mark consistent rules, print the accuracy",
            without=_MANY,
        ),
        _FORMAT,
        Option("--all", "also the performance classes, the decision tree and its rule sets", without=_MANY),
        Option("--sets N", "with --all: rule sets shown for each class", positive, default=3, without=_MANY),
        Option(
            "--classes {distinct,all}",
            "distinct: no class boundaries below the noise floor; all: as in the paper",
            default="distinct",
            without=_MANY,
        ),
        Option(
            "--tree {pruned,full}",
            "pruned by cross-validation, or full as in the paper (default: pruned; full with --classes all)",
            default="pruned",
            without=_MANY,
        ),
        Option("--estimate", "also learn from estimated times of unmeasured implementations", without=_MANY),
        Option(
            "--apply RULES",
            "compile a first implementation of a program by the rules in this file (of `--format json`), unmeasured",
            leaves=" ".join((*(option.flag for option in _APPLIED), QUIET.flag)),
        ),
        *_APPLIED,
        QUIET,
    ),
    "explain": Command(
        _explain,
        *(_RESULTS, _OBJECTIVE, INCLUDE),
        *named(
            parts.ExplainOptions,
            "replay",
            "rank",
            "original",
            "variants",
            "pairs",
            "seconds",
            "data",
            "seed",
            "everything",
        ),
        _FORMAT,
        *named(parts.ExplainOptions, "watchdog", "other_machine", "mpi_takes_device_pointers"),
        QUIET,
    ),
    "report": Command(
        _report,
        *(_RESULTS, _OBJECTIVE, output("PATH", "output file, for example report.html", required=True)),
        Option("--original FILE", "also compare the best with the order of this file, as dagc record writes it"),
        QUIET,
    ),
    "export": Command(
        _export,
        *(_RESULTS, _OBJECTIVE),
        OneOf(
            Option("--csv", "comma-separated values"),
            Option("--parquet", "Parquet; needs dagc[parquet] and -o"),
            required=True,
        ),
        output("PATH", "(default: standard output)"),
        QUIET,
    ),
    "merge": Command(
        _merge,
        Option("RESULTS...", "results files"),
        output("PATH", "output file; must not exist", required=True),
        Option("--other-machine", "accept files of different machines"),
        QUIET,
    ),
    "convert": Command(
        _convert,
        Option("OLD", "a results file, or a tuned file, of dagc 0.2"),
        Option("NEW", "output file; must not exist"),
        QUIET,
    ),
}

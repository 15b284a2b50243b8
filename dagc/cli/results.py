"""Commands on results files: explore, best, rules, explain, report, export, merge."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dagc.base.errors import counted
from dagc.base.option import Option, natural, options_of, positive
from dagc.cli.arguments import DEFINES, FILE, INCLUDE, QUIET, STREAMS, defines_of, output, switch
from dagc.cli.parser import Command, OneOf, options_from
from dagc.stages.options import (
    EarlierOptions,
    ExplainOptions,
    ExploreOptions,
    FormOptions,
    MeasuringOptions,
    OpenOptions,
    OutputOptions,
    PointerOptions,
    RankOptions,
    SpaceOptions,
    StrategyOptions,
    TargetOptions,
    WatchdogOptions,
    objective_option,
)
from dagc.stages.orders import OrderOptions


def _phase(args: argparse.Namespace, what: str) -> AbstractContextManager[object]:
    """Progress on standard error for work longer than a second."""
    from dagc.report.display import Display

    return Display(quiet=args.quiet).phase(what)


def _explore(args: argparse.Namespace) -> int:
    from dagc.build.ranks import ranks_or_default
    from dagc.recipes import explore as api

    options = options_from(args, ExploreOptions, ranks=ranks_or_default(args.ranks))
    done = api.explore(args.file, args.output, options, defines_of(args, "streams"))
    if done is not None:  # of several ranks, the first reports
        print(done.render(), end="")
        return done.exit_code
    return 0


def _best(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading" if args.plan else f"{args.results}: reading, compiling the best"):
        text = api.best(
            args.results, args.output, rank=args.rank, build=args.build, only_print=args.plan,
            target=args.target, force=args.force, objective=args.objective, form=args.form, name=args.name,
        )  # fmt: skip
    print(text, end="")
    return 0


def _rules(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    first, *more = args.results
    if more:
        with _phase(args, f"{counted(len(args.results), 'results file')}: reading, learning rules across them"):
            text = api.rules_across(args.results, args.format, objective=args.objective)
    else:
        with _phase(args, f"{first}: reading, learning rules"):
            text = api.rules(
                first, args.against, args.format, sets=args.sets, all_classes=args.classes == "all",
                full_tree=args.tree == "full", estimate=args.estimate, objective=args.objective,
            )  # fmt: skip
    print(text, end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from dagc.recipes import explain as api

    with nullcontext() if args.format == "text" else _others_to_stderr():
        text, code = api.explain(args.results, options_from(args, ExplainOptions), args.format)
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
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading, learning rules, drawing"):
        api.report(args.results, args.output, args.objective)
    print(f"wrote {args.output}")
    return 0


def _export(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading, writing its measurements"):
        api.export(args.results, "parquet" if args.parquet else "csv", args.output, args.objective)
    return 0


def _merge(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.output}: merging"):
        text = api.merge(args.results, args.output, args.other_machine)
    print(text, end="")
    return 0


_RESULTS = Option("RESULTS", "a results file of `dagc explore`", name="results")
_OBJECTIVE = objective_option("that of the search")
_FORMAT = Option("--format {text,md,json}", name="format", default="text")
_OF_ONE = "several results files"  # without these: options of `rules`

COMMANDS = {
    "explore": Command(
        _explore,
        (
            *FILE,
            output("PATH", "results file (default: dagc-out/PROGRAM.db)"),
            *options_of(RankOptions),
            *options_of(StrategyOptions),
            *options_of(OpenOptions),
            STREAMS,
            DEFINES,
            *options_of(OrderOptions),
            *options_of(MeasuringOptions),
            *options_of(EarlierOptions),
            *options_of(TargetOptions),
            *options_of(SpaceOptions),
            *options_of(WatchdogOptions),
            *options_of(ExploreOptions, "trace"),
            *options_of(PointerOptions),
            QUIET,
        ),
    ),
    "best": Command(
        _best,
        (
            _RESULTS,
            _OBJECTIVE,
            output("DIR", "output directory (default: dagc-out/PROGRAM-best)"),
            Option("--rank K", "use the implementation at this rank; 0 is the best", natural, name="rank", default=0),
            *options_of(FormOptions),
            Option(
                "--plan",
                "print the traversal and its choices, write nothing",
                name="plan",
                default=False,
                leaves="--objective --rank --quiet",
            ),
            Option("--target {cuda,host}", "(default: that of the results file)", name="target"),
            *options_of(OutputOptions),
            QUIET,
        ),
    ),
    "rules": Command(
        _rules,
        (
            Option(
                "RESULTS...",
                "a results file of `dagc explore`; of several, rules across their inputs: FILE or NAME=FILE each",
                name="results",
            ),
            _OBJECTIVE,
            Option(
                "--against FULL",
                "full exploration to compare with: mark consistent rules, print the accuracy",
                name="against",
                without=_OF_ONE,
            ),
            _FORMAT,
            Option("--sets N", "rule sets shown for each class", positive, name="sets", default=3, without=_OF_ONE),
            Option(
                "--classes {distinct,all}",
                "distinct: no class boundaries below the noise floor; all: as in the paper",
                name="classes",
                default="distinct",
                without=_OF_ONE,
            ),
            Option(
                "--tree {pruned,full}",
                "pruned by cross-validation, or full as in the paper (default: pruned; full with --classes all)",
                name="tree",
                default="pruned",
                without=_OF_ONE,
            ),
            Option(
                "--estimate",
                "also learn from estimated times of unmeasured implementations",
                name="estimate",
                default=False,
                without=_OF_ONE,
            ),
            QUIET,
        ),
    ),
    "explain": Command(
        _explain,
        (
            _RESULTS,
            _OBJECTIVE,
            INCLUDE,
            *options_of(ExplainOptions, "replay", "variants", "pairs", "seconds", "data", "seed"),
            _FORMAT,
            *options_of(WatchdogOptions),
            *options_of(ExplainOptions, "other_machine"),
            *options_of(PointerOptions),
            QUIET,
        ),
    ),
    "report": Command(
        _report,
        (_RESULTS, _OBJECTIVE, output("PATH", "output file, for example report.html", required=True), QUIET),
    ),
    "export": Command(
        _export,
        (
            _RESULTS,
            _OBJECTIVE,
            OneOf(
                (
                    switch("--csv", "comma-separated values"),
                    switch("--parquet", "Parquet; needs dagc[parquet] and -o"),
                ),
                required=True,
            ),
            output("PATH", "(default: standard output)"),
            QUIET,
        ),
    ),
    "merge": Command(
        _merge,
        (
            Option("RESULTS...", "results files", name="results"),
            output("PATH", "output file; must not exist", required=True),
            switch("--other-machine", "accept files of different machines"),
            QUIET,
        ),
    ),
}

"""Commands on results files: explore, best, rules, explain, report, export, merge."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from dagc.cli.arguments import (
    TRANSPORTS,
    defines,
    defines_of,
    device_pointers,
    duration,
    file,
    form,
    include,
    natural,
    objective,
    options_of,
    positive,
    prune,
    quiet,
    ranks,
    seconds,
    share,
    unroll,
    watchdog,
)


class Add(Protocol):
    """Adds a command to the parser."""

    def __call__(self, name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser: ...


def add_commands(add: Add) -> None:
    """Add the commands of this module."""
    _add_explore(add("explore", _explore, "search the implementations for the fastest on this machine"))
    _add_best(add("best", _best, "compile the fastest implementation of a results file"))
    _add_rules(add("rules", _rules, "derive design rules that explain what makes implementations fast"))
    _add_explain(add("explain", _explain, "measure the cost of breaking each rule of the fastest class"))
    _add_report(add("report", _report, "write a results file as one HTML page"))
    _add_export(add("export", _export, "write the measurements of a results file as CSV or Parquet"))
    _add_merge(add("merge", _merge, "merge results files of one program and machine"))


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULTS", help="a results file of `dagc explore`")


def _phase(args: argparse.Namespace, what: str) -> AbstractContextManager[object]:
    """Progress on standard error for work longer than a second."""
    from dagc.report.display import Display

    return Display(quiet=args.quiet).phase(what)


# ---- explore --------------------------------------------------------------------------------


def _add_explore(parser: argparse.ArgumentParser) -> None:
    file(parser)
    add = parser.add_argument
    add("-o", dest="output", metavar="PATH", help="results file (default: dagc-out/PROGRAM.db)")
    ranks(parser)
    objective(parser, "that of the resumed or replayed results file, else time")
    add(
        "--strategy", type=_strategy, metavar="NAME",
        help="exhaustive, random, mcts, mcts-min or model (default: model up to 512 ops, else mcts-min);"
        " --strategy help lists them",
    )  # fmt: skip
    help = "number of measurements in the search (default: until 1%%; random, mcts: 200; exhaustive: all)"
    add("--budget", type=positive, metavar="N", help=help)
    add("--time", type=duration, metavar="T", help="time limit of the command, such as 90s, 10m, 1.5h (default: none)")
    help = "stop when no improvement by more than this fraction is expected (default: 1%% without the above)"
    add("--until", type=share, metavar="SHARE", help=help)
    help = f"{TRANSPORTS} (default: all that the program allows and this machine supports)"
    add("--transport", dest="transports", default="all", metavar="all|NAME[,NAME]", help=help)
    add("--capture", choices=("off", "on", "both"), help="CUDA graphs (default: both with GPUs, off on the host)")
    help = "also search this decision: per_axis, yl.block=64,128, all; may be repeated (default: variants, staging)"
    add("--open", dest="opened", action="append", default=[], metavar="NAME[=V1,V2]", help=help)
    add(
        "--launch", metavar="search|auto|fixed|TUNED",
        help="launch settings: searched with the orders, tuned first, the program's defaults, or those of a file of"
        " `dagc tune` (default: search; --resume: as in the results file)",
    )  # fmt: skip
    help = "search orders, streams, transports and capture only; the rest stays at its default or -D"
    add("--only", choices=("orders",), help=help)
    add("--streams", type=positive, metavar="N", help="streams to use (default: the program's, else 2)")
    defines(parser)
    unroll(parser)
    prune(parser)
    _add_measuring(parser)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    """How `explore` measures, and where."""
    add = parser.add_argument
    add("--passes", type=positive, default=1, metavar="N", help="measurements of each implementation (default: 1)")
    add("--confirm", type=natural, default=10, metavar="K", help="re-measure the best K at the end (default: 10)")
    add("--repeats", type=positive, default=5, metavar="R", help="each of them R times (default: 5)")
    add("--seconds", type=seconds, default=0.01, metavar="S", help="length of one measurement (default: 0.01)")
    add("--seed", type=natural, default=0, metavar="N", help="seed of the set-up and of the search (default: 0)")
    add("--resume", action="store_true", help="continue an existing results file")
    add("--other-machine", action="store_true", help="continue even if the file is from another machine")
    help = "start from the best implementations and the costs in this file (of another size, matrix or machine)"
    add("--warm-start", metavar="RESULTS", help=help)
    add("--replay", metavar="RESULTS", help="take times from this results file instead of measuring")
    add("--data", metavar="DIR", help="arrays written by `dagc setup` (default: generated)")
    add("--target", choices=("cuda", "host"), help="(default: cuda if a GPU and nvcc are found, else host)")
    add("--arch", metavar="NAME", help="GPU architecture for nvcc (default: that of the GPU, else sm_90)")
    help = "largest space for an exhaustive search (default: 100000)"
    add("--max", dest="most", type=positive, default=100_000, metavar="N", help=help)
    help = "maximal number of configurations to compile (default: 64)"
    add("--max-configurations", dest="most_configurations", type=positive, default=64, metavar="N", help=help)
    watchdog(parser)
    add("--no-trace", dest="trace", action="store_false", help="do not trace the best and the slowest at the end")
    device_pointers(parser)
    quiet(parser)


def _strategy(text: str) -> str:
    """The name. `help` lists all, even without a FILE, and exits, as --help does."""
    if text != "help":
        return text
    from dagc.recipes import explore as api

    for name, summary in api.strategies():
        print(f"{name:12} {summary}")
    raise SystemExit(0)


def _explore(args: argparse.Namespace) -> int:
    from dagc.build.ranks import ranks_or_default
    from dagc.recipes import explore as api
    from dagc.stages.options import ExploreOptions

    ranks, transport = ranks_or_default(args.ranks), args.transports
    options = options_of(args, ExploreOptions, ranks=ranks, transport=transport)
    done = api.explore(args.file, args.output, options, defines_of(args))
    if done is not None:  # of several ranks, the first reports
        print(done.render(), end="")
        return done.exit_code
    return 0


# ---- reading results ------------------------------------------------------------------------


def _add_best(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    objective(parser)
    add = parser.add_argument
    add("-o", dest="output", metavar="DIR", help="output directory (default: dagc-out/PROGRAM-best)")
    add(
        "--rank",
        type=natural,
        default=0,
        metavar="K",
        help="use the implementation at this rank; 0 is the best (default: 0)",
    )
    form(parser)
    add("--no-build", action="store_true", help="write only sources")
    add("--plan", action="store_true", help="print the traversal and its choices, write nothing")
    add("--target", choices=("cuda", "host"), help="(default: that of the results file)")
    add("--force", action="store_true", help="write into a directory that dagc did not create")
    quiet(parser)


def _best(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading" if args.plan else f"{args.results}: reading, compiling the best"):
        text = api.best(
            args.results, args.output, rank=args.rank, build=not args.no_build, only_print=args.plan,
            target=args.target, force=args.force, objective=args.objective, form=args.form, name=args.name,
        )  # fmt: skip
    print(text, end="")
    return 0


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", metavar="RESULTS", nargs="+",
        help="a results file of `dagc explore`; of several, rules across their inputs: FILE or NAME=FILE each",
    )  # fmt: skip
    objective(parser)
    add = parser.add_argument
    add("--against", metavar="FULL", help="full exploration to compare with: mark consistent rules, print the accuracy")
    add("--format", choices=("text", "md", "json"), default="text", help="(default: text)")
    add("--sets", type=positive, default=3, metavar="N", help="rule sets shown for each class (default: 3)")
    help = "distinct: no class boundaries below the noise floor; all: as in the paper (default: distinct)"
    add("--classes", choices=("distinct", "all"), default="distinct", help=help)
    add(
        "--tree", choices=("pruned", "full"), default="pruned",
        help="pruned by cross-validation, or full as in the paper (default: pruned; full with"
        " --classes all)",
    )  # fmt: skip
    add("--estimate", action="store_true", help="also learn from estimated times of unmeasured implementations")
    quiet(parser)


def _rules(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    first, *more = args.results
    if more:
        from dagc.base.errors import counted

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


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    objective(parser)
    include(parser)
    add = parser.add_argument
    add("--replay", metavar="RESULTS", help="take times from this results file instead of measuring")
    add("--variants", type=positive, default=3, metavar="N", help="edits tried for each rule (default: 3)")
    add(
        "--pairs",
        type=positive,
        default=30,
        metavar="N",
        help="maximal number of pairs timed for each edit (default: 30)",
    )
    add("--seconds", type=seconds, default=0.01, metavar="S", help="length of one measurement (default: 0.01)")
    add("--data", metavar="DIR", help="arrays written by `dagc setup` (default: generated)")
    add("--seed", type=natural, default=0, metavar="N", help="seed (default: 0)")
    add("--format", choices=("text", "md", "json"), default="text", help="(default: text)")
    watchdog(parser)
    add("--other-machine", action="store_true", help="measure even if the file is from another machine")
    device_pointers(parser)
    quiet(parser)


def _explain(args: argparse.Namespace) -> int:
    from dagc.recipes import explain as api

    with nullcontext() if args.format == "text" else _others_to_stderr():
        text, code = api.explain(args.results, options_of(args, api.ExplainOptions), args.format)
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


def _add_report(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    objective(parser)
    parser.add_argument("-o", dest="output", required=True, metavar="PATH", help="output file, for example report.html")
    quiet(parser)


def _report(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading, learning rules, drawing"):
        api.report(args.results, args.output, args.objective)
    print(f"wrote {args.output}")
    return 0


def _add_export(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    objective(parser)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--csv", action="store_true", help="comma-separated values")
    form.add_argument("--parquet", action="store_true", help="Parquet; needs dagc[parquet] and -o")
    parser.add_argument("-o", dest="output", metavar="PATH", help="(default: standard output)")
    quiet(parser)


def _export(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.results}: reading, writing its measurements"):
        api.export(args.results, "parquet" if args.parquet else "csv", args.output, args.objective)
    return 0


def _add_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="results files")
    parser.add_argument("-o", dest="output", required=True, metavar="PATH", help="output file; must not exist")
    parser.add_argument("--other-machine", action="store_true", help="accept files of different machines")
    quiet(parser)


def _merge(args: argparse.Namespace) -> int:
    from dagc.recipes import results as api

    with _phase(args, f"{args.output}: merging"):
        text = api.merge(args.results, args.output, args.other_machine)
    print(text, end="")
    return 0

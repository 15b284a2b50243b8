"""`dagc tune`: launch configurations."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from dagc.base.resources import names_in
from dagc.cli.arguments import (
    defines,
    defines_of,
    duration,
    file,
    natural,
    objective,
    options_of,
    positive,
    quiet,
    seconds,
    share,
    watchdog,
)

if TYPE_CHECKING:
    from dagc.base.objective import Objective
    from dagc.stages.options import TuneOptions
    from dagc.study.results import Evaluation, Tuning


MANY_TIMES = 10  # a regret from which on the ratio is printed


def add_tune(parser: argparse.ArgumentParser) -> None:
    """The arguments of `dagc tune`."""
    file(parser)
    _add_what(parser)
    _add_inputs(parser)
    _add_sampling(parser)
    _add_learning(parser)
    _add_evaluation(parser)
    _add_measuring(parser)
    _add_machine(parser)
    quiet(parser)
    _add_show(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-o", dest="output", metavar="PATH", help="tuned file (default: dagc-out/PROGRAM-tuned.db)")
    help = "op or kernel (default: all); may be repeated"
    add("--kernel", dest="kernels", action="append", default=[], metavar="K", help=help)
    help = (
        f"volume, rational, exhaustive, {', '.join(names_in('choice/learners'))}; or help"
        " (default: the program's `select`, else volume)"
    )
    add("--method", type=_method, default="", metavar="NAME", help=help)
    help = "tune only what `select` names a variant for, and plans"
    add("--variants", action="store_true", help=help)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help = (
        "sizes such as NI=NJ=512,1000 NK=64; separate several by `;`, or repeat the option (default: the values after"
        " `over`)"
    )
    add("--sizes", action="append", default=[], metavar="SPEC", help=help)
    help = (
        'inputs: globs ("train/*.mtx"), lists (@train.txt), calls ("rmat(scale = 16)"), separated by commas; may be'
        " repeated (default: the files of `over files`)"
    )
    add("--inputs", action="append", default=[], metavar="LIST", help=help)
    help = "draw N inputs from the values after `over` (default: all that are listed there)"
    add("--samples", type=positive, metavar="N", help=help)
    help = "also learn from this tuned file of another machine; --samples of its inputs are measured here"
    add("--warm-start", metavar="TUNED", help=help)
    help = "size or input at which results are compared with the reference (default: the smallest)"
    add("--check-at", default="", metavar="SPEC", help=help)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    """Which inputs are measured, of those that are listed or drawn."""
    add = parser.add_argument
    help = "with --samples: draw inputs where a random forest is unsure which variant is best"
    add("--active", action="store_true", help=help)
    help = "with --active: random inputs before the first batch (default: a fifth of the samples, 20 or more)"
    add("--initial", type=positive, metavar="N", help=help)
    help = "with --active: inputs per batch (default: a twentieth of the samples)"
    add("--batch", type=positive, metavar="N", help=help)
    help = "with --active: difference of the two largest probabilities below which the forest is unsure (default: 0.5)"
    add("--margin", type=share, metavar="U", help=help)
    add("--incremental", action="store_true", help="measure only the most informative inputs")
    add("--iterations", type=positive, metavar="N", help="with --incremental: inputs to measure (default: 25)")
    help = "with --incremental: stop at this accuracy, such as 0.9 or 90%%"
    add("--accuracy", type=share, metavar="A", help=help)
    help = "with --incremental: how the next input is chosen (default: cost)"
    add("--next", choices=("bvsb", "cost", "random"), default="cost", help=help)


def _add_learning(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help = "choose features by cross-validation, cheap ones first"
    add("--select-features", action="store_true", help=help)
    help = "spread the cost of a variant's conversion over N calls (default: not counted)"
    add("--calls", type=positive, default=0, metavar="N", help=help)
    help = "ignore the `require`s of variants that depend on run-time values, except those on hw.memory"
    add("--no-constraints", dest="constraints", action="store_false", help=help)
    objective(parser, "that of a resumed file, else time")


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help = "evaluate the tuned file -o at --inputs or --samples that it was not trained on"
    add("--evaluate", action="store_true", help=help)
    help = "with --evaluate: N-fold cross-validation over the inputs that the file was trained on"
    add("--folds", type=_folds, metavar="N", help=help)
    help = "with --evaluate: hold out this fraction of the inputs, such as 10%%, drawn by --seed; train on the others"
    add("--hold-out", type=share, metavar="S", help=help)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help = (
        "measure N settings at each size in addition to the default, on average; 0: none"
        " (default: 5, no limit with --budget, --time or --until)"
    )
    add("--top", type=natural, metavar="N", help=help)
    add("--budget", type=positive, metavar="N", help="measure at most N settings in total (default: set by --top)")
    help = "stop when no setting is expected to be faster by more than this fraction, such as 1%%"
    add("--until", type=share, metavar="SHARE", help=help)
    add(
        "--time",
        dest="seconds",
        type=duration,
        metavar="T",
        help="time limit of the command, such as 90s, 10m, 1.5h (default: none; launch settings on the CPU: 60s)",
    )
    help = "maximal time for one setting in seconds (default: 0.25)"
    add("--cell", type=seconds, default=0.25, metavar="S", help=help)
    watchdog(parser)
    add("--warm", dest="flush", action="store_false", help="do not flush the L2 cache before each launch")
    add("--resume", action="store_true", help="continue an existing tuned file")
    add("--other-machine", action="store_true", help="with --resume or --evaluate: accept a file of another machine")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help = "descriptor of the GPU: h200, h100, a100, v100, rtx2080ti or a .toml file (default: by architecture)"
    add("--gpu", metavar="NAME", help=help)
    help = "(default: cuda; host for variants and plans where no GPU or no nvcc is found)"
    add("--target", choices=("cuda", "host"), help=help)
    help = "GPU architecture for nvcc (default: that of --gpu, else of the GPU here, else sm_90)"
    add("--arch", metavar="NAME", help=help)
    defines(parser)
    help = "ranks that run the program together; the slowest counts (default: 1)"
    add("-n", dest="ranks", type=positive, metavar="RANKS", help=help)
    help = "seed of the set-up, of the order and of what is drawn (default: 0)"
    add("--seed", type=natural, default=0, metavar="N", help=help)


def _add_show(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--show", metavar="K", help="only print the rational program of this op or kernel, or of `occupancy`")
    formats = ("text", "latex", "c", "dot", "svg")
    add("--format", choices=formats, default="text", help="format of --show (default: text)")


def _folds(text: str) -> int:
    folds = positive(text)
    if folds < 2:
        raise argparse.ArgumentTypeError("one fold leaves nothing to train on: give 2 or more")
    return folds


def _method(text: str) -> str:
    """The name. `help` lists all, even without a FILE, and exits, as --help does."""
    if text != "help":
        return text
    from dagc.stages.options import methods

    for name, summary in methods():
        print(f"{name:11} {summary}")
    raise SystemExit(0)


def run_tune(args: argparse.Namespace) -> int:
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
    options = _options(args)
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


def _options(args: argparse.Namespace) -> TuneOptions:
    from dagc.stages.options import TuneOptions

    return options_of(args, TuneOptions, sizes="; ".join(args.sizes), defines=defines_of(args))


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
                line.op, line.point.text or "as given", settings_text(line.default), settings_text(line.chosen), best,
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

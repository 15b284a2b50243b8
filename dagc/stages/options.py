"""Options of the commands, with their defaults, in parts by concern. The command line is made of them
(`dagc/base/option.py`), and docs/reference/commands.md describes each. A function that reads one part takes this part.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from dagc.base.option import (
    Option,
    alternatives,
    as_field,
    duration,
    in_seconds,
    jobs_of,
    natural,
    option,
    or_help,
    positive,
    several,
    share,
)  # fmt: skip
from dagc.base.resources import names_in
from dagc.base.sample import OCCUPANCY
from dagc.base.signals import ENDLESS, HANGS, Deadline
from dagc.ir.enums import Transport
from dagc.stages.orders import OrderOptions

Progress: TypeAlias = Callable[[int, int, str], None]

# ---- parts of several commands --------------------------------------------------------------


def objective_option(default: str) -> Option:
    """--objective: an expression of metrics (`dagc.base.sample`), which is checked later."""
    return Option(
        "--objective time|energy|EXPRESSION",
        f"quantity to minimise: time, {', '.join(names_in('measure/metrics'))}, or an expression of them;"
        f" max:EXPRESSION to maximise; --objective help lists the metrics (default: {default})",
        or_help(_metrics),
    )  # fmt: skip


def _metrics() -> Iterator[str]:
    from dagc.measure.metrics import summaries  # only with --objective help

    return (f"{name:12} {unit:4} {summary}" for name, unit, summary in summaries())


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """`target` None: chosen by what is installed."""

    target: str | None = option(
        "--target {cuda,host}", "(default: cuda if a GPU and nvcc are found, else host)", without="--replay"
    )
    arch: str | None = option(
        "--arch NAME", "GPU architecture for nvcc (default: that of the GPU, else sm_90)",
        without="--replay or --target host",
    )  # fmt: skip


FORMS_OPTION = Option(
    "--forms on|off|LIST", "let dagc rewrite kernels (`dagc show --forms`); a list is not searched: each kernel that"
    " allows it is rewritten so, as by compile (default: on for a GPU, off on the host target; as in the file that is"
    " continued)",
)  # fmt: skip


def forms_are_open(asked: str | None, on_gpu: bool, earlier: bool | None) -> bool:
    """Whether the forms of kernels are open. `asked`: by the option; `earlier`: in the file that is continued, None
    without one."""
    if asked is not None:
        return asked == "on"
    return on_gpu if earlier is None else earlier


IN_FLIGHT = 4  # iterations of a library that overlap, unless the user gives another number


@dataclass(frozen=True, kw_only=True)
class FormOptions:
    """What is written."""

    form: str = option(
        "--as {program,library,wheel,driver}", "a standalone program, a library for applications, a Python package of"
        " one, or a program and what its driver.py (PyCUDA, mpi4py) calls", default="program",
    )  # fmt: skip
    name: str | None = option(
        "--name NAME", "name of the library, and prefix of its functions (default: the program's name)",
        only="--as library or --as wheel",
    )  # fmt: skip
    in_flight: int = option(
        "--in-flight N", "iterations of run(n) that may overlap with arrays of their own; 1: they share them", positive,
        default=IN_FLIGHT, only="--as library or --as wheel",
    )  # fmt: skip
    build: bool = option("--no-build", "write only sources", default=True, without="--run")
    force: bool = option("--force", "write into a directory that dagc did not create")


@dataclass(frozen=True, kw_only=True)
class WatchdogOptions:
    """When to give up."""

    watchdog: float = option(
        "--watchdog S", "seconds after which a measurement counts as hung", in_seconds, default=HANGS,
        without="--replay",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PointerOptions:
    """What is known of the MPI."""

    mpi_takes_device_pointers: bool = option(
        "--mpi-takes-device-pointers", "assert that the MPI accepts device pointers, if it cannot be queried",
        only="--run", without="--replay",
    )  # fmt: skip
    bind: str = option(
        "--bind none|show|near|GPU@NODE,...", "place the ranks of each host: print where they run; on cores of the NUMA"
        " node of their GPU; or the GPU and the node of each", default="", only="--run", without="--replay",
    )  # fmt: skip


# ---- compile --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Whether the program also runs, on the arrays that the user's Python code makes for `ranks` ranks."""

    run: bool = option("--run", "build, check the results and measure the time (runs the set-up's Python code)")
    ranks: int | None = option("-n RANKS", "(default: 4; under mpiexec or srun, their number)", positive, only="--run")
    seed: int = option("--seed N", "seed of the set-up", natural, default=0, only="--run")
    seconds: float = option(
        "--seconds S", "length of one measurement in seconds", in_seconds, default=0.01, only="--run"
    )
    repeats: int = option("--repeats N", "measurements", positive, default=20, only="--run")
    watchdog: float = option(
        "--watchdog S", "seconds after which an iteration counts as hung", in_seconds, default=HANGS, only="--run"
    )


@dataclass(frozen=True, kw_only=True)
class ChooserOptions:
    """The values of launch settings. Those of a tuned file are compiled in as choosers, or choose among plans
    (docs/how-to/plans.md); without `constraints` the program ignores `require`s."""

    launch: str = option(
        "--launch fixed|TUNED", "launch settings: the program's values, or the choosers of a file of `dagc tune`",
        default="fixed",
    )  # fmt: skip
    features: str = option(
        "--features {now,parallel,async,beside}", "with --launch TUNED: compute features at the start, each on a"
        " thread, during the first ops, or the first runs", default="now",
    )  # fmt: skip
    constraints: bool = option(
        "--no-constraints", "with --launch TUNED: ignore the `require`s of variants, except those on hw.memory",
        default=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompileOptions(TargetOptions, OrderOptions, FormOptions, RunOptions, PointerOptions, ChooserOptions):
    """Options of `dagc compile`.

    `traversal` is "first", an ID (with `unroll`: of those with an order for every round of a loop), or a file (a
    traversal's text, or a `plan.json`).
    """

    defines: Mapping[str, Any] | None = None
    traversal: str = option("--traversal first|ID|FILE", "which implementation", default="first")
    forms: str = option(
        "--forms off|LIST", "rewrite each kernel that allows it: `wide=4,coarsen`, without a value the largest one; -D"
        " of an op counts before", default="off",
    )  # fmt: skip


# ---- explore and explain --------------------------------------------------------------------


def _strategies() -> Iterator[str]:
    from dagc.lab.strategy import find, names  # only with --strategy help

    return (f"{name:12} {find(name).summary}" for name in names())


@dataclass(frozen=True, kw_only=True)
class StrategyOptions:
    """What is minimised, how it is searched, and when the search ends: `time` in seconds, `until` a fraction (0.01: one
    percent), None: UNTIL if neither budget nor time is given."""

    objective: str | None = as_field(objective_option("that of the resumed or replayed results file, else time"))
    strategy: str | None = option(
        "--strategy NAME", f"{', '.join(names_in('lab/strategies'))} (default: model up to 512 ops, else mcts-min);"
        " --strategy help lists them", or_help(_strategies),
    )  # fmt: skip
    budget: int | None = option(
        "--budget N", "number of measurements in the search (default: until 1%; --strategy exhaustive: all; random and"
        " others: 200)", positive,
    )  # fmt: skip
    time: float | None = option(
        "--time T", "time limit of the command, such as 90s, 10m, 1.5h (default: none)", duration
    )
    until: float | None = option(
        "--until SHARE", "stop when no improvement by more than this fraction is expected (default: 1% without the"
        " above)", share,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """What is searched. None: `capture` both with GPUs, off without; `launch` searched."""

    transport: str = option(
        "--transport all|NAME[,NAME]", f"{alternatives(transport.value for transport in Transport)}"
        " (default: all that the program allows and this machine supports)", default="all",
    )  # fmt: skip
    capture: str | None = option("--capture {off,on,both}", "CUDA graphs (default: both with GPUs, off on the host)")
    opened: tuple[str, ...] = option(
        "--open NAME[=V1,V2]", "also search this decision: per_axis, yl.block=64,128, all; may be repeated (default:"
        " variants, staging)", several=tuple,
    )  # fmt: skip
    launch: str | None = option(
        "--launch search|auto|fixed|TUNED", "launch settings: searched with the orders, tuned first, the program's"
        " defaults, or those of a file of `dagc tune` (default: search; --resume: as in the results file)",
    )  # fmt: skip
    forms: str | None = as_field(FORMS_OPTION)
    only: str | None = option(
        "--only {orders}", "search orders, streams, transports and capture only; the rest stays at its default or -D"
    )


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """How often and how long each implementation is measured."""

    passes: int = option("--passes N", "measurements of each implementation", positive, default=1)
    confirm: int = option("--confirm K", "re-measure the best K at the end", natural, default=10)
    repeats: int = option("--repeats R", "each of them R times", positive, default=5, without="--confirm 0")
    seconds: float = option("--seconds S", "length of one measurement", in_seconds, default=0.01)
    seed: int = option("--seed N", "seed of the set-up and of the search", natural, default=0)


@dataclass(frozen=True, kw_only=True)
class EarlierOptions:
    """Files of earlier searches and set-ups."""

    resume: bool = option("--resume", "continue an existing results file", without="--replay")
    other_machine: bool = option(
        "--other-machine", "continue even if the file is from another machine", only="--resume"
    )
    warm_start: str | None = option(
        "--warm-start RESULTS", "start from the best implementations and the costs in this file (of another size,"
        " matrix or machine)",
    )  # fmt: skip
    follow: str | None = option(
        "--follow RULES", "measure implementations first that follow the rules in this file (`dagc rules --format"
        " json`)",
    )  # fmt: skip
    original: str | None = option(
        "--original FILE", "measure this order first, as in the file that `dagc record` writes, and state what the best"
        " gains over it", without="--replay",
    )  # fmt: skip
    replay: str | None = option("--replay RESULTS", "take times from this results file instead of measuring")
    simulate: str | None = option(
        "--simulate PLATFORM", "predict times for -n ranks on this platform of SimGrid, from the traces of the replayed"
        " results", only="--replay",
    )  # fmt: skip
    calibrate: str | None = option(
        "--calibrate PLATFORM", "first find how many times what the traces say calls, work and messages take, by a few"
        " measured times of the results, on this platform of their machine", only="--simulate",
    )  # fmt: skip
    scale: tuple[int, ...] = option(
        "--scale N,N,...", "search for each of these numbers of ranks, and print how the fastest changes with them",
        several, default=(), only="--simulate",
    )  # fmt: skip
    plot: str | None = option("--plot FILE", "also draw these times, beside ideal scaling, as SVG", only="--scale")
    data: str | None = option("--data DIR", "arrays written by `dagc setup` (default: generated)", without="--replay")


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(
    StrategyOptions, OpenOptions, OrderOptions, MeasuringOptions, EarlierOptions, TargetOptions, WatchdogOptions,
    PointerOptions,
):  # fmt: skip
    """Options of `dagc explore`."""

    ranks: int = 4
    groups: int = option(
        "--groups K", "K groups of -n ranks measure side by side, as one search", positive, default=1,
        without="--replay or --jobs",
    )  # fmt: skip
    jobs: int | None = option(
        "--jobs SYSTEM:K", "K jobs of -n ranks measure side by side; this command submits them to the batch system, as"
        " in slurm:8", jobs_of, without="--replay",
    )  # fmt: skip
    job_script: str | None = option(
        "--job-script FILE", 'the batch script of these jobs, which ends with "$@"', only="--jobs"
    )
    most: int = option(
        "--max N", "largest space for an exhaustive search", positive, default=100_000, without="another --strategy"
    )
    most_configurations: int = option(
        "--max-configurations N",
        "maximal number of programs to compile",
        positive,
        default=64,
        without="--replay",
    )
    trace: bool = option(
        "--no-trace", "do not trace the best and the slowest at the end", default=True, without="--replay"
    )
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(WatchdogOptions, PointerOptions):
    """Options of `dagc explain`. `objective` None is that of the file."""

    objective: str | None = None
    everything: bool = option("--all", "also each edit that breaks a rule, and what it changes")
    replay: str | None = option("--replay RESULTS", "take times from this results file instead of measuring")
    rank: int | None = option(
        "--rank N", "no rules: why the N-th after the fastest is slower, in bundles of decisions that act together",
        positive,
    )  # fmt: skip
    original: str | None = option(
        "--original FILE", "no rules: why the order of this file, as `dagc record` writes it, is slower: each setting,"
        " and each bundle of decisions", without="--rank",
    )  # fmt: skip
    variants: int = option(
        "--variants N", "edits tried for each rule", positive, default=3, without="--rank or --original"
    )
    pairs: int = option("--pairs N", "maximal number of pairs timed for each edit", positive, default=30)
    seconds: float = option("--seconds S", "length of one measurement", in_seconds, default=0.01, without="--replay")
    data: str | None = option("--data DIR", "arrays written by `dagc setup` (default: generated)", without="--replay")
    seed: int = option("--seed N", "seed", natural, default=0)
    other_machine: bool = option(
        "--other-machine", "measure even if the file is from another machine", without="--replay"
    )
    quiet: bool = False


# ---- tune -----------------------------------------------------------------------------------

MARGIN = 0.5  # margin of probability below which the guide of active learning is unsure (MLCD, section IV-C)
TOP = 5  # settings that are measured at each size in addition to the default

_SUMMARIES = {
    "rational": "MWP-CWP over counts fitted to hardware counters (ncu), or read from the text; its best are measured",
    "volume": "model of the data volumes and a pre-trained learner; with a GPU, a few settings were measured",
    "exhaustive": "every legal setting is measured at every size; elsewhere the model may overrule",
}


def searching() -> tuple[str, ...]:
    """The search strategies, which also tune: each proposes the next measurement at each size."""
    return tuple(name for name in names_in("lab/strategies") if name not in _SUMMARIES)


COSTS = "cost"  # the method that predicts a time for each answer
LEARNERS = names_in("choice/learners")
METHODS = (*_SUMMARIES, *searching(), *LEARNERS)


def methods() -> tuple[tuple[str, str], ...]:
    """(name, one line) of every method of `dagc tune`."""
    from dagc.choice.methods import LEARNED, learner  # only with --method help
    from dagc.lab.strategy import find  # only with --method help

    what = "every legal setting is measured; elsewhere"
    learned = ((name, f"{what} {learner(name).SUMMARY}, trained on the measured sizes") for name in LEARNED)
    searched = ((name, f"a few settings are measured at each size: {find(name).summary}") for name in searching())
    return (*_SUMMARIES.items(), *searched, *learned)


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """What is tuned, and by which of METHODS; "": that of the program's `select`, else `volume`."""

    kernels: tuple[str, ...] = option("--kernel K", "op or kernel (default: all); may be repeated", several=tuple)
    method: str = option(
        "--method NAME",
        f"volume, rational, exhaustive, {', '.join(LEARNERS)}; or help (default: the program's `select`, else volume)",
        or_help(lambda: (f"{name:11} {summary}" for name, summary in methods())), default="", without="--evaluate",
    )  # fmt: skip
    variants: bool = option("--variants", "tune only what `select` names a variant for, and plans")
    forms: str | None = as_field(FORMS_OPTION)


_HELD_OUT = "--folds or --hold-out or --replay"  # of these, which judge by the inputs of the file


@dataclass(frozen=True, kw_only=True)
class CaseOptions:
    """The sizes and inputs that are measured. `inputs`: lists as `dagc.study.cases` reads them."""

    sizes: str = option(
        "--sizes SPEC", "sizes such as NI=NJ=512,1000 NK=64; separate several by `;`, or repeat the option (default:"
        " the values after `over`)", several="; ".join, without=_HELD_OUT,
    )  # fmt: skip
    inputs: tuple[str, ...] = option(
        "--inputs LIST", 'inputs: globs ("train/*.mtx"), lists (@train.txt), calls ("rmat(scale = 16)"), separated by'
        " commas; may be repeated (default: the files of `over files`)", several=tuple, without=_HELD_OUT,
    )  # fmt: skip
    samples: int | None = option(
        "--samples N", "draw N inputs from the values after `over` (default: all that are listed there)", positive
    )
    warm_start: str | None = option(
        "--warm-start TUNED", "also learn from this tuned file of another machine; --samples of its inputs are measured"
        " here",
    )  # fmt: skip
    check_at: str = option(
        "--check-at SPEC", "size or input at which results are compared with the reference (default: the smallest)",
        default="",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Which inputs are measured, of those that are listed or drawn. `active` is Algorithm 1 (`dagc.study.sampling`)."""

    active: bool = option(
        "--active",
        "with --samples: draw inputs where a random forest is unsure which variant is best",
        without="--evaluate",
    )
    initial: int | None = option(
        "--initial N", "with --active or --replay: random inputs before the first batch (default: a fifth of the"
        " samples, 20 or more)", positive, only="--active or --replay",
    )  # fmt: skip
    batch: int | None = option(
        "--batch N",
        "with --active or --replay: inputs per batch (default: a twentieth of the samples)",
        positive,
        only="--active or --replay",
    )
    margin: float = option(
        "--margin U", "with --active or --replay: difference of the two largest probabilities below which the forest is"
        " unsure", share, default=MARGIN, only="--active or --replay",
    )  # fmt: skip
    incremental: bool = option("--incremental", "measure only the most informative inputs", without="--evaluate")
    iterations: int | None = option(
        "--iterations N", "with --incremental: inputs to measure (default: 25)", positive, only="--incremental"
    )
    accuracy: float | None = option(
        "--accuracy A", "with --incremental: stop at this accuracy, such as 0.9 or 90%", share, only="--incremental"
    )
    next: Literal["bvsb", "cost", "random"] = option(
        "--next {bvsb,cost,random}", "with --incremental: how the next input is chosen", default="cost",
        only="--incremental",
    )  # fmt: skip


def links_of(text: str) -> tuple[tuple[str, str, float, float], ...]:
    """`gpu-gpu1=2e-6:3e11, ...`: source, target, latency, bandwidth; both directions, unless the other is given too."""
    out: dict[tuple[str, str], tuple[float, float]] = {}
    back: dict[tuple[str, str], tuple[float, float]] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\w+)-(\w+)=([^:]+):(.+)", part)
        try:
            latency, bandwidth = (float(found[3]), float(found[4])) if found else (math.nan, math.nan)
        except ValueError:
            latency = bandwidth = math.nan
        if found is None or not (0 <= latency < 1e3 and 1 <= bandwidth < 1e18):
            example = "a link is like gpu-gpu1=2e-6:3e11, its latency in seconds and its bytes per second"
            raise ArgumentTypeError(f"{part.strip()!r}: {example}")
        if (found[1], found[2]) in out:
            raise ArgumentTypeError(f"{part.strip()!r}: the link {found[1]}-{found[2]} is given twice")
        out[found[1], found[2]] = back[found[2], found[1]] = latency, bandwidth
    return tuple((*way, *time) for way, time in {**out, **(back | out)}.items())


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """What is learned. `calls` 0: the cost of a conversion is not counted; `objective` None: that of a resumed file,
    else the time."""

    select_features: bool = option(
        "--select-features", "choose features by cross-validation, cheap ones first", without="--evaluate"
    )
    calls: int = option(
        "--calls N",
        "spread the cost of a variant's conversion over N calls (default: not counted)",
        positive,
        default=0,
    )
    links: tuple[tuple[str, str, float, float], ...] = option(
        "--links LIST", "with `select device with dp()`: times of copies between devices, as"
        " gpu-gpu1=SECONDS:BYTES_PER_SECOND,..., in place of measured ones", links_of, default=(),
        without="--evaluate",
    )  # fmt: skip
    constraints: bool = option(
        "--no-constraints",
        "ignore the `require`s of variants that depend on run-time values, except those on hw.memory", default=True,
    )  # fmt: skip
    objective: str | None = as_field(objective_option("that of a resumed file, else time"))


def _folds(text: str) -> int:
    folds = positive(text)
    if folds < 2:
        raise ArgumentTypeError("one fold would test all inputs and train on none: give 2 or more")
    return folds


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Evaluations at held-out training inputs, without measuring."""

    folds: int | None = option(
        "--folds N", "with --evaluate: N-fold cross-validation over the inputs that the file was trained on", _folds,
        only="--evaluate",
    )  # fmt: skip
    hold_out: float | None = option(
        "--hold-out S", "with --evaluate: hold out this fraction of the inputs, such as 10%, drawn by --seed; train on"
        " the others", share, only="--evaluate", without="--folds",
    )  # fmt: skip
    replay: int | None = option(
        "--replay N", "with --evaluate: replay active learning N times on the inputs of the file, a tenth held out, up"
        " to --samples labelled ones; print quality by samples and the reduction factor, beside random inputs",
        positive, only="--evaluate",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CountingOptions:
    """Which launches functions are fitted to."""

    points: str = option(
        "--points SPEC", "launches that --method rational counts: `optimal`, or sizes with values of tunables such as"
        " NI=512,2048 bx=8,32 (default: drawn)", default="", only="--method rational",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """When measuring ends. `seconds` are for the command, which ends at `deadline`; `until` is a fraction (0.01: one
    percent)."""

    top: int | None = option(
        "--top N", "measure N settings at each size in addition to the default, on average; 0: none (default: 5, no"
        " limit with --budget, --time or --until)", natural,
    )  # fmt: skip
    budget: int | None = option("--budget N", "measure at most N settings in total (default: set by --top)", positive)
    until: float | None = option(
        "--until SHARE", "stop when no setting is expected to be faster by more than this fraction, such as 1%", share
    )
    seconds: float | None = option(
        "--time T", "time limit of the command, such as 90s, 10m, 1.5h (default: none; launch settings on the CPU:"
        " 60s)", duration,
    )  # fmt: skip
    deadline: Deadline = ENDLESS

    @property
    def each(self) -> int:
        """Settings that are measured at each size in addition to the default."""
        return TOP if self.top is None else self.top


@dataclass(frozen=True, kw_only=True)
class CellOptions(WatchdogOptions):
    """How a single setting is measured. `watchdog`: as `dagc.lab.launches.Timing.allowed` says."""

    cell: float = option("--cell S", "maximal time for one setting in seconds", in_seconds, default=0.25)
    flush: bool = option("--warm", "do not flush the L2 cache before each launch", default=True)
    cut: int | None = option(
        "--cut FACTOR", "over inputs: do not measure a variant where it is expected to take more than FACTOR times the"
        " fastest, by the inputs measured before (default: measure all)", positive,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TunedFileOptions:
    """Of the tuned file."""

    resume: bool = option("--resume", "continue an existing tuned file")
    other_machine: bool = option(
        "--other-machine",
        "with --resume or --evaluate: accept a file of another machine",
        only="--resume or --evaluate",
    )


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """For which GPU and target, on how many ranks."""

    gpu: str | None = option(
        "--gpu NAME",
        "descriptor of the GPU: h200, h100, a100, v100, rtx2080ti or a .toml file (default: by architecture)",
    )
    target: str | None = option(
        "--target {cuda,host}", "(default: cuda; host for variants and plans where no GPU or no nvcc is found)"
    )
    arch: str | None = option(
        "--arch NAME", "GPU architecture for nvcc (default: that of --gpu, else of the GPU here, else sm_90)",
        without="--target host",
    )  # fmt: skip
    ranks: int = option("-n RANKS", "ranks that run the program together; the slowest counts", positive, default=1)
    seed: int = option("--seed N", "seed of the set-up, of the order and of what is drawn", natural, default=0)


@dataclass(frozen=True, kw_only=True)
class TuneOptions(
    SiteOptions, CaseOptions, CountingOptions, LabelOptions, LearningOptions, EvaluationOptions, LimitOptions,
    CellOptions,
    TunedFileOptions, MachineOptions,
):  # fmt: skip
    """Options of `dagc tune`."""

    defines: Mapping[str, Any] = field(default_factory=dict)

    def opens_forms(self, on_gpu: bool) -> bool:
        """Whether the forms of kernels are open: on a GPU, where the option does not say, unless settings are ranked by
        what is no function of the text: fitted counts, and the occupancy."""
        fitted = self.method == "rational" or self.objective == OCCUPANCY.text
        return forms_are_open(self.forms, on_gpu and not fitted, None)

    def continuing(self, forms: bool) -> TuneOptions:
        """With the forms of kernels open as in a file that is used, unless the option says."""
        return replace(self, forms=self.forms or ("on" if forms else "off"))

    def begun(self) -> TuneOptions:
        """With the end of the command, which begins now, unless that is known."""
        return replace(self, deadline=Deadline.after(self.seconds)) if self.deadline is ENDLESS else self


# ---- record ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What is recorded of which application. `begin`, `end`: marks; None: those of dagc_record.h, else the loop."""

    host: tuple[str, ...] = option(
        "--host FILE", "a file of the application, compiled for this machine without a GPU; or a"
        " directory of them, or the compile_commands.json of its files and flags; may be repeated", several=tuple,
    )  # fmt: skip
    source: tuple[str, ...] = option(
        "--source FILE", "a file of the application, which runs as it is, on a GPU; compiled with -g; or a"
        " directory of them, or its compile_commands.json; may be repeated", several=tuple,
    )  # fmt: skip
    begin: str | None = option(
        "--from MARK", "begin here: a mark of dagc_record.h, a kernel (NAME, NAME#3) or FILE:LINE (default: BEGIN, else"
        " the loop)",
    )  # fmt: skip
    end: str | None = option("--to MARK", "end here (default: END, else the loop)")
    rounds: int = option("--rounds N", "rounds of the loop in the program, and in its reference", positive, default=4)
    bytes: int = option("--bytes N", "most bytes of arrays kept for a rank", positive, default=256 << 20)
    watchdog: float = option(
        "--watchdog S", "seconds after which the application counts as hung", in_seconds, default=600.0
    )
    replace: bool = option("--replace", "also write NAME.patch: the loop calls the library of the program")
    keep_waits: bool = option(
        "--keep-waits", "keep the application's waits of the host (cudaDeviceSynchronize, cudaStreamSynchronize,"
        " cudaEventSynchronize, MPI_Barrier), which are left out where no data require them",
    )  # fmt: skip
    twice: bool = option("--twice", "keep the arrays of another run too, and name what differs between the two")
    force: bool = option("--force", "replace an existing program")

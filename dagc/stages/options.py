"""Options of the commands that search and tune, with their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from dagc.base.deadline import ENDLESS, Deadline
from dagc.base.resources import names_in
from dagc.measure.watchdog import LIMIT


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of `dagc compile`.

    `target` is "cuda", "host" or None (chosen by what is installed), `arch` nvcc's name (default: the GPU's, else
    sm_90). `traversal` is "first", an ID (with `unroll`: of those with an order for every round of a loop), or a file
    (a traversal's text, or a `plan.json`); `prune_syncs` removes redundant sync ops. `launch` is "fixed" (the values of
    the program) or a tuned file: its choosers are compiled in, or choose among plans (docs/how-to/plans.md). The
    program then computes its `features` "now" (at the start), "parallel" (at the start, each on a thread), "async"
    (during its first ops), or "beside" (during its first runs, which use the defaults), and without `constraints`
    ignores the `require`s of variants except those on the memory. `form` is "program", "driver" (one whose driver.py is
    ready to run), "library" (for applications, called `name`) or "wheel" (a Python package with it). `build`: whether
    the compiler runs; `run`: whether the program also runs, on the arrays that the user's Python code makes from `seed`
    for `ranks` ranks (default: 4, or those of mpiexec or srun). It is timed `repeats` times for `seconds`; an iteration
    longer than `watchdog` seconds counts as a hang. `force`: write into a directory that dagc did not create.
    """

    target: str | None = None
    arch: str | None = None
    defines: Mapping[str, Any] | None = None
    traversal: str = "first"
    prune_syncs: bool = False
    unroll: bool = False
    launch: str = "fixed"
    build: bool = True
    run: bool = False
    force: bool = False
    form: str = "program"
    name: str | None = None
    ranks: int | None = None
    seed: int = 0
    seconds: float = 0.01
    repeats: int = 20
    watchdog: float = LIMIT
    features: str = "now"
    constraints: bool = True
    mpi_takes_device_pointers: bool = False


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """Options of `dagc explore`; docs/reference/commands.md describes each, with its unit.

    `strategy` None is the default of `dagc.lab.strategy`, `transport` "all" or names with commas, `capture` "off",
    "on", "both" or None (both with GPUs, off without); `launch` is "search", "auto", "fixed", the path of a tuned file,
    or None (search); `only` is None or "orders" (variants, staging and launch settings are not searched); `objective`
    is an expression of metrics (`dagc.base.objective`), None: that of the results file that is resumed or replayed,
    else the time; `time`, `seconds` and `watchdog` are in seconds; `until` is a fraction (0.01: one percent), None:
    UNTIL if neither budget nor time is given. `unroll`: every round of a loop has an order of its own.
    """

    ranks: int = 4
    strategy: str | None = None
    budget: int | None = None
    time: float | None = None
    transport: str = "all"
    capture: str | None = None
    opened: tuple[str, ...] = ()
    prune_syncs: bool = False
    passes: int = 1
    confirm: int = 10
    repeats: int = 5
    seconds: float = 0.01
    seed: int = 0
    resume: bool = False
    other_machine: bool = False
    replay: str | None = None
    data: str | None = None
    target: str | None = None
    arch: str | None = None
    most: int = 100_000
    most_configurations: int = 64
    watchdog: float = LIMIT
    trace: bool = True
    mpi_takes_device_pointers: bool = False
    quiet: bool = False
    launch: str | None = None
    only: str | None = None
    objective: str | None = None
    unroll: bool = False
    until: float | None = None
    warm_start: str | None = None


MARGIN = 0.5  # margin of probability below which the guide of active learning is unsure (MLCD, section IV-C)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of `dagc tune`.

    `method`: one of METHODS; "": that of the program's `select`, else `volume`. `inputs`: lists of inputs
    (`dagc.choice.inputs`). `top`: settings that are measured at each size in addition to the default, on average (0:
    none; None: TOP if neither `budget` nor `seconds` nor `until` is given). `gpu`: a descriptor's name or file (None:
    by the architecture). `budget`: most cells; `seconds`: for the command, which ends at `deadline`; `until`: a
    fraction (0.01: one percent); stops when no setting is expected to be faster by more.

    `samples`: inputs to draw from the values after `over` (None: all of these). `active`: by Algorithm 1
    (`dagc.choice.active`): `initial` at random, then batches of `batch` below `margin`. `folds`, `hold_out`: evaluate
    on held-out training inputs. `warm_start`: a tuned file of another machine, some of whose inputs are measured here.

    Of inputs: `variants`: tune sites whose `select` names the variant, and nothing else. `incremental`: label the most
    informative inputs (by `next`), until `iterations` are labelled or `accuracy` is reached. `calls`: number of calls
    of an op over which the cost of a conversion is spread (0: not counted). `constraints`: whether `require`s of
    run-time values count. `objective`: the quantity to minimise (None: that of a resumed file, else the time).
    `watchdog`: seconds after which a measurement counts as hung (`dagc.lab.launches.Timing.allowed`).
    """

    kernels: tuple[str, ...] = ()
    method: str = ""
    sizes: str = ""
    inputs: tuple[str, ...] = ()
    check_at: str = ""
    top: int | None = None
    budget: int | None = None
    seconds: float | None = None
    until: float | None = None
    gpu: str | None = None
    target: str | None = None
    arch: str | None = None
    defines: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    flush: bool = True
    cell: float = 0.25
    resume: bool = False
    other_machine: bool = False
    ranks: int = 1
    variants: bool = False
    incremental: bool = False
    iterations: int | None = None
    accuracy: float | None = None
    next: Literal["bvsb", "cost", "random"] = "cost"
    select_features: bool = False
    calls: int = 0
    constraints: bool = True
    objective: str | None = None
    samples: int | None = None
    active: bool = False
    initial: int | None = None
    batch: int | None = None
    margin: float = MARGIN
    folds: int | None = None
    hold_out: float | None = None
    warm_start: str | None = None
    watchdog: float = LIMIT
    deadline: Deadline = ENDLESS

    def begun(self) -> TuneOptions:
        """With the end of the command, which begins now, unless that is known."""
        return replace(self, deadline=Deadline.after(self.seconds)) if self.deadline is ENDLESS else self

    @property
    def each(self) -> int:
        """Settings that are measured at each size in addition to the default."""
        return TOP if self.top is None else self.top


TOP = 5  # settings that are measured at each size in addition to the default


Progress: TypeAlias = Callable[[int, int, str], None]

_SUMMARIES = {
    "rational": "MWP-CWP over counts fitted to hardware counters (ncu), or read from the text; its best are measured",
    "volume": "model of the data volumes and a pre-trained learner; with a GPU, a few settings were measured",
    "exhaustive": "every legal setting is measured at every size; elsewhere the model may overrule",
}


def searching() -> tuple[str, ...]:
    """The search strategies, which also tune: each proposes the next measurement at each size."""
    return tuple(name for name in names_in("lab/strategies") if name not in _SUMMARIES)


COSTS = "cost"  # the method that predicts a time for each answer
METHODS = (*_SUMMARIES, *searching(), *names_in("choice/learners"))


def methods() -> tuple[tuple[str, str], ...]:
    """(name, one line) of every method of `dagc tune`."""
    from dagc.choice.methods import LEARNED, learner  # loads msgspec
    from dagc.lab.strategy import find  # only with --method help

    what = "every legal setting is measured; elsewhere"
    learned = ((name, f"{what} {learner(name).SUMMARY}, trained on the measured sizes") for name in LEARNED)
    searched = ((name, f"a few settings are measured at each size: {find(name).summary}") for name in searching())
    return (*_SUMMARIES.items(), *searched, *learned)

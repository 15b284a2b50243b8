"""Use of a tuned file: choosers for `dagc compile --launch`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.sample import OCCUPANCY, TIME
from dagc.build import toolchain
from dagc.choice.choose import Tried, emitted, tried_at
from dagc.choice.feature import offered
from dagc.choice.legal import op_of, open_site, place_of
from dagc.choice.methods import RETIRED, retired
from dagc.choice.selector import far_parameters
from dagc.choice.types import RANKED, Case
from dagc.ir.choice import VARIANT, Choice
from dagc.ir.plan import Features, Placement, is_open, needed_features, open_variants, places_together, variants_of
from dagc.ir.program import DEVICE, DP, KernelOp
from dagc.stages.artifacts import OpenChoices
from dagc.stages.options import COSTS, METHODS
from dagc.store.settings import check_compiled
from dagc.study.files import program_record

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.choice.types import Site
    from dagc.ir.program import Graph, Program
    from dagc.store.tuned import InputFacts, KernelChooser, Tuned


def choosers_of(
    graph: Graph,
    tuned: Tuned,
    arch: str | None = None,
    ops: Collection[str] | None = None,
    other_machine: bool = False,
) -> tuple[Any, ...]:
    """The choosers of a tuned file, for a program's graph. `arch`: the target architecture (None: do not compare).
    `ops`: only the choosers of these. `other_machine`: accept another GPU of the architecture.

    Raises UsageError if the file was tuned for another text of the program or another GPU.
    """
    check_tuned(tuned, graph.program, arch, other_machine)
    check_compiled(tuned.path, tuned, graph.program)
    stored = tuned.kernel_choosers
    if not stored:
        raise UsageError(
            f"{tuned.path}: chooses among whole programs, not launch settings of kernels",
            "use it with `dagc compile --launch`; tune kernels with `dagc tune --kernel`",
        )
    if ops is not None:
        stored = {op: chooser for op, chooser in stored.items() if op in ops}
    _check_open(graph, stored, tuned.path)
    every = [open_site(graph, op, chooser.variants) for op, chooser in stored.items()]
    for site in every:
        _check_choices(site, tuned, arch)
    timed = tuned.facts.objective == TIME.text
    return tuple(
        _chooser_of(graph, site, stored[site.name], tuned.path, timed, tried_in(tuned, site.name))
        for site in sorted(every, key=lambda site: place_of(graph, site))
    )


def tried_in(tuned: Tuned, op: str) -> tuple[Tried, ...]:
    """The training inputs of an op, or of PROGRAM, if something failed at one."""
    features = {one.case: one.features.get(op, {}) for one in tuned.facts.inputs}
    return tried_at(tuned.samples, op, features, tuned.facts.tests)


def _check_open(graph: Graph, stored: Mapping[str, KernelChooser], path: str | Path) -> None:
    """Raises UsageError for an op with nothing open, or with a fixed variant that the file chooses."""
    ops = [o.op for o in graph.ops if isinstance(o.op, KernelOp)]
    open_sites = {op.site for op in ops if is_open(graph.program, op)}
    variants = {op.site for op in ops if open_variants(graph.program, op)}
    for op, chooser in stored.items():
        if op not in variants and any("." in choice.variant for choice in chooser.choices):
            raise UsageError(
                f"{path}: chooses the device of op `{op}`, which is not open",
                f"drop -D {op}.{DEVICE}=..., or --launch: a search chooses devices when it compiles",
            )
        if chooser.variants and op not in variants:
            raise UsageError(
                f"{path}: chooses the variant of op `{op}`, which is not open",
                f"drop -D {op}.{DEVICE}=... and -D {op}.{VARIANT}=..., or compile without --launch",
            )
        if not chooser.variants and op not in open_sites:
            raise UsageError(
                f"{path}: has a chooser for op `{op}`, which has no open choice",
                f"drop -D {op}.NAME=..., or tune again",
            )


def _chooser_of(
    graph: Graph, site: Site, stored: KernelChooser, path: str | Path, timed: bool, tried: Sequence[Tried]
) -> Any:
    """`timed`: the time was minimised, which the models predict. Raises UsageError if the record is from a newer dagc,
    or no longer matches the program's choices and sizes."""
    from dagc.choice.models import ModelInputs, site_chooser  # loads numpy, sympy

    if stored.method in RETIRED:
        raise retired(stored.method)
    if stored.method not in (*METHODS, *RANKED):
        raise UsageError(f"{path}: made by a newer dagc (method {stored.method})", "update dagc, or tune again")
    _check_names(graph, site, stored, path)
    anchors = [(dict(zip(stored.data, a.data, strict=True)), stored.choices[a.chosen]) for a in stored.anchors]
    each = dict(zip(stored.choices, stored.each, strict=False))
    method = stored.method if timed or stored.method == OCCUPANCY.text else ""
    model = ModelInputs(method, stored.resources, stored.fits, each, stored.points)
    return site_chooser(
        graph, site, stored.choices, stored.hardware, model, anchors=anchors, selector=stored.selector,
        asked=stored.data, tried=tried,
    )  # fmt: skip


def _check_choices(site: Site, tuned: Tuned, arch: str | None) -> None:
    """Raises UsageError for choices of the file that the program, for this target and with -D, does not have."""
    legal = set(site.every)
    for choice in tuned.kernel_choosers[site.name].choices:
        if choice not in legal:
            help = f"drop -D {site.name}.NAME=..., or tune again into another file"
            raise UsageError(
                f"{tuned.path}: `{site.name}` was tuned with {choice.in_words}, which is not among its choices",
                "it was tuned for GPUs: give --target cuda" if arch is None and tuned.facts.target == "cuda" else help,
            )


def _check_names(graph: Graph, site: Site, stored: KernelChooser, path: str | Path) -> None:
    """Raises UsageError unless the names in the file are features of the program."""
    from dagc.perf.mwp_cwp import BLOCK, FITTED_COUNTS  # loads numpy, sympy

    features = set(offered(graph.program, op_of(graph, site)))
    asked = {*stored.data, *(stored.selector.data if stored.selector is not None else ())} - features
    asked |= {name for fit in stored.fits.values() for name in fit.names} - features - set(BLOCK)
    if asked:
        raise UsageError(
            f"{path}: `{site.name}` is chosen by {', '.join(sorted(asked))}, which is neither a size nor a feature of"
            " the program",
            "tune again into another file",
        )
    if stored.fits and set(stored.fits) != set(FITTED_COUNTS):
        raise UsageError(f"{path}: the fitted counts of `{site.name}` are incomplete", "tune again into another file")


def check_tuned(tuned: Tuned, program: Program, arch: str | None, other_machine: bool = False) -> None:
    """Raises UsageError if a tuned file belongs to another text or GPU, or has no chooser. `arch`: that of the target
    GPU; None: no GPU, or do not compare."""
    path = tuned.path
    now = program_record(program)
    if tuned.program.name != now.name:
        raise UsageError(f"{path}: tuned for program {tuned.program.name}, this is {now.name}", "tune this program")
    if not tuned.program.has_text_of(now):
        raise UsageError(f"{path}: tuned for another text of {tuned.program.name}", "tune the program again")
    if arch is not None and tuned.facts.target == "host" and any(sample.times for cell, sample in tuned.samples):
        raise UsageError(
            f"{path}: measured on the host target, whose times do not apply to a GPU",
            "tune with --target cuda, or compile with --launch fixed",
        )
    if arch is not None and tuned.facts.target == "cuda" and tuned.facts.arch != arch:
        raise UsageError(
            f"{path}: tuned for {tuned.facts.arch}, this is compiled for {arch}",
            "tune on this GPU, or compile with --arch " + str(tuned.facts.arch),
        )
    if not other_machine:
        _check_gpu(tuned, path, arch)
    if not tuned.choosers:
        raise UsageError(f"{path}: no chooser in it: tuning did not end", "tune again with --resume")


def _check_gpu(tuned: Tuned, path: str | Path, arch: str | None) -> None:
    """Another GPU of the same architecture has other limits and another speed. Without a GPU, there is no check."""
    wanted = tuned.facts.gpu
    here = (
        [g.name for g in toolchain.gpus() if g.arch == arch]
        if arch is not None and tuned.facts.target == "cuda"
        else []
    )
    if here and wanted and wanted not in here:
        raise UsageError(
            f"{path}: tuned for {wanted}, this machine has {here[0]}",
            "tune on this GPU, or compile with --launch fixed",
        )


def open_choices(
    graph: Graph, tuned: Tuned, arch: str | None, mode: Features = Features.NOW, constraints: bool = True
) -> OpenChoices:
    """The choices that a tuned file leaves open in the kernels of a graph, and how the program makes them: as `Chooser`
    of `dagc.ir.plan`."""
    choosers = choosers_of(graph, tuned, arch)
    # Only the possible answers of a chooser are compiled; values that did not compile during tuning are not among them.
    opened = tuple(decision for c in choosers for decision in c.site.taken)
    sites = {c.op for c in choosers}
    timed = (cell.case for cell, sample in tuned.samples if cell.site in sites and sample.times)
    features = dict.fromkeys(code for c in choosers for feature in c.features for code in feature.code)
    chooser = replace(
        emitted(choosers), warnings=far_parameters(graph.program, timed), constraints=constraints, mode=mode
    )
    if places_together(graph.program):
        chooser = replace(chooser, placement=_placement(tuned, choosers, mode, graph.program.devices.sides))
    if mode is Features.BESIDE:
        _check_defaults(tuned, choosers)
        both = zip(chooser.choices, choosers, strict=True)
        priced = (replace(call, payoffs=_payoffs(tuned, c), least=_least(graph, tuned, c)) for call, c in both)
        chooser = replace(chooser, choices=tuple(priced))
    return OpenChoices(opened, chooser, tuple(features))


def _check_defaults(tuned: Tuned, choosers: Sequence[Chooser]) -> None:
    """Raises UsageError for a default that failed in training, which the first runs would use at any input."""
    for chooser in choosers:
        default = chooser.choices[0]
        failed = sum(default in one.failed for one in tried_in(tuned, chooser.op))
        if failed:
            raise UsageError(
                f"{chooser.op}: the default, {default.in_words}, failed at {counted(failed, 'input')} when it was"
                " tuned, and the first runs would use it",
                "compile with --features now, parallel or async",
            )


def _placement(tuned: Tuned, choosers: Sequence[Chooser], mode: Features, sides: int) -> Placement:
    """How the program places its ops together, on so many sides. Raises UsageError for a file without what it needs."""
    transfers = tuned.facts.transfers
    lacking = [c.op for c in choosers if c.site.variants and not c.predicts]
    if transfers is None or lacking:
        what = "no times of transfers" if transfers is None else f"no expected times of op `{lacking[0]}`"
        raise UsageError(
            f"{tuned.path}: {what}, by which `select device with {DP}()` places the ops", f"tune with --method {COSTS}"
        )
    if mode is Features.BESIDE:
        raise UsageError("devices cannot be chosen during the first runs", "compile with --features now")
    every = range(sides)
    return Placement(tuple(tuple(astuple(transfers.between(a, b)) for b in every) for a in every))


def _payoffs(tuned: Tuned, chooser: Chooser) -> tuple[tuple[float, float], ...]:
    """For each answer: the gain of a call as a fraction of the default's time, and the cost of its conversion in calls
    of the default; medians over the inputs at which it is the fastest, else over those at which it is faster than the
    default.
    """
    times = _times(tuned, chooser)
    conversions = {one.case: one.conversions.get(chooser.op, {}) for one in tuned.facts.inputs}
    default, out = chooser.choices[0], []
    for choice in chooser.choices:
        faster = [at for at, of in times.items() if default in of and of.get(choice, math.inf) < of[default]]
        best = [at for at in faster if times[at][choice] == min(times[at].values())] or faster
        gains = [1 - times[at][choice] / times[at][default] for at in best]
        costs = [conversions.get(at, {}).get(choice.variant, 0.0) / times[at][default] for at in best]
        out.append((median(gains), median(costs)) if gains else (0.0, 0.0))
    return tuple(out)


def _least(graph: Graph, tuned: Tuned, chooser: Chooser) -> float:
    """The number of remaining calls from which the features and the choice pay, with all training inputs equally
    likely; infinite if they never pay.

    Features take time from the remaining calls and count as time of the program, as do conversions. Features of a
    single variant count as part of its conversion.
    """
    from dagc.study.judge import least_calls  # only beside the runs

    times, default = _times(tuned, chooser), chooser.choices[0]
    variants = variants_of(graph.program, op_of(graph, open_site(graph, chooser.op, bool(chooser.site.variants))))
    needed = {one.answer: {f.name for f in needed_features(graph.program, one)} for one in variants}
    asked = {code.name for feature in chooser.features for code in feature.code}
    inputs = []
    for one in tuned.facts.inputs:
        of = {choice: t for choice, t in times.get(one.case, {}).items() if choice in chooser.choices}
        if not one.test and default in of:
            inputs.append(_priced(one, chooser.op, of, of[default], (asked, needed)))
    return least_calls(inputs)


def _priced(
    one: InputFacts,
    op: str,
    times: Mapping[Choice, float],
    default: float,
    names: tuple[set[str], Mapping[str, set[str]]],
) -> tuple[float, list[tuple[float, float]]]:
    """In calls of the default: the cost of the selector's features, and for each answer the gain of a call and the cost
    of its conversion and further features. `names`: those of the selector's features, and of the features that a
    variant needs."""
    asked, needed = names
    took, answers = one.conversions.get(op, {}), []
    for choice, seconds in times.items():
        variant = choice.variant
        further = sum(one.seconds.get(name, 0.0) for name in needed.get(variant, set()) - asked)
        answers.append((1 - seconds / default, (took.get(variant, 0.0) + further) / default))
    return sum(one.seconds.get(name, 0.0) for name in asked) / default, answers


def _times(tuned: Tuned, chooser: Chooser) -> dict[Case, dict[Choice, float]]:
    """Seconds of the cells that did not fail."""
    times: dict[Case, dict[Choice, float]] = {}
    for cell, sample in tuned.samples:
        if cell.site == chooser.op and sample.good:
            times.setdefault(cell.case, {})[cell.choice] = sample.value
    return times

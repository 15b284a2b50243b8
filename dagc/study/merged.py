"""`dagc merge` of tuned files: their inputs together, and choosers trained on all of them; runs nothing.

All facts that the times depend on must agree: the target, the GPU, the objective, parameters and decisions. An input
that is a test input in any file is not used for training. An input of several files has the times of all of them.

The program is the text in the files. The device's memory is unknown here: a variant with a `require` on the memory that
was not tried at an input counts as not allowed there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.build.toolchain import TargetChoice
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM, Choice
from dagc.stages.program import ProgramText
from dagc.store.schema import connect_as
from dagc.store.settings import check_fixed
from dagc.study.build import computed_of
from dagc.study.choosers import Asked, ChooserInputs, final_choosers, learn_plans, plan_chooser_record, select_of
from dagc.study.files import kernel_chooser_record
from dagc.study.gpu import NOT_COUNTED
from dagc.study.held_out import plans_of, target_of, text_of
from dagc.study.inputs import at_before
from dagc.study.prepare import AtCase, Prepared
from dagc.study.results import choosable, minimised, paid
from dagc.study.task import TuningTask, limits_of

if TYPE_CHECKING:
    from dagc.store.tuned import InputFacts, Tuned

SAME = 1e-6  # relative: a feature of two files at one input
NO_MEMORY = 0  # bytes, for a `require` on the memory of an unknown device


def join(scratch: Path, files: Sequence[Tuned]) -> None:
    """Write the facts of all inputs, and the choosers trained on them, into a file that has all samples, checks and
    runs. Raises UsageError if the files cannot be merged, or if nothing is learned."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    _check_facts(files)
    _check_samples(files)
    _write(scratch, "fact", _facts(files, _inputs(files)))
    merged = load_tuned(scratch)
    text, kinds = text_of(merged), files[0].choosers
    choosers = {PROGRAM: _of_programs(files[0], merged, text)} if PROGRAM in kinds else {}
    choosers |= _of_kernels(files, merged, text) if kinds.keys() - {PROGRAM} else {}
    _write(scratch, "chooser", choosers)


def _write(path: Path, table: str, rows: Mapping[str, Any]) -> None:
    with closing(connect_as(path, "rw")) as target:
        target.execute("BEGIN")
        target.executemany(
            f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", ((key, json.dumps(value)) for key, value in rows.items())
        )
        target.execute("COMMIT")


# ---- what must agree ------------------------------------------------------------------------


def _check_facts(tuned: Sequence[Tuned]) -> None:
    for one in tuned:
        if not one.choosers:
            raise UsageError(f"{one.path}: no chooser in it: tuning did not end", "tune again with --resume")
    first = tuned[0]
    for other in tuned[1:]:
        for name, (mine, theirs) in {n: (shown(first), shown(other)) for n, shown in _EQUAL.items()}.items():
            if mine != theirs:
                raise UsageError(f"{first.path}: {name} {mine}, {other.path}: {theirs}", _HELP[name])
        _check_choices(first, other)


_EQUAL: dict[str, Callable[[Tuned], object]] = {
    "tuned on the target": lambda one: one.facts.target,
    "tuned for the architecture": lambda one: one.facts.arch,
    "tuned on the GPU": lambda one: one.facts.gpu if one.facts.target == "cuda" else None,
    "minimises": lambda one: one.facts.objective,
    "calls that pay for a conversion:": lambda one: one.facts.calls or "not counted",
    "constraints": lambda one: "tested" if one.facts.constraints else "ignored",
    "bytes written before each launch:": lambda one: ", ".join(map(str, sorted(set(one.flushes)))),
    "chooses for": lambda one: ", ".join(sorted(one.choosers)),
    "learns by": lambda one: ", ".join(f"{c.method} ({op})" for op, c in sorted(one.choosers.items())),
}
_ELSEWHERE = "tune the other inputs on this machine; `dagc tune --warm-start` corrects a file of another one"
_HELP = {
    "tuned on the target": "merge files of one target",
    "tuned for the architecture": _ELSEWHERE,
    "tuned on the GPU": _ELSEWHERE,
    "minimises": "tune one of them again with the --objective of the other",
    "calls that pay for a conversion:": "tune one of them with `--resume --calls` as the other",
    "constraints": "tune both with --no-constraints, or none",
    "bytes written before each launch:": "tune both with --warm, or none",
    "chooses for": "tune the same ops in both, with --kernel",
    "learns by": "tune one of them with `--resume --method` as the other",
}


def _check_choices(first: Tuned, other: Tuned) -> None:
    """Compare the parameters and decisions that are neither an input nor a size of both files."""
    sizes = {name for one in (first, other) for cell, _ in one.samples for name, _ in cell.case.params}
    for mine, theirs in ((first.facts.kernels, other.facts.kernels), (first.facts.program, other.facts.program)):
        if mine is not None and theirs is not None:
            kept = ({**f, "params": {n: v for n, v in f["params"].items() if n not in sizes}} for f in (mine, theirs))
            check_fixed(first.path, *kept)


def _check_samples(tuned: Sequence[Tuned]) -> None:
    """Check that no measurement occurs twice, and that the features of all inputs are known."""
    where: dict[tuple[Any, ...], Path] = {}
    for one in tuned:
        known = {facts.case for facts in one.facts.inputs}
        if any(cell.case not in known for cell, sample in one.samples if sample.times):
            raise UsageError(
                f"{one.path} was tuned at sizes, not inputs: its set-up would have to run for their features",
                "continue in one file: `dagc tune --resume --sizes`",
            )
        for cell, sample in one.samples:
            key = (cell.site, cell.case, cell.choice, sample.times)
            if sample.times and where.setdefault(key, one.path) != one.path:
                raise UsageError(
                    f"{one.path} and {where[key]} contain the same measurements, of {cell.case.text or 'one input'}",
                    "they would count twice; leave one of the files out",
                )


# ---- inputs ---------------------------------------------------------------------------------


def _inputs(tuned: Sequence[Tuned]) -> dict[Case, InputFacts]:
    known: dict[Case, tuple[Path, InputFacts]] = {}
    for one in tuned:
        for facts in one.facts.inputs:
            path, before = known.get(facts.case, (one.path, facts))
            known[facts.case] = (path, _joined(before, facts, path, one.path))
    return {case: facts for case, (_, facts) in known.items()}


def _joined(one: InputFacts, other: InputFacts, path: Path, other_path: Path) -> InputFacts:
    """The facts of two files about an input. Raises UsageError if they contradict each other."""
    for op in one.features.keys() & other.features.keys():
        for name in one.features[op].keys() & other.features[op].keys():
            mine, theirs = one.features[op][name], other.features[op][name]
            if not math.isclose(mine, theirs, rel_tol=SAME, abs_tol=SAME):
                raise UsageError(
                    f"{one.case.text} is another input in {other_path}: `{name}` is {theirs:g}, in {path} {mine:g}",
                    "give the inputs different names, and tune one of the files again",
                )
    features = {op: other.features.get(op, {}) | of for op, of in one.features.items()}
    conversions = {op: other.conversions.get(op, {}) | of for op, of in one.conversions.items()}
    return replace(
        one, test=one.test or other.test, values=other.values | one.values, features=other.features | features,
        seconds=other.seconds | one.seconds, conversions=other.conversions | conversions,
    )  # fmt: skip


def _facts(tuned: Sequence[Tuned], inputs: Mapping[Case, InputFacts]) -> dict[str, Any]:
    from dagc.store.tuned import input_key, input_to_json  # loads msgspec, sqlite3

    data = {case: vector for one in tuned for case, vector in one.facts.program_data}
    out: dict[str, Any] = {input_key(number): input_to_json(facts) for number, facts in enumerate(inputs.values())}
    if data:
        out["program data"] = [[list(case), list(vector)] for case, vector in data.items()]
    return out


# ---- whole programs -------------------------------------------------------------------------


def _of_programs(first: Tuned, merged: Tuned, text: ProgramText) -> dict[str, Any]:
    """The chooser's record from merged files, by the method of the `first`; runs nothing. Raises UsageError if too
    little was measured."""
    stored = first.program_chooser
    assert stored is not None
    task, samples, data = plans_of(merged, stored, first.path, text)
    samples = {cell: sample for cell, sample in samples.items() if cell.case not in merged.facts.tests}
    learned = learn_plans(replace(task, seed=first.runs[0].seed), stored.method, samples, data)
    if learned.selector is None:
        raise UsageError(f"nothing was learned from the merged inputs: {'; '.join(learned.notes)}", "tune with more")
    return plan_chooser_record(task, stored.method, learned)


# ---- kernels --------------------------------------------------------------------------------


def _of_kernels(files: Sequence[Tuned], merged: Tuned, text: ProgramText) -> dict[str, Any]:
    task = _task(merged, files[0], text)
    asked = _asked(files, task)
    codes = [feature.name for feature in computed_of(task)]
    tests, known = merged.facts.tests, {one.case: one for one in merged.facts.inputs}
    ready = Prepared(task, Path()).having(*(at_before(task, one, codes, NO_MEMORY) for one in known.values()))
    objective = minimised(merged)
    calls = merged.facts.calls
    tried = {
        c: paid(c, sample, known.get(c.case), calls, objective) for c, sample in merged.samples if c.site != PROGRAM
    }
    _check_variants(files, ready)

    def allowed(at: AtCase) -> AtCase:
        """With the settings that were tried there."""
        fits = {
            op: tuple(s for s in legal if s in at.fits[op] or (op, at.case, s) in tried)
            for op, legal in task.choices.items()
        }
        return replace(at, fits=fits)

    ready = ready.having(*map(allowed, ready.at.values()))
    samples = {cell: sample for cell, sample in tried.items() if cell.case not in tests}
    stored = files[0].kernel_choosers
    hardware = next(iter(stored.values())).hardware
    inputs = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {op: c.resources for op, c in stored.items()})
    fit, _ = choosable(task, merged.checks, samples)
    final, _ = final_choosers(inputs, fit, samples, task.seed)
    return {op: kernel_chooser_record(sized.chooser, inputs) for op, sized in final.items()}


def _task(merged: Tuned, first: Tuned, text: ProgramText) -> TuningTask:
    """The tuning task at the training inputs, with the settings that were tried."""
    text = text.with_open_devices()
    graph = text.graph()
    ops = first.kernel_choosers.keys()
    tuned_sites = tuple(site for site in open_sites(graph, variants=True) if site.name in ops)
    if missing := ops - {site.name for site in tuned_sites}:
        message = f"{first.path}: chooses for `{min(missing)}`, of which nothing is open in the text that it keeps"
        raise UsageError(message, "tune again into another file")
    tried = {(cell.site, cell.choice) for cell, _ in merged.samples}
    chosen = TargetChoice(target_of(merged), merged.facts.arch, "as tuned")
    limits = limits_of(chosen)
    sites = tuple(
        replace(
            site,
            choices=tuple(
                s for s in legal_settings(graph, site, limits) if s == site.default or (site.name, s) in tried
            ),
        )
        for site in tuned_sites
    )
    cases = tuple(sorted(one.case for one in merged.facts.inputs if not one.test))
    if not cases:
        raise UsageError(f"{first.path}: no input was measured, in it or the others", "tune on a GPU, or --target host")
    features = {site.name: select_of(graph, site)[1] for site in tuned_sites}
    return TuningTask(
        text, chosen, graph, sites, cases, cases[0], first.runs[0].seed, first.runs[0].ranks,
        features=features, constraints=merged.facts.constraints,
    )  # fmt: skip


def _asked(files: Sequence[Tuned], task: TuningTask) -> dict[str, Asked]:
    """The method and the features of each op; if `--select-features` kept different ones in the files, all that its
    `select` names."""
    out = {}
    for op, stored in files[0].kernel_choosers.items():
        chosen = {c.selector.data if c.selector is not None else () for c in (f.kernel_choosers[op] for f in files)}
        out[op] = Asked(stored.method, next(iter(chosen)) if len(chosen) == 1 else task.features[op])
    return out


def _check_variants(files: Sequence[Tuned], ready: Prepared) -> None:
    """Raises UsageError if a file lacks a setting that others have although its inputs allow it (another library, or
    another `-D`, when it was tuned)."""
    for op, choices in ready.task.choices.items():
        for one in files:
            tried = {cell.choice for cell, _ in one.samples if cell.site == op}
            for choice in choices:
                cases = _where(one, op, choice, ready) if choice not in tried else []
                if cases:
                    raise UsageError(
                        f"{one.path}: {choice.in_words} of `{op}` was not measured, although"
                        f" {counted(len(cases), 'input')} would allow it ({cases[0].text})",
                        "measure it there with `dagc tune --resume`, where its library is installed",
                    )


def _where(one: Tuned, op: str, choice: Choice, ready: Prepared) -> list[Case]:
    """The inputs of a file at which the op was measured and the setting is allowed."""
    measured: Collection[Case] = {cell.case for cell, sample in one.samples if cell.site == op and sample.times}
    return sorted(p for p in measured if p in ready.at and choice in ready.at[p].fits[op])

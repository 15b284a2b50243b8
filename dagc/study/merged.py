"""`dagc merge` of tuned files: choosers trained again on the inputs of all files; runs nothing.

The program is the text in the files. The device's memory is unknown here: a variant with a `require` on the memory that
was not tried at an input counts as not allowed there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.source import Source
from dagc.build.toolchain import TargetChoice
from dagc.choice.legal import legal_settings, units
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.plan import Target
from dagc.ir.program import DEVICE
from dagc.lang.lower import parse_with_includes
from dagc.stages.program import ProgramText
from dagc.store.settings import values_fixed
from dagc.study.build import computed_of
from dagc.study.choosers import Asked, ChooserInputs, final_choosers, select_of
from dagc.study.files import kernel_chooser_record
from dagc.study.gpu import NOT_COUNTED
from dagc.study.inputs import at_before
from dagc.study.prepare import Prepared
from dagc.study.programs import learned_from
from dagc.study.results import Measurements, choosable, minimised, paid
from dagc.study.task import TuningTask, limits_of

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned

NO_MEMORY = 0  # bytes, for a `require` on the memory of an unknown device


def learned_again(files: Sequence[Tuned], merged: Tuned) -> dict[str, Any]:
    """The records of the choosers of all ops, trained on the files together. Raises UsageError."""
    text = _text_of(merged)
    kinds = files[0].choosers
    out = {PROGRAM: learned_from(merged, files[0], text)} if PROGRAM in kinds else {}
    return out | (_of_kernels(files, merged, text) if kinds.keys() - {PROGRAM} else {})


def _text_of(tuned: Tuned) -> ProgramText:
    """The program of the file, for its target, with the values that were fixed."""
    texts = dict(tuned.program.sources)
    parsed = parse_with_includes(Source(tuned.program.path, texts[tuned.program.path]), texts)
    text, _ = ProgramText(Path(tuned.program.path), parsed, {}).on(_target(tuned), here=False)
    kept = tuned.facts.kernels or tuned.facts.program
    if kept is None:
        return text
    text = text.with_defines(kept["params"])
    return text.with_defines({**text.defines, **_given(tuned, kept["decisions"], text)})


def _target(tuned: Tuned) -> Target:
    return Target(tuned.facts.target or "host")


def _given(tuned: Tuned, decisions: Mapping[str, Any], text: ProgramText) -> dict[str, Any]:
    """The decisions given by -D: no setting of the file assigns them, and they differ from the text."""
    opened = {name for c, _ in tuned.samples for name in c.choice}
    opened |= {f"{c.site}.{DEVICE}" for c, _ in tuned.samples if "." in c.choice.variant}
    as_written = values_fixed(text.program())["decisions"]
    return {name: v for name, v in decisions.items() if name not in opened and as_written.get(name, v) != v}


# ---- kernels --------------------------------------------------------------------------------


def _of_kernels(files: Sequence[Tuned], merged: Tuned, text: ProgramText) -> dict[str, Any]:
    task = _task(merged, files[0], text)
    ready, asked = Prepared(task, Path()), _asked(files, task)
    codes = [feature.name for feature in computed_of(task)]
    tests, known = merged.facts.tests, {one.case: one for one in merged.facts.inputs}
    for facts in merged.facts.inputs:
        ready.at[facts.case] = at_before(task, facts, codes, NO_MEMORY)
    objective = minimised(merged)
    calls = merged.facts.calls
    tried = {
        c: paid(c, sample, known.get(c.case), calls, objective) for c, sample in merged.samples if c.site != PROGRAM
    }
    _check_variants(files, ready)
    for case, at in ready.at.items():  # settings that were tried were allowed
        fits = {
            op: tuple(s for s in legal if s in at.fits[op] or (op, case, s) in tried)
            for op, legal in task.settings.items()
        }
        ready.at[case] = replace(at, fits=fits)
    samples = {cell: sample for cell, sample in tried.items() if cell.case not in tests}
    stored = files[0].kernel_choosers
    hardware = next(iter(stored.values())).hardware
    inputs = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {op: c.resources for op, c in stored.items()})
    fit, _ = choosable(task, merged.checks, samples)
    final, _ = final_choosers(inputs, fit, Measurements(samples, dict(merged.checks), []), task.seed)
    return {op: kernel_chooser_record(sized.chooser, inputs) for op, sized in final.items()}


def _task(merged: Tuned, first: Tuned, text: ProgramText) -> TuningTask:
    """The tuning task at the training inputs, with the settings that were tried."""
    text = text.with_open_devices()
    graph = text.graph()
    ops = first.kernel_choosers.keys()
    tuned_units = tuple(unit for unit in units(graph, variants=True) if unit.op in ops)
    if missing := ops - {unit.op for unit in tuned_units}:
        message = f"{first.path}: chooses for `{min(missing)}`, of which nothing is open in the text that it keeps"
        raise UsageError(message, "tune again into another file")
    tried = {(cell.site, cell.choice) for cell, _ in merged.samples}
    chosen = TargetChoice(_target(merged), merged.facts.arch, "as tuned")
    limits = limits_of(chosen)
    settings = {
        unit.op: tuple(s for s in legal_settings(graph, unit, limits) if s == unit.default or (unit.op, s) in tried)
        for unit in tuned_units
    }
    cases = tuple(sorted(one.case for one in merged.facts.inputs if not one.test))
    features = {unit.op: select_of(graph, unit)[1] for unit in tuned_units}
    return TuningTask(
        text, chosen, graph, tuned_units, cases, settings, cases[0], first.runs[0].seed, first.runs[0].ranks,
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
    for op, settings in ready.task.settings.items():
        for one in files:
            tried = {cell.choice for cell, _ in one.samples if cell.site == op}
            for setting in settings:
                cases = _where(one, op, setting, ready) if setting not in tried else []
                if cases:
                    raise UsageError(
                        f"{one.path}: {setting.in_words} of `{op}` was not measured, although"
                        f" {counted(len(cases), 'input')} would allow it ({cases[0].text})",
                        "measure it there with `dagc tune --resume`, where its library is installed",
                    )


def _where(one: Tuned, op: str, setting: Choice, ready: Prepared) -> list[Case]:
    """The inputs of a file at which the op was measured and the setting is allowed."""
    measured: Collection[Case] = {cell.case for cell, sample in one.samples if cell.site == op and sample.times}
    return sorted(p for p in measured if p in ready.at and setting in ready.at[p].fits[op])

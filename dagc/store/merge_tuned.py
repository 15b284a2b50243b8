"""Merging tuned files: one selector from training sessions at different inputs.

All facts that the times depend on must agree: the target, the GPU, the objective, parameters and decisions. An input
that is a test input in any file is not used for training. An input of several files has the times of all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.store.schema import connect_as
from dagc.store.settings import check_fixed
from dagc.store.tuned import InputFacts, Tuned, input_key, input_to_json, load_tuned

if TYPE_CHECKING:
    from dagc.choice.types import Case

# From the files and their merged content: the record of a chooser, by op.
Learn = Callable[[Sequence[Tuned], Tuned], Mapping[str, Any]]
SAME = 1e-6  # relative: a feature of two files at one input


def write_tuned(scratch: Path, tuned: Sequence[Tuned], learn: Learn) -> None:
    """Write the facts of all inputs, and the choosers trained on them, into a file that has all cells, checks and runs.
    Raises UsageError if the files cannot be merged."""
    _check_facts(tuned)
    _check_cells(tuned)
    inputs = _inputs(tuned)
    _write(scratch, "fact", _facts(tuned, inputs))
    _write(scratch, "chooser", learn(tuned, load_tuned(scratch)))


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


def _check_cells(tuned: Sequence[Tuned]) -> None:
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
    data = {case: vector for one in tuned for case, vector in one.facts.program_data}
    out: dict[str, Any] = {input_key(number): input_to_json(facts) for number, facts in enumerate(inputs.values())}
    if data:
        out["program data"] = [[list(case), list(vector)] for case, vector in data.items()]
    return out

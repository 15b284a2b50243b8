"""Metrics besides time, one file each: `energy.py` defines the metric `energy`.

A file defines

    SUMMARY                   a short description
    UNIT                      of its values
    AMOUNT                    what its values are (`Amount`): a sum over the iterations (the default), or a peak
    SECONDS                   the least length of a repetition that is measured
    why_not(target, program)  why it cannot be measured here for "host" or "cuda", and a help; None if it can. Called
                              before anything is compiled
    Observer                  created on each rank, with its library open; `start()` and `stop()` enclose the
                              repetition, or each of its parts. `stop` returns amounts by the name of the measured
                              device: equal names on several ranks count once
    combine                   the value of all ranks from these amounts: `sum`, or `max`

A metric of what a run computes has, instead of `Observer`,

    of_results(runner)        its amounts, after one run from the data of the set-up was compared with the references

Adding one needs no other file. What the program itself returns is a metric too (`Output`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.base.resources import names_in
from dagc.base.sample import OCCUPANCY, Objective, parse_objective
from dagc.ir.enums import Role
from dagc.ir.sym import Const

if TYPE_CHECKING:
    from dagc.ir.program import Program
    from dagc.measure.runner import Runner

_WRITTEN = (Role.OUT, Role.INOUT)


class Amount(Enum):
    """What an observer's values are: how those of the parts of a repetition are joined, and what an iteration has."""

    SUM = "grows with the iterations: parts are added, and an iteration has its share"  # energy, CPU time
    PEAK = "a level: the largest of the parts is that of an iteration"  # memory, power

    def joined(self, parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The amounts of a repetition by the name of the device, from those of its parts."""
        join = sum if self is Amount.SUM else max
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: float(join(part[name] for part in parts if name in part)) for name in names}

    def of_one(self, amount: float, iterations: int) -> float:
        """The amount of an iteration, from that of a repetition."""
        return amount / iterations if self is Amount.SUM else amount


@dataclass(frozen=True, slots=True)
class Output:
    """The metric that an output of the program is: the value of an array of one element after one run from the data of
    the set-up, the largest of all ranks."""

    name: str
    SUMMARY: ClassVar[str] = "an output of the program, of one element"
    UNIT: ClassVar[str] = ""
    SECONDS: ClassVar[float] = 0.0

    def why_not(self, target: str, program: Program) -> tuple[str, str] | None:
        return None

    def of_results(self, runner: Runner) -> dict[str, float]:
        return {"results": runner.first(self.name)}

    def combine(self, values: Iterable[float]) -> float:
        """Raises RunFailed for a value that an objective cannot have."""
        largest = max(values)
        if not 0 < largest < math.inf:
            raise RunFailed(f"output `{self.name}` is {largest:g}; an objective is a number above 0")
        return largest


def _files() -> tuple[str, ...]:
    return tuple(name.replace("-", "_") for name in names_in("measure/metrics"))


def metric(name: str) -> Any:
    """The module of a metric, or an output of the program."""
    return importlib.import_module(f"dagc.measure.metrics.{name}") if name in _files() else Output(name)


def units(program: Program | None = None) -> dict[str, str]:
    """The unit of every metric, including `time`, and the outputs of one element of a program."""
    known = {"time": "s"} | {name: metric(name).UNIT for name in _files()}
    single = (Const(1),)
    outputs = (a.name for a in program.arrays if a.role in _WRITTEN and a.dims == single) if program else ()
    return dict.fromkeys(outputs, "") | known


def summaries() -> tuple[tuple[str, str, str], ...]:
    """(name, unit, description) of every metric."""
    observers = tuple((name, unit, metric(name).SUMMARY) for name, unit in units().items() if name != "time")
    return (("time", "s", "seconds of an iteration, the maximum over the ranks"), *observers)


def objective_for(text: str, target: str, program: Program, *, computed: bool = False) -> Objective:
    """`computed`: whether it may be the occupancy. Raises UsageError for an invalid objective, MissingTool if one of
    its metrics cannot be measured here."""
    objective = parse_objective(text, units(program))
    if objective is OCCUPANCY and (not computed or target == "host"):
        what = "occupancy is computed for the launch settings of kernels on a GPU, and not measured"
        raise UsageError(what, "use `dagc tune --target cuda` at --sizes, or another --objective")
    for name in observed(objective):
        why = metric(name).why_not(target, program)
        if why is not None:
            raise MissingTool(f"{name} cannot be measured: {why[0]}", why[1])
    return objective


def observed(objective: Objective) -> tuple[str, ...]:
    """The metrics of an objective that need an observer."""
    return tuple(name for name in objective.metrics if name != "time")


def of_results(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics of an objective that are computed from the results of a run."""
    return tuple(name for name in names if hasattr(metric(name), "of_results"))


def outputs(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics of an objective that are outputs of the program."""
    return tuple(name for name in names if isinstance(metric(name), Output))


def least_seconds(names: Sequence[str]) -> float:
    """The least length of a repetition that suffices for all metrics of an objective, in seconds."""
    return max((float(metric(name).SECONDS) for name in names), default=0.0)

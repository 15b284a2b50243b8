"""What the tables and tiles of the report say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from dagc.base.errors import counted
from dagc.ir.graph import Graph
from dagc.lab.orders import domain_of
from dagc.report import si
from dagc.report.best import interval_text
from dagc.report.charts import class_colour
from dagc.report.measured import Group, Point
from dagc.store.results import Configuration, Results, shown

if TYPE_CHECKING:
    from dagc.learn.rules import LearnedRules, RuleSet


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure of the headline."""

    name: str
    value: str
    note: str = ""


def summary_tiles(
    results: Results,
    points: Sequence[Point],
    best: Point | None,
    groups: Sequence[Group],
    graphs: Mapping[Configuration, Graph],
) -> list[Tile]:
    """The best time, how much faster it is, how much was measured, how sure it is."""
    if best is None:
        return [Tile("best", "none", "nothing could be measured")]
    middle, worst = points[len(points) // 2], points[-1]
    measured = sum(len(p.times) for p in points)
    space = domain_of((g.configuration, graphs[g.configuration]) for g in groups if g.configuration in graphs)
    size = space.size()
    of = f"of more than {si.about(space.more_than())}" if size is None else f"of {si.count(size)}"
    reference = "" if math.isnan(results.reference) else "drift divided out"
    return [
        Tile("best", si.seconds(best.seconds), interval_text(best)),
        Tile("the median takes", si.times(middle.seconds / best.seconds), si.seconds(middle.seconds)),
        Tile("the worst takes", si.times(worst.seconds / best.seconds), si.seconds(worst.seconds)),
        Tile("implementations", si.count(len(points)), of),
        Tile("measurements", si.count(measured), reference),
        Tile("noise floor", si.percent(results.noise), "standard deviation of one measurement"),
    ]


# ---- classes and rules ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleSetView:
    """`share`: of the implementations that follow the rules, how many are of the class, as far as noise can tell."""

    samples: int
    sufficient: bool
    share: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassView:
    number: int
    colour: str
    count: int
    fastest: str
    slowest: str
    width: str
    rule_sets: tuple[RuleSetView, ...]
    text: str


def class_views(learned: LearnedRules) -> list[ClassView]:
    """The classes, fastest first, each with the rule sets that lead to it."""
    sets = {number: list(group) for number, group in groupby(learned.rule_sets, key=lambda r: r.number)}
    classes = learned.classes.classes
    out = []
    for each in classes:
        mine = tuple(_rule_set(rule_set) for rule_set in sets.get(each.number, ()))
        out.append(
            ClassView(
                each.number + 1, class_colour(each.number, len(classes)), each.count, si.seconds(each.fastest),
                si.seconds(each.slowest), si.percent(each.width), mine, _as_text(each.number + 1, mine),
            )
        )  # fmt: skip
    return out


def _rule_set(rule_set: RuleSet) -> RuleSetView:
    share = 1 - rule_set.wrong / rule_set.samples
    return RuleSetView(
        rule_set.samples, rule_set.sufficient, si.percent(share), tuple(rule.text for rule in rule_set.rules)
    )


def _as_text(number: int, sets: Sequence[RuleSetView]) -> str:
    """What the button copies."""
    blocks = (
        "\n".join((f"class {number}, {counted(found.samples, 'sample')}:", *(f"  {rule}" for rule in found.rules)))
        for found in sets
    )
    return "\n\n".join(blocks)


# ---- tables ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    rank: int
    seconds: str
    slower: str
    interval: str
    colour: int
    configuration: str
    traversal: str


def fastest_rows(points: Sequence[Point], groups: Sequence[Group]) -> list[Row]:
    by = {group.configuration: group for group in groups}
    out = []
    for rank, p in enumerate(points):
        group = by[p.implementation.configuration]
        slower = "" if rank == 0 else f"+{si.percent(p.seconds / points[0].seconds - 1)}"
        row = Row(
            rank, si.seconds(p.seconds), slower, interval_text(p), group.colour, group.label, p.implementation.traversal
        )
        out.append(row)
    return out


def curve_names(results: Results) -> list[str]:
    """What each run is called in the plot of the search."""
    return [f"run {i + 1}: {run.strategy}, seed {run.seed}" for i, run in enumerate(results.runs)]


@dataclass(frozen=True, slots=True)
class RunView:
    name: str
    rows: tuple[tuple[str, str], ...]


def provenance(results: Results) -> list[RunView]:
    """All that is recorded of how each run measured. Options at their default are no less said than others."""
    out = []
    for name, run in zip(curve_names(results), results.runs, strict=True):
        machine = run.machine
        rows = [
            ("started", run.started),
            ("hosts", ", ".join(machine.hosts)),
            ("CPU", f"{machine.cpu}, {si.ordinary(machine.cores, 'core')}"),
            ("GPUs", _counted(machine.gpus) or "none"),
            ("driver", machine.driver or "not recorded"),
            ("MPI", machine.mpi),
            ("target", f"{machine.target} {machine.arch}".strip()),
            ("ranks", str(run.ranks)),
            ("one measurement", f"at least {si.seconds(run.seconds)}"),
            ("noise, measured first", si.percent(run.noise)),
            ("strategy, seed", f"{run.strategy}, {run.seed}"),
            ("revision of the program", run.revision or "not known: no git, or not under it"),
            ("dagc", run.version),
        ]
        rows += [(key, _fact(value)) for key, value in sorted(machine.facts.items())]
        rows += [(_option(key), _fact(value)) for key, value in sorted(run.options.items()) if key != "fixed"]
        out.append(RunView(name, tuple(rows)))
    return out


# What the command line calls an option that a run keeps, where that is another word.
_OPTIONS = {
    "most": "--max", "most_configurations": "--max-configurations", "opened": "--open", "transport": "--transport",
    "setup": "digest of the set-up", "trace": "traced",
}  # fmt: skip


def _option(key: str) -> str:
    """As the command line has it: `--mpi-takes-device-pointers`."""
    return _OPTIONS.get(key, f"--{key.replace('_', '-')}")


def _counted(names: Sequence[str]) -> str:
    """`4 x NVIDIA H200`, with the sign for it."""
    return ", ".join(f"{len(list(same))} \u00d7 {name}" for name, same in groupby(names))


def _fact(value: object) -> str:
    if isinstance(value, bool | str | int | float):
        return shown(value) or "none"
    return (
        "none" if value is None or value == [] else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    )

"""Results files of several inputs of one program, joined by input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.ir.program import ExchangeOp, shown
from dagc.ir.sym import Const
from dagc.learn.across import Input
from dagc.study.loaded import Loaded

if TYPE_CHECKING:
    from dagc.ir.program import Graph, Value


FEWEST_SAMPLES = 20  # least implementations of an input


def check_joinable(files: Sequence[Loaded]) -> None:
    first = files[0]
    for other in files[1:]:
        one, two = first.results.program, other.results.program
        if not one.has_text_of(two):
            what = f"two versions of `{one.name}`" if one.name == two.name else f"`{one.name}` and `{two.name}`"
            raise UsageError(
                f"{first.path} and {other.path} hold results of {what}",
                "join files of one program text; its parameters may differ",
            )
        if first.results.objective.text != other.results.objective.text:
            raise UsageError(
                f"{first.path} was searched for {first.results.objective.text}, {other.path} for"
                f" {other.results.objective.text}",
                "choose what to compare: --objective time",
            )
    where: dict[tuple[object, ...], str] = {}
    for loaded in files:
        for mine in {
            (r.started, r.strategy, r.seed, loaded.path if math.isnan(r.noise) else r.noise)
            for r in loaded.results.runs
        }:  # a measured noise floor identifies a run as well as a serial number
            if mine in where:
                raise UsageError(
                    f"{loaded.path} and {where[mine]} hold the same run, begun {mine[0]}",
                    "its measurements would count twice; leave one of them out",
                )
            where[mine] = loaded.path
        count = len(loaded.results.measured())
        if count < FEWEST_SAMPLES:
            raise UsageError(
                f"{loaded.path} has {counted(count, 'measured implementation')}, rules across inputs need"
                f" {FEWEST_SAMPLES} of each",
                "measure more with `dagc explore --resume`, or leave it out",
            )


def inputs_of(names: Sequence[str], files: Sequence[Loaded]) -> tuple[Input, ...]:
    joined: dict[tuple[object, ...], list[int]] = {}
    for number, loaded in enumerate(files):
        run = loaded.results.runs[0]
        arrays = run.options.get("data")
        joined.setdefault((loaded.results.program.params, arrays, run.seed, run.ranks, run.machine.key), []).append(
            number
        )
    facts = {key: _facts(files[members[0]]) for key, members in joined.items()}
    out = []
    for key, members in joined.items():
        given = sorted({names[k] for k in members} - {""})
        if len(given) > 1:
            raise UsageError(f"{files[members[0]].path} has two names: {', '.join(given)}", "give one input one name")
        name = given[0] if given else _name(facts[key], list(facts.values()))
        samples = tuple(sample for k in members for sample in files[k].samples())
        noise = max((files[k].results.noise for k in members), key=lambda n: -1.0 if math.isnan(n) else n)
        out.append((name, Input(name, facts[key], samples, noise), members))
    for name, _, members in out:
        others = [m for other, _, m in out if other == name and m is not members]
        if others:
            raise UsageError(
                f"{files[members[0]].path} and {files[others[0][0]].path} are two inputs that no recorded value"
                f" distinguishes ({name or 'the same parameters and machine'})" if not names[members[0]] else
                f"two inputs have the name {name}",
                "name each input: NAME=FILE",
            )  # fmt: skip
    return tuple(one for _, one, _ in out)


def _facts(loaded: Loaded) -> tuple[tuple[str, Value], ...]:
    """The parameters, the size of the largest message if the program fixes it, and the machine."""
    run = loaded.results.runs[0]
    machine, bytes_ = run.machine, max(map(message_bytes, loaded.graphs.values()), default=0)
    return (
        *loaded.results.program.params, *([("message bytes", bytes_)] if bytes_ else []), ("ranks", run.ranks),
        ("GPU", machine.gpus[0] if machine.gpus else "none"), ("CPU", machine.cpu), ("target", machine.target),
    )  # fmt: skip


def message_bytes(graph: Graph) -> int:
    """Size of the largest message between two ranks, 0 if it is not known before the set-up has run."""
    program, largest = graph.program, 0
    arrays = {array.name: array for array in program.arrays}
    for message in (m for op in program.ops if isinstance(op, ExchangeOp) for m in op.messages):
        region = message.send
        array = arrays[region.array]
        bounds = [region.start, region.stop] if region.start is not None else []
        sizes = [d.value if isinstance(d, Const) else None for d in (*array.dims, *bounds)]
        if message.send_counts is not None or any(size is None for size in sizes):
            return 0
        numbers = [int(size) for size in sizes if size is not None]
        if bounds:
            numbers = [numbers[-1] - numbers[-2], *numbers[1:-2]]
        largest = max(largest, math.prod(numbers) * array.type.size)
    return largest


def _name(facts: tuple[tuple[str, Value], ...], all_facts: Sequence[tuple[tuple[str, Value], ...]]) -> str:
    """A name that distinguishes it from the others: as many of the differing facts as necessary."""
    differ = [(n, v) for n, v in facts if any(dict(other).get(n) != v for other in all_facts)]
    count = next((k for k in range(1, len(differ) + 1) if _bearers(differ[:k], all_facts) == 1), len(differ))
    return " ".join(f"{n}={shown(v)}" for n, v in differ[:count])


def _bearers(some: Sequence[tuple[str, Value]], all_facts: Sequence[tuple[tuple[str, Value], ...]]) -> int:
    return sum(all(fact in facts for fact in some) for facts in all_facts)

"""Ops that are placed together: the placement that is chosen at an input, and the times of programs under each."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.choice.placement import (
    DEVICE,
    HOST,
    DeviceLink,
    Placement,
    Problem,
    Transfer,
    Transfers,
    Value,
    fit_transfer,
    place,
)
from dagc.ir.choice import VARIANT, Choice
from dagc.ir.plan import places_together, users_of, values_of
from dagc.ir.program import DP, Device, Devices, Program, device_name, device_named
from dagc.ir.sym import evaluate
from dagc.lab.launches import BATCH
from dagc.measure.machine import measured_transfers
from dagc.measure.service import RanksDied, one_line
from dagc.study.inputs import Inputs
from dagc.study.judge import judge
from dagc.study.prepare import AtCase, array_bytes
from dagc.study.train import noise_of_best

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.study.judge import Judged


TOGETHER = "placed together"
MOST = 1024  # up to so many placements are all timed; of more, only those near the chosen one
ROUNDS = 3  # timings of each placement, in random order

Answers = Mapping[str, tuple[Choice | None, ...]]  # by op: on the host, on each GPU


@dataclass(frozen=True, slots=True)
class PlacedAt:
    """The placement problem at one input, as in the emitted program (`dagc::Placing`), and the answer of each placed op
    on each side. `ops`: the users of two-sided arrays, `values`: arrays with the ops that write them, in the order of
    the problem."""

    problem: Problem
    ops: tuple[str, ...]
    answers: Answers
    values: tuple[str, ...]

    @property
    def free(self) -> tuple[int, ...]:
        """The ops that can run on more than one side, by number."""
        return tuple(i for i in range(len(self.ops)) if len(self.sides(i)) > 1)

    def sides(self, op: int) -> tuple[int, ...]:
        """The sides on which an op can run."""
        return tuple(side for side, seconds in enumerate(self.problem.seconds[op]) if seconds < math.inf)

    def only(self, side: int) -> Placement:
        """All ops that can be on one side, placed there; others where they are fastest."""
        both = zip(self.problem.seconds, self.problem.alone, strict=True)
        return tuple(side if row[side] < math.inf else fastest for row, fastest in both)

    def choices(self, placement: Placement) -> dict[str, Choice]:
        """The choice at each placed op."""
        sides = dict(zip(self.ops, placement, strict=True))
        placed = {op: every[sides[op]] for op, every in self.answers.items()}
        return {op: choice for op, choice in placed.items() if choice is not None}


def placed_at(program: Program, at: AtCase, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedAt:
    """An op whose chooser takes the default has the first allowed answer as its only one."""
    rows: list[tuple[float, ...]] = []
    answers: dict[str, tuple[Choice | None, ...]] = {}
    users, every = users_of(program), range(program.devices.sides)
    for op in users:
        chooser = choosers.get(op.site) if op.placed else None
        if chooser is None:
            rows.append(tuple(0.0 if side == Devices.side(op.device, op.unit) else math.inf for side in every))
            continue
        expected = _answers(chooser, at)
        answers[op.name] = tuple(expected[side][1] if side in expected else None for side in every)
        rows.append(tuple(expected[side][0] if side in expected else math.inf for side in every))
    number = {op.name: i for i, op in enumerate(users)}
    values, every_value = [], values_of(program)
    for v in every_value:
        if v.bytes is not None:
            bytes = evaluate(v.bytes, at.scalars)
        else:
            bytes = array_bytes(program, at.scalars, at.data, v.array)
        producer = None if v.producer is None else number[v.producer]
        readers = tuple(dict.fromkeys(number[r] for r in v.readers))
        ends = (HOST,) if v.ends_on_host else ()
        values.append(Value(producer, readers, transfers.moves(float(bytes), len(every)), ends=ends))
    names = tuple(v.array if v.producer is None else f"{v.array} of {v.producer}" for v in every_value)
    return PlacedAt(Problem(tuple(rows), tuple(values)), tuple(op.name for op in users), answers, names)


def _answers(chooser: Chooser, at: AtCase) -> dict[int, tuple[float, Choice]]:
    """The best answer on each side, if there is one, with its expected seconds."""
    predicted, (_, reason) = chooser.predict(at.values), chooser.decide(at.values)
    legal = set(at.fits[chooser.op])
    out: dict[int, tuple[float, Choice]] = {}
    for seconds, choice in zip(predicted, chooser.choices, strict=True):
        side = _side(choice)
        if choice in legal and seconds < out.get(side, (math.inf,))[0]:
            out[side] = seconds, choice
    if out and reason.value in ("chosen", "avoided"):
        return out
    allowed = (pair for pair in zip(predicted, chooser.choices, strict=True) if pair[1] in legal and pair[0] < math.inf)
    seconds, choice = next(allowed, (0.0, chooser.choices[0]))
    return {_side(choice): (seconds, choice)}


def _side(choice: Choice) -> int:
    return Devices.side(*device_named(choice.variant.partition(".")[0]))


def word(side: int) -> str:
    """`cpu`, `gpu`, `gpu1`."""
    return device_name(Device.CPU, 0) if side == HOST else device_name(Device.GPU, side - 1)


@dataclass(slots=True)
class PlacedPrograms:
    """Times whole programs at the test inputs, under each of the compared placements."""

    inputs: Inputs
    choosers: Mapping[str, Chooser]
    transfers: Transfers
    names: list[str]  # of the placements, by number
    times: dict[str, dict[int, float]]  # by input
    chosen: dict[str, int]
    fixed: dict[str, dict[int, int]]  # the numbers of GPU only and CPU only, by input and side
    failures: dict[str, dict[int, str]]  # why placements failed, by input
    noise: dict[str, float]  # relative noise of comparing the two fastest, by input
    moves: list[MovedValues]  # at each input

    @classmethod
    def of(cls, inputs: Inputs, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedPrograms:
        return cls(inputs, choosers, transfers, [], {}, {}, {}, {}, {}, [])

    def time(self, at: AtCase) -> str:
        """Time at one input, whose arrays are loaded. Returns "" or why the program does not run there, however its ops
        are placed."""
        program = self.inputs.task.graph_at(at.case).program
        placed = placed_at(program, at, self.choosers, self.transfers)
        best = place(placed.problem).placement
        wanted = list(dict.fromkeys((placed.only(DEVICE), placed.only(HOST), best, *_others(placed, best))))
        seconds: dict[Placement, list[float]] = {p: [] for p in wanted}
        failed: dict[Placement, str] = {}
        order = random.Random(f"{self.inputs.task.seed} {at.case.text}")
        for _ in range(ROUNDS):
            order.shuffle(wanted)
            for placement in (p for p in wanted if p not in failed):
                answer = self._measured(at, placed, placement, seconds[placement])
                if "seconds" in answer:
                    seconds[placement].append(answer["seconds"])
                else:
                    failed[placement] = one_line(str(answer.get("error") or answer.get("wrong")))
        for placement in failed:
            del seconds[placement]
        if not seconds:
            return next(iter(failed.values()))
        name = at.case.text or "as given"
        self.failures[name] = {self._number(placed, p): why for p, why in failed.items()}
        self.times[name] = {self._number(placed, p): median(times) for p, times in seconds.items()}
        self.noise[name] = noise_of_best([(min(t), median(t), max(t)) for t in seconds.values()])
        self.chosen[name] = self._number(placed, best)
        self.moves.append(MovedValues.of(placed.problem, best, placed.values))
        self.fixed[name] = {side: self._number(placed, placed.only(side)) for side in (HOST, DEVICE)}
        return ""

    def _measured(self, at: AtCase, placed: PlacedAt, placement: Placement, before: Sequence[float]) -> dict[str, Any]:
        run, program = self.inputs.run, self.inputs.run.program(at.case)
        chosen = placed.choices(placement)
        values = [pair for op, site in run.sites.items() for pair in run.decisions(site, chosen.get(op, run.base[op]))]
        try:
            return self.inputs.service.ask(
                program.library, do="measure", rows=program.rows, settings=values, check=False, recheck=False,
                seconds=BATCH, guess=before[-1] if before else 0.0,
                limit=self.inputs.timing.allowed(before[-1] if before else None),
            )  # fmt: skip
        except RanksDied as death:
            return {"error": str(death)}

    def _number(self, placed: PlacedAt, placement: Placement) -> int:
        """The number of a placement, by its text: the side of each placed op."""
        sides = dict(zip(placed.ops, placement, strict=True))
        text = ", ".join(f"{op} {word(sides[op])}" for op in placed.answers)
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def judged(self) -> tuple[Judged, tuple[Choice, ...], tuple[str, ...]]:
        """The figures of the placements, the meaning of each number, and the speed of one device alone."""
        inputs = list(self.times)
        figures = judge(
            inputs, [self.times[n] for n in inputs], [self.chosen[n] for n in inputs],
            tolerance=[self.noise[n] for n in inputs], failures=[self.failures[n] for n in inputs],
        )  # fmt: skip
        choices = tuple(Choice.at("dag", [(VARIANT, name)]) for name in self.names)
        alone = [self._faster_than(side) for side in (DEVICE, HOST)]
        faster = f"{alone[0]} times as fast as GPU only, {alone[1]} times as CPU only (ratios of sums)"
        return figures, choices, (faster, f"transfers of {moves_text(self.moves)}")

    def _faster_than(self, side: int) -> str:
        """The ratio of the sums of the times with all ops on one side and as they were placed, over the inputs at which
        both run."""
        both = [
            (of[self.fixed[name][side]], of[self.chosen[name]])
            for name, of in self.times.items()
            if self.fixed[name][side] in of and self.chosen[name] in of
        ]
        return f"{sum(a for a, _ in both) / sum(b for _, b in both):.3f}" if both else "-"


@dataclass(frozen=True, slots=True)
class MovedValues:
    """The transfers of a placement: the number and name of each value that is moved; how many transfers, and how many
    with each op on its fastest device."""

    moved: tuple[tuple[int, object], ...]
    planned: int
    alone: int

    @classmethod
    def of(cls, problem: Problem, placement: Placement, names: Sequence[object]) -> MovedValues:
        planned, alone = problem.transfers(placement), problem.transfers(problem.alone)
        moved = tuple(pair for pair, times in zip(enumerate(names), planned, strict=True) if times)
        return cls(moved, sum(planned), sum(alone))


def moves_text(every: Sequence[MovedValues]) -> str:
    """At which share of the inputs each value is moved; the transfers in all, and how many are saved at how many inputs
    (figure 7 of MLCD)."""
    moved = Counter(value for one in every for value in one.moved)
    shares = (f"{name}: {100 * times / len(every):.0f} %" for (_, name), times in sorted(moved.items()))
    planned, alone = sum(one.planned for one in every), sum(one.alone for one in every)
    saved = Counter(one.alone - one.planned for one in every)
    counts = ", ".join(f"{many} at {saved[many]}" for many in sorted(saved))
    return (
        f"{', '.join(shares) or 'nothing'}; {planned} transfers, {alone} by the fastest device of each op alone; saved:"
        f" {counts}"
    )


def _others(placed: PlacedAt, best: Placement) -> Iterator[Placement]:
    """All placements; of many, those that differ from the chosen one in one op."""
    sides = [placed.sides(i) for i in range(len(best))]
    if math.prod(map(len, sides)) > MOST:
        yield from ((*best[:i], side, *best[i + 1 :]) for i in placed.free for side in sides[i])
    else:
        yield from product(*sides)


Links = Mapping[tuple[int, int], Transfer]


def links_given(program: Program, given: Sequence[tuple[str, str, float, float]]) -> Links:
    """Those of `--links`. Raises UsageError for a program that does not use them, or does not have the devices."""
    sides = {word(side): side for side in range(program.devices.sides)}
    if given and not places_together(program):
        raise UsageError("--links has no effect", f"write `select device with {DP}()` in the dag, or drop it")
    for source, target, *_ in given:
        if source == target or not {source, target} <= sides.keys():
            message = f"--links: `{source}-{target}`: a link is between two of {', '.join(sides)}"
            raise UsageError(message, "`devices gpu NUMBER` in the program gives a rank more GPUs")
    return {(sides[source], sides[target]): Transfer(*time) for source, target, *time in given}


def transfers_here(
    target: str, arch: str, pageable: bool = False, gpus: int = 1, given: Links = MappingProxyType({})
) -> Transfers:
    """The times of transfers between the host and the first GPUs of this machine: `given`, or measured and fitted."""
    measured = measured_transfers(target, arch, pageable, gpus)
    times = {way: fit_transfer(of) for way, of in measured.items()} | dict(given)
    first = (times.pop((HOST, DEVICE)), times.pop((DEVICE, HOST)))
    return Transfers(*first, tuple(DeviceLink(*way, time) for way, time in times.items()))

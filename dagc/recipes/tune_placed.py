"""`dagc tune --evaluate` of ops that are placed together: whole programs, timed under every placement."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.choice.placement import DEVICE, HOST, Placement, Problem, Transfers, Value, place
from dagc.choice.types import Settings, variant_of
from dagc.ir.plan import VARIANT
from dagc.ir.program import Device
from dagc.ir.sym import evaluate
from dagc.ir.values import users_of, values_of
from dagc.lab.launches import BATCH, LIMIT
from dagc.measure.link import RanksDied
from dagc.measure.service import one_line
from dagc.setup.arrays import elements, file_name

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.choice.judge import Judged
    from dagc.ir.program import Program
    from dagc.recipes.tune_inputs import Inputs
    from dagc.recipes.tune_prepare import AtPoint

TOGETHER = "placed together"
MOST = 10  # ops of which every placement is timed; of more, those near the chosen one
ROUNDS = 3  # times of each placement, in random order
SIDES = {Device.CPU: HOST, Device.GPU: DEVICE}
WORDS = {HOST: "cpu", DEVICE: "gpu"}

Answers = Mapping[str, tuple[Settings | None, Settings | None]]  # by op: on the host, on the device


@dataclass(frozen=True, slots=True)
class PlacedAt:
    """The problem at one input, as the emitted program has it (`dagc::Placing`), and what each placed op does on each
    side. `ops`: the users of two-sided arrays, in the order of the problem."""

    problem: Problem
    ops: tuple[str, ...]
    answers: Answers

    @property
    def free(self) -> tuple[int, ...]:
        """The ops that can run on either side, by number."""
        return tuple(i for i, row in enumerate(self.problem.seconds) if max(row) < math.inf)

    def only(self, side: int) -> Placement:
        """All ops on one side that can be there."""
        return tuple(side if row[side] < math.inf else 1 - side for row in self.problem.seconds)

    def settings(self, placement: Placement) -> dict[str, Settings]:
        """What each placed op does."""
        sides = dict(zip(self.ops, placement, strict=True))
        placed = {op: both[sides[op]] for op, both in self.answers.items()}
        return {op: settings for op, settings in placed.items() if settings is not None}


def placed_at(program: Program, at: AtPoint, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedAt:
    """An op whose chooser takes the default has the first that is allowed as its only answer."""
    rows: list[tuple[float, float]] = []
    answers: dict[str, tuple[Settings | None, Settings | None]] = {}
    users = users_of(program)
    for op in users:
        chooser = choosers.get(op.site) if op.placed else None
        if chooser is None:
            rows.append(_row({SIDES[op.device]: 0.0}))
            continue
        expected = _answers(chooser, at)
        on_host, on_device = (expected[side][1] if side in expected else None for side in (HOST, DEVICE))
        answers[op.name] = on_host, on_device
        rows.append(_row({side: seconds for side, (seconds, _) in expected.items()}))
    number = {op.name: i for i, op in enumerate(users)}
    values = []
    for v in values_of(program):
        bytes = evaluate(v.bytes, at.scalars) if v.bytes is not None else _bytes_of(program, at, v.array)
        producer = None if v.producer is None else number[v.producer]
        readers = tuple(dict.fromkeys(number[r] for r in v.readers))
        ends = (HOST,) if v.ends_on_host else ()
        values.append(Value(producer, readers, transfers.moves(float(bytes)), ends=ends))
    return PlacedAt(Problem(tuple(rows), tuple(values)), tuple(op.name for op in users), answers)


def _answers(chooser: Chooser, at: AtPoint) -> dict[int, tuple[float, Settings]]:
    """The best answer on each side where there is one, with its expected seconds."""
    predicted, (_, reason) = chooser.predict(at.values), chooser.decide(at.values)
    legal = set(at.fits[chooser.op])
    out: dict[int, tuple[float, Settings]] = {}
    for seconds, settings in zip(predicted, chooser.settings, strict=True):
        side = _side(settings)
        if settings in legal and seconds < out.get(side, (math.inf,))[0]:
            out[side] = seconds, settings
    if out and reason.value == "chosen":
        return out
    allowed = (
        pair for pair in zip(predicted, chooser.settings, strict=True) if pair[1] in legal and pair[0] < math.inf
    )
    seconds, settings = next(allowed, (0.0, chooser.settings[0]))
    return {_side(settings): (seconds, settings)}


def _side(settings: Settings) -> int:
    return SIDES[Device(variant_of(settings).partition(".")[0])]


def _row(seconds: Mapping[int, float]) -> tuple[float, float]:
    return seconds.get(HOST, math.inf), seconds.get(DEVICE, math.inf)


def _bytes_of(program: Program, at: AtPoint, name: str) -> float:
    """Of an array whose size comes with its data."""
    array = next(a for a in program.arrays if a.name == name)
    return float(elements(at.data / "rank-0000" / f"{file_name(name)}.npy") * array.type.size)


@dataclass(slots=True)
class PlacedPrograms:
    """Times whole programs at the test inputs, each under the placements that are to be compared."""

    inputs: Inputs
    choosers: Mapping[str, Chooser]
    transfers: Transfers
    names: list[str]  # of the placements, by number
    times: dict[str, dict[int, float]]  # by input
    chosen: dict[str, int]
    fixed: dict[str, dict[int, int]]  # the numbers of GPU only and CPU only, by input and side
    noise: dict[str, float]  # of comparing the two fastest, relative, by input

    @classmethod
    def of(cls, inputs: Inputs, choosers: Mapping[str, Chooser], transfers: Transfers) -> PlacedPrograms:
        return cls(inputs, choosers, transfers, [], {}, {}, {}, {})

    def time(self, at: AtPoint) -> str:
        """At one input, whose arrays are loaded. "" or why the program does not run there."""
        from dagc.choice.train import noise_of_best  # loads msgspec

        program = self.inputs.task.graph_at(at.point).program
        placed = placed_at(program, at, self.choosers, self.transfers)
        best = place(placed.problem).placement
        wanted = list(dict.fromkeys((placed.only(DEVICE), placed.only(HOST), best, *_others(placed, best))))
        seconds: dict[Placement, list[float]] = {p: [] for p in wanted}
        order = random.Random(f"{self.inputs.task.seed} {at.point.text}")
        for _ in range(ROUNDS):
            order.shuffle(wanted)
            for placement in wanted:
                answer = self._measured(at, placed, placement, seconds[placement])
                if "seconds" not in answer:
                    return one_line(str(answer.get("error") or answer.get("wrong")))
                seconds[placement].append(answer["seconds"])
        name = at.point.text or "as given"
        self.times[name] = {self._number(placed, p): median(times) for p, times in seconds.items()}
        self.noise[name] = noise_of_best([(min(t), median(t), max(t)) for t in seconds.values()])
        self.chosen[name] = self._number(placed, best)
        self.fixed[name] = {side: self._number(placed, placed.only(side)) for side in (HOST, DEVICE)}
        return ""

    def _measured(self, at: AtPoint, placed: PlacedAt, placement: Placement, before: Sequence[float]) -> dict[str, Any]:
        run, program = self.inputs.run, self.inputs.run.program(at.point)
        chosen = placed.settings(placement)
        values = [pair for op, unit in run.units.items() for pair in run.decisions(unit, chosen.get(op, run.base[op]))]
        try:
            return self.inputs.service.ask(
                program.library, do="measure", rows=program.rows, settings=values, check=False, recheck=False,
                seconds=BATCH, guess=before[-1] if before else 0.0, limit=LIMIT,
            )  # fmt: skip
        except RanksDied as death:
            return {"error": str(death)}

    def _number(self, placed: PlacedAt, placement: Placement) -> int:
        """Of a placement, by its text: which side each placed op is on."""
        sides = dict(zip(placed.ops, placement, strict=True))
        text = ", ".join(f"{op} {WORDS[sides[op]]}" for op in placed.answers)
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def judged(self) -> tuple[Judged, tuple[Settings, ...], tuple[str, ...]]:
        """The figures of the placements, what each number stands for, and how fast one device alone is."""
        from dagc.choice.judge import judge  # only to evaluate

        inputs = list(self.times)
        taken = sum(self.times[name][self.chosen[name]] for name in inputs)
        alone = {
            side: sum(self.times[name][self.fixed[name][side]] for name in inputs) / taken for side in (DEVICE, HOST)
        }
        figures = judge(
            inputs, [self.times[n] for n in inputs], [self.chosen[n] for n in inputs],
            tolerance=[self.noise[n] for n in inputs],
        )  # fmt: skip
        settings = tuple(((VARIANT, name),) for name in self.names)
        faster = f"{alone[DEVICE]:.3f} times as fast as GPU only, {alone[HOST]:.3f} times as CPU only (ratios of sums)"
        return figures, settings, (faster,)


def _others(placed: PlacedAt, best: Placement) -> Iterator[Placement]:
    """All placements; of many ops, those that differ from the chosen one in one op."""
    free = placed.free
    if len(free) > MOST:
        yield from ((*best[:i], 1 - best[i], *best[i + 1 :]) for i in free)
        return
    for sides in product((HOST, DEVICE), repeat=len(free)):
        changed = dict(zip(free, sides, strict=True))
        yield tuple(changed.get(i, side) for i, side in enumerate(best))

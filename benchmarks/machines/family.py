"""A family of machines drawn by seed, each with one of five programs, with its noise, and the truth.

The program is `PROGRAMS[seed // 2 % 5]`. Machines with an odd seed were not looked at while the strategies were
developed. Kernels take from 1 us to 1 ms, so some machines are bound by launches, some by bandwidth.

Machines with seeds from EFFECTS on also have effects of what runs next to what, of one of the `KINDS`, noise of 3 % of
one of the four `NOISES` and a drift of 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import dagc
from benchmarks.machines.simulate import Execution, Machine
from dagc.ir.choice import Choice
from dagc.ir.program import Action, Graph
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import configuration_of
from dagc.lab.orders import Orders, domain_of

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parent.parent / "samples"
# Name -> text, and the -D of each configuration that is searched.
PROGRAMS: dict[str, tuple[Path, tuple[dict[str, Any], ...]]] = {
    "spmv": (SAMPLES / "spmv" / "spmv.dag", ({"transport": "mpi_cuda"},)),
    "halo": (SAMPLES / "halo3d" / "halo3d.dag", ({"transport": "mpi_cuda"},)),
    "pipeline": (HERE / "pipeline.dag", ({},)),
    "wavefront": (HERE / "wavefront.dag", ({},)),
    "forkjoin": (HERE / "forkjoin.dag", ({},)),
}
# Every third machine of the SpMV searches transports and capture too.
JOINT = tuple({"transport": t, "capture": c} for t in ("mpi_host", "nccl", "peer") for c in (False, True))
NOISES = ("normal", "heavy", "bursty", "humped")
EFFECTS = 1000  # the first seed of the machines with effects
KINDS = ("contention", "caches", "messages", "throttling")


@dataclass(frozen=True, slots=True)
class Noise:
    """What a measurement is multiplied by: noise of this kind and relative standard deviation, and a slow drift."""

    kind: str
    deviation: float
    drift: float
    period: float

    def factors(self, random: Random) -> Iterator[float]:
        """One after the other; heavy tails and bursts only make it slower; with two humps, a third is 8 % slower."""
        phase, burst, number = random.uniform(0, 2 * math.pi), 0, 0
        while True:
            factor = 1 + random.gauss(0, self.deviation)
            if self.kind == "heavy":
                chi = sum(random.gauss(0, 1) ** 2 for _ in range(3)) / 3
                factor = 1 + self.deviation * (abs(random.gauss(0, 1)) / math.sqrt(chi) - 0.6)
            elif self.kind == "bursty":
                burst = max(0, burst - 1) if burst else (random.randint(2, 8) if random.random() < 0.03 else 0)
                factor *= random.uniform(1.1, 1.5) if burst else 1.0
            elif self.kind == "humped":
                factor *= 1.08 if random.random() < 1 / 3 else 1.0
            drift = 1 + self.drift * math.sin(2 * math.pi * number / self.period + phase)
            number += 1
            yield max(0.5, factor) * drift


@dataclass(frozen=True, slots=True)
class Drawn:
    """A machine of the family with its program."""

    seed: int
    program: str
    domain: Orders
    machine: Machine
    noise: Noise
    executions: tuple[Execution, ...]

    def truth(self, candidate: Candidate) -> float:
        """Seconds without noise."""
        return 1e-6 * self.executions[candidate.space].time(candidate.traversal)


@cache
def _graphs(program: str, joint: bool) -> tuple[tuple[Choice, Graph], ...]:
    path, choices = PROGRAMS[program]
    out = []
    for defines in JOINT if joint else choices:
        graph = dagc.load_graph(path, {n: v for n, v in defines.items() if n != "capture"})
        decisions = dict(configuration_of(graph)) | {"capture": defines.get("capture", False)}
        if decisions["capture"] and graph.transport.value == "mpi_host":
            continue
        out.append((Choice.of(decisions), graph))
    return tuple(out)


def draw(seed: int) -> Drawn:
    """The machine with this seed."""
    random = Random(7919 * seed + 1)
    program = list(PROGRAMS)[seed // 2 % len(PROGRAMS)]
    joint = program == "spmv" and seed // (2 * len(PROGRAMS)) % 3 == 2
    graphs = _graphs(program, joint)
    domain = domain_of(graphs)
    machine = machine_of(random, [graph for _, graph in graphs])
    if seed >= EFFECTS:
        kind = KINDS[(seed - EFFECTS) // (2 * len(PROGRAMS)) % len(KINDS)]
        messages = any(op.action.of_messages for _, graph in graphs for op in graph.ops)
        machine = replace(machine, **effects(kind, random, machine, messages))
        noise = Noise(random.choice(NOISES), 0.03, 0.02, random.uniform(50, 400))
        executions = tuple(Execution(machine, s.graph, s.configuration) for s in domain.spaces)
        return Drawn(seed, program, domain, machine, noise, executions)
    kind = random.choice(NOISES[:3])
    noise = Noise(kind, random.uniform(0.01, 0.03), random.choice((0.0, 0.01, 0.02)), random.uniform(50, 400))
    executions = tuple(Execution(machine, s.graph, s.configuration) for s in domain.spaces)
    return Drawn(seed, program, domain, machine, noise, executions)


def effects(kind: str, random: Random, machine: Machine, messages: bool) -> dict[str, Any]:
    """The fields of a machine of this kind. Without messages, the kind `messages` has the effects of two others."""
    names = sorted(machine.work)
    pairs = [(a, b) for a in names for b in names if a != b]
    slowed = {pair: random.uniform(0.2, 1.0) for pair in pairs if random.random() < 0.4}
    reused = {pair: random.uniform(0.1, 0.5) for pair in pairs if random.random() < 0.25}
    shared = {"exclusive": False, "demand": {name: min(0.5, d) for name, d in machine.demand.items()}}
    match kind:
        case "contention":
            return {**shared, "slowed": slowed}
        case "caches":
            return {"reused": reused}
        case "messages" if messages:
            return {**shared, "disturbed": random.uniform(0.3, 1.0)}
        case "messages":
            return {**shared, "slowed": slowed, "reused": reused}
    heat = random.uniform(0.3, 0.7) * sum(machine.work.values())
    return {**shared, "heat": heat, "throttled": random.uniform(0.1, 0.5), "slowed": slowed}


def machine_of(random: Random, graphs: list[Graph]) -> Machine:
    scale = 10 ** random.uniform(0.2, 2.3)  # us, of a kernel
    cpu = random.choice((0.3, 1.0, 1.0, 2.0))
    work, demand = {}, {}
    gpu = sorted({op.name for g in graphs for op in g.ops if op.gpu and op.action in (Action.KERNEL, Action.COPY)})
    for kind in sorted({name.split("[")[0] for name in gpu}):
        base, used = scale * 10 ** random.gauss(0, 0.45), random.choice((0.2, 0.5, 0.8, 1.0))
        for name in (n for n in gpu if n.split("[")[0] == kind):
            work[name] = min(1000.0, max(1.0, base * math.exp(random.gauss(0, 0.25))))
            demand[name] = used
    for name in sorted({op.name for g in graphs for op in g.ops if not op.gpu and op.action is Action.KERNEL}):
        work[name] = scale * 10 ** random.gauss(-0.2, 0.4)
    names = sorted({op.name for g in graphs for op in g.ops if op.action is not Action.END})
    quirks = tuple(
        (*random.sample(names, 2), random.choice((-1, 1)) * random.uniform(0.003, 0.02))
        for _ in range(random.choice((0, 2, 4)))
    )
    return Machine(
        launch=cpu * random.uniform(2, 6), record=cpu * random.uniform(0.2, 1.0), wait=cpu * random.uniform(0.2, 1.0),
        latency=random.uniform(0.5, 3), event=random.uniform(0.3, 2.5), sync=cpu * random.choice((1.0, 3.0, 12.0)),
        gap=random.uniform(0, 1.5), depth=random.choice((4, 1000, 1000)), exclusive=random.random() < 0.3,
        engines=random.random() < 0.7, work=work, demand=demand, post=cpu * random.uniform(0.3, 3),
        call=cpu * random.uniform(0.2, 1.5), network=random.uniform(1, 12), wire=scale * 10 ** random.gauss(0.1, 0.6),
        eager=random.random() < 0.4, progress=random.random() < 0.5, serial=random.random() < 0.5,
        unexpected=random.uniform(0, 0.5), stage=random.uniform(0.2, 1.5),
        grouped={"nccl": random.uniform(0.4, 1.2), "peer": random.uniform(0.3, 1.0)},
        graph=cpu * random.uniform(4, 10), node=random.uniform(0.2, 1.2), quirks=quirks,
    )  # fmt: skip

"""Orders and launch settings searched together, on synthetic machines whose kernels depend on their blocks.

    python -m benchmarks.machines.joint --machines 24 --unseen --seeds 10 --budget 150 --jobs 16 --markdown F
    python -m benchmarks.machines.joint --machines 20 --unseen --seeds 2 --budget 60 --longer 10 --strategies joint

Each machine is one of `family.py`, with a site for every kernel: what a kernel takes depends on its block by a hidden
law (threads in a block, coalescing, tails, and a part that nothing explains). Most sites have a prior, which is wrong
by some tens of percent; some have none. Compared are the joint search (each op alone first, a few
settings; then everything together), the two stages one after the other with the same
number of measurements (each op alone with the model of `dagc tune`, then the orders), and random candidates.

As `dagc explore` does, the best ten are measured five times more at the end, and what these say is the result.
`within` is the number of measurements until the choice is at most 3 % slower than the best that is known: that of hill
climbing without noise, or of any search; with `--longer K`, of joint searches with K times the measurements. Machines
with odd seeds were not looked at while the search was developed.

Two parts add up to the loss of what is confirmed: that of the fastest measured, and what the choice among those loses.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise, product
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, NamedTuple

import dagc
from benchmarks.machines.evaluate import Climb, confirmed, reached, shown
from benchmarks.machines.family import HERE, NOISES, SAMPLES, Noise, machine_of
from benchmarks.machines.simulate import Execution, Machine
from dagc.base.sample import Sample
from dagc.base.statistics import interval
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.program import Graph, KernelOp
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders, domain_of
from dagc.lab.settings import LaunchSettings, timed_alone
from dagc.lab.strategy import RankingStrategy, find

EVALUATIONS, STARTS = 12_000, 6
ALONE = 6  # measurements of each op alone, of the two stages
BLOCKS_1D = tuple(Choice((("bx", x),)) for x in (128, 32, 64, 256, 512, 1024))
_SIZES_2D = [(x, y) for x, y in product((8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16)) if x * y <= 1024]
BLOCKS_2D = tuple(Choice((("bx", x), ("by", y))) for x, y in sorted(_SIZES_2D, key=lambda size: size != (32, 1)))
PROGRAMS: dict[str, tuple[Path, dict[str, Any]]] = {
    "spmv": (SAMPLES / "spmv" / "spmv.dag", {"transport": "mpi_cuda"}),
    "heat": (SAMPLES / "heat" / "heat.dag", {"transport": "mpi_cuda", "steps": 1}),
    "pipeline": (HERE / "pipeline.dag", {}),
    "wavefront": (HERE / "wavefront.dag", {}),
    "forkjoin": (HERE / "forkjoin.dag", {}),
}
VARIANTS = ("thread_per_row", "warp_per_row")


@dataclass(slots=True)
class Joint:
    """A machine, its program, and what each op takes under each setting: `laws[space][op]`, relative to its work."""

    seed: int
    program: str
    domain: Orders
    machine: Machine
    noise: Noise
    laws: tuple[dict[str, tuple[float, ...]], ...]
    _executions: dict[tuple[int, tuple[Choice, ...]], Execution] = field(default_factory=dict)

    def truth(self, candidate: Candidate) -> float:
        """Seconds without noise."""
        key = candidate.space, candidate.choices
        if key not in self._executions:
            configured, laws = self.domain.spaces[candidate.space], self.laws[candidate.space]
            both = zip(configured.sites, candidate.choices, strict=True)
            factor = {site.name: laws[site.name][site.choices.index(choice)] for site, choice in both}
            work = {name: w * factor.get(name.split("[")[0], 1.0) for name, w in self.machine.work.items()}
            self._executions[key] = Execution(replace(self.machine, work=work), configured.graph,
                                              configured.configuration)  # fmt: skip
        return 1e-6 * self._executions[key].time(candidate.traversal)

    def alone(self, space: int, op: str, number: int) -> float:
        """Seconds of one launch of an op under one of its settings."""
        work = max(w for name, w in self.machine.work.items() if name.split("[")[0] == op)
        return 1e-6 * work * self.laws[space][op][number]


@cache
def _graphs(program: str) -> tuple[tuple[Choice, Graph], ...]:
    path, defines = PROGRAMS[program]
    chosen = [{"yl.variant": a, "yr.variant": b} for a, b in product(VARIANTS, VARIANTS)] if program == "spmv" else [{}]
    graphs = [dagc.load_graph(path, {**defines, **more}) for more in chosen]
    return tuple((configuration_of(graph), graph) for graph in graphs)


def _law(random: Random, choices: tuple[Choice, ...]) -> tuple[float, ...]:
    """What an op takes under each setting, the fastest 1."""
    best, sharp = random.uniform(6, 9.5), random.uniform(0.02, 0.12)
    wide, rows = random.choice((0.0, 0.3, 1.0)), random.choice((-0.15, 0.0, 0.1))
    logs = []
    for choice in choices:
        sizes = {name: float(value) for name, value in choice.own.items()}
        threads = math.prod(sizes.values())
        log = sharp * (math.log2(threads) - best) ** 2 + wide * max(0.0, 5 - math.log2(sizes["bx"])) ** 1.3
        logs.append(log + rows * math.log2(sizes.get("by", 1)) + random.gauss(0, 0.05))
    return tuple(math.exp(3.5 * math.tanh((log - min(logs)) / 3.5)) for log in logs)  # at most 33 times as long


def _site(random: Random, op: str, law: tuple[float, ...], choices: tuple[Choice, ...], work: float) -> Site:
    choices = tuple(Choice.at(op, choice.items()) for choice in choices)
    if random.random() < 0.25:
        return Site(op, choices)
    wrong, level = random.choice((0.1, 0.2, 0.35)), math.exp(random.gauss(0, 0.5))
    return Site(op, choices, tuple(1e-6 * work * level * t * math.exp(random.gauss(0, wrong)) for t in law))


@lru_cache(maxsize=4)
def draw(seed: int) -> Joint:
    """The machine with this seed."""
    random = Random(104729 * seed + 5)
    program = list(PROGRAMS)[seed // 2 % len(PROGRAMS)]
    graphs = _graphs(program)
    machine = machine_of(random, [graph for _, graph in graphs])
    ops = sorted({op.op.base for _, g in graphs for op in g.ops if op.gpu and isinstance(op.op, KernelOp)})
    of_op: dict[tuple[str, str], tuple[Site, tuple[float, ...]]] = {}
    laws, sites = [], {}
    for configuration, _ in graphs:
        here: dict[str, tuple[float, ...]] = {}
        mine = []
        for op in ops:
            if program == "heat" and op == "put":
                continue
            variant = str(configuration.get(f"{op}.variant"))
            if (op, variant) not in of_op:
                choices = BLOCKS_2D if program == "heat" or random.random() < 0.4 else BLOCKS_1D
                law = _law(random, choices)
                slower = random.uniform(1, 1.6) if variant != "None" else 1.0
                law = tuple(slower * t for t in law)
                work = max(w for name, w in machine.work.items() if name.split("[")[0] == op)
                of_op[op, variant] = _site(random, op, law, choices, work), law
            site, here[op] = of_op[op, variant]
            mine.append(site)
        laws.append(here)
        sites[configuration] = tuple(mine)
    noise = Noise(
        random.choice(NOISES), random.uniform(0.01, 0.03), random.choice((0.0, 0.01, 0.02)), random.uniform(50, 400)
    )
    return Joint(seed, program, domain_of(graphs, sites=sites), machine, noise, tuple(laws))


class Reached(NamedTuple):
    """Exact seconds of the fastest measured and of what is confirmed."""

    measured: float
    confirmed: float


# ---- searches -------------------------------------------------------------------------------


def best_known(job: tuple[int, int]) -> tuple[int, float]:
    """(machine, the smallest exact time that hill climbing from one start finds)."""
    seed, start = job
    machine = draw(seed)
    return seed, Climb(machine.domain, start).least(machine.truth, EVALUATIONS // STARTS)


def search(job: tuple[int, str, int, int]) -> dict[str, Any]:
    """One search: the exact time of its choice after each measurement."""
    seed, name, number, budget = job
    machine = draw(seed)
    factors = machine.noise.factors(Random(1000 * seed + number))
    began = time.process_time()
    run: Any = {"staged": _staged, "joint": _joint}.get(name, _searched)
    choices, found = run(machine, machine.domain, name, number, budget, factors)
    ms = 1e3 * (time.process_time() - began) / budget
    return {"machine": seed, "strategy": name, "seed": number, "choices": choices, **found._asdict(), "ms": ms}


def _joint(
    machine: Joint, domain: Orders, name: str, number: int, budget: int, factors: Any
) -> tuple[list[float], Reached]:
    """Each op alone, then everything together, as `dagc explore`."""
    choices: list[float] = []
    ops: dict[tuple[Any, ...], tuple[Site, Any]] = {}
    first = domain.spaces[0]
    tuned, least = list(first.usual), [math.inf] * len(first.sites)
    for space, configured in enumerate(domain.spaces):
        for at, site in enumerate(configured.sites):
            key = site, configured.configuration.get(f"{site.name}.variant")

            def alone(choice: Choice, space: int = space, at: int = at, site: Site = site) -> Sample:
                value = machine.alone(space, site.name, site.choices.index(choice)) * next(factors)
                if space == 0 and value < least[at]:  # what would be chosen if the search ended here
                    tuned[at], least[at] = choice, value
                choices.append(machine.truth(Candidate(0, first.space.first(), tuple(tuned))))
                return Sample(value)

            ops.setdefault(key, (site, alone))
    known = dict(zip(ops, timed_alone(list(ops.values()), ALONE, number), strict=True))
    spaces = []
    for s in domain.spaces:
        sites = tuple(known[site, s.configuration.get(f"{site.name}.variant")] for site in s.sites)
        spaces.append(replace(s, sites=sites))
    more, found = _searched(machine, Orders(spaces), name, number, budget - len(choices), factors)
    return choices + more, found


def _searched(
    machine: Joint | _Fixed, domain: Any, name: str, number: int, budget: int, factors: Any
) -> tuple[list[float], Reached]:
    """Exact times of the choice after each measurement, and of what is reached in the end."""
    strategy = find("model" if name in ("joint", "blind") else name)(domain, number)
    seen: dict[Any, list[float]] = {}
    choices: list[float] = []
    for _ in range(budget):
        candidate = strategy.propose()
        if candidate is None:
            break
        sample = Sample(machine.truth(candidate) * next(factors))
        strategy.observe(candidate, sample)
        seen.setdefault(candidate, []).append(sample.value)
        choice = strategy.best() if isinstance(strategy, RankingStrategy) else min(seen, key=lambda c: median(seen[c]))
        assert choice is not None
        choices.append(machine.truth(choice))
    best = confirmed(strategy, seen, lambda c: machine.truth(c) * next(factors))
    return choices, Reached(min(map(machine.truth, seen)), machine.truth(best))


def _staged(
    machine: Joint, domain: Orders, name: str, number: int, budget: int, factors: Any
) -> tuple[list[float], Reached]:
    """Each op alone, in the program's own configuration; then orders and configurations under what was best."""
    first = domain.spaces[0]
    fastest = list(first.usual)
    choices: list[float] = []
    for at, site in enumerate(first.sites):
        strategy: Any = find("model")(LaunchSettings(site.choices, site.prior), number)
        for _ in range(min(ALONE, len(site.choices))):
            chosen = strategy.propose()
            strategy.observe(chosen, Sample(machine.alone(0, site.name, site.choices.index(chosen)) * next(factors)))
            fastest[at] = strategy.best()
            choices.append(machine.truth(Candidate(0, first.space.first(), tuple(fastest))))
    # Other variants have settings of their own: their models' best.
    tuned = {}
    for space, configured in enumerate(machine.domain.spaces):
        tuned[space] = tuple(
            fastest[i]
            if site == first.sites[i]
            else site.choices[min(range(len(site.prior)), key=site.prior.__getitem__, default=0)]
            for i, site in enumerate(configured.sites)
        )
    fixed = _Fixed(machine, tuned)
    more, found = _searched(fixed, fixed.domain, "blind", number, budget - len(choices), factors)
    return choices + more, found


class _Fixed:
    """A machine with launch settings that are not searched."""

    def __init__(self, machine: Joint, choices: dict[int, tuple[Choice, ...]]) -> None:
        self.machine, self.choices = machine, choices
        self.domain = Orders([replace(s, sites=()) for s in machine.domain.spaces])

    def truth(self, candidate: Candidate) -> float:
        return self.machine.truth(replace(candidate, choices=self.choices[candidate.space]))


# ---- tables ---------------------------------------------------------------------------------


def longer(job: tuple[int, int, int]) -> tuple[int, float]:
    """(machine, the exact time of what a joint search with so many measurements confirms)."""
    seed, number, budget = job
    return seed, float(search((seed, "joint", number, budget))["confirmed"])


def evaluate(machines: list[int], names: list[str], seeds: int, budget: int, jobs: int, times: int) -> dict[str, Any]:
    os.environ["OMP_NUM_THREADS"] = "1"
    best: dict[int, float] = {}
    with ProcessPoolExecutor(jobs) as pool:
        if times:
            references = pool.map(longer, [(m, s, times * budget) for m in machines for s in range(seeds)])
        else:
            references = pool.map(best_known, [(m, s) for m in machines for s in range(STARTS)])
        for seed, found in references:
            best[seed] = min(found, best.get(seed, math.inf))
        todo = [(m, n, s, budget) for m in machines for n in names for s in range(seeds)]
        runs = list(pool.map(search, todo))
    for one in runs if not times else ():
        best[one["machine"]] = min(best[one["machine"]], one["confirmed"], *one["choices"])
    return {"budget": budget, "seeds": seeds, "best": best, "runs": runs}


def markdown(record: dict[str, Any], names: list[str]) -> str:
    budget, best = record["budget"], {int(m): b for m, b in record["best"].items()}
    out = [
        f"{len(best)} machines, {record['seeds']} seeds, {budget} measurements. Measurements until the choice is",
        "within 3 % of the best known: median over seeds (95 % interval); true loss of what is confirmed, median.",
        "", f"| machine | program | candidates | {' | '.join(names)} |", f"|---|---|---|{'---|' * len(names)}",
    ]  # fmt: skip
    losses: dict[str, list[float]] = {n: [] for n in names}
    counts: dict[str, list[float]] = {n: [] for n in names}
    for m, least in best.items():
        cells = []
        for name in names:
            runs = [r for r in record["runs"] if (r["machine"], r["strategy"]) == (m, name)]
            within = [reached(r["choices"], least) for r in runs]
            loss = median(r["confirmed"] / least - 1 for r in runs)
            losses[name].append(loss)
            counts[name].append(median(within))
            low, high = interval(within)
            cells.append(f"{shown(median(within))} ({shown(low)} to {shown(high)}), {100 * loss:.1f} %")
        drawn = draw(m)
        out.append(f"| {m} {drawn.noise.kind} | {drawn.program} | {float(drawn.domain.size() or 0):.1e} |"
                   f" {' | '.join(cells)} |")  # fmt: skip
    columns = ("search", "within, median of machines", "never", "loss, median", "mean", "worst", "over 2 %",
               "not measured", "not chosen", "ms a step")  # fmt: skip
    out += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in names:
        runs = [r for r in record["runs"] if r["strategy"] == name]
        ms = median(r["ms"] for r in runs)
        never = sum(c > budget for c in counts[name])
        values = [100 * x for x in losses[name]]
        out.append(f"| {name} | {shown(median(counts[name]))} | {never} | {median(values):.1f} % |"
                   f" {fmean(values):.1f} % | {max(values):.1f} % | {_parts(runs, best)} | {ms:.1f} |")  # fmt: skip
    return "\n".join(out) + "\n"


def _parts(runs: list[dict[str, Any]], best: dict[int, float]) -> str:
    """How many searches lose more than 2 %, and the mean of each part of the loss."""
    over = sum(r["confirmed"] > 1.02 * best[r["machine"]] for r in runs)
    means = [fmean(r[part] / best[r["machine"]] for r in runs) for part in Reached._fields]
    parts = (f"{100 * (later - earlier):.2f} %" for earlier, later in pairwise((1.0, *means)))
    return " | ".join([f"{over} of {len(runs)}", *parts])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--machines", type=int, default=24, help="machines, seen and unseen (default: 24)")
    add("--only", type=int, nargs="+", metavar="SEED", help="these machines")
    add("--unseen", action="store_true", help="the machines with odd seeds (default: those with even ones)")
    add("--strategies", nargs="+", default=["joint", "staged", "random"])
    add("--seeds", type=int, default=10)
    add("--budget", type=int, default=150)
    add("--longer", type=int, default=0, metavar="K", help="compare with joint searches of K times the budget")
    add("--jobs", type=int, default=os.cpu_count())
    add("--json", type=Path)
    add("--markdown", type=Path)
    args = parser.parse_args()
    machines = args.only or [m for m in range(args.machines) if m % 2 == args.unseen]
    record = evaluate(machines, args.strategies, args.seeds, args.budget, args.jobs, args.longer)
    text = markdown(record, args.strategies)
    if args.json:
        args.json.write_text(json.dumps(record) + "\n")
    if args.markdown:
        args.markdown.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

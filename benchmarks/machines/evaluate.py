"""Search strategies on the family of machines, beside uniform random and hill climbing.

    python -m benchmarks.machines.evaluate --machines 60 --unseen --seeds 20 --jobs 16 --markdown F

After each measurement the current choice of a strategy (what it would answer, not its smallest time) is judged by the
exact time. `within` is the number of measurements until it is at most 3 % slower than the best of the space; for the
halo exchange the best that hill climbing without noise finds with 20 000 evaluations, or any search finds. `loss` is
that of the choice after the last measurement; `measured` that of the fastest measured; `confirmed` that of what is
chosen among the best ten after five more measurements of each, as `dagc explore` does at its end. Without --unseen, the
machines with even seeds are used, which strategies were developed on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, TypeVar

from benchmarks.machines.family import Drawn, draw
from dagc.base.sample import Sample
from dagc.base.statistics import interval
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT, SearchOptions, explore
from dagc.lab.orders import Orders
from dagc.lab.strategy import RankingStrategy, default, find
from dagc.study.outcome import UNTIL

WITHIN = 1.03
ENUMERATED = 60_000
EVALUATIONS, RESTARTS = 20_000, 20
NEVER = 10**6
CONFIRM, REPEATS = 10, 5  # as `dagc explore` does at its end

T = TypeVar("T", bound=Hashable)


class Climb:
    """Hill climbing: neighbours of the fastest so far; a new random start after 60 without a gain."""

    def __init__(self, domain: Orders, seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.fastest, self.time, self.since = None, math.inf, 0
        self.seen: set[Candidate] = set()

    def propose(self) -> Candidate:
        if self.fastest is not None and self.since >= 60:
            self.fastest, self.time, self.since = None, math.inf, 0
        if self.fastest is None:
            candidate = self.domain.sample(self.random)
        else:
            for _ in range(20):
                candidate = self.domain.near(self.fastest, self.random)
                if candidate not in self.seen:
                    break
        self.seen.add(candidate)
        return candidate

    def observe(self, candidate: Candidate, sample: Sample) -> None:
        self.since += 1
        if sample.value < self.time:
            self.fastest, self.time, self.since = candidate, sample.value, 0

    def least(self, truth: Callable[[Candidate], float], evaluations: int) -> float:
        """The smallest exact time among so many candidates."""
        best = math.inf
        for _ in range(evaluations):
            candidate = self.propose()
            found = truth(candidate)
            self.observe(candidate, Sample(found))
            best = min(best, found)
        return best


def strategy_of(name: str, domain: Orders, seed: int) -> Any:
    if name == "climb":
        return Climb(domain, seed)
    return find(default(domain) if name == "default" else name)(domain, seed)


class Listed(Orders):
    """A domain that holds all of its candidates: draws from it cost nothing. They are the draws of the domain."""

    def __init__(self, domain: Orders) -> None:
        super().__init__(domain.spaces)
        self._all = tuple(domain)
        self._begin = [sum(s.space.count() for s in domain.spaces[:i]) for i in range(len(domain.spaces))]

    def at(self, number: int) -> Candidate:
        return self._all[number]

    def likely(self, random: Random) -> Candidate:
        index = random.randrange(len(self.spaces)) if len(self.spaces) > 1 else 0
        return self._all[self._begin[index] + random.randrange(self.spaces[index].space.count())]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)


@lru_cache(maxsize=4)
def drawn(seed: int) -> Drawn:
    machine = draw(seed)
    return replace(machine, domain=Listed(machine.domain)) if _enumerated(machine) else machine


def truth(job: tuple[int, int]) -> tuple[int, float]:
    """(machine, the smallest exact time that was found). `job`: the machine, and the number of the restart."""
    seed, restart = job
    machine = drawn(seed)
    if _enumerated(machine):
        return seed, min(machine.truth(c) for c in machine.domain)
    return seed, Climb(machine.domain, restart).least(machine.truth, EVALUATIONS // RESTARTS)


def _enumerated(machine: Drawn) -> bool:
    size = machine.domain.size()
    return size is not None and size <= ENUMERATED


def search(job: tuple[int, str, int, int]) -> dict[str, Any]:
    """One search: the exact times of its choices after each measurement, and what it cost."""
    seed, name, number, budget = job
    machine = drawn(seed)
    strategy = strategy_of(name, machine.domain, number)
    factors = machine.noise.factors(Random(1000 * seed + number))
    seen: dict[Candidate, list[float]] = {}
    exact: dict[Candidate, float] = {}
    choices, taken = [], 0.0
    smallest: Candidate | None = None
    for _ in range(budget):
        before = time.process_time()
        candidate = strategy.propose()
        taken += (time.process_time() - before) if choices else 0.0  # the first may build what the strategy works with
        if candidate is None:
            break
        if candidate not in exact:
            exact[candidate] = machine.truth(candidate)
        sample = Sample(exact[candidate] * next(factors))
        before = time.process_time()
        strategy.observe(candidate, sample)
        seen.setdefault(candidate, []).append(sample.value)
        if isinstance(strategy, RankingStrategy):
            choice = strategy.best()  # updates the model, which the next proposal would do otherwise
        else:
            if smallest is None or median(seen[candidate]) < median(seen[smallest]):
                smallest = candidate
            choice = smallest
        taken += time.process_time() - before
        assert choice is not None
        choices.append(exact[choice])
    best = confirmed(strategy, seen, lambda c: exact[c] * next(factors))
    return {
        "machine": seed, "strategy": name, "seed": number, "choices": choices, "confirmed": exact[best],
        "measured": min(exact.values()),
        "ms": 1e3 * taken / len(choices),
    }  # fmt: skip


def confirmed(strategy: Any, seen: Mapping[T, Sequence[float]], measure: Callable[[T], float]) -> T:
    """Which of the CONFIRM best is chosen after REPEATS measurements of each. `seen`: those of the search."""
    if isinstance(strategy, RankingStrategy):
        short = list(strategy.ranked(CONFIRM))
    else:
        short = sorted(seen, key=lambda c: median(seen[c]))[:CONFIRM]
    times: dict[T, list[float]] = {c: [] for c in short}
    for _ in range(REPEATS):
        for c in short:
            times[c].append(measure(c))
    return min(short, key=lambda c: median(times[c]))


class _Synthetic:
    """A drawn machine as the engine wants it."""

    def __init__(self, machine: Drawn, number: int) -> None:
        self.machine, self.factors = machine, machine.noise.factors(Random(1000 * machine.seed + number))

    def measure(self, candidate: Candidate) -> Sample:
        return Sample(self.machine.truth(candidate) * next(self.factors))


def ended(job: tuple[int, str, int, int]) -> dict[str, Any]:
    """One search that ends by itself: after how many measurements, with which probability, and its choice."""
    seed, _, number, budget = job
    machine = drawn(seed)
    strategy = strategy_of("default", machine.domain, number)
    options = SearchOptions(budget=budget, until=UNTIL, confirm=0)
    done = explore(machine.domain, strategy, _Synthetic(machine, number), UNKEPT, options)
    return {
        "machine": seed,
        "measured": done.measurements,
        "doubt": done.doubt,
        "choice": machine.truth(strategy.best()),
    }


def calibration(machines: Sequence[int], seeds: int, budget: int, jobs: int) -> str:
    """How often something faster by more than UNTIL was left where a search ended by itself."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs) as pool:
        best = smallest(machines, pool)
        found = list(pool.map(ended, [(m, "default", s, budget) for m in machines for s in range(seeds)]))
    out = [
        f"searches that end by themselves (--until {100 * UNTIL:g}%, at most {budget} measurements), {seeds} seeds",
        "",
        "| machine | program | ended | after | something faster was left | loss |",
        "|---|---|---|---|---|---|",
    ]
    total, wrong = 0, 0
    for m in machines:
        mine = [f for f in found if f["machine"] == m]
        over = [f for f in mine if not math.isnan(f["doubt"])]
        left = sum(best[m] < (1 - UNTIL) * f["choice"] for f in over)
        total, wrong = total + len(over), wrong + left
        loss = median(f["choice"] / best[m] - 1 for f in mine)
        after = median(f["measured"] for f in mine)
        out.append(f"| {m} | {drawn(m).program} | {len(over)} | {after:g} | {left} | {100 * loss:.1f} % |")
    return "\n".join([*out, "", f"{wrong} of {total} searches that ended left something faster by more than 1 %"])


def smallest(machines: Sequence[int], pool: ProcessPoolExecutor) -> dict[int, float]:
    """The smallest exact time on each machine."""
    large = [m for m in machines if not _enumerated(drawn(m))]
    starts = [(m, r) for m in large for r in range(RESTARTS)] + [(m, 0) for m in machines if m not in large]
    best: dict[int, float] = {}
    for seed, found in pool.map(truth, starts):
        best[seed] = min(found, best.get(seed, math.inf))
    return best


def evaluate(
    machines: Sequence[int], names: Sequence[str], seeds: int, budget: int, jobs: int
) -> Iterator[dict[str, Any]]:
    """One row for each machine, as soon as its searches have ended."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs) as pool:
        for m in machines:
            found = pool.map(search, [(m, n, s, budget) for n in names for s in range(seeds)])
            best = smallest([m], pool)[m]
            yield _row(m, names, best, list(found))


def _row(m: int, names: Sequence[str], best: float, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    machine, best = drawn(m), min(best, *(t for one in found for t in one["choices"]))
    row: dict[str, Any] = {"machine": m, "program": machine.program, "size": machine.domain.size(),
                           "noise": machine.noise.kind, "best_us": 1e6 * best, "strategies": {}}  # fmt: skip
    for name in names:
        runs = [f for f in found if f["strategy"] == name]
        row["strategies"][name] = {
            "within": [reached(f["choices"], best) for f in runs],
            "loss": [f["choices"][-1] / best - 1 for f in runs],
            "measured": [f["measured"] / best - 1 for f in runs],
            "confirmed": [f["confirmed"] / best - 1 for f in runs],
            "ms": median(f["ms"] for f in runs),
        }
    return row


def reached(choices: Sequence[float], best: float) -> int:
    return next((i for i, t in enumerate(choices, 1) if t <= WITHIN * best), NEVER)


def shown(count: float) -> str:
    return "never" if count >= NEVER else f"{count:g}"


def markdown(record: dict[str, Any], names: Sequence[str]) -> str:
    rows, out = record["rows"], []
    out.append(
        f"{len(rows)} machines, {record['seeds']} seeds, {record['budget']} measurements. Measurements until the"
    )
    out.append(
        "choice is within 3 % of the truth: median over seeds (95 % interval); true loss after the last, median."
    )
    out += ["", f"| machine | program | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for row in rows:
        cells = []
        for name in names:
            one = row["strategies"][name]
            low, high = interval(one["within"])
            cells.append(
                f"{shown(median(one['within']))} ({shown(low)} to {shown(high)}), {100 * median(one['loss']):.1f} %"
            )
        out.append(f"| {row['machine']} {row['noise']} | {row['program']} | {' | '.join(cells)} |")
    columns = ("strategy", "within, median of machines", "worst machine", "above random on", "loss, mean", "worst",
               "halo, worst", "measured, mean", "worst", "halo, worst", "confirmed, mean", "worst", "halo, worst",
               "ms a step")  # fmt: skip
    out += ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*out, *(f"| {' | '.join(summary(rows, name))} |" for name in names)]) + "\n"


def summary(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """Of one strategy over all machines."""
    medians = [median(r["strategies"][name]["within"]) for r in rows]
    times: dict[str, float] = {}
    for row in rows:
        times[row["program"]] = max(times.get(row["program"], 0.0), row["strategies"][name]["ms"])
    return [
        name, shown(median(medians)), shown(max(medians)), above_random(rows, name),
        *_losses(rows, name, "loss"), *_losses(rows, name, "measured"), *_losses(rows, name, "confirmed"),
        ", ".join(f"{p} {t:.2f}" for p, t in times.items()),
    ]  # fmt: skip


def _losses(rows: Iterable[dict[str, Any]], name: str, of: str) -> tuple[str, str, str]:
    """Mean and largest of the machines' medians without the halo exchange, and largest of its own; in percent."""
    medians = [(r["program"] == "halo", 100 * median(r["strategies"][name][of])) for r in rows]
    others = [loss for halo, loss in medians if not halo] or [math.nan]
    halos = [loss for halo, loss in medians if halo] or [math.nan]
    return f"{sum(others) / len(others):.2f} %", f"{max(others):.1f} %", f"{max(halos):.1f} %"


def above_random(rows: Iterable[dict[str, Any]], name: str) -> str:
    """On which machines the median is larger than random's; (n beyond its interval)."""
    worse, clearly = [], 0
    for row in rows:
        if "random" not in row["strategies"]:
            continue
        mine, others = row["strategies"][name]["within"], row["strategies"]["random"]["within"]
        if median(mine) > median(others):
            worse.append(str(row["machine"]))
            clearly += median(mine) > interval(others)[1]
    return f"{' '.join(worse) or 'none'} ({clearly} clearly)"


def memory(steps: int) -> str:
    """Peak memory of the default strategy after so many measurements of the halo exchange."""
    machine = drawn(2)
    tracemalloc.start()
    strategy, random = strategy_of("default", machine.domain, 0), Random(0)
    for _ in range(steps):
        candidate = strategy.propose()
        strategy.observe(candidate, Sample(random.uniform(1e-4, 2e-4)))
    return f"{tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB after {steps} measurements of the halo exchange"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--machines", type=int, default=60, help="machines of the family, seen and unseen (default: 60)")
    add("--only", type=int, nargs="+", metavar="SEED", help="these machines")
    add("--programs", nargs="+", metavar="NAME", help="machines of these programs only")
    add("--unseen", action="store_true", help="the machines with odd seeds (default: those with even ones)")
    add("--strategies", nargs="+", default=["random", "climb", "mcts-min", "default"])
    add("--seeds", type=int, default=20)
    add("--budget", type=int, default=200)
    add("--jobs", type=int, default=os.cpu_count())
    add("--until", action="store_true", help="only: how often a search that ends by itself is wrong")
    add("--memory", type=int, metavar="STEPS", help="only measure the memory of so many steps on the halo exchange")
    add("--json", type=Path)
    add("--markdown", type=Path)
    args = parser.parse_args()
    if args.memory:
        print(memory(args.memory))
        return 0
    machines = args.only or [m for m in range(args.machines) if m % 2 == args.unseen]
    machines = [m for m in machines if not args.programs or drawn(m).program in args.programs]
    if args.until:
        text = calibration(machines, args.seeds, args.budget, args.jobs)
        if args.markdown:
            args.markdown.write_text(text + "\n")
        print(text)
        return 0
    start = time.perf_counter()
    record: dict[str, Any] = {"budget": args.budget, "seeds": args.seeds, "rows": []}
    text = ""
    for row in evaluate(machines, args.strategies, args.seeds, args.budget, args.jobs):
        record["rows"].append(row)
        text = markdown(record, args.strategies)
        if args.json:
            args.json.write_text(json.dumps(record) + "\n")
        if args.markdown:
            args.markdown.write_text(text)
        print(f"{row['machine']}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    print(text + f"\n{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

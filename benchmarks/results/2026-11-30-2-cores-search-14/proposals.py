"""Searches of halo exchanges with other proposals.

python proposals.py VARIANTS SEEDS BUDGET MACHINE... > proposals.jsonl
"""

import json
import math
import sys
from random import Random

import dagc.lab.neighbours as moves
import dagc.lab.orders as orders
import dagc.lab.strategies.model as model
from benchmarks.machines.evaluate import confirmed, drawn, strategy_of
from dagc.base.sample import Sample
from dagc.lab.candidate import Candidate

Strategy = model.Strategy
ADD, GROW, NEIGHBOUR, AGAIN = Strategy._add_near, Strategy._grow, moves.neighbour, 0.6


def crossed(domain, one, other, random):
    """The first part of one order, the rest in the order and on the streams of the other."""
    if one.space != other.space:
        return domain.near(one, random)
    first, second = moves.outline(one.traversal), moves.outline(other.traversal)
    head = first[: random.randint(1, len(first) - 1)]
    issued = {op for kind, op, _ in head if kind == moves.ISSUE}
    rest = [i for i in second if (i[1] not in issued if i[0] == moves.ISSUE else i not in head)]
    return Candidate(one.space, moves.follow(domain.spaces[one.space].space.moves, [*head, *rest]), one.choices)


def cross(self, pool, rows):
    """Every second neighbour is crossed from two of the starts."""
    starts, random = [pool.candidates[int(r)] for r in rows], self.random
    near = [crossed(self.domain, random.choice(starts), random.choice(starts), random) if n % 2
            else self.domain.near(random.choice(starts), random) for n in range(model.GROWTH)]  # fmt: skip
    pool.extend(c for c in near if c not in self.closed)


def restart(self, pool):
    """After each fit also twice 16 fresh draws, climbed on the simulation apart from the pool."""
    new = pool.fits != self.fits
    GROW(self, pool)
    for _ in range(2 * new):
        mine = [self.domain.sample(self.random) for _ in range(16)]
        pool.extend(mine)
        for _ in range(model.DEEP):
            times = pool.fitted()[[pool.row[c] for c in mine]]
            best = [mine[i] for i in times.argsort(kind="stable")[:8]]
            more = [self.domain.near(self.random.choice(best), self.random) for _ in range(model.GROWTH)]
            pool.extend(more)
            mine = list(dict.fromkeys([*best, *more]))


def anneal(self, pool):
    """After each fit also 20 chains of 24 Metropolis steps on the simulation, from 2 % of the least time down."""
    new = pool.fits != self.fits
    GROW(self, pool)
    if not new:
        return
    times = pool.fitted()
    at, least = [(pool.candidates[int(i)], times[i]) for i in model._least(times, 20)], float(times.min())
    for step in range(24):
        warm = 0.02 * least * (1 - step / 24)
        more = [self.domain.near(c, self.random) for c, _ in at]
        pool.extend(more)
        times = pool.fitted()
        for i, candidate in enumerate(more):
            time = times[pool.row[candidate]]
            if time < at[i][1] or self.random.random() < math.exp((at[i][1] - time) / warm):
                at[i] = candidate, time


def measured(self, pool):
    """From 21 measurements on, also 120 neighbours of the four measured ones with the smallest expected times."""
    GROW(self, pool)
    rows = self._rows(pool, model._TIMED)
    if len(rows) > 20:
        best = rows[model._least(pool.estimate()[0][rows], 4)]
        for _ in range(3):
            ADD(self, pool, best)


def big(space, traversal, random):
    """Neighbours after one change, and each further one with probability AGAIN instead of 0.3."""
    items = moves.outline(traversal)
    for _ in range(moves.TRIES):
        other = moves.changed(space, items, random)
        while random.random() < AGAIN:
            other = moves.changed(space, other, random)
        moved = moves.follow(space, other)
        if moved != traversal:
            return moved
    return traversal


def search(number, seed, variant, budget):
    Strategy._add_near = cross if variant == "cross" else ADD
    Strategy._grow = {"restart": restart, "anneal": anneal, "measured": measured}.get(variant, GROW)
    orders.neighbour = big if variant == "big" else NEIGHBOUR
    machine = drawn(number)
    strategy, factors = (
        strategy_of("default", machine.domain, seed),
        machine.noise.factors(Random(1000 * number + seed)),
    )
    seen, exact, at = {}, {}, {}
    for done in range(1, budget + 1):
        candidate = strategy.propose()
        exact.setdefault(candidate, machine.truth(candidate))
        seen.setdefault(candidate, []).append(exact[candidate] * next(factors))
        strategy.observe(candidate, Sample(seen[candidate][-1]))
        choice = exact[strategy.best()]
        if done in (24, 50, 100, 200, budget):
            at[done] = choice, min(exact.values())
    pool = min(*map(machine.truth, strategy._model().candidates), *exact.values())
    best = confirmed(strategy, seen, lambda c: exact[c] * next(factors))
    return {"machine": number, "seed": seed, "variant": variant, "choice": {k: c for k, (c, _) in at.items()},
            "measured": {k: m for k, (_, m) in at.items()}, "pool": pool, "confirmed": exact[best]}  # fmt: skip


if __name__ == "__main__":
    for seed in range(int(sys.argv[2])):
        for number in map(int, sys.argv[4:]):
            for variant in sys.argv[1].split(","):
                print(json.dumps(search(number, seed, variant, int(sys.argv[3]))), flush=True)

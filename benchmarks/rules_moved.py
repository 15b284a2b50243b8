"""Rules for the fast end of one recorded exploration, applied to another.

    python -m benchmarks.rules_moved [--jobs 2] [--public]

Rules of a source apply to a target by the kinds of its ops (`dagc.learn.kinds`), as in `dagc rules --apply`. The
applied implementation is one of those of the target that agree most with them; its loss is the median of these,
against the best of the target. Beside it, the loss of the median implementation of the target, and of a random one (the
mean of all). *First eight*: the expected loss of the best of COUNT followers, which `dagc explore --follow` measures
first, and as many uniform draws, and that of the best of eight draws. First the explorations of the SpMV on four H200,
five inputs of six sets of transports, then records of several programs, the rules of each on each other program. Last,
public applications: the rules of these programs and of the other application, and those of the other size.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.learn.fast import FastRule, fast_end
from dagc.learn.kinds import Binder
from dagc.learn.types import Example
from dagc.study.following import COUNT, agreement
from dagc.study.loaded import Loaded

RESULTS = ROOT / "benchmarks/results"
EXPLORE = "2026-11-21-4xh200-explore"
TRANSPORTS = ("mpi_cuda", "mpi_host", "mpi_host-ops", "nccl", "peer", "all")
INPUTS = ("150000", "1500000", "15000000", "bcsstk32", "cnr2000")
PROGRAMS = (
    f"{EXPLORE}/spmv-150000-peer", f"{EXPLORE}/spmv-1500000-all", "2026-11-28-4xh200-spmv/spmv-150000-model0",
    "2026-11-28-4xh200-rest/distributed", "2026-11-28-4xh200-rest/cg", f"{EXPLORE}/halo-all-mcts-min",
    f"{EXPLORE}/halo-mpi_cuda-random", "2026-11-22-2xh200-loops/jacobi-2048", "2026-11-23-2xh200-search/jacobi-8192",
    "2026-11-28-4xh200-spmv/jacobi-4096", "2026-11-22-2xh200-launch/heat-auto", "2026-11-22-2xh200-launch/heat-fixed",
)  # fmt: skip
PUBLIC = tuple(f"2026-11-30-2xh200-rules/{name}" for name in ("heat3d-64", "heat3d-192", "tealeaf-250", "tealeaf-2000"))


HEAD = (
    "| {} | pairs | no rule applies | applied: mean | median | worst | median implementation | random | applied at most"
    " the median | first eight: followers, mean | median | drawn, mean | median | followers at most drawn |"
)
RULER = "|---" * 14 + "|"


Rules: TypeAlias = dict[str, tuple[FastRule, ...]]


@dataclass(frozen=True, slots=True)
class Moved:
    """Rules of a source on a target: how many apply there, of how many; losses of the applied implementation, of the
    median one and of a random one; of the best of COUNT that follow the rules most and COUNT of all, and of 2 COUNT of
    all."""

    source: str
    target: str
    rules: int
    bound: int
    applied: float
    middle: float
    random: float
    followers: float
    drawn: float


def spmv(name: str, transport: str) -> str:
    return f"{EXPLORE}/spmv-{name}-{transport}"


@cache
def samples(name: str) -> tuple[Example, ...]:
    return Loaded(RESULTS / f"{name}.db").samples()


def rules_of(name: str) -> tuple[FastRule, ...]:
    found = fast_end(samples(name))
    return () if found is None else found.rules


def moved(source: str, rules: tuple[FastRule, ...], target: str) -> Moved:
    there = samples(target)
    plain = [(s.graph, s.configuration, s.traversal) for s in there]
    losses = [s.value / min(s.value for s in there) - 1 for s in there]
    found = agreement(plain, rules)
    mine = [loss for loss, score in zip(losses, found, strict=True) if score >= found.max() * (1 - 1e-9)]
    binder = Binder(there[0].graph)
    bound = sum(bool(binder.bind(one.rule, one.kinds).rules) for one in rules)
    first, drawn = least_of((mine, COUNT), (losses, COUNT)), least_of((losses, 2 * COUNT))
    return Moved(source, target, len(rules), bound, median(mine), median(losses), fmean(losses), first, drawn)


def least_of(*draws: tuple[Sequence[float], int]) -> float:
    """The expected smallest of so many of each of these, drawn without repetition; of all if they are fewer."""
    every = sorted({loss for losses, _ in draws for loss in losses})
    found = every[0]
    for smaller, larger in pairwise(every):
        beyond = 1.0  # probability that all drawn are
        for losses, count in draws:
            count = min(count, len(losses))
            beyond *= math.comb(sum(loss > smaller for loss in losses), count) / math.comb(len(losses), count)
        found += beyond * (larger - smaller)
    return found


def onto(job: tuple[str, tuple[tuple[str, tuple[FastRule, ...]], ...]]) -> list[Moved]:
    """The rules of all sources on one target; those that do not apply, or of no rules, are left out."""
    target, sources = job
    found = [moved(source, rules, target) for source, rules in sources if source != target]
    return [one for one in found if one.bound]


def _row(name: str, pairs: list[Moved], others: int) -> str:
    better = sum(one.applied <= one.middle for one in pairs)
    values = [fmean(p.applied for p in pairs), median(p.applied for p in pairs), max(p.applied for p in pairs)]
    values += [fmean(p.middle for p in pairs), fmean(p.random for p in pairs)]
    cells = " | ".join(f"{100 * value:.1f} %" for value in values)
    first, drawn = [p.followers for p in pairs], [p.drawn for p in pairs]
    more = " | ".join(f"{100 * value:.1f} %" for value in (fmean(first), median(first), fmean(drawn), median(drawn)))
    sooner = sum(p.followers <= p.drawn for p in pairs)
    return (
        f"| {name} | {len(pairs)} | {others} | {cells} | {better} of {len(pairs)} | {more} | {sooner} of {len(pairs)} |"
    )


def tables(pool: ProcessPoolExecutor) -> Iterable[str]:
    """The lines of the tables."""
    names = [spmv(i, t) for i in INPUTS for t in TRANSPORTS]
    every = list(dict.fromkeys([*names, *PROGRAMS]))
    rules = dict(zip(every, pool.map(rules_of, every), strict=True))
    pairs = {(m.source, m.target): m for m in _all(pool, names, rules)}
    yield HEAD.format("SpMV")
    yield RULER
    groups = [(t, [(spmv(i, t), spmv(j, t)) for i in INPUTS for j in INPUTS if i != j]) for t in TRANSPORTS]
    others = [(spmv(i, t), spmv(i, u)) for i in INPUTS for t in TRANSPORTS[:-1] for u in TRANSPORTS[:-1] if t != u]
    for name, wanted in [*groups, ("other transports, same input", others)]:
        found = [pairs[pair] for pair in wanted if pair in pairs]
        yield _row(name, found, len(wanted) - len(found))
    yield ""
    yield HEAD.format("rules of other programs on")
    yield RULER
    across = _others(_all(pool, list(PROGRAMS), rules), same=False)
    yield from (_onto(target, target, PROGRAMS, rules, across) for target in PROGRAMS)
    yield _row("all", across, 0)


def public(pool: ProcessPoolExecutor) -> Iterable[str]:
    """The lines of the table of public applications."""
    names = [*PROGRAMS, *PUBLIC]
    rules = dict(zip(names, pool.map(rules_of, names), strict=True))
    pairs = [one for one in _all(pool, names, rules) if one.target in PUBLIC]
    yield HEAD.format("public application")
    yield RULER
    for label, same in (("other programs", False), ("the other size", True)):
        found = _others(pairs, same)
        yield from (_onto(f"{t}, rules of {label}", t, names, rules, found, same) for t in PUBLIC)
        yield _row(f"all, rules of {label}", found, 0)


def _others(pairs: Iterable[Moved], same: bool) -> list[Moved]:
    """Those whose source and target are of the same program, or of different ones."""
    return [one for one in pairs if (_program(one.source) == _program(one.target)) == same]


def _onto(
    label: str, target: str, names: Iterable[str], rules: Rules, across: Iterable[Moved], same: bool = False
) -> str:
    """The row of the rules of the same program, or of other ones, on one target."""
    sources = (name for name in names if rules[name] and name != target)
    here = [one for one in across if one.target == target]
    return _row(label, here, sum((_program(name) == _program(target)) == same for name in sources) - len(here))


def _all(pool: ProcessPoolExecutor, names: list[str], rules: Rules) -> list[Moved]:
    sources = tuple((name, rules[name]) for name in names)
    return [one for found in pool.map(onto, [(target, sources) for target in names]) for one in found]


def _program(name: str) -> str:
    return name.rpartition("/")[2].partition("-")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--public", action="store_true", help="only the table of public applications")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        for line in (*(() if args.public else (*tables(pool), "")), *public(pool)):
            print(line, flush=True)


if __name__ == "__main__":
    main()

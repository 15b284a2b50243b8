"""How often `dagc explain --rank` finds the bundles that there are, and bundles that are none.

    python -m benchmarks.explain_bundles [--runs 40]

Two implementations of the SpMV are drawn, the first without and the second with two properties: `yl` after the send is
posted, and the send awaited first or `yl` on the stream of `pack`. Times are known, with noise as in
benchmarks/rules_chance.py. In `alone`, the properties take 10 and 5 %; right are two bundles, each with one of them. In
`together`, both take 20 %, each alone nothing; right is one bundle that has both and is no larger than that. In `none`
all times are equal; right is no bundle.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import dagc
from benchmarks.rules_chance import NOISES, SCALE, times_of
from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.ir.traversal import Traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.engine import UNKEPT
from dagc.lab.orders import Orders
from dagc.learn.bundles import Bundles, difference_of
from dagc.learn.pairs import PairTiming, TimingOptions, time_pairs
from dagc.space import Space

MOST = 20_000  # measurements of a run
SPMV = Path(__file__).resolve().parent.parent / "samples" / "spmv" / "spmv.dag"
SPACE = Space(dagc.load_graph(SPMV, {"transport": "mpi_cuda"}))
DOMAIN = Orders([ConfiguredSpace(Choice(()), SPACE)])


@dataclass
class Machine:
    """Times of a formula with noise."""

    formula: Callable[[Traversal], float]
    factors: Iterator[float]
    timed: int = 0

    def measure(self, candidate: Candidate) -> Sample:
        return Sample(1e-5 * self.formula(candidate.traversal) * next(self.factors), iterations=1)

    def __call__(self, base: Candidate, candidates: Sequence[Candidate]) -> Sequence[PairTiming]:
        self.timed += len(candidates)
        return time_pairs(base, candidates, self, UNKEPT, TimingOptions(noise=SCALE)).timings


def _place(traversal: Traversal, name: str) -> int:
    op = SPACE.graph.by_name(name).id
    return next(i for i, entry in enumerate(traversal.entries) if entry.op == op)


def late(t: Traversal) -> bool:
    return _place(t, "yl") > _place(t, "post_send")


def swapped(t: Traversal) -> bool:
    return _place(t, "wait_send") < _place(t, "wait_recv")


def shared(t: Traversal) -> bool:
    return t.entries[_place(t, "yl")].stream == t.entries[_place(t, "pack")].stream


def right(kind: str, found: Bundles) -> bool:
    here = found.best.traversal
    has = [
        [bool(what(b.candidate.traversal)) != bool(what(here)) for what in (late, swapped, shared)]
        for b in found.bundles
    ]
    if kind == "alone":
        return sorted(row[:2] for row in has) == [[False, True], [True, False]]
    return [row[0] and row[2] for row in has] == ([True] if kind == "together" else [])


KINDS: dict[str, tuple[Callable[[Traversal], bool], Callable[[Traversal], float]]] = {
    "alone": (swapped, lambda t: (1 + 0.1 * late(t)) * (1 + 0.05 * swapped(t))),
    "together": (shared, lambda t: 1 + 0.2 * (late(t) and shared(t))),
    "none": (swapped, lambda _: 1.0),
}


def run(kind: str, noise: str, seed: int) -> tuple[bool, int]:
    """Whether the bundles are right, and how many implementations were timed."""
    second, formula = KINDS[kind]
    random = Random(seed)
    drawn = [SPACE.at(random.randrange(SPACE.count())) for _ in range(500)]
    best = next(t for t in drawn if not late(t) and not second(t))
    other = next(t for t in drawn if late(t) and second(t))
    machine = Machine(formula, iter(times_of(noise, MOST, np.random.default_rng(seed))))
    found = difference_of(DOMAIN, Candidate(0, best), Candidate(0, other), machine)
    return right(kind, found), machine.timed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="of each row (default: 40)")
    args = parser.parse_args()
    print("| effects | noise | right | timed, mean |\n|---|---|---|---|")
    for kind in KINDS:
        for noise in NOISES:
            found = [run(kind, noise, seed) for seed in range(args.runs)]
            hits, timed = sum(one for one, _ in found), sum(n for _, n in found) / args.runs
            print(f"| {kind} | {noise} | {hits} of {args.runs} | {timed:.0f} |", flush=True)


if __name__ == "__main__":
    main()

"""The rate of false findings of `dagc explain`, and the coverage of its intervals.

    python benchmarks/explain_chance.py [--runs 400] [--rules 10] [--jobs N] [--json F] [--markdown F]

A run times three edits of each rule in pairs with the best, as `dagc explain` does, on a machine whose times are known
(noise as in benchmarks/rules_chance.py). `false findings` is the share of runs in which any rule costs, is faster
or depends while all edits are as fast as the best; `false depends` the same of "depends" where every edit costs 2 %.
`held` is the share of the intervals that hold the true ratio. `found` is the share of edits whose cost is found: 3 %.

In `live` rows there are up to 30 pairs, as by default. In `recorded` rows there are five, of five recorded passes, and
500 more implementations of the same recording say how far measurements lie from their median.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.rules_chance import NOISES, times_of, wilson
from dagc.base.sample import Sample
from dagc.base.statistics import noise_floor
from dagc.lab.candidate import Candidate
from dagc.lab.engine import UNKEPT
from dagc.learn.pairs import AnsweredQuestion, Finding, PairTiming, Question, TimingOptions, differing, time_pairs
from dagc.learn.types import FeatureKind, Rule, RuleFeature

EDITS = 3  # of a rule
PASSES = 5
OTHERS = 500  # implementations of a recording beside those that are timed
RULE = Rule(RuleFeature(FeatureKind.BEFORE, "a", "b"), True)
CLAIMS = (Finding.CAUSE, Finding.JOINT, Finding.DEPENDS, Finding.FASTER)


@dataclass
class Machine:
    """Edit number k takes `ratios[k]` times as long as the best, number 0; times are handed out as taken."""

    ratios: Sequence[float]
    times: Iterator[float]

    def measure(self, candidate: Candidate) -> Sample:
        return Sample(self.ratios[candidate.space] * next(self.times), iterations=1)


@dataclass
class Recording:
    """Five passes over everything, each in an order of its own; the passes of an implementation in turn."""

    ratios: Sequence[float]
    passes: list[list[float]]
    asked: dict[int, int]

    def measure(self, candidate: Candidate) -> Sample:
        number = self.asked.get(candidate.space, 0)
        self.asked[candidate.space] = number + 1
        return Sample(self.ratios[candidate.space] * self.passes[candidate.space][number % PASSES], iterations=1)


def run(noise: str, kind: str, rules: int, ratio: float, seed: int) -> tuple[list[AnsweredQuestion], list[PairTiming]]:
    random = np.random.default_rng([seed, NOISES.index(noise), kind == "live", int(1000 * ratio)])
    edits = [Candidate(number, None) for number in range(1, rules * EDITS + 1)]  # type: ignore[arg-type]
    best, ratios = Candidate(0, None), [1.0] + [ratio] * len(edits)  # type: ignore[arg-type]
    if kind == "live":
        times = iter(times_of(noise, 62 * len(edits) + 400, random).tolist())
        floor = noise_floor([[next(times) for _ in range(30)]])
        timed = time_pairs(best, edits, Machine(ratios, times), UNKEPT, TimingOptions(noise=floor, seed=seed))
    else:
        count = len(ratios) + OTHERS
        series = times_of(noise, PASSES * count, random).reshape(PASSES, count)
        passes = np.stack([one[random.permutation(count)] for one in series], axis=1).tolist()
        floor = noise_floor(passes)
        alike = tuple(math.log(b / a) for one in passes for a, b in pairwise(one))
        options = TimingOptions(noise=floor, alike=alike, together=True, seed=seed)
        timed = time_pairs(best, edits, Recording(ratios, passes, {}), UNKEPT, options, most=lambda _: PASSES)
    parts = [timed.timings[k : k + EDITS] for k in range(0, len(edits), EDITS)]
    question = Question(RULE, True, (), True)
    return [AnsweredQuestion(question, part, differing(part, rules)) for part in parts], list(timed.timings)


def part(job: tuple[str, str, int, range]) -> dict[str, int]:
    noise, kind, rules, seeds = job
    out = {"runs": 0, "false": 0, "depends": 0, "found": 0, "held": 0, "intervals": 0, "edits": 0}
    for seed in seeds:
        nothing, timings = run(noise, kind, rules, 1.0, seed)
        equal, dear = run(noise, kind, rules, 1.02, seed)
        _, dearer = run(noise, kind, rules, 1.03, seed)
        out["runs"] += 1
        out["false"] += any(a.finding in CLAIMS for a in nothing)
        out["depends"] += any(a.finding is Finding.DEPENDS for a in equal)
        out["found"] += sum(t.verdict.value == "costs" for t in dearer)
        out["edits"] += len(dearer)
        for truth, each in ((1.0, timings), (1.02, dear), (1.03, dearer)):
            out["held"] += sum(t.low <= truth <= t.high for t in each)
            out["intervals"] += len(each)
    return out


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    cases = [(noise, kind) for kind in args.kinds for noise in args.noises]
    step = max(1, args.runs // 20)
    jobs = [
        (noise, kind, args.rules, range(start, min(start + step, args.runs)))
        for noise, kind in cases
        for start in range(0, args.runs, step)
    ]
    rows: dict[tuple[str, str], dict[str, int]] = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        for (noise, kind, _, _), found in zip(jobs, pool.map(part, jobs), strict=True):
            row = rows.setdefault((noise, kind), dict.fromkeys(found, 0))
            for name, count in found.items():
                row[name] += count
    return [{"noise": noise, "kind": kind, **row} for (noise, kind), row in rows.items()]


def _share(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{100 * hits / of:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def markdown(rows: Sequence[dict[str, Any]], rules: int) -> str:
    out = [
        f"{rules} rules with {EDITS} edits each; shares in % with their 95 % intervals.\n",
        "| pairs | noise | runs | false findings | false depends | intervals that hold | costs of 3 % found |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        out.append(
            f"| {r['kind']} | {r['noise']} | {r['runs']} | {_share(r['false'], r['runs'])} | "
            f"{_share(r['depends'], r['runs'])} | {100 * r['held'] / r['intervals']:.1f} | "
            f"{100 * r['found'] / r['edits']:.0f} |"
        )
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=400, help="of each row (default: 400)")
    parser.add_argument("--rules", type=int, default=10)
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=NOISES)
    parser.add_argument("--kinds", nargs="+", choices=("live", "recorded"), default=("live", "recorded"))
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--markdown", metavar="F")
    args = parser.parse_args()
    rows = measure(args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    text = markdown(rows, args.rules)
    if args.markdown:
        Path(args.markdown).write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()

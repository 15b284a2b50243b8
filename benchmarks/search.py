"""How good and how fast the search strategies are, on recorded explorations and with a machine that does nothing.

    python benchmarks/search.py [--results RESULTS.db]... [--strategies model mcts] [--seeds 20] [--json F]
    python benchmarks/search.py --steps 0 --strategies model --results A.db --warm-start B.db C.db

Quality: of the five recorded passes of each implementation, three are handed to the search, drawn by the seed, and the
other two judge: nothing is judged by what chose it. The reference is what the best hundredth of an exhaustive search
with the three passes take in the other two (their median): the least of all medians would be biased by the selection.
After each measurement the current choice (what the strategy would answer) is judged: `within` is how many measurements
it takes until that is within 3 % of the reference. At the end the ten best are measured until each has its three
passes, and the choice is judged: `loss`, relative to the reference, so it may be negative, and its mean over the seeds
is what counts. The exhaustive search stands in the same table.

With --warm-start, `model` also begins with each of these files, as `dagc explore --warm-start` does; those that are the
recording itself are skipped.

Without --results: the 2036 implementations of the SpMV recorded on four H200s by an independent program (tests/data).

Overhead: proposals and observations a second, with times from a hash; the first proposal, for which a strategy may
prepare its data, is given apart. Distinct ones among all of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import dagc
from dagc.base.sample import Sample
from dagc.base.statistics import interval
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import parse_traversal, traversal_text
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.configurations import configuration_of
from dagc.lab.live import ReplayMachine
from dagc.lab.orders import Orders, domain_of
from dagc.lab.strategy import RankingStrategy, find
from dagc.space import Space
from dagc.stages.options import ExploreOptions
from dagc.store.results import Results
from dagc.study.domain import warm
from dagc.study.loaded import Loaded

WITHIN = 1.03
TOP = 10
PLATEAU = 0.01  # share of the best by the passes that choose, three at least, whose other passes are the reference
CHOOSE = 3  # passes, of the five that were recorded, that are handed to the search; the others judge
NEVER = float("inf")


def load(path: str) -> tuple[Results, dict[Choice, Graph]]:
    if path == "tests/data":
        from tests.data.h200 import h200_graph, h200_results

        results = h200_results()
        return results, {results.implementations[0].configuration: h200_graph()}
    loaded = Loaded(path)
    return loaded.results, dict(loaded.graphs)


def split(results: Results, seed: int) -> tuple[Results, dict[tuple[Choice, str], float]]:
    """(results with CHOOSE passes of each implementation, the median of its other passes), drawn by the seed."""
    random, chosen, judged = Random(seed), [], {}
    for found in results.measured():
        passes = list(found.samples)
        random.shuffle(passes)
        chosen.append(replace(found, samples=tuple(passes[:CHOOSE])))
        judge = replace(found, samples=tuple(passes[CHOOSE:]))
        judged[found.configuration, found.traversal] = judge.value(results.reference)
    return replace(results, implementations=tuple(chosen)), judged


class Recorded(Orders):
    """The implementations that were recorded, as the whole space: a proposal of another one would fail for nothing."""

    def __init__(self, domain: Orders, results: Results) -> None:
        super().__init__(domain.spaces, domain.earlier)
        number = {s.configuration: i for i, s in enumerate(domain.spaces)}
        self._all = [
            Candidate(at := number[i.configuration], parse_traversal(i.traversal, domain.spaces[at].graph, "recorded"))
            for i in sorted(results.measured(), key=lambda i: i.id)
        ]

    def size(self) -> int:
        return len(self._all)

    def at(self, number: int) -> Candidate:
        return self._all[number]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)


class Replayed:
    """One search on recorded data, judged by passes that it never sees."""

    def __init__(
        self, name: str, seed: int, results: Results, graphs: dict[Choice, Graph], earlier: str | None = None
    ) -> None:
        """`earlier`: a results file that the search begins with."""
        handed, self.judged = split(results, seed)
        ranked = [(i.configuration, i.traversal) for i in handed.measured()]
        self.reference = median(self.judged[key] for key in ranked[: max(3, int(PLATEAU * len(ranked)))])
        self.exhaustive = self.judged[ranked[0]] / self.reference - 1
        self.domain = Orders([ConfiguredSpace(c, Space(g)) for c, g in graphs.items()])
        if earlier is not None:
            program = next(iter(graphs.values())).program
            self.domain = warm(self.domain, program, ExploreOptions(warm_start=earlier), [])
        self.domain = Recorded(self.domain, handed)
        self.machine = ReplayMachine(handed, self.domain, seed)
        self.strategy = find(name)(self.domain, seed)
        self.seen: dict[Candidate, list[float]] = {}

    def loss(self, candidate: Candidate) -> float:
        configured = self.domain.spaces[candidate.space]
        text = traversal_text(candidate.traversal, configured.graph)
        return self.judged[configured.configuration, text] / self.reference - 1

    def choice(self) -> Candidate:
        chosen = self.strategy.best() if isinstance(self.strategy, RankingStrategy) else None
        return chosen or min(self.seen, key=lambda c: median(self.seen[c]))

    def measure(self, candidate: Candidate) -> bool:
        sample = self.machine.measure(candidate)
        self.strategy.observe(candidate, sample)
        if not sample.failure:
            self.seen.setdefault(candidate, []).append(sample.value)
        return not sample.failure

    def run(self, most: int) -> dict[str, float]:
        """Measurements until the choice is within 3 % (infinite: not within `most`), and the loss after confirming."""
        within, number = NEVER, 0
        while number < most and (candidate := self.strategy.propose()) is not None:
            if not self.measure(candidate):
                continue
            number += 1
            if within > number and self.loss(self.choice()) <= WITHIN - 1:
                within = number
        unconfirmed = self.loss(self.choice())
        ranked = self.strategy.ranked(TOP) if isinstance(self.strategy, RankingStrategy) else ()
        shortlist = ranked or sorted(self.seen, key=lambda c: median(self.seen[c]))[:TOP]
        for candidate in shortlist:
            while len(self.seen[candidate]) < CHOOSE:
                self.measure(candidate)
        confirmed = self.loss(min(shortlist, key=lambda c: median(self.seen[c])))
        return {"within": within, "unconfirmed": unconfirmed, "loss": confirmed, "exhaustive": self.exhaustive}


def quality(path: str, names: Sequence[str], seeds: int, most: int, earlier: Sequence[str] = ()) -> dict[str, Any]:
    results, graphs = load(path)
    rows = {}
    begun: list[tuple[str, str | None]] = [(name, None) for name in names]
    begun += [("model", other) for other in earlier if Path(other).resolve() != Path(path).resolve()]
    for name, other in begun:
        start = time.perf_counter()
        runs = [Replayed(name, seed, results, graphs, other).run(most) for seed in range(seeds)]
        title = name if other is None else f"{name}, begun with {Path(other).stem}"
        rows[title] = {key: [r[key] for r in runs] for key in runs[0]}
        print(f"{path} {title}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return {
        "data": path, "implementations": len(results.measured()), "noise": results.noise, "seeds": seeds,
        "budget": most, "strategies": rows,
    }  # fmt: skip


def overhead(sample: str, defines: dict[str, Any], names: Sequence[str], steps: int) -> dict[str, Any]:
    """Steps a second, distinct candidates, and the memory of the search."""
    rows: dict[str, Any] = {}
    for name in names:
        graph = dagc.load_graph(ROOT / sample, defines)
        domain = domain_of([(configuration_of(graph), graph)])
        tracemalloc.start()
        strategy = find(name)(domain, 1)
        seen: set[Candidate] = set()
        tracemalloc.reset_peak()
        for _ in range(100):  # traced: its cost is not timed
            candidate = strategy.propose()
            assert candidate is not None
            seen.add(candidate)
            strategy.observe(candidate, Sample(Random(crc32(repr(candidate).encode())).random()))
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Once more from the beginning, without the trace. The first proposal builds what the strategy works with.
        domain = domain_of([(configuration_of(graph), graph)])
        strategy, seen, each = find(name)(domain, 1), set(), []
        for _ in range(1 + steps):
            before = time.perf_counter()
            candidate = strategy.propose()
            proposed = time.perf_counter() - before
            if candidate is None:
                break
            seconds = 1e-6 * (1 + crc32(repr(candidate).encode()) % 997)
            before = time.perf_counter()
            strategy.observe(candidate, Sample(seconds))
            each.append(proposed + time.perf_counter() - before)
            seen.add(candidate)
        first, *each = each
        number, taken = len(each), sum(each)
        rows[name] = {
            "steps": number, "first": first, "seconds": taken, "largest": max(each), "steps_per_second": number / taken,
            "distinct": len(seen), "bytes_after_100": memory,
        }  # fmt: skip
        print(f"{sample} {name}: {number / taken:.0f} steps/s", file=sys.stderr)
    return {"sample": sample, "defines": defines, "strategies": rows}


def mean(losses: Sequence[float]) -> str:
    error = stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else 0.0
    return f"{100 * fmean(losses):.1f} % (standard error {100 * error:.1f})"


def markdown(record: dict[str, Any]) -> str:
    out = []
    for found in record["quality"]:
        what = f"{found['data']}: {found['implementations']} implementations, noise {100 * found['noise']:.1f} %"
        out += [
            f"{what}, {found['seeds']} seeds, {found['budget']} measurements",
            "",
            "| strategy | within 3 % after | loss of the choice | loss after confirming |",
            "|---|---|---|---|",
        ]
        rows = found["strategies"]
        for name, runs in rows.items():
            low, high = interval(runs["within"])
            cells = [
                f"{median(runs['within']):.4g} ({low:.4g} to {high:.4g})",
                mean(runs["unconfirmed"]),
                mean(runs["loss"]),
            ]
            out.append(f"| {name} | {' | '.join(cells)} |")
        out += [f"| exhaustive, the same three passes | | | {mean(next(iter(rows.values()))['exhaustive'])} |", ""]
    for found in record["overhead"]:
        out += [
            f"{found['sample']}, a machine that does nothing",
            "",
            "| strategy | steps/s | ms a step | largest | the first | distinct |",
        ]
        out.append("|---|---|---|---|---|---|")
        for name, row in found["strategies"].items():
            each = 1e3 * row["seconds"] / row["steps"]
            most, first = (f"{1e3 * row[key]:.3g}" for key in ("largest", "first"))
            out.append(
                f"| {name} | {row['steps_per_second']:.0f} | {each:.2f} | {most} | {first} | {row['distinct']} |"
            )
        out.append("")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--results", action="append", default=[], metavar="FILE", help="recorded explorations (default: tests/data)")
    add("--strategies", nargs="+", default=["random", "mcts", "mcts-min", "model"])
    add("--warm-start", nargs="+", default=[], metavar="FILE", help="files that `model` begins with, one in each row")
    add("--seeds", type=int, default=20)
    add("--budget", type=int, default=100, help="measurements of each search (default: 100)")
    add("--steps", type=int, default=1900, help="steps of the overhead (default: 1900; 0: none)")
    add("--json", type=Path, metavar="FILE")
    add("--markdown", type=Path, metavar="FILE")
    args = parser.parse_args()
    record: dict[str, Any] = {
        "what": "search strategies: quality on recorded data, overhead",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "peer": "Tenzing v0.1.0: about 3600 steps/s on the SpMV; 602 to 639 distinct of 2000 in its newest version",
        "quality": [
            quality(p, args.strategies, args.seeds, args.budget, args.warm_start)
            for p in args.results or ["tests/data"]
        ],
        "overhead": [],
    }
    if args.steps:
        spmv = {"transport": "mpi_cuda"}
        record["overhead"].append(overhead("samples/spmv/spmv.dag", spmv, args.strategies, args.steps))
        record["overhead"].append(overhead("samples/halo3d/halo3d.dag", spmv, args.strategies, args.steps))
    if args.json:
        args.json.write_text(json.dumps(record, indent=1).replace("Infinity", '"more"') + "\n")
    text = markdown(record)
    if args.markdown:
        args.markdown.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

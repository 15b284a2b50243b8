"""Class accuracy after so many measurements (Table V of the Tenzing paper), replayed from a recorded exploration.

    python benchmarks/table_v.py [RESULTS.db] [--strategies mcts random] [--seeds 20] [--jobs N] [--markdown F]
    python benchmarks/table_v.py --all [--seeds 20] [--jobs N] [--json F] [--markdown F]

Without a file: the 2036 implementations of the SpMV recorded on four H200s (tests/data), host-staged. With `--all`
these and those with CUDA-aware MPI in one table: the paper's figures, dagc's labels and the paper's, `mcts`, `random`
and `model`, and one label for all. For each strategy and seed the
search is handed one recorded pass of each implementation that it asks for, drawn by the seed (`--times median`: the
median of its passes). Rules are learned from the first 50, 100, 200, 400 and from all of these times; then the tree
classifies every implementation, and is right where the median of all its passes lies in the range of the class given.

With `--estimate` rules are learned a second time from each of these, as `dagc rules --estimate` does: from estimated
times of the whole space, for which the passes that were handed out are used, and no others. (Rows `NAME, estimated`.)

Three ways to learn: `paper` draws every boundary above the 98th percentile of prominence, and grows the tree as the
paper does; `distinct` draws only those above the noise floor, between classes that are more than outliers, and takes
back splits that separate nothing but noise (`dagc rules --tree full`); `pruned`, the default of dagc, has the classes
of `distinct` and prunes the tree by cross-validation. The noise floor and the share of outliers are those of the
recording; with `--assumed` that share is what dagc assumes where nothing was measured several times.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import parse_traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.engine import Machine
from dagc.lab.live import ReplayMachine
from dagc.lab.orders import Orders
from dagc.lab.strategy import find
from dagc.learn.classes import Outliers
from dagc.learn.features import Samples
from dagc.learn.judging import accuracy
from dagc.learn.tree import LearnedRules, learn
from dagc.learn.types import Example
from dagc.space import Space
from dagc.store.results import Results
from dagc.study.loaded import Loaded, estimated

SIZES = (50, 100, 200, 400)
PAPER = {"50": 0.75, "100": 0.83, "200": 0.96, "400": 0.99, "all": 1.0}
LABELS = ("paper", "distinct", "pruned")
FAR = 3  # noise floors of a single measurement
CUDA_AWARE = ROOT / "benchmarks/results/2026-11-21-4xh200-explore/spmv-150000-mpi_cuda.db"


def load(path: str | None) -> tuple[Results, dict[Choice, Graph]]:
    """A recorded exploration and the graphs of its configurations."""
    if path is None:
        from tests.data.h200 import h200_graph, h200_results

        results = h200_results()
        return results, {results.implementations[0].configuration: h200_graph()}
    loaded = Loaded(path)
    return loaded.results, dict(loaded.graphs)


def whole(results: Results, graphs: dict[Choice, Graph]) -> list[Example]:
    """Every implementation with the median of its passes."""
    return [
        Example(
            graphs[i.configuration], i.configuration, parse_traversal(i.traversal, graphs[i.configuration]),
            i.value(results.reference), len(i.samples),
        )
        for i in results.measured()
    ]  # fmt: skip


class Medians:
    """Answers with the median of all recorded passes: every time the same, and less noisy."""

    def __init__(self, domain: Orders, everything: Sequence[Example]) -> None:
        spaces = {s.configuration: number for number, s in enumerate(domain.spaces)}
        self.samples = {Candidate(spaces[s.configuration], s.traversal): s for s in everything}

    def measure(self, candidate: Candidate) -> Sample:
        found = self.samples.get(candidate)
        return Sample(failure="not recorded") if found is None else Sample(found.value, iterations=1)


def searched(name: str, seed: int, machine: Machine, domain: Orders, everything: Sequence[Example]) -> list[Example]:
    """What a search measures of every implementation, the first 400 in the order of the search.

    With all of them measured it does not matter in which order: the rest is not asked of the strategy.
    """
    strategy = find(name)(domain, seed)
    found: dict[Candidate, float] = {}
    while len(found) < max(SIZES) and (candidate := strategy.propose()) is not None:
        sample = machine.measure(candidate)
        strategy.observe(candidate, sample)
        if not sample.failure:
            found.setdefault(candidate, sample.value)
    spaces = {s.configuration: number for number, s in enumerate(domain.spaces)}
    for sample in everything:
        candidate = Candidate(spaces[sample.configuration], sample.traversal)
        if candidate not in found:
            found[candidate] = machine.measure(candidate).value
    out = []
    for place, (candidate, seconds) in enumerate(found.items()):
        configured = domain.spaces[candidate.space]
        out.append(
            Example(
                configured.graph, configured.configuration, candidate.traversal, seconds, times=(seconds,),
                orders=(place,),
            )
        )  # fmt: skip
    return out


def far_off(learned: LearnedRules, table: Samples, times: Sequence[float], limit: float) -> float:
    """Share of implementations whose time is further than `limit`, relative, from the range of the class given."""
    given = [learned.classes.classes[learned.tree.nodes[leaf].number] for leaf in learned.leaves(table)]
    wrong = (t < c.fastest * (1 - limit) or t > c.slowest * (1 + limit) for c, t in zip(given, times, strict=True))
    return statistics.mean(wrong)


def one(
    samples: Sequence[Example], outliers: Outliers, table: Samples, times: list[float]
) -> dict[str, dict[str, float]]:
    """All ways to learn: figures of one set of rules each."""
    out = {}
    for labels in LABELS:
        pruned = labels == "pruned"
        cost = None if pruned else 0.0
        learned = learn(
            samples, outliers.noise, all_classes=labels == "paper", cost=cost, outliers=outliers, judge=pruned
        )
        found = accuracy(learned, table, times)
        out[labels] = {
            "accuracy": found.share,
            "chance": found.chance,
            "constant": found.constant,
            "tolerant": found.tolerant,
            "by_boundary": found.by_boundary,
            "far": far_off(learned, table, times, FAR * outliers.noise),
            "one_class": float(len(found.classes) == 1),
            "classes": len(found.classes),
            "dropped": len(learned.classes.dropped),
            "width": statistics.mean(c.width for c in found.classes),
            "widest": max(c.width for c in found.classes),
            "leaves": learned.tree.leaves,
            "depth": learned.tree.depth,
        }
    return out


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(values), "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "least": min(values), "most": max(values),
    }  # fmt: skip


Runs = dict[str, dict[str, dict[str, list[dict[str, float]]]]]  # row, labels, measurements: figures of each seed


def replay(job: tuple[argparse.Namespace, str | None, str, int]) -> dict[tuple[str, str, str], dict[str, float]]:
    """(row, labels, measurements) -> figures, of one strategy and seed on one recording."""
    args, path, name, seed = job
    before = time.perf_counter()
    recording = _recording(path, args.assumed)
    samples, domain = recording.samples, recording.domain
    sizes = [*(n for n in SIZES if n < len(samples)), *(() if args.part else (len(samples),))]
    medians = args.times == "median"
    machine = Medians(domain, samples) if medians else ReplayMachine(recording.results, domain, seed)
    found = searched(name, seed, machine, domain, samples)
    if medians:
        passes = statistics.median_low(s.measurements for s in samples)
        found = [replace(s, measurements=passes, times=()) for s in found]
    out = {}
    for size in sizes:
        key = "all" if size == len(samples) else str(size)
        learned_from = {name: found[:size]}
        if args.estimate:
            learned_from[f"{name}, estimated"] = list(estimated(found[:size], recording.results.noise).samples)
        for row_name, chosen in learned_from.items():
            for labels, figures in one(chosen, recording.outliers, recording.table, recording.times).items():
                out[row_name, labels, key] = figures
    print(f"{name} seed {seed}: {time.perf_counter() - before:.1f} s", file=sys.stderr)
    return out


@dataclass(frozen=True)
class Recording:
    results: Results
    samples: list[Example]
    domain: Orders
    outliers: Outliers
    table: Samples
    times: list[float]


@cache
def _recording(path: str | None, assumed: bool) -> Recording:
    results, graphs = load(path)
    samples = whole(results, graphs)
    repeated = () if assumed else (i.times(results.reference) for i in results.implementations)
    return Recording(
        results, samples, Orders([ConfiguredSpace(c, Space(g)) for c, g in graphs.items()]),
        Outliers.of(repeated, results.noise), Samples.of(samples), [s.value for s in samples],
    )  # fmt: skip


def measure(args: argparse.Namespace, path: str | None) -> dict[str, Any]:
    jobs = [(args, path, name, seed) for name in args.strategies for seed in range(args.seeds)]
    runs: Runs = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        for found in pool.map(replay, jobs):
            for (row_name, labels, key), figures in found.items():
                runs.setdefault(row_name, {}).setdefault(labels, {}).setdefault(key, []).append(figures)
    rows = {
        name: {
            labels: {
                key: {figure: spread([f[figure] for f in figures]) for figure in figures[0]}
                for key, figures in by_size.items()
            }
            for labels, by_size in by_labels.items()
        }
        for name, by_labels in runs.items()
    }
    recording = _recording(path, args.assumed)
    return {
        "what": "class accuracy after so many measurements (Table V)",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "data": str(path or "tests/data/spmv-2036-4xh200.csv"),
        "implementations": len(recording.samples),
        "noise": recording.results.noise,
        "seeds": args.seeds,
        "times": args.times,
        "outliers": "assumed" if args.assumed else "counted",
        "paper": PAPER,
        "medians": one(recording.samples, recording.outliers, recording.table, recording.times),
        "rows": rows,
    }


def in_one_table(found: Sequence[dict[str, Any]]) -> str:
    """The accuracy of everything, a line for each recording, kind of labels and strategy."""
    keys = [str(size) for size in SIZES]
    out = [
        f"Class accuracy after so many of the 2036 measurements, mean of {found[0]['seeds']} seeds. In brackets: one",
        "label for all (of the same classes, that with which it is highest), and the share of seeds with one class,",
        "where the accuracy means nothing.\n",
        f"| recording | labels | measured by | {' | '.join(keys)} |",
        "|---|---|---|" + "---|" * len(keys),
        "| the paper's (four A100) | the paper's | MCTS | " + " | ".join(f"{PAPER[key]:.2f}" for key in keys) + " |",
    ]
    names = {"paper": "the paper's", "distinct": "dagc's, full tree", "pruned": "dagc's, pruned"}
    for one_of in found:
        data = f"{Path(one_of['data']).stem}, noise {100 * one_of['noise']:.1f} %"
        for labels in LABELS:
            for strategy, by_labels in one_of["rows"].items():
                cells = []
                for key in keys:
                    mean = {figure: values["mean"] for figure, values in by_labels[labels][key].items()}
                    alone = f", {mean['one_class']:.2f}" if mean["one_class"] else ""
                    cells.append(f"**{mean['accuracy']:.3f}** ({mean['constant']:.3f}{alone})")
                out.append(f"| {data} | {names[labels]} | `{strategy}` | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def markdown(found: dict[str, Any]) -> str:
    """One table for each way to label."""
    noise = found["noise"]
    handed = "one recorded pass" if found["times"] == "single" else "the median of the recorded passes"
    about = f"{found['implementations']} implementations ({found['data']}), the search is handed {handed}"
    out = [
        f"{about}. {found['seeds']} seeds: mean, and standard deviation in brackets.",
        f"Noise floor of one measurement {100 * noise:.1f} %; widths of classes are in such noise floors.",
        "`random labels`: accuracy of as many labels of each class, drawn by lot; `one label`: of the same class for",
        "all, that with which it is highest. `within noise`: accuracy with ranges",
        "that are wider by the noise of the times on both sides. `far off`: share further than three noise floors",
        "(of one measurement) from that range. `one class`: share of seeds with one class only, and so no rules.\n",
    ]
    columns = (
        "strategy, measurements, accuracy, paper, random labels, one label, within noise, far off, classes, one class, "
        "mean width, widest, leaves"
    )
    for labels in LABELS:
        out += [f"Labels: {labels}\n", f"| {columns.replace(', ', ' | ')} |", "|" + "---|" * len(columns.split(", "))]
        for name, by_labels in found["rows"].items():
            for key, f in by_labels[labels].items():
                paper = found["paper"][key] if name == "mcts" else ""
                mean = {figure: values["mean"] for figure, values in f.items()}
                out.append(row(name, key, mean, f" ({f['accuracy']['deviation']:.3f})", paper, noise))
        out.append(row("medians of all passes", "all", found["medians"][labels], "", "", noise) + "\n")
    return "\n".join(out)


def row(name: str, key: str, f: dict[str, float], deviation: str, paper: object, noise: float) -> str:
    cells = [
        name, key, f"**{f['accuracy']:.3f}**{deviation}", paper, f"{f['chance']:.3f}", f"{f['constant']:.3f}",
        f"{f['tolerant']:.3f}", f"{f['far']:.4f}", f"{f['classes']:.1f}", f"{f['one_class']:.2f}",
        f"{f['width'] / noise:.1f}", f"{f['widest'] / noise:.1f}", f"{f['leaves']:.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="?", help="a results file (default: the recorded H200 data)")
    parser.add_argument("--strategies", nargs="+", default=["mcts", "random"], metavar="NAME")
    parser.add_argument("--times", choices=("single", "median"), default="single", help="what the search is handed")
    parser.add_argument("--assumed", action="store_true", help="the share of outliers is assumed, not counted")
    parser.add_argument("--estimate", action="store_true", help="learn from estimated times of the whole space, too")
    parser.add_argument("--part", action="store_true", help="not after all measurements, which takes longest")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--markdown", metavar="F")
    parser.add_argument("--all", action="store_true", help="both recordings of the 2036, in one table")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    args = parser.parse_args()
    if args.all:
        args.strategies, args.part = ["mcts", "random", "model"], True
        every = [measure(args, path) for path in (str(CUDA_AWARE), None)]
        content: Any = every
        text = in_one_table(every)
    else:
        content = measure(args, args.results)
        text = markdown(content)
    if args.json:
        Path(args.json).write_text(json.dumps(content, indent=1) + "\n")
    if args.markdown:
        Path(args.markdown).write_text(text)
    print(text)


if __name__ == "__main__":
    main()

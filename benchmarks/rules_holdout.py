"""Rules judged on implementations that did not make them, for every committed exploration.

    python -m benchmarks.rules_holdout [RESULTS.db ...] [--seeds 10] [--jobs N] [--markdown F] [--json F]

Without a file: the explorations of `RECORDS`. For each seed, the implementations of a file are divided into two halves
by lot. Rules are learned from one half, as `dagc rules` learns them by default, and judged on the other:

    accuracy   share of the held-out implementations whose time is in the range of the class that the tree gives them
    constant   the same for one class for all, that with which it is highest
    followers  held-out implementations that follow a rule set of class 1
    slower     share of these that take over 1 % longer than the slowest of class 1
    loss       of followers: time over that of the fastest held-out implementation, minus 1; median and 95th percentile
    no rules   share of the seeds for which `dagc rules` would print none (one class, or a tree no better than one);
               all other figures are means over the remaining seeds
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.learn.rules.features import Samples
from dagc.learn.rules.judging import accuracy
from dagc.learn.rules.labels import Outliers
from dagc.learn.rules.tree import learn
from dagc.recipes.results import Loaded

RECORDS = "benchmarks/results/2026-11-21-4xh200-explore"
TOLERANCE = 0.01  # beyond the slowest of class 1
FIGURES = ("classes", "accuracy", "constant", "followers", "slower", "loss", "loss95")
HEADINGS = (
    "file", "no rules", "classes", "accuracy", "one class for all", "followers of class 1",
    "slower than class 1 by over 1 %", "loss of followers: median", "95th percentile",
)  # fmt: skip

Figures = dict[str, float]


def recordings() -> list[str]:
    """The committed explorations of the SpMV and the halo exchange on four H200s."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / RECORDS).glob("*.db"))


def judged(job: tuple[str, int]) -> Figures | None:
    """The figures of one file and seed; None if there are no rules."""
    path, seed = job
    loaded = Loaded(path)
    samples = list(loaded.samples())
    random.Random(seed).shuffle(samples)
    half = len(samples) // 2
    training, test = samples[:half], samples[half:]
    outliers = Outliers.of((s.times for s in training), loaded.results.noise)
    learned = learn(training, loaded.results.noise, outliers=outliers)
    if learned.tree.leaves == 1:
        return None
    found = accuracy(learned, Samples.of(test), [s.value for s in test])
    given = learned.classify(*test)
    followers = [s.value for s, number in zip(test, given, strict=True) if number == 0]
    slowest = learned.classes.classes[0].slowest
    fastest = min(s.value for s in test)
    losses = sorted(value / fastest - 1 for value in followers)
    out = {
        "classes": float(len(learned.classes.classes)), "accuracy": found.share, "constant": found.constant,
        "followers": float(len(followers)),
    }  # fmt: skip
    if followers:
        out["slower"] = sum(value > slowest * (1 + TOLERANCE) for value in followers) / len(followers)
        out["loss"] = statistics.median(losses)
        out["loss95"] = losses[min(len(losses) - 1, int(0.95 * len(losses)))]
    return out


def row(path: str, found: Sequence[Figures | None]) -> dict[str, object]:
    """Means over the seeds with rules."""
    kept = [figures for figures in found if figures is not None]
    out: dict[str, object] = {"file": Path(path).stem, "none": 1 - len(kept) / len(found)}
    for name in FIGURES:
        values = [figures[name] for figures in kept if name in figures]
        out[name] = statistics.mean(values) if values else None
    return out


def markdown(rows: Sequence[dict[str, object]], seeds: int) -> str:
    """One line for each file."""

    def cell(value: object, percent: bool = False) -> str:
        if not isinstance(value, float):
            return "-"
        return f"{100 * value:.1f} %" if percent else f"{value:.3f}"

    out = [
        f"Learned from one half of the implementations of each file, judged on the other; means of {seeds} seeds.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
    ]
    for r in rows:
        number = [f"{r[k]:.1f}" if isinstance(r[k], float) else "-" for k in ("classes", "followers")]
        out.append(
            f"| {r['file']} | {cell(r['none'], True)} | {number[0]} | {cell(r['accuracy'])} | {cell(r['constant'])} |"
            f" {number[1]} | {cell(r['slower'], True)} | {cell(r['loss'], True)} | {cell(r['loss95'], True)} |"
        )
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", help="results files (default: the committed explorations)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    paths = args.results or recordings()
    jobs = [(path, seed) for path in paths for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(judged, jobs))
    rows = [row(path, found[n * args.seeds : (n + 1) * args.seeds]) for n, path in enumerate(paths)]
    text = markdown(rows, args.seeds)
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    if args.json:
        args.json.write_text(json.dumps({"seeds": args.seeds, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""Rules judged on implementations that did not make them, for every committed exploration.

    python -m benchmarks.rules_holdout [RESULTS.db ...] [--draws 5] [--jobs N] [--markdown F] [--json F]

Without a file: the explorations of `RECORDS`. One half of the implementations of a file teaches, the other half judges.
Two tables: the rules for the fast end, as `dagc rules` prints them (`Followed`), and the rules of the tree, as
`dagc rules --all` prints them (`dagc.learn.types.Halves` says what each column is).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.learn.fast import fast_end
from dagc.learn.features import Samples, in_order
from dagc.learn.judging import TOLERANCE, far, halves_of, in_halves
from dagc.learn.types import Example, Halves
from dagc.study.loaded import Loaded

RECORDS = "benchmarks/results/2026-11-21-4xh200-explore"
FAST_HEADINGS = (
    "file", "no rules", "stated: within", "followers", "slower than stated by over 1 %",
    "of all, within what is stated", "loss of followers: median", "95th percentile", "95th percentile of all",
)  # fmt: skip
HEADINGS = (
    "file", "no rules", "accuracy", "one class for all", "random labels", "followers of class 1",
    "slower than class 1 by over 1 %", "loss of followers: median", "95th percentile",
)  # fmt: skip


def recordings() -> list[str]:
    """The committed explorations of the SpMV and the halo exchange on four H200s."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / RECORDS).glob("*.db"))


@dataclass(frozen=True, slots=True)
class Followed:
    """Rules for the fast end of one half, and what follows them in the other, over several draws.

    halves     halves that taught; `without` of them gave no rules, and all further values are of the others
    stated     "within N of the best", as printed; the mean
    followers  implementations of the other halves that follow the rules
    beyond     share of these slower than what is stated, by more than TOLERANCE
    loss       median time of the followers over that of the best of their half, minus 1; `loss_95`: 95th percentile
    spread     95th percentile of all implementations over the best, minus 1: the constant answer
    chance     share of all implementations that are within what is stated
    """

    halves: int
    without: int
    stated: float
    followers: int
    beyond: float
    loss: float
    loss_95: float
    spread: float
    chance: float


def followed(samples: Sequence[Example], draws: int) -> Followed:
    """The rules for the fast end, judged."""
    measured = in_order([s for s in samples if s.measurements])
    stated, spreads, inside, losses, beyond, without = [], [], [], [], 0, 0
    for training, test in halves_of(measured, draws):
        fast = fast_end(training)
        if fast is None or not fast.rules:
            without += 1
            continue
        times = [s.value for s in test]
        mine = [t for t, yes in zip(times, Samples.of(test).follow(fast.plain), strict=True) if yes]
        limit = fast.limit * (1 + TOLERANCE)
        stated.append(fast.stated)
        spreads.append(fast.spread)
        inside.append(sum(t <= limit for t in times) / len(times))
        losses += [t / min(times) - 1 for t in mine]
        beyond += sum(t > limit for t in mine)
    ordered = sorted(losses)
    return Followed(
        halves=2 * draws, without=without, stated=_mean(stated), followers=len(losses),
        beyond=beyond / len(losses) if losses else math.nan, loss=median(losses) if losses else math.nan,
        loss_95=far(ordered) if losses else math.nan, spread=_mean(spreads), chance=_mean(inside),
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


@dataclass(frozen=True, slots=True)
class Judged:
    """The figures of one file; `tree` is None if it has too few implementations."""

    fast: Followed
    tree: Halves | None


def judged(job: tuple[str, int]) -> Judged:
    """The figures of one file."""
    path, draws = job
    loaded = Loaded(path)
    return Judged(followed(loaded.samples(), draws), in_halves(loaded.samples(), loaded.results.noise, draws))


def row(path: str, found: Halves | None) -> str:
    """One line of the table of trees."""
    name = Path(path).stem
    if found is None:
        return f"| {name} |" + " - |" * (len(HEADINGS) - 1)
    shares = [found.slower, found.loss, found.loss_95]
    cells = [
        f"{found.without} of {found.halves}",
        *(f"{value:.3f}" for value in (found.accuracy, found.constant, found.chance)),
        str(found.followers),
        *(f"{100 * value:.1f} %" for value in shares),
    ]
    return f"| {name} | {' | '.join('-' if 'nan' in cell else cell for cell in cells)} |"


def row_of_fast(path: str, found: Followed) -> str:
    """One line of the table of the fast end."""
    shares = [found.stated, found.beyond, found.chance, found.loss, found.loss_95, found.spread]
    cells = [f"{100 * value:.1f} %" for value in shares]
    cells = [f"{found.without} of {found.halves}", cells[0], str(found.followers), *cells[1:]]
    return f"| {Path(path).stem} | {' | '.join('-' if 'nan' in cell else cell for cell in cells)} |"


def all_of_fast(found: Sequence[Followed]) -> str:
    """The line below that table: all followers of all files."""
    count = sum(one.followers for one in found)
    beyond = sum(one.beyond * one.followers for one in found if one.followers)
    worse = sum(one.beyond > 0.05 for one in found)
    share = f"{100 * beyond / count:.1f} %" if count else "none"
    return (
        f"Of all {count} followers, {share} are slower than stated; over 5 % of them in {worse} of {len(found)} files."
    )


def markdown(paths: Sequence[str], found: Sequence[Judged]) -> str:
    """Both tables, one line for each file."""
    out = ["Rules for the fast end:", "", f"| {' | '.join(FAST_HEADINGS)} |", "|---" * len(FAST_HEADINGS) + "|"]
    out += [row_of_fast(path, one.fast) for path, one in zip(paths, found, strict=True)]
    out += ["", all_of_fast([one.fast for one in found]), "", "Rules of the tree:", ""]
    out += [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    out += [row(path, one.tree) for path, one in zip(paths, found, strict=True)]
    return "\n".join(out) + "\n"


def as_json(paths: Sequence[str], found: Sequence[Judged]) -> str:
    """The same with all digits."""
    rows = {Path(path).stem: _finite(asdict(one)) for path, one in zip(paths, found, strict=True)}
    return json.dumps(rows, indent=1) + "\n"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _finite(value) if isinstance(value, dict) else None if value != value else value
        for key, value in values.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", help="results files (default: the committed explorations)")
    parser.add_argument("--draws", type=int, default=5, help="of two halves each")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    paths = args.results or recordings()
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(judged, [(path, args.draws) for path in paths]))
    print(markdown(paths, found))
    if args.markdown:
        args.markdown.write_text(markdown(paths, found))
    if args.json:
        args.json.write_text(as_json(paths, found))


if __name__ == "__main__":
    main()

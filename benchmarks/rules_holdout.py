"""Rules judged on implementations that did not make them, for every committed exploration.

    python -m benchmarks.rules_holdout [RESULTS.db ...] [--draws 3] [--jobs N] [--markdown F] [--json F]

Without a file: all explorations under benchmarks/results with at least FEWEST_OF_HALVES implementations. Those of
`DEVELOPED` were looked at while the statements of rules were written; what is said of all others was judged afterwards.

One half of the implementations of a file teaches, the other half judges. Both kinds of rules are judged as they are
printed: those of the tree (`dagc rules --all`, `dagc.learn.types.Halves`) and those for the fast end (`dagc rules`,
`Followed`). *Stated*: "1 in 20 is over" and "within N % of the best"; *beyond*: the share of held-out followers that
are slower than that by over 1 %; *loss*: of the 95th percentile of the followers to the best of their half.
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

from scipy.stats import binom

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.base.errors import UsageError
from dagc.base.statistics import ENOUGH
from dagc.learn.classes import Outliers
from dagc.learn.fast import fast_end
from dagc.learn.features import Samples, in_order
from dagc.learn.judging import FEWEST_OF_HALVES, TOLERANCE, far, halves_of, in_halves, learn_confirmed
from dagc.learn.text import percent
from dagc.learn.tree import LearnedRules
from dagc.learn.types import Example, Halves
from dagc.study.loaded import Loaded

RESULTS = ROOT / "benchmarks/results"
DEVELOPED = "2026-11-21-4xh200-explore"
HEADINGS = (
    "file", "measured", "tree: no rules", "accuracy", "one class for all", "class 1: stated", "followers", "beyond",
    "loss", "fast end: no rules", "stated", "followers", "beyond", "loss", "loss of all",
)  # fmt: skip


def recordings() -> list[str]:
    """The committed explorations with enough implementations, those of `DEVELOPED` first."""
    found = sorted(RESULTS.glob("*/*.db"), key=lambda path: (path.parent.name != DEVELOPED, path))
    return [str(path.relative_to(ROOT)) for path in found if _measured(path) >= FEWEST_OF_HALVES]


def _measured(path: Path) -> int:
    try:
        return len(Loaded(path).results.measured())
    except UsageError:  # of `dagc tune`
        return 0


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
    """The figures of one file."""

    measured: int
    fast: Followed
    tree: Halves


def judged(job: tuple[str, int]) -> Judged:
    """The figures of one file, with at least FEWEST_OF_HALVES implementations."""
    path, draws = job
    loaded = Loaded(path)
    samples, noise = loaded.samples(), loaded.results.noise

    def teach(part: Sequence[Example]) -> LearnedRules:
        return learn_confirmed(part, noise, Outliers.of((s.times for s in part), noise))

    tree = in_halves(samples, teach, draws)
    assert tree is not None, path
    return Judged(len(samples), followed(samples, draws), tree)


def row(path: str, found: Judged) -> str:
    """One line of the table."""
    tree, fast = found.tree, found.fast
    cells = [
        f"{Path(path).parent.name}/{Path(path).stem}".removeprefix(f"{DEVELOPED}/"),
        str(found.measured),
        f"{tree.without} of {tree.halves}", f"{tree.accuracy:.3f}", f"{tree.constant:.3f}",
        percent(tree.stated), str(tree.followers), percent(tree.slower), percent(tree.loss_95),
        f"{fast.without} of {fast.halves}", percent(fast.stated), str(fast.followers), percent(fast.beyond),
        percent(fast.loss_95), percent(fast.spread),
    ]  # fmt: skip
    return f"| {' | '.join('-' if 'nan' in cell else cell for cell in cells)} |"


def together(name: str, found: Sequence[Judged]) -> str:
    """The line below the table for several files."""
    trees = [(one.tree.followers, one.tree.slower) for one in found if one.tree.followers]
    fast = [(one.fast.followers, one.fast.beyond) for one in found if one.fast.followers]
    below = sum(one.tree.accuracy < one.tree.constant for one in found)
    with_rules = sum(one.tree.without < one.tree.halves for one in found)
    return (
        f"- {name}, {len(found)} files. Tree: accuracy below one class for all in {below} of {with_rules} with rules;"
        f" {_beyond(trees)}. Fast end: {_beyond(fast)}."
    )


def _beyond(shares: Sequence[tuple[int, float]]) -> str:
    """`shares`: (followers, share beyond what is stated) of each file that has followers."""
    count = sum(followers for followers, _ in shares)
    if not count:
        return "no followers"
    mean = sum(followers * beyond for followers, beyond in shares) / count
    most = 1 / (ENOUGH + 1)
    worse = sum(beyond > most for _, beyond in shares)
    expected = sum(float(binom.sf(math.floor(most * followers), followers, mean)) for followers, _ in shares)
    return (
        f"of {count} followers {percent(mean)} beyond what is stated, over 5 % in {worse} of {len(shares)} files"
        f" ({expected:.1f} are expected if the share is the same in all)"
    )


def markdown(paths: Sequence[str], found: Sequence[Judged]) -> str:
    """The table, one line for each file, and a line for those of `DEVELOPED` and for the others."""
    out = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    out += [row(path, one) for path, one in zip(paths, found, strict=True)]
    seen = [one for path, one in zip(paths, found, strict=True) if Path(path).parent.name == DEVELOPED]
    others = [one for path, one in zip(paths, found, strict=True) if Path(path).parent.name != DEVELOPED]
    out += ["", *(together(name, part) for name, part in (("Looked at", seen), ("Not looked at", others)) if part)]
    return "\n".join(out) + "\n"


def as_json(paths: Sequence[str], found: Sequence[Judged]) -> str:
    """The same with all digits."""
    rows = {path: _finite(asdict(one)) for path, one in zip(paths, found, strict=True)}
    return json.dumps(rows, indent=1) + "\n"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _finite(value) if isinstance(value, dict) else None if value != value else value
        for key, value in values.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", help="results files (default: all committed explorations)")
    parser.add_argument("--draws", type=int, default=3, help="of two halves each")
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

"""Rules judged on implementations that did not make them, for every committed exploration.

    python -m benchmarks.rules_holdout [RESULTS.db ...] [--draws 5] [--jobs N] [--markdown F] [--json F]

Without a file: the explorations of `RECORDS`. What `dagc rules` prints of halves, with more draws of them
(`dagc.learn.types.Halves` says what each column is).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dagc.learn.judging import in_halves
from dagc.learn.types import Halves
from dagc.study.loaded import Loaded

RECORDS = "benchmarks/results/2026-11-21-4xh200-explore"
HEADINGS = (
    "file", "no rules", "accuracy", "one class for all", "random labels", "followers of class 1",
    "slower than class 1 by over 1 %", "loss of followers: median", "95th percentile",
)  # fmt: skip


def recordings() -> list[str]:
    """The committed explorations of the SpMV and the halo exchange on four H200s."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / RECORDS).glob("*.db"))


def judged(job: tuple[str, int]) -> Halves | None:
    """The figures of one file; None if it has too few implementations."""
    path, draws = job
    loaded = Loaded(path)
    return in_halves(loaded.samples(), loaded.results.noise, draws)


def row(path: str, found: Halves | None) -> str:
    """One line of the table."""
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


def markdown(paths: Sequence[str], found: Sequence[Halves | None]) -> str:
    """One line for each file."""
    out = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    out += [row(path, halves) for path, halves in zip(paths, found, strict=True)]
    return "\n".join(out) + "\n"


def as_json(paths: Sequence[str], found: Sequence[Halves | None]) -> str:
    """The same with all digits."""
    rows = {
        Path(path).stem: None
        if halves is None
        else {k: None if math.isnan(v) else v for k, v in asdict(halves).items()}
        for path, halves in zip(paths, found, strict=True)
    }
    return json.dumps(rows, indent=1) + "\n"


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

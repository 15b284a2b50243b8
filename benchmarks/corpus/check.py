"""Every kernel of the corpus against NumPy, at its small size and under several settings, on the host target.

    python -m benchmarks.corpus.check [FAMILY | FAMILY/NAME ...] [--settings 6] [--target cuda] [--jobs 2]

The default setting and some drawn at random, for each kernel of a program. The default is audited too: no op changes
what its header does not declare. DAGC_CXXFLAGS=-O0 halves the time. Exit code 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus.index import Entry, entries
from dagc import api
from dagc.base.errors import DagcError
from dagc.lab.launches import Timing
from dagc.measure.service import RanksDied, Service, WorkerLink
from dagc.study import measure as tune_measure
from dagc.study.prepare import Prepared, prepare
from dagc.study.results import NOTHING_MEASURED
from dagc.study.task import tuning_task


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked of a kernel: `settings` that ran, and what is wrong."""

    settings: int
    failures: tuple[str, ...]


def prepared(entry: Entry, folder: Path, *, target: str = "host", seed: int = 0) -> Prepared:
    """The library with all settings that are checked, and the data of the small size. Raises DagcError."""
    task = tuning_task(api.read(entry.path), sizes=entry.check, check_at=entry.check, target=target, seed=seed)
    return prepare(task, folder / entry.family / entry.name, jobs=1)


def check(ready: Prepared, *, settings: int) -> Checked:
    """The default and `settings - 1` others of each op, the others drawn at random with the task's seed."""
    task, failures = ready.task, list(ready.failures)
    draw = random.Random(f"{task.seed} check")
    chosen = {}
    for site in task.sites:
        fits = ready.at[task.check_at].fits[site.name]
        others = [s for s in fits if s != site.default]
        chosen[site.name] = [site.default, *draw.sample(others, min(settings - 1, len(others)))]

    recording = tune_measure.Recording(NOTHING_MEASURED, None, None, 0, task.check_at)
    with Service(WorkerLink(ready.task.ranks)) as service:
        tune_measure.Measuring(ready, service, Timing(), recording).check(chosen)
    checks = recording.measured.checks
    failures += [f"{op} {choice.in_words}: {why}" for (op, choice), why in checks.items() if why]
    failures += audit(ready)
    return Checked(sum(not why for why in checks.values()), tuple(failures))


def audit(ready: Prepared) -> list[str]:
    """What ops change that their headers do not declare, under the default settings."""
    program = tune_measure.sized_program(ready, ready.task.check_at)
    try:
        with Service(WorkerLink(1)) as service:
            answer = service.ask(program.library, do="audit", tables=[program.rows], limit=Timing().allowed(None))
    except RanksDied as death:
        answer = {"error": str(death)}
    return [f"audit: {answer[key]}" for key in ("error", "wrong") if answer.get(key)]


def check_all(
    chosen: Sequence[Entry], folder: Path, *, target: str, seed: int, settings: int, jobs: int
) -> dict[str, Checked]:
    """By key. Programs are compiled side by side and run one after another."""
    out: dict[str, Checked] = {}
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        work = {e.key: pool.submit(prepared, e, folder, target=target, seed=seed) for e in chosen}
        for key, ready in work.items():
            try:
                out[key] = check(ready.result(), settings=settings)
            except DagcError as error:
                out[key] = Checked(0, (str(error),))
            verdict = "; ".join(out[key].failures) or "right"
            print(f"{key}: {out[key].settings} settings: {verdict}", flush=True)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="FAMILY or FAMILY/NAME (default: all)")
    parser.add_argument("--settings", type=int, default=6, metavar="N", help="of each op (default: 6)")
    parser.add_argument("--target", choices=("host", "cuda"), default="host")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="programs compiled side by side (default: 2)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = check_all(
            entries(only=args.only), Path(folder), target=args.target, seed=args.seed, settings=args.settings,
            jobs=args.jobs,
        )  # fmt: skip
    wrong = [key for key, checked in out.items() if checked.failures]
    print(f"{len(out)} kernels, {sum(c.settings for c in out.values())} settings right, {len(wrong)} kernels wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Lines and branches of dagc/ that each tier of the tests executes: `python -m tests.covered -n 2 DIR`.

Runs the default and the thorough tier with pytest-cov (`pip install pytest-cov`), programs that tests start included
(.coveragerc), and writes to DIR:

    default.json, thorough.json    what each tier executed, as `coverage json` writes it
    default.log, thorough.log      what pytest printed
    totals.txt                     lines, branches and percent of each tier
    lost.txt                       lines and branches that thorough executes and default does not; one `FILE:LINE` or
                                   `FILE:LINE->LINE` each, where a negative line is the end of the function of that line

Files and folders of tests after DIR, such as `tests/lang`, restrict both. A tier whose JSON file is in DIR already is
not run again. `--tier default` runs that one alone and compares nothing. Exit code 1 if tests failed or anything is
lost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.tiers import TIERS

ROOT = Path(__file__).parents[1]
Places = set[tuple[str, int, int | None]]  # file, line, and for a branch the line that it leads to


def run(tier: str, workers: str, out: Path, tests: list[str]) -> int:
    """The exit code of pytest; writes TIER.json and TIER.log to `out`."""
    environment = os.environ | {"COVERAGE_FILE": str(out / f"{tier}.coverage")}
    command = ["-m", "pytest", "-n", workers, "--tier", tier, "--cov=dagc", "--cov-branch", "--cov-report=", *tests]
    with (out / f"{tier}.log").open("w") as log:
        status = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    report = ["-m", "coverage", "json", "-q", "--ignore-errors", "--include=dagc/*", "-o", str(out / f"{tier}.json")]
    subprocess.run([sys.executable, *report], cwd=ROOT, env=environment, check=True)
    return status.returncode


def executed(report: dict[str, Any]) -> Places:
    places: Places = set()
    for name, file in report["files"].items():
        places.update((name, line, None) for line in file["executed_lines"])
        places.update((name, start, end) for start, end in file["executed_branches"])
    return places


def total(tier: str, report: dict[str, Any]) -> str:
    t = report["totals"]
    lines, of_lines, branches, of_branches = (
        t[k] for k in ("covered_lines", "num_statements", "covered_branches", "num_branches")
    )
    return (
        f"{tier}: {lines} of {of_lines} lines ({100 * lines / of_lines:.2f} %), "
        f"{branches} of {of_branches} branches ({100 * branches / of_branches:.2f} %)"
    )


def write_lost(reports: dict[str, Any], file: Path) -> int:
    """Write the places that only thorough executes to a file, and print their number; returns it."""
    lost = sorted(executed(reports["thorough"]) - executed(reports["default"]), key=lambda p: (p[0], p[1], p[2] or 0))
    places = [f"{name}:{line}" if end is None else f"{name}:{line}->{end}" for name, line, end in lost]
    file.write_text("".join(f"{place}\n" for place in places))
    print(f"executed by thorough only: {len(lost)}; see {file}")
    return len(lost)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", default="2", metavar="N", dest="workers", help="processes (2)")
    parser.add_argument("--tier", choices=TIERS, action="append", dest="tiers", help="this tier alone")
    parser.add_argument("out", type=Path, metavar="DIR")
    parser.add_argument("tests", nargs="*", metavar="TESTS", help="instead of all tests")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    out = arguments.out.resolve()
    tiers = arguments.tiers or list(TIERS)
    left = [tier for tier in tiers if not (out / f"{tier}.json").exists()]
    failed = [tier for tier in left if run(tier, arguments.workers, out, arguments.tests) != 0]
    reports = {tier: json.loads((out / f"{tier}.json").read_text()) for tier in tiers}
    totals = "".join(total(tier, report) + "\n" for tier, report in reports.items())
    (out / "totals.txt").write_text(totals)
    print(totals, end="")
    lost = write_lost(reports, out / "lost.txt") if len(reports) == len(TIERS) else 0
    for tier in failed:
        print(f"tests of the tier {tier} failed: {out / f'{tier}.log'}")
    return 1 if failed or lost else 0


if __name__ == "__main__":
    sys.exit(main())

"""The choices of a tuned file at its test inputs, compared with the best of some answers, such as a library's.

    python -m benchmarks.gpu.beside_answer TUNED.db[.xz] PROGRAM.dag cusparse1 cusparse2 [--only LIST]

Nothing is measured or trained: the selector is that of the file. `--only`: at the test inputs that a list names. Where
it is unsure, a feature is outside of the trained range, or a constraint fails, the default is taken. A line for each
size (elements of the largest array): speed over the best of the named answers, of what was chosen and of the best of
all others, and percent of exhaustive. Then the inputs at which the choice is slower than these answers, with the best
of all others there.
"""

from __future__ import annotations

import argparse
import lzma
import math
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, geometric_mean

from benchmarks.gpu.variants import Row, Table, tables
from dagc.base.errors import UsageError
from dagc.choice.selector import Extent, Selector
from dagc.store.tuned import Tuned, load_tuned
from dagc.study.held_out import taken

BANDS = ((0, math.inf), (0, 100_000), (100_000, 1_000_000), (1_000_000, math.inf))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A selector, and the range of the features that it was trained on."""

    selector: Selector
    extent: Extent


def guarded(table: Table, selector: Selector) -> Guarded:
    return Guarded(selector, Extent.of(dict(zip(selector.data, row.vector, strict=True)) for row in table.train))


def taken_at(row: Row, chooser: Guarded) -> int:
    """The answer that runs where a chooser is asked at an input."""
    if not all(map(math.isfinite, row.vector)):
        return 0
    beyond = chooser.extent.beyond(dict(zip(chooser.selector.data, row.vector, strict=True)))
    answer, _ = taken(chooser.selector.ask(row.vector), chooser.selector, max(beyond.values(), default=1.0))
    return 0 if row.times.get(answer) == math.inf else answer


def chosen_at(row: Row, chooser: Guarded) -> float:
    """Its seconds; infinite where it failed."""
    return row.times.get(taken_at(row, chooser), math.inf)


def slower(table: Table, rivals: Collection[int], chooser: Guarded) -> list[str]:
    """Of each test input at which the choice is slower than the best rival: the speed of both, and what was chosen."""
    out = []
    for row in table.test:
        rival = min(row.times.get(i, math.inf) for i in rivals)
        best, own = min((seconds, i) for i, seconds in row.times.items() if i not in rivals)
        taken, seconds = taken_at(row, chooser), chosen_at(row, chooser)
        if seconds > rival:
            chosen, other = (table.answers[i].in_words for i in (taken, own))
            speeds = f"chosen {rival / seconds:.2f} {chosen}, best other {rival / best:.2f} {other}"
            out.append((rival / seconds, f"  {speeds}: {row.facts.case.text}"))
    return [text for _, text in sorted(out)]


def line(rows: Sequence[Row], rivals: Collection[int], chooser: Guarded) -> str:
    """The figures of some inputs, at which a rival and another answer worked."""
    rival = [min(row.times.get(i, math.inf) for i in rivals) for row in rows]
    own = [min(t for i, t in row.times.items() if i not in rivals) for row in rows]
    taken = [chosen_at(row, chooser) for row in rows]
    speed, best = ([r / t for r, t in zip(rival, times, strict=True)] for times in (taken, own))
    percent = 100 * fmean(min(row.times.values()) / t for row, t in zip(rows, taken, strict=True))
    return (
        f"{len(rows):4} inputs: chosen {geometric_mean(speed):.3f}, at least as fast {fmean(s >= 1 for s in speed):.0%}"
        f", worst {min(speed):.2f}; best other {geometric_mean(best):.3f}, worst {min(best):.2f};"
        f" {percent:.2f} % of exhaustive"
    )


def report(table: Table, chooser: Guarded, names: Collection[str]) -> list[str]:
    """Lines of one op. Raises UsageError where no answer has one of the names."""
    known = {choice.in_words: i for i, choice in enumerate(table.answers)}
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"{table.op} has no answer {unknown[0]}", f"one of: {', '.join(known)}")
    rivals = [known[name] for name in names]
    out = [f"{table.op}: {chooser.selector.text}"]
    for low, high in BANDS:
        rows = [row for row in table.test if low <= row.facts.elements < high]
        if rows:
            out.append(f"{low:9,.0f} to {high:<9,.0f} {line(rows, rivals, chooser)}")
    return out + slower(table, rivals, chooser)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("answers", nargs="+")
    parser.add_argument("--only", type=Path, metavar="LIST")
    args = parser.parse_args()
    try:
        print("\n".join(lines(args.tuned, args.program, args.answers, args.only)))
    except UsageError as error:
        print(f"error: {error.message}\nhelp: {error.help}", file=sys.stderr)
        return 2
    return 0


def lines(path: Path, program: Path, answers: Sequence[str], only: Path | None = None) -> list[str]:
    """The report of a file. Raises UsageError as `report`."""
    tuned, out = unpacked(path), []
    names = only.read_text().splitlines() if only is not None else []
    for table in tables(tuned, program):
        if names:
            table = replace(table, test=tuple(row for row in table.test if row.name in names))
        selector = tuned.choosers[table.op].selector
        if selector is not None:
            out += report(table, guarded(table, selector), answers)
    return out


def unpacked(path: Path) -> Tuned:
    """A tuned file, which may be packed (`.xz`)."""
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".xz":
            packed, path = path, Path(folder) / path.stem
            path.write_bytes(lzma.decompress(packed.read_bytes()))
        return load_tuned(path)


if __name__ == "__main__":
    raise SystemExit(main())

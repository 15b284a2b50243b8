"""Repeats the commands of docs/figures.md that need no GPU, and compares what they print with the page.

    python -m benchmarks.figures [--only WORDS] [--seconds S] [--list]

Before each block of commands of the page is a comment that says how to repeat it:

    <!-- repeat: 20 s
    all +60 +{98.4} %
    -->

The first line has the seconds that the commands take on two cores, or why they are not repeated: `gpu` (they need
one), `machine` (times of this machine, or other packages), `revision` (searches, which belong to the revision of their
record). Each further line is a regular expression that a line of what they print must match; a number in braces is a
figure of the page. It agrees if what is printed, rounded to its digits, is the same; and it must occur on the page
between the block before and the one after.

Exit code 1: a figure moved, a command failed, or a figure is not on the page. Run it before a release.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/figures.md"
KINDS = ("gpu", "machine", "revision")
_BLOCK = re.compile(
    r"(?:^<!-- repeat: (?P<how>[^\n]*?)(?:\n(?P<lines>.*?))?-->\n+)?^```sh\n(?P<text>.*?)^```$", re.S | re.M
)
_FIGURE = re.compile(r"\{(-?[\d.,]+)\}")
_NUMBER = r"(-?[\d.,]+)"
_TIMEOUT = 4 * 3600


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the page. `pattern`: of what is printed, with a group for it and the others of its line; `number`:
    which of them."""

    pattern: str
    number: int
    text: str

    def moved(self, printed: str) -> str:
        """Empty if the printed number, rounded to the digits of the page, is that of the page; else what is printed."""
        match = re.search(self.pattern, printed, re.MULTILINE)
        if match is None:
            return "nothing that is printed matches"
        said, wanted = match[self.number].rstrip("."), self.text.replace(",", "")
        try:
            digits = Decimal(1).scaleb(min(0, -len(wanted.partition(".")[2])))
            agrees = abs(Decimal(said.replace(",", "")) - Decimal(wanted)) <= digits * Decimal("0.500001")
        except InvalidOperation:
            agrees = False
        return "" if agrees else f"{said} is printed"


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of the page. `how`: one of KINDS, or ""; `seconds`: how long they take. `beside`: the page from the
    block before to the next one."""

    line: int
    text: str
    how: str
    seconds: float
    figures: tuple[Figure, ...]
    beside: str

    def absent(self) -> list[str]:
        """The figures that the page does not have beside the commands."""
        shown = set(re.findall(r"[\d.,]*\d", self.beside.replace("*", "")))
        return [f"{f.text} is not on the page between the commands before and after these" for f in self.figures
                if f.text.lstrip("-") not in shown]  # fmt: skip


def blocks(text: str) -> list[Block]:
    """Those of a page. Raises ValueError for a comment that cannot be read."""
    found = list(_BLOCK.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    begins = [0] + [m.end() for m in found[:-1]]
    out = []
    for match, begin, end in zip(found, begins, ends, strict=True):
        line = text.count("\n", 0, match.start("text"))
        how = (match["how"] or "").strip()
        seconds = re.fullmatch(r"(\d+) s", how)
        if match["how"] is not None and seconds is None and how not in KINDS:
            raise ValueError(f"docs/figures.md:{line}: `repeat: {how}`: neither `N s` nor one of {', '.join(KINDS)}")
        lines = [one.strip() for one in (match["lines"] or "").splitlines() if one.strip()]
        figures = tuple(figure for one in lines for figure in _figures(one))
        beside = text[begin : match.start()] + text[match.end() : end]
        took = float(seconds[1]) if seconds else 0.0
        out.append(Block(line, match["text"], "" if seconds else how, took, figures, beside))
    return out


def _figures(line: str) -> Iterator[Figure]:
    pattern = _FIGURE.sub(lambda _: _NUMBER, line)
    for number, match in enumerate(_FIGURE.finditer(line), 1):
        yield Figure(pattern, number, match[1])


def commands(block: Block) -> str:
    """The commands with this Python, whatever PATH has."""
    text = re.sub(r"^xz -dk ", "xz -dkf ", block.text, flags=re.MULTILINE)
    return f'python() {{ {shlex.quote(sys.executable)} "$@"; }}\n{text}'


def repeat(block: Block) -> list[str]:
    """What is wrong: a command that fails, figures that moved. Files that it unpacks are removed again."""
    names = {ROOT / name for name in re.findall(r"[\w./-]+(?=\.xz\b)", expanded(block.text))}
    unpacked = [name for name in names if not name.exists()]
    try:
        return _repeated(block)
    finally:
        for name in unpacked:
            name.unlink(missing_ok=True)


def expanded(text: str) -> str:
    """Commands with the value of R in place of its name."""
    value = re.search(r"^R=(\S+)\n", text, re.MULTILINE)
    return re.sub(r"\$R\b", value[1], text.replace(value[0], "")) if value else text


def _repeated(block: Block) -> list[str]:
    with tempfile.TemporaryFile("w+") as errors:
        script = f"set -euo pipefail\ncd {shlex.quote(str(ROOT))}\n{commands(block)}"
        try:
            done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=errors, text=True,
                                  timeout=_TIMEOUT, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return [f"takes longer than {_TIMEOUT} s"]
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if done.returncode:
        return [f"exit code {done.returncode}: {said[-1] if said else ''}"]
    printed = done.stdout.replace("*", "")
    return [f"{figure.text}: {why} ({figure.pattern})" for figure in block.figures if (why := figure.moved(printed))]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="WORDS", default="", help="only commands that contain these words")
    parser.add_argument("--seconds", type=float, metavar="S", help="only commands that take so long, or less")
    parser.add_argument("--list", action="store_true", help="only list what is repeated, and why the rest is not")
    args = parser.parse_args()
    every = [b for b in blocks(PAGE.read_text(encoding="utf-8")) if args.only in b.text]
    wrong = 0
    for block in every:
        first = block.text.splitlines()[0][:90]
        if block.how or not block.figures or (args.seconds is not None and block.seconds > args.seconds):
            why = block.how or (f"takes {block.seconds:.0f} s" if block.figures else "no figures are marked")
            print(f"not repeated ({why}): line {block.line}: {first}")
            continue
        if args.list:
            print(f"{block.seconds:.0f} s, {len(block.figures)} figures: line {block.line}: {first}")
            continue
        began = time.monotonic()
        problems = [*block.absent(), *repeat(block)]
        wrong += len(problems)
        status = f"{len(problems)} differ" if problems else f"{len(block.figures)} figures agree"
        print(f"{status} in {time.monotonic() - began:.0f} s: line {block.line}: {first}", flush=True)
        for problem in problems:
            print(f"  docs/figures.md:{block.line}: {problem}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Instructions of kernels, counted in PTX, the text that nvcc's front end hands to its assembler.

A loop is what lies between a label and the last branch back to it. Loops that finish what an unrolled one leaves over
are left out: they run a few times at most. nvcc marks them `.pragma "nounroll"`, as it does loops that the program's
text wants so; where all loops of a depth are marked, they are the program's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dagc.kernel_resources import Instructions

_ENTRY = re.compile(r"(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)")
_LABEL = re.compile(r"(\$\w+):")
_BRANCH = re.compile(r"(?:@!?%\w+\s+)?bra(?:\.uni)?\s+(\$\w+)")
# To global memory, or to memory that the compiler cannot tell; not to parameters, constants, shared and local memory.
_REQUEST = re.compile(r"(?:@!?%\w+\s+)?(?:ld|ldu|st|atom|red)\.(?!(?:\w+\.)*(?:param|const|shared|local)\b)")
_MARK = '.pragma "nounroll"'


@dataclass(frozen=True, slots=True)
class _Loop:
    """Lines `first` to `last` of a function's body."""

    first: int
    last: int

    def holds(self, other: _Loop) -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


def read_instructions(text: str) -> dict[str, Instructions]:
    """Of each kernel function of a PTX text, by name."""
    return {name: _counted(body) for name, body in _functions(text)}


def _functions(text: str) -> Iterable[tuple[str, list[str]]]:
    name, depth = "", 0
    body: list[str] = []
    for whole in text.splitlines():
        line = whole.split("//")[0].strip()
        if depth == 0 and (found := _ENTRY.match(line)):
            name, body = found.group(1), []
        if depth > 0 and line not in "{}":
            body.append(line)
        depth += line.count("{") - line.count("}") if line in ("{", "}") else 0
        if name and depth == 0 and line == "}":
            yield name, body
            name = ""


def _loops(body: list[str]) -> list[_Loop]:
    labels = {found.group(1): i for i, line in enumerate(body) if (found := _LABEL.match(line))}
    last: dict[int, int] = {}
    for i, line in enumerate(body):
        found = _BRANCH.match(line)
        if found and labels.get(found.group(1), i + 1) <= i:
            last[labels[found.group(1)]] = i
    return [_Loop(first, end) for first, end in sorted(last.items())]


def _counted(body: list[str]) -> Instructions:
    loops = _loops(body)
    once, _ = _own(body, _Loop(-1, len(body)), loops)
    depths: dict[int, list[_Loop]] = {}
    for loop in loops:
        depths.setdefault(sum(x.holds(loop) for x in loops), []).append(loop)
    ratios = []
    for _, found in sorted(depths.items()):
        main = [x for x in found if not _is_marked(body, x)] or found
        instructions, requests = (sum(counts) for counts in zip(*(_own(body, x, loops) for x in main), strict=True))
        ratios.append(instructions / requests if requests else 1.0)
    return Instructions(once, tuple(ratios))


def _own(body: list[str], loop: _Loop, loops: list[_Loop]) -> tuple[int, int]:
    """(instructions, those that go to memory) of a loop, without the loops in it."""
    inner = [x for x in loops if loop.holds(x)]
    own = [
        line
        for i, line in enumerate(body)
        if loop.first <= i <= loop.last and not any(x.first <= i <= x.last for x in inner) and _is_instruction(line)
    ]
    return len(own), sum(bool(_REQUEST.match(line)) for line in own)


def _is_instruction(line: str) -> bool:
    return bool(line) and not line.startswith(".") and not _LABEL.match(line)


def _is_marked(body: list[str], loop: _Loop) -> bool:
    return any(_MARK in line for line in body[loop.first : loop.first + 2])

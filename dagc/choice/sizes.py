"""`--sizes`: which sizes of a program are meant.

NI=512,1024 NJ=512         every combination of the values
NI=NJ=512,1024             the same value for both
A; B                       several of these
"""

from __future__ import annotations

import re
from itertools import product

from dagc.base.errors import UsageError
from dagc.choice.types import Point
from dagc.ir.program import Program

_WORD = re.compile(r"((?:\w+=)+)([^=]+)$")
_WHOLE = re.compile(r"[0-9]{1,3}(_?[0-9]){0,16}")


def parse_sizes(text: str, program: Program, option: str = "--sizes") -> tuple[Point, ...]:
    """The points of a text, in its order, each once. Raises UsageError naming the option and the word that is wrong."""
    known = {p.name for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    out: dict[Point, None] = {}
    for part in text.split(";"):
        choices: list[list[dict[str, int]]] = []
        for word in part.split():
            match = _WORD.match(word)
            if match is None:
                raise UsageError(f"{option}: `{word}` is not NAME=VALUE[,VALUE]", "write NI=NJ=512,1024 NK=64")
            names = match[1].rstrip("=").split("=")
            for name in names:
                if name not in known:
                    have = f"one of: {', '.join(sorted(known))}" if known else "it has none: name inputs with --inputs"
                    raise UsageError(f"{option}: no integer parameter `{name}`", have)
            for name in names:
                if names.count(name) > 1 or any(name in one for choice in choices for one in choice):
                    raise UsageError(
                        f"{option}: `{part.strip()}` gives {name} twice", "separate several sizes by `;` or by `,`"
                    )
            values = [_value(word, name, value, option) for value in match[2].split(",")]
            choices.append([dict.fromkeys(names, v) for v in values])
        for combination in product(*choices):
            merged: dict[str, int] = {}
            for piece in combination:
                merged |= piece
            if merged:
                out[Point.of(merged)] = None
    if not out:
        raise UsageError(f"{option} names no size", "write NI=NJ=512,1024")
    return tuple(out)


def _value(word: str, name: str, text: str, option: str) -> int:
    if not text:
        raise UsageError(f"{option}: `{word}`: a value is missing", "write NI=512,1024")
    if not _WHOLE.fullmatch(text) or not 0 < int(text) < 2**31:
        raise UsageError(f"{option}: {name}={text} is not a size", "use whole numbers from 1 to 2147483647")
    return int(text)


def parse_size(text: str, program: Program, option: str) -> Point:
    """The one point of a text. Raises UsageError, also for several."""
    points = parse_sizes(text, program, option)
    if len(points) > 1:
        raise UsageError(f"{option} {text}: {len(points)} sizes", "name one")
    return points[0]

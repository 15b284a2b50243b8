"""`--sizes`: which sizes of a program are meant.

NI=512,1024 NJ=512         every combination of the values
NI=NJ=512,1024             the same value for both
A; B                       several of these
"""

from __future__ import annotations

import re
from itertools import product

from dagc.errors import UsageError
from dagc.ir import Program
from dagc.tune.types import Point

_WORD = re.compile(r"((?:\w+=)+)([\d_,]+)$")


def parse_sizes(text: str, program: Program) -> tuple[Point, ...]:
    """The points of a text, in its order, each once. Raises UsageError naming the word that is wrong."""
    known = {p.name for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    out: dict[Point, None] = {}
    for part in text.split(";"):
        choices: list[list[dict[str, int]]] = []
        for word in part.split():
            match = _WORD.match(word)
            if match is None:
                raise UsageError(f"--sizes: `{word}` is not NAME=VALUE[,VALUE]", "write NI=NJ=512,1024 NK=64")
            names = match[1].rstrip("=").split("=")
            for name in names:
                if name not in known:
                    raise UsageError(f"--sizes: no integer parameter `{name}`", f"one of: {', '.join(sorted(known))}")
            try:
                values = [int(v) for v in match[2].split(",")]
            except ValueError:
                raise UsageError(f"--sizes: `{word}`: a value is missing", "write NI=512,1024") from None
            for value in values:
                if not 0 < value < 2**31:
                    raise UsageError(f"--sizes: {names[0]}={value} is not a size", "use 1 to 2147483647")
            choices.append([dict.fromkeys(names, v) for v in values])
        for combination in product(*choices):
            merged: dict[str, int] = {}
            for piece in combination:
                merged |= piece
            if merged:
                out[Point.of(merged)] = None
    if not out:
        raise UsageError("--sizes names no size", "write NI=NJ=512,1024")
    return tuple(out)

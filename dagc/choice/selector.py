"""What a learned selector is: the number of a choice for given sizes, the same in Python and in C.

Features are logarithms of the sizes. They are computed in integers, so that no rounding of a mathematical library
decides a tie: Python and C compare the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dagc.base.errors import UsageError, counted

FEWEST = 3  # training sizes
FRACTION = 22  # binary digits of a logarithm behind the point: a squared distance of any two int64 is below 2**57
UNIT = 1 << FRACTION


class Selector(Protocol):
    """Which of some numbered choices at which sizes. Frozen; made by `dagc.choice.methods.fit`."""

    @property
    def method(self) -> str:
        """The name of what has learned it: `knn`."""

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the sizes that it asks for, in order."""

    @property
    def text(self) -> str:
        """What was learned, in a few words: `knn, k = 1`."""

    @property
    def answers(self) -> frozenset[int]:
        """Every number that `choose` may give."""

    def choose(self, sizes: Sequence[int]) -> int:
        """The number of the choice. Sizes below 1 count as 1."""

    def c_text(self, function: str) -> str:
        """C99 (and C++): `static inline int function(int64_t a, int64_t b, ...)`, with the includes that it needs."""

    def to_json(self) -> dict[str, Any]:
        """What a tuned file keeps; `dagc.choice.methods.from_json` reads it."""


def log2_fixed(size: int) -> int:
    """2**22 log2(size) rounded down, within one unit; 0 for sizes below 2. Ascends with the size.

    The whole part is the length in bits; each square of the rest, which lies in [1, 2) and has 31 binary digits, gives
    one digit more.
    """
    if size < 2:
        return 0
    whole = size.bit_length() - 1
    part = size >> (whole - 31) if whole > 31 else size << (31 - whole)
    result = whole
    for _ in range(FRACTION):
        part = part * part >> 31
        result *= 2
        if part >> 32:
            part >>= 1
            result += 1
    return result


def features(sizes: Sequence[Sequence[int]]) -> Any:
    """A matrix of logarithms to base 2, a row for each of the sizes."""
    import numpy as np

    return np.array([[log2_fixed(v) / UNIT for v in row] for row in sizes], float)


def check_training(data: Sequence[str], sizes: Sequence[Sequence[int]], labels: Sequence[int]) -> None:
    """Raises UsageError for no data, fewer than three sizes, sizes below 1, or sizes given twice."""
    if len(sizes) < FEWEST or len(sizes) != len(labels):
        raise UsageError(
            f"{counted(len(sizes), 'size')} and {counted(len(labels), 'label')}",
            f"give {FEWEST} or more, a label for each size",
        )
    if not data or any(len(row) != len(data) for row in sizes):
        raise UsageError("no sizes to choose by, or not as many as have names", "name each size of a training point")
    if min(v for row in sizes for v in row) < 1 or len({tuple(row) for row in sizes}) != len(sizes):
        raise UsageError("a size below 1, or one that is given twice", "give different sizes of 1 and more")


def parameters(data: Sequence[str]) -> tuple[str, ...]:
    """The names of the data as C has them."""
    return tuple("".join(c if c.isalnum() else "_" for c in name) for name in data)


def head(function: str, data: Sequence[str]) -> str:
    """`static inline int function(int64_t a, int64_t b)`."""
    return f"static inline int {function}({', '.join(f'int64_t {p}' for p in parameters(data))})"

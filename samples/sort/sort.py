"""Set-up and reference of the sort: generated keys and arrays of files, named by a text.

An input is a path of an `.npy` file with 32- or 64-bit floating-point numbers, or a call of one of `FAMILIES`, such as
"normal(n = 1_000_000, bits = 64, seed = 3)". All take n, bits (32) and seed (0).
"""

from __future__ import annotations

import os
import stat
import tokenize
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagc.inputs import call

Keys = NDArray[np.floating[Any]]
HERE = Path(__file__).parent
MOST = 2**30 - 1  # keys: 30 bits of a word count them


def keys(rank: int, size: int, seed: int, input: str) -> dict[str, Any]:
    """The keys, in the array of their type; the other one is empty. Each rank has the same ones.

    Raises ValueError for an unknown input, for a file that does not hold an array of keys, and for too many keys.
    """
    try:
        made = call(input, FAMILIES, _read)
    except MemoryError:
        raise ValueError(f"{input}: not enough memory") from None
    if made.size > MOST:
        raise ValueError(f"{input}: {made.size} keys; at most {MOST} can be sorted")
    bits = 8 * made.itemsize
    return {
        "n": made.size, "bits": bits, "n32": made.size * (bits == 32), "n64": made.size * (bits == 64),
        "in32": made.astype(np.float32) if bits == 32 else np.zeros(0, np.float32),
        "in64": made.astype(np.float64) if bits == 64 else np.zeros(0, np.float64),
    }  # fmt: skip


def total_order(data: dict[str, Any], **_: Any) -> dict[str, Keys]:
    """`out32` and `out64`, by `np.sort`: NaN come last there; those with the sign bit set come first here."""
    return {f"out{bits}": _sorted(np.asarray(data[f"in{bits}"])) for bits in (32, 64)}


def _sorted(keys: Keys) -> Keys:
    first = int(np.count_nonzero(np.isnan(keys) & np.signbit(keys)))
    return np.roll(np.sort(keys), first)


# ---- families ---------------------------------------------------------------------------------------------------


def uniform(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """In [0, 1)."""
    return np.random.default_rng(seed).random(n, _type(bits))


def normal(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Standard normal."""
    return np.random.default_rng(seed).standard_normal(n, _type(bits))


def exponential(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Standard exponential."""
    return np.random.default_rng(seed).standard_exponential(n, _type(bits))


def ascending(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Uniform, sorted."""
    return np.sort(uniform(n, bits, seed))


def reversed(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Uniform, sorted downwards."""
    return np.ascontiguousarray(ascending(n, bits, seed)[::-1])


def swapped(n: int, bits: int = 32, seed: int = 0, share: float = 0.25) -> Keys:
    """Sorted, then a share of the keys changes places at random."""
    rng = np.random.default_rng(seed)
    made = ascending(n, bits, seed)
    places = rng.choice(n, int(share * n), replace=False)
    made[places] = made[rng.permutation(places)]
    return made


def jittered(n: int, bits: int = 32, seed: int = 0, distance: int = 100) -> Keys:
    """Nearly sorted: no key is further than about `distance` places from where it belongs."""
    moved = np.arange(n) + np.random.default_rng(seed).random(n) * distance
    return ascending(n, bits, seed)[np.argsort(moved)]


def runs(n: int, bits: int = 32, seed: int = 0, number: int = 8) -> Keys:
    """`number` sorted sequences, one after another."""
    made = uniform(n, bits, seed)
    for part in np.array_split(made, number):
        part.sort()
    return made


def appended(n: int, bits: int = 32, seed: int = 0, share: float = 0.01) -> Keys:
    """Sorted, but for the last keys."""
    made = uniform(n, bits, seed)
    made[: n - int(share * n)].sort()
    return made


def waves(n: int, bits: int = 32, seed: int = 0, length: int = 1000) -> Keys:
    """Sequences of `length` keys, sorted upwards and downwards in turn."""
    made = uniform(n, bits, seed)
    for number, first in enumerate(range(0, n, length)):
        part = made[first : first + length]
        part.sort()
        made[first : first + length] = part[::-1] if number % 2 else part.copy()
    return made


def sawtooth(n: int, bits: int = 32, seed: int = 0, teeth: int = 10) -> Keys:
    """The same ascending whole numbers, `teeth` times."""
    length = -(-n // max(teeth, 1))
    return (np.arange(n) % max(length, 1)).astype(_type(bits))


def organ(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Upwards, then downwards, as organ pipes stand."""
    half = np.sort(uniform(n, bits, seed))
    return np.concatenate([half[::2], half[1::2][::-1]])


def shuffled(n: int, bits: int = 32, seed: int = 0, length: int = 10_000) -> Keys:
    """Sorted, then cut into pieces of `length` keys, which change places at random."""
    made = ascending(n, bits, seed)
    whole = n // length * length
    order = np.random.default_rng(seed).permutation(whole // length)
    made[:whole] = made[:whole].reshape(-1, length)[order].ravel()
    return made


def lognormal(n: int, bits: int = 32, seed: int = 0, deviation: float = 3.0) -> Keys:
    """exp of normal numbers: over many powers of ten."""
    drawn = np.random.default_rng(seed).standard_normal(n, np.float32) * np.float32(deviation)
    return np.exp(drawn.astype(_type(bits)))


def zipf(n: int, bits: int = 32, seed: int = 0, exponent: float = 1.5) -> Keys:
    """Whole numbers, small ones most often."""
    return np.random.default_rng(seed).zipf(exponent, n).clip(max=2**24).astype(_type(bits))


def inserted(n: int, bits: int = 32, seed: int = 0, share: float = 0.01) -> Keys:
    """Sorted, with a share of random keys among them."""
    rng = np.random.default_rng(seed)
    made = ascending(n, bits, seed)
    places = np.flatnonzero(rng.random(n, np.float32) < share)
    made[places] = rng.random(places.size, _type(bits))
    return made


def equal(n: int, bits: int = 32, seed: int = 0, different: int = 16) -> Keys:
    """Few different keys, whole numbers, in random order."""
    return np.random.default_rng(seed).integers(0, different, n).astype(_type(bits))


def rotated(n: int, bits: int = 32, seed: int = 0, share: float = 0.3) -> Keys:
    """Sorted, then the first keys moved to the end."""
    return np.roll(ascending(n, bits, seed), -int(share * n))


def interleaved(n: int, bits: int = 32, seed: int = 0, number: int = 4) -> Keys:
    """`number` sorted sequences, of which each gives a key in turn."""
    made = uniform(n, bits, seed)
    for part in range(number):
        made[part::number] = np.sort(made[part::number])
    return made


def turned(n: int, bits: int = 32, seed: int = 0, length: int = 1000) -> Keys:
    """Sorted, then each piece of `length` keys turned round."""
    made = ascending(n, bits, seed)
    whole = n // length * length
    made[:whole] = made[:whole].reshape(-1, length)[:, ::-1].ravel()
    return made


def walk(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Sums of normal numbers: a measured signal."""
    return np.cumsum(normal(n, 64, seed)).astype(_type(bits))


def rounded(n: int, bits: int = 32, seed: int = 0, digits: int = 2) -> Keys:
    """Normal, rounded to so many decimal places."""
    return np.round(normal(n, bits, seed), digits)


def delayed(n: int, bits: int = 32, seed: int = 0, share: float = 0.05, distance: float = 1000) -> Keys:
    """Sorted by time of sending, in the order of arrival: a share of the keys is late, by an exponential number of
    places."""
    draw = np.random.default_rng(seed)
    late = draw.exponential(distance, n) * (draw.random(n) < share)
    return ascending(n, bits, seed)[np.argsort(np.arange(n) + late, kind="stable")]


def descents(n: int, bits: int = 32, seed: int = 0, number: int = 8) -> Keys:
    """Random keys in pieces, each in descending order."""
    pieces = np.array_split(uniform(n, bits, seed), number)
    return np.concatenate([np.sort(piece)[::-1] for piece in pieces])


def transposed(n: int, bits: int = 32, seed: int = 0, columns: int = 100) -> Keys:
    """A table of so many columns, sorted along its rows one after the other, and read column by column."""
    whole = n // columns * columns
    made = ascending(n, bits, seed)
    made[:whole] = made[:whole].reshape(-1, columns).T.ravel()
    return made


def partly(n: int, bits: int = 32, seed: int = 0, share: float = 0.5) -> Keys:
    """The first keys are sorted among themselves, the others are not."""
    made, first = uniform(n, bits, seed), int(share * n)
    made[:first] = np.sort(made[:first])
    return made


def clusters(n: int, bits: int = 32, seed: int = 0, number: int = 50) -> Keys:
    """Groups in ascending order, in random order within."""
    made = np.sort(uniform(n, bits, seed))
    draw = np.random.default_rng(seed + 1)
    return np.concatenate([draw.permutation(group) for group in np.array_split(made, number)])


def heaped(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """In the order of a binary heap, the least first."""
    made = np.random.default_rng(seed).standard_exponential(n)
    first = 1
    while first < n:
        last = min(2 * first + 1, n)
        made[first:last] += made[(np.arange(first, last) - 1) // 2]
        first = last
    return made.astype(_type(bits))


def bitreversed(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Sorted, then in bit-reversed order, as the results of some fast Fourier transforms."""
    width = max(n - 1, 0).bit_length()
    place = np.zeros(1 << width, np.int64)
    for bit in range(width):
        place |= (np.arange(1 << width) >> bit & 1) << (width - 1 - bit)
    return ascending(n, bits, seed)[place[place < n]]


def leveled(n: int, bits: int = 32, seed: int = 0, first: int = 1000) -> Keys:
    """Sorted sequences, each twice as long as the one before, as a log-structured store keeps them."""
    made, begin, length = uniform(n, bits, seed), 0, first
    while begin < n:
        made[begin : begin + length] = np.sort(made[begin : begin + length])
        begin, length = begin + length, 2 * length
    return made


def tides(n: int, bits: int = 32, seed: int = 0, periods: float = 20, noise: float = 0.0) -> Keys:
    """The sum of two sines, with some noise: a measured signal that returns."""
    at = np.linspace(0, 2 * np.pi * periods, n)
    signal = np.sin(at) + 0.5 * np.sin(1.93 * at + 1) + noise * normal(n, 64, seed)
    return np.asarray(signal, _type(bits))


def sparse(n: int, bits: int = 32, seed: int = 0, share: float = 0.01) -> Keys:
    """Zeros, with a share of random keys among them."""
    made = uniform(n, bits, seed)
    made[np.random.default_rng(seed + 1).random(n) >= share] = 0
    return made


def golden(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Multiples of the golden ratio, without their whole parts: each as far from those before as can be."""
    return np.asarray((seed + np.arange(n)) * ((np.sqrt(5) - 1) / 2) % 1, _type(bits))


def sensors(n: int, bits: int = 32, seed: int = 0, number: int = 16) -> Keys:
    """Ascending clocks that run at speeds of their own; the next key is that of a random one."""
    draw = np.random.default_rng(seed)
    source = draw.integers(0, number, n)
    made = np.zeros(n)
    for clock in range(number):
        mine = source == clock
        made[mine] = np.cumsum(draw.standard_exponential(int(mine.sum()))) * (0.5 + draw.random())
    return made.astype(_type(bits))


def patched(n: int, bits: int = 32, seed: int = 0, share: float = 0.1) -> Keys:
    """Sorted, but for a share of the keys in the middle, which are random."""
    made, length = ascending(n, bits, seed), int(share * n)
    first = (n - length) // 2
    made[first : first + length] = np.random.default_rng(seed + 1).random(length, _type(bits))
    return made


def mirrored(n: int, bits: int = 32, seed: int = 0, share: float = 0.1) -> Keys:
    """Sorted; then a share of the keys changes places with those as far from the other end."""
    made = ascending(n, bits, seed)
    moved = np.flatnonzero(np.random.default_rng(seed + 1).random(n // 2) < share)
    made[moved], made[n - 1 - moved] = made[n - 1 - moved], made[moved]
    return made


def plateaus(n: int, bits: int = 32, seed: int = 0, length: int = 100) -> Keys:
    """Descending; each key is there `length` times."""
    return (np.arange(n)[::-1] // length).astype(_type(bits))


def gray(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """Gray codes: neighbours differ in one bit."""
    place = np.arange(n)
    return (place ^ place >> 1).astype(_type(bits))


def drifting(n: int, bits: int = 32, seed: int = 0, noise: float = 1000) -> Keys:
    """A line with so much noise, in places that a key may be from where it belongs."""
    return (np.arange(n) + noise * normal(n, 64, seed)).astype(_type(bits))


def signed_zeros(n: int, bits: int = 32, seed: int = 0) -> Keys:
    """0 and -0, infinities, NaN of both signs, numbers too small to be normal, and others, in random order."""
    tiny = np.finfo(_type(bits)).smallest_subnormal
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny, -tiny, 1, -1, 2.5, -1e30], _type(bits))
    return np.random.default_rng(seed).choice(special, n)


FAMILIES: dict[str, Callable[..., Keys]] = {
    f.__name__: f
    for f in (
        uniform, normal, exponential, ascending, reversed, swapped, jittered, runs, appended, waves, equal,
        signed_zeros, sawtooth, organ, shuffled, lognormal, zipf, inserted, rotated, interleaved,
        turned, walk, rounded, delayed, descents, transposed, partly, clusters,
        heaped, bitreversed, leveled, tides, sparse, golden,
        sensors, patched, mirrored, plateaus, gray, drifting,
    )
}  # fmt: skip


def _type(bits: int) -> type[np.float32 | np.float64]:
    if bits not in (32, 64):
        raise ValueError(f"bits is 32 or 64, not {bits}")
    return np.float32 if bits == 32 else np.float64


def _read(path: str) -> Keys:
    """The keys of a file. A relative path begins at this directory."""
    refused = f"{path} is not an array of numbers in NumPy's format"
    try:
        with open(HERE / path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file")
            made = np.load(file, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise ValueError(f"{path} cannot be read: not enough memory for the shape in its header") from None
    except (EOFError, OverflowError, SyntaxError, ValueError, tokenize.TokenError, zipfile.BadZipFile) as error:
        raise ValueError(f"{refused}: {str(error).split('.')[0]}") from None
    if not isinstance(made, np.ndarray):
        raise ValueError(f"{refused}: it is an archive of arrays (.npz)")
    if made.dtype not in (np.float32, np.float64):
        raise ValueError(f"{path}: its numbers are {made.dtype}; keys are float32 or float64")
    return made.ravel()


def _open(path: str, flags: int) -> int:
    """A pipe is refused later, and not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)

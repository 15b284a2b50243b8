"""Set-up and reference of the histogram: generated values and grey images, named by a text.

An input is a path of a file (`.npy` with values; any other image through Pillow, as grey) or a call of one of
`FAMILIES`, such as "normal(n = 1_000_000, deviation = 20, seed = 3)".
"""

from __future__ import annotations

import os
import stat
import struct
import tokenize
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dagc.inputs import call

Values = NDArray[np.unsignedinteger[Any]]
HERE = Path(__file__).parent


def values(rank: int, size: int, seed: int, input: str, bins: int, bytes: int) -> dict[str, Any]:
    """`values`, n of them, each an integer of `bytes` bytes and less than `bins`. Each rank has the same ones.

    Raises ValueError for an unknown input, for a file that cannot be read, and for values that have no bin.
    """
    try:
        made = call(input, {name: partial(family, bins=bins) for name, family in FAMILIES.items()}, _read)
    except MemoryError:
        raise ValueError(f"{input}: not enough memory") from None
    largest = int(made.max(initial=0))
    if largest >= bins:
        raise ValueError(f"{input}: it has the value {largest}, and there are {bins} bins: -D bins={largest + 1}")
    if bins > 256**bytes:
        raise ValueError(f"{bins} bins need values of more than {bytes} bytes: -D element=u16")
    return {"n": made.size, "values": made.astype(f"u{bytes}")}


def bincount(data: dict[str, Any], *, bins: int = 256, **_: Any) -> dict[str, NDArray[np.uint32]]:
    """`bin_count`, by NumPy."""
    return {"bin_count": np.bincount(data["values"], minlength=bins).astype(np.uint32)}


# ---- families ---------------------------------------------------------------------------------------------------


def uniform(n: int, bins: int, seed: int = 0) -> Values:
    """Every bin is equally likely."""
    return np.random.default_rng(seed).integers(0, bins, n, dtype=_small(bins))


def normal(n: int, bins: int, seed: int = 0, deviation: float = 20, mean: float = 0.5) -> Values:
    """Rounded normal values about `mean` * bins, cut off at the ends."""
    drawn = np.random.default_rng(seed).standard_normal(n, np.float32) * np.float32(deviation) + mean * bins
    return np.clip(drawn, 0, bins - 1).astype(_small(bins))


def zipf(n: int, bins: int, seed: int = 0, exponent: float = 1.2) -> Values:
    """The k-th most frequent value has a share in proportion to k ** -exponent; which value that is is random."""
    rng = np.random.default_rng(seed)
    upto = np.cumsum(np.arange(1, bins + 1) ** -float(exponent))
    place = np.searchsorted(upto / upto[-1], rng.random(n, np.float32)).clip(max=bins - 1)
    return rng.permutation(bins).astype(_small(bins))[place]


def constant(n: int, bins: int, seed: int = 0) -> Values:
    """One value."""
    return np.full(n, np.random.default_rng(seed).integers(bins), _small(bins))


def two(n: int, bins: int, seed: int = 0, share: float = 0.5) -> Values:
    """Two values in random order, the first with this share."""
    rng = np.random.default_rng(seed)
    pair = rng.choice(bins, 2, replace=bins < 2).astype(_small(bins))
    return pair[(rng.random(n, np.float32) >= share).astype(np.int8)]


def ascending(n: int, bins: int, seed: int = 0) -> Values:
    """Uniform values in sorted order."""
    return np.sort(uniform(n, bins, seed))


def blocks(n: int, bins: int, seed: int = 0, length: int = 64) -> Values:
    """Runs of `length` equal values."""
    return np.repeat(uniform(-(-n // length), bins, seed), length)[:n]


def walk(n: int, bins: int, seed: int = 0, step: int = 2) -> Values:
    """Smooth: each value differs from the one before by at most `step` (reflected at the ends), as in a photograph."""
    steps = np.random.default_rng(seed).integers(-step, step + 1, n, dtype=np.int8)
    place = np.abs(np.cumsum(steps, dtype=np.int64) + bins // 2) % (2 * bins)
    return np.minimum(place, 2 * bins - 1 - place).astype(_small(bins))


def mixture(n: int, bins: int, seed: int = 0, share: float = 0.5) -> Values:
    """Uniform values, a share of which one value replaces at random places: a picture with a plain background."""
    rng = np.random.default_rng(seed)
    made = uniform(n, bins, seed)
    made[rng.random(n, np.float32) < share] = rng.integers(bins)
    return made


def tiled(n: int, image: str, bins: int, seed: int = 0) -> Values:
    """The pixels of an image file, again and again."""
    return np.resize(_read(image), n)


def window(image: str, bins: int, seed: int = 0, channel: int = 0, part: float = 1.0) -> Values:
    """A rectangle at a random place of an image, each side `part` of the image's. `channel` 1 to 3: red, green or blue
    of an image that has them; 0: grey.

    Raises ValueError for other channels and parts.
    """
    pixels = _file(image, "RGB")
    if pixels.ndim == 3 and channel == 0:
        pixels = (pixels @ np.array([0.299, 0.587, 0.114]) + 0.5).astype(_small(bins))
    elif pixels.ndim == 3 and 1 <= channel <= 3:
        pixels = pixels[:, :, channel - 1]
    if pixels.ndim != 2 or not 0 < part <= 1:
        raise ValueError(f"{image}, channel {channel}: channels are 0 to 3 of an image in colours, and part is up to 1")
    rng = np.random.default_rng(seed)
    for axis, length in enumerate(pixels.shape):
        kept = max(1, int(part * length))
        first = int(rng.integers(length - kept + 1))
        pixels = pixels.take(range(first, first + kept), axis)
    return np.ascontiguousarray(pixels).ravel()


FAMILIES: dict[str, Callable[..., Values]] = {
    f.__name__: f for f in (uniform, normal, zipf, constant, two, ascending, blocks, walk, mixture, tiled, window)
}


def _small(bins: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if bins <= 256 else np.uint16


def _array(file: BinaryIO, path: str) -> Values:
    """The numbers of an array. Raises ValueError for other things, and for numbers outside of the bins."""
    refused = f"{path} is not an array of numbers in NumPy's format"
    try:
        numbers = np.load(file, allow_pickle=False)
    except (EOFError, OverflowError, SyntaxError, ValueError, tokenize.TokenError, zipfile.BadZipFile) as error:
        raise ValueError(f"{refused}: {str(error).split('.')[0]}") from None
    if not isinstance(numbers, np.ndarray):
        raise ValueError(f"{refused}: it is an archive of arrays (.npz)")
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"{path}: its numbers are {numbers.dtype}; values are whole numbers from 0")
    if numbers.min(initial=0) < 0:
        raise ValueError(f"{path}: it has the value {numbers.min()}; values are whole numbers from 0")
    return numbers


def _image(file: BinaryIO, path: str, mode: str) -> Values:
    """The pixels of an image, in a mode of Pillow. Raises ValueError."""
    try:
        from PIL import Image
    except ImportError:
        raise ValueError(f"{path}: reading images needs Pillow: pip install pillow") from None
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert(mode))
    except Image.UnidentifiedImageError:
        raise ValueError(f"{path} is not an image that Pillow can read") from None
    except (EOFError, OverflowError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image that Pillow can read: {error}") from None


def _read(path: str) -> Values:
    """Values of a file: an array of NumPy, or an image as grey."""
    return _file(path, "L").ravel()


def _file(path: str, mode: str) -> Values:
    """An array of NumPy, or the pixels of an image. A relative path begins at this directory. Raises ValueError."""
    try:
        with open(HERE / path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            return _array(file, path) if path.endswith(".npy") else _image(file, path, mode)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise ValueError(f"{path} cannot be read: not enough memory for the shape in its header") from None


def _open(path: str, flags: int) -> int:
    """A pipe is refused later, and not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)

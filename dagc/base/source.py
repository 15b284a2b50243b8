"""Source text and places in it. Every node of the syntax tree and of the IR has its place in the text."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LARGEST = 512 << 10  # bytes of a program and all that it includes: parsed in seconds
_LARGEST_FILE = 16 << 20  # bytes of any other file


def read_file(path: str | os.PathLike[str], *, largest: int = _LARGEST_FILE, regular: bool = False) -> bytes:
    """The content of a file of at most `largest` bytes. With `regular`, only of a regular file, and without blocking:
    a name in a text may be that of a pipe or a device.

    Raises OSError: EFBIG for a file that is too large, EINVAL for one that is not regular.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | (os.O_NONBLOCK if regular else 0)
    try:
        file = os.open(path, flags)
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path)) from None
    with open(file, "rb") as stream:
        if regular and not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = stream.read(largest + 1)  # some files have no end: /dev/zero
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest >> 10} KiB", str(path))
    return data


INCLUDE = "DAGC_INCLUDE"
"""Environment variable: further directories whose files a program may name, separated as in PATH (`-I DIR`)."""


def include_directories() -> tuple[Path, ...]:
    """The directories of `INCLUDE`, in order."""
    return tuple(Path(directory) for directory in os.environ.get(INCLUDE, "").split(os.pathsep) if directory)


def find_file(name: str, directory: Path, program: Path) -> Path:
    """The file that a `.dag` names: `name` relative to `directory`, else in the first of `include_directories`.

    It must lie below `program`, the directory of the program, or below one of these directories; symbolic links are
    resolved first. Raises OSError: FileNotFoundError if there is none, PermissionError if it lies elsewhere.
    """
    directories = include_directories()
    path = next(
        (p for p in (directory / name, *(f / name for f in directories)) if os.path.lexists(p)), directory / name
    )
    refuse_outside(path, program)
    return path


def refuse_outside(path: Path, program: Path) -> None:
    """Raises PermissionError for a path that lies neither below `program`, the directory of the program, nor below one
    of `include_directories`; OSError for a loop of links or a NUL. Symbolic links are resolved first."""
    try:
        place = path.resolve()
        inside = any(place.is_relative_to(directory.resolve()) for directory in (program, *include_directories()))
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    except ValueError:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path)) from None
    if not inside:
        raise PermissionError(errno.EACCES, "it is outside the program's directory", str(path))


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of character offsets, [start, end), in one `Source`."""

    start: int
    end: int
    file: str = field(default="", compare=False)

    def __or__(self, other: Span) -> Span:
        return Span(min(self.start, other.start), max(self.end, other.end), self.file)


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True)
class Spanned:
    """A node of a tree or of the IR, with its place in the text. Equality ignores the place."""

    span: Span = field(default=NOWHERE, compare=False, kw_only=True, repr=False)


# Bytes of files of code that are not UTF-8, as characters for private use at the end of Unicode.
_BYTES = {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
_BACK = {private: escape for escape, private in _BYTES.items()}


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").translate(_BYTES)


def encoded(text: str) -> bytes:
    """A text as the bytes of a file: UTF-8, with the bytes of a `Source` of any encoding unchanged."""
    return text.encode("utf-8") if text.isascii() else text.translate(_BACK).encode("utf-8", "surrogateescape")


def undecodable(path: object, error: UnicodeDecodeError) -> str:
    """What is wrong with the bytes of a file, with the place in it."""
    what = "a NUL" if error.reason == "a NUL" else "not UTF-8"
    line, begin = error.object.count(b"\n", 0, error.start), error.object.rfind(b"\n", 0, error.start)
    return f"{path}:{line + 1}:{error.start - begin}: byte {error.start} is {what}"


@dataclass(frozen=True)
class Source:
    """The text of one `.dag` file. Diagnostics show `path` as the user gave it."""

    path: str
    text: str

    @classmethod
    def read(cls, path: str | Path, *, regular: bool = False, any_encoding: bool = False) -> Source:
        """Read a file, `regular` as for `read_file`. With `any_encoding`, bytes that are not UTF-8 become characters
        that `encoded` turns back into these bytes, and a byte order mark is dropped.

        Raises OSError (also if it is too large for a program), UnicodeDecodeError if it is not UTF-8 or has a NUL.
        """
        data = read_file(path, largest=LARGEST, regular=regular)
        zero = data.find(b"\0")
        if zero >= 0:
            raise UnicodeDecodeError("utf-8", data, zero, zero + 1, "a NUL")
        # A byte order mark may only begin a file, and the emitted ones begin with `#line`.
        return cls(str(path), _decoded(data).removeprefix("\ufeff") if any_encoding else data.decode("utf-8"))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        for i, c in enumerate(self.text):
            if c == "\n":
                starts.append(i + 1)
        return tuple(starts)

    def line_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        from bisect import bisect_right

        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of line `number` (from 1), without its end."""
        starts = self._starts
        if not 0 < number <= len(starts):
            return ""
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r")

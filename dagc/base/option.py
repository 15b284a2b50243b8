"""Options of the command line, each declared once: as a field of the data class that a recipe takes, or by itself where
the command line alone uses it.

`dagc/cli/parser.py` makes parsers, help texts and the checks of what has no effect from the declarations, and a test
compares docs/reference/commands.md with them.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

_LARGEST = 2**63 - 1  # that a results file can store
MOST_JOBS = 1000  # Slurm, unless a site has set MaxArraySize, takes arrays of 1001


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or a positional argument.

    spelling  `--quiet`, `--top N`, `--format {text,md}`; a positional argument `FILE`, of which one or more `FILE...`
    help      one line; the default is added to it, unless it mentions one
    parse     text -> value; raises ArgumentTypeError
    name      of the value among the arguments: that of the field, else the spelling
    default   the value where the option is not given. A switch, by default False, gives the opposite
    several   makes the value of an option that may be repeated from its values, by default none
    required  whether the command needs it
    only      one of these has to be given, or the option has no effect: `--active`, `--as library or --as wheel`. Those
              that the command does not have do not count
    without   none of these may be given, or the option has no effect
    leaves    the only options that have an effect with this one; None: all
    """

    spelling: str
    help: str = ""
    parse: Callable[[str], Any] = str
    name: str = ""
    default: Any = None
    several: Callable[[Sequence[Any]], Any] | None = None
    required: bool = False
    only: str = ""
    without: str = ""
    leaves: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.flag.strip("-.").replace("-", "_").lower())
        if self.default is None and self.flag.startswith("-"):
            default = self.several(()) if self.several else None if self.value else False
            object.__setattr__(self, "default", default)

    @property
    def flag(self) -> str:
        """`--top`, or the name of a positional argument."""
        return self.spelling.split()[0]

    @property
    def value(self) -> str:
        """How the help writes the value: `N`, `{text,md}`; "" for a switch."""
        return self.spelling.partition(" ")[2]

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values that are accepted; None: those that `parse` accepts."""
        return tuple(self.value[1:-1].split(",")) if self.value.startswith("{") else None

    @property
    def constant(self) -> str:
        """The default, if it is a value that the help has not described."""
        if self.default in (None, "", ()) or isinstance(self.default, bool) or "(default" in self.help:
            return ""
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def described(self) -> str:
        """The help with the default."""
        return f"{self.help} (default: {self.constant})".lstrip() if self.constant else self.help


def option(spelling: str, help: str, parse: Callable[[str], Any] = str, **rest: Any) -> Any:
    """A field of a data class that is an option; the arguments are those of `Option`."""
    return as_field(Option(spelling, help, parse, **rest))


def as_field(option: Option) -> Any:
    """The field of a data class for an option."""
    return field(default=option.default, metadata={"option": option})


def options_of(*kinds: type) -> tuple[Option, ...]:
    """The options that the fields of these data classes are."""
    return tuple(o for kind in kinds for o in named(kind, *(f.name for f in fields(kind) if "option" in f.metadata)))


def named(kind: type, *names: str) -> tuple[Option, ...]:
    """The options that the fields of these names are."""
    found = {f.name: f.metadata["option"] for f in fields(kind) if f.name in names}
    return tuple(replace(found[name], name=name) for name in names)


def alternatives(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}"


# ---- values ---------------------------------------------------------------------------------


def positive(text: str) -> int:
    return _whole(text, 1)


def several(text: str) -> tuple[int, ...]:
    """`4,16,64`"""
    return tuple(positive(part) for part in text.split(","))


def natural(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal()) or (len(text) < 100 and int(text) < least):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    if len(text) >= 100 or int(text) > _LARGEST:
        raise ArgumentTypeError(f"{text[:100]!r} is more than {_LARGEST}")
    return int(text)


def in_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise ArgumentTypeError(f"{text!r} is not a positive number of seconds below a million")
    return value


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `10m`, `1.5h`."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    try:
        return in_seconds(number) * unit
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{text[:100]!r} is not a time such as 90s, 10m or 1.5h") from error


def jobs_of(text: str) -> int:
    """K of `slurm:K`."""
    system, _, number = text.partition(":")
    if system != "slurm":
        raise ArgumentTypeError(f"{text[:100]!r} is not `slurm` with a number of jobs: write slurm:8")
    count = positive(number)
    if count > MOST_JOBS:
        raise ArgumentTypeError(f"{number} jobs are too many: at most {MOST_JOBS}")
    return count


def share(text: str) -> float:
    """`1%` or `0.01`, between 0 and 1."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise ArgumentTypeError(f"`{text}` is not a fraction: give a percentage such as 1%, or a number such as 0.01")
    return value


def or_help(lines: Callable[[], Iterable[str]]) -> Callable[[str], str]:
    """Accepts any text. `help` prints the lines and exits as --help does, even where a positional argument lacks."""

    def parse(text: str) -> str:
        if text != "help":
            return text
        for line in lines():
            print(line)
        raise SystemExit(0)

    return parse

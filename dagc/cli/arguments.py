"""Arguments that several commands share, and the parsing of their values."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dagc.ir.enums import Transport

Options = TypeVar("Options")

_LARGEST = 2**63 - 1  # that a results file can store
TRANSPORTS = " or ".join(", ".join(transport.value for transport in Transport).rsplit(", ", 1))


def positive(text: str) -> int:
    return _whole(text, 1)


def natural(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or (len(text) < 100 and int(text) < least):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    if len(text) >= 100 or int(text) > _LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is more than {_LARGEST}")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds below a million")
    return value


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `10m`, `1.5h`."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    try:
        return seconds(number) * unit
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a time such as 90s, 10m or 1.5h") from error


def share(text: str) -> float:
    """`1%` or `0.01`, between 0 and 1."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a fraction: give a percentage such as 1%, or a number such as 0.01"
        )
    return value


def file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the .dag file")
    include(parser)


def include(parser: argparse.ArgumentParser) -> None:
    help = "additional directory to search for the program's files (include, setup); may be repeated"
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="DIR", help=help)


@contextmanager
def included(directories: Sequence[str]) -> Iterator[None]:
    """The directories of -I, for this command and the processes it starts."""
    from dagc.base.source import INCLUDE

    before = os.environ.get(INCLUDE)
    if directories:
        absolute = [str(Path(directory).absolute()) for directory in directories]
        os.environ[INCLUDE] = os.pathsep.join([*absolute, *([before] if before else [])])
    try:
        yield
    finally:
        os.environ.pop(INCLUDE, None)
        if before is not None:
            os.environ[INCLUDE] = before


def defines(parser: argparse.ArgumentParser) -> None:
    help = "override a parameter or fix a decision (rows=1000, transport=mpi_cuda, yl.block=128); may be repeated"
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE", help=help)


def space(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=positive, metavar="N", help="streams to use (default: the program's, else 2)")
    transport(parser)


def program(parser: argparse.ArgumentParser) -> None:
    """A program, and values for its decisions."""
    file(parser)
    space(parser)
    defines(parser)


def transport(parser: argparse.ArgumentParser) -> None:
    help = f"{TRANSPORTS} (default: the first that the program allows)"
    parser.add_argument("--transport", metavar="NAME", help=help)


def ranks(parser: argparse.ArgumentParser) -> None:
    help = "(default: 4; under mpiexec or srun, their number)"
    parser.add_argument("-n", dest="ranks", type=positive, metavar="RANKS", help=help)


def prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prune-syncs", action="store_true", help="remove redundant sync ops (default: keep)")


def unroll(parser: argparse.ArgumentParser) -> None:
    help = "an order for every round of a loop (default: one order, which its rounds repeat)"
    parser.add_argument("--unroll", action="store_true", help=help)


def defines_of(args: argparse.Namespace) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in args.defines:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            from dagc.base.errors import UsageError

            raise UsageError(f"-D {text}: not of the form NAME=VALUE", "write for example -D rows=1000")
        out[name.strip()] = value.strip()
    for name in ("streams", "transport"):
        if getattr(args, name, None) is not None:
            out[name] = str(getattr(args, name))
    return out


def options_of(args: argparse.Namespace, kind: Callable[..., Options], **others: Any) -> Options:
    """The options of a command: of each field of the data class `kind` the argument of this name, if it was given.
    `others`: fields that are made of arguments."""
    given = {name: getattr(args, name, None) for name in kind.__annotations__.keys() - others.keys()}
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items() if v is not None}
    return kind(**values, **others)


def form(parser: argparse.ArgumentParser) -> None:
    help = (
        "a standalone program, a library for applications, a Python package of one, or a program and what its "
        "driver.py (PyCUDA, mpi4py) calls (default: program)"
    )
    choices = ("program", "library", "wheel", "driver")
    parser.add_argument("--as", dest="form", choices=choices, default="program", help=help)
    help = "name of the library, and prefix of its functions (default: the program's name)"
    parser.add_argument("--name", metavar="NAME", help=help)


def quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no notes, no progress display")


def watchdog(parser: argparse.ArgumentParser) -> None:
    """For commands that measure."""
    help = "seconds after which a measurement counts as hung (default: 20)"
    parser.add_argument("--watchdog", type=seconds, default=20.0, metavar="S", help=help)


def device_pointers(parser: argparse.ArgumentParser) -> None:
    """For commands that measure."""
    help = "assert that the MPI accepts device pointers, if it cannot be queried"
    parser.add_argument("--mpi-takes-device-pointers", action="store_true", help=help)


def objective(parser: argparse.ArgumentParser, default: str = "that of the search") -> None:
    """--objective."""
    parser.add_argument(
        "--objective", type=_objective_text, metavar="time|energy|EXPRESSION",
        help="quantity to minimise: time, cpu, energy, error, or an expression of them; max:EXPRESSION to maximise;"
        f" --objective help lists the metrics (default: {default})",
    )  # fmt: skip


def _objective_text(text: str) -> str:
    """The expression. `help` lists the metrics and exits, as --help does."""
    if text != "help":
        return text
    from dagc.measure.metrics import summaries

    for name, unit, summary in summaries():
        print(f"{name:12} {unit:4} {summary}")
    raise SystemExit(0)

"""Options that several commands have and no recipe, and the values of -D."""

from __future__ import annotations

import argparse

from dagc.base.option import Option, alternatives, positive
from dagc.ir.enums import Transport

INCLUDE = Option(
    "-I DIR", "additional directory to search for the program's files (include, setup); may be repeated",
    name="include", several=tuple,
)  # fmt: skip
FILE = (Option("FILE", "the .dag file"), INCLUDE)
DEFINES = Option(
    "-D NAME=VALUE", "override a parameter or fix a decision (rows=1000, transport=mpi_cuda, yl.block=128); may be"
    " repeated", name="defines", several=tuple,
)  # fmt: skip
STREAMS = Option("--streams N", "streams to use (default: the program's, else 2)", positive)
TRANSPORT = Option(
    "--transport NAME",
    f"{alternatives(transport.value for transport in Transport)} (default: the first that the program allows)",
)
QUIET = Option("--quiet", "no notes, no progress display")


def output(value: str, help: str, required: bool = False) -> Option:
    """-o."""
    return Option(f"-o {value}", help, name="output", required=required)


def defines_of(args: argparse.Namespace, *names: str) -> dict[str, str]:
    """The values of -D, and those of the options of these names: `--streams`, `--transport`. Raises UsageError, also
    for a name with two values."""
    from dagc.base.errors import UsageError

    out: dict[str, tuple[str, str]] = {}  # name -> value, and how it was written

    def add(name: str, value: str, written: str) -> None:
        known, before = out.setdefault(name, (value, written))
        if known != value:
            raise UsageError(f"{before} and {written}: `{name}` has two values", "keep one of them")

    for text in args.defines:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-D {text}: not of the form NAME=VALUE", "write for example -D rows=1000")
        add(name.replace(" ", ""), value.strip(), f"-D {text}")
    for name in names:
        if getattr(args, name) is not None:
            add(name, str(getattr(args, name)), f"--{name} {getattr(args, name)}")
    return {name: value for name, (value, _) in out.items()}

"""From the declarations of options (`dagc/base/option.py`) to parsers, their help, and the check that every option that
was given has an effect; options that several commands have and no recipe, and the values of -D.

A parser knows no defaults: its namespace has what was given, and nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

from dagc.base.option import Option, alternatives, positive
from dagc.ir.enums import Transport

Options = TypeVar("Options")


class OneOf:
    """Options of which at most one may be given, exactly one if `required`."""

    def __init__(self, *options: Option, required: bool = False) -> None:
        self.options, self.required = options, required


class Command:
    """What a command does with its arguments, whose exit code it returns, and its options in the order of the help."""

    def __init__(self, run: Callable[[argparse.Namespace], int], *entries: Option | OneOf) -> None:
        self.run, self._entries = run, entries

    @property
    def options(self) -> tuple[Option, ...]:
        """All options and positional arguments."""
        return tuple(o for entry in self._entries for o in (entry.options if isinstance(entry, OneOf) else (entry,)))

    def fill(self, parser: argparse.ArgumentParser) -> None:
        """Add the options to a parser."""
        for entry in self._entries:
            if isinstance(entry, OneOf):
                group = parser.add_mutually_exclusive_group(required=entry.required)
                for option in entry.options:
                    _add(group.add_argument, option)
            else:
                _add(parser.add_argument, entry)

    def arguments(self, given: argparse.Namespace) -> argparse.Namespace:
        """What was given, and the defaults of the rest. Raises UsageError for an option that was given and has no
        effect, even if its value is the default."""
        values: dict[str, Any] = {option.name: option.default for option in self.options}
        for option in self.options:
            if option.name in given:
                value = getattr(given, option.name)
                values[option.name] = option.several(value) if option.several else value
        args = argparse.Namespace(**values)
        self._refuse_without_effect([option for option in self.options if option.name in given], args)
        return args

    def _refuse_without_effect(self, given: Iterable[Option], args: argparse.Namespace) -> None:
        from dagc.base.errors import UsageError

        named = {option.flag: option for option in self.options}

        def is_given(what: str) -> bool:
            """Of `--resume`, `--target host`, or a name of `_CONDITIONS`. False for an option of other commands."""
            if not what.startswith("-"):
                return _CONDITIONS[what](args)
            flag, _, value = what.partition(" ")
            if flag not in named:
                return False
            actual = getattr(args, named[flag].name)
            return str(actual) == value if value else bool(actual)

        alone = [option for option in self.options if option.leaves is not None and is_given(option.flag)]
        for option in given:
            if not option.flag.startswith("-"):
                continue
            excluding = [o.flag for o in alone if o is not option and option.flag not in str(o.leaves).split()]
            for what in (*excluding, *_one_of(option.without)):
                if is_given(what):
                    raise UsageError(f"{option.flag} has no effect with {what}", f"drop {option.flag}")
            owners = [what for what in _one_of(option.only) if what.split()[0] in named]
            if owners and not any(is_given(what) for what in owners):
                owner = " or ".join(owners)
                raise UsageError(f"{option.flag} belongs to {owner}", f"add {owner}, or drop {option.flag}")


_CONDITIONS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "another --strategy": lambda args: args.strategy not in (None, "exhaustive"),
    "several results files": lambda args: len(args.results) > 1,
}


def _one_of(alternatives: str) -> list[str]:
    return alternatives.split(" or ") if alternatives else []


def _add(add_argument: Callable[..., argparse.Action], option: Option) -> None:
    help = option.described.replace("%", "%%")
    if not option.flag.startswith("-"):
        several = option.flag.endswith("...")
        add_argument(option.name, metavar=option.flag.removesuffix("..."), nargs="+" if several else None, help=help)
        return
    words: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": help}
    if not option.value:
        add_argument(option.flag, action="store_const", const=not option.default, **words)
        return
    words |= {"choices": option.choices} if option.choices else {"metavar": option.value, "type": option.parse}
    action = "append" if option.several else "store"
    add_argument(option.flag, action=action, required=option.required, **words)


def options_from(args: argparse.Namespace, kind: Callable[..., Options], **others: Any) -> Options:
    """The options of a recipe: of each field of the data class `kind` the argument of this name, if the command has it.
    `others`: fields that are made of arguments."""
    names = {f.name for f in fields(kind)} - others.keys()  # type: ignore[arg-type]
    return kind(**{name: value for name, value in vars(args).items() if name in names}, **others)


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

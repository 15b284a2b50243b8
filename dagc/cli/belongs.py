"""Options that have an effect only with, or only without, others: one table for all commands.

An option that was given and has no effect is refused (exit code 2), even if its value is the default.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple


class Belongs(NamedTuple):
    """`options` have an effect only if `holds`: with `owner`, or without it. A tuple: --help loads no dataclasses."""

    options: tuple[str, ...]
    owner: str
    holds: Callable[[argparse.Namespace], object]
    without: bool = False


def _with(options: str, *owners: str) -> Belongs:
    """`options` belong to one of these."""
    names = [owner.lstrip("-").replace("-", "_") for owner in owners]
    return Belongs(tuple(options.split()), " or ".join(owners), lambda args: any(getattr(args, name) for name in names))


def _without(options: str, owner: str) -> Belongs:
    """`options` have no effect with `owner`."""
    name = owner.lstrip("-").replace("-", "_")
    return Belongs(tuple(options.split()), owner, lambda args: not getattr(args, name), without=True)


_LIBRARIES = Belongs(("--name",), "--as library or --as wheel", lambda args: args.form in ("library", "wheel"))
_ARCH = Belongs(("--arch",), "--target host", lambda args: args.target != "host", without=True)
_MEASURING = "--watchdog --mpi-takes-device-pointers"
_OF_TUNE = """
    --kernel --variants --sizes --inputs --samples --warm-start --check-at --active --initial --batch --margin
    --incremental --iterations --accuracy --next --select-features --calls --no-constraints --objective --evaluate
    --folds --hold-out --top --budget --until --time --cell --watchdog --warm --resume --other-machine --target --arch
    -n --seed
"""

RULES: dict[str, tuple[Belongs, ...]] = {
    "compile": (
        _with(f"-n --seed --seconds --repeats {_MEASURING}", "--run"),
        _without("--no-build", "--run"),
        _LIBRARIES,
        _ARCH,
    ),
    "explore": (
        Belongs(("--repeats",), "--confirm 0", lambda args: args.confirm != 0, without=True),
        Belongs(("--max",), "another --strategy", lambda args: args.strategy in (None, "exhaustive"), without=True),
        _without(f"--data --target --arch --resume --no-trace --max-configurations {_MEASURING}", "--replay"),
        _with("--other-machine", "--resume"),
        _ARCH,
    ),
    "best": (_without("-o --no-build --as --name --force --target", "--plan"), _LIBRARIES),
    "rules": (
        Belongs(
            ("--against", "--classes", "--tree", "--estimate", "--sets"), "several results files",
            lambda args: len(args.results) == 1, without=True,
        ),
    ),
    "explain": (_without(f"--seconds --data --other-machine {_MEASURING}", "--replay"),),
    "show": (Belongs(("--fold",), "--format html", lambda args: args.format != "html", without=True),),
    "tune": (
        _without(_OF_TUNE, "--show"),
        _with("--format", "--show"),
        _with("--initial --batch --margin", "--active"),
        _with("--iterations --accuracy --next", "--incremental"),
        _with("--folds --hold-out", "--evaluate"),
        _with("--other-machine", "--resume", "--evaluate"),
        _ARCH,
    ),
}  # fmt: skip


def refuse_without_effect(args: argparse.Namespace, argv: Sequence[str] | None) -> None:
    """Raises UsageError for an option of the command line that has no effect with the others."""
    broken = [rule for rule in RULES.get(args.command, ()) if not rule.holds(args)]
    given = _given(args.parser, sys.argv[1:] if argv is None else argv) if broken else set()
    for rule in broken:
        for option in (o for o in rule.options if o in given):
            from dagc.base.errors import UsageError

            if rule.without:
                raise UsageError(f"{option} has no effect with {rule.owner}", f"drop {option}")
            raise UsageError(f"{option} belongs to {rule.owner}", f"add {rule.owner}, or drop {option}")


def _given(parser: argparse.ArgumentParser, words: Iterable[str]) -> set[str]:
    """The options on the command line, which may be abbreviated, or followed by their value in the same word."""
    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", parser.format_help()))
    out = set()
    for word in takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name.startswith("-"):
            out |= {name} if name in known else {option for option in known if option.startswith(name)}
    return out

"""Parsers of `--sizes` and `--inputs`: the sizes and inputs of a program.

NI=512,1024 NJ=512                    every combination of the values
NI=NJ=512,1024                        the same value for both
A; B                                  several of these

An input is a case with a text value:

"train/*.mtx"                         files; relative to the current directory
@train.txt                            one input a line, `#` comments; relative to the directory of the list
"rmat(scale = 16, edges = 8)"         a call, which the set-up interprets (`dagc.inputs.call`)
matrix=...                            for the parameter `matrix`

Several are separated by commas. In a case, a path below the program's directory is relative to it; any other is
absolute. The set-up finds both as `folder / path`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.inputs import canonical_call, is_call
from dagc.base.source import read_file
from dagc.choice.types import Case
from dagc.ir.program import Param, Program

MOST = 100_000  # inputs of a list
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BEGUN = re.compile(r"[A-Za-z_]\w*\s*\(")
_COMMENT = re.compile(r"(^|\s)#.*")


def parse_inputs(lists: Sequence[str], program: Program, option: str = "--inputs") -> tuple[Case, ...]:
    """The cases of the lists, in order and without duplicates; without lists, those of the program's `over files`.

    Raises UsageError, naming the option and the entry, for a file that does not exist, a list that cannot be read, and
    an unknown parameter.
    """
    folder = Path(program.path).parent
    if not lists:
        parameter = input_parameter(program, "", option)
        files = _files(parameter.files, folder, folder, f'over files("{parameter.files}")')
        return tuple(_cases(parameter, files, "over files"))
    out: dict[Case, None] = {}
    for text in lists:
        match = _NAMED.fullmatch(text)
        named = match is not None and any(p.name == match[1] for p in program.params)
        name, rest = (match[1], match[2]) if match is not None and named else ("", text)
        each = (one for entry in _entries(rest) for one in _inputs(entry, folder, option))
        out |= dict.fromkeys(_cases(input_parameter(program, name, option), each, option))
    if not out:
        raise UsageError(f"{option} names no input", 'write a glob ("train/*.mtx"), @LIST or a call')
    return tuple(out)


def parse_input(text: str, program: Program, option: str) -> Case:
    """The one case of a text. Raises UsageError, also for several."""
    cases = parse_inputs([text], program, option)
    if len(cases) > 1:
        raise UsageError(f"{option} {text}: {len(cases)} inputs", "name one")
    return cases[0]


def input_parameter(program: Program, name: str, option: str = "--inputs") -> Param:
    """The parameter that an input sets: the named one, else the one with `over files`. Raises UsageError."""
    text = [p for p in program.params if p.type == "str"]
    candidates = [p for p in text if p.name == name] if name else [p for p in text if p.files]
    if len(candidates) == 1:
        return candidates[0]
    if name:
        names = ", ".join(p.name for p in text) or 'none: declare `param input : str = "..." over files("*.mtx")`'
        raise UsageError(f"{option}: `{name}` is not a parameter of type str", f"one of: {names}")
    if candidates:
        names = " and ".join(f"`{p.name}`" for p in candidates)
        raise UsageError(
            f"{option}: {names} have `over files`", f"name the one that is meant: {candidates[0].name}=LIST"
        )
    raise UsageError(
        f"{option}: no parameter of {program.name} has `over files`",
        'write `param input : str = "..." over files("matrices/*.mtx")`'
        + (f", or name one: {text[0].name}=LIST" if text else ""),
    )


def has_inputs(program: Program, fixed: Collection[str] = ()) -> bool:
    """Whether a parameter that is not `fixed` (by -D) is set by inputs."""
    return any(p.files and p.name not in fixed for p in program.params)


def is_input(case: Case) -> bool:
    """Whether a case is an input rather than a size."""
    return any(isinstance(value, str) for _, value in case.params)


def bytes_of(case: Case, program: Program) -> float:
    """The size of an input's file; infinite for calls, which are not files."""
    folder, total = Path(program.path).parent, 0.0
    for _, value in case.params:
        if isinstance(value, str):
            try:
                total += float("inf") if is_call(value) else (folder / value).stat().st_size
            except OSError:
                return float("inf")
    return total


def _cases(parameter: Param, inputs: Iterable[str], option: str) -> list[Case]:
    out = [Case(((parameter.name, one),)) for one in inputs]
    if len(out) > MOST:
        raise UsageError(f"{option}: {len(out)} inputs, more than {MOST}", "name fewer")
    return out


def _entries(text: str) -> Iterator[str]:
    """The parts between commas that are outside of brackets and quotes."""
    part, depth, quote = "", 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        if c == "," and depth <= 0 and not quote:
            yield part.strip()
            part = ""
        else:
            part += c
    yield part.strip()


def _inputs(entry: str, folder: Path, option: str) -> Iterator[str]:
    """The inputs of an entry of the command line."""
    if entry.startswith("@"):
        yield from _listed(Path(entry[1:]), folder, option)
    elif entry:
        yield from _one(entry, Path(), folder, f"{option}: `{entry}`")


def _listed(path: Path, folder: Path, option: str) -> Iterator[str]:
    try:
        lines = read_file(path, regular=True).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{option}: the list {path} cannot be read: {why}", "write one input a line") from None
    for number, line in enumerate(lines, 1):
        text = _COMMENT.sub("", line).strip()
        if text:
            yield from _one(text, path.parent, folder, f"{path}:{number}: `{text}`")


def _one(text: str, base: Path, folder: Path, where: str) -> Iterator[str]:
    """The inputs of a call, a path or a glob relative to `base`."""
    if not text.isprintable():
        raise UsageError(f"{where}: has characters that cannot be printed", "rename the file")
    if is_call(text):
        try:
            yield canonical_call(text)
        except ValueError as error:
            raise UsageError(f"{where}: {error}", "write NAME(KEY = VALUE, ...)") from None
    else:
        yield from _files(text, base, folder, where)


def _files(pattern: str, base: Path, folder: Path, where: str) -> list[str]:
    """The files of a path or a glob, sorted, as the program's directory has them."""
    whole = os.path.join(base, pattern)
    files = [whole] if os.path.isfile(whole) else sorted(filter(os.path.isfile, glob.glob(whole, recursive=True)))
    if not files:
        raise UsageError(f"{where}: {_missing(pattern)}", _help(pattern, base, folder))
    return [_relative(Path(f), folder) for f in files]


def _missing(text: str) -> str:
    """The error for a text that is neither a file nor anything else that is accepted."""
    if text.startswith("@"):
        return "a list cannot name another list"
    return "a call without its closing parenthesis" if _BEGUN.match(text) else "no such file"


def _help(text: str, base: Path, folder: Path) -> str:
    if text.startswith("@"):
        return f"give both: --inputs LIST --inputs {text}"
    if _BEGUN.match(text):
        return "write NAME(KEY = VALUE, ...)"
    named = _NAMED.fullmatch(text)
    also = f"; if `{named[1]}` is a parameter: the program has none of this name" if named else ""
    return f"check the path: it is relative to {_place(base, folder)}{also}"


def _place(base: Path, folder: Path) -> str:
    if base == folder:
        return "the program's directory"
    return "the current directory" if base == Path() else f"the directory of the list, {base}"


def _relative(path: Path, folder: Path) -> str:
    here, top = os.path.abspath(path), os.path.abspath(folder)
    inside = here.startswith(top + os.sep)
    return os.path.relpath(here, top) if inside else here


# ---- sizes ----


_WORD = re.compile(r"((?:\w+=)+)([^=]+)$")
_WHOLE = re.compile(r"[0-9]{1,3}(_?[0-9]){0,16}")


def parse_sizes(text: str, program: Program, option: str = "--sizes") -> tuple[Case, ...]:
    """The cases of a text, in order and without duplicates. Raises UsageError naming the option and the wrong word."""
    known = {p.name for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)}
    out: dict[Case, None] = {}
    for part in text.split(";"):
        choices: list[list[dict[str, int]]] = []
        for word in part.split():
            match = _WORD.match(word)
            if match is None:
                raise UsageError(f"{option}: `{word}` is not NAME=VALUE[,VALUE]", "write NI=NJ=512,1024 NK=64")
            names = match[1].rstrip("=").split("=")
            for name in names:
                if name not in known:
                    have = f"one of: {', '.join(sorted(known))}" if known else "it has none: name inputs with --inputs"
                    raise UsageError(f"{option}: no integer parameter `{name}`", have)
            for name in names:
                if names.count(name) > 1 or any(name in one for choice in choices for one in choice):
                    raise UsageError(
                        f"{option}: `{part.strip()}` gives {name} twice", "separate several sizes by `;` or by `,`"
                    )
            values = [_value(word, name, value, option) for value in match[2].split(",")]
            choices.append([dict.fromkeys(names, v) for v in values])
        for combination in product(*choices):
            merged: dict[str, int] = {}
            for piece in combination:
                merged |= piece
            if merged:
                out[Case.of(merged)] = None
    if not out:
        raise UsageError(f"{option} names no size", "write NI=NJ=512,1024")
    return tuple(out)


def _value(word: str, name: str, text: str, option: str) -> int:
    if not text:
        raise UsageError(f"{option}: `{word}`: a value is missing", "write NI=512,1024")
    if not _WHOLE.fullmatch(text) or not 0 < int(text) < 2**31:
        raise UsageError(f"{option}: {name}={text} is not a size", "use whole numbers from 1 to 2147483647")
    return int(text)


def parse_size(text: str, program: Program, option: str) -> Case:
    """The one case of a text. Raises UsageError, also for several."""
    cases = parse_sizes(text, program, option)
    if len(cases) > 1:
        raise UsageError(f"{option} {text}: {len(cases)} sizes", "name one")
    return cases[0]

"""The cases of a program: parsers of `--sizes` and `--inputs`, and the generator of `--samples`.

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

Cases are drawn from the values after `over`:

over log(2, 9152)        log-uniform: every factor of two equally likely
over uniform(0.6, 1)     uniform
over {1, 2, 4}, 4..10    one of these
over files("*.mtx")      one of the files (of `--inputs`, where that is given)

Both bounds are included. Integers are rounded; other numbers have six significant digits, so that a case read from its
text is equal. A draw that violates a `require` of the program on its params is discarded.
"""

from __future__ import annotations

import glob
import math
import os
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.source import read_file
from dagc.choice.types import Case
from dagc.inputs import canonical_call, is_call
from dagc.ir.program import Param, Program, Spread
from dagc.ir.sym import Number, evaluate, show
from dagc.stages.options import TuneOptions
from dagc.stages.program import ProgramText

Value = int | float | str

# ---- inputs ----------------------------------------------------------------------------------

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


# ---- sizes -----------------------------------------------------------------------------------


_WORD = re.compile(r"((?:\w+=)+)([^=]+)$")
_WHOLE = re.compile(r"[0-9]{1,3}(_?[0-9]){0,16}")


def parse_sizes(text: str, program: Program, option: str = "--sizes", also: Collection[str] = ()) -> tuple[Case, ...]:
    """The cases of a text, in order and without duplicates. `also`: names besides those of parameters. Raises
    UsageError naming the option and the wrong word."""
    known = {p.name for p in program.params if isinstance(p.value, int) and not isinstance(p.value, bool)} | {*also}
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


# ---- samples ---------------------------------------------------------------------------------

MOST_REFUSED = 10_000  # consecutive draws that violate a `require`
MOST_KNOWN = 1_000  # consecutive repeated draws after which no further cases are assumed to exist
_DIGITS = 6  # significant digits of a real number
_REALS = ("f32", "f64")


class Draws:
    """Distinct cases drawn from the params of a program. The same seed gives the same cases; cases to `test` come
    from another sequence.

    `fixed`: names of params with a fixed value (`-D`). `inputs`: lists as for `parse_inputs`. `spent`: whether no
    further cases exist.
    """

    def __init__(
        self, program: Program, seed: int, fixed: Collection[str] = (), inputs: Sequence[str] = (), test: bool = False
    ) -> None:
        """Raises UsageError if no param has values after `over`, and like `parse_inputs`."""
        self.program, self.spent = program, False
        self.params = tuple(p for p in program.params if p.generated and p.name not in fixed)
        self._given: list[dict[str, Value]] = []
        if inputs or has_inputs(program):
            self._given = [dict(p.params) for p in parse_inputs(inputs, program)]
        if not self.params and not self._given:
            raise UsageError(
                f"--samples: no param of {program.name} has values to draw from"
                + (", except those that -D gives" if any(p.generated for p in program.params) else ""),
                "write `param M : i64 = 256 over log(2, 9152)`, `over uniform(...)` or `over {...}`",
            )
        self._random = random.Random(f"{seed} {'tests' if test else 'draws'}")
        self._known: set[Case] = set()
        self._constants: dict[str, Value] = {
            p.name: p.value for p in program.params if isinstance(p.value, bool | int | float | str)
        }

    def take(self, number: int) -> tuple[Case, ...]:
        """The next cases, all distinct; fewer if no others exist. Raises UsageError like `candidates`."""
        out: list[Case] = []
        while len(out) < number and not self.spent:
            for case in self.candidates(1):
                self._known.add(case)
                out.append(case)
        return tuple(out)

    def candidates(self, number: int) -> tuple[Case, ...]:
        """Cases that were neither taken nor dropped; they may be drawn again. Fewer if hardly any others exist.

        Raises UsageError if the program's `require`s exclude nearly all cases.
        """
        out: list[Case] = []
        refused: Counter[int] = Counter()
        known = 0
        while len(out) < number and known < MOST_KNOWN:
            values = self._draw()
            broken = self._broken(values)
            if broken is not None:
                refused[broken] += 1
                if refused.total() == MOST_REFUSED:
                    raise self._too_few(refused.most_common(1)[0][0])
                continue
            case = Case.of(values)
            known = known + 1 if case in self._known else 0
            refused.clear()
            if not known:
                out.append(case)
        self.spent = known == MOST_KNOWN
        return tuple(out)

    def drop(self, cases: Collection[Case]) -> None:
        """Exclude these cases from further draws."""
        self._known.update(cases)

    def vector(self, case: Case) -> tuple[float, ...]:
        """The values of a case as numbers; a string is represented by its index among the values."""
        at = dict(case.params)
        return tuple(self._number(p, at.get(p.name, self._constants.get(p.name, 0))) for p in self.params)

    def _number(self, param: Param, value: Value) -> float:
        if not isinstance(value, str):
            return float(value)
        words = [at.get(param.name) for at in self._given] if param.files else list(param.over)
        return float(words.index(value)) if value in words else -1.0

    def _draw(self) -> dict[str, Value]:
        out: dict[str, Value] = {p.name: self._value(p) for p in self.params if not p.files}
        return out | (self._random.choice(self._given) if self._given else {})

    def _value(self, param: Param) -> Value:
        if param.spread is None:
            value = self._random.choice(param.over)
            assert isinstance(value, int | float | str)
            return float(value) if param.type in _REALS else value
        return _real(param.spread, self._random) if param.type in _REALS else _whole(param.spread, self._random)

    def _broken(self, values: Mapping[str, Value]) -> int | None:
        """The number of the first `require` that a draw violates."""
        at: dict[str, Number] = {**self._constants, **values}
        for number, condition in enumerate(self.program.domain):
            try:
                if not evaluate(condition, at):
                    return number
            except (ArithmeticError, ValueError):
                return number
        return None

    def _too_few(self, broken: int) -> UsageError:
        ranges = ", ".join(f"{p.name} over {p.spread.text}" for p in self.params if p.spread is not None)
        return UsageError(
            f"--samples: {MOST_REFUSED} draws in a row violate `require`s of {self.program.name}, most of them"
            f" `{show(self.program.domain[broken])}`",
            f"narrow the ranges{f': {ranges}' if ranges else ''}, or change the `require`",
        )


def _whole(spread: Spread, draw: random.Random) -> int:
    """Each integer represents the interval that rounds to it, both bounds included."""
    low, high = int(spread.low), int(spread.high)
    if not spread.log:
        return draw.randint(low, high)
    value = math.exp(draw.uniform(math.log(low - 0.5), math.log(high + 0.5)))
    return min(max(round(value), low), high)


def _real(spread: Spread, draw: random.Random) -> float:
    low, high = float(spread.low), float(spread.high)
    value = math.exp(draw.uniform(math.log(low), math.log(high))) if spread.log else draw.uniform(low, high)
    return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


def volume(case: Case) -> tuple[float, str]:
    """An order of sizes, the smallest first."""
    return math.prod(map(float, case.sizes.values())), case.text


def draws_of(text: ProgramText, program: Program, options: TuneOptions, test: bool = False) -> Draws:
    """What `--samples` draws from: params without a value of `-D`. Raises UsageError."""
    fixed = [p.name for p in program.params if p.name in text.defines]
    return Draws(program, options.seed, fixed, options.inputs, test)


def samples_of(options: TuneOptions) -> int | None:
    """How many inputs are drawn before any is measured: with `--active`, those at random. Raises UsageError."""
    if not options.active:
        return options.samples
    if options.samples is None:
        raise UsageError("--active draws inputs up to the number in --samples", "add --samples 200")
    if options.incremental:
        raise UsageError("--active draws inputs, --incremental takes them from a list", "give one of them")
    return Sampling.of(options.samples, options.initial, options.batch, options.margin).initial


def cases_asked(text: ProgramText, program: Program, options: TuneOptions, test: bool = False) -> tuple[Case, ...]:
    """`cases_of` the sizes and inputs of the options, or so many `samples`, others where they are to `test`. Raises
    UsageError."""
    samples = options.samples if test else samples_of(options)
    if samples is None:
        return cases_of(program, options.sizes, options.inputs, text.defines)
    if options.sizes:
        raise UsageError("--sizes names sizes, and --samples draws them", "give one of them")
    return draws_of(text, program, options, test).take(samples)


def single_values(defines: Mapping[str, Any]) -> dict[str, Any]:
    """The values of -D without choices among several values (`-D m=4,8`)."""
    return {n: v for n, v in defines.items() if "," not in str(v)}


def cases_of(program: Program, sizes: str, inputs: Sequence[str] = (), fixed: Collection[str] = ()) -> tuple[Case, ...]:
    """The cases of the texts; without a text, the values after `over`, combined in order, and the files of `over
    files`; else the defaults. Inputs are combined with all sizes. `fixed`: params with one value, given by -D."""
    of_sizes = parse_sizes(sizes, program) if sizes else _sizes_over(program, fixed)
    if not inputs and not has_inputs(program, fixed):
        return of_sizes
    given = parse_inputs(inputs, program)
    return tuple(Case.of({**dict(one.params), **dict(size.params)}) for one in given for size in of_sizes)


def _sizes_over(program: Program, fixed: Collection[str]) -> tuple[Case, ...]:
    over = (p for p in program.params if p.over and p.name not in fixed)
    trained = {p.name: p.over for p in over if all(type(v) in (int, float, str) for v in p.over)}
    if not trained:
        return (Case(()),)
    longest = max(len(v) for v in trained.values())
    values = ({n: v[min(i, len(v) - 1)] for n, v in trained.items()} for i in range(longest))
    return tuple(dict.fromkeys(map(Case.of, values)))


def check_case(program: Program, cases: Sequence[Case], text: str) -> Case:
    """The case at which results are compared with the reference: the named one, else the smallest size, or the
    smallest file among the inputs (the first input if all are calls)."""
    if text and any(case.is_input for case in cases):
        return parse_input(text, program, "--check-at")
    if text:
        return parse_size(text, program, "--check-at")
    if any(case.is_input for case in cases):
        return min(cases, key=lambda case: bytes_of(case, program))
    return min(cases, key=volume)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of Algorithm 1: `initial` inputs at random, then batches of `batch` whose margin is below `margin`."""

    initial: int
    batch: int
    margin: float = 0.5

    @classmethod
    def of(cls, samples: int, initial: int | None, batch: int | None, margin: float) -> Sampling:
        """The defaults for `samples` inputs: a fifth of them first, but at least 20, then batches of a twentieth."""
        first = min(samples, initial if initial is not None else max(20, samples // 5))
        return cls(first, batch if batch is not None else max(1, samples // 20), margin)

"""The files of an application and their flags, from the `compile_commands.json` that CMake writes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagc.base.errors import UsageError, parsed_json
from dagc.base.files import MARK
from dagc.base.flags import flags_variable, split_words
from dagc.base.source import INCLUDE, read_file
from dagc.cuda.lexer import includes

_SUFFIXES = frozenset((".c", ".cc", ".cpp", ".cxx", ".cu"))
WRITTEN = "// Written by dagc record."  # the first line of its files
_HELP = "give the file that cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON writes"
_LINKED = {"-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c"}
_OPTION_FILES = 64  # read for one command, one in another or beside it
_LONGEST = 1 << 17  # of all macros: Linux has no longer word in an environment
_OF_MACROS = ("-D", "-U")
_SEPARATE = (*_OF_MACROS, "-include", "-I", "-iquote", "-isystem", "-idirafter")  # their argument may be the next word


@dataclass(frozen=True, slots=True)
class CompileCommands:
    """`files`: in their order; `folders`: of their headers; `defines`: `-DNAME=VALUE`, `-UNAME`; `first`: headers that
    are included before all else; `linked`: whether kernels use what other files define (`-rdc=true`)."""

    files: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    first: tuple[Path, ...] = ()
    linked: bool = False

    def environment(self) -> dict[str, str]:
        """The variables with which the application's files compile as there, added to those that are set."""
        out: dict[str, str] = {}
        if self.folders:
            known = os.environ.get(INCLUDE, "")
            out[INCLUDE] = os.pathsep.join([*map(str, self.folders), *([known] if known else [])])
        for cuda in (False, True):
            included = [word for path in self.first for word in ("-include", str(path))]
            more = [*self.defines, *included, *(["-rdc=true"] if cuda and self.linked else [])]
            name = flags_variable(cuda)
            words = [*os.environ.get(name, "").split(), *map(shlex.quote, more)]
            out |= {name: " ".join(words)} if words else {}
        return out


@contextmanager
def compiled_as(sources: Sequence[str]) -> Iterator[CompileCommands]:
    """The files that are named, with those of a directory or a `compile_commands.json` in place of it; within the
    block, their flags are those of the compiler. Raises UsageError."""
    files: dict[str, None] = {}
    folders: dict[Path, None] = {}
    defines: dict[str, None] = {}
    first: dict[Path, None] = {}
    linked = False
    for source in sources:
        path = Path(source)
        one = (
            read_commands(path) if source.endswith(".json")
            else CompileCommands(files_below(path)) if path.is_dir()
            else CompileCommands((source,))
        )  # fmt: skip
        files |= dict.fromkeys(one.files)
        folders |= dict.fromkeys(one.folders)
        defines |= dict.fromkeys(one.defines)
        first |= dict.fromkeys(one.first)
        linked = linked or one.linked
    commands = CompileCommands(tuple(files), tuple(folders), tuple(defines), tuple(first), linked)
    new = commands.environment()
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield commands
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def files_below(folder: Path) -> tuple[str, ...]:
    """The files of C, C++ and CUDA in a directory and those below it, without hidden ones, those that others include
    and those that dagc wrote. Raises UsageError."""
    written = [mark.parent for mark in folder.rglob(MARK)]
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and not any(path.is_relative_to(output) for output in written)
        and not path.read_text(errors="replace").startswith(WRITTEN)
    )
    if not found:
        raise UsageError(f"{folder}: no file of C, C++ or CUDA", "name the directory with the files of the application")
    parts = {
        part
        for path in found
        for name, _ in includes(path.read_text(errors="replace"))
        if (part := Path(os.path.normpath(path.parent / name))) != path
    }
    if parts.issuperset(found):
        raise UsageError(f"{folder}: each file is included by another", "name those that are compiled")
    return tuple(str(path) for path in found if path not in parts)


def read_commands(path: Path) -> CompileCommands:
    """Raises UsageError for a file that is none, and for two values of a macro."""
    try:
        entries = parsed_json(read_file(path, regular=True), path, _HELP)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _HELP) from None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}: not a list of commands", _HELP)
    files: dict[Path, list[str]] = {}
    folders: dict[Path, None] = {}
    first: dict[Path, None] = {}
    macros: dict[str, str] = {}
    for number, entry in enumerate(entries, start=1):
        folder, file, words = _entry(path, number, entry)
        if file.suffix.lower() not in _SUFFIXES:
            continue
        files.setdefault(file, words)
        options = list(_options(words, folder))
        for name, flag in _macros_of(f"{path}, entry {number}", options).items():
            if macros.setdefault(name, flag) != flag:
                what = f"{path}, entry {number}: {name} is another macro than for a file before"
                raise UsageError(what, "name the files of one program with --host, its macros in DAGC_CXXFLAGS")
        for option, value in options:
            place = Path(os.path.normpath(folder / value))
            if option == "-include":
                first[place if os.path.exists(place) else Path(value)] = None  # else the compiler looks for it
            elif option not in _OF_MACROS:
                folders[place] = None
    if not files:
        raise UsageError(f"{path}: no file of C, C++ or CUDA", _HELP)
    if sum(len(flag) + len("''  ") for flag in macros.values()) > _LONGEST:
        raise UsageError(f"{path}: its macros are longer than {_LONGEST} characters", "write them into a header")
    own = tuple(folder for folder in folders if _is_own(folder))
    linked = any(_LINKED & set(words) for words in files.values())
    return CompileCommands(tuple(map(_shown, files)), own, tuple(macros.values()), tuple(first), linked)


def _macros_of(place: str, options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The flag of each macro of a command; of several the last holds."""
    macros: dict[str, str] = {}
    for option, value in options:
        name = value.partition("=")[0]
        if option in _OF_MACROS:
            if not name.partition("(")[0].isidentifier():
                raise UsageError(f"{place}: {name!r:.80} is no name of a macro", _HELP)
            macros[name] = option + value
    return macros


def _is_own(folder: Path) -> bool:
    """Whether a directory of headers is the application's, and not of the system, MPI or CUDA, of which dagc has its
    own."""
    others = any(os.path.exists(folder / name) for name in ("mpi.h", "cuda_runtime.h"))
    return os.path.isdir(folder) and not folder.is_relative_to("/usr") and not others


def _entry(path: Path, number: int, entry: Any) -> tuple[Path, Path, list[str]]:
    if isinstance(entry, Mapping) and all(isinstance(entry.get(name), str) for name in ("directory", "file")):
        folder = Path(os.path.normpath(path.parent.absolute() / entry["directory"]))
        words = entry.get("arguments")
        try:
            words = split_words(entry["command"]) if words is None and isinstance(entry.get("command"), str) else words
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                _usable([entry["directory"], entry["file"], *words])
                return folder, Path(os.path.normpath(folder / entry["file"])), words
        except ValueError as error:
            raise UsageError(f"{path}, entry {number}: not a command: {error}", _HELP) from None
    raise UsageError(f"{path}, entry {number}: not a command with its directory and file", _HELP)


def _usable(words: list[str]) -> list[str]:
    """Raises ValueError for what no path or flag can be: with a NUL, or half of a surrogate pair."""
    for word in words:
        if "\0" in word or any("\ud800" <= letter <= "\udfff" for letter in set(word)):
            raise ValueError(f"{word!a:.80} is neither a path nor a flag")
    return words


def _options(words: Sequence[str], folder: Path, read: list[Path] | None = None) -> Iterator[tuple[str, str]]:
    """Options of _SEPARATE with their arguments, also of the files of options that CMake writes (`--options-file`,
    `@FILE`), of which those in `read` are read before. Raises UsageError for such a file that cannot be read."""
    read = [] if read is None else read
    left = iter(words)
    for word in left:
        option = next((one for one in (*_SEPARATE, "--options-file") if word.startswith(one)), "")
        value = (word.removeprefix(option) or next(left, "")).removeprefix("=") if option else ""
        if word.startswith("@") or option == "--options-file":
            file = folder / (value or word[1:])
            read.append(file)
            if len(read) > _OPTION_FILES:
                what = f"{file}: files of options name each other, or are more than {_OPTION_FILES}"
                raise UsageError(what, _HELP)
            yield from _options(_words(file) if os.path.exists(file) else [], folder, read)
        elif value:
            yield option, value


def _words(file: Path) -> list[str]:
    try:
        return _usable(split_words(read_file(file, regular=True).decode()))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", _HELP) from None
    except ValueError as error:
        raise UsageError(f"{file}: no file of options: {error}", _HELP) from None


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)

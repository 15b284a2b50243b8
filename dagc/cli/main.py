"""The command line. It parses arguments, calls `dagc.recipes`, and prints."""

from __future__ import annotations

import argparse
import codecs
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from dagc.base.resources import __version__

if TYPE_CHECKING:
    from dagc.cli.parser import Command

DESCRIPTION = """\
Compiles a .dag text (GPU kernels, MPI messages, host code, their order, open choices)
into a proved and verified CUDA + MPI program, and counts and lists all its implementations."""

# name -> module of this package, what the command does
COMMANDS = {
    "compile": ("compile", "compile a .dag text into a CUDA + MPI program, and run it"),
    "explore": ("results", "search the implementations for the fastest on this machine"),
    "best": ("results", "compile the fastest implementation of a results file"),
    "rules": ("results", "derive design rules that explain what makes implementations fast"),
    "explain": ("results", "measure the cost of breaking each rule of the fastest class"),
    "report": ("results", "write a results file as one HTML page"),
    "export": ("results", "write the measurements of a results file as CSV or Parquet"),
    "merge": ("results", "merge results files of one program and machine"),
    "convert": ("results", "convert a file of dagc 0.2 to the present schema"),
    "tune": ("tune", "choose launch settings with models and measurements"),
    "count": ("programs", "print the exact number of implementations, without enumerating them"),
    "list": ("programs", "list the implementations, with stable numbers"),
    "show": ("programs", "draw the DAG"),
    "check": ("programs", "print every diagnostic at once; runs no code of the program"),
    "fmt": ("programs", "format .dag texts in place, keeping comments"),
    "init": ("programs", "write a directory with a commented program that compiles and runs at once"),
    "lsp": ("programs", "serve editors by the Language Server Protocol; runs no code of a program"),
    "setup": ("compile", "run the set-up and write the arrays of each rank (runs the program's Python code)"),
    "record": ("compile", "write a .dag text of an application in CUDA and MPI, from a run of it"),
    "platform": (
        "programs",
        "write a platform file for `explore --simulate`: of a known machine, or by a ping-pong here",
    ),
    "doctor": ("programs", "report compilers, MPI, GPUs and packages, and what each absence costs"),
}


def command(name: str) -> Command:
    """The command of this name. Its module is loaded."""
    found: Command = importlib.import_module(f"dagc.cli.{COMMANDS[name][0]}").COMMANDS[name]
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"dagc: error: {message}\n  help: see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


class _CommandParser(_Parser):
    """The parser of a command, which has its options when it parses: `dagc --help` loads none."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        command(self.prog.split()[-1]).fill(self)
        return super().parse_known_args(args, namespace)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dagc", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"dagc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for name, (_, help) in COMMANDS.items():
        one = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        one.set_defaults(parser=one)
    return parser


def _for_first_rank(command: str, args: argparse.Namespace) -> bool:
    """Whether this is one of several ranks started by mpiexec or srun, and another rank does the work.

    Commands that measure run on all ranks together, and `doctor` examines the machine of each.
    """
    from dagc.build.ranks import is_first

    if command in ("explore", "explain", "tune", "doctor", "platform") or (command == "compile" and args.run):
        return False
    return not is_first()


@contextmanager
def _included(directories: Sequence[str]) -> Iterator[None]:
    """The directories of -I, for this command and the processes it starts."""
    from pathlib import Path

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


def _say_what_crashes() -> None:
    """A rank started by mpiexec or srun, or else the Python code of the program."""
    from dagc.build.ranks import joined

    place = joined()
    if place is None:
        from dagc.base.signals import isolate

        isolate()
    else:
        from dagc.measure.launch import work_in_child

        work_in_child(place[0])


def _leaving_all_blocks(argv: Sequence[str] | None) -> AbstractContextManager[None]:
    """SIGTERM ends a command of a shell cleanly. Not a rank: its partners may have ended before it."""
    from dagc.base.signals import unwinding
    from dagc.build.ranks import joined

    return unwinding() if argv is None and joined() is None else nullcontext()


def _with_notes(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Write notes of graphs to standard error, if the command takes a .dag text. `check` prints them itself."""
    from dagc.base.errors import notes_to

    return notes_to(_report) if hasattr(args, "file") and not getattr(args, "quiet", False) else nullcontext()


def _speak_utf8() -> None:
    """Restart in UTF-8 if Python uses ASCII for file names and output (locale C with PYTHONUTF8=0).

    In other encodings, missing characters are printed as escapes.
    """
    ascii_only = codecs.lookup(sys.getfilesystemencoding()).name == "ascii"
    if ascii_only and "utf8" not in sys._xoptions:  # the option is for this process, the variable for its children
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, words, {**os.environ, "PYTHONUTF8": "1"})
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _open_closed_streams() -> None:
    """Discard output to a closed standard stream (`>&-`), as Python does, so that no file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            closed = os.open(os.devnull, os.O_RDWR)  # the lowest free number: that of the stream
            setattr(sys, name, os.fdopen(closed, "w" if number else "r", closefd=False))


def _report(text: str) -> None:
    """Print to standard error. If that cannot be written, there is nowhere to report it."""
    with suppress(OSError):
        print(text, file=sys.stderr)


def _flushed(code: int) -> int:
    """Flush the standard streams. Returns `code`, or 5 if the output of a successful command cannot be written.

    Python would try once more at its end, report "Exception ignored" and exit with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if code == 0 and not isinstance(
                error, BrokenPipeError
            ):  # a reader that closed the pipe (head, less) is not an error
                _report(_output_error(error))
                code = 5
    return code


def _output_error(error: OSError) -> str:
    return f"dagc: error: {error.filename or 'output'}: {error.strerror or error}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/reference/commands.md). `argv` defaults to that of the process."""
    if argv is None:
        _speak_utf8()
        _open_closed_streams()
        # A compiler's objects live until it ends: Python's default collection takes a third of the time of a large
        # check.
        gc.set_threshold(100_000, 20, 20)
    try:
        code = _run(argv)
    except SystemExit as end:  # argparse: 0 after --help and --version, 2 after wrong usage
        raise SystemExit(_flushed(end.code if isinstance(end.code, int) else 0)) from None
    return _flushed(code)


def _run(argv: Sequence[str] | None) -> int:
    try:
        given, unknown = _parser().parse_known_args(argv)
        if unknown:
            given.parser.error(_unknown(given, unknown))
        return _run_command(given, argv)
    except KeyboardInterrupt:
        _report("dagc: interrupted")
        return 130
    except BrokenPipeError:
        return 0  # the reader (head, less) closed the pipe
    except OSError as error:
        _report(_output_error(error))
        return 5


def _unknown(given: argparse.Namespace, words: list[str]) -> str:
    """What is wrong with words that the parser has left: before `--`, where that is the first, or these."""
    before = [getattr(given, o.name) for o in command(given.command).options if o.flag.endswith("...")]
    if words[0] != "--" or not before:
        return f"unrecognized arguments: {' '.join(words)}"
    stray = " ".join(before[0])
    return f"{stray}: of no option, and before --; an option of one value is given again for each (--host A --host B)"


def _run_command(given: argparse.Namespace, argv: Sequence[str] | None) -> int:
    """The exit code of a command. The compiler is imported here: `--help` and wrong options end without it."""
    from dagc.base.errors import DagcError

    chosen = command(given.command)
    try:
        args = chosen.arguments(given)
        if _for_first_rank(given.command, args):
            return 0
        if argv is None:
            _say_what_crashes()
        with _included(getattr(args, "include", ())), _with_notes(args), _leaving_all_blocks(argv):
            return chosen.run(args)
    except DagcError as error:
        text = error.render()
        if text:
            _report(text)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())

"""The command line. It parses arguments, calls `dagc.recipes`, and prints."""

from __future__ import annotations

import argparse
import codecs
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NoReturn

from dagc.base.resources import __version__
from dagc.cli.arguments import (
    defines,
    defines_of,
    device_pointers,
    duration,
    file,
    form,
    include,
    included,
    natural,
    options_of,
    positive,
    program,
    prune,
    quiet,
    ranks,
    seconds,
    space,
    unroll,
)
from dagc.cli.belongs import refuse_without_effect
from dagc.cli.results import Add, add_commands
from dagc.cli.tune import add_tune, run_tune

DESCRIPTION = """\
Compiles a .dag text (GPU kernels, MPI messages, host code, their order, open choices)
into a proved and verified CUDA + MPI program, and counts and lists all its implementations."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"dagc: error: {message}\n  help: see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


# ---- commands -------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    from dagc.stages import program as api

    result = api.check(args.file, defines_of(args))
    if result.diagnostics:
        print(result.render(), file=sys.stderr)
    if result.errors:
        from dagc.base.errors import counted

        print(counted(result.errors, "error"), file=sys.stderr)
        return 2
    print(f"{args.file}: no errors")
    if result.left_out:
        print(result.left_out)
    if result.open_devices:
        print(f"device chosen when the program runs: {', '.join(result.open_devices)}")
    return 0


def _count(args: argparse.Namespace) -> int:
    from dagc.report import counting
    from dagc.report.display import Display
    from dagc.stages import program as api

    report = api.count(args.file, defines_of(args), Display(quiet=args.quiet), args.time, args.unroll)
    print(counting.as_json(report) if args.json else counting.as_text(report).rstrip())
    return 0


def _list(args: argparse.Namespace) -> int:
    from dagc.stages import program as api

    lines = api.traversals(args.file, defines_of(args), args.limit, args.prune_syncs, args.unroll)
    if args.json:
        import json

        for number, text in lines:
            print(json.dumps({"id": number, "traversal": text}))
    else:
        for number, text in lines:
            print(f"{number}: {text}" if not args.plain else text)
    return 0


def _show(args: argparse.Namespace) -> int:
    from dagc.recipes.show import show

    text = show(args.file, defines_of(args), args.format, args.fold)
    if args.output is None:
        print(text, end="")
    else:
        from dagc.base.files import write_text_atomic

        write_text_atomic(args.output, text)
        print(f"wrote {args.output}")
    return 0


def _fmt(args: argparse.Namespace) -> int:
    from dagc.base.files import write_text_atomic
    from dagc.stages import program as api

    different = 0
    for path in args.files:
        old, new = api.format_source(path)
        different += old != new
        if args.stdout:
            print(new, end="")
        elif old != new:
            if not args.check:
                write_text_atomic(path, new)
            print(f"{'would format' if args.check else 'formatted'} {path}")
    return 1 if args.check and different else 0


def _setup(args: argparse.Namespace) -> int:
    from dagc.base.errors import counted
    from dagc.build.ranks import ranks_or_default
    from dagc.report.display import Display
    from dagc.stages import program as api

    ranks = ranks_or_default(args.ranks)
    api.run_setup(args.file, ranks, args.output, args.seed, defines_of(args), Display(quiet=args.quiet))
    print(f"arrays of {counted(ranks, 'rank')} in {args.output}")
    return 0


def _compile(args: argparse.Namespace) -> int:
    from functools import partial

    from dagc.recipes.compile import compile
    from dagc.report.display import Display
    from dagc.report.stages import Printer, stages
    from dagc.stages.options import CompileOptions

    options = options_of(args, CompileOptions, defines=defines_of(args))
    printer = Printer(stages(args.print_after), partial(print, end="", flush=True))
    done = compile(args.file, args.output, options, display=Display(quiet=args.quiet), printer=printer)
    if done.result is not None or not args.run:  # of several ranks, the first reports
        for warning in done.warnings:
            print(f"dagc: warning: {warning}", file=sys.stderr)
        print(done.render(), end="")
    return 0


def _init(args: argparse.Namespace) -> int:
    import shlex
    from pathlib import Path

    from dagc.recipes.init import init

    files = init(args.directory, args.sample)
    print(f"wrote {', '.join(str(file) for file in files)}")
    program = next(file for file in files if file.suffix == ".dag")
    text, results = shlex.quote(str(program)), shlex.quote(str(Path(args.directory) / "results.db"))
    if program.with_suffix(".py") in files or args.sample is None:
        print(f"next  dagc compile {text} --run -n 4")
        print(f"      dagc explore {text} -n 4 --budget 60 -o {results}")
    else:
        print(f"next  dagc check {text}")
    return 0


def _lsp(args: argparse.Namespace) -> int:
    try:
        from dagc.editor import server
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        from dagc.base.errors import MissingTool

        raise MissingTool(
            f"the language server needs the package {error.name}", "pip install 'dagc[lsp]', or pip install pygls"
        ) from None
    server.serve()
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from dagc import doctor

    facts = doctor.examine()
    print((doctor.render_json if args.json else doctor.render_text)(facts).rstrip())
    return doctor.exit_code(facts)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dagc", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"dagc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        command.set_defaults(run_command=run, parser=command)
        return command

    _add_compile(add("compile", _compile, "compile a .dag text into a CUDA + MPI program, and run it"))

    add_commands(add)
    add_tune(add("tune", run_tune, "choose launch settings with models and measurements"))

    _add_readers(add)
    _add_for_authors(add)

    setup = add("setup", _setup, "run the set-up and write the arrays of each rank (runs the program's Python code)")
    file(setup)
    defines(setup)
    ranks(setup)
    help = "output directory; `bench --data DIR` reads it"
    setup.add_argument("-o", dest="output", required=True, metavar="DIR", help=help)
    setup.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the set-up (default: 0)")
    quiet(setup)

    doctor = add("doctor", _doctor, "report compilers, MPI, GPUs and packages, and what each absence costs")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_for_authors(add: Add) -> None:
    """Commands for writing programs."""
    init = add("init", _init, "write a directory with a commented program that compiles and runs at once")
    init.add_argument("directory", metavar="NAME", help="the new directory; its last part is the name of the program")
    help = "copy a sample instead (spmv, heat, ...); an unknown name lists them"
    init.add_argument("--from", dest="sample", metavar="SAMPLE", help=help)

    lsp = add("lsp", _lsp, "serve editors by the Language Server Protocol; runs no code of a program")
    include(lsp)
    lsp.add_argument("--stdio", action="store_true", help="communicate by standard input and output (the only way)")


def _add_readers(add: Add) -> None:
    """Commands that read a text and run nothing of it."""
    count = add("count", _count, "print the exact number of implementations, without enumerating them")
    program(count)
    count.add_argument(
        "--time",
        type=duration,
        metavar="T",
        help="time limit such as 90s or 10m, then print a lower bound (default: none)",
    )
    unroll(count)
    count.add_argument("--json", action="store_true", help="print JSON")
    quiet(count)

    list_ = add("list", _list, "list the implementations, with stable numbers")
    program(list_)
    list_.add_argument("--limit", type=natural, metavar="N", help="only the first N (default: all)")
    unroll(list_)
    prune(list_)
    form = list_.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line: id, traversal")
    form.add_argument("--plain", action="store_true", help="only texts, without IDs")
    quiet(list_)

    show = add("show", _show, "draw the DAG")
    program(show)
    show.add_argument("--format", choices=("text", "dot", "svg", "html"), default="text", help="(default: text)")
    show.add_argument("--fold", action="store_true", help="one round of each loop (default: all rounds; html has both)")
    show.add_argument("-o", dest="output", metavar="PATH", help="write to PATH instead of standard output")
    quiet(show)

    program(add("check", _check, "print every diagnostic at once; runs no code of the program"))

    fmt = add("fmt", _fmt, "format .dag texts in place, keeping comments")
    fmt.add_argument("files", metavar="FILE", nargs="+", help=".dag texts")
    fmt.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file would change")
    fmt.add_argument("--stdout", action="store_true", help="print the result, change nothing")


def _add_compile(compile_: argparse.ArgumentParser) -> None:
    file(compile_)
    add = compile_.add_argument
    add("-o", dest="output", metavar="DIR", help="output directory (default: dagc-out/PROGRAM)")
    add("--target", choices=("cuda", "host"), help="(default: cuda if a GPU and nvcc are found, else host)")
    add("--arch", metavar="NAME", help="GPU architecture for nvcc (default: that of the GPU, else sm_90)")
    defines(compile_)
    add("--traversal", default="first", metavar="first|ID|FILE", help="which implementation (default: first)")
    space(compile_)
    unroll(compile_)
    prune(compile_)
    form(compile_)
    add("--no-build", dest="build", action="store_false", help="write only sources")
    help = "print the program after these stages, with commas: lower, messages, edges, traversal, plan; or all"
    add("--print-after", default="", metavar="STAGES", help=help)
    add(
        "--run",
        action="store_true",
        help="build, check the results and measure the time (runs the set-up's Python code)",
    )
    ranks(compile_)
    add("--seed", type=natural, default=0, metavar="N", help="seed of the set-up (default: 0)")
    help = "length of one measurement in seconds (default: 0.01)"
    add("--seconds", type=seconds, default=0.01, metavar="S", help=help)
    add("--repeats", type=positive, default=20, metavar="N", help="measurements (default: 20)")
    add(
        "--watchdog",
        type=seconds,
        default=20.0,
        metavar="S",
        help="seconds after which an iteration counts as hung (default: 20)",
    )
    device_pointers(compile_)
    add("--force", action="store_true", help="write into a directory that dagc did not create")
    help = "launch settings: the program's values, or the choosers of a file of `dagc tune` (default: fixed)"
    add("--launch", default="fixed", metavar="fixed|TUNED", help=help)
    help = (
        "with --launch TUNED: compute features at the start, each on a thread, during the first ops, or the first runs"
    )
    add("--features", default="now", choices=("now", "parallel", "async", "beside"), help=f"{help} (default: now)")
    help = "with --launch TUNED: ignore the `require`s of variants, except those on hw.memory"
    add("--no-constraints", dest="constraints", action="store_false", help=help)
    quiet(compile_)


def _for_first_rank(args: argparse.Namespace) -> bool:
    """Whether this is one of several ranks started by mpiexec or srun, and another rank does the work.

    Commands that measure run on all ranks together, and `doctor` examines the machine of each.
    """
    from dagc.build.ranks import is_first

    if args.command in ("explore", "explain", "tune", "doctor") or (args.command == "compile" and args.run):
        return False
    return not is_first()


def _say_what_crashes() -> None:
    """A rank started by mpiexec or srun, or else the Python code of the program."""
    from dagc.build.ranks import joined

    place = joined()
    if place is None:
        from dagc.base.signals import isolate

        isolate()
    else:
        from dagc.measure.terminal import work_in_child

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
        args, unknown = _parser().parse_known_args(argv)
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return _run_command(args, argv)
    except KeyboardInterrupt:
        _report("dagc: interrupted")
        return 130
    except BrokenPipeError:
        return 0  # the reader (head, less) closed the pipe
    except OSError as error:
        _report(_output_error(error))
        return 5


def _run_command(args: argparse.Namespace, argv: Sequence[str] | None) -> int:
    """The exit code of a command. The compiler is imported here: `--help` and wrong options end without it."""
    from dagc.base.errors import DagcError

    try:
        refuse_without_effect(args, argv)
        if _for_first_rank(args):
            return 0
        if argv is None:
            _say_what_crashes()
        with included(getattr(args, "include", ())), _with_notes(args), _leaving_all_blocks(argv):
            code: int = args.run_command(args)
        return code
    except DagcError as error:
        text = error.render()
        if text:
            _report(text)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())

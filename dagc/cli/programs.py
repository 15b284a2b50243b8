"""Commands that read a text and run nothing of it: count, list, show, check, fmt; init, lsp and doctor."""

from __future__ import annotations

import argparse
import sys

from dagc.base.option import Option, duration, named, natural, options_of, positive
from dagc.cli.parser import DEFINES, FILE, INCLUDE, QUIET, STREAMS, TRANSPORT, Command, OneOf, defines_of, output
from dagc.stages.orders import OrderOptions

_LOWERING = ("streams", "transport")
_PROGRAM = (*FILE, STREAMS, TRANSPORT, DEFINES)
_JSON = Option("--json", "print JSON")


def _check(args: argparse.Namespace) -> int:
    from dagc.stages import program as api

    result = api.check(args.file, defines_of(args, *_LOWERING))
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

    display = Display(quiet=args.quiet)
    report = api.count(args.file, defines_of(args, *_LOWERING), display, args.time, args.unroll, args.forms)
    print(counting.as_json(report) if args.json else counting.as_text(report).rstrip())
    return 0


def _list(args: argparse.Namespace) -> int:
    from dagc.stages import program as api

    lines = api.traversals(args.file, defines_of(args, *_LOWERING), args.limit, args.prune_syncs, args.unroll)
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

    if args.forms is None:
        text = show(args.file, defines_of(args, *_LOWERING), args.format, args.fold)
    else:
        from dagc.recipes.forms import show_forms

        text = show_forms(args.file, args.forms, defines_of(args, *_LOWERING))
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


def _init(args: argparse.Namespace) -> int:
    import shlex
    from pathlib import Path

    from dagc.recipes.init import init

    files = init(args.directory, args.sample)
    print(f"wrote {', '.join(str(file) for file in files)}")
    programs = [file for file in files if file.suffix == ".dag"]
    program = next((file for file in programs if file.stem == args.sample), programs[0])
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


def _platform(args: argparse.Namespace) -> int:
    from dagc.study import platforms as api

    text = api.platform(args.output, args.n, args.like, args.force)
    if text is not None:  # of two ranks, the first reports
        print(text)
    return 0


COMMANDS = {
    "platform": Command(
        _platform,
        output("PATH", "the file to write, .xml", required=True),
        Option("-n RANKS", "ranks that it has to have room for", positive, default=4),
        Option(
            "--like MACHINE",
            "a machine by its published figures; an unknown name lists them (default: this one, by a ping-pong)",
        ),
        Option("--force", "replace an existing file"),
    ),
    "count": Command(
        _count,
        *_PROGRAM,
        Option("--time T", "time limit such as 90s or 10m, then print a lower bound (default: none)", duration),
        *named(OrderOptions, "unroll"),
        Option(
            "--forms on|off|LIST",
            "count the forms of kernels too, as a search on a GPU does, or the program under a list of them",
            default="off",
        ),
        *(_JSON, QUIET),
    ),
    "list": Command(
        _list,
        *_PROGRAM,
        Option("--limit N", "only the first N (default: all)", natural),
        *options_of(OrderOptions),
        OneOf(Option("--json", "one JSON object a line: id, traversal"), Option("--plain", "only texts, without IDs")),
        QUIET,
    ),
    "show": Command(
        _show,
        *_PROGRAM,
        Option("--format {text,dot,svg,html}", default="text"),
        Option("--fold", "one round of each loop (default: all rounds; html has both)", without="--format html"),
        Option(
            "--forms KERNEL[,LIST]",
            "the forms of a kernel or op in place of the DAG; with a list, `stencil,wide=4`, or -D OP.form.NAME=V, the"
            " text",
        ),
        output("PATH", "write to PATH instead of standard output"),
        QUIET,
    ),
    "check": Command(_check, *_PROGRAM),
    "fmt": Command(
        _fmt,
        Option("FILE...", ".dag texts", name="files"),
        Option("--check", "change nothing; exit with 1 if a file would change"),
        Option("--stdout", "print the result, change nothing"),
    ),
    "init": Command(
        _init,
        Option("NAME", "the new directory; its last part is the name of the program", name="directory"),
        Option("--from SAMPLE", "copy a sample instead (spmv, heat, ...); an unknown name lists them", name="sample"),
    ),
    "lsp": Command(_lsp, INCLUDE, Option("--stdio", "communicate by standard input and output (the only way)")),
    "doctor": Command(_doctor, _JSON),
}

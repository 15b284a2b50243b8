"""Commands for writing programs: init, lsp."""

from __future__ import annotations

import argparse

from dagc.cli.arguments import include
from dagc.cli.results import Add


def add_editor(add: Add) -> None:
    """Add the commands of this module."""
    init = add("init", _init, "write a folder with a commented program that compiles and runs at once")
    init.add_argument("folder", metavar="NAME", help="the new folder; its last part is the name of the program")
    help = "copy a sample instead (spmv, heat, ...); an unknown name lists them"
    init.add_argument("--from", dest="sample", metavar="SAMPLE", help=help)

    lsp = add("lsp", _lsp, "serve editors by the Language Server Protocol; runs no code of a program")
    include(lsp)
    lsp.add_argument("--stdio", action="store_true", help="by standard input and output, as always")


def _init(args: argparse.Namespace) -> int:
    import shlex
    from pathlib import Path

    from dagc.recipes.init import init

    files = init(args.folder, args.sample)
    print(f"wrote {', '.join(str(file) for file in files)}")
    program = next(file for file in files if file.suffix == ".dag")
    text, results = shlex.quote(str(program)), shlex.quote(str(Path(args.folder) / "results.db"))
    if program.with_suffix(".py") in files or args.sample is None:
        print(f"next  dagc compile {text} --run -n 4")
        print(f"      dagc explore {text} -n 4 --budget 60 -o {results}")
    else:
        print(f"next  dagc check {text}")
    return 0


def _lsp(args: argparse.Namespace) -> int:
    from dagc.recipes.lsp import serve

    serve()
    return 0

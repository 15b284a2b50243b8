"""Commands for writing programs: init, lsp."""

from __future__ import annotations

import argparse

from dagc.cli.arguments import include
from dagc.cli.results import Add


def add_editor(add: Add) -> None:
    """Add the commands of this module."""
    init = add("init", _init, "write a folder with a commented program that compiles and runs at once")
    init.add_argument("folder", metavar="NAME", help="the new folder; its last part is the name of the program")

    lsp = add("lsp", _lsp, "serve editors by the Language Server Protocol; runs no code of a program")
    include(lsp)
    lsp.add_argument("--stdio", action="store_true", help="by standard input and output, as always")


def _init(args: argparse.Namespace) -> int:
    import shlex
    from pathlib import Path

    from dagc.recipes.init import init

    files = init(args.folder)
    print(f"wrote {', '.join(str(file) for file in files)}")
    text = shlex.quote(str(next(file for file in files if file.suffix == ".dag")))
    print(f"next  dagc compile {text} --run -n 4")
    print(f"      dagc explore {text} -n 4 --budget 60 -o {shlex.quote(str(Path(args.folder) / 'results.db'))}")
    return 0


def _lsp(args: argparse.Namespace) -> int:
    from dagc.recipes.lsp import serve

    serve()
    return 0

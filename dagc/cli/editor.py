"""Commands for writing programs: init, lsp."""

from __future__ import annotations

import argparse

from dagc.cli.arguments import include
from dagc.cli.results import Add


def add_editor(add: Add) -> None:
    """Add the commands of this module."""
    lsp = add("lsp", _lsp, "serve editors by the Language Server Protocol; runs no code of a program")
    include(lsp)
    lsp.add_argument("--stdio", action="store_true", help="by standard input and output, as always")


def _lsp(args: argparse.Namespace) -> int:
    from dagc.recipes.lsp import serve

    serve()
    return 0

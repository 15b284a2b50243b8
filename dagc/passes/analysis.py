"""All that one text says: its tree, its program, its graph, every diagnostic. Runs no code of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagc.base.errors import Diagnostic, ProgramError
from dagc.base.source import Source
from dagc.ir.program import Graph, Program
from dagc.lang.lower import Parsed, analyse, parse_with_includes
from dagc.passes import graph_with_diagnostics


@dataclass(frozen=True, slots=True)
class Analysis:
    """The stages that a text reached.

    parsed       None for a text that does not parse
    program      None where there are errors before the graph is built
    graph        None where there are errors
    diagnostics  of all stages, in the order of the text
    sources      every file that a diagnostic may point into, by its path
    """

    source: Source
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]
    parsed: Parsed | None = None
    program: Program | None = None
    graph: Graph | None = None


def analysis_of(
    source: Source, defines: Mapping[str, Any] | None = None, opened: Mapping[str, str] | None = None
) -> Analysis:
    """Parse, lower, build the graph: as far as the text permits. `defines` as `-D NAME=VALUE`; `opened`: resolved path
    -> text of included files that are not as saved.

    Raises UsageError for a bad entry of `defines`.
    """
    try:
        parsed = parse_with_includes(source, opened=opened)
    except ProgramError as error:
        return Analysis(source, error.diagnostics, {source.path: source, **error.sources})
    lowered = analyse(parsed, dict(defines or {}))
    if lowered.program is None:
        return Analysis(source, lowered.diagnostics, lowered.sources, parsed)
    graph, more = graph_with_diagnostics(lowered.program)
    program = lowered.program
    return Analysis(source, (*lowered.diagnostics, *more), program.sources, parsed, program, graph)

"""Lowering: syntax tree to `Program`. Names are resolved, loops, branches and compounds expanded, calls checked.

All errors are collected. Nothing of the text or of its set-up is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagc import ir
from dagc.errors import Diagnostic, ProgramError, Severity
from dagc.lang import ast
from dagc.lang.lower_context import Context, Defines
from dagc.lang.lower_include import included
from dagc.lang.lower_program import Lowering, OtherChoices
from dagc.lang.lower_report import Report, Stop
from dagc.source import Source

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Lowered:
    """`program` is None where there are errors; `sources` has every file that a diagnostic may point into."""

    program: ir.Program | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]


def lower(
    module: ast.Module, source: Source, defines: Defines | None = None, texts: Mapping[str, str] | None = None
) -> ir.Program:
    """The program, for one value of every decision.

    defines: what -D gives: values of params, and choices for decisions.
    texts: path -> text of included files, instead of the files.
    Raises `ProgramError` with all errors, `UsageError` for a bad entry of `defines`.
    """
    lowered = analyse(module, source, defines, texts)
    if lowered.program is None:
        errors = (d for d in lowered.diagnostics if d.severity is Severity.ERROR)
        raise ProgramError(errors, dict(lowered.sources))
    return lowered.program


def lower_with_diagnostics(
    module: ast.Module, source: Source, defines: Defines | None = None
) -> tuple[ir.Program | None, tuple[Diagnostic, ...]]:
    """The program, None where there are errors, and all errors, warnings and notes. Raises `UsageError`."""
    lowered = analyse(module, source, defines)
    return lowered.program, lowered.diagnostics


def analyse(
    module: ast.Module, source: Source, defines: Defines | None = None, texts: Mapping[str, str] | None = None
) -> Lowered:
    """All that lowering finds. `texts` as in `lower`. Raises `UsageError` for a bad entry of `defines`."""
    plain = {name.replace(" ", ""): value for name, value in (defines or {}).items()}
    picked: Mapping[str, ir.Value] = {}
    for attempt in range(_ATTEMPTS):
        report, sources = Report(), {source.path: source}
        program = None
        try:
            items = included(module.items, source, sources, report, texts)
            context = Context(report, sources, plain, picked, may_pick=attempt + 1 < _ATTEMPTS)
            program = Lowering(context, module, source).run(items)
        except OtherChoices as other:
            picked = {**picked, **other.picked}
            continue
        except Stop:
            pass
        except RecursionError:
            report.error("too-deep", "nested too deep", module.span, "split the text into smaller pieces")
        break
    return Lowered(None if report.failed else program, report.sorted(sources), sources)

"""A text with its includes to a `Program`.

All errors are collected. Nothing of the text or of its set-up is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dagc.base.errors import Diagnostic, ProgramError, Severity
from dagc.base.memory import uncollected
from dagc.base.source import LARGEST, Source, find_file
from dagc.ir import program as ir
from dagc.lang import ast
from dagc.lang.context import Context, Defines
from dagc.lang.parse import parse
from dagc.lang.program import Lowering, OtherChoices
from dagc.lang.scope import Report, Stop

# ---- `include`: the items of other files, read relative to the file that includes them ----


def included(
    items: tuple[ast.Item, ...],
    source: Source,
    sources: dict[str, Source],
    report: Report,
    texts: Mapping[str, str] | None = None,
    stack: tuple[Path, ...] = (),
) -> tuple[ast.Item, ...]:
    """Items with every top-level `include` replaced by what it includes. Reports what cannot be read.

    `texts`: path -> text, instead of files: then no file is read. A file must lie below the folder of the program, or
    below one that the user has named (`dagc.base.source.find_file`).
    """
    here = _resolved(Path(source.path))
    out: list[ast.Item] = []
    for item in items:
        if isinstance(item, ast.Include):
            with report.guard():
                out += _read(item, source, sources, report, texts, (*stack, here))
        else:
            out.append(item)
    return tuple(out)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path


def _included_path(
    item: ast.Include, source: Source, report: Report, texts: Mapping[str, str] | None, program: Path
) -> Path:
    """The path of what is included. `program`: the folder of the program."""
    beside = Path(source.path).parent
    if texts is not None:
        name = Path(item.file).parts
        others = [p for p in map(Path, texts) if p.parts[-len(name) :] == name]
        path = beside / item.file if str(beside / item.file) in texts or len(others) != 1 else others[0]
        if str(path) not in texts:
            help = "measure again into another file"
            report.fail("missing-file", f"the text of `{item.file}` was not kept", item.span, help)
        return path
    try:
        return find_file(item.file, beside, program)
    except PermissionError as error:
        help = "move it there, or give its folder with -I DIR"
        report.fail("missing-file", f"cannot read `{item.file}`: {error.strerror}", item.span, help)
    except OSError as error:
        help = f"give a path relative to `{source.path}`"
        report.fail("missing-file", f"cannot read `{item.file}`: {error.strerror}", item.span, help)


def _report_other_language(item: ast.Include, other: Source, error: ProgramError, report: Report) -> NoReturn:
    """Lines of a file that may be anything are not shown."""
    line, column = other.line_column(error.diagnostics[0].span.start)
    message = f"`{item.file}` is no text of the language (line {line}, column {column})"
    help = "include another file; of one that ends in .dag every error is shown"
    report.fail("missing-file", message, item.span, help)


def _read(
    item: ast.Include,
    source: Source,
    sources: dict[str, Source],
    report: Report,
    texts: Mapping[str, str] | None,
    stack: tuple[Path, ...],
) -> tuple[ast.Item, ...]:
    path = _included_path(item, source, report, texts, stack[0].parent)
    if _resolved(path) in stack:
        report.fail("include-cycle", f"`{item.file}` includes itself", item.span, "drop one of the includes")
    if str(path) in sources:
        help = "include it once"
        report.fail("include-twice", f"`{item.file}` is included twice", item.span, help)
    try:
        other = Source.read(path, regular=True) if texts is None else Source(str(path), texts[str(path)])
    except OSError as error:
        help = f"give a path relative to `{source.path}`"
        report.fail("missing-file", f"cannot read `{item.file}`: {error.strerror or error}", item.span, help)
    except (UnicodeDecodeError, ValueError):
        report.fail("missing-file", f"`{item.file}` is not a text in UTF-8", item.span, "save it as UTF-8")
    sources[other.path] = other
    if sum(len(s.text) for s in sources.values()) > LARGEST:
        message = f"with `{item.file}` the texts of the program are larger than {LARGEST >> 10} KiB"
        report.fail("too-large", message, item.span, "include less")
    try:
        module = parse(other)
    except ProgramError as error:
        if not item.file.endswith(".dag"):
            _report_other_language(item, other, error, report)
        for diagnostic in error.diagnostics:
            report.add(diagnostic)
        return ()
    if module.program is not None:
        at = ((module.span, "here"),)
        message = f"`{item.file}` has a `program` line of its own"
        report.error("wrong-place-of-item", message, item.span, "drop that line from the included file", at)
    return included(module.items, other, sources, report, texts, stack)


# ---- syntax tree to `Program` ----


_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Lowered:
    """`program` is None where there are errors; `sources` has every file that a diagnostic may point into."""

    program: ir.Program | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text of the language and all that it includes, parsed. Any number of programs is lowered from it.

    `items` are those of the text, with includes replaced by what they include; `diagnostics` is what that has found.
    """

    source: Source
    module: ast.Module
    items: tuple[ast.Item, ...]
    sources: Mapping[str, Source]
    diagnostics: tuple[Diagnostic, ...]


@uncollected()
def parse_with_includes(source: Source, texts: Mapping[str, str] | None = None) -> Parsed:
    """`texts`: path -> text of included files, if not from the files. Raises `ProgramError` for the text's syntax."""
    module = parse(source)
    report, sources = Report(), {source.path: source}
    try:
        items = included(module.items, source, sources, report, texts)
    except RecursionError:
        report.error("too-deep", "nested too deep", module.span, "split the text into smaller pieces")
        items = ()
    return Parsed(source, module, items, sources, report.sorted(sources))


def lower(parsed: Parsed, defines: Defines | None = None) -> ir.Program:
    """The program, for one value of every decision.

    defines: what -D gives: values of params, and choices for decisions.
    Raises `ProgramError` with all errors, `UsageError` for a bad entry of `defines`.
    """
    lowered = analyse(parsed, defines)
    if lowered.program is None:
        errors = (d for d in lowered.diagnostics if d.severity is Severity.ERROR)
        raise ProgramError(errors, dict(lowered.sources))
    return lowered.program


@uncollected()
def analyse(parsed: Parsed, defines: Defines | None = None) -> Lowered:
    """All that lowering finds: the program, and errors, warnings and notes. Raises `UsageError` for a bad entry of
    `defines`."""
    plain = {name.replace(" ", ""): value for name, value in (defines or {}).items()}
    picked: Mapping[str, ir.Value] = {}
    for attempt in range(_ATTEMPTS):
        report, sources = Report(), dict(parsed.sources)
        for diagnostic in parsed.diagnostics:
            report.add(diagnostic)
        program = None
        try:
            context = Context(report, sources, plain, picked, may_pick=attempt + 1 < _ATTEMPTS)
            program = Lowering(context, parsed.module, parsed.source).run(parsed.items)
        except OtherChoices as other:
            picked = {**picked, **other.picked}
            continue
        except Stop:
            pass
        except RecursionError:
            report.error("too-deep", "nested too deep", parsed.module.span, "split the text into smaller pieces")
        break
    return Lowered(None if report.failed else program, report.sorted(sources), sources)

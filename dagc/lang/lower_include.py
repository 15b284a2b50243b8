"""`include`: the items of other files, read relative to the file that includes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagc.errors import ProgramError
from dagc.lang import ast
from dagc.lang.lower_report import Report
from dagc.lang.parse import parse
from dagc.source import Source


def included(
    items: tuple[ast.Item, ...],
    source: Source,
    sources: dict[str, Source],
    report: Report,
    texts: Mapping[str, str] | None = None,
    stack: tuple[Path, ...] = (),
) -> tuple[ast.Item, ...]:
    """Items with every top-level `include` replaced by what it includes. Reports what cannot be read.

    `texts`: path -> text, instead of files.
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


def _read(
    item: ast.Include,
    source: Source,
    sources: dict[str, Source],
    report: Report,
    texts: Mapping[str, str] | None,
    stack: tuple[Path, ...],
) -> tuple[ast.Item, ...]:
    path = Path(source.path).parent / item.file
    if _resolved(path) in stack:
        report.fail("include-cycle", f"`{item.file}` includes itself", item.span, "drop one of the includes")
    if str(path) in sources:
        mend = "include it once"
        report.fail("include-twice", f"`{item.file}` is included twice", item.span, mend)
    try:
        other = Source.read(path) if texts is None or str(path) not in texts else Source(str(path), texts[str(path)])
    except OSError as error:
        mend = f"give a path relative to `{source.path}`"
        report.fail("missing-file", f"cannot read `{item.file}`: {error.strerror or error}", item.span, mend)
    except (UnicodeDecodeError, ValueError):
        report.fail("missing-file", f"`{item.file}` is not a text in UTF-8", item.span, "save it as UTF-8")
    sources[other.path] = other
    try:
        module = parse(other)
    except ProgramError as error:
        for diagnostic in error.diagnostics:
            report.add(diagnostic)
        return ()
    if module.program is not None:
        at = ((module.span, "here"),)
        message = f"`{item.file}` has a `program` line of its own"
        report.error("wrong-place-of-item", message, item.span, "drop that line from the included file", at)
    return included(module.items, other, sources, report, texts, stack)

"""Finding declared names."""

from __future__ import annotations

from typing import NoReturn

from dagc.lang.lower_report import Report, Skip, did_you_mean, listing
from dagc.lang.lower_scope import Bound, Family, Scope, What
from dagc.source import Span

_HIDDEN = (What.SCALAR, What.ARRAY, What.PART, What.FEATURE)


def find_family(report: Report, scope: Scope, others: set[str], name: str, span: Span) -> Family:
    """The family of a name; reports unknown-name and not-visible. Broken names give up silently.

    `others`: names that are known without a declaration, for the help.
    """
    found = scope.find(name)
    if found is None:
        help = did_you_mean(name, scope.names() | others, "declare it before its use")
        report.fail("unknown-name", f"unknown name `{name}`", span, help)
    family, outside = found
    if family.broken:
        raise Skip
    if outside and family.what in _HIDDEN:
        report.fail(
            "not-visible",
            f"{family.what.value} of the program is not visible in a kernel: `{name}`",
            span,
            "make it a formal and pass it in the call",
            ((family.span, "declared here"),),
        )
    return family


def find_instance(report: Report, family: Family, key: tuple[int, ...], text: str, span: Span) -> Bound:
    """One instance of a family. Reports bad-index."""
    if key not in family.instances:
        _no_instance(report, family, key, text, span)
    return family.instances[key]


def _no_instance(report: Report, family: Family, key: tuple[int, ...], text: str, span: Span) -> NoReturn:
    related = ((family.span, "declared here"),)
    names = [b.display for b in family.instances.values()]
    if len(key) != family.arity:
        counts = {0: "no index", 1: "one index"}
        wanted, given = (counts.get(n, f"{n} indices") for n in (family.arity, len(key)))
        message = f"`{family.name}` takes {wanted}, not {given}"
        report.fail("bad-index", message, span, f"write {listing(names, 4)}", related)
    report.fail("bad-index", f"there is no `{family.name}[{text}]`", span, f"there are {listing(names, 6)}", related)

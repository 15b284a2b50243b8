"""Checks of the whole program: what is read before it is written, and what nothing uses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dagc import ir
from dagc.lang import ast
from dagc.lang.lower_context import PREDEFINED, Context
from dagc.lang.lower_decls import Declared
from dagc.lang.lower_frames import GraphOut, Use
from dagc.lang.lower_report import Report

_WORD = re.compile(r"[A-Za-z_]\w*")


def check_reads(report: Report, uses: Iterable[Use], explicit: bool, doubtful: set[str]) -> None:
    """An array without contents at the start must be written before it is read (anywhere, where order says nothing).

    doubtful: words that ops in error use; arrays so called may have been written by them.
    """
    uses = list(uses)
    written = {u.storage.array.name for u in uses if u.mode is not ast.Mode.IN} if explicit else set()
    own: set[str] = set()
    for use in uses:
        array = use.storage.array
        defined = array.role not in (None, ast.Role.OUT) or _word(array.name) in doubtful
        if use.mode is not ast.Mode.OUT and not defined and array.name not in written and array.name not in own:
            report.error(
                "undefined-read",
                f"`{use.storage.label}` is read before any op writes it",
                use.span,
                "write it first, or give it a role: `in` or `inout` comes from the set-up",
                ((array.span, "declared here"),),
            )
            own.add(array.name)
        if use.mode is not ast.Mode.IN:
            own.add(array.name)


def _word(name: str) -> str:
    """`mv[0].v_r[1]` is declared as `v_r`."""
    return name.rpartition(".")[2].partition("[")[0]


def check_unused(ctx: Context, module_kernels: dict[str, ast.Kernel], declared: Declared, out: GraphOut) -> None:
    """Warn about what is declared and never used."""
    report = ctx.report
    for array in declared.arrays:
        if array.name not in ctx.used:
            report.warning("unused-array", f"array `{array.name}` is never used", array.span, "drop it")
    for part in declared.parts:
        if part.name not in ctx.used:
            report.warning("unused-part", f"part `{part.name}` is never used", part.span, "drop it")
    for scalar in declared.scalars:
        if scalar.name not in ctx.used:
            report.warning("unused-scalar", f"scalar `{scalar.name}` is never used", scalar.span, "drop it")
    for name, kernel in module_kernels.items():
        if name not in out.called:
            report.warning("unused-kernel", f"kernel `{name}` is never called", kernel.name_span, "call it, or drop it")
    for name, dag in out.dags.items():
        if name not in out.called:
            report.warning("unused-dag", f"dag `{name}` is never called", dag.name_span, f"write `x : dag {name}(...)`")


def check_unused_values(ctx: Context, declared: Declared, codes: Iterable[ir.CodeText]) -> None:
    """Warn about params and tunes that neither an expression nor code reads."""
    codes = list(codes)
    words = {w for c in codes if c.text for w in _WORD.findall(c.text)}
    if any(c.file for c in codes):
        return  # code in a file may read them
    for param in declared.params:
        if param.name not in ctx.used and param.name not in words:
            ctx.report.warning("unused-param", f"param `{param.name}` is never used", param.span, "drop it")
    for name, choice in ctx.choices.items():
        if name in PREDEFINED or "." in name or name in ctx.used or name.split("[")[0] in words:
            continue
        ctx.report.warning("unused-tune", f"tune `{name}` decides nothing", choice.span, "use it, or drop it")


def check_unreachable(report: Report, ops: Iterable[ir.Op], out: GraphOut, live: set[str]) -> None:
    """Warn about ops whose results nothing uses. `live`: arrays that matter after the run."""
    reads: dict[str, set[str]] = {}
    writers: dict[str, list[str]] = {}
    for use in out.uses:
        if use.mode is not ast.Mode.OUT:
            reads.setdefault(use.op, set()).add(use.storage.array.name)
        if use.mode is not ast.Mode.IN:
            writers.setdefault(use.storage.array.name, []).append(use.op)
    pending = {op.name: op for op in ops}
    wanted = list(live)
    for op in pending.values():
        if isinstance(op, ir.CollectiveOp):
            wanted += reads.get(op.name, ())
    useful = {op.name for op in pending.values() if isinstance(op, ir.CollectiveOp)}
    while wanted:
        for name in writers.pop(wanted.pop(), ()):
            if name not in useful:
                useful.add(name)
                wanted += reads.get(name, ())
    for op in pending.values():
        if op.name in useful:
            continue
        if not (isinstance(op, ir.CopyOp) and op.inserted):
            report.warning(
                "unreachable-op", f"nothing uses what op `{op.name}` computes", op.span, "use its result, or drop it"
            )

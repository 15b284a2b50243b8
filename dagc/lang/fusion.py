"""Fusion of launches: which are offered as decisions, and the program under the values that are chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dagc.forms.groups import FusionGroup, fused, groups
from dagc.ir import program as ir
from dagc.ir.choice import FORM, FUSE, qualified, site_of
from dagc.ir.regions import Regions
from dagc.lang import ast
from dagc.lang.calls import first_legal
from dagc.lang.scope import Context, listing, parse_choice, spelled, there_are

MOST_GROUPS = 3  # that are open: each multiplies the programs that a search compiles


def with_fusion(
    ctx: Context, program: ir.Program, allowed: ast.Fuse | None, formed: Callable[[ir.Kernel], ir.Kernel]
) -> ir.Program:
    """The program with those launches fused that -D or a search chooses. Decisions are entered for what -D gives, and
    where forms are open for the largest groups that the program allows. `formed`: a new kernel with the tunables of its
    forms. May report that -D gives the ops of a launch different values."""
    regions = Regions.of(program)
    # Launches that all share a tunable of the program have its value.
    found, _ = groups(replace(program, decisions=tuple(c.decision() for c in ctx.choices.values())), regions)
    _check_names(ctx, allowed, found)
    found = tuple(g for g in found if allowed is None or g.name in allowed.names or FUSE + g.name in ctx.defines)
    open_ = sorted(found, key=lambda group: -group.ops)[:MOST_GROUPS] if ctx.forms else []
    launches: list[tuple[tuple[str, ...], bool]] = []
    spans = {op.name: op.span for op in program.ops}
    for group in found:
        if group in open_ or FUSE + group.name in ctx.defines:
            values = tuple(range(len(group.ways) + 1))
            choice = ctx.choose(FUSE + group.name, values, spans[group.ways[-1][0][0]])
            choice.structural = True
            way = group.ways[choice.chosen - 1] if isinstance(choice.chosen, int) and choice.chosen else ()
            launches += [(names, group.chained) for names in way]
    out, instead = fused(program, launches, regions, formed)
    calls: dict[str, list[ir.KernelOp]] = {}
    for op in program.ops:
        if op.name in instead and isinstance(op, ir.KernelOp):
            calls.setdefault(instead[op.name], []).append(op)
    ops = tuple(
        _decided(ctx, op, out.kernel(op.kernel), calls[op.name])
        if isinstance(op, ir.KernelOp) and op.name in calls
        else op
        for op in out.ops
    )
    _forget(ctx, {op.base for of in calls.values() for op in of} - {op.base for op in ops})
    return replace(out, ops=ops)


def _check_names(ctx: Context, allowed: ast.Fuse | None, found: Sequence[FusionGroup]) -> None:
    """Warn of names that are no group."""
    known = [group.name for group in found]
    if allowed is None or allowed.word:
        return
    for name in allowed.names:
        if name not in known:
            help = ctx.report.did_you_mean(name, known, there_are(known) if known else "write `fuse none`")
            ctx.report.warning("unknown-name", f"there are no launches `{name}` to fuse", allowed.span, help)


def _forget(ctx: Context, bases: set[str]) -> None:
    """Drop the decisions of ops that no longer are."""
    for name in [name for name in ctx.choices if site_of(name) in bases]:
        del ctx.choices[name]


def _decided(ctx: Context, op: ir.KernelOp, kernel: ir.Kernel, calls: Sequence[ir.KernelOp]) -> ir.KernelOp:
    """The op of a launch with the values of its tunables, which are decisions of its own: those of one of its calls, if
    all may have them."""
    impl = kernel.impls[0]
    open_ = [t for t in (*kernel.tunables, *impl.tunables) if t.name not in op.pinned]
    values = dict(op.tunables)
    candidates = {**{name: (value,) for name, value in values.items()}, **dict(_allowed(ctx, op, open_, calls))}
    if any(values[name] not in allowed for name, allowed in candidates.items()):
        legal = first_legal(ctx, kernel, impl, candidates)
        if legal is None:
            given = listing(sorted({f"{n}={spelled(ctx.defines[n])}" for n in _defined(ctx, open_, calls)}))
            message = f"`{op.name}` is one launch, and -D gives its parts values that differ: {given}"
            ctx.report.error("bad-choice", message, op.span, "give equal values, or do not fuse them")
            return op
        values = legal
    for tunable in open_:
        name = qualified(op.base, tunable.name)
        if name not in ctx.choices:
            stays = tunable.name.startswith(FORM) and not ctx.forms
            ctx.choose(name, candidates[tunable.name], tunable.span, stays, values[tunable.name])
    chosen = {t.name: ctx.choices[qualified(op.base, t.name)].chosen for t in open_}
    return replace(op, tunables=tuple({**values, **chosen}.items()))


def _defined(ctx: Context, tunables: Sequence[ir.Tunable], calls: Sequence[ir.KernelOp]) -> Iterator[str]:
    """What -D gives of these tunables."""
    names = (qualified(call.base, t.name) for call in calls for t in tunables)
    return (name for name in names if name in ctx.defines)


def _allowed(
    ctx: Context, op: ir.KernelOp, tunables: Sequence[ir.Tunable], calls: Sequence[ir.KernelOp]
) -> Iterator[tuple[str, tuple[ir.Value, ...]]]:
    """The values of each tunable that -D leaves to the op and to all its calls."""
    for tunable in tunables:
        left = tunable.values
        for base in dict.fromkeys((op.base, *(call.base for call in calls))):
            name = qualified(base, tunable.name)
            given = name in ctx.defines
            left = tuple(v for v in left if not given or v == parse_choice(name, ctx.defines[name], tunable.values))
        yield tunable.name, left

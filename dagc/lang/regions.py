"""References to storage: arrays, parts, slices."""

from __future__ import annotations

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.linear import Facts
from dagc.ir.sym import Apply, Const, Fn, Sym, show
from dagc.lang import ast
from dagc.lang.evaluate import Evaluator
from dagc.lang.scope import ScalarKind, Storage, What

COST_LIMIT = 3000


def storage(ev: Evaluator, ref: ast.Ref) -> Storage:
    """What an array reference touches. Reports and gives up where it is none."""
    report = ev.ctx.report
    if ref.name in ev.loops or (ev.scope.find(ref.name) is None and ref.name in ("rank", "ranks", "hw")):
        report.fail("type-mismatch", f"`{ref.name}` is a value, not an array", ref.span, "name an array or a part")
    if not ref.trailers or not isinstance(ref.trailers[0], ast.Member):
        family, bound, trailers = ev.select(ref)
    else:
        family, bound, trailers = ev.find(ref.name, ref.span), None, ref.trailers
    value = bound.value if bound else None
    if bound is None or not isinstance(value, Storage):
        related = ((family.span, "declared here"),)
        report.fail(
            "type-mismatch",
            f"`{ref.name}` is {family.what.value}, not an array",
            ref.span,
            "name an array or a part",
            related,
        )
    if family.what is not What.FORMAL:
        ev.ctx.used.add(bound.display)
    ev.ctx.used.add(value.array.name)
    for trailer in trailers:
        value = _sliced(ev, value, trailer, family.what)
    return value


def _sliced(ev: Evaluator, base: Storage, trailer: ast.Member | ast.Index, what: What) -> Storage:
    """`base[a .. b]`; only the first dimension is sliced."""
    report = ev.ctx.report
    if isinstance(trailer, ast.Member):
        report.fail("unknown-name", f"`{base.label}` has no member `{trailer.name}`", trailer.span, "drop it")
    if base.dims is None:
        report.fail(
            "bad-index",
            f"part `{base.label}` has no bounds, so it cannot be sliced",
            trailer.span,
            "slice the array itself, or give the part bounds",
        )
    first, *others = trailer.items
    if len(trailer.items) > len(base.dims) or not all(isinstance(o, ast.Every) for o in others):
        report.fail(
            "bad-index",
            f"`{base.label}` has {_dimensions(len(base.dims))}, and only the first may be sliced",
            trailer.span,
            "write `name[a .. b]`",
        )
    if isinstance(first, ast.Every):
        return base
    if not isinstance(first, ast.Range):
        report.fail(
            "bad-index",
            f"`{base.label}` takes no index: the elements of an array are not values"
            if what is not What.ARRAY
            else f"`{base.label}` is an array; an element of it is not a value",
            first.span,
            "write a slice `a .. b`, or declare indexed arrays `array name[i] : ...`",
        )
    start, stop = (ev.settled(e, (ScalarKind.INT,)) for e in (first.start, first.stop))
    _check_bounds(ev, base, start, stop, first.span)
    length = sym.apply(Fn.SUB, stop, start)
    offset = base.region.start
    if offset is not None:
        start, stop = sym.apply(Fn.ADD, offset, start), sym.apply(Fn.ADD, offset, stop)
    label = f"{base.label}[{show(start)} .. {show(stop)}]"
    region = ir.Region(base.region.array, start, stop)
    return Storage(base.array, region, (length, *base.dims[1:]), label, base.mode)


def _check_bounds(ev: Evaluator, base: Storage, start: Sym, stop: Sym, span: Span) -> None:
    assert base.dims is not None
    size = base.dims[0]
    if _at_least(start, Const(0)) is False or _at_least(stop, start) is False:
        ev.ctx.report.fail("bad-index", "this slice ends before it starts", span, "write `a .. b` with 0 <= a <= b")
    if size is not None and _at_least(size, stop) is False:
        ev.ctx.report.fail(
            "bad-index",
            f"this slice ends beyond `{base.label}`, which has {counted(show(size), 'row')}",
            span,
            "end it earlier",
        )


def _at_least(a: Sym, b: Sym) -> bool | None:
    """a >= b, where the difference is a constant."""
    difference = sym.apply(Fn.SUB, a, b)
    if isinstance(difference, Const):
        return bool(difference.value >= 0)  # type: ignore[operator]
    return True if same(a, b) else None


def same(a: Sym, b: Sym) -> bool | None:
    """`sym.equal`, but undecided where multiplying out would cost too much."""
    return sym.equal(a, b) if _terms(a) + _terms(b) <= COST_LIMIT else None


def _terms(value: Sym) -> int:
    """Upper bound for the terms of the polynomial."""
    if not isinstance(value, Apply):
        return 1
    counts = [_terms(a) for a in value.args]
    if value.fn is Fn.MUL:
        return min(COST_LIMIT + 1, counts[0] * counts[1])
    return min(COST_LIMIT + 1, sum(counts))


def check_sizes(
    ev: Evaluator,
    actual: Storage,
    wanted: tuple[Sym | None, ...],
    what: str,
    span: Span,
    related: tuple[tuple[Span, str], ...],
) -> None:
    """Report size-mismatch where the actual's shape provably differs from the wanted one."""
    if wanted == (None,):
        return
    report = ev.ctx.report
    if actual.dims is None:
        report.error(
            "size-mismatch",
            f"part `{actual.label}` has no bounds, so its size cannot be that of {what}",
            span,
            "declare the formal `[*]`, or give the part bounds",
            related,
        )
        return
    if len(actual.dims) != len(wanted):
        report.error(
            "size-mismatch",
            f"`{actual.label}` has {_dimensions(len(actual.dims))}, {what} has {_dimensions(len(wanted))}",
            span,
            "give both as many dimensions, or declare the formal `[*]`",
            related,
        )
        return
    for i, (have, want) in enumerate(zip(actual.dims, wanted, strict=True)):
        if have is None or want is None or same(have, want) is not False:
            continue
        which = f" in dimension {i + 1}" if len(wanted) > 1 else ""
        report.error(
            "size-mismatch",
            f"`{actual.label}` has size {show(have)}{which}, but {what} has size {show(want)}",
            span,
            "pass an array of that size",
            related,
        )
        return


def _dimensions(count: int) -> str:
    return "one dimension" if count == 1 else f"{count} dimensions"


def overlap(a: ir.Region, b: ir.Region, facts: Facts) -> bool:
    """May two regions share elements? Distinct parts of one array do not, by promise; slices where provable."""
    if a.array != b.array:
        return False
    if a.part is not None and b.part is not None:
        return a.part == b.part
    if a.start is None or a.stop is None or b.start is None or b.stop is None:
        return True
    return not (facts.at_most(a.stop, b.start) or facts.at_most(b.stop, a.start))

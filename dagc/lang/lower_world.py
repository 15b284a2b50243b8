"""The world outside: set-up, verification, `until`. Nothing of it is run or even looked for here."""

from __future__ import annotations

from fractions import Fraction

from dagc import ir
from dagc.lang import ast
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_frames import GraphOut
from dagc.lang.lower_regions import storage
from dagc.lang.lower_scope import Storage
from dagc.lang.lower_values import Kind, TypeValue
from dagc.sym import Const


def setup(ev: Evaluator, item: ast.Setup) -> ir.Setup:
    """May give up (Skip)."""
    if not item.file.strip():
        ev.ctx.report.fail("bad-setup", "the set-up needs a file", item.span, 'write `setup "file.py" function(...)`')
    return ir.Setup(item.file, _function(ev, item.call), _keywords(ev, item.call), span=item.span)


def verify(ev: Evaluator, out: GraphOut, item: ast.Verify, has_setup: bool) -> ir.Verify:
    """May give up (Skip)."""
    report = ev.ctx.report
    target = storage(ev, item.target)
    rtol = ev.constant(item.rtol, "a tolerance", (Kind.INT, Kind.REAL))
    assert not isinstance(rtol, str)
    if rtol < 0:
        report.fail("bad-verify", "a tolerance below 0", item.rtol.span, "give 0 or more")
    if not has_setup:
        help = 'add `setup "file.py" function(...)`: the reference is in the same file'
        report.error("bad-verify", "there is nothing to verify with: the program has no set-up", item.span, help)
    if not report.failed and not _written(out, target):  # an op in error may be the one that writes it
        help = "verify an array that an op writes"
        report.error("bad-verify", f"no op writes `{target.label}`", item.target.span, help)
    if target.region.part is not None:
        report.fail("bad-verify", f"part `{target.label}` has no bounds", item.target.span, "verify the array itself")
    function = _function(ev, item.call)
    return ir.Verify(target.region, function, _keywords(ev, item.call), float(rtol), item.nan_equal, span=item.span)


def until(ev: Evaluator, out: GraphOut, ref: ast.Ref) -> str:
    """Name of the array that ends the repetition: one element on the host, that an op writes. May give up (Skip)."""
    report = ev.ctx.report
    found: Storage = storage(ev, ref)
    related = ((found.array.span, "declared here"),)
    wrong = ""
    if found.dims != (Const(1),) or found.region.start is not None:
        wrong = "is not an array of one element"
    elif found.array.type in (ir.ElementType.F32, ir.ElementType.F64):
        wrong = f"holds {found.array.type.value}"
    elif found.array.place not in (ast.Place.HOST, ast.Place.PINNED):
        wrong = f"is on the {found.array.place.value}"
    elif not report.failed and not _written(out, found):
        wrong = "is written by no op"
    if wrong:
        help = f"declare `array {ref.name} : i32[1] on host`, and write it in a cpu op"
        report.fail("bad-until", f"`{found.label}` {wrong}", ref.span, help, related)
    return found.array.name


def _written(out: GraphOut, target: Storage) -> bool:
    return any(u.storage.region.array == target.region.array and u.mode is not ast.Mode.IN for u in out.uses)


def _function(ev: Evaluator, call: ast.Call) -> str:
    if call.callee.trailers:
        ev.ctx.report.fail("bad-setup", "a function name is wanted", call.callee.span, "write `function(...)`")
    return call.callee.name


def _keywords(ev: Evaluator, call: ast.Call) -> tuple[tuple[str, ir.Value], ...]:
    """Arguments by keyword: a bare name is passed by that name, anything else must be named."""
    report = ev.ctx.report
    out: dict[str, ir.Value] = {}
    for arg in call.args:
        if isinstance(arg, ast.Named):
            name, expr = arg.name, arg.value
        elif isinstance(arg, ast.Ref) and not arg.trailers:
            name, expr = arg.name, arg
        else:
            report.fail(
                "unnamed-argument", "only a bare name is passed by its own name", arg.span, "write `name = ...`"
            )
        if name in out or name in ("rank", "size", "seed"):
            message = f"`{name}` is passed twice" if name in out else f"`{name}` is always passed"
            report.fail("duplicate-name", message, arg.span, "drop it, or choose another name")
        value = ev.value(expr)
        if isinstance(value, TypeValue):
            out[name] = value.type.value
            continue
        number = ev.constant(expr, "an argument of the set-up")
        out[name] = float(number) if isinstance(number, Fraction) else number
    return tuple(out.items())

"""Communicators: `comm NAME = split(COLOUR [, KEY])`, and `on NAME` after exchanges and collectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dagc.base.errors import counted
from dagc.ir import program as ir
from dagc.ir.linear import Facts
from dagc.ir.sym import Const, Fn, Sym, Var, apply, free
from dagc.lang import ast
from dagc.lang.evaluate import Evaluator
from dagc.lang.frames import Frame
from dagc.lang.scope import ScalarKind, What

_FORM = "write `split(COLOUR)` or `split(COLOUR, KEY)`"


def communicator(ev: Evaluator, item: ast.Communicator, display: str) -> ir.Communicator:
    """Of its declaration; whether all ranks are in it is settled later, by `settled`. May raise Skip."""
    report, call = ev.ctx.report, item.call
    if call.callee.name != "split" or call.callee.trailers:
        report.fail("unknown-name", f"`{call.callee.name}` makes no communicator", call.callee.span, _FORM)
    args = [a for a in call.args if not isinstance(a, ast.Named)]
    if len(args) != len(call.args) or len(args) not in (1, 2):
        message = f"`split` takes a colour and a key, not {counted(len(call.args), 'argument')}"
        report.fail("wrong-arity", message, call.span, _FORM)
    values: list[Sym] = []
    for arg, what in zip(args, ("colour", "key"), strict=False):
        value = ev.settled(arg, (ScalarKind.INT,))
        machine = sorted(name for name in free(value) if name.startswith("hw."))
        if machine:
            message = f"a {what} cannot depend on `{machine[0]}`, which is known only on the machine"
            report.fail("bad-communicator", message, arg.span, "use a scalar of the set-up")
        values.append(value)
    if isinstance(values[0], Const) and values[0].value < 0:  # type: ignore[operator]
        help = "give 0 or more to the ranks that are in it"
        report.fail("bad-communicator", f"no rank is in `{display}`: its colour is negative", args[0].span, help)
    key = values[1] if len(values) > 1 else Const(0)
    return ir.Communicator(display, values[0], key, False, span=item.name.span)


def settled(
    comms: Iterable[ir.Communicator], scalars: Iterable[ir.Scalar], requires: tuple[Sym, ...]
) -> tuple[ir.Communicator, ...]:
    """The communicators, with whether every rank is in one: `requires` tells what holds for the scalars."""
    scalars = tuple(scalars)
    done: tuple[ir.Communicator, ...] = ()
    for comm in comms:
        facts = ir.facts(scalars, requires, comms=done)
        done = (*done, replace(comm, everyone=_never_negative(comm.colour, facts)))
    return done


def _never_negative(expr: Sym, facts: Facts) -> bool:
    """Whether a number is certainly 0 or more."""
    if isinstance(expr, Const):
        return bool(expr.value >= 0)  # type: ignore[operator]
    if isinstance(expr, Var):
        return bool(facts.at_most(Const(0), expr))
    match expr.fn:
        case Fn.ABS | Fn.SQRT:
            return True
        case Fn.MAX:
            known = any(_never_negative(a, facts) for a in expr.args)
        case Fn.COND:
            known = all(_never_negative(a, facts) for a in expr.args[1:])
        case Fn.ADD | Fn.MUL | Fn.DIV | Fn.MOD | Fn.MIN | Fn.FLOOR | Fn.CEIL:
            known = all(_never_negative(a, facts) for a in expr.args)
        case _:
            known = False
    return known or (expr.fn in (Fn.ADD, Fn.SUB, Fn.MUL) and bool(facts.at_most(Const(0), expr)))


def on(frame: Frame, ref: ast.Ref | None) -> tuple[ir.Communicator | None, Frame]:
    """The communicator after `on`, None where there is none, and the frame of the ranks that are in it. May raise
    Skip."""
    if ref is None:
        return None, frame
    ctx = frame.ctx
    family, bound, trailers = frame.ev.select(ref)
    if family.what is not What.COMM or trailers:
        what = "a value" if trailers else family.what.value
        help = "declare one before the dag: `comm NAME = split(COLOUR)`"
        related = ((family.span, "declared here"),)
        ctx.report.fail("type-mismatch", f"`{ref.name}` is {what}, not a communicator", ref.span, help, related)
    ctx.used.add(bound.display)
    comm = ctx.comms[bound.display]
    return comm, frame if comm.everyone else frame.under(apply(Fn.GE, comm.rank, Const(0)))

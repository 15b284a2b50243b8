"""Context for lowering a dag (scopes, prefixes, communicators); set-up, verification, `until`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.choice import FORM
from dagc.ir.enums import Mode, Place, Role
from dagc.ir.linear import Facts
from dagc.ir.regions import facts
from dagc.ir.sym import Const, Fn, Sym, Var, apply, free
from dagc.lang import ast
from dagc.lang.declarations import Declared, Declarer, storage
from dagc.lang.evaluate import Evaluator
from dagc.lang.scope import (
    Context,
    Key,
    Report,
    ScalarKind,
    Storage,
    TypeValue,
    Value,
    What,
    fail_again,
    refuse_reserved,
)

# ---- frames ----


@dataclass(slots=True)
class OpEntry:
    """A named op. `base`: its name without indices; `labels`: messages of an exchange by name and key; `after`: copies
    that follow it; `inner`: the ops of a compound."""

    display: str
    base: str
    span: Span
    exchange: bool = False
    labels: dict[str, dict[Key, str]] = field(default_factory=dict)
    after: list[ir.CopyOp] = field(default_factory=list)
    inner: OpScope | None = None
    names: list[str] = field(default_factory=list)  # its primitive ops

    def __str__(self) -> str:
        return self.display


@dataclass(slots=True)
class OpScope:
    families: dict[str, dict[Key, OpEntry]] = field(default_factory=dict)
    decided: dict[str, dict[Span, str]] = field(default_factory=dict)  # names of ops that `held` has added

    def instances(self) -> Iterable[OpEntry]:
        return (e for family in self.families.values() for e in family.values())


@dataclass(frozen=True, slots=True)
class Frame:
    """`base` is the prefix without indices; `stack` names the enclosing compounds; `when` has the per-rank conditions
    of the enclosing `if`s; `outer` the iterations of the loops around the compound."""

    ev: Evaluator
    declared: Declared
    ops: OpScope
    prefix: str = ""
    base: str = ""
    stack: tuple[str, ...] = ()
    when: tuple[Sym, ...] = ()
    outer: tuple[tuple[Value, Span], ...] = ()
    held: Held | None = None

    @property
    def ctx(self) -> Context:
        return self.ev.ctx

    @property
    def declarer(self) -> Declarer:
        return Declarer(self.ev, self.declared, self.prefix)

    @property
    def turns(self) -> tuple[tuple[Value, Span], ...]:
        """The iterations of all loops around an item: the value of each loop variable, and where it is bound."""
        return (*self.outer, *self.ev.loops.values())

    def turn(self, ev: Evaluator) -> Frame:
        return replace(self, ev=ev)

    def under(self, condition: Sym | None) -> Frame:
        """The frame of a branch."""
        return self if condition is None else replace(self, when=(*self.when, condition))

    @property
    def condition(self) -> Sym | None:
        """The condition under which a rank runs the items of this frame; None: always."""
        return reduce(lambda a, b: apply(Fn.AND, a, b), self.when) if self.when else None

    def indexed(self, ref: ast.Ref, what: str) -> tuple[Key, str]:
        """The indices of a name before a colon, and its text: `face[x,lo]`. May raise Skip."""
        index = ref.trailers[0] if len(ref.trailers) == 1 and isinstance(ref.trailers[0], ast.Index) else None
        if ref.trailers and index is None:
            message = f"the name of {what} is a word, or a word with indices"
            self.ctx.report.fail("bad-op-name", message, ref.span, "write `name` or `name[i]`")
        key, text = self.ev.key(index.items, index.span) if index else ((), "")
        return key, f"{ref.name}[{text}]" if index else ref.name

    def enter_op(self, ref: ast.Ref) -> OpEntry:
        """Declare an op by the reference before its colon. May raise Skip."""
        report = self.ctx.report
        key, text = self.indexed(ref, "an op")
        if ref.name == "end":
            report.fail(
                "reserved-name", "`end` is reserved for the op after all others", ref.span, "choose another name"
            )
        if f"{ref.name}." == FORM:
            message = f"`{ref.name}` is reserved for the forms of kernels, `OP.{FORM}NAME`"
            report.fail("reserved-name", message, ref.span, "choose another name")
        refuse_reserved(report, ref.name, ref.span)
        display = self.prefix + text
        family = self.ops.families.setdefault(ref.name, {})
        if family and (key in family or not key or () in family):
            other = family.get(key) or next(iter(family.values()))
            if other.span == ref.span:
                fail_again(report, f"op `{display}`", ref.name, key, ref.span)
            message = f"op `{ref.name}` is declared with and without indices"
            if key in family:
                message = f"op `{display}` is declared twice"
            help = "index it by the loop variable, or choose another name"
            report.fail("duplicate-name", message, ref.span, help, ((other.span, "first declared here"),))
        entry = family[key] = OpEntry(display, self.base + ref.name, ref.span)
        self.ctx.expand_op(ref.span)
        return entry


@dataclass(frozen=True, slots=True)
class Held:
    """What the device has decided for the items of a frame: they run where `holds` is 1, if it is `wanted`, or 0.
    `within`: what was decided around them; where they do not run for that, `holds` is -1."""

    holds: Storage
    wanted: bool
    within: Held | None = None

    @property
    def conditions(self) -> tuple[Sym, ...]:
        """As conditions of checks."""
        mine: Sym = Var(f"{self.holds.label} == 1")
        around = self.within.conditions if self.within is not None else ()
        return (*around, mine if self.wanted else apply(Fn.NOT, mine))


@dataclass(frozen=True, slots=True)
class Use:
    """One access of an op to an array, for checks of the whole program.

    `when`: the per-rank conditions under which it happens. `arrives`: of a receive from `c ? peer : -1`, those under
    which there is something to receive; of other accesses as `when`. `turns`: the iterations of the loops around it.
    """

    op: str
    storage: Storage
    mode: Mode
    span: Span
    when: tuple[Sym, ...]
    arrives: tuple[Sym, ...]
    turns: tuple[tuple[Value, Span], ...] = ()


@dataclass(slots=True)
class GraphOut:
    """The graph under construction."""

    kernels: dict[str, ir.Kernel]
    dags: dict[str, ast.SubDag]
    ops: list[ir.Op] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    edges: list[tuple[ast.Edge, Frame]] = field(default_factory=list)
    selects: list[ir.Select] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    deciding: set[str] = field(default_factory=set)  # kernels that `held` has added
    explicit: ast.EdgesExplicit | None = None
    fuse: ast.Fuse | None = None
    packed: tuple[str, Span] | None = None  # what has copies that are not written, and where, if there is anything
    # Of ends of messages that are packed, by message (its exchange without indices), end and region. Iterations that
    # pack the same region share one, as they share a staging buffer: memory does not grow with their number.
    buffers: dict[tuple[str, str, bool, ir.Region], Storage] = field(default_factory=dict)
    passed: dict[str, Storage] = field(default_factory=dict)  # by name, what the host reads by-value arguments from
    loops: list[ir.Loop] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)  # words in ops with errors, which may write arrays of these names
    any_doubtful: bool = False  # an op with an error may write an array of any name

    def use(
        self, frame: Frame, op: str, storage: Storage, mode: Mode, span: Span, arriving: Frame | None = None
    ) -> ir.Access:
        """Record an access; `arriving`: the frame of the ranks that receive. Reports writes to arrays that must not be
        written."""
        held = frame.held.conditions if frame.held is not None else ()
        when, arrives = (*frame.when, *held), (*(arriving or frame).when, *held)
        self.uses.append(Use(op, storage, mode, span, when, arrives, frame.turns))
        if mode is not Mode.IN:
            _check_writable(frame, storage, span)
        if storage.mode is Mode.ACCUMULATE is not mode:
            message = f"`{storage.label}` is an `accumulate` formal of this dag, but is used in another way"
            frame.ctx.report.error("written-in", message, span, "make the formal `inout`")
        # An op that is skipped leaves elements as they were; copies between the sides of an array follow text order.
        skipped = frame.held is not None and mode is Mode.OUT
        in_order = storage.array.place is Place.ANY and mode is Mode.ACCUMULATE
        return ir.Access(storage.region, Mode.INOUT if skipped or in_order else mode)


def _check_writable(frame: Frame, storage: Storage, span: Span) -> None:
    report = frame.ctx.report
    related = ((storage.array.span, "declared here"),)
    if storage.mode is Mode.IN:
        help = "make the formal `inout` or `out`"
        report.error(
            "written-in", f"`{storage.label}` is an `in` formal of this dag, but is written", span, help, related
        )
    elif storage.array.role is Role.IN:
        message = f"array `{storage.label}` has the role `in`, but is written"
        report.error("written-in", message, span, "declare it `inout`", related)
    elif storage.array.role is Role.CONST:
        message = f"array `{storage.label}` is `const`, but is written"
        report.error("const-written", message, span, "drop `const`, or write to another array", related)


def words(node: object) -> set[str]:
    """Names of all references in a piece of the syntax tree."""
    return {ref.name for ref in ast.nodes(node) if isinstance(ref, ast.Ref)}


# ---- set-up, verification, `until`: nothing is executed here ----


def setup(ev: Evaluator, item: ast.Setup) -> ir.Setup:
    """May raise Skip."""
    if not item.file.strip():
        ev.ctx.report.fail("bad-setup", "the set-up needs a file", item.span, 'write `setup "file.py" function(...)`')
    args = _keywords(ev, item.call)
    values = [arg.value if isinstance(arg, ast.Named) else arg for arg in item.call.args]
    used = {name for expr in values if not isinstance(ev.value(expr), TypeValue) for name in free(ev.sym(expr))}
    decisions = tuple(name for name in ev.ctx.choices if name in used)
    return ir.Setup(item.file, _function(ev, item.call), args, decisions, span=item.span)


def verify(ev: Evaluator, out: GraphOut, item: ast.Verify, has_setup: bool) -> ir.Verify:
    """May raise Skip."""
    report = ev.ctx.report
    target = storage(ev, item.target, sliced="copy it into an array of its own with a kernel, and verify that")
    rtol, atol = (0.0 if expr is None else _tolerance(ev, expr) for expr in (item.rtol, item.atol))
    if not has_setup:
        help = 'add `setup "file.py" function(...)`: the reference is in the same file'
        report.error("bad-verify", "`verify` needs a set-up, and the program has none", item.span, help)
    if not report.failed and not _written(out, target):  # an op with an error may be the one that writes it
        help = "verify an array that an op writes"
        report.error("bad-verify", f"no op writes `{target.label}`", item.target.span, help)
    if target.region.part is not None:
        report.fail("bad-verify", f"part `{target.label}` has no bounds", item.target.span, "verify the array itself")
    if item.of and item.of not in OF_ALL:
        help = report.did_you_mean(item.of, OF_ALL, "write `sum(ARRAY)` or `norm(ARRAY)`, or the array itself")
        report.fail("bad-verify", f"`{item.of}` of an array is not compared", item.target.span, help)
    function, runs = _function(ev, item.call), _runs(ev, item.runs)
    args = _keywords(ev, item.call)
    return ir.Verify(target.region, function, args, rtol, item.nan_equal, atol, runs, item.of, span=item.span)


OF_ALL = ("sum", "norm")  # of the elements of an array, that may be compared


MOST_RUNS = 1000  # that a `verify` waits for: the reference is called as often


def _runs(ev: Evaluator, expr: ast.Expr | None) -> int:
    """The runs before a comparison."""
    runs = 1 if expr is None else ev.integer(expr, "a number of runs")
    if expr is not None and not 1 <= runs <= MOST_RUNS:
        ev.ctx.report.fail("bad-verify", f"a comparison after {runs} runs", expr.span, f"give 1 to {MOST_RUNS}")
    return runs


def _tolerance(ev: Evaluator, expr: ast.Expr) -> float:
    value = ev.constant(expr, "a tolerance", (ScalarKind.INT, ScalarKind.REAL))
    assert not isinstance(value, str)
    if value < 0:
        ev.ctx.report.fail("bad-verify", "this tolerance is below 0", expr.span, "give 0 or more")
    return float(value)


def until(ev: Evaluator, out: GraphOut, item: ast.Until) -> ir.Until:
    """The condition that ends the repetition: an array of one element, on the host, written by an op. May raise
    Skip."""
    report = ev.ctx.report
    counter: Storage = storage(ev, item.array)
    related = ((counter.array.span, "declared here"),)
    real = counter.array.type.is_float
    wrong, type_ = "", "f64" if item.bound is not None else "i32"
    one = counter.dims == (Const(1),) and counter.region.start is None
    if not one:
        wrong = "is not an array of one element"
    elif real and item.bound is None:
        wrong = f"holds {counter.array.type.value}, and is compared with nothing"
    elif counter.array.place not in (Place.HOST, Place.PINNED):
        wrong = f"is on the {counter.array.place.value}"
    elif not report.failed and not _written(out, counter):
        wrong = "is written by no op"
    if wrong:
        help = f"declare `array {item.array.name} : {type_}[1] on host`, and write it in a cpu op"
        if not one:
            help = "name an array of one element, into which an op writes the sum or the largest"
        elif real and item.bound is None:
            help = f"write `until {item.array.name} < TOLERANCE`"
        elif counter.array.place is Place.DEVICE:
            held = f"array {item.array.name}_h : {counter.array.type.value}[1] on pinned"
            help = f"copy it to the host: `{held}`, `gpu copy({item.array.name}_h, {item.array.name})`"
        report.fail("bad-until", f"`{counter.label}` {wrong}", item.array.span, help, related)
    if item.op is None or item.bound is None:
        return ir.Until(counter.array.name)
    bound = ev.settled(item.bound, (ScalarKind.INT, ScalarKind.REAL) if real else (ScalarKind.INT,))
    warn_of_settled(report, counter, Fn(item.op.value), bound, item.bound.span)
    return ir.Until(counter.array.name, Fn(item.op.value), bound)


def warn_of_settled(report: Report, given: Storage, operator: Fn, bound: Sym, span: Span) -> None:
    """Warn of a comparison that has one result for all values of the array's type."""
    type_ = given.array.type
    if not type_.is_integer or not isinstance(bound, Const) or not isinstance(bound.value, int):
        return
    ends = {apply(operator, Const(end), bound) for end in type_.range}
    inside = type_.range[0] <= bound.value <= type_.range[1]
    if len(ends) > 1 or (inside and operator in (Fn.EQ, Fn.NE)):
        return
    what = "always" if ends == {Const(True)} else "never"
    message = f"this comparison {what} holds: {type_.value} is from {type_.range[0]} to {type_.range[1]}"
    help = f"compare with a value in this range, or declare `{given.label}` with a wider type"
    report.warning("no-effect", message, span, help, ((given.array.span, "declared here"),))


def _written(out: GraphOut, target: Storage) -> bool:
    return any(u.storage.region.array == target.region.array and u.mode is not Mode.IN for u in out.uses)


def _function(ev: Evaluator, call: ast.Call) -> str:
    if call.callee.trailers:
        ev.ctx.report.fail("bad-setup", "a function name is expected", call.callee.span, "write `function(...)`")
    return call.callee.name


def _keywords(ev: Evaluator, call: ast.Call) -> tuple[tuple[str, ir.Value], ...]:
    """Keyword arguments: a bare name is passed under that name; anything else needs a name."""
    report = ev.ctx.report
    out: dict[str, ir.Value] = {}
    for arg in call.args:
        if isinstance(arg, ast.Named):
            name, expr = arg.name, arg.value
        elif isinstance(arg, ast.Ref) and not arg.trailers:
            name, expr = arg.name, arg
        else:
            report.fail("unnamed-argument", "this argument needs a name", arg.span, "write `name = ...`")
        if name in out or name in ("rank", "size", "seed"):
            always = {"rank": "the number of the rank", "size": "the number of ranks", "seed": "the value of --seed"}
            message = f"`{name}` is passed twice" if name in out else f"`{name}` is always passed: {always[name]}"
            report.fail("duplicate-name", message, arg.span, "drop it, or choose another name")
        value = ev.value(expr)
        if isinstance(value, TypeValue):
            out[name] = value.type.value
            continue
        number = ev.constant(expr, "an argument of the set-up", structural=True)
        out[name] = float(number) if isinstance(number, Fraction) else number
    return tuple(out.items())


# ---- communicators ---------------------------------------------------------------------------------


_FORM = "write `split(COLOUR)` or `split(COLOUR, KEY)`"


def communicator(ev: Evaluator, item: ast.Communicator, display: str) -> ir.Communicator:
    """The communicator of a declaration. `settled` determines later whether all ranks are in it. May raise Skip."""
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
    comms: Iterable[ir.Communicator], scalars: Iterable[ir.Scalar], requires: tuple[ir.Require, ...]
) -> tuple[ir.Communicator, ...]:
    """The communicators, and whether every rank is in each; `requires` are the conditions on the scalars."""
    scalars = tuple(scalars)
    done: tuple[ir.Communicator, ...] = ()
    for comm in comms:
        known = facts(scalars, requires, comms=done)
        done = (*done, replace(comm, everyone=_never_negative(comm.colour, known)))
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

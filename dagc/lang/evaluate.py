"""Expressions, compile-time loops and branches, and the number of ops a dag expands to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NoReturn

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import sym
from dagc.ir.enums import OpKind
from dagc.ir.program import Communicator
from dagc.ir.sym import Const, Fn, Number, Sym, Var, apply, free
from dagc.lang import ast
from dagc.lang.scope import (
    EXPANSION_LIMIT,
    HARDWARE,
    OPS_LIMIT,
    PREDEFINED,
    TYPES,
    WORDS,
    Aborted,
    Bound,
    Context,
    Family,
    Label,
    ListValue,
    Report,
    ScalarKind,
    Scope,
    Skip,
    Storage,
    TypeValue,
    Value,
    What,
    as_sym,
    indices_text,
    kind_of,
    listing,
    out_of_range,
    there_are,
    too_large,
)

# ---- expressions: decisions stay variables until a value is needed ----

_BINARY = {op: Fn(op.value) for op in ast.BinaryOp}
FUNCTIONS = {
    "floor": (Fn.FLOOR, 1), "ceil": (Fn.CEIL, 1), "min": (Fn.MIN, 0), "max": (Fn.MAX, 0),
    "abs": (Fn.ABS, 1), "log2": (Fn.LOG2, 1), "sqrt": (Fn.SQRT, 1),
}  # fmt: skip
_NUMBERS = (ScalarKind.INT, ScalarKind.REAL)
_HIDDEN = (What.SCALAR, What.COMM, What.ARRAY, What.PART, What.FEATURE)  # of the program, in a kernel


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates in one scope, with the loop variables around it. Every mistake is reported and raises Skip."""

    ctx: Context
    scope: Scope
    loops: Mapping[str, tuple[Value, Span]] = field(default_factory=dict)

    # ---- what callers ask for ---------------------------------------------------------------

    def value(self, expr: ast.Expr) -> Value:
        """Any value: a scalar, a label, a list, a type."""
        if isinstance(expr, ast.Literal):
            return Const(expr.value)
        if isinstance(expr, ast.Ref):
            return self._ref(expr)
        if isinstance(expr, ast.ListExpr):
            return ListValue(tuple(self.value(i) for i in expr.items))
        if isinstance(expr, ast.Call):
            return self._call(expr)
        if isinstance(expr, ast.Unary):
            return self._unary(expr)
        if isinstance(expr, ast.Binary):
            return self._binary(expr)
        if isinstance(expr, ast.Touched):
            self._fail("type-mismatch", "only an array argument of a kernel has `touching`", expr.span, "drop it")
        return self._conditional(expr)

    def sym(self, expr: ast.Expr, wanted: tuple[ScalarKind, ...] = ()) -> Sym:
        """A scalar of one of the kinds `wanted` (of any if empty)."""
        return self.scalar(self.value(expr), expr.span, wanted)

    def scalar(self, value: Value, span: Span, wanted: tuple[ScalarKind, ...] = ()) -> Sym:
        """As `sym`, for a value already evaluated."""
        scalar = as_sym(value)
        if scalar is None:
            what = "a list" if isinstance(value, ListValue) else "a type"
            self._fail("type-mismatch", f"this is {what}; one value is expected", span, "index the list")
        if wanted and self.kind(scalar) not in wanted:
            self._wrong_kind(span, self.kind(scalar), wanted)
        return scalar

    def settled(self, expr: ast.Expr, wanted: tuple[ScalarKind, ...] = (), structural: bool = False) -> Sym:
        """A scalar with the chosen values of all program-level decisions substituted."""
        return self.settle(self.sym(expr, wanted), expr.span, structural)

    def settle(self, value: Sym, span: Span, structural: bool = False) -> Sym:
        """Substitute the chosen values. Reports `too-large`, and arithmetic that fails for these values."""
        if too_large(value):
            self._fail("too-large", "this expression is too large", span, "assign parts of it to a scalar")
        try:
            return self.checked(self.ctx.settle(value, structural), span)
        except (ArithmeticError, ValueError, TypeError) as error:
            self._failed_arithmetic(error, span)

    def constant(
        self, expr: ast.Expr, what: str, wanted: tuple[ScalarKind, ...] = (), structural: bool = False
    ) -> Number:
        """A compile-time value. `what` describes its use in messages."""
        value = self.settled(expr, wanted, structural)
        if not isinstance(value, Const):
            self._not_compile_time(value, what, expr.span)
        return value.value

    def integer(self, expr: ast.Expr, what: str, structural: bool = False) -> int:
        """A compile-time integer."""
        number = self.constant(expr, what, (ScalarKind.INT,), structural)
        assert isinstance(number, int)
        return number

    def items(self, range_: ast.Expr | ast.Range, what: str, structural: bool) -> tuple[Value, ...]:
        """The values of a list, an enum or `a..b`, compile-time. Loops over them count the expansion."""
        if isinstance(range_, ast.Range):
            start, stop = (self.integer(e, what, structural) for e in (range_.start, range_.stop))
            if stop - start > EXPANSION_LIMIT:
                message = f"{what} of {stop - start} values, more than {EXPANSION_LIMIT}"
                self._fail("too-many-ops", message, range_.span, "use fewer")
            return tuple(Const(i) for i in range(start, stop))
        value = self.value(range_)
        if not isinstance(value, ListValue):
            self._fail(
                "type-mismatch", f"{what} must be a list, an enum or `a..b`", range_.span, "write `0..n` or `{a, b}`"
            )
        out: list[Value] = []
        for item in value.items:
            scalar = as_sym(item)
            if isinstance(item, Label) or scalar is None:
                out.append(item)
                continue
            scalar = self.settle(scalar, range_.span, structural)
            if not isinstance(scalar, Const):
                self._not_compile_time(scalar, what, range_.span)
            out.append(scalar)
        return tuple(out)

    def key(self, exprs: tuple[ast.Expr | ast.Range | ast.Every, ...], span: Span) -> tuple[tuple[int, ...], str]:
        """Indices as numbers, and as the text between the brackets of a display name."""
        numbers, words = [], []
        for expr in exprs:
            if isinstance(expr, (ast.Range, ast.Every)):
                self._fail("bad-index", "one index is expected, not a slice", expr.span, "write one index")
            value = self.value(expr)
            if isinstance(value, Label):
                numbers.append(value.index)
                words.append(value.text)
                continue
            number = self.settle(self.scalar(value, expr.span, (ScalarKind.INT,)), expr.span, structural=True)
            if not isinstance(number, Const):
                self._not_compile_time(number, "an index", expr.span)
            numbers.append(int(number.value))
            words.append(str(number.value))
        return tuple(numbers), ",".join(words)

    def kind(self, value: Sym) -> ScalarKind:
        return kind_of(value, self.scope.kind_of)

    def find(self, name: str, span: Span) -> Family:
        """The family of a name. Reports unknown-name and not-visible; broken names raise Skip without a report."""
        entry = self.scope.find(name)
        if entry is None:
            known = chain(self.scope.names(), self.loops, ("rank", "ranks", "hw"))
            help = self.ctx.report.did_you_mean(name, known, "declare it before its use")
            self._fail("unknown-name", f"unknown name `{name}`", span, help)
        family, outside = entry
        if family.broken:
            raise Skip
        if outside and family.what in _HIDDEN:
            message = f"{family.what.value} of the program is not visible in a kernel: `{name}`"
            help = "make it a formal and pass it in the call"
            self._fail("not-visible", message, span, help, ((family.span, "declared here"),))
        return family

    def instance(self, family: Family, key: tuple[int, ...], text: str, span: Span) -> Bound:
        """One instance of a family. Reports bad-index."""
        if key not in family.instances:
            self._no_instance(family, key, text, span)
        return family.instances[key]

    def _no_instance(self, family: Family, key: tuple[int, ...], text: str, span: Span) -> NoReturn:
        related = ((family.span, "declared here"),)
        names = [b.display for b in family.instances.values()]
        if len(key) != family.arity:
            message = f"`{family.name}` takes {indices_text(family.arity)}, not {indices_text(len(key))}"
            self._fail("bad-index", message, span, f"write {listing(names, 4)}", related)
        help = there_are(names, 6)
        only = next(iter(family.instances))
        if len(names) == 1 and len(key) == 1 and 0 <= key[0] < only[0]:  # declared as an array of C
            many = f"for i in 0..{only[0]} {{... {family.name}[i] ...}}"
            help = f"{help}: a declaration with an index declares one instance; `{many}` declares {only[0]}"
        self._fail("bad-index", f"there is no `{family.name}[{text}]`", span, help, related)

    def select(self, ref: ast.Ref) -> tuple[Family, Bound, tuple[ast.Member | ast.Index, ...]]:
        """The instance that a reference names, and the remaining trailers."""
        family = self.find(ref.name, ref.span)
        trailers = ref.trailers
        if not family.arity or not trailers or not isinstance(trailers[0], ast.Index):
            return family, self.instance(family, (), "", ref.span), trailers
        key, text = self.key(trailers[0].items, trailers[0].span)
        return family, self.instance(family, key, text, ref.span), trailers[1:]

    # ---- references ---------------------------------------------------------------------------

    def _ref(self, ref: ast.Ref) -> Value:
        if ref.name in self.loops:
            return self._trailing(self.loops[ref.name][0], ref.trailers, ref)
        if self.scope.find(ref.name) is None:
            builtin = self._builtin(ref)
            if builtin is not None:
                return builtin
        family, bound, trailers = self.select(ref)
        if isinstance(bound.value, Communicator):
            return self._of_communicator(ref, bound.value, trailers)
        if family.what in (What.ARRAY, What.PART) or bound.value is None or isinstance(bound.value, Storage):
            message = f"the contents of array `{bound.display}` are not known before the dag runs"
            help = "pass the array to a kernel and read it there"
            self._fail("run-time-value", message, ref.span, help, ((bound.span, "declared here"),))
        if family.what is not What.FORMAL:
            self.ctx.used.add(bound.display)
        if family.what is What.LET:
            self._check_let(ref, family, bound.value)
        return self._trailing(bound.value, trailers, ref)

    def _of_communicator(self, ref: ast.Ref, comm: Communicator, trailers: tuple[ast.Member | ast.Index, ...]) -> Value:
        """`row.rank` or `row.ranks`."""
        help = f"write `{comm.name}.rank`, `{comm.name}.ranks`, or `on {comm.name}` after an exchange or collective"
        if not trailers:
            self._fail("type-mismatch", f"`{ref.name}` is a communicator, not a value", ref.span, help)
        member = trailers[0]
        if len(trailers) > 1 or not isinstance(member, ast.Member) or member.name not in ("rank", "ranks"):
            self._fail("unknown-name", f"communicator `{comm.name}` has no such member", member.span, help)
        self.ctx.used.add(comm.name)
        return comm.rank if member.name == "rank" else comm.ranks

    def _check_let(self, ref: ast.Ref, family: Family, value: Value) -> None:
        """A kernel sees a `let` of the program only if it is compile-time."""
        entry = self.scope.find(ref.name)
        scalar = as_sym(value)
        if entry is None or not entry[1] or scalar is None:
            return
        if self._per_rank(scalar):
            message = f"`{ref.name}` depends on the rank, so it is not visible in a kernel"
            help = "make it a formal and pass it in the call"
            self._fail("not-visible", message, ref.span, help, ((family.span, "declared here"),))

    def _per_rank(self, value: Sym) -> list[str]:
        return sorted(n for n in sym.free(value) if n not in self.ctx.choices and not n.startswith("hw."))

    def _builtin(self, ref: ast.Ref) -> Value | None:
        """`rank`, `hw.NAME`, predefined decisions and their labels, element types; None for other names."""
        name, trailers = ref.name, ref.trailers
        if name == "hw" and len(trailers) == 1 and isinstance(trailers[0], ast.Member):
            member = trailers[0].name
            if member not in HARDWARE:
                help = self.ctx.report.did_you_mean(member, HARDWARE, there_are(sorted(HARDWARE), 20))
                self._fail("unknown-name", f"`hw` has no `{member}`", trailers[0].span, help)
            return Var(f"hw.{member}")
        if trailers:
            return None
        if name in ("rank", "ranks"):
            return self._rank(ref)
        if name in PREDEFINED:
            if name not in self.ctx.choices:
                self.ctx.choose(name, PREDEFINED[name][:1], ref.span, fixed=name not in self.ctx.picked)
                self.ctx.program.kinds[name] = {"streams": ScalarKind.INT, "capture": ScalarKind.BOOL}.get(
                    name, ScalarKind.STR
                )
            return Var(name)
        if any(name in words for words in WORDS.values()):
            return Const(name)
        return TypeValue(TYPES[name]) if name in TYPES else None

    def _rank(self, ref: ast.Ref) -> Sym:
        if any(scope.kernel for scope in self.scope.chain()):
            help = "make it a formal and pass it in the call"
            self._fail("not-visible", f"`{ref.name}` is not visible in a kernel", ref.span, help)
        return Var(ref.name)

    def _trailing(self, value: Value, trailers: tuple[ast.Member | ast.Index, ...], ref: ast.Ref) -> Value:
        for trailer in trailers:
            if isinstance(trailer, ast.Member):
                self._fail("unknown-name", f"`{ref.name}` has no member `{trailer.name}`", trailer.span, "drop it")
            if not isinstance(value, ListValue):
                self._fail("bad-index", f"`{ref.name}` is one value, not a list", trailer.span, "drop the index")
            key, text = self.key(trailer.items, trailer.span)
            if len(key) != 1 or not 0 <= key[0] < len(value.items):
                message = f"`{ref.name}` has {len(value.items)} items; there is no [{text}]"
                self._fail("bad-index", message, trailer.span, f"choose from 0 to {len(value.items) - 1}")
            value = value.items[key[0]]
        return value

    # ---- operators ----------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> Value:
        name = call.callee.name
        args = [a for a in call.args if not isinstance(a, ast.Named)]
        if call.callee.trailers or (name not in FUNCTIONS and name != "sizeof"):
            known = [*FUNCTIONS, "sizeof"]
            help = self.ctx.report.did_you_mean(name, known, f"there are {', '.join(known)}")
            self._fail("unknown-name", f"unknown function `{name}`", call.callee.span, help)
        count = FUNCTIONS[name][1] if name in FUNCTIONS else 1
        if len(args) != len(call.args) or (len(args) != count if count else not args):
            takes = counted(count, "value") if count else "one value or more"
            help = "write `floor(a / b)`, `min(a, b, c)`, `sizeof(f64)`"
            self._fail("wrong-arity", f"`{name}` takes {takes}, not {len(call.args)}", call.span, help)
        if name == "sizeof":
            value = self.value(args[0])
            if not isinstance(value, TypeValue):
                self._fail("type-mismatch", "`sizeof` takes a type", args[0].span, "write `sizeof(f64)`")
            return Const(value.type.size)
        return self._apply(FUNCTIONS[name][0], call.span, *(self.sym(a, _NUMBERS) for a in args))

    def _unary(self, expr: ast.Unary) -> Value:
        if expr.op is ast.UnaryOp.NOT:
            return self._apply(Fn.NOT, expr.span, self.sym(expr.operand, (ScalarKind.BOOL,)))
        return self._apply(Fn.NEG, expr.span, self.sym(expr.operand, _NUMBERS))

    def _binary(self, expr: ast.Binary) -> Value:
        fn = _BINARY[expr.op]
        if fn in (Fn.AND, Fn.OR):
            return self._apply(
                fn, expr.span, self.sym(expr.left, (ScalarKind.BOOL,)), self.sym(expr.right, (ScalarKind.BOOL,))
            )
        left, right = self.value(expr.left), self.value(expr.right)
        if fn in (Fn.EQ, Fn.NE):
            return self._equality(fn, expr, left, right)
        wanted = (ScalarKind.INT,) if fn is Fn.MOD else _NUMBERS
        a, b = self.scalar(left, expr.left.span, wanted), self.scalar(right, expr.right.span, wanted)
        out = self._apply(fn, expr.span, a, b)
        return _as_label(fn, left, right, out)

    def _equality(self, fn: Fn, expr: ast.Binary, left: Value, right: Value) -> Value:
        if isinstance(left, TypeValue) and isinstance(right, TypeValue):
            return Const((left == right) is (fn is Fn.EQ))
        a, b = self.scalar(left, expr.left.span), self.scalar(right, expr.right.span)
        kinds = (self.kind(a), self.kind(b))
        if kinds[0] is not kinds[1] and not all(k in _NUMBERS for k in kinds):
            message = f"cannot compare {kinds[0].value} with {kinds[1].value}"
            self._fail("type-mismatch", message, expr.span, "compare values of one kind")
        return self._apply(fn, expr.span, a, b)

    def _conditional(self, expr: ast.Conditional) -> Value:
        test = self.sym(expr.test, (ScalarKind.BOOL,))
        if isinstance(test, Const):  # the branch not taken may divide by zero
            left_out = ast.nodes(expr.otherwise if test.value else expr.then)
            self.ctx.mentioned.update(node.name for node in left_out if isinstance(node, ast.Ref))
            return self.value(expr.then if test.value else expr.otherwise)
        then, otherwise = self.sym(expr.then), self.sym(expr.otherwise)
        kinds = (self.kind(then), self.kind(otherwise))
        if kinds[0] is not kinds[1] and not all(k in _NUMBERS for k in kinds):
            message = f"one branch is {kinds[0].value}, the other {kinds[1].value}"
            self._fail("type-mismatch", message, expr.span, "use values of one kind in both branches")
        return self._apply(Fn.COND, expr.span, test, then, otherwise)

    def _apply(self, fn: Fn, span: Span, *args: Sym) -> Sym:
        try:
            return self.checked(sym.apply(fn, *args), span)
        except (ArithmeticError, ValueError, TypeError) as error:
            self._failed_arithmetic(error, span)

    def checked(self, value: Sym, span: Span) -> Sym:
        if out_of_range(value):
            self._fail("overflow", "this value does not fit 64 bits", span, "use smaller numbers")
        return value

    # ---- messages -----------------------------------------------------------------------------

    def _fail(
        self, code: str, message: str, span: Span, help: str, related: tuple[tuple[Span, str], ...] = ()
    ) -> NoReturn:
        self.ctx.report.fail(code, message, span, help, related)

    def _wrong_kind(self, span: Span, kind: ScalarKind, wanted: tuple[ScalarKind, ...]) -> NoReturn:
        helps = {
            ScalarKind.BOOL: "write a comparison",
            ScalarKind.STR: "write a string",
            ScalarKind.INT: "write an integer",
        }
        help = helps.get(wanted[0], "write a number") if len(wanted) == 1 else "write a number"
        if (kind, wanted) == (ScalarKind.REAL, (ScalarKind.INT,)):
            help = "write `floor(...)` or `ceil(...)`"
        self._fail("type-mismatch", f"this is {kind.value}; {wanted[0].value} is expected", span, help)

    def _not_compile_time(self, value: Sym, what: str, span: Span) -> NoReturn:
        names = sorted(n for n in sym.free(value))
        hardware = [n for n in names if n.startswith("hw.")]
        if hardware:
            message = f"{what} must be known when compiling, but `{hardware[0]}` is known only on the machine"
        else:
            word = listing([f"`{n}`" for n in names])
            message = f"{what} must be known when compiling, but {word} is known only when the program runs"
        self._fail("not-compile-time", message, span, "use params, labels, tunes and loop variables only")

    def _failed_arithmetic(self, error: Exception, span: Span) -> NoReturn:
        if isinstance(error, ZeroDivisionError):
            self._fail("division-by-zero", "division by zero", span, "test the divisor with `? :`")
        self._fail("overflow", f"this has no value ({error})", span, "use other numbers")


def _as_label(fn: Fn, left: Value, right: Value, out: Sym) -> Value:
    """`1 - s` and `d + 1` of a label are labels of its enum, if it has that number."""
    labels = {v.labels for v in (left, right) if isinstance(v, Label)}
    if fn not in (Fn.ADD, Fn.SUB, Fn.MOD) or len(labels) != 1 or not isinstance(out, Const):
        return out
    names = labels.pop()
    index = out.value
    return Label(names, index) if isinstance(index, int) and 0 <= index < len(names) else out


# ---- loops and branches ----


def turns(ev: Evaluator, item: ast.For) -> Iterator[Evaluator]:
    """An evaluator for each iteration of a loop; an inner range may use outer variables. May raise Skip."""
    for inner in _bind(ev, item.bindings):
        ev.ctx.reached.add((item.span.file, item.span.start, True))
        yield inner


def _bind(ev: Evaluator, bindings: tuple[ast.Binding, ...]) -> Iterator[Evaluator]:
    first, rest = bindings[0], bindings[1:]
    report = ev.ctx.report
    if first.name in ev.loops:
        at = ((ev.loops[first.name][1], "bound here"),)
        report.fail(
            "shadowed-name", f"`{first.name}` is already a loop variable", first.span, "choose another name", at
        )
    entry = ev.scope.find(first.name)
    if entry is not None:
        at = ((entry[0].span, "declared here"),)
        message = f"loop variable `{first.name}` would hide {entry[0].what.value} of the same name"
        report.fail("shadowed-name", message, first.span, "choose another name", at)
    for value in ev.items(first.range, "the range of a loop", structural=True):
        ev.ctx.expand(first.span)
        inner = Evaluator(ev.ctx, ev.scope, {**ev.loops, first.name: (value, first.span)})
        if rest:
            yield from _bind(inner, rest)
        else:
            yield inner


def branch(ev: Evaluator, item: ast.If) -> tuple[ast.Item, ...]:
    """The items of the branch that is taken. May raise Skip."""
    test = ev.constant(item.test, "the test of an `if`", (ScalarKind.BOOL,), structural=True)
    ev.ctx.reached.add((item.span.file, item.span.start, bool(test)))
    return item.then if test else item.otherwise or ()


def branches(ev: Evaluator, item: ast.If) -> tuple[tuple[tuple[ast.Item, ...], Sym | None], ...]:
    """The items of the branch that is taken; if the condition depends on the rank, both branches with their conditions.
    May raise Skip."""
    test = ev.settled(item.test, (ScalarKind.BOOL,), structural=True)
    held = (bool(test.value),) if isinstance(test, Const) else (True, False)
    ev.ctx.reached.update((item.span.file, item.span.start, each) for each in held)
    if isinstance(test, Const):
        return ((item.then if test.value else item.otherwise or (), None),)
    machine = sorted(name for name in free(test) if name.startswith("hw."))
    if machine:
        message = f"an `if` cannot depend on `{machine[0]}`, which is known only on the machine"
        ev.ctx.report.fail("not-compile-time", message, item.test.span, "use a scalar of the set-up")
    return (item.then, test), (item.otherwise or (), apply(Fn.NOT, test))


# ---- how many ops a dag expands to ----


def refuse_too_many(ev: Evaluator, dags: dict[str, ast.SubDag], main: ast.MainDag) -> None:
    """Report `too-many-ops` at the loop or call that expands to more than OPS_LIMIT ops, and stop lowering.

    The count is a lower bound: a loop whose range is not known here, because it depends on an outer loop or on a
    formal, counts as no ops. Counting has no side effects.
    """
    context = ev.ctx
    aside = replace(
        context,
        report=Report(),
        choices={name: replace(choice) for name, choice in context.choices.items()},
        used=set(context.used),
        noted=set(context.noted),
    )
    counter = _Counter(Evaluator(aside, ev.scope), dags)
    if counter.items(main.items) > OPS_LIMIT:
        count, what, span = counter.largest or (counter.items(main.items), "the dag", main.span)
        _refuse(context, what, count, span)


def _refuse(context: Context, what: str, count: int, span: Span) -> None:
    message = f"{what} expands to {count} ops, more than {OPS_LIMIT}"
    context.report.error("too-many-ops", message, span, "shorten the loop, or move it into a kernel")
    raise Aborted


@dataclass(slots=True)
class _Counter:
    """`largest`: the innermost item, first in the text, that alone exceeds the limit."""

    ev: Evaluator
    dags: dict[str, ast.SubDag]
    known: dict[str, int] = field(default_factory=dict)  # ops of a named dag
    largest: tuple[int, str, Span] | None = None

    def items(self, items: tuple[ast.Item, ...]) -> int:
        return sum(self._item(item) for item in items)

    def _item(self, item: ast.Item) -> int:
        if isinstance(item, ast.For):
            return self._note(self._turns(item) * self.items(item.items), "this loop", item.bindings[0].span)
        if isinstance(item, ast.If):
            return self._branch(item)
        if isinstance(item, ast.Exchange):
            return 1 + self.items(item.items)
        if isinstance(item, ast.Op) and item.kind is OpKind.DAG:
            name = item.call.callee.name
            return self._note(self._dag(name), f"this call of `{name}`", item.name.span)
        return int(isinstance(item, (ast.Op, ast.Collective, ast.Message)))

    def _note(self, count: int, what: str, span: Span) -> int:
        if count > OPS_LIMIT and self.largest is None:
            self.largest = count, what, span
        return count

    def _dag(self, name: str) -> int:
        if name not in self.known:
            self.known[name] = 0  # if it calls itself
            self.known[name] = self.items(self.dags[name].items) if name in self.dags else 0
        return self.known[name]

    def _branch(self, item: ast.If) -> int:
        try:
            taken = self.ev.constant(item.test, "", (ScalarKind.BOOL,))
        except Skip:
            return min(self.items(item.then), self.items(item.otherwise or ()))
        return self.items(item.then if taken else item.otherwise or ())

    def _turns(self, item: ast.For) -> int:
        turns = 1
        for binding in item.bindings:
            try:
                if isinstance(binding.range, ast.Range):
                    start, stop = (self.ev.integer(e, "") for e in (binding.range.start, binding.range.stop))
                    turns *= max(0, stop - start)
                else:
                    turns *= len(self.ev.items(binding.range, "", structural=False))
            except Skip:
                return 0
        return turns

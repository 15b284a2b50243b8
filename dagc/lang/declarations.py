"""Declarations (values, arrays, parts, tunables, requirements, features, selectors) and references to storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dagc.base.errors import counted
from dagc.base.resources import names_in
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.enums import CodeLang, ElementType
from dagc.ir.linear import most_terms
from dagc.ir.program import DEVICE, DP
from dagc.ir.sym import Const, Fn, Sym, Var, show
from dagc.lang import ast
from dagc.lang.evaluate import Evaluator
from dagc.lang.scope import (
    MAX_STREAMS,
    PREDEFINED,
    TYPES,
    WORDS,
    Bound,
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
    element_type,
    kind_of_constant,
    kind_of_type,
    listing,
    parse_param,
    place_of,
    spelled,
    too_large,
    type_help,
)

# ---- references to storage ----

COST_LIMIT = 3000


_SLICED = "only messages and `gpu copy` take such a slice; pass the array and the bounds"


def storage(ev: Evaluator, ref: ast.Ref, strided: bool = False, sliced: str = _SLICED) -> Storage:
    """The region that an array reference names. Reports and raises Skip if it is not an array, or a slice that is not
    contiguous where `strided` is not allowed, with the help `sliced`."""
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
        help = "name an array or a part"
        report.fail("type-mismatch", f"`{ref.name}` is {family.what.value}, not an array", ref.span, help, related)
    if family.what is not What.FORMAL:
        ev.ctx.used.add(bound.display)
    ev.ctx.used.add(value.array.name)
    for trailer in trailers:
        value = _sliced(ev, value, trailer, family.what)
    if value.region.columns is not None and not strided:
        message = f"`{value.label}` is not contiguous"
        report.fail("bad-index", message, ref.span, sliced)
    return value


def touched(ev: Evaluator, passed: Storage, rows: ast.Index) -> Storage:
    """The rows of an array, counted from its beginning, that a kernel uses. May raise Skip."""
    array = passed.array
    whole = Storage(array, ir.Region(array.name), array.dims, passed.label, passed.mode)
    found = _sliced(ev, whole, rows, What.ARRAY)
    if found.region.columns is not None:
        ev.ctx.report.fail("bad-index", f"`{found.label}` is not contiguous", rows.span, "write the rows alone")
    return found


def _sliced(ev: Evaluator, base: Storage, trailer: ast.Member | ast.Index, what: What) -> Storage:
    """`base[a .. b]`, and `base[a .. b, c .. d]`: the first dimension and one further one are sliced."""
    report = ev.ctx.report
    if isinstance(trailer, ast.Member):
        report.fail("unknown-name", f"`{base.label}` has no member `{trailer.name}`", trailer.span, "drop it")
    if base.dims is None:
        help = "slice the array itself, or give the part bounds"
        report.fail("bad-index", f"part `{base.label}` has no bounds, so it cannot be sliced", trailer.span, help)
    first, *others = trailer.items
    ranges = [(k, o) for k, o in enumerate(others, 1) if not isinstance(o, ast.Every)]
    if len(trailer.items) > len(base.dims) or len(ranges) > 1 or base.region.columns is not None:
        message = f"`{base.label}` has {_dimensions(len(base.dims))}; the first and one other may be sliced"
        report.fail("bad-index", message, trailer.span, "write `name[a .. b]` or `name[a .. b, c .. d]`")
    if ranges:
        return _strided(ev, base, first, *ranges[0], trailer.span, what)
    if isinstance(first, ast.Every):
        return base
    if not isinstance(first, ast.Range):
        message = f"`{base.label}` takes no index: the elements of an array are not values"
        if what is What.ARRAY:
            message = f"`{base.label}` is an array; an element of it is not a value"
        help = "write a slice `a .. b`, or declare indexed arrays `array name[i] : ...`"
        if base.dims == (Const(1),):  # as of an array of one element that `until` names
            help = f"write `{base.label}` without an index: it has one element"
        report.fail("bad-index", message, first.span, help)
    start, stop = _bounds(ev, first)
    _check_bounds(ev, base, start, stop, first.span)
    length = sym.apply(Fn.SUB, stop, start)
    offset = base.region.start
    if offset is not None:
        start, stop = sym.apply(Fn.ADD, offset, start), sym.apply(Fn.ADD, offset, stop)
    label = f"{base.label}[{show(start)} .. {show(stop)}]"
    region = ir.Region(base.region.array, start, stop)
    return Storage(base.array, region, (length, *base.dims[1:]), label, base.mode)


def _strided(
    ev: Evaluator,
    base: Storage,
    first: ast.Expr | ast.Range | ast.Every,
    dimension: int,
    inner: ast.Expr | ast.Range,
    span: Span,
    what: What,
) -> Storage:
    """`base[a .. b, c .. d]`: rows, and of them a slice of a further dimension."""
    report = ev.ctx.report
    if base.dims is None or None in base.dims:
        report.fail("bad-index", f"the sizes of `{base.label}` are not known", span, "declare them instead of `*`")
    rows = base if isinstance(first, ast.Every) else _sliced(ev, base, ast.Index((first,), span=span), what)
    if not isinstance(inner, ast.Range):
        help = "write `c .. c + 1` for one column"
        report.fail("bad-index", "a slice is expected here", inner.span, help)
    start, stop = _bounds(ev, inner)
    size = base.dims[dimension]
    _check_bounds(ev, Storage(base.array, base.region, (size,), base.label), start, stop, inner.span, "column")
    assert rows.dims is not None
    whole = (Const(0), base.array.dims[0])
    bounds = (rows.region.start, rows.region.stop) if rows.region.start is not None else whole
    assert bounds[0] is not None
    assert bounds[1] is not None
    lengths = {0: sym.difference(bounds[1], bounds[0]), dimension: sym.difference(stop, start)}
    dims = tuple(lengths.get(k, d) for k, d in enumerate(rows.dims))
    region = ir.Region(base.array.name, *bounds, columns=(dimension, start, stop))
    return Storage(base.array, region, dims, region.text, base.mode)


def _bounds(ev: Evaluator, slice_: ast.Range) -> tuple[Sym, Sym]:
    """Start and stop of a slice. Decisions in them may give other edges, which depend on which slices overlap."""
    start, stop = (ev.sym(e, (ScalarKind.INT,)) for e in (slice_.start, slice_.stop))
    for name in (sym.free(start) | sym.free(stop)) & ev.ctx.choices.keys():
        ev.ctx.choices[name].slices = True
    return ev.settle(start, slice_.start.span), ev.settle(stop, slice_.stop.span)


def _check_bounds(ev: Evaluator, base: Storage, start: Sym, stop: Sym, span: Span, noun: str = "row") -> None:
    assert base.dims is not None
    size = base.dims[0]
    if _at_least(start, Const(0)) is False or _at_least(stop, start) is False:
        ev.ctx.report.fail("bad-index", "this slice ends before it starts", span, "write `a .. b` with 0 <= a <= b")
    if size is not None and _at_least(size, stop) is False:
        message = f"this slice ends beyond `{base.label}`, which has {counted(show(size), noun)}"
        ev.ctx.report.fail("bad-index", message, span, "end it earlier")


def _at_least(a: Sym, b: Sym) -> bool | None:
    """Whether a >= b, if the difference is a constant."""
    difference = sym.apply(Fn.SUB, a, b)
    if isinstance(difference, Const):
        return bool(difference.value >= 0)  # type: ignore[operator]
    return True if same(a, b) else None


def same(a: Sym, b: Sym) -> bool | None:
    """`sym.equal`, but undecided if expanding would cost too much."""
    return sym.equal(a, b) if most_terms(a) + most_terms(b) <= COST_LIMIT else None


def check_sizes(
    ev: Evaluator,
    actual: Storage,
    wanted: tuple[Sym | None, ...],
    what: str,
    span: Span,
    related: tuple[tuple[Span, str], ...],
) -> None:
    """Report size-mismatch if the actual shape provably differs from the wanted one."""
    if wanted == (None,):
        return
    report = ev.ctx.report
    if actual.dims is None:
        message = f"part `{actual.label}` has no bounds, so its size cannot be that of {what}"
        report.error("size-mismatch", message, span, "declare the formal `[*]`, or give the part bounds", related)
        return
    if len(actual.dims) != len(wanted):
        message = f"`{actual.label}` has {_dimensions(len(actual.dims))}, {what} has {_dimensions(len(wanted))}"
        help = "give both the same number of dimensions, or declare the formal `[*]`"
        report.error("size-mismatch", message, span, help, related)
        return
    for i, (have, want) in enumerate(zip(actual.dims, wanted, strict=True)):
        if have is None or want is None or same(have, want) is not False:
            continue
        which = f" in dimension {i + 1}" if len(wanted) > 1 else ""
        message = f"`{actual.label}` has size {show(have)}{which}, but {what} has size {show(want)}"
        report.error("size-mismatch", message, span, "pass an array of that size", related)
        return


def _dimensions(count: int) -> str:
    return "one dimension" if count == 1 else f"{count} dimensions"


# ---- values: param, let, enum, scalar, array, part, tune, require ----


class Drawn:
    """The params with values after `over` as variables, and what the program requires of them: of other values than
    those that it is lowered with.

    `let`s and `require`s are evaluated a second time, in a scope where these params have no value. What cannot be
    evaluated without their values is left to the lowering with each.
    """

    def __init__(self) -> None:
        self.conditions: tuple[Sym, ...] = ()
        self._scope = Scope()

    def add(self, name: str, type_: str, span: Span) -> None:
        """A param whose values are drawn."""
        self._scope.families[name] = Family(name, What.PARAM, span, 0, {(): Bound(name, Var(name), span)})
        others = {"str": ScalarKind.STR, "bool": ScalarKind.BOOL}
        self._scope.kinds[name] = others[type_] if type_ in others else kind_of_type(TYPES[type_])

    def let(self, ev: Evaluator, name: ast.DeclName, expr: ast.Expr) -> None:
        """A `let`, or the value of another param, that depends on such params."""
        if not self._scope.families or ev.scope.parent is not None:
            return
        value = None
        with suppress(Skip):
            value = self._evaluator(ev).value(expr)
            if not any(self._depends(v) for v in (value.items if isinstance(value, ListValue) else (value,))):
                return
        family = self._scope.families.setdefault(name.name, Family(name.name, What.LET, name.span, len(name.indices)))
        if value is None or name.indices:
            family.broken = True
        else:
            family.instances[()] = Bound(name.name, value, name.span)

    def require(self, ev: Evaluator, item: ast.Require) -> None:
        """Keep a condition if it names no other params."""
        if not self._scope.families or ev.scope.parent is not None:
            return
        with suppress(Skip):
            condition = self._evaluator(ev).settled(item.condition, (ScalarKind.BOOL,))
            if self._depends(condition) and sym.free(condition) <= self._scope.families.keys():
                self.conditions = (*self.conditions, condition)

    def _depends(self, value: Value) -> bool:
        scalar = as_sym(value)
        return scalar is not None and not sym.free(scalar).isdisjoint(self._scope.families)

    def _evaluator(self, ev: Evaluator) -> Evaluator:
        """An evaluator of this scope with a separate report, since its errors were reported already."""
        self._scope.parent = ev.scope
        return Evaluator(replace(ev.ctx, report=Report()), self._scope, ev.loops)


@dataclass(slots=True)
class Declared:
    """The declarations of a program (and of its dags), in text order."""

    params: list[ir.Param] = field(default_factory=list)
    lets: list[tuple[str, Sym]] = field(default_factory=list)
    enums: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    scalars: list[ir.Scalar] = field(default_factory=list)
    comms: list[ir.Communicator] = field(default_factory=list)
    arrays: list[ir.Array] = field(default_factory=list)
    parts: list[ir.Part] = field(default_factory=list)
    requires: list[tuple[Sym, Span]] = field(default_factory=list)
    drawn: Drawn = field(default_factory=Drawn)


@dataclass(frozen=True, slots=True)
class Declarer:
    """Declares in the scope of its evaluator. `prefix` is that of display names (`mv[0].` in a compound)."""

    ev: Evaluator
    out: Declared
    prefix: str = ""

    def declare(self, item: ast.Item) -> bool:
        """Declare a name with a value; False if the item is not such a declaration. Continues after errors."""
        match item:
            case ast.Param():
                self._each(What.PARAM, item.names, lambda name: self._param(name, item))
            case ast.Let():
                self._each(What.LET, (item.name,), lambda _: self._let(item))
            case ast.Scalar():
                self._each(What.SCALAR, item.names, lambda name: self._scalar(name, item))
            case ast.Array():
                self._each(What.ARRAY, item.names, lambda name: self._array(name, item))
            case ast.Part():
                self._each(What.PART, (item.name,), lambda _: self._part(item))
            case ast.Tune():
                self._each(What.TUNE, (item.name,), lambda _: self._tune(item))
            case ast.EnumDecl():
                with self.ev.ctx.report.guard():
                    self._enum(item)
            case ast.Require():
                with self.ev.ctx.report.guard():
                    self._require(item)
            case _:
                return False
        return True

    def _each(self, what: What, names: Iterable[ast.DeclName], declare: Callable[[ast.DeclName], None]) -> None:
        for name in names:
            with self.breaking(name, what):
                declare(name)

    @contextmanager
    def breaking(self, name: ast.DeclName, what: What) -> Iterator[None]:
        """Mark a name with a wrong declaration as broken, so that its uses are not reported."""
        try:
            yield
        except Skip:
            if name.name not in self.ev.scope.families:
                self.ev.scope.break_name(name.name, what, name.span, len(name.indices))

    def enter(self, what: What, name: ast.DeclName, make: Value | Storage | ir.Communicator | None) -> Bound:
        """Declare one instance with the value of `make`; None: the variable of its display name."""
        key, display = self.display(name)
        if name.name in PREDEFINED and what is not What.TUNE:
            help = f"choose another name, or write `let {name.name} = ...` at program level"
            self.ev.ctx.report.fail("reserved-name", f"`{name.name}` is a predefined decision", name.span, help)
        bound = Bound(display, Var(display) if make is None else make, name.span)
        self.ev.scope.declare(self.ev.ctx.report, what, name.name, key, bound)
        return bound

    def display(self, name: ast.DeclName) -> tuple[tuple[int, ...], str]:
        """Indices and display name of a declared name. Refuses names of loop variables and predefined names."""
        report = self.ev.ctx.report
        if name.name in self.ev.loops:
            message = f"`{name.name}` would hide the loop variable of the same name"
            help = "choose another name"
            report.fail("shadowed-name", message, name.span, help, ((self.ev.loops[name.name][1], "bound here"),))
        if name.name in ("rank", "ranks", "hw") or name.name in TYPES:
            report.fail("reserved-name", f"`{name.name}` is a predefined name", name.span, "choose another name")
        key, text = self.ev.key(name.indices, name.span)
        return key, f"{self.prefix}{name.name}[{text}]" if key else self.prefix + name.name

    # ---- param, let, enum, scalar -------------------------------------------------------------

    def _param(self, name: ast.DeclName, item: ast.Param) -> None:
        ctx = self.ev.ctx
        if name.indices:
            ctx.report.fail("bad-index", f"`{name.name}` takes no index", name.span, f"write `param {name.name}`")
        if item.type not in TYPES and item.type not in ("type", "str", "bool"):
            help = type_help(ctx.report, item.type, ", str, type")
            ctx.report.fail("unknown-type", f"`{item.type}` is not a type", item.span, help)
        if name.name in ctx.defines:
            ctx.defined.add(name.name)
            parsed = parse_param(name.name, ctx.defines[name.name], item.type)
        else:
            parsed = self._param_value(item)
        value: Value = TypeValue(parsed) if isinstance(parsed, ElementType) else Const(parsed)
        self.enter(What.PARAM, name, value)
        param = ir.Param(name.name, parsed, item.type, span=item.span)
        if item.over is not None:
            files, spread = self._files(item, item.over), self._spread(item, item.over)
            over = () if files or spread is not None else self._over(item, item.over)
            param = replace(param, over=over, files=files, spread=spread)
        self.out.params.append(param)
        if name.name in ctx.defines:
            return
        if param.generated:
            self.out.drawn.add(name.name, item.type, item.span)
        else:
            self.out.drawn.let(self.ev, name, item.value)

    def _param_value(self, item: ast.Param) -> ir.Value | ElementType:
        if item.type == "type":
            value = self.ev.value(item.value)
            if not isinstance(value, TypeValue):
                self.ev.ctx.report.fail(
                    "type-mismatch", "a type is expected", item.value.span, f"choose from {', '.join(TYPES)}"
                )
            return value.type
        number = self.ev.constant(item.value, "the value of a param", _KINDS.get(item.type, (ScalarKind.INT,)))
        return self._fitting(number, item.type, item.value.span)

    def _fitting(self, number: sym.Number, type_: str, span: Span) -> ir.Value:
        """The number as a value of the type. Reports `overflow`."""
        if type_ in ("f32", "f64"):
            return float(number)
        if isinstance(number, int) and type_ in TYPES and TYPES[type_].is_integer:
            low, high = TYPES[type_].range
            if not low <= number <= high:
                help = f"choose from {low} to {high}, or another type"
                self.ev.ctx.report.fail("overflow", f"{number} does not fit {type_}", span, help)
        assert not isinstance(number, Fraction)
        return number

    def _files(self, item: ast.Param, over: ast.Expr | ast.Range) -> str:
        """The pattern of `over files(PATTERN)`; "" for other values. No file is looked for here."""
        if not isinstance(over, ast.Call) or over.callee.name != "files" or over.callee.trailers:
            return ""
        pattern = over.args[0].value if len(over.args) == 1 and isinstance(over.args[0], ast.Literal) else None
        if not isinstance(pattern, str) or not pattern or not pattern.isprintable() or item.type != "str":
            help = 'write `over files("matrices/*.mtx")` on a param of type str'
            self.ev.ctx.report.fail("type-mismatch", "`files` takes one pattern, and gives strings", over.span, help)
        return str(pattern)

    def _spread(self, item: ast.Param, over: ast.Expr | ast.Range) -> ir.Spread | None:
        """`over log(LOW, HIGH)` and `over uniform(LOW, HIGH)`; None for other values."""
        if not isinstance(over, ast.Call) or over.callee.name not in ("log", "uniform") or over.callee.trailers:
            return None
        name, fail = over.callee.name, self.ev.ctx.report.fail
        if item.type in ("type", "str", "bool"):
            help = "write `over {VALUE, ...}`" if item.type != "type" else "declare it with a type of numbers"
            fail("type-mismatch", f"`{name}` gives numbers, not values of type {item.type}", over.span, help)
        ends = [arg for arg in over.args if not isinstance(arg, ast.Named)]
        if len(ends) != 2 or len(over.args) != 2:
            fail(
                "wrong-arity", f"`{name}` takes a lower and an upper bound", over.span, f"write `over {name}(2, 1024)`"
            )
        kinds = _NUMBERS if item.type in ("f32", "f64") else (ScalarKind.INT,)
        numbers = (self.ev.constant(end, f"a bound of `{name}`", kinds) for end in ends)
        low, high = (self._fitting(n, item.type, e.span) for n, e in zip(numbers, ends, strict=True))
        assert isinstance(low, int | float)
        assert isinstance(high, int | float)
        if name == "log" and low <= 0:
            help = "use a lower bound above 0, or write `uniform`"
            fail("bad-range", f"`log` needs a lower bound above 0, not {low}", over.span, help)
        if low > high:
            help = f"write `over {name}({high}, {low})`"
            fail("bad-range", f"the range from {low} to {high} is empty", over.span, help)
        return ir.Spread(name == "log", low, high)

    def _over(self, item: ast.Param, over: ast.Expr | ast.Range) -> tuple[ir.Value, ...]:
        """The values to tune for."""
        values: list[ir.Value] = []
        if item.type != "type":
            for value in self.ev.items(over, "the values after `over`", structural=False):
                scalar = self.ev.scalar(value, over.span, _KINDS.get(item.type, (ScalarKind.INT,)))
                if isinstance(scalar, Const) and not isinstance(scalar.value, Fraction):
                    values.append(scalar.value)
        return tuple(values)

    def _let(self, item: ast.Let) -> None:
        name = item.name.name
        if not self.prefix and self.ev.scope.parent is None and name in PREDEFINED and not item.name.indices:
            self._fixed(item)
            return
        value = self.ev.value(item.value)
        scalar = as_sym(value)
        if scalar is not None and too_large(scalar):
            self.ev.ctx.report.fail(
                "too-large", "this expression is too large", item.value.span, "assign parts of it to a scalar"
            )
        bound = self.enter(What.LET, item.name, value)
        self.out.drawn.let(self.ev, item.name, item.value)
        if scalar is not None:
            self.out.lets.append((bound.display, self.ev.settle(scalar, item.value.span)))

    def _fixed(self, item: ast.Let) -> None:
        """`let streams = 2` fixes a predefined decision."""
        name = item.name.name
        number = self.ev.constant(item.value, f"`{name}`")
        assert not isinstance(number, Fraction)
        self._check_predefined(name, (number,), item.value.span)
        self._refuse_second(item.name)
        self.ev.ctx.choose(name, (number,), item.span, fixed=True)
        self.enter(What.TUNE, item.name, None)
        self.ev.scope.kinds[name] = kind_of_constant(number)

    def _refuse_second(self, name: ast.DeclName) -> None:
        """A predefined decision that is used before its declaration is already decided."""
        if name.name in self.ev.ctx.choices and name.name not in self.ev.scope.families:
            message = f"`{name.name}` is used before it is declared"
            related = ((self.ev.ctx.choices[name.name].span, "used here"),)
            self.ev.ctx.report.fail("used-before-declaration", message, name.span, "move the declaration up", related)

    def _enum(self, item: ast.EnumDecl) -> None:
        report = self.ev.ctx.report
        labels = tuple(Label(item.labels, i) for i in range(len(item.labels)))
        self.enter(What.ENUM, ast.DeclName(item.name, span=item.span), ListValue(labels))
        self.out.enums.append((item.name, item.labels))
        for label in labels:
            with report.guard():
                self.enter(What.LABEL, ast.DeclName(label.text, span=item.span), label)

    def _scalar(self, name: ast.DeclName, item: ast.Scalar) -> None:
        type_ = element_type(self.ev.ctx, self.ev.scope, item.type, item.span)
        bound = self.enter(What.SCALAR, name, None)
        self.ev.scope.kinds[bound.display] = kind_of_type(type_)
        self.out.scalars.append(ir.Scalar(bound.display, type_, span=name.span))

    # ---- array, part ----------------------------------------------------------------------------

    def _array(self, name: ast.DeclName, item: ast.Array) -> None:
        type_ = element_type(self.ev.ctx, self.ev.scope, item.type, item.span)
        dims = tuple(dimension(self.ev, d) for d in item.dims)
        _, display = self.display(name)
        array = ir.Array(display, type_, dims, place_of(item.place), item.role, span=name.span)
        self.enter(What.ARRAY, name, Storage(array, ir.Region(display), dims, display))
        self.out.arrays.append(array)

    def _part(self, item: ast.Part) -> None:
        whole = storage(self.ev, item.of)
        _, display = self.display(item.name)
        bounded = whole.region.start is not None
        if whole.region.part is not None:
            self.ev.ctx.report.fail(
                "bad-part", "a part of a part without bounds", item.of.span, "declare it a part of the array"
            )
        region = whole.region if bounded else ir.Region(whole.region.array, part=display)
        value = Storage(whole.array, region, whole.dims if bounded else None, display)
        self.enter(What.PART, item.name, value)
        self.out.parts.append(ir.Part(display, region, bounded, span=item.name.span))

    # ---- decisions ------------------------------------------------------------------------------

    def _tune(self, item: ast.Tune) -> None:
        ctx = self.ev.ctx
        self._check_words(item)
        values = tunable_values(self.ev, item)
        _, display = self.display(item.name)
        if item.name.name in PREDEFINED:
            if item.name.indices:
                help = f"write `tune {item.name.name} in ...`"
                ctx.report.fail("bad-index", f"`{item.name.name}` takes no index", item.name.span, help)
            self._check_predefined(display, values, item.range.span)
            self._refuse_second(item.name)
        self.enter(What.TUNE, item.name, None)
        ctx.choose(display, values, item.span)
        self.ev.scope.kinds[display] = kind_of_constant(values[0])

    def _check_words(self, item: ast.Tune) -> None:
        """Report bare words among the choices of a predefined decision that are unknown."""
        known = WORDS.get(item.name.name)
        if known is None or not isinstance(item.range, ast.ListExpr):
            return
        for word in item.range.items:
            if isinstance(word, ast.Ref) and word.name not in known and self.ev.scope.find(word.name) is None:
                message = f"`{item.name.name}` cannot be {word.name}"
                self.ev.ctx.report.fail(
                    "bad-choice", message, word.span, f"choose from {listing([spelled(k) for k in known])}"
                )

    def _check_predefined(self, name: str, values: tuple[ir.Value, ...], span: Span) -> None:
        known: tuple[ir.Value, ...] = WORDS.get(name, (False, True))
        for value in values:
            if name == "streams":
                if type(value) is not int or not 1 <= value <= MAX_STREAMS:
                    help = f"choose from 1 to {MAX_STREAMS}"
                    self.ev.ctx.report.fail("bad-choice", f"`streams` cannot be {spelled(value)}", span, help)
            elif value not in known or isinstance(value, bool) is not (name == "capture"):
                help = f"choose from {listing([spelled(k) for k in known])}"
                self.ev.ctx.report.fail("bad-choice", f"`{name}` cannot be {spelled(value)}", span, help)

    def _require(self, item: ast.Require) -> None:
        condition = self.ev.sym(item.condition, (ScalarKind.BOOL,))
        self.ev.settle(condition, item.condition.span)
        self.out.requires.append((condition, item.condition.span))
        self.out.drawn.require(self.ev, item)


_NUMBERS = (ScalarKind.INT, ScalarKind.REAL)
_KINDS = {"str": (ScalarKind.STR,), "bool": (ScalarKind.BOOL,), "f32": _NUMBERS, "f64": _NUMBERS}  # of others integers
MAX_CHOICES = 1000


def dimension(ev: Evaluator, dim: ast.Expr | ast.Every) -> Sym | None:
    """One dimension of an array or a formal; None for `*`. Reports a size that is certainly negative."""
    if isinstance(dim, ast.Every):
        return None
    size = ev.settled(dim, (ScalarKind.INT,))
    if isinstance(size, Const) and isinstance(size.value, int) and size.value < 0:
        ev.ctx.report.fail("bad-size", f"a size of {size.value}", dim.span, "sizes are 0 or more")
    return size


def tunable_values(ev: Evaluator, item: ast.Tune) -> tuple[ir.Value, ...]:
    """The values of a `tune`: compile-time, of one kind, without duplicates."""
    report = ev.ctx.report
    items = ev.items(item.range, "the choices of a tune", structural=True)
    if len(items) > MAX_CHOICES:
        help = f"give at most {MAX_CHOICES}"
        report.fail("bad-choice", f"{len(items)} choices", item.range.span, help)
    values: list[ir.Value] = []
    for item_value in items:
        scalar = ev.scalar(item_value, item.range.span)
        assert isinstance(scalar, Const)
        value = scalar.value
        if isinstance(value, Fraction):
            report.fail("type-mismatch", "this choice is not an integer", item.range.span, "write `floor(...)`")
        values.append(value)
    if not values:
        report.fail("bad-choice", "nothing to choose from", item.range.span, "give at least one value")
    if len({kind_of_constant(v) for v in values}) > 1:
        report.fail("type-mismatch", "the choices are of several kinds", item.range.span, "give values of one kind")
    if len(set(values)) < len(values):
        twice = next(v for i, v in enumerate(values) if v in values[:i])
        report.fail("bad-choice", f"{spelled(twice)} is listed twice", item.range.span, "drop one")
    return tuple(values)


# ---- features and selectors ----

# Methods that `dagc tune` implements: those for the tunables of a kernel, and those at program level.
_LEARNED = names_in("choice/learners")
_IN_KERNEL = ("volume", "rational", *_LEARNED)
_IN_PROGRAM = (*_LEARNED, "exhaustive")
# All that a `select` may name. Some are of no use where it is.
_METHODS = frozenset((DP, *_IN_KERNEL, *_IN_PROGRAM, *names_in("lab/strategies")))


def feature(ev: Evaluator, item: ast.Feature) -> ir.Feature:
    """A feature; its name becomes a real number in the scope. May raise Skip."""
    try:
        return _feature(ev, item)
    except Skip:
        if item.name not in ev.scope.families:
            ev.scope.break_name(item.name, What.FEATURE, item.span, 0)
        raise


def _feature(ev: Evaluator, item: ast.Feature) -> ir.Feature:
    report = ev.ctx.report
    value: Sym | ir.CodeText
    if isinstance(item.value, ast.Code):
        if item.value.lang is not CodeLang.CPP:
            report.fail("wrong-code-language", "a feature is computed on the host", item.value.span, "write `cpp`")
        if item.cost is None:
            help = f"write `feature {item.name} cost n = ...`"
            report.error("missing-cost", "a feature in code must state its cost in elements", item.span, help)
        code = item.value
        if code.file is not None:
            ev.scope.break_name(item.name, What.FEATURE, item.span, 0)
            help = f'call it from a text that includes it: `cpp """return {code.function or "function"}(n);"""`'
            report.fail("wrong-place-of-item", "a feature is written in the program", code.span, help)
        value = ir.CodeText(code.lang, code.text, span=code.span)
    else:
        value = ev.settled(item.value, _NUMBERS)
    cost = ev.settled(item.cost, _NUMBERS) if item.cost is not None else None
    if item.cost is not None and isinstance(cost, Const) and not isinstance(cost.value, str) and cost.value < 0:
        help = "state how many elements its code reads"
        report.error("bad-size", f"the cost of a feature is negative: {cost.value}", item.cost.span, help)
    ev.scope.declare(report, What.FEATURE, item.name, (), Bound(item.name, Var(item.name), item.span))
    ev.scope.kinds[item.name] = ScalarKind.REAL
    if isinstance(value, ir.CodeText) and not ev.scope.kernel:
        ev.ctx.not_used_yet("`feature` in code", item.span, "write it in the kernel whose arrays it reads")
    return ir.Feature(item.name, value, cost, span=item.span)


def selects(items: Iterable[tuple[ast.Select, Evaluator]], owner: str, names: set[str]) -> tuple[ir.Select, ...]:
    """The selectors of a kernel or of the program. Reports a decision that several of them choose."""
    out: list[ir.Select] = []
    chosen: dict[str, Span] = {}
    for item, ev in items:
        for name in item.names:
            if name in chosen:
                at = ((chosen[name], "the first is here"),)
                help = "drop one; a `select` may name several decisions"
                ev.ctx.report.error("duplicate-item", f"a second `select` of `{name}`", item.span, help, at)
            chosen[name] = item.span
        selector = select(ev, item, owner, names)
        if selector is not None:
            out.append(selector)
    return tuple(out)


def select(ev: Evaluator, item: ast.Select, owner: str, names: set[str]) -> ir.Select | None:
    """A selector among decisions `names`; None if it is wrong (reported)."""
    report = ev.ctx.report
    try:
        for name in item.names:
            if name not in names:
                none = "nothing is open here: write `tune NAME in {...}`, or several variants of a kernel"
                help = report.did_you_mean(name, names, f"choose from {listing(sorted(names))}" if names else none)
                report.fail("unknown-name", f"`{name}` is not a decision here", item.span, help)
        args = tuple(ev.settled(a) for a in item.args)
        here = _IN_KERNEL if owner not in ("", "dag") else _IN_PROGRAM if owner == "" else (DP,)
        if item.method not in _METHODS:
            near = report.did_you_mean(item.method, here, "")
            help = f"{near} The methods here are {listing(here, 20)}" if near else f"choose from {listing(here, 20)}"
            report.fail("unknown-name", f"unknown method `{item.method}`", item.span, help)
        if not _used(item, owner):
            where = {"dag": "in the main dag", "": "at program level"}.get(owner, "in a kernel")
            methods = f"the methods here are {listing(here, 20)}"
            help = f"write `select device with {DP}()`" if owner == "dag" else methods
            ev.ctx.not_used_yet(f"`select` with `{item.method}` {where}", item.span, help)
        return ir.Select(owner, item.names, item.method, args, span=item.span)
    except Skip:
        return None


def _used(item: ast.Select, owner: str) -> bool:
    if owner == "":
        return item.method in _IN_PROGRAM
    if owner == "dag":
        return item.method == DP and item.names == (DEVICE,) and not item.args
    return item.method in _IN_KERNEL

"""Features: the inputs of selectors. Each is an expression over values that a rank has before its dag runs.

A kind of feature is one file in `dagc/choice/features` with a function `offer(context)`, which yields the features of
this kind in a program. Nothing else depends on the kinds.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dagc.base.errors import UsageError
from dagc.base.resources import names_in
from dagc.choice.selector import MOST_FEATURES
from dagc.ir.plan import MEASURED, CodeFeature
from dagc.ir.program import Feature as Declared
from dagc.ir.program import Kernel, KernelOp, Program, Region
from dagc.ir.sym import Apply, Const, Number, Sym, Var, at_run_time, free, show, substitute


@dataclass(frozen=True, slots=True)
class SelectorFeature:
    """`expression` uses per-rank scalars, `rank`, `ranks`, and `feature.NAME` for results of `code`."""

    name: str
    expression: Sym
    code: tuple[CodeFeature, ...] = ()

    def value(self, values: Mapping[str, Number]) -> float:
        """The value in double precision, as computed in C; NaN if undefined (a division by zero). Raises KeyError for a
        missing value."""
        try:
            result = at_run_time(self.expression, values)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            return math.nan
        return float(result)


@dataclass(frozen=True)
class FeatureContext:
    """The owner of features: an op of a program, or the program itself (`op` None)."""

    program: Program
    op: KernelOp | None = None

    @property
    def kernel(self) -> Kernel | None:
        return next((k for k in self.program.kernels if self.op is not None and k.name == self.op.kernel), None)

    @property
    def declared(self) -> tuple[Declared, ...]:
        """Declared features: the kernel's, or the program's."""
        return self.kernel.features if self.kernel is not None else self.program.features

    @property
    def asked(self) -> tuple[Sym, ...]:
        """Arguments of the `select`s here."""
        selects = self.kernel.selects if self.kernel is not None else self.program.selects
        return tuple(argument for item in selects if item.owner != "dag" for argument in item.args)

    @cached_property
    def known(self) -> frozenset[str]:
        """Names whose values a rank knows once its arrays have been read."""
        of_comms = (v.name for c in self.program.comms for v in (c.rank, c.ranks))
        return frozenset((*(s.name for s in self.program.scalars), "rank", "ranks", *of_comms))

    @cached_property
    def names(self) -> Mapping[str, Sym]:
        """Values of the kernel's formals and lets. Tunables are not included, since they are to be chosen."""
        env: dict[str, Sym] = {d.name: Const(d.chosen) for d in self.program.decisions}
        kernel, op = self.kernel, self.op
        if kernel is None or op is None:
            return env
        for formal, argument in zip(kernel.formals, op.args, strict=True):
            if not isinstance(argument, Region):
                env[formal.name] = argument
        for name, expr in kernel.lets:
            env[name] = substitute(expr, env)
        return env

    def resolve(self, expr: Sym) -> Sym | None:
        """The expression in terms of known names and code features; None if it depends on anything else (a tunable)."""
        declared = {f.name: f for f in self.declared}
        env = dict(self.names)
        for feature in self.declared:  # in text order: each may use the earlier ones
            value = feature.value
            env[feature.name] = Var(self.measured(feature)) if not isinstance(value, _SYMS) else substitute(value, env)
        resolved = substitute(expr, env)
        code = {self.measured(f) for f in declared.values()}
        return resolved if free(resolved) <= self.known | code else None

    @cached_property
    def asked_values(self) -> tuple[Sym, ...] | None:
        """Arguments of these `select`s in terms of known names; None if one depends on anything else."""
        resolved = tuple(map(self.resolve, self.asked))
        return None if None in resolved else resolved  # type: ignore[return-value]

    @cached_property
    def asked_formals(self) -> frozenset[str]:
        """The kernel's formals on which the arguments of its `select`s depend."""
        assert self.kernel is not None
        inner = {f.name: f.value for f in self.declared if isinstance(f.value, _SYMS)} | dict(self.kernel.lets)
        seen: set[str] = set()
        todo = {name for argument in self.asked for name in free(argument)}
        while todo:
            seen |= todo
            todo = {n for name in todo & inner.keys() for n in free(inner[name])} - seen
        return frozenset(seen & {f.name for f in self.kernel.formals})

    def measured(self, feature: Declared) -> str:
        """The name of a code feature's value: `feature.spmv.longest`."""
        return f"{MEASURED}{self.op.base + '.' if self.op is not None else ''}{feature.name}"


_SYMS = (Const, Var, Apply)


def offered(program: Program, op: KernelOp | None = None) -> dict[str, SelectorFeature]:
    """All features that a selector of an op, or of the program, may use, by name. If two kinds offer the same name, the
    first file has precedence."""
    context = FeatureContext(program, op)
    out: dict[str, SelectorFeature] = {}
    for kind in names_in("choice/features"):
        module = importlib.import_module(f"dagc.choice.features.{kind.replace('-', '_')}")
        for feature in module.offer(context):
            out.setdefault(feature.name, feature)
    return out


def values_of(
    features: Mapping[str, SelectorFeature], values: Mapping[str, Number], constants: Mapping[str, int] | None = None
) -> dict[str, float]:
    """The features that can be computed from `values`, by name. `constants`: values of parameters that are compiled
    into the program and differ between the measured sizes; other parameters are omitted."""
    out = {}
    for name, feature in features.items():
        if constants and name in constants:
            out[name] = float(constants[name])
        elif free(feature.expression) and free(feature.expression) <= values.keys():
            out[name] = feature.value(values)
    return out


def asked_features(program: Program, op: KernelOp | None, arguments: tuple[Sym, ...]) -> tuple[SelectorFeature, ...]:
    """The features that the arguments of a `select` name, each once. Raises UsageError for anything else."""
    context, features = FeatureContext(program, op), offered(program, op)
    out: dict[str, SelectorFeature] = {}
    for argument in arguments:
        resolved = context.resolve(argument)
        if isinstance(resolved, Const):
            continue  # the same at every size
        names = [f.name for f in features.values() if f.expression == resolved] if resolved is not None else []
        if not names:
            raise UsageError(
                f"`select` asks for `{show(argument)}`, which is not known before the dag runs",
                "use scalars, features, and expressions of them",
            )
        out[names[0]] = features[names[0]]
    if len(out) > MOST_FEATURES:
        raise UsageError(f"`select` asks for {len(out)} features", f"choose by {MOST_FEATURES} at most")
    return tuple(out.values())

"""Compile-time names of a program as C++ constants, only those that its code uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dagc.emit.cxx import cxx_type, cxx_value, expression, value_type
from dagc.ir import ElementType, Param, Program, Value
from dagc.sym import Const, Sym, Var, free, substitute

_PARAM_TYPES = {"i64": "std::int64_t", "f64": "double", "bool": "bool", "str": "const char*"}


@dataclass(frozen=True, slots=True)
class ConstantView:
    """One line of C++ that declares a compile-time name."""

    name: str
    declaration: str
    labels: tuple[str, ...] = ()  # of an enum


def constant(name: str, value: Value) -> ConstantView:
    return ConstantView(name, f"constexpr {value_type(value)} {name} = {cxx_value(value)};")


def _param(param: Param) -> ConstantView:
    if isinstance(param.value, ElementType):
        return ConstantView(param.name, f"using {param.name} = {cxx_type(param.value)};")
    # A string may hold nothing that is known here; its type is a pointer, so it is const itself too.
    type_ = _PARAM_TYPES.get(param.type, value_type(param.value))
    return ConstantView(param.name, f"constexpr {type_} {param.name} = {cxx_value(param.value)};")


def file_constants(program: Program, used: frozenset[str]) -> tuple[ConstantView, ...]:
    """Parameters, constant `let`s, program-level decisions and labels of enums that `used` holds, as declared."""
    out = [_param(p) for p in program.params if p.name in used]
    known = {p.name for p in program.params}
    for name, expr in program.lets:
        if name in used and name not in known and isinstance(expr, Const):
            out.append(constant(name, _value(expr)))
    for decision in program.decisions:
        if decision.name in used:
            out.append(constant(decision.name, decision.chosen))
    for enum, labels in program.enums:
        if used & set(labels):
            out.append(ConstantView(enum, f"enum {{ {', '.join(labels)} }};  // {enum}", labels))
    return tuple(out)


def _value(expr: Const) -> Value:
    """A fraction becomes a float: code has no exact numbers."""
    return expr.value if isinstance(expr.value, (bool, int, float, str)) else float(expr.value)


def local_constants(
    tunables: Iterable[tuple[str, Value]],
    lets: Iterable[tuple[str, Sym]],
    used: frozenset[str],
    name: Callable[[str], str] = str,
    axes: Mapping[str, str] | None = None,
) -> tuple[ConstantView, ...]:
    """Tunables and kernel `let`s at the top of a kernel's body. A `let` of by-value formals is a run-time constant, and
    so is a tunable that `axes` names: it is read from that dimension of the block."""
    tunables, lets, axes = tuple(tunables), tuple(lets), axes or {}
    env: dict[str, Sym] = {n: Var(n) if n in axes else Const(v) for n, v in tunables}
    needed = used | {n for let, e in lets if let in used for n in free(e)} if axes else used
    out = [
        ConstantView(n, f"const int {n} = static_cast<int>(blockDim.{axes[n]});") if n in axes else constant(n, v)
        for n, v in tunables
        if n in needed
    ]
    for let, expr in lets:
        value = env[let] = substitute(expr, env)
        if let not in used:
            continue
        if isinstance(value, Const):
            out.append(constant(let, _value(value)))
        else:
            out.append(ConstantView(let, f"const auto {let} = {expression(value, name)};"))
    return tuple(out)

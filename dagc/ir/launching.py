"""Launch configurations that stay open until the program runs: which tunables, where their values stand, who chooses.

A tunable that is exactly a dimension of the block is read from `blockDim`, so one compiled kernel serves all its
values. Any other is a compile-time constant of the kernel, which is then compiled once for each of its values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dagc.base.errors import UsageError
from dagc.cuda.text import constant_names
from dagc.ir.program import Decision, Impl, Kernel, KernelOp, Program, Value
from dagc.ir.sym import Const, Sym, Var, free, substitute

AXES = ("x", "y", "z")
# Choices were compared with the best up to 4 times outside of the sizes that they were made from. Beyond that their
# quality is unknown, and who compiles or runs is warned (docs/how-to/launch-settings.md).
FAR = 4


@dataclass(frozen=True, slots=True)
class OpenTunable:
    """`op` is the base name of the ops that share it; `axis` the dimension of the block that it is, "" for none."""

    op: str
    name: str
    default: Value
    values: tuple[Value, ...]
    axis: str

    @property
    def decision(self) -> str:
        """What -D calls it: `gemm.bx`."""
        return f"{self.op}.{self.name}"


@dataclass(frozen=True, slots=True)
class ChooserCall:
    """A function of the chooser's C code, and the op whose tunables it sets.

    `arguments` are expressions in per-rank scalars, `tunables` names in the order of its out parameters. `outside`: a
    function of the same arguments that says how many times they lie outside of what was measured, "" where nothing
    was; `measured` says in words what was.
    """

    function: str
    op: str
    arguments: tuple[Sym, ...]
    tunables: tuple[str, ...]
    outside: str = ""
    measured: str = ""


@dataclass(frozen=True, slots=True)
class Chooser:
    """C99 text, and what the program calls once its sizes are known. `warnings`: of the sizes known when compiling."""

    source: str
    calls: tuple[ChooserCall, ...]
    warnings: tuple[str, ...] = ()


def kernel_of(program: Program, op: KernelOp) -> tuple[Kernel, Impl]:
    """The kernel and the implementation of an op. Raises KeyError where there is none on its device."""
    kernel = next(k for k in program.kernels if k.name == op.kernel)
    for impl in kernel.impls:
        if impl.name == op.variant and impl.device is op.device:
            return kernel, impl
    raise KeyError(op.variant)


def open_tunables(program: Program, ops: Iterable[str]) -> tuple[OpenTunable, ...]:
    """The tunables of the named ops (base names), in the program's order, that `stays_fixed` does not name.

    Raises UsageError for an op that has none.
    """
    wanted = dict.fromkeys(ops)
    declared = {d.name: d for d in program.decisions}
    out: dict[str, OpenTunable] = {}
    for op in program.ops:
        if not isinstance(op, KernelOp) or op.base not in wanted:
            continue
        kernel, impl = kernel_of(program, op)
        for name, value in op.tunables:
            decision = declared.get(f"{op.base}.{name}")
            if decision is None or not _opens(impl, name, decision):
                continue
            tunable = OpenTunable(op.base, name, value, decision.values, _axis(kernel, impl, name))
            out.setdefault(tunable.decision, tunable)
    for base in wanted:
        if not any(t.op == base for t in out.values()):
            raise UsageError(
                f"op `{base}` has nothing to tune: no `tune` of a CUDA kernel leaves two whole numbers",
                f"drop -D {base}.NAME=..., or name an op whose kernel declares `tune`",
            )
    return tuple(out.values())


def is_open(program: Program, op: KernelOp) -> bool:
    """Has `open_tunables` anything for this op?"""
    _, impl = kernel_of(program, op)
    return any(_opens(impl, name, d) for name, d in _choices(program, op))


def stays_fixed(program: Program, op: KernelOp) -> tuple[str, ...]:
    """Tunables of an op that have several values and cannot stay open: values that are no whole numbers (a chooser
    answers with these), those of host code that starts its own kernels, and sizes of scratch arrays."""
    _, impl = kernel_of(program, op)
    return tuple(n for n, d in _choices(program, op) if len(d.values) > 1 and not _opens(impl, n, d))


def _choices(program: Program, op: KernelOp) -> tuple[tuple[str, Decision], ...]:
    declared = {d.name: d for d in program.decisions}
    found = ((name, declared.get(f"{op.base}.{name}")) for name, _ in op.tunables)
    return tuple((name, decision) for name, decision in found if decision is not None)


def _opens(impl: Impl, name: str, decision: Decision) -> bool:
    whole = all(isinstance(v, int) for v in decision.values)  # bool is one
    sizes = any(name in free(d) for s in impl.scratch for d in s.dims if d is not None)
    return impl.launch is not None and len(decision.values) > 1 and whole and not sizes


def may_be_settled(program: Program, op: KernelOp, unsettled: Collection[str] = ()) -> bool:
    """No `require` of the kernel forbids the tunables of the op, as far as is known without sizes, the GPU, and the
    tunables that are `unsettled`."""
    kernel, impl = kernel_of(program, op)
    env: dict[str, Sym] = {d.name: Const(d.chosen) for d in program.decisions}
    env |= {n: Const(v) for n, v in op.tunables if n not in unsettled}
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    found = (substitute(condition, env) for condition in (*kernel.requires, *impl.requires))
    return all(not isinstance(condition, Const) or bool(condition.value) for condition in found)


def _axis(kernel: Kernel, impl: Impl, name: str) -> str:
    """The dimension of the block that is a tunable, "" where none is, or where C++ demands a constant in its place."""
    axes = (
        [axis for axis, size in zip(AXES, impl.launch.block, strict=False) if size == Var(name)] if impl.launch else []
    )
    if not axes or impl.code is None or impl.code.text is None:
        return axes[0] if axes else ""

    values = {f.name for f in kernel.formals} | {name}
    constant = constant_names(impl.code.text, values)
    return "" if constant is None or name in constant else axes[0]

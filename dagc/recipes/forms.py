"""`dagc show --forms`: the forms of a kernel, its launches that can be one, and its text under what -D gives."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from dagc.base.errors import UsageError, counted
from dagc.forms import explained, forms_asked, forms_of, kernel_of, surroundings_of
from dagc.forms.functions import read_as_texts
from dagc.forms.groups import groups
from dagc.forms.types import Refusal
from dagc.ir.choice import AS_WRITTEN, FORM, FUSE
from dagc.ir.program import Device, Kernel, Program, Value
from dagc.ir.regions import Regions
from dagc.lang.scope import listing
from dagc.stages.program import read


def show_forms(path: str | Path, name: str, defines: Mapping[str, str | Value] | None = None) -> str:
    """A line for each form of a kernel, or of that of an op: its values, or why it is not legal; the same for launches
    that may be one; and the text of each op under the forms and fusions that `defines` gives, or a list of forms after
    the name, `stencil,wide=4`; without either under the first that a search has. Raises UsageError."""
    name, _, asked = name.partition(",")
    program = read_as_texts(read(path, defines).program())
    called = {op.name: program.kernel(op.kernel) for op in program.kernel_ops}
    parts = {name: {call.kernel.name for call in kernel.fused} for name, kernel in called.items()}
    ops = [op for op in program.kernel_ops if name in (op.name, op.base, op.kernel, *parts[op.name])]
    kernels = dict.fromkeys(k for op in ops for k in parts[op.name] or (op.kernel,))
    if not kernels:
        have = dict.fromkeys(op.kernel for op in program.kernel_ops)
        raise UsageError(f"{program.name}: no op calls a kernel `{name}`", f"one of: {', '.join(have)}")
    asked = asked or ("" if defines else _first(program, kernels))
    if asked:
        more, _ = forms_asked(program, asked, [op for op in ops if op.device is Device.GPU])
        return show_forms(path, name, {**more, **(defines or {})})
    lines = [line for kernel in kernels for line in _forms(program, program.kernel(kernel))]
    lines += _fusions(read_as_texts(read(path, _unfused(defines or {})).program()), kernels)
    shown: dict[str, None] = {}
    for op in ops:
        values = [f"{n} = {v}" for n, v in op.tunables if n.startswith(FORM) and v != AS_WRITTEN]
        code = kernel_of(program, op)[1].code if values or called[op.name].fused else None
        if code is not None and code.text is not None:
            under = f" with {', '.join(values)}" if values else ""
            shown[f"\n{op.kernel}{under}:\n{textwrap.indent(code.text, '  ')}"] = None
    return "\n".join([*lines, *shown, ""])


def _first(program: Program, kernels: Iterable[str]) -> str:
    """The first form that a search would have of one of these kernels, "" if there is none."""
    around = surroundings_of(program)
    impls = [(program.kernel(name), impl) for name in kernels for impl in program.kernel(name).impls]
    legal = (pair for kernel, impl in impls for pair in forms_of(kernel, impl, around) if not pair[0].unproven(impl))
    return next((form.name for form, values in legal if not isinstance(values, Refusal)), "")


def _forms(program: Program, kernel: Kernel) -> Iterator[str]:
    around = surroundings_of(program)
    for impl in kernel.impls:
        if impl.device is not Device.GPU:
            continue
        yield kernel.name if impl.name == "default" else f"{kernel.name}.{impl.name}"
        for form, legal in forms_of(kernel, impl, around):
            if isinstance(legal, Refusal):
                yield f"  {form.name:8} not legal: {explained(legal, impl, program.sources)}"
            else:
                why = form.unproven(impl)
                left = f"; not searched: {why}" if why else ""
                yield f"  {form.name:8} {', '.join(map(str, legal)):12} {form.summary}{left}"
        if any(formal.type.is_float for formal in kernel.formals):
            yield _BITS


# Shown on an H200 (benchmarks/results/2026-11-29-h200-forms-4): the arithmetic is that of the text as written.
_BITS = (
    "  results  to the last bit those of the text as written under DAGC_NVCCFLAGS=-fmad=false; else within `verify`,"
    "\n           as nvcc contracts other products and sums to one instruction where neighbours share them"
)


def _unfused(defines: Mapping[str, str | Value]) -> dict[str, str | Value]:
    """What -D gives without fusion, and without the decisions of ops that fusion makes."""
    plain = {name: value for name, value in defines.items() if not name.startswith(FUSE)}
    return plain if len(plain) == len(defines) else {name: v for name, v in plain.items() if "." not in name}


def _fusions(program: Program, kernels: Collection[str]) -> Iterator[str]:
    """The launches of these kernels that may be one, and why others are not."""
    found, left = groups(program, Regions.of(program))
    calls = {op.name: op.kernel for op in program.kernel_ops}
    for group in found:
        launches = group.ways[-1]
        if not set(kernels).isdisjoint(calls[name] for name in launches[0]):
            values = ", ".join(map(str, range(len(group.ways) + 1)))
            several = f", {counted(len(launches), 'time')} in a run" if len(launches) > 1 else ""
            how = ", one after the other in each thread" if group.chained else ""
            yield f"  {FUSE}{group.name}  {values}  at most {group.ops} launches as one{how}{several}"
    for out in left:
        if out.kernel in kernels:
            impl = next(i for i in program.kernel(out.kernel).impls if i.device is Device.GPU)
            yield f"  fuse  {listing(out.ops, 4)}: not legal: {explained(out.why, impl, program.sources)}"

"""`dagc show --forms`: the forms of a kernel, and its text under those that -D gives."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.forms import explained, forms_of, kernel_of, surroundings_of
from dagc.forms.types import Refusal
from dagc.ir.choice import AS_WRITTEN, FORM
from dagc.ir.program import Device, Kernel, Program, Value
from dagc.stages.program import read


def show_forms(path: str | Path, name: str, defines: Mapping[str, str | Value] | None = None) -> str:
    """A line for each form of a kernel, or of that of an op: its values, or why it is not legal; and the text of each
    op under the forms that `defines` gives. Raises UsageError."""
    program = read(path, defines).program()
    ops = [op for op in program.kernel_ops if name in (op.name, op.base, op.kernel)]
    kernels = dict.fromkeys(op.kernel for op in ops)
    if not kernels:
        have = dict.fromkeys(op.kernel for op in program.kernel_ops)
        raise UsageError(f"{program.name}: no op calls a kernel `{name}`", f"one of: {', '.join(have)}")
    lines = [line for kernel in kernels for line in _forms(program, program.kernel(kernel))]
    shown: dict[str, None] = {}
    for op in ops:
        values = [f"{n} = {v}" for n, v in op.tunables if n.startswith(FORM) and v != AS_WRITTEN]
        code = kernel_of(program, op)[1].code if values else None
        if code is not None and code.text is not None:
            shown[f"\n{op.kernel} with {', '.join(values)}:\n{textwrap.indent(code.text, '  ')}"] = None
    return "\n".join([*lines, *shown, ""])


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
                yield f"  {form.name:8} {', '.join(map(str, legal)):12} {form.summary}"

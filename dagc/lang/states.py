"""Variables that the code of ops uses beside its arguments, and that order the ops as arrays do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagc.base.source import Source, Span
from dagc.cuda.state import Definitions, Variable, VariableUse, definitions_of
from dagc.ir import program as ir
from dagc.ir.enums import Mode
from dagc.lang.scope import Context


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a text lies: in a source, from an offset on."""

    source: Source
    text: str
    start: int

    def span(self, line: int, word: str) -> Span:
        """The first place of a word in a line of the text, from 0; else the line."""
        lines = self.text.split("\n")
        before = sum(len(each) + 1 for each in lines[:line])
        column = lines[line].find(word) if line < len(lines) else -1
        at = self.start + before + max(0, column)
        return Span(at, at + (len(word) if column >= 0 else 1), self.source.path)


def with_states(
    ctx: Context, kernels: Mapping[str, ir.Kernel], codes: Sequence[ir.CodeText], ops: Sequence[ir.Op]
) -> list[ir.Op]:
    """The ops, each kernel op with the variables that its implementations use."""
    reader = _Reader(ctx, codes)
    used = {op.name: reader.of(op, kernels[op.kernel]) for op in ops if isinstance(op, ir.KernelOp)}
    shared = _storages([use for uses in used.values() for use in uses])
    return [
        replace(op, states=tuple(_states(reader, used[op.name], shared))) if isinstance(op, ir.KernelOp) else op
        for op in ops
    ]


def _storages(uses: Sequence[VariableUse]) -> dict[Variable, str]:
    """The name of the storage of each variable. One that may hold an address shares it with all whose address is
    kept somewhere."""
    variables = list(dict.fromkeys(use.variable for use in uses))
    linked = {use.variable for use in uses if use.escapes or use.variable.pointer}
    together = any(v.pointer for v in linked) and len(linked) > 1
    group = ", ".join(f"::{v.name}" for v in variables if v in linked)
    return {v: group if together and v in linked else f"::{v.name}" for v in variables}


def _states(reader: _Reader, uses: Sequence[VariableUse], shared: Mapping[Variable, str]) -> Iterator[ir.HiddenState]:
    by_storage: dict[str, list[VariableUse]] = {}
    for use in uses:
        by_storage.setdefault(shared[use.variable], []).append(use)
    for name, of_it in by_storage.items():
        mode = Mode.INOUT if any(use.written for use in of_it) else Mode.IN
        variable = of_it[0].variable
        place = reader.places[variable.text]
        yield ir.HiddenState(name, mode, span=place.span(variable.line, variable.name.rpartition("::")[2]))


class _Reader:
    """Reads the code of kernels, together with that of the program and its files."""

    def __init__(self, ctx: Context, codes: Sequence[ir.CodeText]) -> None:
        self.ctx = ctx
        self.places: dict[str, _Place] = {}
        for file in ctx.named.files:
            source = ctx.sources[file.path]
            self.places[file.path] = _Place(source, source.text, 0)
        own = [self._place(code) for code in codes if code.text is not None]
        texts = [
            *((f.path, self.places[f.path].text) for f in ctx.named.files),
            *((k, self.places[k].text) for k in own),
        ]
        self.code: Definitions = definitions_of(tuple(texts))
        self.known: dict[tuple[str, ir.Device, str], tuple[VariableUse, ...]] = {}

    def _place(self, code: ir.CodeText) -> str:
        """The key of a text of the program."""
        source, text = self.ctx.sources[code.span.file], code.text or ""
        start = max(code.span.start, source.text.find(text, code.span.start))
        key = f"{source.path}:{start}"
        self.places[key] = _Place(source, text, start)
        return key

    def of(self, op: ir.KernelOp, kernel: ir.Kernel) -> tuple[VariableUse, ...]:
        """What the implementations use of which the op has one."""
        wanted = {(op.device, op.variant), *((o.device, o.variant) for o in op.others)}
        uses = [u for impl in kernel.impls if (impl.device, impl.name) in wanted for u in self._of_impl(kernel, impl)]
        return tuple(dict.fromkeys(uses))

    def _of_impl(self, kernel: ir.Kernel, impl: ir.Impl) -> tuple[VariableUse, ...]:
        key = (kernel.name, impl.device, impl.name)
        if key not in self.known:
            self.known[key] = self._read(kernel, impl)
            for use in self.known[key]:
                if use.keeps:
                    self._refuse(kernel, use)
        return self.known[key]

    def _refuse(self, kernel: ir.Kernel, use: VariableUse) -> None:
        """Report that code keeps the address of an argument: what is accessed through it cannot be seen."""
        name = use.variable.name
        message = f"kernel `{kernel.name}` keeps the address of an argument in `{name}`, for code that no header names"
        at = self.places[use.text].span(use.line, name)
        declared = self.places[use.variable.text].span(use.variable.line, name)
        related = ((kernel.span, f"`{kernel.name}` is declared here"), (declared, f"`{name}` is declared here"))
        help = "pass the array to the kernels that use it"
        self.ctx.report.error("kept-address", message, at, help, related)

    def _read(self, kernel: ir.Kernel, impl: ir.Impl) -> tuple[VariableUse, ...]:
        code = impl.code
        if code is None:
            return ()
        if code.text is None:
            return self.code.uses_of(code.function) if code.function is not None else ()
        arrays = [f.name for f in kernel.formals if f.mode is not None] + [s.name for s in impl.scratch]
        values = [f.name for f in kernel.formals if f.mode is None]
        values += [t.name for t in (*kernel.tunables, *impl.tunables)]
        values += [name for name, _ in (*kernel.lets, *impl.lets)]
        return self.code.uses(self._place(code), code.text, arrays, values, kernel.name)

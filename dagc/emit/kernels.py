"""The functions of `kernels.cu`: one for each implementation and choice of tunables that the graph uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby, product
from types import MappingProxyType

from dagc.base.errors import DagcError, UsageError
from dagc.cuda.lexer import is_global, names_used, uses_openmp
from dagc.cuda.text import FunctionSignature, functions_defined, has_kernels, rewrite_for_host, signatures_of, stores_of
from dagc.emit.render import CodeView, ConstantView, Names, code_view, cxx_value, file_constants, local_constants, place
from dagc.forms import includes_of, is_sent, kernel_of, reads_as_constant
from dagc.forms.fuse import number_of_call, renamed, select
from dagc.forms.text import PLACES
from dagc.forms.within import IN_BLOCK, Within
from dagc.ir import program as ir
from dagc.ir.choice import AS_WRITTEN, FORM, own_name
from dagc.ir.enums import HOST_LIBRARIES, CodeLang, ElementType, Mode, Role
from dagc.ir.plan import CodeFeature, Opened, Target, argument_names, may_be_settled, named_features
from dagc.ir.sym import Const, Sym, free, substitute

# Names that emitted files define themselves; a kernel of that name is renamed.
_OURS = frozenset("Program iteration ops stream p dagc program turn dagc_entry".split())
ENTRIES = "dagc_entry"  # the namespace of functions of files of code
CODE = "code"  # the directory of the files
LAUNCHES = "launches.cu"  # kernels that are apart from the program
AWAIT = "await "  # before the number of messages that it waits for
PUT = "put "  # before the formals of a function that are sent, in what tells it from others

_LAUNCH = ("dim3 grid", "dim3 block", "std::size_t shared", "cudaStream_t stream")  # parameters before the kernel's

Key = tuple[str, str, tuple[tuple[str, ir.Value], ...]]


@dataclass(frozen=True, slots=True)
class FunctionView:
    """`kernel` functions are launched, others called; `streamed` ones get the stream as their last argument."""

    name: str
    linkage: str  # so that a kernel is found by its name
    signature: str
    comment: str
    begins: tuple[str, ...]  # statements before all others
    constants: tuple[ConstantView, ...]
    code: CodeView
    kernel: bool
    streamed: bool
    waits: bool = False  # edges of CUDA graphs to it may be programmatic


@dataclass(frozen=True, slots=True)
class CodeFunctionView:
    """A function of a file of code, as the program calls it: `call` with `arguments`, launched if it is a `kernel`.

    `line` and `file` are those of its implementation in the program.
    """

    name: str
    parameters: str
    call: str
    arguments: str
    kernel: bool
    comment: str
    line: int
    file: str


@dataclass(frozen=True, slots=True)
class UnitView:
    """A file of code, which `source` compiles by itself with the entries to its functions. `cuda`: as CUDA, whatever
    its suffix."""

    source: str
    file: str
    cuda: bool
    main: str  # new name of its `main` ("" if it has none), since the program has its own
    entries: tuple[CodeFunctionView, ...]


@dataclass(frozen=True, slots=True)
class KernelsView:
    """`includes`: headers beside those that every program uses. `waiting`: kernels to which edges of CUDA graphs may be
    programmatic."""

    includes: tuple[str, ...]
    constants: tuple[ConstantView, ...]
    code: tuple[CodeView, ...]
    functions: tuple[FunctionView, ...]
    entries: tuple[CodeFunctionView, ...]
    waiting: tuple[str, ...]


def asks_hardware(program: ir.Program, op: ir.KernelOp) -> bool:
    """Whether the launch, the arguments or the scratch of an op depend on `hw.*`."""
    kernel, impl = kernel_of(program, op)
    launch = (*impl.launch.grid, *impl.launch.block, impl.launch.shared) if impl.launch is not None else ()
    values = (
        *launch,
        *(e for _, e in (*kernel.lets, *impl.lets)),
        *(a for a in op.args if not isinstance(a, ir.Region)),
    )
    values += tuple(d for s in impl.scratch for d in s.dims)
    return any(name.startswith("hw.") for value in values if value is not None for name in free(value))


class Functions:
    """Finds the function of each kernel op. Names are short if they are unique."""

    def __init__(
        self,
        graph: ir.Graph,
        target: Target,
        open: Iterable[ir.Decision] = (),
        features: Iterable[CodeFeature] = (),
        apart: bool = False,
    ) -> None:
        """`open` tunables are set when the program runs. `features` are functions on the host. `apart`: kernels are
        launched by functions that are compiled with them, apart from the program, if it has no other code."""
        self.program, self.target = graph.program, target
        self.features = tuple(features)
        self.opened = Opened(open)
        self._ops: dict[Key, ir.KernelOp] = {}
        self._prepares: dict[Key, ir.KernelOp] = {}
        for op in graph.ops:
            for one in self.settled(op.kernel) if op.kernel is not None else ():
                self._ops.setdefault(self._key(one), one)
                if (prepare := kernel_of(self.program, one)[1].prepare) is not None:
                    self._prepares.setdefault(self._key(one, prepare), one)
        self.apart = apart and self._has_only_kernels()
        self._names = self._name_all()
        names = Names({*(c.name for c in self._constants[0]), *_OURS, *self._names.values()}, library=True)
        self.feature_names = {f.name: names.new(*f.name.rsplit(".", 1)) for f in self.features}
        self._prepare_names = {k: names.new(f"prepare_{self.name(op)}") for k, op in self._prepares.items()}

    def name(self, op: ir.KernelOp) -> str:
        return self._names[self._key(op)]

    def settled(self, op: ir.KernelOp) -> tuple[ir.KernelOp, ...]:
        """The op with each open variant, and with each combination of the open tunables that are constants of its
        kernel, as far as its `require`s allow; only the op itself if there are none."""
        return tuple(one for variant in self.opened.ops(self.program, op) for one in self._settled(variant))

    def _settled(self, op: ir.KernelOp) -> Iterator[ir.KernelOp]:
        open_values = [self.opened.get(op, name) for name, _ in op.tunables]
        constants = [t for t in open_values if t is not None and not t.axis]
        axes = {own_name(t.name) for t in open_values if t is not None and t.axis}
        for values in product(*(t.values for t in constants)):
            chosen = {own_name(t.name): v for t, v in zip(constants, values, strict=True)}
            one = replace(op, tunables=tuple((n, chosen.get(n, v)) for n, v in op.tunables))
            if not constants or (may_be_settled(self.program, one, axes) and is_sent(self.program, one)):
                yield one

    def _axis(self, op: ir.KernelOp, tunable: str) -> str:
        """The dimension of the block that an open tunable is read from, "" if it is a constant."""
        opened = self.opened.get(op, tunable)
        return opened.axis if opened is not None else ""

    def shown(self, op: ir.GraphOp) -> ir.GraphOp:
        """The op for comments and messages, which name its variant unless that is open."""
        if op.kernel is None or not self.opened.variants(op.kernel):
            return op
        return replace(op, op=replace(op.kernel, variant="default"))

    def call(self, op: ir.KernelOp) -> str:
        """The function as emitted code calls it."""
        return f"{ENTRIES}::{self.name(op)}" if self.is_launched_apart(op) else self.name(op)

    def prepare(self, op: ir.KernelOp) -> str:
        """The function that fills the scratch of the op's implementation, as emitted code calls it."""
        prepare = kernel_of(self.program, op)[1].prepare
        assert prepare is not None
        name = self._prepare_names[self._key(op, prepare)]
        return name if prepare.file is None else f"{ENTRIES}::{name}"

    def is_entry(self, op: ir.KernelOp) -> bool:
        """Whether it is a function of a file of code."""
        code = kernel_of(self.program, op)[1].code
        return code is not None and code.file is not None

    def is_launched_apart(self, op: ir.KernelOp) -> bool:
        """Whether a function that is compiled apart from the program launches or calls it."""
        return self.apart or self.is_entry(op)

    def _has_only_kernels(self) -> bool:
        """Whether all functions are kernels whose text is in the program, and other code too, which they alone call."""
        texts = [kernel_of(self.program, op)[1].code for op in self._ops.values()]
        kernels = all(code is not None and code.file is None and code.lang is CodeLang.CUDA for code in texts)
        inline = all(code.file is None for code in self.program.code)
        return bool(texts) and kernels and inline and not (self.features or self._prepares)

    def launchers(self) -> tuple[CodeFunctionView, ...]:
        """What launches the kernels, if they are apart."""
        return tuple(map(self._launcher, self._ops.values())) if self.apart else ()

    def view(self) -> KernelsView:
        functions = tuple(self._function(op) for op in self._ops.values() if not self.is_entry(op))
        functions += tuple(self._prepare(k, op) for k, op in self._prepares.items() if not self._prepared_by_file(op))
        functions += tuple(self._feature(f) for f in self.features)
        code = tuple(self._code(c) for c in self.program.code if c.file is None)
        includes = {name for op in self._ops.values() for name in includes_of(op)}
        includes |= {"dagc/put.hpp" for op in self._ops.values() if op.puts or op.awaits}
        entries = tuple(e for u in self.units for e in u.entries)
        waiting = tuple(f.name for f in functions if f.waits)
        return KernelsView(tuple(sorted(includes)), self._constants[0], code, functions, entries, waiting)

    @cached_property
    def units(self) -> tuple[UnitView, ...]:
        """The files of code that the graph uses, and those that the program includes as a whole."""
        entries: dict[str, list[CodeFunctionView]] = {c.file: [] for c in self.program.code if c.file is not None}
        for op in self._ops.values():
            _, impl = kernel_of(self.program, op)
            if impl.code is not None and impl.code.file is not None:
                entries.setdefault(impl.code.file, []).append(self._entry(op, impl.code, self.name(op)))
        for key, op in self._prepares.items():
            _, impl = kernel_of(self.program, op)
            if impl.prepare is not None and impl.prepare.file is not None:
                name = self._prepare_names[key]
                entries.setdefault(impl.prepare.file, []).append(self._entry(op, impl.prepare, name))
        names = Names(("bench", "runner", "kernels"))
        included = any(self._defines_main(f.name) for f in self.program.files if f.name not in entries)
        units = []
        for file, those in entries.items():
            stem, _, suffix = file.rpartition(".")
            cuda = suffix in ("cu", "cuh") or any(e.kernel for e in those) or has_kernels(self._text_of(file))
            unit = names.new(f"unit_{stem}")
            source = unit + (".cu" if cuda and self.target is Target.CUDA else ".cpp")
            main = f"main_of_{unit}" if included or self._defines_main(file) else ""
            units.append(UnitView(source, f"{CODE}/{file}", cuda, main, tuple(those)))
        return tuple(units)

    def _defines_main(self, file: str) -> bool:
        text = self._text_of(file)
        return "main" in text and "main" in functions_defined(text)

    def _text_of(self, file: str) -> str:
        return next(self.program.sources[f.path].text for f in self.program.files if f.name == file)

    @property
    def links(self) -> tuple[str, ...]:
        """The libraries of the implementations that the graph uses, by name."""
        used = (kernel_of(self.program, op)[1].links for op in self._ops.values())
        there = {"cudart"} if self.target is Target.CUDA else HOST_LIBRARIES  # nvcc links it; of headers alone
        return tuple(dict.fromkeys(name for names in used for name in names if name not in there))

    @property
    def openmp(self) -> bool:
        """Whether a CPU implementation that the graph uses, or code outside of kernels, uses OpenMP: in its text, in
        the file of its function, or in a header."""
        program = self.program
        named = {
            i.code.file for k in program.kernels for i in k.impls if i.code is not None and i.code.file is not None
        }
        used = {*self._files_on_cpu(), *(f.name for f in program.files if f.name not in named)}
        impls = [kernel_of(program, op)[1] for op in self._ops.values() if op.device is ir.Device.CPU]
        texts = [
            c.text for c in (*program.code, *(i.code for i in impls), *(i.prepare for i in impls)) if c is not None
        ]
        return program.devices.sockets > 0 or any(
            map(uses_openmp, (*(t for t in texts if t is not None), *map(self._text_of, used)))
        )

    def _files_on_cpu(self) -> Iterator[str]:
        for op in self._ops.values():
            impl = kernel_of(self.program, op)[1]
            codes = (impl.code, impl.prepare) if op.device is ir.Device.CPU else ()
            yield from (c.file for c in codes if c is not None and c.file is not None)

    def _prepared_by_file(self, op: ir.KernelOp) -> bool:
        prepare = kernel_of(self.program, op)[1].prepare
        return prepare is not None and prepare.file is not None

    def _key(self, op: ir.KernelOp, prepare: ir.CodeText | None = None) -> Key:
        """Ops share a function if kernel, implementation and the tunables that its code uses are equal."""
        kernel, impl = kernel_of(self.program, op)
        code = prepare or impl.code
        text = code.text if code is not None else None
        tunables = tuple((n, v) for n, v in op.tunables if not self._axis(op, n))
        seen = set(names_used(text or "")) | (argument_names(code) if code is not None else set())
        seen |= {n for _, e in (*kernel.lets, *impl.lets) for n in free(e)}
        formed = {n for n, v in tunables if n.startswith(FORM) and not _is_written(n, v)} if prepare is None else set()
        literals = code.literals if code is not None else ()
        puts = ((f"{PUT}{formal}", len(some)) for formal, some in op.sent.items()) if prepare is None else ()
        waits = ((AWAIT, f"{len(op.awaits)} {op.by_call}"),) if op.awaits and prepare is None else ()
        shown = (*((n, v) for n, v in tunables if n in seen | formed), *literals, *puts, *waits)
        return op.kernel, f"{op.device.value} {op.variant}", shown

    @cached_property
    def _constants(self) -> tuple[tuple[ConstantView, ...], tuple[ConstantView, ...]]:
        """The constants of the whole file, and those defined in each function that uses them, because C++ or CUDA
        already has their name (`y1`, `norm`)."""
        of_all = frozenset[str]().union(*(names_used(c.text) for c in self.program.code if c.text is not None))
        used = of_all
        for op in self._ops.values():
            kernel, impl = kernel_of(self.program, op)
            own = {f.name for f in kernel.formals} | {n for n, _ in op.tunables}
            for code in (impl.code, impl.prepare):
                used |= names_used(code.text) - own if code is not None and code.text is not None else frozenset()
        for feature in self.features:
            used |= names_used(feature.code.text or "") - {
                f.name for f in self.program.kernel(feature.op.kernel).formals
            }
        constants = file_constants(self.program, used)
        local = tuple(c for c in constants if any(is_global(n) or n in _OURS for n in c.labels or (c.name,)))
        for constant in local:
            for name in of_all & set(constant.labels or (constant.name,)):
                self._refuse(name)
        return tuple(c for c in constants if c not in local), local

    def _refuse(self, name: str) -> None:
        """A constant with such a name cannot be defined for code outside of kernels."""
        named = next((p for p in self.program.params if p.name == name), None)
        raise UsageError(
            f"{place(self.program, named)}`{name}` is used by code outside of kernels, where C++, CUDA or dagc"
            " already has this name",
            "choose another name",
        )

    def _name_all(self) -> dict[Key, str]:
        names = Names({c.name for c in self._constants[0]} | _OURS, library=True)
        out: dict[Key, str] = {}
        defined = self._defined_in_units()
        for key, op in self._ops.items():
            same = [k for k in self._ops if k[0] == key[0]]
            parts = [key[0]]
            if len({k[1] for k in same}) > 1:
                device, variant = key[1].split(" ", 1)
                variants = {k[1].split(" ", 1)[1] for k in same}
                both = len({k[1] for k in same if k[1].split(" ", 1)[1] == variant}) > 1
                parts += ([device] if both else []) + ([variant] if len(variants) > 1 else [])
            for tunable, value in key[2]:
                if len({dict(k[2]).get(tunable) for k in same if k[1] == key[1]}) > 1:
                    word = next((word.strip() for word in (PUT, AWAIT) if tunable.startswith(word)), "")
                    parts.append(word or f"{tunable.removeprefix(FORM)}{value}")
            name = "_".join(dict.fromkeys(parts))
            code = kernel_of(self.program, op)[1].code
            out[key] = names.new(f"{name}_text" if name in defined and code is not None and code.file is None else name)
        return out

    def _defined_in_units(self) -> frozenset[str]:
        """Functions of files that are compiled for CUDA: nvcc names the host's part of a kernel by its parameters
        whatever its linkage is, so that a kernel that is one of theirs in another form needs another name."""
        if self.target is not Target.CUDA:
            return frozenset()
        codes = [*self.program.code, *(kernel_of(self.program, op)[1].code for op in self._ops.values())]
        files = {code.file for code in codes if code is not None and code.file is not None}
        return frozenset().union(*(functions_defined(self._text_of(file)) for file in files))

    def _code(self, code: ir.CodeText) -> CodeView:
        """On the host target, constructs that g++ cannot parse (launches, dynamic shared memory) are rewritten as
        C++."""
        view = code_view(code, self.program)
        if self.target is Target.CUDA:
            return view
        return CodeView(rewrite_for_host(view.text), view.line, view.file)

    def further_names(self) -> Names:
        """For functions beside those of the ops."""
        taken = (*self._names.values(), *self._prepare_names.values(), *self.feature_names.values())
        return Names({*(c.name for c in self._constants[0]), *_OURS, *taken}, library=True)

    def parameters(self, op: ir.KernelOp, code: Within) -> list[tuple[str, str]]:
        """Type and name of those of the kernel of an op, as a function that does one block."""
        return self._formals(op, code.code, lambda name: "") + _sent(op.sent)

    def block(self, op: ir.KernelOp, code: Within, function: str) -> FunctionView:
        """The kernel of an op as a function that does one block."""
        view = self._written(op, code.code, function, f"{self._comment(op)}: a block of it", op.sent)
        types = ("const uint3", "const dim3", "const uint3", "const dim3")
        places = ", ".join(f"[[maybe_unused]] {t} {name}" for t, name in zip(types, code.names, strict=True))
        formals = view.signature.partition("(")[2] if self.parameters(op, code) else ")"
        head = f"__device__ inline void {function}({places}"
        words = dict(zip((*PLACES, *IN_BLOCK), code.names, strict=True))
        constants = tuple(replace(c, declaration=renamed(c.declaration, words)) for c in view.constants)
        return replace(
            view, linkage="", signature=f"{head}, {formals}" if formals != ")" else f"{head})",
            begins=tuple(self._sends(op, code.code, op.sent)), constants=constants, kernel=False,
        )  # fmt: skip

    def _function(self, op: ir.KernelOp) -> FunctionView:
        kernel, impl = kernel_of(self.program, op)
        return self._written(op, self._code_of(impl, kernel), self.name(op), self._comment(op), op.sent, op.awaits)

    def _prepare(self, key: Key, op: ir.KernelOp) -> FunctionView:
        prepare = kernel_of(self.program, op)[1].prepare
        assert prepare is not None
        return self._written(op, prepare, self._prepare_names[key], f"prepare of {self._comment(op)}")

    def _written(
        self,
        op: ir.KernelOp,
        code: ir.CodeText,
        function: str,
        comment: str,
        sent: Mapping[str, Sequence[object]] = MappingProxyType({}),
        awaits: Sequence[object] = (),
    ) -> FunctionView:
        """The function of a text of the program. Of an array that is sent as it is stored, the parameter has another
        name. `awaits`: the messages that it waits for."""
        kernel, impl = kernel_of(self.program, op)
        view = self._code(code)
        is_kernel = code.lang is CodeLang.CUDA
        used = names_used(view.text)
        formals = self._all_formals(op, code, lambda name: _unused(name, used), sent, awaits)
        waits = self._begins(code) if is_kernel else ()
        head = "__global__ void" if is_kernel else "inline void"
        if code.bounds is not None:
            head += f" __launch_bounds__({code.bounds[0]}, {code.bounds[1]})"
        axes = {n: a for n, _ in op.tunables if (a := self._axis(op, n))}
        types = {f.name: f.type.cxx for f in kernel.formals}
        return FunctionView(
            name=function,
            linkage='extern "C" ' if is_kernel else "",
            signature=f"{head} {function}({', '.join(f'{type_} {name}'.rstrip() for type_, name in formals)})",
            comment=comment,
            begins=(
                *waits,
                *(_of_messages(op.by_call, impl.launch, sent, awaits) if sent or awaits else ()),
                *self._sends(op, code, sent),
            ),
            constants=(
                *(ConstantView(n, f"constexpr {types[n]} {n} = {cxx_value(v)};") for n, v in code.literals),
                *(c for c in self._constants[1] if not used.isdisjoint(c.labels or (c.name,))),
                *local_constants(op.tunables, (*kernel.lets, *impl.lets), used, kernel.formals, axes),
            ),
            code=view,
            kernel=is_kernel,
            streamed=impl.device is ir.Device.GPU and not is_kernel,
            waits=bool(waits),
        )

    def _all_formals(
        self,
        op: ir.KernelOp,
        code: ir.CodeText,
        unused: Callable[[str], str],
        sent: Mapping[str, Sequence[object]],
        awaits: Sequence[object],
    ) -> list[tuple[str, str]]:
        """Those of `_formals`, and the messages that a kernel writes and waits for."""
        formals = [(t, f"{name}_here" if name in sent else name) for t, name in self._formals(op, code, unused)]
        return formals + _sent(sent) + ([(f"const dagc::PutWait<{len(awaits)}>", "awaited")] if awaits else [])

    def _sends(self, op: ir.KernelOp, code: ir.CodeText, sent: Mapping[str, Sequence[object]]) -> Iterator[str]:
        """What makes stores to arrays messages."""
        around = tuple(c.text for c in self.program.code if c.text is not None)
        room = _room(sent)
        for number, name in enumerate(sent):
            if use := stores_of(code.text or "", name, around).other:  # by a form of the kernel
                raise UsageError(
                    f"{place(self.program, code)}`{op.name}` has `{use}` and cannot write messages",
                    "choose another transport, or another form of the kernel",
                )
            yield f"const auto {name} = dagc::put_array<{number * room}, {room}>({name}_here, sent_put);"

    def _begins(self, code: ir.CodeText) -> tuple[str, ...]:
        """Under programmatic edges a kernel waits first, unless the compiler may move loads to before that, since what
        `__restrict__` and `__ldg` read counts as constant."""
        edges = self.program.graph_edges
        if self.target is Target.HOST or edges is ir.GraphEdges.FULL:
            return ()
        if reads_as_constant(self.program, code):
            return ()
        wait, start = "dagc::wait_for_dependencies();", "dagc::let_dependents_start();"
        return (wait, start) if edges is ir.GraphEdges.EARLY else (wait,)

    def _code_of(self, impl: ir.Impl, kernel: ir.Kernel) -> ir.CodeText:
        if impl.code is None:
            message = f"{place(self.program, impl)}implementation `{impl.name}` of kernel `{kernel.name}` has no code"
            raise DagcError(message, "give it a `cuda` or a `cpp` text")
        if impl.code.lang is CodeLang.CUDA and impl.device is ir.Device.CPU:
            raise DagcError(f"{place(self.program, impl)}a cpu implementation needs `cpp` code")
        return impl.code

    def _formals(self, op: ir.KernelOp, code: ir.CodeText, unused: Callable[[str], str]) -> list[tuple[str, str]]:
        """Type and name of each parameter: the kernel's formals, scratch, features that the text names, and the stream
        of host code on the GPU. Only `prepare` may write `const` scratch."""
        kernel, impl = kernel_of(self.program, op)
        kept = {s.name for s in impl.scratch if s.const and code is not impl.prepare}
        only, known = " __restrict__" if code.restrict else "", dict(code.literals)
        out = [
            (formal_type(f), "")
            if f.name in known
            else (unused(f.name) + formal_type(f) + (only if f.mode is not None else ""), f.name)
            for f in kernel.formals
        ]
        for s in impl.scratch:
            out.append((f"{unused(s.name)}{'const ' if s.name in kept else ''}{s.type.cxx}*{only}", s.name))
        out += [("const double", f.name) for f in named_features(kernel, impl, code)]
        out += [("const unsigned", name) for name, _ in impl.launch.numbers] if impl.launch is not None else []
        if impl.device is ir.Device.GPU and code.lang is CodeLang.CPP:
            out.append((f"{unused('stream')}cudaStream_t", "stream"))
        return out

    def _comment(self, op: ir.KernelOp) -> str:
        tunables = ", ".join(f"{n} = {v}" for n, v in op.tunables if not (self._axis(op, n) or _is_written(n, v)))
        return f"{op.implementation}({tunables})" if tunables else op.implementation

    def _launcher(self, op: ir.KernelOp) -> CodeFunctionView:
        kernel, impl = kernel_of(self.program, op)
        types = self._all_formals(op, self._code_of(impl, kernel), lambda name: "", op.sent, op.awaits)
        numbered = [f"{type_} a{n}" for n, (type_, _) in enumerate(types)]
        arguments = ", ".join(f"a{n}" for n in range(len(types)))
        name = self.name(op)
        return CodeFunctionView(
            name, ", ".join((*_LAUNCH, *numbered)), f"::{name}", arguments, True, self._comment(op), 1, ""
        )

    def _entry(self, op: ir.KernelOp, code: ir.CodeText, function: str) -> CodeFunctionView:
        is_kernel = code.lang is CodeLang.CUDA
        formals = self._formals(op, code, lambda name: "")
        launch = _LAUNCH if is_kernel else ()
        # A formal may have the name of a parameter of the launch.
        numbered = [(f"{type_} a{n}", f"a{n}") for n, (type_, _) in enumerate(formals)]
        env = {n: Const(v) for n, v in op.tunables}
        arguments = ", ".join(_template_argument(a, env) for a in code.arguments)
        source = self.program.sources.get(code.span.file)
        return CodeFunctionView(
            name=function,
            parameters=", ".join((*launch, *(text for text, _ in numbered))),
            call=self._selected(code, f"::{code.function}" + (f"<{arguments}>" if arguments else ""), formals),
            arguments=", ".join(self._argument(op, code, n, type_) for n, (type_, _) in enumerate(formals)),
            kernel=is_kernel,
            comment=f"{self._comment(op)}: {', '.join(name for _, name in formals)}",
            line=source.line_column(code.span.start)[0] if source is not None else 1,
            file=source.path if source is not None else code.span.file,
        )

    def _selected(self, code: ir.CodeText, named: str, formals: Sequence[tuple[str, str]]) -> str:
        """A function as it is launched: of several overloads the kernel that takes these formals. (A call of a host
        function leaves the choice to C++.)"""
        if code.lang is not CodeLang.CUDA or code.function is None:
            return named
        texts = [self.program.sources[f.path].text for f in self.program.files]
        overloads = dict.fromkeys(s for text in texts for s in signatures_of(text, code.function.rpartition("::")[2]))
        kernels = [s for s in overloads if s.kernel]
        if len(overloads) < 2 or not kernels:
            return named
        fits = {s: s.fits([type_ for type_, _ in formals]) for s in kernels}
        best = max(fits.values())
        chosen: list[FunctionSignature] = [s for s in kernels if fits[s] == best] if best > 0 else []
        exact = len(chosen) != 1 or chosen[0].template
        types = [type_ for type_, _ in formals] if exact else chosen[0].types
        return f"static_cast<void (*)({', '.join(types)})>({named})"

    def _argument(self, op: ir.KernelOp, code: ir.CodeText, number: int, type_: str) -> str:
        """The argument with this number. Functions of files may take the rows of an array as structs; for kernels, the
        names of the types may differ as well. (Of host functions, the plain pointer may decide which overload is
        called.)"""
        kernel, impl = kernel_of(self.program, op)
        dims = [*((f.dims or ()) for f in kernel.formals), *(s.dims for s in impl.scratch)]
        sizes = row_sizes(dims[number]) if number < len(dims) else ()
        if not type_.endswith("*") or not (sizes or code.lang is CodeLang.CUDA):
            return f"a{number}"
        return f"dagc::Argument<{', '.join((type_.removesuffix('*'), *map(str, sizes)))}>{{a{number}}}"

    # ---- features ----

    def feature_arguments(self, feature: CodeFeature) -> tuple[tuple[ir.Formal, ir.Region | Sym], ...]:
        """The formals that its code names, with the op's arguments."""
        used = names_used(feature.code.text or "")
        pairs = zip(self.program.kernel(feature.op.kernel).formals, feature.op.args, strict=True)
        arguments = tuple((formal, argument) for formal, argument in pairs if formal.name in used)
        given = {a.name for a in self.program.arrays if a.role in (Role.CONST, Role.IN)}
        for _, argument in arguments:
            if isinstance(argument, ir.Region) and argument.array not in given:
                raise UsageError(
                    f"{place(self.program, feature.code)}a feature of op `{feature.op.name}` reads"
                    f" `{argument.array}`, which the set-up does not provide",
                    "read `const` and `in` arrays: features are computed before the dag runs",
                )
        return arguments

    def _feature(self, feature: CodeFeature) -> FunctionView:
        """A function of the arguments that it names, in order; it gets the arrays that it reads on the host."""
        view, kernel = self._code(feature.code), self.program.kernel(feature.op.kernel)
        used = names_used(view.text)
        formals = [
            f"dagc::Elements<{f.type.cxx}>& {f.name}" if f.mode is not None else f"const {f.type.cxx} {f.name}"
            for f, _ in self.feature_arguments(feature)
        ]
        return FunctionView(
            name=self.feature_names[feature.name],
            linkage="",
            signature=f"inline dagc::Feature {self.feature_names[feature.name]}({', '.join(formals)})",
            comment=feature.name,
            begins=(),
            constants=(
                *(c for c in self._constants[1] if not used.isdisjoint(c.labels or (c.name,))),
                *local_constants((), kernel.lets, used, kernel.formals, {}),
            ),
            code=view,
            kernel=False,
            streamed=False,
        )


def _room(sent: Mapping[str, Sequence[object]]) -> int:
    """The number of messages that each array has room for, of those that are sent."""
    return max(map(len, sent.values()), default=0)


def _of_messages(
    calls: Sequence[ir.CallMessages], launch: ir.Launch | None, sent: Collection[str], awaits: Collection[object]
) -> Iterator[str]:
    """The wait for messages, and what sends them at the end; of a launch that joins several, by the call of a block."""
    which, end = "", ""
    if calls and launch is not None:
        along, ends = "xyz"[launch.along], [name for name, _ in launch.numbers[: len(calls) - 1]]
        yield f"const int sent_call = {number_of_call(ends, along)};"
        bits = [f"{sum(1 << place for place in call.awaits):#x}U" for call in calls]
        which = f", {select('sent_call', bits)}"
        limits = ["", *ends, f"gridDim.{along}"]
        runs = [list(run) for counts, run in groupby(range(len(calls)), lambda k: calls[k].counted) if counts]
        blocks = " + ".join(f"{limits[run[-1] + 1]} - {limits[run[0]]}".removesuffix(" - ") for run in runs) or "0U"
        across = "".join(f" * gridDim.{axis}" for axis in "xyz" if axis != along)
        counts = select("sent_call", [str(call.counted).lower() for call in calls])
        end = f", {counts}, ({blocks}){across}"
    if awaits:
        yield f"dagc::put_wait(awaited{which});"
    if sent:
        yield f"const dagc::PutEnd sent_end(sent_put{end});"


def _sent(sent: Mapping[str, Sequence[object]]) -> list[tuple[str, str]]:
    """Type and name of the parameter with the messages that a kernel writes, if there are any."""
    return [(f"const dagc::Put<{_room(sent) * len(sent)}>", "sent_put")] if sent else []


def _is_written(tunable: str, value: ir.Value) -> bool:
    """Whether it is a form, with the value that leaves the text as it is."""
    return tunable.startswith(FORM) and value == AS_WRITTEN


def _unused(name: str, used: frozenset[str]) -> str:
    """A formal that one implementation does not use must not cause a warning."""
    return "" if name in used else "[[maybe_unused]] "


def formal_type(formal: ir.Formal) -> str:
    """The C++ type of a parameter."""
    type_ = formal.type.cxx
    if formal.mode is not None:
        type_ = f"const {type_}*" if formal.mode is Mode.IN else f"{type_}*"
    return type_


def row_sizes(dims: Sequence[Sym | None]) -> tuple[int, ...]:
    """The number of elements of a row, for each number of constant last dimensions: 3, 6 for `[n, 2, 3]`."""
    sizes: list[int] = []
    for dim in reversed(dims[1:]):
        if not isinstance(dim, Const) or not isinstance(dim.value, int):
            break
        sizes.append(dim.value * (sizes[-1] if sizes else 1))
    return tuple(sizes)


def _template_argument(argument: Sym | ElementType, env: Mapping[str, Sym]) -> str:
    if isinstance(argument, ElementType):
        return argument.cxx
    value = substitute(argument, env)
    return cxx_value(value.value) if isinstance(value, Const) and not isinstance(value.value, Fraction) else str(value)

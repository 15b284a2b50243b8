"""The kernels of the program: those of the application by their names in its unchanged files, where the language can
launch them so; else through a function in a file beside the program, which includes theirs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.cuda.lexer import expanded, macros_of
from dagc.cuda.syntax import NotUnderstood
from dagc.cuda.text import additions_of
from dagc.record.arrays import Arrays, FreeNames, RecordedArray, Values
from dagc.record.commands import WRITTEN
from dagc.record.flow import KernelCall, PointerArgument, ScalarArgument
from dagc.record.host import HostWork
from dagc.record.libraries import HEADER, START, FunctionArgument, function_text
from dagc.record.log import PIECES, Pieces, joined
from dagc.record.merge import MemoryBlock, ProgramStep
from dagc.record.sources import SCALARS, KernelSource, Sources, element_of, grid_text, named, value_of, variable_of
from dagc.record.split import RowPart, parts_of, rows_of, value_of_stride

C_TYPES = {"f32": "float", "f64": "double", **{f"{s}{n}": f"std::{'u' if s == 'u' else ''}int{n}_t"
            for s in "iu" for n in (8, 16, 32, 64)}, "bool": "bool"}  # fmt: skip


_OF_KERNELS = """// Calls for what a program cannot do by the names of kernels alone: pointers into arrays, structs,
// variables.
#define main main_of_the_application
#include "{file}"
#undef main
#include <cstdint>
#include <cstring>

"""


@dataclass(frozen=True, slots=True)
class BoundPointer:
    """A pointer of a call: its array, and the bytes before it there on each rank (None: not called there). `touched`:
    what the call touches of the array on each rank; None: not known, or not called there."""

    array: RecordedArray
    offsets: tuple[int | None, ...]
    pointer: PointerArgument
    only_read: bool
    touched: tuple[Pieces | None, ...]

    @property
    def moved(self) -> bool:
        return any(self.offsets)

    @property
    def known(self) -> bool:
        """Whether it was recorded what each rank touches."""
        return all(at is None or its is not None for at, its in zip(self.offsets, self.touched, strict=True))


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """A kernel of the program. `arrays`: the arguments that are arrays, by their positions in the call; `offsets`:
    those whose distance from the beginning is passed; `axes`: those whose number of blocks is passed."""

    name: str
    direct: bool
    formals: tuple[str, ...]
    arrays: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


class Kernels:
    """The kernels of all steps, and the calls of them."""

    def __init__(
        self,
        program: str,
        steps: Sequence[ProgramStep],
        arrays: Arrays,
        values: Values,
        sources: Sources,
        symbols: Sequence[MemoryBlock],
        host: HostWork,
    ) -> None:
        self._program, self._arrays, self._values, self._sources = program, arrays, values, sources
        self._names, self._host = FreeNames(), host
        self._of_step: dict[int, RecordedKernel] = {}
        self._wrappers: dict[str, RecordedKernel] = {}
        self._library: dict[str, str] = {}  # text of a function that calls one of a library -> its name
        self._bodies: dict[KernelSource, str] = {}  # with the macros that they see
        self._fills: dict[str, str] = {}
        self._keeps: dict[str, str] = {}
        self._packs: dict[str, str] = {}
        self._wait = ""
        self.texts: list[str] = []  # of the program
        # File of the application -> functions that need it.
        self.files: dict[str, list[str]] = {sources.file_of_variable(symbol): [] for symbol in symbols}
        self.files |= {file: [] for file in host.files()}
        groups: dict[tuple[object, ...], list[tuple[int, ProgramStep]]] = {}
        for number, step in enumerate(steps):
            call = step.first
            if isinstance(call, KernelCall):
                computed = tuple(host.of(number))
                pointers = tuple(isinstance(one, PointerArgument) for one in call.args)
                key = (call.kernel, call.block, call.shared, pointers, computed)
                groups.setdefault(key, []).append((number, step))
        later = []
        for members in groups.values():
            bounds = [self.bound(*m) for m in members]
            kept = {k for k in bounds[0] if all(k in bound and bound[k].only_read for bound in bounds)}
            direct = [m for m in members if self._can_be_direct(*m, kept)]
            grids = self._grids(direct)
            if None in grids:
                direct = []
            for number, step in members:
                if (number, step) not in direct or not self._from_memory(*members[0]):
                    host.drop(number)
                if (number, step) not in direct:
                    self._of_step[number] = self._wrapped(number, step)
            if direct:
                self._by_pointer(*direct[0])
                later.append((direct, [str(grid) for grid in grids], kept))
        for one in later:  # a file with functions of ours is compiled once, with them
            self._direct(*one)

    # ---- what a call passes ----

    def _source(self, call: KernelCall) -> KernelSource:
        """Raises UsageError."""
        source = self._sources.kernel(call)
        if source is None:
            raise UsageError(
                f"{call.at}: the definition of the kernel {call.kernel} is in no file of the application",
                "name its file with --host or --source, or the directory of a header with -I",
            )
        return source

    def bound(self, number: int, step: ProgramStep) -> dict[int, BoundPointer]:
        """By argument. Raises UsageError for pointers to unknown memory, or to several arrays."""
        first, out = step.first, {}
        assert isinstance(first, KernelCall)
        for index, one in enumerate(first.args):
            if not isinstance(one, PointerArgument):
                continue
            offsets: list[int | None] = []
            touched: list[Pieces | None] = []
            array, only_read = None, True
            for rank, ops in enumerate(step.ops):
                arg = ops[0].args[index] if ops and isinstance(ops[0], KernelCall) else None
                if not isinstance(arg, PointerArgument) or self._is_null(first, index, arg):
                    offsets.append(None)
                    touched.append(None)
                    continue
                found, before = self._arrays.find(number, step, rank, str(index), arg.place)
                if array is not None and found is not array:
                    raise UsageError(
                        f"{first.at}: argument {index + 1} of {first.kernel} is another array on rank {rank}"
                    )
                array, only_read = found, only_read and arg.writes_none
                offsets.append(before)
                both = None if arg.reads is None or arg.writes is None else (*arg.reads, *arg.writes)
                touched.append(None if both is None else joined(both, PIECES))
            if array is not None:
                out[index] = BoundPointer(array, tuple(offsets), one, only_read, tuple(touched))
        return out

    @staticmethod
    def _is_null(call: KernelCall, index: int, pointer: PointerArgument) -> bool:
        if pointer.place.block is not None:
            return False
        if pointer.place.offset:
            raise UsageError(
                f"{call.at}: argument {index + 1} of {call.kernel} points to memory that no recorded call allocated",
                "allocate it with cudaMalloc, cudaMallocHost or cudaHostAlloc",
            )
        return True

    def _can_be_direct(self, number: int, step: ProgramStep, kept: Collection[int]) -> bool:
        """`kept`: the arguments that no call of the kernel writes to."""
        call = step.first
        assert isinstance(call, KernelCall)
        source, bound = self._source(call), self.bound(number, step)
        if not named(call.kernel) or (source.template and "<" not in call.kernel):
            return False
        users: dict[str, list[bool]] = {}
        for index, one in enumerate(call.args):
            if isinstance(one, ScalarArgument):
                if one.of not in SCALARS:
                    return False
                continue
            if index not in bound:
                return False
            array = bound[index].array
            users.setdefault(array.name, []).append(index in kept)
            if element_of(one) != (array.of, array.per):
                return False
            if any(at % array.width for at in bound[index].offsets if at):
                return False
            if bound[index].moved and not bound[index].known:
                return False
        return all(len(consts) == 1 or all(consts) for consts in users.values())

    def _grids(self, members: Sequence[tuple[int, ProgramStep]]) -> list[str | None]:
        calls = [call for _, step in members for call in _calls(step)]
        if not calls:
            return []
        return [grid_text(axis, calls, _formal_names(self._source(calls[0]), calls[0])) for axis in range(3)]

    # ---- kernels ----

    def _file(self, source: str) -> str:
        return self.calls_file(source) if source in self.files else source

    def calls_file(self, source: str) -> str:
        """The file of functions that need a file of the application."""
        return f"{self._program}_calls_{Path(source).stem}.cu"

    def uses(self, source: str) -> bool:
        """Whether a kernel of the program names a file of the application, or one that includes it."""
        return source in self.files or any(f'from "{source}"' in text for text in self.texts)

    def _from_memory(self, number: int, step: ProgramStep) -> bool:
        """Whether a copy of the kernel's text can read arguments from memory."""
        call = step.first
        assert isinstance(call, KernelCall)
        source = self._source(call)
        name = call.kernel.strip()
        if call.calls:
            return True
        return not source.template and name.isidentifier() and name.isascii() and bool(source.body)

    def _by_pointer(self, number: int, step: ProgramStep) -> None:
        """The function of a kernel that gets what the host computes by pointers."""
        call, computed = step.first, self._host.of(number)
        assert isinstance(call, KernelCall)
        if not computed or call.calls:
            return
        source, base = self._source(call), _base(call)
        words = [f"*{name}" if str(i) in computed else name for i, name in enumerate(source.parameters)]
        declared = [
            f"const {C_TYPES[one.of]}* {name}" if str(i) in computed else text
            for i, (one, name, text) in enumerate(zip(call.args, source.parameters, source.declared, strict=True))
        ]
        name = self._pointer_name(base, computed)
        self.files.setdefault(source.file, []).append(
            f"// {base} of {source.file}, which gets what the host computes from memory.\n"
            f"static __device__ void {name}_body({', '.join(source.declared)}) {source.body}\n"
            f"__global__ void {name}({', '.join(declared)}) {{\n  {name}_body({', '.join(words)});\n}}\n"
        )

    @staticmethod
    def _pointer_name(base: str, computed: Collection[str]) -> str:
        return "_".join([base, "by", *computed])

    def _direct(self, members: Sequence[tuple[int, ProgramStep]], grids: Sequence[str], kept: Collection[int]) -> None:
        call = members[0][1].first
        assert isinstance(call, KernelCall)
        source, bound = self._source(call), self.bound(*members[0])
        names = _formal_names(source, call)
        computed = self._host.of(members[0][0])
        formals = [
            f"{name}: in {one.of}[1]" if str(index) in computed
            else f"{name}: {one.of}" if isinstance(one, ScalarArgument)
            else bound[index].array.formal(name, "in" if index in kept else self._written(call, index, bound))
            for index, (one, name) in enumerate(zip(call.args, names, strict=True))
        ]  # fmt: skip
        kernel = RecordedKernel(self._names.free(_base(call)), True, tuple(names))
        if call.calls:
            code = self._calling(self._library_function(call, computed, names), source.file, call.calls)
        else:
            shared = f" shared({call.shared})" if call.shared else ""
            function = self._pointer_name(_base(call), computed) if computed else named(call.kernel)
            blocks = ", ".join(_trimmed(list(map(str, call.block))))
            code = (
                f"gpu {{\n    launch grid({', '.join(_trimmed(grids))}) block({blocks}){shared}\n"
                f'    cuda {function} from "{self._file(source.file)}"\n  }}'
            )
        self.texts.append(f"kernel {kernel.name}({', '.join(formals)}) {{\n  {code}\n}}")
        for number, _ in members:
            self._of_step[number] = kernel

    def _written(self, call: KernelCall, index: int, bound: Mapping[int, BoundPointer]) -> str:
        """The mode of an argument that is written: `accumulate` if the text of the kernel says that it only adds."""
        source, array = self._source(call), bound[index].array.name
        others = any(i != index and one.array.name == array for i, one in bound.items())
        if others or not source.body:
            return "inout"
        if source not in self._bodies:
            self._bodies[source] = expanded(source.body, macros_of([self._sources.seen_by(source.file)]))
        try:
            used = additions_of(self._bodies[source], source.parameters[index])
        except NotUnderstood:
            return "inout"
        return "accumulate" if used.adds and not (used.other or used.passed) else "inout"

    def _wrapped(self, number: int, step: ProgramStep) -> RecordedKernel:
        call = step.first
        assert isinstance(call, KernelCall)
        if not named(call.kernel) and not self._sources.kernel(call):
            raise UsageError(
                f"{call.at}: {call.kernel} is launched, which is no function", "launch kernels by their names"
            )
        source = self._source(call)
        bound = self.bound(number, step)
        modes = {index: self._written(call, index, bound) for index in bound}
        names = _formal_names(source, call)
        function = f"{self._library_function(call, (), names)}({{}}, stream);" if call.calls else ""
        wrapper = _Wrapper(call, step, bound, modes, names, function)
        kernel, formals, text = wrapper.written()
        if text not in self._wrappers:
            kernel = replace(kernel, name=self._names.free(f"{_base(call)}_call"))
            self._wrappers[text] = kernel
            self.files.setdefault(source.file, []).append(f"// {call.at}\nvoid {kernel.name}{text}")
            code = self._calling(kernel.name, source.file, call.calls)
            self.texts.append(f"kernel {kernel.name}({formals}) {{\n  {code}\n}}")
        return self._wrappers[text]

    def _calling(self, name: str, source: str, library: str = "") -> str:
        """The implementation that is a function in the file of functions of `source`."""
        link = f'link "{library}"  ' if library else ""
        return f'gpu {{ {link}cpp {name} from "{self.calls_file(source)}" }}'

    def _library_function(self, call: KernelCall, computed: Collection[str], names: Sequence[str]) -> str:
        """The name of a function that calls one of a library; `computed`: the arguments in memory of the GPU."""
        arguments = []
        for index, (one, name) in enumerate(zip(call.args, names, strict=True)):
            there = str(index) in computed
            of = one.type if one.of == "struct" or isinstance(one, PointerArgument) else C_TYPES[one.of]
            if isinstance(one, PointerArgument):
                of = f"{'const ' if one.const else ''}{of}*"
                arguments.append(FunctionArgument(name, of))
            else:
                cast = one.type if one.type.startswith("cublas") else ""
                arguments.append(FunctionArgument(name, f"const {of}*" if there else of, one.referred, there, cast))
        text = function_text(call.kernel, arguments)
        if text not in self._library:
            self._library[text] = FreeNames(tuple(self._library.values())).free(f"{_base(call)}_on_stream")
            self.files.setdefault(HEADER, []).append(f"void {self._library[text]}{text}")
        return self._library[text]

    # ---- calls ----

    def call(self, number: int, step: ProgramStep) -> tuple[str, list[str]]:
        """The text of a call, and the names of the arguments that the host computed."""
        kernel, bound, call = self._of_step[number], self.bound(number, step), step.first
        assert isinstance(call, KernelCall)
        scalars, computed = list[str](), []
        for index, one in enumerate(call.args):
            if str(index) in self._host.of(number):
                scalars.append(f"{self._host.of(number)[str(index)].name}_there")
            elif isinstance(one, ScalarArgument):
                for name, column in scalars_of(step, index, one, kernel.formals[index]):
                    text, differs = self._values.scalar(column, name)
                    scalars.append(text)
                    computed += [name] if differs else []
        if kernel.direct:
            left = iter(scalars)
            words = [
                self._slice(bound[i], kernel.formals[i]) if i in bound else next(left) for i in range(len(call.args))
            ]
        else:
            number_of = self._values.number
            words = [bound[i].array.name + self._touching(bound[i], kernel.formals[i]) for i in kernel.arrays]
            words += [number_of(bound[i].offsets, f"{kernel.formals[i]}_at") for i in kernel.offsets]
            words += scalars
            for axis in kernel.axes:
                grids = [c[0].grid[axis] if c and isinstance(c[0], KernelCall) else None for c in step.ops]
                words.append(number_of(grids, f"grid_{'xyz'[axis]}"))
        return f"{kernel.name}({', '.join(words)})", computed

    def split(
        self, number: int, step: ProgramStep, received: Mapping[str, Sequence[tuple[int, int]]]
    ) -> tuple[tuple[RowPart, str], ...]:
        """The calls of parts of the rows of a call, so that what most rows compute needs nothing that is received:
        `received`, bytes of arrays by their names. None of them if the rows are not known to be independent."""
        kernel, bound, call = self._of_step[number], self.bound(number, step), step.first
        assert isinstance(call, KernelCall)
        if not kernel.direct or self._host.of(number) or len({one.grid for one in _calls(step)}) != 1:
            return ()
        source = self._source(call)
        arrays = [source.parameters[i] for i in bound]
        values = {
            name: int(value_of(one))
            for name, one in zip(source.parameters, call.args, strict=True)
            if isinstance(one, ScalarArgument)
            and one.of[0] in "iu"
            and _is_same(step, one, source.parameters.index(name))
        }
        rows = rows_of(source.body, arrays, values) if source.body else None
        if rows is None or any(len(set(one.offsets)) != 1 or len(set(one.touched)) != 1 for one in bound.values()):
            return ()
        strides = {i: value_of_stride(rows.strides.get(source.parameters[i], {}), values) for i in bound}
        count = values[rows.count] + rows.more
        spans = {i: _span_of(one) for i, one in bound.items()}
        if None in strides.values() or None in spans.values():
            return ()
        known = [(*spans[i], (strides[i] or 0) * one.array.width) for i, one in bound.items()]  # type: ignore[misc]
        parts = parts_of(count, known, [received.get(one.array.name, ()) for one in bound.values()])
        at = source.parameters.index(rows.count)
        return tuple((part, self._part(part, step, kernel, bound, strides, count, (at, rows.more))) for part in parts)

    def _part(
        self, part: RowPart, step: ProgramStep, kernel: RecordedKernel, bound: Mapping[int, BoundPointer],
        strides: Mapping[int, int | None], count: int, rows: tuple[int, int],
    ) -> str:  # fmt: skip
        """The call of a part of `count` rows. `rows`: the argument with their number, and how many more they are."""
        words = []
        for i, one in enumerate(step.first.args if isinstance(step.first, KernelCall) else ()):
            if i in bound:
                width = (strides[i] or 0) * bound[i].array.width
                words.append(self._slice(_moved(bound[i], part, count, width), kernel.formals[i]))
            elif i == rows[0]:
                words.append(str(part.end - part.begin - rows[1]))
            elif isinstance(one, ScalarArgument):
                words.append(self._values.scalar(_column(step, i), kernel.formals[i])[0])
        return f"{kernel.name}({', '.join(words)})"

    def _slice(self, bound: BoundPointer, hint: str) -> str:
        """The rest of the array, from the pointer on, and what is touched."""
        array, touching = bound.array, self._touching(bound, hint)
        if not bound.moved:
            return f"{array.name}{touching}"
        begins = [None if at is None else at // array.width for at in bound.offsets]
        ends = [count // array.per for count in array.counts]
        begin, end = self._values.bound(begins, f"{hint}_begin"), self._values.bound(ends, f"{array.name}_size")
        return f"{array.name}[{begin} .. {end}]{touching}"

    def _touching(self, bound: BoundPointer, hint: str) -> str:
        """The rows that the call touches: the same on all ranks if their arrays are of one size, so that it is known
        when the program is compiled whether an exchange needs them."""
        array = bound.array
        if not bound.known:
            return ""
        rows = [
            None if pieces is None else joined([(a // array.width, -(-b // array.width)) for a, b in pieces], PIECES)
            for pieces in bound.touched
        ]
        sizes = {count // array.per for count in array.counts}
        if len(sizes) == 1:
            every = joined(chain(*(one for one in rows if one is not None)), PIECES) or ((0, 0),)
            if every == ((0, *sizes),):
                return ""
            return " touching " + "".join(f"[{a} .. {b}]" for a, b in every)
        begins = [one[0][0] if one else None if one is None else 0 for one in rows]
        ends = [one[-1][1] if one else None if one is None else 0 for one in rows]
        begin, end = self._values.bound(begins, f"{hint}_from"), self._values.bound(ends, f"{hint}_to")
        return f" touching [{begin} .. {end}]"

    # ---- kernels that the application does not have ----

    def fill(self, array: RecordedArray) -> str:
        """The name of a kernel that fills a part of an array."""
        if array.of not in self._fills:
            name = self._fills[array.of] = self._names.free(f"fill_{array.of}")
            self.texts.append(
                f"kernel {name}(target: inout {array.of}[*], value: i32, n: i64) {{\n"
                f'  gpu {{ cpp """ cudaMemsetAsync(target, value, n * sizeof(*target), stream); """ }}\n}}'
            )
        return self._fills[array.of]

    def fill_rows(self, array: RecordedArray, amounts: Sequence[str]) -> str:
        """The name of a kernel that fills rows; `amounts`: its parameters."""
        name = self._names.free("fill_rows")
        formals = [array.formal("target", "inout"), "value: i32", *(f"{amount}: i64" for amount in amounts)]
        self.texts.append(
            f'kernel {name}({", ".join(formals)}) {{\n  gpu {{\n    cpp """\n'
            "      cudaMemset2DAsync(reinterpret_cast<char*>(target) + to_at, to_pitch, value, width, rows, stream);\n"
            '    """\n  }\n}'
        )
        return name

    def host_wait(self) -> str:
        """The name of a kernel of the host that only its edges order."""
        if not self._wait:
            self._wait = self.host_code("host_wait", (), "// All before it has completed.")
        return self._wait

    def host_code(self, name: str, formals: Sequence[str], body: str) -> str:
        """The name of a kernel of the host."""
        name = self._names.free(name)
        lines = "".join(f"      {line}\n" for line in body.splitlines())
        self.texts.append(f'kernel {name}({", ".join(formals)}) {{\n  cpu {{\n    cpp """\n{lines}    """\n  }}\n}}')
        return name

    def host_function(self, name: str, formals: Sequence[str], body: str, file: str) -> str:
        """The name of a kernel of the host that is a function in the file of functions of `file`. `formals`: `a: out
        f64[1]`, all arrays."""
        name = self._names.free(name)
        words = [re.fullmatch(r"(\w+): (\w+) (\w+)\[.*\]", formal) for formal in formals]
        given = [f"{'const ' if w[2] == 'in' else ''}{C_TYPES[w[3]]}* {w[1]}" for w in words if w is not None]
        lines = "".join(f"  {line}\n" for line in body.splitlines())
        self.files[file].append(f"void {name}({', '.join(given)}) {{\n{lines}}}\n")
        self.texts.append(
            f'kernel {name}({", ".join(formals)}) {{\n  cpu {{ cpp {name} from "{self.calls_file(file)}" }}\n}}'
        )
        return name

    def keep(self, of: str) -> str:
        """The name of a kernel that keeps what the host has."""
        if of not in self._keeps:
            formals = (f"kept: inout {of}[*]", f"now: in {of}[*]", "n: i64")
            self._keeps[of] = self.host_code(f"keep_{of}", formals, "for (long i = 0; i < n; ++i) kept[i] = now[i];")
        return self._keeps[of]

    def copy_rows(self, to: RecordedArray, source: RecordedArray, amounts: Sequence[str], mode: str) -> str:
        """The name of a kernel that copies rows; `amounts`: its parameters; `mode`: what it does to its target."""
        name, same = self._names.free("copy_rows"), to is source
        formals = [to.formal("target", "inout" if same else mode), *([] if same else [source.formal("source", "in")])]
        formals += [f"{amount}: i64" for amount in amounts]
        self.texts.append(
            f'kernel {name}({", ".join(formals)}) {{\n  gpu {{\n    cpp """\n'
            f"      const char* from = reinterpret_cast<const char*>({'target' if same else 'source'}) + from_at;\n"
            "      cudaMemcpy2DAsync(reinterpret_cast<char*>(target) + to_at, to_pitch, from, from_pitch,\n"
            f'                        width, rows, cudaMemcpyDefault, stream);\n    """\n  }}\n}}'
        )
        return name

    def pack(self, array: RecordedArray, packs: bool) -> str:
        """The name of a kernel that packs rows of an array into a buffer, or unpacks them."""
        name = f"{'pack' if packs else 'unpack'}_{array.of}{'' if array.per == 1 else f'_{array.per}'}"
        if name not in self._packs:
            self._packs[name] = self._names.free(name)
            modes = ("out", "in") if packs else ("in", "inout")
            formals = [array.formal(name, mode) for name, mode in zip(("packed", "all"), modes, strict=True)]
            formals += [f"{amount}: i64" for amount in ("at", "width", "rows", "pitch", "planes", "plane")]
            there = "all[at + i / (width * rows) * plane + i / width % rows * pitch + i % width]"
            copies = f"packed[i] = {there};" if packs else f"{there} = packed[i];"
            self.texts.append(
                f"kernel {self._packs[name]}({', '.join(formals)}) {{\n  gpu {{\n"
                f'    launch grid(ceil(width * rows * planes / 256)) block(256)\n    cuda """\n'
                "      const std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x;\n"
                f'      if (i < width * rows * planes) {copies}\n    """\n  }}\n}}'
            )
        return self._packs[name]

    def set_symbol(self, symbol: MemoryBlock, array: RecordedArray) -> str:
        """The name of a kernel that sets a variable of the GPU's memory from an array."""
        name = self._names.free(f"set_{array.name}")
        variable, size = variable_of(symbol), max(size or 0 for size in symbol.bytes)
        file = self._sources.file_of_variable(symbol)
        self.files[file].append(
            f"void {name}(const {C_TYPES[array.of]}* value, cudaStream_t stream) {{\n"
            f"  cudaMemcpyToSymbolAsync({variable}, value, {size}, 0, cudaMemcpyDeviceToDevice, stream);\n}}\n"
        )
        code = self._calling(name, file)
        self.texts.append(f"kernel {name}({array.formal('value', 'in')}) {{\n  {code}\n}}")
        return name

    def calls(self) -> dict[str, str]:
        """The texts of the files of functions, by their names."""
        return {
            self.calls_file(file): f"{WRITTEN}\n{START if file == HEADER else _OF_KERNELS.format(file=file)}"
            + "\n".join(functions)
            for file, functions in self.files.items()
        }  # fmt: skip


class _Wrapper:
    """The text of a function that launches a kernel, but for its name."""

    def __init__(
        self, call: KernelCall, step: ProgramStep, bound: dict[int, BoundPointer], modes: Mapping[int, str],
        names: Sequence[str], function: str = "",
    ) -> None:  # fmt: skip
        """`modes`: of the arguments that are written; `function`: the text of a call in place of a launch."""
        self._call, self._step, self._bound, self._modes, self._names = call, step, bound, modes, names
        self._free, self._function = FreeNames(names), function
        self._formals: list[str] = []
        self._parameters: list[str] = []
        self._setup: list[str] = []

    def written(self) -> tuple[RecordedKernel, str, str]:
        """The kernel without its name, its formals, and the text of the function from its parameters on."""
        first: dict[str, int] = {}  # array -> the first argument that points to it
        for index, one in self._bound.items():
            first.setdefault(one.array.name, index)
        only = {name: all(b.only_read for b in self._bound.values() if b.array.name == name) for name in first}
        for name, index in first.items():
            array, formal, const = self._bound[index].array, self._names[index], "const " if only[name] else ""
            self._formals.append(array.formal(formal, "in" if only[name] else self._modes[index]))
            self._parameters.append(f"{const}{C_TYPES[array.of] if array.per == 1 else 'void'}* {formal}")
        offsets = {i: self._integer(f"{self._names[i]}_at") for i, one in self._bound.items() if one.moved}
        words = []
        for index, arg in enumerate(self._call.args):
            if isinstance(arg, ScalarArgument):
                words.append(self._by_value(index, arg))
            elif index not in self._bound:
                words.append("nullptr")
            else:
                name = self._bound[index].array.name
                words.append(_pointer(arg, self._names[first[name]], only[name], offsets.get(index, "")))
        axes, launch = self._launch()
        call = self._function.format(", ".join(words)) if self._function else f"{launch}({', '.join(words)});"
        lines = [*self._setup, call]
        kernel = RecordedKernel("", False, tuple(self._names), tuple(first.values()), tuple(offsets), tuple(axes))
        body = "".join(f"  {line}\n" for line in lines)
        return (
            kernel,
            ", ".join(self._formals),
            f"({', '.join([*self._parameters, 'cudaStream_t stream'])}) {{\n{body}}}\n",
        )

    def _launch(self) -> tuple[list[int], str]:
        """The axes whose number of blocks is passed, and the text of the launch up to its arguments."""
        axes, sizes = [], []
        for axis in range(3):
            blocks = {call.grid[axis] for call in _calls(self._step)}
            if len(blocks) > 1:
                axes.append(axis)
                sizes.append(f"static_cast<unsigned int>({self._integer('grid_' + 'xyz'[axis])})")
            else:
                sizes.append(str(blocks.pop()))
        launch = f"dim3({', '.join(sizes)}), dim3({', '.join(map(str, self._call.block))}), {self._call.shared}, stream"
        return axes, f"{self._call.kernel.strip()}<<<{launch}>>>"

    def _integer(self, wanted: str) -> str:
        name = self._free.free(wanted)
        self._formals.append(f"{name}: i64")
        self._parameters.append(f"std::int64_t {name}")
        return name

    def _by_value(self, index: int, one: ScalarArgument) -> str:
        """A struct is written as its bytes, and those that differ between ranks or rounds are passed as words."""
        name = self._names[index]
        scalars = scalars_of(self._step, index, one, name)
        for formal, column in scalars:
            of = next(c[0].of for c in column if c)
            self._formals.append(f"{formal}: {of}")
            self._parameters.append(f"{C_TYPES[of]} {formal}")
        if one.of in SCALARS:
            return name
        data = ", ".join(f"0x{one.hex[i : i + 2]}" for i in range(0, len(one.hex), 2))
        self._setup += [
            f"static const unsigned char {name}_bytes[] = {{{data}}};",
            f"alignas({one.type}) unsigned char {name}_copy[sizeof({one.type})];",
            f"std::memcpy({name}_copy, {name}_bytes, sizeof {name}_copy);",
            *(f"std::memcpy({name}_copy + {f.rpartition('_')[2]}, &{f}, sizeof {f});" for f, _ in scalars),
        ]
        return f"*reinterpret_cast<{one.type}*>({name}_copy)"


def _pointer(one: PointerArgument, array: str, only_read: bool, offset: str) -> str:
    """A pointer of a call, made of the parameter that has the array."""
    const = "const " if one.const else ""
    if not offset and one.of != "struct" and only_read == one.const and one.type not in ("", "void"):
        return f"reinterpret_cast<{const}{one.type}*>({array})"
    bytes = f"reinterpret_cast<{'const ' if only_read else ''}char*>({array})"
    bytes = f"const_cast<char*>({bytes})" if only_read and not one.const else bytes
    return f"reinterpret_cast<{const}{one.type or 'void'}*>({bytes}{' + ' + offset if offset else ''})"


def _span_of(bound: BoundPointer) -> tuple[int, int] | None:
    """The bytes from the first to the last that is touched; None if that was not recorded."""
    pieces = bound.touched[0]
    return (pieces[0][0], pieces[-1][1]) if pieces else None


def _moved(bound: BoundPointer, part: RowPart, count: int, row: int) -> BoundPointer:
    """The pointer of a part of `count` rows of so many bytes, and what it touches."""
    span = _span_of(bound)
    assert span is not None
    touched = ((span[0] + part.begin * row, span[1] - (count - part.end) * row),)
    offsets = tuple(None if at is None else at + part.begin * row for at in bound.offsets)
    return replace(bound, offsets=offsets, touched=tuple(touched for _ in bound.touched))


def _is_same(step: ProgramStep, one: ScalarArgument, index: int) -> bool:
    """Whether all calls of a step pass this value."""
    return all(arg.hex == one.hex for column in _column(step, index) for arg in column or ())


def _column(step: ProgramStep, index: int) -> list[list[ScalarArgument] | None]:
    """An argument on each rank in each round."""
    return [
        [a for call in ops if isinstance(call, KernelCall) for a in [call.args[index]] if isinstance(a, ScalarArgument)]
        if ops else None
        for ops in step.ops
    ]  # fmt: skip


def scalars_of(
    step: ProgramStep, index: int, one: ScalarArgument, name: str
) -> list[tuple[str, list[list[ScalarArgument] | None]]]:
    """What a call passes for an argument by value: itself, or of a struct the words that differ between ranks or
    rounds, with the byte where each begins in its name."""
    column = _column(step, index)
    if one.of in SCALARS:
        return [(name, column)]
    digits = 8 if len(one.hex) % 8 == 0 else 2
    of = "i32" if digits == 8 else "u8"
    words = [
        (at, [[replace(a, of=of, hex=a.hex[at : at + digits]) for a in row] if row else None for row in column])
        for at in range(0, len(one.hex), digits)
    ]
    return [(f"{name}_{at // 2}", word) for at, word in words if len({a.hex for row in word for a in row or ()}) > 1]


def _calls(step: ProgramStep) -> Iterator[KernelCall]:
    return (op for ops in step.ops for op in ops or () if isinstance(op, KernelCall))


def _base(call: KernelCall) -> str:
    """The name in the program; the library's are macros in its header."""
    if call.calls:
        return call.kernel.removeprefix(call.calls).lower()
    return call.kernel.split("<")[0].rpartition("::")[2].strip()


def _formal_names(source: KernelSource, call: KernelCall) -> list[str]:
    """The names of the parameters, free of the language's words."""
    names = FreeNames(["stream"])
    return [names.free(source.parameters[i] or f"a{i}") for i in range(len(call.args))]


def _trimmed(sizes: Sequence[str]) -> list[str]:
    out = list(sizes)
    while len(out) > 1 and out[-1] == "1":
        out.pop()
    return out

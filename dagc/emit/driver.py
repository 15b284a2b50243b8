"""Views of `driver.py` (a traversal with PyCUDA and mpi4py).

Python text is made here, since an op takes only a line or two; the template has the frame.

PyCUDA and mpi4py handle memory, streams, events, waits, kernels of `kernels.cu`, contiguous copies, and MPI messages.
The rest is in `libdriver.so`, compiled from `driver.cu`, which includes the `program.hpp` and `iteration.hpp` of the
C++ program. It has a C function for each op that Python cannot issue (messages by NCCL or in the memory of other GPUs,
code for the CPU, C++ code that issues its own work, functions of files, ops whose launch or variant is chosen when the
program runs, ops on arrays `on any`, copies of columns, alltoallv), and functions that capture and launch CUDA graphs.
It is written only if needed.

    context   Python retains and pushes the primary context of its GPU, which is that of the CUDA runtime in the library
    memory    Python allocates it and passes the addresses to the library by name; the library allocates the rest
    streams   Python creates them; the library gets an op's stream as an integer, and has no events
    failures  the library prints them and ends all ranks, as the C++ program does

`__device__` variables of the program would exist twice, once in the module of PyCUDA. If a program has such variables
and any op is issued by the library, the library issues all kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from dagc.base.errors import DagcError
from dagc.cuda.text import has_gpu_variable
from dagc.emit.common import Emission
from dagc.emit.forms import BeginCapture, EndCapture, never_captured, steps
from dagc.emit.iteration import SYNC_OPS, EntryView, IterationView, TableOpView, iteration_view, table_ops
from dagc.emit.layout import Layout
from dagc.emit.program import ROLES
from dagc.emit.render import PYTHON, Expressions, Names, place
from dagc.forms import kernel_of
from dagc.ir import program as ir
from dagc.ir.constraints import alike, may_not_hold
from dagc.ir.enums import CodeLang, ElementType, Pairs, Place, Role
from dagc.ir.names import data_file
from dagc.ir.plan import MEASURED, Features, Plan, named_features
from dagc.ir.regions import certain_regions
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free, show, substitute
from dagc.ir.traversal import Entry

# ---- views ----


# Format characters of `struct` for by-value arguments.
_LETTERS = {
    ElementType.I8: "b", ElementType.U8: "B", ElementType.I16: "h", ElementType.U16: "H", ElementType.I32: "i",
    ElementType.U32: "I", ElementType.I64: "q", ElementType.U64: "Q", ElementType.F32: "f", ElementType.F64: "d",
    ElementType.BOOL: "B",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PyEntry:
    comment: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PyRegion:
    """A capture region: its number, its launch stream, and the captured entries."""

    number: int
    origin: str
    entries: tuple[PyEntry, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class DriverView:
    """Texts are Python."""

    members: tuple[tuple[str, str], ...]  # of the program, with what makes them: values, communicators, arrays
    verifies: tuple[tuple[int, str], ...]  # after so many runs
    streams: str  # names of the streams, "" for none
    stream_count: int
    events: str
    repeat: str  # maximal number of consecutive runs, 0: any
    functions: tuple[str, ...]
    setup: tuple[str, ...]
    regions: tuple[PyRegion, ...]
    entries: tuple[PyEntry, ...]
    library: bool  # whether it needs libdriver.so
    ops: tuple[tuple[int, TableOpView], ...]  # those of libdriver.so, with their numbers in the graph


# What `bind` uses, besides names with a number: `s0`, `e0`, `op_0`, `graph_0`, `region_0`.
_LOCALS = "p library module streams iteration dagc cuda MPI list count at".split()


def why_no_driver(plan: Plan) -> str:
    """Why a Python driver cannot run this program, "" if it can."""
    if plan.chooser is not None and plan.chooser.mode is Features.BESIDE:
        return "choices are made during the first runs, which only the C++ program supports"
    if plan.program.devices != ir.Devices():
        return "it has several GPUs or sockets, which only the C++ program uses"
    if plan.program.orders_ranks:
        return "rank_order=neighbours starts with an order of the ranks, which only the C++ program computes"
    return ""


def driver_view(plan: Plan, views: Emission) -> DriverView:
    """Raises DagcError if `why_no_driver` gives a reason."""
    if reason := why_no_driver(plan):
        raise DagcError(f"there is no Python driver for this program: {reason}")
    return _Driver(plan, views).view()


class _Theirs:
    """The ops of a plan that libdriver.so issues."""

    def __init__(self, plan: Plan, views: Emission) -> None:
        self.plan, self.layout, self.functions = plan, views.layout, views.functions
        ops, arrays = plan.graph.ops, self.layout.arrays
        any_ = {name for name, array in arrays.items() if array.place is Place.ANY}
        on_any = [ops[t.begin].op for t in plan.graph.touches if t.region.array in any_]
        # All ops of an exchange or none, since the requests belong to the side that posts it.
        numbers = {op.id for op in ops if self._needs(op) or any(op.op is one for one in on_any)}
        code = (c.text for c in plan.program.code if c.text is not None)
        if numbers and any(map(has_gpu_variable, code)):  # each module would have its own
            numbers |= {op.id for op in ops if op.action is ir.Action.KERNEL}
        self.numbers = frozenset(numbers)

    def _needs(self, op: ir.GraphOp) -> bool:
        staged = (op.staged, *op.copy_in, *op.copy_out)
        if any(one is not None and one.pairs is not Pairs.ALL for one in (op, *staged)):
            return True  # the ranks of a host are known to the library
        if op.staged is not None and op.share is not None:
            return True  # as are the places of what neighbours get
        if op.action in (ir.Action.GROUP, ir.Action.FREE) or (op.action is ir.Action.END and self.layout.sides):
            return True
        match op.op:
            case ir.KernelOp() as kernel:
                return self._kernel(kernel)
            case ir.CopyOp() as copy:
                on_device = [self.layout.arrays[r.array].place is Place.DEVICE for r in (copy.dst, copy.src)]
                strided = copy.dst.columns is not None or copy.src.columns is not None
                return strided or not any(on_device) or self._computed(copy.when)
            case ir.CollectiveOp() as collective:
                return bool(collective.messages) or self._computed(collective.when)
            case _:
                return False

    def _kernel(self, op: ir.KernelOp) -> bool:
        """Whether a kernel or its call is more than a launch of a function in kernels.cu."""
        several = len(self.functions.settled(op)) > 1 or self.layout.opened.has(op)
        if op.placed or op.puts or op.awaits or op.passed or several:
            return True
        kernel, impl = kernel_of(self.plan.program, op)
        if impl.code is None or impl.code.lang is CodeLang.CPP or impl.launch is None or self.functions.is_entry(op):
            return True
        if impl.prepare is not None or named_features(kernel, impl, impl.code):
            return True
        if any(s.late for s in self.layout.scratch(op)):
            return True
        env = self.layout.formals(op)
        sizes = (*impl.launch.grid, *impl.launch.block, impl.launch.shared, op.when)
        values = [substitute(e, env) for e in sizes if e is not None]
        values += [a for a in op.args if not isinstance(a, ir.Region)]
        return any(map(self._computed, values))

    def _computed(self, expr: Sym | None) -> bool:
        return expr is not None and _computed(self.layout, expr)


def _computed(layout: Layout, expr: Sym) -> bool:
    """Whether only the C++ program knows its value: it names a feature, or a choice made when the program runs."""
    return any(n in layout.features or n in layout.tunable_member or n.startswith(MEASURED) for n in free(expr))


class _Driver:
    def __init__(self, plan: Plan, views: Emission) -> None:
        self.plan, self.layout, self.functions, self.steps = plan, views.layout, views.functions, views.steps
        theirs = _Theirs(plan, views).numbers
        every = enumerate(table_ops(plan.graph, self.steps))
        self.theirs = {i: op for i, op in every if i in theirs}  # those of libdriver.so
        self.setup: dict[str, None] = {}
        self.kernels: dict[str, str] = {}
        self.names = Names(_LOCALS)
        self.locals: dict[tuple[str, str], str] = {}

    def view(self) -> DriverView:
        program = self.plan.program
        self.setup.update(dict.fromkeys((*self._checks(), *self._values())))
        shape = iteration_view(self.plan.graph, self.plan.traversal, self.steps, self.plan.capture)
        entries, regions = self._entries(shape)
        return DriverView(
            members=tuple(self._members()),
            verifies=tuple(self._verify()),
            streams=_names("s", shape.streams),
            stream_count=shape.streams,
            events=f"{_names('e', shape.events)} = dagc.events({shape.events})" if shape.events else "",
            repeat=self._text(program.repeat, "program") if program.repeat is not None else "0",
            functions=tuple(self.kernels.values()),
            setup=tuple(self.setup),
            regions=regions,
            entries=entries,
            library=bool(self.theirs or regions),
            ops=tuple(self.theirs.items()),
        )

    def _entries(self, shape: IterationView) -> tuple[tuple[PyEntry, ...], tuple[PyRegion, ...]]:
        """The entries of an iteration, and the captured ones. There are no loops, since nothing is folded."""
        views = iter(shape.entries)
        entries: list[PyEntry] = []
        regions: list[PyRegion] = []
        inside: list[PyEntry] | None = None
        captured: Iterator[EntryView] = iter(())
        placed = steps(self.plan.traversal, self.plan.capture, never_captured(self.plan.graph))
        for step in (one.step for one in placed):
            match step:
                case BeginCapture():
                    region, view = shape.regions[step.region], next(views)
                    inside, captured = [], iter(region.entries)
                    launch = f"graph_{region.number}(s{region.origin}.handle)"
                    entries.append(PyEntry(view.comment, (launch,)))
                case EndCapture():
                    region = shape.regions[step.region]
                    assert inside is not None
                    regions.append(PyRegion(region.number, f"s{region.origin}", tuple(inside), region.comment))
                    inside = None
                case _ if inside is not None:
                    inside.append(self._entry(step, next(captured).comment))
                case _:
                    view = next(views)
                    entries.append(self._entry(step, view.comment))
        return tuple(entries), tuple(regions)

    def _checks(self) -> Iterator[str]:
        """`require`s and slices on which the order of the ops depends."""
        program = self.plan.program
        for require in program.requires:
            condition = require.condition
            if not _computed(self.layout, condition):
                what = f"{place(program, require)}require {show(condition)}"
                values = ", ".join(f"{name!r}: {self._text(Var(name))}" for name in sorted(free(condition)))
                yield f"dagc.check_require({self._text(condition)}, {what!r}, {{{values}}})"
        for region in dict.fromkeys(certain_regions(program)):
            for dimension, start, stop in region.slices:
                yield from self._within(region, start, stop, self.layout.arrays[region.array].dims[dimension])

    def _values(self) -> Iterator[str]:
        """By-value arguments that their formals may not hold, and what the ranks of a collective must have alike."""
        program = self.plan.program
        for op in program.kernel_ops:
            for formal, arg in zip(program.kernel(op.kernel).formals, op.args, strict=True):
                if isinstance(arg, ir.Region) or _computed(self.layout, arg) or not may_not_hold(program, formal, arg):
                    continue
                what = f"{place(program, op)}{op.name}, argument `{formal.name}` of {op.kernel}: {formal.type.value}"
                check = f"dagc.check_value({self._text(arg)}, {_LETTERS[formal.type]!r}, {what!r})"
                yield from self._guarded(op.when, [check])
        for one, what, value in alike(program):
            text = self._text(value) if isinstance(value, Sym) else f"{self._name(value.array)}.size"
            label = f"{place(program, one)}{one.name}: the {what}"
            check = f"dagc.compare_ranks(lambda: {text}, {self.layout.on(one.comm)}.comm, {label!r})"
            yield from self._guarded(one.when, [check])

    def _within(self, region: ir.Region, start: Sym, stop: Sym, length: Sym | None) -> Iterator[str]:
        """The check that start .. stop lies in a dimension; of an array of unknown size, within its elements."""
        if not all(isinstance(bound, Const) for bound in (start, stop, length)):
            size = f"{self._name(region.array)}.size" if length is None else self._text(length)
            yield f"dagc.check_slice({self._text(start)}, {self._text(stop)}, {size}, {region.array!r})"

    # ---- texts ----------------------------------------------------------------------------

    def _local(self, of: str, suffix: str = "") -> str:
        """The variable of `bind` for something of an op or a kernel."""
        if (of, suffix) not in self.locals:
            self.locals[of, suffix] = self.names.new(of, suffix)
        return self.locals[of, suffix]

    def _text(self, expr: Sym, owner: str = "p") -> str:
        names = partial(self.layout.variable, owner=owner)
        return Expressions(PYTHON, names, self.layout.reals).text(expr)

    def _name(self, array: str, owner: str = "p") -> str:
        return f"{owner}.{self.layout.member[array]}"

    def _span(self, region: ir.Region, owner: str = "p") -> tuple[str, str]:
        """Start and number of elements."""
        extent = self.layout.extent_sym(region)
        if extent is None:
            return "0", f"{self._name(region.array, owner)}.size"
        return self._text(extent[0], owner), self._text(extent[1], owner)

    def _members(self) -> Iterator[tuple[str, str]]:
        program, layout = self.plan.program, self.layout
        for value in program.scalars:
            yield layout.member[value.name], f"self.scalar({data_file(value.name)!r})"
        for c in program.comms:
            colour, key = self._text(c.colour, "self"), self._text(c.key, "self")
            yield layout.comms[c.name], f"dagc.Communicator(comm, {colour}, {key})"
        for a in program.arrays:
            yield layout.member[a.name], self._array(a)
        for op in layout.kernel_ops:
            for s in layout.scratch(op):  # that whose size Python knows; the rest is of libdriver.so
                if not s.late and not any(_computed(layout, d) for d in s.dims):
                    dims = "".join(f"{self._text(d, 'self')}, " for d in s.dims).rstrip()
                    yield (
                        s.member,
                        f"self.make({s.label!r}, {s.type.numpy!r}, ({dims}), {s.place.value!r}, 'scratch')",
                    )
        for b in layout.staging.values():
            extent, whole = layout.extent_sym(b.region), f"self.{layout.member[b.region.array]}.size"
            count = whole if extent is None else self._text(extent[1], "self")
            yield b.member, f"self.make({b.label!r}, {b.type.numpy!r}, ({count},), 'pinned', 'scratch')"

    def _array(self, a: ir.Array) -> str:
        loaded = a.role in (Role.CONST, Role.IN, Role.INOUT)
        dims = "".join("-1, " if d is None else f"{self._text(d, 'self')}, " for d in a.dims)
        shape = f"({dims.removesuffix(' ')})" if len(a.dims) == 1 else f"({dims.removesuffix(', ')})"
        args = [repr(a.name), *([repr(data_file(a.name))] if loaded else []), repr(a.type.numpy), shape]
        args += [repr(a.place.value), repr(ROLES[a.role])]
        return f"self.{'load' if loaded else 'make'}({', '.join(args)})"

    def _verify(self) -> list[tuple[int, str]]:
        out = []
        program = self.plan.program
        for v, file in zip(program.verifies, program.expected_files, strict=True):
            start, count = self._span(v.region, "self")
            name = v.region.array
            array = f"self.{self.layout.member[name]}"
            tolerance = f"{v.rtol!r}, {v.nan_equal}" + (f", {v.atol!r}" if v.atol or v.of else "")
            tolerance += f", {v.of!r}" if v.of else ""
            out.append((v.runs, f"{array}, {v.returned!r}, {file!r}, {start}, {count}, {tolerance}"))
        return out

    # ---- entries --------------------------------------------------------------------------

    def _entry(self, entry: Entry, comment: str) -> PyEntry:
        if entry.op is None:
            call = SYNC_OPS[entry.row[0]].python.format(event=f"e{entry.event}", stream=f"s{entry.stream}")
            return PyEntry(comment, (call,))
        library = entry.op in self.theirs
        lines = self._library_op(entry.op, entry.stream) if library else self._op(entry.op, f"s{entry.stream}")
        return PyEntry(comment, tuple(lines))

    def _library_op(self, number: int, stream: int | None) -> list[str]:
        self.setup[f"op_{number} = library.op({number})"] = None
        return [f"op_{number}({'0' if stream is None else f's{stream}.handle'})"]

    def _op(self, number: int, stream: str) -> list[str]:
        op = self.plan.graph.ops[number]
        lines = [line for s in dict.fromkeys(op.copy_in) for line in self._stage(s, False, stream)]
        match op.action, op.op:
            case ir.Action.KERNEL, ir.KernelOp() as kernel:
                lines += self._guarded(kernel.when, self._kernel(kernel, stream))
            case ir.Action.COPY, ir.CopyOp() as copy:
                lines += self._guarded(copy.when, self._copy(copy, stream))
            case ((ir.Action.STAGE_OUT | ir.Action.STAGE_IN), _):
                assert op.staged is not None
                lines += self._stage(op.staged, op.action is ir.Action.STAGE_OUT, stream)
            case ((ir.Action.POST_SEND | ir.Action.POST_RECV), ir.ExchangeOp() as exchange):
                lines += self._post(op, exchange)
            case ir.Action.POST_COLLECTIVE, ir.CollectiveOp() as collective:
                lines += self._guarded(collective.when, self._collective(op, collective))
            case ((ir.Action.WAIT_SEND | ir.Action.WAIT_RECV | ir.Action.WAIT_COLLECTIVE), _):
                lines.append(f"p.wait_all({self._requests(op)})")
        lines += [line for s in dict.fromkeys(op.copy_out) for line in self._stage(s, True, stream)]
        return lines

    def _guarded(self, when: Sym | None, lines: list[str]) -> list[str]:
        return lines if when is None else [f"if {self._text(when)}:", *(f"    {line}" for line in lines)]

    def _kernel(self, op: ir.KernelOp, stream: str) -> list[str]:
        kernel, impl = kernel_of(self.plan.program, op)
        name = self.functions.name(op)
        scratch = self.layout.scratch(op)
        letters = "".join(_LETTERS[f.type] if f.mode is None else "P" for f in kernel.formals) + "P" * len(scratch)
        assert impl.launch is not None
        letters += _LETTERS[ElementType.U32] * len(impl.launch.numbers)
        function = "function" if impl.launch.shared is None else "function_with_shared"
        launch = self._local(f"launch_{name}")
        self.kernels.setdefault(name, f"{launch} = dagc.{function}(module, {name!r}, {letters!r})")
        env = self.layout.formals(op)
        size = [self._text(substitute(e, env)) for e in impl.launch.grid]
        block = [self._text(substitute(e, env)) for e in impl.launch.block]
        where = self._local(op.name, "grid")
        for grid in self.layout.written_grids(op):
            self.setup[f"dagc.grid({', '.join(map(self._text, grid))})"] = None
        self.setup[f"{where} = dagc.grid({', '.join(size)})"] = None
        args = [self._arg(a) for a in op.args] + [f"p.{s.member}.address" for s in scratch]
        args += [self._text(substitute(value, env)) for _, value in impl.launch.numbers]
        shape = ", ".join(block + ["1"] * (3 - len(block)))
        shared = (
            "" if impl.launch.shared is None else f", shared_size={self._text(substitute(impl.launch.shared, env))}"
        )
        return [f"if {where}:", f"    {launch}({', '.join([where, f'({shape})', stream, *args])}{shared})"]

    def _arg(self, arg: ir.Region | Sym) -> str:
        if not isinstance(arg, ir.Region):
            return self._text(arg)
        name = self._name(arg.array)
        return f"{name}.address" if arg.start is None else f"{name}.at({self._span(arg)[0]})"

    def _copy(self, op: ir.CopyOp, stream: str) -> list[str]:
        whole = op.src if op.src.start is not None else op.dst
        _start, count = self._span(whole)
        setup = self._local(op.name, "count")
        self.setup[f"{setup} = {count}"] = None
        on_device = [self.layout.arrays[r.array].place is Place.DEVICE for r in (op.dst, op.src)]
        dst, src = (
            f"{self._name(r.array)}.at({self._span(r)[0]})" if here
            else f"{self._name(r.array)}.host[{self._span(r)[0]}:{self._span(r)[0]} + {setup}]"
            for r, here in zip((op.dst, op.src), on_device, strict=True)
        )  # fmt: skip
        if on_device == [True, True]:
            size = f"{setup} * {self._name(op.dst.array)}.dtype.itemsize"
            return [f"if {setup}:", f"    cuda.memcpy_dtod_async({dst}, {src}, {size}, {stream})"]
        call = "memcpy_htod_async" if on_device[0] else "memcpy_dtoh_async"
        return [f"if {setup}:", f"    cuda.{call}({dst}, {src}, {stream})"]

    def _stage(self, staged: ir.Staged, outwards: bool, stream: str) -> list[str]:
        region, name = staged.region, self._name(staged.region.array)
        buffer = f"p.{self.layout.staging[region].member}.host"
        device, size = f"{name}.address", f"{name}.size"
        if region.start is not None:
            start, size = self._span(region)
            device = f"{name}.at({start})"
        test = size
        if staged.source is not None:
            test = f"{size} and {self._text(Apply(Fn.GE, (staged.source, Const(0))))}"
        call = f"dtoh_async({buffer}, {device}" if outwards else f"htod_async({device}, {buffer}"
        return [f"if {test}:", f"    cuda.memcpy_{call}, {stream})"]

    # ---- messages -------------------------------------------------------------------------

    def _requests(self, op: ir.GraphOp) -> str:
        name = self._local(self.layout.wait_of(op).name, "requests")
        self.setup[f"{name}: list[MPI.Request] = []"] = None
        return name

    def _part(self, op: ir.ExchangeOp | ir.CollectiveOp, region: ir.Region, count: str, at: str = "") -> str:
        """`count` elements of the region of a message, from element `at`."""
        staging = self.layout.staged(region, op.transport)
        name = f"p.{staging.member}" if staging is not None else self._name(region.array)
        begin = "0" if staging is not None else self._span(region)[0]
        start = " + ".join(text for text in (begin, at) if text not in ("", "0")) or "0"
        return f"{name}.buffer({start}, {count})"

    def _post(self, op: ir.GraphOp, exchange: ir.ExchangeOp) -> list[str]:
        return [line for k, message in op.messages for line in self._message(op, exchange, k, message)]

    def _message(self, op: ir.GraphOp, exchange: ir.ExchangeOp, number: int, message: ir.Message) -> list[str]:
        send = op.action is ir.Action.POST_SEND
        region, peer, counts = message.end(send)
        ends = self._local(op.name, ("to" if send else "from") + (f"_{number}" if op.message is None else ""))
        if isinstance(peer, str):
            assert counts is not None
            part = self._part(exchange, region, "count", "at")
            here = "" if message.when is None else f" if {self._text(message.when)} else []"
            share = message.region(send, op.share).share
            some = f", slice({share.first}, {share.stop})" if share is not None else ""
            peers = f"p.peers({self._name(peer)}, {self._name(counts)}, lambda at, count: {part}{some})"
            self.setup[f"{ends} = {peers}{here}"] = None
        else:
            part = self._part(exchange, region, self._span(region)[1])
            self.setup[f"{ends} = p.peer({self._text(peer)}, {part})"] = None
        tag = self.steps.tag(exchange.name, number)
        on = f", on={self.layout.on(exchange.comm)}" if exchange.comm else ""
        return [f"p.{'send' if send else 'receive'}({self._requests(op)}, {ends}, tag={tag}{on})"]

    def _collective(self, op: ir.GraphOp, collective: ir.CollectiveOp) -> list[str]:
        regions = collective.regions
        buffers = [self._local(op.name, str(k)) for k in range(len(regions))]
        for name, region in zip(buffers, regions, strict=True):
            self.setup[f"{name} = {self._part(collective, region, self._span(region)[1])}"] = None
        requests, comm = self._requests(op), f"{self.layout.on(collective.comm)}.comm"
        match collective.collective:
            case ir.CollectiveKind.BARRIER:
                call = f"{comm}.Ibarrier()"
            case ir.CollectiveKind.BCAST:
                call = f"{comm}.Ibcast({buffers[0]}, root={self._text(collective.root)})"
            case ir.CollectiveKind.ALLGATHER | ir.CollectiveKind.ALLTOALL:
                call = f"{comm}.I{collective.collective.value}({buffers[1]}, {buffers[0]})"
            case kind:
                src = "MPI.IN_PLACE" if regions[0] == regions[1] else buffers[1]
                words = f"{buffers[0]}, op=MPI.{(collective.reduce or 'sum').upper()}"
                if kind.rooted:
                    root = self._text(collective.root)
                    src = f"{src} if {comm}.rank == {root} else {buffers[1]}" if src == "MPI.IN_PLACE" else src
                    words += f", root={root}"
                call = f"{comm}.I{kind.value}({src}, {words})"
        return [f"{requests}.append({call})"]


def _names(letter: str, count: int) -> str:
    """`s0, s1`, as targets of unpacking."""
    return ", ".join(f"{letter}{k}" for k in range(count)) + ("," if count == 1 else "")

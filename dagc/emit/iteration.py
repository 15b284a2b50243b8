"""Views of `iteration.hpp` and of the runner's ops: each entry of a traversal with a comment and its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from dagc.base.errors import DagcError, counted
from dagc.emit.forms import BeginCapture, Block, EndCapture, Rolled, never_captured, rolled
from dagc.emit.forms import steps as traversal_steps
from dagc.emit.kernels import Functions
from dagc.emit.layout import Layout, WriteView, writes
from dagc.emit.render import cxx_string, cxx_value
from dagc.forms import kernel_of
from dagc.ir import program as ir
from dagc.ir.enums import CodeLang, Opcode, Pairs, Place, Role
from dagc.ir.plan import (
    ArrayValue,
    EmittedChoosers,
    Features,
    first_features,
    named_features,
    needed_features,
    values_of,
)
from dagc.ir.program import blocks
from dagc.ir.repetition import Tested
from dagc.ir.sym import Apply, Const, Fn, Sym, show, substitute
from dagc.ir.traversal import Entry, Traversal, bound, recorded, streams_of

# ---- steps of an op ----


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """`grid` is the text of `dagc::grid(...)`'s arguments, `block` of dim3's; `args` in order. `entry`: the function is
    of a file of code, which launches it. `otherwise`: a statement for a grid without blocks, "" for none."""

    function: str
    grid: str
    block: str
    shared: str
    stream: str
    args: str
    op: str
    entry: bool
    kind: str = "launch"
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call without a status check. `when`: C++ text of a condition for checks, "" for none."""

    function: str
    args: str
    kind: str = "call"
    when: str = ""


Work: TypeAlias = KernelLaunch | CallStep


@dataclass(frozen=True, slots=True)
class ConditionalSteps:
    """`condition` is C++ text; `comment` names the variant, if that is chosen."""

    condition: str
    steps: tuple[Work, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class ConditionalLaunch:
    """One of several launches, or calls of variants in host code, selected by values set when the program runs."""

    cases: tuple[ConditionalSteps, ...]
    kind: str = "choice"


@dataclass(frozen=True, slots=True)
class Copy:
    """An asynchronous copy on a stream."""

    dst: str
    src: str
    bytes: str
    direction: str
    stream: str
    kind: str = "copy"


@dataclass(frozen=True, slots=True)
class CudaCall:
    """A call of the CUDA runtime whose status is checked."""

    function: str
    args: str
    kind: str = "cuda"


@dataclass(frozen=True, slots=True)
class Guarded:
    """Steps of an op that only ranks with a condition (C++ text) run."""

    condition: str
    steps: tuple[Unguarded, ...]
    kind: str = "guarded"


@dataclass(frozen=True, slots=True)
class SharedLaunch:
    """The call of a `LaunchFunction`; `op` is the C++ text of the op's name."""

    function: str
    stream: str
    op: str
    kind: str = "shared"


@dataclass(frozen=True, slots=True)
class LaunchFunction:
    """A conditional launch that is the same for several ops, such as those of the rounds of a loop: emitted once, since
    compilers take long for many. `op` and `stream` in its steps are its parameters."""

    name: str
    comment: str
    launch: ConditionalLaunch


Unguarded: TypeAlias = KernelLaunch | ConditionalLaunch | SharedLaunch | Copy | CallStep | CudaCall
Step: TypeAlias = Unguarded | Guarded


def _count(elements: str) -> str:
    """As a factor of a number of bytes."""
    return elements if elements.isdigit() else f"static_cast<std::size_t>({elements})"


class StepBuilder:
    """Builds the steps of each op of a graph."""

    def __init__(
        self, layout: Layout, functions: Functions, chooser: EmittedChoosers | None = None, shares: bool = True
    ) -> None:
        """`chooser`: makes choices when the program runs, possibly during its first ops. `shares`: launches that are
        the same for several ops are functions."""
        self.layout, self.functions = layout, functions
        first = first_features(layout.program, layout.opened, chooser)
        self.mode = chooser.mode if chooser is not None else Features.NOW
        self._waits = chooser is not None and chooser.mode is Features.ASYNC and bool(first)
        self.graph = layout.graph
        self._tags = self._number_messages()
        self._known: dict[tuple[int, str], tuple[ir.GraphOp, tuple[Step, ...]]] = {}
        self._shared = self._shared_launches() if shares else {}
        self.launches = tuple(dict.fromkeys(self._shared.values()))

    def of(self, op: ir.GraphOp, stream: str) -> tuple[Step, ...]:
        """`stream` is the C++ text of the op's stream, unused by CPU ops. Iterations, tables and drivers ask for the
        steps of the same ops, which take long to write where a kernel has many forms."""
        key = id(op), stream
        if key not in self._known:
            self._known[key] = op, self._steps(op, stream)  # with the op, whose identity is then not used again
        return self._known[key][1]

    def _steps(self, op: ir.GraphOp, stream: str) -> tuple[Step, ...]:
        match op.action:
            case ir.Action.KERNEL if isinstance(op.op, ir.KernelOp):
                work = self._guarded(op.op.when, self._kernel(op.op, stream))
            case ir.Action.COPY if isinstance(op.op, ir.CopyOp):
                work = self._guarded(op.op.when, self._copy(op.op, stream))
            case ir.Action.STAGE_OUT | ir.Action.STAGE_IN:
                assert op.staged is not None
                outwards = op.action is ir.Action.STAGE_OUT
                if op.share is not None and isinstance(op.op, ir.ExchangeOp):
                    return (self._stage_share(op.op, op.messages[0][1], op.share, outwards, stream),)
                return (self._stage(op.staged, outwards, stream),)
            case ir.Action.POST_SEND | ir.Action.POST_RECV:
                return self._post(op)
            case ir.Action.WAIT_SEND | ir.Action.WAIT_RECV | ir.Action.WAIT_COLLECTIVE:
                return (CallStep("dagc::wait_all", self.layout.requests(op)),)
            case ir.Action.POST_COLLECTIVE if isinstance(op.op, ir.CollectiveOp):
                return self._guarded(op.op.when, (self._collective(op, op.op),))
            case ir.Action.FREE:
                return (CallStep(f"p.{self.layout.connections[op.transport, op.comm]}.free", stream),)
            case ir.Action.GROUP:
                when = op.op.when if isinstance(op.op, ir.CollectiveOp) else None
                return self._guarded(when, (self._group(op, stream),))
            case ir.Action.END:
                return (CallStep("p.end_sides", ""),) if self.layout.sides else ()
            case _:
                raise DagcError(f"op `{op.name}`: {op.action.value} does not match its origin")
        before: tuple[Step, ...] = tuple(self._stage(s, False, stream) for s in dict.fromkeys(op.copy_in))
        if op.kernel is not None and self._waits and self._is_chosen(op.kernel):
            before = (*before, CallStep("p.settle", ""))
        after = tuple(self._stage(s, True, stream) for s in dict.fromkeys(op.copy_out))
        return (*before, *work, *after)

    def _is_chosen(self, op: ir.KernelOp) -> bool:
        """Whether the action of the op depends on features."""
        return self.layout.opened.has(op) or bool(needed_features(self.layout.program, op))

    # ---- work -----------------------------------------------------------------------------

    def _guarded(self, when: Sym | None, work: tuple[Unguarded, ...]) -> tuple[Step, ...]:
        return work if when is None else (Guarded(self.layout.text(when), work),)

    def _kernel(self, op: ir.KernelOp, stream: str) -> tuple[Unguarded, ...]:
        settled = self.functions.settled(op)
        if len(settled) == 1:
            return self._on_its_side(settled[0], stream)
        shared = self._shared.get(op.name)
        if shared is not None:
            return (SharedLaunch(shared.name, stream, cxx_string(op.name)),)
        return (self._chosen(op, stream),)

    def _chosen(self, op: ir.KernelOp, stream: str) -> ConditionalLaunch:
        settled = self.functions.settled(op)
        several = len({one.answer for one in settled}) > 1
        cases = (
            ConditionalSteps(self._settled(one), self._on_its_side(one, stream), one.answer if several else "")
            for one in settled
        )
        return ConditionalLaunch(tuple(cases))

    def _shared_launches(self) -> dict[str, LaunchFunction]:
        """By the name of the op: the launches that several ops of the graph have, with the names of its parameters."""
        ops: dict[ConditionalLaunch, list[str]] = {}
        written: dict[ir.KernelOp, ConditionalLaunch] = {}
        for op in self.graph.ops:
            if op.kernel is not None and op.action is ir.Action.KERNEL and len(self.functions.settled(op.kernel)) > 1:
                nameless = self._nameless(op.kernel)
                if nameless not in written:
                    written[nameless] = _called_choice(self._chosen(op.kernel, "stream"), "op")
                ops.setdefault(written[nameless], []).append(op.kernel.name)
        several = ((launch, names) for launch, names in ops.items() if len(names) > 1)
        return {
            name: function
            for number, (launch, names) in enumerate(several)
            for function in [LaunchFunction(f"launch_{number}", ", ".join(names), launch)]
            for name in names
        }

    def _nameless(self, op: ir.KernelOp) -> ir.KernelOp:
        """Equal for ops whose launches differ in the title alone: without its name, if nothing else depends on it, and
        with the groups of messages in place of exchanges."""
        program = self.layout.program
        early, features = program.chose(ir.TransferTiming.EARLY), program.kernel(op.kernel).features
        if op.placed or early or features or any(self.layout.scratch(one) for one in self.functions.settled(op)):
            return op
        puts = tuple(replace(p, exchange=self.layout.group(p.exchange)) if p.messages else p for p in op.puts)
        awaits = tuple((self.layout.group(exchange), number) for exchange, number in op.awaits)
        return replace(op, name="", puts=puts, awaits=awaits)

    def _on_its_side(self, op: ir.KernelOp, stream: str) -> tuple[Work, ...]:
        """The steps of one implementation, preceded by copies of the data that it needs on its device, and followed by
        a record of the data that is then valid only there. On the CPU, a placed op also waits for all earlier work on
        its stream, unless a worker thread runs it."""
        gpu, on_stream = op.device is ir.Device.GPU, op.on_stream
        needed, written = self.layout.sides_of(op.accesses)
        fresh = [side for side in written if side not in needed]
        own, before, leave = self._there(op, stream)
        side = f"dagc::gpu({op.unit})" if op.elsewhere else f"dagc::Side::{'device' if gpu else 'host'}"
        if needed and op.elsewhere:
            before.append(CallStep("dagc::need_on", ", ".join((side, own, *needed))))
        elif needed:
            name = "on_device" if gpu else "on_host" if on_stream else "on_host_now"
            before.append(CallStep(f"dagc::need_{name}", ", ".join((*([stream] if on_stream else []), *needed))))
        if fresh and op.elsewhere:
            before.append(CallStep("dagc::room_on", ", ".join((side, *fresh))))
        elif gpu and fresh:
            before.append(CallStep("dagc::room_on_device", ", ".join(fresh)))
        if op.placed and not gpu and not op.worker:
            before.append(CallStep("dagc::wait_for", stream))
        after = (CallStep("dagc::wrote", ", ".join((side, *written))),) if written else ()
        return (*before, self._work(op, own), *leave, *after, *self._early(op, stream))

    def _there(self, op: ir.KernelOp, stream: str) -> tuple[str, list[Work], list[Work]]:
        """The stream of the op's own GPU, and the steps to this GPU or to its cores, and back."""
        if op.elsewhere:
            where = f"{op.unit}, {stream}"
            enter, leave = (CallStep(f"p.further_gpus.{way}", where) for way in ("enter", "leave"))
            return f"p.further_gpus.stream({where})", [enter], [leave]
        on_cores = op.device is ir.Device.CPU and self.layout.program.devices.sockets
        return stream, [CallStep("p.sockets.use", str(op.unit))] if on_cores else [], []

    def _early(self, op: ir.KernelOp, stream: str) -> Iterator[CallStep]:
        """Early copies of the op's results to the other side, if ops read them there. For an op that is not ordered in
        a stream, its readers make the copies."""
        program = self.layout.program
        if not op.on_stream or not program.chose(ir.TransferTiming.EARLY):
            return
        for value, other in product(values_of(program), range(2)):  # further GPUs copy at need
            if value.producer == op.name and other != op.side:
                wanted = self._wanted_on(other, value)
                if wanted:
                    there = "device" if other else "host"
                    sides = f"p.{self.layout.sides[value.array]}"
                    yield CallStep(f"dagc::early_on_{there}", f"{wanted}, {stream}, {sides}")

    def _wanted_on(self, side: int, value: ArrayValue) -> str:
        """C++ text: whether the value of an array must be on this side; "" if it never must."""
        if value.ends_on_host and side == 0:
            return "p.early"
        ops = {op.name: op for op in self.layout.program.kernel_ops}
        there = dict.fromkeys(self.is_on(side, ops[reader]) for reader in value.readers)
        if "true" in there:
            return "p.early"
        conditions = [text for text in there if text != "false"]
        return f"p.early && ({' || '.join(conditions)})" if conditions else ""

    def is_on(self, side: int, op: ir.KernelOp) -> str:
        """C++ text: whether the variant that is chosen for an op uses this side (`KernelOp.side`)."""
        every = self.layout.opened.ops(self.layout.program, op)
        here = [one for one in every if one.side == side]
        if len(here) in (0, len(every)):
            return "true" if here else "false"
        return " || ".join(self.layout.variant_is(one) for one in here)

    def _work(self, op: ir.KernelOp, stream: str) -> Work:
        """The steps of one implementation, for one choice of its constant tunables."""
        _, impl = kernel_of(self.layout.program, op)
        args = self.arguments(op)
        function = self.functions.call(op)
        if impl.code is None or impl.code.lang is CodeLang.CPP:
            if op.device is ir.Device.GPU:
                args.append(stream)
            elif op.worker:
                return CallStep(
                    "p.worker_calls.enqueue", ", ".join((stream, cxx_string(titled_kernel(op)), function, *args))
                )
            return CallStep(function, ", ".join(args))
        if impl.launch is None:
            help = "add `launch grid(...) block(...)`"
            raise DagcError(f"kernel `{op.kernel}`: implementation `{impl.name}` has no launch", help)
        grid, block = self.shape(op)
        env = self.layout.formals(op)
        shared = self._size(impl.launch.shared, env) if impl.launch.shared is not None else "0"
        entry = self.functions.is_launched_apart(op)
        groups = dict.fromkeys(self.layout.group(exchange) for exchange, _ in op.awaits)
        otherwise = "" if _has_blocks(grid) else " ".join(f"{group}.run({stream});" for group in groups)
        title = cxx_string(op.name)
        return KernelLaunch(function, grid, block, shared, stream, ", ".join(args), title, entry, otherwise=otherwise)

    def _puts(self, op: ir.KernelOp) -> str:
        """The messages that a kernel writes: as many for each array, some of which may be none."""
        formals = kernel_of(self.layout.program, op)[0].formals
        arrays = {f.name: self._arg(a, op) for f, a in zip(formals, op.args, strict=True) if f.name in op.sent}
        room = max(map(len, op.sent.values()))
        parts = [
            [f"{self.layout.group(exchange)}.part({arrays[formal]}, {number})" for exchange, number in messages]
            for formal, messages in op.sent.items()
        ]
        filled = (part for some in parts for part in [*some, *["dagc::PutPart{}"] * (room - len(some))])
        return f"dagc::puts({', '.join(filled)})"

    def arguments(self, op: ir.KernelOp) -> list[str]:
        """Those of its function, but for the stream of host code."""
        _, impl = kernel_of(self.layout.program, op)
        out = [self._arg(a, op) for a in op.args]
        out += [f"p.{s.member}.data" for s in self.layout.scratch(op)]
        out += self._features(op, impl.code)
        numbers = impl.launch.numbers if impl.launch is not None else ()
        env = self.layout.formals(op) if numbers else {}
        out += [f"static_cast<unsigned>({self._size(value, env)})" for _, value in numbers]
        out += [self._puts(op)] if op.puts else []
        awaited = [f"{self.layout.group(exchange)}.arrival({number})" for exchange, number in op.awaits]
        return [*out, f"dagc::put_waits({', '.join(awaited)})"] if awaited else out

    def shape(self, op: ir.KernelOp) -> tuple[str, str]:
        """The sizes of its grid, and of its block."""
        _, impl = kernel_of(self.layout.program, op)
        assert impl.launch is not None
        env = self.layout.formals(op)
        grid, block = (", ".join(self._size(e, env) for e in sizes) for sizes in (impl.launch.grid, impl.launch.block))
        return grid, block

    def which(self, several: Sequence[ir.KernelOp]) -> str:
        """The number of the op that is chosen of several."""
        out = str(len(several) - 1)
        for number, one in reversed(list(enumerate(several[:-1]))):
            out = f"{self._settled(one)} ? {number} : {out}"
        return out

    def _features(self, op: ir.KernelOp, code: ir.CodeText | None) -> list[str]:
        """The values of the features that the code of the op's implementation names."""
        kernel, impl = kernel_of(self.layout.program, op)
        env = self.layout.formals(op)
        named = named_features(kernel, impl, code) if code is not None else ()
        return [f"static_cast<double>({self.layout.text(env[f.name])})" for f in named]

    def preparation(self, op: ir.KernelOp, stream: str) -> tuple[Step, ...]:
        """The call that fills the scratch of the op's implementation from arrays that are never changed. It gets null
        pointers for all other arrays, including scratch that is not `const` if some scratch is."""
        constant = {a.name for a in self.layout.program.arrays if a.role is Role.CONST}
        kept = (not isinstance(a, ir.Region) or a.array in constant for a in op.args)
        args = [self._arg(a, op) if keep else "nullptr" for a, keep in zip(op.args, kept, strict=True)]
        impl = kernel_of(self.layout.program, op)[1]
        filled = (s.shared or not impl.shares for s in self.layout.scratch(op))
        args += [
            f"p.{s.member}.data" if fill else "nullptr" for s, fill in zip(self.layout.scratch(op), filled, strict=True)
        ]
        args += self._features(op, impl.prepare)
        call = CallStep(self.functions.prepare(op), ", ".join(args))
        if op.device is not ir.Device.GPU:
            return (call,)
        own, enter, leave = self._there(op, stream)
        call = replace(call, args=f"{call.args}, {own}")
        launched = CallStep("DAGC_LAUNCHED", cxx_string(f"prepare of {op.name}"))
        read = (a for a in op.accesses if a.region.array in constant)
        needed, _ = self.layout.sides_of(read)
        name, *where = ("on", f"dagc::gpu({op.unit})") if op.elsewhere else ("on_device",)
        before = (CallStep(f"dagc::need_{name}", ", ".join((*where, own, *needed))),) if needed else ()
        return (*enter, *before, call, launched, *leave, CudaCall("cudaStreamSynchronize", stream))

    def _settled(self, one: ir.KernelOp) -> str:
        """Whether the variant and the open tunables are as in `one`."""
        layout = self.layout
        conditions = [layout.variant_is(one)] if layout.opened.variants(one) else []
        open_ones = ((t, v) for n, v in one.tunables if (t := layout.opened.get(one, n)) is not None and not t.axis)
        conditions += [f"{layout.variable(t.name)} == {cxx_value(v)}" for t, v in open_ones]
        return " && ".join(conditions)

    def _size(self, expr: Sym, env: dict[str, Sym]) -> str:
        return self.layout.text(substitute(expr, env))

    def _arg(self, arg: ir.Region | Sym, op: ir.KernelOp) -> str:
        if isinstance(arg, ir.Region):
            return self.layout.pointer(arg, self.layout.kernel_side(arg, op))
        return self.layout.text(arg)

    def _strided_copy(self, op: ir.CopyOp, stream: str) -> CudaCall:
        layout = self.layout
        pitch: list[str] = []
        for region in (op.dst, op.src):
            strided = region if region.columns is not None else op.src if op.src.columns is not None else op.dst
            size = f"sizeof(*{layout.array(region.array)}.data)"
            elements = layout.strides(strided)
            pitch.append(f"{_count(elements[0 if strided is region else 1])} * {size}")
            width, rows = f"{_count(elements[1])} * {size}", _count(elements[2])
        direction = self._direction(self._on_device(op.src), self._on_device(op.dst))
        ends = [f"{layout.pointer(r)}, {p}" for r, p in zip((op.dst, op.src), pitch, strict=True)]
        return CudaCall("cudaMemcpy2DAsync", ", ".join((*ends, width, rows, direction, stream)))

    def _copy(self, op: ir.CopyOp, stream: str) -> tuple[Unguarded, ...]:
        """CUDA may read pageable memory when a copy is issued, before earlier work on its stream has completed."""
        if not op.inserted:
            return (self._plain_copy(op, stream),)
        wait = CudaCall("cudaStreamSynchronize", stream)
        waits = op.to_device and blocks(self.layout.program, op)
        return (*([wait] if waits else []), self._side_copy(op, stream))

    def _plain_copy(self, op: ir.CopyOp, stream: str) -> Copy | CudaCall:
        layout = self.layout
        if op.src.columns is not None or op.dst.columns is not None:
            return self._strided_copy(op, stream)
        whole = op.src if not layout.is_whole(op.src) else op.dst
        return Copy(
            layout.pointer(op.dst), layout.pointer(op.src), self._bytes(whole),
            self._direction(self._on_device(op.src), self._on_device(op.dst)), stream,
        )  # fmt: skip

    def _side_copy(self, op: ir.CopyOp, stream: str) -> Copy:
        """Between the two sides of an `any` array; the name of the op gives the direction."""
        src, dst = ("mirror", "data") if op.to_device else ("data", "mirror")
        return Copy(
            self.layout.pointer(op.dst, dst), self.layout.pointer(op.src, src), self._bytes(op.dst),
            self._direction(not op.to_device, op.to_device), stream,
        )  # fmt: skip

    def _stage(self, staged: ir.Staged, outwards: bool, stream: str) -> Copy:
        """A slice along the first dimension is contiguous."""
        region = staged.region
        device, buffer = self.layout.pointer(region), self.layout.message_pointer(region)
        dst, src = (buffer, device) if outwards else (device, buffer)
        size = self._bytes(region)
        if staged.source is not None and staged.pairs is not Pairs.ALL:
            size = f"{self._peer(staged.source, staged.comm, staged.pairs)} < 0 ? 0 : {size}"
        elif staged.source is not None:
            size = f"{self.layout.text(Apply(Fn.LT, (staged.source, Const(0))))} ? 0 : {size}"
        return Copy(dst, src, size, self._direction(outwards, not outwards), stream)

    def _stage_share(self, op: ir.ExchangeOp, message: ir.Message, share: int, outwards: bool, stream: str) -> Copy:
        """The elements of some neighbours, which follow one another."""
        region, peers, counts = message.end(outwards)
        assert isinstance(peers, str)
        assert counts is not None
        some = self.peers(peers, counts, message.when, op, message.region(outwards, share).share)
        device, buffer = (
            f"{pointer} + {some}.start()"
            for pointer in (self.layout.pointer(region), self.layout.message_pointer(region))
        )
        size = f"{some}.bytes(sizeof(*{self.layout.array(region.array)}.data))"
        dst, src = (buffer, device) if outwards else (device, buffer)
        return Copy(dst, src, size, self._direction(outwards, not outwards), stream)

    def _on_device(self, region: ir.Region) -> bool:
        return self.layout.arrays[region.array].place in (Place.DEVICE, Place.ANY)

    @staticmethod
    def _direction(from_device: bool, to_device: bool) -> str:
        side = {True: "Device", False: "Host"}
        return f"cudaMemcpy{side[from_device]}To{side[to_device]}"

    def _bytes(self, region: ir.Region) -> str:
        name = self.layout.array(region.array)
        if self.layout.is_whole(region):
            return f"{name}.bytes()"
        count = self.layout.extent(region).count
        return f"static_cast<std::size_t>({count}) * sizeof(*{name}.data)"

    # ---- messages -------------------------------------------------------------------------

    def _number_messages(self) -> dict[tuple[str, int], int]:
        """Tags: one per message of the program, so that messages between the same ranks are never confused."""
        every = [(op.name, k) for op in self.layout.program.comm_ops for k, _ in enumerate(op.messages)]
        return {message: number for number, message in enumerate(every)}

    def tag(self, exchange: str, message: int) -> int:
        return self._tags[exchange, message]

    def _post(self, op: ir.GraphOp) -> tuple[CallStep, ...]:
        exchange, send, calls = op.op, op.action is ir.Action.POST_SEND, []
        assert isinstance(exchange, ir.ExchangeOp)
        for number, message in op.messages:
            region = message.send if send else message.recv
            what, args = self._ends(exchange, message, send, op.share)
            buffer = self.layout.message_pointer(region, exchange.transport)
            tag, comm = self.tag(exchange.name, number), f"{self.layout.on(exchange.comm)}.comm"
            text = f"{self.layout.requests(op)}, {buffer}, {args}, {tag}, {comm}"
            calls.append(CallStep(f"dagc::post_{what}", text))
        return tuple(calls)

    def _ends(self, op: ir.ExchangeOp, message: ir.Message, send: bool, share: int | None) -> tuple[str, str]:
        """Function name and the arguments that name the peers."""
        region, peer, counts = message.end(send)
        what = "send" if send else "recv"
        if isinstance(peer, str):
            assert counts is not None
            return f"{what}s", self.peers(peer, counts, message.when, op, message.region(send, share).share)
        return what, f"{self.layout.extent(region).count}, {self._peer(peer, op.comm, op.pairs)}"

    def _peer(self, peer: Sym, comm: str, pairs: Pairs) -> str:
        """C++ text of a rank; negative if it is not of these pairs."""
        text = f"static_cast<int>({self.layout.text(peer)})"
        return text if pairs is Pairs.ALL else f"{self.layout.on(comm)}.hosts.{pairs.value}({text})"

    def peers(
        self, ranks: str, counts: str, when: Sym | None = None, op: ir.Op | None = None, share: ir.Share | None = None
    ) -> str:
        """The text of a dagc::Peers: all ranks in order if `ranks` is "", none on ranks where `when` does not hold."""
        c = self.layout.array(counts)
        only = self._only(op) if isinstance(op, ir.ExchangeOp | ir.CollectiveOp) else ""
        if not ranks:
            return f"{{nullptr, {c}.data, {c}.size{only}}}"
        r = self.layout.array(ranks)
        many = f"{r}.size" if when is None else f"({self.layout.text(when)}) ? {r}.size : 0"
        every = f"{{{r}.data, {c}.data, {many}{only}}}"
        if share is None:
            return every
        return f"dagc::Peers{every}.share({share.first}{'' if share.stop is None else f', {share.stop}'})"

    def _group(self, op: ir.GraphOp, stream: str) -> CallStep:
        group, layout = self.layout.group(op.name), self.layout
        assert isinstance(op.op, ir.ExchangeOp | ir.CollectiveOp)
        if isinstance(op.op, ir.ExchangeOp) or op.op.messages:
            return CallStep(f"{group}.run", stream)
        kind = op.op.collective
        if _is_messages(op.op):
            return CallStep(f"{group}.run", stream)
        # Arguments in MPI's order: from, to. The .dag has the result first.
        words = [layout.pointer(r) for r in reversed(op.op.regions)]
        words.append(layout.extent(op.op.given).count)
        words += [_operator(op.op)] if kind.reduces else []
        words += [f"static_cast<int>({layout.text(op.op.root)})"] if kind.rooted else []
        return CallStep(f"{group}.{kind.value}", ", ".join([*words, stream]))

    def ends(self, op: ir.ExchangeOp | ir.CollectiveOp, numbers: Iterable[int] | None = None) -> tuple[CallStep, ...]:
        """The calls that name the ends of the messages of an op, which have these numbers, or, in a group, numbers of
        their own: `send` and `recv`, `sends` and `recvs`."""
        out: list[CallStep] = []
        for k, message in zip(numbers or range(len(op.messages)), op.messages, strict=True):
            for send in (True, False):
                region, peer, counts = message.end(send)
                what = "send" if send else "recv"
                extent, base = self.layout.extent(region), f"{self.layout.array(region.array)}.data"
                where = f"{k}, {base}, {extent.start}"
                if isinstance(peer, str):
                    assert counts is not None
                    out.append(CallStep(f"{what}s", f"{where}, {self.peers(peer, counts, message.when, op)}"))
                else:
                    rank = self._peer(peer, op.comm, op.pairs if isinstance(op, ir.ExchangeOp) else Pairs.ALL)
                    out.append(CallStep(what, f"{where}, {extent.count}, {rank}"))
        return tuple(out)

    def _only(self, op: ir.ExchangeOp | ir.CollectiveOp) -> str:
        """C++ text of further arguments, by which messages are of these pairs alone."""
        hosts = f"{self.layout.on(op.comm)}.hosts"
        return "" if op.pairs is Pairs.ALL else f", &dagc::Hosts::{op.pairs.value}, &{hosts}"

    def parts(self, op: ir.ExchangeOp | ir.CollectiveOp) -> tuple[CallStep, ...]:
        """The calls that name what a group moves: `ends`, or one for a collective that the transport cannot call."""
        if isinstance(op, ir.ExchangeOp) or op.messages:
            return self.ends(op)
        extents = [self.layout.extent(region) for region in op.regions]
        count, on = self.layout.extent(op.given).count, self.layout.on(op.comm)
        words = [f"{self.layout.array(r.array)}.data, {e.start}" for r, e in zip(op.regions, extents, strict=True)]
        if op.collective.reduces and not op.transport.calls:
            return (CallStep("reduces", f"{self.layout.pointer(op.regions[-1])}, {count}"),)
        if not _is_messages(op):
            return ()
        if op.collective is ir.CollectiveKind.BCAST:
            root = f"static_cast<int>({self.layout.text(op.root)})"
            return (CallStep("broadcasts", f"{words[0]}, {count}, {root}, {on}.rank, {on}.ranks"),)
        if op.collective is ir.CollectiveKind.ALLTOALL:
            count, name = f"({count}) / {on}.ranks", "transposes"
        else:
            name = "gathers"
        return (CallStep(name, f"{words[0]}, {words[1]}, {count}, {on}.ranks{self._only(op)}"),)

    def _collective(self, op: ir.GraphOp, collective: ir.CollectiveOp) -> CallStep:
        layout, requests = self.layout, self.layout.requests(op)
        buffers = [layout.message_pointer(r, collective.transport) for r in collective.regions]
        on = layout.on(collective.comm)
        kind = collective.collective
        if kind is ir.CollectiveKind.BARRIER:
            args = f"{requests}, {on}.comm"
        elif kind is ir.CollectiveKind.ALLTOALLV:
            (message,) = collective.messages
            to, source = (self.peers("", message.end(send)[2] or "") for send in (True, False))
            tag = self.tag(collective.name, 0)
            args = f"{requests}, {buffers[0]}, {source}, {buffers[1]}, {to}, {on}.rank, {tag}, {on}.comm"
        else:
            count = layout.extent(collective.given).count
            words = [requests, *buffers, f"({count}) / {on}.ranks" if kind is ir.CollectiveKind.ALLTOALL else count]
            words += [_operator(collective)] if kind.reduces else []
            words += [f"static_cast<int>({layout.text(collective.root)})", f"{on}.rank"] if kind.rooted else []
            words += [f"{on}.ranks"] if kind in (ir.CollectiveKind.ALLGATHER, ir.CollectiveKind.ALLTOALL) else []
            args = ", ".join([*words, f"{on}.comm"])
        return CallStep(f"dagc::post_{kind.value}", args)


def _has_blocks(grid: str) -> bool:
    """Whether a grid is known to have blocks."""
    return all(size.strip().isdecimal() and int(size) > 0 for size in grid.split(","))


def _is_messages(op: ir.CollectiveOp) -> bool:
    """Whether a collective is a group of messages: where the transport has no call of its own for it, or not for some
    pairs."""
    some = op.in_pairs and op.pairs is not Pairs.ALL
    return some or op.collective is ir.CollectiveKind.ALLTOALL or not (op.transport.calls or op.collective.reduces)


def _operator(op: ir.CollectiveOp) -> str:
    return f"MPI_{(op.reduce or 'sum').upper()}"


# ---- entries of a traversal ----


@dataclass(frozen=True, slots=True)
class SyncOp:
    """How emitted code writes a sync op. `{event}` and `{stream}`: as it names them; `{of}` in the comment: the op that
    was last in its stream when the event was recorded. `python`: with PyCUDA."""

    about: str
    function: str
    args: str
    python: str

    def call(self, event: str, stream: str) -> CudaCall:
        return CudaCall(self.function, self.args.format(event=event, stream=stream))


SYNC_OPS: Mapping[int, SyncOp] = {
    Opcode.RECORD: SyncOp(
        "{event}: after {of} on stream {stream}", "cudaEventRecord", "{event}, {stream}", "{event}.record({stream})"
    ),
    Opcode.WAIT: SyncOp(
        "stream {stream} waits for {event}: {of}",
        "cudaStreamWaitEvent", "{stream}, {event}, 0", "{stream}.wait_for_event({event})",
    ),
    Opcode.SYNC: SyncOp(
        "the CPU waits for {event}: {of}", "cudaEventSynchronize", "{event}", "{event}.synchronize()"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EntryView:
    comment: str
    steps: tuple[Step, ...]
    loop: bool = False


@dataclass(frozen=True, slots=True)
class LoopView:
    """Entries that are repeated: for `turn` from `first` below `stop` by `step`."""

    comment: str
    first: int
    stop: int
    step: int
    entries: tuple[EntryView, ...]
    loop: bool = True


@dataclass(frozen=True, slots=True)
class CaptureRegionView:
    """Entries captured in a CUDA graph, which is launched on stream `origin`."""

    number: int
    origin: int
    entries: tuple[EntryView, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class IterationView:
    """`sends`: of each stream, whether it has a part of messages, `true` or `false`; () if all have, or none."""

    streams: int
    events: int
    entries: tuple[EntryView | LoopView, ...]
    regions: tuple[CaptureRegionView, ...]
    uses_program: bool
    sends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoundView:
    """One of several iterations: the streams and events of its lane, which are numbered from `s` and `e` on. `before`
    is the start of those of the previous iteration, and `turn` its own number (C++ names). `lanes`: how many there
    are."""

    streams: int
    events: int
    lanes: int
    entries: tuple[EntryView, ...]


@dataclass(frozen=True, slots=True)
class TableOpView:
    name: str
    text: str
    gpu: str
    sends: str
    comment: str
    steps: tuple[Step, ...]
    uses_stream: bool
    uses_program: bool
    kernel: bool
    writes: tuple[WriteView, ...]
    sides_used: tuple[str, ...]  # C++ texts, of arrays that are not constants
    sides_written: tuple[str, ...]
    on_host: str  # C++ text: whether the chosen variant runs there; "" without a choice


def iteration_view(
    graph: ir.Graph,
    traversal: Traversal,
    steps: StepBuilder,
    capture: bool = False,
    folded: ir.Graph | None = None,
    loop: Tested | None = None,
) -> IterationView:
    """With `folded`, equal rounds of its loops become a loop, unless they are captured in CUDA graphs. With `loop`, an
    iteration is one region, which the device repeats.

    Raises DagcError for ops that cannot be emitted yet.
    """
    unrolled = folded is None or capture or loop is not None
    short = Rolled(traversal) if unrolled or folded is None else rolled(folded, traversal)
    placed = [p.step for p in traversal_steps(short.traversal, capture, never_captured(graph), loop)]
    flat = [step for step in placed if not isinstance(step, BeginCapture | EndCapture)]
    written = _Written(graph, steps, flat, short)
    blocks = {block.start: block for block in short.blocks}
    entries: list[EntryView | LoopView] = []
    regions: list[CaptureRegionView] = []
    at = number = 0  # of the step; of the entry
    while at < len(placed):
        step = placed[at]
        if isinstance(step, BeginCapture):
            inside = [e for e in placed[at + 1 : at + 1 + step.length] if not isinstance(e, BeginCapture | EndCapture)]
            names = ", ".join(graph.ops[op].name for op in bound(inside))
            views = tuple(written.entry(number + i) for i in range(len(inside)))
            regions.append(CaptureRegionView(step.region, step.origin, views, names))
            launch = CallStep(f"p.graph[{step.region}].launch", f"p.stream[{step.origin}]")
            entries.append(EntryView(f"capture region {step.region} on stream {step.origin}: {names}", (launch,)))
            at, number = at + step.length + 2, number + len(inside)
        elif number in blocks:  # without capture, so that steps are entries
            entries.append(written.block(blocks[number]))
            at = number = number + blocks[number].length * blocks[number].times
        else:
            assert not isinstance(step, EndCapture)
            entries.append(written.entry(number))
            at, number = at + 1, number + 1
    return IterationView(
        streams=max(streams_of(flat), default=-1) + 1,
        events=max(recorded(flat), default=-1) + 1,
        entries=tuple(entries),
        regions=tuple(regions),
        uses_program=any(isinstance(e, LoopView) or e.steps for e in entries),
        sends=_sending(graph, flat),
    )


def _sending(graph: ir.Graph, entries: Sequence[Entry]) -> tuple[str, ...]:
    sending = {e.stream for e in entries if e.op is not None and graph.ops[e.op].sends}
    streams = range(1 + max(streams_of(entries), default=-1))
    return tuple("true" if k in sending else "false" for k in streams) if 0 < len(sending) < len(streams) else ()


def round_view(
    graph: ir.Graph, traversal: Traversal, back: Mapping[int, int], lanes: int, steps: StepBuilder
) -> RoundView:
    """`back`: the positions of waits for events of an earlier iteration, and how many before. Raises like
    `iteration_view`."""
    assert set(back.values()) <= {1, lanes}  # the only ones that have an event below
    entries = traversal.entries
    written = _Written(graph, steps, entries, Rolled(traversal), lane=True)
    views = (written.of_earlier(at, back[at]) if at in back else written.entry(at) for at in range(len(entries)))
    return RoundView(1 + max(streams_of(entries), default=-1), len(recorded(entries)), lanes, tuple(views))


def table_ops(graph: ir.Graph, steps: StepBuilder) -> tuple[TableOpView, ...]:
    """One view per op, in the order of the graph."""
    out = []
    for op in graph.ops:
        work, shown = steps.of(op, "stream"), steps.functions.shown(op)
        out.append(
            TableOpView(
                name=op.name,
                text=titled(shown),
                gpu="true" if op.gpu else "false",
                sends="true" if op.sends else "false",
                comment=describe(shown),
                steps=work,
                uses_stream=op.gpu,
                uses_program=bool(work),
                kernel=op.action is ir.Action.KERNEL,
                writes=writes(steps.layout, op),
                sides_used=_sides_used(steps.layout, op),
                sides_written=steps.layout.sides_of(op.kernel.accesses if op.kernel is not None else ())[1],
                on_host=steps.is_on(0, op.kernel) if op.kernel is not None and op.placed else "",
            )
        )
    return tuple(out)


def _sides_used(layout: Layout, op: ir.GraphOp) -> tuple[str, ...]:
    accesses = op.kernel.accesses if op.kernel is not None else ()
    needed, written = layout.sides_of(a for a in accesses if layout.arrays[a.region.array].role is not Role.CONST)
    return tuple(dict.fromkeys((*needed, *written)))


class _Written:
    """Views of entries. `names`: the names of ops in loops. `lane`: streams and events start at `s` and `e`."""

    def __init__(
        self, graph: ir.Graph, steps: StepBuilder, entries: Sequence[Entry], short: Rolled, lane: bool = False
    ) -> None:
        self.graph, self.steps, self.entries = graph, steps, entries
        self._stream, self._event = ("p.stream[s + {}]", "p.event[e + {}]") if lane else ("p.stream[{}]", "p.event[{}]")
        self.names = dict(short.names)
        self._recorded = self._what_events_mean()

    def _op(self, number: int) -> ir.GraphOp:
        op = self.steps.functions.shown(self.graph.ops[number])
        return replace(op, name=self.names[number]) if number in self.names else op

    def _what_events_mean(self) -> list[tuple[int, str]]:
        """Per entry that has an event: the op that was last in its stream when it was recorded, by place and name."""
        last: dict[int, tuple[int, str]] = {}
        known: dict[int, tuple[int, str]] = {}
        out: list[tuple[int, str]] = []
        for at, entry in enumerate(self.entries):
            if entry.op is None:
                if entry.records:
                    known[entry.event] = last.get(entry.stream, (at, "nothing"))
                out.append(known.get(entry.event, (at, "")))
            else:
                out.append((at, ""))
                if entry.stream is not None:
                    last[entry.stream] = at, self._op(entry.op).name
        return out

    def block(self, block: Block) -> LoopView:
        """The comments on its events apply from the second repetition on."""
        second = block.start + block.length
        views = tuple(self.entry(at, second) for at in range(second, second + block.length))
        again = f"{block.variable} = turn, {counted(block.times, 'time')}"
        return LoopView(again, block.first, block.first + block.times * block.step, block.step, views)

    def of_earlier(self, at: int, back: int) -> EntryView:
        """A wait for an event that the previous iteration has recorded, or the last one of its lane, `back` before."""
        wait = self.entries[at]
        assert wait.event is not None
        of = self._recorded[recorded(self.entries)[wait.event]][1]
        sync = SYNC_OPS[wait.row[0]]
        which = "the previous iteration" if back == 1 else f"the iteration {back} before"
        about = sync.about.format(event=f"event {wait.event} of {which}", of=of, stream=wait.stream)
        event = f"p.event[before + {wait.event}]" if back == 1 else self._event.format(wait.event)
        call = sync.call(event, self._stream.format(wait.stream))
        return EntryView(about, (Guarded(f"turn > {back - 1}", (call,)),))

    def entry(self, at: int, block: int = 0) -> EntryView:
        """`block`: the start of the block of the entry."""
        entry, (place, recorded) = self.entries[at], self._recorded[at]
        stream = self._stream.format(entry.stream)
        if entry.op is not None:
            op, where = self._op(entry.op), "" if entry.stream is None else f" on stream {entry.stream}"
            work = tuple(_called(s, op.name) for s in self.steps.of(self.graph.ops[entry.op], stream))
            begin = (CallStep("dagc::begin_op", cxx_string(titled(op))),) if work else ()
            return EntryView(describe(op, where), (*begin, *work))
        of = f"{recorded} of the previous round" if place < block else recorded
        sync = SYNC_OPS[entry.row[0]]
        name = f"`{entry.text(self.graph)}`, which waits for `{recorded}`"
        begin = (CallStep("dagc::begin_op", cxx_string(name)),) if entry.stream is None else ()
        about = sync.about.format(event=f"event {entry.event}", of=of, stream=entry.stream)
        return EntryView(about, (*begin, sync.call(self._event.format(entry.event), stream)))


def _called(step: Step, name: str) -> Step:
    """A launch under this name of its op."""
    if isinstance(step, KernelLaunch | SharedLaunch):
        return replace(step, op=cxx_string(name))
    return _called_choice(step, cxx_string(name)) if isinstance(step, ConditionalLaunch) else step


def _called_choice(choice: ConditionalLaunch, op: str) -> ConditionalLaunch:
    """The launches of ops whose name has this C++ text."""

    def called(work: Work) -> Work:
        return replace(work, op=op) if isinstance(work, KernelLaunch) else work

    return ConditionalLaunch(tuple(replace(c, steps=tuple(map(called, c.steps))) for c in choice.cases))


def titled(op: ir.GraphOp) -> str:
    """The name of an op in messages of the running program: "op `spmv` (kernel `csr.warp`)"."""
    if op.kernel is None:
        return f"op `{op.name}`"
    return titled_kernel(replace(op.kernel, name=op.name))  # in a loop, the name has its variable


def titled_kernel(op: ir.KernelOp) -> str:
    return f"op `{op.name}` (kernel `{op.implementation}`)"


def describe(op: ir.GraphOp, where: str = "") -> str:
    """`pack on stream 0: gather(x_send, x_l, send_index, n_send)`."""
    what = _what(op)
    what += f" on {op.comm}" if what and op.comm else ""
    staged = [f"{s.region.text} from its staging buffer" for s in op.copy_in]
    staged += [f"{s.region.text} to its staging buffer" for s in op.copy_out]
    tail = "".join(f"; copies {s}" for s in staged)
    tail += "; waits for messages" if op.kernel is not None and op.kernel.awaits else ""
    return f"{op.name}{where}{': ' if what else ''}{what}{tail}"


def _what(op: ir.GraphOp) -> str:
    match op.op:
        case ir.KernelOp() as k:
            return f"{k.implementation}({', '.join(_arg(a) for a in k.args)})"
        case ir.CopyOp() as c:
            return f"copy({_arg(c.dst)}, {_arg(c.src)})"
        case ir.ExchangeOp() as x if op.message is not None:
            return _message(op, x)
        case ir.ExchangeOp():
            sends = op.action in (ir.Action.POST_SEND, ir.Action.WAIT_SEND)
            ends = f"{'sends' if sends else 'receives'} of {op.op.name}"
            waits = {ir.Action.GROUP: "all messages", ir.Action.FREE: "all ranks"}
            return waits.get(op.action, f"all {ends}")
        case ir.CollectiveOp() as c:
            return f"{c.collective.value}({', '.join([*(_arg(a) for a in c.args), *([c.reduce] if c.reduce else [])])})"
        case _:
            return "all ops have completed" if op.action is ir.Action.END else ""


def _message(op: ir.GraphOp, exchange: ir.ExchangeOp) -> str:
    assert op.message is not None
    message = exchange.messages[op.message]
    sending = op.action in (ir.Action.POST_SEND, ir.Action.STAGE_OUT)
    region, peer, _ = message.end(sending)
    share = message.region(sending, op.share).share
    whom = share.text if share is not None else peer if isinstance(peer, str) else show(peer)
    return f"{_arg(region)} {'to' if sending else 'from'} {whom}"


def _arg(arg: ir.Region | Sym) -> str:
    return arg.text if isinstance(arg, ir.Region) else show(arg)

"""Lowers messages by their transports: posts, waits, staging copies, and their order inside an exchange.

mpi_host  through pinned memory on the host. A region of a device array that a message sends or receives has its own
          staging buffer, and a copy: either fused into the op that produces or consumes the data, or an op of
          its own.
mpi_cuda  device pointers; no copies.
nccl      one exchange, or collective, is one grouped GPU op on a stream.
peer      one exchange, or collective, is one GPU op that writes into the other GPUs' memory.
put       the kernels that compute what an exchange sends write it there (dagc.passes.puts); a GPU op waits for it, or
          the kernels that read it do.

Messages of host arrays use MPI under every transport. Each exchange and collective has a transport of its own, and may
have another one between ranks of one host. An exchange is then lowered twice, and each message runs in one of both. A
collective becomes ops of the ranks of each host, and of one rank of each host, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, TypeAlias

from dagc.base.errors import Diagnostic
from dagc.ir import program as ir
from dagc.ir.choice import qualified
from dagc.ir.enums import ElementType, Mode, Pairs, Place, Transport
from dagc.ir.sym import Apply, Const, Fn, Sym
from dagc.passes.uses import Uses, accesses_of, message_accesses, on_gpu

EDGES_LIMIT = 1_000_000
_NOT_NCCL = {ElementType.I16, ElementType.U16}


Labelled: TypeAlias = tuple[tuple[str, ir.OpId], ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """Lowered ops of one op of the program: where edges enter and leave it. With message labels, for `x.face.send`."""

    first_send: Labelled
    last_send: Labelled
    first_recv: Labelled
    last_recv: Labelled


@dataclass(frozen=True, slots=True)
class LoweredMessages:
    """Primitive ops without the edges between ops of the program. `inner` are the edges inside one of these."""

    ops: tuple[ir.GraphOp, ...]
    touches: tuple[ir.Touch, ...]
    inner: tuple[tuple[ir.OpId, ir.OpId], ...]
    ends: dict[str, tuple[Ends, ...]]
    staged: tuple[ir.Region, ...]
    matches: tuple[tuple[ir.OpId, ir.OpId], ...]
    findings: tuple[Diagnostic, ...]
    before: tuple[tuple[ir.OpId, ir.OpId], ...] = ()  # of `inner`, but in the order of issue alone


def lower_messages(program: ir.Program, staging: ir.Staging) -> LoweredMessages:
    """Lower every op of the program, in text order, and append `end`."""
    return _Lowering(program, staging).run()


def too_many_edges(program: ir.Program) -> Diagnostic | None:
    """Report too many edges: in an exchange, every post precedes every wait."""
    edges = 0
    for op in program.ops:
        if isinstance(op, ir.ExchangeOp):
            number = len(_served(op))
            edges += 2 * number * (number + 1)
            if edges > EDGES_LIMIT:
                message = f"the posts and waits of all exchanges need more than {EDGES_LIMIT} edges"
                help = "use fewer messages, or ranks and counts in arrays: one message to many ranks"
                return Diagnostic("too-many-ops", message, op.span, help)
    return None


class _Lowering:
    def __init__(self, program: ir.Program, staging: ir.Staging) -> None:
        self.program, self.staging = program, staging
        self.places = {array.name: array.place for array in program.arrays}
        self.two_sided = ir.two_sided(program.ops, program.arrays)
        self.uses = Uses(program)
        self.regions = self.uses.regions
        self.exchanges = sum(isinstance(op, ir.ExchangeOp) for op in program.ops)
        self.ops: list[ir.GraphOp] = []
        self.touches: list[ir.Touch] = []
        self.inner: list[tuple[ir.OpId, ir.OpId]] = []
        self.matches: list[tuple[ir.OpId, ir.OpId]] = []
        self.ends: dict[str, tuple[Ends, ...]] = {}
        self.staged: dict[ir.Region, None] = {}
        self.findings: list[Diagnostic] = []
        self.puts: dict[str, list[ir.Put]] = {}  # by kernel op, as `Puts` has them
        self.waits: dict[str, list[ir.ExchangeOp]] = {}
        self.awaits: dict[str, list[tuple[ir.ExchangeOp, int]]] = {}  # by kernel op: the messages that it waits for
        self.awaited: set[str] = set()  # exchanges without an op
        self.by_call: Callable[[ir.KernelOp], tuple[ir.CallMessages, ...]] = lambda op: ()
        self.frees: dict[str, ir.OpId] = {}  # by exchange, under `put`
        self.writers: dict[str, list[ir.OpId]] = {}  # of its messages, by exchange
        # Per op name: regions of device arrays that it copies from, or to, their staging buffers.
        self.copy_in: dict[str, list[ir.Staged]] = {}
        self.copy_out: dict[str, list[ir.Staged]] = {}

    def run(self) -> LoweredMessages:
        plan = {op.name: self._stages(i) for i, op in enumerate(self.program.ops)}
        exchanges = [(i, op) for i, op in enumerate(self.program.ops) if isinstance(op, ir.ExchangeOp)]
        if any(op.put is not None for _, op in exchanges):
            self._plan_puts(exchanges)
        for op in self.program.ops:
            match op:
                case ir.KernelOp() | ir.CopyOp():
                    self._work(op)
                case ir.CollectiveOp() if op.within is not None and op.in_levels:
                    self._levels(op, plan[op.name])
                case ir.ExchangeOp() | ir.CollectiveOp() if op.within is not None:
                    if op.transport is Transport.MPI_HOST and any(message.recv_counts for message in op.messages):
                        why = "has ranks in arrays: what the host receives would be copied over what ranks of it wrote"
                        help = f"choose -D {qualified(op.base, ir.TRANSPORT)}=nccl, or {ir.WITHIN_HOST}=same"
                        self._refuse(op, why, help)
                    between, within = (replace(op, pairs=pairs) for pairs in (Pairs.BETWEEN_HOSTS, Pairs.WITHIN_HOST))
                    self._group(replace(within, transport=op.within), f"{op.name}.{ir.WITHIN_HOST}")
                    self._messages(between, plan[op.name])
                case ir.ExchangeOp() | ir.CollectiveOp():
                    self._messages(op, plan[op.name])
        before = list(self._one_waits_at_a_time()) if self.awaited else []
        self._add("end", ir.Action.END, None)
        self._names_are_unique()
        return LoweredMessages(
            tuple(self.ops),
            tuple(self.touches),
            tuple(dict.fromkeys(self.inner)),
            self.ends,
            tuple(self.staged),
            tuple(self.matches),
            tuple(self.findings),
            tuple(before),
        )

    def _messages(self, op: ir.ExchangeOp | ir.CollectiveOp, own: dict[tuple[ir.Region, bool], bool]) -> None:
        if op.name in self.awaited:
            return
        if op.transport.grouped and self._on_device(op):
            self._group(op, op.name)
        elif isinstance(op, ir.ExchangeOp):
            self._exchange(op, own)
        else:
            self._collective(op, own)

    def _levels(self, op: ir.CollectiveOp, own: dict[tuple[ir.Region, bool], bool]) -> None:
        ends: list[Ends] = []
        for one in in_levels(op):
            self._messages(one, own if one.pairs is Pairs.BETWEEN_HOSTS else {})
            ends += self.ends[one.name]
        self.inner += [(a.last_recv[0][1], b.first_send[0][1]) for a, b in pairwise(ends)]
        self._enter(op, replace(ends[-1], first_send=ends[0].first_send, first_recv=ends[0].first_recv))

    def _plan_puts(self, exchanges: Iterable[tuple[int, ir.ExchangeOp]]) -> None:
        from dagc.passes.puts import Puts, by_call  # only with transport=put: it reads kernels

        by_readers = any(d.name == ir.PUT_WAIT and d.chosen == ir.PutWait.READER.value for d in self.program.decisions)
        puts = Puts(self.program, self.uses, by_readers)
        for index, op in exchanges:
            if (put := op.put) is not None and self._places(op) == {True}:
                refused = puts.plan(index, put)
                self.findings += [refused] if refused is not None else []
        self.puts, self.waits = puts.of_kernel, puts.before
        self.by_call = lambda op: by_call(self.program, op, self.uses)
        for name, formals in puts.beside.items():
            sent = {put.formal for put in self.puts.get(name, ())}
            self.puts.get(name, []).extend(ir.Put(one, "", ()) for one in formals if one not in sent)
        for _, op in exchanges:
            for number, reader in enumerate(puts.awaited.get(op.name, ())):
                self.awaited.add(op.name)
                self.awaits.setdefault(reader, []).append((op, number))
        if puts.why and not self.awaited:  # the program is that of `put_wait=op`
            self.findings.append(next(iter(puts.why.values())))

    # ---- staging ------------------------------------------------------------------------

    def _stages(self, index: int) -> dict[tuple[ir.Region, bool], bool]:
        """For one exchange or collective: (region, outwards) -> whether the copy is an op of its own.

        Decided before lowering, since a fused copy belongs to an op earlier or later in the text.
        """
        op = self.program.ops[index]
        out: dict[tuple[ir.Region, bool], bool] = {}
        if not isinstance(op, ir.ExchangeOp | ir.CollectiveOp) or op.transport is not Transport.MPI_HOST:
            return out
        levels = in_levels(op) if isinstance(op, ir.CollectiveOp) and op.within is not None else ()
        if levels:  # in between, the host has the result of each host
            (op,) = (one for one in levels if one.pairs is Pairs.BETWEEN_HOSTS)
        for region, mode in message_accesses(op):
            if self.places[region.array] is not Place.DEVICE:
                continue
            self.staged.setdefault(region)
            for outwards in (True, False):
                if mode is not (Mode.OUT if outwards else Mode.IN):
                    partner = None
                    if self.staging is ir.Staging.FUSED and not levels:
                        partner = self.uses.producer(index, region) if outwards else self._consumer(index, region)
                    out[region, outwards] = partner is None
                    if partner is not None:
                        table = self.copy_out if outwards else self.copy_in
                        table.setdefault(partner, []).append(_staged(op, region, outwards))
        return out

    def _consumer(self, index: int, region: ir.Region) -> str | None:
        """The one GPU op that reads what was received; None if there are several.

        An op that also writes there, as the next step of a loop in place, does not count after a reader of the whole
        region: it waits for that reader in any case. Counted, it would make the last iteration, without a next step,
        differ from the others.
        """
        ops = self.program.ops
        if self.program.explicit:
            readers = self.uses.others(region, self.uses.reads, index)
        else:
            stop = self.uses.meeting(region, self.uses.writes, range(index + 1, len(ops)), 1)
            end = stop[0] if stop else len(ops)
            readers = self.uses.meeting(region, self.uses.reads, range(index + 1, end), 2)
            if stop and not any(self._reads_all(ops[reader], region) for reader in readers):
                readers = self.uses.meeting(region, self.uses.reads, range(index + 1, end + 1), 2)
        (first,) = readers if len(readers) == 1 else (None,)
        return ops[first].name if first is not None and on_gpu(ops[first]) else None

    def _reads_all(self, op: ir.Op, region: ir.Region) -> bool:
        return any(self.regions.within(region, a.region) for a in accesses_of(op) if a.mode is not Mode.OUT)

    # ---- ops ----------------------------------------------------------------------------

    def _add(self, name: str, action: ir.Action, op: ir.Op | None, gpu: bool = False, **more: Any) -> ir.OpId:
        """`more`: of the `GraphOp`; its place in the text is that of `op`, unless `span` is another."""
        number = ir.OpId(len(self.ops))
        span = {} if op is None else {"span": op.span}
        self.ops.append(ir.GraphOp(number, name, gpu, action, op, **(span | more)))
        return number

    def _touch(self, begin: ir.OpId, end: ir.OpId, region: ir.Region, mode: Mode, *, staged: bool = False) -> None:
        if region.array in self.two_sided:
            region = ir.Region(region.array)  # its sides are copied as a whole
        self.touches.append(ir.Touch(begin, end, region, mode, staged))

    def _work(self, op: ir.KernelOp | ir.CopyOp) -> None:
        for exchange in self.waits.get(op.name, ()):
            self._free(exchange)
        awaits = self.awaits.get(op.name, ())
        if isinstance(op, ir.KernelOp) and (awaits or op.name in self.puts):
            waited = tuple((exchange.name, number) for exchange, number in awaits)
            op = replace(op, puts=tuple(self.puts.get(op.name, ())), awaits=waited)
            op = replace(op, by_call=self.by_call(op))
        copy_in, copy_out = self.copy_in.get(op.name, []), self.copy_out.get(op.name, [])
        action = ir.Action.COPY if isinstance(op, ir.CopyOp) else ir.Action.KERNEL
        copies = {"copy_in": tuple(copy_in), "copy_out": tuple(copy_out)}
        number = self._add(op.name, action, op, on_gpu(op), stream=op.stream, **copies)
        for staged in copy_in:
            self._touch(number, number, staged.region, Mode.IN, staged=True)
            self._touch(number, number, staged.region, Mode.OUT)
        for exchange, message in awaits:
            self._touch(self.frees.get(exchange.name, number), number, exchange.messages[message].recv, Mode.OUT)
            self._follow_writers(exchange.name, number)
        for access in accesses_of(op):
            self._touch(number, number, access.region, access.mode)
        for state in op.states if isinstance(op, ir.KernelOp) else ():
            self._touch(number, number, ir.Region(state.name), state.mode)
        for staged in copy_out:
            self._touch(number, number, staged.region, Mode.OUT, staged=True)
        self._enter(op, Ends(*[(("", number),)] * 4))
        for put in (put for put in (op.puts if isinstance(op, ir.KernelOp) else ()) if put.messages):
            self.writers.setdefault(put.exchange, []).append(number)
            self.inner += [(self.frees[put.exchange], number)] if put.exchange in self.frees else []

    def _free(self, exchange: ir.ExchangeOp) -> None:
        """All ranks wait for one another, in the same order for every such wait."""
        number = self._add(f"{exchange.name}.free", ir.Action.FREE, exchange, gpu=True)
        self.inner += [(last, number) for last in list(self.frees.values())[-1:]]
        self.frees[exchange.name] = number

    def _places(self, op: ir.ExchangeOp | ir.CollectiveOp) -> set[bool]:
        return {self.places[region.array] is Place.DEVICE for region, _ in message_accesses(op)}

    def _on_device(self, op: ir.ExchangeOp | ir.CollectiveOp) -> bool:
        """Whether all arrays of an exchange are on the device. A mixture is refused: neither MPI nor the GPU could
        transfer it alone."""
        places = self._places(op)
        if len(places) > 1:
            help = f"use arrays of one place, or choose -D {qualified(op.base, ir.TRANSPORT)}=mpi_host"
            self._refuse(op, "has arrays on the host and on the device", help)
        return places == {True}

    def _enter(self, op: ir.Op, ends: Ends) -> None:
        self.ends[op.name] = (*self.ends.get(op.name, ()), ends)

    def _group(self, op: ir.ExchangeOp | ir.CollectiveOp, name: str) -> None:
        if isinstance(op, ir.CollectiveOp) and op.transport is Transport.NCCL and not self._nccl_has(op):
            help = f"choose -D {qualified(op.base, ir.TRANSPORT)}=peer or mpi_host"
            self._refuse(op, "is a reduction of a type that NCCL does not have", help)
        number = self._add(name, ir.Action.GROUP, op, gpu=True)
        for region, mode in message_accesses(op):
            self._touch(number if mode is Mode.IN else self.frees.get(name, number), number, region, mode)
        self._follow_writers(name, number)
        labels = [message.label for message in op.messages] if isinstance(op, ir.ExchangeOp) else [""]
        self._enter(op, Ends(*[tuple((label, number) for label in labels)] * 4))

    def _follow_writers(self, exchange: str, number: ir.OpId) -> None:
        """What waits for an exchange comes after the kernels that write its messages."""
        for kernel in self.writers.get(exchange, ()):
            self.matches.append((number, kernel))
            self.inner.append((kernel, number))

    def _one_waits_at_a_time(self) -> Iterator[tuple[ir.OpId, ir.OpId]]:
        """Order the kernels that wait among those that write messages, in text order: all blocks of a waiting one may
        occupy the GPU, so every writer that is issued before must have completed (`dagc.space.proof`). Yields pairs in
        the order of issue."""
        done: list[ir.OpId] = []  # what the next one that waits must follow: all writers before it then precede it
        waiting: list[ir.OpId] = []  # since the last writer
        last: list[ir.OpId] = []  # those before
        for op in self.ops:
            kernel = op.kernel
            if kernel is not None and kernel.awaits:
                self.inner += [(writer, op.id) for writer in done]
                waiting.append(op.id)
            if kernel is not None and kernel.sends:
                if waiting:
                    done, last, waiting = waiting[-1:], waiting, []
                done += [op.id] if op.id not in done else []
                yield from ((one, op.id) for one in last if one != op.id)

    def _nccl_has(self, op: ir.CollectiveOp) -> bool:
        types = {a.type for a in self.program.arrays if any(a.name == x.region.array for x in op.accesses)}
        return not op.collective.reduces or not types & _NOT_NCCL

    def _refuse(self, op: ir.ExchangeOp | ir.CollectiveOp, why: str, help: str) -> None:
        self.findings.append(Diagnostic("ungroupable", f"`{op.name}` {why}", op.span, help))

    def _exchange(self, op: ir.ExchangeOp, own: dict[tuple[ir.Region, bool], bool]) -> None:
        names = _Names(op, prefix=self.exchanges > 1)
        served = _served(op)
        units = [unit for post in served for unit in post]
        staged = {
            unit: self._stage(op, unit.serves, unit.region(True), names.of("stage_out", (unit,)), outwards=True)
            for unit in units
            if own.get((unit.message.send, True))
        }
        sends: dict[_Unit, ir.OpId] = {}
        recvs: dict[_Unit, ir.OpId] = {}
        # Fields of the ops of one message, or of one share of it.
        own_fields = [{**post[0].serves, "span": post[0].message.span} if len(post) == 1 else {} for post in served]
        for post, one in zip(served, own_fields, strict=True):
            recv = self._add(names.of("post_recv", post), ir.Action.POST_RECV, op, **one)
            send = self._add(names.of("post_send", post), ir.Action.POST_SEND, op, **one)
            recvs |= dict.fromkeys(post, recv)
            sends |= dict.fromkeys(post, send)
        self.inner += [(stage, sends[unit]) for unit, stage in staged.items()]
        posts = list(dict.fromkeys(op for unit in units for op in (recvs[unit], sends[unit])))
        all_sent = self._add(names.of("wait_send", ()), ir.Action.WAIT_SEND, op)
        waits, last = [all_sent], dict[_Unit, ir.OpId]()
        for post, one in zip(served, own_fields, strict=True):
            waits.append(self._add(names.of("wait_recv", post), ir.Action.WAIT_RECV, op, **one))
            for unit in post:
                in_buffer = [self._staged(op, region) for region in (unit.message.send, unit.message.recv)]
                self._touch(sends[unit], all_sent, unit.region(True), Mode.IN, staged=in_buffer[0])
                self._touch(recvs[unit], waits[-1], unit.region(False), Mode.OUT, staged=in_buffer[1])
                last[unit] = waits[-1]
        # Every post precedes every wait: as all ranks run the same traversal, this excludes deadlock.
        self.inner += [(post, wait) for post in posts for wait in waits]
        self.matches += [(wait, post) for wait in waits for post in posts]
        for unit in units:
            if own.get((unit.message.recv, False)):
                name = names.of("stage_in", (unit,))
                stage = self._stage(op, unit.serves, unit.region(False), name, outwards=False)
                self.inner.append((last[unit], stage))
                last[unit] = stage
        ends = sends | staged, dict.fromkeys(units, all_sent), recvs, last
        self._enter(op, Ends(*(tuple((u.message.label, end[u]) for u in units) for end in ends)))

    def _stage(
        self,
        op: ir.ExchangeOp | ir.CollectiveOp,
        serves: Mapping[str, Any],
        region: ir.Region,
        name: str,
        *,
        outwards: bool,
    ) -> ir.OpId:
        """`serves`: fields of the `GraphOp`, the message."""
        action = ir.Action.STAGE_OUT if outwards else ir.Action.STAGE_IN
        copied = replace(_staged(op, region.unshared, outwards), region=region)
        stage = self._add(name, action, op, gpu=True, staged=copied, **serves)
        self._touch(stage, stage, region, Mode.IN, staged=not outwards)
        self._touch(stage, stage, region, Mode.OUT, staged=outwards)
        return stage

    def _collective(self, op: ir.CollectiveOp, own: dict[tuple[ir.Region, bool], bool]) -> None:
        chain: list[ir.OpId] = []
        staged_out = [r for (r, outwards), alone in own.items() if outwards and alone]
        for k, region in enumerate(staged_out):
            name = f"{op.name}.stage_out{f'[{k}]' if len(staged_out) > 1 else ''}"
            chain.append(self._stage(op, {}, region, name, outwards=True))
        post = self._add(f"{op.name}.post", ir.Action.POST_COLLECTIVE, op)
        wait = self._add(f"{op.name}.wait", ir.Action.WAIT_COLLECTIVE, op)
        self.inner += [(stage, post) for stage in chain] + [(post, wait)]
        self.matches.append((wait, post))
        last = wait
        for region in [r for (r, outwards), alone in own.items() if not outwards and alone]:
            last = self._stage(op, {}, region, f"{op.name}.stage_in", outwards=False)
            self.inner.append((wait, last))
        for access in op.accesses:
            self._touch(post, wait, access.region, access.mode, staged=self._staged(op, access.region))
        ends = (("", chain[0] if chain else post),), (("", last),)
        self._enter(op, Ends(*ends, *ends))

    def _staged(self, op: ir.ExchangeOp | ir.CollectiveOp, region: ir.Region) -> bool:
        """Whether the op accesses the region's staging buffer: other messages of the region may use the array."""
        return op.transport is Transport.MPI_HOST and region in self.staged

    def _names_are_unique(self) -> None:
        seen: dict[str, ir.GraphOp] = {}
        for op in self.ops:
            if op.name in seen:
                self.findings.append(
                    Diagnostic(
                        "duplicate-name",
                        f"there are two ops named `{op.name}` after messages are lowered",
                        op.span if op.action is not ir.Action.END else seen[op.name].span,
                        "rename the op of the dag",
                    )
                )
            seen[op.name] = op


def in_levels(op: ir.CollectiveOp) -> tuple[ir.CollectiveOp, ...]:
    """The ops of a reduction or a broadcast by `within` in a host, and by its transport between one rank of each host:
    a reduction to this rank, the op among these ranks, and but for a reduction to one rank, a broadcast of what they
    have."""
    assert op.within is not None
    host, heads = ir.host_comms(op.root)
    result, zero = op.regions[0], Const(0)
    sums, alone = op.partial or result, replace(op, partial=None, within=None)  # `sums`: of each host
    there = Apply(Fn.GE, (heads.rank, zero))
    args = (*((result, sums) if op.collective.reduces else (result,)), *([zero] if op.collective.rooted else []))
    among = replace(
        alone, name=f"{op.name}.between_hosts", comm=heads.name, pairs=Pairs.BETWEEN_HOSTS, args=args,
        accesses=(ir.Access(result, Mode.INOUT), *([ir.Access(sums, Mode.IN)] if op.partial else [])),
        when=there if op.when is None else Apply(Fn.AND, (op.when, there)),
    )  # fmt: skip
    inside = replace(alone, comm=host.name, pairs=Pairs.WITHIN_HOST, transport=op.within)
    told = replace(
        inside, name=f"{op.name}.to_host", collective=ir.CollectiveKind.BCAST, args=(result, zero),
        accesses=among.accesses, reduce=None,
    )  # fmt: skip
    if not op.collective.reduces:
        return among, told
    summed = replace(
        inside, name=f"{op.name}.{ir.WITHIN_HOST}", collective=ir.CollectiveKind.REDUCE,
        args=(sums, op.regions[1], zero),
    )  # fmt: skip
    if op.partial is None:
        return summed, among, told
    return replace(summed, accesses=(ir.Access(sums, Mode.OUT), ir.Access(op.regions[1], Mode.IN))), among


@dataclass(frozen=True, slots=True)
class _Unit:
    """What has a post and a wait of its own, or shares them: a message, or one of its shares."""

    number: int
    share: int | None
    message: ir.Message = field(compare=False)

    def region(self, send: bool) -> ir.Region:
        return self.message.region(send, self.share)

    @property
    def serves(self) -> dict[str, Any]:
        """Fields of a `GraphOp` for it alone."""
        return {"message": self.number, "share": self.share}


def _served(op: ir.ExchangeOp) -> list[tuple[_Unit, ...]]:
    """What shares a post and a wait."""
    if not op.split and len(op.messages) > 1:
        return [tuple(_Unit(k, None, message) for k, message in enumerate(op.messages))]
    every = ((k, m, range(m.shares) if m.shares > 1 else (None,)) for k, m in enumerate(op.messages))
    return [(_Unit(k, share, message),) for k, message, shares in every for share in shares]


class _Names:
    """Names of lowered ops: `post_send`, `post_send[x,lo]`; with the exchange's name if there are several."""

    def __init__(self, op: ir.ExchangeOp, *, prefix: bool) -> None:
        self.prefix = f"{op.name}." if prefix else ""
        bases = {m.label.split("[", 1)[0] for m in op.messages}
        self.suffixes: list[tuple[str, str]] = []
        for k, message in enumerate(op.messages):
            base, _, index = message.label.rstrip("]").partition("[")
            if len(bases) > 1 and base:
                base = f".{base}"
            else:
                base, index = "", index or (str(k) if len(op.messages) > 1 else "")
            self.suffixes.append((base, index))

    def of(self, action: str, served: tuple[_Unit, ...]) -> str:
        """Of an op for these: one, or all, whose number is no part of the name."""
        if len(served) != 1:
            return self.prefix + action
        base, index = self.suffixes[served[0].number]
        share = served[0].share
        places = ",".join([*([index] if index else []), *([str(share)] if share is not None else [])])
        return f"{self.prefix}{action}{base}{f'[{places}]' if places else ''}"


def _staged(op: object, region: ir.Region, outwards: bool) -> ir.Staged:
    """The description of a copy of the region, with its exchange or collective."""
    if isinstance(op, ir.CollectiveOp) and op.when is not None:
        return ir.Staged(region, Apply(Fn.COND, (op.when, Const(0), Const(-1))))
    if not isinstance(op, ir.ExchangeOp):
        return ir.Staged(region)
    messages, split = op.messages, op.within is not None
    if outwards:
        receivers = [m.to for m in messages if m.send == region]
        if split and len(receivers) == 1 and not isinstance(receivers[0], str):
            return ir.Staged(region, receivers[0], Pairs.BETWEEN_HOSTS, op.comm)
        return ir.Staged(region, _sent(op, region))
    sources = [_source(m) for m in messages if m.recv == region and (m.when or not isinstance(m.source, str))]
    certain = [isinstance(s, Const) and isinstance(s.value, int) and s.value >= 0 and not split for s in sources]
    pairs = Pairs.BETWEEN_HOSTS if split else Pairs.ALL
    return ir.Staged(region, sources[0], pairs, op.comm) if sources and not certain[0] else ir.Staged(region)


def _sent(op: ir.ExchangeOp, region: ir.Region) -> Sym | None:
    """Negative where no message sends it: its slice is not checked there, and need not be within the array. None where
    there always is one."""
    conditions = [m.when for m in op.messages if m.send == region]
    known = [when for when in conditions if when is not None]
    if not known or len(known) < len(conditions):
        return None
    return Apply(Fn.COND, (reduce(lambda a, b: Apply(Fn.OR, (a, b)), known), Const(0), Const(-1)))


def _source(message: ir.Message) -> Sym:
    """The rank that sends a region; with counts and a condition, 0 if the condition holds, else a negative number."""
    if isinstance(message.source, str):
        assert message.when is not None
        return Apply(Fn.COND, (message.when, Const(0), Const(-1)))
    return message.source

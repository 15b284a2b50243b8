"""Which kernels write the messages of an exchange into the memory of the receivers, under the transport `put`, where
the ranks must wait for one another before, and which kernels wait for what they receive.

A message is written by the one kernel that computes what it sends. The receiver's region must then be free: the ops
that use it on the receiver, earlier in the text, must have completed there. Two things say so:

- a message the other way round, from the receiver, that a kernel wrote after all of these, and that the sender has
  waited for before it writes. In a solver whose boundary is computed from the last message this is the message of the
  step before, and costs nothing;
- else a `free` before the first of the kernels: all ranks wait for one another.

A kernel that updates what is sent (`inout`) may leave elements as they were, and then sends none. Both ends have them
alike if they do at the start, which the program checks when it begins, and if nothing else writes either of the two
regions: each kernel that writes the one sends all that it stores in such a message, and nothing but such messages
writes the other.

With `put_wait=reader` an exchange has no op of its own where the first op that uses each of its received regions is a
kernel that can wait for the message at its start.

The happens-before proof (dagc.space.proof) finds the same by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dagc.base.errors import Diagnostic
from dagc.cuda.text import stores_of
from dagc.forms import AS_CONSTANT, kernel_of, reads_as_constant
from dagc.forms.fuse import calls_of
from dagc.ir import program as ir
from dagc.ir.choice import qualified
from dagc.ir.enums import CodeLang, Mode, Pairs, Role
from dagc.passes.uses import Uses

_RECENT = 8  # exchanges among which an answer is sought


@dataclass(frozen=True, slots=True)
class _Planned:
    """An exchange, with the kernel that writes each message, and that waits for each if they do: indices of ops."""

    index: int
    op: ir.ExchangeOp
    kernels: tuple[int, ...]
    readers: tuple[int, ...]

    def waiter(self, number: int) -> int:
        """The op that waits for a message."""
        return self.readers[number] if self.readers else self.index


class _Refused(Exception):
    pass


class Puts:
    """`of_kernel`: the messages that a kernel op writes, by its name; `before`: the exchanges for which the ranks wait
    just before it; `beside`: the formals to which its text may store in place of one that is sent; `awaited`: by
    exchange, the name of the kernel op that waits for each message, if they do; `why`: for an exchange that has an op,
    why no kernel waits in its place."""

    def __init__(self, program: ir.Program, uses: Uses, by_readers: bool) -> None:
        self.program, self.uses, self.by_readers = program, uses, by_readers
        self.awaited: dict[str, tuple[str, ...]] = {}
        self.why: dict[str, Diagnostic] = {}
        self.of_kernel: dict[str, list[ir.Put]] = {}
        self.before: dict[str, list[ir.ExchangeOp]] = {}
        self.beside: dict[str, dict[str, None]] = {}
        self._planned: list[_Planned] = []
        self._numbers = {op.name: number for number, op in enumerate(program.ops)}

    def plan(self, index: int, op: ir.ExchangeOp) -> Diagnostic | None:
        """Plan an exchange; what is wrong if its messages cannot be written so."""
        ops = self.program.ops
        written: dict[tuple[int, str], list[int]] = {}
        try:
            if self.program.explicit:
                raise _Refused("the program has `edges explicit`, which cannot order what another rank writes")
            for number, message in enumerate(op.messages):
                written.setdefault(self._writer(index, message), []).append(number)
            first = min(kernel for kernel, _ in written)
            for message in op.messages:
                self._nothing_between(first, index, message.recv)
        except _Refused as refused:
            name = qualified(op.base, ir.TRANSPORT) if op.pairs is Pairs.ALL else ir.WITHIN_HOST
            help = f"choose -D {name}=peer"
            return Diagnostic("not-put", f"`{op.name}` cannot be put: {refused}", op.span, help)
        of_message = {number: kernel for (kernel, _), numbers in written.items() for number in numbers}
        kernels = tuple(of_message[number] for number in range(len(op.messages)))
        by_readers = self.by_readers and op.pairs is Pairs.ALL
        planned = _Planned(index, op, kernels, self._readers(index, op) if by_readers else ())
        if not all(map(self._answered, planned.kernels, op.messages)):
            self.before.setdefault(ops[first].name, []).append(op)
        for (kernel, formal), numbers in written.items():
            put = ir.Put(formal, op.name, tuple(numbers), self._updates(kernel, formal))
            self.of_kernel.setdefault(ops[kernel].name, []).append(put)
        self._planned.append(planned)
        return None

    def _readers(self, index: int, op: ir.ExchangeOp) -> tuple[int, ...]:
        """The kernel op that waits for each message; none where an op of its own must wait for one of them."""
        try:
            if any(op.name in (edge.u.op, edge.v.op) for edge in self.program.edges):
                raise _Refused("an edge of the program names it")
            readers = tuple(self._reader(index, message.recv) for message in op.messages)
        except _Refused as refused:
            help = f"drop -D {ir.PUT_WAIT}={ir.PutWait.READER.value}"
            text = f"no kernel waits for the messages of `{op.name}`: {refused}"
            self.why[op.name] = Diagnostic("not-put", text, op.span, help)
            return ()
        self.awaited[op.name] = tuple(self.program.ops[reader].name for reader in readers)
        return readers

    def _reader(self, index: int, region: ir.Region) -> int:
        """The first op after the exchange that uses what it receives, if it is a kernel that can wait."""
        tables, later = (self.uses.reads, self.uses.writes), range(index + 1, len(self.program.ops))
        users = [user for table in tables for user in self.uses.meeting(region, table, later, 1)]
        if not users:
            raise _Refused(f"nothing uses `{region.text}` after it")
        op = self.program.ops[min(users)]
        use = f"`{op.name}`, which uses `{region.text}` first,"
        if not isinstance(op, ir.KernelOp) or op.device is not ir.Device.GPU or op.worker:
            raise _Refused(f"{use} is no kernel on the GPU")
        if op.placed or op.elsewhere or op.others or op.when is not None:
            raise _Refused(f"{use} runs on some ranks only, or has another variant or device")
        code = kernel_of(self.program, op)[1].code
        if code is None or code.text is None or code.lang is not CodeLang.CUDA:
            raise _Refused(f"kernel `{op.kernel}` has no text in the program")
        if reads_as_constant(self.program, code):
            raise _Refused(f"of `{op.name}`, {AS_CONSTANT}")
        return min(users)

    def _writer(self, index: int, message: ir.Message) -> tuple[int, str]:
        """The kernel op that writes what is sent, and its formal."""
        if isinstance(message.to, str):
            raise _Refused("its ranks are in an array")
        name = self.uses.producer(index, message.send)
        op = self.program.ops[self._numbers[name]] if name is not None else None
        if not isinstance(op, ir.KernelOp) or op.device is not ir.Device.GPU or op.worker:
            raise _Refused(f"no kernel on the GPU writes all of `{message.send.text}` before it")
        if op.placed or op.elsewhere or op.others or op.when is not None:
            why = "runs on some ranks only" if op.when is not None else "has another variant or device"
            raise _Refused(f"`{op.name}`, which writes `{message.send.text}`, {why}")
        writer, formal = self._numbers[op.name], self._formal(op, message.send)
        if self._updates(writer, formal):
            self._kept_alike(op.name, message)
        return writer, formal

    def _updates(self, kernel: int, formal: str) -> bool:
        op = self.program.ops[kernel]
        assert isinstance(op, ir.KernelOp)
        return next(f.mode for f in kernel_of(self.program, op)[0].formals if f.name == formal) is not Mode.OUT

    def _kept_alike(self, name: str, message: ir.Message) -> None:
        """Refuse a message of a kernel that updates, unless all that is written at either end is sent in such ones."""
        ops, every = self.program.ops, range(len(self.program.ops))
        alike = [
            (index, op)
            for index, op in enumerate(ops)
            if isinstance(op, ir.ExchangeOp) and op.put is not None
            if any(replace(one, span=message.span, label=message.label) == message for one in op.messages)
        ]
        senders = {self.uses.producer(index, message.send) for index, _ in alike}
        receivers = {op.name for _, op in alike}
        for region, good in ((message.send, senders), (message.recv, receivers)):
            role = self.program.array(region.array).role
            writers = (ops[user].name for user in self.uses.meeting(region, self.uses.writes, every, len(ops)))
            other = next((writer for writer in writers if writer not in good), None)
            if message.when is not None or role is not Role.INOUT or other is not None:
                why = f"`{other}` writes `{region.text}` too" if other else "the set-up may not give it to both ends"
                what = f"`{name}` updates `{message.send.text}`"
                raise _Refused(f"{what}: what it leaves as it was would not be sent, and {why}")

    def _formal(self, op: ir.KernelOp, region: ir.Region) -> str:
        kernel, impl = kernel_of(self.program, op)
        stored = tuple(self._stored(op, region))
        if len(stored) != 1:
            raise _Refused(f"`{op.name}` writes `{region.text}` by several arguments")
        (name,), code = stored, impl.code
        arrays = {f.name for f, a in zip(kernel.formals, op.args, strict=True) if isinstance(a, ir.Region)}
        if code is None or code.text is None or code.lang is not CodeLang.CUDA:
            raise _Refused(f"kernel `{op.kernel}` has no text in the program")
        around = tuple(c.text for c in self.program.code if c.text is not None)
        together = stores_of(code.text, name, around).together
        for one in (name, *sorted(together)):
            if use := stores_of(code.text, one, around).other:
                raise _Refused(f"kernel `{op.kernel}` has `{use}`, where only `{one}[...] = ...` can be sent as well")
        if not together <= arrays:
            raise _Refused(f"kernel `{op.kernel}` stores to `{name}`, or else to what is no argument")
        self.beside.setdefault(op.name, {}).update(dict.fromkeys(sorted(together)))
        return name

    def _stored(self, op: ir.KernelOp, region: ir.Region) -> dict[str, None]:
        """The formals by which calls store to a region."""
        kernel, out = self.program.kernel(op.kernel), dict[str, None]()
        names = [dict(fused.names) for fused in kernel.fused] or [{}]
        for call, own in zip(calls_of(self.program, op), names, strict=True):
            if not any(a.mode is not Mode.IN and self.uses.regions.overlap(region, a.region) for a in call.accesses):
                continue
            for formal, arg in zip(self.program.kernel(call.kernel).formals, call.args, strict=True):
                if isinstance(arg, ir.Region) and formal.mode is not Mode.IN and self.uses.regions.overlap(region, arg):
                    out[own.get(formal.name, formal.name)] = None
        return out

    def _nothing_between(self, first: int, index: int, region: ir.Region) -> None:
        """From the first kernel on, other ranks may write the region."""
        for table in (self.uses.reads, self.uses.writes):
            for user in self.uses.meeting(region, table, range(first, index), 1):
                name, kernel = self.program.ops[user].name, self.program.ops[first].name
                also = "while it writes messages" if user == first else f"after `{kernel}`, with which others write it"
                raise _Refused(f"`{name}` uses `{region.text}` {also}")

    def _answered(self, kernel: int, message: ir.Message) -> bool:
        """Whether a message from the receiver says, before the kernel starts, that it has used its region."""
        answers = [
            planned.kernels[number]
            for planned in self._planned[-_RECENT:]
            for number, other in enumerate(planned.op.messages)
            if (other.to, other.source, other.when, message.when) == (message.source, message.to, None, None)
            if planned.index < kernel and self._done(planned.waiter(number), kernel)
        ]
        users = self._users(message.recv, kernel)
        return bool(answers) and all(any(self._done(user, answer) for answer in answers) for user in users)

    def _done(self, user: int, kernel: int) -> bool:
        return user == kernel or (user < kernel and self._conflict(user, kernel))

    def _users(self, region: ir.Region, before: int) -> Iterable[int]:
        """The ops that use a region, from the last one on that writes all of it."""
        uses, ops = self.uses, self.program.ops
        last = uses.meeting(region, uses.writes, range(before), 1, last=True)
        written = (a.region for a in ops[last[0]].accesses if a.mode in (Mode.OUT, Mode.INOUT)) if last else ()
        start = last[0] if any(uses.regions.within(region, one) for one in written) else 0
        tables = (uses.reads, uses.writes)
        return {user for table in tables for user in uses.meeting(region, table, range(start, before), len(ops))}

    def _conflict(self, one: int, other: int) -> bool:
        """Whether a hazard orders two ops."""
        pairs = ((a, b) for a in self.program.ops[one].accesses for b in self.program.ops[other].accesses)
        return any(not a.mode.commutes(b.mode) and self.uses.regions.overlap(a.region, b.region) for a, b in pairs)


_MOST = 32  # messages that a launch waits for, of which a call may leave some out: bits of a number


def by_call(program: ir.Program, op: ir.KernelOp, uses: Uses) -> tuple[ir.CallMessages, ...]:
    """What the blocks of each call do, of a launch that joins several and has messages; empty if all do the same.

    A block that sends waits for all messages, since any of them may be the answer that it needs, and others wait for
    those that they use. A message also says that the launch has used what it received before, so whoever uses what any
    exchange receives is counted.
    """
    calls = calls_of(program, op)
    if len(calls) < 2 or len(op.awaits) > _MOST:
        return ()
    exchanges = {put.name: put for e in program.ops if isinstance(e, ir.ExchangeOp) and (put := e.put) is not None}
    received = dict.fromkeys(message.recv for exchange in exchanges.values() for message in exchange.messages)
    awaited = [exchanges[name].messages[number].recv for name, number in op.awaits]
    every = tuple(range(len(awaited)))
    sent = {put.formal for put in op.puts if put.messages}
    out = []
    for call, fused in zip(calls, program.kernel(op.kernel).fused, strict=True):
        names = dict(fused.names)
        regions = [access.region for access in call.accesses]
        sends = not sent.isdisjoint(names.get(f.name, f.name) for f in fused.kernel.formals)

        def used(region: ir.Region, regions: list[ir.Region] = regions) -> bool:
            return any(uses.regions.overlap(region, one) for one in regions)

        waits = every if sends else tuple(m for m in every if used(awaited[m]))
        out.append(ir.CallMessages(waits, sends or any(map(used, received))))
    alike = all(call == ir.CallMessages(every, True) for call in out)
    return () if alike else tuple(out)

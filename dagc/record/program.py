"""The text of the program: arrays, kernels, operations in their loop; and the recorded data that its set-up gives: one
compressed file beside it, and the Python file that reads them from there."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.python import np
from dagc.record.arrays import TYPES, WIDTHS, Arrays, FreeNames, Given, RecordedArray, Values, type_of_message
from dagc.record.flow import BARRIER, HostWait, KernelCall, MessageEnd, Messages, Move, Op, Set, Together
from dagc.record.host import History, HostValue, HostWork, Kept, Read
from dagc.record.kernels import Kernels
from dagc.record.log import MemoryPlace, covers
from dagc.record.merge import Blocks, MemoryBlock, MessageLine, ProgramStep
from dagc.record.sources import Sources

_REDUCTIONS = ("sum", "prod", "min", "max")
_TOLERANCES = {"f64": "rtol 1e-10 atol 1e-300", "f32": "rtol 1e-4 atol 1e-30"}


@dataclass(frozen=True, slots=True)
class Written:
    """What is written. `calls`: files beside the program; `scalars`: by name, a value for each rank, those of a round
    named `alpha[0]`; `unfinished`: what a person must look at."""

    text: str
    calls: Mapping[str, str]
    scalars: Mapping[str, tuple[int | float | bool, ...]]
    arrays: tuple[RecordedArray, ...]
    given: tuple[Given, ...]
    unfinished: tuple[str, ...]
    names: tuple[tuple[str, Op], ...] = ()  # of the operations of a round, in their order
    staged: bool = False  # whether the application sends through copies on the host
    kept: tuple[Kept, ...] = ()
    computed: tuple[str, ...] = ()  # what the host computes, and was found
    parts: tuple[str, ...] = ()  # calls that may be split
    own: tuple[str, ...] = ()  # what the host gives from its own data
    blank: tuple[RecordedArray, ...] = ()  # not written by some ranks, and begin with zeros
    carried: tuple[CarriedArray, ...] = ()


@dataclass(frozen=True, slots=True)
class CarriedArray:
    """An array of the host that is read before the rounds write it: on each rank the bytes that it has before them."""

    array: RecordedArray
    first: tuple[bytes, ...]


def _carried(steps: Sequence[ProgramStep], arrays: Arrays) -> dict[str, CarriedArray]:
    """By name. Raises UsageError if what the host has was not recorded."""
    written: dict[tuple[str, int], list[tuple[int, int]]] = {}
    out: dict[str, tuple[RecordedArray, list[bytearray]]] = {}
    for number, step in enumerate(steps):
        for rank, ops in enumerate(step.ops):
            for slot, place, data in _host_places(ops[0]) if ops else ():
                array, at = arrays.find(number, step, rank, slot, place)
                known = written.setdefault((array.name, rank), [])
                ends = (at, at + place.bytes)
                if data is None:
                    known.append(ends)
                elif not covers(known, ends) and array.block.kind == "host":
                    if len(data) != 2 * place.bytes:
                        what = f"{_at(step.first)}: the host has more data from the round before than are recorded"
                        raise UsageError(what, "record a smaller problem, or raise --bytes")
                    sizes = [count * WIDTHS[array.of] for count in array.counts]
                    blocks = out.setdefault(array.name, (array, [bytearray(size) for size in sizes]))[1]
                    blocks[rank][at : at + place.bytes] = bytes.fromhex(data)
    return {name: CarriedArray(array, tuple(map(bytes, blocks))) for name, (array, blocks) in out.items()}


def _host_places(op: Op) -> Iterator[tuple[str, MemoryPlace, str | None]]:
    """Memory of the host that no call allocated, in the order of its use; with what is read, None: it is written."""
    match op:
        case Move() if op.rows == 1 and not op.content:
            every: list[tuple[str, MemoryPlace | None, str | None]] = [
                ("source", op.source, op.sent),
                ("to", op.to, None),
            ]
        case Messages():
            every = [
                (f"send {i}", end.place, end.content)
                for i, end in enumerate(op.sends)
                if end.peer >= 0 and not end.computed
            ]
            every += [(f"recv {i}", end.place, None) for i, end in enumerate(op.receives) if end.peer >= 0]
        case Together():
            every = [("to", op.to, None)]
        case _:
            every = []
    return ((slot, place, data) for slot, place, data in every if place is not None and place.block is None)


class Writer:
    """Writes the program of the steps of `rounds` rounds."""

    def __init__(
        self, name: str, steps: Sequence[ProgramStep], blocks: Blocks, sources: Sources, rounds: int, history: History
    ) -> None:
        names = FreeNames()
        self._name, self._steps, self._rounds, self._sources = name, steps, rounds, sources
        self._values = Values(names, rounds)
        self._arrays = Arrays(steps, blocks, sources, names)
        self._symbols = [(block, self._arrays.of_symbol(block, names)) for block in blocks.symbols()]
        self._host = HostWork(steps, self._arrays, sources, names, history)
        symbols = [block for block, _ in self._symbols]
        self._kernels = Kernels(name, steps, self._arrays, self._values, sources, symbols, self._host)
        self._host.keep_what_is_read()
        self._made: dict[str, HostValue] = {}  # arrays of what the host computes, by their names
        self._computed: list[str] = []
        self._parts: list[str] = []  # calls that may be split
        self._given: list[str] = []  # what the host gives from its own data
        self._keeps_waits = any(isinstance(step.first, HostWait) for step in steps)
        self._op_names = FreeNames()
        self._unfinished: list[str] = []
        self._carried = _carried(steps, self._arrays)
        self._blank: dict[str, RecordedArray] = {}
        self._named: list[tuple[str, Op]] = []
        self._edges: list[tuple[str, str]] = []  # (what the host read last: "" before the first, what it computed)
        self._host_result = ""
        self._index = "[t]" if rounds > 1 else ""

    def write(self, comment: str) -> Written:
        before = [self._symbol(*one) for one in self._symbols]
        ops = [line for number, step in enumerate(self._steps) for line in self._op(number, step)]
        text = "\n".join([*self._head(comment), *self._dag(before, ops), *self._verified()]) + "\n"
        arrays = (*self._arrays.all(), *(array for _, array in self._symbols))
        calls, given = self._kernels.calls(), tuple(self._values.given)
        return Written(
            text, calls, self._values.scalars, arrays, given, tuple(self._unfinished), tuple(self._named), self._staged,
            tuple(self._host.kept.values()), tuple(self._computed), tuple(self._parts),
            tuple(self._given), tuple(self._blank.values()), tuple(self._carried.values()),
        )  # fmt: skip

    @property
    def _staged(self) -> bool:
        return any(isinstance(step.first, Messages) and step.first.stages for step in self._steps)

    @property
    def _streams(self) -> int:
        return len(streams_of([step.first for step in self._steps]))

    def _symbol(self, block: MemoryBlock, array: RecordedArray) -> str:
        """The op that sets a variable of the GPU's memory to what it was before the rounds."""
        name = self._kernels.set_symbol(block, array)
        return f"{self._op_names.free(name)} : gpu {name}({array.name})"

    # ---- operations ----

    def _op(self, number: int, step: ProgramStep) -> list[str]:
        op, before = step.first, len(self._unfinished)
        host = [
            line for slot, value in self._host.of(number).items() for line in self._on_host(number, slot, value, op)
        ]
        name, lines, computed = self._lines(number, step)
        self._named.append((name, op))
        if isinstance(op, KernelCall) and not (computed or step.partial or self._keeps_waits):
            lines = self._split(number, step, name, lines)
        if step.partial:
            flag = self._values.number([int(ops is not None) for ops in step.ops], f"runs_{name}", "runs")
            lines = [f"if {flag} == 1 {{", *(f"  {line}" for line in lines), "}"]
        if computed:  # by the host, from what it read last
            self._edges.append((self._host_result, name))
        if isinstance(op, Move | Together):
            rank = _rank(step)
            if self._arrays.find(number, step, rank, "to", op.to)[0].on_host:
                self._host_result = name
        notes = (f"// to finish: {note}" for note in self._unfinished[before:])
        return [f"// {_at(op)}", *notes, *host, *lines, *self._keeping(number, step)]

    # ---- rows apart ----

    def _split(self, number: int, step: ProgramStep, name: str, lines: list[str]) -> list[str]:
        """The lines of a call, beside those of its rows in parts if most of them need nothing of an exchange before."""
        parts = self._kernels.split(number, step, self._received(number))
        if not parts:
            return lines
        self._parts.append(f"{_at(step.first)}: {name} in {', '.join(p.name for p, _ in parts)} rows")
        calls = (f"  {self._op_names.free(f'{name}_{p.name}')}{self._index} : gpu {call}" for p, call in parts)
        return ["if rows_apart {", *calls, "} else {", *(f"  {line}" for line in lines), "}"]

    def _received(self, number: int) -> dict[str, list[tuple[int, int]]]:
        """Bytes of arrays that an exchange of the round receives before a step, or after the last one."""
        out: dict[str, list[tuple[int, int]]] = {}
        for n, step in enumerate(self._steps):
            for rank, ops in enumerate(step.ops):
                exchange = ops[0] if ops else None
                for i, end in enumerate(exchange.receives if isinstance(exchange, Messages) else ()):
                    if end.place is not None and n < number:
                        array, at = self._arrays.find(n, step, rank, f"recv {i}", end.place)
                        out.setdefault(array.name, []).append((at, at + end.place.bytes))
        return out

    # ---- what the host computes ----

    def _on_host(self, number: int, slot: str, value: HostValue, op: Op) -> Iterator[str]:
        """The op that computes it, before its first use, and the copy of it that a kernel reads."""
        index = self._index
        if value.name not in self._made:
            name = self._op_names.free(f"host_{value.name}")
            yield f"{name}{index} : cpu {self._host_call(number, value, name)}"
            self._made[value.name] = value
            self._named.append((name, op))
        if slot.isdecimal() and value.there not in self._made:
            name = self._op_names.free(f"copy_{value.name}")
            yield f"{name}{index} : gpu copy({value.there}, {value.name})"
            self._made[value.there] = value
            self._named.append((name, op))

    def _host_call(self, number: int, value: HostValue, name: str) -> str:
        out, formula = f"{value.name}: out {value.of}[1]", value.formula
        place = f"{value.at}: the host computes {value.what}"
        if formula is None:
            recorded = self._values.data(value.rows, value.of, f"{value.name}_recorded", value.at)
            self._unfinished.append(f"{place} in each round; the op {name} gives what was recorded. Write its code")
            self._edges.append((self._host_result, name))
            body = f"// To finish: {place}.\n{value.name}[0] = recorded[0];"
            code = self._kernels.host_code(name, (out, f"recorded: in {value.of}[1]"), body)
            return f"{code}({value.name}, {recorded})"
        inputs, words, names = [out], [value.name], FreeNames([value.name])
        for read in formula.reads:
            kept, step = self._host.array_of(read, number), self._steps[read.step]
            array, text = self._region(read.step, step, _each(step, "to"), "read")
            words.append(kept or text)
            inputs.append(f"{names.free(kept or array.name)}: in {array.of}[*]")
        expression = formula.text.format(*list(names.taken)[1:])
        self._computed.append(f"{place}: {expression}")
        body = f"// {place}: equal to the bit in all recorded rounds.\n{value.name}[0] = {expression};"
        code = (
            self._kernels.host_function(name, inputs, body, formula.file)
            if formula.file
            else self._kernels.host_code(name, inputs, body)
        )
        return f"{code}({', '.join(words)})"

    def _keeping(self, number: int, step: ProgramStep) -> Iterator[str]:
        """What a step brought to the host is kept; before that what was kept in the round before, if it is wanted."""
        now, before = (self._host.kept.get(Read(number, its)) for its in (False, True))
        if now is None:
            return
        source = self._region(number, step, _each(step, "to"), "read")[1]
        for to, what in ((before, now.name), (now, source)):
            if to is not None:
                name = self._op_names.free(f"keep_{to.name}")
                self._named.append((name, step.first))
                yield f"{name}{self._index} : cpu {self._kernels.keep(to.of)}({to.name}, {what}, {to.count})"

    def _lines(self, number: int, step: ProgramStep) -> tuple[str, list[str], bool]:
        """The name of an operation, its lines, and whether the host computed something of it."""
        op, index = step.first, self._index
        match op:
            case KernelCall():
                text, computed = self._kernels.call(number, step)
                name = self._op_names.free(text.partition("(")[0].removesuffix("_call"))
                if computed and not self._host.reads:
                    self._given.append(f"{op.at}: {', '.join(computed)} of {op.kernel}")
                elif computed:
                    self._unfinished.append(
                        f"{op.at}: the host computes {', '.join(computed)} of {op.kernel} in each round; the program"
                        " has the values that were recorded. Compute them in a kernel, and pass a pointer"
                    )
                return name, [f"{name}{index} : gpu {text}"], bool(computed) and self._host.reads
            case Move():
                packs = ("pack" if isinstance(op.to.block, str) else "unpack") if op.shape else "copy"
                name = self._op_names.free(packs)
                text, computed_data = self._move(number, step)
                return name, [f"{name}{index} : gpu {text}"], computed_data
            case Set():
                name = self._op_names.free("fill")
                if op.rows > 1:
                    return name, [f"{name}{index} : gpu {self._fill_rows(number, step, op.value)}"], False
                array, text = self._region(number, step, _each(step, "to"), "fill")
                counts = [
                    ops[0].to.bytes // WIDTHS[array.of] if ops and isinstance(ops[0], Set) else None for ops in step.ops
                ]
                size = self._values.number(counts, "filled")
                return name, [f"{name}{index} : gpu {self._kernels.fill(array)}({text}, {op.value}, {size})"], False
            case Messages():
                lines, name = list[str](), ""
                for together in self._apart(number, step):
                    if name:
                        self._named.append((name, op))
                    lines += [text for line in together for text in self._computed_by_host(number, step, line)]
                    name = self._op_names.free("halo")
                    messages = [f"  {line}" for line in self._messages(number, step, together)]
                    lines += [f"{name}{index} : mpi exchange {{", *messages, "}"]
                return name, lines, False
            case Together():
                name = self._op_names.free(op.op)
                lines, computed_data = self._together(number, step, name)
                return name, lines, computed_data
            case HostWait():
                if op.call == BARRIER:
                    name = self._op_names.free("barrier")
                    return name, [f"{name}{index} : mpi barrier()"], False
                name = self._op_names.free("host_wait")
                return name, [f"{name}{index} : cpu {self._kernels.host_wait()}()"], False

    def _region(
        self, number: int, step: ProgramStep, places: Sequence[tuple[str, MemoryPlace] | None], hint: str
    ) -> tuple[RecordedArray, str]:
        """The array, and the text of the part of it that the places of the ranks are."""
        at = _at(step.first)
        found = [None if p is None else self._arrays.find(number, step, rank, *p) for rank, p in enumerate(places)]
        arrays = {f[0].name: f[0] for f in found if f is not None}
        if len(arrays) != 1:
            raise UsageError(f"{at}: the ranks name different arrays", "record a loop in which they name the same")
        array = next(iter(arrays.values()))
        ends = [
            None if f is None or p is None else (f[1], f[1] + p[1].bytes) for f, p in zip(found, places, strict=True)
        ]
        if any(e is not None and (e[0] % array.width or e[1] % array.width) for e in ends):
            raise UsageError(f"{at}: a part of an element of {array.name}", "copy whole elements")
        sizes = [count // array.per for count in array.counts]
        if all(e is None or e == (0, n * array.width) for e, n in zip(ends, sizes, strict=True)):
            return array, array.name
        elements = [None if e is None else (e[0] // array.width, e[1] // array.width) for e in ends]
        return array, self._values.part(array.name, elements, hint)

    def _move(self, number: int, step: ProgramStep) -> tuple[str, bool]:
        op = step.first
        assert isinstance(op, Move)
        if op.shape:
            return self._packed(number, step), False
        if op.rows > 1:
            return self._rows(number, step), False
        array, to = self._region(number, step, _each(step, "to"), "to")
        self._copied_to(array, step)
        if "data" in self._host.of(number):
            return f"copy({to}, {self._host.of(number)['data'].name})", False
        if not op.content:
            return f"copy({to}, {self._region(number, step, _each(step, 'source'), 'from')[1]})", False
        contents = [[move.content for move in ops if isinstance(move, Move)] if ops else None for ops in step.ops]
        differs = _differ(contents)
        if differs and not self._host.reads:
            self._given.append(f"{op.at}: what is copied to {array.name}")
        elif differs:
            self._unfinished.append(
                f"{op.at}: the host computes what is copied to {array.name} in each round; the program has what was"
                " recorded. Compute it in a kernel, or in a cpu op"
            )
        return f"copy({to}, {self._values.data(contents, array.of, 'data', op.at)})", differs and self._host.reads

    def _packed(self, number: int, step: ProgramStep) -> str:
        """The copy between a buffer and the rows of a message."""
        op = step.first
        assert isinstance(op, Move)
        packs = isinstance(op.to.block, str)
        amounts = ("at", "width", "rows", "pitch", "planes", "plane")
        table: list[list[int] | None] = []
        spans: list[tuple[int, int] | None] = []
        for rank, ops in enumerate(step.ops):
            one = ops[0] if ops else None
            if not isinstance(one, Move):
                table.append(None)
                spans.append(None)
                continue
            buffer, _ = self._arrays.find(
                number, step, rank, "to" if packs else "source", one.to if packs else one.source
            )
            array, at = self._arrays.find(
                number, step, rank, "source" if packs else "to", one.source if packs else one.to
            )
            width, rows, pitch, planes, plane = one.shape
            bytes = (at, width, rows * array.width, pitch, planes * array.width, plane)
            if any(n % array.width for n in bytes) or (buffer.of, buffer.per) != (array.of, array.per):
                what = f"{op.at}: a derived datatype of parts of elements of {array.name}, or of other elements"
                raise UsageError(what, "pack it with a kernel or cudaMemcpy2D")
            table.append([n // array.width for n in bytes])
            end = at + width + (rows - 1) * pitch + (planes - 1) * plane
            spans.append((at // array.width, end // array.width))
        bounds = [
            self._values.bound([s[i] if s else None for s in spans], f"{a}_end") for i, a in enumerate(("at", "to"))
        ]
        rows_of = f"{array.name} touching [{bounds[0]} .. {bounds[1]}]"
        if packs:
            self._copied_to(buffer, step)
        words = [self._values.number([r[i] if r else None for r in table], a) for i, a in enumerate(amounts)]
        return f"{self._kernels.pack(array, packs)}({buffer.name}, {rows_of}, {', '.join(words)})"

    def _rows(self, number: int, step: ProgramStep) -> str:
        """A copy of rows, by a kernel that calls cudaMemcpy2DAsync."""
        amounts = ("to_at", "to_pitch", "from_at", "from_pitch", "width", "rows")
        table: list[tuple[int, ...] | None] = []
        arrays: tuple[RecordedArray, RecordedArray] | None = None
        for rank, ops in enumerate(step.ops):
            one = ops[0] if ops else None
            if not isinstance(one, Move):
                table.append(None)
                continue
            to, to_at = self._arrays.find(number, step, rank, "to", one.to)
            source, from_at = self._arrays.find(number, step, rank, "source", one.source)
            arrays = to, source
            table.append((to_at, one.pitches[0], from_at, one.pitches[1], one.to.bytes, one.rows))
        assert arrays is not None
        to, source = arrays
        self._copied_to(to, step)
        words = [to.name, *([] if to is source else [source.name])]
        words += [self._values.number([r[i] if r else None for r in table], a) for i, a in enumerate(amounts)]
        whole = all(
            row is None or (row[:2] == (0, row[4]) and row[4] * row[5] == count // to.per * to.width)
            for row, count in zip(table, to.counts, strict=True)
        )
        return f"{self._kernels.copy_rows(to, source, amounts, 'out' if whole else 'inout')}({', '.join(words)})"

    def _copied_to(self, array: RecordedArray, step: ProgramStep) -> None:
        if step.partial and array.block.kind in ("host", "buffer"):
            self._blank[array.name] = array

    def _fill_rows(self, number: int, step: ProgramStep, value: int) -> str:
        amounts = ("to_at", "to_pitch", "width", "rows")
        table: list[tuple[int, ...] | None] = []
        arrays = []
        for rank, ops in enumerate(step.ops):
            one = ops[0] if ops else None
            if isinstance(one, Set):
                to, at = self._arrays.find(number, step, rank, "to", one.to)
                arrays.append(to)
            table.append((at, one.pitch, one.to.bytes, one.rows) if isinstance(one, Set) else None)
        words = [self._values.number([r[i] if r else None for r in table], a) for i, a in enumerate(amounts)]
        return f"{self._kernels.fill_rows(arrays[0], amounts)}({arrays[0].name}, {value}, {', '.join(words)})"

    # ---- messages ----

    def _apart(self, number: int, step: ProgramStep) -> list[list[MessageLine]]:
        """The messages of a call as exchanges: one receives into nothing that another message of it uses, on any rank.
        An application may use one buffer for a message here, and for another one there."""
        out: list[tuple[list[MessageLine], list[tuple[str, int, int, bool]]]] = []
        for line in step.lines:
            ends = [end for rank in range(len(step.ops)) for end in self._used(number, step, rank, line)]
            for lines, used in out:
                if not any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and (a[3] or b[3]) for a in ends for b in used):
                    lines.append(line)
                    used += ends
                    break
            else:
                out.append(([line], ends))
        return [lines for lines, _ in out]

    def _used(
        self, number: int, step: ProgramStep, rank: int, line: MessageLine
    ) -> Iterator[tuple[str, int, int, bool]]:
        """Array, first byte and byte behind the last of the ends of a message, and whether it is received."""
        ops = step.ops[rank]
        exchange = ops[0] if ops else None
        for kind, at in (("send", line.sends[rank]), ("recv", line.receives[rank])):
            if isinstance(exchange, Messages) and at is not None:
                place = (exchange.sends if kind == "send" else exchange.receives)[at].place
                if place is not None:
                    array, begin = self._arrays.find(number, step, rank, f"{kind} {at}", place)
                    yield array.name, begin, begin + place.bytes, kind == "recv"

    def _messages(self, number: int, step: ProgramStep, lines: Sequence[MessageLine]) -> Iterator[str]:
        exchanges = [ops[0] for ops in step.ops if ops]
        for index, line in enumerate(lines):
            label = f"m{index} : " if len(lines) > 1 else ""
            send, to = self._end(number, step, exchanges, line, True)
            receive, source = self._end(number, step, exchanges, line, False)
            yield f"{label}send {send} to {to}  recv {receive} from {source}"

    def _computed_by_host(self, number: int, step: ProgramStep, line: MessageLine) -> Iterator[str]:
        """The op that brings what the host computed to where a message is sent from."""
        places: list[tuple[str, MemoryPlace] | None] = []
        contents: list[list[str] | None] = []
        for at, ops in zip(line.sends, step.ops, strict=True):
            ends = [one.sends[at] for one in ops or () if isinstance(one, Messages) and at is not None]
            computed = bool(ends) and ends[0].computed and ends[0].place is not None
            places.append((f"send {at}", ends[0].place) if computed and ends[0].place is not None else None)
            contents.append([end.content for end in ends] if computed else None)
        if not any(contents):
            return
        array, text = self._region(number, step, places, "send")
        place = _at(step.first)
        if _differ(contents) and self._host.reads:
            self._unfinished.append(
                f"{place}: the host computes what is sent from {array.name} in each round; the program has what was"
                " recorded. Compute it in a kernel, or in a cpu op"
            )
        elif _differ(contents):
            self._given.append(f"{place}: what is sent from {array.name}")
        name = self._op_names.free("sent")
        self._named.append((name, step.first))
        data = self._values.data(contents, array.of, "sent", place)
        sizes = [len(one[0]) // 2 // WIDTHS[array.of] if one else None for one in contents]
        count = self._values.number(sizes, "sent")
        if array.block.kind == "host":
            self._blank[array.name] = array
        copy = f"{name}{self._index} : cpu {self._kernels.keep(array.of)}({text}, {data}, {count})"
        if None not in contents:
            yield copy
            return
        flag = self._values.number([int(one is not None) for one in contents], f"runs_{name}", "runs")
        yield from (f"if {flag} == 1 {{", f"  {copy}", "}")

    def _end(
        self, number: int, step: ProgramStep, exchanges: Sequence[Op], line: MessageLine, sends: bool
    ) -> tuple[str, str]:
        places: list[tuple[str, MemoryPlace] | None] = []
        peers: list[int] = []
        for rank, exchange in enumerate(exchanges):
            assert isinstance(exchange, Messages)
            ends: tuple[MessageEnd, ...] = exchange.sends if sends else exchange.receives
            at = (line.sends if sends else line.receives)[rank]
            end = ends[at] if at is not None else None
            peers.append(end.peer if end is not None else -1)
            place = end.place if end is not None else None
            places.append((f"{'send' if sends else 'recv'} {at}", place) if place is not None else None)
        _, text = self._region(number, step, places, "send" if sends else "recv")
        return text, self._values.number(peers, "partner", "partner")

    def _together(self, number: int, step: ProgramStep, name: str) -> tuple[list[str], bool]:
        op, index = step.first, self._index
        assert isinstance(op, Together)
        if op.operator and op.operator not in _REDUCTIONS:
            help = f"the language has {', '.join(_REDUCTIONS)}; gather the data, and combine them in a kernel"
            raise UsageError(f"{op.at}: a reduction with an operator of its own", help)
        _, to = self._region(number, step, _each(step, "to"), "to")
        contents = [[c.content for c in ops if isinstance(c, Together)] if ops else None for ops in step.ops]
        given, of = any(any(c) for c in contents if c), type_of_message(op.type)
        if op.op == "bcast":
            lines = [f"{name}{index} : mpi bcast({to}, {op.root})"]
            if given:
                data = self._values.data([c if c and any(c) else None for c in contents], of, f"{name}_data", op.at)
                lines.insert(0, f"{name}_from{index} : gpu copy({to}, {data})")
            return lines, False
        host = self._host.of(number).get("data")
        source = host.name if host is not None else (
            self._values.data(contents, of, f"{name}_data", op.at) if given
            else self._region(number, step, _each(step, "source"), "from")[1]
        )  # fmt: skip
        computed = given and host is None and _differ(contents) and self._host.reads
        if computed:
            self._unfinished.append(
                f"{op.at}: the host computes the data of this {op.op} in each round; the program has those that were"
                " recorded. Compute them in a kernel, or in a cpu op"
            )
        words = [to, source, *([op.operator] if op.operator else []), *([str(op.root)] if op.op == "reduce" else [])]
        return [f"{name}{index} : mpi {op.op}({', '.join(words)})"], computed

    # ---- the text ----

    def _head(self, comment: str) -> Iterator[str]:
        values = self._values
        yield from (f"// {line}" for line in comment.splitlines())
        yield from (f"program {self._name}", "", f'setup "{self._name}.py" start()', f"let rounds = {self._rounds}")
        if self._streams > 2:
            yield f"let streams = {self._streams}"
        if self._staged:  # by copies of their own, as in the application, is the default
            yield "tune staging in {ops, fused}"
        if self._parts:
            yield "tune rows_apart in {false, true}"
        arrays = [self._array(array) for array in self._arrays.all()]  # which may need scalars
        arrays += [self._array(array) for _, array in self._symbols]
        for of in dict.fromkeys(values.types.values()):
            yield f"scalar {', '.join(name for name, its in values.types.items() if its == of)} : {of}"
        yield from arrays
        for name, value in self._made.items():
            yield f"array {name} : {value.of}[1]{' on pinned' if name == value.name else ''}"
        for kept in self._host.kept.values():
            yield f"array {kept.name} : {kept.of}[{kept.count}] on host inout"
        indexed = [f"  scalar {name}[t] : {of}" for name, of in values.indexed.items()]
        indexed += [f"  array {g.name}[t] : {g.of}[{g.count}] on pinned const" for g in values.given]
        yield from ("for t in 0..rounds {", *indexed, "}") if indexed else ()
        yield from values.requires()
        yield ""
        texts = [f"{kernel}\n" for kernel in self._kernels.texts]
        for file in self._sources.needed_by([file for file in self._sources.named if self._kernels.uses(file)]):
            yield f'{"cuda" if file.endswith(".cu") else "cpp"} from "{file}"'
        yield from texts

    def _array(self, array: RecordedArray) -> str:
        rows = self._values.bound([count // array.per for count in array.counts], f"{array.name}_size")
        dims = rows if array.per == 1 else f"{rows}, {array.per}"
        place = " on pinned" if array.on_host else ""
        role = "out" if array.block.kind == "host" else ""
        if array.has_data or array.name in {*self._blank, *self._carried}:
            role = "inout" if array.written else "const"
        return f"array {array.name} : {array.of}[{dims}]{place}{' ' + role if role else ''}"

    def _dag(self, before: Sequence[str], ops: Sequence[str]) -> Iterator[str]:
        looped = self._rounds > 1
        yield "dag {"
        yield from (f"  {line}" for line in before)
        yield from ("  for t in 0..rounds {",) if looped else ()
        edges = (*self._edge_texts(), *self._wait_edges())
        yield from (f"{'    ' if looped else '  '}{line}" for line in (*ops, *edges))
        yield from ("  }",) if looped else ()
        yield "}"

    def _edge_texts(self) -> Iterator[str]:
        """What the host read before it computed: in the same round, or at the end of the one before."""
        for result, name in self._edges:
            if result:
                yield f"{result}{self._index} -> {name}{self._index}"
            elif self._rounds > 1 and self._host_result:
                yield f"if t > 0 {{ {self._host_result}[t - 1] -> {name}[t] }}"

    def _wait_edges(self) -> Iterator[str]:
        """Each wait after what it covers and no earlier one does, and before all that follows it."""
        looped, ops = self._rounds > 1, self._named
        waits = [(at, name, op) for at, (name, op) in enumerate(ops) if isinstance(op, HostWait)]
        into: dict[tuple[str, bool], list[str]] = {}  # by wait, and whether from the round before
        out: dict[tuple[str, bool], list[str]] = {}
        for at, (name, op) in enumerate(ops):
            covering = [(w, of) for w, of, wait in waits if wait.covers(op) and of != name]
            later = next((of for w, of in covering if w > at), "")
            if later or (looped and covering and not isinstance(op, HostWait)):
                into.setdefault((later or covering[0][1], not later), []).append(name)
            earlier = next((of for w, of, _ in reversed(waits) if w < at), "")
            if not isinstance(op, HostWait) and earlier:
                out.setdefault((earlier, False), []).append(name)
            elif looped and waits and not earlier and waits[-1][1] != name:
                out.setdefault((waits[-1][1], True), []).append(name)
        for (wait, before), names in into.items():
            yield self._edge(names, "[t - 1]" if before else self._index, [wait], before)
        for (wait, before), names in out.items():
            yield self._edge([wait], "[t - 1]" if before else self._index, names, before)

    def _edge(self, sources: Sequence[str], index: str, targets: Sequence[str], before: bool) -> str:
        def listed(names: Sequence[str], of: str) -> str:
            text = ", ".join(f"{name}{of}" for name in names)
            return f"{{{text}}}" if len(names) > 1 else text

        text = f"{listed(sources, index)} -> {listed(targets, self._index)}"
        return f"if t > 0 {{ {text} }}" if before else text

    def _verified(self) -> Iterator[str]:
        for array in self._arrays.all():
            if array.written and array.has_data:
                yield f"verify {array.name} ~ result() {_TOLERANCES.get(array.of, 'rtol 0')}"


def streams_of(ops: Iterable[Op]) -> dict[int, int]:
    """The streams of the application, numbered in the order of their first use."""
    used = [s for op in ops for s in ([s for _, _, s in op.stages] if isinstance(op, Messages) else
                                      [] if isinstance(op, Together | HostWait) else [op.stream])]  # fmt: skip
    return {stream: number for number, stream in enumerate(dict.fromkeys(used))}


def _each(step: ProgramStep, slot: str) -> list[tuple[str, MemoryPlace] | None]:
    """The place of a slot on each rank."""
    return [(slot, getattr(ops[0], slot)) if ops else None for ops in step.ops]


def _rank(step: ProgramStep) -> int:
    return next(rank for rank, ops in enumerate(step.ops) if ops)


def _differ(contents: Sequence[Sequence[str] | None]) -> bool:
    """Whether data differ between the rounds."""
    return any(len(set(c)) > 1 for c in contents if c)


def _at(op: Op) -> str:
    if isinstance(op, Messages):
        return ", ".join(dict.fromkeys(end.at for end in (*op.sends, *op.receives) if end.at))
    return op.at


# ---- the data ----

SETUP = '''"""Set-up and reference of {name}.dag: the data that `dagc record` recorded, in {name}.npz."""

from pathlib import Path

import numpy as np


def _recorded(rank, size, when):
    with np.load(Path(__file__).with_name("{name}.npz")) as data:
        if size != data["ranks"]:
            raise ValueError(f"the data are those of {{data['ranks']}} ranks: run it with -n {{data['ranks']}}")
        head = f"{{when}} {{rank}} "
        found = {{key.removeprefix(head): data[key] for key in data.files if key.startswith(head)}}
    return {{key: value if value.ndim else value.item() for key, value in found.items()}}


def start(rank, size, seed):
    """Arrays and scalars of a rank before the first round."""
    return _recorded(rank, size, "before")


def result(data, *, rank, size, seed):
    """The arrays of a rank after the last round."""
    return _recorded(rank, size, "after")
'''


def contents_of(folder: Path, when: str, rank: int, array: RecordedArray) -> np.ndarray:
    """The contents of an array before the rounds, or after them: zeros on a rank without it, and before it is first
    allocated."""
    path = folder / f"contents-{int(when == 'after')}-{rank}-{array.block.numbers[rank]}.bin"
    none = array.block.numbers[rank] is None or (array.block.fresh and when == "before")
    data = bytes(array.counts[rank] * WIDTHS[array.of]) if none else path.read_bytes()
    return _shaped(data, array)[: array.counts[rank] // array.per]


def _shaped(data: bytes, array: RecordedArray) -> np.ndarray:
    whole = np.frombuffer(data, dtype=TYPES[array.of])
    return whole if array.per == 1 else whole.reshape(-1, array.per)


def recorded_data(written: Written, folder: Path, ranks: int) -> dict[str, np.ndarray]:
    """By `WHEN RANK NAME`, what set-up and reference return."""
    out: dict[str, np.ndarray] = {"ranks": np.asarray(ranks)}
    for rank in range(ranks):
        for name, values in written.scalars.items():
            out[f"before {rank} {name}"] = np.asarray(values[rank])
        for given in written.given:
            for t, text in enumerate(given.values[rank]):
                out[f"before {rank} {given.name}[{t}]"] = np.frombuffer(bytes.fromhex(text), dtype=TYPES[given.of])
        for kept in written.kept:
            out[f"before {rank} {kept.name}"] = np.frombuffer(bytes.fromhex(kept.first[rank]), dtype=TYPES[kept.of])
        for array in written.arrays:
            if array.has_data:
                out |= _of_array(array, folder, rank)
        for one in written.carried:
            out[f"before {rank} {one.array.name}"] = _shaped(one.first[rank], one.array)
        for array in written.blank:
            out[f"before {rank} {array.name}"] = np.zeros(array.counts[rank], dtype=TYPES[array.of])
    return out


def _of_array(array: RecordedArray, folder: Path, rank: int) -> Mapping[str, np.ndarray]:
    wanted = ("before", "after") if array.written else ("before",)
    return {f"{when} {rank} {array.name}": contents_of(folder, when, rank, array) for when in wanted}


def compressed(data: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **data)  # type: ignore[arg-type]
    return file.getvalue()

"""The arrays and the values of the program: what the memory of all ranks is called, and numbers that differ by rank."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from keyword import iskeyword

from dagc.base.errors import UsageError
from dagc.cuda.lexer import KEYWORDS, is_global, is_reserved
from dagc.lang.syntax import RESERVED
from dagc.record.flow import KernelCall, Messages, Move, Op, PointerArgument, ScalarArgument, Together
from dagc.record.log import MemoryPlace
from dagc.record.merge import Blocks, Key, MemoryBlock, ProgramStep, places_in
from dagc.record.sources import SCALARS, Sources, element_of, value_of

WIDTHS = {name: int(name[1:]) // 8 for name in SCALARS if name != "bool"}
TYPES = {name: "?" if name == "bool" else f"{name[0]}{int(name[1:]) // 8}" for name in SCALARS}  # of NumPy
_MPI_TYPES = {
    "MPI_DOUBLE": "f64", "MPI_FLOAT": "f32", "MPI_INT": "i32", "MPI_LONG": "i64", "MPI_LONG_LONG": "i64",
    "MPI_LONG_LONG_INT": "i64", "MPI_UNSIGNED": "u32", "MPI_UNSIGNED_LONG": "u64", "MPI_INT32_T": "i32",
    "MPI_INT64_T": "i64", "MPI_CHAR": "i8", "MPI_BYTE": "u8", "MPI_UNSIGNED_CHAR": "u8", "MPI_SHORT": "i16",
    "MPI_C_BOOL": "u8", "MPI_CXX_BOOL": "u8", "MPI_UINT64_T": "u64", "MPI_UINT32_T": "u32",
}  # fmt: skip
_WORDS = {"device", "host", "pinned", "grid", "block", "shared", "explicit", "equal", "split", "after", "runs", "rank",
          "ranks", "rounds", "hw", "t"}  # fmt: skip


def type_of_message(name: str) -> str:
    """The element type of MPI's; bytes for any other."""
    return _MPI_TYPES.get(name, "u8")


class FreeNames:
    """Names that are free in a program, in the order in which they were taken."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken: dict[str, None] = dict.fromkeys(taken)

    def free(self, wanted: str) -> str:
        word = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "x"
        word = f"n{word}" if word[0].isdigit() else word
        reserved = word in RESERVED or word in KEYWORDS or word in _WORDS or iskeyword(word)  # those of Python too
        word += "_" if reserved or is_reserved(word) or is_global(word) else ""
        name, number = word, 2
        while name in self.taken:
            name, number = f"{word}_{number}", number + 1
        self.taken[name] = None
        return name


# ---- arrays ----


@dataclass(frozen=True, slots=True)
class RecordedArray:
    """`of`, `per`: element type, and elements of a struct; `counts[r]`: elements on rank r; `written`: by an op."""

    name: str
    block: MemoryBlock
    of: str
    per: int
    counts: tuple[int, ...]
    written: bool

    @property
    def width(self) -> int:
        """Bytes of a struct, or of an element."""
        return WIDTHS[self.of] * self.per

    @property
    def has_data(self) -> bool:
        """Whether its contents were recorded."""
        return self.block.key[0] == "alloc"

    @property
    def on_host(self) -> bool:
        return self.block.kind in ("host", "pinned")

    def formal(self, name: str, mode: str) -> str:
        """As the parameter of a kernel."""
        return f"{name}: {mode} {self.of}[{'*' if self.per == 1 else f'*, {self.per}'}]"


@dataclass(slots=True)
class _Use:
    """What is known of a block: the elements of pointers and of messages to it, a name, whether it is written."""

    elements: list[tuple[str, int]]
    weak: str = ""
    hint: str = "data"
    written: bool = False


class Arrays:
    """The arrays of the blocks that steps name."""

    def __init__(self, steps: Sequence[ProgramStep], blocks: Blocks, sources: Sources, names: FreeNames) -> None:
        self._blocks, self._steps = blocks, steps
        self._all: dict[Key, RecordedArray] = {}
        uses: dict[Key, _Use] = {}
        sides: list[list[Key]] = []
        for number, step, rank, slot, place, op in self._places():
            block = blocks.find(number, step, rank, 0, slot, place)[0]
            use = uses.setdefault(block.key, _Use([]))
            _note(use, op, slot, sources)
            if isinstance(op, Move):
                if slot == "to":
                    sides.append([])
                sides[-1].append(block.key)
        known = {key: _common(use.elements) for key, use in uses.items() if use.elements}
        known |= {key: (use.weak, 1) for key, use in uses.items() if use.weak and key not in known}
        for _ in sides:  # a copy has one type on both sides
            for keys in sides:
                types = [known[key] for key in keys if key in known]
                known |= {key: types[0] for key in keys if types and key not in known}
        for key, use in uses.items():
            self._all[key] = _array(blocks.all[key], use, known.get(key, ("u8", 1)), names)

    def _places(self) -> Iterator[tuple[int, ProgramStep, int, str, MemoryPlace, Op]]:
        for number, step in enumerate(self._steps):
            for rank, ops in enumerate(step.ops):
                for slot, place in places_in(ops[0]) if ops else ():
                    if place.block is not None or not isinstance(ops and ops[0], KernelCall):
                        yield number, step, rank, slot, place, ops[0]  # type: ignore[index]

    def all(self) -> tuple[RecordedArray, ...]:
        return tuple(self._all.values())

    @staticmethod
    def of_symbol(block: MemoryBlock, names: FreeNames) -> RecordedArray:
        """The array that sets a variable of the GPU's memory."""
        return _array(block, _Use([]), (block.of or "u8", 1), names)

    def find(
        self, number: int, step: ProgramStep, rank: int, slot: str, place: MemoryPlace
    ) -> tuple[RecordedArray, int]:
        """The array of a place, and the bytes before the place in it."""
        block, before = self._blocks.find(number, step, rank, 0, slot, place)
        return self._all[block.key], before


def _note(use: _Use, op: Op, slot: str, sources: Sources) -> None:
    match op:
        case KernelCall():
            pointer, source = op.args[int(slot)], sources.kernel(op)
            if isinstance(pointer, PointerArgument):
                use.elements += [element_of(pointer)] if pointer.of != "void" else []
                use.written |= not pointer.writes_none
            if use.hint in ("data", "host"):
                use.hint = source.parameters[int(slot)] if source else f"a{slot}"
        case Messages():
            kind, _, index = slot.partition(" ")
            end = (op.sends if kind == "send" else op.receives)[int(index)]
            use.weak = use.weak or type_of_message(end.type)
            use.written |= kind == "recv" or end.computed
            use.hint = f"{'to' if kind == 'send' else 'from'}_{index}" if use.hint == "data" else use.hint
        case Together():
            use.weak = use.weak or type_of_message(op.type)
            use.written |= slot == "to"
            use.hint = ("result" if slot == "to" else "part") if use.hint == "data" else use.hint
        case _:
            use.written |= slot == "to"


def _array(block: MemoryBlock, use: _Use, element: tuple[str, int], names: FreeNames) -> RecordedArray:
    of, per = element
    sizes = [size for size in block.bytes if size]
    fallback = max(sizes)
    if any((size or fallback) % (WIDTHS[of] * per) for size in block.bytes):
        of, per = "u8", 1
    counts = tuple((size or fallback) // WIDTHS[of] for size in block.bytes)
    return RecordedArray(names.free(_variable(block.text) or use.hint), block, of, per, counts, use.written)


def _common(types: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The element type of an array with these users; bytes if they differ."""
    return types[0] if len(set(types)) == 1 else ("u8", 1)


def _variable(text: str) -> str:
    """The variable of `&now, bytes`, `(void**)&d->u, bytes`."""
    found = re.match(r"\s*(?:\([^()]*\)\s*)*&?\s*\(?\s*(?:\w+\s*(?:\.|->)\s*)*(\w+)\s*\)?\s*(?:\[[^\]]*\]\s*)?,", text)
    return found[1] if found else ""


# ---- values ----


@dataclass(frozen=True, slots=True)
class Given:
    """Data of the host that no recorded call made, for a step: `values[r][t]` of each rank and round, hexadecimal;
    `count`: elements on a rank, as the program writes it."""

    name: str
    of: str
    count: str
    values: tuple[tuple[str, ...], ...]


def _filled(values: Sequence[int | None]) -> tuple[int, ...]:
    """The values of all ranks, where None is any."""
    some = next((v for v in values if v is not None), 0)
    return tuple(some if v is None else v for v in values)


class Values:
    """Numbers as the program writes them: one that is equal on all ranks is itself, another becomes a scalar."""

    def __init__(self, names: FreeNames, rounds: int) -> None:
        self.names, self.rounds = names, rounds
        self.scalars: dict[str, tuple[int | float | bool, ...]] = {}  # a value for each rank, of a round as `alpha[0]`
        self.types: dict[str, str] = {}
        self.indexed: dict[str, str] = {}
        self.given: list[Given] = []
        self._same: dict[tuple[object, ...], str] = {}
        self._bounds: dict[tuple[int, ...], str] = {}
        self._parts: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}  # of each array, begins and ends

    @property
    def index(self) -> str:
        """How a name of each round is written in a round."""
        return "[t]" if self.rounds > 1 else "[0]"

    def number(self, values: Sequence[int | None], hint: str, kind: str = "") -> str:
        """An expression for a number of each rank; None: any. Equal ones of one `kind` have one name."""
        return self._literal("i64", _filled(values), hint, kind)

    def bound(self, values: Sequence[int | None], hint: str) -> str:
        """As `number`, for a bound of a slice."""
        text = self.number(values, hint)
        self._bounds[_filled(values)] = text
        return text

    def part(self, array: str, ends: Sequence[tuple[int, int] | None], hint: str) -> str:
        """A slice of an array, of each rank; None: any."""
        begins, stops = ([None if e is None else e[side] for e in ends] for side in (0, 1))
        parts, one = self._parts.setdefault(array, []), (_filled(begins), _filled(stops))
        parts += [one] if one not in parts else []
        return f"{array}[{self.bound(begins, f'{hint}_begin')} .. {self.bound(stops, f'{hint}_end')}]"

    def requires(self) -> Iterator[str]:
        """How bounds that differ between ranks are ordered on all of them, without what others imply: so that it is
        known which slices overlap."""
        known = list(self._bounds)
        above = {a: [b for b in known if a != b and all(x <= y for x, y in zip(a, b, strict=True))] for a in known}
        for a, larger in above.items():
            for b in larger:
                implied = any(b in above[c] for c in larger if c != b)
                if not implied and (len(set(a)) > 1 or len(set(b)) > 1):
                    yield f"require {self._bounds[a]} <= {self._bounds[b]}"
        for first, second in (pair for parts in self._parts.values() for pair in combinations(parts, 2)):
            orders = ((first[1], second[0]), (second[1], first[0]))  # one on some ranks, the other on the others
            held = [[x <= y for x, y in zip(*order, strict=True)] for order in orders]
            if not any(map(all, held)) and all(map(any, zip(*held, strict=True))):
                yield f"require {' || '.join(f'{self._bounds[a]} <= {self._bounds[b]}' for a, b in orders)}"

    def scalar(self, columns: Sequence[Sequence[ScalarArgument] | None], hint: str) -> tuple[str, bool]:
        """An expression for a value of each rank in each round, and whether it differs between rounds for a reason that
        is not recorded: the host computed it."""
        of = next(c[0].of for c in columns if c)
        table = [tuple(value_of(s) for s in c) if c else None for c in columns]
        some = next(row for row in table if row is not None)
        rows = [row if row is not None else some for row in table]
        if all(len(set(row)) == 1 for row in rows):
            return self._literal(of, [row[0] for row in rows], hint), False
        steps = {row[t + 1] - row[t] for row in rows for t in range(len(row) - 1)}
        if of[0] in "iu" and len(steps) == 1:
            first, step = self._literal(of, [row[0] for row in rows], hint), steps.pop()
            return f"{first} + {step} * t" if step != 1 else f"{first} + t", False
        name = self.names.free(hint)
        self.indexed[name] = of
        for t in range(self.rounds):
            self.scalars[f"{name}[{t}]"] = tuple(row[t] for row in rows)
        return f"{name}{self.index}", True

    def _literal(self, of: str, values: Sequence[int | float | bool], hint: str, kind: str = "") -> str:
        if len(set(values)) == 1 and (not isinstance(values[0], float) or math.isfinite(values[0])):
            value = values[0]
            return str(value).lower() if isinstance(value, bool) else repr(value)
        key = (of, tuple(values), kind)
        if key not in self._same:
            name = self.names.free(hint)
            self._same[key], self.scalars[name], self.types[name] = name, tuple(values), of
        return self._same[key]

    def data(self, contents: Sequence[Sequence[str] | None], of: str, hint: str, at: str) -> str:
        """An array with data that the host had, of each rank and round. Raises UsageError if they were not recorded."""
        some = next(tuple(c) for c in contents if c)
        rows = tuple(tuple(c) if c else some for c in contents)
        if any(not one for row in rows for one in row):
            raise UsageError(
                f"{at}: the host computes the data of this call, more than are recorded",
                "move the computation to a kernel, or record a loop without it",
            )
        name = self.names.free(hint)
        count = self.number([len(row[0]) // 2 // WIDTHS[of] for row in rows], f"{name}_size")
        self.given.append(Given(name, of, count, rows))
        return f"{name}{self.index}"

"""The recorded loop of an application, replaced by calls of a library of the program: a patch of one file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from dagc.base.errors import UsageError
from dagc.cuda.syntax import below, field_of, operator_of, text_of, tree_of
from dagc.ir.names import mangle
from dagc.record.arrays import WIDTHS, RecordedArray
from dagc.record.flow import ScalarArgument
from dagc.record.kernels import C_TYPES
from dagc.record.log import Alloc, LaunchCall, RankLog
from dagc.record.loop import Window
from dagc.record.program import Written
from dagc.record.sources import SCALARS, value_of, variable_of

_STEP = r"\+\+\s*COUNTER|COUNTER\s*\+\+|COUNTER\s*\+=\s*1"
_ALLOCATED = re.compile(r"\s*(?:\([^()]*\)\s*)*&\s*([^,\[\]]+?)\s*,\s*(.+)")


@dataclass(frozen=True, slots=True)
class SourceLoop:
    """`for (TYPE counter = first; counter < end; ++counter)` of a file. `within`: its function; `start`, `stop`: the
    place of `first` in the text, in bytes; `begin`, `last`: the lines of the loop."""

    file: str
    first: str
    end: str
    start: int
    stop: int
    at: int
    begin: int
    last: int
    within: tuple[int, int]

    def has(self, at: str) -> bool:
        """Whether a call stands in the loop."""
        file, line = _place(at)
        return file == self.file and self.begin <= line <= self.last


def loop_of(texts: Mapping[str, str], calls: Sequence[str]) -> SourceLoop:
    """The innermost loop around the calls of a round that are in the function of the first; the others are in functions
    that it calls. Raises UsageError if there is none, or one that does not count."""
    file, line = _place(calls[0])
    root = tree_of(texts.get(file, "").encode())
    around = [n for n in below(root) if n.start_point[0] < line <= n.end_point[0] + 1]
    functions = [n for n in around if n.type == "function_definition"]
    within = (functions[-1].start_point[0] + 1, functions[-1].end_point[0] + 1) if functions else (0, 0)
    lines = [at for one, at in map(_place, calls) if one == file and within[0] <= at <= within[1]]
    loops = [
        n for n in around if n.type in ("for_statement", "while_statement", "do_statement")
        and n.start_point[0] < min(lines) and max(lines) <= n.end_point[0] + 1
    ]  # fmt: skip
    if not loops:
        raise UsageError(f"{calls[0]}: no loop of this function repeats what was recorded", "record without --replace")
    loop = loops[-1]
    counted = _counted(loop)
    if counted is None:
        raise UsageError(
            f"{file}:{loop.start_point[0] + 1}: this loop does not count by `for (int t = ...; t < ...; ++t)`",
            "write it so, or record without --replace, and call the library by hand",
        )
    first, end = counted
    return SourceLoop(
        file, text_of(first), end, first.start_byte, first.end_byte, loop.start_byte,
        loop.start_point[0] + 1, loop.end_point[0] + 1, within,
    )  # fmt: skip


def _counted(loop: Any) -> tuple[Any, str] | None:
    """The first value of the counter, as a node, and the end of its range."""
    init, test, step = (field_of(loop, name) for name in ("initializer", "condition", "update"))
    one = next((n for n in below(init) if n.type == "init_declarator"), None) if init is not None else None
    if one is None or test is None or step is None or test.type != "binary_expression":
        return None
    counter, first = text_of(field_of(one, "declarator")), field_of(one, "value")
    left, right, word = field_of(test, "left"), field_of(test, "right"), operator_of(test)
    stepped = re.fullmatch(_STEP.replace("COUNTER", re.escape(counter)), text_of(step))
    if first is None or text_of(left) != counter or word not in ("<", "<=") or not stepped:
        return None
    return first, f"({text_of(right)})" + (" + 1" if word == "<=" else "")


def _place(at: str) -> tuple[str, int]:
    file, _, line = at.rpartition(":")
    return file, int(line) if line.isdecimal() else 0


# ---- the patch ----


def starts_with_iteration(log: RankLog, window: Window, texts: Mapping[str, str]) -> bool:
    """Whether the rounds begin as the loop does: with its first call, after whole rounds, so that arrays that are
    exchanged are where they were before the loop. Raises UsageError."""
    calls = _calls(log, window)
    loop = loop_of(texts, calls)
    before = sum(e.at == calls[0] for e in log.events[: window.starts[0]])
    first = min((at for at in calls if loop.has(at)), key=lambda at: _place(at)[1])
    return first == calls[0] and before % calls.count(calls[0]) == 0


def _calls(log: RankLog, window: Window) -> list[str]:
    """The places of the calls of a round."""
    return [e.at for e in log.events[window.starts[0] : window.starts[1]] if e.at]


def _iterations(calls: list[str]) -> int:
    """Of the loop in a round: into as many equal parts as its calls divide."""
    count = len(calls)
    parts = (n for n in range(count, 0, -1) if count % n == 0)
    return next(n for n in parts if calls == calls[: count // n] * n)


def patch(
    name: str, logs: Sequence[RankLog], windows: Sequence[Window], texts: Mapping[str, str], written: Written
) -> str:
    """A unified diff of the application's file: its loop calls the library `name` for as many iterations as that runs
    together, if ranks and sizes are those that were recorded, and runs those that are left itself.

    Raises UsageError for a program that the application cannot call.
    """
    loop = loop_of(texts, _calls(logs[0], windows[0]))
    if written.unfinished or written.given or written.computed or written.own:
        raise UsageError(
            f"{loop.file}:{loop.begin}: the host computes in each round, which the library does not",
            "finish the program if that is left, then call its library by hand (docs/port.md)",
        )
    text = texts[loop.file]
    source = text.encode()
    margin = source[source.rfind(b"\n", 0, loop.at) + 1 : loop.at].decode()
    margin = margin if not margin.strip() else ""
    lines = "".join(f"{margin}{line}\n" for line in _call(name, logs, windows, loop, texts, written))
    new = (
        source[: loop.at - len(margin.encode())] + lines.encode() + margin.encode() + source[loop.at : loop.start]
        + f"{loop.first} + dagc_done".encode() + source[loop.stop :]
    ).decode()  # fmt: skip
    include = re.search(r"^[ \t]*#[ \t]*include", new, re.MULTILINE)
    at = include.start() if include else 0
    new = f'{new[:at]}#include "{name}.hpp"\n{new[at:]}'
    before, after = text.splitlines(keepends=True), new.splitlines(keepends=True)
    return "".join(unified_diff(before, after, f"a/{loop.file}", f"b/{loop.file}"))


def _call(
    name: str,
    logs: Sequence[RankLog],
    windows: Sequence[Window],
    loop: SourceLoop,
    texts: Mapping[str, str],
    written: Written,
) -> Iterator[str]:
    together = _iterations(_calls(logs[0], windows[0])) * windows[0].rounds
    ranks = len(logs)
    given = [array for array in written.arrays if array.has_data and array.block.lasts]
    symbols = [(array, _symbol(array, logs, loop)) for array in given if array.block.kind == "symbol"]
    bound = [_bound(array, logs, loop) for array in given if array.block.kind != "symbol"]
    own = [array for array in written.arrays if array.has_data and not array.block.lasts]
    yield f"// {together} iterations at a time by the library of {name}.dag; what is left runs below."
    yield "int dagc_done = 0;"
    yield "{"
    yield "  int dagc_rank = 0, dagc_ranks = 1;"
    yield "  MPI_Comm_rank(MPI_COMM_WORLD, &dagc_rank);"
    yield "  MPI_Comm_size(MPI_COMM_WORLD, &dagc_ranks);"
    sizes = [(f"({size})", _of_rank(bytes)) for _, _, size, bytes in bound]
    passed = [(text, _of_rank(values)) for text, values in _passed(logs, windows, loop, texts).items()]
    same = "".join(f" && {text} == {value}" for text, value in dict.fromkeys([*sizes, *passed]))
    yield f"  if (dagc_ranks == {ranks}{same}) {{  // as recorded"
    yield f"    {name}::Sizes sizes{{}};"
    for scalar, values in written.scalars.items():
        yield f"    sizes.{mangle(scalar)} = {_of_rank([_literal(value) for value in values])};"
    yield f"    {name}::Arrays arrays{{}};"
    for array, variable, _, _ in bound:
        yield f"    arrays.{mangle(array.name)} = {{({C_TYPES[array.of]}*){variable}, {_of_rank(array.counts)}}};"
    for array, variable in symbols:
        yield f"    cudaGetSymbolAddress((void**)&arrays.{mangle(array.name)}.data, {variable});"
        yield f"    arrays.{mangle(array.name)}.size = {_of_rank(array.counts)};"
    for array in own:  # the loop allocates it
        bytes = _of_rank([count * WIDTHS[array.of] for count in array.counts])
        call = "cudaMallocHost" if array.on_host else "cudaMalloc"
        yield f"    {call}((void**)&arrays.{mangle(array.name)}.data, {bytes});"
        yield f"    arrays.{mangle(array.name)}.size = {_of_rank(array.counts)};"
    yield "    cudaDeviceSynchronize();"
    yield f"    const int runs = ({loop.end} - ({loop.first})) / {together};"
    yield f"    if (runs > 0) {name}::Instance(MPI_COMM_WORLD, sizes, arrays).run(runs);"
    for array in own:
        yield f"    {'cudaFreeHost' if array.on_host else 'cudaFree'}(arrays.{mangle(array.name)}.data);"
    yield f"    dagc_done = runs > 0 ? runs * {together} : 0;"
    yield "  }"
    yield "}"


def _passed(
    logs: Sequence[RankLog], windows: Sequence[Window], loop: SourceLoop, texts: Mapping[str, str]
) -> dict[str, list[str]]:
    """Variables that launches in the loop pass by value, with the one value that each had, by rank."""
    calls = {n.start_point[0] + 1: n for n in below(tree_of(texts[loop.file].encode())) if n.type == "call_expression"
             and any(c.type == "kernel_call_syntax" for c in n.children)}  # fmt: skip
    seen: dict[str, list[set[str]]] = {}
    for rank, (log, window) in enumerate(zip(logs, windows, strict=True)):
        for event in log.events[window.starts[0] : window.starts[-1]]:
            call = calls.get(_place(event.at)[1]) if isinstance(event, LaunchCall) and loop.has(event.at) else None
            words = field_of(call, "arguments")
            if call is None or words is None or not isinstance(event, LaunchCall):
                continue
            for one, word in zip(event.args, words.named_children, strict=False):
                if one.of in SCALARS and not one.is_pointer and word.type == "identifier":
                    value = _literal(value_of(ScalarArgument(one.of, one.hex, one.type)))
                    seen.setdefault(text_of(word), [set() for _ in logs])[rank].add(value)
    return {text: [v.pop() for v in values] for text, values in seen.items() if all(len(v) == 1 for v in values)}


def _literal(value: int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _of_rank(values: Sequence[object]) -> str:
    """A number that differs between ranks, by the rank."""
    if len(set(values)) == 1:
        return str(values[0])
    last = str(values[-1])
    return "".join(f"dagc_rank == {rank} ? {value} : " for rank, value in enumerate(values[:-1])) + last


def _bound(
    array: RecordedArray, logs: Sequence[RankLog], loop: SourceLoop
) -> tuple[RecordedArray, str, str, list[int]]:
    """An array, the variable of the application that points to it, and its size there: as text, and on each rank."""
    rank, number = next((r, n) for r, n in enumerate(array.block.numbers) if n is not None)
    event = logs[rank].memory()[number]
    assert isinstance(event, Alloc)
    found, (file, line) = _ALLOCATED.fullmatch(event.text), _place(event.at)
    seen = file == loop.file and loop.within[0] <= line <= loop.within[1] and not loop.has(event.at)
    if found is None or not seen:
        what = (
            f"its allocation at {event.at} is not `cudaMalloc(&VARIABLE, BYTES)` in the function of the loop, before it"
        )
        raise UsageError(
            f"{array.name}: the variable of the application that points to it is not known: {what}",
            "record without --replace, and call the library by hand",
        )
    return array, found[1], _first(found[2]).strip(), [b if b is not None else 0 for b in array.block.bytes]


def _symbol(array: RecordedArray, logs: Sequence[RankLog], loop: SourceLoop) -> str:
    """A variable of the GPU's memory, which the file of the loop sees if it sets it."""
    event = logs[0].memory()[array.block.numbers[0] or 0]
    if _place(event.at)[0] != loop.file:
        raise UsageError(
            f"{event.at}: a variable of another file than that of the loop, {loop.file}",
            "record without --replace, and call the library by hand",
        )
    return variable_of(array.block)


def _first(arguments: str) -> str:
    """The text up to the first comma outside of brackets."""
    depth = 0
    for at, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            return arguments[:at]
    return arguments

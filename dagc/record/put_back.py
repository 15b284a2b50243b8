"""The recorded loop of an application, replaced by calls of a library of the program: a patch of one file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from dagc.base.errors import UsageError
from dagc.cuda.syntax import below, field_of, operator_of, text_of, tree_of
from dagc.record.arrays import RecordedArray
from dagc.record.kernels import C_TYPES
from dagc.record.log import Alloc, LaunchCall, RankLog
from dagc.record.loop import Window
from dagc.record.program import Written

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


def loop_of(texts: Mapping[str, str], at: str) -> SourceLoop:
    """The innermost loop around a call. Raises UsageError if there is none, or one that does not count."""
    file, line = _place(at)
    root = tree_of(texts.get(file, "").encode())
    around = [n for n in below(root) if n.start_point[0] < line <= n.end_point[0] + 1]
    loops = [n for n in around if n.type in ("for_statement", "while_statement", "do_statement")]
    functions = [n for n in around if n.type == "function_definition"]
    if not loops or not functions:
        raise UsageError(f"{at}: no loop of this function repeats what was recorded", "record without --replace")
    loop, function = loops[-1], functions[-1]
    counted = _counted(loop)
    if counted is None:
        raise UsageError(
            f"{file}:{loop.start_point[0] + 1}: this loop does not count by `for (int t = ...; t < ...; ++t)`",
            "write it so, or record without --replace, and call the library by hand",
        )
    first, end = counted
    return SourceLoop(
        file, text_of(first), end, first.start_byte, first.end_byte, loop.start_byte,
        loop.start_point[0] + 1, loop.end_point[0] + 1, (function.start_point[0] + 1, function.end_point[0] + 1),
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
    """Whether the rounds begin as the loop does: with its first call, after as many iterations as rounds have, so that
    arrays that are exchanged are where they were before the loop. Raises UsageError."""
    event = log.events[window.starts[0]]
    loop = loop_of(texts, event.at)
    inside = [e for e in log.events[window.starts[0] : window.starts[1]] if loop.has(e.at)]
    before = sum(e.at == event.at for e in log.events[: window.starts[0]])
    return min(inside, key=lambda e: _place(e.at)[1]).at == event.at and before % _iterations(log, window) == 0


def _iterations(log: RankLog, window: Window) -> int:
    """Of the loop in a round."""
    events = log.events[window.starts[0] : window.starts[1]]
    return sum(e.at == events[0].at for e in events)


def patch(
    name: str, logs: Sequence[RankLog], windows: Sequence[Window], texts: Mapping[str, str], written: Written
) -> str:
    """A unified diff of the application's file: its loop calls the library `name` for as many iterations as that runs
    together, if ranks and sizes are those that were recorded, and runs those that are left itself.

    Raises UsageError for a program that the application cannot call.
    """
    loop = loop_of(texts, logs[0].events[windows[0].starts[0]].at)
    if written.unfinished or written.given:
        raise UsageError(
            f"{loop.file}:{loop.begin}: the host computes in each round, which the library does not",
            "finish the program, then call its library by hand (docs/port.md)",
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
    together = _iterations(logs[0], windows[0]) * windows[0].rounds
    ranks = len(logs)
    bound = [_bound(array, logs, loop) for array in written.arrays if array.has_data]
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
        yield f"    sizes.{scalar} = {_of_rank([_literal(value) for value in values])};"
    yield f"    {name}::Arrays arrays{{}};"
    for array, variable, _, _ in bound:
        yield f"    arrays.{array.name} = {{({C_TYPES[array.of]}*){variable}, {_of_rank(array.counts)}}};"
    yield "    cudaDeviceSynchronize();"
    yield f"    const int runs = ({loop.end} - ({loop.first})) / {together};"
    yield f"    if (runs > 0) {name}::Instance(MPI_COMM_WORLD, sizes, arrays).run(runs);"
    yield f"    dagc_done = runs > 0 ? runs * {together} : 0;"
    yield "  }"
    yield "}"


def _passed(
    logs: Sequence[RankLog], windows: Sequence[Window], loop: SourceLoop, texts: Mapping[str, str]
) -> dict[str, list[int]]:
    """Variables that launches in the loop pass by value, with the one value that each had, by rank."""
    calls = {n.start_point[0] + 1: n for n in below(tree_of(texts[loop.file].encode())) if n.type == "call_expression"
             and any(c.type == "kernel_call_syntax" for c in n.children)}  # fmt: skip
    seen: dict[str, list[set[int]]] = {}
    for rank, (log, window) in enumerate(zip(logs, windows, strict=True)):
        for event in log.events[window.starts[0] : window.starts[-1]]:
            call = calls.get(_place(event.at)[1]) if isinstance(event, LaunchCall) and loop.has(event.at) else None
            words = field_of(call, "arguments")
            if call is None or words is None or not isinstance(event, LaunchCall):
                continue
            for one, word in zip(event.args, words.named_children, strict=False):
                if one.of[:1] in ("i", "u") and word.type == "identifier":
                    value = int.from_bytes(bytes.fromhex(one.hex), "little", signed=one.of[0] == "i")
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
    seen = file == loop.file and loop.within[0] <= line <= loop.within[1]
    if found is None or not seen or array.block.kind == "symbol":
        what = f"its allocation at {event.at} is not `cudaMalloc(&VARIABLE, BYTES)` in the function of the loop"
        raise UsageError(
            f"{array.name}: the variable of the application that points to it is not known: {what}",
            "record without --replace, and call the library by hand",
        )
    return array, found[1], _first(found[2]).strip(), [b if b is not None else 0 for b in array.block.bytes]


def _first(arguments: str) -> str:
    """The text up to the first comma outside of brackets."""
    depth = 0
    for at, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            return arguments[:at]
    return arguments

"""Races within one launch, found by executing a few threads of a few blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from dagc.cuda.execute import Callee, ElementAccess, Value, accesses_of_thread
from dagc.cuda.text import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

BLOCKS = 3  # that are executed first, in each dimension of the grid; the last one too
_MOST_STEPS = 50_000  # of all threads of a kernel that are executed
_WARP = 32

_Index: TypeAlias = tuple[int, ...]
_Thread: TypeAlias = tuple[_Index, _Index]  # its block, and its place there
_Element: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Race:
    """A thread writes an element of an array that another reads. `write`, `read`: the element as the code has it."""

    array: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class LaunchOf:
    """A kernel as it is launched. `names`: the values of its arguments and of constants."""

    body: Node
    names: Mapping[str, Value]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    functions: Mapping[str, tuple[Callee, ...]]

    def accesses(self, places: Iterable[_Thread]) -> Iterator[tuple[_Thread, list[ElementAccess]]]:
        """Those of threads, as many as a limited number of steps allows."""
        steps = 0
        for block, thread in places:
            of = {"blockIdx": block, "threadIdx": thread, "blockDim": self.block, "gridDim": self.grid}
            built_in = {
                f"{name}.{axis}": n for name, values in of.items() for axis, n in zip("xyz", values, strict=True)
            }
            names = {"warpSize": _WARP, **self.names}
            found, more = accesses_of_thread(self.body, names, built_in, self.functions)
            yield (block, thread), found
            steps += more
            if steps > _MOST_STEPS:
                return


def between_blocks(launch: LaunchOf, arrays: Sequence[str]) -> tuple[Race, ...]:
    """Elements of arrays that one block writes and another reads, the first pair of each array. None where the grid is
    synchronised, or a thread waits for another.

    A thread that writes what it reads by the same expression, in the same iterations, does not count: in step k of an
    all-pairs shortest path, the thread of `d[i][k]` leaves it as it is.
    """
    if max(launch.grid) < 2 or "this_grid" in text_of(launch.body) or _waits(launch):
        return ()
    writes: dict[_Element, list[tuple[_Thread, str, _Index]]] = {}
    reads: dict[_Thread, dict[tuple[_Element, str, _Index], None]] = {}
    blocks = product(*(sorted({*range(min(n, BLOCKS)), n - 1}) for n in launch.grid))
    for thread, accesses in launch.accesses(product(blocks, list(_threads(launch.block)))):
        own = reads.setdefault(thread, {})
        for access in accesses:
            if access.array in arrays and not access.shared:
                element = (access.array, access.view, access.index)
                if access.kind == "r":
                    own[element, access.text, access.turns] = None
                else:
                    writes.setdefault(element, []).append((thread, access.text, access.turns))
    found: dict[str, Race] = {}
    for reader, own in reads.items():
        for element, text, _ in own:
            for writer, write, turns in writes.get(element, ()):
                if writer[0] != reader[0] and (element, text, turns) not in reads[writer]:
                    found.setdefault(element[0], Race(element[0], write, text))
    return tuple(found.values())


def between_lanes(launch: LaunchOf) -> tuple[Race, ...]:
    """Elements of shared memory that a lane of the first two warps writes and another of its warp reads, with no
    barrier between; the first pair of each array."""
    writes: dict[tuple[object, ...], tuple[_Thread, str]] = {}
    reads: list[tuple[_Thread, int, ElementAccess]] = []
    x, y, z = launch.block
    numbers = range(min(2 * _WARP, x * y * z))
    threads = [((0, 0, 0), (n % x, n // x % y, n // (x * y))) for n in numbers]
    for (thread, accesses), number in zip(launch.accesses(threads), numbers, strict=False):
        for access in accesses:
            if access.shared and access.kind == "r":
                reads.append((thread, number // _WARP, access))
            elif access.shared and access.kind == "w":
                writes.setdefault((access.array, access.index, access.epoch, number // _WARP), (thread, access.text))
    found: dict[str, Race] = {}
    for thread, warp, access in reads:
        other = writes.get((access.array, access.index, access.epoch, warp))
        if other is not None and other[0] != thread:
            found.setdefault(access.array, Race(access.array, other[1], access.text))
    return tuple(found.values())


@lru_cache(maxsize=256)
def elements_named(text: str, array: str) -> frozenset[str]:
    """How a kernel's text writes the elements of an array: what follows its name, without spaces; `` where it is used
    in another way."""
    out = set()
    for match in re.finditer(rf"(?<![\w.])(?<!->){re.escape(array)}\b\s*(\[)?", text):
        if match[1] is None:
            out.add("")
            continue
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        out.add("".join(text[match.end() : end - 1].split()))
    return frozenset(out)


def _waits(launch: LaunchOf) -> bool:
    """Whether a kernel, or a function that it calls, has a loop that only another thread ends."""
    todo, seen = [launch.body], set[str]()
    while todo:
        at = todo.pop()
        if at.type in ("for_statement", "while_statement", "do_statement") and _only_waits(at):
            return True
        if at.type == "call_expression":
            name = text_of(at.child_by_field_name("function")).partition("<")[0].rpartition("::")[2]
            if name not in seen:
                seen.add(name)
                todo += [callee.body for callee in launch.functions.get(name, ())]
        todo += at.named_children
    return False


def _only_waits(loop: Node) -> bool:
    """Whether nothing that the condition of a loop names comes from the iterations before. A retry of `atomicCAS` does:
    it goes on from the value that it found."""
    condition = loop.child_by_field_name("condition")
    constant = text_of(condition).strip("()") if condition is not None else "true"
    if constant in ("0", "false"):
        return False
    changes = list(_changes(loop))
    changed = {name for name, _ in changes}
    carried = {name for name, value in changes if value is None or changed & set(_names(value))}
    if condition is None or constant in ("1", "true"):
        return not carried
    return not carried & set(_names(condition))


def _changes(loop: Node) -> Iterator[tuple[str, Node | None]]:
    """The names that a loop assigns, with the new value; None where it is made from the old one or is an element."""
    todo = list(loop.named_children)
    while todo:
        at = todo.pop()
        todo += at.named_children
        target, value = at.child_by_field_name("argument"), None
        match at.type:
            case "assignment_expression":
                target = at.child_by_field_name("left")
                if (
                    text_of(at.child_by_field_name("operator")) == "="
                    and target is not None
                    and target.type == "identifier"
                ):
                    value = at.child_by_field_name("right")
            case "init_declarator":
                target, value = at.child_by_field_name("declarator"), at.child_by_field_name("value")
            case "update_expression":
                pass
            case "pointer_expression" if (
                text_of(at).startswith("&") and target is not None and target.type == "identifier"
            ):
                pass
            case _:
                continue
        yield from ((name, value) for name in (list(_names(target))[:1] if target is not None else ()))


def _names(node: Node) -> Iterator[str]:
    """The names below a node, in the order of the text."""
    todo = [node]
    while todo:
        at = todo.pop()
        if at.type == "identifier":
            yield text_of(at)
        todo += reversed(at.named_children)


def _threads(block: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Threads at the edges of a block and of its warps."""
    powers = {1 << k for k in range(11)}
    x = sorted({0, *powers, _WARP - 1, block[0] // 2, block[0] - 2, block[0] - 1} & set(range(block[0])))
    y, z = (sorted({0, 1, n - 1} & set(range(n))) for n in block[1:])
    for k, j, i in product(z, y, x):
        yield (i, j, k)

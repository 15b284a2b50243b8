"""Resources of compiled kernels on a multiprocessor, and their instructions, counted in PTX.

A loop lies between a label and the last branch back to it. Remainder loops of unrolled loops are excluded: they run a
few times at most. nvcc marks them `.pragma "nounroll"`, as it does loops with that pragma in the program's text; if
all loops of a depth are marked, they are the program's. A call is one instruction, whatever the function does: nvcc
inlines nearly all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# ---- resources of a compiled kernel ----


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a warp in nvcc's output (PTX).

    `once`: outside of loops. `loops[d]`: in loops at depth d + 1, per instruction there that accesses global memory.
    Iteration counts depend on the sizes, and unrolling on nvcc; this ratio on neither.
    """

    once: float
    loops: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"once": self.once, "loops": list(self.loops)}


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers` of a thread, of 32 bits; `shared` memory of a block in bytes, declared in the kernel's text;
    `instructions`: None if not known, and then counted in the kernel's text; `spills`: bytes that a thread stores in
    local memory for want of registers."""

    registers: int = 32
    shared: int = 0
    instructions: Instructions | None = None
    spills: int = 0


ASSUMED = Resources()  # of a kernel that nvcc has not compiled


def largest(each: Sequence[Resources]) -> Resources:
    """The maxima of several versions of a kernel, with the instructions of the first."""
    most = {name: max(getattr(r, name) for r in each) for name in ("registers", "shared", "spills")}
    return Resources(**most, instructions=each[0].instructions)


_LENGTH = re.compile(r"\d+")


def function_of(symbol: str) -> str:
    """The unqualified name of the function of a symbol, `step` for `_ZN4heat4stepIfEEvPT_`; a symbol that is not
    mangled is its name."""
    if not symbol.startswith("_Z"):
        return symbol
    name, at = symbol, 3 if symbol.startswith("_ZN") else 2
    while length := _LENGTH.match(symbol, at):
        at = length.end() + int(length[0])
        name = symbol[length.end() : at]
        if not symbol.startswith("_ZN"):
            break
    return name


def unqualified(call: str) -> str:
    """The name of a function without namespaces and template arguments: `step` for `::heat::step<float>`."""
    return call.partition("<")[0].rpartition("::")[2].strip()


# ---- instructions ----


# Comments, and lines that name places in the source, which do not end in a semicolon.
_ASIDE = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_LABEL = re.compile(r"([\w$%]+)\s*:(?!:)\s*")
_PREDICATE = r"(?:@!?[\w%]+\s+)?"
_BRANCH = re.compile(rf"{_PREDICATE}bra(?:\.uni)?\s+([\w$%]+)")
# To global or generic memory; not to parameters, constants, shared and local memory.
_REQUEST = re.compile(rf"{_PREDICATE}(?:ld|ldu|st|atom|red)\.(?!(?:\w+\.)*(?:param|const|shared|local)\b)")
_COPY = re.compile(rf"{_PREDICATE}cp\.async\.c[ag]\.")  # from global memory to shared memory
_MARK = '.pragma "nounroll"'


@dataclass(frozen=True, slots=True)
class _Loop:
    """Statements `first` to `last` of a function's body."""

    first: int
    last: int

    def holds(self, other: _Loop) -> bool:
        return self != other and self.first <= other.first and other.last <= self.last


def read_instructions(text: str) -> dict[str, Instructions]:
    """Instructions of each kernel function of a PTX text, by name."""
    return {name: _instructions_of(body) for name, body in _functions(text)}


def _functions(text: str) -> Iterable[tuple[str, list[str]]]:
    """(name, statements) of each kernel. A label is a statement that ends with a colon.

    The text of `asm` may have braces, several statements and labels on a line.
    """
    name, depth, operand = "", 0, False
    words = ""
    body: list[str] = []
    for part in re.split(r"([{};])", _ASIDE.sub(" ", text)):
        if operand or part not in ("{", "}", ";"):
            words += part
            operand = operand and part != "}"
        elif part == "{" and depth > 0 and (words := _after_labels(words, body)):
            words += part  # a vector of registers, not a scope
            operand = True
        elif part == "{":
            if depth == 0:
                entry = _ENTRY.search(words)
                name, body = entry.group(1) if entry else "", []
            words, depth = "", depth + 1
        elif part == ";":
            if statement := _after_labels(words, body):
                body.append(statement)
            words = ""
        else:
            _after_labels(words, body)
            words, depth = "", depth - 1
            if depth == 0 and name:
                yield name, body
                name = ""


def _after_labels(words: str, body: list[str]) -> str:
    """What follows the labels at the start of `words`, in one line; the labels go into the body."""
    words = " ".join(words.split())
    while label := _LABEL.match(words):
        body.append(f"{label.group(1)}:")
        words = words[label.end() :]
    return words


def _loops(body: list[str]) -> list[_Loop]:
    labels: dict[str, int] = {}  # those above: a label of `asm` may occur in several scopes
    last: dict[int, int] = {}
    for i, statement in enumerate(body):
        if statement.endswith(":"):
            labels[statement[:-1]] = i
        elif (branch := _BRANCH.match(statement)) and branch.group(1) in labels:
            last[labels[branch.group(1)]] = i
    return [_Loop(first, end) for first, end in sorted(last.items())]


def _instructions_of(body: list[str]) -> Instructions:
    loops = _loops(body)
    once, _ = _own(body, _Loop(0, len(body) - 1), loops)
    depths: dict[int, list[_Loop]] = {}
    for loop in loops:
        depths.setdefault(sum(x.holds(loop) for x in loops), []).append(loop)
    ratios = []
    for _, blocks in sorted(depths.items()):
        main = [x for x in blocks if not _is_marked(body, x)] or blocks
        loading = [own for x in main if (own := _own(body, x, loops))[1]]  # the others are counted in the text
        instructions, requests = (sum(own[i] for own in loading) for i in (0, 1))
        ratios.append(instructions / requests if loading else 1.0)
    return Instructions(once, tuple(ratios))


def _own(body: list[str], loop: _Loop, loops: list[_Loop]) -> tuple[int, int]:
    """(instructions, those that access memory) of a loop, without its inner loops."""
    inner = [x for x in loops if loop.holds(x)]
    own = [
        body[i]
        for i in range(loop.first, loop.last + 1)
        if not any(x.first <= i <= x.last for x in inner) and _is_instruction(body[i])
    ]
    return len(own), sum(bool(_REQUEST.match(line) or _COPY.match(line)) for line in own)


def _is_instruction(statement: str) -> bool:
    return not statement.startswith(".") and not statement.endswith(":")


def _is_marked(body: list[str], loop: _Loop) -> bool:
    return any(_MARK in line for line in body[loop.first : loop.first + 2])

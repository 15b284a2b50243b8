"""A kernel as a function that another kernel calls for the blocks of its grid, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dagc.cuda.lexer import words_of
from dagc.forms import AS_CONSTANT, CONSTANT_READS, kernel_of, surroundings_of
from dagc.forms.fuse import refused_together, renamed
from dagc.forms.text import PLACES, fresh, moved_refused, reading_of
from dagc.forms.types import Refusal
from dagc.ir.plan import kernel_as_written
from dagc.ir.program import CodeText, KernelOp, Program

IN_BLOCK = ("threadIdx", "blockDim")
NAMES = dict(zip((*PLACES, *IN_BLOCK), ("tile", "tiles", "lane", "lanes"), strict=True))


@dataclass(frozen=True, slots=True)
class Within:
    """The code of a kernel in which `names`, in order, are its block, the size of its grid, its thread, and the size of
    its block.

    meets   threads of a block meet, or share memory: the calling block needs as many
    shaped  functions that it calls ask for the place of a thread: the calling block needs the same shape
    """

    code: CodeText
    names: tuple[str, ...]
    meets: bool
    shaped: bool


def within(program: Program, op: KernelOp) -> Within | Refusal:
    """The kernel of an op as such a function, or why it cannot be one."""
    around = surroundings_of(program)
    if op.placed or op.others or op.elsewhere:
        return Refusal("its device or variant is open, or it is on another GPU")
    if op.when is not None:
        return Refusal("not all ranks run it")
    if op.awaits:
        return Refusal("it waits for messages by itself")
    refused = refused_together(*kernel_as_written(program, op), around)
    if refused is not None:
        return refused
    kernel, impl = kernel_of(program, op)
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    code, launch = impl.code, impl.launch
    assert code is not None
    assert launch is not None
    read = reading.first(CONSTANT_READS)
    if read is not None:
        return Refusal(AS_CONSTANT)
    if launch.shared is not None:
        return Refusal("its launch has dynamic shared memory")
    moved = moved_refused(reading, IN_BLOCK)
    if moved is not None:
        return moved
    names = {word: fresh(name, kernel, impl, reading.beside) for word, name in NAMES.items()}
    meets = next(reading.together(), None) is not None or "__shared__" in {*words_of(reading.text), *reading.beside}
    shaped = not reading.beside.isdisjoint(IN_BLOCK)
    text = renamed(code.text or "", names)
    return Within(replace(code, text=text, restrict=False), tuple(names.values()), meets, shaped)

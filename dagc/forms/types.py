"""The type of a form of a kernel: a rewriting of its text and its launch that leaves every result as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dagc.ir.choice import FORM
from dagc.ir.enums import ElementType
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Const, Sym


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kernel does not allow a form: a sentence. `line`: of the kernel's text, from 0."""

    reason: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a kernel's text may name beside what its kernel declares.

    texts      of code outside of kernels and of files, with their keys, for `dagc.cuda.state.definitions_of`
    constants  the params of the program, and its `let`s of known value
    given      formals whose arguments are numbers, in the call of an op
    """

    texts: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Sym | ElementType], ...]
    given: tuple[tuple[str, int], ...] = ()


Legal = Callable[[Kernel, Impl, Surroundings], tuple[int, ...] | Refusal]
Rewrite = Callable[[Kernel, Impl, Surroundings, int], CodeText]
Unproven = Callable[[Impl], str]
ALWAYS: Sym = Const(True)  # of `Form.holds`
NOT_MEASURED = "it has no measured gain on a GPU"


def launch_as_given(launch: Launch, value: Sym) -> Launch:
    """The launch as given."""
    return launch


def always(reason: str = "") -> Unproven:
    """`Form.unproven` for all kernels."""
    return lambda impl: reason


@dataclass(frozen=True, slots=True)
class Form:
    """One form.

    name      `coarsen`; its tunable is `form.coarsen`
    summary   what it does, in one line
    values    the first is AS_WRITTEN
    legal     the values that a GPU implementation with a CUDA text and a launch allows, or why it allows none but
              AS_WRITTEN
    rewrite   the code for one of these values but AS_WRITTEN. The implementation has the code and the launch that the
              forms before it in the table give, with numbers for their values
    launch    the launch for a value: a number, or the tunable where it is open until the program runs. For AS_WRITTEN
              it is, folded, the given one
    excludes  the forms that cannot be combined with it: one of the two is AS_WRITTEN
    include   the header of the runtime that rewritten code uses, "" for none
    unproven  why searches do not choose it for an implementation, "" if they do. -D and a list in the kernel give
              every legal form
    alone     whether launches that are one do not allow it
    holds     the condition on sizes under which a value has this launch, of the implementation as written; elsewhere
              the rewritten code has the launch of AS_WRITTEN
    ahead     for how many more threads along x a value needs blocks, before they are joined
    """

    name: str
    summary: str
    values: tuple[int, ...]
    legal: Legal
    rewrite: Rewrite
    launch: Callable[[Launch, Sym], Launch] = launch_as_given
    excludes: frozenset[str] = frozenset()
    include: str = ""
    unproven: Unproven = always()
    alone: bool = False
    holds: Callable[[Kernel, Impl, Surroundings, int], Sym] | None = None
    ahead: Callable[[Kernel, Impl, Surroundings, int], int] | None = None

    @property
    def tunable(self) -> str:
        return f"{FORM}{self.name}"

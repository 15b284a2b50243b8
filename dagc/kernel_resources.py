"""What a compiled kernel takes, as nvcc says: registers, shared memory, instructions. No GPU is needed to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a warp in nvcc's output (PTX).

    `once`: outside of loops. `loops[d]`: in loops at depth d + 1, for each instruction there that goes to global
    memory. How often a loop runs hangs on the sizes, and how far it was unrolled on nvcc, but not this ratio.
    """

    once: float
    loops: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"once": self.once, "loops": list(self.loops)}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Instructions:
        """Raises KeyError, TypeError or ValueError for anything but what `to_json` gives."""
        return Instructions(float(found["once"]), tuple(float(n) for n in found["loops"]))


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers` of a thread, of 32 bits; `shared` memory of a block in bytes, declared in the kernel's text;
    `instructions`: None where they are not known, and counted in the kernel's text."""

    registers: int = 32
    shared: int = 0
    instructions: Instructions | None = None


ASSUMED = Resources()  # of a kernel that nvcc has not seen

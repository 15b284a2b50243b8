"""Python itself: a package that is loaded at its first use, the garbage collector switched off while a program builds
many objects that stay, the processors of this process, keys of caches for large values."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["Array", "Bools", "Numbers", "Package", "Single", "np", "processors", "scipy", "uncollected"]


class Package:
    """A package that is imported at the first use of a name in it: in place of imports in many functions. A module
    imports the package itself under TYPE_CHECKING, as below."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


# They take 0.1 s and more to load, and most commands that import a module with arrays do not compute with them.
if TYPE_CHECKING:
    import numpy as np
    import scipy

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Single = np.ndarray[Any, np.dtype[np.float32]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Bools = np.ndarray[Any, np.dtype[np.bool_]]
else:
    np, scipy = Package("numpy"), Package("scipy")
    Array = Single = Numbers = Bools = Any


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic collector within the block, or in the decorated function.

    The collector would scan all objects repeatedly, which takes two fifths of the time for a program of 10 000 ops.
    Syntax trees and graphs have no cycles, so reference counts free everything.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def processors() -> frozenset[int]:
    """The numbers of those that are available to this process."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


T = TypeVar("T")


class Same(Generic[T]):
    """Equal only for the same object, whose hash would take as long as to read it, as that of a program does. Keeps the
    object, so that no other one gets its identity."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

"""Python's collector of cyclic garbage, switched off where a program is made of many objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, and in a function that this decorates, the collector does not run.

    It would look at all objects again and again, two fifths of the time for a program of 10 000 ops; syntax trees and
    graphs have no cycles, so that nothing stays that reference counts do not free.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

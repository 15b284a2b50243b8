"""Messages in place through the host: rows of the arrays that are computed on, by way of staging buffers."""

from __future__ import annotations

import re
from random import Random

import pytest

from dagc.emit import emit
from dagc.ir.plan import Plan, Target
from dagc.space import Space
from dagc.stages.program import load_graph
from tests.measure.conftest import LOWERINGS_OF, SLABS, Lowered, needs_mpi, wander

pytestmark = needs_mpi


@pytest.mark.parametrize("lowering", LOWERINGS_OF[SLABS])
def test_every_order_is_right(lowered: Lowered, lowering: str) -> None:
    """Also where no message comes: what is on the device stays."""
    built = lowered(SLABS, lowering, flags=("-O0",))
    random = Random(5)
    traversals = [wander(built.space, random) for _ in range(12)]
    assert all(built.prover.proved(t) for t in traversals)
    done = built.run(traversals, times=1)
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    assert done.stdout.count(": good") == 12


def test_staging_buffers_have_the_size_of_the_slices() -> None:
    """Not that of the array; one for each slice, since several are under way at a time."""
    graph = load_graph(SLABS, {"transport": "mpi_host"})
    files = emit(Plan(graph, Space(graph).first(), Target.HOST, ""))
    made = re.findall(
        r"store.make\(p.(\w+), \"(.*): staging buffer\", (.*), Place::pinned, Role::scratch\);", files["program.hpp"]
    )
    assert sorted(made) == [
        (f"u_{p}_staging_{k}", f"u[{p}][{rows}]", "{40}")
        for p in (0, 1)
        for k, rows in enumerate(("1 .. 2", "9 .. 10", "8 .. 9", "0 .. 1"))
    ]
    assert "mirror" not in "".join(files.values())


@pytest.mark.parametrize("lowering", LOWERINGS_OF[SLABS])
@pytest.mark.thorough
def test_thread_sanitizer_is_silent(lowered: Lowered, lowering: str) -> None:
    built = lowered(SLABS, lowering, flags=("-O0",), sanitize="thread")
    random = Random(6)
    done = built.run([wander(built.space, random) for _ in range(10)], times=1)
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]

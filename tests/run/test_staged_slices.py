"""Messages in place through the host: rows of the arrays that are computed on, copied to and from their mirrors."""

from __future__ import annotations

from random import Random

import pytest

from tests.run.conftest import SLABS, Make, needs_mpi, wander

pytestmark = needs_mpi


@pytest.mark.parametrize("staging", ["fused", "ops"])
def test_every_order_is_right(make: Make, staging: str) -> None:
    """Also where no message comes: what is on the device stays."""
    built = make(SLABS, flags=("-O0",), transport="mpi_host", staging=staging)
    random = Random(5)
    traversals = [wander(built.space, random) for _ in range(12)]
    assert all(built.prover.proved(t) for t in traversals)
    done = built.run(traversals, times=1)
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    assert done.stdout.count(": good") == 12


@pytest.mark.slow
@pytest.mark.parametrize("staging", ["fused", "ops"])
def test_thread_sanitizer_is_silent(make: Make, staging: str) -> None:
    built = make(SLABS, "thread", transport="mpi_host", staging=staging)
    random = Random(6)
    done = built.run([wander(built.space, random) for _ in range(10)], times=1)
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]

"""Exchanges and collectives as GPU ops, on the host target: together with MPI's own messages, in any order."""

from __future__ import annotations

from random import Random

import pytest

from dagc.ir.program import Action
from tests.measure.conftest import GROUPS, LOWERINGS_OF, Lowered, needs_mpi, wander

pytestmark = needs_mpi


@pytest.mark.parametrize("lowering", LOWERINGS_OF[GROUPS])
def test_groups_beside_messages_of_the_host(lowered: Lowered, lowering: str) -> None:
    built = lowered(GROUPS, lowering, flags=("-O0",))
    actions = {op.name: op.action for op in built.space.graph.ops}
    assert [name for name, action in actions.items() if action is Action.GROUP] == ["ring", "all", "cast"]
    assert actions["host.post_send"] is Action.POST_SEND
    assert actions["sums.post"] is Action.POST_COLLECTIVE
    random = Random(9)
    traversals = [wander(built.space, random) for _ in range(60)]
    assert all(built.prover.proved(t) for t in traversals)
    done = built.run(traversals, times=2)
    assert done.returncode == 0, done.stderr or done.stdout[-2000:]
    assert done.stdout.count(": good") == 60

"""The order of an application in a configuration of another transport."""

from __future__ import annotations

from pathlib import Path

from dagc.base.source import Source
from dagc.ir.traversal import Traversal, traversal_text
from dagc.space import Space
from dagc.space.moves import Moves
from dagc.space.proof import Prover
from dagc.stages.program import load_graph
from dagc.study.original import order_of


def test_an_order_of_another_transport_is_that_of_the_ops_that_both_have() -> None:
    staged, peer = (load_graph(Path("samples/heat/heat.dag"), {"transport": t}) for t in ("mpi_host", "peer"))
    written = Source("own.txt", traversal_text(Space(staged).last(), staged))
    moves = Moves.of(peer)
    assert "no op has this name" in str(order_of(written, peer, moves))
    found = order_of(written, peer, moves, exact=False)
    assert isinstance(found, Traversal)
    Prover(peer).prove(found, "own.txt")
    names = [str(peer.ops[e.op].name) for e in found.entries if e.op is not None]
    theirs = [w.partition("@")[0] for w in written.text.split()]
    kernels = [n for n in theirs if "." not in n and n in names]
    assert len(kernels) > 3
    assert [n for n in names if n in kernels] == kernels
    other = Source("own.txt", written.text.replace(kernels[0], "elsewhere"))
    assert "no op has this name" in str(order_of(other, peer, moves, exact=False))
    reverse, more = " ".join(reversed(written.text.split())), f"{written.text} what(is)this"
    assert isinstance(order_of(Source("own.txt", reverse), staged, Moves.of(staged), exact=False), str)
    assert "`what(is)this`" in str(order_of(Source("own.txt", more), staged, Moves.of(staged), exact=False))
    assert isinstance(order_of(Source("own.txt", more), peer, moves, exact=False), str)

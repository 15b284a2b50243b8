"""Any traversal of a program gives the right results: the runner executes random ones on four ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dagc.emit.forms import rows
from dagc.ir.traversal import Issue, Traversal
from dagc.measure.launch import launch
from tests.measure.conftest import HALO, LOWERINGS, SPMV, Built, Lowered, Make, needs_mpi, wander
from tests.tiers import examples, representatives

pytestmark = needs_mpi


def _sample(built: Built, number: int, seed: int) -> list[Traversal]:
    """Uniformly drawn ones of the SpMV; fair steps for the halo exchange, whose space takes long to count."""
    random = Random(seed)
    if len(built.space.graph.ops) < 20:
        return [built.space.sample(random) for _ in range(number)]
    return [wander(built.space, random) for _ in range(number)]


DRAWN = [(path, lowering) for path in (SPMV, HALO) for lowering in LOWERINGS]
OF_DEFAULT = [
    *((SPMV, lowering) for lowering in ("mpi_host", "staging_ops", "staged, captured", "nccl", "peer, captured")),
    *((HALO, lowering) for lowering in ("mpi_cuda", "nccl", "peer, captured")),
]


@pytest.mark.parametrize(("path", "lowering"), representatives(DRAWN, *OF_DEFAULT), ids=lambda v: getattr(v, "stem", v))
def test_many_traversals_are_right(lowered: Lowered, path: Path, lowering: str) -> None:
    """Fifty of one lowering of the SpMV, 20 of each other. Optimised ones: tests/emit/test_bench.py."""
    number = examples(100) if (path, lowering) == (SPMV, "mpi_host") else examples(40)
    built = lowered(path, lowering, flags=("-O0",))
    traversals = _sample(built, number, seed=42)
    assert len({t.entries for t in traversals}) >= 0.7 * number
    assert all(built.prover.proved(t) for t in traversals)
    done = built.run(traversals)
    assert done.returncode == 0, done.stderr or done.stdout[-2000:]
    assert done.stdout.split("\n")[:-1] == [f"{i}: good" for i in range(number)]


def test_a_traversal_that_reads_too_early_is_wrong(lowered: Lowered) -> None:
    """The check would see it: y is computed before what it adds up."""
    built = lowered(SPMV, "mpi_cuda", flags=("-O0",))
    entries = built.space.first().entries
    names = [op.name for op in built.space.graph.ops]
    last = next(i for i, e in enumerate(entries) if isinstance(e, Issue) and names[e.op] == "y")
    first = next(i for i, e in enumerate(entries) if isinstance(e, Issue) and names[e.op] == "yl")
    mutant = Traversal((*entries[:first], entries[last], *entries[first:last], *entries[last + 1 :]))
    assert not built.prover.proved(mutant)
    done = built.run([built.space.first(), mutant])
    assert done.returncode == 1
    assert done.stdout.startswith("0: good\n1: wrong: ")


FETCH = """
import json, sys
from pathlib import Path
import numpy as np
from dagc.measure.runner import Runner, world

order = json.loads(Path(sys.argv[1]).read_text())
comm = world()
with Runner(Path(order["library"]), Path(order["data"]), comm) as runner:
    for number, rows in enumerate(order["tables"]):
        table = runner.prepare(rows)
        runner.reset()
        runner.execute(table)
        assert runner.verify() == "", runner.verify()
        found = {name: runner.fetch(name, kind) for name, kind in order["arrays"].items()}
        np.savez(Path(order["out"]) / f"{number}-{comm.Get_rank()}.npz", **found)
"""


@pytest.mark.parametrize(
    ("path", "arrays"),
    [
        (SPMV, {"y": "f4", "y_l": "f4", "y_r": "f4", "x_send": "f4", "x_r": "f4"}),
        (HALO, {"u": "f8", "snd[x,lo]": "f8", "rcv[z,hi]": "f8"}),
    ],
    ids=["spmv", "halo"],
)
def test_three_traversals_give_the_same_bits(make: Make, tmp_path: Path, path: Path, arrays: dict[str, str]) -> None:
    built = make(path, transport="mpi_host")
    traversals = [built.space.first(), *_sample(built, 2, seed=5)]
    order = {
        "library": str(built.library), "data": str(built.data), "tables": [rows(t) for t in traversals],
        "arrays": arrays, "out": str(tmp_path),
    }  # fmt: skip
    (tmp_path / "order.json").write_text(json.dumps(order))
    done = launch([sys.executable, "-c", FETCH, tmp_path / "order.json"], built.ranks, timeout=300)
    done.check()
    for rank in range(built.ranks):
        first, *others = (np.load(tmp_path / f"{number}-{rank}.npz") for number in range(len(traversals)))
        for other in others:
            for name in arrays:
                assert first[name].size > 0
                assert first[name].tobytes() == other[name].tobytes(), (name, rank)

"""Ops that only some ranks run: `if` on a per-rank value."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.build.toolchain import find_cxx, find_mpi
from dagc.emit import table_line
from dagc.ir.plan import Plan, Target
from dagc.ir.program import ExchangeOp, KernelOp
from dagc.ir.sym import show
from dagc.ir.traversal import Traversal
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import launch
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import RANKS, graph, plan
from tests.emit.together import build_together

mpi = find_mpi()
pytestmark = pytest.mark.mpi
can_run = pytest.mark.skipif(
    mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
)
LOWERINGS = {
    "mpi_host": {},
    "staging": {"staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda", "capture": "true"},
    "nccl": {"transport": "nccl", "capture": "true"},
    "peer": {"transport": "peer"},
}


@can_run
@pytest.mark.slow
def test_every_rank_runs_what_is_its_own(tmp_path: Path) -> None:
    """Against NumPy, on pairs of ranks with an odd one out, under every transport, in orders drawn at random."""
    plans = {name: plan(RANKS, Target.HOST, **choice) for name, choice in LOWERINGS.items()}
    programs = build_together(plans, tmp_path / "runner", "runner", flags=("-O0", "-Werror"))
    program = plans["mpi_host"].program
    for ranks in (1, 3):
        run_setup(program, RANKS.parent, ranks, 1, tmp_path / f"data-{ranks}")
    random = Random(1)
    for name, made in plans.items():
        lines = [table_line(drawn(made, random), made.capture) for _ in range(8)]
        (tmp_path / "tables").write_text("".join(f"{line}\n" for line in lines))
        for ranks in (1, 3):
            argv = [programs[name], "--data", tmp_path / f"data-{ranks}", "--tables", tmp_path / "tables"]
            done = launch(argv, ranks, timeout=300)
            assert done.returncode == 0, (name, ranks, done.stderr)
            assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["good"] * 8


def drawn(made: Plan, random: Random) -> Traversal:
    moves, entries = Space(made.graph).moves, []
    state = moves.start()
    while not moves.finished(state):
        offers = moves.offers(state)
        entry = random.choice(list(offers))
        entries.append(entry)
        state = moves.step(state, entry, offers[entry])
    return Traversal(tuple(entries))


def test_a_message_without_a_partner_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    text = RANKS.read_text().replace("if partner < ranks {", "if rank > 0 {")
    (tmp_path / "ranks.dag").write_text(text)
    (tmp_path / "ranks.py").write_text((RANKS.parent / "ranks.py").read_text())
    program = lower(parse_with_includes(Source(str(tmp_path / "ranks.dag"), text)))
    with pytest.raises(
        ProgramError, match=r"rank 1 sends 10 elements to rank 0 in pairs.both, which expects no message"
    ):
        run_setup(program, tmp_path, 2, 1, tmp_path / "data")


def test_conditions_are_those_of_all_branches_around() -> None:
    ops = {op.name: op for op in graph(RANKS).program.ops}
    pairs, even = ops["pairs"], ops["even"]
    assert isinstance(pairs, ExchangeOp)
    (front,) = (m for m in pairs.messages if m.label == "front")
    assert front.when is not None
    assert "rank < 2" in show(front.when)
    assert "< ranks" in show(front.when)
    assert isinstance(even, KernelOp)
    assert even.when is not None
    assert show(even.when) == "!(rank == 0) && rank % 2 == 0"

"""The product whose neighbours have a pack and a message of their own, or share them, from one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api

SPLIT = Path(__file__).parents[2] / "samples" / "spmv" / "split.dag"


def test_each_neighbour_is_ordered_by_itself() -> None:
    """The send of one needs the pack of no other (Pearson et al., section III)."""
    apart = api.load_graph(SPLIT, {"apart": True, "transport": "mpi_host"})
    number = {op.name: op.id for op in apart.ops}
    before = set(apart.completion)
    for k in (1, 2, 3):
        packs = [other for other in (1, 2, 3) if (number[f"pack[{other}]"], number[f"post_send[{k}]"]) in before]
        assert packs == [k]
    together = api.load_graph(SPLIT, {"apart": False, "transport": "mpi_host"})
    assert [op.name for op in together.ops if "pack" in op.name or "post_send" in op.name] == ["pack", "post_send"]


@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(("apart", "ranks"), [("true", 3), ("false", 3), ("true", 1)])
def test_results(apart: str, ranks: int, tmp_path: Path) -> None:
    """With fewer ranks than the program provides for, too."""
    defines = {"rows": "900", "apart": apart}
    done = api.compile(SPLIT, tmp_path, target="host", defines=defines, run=True, ranks=ranks, repeats=2, seconds=1e-4)
    assert done.result is not None
    assert done.result.repeats == 2, "after the results agreed"

"""samples/spmv/distributed.dag: the orders are those of spmv.dag; its product is right with other variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.measure.launch import launch

SPMV = Path(__file__).parents[2] / "samples/spmv"
LAYOUTS = {"yl.variant": "sell", "yr.variant": "thread_per_row"}


def orders(name: str, streams: int) -> int:
    return api.load_space(SPMV / name, {"transport": "mpi_host", "streams": str(streams)}).count()


@pytest.mark.parametrize(("streams", "expected"), [(2, 2036), (3, 8507), (4, 10517)])
def test_the_orders_are_those_of_the_paper(streams: int, expected: int) -> None:
    assert orders("distributed.dag", streams) == orders("spmv.dag", streams) == expected


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_the_product_over_ranks(tmp_path: Path, unoptimised: None) -> None:
    """One rank has no remote columns: A_r is empty."""
    defines = {"rows": "5001", **LAYOUTS}
    api.compile(SPMV / "distributed.dag", tmp_path / "out", target="host", defines=defines)
    for ranks in (1, 3):
        api.run_setup(SPMV / "distributed.dag", ranks, tmp_path / f"data-{ranks}", defines={"rows": "5001"})
        command = [tmp_path / "out/bench", "--data", str(tmp_path / f"data-{ranks}"), "--check-only"]
        done = launch(command, ranks, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

"""Arguments of the set-up that are decisions: each value has arrays of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.cli.main import main
from dagc.store.records import load
from dagc.study.runners import ArraysOf, arrays_name

GRID = Path(__file__).parents[2] / "samples/heat/grid.dag"
PARTS = """
program parts
tune parts in {1, 2, 3}
let half = parts * 2
setup "parts.py" given(half)
scalar n : i64
array x : f64[n] in
array y : f64[n] out
dag { c : gpu copy(y, x) }
verify y ~ same() rtol 0
"""
SETUP = """
import numpy as np
def given(rank, size, seed, half):
    if half == 6:
        raise ValueError("three parts are too many")
    return {"n": half, "x": np.full(half, float(half))}
def same(data, *, rank, size, seed, half):
    return {"y": data["x"]}
"""
mpi = find_mpi()


def test_a_set_up_knows_the_decisions_of_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "parts.dag").write_text(PARTS)
    one, two = (api.load_graph(tmp_path / "parts.dag", {"parts": n}).program for n in (1, 2))
    assert one.setup is not None
    assert one.setup.decisions == ("parts",)
    assert next(d for d in one.decisions if d.name == "parts").structural
    assert (arrays_name(one, 4), arrays_name(two, 4)) == ("data-4-parts=1", "data-4-parts=2")
    with pytest.raises(UsageError, match="--data has the arrays of one set-up, and this is another: parts=2"):
        ArraysOf(one, tmp_path, 4, 0, given=True).of(two)
    assert arrays_name(api.load_graph(GRID.with_name("heat.dag")).program, 4) == "data-4"


@pytest.mark.mpi
@pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_a_search_measures_each_decomposition_with_its_arrays(
    tmp_path: Path, unoptimised: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts.dag").write_text(PARTS)
    (tmp_path / "parts.py").write_text(SETUP)
    results = tmp_path / "parts.db"
    program, strategy = str(tmp_path / "parts.dag"), ["--strategy", "exhaustive", "--confirm", "0", "--no-trace"]
    command = ["explore", program, "--open", "parts", "-n", "1", "--target", "host", "--streams", "1", *strategy]
    assert main([*command, "-o", str(results)]) == 0
    measured = {i.configuration.get("parts") for i in load(str(results)).measured()}
    assert measured == {1, 2}  # each right, by the reference of its own arrays
    assert "parts=3" in (said := "".join(capsys.readouterr()))
    assert "three parts are too many" in said

"""dagc/measure.hpp: the statistics against NumPy and SciPy; the protocol by counting what it runs."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from dagc.build.mpi import MPI, find_mpi
from dagc.build.toolchain import find_cxx
from dagc.measure.launch import launch
from tests.runtime.programs import make

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(find_cxx() is None or find_mpi() is None, reason="needs a C++ compiler and an MPI"),
]


@pytest.fixture(scope="module")
def mpi() -> MPI:
    found = find_mpi()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def program(mpi: MPI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("measure", tmp_path_factory.mktemp("measure"), mpi=mpi)


def stats(program: Path, values: list[float]) -> dict:
    text = subprocess.run([program, "stats", *map(repr, values)], capture_output=True, text=True, check=True).stdout
    return json.loads(text)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 20, 101])
def test_statistics_are_those_of_numpy(program: Path, n: int) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    got = stats(program, values.tolist())["statistics"]
    want = {
        "median": np.median(values),
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "lower_quartile": np.quantile(values, 0.25),
        "upper_quartile": np.quantile(values, 0.75),
        "variation": values.std(ddof=1) / values.mean() if n > 1 else 0,
    }
    for name, value in want.items():
        assert got[name] == pytest.approx(value, rel=1e-12), name


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9, 20, 21, 100, 1001])
def test_the_interval_of_the_median_holds_it_in_95_of_100(program: Path, n: int) -> None:
    """The narrowest pair of order statistics that does, by the binomial distribution."""
    stats_module = pytest.importorskip("scipy.stats")
    got = stats(program, [float(v) for v in range(n)])
    low, high = (int(v) for v in got["interval"])
    assert low + high == n - 1
    assert (got["statistics"]["median_low"], got["statistics"]["median_high"]) == (low, high)
    missed = 2 * stats_module.binom.cdf(low, n, 0.5)  # the median lies below value number low, counted from 0
    if n >= 6:
        assert missed <= 0.05
        assert 2 * stats_module.binom.cdf(low + 1, n, 0.5) > 0.05 or low + 1 > high - 1
    else:
        assert (low, high) == (0, n - 1)


def test_a_measurement_is_the_same_on_every_rank_and_the_slowest_counts(
    mpi: MPI, program: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    done = launch([program, "run", "0.01", "7", "0", file], 3, mpi=mpi, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(file.read_text())
    measured = result["measurement"]
    assert result["agree"]
    assert len(measured["seconds"]) == 7
    # The slowest rank sleeps for 600 us or more in each iteration.
    assert min(measured["seconds"]) >= 600e-6
    assert measured["statistics"]["median"] == pytest.approx(np.median(measured["seconds"]))
    assert result["iterations"] >= 8 * measured["iterations"]  # warm-up included
    assert re.search(r"median +[\d.]+ [mu]?s +\(95%: ", done.stdout)


def test_provenance(mpi: MPI, program: Path) -> None:
    done = launch([program, "run", "0.001", "1", "0"], 2, mpi=mpi, timeout=300)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ranks"] == 2
    assert len(result["hosts"]) == 1
    assert result["target"] == "host"
    assert mpi.version in result["mpi"]
    assert datetime.fromisoformat(result["time"]).tzinfo is not None
    assert result["awkward"] == 'a "quote", a \\, a\ttab, \u00e9'
    assert result["nothing"] is None


def test_data_that_drift_are_reset_in_time(mpi: MPI, program: Path) -> None:
    done = launch([program, "run", "0.05", "3", "4"], 2, mpi=mpi, timeout=300)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["longest"] <= 4
    assert result["resets"] >= result["iterations"] / 4
    assert result["measurement"]["iterations"] > 4  # so a measurement needed several batches


def test_a_result_that_cannot_be_written_is_an_error(mpi: MPI, program: Path, tmp_path: Path) -> None:
    done = launch([program, "run", "0.001", "1", "0", tmp_path / "no" / "result.json"], 1, mpi=mpi, timeout=300)
    assert done.returncode == 2
    assert "result.json: cannot write" in done.stderr

"""The corpus of kernels for the launch tuner, and the script that measures all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.corpus.check import check, prepared
from benchmarks.corpus.index import ROOT, SPLITS, Entry, entries
from benchmarks.gpu import oracle
from benchmarks.tune import oracle_csv
from dagc import api
from dagc.base.errors import Severity
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.types import Site
from dagc.ir.choice import Choice, own_name
from dagc.store.tuned import load_tuned
from dagc.study.cases import cases_of
from tests.emit.build import graph
from tests.measure.conftest import needs_mpi

LIMITS = {"max_threads_per_block": 1024, "shared_per_block": 49152, "warp_size": 32}
EVERY = entries()
# Reading all takes half a minute; `python -m benchmarks.corpus.check` reads and runs all.
every_fifth = pytest.mark.parametrize("entry", EVERY[::5], ids=lambda entry: entry.key)


graph_of = cache(graph)


def open_site(entry: Entry) -> Site:
    (site,) = open_sites(graph_of(entry.path))
    return site


def test_the_list_is_what_the_folders_hold() -> None:
    assert sorted(e.path for e in EVERY) == sorted(ROOT.glob("*/*.dag"))
    assert len({e.key for e in EVERY}) == len(EVERY) >= 60
    assert {e.split for e in EVERY} == set(SPLITS)
    assert len({e.family for e in EVERY}) == len({(e.family, e.split) for e in EVERY}) >= 12


def test_ten_kernels_have_tunables_that_are_no_block_dimension() -> None:
    found = (e for e in EVERY if any(own_name(d.name) not in ("bx", "by") and not d.axis for d in open_site(e).open))
    assert len([*islice(found, 10)]) == 10


def test_families_and_kernels_are_found_by_name() -> None:
    assert {e.family for e in entries("unseen")} == {e.family for e in EVERY if e.split == "unseen"}
    assert [e.key for e in entries(only=["dense/gemm_tile"])] == ["dense/gemm_tile"]
    assert {e.family for e in entries(only=["scan", "lbm"])} == {"scan", "lbm"}
    with pytest.raises(KeyError, match="dense/none"):
        entries(only=["dense/none"])


@every_fifth
def test_text_is_sound_and_formatted_and_sizes_are_skewed(entry: Entry) -> None:
    assert [d for d in api.check(entry.path).diagnostics if d.severity is Severity.ERROR] == []
    text, formatted = api.format_source(entry.path)
    assert text == formatted
    cases = cases_of(graph_of(entry.path).program, "")
    assert len(cases) >= 4
    assert any(value & (value - 1) for case in cases for _, value in case.params)  # not powers of two alone


@every_fifth
def test_blocks_are_those_of_polybench(entry: Entry) -> None:
    """51 pairs of powers of two where nothing but a block of two dimensions is open; all block dimensions are read when
    the program runs, unless the text needs a constant."""
    site = open_site(entry)
    names = [own_name(d.name) for d in site.open]
    choices = legal_settings(graph_of(entry.path), site, LIMITS)
    if names == ["bx", "by"] and entry.name != "gemm_batched":
        assert len(choices) == 51
        assert site.default == Choice.at(site.name, [("bx", 32), ("by", 8)])
    assert len(choices) >= 3
    assert choices[0] == site.default


@pytest.mark.usefixtures("unoptimised")
class TestChecked:
    pytestmark = needs_mpi

    @pytest.mark.thorough
    def test_a_kernel_is_right_under_several_settings(self, tmp_path: Path) -> None:
        (entry,) = entries(only=["sparse/csr_lanes"])
        checked = check(prepared(entry, tmp_path), settings=5)
        assert checked.failures == ()
        assert checked.settings == 5

    @pytest.mark.thorough
    def test_a_wrong_kernel_is_reported(self, tmp_path: Path) -> None:
        (entry,) = entries(only=["stream/scale"])
        shutil.copytree(ROOT / "stream", tmp_path / "stream")
        wrong = replace(entry, root=tmp_path)
        wrong.path.write_text(entry.path.read_text().replace("= 2.0f *", "= (bx == 32 ? 2.0f : 2.1f) *"))
        checked = check(prepared(wrong, tmp_path / "build"), settings=3)
        assert checked.settings >= 1
        assert checked.failures
        assert all("wrong" in failure or "differ" in failure for failure in checked.failures)


@pytest.mark.usefixtures("unoptimised")
class TestOracle:
    pytestmark = needs_mpi

    def test_cells_add_up_over_runs(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A second run continues; the same once more has nothing to do, nor has one elsewhere with the CSV of both."""

        def run(output: str, *more: str) -> str:
            words = ["--set", "fit", "--only", "stream.scale", "--tiny", "--target", "host", "--cell", "0.001"]
            work = ["--work", str(tmp_path / "work"), "--jobs", "1", "-o", str(tmp_path / output)]
            assert oracle.main([*words, *work, *more]) == 0
            return capsys.readouterr().out

        assert "3 cells, 0 left, 0 failures" in run("one", "--settings", "3")
        assert "2 cells, 0 left, 0 failures" in run("one", "--settings", "5")
        assert run("one", "--settings", "5") == ""
        samples = load_tuned(tmp_path / "one" / "stream.scale.db").samples
        assert len({cell.choice for cell, _ in samples}) == len(samples) == 5
        csv = tmp_path / "one.csv.xz"
        assert oracle_csv.main([str(tmp_path / "one" / "stream.scale.db"), "-o", str(csv)]) == 0
        assert {c.program for c in oracle_csv.read_oracle(csv)} == {"stream.scale"}
        assert "0 cells, 0 left, 0 failures" in run("two", "--settings", "5", "--done", str(csv))
        assert oracle_csv.main([str(csv), "-o", str(csv)]) == 0
        assert len(list(oracle_csv.read_oracle(csv))) == 5


def test_the_csv_script_runs_from_anywhere(tmp_path: Path) -> None:
    """As a file: the folder that Python puts first on its path then has a module with the name of a standard one."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, oracle_csv.__file__, "--help"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

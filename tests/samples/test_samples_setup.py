"""The samples that have a set-up: their own `.dag`, through `run_setup`, with its checks of shapes and messages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dagc import api
from dagc.setup import run_setup
from tests.samples.load import SAMPLES, computed, sample

SMALL: dict[str, dict[str, str | int | float | bool]] = {
    "spmv/spmv.dag": {"rows": 101, "nnz_per_row": 7},
    "halo3d/halo3d.dag": {"nx": 4, "ny": 5, "nz": 6, "nq": 2, "g": 2},
    "corr/corr.dag": {"columns": 13, "rows": 11},
    "cg/cg.dag": {"side": 7},
    "gnn/sage.dag": {"graph": "powerlaw(nodes = 50, edges = 3, features = 20)"},
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("path", SMALL)
def test_a_sample_is_set_up(path: str, ranks: int, tmp_path: Path) -> None:
    program = api.load(SAMPLES / path, SMALL[path])
    run_setup(program, (SAMPLES / path).parent, ranks, 1, tmp_path / "out")
    folders = sorted((tmp_path / "out").glob("rank-*"))
    assert len(folders) == ranks
    for folder in folders:
        expected = list((folder / "expected").glob("*.npy"))
        assert len(expected) == len(program.verifies)
        assert all(np.isfinite(np.load(file)).all() for file in expected)


def test_both_graphs_of_the_halo_have_one_set_up(tmp_path: Path) -> None:
    for value in (False, True):
        program = api.load(SAMPLES / "halo3d/halo3d.dag", SMALL["halo3d/halo3d.dag"] | {"per_axis": value})
        run_setup(program, SAMPLES / "halo3d", 4, 1, tmp_path / str(value))
    for one in (tmp_path / "False").rglob("*.npy"):
        assert one.read_bytes() == (tmp_path / "True" / one.relative_to(tmp_path / "False")).read_bytes()


def test_every_sample_has_a_set_up() -> None:
    for folder in SAMPLES.iterdir():
        assert list(folder.glob("*.py")), folder.name


def test_the_ranks_of_cg_hold_the_whole_system() -> None:
    """A p by parts, each with what the ranks send to it, is that of the whole matrix."""
    cg = sample("cg/cg.py")
    side, size = 9, 4
    parts = [computed(cg.poisson(rank, size, 5, side, 8)) for rank in range(size)]
    p = np.concatenate([part["p"] for part in parts])
    grid = np.pad(p.reshape(side, side), 1)
    expected = 4 * p - sum(np.roll(grid, s, a)[1:-1, 1:-1].reshape(-1) for s in (1, -1) for a in (0, 1))
    got = []
    for rank, part in enumerate(parts):
        pieces = []
        for sender, count in zip(part["recv_ranks"], part["recv_counts"], strict=True):
            other = parts[sender]
            ends = np.cumsum(other["send_counts"])
            which = list(other["send_ranks"]).index(rank)
            begin = ends[which] - other["send_counts"][which]
            sent = other["p"][other["send_index"]][begin : ends[which]]
            assert sent.size == count
            pieces.append(sent)
        local = sparse.csr_array((part["val_l"], part["col_l"], part["row_ptr_l"]), shape=(part["n"], part["n"]))
        remote = sparse.csr_array((part["val_r"], part["col_r"], part["row_ptr_r"]), shape=(part["n"], part["n_recv"]))
        got.append(local @ part["p"] + remote @ np.concatenate([np.empty(0), *pieces]))
    np.testing.assert_allclose(np.concatenate(got), expected)
    assert parts[0]["rr[0]"] == pytest.approx(1)


def test_the_reference_of_cg_converges_to_the_solution() -> None:
    cg = sample("cg/cg.py")
    data = computed(cg.poisson(0, 1, 5, 6, 8))
    A = sparse.csr_array((data["val_l"], data["col_l"], data["row_ptr_l"]), shape=(36, 36))
    x = cg.iterates(data, rank=0, size=1, seed=5, side=6, unroll=36)["x"]
    np.testing.assert_allclose(A @ x, data["r"], atol=1e-10)
    with pytest.raises(ValueError, match="each of 5 ranks has at least one row"):
        cg.poisson(0, 5, 1, 2, 8)


def test_decisions_in_the_commands_of_the_pages_exist() -> None:
    """Each `-D` of a command in the README of a sample is a choice of the program."""
    commands = [
        shlex.split(command)
        for page in sorted(SAMPLES.glob("*/README.md"))
        for command in re.findall(r"(dagc \w+ samples/\S+\.dag .*-D .*)", page.read_text(encoding="utf-8"))
    ]
    assert len(commands) > 30
    for words in commands:
        values = [words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "-D"]
        api.load(SAMPLES.parent / words[2], {name: value for name, value in values if "," not in value})

"""dagc/binding.hpp and `--bind`: where ranks run, and what is said of it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.build.mpi import find_mpi
from dagc.build.ranks import bind_ranks, numbers
from dagc.build.toolchain import find_cxx
from dagc.measure.bench import Seat, misplaced, placement
from dagc.measure.launch import launch
from tests.runtime.programs import make

SIBLINGS = {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
FILES = {
    "devices/system/node/online": "0-1",
    "devices/system/node/node0/cpulist": "0-1,4-5",
    "devices/system/node/node1/cpulist": "2-3,6-7",
    "bus/pci/devices/0000:3b:00.0/numa_node": "1",
    **{f"devices/system/cpu/cpu{c}/topology/thread_siblings_list": text for c, text in SIBLINGS.items()},
}


@pytest.mark.mpi
@pytest.mark.skipif(find_cxx() is None or find_mpi() is None, reason="needs a C++ compiler and an MPI")
def test_ranks_are_bound_to_shares_of_cores(tmp_path: Path) -> None:
    """Four ranks as two hosts of a machine: equal ranks of both get the same cores."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    program = make("binding", tmp_path, mpi=find_mpi())
    for bind in ("show", "near", "0@0,0@0"):
        done = launch([program, tmp_path], 4, env={"DAGC_BIND": bind, "DAGC_RANKS_PER_HOST": "2"}, timeout=100)
        assert done.returncode == 0, (bind, done.stderr)
        seats = [Seat.of(line) for line in done.stdout.splitlines()]
        assert (len(seats), seats[0].gpu) == (4, -1)
        cores = [numbers(seat.cores) for seat in seats]
        assert cores[:2] == cores[2:]
        if bind != "show" and len(os.sched_getaffinity(0)) > 1:
            assert not cores[0] & cores[1]
            assert cores[0] | cores[1] <= os.sched_getaffinity(0)
    command = [program, tmp_path]
    done = launch(
        command, 2, env={"DAGC_BIND": "show", "DAGC_TEST_CORE": str(min(os.sched_getaffinity(0)))}, timeout=100
    )
    crowded = [Seat.of(line) for line in done.stdout.splitlines()]
    assert all(seat.beside > 0 for seat in crowded), crowded
    (note,) = placement(crowded)[2:]
    assert re.fullmatch(r"note: 2 ranks of .* share 1 core: work takes up to \d\.\d\d times as long as alone .*", note)
    for bind, what in {"0@0": "places for 1 of the 2 ranks", "0@0,0@99": "NUMA node 99"}.items():
        done = launch([program, tmp_path], 4, env={"DAGC_BIND": bind, "DAGC_RANKS_PER_HOST": "2"}, timeout=100)
        assert what in done.stderr
        assert done.returncode == 2


def test_a_bad_placement_is_said() -> None:
    good, far = Seat("a", 0, 1, "8-15", "1"), Seat("b", 2, 1, "0-7", "0")
    assert placement([good]) == ["rank 0 on a: GPU 0 (node 1), cores 8-15 (node 1)"]
    (note,) = misplaced([good, far, far])
    assert note.startswith("note: rank 1 has cores of node 0 and GPU 2 of node 1, as 1 other rank; --bind near")
    crowded = placement([Seat("a", -1, -1, "0", "0")] * 20)
    assert crowded[-2:] == ["and 4 other ranks", "note: 20 ranks of a share 1 core"]
    slow = replace(far, copies=18.24e9, copies_near=25.1e9)
    (note,) = misplaced([good, slow])
    assert (
        "GPU 2 of node 1: copies to the GPU by 18.2 GB/s, from cores of node 1 by 25.1 (measured); --bind near" in note
    )
    threads = [Seat("a", -1, -1, cores, "0", "0-1", beside=1.624) for cores in ("0-1", "4-5")]
    why = "ranks 0 and 1 of a have different threads of the same cores: work takes up to 1.62 times as long as alone"
    assert placement(threads)[-1] == f"note: {why} (measured)"


def test_a_placement_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="--bind 0@0,far: not a placement"):
        bind_ranks("0@0,far")

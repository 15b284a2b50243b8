"""Several GPUs and sockets of a rank (`devices`): results under any placement, counts, and machines with fewer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx, find_nvcc, gpus
from dagc.ir.plan import Target
from dagc.ir.program import Devices, Graph, Value
from dagc.lab.configurations import configurations, open_decisions
from dagc.measure.launch import Finished, launch
from dagc.report.counting import count_report
from dagc.setup import run_setup
from dagc.space import Counter
from dagc.space.moves import Moves
from dagc.stages.program import read
from tests.emit.test_placed import PLACED, built

mpi = find_mpi()
needs_mpi = pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI")

THREE = """
program three
devices gpu 3
array x : f32[100] on any in
array y, z, w : f32[100] on any out
kernel take(y: out f32[100], x: in f32[100]) {
  gpu { launch grid(1) block(100) cuda \"\"\" y[threadIdx.x] = x[threadIdx.x]; \"\"\" }
  cpu { cpp \"\"\" for (int i = 0; i < 100; ++i) y[i] = x[i]; \"\"\" }
}
let host_memory = "pinned"
let transfers = "at_need"
dag {
  a : any take(y, x)
  b : any take(z, x)
  c : any take(w, y)
}
"""
CALLER = {f"{op}.cpu.thread": "caller" for op in "abc"}
WHERE = """
program where
devices gpu 2, socket 2
setup "where.py" given()
cpp \"\"\"
  #include <sched.h>
  #include <omp.h>
  #include "dagc/sockets.hpp"
  inline int package(int core) { return core / 2; }
  inline std::vector<std::vector<int>> parts(std::vector<int> cores, int number) {
    return dagc::sockets_of(std::move(cores), number, package);  // two cores a package
  }
\"\"\"
array whole, first, second : i32[2] on any out      // threads, and the lowest core that the calling one may use
array groups : i32[3] on host out
array x : f32[64] on any in
array y : f32[64] on any out
kernel ask(n: out i32[2]) {
  cpu { cpp \"\"\"
    n[0] = omp_get_max_threads();
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    for (n[1] = 0; !CPU_ISSET(n[1], &mine);) ++n[1];
  \"\"\" }
}
kernel group(n: out i32[3]) {
  cpu { cpp \"\"\"
    n[0] = parts({4}, 2).empty();
    n[1] = parts({0, 2, 3}, 2)[1][1];
    n[2] = parts({0, 1, 2, 3}, 4)[2][0];
  \"\"\" }
}
kernel twice(y: out f32[64], x: in f32[64]) {
  gpu { launch grid(1) block(64) cuda \"\"\" y[threadIdx.x] = 2 * x[threadIdx.x]; \"\"\" }
}
dag {
  all : any ask(whole)
  one : any ask(first)
  two : any ask(second)
  parts : cpu group(groups)
  far : any twice(y, x)
}
verify whole ~ expected() rtol 0
verify first ~ expected() rtol 0
verify second ~ expected() rtol 0
verify groups ~ expected() rtol 0
verify y ~ expected() rtol 0
"""
SETUP = """
import os
import numpy as np
def given(rank, size, seed):
    return {"x": np.random.default_rng(seed).random(64, dtype=np.float32)}
def expected(data, **_):
    cores = sorted(os.sched_getaffinity(0))
    of = lambda threads, core: np.array([threads, core], np.int32)
    return {"whole": of(2, cores[0]), "first": of(1, cores[0]), "second": of(1, cores[1]),
            "groups": np.array([1, 3, 2], np.int32), "y": 2 * data["x"]}
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("three") / "three.dag"
    path.write_text(THREE)
    return path


@needs_mpi
@pytest.mark.mpi
def test_every_placement_gives_the_results_of_numpy(tmp_path: Path) -> None:
    """Random ones on three GPUs and two sockets, under random traversals; each op changes only what it declares."""
    agree(tmp_path, "devices gpu 3, socket 2", Target.HOST)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.skipif(find_nvcc() is None or len(gpus()) < 2, reason="needs two GPUs")
def test_every_placement_gives_the_results_of_numpy_on_two_gpus(tmp_path: Path) -> None:
    """Of this machine, which both ranks share."""
    agree(tmp_path, "devices gpu 2, socket 2", Target.CUDA)


def agree(tmp_path: Path, devices: str, target: Target) -> None:
    shutil.copy(PLACED.with_suffix(".py"), tmp_path)
    path = tmp_path / PLACED.name
    path.write_text(PLACED.read_text().replace("\nscalar n", f"\n{devices}\nscalar n"))
    placements = built(tmp_path / "out", target=target, path=path)
    for pageable in (False, True):
        lines = placements.lines(150, seed=7)
        done = placements.run(lines, pageable=pageable)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout.count(": good") == len(lines)


# ---- counting and searching -----------------------------------------------------------------


def classes(devices: Devices, ops: int) -> Iterator[tuple[str, ...]]:
    """One assignment of devices to ops of each class: those that differ in the names of further GPUs or sockets."""
    gpus, sockets = ([n for n in devices.names if n.startswith(word) and n != word] for word in ("gpu", "socket"))
    every = product(permutations(gpus), permutations(sockets))
    orders = [dict(zip((*gpus, *sockets), (*one, *other), strict=True)) for one, other in every]
    seen: set[tuple[str, ...]] = set()
    for names in product(devices.names, repeat=ops):
        if names not in seen:
            seen |= {tuple(order.get(n, n) for n in names) for order in orders}
            yield names


@pytest.mark.parametrize("devices", [Devices(3), Devices(1, 3), Devices(2, 2)], ids=str)
def test_devices_of_equal_names_are_counted_once(three: Path, tmp_path: Path, devices: Devices) -> None:
    path = tmp_path / "three.dag"
    sockets = f", socket {devices.sockets}" if devices.sockets else ""
    path.write_text(THREE.replace("devices gpu 3", f"devices gpu {devices.gpus}{sockets}"))

    threads = {} if devices.sockets else CALLER

    def build(choices: Mapping[str, Value]) -> Graph:
        return read(path, {"streams": 1, **threads, **choices}).graph()

    graphs = [build({f"{op}.device": d for op, d in zip("abc", names, strict=True)}) for names in classes(devices, 3)]
    assert count_report(build).whole == sum(Counter(Moves.of(graph)).total() for graph in graphs)
    opened = open_decisions(graphs[0].program, ["a.device", "b.device", "c.device"], [])
    found, refused = configurations(dict.fromkeys(opened, devices.names), build, most=1000)
    assert (len(found), refused) == (len(graphs), ())


def test_devices_that_an_op_is_fixed_to_keep_their_names(three: Path) -> None:
    def build(choices: Mapping[str, Value]) -> Graph:
        return read(three, {"streams": 1, **CALLER, "a.device": "gpu2", **choices}).graph()

    found, _ = configurations({f"{op}.device": Devices(3).names for op in "bc"}, build)
    assert len(found) == 16
    assert count_report(build).whole == sum(Counter(Moves.of(each.graph)).total() for each in found)


def test_launches_on_another_gpu_are_not_one(tmp_path: Path) -> None:
    path = tmp_path / "three.dag"
    path.write_text(THREE.replace("take(w, y)", "take(w, x)"))
    assert len(read(path, {"fuse.a_b_c": 1}).program().kernel_ops) == 1
    with pytest.raises(UsageError, match="no launches of this name"):
        read(path, {"fuse.a_b_c": 1, **{f"{op}.device": "gpu1" for op in "abc"}}).program()


# ---- machines -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("where")
    (folder / "where.dag").write_text(WHERE)
    (folder / "where.py").write_text(SETUP)
    return folder / "where.dag"


@needs_mpi
@pytest.mark.mpi
def test_an_op_uses_the_cores_of_its_socket(
    where: Path, tmp_path: Path, unoptimised: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two cores, and not of one; a GPU that the machine lacks is needed only where no other one may run the op."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    devices = {"one.device": "socket0", "two.device": "socket1", "far.device": "gpu1"}
    done = api.compile(where, tmp_path / "out", defines=devices, target="host")
    run_setup(read(where).program(), where.parent, 1, 3, tmp_path / "data")

    def run(cores: Sequence[int], **env: str) -> Finished:
        pinned = ["taskset", "-c", ",".join(map(str, cores))]
        return launch([*pinned, str(done.binary), "--data", tmp_path / "data", "--check-only"], 1, env=env)

    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) == 2:
        whole = run(cores)
        assert whole.returncode == 0, whole.stderr
    for few, env, said in (
        (cores[:1], {}, "1 cores, too few for 2 sockets"),
        (cores, {"DAGC_HOST_GPUS": "1"}, "run on 2 GPUs of a rank, and this host has 1"),
    ):
        refused = run(few, **env)
        assert (refused.returncode, said in refused.stderr) == (3, True), refused.stderr


def test_a_library_has_one_gpu(three: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a library has one GPU"):
        api.compile(three, tmp_path / "out", target="host", form="library")

"""nvcc takes what is emitted without a warning: programs of all kinds, compiled as one.

nvcc reads the headers of a program twice, in five seconds, and the program itself in less than one. What it has only to
accept is therefore a case here. That such programs run is for tests of the host target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_nccl, find_nvcc, require_nccl
from dagc.choice.legal import open_sites
from dagc.ir.plan import CodeFeature, Features, Plan, Target, feature_variable
from dagc.ir.program import CodeText, Graph, KernelOp
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.stages.artifacts import build_artifact, write_runner
from tests.emit import test_placed, test_variants
from tests.emit.build import COLLECTIVES, HEAT2D, NVCC_ALONE, SPMV, plan
from tests.emit.test_compile import CASES, name
from tests.emit.test_device_loops import RELAX
from tests.emit.test_loops import JACOBI
from tests.emit.test_transports import PUTS, TRANSPORTS, TYPES
from tests.emit.together import write_together
from tests.forms.test_coarsen import coarse
from tests.forms.test_wide import wide
from tests.samples.load import SAMPLES
from tests.space.test_loops import sample
from tests.tiers import representatives

Make = Callable[[], Plan]


def loop(path: Path, transport: str) -> Plan:
    _, folded = sample(path, transport=transport)
    traversal = Space(folded).last()
    return Plan(*unroll(folded, traversal), Target.CUDA, period=(folded, traversal))


def every_variant(path: Path) -> Plan:
    graph = api.load_graph(path)
    (site,) = open_sites(graph, variants=True)
    (op,) = (o for o in graph.program.ops if o.name == site.name and isinstance(o, KernelOp))
    declared = [f for f in graph.program.kernel(op.kernel).features if isinstance(f.value, CodeText)]
    features = tuple(CodeFeature(feature_variable(op, f.name), op, f.value) for f in declared)
    return Plan(graph, Space(graph).first(), Target.CUDA, open=site.open, features=features)


def placed() -> Plan:
    return test_placed.plan_of(test_placed.text_of().graph(), Target.CUDA)


def sums() -> Plan:
    return test_variants.sums(Target.CUDA, Features.ASYNC)


def formed(make: Callable[[], Graph]) -> Plan:
    graph = make()
    return Plan(graph, Space(graph).first(), Target.CUDA)


BENCHES: dict[str, Make] = {
    **{f"{name(path)} {name(choice)}": partial(plan, path, Target.CUDA, **choice) for path, choice in CASES},
    **{f"loop {transport}": partial(loop, JACOBI, transport) for transport in ("mpi_cuda", "peer", "put")},
    **{f"loop of columns {transport}": partial(loop, HEAT2D, transport) for transport in ("mpi_host", "peer")},
    **{f"every {n}": partial(every_variant, SAMPLES / f"{n}/{n}.dag") for n in ("histogram", "sort", "bfs")},
    "mixed nccl and peer": partial(plan, TRANSPORTS, Target.CUDA, transport="peer", collectives="nccl", capture="true"),
    "early edges": partial(plan, SPMV, Target.CUDA, transport="peer", capture="true", graph_edges="early"),
    "device loop": partial(
        plan, RELAX, Target.CUDA, transport="peer", loop="device", graph_edges="early", test_every="4"
    ),
    "collectives nccl": partial(plan, COLLECTIVES, Target.CUDA, transport="nccl"),
    "collectives peer": partial(plan, COLLECTIVES, Target.CUDA, transport="peer"),
    "types": partial(plan, TYPES, Target.CUDA),
    "put": partial(plan, PUTS, Target.CUDA, transport="put", graph_edges="early", capture="true"),
    "sums": sums,
    "coarsened": partial(formed, coarse),
    "wide": partial(formed, wide),
}
RUNNERS: dict[str, Make] = {
    "sums runner": sums,
    "placed runner": placed,
    "loop runner": partial(plan, RELAX, Target.CUDA, transport="peer"),
}
# Further lowerings of these: those of `sink` have every kind of op, and others the kernels. And reductions of all types
# of elements, which take nvcc as long as 15 other programs.
FURTHER = {f"{program} {how}" for program in ("spmv", "halo3d") for how in ("mpi_host", "mpi_host-ops", "mpi_cuda")}
FURTHER |= {"spmv mpi_cuda-true", "halo3d peer-true", "halo3d nccl-true", "ranks mpi_cuda", "sink mpi_host", "cg "}
FURTHER |= {"loop of columns mpi_host", "loop of columns peer", "loop mpi_cuda", "loop peer", "collectives peer"}
FURTHER |= {"types", "every sort", "sums runner"}


@pytest.mark.mpi
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI")
@pytest.mark.parametrize("without", representatives([FURTHER, set()], FURTHER), ids=len)
@pytest.mark.parametrize("nccl", [find_nccl() is not None], ids=lambda found: "nccl" if found else "without nccl")
def test_emitted_programs(nccl: bool, without: set[str], tmp_path: Path) -> None:
    every = BENCHES | RUNNERS
    assert set(every) > FURTHER
    plans = {key: every[key]() for key in every if (nccl or " nccl" not in key) and key not in without}
    source = write_together(plans, tmp_path, runners=RUNNERS)
    flags = (*NVCC_ALONE, *(require_nccl().flags() if nccl else ()))
    main = ("DAGC_RUNNER_MAIN",)
    build(Build([source], target="cuda", mpi=require_mpi(), defines=main, flags=flags), tmp_path / "together.ii")


@pytest.mark.mpi
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or find_mpi() is None, reason="needs nvcc and an MPI")
def test_kernels_apart_link(tmp_path: Path) -> None:
    """What the host's compiler takes without kernels, and nvcc without the program, has each launcher once."""
    made = plan(PUTS, Target.CUDA, transport="put", graph_edges="early", capture="true")
    write_runner(made, tmp_path / "out")
    assert (tmp_path / "out/launches.cu").exists()
    assert build_artifact(tmp_path / "out", made, "runner", hurry=True).exists()

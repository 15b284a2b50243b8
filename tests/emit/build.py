"""Plans of the samples, for tests of emission."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from dagc.base.source import Source
from dagc.build.toolchain import find_nvcc
from dagc.emit import emit, runtime_headers
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph
from dagc.space import Space

ROOT = Path(__file__).parents[2]
SPMV = ROOT / "samples/spmv/spmv.dag"
HALO = ROOT / "samples/halo3d/halo3d.dag"
SINK = Path(__file__).parent / "data/sink.dag"
RANKS = Path(__file__).parent / "data/ranks.dag"
COLUMNS = Path(__file__).parent / "data/columns.dag"
HEAT2D = Path(__file__).parent / "data/heat2d.dag"
ALLTOALLV = Path(__file__).parent / "data/alltoallv.dag"
ALIKE = Path(__file__).parent / "data/alike.dag"
COMMS = Path(__file__).parent / "data/comms.dag"
VALUES = Path(__file__).parent / "data/values.dag"
ACCUMULATE = Path(__file__).parent / "data/accumulate.dag"
COLLECTIVES = Path(__file__).parent / "data/collectives.dag"


# Flags of nvcc for what has only to compile: both of its compilers with their warnings, and assembled for the GPU. What
# they leave for g++ is not compiled; g++ sees it in tests/emit/test_compile.py, and most of it on the host target.
NVCC_ALONE = ("-cuda", "-O0", "-Xptxas=-O0")
if (nvcc := find_nvcc()) is not None and re.search(r"release (1[3-9]|[2-9]\d)\.", nvcc.version):
    NVCC_ALONE += ("-Ofc=max",)  # CUDA 13: a third less time for the code of the GPU


def graph(path: Path, **defines: str) -> Graph:
    # Names of files show in emitted text: keep them free of where the checkout is.
    source = Source(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    return build_graph(lower(parse_with_includes(source), defines))


def graph_of(text: str, **defines: str) -> Graph:
    """The graph of a program given as text."""
    source = Source("test.dag", text)
    return build_graph(lower(parse_with_includes(source), defines))


@lru_cache(maxsize=32)
def _plan(path: Path, target: Target, defines: tuple[tuple[str, str], ...]) -> Plan:
    made = graph(path, **dict(defines))
    return Plan(made, next(iter(Space(made))), target)


def plan(path: Path, target: Target, **defines: str) -> Plan:
    """The first traversal of a program."""
    return _plan(path, target, tuple(sorted(defines.items())))


def write(made: Plan, directory: Path) -> Path:
    """Everything a compiler needs; returns the directory."""
    for name, text in emit(made).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    write_headers(directory / "include")
    return directory


def write_headers(directory: Path) -> None:
    for name, path in runtime_headers().items():
        to = directory / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())

"""Lower bounds against times that were measured on GPUs: none is above one, and those of kernels that only move data
are near."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks.tune.oracle_csv import read_oracle
from dagc import api
from dagc.ir.program import Graph
from dagc.perf.bound import (
    ARITHMETIC,
    CACHE,
    LAUNCH,
    MEMORY,
    Ceilings,
    LowerBound,
    Moved,
    bound_of,
    footprint_of,
    path_of,
    seconds_of,
)
from dagc.perf.hardware import load_hardware
from dagc.space import Space

ROOT = Path(__file__).parents[2]
RECORDS = {
    "h200": (
        "2026-11-22-h200-corpus/oracle-fit.csv.xz",
        "2026-11-21-h200-tune/oracle.csv.xz",
        "2026-11-29-h200-forms/oracle-unseen5.csv.xz",
    ),
    "h100": ("2026-11-22-h100-corpus/oracle-fit.csv.xz",),
}
# The share of the bound that the fastest setting reaches at the largest size.
NEAR = {
    "stream.complex_multiply": 0.9,
    "stencil2d.variable_coefficients": 0.9,
    "stream.adam": 0.8,
    "fdtd-2d": 0.8,
    "allpairs.nbody_tile": 0.35,
}
SOME = [
    *NEAR, "stream.fill", "permute.transpose_tile", "types.threshold_uchar4", "stencil3d.seven_point", "lbm.d2q9",
    "reduce.softmax", "sparse.ell", "dense.gemm_tile", "divergent.mandelbrot", "3dconv", "syr2k",
    "varying.seven_bands_f64", "transport.upwind2",
]  # fmt: skip


@lru_cache(maxsize=1)
def _fastest(gpu: str) -> dict[str, dict[str, tuple[str, dict[str, int], float]]]:
    """program -> op and size -> op, scalars, and seconds of the fastest setting."""
    out: dict[str, dict[str, tuple[str, dict[str, int], float]]] = {}
    for file in RECORDS[gpu]:
        for cell in read_oracle(ROOT / "benchmarks/results" / file):
            if cell.program in SOME and cell.flush and not cell.failure:
                of = out.setdefault(cell.program, {})
                scalars = {name.lower(): value for name, value in cell.case.params}
                key = f"{cell.op} {cell.case.text}"
                if cell.seconds < of.get(key, ("", {}, math.inf))[2]:
                    of[key] = cell.op, scalars, cell.seconds
    return out


def _graph(program: str) -> Graph:
    family, _, name = program.rpartition(".")
    path = ROOT / "benchmarks/corpus" / family / f"{name}.dag" if family else ROOT / f"samples/polybench/{name}.dag"
    return api.read(path).graph().unrolled


def _ceilings(gpu: str) -> Ceilings:
    found = Ceilings.of_hardware(load_hardware(gpu))
    assert found is not None
    return found


@pytest.mark.parametrize("gpu", RECORDS)
def test_no_recorded_launch_is_faster_than_its_bound(gpu: str) -> None:
    shares: dict[str, float] = {}
    for program, sizes in _fastest(gpu).items():
        graph = _graph(program)
        ends = sorted(sizes.values(), key=lambda size: math.prod(size[1].values()))
        for name, scalars, seconds in (ends[0], ends[-1]):
            op = next(o.kernel for o in graph.ops if o.kernel is not None and o.kernel.base == name)
            bound = bound_of(graph.program, op, scalars, _ceilings(gpu))
            assert 0 < bound.seconds <= seconds, (program, scalars, bound.seconds, seconds)
            shares[program] = max(shares.get(program, 0.0), bound.seconds / seconds)
    assert len(shares) > 8
    assert {p: shares[p] for p, least in NEAR.items() if p in shares and shares[p] < least} == {}


SPEEDS = Ceilings(((1e6, 8e12), (5e7, 6e12), (1e8, 4e12)), launch=1e-6)


def test_small_arrays_move_at_the_speed_of_a_cache() -> None:
    assert SPEEDS.speed(100) == SPEEDS.speed(1e6) == 8e12
    assert SPEEDS.speed(6e7) == 6e12  # at that of a smaller size: it may be that of the cache up to here
    assert SPEEDS.speed(1e9) == 4e12
    assert seconds_of([Moved("a", 10**9, 10**9)], SPEEDS) == (pytest.approx(1e9 / 4e12), False)
    both = [Moved("a", 10**9, 10**9), Moved("b", 10**6, 2 * 10**6)]  # the cache and the memory work at the same time
    assert seconds_of(both, SPEEDS) == (pytest.approx(1e9 / 4e12), False)
    assert seconds_of([Moved("b", 10**6, 2 * 10**6)], SPEEDS) == (pytest.approx(2e6 / 8e12), True)


def test_speeds_are_raised_to_those_of_another_machine() -> None:
    there = Ceilings(((2e6, 9e12),), launch=2e-6, operations=1e13)
    both = replace(SPEEDS, link=1e11).raised(there)
    assert (both.speed(1e6), both.speed(2e6), both.speed(1e9)) == (9e12, 9e12, 9e12)
    assert (both.launch, both.operations, both.link) == (1e-6, 1e13, 1e11)  # what one does not know the other does
    assert SPEEDS.raised(None) is SPEEDS


TEXT = """
program chain
param size : i64 = 100000000
setup "none.py" data()
array a : f32[size] inout
array b : f32[size] inout
array k : i32[size] in
kernel scale(y: inout f32[n], n: i64) {
  gpu {
    launch grid(ceil(n / 256)) block(256)
    cuda \"\"\"int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] *= 2;\"\"\"
  }
}
kernel pick(y: inout f32[n], k: in i32[n], n: i64) {
  gpu {
    launch grid(ceil(n / 256)) block(256)
    cuda \"\"\"int i = blockIdx.x * 256 + threadIdx.x; if (i < n && k[i] > 0) y[k[i]] = 1;\"\"\"
  }
}
kernel odd(y: inout f32[n], n: i64) {
  gpu {
    launch grid(1) block(256)
    cuda \"\"\"float* p = y; if (threadIdx.x == 0) goto end; p[0] = 1; end: return;\"\"\"
  }
}
dag {
  one   : gpu scale(a, size)
  other : gpu scale(b, size)
  two   : gpu scale(a, size)
  some  : gpu pick(b, k, size)
  few   : gpu scale(a[0 .. 10], 10)
  what  : gpu odd(a, size)
}
"""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("bound") / "chain.dag"
    path.write_text(TEXT)
    return api.read(path).graph()


def _bounds(graph: Graph, ceilings: Ceilings = SPEEDS) -> dict[str, LowerBound]:
    return {o.name: bound_of(graph.program, o.kernel, {}, ceilings) for o in graph.ops if o.kernel is not None}


def test_a_bound_has_its_reason(chain: Graph) -> None:
    bounds = _bounds(chain)
    assert bounds["one"].why == MEMORY
    assert bounds["one"].seconds == pytest.approx(2 * 4e8 / 4e12)  # in place: each element there and back
    assert (bounds["few"].why, bounds["few"].seconds) == (LAUNCH, 1e-6)
    assert bounds["some"].footprint.uncounted == (("y", "whether it runs depends on data"),)
    assert bounds["some"].footprint.bytes == 4e8  # k alone
    assert (bounds["what"].why, bounds["what"].seconds) == ("", 1e-6)
    assert "chain.dag:23: " in bounds["what"].unknown  # the place of what cannot be read
    slow = Ceilings(SPEEDS.streams, 1e-6, operations=1e9)
    assert (bounds["some"].footprint.operations, _bounds(chain, slow)["one"].why) == (0, ARITHMETIC)
    assert _bounds(chain, slow)["one"].seconds == pytest.approx(1e8 / 2 / 1e9)  # a multiplication alone is half a pair
    cached = Ceilings(((1e9, 8e12), (2e9, 4e12)))
    op = chain.by_name("one").kernel
    assert op is not None
    assert bound_of(chain.program, op, {}, cached).why == CACHE


def test_ops_that_wait_for_each_other_add_up(chain: Graph) -> None:
    seconds = {o.id: 1.0 for o in chain.ops if o.kernel is not None}
    total, ops = path_of(chain, Space(chain).first(), seconds, wait=0.0)
    names = [chain.ops[op].name for op in ops]
    assert total == sum(name != "end" for name in names) >= 4  # one, two, few and what, by edges, on any stream
    assert [n for n in names if n in ("one", "two", "few", "what")] == ["one", "two", "few", "what"]


def test_a_size_that_is_not_known_is_said(tmp_path: Path) -> None:
    path = tmp_path / "open.dag"
    path.write_text(TEXT.replace("param size : i64 = 100000000", "scalar size : i64"))
    graph = api.read(path).graph()
    op = graph.by_name("one").kernel
    assert op is not None
    assert bound_of(graph.program, op, {}, SPEEDS).unknown == "size: not known"
    assert footprint_of(graph.program, op, {"size": 1000}).bytes == 8000


def test_a_form_moves_the_same_with_other_threads() -> None:
    sizes = {"nx": 8192, "rows": 4096, "steps": 2}

    def bound(form: dict[str, int]) -> LowerBound:
        graph = api.read(ROOT / "samples/jacobi/jacobi.dag", sizes | form).graph().unrolled
        op = next(o.kernel for o in graph.ops if o.kernel is not None and o.kernel.base == "inner")
        return bound_of(graph.program, op, {}, SPEEDS)

    plain, wide, coarse = (bound(form) for form in ({}, {"inner.form.wide": 4}, {"inner.form.coarsen": 4}))
    assert plain.seconds == wide.seconds == coarse.seconds == pytest.approx(268.3e6 / 4e12, rel=1e-3)
    assert [b.footprint.widest for b in (plain, wide, coarse)] == [4, 16, 4]
    fewer = [plain.footprint.threads / b.footprint.threads for b in (wide, coarse)]
    assert fewer == pytest.approx([4, 4], rel=1e-3)  # the last block of an axis may be a part

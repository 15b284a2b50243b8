"""The volume model's warps and bytes, against every address of a launch counted one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc import api
from dagc.choice.legal import units
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import calibration_of, volume_program
from tests.examples import examples

WARP, SECTOR = 32, 32
Loads = Iterator[tuple[int, int, str, int]]  # block, thread, array, element

TEXT = """
program traffic
param edge : i64 = 64
setup "none.py" data(edge)
scalar n : i32
array a : f32[*] in
array y : f32[*] out
kernel work(y: out f32[*], a: in f32[*], n: i32) {{
  tune bx in {{32, 64, 96, 128, 256}}
  gpu {{
    launch grid({grid}) block(bx)
    cuda \"\"\"{code}\"\"\"
  }}
}}
dag {{ w : gpu work(y, a, n) }}
"""


@dataclass(frozen=True)
class Pattern:
    """A kernel over n, with blocks of bx; `loads` gives what each of its threads touches, in order."""

    grid: str
    code: str
    blocks: Callable[[int, int], int]
    loads: Callable[[int, int, int], Loads]
    span: int = 1  # elements of a thread


def _row_per_block(n: int, bx: int, blocks: int) -> Loads:
    for block in range(blocks):
        for thread in range(bx):
            for j in range(thread, n, bx):
                yield block, thread, "a", block * n + j


def _grid_stride(n: int, bx: int, blocks: int) -> Loads:
    for block in range(blocks):
        for thread in range(bx):
            for i in range(block * bx + thread, n * n, blocks * bx):
                yield block, thread, "a", i
                yield block, thread, "y", i


def _coarse(n: int, bx: int, blocks: int) -> Loads:
    for block in range(blocks):
        for thread in range(bx):
            for k in range(4):
                if block * 4 * bx + thread + k * bx < n:
                    yield block, thread, "a", block * 4 * bx + thread + k * bx


def _column(n: int, bx: int, blocks: int) -> Loads:
    for block in range(blocks):
        for thread in range(bx):
            if block * bx + thread < n:
                for i in range(n):
                    yield block, thread, "a", i * n + block * bx + thread


def _column_per_block(n: int, bx: int, blocks: int) -> Loads:
    for block in range(blocks):
        for thread in range(bx):
            for i in range(thread, n, bx):
                yield block, thread, "a", i * n + block


PATTERNS = {
    "a block for each row": Pattern(
        "n", "float s = 0; for (int j = threadIdx.x; j < n; j += bx) s += a[blockIdx.x * n + j]; if (s == 9) y[0] = s;",
        lambda n, bx: n, _row_per_block,
    ),
    "a block for each row, blockDim": Pattern(
        "n", "const float* row = a + blockIdx.x * n; float s = 0;"
        " for (int j = threadIdx.x; j < n; j += blockDim.x) s += row[j]; if (s == 9) y[0] = s;",
        lambda n, bx: n, _row_per_block,
    ),
    "a grid-stride loop": Pattern(
        "4", "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * n; i += gridDim.x * blockDim.x) y[i] = a[i];",
        lambda n, bx: 4, _grid_stride,
    ),
    "four elements a thread": Pattern(
        "ceil(n / (4 * bx))",
        "float s = 0; for (int k = 0; k < 4; ++k) {"
        "  int i = blockIdx.x * 4 * bx + threadIdx.x + k * bx; if (i < n) s += a[i]; }"
        " if (s == 9) y[0] = s;",
        lambda n, bx: -(-n // (4 * bx)), _coarse, 4,
    ),
    "a thread for each column": Pattern(
        "ceil(n / bx)",
        "int j = blockIdx.x * bx + threadIdx.x; if (j >= n) return; float s = 0;"
        " for (int i = 0; i < n; ++i) s += a[i * n + j]; if (s == 9) y[0] = s;",
        lambda n, bx: -(-n // bx), _column,
    ),
    "a block for each column": Pattern(
        "n", "float s = 0; for (int i = threadIdx.x; i < n; i += bx) s += a[i * n + blockIdx.x]; if (s == 9) y[0] = s;",
        lambda n, bx: n, _column_per_block,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=PATTERNS)
def pattern(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pattern, object]:
    one = PATTERNS[request.param]
    path: Path = tmp_path_factory.mktemp("traffic") / "traffic.dag"
    path.write_text(TEXT.format(grid=one.grid, code=one.code))
    graph = api.load_graph(path)
    (unit,) = units(graph)
    op = next(o.op for o in graph.ops if getattr(o.op, "base", "") == unit.op)
    return one, volume_program(graph.program, op)  # type: ignore[arg-type]


@given(n=st.sampled_from([32, 96, 128, 224, 256]), bx=st.sampled_from([32, 64, 96, 128, 256]))
@settings(max_examples=examples(12), deadline=None)
def test_warps_and_bytes_are_those_of_the_launch(pattern: tuple[Pattern, object], n: int, bx: int) -> None:
    one, program = pattern
    hardware = load_hardware("h200")
    values = {**hardware.parameters(), **calibration_of(hardware), "n": n, "blockDim_x": bx, "registers": 32}
    found = evaluate_all(program, {**values, "log2_threads": 7.0})  # type: ignore[arg-type]
    blocks = one.blocks(n, bx)
    warps, sectors, of_block = set(), set(), set()
    turns: Counter[tuple[int, int]] = Counter()
    requests: dict[tuple[int, int, int], set[tuple[str, int]]] = defaultdict(set)
    for block, thread, array, element in one.loads(n, bx, blocks):
        sector = array, 4 * element // SECTOR
        warps.add((block, thread // WARP))
        sectors.add(sector)
        if array == "a":  # loads; stores are not merged
            of_block.add((block, sector))
        requests[block, thread // WARP, turns[block, thread]].add(sector)
        turns[block, thread] += 1
    largest = max(Counter(block for block, _ in of_block).values())
    assert found["memory_bytes"] == pytest.approx(SECTOR * len(sectors), rel=0.15)
    assert found["block_sectors"] == pytest.approx(largest, rel=0.15)
    if n >= one.span * bx:  # in a wider block, warps without an iteration start too
        assert found["active_warps"] == pytest.approx(len(warps), rel=0.02 + 1 / len(warps))
    if n % (one.span * bx) == 0:  # else the last iteration of a loop has fewer threads, which the model does not see
        asked = sum(len(of_one) for of_one in requests.values())
        for value, counted in ((found["requests"], len(requests)), (found["sectors"] + found["stored_sectors"], asked)):
            assert value * found["active_warps"] == pytest.approx(counted, rel=0.05 + 1 / counted)

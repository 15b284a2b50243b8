"""The volume model's warps and bytes, against every address of a launch counted one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc import api
from dagc.choice.legal import open_sites
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import calibration_of, volume_program
from tests.tiers import examples

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
    (site,) = open_sites(graph)
    op = next(o.op for o in graph.ops if getattr(o.op, "base", "") == site.name)
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


SHORT = ("a block for each row", "a block for each row, blockDim", "a grid-stride loop", "a block for each column")


@given(n=st.sampled_from([8, 16, 24, 40, 48, 64, 96, 100]), bx=st.sampled_from([32, 64, 128, 256]))
@settings(max_examples=examples(12), deadline=None)
@pytest.mark.parametrize("pattern", SHORT, indirect=True)
def test_loops_of_less_than_an_iteration(pattern: tuple[Pattern, object], n: int, bx: int) -> None:
    """Warps without an iteration start too, and move nothing."""
    one, program = pattern
    hardware = load_hardware("h200")
    values = {**hardware.parameters(), **calibration_of(hardware), "n": n, "blockDim_x": bx, "registers": 32}
    found = evaluate_all(program, {**values, "log2_threads": 7.0})  # type: ignore[arg-type]
    blocks = one.blocks(n, bx)
    requests: dict[tuple[object, ...], set[tuple[str, int]]] = defaultdict(set)
    turns: Counter[tuple[int, int]] = Counter()
    for block, thread, array, element in one.loads(n, bx, blocks):
        requests[block, thread // WARP, turns[block, thread]].add((array, 4 * element // SECTOR))
        turns[block, thread] += 1
    if max(turns.values()) > 1:
        return  # of the launches of the test above
    asked = sum(map(len, requests.values()))
    sectors = set().union(*requests.values())
    assert found["memory_bytes"] == pytest.approx(SECTOR * len(sectors), rel=0.15)
    assert (found["sectors"] + found["stored_sectors"]) * found["active_warps"] == pytest.approx(asked, rel=0.35)


# ---- blocks of two dimensions: sectors of loads and stores in any direction ------------------------

PLANE = """
program plane
param edge : i64 = 64
setup "none.py" data(edge)
scalar ni, nj : i32
array a : f32[*] in
array p : i32[*] in
array y : f32[*] out
kernel work(y: out f32[*], a: in f32[*], p: in i32[*], ni, nj: i32) {{
  tune bx in {{1, 2, 4, 8, 16, 32, 64}}
  tune by in {{1, 2, 4, 8, 16, 32, 64}}
  gpu {{
    launch grid(ceil(nj / bx), ceil(ni / by)) block(bx, by)
    cuda \"\"\"
      int j = blockIdx.x * bx + threadIdx.x, i = blockIdx.y * by + threadIdx.y;
      if (i >= ni || j >= nj) return;
      {code}
    \"\"\"
  }}
}}
dag {{ w : gpu work(y, a, p, ni, nj) }}
"""
NI, NJ = 256, 512
Touched = Callable[[int, int], list[tuple[str, int]]]  # row, column -> array and element, in order

PLANES: dict[str, tuple[str, Touched]] = {
    "a transposed store": ("y[j * ni + i] = a[i * nj + j];", lambda i, j: [("a", i * NJ + j), ("y", j * NI + i)]),
    "a transposed load": ("y[i * nj + j] = a[j * ni + i];", lambda i, j: [("a", j * NI + i), ("y", i * NJ + j)]),
    "a store along diagonals": (
        "y[((i + j) % ni) * nj + j] = a[i * nj + j];",
        lambda i, j: [("a", i * NJ + j), ("y", (i + j) % NI * NJ + j)],
    ),
    "columns dealt to four banks": (
        "y[i * nj + (j % 4) * (nj / 4) + j / 4] = a[i * nj + j];",
        lambda i, j: [("a", i * NJ + j), ("y", i * NJ + j % 4 * (NJ // 4) + j // 4)],
    ),
    "rows at loaded places": (
        "y[p[i] * nj + j] = a[i * nj + j];",
        lambda i, j: [("p", i), ("a", i * NJ + j), ("y", i * 37 % NI * NJ + j)],
    ),
    "three interleaved channels": (
        "int at = 3 * (i * nj + j); y[at] = a[i * nj + j];",
        lambda i, j: [("a", i * NJ + j), ("y", 3 * (i * NJ + j))],
    ),
    "a column of neighbours, clamped": (
        "float s = 0; for (int r = -8; r <= 8; ++r) s += a[min(max(i + r, 0), ni - 1) * nj + j]; y[i * nj + j] = s;",
        lambda i, j: [*(("a", min(max(i + r, 0), NI - 1) * NJ + j) for r in range(-8, 9)), ("y", i * NJ + j)],
    ),
    "half the resolution": (
        "y[i * nj + j] = a[(i / 2) * (nj / 2) + j / 2];",
        lambda i, j: [("a", i // 2 * (NJ // 2) + j // 2), ("y", i * NJ + j)],
    ),
}  # fmt: skip


def _model(folder: Path, code: str) -> Callable[[int, int, int], dict[str, float]]:
    """The model's steps for a number of columns and a block."""
    (folder / "plane.dag").write_text(PLANE.format(code=code), encoding="utf-8")
    graph = api.load_graph(folder / "plane.dag")
    (site,) = open_sites(graph)
    program = volume_program(graph.program, next(o.op for o in graph.ops if getattr(o.op, "base", "") == site.name))  # type: ignore[arg-type]
    hardware = load_hardware("h200")
    values = {**hardware.parameters(), **calibration_of(hardware), "ni": NI, "registers": 32}

    def at(nj: int, bx: int, by: int) -> dict[str, float]:
        every = {**values, "nj": nj, "blockDim_x": bx, "blockDim_y": by}
        return evaluate_all(program, {p.name: every[p.name] for p in program.parameters if p.name in every})

    return at


@pytest.mark.parametrize(("code", "columns"), [("y[i * nj + j] = a[j];", True), ("y[j * ni + i] = a[j];", False)])
def test_bytes_in_sectors_that_several_blocks_store(code: str, columns: bool, tmp_path: Path) -> None:
    """Rows that begin anywhere, and rows that begin at a sector; each element of the grid counted."""
    at = _model(tmp_path, code)
    for nj in (512, 513):
        i, j = np.divmod(np.arange(NI * nj), nj)
        address = i * nj + j if columns else j * NI + i
        for bx, by in ((1, 64), (4, 8), (8, 32), (32, 8), (64, 4)):
            block = i // by * nj + j // bx
            of_one = np.unique(np.stack([4 * address // SECTOR, block]), axis=1)[0]
            shared = SECTOR * int((np.bincount(of_one) > 1).sum())
            found = at(nj, bx, by)["shared_bytes"]
            assert found == pytest.approx(shared, rel=0.15, abs=0.02 * 4 * NI * nj), (nj, bx, by)


def test_a_block_that_continues_its_rows_in_a_loop_shares_no_sectors(tmp_path: Path) -> None:
    at = _model(tmp_path, "for (int k = threadIdx.x; k < nj; k += bx) y[i * nj + k] = a[k];")
    assert at(513, 32, 8)["shared_bytes"] == 0


@pytest.mark.parametrize("name", PLANES)
def test_sectors_of_a_warp_and_of_a_block(name: str, tmp_path: Path) -> None:
    """A block in the middle of the grid, each lane counted: what its warps store and load, and what a block touches."""
    code, touched = PLANES[name]
    at = _model(tmp_path, code)
    for bx, by in ((1, 64), (4, 8), (8, 32), (16, 2), (32, 8), (64, 4)):
        found = at(NJ, bx, by)
        requests: dict[tuple[int, int], set[tuple[str, int]]] = defaultdict(set)
        of_block = set()
        for thread in range(bx * by):
            row, column = NI // 2 // by * by + thread // bx, NJ // 2 // bx * bx + thread % bx
            for turn, (array, element) in enumerate(touched(row, column)):
                requests[thread // WARP, turn].add((array, 4 * element // SECTOR))
                if array != "y":
                    of_block.add((array, 4 * element // SECTOR))
        warps = max(1, bx * by // WARP)
        stores = sum(len(s) for s in requests.values() if next(iter(s))[0] == "y") / warps
        loads = sum(len(s) for s in requests.values() if next(iter(s))[0] != "y") / warps
        assert found["stored_sectors"] == pytest.approx(stores, rel=0.25), (bx, by)
        assert found["sectors"] == pytest.approx(loads, rel=0.2), (bx, by)
        assert found["block_sectors"] == pytest.approx(len(of_block), rel=0.25), (bx, by)


def test_elements_that_unrolled_loops_load_again_count_once(tmp_path: Path) -> None:
    """Of 4 neighbours with 3 points each, 6 loads are left; where something is stored between them, 12 are."""
    loop = "for (int k = 0; k < 4; ++k) for (int r = 0; r < 3; ++r) {{ {store} s += a[i * nj + j + k + r]; }}"
    loads = {}
    for store in ("", "y[i * nj + j] = s;"):
        at = _model(tmp_path, f"float s = 0; {loop.format(store=store)} y[i * nj + j] += s;")
        loads[store] = at(NJ, 32, 8)["requests"]
    assert loads[""] == 6 + 2
    assert loads["y[i * nj + j] = s;"] > 12


def test_a_store_in_a_loop_around_an_unrolled_one_ends_an_iteration(tmp_path: Path) -> None:
    """nvcc moves no load of the next iteration before it."""
    inner = "for (int k = 0; k < 2; ++k) s += a[(i + k) * nj + m];"
    loop = "float s = 0; for (int m = 0; m < nj; ++m) {{ {} {} }} y[j] = s;"
    texts = [loop.format(inner, store) for store in ("", "y[i * nj + j] = s;")]
    stages = [_model(tmp_path, text)(NJ, 32, 8)["stages"] for text in texts]
    assert stages[1] == 4 * stages[0] == NJ

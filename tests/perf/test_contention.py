"""Accesses that meet, in banks of shared memory and at lines with atomic operations, beside a count of all threads."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import pytest

from dagc import api
from dagc.choice.legal import op_of, open_sites
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import calibration_of, volume_program

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-23-h100-unseen3" / "contention.csv"
TEXT = '''program meeting
setup "meeting.py" data()
scalar n : i32
array a : f32[*] in
array y : f32[*] out
kernel work(y: out f32[*], a: in f32[*], n: i32) {{
  tune bx in {{32, 8, 64}}
  tune by in {{4, 16, 2}}
  gpu {{
    launch grid(ceil(n / bx), ceil(n / by)) block(bx, by)
    cuda """
      __shared__ float part[4096];
      int x = threadIdx.x, t = threadIdx.y * bx + x, j = blockIdx.x * bx + x, i = blockIdx.y * by + threadIdx.y;
      {code}
    """
  }}
}}
dag {{ w : gpu work(y, a, n) }}
'''
SECTOR = 0.35  # of an addition at one address: for each sector of a request
BLOCKS = ((32, 4), (8, 16), (64, 2))
N = 128


def steps_of(folder: Path, code: str, bx: int, by: int) -> dict[str, float]:
    path = folder / "meeting.dag"
    path.write_text(TEXT.format(code=code))
    graph = api.load_graph(path)
    (site,) = open_sites(graph)
    program, gpu = volume_program(graph.program, op_of(graph, site)), load_hardware("h200")
    values = {**gpu.parameters(), **calibration_of(gpu), "n": N, "registers": 32, "log2_threads": 7.0}
    values |= {"blockDim_x": bx, "blockDim_y": by}
    return {k: float(v) for k, v in evaluate_all(program, {p.name: values[p.name] for p in program.parameters}).items()}


def passes(places: list[int]) -> int:
    """The most words of one bank."""
    return max(Counter(word % 32 for word in set(places)).values())


# The text, and the word of a thread.
SHARED = {
    "rows": ("part[t] = a[i * n + j];", "t"),
    "every second word": ("part[2 * t] = a[i * n + j];", "2 * t"),
    "every fifth": ("part[5 * t] = a[i * n + j];", "5 * t"),
    "columns": ("part[x * 32 + threadIdx.y] = a[i * n + j];", "x * 32 + row"),
    "padded columns": ("part[x * 36 + threadIdx.y] = a[i * n + j];", "x * 36 + row"),
    "one word of all": ("y[i * n + j] = part[3];", "3"),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize(("bx", "by"), BLOCKS)
def test_passes_are_those_of_the_words_of_a_warp(name: str, bx: int, by: int, tmp_path: Path) -> None:
    code, word = SHARED[name]
    place = compile(word, name, "eval")
    warps = defaultdict(list)
    for row, x in product(range(by), range(bx)):
        t = row * bx + x
        warps[t // 32].append(eval(place, {"t": t, "x": x, "row": row}))
    mean = sum(map(passes, warps.values())) / len(warps)
    assert steps_of(tmp_path, code, bx, by)["shared_passes"] == pytest.approx(mean)


# The text, the element that a thread adds to, and whether it does. Lanes of a warp at one address follow each other.
ATOMIC = {
    "one sum": ("if (t % 32 == 0) atomicAdd(y, 1.0f);", "0", "t % 32 == 0"),
    "one sum, all lanes": ("atomicAdd(y, 1.0f);", "0", "True"),
    "an element each": ("atomicAdd(y + i * n + j, 1.0f);", "i * n + j", "True"),
    "columns": ("atomicAdd(y + j, 1.0f);", "j", "True"),
    "rows": ("atomicAdd(y + 64 * i, 1.0f);", "64 * i", "True"),
    "the block's own": (
        "if (t == 0) atomicAdd(y + 64 * (blockIdx.y * gridDim.x + blockIdx.x), 1.0f);",
        "block",
        "t == 0",
    ),
}


@pytest.mark.parametrize("name", ATOMIC)
@pytest.mark.parametrize(("bx", "by"), BLOCKS)
def test_what_one_line_serves_is_that_of_the_requests_that_touch_it(
    name: str, bx: int, by: int, tmp_path: Path
) -> None:
    """All blocks run at a time."""
    code, element, condition = ATOMIC[name]
    place, runs = compile(element, name, "eval"), compile(condition, name, "eval")
    requests: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i, j in product(range(N), range(N)):
        block, t = (i // by) * (N // bx) + j // bx, i % by * bx + j % bx
        names = {"i": i, "j": j, "n": N, "t": t, "block": 64 * block}
        if eval(runs, names):
            at = eval(place, names)
            requests[block, t // 32, at // 32].append(at)
    serial: dict[int, float] = defaultdict(float)
    for (_, _, line), at in requests.items():
        serial[line] += max(*Counter(at).values(), SECTOR * len({element // 8 for element in at}))
    assert steps_of(tmp_path, code, bx, by)["contended"] == pytest.approx(max(serial.values()), rel=0.03)


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str, int], float]:
    """Cycles of a request of a warp on an H100."""
    rows = csv.DictReader(RECORD.read_text().splitlines())
    return {(row["what"], row["type"], int(row["ways"])): float(row["cycles"]) for row in rows}


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_a_gpu_takes_as_long_for_the_lanes_of_a_warp_at_a_few_addresses(
    ways: int, measured: dict[tuple[str, str, int], float], tmp_path: Path
) -> None:
    """In cycles of an addition at one address by one lane of each warp."""
    steps = steps_of(tmp_path, f"atomicAdd(y + x % {ways}, 1.0f);", 32, 4)
    one = measured["global_lines", "f32", 1]
    found = steps["contended"] / (N * N / 32)
    assert found == pytest.approx(measured["global_words", "f32", ways] / one, rel=0.15)


@pytest.mark.parametrize("type_", ["int", "float"])
@pytest.mark.parametrize("ways", [1, 4, 32])
def test_a_multiprocessor_takes_as_long_for_additions_in_shared_memory(
    type_: str, ways: int, measured: dict[tuple[str, str, int], float], tmp_path: Path
) -> None:
    steps = steps_of(tmp_path, f"__shared__ {type_} sum[32]; atomicAdd(sum + x % {ways}, 1);", 32, 4)
    name = {"int": "i32", "float": "f32"}[type_]
    assert steps["shared_passes"] == pytest.approx(measured["shared_atomic", name, ways], rel=0.15)

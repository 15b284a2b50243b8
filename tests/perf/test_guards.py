"""Conditions on a thread's place: warps, requests and bytes, beside a count of all threads."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from dagc import api
from dagc.choice.legal import op_of, open_sites
from dagc.cuda.accesses import accesses_of
from dagc.cuda.expressions import Guard, symbol
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import calibration_of, volume_program

TEXT = '''program place
setup "place.py" data()
scalar n, m : i32
array a : f32[*] in
array y : f32[*] out
kernel work(y: out f32[*], a: in f32[*], n, m: i32) {{
  tune bx in {{32, 64}}
  tune by in {{4, 8}}
  gpu {{
    launch grid(ceil(n / bx), ceil(n / by)) block(bx, by)
    cuda """
      int x = threadIdx.x, j = blockIdx.x * bx + x, i = blockIdx.y * by + threadIdx.y;
      {code}
    """
  }}
}}
dag {{ w : gpu work(y, a, n, m) }}
'''
STORE = "y[i * n + j] = 1;"
# The text, the same condition in Python, and the share by which the model may miss.
PLACES = {
    "edges": ("if (i >= n || j >= n) return; " + STORE, "i < n and j < n", 0.0),
    "a smaller part": ("if (i >= m || j >= m + 32) return; " + STORE, "i < m and j < m + 32", 0.0),
    "inside": (
        "if (i < m || j < m || i >= n - m || j >= n - m) return; " + STORE, "m <= i < n - m and m <= j < n - m", 0.1
    ),
    "nested": ("if (i < n && j < n) { if (i >= m) " + STORE + " }", "m <= i < n and j < n", 0.0),
    "the smaller of two": ("if (i > min(n - 1, m) || j >= n) return; " + STORE, "i <= min(n - 1, m) and j < n", 0.0),
    "below the diagonal": ("if (i >= n || j > i) return; " + STORE, "i < n and j <= i", 0.05),
    "above the diagonal": ("if (i < n && j < n && i < j) " + STORE, "i < n and j < n and i < j", 0.05),
    "a band": ("if (i >= n || j < i || j > i + m || j >= n) return; " + STORE, "i <= j <= i + m and j < n", 0.15),
    "the first thread": ("if (x == 0 && i < n) " + STORE, "x == 0 and i < n", 0.0),
    "not zero": ("if (i >= n || j >= n) return; if (!x) " + STORE, "x == 0 and i < n and j < n", 0.0),
    "half of a block": ("if (x < bx / 2 && i < n && j < n) " + STORE, "x < 16 and i < n and j < n", 0.0),
    "the other half": ("if (i >= n) return; if (x < 16) ; else " + STORE, "x >= 16 and i < n", 0.0),
    "blocks": ("if (blockIdx.y >= gridDim.y / 4) return; " + STORE, "i // 4 < n // 16", 0.0),
    "lanes": ("if (i < n && j % 32 < 8) " + STORE, "i < n and j % 32 < 8", 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_requests_and_bytes_are_those_of_the_threads_that_pass(name: str, tmp_path: Path) -> None:
    code, condition, off = PLACES[name]
    path = tmp_path / "place.dag"
    path.write_text(TEXT.format(code=code))
    graph = api.load_graph(path)
    (site,) = open_sites(graph)
    program, gpu = volume_program(graph.program, op_of(graph, site)), load_hardware("h200")
    n, m = 256, 64
    values = {**gpu.parameters(), **calibration_of(gpu), "n": n, "m": m, "registers": 32, "log2_threads": 7.0}
    values |= {"blockDim_x": 32, "blockDim_y": 4}
    steps = evaluate_all(program, {p.name: values[p.name] for p in program.parameters})
    warps = float(steps.get("passing_warps", steps["active_warps"]))
    passed = compile(condition, name, "eval")
    threads = [(i, j) for i, j in product(range(n), range(n)) if eval(passed, {"i": i, "j": j, "x": j % 32, **values})]
    requests = len({(i, j // 32) for i, j in threads})
    sectors = len({(i, j // 8) for i, j in threads})
    assert float(steps["requests"]) * warps == pytest.approx(requests, rel=off)
    if off == 0:  # at a line or an edge, whole warps are counted
        assert float(steps["stored_sectors"]) * warps == pytest.approx(sectors)
    if name != "lanes":
        moved = float(steps["memory_bytes"]) - values["c_fill"] * float(steps["shared_bytes"])
        assert moved == pytest.approx(32 * sectors, rel=off + 0.01)


@pytest.mark.parametrize(
    "body",
    ["if (a[x] > 0) y[x] = 1;", "for (int k = 0; k < n; ++k) if (k < x) y[x] = 1;",
     "if (x % 32 == 0 || n > 3) y[x] = 1;", "if (x * x < n) y[x] = 1;",
     "for (int k = 0; k < n; ++k) { if (x >= k) continue; y[k] = 1; } y[x] = 1;"],
)  # fmt: skip
def test_other_conditions_leave_all_threads(body: str) -> None:
    found = accesses_of(f"int x = threadIdx.x; {body}", {"a": 4, "y": 4}, {"n": symbol("n")})
    assert {a.guards for a in found.accesses} == {frozenset()}


def test_a_condition_holds_until_the_paths_meet() -> None:
    body = "int x = threadIdx.x; if (x < 4) a[x] = 1; else y[x] = 1; for (;;) { if (x > n) break; a[x] = 2; } y[1] = 1;"
    first, other, inside, last = accesses_of(body, {"a": 4, "y": 4}, {"n": symbol("n")}).accesses
    x = symbol("threadIdx_x")
    assert (first.guards, other.guards) == ({Guard(3 - x)}, {Guard(x - 4)})
    assert (inside.guards, last.guards) == ({Guard(symbol("n") - x)}, frozenset())

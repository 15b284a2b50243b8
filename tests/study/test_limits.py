"""The distance to the limit, of recorded searches on H200s."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.traversal import parse_traversal
from dagc.perf.bound import Ceilings
from dagc.recipes.report import report
from dagc.report import si
from dagc.report.limits import limit_lines
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.store.results import ranking
from dagc.study.limits import CEILINGS, MOST, SCALARS, WHOLE, limits_of, op_bounds, program_limits
from dagc.study.loaded import Loaded

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
FILES = [
    "2026-11-28-2xh200-limit/jacobi-8192-1.db", "2026-11-28-2xh200-limit/jacobi-16384.db",
    "2026-11-22-2xh200-loops/jacobi-2048.db", "2026-11-28-4xh200-rest/halo3d-128.db",
    "2026-11-28-4xh200-rest/cg.db",
]  # fmt: skip
# Of two GPUs, as `templates/probe/ceilings.cu` writes them.
TABLE = {
    "streams": [[1e6, 6e12], [6e7, 6e12], [2.6e8, 4.2e12]],
    "operations": 3e13,
    "launch": 6e-7,
    "wait": 0.0,
    "shared": True,
}


@pytest.mark.parametrize("file", FILES)
def test_nothing_recorded_is_faster_than_its_bound(file: str) -> None:
    loaded = Loaded(RESULTS / file)
    results = loaded.results
    best = ranking(results)[0]
    rows = loaded.limits(best)
    assert rows[-1].name == WHOLE
    assert all(row.bound <= row.measured for row in rows if not math.isnan(row.measured))
    for implementation in results.implementations:
        value = implementation.value(results.reference)
        if implementation.id not in results.traces:
            continue
        whole = limits_of(results, loaded.graph(implementation.configuration), implementation, value)[-1]
        assert 0 < whole.bound <= value


def test_what_holds_a_stencil_back() -> None:
    loaded = Loaded(RESULTS / FILES[0])
    lines = limit_lines(loaded.limits(ranking(loaded.results)[0]))
    (inner,) = (line for line in lines if " inner " in line)
    held = r"268 MB from and to memory at 4\.34 TB/s; accesses of 4 bytes, one element a thread"
    assert re.fullmatch(rf" {{11}}inner 12\d us of at least 6[12]\.\d us: \d\d\.\d %; {held}", inner)
    assert re.match(r"limit      \w+ .* us of at least 620 ns: .*; a launch, of 131 kB", lines[0])
    assert re.match(r" {11}program 2\.\d+ ms of at least 1\.\d+ ms: \d\d\.\d %; .* most is lost in inner", lines[-1])
    assert all(line.isascii() for line in lines)


def test_what_is_not_known_is_said() -> None:
    """The file is older than the sizes of its arrays, which the set-up computes, and has a kernel from a library."""
    loaded = Loaded(RESULTS / FILES[4])
    texts = "\n".join(row.text for row in loaded.limits(ranking(loaded.results)[0]))
    assert re.search(r"mv\.local .*; lower bound unknown: n: not known", texts)
    assert re.search(r"program .*, as far as they are known \(without mv\.pack, .*mv\.local, .*\)$", texts)
    assert re.search(r"dot_p .*; lower bound unknown: samples/cg/cg\.dag:\d+: kernel `dot` has no CUDA text", texts)


def test_the_ceilings_of_the_machine_come_before_a_descriptor() -> None:
    loaded = Loaded(RESULTS / FILES[0])
    results, best = loaded.results, ranking(loaded.results)[0]
    graph = loaded.graph(best.configuration)

    def bound(facts: dict[str, object], gpus: tuple[str, ...]) -> float:
        machine = replace(results.runs[0].machine, facts=facts, gpus=gpus)
        rows = limits_of(replace(results, runs=(replace(results.runs[0], machine=machine),)), graph, best, math.nan)
        return next((row.bound for row in rows if row.name == "inner"), math.nan)

    slower = TABLE | {"streams": [[1e6, 1e12]]}
    assert bound({CEILINGS: slower, SCALARS: [{}, {}]}, ()) == pytest.approx(268.27e6 / 1e12, rel=1e-3)
    assert bound({CEILINGS: TABLE}, ()) < bound({}, ("NVIDIA H200",))  # 134 MB may be cached in part: not measured
    assert bound({CEILINGS: slower}, ("NVIDIA H200",)) == bound({}, ("NVIDIA H200",))  # another one has been faster
    assert math.isnan(bound({}, ("a GPU without a descriptor",)))
    for wrong in ({}, {"streams": []}, TABLE | {"launch": "x"}, TABLE | {"streams": [[1e6, -1.0]]}):
        with pytest.raises(UsageError, match="not the ceilings of a machine"):
            bound({CEILINGS: wrong}, ())


def test_the_rank_with_the_smallest_part_decides() -> None:
    loaded = Loaded(RESULTS / FILES[4])
    best = ranking(loaded.results)[0]
    graph, traversal = loaded.graph(best.configuration), best.traversal
    graph, _ = unroll(graph, parse_traversal(traversal, graph, "file"))
    ceilings = Ceilings.of_table(TABLE, "")
    few, many = ({"n": n, "n_send": n // 100, "n_remote": n // 100} for n in (10**6, 10**8))
    of = {name: op_bounds(graph, ranks, ceilings) for name, ranks in (("few", [few]), ("both", [many, few]))}
    assert of["few"] == of["both"] != op_bounds(graph, [many], ceilings)


def test_ops_of_many_sizes_are_bounded_by_some_of_them(tmp_path: Path) -> None:
    path = tmp_path / "shrinking.dag"
    path.write_text(
        """
program shrinking
setup "none.py" data()
array a : f32[1000000] inout
kernel halve(y: inout f32[n], n: i64) {
  gpu {
    launch grid(ceil(n / 256)) block(256)
    cuda \"\"\"int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] *= 0.5f;\"\"\"
  }
}
dag { for k in 1 .. 101 { step[k] : gpu halve(a[0 .. 1000 * k], 1000 * k) } }
"""
    )
    graph = api.read(path).graph().unrolled
    ceilings = Ceilings.of_table(TABLE, "")
    bounds = op_bounds(graph, [{}], ceilings)
    assert MOST // 2 <= len(bounds) <= MOST
    first, *_, last = bounds
    assert graph.ops[first].name == "step[1]"
    assert bounds[first].footprint.bytes == 2 * 4 * 1000 < bounds[last].footprint.bytes
    rows = program_limits(graph, Space(graph).first(), [{}], ceilings)
    assert [row.name for row in rows] == ["step", WHOLE]
    assert rows[-1].bound >= len(bounds) * 6e-7


def test_the_page_has_a_table_and_data(tmp_path: Path) -> None:
    file, page = RESULTS / FILES[0], tmp_path / "r.html"
    report(file, page)
    text = page.read_text()
    loaded = Loaded(file)
    rows = loaded.limits(ranking(loaded.results)[0])
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert [(one["name"], one["bound"]) for one in data["limits"]] == [
        (row.name, None if row.unknown else row.bound) for row in rows
    ]
    inner = next(one for one in data["limits"] if one["name"] == "inner")
    assert inner["reached"] == pytest.approx(inner["bound"] / inner["measured"])
    assert "The distance to the limit" in text
    assert text.count("one element a thread</td>") == 3


def test_arithmetic_is_a_reason() -> None:
    path = Path(__file__).parents[2] / "samples/polybench/gemm.dag"
    graph = api.read(path).graph().unrolled
    sizes = {"ni": 1000, "nj": 1000, "nk": 1000}
    gemm, *_ = program_limits(graph, Space(graph).first(), [sizes], Ceilings.of_table(TABLE, ""))
    assert gemm.text.startswith("gemm at least ")
    assert re.search(r"\d \d{3} \d{3} \d{3} operations, two an instruction$", gemm.text.replace(si.THIN, " "))
    assert gemm.held == "one element a thread"

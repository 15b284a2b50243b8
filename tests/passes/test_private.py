"""Arrays that iterations in flight may each have for themselves, and why others may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagc.ir.enums import Mode
from dagc.ir.plan import Plan, Target
from dagc.passes.private import private_arrays
from dagc.space import Space
from dagc.stages.artifacts import shared_arrays
from tests.emit.build import SPMV, graph, graph_of

TEXT = """program some
scalar n, left, right : i32
array x : f32[8] inout
array a, b : f32[8]
array above : i32[1] out
array x0 : f32[1] inout
kernel set(y: out f32[*], x: in f32[*]) { gpu { launch grid(1) block(8) cuda \"\"\" y[threadIdx.x] = x[0]; \"\"\" } }
kernel more(y: inout f32[*], x: in f32[*]) { gpu { launch grid(1) block(8) cuda \"\"\" y[threadIdx.x] += x[0];\"\"\" } }
kernel stop(e: out i32[1], x: in f32[*]) { gpu { launch grid(1) block(1) cuda \"\"\" e[0] = x[0] > 0; \"\"\" } }
dag {
  OPS
  last : gpu more(x, a)
  done : gpu stop(above, x)
}
"""
SET, SENT = "one : gpu set(a, x)", "go : mpi exchange { send b to right recv a from left }"

CASES = {  # ops: why `a` is not private, "" if it is
    SET: "",
    f"{SET} two : gpu more(a, x)": "",
    "one : gpu set(a[0 .. 4], x) two : gpu set(a[4 .. 8], x)": "",
    "one : gpu set(a[0 .. 4], x) two : gpu more(a[4 .. 8], x)": "`two` updates `a[4 .. 8]` in the iteration before",
    f"three : gpu set(b, x) {SENT}": "",
    f"three : gpu set(b, x) {SENT} two : gpu more(a, x)": "`two` updates `a` in the iteration before",
    f"three : gpu set(b, x) {SENT} four : gpu more(x, a) {SET}":
        "`four` reads `a`, which `one` may have written in the iteration before",
    f"{SET} if x0 > 0 {{ two : gpu set(a, x) }}": "",
}  # fmt: skip


@pytest.mark.parametrize("ops", CASES)
def test_no_iteration_reads_what_an_earlier_one_has_left(ops: str) -> None:
    found = private_arrays(graph_of(TEXT.replace("OPS", ops), transport="peer"))
    assert found["a"] == CASES[ops]
    assert not {"x", "x0", "above"} & found.keys()


@pytest.mark.parametrize(
    ("ops", "transport", "why"),
    [
        (f"{SET} two : gpu more(x, a)", "peer", ()),
        ("for i in 0..20 { one[i] : gpu set(a, x) }", "peer", ("iterations in flight: each has 22 ops, more than 20",)),
        (f"three : gpu set(b, x) {SENT}", "mpi_host", ("iterations in flight: op `post_recv` runs on the host",)),
    ],
)
def test_why_iterations_do_not_overlap_is_said(ops: str, transport: str, why: tuple[str, ...]) -> None:
    graph = graph_of(TEXT.replace("OPS", ops), transport=transport)
    assert shared_arrays(Plan(graph, next(iter(Space(graph))), Target.HOST)) == why


def test_what_the_language_refuses_is_not_private() -> None:
    """An op that updates in place of writing, and reads that follow no write."""
    made = graph(SPMV, transport="peer")
    assert set(private_arrays(made).values()) == {""}
    for at, touch in enumerate(made.touches):
        if touch.mode is Mode.OUT and touch.region.array != "y":
            touches = (*made.touches[:at], replace(touch, mode=Mode.INOUT), *made.touches[at + 1 :])
            name = made.ops[touch.begin].name
            why = f"`{name}` updates `{touch.region.array}` in the iteration before"
            assert private_arrays(replace(made, touches=touches))[touch.region.array] == why
    assert all(private_arrays(replace(made, completion=())).values())

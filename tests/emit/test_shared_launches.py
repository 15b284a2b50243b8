"""A launch whose setting is chosen when the program runs is emitted once for all ops that have it."""

from __future__ import annotations

import re

import pytest

from dagc.choice.legal import open_sites
from dagc.emit import emit
from dagc.ir.plan import Plan, Target
from dagc.space import Space
from tests.emit.build import graph_of

ROUNDS = """
program rounds
param n : i64 = 64
for p in 0..2 { array u[p] : f32[n] inout }
kernel advance(dst: out f32[m], src: in f32[m], m: i64, by: i64) {
  tune bx in {32, 64}
  tune w in {1, 2}
  gpu {
    launch grid(ceil(m / bx)) block(bx)
    cuda \"\"\"
      __shared__ float s[w];
      long i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < m) dst[i] = src[i] + by;
    \"\"\"
  }
}
dag {
  for t in 0..6 { step[t] : gpu advance(u[(t + 1) %% 2], u[t %% 2], n, %s) }
}
"""


def launches(target: Target, by: str) -> tuple[int, int]:
    """The numbers of functions with a shared launch, and of launches, in the text of an iteration and its ops."""
    graph = graph_of(ROUNDS % by)
    (site,) = open_sites(graph)
    files = emit(Plan(graph, Space(graph).first(), target, open=site.open))
    text = files["iteration.hpp"] + next(files[name] for name in files if name.startswith("runner."))
    return len(re.findall(r"^inline void launch_\d+\(", text, re.M)), len(re.findall(r"DAGC_LAUNCHED\(", text))


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
def test_equal_rounds_share_their_launches(target: Target) -> None:
    """Two values of `w` are two functions; rounds differ in their arrays, which alternate."""
    assert launches(target, "1") == (2, 2 * 2)


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
def test_rounds_that_differ_have_their_own(target: Target) -> None:
    assert launches(target, "t") == (0, 2 * 6 * 2)

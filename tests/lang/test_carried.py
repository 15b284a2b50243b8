"""The warning on a run that does not leave its state where the next one reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.source import Source
from dagc.passes import analysis_of

TEXT = (Path(__file__).parent / "broken/stale-state.dag").read_text(encoding="utf-8")
STEP = "move[t] : gpu move(u[(t + 1) % 2], u[t % 2], 64)"
KEEP = "keep : gpu copy(result, u[steps % 2])"
IN_PLACE = """kernel half(y: inout f32[n], n: i64) {
  gpu { launch grid(1) block(64) cuda \"\"\" y[threadIdx.x] /= 2; \"\"\" }
}
"""
THREE = TEXT.replace("p in 0..2", "p in 0..3").replace("% 2", "% 3")


def warned(text: str, **defines: int) -> list[str]:
    found = analysis_of(Source("t.dag", text), defines).diagnostics
    return [d.message for d in found if d.code == "stale-state"]


COPIED = TEXT.replace(KEEP, f"{KEEP}\n back : gpu copy(u[0], u[steps % 2])")
MADE = TEXT.replace("for t", "first : gpu move(u[0], v, 64)\n for t").replace("array r", "array v : f32[64] in array r")
APART = TEXT.replace("program stale", f"program stale\n{IN_PLACE}").replace(STEP, "h[t] : gpu half(u[t % 2], 64)")
LEVELS = TEXT.replace(STEP, "down[t] : gpu move(u[1], u[0], 64) up[t] : gpu move(u[0], u[1], 64)")


@pytest.mark.parametrize(
    ("text", "stale"),
    [
        (TEXT, {3, 5}),  # not 1, since no run changes u[0] then
        (THREE, {4, 5}),
        (COPIED, set()),
        (MADE, set()),  # in each run
        (APART, set()),  # each array is a state of its own
        (LEVELS, set()),
    ],
    ids=["two", "three", "copied", "made", "apart", "levels"],
)
def test_where_the_next_run_starts(text: str, stale: set[int]) -> None:
    assert {steps for steps in range(1, 7) if warned(text, steps=steps)} == stale


def test_arrays_of_one_step_are_named_together() -> None:
    both = TEXT.replace("array result", "for p in 0..2 { array v[p] : f32[64] inout }\narray result")
    both = both.replace(STEP, f"{STEP}\nother[t] : gpu move(v[(t + 1) % 2], v[t % 2], 64)")
    assert [m.partition(":")[0] for m in warned(both)] == [
        "a run starts from `u[0]` and leaves its state in `u[1]`",
        "a run starts from `v[0]` and leaves its state in `v[1]`",
    ]

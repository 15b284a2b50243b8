"""The comparison with Kernel Tuner: an oracle becomes a cache file that its simulation mode accepts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.tune import kernel_tuner as beside
from dagc.choice.types import Case
from dagc.ir.choice import Choice

BLOCKS = [(x, y) for x in (2**n for n in range(11)) for y in (2**n for n in range(11)) if 32 <= x * y <= 1024]


def case(dimensions: int = 2) -> beside.Case:
    """A kernel whose best block is 16 x 16 (or 128)."""
    case = Case.of({"NI": 512})
    if dimensions == 1:
        times = {Choice((("bx", x),)): 1e-3 * (1 + abs(math.log2(x / 128))) for x in (256, 32, 64, 128, 512, 1024)}
    else:
        times = {
            Choice((("bx", x), ("by", y))): 1e-3 + 1e-4 * (abs(math.log2(x / 16)) + abs(math.log2(y / 16)))
            for x, y in BLOCKS
        }
    return beside.KernelCase("made", "up", case, times)


def tuner() -> None:
    pytest.importorskip("kernel_tuner", reason="kernel_tuner is not installed (pip install kernel-tuner)")


def test_cache_holds_each_block_with_its_time_in_milliseconds() -> None:
    cache = beside.cache_of(case())
    assert len(cache["cache"]) == 51
    assert cache["cache"]["16,16"]["time"] == pytest.approx(1.0)
    assert cache["tune_params_keys"] == ["bx", "by"]
    assert beside.cache_of(case(1))["cache"]["32"]["bx"] == 32


@pytest.mark.parametrize("dimensions", [1, 2])
def test_kernel_tuner_accepts_it_and_finds_the_best_of_all(dimensions: int, tmp_path: Path) -> None:
    tuner()
    made, file = case(dimensions), tmp_path / "cache.json"
    beside.write_cache(made, file)
    tried = beside.search(made, file, "random_sample", len(made.times), 0)
    assert sorted(tried) == sorted(made.times)  # the same legal set
    assert made.regret(tried) == 1


@pytest.mark.parametrize("strategy", ["random_sample", "greedy_ils", "simulated_annealing", "genetic_algorithm"])
def test_strategies_keep_to_the_budget_and_repeat_with_the_seed(strategy: str, tmp_path: Path) -> None:
    tuner()
    made, file = case(), tmp_path / "cache.json"
    beside.write_cache(made, file)
    runs = [beside.search(made, file, strategy, 5, seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert all(0 < len(run) <= 5 and len(set(run)) == len(run) for run in runs)


def test_failures_are_results(tmp_path: Path) -> None:
    tuner()
    made, file = case(1), tmp_path / "cache.json"
    beside.write_cache(made, file)
    alone, _ = beside.run_strategy("no such strategy", [made], [file], 1)
    assert set(alone.failures) == {(1, 0), (3, 0), (5, 0)}  # of six blocks ten cannot be evaluated
    found = beside.figures(alone, [0], 1)
    assert found is not None
    assert "no such strategy" in found.failure or "Strategy" in found.failure


def test_regret_after_none_is_that_of_the_first_choice() -> None:
    made = case()
    order = sorted(made.times, key=lambda s: -made.times[s])
    outcome = beside.ranked("slowest first", [made], {0: order})
    worst = max(made.times.values()) / min(made.times.values())
    assert outcome.regrets[0][0] == outcome.regrets[1][0] == [pytest.approx(worst)]
    assert outcome.regrets[10][0][0] <= outcome.regrets[3][0][0] <= worst


def test_report_is_written(tmp_path: Path) -> None:
    cases = [case(2), case(1)]
    default = beside.ranked("a tuner", cases, {i: list(c.times) for i, c in enumerate(cases)})
    facts = {"kernel_tuner": "1", "seeds": 1, "machine": "none", "read_kernel_s": 0.1, "rank_case_s": 1e-5}
    wall = {"launches_s": 0.01, "nvcc_s": 1.0, "nvrtc_s": 0.1}
    beside.report(tmp_path, cases, [beside.one_block(cases)], [default], [default], facts, wall)
    assert "## 2-D blocks: 1 kernels, 1 (kernel, size), 51 legal blocks" in (tmp_path / "kernel-tuner.md").read_text()
    tables = json.loads((tmp_path / "kernel-tuner.json").read_text())["tables"]
    assert tables["2d"]["dagc"]["one order for all kernels"]["0"]["mean"] == 1
    assert "10" not in tables["1d"]["kernel_tuner"]["a tuner"]

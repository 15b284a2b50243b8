"""A tuned file with variants, in memory: three variants of a product, chosen by two features."""

from __future__ import annotations

import random
from pathlib import Path

from dagc.base.sample import Sample
from dagc.choice.types import Cell
from dagc.cuda.ptx import ASSUMED
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.store.results import ProgramRecord
from dagc.store.tuned import InputFacts, KernelChooser, Tuned, TunedFacts
from dagc.study.train import TrainingTable, train

SETTINGS: tuple[Choice, ...] = tuple(Choice.at("y", [("variant", name)]) for name in ("csr", "vector", "ell"))
NAMES = ("rows", "fill")


def _input(number: int, test: bool, draw: random.Random) -> tuple[InputFacts, dict[int, float]]:
    """The third variant is not allowed where `fill` is large, and fails at one input."""
    rows, fill = float(int(2 ** draw.uniform(4, 20))), draw.uniform(1, 12)
    name = f"{'test' if test else 'train'}/<{number}>.mtx"
    facts = InputFacts({"file": name}, test, features={"y": {"rows": rows, "fill": fill}})
    times = {0: 4e-6 + 3e-9 * rows, 1: 6e-6 + 1e-9 * rows}
    if fill < 10:
        times[2] = 5e-6 + 2e-10 * rows * fill
    return facts, times


def tuned_file(tests: int = 30, method: str = "tree") -> Tuned:
    """50 training inputs and so many test inputs; of the first test input's features `fill` is missing."""
    draw = random.Random(4)
    measured = [_input(i, i >= 50, draw) for i in range(50 + tests)]
    samples = []
    for facts, times in measured:
        for answer, seconds in times.items():
            noisy = tuple(seconds * (1 + 0.01 * draw.random()) for _ in range(7))
            samples.append((Cell("y", facts.case, SETTINGS[answer]), Sample.of(noisy)))
    rows = [tuple(facts.features["y"][n] for n in NAMES) for facts, _ in measured[:50]]
    known = TrainingTable.of(NAMES, rows, [times for _, times in measured[:50]], 0.02).merged
    selector = train(method, known, default=0)
    inputs = [facts for facts, _ in measured]
    if tests:
        inputs[50] = InputFacts(inputs[50].params, True, features={"y": {"rows": 64.0}})
    samples[0] = samples[0][0], Sample(failure="wrong: element 3 is 8, expected 3")
    chooser = KernelChooser(method, load_hardware("h200"), ASSUMED, {}, SETTINGS, NAMES, (), selector)
    return Tuned(
        Path("spmv-tuned.db"), ProgramRecord("spmv</script>", "spmv.dag", "0" * 16, (), ()), (), tuple(samples),
        (0,) * len(samples), {}, TunedFacts("cuda", "sm_90", "NVIDIA H200", inputs=tuple(inputs)), {"y": chooser},
    )  # fmt: skip

"""Choosers with a learned selector: what was measured, what was learned, what can be launched; Python against C."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.choice.choose import Chooser, emitted, unit_chooser
from dagc.choice.learners.tree import Tree
from dagc.choice.legal import legal_settings, units
from dagc.choice.methods import LEARNED, fit
from dagc.choice.types import Settings
from dagc.perf.hardware import load_hardware
from tests.tune.oracle import ROOT

SAMPLES = ROOT / "samples" / "polybench"
SIZES = [{"ni": ni, "nj": nj} for ni in (64, 1000, 60_000) for nj in (64, 500, 8192)]


def chooser(program: str, method: str, settings: list[Settings] | None = None) -> Chooser:
    """Trained on labels that the sizes give; two sizes were measured besides."""
    graph = api.load_graph(SAMPLES / f"{program}.dag")
    unit = units(graph)[0]
    legal = settings or list(legal_settings(graph, unit, {"max_threads_per_block": 1024}))
    labels = [(s["nj"] > 100) + (s["ni"] > 500) for s in SIZES]
    selector = fit(method, ["nj", "ni"], [[s["nj"], s["ni"]] for s in SIZES], labels)
    anchors = [({"ni": 300, "nj": 77}, legal[-1]), ({"ni": 4000, "nj": 100}, legal[1])]
    return unit_chooser(
        graph, unit, legal, load_hardware("h200"), anchors=anchors, method="measured", selector=selector
    )  # fmt: skip


def test_what_was_measured_is_believed_and_else_the_selector_is_asked() -> None:
    made = chooser("syrk", "tree")
    assert isinstance(made.selector, Tree)
    assert made.choose({"ni": 300, "nj": 77}) == len(made.settings) - 1
    for sizes in SIZES:
        assert made.choose(sizes) == made.selector.choose([sizes["nj"], sizes["ni"]])
    assert made.why(SIZES[0], 0) == made.selector.text
    assert made.data == ("ni", "nj")


def test_a_choice_that_cannot_be_launched_is_not_taken() -> None:
    """A block of one row would need more rows of blocks than CUDA has."""
    settings: list[Settings] = [(("bx", 256), ("by", 1)), (("bx", 128), ("by", 1)), (("bx", 32), ("by", 8))]
    made = chooser("2dconv", "tree", settings)
    assert made.selector is not None
    assert made.selector.choose([64, 70_000]) in (0, 1)
    assert made.choose({"ni": 70_000, "nj": 64}) == 2
    assert made.choose({"ni": 60_000, "nj": 64}) in (0, 1)


@pytest.mark.parametrize("method", LEARNED)
def test_c_chooses_as_python_does(method: str, tmp_path: Path) -> None:
    narrow: list[Settings] = [(("bx", 256), ("by", 1)), (("bx", 128), ("by", 1)), (("bx", 32), ("by", 8))]
    found = [chooser("syrk", method), chooser("2dconv", method, narrow)]
    text = emitted(found).source
    for made in found:
        text += f"int ask_{made.op}(const double* x) {{ return {made.site.function}(x).answer; }}\n"
    source, library = tmp_path / "choose.c", tmp_path / "choose.so"
    source.write_text(text)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    draw = random.Random(11)
    points = [{"ni": draw.randint(1, 90_000), "nj": int(2 ** draw.uniform(0, 17))} for _ in range(60)]
    for made in found:
        for here in (*SIZES, {"ni": 300, "nj": 77}, {"ni": 4000, "nj": 100}, *points, points[-1]):
            answer = getattr(loaded, f"ask_{made.op}")((ctypes.c_double * 2)(*(here[n] for n in made.data)))
            assert answer == made.choose(here), (made.op, here)

"""Choosers by a model: against the oracle of an H200, and against the rule."""

from __future__ import annotations

import ctypes
import math
import random
import statistics
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.choice.choose import Chooser, emitted
from dagc.choice.legal import legal_settings, op_of, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from tests.study.oracle import ROOT, oracle, scalars
from tests.tiers import representatives

SAMPLES = ROOT / "samples" / "polybench"
PROGRAMS = sorted(path.stem for path in SAMPLES.glob("*.dag"))
H200 = load_hardware("h200")
LIMITS = {"max_threads_per_block": 1024}


def path_of(program: str) -> Path:
    """Of PolyBench, or FAMILY/NAME of the corpus."""
    return (ROOT / "benchmarks" / "corpus" if "/" in program else SAMPLES) / f"{program}.dag"


def choosers(program: str) -> list[Chooser]:
    graph = api.load_graph(path_of(program))
    return [site_chooser(graph, u, legal_settings(graph, u, LIMITS), H200) for u in open_sites(graph)]


def regrets(program: str) -> list[tuple[int, float, float]]:
    """(block dimensions, t_chosen / t_best, t_default / t_best) of every kernel and size."""
    out = []
    for chooser in choosers(program):
        for point, times in oracle()[program, chooser.op].items():
            best = min(times.values())
            chosen = chooser.choices[chooser.choose(scalars(point))]
            out.append((len(chosen), times[chosen] / best, times[chooser.choices[0]] / best))
    return out


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def test_the_oracle_has_all_kernels() -> None:
    assert len(PROGRAMS) == 15
    assert len(oracle()) == 30
    assert {program for program, _ in oracle()} == set(PROGRAMS)
    assert all(len(points) >= 5 for points in oracle().values())


@pytest.mark.thorough
def test_the_model_is_better_than_the_default_blocks() -> None:
    """The figures that docs/how-to/launch-settings.md gives, a little slack added."""
    found = [entry for program in PROGRAMS for entry in regrets(program)]
    two = [(chosen, default) for dimensions, chosen, default in found if dimensions == 2]
    one = [(chosen, default) for dimensions, chosen, default in found if dimensions == 1]
    assert geometric_mean([c for c, _ in two]) < 1.03 < 1.12 < geometric_mean([d for _, d in two])
    assert geometric_mean([c for c, _ in one]) < 1.015 < 1.19 < geometric_mean([d for _, d in one])
    assert max(c for c, _ in two) < 1.2


def test_a_measured_best_is_kept_unless_the_model_gains() -> None:
    graph = api.load_graph(SAMPLES / "gemm.dag")
    site = open_sites(graph)[0]
    choices = legal_settings(graph, site, LIMITS)
    here, there = {"ni": 1024, "nj": 1024, "nk": 1024}, {"ni": 1100, "nj": 1000, "nk": 1024}
    close = Choice.at(site.name, [("bx", 32), ("by", 8)])
    far = Choice.at(site.name, [("bx", 1), ("by", 1024)])
    kept = site_chooser(graph, site, choices, H200, anchors=[(here, close)])
    assert kept.choices[kept.choose(here)] == kept.choices[kept.choose(there)] == close
    absurd = site_chooser(graph, site, choices, H200, anchors=[(here, far)])
    assert absurd.choices[absurd.choose(here)] == far, "what was measured at this very size is believed"
    assert absurd.choices[absurd.choose(there)] != far
    measured_only = site_chooser(graph, site, choices, H200, anchors=[(here, far)], model=ModelInputs("measured"))
    assert measured_only.choices[measured_only.choose(there)] == far


def test_a_measured_size_without_a_feature_is_skipped() -> None:
    """The model, the check for settings that cannot be launched, and the other sizes stay."""
    graph = api.load_graph(SAMPLES / "2dconv.dag")
    site = open_sites(graph)[0]
    flat = Choice.at(site.name, [("bx", 256), ("by", 1)])
    choices = [Choice.at(site.name, [("bx", 32), ("by", 8)]), flat]
    anchors = [({"ni": 64, "nj": 64}, flat), ({"ni": 64}, choices[0])]
    chooser = site_chooser(graph, site, choices, H200, anchors=anchors)
    assert chooser.model is not None
    assert [a.chosen for a in chooser.anchors] == [1]
    assert chooser.choices[chooser.choose({"ni": 70_000, "nj": 64})] != flat
    assert "1 measured size skipped: not known there: nj" in chooser.note


def test_settings_that_cannot_be_launched_are_not_chosen() -> None:
    """65536 rows of blocks are too many along y: a block of one row cannot be launched there."""
    graph = api.load_graph(SAMPLES / "2dconv.dag")
    site = open_sites(graph)[0]
    flat = Choice.at(site.name, [("bx", 256), ("by", 1)])
    chooser = site_chooser(graph, site, [Choice.at(site.name, [("bx", 32), ("by", 8)]), flat], H200, anchors=[])
    sizes = {"ni": 70_000, "nj": 64}
    assert chooser.times(sizes)[1] == math.inf
    assert chooser.choices[chooser.choose(sizes)] != flat
    there = {"ni": 64, "nj": 64}
    measured = site_chooser(graph, site, chooser.choices, H200, anchors=[(there, flat)], model=ModelInputs("measured"))
    assert measured.model is None
    assert measured.choices[measured.choose(there)] == flat
    assert measured.choices[measured.choose(sizes)] != flat


def test_a_require_on_sizes_and_the_block_is_kept_by_the_chooser(tmp_path: Path) -> None:
    """At 200 it would choose blocks of several rows without it."""
    text = (SAMPLES / "syrk.dag").read_text(encoding="utf-8")
    line = "  require 32 <= bx * by && bx * by <= 1024\n"
    assert line in text
    (tmp_path / "syrk.py").write_text((SAMPLES / "syrk.py").read_text(encoding="utf-8"))
    rows = {}
    for name, more in (("free", ""), ("bound", "  require ni > 100 * by && hw.max_threads_per_block > 0\n")):
        dag = tmp_path / f"{name}.dag"
        dag.write_text(text.replace(line, line + more))
        graph = api.load_graph(dag)
        (site,) = open_sites(graph)
        chooser = site_chooser(graph, site, legal_settings(graph, site, LIMITS), H200)
        rows[name] = chooser.choices[chooser.choose({"ni": 200, "nj": 200})].own["by"]
        legal = [s.own["by"] for s in (chooser.choices[i] for i in chooser.ranked({"ni": 200, "nj": 200}))]
        assert max(legal) == (1 if more else 1024)
    assert rows["free"] > rows["bound"] == 1


WRAPPER = "int ask_{op}(const double* x) {{ return {function}(x).answer; }}\n"
TIMES = "void times_{op}(const double* x, double* out) {{ dagc_times_{op}(x, out); }}\n"


@pytest.mark.parametrize(
    "program",
    representatives(
        ["gemm", "syr2k", "fdtd-2d", "corr", "gramschm", "3dconv", "stencil2d/rows_per_thread"],
        "gemm", "fdtd-2d", "3dconv", "stencil2d/rows_per_thread",
    ),
)  # fmt: skip
def test_the_fastest_by_the_model_is_chosen(program: str, tmp_path: Path) -> None:
    found = choosers(program)
    graph = api.load_graph(path_of(program))
    first = found[0]
    near = dict.fromkeys(first.data, 300)
    anchored = site_chooser(
        graph,
        open_sites(graph)[0],
        first.choices,
        H200,
        anchors=[(near, first.choices[3]), ({**near, first.data[0]: 4000}, first.choices[1])],
    )
    check_in_c([anchored, *found[1:]], tmp_path)


def test_a_chooser_asks_for_values_whose_names_c_does_not_have(tmp_path: Path) -> None:
    text = (ROOT / "samples/grid2d/grid2d.dag").read_text(encoding="utf-8")
    text = text.replace("array a     :", "for s in 0..2 { scalar m[s] : i64 }\narray a     :")
    (tmp_path / "grid2d.dag").write_text(text.replace("b_k[k % 2], n, n, w)", "b_k[k % 2], row.ranks * m[1], n, w)"))
    graph = api.load_graph(tmp_path / "grid2d.dag")
    (site,) = open_sites(graph)
    chooser = site_chooser(graph, site, legal_settings(graph, site, LIMITS), H200)
    assert {"row.ranks", "m[1]"} <= set(chooser.data)
    check_in_c([chooser], tmp_path)


def by_rule(c: Chooser, here: dict[str, int]) -> int:
    """The best of this very size, else that of the nearest measured one, unless the model gains 5 % on it."""
    at, times = tuple(here[n] for n in c.data), c.times(here)
    best = times.index(min(times))
    pairs = [list(zip(p.data, at, strict=True)) for p in c.anchors]
    apart = [math.prod(max(p) / min(p) if min(p) > 0 else 1 + max(p) - min(p) for p in of) for of in pairs]
    if not apart:
        return best
    near = c.anchors[apart.index(min(apart))]
    return near.chosen if near.data == at or times[near.chosen] <= 1.05 * times[best] else best


def check_in_c(found: list[Chooser], tmp_path: Path) -> None:
    """Times as NumPy computes them and answers by the rule, at sizes that are drawn."""
    text = emitted(found).source
    for c in found:
        text += WRAPPER.format(op=c.op, function=c.site.function) + TIMES.format(op=c.op)
    source, library = tmp_path / "choose.c", tmp_path / "choose.so"
    source.write_text(text)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O3", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    draw = random.Random(7)
    for c in found:
        sizes = [{n: draw.choice([draw.randint(1, 5000), 2 ** draw.randint(4, 13)]) for n in c.data} for _ in range(25)]
        # Zero, rows of blocks that are too many, and sizes beyond those for which doubles are known to be exact.
        sizes += [{**sizes[0], c.data[0]: odd} for odd in (0, 70_000, 3_000_000_000)] if c.data else []
        for here in (*sizes, sizes[-1]):  # the last twice: answered from memory
            data = (ctypes.c_double * max(1, len(c.data)))(*(here[n] for n in c.data))
            times = (ctypes.c_double * (len(c.choices) + 3))()
            getattr(loaded, f"times_{c.op}")(data, times)
            assert list(times)[: len(c.choices)] == c.times(here), (c.op, here)
            assert getattr(loaded, f"ask_{c.op}")(data) == by_rule(c, here), (c.op, here)


def test_shared_memory_limits_the_blocks_of_a_multiprocessor() -> None:
    """48 KiB a block: four of an H200's 228 KiB, as CUDA's occupancy calculator says, however small the block is."""
    from dagc.cuda.ptx import Resources
    from dagc.perf.evaluate import evaluate_all
    from dagc.perf.volume import calibration_of, volume_program

    graph = api.load_graph(ROOT / "samples" / "polybench" / "gemm.dag")
    (site,) = open_sites(graph, ["gemm"])
    values = H200.parameters() | calibration_of(H200)
    values |= {"ni": 512, "nj": 512, "nk": 512, "blockDim_x": 32, "blockDim_y": 2, "registers": 32, "log2_threads": 6.0}
    taken = [Resources(shared=shared) for shared in (0, 1024, 48 << 10)]
    programs = [volume_program(graph.program, op_of(graph, site), resources=one) for one in taken]
    resident = [int(evaluate_all(program, values)["resident"]) for program in programs]
    assert resident == [32, 32, 4]

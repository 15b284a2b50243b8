"""From recorded counters to a ranking, as `dagc tune --method rational` goes; only the profiler is absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tune.counters_csv import read_counters
from dagc import api
from dagc.choice.legal import legal_settings, op_of, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.choice.types import Case
from dagc.cli.main import main
from dagc.perf.fit import d_optimal
from dagc.perf.hardware import load_hardware
from dagc.perf.mwp_cwp import fit_counts
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.gpu import Points, drawn, outside, points_of, settings_to_count, sizes_to_count
from dagc.study.prepare import AtCase, Prepared
from dagc.study.task import tuning_task
from dagc.study.tuned import choosers_of
from tests.study.oracle import ROOT
from tests.study.programs import change_chooser, stored_chooser

SYRK = ROOT / "samples" / "polybench" / "syrk.dag"
COUNTERS = ROOT / "benchmarks" / "results" / "2026-11-21-h200-tune" / "counters.csv.xz"


def test_sample_sizes_lie_in_the_ranges_and_are_not_all_powers_of_two() -> None:
    asked = (Case.of({"NI": 256, "NJ": 8192}), Case.of({"NI": 2048, "NJ": 64}))
    found = sizes_to_count(asked, seed=0, n=9)
    assert len(set(found)) == 9
    for case in found:
        sizes = dict(case.params)
        assert 256 <= sizes["NI"] <= 2048
        assert 64 <= sizes["NJ"] <= 8192
        assert sizes["NI"] * sizes["NJ"] <= 256 * 8192
    assert sum(v & (v - 1) == 0 for p in found for _, v in p.params) < 9


def test_one_size_is_varied() -> None:
    found = sizes_to_count((Case.of({"N": 100}),), seed=1, n=5)
    assert len(found) == 5
    assert all(50 <= dict(p.params)["N"] <= 200 for p in found)


def test_settings_have_every_number_of_lanes() -> None:
    import random

    graph = api.load_graph(SYRK)
    (site,) = open_sites(graph)
    legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
    drawn = settings_to_count(site, legal, random.Random(0), 8)
    assert len(set(drawn)) == 8
    assert set(drawn) <= set(legal)
    assert {min(32, s.own["bx"]) for s in drawn} == {1, 2, 4, 8, 16, 32}


def test_the_plan_counts_the_named_ops_only() -> None:
    made = tuning_task(api.read(ROOT / "samples" / "polybench" / "2mm.dag"), sizes="NI=NJ=NK=NL=64,128", target="host")
    wanted = drawn(made, ("d",), 3, 4).cells
    assert [cell.site for cell in wanted] == ["d"] * 3 * 4
    assert len(set(wanted)) == len(wanted)


@pytest.mark.thorough
def test_a_ranking_from_counters_avoids_the_wide_blocks_of_syrk() -> None:
    """SYRK reads a column of A with its lanes along x: on an H200 32 x 8 takes twice as long as blocks of 8 columns."""
    graph = api.load_graph(SYRK)
    (site,) = open_sites(graph)
    fits = fit_counts(graph.program, op_of(graph, site), read_counters(COUNTERS)["syrk", "syrk"])
    legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
    chooser = site_chooser(graph, site, legal, load_hardware("h200"), ModelInputs("rational", fits=fits))
    times = chooser.times({"ni": 1024, "nj": 1024})
    default = times[0]
    narrow = min(t for t, s in zip(times, chooser.choices, strict=True) if s.own["bx"] == 8)
    assert chooser.choices[0] == site.default
    assert narrow < default
    assert chooser.why({"ni": 1024, "nj": 1024}, 0) in ("memory", "memory bandwidth", "latency")


def test_fitted_functions_are_kept_in_the_tuned_file_and_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU the counts are the text's; the file takes fitted ones all the same, and shows them."""
    from dagc.store.records import Records
    from dagc.store.tuned import load_tuned

    tuned = tmp_path / "tuned.db"
    done = tune(
        SYRK, tuned, TuneOptions(method="rational", sizes="NI=NJ=300", forms="off", target="cuda", arch="sm_90", top=0)
    )
    assert any("counts are read from the kernel's text" in note for note in done.notes)
    kept = load_tuned(tuned)
    assert kept.kernel_choosers["syrk"].method == "rational"
    assert kept.kernel_choosers["syrk"].fits == {}
    assert kept.kernel_choosers["syrk"].hardware.arch == "sm_90"
    graph = api.load_graph(SYRK)
    (site,) = open_sites(graph)
    fits = fit_counts(graph.program, op_of(graph, site), read_counters(COUNTERS)["syrk", "syrk"])
    with Records.open(tuned, kept.program, kept.runs[0], resume=True, tuning=True) as records:
        found = {name: f.to_json() for name, f in fits.items()}
        records.set_chooser("syrk", {**stored_chooser(tuned, "syrk"), "fits": found})
    (chooser,) = choosers_of(graph, load_tuned(tuned))
    legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
    hardware = load_hardware("h200")
    fresh = site_chooser(graph, site, legal, hardware, ModelInputs("rational", fits=fits))
    assert chooser.times({"ni": 700, "nj": 900}) == fresh.times({"ni": 700, "nj": 900})
    change_chooser(tuned, "syrk", points=[["ni", 128, 4096], ["nj", 64, 512.5]])
    (chooser,) = choosers_of(graph, load_tuned(tuned))
    assert chooser.extent.ranges == (("ni", 128, 4096), ("nj", 64, 512.5)), "of all points, whatever the functions use"
    for format, named in (
        ("text", "fit_requests"),
        ("latex", r"fit\_requests"),
        ("dot", "fit_requests"),
        ("svg", "<svg"),
    ):
        assert main(["tune", str(SYRK), "--show", "syrk", "-o", str(tuned), "--format", format]) == 0
        text = capsys.readouterr().out
        assert named in text, format
        if format != "latex":
            assert f"error at {fits['requests'].held_out.points} held-out points: median" in text
            assert "MWP" in text.upper()
    assert main(["tune", str(SYRK), "--show", "syrk", "-o", str(tuned), "--method", "volume"]) == 2
    assert "has a method of its own" in capsys.readouterr().err


def test_a_damaged_function_is_an_error_of_the_file(tmp_path: Path) -> None:
    from dagc.base.errors import UsageError
    from dagc.store.records import Records
    from dagc.store.tuned import load_tuned

    tuned = tmp_path / "tuned.db"
    tune(SYRK, tuned, TuneOptions(method="rational", sizes="NI=NJ=300", target="cuda", arch="sm_90", top=0))
    kept = load_tuned(tuned)
    with Records.open(tuned, kept.program, kept.runs[0], resume=True, tuning=True) as records:
        records.set_chooser("syrk", {**stored_chooser(tuned, "syrk"), "fits": {"requests": {"names": ["ni"]}}})
    with pytest.raises(UsageError, match="the chooser of `syrk` is damaged"):
        choosers_of(api.load_graph(SYRK), load_tuned(tuned))


def test_a_file_of_another_gpu_of_the_same_architecture_is_refused(
    tmp_path: Path, gpus_here: Callable[..., None]
) -> None:
    from dagc.base.errors import UsageError
    from dagc.build.toolchain import GPU

    tuned = tmp_path / "tuned.db"
    tune(SYRK, tuned, TuneOptions(sizes="NI=NJ=300", forms="off", target="cuda", arch="sm_90", gpu="h200", top=0))
    graph = api.load_graph(SYRK)
    for name, refused in (("NVIDIA H200", False), ("NVIDIA H100 PCIe", True)):
        gpus_here(GPU(name, "9.0", 1 << 30, "580"))
        if refused:
            with pytest.raises(UsageError, match="tuned for NVIDIA H200, this machine has NVIDIA H100 PCIe"):
                choosers_of(graph, load_tuned(tuned), "sm_90")
            assert choosers_of(graph, load_tuned(tuned), "sm_90", other_machine=True)
        else:
            assert choosers_of(graph, load_tuned(tuned), "sm_90")
    with pytest.raises(UsageError, match="tuned for sm_90, this is compiled for sm_80"):
        choosers_of(graph, load_tuned(tuned), "sm_80")


def test_points_that_the_user_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes as for --sizes, with values of tunables; without these, settings are drawn."""
    made = tuning_task(api.read(SYRK), sizes="NI=NJ=256,2048", target="cuda")
    listed = points_of(made, ("syrk",), "NI=NJ=300,700 bx=8,32; NI=64 NJ=4096")
    at = {
        case.text: [c.choice.own["bx"] for c in listed.cells if c.case == case]
        for case in {c.case for c in listed.cells}
    }
    assert set(at) == {"NI=300 NJ=300", "NI=700 NJ=700", "NI=64 NJ=4096"}
    assert set(at["NI=300 NJ=300"]) == {8, 32}
    assert len(at["NI=64 NJ=4096"]) == 8
    assert listed.text.endswith("of syrk at 3 sizes (NI 64 to 700, NJ 300 to 4096), as listed by --points")
    command = ["tune", str(SYRK), "--method", "rational", "--sizes", "NI=NJ=256", "--target", "cuda", "--top", "0"]
    command += ["-o", str(tmp_path / "t.db")]
    wrong = {
        "NI=300 bx=7": "no legal setting with bx=7",
        "NI=8 bx=8 by=8": "too few for a fit",
        "NK=3": "no integer parameter",
    }
    for points, message in wrong.items():
        assert main([*command, "--points", points]) == 2
        assert message in capsys.readouterr().err, points
    assert main([*command[:2], "--points", "optimal"]) == 2
    assert "--points belongs to --method rational" in capsys.readouterr().err


def test_an_optimal_design_determines_more() -> None:
    """Its information about quadratic functions is a multiple of that of the points that are drawn."""
    made = tuning_task(api.read(SYRK), sizes="NI=256 NJ=8192; NI=2048 NJ=64", target="cuda", forms="off")

    def information(points: Points) -> float:
        rows = np.array([
            [1, *at] for at in (
                np.log2([*cell.case.sizes.values(), *cell.choice.own.values()]) for cell in points.cells
            )
        ])  # fmt: skip
        whole = np.hstack([rows, *(rows[:, [i]] * rows[:, i:] for i in range(1, rows.shape[1]))])
        return float(np.linalg.slogdet(whole.T @ whole)[1])

    best, others = points_of(made, ("syrk",), "optimal"), points_of(made, ("syrk",))
    assert len(best.cells) == len(others.cells) == len(set(best.cells)) == 72
    assert information(best) > information(others) + 3
    assert "D-optimal" in best.text
    assert "by a Latin hypercube" in others.text
    sizes = [case.sizes for case in {cell.case for cell in best.cells}]
    assert {"NI": 256, "NJ": 64} in sizes, "a corner of the ranges"
    assert all(s["NI"] * s["NJ"] <= 256 * 8192 for s in sizes)


def test_a_design_of_one_parameter_is_at_its_ends_and_its_middle() -> None:
    points = np.linspace(-1, 1, 21)[:, None]
    assert d_optimal(points, 3) == [0, 10, 20]
    assert d_optimal(points, 2, degree=1) == [0, 20]


def test_fitted_functions_say_where_they_hold() -> None:
    """The ranges of the points are those of the chooser, which the emitted program compares its sizes with."""
    graph = api.load_graph(SYRK)
    (site,) = open_sites(graph)
    launches = read_counters(COUNTERS)["syrk", "syrk"]
    fits = fit_counts(graph.program, op_of(graph, site), launches)
    legal = legal_settings(graph, site, {"max_threads_per_block": 1024})
    hardware = load_hardware("h200")
    chooser = site_chooser(graph, site, legal, hardware, ModelInputs("rational", fits=fits))
    counted = {n: [at.scalars[n] for at in launches] for n in ("ni", "nj")}
    for name, low, high in chooser.extent.ranges:
        assert min(counted[name]) <= low < high <= max(counted[name])
    assert chooser.extent.ranges
    ready = Prepared(tuning_task(api.read(SYRK), sizes="NI=NJ=700;NI=NJ=90000", target="cuda"), Path(), {})
    at = {c: AtCase(c, Path(), {"ni": c.sizes["NI"], "nj": c.sizes["NJ"]}, 1, {}) for c in ready.task.cases}
    (note,) = outside(replace(ready, at=at), "syrk", chooser.extent.ranges)
    assert "where its error is not known: NI=90000 NJ=90000" in note

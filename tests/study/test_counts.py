"""From recorded counters to a ranking, as `dagc tune --method rational` goes; only the profiler is absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.tune.counters_csv import read_counters
from dagc import api
from dagc.choice.legal import legal_settings, op_of, open_sites
from dagc.choice.models import ModelInputs, site_chooser
from dagc.choice.types import Case
from dagc.cli.main import main
from dagc.perf.counted import fit_counts
from dagc.perf.hardware import load_hardware
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.gpu import sample_plan, settings_to_count, sizes_to_count
from dagc.study.task import tuning_task
from dagc.study.tuned import choosers_of
from tests.study.oracle import ROOT
from tests.study.programs import stored_chooser

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
    _, wanted = sample_plan(made, ("d",), 3, 4)
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
    narrow = min(t for t, s in zip(times, chooser.settings, strict=True) if s.own["bx"] == 8)
    assert chooser.settings[0] == site.default
    assert narrow < default
    assert chooser.why({"ni": 1024, "nj": 1024}, 0) in ("memory", "memory bandwidth", "latency")


def test_fitted_functions_are_kept_in_the_tuned_file_and_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU the counts are the text's; the file takes fitted ones all the same, and shows them."""
    from dagc.store.records import Records
    from dagc.store.tuned import load_tuned

    tuned = tmp_path / "tuned.db"
    done = tune(SYRK, tuned, TuneOptions(method="rational", sizes="NI=NJ=300", target="cuda", arch="sm_90", top=0))
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
    tune(SYRK, tuned, TuneOptions(sizes="NI=NJ=300", target="cuda", arch="sm_90", gpu="h200", top=0))
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

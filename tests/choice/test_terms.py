"""The terms of the launch model as a table: equal columns for all kernels, NaN for what is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.models import site_chooser
from dagc.choice.residual import TERMS, LaunchTerms, launch_terms, responses
from dagc.cuda.ptx import Resources
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import TERMS as OF_TIME
from dagc.perf.volume import calibration_of
from tests.tiers import representatives

CORPUS = Path(__file__).parents[2] / "benchmarks" / "corpus"
H200 = load_hardware("h200")
LIMITS = {"max_threads_per_block": 1024}


def terms_of(path: Path, op: str, **options) -> LaunchTerms:
    graph = api.load_graph(path)
    (site,) = open_sites(graph, [op])
    return launch_terms(graph, site, legal_settings(graph, site, LIMITS), H200, **options)


def column(terms: LaunchTerms, table: np.ndarray, name: str) -> dict[tuple[int, ...], float]:
    """By the values of the setting."""
    places = (tuple(s.values()) for s in terms.choices)
    return dict(zip(places, table[:, TERMS.index(name)].tolist(), strict=True))


def test_the_time_is_that_of_the_chooser_and_the_rest_describes_it() -> None:
    path, sizes = CORPUS / "stream" / "add.dag", {"ni": 1024, "nj": 1024}
    terms = terms_of(path, "add")
    table = terms.at(sizes)
    assert table.shape == (len(terms.choices), len(TERMS))
    assert np.isfinite(table).all()
    graph = api.load_graph(path)
    (site,) = open_sites(graph)
    chooser = site_chooser(graph, site, terms.choices, H200)
    assert table[:, 0] * H200.clock == pytest.approx(chooser.times(sizes))
    assert column(terms, table, "log2_blocks")[32, 8] == 12
    assert column(terms, table, "load_sectors")[32, 8] == 4
    assert column(terms, table, "load_sectors")[1, 32] == 32
    assert column(terms, table, "active_lanes")[32, 8] == 1
    assert set(table[:, TERMS.index("tunable_1")]) == {0}


def test_tunables_that_are_no_block_dimension_are_columns_and_do_not_tie() -> None:
    terms = terms_of(CORPUS / "reduce" / "dot.dag", "dot")
    table = terms.at({"n": 1 << 22})
    of_block = {t for (bx, _, _), t in column(terms, table, "seconds").items() if bx == 256}
    assert len(of_block) > 6
    assert column(terms, table, "tunable_1")[256, 264, 2] == pytest.approx(np.log2(265))
    assert column(terms, table, "tunable_2")[256, 264, 2] == pytest.approx(np.log2(3))


def test_code_that_differs_between_settings() -> None:
    path = CORPUS / "dense" / "gemm_registers.dag"
    count = len(terms_of(path, "gemm_registers").choices)
    taken = [Resources(registers=32 + i % 7 * 32, spills=i % 2 * 8) for i in range(count)]
    table = terms_of(path, "gemm_registers", resources=taken).at({"ni": 512, "nj": 512, "nk": 512})
    registers, spills = (table[:, TERMS.index(n)].tolist() for n in ("registers", "spills"))
    assert (registers, spills) == ([t.registers for t in taken], [t.spills for t in taken])
    full, half = (table[registers.index(r)] for r in (32, 224))
    assert full[TERMS.index("resident")] > half[TERMS.index("resident")]


def test_a_kernel_that_cannot_be_read_has_its_launch_and_its_code(tmp_path: Path) -> None:
    text = (CORPUS / "stream" / "add.dag").read_text(encoding="utf-8").replace("int j =", 'asm("exit;"); int j =')
    (tmp_path / "stream.py").write_text((CORPUS / "stream" / "stream.py").read_text(encoding="utf-8"))
    (tmp_path / "asm.dag").write_text(text)
    terms = terms_of(tmp_path / "asm.dag", "add", resources=replace(Resources(), registers=40))
    table = terms.at({"ni": 1024, "nj": 1024})
    assert terms.note.startswith("no model: ")
    known = {name for name, values in zip(TERMS, table.T, strict=True) if np.isfinite(values).all()}
    assert {"log2_bx", "log2_by", "log2_threads", "log2_blocks", "registers", "spills", "shared"} <= known
    assert np.isnan(table[:, 0]).all()


def test_a_setting_that_cannot_be_launched_takes_for_ever() -> None:
    terms = terms_of(CORPUS / "stream" / "add.dag", "add")
    assert set(terms.at({"ni": 0, "nj": 64})[:, 0]) == {np.inf}


def test_responses_are_those_of_the_model() -> None:
    """A term whose constants are 1.5 times as large changes the time as the responses say."""
    path, sizes, usual = CORPUS / "permute" / "transpose_write.dag", {"ni": 700, "nj": 800}, calibration_of(H200)
    table = terms_of(path, "transpose_write").at(sizes)
    answers = responses(table)
    of = {"latency": ("c_wait", "c_miss", "c_serial"), "l2": ("c_write",), "starts": ("c_start",)}
    for name, constants in of.items():
        larger = {n: 1.5 * usual[n] for n in constants}
        slower = terms_of(path, "transpose_write", calibration=larger).at(sizes)
        found = np.log(slower[:, 0] / table[:, 0]) / np.log(1.5)
        assert np.allclose(found, answers[:, OF_TIME.index(name)], atol=1e-6), name
        assert found.max() > 0.01, name
    assert not responses(np.full((2, len(TERMS)), np.nan)).any(), "no model, no response"


def test_what_no_cache_keeps_is_read_from_memory_again() -> None:
    """Two loops over a row: eight rows of 4096 floats a block are 128 KiB, more than the caches have for all blocks."""
    terms = terms_of(CORPUS / "rows" / "rms_norm.dag", "rms_norm")
    large, small = (column(terms, terms.at({"ni": n, "nj": n}), "hbm_s") for n in (4096, 512))
    assert large[64, 8] == pytest.approx(1.5 * large[512, 1], rel=0.2)
    assert small[64, 8] == pytest.approx(small[512, 1], rel=0.01)


def test_a_tunable_that_is_no_dimension_settles_branches() -> None:
    """A vector of `vec` floats is loaded by one of three branches. Only one by one is it what the second loop loads."""
    terms = terms_of(CORPUS / "reduce" / "layer_norm.dag", "layer_norm")
    misses = column(terms, terms.at({"ni": 8192, "nj": 768}), "misses_s")
    assert misses[128, 1] == pytest.approx(misses[128, 4] / 2, rel=0.01)


NAMES = ("bx", "by", "form.wide", "form.coarsen")


@pytest.mark.parametrize(
    ("path", "term"),
    representatives(
        [("gather/gather_indexed", "loads_s"), ("varying/seven_bands_f64", "hbm_s")],
        ("gather/gather_indexed", "loads_s"),
    ),
)
def test_forms_load_as_many_elements_as_the_kernel_as_written(path: str, term: str) -> None:
    """At loaded places, for all lanes of a vector; of each band of an array, whatever blocks are joined."""
    graph = replace(api.read(CORPUS / f"{path}.dag"), forms=True).graph()
    (site,) = open_sites(graph)
    ways = [(1, 1), (1, 4), (4, 2)]
    choices = [Choice.at(site.name, zip(NAMES, (32, 8, *way), strict=True)) for way in ways]
    written, *formed = launch_terms(graph, site, choices, H200).at(dict.fromkeys(("ni", "nj", "nk"), 512))
    assert all(one[TERMS.index(term)] > 0.7 * written[TERMS.index(term)] for one in formed)

"""`--sizes`, and which settings are legal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.choice.legal import check_in, fits, legal_settings, op_of, open_sites
from dagc.ir.choice import Choice, own_name
from dagc.ir.plan import stays_fixed
from dagc.study.cases import parse_size, parse_sizes
from tests.study.oracle import ROOT

GEMM = ROOT / "samples" / "polybench" / "gemm.dag"


def test_sizes() -> None:
    program = api.load(GEMM)
    points = parse_sizes("NI=NJ=NK=64,100; NI=7 NJ=8,9 NK=10; NI=NJ=NK=64", program)
    assert [p.text for p in points] == [
        "NI=64 NJ=64 NK=64", "NI=100 NJ=100 NK=100", "NI=7 NJ=8 NK=10", "NI=7 NJ=9 NK=10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NI", "`NI` is not NAME=VALUE"),
        ("XX=3", "no integer parameter `XX`"),
        ("NI=0", "NI=0 is not a size"),
        ("NI=99999999999", "is not a size"),
        ("NI=3,,4", "a value is missing"),
        (" ; ", "names no size"),
        ("NI=-5", "NI=-5 is not a size"),
        ("NI=1.5", "NI=1.5 is not a size"),
        ("NI=1e3", "NI=1e3 is not a size"),
        ("NI=\u0663", "is not a size"),
        ("NI=1__0", "is not a size"),
        ("NI=" + "9" * 5000, "is not a size"),
        ("NI==5", "is not NAME=VALUE"),
        ("NI=5 NJ=6 NI=7", "gives NI twice"),
        ("NI=NI=5", "gives NI twice"),
    ],
)
def test_bad_sizes_are_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        parse_sizes(text, api.load(GEMM))


def test_a_size_without_one_of_the_variants_is_refused(tmp_path: Path) -> None:
    """`require` on a param excludes it there; on the kernel's arguments it would be tested at each size."""
    (tmp_path / "even.dag").write_text(EVEN, encoding="utf-8")
    (site,) = open_sites(api.load_graph(tmp_path / "even.dag"), variants=True)
    assert site.variants == ("plain", "wide")
    with pytest.raises(UsageError, match="op `y` has other variants at this size: plain, instead of plain, wide") as no:
        check_in(api.load_graph(tmp_path / "even.dag", {"width": 7}), site)
    assert "on the kernel's arguments" in no.value.help
    compiled = replace(site, open=tuple(replace(d, values=("plain",)) for d in site.open))
    check_in(api.load_graph(tmp_path / "even.dag", {"width": 7}), compiled)  # without `wide`


EVEN = """program even
param width : i64 = 8
array x : f32[width] in
array y : f32[width] out
kernel scale(y: out f32[n], x: in f32[n], n: i64) {
  select variant with tree(n)
  gpu plain { launch grid(1) block(32) cuda \"\"\" y[0] = x[0]; \"\"\" }
  gpu wide { require width % 2 == 0 launch grid(1) block(64) cuda \"\"\" y[0] = x[0]; \"\"\" }
}
dag { y : gpu scale(y, x, width) }
"""


def test_results_are_checked_at_one_size() -> None:
    program = api.load(GEMM)
    assert parse_size("NI=1_000", program, "--check-at").text == "NI=1000"
    with pytest.raises(UsageError, match="--check-at NI=3,9: 2 sizes"):
        parse_size("NI=3,9", program, "--check-at")
    with pytest.raises(UsageError, match="--check-at: NI=0 is not a size"):
        parse_size("NI=0", program, "--check-at")


def test_legal_settings() -> None:
    graph = api.load_graph(GEMM)
    site = open_sites(graph)[0]
    choices = legal_settings(graph, site, {"max_threads_per_block": 1024})
    assert len(choices) == 51
    assert choices[0] == site.default == Choice.at(site.name, [("bx", 32), ("by", 8)])
    assert all(32 <= s.own["bx"] * s.own["by"] <= 1024 for s in choices)
    assert len(legal_settings(graph, site, {"max_threads_per_block": 256})) < 51
    assert not fits(graph, site, Choice.at(site.name, [("bx", 1024), ("by", 1)]), {"ni": 65536, "nj": 10, "nk": 10})
    assert fits(graph, site, Choice.at(site.name, [("bx", 1024), ("by", 1)]), {"ni": 65535, "nj": 10, "nk": 10})
    assert not fits(graph, site, site.default, {"ni": 0, "nj": 10, "nk": 10})


DIVIDES = '''
program divides
param count : i64 = 4
array y : f32[count] out
kernel fill(y: out f32[n], n: i64) {
  feature ratio = 1 / (n % 2)
  let twice = 2 * ratio
  tune bx in {32, 64}
  select bx with tree(ratio)
  require twice < 9
  gpu { launch grid(1) block(bx) cuda """ y[0] = 1; """ }
}
dag { fill : gpu fill(y, count) }
'''


def test_a_feature_that_divides_by_zero_has_no_value(tmp_path: Path) -> None:
    """Also where the size is a constant: the settings are legal."""
    (tmp_path / "divides.dag").write_text(DIVIDES)
    graph = api.load_graph(tmp_path / "divides.dag")
    (site,) = open_sites(graph)
    assert legal_settings(graph, site, {"max_threads_per_block": 1024}) == (
        Choice.at(site.name, [("bx", 32)]),
        Choice.at(site.name, [("bx", 64)]),
    )


def test_one_dimensional_kernels_get_one_dimensional_blocks() -> None:
    graph = api.load_graph(ROOT / "samples" / "polybench" / "atax.dag")
    for site in open_sites(graph):
        assert sum(bool(d.axis) for d in site.open) == 1
        assert {s.own["bx"] for s in legal_settings(graph, site, {})} == {32, 64, 128, 256, 512, 1024}


def test_a_kernel_that_has_nothing_to_tune() -> None:
    graph = api.load_graph(GEMM)
    with pytest.raises(UsageError, match="no op or kernel `nothing`"):
        open_sites(graph, ["nothing"])


# ---- what stays fixed, and what may not be launched ----------------------------------------------------------

PROGRAM = '''program several
scalar n : i32
array y : f32[n]
kernel one(y: out f32[n], n: i32) {
  tune bx in {64}
  gpu { launch grid(ceil(n / bx)) block(bx) cuda """ y[0] = bx; """ }
}
kernel two(y: inout f32[n], n: i32) {
  tune bx in {64, 128}
  tune tile in {1, 4096, 16384}
  tune factor in {0.5, 2.0}
  tune rows in {8, 16}
  gpu {
    array scratch : f32[rows]
    launch grid(ceil(n / bx)) block(bx) shared(tile * sizeof(f32))
    cuda """ y[0] = factor * tile; """
  }
}
dag { one : gpu one(y, n)  two : gpu two(y, n) }
'''


def test_tunables_that_no_chooser_answers_stay_fixed_and_do_not_hinder_the_others(tmp_path: Path) -> None:
    (tmp_path / "several.dag").write_text(PROGRAM)
    graph = api.load_graph(tmp_path / "several.dag")
    (site,) = open_sites(graph)
    assert [own_name(d.name) for d in site.open] == ["bx", "tile"]
    assert stays_fixed(graph.program, op_of(graph, site)) == ("factor", "rows")
    with pytest.raises(UsageError, match="op `one` has nothing to tune"):
        open_sites(graph, ["one"])
    with pytest.raises(UsageError) as error:
        open_sites(graph, ["three"])
    assert error.value.help == "one of: two"
    (tmp_path / "fixed.dag").write_text(PROGRAM.replace("{64, 128}", "{64}").replace("{1, 4096, 16384}", "{1}"))
    for wanted in ((), ("two",)):
        with pytest.raises(UsageError) as error:
            open_sites(api.load_graph(tmp_path / "fixed.dag"), wanted)
        assert error.value.help.startswith("`dagc explore --open two.factor` searches")


def test_more_shared_memory_than_a_launch_has_is_not_legal(tmp_path: Path) -> None:
    (tmp_path / "several.dag").write_text(PROGRAM)
    graph = api.load_graph(tmp_path / "several.dag")
    (site,) = open_sites(graph)
    assert {s.own["tile"] for s in legal_settings(graph, site, {})} == {1, 4096}

"""`--sizes`, and which settings are legal."""

from __future__ import annotations

import pytest

from dagc import api
from dagc.errors import UsageError
from dagc.tune.legal import fits, legal_settings, units
from dagc.tune.sizes import parse_sizes
from tests.tune.oracle import ROOT

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
    ],
)
def test_bad_sizes_are_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        parse_sizes(text, api.load(GEMM))


def test_legal_settings() -> None:
    graph = api.load_graph(GEMM)
    unit = units(graph)[0]
    settings = legal_settings(graph, unit, {"max_threads_per_block": 1024})
    assert len(settings) == 51
    assert settings[0] == unit.default == (("bx", 32), ("by", 8))
    assert all(32 <= dict(s)["bx"] * dict(s)["by"] <= 1024 for s in settings)
    assert len(legal_settings(graph, unit, {"max_threads_per_block": 256})) < 51
    assert not fits(graph, unit, (("bx", 1024), ("by", 1)), {"ni": 65536, "nj": 10, "nk": 10})
    assert fits(graph, unit, (("bx", 1024), ("by", 1)), {"ni": 65535, "nj": 10, "nk": 10})
    assert not fits(graph, unit, unit.default, {"ni": 0, "nj": 10, "nk": 10})


def test_one_dimensional_kernels_get_one_dimensional_blocks() -> None:
    graph = api.load_graph(ROOT / "samples" / "polybench" / "atax.dag")
    for unit in units(graph):
        assert unit.dimensions == 1
        assert {dict(s)["bx"] for s in legal_settings(graph, unit, {})} == {32, 64, 128, 256, 512, 1024}


def test_a_kernel_that_has_nothing_to_tune() -> None:
    graph = api.load_graph(GEMM)
    with pytest.raises(UsageError, match="no op or kernel `nothing`"):
        units(graph, ["nothing"])

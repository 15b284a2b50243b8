"""The configurations that a search opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.program import Graph, Value
from dagc.lab.configurations import configuration_of, configurations, open_decisions
from dagc.store.results import Configuration

SPMV = Path(__file__).parent.parent / "samples/spmv/spmv.dag"


def build(choices: dict[str, Value]) -> Graph:
    return api.load_graph(SPMV, choices)


def test_staging_makes_no_difference_where_nothing_is_staged() -> None:
    program = api.load(SPMV)
    opened = open_decisions(program, ["transport=mpi_host,mpi_cuda", "staging"], ())
    found, refused = configurations(opened, build)
    assert [(c.configuration.get("transport"), c.configuration.get("staging")) for c in found] == [
        ("mpi_host", "fused"), ("mpi_host", "ops"), ("mpi_cuda", None),
    ]  # fmt: skip
    assert not refused


def test_the_default_comes_first_and_capture_can_always_be_opened() -> None:
    program = api.load(SPMV, {"transport": "mpi_cuda"})
    assert open_decisions(program, ["capture"], ["transport"]) == {"capture": (False, True)}
    found, _ = configurations({"capture": (False, True)}, build)
    assert [c.configuration.get("capture") for c in found] == [False, True]


def test_some_values() -> None:
    opened = open_decisions(api.load(SPMV), ["yl.block=64,256", "yl.variant"], ())
    assert opened == {"yl.block": (64, 256), "yl.variant": ("thread_per_row", "warp_per_row")}
    found, _ = configurations(opened, build)
    assert len({c.configuration for c in found}) == 4
    assert all(c.configuration == configuration_of(build(dict(c.defines))) for c in found)


def test_all_opens_what_is_not_fixed() -> None:
    opened = open_decisions(api.load(SPMV), ["all"], ["transport", "yr.block"])
    assert set(opened) == {"staging", "yl.block", "yl.variant", "yr.variant"}


@pytest.mark.parametrize(
    ("opened", "fixed", "message"),
    [
        (["speed"], (), "no decision `speed`"),
        (["yl.block=65"], (), "`yl.block` cannot be 65"),
        (["transport"], (), "configurations, more than 2"),
        (["yl.block"], ("yl.block",), "both opened and fixed"),
    ],
)
def test_mistakes(opened: list[str], fixed: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configurations(open_decisions(api.load(SPMV), opened, fixed), build, most=2)


def test_a_configuration_as_text() -> None:
    made = Configuration((("capture", False), ("transport", "nccl"), ("yl.block", 64)))
    assert made.text == "capture=false transport=nccl yl.block=64"

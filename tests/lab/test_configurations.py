"""The configurations that a search opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.program import Graph, Value
from dagc.lab.configurations import configurations, open_decisions
from dagc.space import Space
from dagc.study.decisions import excluded_notes, with_automatic

SPMV = Path(__file__).parents[2] / "samples/spmv/spmv.dag"


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
        (["speed"], (), "unknown decision `speed`"),
        (["yl.block=65"], (), "`yl.block` cannot be 65"),
        (["transport"], (), "programs, more than 2"),
        (["yl.block"], ("yl.block",), "both opened and fixed"),
    ],
)
def test_mistakes(opened: list[str], fixed: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configurations(open_decisions(api.load(SPMV), opened, fixed), build, most=2)


def test_a_configuration_as_text() -> None:
    made = Choice((("capture", False), ("transport", "nccl"), ("yl.block", 64)))
    assert made.text == "capture=false transport=nccl yl.block=64"


DEVICES = """
program devices
scalar n : i32
array x : f32[n] on any in
array y : f32[n] on any out
array z : f32[n] on any out
kernel scale(y: out f32[n], x: in f32[n], n: i32) {
  gpu one { tune b in {32, 64} launch grid(n) block(b) cuda \"\"\" y[0] = x[0]; \"\"\" }
  gpu two { launch grid(n) block(32) cuda \"\"\" y[0] = x[0]; \"\"\" }
  cpu one { cpp \"\"\" y[0] = x[0]; \"\"\" }
  cpu two { cpp \"\"\" y[0] = x[0]; \"\"\" }
}
kernel plain(y: out f32[n], x: in f32[n], n: i32) {
  gpu { launch grid(n) block(32) cuda \"\"\" y[0] = x[0]; \"\"\" }
}
dag {
  first : any scale(y, x, n)
  second : gpu plain(z, x, n)
}
"""


def test_a_device_is_a_choice_like_any_other(tmp_path: Path) -> None:
    """Each device has its own implementations: what is chosen for the other one makes no difference."""
    path = tmp_path / "devices.dag"
    path.write_text(DEVICES)
    program = api.load(path)
    opened = open_decisions(program, ["first.device", "first.gpu.variant", "first.cpu.variant"], ())
    found, refused = configurations(opened, lambda choices: api.load_graph(path, choices))
    assert [tuple(n for n, _ in c.configuration.decisions if n.startswith("first.")) for c in found] == [
        ("first.device", "first.gpu.b", "first.gpu.variant"),
        ("first.device", "first.gpu.variant"),
        ("first.cpu.thread", "first.cpu.variant", "first.device"),
        ("first.cpu.thread", "first.cpu.variant", "first.device"),
    ]
    assert not refused
    searched, _ = with_automatic(program, {}, ())
    assert list(searched)[:1] == ["first.device"]


def test_the_count_of_a_program_on_two_devices_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "devices.dag"
    path.write_text(DEVICES)
    orders = {d: sum(1 for _ in Space(api.load_graph(path, {"first.device": d}))) for d in ("gpu", "cpu", "any")}
    found = api.count(path)
    memories = 2  # of the host sides of `any` arrays: `host_memory`
    implementations = {"gpu": memories * (2 + 1), "cpu": memories * 2}
    assert [(line.label, line.count, line.combinations) for line in found.lines if line.label.startswith("first")] == [
        (f"first.device={device}", orders[device], number) for device, number in implementations.items()
    ]
    in_worker = sum(1 for _ in Space(api.load_graph(path, {"first.device": "cpu", "first.cpu.thread": "worker"})))
    assert found.whole == sum(orders[d] * number for d, number in implementations.items()) + in_worker * memories * 2
    at_run_time = api.count(path, {"first.device": "any"})
    copies = (("host_memory", 2), ("transfers", 2))
    assert (at_run_time.count, at_run_time.per_op) == (orders["any"], (("first", 3), *copies))  # the first on each
    selected = path.with_name("selected.dag")
    selected.write_text(
        DEVICES.replace("n: i32) {\n  gpu one", "n: i32) {\n  select variant, device with tree(n)\n  gpu one")
    )
    assert api.count(selected, {"first.device": "any"}).per_op == (("first", 5), *copies)


def test_a_reason_that_excludes_several_combinations_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "devices.dag"
    path.write_text(DEVICES + "tune p in {1, 2, 3}\ntune q in {1, 2, 3}\nrequire p + q < 5\n")
    opened = open_decisions(api.load(path), ["p", "q"], ())
    _, refused = configurations(opened, lambda choices: api.load_graph(path, choices))
    notes = excluded_notes((r.defines, r.reason, r.span) for r in refused)
    assert notes == ["without 3 combinations, for example p=2 q=3: `p + q < 5` is false for p = 2, q = 3"]
    shared, alone = excluded_notes([({"p": 1, "q": 2}, "x", 1), ({"p": 2, "q": 2}, "y", 2), ({"p": 1, "q": 3}, "z", 1)])
    assert shared == "without 2 combinations, all with p=1: x"
    assert alone == "without p=2 q=2: y"

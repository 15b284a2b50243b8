"""Descriptors of GPUs, and what is said of wrong ones."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.perf.hardware import DESCRIPTORS, Hardware, hardware_of, load_hardware, nearest_hardware
from dagc.perf.volume import CALIBRATION, calibration_of

LINES = {
    "name": '"My GPU"', "arch": '"sm_90"', "multiprocessors": "10", "clock": "1.5e9",
    "max_threads_per_multiprocessor": "2048", "max_blocks_per_multiprocessor": "32",
    "registers_per_multiprocessor": "65536", "shared_per_multiprocessor": "233472",
    "shared_reserved_per_block": "1024", "l1_bytes": "204800", "l2_bytes": "52428800",
}  # fmt: skip


def written(folder: Path, lines: dict[str, str], table: str = "mine") -> str:
    path = folder / "gpu.toml"
    path.write_text("\n".join([f"[{table}]", *(f"{k} = {v}" for k, v in lines.items()), ""]))
    return str(path)


@pytest.mark.parametrize("name", ["h200", "a100", "v100", "rtx2080ti"])
def test_gpus_that_are_there(name: str) -> None:
    hardware = load_hardware(name)
    assert load_hardware(hardware.name) == load_hardware(name.upper()) == hardware
    parameters = hardware.parameters()
    assert all(value >= 0 for value in parameters.values())
    assert parameters["shared_per_multiprocessor"] % 1024 == 0


def test_by_architecture() -> None:
    assert load_hardware("sm_90") == load_hardware("h200")


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm_89", "a100"), ("sm_120", "h200"), ("sm_60", "v100"), ("sm_90a", "h200"), ("sm_75", "rtx2080ti")],
)
def test_an_architecture_without_a_descriptor_has_the_nearest(arch: str, name: str) -> None:
    """With a note, unless the descriptor is of that architecture."""
    found, notes = nearest_hardware(arch)
    assert found == load_hardware(name)
    assert bool(notes) == (arch in ("sm_89", "sm_120", "sm_60"))
    assert all(arch in note and found.name in note for note in notes)


def test_a_file_of_the_user(tmp_path: Path) -> None:
    assert load_hardware(written(tmp_path, LINES)).multiprocessors == 10
    assert set(LINES) | {"measured"} == {f.name for f in fields(Hardware)}


def test_an_unknown_gpu() -> None:
    with pytest.raises(UsageError, match="no descriptor of GPU `k80`") as caught:
        load_hardware("k80")
    assert "h200" in caught.value.help


def test_what_no_driver_tells_is_that_of_the_architecture_or_the_shared_memory(tmp_path: Path) -> None:
    asked = {k: v for k, v in LINES.items() if k != "l1_bytes"}
    known = load_hardware(written(tmp_path, {**asked, "arch": '"sm_80"'}))
    assert known.l1_bytes == load_hardware("a100").l1_bytes
    other = load_hardware(written(tmp_path, {**asked, "arch": '"sm_10"'}))
    assert other.l1_bytes == other.shared_per_multiprocessor


def test_what_was_measured_comes_back_from_its_table() -> None:
    hardware = load_hardware("h200")
    assert hardware.measured is not None
    assert hardware_of(hardware.table(), "here") == hardware
    assert "measured" not in hardware.parameters()
    broken = {**hardware.table(), "measured": {"launch_cycles": 1.0}}
    with pytest.raises(UsageError, match="here.measured lacks `l1_latency`"):
        hardware_of(broken, "here")


def test_constants_follow_what_was_measured() -> None:
    """Half the bandwidth doubles the cost of a byte; what differs as much as two runs do changes nothing."""
    here = load_hardware("h200")
    assert here.measured is not None
    assert calibration_of(here) == {name: value for name, (value, _, _) in CALIBRATION.items()}
    slower = replace(here.measured, memory_bytes_per_cycle=here.measured.memory_bytes_per_cycle / 2)
    found = calibration_of(replace(here, measured=slower))
    assert found["c_hbm"] == pytest.approx(2 * CALIBRATION["c_hbm"][0])
    assert {n for n in found if found[n] != CALIBRATION[n][0]} == {"c_hbm"}
    almost = replace(here.measured, memory_latency=here.measured.memory_latency * 1.05)
    assert calibration_of(replace(here, measured=almost))["c_miss"] == CALIBRATION["c_miss"][0]
    # Stores of words were not measured on the H200: the bandwidth of its L2 cache stands for them.
    faster = replace(here.measured, l2_stores_per_cycle=99.0, l2_bytes_per_cycle=2 * here.measured.l2_bytes_per_cycle)
    found = calibration_of(replace(here, measured=faster))
    assert found["c_write"] == pytest.approx(CALIBRATION["c_write"][0] / 2)


@pytest.mark.parametrize("missing", [key for key in LINES if key != "l1_bytes"])
def test_a_missing_key_is_named_with_its_file(missing: str, tmp_path: Path) -> None:
    path = written(tmp_path, {k: v for k, v in LINES.items() if k != missing})
    with pytest.raises(UsageError, match=f"gpu.toml: .*lacks `{missing}`"):
        load_hardware(path)


@pytest.mark.parametrize(("key", "value"), [("multiprocessors", "true"), ("multiprocessors", "1.5"), ("name", "3")])
def test_a_wrong_value_is_named(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"gpu.toml: .*{key} = "):
        load_hardware(written(tmp_path, {**LINES, key: value}))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere.toml"):
        load_hardware(str(tmp_path / "nowhere.toml"))
    for broken, why in ((b"\n[a\n", "2:3: expected ']'"), (b"[a]\nb = \xff", "2:5: byte 8 is not UTF-8")):
        (tmp_path / "broken.toml").write_bytes(broken)
        with pytest.raises(UsageError, match=f"broken.toml:{why}"):
            load_hardware(str(tmp_path / "broken.toml"))
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(UsageError, match="empty.toml: 0 tables"):
        load_hardware(str(tmp_path / "empty.toml"))


def test_the_descriptors_are_packaged() -> None:
    assert DESCRIPTORS.parent.name == "perf"
    assert DESCRIPTORS.is_file()

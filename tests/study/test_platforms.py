"""Platform files: of machines by their published figures, which SimGrid reads, and of what a ping-pong measured."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.study.platforms import LinkFit, known_machines, line_through, platform_like, platform_of
from dagc.study.simulated import EntryTimes, SimulatedMachine, compiled, problem_text
from tests.lab.test_strategies import domain
from tests.measure.conftest import can_run
from tests.precompiled import compile_by_clang
from tests.study.test_simulated import has_simgrid

HERE = LinkFit(("one", "one"), 1e-6, 1e10, 0.0)


def cluster(text: str) -> dict[str, str]:
    found = ET.fromstring(text).find("cluster")
    assert found is not None
    return found.attrib


def test_a_machine_has_room_for_the_ranks_and_its_source() -> None:
    for name, machine in known_machines().items():
        for ranks in (1, 4, 100, 4096):
            text = platform_like(name, ranks)
            of = cluster(text)
            nodes = int(of["radical"].partition("-")[2]) + 1
            assert nodes * int(of["core"]) >= ranks
            assert all(page in text for page in machine.pages)
        assert all(page.startswith("https://") for page in machine.pages)
        assert {fact for facts in machine.pages.values() for fact in facts} <= {field.name for field in fields(machine)}
        assert machine.group % machine.routers == 0
        with pytest.raises(UsageError, match="ranks need .* nodes, and"):
            platform_like(name, 10**6)


def test_what_no_page_states_is_an_assumption() -> None:
    assert "assumptions: 2e-06 s between nodes" in platform_like("frontier", 4)
    assert "assumptions: bandwidth between GPUs, bandwidth between groups (no bottleneck), 2e-06 s" in platform_like(
        "perlmutter", 4
    )
    assert cluster(platform_like("frontier", 2000))["topo_parameters"].startswith("2,1;")  # 100 GB/s between two groups
    assert cluster(platform_like("jupiter", 2000))["topo_parameters"].startswith("3,120;")


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_simgrid_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by_clang(monkeypatch)  # as in tests/study/test_simulated.py, with the same flags
    simulator, problem = compiled(tmp_path), tmp_path / "problem"
    texts = [platform_like(name, ranks) for name in known_machines() for ranks in (4, 2000)]
    fits = [platform_of(HERE, 8), platform_of(replace(HERE, hosts=("one", "other")), 8)]
    for number, text in enumerate([*texts, *fits]):
        (tmp_path / f"{number}.xml").write_text(text)
        machine = SimulatedMachine(domain(), tmp_path / f"{number}.xml", simulator, problem, {})
        problem.write_text(problem_text((), EntryTimes({}, {}), [[{}] * 8 if number >= len(texts) else [{}] * 4]))
        assert machine.run([]) == []


def test_a_line_is_fitted_to_a_ping_pong() -> None:
    sizes = [8, 1024, 1 << 20]
    latency, bandwidth, off = line_through(sizes, [2e-6 + size / 5e9 for size in sizes])
    assert (latency, bandwidth) == (pytest.approx(2e-6), pytest.approx(5e9))
    assert off < 1e-6
    assert line_through(sizes, [1e-6, 2e-6, 1e-4])[2] > 0.1  # which is no line


def test_the_links_are_those_that_were_measured() -> None:
    within, between = cluster(platform_of(HERE, 4)), cluster(platform_of(replace(HERE, hosts=("a", "b")), 4))
    assert (within["radical"], within["core"], within["loopback_lat"]) == ("0-0", "4", "1e-06s")
    assert (between["radical"], between["core"], between["lat"], between["bw"]) == (
        "0-3",
        "1",
        "5e-07s",
        "10000000000Bps",
    )


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platform", "--like", "nowhere", "-o", str(tmp_path / "p.xml")]) == 2
    assert "one of: frontier, summit, perlmutter, jupiter" in capsys.readouterr().err
    assert main(["platform", "--like", "summit", "-o", str(tmp_path / "p.txt")]) == 2
    assert "files that end in .xml" in capsys.readouterr().err
    assert main(["platform", "--like", "summit", "-o", str(tmp_path / "none" / "p.xml")]) != 0
    assert main(["platform", "-o", str(tmp_path / "none" / "p.xml")]) == 2  # before the ping-pong
    assert "none is no directory" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
    command = ["platform", "--like", "summit", "-o", str(tmp_path / "p.xml")]
    assert [main(command), main(command), main([*command, "--force"])] == [0, 2, 0]
    assert "it exists already" in capsys.readouterr().err


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs an MPI")
def test_the_machine_at_hand_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platform", "-n", "3", "-o", str(tmp_path / "p.xml")]) == 0
    assert "within " in capsys.readouterr().out
    of = cluster((tmp_path / "p.xml").read_text())
    assert of["core"] == "3"
    assert float(of["loopback_bw"].removesuffix("Bps")) > 1e6

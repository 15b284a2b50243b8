"""The ranks as a laboratory asks them: deaths are counted in one place, and no candidate takes another with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.choice import Choice
from dagc.lab.launches import Launches, SizedProgram, Timing, verify
from dagc.measure.service import GIVE_UP, VISIBLE, Deaths, RanksDied, Service, WorkerLink, gpus_of, link_groups
from dagc.study.measure import sized_program
from dagc.study.prepare import prepare
from dagc.study.task import tuning_task
from tests.study.programs import write_fill

FAULTS = """
static int launched = 0;
if (bx == 64 || (bx == 16 && i == 0 && ++launched > 40)) *(volatile int*)nullptr = 1;
if (bx == 128) while (*(volatile int*)y != 12345678) continue;
if (i < n) y[i] = bx == 256 ? -1 : i;
"""


def test_a_place_in_which_nothing_ever_succeeds_is_given_up() -> None:
    deaths = Deaths()
    for _ in range(GIVE_UP):
        assert not deaths.given_up("a")
        assert deaths.death("a", "it fell") == "it fell"
    assert deaths.given_up("a") == f"it fell (given up after {GIVE_UP} such failures)"
    deaths.success("b")
    for _ in range(2 * GIVE_UP):
        deaths.death("b", "it fell")
    assert not deaths.given_up("b")
    deaths.forget()
    assert not deaths.given_up("a")


def test_what_succeeded_once_is_not_asked_for_without_end() -> None:
    asked = 0

    def dies() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        raise RanksDied("run failed: it fell")

    service = Service(WorkerLink(1))  # starts nothing
    assert service.insist("a", dict) == {}
    for turn in (1, 2):
        assert service.insist("a", dies) == {"error": "it fell"}
        assert asked == turn * GIVE_UP
    assert "given up" in service.insist("b", dies)["error"]
    assert "given up" in service.insist("b", dies)["error"]
    assert asked == 3 * GIVE_UP


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, unoptimised: None) -> SizedProgram:
    folder = tmp_path_factory.mktemp("faults")
    path = write_fill(folder, "tune bx in {16, 32, 64, 128, 256, 512}", FAULTS)
    ready = prepare(tuning_task(api.read(path), sizes="N=100", target="host"), folder / "work")
    return sized_program(ready, ready.task.check_at)


def launches(service: Service, program: SizedProgram) -> Launches:
    (op,) = (op for op in program.ops[:1])
    return Launches(
        service, program, op, [("fill.bx", 32)], lambda s: list(s.items()),
        timing=Timing(seconds=0.01, watchdog=1.0), tolerance=(1e-3, 0.0),
    )  # fmt: skip


@pytest.mark.mpi
def test_what_faults_hangs_or_is_wrong_is_an_outcome(program: SizedProgram) -> None:
    with Service(WorkerLink(1)) as service:
        machine = launches(service, program)
        outcomes = {bx: machine.measure(Choice.at("fill", [("bx", bx)])) for bx in (32, 64, 128, 256, 512)}
        assert service.died == 2
        said = [verify(service, program, [("fill.bx", 32)], [("fill.bx", bx)], 60.0) for bx in (512, 64, 256)]
    assert {bx for bx, outcome in outcomes.items() if not outcome.failure} == {32, 512}
    assert all(outcomes[bx].value > 0 and len(outcomes[bx].times) >= 5 for bx in (32, 512))
    assert outcomes[64].failure.startswith("run failed: rank 0: terminated by SIGSEGV")
    assert outcomes[128].failure == "hang: rank 0 in op `fill`"
    assert "largest difference" in outcomes[256].failure
    assert said[0] == ""
    assert said[1].startswith("run failed: rank 0: terminated by SIGSEGV")
    assert said[2].startswith("rank 0: y is wrong: ")


@pytest.mark.mpi
def test_a_metric_is_observed_over_as_many_launches_as_it_is_divided_by(program: SizedProgram) -> None:
    """10 of a millisecond each; the 41st would end the rank."""
    with Service(WorkerLink(1)) as service:
        assert launches(service, program).place() == ""
        answer = service.ask(
            program.library, do="observe", op=program.ops[0], settings=[("fill.bx", 16)], metrics=["cpu"],
            seconds=1e-3, limit=60.0,
        )  # fmt: skip
    assert answer["metrics"]["cpu"] >= 0


@pytest.mark.mpi
def test_a_program_that_does_not_open_is_given_up(program: SizedProgram) -> None:
    with Service(WorkerLink(1)) as service:
        machine = launches(service, replace(program, library=replace(program.library, data=Path("/nowhere"))))
        why = machine.place()
        assert "nowhere" in why
        assert machine.measure(Choice.at("fill", [("bx", 32)])).failure == why
        assert service.died == GIVE_UP, "no start more"


def test_the_groups_of_a_host_share_its_gpus_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "3,1,0,2,7")
    assert [gpus_of(group, 2)[VISIBLE] for group in range(2)] == ["3,1", "0,2"]
    assert [gpus_of(group, 5)[VISIBLE] for group in range(5)] == ["3", "1", "0", "2", "7"]
    assert gpus_of(5, 6) == {VISIBLE: ""}  # which is refused


def test_no_more_groups_than_cores_are_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagc.measure.service.cores", lambda: 2)
    assert len(link_groups(4, 2)) == 2
    with pytest.raises(UsageError, match="--groups 3: this host has 2 cores, and groups that share one disturb") as why:
        link_groups(1, 3)
    assert "--groups" in (why.value.help or "")

"""The measuring service on real ranks of the host target: measuring, and everything that can go wrong."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagc import api
from dagc.base.errors import MissingTool, RunFailed, UsageError, WrongResult
from dagc.emit import rows
from dagc.ir.choice import Choice
from dagc.ir.constraints import configuration_of
from dagc.ir.traversal import Issue, Traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.live import EVERY, LiveMachine, Loadable
from dagc.lab.orders import Orders
from dagc.measure.launch import joined, launch
from dagc.measure.service import RankLink, RunnerLibrary, WorkerLink, link_ranks, require_ranks
from dagc.setup import run_setup
from dagc.space import Space
from dagc.stages.artifacts import build_artifact
from dagc.store.records import load
from tests.measure.conftest import HALO, SMALL, SPMV, needs_mpi

pytestmark = [*needs_mpi, pytest.mark.usefixtures("unoptimised")]
RANKS = 3  # with other programs at work on a few cores, fewer ranks hand over faster


@dataclass(frozen=True)
class Subject:
    """The SpMV, small, as a domain of one configuration."""

    domain: Orders
    loadable: Loadable

    def machine(
        self, link: RankLink, watchdog: float = 300.0, on_reference: Callable[[float], None] | None = None
    ) -> LiveMachine:
        return LiveMachine(
            self.domain, [self.loadable], link, seconds=0.002, watchdog=watchdog, on_reference=on_reference
        )

    @property
    def first(self) -> Candidate:
        return Candidate(0, self.domain.spaces[0].space.first())

    def moved(self, name: str, before: str) -> Candidate:
        """The first traversal with one op issued earlier than it may be."""
        graph = self.domain.spaces[0].graph
        entries = list(self.first.traversal.entries)

        def at(wanted: str) -> int:
            return next(i for i, e in enumerate(entries) if isinstance(e, Issue) and graph.ops[e.op].name == wanted)

        entry = entries.pop(at(name))
        entries.insert(at(before), entry)
        return Candidate(0, Traversal(tuple(entries)))


def build_library(directory: Path, transport: str = "mpi_host", program: Path = SPMV) -> Subject:
    """Compile into `directory`, or take what a first call has left there."""
    done = api.compile(
        program, directory / "out", target="host", defines={**SMALL[program], "transport": transport}, build=False
    )
    library = build_artifact(directory / "out", done.plan, "runner")
    data = directory / "data"
    if not data.exists():
        run_setup(done.plan.program, program.parent, RANKS, 7, data)
    graph = done.plan.graph
    return Subject(
        Orders([ConfiguredSpace(configuration_of(graph), Space(graph))]), Loadable(RunnerLibrary(library, data), rows)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def library(folder: Path) -> Subject:
    return build_library(folder)


@pytest.fixture(scope="module")
def link() -> Iterator[RankLink]:
    """Ranks for all tests here; those that kill them have them started anew."""
    with WorkerLink(RANKS) as link:
        yield link


def alive(mark: str) -> list[int]:
    """Processes that have `mark` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() and (entry / "stat").read_text().split()[2] != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


def wait_until(done: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + 300
    while not done():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def _rank(pid: int) -> int | None:
    """Of a process that an MPI's starter has started."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    place = joined(dict(word.split("=", 1) for word in words if "=" in word))
    return None if place is None else place[0]


# ---- measuring ----------------------------------------------------------------------------------


def test_candidates_are_measured_beside_a_reference(library: Subject, link: RankLink) -> None:
    references: list[float] = []
    machine, random = library.machine(link, on_reference=references.append), Random(1)
    outcomes = [machine.measure(library.domain.sample(random)) for _ in range(2 * EVERY)]
    for outcome in outcomes:
        assert not outcome.failure
        assert outcome.value > 0
        assert outcome.iterations * outcome.value >= 0.5 * 0.002
        assert min(references) <= outcome.reference <= max(references)
    assert len(references) == 2  # after the first measurement, and after the eighth
    assert machine.time_reference() == references[2] > 0


def test_the_noise_floor_is_measured_first(library: Subject, link: RankLink) -> None:
    references: list[float] = []
    machine = library.machine(link, on_reference=references.append)
    assert machine.noise_floor(library.first) >= 0
    assert len(references) == 20
    assert math.isnan(machine.noise_floor(library.first, limit=0.0))  # of one timing
    assert len(references) == 21
    assert min(references) <= machine.measure(library.first).reference <= max(references)


def test_a_trace_has_every_entry_of_every_rank(library: Subject, link: RankLink) -> None:
    machine = library.machine(link)
    entries = library.first.traversal.entries
    spans = machine.trace(library.first)
    assert [(s.rank, s.position) for s in spans] == [(r, p) for r in range(RANKS) for p in range(len(entries))]
    assert all(s.end >= s.begin >= 0 for s in spans)
    graph = library.domain.spaces[0].graph
    gpu = [isinstance(e, Issue) and graph.ops[e.op].gpu for e in entries] * RANKS
    assert [s.gpu_end >= s.gpu_begin for s in spans] == gpu  # NaN compares as False


def test_configurations_share_the_ranks(
    library: Subject, folder: Path, link: RankLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transports, each as it is and with captured regions: two libraries in one process."""
    other = build_library(folder / "mpi_cuda", transport="mpi_cuda")
    spaces, loadables = [], []
    for one in (library, other):
        (configured,) = one.domain.spaces
        for capture in (False, True):
            decisions = {**configured.configuration, "capture": capture}
            spaces.append(ConfiguredSpace(Choice.of(decisions), configured.space))
            loadables.append(replace(one.loadable, capture=capture))
    machine, random = LiveMachine(Orders(spaces), loadables, link, seconds=0.002), Random(2)
    assert [machine.probe(machine.domain.first(index)).failure for index in range(4)] == [""] * 4
    assert [machine.measure(machine.domain.sample(random)).failure for _ in range(12)] == [""] * 12
    captured = Candidate(3, spaces[3].space.first())
    assert len(machine.trace(captured)) == RANKS * len(captured.traversal.entries)
    kept = machine.narrow([1, 2])
    assert [s.configuration for s in kept.spaces] == [
        spaces[1].configuration,
        spaces[2].configuration,
    ]
    asked, ask = list[bool](), machine._ask

    def noted(index: int, **command: Any) -> dict[str, Any]:
        asked.append(command["check"])
        return ask(index, **command)

    monkeypatch.setattr(machine, "_ask", noted)
    assert not machine.measure(kept.first(0)).failure
    assert asked == [False]  # it was checked in its former space, and its time is the first of the drift reference


def test_the_machine_says_what_it_is(library: Subject, link: RankLink) -> None:
    machine = library.machine(link).facts("host", "sm_90")
    assert (machine.target, machine.gpus, machine.driver, machine.arch) == ("host", (), "", "")
    assert len(machine.hosts) == 1
    assert machine.cpu
    assert machine.mpi
    assert machine.facts["cxx"]


# ---- what goes wrong ----------------------------------------------------------------------------


def test_a_wrong_result_is_never_timed(library: Subject, link: RankLink) -> None:
    machine = library.machine(link)
    wrong = library.moved("y", before="yl")
    for _ in range(2):
        outcome = machine.measure(wrong)
        assert outcome.failure.startswith("wrong result: ")
        assert outcome.value != outcome.value
    with pytest.raises(WrongResult):
        machine.noise_floor(wrong)
    assert not machine.measure(library.first).failure


def test_a_table_of_no_sense_is_a_failure(library: Subject, link: RankLink) -> None:
    machine = library.machine(link)
    outcome = machine.measure(Candidate(0, Traversal((Issue(999, None),))))  # type: ignore[arg-type]
    assert outcome.failure.startswith("run failed: row 0: ")
    assert not machine.measure(library.first).failure


def test_a_hang_is_named_and_the_next_measurement_works(library: Subject, link: RankLink) -> None:
    machine = library.machine(link)
    assert not machine.measure(library.first).failure
    hanging = library.moved("wait_recv", before="post_send")
    at = [row[1] for row in rows(hanging.traversal)].index(library.domain.spaces[0].graph.by_name("wait_recv").id)
    machine._watchdog = 3.0  # for this one alone: on a busy machine others may take as long
    outcome = machine.measure(hanging)
    machine._watchdog = 300.0
    assert outcome.failure.startswith("hang: ")
    assert "in `wait_recv` (entry " in outcome.failure
    assert f"of {len(hanging.traversal.entries)})" in outcome.failure
    assert at > 0
    assert not machine.measure(library.first).failure


def test_a_killed_rank_is_a_failure_and_the_next_measurement_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program that changes its input, so that some measurements compare several runs with what ranks stored at
    the first: those that were started again have not stored it yet."""
    library, mark = build_library(tmp_path, "nccl", HALO), f"DAGC_TEST_OF={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    with WorkerLink(RANKS) as link:
        machine = library.machine(link)
        assert not machine.measure(library.first).failure
        first = set(alive(mark))
        (victim,) = [pid for pid in first if _rank(pid) == 1]
        os.kill(victim, signal.SIGKILL)
        outcome = machine.measure(library.first)
        assert outcome.failure.startswith("run failed: ")
        assert "SIGKILL" in outcome.failure
        assert [machine.measure(library.first).failure for _ in range(2)] == ["", ""]  # the fourth is compared
        assert wait_until(lambda: not first.intersection(alive(mark)))


def test_a_configuration_in_which_all_fails_is_given_up(library: Subject, tmp_path: Path) -> None:
    with WorkerLink(RANKS) as link:
        missing = Loadable(replace(library.loadable.library, data=tmp_path / "no data"), rows)
        machine = LiveMachine(library.domain, [missing], link, seconds=0.002)
        failures = [machine.measure(library.first).failure for _ in range(4)]
        assert all(f.startswith("run failed: ") and "no data" in f for f in failures)
        assert ["given up" in f for f in failures] == [False, False, False, True]
        with pytest.raises(RunFailed, match="no data"):
            machine.noise_floor(library.first)


def test_a_library_that_does_not_load_is_a_failure(library: Subject, link: RankLink, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("not a library")
    machine = LiveMachine(
        library.domain, [Loadable(replace(library.loadable.library, path=tmp_path / "lib.so"), rows)], link
    )
    assert "cannot be loaded" in machine.measure(library.first).failure
    assert "cannot be loaded" in machine.probe(machine.domain.first(0)).failure
    again = library.machine(link)
    assert not again.probe(again.domain.first(0)).failure


def test_ranks_that_cannot_be_started_end_the_search(
    library: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter = tmp_path / "mpiexec"
    starter.write_text("#!/bin/sh\necho there are no slots >&2\nexit 1\n")
    starter.chmod(0o755)
    monkeypatch.setenv("DAGC_MPIEXEC", str(starter))
    with WorkerLink(RANKS) as link, pytest.raises(RunFailed, match=r"3 times in a row.*there are no slots"):
        library.machine(link).measure(library.first)


# ---- the end of the process that searches --------------------------------------------------------

SEARCHES = """
import sys
from pathlib import Path
from typing import Any
from random import Random
from dagc.store.records import Records
from dagc.measure.service import link_ranks
from dagc.ir.traversal import traversal_text
from tests.measure.test_live import RANKS, build_library
from tests.store.test_records import PROGRAM, RUN
library, random = build_library(Path(sys.argv[1])), Random(0)
(configured,) = library.domain.spaces
with link_ranks(RANKS) as link, Records.open(sys.argv[2], PROGRAM, RUN) as records:
    machine = library.machine(link, on_reference=records.reference)
    try:
        while True:
            candidate = library.domain.sample(random)
            key = records.begin(configured.configuration, traversal_text(candidate.traversal, configured.graph))
            outcome = machine.measure(candidate)
            records.add(key, outcome.value, outcome.reference, outcome.iterations)
            print("measured", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


# tests/cli/test_signals.py interrupts a search. The processes that are started here import this module: no Hypothesis.
@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)], ids=lambda s: s.name
)
def test_no_rank_and_no_result_is_lost_when_the_search_ends(
    library: Subject, folder: Path, tmp_path: Path, end: signal.Signals
) -> None:
    mark = f"DAGC_TEST_MARK={tmp_path}"
    scratch = Path(tempfile.mkdtemp(dir="/tmp"))  # a short name: sockets are in it
    process = subprocess.Popen(
        [sys.executable, "-c", SEARCHES, str(folder), str(tmp_path / "r.db")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "DAGC_TEST_MARK": str(tmp_path), "TMPDIR": str(scratch)}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        for _ in range(10):
            assert process.stdout.readline() == "measured\n"
        assert len(alive(mark)) > RANKS
        process.send_signal(end)
        said = 10 + process.stdout.read().count("measured\n")
    assert process.returncode == (-end if end == signal.SIGKILL else 0)
    measured = sum(len(i.samples) for i in load(tmp_path / "r.db").implementations)
    assert measured - said in (0, 1)  # it may end between writing and saying so
    assert wait_until(lambda: alive(mark) == [])
    assert list(scratch.glob("dagc-*")) == []
    shutil.rmtree(scratch)


JOINED = """
import sys
from pathlib import Path
from typing import Any
from random import Random
from dagc.measure.service import link_ranks
link = link_ranks(int(sys.argv[2]))
if link is None:
    print("served")
else:
    from tests.measure.test_live import RANKS, build_library  # not in all ranks: most of what the test costs
    with link:
        library = build_library(Path(sys.argv[1]))
        machine, random = library.machine(link), Random(0)
        if sys.argv[3:]:
            machine._watchdog = 3.0
            machine.measure(library.moved("wait_recv", before="post_send"))
        for _ in range(5):
            assert not machine.measure(library.domain.sample(random)).failure
        print("wrong result" in machine.measure(library.moved("y", before="yl")).failure)
        print(len(machine.trace(library.first)) == RANKS * len(library.first.traversal.entries))
"""


@pytest.mark.thorough  # with groups, below, and by the command: tests/recipes/test_explore.py
def test_ranks_that_the_user_has_started_measure(library: Subject, folder: Path) -> None:
    done = launch([sys.executable, "-c", JOINED, folder, str(RANKS)], RANKS, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0, done.stderr
    # Words, not lines: a starter may mix what its ranks write.
    assert [done.stdout.count(word) for word in ("True", "False", "served")] == [2, 0, RANKS - 1]


GROUPS = """
import sys
from pathlib import Path
from typing import Any
from random import Random
from dagc.measure.service import link_groups
links = link_groups(int(sys.argv[2]), 2)
if not links:
    print("served")
else:
    from tests.measure.test_live import build_library  # not in all ranks: most of what the test costs
    library, random = build_library(Path(sys.argv[1])), Random(0)
    first = library.machine(links[0])
    assert not first.measure(library.first).failure
    second = first.beside(links[1])
    for machine in (first, second):
        assert len(machine.hosts("host", "")) == 1
        for _ in range(3):
            sample = machine.measure(library.domain.sample(random))
            assert not sample.failure and sample.reference > 0
    print("wrong result" in second.measure(library.moved("y", before="yl")).failure)
    for link in links:
        link.close()
"""


def test_groups_of_the_ranks_that_the_user_has_started_measure(library: Subject, folder: Path) -> None:
    done = launch(
        [sys.executable, "-c", GROUPS, folder, str(RANKS)], 2 * RANKS, cwd=Path(__file__).parents[2], timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(word) for word in ("True", "False", "served")] == [1, 0, 2 * RANKS - 1]


def test_a_group_whose_ranks_cannot_be_started_again_is_lost(
    library: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its death says nothing about what it measured. One that can be started again has a failure, as without groups."""
    mark = f"DAGC_TEST_OF={tmp_path}"
    with WorkerLink(RANKS) as link, WorkerLink(RANKS, groups=2, env=dict([mark.split("=")])) as other:
        machine = library.machine(link)
        assert not machine.measure(library.first).failure
        beside = machine.beside(other)
        sample = beside.measure(library.first)
        assert not sample.failure
        assert sample.reference > 0
        os.kill(next(pid for pid in alive(mark) if _rank(pid) == 1), signal.SIGKILL)
        assert "SIGKILL" in beside.measure(library.first).failure
        starter = tmp_path / "mpiexec"
        starter.write_text("#!/bin/sh\necho the node is down >&2\nexit 1\n")
        starter.chmod(0o755)
        monkeypatch.setenv("DAGC_MPIEXEC", str(starter))
        os.kill(next(pid for pid in alive(mark) if _rank(pid) == 1), signal.SIGKILL)
        with pytest.raises(RunFailed, match="the node is down"):
            beside.measure(library.first)
        assert not machine.measure(library.first).failure


@pytest.mark.thorough
def test_a_hang_ends_ranks_that_the_user_has_started(library: Subject, folder: Path) -> None:
    done = launch(
        [sys.executable, "-c", JOINED, folder, str(RANKS), "hang"], RANKS, cwd=Path(__file__).parents[2], timeout=300
    )
    assert done.returncode not in (0, 124)
    assert "dagc: hang: rank 0 in `wait_recv`" in done.stderr


def test_the_number_of_ranks_must_be_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(UsageError, match="4 ranks are needed"):
        link_ranks(4)
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(SystemExit, match="^0$"):  # silent: the first rank says it for all
        link_ranks(4)


def test_ranks_need_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    require_ranks()
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # as where it is not installed
    with pytest.raises(MissingTool, match="mpi4py is not installed"):
        require_ranks()

"""Results files: what is written comes back, nothing is lost by a death, and every wrong file is named."""

from __future__ import annotations

import csv
import io
import math
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import DagcError, NotWritten, UsageError
from dagc.ir.choice import Choice
from dagc.store.export import export_csv, export_parquet
from dagc.store.merge import merge
from dagc.store.records import RUN_ENDED_TWICE, Records, is_fresh, load
from dagc.store.results import GROUP, MachineRecord, ProgramRecord, Run, TraceSpan, ranking, unlike
from dagc.store.tuned import InputFacts, input_key, input_to_json
from tests.data.h200 import h200_file, h200_results
from tests.tiers import examples

NAN = float("nan")
PROGRAM = ProgramRecord("p", "p.dag", "0123456789abcdef", (("p.dag", "program p"),), (("n", 3), ("x", 0.5)))
MACHINE = MachineRecord(("here",), "a CPU", 4, ("a GPU",), "1.0", "an MPI", "cuda", "sm_90", {"clocks": ["1 GHz"]})
RUN = Run("2026-01-01T00:00:00+00:00", MACHINE, 4, 7, "random", 0.01, "abc", "0.2", options={"budget": 5})
HOST = Choice((("capture", False), ("streams", 2), ("transport", "mpi_host")))
NCCL = Choice((("capture", True), ("streams", 2), ("transport", "nccl")))


def written(path: Path, times: dict[str, list[float]], run: Run = RUN, program: ProgramRecord = PROGRAM) -> Path:
    """A file with these times of traversals of one configuration."""
    with Records.open(path, program, run) as records:
        for traversal, seconds in times.items():
            for value in seconds:
                records.add(records.begin(HOST, traversal), value, NAN, 10)
    return path


# ---- what is written comes back ---------------------------------------------------------------


def test_an_implementation_with_and_without_a_later_decision_is_one(tmp_path: Path) -> None:
    """As in a file that a later version of dagc resumed: the best is not second to itself."""
    later = Choice((*HOST.decisions, ("transfers", "at_need")))
    other = Choice((*HOST.decisions, ("transfers", "early")))
    with Records.open(tmp_path / "r.db", PROGRAM, RUN) as records:
        for configuration, value in ((HOST, 3e-6), (later, 1e-6), (other, 4e-6), (HOST, 2e-6)):
            records.add(records.begin(configuration, "a b end"), value, NAN, 10)
    results = load(tmp_path / "r.db")
    found = {i.configuration: i.times() for i in results.implementations}
    assert found == {later: (3e-6, 1e-6, 2e-6), other: (4e-6,)}
    assert [i.configuration for i in ranking(results)] == [later]
    assert [place.order for i in results.implementations for place in i.taken] == [0, 1, 3, 2]


def test_the_h200_measurements_come_back(tmp_path: Path) -> None:
    expected = h200_results()
    found = load(h200_file(tmp_path))
    assert (found.program, found.runs) == (expected.program, expected.runs)
    assert len(found.implementations) == 2036
    for a, b in zip(found.implementations, expected.implementations, strict=True):
        assert (a.configuration, a.traversal, a.times()) == (b.configuration, b.traversal, b.times())
        assert a.taken == b.taken
    assert found.noise == pytest.approx(expected.noise)
    assert 0.02 < found.noise < 0.04  # the spread between passes that was published with them is 3 %


def test_all_of_a_run_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "r.db"
    spans = (TraceSpan(0, 0, 0.0, 1e-6), TraceSpan(0, 1, 1e-6, 2e-6, 1.5e-6, 3e-6), TraceSpan(1, 0, 0.0, 2e-6))
    with Records.open(path, PROGRAM, RUN) as records:
        a = records.begin(HOST, "a end")
        records.add(a, 1e-3, NAN, 10)
        b = records.begin(NCCL, "a end")
        records.fail(b, "hang: rank 2 in `a` (entry 1 of 2)")
        assert records.begin(HOST, "a end") == a != b
        records.add(a, 2e-3, NAN, 10, "confirm")
        records.add(records.begin(HOST, "edited end"), 3e-3, NAN, 10, "explain")
        records.trace(a, spans[:1])
        records.trace(a, spans)
        records.noise(0.025)
        assert records.under_way is None
        inside = records.results()
    results = load(path)
    assert repr(results) == repr(inside)
    (run,) = results.runs
    assert replace(run, noise=NAN) == replace(RUN, noise=NAN)
    assert (run.noise, run.options, run.machine.facts) == (0.025, RUN.options, MACHINE.facts)
    assert results.program == PROGRAM
    assert results.noise == 0.025  # too few repeats to know better
    assert math.isnan(results.reference)
    first, second, edited = results.implementations
    assert (first.id, first.configuration, first.traversal, first.failure) == (a, HOST, "a end", "")
    assert [m.value for m in first.samples] == [1e-3, 2e-3]
    assert [place.order for place in first.taken] == [0, 1]
    assert (second.configuration, second.samples) == (NCCL, ())
    assert second.failure == "hang: rank 2 in `a` (entry 1 of 2)"
    assert edited.samples == ()  # of no search
    assert repr(results.traces[a]) == repr(spans)
    assert [i.id for i in results.measured()] == [a]
    assert [p.name for p in path.parent.iterdir()] == ["r.db"]


def test_a_purpose_is_one_of_three(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db", PROGRAM, RUN) as records:
        key = records.begin(HOST, "a")
        with pytest.raises(ValueError, match="serach"):
            records.add(key, 1.0, NAN, 1, "serach")


def test_a_file_is_read_while_a_writer_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        for number in range(3):
            records.add(records.begin(HOST, "a"), 1.0, NAN, 1)
            assert len(load(path).implementations[0].samples) == number + 1


# ---- drift --------------------------------------------------------------------------------------


@given(
    speeds=st.lists(st.sampled_from([1.0, 1.1, 1.25]), min_size=1, max_size=3),
    true=st.lists(st.floats(1e-5, 1e-3), min_size=2, max_size=5),
    reference=st.floats(1e-5, 1e-3),
)
@settings(max_examples=examples(20), deadline=None)
def test_drift_is_divided_out(
    tmp_path_factory: pytest.TempPathFactory, speeds: list[float], true: list[float], reference: float
) -> None:
    """A machine that becomes slower slows the reference as much: times in the same proportion stay so."""
    path = tmp_path_factory.mktemp("drift") / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        for slower in speeds:
            for _ in range(3):
                records.reference(reference * slower)
            for number, seconds in enumerate(true):
                records.add(records.begin(HOST, f"t{number}"), seconds * slower, NAN, 1)
            for _ in range(3):
                records.reference(reference * slower)
    results = load(path)
    for measured, seconds in zip(results.implementations, true, strict=True):
        times = measured.times(results.reference)
        assert times == pytest.approx([seconds * results.reference / reference] * len(speeds))


def test_one_disturbed_timing_of_the_reference_shifts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        for reference in (1.0, 1.0, 1.5, 1.0, 1.0):
            records.reference(reference)
            records.add(records.begin(HOST, "a"), 2.0, NAN, 1)
    results = load(path)
    assert results.reference == 1.0
    assert results.implementations[0].times(results.reference) == (2.0,) * 5


def test_the_references_of_a_run_may_come_with_its_measurements(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        for seconds, reference in ((2.0, 1.0), (2.0, 1.0), (2.0, 1.0), (4.0, 2.0), (4.0, 2.0), (4.0, 2.0), (2.0, NAN)):
            records.add(records.begin(HOST, "a"), seconds, reference, 1)
    times = load(path).implementations[0].times(1.5)
    assert times[0] == times[5] == 3.0


def test_another_reference_in_another_run_leaves_times_as_they_are(tmp_path: Path) -> None:
    """Each run divides out the drift against its own reference; a resumed one may have chosen another."""
    path = tmp_path / "r.db"
    for reference in (1.0, 5.0):
        with Records.open(path, PROGRAM, RUN, resume=path.exists()) as records:
            records.reference(reference)
            records.add(records.begin(HOST, "a"), 2.0, reference, 1)
    results = load(path)
    assert results.implementations[0].times(results.reference) == pytest.approx([2.0, 2.0])


@given(follow=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 100))
@settings(max_examples=examples(10), deadline=None)
def test_drift_is_divided_out_as_far_as_repeated_measurements_follow_it(
    tmp_path_factory: pytest.TempPathFactory, follow: float, seed: int
) -> None:
    """The reference waits for messages through the host, say, on which most implementations hardly depend."""
    random, path = Random(seed), tmp_path_factory.mktemp("drift") / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        for _ in range(30):
            slower = random.choice([0.9, 1.0, 1.3])
            for _ in range(3):
                records.reference(1e-3 * slower)
            for number in range(4):
                records.add(records.begin(HOST, f"t{number}"), (number + 1) * 1e-4 * slower**follow, NAN, 1)
            for _ in range(3):
                records.reference(1e-3 * slower)
    results = load(path)
    for number, measured in enumerate(results.implementations):
        times = measured.times(results.reference)
        assert max(times) / min(times) < 1.001
        assert times[0] == pytest.approx((number + 1) * 1e-4, rel=0.31)  # whatever the speed of the reference is
    assert results.noise < 1e-3


def test_the_speed_of_groups_that_measured_side_by_side_is_divided_out(tmp_path: Path) -> None:
    """As drift within one run: they have one reference."""
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        slow = records.beside(replace(RUN, options={GROUP: 2}))
        for group, speed in ((records, 1.0), (slow, 1.25)):
            for _ in range(3):
                group.reference(1e-3 * speed)
            for number in range(4):
                for _ in range(4):
                    group.add(group.begin(HOST, f"t{number}"), (number + 1) * 1e-4 * speed, NAN, 1)
    results = load(path)
    assert [run.options.get(GROUP) for run in results.runs] == [None, 2]
    for number, measured in enumerate(results.implementations):
        assert measured.times(results.reference) == pytest.approx([(number + 1) * 1e-4] * 8)
    merge([path, written(tmp_path / "other.db", {"t9": [1e-3]})], tmp_path / "merged.db")
    merged = load(tmp_path / "merged.db")
    assert [m.times(merged.reference) for m in merged.implementations[:4]] == [
        m.times(results.reference) for m in results.implementations
    ]


def test_each_group_has_a_measurement_under_way(tmp_path: Path) -> None:
    """What the ranks died of may be any of them, so all are measured once more, and twice at most."""
    path = tmp_path / "r.db"
    for deaths in (0, 1):
        with Records.open(path, PROGRAM, RUN, resume=deaths > 0) as records:
            group = records.beside(replace(RUN, options={GROUP: 2}))
            records.begin(HOST, "mine")
            group.add(group.begin(HOST, "finished"), 1e-3, NAN, 1)
            group.begin(HOST, "its")
            copy = tmp_path / "killed.db"
            copy.write_bytes(_as_if_killed(path))
        path.write_bytes(copy.read_bytes())
    with Records.open(path, PROGRAM, RUN, resume=True) as records:
        assert records.under_way is not None
    failed = {i.traversal: i.failure for i in load(path).implementations}
    assert failed == {"mine": RUN_ENDED_TWICE, "its": RUN_ENDED_TWICE, "finished": ""}


def _as_if_killed(path: Path) -> bytes:
    """The file as another process sees it, with all that is committed."""
    source, target = sqlite3.connect(path), sqlite3.connect(":memory:")
    source.backup(target)
    source.close()
    return target.serialize()


# ---- resuming, and deaths ----------------------------------------------------------------------

DIES = """
import os, signal, sys
from tests.store.test_records import HOST, NAN, PROGRAM, RUN, Records
records = Records.open(sys.argv[1], PROGRAM, RUN, resume=True)
print(records.under_way.traversal if records.under_way else "nothing", flush=True)
for i in range(50):
    records.add(records.begin(HOST, f"t{i}"), 1e-3, NAN, 10)
records.begin(HOST, "deadly")
os.kill(os.getpid(), signal.SIGKILL)
"""


def _die(path: Path) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(path)], capture_output=True, text=True, cwd=root, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


def test_nothing_that_was_measured_is_lost_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    assert _die(path) == "nothing"
    results = load(path)
    assert [(i.traversal, len(i.samples)) for i in results.implementations] == [
        *((f"t{i}", 1) for i in range(50)),
        ("deadly", 0),
    ]
    # It is measured again once; what ends the run a second time is at fault.
    assert _die(path) == "deadly"
    assert load(path).implementations[50].failure == ""
    with Records.open(path, PROGRAM, RUN, resume=True) as records:
        assert records.under_way is not None
        assert records.under_way.failure == "the run ended twice while it was measured"
    last = load(path).implementations[50]
    assert (last.traversal, last.failure) == ("deadly", "the run ended twice while it was measured")


def test_a_measurement_that_was_given_up_is_no_death(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        records.begin(HOST, "a")
    with Records.open(path, PROGRAM, RUN, resume=True) as records:
        assert records.under_way is None
    assert len(load(path).runs) == 2


def test_a_measurement_knows_its_run(tmp_path: Path) -> None:
    path = written(tmp_path / "r.db", {"a": [1.0]})
    with Records.open(path, PROGRAM, RUN, resume=True) as records:
        for traversal in ("a", "b"):
            records.add(records.begin(HOST, traversal), 2.0, NAN, 1)
    a, b = load(path).implementations
    assert [[place.run for place in i.taken] for i in (a, b)] == [[0, 1], [1]]


def test_resuming_a_file_that_is_not_there_makes_it(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for name in ("new.db", "empty.db"):
        with Records.open(tmp_path / name, PROGRAM, RUN, resume=True) as records:
            records.add(records.begin(HOST, "a"), 1.0, NAN, 1)
        assert len(load(tmp_path / name).measured()) == 1


def test_a_run_that_measured_nothing_leaves_no_file(tmp_path: Path) -> None:
    """Else the next run would be told that its file exists."""
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        records.reference(1.0)
        records.noise(0.1)
    assert list(tmp_path.iterdir()) == []
    written(path, {"a": [1.0]})
    with Records.open(path, PROGRAM, RUN, resume=True):
        pass
    assert len(load(path).measured()) == 1


def test_a_full_disk_is_told_and_what_was_measured_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    full = pytest.raises(NotWritten, match=r"r\.db cannot be written: database or disk is full")
    records = Records.open(path, PROGRAM, RUN)
    records.add(records.begin(HOST, "a"), 1.0, NAN, 1)
    (pages,) = records._connection.execute("PRAGMA page_count").fetchone()
    records._connection.execute(f"PRAGMA max_page_count = {pages}")
    with full as error:
        for number in range(1000):
            records.add(records.begin(HOST, f"traversal {number}"), 1.0, NAN, 1)
    assert "--resume" in error.value.help
    kept = len(records.results().measured())
    with full:  # nor is it half way into a transaction
        for number in range(1000):
            records.add(records.begin(HOST, f"another {number}"), 1.0, NAN, 1)
    records.close()
    assert len(load(path).measured()) >= kept > 0
    assert [p.name for p in tmp_path.iterdir()] == ["r.db"]
    with Records.open(path, PROGRAM, RUN, resume=True) as records:
        records.add(records.begin(HOST, "later"), 1.0, NAN, 1)


# ---- wrong files --------------------------------------------------------------------------------


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "r.db", {"a": [1.0]})
    with pytest.raises(UsageError, match=r"r\.db exists") as error:
        Records.open(path, PROGRAM, RUN)
    assert "--resume" in error.value.help
    assert len(load(path).measured()) == 1


@pytest.mark.parametrize(
    ("program", "run", "message"),
    [
        (replace(PROGRAM, name="q", hash="fedcba"), RUN, r"another program \(p 0123456789abcdef; this is q fedcba\)"),
        (PROGRAM, replace(RUN, ranks=2), "measured on 4 ranks, this run has 2"),
        (PROGRAM, replace(RUN, machine=replace(MACHINE, driver="2.0")), r"another machine \(.*1\.0.*2\.0"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, program: ProgramRecord, run: Run, message: str) -> None:
    path = written(tmp_path / "r.db", {"a": [1.0]})
    before = path.read_bytes()
    with pytest.raises(UsageError, match=message):
        Records.open(path, program, run, resume=True)
    assert path.read_bytes() == before


def test_another_machine_may_be_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "r.db", {"a": [1.0]})
    elsewhere = replace(RUN, machine=replace(MACHINE, cpu="another CPU"))
    with Records.open(path, PROGRAM, elsewhere, resume=True, other_machine=True):
        pass
    assert [run.machine.cpu for run in load(path).runs] == ["a CPU", "another CPU"]


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _no_text(path: Path) -> None:
    """What is wrong with it SQLite tells in the bytes of the file, which are not UTF-8."""
    content = path.read_bytes()
    name = b"sqlite_autoindex_candidate_1"
    assert name in content
    path.write_bytes(content.replace(name, b"\x82" + name[1:]))


def _other_database(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (key, value)")
    connection.close()


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "newer": (_newer, r"made by a newer dagc \(schema 99"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]), "truncated"),
    "almost nothing": (lambda p: p.write_bytes(p.read_bytes()[:100]), "truncated"),
    "overwritten": (lambda p: p.write_bytes(p.read_bytes()[:4096] + b"\xa5" * (p.stat().st_size - 4096)), "damaged"),
    "text": (lambda p: p.write_text("traversal,seconds\n" * 400), "not a results file"),
    "no text": (_no_text, "damaged"),
    "other database": (_other_database, "not a results file of dagc"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_file_is_named(tmp_path: Path, spoiled: str) -> None:
    path = written(tmp_path / "r.db", {f"t{i}": [1.0, 2.0] for i in range(200)})
    spoil, message = SPOILED[spoiled]
    spoil(path)
    content = path.read_bytes()
    for attempt in (lambda: load(path), lambda: Records.open(path, PROGRAM, RUN, resume=True)):
        with pytest.raises(UsageError, match=message) as error:
            attempt()
        assert "r.db" in error.value.message
    assert path.read_bytes() == content


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.db: no such file"):
        load(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="not a file"):
        load(tmp_path)
    with pytest.raises(UsageError):
        Records.open(tmp_path, PROGRAM, RUN, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file"):
        Records.open(tmp_path / "file" / "r.db", PROGRAM, RUN)


def test_there_is_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    busy = pytest.raises(UsageError, match=r"r\.db: another dagc writes to it \(process \d+\)")
    with Records.open(path, PROGRAM, RUN), busy:
        Records.open(path, PROGRAM, RUN, resume=True)
    with Records.open(path, PROGRAM, RUN, resume=True):
        pass


# ---- merge --------------------------------------------------------------------------------------


def test_merged_files_hold_what_each_of_them_holds(tmp_path: Path) -> None:
    first, second, out = tmp_path / "1.db", tmp_path / "2.db", tmp_path / "out.db"
    with Records.open(first, PROGRAM, RUN) as records:
        records.reference(1.0)
        records.add(records.begin(HOST, "a"), 2.0, NAN, 1)
        records.reference(1.0)
        records.fail(records.begin(NCCL, "a"), "run failed: no NCCL")
        records.fail(records.begin(NCCL, "c"), "run failed: no NCCL")
    with Records.open(second, PROGRAM, replace(RUN, seed=8)) as records:
        records.reference(8.0)
        b = records.begin(HOST, "b")
        records.add(b, 4.0, NAN, 1)
        records.trace(b, [TraceSpan(0, 0, 0.0, 1.0)])
        records.reference(8.0)
        records.add(records.begin(HOST, "a"), 3.0, NAN, 1)
        records.add(records.begin(NCCL, "a"), 1.0, NAN, 1)
    merge([first, second], out)
    results = load(out)
    assert [run.seed for run in results.runs] == [7, 8]
    found = {(i.configuration, i.traversal): i for i in results.implementations}
    assert len(found) == len(results.implementations) == 4
    times = {key: i.times(results.reference) for key, i in found.items()}
    assert times == {(HOST, "a"): (2.0, 3.0), (NCCL, "a"): (1.0,), (NCCL, "c"): (), (HOST, "b"): (4.0,)}
    assert {key[1]: i.failure for key, i in found.items() if i.failure} == {"c": "run failed: no NCCL"}
    assert sorted(place.order for i in results.implementations for place in i.taken) == [0, 1, 2, 3]
    assert {found[HOST, "b"].id: (TraceSpan(0, 0, 0.0, 1.0),)}.keys() == results.traces.keys()
    with Records.open(out, PROGRAM, RUN, resume=True) as records:  # it is a results file like any other
        assert records.under_way is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.db", "2.db", "out.db"]


def test_a_measured_implementation_may_fail_in_another_file_first_or_last(tmp_path: Path) -> None:
    good = written(tmp_path / "good.db", {"a": [1.0]})
    bad = tmp_path / "bad.db"
    with Records.open(bad, PROGRAM, RUN) as records:
        records.fail(records.begin(HOST, "a"), "run failed")
    for number, paths in enumerate(([good, bad], [bad, good])):
        merge(paths, tmp_path / f"out{number}.db")
        (found,) = load(tmp_path / f"out{number}.db").implementations
        assert (found.failure, found.times()) == ("", (1.0,))


@pytest.mark.parametrize(
    ("program", "run", "message"),
    [
        (replace(PROGRAM, hash="fedcba", sources=(("p.dag", "program p2"),)), RUN, "another program"),
        (replace(PROGRAM, hash="fedcba", params=(("n", 3),)), RUN, "another program"),
        (PROGRAM, replace(RUN, ranks=2), "2 ranks"),
        (PROGRAM, replace(RUN, machine=replace(MACHINE, target="host")), "another machine"),
    ],
)
def test_files_of_different_things_are_not_merged(
    tmp_path: Path, program: ProgramRecord, run: Run, message: str
) -> None:
    first = written(tmp_path / "1.db", {"a": [1.0]})
    second = written(tmp_path / "2.db", {"a": [1.0]}, run, program)
    with pytest.raises(UsageError, match=message) as error:
        merge([first, second], tmp_path / "out.db")
    assert "2.db" in error.value.message
    assert not (tmp_path / "out.db").exists()
    if message == "another machine":
        merge([first, second], tmp_path / "out.db", other_machine=True)
        assert len(load(tmp_path / "out.db").runs) == 2


def test_merging_needs_two_files_and_a_new_name(tmp_path: Path) -> None:
    first, second = (written(tmp_path / f"{i}.db", {"a": [1.0]}) for i in range(2))
    with pytest.raises(UsageError, match="one file"):
        merge([first], tmp_path / "out.db")
    with pytest.raises(UsageError, match=r"1\.db exists"):
        merge([first, second], second)
    with pytest.raises(UsageError, match="no such file"):
        merge([first, tmp_path / "none.db"], tmp_path / "out.db")
    (tmp_path / "link.db").symlink_to(first)
    with pytest.raises(UsageError, match=r"link\.db and .*0\.db contain the same run"):
        merge([first, second, tmp_path / "link.db"], tmp_path / "out.db")
    with pytest.raises(UsageError, match="contain the same run"):
        merge([first, first], tmp_path / "out.db")
    assert not (tmp_path / "out.db").exists()


def test_a_run_is_not_counted_twice(tmp_path: Path) -> None:
    """A file, and its copy that went on: the run that both hold would seem to have been repeated."""
    first, second = tmp_path / "1.db", tmp_path / "2.db"
    with Records.open(first, PROGRAM, RUN) as records:
        records.noise(0.0123)
        records.add(records.begin(HOST, "a"), 1.0, NAN, 1)
    second.write_bytes(first.read_bytes())
    with Records.open(second, PROGRAM, RUN, resume=True) as records:
        records.noise(0.0234)
        records.add(records.begin(HOST, "a"), 1.0, NAN, 1)
    with pytest.raises(UsageError, match=r"2\.db and .*1\.db contain the same run, started 2026-01-01"):
        merge([first, second], tmp_path / "out.db")


def test_a_merge_onto_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    for name in ("1.db", "2.db"):
        written(tmp_path / name, {f"traversal {i}": [1.0] for i in range(500)})
    code = "import sys; from dagc.cli.main import main; sys.exit(main(['merge', '1.db', '2.db', '-o', 'out.db']))"
    limits = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)); "
    done = subprocess.run([sys.executable, "-B", "-c", limits + code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 5
    assert "dagc: error: out.db cannot be read or written" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.db", "2.db"]


# ---- export -------------------------------------------------------------------------------------


def _exported(tmp_path: Path) -> Path:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        records.reference(1.0)
        records.add(records.begin(HOST, "a end"), 2.0, NAN, 1)
        records.fail(records.begin(NCCL, "b end"), "hang: rank 0, somewhere")
    return path


def test_csv_has_a_line_for_each_measurement(tmp_path: Path) -> None:
    out = io.StringIO()
    export_csv(load(_exported(tmp_path)), out)
    good, bad = csv.DictReader(io.StringIO(out.getvalue()))
    assert good == {
        "implementation": "1", "configuration": "capture=false streams=2 transport=mpi_host", "traversal": "a end",
        "number": "0", "order": "0", "seconds": "2.0", "reference": "1.0", "adjusted_seconds": "2.0", "failure": "",
    }  # fmt: skip
    assert (bad["seconds"], bad["number"], bad["failure"]) == ("", "", "hang: rank 0, somewhere")


def test_parquet_has_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_parquet(load(_exported(tmp_path)), tmp_path / "r.parquet")
    table = parquet.read_table(tmp_path / "r.parquet")
    good, bad = table.to_pylist()
    assert (good["seconds"], good["adjusted_seconds"], good["number"], good["order"]) == (2.0, 2.0, 0, 0)
    assert (bad["seconds"], bad["number"], bad["failure"]) == (None, None, "hang: rank 0, somewhere")
    assert table.schema.metadata[b"program_hash"] == PROGRAM.hash.encode()
    with pytest.raises(DagcError, match="none"):
        export_parquet(load(tmp_path / "r.db"), tmp_path / "none" / "r.parquet")


def test_a_tuned_file_goes_on_wherever_the_program_lies(tmp_path: Path) -> None:
    """The texts count, not their paths, comments and layout; another text is refused."""
    path = tmp_path / "t.db"
    written(path, {"a": [1.0]})
    moved = replace(PROGRAM, path="/elsewhere/p.dag", sources=(("/elsewhere/p.dag", "program p"),))
    Records.open(path, moved, RUN, resume=True, tuning=True).close()
    edited = replace(moved, sources=(("/elsewhere/p.dag", "program   p // edited"),))
    Records.open(path, edited, RUN, resume=True, tuning=True).close()
    with pytest.raises(UsageError, match="tuned for another text of p"):
        Records.open(path, replace(moved, sources=(("p.dag", "program p2"),)), RUN, resume=True, tuning=True)


def test_inputs_are_kept_one_by_one_and_those_of_earlier_versions_are_read(tmp_path: Path) -> None:
    first, second, third = (InputFacts({"n": n}, elements=n) for n in (1, 2, 3))
    with Records.open(tmp_path / "r.db", PROGRAM, RUN, tuning=True) as records:
        records.set_fact("inputs", [input_to_json(one) for one in (first, second)])  # as versions before wrote them
        records.set_fact(input_key(2), input_to_json(third))
        records.set_fact(input_key(0), input_to_json(replace(first, elements=9)))
        assert records.tuned().facts.inputs == (replace(first, elements=9), second, third)


def test_facts_in_which_hosts_differ_are_named() -> None:
    clocks = {"clocks.max.sm": "1980 MHz", "clocks.max.mem": "3201 MHz"}
    of = "the largest clocks of GPU and memory"
    fast = replace(MACHINE, hosts=("a",), facts={"clocks": [clocks]})
    slow = replace(fast, hosts=("b",), facts={"clocks": [{**clocks, "clocks.max.sm": "1755 MHz"}]})
    assert unlike([fast, replace(fast, hosts=("b",))]) == []
    assert unlike([fast, slow]) == [f"the hosts differ in {of}: 1980 MHz and 3201 MHz on a; 1755 MHz and 3201 MHz on b"]
    others = replace(fast, hosts=("c",), gpus=(), driver="2.0", mpi="another MPI")
    assert unlike([fast, others]) == [
        "the hosts differ in their GPUs: a GPU on a; none on c",
        "the hosts differ in the driver: 1.0 on a; 2.0 on c",
        "the hosts differ in the MPI: an MPI on a; another MPI on c",
    ]


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="x.db cannot be written: Not a directory"):
        is_fresh(tmp_path / "file" / "below" / "x.db", resume=False)
    assert is_fresh(tmp_path / "below" / "x.db", resume=False)

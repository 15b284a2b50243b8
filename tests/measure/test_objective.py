"""Objectives other than the time: what is read as one, and a search for one from end to end."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.api import load_graph
from dagc.base.errors import MissingTool, UsageError
from dagc.base.sample import TIME, Objective, parse_objective
from dagc.build.toolchain import gpus
from dagc.cli.main import main
from dagc.measure.metrics import Amount, memory, objective_for
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from dagc.store.merge import merge
from dagc.store.records import Records, load
from dagc.store.results import best_estimate, ranking
from tests.measure.conftest import SPMV, can_run
from tests.store.test_records import HOST, NAN, PROGRAM, RUN
from tests.tiers import examples

UNITS = {"time": "s", "energy": "J", "cpu": "s"}

# ---- expressions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("time", 2e-5, "20.00 us"),
        ("energy", 0.25, "250 mJ"),
        ("energy*time", 5e-6, "5e-06"),
        (" energy * time**2 ", 1e-10, "1e-10"),
        ("max:energy", 4.0, "4"),
        ("-energy + 1", 0.75, "0.75"),
        ("time * max(1, energy / 0.125)", 4e-5, "4e-05"),
        ("min(energy, 1, 2*time)", 4e-5, "4e-05"),
        ("2e0", None, ""),
    ],
)
def test_values_of_expressions(text: str, value: float | None, shown: str) -> None:
    if value is None:
        with pytest.raises(UsageError, match="names no metric"):
            parse_objective(text, UNITS)
        return
    found = parse_objective(text, UNITS)
    assert found.value({"time": 2e-5, "energy": 0.25}) == pytest.approx(value)
    assert found.show(value) == shown
    assert parse_objective(found.text, UNITS) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed", r"objective `speed`, column 1: unknown metric `speed`"),
        ("time * powr", r"column 8: unknown metric `powr`"),
        ("time +", "column 7: invalid syntax"),
        ("", "invalid syntax"),
        ("max:", "objective `max:`, column 5"),
        ("max: powr", "column 6: unknown metric `powr`"),
        ("__import__('os').system('touch x')", "column 1: not a number, a metric"),
        ("time if time else energy", "not a number, a metric"),
        ("time.real", "not a number, a metric"),
        ("time % 2", "not a number, a metric"),
        ("True * time", "column 1: not a number, a metric"),
        ("1j * time", "not a number, a metric"),
        ("max(time)", "column 1: not a number, a metric"),
        ("max(time, key = energy)", "column 1: not a number, a metric"),
        ("time * abs(energy, 1)", "column 8: not a number, a metric or one of"),
        ("time\0", "is not an expression|null bytes"),
        ("(" * 150 + "time" + ")" * 150, "more than 200|not an expression|too many"),
    ],
)
def test_what_is_no_objective(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse_objective(text, UNITS)
    assert error.value.help


@pytest.mark.parametrize(
    "text",
    [
        "time - time",
        "time / (energy - energy)",
        "time - energy",
        "(time - energy) ** 0.5",
        "9**9**9**time",
        "max((-time) ** 0.5, 1)",
    ],
)
def test_what_is_no_number_above_0_is_no_value(text: str) -> None:
    assert math.isnan(parse_objective(text, UNITS).value({"time": 1.0, "energy": 2.0}))


@given(st.text(alphabet="time energy+-*/()1.e_:max", max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_an_objective_or_an_error(text: str) -> None:
    try:
        found = parse_objective(text, UNITS)
    except UsageError:
        return
    value = found.value({"time": 2e-5, "energy": 0.25})
    assert math.isnan(value) or 0 < value < math.inf


# ---- files ----------------------------------------------------------------------------------


def _file(path: Path, objective: str = "energy") -> Path:
    """`a` takes less time, `b` less energy; one measurement of `c` has no energy."""
    with Records.open(path, PROGRAM, replace(RUN, options={"objective": objective})) as records:
        records.metric("energy", "J")
        for traversal, seconds, joules in (("a", 1e-3, 3.0), ("b", 2e-3, 1.0)):
            for _ in range(3):
                records.add(records.begin(HOST, traversal), seconds, NAN, 10, others={"energy": joules})
        records.add(records.begin(HOST, "c"), 1e-4, NAN, 10)
    return path


def test_a_file_is_read_for_what_it_was_searched_for(tmp_path: Path) -> None:
    path = _file(tmp_path / "r.db")
    results = load(path)
    assert results.objective == Objective("energy", ("energy",), "J")
    assert [(i.traversal, i.value(results.reference)) for i in ranking(results)] == [("b", 1.0), ("a", 3.0)]
    assert results.implementations[2].samples == ()
    product = load(path, "energy*time")
    assert [(i.traversal, i.value()) for i in ranking(product)] == [("b", 2e-3), ("a", 3e-3)]
    assert ranking(load(path, "time"))[0].traversal == "a"
    assert ranking(load(path, "max:energy"))[0].traversal == "a"
    with pytest.raises(UsageError, match=r"r\.db: objective `cpu`, column 1: unknown metric `cpu`"):
        load(path, "cpu")
    with pytest.raises(UsageError, match=r"r\.db: objective `time - energy` is not a number above 0 for measurement 1"):
        load(path, "time - energy")


def test_merged_files_have_the_metrics_of_both(tmp_path: Path) -> None:
    first = _file(tmp_path / "1.db")
    second = tmp_path / "2.db"
    with Records.open(second, PROGRAM, replace(RUN, seed=8, options={"objective": "energy"})) as records:
        for name, unit in (("cpu", "s"), ("energy", "J")):  # with other IDs than in the first file
            records.metric(name, unit)
        records.add(records.begin(HOST, "b"), 5e-3, NAN, 10, others={"energy": 7.0, "cpu": 0.5})
    third = tmp_path / "3.db"
    with Records.open(third, PROGRAM, replace(RUN, seed=9)) as records:
        records.metric("energy", "kWh")
        records.add(records.begin(HOST, "b"), 5e-3, NAN, 10, others={"energy": 7.0})
    with pytest.raises(UsageError, match="energy was measured in 'J', not in 'kWh'"):
        merge([first, third], tmp_path / "m.db")
    assert not (tmp_path / "m.db").exists()
    merge([first, second], tmp_path / "m.db")
    results = load(tmp_path / "m.db")
    assert results.objective.text == "energy"
    assert results.units == {"time": "s", "energy": "J", "cpu": "s"}
    b = next(i for i in results.implementations if i.traversal == "b")
    assert [m.metrics for m in b.samples][2:] == [
        {"time": 2e-3, "energy": 1.0}, {"time": 5e-3, "energy": 7.0, "cpu": 0.5},
    ]  # fmt: skip


@pytest.mark.parametrize("objective", ["power", "__import__('os')", 7, "x" * 300])
def test_an_objective_in_a_file_is_data(tmp_path: Path, objective: str) -> None:
    """A run that was killed may have recorded nothing of its objective."""
    path = _file(tmp_path / "r.db", objective)
    if objective == "power" or str(objective).startswith("__"):
        assert load(path).objective == TIME
    else:
        with pytest.raises(UsageError, match="damaged"):
            load(path)


@pytest.mark.parametrize(("joules", "readable"), [(0.0, True), (-1.0, False)])
def test_nothing_may_have_been_used_but_not_less(tmp_path: Path, joules: float, readable: bool) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        records.metric("energy", "J")
        records.add(records.begin(HOST, "a"), 1e-3, NAN, 10, others={"energy": joules})
    if readable:
        assert load(path, "time + energy").implementations[0].value() == 1e-3
        with pytest.raises(UsageError, match="not a number above 0"):
            load(path, "energy")
    else:
        with pytest.raises(UsageError, match="damaged"):
            load(path)


def test_drift_is_divided_out_of_the_time_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Records.open(path, PROGRAM, RUN) as records:
        records.metric("energy", "J")
        for slower in (1.0, 1.25):
            for _ in range(6):
                records.reference(1.0 * slower)
                records.add(records.begin(HOST, "a"), 2.0 * slower, NAN, 1, others={"energy": 3.0})
                records.reference(1.0 * slower)
    for text in ("time", "energy", "energy*time"):
        (found,) = load(path, text).implementations
        times = found.times(load(path, text).reference)
        assert times[0] == pytest.approx(times[-1])


# ---- a search -------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_a_search_for_the_least_cpu_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "r.db", tmp_path / "r.html"
    words = "--target host -n 2 -D rows=2000 --transport mpi_host --seconds 5e-4 --repeats 2 --only orders --quiet"
    first = ["explore", str(SPMV), "-o", str(file), *words.split(), "--budget", "8", "--confirm", "2"]
    assert main([*first, "--objective", "cpu"]) == 0
    assert " us cpu (" in capsys.readouterr().out
    assert main([*first, "--resume"]) == 0  # with the objective of the search
    assert " us cpu (" in capsys.readouterr().out
    results = load(file)
    assert [run.options["objective"] for run in results.runs] == ["cpu", "cpu"]
    assert results.units == {"time": "s", "cpu": "s"}
    for m in (m for i in results.implementations for m in i.samples):
        assert m.value == m.metrics["cpu"]
        assert 0 < m.metrics["cpu"] < 10 * 2 * m.metrics["time"] + 1e-3  # of two ranks with a thread or two each
    best = best_estimate([i.judged(results.reference) for i in ranking(results)], results.noise)
    assert main(["best", str(file), "--plan"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"best       {best.value * 1e6:.2f} us cpu (")
    assert f"traversal  {ranking(results)[0].traversal}\n" in said
    assert main(["rules", str(file)]) == 0
    assert " by cpu\n" in capsys.readouterr().out
    assert main(["rules", str(file), "--format", "json", "--objective", "cpu*time"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == "cpu*time"
    assert main(["report", str(file), "-o", str(page)]) == 0
    assert "cpu of an iteration [" in page.read_text()
    assert main(["explain", str(file), "--replay", str(file), "--quiet"]) == 0
    assert " us cpu, class " in capsys.readouterr().out
    assert main(["export", str(file), "--csv"]) == 0
    assert ",failure,cpu,objective\n" in capsys.readouterr().out


def test_energy_is_refused_on_the_host_before_anything_is_compiled(tmp_path: Path) -> None:
    options = ExploreOptions(ranks=2, target="host", objective="energy * time", quiet=True)
    with pytest.raises(MissingTool, match="energy cannot be measured: the host target uses no GPU") as error:
        explore(SPMV, tmp_path / "r.db", options)
    assert "--objective time" in (error.value.help or "")
    assert list(tmp_path.iterdir()) == []


def test_energy_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
    with pytest.raises(MissingTool, match="nvidia-ml-py") as error:
        objective_for("energy", "cuda", load_graph(SPMV).program)
    assert error.value.help == "pip install 'dagc[energy]'"


def test_the_error_needs_a_reference(tmp_path: Path) -> None:
    lines = SPMV.read_text().splitlines(keepends=True)
    (tmp_path / "a.dag").write_text("".join(line for line in lines if not line.startswith("verify ")))
    program = load_graph(tmp_path / "a.dag").program
    with pytest.raises(MissingTool, match="error cannot be measured: the program has no `verify`") as refused:
        objective_for("time * error", "host", program)
    assert refused.value.help == "declare the reference: verify y ~ expected() rtol 1e-3"


def test_the_metrics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["explore", "--objective", "help"])
    assert end.value.code == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["time", "s"], ["cpu", "s"], ["energy", "J"], ["error", "largest"], ["memory", "B"],
    ]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.skipif(not gpus(), reason="needs a GPU")
def test_energy_of_the_gpu(tmp_path: Path) -> None:
    """Joules over seconds are watts: between what a GPU takes at rest and more than any takes."""
    pytest.importorskip("pynvml")
    file = tmp_path / "r.db"
    options = ExploreOptions(
        ranks=1, target="cuda", objective="energy", transport="mpi_host", capture="off", budget=6, confirm=1, repeats=2,
        launch="fixed", quiet=True,
    )  # fmt: skip
    done = explore(SPMV, file, options, {"rows": "150000"})
    assert done is not None
    assert done.exit_code == 0
    for m in (m for i in load(file).implementations for m in i.samples):
        assert 10 < m.metrics["energy"] / m.metrics["time"] < 2000
    assert load(file).objective.unit == "J"


def test_amounts_are_added_and_shared_or_are_levels() -> None:
    parts = [{"a": 3.0, "b": 1.0}, {"a": 5.0}]
    assert Amount.SUM.joined(parts) == {"a": 8.0, "b": 1.0}
    assert Amount.PEAK.joined(parts) == {"a": 5.0, "b": 1.0}
    assert (Amount.SUM.of_one(8.0, 4), Amount.PEAK.of_one(8.0, 4)) == (2.0, 8.0)


@pytest.mark.skipif(memory.why_not("host", None) is not None, reason="needs Linux's /proc/self/clear_refs")  # type: ignore[arg-type]
def test_the_peak_of_memory_is_that_between_start_and_stop() -> None:
    observer, size = memory.Observer(), 1 << 26
    observer.start()
    bytearray(b"x" * size)  # and gone
    observer.start()
    (without,) = observer.stop().values()
    observer.start()
    bytearray(b"x" * size)
    (peak,) = observer.stop().values()
    assert peak > without + 0.9 * size
    observer.start()
    assert next(iter(observer.stop().values())) < peak - 0.9 * size
    assert Objective("memory", ("memory",), "B").show(peak).endswith("MB") or peak >= 1e9

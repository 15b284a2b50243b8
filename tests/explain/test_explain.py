"""`dagc explain` from end to end: on a recording, and on real ranks of the host target."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from dagc import load_graph
from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.recipes.explain import explain
from dagc.recipes.explore import explore
from dagc.stages.options import ExplainOptions, ExploreOptions
from dagc.store.records import load
from dagc.study.explanation import one_change
from tests.data.h200 import h200_file
from tests.imports import ROOT
from tests.measure.conftest import SAMPLES, SMALL, SPMV, can_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return h200_file(tmp_path_factory.mktemp("h200"))


def test_a_recording_in_place_of_the_machine(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = recorded.read_bytes()
    assert main(["explain", str(recorded), "--replay", str(recorded), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["implementations"] == 2036
    assert {rule["finding"] for rule in found["rules"]} >= {"costs"}
    assert all(rule["edits"] for rule in found["rules"])
    assert recorded.read_bytes() == before


def test_a_recording_without_the_fastest(recorded: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.db"
    part.write_bytes(recorded.read_bytes())
    with sqlite3.connect(part) as file:
        key = load(recorded).measured()[0].id
        file.execute("DELETE FROM value WHERE sample IN (SELECT id FROM sample WHERE candidate = ?)", (key,))
    file.close()
    with pytest.raises(UsageError, match="no times of the fastest"):
        explain(recorded, ExplainOptions(replay=str(part)))


def test_a_recording_of_another_program(recorded: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(recorded.read_bytes())
    with sqlite3.connect(other) as file:
        file.execute("UPDATE meta SET value = 'feed' WHERE key = 'hash'")
        file.execute("UPDATE source SET text = text || 'param more : i64 = 1'")
    file.close()
    with pytest.raises(UsageError, match="another program"):
        explain(recorded, ExplainOptions(replay=str(other)))


def test_a_record_of_other_edges(tmp_path: Path) -> None:
    """Measured by an earlier dagc, which found other edges between the ops: its fastest is no traversal of today's."""
    record = ROOT / "benchmarks/results/2026-11-22-2xh200-launch/heat-fixed.db"
    with pytest.raises(UsageError, match="is not in the space of the program as this dagc reads it"):
        explain(record, ExplainOptions(replay=str(record)))


def test_nothing_measured(recorded: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.write_bytes(recorded.read_bytes())
    with sqlite3.connect(empty) as file:
        file.execute("DELETE FROM value")
    file.close()
    with pytest.raises(UsageError, match="no measurements"):
        explain(empty, ExplainOptions(replay=str(empty)))
    with sqlite3.connect(empty) as file:  # as a kill leaves it before anything was begun
        file.execute("DELETE FROM sample")
        file.execute("DELETE FROM candidate")
        file.execute("DELETE FROM run")
    file.close()
    with pytest.raises(UsageError, match="no measurements"):
        explain(empty, ExplainOptions())


def test_there_is_no_other_format(recorded: Path) -> None:
    with pytest.raises(UsageError, match="unknown format"):
        explain(recorded, ExplainOptions(replay=str(recorded)), "xml")


def test_more_pairs_than_make_sense(recorded: Path) -> None:
    with pytest.raises(UsageError, match="more than 1000"):
        explain(recorded, ExplainOptions(replay=str(recorded), pairs=100_000))


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_on_real_ranks(tmp_path: Path) -> None:
    """Every edit is timed in pairs, everything is kept, and what others read from the file stays as it was."""
    file = tmp_path / "spmv.db"
    options = ExploreOptions(
        ranks=2, strategy="random", budget=60, transport="mpi_host,nccl", capture="off", confirm=0, seconds=0.001,
        target="host", trace=False, only="orders", quiet=True,
    )  # fmt: skip
    explore(SPMV, file, options, SMALL[SPMV])
    with sqlite3.connect(file) as connection:  # times that two rules explain, whatever else this machine does
        for number, text in connection.execute("SELECT id, traversal FROM candidate").fetchall():
            slow = 2 * (text.index("yl@") < text.index("pack@")) + (text.index("yl@") < text.index("yr@"))
            seconds = 1e-4 * (1 + slow) + 1e-9 * number
            connection.execute(
                "UPDATE value SET value = ? WHERE sample IN (SELECT id FROM sample WHERE candidate = ?)",
                (seconds, number),
            )
        connection.execute("DELETE FROM drift")
        connection.execute("UPDATE run SET noise = 0.01")  # a busy machine would have no classes
    connection.close()
    before = [(i.traversal, i.value()) for i in load(file).measured()]
    text, code = explain(file, ExplainOptions(pairs=6, variants=2, seconds=0.001), "json")
    assert code == 0
    after = load(file)
    assert [(i.traversal, i.value()) for i in after.measured()] == before
    assert after.runs[-1].strategy == "explain"
    edits = [edit for rule in json.loads(text)["rules"] for edit in rule["edits"]]
    assert edits
    assert all(edit["pairs"] == 6 and not edit["failure"] for edit in edits)
    with sqlite3.connect(file) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM sample WHERE purpose = 'explain'").fetchone()
    connection.close()
    assert kept == 2 * 6 * len({(str(edit["configuration"]), edit["traversal"]) for edit in edits})


def test_without_rules_nothing_is_compiled_and_the_reason_is_given(tmp_path: Path) -> None:
    """All times are equal: one class, no rules, no edits. The machine that measured is not needed."""
    file = h200_file(tmp_path, passes=1)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE value SET value = 1e-4")
    connection.close()
    text, code = explain(file, ExplainOptions())
    assert code == 0
    assert "no rule can be broken. Only one class, so there are no rules: from fastest to slowest is 0.0 %" in text
    assert not list(tmp_path.glob("*-build"))


def test_edits_change_the_block_of_one_op() -> None:
    """What others had, in the place of the best's; what was measured is in the domain anyway."""
    program = load_graph(SAMPLES / "heat/heat.dag", {"transport": "mpi_cuda"}).program
    names = ("first.bx", "first.by", "inner.bx", "inner.by", "last.bx", "last.by", "transport")

    def configuration(*values: object) -> Choice:
        return Choice(tuple(zip(names, (*values, "mpi_cuda"), strict=True)))

    best = configuration(32, 1, 64, 2, 32, 1)
    measured = [best, configuration(64, 2, 128, 4, 32, 1), configuration(64, 2, 64, 2, 32, 1)]
    changed = one_change(best, measured, program)
    assert changed == (configuration(32, 1, 128, 4, 32, 1),)
    others = [configuration(32, 1, bx, 1, 32, 1) for bx in range(1, 200)]
    assert one_change(best, others, program) == ()
    assert len(one_change(best, [configuration(bx, 1, bx, 2, bx, 1) for bx in range(1, 200)], program)) == 24

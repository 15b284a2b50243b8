"""The Python interface: the same power as the command line, with typed results."""

from __future__ import annotations

from pathlib import Path

import pytest

import dagc
from dagc import api
from dagc.base.errors import ProgramError, UsageError
from dagc.ir.traversal import parse_traversal, traversal_text
from dagc.space import Space

SPMV = Path(__file__).parents[1] / "samples/spmv/spmv.dag"


def test_everything_documented_is_there() -> None:
    for name in dagc.__all__:
        assert getattr(dagc, name) is not None
    assert {*dagc.__all__, "api"} <= {*dir(dagc)}
    with pytest.raises(AttributeError, match="nothing"):
        dagc.nothing  # noqa: B018


def test_the_stages_in_turn() -> None:
    program = dagc.load(SPMV, {"rows": "2000"})
    assert program.name == "spmv"
    assert {p.name: p.value for p in program.params} == {"rows": 2000, "nnz_per_row": 10, "bandwidth": 500}
    graph = dagc.load_graph(SPMV, {"transport": "mpi_cuda", "streams": 3})
    assert graph.streams == 3
    space = dagc.load_space(SPMV, {"transport": "mpi_cuda"})
    assert space.count() == 2036
    assert dagc.count(SPMV).count == 2036


def test_traversals_are_in_the_order_of_their_ids() -> None:
    space = dagc.load_space(SPMV)
    texts = [text for _, text in dagc.traversals(SPMV, limit=5)]
    assert [space.id_of(parse_traversal(text, space.graph)) for text in texts] == [0, 1, 2, 3, 4]
    assert sum(1 for _ in dagc.traversals(SPMV)) == 2036


def test_check_returns_the_findings(tmp_path: Path) -> None:
    assert dagc.check(SPMV).diagnostics == ()
    file = tmp_path / "broken.dag"
    file.write_text(SPMV.read_text().replace("{yl, yr} -> y", "yl -> y"))
    found = dagc.check(file)
    assert [d.code for d in found.diagnostics] == ["unordered-hazard"]
    assert found.errors == 1
    assert str(file) in found.render()
    with pytest.raises(ProgramError, match="unordered-hazard"):
        dagc.load_graph(file)
    assert dagc.load(file).name == "spmv"  # its texts and types are right


def test_check_of_a_syntax_error(tmp_path: Path) -> None:
    file = tmp_path / "broken.dag"
    file.write_text("program p\nparam = 3\n")
    found = dagc.check(file)
    assert found.errors == 1
    assert found.render().startswith(f"{file}:2:7: error:")


def test_check_runs_no_code_of_the_program(tmp_path: Path) -> None:
    """Nor do count, list, show and fmt."""
    (tmp_path / "spmv.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    file = tmp_path / "spmv.dag"
    file.write_text(SPMV.read_text())
    assert api.check(file).errors == 0
    assert api.count(file).count == 2036
    assert next(api.traversals(file))
    assert api.show(file)
    assert api.format_source(file)[0] == SPMV.read_text()
    assert not (tmp_path / "ran").exists()
    with pytest.raises(api.DagcError):
        api.run_setup(file, 1, tmp_path / "out")
    assert (tmp_path / "ran").exists()  # the set-up does


def test_compile_without_a_build(tmp_path: Path) -> None:
    done = dagc.compile(SPMV, tmp_path / "out", target="cuda", build=False, traversal="7")
    assert (done.number, done.binary, done.result) == (7, None, None)
    assert (done.plan.target.value, done.plan.arch) == ("cuda", "sm_90")
    space = Space(done.plan.graph)
    assert done.plan.traversal == space.at(7)
    assert (tmp_path / "out/traversal.txt").read_text().split("\n")[0] == traversal_text(space.at(7), space.graph)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {*done.files, "include"} - {
        name for name in done.files if "/" in name
    }


def test_refusals_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown target fpga"):
        dagc.compile(SPMV, tmp_path / "out", target="fpga", build=False)
    with pytest.raises(UsageError, match="traversal 2036 does not exist"):
        dagc.compile(SPMV, tmp_path / "out", traversal="2036", build=False)
    with pytest.raises(UsageError):
        dagc.load(tmp_path)
    assert not (tmp_path / "out").exists()


def test_pruned_traversals_keep_the_id_of_the_first() -> None:
    """1856 of the 2036 stay distinct without the sync ops that prove nothing."""
    pruned = list(dagc.traversals(SPMV, prune_syncs=True))
    assert len(pruned) == 1856
    assert pruned[0][0] == 0
    assert [number for number, _ in pruned] == sorted(number for number, _ in pruned)

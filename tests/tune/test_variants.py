"""Kernels whose variant is chosen when the program runs: what is open, what is tuned, kept and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.choice.legal import legal_settings, units
from dagc.choice.types import Settings, settings_text
from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.recipes.options import TuneOptions
from dagc.recipes.program import read
from dagc.recipes.tuned import choosers_of, launch_of
from dagc.store.tuned import load_tuned
from tests.tune.programs import change_chooser, stored_chooser, write_sums

ROW: Settings = (("variant", "row"),)
CALLED: Settings = (("variant", "called"),)
LIMITS = {"max_threads_per_block": 1024}


def vector(lanes: int) -> Settings:
    return (("variant", "vector"), ("lanes", lanes))


def settings_of(program: Path, **defines: object) -> tuple[Settings, ...]:
    graph = read(program, defines or None).graph()
    (unit,) = units(graph, variants=True)
    return legal_settings(graph, unit, LIMITS)


# ---- what is open ----


def test_a_setting_has_the_variant_and_the_tunables_that_it_has(tmp_path: Path) -> None:
    found = settings_of(write_sums(tmp_path))
    assert found == (ROW, vector(2), vector(4), CALLED)
    assert [settings_text(s) for s in found] == ["row", "vector lanes=2", "vector lanes=4", "called"]


def test_tunables_that_the_select_does_not_name_keep_their_values(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"select variant, lanes": "select variant"})
    assert settings_of(program) == (ROW, (("variant", "vector"),), CALLED)


def test_of_all_variants_the_tunable_is_open_that_the_select_names(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"select variant, lanes": "select variant, block"})
    blocks = [(("variant", v), ("block", b)) for v in ("row", "vector") for b in (32, 64)]
    assert settings_of(program) == (*blocks, CALLED)  # host code launches for itself


def test_a_value_from_the_command_line_is_not_open(tmp_path: Path) -> None:
    program = write_sums(tmp_path)
    assert settings_of(program, **{"y.lanes": 4}) == (ROW, (("variant", "vector"),), CALLED)
    with pytest.raises(UsageError, match="y.lanes"):
        read(program, {"y.lanes": 3}).graph()


def test_a_variant_that_requires_forbid_is_none(tmp_path: Path) -> None:
    program = write_sums(tmp_path, {"tune lanes in {2, 4}": "tune lanes in {2, 4} require block * lanes <= 128"})
    assert settings_of(program, **{"y.block": 64}) == (ROW, vector(2), CALLED)
    never = write_sums(tmp_path, {"tune lanes in {2, 4}": "tune lanes in {2, 4} require block * lanes <= 32"})
    assert settings_of(never, **{"y.block": 32}) == (ROW, CALLED)


def test_a_variant_that_is_given_is_not_open(tmp_path: Path) -> None:
    program = write_sums(tmp_path)
    graph = read(program, {"y.variant": "vector"}).graph()
    (unit,) = units(graph, variants=True)
    assert unit.variants == ()
    assert legal_settings(graph, unit, LIMITS)[0] == (("block", 32), ("lanes", 2))


def test_a_search_has_the_variant_as_a_choice_of_its_own(tmp_path: Path) -> None:
    (unit,) = units(read(write_sums(tmp_path)).graph())
    assert [t.name for t in unit.tunables] == ["block"]


# ---- tuned, kept, compiled ----


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, unoptimised: None) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    done = tune_recipe.tune(write_sums(folder), folder / "t.db", TuneOptions(target="host", cell=0.005))
    assert not done.failures
    assert (done.method, done.cells) == ("knn", 16)
    assert {line.default for line in done.lines} == {ROW}
    return folder / "t.db"


def launched(tuned: Path) -> list[str]:
    return [str(tuned.parent / "sums.dag"), "--launch", str(tuned), "--target", "host"]


@pytest.mark.mpi
def test_every_variant_is_measured_and_kept(tuned: Path) -> None:
    kept = load_tuned(tuned)
    assert {c.settings for c in kept.cells if c.times} == {ROW, vector(2), vector(4), CALLED}
    assert stored_chooser(tuned, "y")["settings"] == [
        {"variant": "row"}, {"variant": "vector", "lanes": 2}, {"variant": "vector", "lanes": 4}, {"variant": "called"},
    ]  # fmt: skip
    selector = kept.kernel_choosers["y"].selector
    assert selector is not None
    assert selector.data == ("longest", "mean")


@pytest.mark.mpi
def test_the_answers_in_c_are_numbers_in_the_order_of_the_text(tuned: Path) -> None:
    graph = read(tuned.parent / "sums.dag").graph()
    (chooser,) = choosers_of(graph, load_tuned(tuned))
    assert chooser.site.decisions == ("variant", "lanes")
    assert [chooser.site.row(i) for i in range(4)] == [(0, 2), (1, 2), (1, 4), (2, 2)]
    assert "{{0, 2}, {1, 2}, {1, 4}, {2, 2}}" in chooser.c_text()


@pytest.mark.mpi
def test_only_what_may_be_answered_is_compiled(tuned: Path, tmp_path: Path) -> None:
    other = tmp_path / "t.db"
    other.write_bytes(tuned.read_bytes())
    change_chooser(other, "y", settings=[{"variant": "called"}, {"variant": "vector", "lanes": 4}], anchors=[],
                   selector=None)  # fmt: skip
    found = launch_of(read(tuned.parent / "sums.dag").graph(), load_tuned(other), None)
    assert [(t.variant, t.name, t.values) for t in found.open] == [
        ("", "variant", ("vector", "called")), ("vector", "lanes", (4,)),
    ]  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("changes", "message"),
    [({"settings": [{"variant": "ell"}]}, "which is not among its choices"),
     ({"settings": [{"variant": 3}]}, "is damaged"),
     ({"settings": [{"variant": "row"}, {"lanes": 2}]}, "is damaged"),
     ({"settings": [{"variant": "vector", "lanes": "row"}]}, "is damaged"),
     ({"settings": [{"variant": "row", "lanes": 2}]}, "which is not among its choices"),
     ({"data": ["width"]}, "no size or feature of the program")],
)  # fmt: skip
def test_a_file_with_other_variants_is_refused(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], message: str
) -> None:
    other = tmp_path / "t.db"
    other.write_bytes(tuned.read_bytes())
    change_chooser(other, "y", **{"anchors": [], "selector": None, **changes})
    program, *options = launched(tuned)
    options[1] = str(other)
    assert main(["compile", program, *options, "--no-build", "-o", str(tmp_path / "o")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "help: " in said


@pytest.mark.mpi
def test_a_fixed_variant_cannot_be_chosen(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-D", "y.variant=vector", "--no-build", "-o", str(tmp_path / "o")]
    assert main(["compile", *launched(tuned), *options]) == 2
    assert "drop -D y.variant=..." in capsys.readouterr().err


@pytest.mark.mpi
def test_the_program_has_every_variant(tuned: Path, tmp_path: Path) -> None:
    assert main(["compile", *launched(tuned), "-o", str(tmp_path / "o"), "--run", "-n", "2"]) == 0

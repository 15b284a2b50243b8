"""Tuned files that are damaged, of another version, of other choices or of another target are refused in one line."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import ExploreOptions, TuneOptions
from dagc.store.tuned import load_tuned
from tests.study.programs import write_fill

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    path = write_fill(folder, "tune bx in {32, 64, 128}")
    options = TuneOptions(sizes="N=100,200,300", target="host", cell=0.001, method="knn")
    assert tune_recipe.tune(path, folder / "host.db", options).cells == 9
    tune_recipe.tune(path, folder / "model.db", TuneOptions(sizes="N=100", target="cuda", arch="sm_90", top=0))
    return path


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE chooser SET chooser = '{not json'", "truncated, damaged"),
        ("UPDATE value SET value = 'zzz'", "truncated, damaged"),
        ("UPDATE candidate SET point = '3' WHERE id = 1", "truncated, damaged"),
        ("DROP TABLE chooser", "truncated, damaged"),
        ("UPDATE chooser SET chooser = '{}'", "the chooser of `fill` is damaged"),
        ("UPDATE chooser SET chooser = '7'", "the chooser of `fill` is damaged"),
        ("UPDATE chooser SET chooser = json_set(chooser, '$.anchors[0].chosen', 77)", "is damaged"),
        (
            "UPDATE chooser SET chooser = json_set(chooser, '$.selector', json('{\"method\": \"knn\"}'))",
            "is damaged",
        ),
        ("UPDATE chooser SET chooser = json_set(chooser, '$.method', 'oracle')", "newer dagc .method oracle."),
        ("UPDATE chooser SET chooser = json_set(chooser, '$.settings[1].bx', 96)", "not among its choices"),
        ("UPDATE chooser SET domain = 'other'", "has a chooser for op `other`, which has no open choice"),
    ],
)
def test_rows_that_cannot_be_used(program: Path, tmp_path: Path, statement: str, said: str) -> None:
    tuned = tmp_path / "t.db"
    shutil.copy(program.parent / "host.db", tuned)
    with sqlite3.connect(tuned) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(UsageError, match=said):
        api.compile(program, tmp_path / "o", target="host", launch=str(tuned), build=False)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("hello\n"),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "empty", "text", "absent"],
)
def test_files_that_are_none(
    program: Path, tmp_path: Path, spoil: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tmp_path / "t.db"
    shutil.copy(program.parent / "host.db", tuned)
    spoil(tuned)
    assert main(["compile", str(program), "--launch", str(tuned), "--no-build", "-o", str(tmp_path / "o")]) == 2
    said = capsys.readouterr().err
    assert str(tuned) in said
    assert "help:" in said


def test_a_file_measured_on_the_host_is_none_for_a_gpu(program: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="measured on the host target"):
        api.compile(program, tmp_path / "o", target="cuda", launch=str(program.parent / "host.db"), build=False)
    for target in ("host", "cuda"):
        model = str(program.parent / "model.db")
        api.compile(program, tmp_path / target, target=target, arch="sm_90", launch=model, build=False)


def test_a_tunable_that_is_fixed_is_not_chosen(program: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which has no open choice") as error:
        api.compile(
            program, tmp_path / "o", target="host", launch=str(program.parent / "host.db"), build=False,
            defines={"fill.bx": "64"},
        )  # fmt: skip
    assert "drop -D fill.NAME" in (error.value.help or "")
    assert load_tuned(program.parent / "host.db").choosers


# ---- other parameters and decisions ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("varied")
    path = write_fill(folder, "tune bx in {32, 64}", "if (i < n) y[i] = real(i + 0 * m);")
    text = path.read_text().replace("setup ", "param real : type = f32\nparam M : i64 = 7\ntune m in {1, 2}\nsetup ")
    path.write_text(text)
    tune_recipe.tune(path, folder / "t.db", TuneOptions(sizes="N=100", target="host", cell=0.001))
    return path


@pytest.mark.parametrize(
    ("defines", "said"),
    [
        ({"real": "f64"}, "tuned with real=f32, this is real=f64"),
        ({"M": "8"}, "tuned with M=7, this is M=8"),
        ({"m": "2"}, "tuned with m=1, this is m=2"),
        ({"fill.bx": "64"}, "no kernel of the program has `tune` choices that are open"),
    ],
)
def test_times_of_other_parameters_are_not_mixed(varied: Path, defines: dict[str, str], said: str) -> None:
    options = TuneOptions(sizes="N=100", target="host", cell=0.001, resume=True, defines=defines)
    with pytest.raises(UsageError, match=said):
        tune_recipe.tune(varied, varied.parent / "t.db", options)


def test_other_sizes_are_no_other_parameters(varied: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "t.db"
    shutil.copy(varied.parent / "t.db", tuned)
    options = TuneOptions(sizes="N=200", target="host", cell=0.001, resume=True, defines={"N": "50"})
    assert tune_recipe.tune(varied, tuned, options).cells > 2
    for n in ("50", "90"):
        api.compile(varied, tmp_path / n, target="host", launch=str(tuned), build=False, defines={"N": n, "M": "9"})


@pytest.mark.parametrize("defines", [{"real": "f64"}, {"m": "2"}])
def test_what_a_kernel_is_made_of_is_as_it_was_tuned(varied: Path, tmp_path: Path, defines: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="tuned with"):
        api.compile(
            varied, tmp_path / "o", target="host", launch=str(varied.parent / "t.db"), build=False, defines=defines
        )


def test_a_resumed_file_may_have_settings_that_are_choices_no_more(tmp_path: Path) -> None:
    path = write_fill(tmp_path, "tune bx in {32, 64}\n  tune a in {1, 2}", "if (i < n) y[i] = i * (a > 0);")
    options = TuneOptions(sizes="N=100", target="host", cell=0.001, method="exhaustive")
    assert tune_recipe.tune(path, tmp_path / "t.db", options).cells == 4
    fixed = replace(options, resume=True, defines={"fill.a": "1"})
    done = tune_recipe.tune(path, tmp_path / "t.db", fixed)
    assert {tuple(line.chosen) for line in done.lines} == {("fill.bx",)}


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    broken = write_fill(tmp_path, "tune bx in {32, 64}", "no code")
    there = tmp_path / "t.db"
    there.write_text("something")
    for output, said in ((there, "exists"), (tmp_path, "is a directory")):
        with pytest.raises(UsageError, match=said):
            tune_recipe.tune(broken, output, TuneOptions(sizes="N=100", target="host"))
    with pytest.raises(UsageError, match="is a directory"):
        tune_recipe.tune(broken, tmp_path, TuneOptions(sizes="N=100", target="cuda", top=0, resume=True))


@pytest.mark.parametrize(("made", "options"), [("host", {"target": "cuda"}), ("model", {"arch": "sm_80"})])
def test_a_file_is_resumed_for_what_it_was_made_for(
    program: Path, tmp_path: Path, made: str, options: dict[str, str]
) -> None:
    """Also with --other-machine: times on the host target would stand for those of a GPU."""
    shutil.copy(program.parent / f"{made}.db", tmp_path / "t.db")
    asked = TuneOptions(sizes="N=100", top=0, flush=False, resume=True, other_machine=True)
    with pytest.raises(UsageError, match=f"tuned for {'the host target' if made == 'host' else 'sm_90'}, this is for"):
        tune_recipe.tune(program, tmp_path / "t.db", replace(asked, **{"target": "cuda", "arch": "sm_90"} | options))


@pytest.mark.parametrize("command", ["rules", "explain", "best"])
def test_commands_on_searches_refuse_a_tuned_file(
    program: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(program.parent / "host.db")]) == 2
    assert "was written by `dagc tune`, and has no results of `dagc explore`" in capsys.readouterr().err


def test_a_search_does_not_continue_a_tuned_file(program: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "t.db"
    shutil.copy(program.parent / "host.db", tuned)
    with pytest.raises(UsageError, match="was written by `dagc tune`") as refused:
        api.explore(program, tuned, ExploreOptions(target="host", ranks=1, resume=True, budget=2))
    assert "another file" in refused.value.help
    assert tuned.read_bytes() == (program.parent / "host.db").read_bytes()


@pytest.mark.parametrize("arguments", [["export", "--csv"], ["report", "-o", "page.html"]])
def test_a_damaged_tuned_file_is_not_written_as_an_empty_table(
    program: Path, tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copy(program.parent / "host.db", tmp_path / "t.db")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("UPDATE chooser SET chooser = '{}'")
    connection.close()
    monkeypatch.chdir(tmp_path)
    assert main([arguments[0], "t.db", *arguments[1:]]) == 2
    assert "the chooser of `fill` is damaged" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()

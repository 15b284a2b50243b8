"""`--inputs`: lists, globs and calls as points; `dagc.inputs.call`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagc.base.errors import ProgramError, UsageError
from dagc.choice.types import Case
from dagc.inputs import call, is_call
from dagc.ir.program import Program
from dagc.stages.program import load
from dagc.study.cases import bytes_of, parse_input, parse_inputs, parse_sizes

TEXT = """program sums
param matrix : str = "a.mtx" over files("train/*.mtx")
param other : str = "x"
scalar n : i32
array y : f32[n] on host out
kernel fill(y: out f32[n], n: i32) { cpu { cpp \"\"\" for (int i = 0; i < n; ++i) y[i] = 0; \"\"\" } }
dag { fill : cpu fill(y, n) }
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "p.dag").write_text(TEXT)
    for folder, names in {"train": ("b.mtx", "a.mtx", "c.txt"), "test": ("t.mtx",)}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(name * len(name))
    return load(tmp_path / "p.dag")


def texts(cases: tuple[Case, ...]) -> list[str]:
    return [p.text for p in cases]


def test_without_a_list_the_files_of_the_program_are_the_inputs(program: Program) -> None:
    assert texts(parse_inputs([], program)) == ["train/a.mtx", "train/b.mtx"]
    assert parse_inputs([], program)[0].params == (("matrix", "train/a.mtx"),)


def test_globs_lists_and_calls(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "train")
    (tmp_path / "test" / "list.txt").write_text("# all\n\nt.mtx   # one\n../train/*.mtx\nrmat(scale = 4, skew = 0.5)\n")
    found = parse_inputs(["*.mtx, rmat(scale = 4, skew = 0.5),grid(n = [2, 3])", "@../test/list.txt"], program)
    assert texts(found) == [
        "train/a.mtx", "train/b.mtx", "rmat(scale = 4, skew = 0.5)", "grid(n = [2, 3])", "test/t.mtx",
    ]  # fmt: skip


def test_a_file_elsewhere_keeps_its_whole_path(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("data") / "z.mtx"
    elsewhere.write_text("12345")
    (case,) = parse_inputs([str(elsewhere)], program)
    assert case.text == str(elsewhere)
    assert bytes_of(case, program) == 5
    assert bytes_of(parse_input("f(n = 1)", program, "--check-at"), program) == float("inf")


def test_another_parameter_is_named(program: Program) -> None:
    (case,) = parse_inputs(["other=f(n = 1)"], program)
    assert case.params == (("other", "f(n = 1)"),)


@pytest.mark.parametrize(
    ("lists", "message", "help"),
    [
        (["nothing/*.mtx"], "`nothing/*.mtx`: no such file", "current directory"),
        (["@none.txt"], "the list none.txt cannot be read", "one input a line"),
        (["f(1)"], "give each argument by its name", "KEY = VALUE"),
        (["f(n = __import__('os'))"], "n is not a number, a string", "KEY = VALUE"),
        ([","], "names no input", "@LIST"),
        (["f(n = 1"], "`f(n = 1`: a call without its closing parenthesis", "KEY = VALUE"),
        (["f(n = 1) g"], "`f(n = 1) g`: a call without its closing parenthesis", "KEY = VALUE"),
        (["mat=train/*.mtx"], "no such file", "if `mat` is a parameter: the program has none"),
    ],
)
def test_what_is_no_input(program: Program, lists: list[str], message: str, help: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_inputs(lists, program)
    assert message in error.value.message
    assert help in (error.value.help or "")


def test_a_wrong_line_of_a_list_is_named(program: Program, tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("train/a.mtx\ntrain/none.mtx\n")
    with pytest.raises(UsageError, match=r"l\.txt:2: `train/none\.mtx`: no such file"):
        parse_inputs([f"@{tmp_path / 'l.txt'}"], program)
    (tmp_path / "l.txt").write_text("@l.txt\n")
    with pytest.raises(UsageError, match=r"l\.txt:1: `@l\.txt`: a list cannot name another list"):
        parse_inputs([f"@{tmp_path / 'l.txt'}"], program)


def test_which_parameter_an_input_sets(tmp_path: Path) -> None:
    (tmp_path / "p.dag").write_text(TEXT.replace(' over files("train/*.mtx")', ""))
    with pytest.raises(UsageError) as none:
        parse_inputs(["f(n = 1)"], load(tmp_path / "p.dag"))
    assert "no parameter of sums has `over files`" in none.value.message
    assert "matrix=LIST" in (none.value.help or "")
    (tmp_path / "p.dag").write_text(TEXT.replace('= "x"', '= "x" over files("*")'))
    with pytest.raises(UsageError) as both:
        parse_inputs(["f(n = 1)"], load(tmp_path / "p.dag"))
    assert "`matrix` and `other` have `over files`" in both.value.message


def test_files_is_for_text(tmp_path: Path) -> None:
    (tmp_path / "p.dag").write_text(TEXT.replace('matrix : str = "a.mtx"', "matrix : i64 = 1"))
    with pytest.raises(ProgramError, match="`files` takes one pattern"):
        load(tmp_path / "p.dag")


# ---- for set-ups --------------------------------------------------------------------------------


def generator(**arguments: Any) -> Any:
    return arguments


def test_a_call_is_called_with_its_literals() -> None:
    found = call('g(n = -3, p = 1.5, names = ["a", "b"], on = True)', {"g": generator})
    assert found == {"n": -3, "p": 1.5, "names": ["a", "b"], "on": True}


def test_a_path_is_read() -> None:
    assert call("a/b (1).mtx", {"g": generator}, read=str.upper) == "A/B (1).MTX"
    assert not is_call("a/b (1).mtx")
    with pytest.raises(ValueError, match=r"not a call; write one of: g\(\.\.\.\)"):
        call("a.mtx", {"g": generator})


@pytest.mark.parametrize(
    "text", ["h(n = 1)", "g(1)", "g(**{})", "g(n = open('x'))", "g(n = {1: 2})", "g(n = )", "g(n = x)", "g(n = None)"]
)
def test_nothing_else_is_called(text: str) -> None:
    with pytest.raises(ValueError, match="g"):
        call(text, {"g": generator})


def test_sizes_of_a_program_that_has_inputs_only(program: Program) -> None:
    with pytest.raises(UsageError, match="no integer parameter `n`") as error:
        parse_sizes("n=3", program)
    assert error.value.help == "it has none: name inputs with --inputs"

"""Options: their values, and what has no effect with others."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import pytest

from dagc.cli.main import COMMANDS, command
from dagc.cli.parser import options_from
from dagc.stages.options import CompileOptions, ExplainOptions, ExploreOptions, TuneOptions
from tests.cli.command import SPMV, refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile FILE --seconds 0.01", "--seconds belongs to --run"),  # the default, too
        ("compile FILE -n 4", "-n belongs to --run"),
        ("compile FILE -n4", "-n belongs to --run"),
        ("compile FILE --run --no-build", "--no-build has no effect with --run"),
        ("compile FILE --no-build --name x", "--name belongs to --as library or --as wheel"),
        ("compile FILE --no-build --target host --arch=sm_80", "--arch has no effect with --target host"),
        ("explore FILE --other-machine", "--other-machine belongs to --resume"),
        ("explore FILE --confirm 0 --repeats 3", "--repeats has no effect with --confirm 0"),
        ("explore FILE --strategy random --max 10", "--max has no effect with another --strategy"),
        ("explore FILE --replay r.db --watchdog 3", "--watchdog has no effect with --replay"),
        ("best r.db --plan -o there", "-o has no effect with --plan"),
        ("best r.db --plan --fo", "--force has no effect with --plan"),
        ("rules a.db b.db --sets 3", "--sets has no effect with several results files"),
        ("explain r.db --replay q.db --other-machine", "--other-machine has no effect with --replay"),
        ("show FILE --fold --format html", "--fold has no effect with --format html"),
        ("tune FILE --next cost", "--next belongs to --incremental"),
        ("tune FILE --format text", "--format belongs to --show"),
        ("tune FILE --other-machine", "--other-machine belongs to --resume or --evaluate"),
        ("tune FILE --show gemm --sizes NI=3", "--sizes has no effect with --show"),
        ("tune FILE --ite 3", "--iterations belongs to --incremental"),
        ("tune FILE --evaluate --folds 3 --hold-out 25%", "--hold-out has no effect with --folds"),
        ("tune FILE --evaluate --folds 3 --sizes NI=3", "--sizes has no effect with --folds"),
        ("tune FILE --evaluate --method knn", "--method has no effect with --evaluate"),
    ],
)
def test_an_option_without_effect_is_refused(words: str, said: str) -> None:
    error, help = refused(*words.replace("FILE", str(SPMV)).split()).splitlines()
    assert error == f"dagc: error: {said}"
    assert f"drop {said.split(maxsplit=1)[0]}" in help


def test_what_an_option_needs_or_excludes_are_options_that_there_are() -> None:
    known = {name: {option.flag for option in command(name).options} for name in COMMANDS}
    everywhere = set().union(*known.values())
    for name, flags in known.items():
        for option in command(name).options:
            assert set((option.leaves or "").split()) <= flags, (name, option)
            words = f"{option.only} or {option.without}".split(" or ")
            assert {what.split()[0] for what in words if what.startswith("-")} <= everywhere, (name, option)


@pytest.mark.parametrize("text", ["5x", "-3s", "s", "0", "1h30m"])
def test_a_wrong_time_is_told_with_examples_of_right_ones(text: str) -> None:
    assert f"{text!r} is not a time such as 90s, 10m or 1.5h" in refused("count", "a.dag", f"--time={text}")


def arguments(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command(name).fill(parser)
    return command(name).arguments(parser.parse_args(words))


def test_a_recipe_gets_what_was_given_and_the_defaults_of_its_fields() -> None:
    assert options_from(arguments("compile", "a.dag"), CompileOptions, defines=None) == CompileOptions()
    assert options_from(arguments("explore", "a.dag"), ExploreOptions, ranks=4) == ExploreOptions()
    assert options_from(arguments("explain", "r.db"), ExplainOptions) == ExplainOptions()
    assert options_from(arguments("tune", "a.dag"), TuneOptions, defines={}) == TuneOptions()
    words = "a.dag --warm --sizes N=1 --sizes N=2 --kernel k --top 3 --until 1% --time 2m".split()
    given = TuneOptions(flush=False, sizes="N=1; N=2", kernels=("k",), top=3, until=0.01, seconds=120)
    assert options_from(arguments("tune", *words), TuneOptions, defines={}) == given


def test_the_commands_of_a_sample_are_right(tmp_path: Path) -> None:
    """And the time is that of the table, which lines of limits follow."""
    words = tmp_path / "words"
    table = "ranks  median us  variation\n    2      50.00       1 %\nlimit      a\n           program 7 ms of 1 us"
    run = tmp_path / "run"
    run.write_text(
        f"#!/bin/sh\nfor word; do printf '%s\\n' \"$word\" >>{words}; done\necho >>{words}\ncat <<E\n{table}\nE\n"
    )
    (ranks := tmp_path / "ranks").write_text("#!/bin/sh\necho '1000 steps: 9 us'\n")
    for program in (run, ranks):
        program.chmod(0o755)
    tools = {"DAGC": str(run), "MPIEXEC": str(ranks), "MPICXX": "true", "PYTHON": "true", "TARGET": "host"}
    script = SPMV.parents[1] / "port/measure.sh"
    said = subprocess.run(
        [script, "2"], env={**os.environ, **tools, "WORK": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert "port.dag, mpi_host, the first implementation               2.50" in said.stdout
    lines = [each.split("\n") for each in words.read_text().removesuffix("\n\n").split("\n\n")]
    assert [name for name, *_ in lines] == ["compile"] * 5 + ["explore", "best"]
    for name, *rest in lines:
        arguments(name, *rest)

"""dagc/options.hpp: the command line of emitted programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dagc.build.toolchain import find_cxx
from tests.runtime.programs import make

pytestmark = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("options", tmp_path_factory.mktemp("options"))


def run(program: Path, *args: str, rank: int | None = None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM"))}
    if rank is not None:
        env["PMI_RANK"] = str(rank)
    return subprocess.run([program, *args], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        (["--data", "d"], "d 0.01 20 0"),
        (["--data=d", "--seconds=0.5", "--check-only", "--repeats", "3"], "d 0.5 3 1"),
        (["--data", "a=b", "--seconds", "1e-3"], "a=b 0.001 20 0"),
        (["--data", "-", "--repeats", "1", "--repeats", "2"], "- 0.01 2 0"),
    ],
)
def test_values(program: Path, args: list[str], printed: str) -> None:
    done = run(program, *args)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed + "\n", "")


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ([], "--data is missing: --data DIR (arrays, from `dagc setup`)"),
        (["--data"], "--data needs a value: --data DIR"),
        (["--data", "--check-only"], "--data needs a value: --data DIR"),
        (["--data="], "--data: must not be empty"),
        (["--second", "1"], "unknown option --second; did you mean --seconds?"),
        (["--zzz"], "unknown option --zzz"),
        (["d"], "unexpected argument 'd'"),
        (["--check-only=1"], "--check-only takes no value"),
        (["--seconds", "x"], "--seconds: 'x' is not a number"),
        (["--seconds", "nan"], "--seconds: 'nan' is not a number"),
        (["--seconds", "1s"], "--seconds: '1s' is not a number"),
        (["--seconds", "0"], "--seconds: must be at least 1e-06"),
        (["--seconds", "1e9"], "--seconds: must be at most 3600"),
        (["--repeats", "1.5"], "--repeats: '1.5' is not a whole number"),
        (["--repeats", "99999999999999999999"], "--repeats: '99999999999999999999' is not a whole number"),
        (["--repeats", "0"], "--repeats: must be at least 1"),
        (["--repeats", "1001"], "--repeats: must be at most 1000"),
    ],
)
def test_errors_say_what_to_write(program: Path, args: list[str], error: str) -> None:
    done = run(program, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bench: {error}\n  help: bench --help lists all options\n"


def test_help_names_every_option_and_wins_over_what_is_missing(program: Path) -> None:
    done = run(program, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "usage: bench",
        "--data DIR",
        "(required)",
        "--seconds S",
        "--repeats N",
        "--check-only",
        "-h, --help",
    ):
        assert words in done.stdout


def test_only_the_first_rank_speaks(program: Path) -> None:
    for args, code in ((["--help"], 0), (["--no"], 2)):
        done = run(program, *args, rank=1)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
        assert run(program, *args, rank=0).returncode == code

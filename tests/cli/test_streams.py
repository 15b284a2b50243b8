"""Output that nobody reads, or that does not fit; Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ENVIRONMENT, HALO, SPMV

# With Python's own buffer, which is written when the process ends.
BUFFERED = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}


def test_a_reader_may_leave_early() -> None:
    command = [sys.executable, "-m", "dagc", "list", str(SPMV), "--streams", "3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("0: ")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["count", SPMV], ["list", SPMV], ["--version"]], ids=["short", "long", "argparse"])
def test_output_to_a_full_disk_ends_with_code_5(words: list[str | Path]) -> None:
    """Whether what is printed fits into the buffer or not."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dagc", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED, timeout=300,
        )  # fmt: skip
    assert done.stderr == "dagc: error: output: No space left on device\n"
    assert done.returncode == 5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_error_that_cannot_be_printed_keeps_its_exit_code() -> None:
    """The exit code is still that of the error."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dagc", "check", "none.dag"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, env=BUFFERED, timeout=300)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(("words", "code"), [(f"count '{SPMV}'", 0), ("check none.dag", 2)])
def test_output_to_a_closed_stream_is_discarded(words: str, code: int) -> None:
    """`>&-`: what is written there is discarded, and goes nowhere else."""
    command = f"exec '{sys.executable}' -m dagc {words}"
    done = subprocess.run(["sh", "-c", f"{command} 2>&-"], capture_output=True, text=True, env=BUFFERED, timeout=300)
    assert (done.returncode, done.stderr) == (code, "")
    assert ("implementations" in done.stdout) == (code == 0)
    assert "none.dag" not in done.stdout
    done = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True, env=BUFFERED, timeout=300)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    assert ("none.dag" in done.stderr) == (code == 2)


def test_an_interrupted_list_ends_with_code_130() -> None:
    """In the middle of a long list."""
    command = [sys.executable, "-m", "dagc", "list", str(HALO)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said == "dagc: interrupted\n"


def test_fmt_says_that_it_formatted_when_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.dag"
    path.write_text("program   a\n")
    full = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        " from dagc.cli.main import main; main()"
    )
    code = full.replace("main()", "sys.exit(main())")
    command = [sys.executable, "-B", "-c", code, "fmt", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert f"{path} cannot be written: File too large" in done.stderr
    assert done.stdout == ""
    assert path.read_text() == "program   a\n"


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("setup FILE -n 1 -D rows=5000 -o out --quiet", 40_000),
        ("compile FILE --target host --no-build -o out --quiet", 2_000),
        ("init out --from spmv", 2_000),
        ("list FILE --limit 1000", 2_000),
    ],
)
def test_a_full_disk_ends_a_command_with_code_5(tmp_path: Path, words: str, limit: int) -> None:
    """A limit on the size of files stands in for the disk. Nothing is left."""
    code = "import resource, sys; from dagc.cli.main import main\n"
    code += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); sys.exit(main(sys.argv[1:]))"
    # -B: a compiled file of Python itself would be cut, and found by the next test.
    command = [sys.executable, "-B", "-c", code, *words.replace("FILE", str(SPMV)).split()]
    with (tmp_path / "stdout").open("w") as stdout:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT
        )
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("dagc: error: out")
    assert not (tmp_path / "out").exists()

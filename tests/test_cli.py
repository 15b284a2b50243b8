"""The command line as a user meets it: each command once, exit codes, and mistakes that never give a traceback."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dagc.cli.main import COMMANDS, command, main
from dagc.stages.artifacts import as_given
from tests.measure.conftest import can_run

ROOT = Path(__file__).parents[1]
SPMV, HALO = ROOT / "samples/spmv/spmv.dag", ROOT / "samples/halo3d/halo3d.dag"
TRAVERSALS = ROOT / "tests/data/spmv-2036-4xh200.csv"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def dagc(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command, in this process: a new one spends most of its time on imports. Those that are the subject, below."""
    words = [str(word) for word in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.chdir(cwd or Path.cwd()), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    said = []
    for stream in (out, err):
        stream.seek(0)
        said.append(stream.read())
    return subprocess.CompletedProcess(words, code, *said)


# These show their progress where the machine is busy.
LONG = tuple("compile count tune explore explain setup best rules report export merge".split())


def good(*arguments: str | Path, cwd: Path | None = None) -> str:
    quiet = ("--quiet",) if arguments[0] in LONG else ()
    done = dagc(*arguments, *quiet, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# ---- each command ----------------------------------------------------------------------------


def test_help_names_every_command() -> None:
    text = good("--help")
    commands = ("compile", "count", "list", "show", "check", "fmt", "setup", "doctor")
    assert all(f"\n    {name} " in text for name in commands)
    for name in commands:
        assert good(name, "--help").startswith(f"usage: dagc {name} ")
    assert good("--version").split()[0] == "dagc"
    for name in commands[:2]:
        done = dagc(name, "x.dag", "--bogus", "1")
        assert (done.returncode, done.stderr.split("dagc: error: ")[1].splitlines()) == (
            2, ["unrecognized arguments: --bogus 1", f"  help: see dagc {name} --help"],
        )  # fmt: skip


UNDECIDED = ROOT / "tests/lang/broken/undecided-overlap.dag"


@pytest.mark.parametrize(
    ("command", "code", "rest"),
    [
        (("count",), 0, ""),
        (("list", "--limit", "1"), 0, ""),
        (("show",), 0, ""),
        (("compile", "--target", "host", "--no-build", "-o", "out"), 0, ""),
        # Of several configurations. What comes after them is not what this is about.
        (("explore", "--target", "host", "--capture", "both", "-o", "out.db"), 2, "has no set-up"),
        (("check",), 0, ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_notes_of_the_graph_are_printed_once(
    command: tuple[str, ...], code: int, rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The text that `check` prints, by whatever command a user runs first; --quiet silences it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(UNDECIDED, tmp_path)
    arguments = [command[0], UNDECIDED.name, *command[1:]]
    assert main(arguments) == code
    err = capsys.readouterr().err
    assert err.startswith(UNDECIDED.with_suffix(".txt").read_text())
    assert err.count("[undecided-overlap]") == 1
    assert rest in err
    if command[0] != "check":
        quiet = [*arguments, "--quiet", *(["--force"] if command[0] == "compile" else [])]
        assert main(quiet) == code
        assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize("transport", ["mpi_cuda", "mpi_host"])
@pytest.mark.parametrize(("streams", "count"), [(2, 2036), (3, 8507), (4, 10517)])
def test_count(transport: str, streams: int, count: int) -> None:
    text = good("count", SPMV, "--transport", transport, "--streams", str(streams))
    assert text.startswith(f"{count} implementations of spmv: ")


def test_count_of_the_defaults_and_other_lowerings() -> None:
    report = json.loads(good("count", SPMV, "--json"))
    assert (report["program"], report["count"]) == ("spmv", 2036)
    assert {line["count"] for line in report["lines"]} >= {2036, 23450, 96}


def test_count_of_the_halo_exchange() -> None:
    text = good("count", HALO, "--transport", "mpi_cuda")
    assert text.split()[0] == "5367658504764649454197598361600000"


@pytest.mark.parametrize("transport", ["mpi_cuda", "mpi_host"])
def test_list_is_the_2036(transport: str) -> None:
    with TRAVERSALS.open(newline="") as file:
        known = {row["traversal"] for row in csv.DictReader(file)}
    lines = good("list", SPMV, "--transport", transport, "--plain").splitlines()
    assert len(lines) == len(known) == 2036
    assert set(lines) == known


def test_list_numbers_stably() -> None:
    few = good("list", SPMV, "--limit", "3").splitlines()
    assert [line.split(":")[0] for line in few] == ["0", "1", "2"]
    as_json = [json.loads(line) for line in good("list", SPMV, "--limit", "3", "--json").splitlines()]
    assert [f"{x['id']}: {x['traversal']}" for x in as_json] == few
    assert good("list", SPMV, "--limit", "0") == ""


def test_show(tmp_path: Path) -> None:
    assert good("show", HALO, "--transport", "mpi_cuda").startswith("halo: 33 vertices with start and end, 115 edges;")
    assert good("show", SPMV, "--format", "dot").startswith('digraph "spmv" {')
    assert good("show", SPMV, "--format", "svg", "-o", tmp_path / "dag.svg") == f"wrote {tmp_path / 'dag.svg'}\n"
    assert ET.parse(tmp_path / "dag.svg").getroot().tag.endswith("svg")


def test_check_tells_everything_at_once(tmp_path: Path) -> None:
    assert good("check", SPMV) == f"{SPMV}: no errors\n"
    broken = tmp_path / "broken.dag"
    broken.write_text(SPMV.read_text().replace("pack -> x.send;", "").replace("{yl, yr} -> y", "yl -> y"))
    done = dagc("check", broken)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("[unordered-hazard]") == 2
    assert f"{broken}:" in done.stderr
    assert "help: add the edge `yr -> y`" in done.stderr
    assert done.stderr.endswith("2 errors\n")


def test_fmt(tmp_path: Path) -> None:
    text = SPMV.read_text()
    file = tmp_path / "mine.dag"
    file.write_text(text.replace("param rows        : i64", "param rows        :   i64"))
    assert dagc("fmt", "--check", file).returncode == 1
    assert good("fmt", "--stdout", file) == good("fmt", "--stdout", SPMV)
    assert good("fmt", file) == f"formatted {file}\n"
    assert good("fmt", file) == ""
    assert good("fmt", "--check", file) == ""


def test_setup(tmp_path: Path) -> None:
    assert (
        good("setup", SPMV, "-n", "2", "-o", tmp_path / "d", "-D", "rows=100") == f"arrays of 2 ranks in {tmp_path}/d\n"
    )
    said = json.loads((tmp_path / "d/setup.json").read_text())
    assert (said["ranks"], said["params"]["rows"]) == (2, 100)
    assert (tmp_path / "d/rank-0001/expected/y.npy").is_file()


def test_doctor() -> None:
    done = dagc("doctor", "--json")
    assert done.returncode in (0, 3)
    names = {fact["name"] for fact in json.loads(done.stdout)["facts"]}
    assert {"C++ compiler", "MPI", "nvcc", "GPU", "numpy"} <= names
    text = dagc("doctor")
    assert text.returncode == done.returncode
    assert ("The host target can run here." in text.stdout) == (done.returncode == 0)


def test_compile_without_a_build(tmp_path: Path) -> None:
    text = good("compile", SPMV, "--no-build", "--target", "cuda", "--arch", "sm_90", "-o", tmp_path / "out")
    assert text.startswith("target     cuda sm_90 (as requested)\n")
    assert "traversal  0, proved\n" in text
    assert (tmp_path / "out/bench.cu").is_file()


def test_the_default_output_directory(tmp_path: Path) -> None:
    good("compile", SPMV, "--no-build", "--target", "host", cwd=tmp_path)
    assert (tmp_path / "dagc-out/spmv/plan.json").is_file()


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_compile_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that tests/measure/test_compile.py compiles with these flags, too."""
    monkeypatch.setenv("DAGC_CXXFLAGS", "-Werror")
    arguments = ("-D", "rows=2000", "--repeats", "2", "--seconds", "0.001")
    text = good("compile", SPMV, "-o", tmp_path / "out", "--target", "host", "--run", "-n", "2", *arguments)
    assert "results agree with the reference" in text
    assert text.splitlines()[-1].split()[0] == "2"


# ---- a user's mistakes -----------------------------------------------------------------------


def refused(*arguments: str | Path, code: int = 2, cwd: Path | None = None) -> str:
    """What is said; never a traceback, always a help or a reason."""
    done = dagc(*arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["check", "count", "list", "show", "fmt"])
def test_files_that_cannot_be_read(tmp_path: Path, command: str) -> None:
    assert "nowhere.dag" in refused(command, tmp_path / "nowhere.dag")
    assert str(tmp_path) in refused(command, tmp_path)
    latin = tmp_path / "latin.dag"
    latin.write_bytes("program größe\n".encode("latin-1"))
    assert "byte 10 is not UTF-8" in refused(command, latin)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["conut", SPMV], "conut"),
        (["count"], "FILE"),
        (["count", SPMV, "-D", "rows"], "not of the form NAME=VALUE"),
        (["count", SPMV, "-D", "=3"], "not of the form NAME=VALUE"),
        (["count", SPMV, "-D", "no_such=3"], "no_such"),
        (["count", SPMV, "-D", "rows=many"], "rows"),
        (["count", SPMV, "-D", "yl.block=100"], "yl.block"),
        (["count", SPMV, "--transport", "pigeon"], "pigeon"),
        (["count", SPMV, "--streams", "0"], "at least 1"),
        (["list", SPMV, "--limit", "-1"], "at least 0"),
        (["list", SPMV, "--limit", "9" * 19], "is more than 9223372036854775807"),
        (["list", SPMV, "--limit", "9" * 5000], "is more than 9223372036854775807"),
        (["list", SPMV, "--json", "--plain"], "not allowed with"),
        (["show", SPMV, "--format", "png"], "png"),
        (["setup", SPMV, "-n", "0", "-o", "d"], "at least 1"),
        (["setup", SPMV], "-o"),
        (["compile", SPMV, "--target", "fpga"], "fpga"),
        (["compile", SPMV, "--run", "-n", "0"], "at least 1"),
        (["compile", SPMV, "--seconds", "0"], "positive"),
        (
            ["compile", SPMV, "--no-build", "--target", "cuda", "--arch", "sm_90; ls"],
            "unknown architecture 'sm_90; ls'",
        ),
        (["compile", SPMV, "--no-build", "--traversal", "2036"], "from 0 to 2035"),
        (["compile", SPMV, "--no-build", "--traversal", "nowhere.txt"], "give the path of a traversal's text"),
    ],
)
def test_arguments_that_are_refused(tmp_path: Path, arguments: list[str | Path], says: str) -> None:
    assert says in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "entries, the last is end|never issued"),
        ("pack@s0 nonsense end", r"mine.txt:1:9: `nonsense`: no op has this name"),
        ("pack\n", r"mine.txt:1:1: `pack`: a GPU op needs a stream"),
        ("{}", "schema_version"),
        ("{", "not JSON"),
    ],
)
def test_traversal_files_that_are_refused(tmp_path: Path, text: str, says: str) -> None:

    (tmp_path / "mine.txt").write_text(text)
    said = refused("compile", SPMV, "--no-build", "--traversal", "mine.txt", "-o", "out", cwd=tmp_path)
    assert re.search(says, said), said
    assert not (tmp_path / "out").exists()


def test_an_unproved_traversal_names_the_ops(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(
        "pack@s0 post_recv post_send wait_recv wait_send yl@s0 yr@s0 y@s0 record(e0)@s0 sync(e0) end"
    )
    said = refused("compile", SPMV, "--no-build", "--traversal", "mine.txt", "-o", "out", cwd=tmp_path)
    assert "`post_send` may start before `pack` has completed" in said


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file; a directory is expected" in refused("compile", SPMV, "--no-build", "-o", tmp_path / "file")
    assert "dagc did not write" in refused("compile", SPMV, "--no-build", "-o", tmp_path)
    assert "file/below" in refused("compile", SPMV, "--no-build", "-o", tmp_path / "file/below")
    assert "no/x.svg" in refused("show", SPMV, "--format", "svg", "-o", tmp_path / "no/x.svg")
    assert "/proc/none" in refused("setup", SPMV, "-D", "rows=100", "-n", "1", "-o", "/proc/none")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_tool(tmp_path: Path) -> None:
    """No compiler on the path: the sources are written, and the build says what is missing."""
    environment = {**ENVIRONMENT, "PATH": str(tmp_path)}
    environment.pop("DAGC_CXX", None)
    command = [sys.executable, "-m", "dagc", "compile", str(SPMV), "--target", "host", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "help:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/bench").exists()


# ---- pipes and interrupts --------------------------------------------------------------------


def test_a_reader_that_leaves() -> None:
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


# With Python's own buffer, which is written when the process ends.
BUFFERED = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["count", SPMV], ["list", SPMV], ["--version"]], ids=["short", "long", "argparse"])
def test_a_full_disk(words: list[str | Path]) -> None:
    """Whether what is printed fits into the buffer or not."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dagc", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED, timeout=300,
        )  # fmt: skip
    assert done.stderr == "dagc: error: output: No space left on device\n"
    assert done.returncode == 5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_errors_that_cannot_be_printed() -> None:
    """The exit code is still that of the error."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dagc", "check", "none.dag"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, env=BUFFERED, timeout=300)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(("words", "code"), [(f"count '{SPMV}'", 0), ("check none.dag", 2)])
def test_closed_streams(words: str, code: int) -> None:
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


def test_interrupt() -> None:
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


def test_a_quote_without_its_end_in_the_flags_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_CXXFLAGS", "-DNAME='text")
    done = dagc("compile", SPMV, "--target", "host", "-o", tmp_path / "out", "--quiet")
    assert done.returncode == 2
    assert 'DAGC_CXXFLAGS cannot be split into words: No closing quotation in "-DNAME=\'text"' in done.stderr
    assert "help: close the quote" in done.stderr


def test_a_target_is_as_asked_for_only_where_it_was(tmp_path: Path) -> None:
    results = Path(__file__).parents[1] / "benchmarks/results/2026-11-21-4xh200-explore/spmv-150000-peer.db"
    out = str(tmp_path / "out")
    assert "target     cuda sm_90 (that of the results file)\n" in good("best", results, "--no-build", "-o", out)
    text = good("best", results, "--no-build", "-o", out, "--target", "host")
    assert "target     host (as requested)\n" in text
    assert "capture=true" in text
    assert "=True" not in text
    assert "=False" not in text


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
    ],
)
def test_an_option_without_effect_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.replace("FILE", str(SPMV)).split()) == 2
    error, help = capsys.readouterr().err.splitlines()
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


def test_what_was_built_is_named_as_the_directory_is() -> None:
    out = Path("out", "p")
    assert as_given(out.absolute() / "lib" / "libp.so", out) == out / "lib" / "libp.so"
    assert as_given(Path("/elsewhere/bench"), out) == Path("/elsewhere/bench")


@pytest.mark.parametrize("text", ["5x", "-3s", "s", "0", "1h30m"])
def test_a_wrong_time_is_told_with_examples_of_right_ones(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["count", "a.dag", f"--time={text}"])
    assert caught.value.code == 2
    assert f"{text!r} is not a time such as 90s, 10m or 1.5h" in capsys.readouterr().err

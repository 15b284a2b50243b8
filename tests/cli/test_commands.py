"""Each command as a user calls it: what it prints and writes."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dagc.stages.artifacts import as_given
from tests.cli.command import HALO, ROOT, SPMV, dagc, good
from tests.measure.conftest import can_run
from tests.precompiled import do_not_optimise

TRAVERSALS = ROOT / "tests/data/spmv-2036-4xh200.csv"
UNDECIDED = ROOT / "tests/lang/broken/undecided-overlap.dag"


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
    done = dagc("record", "--host", "a.cu", "b.cu", "-o", "x.dag", "--", "mpiexec", "./x")
    assert (done.returncode, "error: b.cu: of no option, and before --" in done.stderr) == (2, True)


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
def test_notes_of_the_graph_are_printed_once(command: tuple[str, ...], code: int, rest: str, tmp_path: Path) -> None:
    """The text that `check` prints, by whatever command a user runs first; --quiet silences it."""
    shutil.copy(UNDECIDED, tmp_path)
    arguments = [command[0], UNDECIDED.name, *command[1:]]
    done = dagc(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.startswith(UNDECIDED.with_suffix(".txt").read_text())
    assert done.stderr.count("[undecided-overlap]") == 1
    assert rest in done.stderr
    if command[0] != "check":
        done = dagc(*arguments, "--quiet", *(["--force"] if command[0] == "compile" else []), cwd=tmp_path)
        assert done.returncode == code
        assert "note:" not in done.stderr


@pytest.mark.parametrize("transport", ["mpi_cuda", "mpi_host"])
@pytest.mark.parametrize(("streams", "count"), [(2, 2036), (3, 8507), (4, 10517)])
def test_count_prints_the_known_sizes_of_spmv(transport: str, streams: int, count: int) -> None:
    text = good("count", SPMV, "--transport", transport, "--streams", str(streams))
    assert text.startswith(f"{count} implementations of spmv: ")


def test_count_also_counts_other_lowerings() -> None:
    report = json.loads(good("count", SPMV, "--json"))
    assert (report["program"], report["count"]) == ("spmv", 2036)
    assert {line["count"] for line in report["lines"]} >= {2036, 23450, 96}


def test_count_is_exact_for_the_halo_exchange() -> None:
    text = good("count", HALO, "--transport", "mpi_cuda")
    assert text.split()[0] == "5367658504764649454197598361600000"


@pytest.mark.parametrize("transport", ["mpi_cuda", "mpi_host"])
def test_list_prints_the_2036_traversals(transport: str) -> None:
    with TRAVERSALS.open(newline="") as file:
        known = {row["traversal"] for row in csv.DictReader(file)}
    lines = good("list", SPMV, "--transport", transport, "--plain").splitlines()
    assert len(lines) == len(known) == 2036
    assert set(lines) == known


def test_list_has_stable_numbers() -> None:
    few = good("list", SPMV, "--limit", "3").splitlines()
    assert [line.split(":")[0] for line in few] == ["0", "1", "2"]
    as_json = [json.loads(line) for line in good("list", SPMV, "--limit", "3", "--json").splitlines()]
    assert [f"{x['id']}: {x['traversal']}" for x in as_json] == few
    assert good("list", SPMV, "--limit", "0") == ""


def test_show_draws_text_dot_and_svg(tmp_path: Path) -> None:
    assert good("show", HALO, "--transport", "mpi_cuda").startswith("halo: 33 vertices with start and end, 115 edges;")
    assert good("show", SPMV, "--format", "dot").startswith('digraph "spmv" {')
    assert good("show", SPMV, "--format", "svg", "-o", tmp_path / "dag.svg") == f"wrote {tmp_path / 'dag.svg'}\n"
    assert ET.parse(tmp_path / "dag.svg").getroot().tag.endswith("svg")


def test_check_prints_every_diagnostic_at_once(tmp_path: Path) -> None:
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


def test_fmt_formats_once_and_its_check_changes_nothing(tmp_path: Path) -> None:
    text = SPMV.read_text()
    file = tmp_path / "mine.dag"
    file.write_text(text.replace("param rows        : i64", "param rows        :   i64"))
    assert dagc("fmt", "--check", file).returncode == 1
    assert good("fmt", "--stdout", file) == good("fmt", "--stdout", SPMV)
    assert good("fmt", file) == f"formatted {file}\n"
    assert good("fmt", file) == ""
    assert good("fmt", "--check", file) == ""


def test_setup_writes_the_arrays_of_each_rank(tmp_path: Path) -> None:
    assert (
        good("setup", SPMV, "-n", "2", "-o", tmp_path / "d", "-D", "rows=100") == f"arrays of 2 ranks in {tmp_path}/d\n"
    )
    said = json.loads((tmp_path / "d/setup.json").read_text())
    assert (said["ranks"], said["params"]["rows"]) == (2, 100)
    assert (tmp_path / "d/rank-0001/expected/y.npy").is_file()


def test_doctor_reports_the_same_as_text_and_json() -> None:
    done = dagc("doctor", "--json")
    assert done.returncode in (0, 3)
    names = {fact["name"] for fact in json.loads(done.stdout)["facts"]}
    assert {"C++ compiler", "MPI", "nvcc", "GPU", "numpy"} <= names
    text = dagc("doctor")
    assert text.returncode == done.returncode
    assert ("The host target can run here." in text.stdout) == (done.returncode == 0)


def test_compile_without_a_build_writes_the_sources(tmp_path: Path) -> None:
    text = good("compile", SPMV, "--no-build", "--target", "cuda", "--arch", "sm_90", "-o", tmp_path / "out")
    assert text.startswith("target     cuda sm_90 (as requested)\n")
    assert "traversal  0, proved\n" in text
    assert (tmp_path / "out/bench.cu").is_file()


def test_the_default_output_directory_is_named_after_the_program(tmp_path: Path) -> None:
    good("compile", SPMV, "--no-build", "--target", "host", cwd=tmp_path)
    assert (tmp_path / "dagc-out/spmv/plan.json").is_file()


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_compile_with_run_checks_the_results_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_optimise(monkeypatch, "-Werror")
    arguments = ("-D", "rows=2000", "--repeats", "2", "--seconds", "0.001")
    text = good("compile", SPMV, "-o", tmp_path / "out", "--target", "host", "--run", "-n", "2", *arguments)
    assert "results agree with the reference" in text
    lines = text.splitlines()
    table = next(n for n, line in enumerate(lines) if line.split()[:1] == ["ranks"])
    assert lines[table + 1].split()[0] == "2"
    assert lines[table + 2].startswith("limit      pack at least ")
    assert re.match(r" {11}program .* of at least .*: [\d.]+ %; \d+ launches that wait for each other", lines[-1])


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_compile_with_run_states_the_nodes_of_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_optimise(monkeypatch)
    chain = ROOT / "benchmarks/gpu/chain.dag"
    words = ("-D", "capture=true", "-D", "links=5", "--repeats", "2", "--seconds", "0.001", "--target", "host")
    text = good("compile", chain, *words, "--run", "-n", "1", "-o", tmp_path)
    assert "\ngraph of 5 nodes, 0 programmatic edges\n" in text


def test_a_target_is_as_asked_for_only_where_it_was(tmp_path: Path) -> None:
    results = ROOT / "benchmarks/results/2026-11-21-4xh200-explore/spmv-150000-peer.db"
    out = str(tmp_path / "out")
    assert "target     cuda sm_90 (that of the results file)\n" in good("best", results, "--no-build", "-o", out)
    text = good("best", results, "--no-build", "-o", out, "--target", "host")
    assert "target     host (as requested)\n" in text
    assert "capture=true" in text
    assert "=True" not in text
    assert "=False" not in text


def test_what_was_built_is_named_as_the_directory_is() -> None:
    out = Path("out", "p")
    assert as_given(out.absolute() / "lib" / "libp.so", out) == out / "lib" / "libp.so"
    assert as_given(Path("/elsewhere/bench"), out) == Path("/elsewhere/bench")

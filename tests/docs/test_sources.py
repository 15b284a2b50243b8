"""The page about the five sources: each row has a state, each command exists, and those that need no file run."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from dagc.cli.main import main
from tests.study.programs import write_fill
from tests.tiers import representatives

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/sources.md"
ROW = re.compile(r"^\| [TKNMS]\d+ \|(?P<theirs>[^|]+)\| (?P<state>\w+) \|(?P<ours>[^|]+)\|$", re.MULTILINE)
COMMANDS = tuple(dict.fromkeys(re.findall(r"`dagc ([^`]+)`", PAGE.read_text())))
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?:e\d+)?"
QUICK = ("check", "list", "show", "fmt")  # those that run here, where every file is of the repository
RESULTS = ROOT / "benchmarks/results/2026-11-28-2xh200-limit/spmv.db"
TUNED = ROOT / "benchmarks/results/2026-11-29-h200-variants-2/sort.db.xz"
OF_RESULTS = tuple(c for c in COMMANDS if c.split()[0] in ("rules", "report", "export") and "A.db" not in c)
OF_TUNED = tuple(c for c in COMMANDS if ("--show" in c and "-o TUNED" in c) or ("--evaluate" in c and "LIST" not in c))
OF_CHOOSERS = tuple(
    dict.fromkeys(c.split("--launch TUNED")[1].replace("--run", "").strip() for c in COMMANDS if "--launch TUNED" in c)
)
ALONE = tuple(
    c for c in COMMANDS if c.startswith("count samples") or ("--show" in c and "samples/" in c) or c.endswith("help")
)
# What needs a GPU, several GPUs or several results files is run elsewhere, here with the words that a test there has.
ELSEWHERE = {
    "explore FILE --objective energy": ("tests/measure/test_objective.py", "energy"),
    "explore PROGRAM --follow RULES": ("tests/study/test_following.py", "--follow"),
    "explore PROGRAM --open OP.device": ("tests/study/test_decomposition.py", "--open"),
    "rules A.db B.db": ("tests/rules/test_across.py", "rules"),
    "tune PROGRAM --links gpu-gpu1=1e-6:3e11": ("tests/study/test_placed_together.py", "--links"),
}
MEASURED = tuple(
    c
    for c in COMMANDS
    if c.split()[0] in ("explore", "best", "explain", "tune", "count") and c != "tune" and "--launch" not in c
    if c not in {*OF_RESULTS, *OF_TUNED, *ALONE, *ELSEWHERE}
)
# A kernel with two versions at drawn inputs, or with a setting at sizes.
VERSIONS = '''program versions
param shape : str = "flat(n = 64)" over files("*.txt")
param N : i64 = 64 over {16, 32, 64, 96, 128}
setup "versions.py" init(N, shape)
scalar n : i32
array y : f32[n] out
array worst : f32[1] out
kernel fill(y: out f32[n], worst: out f32[1], n: i32) {
  feature size = n
  feature half = n / 2
  select variant with svm(size, half)
  gpu forward {
    launch grid(1) block(32)
    cuda """
      for (int i = threadIdx.x; i < n; i += 32) y[i] = i;
      worst[0] = n;
    """
  }
  gpu backward {
    launch grid(1) block(32)
    cuda """
      for (int i = n - 1 - threadIdx.x; i >= 0; i -= 32) y[i] = i;
      worst[0] = n;
    """
  }
}
dag { fill : gpu fill(y, worst, n) }
verify y ~ reference() rtol 0
'''
VERSIONS_PY = """import numpy as np
from dagc.inputs import call

def init(rank, size, seed, N, shape):
    return {"n": call(shape, {"flat": lambda n: n}, int) if shape != "flat(n = 64)" else N}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32), "worst": np.array([data["n"]], np.float32)}
"""


def test_each_row_says_present_differs_or_not() -> None:
    rows = list(ROW.finditer(PAGE.read_text()))
    assert len(rows) == len(re.findall(r"^\| [TKNMS]\d+ \|", PAGE.read_text(), re.MULTILINE)) > 140
    assert {row["state"] for row in rows} == {"present", "differs", "not"}
    assert all(row["ours"].strip() for row in rows)


def test_figures_are_those_of_the_section_that_is_linked() -> None:
    """Each number of a link's words is one of the section, rounded to its digits."""
    page = re.sub(r"(?<=\d) (?=\d{3}\b)", "", (ROOT / "docs/figures.md").read_text())
    sections: dict[str, str] = {}
    for part in re.split(r"^(?=#)", page, flags=re.MULTILINE):
        title = re.sub(r"[^a-z0-9 -]", "", part.partition("\n")[0].lower()).strip().replace(" ", "-")
        sections[title] = sections.get(title, "") + part
    wrong = []
    for words, section in re.findall(r"\[([^\]]+)\]\(figures\.md#([\w-]+)\)", PAGE.read_text()):
        there = [float(number) for number in re.findall(NUMBER, sections[section])]
        for number in re.findall(NUMBER, re.sub(r"(?<=\d) (?=\d{3}\b)", "", words)):
            digits = len(number.partition("e")[0].partition(".")[2])
            if not any(one == float(number) or round(one, digits) == float(number) for one in there):
                wrong.append((words, number))
    assert wrong == []


def test_each_option_of_each_command_exists(capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[str, str] = {}
    for command in COMMANDS:
        name, *words = command.split()
        if name not in helps:
            with pytest.raises(SystemExit) as ended:
                main([name, "--help"])
            assert ended.value.code == 0, command
            helps[name] = capsys.readouterr().out
        assert [w for w in words if w[:2] == "--" and w not in helps[name]] == [], command
        assert [w for w in words if "/" in w and not (ROOT / w).exists()] == [], command


def test_quick_commands_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    quick = [c for c in COMMANDS if c.split()[0] in QUICK]
    assert len(quick) >= 8
    failed = [c for c in quick if main(c.split()) != 0]
    assert failed == [], capsys.readouterr().err


@pytest.mark.parametrize(
    "command", representatives([*OF_RESULTS, *OF_TUNED, *ALONE], "rules FILE --all --sets 3", "export FILE --csv")
)
def test_commands_on_records_of_a_gpu_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that read a results file or a tuned file, and those that measure nothing."""
    tuned, of_tuned = tmp_path / "sort.db", command in OF_TUNED or "TUNED" in command
    if of_tuned:
        tuned.write_bytes(lzma.decompress(TUNED.read_bytes()))
    program = str(ROOT / "samples/sort/sort.dag")
    files = {
        "FILE": program if command in OF_TUNED else str(RESULTS), "FULL": str(RESULTS), "PROGRAM": program,
        "PAGE": str(tmp_path / "page.html"), "TUNED": str(tuned), "K": "sort",
    }  # fmt: skip
    monkeypatch.chdir(ROOT)
    more = ["--samples", "60"] if "--replay" in command else []
    try:
        code: object = main([*(files.get(word, word) for word in command.split()), *more])
    except SystemExit as end:  # help
        code = end.code
    assert code == 0


@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("command", representatives(MEASURED))
def test_commands_that_measure_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host target, at a few small inputs; a model's choice for a GPU measures nothing."""
    name, *words = command.split()
    of_sizes = any(w in words for w in ("exhaustive", "rational", "--sizes", "knn", "--show", "--gpu", "occupancy"))
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    if name == "tune" and not of_sizes:
        (tmp_path / "versions.py").write_text(VERSIONS_PY)
        unused = ' over files("*.txt")' if "--samples" in words else " over {16, 32, 64, 96, 128}"
        (program := tmp_path / "versions.dag").write_text(VERSIONS.replace(unused, ""))
    lists = tmp_path / "train.txt"
    lists.write_text("\n".join(f"flat(n = {n})" for n in (5, 17, 40, 90, 33)))
    more = {
        "explore": ["--budget", "3", "--target", "host", "-n", "1", "-o", str(tmp_path / "r.db")],
        "best": ["--no-build", "-o", str(tmp_path / "out"), *(["--name", "product"] if "library" in words else [])],
        "explain": ["--replay", str(RESULTS)],
        "count": ["--time", "5s"],
        "tune": ["--gpu", "h200"] if "--show" in words else ["-o", str(tmp_path / "t.db"), "--cell", "0.01"],
    }[name]
    if name == "tune" and "--show" not in words:
        for_gpu = of_sizes and not {"exhaustive", "knn", "--sizes"} & {*words}
        more += ["--gpu", "h200"] * (for_gpu and "--gpu" not in words) + ["--target", "host"] * (not for_gpu)
        more += ["--sizes", "N=100,200,300,400"] * ("--sizes" not in words and "samples/" not in command and of_sizes)
        listed = {"--inputs", "--samples"} & {*words} or of_sizes
        more += [] if listed else ["--inputs", f"@{lists}"]
        if "--evaluate" in words:
            assert main(["tune", str(program), "--inputs", "flat(n = 7),flat(n = 21),flat(n = 45)", *more]) == 0
    files = {
        "FILE": str(RESULTS if name in ("best", "explain") else program), "PROGRAM": str(program), "K": "fill",
        "@train.txt": f"@{lists}", "LIST": f"@{lists}", "TUNED": str(tmp_path / "t.db"), "NAME": "worst", "200": "4",
        "SPEC": "N=" + ",".join(str(100 * k) for k in range(1, 12)), "10": "1", "20": "3", "1000": "10",
    }  # fmt: skip
    monkeypatch.chdir(ROOT)
    assert main([name, *(files.get(word, word) for word in words), *more]) == 0


def test_what_runs_elsewhere_runs_there() -> None:
    assert all(f'"{word}"' in (ROOT / path).read_text() for path, word in ELSEWHERE.values())
    assert not {*ELSEWHERE} - {*COMMANDS}


@pytest.mark.parametrize("options", representatives(OF_CHOOSERS, "--features async --as library"))
def test_choosers_of_a_record_of_a_gpu_are_written(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands that compile with a tuned file, up to the compiler; that the file is of another target is told."""
    (tuned := tmp_path / "sort.db").write_bytes(lzma.decompress(TUNED.read_bytes()))
    command = ["compile", str(ROOT / "samples/sort/sort.dag"), "--launch", str(tuned), "-o", str(tmp_path / "out")]
    name = ["--name", "ordered"] if "library" in options else []
    assert main([*command, "--no-build", "--target", "cuda", *options.split(), *name]) == 0
    assert main([*command, "--no-build", "--target", "host"]) == 2
    assert "it was tuned for GPUs: give --target cuda" in capsys.readouterr().err


def test_each_word_is_that_of_the_glossary_and_of_the_language() -> None:
    """The terms of the sources, beside words that dagc defines, and commands or keywords that exist."""
    table = PAGE.read_text().partition("\n## Words\n")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line.startswith("| ")
    ]
    source, *rest = rows
    assert source == ["source", "its word", "dagc", "written"]
    assert {row[0] for row in rest} == {"Tenzing", "KLARAPTOR", "Nitro", "MLCD", "Sub-systems"}
    glossary = (ROOT / "docs/reference/glossary.md").read_text()
    terms = set(re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE))
    known = terms | {one for term in terms for one in term.split(", ")}
    assert [row for row in rest if row[2] not in known] == []
    words = set(re.findall(r"[a-z_]+", (ROOT / "grammar/dag.lark").read_text()))
    written = [row[3].strip("`") for row in rest]
    keywords = [re.findall(r"[a-z]+", text) for text in written if not text.startswith("dagc ") and "->" not in text]
    assert [first for first, *_ in keywords if first not in words] == []
    assert sum(text.startswith("dagc ") for text in written) > 35

"""What users see, from every committed record and sample, compared to the digit before and after a change.

    python -m benchmarks.unchanged --write DIR          # one text per case
    python -m benchmarks.unchanged --against DIR        # with what `--write` wrote before
    python -m benchmarks.unchanged --against REVISION   # with the dagc of a revision, unpacked into a temporary folder

Runs the commands that need no GPU and are repeatable: `--help` of every command; `check`, `fmt`, `show`, `count`,
`list` and the emitted sources of every sample; `rules`, `best`, `report`, `export` and `explain` of the results files;
merged files; searches that replay recorded times; rational programs and launch settings that a model ranks; of each
tuned file the emitted choosers, compiled and asked, folds of its inputs (the selectors trained again), and what two
halves of it learn when they are merged; the quick blocks of docs/figures.md. Both sides read the records and samples of
this checkout, except for figures, where each has its own benchmarks.

Paths, durations, times of day, versions and revisions are masked. With --against, prints the first lines that differ;
exit code 1 if any do. `--only WORDS` takes the cases whose names contain the words, `--families` some of the processes.
Six minutes of one core; needs g++, and nvcc for launch settings that a model ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import lzma
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks/results"
SAMPLES = ROOT / "samples"
PROGRAM = "program"  # in place of an op: the chooser of whole programs
SHOWN = 12  # lines of a case that differ
FIGURE_SECONDS = 6.0  # blocks of docs/figures.md that take longer are not repeated here
UNSEEN = "benchmarks/results/2026-11-23-h100-unseen4"
REPLAYS = {  # launch settings across sizes, and orders, by recorded times
    "launch-settings": ("benchmarks.tune.corpus", f"{UNSEEN}/oracle-unseen4.csv.xz", "--gpu", "h100", "--families",
                        "--compiled", f"{UNSEEN}/compiled.json.xz"),
    "orders": ("benchmarks.search", "--steps", "0", "--budget", "40", "--seeds", "3", "--results", "tests/data"),
}  # fmt: skip
MASKS = (
    (r"Time of the search: .*", "Time of the search"),
    (r"(?m)^.*: \d+ (s|min)( \(.*\))?\n", ""),  # the display of progress
    (r"(?m)^search: \d+ of .*\n", ""),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "TIME"),
    (r"\b\d+(\.\d+)? s (searching|measuring|of it)", r"SECONDS \2"),
    (r"(measured|others?|inputs?|sizes?|built|in) in \d+(\.\d+)? s\b", r"\1 in SECONDS"),
    (r", in \d+(\.\d+)? s\b", ", in SECONDS"),
    (r"\b(revision|git)([\" :=]+)[0-9a-f]{7,40}(-dirty)?", r"\1\2REVISION"),
    (r"\bdagc \d+\.\d+\.\d+[\w.+-]*", "dagc VERSION"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """Command lines of dagc that are run one after the other; what they print and write is one text. In a word,
    `OUT` is the folder that the case may write to. `prepare` puts files there first; `ask` returns more text."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    prepare: Callable[[Path], None] | None = None
    ask: Callable[[Path], str] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A file of `benchmarks/results` with tables. `kind`: `results` or `tuned`; `file`: the program when it ran."""

    path: Path
    kind: str
    file: str
    params: tuple[tuple[str, object], ...]
    sources: tuple[tuple[str, str], ...] = field(repr=False)
    choosers: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(RECORDS)).removesuffix(".xz").removesuffix(".db")

    @property
    def program(self) -> str:
        """The path of its text among its sources."""
        return next(path for path, _ in self.sources if path.endswith(self.file)).lstrip("/")


# ---- records --------------------------------------------------------------------------------


def unpack(path: Path, folder: Path) -> Path:
    """A copy of a file of tables, which commands may change."""
    copy = folder / path.name.removesuffix(".xz")
    copy.write_bytes(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
    return copy


def records() -> list[Record]:
    """All of them, ordered by name."""
    out = []
    with tempfile.TemporaryDirectory() as folder:
        packed = list(RECORDS.rglob("*.db.xz"))
        for path in sorted([*packed, *({*RECORDS.rglob("*.db")} - {file.with_suffix("") for file in packed})]):
            file = sqlite3.connect(unpack(path, Path(folder)))
            tables = {row[0] for row in file.execute("SELECT name FROM sqlite_master")}
            name, column = ("tune_chooser", "op") if "tune_chooser" in tables else ("chooser", "domain")
            choosers = tuple(file.execute(f"SELECT {column}, chooser FROM {name}")) if name in tables else ()
            sources = tuple(file.execute("SELECT path, text FROM source"))
            meta = dict(file.execute("SELECT key, value FROM meta"))
            file.close()
            kind, params = "tuned" if choosers else "results", tuple(json.loads(meta["params"]).items())
            out.append(Record(path, kind, meta["path"], params, sources, choosers))
    return out


def laid_out(record: Record, folder: Path) -> None:
    """The file, and the texts that were measured, in a folder."""
    unpack(record.path, folder).rename(folder / "record.db")
    for path, text in record.sources:
        file = folder / "text" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


# ---- cases ----------------------------------------------------------------------------------


def of_help() -> Iterator[Case]:
    from dagc.cli.main import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    ([a-z]+)\s", printed.getvalue(), re.MULTILINE)
    yield Case("help", (("--help",), *((name, "--help") for name in commands)))
    lists = (("tune", "--method", "help"), ("explore", "--strategy", "help"), ("explore", "--objective", "help"))
    yield Case("help-lists", lists)


def programs() -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted(SAMPLES.rglob("*.dag"))]


def of_programs() -> Iterator[Case]:
    for path in programs():
        name, file = (
            path.with_suffix("").name if path.parent.name == "polybench" else str(path.with_suffix("")),
            str(path),
        )
        name = name.removeprefix("samples/").replace("/", "-")
        yield Case(f"{name}.check", (("check", file), ("fmt", "--check", file)))
        yield Case(f"{name}.show", tuple(("show", file, "--format", form) for form in ("text", "dot")))
        yield Case(f"{name}.count", (("count", file, "--json", "--quiet"),) if path.stem in COUNTED else ())
        yield Case(f"{name}.list", (("list", file, "--limit", "50", "--quiet"),))


COUNTED = ("spmv", "heat", "jacobi", "pipeline", "grid2d", "gemm", "corr", "2mm", "3mm", "cg", "overlap", "sage")
FORMS = (("cuda", "program"), ("cuda", "library"), ("cuda", "driver"), ("host", "program"))


def headers_text(_: Path) -> str:
    """Of the headers that every emitted program gets."""
    runtime = code() / "templates/runtime"
    files = sorted(file for file in runtime.rglob("*") if file.is_file())
    return "".join(f"---- {file.relative_to(runtime)}\n{file.read_text(encoding='utf-8')}\n" for file in files)


def of_sources() -> Iterator[Case]:
    yield Case("headers", (), ask=headers_text)
    for path in programs():
        name = str(path.with_suffix("")).removeprefix("samples/").replace("/", "-")
        for target, form in FORMS:
            words = ("compile", str(path), "--target", target, "--as", form, "--no-build", "--quiet", "-o", "OUT/c")
            architecture = ("--arch", "sm_90") if target == "cuda" else ()
            named = ("--name", "sorter") if path.stem == "sort" and form == "library" else ()
            stages = ("--print-after", "all") if (target, form) == FORMS[0] else ()
            yield Case(f"{name}.{target}-{form}", ((*words, *architecture, *named, *stages),))


REPORTED = ("spmv-150000-nccl", "spmv-cnr2000-all", "halo-mpi_cuda-mcts", "jacobi-2048", "energy", "heat-auto")
EXPLAINED = ("spmv-150000-mpi_cuda", "spmv-150000-peer", "spmv-15000000-mpi_host", "heat-all", "halo-all-mcts-min")


def of_results() -> Iterator[Case]:
    for record in records():
        if record.kind != "results":
            continue
        commands: list[tuple[str, ...]] = [("rules", "OUT/record.db")]
        commands += [("best", "OUT/record.db", "--plan"), ("best", "OUT/record.db", "--plan", "--rank", "3")]
        commands += [("export", "OUT/record.db", "--csv")]
        if record.path.stem in REPORTED:
            commands += [("report", "OUT/record.db", "-o", "OUT/report.html")]
            commands += [("rules", "OUT/record.db", "--format", "json", "--classes", "all")]
            commands += [("best", "OUT/record.db", "--no-build", "-o", "OUT/best")]
        if record.path.stem in EXPLAINED:
            commands += [("explain", "OUT/record.db", "--replay", "OUT/record.db", "--format", "md")]
        yield Case(record.name, tuple(commands), partial(laid_out, record))


def of_across() -> Iterator[Case]:
    """Rules across inputs, and merged results files."""
    first = "benchmarks/results/2026-11-21-4xh200-explore"
    several = tuple(f"{n}={first}/spmv-{n}-mpi_cuda.db" for n in ("150000", "1500000", "15000000"))
    yield Case("rules-across", (("rules", *several),))
    estimated = ("rules", f"{first}/spmv-150000-all.db", "--estimate")
    yield Case("rules-estimated", (estimated, (*estimated[:2], "--against", f"{first}/spmv-150000-mpi_cuda.db")))
    files = tuple(f"{first}/spmv-150000-{name}.db" for name in ("mpi_cuda-captured", "mpi_host", "nccl"))
    merge = ("merge", *files, "--other-machine", "--quiet", "-o", "OUT/merged.db")
    yield Case("merge", (merge, ("rules", "OUT/merged.db"), ("export", "OUT/merged.db", "--csv")))


STRATEGIES = ("model", "mcts", "mcts-min", "random")
REPLAYED = (
    ("2026-11-21-4xh200-explore/spmv-150000-mpi_cuda", "mpi_cuda"),
    ("2026-11-21-4xh200-explore/spmv-150000-mpi_host", "mpi_host"),
    ("2026-11-21-4xh200-explore/spmv-150000-nccl", "nccl"),
)


def of_replays() -> Iterator[Case]:
    """Searches of the program that was measured, by its times."""
    by_name = {record.name: record for record in records()}
    for name, transport in REPLAYED:
        record = by_name[name]
        params = tuple(word for key, value in record.params for word in ("-D", f"{key}={value}"))
        for strategy in STRATEGIES:
            commands = []
            for seed in ("0", "1"):
                out = f"OUT/{seed}.db"
                commands += [("explore", f"OUT/text/{record.program}", "--replay", "OUT/record.db", "--transport",
                              transport, "--strategy", strategy, "--budget", "40", "--seed", seed, *params, "-o", out),
                             ("export", out, "--csv")]  # fmt: skip
            yield Case(f"{record.path.stem}.{strategy}", tuple(commands), partial(laid_out, record))


SHOWN_TEXTS = ("text", "latex", "c", "dot")


def of_models() -> Iterator[Case]:
    """Rational programs, and the launch settings that they rank."""
    occupancy = tuple(("tune", "samples/polybench/gemm.dag", "--show", "occupancy", "--format", form)
                      for form in SHOWN_TEXTS)  # fmt: skip
    yield Case("occupancy", occupancy)
    for path in programs():
        if path.parent.name != "polybench":
            continue
        ranked = ("tune", str(path), "--gpu", "h200", "--top", "0", "-o", "OUT/tuned.db")
        shown = []
        for kernel in re.findall(r"^kernel (\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE):
            forms = SHOWN_TEXTS if path.stem in ("gemm", "2dconv") else ("text",)
            shown += [("tune", str(path), "--show", kernel, "--format", form) for form in forms]
        yield Case(f"{path.stem}.models", (ranked, *shown), ask=lambda out: choosers_text(out / "tuned.db"))
    rational = ("tune", "samples/polybench/gemm.dag", "--gpu", "h200", "--top", "0", "--method", "rational")
    yield Case("gemm.rational", ((*rational, "-o", "OUT/tuned.db"),), ask=lambda out: choosers_text(out / "tuned.db"))


def choosers_text(file: Path) -> str:
    """The choosers of a tuned file as it has them."""
    if not file.exists():
        return "no tuned file\n"
    with contextlib.closing(sqlite3.connect(file)) as tables:
        rows = tables.execute("SELECT domain, chooser FROM chooser ORDER BY domain").fetchall()
    return "".join(f"chooser {op}: {json.dumps(json.loads(text), indent=1)}\n" for op, text in rows)


FOLDED = ("2026-11-24-h100-sort-2/sort", "2026-11-24-h100-bfs-3/bfs", "2026-11-24-h200-solvers/solvers",
          "2026-11-22-h100-variants/first-histogram", "2026-11-24-h100-variants-8/spmv")  # fmt: skip


def of_tuned() -> Iterator[Case]:
    for record in records():
        if record.kind != "tuned":
            continue

        def prepare(folder: Path, record: Record = record) -> None:
            laid_out(record, folder)
            halves(folder)

        def ask(folder: Path, record: Record = record) -> str:
            return answers(record, folder) + choosers_text(folder / "merged.db")

        program, commands = f"OUT/text/{record.program}", []
        kernels = [op for op, _ in record.choosers if op != PROGRAM]
        commands += [("tune", program, "-o", "OUT/record.db", "--show", op, "--format", "c") for op in kernels]
        commands += [("export", "OUT/record.db", "--csv")]
        commands += [("compile", program, "--target", "cuda", "--arch", "sm_90", "--no-build", "--quiet", "--launch",
                      "OUT/record.db", "-o", "OUT/c")]  # fmt: skip
        if record.name in FOLDED:
            commands += [("tune", program, "-o", "OUT/record.db", "--evaluate", "--folds", "3", "--quiet")]
            commands += [("merge", "OUT/half-0.db", "OUT/half-1.db", "-o", "OUT/merged.db", "--quiet")]
        yield Case(record.name, tuple(commands), prepare, ask)


def halves(folder: Path) -> None:
    """Two files with the measurements of every other input each, as two sessions would write them."""
    for half in (0, 1):
        copy = shutil.copyfile(folder / "record.db", folder / f"half-{half}.db")
        with contextlib.closing(sqlite3.connect(copy)) as tables, tables:
            if not tables.execute("SELECT 1 FROM sqlite_master WHERE name = 'candidate'").fetchone():
                return  # a file of dagc 0.2
            points = [row[0] for row in tables.execute("SELECT DISTINCT point FROM candidate ORDER BY point")]
            for point in points[1 - half :: 2]:
                here = "(SELECT id FROM candidate WHERE point = ?)"
                tables.execute(f"DELETE FROM value WHERE sample IN (SELECT id FROM sample WHERE candidate IN {here})",
                               (point,))  # fmt: skip
                tables.execute(f"DELETE FROM sample WHERE candidate IN {here}", (point,))
                tables.execute("DELETE FROM candidate WHERE point = ?", (point,))
            tables.execute("UPDATE run SET started = started || ?", ("" if half else " ",))


ASK = """
#include <stdio.h>
int main() {{
  double x[{features}];
  for (int k = 0; scanf("%lf", x + k) == 1;) {{
    k = (k + 1) % {features};
    if (k != 0) continue;
    const dagc_choice c = dagc_choose_{op}(x);
    printf("%d %.17g %.17g %d\\n", c.answer, c.sure, c.beyond, c.reason);
  }}
}}
"""
AROUND = (1.0, 0.8, 1.25, 30.0)


def measured_at(file: Path, op: str, chooser: dict[str, Any]) -> list[list[float]]:
    """The vectors of features at which something was measured."""
    if op != PROGRAM:
        return [[float(v) for v in anchor["data"]] for anchor in chooser["anchors"]]
    with contextlib.closing(sqlite3.connect(file)) as tables:
        rows = tables.execute("SELECT value FROM fact WHERE key LIKE 'input %' OR key = 'inputs' ORDER BY key")
        facts = [json.loads(row[0]) for row in rows]
    every = [one for fact in facts for one in (fact if isinstance(fact, list) else [fact])]  # of one input, or of all
    return [[float(one["features"][op][name]) for name in chooser["data"]] for one in every]


def answers(record: Record, folder: Path) -> str:
    """Of the emitted choosers, compiled: at the inputs that were measured, around and between them."""
    text = []
    for number, (op, chooser) in enumerate(record.choosers):
        rows = measured_at(folder / "record.db", op, json.loads(chooser))
        grid = [[v * factor for v in row] for row in rows for factor in AROUND]
        grid += [[(a + b) / 2 for a, b in zip(row, other, strict=True)] for row, other in pairwise(rows)]
        source, program = folder / "ask.cpp", folder / "ask"
        shown = (folder / ("c/chooser.h" if op == PROGRAM else f"printed-{number}")).read_text(encoding="utf-8")
        source.write_text(shown + ASK.format(op=op, features=len(rows[0])), encoding="utf-8")
        command = ["g++", "-std=c++17", "-O0", "-w", "-ffp-contract=off", str(source), "-o", str(program)]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
        if built.returncode:
            text.append(f"{op}: not compiled: {built.stderr[:300]}\n")
            continue
        vectors = "\n".join(" ".join(map(repr, row)) for row in grid)
        done = subprocess.run([str(program)], input=vectors, check=False, capture_output=True, text=True)
        text.append(f"{op}: {len(grid)} answers, confidence, how far outside, reason\n{done.stdout}{done.stderr}")
    return "".join(text)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "help": of_help, "programs": of_programs, "sources": of_sources, "results": of_results, "across": of_across,
    "replays": of_replays, "models": of_models, "tuned": of_tuned,
}  # fmt: skip


# ---- running --------------------------------------------------------------------------------


def code() -> Path:
    """The checkout of the dagc that runs."""
    import dagc

    return Path(dagc.__file__).resolve().parents[1]


def masked(text: str, folder: Path | None = None) -> str:
    """Without what another run or machine changes."""
    for path, name in ((folder, "OUT"), (code(), "ROOT"), (ROOT, "ROOT")):
        text = text.replace(str(path), name) if path is not None else text
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return text


def ran(words: tuple[str, ...], folder: Path, number: int) -> str:
    """What a command prints on both streams, and its exit code. The first is kept in `printed-NUMBER`."""
    from dagc.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: object = main([word.replace("OUT", str(folder)) for word in words])
        except SystemExit as end:
            status = end.code
        except Exception as error:
            status = f"of {error!r}"  # a fault of dagc, which the others are compared without
    (folder / f"printed-{number}").write_text(out.getvalue(), encoding="utf-8")
    return f"$ dagc {' '.join(words)}\n{out.getvalue()}{err.getvalue()}exit code {status or 0}\n"


def written(folder: Path) -> Iterator[str]:
    """The files that the commands wrote, without the headers that every program gets. Of what is not text, a digest."""
    headers = {header.name for header in (code() / "templates/runtime").rglob("*")}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = file.relative_to(folder)
        if name.parts[0] in ("text", "ask.cpp", "ask") or name.parts[0].startswith("printed-") or file.suffix == ".db":
            continue
        content = file.read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = ""
        if file.name in headers:
            continue
        yield f"---- {name}\n{text}\n" if text else f"---- {name}: {hashlib.sha256(content).hexdigest()}\n"


def text_of(case: Case) -> str:
    folder = Path(tempfile.gettempdir()) / f"unchanged-{os.getpid()}"  # random names are escaped in Markdown
    folder.mkdir()
    try:
        if case.prepare is not None:
            case.prepare(folder)
        parts = [ran(words, folder, number) for number, words in enumerate(case.commands)]
        parts += [case.ask(folder)] if case.ask is not None else []
        return masked("".join([*parts, *written(folder)]), folder)
    finally:
        shutil.rmtree(folder)


def run_family(name: str, only: str, output: Path) -> None:
    """Write a text for each of its cases, in this process."""
    os.chdir(ROOT)
    for case in FAMILIES[name]():
        if only in f"{name}/{case.name}":
            began = time.monotonic()
            keep(output / name / f"{case.name}.txt", text_of(case), began)


def keep(file: Path, text: str, began: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(f"{time.monotonic() - began:6.1f} s  {file.parent.name}/{file.stem}", flush=True)


def unpacked(root: Path) -> set[Path]:
    """The records that stand beside their compressed files."""
    return {file for packed in (root / "benchmarks/results").rglob("*.xz") if (file := packed.with_suffix("")).exists()}


def run_figures(only: str, output: Path) -> None:
    """Write what the quick blocks of docs/figures.md and REPLAYS print, by the benchmarks of the dagc that runs."""
    from benchmarks import figures

    page = figures.blocks(figures.PAGE.read_text(encoding="utf-8"))
    quick = [b for b in page if not b.how and b.figures and b.seconds <= FIGURE_SECONDS]
    scripts = [(figures.expanded(b.text).split()[-1], figures.commands(b)) for b in quick]
    scripts += [(name, shlex.join([sys.executable, "-m", *words])) for name, words in REPLAYS.items()]
    for number, (name, script) in enumerate(scripts):
        title = f"{number}-{Path(name).name}"
        if only in f"figures/{title}":
            began, before = time.monotonic(), unpacked(figures.ROOT)
            script = f"set -euo pipefail\ncd {figures.ROOT}\n{script}"
            done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True)
            for file in unpacked(figures.ROOT) - before:
                file.unlink()
            text = masked(f"{script}\n{done.stdout}exit code {done.returncode}\n".replace(sys.executable, "python"))
            keep(output / "figures" / f"{title}.txt", text, began)


def run_all(root: Path, families: list[str], only: str, output: Path) -> None:
    """Write the texts of the dagc in `root`, a process for each family."""
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80", "LC_ALL": "C.UTF-8", "PATH": tools}
    for name in families:
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--family", name, "--only", only]
        done = subprocess.run([*command, "--write", str(output)], env=environment, check=False, cwd=root)
        if done.returncode:
            raise SystemExit(f"the family {name} ended with exit code {done.returncode}")


def of_revision(revision: str, output: Path, families: list[str], only: str) -> None:
    """Write the texts of a revision, from its files in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "dagc.tar"
        subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), revision], check=True)
        shutil.unpack_archive(archive, Path(folder) / "dagc", filter="data")
        run_all(Path(folder) / "dagc", families, only, output)


def differences(before: Path, after: Path, families: list[str], only: str) -> list[str]:
    """Of each case that differs, its first lines that do."""
    out = []
    names = {path.relative_to(folder) for folder in (before, after) for path in folder.rglob("*.txt")}
    for name in sorted(n for n in names if n.parts[0] in families and only in str(n)):
        sides = [folder / name for folder in (before, after)]
        if not all(side.exists() for side in sides):
            out.append(f"{name}: only {'after' if sides[1].exists() else 'before'}")
            continue
        old, new = (side.read_text(encoding="utf-8") for side in sides)
        if old != new:
            lines = [line[:200] for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)]
            more = f"  ... {len(lines) - 2 - SHOWN} lines more" if len(lines) - 2 > SHOWN else ""
            out.append("\n".join([f"{name}: differs", *(f"  {line}" for line in lines[2 : 2 + SHOWN]), more]).rstrip())
    return out


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="DIR", type=Path, help="write a text per case")
    parser.add_argument("--against", metavar="DIR|REVISION", help="compare with what was written, or with a revision")
    parser.add_argument("--families", default=",".join([*FAMILIES, "figures"]), help="(default: %(default)s)")
    parser.add_argument("--only", metavar="WORDS", default="", help="only cases whose names contain these words")
    parser.add_argument("--family", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.family is not None:
        (run_figures if args.family == "figures" else partial(run_family, args.family))(args.only, args.write)
        return 0
    if args.write is None and args.against is None:
        parser.error("--write DIR or --against DIR or REVISION")
    families = args.families.split(",")
    with tempfile.TemporaryDirectory() as folder:
        after, before = args.write or Path(folder) / "after", Path(args.against or folder)
        run_all(ROOT, families, args.only, after)
        if args.against is None:
            return 0
        if not before.is_dir():
            before = Path(folder) / "before"
            of_revision(args.against, before, families, args.only)
        wrong = differences(before, after, families, args.only)
        print("\n".join(wrong) if wrong else "no case differs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

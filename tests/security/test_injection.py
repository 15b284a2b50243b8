"""What is read from a file is data: it is refused, or it is in what dagc writes as text that nothing executes."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz_files import HOSTILE, write_plans, write_program, write_tuned
from dagc import api
from dagc.base.errors import UsageError
from dagc.build.toolchain import find_cxx
from dagc.emit.render import comment_text, cxx_string, py_doc
from dagc.ir.plan import plan_inputs
from dagc.perf.hardware import DESCRIPTORS, load_hardware
from tests.regressions.programs import write

needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
INJECTED = "*/ __attribute__((constructor)) void injected() {} /*"
TEXTS = [text for text in HOSTILE if len(text) < 100]


# ---- the escapes of each place --------------------------------------------------------------


@needs_cxx
def test_texts_in_cxx_are_what_they_were(tmp_path: Path) -> None:
    """As a literal, in both kinds of comment, and as the file of #line."""
    texts = [t for t in TEXTS if "\0" not in t]
    lines = ["#include <cstring>", "int wrong() {", "  int wrong = 0;"]
    for text in texts:
        codes = ", ".join(str(byte) for byte in text.encode()) or "0"
        lines += [
            f"  // {comment_text(text)}",
            f"  /* {comment_text(text)} */",
            f"  {{ const unsigned char right[] = {{{codes}, 0}};",
            f"    wrong += std::memcmp(right, {cxx_string(text)}, {len(text.encode()) + 1}) != 0; }}",
            f"#line 7 {cxx_string('f' + text)}",
        ]
    (tmp_path / "t.cpp").write_text("\n".join([*lines, "  return wrong;", "}", "int main() { return wrong(); }", ""]))
    cxx = find_cxx()
    assert cxx is not None
    command = [str(cxx.path), "-std=c++17", "-trigraphs", "-Wall", "-Wextra", "-Werror", "t.cpp", "-o", "t"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./t"], cwd=tmp_path, check=True)


def test_texts_in_python_are_what_they_were() -> None:
    for text in [*TEXTS, "".join(TEXTS)]:
        module = ast.parse(f'"""About {py_doc(text)}."""\n# {comment_text(text)}\nx = {text!r}\n')
        assert ast.get_docstring(module, clean=False) == f"About {text}."
        assert len(module.body) == 2


@needs_cxx
@pytest.mark.mpi
@pytest.mark.usefixtures("unoptimised")
def test_a_program_in_a_folder_of_any_name(tmp_path: Path) -> None:
    names = ('new\nline "quoted" \\N{x}', "'''\"\"\" *SLASH ??SLASH \\", "$(touch x) ${HOME} %s {{ x }} #;")
    folder = tmp_path.joinpath(*(name.replace("SLASH", "") for name in names))
    folder.mkdir(parents=True)
    path = write(folder)
    done = api.compile(path, folder / "host", target="host", run=True, ranks=1, seconds=1e-3, repeats=2)
    assert done.result is not None
    api.compile(path, tmp_path / "cuda", target="cuda", arch="sm_90", build=False)
    ast.parse((tmp_path / "cuda" / "driver.py").read_text(encoding="utf-8"))


# ---- tuned files ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tuned")
    write_plans(made / "plans.db", write_tuned(made / "tuned.db", write_program(made)))
    return made


def with_text(value: Any, text: str) -> Iterator[Any]:
    """A JSON value with `text` in place of each string of it, behind it, and as each key; one at a time."""
    if isinstance(value, str):
        yield from (text, value + text)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {(key + text if k == key else k): v for k, v in value.items()}
            yield from ({**value, key: new} for new in with_text(item, text))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from ([*value[:place], new, *value[place + 1 :]] for new in with_text(item, text))
    elif value is not None:
        yield text


def changed_files(folder: Path, name: str, text: str) -> Iterator[Path]:
    """Copies of a tuned file with `text` in one field each: of choosers, facts, cells."""
    path = folder / "changed.db"
    fields = [("chooser", "domain", "chooser"), ("chooser", "domain", "domain"), ("fact", "key", "value")]
    with contextlib.closing(sqlite3.connect(folder / name)) as connection:
        rows = {t: connection.execute(f"SELECT {k}, {c} FROM {t}").fetchall() for t, k, c in fields[1:] for c in (c,)}
        rows["chooser"] = connection.execute("SELECT domain, chooser FROM chooser").fetchall()
    for table, key, column in fields:
        for name_of, value in rows[table]:
            whole = value if column != "domain" else None
            news = (json.dumps(new) for new in with_text(json.loads(whole), text)) if whole else [name_of + text]
            for new in news:
                shutil.copy(folder / name, path)
                with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (new, name_of))
                yield path


@pytest.mark.parametrize(
    ("name", "every"), [("tuned.db", 7), ("plans.db", 1), pytest.param("tuned.db", 1, marks=pytest.mark.thorough)]
)
def test_no_text_of_a_tuned_file_becomes_code(folder: Path, tmp_path: Path, name: str, every: int) -> None:
    refused = 0
    for path in itertools.islice(changed_files(folder, name, INJECTED), 0, None, every):
        try:
            api.compile(
                folder / "small.dag", tmp_path / "o", target="cuda", arch="sm_90", launch=str(path), build=False,
                force=True,
            )  # fmt: skip
        except UsageError:
            refused += 1
            continue
        for file in (f for f in (tmp_path / "o").rglob("*") if f.is_file()):
            assert b"injected" not in file.read_bytes(), file
    assert refused * every > 50


@pytest.mark.parametrize("label", [-1, 2, 2**31, 2**63 - 1])
def test_answers_that_are_not_there_are_refused(folder: Path, tmp_path: Path, label: int) -> None:
    path = tmp_path / "t.db"
    shutil.copy(folder / "plans.db", path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE chooser SET chooser = json_set(chooser, '$.selector.labels[0]', ?)", (label,))
    with pytest.raises(UsageError, match="chooser of `program` is damaged"):
        api.compile(folder / "small.dag", tmp_path / "o", target="host", launch=str(path), build=False)


# ---- other files ----------------------------------------------------------------------------


def test_a_descriptor_of_a_gpu_with_other_values_is_refused(tmp_path: Path) -> None:
    text = DESCRIPTORS.read_text()
    text = text[text.index("[v100]") : text.index("[rtx2080ti]")]
    path = tmp_path / "gpu.toml"
    path.write_text(text)
    assert load_hardware(str(path)).arch == "sm_70"
    for key in ("multiprocessors", "clock", "l2_bytes", "name"):
        values = ["nan", "inf", "-1", "0", "[]", '"\\u001b[2J"'] if key != "name" else ['"\\u001b[2J"', "7"]
        for value in values:
            lines = [f"{key} = {value}" if line.startswith(f"{key} ") else line for line in text.splitlines()]
            path.write_text("\n".join(lines))
            with pytest.raises(UsageError, match=key):
                load_hardware(str(path))


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", '{"schema_version": 1}', '{"schema_version": [1]}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="plan.json"):
        plan_inputs(text)

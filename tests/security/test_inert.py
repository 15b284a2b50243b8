"""Every text of a results file and of plan.json, made hostile: it is refused in one message, or shown as text."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz_files import HOSTILE, write_program, write_results
from dagc import api
from dagc.base.errors import UsageError
from dagc.ir.plan import plan_from_json, plan_inputs, plan_to_json
from dagc.store.records import load
from tests.security.test_injection import with_text

TEXTS = [text for text in HOSTILE if text and len(text) < 100]
MARKUP = "</script></style></svg><img src=x onerror=alert(1) id=\"a\">' onload='x' --> ]]> &lt; `x` $(x) \\x {{ 7*7 }}"
COLUMNS = {
    "meta": ("value",), "source": ("path", "text"), "assignment": ("choices",), "sample": ("purpose",),
    "run": ("started", "machine_key", "machine", "strategy", "revision", "version", "options"),
    "candidate": ("traversal", "failure"), "metric": ("name", "unit"),
}  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    return write_results(folder / "good.db", write_program(folder))


def changed(value: str, text: str) -> Iterator[str]:
    """A text of a cell with `text` in it, behind it and in place of it; of JSON, in each of its strings and keys."""
    if value[:1] in ("{", "["):
        yield from (json.dumps(new) for new in with_text(json.loads(value), text))
    else:
        yield from (value + text, text)


def hostile_files(good: Path, path: Path, text: str) -> Iterator[tuple[str, Path]]:
    """Copies of a results file with one hostile text each, and where it is."""
    with contextlib.closing(sqlite3.connect(good)) as connection:
        cells = [
            (table, column, row, value)
            for table, columns in COLUMNS.items()
            for column in columns
            for row, (value,) in enumerate(connection.execute(f"SELECT {column} FROM {table}").fetchall()[:6])
        ]
    for table, column, row, value in cells:
        key = {"meta": "key", "source": "path"}.get(table, "id")
        for new in changed(value, text):
            shutil.copy(good, path)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {key} = (SELECT {key} FROM {table} LIMIT 1 OFFSET {row})",
                    (new,),
                )
            yield f"{table}.{column} = {new!r}", path


def test_control_characters_are_refused_where_a_line_is_expected(good: Path, tmp_path: Path) -> None:
    """An escape sequence would reach the terminal."""
    read = set()
    for where, path in hostile_files(good, tmp_path / "r.db", "\x1b[2J"):
        said = ""
        try:
            load(path)
            read.add(where.split(" ")[0])
        except UsageError as error:
            said = error.message
        assert said.isprintable(), where
    assert read <= {
        "meta.value",
        "source.path",
        "source.text",
        "run.machine_key",
        "sample.purpose",
        "run.options",
        "run.machine",
    }


# ---- what is shown --------------------------------------------------------------------------


class Elements(HTMLParser):
    """How often each element, and each attribute of one, is on a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.update([(tag,), *((tag, name) for name, _ in attrs)])

    def handle_decl(self, decl: str) -> None:
        self.found[("!", decl)] += 1

    def handle_comment(self, data: str) -> None:
        self.found[("--",)] += 1


def everywhere(good: Path, path: Path, text: str) -> Path:
    """A file with `text` in each field that says something of the program or of the runs, all at once."""
    shutil.copy(good, path)
    machine = {
        "hosts": [text], "cpu": text, "cores": 4, "gpus": [text], "driver": text, "mpi": text, "target": "host",
        "arch": "", "facts": {text: text, "load": [text], "cxx": {text: [text]}},
    }  # fmt: skip
    options: dict[str, Any] = {text: text, "transport": text, "opened": [text], "launch": text, "data": text}
    options |= {"replay": {text: text}, "fixed": [["a.bx", text, text], ["a.bx", 32, "-D"]]}
    program = f"/{text}/small.dag"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE source SET path = ?", (program,))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'path'", (program,))
        connection.execute(
            "UPDATE run SET started = ?, machine = ?, machine_key = ?, strategy = ?, revision = ?, version = ?,"
            " options = ?",
            (text, json.dumps(machine), text, text, text, text, json.dumps(options)),
        )
        connection.execute("UPDATE candidate SET failure = ? WHERE failure != ''", (text,))
        connection.execute("UPDATE source SET text = text || ?", (f"\n// {text}\n",))
    return path


@pytest.mark.parametrize(
    "text", [MARKUP, "".join(t for t in TEXTS if t.isprintable()) + "\u202e\u2028"], ids=["markup", "others"]
)
def test_a_page_has_the_elements_of_a_clean_one(good: Path, tmp_path: Path, text: str) -> None:
    pages = []
    for name, words in (("clean.db", "word"), ("hostile.db", text)):
        api.report(everywhere(good, tmp_path / name, words), tmp_path / "r.html")
        pages.append((tmp_path / "r.html").read_text(encoding="utf-8"))
    clean, hostile = (Elements(page).found for page in pages)
    assert hostile == clean
    assert pages[1].count("</script") == pages[0].count("</script")
    assert not set("\u202e\u2028\x85\x1b") & set(pages[1])


def test_texts_are_printed_without_control_characters(good: Path, tmp_path: Path) -> None:
    """And the same lines are printed: none is put in by a text. The path of a program may have such characters."""
    path = everywhere(good, tmp_path / "r.db", "word")
    hostile = everywhere(good, tmp_path / "h.db", MARKUP)
    with contextlib.closing(sqlite3.connect(hostile, isolation_level=None)) as connection:
        connection.execute("UPDATE source SET path = 'a' || char(27, 10, 13, 8238) || '.dag'")
        connection.execute("UPDATE meta SET value = (SELECT path FROM source) WHERE key = 'path'")

    def lines(path: Path) -> list[str]:
        out = [api.best(path, only_print=True)]
        out += [api.rules(path, form=form) for form in ("text", "md", "json")]
        api.export(path, "csv", tmp_path / "r.csv")
        out.append((tmp_path / "r.csv").read_text(encoding="utf-8"))
        json.loads(out[3])
        return out

    for clean, found in zip(lines(path), lines(hostile), strict=True):
        assert all(c.isprintable() or c == "\n" for c in found), found
        assert found.count("\n") == clean.count("\n")


def test_exported_cells_are_what_they_were(good: Path, tmp_path: Path) -> None:
    text = MARKUP + ',"\t\n' + "".join(t for t in TEXTS if t.isprintable())
    path = everywhere(good, tmp_path / "r.db", MARKUP)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE candidate SET failure = ? WHERE failure != ''", (text,))
    api.export(path, "csv", tmp_path / "r.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "r.csv").read_bytes().decode("utf-8"), newline="")))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert any(text in row for row in rows)


def test_a_program_of_any_path_is_drawn_alike(tmp_path: Path) -> None:
    clean = write_program(tmp_path)
    for text in (MARKUP.replace("/", "|"), '*|"""\n\x1b'):
        folder = tmp_path / text
        folder.mkdir()
        for form in ("text", "dot", "svg"):
            drawn = api.show(write_program(folder), format=form)
            assert drawn == api.show(clean, format=form)
    ET.fromstring(api.show(clean, format="svg"))


def test_a_message_quotes_no_endless_line() -> None:
    """Nor what would reach the terminal as a command."""
    text = UsageError("`" + "x" * 1_000_000 + "`: no\x1b[2J", "a" * 10_000).render()
    assert len(text) < 6000
    assert re.search(r"x \.\.\. \(9980\d\d characters\) \.\.\. x", text)
    assert "\x1b" not in text


# ---- plan.json ------------------------------------------------------------------------------


def test_each_text_of_a_plan_is_read_or_refused(tmp_path: Path) -> None:
    """What is read is the plan that was written: nothing of the changed texts is in it."""
    dag = write_program(tmp_path)
    plan = api.compile(dag, tmp_path / "out", target="cuda", arch="sm_90", build=False).plan
    record = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan_to_json(plan_from_json(json.dumps(record), plan.graph)) == plan_to_json(plan)
    read = refused = 0
    for text in ("\x1b[2J", "\0\t\n", "\u202e", MARKUP, "x" * 100_000):
        for new in with_text(record, text):
            try:
                found = plan_from_json(json.dumps(new), plan.graph, "plan.json")
            except UsageError as error:
                said = error.render()
                refused += 1
            else:
                said = "plan.json"
                assert plan_to_json(found) == plan_to_json(plan), text
                read += 1
            assert all(c.isprintable() or c == "\n" for c in said), (text, said)
            assert "plan.json" in said
            assert len(said) < 10_000
    assert min(read, refused) > 50


@pytest.mark.parametrize(
    "key", ["path", "sources", "params", "decisions", "target", "arch", "program_hash", "traversal"]
)
def test_fields_of_a_plan_have_types(key: str) -> None:
    record: dict[str, Any] = {
        "schema_version": 1, "path": "a", "sources": {"a": ""}, "params": {"n": 1}, "decisions": {"m": "x"},
        "target": "host", "arch": "sm_90", "program_hash": "0", "traversal": "end",
    }  # fmt: skip
    assert plan_inputs(json.dumps(record)).arch == "sm_90"
    wrong = [7, None, [], {"a": []}] + (
        ["", "../x", "sm_90 -x", "*/", "x" * 65] if key in ("arch", "target", "program_hash") else []
    )
    for value in wrong:
        with pytest.raises(UsageError, match="plan.json: not a plan: "):
            plan_inputs(json.dumps({**record, key: value}))

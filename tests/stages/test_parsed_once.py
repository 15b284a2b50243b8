"""A command parses its text once: what it measures and what it keeps are one text, also where the file is edited."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dagc import api
from dagc.lang import lower
from dagc.stages.program import read
from tests.measure.conftest import can_run
from tests.study.test_constants import TEXT, write

pytestmark = [
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.usefixtures("unoptimised"),
]


OPTIONS = api.TuneOptions(sizes="N=64,5000", target="host", cell=0.005, method="exhaustive")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path is in what is emitted: at one path, what two tests tune is compiled once."""
    return tmp_path_factory.mktemp("fill")


def test_tuning_at_several_sizes_parses_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(lower, "parse", lambda source: parsed.append(source.path) or original(source))
    path = write(folder)
    done = api.tune(path, tmp_path / "t.db", OPTIONS)
    assert {line.case.text for line in done.lines} == {"N=64", "N=5000"}
    assert parsed == [str(path)]


original = lower.parse


def test_a_text_that_is_edited_while_it_is_tuned_is_the_old_one_and_a_note_says_so(
    folder: Path, tmp_path: Path
) -> None:
    path, tuned = write(folder), tmp_path / "t.db"
    new = TEXT.replace("y[i] = i;", "y[i] = i + 1;")
    done = api.tune(path, tuned, OPTIONS, lambda *_: path.write_text(new))
    assert done.failures == ()  # results of the new text would be wrong
    assert f"{path} has changed since it was read: the earlier text was used" in done.notes
    with sqlite3.connect(tuned) as connection:
        assert connection.execute("SELECT text FROM source").fetchone() == (TEXT,)


def test_included_files_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "size.dag").write_text("param n : i64 = 4\n")
    kernel = 'kernel k(x: out f64[*]) { cpu { cpp """ x[0] = 1; """ } }'
    lines = ("program a", 'include "size.dag"', "array x : f64[n] on host out", kernel, "dag { a : cpu k(x) }", "")
    (tmp_path / "a.dag").write_text("\n".join(lines))
    text = read(tmp_path / "a.dag")
    (tmp_path / "size.dag").write_text("param n : i64 = 5\n")
    assert [p.value for p in text.program().params] == [4]
    assert [p.value for p in text.program({"n": 6}).params] == [6]
    assert [note.partition(" has")[0] for note in text.changed()] == [str(tmp_path / "size.dag")]

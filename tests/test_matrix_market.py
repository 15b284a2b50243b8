"""Matrix Market files: changed at random, each is read as a slow reader written from the format reads it, or refused
with file and line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc import matrix_market

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern", "complex")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
NUMBERS = {
    "real": ["1", "-2.5", "+.5e-1", "3.", "0", "-0.0", "1e30", "00012.50E+01", "1e-400"],
    "integer": ["1", "-7", "+3", "0", "9223372036854775807"],
    "unsigned-integer": ["1", "7", "+3", "0", "18446744073709551615"],
}
HOSTILE = [
    "nan", "inf", "-inf", "1e400", "1e99999999999999999999",
    "2.5D+01", "1,5", "7.5", "1_0", "0x1p3", "1e", "e5", ".", "-", "+",
    "--1", "1.2.3", "99999999999999999999", "-9223372036854775809", "4294967297", "0", "-1", "1e39", "word", "%", "\0",
    "\x85", "1\0", "\v1", "1\f", "\r", "1 1", "1\n1", "",
]  # fmt: skip


def _is_real(word: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word, re.ASCII) is not None


def _number(word: str, field: str) -> float:
    """The value of a word. Raises ValueError."""
    if field in ("real", "double", "complex"):
        if not _is_real(word) or not np.isfinite(float(word)):
            raise ValueError(word)
        return float(word)
    if re.fullmatch(r"[+-]?\d+" if field == "integer" else r"\+?\d+", word, re.ASCII) is None:
        raise ValueError(word)
    # Limits are compared as float64, in which integers are kept.
    if abs(float(word)) > 2.0 ** (63 if field == "integer" else 64):
        raise ValueError(word)
    return float(int(word))


def _words(line: str) -> list[str]:
    line = line.removesuffix("\r")
    if set(line) & set("\v\f\r\x1c\x1d\x1e\x1f\x85\xa0"):
        raise ValueError(line)
    return line.split()


def slow(text: str) -> np.ndarray:
    """The dense matrix of a small file. Raises ValueError for what the format does not define."""
    first, _, rest = text.partition("\n")
    banner, matrix, kind, field, symmetry = first.lower().split()
    if (banner, matrix, kind) != ("%%matrixmarket", "matrix", "coordinate") or field not in FIELDS:
        raise ValueError(first)
    impossible = {"unsigned-integer": SYMMETRIES[2:], "pattern": SYMMETRIES[2:], "complex": ()}
    if symmetry not in SYMMETRIES or symmetry in impossible.get(field, ("hermitian",)):
        raise ValueError(first)
    lines = rest.split("\n")
    while not lines[0].strip() or lines[0].startswith("%"):
        lines.pop(0)
    size = lines.pop(0).encode("latin-1").split()
    if not first.isascii() or not all(re.fullmatch(rb"\d{1,11}", word) for word in size):
        raise ValueError(size)
    rows, columns, count = map(int, size)
    if rows > 1000 or columns > 1000 or (symmetry != "general" and rows != columns):
        raise ValueError(size)
    out, sides = np.zeros((rows, columns), np.complex128), set()
    entries = [words for line in lines if (words := _words(line))]
    if len(entries) != count:
        raise ValueError(count)
    for row, column, *value in entries:
        if not re.fullmatch(r"\d+", row + column, re.ASCII) or len(value) != {"pattern": 0, "complex": 2}.get(field, 1):
            raise ValueError(value)
        i, j = int(row) - 1, int(column) - 1
        number = complex(*(_number(word, field) for word in value)) if value else 1
        if not (0 <= i < rows and 0 <= j < columns):
            raise ValueError(row, column)
        out[i, j] += number
        sides |= {np.sign(i - j)} - {0}
        if i == j:
            if (symmetry == "skew-symmetric" and number) or (symmetry == "hermitian" and complex(number).imag):
                raise ValueError(number)
        elif symmetry != "general":
            out[j, i] += {"symmetric": number, "skew-symmetric": -number}.get(symmetry, np.conj(number))
    if symmetry != "general" and len(sides) > 1:
        raise ValueError(sides)
    return out


@st.composite
def files(draw: st.DrawFn) -> str:
    """Text of a good file."""
    field = draw(st.sampled_from(FIELDS))
    symmetry = draw(st.sampled_from(SYMMETRIES[: {"complex": 4, "pattern": 2, "unsigned-integer": 2}.get(field, 3)]))
    rows = draw(st.integers(1, 5))
    columns = rows if symmetry != "general" else draw(st.integers(1, 5))
    blank, end = draw(st.sampled_from([" ", "  ", "\t"])), draw(st.sampled_from(["\n", "\r\n", " \n", "\n\n"]))
    lines = []
    for _ in range(draw(st.integers(0, 4))):
        i, j = draw(st.integers(1, rows)), draw(st.integers(1, columns))
        i, j = (max(i, j), min(i, j)) if symmetry != "general" else (i, j)
        words = [] if field == "pattern" else [draw(st.sampled_from(NUMBERS.get(field, NUMBERS["real"])))]
        words *= 2 if field == "complex" else 1
        if i == j and symmetry == "skew-symmetric":
            words = ["0"] * len(words)
        elif i == j and symmetry == "hermitian":
            words[1] = "0"
        lines.append(blank.join([str(i), str(j), *words]))
    comments = draw(st.sampled_from(["", "% a comment\n", "%\0\x80\n\n% 2\n"]))
    size = f"{rows} {columns} {len(lines)}\n"
    return f"%%MatrixMarket matrix coordinate {field} {symmetry}\n{comments}{size}" + "".join(x + end for x in lines)


@st.composite
def changed(draw: st.DrawFn) -> str:
    """Text of a good file with up to three changes."""
    text = draw(files())
    for _ in range(draw(st.integers(0, 3))):
        words = [*re.finditer(r"\S+", text)]
        word = draw(st.sampled_from(words)) if words else None
        hostile = draw(st.sampled_from(HOSTILE))
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["word", "insert", "delete", "cut", "line"]))
        if kind == "word" and word:
            text = text[: word.start()] + hostile + text[word.end() :]
        elif kind == "insert":
            text = text[:at] + hostile + text[at:]
        elif kind == "delete":
            text = text[:at] + text[at + 1 :]
        elif kind == "cut":
            text = text[:at]
        else:
            lines = text.splitlines(keepends=True)
            text = "".join([*lines, lines[at % len(lines)]]) if lines else text
    return text


@given(changed(), st.booleans())
def test_files_changed_at_random(tmp_path_factory: pytest.TempPathFactory, text: str, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / ("fuzz.mtx.gz" if packed else "fuzz.mtx")
    raw = text.encode("latin-1")
    path.write_bytes(gzip.compress(raw, 1) if packed else raw)
    try:
        expected = slow(text)
    except (ValueError, IndexError):
        with pytest.raises(ValueError, match=re.escape(str(path)) + r"(:\d+: | is | has )"):
            matrix_market.entries(str(path), matrix_market.checked(str(path)))
    else:
        found = matrix_market.entries(str(path), matrix_market.checked(str(path)))
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-15)


def test_lines_and_blank_lines_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of all faults are right wherever a chunk of the text ends."""
    good = ["1 1 +1.5", "", "2 2 2.5e-1", "  ", "\t2 1 7", "1 2 1e5"]
    text = "%%MatrixMarket matrix coordinate real general\n% c\n2 2 4\n" + "\n".join(good)
    path = tmp_path / "a.mtx"
    for chunk in range(8, 40):
        monkeypatch.setattr(matrix_market, "CHUNK", chunk)
        path.write_text(text)
        np.testing.assert_array_equal(matrix_market.read(str(path)).toarray(), [[1.5, 1e5], [7, 0.25]])
        for line, (_, wrong) in enumerate(zip(good, ["1 1", "x", "3 1 1", "%", "0 1 1", "1 1 1e400"], strict=True)):
            lines = text.split("\n")
            lines[3 + line] = wrong
            path.write_text("\n".join(lines))
            with pytest.raises(ValueError, match=rf"a\.mtx:{4 + line}: (expected a row|the entry is outside)"):
                matrix_market.read(str(path))
        path.write_text(text + "\n\n1 1 1\n")
        with pytest.raises(ValueError, match=r"a\.mtx:11: a line after the last one of 4 entries"):
            matrix_market.read(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("real general\n% c\n2 2 2\n1 1 1.5D+00\n2 2 2.5D-01\n", r":4: .* but found `1 1 1\.5D\+00`"),
        ("mangled symmetric\n1 1 1\n1 1 1\n", ":1: unknown word `mangled`: expected one of real, "),
        ("real symmetrcnan\n1 1 1\n1 1 1\n", ":1: unknown word `symmetrcnan`"),
        ("pattern hermitian\n1 1 1\n1 1\n", ":1: the format has no pattern matrix that is hermitian"),
        ("real symmetric\n% c\n5 5 6\n1 1 0.5\n2 1 1.03 3 ", ":5: .* but found `2 1 1.03 3`"),
        ("real general\n3 3 1\n1 1 1\0\n", r":3: .* but found `1 1 1\\x00`"),
        ("integer general\n3 3 1\n1 1 7.5\n", ":3: expected a row, a column and an integer, but found `1 1 7.5`"),
        ("real general\n3 3 1\n1 1 1,5\n", ":3: "),
        ("real general\n3 3 2\n1 1 1 # text\n2 2 2\n", ":3: "),
        ("real general\n3 3 2\n1 1 1\n% c\n2 2 2\n", ":4: .* but found `% c`"),
        ("real general\n3 3 2\n1 1 1\n2 2 1e39\n", ":4: the entry is outside the range of float32"),
        ("real general\n3 3 2\n1 1 3e38\n1 1 3e38\n", ": row 1, column 1: the sum of the entries is outside the range"),
        ("real skew-symmetric\n2 2 2\n1 1 1e-9\n2 1 3\n", ":3: .* the entry on the diagonal in row 1 is not zero"),
        ("real general\n1 1\n", ":2: no line of rows, columns and entries .* but `1 1`"),
        ("real general\n1 1 1\n1 1 1" + " " * 2000, ":3: a line of over 1024 bytes"),
    ],
)
def test_messages(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate " + text)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}{message}"):
        matrix_market.read(str(path))


def test_zeros_on_the_diagonal_of_a_skew_symmetric_matrix(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n1 1 0\n2 1 3\n")
    np.testing.assert_array_equal(matrix_market.read(str(path)).toarray(), [[0, -3], [3, 0]])

"""Syntax errors: the message of each common mistake, with the terms of the language, at the place to correct."""

from __future__ import annotations

import pytest

from dagc.base.errors import Diagnostic, ProgramError
from dagc.base.source import Source
from dagc.lang.parse import MAX_DEPTH, parse

KERNEL = '''\
kernel add(y: out f32[n], n: i32) {
  gpu {
    launch grid(1) block(256)
    cuda """
      y[0] = 1;
    """
  }
}
'''
DAG = "dag {\n  y : gpu add(y, n)\n}\n"


def errors(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(ProgramError) as caught:
        parse(Source("t.dag", text))
    return caught.value.diagnostics


def first(text: str) -> tuple[str, str, str]:
    """`line:column code`, message and help of the first error."""
    d = errors(text)[0]
    line, column = Source("t.dag", text).line_column(d.span.start)
    return f"{line}:{column} {d.code}", d.message, d.help


# Text; line, column and code; a part of the message; a part of the help.
CASES = [
    (
        "param n : i64 =\nparam m : i64 = 4\n",
        "1:16 unfinished-line",
        "expected an expression",
        "param NAME, ... : TYPE",
    ),
    ("param n : i64 =   // four\n\n\nlet m = 4\n", "1:16 unfinished-line", "expected an expression", "param NAME"),
    ("let a = 1 +", "1:12 unfinished-line", "end of the file", "let NAME = VALUE"),
    ("scalar n\nscalar m : i32\n", "1:9 unfinished-line", "expected `,` or `:`", "scalar NAME"),
    ("verify y ~ f()\n", "1:15 unfinished-line", "expected `rtol`", "verify ARRAY | norm(ARRAY) | sum(ARRAY) ~"),
    ("param in : i64 = 4\n", "1:7 reserved-word", "`in` is a reserved word", "`in_`"),
    ("let send = 4\n", "1:5 reserved-word", "`send` is a reserved word", "`send_`"),
    ("kernel gpu() {}\n", "1:8 reserved-word", "a name is needed", "`gpu_`"),
    ("dag {\n  send : gpu f(y)\n}\n", "2:3 reserved-word", "the name of an op is needed", "`send_`"),
    ("dag {\n  to[0, 1] : gpu f(y)\n}\n", "2:3 reserved-word", "the name of an op is needed", "`to_`"),
    ("dag {\n  gpu : gpu f(y)\n}\n", "2:3 reserved-word", "the name of an op is needed", "`gpu_`"),
    ("dag {\n  a : gpu f(y)\n  if -> a\n}\n", "3:3 reserved-word", "the name of an op is needed", "`if_`"),
    ("require a = b\n", "1:11 syntax", "does not compare", "write `==`"),
    ("let a = b = c\n", "1:11 syntax", "does not compare", "write `==`"),
    ("let a = (b = 1)\n", "1:12 syntax", "does not compare", "write `==`"),
    ("if a = b {\n}\n", "1:6 syntax", "does not compare", "write `==`"),
    ("require a < b < c\n", "1:15 syntax", "do not chain", "&&"),
    ("require a & b\n", "1:11 unexpected-character", "`&`", "write `&&`"),
    ("array x f32[n]\n", "1:8 syntax", "`:` is missing before `f32`", "write `: f32`"),
    ("dag {\n  yl gpu f(y)\n}\n", "2:5 syntax", "`:` is missing before `gpu`", "write `: gpu`"),
    ("parm n : i64 = 4\n", "1:1 syntax", "`parm` does not start an item", "did you mean `param`?"),
    ("streams = 2\n", "1:9 syntax", "found `=`", "let streams = ..."),
    ("array x : f32[n\narray y : f32[n]\n", "1:14 unbalanced", "`[` without its closing `]`", "`]` after `n`"),
    ("dag {\n  a : gpu f(y\n  b : gpu f(y)\n}\n", "2:12 unbalanced", "`(` without its closing `)`", "`)`"),
    ("dag {\n  a : gpu f(y]\n}\n", "2:12 unbalanced", "`(` without its closing `)`", "`)` after `y`"),
    ("dag {\n}\n}\n", "3:1 unbalanced", "`}` has no opening bracket", "remove it"),
    ("dag {\n  for d in a {\n    b -> c\n}\n", "2:14 unbalanced", "`{` without its closing `}`", "write `}`"),
    (KERNEL.replace("  }\n}", "}") + DAG, "2:7 unbalanced", "`{` without its closing `}`", "write `}`"),
    (KERNEL.replace("  }\n}", "  }") + DAG, "1:35 unbalanced", "`{` without its closing `}`", "write `}`"),
    (KERNEL.replace('    """\n  }', "  }"), "4:10 unterminated-text", "code text", '"""'),
    (KERNEL.replace('    """\n  }', "  }") + KERNEL, "4:10 unterminated-text", "continues to the next", '"""'),
    ('setup "s.py f(n)\nlet a = 1\n', "1:7 unterminated-text", "string without its closing", "end of the line"),
    ("let a = 1\n/* why\nlet b = 1\n", "2:1 unterminated-text", "comment without its closing", "*/"),
    ("# why\n", "1:1 unexpected-character", "`#`", "comments start with `//`"),
    ("let a = 'x'\n", "1:9 unexpected-character", "`'`", "double quotes"),
    ("setup “s.py” f()\n", "1:7 unexpected-character", "typographic quote", 'write `"`'),
    ("let größe = 1\n", "1:7 unexpected-character", "letter ö (U+00F6)", "a to z"),
    ("let a = \0\n", "1:9 unexpected-character", "U+0000", "remove it"),
    ("let a = 0x10\n", "1:9 syntax", "`0x10` is neither a number nor a name", "decimal"),
    ("let 2nd = 1\n", "1:5 syntax", "neither a number nor a name", "letter"),
    ("for d indim {\n}\n", "1:7 syntax", "expected `in`, found `indim`", "for NAME in RANGE"),
    ("launch grid(1) block(1)\n", "1:1 misplaced", "`launch` is not allowed here", "inside an implementation"),
    ("kernel k() {\n  param n : i64 = 1\n}\n", "2:3 misplaced", "inside a kernel", "move it out"),
    ("if a {\n} else {\n} else {\n}\n", "3:3 misplaced", "`else` is not allowed here", "block of an `if`"),
    ("let a = 5 5\n", "1:11 syntax", "expected the next item, found `5`", "let NAME = VALUE"),
    ("tune block {1, 2}\n", "1:12 syntax", "expected `in`, found `{`", "tune NAME in"),
    ("array a : f32[n] on gpu\n", "1:21 syntax", "`any`, `device`, `host` or `pinned`", "[on PLACE]"),
    ("edges implicit\n", "1:7 syntax", "expected `explicit`", "edges explicit"),
    ("include other.dag\n", "1:9 syntax", 'expected a "string"', 'include "FILE.dag"'),
    ("kernel k() { gpu { cuda { } } }\n", "1:25 syntax", "a name or `from`, found `{`", "cuda FUNCTION"),
    ("let a = 99999999999999999999\n", "1:9 number-too-large", "too large", "64 bits"),
    ("let a = 1e400\n", "1:9 number-too-large", "too large", "64 bits"),
    ("program\n", "1:8 unfinished-line", "expected a name", "program NAME"),
    ("\ufeffprogram p\r\nlet a =\r\nlet b = 1\r\n", "2:8 unfinished-line", "expected an expression", "let NAME"),
]


@pytest.mark.parametrize(("text", "place", "message", "help"), CASES, ids=lambda v: repr(v)[:40])
def test_message(text: str, place: str, message: str, help: str) -> None:
    at, said, help_ = first(text)
    assert at == place
    assert message in said
    assert help in help_


def test_all_errors_in_one_run() -> None:
    text = "param n : i64 =\nlet a = 1\nlet b = (2\ndag {\n  a gpu f()\n}\nverify y ~ f() 1e-5\n"
    source = Source("t.dag", text)
    assert [source.line_column(d.span.start) for d in errors(text)] == [(1, 16), (3, 9), (5, 4), (7, 16)]


def test_all_bad_numbers_in_one_run() -> None:
    assert [d.code for d in errors("let a = 1e999\nlet b = 1e999\n")] == ["number-too-large"] * 2


def test_errors_have_a_limit() -> None:
    assert 5 <= len(errors("let a =\n" * 1000)) <= 20


def test_no_errors_after_an_open_text() -> None:
    assert len(errors('cuda """ x\nparam\nparam\n')) == 1


@pytest.mark.parametrize(
    "text",
    [
        "let a = " + "-" * 10_000 + "1",
        "let a = " + "1 + " * 10_000 + "1",
        "let a = " + "f(" * 10_000 + "1" + ")" * 10_000,
        "let a = " + "a[" * 10_000 + "1" + "]" * 10_000,
        "for a in b {" * 10_000 + "}" * 10_000,
        "if a {} else " * 10_000 + "{}",
    ],
    ids=["signs", "sums", "calls", "indices", "loops", "branches"],
)
def test_deep_nesting(text: str) -> None:
    (found,) = errors(text)
    assert found.code == "too-deep"
    assert str(MAX_DEPTH) in found.message


@pytest.mark.parametrize("text", ["let a = " + "(" * 100_000, "{" * 50_000, "}" * 50_000, "(" * 50_000])
def test_deep_unfinished_nesting(text: str) -> None:
    assert len(errors(text)) == 1


def test_rendered_text_is_safe_and_short() -> None:
    with pytest.raises(ProgramError) as caught:
        parse(Source("t.dag", "let a = \x1b[31m" + " " * 5000 + "5 5\n"))
    assert "\x1b" not in caught.value.render()
    assert len(caught.value.render()) < 1000

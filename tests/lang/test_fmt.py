"""The formatter: what it keeps, what it mends, and that it is at rest on its own output."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.lang.fmt import format_source

SAMPLES = sorted((Path(__file__).parents[2] / "samples").rglob("*.dag"))


def formatted(text: str) -> str:
    out = format_source(Source("t.dag", text))
    assert format_source(Source("t.dag", out)) == out
    return out


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_formatted(path: Path) -> None:
    assert formatted(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8")


# What goes in, what comes out. Equal ones are what is kept.
CASES = {
    "blanks": ("let  a=1+ -b*( c -d )\n", "let a = 1 + -b * (c - d)\n"),
    "indices": ("part p [ c ] of a[ lo ..hi ]\n", "part p[c] of a[lo .. hi]\n"),
    "tight range": ("for c in 0..n {}\n", "for c in 0..n {}\n"),
    "formals": ("kernel k( a , b:in f32 [ n ],n :i32 ) { }\n", "kernel k(a, b: in f32[n], n: i32) {}\n"),
    "condition": ("let a = b?c:d\n", "let a = b ? c : d\n"),
    "lists": ("enum d { x,y }\nlet a = { 1,2 }\n{ a,b }->c\n", "enum d {x, y}\nlet a = {1, 2}\n{a, b} -> c\n"),
    "block on one line": ("for d in a {tune t[d] in {1}}\n", "for d in a { tune t[d] in {1} }\n"),
    "indentation": ("dag {\na : gpu f()\n    for d in e {\nb -> c\n}\n}\n",
                    "dag {\n  a : gpu f()\n  for d in e {\n    b -> c\n  }\n}\n"),
    "brace on its own line": ("dag\n{\n  a -> b\n}\n", "dag {\n  a -> b\n}\n"),
    "else on its own line": ("if a {\n  b -> c\n}\nelse {\n  c -> b\n}\n", "if a {\n  b -> c\n} else {\n  c -> b\n}\n"),
    "half a block": ("dag { a -> b\n  b -> c }\n", "dag {\n  a -> b\n  b -> c\n}\n"),
    "items on one line": ("let a = 1 let b = 2\n", "let a = 1\nlet b = 2\n"),
    "items apart": ("dag {\n  a -> b;   b -> c;\n}\n", "dag {\n  a -> b;  b -> c\n}\n"),
    "empty lines": ("\n\nlet a = 1\n\n\n\nlet b = 2\n\n", "let a = 1\n\nlet b = 2\n"),
    "edges of a block": ("dag {\n\n  a -> b\n\n}\n", "dag {\n  a -> b\n}\n"),
    "comments": ("//a  \nlet a = 1 // b\n/* c\n     d */\n", "//a\nlet a = 1  // b\n/* c\n     d */\n"),
    "rows that are touched": ("dag { a : gpu f(b  touching[0..1] [ 2..3 ], touching[0..1]) }\n",
                              "dag { a : gpu f(b touching [0..1][2..3], touching[0..1]) }\n"),
    "comment column": ("let a=1             // b\nlet aa = 1          // c\n",
                       "let a = 1           // b\nlet aa = 1          // c\n"),
    "comment inside": ("let a = f(b,/* why */c)\n", "let a = f(b, /* why */ c)\n"),
    "comment in a block": ("dag {\n// why\na -> b // c\n  // end\n}\n",
                           "dag {\n  // why\n  a -> b  // c\n  // end\n}\n"),
    "alignment": ("let a   = 1\nlet bcd = 2\n", "let a   = 1\nlet bcd = 2\n"),
    "alignment of lists": ("enum dim  {x}\nenum side {lo}\n", "enum dim  {x}\nenum side {lo}\n"),
    "no alignment": ("let a  = 1\nlet bcd = 2\n", "let a = 1\nlet bcd = 2\n"),
    "blanks in step": ("let  a = 1\nlet  b = 2\n", "let a = 1\nlet b = 2\n"),
    "alignment ends at an empty line": ("let a   = 1\n\nlet bcd = 2\n", "let a = 1\n\nlet bcd = 2\n"),
    "continued formals": ("kernel k(a: in f32[n],\n  n: i32) {}\n", "kernel k(a: in f32[n],\n         n: i32) {}\n"),
    "continued list": ("let a = {\n1,\n2\n}\n", "let a = {\n  1,\n  2\n}\n"),
    "continued item": ("verify a ~ f()\nrtol 0\n", "verify a ~ f()\n  rtol 0\n"),
    "runs": ("verify a ~ f() rtol  0 after  3   runs\n", "verify a ~ f() rtol 0 after 3 runs\n"),
    "tolerances": ("verify a ~ f() rtol  0  atol 1e-8\n", "verify a ~ f() rtol 0 atol 1e-8\n"),
    "prepare": ('kernel k() { gpu {\nprepare  cpp f from "x.cu"\ncpp g from "x.cu"\n} }\n',
                'kernel k() {\n  gpu {\n    prepare cpp f from "x.cu"\n    cpp g from "x.cu"\n  }\n}\n'),
    "message": ("x : mpi exchange {\n send a to 1 recv b from 2\n send a to 1\n recv b from 2\n}\n",
                "x : mpi exchange {\n  send a to 1  recv b from 2\n  send a to 1\n  recv b from 2\n}\n"),
    "code": ('cuda """\n\t  x  ;  \n"""\n', 'cuda """\n\t  x  ;  \n"""\n'),
    "tabs, CRLF, mark": ("\ufeffdag {\r\n\ta -> b\r\n}\r\n", "dag {\n  a -> b\n}\n"),
    "no line end": ("let a = 1", "let a = 1\n"),
    "empty": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    before, after = CASES[name]
    assert formatted(before) == after


def test_wide_block_is_unfolded() -> None:
    edge = "a_long_name -> another_long_name"
    assert formatted(f"for d in e {{ {edge};  {edge};  {edge};  {edge} }}\n") == (
        f"for d in e {{\n  {edge};  {edge};  {edge};  {edge}\n}}\n"
    )
    inner = f"if e {{ {edge};  {edge} }}"
    assert formatted(f"for d in e {{ {inner}  {inner} }}\n") == f"for d in e {{\n  {inner}\n  {inner}\n}}\n"


def test_what_does_not_parse_is_refused() -> None:
    with pytest.raises(ProgramError) as caught:
        format_source(Source("t.dag", "\ufeffdag {\r\n\ta ->\r\n}\r\n"))
    assert caught.value.render().startswith("t.dag:2:6: error: unfinished")

"""Parsing: every construct gives the tree it should, with places, however the text is laid out."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagc.base.files import entry_directory, load_entry, store_entry
from dagc.base.resources import resource
from dagc.base.source import Source, Span
from dagc.cuda.lexer import KEYWORDS
from dagc.ir.enums import CodeLang, Mode, OpKind, Place, Role
from dagc.lang import ast
from dagc.lang import parse as parser
from dagc.lang.ast import (
    Binary,
    BinaryOp,
    Call,
    Code,
    DeclName,
    Every,
    Index,
    Literal,
    Member,
    Named,
    Range,
    Ref,
    Touched,
)
from dagc.lang.parse import parse
from dagc.lang.syntax import FREE, RESERVED, TokenKind, scan

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/*.dag"))


def items(text: str) -> tuple[ast.Item, ...]:
    return parse(Source("t.dag", text)).items


def item(text: str) -> ast.Item:
    (only,) = items(text)
    return only


def expr(text: str) -> ast.Expr:
    let = item(f"let x = {text}")
    assert isinstance(let, ast.Let)
    return let.value


def block(text: str) -> tuple[ast.Item, ...]:
    dag = item(f"dag {{ {text} }}")
    assert isinstance(dag, ast.MainDag)
    return dag.items


N, A, B = Ref("n"), Ref("a"), Ref("b")

# Text, tree. Each construct of the language, with and without its optional parts.
ONE = ast.DeclName("n")
ITEMS = {
    "param n, m : i64 = 1_000": ast.Param((ONE, ast.DeclName("m")), "i64", Literal(1000)),
    "param n : i64 = 1 over {1, 2}": ast.Param(
        (ast.DeclName("n"),), "i64", Literal(1), ast.ListExpr((Literal(1), Literal(2)))
    ),
    "param n : i64 = 1 over 4..10": ast.Param((ONE,), "i64", Literal(1), Range(Literal(4), Literal(10))),
    "devices gpu 2, socket n": ast.Devices((("gpu", Literal(2)), ("socket", N))),
    "let lo[c] = a": ast.Let(DeclName("lo", (Ref("c"),)), A),
    "enum dim {x, y, z}": ast.EnumDecl("dim", ("x", "y", "z")),
    "comm r = split(a, b)": ast.Communicator(DeclName("r"), Call(Ref("split"), (A, B))),
    "scalar n, m[d, s] : i32": ast.Scalar((DeclName("n"), DeclName("m", (Ref("d"), Ref("s")))), "i32"),
    "array a : f32[n, *]": ast.Array((DeclName("a"),), "f32", (N, Every())),
    "array a, b : f32[n] on pinned inout": ast.Array(
        (DeclName("a"), DeclName("b")), "f32", (N,), Place.PINNED, Role.INOUT
    ),
    "part p[c] of a[0 .. n]": ast.Part(DeclName("p", (Ref("c"),)), Ref("a", (Index((Range(Literal(0), N),)),))),
    "tune t[d] in 1..n": ast.Tune(DeclName("t", (Ref("d"),)), Range(Literal(1), N)),
    "require a <= b": ast.Require(Binary(BinaryOp.LE, A, B)),
    "feature f = a": ast.Feature("f", A),
    'feature f cost n = cpp """x"""': ast.Feature("f", ast.Code(CodeLang.CPP, text="x"), N),
    "select a, b with knn(n)": ast.Select(("a", "b"), "knn", (N,)),
    "select a with dp()": ast.Select(("a",), "dp", ()),
    'cuda """{ " }"""': ast.Code(CodeLang.CUDA, text='{ " }'),
    'cpp f from "f.cpp"': ast.Code(CodeLang.CPP, function="f", file="f.cpp"),
    'cuda kernel from "f.cu"': ast.Code(CodeLang.CUDA, function="kernel", file="f.cu"),
    'cuda kernel::f from "f.cu"': ast.Code(CodeLang.CUDA, function="kernel::f", file="f.cu"),
    'cpp from "f.cpp"': ast.Code(CodeLang.CPP, file="f.cpp"),
    'cuda a::f<n, b + 1> from "f.cu"': ast.Code(
        CodeLang.CUDA, function="a::f", file="f.cu", arguments=(N, Binary(BinaryOp.ADD, B, Literal(1)))
    ),
    "kernel k() {}": ast.Kernel("k", (), ()),
    "kernel k(a, b: in f32[n], n: i32) { gpu {} cpu v {} }": ast.Kernel(
        "k",
        (
            ast.Formal((DeclName("a"), DeclName("b")), "f32", Mode.IN, (N,)),
            ast.Formal((DeclName("n"),), "i32"),
        ),
        (ast.Impl(OpKind.GPU, None, ()), ast.Impl(OpKind.CPU, "v", ())),
    ),
    "kernel k() { forms none gpu { forms {coarsen, wide} } }": ast.Kernel(
        "k",
        (),
        (ast.Forms(("none",), True), ast.Impl(OpKind.GPU, None, (ast.Forms(("coarsen", "wide")),))),
    ),
    'kernel k() { gpu { link "a", "b" launch grid(1, n) block(a) shared(b) } }': ast.Kernel(
        "k",
        (),
        (ast.Impl(OpKind.GPU, None, (ast.Link(("a", "b")), ast.Launch((Literal(1), N), (A,), B))),),
    ),
    'kernel k() { gpu { prepare cpp a from "f.cpp" } }': ast.Kernel(
        "k",
        (),
        (ast.Impl(OpKind.GPU, None, (ast.Prepare(ast.Code(CodeLang.CPP, function="a", file="f.cpp")),)),),
    ),
    "dag {}": ast.MainDag(()),
    "dag repeat n {}": ast.MainDag((), N),
    "dag { fuse none fuse {a, b} }": ast.MainDag((ast.Fuse(("none",), True), ast.Fuse(("a", "b")))),
    "dag repeat 2 until a[0] { edges explicit }": ast.MainDag(
        (ast.EdgesExplicit(),), Literal(2), ast.Until(Ref("a", (Index((Literal(0),)),)))
    ),
    "dag repeat 2 until a <= b {}": ast.MainDag((), Literal(2), ast.Until(A, BinaryOp.LE, B)),
    "dag f(y: out f64[n]) {}": ast.SubDag("f", (ast.Formal((DeclName("y"),), "f64", Mode.OUT, (N,)),), ()),
    "a : gpu f(b, n = 1) stream 0": ast.Op(A, OpKind.GPU, Call(Ref("f"), (B, Named("n", Literal(1)))), Literal(0)),
    "a : gpu f(b touching [0 .. n][n .. a])": ast.Op(
        A, OpKind.GPU, Call(Ref("f"), (Touched(B, (Index((Range(Literal(0), N),)), Index((Range(N, A),)))),))
    ),
    "a[0] : any f.v()": ast.Op(Ref("a", (Index((Literal(0),)),)), OpKind.ANY, Call(Ref("f", (Member("v"),)))),
    "a : cpu f()": ast.Op(A, OpKind.CPU, Call(Ref("f"))),
    "a : dag f()": ast.Op(A, OpKind.DAG, Call(Ref("f"))),
    "a : mpi allreduce(b, b, sum)": ast.Collective(A, Call(Ref("allreduce"), (B, B, Ref("sum")))),
    "a : mpi exchange { send a to 1 recv b from 2 }": ast.Exchange(
        A, None, None, (ast.Message(None, A, Literal(1), None, B, Literal(2), None),)
    ),
    "a : mpi barrier() on b": ast.Collective(A, Call(Ref("barrier")), B),
    "a : mpi exchange on b[0] {}": ast.Exchange(A, Ref("b", (Index((Literal(0),)),)), None, ()),
    "a : mpi exchange on b split n {}": ast.Exchange(A, B, N, ()),
    "split : mpi exchange split split {}": ast.Exchange(Ref("split"), None, Ref("split"), ()),
    "a : mpi exchange { m[d] : send a to n counts b recv b from n counts a }": ast.Exchange(
        A, None, None, (ast.Message(Ref("m", (Index((Ref("d"),)),)), A, N, B, B, N, A),)
    ),
    "a -> b.send": ast.Edge(((A,), (Ref("b", (Member("send"),)),)), (ast.Arrow.COMPLETION,)),
    "{a, b} -> n before a": ast.Edge(((A, B), (N,), (A,)), (ast.Arrow.COMPLETION, ast.Arrow.BEFORE)),
    "for d in a, c in 0..n { require d }": ast.For(
        (ast.Binding("d", A), ast.Binding("c", Range(Literal(0), N))), (ast.Require(Ref("d")),)
    ),
    "if a {} ": ast.If(A, ()),
    "if a {} else {}": ast.If(A, (), ()),
    "if a {} else if b {} else {}": ast.If(A, (), (ast.If(B, (), ()),)),
    'setup "s.py" f(n)': ast.Setup("s.py", Call(Ref("f"), (N,))),
    "verify a ~ f() rtol 1e-5": ast.Verify(A, Call(Ref("f")), Literal(1e-5)),
    "verify norm(a) ~ f() rtol n": ast.Verify(A, Call(Ref("f")), N, of="norm"),
    "verify a ~ f() rtol 0 after 2 * n runs": ast.Verify(
        A, Call(Ref("f")), Literal(0), runs=Binary(BinaryOp.MUL, Literal(2), N)
    ),
    "verify a ~ f() rtol 0 atol n nan equal": ast.Verify(A, Call(Ref("f")), Literal(0), True, N),
    'include "other.dag"': ast.Include("other.dag"),
}


@pytest.mark.parametrize("text", ITEMS)
def test_item(text: str) -> None:
    assert item(text) == ITEMS[text]


def test_every_item_of_the_tree_is_tested() -> None:
    seen = {type(node) for tree in ITEMS.values() for node in nodes(tree)}
    assert set(ast.Item.__args__) <= seen


EXPRESSIONS = {
    "1 - 2 - 3": Binary(BinaryOp.SUB, Binary(BinaryOp.SUB, Literal(1), Literal(2)), Literal(3)),
    "1 - (2 - 3)": Binary(BinaryOp.SUB, Literal(1), Binary(BinaryOp.SUB, Literal(2), Literal(3))),
    "a + b * n": Binary(BinaryOp.ADD, A, Binary(BinaryOp.MUL, B, N)),
    "-a * b": Binary(BinaryOp.MUL, ast.Unary(ast.UnaryOp.NEG, A), B),
    "!a && b || n": Binary(BinaryOp.OR, Binary(BinaryOp.AND, ast.Unary(ast.UnaryOp.NOT, A), B), N),
    "a + 1 < b && n": Binary(BinaryOp.AND, Binary(BinaryOp.LT, Binary(BinaryOp.ADD, A, Literal(1)), B), N),
    "a ? b : n ? 1 : 2": ast.Conditional(A, B, ast.Conditional(N, Literal(1), Literal(2))),
    "a[*, 1 - n].send": Ref("a", (Index((Every(), Binary(BinaryOp.SUB, Literal(1), N))), Member("send"))),
    "true": Literal(True),
    '"a // b"': Literal("a // b"),
    "1_0.5e1": Literal(105.0),
    "9223372036854775807": Literal(2**63 - 1),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expression(text: str) -> None:
    tree = expr(text)
    assert tree == EXPRESSIONS[text]
    assert type(getattr(tree, "value", None)) is type(getattr(EXPRESSIONS[text], "value", None))  # 1 == True


def test_spelling_is_kept() -> None:
    number = expr("150_000")
    assert isinstance(number, Literal)
    assert number.text == "150_000"


def test_free_words_are_names() -> None:
    for word in FREE:
        assert expr(word) == Ref(word)


@pytest.mark.parametrize("word", ["after", "runs", "split"])
def test_an_item_may_start_with_a_free_word_behind_an_expression(word: str) -> None:
    """Where it would otherwise belong to a `verify` or an exchange: what follows it tells."""
    for behind in (" : gpu k(a)", "[0]: gpu k(a)"):
        _, op = block(f"b : gpu k(a) stream n\n{word}{behind}")
        assert isinstance(op, ast.Op)
        assert op.name.name == word
    for behind in ("->b", ".send -> b", " /* . */\n// ->\nbefore b"):
        _, edge = block(f"b : gpu k(a) stream n\n{word}{behind}")
        assert isinstance(edge, ast.Edge)
        assert edge.groups[0][0].name == word
    compared = item("verify a ~ f() rtol 1 after /* : */ n - 1 /* -> */ runs")
    assert isinstance(compared, ast.Verify)
    assert compared.runs == Binary(BinaryOp.SUB, N, Literal(1))


def test_reserved_words_are_those_of_the_grammar() -> None:
    keywords = {w for t, w in parser._terminal_texts().items() if w.isidentifier() and t != "$END"}
    assert keywords == RESERVED | FREE


def test_functions_of_files_may_have_names_that_are_reserved_here() -> None:
    for word in sorted(RESERVED - KEYWORDS):
        text = f'program p kernel k() {{ cpu {{ cpp {word} from "k.cpp" }} }} dag {{ a : cpu k() }}'
        (code,) = (n for n in nodes(parse(Source("p.dag", text))) if isinstance(n, Code))
        assert (code.function, code.file) == (word, "k.cpp")


def nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        for child in node:
            yield from nodes(child)
    elif dataclasses.is_dataclass(node) and not isinstance(node, Span):
        yield node
        for field in dataclasses.fields(node):
            yield from nodes(getattr(node, field.name))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_have_places(path: Path) -> None:
    source = Source.read(path)
    module = parse(source)
    found = list(nodes(module))
    assert module.program is not None
    assert len(found) > 40
    for node in found:
        text = source.text[node.span.start : node.span.end]
        assert text
        assert node.span.file == source.path
        if isinstance(node, (Ref, DeclName, Named, Member)):
            assert text.startswith(node.name)
        if isinstance(node, (ast.Kernel, ast.SubDag)):
            assert text.endswith("}")
            assert source.text[node.name_span.start : node.name_span.end] == node.name
        if isinstance(node, Literal) and node.text:
            assert text == node.text


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_parser_and_scanner_cut_alike(path: Path) -> None:
    """The scanner behind messages and formatter sees the words that the parser sees."""
    text = path.read_text(encoding="utf-8")
    tokens = {(t.start, t.end) for t in scan(text) if t.kind is not TokenKind.COMMENT}
    assert {(t.start_pos, t.end_pos) for t in parser._parser().lex(text)} == tokens


def test_layout_means_nothing() -> None:
    text = SAMPLES[0].read_text(encoding="utf-8")
    module = parse(Source("", text))
    assert parse(Source("", text.replace("\n", "\r\n"))) == module
    assert parse(Source("", "\ufeff" + text)) == module
    assert parse(Source("", re.sub(r"^ +", lambda m: "\t" * len(m[0]), text, flags=re.M))) != module  # code has moved


def test_code_may_hold_anything() -> None:
    code = '\n  if (a["x"]) { /* } */ s = "//"; } // " """'[:-3]
    assert item(f'cuda """{code}"""') == ast.Code(CodeLang.CUDA, text=code)


def test_comments_and_semicolons() -> None:
    assert items("; /* a\n b */ let a = 1;; // c\n let b = 2 // d") == items("let a = 1 let b = 2")


def test_empty_file() -> None:
    assert parse(Source("", "")) == ast.Module(None, ())
    assert parse(Source("", "program p")) == ast.Module("p", ())


def test_deep_parentheses() -> None:
    assert expr("(" * 5000 + "1" + ")" * 5000) == Literal(1)


# ---- the cache of tables --------------------------------------------------------------------

COUNT = (
    "import sys; from dagc.lang.parse import parse; from dagc.base.source import Source;"
    " parse(Source.read(sys.argv[1]))"
)


def run(cache: Path) -> None:
    environment = {**os.environ, "DAGC_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "error", "-c", COUNT, str(SAMPLES[0])], env=environment, check=True)


def test_damaged_tables_are_built_anew(tmp_path: Path) -> None:
    run(tmp_path)
    (table,) = (tmp_path / "parser").iterdir()
    whole = table.read_bytes()
    run(tmp_path)
    assert table.read_bytes() == whole  # read, not built again
    for damaged in (b"", whole[:1000], whole[:-1] + b"!"):
        table.write_bytes(damaged)
        run(tmp_path)
        built = table.read_bytes()
        assert hashlib.sha256(built[32:]).digest() == built[:32]


def test_parses_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    run(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_entry_that_others_can_write_is_not_read(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    folder = entry_directory("parser")
    assert folder is not None
    store_entry(folder / "key", b"tables")
    assert load_entry(folder / "key", 100) == b"tables"
    (folder / "key").chmod(mode)
    assert load_entry(folder / "key", 100) is None


def test_cache_keeps_few(tmp_path: Path) -> None:
    (tmp_path / "parser").mkdir()
    for i in range(10):
        (tmp_path / "parser" / f"key{i}").touch()
        os.utime(tmp_path / "parser" / f"key{i}", (i, i))
    run(tmp_path)
    assert sorted(path.name[:4] for path in (tmp_path / "parser").iterdir()) == ["key7", "key8", "key9", "pars"]


def test_cached_code_is_not_run() -> None:
    import io
    import pickle

    with pytest.raises(pickle.UnpicklingError, match="plain data"):
        parser._PlainData(io.BytesIO(pickle.dumps(os.system))).load()


def test_resources() -> None:
    assert resource("grammar/dag.lark").is_file()
    with pytest.raises(FileNotFoundError, match="incomplete"):
        resource("grammar/none.lark")

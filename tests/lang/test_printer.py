"""The printer's text parses to the same tree, and is the canonical one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.source import Source
from dagc.lang.ast import Binary, BinaryOp, Conditional, Expr, ListExpr, Literal, Ref, Unary, UnaryOp
from dagc.lang.parse import parse
from tests.lang.printer import print_expr, print_module
from tests.lang.test_parse import ITEMS

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/*.dag"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_round_trip(path: Path) -> None:
    module = parse(Source.read(path))
    text = print_module(module)
    assert parse(Source("", text)) == module
    assert print_module(parse(Source("", text))) == text
    assert all(len(line) <= 120 for line in text.split("\n"))


@pytest.mark.parametrize("text", ITEMS)
def test_items_round_trip(text: str) -> None:
    module = parse(Source("", text))
    assert parse(Source("", print_module(module))) == module


A, B, C = Ref("a"), Ref("b"), Ref("c")


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Binary(BinaryOp.SUB, A, Binary(BinaryOp.SUB, B, C)), "a - (b - c)"),
        (Binary(BinaryOp.SUB, Binary(BinaryOp.SUB, A, B), C), "a - b - c"),
        (Binary(BinaryOp.MUL, Binary(BinaryOp.ADD, A, B), C), "(a + b) * c"),
        (Binary(BinaryOp.LT, Binary(BinaryOp.LT, A, B), C), "(a < b) < c"),
        (Binary(BinaryOp.ADD, Conditional(A, B, C), C), "(a ? b : c) + c"),
        (Conditional(Conditional(A, B, C), A, Conditional(A, B, C)), "(a ? b : c) ? a : a ? b : c"),
        (Unary(UnaryOp.NEG, Unary(UnaryOp.NEG, A)), "--a"),
        (Unary(UnaryOp.NOT, Binary(BinaryOp.AND, A, B)), "!(a && b)"),
        (Binary(BinaryOp.SUB, A, Unary(UnaryOp.NEG, B)), "a - -b"),
        (ListExpr((Literal(1, "1_000"), Literal(0.5), Literal(True), Literal("s"))), '{1_000, 0.5, true, "s"}'),
    ],
    ids=str,
)
def test_expression(tree: Expr, text: str) -> None:
    assert print_expr(tree) == text


def test_layout() -> None:
    text = 'program p let a = 1 kernel k(x: in f32[*]) { gpu { cuda """ x """ } } dag { if a { b -> c } else if d { } }'
    assert print_module(parse(Source("", text))) == (
        "program p\n"
        "\n"
        "let a = 1\n"
        "\n"
        "kernel k(x: in f32[*]) {\n"
        "  gpu {\n"
        '    cuda """ x """\n'
        "  }\n"
        "}\n"
        "\n"
        "dag {\n"
        "  if a {\n"
        "    b -> c\n"
        "  } else if d {}\n"
        "}\n"
    )

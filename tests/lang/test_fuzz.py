"""Whatever the text, the parser gives a tree or diagnostics, and the formatter the same program again."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.lang import ast
from dagc.lang.fmt import format_source
from dagc.lang.parse import parse
from tests.lang.printer import print_module
from tests.strategies.dag_text import MODULES, loosened, mutants, soups
from tests.tiers import examples, representatives

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/*.dag"))
TEXTS = [path.read_text(encoding="utf-8") for path in SAMPLES]
many = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


# Lark's own names of terminals, which are not words of the language.
FOREIGN = ("__ANON", "LBRACE", "RPAR", "$END", "Token(", "RESERVED")


def check(text: str) -> ast.Module | None:
    """Parse; whatever is wrong must be a diagnostic with a place in the text, a code and words of the language."""
    try:
        return parse(Source("fuzz.dag", text))
    except ProgramError as error:
        found = error
    assert found.diagnostics
    for d in found.diagnostics:
        assert 0 <= d.span.start <= d.span.end <= len(text)
        assert d.code.replace("-", "").isalpha()
        assert d.message
        assert not any(word in d.message + d.help for word in FOREIGN)
    assert "fuzz.dag:" in found.render()
    return None


@cache
def programs() -> list[ast.Module]:
    return [parse(Source("", text)) for text in TEXTS]


def test_there_are_texts() -> None:
    assert len(TEXTS) >= 7


@many
@given(soups())
def test_soup(text: str) -> None:
    check(text)


@many
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_characters(text: str) -> None:
    check(text)


@many
@given(mutants(TEXTS))
def test_mutants(text: str) -> None:
    module = check(text)
    if module is not None:
        # A mutant may still be a program; then it goes through printer and formatter.
        assert parse(Source("", print_module(module))) == module
        assert format_source(Source("", formatted := format_source(Source("", text)))) == formatted


def _op(stream: str) -> ast.Module:
    call = ast.Call(ast.Ref("a", ()), (ast.Ref("b" * 110, ()),))
    return ast.Module(None, (ast.Op(ast.Ref("a", ()), ast.OpKind.GPU, call, ast.Literal(stream)),))


@many
@given(MODULES)
@example(_op("\r"))  # strings keep their blanks, where the line is broken too
@example(_op("a \t  b"))
def test_print_and_parse(module: ast.Module) -> None:
    text = print_module(module)
    parsed = parse(Source("", text))
    assert parsed == module
    assert print_module(parsed) == text


@many
@given(MODULES)
def test_format_what_was_printed(module: ast.Module) -> None:
    formatted = format_source(Source("", print_module(module)))
    assert parse(Source("", formatted)) == module
    assert format_source(Source("", formatted)) == formatted


@many
@given(loosened(TEXTS))
def test_layout_means_nothing(text: str) -> None:
    formatted = format_source(Source("", text))
    assert parse(Source("", formatted)) in programs()
    assert format_source(Source("", formatted)) == formatted


@pytest.mark.parametrize("path", representatives(SAMPLES, *SAMPLES[::4]), ids=lambda path: path.stem)
def test_every_prefix(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for end in range(0, len(text), 97):
        check(text[:end])

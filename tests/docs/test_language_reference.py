"""docs/reference/language.md: its examples parse, its whole programs check, its wrong ones give the errors it names.

The examples of all other pages parse, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.lang import ast
from dagc.lang.fmt import format_source
from dagc.lang.parse import parse
from dagc.lang.syntax import FORMS, FREE, RESERVED

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "language.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```(?:dag|\{\.dag \.([\w-]+)\})\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
BLOCKS = EXAMPLE.findall(PAGE)
GOOD = [(place, text) for place, text in BLOCKS if not place.startswith("error-")]
WRONG = [(place.removeprefix("error-"), text) for place, text in BLOCKS if place.startswith("error-")]
WHOLE = [text for place, text in GOOD if re.search(r"^dag \{", text, flags=re.MULTILINE) and "kernel" in text]


def in_place(place: str, text: str) -> str:
    """An example with what stands around it in a program."""
    return {"": text, "kernel": f"kernel k() {{\n{text}}}\n", "gpu": f"kernel k() {{ gpu {{\n{text}}} }}\n"}[place]


def test_there_are_examples() -> None:
    assert len(GOOD) >= 20
    assert len(WHOLE) >= 3
    assert len(WRONG) >= 3


@pytest.mark.parametrize(("place", "text"), GOOD)
def test_example_parses(place: str, text: str) -> None:
    module = parse(Source("example.dag", in_place(place, text)))
    assert module.items


@pytest.mark.parametrize(("place", "text"), GOOD)
def test_example_is_formatted(place: str, text: str) -> None:
    if not place:
        assert format_source(Source("example.dag", text)) == text


@pytest.mark.parametrize("text", WHOLE)
def test_whole_program_checks(text: str, tmp_path: Path) -> None:
    (tmp_path / "example.dag").write_text(text, encoding="utf-8")
    assert api.check(tmp_path / "example.dag").diagnostics == ()


@pytest.mark.parametrize(("code", "text"), WRONG)
def test_wrong_example(code: str, text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(Source("example.dag", text))
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_examples_of_other_pages_parse() -> None:
    found = [(page, *found) for page in DOCS.rglob("*.md") for found in EXAMPLE.findall(page.read_text("utf-8"))]
    assert len({page for page, _, _ in found}) >= 3
    for page, place, text in found:
        if not place.startswith("error-"):
            assert parse(Source(str(page), in_place(place, text))).items


def test_every_construct_has_an_example() -> None:
    seen: set[type] = set()

    def visit(items: tuple[ast.Item, ...]) -> None:
        for item in items:
            seen.add(type(item))
            visit(getattr(item, "items", ()))
            if isinstance(item, ast.If):
                visit((*item.then, *(item.otherwise or ())))

    for place, text in GOOD:
        visit(parse(Source("", in_place(place, text))).items)
    assert seen == set(ast.Item.__args__)  # type: ignore[attr-defined]


def test_words() -> None:
    words = PAGE[PAGE.index("Reserved: ") :]
    reserved, free = words.split("free elsewhere:")[0].split("Words with")[0], words.split("free elsewhere:")[1]
    assert set(re.findall(r"`(\w+)`", reserved)) == RESERVED
    assert set(re.findall(r"`(\w+)`", free.split("\n\n")[0])) == FREE
    assert all(f"`{word}" in PAGE or f"{word} " in PAGE for word in FORMS)


def test_links_within_the_page() -> None:
    titles = {re.sub(r"[^\w -]", "", t).strip().lower().replace(" ", "-") for t in re.findall(r"^#+ (.*)$", PAGE, re.M)}
    assert set(re.findall(r"\(#([\w-]+)\)", PAGE)) <= titles

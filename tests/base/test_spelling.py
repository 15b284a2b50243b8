"""The word that a misspelt one may mean."""

from __future__ import annotations

from difflib import get_close_matches

from hypothesis import given
from hypothesis import strategies as st

from dagc.base.errors import Spelling

WORDS = st.text("abc_1", min_size=1, max_size=12)


@given(WORDS, st.sets(WORDS, max_size=100))
def test_among_few_words_it_is_the_nearest(word: str, known: set[str]) -> None:
    near = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    assert Spelling().near(word, known) == (near[0] if near else "")


@given(WORDS.filter(lambda word: len(word) > 4), st.data())
def test_among_many_words_one_changed_character_is_found(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    known = {f"{a}{b}{c}xyz" for a in "abc" for b in "abcdefgh" for c in "12345678"}
    assert Spelling().near(word[:at] + "Q" + word[at + 1 :], known | {word}) == word

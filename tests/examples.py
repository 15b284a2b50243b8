"""How many examples the property tests draw, by profile of Hypothesis.

A test says how many it needs in every run, which is the profile `quick`. `--hypothesis-profile deep` draws ten times as
many.
"""

from __future__ import annotations

from hypothesis import settings

_OF_QUICK = 100
PROFILES = {"quick": _OF_QUICK, "deep": 10 * _OF_QUICK}  # examples of a test that does not say how many it needs


def register_profiles() -> None:
    for name, number in PROFILES.items():
        # No deadline: a busy machine makes no test wrong.
        settings.register_profile(name, deadline=None, max_examples=number)
    settings.load_profile("quick")


def examples(number: int) -> int:
    """`number` in the profile `quick`, and in proportion in another. Test modules are imported once it is chosen."""
    return max(1, round(number * settings().max_examples / _OF_QUICK))

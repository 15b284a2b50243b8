"""The tiers of the tests: how much of them a run takes.

The default, which `python -m pytest` and `.ci/run` take, leaves out the tests with the marker `thorough` and says so;
`--tier thorough` takes all of them and draws ten times as many examples. The marker is for further cases of a family
whose representatives in the default execute the same lines and branches of dagc/ (`python -m tests.covered` compares).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_OF_DEFAULT = 100
TIERS = {"default": 50, "thorough": 500}  # examples of a test that does not say how many it needs
thorough = pytest.mark.thorough


def use_tier(name: str) -> None:
    """The tier as the profile of Hypothesis. Before test modules are imported, which ask for `examples`."""
    for tier, number in TIERS.items():
        # No deadline: a busy machine makes no test wrong.
        settings.register_profile(tier, deadline=None, max_examples=number)
    settings.load_profile(name)


def examples(number: int) -> int:
    """`number` of 100, in proportion in each tier: examples of a property, runs of a program."""
    return max(1, round(number * settings().max_examples / _OF_DEFAULT))


def representatives(cases: Iterable[Any], *default: Any) -> list[Any]:
    """`cases` for `pytest.mark.parametrize`, those but `default` with the marker `thorough`.

    Raises ValueError if one of `default` is not a case.
    """
    listed = list(cases)
    if absent := [case for case in default if case not in listed]:
        raise ValueError(f"no such cases: {absent}")
    return [case if case in default else pytest.param(*_arguments(case), marks=thorough) for case in listed]


def _arguments(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)

"""The learned methods by name. A learner is one file of `dagc/choice/learners`: `knn.py` holds the method `knn`.

A file has `SUMMARY` (a few words on what answers at unmeasured cases), `fit` (which trains a selector on `Examples`),
`Row` (a `dagc.choice.nodes.SelectorRow` tagged with the method: the representation in a tuned file) and `read` (which
makes a selector from a row). Its C code is the template `choice/METHOD.h.j2`; a learner that uses the selectors of
another file needs none.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from dagc.base.errors import UsageError
from dagc.base.resources import names_in
from dagc.choice.gains import Shares, examples_of
from dagc.choice.selector import Selector

LEARNED = names_in("choice/learners")


def learner(method: str) -> Any:
    """The module of a learned method. Raises UsageError for an unknown one."""
    if method not in LEARNED:
        raise UsageError(f"unknown learned method {method}", f"one of: {', '.join(LEARNED)}")
    return importlib.import_module(f"dagc.choice.learners.{method.replace('-', '_')}")


def fit(
    method: str,
    data: Sequence[str],
    rows: Sequence[Sequence[float]],
    labels: Sequence[int],
    seed: int = 0,
    shares: Shares | None = None,
    times: Shares | None = None,
) -> Selector:
    """A selector, trained; the same seed gives the same. `rows` hold a value for each feature of `data`; `labels` are
    numbers of choices. `shares`: the gain of each choice at each row, in [0, 1]; without it only labels count. `times`:
    seconds of each choice, for methods that predict them.

    Raises UsageError for an unknown method, and like `dagc.choice.selector.check_training`.
    """
    module = learner(method)
    selector: Selector = module.fit(examples_of(data, rows, labels, shares, times), seed)
    return selector


def from_json(record: object) -> Selector:
    """The selector that `Selector.to_json` wrote. Raises ValueError, naming the location, for anything else."""
    method = record.get("method") if isinstance(record, dict) else None
    if method not in LEARNED:
        raise ValueError(f"a selector: no learned method {str(method)[:40]!r}")
    module = learner(method)
    try:
        row = msgspec.convert(record, module.Row)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"a selector: {error}") from None
    if not row.data or len(set(row.data)) != len(row.data):
        raise ValueError("a selector without data, or with one twice")
    selector: Selector = module.read(row)
    return unsure_below(selector, row.least_sure)


def unsure_below(selector: Selector, least_sure: float) -> Selector:
    """The same selector with this confidence threshold."""
    return replace(selector, least_sure=least_sure)  # type: ignore[type-var]

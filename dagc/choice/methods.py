"""The learned methods by name, and what each of them learns from.

A learner is one file of `dagc/choice/learners`: `knn.py` holds the method `knn`. A file has `SUMMARY` (a few words on
what answers at unmeasured cases), `fit` (which trains a selector on `Examples`), `Row` (a
`dagc.choice.nodes.SelectorRow` tagged with the method: the representation in a tuned file) and `read` (which makes a
selector from a row). Its C code is the template `choice/METHOD.h.j2`; a learner that uses the selectors of another file
needs none.

Learners are trained on gains. The gain of a choice is the fraction of the best performance that it reaches, t_best / t,
in [0, 1], so a wrong choice is weighted by its cost. If only labels are known, the gain of a case's label is 1 and that
of any other is 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dagc.base.errors import UsageError
from dagc.base.python import np
from dagc.base.resources import names_in
from dagc.choice.selector import Scale, Selector, check_training, coordinates, scales_of

LEARNED = names_in("choice/learners")
EXHAUSTIVE = "exhaustive"  # the method that measures all and learns nothing
RETIRED = ("boost",)  # those of earlier versions, by which tuned files may have been trained
DIGITS = 16  # fractional bits of a gain in a selector
FULL = 1 << DIGITS
LEAST = 0.02  # lower limit of a gain whose logarithm is taken
FOLDS = 5
Shares = Sequence[Mapping[int, float]]
Candidate = TypeVar("Candidate")


# ---- examples ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gains:
    """`matrix`: a row for each case, a column for each of `labels`, in ascending order."""

    labels: tuple[int, ...]
    matrix: Any

    @property
    def best(self) -> Any:
        """The column of the best label of each row; the lowest if several are equal."""
        return self.matrix.argmax(axis=1)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """In units of 2**-16."""
        return tuple(tuple(int(v) for v in row) for row in (self.matrix * FULL).round())


def gains_of(labels: Sequence[int], shares: Shares | None) -> Gains:
    """`shares`: the gain of each choice that may be learned at each case, 0 where missing; without them: labels."""
    if shares is None:
        shares = [{int(label): 1.0} for label in labels]
    columns = tuple(sorted({label for row in shares for label in row}))
    return Gains(columns, np.array([[row.get(label, 0.0) for label in columns] for row in shares], float))


@dataclass(frozen=True, slots=True)
class Examples:
    """Training cases: `rows` hold a value for each of `data`, a feature; `labels` are the best choices.

    `scales`: those of the features. `gains`: the gain of each choice at each case. `shared`: whether gains were given
    rather than derived from labels. `times`: seconds of each choice at each case; missing where it failed, infinite
    where a constraint excludes it.
    """

    data: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    labels: tuple[int, ...]
    scales: tuple[Scale, ...]
    gains: Gains
    shared: bool
    times: tuple[Mapping[int, float], ...]

    @property
    def x(self) -> Any:
        """The coordinates, a row for each case."""
        return coordinates(self.rows, self.scales)


def examples_of(
    data: Sequence[str],
    rows: Sequence[Sequence[float]],
    labels: Sequence[int],
    shares: Shares | None = None,
    times: Shares | None = None,
) -> Examples:
    """`shares` as for `gains_of`. `times`: seconds; without them, gains are used.

    Raises UsageError as `check_training`.
    """
    check_training(data, rows, labels)
    gains = gains_of(labels, shares)
    if times is None:
        known = [dict(zip(gains.labels, map(float, row), strict=True)) for row in gains.matrix]
        times = [{label: 1 / max(gain, LEAST) for label, gain in row.items()} for row in known]
    return Examples(
        tuple(data), tuple(map(tuple, rows)), tuple(map(int, labels)), scales_of(rows), gains, shares is not None,
        tuple(times),
    )  # fmt: skip


def best_candidate(
    candidates: Sequence[Candidate],
    choose: Callable[[Sequence[Candidate], Any, Any, Any], Any],
    x: Any,
    matrix: Any,
    seed: int,
) -> Candidate:
    """The candidate whose choices at held-out cases have the largest mean gain; the first if several are equal.

    `choose(candidates, x, matrix, asked)` trains each candidate on some of the cases and returns the columns that it
    chooses at the cases `asked`, shape (candidates, asked); results that candidates share are computed once. The seed
    shuffles the folds.
    """
    from sklearn.model_selection import KFold

    splits = KFold(min(FOLDS, len(x)), shuffle=True, random_state=seed).split(x)
    worth = [matrix[left, choose(candidates, x[kept], matrix[kept], x[left])] for kept, left in splits]
    return candidates[int(np.concatenate(worth, axis=1).mean(axis=1).round(9).argmax())]


# ---- methods -----------------------------------------------------------------------------------


def retired(method: str) -> UsageError:
    """What is wrong with asking a selector of an earlier version."""
    return UsageError(
        f"trained by `{method}`, a learner that dagc no longer has",
        "train on the stored samples again: dagc tune FILE --resume -o TUNED --method forest",
    )


def learner(method: str) -> Any:
    """The module of a learned method. Raises UsageError for an unknown one."""
    if method in RETIRED:
        raise retired(method)
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
    if method not in (*LEARNED, *RETIRED):
        raise ValueError(f"a selector: no learned method {str(method)[:40]!r}")
    import msgspec

    module = importlib.import_module("dagc.choice.learners._retired") if method in RETIRED else learner(method)
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

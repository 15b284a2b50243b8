"""`dagc.base.dataclass` against the decorator of the standard library: every class is made by both."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from dagc.base import dataclass as ours

T = TypeVar("T")


def classes(of: Any) -> SimpleNamespace:
    """Classes of every form that dagc has, made by the decorator and the `field` of a module."""
    dataclass, field = of.dataclass, of.field

    @dataclass(frozen=True, slots=True)
    class Node:
        place: int = field(default=0, compare=False, kw_only=True, repr=False)

    @dataclass(frozen=True, slots=True)
    class Pair(Node, Generic[T]):
        kinds: ClassVar[str] = "two"
        first: T
        second: Any = (1, 2)

        def sum(self) -> Any:
            return self.first + self.second  # type: ignore[operator]

    @dataclass(frozen=True, slots=True, order=True)
    class Range:
        low: int
        high: float = field(default=9.0, hash=False)
        name: str = field(default="", compare=False)

    @dataclass(frozen=True)
    class Checked:
        count: int
        twice: int = field(init=False, compare=False)

        def __post_init__(self) -> None:
            if self.count < 0:
                raise ValueError("negative")
            object.__setattr__(self, "twice", 2 * self.count)

    @dataclass(slots=True)
    class Table:
        rows: list[int] = field(default_factory=list)
        names: dict[str, Any] = field(default_factory=dict, repr=False)
        hidden: int = field(default=3, init=False)

    @dataclass
    class Empty:
        pass

    @dataclass(frozen=True, slots=True)
    class Own:
        value: float

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class OwnEquality:  # noqa: PLW1641
        value: int

        def __eq__(self, other: object) -> bool:
            return True

    return SimpleNamespace(**{name: value for name, value in locals().items() if isinstance(value, type)})


def recursive(c: Any) -> str:
    table = c.Table()
    table.rows.append(table)
    return repr(table)


OURS, STANDARD = classes(ours), classes(dataclasses)
CALLS: dict[str, Callable[[Any], Any]] = {
    "positional and keyword": lambda c: (c.Pair(1), c.Pair(1, 2, place=3), c.Pair(second=1, first=2)),
    "a field is missing": lambda c: c.Pair(),
    "too many": lambda c: c.Pair(1, 2, 3),
    "not a field": lambda c: c.Pair(1, third=2),
    "equal but for the place": lambda c: (c.Pair(1, place=2) == c.Pair(1), hash(c.Pair(1, place=2)) == hash(c.Pair(1))),
    "hash": lambda c: (hash(c.Range(1, 2.0, "a")), hash(c.Pair("x", ()))),
    "hash without one": lambda c: hash(c.Table()),
    "hash of an unhashable field": lambda c: hash(c.Pair([])),
    "unequal": lambda c: (c.Pair(1) == c.Pair(2), c.Pair(1) == 1, c.Pair(1) != c.Pair(1), c.Empty() == c.Empty()),
    "own methods": lambda c: (c.Own(1) == c.Own(2), hash(c.Own(1)), repr(c.Own(1))),
    "own equality": lambda c: (c.OwnEquality(1) == 2, hash(c.OwnEquality(1))),
    "order": lambda c: (c.Range(1) < c.Range(2), c.Range(1) >= c.Range(1, name="b"), sorted([c.Range(2), c.Range(1)])),
    "order of others": lambda c: c.Range(1) < 2,
    "no order": lambda c: c.Pair(1) < c.Pair(2),
    "set": lambda c: setattr(c.Pair(1), "first", 2),
    "set another": lambda c: setattr(c.Checked(1), "other", 2),
    "delete": lambda c: delattr(c.Pair(1), "first"),
    "post init": lambda c: (c.Checked(2).twice, c.Checked(2) == c.Checked(2), vars(c.Checked(2))),
    "post init refuses": lambda c: c.Checked(-1),
    "factories": lambda c: (c.Table([1]), c.Table().rows is c.Table().rows, c.Table().hidden, c.Table(rows=[])),
    "not in init": lambda c: c.Table(hidden=1),
    "slots": lambda c: (c.Pair.__slots__, c.Range.__slots__, c.Table.__slots__, hasattr(c.Pair(1), "__dict__")),
    "match": lambda c: [made.__match_args__ for made in (c.Pair, c.Range, c.Checked, c.Empty)],
    "class attributes": lambda c: (c.Pair.kinds, c.Pair(1, 2).sum(), c.Pair.__qualname__, c.Checked.__module__),
    "copies": lambda c: [copy.copy(x) == x for x in (c.Pair(1), c.Table([1]), c.Checked(1), c.Empty())],
    "deep copy": lambda c: copy.deepcopy(c.Pair([1], place=4)).place,
    "recursion": recursive,
    "fields": lambda c: [(f.name, f.type, f.init, f.compare, f.kw_only) for f in dataclasses.fields(c.Pair)],
    "as a dict": lambda c: (dataclasses.asdict(c.Pair(c.Table([1]))), dataclasses.astuple(c.Range(1))),
    "standard replace": lambda c: dataclasses.replace(c.Pair(1, place=5), second=0).place,
    "parameters": lambda c: (c.Pair.__dataclass_params__.frozen, c.Table.__dataclass_params__.frozen),
}  # fmt: skip


def outcome(call: Callable[[Any], Any], c: Any) -> str:
    """What a call returns, or the error that it raises."""
    try:
        return repr(call(c))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_class_behaves_as_one_of_the_standard_library(call: Callable[[Any], Any]) -> None:
    first, second = outcome(call, OURS), outcome(call, OURS)  # the first call may write methods
    assert first == second == outcome(call, STANDARD)


def test_replace_and_fields() -> None:
    pair = OURS.Pair(1, place=5)
    assert ours.replace(pair, second=0) == OURS.Pair(1, 0)
    assert ours.replace(pair, second=0).place == 5
    assert ours.replace(OURS.Table([1])).hidden == 3
    with pytest.raises(TypeError, match="third"):
        ours.replace(pair, third=0)
    assert [each.name for each in ours.fields(pair)] == ["place", "first", "second"]
    assert [ours.is_dataclass(each) for each in (pair, OURS.Pair, 1, int)] == [True, True, False, False]


@ours.dataclass(frozen=True, slots=True)
class Stored:
    value: int
    rest: tuple[int, ...] = ()


def test_a_frozen_class_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Stored(1, (2,)))) == Stored(1, (2,))


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="must both be frozen"):

        @ours.dataclass(slots=True)
        class Mutable(Stored):  # type: ignore[misc]
            pass

    with pytest.raises(TypeError, match=r"use `dataclass` of dagc\.base\.dataclass"):

        @ours.dataclass(frozen=True)
        class Mixed(STANDARD.Node):  # type: ignore[misc]
            pass

    with pytest.raises(ValueError, match="mutable default of rows"):

        @ours.dataclass
        class Shared:
            rows: list[int] = []  # noqa: RUF012


def test_a_method_is_written_once_and_a_class_without_calls_has_none() -> None:
    made = classes(ours)
    assert made.Pair.__init__.__code__ is made.Range.__init__.__code__  # stubs
    made.Pair(1)
    written = made.Pair.__init__
    assert written.__code__ is not made.Range.__init__.__code__
    made.Pair(2)
    assert made.Pair.__init__ is written
    assert written.__qualname__ == f"{made.Pair.__qualname__}.__init__"

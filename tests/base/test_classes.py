"""`dagc.base.classes.dataclass` against that of the standard library: the same classes made by both."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from dagc.base import classes

KINDS = [
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "order": True},
    {"frozen": True, "kw_only": True},
    {"slots": True},
    {"slots": True, "eq": False},
    {},
]


def of(decorator: Callable[..., Any], **options: bool) -> tuple[type[Any], type[Any]]:
    @decorator(**options)
    class Point:
        x: int
        y: int = field(default=0, compare=False, repr=False)
        seen: list[int] = field(default_factory=list, hash=False)
        name: str = field(default="p", kw_only=True)
        fixed: int = field(default=3, init=False)
        kind: ClassVar[str] = "point"

        @property
        def double(self) -> int:
            return 2 * self.x

    @decorator(**options)
    class Named(Point):
        z: int = 5
        total: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.z)

        def __repr__(self) -> str:
            return f"{self.name}: {self.x} {self.z}"

    return Point, Named


# Of a name that is no field, the standard library's classes with slots raise TypeError: they look for one another.
ACTS: list[Callable[[Any], Any]] = [
    lambda p: type(p).__hash__ is object.__hash__ or hash(p),
    dataclasses.asdict,
    dataclasses.astuple,
    lambda p: dataclasses.replace(p, x=9),
    lambda p: p == copy.copy(p),
    lambda p: copy.deepcopy(p).seen is p.seen,
    lambda p: [f.name for f in dataclasses.fields(p)],
    lambda p: setattr(p, "x", 4),
    lambda p: delattr(p, "x"),
    lambda p: (p.double, p.fixed),
]


def tried(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:  # the kind is compared; texts of Python name classes and versions
        return type(error)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_they_do_the_same(options: dict[str, bool]) -> None:
    for theirs, ours in zip(of(dataclasses.dataclass, **options), of(classes.dataclass, **options), strict=True):
        made = [
            tried(lambda kind=kind, a=a, n=n: kind(*a, **n))
            for kind in (theirs, ours)
            for a, n in (((), {"x": 1}), ((1,), {}), ((2, 7), {}), ((1,), {"name": "q"}), ((), {}), ((1,), {"no": 2}))
        ]
        a, b = made[: len(made) // 2], made[len(made) // 2 :]
        assert [repr(one) for one in a] == [repr(one) for one in b]
        for act in ACTS:
            assert [repr(tried(lambda p=p, act=act: act(p))) for p in a] == [
                repr(tried(lambda p=p, act=act: act(p))) for p in b
            ]
        for compare in (operator.eq, operator.ne, operator.lt, operator.ge):
            assert [tried(lambda p=p, q=q, compare=compare: compare(p, q)) for p in a for q in a] == [
                tried(lambda p=p, q=q, compare=compare: compare(p, q)) for p in b for q in b
            ]
        assert theirs.__match_args__ == ours.__match_args__
        assert (theirs.__hash__ is None) == (ours.__hash__ is None)
        assert (theirs.__eq__ is object.__eq__) == (ours.__eq__ is object.__eq__)


@classes.dataclass(frozen=True, slots=True)
class Pair:
    first: int
    rest: Any = None


def test_copies_and_methods_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pickle.loads(pickle.dumps(Pair(1, Pair(2)))) == Pair(1, Pair(2))
    cycle = Pair(1, [])
    cycle.rest.append(cycle)
    assert repr(cycle) == "Pair(first=1, rest=[...])"
    with pytest.raises(dataclasses.FrozenInstanceError):
        cycle.new = 1
    with pytest.raises(TypeError, match=r"Pair\.__init__\(\) missing 1 required positional argument: 'first'"):
        Pair()
    count = []
    first = classes.dataclass(type("Later", (), {"__annotations__": {"x": "int"}}))
    init = first.__init__
    monkeypatch.setattr(first, "__init__", lambda self, x: (count.append(x), init(self, x))[1])
    assert [first(1).x, first(2).x, count] == [1, 2, [1, 2]]

"""`dataclass` and its functions as in the standard library, with methods that are written when they are first called.

The decorator of the standard library writes and compiles up to eight functions a class, 0.4 ms: with the classes that a
command imports, more than half of its start-up. Most of these functions are never called. Here each class gets stubs,
and a stub replaces itself by the compiled method. `__init__` of a frozen class stores through the descriptors of its
slots, which takes half the time of `object.__setattr__`.

`dataclasses.asdict` and the other functions of the standard library accept these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass", "field", "fields", "is_dataclass", "replace"]

_FIELDS = "__dagc_fields__"
_FROZEN = "__dagc_frozen__"
_COMPARISONS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


class _Absent:
    """In place of a default."""


class _Field:
    """What a class says of a field; the attributes are those of `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "kw_only", "name", "repr", "type")

    def __init__(
        self, *, default: Any = _Absent, default_factory: Any = _Absent, init: bool = True, repr: bool = True,
        hash: bool | None = None, compare: bool = True, kw_only: bool = False,
    ) -> None:  # fmt: skip
        self.name = ""
        self.type: Any = None
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.hash = compare if hash is None else hash
        self.compare = compare
        self.kw_only = kw_only


def _dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, order: bool = False) -> Any:
    """A class of its annotated fields, with `__init__`, `__repr__` and `__eq__`; with a hash if `frozen`.

    Raises TypeError for a base class of the standard library's decorator, or one that is not `frozen` alike; ValueError
    for a mutable default.
    """
    return _define(cls, frozen, slots, order) if cls is not None else lambda cls: _define(cls, frozen, slots, order)


def _fields(instance_or_class: Any) -> tuple[_Field, ...]:
    """The fields in order. Raises AttributeError for a value that has none."""
    return tuple(getattr(instance_or_class, _FIELDS).values())


def _is_dataclass(value: object) -> bool:
    """Whether a value is a class made here, or an instance of one."""
    return hasattr(value, _FIELDS)


def _replace(instance: Any, /, **changes: Any) -> Any:
    """A copy with other values of some fields. Raises TypeError for a name that `__init__` does not take."""
    for name, each in getattr(instance, _FIELDS).items():
        if each.init and name not in changes:
            changes[name] = getattr(instance, name)
    return type(instance)(**changes)


if TYPE_CHECKING:  # the types are those of the standard library
    from dataclasses import dataclass, field, fields, is_dataclass, replace
else:
    dataclass, field, fields, is_dataclass, replace = _dataclass, _Field, _fields, _is_dataclass, _replace


# ---- the class ------------------------------------------------------------------------------


def _define(cls: type, frozen: bool, slots: bool, order: bool) -> type:
    every = _inherited(cls, frozen)
    every |= _own(cls)
    if slots:
        cls = _with_slots(cls, every)
    methods: dict[str, Any] = {name: _stub(cls, name, write) for name, write in _WRITERS.items()}
    methods["__repr__"] = _repr
    methods["__match_args__"] = tuple(name for name, each in every.items() if each.init and not each.kw_only)
    if frozen:
        methods |= {"__hash__": _stub(cls, "__hash__", _hash), "__setattr__": _set, "__delattr__": _delete}
    if frozen and slots:
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if order:
        methods |= {name: _stub(cls, name, _comparison) for name in _COMPARISONS}
    for name, method in methods.items():
        if vars(cls).get(name) is None:  # what the class defines itself stays
            setattr(cls, name, method)
    if "__hash__" not in vars(cls):
        cls.__hash__ = None  # type: ignore[assignment]
    setattr(cls, _FIELDS, every)
    setattr(cls, _FROZEN, frozen)
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(cls, name, _Standard(cls, name))
    return cls


def _inherited(cls: type, frozen: bool) -> dict[str, _Field]:
    """The fields of the base classes; see `_dataclass` for what it raises."""
    found: dict[str, _Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        of = vars(base)
        if _FIELDS in of:
            found |= of[_FIELDS]
            if of[_FROZEN] is not frozen:
                raise TypeError(f"{cls.__qualname__} and {base.__qualname__} must both be frozen, or none")
        elif "__dataclass_fields__" in of:
            raise TypeError(f"{base.__qualname__}: use `dataclass` of {__name__}")
    return found


def _own(cls: type) -> dict[str, _Field]:
    """The fields that a class adds, taken from its annotations and class attributes."""
    found = {}
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        value = vars(cls).get(name, _Absent)
        each = value if isinstance(value, _Field) else _Field(default=value)
        if each.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default of {name}: use default_factory")
        each.name, each.type = name, annotation
        found[name] = each
        if value is each and each.default is _Absent:
            delattr(cls, name)
        elif value is each:
            setattr(cls, name, each.default)
    return found


def _with_slots(cls: type, every: Iterable[str]) -> type:
    """The class again, with a slot for each field that no base has: slots cannot be added to a class."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
    space = {name: value for name, value in vars(cls).items() if name not in every}
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    space["__slots__"] = tuple(name for name in every if name not in inherited)
    again = type(cls)(cls.__name__, cls.__bases__, space)
    again.__qualname__ = cls.__qualname__
    return again


def _stub(cls: type, name: str, write: Callable[[type, str, dict[str, Any]], Iterator[str]]) -> Callable[..., Any]:
    """A method that, when it is called, writes the lines of the real one in its place."""

    def stub(*args: Any, **kwargs: Any) -> Any:
        space: dict[str, Any] = {}
        lines = "\n ".join(write(cls, name, space))
        exec(f"def {name}{lines}", space)
        method = space[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(*args, **kwargs)

    return stub


# ---- methods that are written ---------------------------------------------------------------


def _init(cls: type, name: str, space: dict[str, Any]) -> Iterator[str]:
    every = _fields(cls)
    taken = [each for each in every if each.init]
    named = [_parameter(each, space) for each in taken if each.kw_only]
    positional = [_parameter(each, space) for each in taken if not each.kw_only]
    yield f"({', '.join(['self', *positional, *(['*', *named] if named else [])])}):"
    space["_set"] = object.__setattr__
    for each in every:
        value = _value(each, space)
        if value is not None:
            yield _store(cls, each.name, value, space)
    yield "self.__post_init__()" if hasattr(cls, "__post_init__") else "pass"


def _parameter(each: _Field, space: dict[str, Any]) -> str:
    space[f"_default_{each.name}"] = each.default
    optional = each.default is not _Absent or each.default_factory is not _Absent
    return f"{each.name}=_default_{each.name}" if optional else each.name


def _value(each: _Field, space: dict[str, Any]) -> str | None:
    """The expression of a new instance's value; None if it has none."""
    space |= {f"_default_{each.name}": each.default, f"_make_{each.name}": each.default_factory}
    if each.default_factory is not _Absent:
        made = f"_make_{each.name}()"
        return f"{made} if {each.name} is _default_{each.name} else {each.name}" if each.init else made
    if each.init:
        return each.name
    return None if each.default is _Absent else f"_default_{each.name}"


def _store(cls: type, name: str, value: str, space: dict[str, Any]) -> str:
    if not getattr(cls, _FROZEN):
        return f"self.{name} = {value}"
    slot = getattr(cls, name, None)
    if isinstance(slot, MemberDescriptorType):
        space[f"_set_{name}"] = slot.__set__
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _compared(cls: type, of: str) -> str:
    return f"({''.join(f'{of}.{each.name}, ' for each in _fields(cls) if each.compare)})"


def _eq(cls: type, name: str, space: dict[str, Any]) -> Iterator[str]:
    yield "(self, other):"
    yield "if other.__class__ is not self.__class__: return NotImplemented"
    yield f"return {_compared(cls, 'self')} == {_compared(cls, 'other')}"


def _comparison(cls: type, name: str, space: dict[str, Any]) -> Iterator[str]:
    yield "(self, other):"
    yield "if other.__class__ is not self.__class__: return NotImplemented"
    yield f"return {_compared(cls, 'self')} {_COMPARISONS[name]} {_compared(cls, 'other')}"


def _hash(cls: type, name: str, space: dict[str, Any]) -> Iterator[str]:
    yield "(self):"
    yield f"return hash(({''.join(f'self.{each.name}, ' for each in _fields(cls) if each.hash)}))"


_WRITERS = {"__init__": _init, "__eq__": _eq}


# ---- methods of all classes -----------------------------------------------------------------


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in _fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _set(self: object, name: str, value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError  # loads inspect

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: object, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError  # loads inspect

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in _fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(_fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


class _Standard:
    """What the standard library asks of a class, made when it asks."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls = cls
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses  # loads inspect

        attributes = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
        described = []
        for each in _fields(self.cls):
            given = {name: getattr(each, name) for name in attributes if getattr(each, name) is not _Absent}
            described.append((each.name, each.type, dataclasses.field(**given)))
        twin = dataclasses.make_dataclass(self.cls.__name__, described, frozen=getattr(self.cls, _FROZEN))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(self.cls, name, getattr(twin, name))
        return getattr(twin, self.name)

"""`dataclass` of the standard library, with classes that are made in a third of the time and objects in two thirds.

The standard library compiles six or more functions for each class when its module is imported: two fifths of the start
of `dagc compile`, which uses few of them. Here a function is compiled when it is first called, and objects that nobody
may change are filled by the descriptors of their slots. Fields, `replace` and `asdict` are those of `dataclasses`. A
class of `dataclasses.dataclass(frozen=True)` cannot be derived from one of these, and InitVar is unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
else:

    def dataclass(cls=None, /, *, eq=True, order=False, frozen=False, slots=False, kw_only=False):
        """The class as a dataclass, or a decorator that makes one."""

        def of(cls):
            made = _with_fields(cls, slots, kw_only)
            _add(made, _methods(made, eq, order, frozen))
            return made

        return of if cls is None else of(cls)


_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_Class = type[Any]


def _with_fields(cls: _Class, slots: bool, kw_only: bool) -> _Class:
    """The class with what the standard library adds without compiling: fields, slots, and what `match` takes."""
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # it would be made of the signature, which takes longest of all
    made: _Class = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    return made


def _methods(cls: _Class, eq: bool, order: bool, frozen: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__init__": _later(cls, "__init__", partial(_init, cls, frozen)), "__repr__": _repr}
    if eq:
        methods["__eq__"] = _later(cls, "__eq__", partial(_comparison, cls, "__eq__", "=="))
        methods["__hash__"] = _later(cls, "__hash__", partial(_hash, cls)) if frozen else None
    for name, sign in _ORDER.items() if order else ():
        methods[name] = _later(cls, name, partial(_comparison, cls, name, sign))
    if frozen:
        names = frozenset(field.name for field in dataclasses.fields(cls))
        methods |= {"__setattr__": _refusal(cls, names, "assign to"), "__delattr__": _refusal(cls, names, "delete")}
        if "__slots__" in cls.__dict__:  # copies are filled without __setattr__
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    return methods


def _add(cls: _Class, methods: Mapping[str, Any]) -> None:
    """Add the methods that the class does not define. Beside an __eq__ of its own, Python has set __hash__ to None."""
    own = set(cls.__dict__)
    if cls.__dict__.get("__hash__") is None and "__eq__" in own:
        own.discard("__hash__")
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)


def _later(cls: _Class, name: str, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A method that is made when it is first called, and then takes its own place."""

    def first(self: Any, /, *args: Any, **named: Any) -> Any:
        method = make()
        if cls.__dict__.get(name) is first:
            setattr(cls, name, method)
        return method(self, *args, **named)

    return first


# ---- what is compiled ------------------------------------------------------------------------------


def _compiled(cls: _Class, name: str, parameters: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    exec(f"def {name}(_self, {parameters}):\n " + "\n ".join(lines), names)
    method: Callable[..., Any] = names[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _init(cls: _Class, frozen: bool) -> Callable[..., Any]:
    """__init__. Names of its own begin with an underscore and the kind of what they are."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_none": object()}
    parameters: dict[bool, list[str]] = {False: [], True: []}  # by whether they are given by name alone
    lines = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _none else {name}" if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
        elif not field.init:
            continue
        if field.init:
            default = "_none" if value != name else f"_default_{name}"
            optional = value != name or f"_default_{name}" in names
            parameters[bool(field.kw_only)].append(f"{name}={default}" if optional else name)
        slot = getattr(cls, name, None)
        if not frozen:
            lines.append(f"_self.{name} = {value}")
        elif isinstance(slot, MemberDescriptorType):
            names[f"_set_{name}"] = slot.__set__
            lines.append(f"_set_{name}(_self, {value})")
        else:
            lines.append(f"_set(_self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("_self.__post_init__()")
    by_name = ["*", *parameters[True]] if parameters[True] else []
    return _compiled(cls, "__init__", ", ".join([*parameters[False], *by_name]), lines or ["pass"], names)


def _tuple(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{name}, " for name in names) + ")"


def _comparison(cls: _Class, name: str, sign: str) -> Callable[..., Any]:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    returned = f"return {_tuple('_self', compared)} {sign} {_tuple('_other', compared)}"
    lines = [f"if _other.__class__ is _self.__class__: {returned}", "return NotImplemented"]
    return _compiled(cls, name, "_other", lines, {})


def _hash(cls: _Class) -> Callable[..., Any]:
    hashed = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return _compiled(cls, "__hash__", "", [f"return hash({_tuple('_self', hashed)})"], {})


# ---- what all classes share ------------------------------------------------------------------------


def _refusal(cls: _Class, names: frozenset[str], what: str) -> Callable[..., None]:
    base = object.__setattr__ if what == "assign to" else object.__delattr__

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        base(self, name, *value)  # a class that is derived, and has an attribute of its own

    return refuse


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

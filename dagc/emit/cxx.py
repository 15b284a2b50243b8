"""C++ spelling of types, values and symbolic expressions."""

from __future__ import annotations

import re
from collections.abc import Callable

from dagc import sym
from dagc.ir import ElementType, Value
from dagc.sym import Sym

_TYPES = {
    ElementType.I8: "std::int8_t",
    ElementType.I16: "std::int16_t",
    ElementType.I32: "int",
    ElementType.I64: "std::int64_t",
    ElementType.U8: "std::uint8_t",
    ElementType.U16: "std::uint16_t",
    ElementType.U32: "unsigned",
    ElementType.U64: "std::uint64_t",
    ElementType.F32: "float",
    ElementType.F64: "double",
    ElementType.BOOL: "bool",
}


def cxx_type(type_: ElementType) -> str:
    """`f32` -> `float`, `i64` -> `std::int64_t`."""
    return _TYPES[type_]


def is_float(type_: ElementType) -> bool:
    return type_ in (ElementType.F32, ElementType.F64)


def cxx_string(text: str) -> str:
    """A string literal. Control characters are octal escapes, which end after three digits whatever follows."""
    escaped = "".join(_ESCAPES.get(c, c) if c.isprintable() or c in _ESCAPES else _octal(c) for c in text)
    return f'"{escaped}"'


def _octal(c: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in c.encode())


def comment_text(text: str) -> str:
    """In a C or C++ comment, or one of CMake: one line that neither ends the comment nor goes on in the next line."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    shown = shown.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
    return f"{shown}." if shown.endswith("\\") else shown


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "?": "\\?"}


def cxx_value(value: Value) -> str:
    """A literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return cxx_string(value)
    return repr(value)


def value_type(value: Value) -> str:
    """Type of a compile-time value in code: `int` where it fits, so that index arithmetic stays 32 bits wide."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**31) < value < 2**31 else "std::int64_t"
    return "double" if isinstance(value, float) else "const char*"


def expression(expr: Sym, name: Callable[[str], str]) -> str:
    """C++ text of an expression whose integer variables are 64 bits wide, so that literals need no type."""
    text = sym.to_c(expr, name)
    if re.fullmatch(r"std::int64_t\{-\d+\}", text):
        return text[13:-1]
    return re.sub(r"std::int64_t\{(-\d+)\}", r"(\1)", re.sub(r"std::int64_t\{(\d+)\}", r"\1", text))

"""What names outside of functions stand for, whatever the options of the compiler are: macros, constants, types."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from itertools import zip_longest

import sympy as sp

from dagc.cuda.expressions import State, value_of
from dagc.cuda.lexer import Macro, directives, macros_of
from dagc.cuda.syntax import (
    FLOATING,
    TYPE_SIZES,
    Declarator,
    NotUnderstood,
    bare_type,
    declarators,
    field_of,
    in_scopes,
    parsable,
    text_of,
    tree_of,
)


@lru_cache(maxsize=64)
def sure_macros(text: str) -> dict[str, Macro]:
    """The macros of a text, but for those that it defines in several ways, or under a condition other than the guard of
    a header: what they are depends on the compiler's options."""
    ways: dict[str, set[Macro | None]] = {}
    around: list[bool] = []  # for each open condition, whether it is a guard
    lines = list(directives(text))
    for line, after in zip_longest(lines, lines[1:]):
        if line.name.startswith("if"):
            guards = line.name == "ifndef" and after is not None and (after.name, after.rest) == ("define", line.rest)
            around.append(guards)
        elif line.name == "endif" and around:
            around.pop()
        elif line.name in ("elif", "else") and around:
            around[-1] = False
        elif line.name == "define":
            for name, macro in macros_of((f"#define {line.rest}\n",)).items():
                ways.setdefault(name, set()).add(macro if all(around) else None)
    return {name: macro for name, its in ways.items() if len(its) == 1 for macro in its if macro is not None}


_NAMED = re.compile(
    r"\btypedef\s+(?P<of>\w+(?:\s+\w+)*?)\s+(?P<name>\w+)\s*;|\busing\s+(?P<new>\w+)\s*=\s*(?P<old>\w+(?:\s+\w+)*)\s*;"
)


@lru_cache(maxsize=64)
def type_names_of(text: str) -> dict[str, str]:
    """The names that a text gives to types of numbers, without those that it gives to several."""
    ways: dict[str, set[str]] = {}
    for found in _NAMED.finditer(text):
        ways.setdefault(found["name"] or found["new"], set()).add(" ".join((found["of"] or found["old"]).split()))
    return {name: of for name, its in ways.items() if len(its) == 1 for of in its if of in TYPE_SIZES}


_WHOLE = re.compile(
    r"\b(?P<type>(?:(?:std::)?(?:u\w+|size_t|auto|int|long|short|int\d+_t|const|constexpr|static)\b\s+)+)"
    r"(?P<name>\w+)(?=\s*[=,;>)\[])"
)


@lru_cache(maxsize=64)
def signed_names_of(text: str) -> frozenset[str]:
    """The names that a text declares as signed whole numbers, without those that it has of another type too."""
    ways: dict[str, set[bool]] = {}
    for found in _WHOLE.finditer(text):
        words = found["type"].replace("std::", "").split()
        ways.setdefault(found["name"], set()).add(not any(w[0] == "u" or w in ("size_t", "auto") for w in words))
    return frozenset(name for name, its in ways.items() if its == {True})


@lru_cache(maxsize=64)
def constants_of(text: str) -> dict[str, sp.Expr]:
    """The whole numbers that a text has as constants outside of functions, without those that it has twice."""
    out: dict[str, sp.Expr] = {}
    ways: dict[str, set[sp.Expr]] = {}
    for node, _ in in_scopes(tree_of(parsable(text).encode())):
        if node.type != "declaration" or not {"const", "constexpr"} & set(text_of(node).partition("=")[0].split()):
            continue
        for one in map(Declarator.of, declarators(node)):
            if one.value is None or one.pointers or one.sizes or bare_type(text_of(field_of(node, "type"))) in FLOATING:
                continue
            with suppress(NotUnderstood):
                value = value_of(State(dict(out), frozenset(), {}), one.value)
                ways.setdefault(one.name, set()).add(value if isinstance(value, sp.Expr) else sp.nan)
                out |= {one.name: value} if isinstance(value, sp.Integer) else {}
    return {name: value for name, value in out.items() if len(ways[name]) == 1}

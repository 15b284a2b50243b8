"""For set-ups: interprets an input of `dagc tune --inputs`, the path of a file or a call of a generator such as
`rmat(scale = 16, edges = 8, seed = 1)`.

from dagc.inputs import call

def load(rank, size, seed, matrix):
    A = call(matrix, {"rmat": rmat}, read=lambda path: mmread(HERE / path))

Text is data: a call is parsed, its arguments are literals, and only the given functions are called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_CALL = re.compile(r"\s*[A-Za-z_]\w*\s*\(.*\)\s*", re.DOTALL)
_LONGEST = 10_000  # characters of a call
_LITERALS = (bool, int, float, str)


def is_call(text: str) -> bool:
    """Whether an input is a call of a generator rather than the path of a file."""
    return _CALL.fullmatch(text) is not None


def call(text: str, functions: Mapping[str, Callable[..., T]], read: Callable[[str], T] | None = None) -> T:
    """The result of the call in `text`; of `read(text)` where it is a path.

    A call is `NAME(KEY = VALUE, ...)`: `functions[NAME]` is called with these keywords. Values are numbers, strings,
    `True`, `False`, and lists or tuples of them. Nothing in the text is executed. Raises ValueError for anything else.
    """
    if not is_call(text):
        if read is None:
            raise ValueError(f"`{text}` is not a call; write one of: {_offered(functions)}")
        return read(text)
    name, arguments = parse_call(text)
    if name not in functions:
        raise ValueError(f"`{text}`: unknown generator `{name}`; one of: {_offered(functions)}")
    return functions[name](**arguments)


def canonical_call(text: str) -> str:
    """The call with the usual spaces, `NAME(KEY = VALUE, ...)`: equal for texts that differ in spaces only. Raises
    ValueError."""
    name, _ = parse_call(text)
    node = ast.parse(text.strip(), mode="eval")
    keywords = next(n for n in ast.walk(node) if isinstance(n, ast.Call)).keywords
    values = (f"{k.arg} = {ast.get_source_segment(text.strip(), k.value)}" for k in keywords)
    return f"{name}({', '.join(values)})"


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """(name, arguments by keyword) of a call. Raises ValueError."""
    if len(text) > _LONGEST:
        raise ValueError(f"a call of {len(text)} characters; at most {_LONGEST}")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"`{text}` is not a call; write NAME(KEY = VALUE, ...)") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"`{text}` is not a call; write NAME(KEY = VALUE, ...)")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError(f"`{text}`: give each argument by its name: {node.func.id}(KEY = VALUE, ...)")
    return node.func.id, {str(k.arg): _literal(text, str(k.arg), k.value) for k in node.keywords}


def _literal(text: str, name: str, node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = None
    if not _is_literal(value):
        raise ValueError(f"`{text}`: {name} is not a number, a string, or a list of these")
    return value


def _is_literal(value: Any) -> bool:
    return all(map(_is_literal, value)) if isinstance(value, list | tuple) else isinstance(value, _LITERALS)


def _offered(functions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}(...)" for name in functions) or "none"

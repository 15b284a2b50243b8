"""What the parser could have taken, in a few words."""

from __future__ import annotations

from collections.abc import Set

_EXPRESSION = frozenset(("NAME", "INT", "STRING", "true", "(", "!"))
_EXPRESSION_ALL = frozenset(("NAME", "INT", "FLOAT", "STRING", "true", "false", "(", "{", "-", "!"))
_OPERATORS = frozenset(("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "?"))
_TRAILERS = frozenset((".", "[", "("))
_CLASSES = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": 'a "string"',
    "TEXT": '"""code"""',
    "END": "the end of the file",
}
_MOST = 6


def describe(accepts: Set[str]) -> str:
    """In words, never empty: "`,` or `)`", "an expression", ..."""
    left = set(accepts)
    words: list[str] = []
    if "param" in left:
        return "the next item"
    if "launch" in left:
        return "`launch`, code or another item of an implementation"
    if {"gpu", "cpu", "tune"} <= left:
        return "an implementation (`gpu`, `cpu`) or another item of a kernel"
    if left >= _EXPRESSION:
        words.append("an expression")
        left -= _EXPRESSION_ALL
    elif left >= {"+", "=="}:
        left -= _OPERATORS | _TRAILERS
        # An operator could always come; it helps only who has nothing else to write.
        if not left - {"END", "}"}:
            words.append("an operator")
    elif len(left) > 1:
        left -= _TRAILERS if left - _TRAILERS else set()
    classes = {_CLASSES[w] for w in left if w in _CLASSES and w != "END"}
    literal = sorted((w for w in left if w not in _CLASSES), key=lambda w: (w.isalpha(), w))
    words += sorted(classes) + [f"`{w}`" for w in literal]
    if "END" in left and not words:
        words.append(_CLASSES["END"])
    if len(words) > _MOST:
        words = [*words[:_MOST], "..."]
        return ", ".join(words)
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

"""Templates: the only importer of Jinja. Views come in finished; templates decide nothing."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

import jinja2

from dagc.base.resources import resource
from dagc.emit.cxx import comment_text, cxx_string
from dagc.ir.sym import Const, Fn, Sym, Var

# ---- symbolic expressions as in a `.dag` ----


_LEVEL = {
    Fn.OR: 1, Fn.AND: 2, Fn.EQ: 3, Fn.NE: 3, Fn.LT: 3, Fn.LE: 3, Fn.GT: 3, Fn.GE: 3,
    Fn.ADD: 4, Fn.SUB: 4, Fn.MUL: 5, Fn.DIV: 5, Fn.MOD: 5,
}  # fmt: skip


def dag_text(expr: Sym | None, outer: int = 0) -> str:
    """`4 * (n + 1)`; `*` for a dimension that is not known."""
    if expr is None:
        return "*"
    if isinstance(expr, Const):
        return _constant(expr)
    if isinstance(expr, Var):
        return expr.name
    if expr.fn is Fn.COND:
        test, then, otherwise = (dag_text(a, 1) for a in expr.args)
        return f"({test} ? {then} : {otherwise})"
    if expr.fn in (Fn.NEG, Fn.NOT):
        return f"{'-' if expr.fn is Fn.NEG else '!'}{dag_text(expr.args[0], 9)}"
    level = _LEVEL.get(expr.fn)
    if level is None:
        return f"{expr.fn.value}({', '.join(dag_text(a) for a in expr.args)})"
    text = f"{dag_text(expr.args[0], level)} {expr.fn.value} {dag_text(expr.args[1], level + 1)}"
    return f"({text})" if level < outer else text


def _constant(expr: Const) -> str:
    if isinstance(expr.value, bool):
        return "true" if expr.value else "false"
    if isinstance(expr.value, Fraction):
        return f"({expr.value})"
    return f'"{expr.value}"' if isinstance(expr.value, str) else str(expr.value)


# ---- templates ----


def comment(text: str) -> str:
    """`  // text` behind a declaration; "" where there is nothing to say. A line break would end the comment."""
    words = comment_text(" ".join(text.split()))
    return f"  // {words}" if words else ""


def py_doc(text: str) -> str:
    """Inside a docstring in double quotes: what it shows is the text."""
    return "".join(c if c.isprintable() and c not in '\\"' else _python_escape(c) for c in text)


def _python_escape(c: str) -> str:
    return f"\\{c}" if c in '\\"' else repr(c)[1:-1]


def number_lines(text: str) -> str:
    """`#line @ "f"` becomes the number of the line after it, so that what follows is again a line of its own file."""
    lines = text.split("\n")
    return "\n".join(
        line.replace("#line @", f"#line {number + 1}") if line.startswith("#line @") else line
        for number, line in enumerate(lines, 1)
    )


def tidy(text: str, empty: int = 1) -> str:
    """No blanks at line ends, at most `empty` empty lines together, one line end at the end."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(rf"\n{{{empty + 2},}}", "\n" * (empty + 1), text).strip("\n") + "\n"


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """StrictUndefined: a name that a view does not have is a bug, not an empty text."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters.update(comment=comment, comment_text=comment_text, cxx_string=cxx_string, py_string=repr, py_doc=py_doc)
    return env


def render(template: str, **views: object) -> str:
    """The text of one file."""
    return environment().get_template(template).render(**views)


def macro(template: str, name: str) -> object:
    """A macro of one template, for use in another."""
    found: object = getattr(environment().get_template(template).module, name)
    return found

"""Templates: the only importer of Jinja. Views come in finished; templates decide nothing."""

from __future__ import annotations

import re
from functools import lru_cache

import jinja2

from dagc.emit.cxx import comment_text, cxx_string
from dagc.resources import resource


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

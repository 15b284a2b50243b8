"""Templates: the only importer of Jinja. Views come in finished; templates decide nothing."""

from __future__ import annotations

import re
from functools import lru_cache

import jinja2

from dagc.emit.cxx import cxx_string
from dagc.resources import resource


def comment(text: str) -> str:
    """`  // text` behind a declaration; "" where there is nothing to say. A line break would end the comment."""
    words = " ".join(text.split()).rstrip("\\")
    return f"  // {words}" if words else ""


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
    env.filters.update(comment=comment, cxx_string=cxx_string, py_string=repr)
    return env


def render(template: str, **views: object) -> str:
    """The text of one file."""
    return environment().get_template(template).render(**views)


def macro(template: str, name: str) -> object:
    """A macro of one template, for use in another."""
    found: object = getattr(environment().get_template(template).module, name)
    return found

"""The templates of pages."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dagc.base.errors import without_controls
from dagc.base.resources import resource

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The environment of the templates. Everything is escaped, except pictures of this package that the template marks
    as safe."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("templates") / "report"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=_visible,
    )


def _visible(value: object) -> object:
    """Text from files, without control codes."""
    return type(value)(without_controls(value)) if isinstance(value, str) else value

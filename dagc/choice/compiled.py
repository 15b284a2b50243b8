"""C and C++ texts as libraries of this process: Python asks choosers by the code that emitted programs have."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from dagc.base.files import scratch_directory
from dagc.base.resources import resource


@lru_cache(maxsize=64)
def library(text: str, language: str = "c") -> ctypes.CDLL:
    """The compiled text, loaded; compiled once for this machine (the cache of `dagc.build.builder`). `language`: "c",
    or "c++", which may include the headers of the runtime. Raises MissingTool and BuildFailed."""
    from dagc.build.builder import Build, build  # only where a chooser is asked

    with scratch_directory("dagc-choice-") as folder:
        source = folder / "choice.cpp"
        source.write_text(text, encoding="utf-8")
        runtime = resource("templates/runtime")
        order = Build([source], include=[runtime] if language == "c++" else (), shared=True, loaded=language)
        return ctypes.CDLL(str(build(order, folder / "choice.so")))

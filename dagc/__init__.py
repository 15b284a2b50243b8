"""dagc: a compiler-style code generator for CUDA + MPI programs.

>>> import dagc
>>> space = dagc.load_space("samples/spmv/spmv.dag", {"transport": "mpi_cuda"})
>>> space.count()
2036
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagc.base.resources import __version__

if TYPE_CHECKING:
    from dagc.api import (
        Checked,
        check,
        compile,
        count,
        format_source,
        load,
        load_graph,
        load_library,
        load_space,
        run_setup,
        show,
        traversals,
    )

__all__ = [
    "Checked", "__version__", "check", "compile", "count", "format_source", "load", "load_graph",
    "load_library", "load_space", "run_setup", "show", "traversals",
]  # fmt: skip


# Where the names are that do not need all of dagc.api, whose import takes three times that of dagc.stages.program, and
# five times that of dagc.stages.loading.
_ELSEWHERE = {
    "load_library": "dagc.stages.loading",
    **dict.fromkeys(
        ("Checked", "check", "count", "format_source", "load", "load_graph", "load_space", "run_setup", "traversals"),
        "dagc.stages.program",
    ),
}


def __getattr__(name: str) -> Any:
    # Lazily, so that `dagc --help` imports only what it uses (PEP 562). `dagc.api` has the errors of these functions.
    if name == "api":
        return import_module("dagc.api")
    if name in __all__:
        return getattr(import_module(_ELSEWHERE.get(name, "dagc.api")), name)
    raise AttributeError(f"module 'dagc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "api"})

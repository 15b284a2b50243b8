"""The public functions of dagc, and their options. docs/reference/api.md lists what each returns.

Every function takes paths and plain values and returns frozen results. Failures are `dagc.base.errors.DagcError`s.
"""

from __future__ import annotations

from dagc.base.errors import DagcError
from dagc.recipes.best import best
from dagc.recipes.compile import compile
from dagc.recipes.explain import explain
from dagc.recipes.explore import explore
from dagc.recipes.files import convert, export, merge
from dagc.recipes.report import report
from dagc.recipes.rules import rules, rules_across
from dagc.recipes.show import show
from dagc.recipes.tune import tune
from dagc.stages.loading import load_library
from dagc.stages.options import CompileOptions, ExplainOptions, ExploreOptions, TuneOptions
from dagc.stages.program import (
    Checked,
    check,
    count,
    format_source,
    load,
    load_graph,
    load_space,
    read,
    run_setup,
    traversals,
)

__all__ = [
    "Checked", "CompileOptions", "DagcError", "ExplainOptions", "ExploreOptions", "TuneOptions", "best",
    "check", "compile", "convert", "count", "explain", "explore", "export", "format_source", "load", "load_graph",
    "load_library", "load_space", "merge", "read", "report", "rules", "rules_across", "run_setup", "show",
    "traversals", "tune",
]  # fmt: skip

"""Who may import whom. The data flows one way (text -> program -> graph -> traversal -> plan -> files -> results), and
so do the imports: a part of dagc imports only what is named for it here."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dagc

PACKAGE = Path(dagc.__file__).parent

# Part -> the parts that it may import, besides itself. A part is a module or a package of dagc.
TYPES = {"source", "errors", "sym", "lang.ast", "ir", "graph", "traversal", "text", "resources", "files", "cxx_words"}
MAY_IMPORT: dict[str, set[str]] = {
    "source": set(),
    "resources": set(),
    "cxx_words": set(),
    "signals": set(),
    "kernel_resources": set(),
    "errors": {"source"},
    "sym": {"source", "errors"},
    "files": {"errors", "source"},
    "lang.ast": {"source"},
    "ir": {"source", "errors", "sym", "lang.ast"},
    "graph": {"source", "errors", "sym", "lang.ast", "ir"},
    "traversal": {"errors", "ir", "graph"},
    "text": {"errors", "ir", "graph", "traversal"},
    "results": {"ir", "statistics"},
    "statistics": set(),
    "lang": TYPES - {"graph", "traversal", "text"},
    "passes": TYPES,
    "verify": TYPES | {"passes"},
    "space": TYPES | {"verify"},
    "cuda": {"errors"},
    "launching": {"source", "errors", "sym", "lang.ast", "ir", "graph", "cuda"},
    "plan": TYPES | {"launching"},
    "emit": TYPES | {"plan", "launching"},
    "toolchain": {"errors"},
    "devices": {"errors"},
    "build": {"errors", "source", "files", "toolchain", "signals"},
    "setup": {"source", "errors", "sym", "lang.ast", "ir", "files"},
    "configurations": TYPES | {"results"},
    "records": TYPES | {"results", "statistics"},
    "search": TYPES | {"results", "statistics", "space", "verify"},
    "run": TYPES
    | {"results", "statistics", "search", "plan", "build", "toolchain", "devices", "signals", "kernel_resources"},
    "rules": TYPES | {"results", "statistics", "space"},
    "explain": TYPES | {"results", "statistics", "space", "verify", "search", "rules"},
    "doctor": {"errors", "build", "toolchain", "devices", "run"},
    "report": TYPES | {"results", "statistics", "space", "plan", "search", "rules"},
    "rational": {"source", "errors", "sym", "lang.ast", "ir", "graph", "launching", "kernel_resources", "cuda"},
    "select": {"errors"},
    "tune": TYPES | {"launching", "results", "statistics", "records", "rational", "select", "kernel_resources", "cuda"},
    "compiled": TYPES | {"plan", "results", "run"},
}
# The top: api wires everything, cli calls api.
TOP = {"api", "cli", "__main__"}

ONLY_IMPORTERS = {
    "lark": {"lang"},
    "jinja2": {"emit", "report"},
    "mpi4py": {"run"},
    "pycuda": {"run"},
    "sklearn": {"rules", "search", "select"},
    "rich": {"report"},
    "sympy": {"rational", "cuda"},
    "tree_sitter": {"cuda"},
}
# Importing these takes longer than a small command may: never at the top of a module that a command always needs.
HEAVY = ("lark", "jinja2", "numpy", "mpi4py", "pycuda", "scipy", "sklearn", "sympy", "tree_sitter", "rich", "sqlite3")


def _module(path: Path) -> str:
    """`lang.parse` for dagc/lang/parse.py, `` for dagc/__init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {_module(path): path for path in sorted(PACKAGE.rglob("*.py")) if "_data" not in path.parts}


def _imports(path: Path) -> Iterator[str]:
    """Every module that is imported anywhere in a file, inside functions too; `dagc.x` where `from dagc import x`.

    Not what is imported for annotations only: a report may say in its signature which result it prints.
    """
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module)


def _part(module: str) -> str:
    """The longest name in the table that holds the module; siblings `setup_...` belong to `setup`."""
    for name in sorted({*MAY_IMPORT, *TOP}, key=len, reverse=True):
        if module == name or module.startswith((f"{name}.", f"{name}_")):
            return name
    return module


def _internal(path: Path) -> set[str]:
    found = {name.removeprefix("dagc.") for name in _imports(path) if name.startswith("dagc.")}
    return {_part(name) for name in found if name in MODULES and name}


def test_every_part_has_its_line() -> None:
    parts = {_part(module) for module in MODULES if module}
    assert parts <= {*MAY_IMPORT, *TOP}, "a new part of dagc: say in MAY_IMPORT what it may import"


@pytest.mark.parametrize("module", [m for m in MODULES if m and _part(m) not in TOP])
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    part = _part(module)
    assert _internal(MODULES[module]) <= MAY_IMPORT.get(part, set()) | {part}


def test_the_table_has_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {part for part, below in MAY_IMPORT.items() if part not in done and below - {part} <= done}
        assert ready, f"a cycle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


def test_nothing_imports_the_command_line() -> None:
    importers = {module for module, path in MODULES.items() if "cli" in _internal(path)}
    assert {_part(module) for module in importers} <= {"cli", "__main__"}


@pytest.mark.parametrize("package", ONLY_IMPORTERS)
def test_who_imports_a_package(package: str) -> None:
    importers = {
        _part(module) for module, path in MODULES.items() if any(n.split(".")[0] == package for n in _imports(path))
    }
    assert importers <= ONLY_IMPORTERS[package]


@pytest.mark.parametrize("module", ["dagc", "dagc.cli.main"])
def test_a_small_command_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & set(HEAVY)


def test_the_check_sees_imports_inside_functions(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "def f():\n    from dagc.lang import parse\n    import lark.lexer\nif TYPE_CHECKING:\n    import numpy\n"
    )
    assert set(_imports(path)) == {"dagc.lang", "dagc.lang.parse", "lark.lexer"}

"""Who may import whom. The data flows one way (text -> program -> graph -> traversal -> plan -> files -> results), and
so do the imports: no cycle, whichever way an import is written, and a room imports only what is named for it here."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.imports import PICTURE, ROOT, Import, cycles, graph, imports, modules, room, rooms, svg

# Room -> the rooms that it may import. `base` is for all.
MAY_IMPORT: dict[str, str] = {
    "base": "",
    "cuda": "",  # the text of kernels and headers
    "ir": "cuda",
    "forms": "ir cuda",
    "lang": "ir cuda forms",
    "passes": "ir cuda forms lang",
    "space": "ir",
    "setup": "ir",
    "emit": "ir cuda forms",
    "build": "ir cuda",
    "perf": "ir cuda forms",
    "choice": "ir cuda build perf emit forms",
    "store": "ir cuda perf choice",
    "measure": "ir build store",
    "lab": "ir space choice store measure",
    "learn": "ir space store lab",
    "report": "ir passes space store lab learn",
    "doctor": "build measure",
    "editor": "ir cuda forms lang passes report",
    "stages": "ir lang passes space setup emit build cuda choice measure store lab report",
    "study": "ir forms lang passes space setup emit build cuda perf choice store measure lab learn report stages"
    " inputs",
    "record": "ir cuda forms lang perf emit build measure",
    "recipes": "ir forms lang passes space setup emit build cuda perf choice store measure lab learn report stages"
    " study record",
    "api": "recipes stages study",
    "inputs": "",  # for set-ups, and for what reads `--inputs`
    "matrix_market": "",  # for set-ups
    "cli": "ir build choice measure report doctor editor recipes stages study",
    "__main__": "cli",
    "": "api",  # the package itself, lazily
}
ONLY_IMPORTERS = {
    "lark": {"lang"},
    "jinja2": {"emit", "report"},
    "mpi4py": {"measure"},
    "pycuda": {"measure"},
    "sklearn": {"learn", "lab", "choice", "study"},
    "rich": {"report"},
    "sympy": {"perf", "cuda"},
    "tree_sitter": {"cuda", "forms"},  # forms: its types alone
    "pygls": {"editor"},
    "lsprotocol": {"editor"},
}
# Importing these takes longer than a small command may.
HEAVY = frozenset(
    ("lark", "jinja2", "numpy", "mpi4py", "msgspec", "pycuda", "scipy", "sklearn", "sympy", "tree_sitter", "rich",
     "sqlite3", "pygls", "lsprotocol")
)  # fmt: skip
ALIKE = {"dagc.lang.ast": "dagc.ir.program"}  # one concept at two stages
PROTOCOLS = {  # of these folders each file defines a class of this name
    ("dagc.lab.strategies", "Strategy"): "dagc.lab.strategy",
    ("dagc.choice.learners", "Row"): "dagc.choice.methods",
    ("dagc.measure.metrics", "Observer"): "dagc.measure.metrics",
}
MODULES = modules()


@cache
def _imports() -> dict[str, tuple[Import, ...]]:
    """Of each module of dagc: where it is tested, not where tests are collected, which each worker does."""
    return {module: imports(path, frozenset(MODULES)) for module, path in MODULES.items()}


def test_no_cycle_of_modules() -> None:
    assert not cycles(graph())


def test_no_cycle_of_rooms() -> None:
    assert not cycles(rooms(graph()))


def test_every_room_has_its_line() -> None:
    assert {room(module) for module in MODULES} == MAY_IMPORT.keys()


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(name: str) -> None:
    assert rooms(graph())[name] <= {*MAY_IMPORT[name].split(), "base"}


def test_no_private_name_is_imported() -> None:
    private = [(module, i.module, i.name) for module, found in _imports().items() for i in found if i.name[:1] == "_"]
    assert [p for p in private if not p[2].startswith("__")] == []


def test_few_modules_stand_at_the_top() -> None:
    assert len([m for m, path in MODULES.items() if m.count(".") == 1 and path.name != "__init__.py"]) <= 15


def _classes(module: str) -> Iterator[str]:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[:1] != "_")


def test_no_two_public_classes_share_a_name() -> None:
    """Except a declaration in the syntax tree and in the program, and what the files of a protocol must define."""
    places: dict[str, set[str]] = {}
    for module in MODULES:
        for name in _classes(module):
            place = ALIKE.get(module) or PROTOCOLS.get((module.rpartition(".")[0], name)) or module
            places.setdefault(name, set()).add(place)
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("package", ONLY_IMPORTERS)
def test_who_imports_a_package(package: str) -> None:
    importers = {room(m) for m, found in _imports().items() if any(i.module.split(".")[0] == package for i in found)}
    assert importers <= ONLY_IMPORTERS[package]


# ---- imports inside functions -------------------------------------------------------------------


def _heavy(module: str, seen: dict[str, frozenset[str]]) -> frozenset[str]:
    """The heavy packages that are loaded when a module of dagc is imported."""
    if module not in seen:
        reached, left = {module}, [module]
        while left:
            one = left.pop()
            found = {i.module for i in _at_import(one)} if one in MODULES else set()
            if one in MODULES and one.count(".") > 1:
                found.add(one.rpartition(".")[0])  # the package of a module is imported first
            left += found - reached
            reached |= found
        seen[module] = frozenset({name.split(".")[0] for name in reached - MODULES.keys()} & HEAVY)
    return seen[module]


def _at_import(module: str) -> Iterator[Import]:
    return (i for i in _imports()[module] if not i.local and not i.typing)


def test_an_import_inside_a_function_says_why() -> None:
    """`# loads numpy`: a heavy package; `# only with --launch`: what most runs do without. The command line and the
    package itself import each command where it runs."""
    seen: dict[str, frozenset[str]] = {}
    wrong = []
    for module, found in _imports().items():
        for i in found:
            if not i.local or room(module) in ("cli", "") or i.module.split(".")[0] != "dagc":
                continue
            loads = _heavy(i.module, seen)
            if not (i.comment.startswith("only ") or (loads and i.comment.startswith("loads "))):
                wrong.append(f"{module}:{i.line}: {i.module} loads {', '.join(sorted(loads)) or 'nothing heavy'}")
    assert not wrong, "\n".join(wrong)


def test_what_a_command_may_not_need_is_not_loaded_before_it_does() -> None:
    seen: dict[str, frozenset[str]] = {}
    loaded = {module: _heavy(module, seen) for module in MODULES if room(module) in ("recipes", "api", "cli")}
    assert {m: heavy for m, heavy in loaded.items() if not heavy <= {"jinja2"}} == {}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("dagc", set()),
        ("dagc.cli.main", set()),
        ("dagc.store.records", {"msgspec", "sqlite3"}),
        ("dagc.store.tuned", {"msgspec", "sqlite3"}),
        ("dagc.choice.choose", set()),
    ],
)
def test_a_small_command_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY == heavy


def test_the_errors_of_the_api_are_found_from_the_package() -> None:
    code = "import dagc\ntry: dagc.load_space('')\nexcept dagc.api.DagcError as error: print(error.exit_code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


@pytest.mark.parametrize(
    ("words", "rooms_loaded", "not_loaded"),
    [
        (["--help"], {"", "base", "cli"}, {"dataclasses", "dagc.base.errors", "subprocess"}),
        (
            ["tune", "--help"],
            {"", "base", "cli", "ir", "stages"},
            {"numpy", "sympy", "msgspec", "subprocess", "dagc.ir.program", "dagc.stages.program"},
        ),
        (
            ["check", "samples/spmv/spmv.dag"],
            {"", "base", "build", "cli", "cuda", "ir", "lang", "passes", "recipes", "report", "stages"},
            {"subprocess", "difflib", "dagc.build.toolchain", "dagc.ir.plan", "dagc.ir.traversal"},
        ),
    ],
    ids=["help", "help of tune", "check"],
)
def test_a_command_loads_only_what_it_uses(words: list[str], rooms_loaded: set[str], not_loaded: set[str]) -> None:
    """A data class takes half a millisecond of every start, a package of the standard library several."""
    code = (
        "import sys; before = set(sys.modules); from dagc.cli.main import main\n"
        f"try: main({words!r})\nexcept SystemExit: pass\nfinally: print(*sys.modules.keys() - before, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stderr.split())
    assert {room(name) for name in loaded if name.split(".")[0] == "dagc"} - {"dagc"} <= rooms_loaded
    assert not loaded & not_loaded


# ---- the checks themselves ----------------------------------------------------------------------


def test_the_graph_has_every_import(tmp_path: Path) -> None:
    (tmp_path / "dagc/b").mkdir(parents=True)
    for name in ("__init__", "a", "b/__init__", "b/c"):
        (tmp_path / f"dagc/{name}.py").write_text("")
    (tmp_path / "dagc/a.py").write_text(
        "def f():\n    from dagc.b import c\nif TYPE_CHECKING:\n    from dagc.b.c import x\n"
    )
    (tmp_path / "dagc/b/c.py").write_text("import dagc.a\n")
    found = graph(tmp_path)
    assert found["dagc.a"] == {"dagc.b.c"}
    assert cycles(found) == [["dagc.a", "dagc.b.c"]]
    assert cycles(rooms(found)) == [["a", "b"]]


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    assert PICTURE.read_text() == svg(rooms(graph())), "draw it anew: python -m tests.imports"

"""The import graph of dagc, every import counted: inside functions and under TYPE_CHECKING too.

`python -m tests.imports` prints the rooms and what each imports as a Mermaid chart, for docs/architecture.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name. `module` is its module (of dagc, if `dagc`), `name` "" where the module itself is imported.

    `local`: inside a function; `comment`: what stands behind it on its line.
    """

    module: str
    name: str
    local: bool
    typing: bool
    line: int
    comment: str


def modules(root: Path = ROOT) -> dict[str, Path]:
    """`dagc.lang.parse` -> its file."""
    found = {}
    for path in sorted((root / "dagc").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(path: Path, known: Set[str]) -> Iterator[Import]:
    """Every import of a file. `known`: the modules of dagc."""
    text = path.read_text()
    lines = text.split("\n")
    stack: list[tuple[ast.AST, bool, bool]] = [(ast.parse(text), False, False)]
    while stack:
        node, local, typing = stack.pop()
        typing = typing or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        local = local or isinstance(node, ast.FunctionDef | ast.Lambda)
        stack += [(child, local, typing) for child in ast.iter_child_nodes(node)]
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        comment = lines[node.lineno - 1].partition("#")[2].strip()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", local, typing, node.lineno, comment)
            continue
        assert node.level == 0, f"{path}: relative import"
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            if module in known:
                yield Import(module, "", local, typing, node.lineno, comment)
            else:
                yield Import(node.module or "", alias.name, local, typing, node.lineno, comment)


def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Module of dagc -> the modules of dagc that it imports anywhere."""
    known = modules(root)
    return {
        module: {i.module for i in imports(path, known.keys()) if i.module in known} - {module}
        for module, path in known.items()
    }


def room(module: str) -> str:
    """`lang` of `dagc.lang.parse`, `api` of `dagc.api`, `` of the package itself."""
    return ".".join(module.split(".")[1:2])


def rooms(of: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """Room -> the other rooms that it imports."""
    found: dict[str, set[str]] = {room(module): set() for module in of}
    for module, below in of.items():
        found[room(module)] |= {room(other) for other in below} - {room(module)}
    return found


def cycles(of: Mapping[str, Set[str]]) -> list[list[str]]:
    """Groups of nodes that can reach each other: Tarjan's strongly connected components of more than one node."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(of.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = []
            while True:
                members.append(stack.pop())
                if members[-1] == node:
                    break
            if len(members) > 1:
                found.append(sorted(members))

    for node in of:
        if node not in index:
            visit(node)
    return found


def mermaid(of: Mapping[str, Set[str]]) -> str:
    """The rooms as a Mermaid chart: an arrow to each room that is imported, but for those that another arrow implies.

    `base`, which every room may import, is left out.
    """
    graph = {name: set(below) - {"base"} for name, below in of.items() if name not in ("", "base", "__main__")}

    def reach(name: str) -> set[str]:
        return graph[name].union(*(reach(below) for below in graph[name]))

    lines = ["flowchart TD"]
    for name in sorted(graph):
        implied = set().union(*(reach(below) for below in graph[name]))
        lines += [f"  {name} --> {below}" for below in sorted(graph[name] - implied)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(mermaid(rooms(graph())))

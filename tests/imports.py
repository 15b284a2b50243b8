"""The import graph of dagc, every import counted: inside functions and under TYPE_CHECKING too.

`python -m tests.imports` draws the rooms and what each imports: docs/images/rooms.svg.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/images/rooms.svg"


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


@cache
def imports(path: Path, known: frozenset[str]) -> tuple[Import, ...]:
    """Every import of a file. `known`: the modules of dagc."""
    text = path.read_text()
    lines = text.split("\n")
    found = []
    stack: list[tuple[ast.AST, bool, bool]] = [(ast.parse(text), False, False)]
    while stack:
        node, local, typing = stack.pop()
        condition = node.test if isinstance(node, ast.If) else None
        typing = typing or (isinstance(condition, ast.Name) and condition.id == "TYPE_CHECKING")
        local = local or isinstance(node, ast.FunctionDef)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):  # imports are statements: not in expressions
            stack += [(child, local, typing) for child in getattr(node, block, ())]
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        comment = lines[node.lineno - 1].partition("#")[2].strip()
        if isinstance(node, ast.Import):
            found += [Import(alias.name, "", local, typing, node.lineno, comment) for alias in node.names]
            continue
        assert node.level == 0, f"{path}: relative import"
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            of = (module, "") if module in known else (node.module or "", alias.name)
            found.append(Import(*of, local, typing, node.lineno, comment))
    return tuple(found)


def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Module of dagc -> the modules of dagc that it imports anywhere."""
    found = modules(root)
    known = frozenset(found)
    return {
        module: {i.module for i in imports(path, known) if i.module in known} - {module}
        for module, path in found.items()
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


def drawn(of: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """The rooms of the picture, each with those that it imports, but for what another arrow implies.

    `base`, which every room may import, and the package itself are left out.
    """
    below = {name: set(rest) - {"base"} for name, rest in of.items() if name not in ("", "base", "__main__")}

    def reach(name: str) -> set[str]:
        return below[name].union(*(reach(other) for other in below[name]))

    return {name: rest - set().union(*(reach(other) for other in rest)) for name, rest in below.items()}


WIDTH, HEIGHT, GAP, ROW = 96, 30, 24, 76


def svg(of: Mapping[str, Set[str]]) -> str:
    """The rooms as a picture: each above all that it imports, an arrow to each that `drawn` leaves."""
    arrows = drawn(of)

    def level(name: str) -> int:
        return 1 + max((level(other) for other in arrows[name]), default=-1)

    rows: dict[int, list[str]] = {}
    for name in sorted(arrows):
        rows.setdefault(level(name), []).append(name)
    widest = max(map(len, rows.values()))
    place = {
        name: (
            GAP + (WIDTH + GAP) * (i + (widest - len(row)) / 2),
            GAP + ROW * (len(rows) - 1 - depth),
        )
        for depth, row in rows.items()
        for i, name in enumerate(row)
    }
    width, height = GAP + widest * (WIDTH + GAP), 2 * GAP + ROW * (len(rows) - 1) + HEIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text { font: 14px sans-serif; text-anchor: middle }</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0L8 4L0 8z" fill="#777"/></marker>',
    ]
    for name, rest in sorted(arrows.items()):
        x, y = place[name]
        for other in sorted(rest):
            u, v = place[other]
            out.append(
                f'<path d="M{x + WIDTH / 2:g} {y + HEIGHT:g}L{u + WIDTH / 2:g} {v:g}" stroke="#777"'
                ' marker-end="url(#a)"/>'
            )
    for name, (x, y) in sorted(place.items()):
        out.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#eef2fb" stroke="#3949ab"/>'
            f'<text x="{x + WIDTH / 2:g}" y="{y + HEIGHT / 2 + 5:g}">{name}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(svg(rooms(graph())))

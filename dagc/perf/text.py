"""Rational programs as mathematics: text and LaTeX."""

from __future__ import annotations

import sympy as sp

from dagc.perf.program import Assign, ParameterKind, RationalProgram, Statement

_KINDS = {ParameterKind.DATA: "data", ParameterKind.HARDWARE: "hardware", ParameterKind.PROGRAM: "program"}


def to_text(program: RationalProgram) -> str:
    """Parameters by kind, then one line a step, with units and meanings."""
    lines = [f"{program.name}: {program.result} in {program.unit}", f"  source: {program.source}"]
    for kind, word in _KINDS.items():
        parameters = program.of_kind(kind)
        if parameters:
            lines.append(f"  {word} parameters")
            width = max(len(p.name) for p in parameters)
            lines += [f"    {p.name:{width}}  {_note(p.unit, p.meaning)}".rstrip() for p in parameters]
    lines.append("  steps")
    lines += _steps(program.body, "    ")
    return "\n".join(lines) + "\n"


def _note(unit: str, meaning: str) -> str:
    return ", ".join(word for word in (meaning, unit) if word)


def _steps(body: tuple[Statement, ...], indent: str) -> list[str]:
    lines = []
    for statement in body:
        if isinstance(statement, Assign):
            note = _note(statement.unit, statement.meaning)
            lines.append(f"{indent}{statement.name} = {statement.value}" + (f"    # {note}" if note else ""))
            continue
        for i, (condition, inner) in enumerate(statement.cases):
            lines.append(f"{indent}{'if' if i == 0 else 'else if'} {condition}:")
            lines += _steps(inner, indent + "  ")
        lines.append(f"{indent}else:")
        lines += _steps(statement.otherwise, indent + "  ")
    return lines


def to_latex(program: RationalProgram) -> str:
    """An `align*` environment, one line a step."""
    rows = _rows(program.body)
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}\n"


def _name(name: str) -> str:
    return "\\mathit{" + name.replace("_", "\\_") + "}"


def _math(value: sp.Basic) -> str:
    names = {s: _name(s.name) for s in value.free_symbols}
    return str(sp.latex(value, symbol_names=names))


def _rows(body: tuple[Statement, ...]) -> list[str]:
    rows = []
    for statement in body:
        if isinstance(statement, Assign):
            rows.append(f"{_name(statement.name)} &= {_math(statement.value)}")
            continue
        for i, (condition, inner) in enumerate(statement.cases):
            rows.append(f"&\\text{{{'if' if i == 0 else 'else if'} }} {_math(condition)}:")
            rows += _rows(inner)
        rows.append("&\\text{else}:")
        rows += _rows(statement.otherwise)
    return rows

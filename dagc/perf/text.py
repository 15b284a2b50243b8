"""Rational programs as text, LaTeX, and flow charts (drawn by `dagc.perf.chart`)."""

from __future__ import annotations

import sympy as sp

from dagc.perf.chart import Branching, Chart, FlowBox, condition_of, to_dot, to_svg
from dagc.perf.program import Assign, Branch, ParameterKind, RationalProgram, Statement

# ---- text and LaTeX ----

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


# ---- flow charts ----


def chart_of(program: RationalProgram) -> Chart:
    """The flow chart of a program."""
    return _chart(program.body)


def _chart(body: tuple[Statement, ...]) -> Chart:
    out: list[FlowBox | Branching] = []
    run: list[str] = []
    for statement in body:
        if isinstance(statement, Assign):
            run.append(f"{statement.name} = {sp.sstr(statement.value)}")
            continue
        if run:
            out.append(FlowBox(tuple(run)))
            run = []
        out.append(_branching(statement))
    if run or not out:
        out.append(FlowBox(tuple(run) or ("nothing",)))
    return tuple(out)


def _branching(branch: Branch) -> Branching:
    cases = tuple((_condition(condition), _chart(body)) for condition, body in branch.cases)
    return Branching(cases, _chart(branch.otherwise))


def _condition(condition: sp.Basic) -> FlowBox:
    """One line for each comparison of a conjunction, joined by `and`."""
    parts = sorted(condition.args, key=sp.default_sort_key) if isinstance(condition, sp.And) else [condition]
    return condition_of([sp.sstr(part) for part in parts])


def to_flow(program: RationalProgram) -> str:
    """Graphviz dot."""
    return to_dot(chart_of(program), program.name, program.result)


def to_flow_svg(program: RationalProgram) -> str:
    """A picture of the flow chart."""
    return to_svg(
        chart_of(program), program.name, f"{program.result} [{program.unit}]" if program.unit else program.result
    )

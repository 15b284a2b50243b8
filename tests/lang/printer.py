"""AST to canonical text. `parse(print_module(m)) == m`; comments and layout are the formatter's business."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dagc.lang import ast
from dagc.lang.ast import BinaryOp

_WIDTH = 120
_PRECEDENCE = {
    BinaryOp.OR: 1, BinaryOp.AND: 2,
    BinaryOp.EQ: 3, BinaryOp.NE: 3, BinaryOp.LT: 3, BinaryOp.LE: 3, BinaryOp.GT: 3, BinaryOp.GE: 3,
    BinaryOp.ADD: 4, BinaryOp.SUB: 4, BinaryOp.MUL: 5, BinaryOp.DIV: 5, BinaryOp.MOD: 5,
}  # fmt: skip
_COMPARISON, _UNARY = 3, 6


def print_module(module: ast.Module) -> str:
    """The text of a whole file, ending in a line end."""
    blocks: list[str] = [f"program {module.program}"] if module.program is not None else []
    tall = bool(blocks)
    for item in module.items:
        text = print_item(item)
        # A blank line around what takes several lines, and after the program's name.
        if blocks and (tall or "\n" in text):
            blocks.append("")
        blocks.append(text)
        tall = "\n" in text
    return "\n".join(blocks) + "\n"


def print_item(item: ast.Item, indent: int = 0) -> str:
    """One item, indented by `indent` blanks; several lines where it has a block."""
    return " " * indent + _ITEMS[type(item)](item, indent)


# ---- expressions ------------------------------------------------------------------------


def print_expr(expr: ast.Expr | ast.Range | ast.Every | ast.Named, outer: int = 0) -> str:
    """An expression; in parentheses where it binds less tightly than `outer` asks for."""
    match expr:
        case ast.Literal():
            return _literal(expr)
        case ast.Ref():
            return expr.name + "".join(map(_trailer, expr.trailers))
        case ast.Touched():
            return f"{print_expr(expr.array)} touching {' '.join(map(_trailer, expr.rows))}"
        case ast.Call():
            return f"{print_expr(expr.callee)}({_list(expr.args)})"
        case ast.ListExpr():
            return f"{{{_list(expr.items)}}}"
        case ast.Every():
            return "*"
        case ast.Named():
            return f"{expr.name} = {print_expr(expr.value)}"
        case ast.Range():
            return f"{print_expr(expr.start)}{_dots(expr)}{print_expr(expr.stop)}"
        case ast.Unary():
            text, level = f"{expr.op.value}{print_expr(expr.operand, _UNARY)}", _UNARY
        case ast.Binary():
            text, level = _binary(expr)
        case ast.Conditional():
            text = f"{print_expr(expr.test, 1)} ? {print_expr(expr.then)} : {print_expr(expr.otherwise)}"
            level = 0
    return f"({text})" if level < outer else text


def _binary(expr: ast.Binary) -> tuple[str, int]:
    level = _PRECEDENCE[expr.op]
    # Operators group to the left, comparisons not at all.
    left = print_expr(expr.left, level + (level == _COMPARISON))
    return f"{left} {expr.op.value} {print_expr(expr.right, level + 1)}", level


def _literal(literal: ast.Literal) -> str:
    if isinstance(literal.value, bool):
        return "true" if literal.value else "false"
    if isinstance(literal.value, str):
        return f'"{literal.value}"'
    return literal.text or repr(literal.value)


def _dots(expr: ast.Range) -> str:
    simple = (ast.Literal, ast.Ref, ast.Call)
    return ".." if isinstance(expr.start, simple) and isinstance(expr.stop, simple) else " .. "


def _trailer(trailer: ast.Member | ast.Index) -> str:
    return f".{trailer.name}" if isinstance(trailer, ast.Member) else f"[{_list(trailer.items)}]"


def _list(items: Iterable[ast.Expr | ast.Range | ast.Every | ast.Named]) -> str:
    return ", ".join(map(print_expr, items))


# ---- parts of items -----------------------------------------------------------------------


def _name(name: ast.DeclName) -> str:
    return f"{name.name}[{_list(name.indices)}]" if name.indices else name.name


def _names(names: Iterable[ast.DeclName]) -> str:
    return ", ".join(map(_name, names))


def _block(items: Sequence[ast.Item], indent: int) -> str:
    if not items:
        return "{}"
    lines = (print_item(item, indent + 2) for item in items)
    return "{\n" + "\n".join(lines) + "\n" + " " * indent + "}"


def _on(comm: ast.Ref | None) -> str:
    return "" if comm is None else f" on {print_expr(comm)}"


def _split(expr: ast.Expr | None) -> str:
    return "" if expr is None else f" split {print_expr(expr)}"


def _formal(formal: ast.Formal) -> str:
    mode = f"{formal.mode.value} " if formal.mode else ""
    dims = "" if formal.dims is None else f"[{_list(formal.dims)}]"
    return f"{_names(formal.names)}: {mode}{formal.type}{dims}"


def _header(start: str, formals: Sequence[ast.Formal], indent: int) -> str:
    """`start(formals)`, one formal a line where one line is too short for all."""
    texts = list(map(_formal, formals))
    line = f"{start}({', '.join(texts)})"
    if indent + len(line) + 2 <= _WIDTH:
        return line
    return f"{start}({(',' + chr(10) + ' ' * (indent + len(start) + 1)).join(texts)})"


def _group(group: tuple[ast.Ref, ...]) -> str:
    return print_expr(group[0]) if len(group) == 1 else f"{{{_list(group)}}}"


# ---- items ----------------------------------------------------------------------------------


def _param(i: ast.Param, indent: int) -> str:
    over = "" if i.over is None else f" over {print_expr(i.over)}"
    return f"param {_names(i.names)} : {i.type} = {print_expr(i.value)}{over}"


def _array(i: ast.Array, indent: int) -> str:
    place = "" if i.place is None else f" on {i.place.value}"
    role = "" if i.role is None else f" {i.role.value}"
    return f"array {_names(i.names)} : {i.type}[{_list(i.dims)}]{place}{role}"


def _code(i: ast.Code, indent: int) -> str:
    if i.text is not None:
        return f'{i.lang.value} """{i.text}"""'
    if i.function is None:
        return f'{i.lang.value} from "{i.file}"'
    arguments = f"<{_list(i.arguments)}>" if i.arguments else ""
    return f'{i.lang.value} {i.function}{arguments} from "{i.file}"'


def _feature(i: ast.Feature, indent: int) -> str:
    cost = "" if i.cost is None else f" cost {print_expr(i.cost)}"
    value = _code(i.value, indent) if isinstance(i.value, ast.Code) else print_expr(i.value)
    return f"feature {i.name}{cost} = {value}"


def _launch(i: ast.Launch, indent: int) -> str:
    shared = "" if i.shared is None else f" shared({print_expr(i.shared)})"
    return f"launch grid({_list(i.grid)}) block({_list(i.block)}){shared}"


def _impl(i: ast.Impl, indent: int) -> str:
    name = "" if i.name is None else f" {i.name}"
    return f"{i.device.value}{name} {_block(i.items, indent)}"


def _kernel(i: ast.Kernel, indent: int) -> str:
    return f"{_header(f'kernel {i.name}', i.formals, indent)} {_block(i.items, indent)}"


def _sub_dag(i: ast.SubDag, indent: int) -> str:
    return f"{_header(f'dag {i.name}', i.formals, indent)} {_block(i.items, indent)}"


def _until(i: ast.Until) -> str:
    if i.op is None or i.bound is None:
        return print_expr(i.array)
    return f"{print_expr(i.array)} {i.op.value} {print_expr(i.bound)}"


def _main(i: ast.MainDag, indent: int) -> str:
    repeat = "" if i.repeat is None else f" repeat {print_expr(i.repeat)}"
    until = "" if i.until is None else f" until {_until(i.until)}"
    return f"dag{repeat}{until} {_block(i.items, indent)}"


def _op(i: ast.Op, indent: int) -> str:
    stream = "" if i.stream is None else f" stream {print_expr(i.stream)}"
    line = f"{print_expr(i.name)} : {i.kind.value} {print_expr(i.call)}{stream}"
    return _broken(line, _WIDTH - indent, " " * (indent + 2))


def _broken(line: str, width: int, more: str) -> str:
    """The line, broken at spaces outside of strings where it is longer than `width`; later ones begin with `more`."""
    lines: list[str] = []
    for word in re.findall(r'(?:"[^"\n]*"|[^" ])+', line):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{more}{word}" if lines else word)
    return "\n".join(lines)


def _message(i: ast.Message, indent: int) -> str:
    name = "" if i.name is None else f"{print_expr(i.name)} : "
    counts = ["" if c is None else f" counts {print_expr(c)}" for c in (i.send_counts, i.recv_counts)]
    send = f"send {print_expr(i.send)} to {print_expr(i.to)}{counts[0]}"
    return f"{name}{send}  recv {print_expr(i.recv)} from {print_expr(i.source)}{counts[1]}"


def _edge(i: ast.Edge, indent: int) -> str:
    out = _group(i.groups[0])
    for arrow, group in zip(i.arrows, i.groups[1:], strict=True):
        out += f" {arrow.value} {_group(group)}"
    return out


def _for(i: ast.For, indent: int) -> str:
    bindings = ", ".join(f"{b.name} in {print_expr(b.range)}" for b in i.bindings)
    return f"for {bindings} {_block(i.items, indent)}"


def _if(i: ast.If, indent: int) -> str:
    out = f"if {print_expr(i.test)} {_block(i.then, indent)}"
    if i.otherwise is None:
        return out
    if len(i.otherwise) == 1 and isinstance(i.otherwise[0], ast.If):
        return f"{out} else {_if(i.otherwise[0], indent)}"
    return f"{out} else {_block(i.otherwise, indent)}"


def _verify(i: ast.Verify, indent: int) -> str:
    nan = " nan equal" if i.nan_equal else ""
    after = "" if i.runs is None else f" after {print_expr(i.runs)} runs"
    atol = "" if i.atol is None else f" atol {print_expr(i.atol)}"
    target = f"{i.of}({print_expr(i.target)})" if i.of else print_expr(i.target)
    return f"verify {target} ~ {print_expr(i.call)} rtol {print_expr(i.rtol)}{atol}{nan}{after}"


_ITEMS: dict[type, Callable[[Any, int], str]] = {
    ast.Param: _param,
    ast.Let: lambda i, indent: f"let {_name(i.name)} = {print_expr(i.value)}",
    ast.EnumDecl: lambda i, indent: f"enum {i.name} {{{', '.join(i.labels)}}}",
    ast.Scalar: lambda i, indent: f"scalar {_names(i.names)} : {i.type}",
    ast.Communicator: lambda i, indent: f"comm {_name(i.name)} = {print_expr(i.call)}",
    ast.Array: _array,
    ast.Part: lambda i, indent: f"part {_name(i.name)} of {print_expr(i.of)}",
    ast.Tune: lambda i, indent: f"tune {_name(i.name)} in {print_expr(i.range)}",
    ast.Require: lambda i, indent: f"require {print_expr(i.condition)}",
    ast.Feature: _feature,
    ast.Select: lambda i, indent: _broken(
        f"select {', '.join(i.names)} with {i.method}({_list(i.args)})", _WIDTH - indent, " " * (indent + 2)
    ),
    ast.Code: _code,
    ast.Kernel: _kernel,
    ast.Impl: _impl,
    ast.Forms: lambda i, indent: f"forms {i.names[0]}" if i.word else f"forms {{{', '.join(i.names)}}}",
    ast.Devices: lambda i, indent: "devices " + ", ".join(f"{word} {print_expr(n)}" for word, n in i.counts),
    ast.Link: lambda i, indent: "link " + ", ".join(f'"{name}"' for name in i.libraries),
    ast.Launch: _launch,
    ast.Prepare: lambda i, indent: f"prepare {_code(i.code, indent)}",
    ast.MainDag: _main,
    ast.SubDag: _sub_dag,
    ast.Op: _op,
    ast.Collective: lambda i, indent: f"{print_expr(i.name)} : mpi {print_expr(i.call)}{_on(i.comm)}",
    ast.Exchange: lambda i, indent: (
        f"{print_expr(i.name)} : mpi exchange{_on(i.comm)}{_split(i.split)} {_block(i.items, indent)}"
    ),
    ast.Message: _message,
    ast.Edge: _edge,
    ast.EdgesExplicit: lambda i, indent: "edges explicit",
    ast.Fuse: lambda i, indent: f"fuse {i.names[0]}" if i.word else f"fuse {{{', '.join(i.names)}}}",
    ast.For: _for,
    ast.If: _if,
    ast.Setup: lambda i, indent: f'setup "{i.file}" {print_expr(i.call)}',
    ast.Verify: _verify,
    ast.Include: lambda i, indent: f'include "{i.file}"',
}

"""Loops of a kernel's text that count by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagc.cuda.syntax import below, change_of, declarators, field_of, operator_of, text_of
from dagc.forms.affine import LOOPS, prefix_of
from dagc.forms.neighbours import Neighbours, NotAlike, is_below

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class CountedFor:
    """`for (TYPE k = start; k < end; ++k) body`. `type`: with a blank behind."""

    node: Node
    counter: str
    type: str
    start: str
    end: Node
    body: Node

    @property
    def statements(self) -> list[Node]:
        return self.body.named_children if self.body.type == "compound_statement" else [self.body]

    def by_groups(self, first: str, lanes: int, tests: list[str], together: list[str], indent: str) -> list[str]:
        """The loop by groups of `lanes` iterations, counted by `first`: those that pass the tests have the lines
        `together`, others are as written."""
        name, end, column = self.counter, text_of(self.end), self.node.start_point[1]
        body = re.sub(rf"\n {{0,{column}}}", f"\n{indent}    ", text_of(self.body))
        last = f"{name} < {first} + {lanes} && {name} < {end}"
        return [
            f"for ({self.type}{first} = {self.start}; {first} < {end}; {first} += {lanes}) {{",
            f"{indent}  const {self.type}{name} = {first};",
            f"{indent}  if ({' && '.join([f'{first} + {lanes - 1} < {end}', *tests])}) {{",
            *together,
            f"{indent}  }} else {{",
            f"{indent}    #pragma unroll 1",
            f"{indent}    for ({self.type}{name} = {first}; {last}; ++{name}) {body}",
            f"{indent}  }}",
            f"{indent}}}",
        ]


def counted_loops(body: Node) -> Iterator[CountedFor]:
    """Outer ones first."""
    return (loop for at in below(body) if (loop := _counted(at)) is not None)


def _counted(node: Node) -> CountedFor | None:
    start, condition, update, body = (field_of(node, p) for p in ("initializer", "condition", "update", "body"))
    if node.type != "for_statement" or start is None or condition is None or update is None or body is None:
        return None
    change, end = change_of(update), field_of(condition, "right")
    names = declarators(start) if start.type == "declaration" else []
    if change is None or len(names) != 1 or end is None or operator_of(condition) != "<":
        return None
    up = (change.how == "++" and "++" in text_of(update)) or (change.how == "+=" and text_of(change.value) == "1")
    counter, value = text_of(field_of(names[0], "declarator")), field_of(names[0], "value")
    if not up or value is None or not counter == change.name == text_of(field_of(condition, "left")):
        return None
    return CountedFor(node, counter, prefix_of(start), text_of(value), end, body)


def refuse_changing_end(loop: CountedFor, alike: Neighbours) -> None:
    """Refuse a loop whose end is not the same in all iterations, or whose body changes the counter."""
    fixed = {text_of(at) for at in below(loop.end) if at.type == "identifier"}
    if any(at.type in ("call_expression", "subscript_expression") for at in below(loop.end)) or any(
        is_below(at, loop.node) for name in fixed for at in alike.numbers.changes.get(name, ())
    ):
        raise NotAlike(f"the end of the loop over `{loop.counter}` may change", loop.end)
    own = [at for at in alike.numbers.changes.get(loop.counter, ()) if is_below(at, loop.body)]
    if own:
        raise NotAlike(f"`{loop.counter}` changes in its loop", own[0])


def loop_around(node: Node) -> Node:
    """The loop, or the `switch`, that a `break` ends."""
    at = node
    while at.parent is not None and at.type not in (*LOOPS, "switch_statement"):
        at = at.parent
    return at

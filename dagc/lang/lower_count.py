"""How many ops a dag expands to, before it is expanded: three loops of 1000 are refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dagc.lang import ast
from dagc.lang.lower_context import OPS_LIMIT, Context
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_report import Report, Skip, Stop
from dagc.lang.lower_values import Kind
from dagc.source import Span


def refuse_too_many(ev: Evaluator, dags: dict[str, ast.SubDag], main: ast.MainDag) -> None:
    """Report `too-many-ops` at the loop or call that expands to more than OPS_LIMIT ops, and stop lowering.

    What is counted is a lower bound: a loop whose range is not known here, because it depends on an outer loop or on a
    formal, counts as none. Nothing is declared, reported or decided on the way.
    """
    context = ev.ctx
    aside = replace(
        context,
        report=Report(),
        choices={name: replace(choice) for name, choice in context.choices.items()},
        used=set(context.used),
        noted=set(context.noted),
    )
    counter = _Counter(Evaluator(aside, ev.scope), dags)
    if counter.items(main.items) > OPS_LIMIT:
        count, what, span = counter.largest or (counter.items(main.items), "the dag", main.span)
        _refuse(context, what, count, span)


def _refuse(context: Context, what: str, count: int, span: Span) -> None:
    message = f"{what} expands to {count} ops, more than {OPS_LIMIT}"
    context.report.error("too-many-ops", message, span, "shorten the loop, or do the loop inside a kernel")
    raise Stop


@dataclass(slots=True)
class _Counter:
    """`largest`: the innermost item, first in the text, that alone is too much."""

    ev: Evaluator
    dags: dict[str, ast.SubDag]
    known: dict[str, int] = field(default_factory=dict)  # ops of a named dag
    largest: tuple[int, str, Span] | None = None

    def items(self, items: tuple[ast.Item, ...]) -> int:
        return sum(self._item(item) for item in items)

    def _item(self, item: ast.Item) -> int:
        if isinstance(item, ast.For):
            return self._note(self._turns(item) * self.items(item.items), "this loop", item.bindings[0].span)
        if isinstance(item, ast.If):
            return self._branch(item)
        if isinstance(item, ast.Exchange):
            return 1 + self.items(item.items)
        if isinstance(item, ast.Op) and item.kind is ast.OpKind.DAG:
            name = item.call.callee.name
            return self._note(self._dag(name), f"this call of `{name}`", item.name.span)
        return int(isinstance(item, (ast.Op, ast.Collective, ast.Message)))

    def _note(self, count: int, what: str, span: Span) -> int:
        if count > OPS_LIMIT and self.largest is None:
            self.largest = count, what, span
        return count

    def _dag(self, name: str) -> int:
        if name not in self.known:
            self.known[name] = 0  # of one that calls itself
            self.known[name] = self.items(self.dags[name].items) if name in self.dags else 0
        return self.known[name]

    def _branch(self, item: ast.If) -> int:
        try:
            taken = self.ev.constant(item.test, "", (Kind.BOOL,))
        except Skip:
            return min(self.items(item.then), self.items(item.otherwise or ()))
        return self.items(item.then if taken else item.otherwise or ())

    def _turns(self, item: ast.For) -> int:
        turns = 1
        for binding in item.bindings:
            try:
                if isinstance(binding.range, ast.Range):
                    start, stop = (self.ev.integer(e, "") for e in (binding.range.start, binding.range.stop))
                    turns *= max(0, stop - start)
                else:
                    turns *= len(self.ev.items(binding.range, "", structural=False))
            except Skip:
                return 0
        return turns

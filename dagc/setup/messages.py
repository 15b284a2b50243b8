"""Do the ranks' messages meet? A message that one rank sends and its partner does not expect is a run that hangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagc.base.errors import Diagnostic, counted
from dagc.base.source import Span
from dagc.ir.program import ExchangeOp, Message, Program, Region
from dagc.ir.sym import Number, Sym, Var, evaluate, show

_LIMIT = 8  # mismatches reported; the rest say the same


@dataclass
class Matching:
    """Counts of all messages by (message, sender, receiver), collected rank by rank."""

    program: Program
    ranks: int
    span: Span
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _values: list[dict[str, Number]] = field(default_factory=list)  # scalars of each rank
    _sent: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)
    _expected: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def add(self, data: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], env: Mapping[str, Number]) -> None:
        """Collect one rank's. `data` holds its scalars and arrays, `shapes` the sizes of every array known."""
        rank = int(env["rank"])
        self._values.append(dict(env))
        for name, message in self._messages():
            for peer, count in self._ends(message, True, data, shapes, env, name):
                self._sent.setdefault((name, rank, peer), []).append(count)
            for peer, count in self._ends(message, False, data, shapes, env, name):
                self._expected.setdefault((name, peer, rank), []).append(count)

    def _messages(self) -> Iterator[tuple[str, Message]]:
        for op in self.program.ops:
            if isinstance(op, ExchangeOp):
                for message in op.messages:
                    yield f"{op.name}.{message.label}" if message.label else op.name, message

    def _ends(
        self,
        message: Message,
        send: bool,
        data: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        env: Mapping[str, Number],
        name: str,
    ) -> Iterator[tuple[int, int]]:
        """(peer, elements) of one side of a message on one rank."""
        peers, counts, region = (
            (message.to, message.send_counts, message.send)
            if send
            else (message.source, message.recv_counts, message.recv)
        )
        whole = _elements(region, shapes, env)
        if isinstance(peers, str):
            if counts is None or peers not in data or counts not in data:
                return  # written by the program itself: not known here
            pairs = [(int(p), int(c)) for p, c in zip(data[peers], data[counts], strict=False)]
        elif whole is not None:
            pairs = [(int(_number(peers, env)), whole)]
        else:
            return
        total = sum(c for p, c in pairs if p >= 0)
        verb = "sends" if send else "receives"
        if whole is not None and total > whole:
            many = counted(total, "element")
            self._add(f"rank {env['rank']} {verb} {many} of `{region.array}` in {name}, which has {whole}")
        for peer, count in pairs:
            if peer >= self.ranks:
                there = f"there {'is' if self.ranks == 1 else 'are'} {counted(self.ranks, 'rank')}"
                self._add(f"rank {env['rank']} {verb} in {name} with rank {peer}, but {there}")
            elif count < 0:
                self._add(f"rank {env['rank']} {verb} {counted(count, 'element')} in {name} with rank {peer}")
            elif peer >= 0:
                yield peer, count

    def finish(self) -> list[Diagnostic]:
        """What was found, after the last rank: one finding for each line of the text."""
        wrong: dict[str, list[tuple[int, int]]] = {}
        for name, sender, receiver in sorted(self._sent.keys() | self._expected.keys()):
            if self._sent.get((name, sender, receiver), []) != self._expected.get((name, sender, receiver), []):
                wrong.setdefault(name, []).append((sender, receiver))
        lines: dict[object, list[tuple[str, Message]]] = {}
        for name, message in self._messages():
            if name in wrong:
                lines.setdefault(
                    (message.span.start, message.span.end) if self._has_position(message) else name, []
                ).append((name, message))
        for messages in lines.values():
            name, message = messages[0]
            self._mismatch(name, message, wrong[name], len(messages))
        return self.diagnostics[:_LIMIT]

    def _mismatch(self, name: str, message: Message, pairs: list[tuple[int, int]], instances: int) -> None:
        """A line whose messages do not meet; `pairs` are those (sender, receiver) of its first instance."""
        sender, receiver = next((pair for pair in pairs if (name, *pair) in self._sent), pairs[0])
        sent, expected = (table.get((name, sender, receiver), []) for table in (self._sent, self._expected))
        text = (
            f"rank {sender} sends {_elements_text(sent)} to rank {receiver} in {name},"
            f" which expects {_elements_text(expected)}"
        )
        more = [counted(len(pairs), "pair") + " of ranks"] if len(pairs) > 1 else []
        more += [f"{instances} instances"] if instances > 1 else []
        suggestion = self._opposite(message) if not sent or not expected else ""
        help = suggestion or "make the ranks' peers and counts agree; a negative rank means no message"
        known = self._has_position(message)
        self.diagnostics.append(
            Diagnostic(
                "setup-messages",
                text + (f" ({', '.join(more)})" if more else ""),
                message.span if known else self.span,
                help,
                related=((self.span, "the ranks are set here"),) if known else (),
            )
        )

    def _has_position(self, message: Message) -> bool:
        """Does it say where it stands?"""
        return message.span.file in self.program.sources

    def _opposite(self, message: Message) -> str:
        """The scalar that would make the two ends meet on all ranks, as a help; "" where there is none."""
        to, source = message.to, message.source
        if isinstance(to, str) or isinstance(source, str):
            return ""
        scalars = [Var(s.name) for s in self.program.scalars if s.type.value[0] in "iu"]
        sources = [show(other) for other in scalars if other != source and self._meet(to, other)]
        targets = [show(other) for other in scalars if other != to and self._meet(other, source)]
        ways = [f"`from {name}`" for name in sources[:1]] + [f"`to {name}`" for name in targets[:1]]
        if not ways:
            return ""
        pair = (show(to), sources[0]) if sources else (targets[0], show(source))
        return f"what is sent `to {pair[0]}` comes `from {pair[1]}`: write {' or '.join(ways)}"

    def _meet(self, to: Sym, source: Sym) -> bool:
        """Does every send to `to` have its receive from `source`, and none more?"""
        sends = {(rank, int(_number(to, env))) for rank, env in enumerate(self._values)}
        receives = {(int(_number(source, env)), rank) for rank, env in enumerate(self._values)}
        sends = {(rank, peer) for rank, peer in sends if peer >= 0}
        return bool(sends) and sends == {(peer, rank) for peer, rank in receives if peer >= 0}

    def _add(self, message: str) -> None:
        help = "make the ranks' peers and counts agree; a negative rank means no message"
        self.diagnostics.append(Diagnostic("setup-messages", message, self.span, help))


def _number(expr: Sym, env: Mapping[str, Number]) -> Any:
    return evaluate(expr, env)


def _elements(region: Region, shapes: Mapping[str, tuple[int, ...]], env: Mapping[str, Number]) -> int | None:
    """Elements of a region; None where the array's size is not known here."""
    shape = shapes.get(region.array)
    if shape is None:
        return None
    first = shape[0] if shape else 1
    if region.stop is not None:
        start = _number(region.start, env) if region.start is not None else 0
        first = int(_number(region.stop, env)) - int(start)
    count = first
    for size in shape[1:]:
        count *= size
    return count


def _elements_text(counts: list[int]) -> str:
    return " and ".join(counted(c, "element") for c in counts) if counts else "no message"

"""Do the ranks' messages meet? A message that one rank sends and its partner does not expect is a run that hangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagc.errors import Diagnostic, counted
from dagc.ir import ExchangeOp, Message, Program, Region
from dagc.source import Span
from dagc.sym import Number, Sym, evaluate

_LIMIT = 8  # mismatches reported; the rest say the same


@dataclass
class Matching:
    """Counts of all messages by (message, sender, receiver), collected rank by rank."""

    program: Program
    ranks: int
    span: Span
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _sent: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)
    _expected: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def add(self, data: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], env: Mapping[str, Number]) -> None:
        """Collect one rank's. `data` holds its scalars and arrays, `shapes` the sizes of every array known."""
        rank = int(env["rank"])
        for op in self.program.ops:
            if not isinstance(op, ExchangeOp):
                continue
            for message in op.messages:
                name = f"{op.name}.{message.label}" if message.label else op.name
                for peer, count in self._ends(message, True, data, shapes, env, name):
                    self._sent.setdefault((name, rank, peer), []).append(count)
                for peer, count in self._ends(message, False, data, shapes, env, name):
                    self._expected.setdefault((name, peer, rank), []).append(count)

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
        """What was found, after the last rank."""
        for key in sorted(self._sent.keys() | self._expected.keys()):
            name, sender, receiver = key
            sent, expected = self._sent.get(key, []), self._expected.get(key, [])
            if sent != expected:
                self._add(
                    f"rank {sender} sends {_elements_text(sent)} to rank {receiver} in {name},"
                    f" which expects {_elements_text(expected)}"
                )
        return self.diagnostics[:_LIMIT]

    def _add(self, message: str) -> None:
        mend = "make the ranks' peers and counts agree; a negative rank means no message"
        self.diagnostics.append(Diagnostic("setup-messages", message, self.span, mend))


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

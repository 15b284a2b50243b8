"""Checks results of set-ups and references against the declarations, that the ranks' messages match, and, before the
set-up computes them, that the arrays of the ranks have room on the disk and in memory."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dagc.base.errors import Diagnostic, Spelling, UsageError, counted
from dagc.base.python import np
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.constraints import alike
from dagc.ir.enums import ElementType, Role
from dagc.ir.program import Program
from dagc.ir.regions import conditional_regions
from dagc.ir.sym import Const, Number, Sym, UnboundName, Var, evaluate, free, show

SET_ROLES = (Role.CONST, Role.IN, Role.INOUT)


def dtype(element: ElementType) -> np.dtype[Any]:
    """NumPy's type of an element type."""
    return np.dtype(element.numpy)


def wanted(program: ir.Program) -> tuple[str, ...]:
    """The names that a set-up returns: every per-rank scalar, and every array that is set before the run."""
    arrays = (a.name for a in program.arrays if a.role in SET_ROLES)
    return (*(s.name for s in program.scalars), *arrays)


@dataclass(frozen=True, slots=True)
class RankMembers:
    """The members of each communicator, for each rank; none for a rank that is in none."""

    ranks: int
    members: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def of(self, rank: int) -> dict[str, Number]:
        """The values of a rank that do not come from the set-up: `rank`, `ranks`, `row.rank`, `row.ranks`."""
        env: dict[str, Number] = {"rank": rank, "ranks": self.ranks}
        for name, members in self.members.items():
            mine = members[rank]
            env |= {f"{name}.rank": mine.index(rank) if mine else -1, f"{name}.ranks": len(mine)}
        return env


def team(program: ir.Program, ranks: int, scalars: Callable[[int], Mapping[str, Number]]) -> RankMembers:
    """The groups that MPI_Comm_split forms. `scalars`: the values of a rank, where a colour or a key depends on one.

    Raises UnboundName, ArithmeticError, ValueError or TypeError where a colour or a key cannot be computed.
    """
    out = RankMembers(ranks)
    if not program.comms:
        return out
    named = set().union(*(free(e) for c in program.comms for e in (c.colour, c.key)))
    given = not named.isdisjoint(s.name for s in program.scalars)
    values = [scalars(rank) if given else {} for rank in range(ranks)]
    for comm in program.comms:
        env = [{**values[rank], **out.of(rank)} for rank in range(ranks)]
        colours = [evaluate(comm.colour, e) for e in env]
        keys = [evaluate(comm.key, e) for e in env]
        order = sorted(range(ranks), key=lambda rank, keys=keys: (keys[rank], rank))  # type: ignore[misc]
        groups: dict[Number, list[int]] = {}
        for rank in order:
            groups.setdefault(colours[rank], []).append(rank)
        each = {colour: tuple(group) if colour >= 0 else () for colour, group in groups.items()}  # type: ignore[operator]
        members = tuple(each[colour] for colour in colours)
        out = RankMembers(ranks, {**out.members, comm.name: members})
    return out


class Checker:
    """Checks the values of one rank; `diagnostics` collects mismatches, all at `span`."""

    def __init__(self, program: ir.Program, rank: int, team: RankMembers, span: Span, giver: str) -> None:
        """`giver` names the function in messages."""
        self._program = program
        self._span = span
        self._giver = giver
        self._rank = rank
        self.env: dict[str, Number] = team.of(rank)
        self.diagnostics: list[Diagnostic] = []

    def names(self, returned: Iterable[str], needed: Iterable[str]) -> None:
        """Check that the names are those wanted."""
        returned, needed, spelling = dict.fromkeys(returned), dict.fromkeys(needed), Spelling()
        declared = {a.name: a for a in self._program.arrays}
        for name in needed:
            if name not in returned:
                near = spelling.near(name, (g for g in returned if g not in needed), "returned")
                help = f"`{near}` is spelled `{name}`" if near else f"add {name!r} to the dict"
                self._add("setup-missing", f"does not return `{name}`", help)
        for name in returned:
            if name in needed:
                continue
            if name in declared:
                role = declared[name].role
                message = f"returns `{name}`, which is {role.value if role else 'scratch'}"
                self._add("setup-extra", message, "leave it out, or declare it in or inout")
            else:
                near = spelling.near(name, needed, "needed")
                help = f"did you mean `{near}`" if near else "leave it out, or declare it"
                self._add("setup-extra", f"returns `{name}`, which is not declared", help)

    def scalar(self, scalar: ir.Scalar, value: Any) -> Any:
        """The value as a NumPy scalar of the declared type; None if it does not match."""
        kind = scalar.type.value
        array = np.asarray(value)
        plain = array.item() if array.ndim == 0 and array.dtype.kind in "iufb" else None
        if plain is None:
            self._add("setup-type", f"returns {_describe(value)} for the scalar `{scalar.name}`", f"give one {kind}")
            return None
        is_float, is_bool = scalar.type.is_float, scalar.type is ElementType.BOOL
        if isinstance(plain, bool) != is_bool or (isinstance(plain, float) and not is_float):
            self._add("setup-type", f"returns {plain!r} for `{scalar.name}`", f"give one {kind}")
            return None
        if not is_float and not is_bool:
            bounds = np.iinfo(dtype(scalar.type))
            if not bounds.min <= plain <= bounds.max:
                help = f"it must be in {bounds.min} .. {bounds.max}, or declare a larger type"
                self._add("setup-range", f"returns {plain} for `{scalar.name}`, which is {kind}", help)
                return None
        self.env[scalar.name] = plain
        return dtype(scalar.type).type(plain)

    def array(self, array: ir.Array, value: Any) -> Any:
        """The value as a C-ordered array of the declared type and shape; None if it does not match."""
        want = dtype(array.type)
        if not isinstance(value, np.ndarray):
            help = f"give np.array(..., np.{want.name})"
            self._add("setup-type", f"returns {_describe(value)} for the array `{array.name}`", help)
            return None
        if value.dtype != want:
            message = f"returns type {value.dtype} for `{array.name}`, which is {array.type.value}"
            self._add("setup-type", message, f"give {array.name}.astype(np.{want.name})")
            return None
        shape = self.shape(array)
        if shape is None:
            return None
        fits = len(shape) == value.ndim and all(s is None or s == v for s, v in zip(shape, value.shape, strict=True))
        if not fits:
            message = f"returns shape {_shape(value.shape)} for `{array.name}`, expected {_shape(shape)}"
            self._add("setup-shape", message, "change the array, or the sizes in its declaration")
            return None
        return np.ascontiguousarray(value)

    def shape(self, array: ir.Array) -> tuple[int | None, ...] | None:
        """Sizes on this rank, None where declared `*`; None as a whole if they cannot be evaluated (reported)."""
        out: list[int | None] = []
        for number, dim in enumerate(array.dims, 1):
            if dim is None:
                out.append(None)
                continue
            size = self.size(dim, f"size {number} of `{array.name}`")
            if size is None:
                return None
            out.append(size)
        return tuple(out)

    def conditions(self) -> None:
        """Check the `require`s left for run time, and the slices of ops and of `verify`. Those on the hardware wait
        for the run."""
        for require in self._program.requires:
            condition = require.condition
            if self._evaluated(condition) is False:
                names = sorted(free(condition))
                values = ", ".join(f"{name} = {self.env[name]}" for name in names)
                help = "change these values" + ("; -n sets the number of ranks" if "ranks" in names else "")
                related = ((require.span, "the `require`"),)
                self._add("setup-require", f"violates `require {show(condition)}`: {values}", help, related)
        regions = [pair for op in self._program.ops for pair in conditional_regions(op)]
        regions += [(verify.region, None) for verify in self._program.verifies]
        for region, when in dict.fromkeys(regions):
            if when is not None and self._evaluated(when) is False:
                continue
            for dimension, start, stop in region.slices:
                length = self._program.array(region.array).dims[dimension]
                self._slice(f"{region.array}[" + "*, " * dimension, start, stop, length)

        for op in self._program.ops:
            if isinstance(op, ir.KernelOp) and (op.when is None or self._evaluated(op.when) is not False):
                self._arguments(op)

    def _arguments(self, op: ir.KernelOp) -> None:
        """Compare the sizes of array arguments with those in the kernel's header. The program compares them again when
        it starts, including those that are not known here."""
        kernel = self._program.kernel(op.kernel)
        env: dict[str, Number] = {d.name: d.chosen for d in self._program.decisions}
        env.update(op.tunables)
        for formal, arg in zip(kernel.formals, op.args, strict=True):
            value = None if isinstance(arg, ir.Region) else self._evaluated(arg)
            if value is not None:
                env[formal.name] = value
                self._value(op, formal, value)
        for name, expr in kernel.lets:
            value = self._evaluated(expr, env)
            if value is not None:
                env[name] = value
        for formal, arg in zip(kernel.formals, op.args, strict=True):
            if not isinstance(arg, ir.Region) or formal.dims is None or (arg.part is not None and arg.start is None):
                continue
            has, needs = self._lengths(arg), [self._evaluated(d, env) for d in formal.dims if d is not None]
            if None in has or None in needs or len(needs) < len(formal.dims) or _product(has) == _product(needs):
                continue
            passed = f"op {op.name} passes {_times(has)} elements of `{arg.array}` as `{formal.name}` of {op.kernel}"
            message = f"{passed}, which has {_times(needs)} (rank {self._rank})"
            help = f"pass as many, or correct the sizes in the header of {op.kernel}"
            if not any(d.span == op.span for d in self.diagnostics):  # not each instance of a loop
                self.diagnostics.append(Diagnostic("setup-size", message, op.span, help))

    def _value(self, op: ir.KernelOp, formal: ir.Formal, value: Number) -> None:
        """Compare an integer that is passed by value with the range of its formal."""
        if not formal.type.is_integer or not isinstance(value, int):
            return
        low, high = formal.type.range
        if not low <= value <= high and not any(d.span == op.span for d in self.diagnostics):
            passed = f"op {op.name} passes {value} as `{formal.name}` of {op.kernel}"
            message = f"{passed}, which is {formal.type.value} (rank {self._rank})"
            related = ((formal.span, f"formal `{formal.name}` is {formal.type.value}"),)
            help = "declare the formal with a wider type, or change the scalars that it depends on"
            self.diagnostics.append(Diagnostic("setup-range", message, op.span, help, related=related))

    def _lengths(self, region: ir.Region) -> list[Number | None]:
        """The lengths of the dimensions of an argument; None if a length is not known here."""
        out = [None if d is None else self._evaluated(d) for d in self._program.array(region.array).dims]
        for dimension, start, stop in region.slices:
            first, last = self._evaluated(start), self._evaluated(stop)
            out[dimension] = None if first is None or last is None else last - first  # type: ignore[operator]
        return out

    def _slice(self, name: str, *bounds: Sym | None) -> None:
        """`bounds`: start, stop and size of a dimension; `name`: the text before them."""
        start, stop, length = (None if b is None else self._evaluated(b) for b in bounds)
        if start is None or stop is None:
            return
        if not 0 <= start <= stop or (length is not None and stop > length):  # type: ignore[operator]
            within = f" within 0 .. {length}" if length is not None else ""
            message = f"makes a slice `{name}{start} .. {stop}]`, which is not valid{within}"
            self._add("setup-require", message, "change the scalars that it depends on")

    def _evaluated(self, expr: Sym, names: Mapping[str, Number] | None = None) -> Number | None:
        try:
            return evaluate(expr, self.env if names is None else names)
        except (UnboundName, ArithmeticError, ValueError, TypeError):
            return None

    def size(self, expr: Sym, what: str) -> int | None:
        """A whole number, 0 or more; None if it is not (reported) or depends on a value already found wrong."""
        try:
            value = evaluate(expr, self.env)
        except UnboundName as error:
            # A scalar that was missing or wrong has been reported already.
            if not any(s.name == error.args[0] for s in self._program.scalars):
                self._add("setup-size", f"needs {what}, which depends on `{error.args[0]}`", "use per-rank scalars")
            return None
        except (ArithmeticError, ValueError, TypeError) as error:
            self._add("setup-size", f"makes {what} invalid: {error}", "change the scalars it depends on")
            return None
        if isinstance(value, (str, bool)) or value < 0 or value != int(value):
            shown = f"{float(value):g}" if isinstance(value, Fraction) else value
            self._add("setup-size", f"makes {what} {shown}", "it must be a whole number, 0 or more")
            return None
        return int(value)

    def _add(self, code: str, message: str, help: str, related: tuple[tuple[Span, str], ...] = ()) -> None:
        message = f"`{self._giver}` {message} (rank {self._rank})"
        self.diagnostics.append(Diagnostic(code, message, self._span, help, related=related))


def _product(lengths: Iterable[Number | None]) -> int:
    return math.prod(int(length) for length in lengths if length is not None)


def _times(lengths: Iterable[Number | None]) -> str:
    return " x ".join(str(length) for length in lengths)


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"{kind} of shape {_shape(shape)}" if shape is not None else kind


def _shape(shape: Iterable[int | None]) -> str:
    sizes = ["*" if s is None else str(s) for s in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


# ---- messages between ranks ----

_LIMIT = 8  # mismatches reported; the rest are alike


@dataclass(frozen=True, slots=True)
class _RankValues:
    """The scalars and arrays of one rank, and the sizes of its arrays, as far as they are known."""

    rank: int
    data: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    env: Mapping[str, Number]

    def elements(self, region: ir.Region) -> int | None:
        """Elements of a region; None if the array's size is not known here."""
        shape = self.shapes.get(region.array)
        if shape is None or region.stop is None:
            return None if shape is None else math.prod(shape)
        start = evaluate(region.start, self.env) if region.start is not None else 0
        return (int(evaluate(region.stop, self.env)) - int(start)) * math.prod(shape[1:])


@dataclass
class Matching:
    """Counts of all messages by (message, sender, receiver), collected rank by rank."""

    program: ir.Program
    team: RankMembers
    span: Span
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _values: dict[int, dict[str, Number]] = field(default_factory=dict)  # scalars of each rank
    _shapes: dict[int, dict[str, tuple[int, ...]]] = field(default_factory=dict)  # of its arrays
    _sent: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)
    _expected: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def add(self, data: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], env: Mapping[str, Number]) -> None:
        """Collect the message counts of one rank. `data` has its scalars and arrays, `shapes` all known array sizes."""
        values = _RankValues(int(env["rank"]), data, shapes, env)
        self._values[values.rank] = dict(env)
        self._shapes[values.rank] = dict(shapes)
        for name, comm, message in self._messages():
            # The ranks of the program that peers are, by their numbers.
            members = self.team.members[comm][values.rank] if comm else range(self.team.ranks)
            for peer, count in self._ends(message, True, values, name, members):
                self._sent.setdefault((name, values.rank, peer), []).append(count)
            for peer, count in self._ends(message, False, values, name, members):
                self._expected.setdefault((name, peer, values.rank), []).append(count)

    def merge(self, other: Matching) -> None:
        """Add what was collected of other ranks."""
        self.diagnostics += other.diagnostics
        self._values |= other._values
        self._shapes |= other._shapes
        for ours, theirs in ((self._sent, other._sent), (self._expected, other._expected)):
            for key, counts in theirs.items():
                ours.setdefault(key, []).extend(counts)

    def _messages(self) -> Iterator[tuple[str, str, ir.Message]]:
        """Name, communicator and message."""
        for op in self.program.comm_ops:
            for message in op.messages:
                when = op.when if isinstance(op, ir.CollectiveOp) else message.when
                name = f"{op.name}.{message.label}" if message.label else op.name
                yield name, op.comm, replace(message, when=when)

    def _ends(
        self, message: ir.Message, send: bool, values: _RankValues, name: str, members: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """(peer, elements) of one side of a message on one rank; the peer as a rank of the program."""
        ranks, rank, data, env = len(members), values.rank, values.data, values.env
        region, peers, counts = message.end(send)
        if message.when is not None and not evaluate(message.when, env):
            return
        whole = values.elements(region)
        if isinstance(peers, str):
            if counts is None or (peers and peers not in data) or counts not in data:
                return  # written by the program: not known here
            if not peers and len(data[counts]) != ranks:
                have = counted(len(data[counts]), "count")
                text = f"rank {rank} has {have} in `{counts}` for {name}, not one for each of {ranks} ranks"
                self._add(text, message)
                return
            named = data[peers] if peers else range(ranks)
            pairs = [(int(p), int(c)) for p, c in zip(named, data[counts], strict=False)]
        elif whole is not None:
            pairs = [(_rank(peers, env), whole)]
        else:
            return
        total = sum(c for p, c in pairs if p >= 0)
        verb = "sends" if send else "receives"
        if whole is not None and total > max(whole, 0):
            many = counted(total, "element")
            self._add(f"rank {rank} {verb} {many} of `{region.array}` in {name}, which has {whole}", message)
        for peer, times in Counter(p for p, _ in pairs if p >= 0).most_common(1) if message.shares > 1 else ():
            if times > 1:
                text = f"rank {rank} {verb} {times} times in {name} with rank {peer}, but `split` divides ranks"
                self._add(text, message)
        for peer, count in pairs:
            if peer >= ranks:
                there = f"there {'is' if ranks == 1 else 'are'} {counted(ranks, 'rank')}"
                there += " in its communicator" if ranks < self.team.ranks else ""
                self._add(f"rank {rank} {verb} in {name} with rank {peer}, but {there}", message)
            elif count < 0:
                self._add(f"rank {rank} {verb} {counted(count, 'element')} in {name} with rank {peer}", message)
            elif peer >= 0:
                yield members[peer], count

    def finish(self) -> list[Diagnostic]:
        """The findings, after the last rank: one for each line of the text."""
        wrong: dict[str, list[tuple[int, int]]] = {}
        for name, sender, receiver in sorted(self._sent.keys() | self._expected.keys()):
            if self._sent.get((name, sender, receiver), []) != self._expected.get((name, sender, receiver), []):
                wrong.setdefault(name, []).append((sender, receiver))
        lines: dict[object, list[tuple[str, str, ir.Message]]] = {}
        for name, comm, message in self._messages():
            if name in wrong:
                lines.setdefault(
                    (message.span.start, message.span.end) if self._has_position(message) else name, []
                ).append((name, comm, message))
        for messages in lines.values():
            name, comm, message = messages[0]
            self._mismatch(name, comm, message, wrong[name], len(messages))
        self._unlike()
        return self.diagnostics[:_LIMIT]

    def _unlike(self) -> None:
        """Report collectives whose ranks differ in what they must have alike."""
        for op, what, value in alike(self.program):
            groups = dict.fromkeys(self.team.members[op.comm] if op.comm else (tuple(range(self.team.ranks)),))
            for ranks in groups:
                found = {rank: self._alike(op, value, rank) for rank in ranks}
                one, other = next(((a, b) for a in ranks for b in ranks if found[a] != found[b]), (0, 0))
                if one == other or any(d.span == op.span for d in self.diagnostics):
                    continue
                text = (
                    f"the {what} of {op.name} differs: it is {found[one]} on rank {one}, {found[other]} on rank {other}"
                )
                help = "give the same value on every rank; scalars of the set-up and `rank` may differ"
                self.diagnostics.append(Diagnostic("setup-messages", text, op.span, help))

    def _alike(self, op: ir.CollectiveOp, value: Sym | ir.Region, rank: int) -> Number | None:
        """On one rank; None if the ranks skip the op, or if it is not known here."""
        env = self._values[rank]
        if isinstance(value, ir.Region):
            value = Const(math.prod(self._shapes[rank].get(value.array, ())))
        try:
            return evaluate(value, env) if op.when is None or evaluate(op.when, env) else None
        except (UnboundName, ArithmeticError, ValueError, TypeError):
            return None

    def _mismatch(
        self, name: str, comm: str, message: ir.Message, pairs: list[tuple[int, int]], instances: int
    ) -> None:
        """Report a line whose messages do not match; `pairs` are the (sender, receiver) of its first instance."""
        sender, receiver = next((pair for pair in pairs if (name, *pair) in self._sent), pairs[0])
        sent, expected = (table.get((name, sender, receiver), []) for table in (self._sent, self._expected))
        text = (
            f"rank {sender} sends {_elements_text(sent)} to rank {receiver} in {name},"
            f" which expects {_elements_text(expected)}"
        )
        more = [counted(len(pairs), "pair") + " of ranks"] if len(pairs) > 1 else []
        more += [f"{instances} instances"] if instances > 1 else []
        suggestion = self._opposite(message) if not comm and (not sent or not expected) else ""
        if comm:
            suggestion = (
                f"peers are ranks of `{comm}`, where this rank is `{comm}.rank`; a negative one means no message"
            )
        help = suggestion or "make the ranks' peers and counts agree; a negative rank means no message"
        self._report(text + (f" ({', '.join(more)})" if more else ""), message, help)

    def _report(self, text: str, message: ir.Message, help: str) -> None:
        """Report at the line of the message, and name the set-up if it gives the peers; without a line, report at the
        set-up."""
        known = self._has_position(message)
        given = known and self._given(message)
        related = ((self.span, "the ranks are set here"),) if given else ()
        place = message.span if known else self.span
        self.diagnostics.append(Diagnostic("setup-messages", text, place, help, related=related))

    def _given(self, message: ir.Message) -> bool:
        """Whether peers or counts come from the set-up: arrays, or expressions with scalars."""
        scalars = {s.name for s in self.program.scalars}
        return any(isinstance(peer, str) or free(peer) & scalars for peer in (message.to, message.source))

    def _has_position(self, message: ir.Message) -> bool:
        """Whether the place of a message in the text is known."""
        return message.span.file in self.program.sources

    def _opposite(self, message: ir.Message) -> str:
        """The scalar that would make both ends match on all ranks, as a help; "" if there is none."""
        to, source = message.to, message.source
        if isinstance(to, str) or isinstance(source, str):
            return ""
        scalars = [Var(s.name) for s in self.program.scalars if s.type.is_integer]
        sources = [show(other) for other in scalars if other != source and self._meet(to, other)]
        targets = [show(other) for other in scalars if other != to and self._meet(other, source)]
        ways = [f"`from {name}`" for name in sources[:1]] + [f"`to {name}`" for name in targets[:1]]
        if not ways:
            return ""
        pair = (show(to), sources[0]) if sources else (targets[0], show(source))
        return f"a message `to {pair[0]}` arrives `from {pair[1]}`: write {' or '.join(ways)}"

    def _meet(self, to: Sym, source: Sym) -> bool:
        """Whether the sends to `to` and the receives from `source` match one to one."""
        sends = {(rank, _rank(to, env)) for rank, env in self._values.items()}
        receives = {(_rank(source, env), rank) for rank, env in self._values.items()}
        sends = {(rank, peer) for rank, peer in sends if peer >= 0}
        return bool(sends) and sends == {(peer, rank) for peer, rank in receives if peer >= 0}

    def _add(self, text: str, message: ir.Message) -> None:
        self._report(text, message, "make the ranks' peers and counts agree; a negative rank means no message")


def _rank(expr: Sym, env: Mapping[str, Number]) -> int:
    return int(evaluate(expr, env))


def _elements_text(counts: list[int]) -> str:
    return " and ".join(counted(c, "element") for c in counts) if counts else "no message"


def least_bytes(program: Program, roles: Sequence[Role] | None = None) -> int:
    """Of the arrays of a rank, in these roles (None: all), whose sizes are constants of the program."""
    out = 0
    for array in program.arrays:
        elements = 1
        with suppress(UnboundName, ArithmeticError):
            for dim in array.dims:
                elements *= int(evaluate(dim, {})) if dim is not None else 0
            out += elements * dtype(array.type).itemsize if roles is None or array.role in roles else 0
    return out


def require_disk(program: Program, ranks: int, out: Path) -> None:
    """Raises UsageError if what the set-up returns does not fit into the file system of `out`."""
    folder = next((folder for folder in out.absolute().parents if folder.is_dir()), Path("/"))
    _require(program, ranks, least_bytes(program, SET_ROLES), shutil.disk_usage(folder).free, f"free in {folder}")


def require_memory(program: Program, ranks: int) -> None:
    """Raises UsageError if the arrays of so many ranks, which run on this host's processors, exceed its free memory."""
    each = least_bytes(program) + least_bytes(program, (Role.INOUT,))  # whose first values are kept
    with suppress(OSError):  # not on Linux
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found is not None:
            _require(program, ranks, each, int(found[1]) << 10, "of free memory")


def _require(program: Program, ranks: int, each: int, free: int, what: str) -> None:
    if ranks * each > free:
        factor, unit = (1e9, "GB") if ranks * each >= 1e9 else (1e6, "MB") if ranks * each >= 1e6 else (1e3, "kB")
        took = f"the arrays of {counted(ranks, 'rank')} take at least {ranks * each / factor:.3g} {unit}"
        params = ", ".join(f"{name}={value}" for name, value in program.param_values.items())
        help = f"give smaller sizes with -D ({params})" if params else "give fewer ranks with -n"
        raise UsageError(f"{took}, and there are {free / factor:.3g} {unit} {what}", help)

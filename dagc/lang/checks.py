"""Checks of the whole program, once it is lowered: reads of what is not written, declarations and ops without use,
states that runs hand on, what kernels add to, and races within a launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagc.base.source import Span
from dagc.cuda.lexer import indices_read, may_find_thread, words_of
from dagc.cuda.syntax import NotUnderstood
from dagc.cuda.text import additions_of, kernel_in
from dagc.ir import program as ir
from dagc.ir.enums import CodeLang, Mode, Role
from dagc.ir.linear import Facts
from dagc.ir.sym import Apply, Const, Fn, Sym, apply, show
from dagc.lang import ast
from dagc.lang.code import block_races
from dagc.lang.declarations import Declared
from dagc.lang.frames import GraphOut, Use
from dagc.lang.scope import PREDEFINED, Context, Report

# ---- reads and writes ----------------------------------------------------------------------------


def check_reads(ctx: Context, out: GraphOut, edges: Iterable[ir.Edge]) -> None:
    """An array that is empty at the start must be written before it is read (by any op, if the order is open)."""
    uses, explicit, doubtful = _in_order(out.uses, edges), out.explicit is not None, out.doubtful
    if out.any_doubtful:
        return
    written: dict[str, list[tuple[Sym, ...]]] = {}
    for use in uses if explicit else ():
        if use.mode is not Mode.IN:
            written.setdefault(use.storage.array.name, []).append(use.when)
    arrived = {name: list(writes) for name, writes in written.items()}
    for at, use in enumerate(uses):
        array = use.storage.array
        defined = array.role not in (None, Role.OUT) or ir.declared_name(array.name) in doubtful
        writes, arrivals = (known.setdefault(array.name, []) for known in (written, arrived))
        if use.mode is not Mode.OUT and not defined:
            if not _covered(use.when, writes, ctx.facts):
                below = (u for u in uses[at + 1 :] if _same_storage(u, use) and _writes_for(u, use))
                later = None if explicit else next(below, None)
                changed = use.mode is Mode.INOUT
                part = use.storage.region.part is not None
                what = f"`{use.storage.label}` is read"
                _report_undefined(ctx, what, array, use.span, writes, changed, later, part)
                writes.append(())
                arrivals.append(())
            elif arrivals != writes and not _covered(use.when, arrivals, ctx.facts):
                _warn_not_received(ctx, use, arrivals)
                arrivals.append(())
        if use.mode is not Mode.IN:
            writes.append(use.when)
            arrivals.append(use.arrives)


def _same_storage(use: Use, reader: Use) -> bool:
    """Whether both access the same array, and not two parts without bounds."""
    parts = use.storage.region.part, reader.storage.region.part
    return use.storage.array.name == reader.storage.array.name and (None in parts or parts[0] == parts[1])


def _writes_for(use: Use, reader: Use) -> bool:
    """Whether `use` writes what `reader`, another op above it, reads, and can be moved above it: it is not in another
    iteration of the same loop."""
    here = {span: value for value, span in reader.turns}
    return (
        use.mode is not Mode.IN
        and use.op != reader.op
        and all(here.get(span, value) == value for value, span in use.turns)
    )


def _in_order(uses: Sequence[Use], edges: Iterable[ir.Edge]) -> list[Use]:
    """The accesses in text order, but each after those of later ops from which edges of the program lead to its op."""
    first: dict[str, int] = {}
    places: dict[
        str, list[int]
    ] = {}  # of an op with what is inside, as the copies around an exchange: `halo.west.pack`
    for at, use in enumerate(uses):
        first.setdefault(use.op, at)
        words = use.op.split(".")
        for count in range(1, len(words) + 1):
            places.setdefault(".".join(words[:count]), []).append(at)
    before: dict[str, list[str]] = {}
    for edge in edges:
        if edge.completion:
            before.setdefault(edge.v.op, []).append(edge.u.op)
    order: dict[int, None] = {}
    done: set[str] = set()
    for at, use in enumerate(uses):
        path = [use.op]
        while path:
            done.add(path[-1])
            wanted = next((u for u in before.get(path[-1], ()) if u not in done), None)
            if wanted is not None:
                path.append(wanted)
                continue
            op = path.pop()
            if first.get(op, at) > at:
                order |= dict.fromkeys(places[op])
        order[at] = None
    return [uses[at] for at in order]


def _either(conditions: Iterable[tuple[Sym, ...]]) -> str:
    """The text of a disjunction of these conditions."""
    return " or ".join(dict.fromkeys(" && ".join(show(c, 1) for c in when) for when in conditions))


def _warn_not_received(ctx: Context, use: Use, arrivals: Sequence[tuple[Sym, ...]]) -> None:
    array = use.storage.array
    never = all(Const(False) in when for when in arrivals)
    where = "no rank receives anything into it" if never else f"only ranks with `{_either(arrivals)}` receive into it"
    message = f"`{use.storage.label}` is read, but {where}"
    help = "read it on these ranks only (`if`), write it on the others, or declare it `inout` and fill it in the set-up"
    ctx.report.warning("not-received", message, use.span, help, ((array.span, "declared here"),))


def _report_undefined(
    ctx: Context,
    what: str,
    array: ir.Array,
    span: Span,
    writes: Sequence[tuple[Sym, ...]],
    changed: bool = False,
    later: Use | None = None,
    part: bool = False,
) -> None:
    """`changed`: by the op that reads it. `later`: what writes it further down. `part`: a part without bounds."""
    message = f"{what} before any op writes it"
    first = "write it first" if later is None else f"move up `{later.op}`, which writes it"
    help = f"{first}, or declare it `in` or `inout` to fill it from the set-up"
    places = [(array.span, "declared here")]
    if changed:
        help = f"{help}; if this op only writes it, make the formal `out`"
        if part:
            help = f"{help}: `out {array.type.value}[*]`, or give the part bounds"
    if writes:
        message = f"{what}, but it is written only where `{_either(writes)}` holds"
        help = "write it where that does not hold too, or declare it `inout` to fill it from the set-up"
        for comm in ctx.comms.values():
            if (apply(Fn.GE, comm.rank, Const(0)),) in writes:
                help = f"{help}; if every rank is in `{comm.name}`, add `require {show(comm.colour)} >= 0`"
    elif later is not None:
        places.append((later.span, "written here"))
    ctx.report.error("undefined-read", message, span, help, tuple(places))


_MOST_CASES = 64  # that are told apart for one read


def _covered(when: tuple[Sym, ...], writes: Iterable[tuple[Sym, ...]], facts: Facts) -> bool:
    """Whether one of the writes happens on every rank on which the conditions `when` hold. If no single write covers
    all of these ranks, those on which a condition of a write holds and the others are examined separately."""
    known = list(dict.fromkeys(tuple(c for each in write for c in _conjuncts(each)) for write in writes))[::-1]
    cases = [(when, facts.given(when))]
    for _ in range(_MOST_CASES):
        if not cases:
            return True
        case, given = cases.pop()
        if any(all(_follows(c, case) or given.implies(c) for c in write) for write in known):
            continue
        condition = next((c for write in known if (c := _undecided(write, case, given)) is not None), None)
        if condition is None:
            return False
        for one in (condition, apply(Fn.NOT, condition)):
            cases.append(((*case, one), given.given((one,))))
    return False


def _conjuncts(condition: Sym) -> Iterator[Sym]:
    if isinstance(condition, Apply) and condition.fn is Fn.AND:
        for part in condition.args:
            yield from _conjuncts(part)
    elif condition != Const(True):
        yield condition


def _undecided(write: tuple[Sym, ...], case: tuple[Sym, ...], given: Facts) -> Sym | None:
    """A condition of the write that the case leaves open, without a negation; None where the case excludes it."""
    unknown = None
    for each in write:
        negation = next(iter(_operands(each, Fn.NOT)), apply(Fn.NOT, each))
        if negation in case or given.implies(negation):
            return None
        if not (_follows(each, case) or given.implies(each)):
            unknown = next(iter(_operands(each, Fn.NOT)), each)
    return unknown


def _follows(condition: Sym, when: Iterable[Sym]) -> bool:
    """Whether the condition, or each operand of a conjunction, is among those that hold."""
    if condition in when or any(_follows(condition, _operands(c, Fn.AND)) for c in when):
        return True
    operands = _operands(condition, Fn.AND)
    return bool(operands) and all(_follows(c, when) for c in operands)


def _operands(condition: Sym, fn: Fn) -> tuple[Sym, ...]:
    """The operands of an application of this function; none for other expressions."""
    return condition.args if isinstance(condition, Apply) and condition.fn is fn else ()


def check_verified(ctx: Context, verifies: Iterable[ir.Verify], uses: Sequence[Use]) -> None:
    """An array that is empty at the start is verified on all ranks, so all must write it."""
    for each in verifies:
        mine = [u for u in uses if u.storage.array.name == each.region.array and u.mode is not Mode.IN]
        writes = [u.when for u in mine]
        if mine and mine[0].storage.array.role in (None, Role.OUT) and not _covered((), writes, ctx.facts):
            array = mine[0].storage.array
            _report_undefined(ctx, f"`{array.name}` is verified", array, each.span, writes)


# ---- what has no use ------------------------------------------------------------------------------


def check_unused(ctx: Context, module_kernels: dict[str, ast.Kernel], declared: Declared, out: GraphOut) -> None:
    """Advise to drop declarations that are never used."""
    report, used = ctx.report, ctx.used
    for array in declared.arrays:
        help = "drop it, also where the set-up returns it" if array.role not in (None, Role.OUT) else "drop it"
        message = f"array `{array.name}` is never used"
        report.advise("unused-array", array.name not in used, message, array.span, help, _family(array.name))
    for part in declared.parts:
        message = f"part `{part.name}` is never used"
        report.advise("unused-part", part.name not in used, message, part.span, "drop it", _family(part.name))
    for scalar in declared.scalars:
        message, help = f"scalar `{scalar.name}` is never used", "drop it, also where the set-up returns it"
        report.advise("unused-scalar", scalar.name not in used, message, scalar.span, help, _family(scalar.name))
    for comm in declared.comms:
        message = f"communicator `{comm.name}` is never used"
        report.advise("unused-communicator", comm.name not in used, message, comm.span, "drop it", _family(comm.name))
    for name, kernel in module_kernels.items():
        message, help = f"kernel `{name}` is never called", "call it, or drop it"
        report.advise("unused-kernel", name not in out.called, message, kernel.name_span, help, (name,))
    for name, dag in out.dags.items():
        message, help = f"dag `{name}` is never called", f"write `x : dag {name}(...)`"
        report.advise("unused-dag", name not in out.called, message, dag.name_span, help, (name,))
        if name in out.called:
            ctx.reached.add((dag.span.file, dag.span.start, True))


def _family(display: str) -> tuple[str]:
    """The name of a declaration without its indices: of all that it declares."""
    return (display.partition("[")[0],)


def check_unused_values(ctx: Context, declared: Declared, codes: Iterable[ir.CodeText]) -> None:
    """Advise to drop params and tunes that no expression or code reads."""
    texts = [code.text for code in codes if code.text] + [ctx.sources[f.path].text for f in ctx.named.files]
    words = frozenset[str]().union(*map(words_of, texts))
    for param in declared.params:
        unused = param.name not in ctx.used and param.name not in words
        message = f"param `{param.name}` is never used"
        ctx.report.advise("unused-param", unused, message, param.span, "drop it", _family(param.name))
    for name, choice in ctx.choices.items():
        if name in PREDEFINED or "." in name:
            continue
        unused = name not in ctx.used and name.split("[")[0] not in words
        message = f"tune `{name}` has no effect"
        ctx.report.advise("unused-tune", unused, message, choice.span, "use it, or drop it", _family(name))


def check_unused_axes(report: Report, impls: Iterable[ir.Impl], codes: Iterable[ir.CodeText]) -> None:
    """Advise to drop the y or z of a block or grid that the code of the kernel never reads: all do the same along it.
    Not where other code may find the thread."""
    if any(may_find_thread(c.text) for c in codes if c.text):
        return
    for impl in impls:
        text = impl.code.text if impl.code is not None else None
        if impl.launch is None or text is None or (read := indices_read(text)) is None:
            continue
        message, help = next(_unused_axes(impl.launch, read), ("", ""))
        report.advise("unused-axis", bool(message), message, impl.launch.span, help)


def _unused_axes(launch: ir.Launch, read: Collection[str]) -> Iterator[tuple[str, str]]:
    """Message and help for each axis whose index the code does not read."""
    for what, sizes in (("block", launch.block), ("grid", launch.grid)):
        for axis, size in zip("yz", sizes[1:], strict=False):
            index = f"{'thread' if what == 'block' else 'block'}Idx.{axis}"
            if size != Const(1) and index not in read:
                message = f"the {what} has the size {show(size)} in {axis}, but the code never reads `{index}`"
                each = "threads" if what == "block" else "blocks"
                yield message, f"read it, or drop it from the {what}: all {each} along {axis} do the same work"


def check_unreachable(report: Report, ops: Iterable[ir.Op], out: GraphOut, live: set[str]) -> None:
    """Advise to drop ops whose results are unused. `live`: arrays that matter after the run. An op that writes no array
    is there for another effect."""
    reads: dict[str, set[str]] = {}
    writers: dict[str, list[str]] = {}
    writes: dict[str, set[str]] = {}
    for use in out.uses:
        if use.mode is not Mode.OUT:
            reads.setdefault(use.op, set()).add(use.storage.array.name)
        if use.mode is not Mode.IN:
            writers.setdefault(use.storage.array.name, []).append(use.op)
            writes.setdefault(use.op, set()).add(ir.declared_name(use.storage.array.name))
    ops = list(ops)
    for user, state in ((op.name, state) for op in ops if isinstance(op, ir.KernelOp) for state in op.states):
        reads.setdefault(user, set()).add(state.name)
        if state.mode is not Mode.IN:
            writers.setdefault(state.name, []).append(user)
    useful = {op.name for op in ops if isinstance(op, ir.CollectiveOp)}
    wanted = [*live, *(name for op in useful for name in reads.get(op, ()))]
    while wanted:
        for op in writers.pop(wanted.pop(), ()):
            if op not in useful:
                useful.add(op)
                wanted += reads.get(op, ())
    for one in ops:
        message = f"the result of op `{one.name}` is never used"
        unused = one.name not in useful and bool(writes.get(one.name))
        if not (isinstance(one, ir.CopyOp) and one.inserted):
            report.advise(
                "unreachable-op", unused, message, one.span, "use its result, or drop it", writes.get(one.name, ())
            )


# ---- states that runs hand on: where a run reads one, and where it leaves it ---------------------------


@dataclass(frozen=True, slots=True)
class _StateStep:
    """An op that computes one array of a family from others: `u[1]` from `u[0]`."""

    op: ir.Op
    sources: frozenset[str]
    target: str


def check_carried(report: Report, ops: Sequence[ir.Op], arrays: Iterable[ir.Array]) -> None:
    """Warn where the next run does not start from the newest state: `u[t % 2]` after an odd number of steps."""
    families: dict[tuple[str, object, object], list[ir.Array]] = {}
    for array in arrays:
        if "[" in array.name:
            families.setdefault((array.name.partition("[")[0], array.type, array.dims), []).append(array)
    states: dict[tuple[str, str], list[tuple[str, str]]] = {}
    spans = {op.name: op.span for op in ops}
    for family in families.values():
        stale = _stale(ops, family) if len(family) > 1 else None
        if stale is not None:
            first, last, oldest = stale
            states.setdefault((first.op.name, last.op.name), []).append((oldest, last.target))
    for (start, end), moved in states.items():
        reads, leaves = (", ".join(f"`{names[k]}`" for names in moved) for k in (0, 1))
        message = f"a run starts from {reads} and leaves its state in {leaves}: the next run starts from an older one"
        copies = ", ".join(f"`gpu copy({old}, {new})`" for old, new in moved)
        help = f"take a number of steps after which the state is in {reads}, or end the dag with {copies}"
        report.warning("stale-state", message, spans[end], help, ((spans[start], "the run starts here"),))


def _stale(ops: Sequence[ir.Op], family: Sequence[ir.Array]) -> tuple[_StateStep, _StateStep, str] | None:
    """The first and the last step of a run in a family, and the array that the first reads although a later one is
    newer; None if the next run starts from the newest, or from what no run changes."""
    names = {array.name for array in family}
    kept = {array.name for array in family if array.role is Role.INOUT}
    steps = list(_state_steps(ops, names))
    if not steps:
        return None
    first, last = steps[0], steps[-1]
    targets = {step.target for step in steps}
    if last.target in first.sources:
        return None
    states = sorted((first.sources & kept & targets) - _set_before(ops, first.op))
    return (first, last, states[0]) if states else None


def _state_steps(ops: Sequence[ir.Op], names: set[str]) -> Iterator[_StateStep]:
    for op in ops:
        accesses = [a for a in _kernel_or_copy(op) if a.region.array in names]
        written = {a.region.array for a in accesses if a.mode is not Mode.IN}
        read = frozenset(a.region.array for a in accesses if a.mode is Mode.IN) - written
        if read and len(written) == 1:
            yield _StateStep(op, read, next(iter(written)))


def _kernel_or_copy(op: ir.Op) -> tuple[ir.Access, ...]:
    """Of kernels and copies. Messages move borders of the state, and compute none."""
    if isinstance(op, ir.CopyOp):
        return ir.Access(op.dst, Mode.OUT), ir.Access(op.src, Mode.IN)
    return op.accesses if isinstance(op, ir.KernelOp) else ()


def _set_before(ops: Sequence[ir.Op], op: ir.Op) -> set[str]:
    """The arrays that a run overwrites as a whole before an op."""
    out: set[str] = set()
    for one in ops:
        if one is op:
            break
        whole = (a.region for a in _kernel_or_copy(one) if a.mode is Mode.OUT)
        out.update(r.array for r in whole if r.start is None and r.part is None)
    return out


# ---- additions --------------------------------------------------------------------------------------


def check_additions(report: Report, program: ir.Program) -> None:
    """What is declared `accumulate` must be added to by atomic operations of the GPU, and used in no other way."""
    files = {file.name: program.sources[file.path].text for file in program.files}
    for kernel in program.kernels:
        for number, formal in enumerate(kernel.formals):
            for impl in kernel.impls if formal.mode is Mode.ACCUMULATE else ():
                other = _beside_additions(impl, formal, number, files)
                if other:
                    message = f"`{kernel.name}` is to add to `{formal.name}` alone, but {other}"
                    help = "add by `atomicAdd` or `atomicSub`, without their values, or write `inout`"
                    span = impl.code.span if impl.code is not None else impl.span
                    report.error("no-addition", message, span, help, ((formal.span, "declared here"),))


def _beside_additions(impl: ir.Impl, formal: ir.Formal, number: int, files: Mapping[str, str]) -> str:
    """What an implementation does with a formal beside additions; "" if it does nothing else, as far as is known."""
    code = impl.code
    if code is None or code.lang is not CodeLang.CUDA:
        return "" if impl.device is ir.Device.GPU else "an implementation on the CPU does not add atomically"
    body, name = code.text, formal.name
    if body is None:
        text = next((text for text in files.values() if kernel_in(text, code.function or "") is not None), "")
        function = kernel_in(text, code.function or "")
        if function is None or number >= len(function.names):
            return ""
        body, name = text[function.begin : function.end], function.names[number]
    try:
        used = additions_of(body, name)
    except NotUnderstood:
        return "its text does not parse as CUDA C++"
    if used.other:
        return f"has `{used.other}`"
    return "" if used.adds or used.passed else "does not use it"


# ---- races ------------------------------------------------------------------------------------------


def warn_of_races(report: Report, program: ir.Program) -> None:
    """Warn about kernels in which a block writes what another block of the launch reads."""
    for op, impl, race in block_races(program):
        message = (
            f"a block of `{op.kernel}` writes `{race.write}` while another block of the launch reads `{race.read}`:"
            " the result depends on which comes first"
        )
        help = "write to another array, or split the kernel: blocks of one launch are not ordered"
        span = impl.code.span if impl.code is not None else impl.span
        report.warning("racing-blocks", message, span, help)

"""Wide accesses: a thread does V neighbours along x, with loads and stores of whole vectors.

Groups of V neighbours that take the same way are executed together (`lockstep`): a thread tests at its beginning that
all comparisons of the place along x have one outcome in its group. Other groups, at the ends of rows, and all where
arrays do not begin at vectors, execute the text as written, one neighbour after the other; in the latter case those are
a block apart, so that the threads of a warp access neighbouring elements. Where rows have other lengths than multiples
of V, which is known before the launch, and neighbours are few, there is a thread for each, as in the kernel as written.

Neighbours are threads of one launch without barriers between them, so the order among them is open in the text as
written too; a kernel that stores what a neighbour loads is refused all the same. Each lane keeps the order of its own
loads and stores, also of arrays that overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from dagc.cuda.lexer import words_of
from dagc.cuda.syntax import text_of
from dagc.forms.affine import NUMBER, coefficient, number_of, plus
from dagc.forms.lanes import GroupText, LanesAsked, alike_of, read_plainly, refusal_of, refuse_others, rewrite_by
from dagc.forms.lockstep import LaneNames, Lockstep, Multiple, are_multiples, multiples_in, shown_multiples
from dagc.forms.neighbours import Neighbours, NotAlike
from dagc.forms.text import NotInKernel, expression, factor_of, joined, threads_of
from dagc.forms.types import ALWAYS, Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import Impl, Kernel, Launch
from dagc.ir.sym import Const, Fn, Poly, Sym, apply


def _refuse_stores(alike: Neighbours) -> None:
    """Stores have to be at neighbouring elements, and no lane may load or store what another one stores."""
    stores = [s for s in alike.sites if s.store]
    if not stores:
        raise NotAlike("it stores nothing")
    for site in stores:
        if site.place is None:
            raise NotAlike(f"where `{text_of(site.node)}` is stored is not known", site.node)
        if number_of(coefficient(site.place, alike.along.place)) != 1:
            fix = f"thread {alike.along.letter} has to store element {alike.along.letter} + c of a row"
            raise NotAlike(f"neighbours do not store neighbouring elements by `{text_of(site.node)}`: {fix}", site.node)
    refuse_others(alike, stores, _own)


def _own(alike: Neighbours, site: Poly, store: Poly) -> bool:
    """Whether no lane stores what another one accesses: the places are the same, or V elements apart where rows have a
    multiple of V."""
    apart = plus(site, store, -1)
    number = number_of(apart)
    if number is not None:
        return number == 0 or abs(number) >= alike.lanes
    if coefficient(apart, alike.along.place) or int(apart.get(NUMBER, 0)) % alike.lanes:
        return False
    return multiples_in(apart, alike) is not None


# ---- writing ------------------------------------------------------------------------------------


# Threads of the kernel as written, for each of V. At odd rows of 13 kernels on an H200, threads for V neighbours took
# 0.65 to 1.16 times as long as threads for each from 4 million on, and 1.1 to 2.7 times below one million
# (benchmarks/results/2026-11-29-h200-odd-rows).
MANY = 1 << 20


def _text(of: GroupText, lockstep: Lockstep, needed: Sequence[Multiple], threads: str, ahead: int) -> str:
    """`needed`: what must be multiples of V for the launch to have a thread for V neighbours, unless there are MANY
    `threads` ("" if the kernel cannot know). `ahead`: for how many more neighbours it has threads."""
    lanes, names, own, shift = of.lanes, lockstep.names, lockstep.own, lockstep.shift
    body, block, rows = lockstep.written(), factor_of(of.block()), of.fresh("vectors")
    aligned = shown_multiples({**dict.fromkeys(needed), **lockstep.multiples}, lanes)
    aligned.append(f"dagc::aligned<{lanes}>({', '.join(lockstep.vectors)})")
    beyond, tests = of.tests(names.first, shift, LanesAsked.ANY if own else LanesAsked.ALL)
    before = f" - {shift}" if shift else ""
    lines = [
        f"// form.wide = {lanes}: {lanes} neighbours along x",
        f"const bool {rows} = {' && '.join(aligned)};",
        f"const long long {names.first} = {lanes}LL * blockIdx.x * {block} + {lanes} * threadIdx.x{before};",
    ]
    if own:
        bits = of.taking_part(names.first, shift, beyond)
        lines.append(f"const unsigned {own} = {bits};  // those inside a row")
        tests = [f"dagc::any<{lanes}>({own})", *tests]  # not after `first < n`, which would be read as a template
    together = f"if ({' && '.join([rows, *tests])}) {{"
    inside = bool(own) and shift <= ahead and of.is_whole()
    several, number = _one_by_one(of, needed, threads, f"{rows} ? 0 : " if inside else "")
    apart = f"({number} * blockIdx.x + {names.lane}) * 1LL"  # a grid as written has less than 2^31 blocks
    apart = apart if needed else f"({lanes}LL * blockIdx.x + {names.lane})"
    place = f"{apart} * {block} + threadIdx.x"
    place = place if inside else f"{rows} ? {names.first} + {names.lane} : {place}"
    done = f"{rows} && ({own} >> {names.lane} & 1)" if own and not inside else ""
    of = replace(of, rolled=bool(own))
    plain = [*several, *of.plain(of.alike.body, names, place, 0 if inside else shift, beyond, number, done)]
    if own and not inside:
        rest = f"if (!({rows} && dagc::all<{lanes}>({own}))) {{  // one by one"
        return "\n".join([*lines, rest, *plain, "}", together, *body, "}"])
    return "\n".join([*lines, together, *body, "} else {  // one by one", *plain, "}"])


def _groups(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> tuple[GroupText, Lockstep] | None:
    """The groups of an implementation and what they do together; None if it is not read."""
    reading = read_plainly(impl, around)
    if isinstance(reading, Refusal):
        return None
    of = GroupText(kernel, impl, alike_of(kernel, impl, around, reading, 0, lanes), lanes, 0, reading.beside)
    return of, _lockstep(of, LaneNames(of.fresh("first"), of.fresh("lane"), of.fresh))


@lru_cache(maxsize=256)
def ahead(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> int:
    """By how many places the first group of an implementation as written begins before 0, if all groups go together."""
    found = _groups(kernel, impl, around, lanes)
    return found[1].shift if found is not None and found[1].own and found[0].is_whole() else 0


def _one_by_one(of: GroupText, needed: Sequence[Multiple], threads: str, inside: str) -> tuple[list[str], str]:
    """How many neighbours a thread does one by one: what declares it, and its name. `inside`: how many where those
    inside rows are done together, `vectors ? 0 : `."""
    lanes = of.lanes
    if not needed and not inside:
        return [], str(lanes)
    group = of.fresh("group")
    if not needed:
        return [f"  const int {group} = {inside}{lanes};"], group
    are = " && ".join(shown_multiples(needed, lanes))
    if threads:
        are = f"{f'({are})' if '&&' in are else are} || {threads} >= {lanes * MANY}"
    return [f"  const int {group} = {inside}{f'({are})' if inside and '||' in are else are} ? {lanes} : 1;"], group


def _lockstep(of: GroupText, names: LaneNames) -> Lockstep:
    """The text of groups that go one way, with the shift that makes the first store a vector; where there are groups at
    the ends of all rows of which some neighbours go another way, of the others of these groups too. Only where the
    launch has three axes: at rows of 8192 that costs up to a tenth, as it takes registers, at rows of 384 it gains as
    much (benchmarks/results/2026-11-29-h200-row-ends)."""
    shift = next(int((s.place or {}).get(NUMBER, 0)) % of.lanes for s in of.alike.sites if s.store)
    beyond, _ = of.tests(names.first, shift)
    launch = of.impl.launch
    try:
        if launch is not None and len(launch.grid) > 2 and of.taking_part(names.first, shift, beyond):
            out = _together(of, names, shift, of.fresh("own"))
            if not _may_wrap(of, out.lines):
                return out
    except NotAlike:
        pass  # some of a group may not do what these do, whatever they have for numbers
    return _together(of, names, shift, "")


def _together(of: GroupText, names: LaneNames, shift: int, own: str) -> Lockstep:
    out = Lockstep(of.alike, of.lanes, names, of.types(), shift, own)
    out.block(of.alike.body.named_children, "  ")
    if not out.vectors:
        raise NotAlike("no load or store is of a row that begins at a vector")
    return out


_LONG = frozenset("long size_t ssize_t ptrdiff_t int64_t uint64_t".split())
_SHORT = frozenset("unsigned uint uint32_t uint16_t uint8_t ushort".split())


def _may_wrap(of: GroupText, lines: Sequence[str]) -> bool:
    """Whether a lane before the row may have an index that does not lead to the next lane's: below 0 in an unsigned
    type of 32 bits, in a sum of 64."""
    words = set(words_of(text_of(of.alike.body)))
    sizes = [f.type for f in of.kernel.formals if f.mode is None and f.type.is_integer and f.name in words]
    pointers = any(one.declarator.pointers for one in of.alike.variables.values())
    long = bool(words & _LONG) or pointers or any(type_.size > 4 for type_ in sizes)
    short = bool(words & _SHORT) or any(type_.is_unsigned and type_.size <= 4 for type_ in sizes)
    to_int = (
        line.split(" = ")[0].removeprefix("const ").startswith("int ")
        for line in map(str.strip, lines)
        if "unsigned(" in line
    )
    return long and (short or not all(to_int))


# ---- the form -----------------------------------------------------------------------------------


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    written = {lanes: _written(kernel, impl, around, lanes) for lanes in VALUES[1:]}
    good = [lanes for lanes, text in written.items() if isinstance(text, str)]
    return (AS_WRITTEN, *good) if good else next(r for r in written.values() if isinstance(r, Refusal))


@lru_cache(maxsize=64)
def _written(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
    reading = read_plainly(impl, around)
    if isinstance(reading, Refusal):
        return reading
    try:
        alike = alike_of(kernel, impl, around, reading, 0, lanes)
        _refuse_stores(alike)
        written = next(i for i in kernel.impls if i.name == impl.name)
        of = GroupText(kernel, impl, alike, lanes, 0, reading.beside)
        lockstep = _lockstep(of, LaneNames(of.fresh("first"), of.fresh("lane"), of.fresh))
        own, many = tuple(lockstep.multiples), _threads(kernel, written)
        needed = own if impl == written else _joined(kernel, written, around, lanes)
        threads = expression(many, kernel, written) if many is not None else ""
        return _text(of, lockstep, needed, threads, ahead(kernel, written, around, lanes))
    except (NotAlike, NotInKernel) as error:
        return refusal_of(error, reading)


@lru_cache(maxsize=256)
def _joined(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> tuple[Multiple, ...]:
    """What must be multiples of V for vectors of an implementation as written, whatever other forms make of it."""
    found = _groups(kernel, impl, around, lanes)
    return tuple(found[1].multiples) if found is not None else ()


def holds(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> Sym:
    """Rows are multiples of V, or there are so many that threads for V neighbours each fill the GPU too."""
    multiples = are_multiples(_joined(kernel, impl, around, lanes), lanes)
    threads = _threads(kernel, impl)
    if multiples == ALWAYS or threads is None:
        return multiples
    return apply(Fn.OR, multiples, apply(Fn.GE, threads, Const(lanes * MANY)))


def _threads(kernel: Kernel, impl: Impl) -> Sym | None:
    """Of the launch as written; None if the kernel cannot compute them."""
    try:
        threads = threads_of(impl.launch) if impl.launch is not None else None
        return threads if threads is not None and expression(threads, kernel, impl) else None
    except NotInKernel:
        return None


def launch(written: Launch, lanes: Sym) -> Launch:
    return joined(written, 0, lanes)


VALUES = (AS_WRITTEN, 2, 4)
WIDE = Form(
    "wide", "a thread does 2 or 4 neighbours along x, with vectors", VALUES, legal, rewrite_by(_written), launch,
    include="dagc/wide.hpp", holds=holds, ahead=ahead,
)  # fmt: skip

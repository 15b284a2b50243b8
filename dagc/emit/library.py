"""`emit_library`: a plan as a library with a C interface, for the application's own arrays and communicator."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from dagc.base.errors import DagcError, UsageError
from dagc.base.resources import __version__, resource
from dagc.cuda.lexer import KEYWORDS, is_global
from dagc.emit.common import Emission, emission, headers_for, records_of, sources_of_ops
from dagc.emit.iteration import CallStep, IterationView, RoundView, StepBuilder, iteration_view, round_view
from dagc.emit.layout import Layout
from dagc.emit.program import ArrayView, ProgramView, ValueView
from dagc.emit.render import CXX, Expressions, Names, cxx_string, place, render, tidy
from dagc.ir.enums import ElementType, Place, Role, Transport
from dagc.ir.plan import FAR, EmittedChoosers, Plan, Target
from dagc.ir.program import Action, Array, Devices, ExchangeOp, Graph, Scalar
from dagc.ir.sym import Sym, free, show
from dagc.ir.traversal import Traversal

# ---- names ----

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")  # with suffixes, a Fortran name: at most 63 characters


def library_name(program: str, name: str | None) -> str:
    """The name of the library, and the prefix of its functions. Raises UsageError if it cannot be one."""
    wanted = name if name is not None else program
    help = "give --name NAME: a letter, then at most 30 letters, digits and underscores"
    if not _NAME.fullmatch(wanted) or wanted.endswith("_"):
        raise UsageError(f"`{wanted}` cannot be the name of a library", help)
    if wanted in KEYWORDS | _KEYWORDS or wanted.lower() in ("dagc", "std", "mpi") or is_global(wanted):
        raise UsageError(f"`{wanted}` is a name of C, C++, CUDA, Python or dagc, so a library cannot have it", help)
    return wanted


# Keywords of C and Python, in addition to those of C++.
_KEYWORDS = frozenset(("restrict", *keyword.kwlist))
# Types of the C interface, which a member would redeclare, and the parameters of Python's `Instance`.
_INTERFACE_NAMES = frozenset(
    """int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
    self comm stream allocator mpi_takes_device_pointers nccl_comm""".split()
)
# What Python's `Instance.__init__` uses besides, and parameters for communicators would hide.
_CREATION_NAMES = frozenset(
    "ctypes create handle number options name one given values communicators setattr int".split()
)


def _interface_names(layout: Layout) -> dict[str, str]:
    """Of the values, arrays and communicators: in C and C++ members of three structures, in Python arguments of one
    function."""
    names, program = Names(_KEYWORDS | _INTERFACE_NAMES), layout.program
    given = [s.name for s in program.scalars], [a.name for a in program.arrays if a.role is not None]
    out = {name: names.new(name) for group in given for name in group}
    return out | {name: names.new(f"{name}.comm" if name in _CREATION_NAMES else name) for name in layout.comms}


# ---- data from the application ----

_C_TYPES = {
    ElementType.I8: "int8_t", ElementType.I16: "int16_t", ElementType.I32: "int32_t", ElementType.I64: "int64_t",
    ElementType.U8: "uint8_t", ElementType.U16: "uint16_t", ElementType.U32: "uint32_t", ElementType.U64: "uint64_t",
    ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool",
}  # fmt: skip
# Fortran has no unsigned integers: the same bytes are signed there.
_FORTRAN_TYPES = {
    ElementType.I8: "integer(c_int8_t)", ElementType.I16: "integer(c_int16_t)", ElementType.I32: "integer(c_int32_t)",
    ElementType.I64: "integer(c_int64_t)", ElementType.U8: "integer(c_int8_t)", ElementType.U16: "integer(c_int16_t)",
    ElementType.U32: "integer(c_int32_t)", ElementType.U64: "integer(c_int64_t)", ElementType.F32: "real(c_float)",
    ElementType.F64: "real(c_double)", ElementType.BOOL: "logical(c_bool)",
}  # fmt: skip
_CTYPES = {
    ElementType.F32: "c_float", ElementType.F64: "c_double", ElementType.BOOL: "c_bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InterfaceSizeView:
    """A value of the rank: its member in Program, and its name and types in the interface."""

    member: str
    name: str
    fortran: str
    c_type: str
    file_type: str
    file: str
    fortran_type: str
    ctypes_type: str
    comment: str


@dataclass(frozen=True, slots=True)
class ArgumentView:
    """An array of the application. `element` is the language's name of its type; `shape`, and `file` and `size`,
    which are for the example, are C++ texts."""

    member: str
    name: str
    fortran: str
    element: str
    c_type: str
    label: str
    shape: str
    place: str
    constant: bool
    written: bool
    file: str
    size: str
    comment: str


@dataclass(frozen=True, slots=True)
class CommunicatorView:
    """A communicator that the application may pass: its member in Program, its names in the interfaces, and its label
    as a C++ string. `colour` and `key` are C++ texts, in Program and, from `sizes`, in the example."""

    member: str
    name: str
    fortran: str
    label: str
    colour: str
    key: str
    in_example: tuple[str, str]
    comment: str


@dataclass(frozen=True, slots=True)
class VerifiedView:
    """An array that the example compares with the reference. `count`: the elements of which one number is compared, ""
    where they are compared themselves."""

    name: str
    label: str
    c_type: str
    file: str
    start: str
    count: str
    tolerance: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """The calls that name the ends of the messages of an exchange, numbered over the whole program."""

    names: tuple[str, ...]
    ends: tuple[CallStep, ...]


@dataclass(frozen=True, slots=True)
class EnqueueView:
    """The GPU ops of an iteration without host waits; None if it needs the host, for `reason`. `rounds`: those of
    several iterations, if they may overlap."""

    iteration: IterationView | None
    reason: str
    rounds: RoundView | None = None


@dataclass(frozen=True, slots=True)
class LibraryView:
    name: str
    space: str
    interface: str
    sizes: tuple[InterfaceSizeView, ...]
    comms: tuple[CommunicatorView, ...]
    arguments: tuple[ArgumentView, ...]
    elements: tuple[tuple[str, str], ...]  # types of elements of its arrays: the language's names, and those of C
    own: tuple[ArrayView, ...]  # memory of the library
    sides: tuple[ArrayView, ...]  # arrays of the application on the host that have a side on the device
    messages: MessageView
    enqueue: EnqueueView
    host_ops: bool
    takes_nccl: bool  # a communicator of the application, on every target
    most: str  # number of iterations of a repetition that ends by its condition
    verified: tuple[VerifiedView, ...]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A traversal without host waits (`dagc.space.enqueue`). `rounds`: one of several overlapping iterations, the
    positions in it of the waits for an earlier iteration, with how many before, and how many are in flight; None: an
    iteration starts when the previous one has ended. `private`: the arrays that each in flight has for itself."""

    iteration: Traversal
    rounds: tuple[Traversal, Mapping[int, int], int] | None = None
    private: tuple[str, ...] = ()


def emit_library(plan: Plan, name: str, enqueued: Enqueued | str) -> dict[str, str]:
    """File name -> text of everything of a library, runtime headers included.

    `enqueued`: the plan's traversal without host waits, or why there is none.
    Raises DagcError for what cannot be emitted yet.
    """
    if plan.program.devices != Devices():
        help = "drop `devices`, or compile a program"
        raise UsageError("a library has one GPU, and all cores that its application leaves it", help)
    if plan.program.orders_ranks:
        help = "drop it: the application may order the ranks of the communicator that it gives"
        raise UsageError("rank_order=neighbours: in a library the arrays belong to the ranks of the application", help)
    views = _emission(plan, enqueued)
    if updated := next((group.comment for group in views.program.groups if group.updates), None):
        why = f"`{updated}` is put by a kernel that updates what it sends, and an application may change one end of it"
        raise DagcError(why, "choose -D transport=peer for a library")
    view = _library_view(plan, name, views, enqueued)
    common = _common(plan, view, views)
    return {**_files(plan, view, _sources(plan, name, views, common), common), **records_of(plan)}


def _emission(plan: Plan, enqueued: Enqueued | str) -> Emission:
    return emission(plan, private=enqueued.private if isinstance(enqueued, Enqueued) else ())


def _common(plan: Plan, view: LibraryView, views: Emission) -> dict[str, object]:
    """The variables of the templates of a library."""
    own = {"library": view, "plans": (), "cuda": plan.target is Target.CUDA, "version": __version__}
    return {**views.common, **own, "namespace": view.space}


def _files(plan: Plan, view: LibraryView, sources: dict[str, str], common: dict[str, object]) -> dict[str, str]:
    """The interfaces in addition to the sources, and the headers that all of them include."""
    name = view.name
    example = tidy(render("library/example.cpp.j2", **common))
    headers = {
        f"src/include/{header}": path.read_text(encoding="utf-8")
        for header, path in headers_for((*sources.values(), example), plan.target).items()
    }
    return {
        **sources,
        f"include/{name}.h": tidy(render("library/interface.h.j2", **common)),
        f"include/{name}.hpp": tidy(render("library/interface.hpp.j2", **common)),
        f"fortran/{name}.f90": tidy(render("library/interface.f90.j2", **common)),
        f"python/{name}/__init__.py": tidy(render("library/interface.py.j2", **common), empty=2),
        f"python/{name}/_arrays.py": resource("templates/library/arrays.py").read_text(encoding="utf-8"),
        "example/main.cpp": example,
        "CMakeLists.txt": tidy(render("library/CMakeLists.txt.j2", **common)),
        f"cmake/{name}Config.cmake": tidy(render("library/config.cmake.j2", **common)),
        f"{name}.pc": tidy(render("library/pkgconfig.pc.j2", **common)),
        **headers,
    }


def _sources(plan: Plan, name: str, views: Emission, common: dict[str, object]) -> dict[str, str]:
    end = "cu" if plan.target is Target.CUDA else "cpp"
    out = {
        f"{name}.{end}": tidy(render("library/library.cpp.j2", iteration=views.iteration, **common)),
        "program.hpp": tidy(render("library/program.hpp.j2", **common)),
        **sources_of_ops(plan, views, common),
    }
    return {f"src/{file}": text for file, text in out.items()}


# ---- several plans ----


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan in a library of several. `label`: its directory below `plans`, and its name for users; `name`: that of its
    own library. `requires`: conditions that must hold on every rank, as C++ texts: the text of the program, and the
    condition."""

    number: int
    label: str
    name: str
    takes_nccl: bool
    requires: tuple[tuple[str, str], ...]


def plan_name(name: str, number: int) -> str:
    """The name of the library of one of several plans."""
    return f"{name}_plan{number}"


def emit_plans(
    plans: Sequence[tuple[str, Plan, Enqueued | str]], name: str, chooser: EmittedChoosers, names: Sequence[str]
) -> dict[str, str]:
    """File name -> text of a library that chooses among plans: `plans/LABEL/` is a library of each.

    `plans`: label, plan, and the arguments of `emit_library`, by the answer of `chooser`, which has one choice over
    scalars; `names`: those of its features. Raises UsageError if the plans take different arrays.
    """
    every = [_emission(plan, enqueued) for _, plan, enqueued in plans]
    libraries = [
        _library_view(plan, plan_name(name, k), views, enqueued)
        for k, ((_, plan, enqueued), views) in enumerate(zip(plans, every, strict=True))
    ]
    _, first, enqueued = plans[0]
    host = next((e for _, _, e in plans if isinstance(e, str)), None)
    view = _library_view(first, name, every[0], enqueued if host is None else host)
    view = replace(view, takes_nccl=any(one.takes_nccl for one in libraries))
    solves = first.program.until is not None
    view = replace(view, interface=_interface(name, view.sizes, view.comms, view.arguments, view.takes_nccl, solves))
    for (label, _, _), one in zip(plans, libraries, strict=True):
        if (one.sizes, one.arguments, one.comms) != (view.sizes, view.arguments, view.comms):
            raise UsageError(
                f"plans {plans[0][0]} and {label} have different arrays, values or communicators, which one library"
                " cannot have",
                "give every plan the same arrays with a role, or compile one plan: -D fixes decisions",
            )
    choice = _plan_choice(plans, libraries, view, chooser, names)
    common = {**_common(first, view, every[0]), **choice, "units": (), "folders": (), "links": ()}
    common |= {"openmp": False, "nccl": False, "namespace": ""}
    end = "cu" if first.target is Target.CUDA else "cpp"
    sources = {f"src/{name}.{end}": tidy(render("library/plans.cpp.j2", **common)), "src/chooser.h": chooser.source}
    out = _files(first, view, sources, common)
    for k, (label, plan, given) in enumerate(plans):
        out |= {f"plans/{label}/{file}": text for file, text in emit_library(plan, plan_name(name, k), given).items()}
    return out


_OURS = "sizes site rank ranks features choice answer chosen options sites far plans plan dagc comm failed before"


def _plan_choice(
    plans: Sequence[tuple[str, Plan, Enqueued | str]], libraries: Sequence[LibraryView], view: LibraryView,
    chooser: EmittedChoosers, names: Sequence[str],
) -> dict[str, object]:  # fmt: skip
    """The variables of the template."""
    program, (choice,) = plans[0][1].program, chooser.choices
    known, given = {s.name: s for s in program.scalars}, dict(zip(program.scalars, view.sizes, strict=True))
    ours = Names(_OURS.split())
    variable = {"rank": "rank", "ranks": "ranks"} | {s: ours.new(s) for s in known}

    text = Expressions(CXX, variable.__getitem__, {n for n, s in known.items() if s.type.is_float}).text
    asked: set[str] = set().union(*(free(f) for f in choice.features))
    views = []
    for k, ((label, plan, _), one) in enumerate(zip(plans, libraries, strict=True)):
        tested = [r.condition for r in plan.program.requires if free(r.condition) <= variable.keys()]
        asked = asked.union(*(free(r) for r in tested))
        requires = tuple((cxx_string(f"require {show(r)}"), text(r)) for r in tested)
        views.append(PlanView(k, label, one.name, one.takes_nccl, requires))
    scalars = (  # that the choice depends on: name in the interface, variable, and what it is computed with
        (given[s].name, variable[n], "double" if s.type.is_float else "std::int64_t")
        for n, s in known.items()
        if n in asked
    )
    features = [(n, text(f)) for n, f in zip(names, choice.features, strict=True)]
    out = {"plans": tuple(views), "plan_choice": choice, "features": features, "far": FAR}
    return {**out, "scalars": tuple(scalars)}


# ---- views ----


def _refuse_put(plan: Plan, given: Collection[str]) -> None:
    """Processes can map pages that the library has allocated, but not the memory of an application."""
    exchanges = (op for op in plan.program.comm_ops if isinstance(op, ExchangeOp) and op.put is not None)
    messages = (message for op in exchanges for message in op.messages if message.recv.array in given)
    if plan.target is Target.HOST and (message := next(messages, None)) is not None:
        raise UsageError(
            f"{place(plan.program, message)}other ranks cannot write `{message.recv.array}` of the application on the"
            " host target",
            "choose another --transport, or receive in an array of the library, without `in`, `out` and `inout`",
        )


def _library_view(plan: Plan, name: str, views: Emission, enqueued: Enqueued | str) -> LibraryView:
    layout, steps, program = views.layout, views.steps, views.program
    arrays = {a.name: a for a in plan.program.arrays}
    declared = dict(zip(arrays, program.arrays, strict=True))
    given = [n for n, a in arrays.items() if a.role is not None]
    _refuse_put(plan, given)
    names = _interface_names(layout)
    values = zip(plan.program.scalars, program.values, strict=True)
    fortran = _fortran_names([names[s.name] for s in plan.program.scalars])
    sizes = tuple(_size(layout, scalar, view, names, fortran) for scalar, view in values)
    fortran = _fortran_names([names[n] for n in given])
    arguments = tuple(_argument(layout, arrays[n], declared[n], names, fortran) for n in given)
    comms = tuple(_communicators(layout, names))
    own = tuple(declared[n] for n, a in arrays.items() if a.role is None)
    elements = dict.fromkeys(arrays[n].type for n in given)
    takes_nccl = Transport.NCCL in layout.kinds
    return LibraryView(
        name=name,
        space=f"{name}_library",
        interface=_interface(name, sizes, comms, arguments, takes_nccl, plan.program.until is not None),
        sizes=sizes,
        comms=comms,
        arguments=arguments,
        elements=tuple((t.value, _C_TYPES[t]) for t in elements),
        own=(*own, *program.scratch, *program.staging),
        sides=tuple(declared[n] for n in given if arrays[n].place is Place.ANY),
        messages=_messages(layout, steps),
        enqueue=_enqueue(plan.graph, enqueued, views),
        most=show(plan.program.repeat) if plan.program.repeat is not None else "",
        verified=_verified(layout, program, names),
        takes_nccl=takes_nccl,
        host_ops=any(not op.gpu and op.action is not Action.END for op in plan.graph.ops),
    )


def _size(
    layout: Layout, scalar: Scalar, view: ValueView, names: dict[str, str], fortran: dict[str, str]
) -> InterfaceSizeView:
    name = names[scalar.name]
    ctypes_type = _CTYPES.get(scalar.type, f"c_{_C_TYPES[scalar.type].removesuffix('_t')}")
    return InterfaceSizeView(
        layout.member[scalar.name], name, fortran[name], _C_TYPES[scalar.type], view.file_type, view.file,
        _FORTRAN_TYPES[scalar.type], ctypes_type, f"{scalar.name} : {scalar.type.value}",
    )  # fmt: skip


def _argument(
    layout: Layout, array: Array, view: ArrayView, names: dict[str, str], fortran: dict[str, str]
) -> ArgumentView:
    name = names[array.name]
    dims = ", ".join("*" if d is None else show(d) for d in array.dims)
    constant, label = array.role in (Role.CONST, Role.IN), cxx_string(array.name)
    place = {Place.DEVICE: "", Place.PINNED: ", page-locked", Place.HOST: ", host", Place.ANY: ", host"}[array.place]
    return ArgumentView(
        member=layout.member[array.name],
        name=name,
        fortran=fortran[name],
        element=array.type.value,
        c_type=_C_TYPES[array.type],
        label=label,
        shape="{" + ", ".join("dagc::open_length" if d is None else layout.size(d, label) for d in array.dims) + "}",
        place=array.place.value,
        constant=constant,
        written=not constant,
        file=view.file,
        size=" * ".join(f"({_in_example(layout, names, d)})" for d in array.dims if d is not None) or "1",
        comment=f"{array.name} : {array.type.value}[{dims}]{place}, {array.role.value if array.role else ''}",
    )


def _communicators(layout: Layout, names: dict[str, str]) -> Iterator[CommunicatorView]:
    fortran = _fortran_names([names[c.name] for c in layout.program.comms], _FORTRAN_OPTIONS)
    for comm in layout.program.comms:
        colour, key = (layout.text(e) for e in (comm.colour, comm.key))
        in_example = (_in_example(layout, names, comm.colour), _in_example(layout, names, comm.key))
        name = names[comm.name]
        label, component = cxx_string(comm.name), fortran[name]
        yield CommunicatorView(layout.comms[comm.name], name, component, label, colour, key, in_example, comm.text)


_FORTRAN_OPTIONS = ("stream", "allocator", "mpi_takes_device_pointers", "nccl_comm")
_FORTRAN_LENGTH = 60  # the standard allows 63


def _fortran_names(members: Sequence[str], reserved: Sequence[str] = ()) -> dict[str, str]:
    """The names of components, for the members of a structure in C: Fortran ignores case and allows no leading
    underscore. Where several members would be equal, and for long ones, a digest of the member follows."""
    plain = {m: m.lower() if m[0].isalpha() else f"v{m.lower()}" for m in members}
    common = Counter((*plain.values(), *reserved))
    out = {}
    for member, name in plain.items():
        apart = name in reserved or len(name) > _FORTRAN_LENGTH or (common[name] > 1 and name != member)
        digest = sha256(member.encode()).hexdigest()[:8]
        out[member] = f"{name[: _FORTRAN_LENGTH - 9]}_{digest}" if apart else name
    return out


def _in_example(layout: Layout, names: dict[str, str], expr: Sym) -> str:
    """A size or a place in an array, from the values of the rank."""

    def name(variable: str) -> str:
        comm, _, member = variable.rpartition(".")
        if comm in names and member in ("rank", "ranks"):
            return f"{member}_of_{names[comm]}"
        type_ = "double" if variable in layout.reals else "std::int64_t"
        return f"static_cast<{type_}>(sizes.{names[variable]})" if variable in names else variable

    return Expressions(CXX, name, layout.reals).text(expr)


def _verified(layout: Layout, view: ProgramView, names: dict[str, str]) -> tuple[VerifiedView, ...]:
    """Those of the application's arrays after one run."""
    out = []
    for declared, v in zip(layout.program.verifies, view.verifies, strict=True):
        array = layout.arrays[declared.region.array]
        if array.role is None or declared.runs > 1:
            continue
        extent = layout.extent_sym(declared.region)
        name, given = names[array.name], [f"({_in_example(layout, names, size)})" for size in extent or ()]
        start, count = given or ("0", f"arrays.{name}.size")
        tolerance, count = f"dagc::Tolerance{v.tolerance}", count if declared.of else ""
        out.append(VerifiedView(name, v.name, _C_TYPES[array.type], v.file, start, count, tolerance))
    return tuple(out)


def _interface(
    name: str,
    sizes: tuple[InterfaceSizeView, ...],
    comms: tuple[CommunicatorView, ...],
    arguments: tuple[ArgumentView, ...],
    nccl: bool,
    solves: bool,
) -> str:
    """A hash of the interface, by which programs compiled with another header are refused."""
    given = [(s.name, s.c_type) for s in sizes], [(a.name, a.element, a.place) for a in arguments]
    text = repr((4 if solves else 3, nccl, name, *given, *(c.name for c in comms)))
    return f"0x{sha256(text.encode()).hexdigest()[:15]}"


def _messages(layout: Layout, steps: StepBuilder) -> MessageView:
    names: list[str] = []
    ends: list[CallStep] = []
    on = ""
    for op in layout.program.comm_ops:
        if op.messages and op.comm != on:
            on = op.comm
            ends.append(CallStep("on", f"&{layout.on(on)}.members" if on else "nullptr"))
        ends += steps.ends(op, [steps.tag(op.name, k) for k in range(len(op.messages))])
        names += [cxx_string(f"`{op.name}.{m.label}`" if m.label else f"`{op.name}`") for m in op.messages]
    return MessageView(tuple(names), tuple(ends))


def _enqueue(graph: Graph, enqueued: Enqueued | str, views: Emission) -> EnqueueView:
    if isinstance(enqueued, str):
        return EnqueueView(None, enqueued)
    steps = views.in_flight or views.steps
    rounds = round_view(graph, *enqueued.rounds, steps) if enqueued.rounds is not None else None
    return EnqueueView(iteration_view(graph, enqueued.iteration, views.steps, False, views.folded), "", rounds)

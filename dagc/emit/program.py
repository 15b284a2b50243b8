"""Views of `program.hpp` (members, loading, checks of sizes, comparisons), and the program that selects a plan."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagc.base.errors import DagcError, UsageError
from dagc.emit.iteration import CallStep, Step, StepBuilder, titled_kernel
from dagc.emit.kernels import Functions, asks_hardware
from dagc.emit.layout import Layout, OpScratch, ops_in_words, product, value_type
from dagc.emit.render import CXX, Expressions, Names, cxx_string, cxx_value, place, render, tidy
from dagc.forms import kernel_of
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.choice import VARIANT, own_name, qualified, site_of
from dagc.ir.constraints import alike, may_not_hold
from dagc.ir.enums import Pairs, Place, Role, Transport
from dagc.ir.names import data_file
from dagc.ir.plan import (
    FAR,
    MEASURED,
    ChoiceCall,
    EmittedChoosers,
    Features,
    answers_of,
    feature_variable,
    first_features,
    memory_parts,
    needed_features,
    users_of,
    values_of,
    variant_number,
    variants_of,
)
from dagc.ir.regions import certain_regions, conditional_regions
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, show, substitute

ROLES = {Role.CONST: "constant", Role.IN: "in", Role.OUT: "out", Role.INOUT: "inout", None: "scratch"}


@dataclass(frozen=True, slots=True)
class ValueView:
    member: str
    type: str
    file_type: str
    file: str
    comment: str


@dataclass(frozen=True, slots=True)
class ArrayView:
    """`file` is "" for arrays that the program fills; texts are C++, quotes included."""

    member: str
    type: str
    name: str
    file: str
    shape: str
    place: str
    role: str
    comment: str
    gpu: int = 0  # which one has it


@dataclass(frozen=True, slots=True)
class RequestView:
    """`self_copies`: the member that copies messages of this rank to itself."""

    member: str
    self_copies: str
    comment: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """An exchange on the GPU, the calls that name the ends of its messages, and the member that connects its ranks.
    `kind` begins the name of its class: `Peer`. `updates`: the numbers of messages of kernels that update what they
    send."""

    kind: str
    member: str
    ends: tuple[CallStep, ...]
    updates: tuple[int, ...]
    comm: str
    comment: str


@dataclass(frozen=True, slots=True)
class InFlightView:
    """What iterations in flight have each for themselves: arrays, and the groups that move them, with the members that
    hold the copies of all but the first."""

    arrays: tuple[tuple[str, ArrayView], ...]
    groups: tuple[tuple[str, GroupView], ...]


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """What connects the ranks of groups of one transport and communicator. `opens`: the call, "" if none needs it."""

    kind: str
    member: str
    opens: str


@dataclass(frozen=True, slots=True)
class CommView:
    """A communicator: its member, its name as a C++ string, and the C++ texts of colour and key."""

    member: str
    name: str
    colour: str
    key: str
    comment: str


@dataclass(frozen=True, slots=True)
class VerifyView:
    array: str
    name: str
    file: str
    start: str
    count: str
    tolerance: str
    runs: int = 1


@dataclass(frozen=True, slots=True)
class TunableView:
    """A launch parameter, or a variant, set when the program runs; `name` is a C++ string. `below`: exclusive upper
    bound of its value, 0 without one."""

    member: str
    name: str
    default: str
    comment: str
    below: int = 0


@dataclass(frozen=True, slots=True)
class FeatureView:
    """A number that is computed from the arrays: its member, the arrays that are copied for it, and the call. `name`: a
    C++ string, for messages. The program computes it when it is first needed, and only the first of equal features;
    `asked`: used for a choice; `early`: needed before the first run in any case."""

    number: int
    variable: str
    name: str
    copies: tuple[tuple[str, str], ...]  # variable, arguments of dagc::Elements
    call: CallStep
    wanted: bool  # used by the program itself: for a choice, a size or a `require`
    asked: bool
    early: bool


@dataclass(frozen=True, slots=True)
class PreparationView:
    """The preparation of an op's implementation before the first run, once the features are known: scratch, and the
    steps that fill it. It may be shared by several ops.

    `names`: C++ strings, of each op and its variant. `when`: C++ text of the condition under which a rank runs it, ""
    for always. `features`: those that it needs, by number.
    """

    number: int
    names: tuple[str, ...]
    title: str
    when: str
    arrays: tuple[ArrayView, ...]
    steps: tuple[Step, ...]
    streamed: bool
    waits: bool  # until the scratch is allocated, since later work is on another stream
    features: tuple[int, ...]

    @property
    def sized(self) -> tuple[ArrayView, ...]:
        """The arrays whose sizes need no feature."""
        return tuple(a for a in self.arrays if not _measured(a.shape))


_NEVER = 1e300  # runs


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """`op` is a C++ string, `features` texts of doubles; `members` receive the values for the answer. `warning`: the
    arguments of `far_sizes` before and after the factor, empty without measurements. `payoffs` as in the call, known or
    not. `voted`: all ranks take one answer. `requires`: pairs of conditions, of which the second must hold if the first
    does, with the text of the second. `needs`: the further features, by number, that a variant needs, by its number;
    `variant`: the index of the variant in an answer."""

    call: ChoiceCall
    op: str
    features: tuple[str, ...]
    members: tuple[str, ...]
    warning: tuple[str, str] | None
    payoffs: tuple[tuple[float, float], ...]
    voted: bool
    requires: tuple[tuple[str, str, str], ...]
    needs: tuple[tuple[int, tuple[int, ...]], ...]
    variant: int
    placed: bool


@dataclass(frozen=True, slots=True)
class PlacedView:
    """An op that is placed with the others. `name`: a C++ string. `side`: the only one where it can run, "" if it is
    chosen: then `choice` is the number of the choice, `predict` its C function, `variant` the index of the variant in
    an answer, and `sides` those of the variants by number."""

    number: int
    name: str
    side: str
    choice: int = -1
    predict: str = ""
    variant: int = 0
    sides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedValueView:
    """The result of one write of an array: the ops by number; `producer` is -1 for the set-up."""

    array: str
    producer: int
    readers: tuple[int, ...]
    ends_on_host: bool


@dataclass(frozen=True, slots=True)
class PlacementView:
    """How the ops are placed together; `transfers`, from each side to each, are C++ texts: latency, bandwidth."""

    transfers: tuple[tuple[str, ...], ...]
    ops: tuple[PlacedView, ...]
    values: tuple[PlacedValueView, ...]


@dataclass(frozen=True, slots=True)
class SidesView:
    """An array between whose sides the program copies when it runs; `given` and `ends` are enumerators."""

    member: str
    array: str
    type: str
    given: str
    ends: str


@dataclass(frozen=True, slots=True)
class ProgramView:
    """`gpus`, `sockets`: how many a rank has; `needed`: how many of each must be there."""

    gpus: int
    sockets: int
    needed: tuple[int, int]
    hardware: bool
    values: tuple[ValueView, ...]
    arrays: tuple[ArrayView, ...]
    sides: tuple[SidesView, ...]
    pageable: bool  # whether the host sides of `any` arrays are not page-locked
    early: bool  # whether results of ops are copied to the other side immediately
    scratch: tuple[ArrayView, ...]
    staging: tuple[ArrayView, ...]
    requests: tuple[RequestView, ...]
    comms: tuple[CommView, ...]
    host_comms: tuple[CommView, ...]
    connections: tuple[ConnectionView, ...]
    sends: tuple[CallStep, ...]  # by which the ranks are ordered
    hosts: tuple[str, ...]  # C++ texts of what finds the ranks of this host: the program, communicators
    groups: tuple[GroupView, ...]
    checks: tuple[CallStep, ...]
    alike: tuple[CallStep, ...]  # what the ranks of a collective must have alike
    measured_checks: tuple[CallStep, ...]  # those of features
    preparations: tuple[PreparationView, ...]
    verifies: tuple[VerifyView, ...]
    tunables: tuple[TunableView, ...]
    features: tuple[FeatureView, ...]
    choices: tuple[ChoiceView, ...]
    placement: PlacementView | None
    mode: Features
    worker_calls: bool  # whether worker threads run ops on the CPU
    may_lack_gpu: bool  # every op may run on the CPU, and the variants are chosen before the first run
    in_flight: InFlightView | None = None

    @property
    def switches(self) -> bool:
        """Whether the choices are made during the first runs, which use the defaults."""
        return self.mode is Features.BESIDE

    @property
    def least_runs(self) -> float:
        """The number of remaining runs from which a choice pays; larger than any count if it never pays."""
        return min(_NEVER, *(choice.call.least for choice in self.choices))

    @property
    def wants_features(self) -> bool:
        """Whether the program itself needs features."""
        return any(f.wanted for f in self.features)

    @property
    def at_once(self) -> bool:
        """Whether features are computed at the same time."""
        return self.computes and self.mode in (Features.PARALLEL, Features.ASYNC)

    @property
    def beside(self) -> bool:
        """Whether they are computed during the first ops."""
        return self.computes and self.mode is Features.ASYNC

    @property
    def computes(self) -> bool:
        """Whether the program itself needs features before its first run."""
        return any(f.early for f in self.features)

    @property
    def unsized(self) -> bool:
        """Whether there is scratch whose size depends on features."""
        return any(len(p.sized) < len(p.arrays) for p in self.preparations)

    @property
    def starts(self) -> bool:
        """Whether further work follows once the arrays are loaded."""
        return bool(self.computes or self.measured_checks or self.choices or self.preparations)

    @property
    def prepared(self) -> tuple[tuple[str, int], ...]:
        """Names of the ops with each variant that needs a preparation, and its number."""
        return tuple((name, one.number) for one in self.preparations for name in one.names)

    @property
    def prepares_on_stream(self) -> bool:
        return any(p.streamed for p in self.preparations)

    @property
    def first_streams(self) -> str:
        """The number of streams when the arrays are loaded: those of the iteration, and one for preparations."""
        return "std::max<std::size_t>(streams, 1)" if self.prepares_on_stream else "streams"


def program_view(layout: Layout, steps: StepBuilder, chooser: EmittedChoosers | None = None) -> ProgramView:
    """Raises DagcError if an array's size cannot be determined."""
    program = layout.program
    checks = tuple(dict.fromkeys(_checks(layout, steps)))
    arrays, scratch = tuple(_array(layout, a) for a in program.arrays), tuple(_scratch(layout))
    preparations = tuple(_preparations(layout, steps))
    shapes = (a.shape for a in (*arrays, *scratch, *(a for p in preparations for a in p.arrays)))
    asked = {name for c in (chooser.choices if chooser else ()) for f in c.features for name in sym.free(f)}
    wanted = asked | {f.name for op in layout.kernel_ops for f in needed_features(program, op)}
    placement = _placement(layout, chooser) if chooser is not None and chooser.placement is not None else None
    together = {op.choice for op in placement.ops} if placement is not None else set()
    calls = enumerate(chooser.choices if chooser is not None else ())
    choices = tuple(_choice(layout, c, chooser is None or chooser.constraints, i in together) for i, c in calls)
    tests = (test for choice in choices for _, test, _ in choice.requires)
    beside = chooser is not None and chooser.mode is Features.BESIDE
    early = first_features(program, layout.opened, chooser)
    return ProgramView(
        gpus=program.devices.gpus,
        sockets=program.devices.sockets,
        needed=_needed_devices(program),
        hardware=any("p.hardware." in text for text in (*(c.args for c in checks), *shapes, *tests))
        or any(asks_hardware(program, op) for op in layout.kernel_ops),
        values=tuple(_value(layout, scalar) for scalar in program.scalars),
        arrays=arrays,
        sides=tuple(_sides(layout)),
        pageable=program.chose(ir.HostMemory.PAGEABLE),
        early=program.chose(ir.TransferTiming.EARLY) and bool(layout.sides),
        scratch=scratch,
        staging=tuple(_staging(layout)),
        requests=tuple(_requests(layout)),
        comms=tuple(_comms(layout, program.comms)),
        host_comms=tuple(_comms(layout, program.host_comms)),
        connections=tuple(_connections(layout)),
        sends=tuple(_sends(layout)) if program.orders_ranks else (),
        hosts=tuple(dict.fromkeys(layout.on(op.comm) for op in layout.graph.ops if _of_pairs(op))),
        groups=tuple(_groups(layout, steps)),
        checks=tuple(c for c in checks if not _measured(c.args)),
        alike=tuple(_alike(layout)),
        measured_checks=tuple(c for c in checks if _measured(c.args)),
        preparations=preparations,
        verifies=tuple(_verifies(layout)),
        tunables=tuple(_tunables(layout)),
        features=tuple(_features(layout, steps.functions, (wanted, asked, early), beside)),
        choices=choices,
        placement=placement,
        mode=chooser.mode if chooser is not None else Features.NOW,
        worker_calls=any(op.worker for op in layout.kernel_ops),
        may_lack_gpu=(chooser is not None or not layout.opened.every) and not beside and _may_lack_gpu(layout),
    )


def in_flight_view(steps: StepBuilder) -> InFlightView:
    """`steps`: of one of several iterations."""
    layout = steps.layout
    arrays = tuple((copies, _array(layout, layout.arrays[name])) for name, copies in layout.private.items())
    groups = zip(layout.private_groups.values(), _groups(layout, steps), strict=True)
    return InFlightView(arrays, tuple(groups))


def _needed_devices(program: ir.Program) -> tuple[int, int]:
    """How many GPUs, and sockets, ops use whose device is not open."""
    fixed = [op for op in program.kernel_ops if not op.placed and op.unit]
    units = {device: [op.unit for op in fixed if op.device is device] for device in ir.Device}
    return 1 + max(units[ir.Device.GPU], default=-1), max(units[ir.Device.CPU], default=0)


def _value(layout: Layout, scalar: ir.Scalar) -> ValueView:
    member, file = layout.member[scalar.name], cxx_string(data_file(scalar.name))
    return ValueView(member, value_type(scalar), scalar.type.cxx, file, f"{scalar.name} : {scalar.type.value}")


def _may_lack_gpu(layout: Layout) -> bool:
    """Whether each op on a stream runs on the CPU, or is a placed op with a CPU implementation that may be chosen."""
    ops = [op.op for op in layout.graph.ops if op.gpu]
    if not all(isinstance(op, ir.KernelOp) and (op.placed or op.device is ir.Device.CPU) for op in ops):
        return False
    every = (layout.opened.ops(layout.program, op) for op in ops if isinstance(op, ir.KernelOp))
    return bool(ops) and all(any(one.device is ir.Device.CPU for one in several) for several in every)


def _requests(layout: Layout) -> Iterator[RequestView]:
    for member, op in layout.request_members():
        on = layout.on(op.comm).removeprefix("p").removeprefix(".")
        yield RequestView(member, f"{on}.self_copies" if on else "self_copies", op.name)


def _sends(layout: Layout) -> Iterator[CallStep]:
    """What a rank sends in the exchanges of all ranks, as far as the values and files of its data say."""
    for op in (op for op in layout.program.ops if isinstance(op, ir.ExchangeOp) and not op.comm):
        for message in op.messages:
            array, when = layout.arrays[message.send.array], message.when
            if isinstance(message.to, str):
                names = (message.to, message.send_counts or "")
                files = [f"dagc::load_npy(store.path({cxx_string(data_file(name))}))" for name in names]
                call = CallStep("ordered.sends", f"{', '.join(files)}, {array.type.size}")
            else:
                count = _size(layout, message.send)
                text = f"dagc::npy_header(store.path({cxx_string(data_file(array.name))})).elements()"
                text = text if isinstance(count, str) else f"({layout.text(count)})"
                call = CallStep("ordered.sends", f"{layout.text(message.to)}, {text} * {array.type.size}")
            yield from _under(layout, when, (call,))


def _groups(layout: Layout, steps: StepBuilder) -> Iterator[GroupView]:
    updated: dict[str, set[int]] = {}
    for put in (put for op in layout.graph.ops if op.kernel is not None for put in op.kernel.puts if put.updates):
        updated.setdefault(layout.group(put.exchange), set()).update(put.messages)
    for member, op in layout.group_members():
        assert isinstance(op.op, ir.ExchangeOp | ir.CollectiveOp)
        comm = layout.connections[op.transport, op.comm]
        updates = tuple(sorted(updated.get(layout.group(op.name), ())))
        yield GroupView(op.op.transport.value.capitalize(), member, steps.parts(op.op), updates, comm, op.name)


def _connections(layout: Layout) -> Iterator[ConnectionView]:
    of = Counter(op.transport for _, op in layout.group_members())
    whole = {op.transport for _, op in layout.group_members() if not op.comm}
    # Groups on a stream run one after the other, and those of an iteration after those of the one before, also where
    # iterations overlap.
    at_once = 2 * layout.graph.streams
    for (kind, comm), member in layout.connections.items():
        assert kind is not None
        counts = f"{min(of[kind], at_once)}, {of.total() - of[kind]}"
        alike = [op for _, op in layout.group_members() if (op.transport, op.comm) == (kind, comm)]
        if alike and all(op.pairs is Pairs.WITHIN_HOST and _of_pairs(op) for op in alike):
            counts += ", true"
        opens = f"{member}.open(comm, {counts})" if kind in whole or kind is Transport.NCCL else ""
        if comm:
            opens = f"{member}.split({layout.connections[kind, '']}, comm, {layout.comms[comm]}, {counts})"
        yield ConnectionView(kind.value.capitalize(), member, opens)


def _of_pairs(op: ir.GraphOp) -> bool:
    """Whether it asks which ranks are on one host when messages are sent."""
    by_pair = isinstance(op.op, ir.ExchangeOp) or (isinstance(op.op, ir.CollectiveOp) and op.op.in_pairs)
    return by_pair and op.pairs is not Pairs.ALL


def _comms(layout: Layout, comms: Iterable[ir.Communicator]) -> Iterator[CommView]:
    for comm in comms:
        colour, key = (layout.text(e) for e in (comm.colour, comm.key))
        yield CommView(layout.comms[comm.name], cxx_string(comm.name), colour, key, comm.text)


def _tunables(layout: Layout) -> Iterator[TunableView]:
    """Each decision once, also where several variants have a tunable of its name."""
    ops = {op.site: op for op in layout.program.kernel_ops}
    seen = {}
    for t in layout.opened.every:
        own = ops[site_of(t.name)].answer == t.variant  # its default is the program's
        if t.name not in seen or own:
            seen[t.name] = t
    for name, t in seen.items():
        member, label = layout.tunable_member[name], cxx_string(name)
        if own_name(name) != VARIANT:
            yield TunableView(member, label, cxx_value(t.chosen), f"tunable {name}")
            continue
        op = ops[site_of(name)]
        every = variants_of(layout.program, op)
        numbers = ", ".join(f"{variant_number(layout.program, one)}: {one.answer}" for one in every)
        most = variant_number(layout.program, every[-1]) + 1
        default = str(variant_number(layout.program, op))
        yield TunableView(member, label, default, f"{name}, {numbers}", most)


def _measured(text: str) -> bool:
    """Whether C++ text depends on features."""
    return re.search(r"\bp\.feature_\w+\(\)", text) is not None


def _numbers(layout: Layout, ops: Iterable[ir.KernelOp]) -> tuple[int, ...]:
    """The features that the ops need, by number."""
    return tuple(sorted({layout.feature_numbers[f.name] for op in ops for f in needed_features(layout.program, op)}))


def _features(
    layout: Layout, functions: Functions, names: Sequence[Collection[str]], beside: bool
) -> Iterator[FeatureView]:
    """`names`: those that are wanted, asked, early. The first of equal features represents all."""
    sets = [{layout.feature_numbers[name] for name in some if name in layout.feature_numbers} for some in names]
    for number in range(len(functions.features)):
        wanted, asked, early = (number in some for some in sets)
        yield _feature(layout, functions, number, (wanted, asked, early), beside)


def _feature(
    layout: Layout, functions: Functions, number: int, when: tuple[bool, bool, bool], beside: bool
) -> FeatureView:
    """`when`: whether it is wanted, asked, early."""
    feature = functions.features[number]
    copies, arguments = [], []
    for formal, argument in functions.feature_arguments(feature):
        if isinstance(argument, ir.Region):
            if beside and layout.arrays[argument.array].role is not Role.CONST:
                raise UsageError(
                    f"op `{feature.op.name}`: a feature reads `{argument.array}`, which is not `const`: it may change"
                    " while the feature is computed concurrently with the program",
                    "declare it `const`, or compile with --features now",
                )
            extent = layout.extent(argument)
            copies.append((formal.name, f"{layout.array(argument.array)}, {extent.start}, {extent.count}"))
            arguments.append(formal.name)
        else:
            arguments.append(f"static_cast<{formal.type.cxx}>({layout.text(argument)})")
    call = CallStep(functions.feature_names[feature.name], ", ".join(arguments))
    own = feature.name.removeprefix(f"{MEASURED}{feature.op.name}.")
    name = cxx_string(f"feature `{own}` of op `{feature.op.name}` (kernel `{feature.op.kernel}`)")
    return FeatureView(number, layout.features[feature.name], name, tuple(copies), call, *when)


def _choice(layout: Layout, choice: ChoiceCall, constraints: bool, placed: bool) -> ChoiceView:
    """A call of the chooser: the features, the values that the answer sets, and a warning about sizes far outside."""
    variant = qualified(choice.op, VARIANT)
    voted = variant in choice.decisions
    warning = f"{FAR}, {cxx_string(choice.measured)}" + (', "the default is taken"' if voted else "")
    return ChoiceView(
        call=choice,
        op=cxx_string(choice.op),
        features=tuple(f"static_cast<double>({layout.text(f)})" for f in choice.features),
        members=tuple(layout.variable(name) for name in choice.decisions),
        warning=(cxx_string(choice.op), warning) if choice.measured else None,
        payoffs=choice.payoffs or ((1.0, 0.0),) * choice.answers,
        voted=voted,
        requires=tuple(_of_variants(layout, choice.op, constraints)),
        needs=tuple(_needs(layout, choice.op)) if voted else (),
        variant=choice.decisions.index(variant) if voted else 0,
        placed=placed,
    )


def _side(device: ir.Device, unit: int) -> str:
    """The C++ text of the memory that an op works in."""
    return f"gpu({unit})" if device is ir.Device.GPU else "on_host"


def _placement(layout: Layout, chooser: EmittedChoosers) -> PlacementView:
    """The ops that use two-sided arrays, and the values that they pass to one another."""
    assert chooser.placement is not None
    program = layout.program
    users = users_of(program)
    number = {op.name: i for i, op in enumerate(users)}
    ops = tuple(_placed(layout, chooser, number[op.name], op) for op in users)
    values = tuple(
        PlacedValueView(
            layout.array(v.array),
            -1 if v.producer is None else number[v.producer],
            tuple(dict.fromkeys(number[r] for r in v.readers)),
            v.ends_on_host,
        )
        for v in values_of(program)
    )
    transfers = tuple(
        tuple(", ".join(map(repr, time)) if a != b else "" for b, time in enumerate(row))
        for a, row in enumerate(chooser.placement.transfers)
    )
    return PlacementView(transfers, ops, values)


def _placed(layout: Layout, chooser: EmittedChoosers, number: int, op: ir.KernelOp) -> PlacedView:
    for i, choice in enumerate(chooser.choices):
        if op.placed and choice.op == op.site and choice.predict:
            answers = answers_of(layout.program, op)
            sides = tuple(_side(*ir.device_named(answer.partition(".")[0])) for answer in answers)
            variant = choice.decisions.index(qualified(choice.op, VARIANT))
            return PlacedView(number, cxx_string(op.name), "", i, choice.predict, variant, sides)
    return PlacedView(number, cxx_string(op.name), _side(op.device, op.unit))


def _needs(layout: Layout, site: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The variants of a site that need features, by number, and these."""
    of: dict[int, list[ir.KernelOp]] = {}
    for op in layout.kernel_ops:
        if op.site == site and layout.opened.variants(op):
            of.setdefault(variant_number(layout.program, op), []).append(op)
    for number, ops in of.items():
        if needed := _numbers(layout, ops):
            yield number, needed


def _of_variants(layout: Layout, site: str, constraints: bool) -> Iterator[tuple[str, str, str]]:
    """The `require`s of an op's open variants; without `constraints` only those on the memory."""
    for op in (op for op in layout.kernel_ops if op.site == site and layout.opened.variants(op)):
        env = layout.formals(op)
        for condition in kernel_of(layout.program, op)[1].requires:
            for part in (condition,) if constraints else memory_parts(condition):
                what, hidden = f"op {op.name}: variant {op.answer}: require", feature_variable(op, "")
                for test, text in _tested(layout, substitute(part, env), what, hidden):
                    yield layout.variant_is(op), test, text
        if op.placed and op.device is ir.Device.GPU:
            yield layout.variant_is(op), *_fits_device(layout, op)
        if op.placed and op.unit:
            has = f"p.{'further_gpus' if op.elsewhere else 'sockets'}.has({op.unit})"
            name = ir.device_name(op.device, op.unit)
            yield layout.variant_is(op), has, cxx_string(f"op {op.name}: {op.answer}: the rank has `{name}`")


def _fits_device(layout: Layout, op: ir.KernelOp) -> tuple[str, str]:
    """Whether the device holds the arrays that may be on either side (test and text in C++); without a GPU it has no
    memory."""
    sides = " + ".join(f"{layout.array(name)}.bytes()" for name in layout.sides) or "0"
    text = f"op {op.name}: {op.answer}: the arrays `on any` fit into the memory of a GPU"
    return f"static_cast<std::int64_t>({sides}) < p.hardware.memory", cxx_string(text)


def _shape(layout: Layout, dims: tuple[Sym | None, ...], name: str) -> str:
    return "{" + ", ".join("-1" if d is None else layout.size(d, name) for d in dims) + "}"


def _array(layout: Layout, array: ir.Array) -> ArrayView:
    loaded = array.role in (Role.CONST, Role.IN, Role.INOUT)
    if not loaded and None in array.dims:
        raise DagcError(f"array `{array.name}` is not in the set-up, so its size cannot be `*`", "declare its size")
    what = f"{array.name} : {array.type.value}[{', '.join('*' if d is None else show(d) for d in array.dims)}]"
    place = "" if array.place is Place.DEVICE else f" on {array.place.value}"
    role = f" {array.role.value}" if array.role is not None else ""
    return ArrayView(
        member=layout.member[array.name],
        type=array.type.cxx,
        name=cxx_string(array.name),
        file=cxx_string(data_file(array.name)) if loaded else "",
        shape=_shape(layout, array.dims, cxx_string(array.name)),
        place=array.place.value,
        role=ROLES[array.role],
        comment=f"{what}{place}{role}",
    )


_GIVEN = {Role.CONST: "on_both", Role.IN: "on_host", Role.INOUT: "on_host"}


def _sides(layout: Layout) -> Iterator[SidesView]:
    for name, member in layout.sides.items():
        array = layout.arrays[name]
        ends = "on_host" if array.role in (Role.OUT, Role.INOUT) else "anywhere"
        given = _GIVEN.get(array.role, "nowhere") if array.role is not None else "nowhere"
        yield SidesView(member, layout.member[name], array.type.cxx, given, ends)


def _scratch(layout: Layout) -> Iterator[ArrayView]:
    return (_scratch_array(layout, s) for op in layout.kernel_ops for s in layout.scratch(op) if not s.late)


def _scratch_array(layout: Layout, s: OpScratch) -> ArrayView:
    name = cxx_string(s.label)
    return ArrayView(
        member=s.member,
        type=s.type.cxx,
        name=name,
        file="",
        shape=_shape(layout, s.dims, name),
        place=s.place.value,
        role="prepared" if s.prepared else "scratch",
        comment=f"of {s.label}",
        gpu=s.gpu,
    )


def _preparations(layout: Layout, steps: StepBuilder) -> Iterator[PreparationView]:
    """First the preparations of single ops, then shared ones, at the first op that uses them."""
    number = 0
    for op in layout.kernel_ops:
        own = [s for s in layout.scratch(op) if s.late and not s.shared]
        shared = [s for s in layout.scratch(op) if s.shared]
        sharing = layout.converting(op)
        for arrays, ops in ((own, (op,)), (shared, sharing if op in sharing[:1] else ())):
            if arrays and ops:
                yield _preparation(layout, steps, number, arrays, ops)
                number += 1


def _preparation(
    layout: Layout, steps: StepBuilder, number: int, arrays: Sequence[OpScratch], ops: Sequence[ir.KernelOp]
) -> PreparationView:
    """The preparation of arrays that these ops need."""
    op, prepared = ops[0], any(s.prepared for s in arrays)
    beside = steps.mode is Features.BESIDE
    work = steps.preparation(op, "on") if prepared else ()
    conditions = [_chosen(layout, one) for one in ops]
    both = [f"({one})" for one in dict.fromkeys(conditions)] if len(set(conditions)) > 1 else conditions[:1]
    title = titled_kernel(op) if len(ops) == 1 else f"{ops_in_words(ops)}: {op.kernel}"
    return PreparationView(
        number=number,
        names=tuple(cxx_string(f"{one.name} {one.answer}") for one in ops),
        title=cxx_string(f"prepare of {title}"),
        when=" || ".join(both) if all(conditions) else "",
        arrays=tuple(_scratch_array(layout, s) for s in arrays),
        steps=work,
        streamed=op.device is ir.Device.GPU and bool(work),
        waits=op.device is ir.Device.GPU and (bool(work) or beside),
        features=_numbers(layout, (op,)),
    )


def _chosen(layout: Layout, op: ir.KernelOp) -> str:
    """C++ text: whether this rank runs the op, with this variant where it is open; "" for always."""
    conditions = [layout.variant_is(op)] if layout.opened.variants(op) else []
    conditions += [f"({layout.text(op.when)})"] if op.when is not None else []
    return " && ".join(conditions)


def _staging(layout: Layout) -> Iterator[ArrayView]:
    certain = set(certain_regions(layout.program))
    for buffer in layout.staging.values():
        count = layout.extent(buffer.region).count
        yield ArrayView(
            member=buffer.member,
            type=buffer.type.cxx,
            name=cxx_string(buffer.label),
            file="",
            shape=f"{{{count}}}" if buffer.region in certain else f"{{std::max<std::int64_t>({count}, 0)}}",
            place=Place.PINNED.value,
            role="scratch",
            comment=f"of {buffer.region.text}",
        )


def _verifies(layout: Layout) -> Iterator[VerifyView]:
    program = layout.program
    for v, file in zip(program.verifies, program.expected_files, strict=True):
        extent = layout.extent(v.region)
        of = f", dagc::Of::{v.of}" * bool(v.of)
        atol = f", {v.atol!r}" * bool(v.atol or of)
        tolerance = f"{{{float(v.rtol)!r}, {'true' if v.nan_equal else 'false'}{atol}{of}}}"
        yield VerifyView(
            layout.array(v.region.array),
            cxx_string(v.returned),
            cxx_string(file),
            extent.start,
            extent.count,
            tolerance,
            v.runs,
        )


# ---- checks -----------------------------------------------------------------------------


def _checks(layout: Layout, steps: StepBuilder) -> Iterator[CallStep]:
    program = layout.program
    for require in program.requires:
        yield from _require(layout, require.condition, f"{place(program, require)}require")
    for op in program.ops:
        for region, when in conditional_regions(op):
            yield from _under(layout, when, _slices(layout, region, op.name))
        if isinstance(op, ir.KernelOp):
            yield from _under(layout, op.when, (*_by_value(layout, op), *_arguments(layout, op)))
        elif isinstance(op, ir.CopyOp):
            same = _same_size(layout, op.name, _size(layout, op.dst), _size(layout, op.src))
            yield from _under(layout, op.when, same)
        elif isinstance(op, ir.ExchangeOp):
            yield from _messages(layout, steps, op)
        elif op.collective is ir.CollectiveKind.ALLTOALLV:
            yield from _under(layout, op.when, _alltoallv(layout, steps, op))
        else:
            yield from _under(layout, op.when, (*_root(layout, op), *_of_all_ranks(layout, op), *_reduced(layout, op)))


def _under(layout: Layout, when: Sym | None, checks: Iterable[CallStep]) -> Iterator[CallStep]:
    """Checks of ranks that run an op, as calls that the condition guards."""
    for check in checks:
        yield check if when is None else replace(check, when=layout.text(when))


def _require(layout: Layout, condition: Sym, what: str, hidden: str = "") -> Iterator[CallStep]:
    """`hidden` as in `_tested`."""
    for test, text in _tested(layout, condition, what, hidden):
        yield CallStep("dagc::check_require", f"{test}, {text}, {_values(layout, condition, hidden)}")


def _tested(layout: Layout, condition: Sym, what: str, hidden: str = "") -> Iterator[tuple[str, str]]:
    """A condition and its text, both in C++, unless it always holds. `hidden`: the prefix of names of features, which
    the text of the program does not have."""
    if condition == Const(True):
        return
    text = f"{what} {show(condition)}"
    text = text.replace(hidden, "") if hidden else text
    try:
        yield layout.text(condition), cxx_string(text)
    except DagcError as error:
        raise DagcError(f"`{text}`: {error.message}", error.help) from None


def _values(layout: Layout, condition: Sym, hidden: str = "") -> str:
    """C++ text of the names in a condition with their values, for messages."""
    names = sorted(sym.free(condition))
    named = (f"{{{cxx_string(name.removeprefix(hidden))}, {layout.text(Var(name))}}}" for name in names)
    return f"{{{', '.join(named)}}}"


def _slices(layout: Layout, region: ir.Region, op: str) -> Iterator[CallStep]:
    """start .. stop must be within each dimension that is sliced; constants are checked here."""
    for dimension, start, stop in region.slices:
        length = layout.arrays[region.array].dims[dimension]
        if length is None or not _certainly_inside(start, stop, length):
            whole = layout.text(length) if length is not None else f"{layout.array(region.array)}.size"
            what = cxx_string(f"{region.array} in op {op}")
            yield CallStep("dagc::check_slice", f"{layout.text(start)}, {layout.text(stop)}, {whole}, {what}")


def _certainly_inside(start: Sym, stop: Sym, length: Sym) -> bool:
    if isinstance(start, Const) and isinstance(stop, Const) and isinstance(length, Const):
        return bool(sym.evaluate(sym.apply(Fn.AND, *_order(start, stop, length)), {}))
    return bool(sym.equal(start, Const(0)) and sym.equal(stop, length))


def _order(start: Sym, stop: Sym, length: Sym) -> tuple[Sym, Sym]:
    ordered = sym.apply(Fn.AND, sym.apply(Fn.LE, Const(0), start), sym.apply(Fn.LE, start, stop))
    return ordered, sym.apply(Fn.LE, stop, length)


def _arguments(layout: Layout, op: ir.KernelOp) -> Iterator[CallStep]:
    """Array arguments against the sizes in the kernel's header, and the implementation's `require`s."""
    kernel, impl = kernel_of(layout.program, op)
    env = layout.formals(op)
    of_variant = () if layout.opened.variants(op) else impl.requires  # tested when the variant is chosen
    for condition in (*kernel.requires, *of_variant):
        yield from _require(layout, substitute(condition, env), f"op {op.name}: require", feature_variable(op, ""))
    yield from _grid(layout, op, impl, env)
    for formal, arg in zip(kernel.formals, op.args, strict=True):
        if not isinstance(arg, ir.Region) or formal.dims is None or (arg.part is not None and arg.start is None):
            continue
        dims = [d for d in formal.dims if d is not None]
        if len(dims) == len(formal.dims):
            wanted = substitute(product(dims), env)
            what = f"{op.name}, argument `{formal.name}` of {op.kernel}"
            yield from _same_size(layout, what, _size(layout, arg), wanted)


def _grid(layout: Layout, op: ir.KernelOp, impl: ir.Impl, env: Mapping[str, Sym]) -> Iterator[CallStep]:
    """The grid in y and z against the limit of every GPU, where it depends on what is known when the program starts;
    and that as written, where another one is launched."""
    if not layout.opened.variants(op):
        for grid in layout.written_grids(op):
            yield CallStep("dagc::grid", ", ".join(map(layout.text, grid)))
    known = {"rank", "ranks", *(s.name for s in layout.program.scalars)}
    sizes = impl.launch.grid[1:] if impl.launch is not None and not layout.opened.variants(op) else ()
    for axis, written in zip("yz", sizes, strict=False):
        size = substitute(written, env)
        if not isinstance(size, Const) and sym.free(size) <= known:
            what = f"{place(layout.program, impl.launch)}op {op.name}: the grid in {axis},"
            yield from _require(layout, Apply(Fn.LE, (size, Const(ir.LARGEST_GRID))), what)


def _size(layout: Layout, region: ir.Region) -> Sym | str:
    """Number of elements: an expression, or C++ text if a dimension is `*`."""
    array = layout.arrays[region.array]
    known = [d for d in array.dims if d is not None]
    if len(known) < len(array.dims):
        return f"{layout.array(region.array)}.size"
    for dimension, start, stop in region.slices:
        known[dimension] = Apply(Fn.SUB, (stop, start))
    return product(known)


def _same_size(layout: Layout, what: str, has: Sym | str, wants: Sym | str) -> Iterator[CallStep]:
    if not isinstance(has, str) and not isinstance(wants, str) and sym.equal(has, wants):
        return
    left, right = (s if isinstance(s, str) else layout.text(s) for s in (has, wants))
    yield CallStep("dagc::check_size", f"{left}, {right}, {cxx_string(what)}")


def _messages(layout: Layout, steps: StepBuilder, op: ir.ExchangeOp) -> Iterator[CallStep]:
    ranks = f"{layout.on(op.comm)}.ranks"
    for message in op.messages:
        what = cxx_string(f"{op.name}.{message.label}" if message.label else op.name)
        for region, peer, counts in (message.end(True), message.end(False)):
            if isinstance(peer, str):
                assert counts is not None
                peers, count = steps.peers(peer, counts), layout.extent(region).count
                checks = [CallStep("dagc::check_peers", f"{peers}, {count}, {ranks}, {what}")]
                checks += [CallStep("dagc::check_once", f"{peers}, {what}")] if message.shares > 1 else []
                yield from _under(layout, message.when, checks)
            elif not (isinstance(peer, Const) and isinstance(peer.value, int) and peer.value < 1):
                yield CallStep("dagc::check_peer", f"{layout.text(peer)}, {ranks}, {what}")


def _alike(layout: Layout) -> Iterator[CallStep]:
    """The root of each broadcast, and the sizes of collectives, as arguments of `compare_ranks`."""
    for op, what, value in alike(layout.program):
        text = layout.text(value) if isinstance(value, Sym) else f"{layout.array(value.array)}.size"
        label = cxx_string(f"{place(layout.program, op)}{op.name}: the {what}")
        when = layout.text(op.when) if op.when is not None else ""
        yield CallStep("", f"[&] {{ return {text}; }}, {layout.on(op.comm)}.comm, {label}", when)


def _by_value(layout: Layout, op: ir.KernelOp) -> Iterator[CallStep]:
    """By-value arguments that their formals may not hold."""
    program = layout.program
    for formal, arg in zip(program.kernel(op.kernel).formals, op.args, strict=True):
        if not isinstance(arg, ir.Region) and may_not_hold(program, formal, arg):
            what = f"{place(program, op)}{op.name}, argument `{formal.name}` of {op.kernel}: {formal.type.value}"
            call = "check_real" if formal.type.is_float else f"check_value<{formal.type.cxx}>"
            yield CallStep(f"dagc::{call}", f"{layout.text(arg)}, {cxx_string(what)}")


def _root(layout: Layout, op: ir.CollectiveOp) -> Iterator[CallStep]:
    if op.collective.rooted and op.root != Const(0):
        ranks = f"{layout.on(op.comm)}.ranks"
        yield CallStep("dagc::check_root", f"{layout.text(op.root)}, {ranks}, {cxx_string(op.name)}")


def _of_all_ranks(layout: Layout, op: ir.CollectiveOp) -> Iterator[CallStep]:
    """An array with the elements of all ranks has as many of each."""
    if op.collective in (ir.CollectiveKind.ALLGATHER, ir.CollectiveKind.ALLTOALL):
        dst, src = (layout.extent(region).count for region in op.regions)
        ranks, name = f"{layout.on(op.comm)}.ranks", cxx_string(op.name)
        if op.collective is ir.CollectiveKind.ALLTOALL:
            yield CallStep("dagc::check_size", f"{dst}, {src}, {name}")
            src = f"({src}) / {ranks}"
        yield CallStep("dagc::check_size", f"{dst}, ({src}) * {ranks}, {name}")


def _reduced(layout: Layout, op: ir.CollectiveOp) -> Iterator[CallStep]:
    """What is reduced has as many elements as the result."""
    if op.collective.reduces and all(r.part is None or r.start is not None for r in op.regions):
        dst, src = op.regions
        if dst != src:
            yield from _same_size(layout, f"{op.name}, `{src.text}`", _size(layout, src), _size(layout, dst))


def _alltoallv(layout: Layout, steps: StepBuilder, op: ir.CollectiveOp) -> Iterator[CallStep]:
    """A count for each rank, all of which fill the buffer."""
    ranks = f"{layout.on(op.comm)}.ranks"
    (message,) = op.messages
    for what, send in (("send", True), ("recv", False)):
        region, everyone, counts = message.end(send)
        assert isinstance(everyone, str)
        assert counts is not None
        label = cxx_string(f"{op.name}, {what} counts")
        yield CallStep("dagc::check_size", f"{layout.array(counts)}.size, {ranks}, {label}")
        given = f"{steps.peers(everyone, counts)}, {layout.extent(region).count}, {ranks}, {label}"
        yield CallStep("dagc::check_peers", given)


# ---- choice among plans ----

_OURS = """argc argv check_only choice chosen dagc data device_pointers here json options plans program read_size refuse
    repeats seconds hang verbose features words rank ranks"""


@dataclass(frozen=True, slots=True)
class SizeView:
    """A scalar of rank 0: its variable, C++ and NumPy type, and its file in the data directory. `wide`: the type of the
    computation."""

    variable: str
    type: str
    wide: str
    npy: str
    file: str
    comment: str


def emit_launcher(
    program: ir.Program, chooser: EmittedChoosers, names: Sequence[str], labels: Sequence[str], why: str
) -> dict[str, str]:
    """File name -> text: `bench.cpp`, `chooser.h`, `CMakeLists.txt`.

    `chooser` has one choice, whose features are expressions over scalars. `names`: those of its features. `labels`: the
    plans' directories below `plans`, by the answer; `why`: a few words on how it chooses.
    """
    (choice,) = chooser.choices
    scalars = {s.name: s for s in program.scalars}
    asked = sorted(set().union(*(sym.free(f) for f in choice.features)), key=list(scalars).index)
    cxx_names = Names(_OURS.split())
    sizes = tuple(_size_of(scalars[name], cxx_names) for name in asked)
    variable = {size.comment: size.variable for size in sizes}
    printer = Expressions(CXX, variable.__getitem__, {n for n, s in scalars.items() if s.type.is_float})
    features = [(n, printer.text(f)) for n, f in zip(names, choice.features, strict=True)]
    common = {"program": program.name, "path": program.path, "labels": tuple(labels)}
    view = {"plan_choice": choice, "why": why, "far": FAR, "features": features, "sizes": sizes}
    return {
        "bench.cpp": tidy(render("plans/bench.cpp.j2", **view, **common)),
        "chooser.h": chooser.source,
        "CMakeLists.txt": tidy(render("plans/CMakeLists.txt.j2", **common)),
    }


def _size_of(scalar: ir.Scalar, cxx_names: Names) -> SizeView:
    npy = f"{'|' if scalar.type.size == 1 else '<'}{scalar.type.numpy}"
    return SizeView(
        cxx_names.new(scalar.name),
        scalar.type.cxx,
        "double" if scalar.type.is_float else "std::int64_t",
        npy,
        f"/rank-0000/{data_file(scalar.name)}",
        scalar.name,
    )

"""`Layout`: C++ names and texts of all data of a program: values of a rank, arrays, scratch, requests.

Values of a rank have 64 bits in the emitted program, integers and real numbers, whatever their declared type, so that
products of sizes do not overflow.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from dagc.base.errors import DagcError
from dagc.emit.render import CXX, Expressions, Names
from dagc.forms import kernel_of
from dagc.forms.fuse import calls_of
from dagc.ir import program as ir
from dagc.ir.choice import AS_WRITTEN, FORM, VARIANT, qualified
from dagc.ir.enums import ElementType, Mode, Place, Transport
from dagc.ir.plan import MEASURED, CodeFeature, Opened, conversion_of, feature_variable, first_equal, variant_number
from dagc.ir.repetition import Tested
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, difference, free, is_real, show, specialised, substitute

# Members that Program always has, in C++ and in Python (whose keywords are not names there).
_MEMBERS = (
    *"comm rank ranks stream event store hardware load grow read check reset verify Program".split(),
    *"want before_run arrays changed send receive wait_all".split(),
    *(f"{transport.value}_comm" for transport in Transport if transport.grouped),
    *"connect graph folder scalar make compare reload peers peer start choose feature features".split(),
    *"sites chosen_sites warn settle started at_once".split(),
    *"prepare prepared prepare_seconds preparations make_scratch compute_features check_features".split(),
    *"once compute_together computed known".split(),
    *"begin_sides early end_sides".split(),
    *"further_gpus sockets InFlight in_flight".split(),
    *"compare_ranks beside needs members payoff make_graphs compute_late_features start_seconds verified_runs".split(),
    *"_file _kept _left _poison _roles _self_halves _self_stream _to_self".split(),
    *keyword.kwlist,
)
# Names of the language, and of members of dagc::Hardware.
HARDWARE = "max_threads_per_block shared_per_block warp_size sms memory".split()


@dataclass(frozen=True, slots=True)
class ElementRange:
    """Elements of a region: its start in its array, and their number. C++ texts."""

    start: str
    count: str


@dataclass(frozen=True, slots=True)
class OpScratch:
    """A scratch array of an implementation, for one op or for the ops that share its conversion."""

    member: str
    type: ElementType
    dims: tuple[Sym, ...]
    place: Place
    label: str
    prepared: bool  # filled once, and kept between runs
    late: bool  # allocated after the features are known and the variant is chosen
    shared: bool  # shared by all ops with the same conversion, which alone writes it
    gpu: int = 0  # the number of the GPU that has it


def ops_in_words(ops: Sequence[ir.KernelOp]) -> str:
    """`first, again`; for more than three, the first and the number of others."""
    if len(ops) > 3:
        return f"{ops[0].name} and {len(ops) - 1} other ops"
    return ", ".join(op.name for op in ops)


@dataclass(frozen=True, slots=True)
class TestView:
    """The test of a repetition on the device: the array that the program names, and C++ texts of a pointer to the
    value, the comparison, the bound, and the largest number of runs. `shared`: the value is the same on all ranks.
    `pointer` is "" without a condition. `every`, `kept`: as of `Tested`, the arrays as C++ texts."""

    array: str
    pointer: str
    compare: str
    bound: str
    most: str
    shared: bool
    every: int
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagingBuffer:
    """Page-locked host memory that messages use instead of one region of a device array."""

    member: str
    type: ElementType
    region: ir.Region
    label: str


class Layout:
    """Names are those of members of `Program`; expressions reach them through `p.`."""

    def __init__(
        self,
        graph: ir.Graph,
        open: Iterable[ir.Decision] = (),
        features: Iterable[CodeFeature] = (),
        private: Collection[str] = (),
    ) -> None:
        """`open` tunables are members as well, since the program sets them, and computes `features`, when it runs. The
        arrays `private` have copies (`in_flight`)."""
        self.graph, self.program = graph, graph.program
        self.opened = Opened(open)
        names = Names(_MEMBERS)
        self.arrays = {a.name: a for a in self.program.arrays}
        self.member = {s.name: names.new(s.name) for s in self.program.scalars}
        self.member |= {a.name: names.new(a.name) for a in self.program.arrays}
        self.comms = {c.name: names.new(c.name) for c in self.program.comms}
        self.comms |= {c.name: names.new(c.name, "comm") for c in self.program.host_comms}
        self._of_comms = self._variables_of_comms()
        features = tuple(features)
        self.feature_numbers = first_equal(self.program, features)  # of equal features only the first is computed
        members = [names.new(f"feature_{i}") for i, _ in enumerate(features)]
        self.features = {name: members[number] for name, number in self.feature_numbers.items()}
        self.reals = frozenset((*self.features, *(s.name for s in self.program.scalars if s.type.is_float)))
        self.reals |= {ir.passed_value(a.name).name for a in self.program.arrays if a.type.is_float}
        self._value_names = {s.name for s in self.program.scalars}
        self.tunable_member = {  # a decision is `OP.TUNABLE`
            d: names.new(*d.rsplit(".", 1)) for d in dict.fromkeys(t.name for t in self.opened.every)
        }
        self.sides = {name: names.new(name, "sides") for name in self._two_sided()}
        self._requests = {
            op.name: names.new(op.name, "requests")
            for op in graph.ops
            if op.action in (ir.Action.WAIT_SEND, ir.Action.WAIT_RECV, ir.Action.WAIT_COLLECTIVE)
        }
        self._name_groups(names, private)
        self.kernel_ops = self.opened.every_op(self.program)
        self._converting: dict[Hashable, list[ir.KernelOp]] = {}
        for one in self.kernel_ops:
            if (conversion := conversion_of(self.program, one)) is not None:
                self._converting.setdefault(conversion, []).append(one)
        self._scratch: dict[tuple[str, str], tuple[OpScratch, ...]] = {}
        for one in self.kernel_ops:
            self._scratch[one.name, one.answer] = tuple(self._scratch_of(one, names))
        self.staging = {buffer.region: buffer for buffer in self._staging(names)}

    def _name_groups(self, names: Names, private: Collection[str]) -> None:
        """Members of the groups and of their connections, and of what iterations in flight have for themselves."""
        self._alike = ir.alike(self.program.ops)
        self._grouped = tuple(self._groups_of(self.graph))
        self._groups = {op.name: names.new(op.name, "group") for op in self._grouped}
        # What each iteration in flight has for itself: by array, and by group, the member with the copies.
        self.private = {name: names.new(name, "copies") for name in private}
        self.private_groups = {
            op.name: names.new(op.name, "group_copies")
            for op in self._grouped
            if op.op is not None and any(access.region.array in self.private for access in op.op.accesses)
        }
        self._in_flight = False
        # Connections of the ranks of groups, by transport and communicator; those of all ranks first.
        grouped = dict.fromkeys((op.transport, op.comm) for op in self._grouped)
        self.kinds = tuple(transport for transport in Transport if transport in {kind for kind, _ in grouped})
        self.connections: dict[tuple[Transport | None, str], str] = {
            (kind, comm): names.new(comm, f"{kind.value}_comm") if comm else f"{kind.value}_comm"
            for kind in self.kinds
            for comm in ("", *self.comms)
            if not comm or (kind, comm) in grouped
        }

    def _variables_of_comms(self) -> dict[str, str]:
        """Text of the variables of each communicator: the own rank there, and the number of ranks."""
        return {
            variable.name: f"{self.comms[c.name]}.{what}"
            for c in (*self.program.comms, *self.program.host_comms)
            for variable, what in ((c.rank, "rank"), (c.ranks, "ranks"))
        }

    def in_flight(self) -> Layout:
        """The same for one of several iterations, which reaches private arrays, and groups that move them, through
        `q.`. Its `group_members` are these alone."""
        out = copy(self)
        out._in_flight = True
        out._grouped = tuple(op for op in self._grouped if op.name in self.private_groups)
        return out

    # ---- expressions ----------------------------------------------------------------------

    def variable(self, name: str, owner: str = "p") -> str:
        """Text of a variable of an expression in C++ and, unless it is of `hw` or a feature, in Python. `owner`: the
        program there."""
        if name in ("rank", "ranks"):
            return f"{owner}.{name}"
        if name == ir.FIRST_OF_HOST:
            return f"dagc::first_of_host({owner}.comm)"
        if name in self._of_comms:
            return f"{owner}.{self._of_comms[name]}"
        if name in self._value_names:
            return f"{owner}.{self.member[name]}"
        if name in self.tunable_member:
            return f"{owner}.{self.tunable_member[name]}"
        if name in self.features:
            return f"{owner}.{self.features[name]}()"
        if (array := ir.passed_array(name)) is not None:
            return f"{owner}.{self.member[array]}.data[0]"
        if name.startswith("hw.") and name[3:] in HARDWARE:
            return f"{owner}.hardware.{name[3:]}"
        raise DagcError(f"`{name}` is not known when the program starts, so no code can be emitted for it")

    def on(self, comm: str) -> str:
        """C++ text of the object with the members `comm`, `rank` and `ranks` of a communicator; "": that of the
        program."""
        return f"p.{self.comms[comm]}" if comm else "p"

    def variant_is(self, op: ir.KernelOp) -> str:
        """C++ text: whether the op's variant is chosen, where it is open."""
        return f"{self.variable(qualified(op.site, VARIANT))} == {variant_number(self.program, op)}"

    def text(self, expr: Sym) -> str:
        return Expressions(CXX, self.variable, self.reals).text(expr)

    def size(self, dim: Sym, what: str) -> str:
        """C++ text of a dimension; one computed from real numbers must be an integer. `what`: a C++ string."""
        text = self.text(dim)
        return f"dagc::whole({text}, {what})" if is_real(dim, self.reals) else text

    # ---- arrays ---------------------------------------------------------------------------

    def _two_sided(self) -> Iterator[str]:
        """The arrays between whose sides the program copies when it runs, in the order of the program."""
        at_run_time = ir.two_sided(self.program.ops, self.program.arrays)
        yield from (a.name for a in self.program.arrays if a.name in at_run_time)

    def sides_of(self, accesses: Iterable[ir.Access]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """For the two-sided arrays of an op: the C++ texts of those whose contents it needs, and of those that it
        writes. An array that is written in part is also needed."""
        needed: dict[str, None] = {}
        written: dict[str, None] = {}
        for access in accesses:
            if access.region.array in self.sides:
                text = f"p.{self.sides[access.region.array]}"
                if access.keeps:
                    needed[text] = None
                if access.mode is not Mode.IN:
                    written[text] = None
        return tuple(needed), tuple(written)

    def array(self, name: str) -> str:
        return f"{'q' if self._in_flight and name in self.private else 'p'}.{self.member[name]}"

    def extent(self, region: ir.Region) -> ElementRange:
        """Raises DagcError for a part without bounds, whose position is unknown."""
        extent = self.extent_sym(region)
        if extent is None:
            return ElementRange("0", f"{self.array(region.array)}.size")
        return ElementRange(self.text(extent[0]), self.text(extent[1]))

    def extent_sym(self, region: ir.Region) -> tuple[Sym, Sym] | None:
        """Start and number of elements; None for the whole array. Raises as `extent`."""
        array = self.arrays[region.array]
        if region.part is not None and region.start is None:
            message = f"part `{region.part}` of `{region.array}` has no bounds, so it cannot be sent or copied"
            raise DagcError(message, "give the part bounds, or use the whole array")
        if region.start is None or region.stop is None:
            return None
        inner = self._product(array.dims[1:], array)
        return _fold(_times(region.start, inner)), _fold(_times(Apply(Fn.SUB, (region.stop, region.start)), inner))

    def is_whole(self, region: ir.Region) -> bool:
        return region.start is None

    def pointer(self, region: ir.Region, side: str = "data") -> str:
        """Start of a region; `side` is `data`, `mirror` of an `any` array, or its memory on a further GPU (`at(...)`).

        For a kernel, a part without bounds is the whole array.
        """
        owner = f"p.{self.sides[region.array]}" if side.startswith("at(") else self.array(region.array)
        base = f"{owner}.{side}"
        if region.start is None:
            return base
        start = self.extent(region).start
        if region.columns is not None:
            start = self.text(_fold(_plus(self._rows_start(region), self._column_start(region))))
        return base if start == "0" else f"{base} + {_operand(start)}"

    def _rows_start(self, region: ir.Region) -> Sym:
        extent = self.extent_sym(region)
        return Const(0) if extent is None else extent[0]

    def _column_start(self, region: ir.Region) -> Sym:
        assert region.columns is not None
        dimension, start, _ = region.columns
        array = self.arrays[region.array]
        return _times(start, self._product(array.dims[dimension + 1 :], array))

    def strides(self, region: ir.Region) -> tuple[str, str, str]:
        """For a region with columns, in elements: distance of two rows, elements in a row; and the number of rows."""
        assert region.columns is not None
        assert region.start is not None
        assert region.stop is not None
        dimension, start, stop = region.columns
        array = self.arrays[region.array]
        inner = self._product(array.dims[dimension + 1 :], array)
        pitch = self._product(array.dims[dimension:], array)
        width = _times(difference(stop, start), inner)
        rows = _times(difference(region.stop, region.start), self._product(array.dims[1:dimension], array))
        return self.text(_fold(pitch)), self.text(_fold(width)), self.text(_fold(rows))

    def until(self) -> tuple[str, str, str]:
        """The condition that ends the repetition, as text of the program and as C++, and what it compares as C++; empty
        without one."""
        end = self.program.until
        if end is None:
            return "", "", ""
        type_ = "double" if self.arrays[end.array].type.is_float else "std::int64_t"
        left = f"static_cast<{type_}>({self.array(end.array)}.data[0])"
        text = f"{left} {end.fn.value} static_cast<{type_}>({self.text(end.bound)})"
        return f"{end.array} {end.fn.value} {show(end.bound, 5)}", text, left

    def test_on_device(self, tested: Tested) -> TestView:
        """The condition after an iteration that the device repeats."""
        end, most = self.program.until, self.program.repeat
        assert most is not None
        if end is None or tested.region is None:
            return TestView("", "", "", "", self.text(most), tested.shared, tested.every, ())
        type_ = "double" if self.arrays[tested.region.array].type.is_float else "std::int64_t"
        bound = f"static_cast<{type_}>({self.text(end.bound)})"
        compare = f"dagc::Compare::{end.fn.name.lower()}"
        value, kept = self.pointer(tested.region), tuple(self.array(name) for name in tested.kept)
        return TestView(end.array, value, compare, bound, self.text(most), tested.shared, tested.every, kept)

    def kernel_side(self, region: ir.Region, op: ir.KernelOp) -> str:
        """`any` arrays have a side on the host and one on each GPU."""
        if self.arrays[region.array].place is not Place.ANY or not (op.elsewhere or op.device is ir.Device.CPU):
            return "data"
        return f"at(dagc::gpu({op.unit}))" if op.elsewhere else "mirror"

    def staged(self, region: ir.Region, transport: Transport) -> StagingBuffer | None:
        """The staging buffer of a region, for messages that use one."""
        return self.staging.get(region) if transport is Transport.MPI_HOST else None

    def message_pointer(self, region: ir.Region, transport: Transport = Transport.MPI_HOST) -> str:
        """The pointer for messages: the start of the region, or of its staging buffer if they use one."""
        buffer = self.staged(region, transport)
        return f"p.{buffer.member}.data" if buffer is not None else self.pointer(region)

    def _product(self, dims: Iterable[Sym | None], array: ir.Array) -> Sym:
        out: Sym = Const(1)
        for dim in dims:
            if dim is None:
                raise DagcError(f"a slice of `{array.name}` needs its inner dimensions, and one of them is `*`")
            out = _times(out, dim)
        return out

    # ---- requests, scratch ----------------------------------------------------------------

    def requests(self, op: ir.GraphOp) -> str:
        """The requests that a post adds to and its wait completes. `op` is either."""
        return f"p.{self._requests[self.wait_of(op).name]}"

    def group(self, op: str) -> str:
        """The group of an exchange on the GPU, by its name."""
        name = self._alike.get(op, op)
        return f"{'q' if self._in_flight and name in self.private_groups else 'p'}.{self._groups[name]}"

    def group_members(self) -> tuple[tuple[str, ir.GraphOp], ...]:
        """(member, op) of every group."""
        return tuple((self._groups[op.name], op) for op in self._grouped)

    def _groups_of(self, graph: ir.Graph) -> Iterator[ir.GraphOp]:
        """The ops of groups; of exchanges whose messages kernels write, which may have none, one of those alike."""
        written = {put.exchange for op in graph.ops if op.kernel is not None for put in op.kernel.puts}
        puts = {self._alike[name]: None for name in self._alike if name in written}
        yield from (op for op in graph.ops if op.action is ir.Action.GROUP and op.name not in self._alike)
        for op in self.program.comm_ops:
            if isinstance(op, ir.ExchangeOp) and (put := op.put) is not None and put.name in puts:
                yield ir.GraphOp(ir.OpId(-1), put.name, True, ir.Action.GROUP, put)

    def request_members(self) -> tuple[tuple[str, ir.GraphOp], ...]:
        """(member, the op that waits)."""
        return tuple((self._requests[op.name], op) for op in self.graph.ops if op.name in self._requests)

    def wait_of(self, op: ir.GraphOp) -> ir.GraphOp:
        action = _WAITS.get(op.action, op.action)
        for other in self.graph.ops:
            if (
                other.action is action
                and other.op is op.op
                and (action is not ir.Action.WAIT_RECV or other.serves == op.serves)
            ):
                return other
        raise DagcError(f"op `{op.name}` has no wait")

    def _staging(self, names: Names) -> Iterable[StagingBuffer]:
        of = Counter(region.array for region in self.graph.staged)
        numbers: Counter[str] = Counter()
        for region in self.graph.staged:
            array, suffix = region.array, "staging"
            if of[array] > 1:
                suffix += f"_{numbers[array]}"
                numbers[array] += 1
            member = names.new(array, suffix)
            yield StagingBuffer(member, self.arrays[array].type, region, f"{region.text}: staging buffer")

    def scratch(self, op: ir.KernelOp) -> tuple[OpScratch, ...]:
        """The scratch of the op's implementation."""
        return self._scratch[op.name, op.answer]

    def converting(self, op: ir.KernelOp) -> tuple[ir.KernelOp, ...]:
        """The ops that share the conversion of this one, in order; none without one that is shared."""
        return tuple(self._converting.get(conversion_of(self.program, op), ()))

    def _scratch_of(self, op: ir.KernelOp, names: Names) -> Iterable[OpScratch]:
        kernel, impl = kernel_of(self.program, op)
        env = self.formals(op)
        several = impl.prepare is not None or self.opened.variants(op)
        variant = f" of variant `{op.answer}`" if several and op.answer != "default" else ""
        sharing = self.converting(op)
        have = self._scratch.get((sharing[0].name, sharing[0].answer), ()) if sharing else ()
        for number, scratch in enumerate(impl.scratch):
            if have and scratch.const:
                yield have[number]
                continue
            dims = tuple(substitute(d, env) for d in scratch.dims if d is not None)
            if len(dims) != len(scratch.dims):
                raise DagcError(f"scratch array `{scratch.name}` of kernel `{kernel.name}` needs a size, not `*`")
            place = Place.DEVICE if op.device is ir.Device.GPU else Place.HOST
            member = names.new(op.name, scratch.name)
            measured = any(name.startswith(MEASURED) for d in dims for name in free(d))
            owner = ops_in_words(sharing) if scratch.const else op.name
            label = f"{owner}: {scratch.name}{variant}"
            prepared = scratch.const if impl.shares else impl.prepare is not None
            late = prepared or measured or bool(self.opened.variants(op))
            gpu = op.unit if op.elsewhere else 0
            yield OpScratch(member, scratch.type, dims, place, label, prepared, late, scratch.const, gpu)

    def formals(self, op: ir.KernelOp) -> dict[str, Sym]:
        """Values of the names in a kernel's expressions for one op: arguments, tunables, `let`s, decisions."""
        kernel, impl = kernel_of(self.program, op)
        env: dict[str, Sym] = {d.name: Const(d.chosen) for d in self.program.decisions}
        for n, v in op.tunables:
            opened = self.opened.get(op, n)
            env[n] = Var(opened.name) if opened is not None else Const(v)
        for formal, arg in zip(kernel.formals, op.args, strict=True):
            if not isinstance(arg, ir.Region):
                env[formal.name] = arg
        for name, expr in kernel.lets:
            env[name] = specialised(expr, env)
        for feature in kernel.features:
            measured = Var(feature_variable(op, feature.name))
            value = feature.value
            env[feature.name] = measured if isinstance(value, ir.CodeText) else specialised(value, env)
        for name, expr in (*kernel.lets, *impl.lets):  # those of features, too
            env[name] = specialised(expr, env)
        return env

    def written_grids(self, op: ir.KernelOp) -> Iterator[tuple[Sym, ...]]:
        """The grids as written of an op whose launch is another one, under forms or of several calls: a negative size
        is an error there too, and may not show in what the launch has."""
        _, impl = kernel_of(self.program, op)
        for call in calls_of(self.program, op):
            formed = {n for n, v in call.tunables if n.startswith(FORM) and (v != AS_WRITTEN or self.opened.get(op, n))}
            written = replace(call, tunables=tuple(t for t in call.tunables if t[0] not in formed))
            launch = kernel_of(self.program, written)[1].launch
            if launch is None or written == op or launch == impl.launch:
                continue
            sizes = tuple(substitute(size, self.formals(written)) for size in launch.grid)
            names = frozenset[str]().union(*map(free, sizes))
            if names and names.isdisjoint(self.features):
                yield sizes


_WAITS = {
    ir.Action.POST_SEND: ir.Action.WAIT_SEND,
    ir.Action.POST_RECV: ir.Action.WAIT_RECV,
    ir.Action.POST_COLLECTIVE: ir.Action.WAIT_COLLECTIVE,
}


def value_type(scalar: ir.Scalar) -> str:
    """Type of the member that holds a value of the rank."""
    if scalar.type is ElementType.BOOL:
        return "bool"
    return "double" if scalar.type.is_float else "std::int64_t"


def _fold(expr: Sym) -> Sym:
    return substitute(expr, {})


def _times(a: Sym, b: Sym) -> Sym:
    if a == Const(1):
        return b
    if Const(0) in (a, b):
        return Const(0)
    return a if b == Const(1) else Apply(Fn.MUL, (a, b))


def _plus(a: Sym, b: Sym) -> Sym:
    if a == Const(0):
        return b
    return a if b == Const(0) else Apply(Fn.ADD, (a, b))


def _operand(text: str) -> str:
    return text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"


def product(dims: Iterable[Sym]) -> Sym:
    """Number of elements of an array of these dimensions."""
    out: Sym = Const(1)
    for dim in dims:
        out = _times(out, dim)
    return _fold(out)


# ---- declared writes ----


@dataclass(frozen=True, slots=True)
class WriteView:
    """Elements [start, start + count) of an array; texts are C++."""

    array: str
    start: str
    count: str


@dataclass(frozen=True, slots=True)
class PromiseView:
    """Two unordered ops, by number, that write different parts without bounds of one array."""

    first: int
    second: int
    array: str
    first_part: str
    second_part: str


def writes(layout: Layout, op: ir.GraphOp) -> tuple[WriteView, ...]:
    """The data that a kernel may change: its declared outputs, its scratch, and copies for it or for messages. Empty
    for other ops."""
    kernel = op.kernel
    if kernel is None:
        return ()
    views = [_write(layout, a.region) for a in kernel.accesses if a.mode is not Mode.IN]
    views += [_write(layout, staged.region) for staged in op.copy_in]
    views += [_whole(f"p.{layout.staging[staged.region].member}") for staged in op.copy_out]
    views += [_whole(layout.array(a.region.array)) for a in kernel.accesses if a.region.array in layout.sides]  # copied
    views += [
        _whole(f"p.{s.member}")
        for one in layout.opened.ops(layout.program, kernel)
        for s in layout.scratch(one)
        if not s.shared
    ]
    return tuple(dict.fromkeys(views))


def received(layout: Layout) -> tuple[WriteView, ...]:
    """The data that messages may change while other ops run."""
    regions = [a.region for op in layout.program.comm_ops for a in op.accesses if a.mode is not Mode.IN]
    buffers = (_whole(f"p.{layout.staging[r].member}") for r in regions if r in layout.staging)
    return tuple(dict.fromkeys((*(_write(layout, region) for region in regions), *buffers)))


def promises(graph: ir.Graph) -> tuple[PromiseView, ...]:
    """Pairs of kernels that are only separated by different parts without bounds."""
    ordered = _below(graph)
    promised = [
        (number, access.region)
        for number, op in enumerate(graph.ops)
        if op.kernel is not None
        for access in op.kernel.accesses
        if access.mode is not Mode.IN and access.region.part is not None and access.region.start is None
    ]
    return tuple(
        PromiseView(u, v, a.array, str(a.part), str(b.part))
        for i, (u, a) in enumerate(promised)
        for v, b in promised[i + 1 :]
        if a.array == b.array and a.part != b.part and u != v and not (ordered[u] >> v & 1 or ordered[v] >> u & 1)
    )


def _below(graph: ir.Graph) -> list[int]:
    """For each op, the ops that it reaches by completion edges, as a mask."""
    after: dict[ir.OpId, list[ir.OpId]] = {op.id: [] for op in graph.ops}
    for before, then in graph.completion:
        after[before].append(then)
    below = [0] * len(graph.ops)
    for u in TopologicalSorter(after).static_order():  # those after an op come before it
        for v in after[u]:
            below[u] |= below[v] | 1 << v
    return below


def _write(layout: Layout, region: ir.Region) -> WriteView:
    if region.start is None or region.stop is None:  # also a part without bounds, whose position is unknown
        return _whole(layout.array(region.array))
    extent = layout.extent(region)
    return WriteView(layout.array(region.array), extent.start, extent.count)


def _whole(array: str) -> WriteView:
    return WriteView(array, "0", f"{array}.size")

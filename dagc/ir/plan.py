"""`Plan`: one traversal with every other choice made, except launch configurations left open until the program runs.

`plan.json` holds the texts of the program, not its graph. Parsing and lowering them gives the same graph, which the
program's hash confirms, so the schema stays small and independent of the compiler's types.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from dagc.base.errors import UsageError, parsed_json
from dagc.cuda.lexer import tokens_of
from dagc.cuda.text import constant_names, names_read
from dagc.ir import program as ir
from dagc.ir.choice import VARIANT, own_name, qualified, site_of
from dagc.ir.enums import ElementType, Mode, Role
from dagc.ir.repetition import Tested, on_device
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free, substitute
from dagc.ir.traversal import Traversal, parse_traversal, traversal_text

# ---- open launch configurations ---- Launch configurations that stay open until the program runs: their tunables, the
# use of their values, and their choosers.  A tunable that is exactly a dimension of the block is read from `blockDim`,
# so one compiled kernel serves all its values. Any other is a compile-time constant, and the kernel is compiled once
# for each value.

AXES = ("x", "y", "z")
# Choices were compared with the best up to 4 times outside of the sizes they were made from. Their quality beyond
# that is unknown, and a warning says so at compile time and at run time (docs/how-to/launch-settings.md).
FAR = 4


class Opened:
    """The open choices of a program, by op."""

    def __init__(self, open: Iterable[ir.Decision] = ()) -> None:
        self.every = tuple(open)
        self._of = {(d.variant, d.name): d for d in self.every}

    def has(self, op: ir.KernelOp) -> bool:
        """Whether anything of the op is open."""
        return any(site_of(d.name) == op.site for d in self.every)

    def variants(self, op: ir.KernelOp) -> tuple[str, ...]:
        """The implementations to choose among, empty if the variant is not open."""
        choice = self._of.get(("", qualified(op.site, VARIANT)))
        return tuple(map(str, choice.values)) if choice is not None else ()

    def get(self, op: ir.KernelOp, name: str) -> ir.Decision | None:
        """A tunable of the op under its variant, None if it is not open."""
        return self._of.get((op.answer if self.variants(op) else "", qualified(op.site, name)))

    def ops(self, program: ir.Program, op: ir.KernelOp) -> tuple[ir.KernelOp, ...]:
        """The op with each open variant; only the op itself if none is open."""
        variants = self.variants(op)
        return tuple(one for one in variants_of(program, op) if one.answer in variants) if variants else (op,)

    def every_op(self, program: ir.Program) -> tuple[ir.KernelOp, ...]:
        """All ops that call kernels, each with every variant that is open."""
        return tuple(one for op in program.kernel_ops for one in self.ops(program, op))


MEASURED = "feature."  # prefix of the names of values that the program computes in C++, in expressions and in values


@dataclass(frozen=True, slots=True)
class CodeFeature:
    """A number that a C++ function computes from arguments of an op once the arrays have been read. `name`: that of its
    value in expressions."""

    name: str
    op: ir.KernelOp
    code: ir.CodeText


@dataclass(frozen=True, slots=True)
class ChoiceCall:
    """A call that decides an open choice, and the function of the chooser's C code that it calls.

    `function` takes the features, a double each, and returns the number of an answer; `features` are expressions in
    per-rank scalars and code features. The C function `table` returns the values of the answer: one for each of
    `decisions`, which are tunables of `op`, or its variant; `text` describes each of `answers`. `measured` describes
    the measured range of the features, "" without one. `payoffs`: for each answer, in calls of the default where the
    answer is the best one: the gain of a call, and the cost of its conversion; () if unknown. `least`: the number of
    remaining calls from which the features and the choice pay on average.

    `predict`: the C function `void predict(features, double* seconds)` of the expected time of each answer, "" if the
    selector does not predict times. `order`: the C function `void order(features, int* answers)` of all answers, the
    best first, "" if there is none. `failed`: the C function `int failed(features, unsigned char* answers)` that marks
    the answers that failed at inputs like this one in training, "" if none failed anywhere.
    """

    function: str
    table: str
    op: str
    features: tuple[Sym, ...]
    decisions: tuple[str, ...]
    measured: str = ""
    text: str = ""
    answers: int = 0
    payoffs: tuple[tuple[float, float], ...] = ()
    least: float = 0.0
    predict: str = ""
    order: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """All placed ops are placed together, by the expected seconds of their answers and of transfers from the host and
    each GPU to each: latency in seconds, bandwidth in bytes per second."""

    transfers: tuple[tuple[tuple[float, float], ...], ...]


class Features(Enum):
    """When the program computes the features for its choices: at the start, one after the other or in parallel;
    concurrently with the program, which waits for them when the choice is first needed; or during its runs, which use
    the defaults until the chosen variants are ready."""

    NOW = "now"
    PARALLEL = "parallel"
    ASYNC = "async"
    BESIDE = "beside"


@dataclass(frozen=True, slots=True)
class EmittedChoosers:
    """C99 text, and the calls of the program once its sizes are known. `warnings`: about the sizes known when
    compiling. `constraints`: whether the `require`s of variants are tested; those on the memory always are.
    `placement`: how the ops whose device is open are placed together, None if each is chosen separately."""

    source: str
    choices: tuple[ChoiceCall, ...]
    warnings: tuple[str, ...] = ()
    constraints: bool = True
    mode: Features = Features.NOW
    placement: Placement | None = None


def kernel_as_written(program: ir.Program, op: ir.KernelOp) -> tuple[ir.Kernel, ir.Impl]:
    """The kernel and the implementation of an op, without its forms (`dagc.forms`). Raises KeyError if it has none on
    its device."""
    kernel = program.kernel(op.kernel)
    return kernel, kernel.impl_of(op.device, op.variant)


def open_tunables(program: ir.Program, ops: Iterable[str]) -> tuple[ir.Decision, ...]:
    """The tunables of the named ops (`KernelOp.site`), in the program's order, except those that `stays_fixed` names.
    The variants of the ops are those of the program.

    Raises UsageError for an op that has none.
    """
    wanted = dict.fromkeys(ops)
    out: dict[str, ir.Decision] = {}
    for op in program.kernel_ops:
        for tunable in _open_of(program, op) if op.site in wanted else ():
            out.setdefault(tunable.name, tunable)
    for base in wanted:
        if not any(site_of(name) == base for name in out):
            message = (
                f"op `{base}` has nothing to tune: its CUDA kernel has no `tune` with two or more whole numbers left"
            )
            ops_of = (op for op in program.kernel_ops if op.site == base)
            otherwise = f"drop -D {base}.NAME=..., or name an op whose kernel declares `tune`"
            raise UsageError(message, only_explored(program, ops_of) or otherwise)
    return tuple(out.values())


def only_explored(program: ir.Program, ops: Iterable[ir.KernelOp]) -> str:
    """A help that names the first tunable that stays fixed while tuning but has several values; empty without one."""
    name = next((qualified(op.site, name) for op in ops for name in stays_fixed(program, op)), "")
    why = "code that launches its own kernels and sizes of scratch are compiled for one value"
    return name and f"`dagc explore --open {name}` searches `{name}`: {why}"


def open_variants(program: ir.Program, op: ir.KernelOp) -> tuple[ir.Decision, ...]:
    """The variant of an op if a `select` of its kernel leaves it or the device open, and for each implementation those
    of its tunables that the same `select` names; empty if no variant is open. The variant of a placed op is always
    open, since the whole dag may be placed together."""
    kernel = program.kernel(op.kernel)
    wanted = {VARIANT, ir.DEVICE} if op.placed else {VARIANT}
    names = next((s.names for s in kernel.selects if not wanted.isdisjoint(s.names)), ())
    decision = next((d for d in program.decisions if d.name == qualified(op.site, VARIANT)), None)
    if not op.others or decision is None or not (names or op.placed):  # an `any` op on one device has none
        return ()
    variants = variants_of(program, op)
    out = [replace(decision, values=tuple(v.answer for v in variants), chosen=op.answer)]
    for one in variants:
        out += [replace(d, variant=one.answer) for d in _open_of(program, one) if own_name(d.name) in names]
    return tuple(out)


def places_together(program: ir.Program) -> bool:
    """Whether the dag has `select device with dp()`: its ops are placed together."""
    return any(s.owner == "dag" and ir.DEVICE in s.names and s.method == ir.DP for s in program.selects)


def selects_device(program: ir.Program, op: ir.KernelOp) -> bool:
    """Whether the op's own kernel chooses its device when the program runs, for each call; its data then come from the
    host, and its results go there."""
    if places_together(program):
        return False
    kernel = program.kernel(op.kernel)
    return op.placed and any(ir.DEVICE in s.names for s in kernel.selects)


def variants_of(program: ir.Program, op: ir.KernelOp) -> tuple[ir.KernelOp, ...]:
    """The op with each of its implementations, in the order of the text."""
    others = (replace(op, device=o.device, variant=o.variant, unit=o.unit, tunables=o.tunables) for o in op.others)
    every = (op, *others)
    order = {one.device: one for one in every}
    answers = {device: answers_of(program, one) for device, one in order.items()}
    return tuple(sorted(every, key=lambda one: answers[one.device].index(one.answer)))


def variant_number(program: ir.Program, op: ir.KernelOp) -> int:
    """The index of the op's implementation in `answers_of`: its number in the emitted program."""
    return answers_of(program, op).index(op.answer)


def answers_of(program: ir.Program, op: ir.KernelOp) -> tuple[str, ...]:
    """All implementations of the op's kernel, of its device unless that is open, in the order of the text; those for
    further devices after them."""
    impls = program.kernel(op.kernel).impls
    if not op.placed:
        return tuple(i.name for i in impls if i.device is op.device)
    every = (replace(op, device=i.device, variant=i.name, unit=unit) for i, unit in ir.on_units(impls, program.devices))
    return tuple(one.answer for one in every)


def _open_of(program: ir.Program, op: ir.KernelOp) -> Iterator[ir.Decision]:
    """The tunables that can stay open under the op's variant."""
    kernel, impl = kernel_as_written(program, op)
    for name, decision in _choices(program, op):
        if _opens(impl, name, decision):
            yield replace(decision, chosen=dict(op.tunables)[name], axis=_axis(kernel, impl, name))


def is_open(program: ir.Program, op: ir.KernelOp) -> bool:
    """Whether `open_tunables` returns any for this op."""
    return any(True for _ in _open_of(program, op))


def stays_fixed(program: ir.Program, op: ir.KernelOp) -> tuple[str, ...]:
    """Tunables of an op that have several values and cannot stay open: values that are not whole numbers (choosers
    return integers), those of host code that launches its own kernels, sizes of scratch arrays, and tunables that
    `prepare` reads."""
    _, impl = kernel_as_written(program, op)
    return tuple(n for n, d in _choices(program, op) if len(d.values) > 1 and not _opens(impl, n, d))


def _choices(program: ir.Program, op: ir.KernelOp) -> tuple[tuple[str, ir.Decision], ...]:
    key = op.device, op.variant, op.unit
    of_variant = next((o.choices for o in op.others if (o.device, o.variant, o.unit) == key), program.decisions)
    declared = {d.name: d for d in of_variant}
    choices = ((name, declared.get(qualified(op.site, name))) for name, _ in op.tunables)
    return tuple((name, decision) for name, decision in choices if decision is not None)


def _opens(impl: ir.Impl, name: str, decision: ir.Decision) -> bool:
    whole = all(isinstance(v, int) for v in decision.values)  # bool is one
    sizes = any(name in free(d) for s in impl.scratch for d in s.dims if d is not None)
    prepare = impl.prepare
    converted = prepare is not None and name in names_read(prepare.text or "") | argument_names(prepare)
    return impl.launch is not None and len(decision.values) > 1 and whole and not sizes and not converted


def named_features(kernel: ir.Kernel, impl: ir.Impl, code: ir.CodeText) -> tuple[ir.Feature, ...]:
    """The features that a text of an implementation names, also by `let`s: further parameters of its function, in this
    order."""
    if code.text is None or not kernel.features:
        return ()
    read = set(names_read(code.text))
    for name, value in reversed((*kernel.lets, *impl.lets)):
        read |= free(value) if name in read else set()
    return tuple(f for f in kernel.features if f.name in read)


def conversion_of(program: ir.Program, op: ir.KernelOp) -> Hashable | None:
    """A key that is equal for ops that share a conversion: the same `prepare` with the same arguments, tunables and
    features. None without `const` scratch: each op then has its own scratch."""
    kernel, impl = kernel_as_written(program, op)
    if not impl.shares or impl.prepare is None:
        return None
    code = impl.prepare
    const = {a.name for a in program.arrays if a.role is Role.CONST}
    args = {f.name: a for f, a in zip(kernel.formals, op.args, strict=True)}
    given = {n for n, a in args.items() if not isinstance(a, ir.Region) or a.array in const}
    named = {name for s in impl.scratch if s.const for d in s.dims if d is not None for name in free(d)}
    named |= {*(given if code.text is None else names_read(code.text)), *argument_names(code)}
    seen = _with_definitions(kernel, impl, named, in_code=True)
    tunables = tuple((n, v) for n, v in op.tunables if n in seen)
    return op.kernel, op.device, op.unit, op.variant, tunables, tuple((n, a) for n, a in args.items() if n in seen)


def _with_definitions(kernel: ir.Kernel, impl: ir.Impl, names: Iterable[str], in_code: bool = False) -> set[str]:
    """The names, and those that their `let`s and features name; with `in_code`, also features in C++."""
    values: dict[str, Sym | ir.CodeText] = dict((*kernel.lets, *impl.lets))
    values |= {f.name: f.value for f in kernel.features}
    left, seen = list(names), set[str]()
    while left:
        name = left.pop()
        value = values.get(name) if name not in seen else None
        seen.add(name)
        if isinstance(value, ir.CodeText):
            left += names_read(value.text or "") if in_code else ()
        elif value is not None:
            left += free(value)
    return seen


def memory_parts(condition: Sym) -> tuple[Sym, ...]:
    """The parts of a conjunction that depend on the size of the memory."""
    if isinstance(condition, Apply) and condition.fn is Fn.AND:
        return tuple(part for one in condition.args for part in memory_parts(one))
    return (condition,) if "hw.memory" in free(condition) else ()


def needed_features(program: ir.Program, op: ir.KernelOp) -> tuple[CodeFeature, ...]:
    """The features in C++ that the implementation of an op needs: its code, launch, sizes of scratch, `require`s."""
    kernel, impl = kernel_as_written(program, op)
    sizes = (d for s in impl.scratch for d in s.dims if d is not None)
    launch = (*impl.launch.grid, impl.launch.shared or Const(0)) if impl.launch is not None else ()
    named = {name for expr in (*sizes, *launch, *kernel.requires, *impl.requires) for name in free(expr)}
    for code in (impl.code, impl.prepare):
        named |= {f.name for f in named_features(kernel, impl, code)} if code is not None else set()
    seen = _with_definitions(kernel, impl, named)
    return tuple(
        CodeFeature(feature_variable(op, f.name), op, f.value)
        for f in kernel.features
        if f.name in seen and isinstance(f.value, ir.CodeText)
    )


def first_features(program: ir.Program, opened: Opened, chooser: EmittedChoosers | None) -> frozenset[str]:
    """The code features that a program computes before its first run: those of its choices, and those of ops whose
    variant is not open; if it chooses during its runs, those of the defaults. Others (for the `require`s, sizes and
    code of a variant) are computed when that variant is considered, or in parallel with those of the choices."""
    ops = list(program.kernel_ops)
    asked: set[str] = set()
    if chooser is None:  # variants are set by the code that times them
        ops = list(opened.every_op(program))
    elif chooser.mode is not Features.BESIDE:
        if chooser.mode is Features.PARALLEL and chooser.constraints:
            ops = list(opened.every_op(program))
        else:
            ops = [op for op in ops if not opened.variants(op)]
        asked = {name for c in chooser.choices for f in c.features for name in free(f)}
    return frozenset(asked | {f.name for op in ops for f in needed_features(program, op)})


def feature_variable(op: ir.KernelOp, feature: str) -> str:
    """The name of a code feature's value for one op: `feature.spmv.longest`."""
    return f"{MEASURED}{op.name}.{feature}"


def first_equal(program: ir.Program, features: Iterable[CodeFeature]) -> dict[str, int]:
    """For each feature, by name, the number of the first one with the same code and arguments."""
    first: dict[Hashable, int] = {}
    out: dict[str, int] = {}
    for number, one in enumerate(features):
        formals = program.kernel(one.op.kernel).formals
        read = names_read(one.code.text or "")
        args = tuple((f.name, a) for f, a in zip(formals, one.op.args, strict=True) if f.name in read)
        out[one.name] = first.setdefault((one.op.kernel, one.code, args), number)
    return out


def argument_names(code: ir.CodeText) -> frozenset[str]:
    """The names in the template arguments of a function of a file."""
    return frozenset[str]().union(*(free(a) for a in code.arguments if not isinstance(a, ElementType)))


def may_be_settled(program: ir.Program, op: ir.KernelOp, unsettled: Collection[str] = ()) -> bool:
    """Whether no `require` of the kernel forbids the tunables of the op, as far as is known without sizes, the GPU, and
    the `unsettled` tunables."""
    kernel, impl = kernel_as_written(program, op)
    env: dict[str, Sym] = {d.name: Const(d.chosen) for d in program.decisions}
    env |= {n: Const(v) for n, v in op.tunables if n not in unsettled}
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    conditions = (substitute(condition, env) for condition in (*kernel.requires, *impl.requires))
    return all(not isinstance(condition, Const) or bool(condition.value) for condition in conditions)


def _axis(kernel: ir.Kernel, impl: ir.Impl, name: str) -> str:
    """The dimension of the block that is a tunable; "" if none is, or if C++ needs a constant in its place."""
    axes = (
        [axis for axis, size in zip(AXES, impl.launch.block, strict=False) if size == Var(name)] if impl.launch else []
    )
    if not axes or impl.code is None:
        return axes[0] if axes else ""
    if impl.code.text is None:  # a function of a file reads blockDim, unless it is a template of this tunable
        return "" if name in argument_names(impl.code) else axes[0]
    values = frozenset((*(f.name for f in kernel.formals), name))
    constant = constant_names(impl.code.text, values)
    return "" if constant is None or name in constant else axes[0]


# ---- plans ----

SCHEMA_VERSION = 1


class Target(Enum):
    """What the emitted code runs on."""

    CUDA = "cuda"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Plan:
    """`arch` is nvcc's name of the GPU architecture (`sm_90`); it means nothing on the host target.

    The program sets the values of `open` tunables when it runs, by `chooser` if there is one. `features` are those that
    are computed in C++. `period`: the folded graph and its traversal, which `traversal` unrolls; None if it was not
    made from one.
    """

    graph: ir.Graph
    traversal: Traversal
    target: Target
    arch: str = "sm_90"
    open: tuple[ir.Decision, ...] = ()
    chooser: EmittedChoosers | None = None
    features: tuple[CodeFeature, ...] = ()
    period: tuple[ir.Graph, Traversal] | None = None

    @property
    def program(self) -> ir.Program:
        return self.graph.program

    @property
    def computed(self) -> tuple[CodeFeature, ...]:
        """`features`, and then those that the sizes of scratch and `require`s depend on."""
        ops = Opened(self.open).every_op(self.program)
        needed = (one for op in ops for one in needed_features(self.program, op))
        return tuple({one.name: one for one in (*self.features, *needed)}.values())

    @property
    def capture(self) -> bool:
        """Whether regions of GPU ops are captured in CUDA graphs."""
        return any(d.name == "capture" and d.chosen is True for d in self.program.decisions)

    @property
    def loop(self) -> Tested | None:
        """What the device tests where it repeats the dag; None where the host does."""
        beside = self.chooser is not None and self.chooser.mode is Features.BESIDE
        return None if beside else on_device(self.graph)

    @property
    def decisions(self) -> tuple[tuple[str, ir.Value], ...]:
        """Every decision of the program, with the chosen value."""
        chosen = {d.name: d.chosen for d in self.program.decisions}
        chosen |= {"transport": self.graph.transport.value, "staging": self.graph.staging.value}
        chosen["streams"] = self.graph.streams
        return tuple(sorted(chosen.items()))


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The content of `plan.json`: enough to build the same graph again. `traversal` is text."""

    path: str
    sources: dict[str, str]
    params: dict[str, ir.Value]
    decisions: dict[str, ir.Value]
    target: Target
    arch: str
    program_hash: str
    traversal: str
    period: str = ""  # the traversal of the folded graph, where it was made from one


# ---- the program's hash ---------------------------------------------------------------------

_TOKENS = re.compile(
    r'"""(?P<code>.*?)"""|(?P<string>"(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/|(?P<space>\s+)|(?P<other>.)', re.DOTALL
)


def canonical_text(text: str) -> str:
    """A program's text without comments and layout, in its code too."""
    out: list[str] = []
    for match in _TOKENS.finditer(text):
        if match["code"] is not None:
            out.append(f'"""{tokens_of(match["code"])}"""')
        elif match["string"] is not None or match["other"] is not None:
            out.append(match.group())
        elif out and out[-1] != " ":
            out.append(" ")
    return "".join(out).strip()


def program_hash(program: ir.Program) -> str:
    """16 hexadecimal digits over the texts and the values of the parameters.

    Comments, layout and open decisions do not change it, so records of one program belong together.
    """
    code = {file.path for file in program.files}
    texts = [tokens_of(s.text) if p in code else canonical_text(s.text) for p, s in sorted(program.sources.items())]
    content = json.dumps([texts, list(program.param_values.items())])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


# ---- plan.json ------------------------------------------------------------------------------


def plan_to_json(plan: Plan) -> str:
    """The text of `plan.json`."""
    program = plan.program
    record = {
        "schema_version": SCHEMA_VERSION,
        "program": program.name,
        "program_hash": program_hash(program),
        "path": program.path,
        "target": plan.target.value,
        "arch": plan.arch,
        "params": program.param_values,
        "decisions": dict(plan.decisions),
        "traversal": traversal_text(plan.traversal, plan.graph),
        "sources": {path: source.text for path, source in sorted(program.sources.items())},
    }
    if plan.period is not None:
        graph, traversal = plan.period
        record["period"] = traversal_text(traversal, graph)
    return json.dumps(record, indent=2) + "\n"


def plan_inputs(text: str, name: str = "plan.json") -> PlanInputs:
    """Read `plan.json`. Raises UsageError, naming `name`, if it is not a plan of this schema."""
    import msgspec  # only for a plan in a file

    record = parsed_json(text, name, "write it again with `dagc compile`")
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        have = "no schema_version" if version is None else f"schema_version {version!r}"
        raise UsageError(f"{name}: {have}, expected {SCHEMA_VERSION}", "write it again with `dagc compile`")
    try:
        inputs = msgspec.convert(record, PlanInputs)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: not a plan: {error}", "write it again with `dagc compile`") from None
    for key in ("arch", "program_hash"):  # words of a command line, or displayed
        if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", getattr(inputs, key)):
            raise UsageError(f"{name}: not a plan: `{key}` is not one word", "write it again with `dagc compile`")
    return inputs


def plan_from_json(text: str, graph: ir.Graph, name: str = "plan.json") -> Plan:
    """The plan over `graph`, which was built from `plan_inputs(text)`.

    Raises UsageError if the text is not a plan or was written for another program.
    """
    inputs = plan_inputs(text, name)
    actual = program_hash(graph.program)
    if actual != inputs.program_hash:
        help = "compile the program again, or use the text in the plan"
        raise UsageError(f"{name}: written for program {inputs.program_hash}, this is {actual}", help)
    return Plan(graph, traversal_in(text, inputs.traversal, graph, name), inputs.target, inputs.arch)


def traversal_in(plan: str, traversal: str, graph: ir.Graph, name: str) -> Traversal:
    """A traversal that stands in the text of a plan, read. Errors give the place there. Raises UsageError."""
    before = plan[: max(0, plan.find(f'"{traversal}"') + 1)]
    at = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    return parse_traversal(traversal, graph, name, at)


# ---- values of two-sided arrays --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """The result of one write of an array, or of the set-up. It is copied to the other side at most once, as a whole.

    producer  the name of the op that writes it; None: the set-up, which places it on the host
    readers   the names of the ops that need it, in text order: they read it, or write a part of the array
    bytes     of the array, in per-rank scalars; None where its size comes with its data (`*`)
    ends_on_host  whether it must be on the host after the run
    """

    array: str
    bytes: Sym | None
    producer: str | None
    readers: tuple[str, ...] = ()
    ends_on_host: bool = False


def values_of(program: ir.Program) -> tuple[ArrayValue, ...]:
    """The values of one run that may be copied, in the order of their producers, for each array in the order of the
    program: of the arrays whose sides the program copies when it runs (`two_sided`). Constants are on both sides.

    Ops of one device are among the producers and readers. An op under a condition counts as if each rank ran it.
    """
    at_run_time = ir.two_sided(program.ops, program.arrays)
    arrays = (a for a in program.arrays if a.name in at_run_time and a.role is not Role.CONST)
    return tuple(value for array in arrays for value in _of(program, array))


def _of(program: ir.Program, array: ir.Array) -> list[ArrayValue]:
    size = _bytes(array)
    given = array.role in (Role.IN, Role.INOUT)
    values = [ArrayValue(array.name, size, None)] if given else []
    for op in program.ops:
        accesses = [a for a in op.accesses if a.region.array == array.name] if isinstance(op, ir.KernelOp) else []
        if values and any(a.keeps for a in accesses):
            values[-1] = replace(values[-1], readers=(*values[-1].readers, op.name))
        if any(a.mode is not Mode.IN for a in accesses):
            values.append(ArrayValue(array.name, size, op.name))
    if values and array.role in (Role.OUT, Role.INOUT):
        values[-1] = replace(values[-1], ends_on_host=True)
    return [value for value in values if value.readers or value.ends_on_host]


def _bytes(array: ir.Array) -> Sym | None:
    size: Sym = Const(array.type.size)
    for dim in array.dims:
        if dim is None:
            return None
        size = Apply(Fn.MUL, (size, dim))
    return substitute(size, {})


def users_of(program: ir.Program) -> tuple[ir.KernelOp, ...]:
    """The ops that use two-sided arrays and all ops whose device is placed, in text order."""
    at_run_time = ir.two_sided(program.ops, program.arrays)
    used = (op for op in program.kernel_ops if op.placed or any(a.region.array in at_run_time for a in op.accesses))
    return tuple(used)

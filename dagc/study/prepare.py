"""Preparation of tuning: the task, the library with its launch parameters open, the data of each size."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dagc.base.children import Workers
from dagc.base.errors import BuildFailed, DagcError, ProgramError, UsageError
from dagc.build import toolchain
from dagc.build.mpi import cores
from dagc.build.toolchain import TargetChoice, choose_target, find_nvcc, kernel_resources
from dagc.choice.feature import offered
from dagc.choice.legal import SHARED_LIMIT, fits, legal_settings, op_of, unit_in, units
from dagc.choice.types import Case, Unit
from dagc.cuda.lexer import names_used
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.emit import linked
from dagc.emit.kernels import Functions
from dagc.ir.choice import PROGRAM, VARIANT, Choice
from dagc.ir.plan import CodeFeature, Opened, OpenTunable, Plan, Target, needed_features
from dagc.ir.program import CodeText, Graph, Program, Value
from dagc.ir.sym import Number, evaluate
from dagc.lab.plans import ProgramSelect
from dagc.passes import build_graph
from dagc.perf.hardware import load_hardware
from dagc.setup import read_scalars, run_setup
from dagc.space import Space
from dagc.stages.artifacts import OpenChoices, build_artifact, proved_plan, write_sources
from dagc.stages.options import CaseOptions, SiteOptions, TuneOptions
from dagc.stages.program import ProgramText
from dagc.study.cases import Draws, bytes_of, has_inputs, parse_input, parse_inputs, parse_size, parse_sizes

# ---- the library that is measured ----


def build(task: TuningTask, folder: Path) -> Path:
    """The runner library with the launch parameters of all units open."""
    directory = folder / "program"
    return build_artifact(directory, _written(task, directory), "runner")


def _written(task: TuningTask, directory: Path) -> Plan:
    """The plan whose launch parameters are open, with its sources in a directory."""
    opened = OpenChoices(_open(task), features=computed_of(task))
    plan = opened.of(proved_plan(task.graph, Space(task.graph).first(), task.chosen))
    write_sources(plan, directory, force=True)
    return plan


def _open(task: TuningTask) -> tuple[OpenTunable, ...]:
    return tuple(t for u in task.units for t in u.tunables)


def computed_of(task: TuningTask) -> tuple[CodeFeature, ...]:
    """The code features that the program computes: those of its selectors, and those in `require`s and sizes of scratch
    of its variants."""
    out: dict[str, CodeFeature] = {}
    program = task.program
    for op, names in task.features.items():
        unit = next((u for u in task.units if u.op == op), None)
        if unit is not None and names:
            known = offered(program, op_of(task.graph, unit_in(task.graph, unit)))
            out |= {code.name: code for name in names if name in known for code in known[name].code}
    opened = Opened(_open(task))
    for one in opened.every_op(program):
        out |= {code.name: code for code in needed_features(program, one)}
    return tuple(out.values())


def resources_of(task: TuningTask, folder: Path) -> dict[str, Resources]:
    """`most_of` for nvcc's report on a task's kernels."""
    return most_of(task, compiled_resources(task, folder))


def compiled_resources(task: TuningTask, folder: Path) -> dict[str, Resources]:
    """Resources of each kernel function, by its name; empty without nvcc. Raises BuildFailed if it does not compile."""
    directory = folder / "resources"
    plan = _written(task, directory)
    return kernel_resources(directory / "kernels.cu", task.chosen.arch, linked(plan).include)


def most_of(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, Resources]:
    """Resources of the kernel of each unit, by op; if several are compiled for their tunables, the maxima, and the
    instructions of the one with the defaults, or of the first. An op that nvcc does not report is missing."""
    out = {}
    for unit in task.units:
        own = [compiled[name] for _, name in _functions_of(task, unit) if name in compiled]
        if own:
            most = {n: max(getattr(r, n) for r in own) for n in ("registers", "shared", "spills")}
            out[unit.op] = Resources(**most, instructions=own[0].instructions)
    return out


def of_settings(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, tuple[Resources, ...]]:
    """The same for each setting of a unit, by op, in the order of `task.settings`; for one that nvcc does not report,
    those of the unit."""
    most, out = most_of(task, compiled), {}
    for unit in task.units:
        constants = [t.name for t in unit.tunables if not t.axis]
        known = most.get(unit.op, ASSUMED)

        def key(values: Iterable[tuple[str, Any]], names: Sequence[str] = constants) -> tuple[Any, ...]:
            of = dict(values)
            return tuple(of.get(name) for name in names)

        resources = {key(tunables): compiled.get(name, known) for tunables, name in _functions_of(task, unit)}
        out[unit.op] = tuple(resources.get(key(s.own.items()), known) for s in task.settings[unit.op])
    return out


def _functions_of(task: TuningTask, unit: Unit) -> list[tuple[tuple[tuple[str, Value], ...], str]]:
    """(tunables, name) of the functions that the unit's kernel is compiled to, the one with the defaults first."""
    functions = Functions(task.graph, task.chosen.target, _open(task))
    op = op_of(task.graph, unit)
    settled = sorted(functions.settled(op), key=lambda one: one.tunables != op.tunables)
    return [(one.tunables, functions.name(one)) for one in settled]


def assumed(task: TuningTask, resources: Mapping[str, Resources]) -> list[str]:
    """A note about the units that nvcc does not report, on the CUDA target."""
    unknown = [u.op for u in task.units if u.op not in resources]
    if not unknown or task.chosen.target.value != "cuda":
        return []
    why = f"does not report them for {task.chosen.arch}" if find_nvcc() is not None else "was not found"
    what = f"{ASSUMED.registers} registers a thread are assumed, and instructions counted in the text"
    return [f"{', '.join(unknown)}: {what}, since nvcc {why}"]


def build_programs(
    task: TuningTask, folder: Path, side_by_side: Callable[..., Iterable[Any]]
) -> tuple[dict[Case, Path], TuningTask, list[str]]:
    """Build the library of each size; returns also the task without values that do not compile, and these as failures.

    Values that do not compile are found with the program of the size at which results are checked. `side_by_side`: as
    `map`.
    """
    first = task.graph_at(task.check_at)
    library, left, failures = build_what_compiles(_of(task, first), folder)
    task = replace(task, units=left.units, settings=left.settings)
    libraries = {id(first): library}
    others = {id(g): g for g in (task.graph_at(p) for p in task.cases) if g is not first}
    built = side_by_side(lambda item: build(_of(task, item[1]), folder / f"size-{item[0]}"), enumerate(others.values()))
    libraries |= zip(others, built, strict=True)
    return {p: libraries[id(task.graph_at(p))] for p in (task.check_at, *task.cases)}, task, failures


def _of(task: TuningTask, graph: Graph) -> TuningTask:
    """The task with the program of one of its sizes."""
    return replace(task, graph=graph)


def build_what_compiles(task: TuningTask, folder: Path) -> tuple[Path, TuningTask, list[str]]:
    """(library, task, failures): if a value of a constant tunable does not compile, the task excludes it.

    Raises BuildFailed if the program does not compile with its defaults either, or for another reason.
    """
    try:
        return build(task, folder), task, []
    except BuildFailed as error:
        left, failures = _without_what_fails(task, folder, error)
        return build(left, folder / "left"), left, failures


def _without_what_fails(task: TuningTask, folder: Path, error: BuildFailed) -> tuple[TuningTask, list[str]]:
    """Compile each value other than the default, with the other constants at their defaults; tunables of variants only
    for variants that compile. Raises `error` if no value is the cause."""
    failures: list[str] = []
    units = task.units
    for u, unit in enumerate(task.units):
        for tunable in unit.tunables:  # the variant is the first
            if tunable.variant and tunable.variant not in units[u].variants:
                continue
            good = []
            for value in tunable.values if not tunable.axis else ():
                one = tuple(_at_default(x, tunable) for x in task.units)
                one = _with_values(one, u, tunable, tuple(dict.fromkeys((tunable.default, value))))
                try:
                    build(replace(task, units=one), folder / f"{unit.op}-{tunable.variant}-{tunable.name}-{value}")
                    good.append(value)
                except BuildFailed as refused:
                    if value == tunable.default:
                        raise error from None
                    what = f"{tunable.variant} {tunable.name}".strip()
                    failures.append(f"{unit.op} {what}={value}: does not compile: {refused.first}")
            if not tunable.axis and len(good) < len(tunable.values):
                units = _with_values(units, u, tunable, tuple(good))
    if not failures:
        raise error
    settings = {x.op: tuple(s for s in task.settings[x.op] if s in set(x.every)) for x in units}
    return replace(task, units=units, settings=settings), failures


def _at_default(unit: Unit, open_tunable: OpenTunable) -> Unit:
    """The unit with the defaults of its constant tunables, and with the variant of `beside`."""

    def values(t: OpenTunable) -> tuple[Value, ...]:
        if t.axis:
            return t.values
        also = (open_tunable.variant,) if (t.op, t.name) == (open_tunable.op, VARIANT) and open_tunable.variant else ()
        return tuple(dict.fromkeys((t.default, *also)))

    return replace(unit, tunables=tuple(replace(t, values=values(t)) for t in unit.tunables))


def _with_values(
    units: tuple[Unit, ...], unit: int, tunable: OpenTunable, values: tuple[Value, ...]
) -> tuple[Unit, ...]:
    key = tunable.variant, tunable.name
    changed = tuple(replace(t, values=values) if (t.variant, t.name) == key else t for t in units[unit].tunables)
    return (*units[:unit], replace(units[unit], tunables=changed), *units[unit + 1 :])


# ---- what is tuned, and its data ----

DEFAULT_FLUSH = 128 << 20  # bytes: more than twice the L2 cache of any current GPU


@dataclass(frozen=True, slots=True)
class TuningTask:
    """The tuning task of one program: of the `units` of its kernels, or of whole programs with a `select` at the top,
    each of which is compiled by itself (`plans`).

    `settings` holds the legal ones of each unit, or of PROGRAM, the default first; `-D` of a task of whole programs is
    in `text`, without the values of what is selected; `check_at` is where results are compared with the
    reference. `ranks` run the program together. `data`: existing arrays of its one size, with references.
    `device_pointers`: the user asserts that this MPI accepts them. `graphs` are those of sizes at which the program
    differs from that of its defaults, since parameters in it are constants: `constants` names these. `features`: the
    arguments of the `select` of each op. `earlier`: cases at which nothing more is measured. `without`: what the
    target excludes, and why. `constraints`: whether `require`s of run-time values count, other than those on the
    memory. `compared`: whether results are compared with the reference at every case, since the objective has a metric
    of the results.
    """

    text: ProgramText
    chosen: TargetChoice
    graph: Graph
    units: tuple[Unit, ...]
    cases: tuple[Case, ...]
    settings: Mapping[str, tuple[Choice, ...]]
    check_at: Case
    seed: int = 0
    ranks: int = 1
    data: Path | None = None
    device_pointers: bool = False
    graphs: Mapping[Case, Graph] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earlier: tuple[Case, ...] = ()
    without: tuple[str, ...] = ()
    constraints: bool = True
    compared: bool = False
    select: ProgramSelect | None = None

    @property
    def program(self) -> Program:
        return self.graph.program

    @property
    def plans(self) -> tuple[Choice, ...]:
        """The settings of whole programs, the program's own first."""
        return self.settings[PROGRAM]

    def program_at(self, case: Case, plan: Choice | None = None) -> Program:
        """The program at a case, under a setting of whole programs (None: the default). Raises ProgramError."""
        decisions = plan if plan is not None or self.select is None else self.plans[0]
        return self.text.program({**dict(case.params), **(decisions or {})})

    def require_same_at(self, case: Case) -> None:
        """Raises UsageError if the program is compiled to different code at a case, although one has to serve all."""
        program = self.program if self.select is None else self.program_at(self.check_at)
        if compiled_part(self.program_at(case)) != compiled_part(program):
            raise another_program(case)

    def references(self) -> dict[Choice, list[Choice]]:
        """The settings of whole programs by the first one that has the same references."""
        out: dict[Choice, list[Choice]] = {}
        seen: dict[Any, Choice] = {}
        for s in self.plans:
            program = self.program_at(self.check_at, s)
            out.setdefault(seen.setdefault((program.setup, program.verifies), s), []).append(s)
        return out

    def graph_at(self, case: Case) -> Graph:
        return self.graphs.get(case, self.graph)


@dataclass(frozen=True, slots=True)
class AtCase:
    """The program at one size: its data, the values of its scalars, how often it repeats. `constants`: values of the
    parameters that make the program differ from that of other sizes. `computed`: code features of rank 0, by name."""

    case: Case
    data: Path
    scalars: Mapping[str, Number]
    repeats: int
    fits: Mapping[str, tuple[Choice, ...]]
    constants: Mapping[str, int] = field(default_factory=dict)
    computed: Mapping[str, float] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Number]:
        """The values that a chooser uses: numbers of rank 0, and parameters that are constants of the program."""
        return {**self.scalars, **self.constants, **self.computed}


@dataclass(slots=True)
class Prepared:
    """Ready to be measured: the runner library and the data of every size. `libraries`: those of sizes at which the
    program differs. `failures`: settings that do not compile."""

    task: TuningTask
    library: Path
    at: dict[Case, AtCase] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    libraries: dict[Case, Path] = field(default_factory=dict)

    def library_at(self, case: Case) -> Path:
        return self.libraries.get(case, self.library)


# ---- what is to be tuned --------------------------------------------------------------------


def tuning_task(
    text: ProgramText,
    options: TuneOptions | None = None,
    *,
    earlier: Iterable[Case] = (),
    test: bool = False,
    cases: tuple[Case, ...] | None = None,
    **fields: Any,
) -> TuningTask:
    """What is to be tuned, at `points_asked` by the options, or at `cases`. `earlier`: sizes of a file that is
    resumed; those at which the program is the same count for the choosers too. `fields` of the options may be given by
    name.

    Raises ProgramError and UsageError.
    """
    options = replace(options or TuneOptions(), **fields)
    chosen = choose_target(options.target, options.arch or named_arch(options.gpu))
    text, without, graph, tuned_units = _opened_on(chosen, text, options)
    if options.target is None and chosen.target is Target.HOST and not any(u.variants for u in tuned_units):
        chosen = replace(chosen, target=Target.CUDA)  # times of a CPU say nothing about the blocks of a GPU
        text, without, graph, tuned_units = _opened_on(chosen, text, options)
    if cases is None:
        cases = cases_asked(text, graph.program, options, test)
    check = check_case(graph.program, cases, options.check_at)
    graphs = _graphs(text, graph, tuple(dict.fromkeys((check, *compared_first(cases, options)))))
    asked = set(cases)
    before = tuple(p for p in dict.fromkeys(earlier) if p not in asked and same_at(text, graph, p))
    settings: dict[str, tuple[Choice, ...]] = {}
    for one in (graph, *_distinct(graphs.values())):
        for op, legal in _legal(one, [unit_in(one, u) for u in tuned_units], chosen).items():
            settings[op] = tuple(dict.fromkeys((*settings.get(op, ()), *legal)))
    without = (*without, *(f"op `{u.op}`: {NOT_LEGAL}" for u in tuned_units if u.op not in settings))
    tuned_units = tuple(u for u in tuned_units if u.op in settings)
    return TuningTask(
        text, chosen, graph, tuned_units, (*cases, *before), settings, check, options.seed, options.ranks,
        graphs=graphs, earlier=before, without=without, constraints=options.constraints,
        constants=tuple(sorted({n for p in cases for n, _ in p.params})) if graphs else (),
    )  # fmt: skip


def _opened_on(
    chosen: TargetChoice, text: ProgramText, options: SiteOptions
) -> tuple[ProgramText, tuple[str, ...], Graph, tuple[Unit, ...]]:
    """The text for a target, what that excludes, its graph, and the units to tune."""
    text, without = text.on(chosen.target)
    text = text.with_open_devices()
    graph = text.graph()
    return text, without, graph, units(graph, options.kernels, variants=True)


def same_at(text: ProgramText, graph: Graph, case: Case) -> bool:
    """Whether the program at a size is that of `graph`."""
    try:
        return compiled_part(text.program(dict(case.params))) == compiled_part(graph.program)
    except DagcError:
        return False


def another_program(case: Case) -> UsageError:
    """The error for an input at which the program is compiled differently although one compiled program has to serve
    all."""
    return UsageError(
        f"at {case.text} the program compiles to different code, so one program cannot serve all inputs",
        "make sizes per-rank scalars (`scalar n : i64`) that the set-up sets from the parameter",
    )


MOST_PROGRAMS = 16
COMPARED = 8  # inputs of a list, or drawn ones, whose programs are compared before anything is measured


def compared_first(cases: Sequence[Case], options: CaseOptions) -> tuple[Case, ...]:
    """The cases at which the program is compared with that of the others before anything is measured: all sizes; of
    inputs that are listed or drawn, of which most may never be measured, the first ones, and the first ones that differ
    in their sizes. The others are compared when they are visited."""
    if options.samples is None and not any(case.is_input for case in cases):
        return tuple(cases)
    by_sizes: dict[tuple[tuple[str, int], ...], Case] = {}
    for case in cases:
        by_sizes.setdefault(tuple(case.sizes.items()), case)
    return tuple(dict.fromkeys((*cases[:COMPARED], *list(by_sizes.values())[:COMPARED])))


def _graphs(text: ProgramText, graph: Graph, cases: Sequence[Case]) -> dict[Case, Graph]:
    """The graphs of sizes at which the program differs from that of `graph`, one graph for all sizes that agree.

    A size that cannot be lowered is reported by `at_point`. Raises UsageError for too many programs, ProgramError if no
    size can be lowered.
    """
    known: list[tuple[Program, Graph]] = [(compiled_part(graph.program), graph)]
    out: dict[Case, Graph] = {}
    failed: list[ProgramError] = []
    for case in cases:
        try:
            program = text.program(dict(case.params))
        except ProgramError as error:
            failed.append(error)
            continue
        part = compiled_part(program)
        same = next((g for p, g in known if p == part), None)
        if same is None:
            same = build_graph(program)
            known.append((part, same))
        if same is not graph:
            out[case] = same
    if len(failed) == len(cases):
        raise failed[0]
    programs = len(_distinct([out.get(p, graph) for p in cases]))
    if programs > MOST_PROGRAMS:
        raise UsageError(
            f"{programs} sizes, each of which needs its own compilation: more than {MOST_PROGRAMS}",
            "name fewer, or make sizes per-rank scalars (`scalar n : i64`) that the set-up sets from the parameter: one"
            " compiled program then serves all",
        )
    return out


def compiled_part(program: Program) -> Program:
    """The parts of a program that determine its compilation: programs that agree in them can share a library. Includes
    only the params and `let`s that code uses, which are constants in it."""
    used = frozenset[str]().union(*(names_used(code.text) for code in _codes(program) if code.text is not None))
    params = tuple(replace(p, over=(), files="", spread=None) for p in program.params if p.name in used)
    lets = tuple(let for let in program.lets if let[0] in used)
    return replace(program, params=params, lets=lets, setup=None, verifies=(), domain=())


def _codes(program: Program) -> Iterator[CodeText]:
    """All code of a program."""
    yield from program.code
    for kernel in program.kernels:
        yield from (code for impl in kernel.impls for code in (impl.code, impl.prepare) if code is not None)
    features = (*program.features, *(f for kernel in program.kernels for f in kernel.features))
    yield from (f.value for f in features if isinstance(f.value, CodeText))


def _distinct(graphs: Iterable[Graph]) -> list[Graph]:
    return list({id(g): g for g in graphs}.values())


def task_as_given(
    text: ProgramText, graph: Graph, chosen: TargetChoice, ranks: int, data: Path, device_pointers: bool = False
) -> TuningTask:
    """A task of everything open in a graph, to be tuned at the one size of its program, with existing arrays.

    Raises UsageError if nothing is open.
    """
    settings, here = _legal(graph, units(graph), chosen), Case(())
    tuned_units = tuple(u for u in units(graph) if u.op in settings)
    return TuningTask(
        text, chosen, graph, tuned_units, (here,), settings, here, ranks=ranks, data=data,
        device_pointers=device_pointers,
    )  # fmt: skip


_HOST_SHARED = 227 << 10  # bytes of a block, as templates/runtime/dagc/host_lanes.hpp has it


NOT_LEGAL = "no value of its tunables is legal"


def limits_of(chosen: TargetChoice) -> dict[str, int]:
    """The limits of a block, for `legal_settings`; for a GPU without a descriptor, those of every GPU."""
    shared = _HOST_SHARED
    if chosen.gpu_arch is not None:
        try:
            hardware = load_hardware(chosen.gpu_arch)
            shared = max(SHARED_LIMIT, hardware.shared_per_multiprocessor - hardware.shared_reserved_per_block)
        except UsageError:
            shared = SHARED_LIMIT
    return {
        "max_threads_per_block": 1024, "shared_per_block": SHARED_LIMIT, "most_shared_per_block": shared,
        "warp_size": 32,
    }  # fmt: skip


def _legal(graph: Graph, units: Iterable[Unit], chosen: TargetChoice) -> dict[str, tuple[Choice, ...]]:
    """The legal settings by op, without ops that have none. Raises UsageError if no op has one."""
    limits = limits_of(chosen)
    settings = {u.op: legal_settings(graph, u, limits) for u in units}
    nonempty = {op: legal for op, legal in settings.items() if legal}
    if settings and not nonempty:
        raise UsageError(
            f"op `{next(iter(settings))}`: {NOT_LEGAL}",
            f"check its `require`s; a block has at most {limits['max_threads_per_block']} threads and"
            f" {limits['most_shared_per_block'] >> 10} KiB of shared memory",
        )
    return nonempty


def volume(case: Case) -> tuple[float, str]:
    """An order of sizes, the smallest first."""
    return math.prod(map(float, case.sizes.values())), case.text


def named_arch(gpu: str | None) -> str | None:
    """The architecture of the named GPU, for which its kernels are compiled. Raises UsageError for an unknown one."""
    return load_hardware(gpu).arch if gpu is not None else None


def draws_of(text: ProgramText, program: Program, options: TuneOptions, test: bool = False) -> Draws:
    """What `--samples` draws from: params without a value of `-D`. Raises UsageError."""
    fixed = [p.name for p in program.params if p.name in text.defines]
    return Draws(program, options.seed, fixed, options.inputs, test)


def samples_of(options: TuneOptions) -> int | None:
    """How many inputs are drawn before any is measured: with `--active`, those at random. Raises UsageError."""
    if not options.active:
        return options.samples
    from dagc.study.sampling import Sampling  # loads msgspec

    if options.samples is None:
        raise UsageError("--active draws inputs up to the number in --samples", "add --samples 200")
    if options.incremental:
        raise UsageError("--active draws inputs, --incremental takes them from a list", "give one of them")
    return Sampling.of(options.samples, options.initial, options.batch, options.margin).initial


def cases_asked(text: ProgramText, program: Program, options: TuneOptions, test: bool = False) -> tuple[Case, ...]:
    """`points_of` the sizes and inputs of the options, or so many `samples`, others where they are to `test`. Raises
    UsageError."""
    samples = options.samples if test else samples_of(options)
    if samples is None:
        return cases_of(program, options.sizes, options.inputs, text.defines)
    if options.sizes:
        raise UsageError("--sizes names sizes, and --samples draws them", "give one of them")
    return draws_of(text, program, options, test).take(samples)


def single_values(defines: Mapping[str, Any]) -> dict[str, Any]:
    """The values of -D without choices among several values (`-D m=4,8`)."""
    return {n: v for n, v in defines.items() if "," not in str(v)}


def cases_of(program: Program, sizes: str, inputs: Sequence[str] = (), fixed: Collection[str] = ()) -> tuple[Case, ...]:
    """The cases of the texts; without a text, the values after `over`, combined in order, and the files of `over
    files`; else the defaults. Inputs are combined with all sizes. `fixed`: params with one value, given by -D."""
    of_sizes = parse_sizes(sizes, program) if sizes else _sizes_over(program, fixed)
    if not inputs and not has_inputs(program, fixed):
        return of_sizes
    given = parse_inputs(inputs, program)
    return tuple(Case.of({**dict(one.params), **dict(size.params)}) for one in given for size in of_sizes)


def _sizes_over(program: Program, fixed: Collection[str]) -> tuple[Case, ...]:
    over = (p for p in program.params if p.over and p.name not in fixed)
    trained = {p.name: p.over for p in over if all(type(v) in (int, float, str) for v in p.over)}
    if not trained:
        return (Case(()),)
    longest = max(len(v) for v in trained.values())
    values = ({n: v[min(i, len(v) - 1)] for n, v in trained.items()} for i in range(longest))
    return tuple(dict.fromkeys(map(Case.of, values)))


def check_case(program: Program, cases: Sequence[Case], text: str) -> Case:
    """The case at which results are compared with the reference: the named one, else the smallest size, or the
    smallest file among the inputs (the first input if all are calls)."""
    if text and any(case.is_input for case in cases):
        return parse_input(text, program, "--check-at")
    if text:
        return parse_size(text, program, "--check-at")
    if any(case.is_input for case in cases):
        return min(cases, key=lambda case: bytes_of(case, program))
    return min(cases, key=volume)


# ---- made ready -----------------------------------------------------------------------------


def prepare(task: TuningTask, folder: Path, jobs: int | None = None) -> Prepared:
    """Build the library and write the data of each size, in parallel. Runs the program's Python code."""
    every = list(dict.fromkeys((task.check_at, *task.cases)))
    with Workers(jobs or cores()) as pool:
        written = [pool.submit(_tried, task, p, folder) for p in every]
        at, notes = _usable_cases(task, [w.result() for w in written], (task.check_at,))
        there = {a.case for a in at}
        here = replace(task, cases=tuple(p for p in task.cases if p in there))
        libraries, here, failures = build_programs(here, folder, pool.map)
    if failures:
        at = [only(a, here.settings) for a in at]
    notes = [*(f"without {what}" for what in task.without), *notes, *_compiled_apart(here)]
    out = Prepared(here, libraries[here.check_at], {a.case: a for a in at}, notes, failures, libraries)
    for a in at:
        for unit in here.units:
            if not a.fits[unit.op]:
                out.notes.append(f"{unit.op} at {a.case.text}: nothing to launch, skipped")
    return out


def _compiled_apart(task: TuningTask) -> list[str]:
    programs = len(_distinct(task.graph_at(p) for p in (task.check_at, *task.cases)))
    if programs == 1:
        return []
    why = (
        "sizes are constants in it; as per-rank scalars (`scalar n : i64`), which the set-up sets, one would serve all"
    )
    return [f"{programs} programs were compiled, since {why}"]


def unbuilt(task: TuningTask, folder: Path) -> Prepared:
    """Only the data of each size, without references, if nothing is measured. Runs the program's Python code."""
    at, notes = _usable_cases(task, [_tried(task, p, folder, False) for p in task.cases], ())
    there = {a.case for a in at}
    cases = tuple(p for p in task.cases if p in there)
    notes = [*(f"without {what}" for what in task.without), *notes]
    return Prepared(replace(task, cases=cases), Path(), {a.case: a for a in at}, notes)


def _tried(task: TuningTask, case: Case, folder: Path, compared: bool = True) -> AtCase | tuple[Case, DagcError]:
    try:
        return at_case(task, case, folder, compared)
    except DagcError as error:
        return case, error


def _usable_cases(
    task: TuningTask, tried: Sequence[AtCase | tuple[Case, DagcError]], needed: Sequence[Case]
) -> tuple[list[AtCase], list[str]]:
    """Sizes that the set-up accepts, and notes on the others. Raises its error for a size that is `needed`, and if no
    size remains."""
    at = [a for a in tried if isinstance(a, AtCase)]
    failed = [f for f in tried if not isinstance(f, AtCase)]
    for case, error in failed:
        if case in needed or not any(a.case in task.cases for a in at):
            raise error
    return at, [f"{case.text}: skipped: {' '.join(str(error).split())}" for case, error in failed]


def only(at: AtCase, settings: Mapping[str, tuple[Choice, ...]]) -> AtCase:
    """The same task with some of the settings."""
    return replace(at, fits={op: tuple(s for s in fits if s in settings[op]) for op, fits in at.fits.items()})


def at_case(task: TuningTask, case: Case, folder: Path, compared: bool = True) -> AtCase:
    """Write the data of one size, and read its scalars. References are computed only if results are `compared` at this
    case."""
    data = task.data
    if data is None:
        program = task.text.program(dict(case.params))
        data = folder / f"data-{_digest(case)}"
        references = compared and (task.compared or case == task.check_at)
        run_setup(program, task.text.path.parent, task.ranks, task.seed, data, references=references)
    return read_case(task, case, data)


def read_case(task: TuningTask, case: Case, data: Path) -> AtCase:
    """The program at one size, whose arrays lie in `data`."""
    program = task.graph_at(case).program
    scalars = read_scalars(program, data, task.ranks)
    at = AtCase(
        case, data, {**scalars, "rank": 0, "ranks": task.ranks}, repeats_of(program, scalars), {},
        {name: value for name, value in case.sizes.items() if name in task.constants},
    )  # fmt: skip
    return replace(at, fits=fitting(task, at))


def fitting(task: TuningTask, at: AtCase, memory: int | None = None) -> dict[str, tuple[Choice, ...]]:
    """The settings of each unit that may be launched at a case: by its scalars, computed features, and the memory of
    the device (None: that of this machine)."""
    graph = task.graph_at(at.case)
    values = {**at.scalars, **at.computed, "hw.memory": _memory(task) if memory is None else memory}
    units = [unit_in(graph, u) for u in task.units]
    return {u.op: tuple(s for s in task.settings[u.op] if fits(graph, u, s, values, task.constraints)) for u in units}


def _memory(task: TuningTask) -> int:
    """Bytes of memory of the device, or of the machine on the host target, as in the running program."""
    here = toolchain.gpus() if task.chosen.target is Target.CUDA else ()
    return here[0].memory if here else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def _digest(case: Case) -> str:
    """A name for a directory: values may be paths."""
    return blake2b(repr(case.params).encode(), digest_size=8).hexdigest()


def repeats_of(program: Program, scalars: Mapping[str, Number]) -> int:
    """The number of runs of the dag: 1 without `repeat`."""
    return max(1, int(evaluate(program.repeat, scalars))) if program.repeat is not None else 1

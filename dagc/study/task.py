"""The task of tuning: what is open in a program, the legal choices, the cases, and where results are checked.

Of a whole program, the `select` at its top names the decisions that are open: a setting assigns each a value, and each
is compiled once, for all sizes. Measurements are stored as cells of the op PROGRAM. Times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from dagc.base.errors import DagcError, ProgramError, Severity, UsageError
from dagc.build.toolchain import TargetChoice, choose_target
from dagc.choice.feature import asked_features
from dagc.choice.legal import SHARED_LIMIT, check_in, legal_settings, open_sites
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.choice.types import Case, Site
from dagc.cuda.lexer import names_used
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.enums import ElementType
from dagc.ir.names import mangle
from dagc.ir.plan import Target
from dagc.ir.program import CodeText, Graph, Program, Select, Value
from dagc.ir.sym import free
from dagc.lab.configurations import open_decisions
from dagc.passes import build_graph
from dagc.perf.hardware import load_hardware
from dagc.stages.options import CaseOptions, TuneOptions
from dagc.stages.program import ProgramText
from dagc.study.cases import cases_asked, check_case, single_values

METHODS = (*LEARNED, EXHAUSTIVE)
_NUMBERS = {t for t in ElementType if t is not ElementType.BOOL}


def program_select(program: Program) -> Select | None:
    """The program-level `select`, None if there is none. Raises UsageError for several, or unsuitable features."""
    selects = [s for s in program.selects if s.owner == ""]
    if not selects:
        return None
    if len(selects) > 1:
        raise UsageError("the program has more than one `select` at its top", "name all decisions in one")
    (item,) = selects
    known = numbers(program)
    features = asked_features(program, None, item.args)
    for name in sorted(set().union(*(free(f.expression) for f in features))):
        if name not in known:
            names = ", ".join(sorted(known)) or "the program has none: declare `scalar n : i64`"
            raise UsageError(
                f"`select ... with {item.method}(...)` uses `{name}`, which is not a numeric scalar",
                f"name scalars of the program ({names})",
            )
    if not features:
        raise UsageError(f"`select ... with {item.method}()` has no data", "name the scalars it depends on: knn(n)")
    return item


def numbers(program: Program) -> frozenset[str]:
    """Names of the per-rank scalars that are numbers."""
    return frozenset(s.name for s in program.scalars if s.type in _NUMBERS)


def plan_label(choice: Choice) -> str:
    """`m8-chunks4-streams4`: the name of a plan's directory. Plans differ in values alone, not in names."""
    return "-".join(mangle(f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}{value}") for name, value in choice.items())


@dataclass(frozen=True, slots=True)
class TuningTask:
    """The tuning task of one program: of the `sites` of its kernels, or of PROGRAM, with a `select` at the top: whole
    programs, each of which is compiled by itself (`plans`).

    `-D` of a task of whole programs is in `text`, without the values of what is selected; `check_at` is where results
    are compared with the reference. `ranks` run the program together. `data`: existing arrays of its one size, with
    references. `device_pointers`: the user asserts that this MPI accepts them. `graphs` are those of sizes at which the
    program differs from that of its defaults, since parameters in it are constants: `constants` names these.
    `features`: the arguments of the `select` of each site. `earlier`: cases at which nothing more is measured.
    `without`: what the target excludes, and why. `constraints`: whether `require`s of run-time values count, other than
    those on the memory. `compared`: whether results are compared with the reference at every case, since the objective
    has a metric of the results.
    """

    text: ProgramText
    chosen: TargetChoice
    graph: Graph
    sites: tuple[Site, ...]
    cases: tuple[Case, ...]
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

    @property
    def program(self) -> Program:
        return self.graph.program

    @property
    def of_programs(self) -> bool:
        """Whether whole programs are tuned."""
        return PROGRAM in self.choices

    @property
    def choices(self) -> dict[str, tuple[Choice, ...]]:
        """What may be chosen at each site, the program's own choice first."""
        return {site.name: site.choices for site in self.sites}

    @property
    def plans(self) -> tuple[Choice, ...]:
        """The choices for whole programs, the program's own first."""
        return self.choices[PROGRAM]

    def program_at(self, case: Case, plan: Choice | None = None) -> Program:
        """The program at a case, under a setting of whole programs (None: the default). Raises ProgramError."""
        decisions = self.plans[0] if plan is None and self.of_programs else plan
        return self.text.program({**dict(case.params), **(decisions or {})})

    def require_same_at(self, case: Case) -> None:
        """Raises UsageError if the program is compiled to different code at a case, although one has to serve all."""
        program = self.program_at(self.check_at) if self.of_programs else self.program
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


def tuning_task(
    text: ProgramText,
    options: TuneOptions | None = None,
    *,
    earlier: Iterable[Case] = (),
    test: bool = False,
    cases: tuple[Case, ...] | None = None,
    **fields: Any,
) -> TuningTask:
    """What is to be tuned, at `cases_asked` by the options, or at `cases`. `earlier`: sizes of a file that is
    resumed; those at which the program is the same count for the choosers too. `fields` of the options may be given by
    name.

    Raises ProgramError and UsageError.
    """
    options = replace(options or TuneOptions(), **fields)
    chosen = choose_target(options.target, options.arch or named_arch(options.gpu))
    text, without, graph, tuned_sites = _opened_on(chosen, text, options)
    if options.target is None and chosen.target is Target.HOST and not any(site.variants for site in tuned_sites):
        chosen = replace(chosen, target=Target.CUDA)  # times of a CPU say nothing about the blocks of a GPU
        text, without, graph, tuned_sites = _opened_on(chosen, text, options)
    if cases is None:
        cases = cases_asked(text, graph.program, options, test)
    check = check_case(graph.program, cases, options.check_at)
    graphs = _graphs(text, graph, tuple(dict.fromkeys((check, *compared_first(cases, options)))))
    asked = set(cases)
    before = tuple(p for p in dict.fromkeys(earlier) if p not in asked and same_at(text, graph, p))
    for one in (graph, *distinct(graphs.values())):
        tuned_sites = _with_legal(one, tuned_sites, chosen)
    without = (*without, *(f"op `{site.name}`: {NOT_LEGAL}" for site in tuned_sites if not site.choices))
    return TuningTask(
        text, chosen, graph, _choosing(tuned_sites), (*cases, *before), check, options.seed, options.ranks,
        graphs=graphs, earlier=before, without=without, constraints=options.constraints,
        constants=tuple(sorted({n for p in cases for n, _ in p.params})) if graphs else (),
    )  # fmt: skip


def _opened_on(
    chosen: TargetChoice, text: ProgramText, options: TuneOptions
) -> tuple[ProgramText, tuple[str, ...], Graph, tuple[Site, ...]]:
    """The text for a target, what that excludes, its graph, and the sites to tune."""
    text, without = text.on(chosen.target)
    text, left = text.under(options.forms)
    text, without = replace(text, forms=options.opens_forms(chosen.target is Target.CUDA)), (*without, *left)
    text = text.with_open_devices()
    graph = text.graph()
    return text, without, graph, open_sites(graph, options.kernels, variants=True)


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

    A size that cannot be lowered is reported by `at_case`. Raises UsageError for too many programs, ProgramError if no
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
    programs = len(distinct([out.get(p, graph) for p in cases]))
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


def distinct(graphs: Iterable[Graph]) -> list[Graph]:
    return list({id(g): g for g in graphs}.values())


def task_as_given(
    text: ProgramText, graph: Graph, chosen: TargetChoice, ranks: int, data: Path, device_pointers: bool = False
) -> TuningTask:
    """A task of everything open in a graph, to be tuned at the one size of its program, with existing arrays.

    Raises UsageError if nothing is open.
    """
    sites, here = _choosing(_with_legal(graph, open_sites(graph), chosen)), Case(())
    return TuningTask(
        text, chosen, graph, sites, (here,), here, ranks=ranks, data=data, device_pointers=device_pointers
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


def _with_legal(graph: Graph, sites: Sequence[Site], chosen: TargetChoice) -> tuple[Site, ...]:
    """The sites with the choices that are legal in this graph too. Raises UsageError if none is at any site, or if a
    site is not in the graph with the same variants."""
    limits = limits_of(chosen)
    for site in sites:
        check_in(graph, site)
    legal = [legal_settings(graph, site, limits) for site in sites]
    if sites and not any(legal):
        raise UsageError(
            f"op `{sites[0].name}`: {NOT_LEGAL}",
            f"check its `require`s; a block has at most {limits['max_threads_per_block']} threads and"
            f" {limits['most_shared_per_block'] >> 10} KiB of shared memory",
        )
    both = zip(sites, legal, strict=True)
    return tuple(replace(site, choices=tuple(dict.fromkeys((*site.choices, *here)))) for site, here in both)


def _choosing(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Those with a choice."""
    return tuple(site for site in sites if site.choices)


def named_arch(gpu: str | None) -> str | None:
    """The architecture of the named GPU, for which its kernels are compiled. Raises UsageError for an unknown one."""
    return load_hardware(gpu).arch if gpu is not None else None


def program_task(text: ProgramText, options: TuneOptions, test: bool = False) -> TuningTask:
    """Text -> task of whole programs. `-D m=4,8` leaves some values of a decision that the program selects.

    Raises ProgramError and UsageError.
    """
    chosen = choose_target(options.target, options.arch)
    text, _ = text.on(chosen.target)
    plain = single_values(options.defines)
    plain_text = text.with_defines(plain)
    program = plain_text.program()
    select = program_select(program)
    assert select is not None
    several = {n: str(v) for n, v in options.defines.items() if n not in plain}
    for name, words in several.items():
        if name not in select.names:
            raise UsageError(
                f"-D {name}={words}: give one value", f"only these take several: {', '.join(select.names)}"
            )
    values = plan_values(program, select, several)
    plans = legal_plans(plain_text.program, values)
    default = Choice(tuple((n, program.decision(n)) for n in select.names))
    cases = cases_asked(plain_text, program, options, test)
    fixed = {n: v for n, v in plain.items() if n not in select.names}
    site = Site(PROGRAM, tuple(sorted(plans, key=default.__ne__)))
    check = check_case(program, cases, options.check_at)
    task = TuningTask(
        text.with_defines(fixed), chosen, build_graph(program), (site,), cases, check, options.seed,
        features={PROGRAM: tuple(f.name for f in asked_features(program, None, select.args))},
    )  # fmt: skip
    for case in compared_first(cases, options):
        task.require_same_at(case)
    return task


def plan_values(program: Program, select: Select, several: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    opened = [f"{n}={several[n]}" if n in several else n for n in select.names]
    decisions = open_decisions(program, opened, ())
    return {n: decisions[n] for n in select.names}


def legal_plans(
    build: Callable[[Mapping[str, Value]], Program], values: Mapping[str, Sequence[Value]]
) -> tuple[Choice, ...]:
    """Combinations that every `require` known now allows, in the order of the program."""
    out: list[Choice] = []
    reason = ""
    for combination in product(*values.values()):
        choice = Choice(tuple(zip(values, combination, strict=True)))
        try:
            build(choice)
        except ProgramError as error:
            reason = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        else:
            out.append(choice)
    if not out:
        raise UsageError(f"no setting of {', '.join(values)} is legal: {reason}", "check its `require`s")
    return tuple(out)

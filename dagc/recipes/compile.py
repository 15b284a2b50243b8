"""The recipe of `dagc compile`: text -> graph -> traversal -> plan -> sources -> binary -> times."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dagc.base.errors import RunFailed, UsageError, WrongResult
from dagc.build.ranks import rank_among, ranks_or_default
from dagc.build.toolchain import TargetChoice, choose_target
from dagc.emit.layout import promises
from dagc.ir.plan import Features, open_variants, plan_from_json, plan_inputs
from dagc.ir.program import Device, KernelOp
from dagc.ir.traversal import Traversal, parse_traversal
from dagc.lang.code import where_to_look
from dagc.report.display import SILENT, Display
from dagc.report.stages import NOTHING_PRINTED, Printer
from dagc.space import Space, TooManyStates
from dagc.space.loops import is_folded_text
from dagc.stages.artifacts import Compiled, OpenChoices, Running, build_artifact, compile_traversal
from dagc.stages.options import CompileOptions
from dagc.stages.program import read, read_source

if TYPE_CHECKING:
    from dagc.ir.program import Graph
    from dagc.report.limits import LimitRow
    from dagc.store.tuned import Tuned


# Limit of states, a few seconds, to find the ID of a traversal that was given as text.
_ID_STATES = 20_000
_ID_DIGITS = 4300  # limit for Python's conversion to one number


def compile(
    path: str | Path, out: str | Path | None = None, options: CompileOptions | None = None, *,
    display: Display = SILENT, printer: Printer = NOTHING_PRINTED, **fields: Any,
) -> Compiled:  # fmt: skip
    """Compile a `.dag` file into `out` (default: `dagc-out/PROGRAM`); with `run`, also set it up, check it and time it.

    `fields` of the options may be given by name: `compile("spmv.dag", target="host", run=True)`. `printer` gets the
    program after each stage.
    """
    options = replace(options or CompileOptions(), **fields)
    options = replace(options, build=options.build or options.run)
    how = Running(ranks_or_default(options.ranks), options, display)
    rank = _rank(how, options.form) if options.run else None
    chosen, tuned = choose_target(options.target, options.arch), _tuned(options.launch)
    mode = _mode(options, tuned)
    if tuned is not None and _chooses_plans(tuned, options.form):
        from dagc.study.plans import compile_plans  # only with --launch

        if printer.stages:
            raise UsageError(
                f"--print-after: {tuned.path} chooses among plans", "compile one of them: -D fixes decisions"
            )
        plans = compile_plans(path, out, tuned, chosen, mode, how)
        return plans.run(how) if options.run else plans.compiled

    def compile_here() -> Compiled:
        text, without = read(path, options.defines, folds=not options.unroll).on(chosen.target)  # text -> AST
        text = text.with_open_devices(_placed(tuned))
        if printer.stages:
            printer.after_lowering(text.program())
        folded = text.graph()  # -> Program -> Graph
        printer.after_edges(folded)
        with display.phase("finding the traversal"):
            graph, picked, number = wanted_traversal(folded, options.traversal)  # Graph -> Traversal
        printer.after_choosing(graph, picked)
        name = graph.program.name
        compiled = compile_traversal(
            graph, picked, chosen, Path(out) if out is not None else Path("dagc-out") / name, options,
            open=_open(graph.unrolled, tuned, chosen, mode, options), display=display,
            arrays=how.arrays if options.run else None, printer=printer,
        )  # fmt: skip
        return replace(compiled, number=number, left_out=(*without, *compiled.left_out))

    if rank is not None:
        return _run_as_rank(compile_here, how)
    return _checked(compile_here(), how) if options.run else compile_here()


def limits(done: Compiled, options: CompileOptions) -> tuple[LimitRow, ...]:
    """How far a program that ran is from the lower bounds of its kernels and of itself; none where the speed of the
    machine cannot be measured, or the program chooses among plans."""
    from dagc.study.limits import limits_of_run  # loads sympy

    if done.result is None or done.launcher is not None:
        return ()
    return limits_of_run(done.plan, done.result, Running(done.result.ranks, options, SILENT).data(done))


def _rank(how: Running, form: str) -> int | None:
    """The rank of this process, None if it starts all ranks. Raises UsageError for options that cannot run."""
    if form not in ("program", "driver"):
        raise UsageError(f"--run needs a standalone program, not a {form}", "drop --run, or drop --as")
    return rank_among(how.ranks)


def _checked(done: Compiled, how: Running) -> Compiled:
    """Check and time it. If its results are wrong, or a kernel failed on the GPU, search for the op."""
    from dagc.measure.bench import fails_in_a_kernel  # loads numpy

    if promises(done.plan.graph):
        _audit(done, how)
    try:
        return replace(done, result=how.time(done))
    except (WrongResult, RunFailed) as error:
        wrong = isinstance(error, WrongResult)
        if wrong or fails_in_a_kernel(error):
            _audit(done, how)  # may know which op it is
        if not wrong:
            raise
        audited = "" if done.plan.open else "run one by one, all ops change only what their headers declare; "
        raise WrongResult(error.message, audited + where_to_look(done.plan.program)) from None


def _tuned(launch: str) -> Tuned | None:
    """The tuned file that `--launch` names, None for `fixed`."""
    if launch == "fixed":
        return None
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    return load_tuned(launch)


def _placed(tuned: Tuned | None) -> set[str]:
    """The ops for which a tuned file chooses the device."""
    if tuned is None:
        return set()
    answers = ((op, choice.variant) for op, c in tuned.kernel_choosers.items() for choice in c.settings)
    return {op for op, variant in answers if "." in variant}


def _chooses_plans(tuned: Tuned, form: str) -> bool:
    from dagc.study.plans import has_plans  # only with --launch

    if has_plans(tuned) and form == "driver":
        message = f"{tuned.path} chooses among plans, which cannot be a {form} yet"
        raise UsageError(message, "compile one of them: -D fixes decisions")
    return has_plans(tuned)


def _mode(options: CompileOptions, tuned: Tuned | None) -> Features:
    """The mode of `--features`. Raises UsageError if it, or `--no-constraints`, has no effect."""
    features, form = options.features, options.form
    if features not in (names := [mode.value for mode in Features]):
        raise UsageError(f"--features {features}: not one of the choices", f"choose from {', '.join(names)}")
    mode = Features(features)
    if tuned is None and (mode is not Features.NOW or not options.constraints):
        option = f"--features {features}" if options.constraints else "--no-constraints"
        raise UsageError(f"{option} is for a program that chooses when it runs", "add --launch TUNED")
    if mode is Features.ASYNC and form not in ("program", "driver"):
        raise UsageError(
            f"--features async: a {form} chooses when it gets the arrays, which are the application's afterwards",
            "use --features now or parallel",
        )
    return mode


def _open(
    graph: Graph, tuned: Tuned | None, chosen: TargetChoice, mode: Features, options: CompileOptions
) -> OpenChoices:
    """The launch parameters that stay open until the program runs, and their choosers. Raises UsageError if features
    are to be computed during the first runs of a program that runs once."""
    if mode is Features.BESIDE and options.form in ("program", "driver") and graph.program.repeat is None:
        raise UsageError("--features beside: the dag runs once, so no later run gains", "write `dag repeat N {...}`")
    if tuned is None:
        return _defaults_of_open_devices(graph)
    from dagc.study.tuned import open_choices  # only with --launch

    return open_choices(graph, tuned, chosen.gpu_arch, mode, options.constraints)


def _defaults_of_open_devices(graph: Graph) -> OpenChoices:
    """For each op whose device is open without a learned choice (`-D OP.device=any`): its default, and its first
    implementation on the CPU, which runs if the default cannot."""
    ops = {op.op.site: op.op for op in graph.ops if isinstance(op.op, KernelOp) and op.op.placed}
    sites = [s for s, op in ops.items() if op.device is Device.GPU and open_variants(graph.program, op)]
    if not sites:
        return OpenChoices()
    from dagc.choice.choose import default_chooser, emitted  # only with such an op

    choosers = [default_chooser(graph, site) for site in sites]
    return OpenChoices(tuple(d for c in choosers for d in c.site.taken), emitted(choosers))


def _audit(done: Compiled, how: Running) -> None:
    """Raises WrongResult with the name of the op if an op changes an array that its header does not declare as written.

    Runs the order of the plan and the one most different from the text, so that overlapping parts are detected in one
    of them.
    """
    from dagc.emit import table_line  # loads jinja2
    from dagc.measure.bench import run_audit  # loads numpy

    if done.plan.open:
        return  # its launch parameters are chosen when the program runs
    with how.display.phase("compiling the runner, checking what each op changes"):
        runner = build_artifact(done.directory, done.plan, "audit")
        tables = [table_line(t) for t in (done.plan.traversal, Space(done.plan.graph).last())]
        direct, watchdog = how.options.mpi_takes_device_pointers, how.options.watchdog
        with _saying_where_to_look(done):
            run_audit(runner, how.data(done), how.ranks, tables, direct, watchdog)


@contextmanager
def _saying_where_to_look(done: Compiled) -> Iterator[None]:
    """Gives wrong results their help."""
    try:
        yield
    except WrongResult as error:
        raise WrongResult(error.message, error.help or where_to_look(done.plan.program)) from None


def _run_as_rank(compile_here: Callable[[], Compiled], how: Running) -> Compiled:
    """Run as one of several ranks: rank 0 compiles, all run."""
    from dagc.emit import rows  # loads jinja2
    from dagc.measure.bench import Team  # loads numpy

    team = Team()

    def prepare() -> tuple[Compiled, Path, Path]:
        done = compile_here()
        return done, how.data(done).absolute(), build_artifact(done.directory, done.plan, "runner")

    done, data, library = team.first(prepare)
    o = how.options
    table = rows(done.plan.traversal)
    with _saying_where_to_look(done):
        result = team.measure(library, data, table, o.seconds, o.repeats, o.mpi_takes_device_pointers, o.watchdog)
    return replace(done, result=result if team.rank == 0 else None)


def wanted_traversal(graph: Graph, wanted: str) -> tuple[Graph, Traversal, int | None]:
    """The traversal named by `first`, an ID or a file, and its ID (None: not in the space, or in one too large to
    count).

    If `graph` is folded, so is a traversal by ID. A file may give every round of a loop instead; the graph returned
    with it is then the unrolled one.
    """
    space = Space(graph)
    if wanted == "first":
        return graph, space.first(), 0
    if wanted.isdecimal() and len(wanted) > _ID_DIGITS:
        raise UsageError(f"no traversal has an ID of {len(wanted)} digits", "see `dagc count`")
    if wanted.isdecimal():
        return graph, space.at(int(wanted)), int(wanted)
    source = read_source(wanted, "a traversal's text or of a plan.json, an ID, or first")
    if source.text.lstrip().startswith("{"):
        read_for, traversal = graph.unrolled, plan_from_json(source.text, graph.unrolled, wanted).traversal
        period = plan_inputs(source.text, wanted).period
        if graph.folding is not None and period:
            read_for, traversal = graph, parse_traversal(period, graph, wanted)
    else:
        read_for = graph if is_folded_text(source.text, graph) else graph.unrolled
        traversal = parse_traversal(source.text, read_for, wanted)
    if read_for is not graph:
        return read_for, traversal, None
    try:
        return read_for, traversal, Space(read_for, limit=_ID_STATES).id_of(traversal)
    except (UsageError, TooManyStates):
        return read_for, traversal, None  # the caller proves or refuses it; a pruned traversal is not in the space


# ---- libraries in Python ---------------------------------------------------------------------------


def load_library(directory: str | Path) -> ModuleType:
    """The Python module of a library in the output directory of `dagc compile --as library`, or of `dagc best`.

    The module does not need dagc: an application can import `python/NAME` itself. Its class `Instance` is the program
    on the caller's arrays. Raises UsageError if the directory has no such module, or if the library is not built.
    """
    folder = Path(directory)
    packages = sorted(folder.glob("python/*/__init__.py"))
    if len(packages) != 1:
        raise UsageError(f"{folder} has no library in it", "write one with `dagc compile FILE --as library -o DIR`")
    package = packages[0].parent
    if not (folder / f"lib/lib{package.name}.so").exists():
        raise UsageError(f"{folder}/lib/lib{package.name}.so is missing", "compile without --no-build, or by CMake")
    # A name of its own: an application may have another module of the library's name.
    name = f"dagc_library_{package.name}_{hash(package.resolve()) & 0xFFFFFFFF:08x}"
    spec = importlib.util.spec_from_file_location(name, packages[0], submodule_search_locations=[str(package)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
